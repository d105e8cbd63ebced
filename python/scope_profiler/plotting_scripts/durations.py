"""Statistics of regions as bars, one group a region, one bar a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scope_profiler.mpi_region import MPIRegion
from scope_profiler.plotting_scripts._chart import Bars, Chart, Options, Panel, StrPath, finish, time_unit
from scope_profiler.plotting_scripts._colors import named_colors, region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, by_thread, calls_of, chosen_runs, sums_by
from scope_profiler.plotting_scripts._table import Table

if TYPE_CHECKING:
    from scope_profiler.plotting_scripts._inputs import Run

__all__ = ["METRICS", "metric_of", "plot_durations"]

#: Metric -> (attribute of a region, its words).
METRICS = {
    "avg": ("average_duration", "average duration of a call"),
    "min": ("min_duration", "shortest call"),
    "max": ("max_duration", "longest call"),
    "total": ("total_duration", "total duration"),
    "first": ("first_duration", "first call"),
    "last": ("last_duration", "last call"),
}

_THREADS = 12  # that have bars of their own
_GROUP = 0.8  # of the distance between groups that bars take
_OWN = ""  # the segment of a region's own time


def metric_of(region: Any, metric: str) -> float:
    """One of METRICS of a region, s. Raises ValueError for another one."""
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(METRICS)}")
    return float(getattr(region, METRICS[metric][0]))


def plot_durations(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
    metric: str = "total",
    metrics: Sequence[str] | None = None,
    sort_by: str | None = None,
    top_n: int | None = None,
    combine_regions: Mapping[str, list[str] | str] | None = None,
    stack_children: bool = False,
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
    """Draw a bar for the duration of each region in each run.

    A single run that tracked threads has a bar for each thread with the tasks on it, unless bars are stacked.

    Parameters
    ----------
    labels
        Names of the runs, instead of their own.
    metric, metrics
        One of METRICS, or several, each of which becomes a picture of its own: ``NAME_METRIC.png``.
    sort_by
        Order of the regions: a metric (largest first) or "name"; else by their first call.
    top_n
        Only so many regions.
    combine_regions
        Name -> regular expressions for the beginning of region names: these regions become one bar of that name.
    stack_children
        Split each bar into the region's own time and that of each region called from it ("total" and "avg" only).

    Returns
    -------
    list or tuple
        The paths that were written, or with ``return_fig`` the figure with its axes (a list of these for several metrics).
    """
    wanted = [metric] if metrics is None else list(metrics)
    for name in (*wanted, *([] if sort_by in (None, "name") else [sort_by])):
        if name not in METRICS:
            raise ValueError(f"no metric {name!r}; there are {', '.join(METRICS)}")
    if not wanted:
        raise ValueError("metrics is empty")
    if stack_children and not {"total", "avg"}.issuperset(wanted):
        raise ValueError("stack_children splits totals and averages only")
    if top_n is not None and top_n < 1:
        raise ValueError(f"top_n is 1 or more, not {top_n}")
    paths = [_metric_path(filepath, name if len(wanted) > 1 else None) for name in wanted]
    options = [Options(path, show, verbose, None, data_format, backend, return_fig) for path in paths]
    options[-1] = Options(paths[-1], show, verbose, data_filepath, data_format, backend, return_fig)
    runs = chosen_runs(profiling_data, ranks, include, exclude, labels, events="a stacked plot" if stack_children else None)
    if not runs:
        return []
    others = 0
    if len(runs) == 1 and not stack_children:
        runs, others = by_thread(runs[0], _THREADS)
    bars = _Durations(runs, combine_regions or {}, sort_by or None, top_n, stack_children, others)
    drawn = [finish(lambda name=name: bars.chart(name, wanted, log_scale, cmap), one) for name, one in zip(wanted, options)]  # type: ignore[misc]
    if return_fig:
        return drawn if len(drawn) > 1 else drawn[0]
    return [str(path) for path in paths if path is not None]


def _metric_path(path: StrPath | None, metric: str | None) -> StrPath | None:
    if path is None or metric is None:
        return path
    whole = Path(path)
    return whole.with_name(f"{whole.stem}_{metric}{whole.suffix}")


@dataclass
class _Group:
    """One or several regions of a run under one name."""

    name: str
    region: MPIRegion
    members: frozenset[str]


def _grouped(run: Run, combine: Mapping[str, list[str] | str]) -> list[_Group]:
    groups: dict[str, list[MPIRegion]] = {}
    patterns = {name: [p] if isinstance(p, str) else list(p) for name, p in combine.items()}
    for region in run.regions:
        name = next((n for n, ps in patterns.items() if any(re.match(p, region.name) for p in ps)), region.name)
        groups.setdefault(name, []).append(region)
    made = []
    for name, regions in groups.items():
        parts = [region[rank] for region in regions for rank in region.ranks]
        whole = regions[0] if len(regions) == 1 else MPIRegion(name, dict(enumerate(parts)))
        made.append(_Group(name, whole, frozenset(region.name for region in regions)))
    return made


class _Durations:
    """The bars of all metrics: groups by name, in order, for each run."""

    def __init__(
        self, runs: list[Run], combine: Mapping[str, list[str] | str], sort_by: str | None, top_n: int | None, stacked: bool, others: int
    ) -> None:
        self.runs = runs
        self.others = others  # threads that have no bars
        self.groups = [{group.name: group for group in _grouped(run, combine)} for run in runs]
        names = list(dict.fromkeys(name for groups in self.groups for name in groups))
        if sort_by == "name":
            names.sort()
        elif sort_by is not None:
            names.sort(key=lambda name: -max(metric_of(g[name].region, sort_by) for g in self.groups if name in g))
        self.names = names if top_n is None else names[:top_n]
        self.left_out = len(names) - len(self.names)
        self.segments = [_segments(run, groups) for run, groups in zip(runs, self.groups)] if stacked else None

    def value(self, number: int, name: str, metric: str) -> float | None:
        """The height of a bar, s."""
        group = self.groups[number].get(name)
        return None if group is None else metric_of(group.region, metric)

    def parts(self, number: int, name: str, metric: str) -> dict[str, float]:
        """Segment -> s of a stacked bar, the region's own time first."""
        assert self.segments is not None
        group = self.groups[number].get(name)
        if group is None:
            return {}
        divisor = 1e9 * (group.region.num_calls if metric == "avg" else 1)
        return {segment: ns / divisor for segment, ns in self.segments[number].get(name, {}).items()}

    def chart(self, metric: str, metrics: Sequence[str], log_scale: bool, cmap: str | None) -> Chart:
        labels = _series_names(self.runs)
        files = list(dict.fromkeys(run.label for run in self.runs))
        colors = named_colors(labels, cmap)
        width = _GROUP / len(self.runs)
        heights = [[self.value(n, name, metric) or 0.0 for name in self.names] for n in range(len(self.runs))]
        factor, unit = time_unit(max(map(max, heights)))
        places = [[x + (n + 0.5) * width - _GROUP / 2 for x in range(len(self.names))] for n in range(len(self.runs))]
        if self.segments is not None:
            marks = self._stacks(metric, places, width, factor, region_colors(self.runs, cmap))
        else:
            marks = [
                Bars(places[n], [value * factor for value in heights[n]], width, colors[label], label if len(labels) > 1 else "")
                for n, label in enumerate(labels)
            ]
        words = METRICS[metric][1]
        panel = Panel(
            title=f"{words[0].upper()}{words[1:]} of regions" + (f" in {files[0]}" if len(files) == 1 else ""),
            y_label=f"{words} [{unit}]",
            marks=list(marks),
            x_ticks=list(enumerate(self.names)),
            x_limits=(-0.6, len(self.names) - 0.4),
            y_log=log_scale,
            height=4.2,
        )
        notes = [f"{self.left_out} more regions are not shown"] if self.left_out else []
        if self.others:
            notes.append(f"{self.others} more threads, with less time in regions, are not shown")
        if self.segments is not None and len(labels) > 1:
            notes.append(f"bars of a region from left to right: {', '.join(labels)}")
        size = min(max(7.0, 2.0 + 0.35 * len(self.names) * max(len(labels), 2)), 24.0)
        return Chart(f"Durations of regions ({metric}) in {', '.join(files)}", [panel], lambda: self._table(metrics, colors), size, notes)

    def _stacks(
        self, metric: str, places: list[list[float]], width: float, factor: float, colors: Mapping[str, str]
    ) -> Iterable[Bars]:
        whole = [[self.parts(n, name, metric) for name in self.names] for n in range(len(self.runs))]
        segments = list(dict.fromkeys(s for bars in whole for bar in bars for s in bar))
        known = {**colors, **named_colors([s for s in segments if s not in colors]), _OWN: "#777777"}
        for n, bars in enumerate(whole):
            below = [0.0] * len(bars)
            for segment in segments:
                heights = [bar.get(segment, 0.0) * factor for bar in bars]
                text = "own time" if segment == _OWN else segment
                yield Bars(places[n], heights, width, known[segment], text if n == 0 else "", list(below))
                below = [low + height for low, height in zip(below, heights)]

    def _table(self, metrics: Sequence[str], colors: Mapping[str, str]) -> Table:
        extra = {"colors": dict(colors), "metrics": list(metrics), "options": {"stack_children": self.segments is not None}}
        rows: list[tuple[Any, ...]] = []
        columns = ["file", "region", "metric", "value_seconds"]
        for metric in metrics:
            for n, run in enumerate(self.runs):
                for name in self.names:
                    if self.segments is None:
                        value = self.value(n, name, metric)
                        rows += [] if value is None else [(run.label, name, metric, value, run.lane)]
                    else:
                        parts = self.parts(n, name, metric)
                        rows += [(run.label, name, metric, "self" if s == _OWN else s, v) for s, v in parts.items()]
        if self.segments is not None:
            columns.insert(3, "segment")
        elif any(run.lane is not None for run in self.runs):
            columns.append("lane")
        return Table("durations", "bars", {c: [row[i] for row in rows] for i, c in enumerate(columns)}, extra)


def _series_names(runs: Sequence[Run]) -> list[str]:
    """The names of the bars of a region: those of the runs, or of the threads of one. Threads of one name get numbers."""
    names: list[str] = []
    for run in runs:
        name = base = run.label if run.lane is None else run.lane
        number = 1
        while name in names:
            number += 1
            name = f"{base} ({number})"
        names.append(name)
    return names


def _segments(run: Run, groups: Mapping[str, _Group]) -> dict[str, dict[str, int]]:
    """Group -> segment -> ns over the ranks: what is the group's own, and what each group called from it took."""
    names = list(groups)
    found: dict[str, dict[str, int]] = {name: {_OWN: 0} for name in names}
    for rank in run.ranks:
        calls = calls_of(run, rank)
        number = {member: place for place, name in enumerate(names) for member in groups[name].members}
        group = np.array([number[name] if name in number else -1 for name in calls.names], np.int64)[calls.name]
        spent = calls.end_ns - calls.start_ns
        inner = calls.parent >= 0
        pairs, inverse = np.unique(group[calls.parent[inner]] * len(names) + group[inner], return_inverse=True)
        sums = sums_by(inverse, spent[inner], len(pairs))
        own = sums_by(group, spent, len(names))
        for pair, ns in zip(pairs.tolist(), sums):
            outer, child = names[pair // len(names)], names[pair % len(names)]
            found[outer][child] = found[outer].get(child, 0) + ns
            own[pair // len(names)] -= ns
        for place, name in enumerate(names):
            found[name][_OWN] += own[place]
    return found
