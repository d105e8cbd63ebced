"""The harness itself: what it tells of a page is true."""


def test_a_page_that_fetches_and_complains_is_not_clean(open_page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(
        "<title>t</title><button>b</button><script>console.warn('hear me');"
        "fetch('http://127.0.0.1:9/nothing').catch(() => {});document.querySelector('button').onclick = () => window.clicked = 1</script>"
    )
    page = open_page(file)
    page.click_at("button", 3, 3)
    assert page.wait("window.clicked") == 1
    assert page.run("return await Promise.resolve([1, args[0]])", "two") == [1, "two"]
    assert page.requests() == ["http://127.0.0.1:9/nothing"]
    assert any("hear me" in line for line in page.complaints())


def test_a_quiet_page_is_clean(open_page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text("<title>t</title><p>quiet</p>")
    page = open_page(file)
    assert page.find("p").text == "quiet"
    page.media(prefers_color_scheme="dark")
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") is True
    page.clean()
