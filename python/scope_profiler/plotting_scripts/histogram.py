"""How the durations of a region's calls are spread."""

from __future__ import annotations

from typing import Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Chart, Lines, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, chosen_runs
from scope_profiler.plotting_scripts._table import Table

__all__ = ["plot_duration_histogram"]


def plot_duration_histogram(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    bins: int = 30,
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
    """Draw the number of calls of each region by their duration, in ``bins`` equal parts of the range of all durations of a run.

    ``log_scale``: the axis of the counts is logarithmic. A panel a run. Returns (figure, axes) if ``return_fig``, else None.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    if bins < 1:
        raise ValueError(f"bins is 1 or more, not {bins}")

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude, events="a histogram")
        colors = region_colors(runs, cmap)
        columns: dict[str, list[Any]] = {
            name: [] for name in ("file", "region", "bin_low_seconds", "bin_high_seconds", "bin_center_seconds", "count")
        }
        panels = []
        for run in runs:
            durations = {region.name: region.durations for region in run.regions}
            if not durations:
                continue
            edges = _edges(durations, bins)
            factor, unit = time_unit(float(edges[-1]))
            marks: list[Any] = []
            for name, values in durations.items():
                counts = np.histogram(values, edges)[0]
                marks.append(Lines(edges * factor, np.append(counts, counts[-1]), colors[name], name, step=True))
                columns["file"] += [run.label] * bins
                columns["region"] += [name] * bins
                columns["bin_low_seconds"] += edges[:-1].tolist()
                columns["bin_high_seconds"] += edges[1:].tolist()
                columns["bin_center_seconds"] += ((edges[:-1] + edges[1:]) / 2).tolist()
                columns["count"] += counts.tolist()
            panels.append(
                Panel(
                    title=f"Durations of calls in {run.title}",
                    x_label=f"duration of a call [{unit}]",
                    y_label="calls",
                    marks=marks,
                    y_log=log_scale,
                    height=4.0,
                )
            )
        shown = {name: colors[name] for name in columns["region"]}
        title = f"Histogram of durations in {', '.join(run.label for run in runs)}"
        return Chart(title, panels, lambda: Table("histogram", "bins", columns, {"colors": shown}), 9.0)

    return finish(make, options)


def _edges(durations: dict[str, Any], bins: int) -> Any:
    low = min(float(values.min()) for values in durations.values())
    high = max(float(values.max()) for values in durations.values())
    return np.linspace(low, high if high > low else low + 1e-9, bins + 1)
