"""Several runs of one program: how regions change with the number of ranks, or of anything else that the metadata count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scope_profiler.plotting_scripts._chart import Chart, Lines, Options, Panel, StrPath, finish
from scope_profiler.plotting_scripts._colors import region_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, Run, chosen_runs
from scope_profiler.plotting_scripts._table import Table

__all__ = ["plot_scaling_efficiency", "plot_speedup", "plot_weak_scaling", "plot_weak_scaling_efficiency"]

_FIELDS = {
    "num_ranks": "MPI ranks",
    "num_nodes": "nodes",
    "omp_num_threads": "OpenMP threads",
    "total_cores": "cores",
}
_SAME = 1e-6  # relative difference of work per rank that is none


class _Kind:
    """A plot over runs: ``value(base, duration, growth)`` from the average durations of a region's calls in the smallest run and in this
    one, and how many times larger this one is; ``ideal(growth)``."""

    def __init__(
        self, plot: str, column: str, title: str, value: Callable[[float, float, float], float], ideal: Callable[[float], float]
    ) -> None:
        self.plot = plot
        self.column = column
        self.title = title
        self.value = value
        self.ideal = ideal


_SPEEDUP = _Kind("speedup", "speedup", "Speedup", lambda base, now, growth: base / now, lambda growth: growth)
_WEAK = _Kind("weak_scaling", "normalized_runtime", "Normalized runtime", lambda base, now, growth: now / base, lambda growth: 1.0)
_WEAK_EFFICIENCY = _Kind(
    "weak_scaling_efficiency", "efficiency", "Weak-scaling efficiency", lambda base, now, growth: base / now, lambda growth: 1.0
)
_EFFICIENCY = _Kind(
    "scaling_efficiency", "efficiency", "Scaling efficiency", lambda base, now, growth: base / now / growth, lambda growth: 1.0
)


def plot_speedup(
    profiling_data: Data,
    x_field: str = "num_ranks",
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
) -> Any:
    """Draw how many times faster the calls of each region are than in the run of the smallest ``x_field``.

    ``x_field`` is "num_ranks" or a number of the metadata ("num_nodes", "omp_num_threads", "total_cores", ...). The durations
    compared are averages of a region's calls. Returns (figure, axes) if ``return_fig``, else None. Raises ValueError for fewer
    than two runs, or a field that a run does not have.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    return finish(lambda: _chart(_SPEEDUP, chosen_runs(profiling_data, ranks, include, exclude), x_field, cmap), options)


def plot_weak_scaling(
    profiling_data: Data,
    x_field: str = "num_ranks",
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
) -> Any:
    """Draw the durations of each region as multiples of those in the smallest run. Takes and returns what plot_speedup() does."""
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    return finish(lambda: _chart(_WEAK, chosen_runs(profiling_data, ranks, include, exclude), x_field, cmap), options)


def plot_weak_scaling_efficiency(
    profiling_data: Data,
    x_field: str = "num_ranks",
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    work_per_rank: Sequence[float] | None = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
) -> Any:
    """Draw the duration in the smallest run over that in each run: 1 where more ranks do more work in the same time.

    ``work_per_rank``, one number a run, must be the same for all of them, else ValueError: then it is no weak scaling. Takes and
    returns what plot_speedup() does otherwise.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        runs = chosen_runs(profiling_data, ranks, include, exclude)
        if work_per_rank is not None:
            _check_work(work_per_rank, len(runs))
        return _chart(_WEAK_EFFICIENCY, runs, x_field, cmap)

    return finish(make, options)


def plot_scaling_efficiency(
    profiling_data: Data,
    x_field: str = "num_ranks",
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
) -> Any:
    """Draw the speedup over the ideal one: 1 where twice the ranks take half the time. Takes and returns what plot_speedup() does."""
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)
    return finish(lambda: _chart(_EFFICIENCY, chosen_runs(profiling_data, ranks, include, exclude), x_field, cmap), options)


def _check_work(work: Sequence[float], count: int) -> None:
    if len(work) != count:
        raise ValueError(f"work_per_rank has {len(work)} numbers for {count} runs")
    if any(value <= 0 for value in work) or max(work) - min(work) > _SAME * max(work):
        raise ValueError(f"weak scaling needs the same work per rank in every run, not {list(work)}: plot_scaling_efficiency() is for one size")


def _x_of(run: Run, field: str) -> float:
    if field == "num_ranks":
        return run.results.num_ranks
    if field == "total_cores" and field not in run.results.metadata:
        return run.results.num_ranks * _x_of(run, "omp_num_threads")
    if field not in run.results.metadata:
        known = ", ".join(["num_ranks", *sorted(run.results.metadata)])
        raise ValueError(f"{run.label} has no {field!r} in its metadata; it has {known}")
    value = run.results.metadata[field]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"{field!r} of {run.label} is {value!r}, not a number above 0")
    return int(number) if number == int(number) else number


def _chart(kind: _Kind, runs: list[Run], field: str, cmap: str | None) -> Chart:
    if len(runs) < 2:
        raise ValueError(f"{kind.plot.replace('_', ' ')} compares runs: it needs two profiles at least")
    placed = sorted(((_x_of(run, field), run) for run in runs), key=lambda pair: pair[0])
    base = placed[0][0]
    colors = region_colors([run for _, run in placed], cmap)
    lines = {name: values for name in _names(placed) if len(values := _values(kind, placed, name))}
    if not lines:
        raise ValueError("no region has calls in two of the runs")
    x = sorted({place for place, _ in placed})
    marks: list[Any] = [Lines(x, [kind.ideal(place / base) for place in x], "#777777", "ideal", dashed=True)]
    for name, values in lines.items():
        marks.append(Lines([place for place, _ in values], [value for _, value in values], colors[name], name, marker=True))
    label = _FIELDS.get(field, field)
    panel = Panel(
        title=f"{kind.title} against {label} = {base}",
        x_label=label,
        y_label=kind.title.lower(),
        marks=marks,
        x_ticks=[(place, str(place)) for place in x],
        height=4.5,
    )
    rows = [(name, place, value) for name, values in lines.items() for place, value in values]
    table = {column: [row[n] for row in rows] for n, column in enumerate(("region", field, kind.column))}
    extra = {
        "colors": {name: colors[name] for name in lines},
        "options": {"x_field": field, "x_label": label, "baseline": base},
    }
    title = f"{kind.title} over {label} of {', '.join(run.label for _, run in placed)}"
    return Chart(title, [panel], lambda: Table(kind.plot, "points", table, extra), 8.0)


def _names(placed: Sequence[tuple[float, Run]]) -> list[str]:
    return list(dict.fromkeys(region.name for _, run in placed for region in run.regions))


def _values(kind: _Kind, placed: Sequence[tuple[float, Run]], name: str) -> list[tuple[float, float]]:
    """(x, value) in every run that has the region. None if the smallest run does not, or if no other does."""
    found = []
    for x, run in placed:
        average = next((region.average_duration for region in run.regions if region.name == name), 0.0)
        if average > 0:
            found.append((x, average))
    if len(found) < 2 or found[0][0] != placed[0][0]:
        return []
    base_x, base = found[0]
    return [(x, kind.value(base, average, x / base_x)) for x, average in found]
