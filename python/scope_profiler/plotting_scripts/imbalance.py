"""The ranks of a run against each other, region by region."""

from __future__ import annotations

from typing import Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Bars, Chart, Lines, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import named_colors, region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.plotting_scripts.durations import METRICS, metric_of

__all__ = ["plot_imbalance"]

_METRICS = ("avg", "min", "max", "total")
_BARS = 16  # ranks up to which each has a bar; more of them become points


def plot_imbalance(
    profiling_data: Data,
    metric: str = "total",
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
    """Draw a statistic ("avg", "min", "max" or "total") of each region for each rank, with the mean of the ranks as a line.

    A panel a run. Returns (figure, axes) if ``return_fig``, else None.
    """
    if metric not in _METRICS:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(_METRICS)}")
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        runs = [run for run in chosen_runs(profiling_data, ranks, include, exclude) if run.regions]
        panels = [_panel(run, metric, cmap, log_scale) for run in runs]
        rows = [row for run in runs for row in _rows(run, metric)]
        names = ("file", "region", "rank", "value_seconds", "mean_over_ranks_seconds")
        table = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        extra = {"metric": metric, "colors": region_colors(runs, cmap)}
        title = f"Ranks of {', '.join(run.label for run in runs)} ({metric})"
        return Chart(title, panels, lambda: Table("imbalance", "points", table, extra), 9.0)

    return finish(make, options)


def _rows(run: Run, metric: str) -> list[tuple[str, str, int, float, float]]:
    rows = []
    for region in run.regions:
        values = {rank: metric_of(region[rank], metric) for rank in region.ranks}
        mean = sum(values.values()) / len(values)
        rows += [(run.label, region.name, rank, value, mean) for rank, value in values.items()]
    return rows


def _panel(run: Run, metric: str, cmap: str | None, log_scale: bool) -> Panel:
    rows = _rows(run, metric)
    factor, unit = time_unit(max((row[3] for row in rows), default=0.0))
    place = {region.name: x for x, region in enumerate(run.regions)}
    marks: list[Any] = []
    if len(run.ranks) <= _BARS:
        width = 0.8 / len(run.ranks)
        colors = named_colors([f"rank {rank}" for rank in run.ranks], cmap)
        for n, rank in enumerate(run.ranks):
            mine = [row for row in rows if row[2] == rank]
            x = [place[row[1]] + (n + 0.5) * width - 0.4 for row in mine]
            marks.append(Bars(x, [row[3] * factor for row in mine], width, colors[f"rank {rank}"], f"rank {rank}"))
    else:
        spread = {rank: (n + 0.5) / len(run.ranks) * 0.8 - 0.4 for n, rank in enumerate(run.ranks)}
        x = [place[row[1]] + spread[row[2]] for row in rows]
        marks.append(Lines(np.array(x), np.array([row[3] * factor for row in rows]), "#0072B2", "a rank", marker=True, line=False))
    for n, region in enumerate(run.regions):
        mean = next(row[4] for row in rows if row[1] == region.name) * factor
        marks.append(Lines([n - 0.45, n + 0.45], [mean, mean], "#000000", "mean of the ranks" if n == 0 else "", dashed=True))
    words = METRICS[metric][1]
    return Panel(
        title=f"Ranks of {run.label}",
        y_label=f"{words} [{unit}]",
        marks=marks,
        x_ticks=[(x, name) for name, x in place.items()],
        y_log=log_scale,
        height=4.0,
    )
