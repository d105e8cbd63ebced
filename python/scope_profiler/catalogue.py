"""A page that lists report pages, with a link to each."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    StrPath = str | os.PathLike[str]

__all__ = ["create_catalogue"]

TITLE = "Profiling reports"
_HEAD = 1 << 20  # bytes of a page in which its title and, in one of ours, its tables are looked for first
_DATA = re.compile(r'<script type="application/json" id="sp-report">(.*?)</script>', re.DOTALL)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)

_STYLE = (
    "body{font-family:system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}th,td{padding:.4rem .8rem;text-align:left;border-bottom:1px solid #8884}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}small{opacity:.7}"
)


class _Entry(NamedTuple):
    """A report as the catalogue shows it; what is not known is empty."""

    title: str
    path: str
    recorded: str = ""
    runs: str = ""
    ranks: str = ""
    regions: str = ""
    seconds: str = ""


def create_catalogue(reports: Sequence[StrPath], filepath: StrPath, *, title: str = TITLE) -> Path:
    """Write a page with a row for each report, in the order given: its name as a link, and what is known of its runs.

    Parameters
    ----------
    reports
        Pages: those of :func:`scope_profiler.create_html_report`, of which the runs are told, or any other.
    filepath
        Where to. Directories are made; links are relative to it.
    title
        Of the page.

    Returns
    -------
    Path
        The page, which fetches nothing.

    Raises
    ------
    FileNotFoundError
        A report is not there.
    ValueError
        There are no reports, or the catalogue would replace one of them.
    OSError
        If a report cannot be read or the page cannot be written; an older page is left as it was.
    """
    from scope_profiler.plotting_scripts._files import write_text

    path = Path(filepath)
    if not reports:
        raise ValueError("a catalogue needs reports")
    entries = []
    for report in map(Path, reports):
        if not report.is_file():
            raise FileNotFoundError(2, "no such file", os.fspath(report))
        if path.exists() and path.samefile(report):
            raise ValueError(f"{path} is one of the reports: the catalogue would replace it")
        entries.append(_entry(report))
    write_text(path, _page(entries, path.parent, title))
    return path


# -- what is known of a report ---------------------------------------------------------------------------------------------


def _entry(report: Path) -> _Entry:
    text = report.read_bytes().decode("utf-8", "replace")
    found = _DATA.search(text)
    runs = _runs(found[1]) if found else []
    if runs:
        return _of_runs(report, runs)
    head = _TITLE.search(text[:_HEAD])
    words = " ".join(html.unescape(head[1]).split()) if head else ""
    return _Entry(words or report.stem, os.fspath(report))


def _runs(document: str) -> list[dict[str, Any]]:
    """The runs of a page of ours; none if it is not what it seems to be."""
    try:
        runs = json.loads(document)["runs"]
        return [run for run in runs if isinstance(run["name"], str) and isinstance(run["metadata"], list)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _of_runs(report: Path, runs: Sequence[dict[str, Any]]) -> _Entry:
    metadata = [_facts(run) for run in runs]
    return _Entry(
        title=", ".join(run["name"] for run in runs),
        path=os.fspath(report),
        recorded=_span(sorted(_moment(facts.get("timestamp", "")) for facts in metadata)),
        runs=str(len(runs)),
        ranks=_span(sorted({facts.get("mpi_size", "") for facts in metadata}, key=lambda text: (len(text), text))),
        regions=str(len({name for run in runs for name in run.get("names", ()) if isinstance(name, str)})),
        seconds=_span([_seconds(run) for run in runs]),
    )


def _facts(run: dict[str, Any]) -> dict[str, str]:
    pairs = (pair for pair in run["metadata"] if isinstance(pair, list) and len(pair) == 2)
    return {str(key): str(value) for key, value in pairs}


def _moment(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ") + (" UTC" if timestamp.endswith("+00:00") else "") if timestamp else ""


def _seconds(run: dict[str, Any]) -> str:
    try:
        return f"{(run['end'] - run['start']) / 1e9:.4g} s"
    except (KeyError, TypeError):
        return ""


def _span(texts: Sequence[str]) -> str:
    """The first and the last of what the runs have."""
    known = [text for text in texts if text]
    if not known or known[0] == known[-1]:
        return known[0] if known else ""
    return f"{known[0]} \u2013 {known[-1]}"


# -- the page --------------------------------------------------------------------------------------------------------------

_COLUMNS = (("report", ""), ("recorded", ""), ("runs", "n"), ("ranks", "n"), ("regions", "n"), ("time", "n"))


def _page(entries: Iterable[_Entry], directory: Path, title: str) -> str:
    heading = html.escape(title)
    header = "".join(f'<th class="{kind}">{name}</th>' if kind else f"<th>{name}</th>" for name, kind in _COLUMNS)
    rows = "\n".join(_row(entry, directory) for entry in entries)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>\n"
        f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</body>\n</html>\n"
    )


def _row(entry: _Entry, directory: Path) -> str:
    shown = os.path.relpath(entry.path, directory)
    link = f'<a href="{html.escape(quote(shown, errors="surrogateescape"))}">{html.escape(entry.title)}</a>'
    cells = (entry.recorded, entry.runs, entry.ranks, entry.regions, entry.seconds)
    others = "".join(
        f'<td class="{kind}">{html.escape(cell)}</td>' if kind else f"<td>{html.escape(cell)}</td>"
        for cell, (_, kind) in zip(cells, _COLUMNS[1:])
    )
    return f"<tr><td>{link} <small>{html.escape(shown)}</small></td>{others}</tr>"
