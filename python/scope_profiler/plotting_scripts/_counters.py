"""Bars of hardware counters by region, of whichever library counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from scope_profiler.plotting_scripts._chart import Bars, Chart, Panel
from scope_profiler.plotting_scripts._colors import named_colors
from scope_profiler.plotting_scripts._inputs import Patterns, Ranks, Run
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.results import name_filter

__all__ = ["bars_by_region", "chosen_counters"]

T = TypeVar("T")


def chosen_counters(
    by_rank: Mapping[int, Mapping[str, T]], ranks: Ranks, include: Patterns, exclude: Patterns
) -> Iterator[tuple[int, str, T]]:
    """(rank, name, counters) of the chosen regions."""
    wanted = None if ranks is None else {ranks} if isinstance(ranks, int) else set(ranks)
    chosen = name_filter(include, exclude)
    for rank in sorted(by_rank):
        if wanted is None or rank in wanted:
            for name, counters in by_rank[rank].items():
                if chosen(name):
                    yield rank, name, counters


def bars_by_region(
    plot: str,
    metric: str,
    known: Sequence[str],
    runs: Sequence[Run],
    counters_of: Callable[[Run], Iterator[tuple[int, str, T]]],
    value_of: Callable[[T], float | None],
    cmap: str | None,
    log_scale: bool = False,
) -> Chart:
    """A bar for each run, rank and region that has a value. Raises ValueError if the metric is not known, or none has."""
    if metric not in known:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(known)}")
    rows: list[tuple[str, str, float]] = []
    for run in runs:
        for rank, name, counters in counters_of(run):
            value = value_of(counters)
            if value is not None:
                series = f"rank {rank}" if len(runs) == 1 else f"{run.label}, rank {rank}"
                rows.append((series, name, value))
    if not rows:
        raise ValueError(f"no chosen region has {metric!r}")
    return _chart(plot, metric, rows, runs, cmap, log_scale)


def _chart(
    plot: str, metric: str, rows: Sequence[tuple[str, str, float]], runs: Sequence[Run], cmap: str | None, log_scale: bool
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
