"""Counters of the kernel by region: what the extension counted (src/core/counters.c), made totals."""

from __future__ import annotations

from .modes import Mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ._core import Run
    from .perf_events import PerfEventTotals

    Counted = dict[str, tuple[int, list[tuple[int, int, int]]]]

__all__ = ["PerfCounting"]


class PerfCounting(Mode):
    """Perf events: totals of each region."""

    needs_columns = True

    def __init__(self, events: Sequence[str]) -> None:
        self._events = tuple(events)
        self._run: Run | None = None
        self._confirmed: Counted = {}
        self._collected: Counted = {}
        self._uncounted = self._told_uncounted = 0
        self._told: set[str] = set()

    def opened(self, run: Run) -> None:
        """The run is open, and counts."""
        self._run = run

    def group(self) -> dict[str, Any] | None:
        """The totals of what no file has yet, as a group."""
        from .auxiliary import group_of

        totals = self._totals()
        return group_of([], totals, {}) if totals else None

    def _totals(self) -> dict[str, PerfEventTotals]:
        from .perf_events import PerfEventTotals

        assert self._run is not None
        counted = self._run.counters()
        assert counted is not None
        self._collected, self._uncounted = counted
        totals = {}
        for region, (calls, readings) in self._collected.items():
            calls_before, before = self._confirmed.get(region, (0, [(0, 0, 0)] * len(readings)))
            if calls > calls_before:
                grown = [tuple(new - old for new, old in zip(*pair, strict=True)) for pair in zip(readings, before, strict=True)]
                totals[region] = PerfEventTotals(calls - calls_before, dict(zip(self._events, map(_scaled, grown), strict=True)))
        return totals

    def confirm(self) -> None:
        """The next file has what is counted from here on."""
        self._confirmed = self._collected

    def end(self) -> None:
        """The run is over: every thread's counters are closed."""
        if self._run is not None:
            self._run.end_counters()

    def problems(self) -> list[str]:
        """Events that were counted for a part of the time only, and calls that were not counted."""
        problems = []
        for index, event in enumerate(self._events):
            enabled = sum(readings[index][1] for _, readings in self._collected.values())
            running = sum(readings[index][2] for _, readings in self._collected.values())
            if running < enabled and event not in self._told:
                self._told.add(event)
                problems.append(_partly(event, running / enabled))
        if self._uncounted > self._told_uncounted:
            calls = self._uncounted - self._told_uncounted
            self._told_uncounted = self._uncounted
            problems.append(f"perf_events: {calls} call{'' if calls == 1 else 's'} could not be counted (too many open files?)")
        return problems


def _scaled(reading: tuple[int, ...]) -> int:
    """The value that a counter would have had that was on all the time."""
    value, enabled, running = reading
    if running >= enabled:
        return value
    return (value * enabled + running // 2) // running if running else 0


def _partly(event: str, share: float) -> str:
    if share == 0:
        return f"perf_events: the kernel had no counter free for {event}, which stayed at 0; ask for fewer events"
    return (
        f"perf_events: {event} was counted {share:.0%} of the time, because the kernel shares its counters among the events; "
        "its totals are scaled up"
    )
