"""A region's calls on all ranks."""

from __future__ import annotations

from scope_profiler import _core
from scope_profiler.call_statistics import M2, MEAN, TOTAL, CallStatistics
from scope_profiler.region_results import check_percentile, origin_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from scope_profiler.call_columns import FloatArray
    from scope_profiler.region_results import Region

    T = TypeVar("T")

__all__ = ["MPIRegion"]

_NS = 1_000_000_000


class MPIRegion(CallStatistics):
    """One region over the ranks of a run: a mapping from rank to :class:`~scope_profiler.region_results.Region`.

    Statistics are over the calls of all ranks. Indexing raises KeyError for a rank that has no calls of the region.
    """

    __slots__ = ("__weakref__", "_name", "_regions")

    #: Plots may colour regions; results do not.
    color: None = None

    def __init__(self, name: str, regions: Mapping[int, Region]) -> None:
        self._name = name
        self._regions: dict[int, Region] = dict(regions)

    @property
    def name(self) -> str:
        """The region's name."""
        return self._name

    @property
    def regions(self) -> dict[int, Region]:
        """The calls of each rank."""
        return self._regions

    @property
    def ranks(self) -> list[int]:
        """The ranks that have the region, ascending."""
        return sorted(self._regions)

    def __getitem__(self, rank: int) -> Region:
        try:
            return self._regions[rank]
        except KeyError:
            raise KeyError(f"region {self._name!r} has no calls on rank {rank}; it has on {self.ranks}") from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._regions)

    def __contains__(self, rank: object) -> bool:
        return rank in self._regions

    def __len__(self) -> int:
        return len(self._regions)

    # -- pools -----------------------------------------------------------------------------------------------------

    def _values(self) -> Iterable[Region]:
        return self._regions.values()

    def _called(self) -> list[Region]:
        return [region for region in self._regions.values() if region.num_calls]

    def _pool(self, get: Callable[[Region], FloatArray | None]) -> FloatArray | None:
        import numpy as np

        parts = [values for values in map(get, self._values()) if values is not None]
        return np.concatenate(parts) if parts else None

    def _pool_or_empty(self, get: Callable[[Region], FloatArray]) -> FloatArray:
        import numpy as np

        pooled = self._pool(get)
        return np.empty(0, np.float64) if pooled is None else pooled

    @property
    def durations(self) -> FloatArray:
        """The durations of all calls, rank by rank, s."""
        return self._pool_or_empty(lambda region: region.durations)

    @property
    def inclusive_durations(self) -> FloatArray:
        """Another name of ``durations``."""
        return self.durations

    @property
    def exclusive_durations(self) -> FloatArray:
        """The exclusive durations of all calls, rank by rank, s. Raises NestingError."""
        return self._pool_or_empty(lambda region: region.exclusive_durations)

    @property
    def gpu_durations(self) -> FloatArray | None:
        """The device times of all calls, rank by rank, s; None if no rank measured any."""
        return self._pool(lambda region: region.gpu_durations)

    @property
    def await_times(self) -> FloatArray | None:
        """What the calls spent awaiting, rank by rank, s; None if no rank recorded it."""
        return self._pool(lambda region: region.await_times)

    # -- statistics ------------------------------------------------------------------------------------------------

    def _sum(self, index: int) -> int:
        return sum(region._statistic(index) for region in self._called())

    @property
    def _exclusive_total_ns(self) -> int:
        return sum(region._exclusive_total_ns for region in self._values())

    @property
    def num_calls(self) -> int:
        """How many calls there were."""
        return sum(region.num_calls for region in self._values())

    @property
    def min_duration(self) -> float:
        """The shortest duration, s."""
        return min((region.min_duration for region in self._called()), default=0.0)

    @property
    def max_duration(self) -> float:
        """The longest duration, s."""
        return max((region.max_duration for region in self._called()), default=0.0)

    @property
    def std_duration(self) -> float:
        """The standard deviation of all durations (of the whole population), s."""
        count = self.num_calls
        if not count:
            return 0.0
        called = self._called()
        if any(region._aggregate is not None and "m2" not in region._aggregate for region in called):
            return 0.0
        mean = self._sum(TOTAL) / count
        # each rank's deviations are from its own mean; move them to the common one
        squares = sum(r._statistic(M2) + r.num_calls * (r._statistic(MEAN) - mean) ** 2 for r in called)
        return float((squares / count) ** 0.5 / _NS)

    @property
    def first_duration(self) -> float:
        """The duration of the first call of the rank that starts earliest, s."""
        first = min(self._called(), key=lambda region: region.first_start_time, default=None)
        return 0.0 if first is None else first.first_duration

    @property
    def last_duration(self) -> float:
        """The duration of the last call of the rank that ends latest, s."""
        last = max(self._called(), key=lambda region: region.last_end_time, default=None)
        return 0.0 if last is None else last.last_duration

    @property
    def total_await_duration(self) -> float | None:
        """The time that all calls spent awaiting, s; None if no rank recorded it."""
        totals = [total for region in self._values() if (total := region._await_total_ns()) is not None]
        return sum(totals) / _NS if totals else None

    @property
    def first_start_time(self) -> float:
        """When the earliest call began, s."""
        return min((region.first_start_time for region in self._called()), default=0.0)

    @property
    def last_end_time(self) -> float:
        """When the latest call ended, s."""
        return max((region.last_end_time for region in self._called()), default=0.0)

    def percentile_duration(self, percentile: float) -> float | None:
        """A percentile (0 to 100, interpolated linearly) of all durations, s; None if it is not known without single calls.

        Raises ValueError for a percentile outside of 0 to 100.
        """
        wanted = check_percentile(percentile)
        called = self._called()
        if not called:
            return 0.0
        if len(called) == 1:
            return called[0].percentile_duration(wanted)
        if any(not region._columns.count for region in called):
            return None
        chunks = [(r._columns.buffer("start_ns"), r._columns.buffer("end_ns")) for r in called]
        return _core.percentiles(chunks, [wanted])[0] / _NS

    # -- ranks against each other ----------------------------------------------------------------------------------

    def _each(self, get: Callable[[Region], T]) -> dict[int, T]:
        return {rank: get(region) for rank, region in self._regions.items()}

    def num_calls_per_rank(self) -> dict[int, int]:
        """The number of calls of each rank."""
        return self._each(lambda region: region.num_calls)

    def total_durations(self) -> dict[int, float]:
        """The total of each rank, s."""
        return self._each(lambda region: region.total_duration)

    def average_durations(self) -> dict[int, float]:
        """The mean of each rank, s."""
        return self._each(lambda region: region.average_duration)

    def min_durations(self) -> dict[int, float]:
        """The shortest duration of each rank, s."""
        return self._each(lambda region: region.min_duration)

    def max_durations(self) -> dict[int, float]:
        """The longest duration of each rank, s."""
        return self._each(lambda region: region.max_duration)

    @property
    def rank_imbalance(self) -> float:
        """The largest total of a rank over the mean of those that are not 0; 0.0 with fewer than two of them."""
        return imbalance(region._statistic(TOTAL) for region in self._called())

    @property
    def rank_imbalance_pct(self) -> float:
        """By how many percent the slowest rank exceeds the mean; 0.0 with fewer than two ranks."""
        ratio = self.rank_imbalance
        return (ratio - 1) * 100 if ratio else 0.0

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def has_timing(self) -> bool:
        """Whether any rank has a call."""
        return bool(self._called())

    @property
    def has_event_data(self) -> bool:
        """False if the profile was read without its single calls."""
        return all(region.has_event_data for region in self._values())

    @property
    def has_source(self) -> bool:
        """Whether any rank knows where the region is entered."""
        return any(region.has_source for region in self._values())

    @property
    def has_gpu_timing(self) -> bool:
        """Whether any rank measured device time."""
        return any(region.has_gpu_timing for region in self._values())

    def _first(self, get: Callable[[Region], T]) -> T | None:
        """What the lowest rank that says anything says."""
        return next((value for value in (get(self._regions[rank]) for rank in self.ranks) if value), None)

    @property
    def source_file(self) -> str | None:
        """The file in which the region is entered, by the lowest rank that knows it."""
        return self._first(lambda region: region.source_file)

    @property
    def source_lineno(self) -> int | None:
        """The line, by the lowest rank that knows it."""
        return self._first(lambda region: region.source_lineno)

    @property
    def source_text(self) -> str | None:
        """The code, by the lowest rank that has it."""
        return self._first(lambda region: region.source_text)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, by the lowest rank that has any."""
        return self._first(lambda region: region.tags) or ()

    # -- views -----------------------------------------------------------------------------------------------------

    def get_summary(self) -> dict[str, Any]:
        """The statistics by name. ``exclusive_duration`` is None where calls overlap without nesting."""
        return {"name": self._name, "num_ranks": len(self._regions), **self._summary()}

    def events(self, ranks: Iterable[int] | int | None = None, origin: float = 0.0) -> list[dict[str, Any]]:
        """One dict a call, rank by rank: ``name rank`` and what Region.events() gives. Ranks without the region are skipped.

        Raises EventDataUnavailableError if the profile was read without its calls.
        """
        return self._events(ranks, origin_ns(origin))

    def _chosen(self, ranks: Iterable[int] | int | None) -> list[int]:
        if ranks is None:
            return list(self._regions)
        wanted = [ranks] if isinstance(ranks, int) else ranks
        return [rank for rank in wanted if rank in self._regions]

    def _events(self, ranks: Iterable[int] | int | None, origin: int) -> list[dict[str, Any]]:
        rows = []
        for rank in self._chosen(ranks):
            region = self._regions[rank]
            if not region.has_event_data:
                region.events()  # raises
            rows += [{"name": self._name, "rank": rank, **event} for event in region._events(origin)]
        return rows

    def __repr__(self) -> str:
        return (
            f"<MPIRegion {self._name!r}: {self.num_calls} call(s) on {len(self)} rank(s), "
            f"{self.total_duration:.6g} s in all, {self.average_duration:.6g} s a call>"
        )


def imbalance(totals: Iterable[float]) -> float:
    """The largest of the totals that are not 0 over their mean; 0.0 with fewer than two of them."""
    positive = [total for total in totals if total > 0]
    if len(positive) < 2:
        return 0.0
    return max(positive) * len(positive) / sum(positive)
