"""How the durations of a region develop: the n-th call of each rank, against when it happened."""

from __future__ import annotations

from typing import Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Chart, Lines, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, by_thread, chosen_runs
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.plotting_scripts.gantt import run_origin

__all__ = ["plot_duration_timeseries"]

_THREADS = 12  # that have a panel
_POINTS = 2000  # that a line shows; where there are more calls, parts of the time become one point with a band


def plot_duration_timeseries(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    log_scale: bool = False,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
) -> Any:
    """Draw the duration of every call of each region against its start, averaged over the ranks that made an n-th call, with a band
    from the shortest to the longest. A panel a run, or, where the run tracked threads, one for each thread with the tasks on it.

    Returns (figure, axes) if ``return_fig``, else None.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, events="a time series")
        colors = region_colors(runs, cmap)
        notes: list[str] = []
        split = []
        for run in runs:
            parts, others = by_thread(run, _THREADS)
            split += parts
            if others:
                notes.append(f"{run.label}: {others} more threads, with less time in regions, are not shown")
        series = [(run, {region.name: _series(run, region) for region in run.regions}) for run in split]
        merged = 0
        panels = []
        for run, lines in series:
            threads = [of for other, of in series if other.results is run.results]  # of one run: they share the time axis
            latest = max(float(values["time_seconds"].max()) for of in threads for values in of.values())
            panel, count = _panel(run, lines, colors, log_scale, latest)
            panels.append(panel)
            merged += count
        if merged:
            notes.append(f"{merged:,} calls are drawn as averages over parts of the time, in a band from shortest to longest")
        title = f"Durations over time in {', '.join(run.label for run in runs)}"
        shown = {name: colors[name] for _, lines in series for name in lines}
        return Chart(title, panels, lambda: _table(series, shown), notes=notes)

    return finish(make, options)


def _series(run: Run, region: Any) -> dict[str, Any]:
    """Columns with one value a call number: mean start, and mean, minimum and maximum of the durations (s) over the ranks."""
    origin = run_origin(run)
    parts = [region[rank] for rank in region.ranks]
    orders = [np.argsort(part.start_times_ns, kind="stable") for part in parts]
    counts = [len(order) for order in orders]
    most = max(counts)
    number = np.zeros(most, np.int64)
    begin, total = np.zeros(most), np.zeros(most)
    shortest, longest = np.full(most, np.inf), np.zeros(most)
    for part, order, count in zip(parts, orders, counts):
        durations = part.durations_ns[order] / 1e9
        number[:count] += 1
        begin[:count] += (part.start_times_ns[order] - origin) / 1e9
        total[:count] += durations
        np.minimum(shortest[:count], durations, out=shortest[:count])
        np.maximum(longest[:count], durations, out=longest[:count])
    return {
        "call_index": np.arange(most), "time_seconds": begin / number, "mean_duration_seconds": total / number,
        "min_duration_seconds": shortest, "max_duration_seconds": longest, "num_ranks": number,
    }  # fmt: skip


def _thinned(series: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Time, mean, minimum and maximum, at most _POINTS of them."""
    columns = [series[name] for name in ("time_seconds", "mean_duration_seconds", "min_duration_seconds", "max_duration_seconds")]
    order = np.argsort(columns[0], kind="stable")
    time, mean, low, high = (column[order] for column in columns)
    if len(time) <= _POINTS:
        return time, mean, low, high
    part = (time - time[0]) / max(time[-1] - time[0], 1e-300) * (_POINTS - 1)
    first = np.flatnonzero(np.diff(part.astype(np.int64), prepend=-1))
    counts = np.diff(np.append(first, len(time)))
    averages = [np.add.reduceat(values, first) / counts for values in (time, mean)]
    return averages[0], averages[1], np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)


def _panel(run: Run, series: dict[str, dict[str, Any]], colors: dict[str, str], log_scale: bool, latest: float) -> tuple[Panel, int]:
    """The panel, and how many calls are drawn as averages."""
    longest = max((float(values["max_duration_seconds"].max()) for values in series.values()), default=0.0)
    factor, unit = time_unit(longest)
    time_factor, seconds = time_unit(latest)
    marks: list[Any] = []
    merged = 0
    for name, values in series.items():
        time, mean, low, high = _thinned(values)
        merged += len(values["time_seconds"]) if len(time) < len(values["time_seconds"]) else 0
        band = bool((high > low).any())
        marks.append(
            Lines(
                time * time_factor, mean * factor, colors[name], name, low * factor if band else None, high * factor if band else None,
                marker=len(time) <= 100,
            )  # fmt: skip
        )
    panel = Panel(
        title=f"Duration of calls over time in {run.title}",
        x_label=f"time from the first call [{seconds}]",
        y_label=f"duration of a call [{unit}]",
        x_limits=(-0.02 * latest * time_factor, 1.02 * latest * time_factor) if latest else None,
        marks=marks,
        y_log=log_scale,
        height=4.0 if run.lane is None else 2.6,
    )
    return panel, merged


def _table(series: list[tuple[Run, dict[str, dict[str, Any]]]], colors: dict[str, str]) -> Table:
    tracked = any(run.lane is not None for run, _ in series)
    parts = [
        {
            "file": np.full(len(values["call_index"]), run.label, object),
            "region": np.full(len(values["call_index"]), name, object),
            **values,
            **({"lane": np.full(len(values["call_index"]), run.lane or "", object)} if tracked else {}),
        }
        for run, lines in series
        for name, values in lines.items()
    ]
    return Table("timeseries", "points", {c: np.concatenate([part[c] for part in parts]) for c in parts[0]}, {"colors": colors})
