"""Counters of Linux perf events by region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scope_profiler.plotting_scripts._chart import Bars, Chart, Options, Panel, StrPath, finish
from scope_profiler.plotting_scripts._colors import named_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.results import name_filter

__all__ = ["available_perf_event_metrics", "plot_perf_events"]


def _ratio(above: str, below: str, scale: float = 1.0) -> Callable[[Mapping[str, int]], float | None]:
    def value(counts: Mapping[str, int]) -> float | None:
        return scale * counts[above] / counts[below] if counts.get(below) and above in counts else None

    return value


#: Metrics that follow from two counters; every counter is a metric itself.
_DERIVED = {
    "ipc": _ratio("instructions", "cycles"),
    "cache-misses-per-ki": _ratio("cache-misses", "instructions", 1000.0),
    "cache-miss-rate": _ratio("cache-misses", "cache-references"),
    "branch-miss-rate": _ratio("branch-misses", "branches"),
}


def _value(counts: Mapping[str, int], metric: str) -> float | None:
    if metric in _DERIVED:
        return _DERIVED[metric](counts)
    return float(counts[metric]) if metric in counts else None


def available_perf_event_metrics(profiling_data: Data) -> list[str]:
    """The metrics that can be plotted: those that follow from two counters first, then the counters by name."""
    counters = [totals.values for run in chosen_runs(profiling_data) for _, _, totals in _totals(run, None, None, None)]
    derived = [name for name in _DERIVED if any(_value(counts, name) is not None for counts in counters)]
    return derived + sorted({name for counts in counters for name in counts})


def _totals(run: Run, ranks: Ranks, include: Patterns, exclude: Patterns) -> list[tuple[int, str, Any]]:
    wanted = None if ranks is None else {ranks} if isinstance(ranks, int) else set(ranks)
    chosen = name_filter(include, exclude)
    found = []
    for rank in range(max(run.results.num_ranks, 1)):
        if wanted is None or rank in wanted:
            found += [(rank, name, totals) for name, totals in run.results.get_perf_events(rank).items() if chosen(name)]
    return found


def plot_perf_events(
    profiling_data: Data,
    metric: str = "ipc",
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    backend: str = "matplotlib",
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    return_fig: bool = False,
) -> Any:
    """Draw one of available_perf_event_metrics() for each region: a bar for each run and rank.

    Raises ValueError if no profile has the metric. Returns (figure, axes) if ``return_fig``, else None.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, labels)
        known = available_perf_event_metrics(profiling_data)
        if not known:
            raise ValueError("no profile has perf events: record with perf_events=[...]")
        if metric not in known:
            raise ValueError(f"no metric {metric!r}; there are {', '.join(known)}")
        rows = []
        for run in runs:
            for rank, name, totals in _totals(run, ranks, include, exclude):
                value = _value(totals.values, metric)
                if value is not None:
                    series = f"rank {rank}" if len(runs) == 1 else f"{run.label}, rank {rank}"
                    rows.append((series, name, value))
        if not rows:
            raise ValueError(f"no chosen region has {metric!r}")
        return bars_by_region("perf_events", metric, rows, runs, cmap)

    return finish(make, options)


def bars_by_region(
    plot: str, metric: str, rows: Sequence[tuple[str, str, float]], runs: Sequence[Run], cmap: str | None, log_scale: bool = False
) -> Chart:
    """A bar for each (series, region, value)."""
    series = list(dict.fromkeys(row[0] for row in rows))
    regions = list(dict.fromkeys(row[1] for row in rows))
    colors = named_colors(series, cmap)
    width = 0.8 / len(series)
    marks: list[Any] = []
    for n, one in enumerate(series):
        mine = [row for row in rows if row[0] == one]
        places = [regions.index(row[1]) + (n + 0.5) * width - 0.4 for row in mine]
        marks.append(Bars(places, [row[2] for row in mine], width, colors[one], one))
    labels = ", ".join(run.label for run in runs)
    panel = Panel(
        title=f"{metric} by region in {labels}",
        y_label=metric,
        marks=marks,
        x_ticks=list(enumerate(regions)),
        x_limits=(-0.6, len(regions) - 0.4),
        y_log=log_scale,
        height=4.2,
    )
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("series", "region", "value"))}
    return Chart(f"{metric} of {labels}", [panel], lambda: Table(plot, "bars", columns, {"metric": metric, "colors": colors}), 9.0)
