"""Statistics of regions as JSON has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scope_profiler.plotting_scripts._files import write_text
from scope_profiler.plotting_scripts._inputs import Data, Patterns, Ranks, chosen_runs

if TYPE_CHECKING:
    from scope_profiler.mpi_region import MPIRegion
    from scope_profiler.plotting_scripts._chart import StrPath
    from scope_profiler.region_results import Region

__all__ = ["collect_region_statistics", "write_region_statistics_json"]

_NAMES = ("average_duration", "min_duration", "max_duration", "first_duration", "last_duration", "std_duration", "total_duration")


def collect_region_statistics(
    profiling_data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The statistics of every chosen region of every run, over its ranks and of each of them. Durations in s.

    ``{"units", "filters", "common_regions", "files": [{"label", "file_path", "num_ranks", "total_time_seconds",
    "region_statistics": {name: {"count", "average_duration_seconds", ..., "per_rank": {"0": {...}}}}}]}``
    """
    runs = chosen_runs(profiling_data, ranks, include, exclude, labels)
    common = [region.name for region in runs[0].regions] if runs else []
    for run in runs[1:]:
        names = {region.name for region in run.regions}
        common = [name for name in common if name in names]
    wanted = [ranks] if isinstance(ranks, int) else None if ranks is None else list(ranks)
    return {
        "units": {"durations": "seconds"},
        "filters": {"include": include, "exclude": exclude, "ranks": wanted},
        "common_regions": common,
        "files": [
            {
                "label": run.label,
                "file_path": str(run.results.file_path),
                "num_ranks": run.results.num_ranks,
                "total_time_seconds": run.results.total_time,
                "region_statistics": {region.name: _statistics(region) for region in run.regions},
            }
            for run in runs
        ],
    }


def _statistics(region: MPIRegion) -> dict[str, Any]:
    return {**_values(region), "per_rank": {str(rank): _values(region[rank]) for rank in region.ranks}}


def _values(region: MPIRegion | Region) -> dict[str, Any]:
    return {"count": region.num_calls, **{f"{name}_seconds": getattr(region, name) for name in _NAMES}}


def write_region_statistics_json(
    profiling_data: Data,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Write what collect_region_statistics() returns to a JSON file, and return it."""
    statistics = collect_region_statistics(profiling_data, ranks, include, exclude, labels)
    write_text(filepath, json.dumps(statistics, indent=2) + "\n")
    return statistics
