"""The documentation as its readers see it: pages in a browser without a network, and the search in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser_page import Page

from doc_blocks import build_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def test_pages_show_without_a_network(site: Path, open_page: Callable[[Path], Page]) -> None:
    for name in ("index", "tutorial", "guide/python", "reference/recording", "reference/c", "reference/command-line"):
        page = open_page(site / f"{name}.html")
        assert page.find("h1").text
        assert page.run("return [...document.images].every(image => image.complete && image.naturalWidth > 0)")
        page.clean()


def test_the_contents_lead_to_every_kind_of_page(site: Path, open_page: Callable[[Path], Page]) -> None:
    page = open_page(site / "index.html")
    captions = [element.text.lower() for element in page.all(".sidebar-tree .caption")]
    assert captions == ["start", "guides", "how to", "tools and modes", "reference", "files", "about"]
    page.driver.find_element("link text", "Guides").click()
    assert page.find("h1").text.startswith("Guides")


def test_a_search_finds_a_setting(site: Path, open_page: Callable[[Path], Page]) -> None:
    page = open_page(site / "search.html")
    page.open(f"{(site / 'search.html').as_uri()}?q=spool_policy")
    page.wait("document.querySelectorAll('#search-results li').length > 0")
    assert any("Settings" in element.text for element in page.all("#search-results li"))
    page.clean()
