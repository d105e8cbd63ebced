"""The class of a region's calls under the name it has always had here."""

from __future__ import annotations

from scope_profiler.region_results import Region

__all__ = ["Region"]
