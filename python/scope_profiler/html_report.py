"""Runs as a page for the browser: one file that needs nothing else and fetches nothing."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, TypeAlias

    from scope_profiler import _core
    from scope_profiler._exports import Patterns, Ranks, StrPath
    from scope_profiler.results import ProfilingResults

    Source: TypeAlias = ProfilingResults | StrPath
    Exported: TypeAlias = tuple[_core.Profile, str, list[int], list[bool] | None]

__all__ = ["COLUMNS", "SCALINGS", "SORT_KEYS", "SPEEDUP_AXES", "create_html_report"]

SORT_KEYS = (
    "start", "total", "calls", "avg", "min", "max", "first", "last", "std", "p50", "p95", "p99", "imbalance", "name", "own", "await",
)  # fmt: skip
COLUMNS = (
    "region", "ranks", "calls", "total", "percent", "parent_percent", "avg", "gpu_total", "gpu_avg", "min", "max", "first", "last",
    "std", "p50", "p95", "p99", "imbalance", "own", "await", "share", "start",
)  # fmt: skip
SCALINGS = ("strong", "weak", "both")
SPEEDUP_AXES = ("auto", "ranks", "nodes", "threads", "cores")

_MOST_SAMPLED = 2000  # rows of the table of samples

_AXIS_WORDS = {"ranks": "MPI ranks", "nodes": "nodes", "threads": "OpenMP threads", "cores": "cores"}


def create_html_report(
    profiling_data: Source | Sequence[Source],
    filepath: StrPath,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    ranks: Ranks = None,
    sort: str = "start",
    columns: Sequence[str] | None = None,
    charts_cdn: bool = False,
    include_charts: bool = True,
    individual_reports: bool = True,
    scaling: str = "both",
    speedup_x: str = "auto",
) -> Path:
    """Write a page that shows runs in a browser: a timeline of all threads and tasks, a flame graph, and tables.

    One run gets the whole page. Several runs get a page that compares them with the first one and shows each of them; with
    ``individual_reports`` each also gets a page of its own beside it, ``<stem>-<index>-<label>.html``.

    Parameters
    ----------
    profiling_data
        Results, or paths of profiles; one or several.
    filepath
        Where to. Directories are made.
    include, exclude
        Regular expressions that match the beginning of a region's name. A region that is left out disappears between its
        callers and its calls.
    ranks
        Which ranks; all if not given.
    sort
        What the table of regions is sorted by at first, one of ``SORT_KEYS``.
    columns
        The columns of that table, some of ``COLUMNS``; None: all that the run has values for. ``parent_percent`` has no column:
        the flame graph shows shares of callers.
    charts_cdn
        Has no effect: the page never loads anything.
    include_charts
        False leaves out the timeline and the flame graph, and with them the single calls: a small page of tables.
    individual_reports
        Whether several runs get pages of their own as well.
    scaling
        What a study of several runs is: ``"strong"`` charts the speedup of regions, ``"weak"`` their efficiency, ``"both"`` both.
    speedup_x
        What these charts are over: ``"ranks"``, ``"nodes"``, ``"threads"`` (of OpenMP) or ``"cores"``. ``"auto"``: ranks where they
        differ, else threads; no charts where neither does.

    Returns
    -------
    Path
        The page. Under MPI, ranks that do not have the run write nothing.

    Raises
    ------
    ValueError
        For no results, a rank that the run does not have, an option that is none of its choices, an axis that a run did not
        record, or a build of scope-profiler without the viewer.
    OSError
        If a profile cannot be read or the page cannot be written; an older page is left as it was.
    """
    from pathlib import Path

    from scope_profiler._exports import labelled

    _check_choices(sort, columns, scaling, speedup_x)
    path = Path(filepath)
    labelled_runs = [(label, run) for label, _, run in labelled(_loaded(profiling_data))]
    if not labelled_runs:
        return path
    runs = [run for _, run in labelled_runs]
    exported = [_exported(label, run, include, exclude, ranks) for label, run in labelled_runs]
    options: dict[str, Any] = {"sort": sort, "charts": include_charts}
    if columns is not None:
        options["columns"] = list(columns)
    pages = own_pages(path, runs) if individual_reports else []
    together = dict(options, scaling=scaling, axes=_axes(labelled_runs, speedup_x))
    if pages:
        together["links"] = [[label, _address(page)] for (label, _), page in zip(labelled_runs, pages)]
    path.parent.mkdir(parents=True, exist_ok=True)
    sampled = [_samples(run, ranks) for run in runs]
    for one, rows, page in zip(exported, sampled, pages):
        _write([one], page, _with_samples(options, [rows]))
    _write(exported, path, _with_samples(together if len(runs) > 1 else options, sampled))
    return path


def _samples(run: ProfilingResults, ranks: Ranks) -> list[list[Any]]:
    """What its sampler saw, as viewer/src/report.ts has it: by thread, region and function, those with the most time."""
    wanted = None if ranks is None else {ranks} if isinstance(ranks, int) else set(ranks)
    sums: dict[tuple[Any, ...], list[float]] = {}
    for row in run.samples:
        if wanted is None or row.rank in wanted:
            leaf = row.stack[-1]
            into = sums.setdefault((row.rank, row.thread, row.region, leaf.function, f"{leaf.file}:{leaf.first_line}"), [0, 0.0, 0.0])
            for index, value in enumerate((row.samples, row.time, row.cpu_time)):
                into[index] += value
    most = sorted(sums.items(), key=lambda item: -item[1][1])[:_MOST_SAMPLED]
    return [[*key, int(samples), round(time * 1e9), round(cpu * 1e9)] for key, (samples, time, cpu) in most]


def _with_samples(options: dict[str, Any], rows: list[list[list[Any]]]) -> dict[str, Any]:
    return {**options, "samples": rows} if any(rows) else options


def _write(runs: list[Exported], path: Path, options: dict[str, Any]) -> None:
    import json

    from scope_profiler import _core

    _core.export_html(runs, os.fspath(path), options=json.dumps(options), calls=options["charts"])


def _check_choices(sort: str, columns: Sequence[str] | None, scaling: str, speedup_x: str) -> None:
    for name, value, choices in (
        ("sort", sort, SORT_KEYS), ("scaling", scaling, SCALINGS), ("speedup_x", speedup_x, SPEEDUP_AXES),
    ):  # fmt: skip
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    unknown = [column for column in columns or () if column not in COLUMNS]
    if unknown:
        raise ValueError(f"no column {', '.join(map(repr, unknown))}; there are {', '.join(COLUMNS)}")


def _loaded(data: Source | Sequence[Source]) -> list[ProfilingResults]:
    from scope_profiler.profile_io import load
    from scope_profiler.results import ProfilingResults

    if isinstance(data, (ProfilingResults, str, os.PathLike)):
        data = [data]
    return [one if isinstance(one, ProfilingResults) else load(one) for one in data]


def _exported(label: str, results: ProfilingResults, include: Patterns, exclude: Patterns, ranks: Ranks) -> Exported:
    from scope_profiler._exports import checked_ranks

    profile = results._to_profile()
    shown = None
    if include is not None or exclude is not None:
        chosen = {region.name for region in results.get_regions(include, exclude)}
        shown = [name in chosen for name in profile.names]
    if ranks is None:
        numbers = set(profile.row_keys()[1]) | set((profile.threads or {}).get("rank", ()))
        return profile, label, sorted(numbers), shown
    return profile, label, checked_ranks(ranks, results), shown


def own_pages(path: Path, runs: Sequence[ProfilingResults]) -> list[Path]:
    """Where the page of each run goes; a single run has none beside the page."""
    from scope_profiler._exports import labelled

    pages = []
    for index, label in enumerate(name for _, name, _ in labelled(runs) if name is not None):
        words = re.sub(r"[^\w.]+", "-", label).strip("-") or "run"
        pages.append(path.with_name(f"{path.stem}-{index}-{words}{path.suffix or '.html'}"))
    return pages


def _address(page: Path) -> str:
    from urllib.parse import quote

    return quote(page.name)


# -- what runs differ in ---------------------------------------------------------------------------------------------------


def _number(results: ProfilingResults, key: str) -> int | None:
    try:
        return int(results.metadata[key])
    except (KeyError, TypeError, ValueError):
        return None


def _size(results: ProfilingResults, axis: str) -> int | None:
    """How large a run is on an axis; None: not recorded."""
    if axis == "ranks":
        return results.num_ranks
    if axis == "nodes":
        return results.num_nodes
    threads = _number(results, "omp_num_threads")
    if axis == "threads" or threads is None:
        return threads
    return threads * results.num_ranks


def _axes(labelled_runs: Sequence[tuple[str, ProfilingResults]], wanted: str) -> list[dict[str, Any]]:
    """The axes of the scaling charts, the wanted one first."""
    sizes = {axis: [_size(run, axis) for _, run in labelled_runs] for axis in SPEEDUP_AXES[1:]}
    if wanted != "auto" and None in sizes[wanted]:
        missing = [label for (label, _), size in zip(labelled_runs, sizes[wanted]) if size is None]
        raise ValueError(f"speedup_x={wanted!r}: {', '.join(missing)} did not record how many {_AXIS_WORDS[wanted]} there were")
    usable = [axis for axis, values in sizes.items() if None not in values and len(set(values)) > 1]
    if wanted == "auto":
        if not {"ranks", "threads"} & set(usable):
            return []
        wanted = "ranks" if "ranks" in usable else "threads"
    order = [wanted, *(axis for axis in usable if axis != wanted)]
    return [{"name": _AXIS_WORDS[axis], "values": sizes[axis]} for axis in order]
