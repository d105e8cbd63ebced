"""How much of each part of the time a region was open: readable for any number of calls."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler.concurrency import lane_ids
from scope_profiler.plotting_scripts._chart import Chart, Heat, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import HEAT
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.plotting_scripts.gantt import check_window, run_origin, window_mask

__all__ = ["plot_timeline_density"]

_Ints: TypeAlias = NDArray[np.int64]

_ROWS = 60


def plot_timeline_density(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    bins: int = 200,
    start_time: float | None = None,
    end_time: float | None = None,
    min_duration: float = 0.0,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
) -> Any:
    """Draw how long each region was open in each of ``bins`` parts of the time, summed over ranks, threads and tasks.

    A recursive region counts once. The other parameters are those of plot_gantt(). Returns (figure, axes) if ``return_fig``.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    if bins < 1:
        raise ValueError(f"bins is 1 or more, not {bins}")
    window = check_window(start_time, end_time)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, events="a density plot")
        made = [(run, *_density(run, bins, window, min_duration)) for run in runs if run.regions]
        if not any(values.size for _, _, values in made):
            raise ValueError("no call is left to draw")
        notes: list[str] = []
        panels = [_panel(run, edges, values, cmap or HEAT, notes) for run, edges, values in made if values.size]
        return Chart(f"Density of {', '.join(run.label for run in runs)}", panels, lambda: _table(made), notes=notes)

    return finish(make, options)


def open_intervals(lane: _Ints, start: _Ints, end: _Ints) -> tuple[_Ints, _Ints]:
    """When at least one call was open on a lane: calls of a lane that overlap or touch become one interval."""
    if not len(start):
        return start, end
    first, length = int(start.min()), int(end.max()) - int(start.min()) + 2
    shift = np.unique(lane, return_inverse=True)[1] * length - first  # lanes behind each other
    order = np.argsort(start + shift, kind="stable")
    begin, finish_, back = (start + shift)[order], (end + shift)[order], shift[order]
    reach = np.maximum.accumulate(finish_)
    fresh = np.flatnonzero(np.concatenate(([True], begin[1:] > reach[:-1])))
    last = np.append(fresh[1:], len(order)) - 1
    return begin[fresh] - back[fresh], reach[last] - back[fresh]


def _density(
    run: Run, bins: int, window: tuple[float | None, float | None], shortest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(edges of the bins in s from the first call, seconds open with one row a region)."""
    origin = run_origin(run)
    kept: list[list[tuple[_Ints, _Ints]]] = []
    for region in run.regions:
        parts = []
        for rank in region.ranks:
            one = region[rank]
            start, end = one.start_times_ns, one.end_times_ns
            lane = np.zeros(len(start), np.int64) if one.thread_ids is None else lane_ids(one.thread_ids, one.task_ids)
            mask = window_mask(start, end, origin, window, shortest)
            parts.append(open_intervals(lane[mask], start[mask], end[mask]))
        kept.append(parts)
    ends = [int(end.max()) for parts in kept for _, end in parts if len(end)]
    if not ends:
        return np.empty(0), np.empty((0, 0))
    low = 0.0 if window[0] is None else window[0]
    high = (max(ends) - origin) / 1e9 if window[1] is None else window[1]
    edges = np.linspace(low, max(high, low + 1e-9), bins + 1)
    rows = [sum(_open_until(start - origin, end - origin, edges) for start, end in parts) for parts in kept]
    return edges, np.diff(np.array(rows), axis=1)


def _open_until(start: _Ints, end: _Ints, edges: NDArray[np.float64]) -> Any:
    """Seconds in intervals before each edge."""

    def before(times: _Ints) -> Any:
        ordered = np.sort(times) / 1e9
        sums = np.concatenate(([0.0], np.cumsum(ordered)))
        count = np.searchsorted(ordered, edges)
        return count * edges - sums[count]

    return before(start) - before(end)


def _panel(run: Run, edges: Any, values: Any, cmap: str, notes: list[str]) -> Panel:
    factor, unit = time_unit(float(edges[-1] - edges[0]))
    if len(values) > _ROWS:
        notes.append(f"{run.label}: {len(values) - _ROWS} regions that begin later are not shown")
    share = values[:_ROWS] / np.diff(edges)
    return Panel(
        title=f"Density of calls in {run.title}",
        x_label=f"time from the first call [{unit}]",
        marks=[Heat(share, edges * factor, "open at once, on average", cmap)],
        y_ticks=[(place, region.name) for place, region in enumerate(run.regions[:_ROWS])],
        height=1.1 + 0.27 * max(len(share), 3),
    )


def _table(made: list[tuple[Run, Any, Any]]) -> Table:
    columns: dict[str, list[Any]] = {name: [] for name in ("file", "region", "bin_start_seconds", "bin_end_seconds", "occupied_seconds")}
    for run, edges, values in made:
        for region, row in zip(run.regions, values):
            columns["file"] += [run.label] * len(row)
            columns["region"] += [region.name] * len(row)
            columns["bin_start_seconds"] += edges[:-1].tolist()
            columns["bin_end_seconds"] += edges[1:].tolist()
            columns["occupied_seconds"] += row.tolist()
    return Table("density", "points", columns)
