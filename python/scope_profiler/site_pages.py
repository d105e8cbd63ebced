"""The text of a site's pages: MDX with nothing but Markdown, frames and images.

Names in profiles and manifests may have any characters. Everything that is not written here is escaped: for Markdown, for
MDX (where braces are code and angle brackets elements), and for the attributes of elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from scope_profiler.cli.terminal import printable

if TYPE_CHECKING:
    from scope_profiler.results import MPIRegion, ProfilingResults

__all__ = [
    "Attachment", "CasePage", "ExecutionRow", "RunPage", "Shown", "case_page", "compare_page", "index_page", "run_page",
]  # fmt: skip

_ROWS = 100  # regions of a table; the report has all
_MINIMAL = (
    "label", "timestamp", "platform", "chip_information", "python_version", "scope_profiler_version", "mpi_size", "num_nodes",
    "omp_num_threads", "total_cores",
)  # fmt: skip


@dataclass
class Attachment:
    """A file or link on a page."""

    name: str
    link: str
    size: int  # bytes
    text: str | None = None  # what is shown of it
    source: str | None = None  # where it comes from, an address


@dataclass
class Shown:
    """A run in a table."""

    label: str
    results: ProfilingResults
    link: str


@dataclass
class RunPage(Shown):
    """All of the page of a run."""

    label: str
    results: ProfilingResults
    link: str
    place: str  # below the directory of pages
    title: str
    report: str  # address of its report, or empty
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    all_metadata: bool = False
    files: list[Attachment] = field(default_factory=list)
    images: list[Attachment] = field(default_factory=list)
    back: str = ""
    back_title: str = ""
    before: RunPage | None = None
    after: RunPage | None = None


@dataclass
class ExecutionRow:
    """An execution in the table of its case: seconds of wall time by the label of the run."""

    label: str
    date: str
    link: str
    seconds: dict[str, float]


@dataclass
class CasePage:
    """All of the page of a case, or of one of its executions."""

    title: str
    heading: str
    link: str
    order: int
    hidden: bool
    group: str
    tags: Sequence[str]
    description: str
    runs: Sequence[RunPage]
    report: str
    info: Sequence[tuple[str, str]]
    files: list[Attachment]
    images: list[Attachment]
    code: list[Attachment]
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    executions: Sequence[ExecutionRow] = ()
    compare: str = ""


# -- escaping --------------------------------------------------------------------------------------------------------------


_PLAIN = re.compile(r"[A-Za-z0-9+-](?:[A-Za-z0-9 ,%()/]|[.+-](?![.+-]))*")
_MEANT = re.compile(r"(?i)(import|export)\b|\d+[.)]\s|[+-]\s|.*(www\.|//)")


def _prose(text: object) -> str:
    """Text as MDX prose and in cells of tables: as it is where nothing in it means anything, else as a string of JavaScript,
    which neither Markdown nor what makes typographic quotes looks into."""
    line = " ".join(printable(text).split())
    if not line or (_PLAIN.fullmatch(line) and not _MEANT.match(line)):
        return line
    string = json.dumps(line, ensure_ascii=False)
    return "{" + re.sub(r"[<>{}|`*_\[\]&~$\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", string) + "}"


def _paragraph(text: str) -> str:
    line = _prose(text)
    return f"<p>{line}</p>" if line.startswith("{") else line  # braces alone are no paragraph


def _attribute(text: object) -> str:
    return "".join(f"&#{ord(c)};" if c in "\"'&<>{}`" else c for c in " ".join(printable(text).split()))


def _address(link: str) -> str:
    """A link as it may stand in Markdown and in attributes."""
    return quote(link, safe="/:?=%#~+,;@", errors="surrogateescape")


def _string(text: object) -> str:
    """A string of YAML."""
    return json.dumps(" ".join(printable(text).split()))


def _link(text: object, link: str) -> str:
    return f"[{_prose(text)}]({_address(link)})"


# -- parts -----------------------------------------------------------------------------------------------------------------


def _head(title: str, *, description: str = "", label: str = "", order: int | None = None, hidden: bool = False) -> str:
    lines = ["---", f"title: {_string(title)}"]
    if description:
        lines.append(f"description: {_string(description)}")
    lines += ["sidebar:", f"  label: {_string(label or title)}"]
    if order is not None:
        lines.append(f"  order: {order}")
    if hidden:
        lines.append("  hidden: true")
    return "\n".join((*lines, "---"))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table whose cells are escaped; the last ``numbers`` columns are at the right."""
    names = [_prose(name) for name in header]
    rule = ["---"] * (len(header) - numbers) + ["--:"] * numbers
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _change(value: float, base: float | None) -> str:
    return "" if not base else f"{100 * (value - base) / base:+.1f}%"


def _section(heading: str, *parts: str) -> list[str]:
    return [f"## {heading}", *parts] if any(parts) else []


def _frame(report: str, title: str) -> list[str]:
    if not report:
        return []
    address = _attribute(_address(report))
    style = "{{ width: '100%', height: '85vh', border: '1px solid var(--sl-color-gray-5, #888)' }}"
    return [
        "## Report",
        f'<iframe src="{address}" title="{_attribute(title)}" loading="lazy" style={style}></iframe>',
        f"{_link('Open the report alone', report)}",
    ]


def _images(images: Sequence[Attachment]) -> str:
    parts = []
    for image in images:
        if image.name.lower().endswith(".pdf"):
            parts.append(_link(image.name, image.link))
        else:
            parts.append(f'<img src="{_attribute(_address(image.link))}" alt="{_attribute(image.name)}" />')
    return "\n\n".join(parts)


def _files(files: Sequence[Attachment]) -> str:
    parts = []
    for file in files:
        size = f" ({file.size} bytes)" if file.size else ""
        source = f", {_link('source', file.source)}" if file.source and file.source != file.link else ""
        parts.append(f"{_link(file.name, file.link)}{size}{source}")
        if file.text is not None:
            parts.append(_fenced(file.text, file.link))
    return "\n\n".join(parts)


def _fenced(text: str, link: str) -> str:
    """The text of a linked file in a block of code, whose fence is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    suffix = link.rpartition(".")[2]
    language = suffix if re.fullmatch(r"(py|c|h|cpp|hpp|f90|toml|yaml|yml|json|sh)", suffix) else "text"
    lines = [printable(line.replace("\t", "    ")) for line in text.splitlines()]
    return "\n".join((f"{fence}{language}", *lines, fence))


def _regions(results: ProfilingResults, include: tuple[str, ...] | None, exclude: tuple[str, ...] | None) -> list[MPIRegion]:
    """The longest first."""
    found = results.get_regions(list(include) if include else None, list(exclude) if exclude else None)
    return sorted(found, key=lambda region: -region.total_duration)


def _more(regions: Sequence[object]) -> str:
    return f"{len(regions) - _ROWS} regions more are in the report." if len(regions) > _ROWS else ""


def _region_table(page: RunPage) -> list[str]:
    regions = _regions(page.results, page.include, page.exclude)
    rows = [
        [
            _prose(region.name), str(len(region.ranks)), str(region.num_calls),
            *map(_seconds, (region.total_duration, region.average_duration, region.min_duration, region.max_duration)),
        ]
        for region in regions[:_ROWS]
    ]  # fmt: skip
    header = ("region", "ranks", "calls", "total [s]", "average [s]", "shortest [s]", "longest [s]")
    return _section("Regions", _table(header, rows, 6), _more(regions)) if rows else _section("Regions", "There are none.")


def _comparison(
    shown: Sequence[Shown], include: tuple[str, ...] | None, exclude: tuple[str, ...] | None
) -> list[str]:
    """Total seconds of every region in every run, with the change from the first one."""
    if len(shown) < 2:
        return []
    totals = [{region.name: region.total_duration for region in _regions(one.results, include, exclude)} for one in shown]
    names = sorted({name for one in totals for name in one}, key=lambda name: -max(one.get(name, 0.0) for one in totals))
    rows = []
    for name in names[:_ROWS]:
        row = [_prose(name), _seconds(totals[0].get(name))]
        for one in totals[1:]:
            row += [_seconds(one.get(name)), _prose(_change(one[name], totals[0].get(name))) if name in one else ""]
        rows.append(row)
    header = ["region", f"{shown[0].label} [s]"]
    for other in shown[1:]:
        header += [f"{other.label} [s]", "change"]
    return _section("Durations", _table(header, rows, len(header) - 1), _more(names))


def _metadata(page: RunPage) -> list[str]:
    known = page.results.metadata
    keys = list(known) if page.all_metadata else [key for key in _MINIMAL if key in known]
    rows = [[_prose(key), _prose(known[key] if not isinstance(known[key], list) else ", ".join(map(str, known[key])))] for key in keys]
    return _section("Metadata", _table(("field", "value"), rows)) if rows else []


def _wall(results: ProfilingResults) -> float:
    """Seconds from the first call to the end of the last."""
    return results.time_span


# -- pages -----------------------------------------------------------------------------------------------------------------


def _whole(*parts: str | Sequence[str]) -> str:
    texts = [text for part in parts for text in ([part] if isinstance(part, str) else part) if text]
    return "\n\n".join(texts) + "\n"


def run_page(page: RunPage) -> str:
    """The page of a run."""
    results = page.results
    ways = [_link(f"← {page.back_title}", page.back)]
    ways += [_link(f"‹ {page.before.label}", page.before.link)] if page.before else []
    ways += [_link(f"{page.after.label} ›", page.after.link)] if page.after else []
    facts = [
        ["recorded", _prose(str(results.metadata.get("timestamp", ""))[:19].replace("T", " "))],
        ["ranks", str(results.num_ranks)],
        ["regions", str(len(results.region_names))],
        ["wall time", _prose(f"{_wall(results):.6g} s")],
    ]
    return _whole(
        _head(page.title, label=page.label, hidden=True),
        " · ".join(ways),
        _table(("", ""), [row for row in facts if row[1]]),
        _frame(page.report, page.title),
        _region_table(page),
        _section("Images", _images(page.images)),
        _section("Files", _files(page.files)),
        _metadata(page),
    )


def case_page(page: CasePage) -> str:
    """The page of a case, or of an older execution of one."""
    base = _wall(page.runs[0].results)
    rows = [
        [
            _link(run.label, run.link), str(run.results.num_ranks), _seconds(_wall(run.results)),
            _prose(_change(_wall(run.results), base)) if run is not page.runs[0] else "",
        ]
        for run in page.runs
    ]  # fmt: skip
    return _whole(
        _head(page.title, description=page.description, label=page.heading if not page.hidden else page.title, order=page.order, hidden=page.hidden),
        _paragraph(page.description),
        f"Tags: {', '.join(map(_prose, page.tags))}" if page.tags else "",
        _section("Runs", _table(("run", "ranks", "wall time [s]", "change"), rows, 3)),
        _executions(page),
        _comparison(page.runs, page.include, page.exclude),
        _frame(page.report, page.title),
        _section("Images", _images(page.images)),
        _section("Files", _files(page.files)),
        _section("About", _table(("field", "value"), [[_prose(key), _prose(value)] for key, value in page.info])) if page.info else [],
        _section("Code", _files(page.code)),
    )


def _executions(page: CasePage) -> list[str]:
    """The executions, the newest first, with the wall time of each run and its change from the one before."""
    if not page.executions:
        return []
    labels = list(dict.fromkeys(label for execution in page.executions for label in execution.seconds))
    rows = []
    for place in reversed(range(len(page.executions))):
        execution = page.executions[place]
        name = _prose(execution.label) if execution.link == page.link else _link(execution.label, execution.link)
        row = [name, _prose(execution.date)]
        for label in labels:
            value = execution.seconds.get(label)
            before = page.executions[place - 1].seconds.get(label) if place else None
            row += [_seconds(value), "" if value is None else _prose(_change(value, before))]
        rows.append(row)
    header = ["execution", "date"]
    for label in labels:
        header += [f"{label} [s]", "change"]
    table = _table(header, rows, len(header) - 2)
    return _section("Executions", table, _link("Compare the executions", page.compare) if page.compare else "")


def compare_page(
    title: str, back: str, shown: Sequence[Shown], report: str, include: tuple[str, ...] | None, exclude: tuple[str, ...] | None
) -> str:
    """The page that compares the runs of all executions of a case."""
    name = f"{title}: compare executions"
    return _whole(
        _head(name, hidden=True), _link(f"← {title}", back), _comparison(shown, include, exclude), _frame(report, name)
    )


def index_page(title: str, description: str, cases: Sequence[CasePage]) -> str:
    """The page that lists the cases."""
    rows = [
        [
            _link(case.heading, case.link), _prose(case.group), ", ".join(map(_prose, case.tags)), str(len(case.runs)),
            str(max(run.results.num_ranks for run in case.runs)), str(max(1, len(case.executions))),
        ]
        for case in cases
    ]  # fmt: skip
    return _whole(
        _head(title, description=description, label="Overview", order=0),
        _paragraph(description),
        _table(("case", "group", "tags", "runs", "ranks", "executions"), rows, 3),
    )
