"""`scope-profiler site`: pages about many runs, rendered as Astro renders them."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.cli import main

yaml = pytest.importorskip("yaml")
RENDERER = Path(__file__).parents[1] / "site"
PAGES, PUBLIC = Path("src/content/docs/catalogue"), Path("public/catalogue")

# Names that mean something to Markdown, MDX, HTML, JavaScript or what makes typographic quotes.
ODD = [
    "a|b", "{x} <b>&amp; `c`", "import x from 'y'", "export thing", "*bold* _it_ ~~s~~", "[l](http://x)", '--- "q" ...', "<script>alert(1)</script>",
    "\\n back", "1. one", "# head", "$e^x$", "www.example.org", "- item", "é ünï 中", "&lt;", "</td>", "{`${1}`}", "a--b", "C:\\x", "a@b.org", "+", "::",
]  # fmt: skip


def record(path: Path, label: str | None, *regions: str, calls: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    manager = sp.ProfileManager()
    with manager.session(output=path, verbose=False, label=label):
        for name in regions:
            for _ in range(calls):
                with manager.region(name):
                    pass
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with some profiles, which is the current one."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "data/np1.h5", "one rank", "solve", "inner")
    record(tmp_path / "data/np2.h5", None, "solve")
    record(tmp_path / "data/np10.h5", None, "solve")
    (tmp_path / "notes.txt").write_text("some notes\n")
    return tmp_path


def site(manifest: dict[str, Any] | str, *options: str, code: int = 0) -> None:
    """Write the manifest and run the command on it."""
    Path("manifest.yaml").write_text(manifest if isinstance(manifest, str) else yaml.safe_dump(manifest))
    assert main(["site", "manifest.yaml", *options]) == code


def refused(capsys: pytest.CaptureFixture[str], manifest: dict[str, Any] | str, *options: str) -> str:
    """What is told of a manifest that cannot be used."""
    capsys.readouterr()
    site(manifest, *options, code=2)
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("scope-profiler: ")
    return err.removeprefix("scope-profiler: ").strip()


class Rendered(html.parser.HTMLParser):
    """A page as a reader sees it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.elements: list[str] = []
        self.frames: list[str] = []
        self.text = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.elements.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._cell = True
        self.links += [values[key] or "" for key in ("href", "src") if key in values]
        if tag == "iframe":
            self.frames.append(values["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data


def render(*paths: Path) -> list[Rendered]:
    """Pages compiled by MDX and rendered."""
    if shutil.which("node") is None or not (RENDERER / "node_modules").is_dir():
        pytest.skip("the packages of tests/site are not installed")
    process = subprocess.run(
        ["node", str(RENDERER / "render.mjs"), *(str(path.resolve()) for path in paths)], capture_output=True, text=True, timeout=120, cwd=RENDERER
    )
    assert process.returncode == 0, process.stderr
    return [Rendered(text) for text in json.loads(process.stdout)]


BASIC = {"title": "All runs", "base": "/site", "cases": [{"title": "Poisson solver", "runs": ["data/np1.h5", "data/np2.h5"]}]}


# -- pages -----------------------------------------------------------------------------------------------------------------


def test_pages_and_reports_are_where_astro_looks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site(BASIC, "-o", "project")
    assert capsys.readouterr().out == "wrote project: 1 case, 2 runs, 10 files\n"
    pages = sorted(str(path.relative_to(PAGES)) for path in Path("project", PAGES).rglob("*.mdx") for path in [path.relative_to("project")])
    assert pages == ["index.mdx", "poisson-solver.mdx", "poisson-solver/np2.mdx", "poisson-solver/one-rank.mdx"]
    reports = sorted(str(path.relative_to(Path("project", PUBLIC))) for path in Path("project", PUBLIC).rglob("report.html"))
    assert reports == ["poisson-solver/_case/report.html", "poisson-solver/np2/report.html", "poisson-solver/one-rank/report.html"]
    index = json.loads(Path("project", PUBLIC, "index.json").read_text())
    assert index["title"] == "All runs" and [case["id"] for case in index["cases"]] == ["poisson-solver"]
    runs = index["cases"][0]["runs"]
    assert [(run["label"], run["slug"], run["ranks"]) for run in runs] == [("one rank", "one-rank", 1), ("np2", "np2", 1)]
    assert runs[0]["wall_time"] == pytest.approx(sp.load("data/np1.h5").time_span)


@pytest.mark.slow
def test_every_page_renders_and_every_link_leads_somewhere(place: Path) -> None:
    (place / "pic {a}.png").write_bytes(b"\x89PNG")
    (place / "meta.yml").write_text("a: 1\n```\n<b> {x}\n")
    odd = record(place / "data/odd.h5", "odd {label} | <x>", *ODD)
    site(
        {
            "title": 'Odd {title} <t> "q"', "description": "export of <things> {here}\n\n# no heading", "base": "/my/site",
            "cases": [
                {
                    "title": "A {case} & <b>", "group": "G <g>", "tags": ["{t}", "a|b", "plain"], "description": 'import x from "y"',
                    "info": {"k|<e>{y}": "v `w` {z}"}, "files": ["meta.yml"], "images": ["pic {a}.png"],
                    "code": [{"path": "notes.txt", "label": "the {code} | x", "url": 'https://example.org/a"b{c}'}, "https://example.org/only"],
                    "runs": [str(odd), "data/np1.h5"], "metadata": "all",
                },
                {
                    "title": "Nightly",
                    "executions": [
                        {"label": "first <1>", "date": "2024-01-02", "runs": ["data/np1.h5"]},
                        {"id": "e2", "date": "2024-01-03", "runs": [{"path": "data/np2.h5", "label": "one rank"}], "info": {"commit": 7}},
                    ],
                },
            ],
        }
    )  # fmt: skip
    root = Path("docs")
    paths = sorted((root / PAGES).rglob("*.mdx"))
    pages = dict(zip((str(path.relative_to(root / PAGES)) for path in paths), render(*paths)))
    assert sorted(pages) == [
        "g-g/a-case-b.mdx", "g-g/a-case-b/odd-label-x.mdx", "g-g/a-case-b/one-rank.mdx", "index.mdx", "nightly.mdx", "nightly/compare.mdx",
        "nightly/e2/one-rank.mdx", "nightly/first-1.mdx", "nightly/first-1/one-rank.mdx",
    ]  # fmt: skip
    for name, page in pages.items():
        assert not {"script", "b", "h1", "li"} & set(page.elements), name
        for link in page.links:
            if not link.startswith("https://"):
                local = unquote(link).removeprefix("/my/site/")
                assert local != unquote(link) and local.startswith("catalogue/")
                target = root / "public" / local if not local.endswith("/") else root / "src/content/docs" / f"{local.rstrip('/')}.mdx"
                assert target.is_file() or (target.with_suffix("") / "index.mdx").is_file(), (name, link)
    for page in (pages["g-g/a-case-b/odd-label-x.mdx"], pages["g-g/a-case-b.mdx"]):
        cells = [row[0] for row in page.rows if row]
        assert [name for name in ODD if name not in cells] == []
    case = pages["g-g/a-case-b.mdx"]
    assert ["k|<e>{y}", "v `w` {z}"] in case.rows and 'import x from "y"' in case.text and "{t}, a|b, plain" in case.text
    assert "a: 1\n```\n<b> {x}" in case.text and "some notes" in case.text and "the {code} | x" in case.text
    assert {"https://example.org/a%22b%7Bc%7D", "https://example.org/only"} <= set(case.links)
    assert case.frames == ["/my/site/catalogue/g-g/a-case-b/_case/report.html"]
    assert pages["index.mdx"].rows[1] == ["A {case} & <b>", "G <g>", "{t}, a|b, plain", "2", "1", "1"]


@pytest.mark.slow
def test_numbers_are_those_of_the_profiles(place: Path) -> None:
    record(place / "data/np2.h5", None, "solve", "other", calls=3)
    site(BASIC)
    root = Path("docs", PAGES)
    run, case = render(root / "poisson-solver/np2.mdx", root / "poisson-solver.mdx")
    results, before = sp.load("data/np2.h5"), sp.load("data/np1.h5")
    [row] = [row for row in run.rows if row[:1] == ["solve"]]
    solve = results["solve"]
    assert row[1:3] == ["1", "3"]
    assert [float(cell) for cell in row[3:]] == pytest.approx(
        [solve.total_duration, solve.average_duration, solve.min_duration, solve.max_duration], rel=1e-5
    )
    [row] = [row for row in case.rows if row[:1] == ["solve"]]
    first, second, change = row[1:]
    assert float(first) == pytest.approx(before["solve"].total_duration, rel=1e-5) and float(second) == pytest.approx(solve.total_duration, rel=1e-5)
    expected = 100 * (solve.total_duration / before["solve"].total_duration - 1)
    assert float(change.rstrip("%")) == pytest.approx(expected, abs=0.06)
    assert [row for row in case.rows if row[:1] == ["other"]][0][1] == ""
    assert [row for row in case.rows if row[:1] == ["inner"]][0][2:] == ["", ""]


@pytest.mark.slow
def test_executions_are_followed_over_time(place: Path) -> None:
    for night, calls in (("n1", 1), ("n2", 2), ("n10", 3)):
        record(place / f"nightly/{night}/np1.h5", "base", "solve", calls=calls)
    (place / "nightly/n2/meta.yml").write_text("label: second night\ndate: 2024-05-01\ninfo: {commit: abc}\n")
    (place / "nightly/empty").mkdir()
    site({"base": "", "cases": [{"title": "Nightly", "executions": {"path": "nightly/{execution}/np*.h5"}, "info": {"machine": "m"}}]})
    root = Path("docs", PAGES)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*.mdx")) == [
        "index.mdx", "nightly.mdx", "nightly/compare.mdx", "nightly/n1.mdx", "nightly/n1/base.mdx", "nightly/n10/base.mdx", "nightly/n2.mdx",
        "nightly/n2/base.mdx",
    ]  # fmt: skip
    latest, second, compare = render(root / "nightly.mdx", root / "nightly/n2.mdx", root / "nightly/compare.mdx")
    place_of = next(place for place, row in enumerate(latest.rows) if row[:1] == ["execution"])
    assert latest.rows[place_of] == ["execution", "date", "base [s]", "change"]
    rows = latest.rows[place_of + 1 : place_of + 4]
    assert [row[:2] for row in rows] == [["n10", ""], ["second night", "2024-05-01"], ["n1", ""]]
    times = [sp.load(f"nightly/{night}/np1.h5").time_span for night in ("n10", "n2", "n1")]
    assert [float(row[2]) for row in rows] == pytest.approx(times, rel=1e-5)
    assert [row[3] for row in rows] == [f"{100 * (a / b - 1):+.1f}%" for a, b in zip(times, times[1:])] + [""]
    assert ["commit", "abc"] in second.rows and ["machine", "m"] in second.rows and ["commit", "abc"] not in latest.rows
    assert [row for row in compare.rows if row[:1] == ["region"]][0][1:3] == ["n1: base [s]", "second night: base [s]"]
    index = json.loads(Path("docs", PUBLIC, "index.json").read_text())
    assert index["cases"][0]["executions"] == 3


def test_files_of_each_run_are_found_by_its_name(place: Path) -> None:
    (place / "params").mkdir()
    for name in ("np1", "np2"):
        (place / f"params/{name}.yml").write_text(f"name: {name}\n")
    (place / "big.bin").write_bytes(bytes(1000))
    case = {"title": "c", "runs": [{"path": "data/np[12].h5", "files": ["params/{stem}.yml", "big.bin"]}]}
    site({"base": "/s", "cases": [case]})
    for slug, name in (("one-rank", "np1"), ("np2", "np2")):
        files = Path("docs", PUBLIC, "c", slug, "files")
        assert sorted(path.name for path in files.iterdir()) == ["big.bin", f"{name}.yml"]
        text = Path("docs", PAGES, "c", f"{slug}.mdx").read_text()
        assert f"name: {name}" in text and "(1000 bytes)" in text


def test_globs_are_in_natural_order_and_selections_apply(place: Path) -> None:
    site({"base": "", "defaults": {"include": "sol"}, "cases": [{"title": "c", "runs": "data/np*.h5"}, {"title": "d", "runs": "data/np1.h5", "exclude": ["solve"], "include": ["solve", "inn"]}]})
    index = json.loads(Path("docs", PUBLIC, "index.json").read_text())
    assert [run["label"] for run in index["cases"][0]["runs"]] == ["one rank", "np2", "np10"]
    for case, shown, hidden in (("c", "solve", "inner"), ("d", "inner", "solve")):
        text = Path("docs", PAGES, case, "one-rank.mdx").read_text()
        assert f"| {shown} |" in text and f"| {hidden} |" not in text


def test_charts_can_be_left_out(place: Path) -> None:
    site(BASIC, "--no-charts")
    assert not list(Path("docs", PUBLIC).rglob("*.html"))
    assert "iframe" not in Path("docs", PAGES, "poisson-solver.mdx").read_text()
    site({**BASIC, "cases": [{**BASIC["cases"][0], "charts": False}, {"title": "with", "runs": ["data/np1.h5"]}]})  # type: ignore[dict-item, index]
    found = [str(path.relative_to(Path("docs", PUBLIC))) for path in Path("docs", PUBLIC).rglob("*.html")]
    assert found == (["with/one-rank/report.html"] if _core.HAS_VIEWER else [])


# -- writing ---------------------------------------------------------------------------------------------------------------


def test_what_it_wrote_is_replaced_and_nothing_else(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site(BASIC)
    capsys.readouterr()
    other = Path("docs/src/content/docs/mine.mdx")
    other.write_text("mine")
    stale = Path("docs", PAGES, "stale.mdx")
    stale.write_text("stale")
    site(BASIC)
    assert other.read_text() == "mine" and not stale.exists()
    assert not [path for path in Path("docs").rglob(".catalogue*")]
    # Somebody else's directory
    shutil.rmtree(Path("docs", PAGES))
    Path("docs", PAGES).mkdir()
    stale.write_text("theirs")
    assert f"docs/{PAGES} was not written by scope-profiler site" in refused(capsys, BASIC)
    assert stale.read_text() == "theirs"
    site(BASIC, "--no-clean")
    assert stale.read_text() == "theirs" and Path("docs", PAGES, "index.mdx").is_file()


def test_a_site_that_fails_leaves_the_old_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site(BASIC)
    before = {path: path.read_bytes() for path in Path("docs").rglob("*") if path.is_file()}
    capsys.readouterr()
    (place / "data/np2.h5").write_text("damaged")
    assert "case 'poisson-solver': data/np2.h5 is not an HDF5 file" in refused(capsys, BASIC)
    assert {path: path.read_bytes() for path in Path("docs").rglob("*") if path.is_file()} == before


def test_checking_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site(BASIC, "--check")
    assert capsys.readouterr().out == "manifest.yaml: 1 case, 2 runs, all can be read\n"
    assert not Path("docs").exists()
    (place / "data/np2.h5").write_text("damaged")
    assert "data/np2.h5" in refused(capsys, BASIC, "--check")


def test_where_the_site_is_must_be_known(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without = {key: value for key, value in BASIC.items() if key != "base"}
    assert "where will the site be?" in refused(capsys, without)
    site(without, "--base", "/a/b/")
    assert "(/a/b/catalogue/poisson-solver/)" in Path("docs", PAGES, "index.mdx").read_text()
    site(without, "--base", "")
    assert "(/catalogue/poisson-solver/)" in Path("docs", PAGES, "index.mdx").read_text()
    capsys.readouterr()
    for base in ("name", "/a b", "/a/../b", "//host", '/a"'):
        assert "is no base path" in refused(capsys, without, "--base", base)


RUNS = ["data/np1.h5"]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("cases: []", "manifest: cases must be a list, and not be empty"),
        ("[1, 2", "manifest.yaml: "),
        ("- 1", "manifest must be a mapping"),
        ("cases: &a [*a]", "cases[0] must be a mapping"),
        ({"cases": [{"runs": RUNS}]}, "cases[0]: a case needs a title or an id"),
        ({"cases": [{"title": "中", "runs": RUNS}]}, "cases[0]: a case needs a title or an id with letters or digits"),
        ({"cases": [{"title": "a"}]}, "case 'a': a case has either runs or executions"),
        ({"cases": [{"title": "a", "runs": []}]}, "case 'a'.runs: there are no runs"),
        ({"cases": [{"title": "a", "runs": ["none.h5"]}]}, "case 'a'.runs[0]: there is no file 'none.h5'"),
        ({"cases": [{"title": "a", "runs": ["none*.h5"]}]}, "case 'a'.runs[0]: no file matches 'none*.h5'"),
        ({"cases": [{"title": "a", "runs": [{"label": "x"}]}]}, "case 'a'.runs[0] needs a path"),
        ({"cases": [{"title": "a", "runs": [{"path": "data/*.h5", "label": "x"}]}]}, "one label for the 3 files"),
        ({"cases": [{"title": "a", "runs": RUNS, "scalng": "weak"}]}, "case 'a': there is no 'scalng', did you mean 'scaling'?"),
        ({"cases": [{"title": "a", "runs": RUNS, "scaling": "x"}]}, "case 'a'.scaling must be one of strong, weak, both, none, not 'x'"),
        ({"cases": [{"title": "a", "runs": RUNS, "charts": "yes"}]}, "case 'a'.charts must be true or false, not 'yes'"),
        ({"cases": [{"title": "a", "runs": RUNS, "include": "("}]}, "case 'a'.include: '(' is not a regular expression"),
        ({"cases": [{"title": "a", "runs": RUNS, "ranks": "x"}]}, "case 'a'.ranks: 'x' is not a list of ranks"),
        ({"cases": [{"title": "a", "runs": RUNS, "files": ["none"]}]}, "case 'a'.files: there is no file 'none'"),
        ({"cases": [{"title": "a", "runs": RUNS, "code": [{"url": "javascript:x"}]}]}, "case 'a'.code[0].url must begin with https://"),
        ({"cases": [{"title": "a", "runs": RUNS}, {"title": "A", "runs": RUNS}]}, "case 'a': another case has the same id"),
        ({"cases": [{"title": "a", "executions": "data/np1.h5"}]}, "case 'a'.executions.path needs one directory that is called {execution}"),
        ({"cases": [{"title": "a", "executions": "none/{execution}/x.h5"}]}, "case 'a'.executions: there are none"),
        ({"cases": [{"title": "a", "executions": [{"id": "x", "runs": RUNS}, {"id": "X", "runs": RUNS}]}]}, "two have the id 'x'"),
        ({"cases": [{"title": "a", "runs": RUNS}], "titel": "x"}, "manifest: there is no 'titel', did you mean 'title'?"),
        ({"cases": [{"title": "a", "runs": RUNS}], "defaults": {"title": "x"}}, "defaults: there is no 'title'"),
        ({"cases": [{"title": "a", "runs": RUNS}], "base": "x"}, "base: 'x' is no base path"),
        ({"cases": [{"title": ["a"], "runs": RUNS}]}, "cases[0].title must be text"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told_in_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], manifest: Any, message: str
) -> None:
    assert message in refused(capsys, manifest, "--base", "/x")
    assert not Path("docs").exists()


def test_a_missing_package_or_file_is_told(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["site", "none.yaml"]) == 2
    assert capsys.readouterr().err == "scope-profiler: none.yaml: no such file\n"
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert refused(capsys, "cases: []") == "manifests are YAML: pip install scope-profiler[site]"


def test_names_of_pages_are_words_of_an_address() -> None:
    from scope_profiler.site_manifest import slugify

    assert [slugify(text) for text in ("Poisson  Solver!", "é ünï", "../x", "中", "a_b-C 3")] == ["poisson-solver", "e-uni", "x", "", "a-b-c-3"]
    assert re.fullmatch(r"[a-z0-9-]*", slugify("".join(map(chr, range(1, 3000)))))
