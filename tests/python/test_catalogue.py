"""`scope-profiler catalogue`: a page that lists reports."""

from __future__ import annotations

import html.parser
import os
from pathlib import Path
from urllib.parse import unquote

import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.catalogue import create_catalogue
from scope_profiler.cli import main

needs_viewer = pytest.mark.skipif(not _core.HAS_VIEWER, reason="a build without the page for the browser")


class Page(html.parser.HTMLParser):
    """The cells of a page's table by row, its links, its title, and whatever it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.texts: dict[str, str] = {}
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(values["href"] or "")
        if tag in ("script", "link", "img", "iframe") or "src" in values:
            self.fetched.append(tag)
        if tag != "meta":
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._inside.pop()

    def handle_data(self, data: str) -> None:
        if "td" in self._inside or "th" in self._inside:
            self.rows[-1][-1] += data
        elif self._inside:
            self.texts[self._inside[-1]] = self.texts.get(self._inside[-1], "") + data


def record(path: Path, label: str, *regions: str) -> Path:
    manager = sp.ProfileManager()
    with manager.session(output=path, verbose=False, label=label):
        for name in regions:
            with manager.region(name):
                pass
    return path


@needs_viewer
def test_reports_are_listed_with_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    one = record(tmp_path / "one.h5", "first <run> & more", "a", "b")
    two = record(tmp_path / "two.h5", "second", "b", "c")
    sp.create_html_report([one], tmp_path / "deep" / "b & c #1.html")
    sp.create_html_report([one, two], tmp_path / "both.html", individual_reports=False)
    assert main(["catalogue", "deep/*.html", "both.html", "-o", "out/index.html", "--title", "Ours <i>"]) == 0
    assert capsys.readouterr().out == "wrote out/index.html\n"
    text = (tmp_path / "out/index.html").read_text()
    page = Page(text)
    assert page.texts["h1"] == page.texts["title"] == "Ours <i>"
    header, first, second = page.rows
    assert header == ["report", "recorded", "runs", "ranks", "regions", "time"]
    assert first[0] == f"first <run> & more {os.path.join('..', 'deep', 'b & c #1.html')}"
    assert first[2:5] == ["1", "1", "3"] and first[1].endswith(" UTC") and first[5].endswith(" s")
    assert second[0].startswith("first <run> & more, second ") and second[2:5] == ["2", "1", "4"]
    # The links lead to the reports.
    for link, report in zip(page.links, ("deep/b & c #1.html", "both.html")):
        assert (tmp_path / "out" / unquote(link)).resolve() == tmp_path / report and "#" not in link and " " not in link
    assert page.fetched == [] and "default-src 'none'" in text


def test_other_pages_have_their_titles(tmp_path: Path) -> None:
    (tmp_path / "titled.html").write_text("<html><head><title>\n A &lt;b&gt;\n title</title></head></html>")
    (tmp_path / "bare.html").write_text("no html at all")
    (tmp_path / "false.html").write_text('<title>x</title><script type="application/json" id="sp-report">{"runs": [3]}</script>')
    (tmp_path / "damaged.html").write_text('<script type="application/json" id="sp-report">{"runs": </script>')
    (tmp_path / "odd.html").write_bytes(b"<title>\xff\xfe</title>")
    written = create_catalogue(sorted(tmp_path.glob("*.html")), tmp_path / "list" / "of.html")
    page = Page(written.read_text())
    assert page.texts["title"] == "Profiling reports"
    assert [row[0].rsplit(" ", 1)[0] for row in page.rows[1:]] == ["bare", "damaged", "x", "\ufffd\ufffd", "A <b> title"]
    assert all(row[1:] == ["", "", "", "", ""] for row in page.rows[1:])


def test_what_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalogue.html").write_text("older")
    for arguments, message in (
        (["none.html"], "none.html: no such file"),
        (["*.htm"], "*.htm: no file matches"),
        (["catalogue.html"], "catalogue.html is one of the reports: the catalogue would replace it"),
        (["catalogue.html", "-o", "catalogue.html/x"], "catalogue.html"),
    ):
        assert main(["catalogue", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and message in err
    assert (tmp_path / "catalogue.html").read_text() == "older"
    with pytest.raises(ValueError, match="a catalogue needs reports"):
        create_catalogue([], tmp_path / "x.html")
