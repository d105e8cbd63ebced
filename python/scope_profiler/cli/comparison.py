"""Two profiles, region by region: what `diff` prints and `check` judges."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scope_profiler.cli.arguments import load_profile, merge_ranks, select
from scope_profiler.cli.terminal import Column, Output, count_of, printable, shown_name, table

if TYPE_CHECKING:
    from scope_profiler.results import MPIRegion, ProfilingResults

__all__ = ["METRICS", "Change", "compare", "compare_files", "name_of", "print_changes", "statistic", "unmeasured"]

METRICS = ("total", "avg", "min", "max", "p50", "p95", "p99", "imbalance", "calls", "gpu_total", "gpu_avg")

_ATTRIBUTES = {
    "total": "total_duration",
    "avg": "average_duration",
    "min": "min_duration",
    "max": "max_duration",
    "first": "first_duration",
    "last": "last_duration",
    "std": "std_duration",
    "p50": "p50_duration",
    "p95": "p95_duration",
    "p99": "p99_duration",
    "imbalance": "rank_imbalance_pct",
    "calls": "num_calls",
}


def statistic(region: MPIRegion, metric: str) -> float | None:
    """One number of a region over its ranks: seconds, percent for the imbalance, a count for calls; None if not recorded."""
    if metric in ("gpu_total", "gpu_avg"):
        return _gpu(region, metric)
    value: Any = getattr(region, _ATTRIBUTES[metric])
    return None if value is None else float(value)


def _gpu(region: MPIRegion, metric: str) -> float | None:
    totals = [part.gpu_total_duration for part in region.regions.values()]
    known = [float(total) for total in totals if total is not None]
    if not known:
        return None
    total = sum(known)
    calls = sum(
        int(part.num_calls) for part, gpu in zip(region.regions.values(), totals, strict=True) if gpu is not None
    )
    return total if metric == "gpu_total" else total / max(calls, 1)


@dataclass(frozen=True)
class Change:
    """One region in both profiles. A side without the region has no value, and is not ``in_a`` or ``in_b``; a side that has the
    region but not the metric has no value either."""

    name: str
    in_a: bool
    in_b: bool
    a: float | None
    b: float | None

    @property
    def delta(self) -> float:
        """b - a; a missing side counts as 0."""
        return (self.b or 0.0) - (self.a or 0.0)

    @property
    def percent(self) -> float | None:
        """The change in percent of a: infinite when a is 0 and b is not, None where there is no a to compare with."""
        if self.a is None or (self.b is None and self.in_b):
            return None
        if self.a == 0.0:
            return 0.0 if not self.delta else float("inf")
        return 100.0 * self.delta / self.a

    @property
    def unmeasured(self) -> bool:
        """Whether a profile has the region but not the metric, so that nothing can be said."""
        return (self.in_a and self.a is None) or (self.in_b and self.b is None)


def compare(regions_a: Sequence[MPIRegion], regions_b: Sequence[MPIRegion], metric: str) -> list[Change]:
    """Every region of either profile, in order of appearance."""
    a = {region.name: region for region in regions_a}
    b = {region.name: region for region in regions_b}
    return [
        Change(
            name,
            name in a,
            name in b,
            statistic(a[name], metric) if name in a else None,
            statistic(b[name], metric) if name in b else None,
        )
        for name in dict.fromkeys((*a, *b))
    ]


def compare_files(arguments: argparse.Namespace) -> tuple[ProfilingResults, ProfilingResults, list[Change]]:
    """The two profiles of the command line, and their chosen regions."""
    a, b = load_profile(arguments.file_a), load_profile(arguments.file_b)
    ranks = merge_ranks(arguments.ranks)
    of_a, of_b = (select(one, arguments.include, arguments.exclude, ranks) for one in (a, b))
    return a, b, compare(of_a, of_b, arguments.metric)


def unmeasured(changes: Iterable[Change]) -> list[str]:
    """Names of the regions whose metric is missing on a side that has them."""
    return [change.name for change in changes if change.unmeasured]


def name_of(results: ProfilingResults) -> str:
    """A profile in one line: label, file, ranks."""
    path = str(results.file_path)
    name = f"{results.label} - {path}" if results.label else path
    return printable(f"{name} ({count_of(int(results.num_ranks), 'rank')})")


def _unit(metric: str) -> str:
    return {"calls": "calls", "imbalance": "imbalance [%]"}.get(metric, f"{metric} [s]")


def _number(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if metric == "calls" else f"{value:.6g}"


def _percent(change: Change) -> str:
    percent = change.percent
    if percent is None or percent == float("inf"):
        return "-"
    return f"{percent:+.4g}%"


def ordered(changes: Iterable[Change], sort: str) -> list[Change]:
    """Changes by falling |delta| ("delta") or |percent| ("pct", what has none last), or by "name"."""
    if sort == "name":
        return sorted(changes, key=lambda change: change.name)
    if sort == "pct":
        return sorted(changes, key=lambda change: -1.0 if change.percent is None else abs(change.percent), reverse=True)
    return sorted(changes, key=lambda change: abs(change.delta), reverse=True)


def print_changes(changes: Sequence[Change], metric: str, output: Output) -> None:
    """The table of changes, and which regions only one profile has."""
    if not changes:
        output.lines(["  (no regions to compare)", ""])
        return
    columns = [
        Column("region", flexible=True),
        Column(f"{_unit(metric)} (a)", number=True),
        Column(f"{_unit(metric)} (b)", number=True),
        Column("delta", number=True),
        Column("delta [%]", number=True),
    ]
    sign = "+.0f" if metric == "calls" else "+.6g"
    rows = [
        [
            shown_name(change.name),
            _number(change.a, metric),
            _number(change.b, metric),
            "-" if change.unmeasured else format(change.delta, sign),
            _percent(change),
        ]
        for change in changes
    ]
    output.lines(table(columns, rows, output.width))
    for side, names in (
        ("a", [change.name for change in changes if not change.in_b]),
        ("b", [change.name for change in changes if not change.in_a]),
    ):
        if names:
            output.line(f"  Only in {side}: {', '.join(map(shown_name, names))}")
    output.line()


def as_values(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes as JSON has them; a percentage that is not finite is None."""
    return [
        {
            "name": change.name,
            "a": change.a,
            "b": change.b,
            "delta": None if change.unmeasured else change.delta,
            "percent": None if change.percent in (None, float("inf")) else change.percent,
        }
        for change in changes
    ]
