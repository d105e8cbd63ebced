"""Total durations by rank and region."""

from __future__ import annotations

from typing import Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Chart, Heat, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import HEAT
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs
from scope_profiler.plotting_scripts._table import Table

__all__ = ["plot_rank_heatmap"]

_NUMBERED = 400  # cells up to which each has its number written into it


def plot_rank_heatmap(
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
    exclusive: bool = False,
) -> Any:
    """Draw the total duration of each region on each rank as a colour; ``exclusive``: without the calls inside. A panel a run.

    Returns (figure, axes) if ``return_fig``, else None.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    column = "exclusive_duration" if exclusive else "total_duration"

    def make() -> Chart:
        runs = [run for run in chosen_runs(profiling_data, ranks, include, exclude) if run.regions]
        panels = [_panel(run, column, cmap or HEAT) for run in runs]
        rows = [
            (run.label, rank, region.name, float(getattr(region[rank], column)))
            for run in runs
            for region in run.regions
            for rank in region.ranks
        ]
        names = ("file", "rank", "region", f"{column}_seconds")
        table = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        most = max(len(run.regions) for run in runs)
        title = f"Regions by rank in {', '.join(run.label for run in runs)}"
        return Chart(title, panels, lambda: Table("rank_heatmap", "points", table), min(max(6.0, 3.0 + 0.8 * most), 24.0))

    return finish(make, options)


def _panel(run: Run, column: str, cmap: str) -> Panel:
    values: Any = np.full((len(run.ranks), len(run.regions)), np.nan)
    row_of = {rank: row for row, rank in enumerate(run.ranks)}
    for x, region in enumerate(run.regions):
        for rank in region.ranks:
            values[row_of[rank], x] = getattr(region[rank], column)
    factor, unit = time_unit(float(np.nanmax(values)))
    values *= factor
    texts = [[f"{value:.3g}" for value in row] for row in values.tolist()] if values.size <= _NUMBERED else None
    step = max(1, len(run.ranks) // 40)
    return Panel(
        title=f"{column.split('_')[0].capitalize()} duration by rank in {run.label}",
        y_label="rank",
        marks=[Heat(values, np.arange(len(run.regions) + 1, dtype=np.float64) - 0.5, f"{column.replace('_', ' ')} [{unit}]", cmap, texts)],
        x_ticks=[(x, region.name) for x, region in enumerate(run.regions)],
        y_ticks=[(row, str(rank)) for row, rank in enumerate(run.ranks) if row % step == 0],
        height=1.6 + min(0.3 * max(len(run.ranks), 3), 12.0),
    )
