"""What the terminal UI shows of a profile: a tree of nodes, each with a text, a table or a plot. Nothing is read before it is shown.

Whatever reads calls may take long: nodes and their views are made on a thread of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from scope_profiler.cli.plot_kinds import KINDS, SEVERAL
from scope_profiler.cli.terminal import Column as TextColumn
from scope_profiler.cli.terminal import one_line, printable, table
from scope_profiler.tui.tables import CallsTable, Column, RowsTable, Table, count, name, percent, seconds, text

if TYPE_CHECKING:
    from scope_profiler.path_tree import Tree
    from scope_profiler.results import MPIRegion, ProfilingResults
    from scope_profiler.summary import Path

__all__ = ["Node", "PlotView", "TableView", "TextView", "View", "root_nodes"]

CHILDREN = 200  # of a node that are shown at once; the last one of them brings the next
MOST_CALLS = 20_000_000  # of a run whose calls are read: more take gigabytes
_TOP = 10
_BAR = 24


@dataclass(frozen=True)
class TextView:
    """Lines of text, without anything that could drive a terminal."""

    lines: list[str]


@dataclass(frozen=True)
class TableView:
    """A table. ``choose`` gives the node that stands for one of its rows, by the labels on the way to it."""

    table: Table
    what: str
    choose: Callable[[int], tuple[str, ...]] | None = None


@dataclass(frozen=True)
class PlotView:
    """A kind of plot, to be drawn when it is asked for."""

    kind: str
    words: str


View = TextView | TableView | PlotView


@dataclass
class Node:
    """A place in the navigation. ``view`` and ``children`` are called when they are wanted, and may raise."""

    label: str
    view: Callable[[], View]
    children: Callable[[], Iterable[Node]] | None = None
    #: What has been taken of the children, and what has not.
    rest: Iterator[Node] | None = field(default=None, repr=False)

    def more(self) -> tuple[list[Node], bool]:
        """The next children, and whether there are still more. After an exception it begins anew."""
        rest, self.rest = self.rest, None
        if rest is None:
            rest = iter(self.children() if self.children is not None else ())
        nodes = list(islice(rest, CHILDREN))
        following = next(rest, None)
        if following is None:
            self.rest = iter(())
            return nodes, False

        def go_on() -> Iterator[Node]:
            yield following
            yield from rest

        self.rest = go_on()
        return nodes, True


def _lines(*parts: Iterable[str]) -> TextView:
    return TextView([printable(line) for part in parts for line in part])


def _facts(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(title) for title, _ in rows), default=0)
    return [f"{title:<{width}}   {value}" for title, value in rows]


def root_nodes(results: ProfilingResults, path: str) -> list[Node]:
    """The first level of the navigation."""
    nodes = [
        Node("Overview", partial(_overview, results, path)),
        Node("Plots", _plots, partial(_plot_nodes, results)),
        Node("Metadata", partial(_metadata, results), partial(_metadata_nodes, results)),
        Node("Regions", partial(_regions, results), partial(_region_nodes, results)),
        Node("Call tree", partial(_tree_words, results), partial(_tree_nodes, results)),
    ]
    if any(results.threads.values()):
        nodes.append(Node("Threads", partial(_threads, results)))
    if any(results.tasks.values()):
        nodes.append(Node("Tasks", partial(_tasks, results)))
    if results.line_profile:
        nodes.append(Node("Line profile", partial(_line_profile, results)))
    return [*nodes, _raw_node(path)]


# -- overview, plots, metadata ---------------------------------------------------------------------------------------------


def _overview(results: ProfilingResults, path: str) -> View:
    from scope_profiler.inspection import file_size

    sums = _sums(results)
    rows = [("File", name(path)), ("Label", name(results.label or "-")), ("Size", file_size(path) or "-")]
    rows += [("Ranks", count(results.num_ranks)), ("Regions", count(len(results))), ("Calls", count(sum(calls for calls, _ in sums.values())))]
    for title, lanes in (("Threads", results.threads), ("Tasks", results.tasks)):
        number = sum(map(len, lanes.values()))
        if number:
            rows.append((title, count(number)))
    rows += [("First call to last", seconds(results.time_span)), ("Run", seconds(results.total_time))]
    if int(results.num_ranks) > 1:
        rows.append(("Imbalance of ranks, at most", percent(max((region.rank_imbalance_pct for region in results), default=0.0))))
    return _lines(_facts(rows), ["", "Regions with the most time of their own", ""], _top_regions(sums))


def _top_regions(sums: dict[str, tuple[int, float | None]]) -> list[str]:
    own = sorted(((time or 0.0, calls, title) for title, (calls, time) in sums.items()), key=lambda row: -row[0])
    whole = sum(time for time, _, _ in own)
    if not whole:
        return ["(no calls)"]
    rows = []
    for time, calls, title in own[:_TOP]:
        share = time / whole
        rows.append([name(title), count(calls), seconds(time), percent(100 * share), "█" * round(share * _BAR)])
    columns = [TextColumn("region", flexible=True), *(TextColumn(title, number=True) for title in ("calls", "own", "share")), TextColumn("")]
    return table(columns, rows, 110)


def _sums(results: ProfilingResults) -> dict[str, tuple[int, float | None]]:
    """For each region its calls and its exclusive time in s, from the summary of the run, in which a region has one or more paths."""
    from scope_profiler.summary import call_paths

    sums: dict[str, tuple[int, float | None]] = {}
    stack = call_paths(results)
    while stack:
        path = stack.pop()
        stack += path.children
        calls, own = sums.get(path.name, (0, 0.0))
        sums[path.name] = calls + path.calls, None if own is None or path.exclusive is None else own + path.exclusive / 1e9
    return sums


def _calls_of(results: ProfilingResults) -> int:
    return sum(calls for calls, _ in _sums(results).values())


def _own(region: MPIRegion) -> float | None:
    """Exclusive time in s, where the calls nest so that there is one."""
    try:
        return float(region.exclusive_duration)
    except (ValueError, RuntimeError):
        return None


def _plot_nodes(results: ProfilingResults) -> Iterator[Node]:
    left_out = set(SEVERAL)
    if not results.has_likwid:
        left_out |= {"likwid", "roofline"}
    if not results.has_perf_events:
        left_out.add("perf_events")
    left_out.add("likwid")  # it needs the name of a metric: `scope-profiler plot likwid`
    for kind, (_, words) in KINDS.items():
        if kind not in left_out:
            yield Node(kind[0].upper() + kind[1:].replace("_", " "), partial(PlotView, kind, words))


def _plots() -> View:
    return _lines(
        ["Choose a kind of plot, then press", "", "  t  to draw it here, as text (plotext)", "  g  to show it in a window (matplotlib)"],
        ["  p  to open it in the browser (plotly)", "  s  to save it as a picture (matplotlib)"],
        ["", "v opens the whole profile in snakeviz. Two fields below a plot choose its regions."],
    )


def _metadata_nodes(results: ProfilingResults) -> Iterator[Node]:
    from scope_profiler.inspection import metadata_sections

    for title, keys in metadata_sections(results.metadata).items():
        yield Node(title, partial(_metadata_of, results, keys))


def _metadata(results: ProfilingResults) -> View:
    return _metadata_of(results, sorted(results.metadata))


def _metadata_of(results: ProfilingResults, keys: Sequence[str]) -> View:
    from scope_profiler.inspection import plain

    rows = [(key, plain(results.metadata[key])) for key in keys]
    shown = [(key, ", ".join(map(str, value)) if isinstance(value, list) else value) for key, value in rows]
    return TableView(RowsTable([Column("key", name), Column("value")], shown), "entries")


# -- regions ---------------------------------------------------------------------------------------------------------------

_REGION_COLUMNS = (
    Column("region", name), Column("ranks", count), Column("calls", count), Column("total", seconds), Column("own", seconds),
    Column("average", seconds), Column("min", seconds), Column("max", seconds), Column("std", seconds),
    Column("imbalance", percent), Column("tags"),
)  # fmt: skip


def _regions(results: ProfilingResults) -> View:
    sums = _sums(results)
    rows = [_region_row(region, sums.get(region.name, (0, None))[1]) for region in results]
    table = RowsTable(_REGION_COLUMNS, rows)
    return TableView(table, "regions", lambda row: ("Regions", name(table.value(row, 0))))


def _region_row(region: MPIRegion, own: float | None) -> tuple[Any, ...]:
    """From the summary: the time that calls awaited is not in it."""
    return (
        region.name, len(region.ranks), int(region.num_calls), region.total_duration, own, region.average_duration,
        region.min_duration, region.max_duration, region.std_duration,
        region.rank_imbalance_pct if len(region.ranks) > 1 else None, ", ".join(region.tags or ()),
    )  # fmt: skip


def _region_nodes(results: ProfilingResults) -> Iterator[Node]:
    for region in results:
        yield Node(name(region.name), partial(_region, results, region.name), partial(_region_parts, results, region.name))


def _region_parts(results: ProfilingResults, region: str) -> Iterator[Node]:
    yield Node("Summary", partial(_region, results, region))
    if len(results[region].ranks) > 1:
        yield Node("Ranks", partial(_region_ranks, results[region]))
    yield Node("Calls", partial(_calls, results, region))
    yield Node("Source", partial(_source, results[region]))


def _region(results: ProfilingResults, wanted: str) -> View:
    region = results[wanted]
    _, ranks, calls, total, own, average, least, most, deviation, imbalance, tags = _region_row(region, _own(region))
    rows = [
        ("Region", name(region.name)), ("Ranks", count(ranks)), ("Calls", count(calls)), ("Total", seconds(total)),
        ("Own", seconds(own)), ("Average", seconds(average)), ("Min / max", f"{seconds(least)} / {seconds(most)}"),
        ("Standard deviation", seconds(deviation)),
    ]  # fmt: skip
    quantiles = [getattr(region, f"p{part}_duration") for part in (50, 95, 99)]
    if None not in quantiles:
        rows.append(("P50 / P95 / P99", " / ".join(map(seconds, quantiles))))
    if imbalance is not None:
        rows.append(("Imbalance of ranks", percent(imbalance)))
    if tags:
        rows.append(("Tags", name(tags)))
    if region.source_file:
        rows.append(("Source", name(f"{region.source_file}:{region.source_lineno}")))
    return _lines(_facts(rows))


def _region_ranks(region: MPIRegion) -> View:
    columns = [Column("rank", count), Column("calls", count)]
    columns += [Column(title, seconds) for title in ("total", "own", "average", "min", "max")]
    rows = []
    for rank in region.ranks:
        part = region[rank]
        times = part.total_duration, part.exclusive_duration, part.average_duration, part.min_duration, part.max_duration
        rows.append((rank, int(part.num_calls), *times))
    return TableView(RowsTable(columns, rows, searched=None), "ranks")


def _source(region: MPIRegion) -> View:
    if not region.source_text:
        return _lines([f"{region.source_file}:{region.source_lineno}" if region.source_file else "", "The source was not captured."])
    first = region.source_lineno or 1
    lines = region.source_text.splitlines()
    width = len(str(first + len(lines)))
    return _lines(
        [f"{region.source_file}:{first}", ""], (f"{first + number:>{width}}  {line}" for number, line in enumerate(lines))
    )


def _too_many(results: ProfilingResults) -> View | None:
    calls = _calls_of(results)
    if calls <= MOST_CALLS:
        return None
    return _lines([f"The run has {calls:,} calls, more than are read here ({MOST_CALLS:,}): its summary is all that is shown."])


def _calls(results: ProfilingResults, wanted: str) -> View:
    """The calls of a region, as they began."""
    refused = _too_many(results)
    if refused is not None:
        return refused
    region = results[wanted]
    ranks = [rank for rank in region.ranks if len(region[rank].start_times_ns)]
    if not ranks:
        return _lines(["The profile has no single calls, only their sums." if region.num_calls else "There are no calls."])
    parts = [region[rank] for rank in ranks]
    origin = results._time_origin_ns
    starts = np.concatenate([part.start_times_ns for part in parts])
    order = np.argsort(starts, kind="stable")
    columns = [Column("start", seconds), Column("duration", seconds), Column("own", seconds)]
    arrays = [
        starts - origin,
        np.concatenate([part.durations_ns for part in parts]),
        np.concatenate([part.exclusive_durations_ns for part in parts]),
    ]
    names: list[Callable[[int], str] | None] = [None, None, None]
    if all(part.await_times_ns is not None for part in parts):
        columns.append(Column("awaiting", seconds))
        arrays.append(np.concatenate([part.await_times_ns for part in parts]))
        names.append(None)
    if len(ranks) > 1:
        columns.append(Column("rank", count))
        arrays.append(np.concatenate([np.full(len(part.start_times_ns), rank) for rank, part in zip(ranks, parts)]))
        names.append(None)
    elif all(part.thread_ids is not None for part in parts):
        _add_lanes(results, parts[0], ranks[0], columns, arrays, names)
    return TableView(CallsTable(columns, [array[order] for array in arrays], names), "calls")


def _add_lanes(
    results: ProfilingResults, part: Any, rank: int, columns: list[Column], arrays: list[np.ndarray], names: list[Any]
) -> None:
    from scope_profiler.concurrency import lane_ids

    lanes = lane_ids(part.thread_ids, part.task_ids)
    if lanes is None:
        return
    columns.append(Column("lane", name))
    arrays.append(np.asarray(lanes))
    names.append(lambda lane: results.lane_label(lane, rank))


# -- threads and tasks -----------------------------------------------------------------------------------------------------


def _lane_columns(results: ProfilingResults, columns: list[Column]) -> list[Column]:
    return [Column("rank", count), *columns] if int(results.num_ranks) > 1 else columns


def _threads(results: ProfilingResults) -> View:
    from scope_profiler.inspection import plain

    several = int(results.num_ranks) > 1
    rows: list[tuple[Any, ...]] = []
    for rank, threads in sorted(results.threads.items()):
        used = {row["index"]: row for row in results.thread_summary(rank)}
        for thread in threads:
            row = (
                thread.index, f"{thread.name} (daemon)" if thread.daemon else thread.name, used[thread.index]["num_calls"],
                used[thread.index]["region_time"], plain(thread.run_cpu_time), thread.wall_time, thread.start_time, thread.end_time,
                "alive" if thread.alive else "ended",
            )  # fmt: skip
            rows.append((rank, *row) if several else row)
    columns = [Column("#", count), Column("thread", name), Column("calls", count)]
    columns += [Column(title, seconds) for title in ("in regions", "cpu", "wall", "start", "end")]
    return TableView(RowsTable(_lane_columns(results, [*columns, Column("")]), rows, searched=2 if several else 1), "threads")


def _tasks(results: ProfilingResults) -> View:
    several = int(results.num_ranks) > 1
    rows: list[tuple[Any, ...]] = []
    for rank, tasks in sorted(results.tasks.items()):
        threads = {thread.index: thread.name for thread in results.threads.get(rank, ())}
        for task in tasks:
            row = (
                task.index, task.name, task.coro_name, task.kind, threads.get(task.thread_index, ""), task.steps, task.running_time,
                task.awaiting_time, task.created_time, task.wall_time, "done" if task.done else "pending",
            )  # fmt: skip
            rows.append((rank, *row) if several else row)
    columns = [Column("#", count), Column("task", name), Column("coroutine", name), Column("kind"), Column("thread", name)]
    columns += [Column("steps", count), *(Column(title, seconds) for title in ("running", "awaiting", "created", "wall"))]
    table = RowsTable(_lane_columns(results, [*columns, Column("")]), rows, searched=3 if several else 2)
    return TableView(table, "tasks")


def _line_profile(results: ProfilingResults) -> View:
    from scope_profiler.line_tables import line_profile_lines, select_records

    return _lines(line_profile_lines(select_records(results.line_profile), 110))


# -- call tree -------------------------------------------------------------------------------------------------------------


def _tree_words(results: ProfilingResults) -> View:
    return _lines(
        ["Calls of one path put together: open a node to see what is called from it."],
        ["", "All lanes   every thread and task together, from the summary of the run"],
        ["Below it    each thread and task by itself, those with the most time first"],
    )


def _tree_nodes(results: ProfilingResults) -> Iterator[Node]:
    """All lanes together, then each lane of each rank."""
    from scope_profiler.summary import call_paths

    roots = call_paths(results)
    whole = sum(path.inclusive for path in roots)
    yield Node("All lanes", partial(_path_table, roots), partial(_path_nodes, roots, whole))
    if _calls_of(results) > MOST_CALLS or not results.has_event_data:
        refused = _too_many(results) or _lines(["The profile has no single calls, only their sums."])
        yield Node("Single lanes", lambda: refused)
        return
    from scope_profiler.cli.tree import trees

    for rank, tree in trees(results, list(results), None):
        if isinstance(tree, Exception):
            words = one_line(tree)
            yield Node(f"rank {rank}", lambda words=words: _lines([f"There is no call tree: {words}"]))  # type: ignore[misc]
            continue
        yield from _lane_nodes(results, tree, rank)


def _path_label(title: str, calls: int, inclusive: int, own: int | None, whole: int) -> str:
    parts = [seconds(inclusive / 1e9)]
    if whole:
        parts.append(percent(100 * inclusive / whole))
    if own is not None and own != inclusive:
        parts.append(f"own {seconds(own / 1e9)}")
    return f"{name(title)}  {calls:,}x  {', '.join(parts)}"


_PATH_COLUMNS = (Column("called", name), Column("calls", count), *(Column(title, seconds) for title in ("total", "own", "min", "max")))


def _path_table(paths: Sequence[Path]) -> View:
    def known(ns: float | None) -> float | None:
        return None if ns is None else ns / 1e9

    rows = [
        (path.name, path.calls, *map(known, (path.inclusive, path.exclusive, path.minimum, path.maximum))) for path in paths
    ]
    return TableView(RowsTable(_PATH_COLUMNS, rows), "paths")


def _path_nodes(paths: Sequence[Path], whole: int) -> Iterator[Node]:
    for path in paths:
        label = _path_label(path.name, path.calls, path.inclusive, path.exclusive, whole)
        children = sorted(path.children, key=lambda child: -child.inclusive)
        below = partial(_path_nodes, children, path.inclusive) if children else None
        yield Node(label, partial(_path_table, [path, *children]), below)


def _lane_nodes(results: ProfilingResults, tree: Tree, rank: int) -> Iterator[Node]:
    from scope_profiler.path_tree import NO_LANES

    below = tree.children()
    roots: dict[int, list[int]] = {}
    for root in below.get(-1, []):
        roots.setdefault(int(tree.lane[root]), []).append(root)
    times = {lane: int(tree.inclusive[members].sum()) for lane, members in roots.items()}
    for lane in sorted(times, key=lambda lane: -times[lane]):
        title = "all calls" if lane == NO_LANES else results.lane_label(lane, rank)
        if int(results.num_ranks) > 1:
            title = f"{results.rank_label(rank)} - {title}"
        calls = len(roots[lane])
        label = f"{name(title)}  {seconds(times[lane] / 1e9)}"
        members = roots[lane]
        yield Node(label, partial(_lane_table, tree, members), partial(_lane_paths, tree, below, members, times[lane]) if calls else None)


def _lane_table(tree: Tree, paths: Sequence[int]) -> View:
    columns = [Column("called", name), Column("calls", count), Column("total", seconds), Column("own", seconds)]
    if tree.awaiting is not None:
        columns.append(Column("awaiting", seconds))
    rows = []
    for path in paths:
        row = [tree.names[tree.region[path]], int(tree.calls[path]), int(tree.inclusive[path]) / 1e9, int(tree.exclusive[path]) / 1e9]
        rows.append(row + ([] if tree.awaiting is None else [int(tree.awaiting[path]) / 1e9]))
    return TableView(RowsTable(columns, rows), "paths")


def _lane_paths(tree: Tree, below: dict[int, list[int]], paths: Sequence[int], whole: int) -> Iterator[Node]:
    for path in sorted(paths, key=lambda path: -int(tree.inclusive[path])):
        inclusive, own = int(tree.inclusive[path]), int(tree.exclusive[path])
        label = _path_label(tree.names[tree.region[path]], int(tree.calls[path]), inclusive, own, whole)
        children = below.get(path, [])
        yield Node(
            label, partial(_lane_table, tree, [path, *children]), partial(_lane_paths, tree, below, children, inclusive) if children else None
        )


# -- the file itself -------------------------------------------------------------------------------------------------------

_VALUES = 100  # of a dataset that are shown


def _raw_node(path: str) -> Node:
    if not _is_hdf5(path):
        return Node("Raw HDF5", lambda: _lines([f"{name(path)} is no HDF5 file."]))
    return Node("Raw HDF5", partial(_raw_view, path, "/"), partial(_raw_children, path, "/"))


def _is_hdf5(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError:
        return False


def _raw_children(path: str, group: str) -> Iterator[Node]:
    h5py = _h5py()
    if h5py is None:
        return
    with h5py.File(path, "r") as file:
        members = [(key, isinstance(file[group].get(key, getlink=False), h5py.Group)) for key in file[group]]
    for key, is_group in members:
        inside = f"{group.rstrip('/')}/{key}"
        yield Node(name(key), partial(_raw_view, path, inside), partial(_raw_children, path, inside) if is_group else None)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        return None
    return h5py


def _raw_view(path: str, inside: str) -> View:
    """A group with its members, or a dataset with its first values, each with its attributes. Only what is shown is read."""
    h5py = _h5py()
    if h5py is None:
        return _lines(["This needs h5py: pip install scope-profiler[tui]"])
    with h5py.File(path, "r") as file:
        item = file[inside]
        attributes = [f"  {key} = {_value(value)}" for key, value in item.attrs.items()]
        if isinstance(item, h5py.Group):
            facts = [f"group {inside}", f"{len(item)} members", ""]
            return _lines(facts, ["attributes", *attributes] if attributes else [])
        facts = _facts(
            [
                ("dataset", inside), ("shape", str(item.shape)), ("type", str(item.dtype)), ("chunks", str(item.chunks)),
                ("filters", item.compression or ("unknown" if item.id.get_create_plist().get_nfilters() else "none")),
                ("stored", f"{item.id.get_storage_size():,} bytes"),
            ]
        )  # fmt: skip
        try:
            values = item[()] if item.shape == () else item[:_VALUES]
        except OSError as error:
            values = np.array([])
            facts.append(f"cannot be read: {one_line(error)}")
        number = int(np.prod(item.shape))
        shown = [f"  {_value(value)}" for value in np.atleast_1d(values)[:_VALUES]]
        more = [f"  ... {number - len(shown):,} more"] if number > len(shown) else []
        return _lines(facts, ["", "attributes", *attributes] if attributes else [], ["", "values", *shown, *more])


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return text(value)
