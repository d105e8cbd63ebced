"""Counters of Linux perf events by region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scope_profiler.plotting_scripts._chart import Chart, Options, StrPath, finish
from scope_profiler.plotting_scripts._counters import bars_by_region, chosen_counters
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, chosen_runs

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
    runs = chosen_runs(profiling_data)
    counters = [totals.values for run in runs for regions in run.results.get_perf_events().values() for totals in regions.values()]
    derived = [name for name in _DERIVED if any(_value(counts, name) is not None for counts in counters)]
    return derived + sorted({name for counts in counters for name in counts})


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
        return bars_by_region(
            "perf_events",
            metric,
            known,
            runs,
            lambda run: chosen_counters(run.results.get_perf_events(), ranks, include, exclude),
            lambda totals: _value(totals.values, metric),
            cmap,
        )

    return finish(make, options)
