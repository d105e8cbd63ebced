"""Profiling runs as pages of an Astro/Starlight site: ``scope-profiler site MANIFEST -o DOCS``.

A page is an MDX file of text, tables and links, which needs no component of the project; the timeline and the flame graph
are in a report page of their own (:mod:`scope_profiler.html_report`), which it shows in a frame. Everything is written
into directories beside the old ones, which then take their place: a site is never half of one run and half of another.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scope_profiler.plotting_scripts._files import write_text
from scope_profiler.site_manifest import Case, Execution, Manifest, Run, SiteError, base_path, load_manifest, slugify
from scope_profiler.site_pages import (
    Attachment,
    CasePage,
    ExecutionRow,
    RunPage,
    Shown,
    case_page,
    compare_page,
    index_page,
    run_page,
)

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["SiteError", "SiteResult", "build_site", "check_site", "load_manifest"]

PAGES = Path("src", "content", "docs", "catalogue")
PUBLIC = Path("public", "catalogue")
MARKER = ".scope-profiler-site"
REPORT = "report.html"
_INLINE = 64 * 1024  # bytes of an attached text that is shown on the page


@dataclass
class SiteResult:
    """What was written: ``files`` below the project, how many cases and runs, and what could not be."""

    cases: int
    runs: int
    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Loaded:
    """A run with its profile and the name of its page."""

    run: Run
    slug: str
    label: str
    results: ProfilingResults


def check_site(manifest: Manifest) -> None:
    """SiteError if a profile of the manifest cannot be read."""
    for case in manifest.cases:
        for execution in case.executions:
            _load(case, execution)


def build_site(
    manifest: Manifest, output: str | os.PathLike[str] = "docs", *, base: str | None = None, charts: bool = True, clean: bool = True
) -> SiteResult:
    """Write the pages of a manifest into the Astro project ``output``.

    Pages go to ``src/content/docs/catalogue``, reports and attached files to ``public/catalogue``, with ``index.json`` about
    all cases.

    Parameters
    ----------
    base
        Path of the site on its host: ``"/name"``, or ``""`` at the root; None: what the manifest says.
    charts
        False leaves the report pages out.
    clean
        Replace both directories. False writes into them as they are.

    Raises SiteError without a base, for a run or file that cannot be read, a directory that something else wrote, or one that
    cannot be written.
    """
    wanted = manifest.base if base is None else base_path(base, "--base")
    if wanted is None:
        raise SiteError('where will the site be? base in the manifest, or --base, says it: "/name", or "" at the root of its host')
    project = Path(output)
    targets = [project / PAGES, project / PUBLIC]
    for target in targets if clean else ():
        _check_ours(target)
    try:
        with _staged(targets) as (pages, public):
            result = SiteResult(len(manifest.cases), manifest.run_count)
            _Builder(manifest, wanted, pages, public, charts, result).build()
            result.files = [
                target / path.relative_to(staged)
                for staged, target in zip((pages, public), targets)
                for path in sorted(staged.rglob("*"))
                if path.is_file()
            ]
            for staged, target in zip((pages, public), targets):
                _put(staged, target, clean=clean)
    except OSError as error:
        raise SiteError(f"{os.fspath(error.filename or project)}: {error.strerror or error}") from None
    return result


# -- directories -----------------------------------------------------------------------------------------------------------


def _check_ours(target: Path) -> None:
    if not target.exists() or (target / MARKER).is_file() or (target.is_dir() and not any(target.iterdir())):
        return
    raise SiteError(f"{target} was not written by scope-profiler site: remove it, or write into it with --no-clean")


@contextmanager
def _staged(targets: Sequence[Path]) -> Iterator[list[Path]]:
    """A directory beside each of the targets, which is gone at the end."""
    staged = []
    try:
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
            path = target.with_name(f".{target.name}.{os.getpid()}.new")
            path.mkdir()
            staged.append(path)
        yield staged
    finally:
        for path in staged:
            shutil.rmtree(path, ignore_errors=True)


def _put(staged: Path, target: Path, *, clean: bool) -> None:
    if not clean:
        for path in sorted(staged.rglob("*")):
            if path.is_file():
                place = target / path.relative_to(staged)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    if target.exists():
        os.replace(target, old)
    os.replace(staged, target)
    shutil.rmtree(old, ignore_errors=True)


# -- the site --------------------------------------------------------------------------------------------------------------


class _Builder:
    """Writes all cases below two directories, one for pages and one for what they link."""

    def __init__(self, manifest: Manifest, base: str, pages: Path, public: Path, charts: bool, result: SiteResult) -> None:
        self._manifest = manifest
        self._root = f"{base}/catalogue"
        self._pages, self._public = pages, public
        self._charts = charts
        self._result = result
        self._index: list[dict[str, Any]] = []

    def build(self) -> None:
        shown = [self._case(case, order) for order, case in enumerate(self._manifest.cases, 1)]
        write_text(self._pages / "index.mdx", index_page(self._manifest.title, self._manifest.description, shown))
        document = {"title": self._manifest.title, "description": self._manifest.description, "cases": self._index}
        write_text(self._public / "index.json", json.dumps(document, indent=2, default=str) + "\n")
        for directory in (self._pages, self._public):
            write_text(directory / MARKER, "generated by scope-profiler site\n")

    def _case(self, case: Case, order: int) -> CasePage:
        place = f"{slugify(case.group)}/{case.id}" if slugify(case.group) else case.id
        executions = [(execution, _load(case, execution)) for execution in case.executions]
        rows = [
            ExecutionRow(
                execution.label, execution.date, self._link(_place(place, case, execution)),
                {one.label: one.results.time_span for one in loaded},
            )
            for execution, loaded in executions
        ]  # fmt: skip
        compare = ""
        if case.repeated:
            compare = self._compare(case, place, executions)
        for execution, loaded in executions:
            page = self._execution(case, execution, loaded, place, order)
            page.executions, page.compare = (rows, compare) if case.repeated else ([], "")
            write_text(self._pages / f"{_place(place, case, execution)}.mdx", case_page(page))
        self._index.append(_entry(case, executions[-1][1]))
        return page  # of the latest execution, which is the last

    def _execution(self, case: Case, execution: Execution, loaded: Sequence[_Loaded], place: str, order: int) -> CasePage:
        here = f"{place}/{execution.id}" if execution.id else place
        pages = [self._run_page(case, one, f"{here}/{one.slug}") for one in loaded]
        latest = execution is case.executions[-1]
        back = self._link(_place(place, case, execution))
        title = case.title if latest else f"{case.title}: {execution.label}"
        for position, page in enumerate(pages):
            page.back, page.back_title = back, title
            page.before = pages[position - 1] if position else None
            page.after = pages[position + 1] if position + 1 < len(pages) else None
        for page in pages:
            write_text(self._pages / f"{page.place}.mdx", run_page(page))
        attached = f"{here}/_case"
        report = ""
        if len(loaded) > 1:
            report = self._report(case, [(one.label, one) for one in loaded], f"{attached}/{REPORT}")
        info = {**case.info, **execution.info}
        return CasePage(
            title=title, heading=case.title, link=back, order=order, hidden=not latest, group=case.group, tags=case.tags,
            description=case.description, runs=pages, report=report, info=[(key, str(value)) for key, value in info.items()],
            files=self._attach(case.files, f"{attached}/files"), images=self._attach(case.images, f"{attached}/images"),
            code=self._code(case, f"{attached}/files"), include=case.include, exclude=case.exclude,
        )  # fmt: skip

    def _run_page(self, case: Case, one: _Loaded, place: str) -> RunPage:
        report = self._report(case, [(one.label, one)], f"{place}/{REPORT}")
        return RunPage(
            place=place, link=self._link(place), title=f"{case.title}: {one.label}", label=one.label, results=one.results,
            report=report, include=case.include, exclude=case.exclude, all_metadata=case.metadata == "all",
            files=self._attach(one.run.files, f"{place}/files"), images=self._attach(one.run.images, f"{place}/images"),
        )  # fmt: skip

    def _compare(self, case: Case, place: str, executions: Sequence[tuple[Execution, list[_Loaded]]]) -> str:
        """The page on which the runs of all executions are compared, if there are several."""
        named = [(f"{execution.label}: {one.label}", one) for execution, loaded in executions for one in loaded]
        if len(named) < 2:
            return ""
        report = self._report(case, named, f"{place}/_compare/{REPORT}")
        shown = [Shown(label, one.results, "") for label, one in named]
        text = compare_page(case.title, self._link(place), shown, report, case.include, case.exclude)
        write_text(self._pages / f"{place}/compare.mdx", text)
        return self._link(f"{place}/compare")

    def _report(self, case: Case, named: Sequence[tuple[str, _Loaded]], place: str) -> str:
        """The address of a report of these runs; empty where there is none."""
        if not (self._charts and case.charts):
            return ""
        from scope_profiler.html_report import create_html_report

        path = self._public / place
        before = [one.results.label for _, one in named]  # they are shown under other names
        try:
            for label, one in named:
                one.results.label = label
            create_html_report(
                [one.results for _, one in named], path, include=case.include, exclude=case.exclude, ranks=case.ranks,
                individual_reports=False, scaling="both" if case.scaling == "none" else case.scaling,
                speedup_x=case.speedup_x if len(named) > 1 else "auto",
            )  # fmt: skip
        except ValueError as error:
            self._result.notes.append(f"{place}: {error}")
            return ""
        finally:
            for (_, one), own in zip(named, before):
                one.results.label = own
        return f"{self._root}/{place}"

    def _link(self, place: str) -> str:
        return f"{self._root}/{place}/"

    def _attach(self, paths: Sequence[Path], place: str) -> list[Attachment]:
        return [self._copy(path, place) for path in paths]

    def _copy(self, path: Path, place: str) -> Attachment:
        """A file beside the page's report, and its text if it has a short one."""
        directory = self._public / place
        directory.mkdir(parents=True, exist_ok=True)
        name, number = path.name, 1
        while (directory / name).exists():
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        content = path.read_bytes()
        (directory / name).write_bytes(content)
        text = None
        if len(content) <= _INLINE and b"\0" not in content:
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                text = None
        return Attachment(name, f"{self._root}/{place}/{name}", len(content), text)

    def _code(self, case: Case, place: str) -> list[Attachment]:
        found = []
        for code in case.code:
            if code.path is None:
                found.append(Attachment(code.label or code.url or "", code.url or "", 0, None, code.url))
                continue
            attached = self._copy(code.path, place)
            attached.source = code.url
            attached.name = code.label or attached.name
            found.append(attached)
        return found


def _place(place: str, case: Case, execution: Execution) -> str:
    """Where the page of an execution is; the latest one has that of the case."""
    return place if execution is case.executions[-1] else f"{place}/{execution.id}"


def _load(case: Case, execution: Execution) -> list[_Loaded]:
    from scope_profiler.cli.terminal import reason_of
    from scope_profiler.profile_io import load

    loaded: list[_Loaded] = []
    used: set[str] = {"compare", *(other.id for other in case.executions)}
    for number, run in enumerate(execution.runs, 1):
        try:
            results = load(run.path)
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise SiteError(f"case {case.id!r}: {reason_of(error, os.fspath(run.path))}") from None
        label = run.label or results.label or run.path.stem
        wanted = slugify(label) or f"run-{number}"
        slug, count = wanted, 1
        while slug in used:
            count += 1
            slug = f"{wanted}-{count}"
        used.add(slug)
        loaded.append(_Loaded(run, slug, label, results))
    return loaded


def _entry(case: Case, loaded: Sequence[_Loaded]) -> dict[str, Any]:
    """A case in index.json."""
    entry: dict[str, Any] = {
        "id": case.id, "title": case.title, "group": case.group or None, "tags": list(case.tags), "info": dict(case.info),
        "runs": [
            {
                "label": one.label, "slug": one.slug, "ranks": one.results.num_ranks, "nodes": one.results.num_nodes,
                "wall_time": one.results.time_span,
            }
            for one in loaded
        ],
    }  # fmt: skip
    if case.repeated:
        entry["executions"] = len(case.executions)
    return entry
