"""Counters of Linux perf events by region, as a profile stores them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PerfEventTotals"]


class PerfEventTotals:
    """The counters of one region on one rank, summed over its calls.

    Attributes
    ----------
    calls
        How many calls were counted.
    values
        The count of each event by name.
    """

    __slots__ = ("calls", "values")
    __hash__ = None  # type: ignore[assignment]  # it compares by value and can be changed

    def __init__(self, calls: int, values: Mapping[str, int]) -> None:
        self.calls: int = calls
        self.values: dict[str, int] = dict(values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PerfEventTotals):
            return NotImplemented
        return (self.calls, self.values) == (other.calls, other.values)

    def __repr__(self) -> str:
        return f"PerfEventTotals(calls={self.calls!r}, values={self.values!r})"
