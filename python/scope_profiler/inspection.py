"""What a profile holds, as text: metadata, regions, threads, tasks, the call tree and captured source."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from scope_profiler.cli.terminal import Column, Output, count_of, cut, printable, table
from scope_profiler.rank_balance import balance_of
from scope_profiler.summary import REGION_TABLE_COLUMNS, SORT_KEYS, coroutine_sums

if TYPE_CHECKING:
    from scope_profiler.concurrency import TaskInfo, ThreadInfo
    from scope_profiler.results import MPIRegion, ProfilingResults

__all__ = ["REGION_TABLE_COLUMNS", "SORT_KEYS", "collect_file_metadata", "inspect_file"]

# Rows of the thread and task tables that are shown unless more are asked for.
THREAD_LIMIT = 64
TASK_LIMIT = 20

_METADATA_WIDTH = 72
_METADATA_SECTIONS: dict[str, tuple[str, ...]] = {
    "Run": (
        "label",
        "timestamp",
        "start_time_ns",
        "finalize_time_ns",
        "scope_profiler_version",
        "python_version",
        "source",
    ),
    "System": ("hostname", "user", "platform", "uname", "chip_information", "working_directory"),
    "Parallelism": ("mpi_size", "num_nodes", "omp_num_threads", "total_cores"),
}


def inspect_file(
    file_path: str | os.PathLike[str],
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    ranks: Iterable[int] | None = None,
    sort: str = "start",
    show_metadata: bool = True,
    show_regions: bool = True,
    full: bool = False,
    source: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    percentage_mode: str = "coverage",
    stream: TextIO | None = None,
) -> None:
    """Print what the profile at ``file_path`` holds, to ``stream`` or standard output.

    Parameters
    ----------
    file_path
        The profile.
    include, exclude
        Regular expressions for the beginning of region names.
    ranks
        Which ranks; None: all.
    sort
        One of SORT_KEYS of :mod:`scope_profiler.summary`.
    columns
        Names of its REGION_TABLE_COLUMNS.
    full
        Print long values of metadata whole.
    source
        Names of regions whose captured source is printed too.
    stream
        Where it is printed; None: on standard output.

    Raises
    ------
    OSError, CorruptProfileError, HDF5SchemaError, JSONProfileError
        As of :func:`scope_profiler.load`.
    ValueError
        A sort key or column is unknown.
    """
    from scope_profiler import load

    if sort not in SORT_KEYS:
        raise ValueError(f"unknown sort key {sort!r}; one of {', '.join(SORT_KEYS)}")
    results = load(file_path)
    output = Output(stream)
    print_banner(results, output)
    if show_metadata:
        print_metadata(results.metadata, output, full=full)
    if show_regions:
        print_regions(
            results, output, include=include, exclude=exclude, ranks=ranks, sort=sort, columns=columns,
            percentage_mode=percentage_mode,
        )  # fmt: skip
        print_processes(results, output, ranks=ranks)
        print_threads(results, output, ranks=ranks)
        print_tasks(results, output, ranks=ranks)
    if source:
        print_source(results, source, output)
    output.flush()


def collect_file_metadata(
    profiling_data: ProfilingResults | str | os.PathLike[str] | Sequence[Any],
) -> dict[str, list[dict[str, Any]]]:
    """The metadata of profiles as values that JSON can hold: ``{"files": [{"file_path", "num_ranks", "metadata"}, ...]}``.

    Takes results, a path, or a sequence of either.
    """
    from scope_profiler import load
    from scope_profiler.results import ProfilingResults

    items: Sequence[Any]
    if isinstance(profiling_data, (str, os.PathLike, ProfilingResults)):
        items = [profiling_data]
    else:
        items = profiling_data
    entries = []
    for item in items:
        results = item if isinstance(item, ProfilingResults) else load(item)
        entries.append(
            {
                "file_path": str(results.file_path),
                "num_ranks": int(results.num_ranks),
                "metadata": {key: plain(value) for key, value in sorted(results.metadata.items())},
            }
        )
    return {"files": entries}


def plain(value: Any) -> Any:
    """``value`` as JSON has it: numpy scalars and arrays become Python's, what is not finite becomes None."""
    if hasattr(value, "tolist"):  # numpy scalars and arrays alike
        value = value.tolist()
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def seconds(value: float | None) -> str:
    """Seconds to the microsecond; "-" when unknown."""
    return "-" if value is None else f"{value:.6f}"


def file_size(path: str | os.PathLike[str]) -> str:
    """The size of a file in words, or nothing when there is none."""
    try:
        size = float(os.stat(path).st_size)
    except (OSError, ValueError):
        return ""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def rows_of(results: ProfilingResults, kind: str, ranks: Iterable[int] | None) -> list[Any]:
    """Rows of the ``threads`` or ``tasks`` table, rank by rank."""
    wanted = None if ranks is None else set(ranks)
    lanes: Mapping[int, Sequence[Any]] = getattr(results, kind)
    return [row for rank in sorted(lanes) if wanted is None or rank in wanted for row in lanes[rank]]


def print_banner(results: ProfilingResults, output: Output) -> None:
    """Which file this is, and how much is in it."""
    name = os.path.basename(str(results.file_path))
    title = f"{results.label} - {name}" if results.label else name
    calls = sum(int(region.num_calls) for region in results)
    facts = [
        count_of(int(results.num_ranks), "rank"),
        count_of(len(results), "region"),
        count_of(calls, "call"),
    ]
    for kind in ("threads", "tasks"):
        number = sum(map(len, getattr(results, kind).values()))
        if number:
            facts.append(count_of(number, kind[:-1]))
    facts.append(file_size(results.file_path))
    if calls:
        facts.append(f"{results.time_span:.6g} s from first call to last")
    if results.total_time is not None:
        facts.append(f"{results.total_time:.6g} s in all")
    rule = "=" * min(output.width or 78, 78)
    output.lines([rule, title, ", ".join(fact for fact in facts if fact), rule, ""])


def metadata_sections(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys of the metadata by section: what is known of the run, the system and its parallelism, and "Other"."""
    sections = {title: [key for key in keys if key in metadata] for title, keys in _METADATA_SECTIONS.items()}
    known = {key for keys in sections.values() for key in keys}
    sections["Other"] = sorted(key for key in metadata if key not in known)
    return {title: keys for title, keys in sections.items() if keys}


def print_metadata(metadata: Mapping[str, Any], output: Output, *, full: bool = False) -> None:
    """The metadata by section. Long values are cut unless ``full``."""
    if not metadata:
        output.lines(["Metadata: none", ""])
        return
    width = max(len(printable(key)) for key in metadata)
    output.line("Metadata")
    for title, keys in metadata_sections(metadata).items():
        output.line(f"  {title}")
        for key in keys:
            value = plain(metadata[key])
            text = printable(", ".join(map(str, value)) if isinstance(value, list) else value)
            output.line(f"    {printable(key):<{width}} : {text if full else cut(text, _METADATA_WIDTH)}")
    output.line()


def print_regions(
    results: ProfilingResults,
    output: Output,
    *,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    ranks: Iterable[int] | None = None,
    sort: str = "start",
    columns: Sequence[str] | None = None,
    percentage_mode: str = "coverage",
) -> None:
    """The summary table of the regions."""
    text = io.StringIO()
    results.print_summary(
        include=include,
        exclude=exclude,
        ranks=None if ranks is None else list(ranks),
        sort=sort,
        stream=text,
        suppress_notes=True,
        columns=columns,
        percentage_mode=percentage_mode,
    )
    output.lines(text.getvalue().splitlines())


class _Field(NamedTuple):
    """A column of a lane table: its title, the text of a row, and whether it is a number."""

    title: str
    text: Callable[[Any], str]
    number: bool = True


def print_processes(results: ProfilingResults, output: Output, *, ranks: Iterable[int] | None = None) -> None:
    """The processes, where there are several: name, process id, and how much each of them recorded."""
    processes = results.processes
    if len(processes) < 2:
        return
    wanted = set(processes if ranks is None else ranks)
    calls = dict.fromkeys(processes, 0)
    for region in results:
        for rank, one in region.regions.items():
            calls[rank] = calls.get(rank, 0) + int(one.num_calls)
    fields = [
        _Field("rank", lambda p: str(p.rank)),
        _Field("process", lambda p: p.name or "-", number=False),
        _Field("pid", lambda p: str(p.pid) if p.pid > 0 else "-"),
        _Field("calls", lambda p: str(calls[p.rank])),
        _Field("threads", lambda p: str(len(results.threads.get(p.rank, ())))),
        _Field("tasks", lambda p: str(len(results.tasks.get(p.rank, ())))),
    ]
    rows = [process for rank, process in sorted(processes.items()) if rank in wanted]
    _print_top(output, "Processes", rows, fields, 0, lambda p: p.rank, "")


def print_balance(results: ProfilingResults, output: Output, regions: Iterable[MPIRegion]) -> None:
    """How evenly the ranks share the time of each region."""
    fields = [
        _Field("region", lambda b: b.name, number=False),
        _Field("ranks", lambda b: str(len(b.totals))),
        _Field("calls", lambda b: str(b.num_calls)),
        _Field("mean [s]", lambda b: seconds(b.mean)),
        _Field("min [s]", lambda b: seconds(b.minimum)),
        _Field("on rank", lambda b: str(b.min_rank)),
        _Field("max [s]", lambda b: seconds(b.maximum)),
        _Field("on rank", lambda b: str(b.max_rank)),
        _Field("imbalance [%]", lambda b: f"{b.imbalance_pct:.2f}"),
        _Field("lost [s]", lambda b: seconds(b.lost_time)),
    ]
    _print_top(output, "Balance of ranks", balance_of(regions), fields, 0, lambda b: float(b.lost_time), "")


def print_threads(
    results: ProfilingResults, output: Output, *, ranks: Iterable[int] | None = None, limit: int | None = None
) -> None:
    """The thread table: calls and time in regions against the CPU time that the thread used in the run."""
    threads = rows_of(results, "threads", ranks)
    totals = {
        (rank, int(row["index"])): row
        for rank in {thread.rank for thread in threads}
        for row in results.thread_summary(rank=rank)
    }

    def total(thread: ThreadInfo, name: str) -> Any:
        return totals.get((thread.rank, int(thread.index)), {}).get(name, 0)

    fields = [
        _Field("#", lambda t: str(t.index)),
        _Field("thread", lambda t: f"{t.name} (daemon)" if t.daemon else t.name, number=False),
        _Field("calls", lambda t: str(int(total(t, "num_calls")))),
        _Field("regions [s]", lambda t: seconds(float(total(t, "region_time")))),
        _Field("cpu [s]", lambda t: seconds(plain(t.run_cpu_time))),
        _Field("wall [s]", lambda t: seconds(t.wall_time)),
        _Field("start [s]", lambda t: seconds(t.start_time)),
        _Field("end [s]", lambda t: "alive" if t.alive else seconds(t.end_time)),
    ]
    limit = THREAD_LIMIT if limit is None else limit
    _print_top(output, "Threads", threads, _with_rank(results, fields), limit, lambda t: plain(t.run_cpu_time) or 0.0, "CPU time")


def print_tasks(
    results: ProfilingResults, output: Output, *, ranks: Iterable[int] | None = None, limit: int | None = None
) -> None:
    """The task table; a run of many tasks shows them by coroutine, and the busiest ones."""
    tasks = rows_of(results, "tasks", ranks)
    limit = TASK_LIMIT if limit is None else limit
    if 0 < limit < len(tasks):
        _print_coroutines(tasks, output, limit)
    names = {(thread.rank, int(thread.index)): thread.name for thread in rows_of(results, "threads", ranks)}
    fields = [
        _Field("#", lambda t: str(t.index)),
        _Field("task", lambda t: _labelled(t.name, t.kind), number=False),
        _Field("coroutine", lambda t: t.coro_name, number=False),
        _Field("thread", lambda t: names.get((t.rank, int(t.thread_index)), str(t.thread_index)), number=False),
        _Field("steps", lambda t: str(t.steps)),
        _Field("running [s]", lambda t: seconds(t.running_time)),
        _Field("awaiting [s]", lambda t: seconds(t.awaiting_time)),
        _Field("wall [s]", lambda t: seconds(t.wall_time) if t.done else "pending"),
    ]
    _print_top(output, "Tasks", tasks, _with_rank(results, fields), limit, lambda t: t.running_time, "running time")


def _print_coroutines(tasks: Sequence[TaskInfo], output: Output, limit: int) -> None:
    fields = [
        _Field("coroutine", lambda item: _labelled(*item[0]), number=False),
        _Field("tasks", lambda item: str(int(item[1][0]))),
        _Field("pending", lambda item: str(int(item[1][0] - item[1][1]))),
        _Field("steps", lambda item: str(int(item[1][2]))),
        _Field("running [s]", lambda item: seconds(item[1][3])),
        _Field("awaiting [s]", lambda item: seconds(item[1][4])),
    ]
    groups = list(coroutine_sums(tasks).items())
    _print_top(output, "Coroutines", groups, fields, limit, lambda item: item[1][3], "running time")


def _labelled(name: str, kind: str) -> str:
    return f"{name} (greenlet)" if kind == "greenlet" else name


def _with_rank(results: ProfilingResults, fields: list[_Field]) -> list[_Field]:
    """The fields, after the rank where there are several."""
    return [_Field("rank", lambda row: str(row.rank)), *fields] if int(results.num_ranks) > 1 else fields


def _print_top(
    output: Output, noun: str, rows: list[Any], fields: Sequence[_Field], limit: int, key: Callable[[Any], float], measure: str
) -> None:
    """A table of the rows (all, or the ``limit`` largest by ``key``; 0 is no limit) below its title; nothing without rows."""
    if not rows:
        return
    title = f"{noun} ({len(rows)})"
    if 0 < limit < len(rows):
        import heapq

        title = f"{noun} ({len(rows)}, here the {limit} of the most {measure})"
        rows = heapq.nlargest(limit, rows, key=key)
    columns = [Column(field.title, number=field.number, flexible=not field.number) for field in fields]
    cells = [[field.text(row) for field in fields] for row in rows]
    output.lines([title, *table(columns, cells, output.width), ""])


def print_source(results: ProfilingResults, names: Sequence[str], output: Output) -> bool:
    """The captured source of regions. False when one of the regions is not in the profile."""
    complete = True
    output.line(f"Source ({len(names)})")
    for name in names:
        if name not in results:
            output.line(f"  {printable(name)}: no such region")
            complete = False
            continue
        region = results[name]
        place = f"{region.source_file}:{region.source_lineno}" if region.source_file else "place unknown"
        output.line(f"  {printable(name)}  {printable(place)}")
        if not region.source_text:
            output.line("    source not captured")
            continue
        for line in str(region.source_text).splitlines():
            output.line("    " + line.expandtabs())
    output.line()
    return complete


def largest_regions(regions: Sequence[MPIRegion], sort: str, limit: int) -> list[str]:
    """Names of the first ``limit`` regions in the order of ``sort`` (a SORT_KEYS name)."""
    if sort == "name":
        ordered = sorted(regions, key=lambda region: region.name)
    elif sort == "start":
        ordered = sorted(regions, key=lambda region: region.first_start_time)
    else:
        ordered = sorted(regions, key=lambda region: _statistic(region, sort), reverse=True)
    return [region.name for region in ordered[:limit]]


def _statistic(region: MPIRegion, key: str) -> float:
    from scope_profiler.cli.comparison import statistic

    value = statistic(region, key)
    return float("-inf") if value is None else value


def exactly(names: Sequence[str]) -> list[str]:
    """Patterns for ``include`` that match these names and no other."""
    return [re.escape(name) + r"\Z" for name in names]
