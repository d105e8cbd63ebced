"""Hardware counters of LIKWID by region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Chart, Options, StrPath, finish
from scope_profiler.plotting_scripts._counters import bars_by_region, chosen_counters
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs

if TYPE_CHECKING:
    from scope_profiler.likwid_data import LikwidRegionResult

__all__ = ["available_likwid_metrics", "plot_likwid"]


def likwid_regions(
    run: Run, ranks: Ranks, include: Patterns, exclude: Patterns
) -> Iterator[tuple[int, str, LikwidRegionResult]]:
    """(rank, tag, counters) of the chosen markers."""
    return chosen_counters(run.results.get_likwid_regions(), ranks, include, exclude)


def available_likwid_metrics(profiling_data: Data) -> list[str]:
    """The metrics and events that any marker has, in the order they are stored: metrics first."""
    counters = [one for run in chosen_runs(profiling_data) for _, _, one in likwid_regions(run, None, None, None)]
    metrics = [name for one in counters for name in one.metric_names]
    return list(dict.fromkeys([*metrics, *(name for one in counters for name in one.event_labels)]))


def values_of(counters: LikwidRegionResult, metric: str) -> Any:
    """The values of a metric or event, one a thread; None if it was not measured."""
    for names, values in ((counters.metric_names, counters.metrics), (counters.event_labels, counters.events)):
        if metric in names and len(values) > list(names).index(metric):
            return np.asarray(values[list(names).index(metric)], np.float64)
    return None


def _mean(values: Any) -> float | None:
    """Over the threads that have a value."""
    finite = [] if values is None else values[np.isfinite(values)]
    return float(np.mean(finite)) if len(finite) else None


def plot_likwid(
    profiling_data: Data,
    metric: str,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
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
    """Draw one of available_likwid_metrics() for each marker region, averaged over its threads: a bar for each run and rank.

    Raises ValueError if no profile has the metric. Returns (figure, axes) if ``return_fig``, else None.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, labels)
        known = available_likwid_metrics(profiling_data)
        if not known:
            raise ValueError("no profile has LIKWID counters: record with use_likwid=True")
        return bars_by_region(
            "likwid",
            metric,
            known,
            runs,
            lambda run: likwid_regions(run, ranks, include, exclude),
            lambda counters: _mean(values_of(counters, metric)),
            cmap,
            log_scale,
        )

    return finish(make, options)
