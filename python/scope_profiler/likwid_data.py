"""Hardware counters of LIKWID markers, as a profile stores them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy as np

__all__ = ["LikwidRegionResult"]


class LikwidRegionResult:
    """What LIKWID counted in one marker region of one rank, for every thread of it.

    Attributes
    ----------
    tag, group_id, group_name, source
        The marker's name, the event group that was measured, and how it was obtained.
    cpus
        The hardware thread of each thread.
    times, call_counts
        Seconds and entries, one value a thread.
    event_names, counter_names, events
        The raw counts; ``events`` has shape (events, threads).
    metric_names, metrics
        The derived metrics; ``metrics`` has shape (metrics, threads).
    """

    __slots__ = (
        "call_counts",
        "counter_names",
        "cpus",
        "event_names",
        "events",
        "group_id",
        "group_name",
        "metric_names",
        "metrics",
        "source",
        "tag",
        "times",
    )
    __hash__ = None  # type: ignore[assignment]  # it holds arrays, and compares by value

    def __init__(
        self,
        tag: str,
        group_id: int = -1,
        group_name: str = "",
        cpus: Sequence[int] | None = None,
        times: np.ndarray | None = None,
        call_counts: np.ndarray | None = None,
        event_names: Sequence[str] | None = None,
        counter_names: Sequence[str] | None = None,
        events: np.ndarray | None = None,
        metric_names: Sequence[str] | None = None,
        metrics: np.ndarray | None = None,
        source: str = "full_api",
    ) -> None:
        import numpy as np

        def array(values: Any, dtype: Any, dimensions: int) -> np.ndarray:
            return np.empty((0,) * dimensions, dtype) if values is None else np.asarray(values)

        self.tag = tag
        self.group_id = group_id
        self.group_name = group_name
        self.cpus: list[int] = [] if cpus is None else list(cpus)
        self.times: np.ndarray = array(times, np.float64, 1)
        self.call_counts: np.ndarray = array(call_counts, np.int64, 1)
        self.event_names: list[str] = [] if event_names is None else list(event_names)
        self.counter_names: list[str] = [] if counter_names is None else list(counter_names)
        self.events: np.ndarray = array(events, np.float64, 2)
        self.metric_names: list[str] = [] if metric_names is None else list(metric_names)
        self.metrics: np.ndarray = array(metrics, np.float64, 2)
        self.source = source

    @property
    def event_labels(self) -> list[str]:
        """The event names, with the counter behind those that occur more than once."""
        from collections import Counter

        times = Counter(self.event_names)
        counters = [*self.counter_names, *[""] * len(self.event_names)]
        return [f"{name}:{counter}" if times[name] > 1 else name for name, counter in zip(self.event_names, counters)]

    def as_dict(self) -> dict[str, Any]:
        """All attributes and ``event_labels`` by name."""
        return {
            "tag": self.tag,
            "group_id": self.group_id,
            "group_name": self.group_name,
            "cpus": self.cpus,
            "times": self.times,
            "call_counts": self.call_counts,
            "event_names": self.event_names,
            "counter_names": self.counter_names,
            "event_labels": self.event_labels,
            "events": self.events,
            "metric_names": self.metric_names,
            "metrics": self.metrics,
            "source": self.source,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LikwidRegionResult):
            return NotImplemented
        import numpy as np

        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    def __repr__(self) -> str:
        return (
            f"<LikwidRegionResult {self.tag!r}: group {self.group_name or self.group_id}, {len(self.cpus)} thread(s), "
            f"{len(self.event_names)} event(s), {len(self.metric_names)} metric(s)>"
        )


def table_rows(rank: int, regions: Mapping[str, LikwidRegionResult]) -> list[dict[str, Any]]:
    """One mapping per region and thread: ``rank region thread cpu group time call_count``, then the events and metrics."""
    rows = []
    for region in regions.values():
        for thread in range(len(region.times)):
            row: dict[str, Any] = {
                "rank": rank,
                "region": region.tag,
                "thread": thread,
                "cpu": int(region.cpus[thread]) if thread < len(region.cpus) else -1,
                "group": region.group_name,
                "time": float(region.times[thread]),
                "call_count": int(region.call_counts[thread]) if thread < len(region.call_counts) else 0,
            }
            row.update((name, float(values[thread])) for name, values in zip(region.event_labels, region.events))
            row.update((name, float(values[thread])) for name, values in zip(region.metric_names, region.metrics))
            rows.append(row)
    return rows
