"""What called what: over time (flame chart), or put together by call path (flame graph). A band for each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler.call_stack import CallArrays
from scope_profiler.path_tree import Tree, build_tree
from scope_profiler.plotting_scripts._chart import Chart, Options, Panel, Spans, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import region_colors
from scope_profiler.plotting_scripts._inputs import Calls, Data, Patterns, Ranks, calls_of, chosen_runs
from scope_profiler.plotting_scripts._spans import Merged, busiest, lane_order, lane_text, merge_narrow
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.plotting_scripts.gantt import lane_names, run_origin

if TYPE_CHECKING:
    from scope_profiler.plotting_scripts._inputs import Run

__all__ = ["plot_flame", "plot_flame_chart", "plot_flame_graph"]

_Ints: TypeAlias = NDArray[np.int64]

_LEVELS = 100  # rows of calls that one panel shows
_LANES = 30
_ROW_INCHES = 0.24
_GAP = 0.4  # rows between lanes


def plot_flame_chart(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
) -> Any:
    """Draw calls over time, each below its caller, with a band of its own for each thread and task.

    A panel for each run and rank; without ``ranks``, the first rank of each run. Calls narrower than a pixel are put together. Where
    calls overlap without nesting, a band has one level.

    Returns (figure, axes) if ``return_fig``, else None. Raises ValueError if there is nothing to draw.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    return finish(lambda: _chart("flame chart", _FlameChart, profiling_data, ranks, include, exclude, cmap), options)


def plot_flame_graph(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
) -> Any:
    """Draw the calls of each call path as one span, as wide as their time together, with a band for each thread and task.

    Takes and returns what plot_flame_chart() does. Raises NestingError (a ValueError) where calls overlap without nesting.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    return finish(lambda: _chart("flame graph", _FlameGraph, profiling_data, ranks, include, exclude, cmap), options)


#: The name that early releases had for the flame chart.
plot_flame = plot_flame_chart


class _Flame:
    """Spans of one rank of a run, by level and lane: the frame that both plots share. Subclasses set the columns."""

    x_label = ""
    title = ""

    def __init__(self, run: Run, rank: int) -> None:
        self.run = run
        self.rank = rank
        self.notes: list[str] = []
        self.calls = calls_of(run, rank)
        lanes, hidden = busiest(self.calls, _LANES)
        self.name: _Ints
        self.lane: _Ints
        self.depth: _Ints
        self.start: _Ints
        self.end: _Ints
        self._measure()
        self.lanes = self._that_fit(lane_order(run.results, rank, lanes), hidden)

    def _measure(self) -> None:
        raise NotImplementedError

    def table_columns(self) -> dict[str, Any]:
        """The columns of the data file."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The names that ``name`` points into."""
        return self.calls.names

    def _that_fit(self, lanes: list[int], hidden: int) -> list[tuple[int, int]]:
        """(lane, levels) of the lanes that are shown: those with the most time first get room, in the order given."""
        deepest = dict.fromkeys(lanes, 0)
        unique, inverse = np.unique(self.lane, return_inverse=True)
        most = np.zeros(len(unique), np.int64)
        np.maximum.at(most, inverse, self.depth)
        deepest.update((lane, level + 1) for lane, level in zip(unique.tolist(), most.tolist()) if lane in deepest)
        room = _LEVELS
        fitting: dict[int, int] = {}
        for lane in busiest(self.calls, _LANES)[0]:
            levels = min(deepest[lane], max(room, 1 if not fitting else 0))
            if levels > 0:
                fitting[lane] = levels
                room -= levels
        shown = [(lane, fitting[lane]) for lane in lanes if lane in fitting]
        hidden += len(lanes) - len(shown)
        where = f"{self.run.label}: " if self.run.results.num_ranks <= 1 else f"{self.run.label}, rank {self.rank}: "
        if hidden:
            self.notes.append(f"{where}{hidden} more threads and tasks, with less time in regions, are not shown")
        if any(levels < deepest[lane] for lane, levels in shown):
            self.notes.append(f"{where}levels deeper than those shown are left out")
        return shown

    def panel(self, colors: dict[str, str]) -> Panel:
        """Bands below each other, levels downwards."""
        low, high = int(self.start.min()), int(self.end.max())
        low, high = min(low, self.zero()), max(high, low + 1)
        factor, unit = time_unit((high - low) / 1e9)
        base = np.zeros(len(self.lane), np.float64)
        kept = np.zeros(len(self.lane), bool)
        ticks, lines, y = [], [], 0.0
        unique, inverse = np.unique(self.lane, return_inverse=True)
        tops, limits = np.full(len(unique), -1.0), np.zeros(len(unique), np.int64)
        for lane, levels in self.lanes:
            place = int(np.searchsorted(unique, lane))
            tops[place], limits[place] = y, levels
            ticks.append((y + 0.5, lane_text(self.run.results, self.rank, lane)))
            y += levels + _GAP
            lines.append(y - _GAP / 2)
        base = tops[inverse]
        kept = (base >= 0) & (self.depth < limits[inverse])
        rows = np.cumsum(np.append(0, limits))[:-1][inverse] + self.depth  # one number a lane and level
        merged = merge_narrow(rows[kept], self.name[kept], self.start[kept], self.end[kept], low, high)
        y_of = np.full(int(limits.sum()), 0.0)
        for place in range(len(unique)):
            begin = int(limits[:place].sum())
            y_of[begin : begin + int(limits[place])] = tops[place] + np.arange(int(limits[place]))
        self._note_merged(merged, int(kept.sum()))
        marks = Spans(
            (merged.start - self.zero()) / 1e9 * factor, (merged.end - merged.start) / 1e9 * factor, y_of[merged.row] + 0.03,
            np.full(len(merged.row), 0.94), merged.name, [colors[name] for name in self.names], self.names,
        )  # fmt: skip
        tracked = self.calls.tracked
        where = f" (rank {self.rank})" if self.run.results.num_ranks > 1 else ""
        return Panel(
            title=f"{self.title} of {self.run.label}{where}",
            x_label=f"{self.x_label} [{unit}]",
            y_label="" if tracked else "call depth",
            marks=[marks],
            y_ticks=ticks if tracked else [(level + 0.5, str(level)) for level in range(max(int(limits.max()), 1))],
            y_limits=(y - _GAP / 2, -_GAP / 2),
            x_limits=((low - self.zero()) / 1e9 * factor, (high - self.zero()) / 1e9 * factor),
            bands=lines[:-1],
            legend=[(self.names[one], colors[self.names[one]]) for one in np.unique(self.name[kept]).tolist()],
            height=0.9 + _ROW_INCHES * max(y, 3),
        )

    def zero(self) -> int:
        """What the x axis counts from, ns."""
        return 0

    def _note_merged(self, merged: Merged, count: int) -> None:
        if merged.together:
            self.notes.append(f"{self.run.label}: {merged.together:,} of {count:,} calls are narrower than a pixel and drawn together")


class _FlameChart(_Flame):
    x_label = "time from the first call"
    title = "Flame chart"

    def _measure(self) -> None:
        calls = self.calls
        self.name, self.lane, self.depth = calls.name, calls.lane, shown_depth(calls)
        self.start, self.end = calls.start_ns, calls.end_ns

    def zero(self) -> int:
        return run_origin(self.run)

    def table_columns(self) -> dict[str, Any]:
        calls = self.calls
        count = len(calls)
        path, paths = _paths(self._arrays())
        sources = [self.run.results[name][self.rank] for name in calls.names]
        return {
            "file": np.full(count, self.run.label, object),
            "rank": np.full(count, self.rank, np.int64),
            "call_id": np.arange(count),
            "parent_call_id": or_none(calls.parent),
            "region": np.array(calls.names, object)[calls.name],
            "call_path": np.array(paths, object)[path],
            "source_file": np.array([source.source_file for source in sources], object)[calls.name],
            "source_lineno": np.array([source.source_lineno for source in sources], object)[calls.name],
            "depth": self.depth,
            "start_seconds": (calls.start_ns - self.zero()) / 1e9,
            "end_seconds": (calls.end_ns - self.zero()) / 1e9,
            "inclusive_duration_seconds": (calls.end_ns - calls.start_ns) / 1e9,
            "exclusive_duration_seconds": calls.exclusive_ns / 1e9,
            **({"lane": lane_names(self.run, self.rank, calls)} if calls.tracked else {}),
        }

    def _arrays(self) -> CallArrays:
        return as_arrays(self.calls, self.depth)


class _FlameGraph(_Flame):
    x_label = "time together"
    title = "Flame graph"

    tree: Tree

    def _measure(self) -> None:
        from scope_profiler._core import NestingError

        if not self.calls.nested:
            raise NestingError(
                f"{self.run.label} has calls that overlap without nesting, so they have no call paths: track_threads=True or "
                "track_async=True keeps threads and tasks apart"
            )
        tree = self.tree = build_tree(as_arrays(self.calls, shown_depth(self.calls)), None)
        self.depth, self.start = _layout(tree)
        self.name, self.lane, self.end = tree.region, tree.lane, self.start + tree.inclusive

    def table_columns(self) -> dict[str, Any]:
        tree = self.tree
        count = len(tree)
        order = np.lexsort((np.arange(count), self.depth, self.start, tree.lane))  # callers before what they call
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        parent = np.where(tree.parent >= 0, place[tree.parent], -1)
        columns: dict[str, Any] = {
            "file": np.full(count, self.run.label, object),
            "rank": np.full(count, self.rank, np.int64),
            "call_id": place,
            "parent_call_id": or_none(parent),
            "region": np.array(self.names, object)[tree.region],
            "call_path": np.array(_path_texts(tree), object),
            "depth": self.depth,
            "start_seconds": self.start / 1e9,
            "end_seconds": self.end / 1e9,
            "inclusive_duration_seconds": tree.inclusive / 1e9,
            "exclusive_duration_seconds": tree.exclusive / 1e9,
        }
        if self.calls.tracked:
            lanes = {lane: lane_text(self.run.results, self.rank, lane) for lane in np.unique(tree.lane).tolist()}
            columns["lane"] = np.array([lanes[lane] for lane in tree.lane.tolist()], object)
        return {name: values[order] for name, values in columns.items()}


def shown_depth(calls: Calls) -> _Ints:
    """The number of callers that are shown."""
    if not len(calls) or not calls.nested:
        return calls.depth
    depth = np.zeros(len(calls), np.int64)
    order = np.argsort(calls.depth, kind="stable")
    ends = np.cumsum(np.bincount(calls.depth))
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist()):
        members = order[begin:end]
        above = calls.parent[members]
        depth[members] = np.where(above >= 0, depth[above] + 1, 0)
    return depth


def as_arrays(calls: Calls, depth: _Ints) -> CallArrays:
    unknown: list[Any] = [None] * len(calls.names)
    return CallArrays(
        calls.names, unknown, unknown, calls.name, calls.call_index, calls.start_ns, calls.end_ns, depth, calls.parent,
        calls.exclusive_ns, calls.lane,
    )  # fmt: skip


def _paths(calls: CallArrays) -> tuple[_Ints, list[str]]:
    """For each call the number of its path, and the paths as texts."""
    tree = build_tree(calls, None)
    return tree.path, _path_texts(tree)


def _path_texts(tree: Tree) -> list[str]:
    texts: list[str] = []
    for region, parent in zip(tree.region.tolist(), tree.parent.tolist()):
        name = tree.names[region]
        texts.append(name if parent < 0 else f"{texts[parent]} > {name}")
    return texts


def _layout(tree: Tree) -> tuple[_Ints, _Ints]:
    """(depth, left edge in ns) of each path: children side by side from where their parent begins, in order of their first call."""
    count = len(tree)
    depth, left = np.zeros(count, np.int64), np.zeros(count, np.int64)
    group = np.where(tree.parent >= 0, tree.parent, -2 - np.unique(tree.lane, return_inverse=True)[1])
    order = np.lexsort((np.arange(count), group))
    before = np.cumsum(tree.inclusive[order]) - tree.inclusive[order]
    fresh = np.concatenate(([True], group[order][1:] != group[order][:-1])) if count else np.empty(0, bool)
    begins = np.flatnonzero(fresh)
    offset = np.empty(count, np.int64)
    offset[order] = before - np.repeat(before[begins], np.diff(np.append(begins, count)))
    parents = np.sort(tree.parent)
    begin, end = 0, int(np.searchsorted(parents, 0))
    left[:end] = offset[:end]
    while end < count:  # a level at a time: paths are ordered by level
        begin, end = end, int(np.searchsorted(parents, end))
        above = tree.parent[begin:end]
        depth[begin:end] = depth[above] + 1
        left[begin:end] = left[above] + offset[begin:end]
    return depth, left


def or_none(values: _Ints) -> NDArray[Any]:
    plain = values.astype(object)
    plain[values < 0] = None
    return plain


def _chart(
    kind: str, make: type[_Flame], data: Data, ranks: Ranks, include: Patterns, exclude: Patterns, cmap: str | None
) -> Chart:
    runs = chosen_runs(data, ranks, include, exclude, events=f"a {kind}")
    flames = [make(run, rank) for run in runs for rank in (run.ranks if ranks is not None else run.ranks[:1])]
    if not flames:
        raise ValueError("no call is left to draw")
    colors = region_colors(runs, cmap)
    panels = [flame.panel(colors) for flame in flames]
    places = ", ".join(dict.fromkeys(flame.run.label for flame in flames))

    def table() -> Table:
        parts = [flame.table_columns() for flame in flames]
        columns = {}
        for name in max(parts, key=len):
            filled = [part[name] if name in part else np.full(len(part["file"]), "", object) for part in parts]
            columns[name] = np.concatenate(filled)
        shown = dict.fromkeys(columns["region"].tolist())
        extra = {
            "colors": {name: colors[name] for name in shown},
            "file_ranks": {flame.run.label: flame.run.results.num_ranks for flame in flames},
        }
        return Table("flame" if make is _FlameChart else "flame_graph", "calls", columns, extra)

    return Chart(f"{kind[0].upper()}{kind[1:]} of {places}", panels, table, notes=[n for flame in flames for n in flame.notes])
