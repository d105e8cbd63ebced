"""Every call over time: a row for each thread and task, or for each region where lanes were not tracked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler.plotting_scripts._chart import Chart, Options, Panel, Spans, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, calls_of, chosen_runs
from scope_profiler.plotting_scripts._spans import busiest, lane_order, lane_text, merge_narrow
from scope_profiler.plotting_scripts._table import Table

if TYPE_CHECKING:
    from scope_profiler.plotting_scripts._inputs import Calls, Run

__all__ = ["plot_gantt"]

_Ints: TypeAlias = NDArray[np.int64]

_ROWS = 60  # that one panel shows
_DEEPEST = 5  # levels that are told apart within a row
_ROW_INCHES = 0.27


def plot_gantt(
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
    min_duration: float = 0.0,
    start_time: float | None = None,
    end_time: float | None = None,
    aggregate_calls: int = 1,
    collapse_depth: int | None = None,
) -> Any:
    """Draw every call as a bar over time.

    A run that tracked threads has a row for each thread and task, with inner calls inside of the outer ones; other runs have a row
    for each region. Calls narrower than a pixel are put together, and how many is said below the plot.

    Parameters
    ----------
    min_duration
        Calls shorter than this (s) are left out.
    start_time, end_time
        The part of the time to show, s from the first call of the run.
    aggregate_calls
        So many calls of a region that follow each other on a lane become one bar, from the start of the first to the end of the last.
    collapse_depth
        Calls with more callers around them than this are left out: 0 leaves the outermost.

    Returns
    -------
    tuple or None
        (figure, axes) if ``return_fig``.

    Raises
    ------
    ValueError
        Nothing is left to draw.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    if aggregate_calls < 1:
        raise ValueError(f"aggregate_calls is 1 or more, not {aggregate_calls}")
    window = check_window(start_time, end_time)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, events="a Gantt chart")
        charts = [_Gantt(run, window, min_duration, aggregate_calls, collapse_depth) for run in runs if run.regions]
        if not any(chart.shown for chart in charts):
            raise ValueError("no call is left to draw")
        colors = region_colors(runs, cmap)
        panels = [chart.panel(colors) for chart in charts]
        if len(panels) == 1:
            panels[0].title = f"Gantt chart of {panels[0].title}"
        notes = [note for chart in charts for note in chart.notes]
        return Chart(f"Gantt chart of {', '.join(run.label for run in runs)}", panels, lambda: _table(charts, colors), notes=notes)

    return finish(make, options)


def check_window(start: float | None, end: float | None) -> tuple[float | None, float | None]:
    """ValueError if the part of the time is empty."""
    if start is not None and end is not None and end <= start:
        raise ValueError(f"end_time is after start_time, but {end} is not after {start}")
    return start, end


def window_mask(start_ns: _Ints, end_ns: _Ints, origin: int, window: tuple[float | None, float | None], shortest: float) -> NDArray[np.bool_]:
    """Calls that are long enough and reach into the part of the time."""
    mask: NDArray[np.bool_] = (end_ns - start_ns) >= round(shortest * 1e9)
    if window[0] is not None:
        mask &= end_ns >= origin + round(window[0] * 1e9)
    if window[1] is not None:
        mask &= start_ns <= origin + round(window[1] * 1e9)
    return mask


def run_origin(run: Run) -> int:
    """ns of the first call of the whole run: where time begins in plots."""
    found = run.results._range()
    return 0 if found is None else found[0]


class _Gantt:
    """The bars of one run."""

    def __init__(
        self, run: Run, window: tuple[float | None, float | None], shortest: float, together: int, collapse: int | None
    ) -> None:
        self.run = run
        self.window = window
        self.origin = run_origin(run)
        self.notes: list[str] = []
        self.shown: dict[int, Calls] = {}
        for rank in run.ranks:
            calls = calls_of(run, rank)
            if collapse is not None and not calls.nested:
                raise ValueError(f"{run.label} has calls that overlap without nesting: there is no depth to collapse at")
            mask = window_mask(calls.start_ns, calls.end_ns, self.origin, window, shortest)
            if collapse is not None:
                mask &= calls.depth <= collapse
            calls = calls if mask.all() else calls.where(mask)
            if together > 1:
                calls = _together(calls, together)
            if len(calls):
                self.shown[rank] = calls

    def _limits(self) -> tuple[int, int]:
        first = min(int(calls.start_ns.min()) for calls in self.shown.values())
        last = max(int(calls.end_ns.max()) for calls in self.shown.values())
        low = first if self.window[0] is None else self.origin + round(self.window[0] * 1e9)
        high = last if self.window[1] is None else self.origin + round(self.window[1] * 1e9)
        return min(self.origin, low) if self.window[0] is None else low, max(high, low + 1)

    def panel(self, colors: dict[str, str]) -> Panel:
        """All rows of the run, the first at the top."""
        if not self.shown:
            return Panel(title=f"{self.run.title}: no call", height=1.0)
        low, high = self._limits()
        factor, unit = time_unit((high - low) / 1e9)
        names = self.run.results.region_names
        any_tracked = any(calls.tracked for calls in self.shown.values())
        number = {name: place for place, name in enumerate(names)}
        ticks: list[tuple[float, str]] = []
        parts: list[tuple[_Ints, _Ints, _Ints, _Ints, _Ints]] = []  # row, level, name, start, end
        lines: list[float] = []
        for rank, calls in self.shown.items():
            rows, levels, texts = self._rows(rank, calls, _ROWS - len(ticks))
            kept = rows >= 0
            numbers = np.array([number[name] for name in calls.names], np.int64)[calls.name]
            parts.append((rows[kept] + len(ticks), levels[kept], numbers[kept], calls.start_ns[kept], calls.end_ns[kept]))
            if ticks and texts and calls.tracked:
                lines.append(len(ticks) - 0.5)
            ticks += [(len(ticks) + place, text) for place, text in enumerate(texts)]
        row, level, name, start, end = (np.concatenate(columns) for columns in zip(*parts))
        merged = merge_narrow(row * (_DEEPEST + 1) + level, name, start, end, low, high)
        if merged.together:
            self.notes.append(f"{self.run.label}: {merged.together:,} of {len(row):,} calls are narrower than a pixel and drawn together")
        return Panel(
            title=self.run.title,
            x_label=f"time from the first call [{unit}]",
            marks=[_spans(merged, names, colors, self.origin, factor)],
            y_ticks=ticks,
            y_limits=(len(ticks) - 0.4, -0.6),
            x_limits=((low - self.origin) / 1e9 * factor, (high - self.origin) / 1e9 * factor),
            bands=lines,
            legend=[(names[one], colors[names[one]]) for one in np.unique(name).tolist()] if any_tracked else [],
            height=0.9 + _ROW_INCHES * max(len(ticks), 3),
        )

    def _rows(self, rank: int, calls: Calls, room: int) -> tuple[_Ints, _Ints, list[str]]:
        """For each call its row (-1: not shown) and its level in the row, and the texts of the rows."""
        prefix = f"rank {rank}: " if len(self.shown) > 1 else ""
        if calls.tracked:
            lanes, hidden = busiest(calls, max(room, 1))
            if hidden:
                self.notes.append(f"{prefix}{hidden} more threads and tasks, with less time in regions, are not shown")
            lanes = lane_order(self.run.results, rank, lanes)
            texts = [prefix + (lane_text(self.run.results, rank, lane) or "unknown thread") for lane in lanes]
            return _places(calls.lane, lanes), np.minimum(calls.depth, _DEEPEST), texts
        numbers, first = np.unique(calls.name, return_index=True)
        shown = numbers[np.argsort(first)]
        if len(shown) > max(room, 1):
            self.notes.append(f"{prefix}{len(shown) - max(room, 1)} regions that begin later are not shown")
            shown = shown[: max(room, 1)]
        row_of = np.full(len(calls.names), -1, np.int64)
        row_of[shown] = np.arange(len(shown))
        return row_of[calls.name], np.zeros(len(calls), np.int64), [prefix + calls.names[one] for one in shown.tolist()]


def _places(values: _Ints, wanted: list[int]) -> _Ints:
    """The place of each value in ``wanted``, -1 where it is not there."""
    keys = np.array(wanted, np.int64)
    order = np.argsort(keys)
    found = np.minimum(np.searchsorted(keys[order], values), len(keys) - 1)
    return np.where(keys[order][found] == values, order[found], -1)


def _spans(merged: Any, names: list[str], colors: dict[str, str], origin: int, factor: float) -> Spans:
    row, level = np.divmod(merged.row, _DEEPEST + 1)
    order = np.lexsort((level, merged.start, row))
    row, level, start, end, name = (v[order] for v in (row, level, merged.start, merged.end, merged.name))
    covered = end.copy()  # from where the next call of the row, an inner one, lies over it
    covered[:-1] = np.where(row[1:] == row[:-1], np.minimum(end[:-1], start[1:]), end[:-1])
    height = 0.86 - 0.14 * level
    seconds = factor / 1e9
    over = np.argsort(level, kind="stable")  # inner calls are drawn last
    spans = ((start - origin) * seconds, (end - start) * seconds, row - height / 2, height, name, (covered - start) * seconds)
    left, width, bottom, height, name, room = (values[over] for values in spans)
    return Spans(left, width, bottom, height, name, [colors[text] for text in names], names, room)


def _together(calls: Calls, number: int) -> Calls:
    """Every ``number`` calls of a region on a lane as one."""
    order = np.lexsort((calls.start_ns, calls.lane, calls.name))
    name, lane = calls.name[order], calls.lane[order]
    fresh = np.concatenate(([True], (name[1:] != name[:-1]) | (lane[1:] != lane[:-1]))) if len(name) else np.empty(0, bool)
    begins = np.flatnonzero(fresh)
    place = np.arange(len(name)) - np.repeat(begins, np.diff(np.append(begins, len(name))))
    leaders = np.flatnonzero(place % number == 0)
    if not len(leaders):
        return calls
    ends = np.maximum.reduceat(calls.end_ns[order], leaders)
    some = calls.where(np.isin(np.arange(len(calls)), order[leaders]))
    end_of = np.empty(len(calls), np.int64)
    end_of[order[leaders]] = ends
    some.end_ns = end_of[np.sort(order[leaders])]
    return some


def _table(charts: list[_Gantt], colors: dict[str, str]) -> Table:
    parts: list[dict[str, Any]] = []
    tracked = any(calls.tracked for chart in charts for calls in chart.shown.values())
    for chart in charts:
        for rank, calls in chart.shown.items():
            names = np.array(calls.names, object)[calls.name]
            part: dict[str, Any] = {
                "file": np.full(len(calls), chart.run.label, object),
                "rank": np.full(len(calls), rank, np.int64),
                "region": names,
                "start_seconds": (calls.start_ns - chart.origin) / 1e9,
                "end_seconds": (calls.end_ns - chart.origin) / 1e9,
                "depth": calls.depth,
            }
            if tracked:
                part["lane"] = lane_names(chart.run, rank, calls)
            parts.append(part)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    shown = list(dict.fromkeys(columns["region"].tolist()))
    extra = {
        "colors": {name: colors[name] for name in shown},
        "file_ranks": {chart.run.label: chart.run.results.num_ranks for chart in charts},
    }
    return Table("gantt", "intervals", columns, extra)


def lane_names(run: Run, rank: int, calls: Calls) -> NDArray[Any]:
    """The name of the lane of each call."""
    lanes, inverse = np.unique(calls.lane, return_inverse=True)
    texts = np.array([lane_text(run.results, rank, lane) for lane in lanes.tolist()], object)
    named: NDArray[Any] = texts[inverse]
    return named
