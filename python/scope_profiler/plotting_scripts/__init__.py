"""Plots of profiles, one module a kind. Everything is imported when it is first used.

Every function takes one profile or several, draws with ``backend`` ("matplotlib", "plotly" or "plotext", each an optional
dependency), writes the picture to ``filepath`` and the numbers behind it to ``data_filepath`` (``data_format``: "csv", "json" or
"parquet"), and gives the figure back when ``return_fig`` is true.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scope_profiler.plotting_scripts.callgraph import callgraph_dot, plot_callgraph
    from scope_profiler.plotting_scripts.duration_timeseries import plot_duration_timeseries
    from scope_profiler.plotting_scripts.durations import plot_durations
    from scope_profiler.plotting_scripts.flame import plot_flame, plot_flame_chart, plot_flame_graph
    from scope_profiler.plotting_scripts.gantt import plot_gantt
    from scope_profiler.plotting_scripts.heatmap import plot_rank_heatmap
    from scope_profiler.plotting_scripts.histogram import plot_duration_histogram
    from scope_profiler.plotting_scripts.imbalance import plot_imbalance
    from scope_profiler.plotting_scripts.likwid import available_likwid_metrics, plot_likwid
    from scope_profiler.plotting_scripts.perf_events import available_perf_event_metrics, plot_perf_events
    from scope_profiler.plotting_scripts.roofline import collect_roofline_points, plot_roofline
    from scope_profiler.plotting_scripts.scaling import (
        plot_scaling_efficiency,
        plot_speedup,
        plot_weak_scaling,
        plot_weak_scaling_efficiency,
    )
    from scope_profiler.plotting_scripts.statistics import collect_region_statistics, write_region_statistics_json
    from scope_profiler.plotting_scripts.timeline import plot_timeline_density

__all__ = [
    "available_likwid_metrics",
    "available_perf_event_metrics",
    "callgraph_dot",
    "collect_region_statistics",
    "collect_roofline_points",
    "plot_callgraph",
    "plot_duration_histogram",
    "plot_duration_timeseries",
    "plot_durations",
    "plot_flame",
    "plot_flame_chart",
    "plot_flame_graph",
    "plot_gantt",
    "plot_imbalance",
    "plot_likwid",
    "plot_perf_events",
    "plot_rank_heatmap",
    "plot_roofline",
    "plot_scaling_efficiency",
    "plot_speedup",
    "plot_timeline_density",
    "plot_weak_scaling",
    "plot_weak_scaling_efficiency",
    "write_region_statistics_json",
]

_HOMES = {
    "available_likwid_metrics": "likwid",
    "available_perf_event_metrics": "perf_events",
    "callgraph_dot": "callgraph",
    "collect_region_statistics": "statistics",
    "collect_roofline_points": "roofline",
    "plot_callgraph": "callgraph",
    "plot_duration_histogram": "histogram",
    "plot_duration_timeseries": "duration_timeseries",
    "plot_durations": "durations",
    "plot_flame": "flame",
    "plot_flame_chart": "flame",
    "plot_flame_graph": "flame",
    "plot_gantt": "gantt",
    "plot_imbalance": "imbalance",
    "plot_likwid": "likwid",
    "plot_perf_events": "perf_events",
    "plot_rank_heatmap": "heatmap",
    "plot_roofline": "roofline",
    "plot_scaling_efficiency": "scaling",
    "plot_speedup": "scaling",
    "plot_timeline_density": "timeline",
    "plot_weak_scaling": "scaling",
    "plot_weak_scaling_efficiency": "scaling",
    "write_region_statistics_json": "statistics",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
