"""Floating-point rate against arithmetic intensity, from LIKWID counters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from scope_profiler.plotting_scripts._chart import Chart, Lines, Options, Panel, StrPath, finish
from scope_profiler.plotting_scripts._colors import named_colors
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, chosen_runs
from scope_profiler.plotting_scripts._table import Table
from scope_profiler.plotting_scripts.likwid import likwid_regions, values_of

__all__ = ["collect_roofline_points", "plot_roofline"]

_FLOPS = re.compile(r"\b([KMGT]?)FLOP/?s\b", re.IGNORECASE)
_BANDWIDTH = re.compile(r"(?=.*bandwidth).*\[\s*([KMGT]?)B(?:ytes?)?/s\s*\]", re.IGNORECASE)
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
_COLUMNS = (
    "file", "region", "rank", "performance_gflops", "bandwidth_gbs", "arithmetic_intensity_flops_per_byte", "runtime_seconds",
    "flops_metric", "bandwidth_metric",
)  # fmt: skip
_STEPS = 200


def _scale(metric: str, pattern: re.Pattern[str]) -> float:
    """What makes G of the metric's unit, by its name."""
    found = pattern.search(metric)
    return _SCALE[found[1].upper()] if found else 1e-3


def _find(names: list[str], pattern: re.Pattern[str], prefer: str) -> str | None:
    """The first metric that matches, those that begin with ``prefer`` before others."""
    matching = [name for name in names if pattern.search(name)]
    return next((name for name in matching if name.startswith(prefer)), matching[0] if matching else None)


def collect_roofline_points(
    profiling_data: Data,
    *,
    flops_metric: str | None = None,
    bandwidth_metric: str | None = None,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
) -> list[dict[str, Any]]:
    """One dict for each marker region and rank that has both metrics: ``file region rank performance_gflops bandwidth_gbs
    arithmetic_intensity_flops_per_byte runtime_seconds flops_metric bandwidth_metric``.

    Rates are summed over the threads; the time is that of the slowest. The unit of a metric is the one in its name (``[MFLOP/s]``,
    ``[MBytes/s]``). Without names, the metrics are found by these units.
    """
    points = []
    for run in chosen_runs(profiling_data, ranks, include, exclude):
        for rank, tag, counters in likwid_regions(run, ranks, include, exclude):
            flops = flops_metric or _find(list(counters.metric_names), _FLOPS, "DP")
            bandwidth = bandwidth_metric or _find(list(counters.metric_names), _BANDWIDTH, "Memory bandwidth")
            if flops is None or bandwidth is None:
                continue
            rates, transfers = values_of(counters, flops), values_of(counters, bandwidth)
            if rates is None or transfers is None:
                continue
            performance = float(np.nansum(rates)) * _scale(flops, _FLOPS)
            bytes_ = float(np.nansum(transfers)) * _scale(bandwidth, _BANDWIDTH)
            if not (0 < performance < np.inf and 0 < bytes_ < np.inf):
                continue
            runtime = float(np.max(counters.times)) if len(counters.times) else 0.0
            points.append(
                dict(zip(_COLUMNS, (run.label, tag, rank, performance, bytes_, performance / bytes_, runtime, flops, bandwidth)))
            )
    return points


def plot_roofline(
    profiling_data: Data,
    *,
    flops_metric: str | None = None,
    bandwidth_metric: str | None = None,
    peak_flops: float | None = None,
    peak_bandwidth: float | None = None,
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
) -> dict[str, Any]:
    """Draw collect_roofline_points() below the roof that ``peak_flops`` (GFLOP/s) and ``peak_bandwidth`` (GB/s) make.

    Without these the largest measured values are the roof. Returns ``{"points", "colors", "file_ranks", "peak_flops_gflops",
    "peak_bandwidth_gbs", "empirical_ceilings", "roofline"}``. Raises ValueError if there is no point.
    """
    options = Options(filepath, show, verbose, data_filepath, data_format, backend)
    for name, peak in (("peak_flops", peak_flops), ("peak_bandwidth", peak_bandwidth)):
        if peak is not None and not 0 < peak < float("inf"):
            raise ValueError(f"{name} is above 0, not {peak}")
    points = collect_roofline_points(
        profiling_data, flops_metric=flops_metric, bandwidth_metric=bandwidth_metric, ranks=ranks, include=include, exclude=exclude
    )
    if not points:
        raise ValueError("no LIKWID marker has both a FLOP rate and a memory bandwidth")
    flops = peak_flops or max(point["performance_gflops"] for point in points)
    bandwidth = peak_bandwidth or max(point["bandwidth_gbs"] for point in points)
    intensities = [point["arithmetic_intensity_flops_per_byte"] for point in points]
    ridge = flops / bandwidth
    x = np.geomspace(min(*intensities, ridge) / 2, max(*intensities, ridge) * 2, _STEPS)
    roof = np.minimum(x * bandwidth, flops)
    runs = chosen_runs(profiling_data, ranks, include, exclude)
    colors = named_colors([run.label for run in runs], cmap)
    result = {
        "points": points,
        "colors": colors,
        "file_ranks": {run.label: run.results.num_ranks for run in runs},
        "peak_flops_gflops": flops,
        "peak_bandwidth_gbs": bandwidth,
        "empirical_ceilings": peak_flops is None or peak_bandwidth is None,
        "roofline": [
            {"arithmetic_intensity_flops_per_byte": a, "performance_gflops": b} for a, b in zip(x.tolist(), roof.tolist())
        ],
    }
    finish(lambda: _chart(result, x, roof), options)
    return result


def _chart(result: dict[str, Any], x: Any, roof: Any) -> Chart:
    points, colors = result["points"], result["colors"]
    kind = "highest measured" if result["empirical_ceilings"] else "peak"
    text = f"{kind}: {result['peak_flops_gflops']:.4g} GFLOP/s, {result['peak_bandwidth_gbs']:.4g} GB/s"
    marks: list[Any] = [Lines(x, roof, "#555555", text)]
    for label, color in colors.items():
        mine = [point for point in points if point["file"] == label]
        marks.append(
            Lines(
                [point["arithmetic_intensity_flops_per_byte"] for point in mine],
                [point["performance_gflops"] for point in mine],
                color, label, marker=True, line=False,
            )  # fmt: skip
        )
    panel = Panel(
        title=f"Roofline of {', '.join(colors)}",
        x_label="arithmetic intensity [FLOP/byte]",
        y_label="GFLOP/s",
        marks=marks,
        x_log=True,
        y_log=True,
        height=4.8,
    )
    columns = {name: [point[name] for point in points] for name in _COLUMNS}
    extra = {key: value for key, value in result.items() if key != "points"}
    return Chart(f"Roofline of {len(points)} points", [panel], lambda: Table("roofline", "points", columns, extra), 9.0)
