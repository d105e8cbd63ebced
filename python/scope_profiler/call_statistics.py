"""What the calls of a region on one rank, and those on all ranks, tell in the same way."""

from __future__ import annotations

from scope_profiler import _core
from scope_profiler.errors import EventDataUnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CallStatistics", "exclusive_or_none"]

_NS = 1_000_000_000

# The places of the statistics of a row, ns but for the last two.
TOTAL, MINIMUM, MAXIMUM, FIRST, LAST, START_MINIMUM, END_MAXIMUM, GPU_COUNT, GPU_TOTAL, MEAN, M2 = range(11)


class CallStatistics:
    """Sums and what follows from them. A subclass says what the sums are, and the rest that differs."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def num_calls(self) -> int: ...
        @property
        def has_gpu_timing(self) -> bool: ...
        @property
        def min_duration(self) -> float: ...
        @property
        def max_duration(self) -> float: ...
        @property
        def first_duration(self) -> float: ...
        @property
        def last_duration(self) -> float: ...
        @property
        def std_duration(self) -> float: ...
        @property
        def _exclusive_total_ns(self) -> int: ...
        def percentile_duration(self, percentile: float) -> float | None: ...
        def _sum(self, index: int) -> Any:
            """The sum of one of the statistics above; 0 without calls."""

    @property
    def total_duration(self) -> float:
        """The sum of all durations, s. A recursive region counts every level; the printed table has the outermost ones."""
        return float(self._sum(TOTAL) / _NS)

    @property
    def inclusive_duration(self) -> float:
        """Another name of ``total_duration``."""
        return self.total_duration

    @property
    def exclusive_duration(self) -> float:
        """The sum of all exclusive durations, s. Raises NestingError."""
        return self._exclusive_total_ns / _NS

    @property
    def total_exclusive_duration(self) -> float:
        """Another name of ``exclusive_duration``."""
        return self.exclusive_duration

    @property
    def average_duration(self) -> float:
        """The mean duration, s."""
        count = self.num_calls
        return float(self._sum(TOTAL) / (count * _NS)) if count else 0.0

    @property
    def p50_duration(self) -> float | None:
        """The median duration, s."""
        return self.percentile_duration(50)

    @property
    def p95_duration(self) -> float | None:
        """The 95th percentile of the durations, s."""
        return self.percentile_duration(95)

    @property
    def p99_duration(self) -> float | None:
        """The 99th percentile of the durations, s."""
        return self.percentile_duration(99)

    @property
    def gpu_total_duration(self) -> float | None:
        """The device time of all calls of which it was measured, s."""
        return float(self._sum(GPU_TOTAL) / _NS) if self.has_gpu_timing else None

    @property
    def gpu_average_duration(self) -> float | None:
        """The mean device time of the calls of which it was measured, s."""
        return float(self._sum(GPU_TOTAL) / (self._sum(GPU_COUNT) * _NS)) if self.has_gpu_timing else None

    def _summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "num_calls": self.num_calls,
            "total_duration": self.total_duration,
            "inclusive_duration": self.inclusive_duration,
            "exclusive_duration": exclusive_or_none(self),
            "average_duration": self.average_duration,
            "min_duration": self.min_duration,
            "max_duration": self.max_duration,
            "first_duration": self.first_duration,
            "last_duration": self.last_duration,
            "std_duration": self.std_duration,
        }
        if self.has_gpu_timing:
            summary["gpu_total_duration"] = self.gpu_total_duration
            summary["gpu_average_duration"] = self.gpu_average_duration
        return summary


def exclusive_or_none(region: CallStatistics) -> float | None:
    """``region.exclusive_duration``, or None where it cannot be known."""
    try:
        return region.exclusive_duration
    except (_core.NestingError, EventDataUnavailableError):
        return None
