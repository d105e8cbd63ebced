"""A region's calls on one rank, as read back or collected."""

from __future__ import annotations

from scope_profiler import _core
from scope_profiler.call_columns import COLUMN_NAMES, ArrayColumns, FixedExclusive, PartExclusive
from scope_profiler.call_statistics import (
    END_MAXIMUM,
    FIRST,
    GPU_COUNT,
    LAST,
    M2,
    MAXIMUM,
    MEAN,
    MINIMUM,
    START_MINIMUM,
    TOTAL,
    CallStatistics,
)
from scope_profiler.errors import EventDataUnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from scope_profiler.call_columns import CallColumns, Exclusive, FloatArray, IntArray

    # total, minimum, maximum, first, last, start_minimum, end_maximum, gpu_count, gpu_total (ns), mean, m2
    Statistics = tuple[int, int, int, int, int, int, int, int, int, float, float]

__all__ = ["Region"]

_NS = 1_000_000_000

_STATISTICS_NAMES = (
    "total",
    "minimum",
    "maximum",
    "first",
    "last",
    "start_minimum",
    "end_maximum",
    "gpu_count",
    "gpu_total",
    "mean",
    "m2",
)
_NOTHING: Statistics = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
_STORED_PERCENTILES = (50.0, 95.0, 99.0)


def origin_ns(origin: float) -> int:
    """An origin given in seconds, to the nearest ns."""
    return round(origin * _NS)


def _exact_sum(values: IntArray) -> int:
    """The sum of int64 values, also where it does not fit into one."""
    if len(values) and int(abs(values).max()) > (2**63 - 1) // len(values):
        return sum(values.tolist())
    return int(values.sum())


def _compute_statistics(columns: CallColumns) -> Statistics:
    count = columns.count
    if count == 0:
        return _NOTHING
    starts, ends, gpu = (columns.array(name) for name in ("start_ns", "end_ns", "gpu_ns"))
    assert starts is not None and ends is not None
    durations = ends - starts
    total = _exact_sum(durations)
    mean = total / count
    measured = None if gpu is None else gpu[gpu >= 0]
    return (
        total,
        int(durations.min()),
        int(durations.max()),
        int(durations[0]),
        int(durations[-1]),
        int(starts.min()),
        int(ends.max()),
        0 if measured is None else len(measured),
        0 if measured is None else _exact_sum(measured),
        mean,
        float(((durations - mean) ** 2).sum()),
    )


def _statistics_of_aggregate(aggregate: Mapping[str, Any]) -> Statistics:
    count, total = int(aggregate["count"]), int(aggregate["total"])
    values: list[Any] = [int(aggregate.get(name, 0)) for name in _STATISTICS_NAMES[:MEAN]]
    values += [float(aggregate.get("mean", total / count if count else 0.0)), float(aggregate.get("m2", 0.0))]
    return tuple(values)


def check_percentile(percentile: float) -> float:
    """``percentile`` as a float. Raises ValueError unless it is from 0 to 100, TypeError if it is no number."""
    if not 0 <= percentile <= 100:
        raise ValueError(f"a percentile is a number from 0 to 100, not {percentile!r}")
    return float(percentile)


class Region(CallStatistics):
    """All calls of one region on one rank, in the order they were recorded.

    Parameters
    ----------
    start_times, end_times
        int64 ns, one value a call.
    gpu_durations, await_times
        int64 ns, one value a call, or None if not recorded. -1: not measured.
    call_ids, parent_ids
        Numbers of the calls and of the calls around them; -1: none.
    thread_ids, task_ids
        Numbers of the thread and task each call ran on (see :mod:`scope_profiler.concurrency`).
    event_metadata
        One mapping a call.
    source_file, source_lineno, source_text, tags
        Where the region is entered, that code, and the region's tags.
    aggregate
        ``count total minimum maximum exclusive`` (ns) of calls that were not kept one by one; further statistics by the names of
        :attr:`stored_summary`.
    event_data_available
        False for a profile that was read without its calls.

    Raises
    ------
    ValueError
        A column does not have one value a call.

    Notes
    -----
    Times ending in ``_ns`` are int64 ns, other times float seconds; arrays have one value a call and may be read-only views of
    the profile. ``start_times`` and ``end_times`` are on the clock of ``time.perf_counter()``.

    Exclusive times (without the calls inside) follow from all regions of the rank: a region that belongs to a
    :class:`~scope_profiler.results.ProfilingResults` has them, one that stands alone reports its durations. Where calls overlap
    without nesting they raise :class:`~scope_profiler.NestingError`, unless threads were tracked: then a call's exclusive
    time ends where the overlapping call begins.
    """

    __slots__ = (
        "__weakref__",
        "_aggregate",
        "_columns",
        "_count",
        "_event_data_available",
        "_exclusive",
        "_exclusive_total",
        "_metadata",
        "_percentiles",
        "_source_file",
        "_source_lineno",
        "_source_text",
        "_statistics",
        "_tags",
    )

    _columns: CallColumns
    _count: int
    _statistics: Statistics | None  # None: not computed yet
    _percentiles: tuple[float, float, float] | None
    _aggregate: dict[str, Any] | None
    _exclusive: Exclusive | None
    _exclusive_total: int | None
    _metadata: tuple[dict[str, Any], ...] | str | Callable[[], str | None] | None  # str: JSON not parsed yet; a call: not read yet
    _event_data_available: bool
    _source_file: str | None
    _source_lineno: int | None
    _source_text: str | None
    _tags: tuple[str, ...]

    def __init__(
        self,
        start_times: ArrayLike,
        end_times: ArrayLike,
        gpu_durations: ArrayLike | None = None,
        call_ids: ArrayLike | None = None,
        parent_ids: ArrayLike | None = None,
        thread_ids: ArrayLike | None = None,
        task_ids: ArrayLike | None = None,
        await_times: ArrayLike | None = None,
        event_metadata: Sequence[Mapping[str, Any]] | None = None,
        source_file: str | None = None,
        source_lineno: int | None = None,
        source_text: str | None = None,
        tags: Iterable[str] = (),
        aggregate: Mapping[str, Any] | None = None,
        event_data_available: bool = True,
    ) -> None:
        columns = (start_times, end_times, call_ids, parent_ids, thread_ids, task_ids, await_times, gpu_durations)
        self._columns = ArrayColumns(dict(zip(COLUMN_NAMES, columns)))
        count = self._columns.count
        if event_metadata is not None and len(event_metadata) not in (0, count):
            raise ValueError(f"there is event metadata of {len(event_metadata)} calls, but there are {count} calls")
        self._metadata = tuple(map(dict, event_metadata)) if event_metadata else None
        self._aggregate = None if aggregate is None else dict(aggregate)
        self._count = count
        self._statistics = None
        self._exclusive_total = None
        if self._aggregate is not None:
            self._count = int(self._aggregate.get("count", count))
            self._statistics = _statistics_of_aggregate(self._aggregate)
            if self._aggregate.get("exclusive", -1) >= 0:
                self._exclusive_total = int(self._aggregate["exclusive"])
        self._percentiles = None
        self._exclusive = None
        self._event_data_available = bool(event_data_available)
        self._source_file = source_file
        self._source_lineno = source_lineno
        self._source_text = source_text
        self._tags = tuple(tags)

    @classmethod
    def _of_row(
        cls,
        row: tuple[Any, ...],
        columns: CallColumns,
        exclusive: Exclusive | None,
        summary_only: bool,
        late_metadata: Callable[[], str | None] | None = None,
    ) -> Region:
        """A region over a row of a profile (the tuple that ``_core.Profile.row`` gives).

        ``late_metadata`` gives the metadata of its calls when they are not read yet.
        """
        self = cls.__new__(cls)
        statistics, aggregate, percentiles = row[10:13]
        self._columns = columns
        self._count = row[3]
        self._statistics = statistics
        self._percentiles = percentiles
        self._exclusive = exclusive
        self._exclusive_total = row[9] if row[9] >= 0 else None
        self._aggregate = None
        if aggregate is not None:
            self._aggregate = {} if statistics is None else dict(zip(_STATISTICS_NAMES, statistics))
            self._aggregate.update(zip(("count", "total", "minimum", "maximum", "exclusive"), aggregate))
            self._statistics = _statistics_of_aggregate(self._aggregate)
            self._count = aggregate[0]
            self._exclusive_total = aggregate[4] if aggregate[4] >= 0 else None
        elif summary_only and statistics is not None:
            self._aggregate = {"count": row[3], **dict(zip(_STATISTICS_NAMES, statistics)), "exclusive": row[9]}
        self._metadata = late_metadata or row[8]
        self._event_data_available = not summary_only
        self._source_file = row[4]
        self._source_lineno = row[5] if row[5] >= 0 else None
        self._source_text = row[6]
        self._tags = row[7]
        return self

    def _copy(self) -> Region:
        """Another region over the same data."""
        other = Region.__new__(Region)
        for name in self.__slots__[1:]:
            setattr(other, name, getattr(self, name))
        return other

    def _bind(self, exclusive: Exclusive, exclusive_total: int | None) -> Region:
        """The same calls as a part of other results."""
        other = self._copy()
        other._exclusive = exclusive
        if exclusive_total is not None:
            other._exclusive_total = exclusive_total
        elif self._aggregate is None:
            other._exclusive_total = None
        return other

    # -- columns ---------------------------------------------------------------------------------------------------

    def _required(self, name: str) -> IntArray:
        values = self._columns.array(name)
        assert values is not None
        return values

    def _optional_seconds(self, name: str) -> FloatArray | None:
        values = self._columns.array(name)
        return None if values is None else values / 1e9

    @property
    def start_times_ns(self) -> IntArray:
        """When each call began, ns."""
        return self._required("start_ns")

    @property
    def end_times_ns(self) -> IntArray:
        """When each call ended, ns."""
        return self._required("end_ns")

    @property
    def durations_ns(self) -> IntArray:
        """How long each call took, ns."""
        return self._required("end_ns") - self._required("start_ns")

    @property
    def inclusive_durations_ns(self) -> IntArray:
        """How long each call took with the calls inside it, ns: another name of ``durations_ns``."""
        return self.durations_ns

    @property
    def exclusive_durations_ns(self) -> IntArray:
        """How long each call took without the calls inside it, ns. Raises NestingError."""
        if self._exclusive is None or not self._columns.count:
            return self.durations_ns
        return self._exclusive.ns()

    @property
    def start_times(self) -> FloatArray:
        """When each call began, s."""
        return self.start_times_ns / 1e9

    @property
    def end_times(self) -> FloatArray:
        """When each call ended, s."""
        return self.end_times_ns / 1e9

    @property
    def durations(self) -> FloatArray:
        """How long each call took, s."""
        return self.durations_ns / 1e9

    @property
    def inclusive_durations(self) -> FloatArray:
        """How long each call took with the calls inside it, s: another name of ``durations``."""
        return self.durations

    @property
    def exclusive_durations(self) -> FloatArray:
        """How long each call took without the calls inside it, s. Raises NestingError."""
        return self.exclusive_durations_ns / 1e9

    @property
    def gpu_durations_ns(self) -> IntArray | None:
        """Device time of each call, ns; -1 where it was not measured."""
        return self._columns.array("gpu_ns") if self.has_gpu_timing else None

    @property
    def gpu_durations(self) -> FloatArray | None:
        """Device time of each call, s; -1e-9 where it was not measured."""
        return self._optional_seconds("gpu_ns") if self.has_gpu_timing else None

    @property
    def await_times_ns(self) -> IntArray | None:
        """The part of each call in which its task did not hold its thread, ns."""
        return self._columns.array("await_ns")

    @property
    def await_times(self) -> FloatArray | None:
        """The part of each call in which its task did not hold its thread, s."""
        return self._optional_seconds("await_ns")

    @property
    def call_ids(self) -> IntArray | None:
        """The number of each call in its rank; -1 where it has none."""
        return self._columns.array("call_ids")

    @property
    def parent_ids(self) -> IntArray | None:
        """The number of the call around each call; -1 where there is none."""
        return self._columns.array("parent_ids")

    @property
    def thread_ids(self) -> IntArray | None:
        """The thread of each call: an index into the run's threads, -1 where it is not known."""
        return self._columns.array("thread_ids")

    @property
    def task_ids(self) -> IntArray | None:
        """The task of each call: an index into the run's tasks, -1 outside of tasks."""
        return self._columns.array("task_ids")

    @property
    def event_metadata(self) -> tuple[dict[str, Any], ...]:
        """One dict a call: what ``metadata()`` and the decorator's ``metadata=`` said about it."""
        if not self._columns.count or not self._event_data_available:
            return ()
        metadata = self._read_metadata()
        if isinstance(metadata, str):
            metadata = self._metadata = self._parse_metadata(metadata)
        return tuple({} for _ in range(self._columns.count)) if metadata is None else metadata

    def _read_metadata(self) -> tuple[dict[str, Any], ...] | str | None:
        if callable(self._metadata):
            self._metadata = self._metadata()
        return self._metadata

    def _parse_metadata(self, text: str) -> tuple[dict[str, Any], ...] | None:
        import json

        values = json.loads(text)
        if not values:
            return None
        if len(values) != self._columns.count:
            raise _core.CorruptProfileError(
                f"the profile has event metadata of {len(values)} calls for a region of {self._columns.count}"
            )
        return tuple(values)

    # -- statistics ------------------------------------------------------------------------------------------------

    def _statistic(self, index: int) -> Any:
        if self._statistics is None:
            self._statistics = _compute_statistics(self._columns)
        return self._statistics[index]

    def _seconds(self, index: int) -> float:
        return float(self._statistic(index) / _NS) if self._count else 0.0

    def _sum(self, index: int) -> Any:
        return self._statistic(index) if self._count else 0

    @property
    def num_calls(self) -> int:
        """How many calls there were."""
        return self._count

    def __len__(self) -> int:
        return self._count

    @property
    def _exclusive_total_ns(self) -> int:
        if self._exclusive_total is not None:
            return self._exclusive_total
        if not self._count:
            return 0
        if self._exclusive is None:
            return int(self._statistic(TOTAL))
        if not self._columns.count:
            raise EventDataUnavailableError(
                "the exclusive time of this region follows from single calls, which the profile does not have here"
            )
        self._exclusive_total = _exact_sum(self._exclusive.ns())
        return self._exclusive_total

    @property
    def min_duration(self) -> float:
        """The shortest duration, s."""
        return self._seconds(MINIMUM)

    @property
    def max_duration(self) -> float:
        """The longest duration, s."""
        return self._seconds(MAXIMUM)

    @property
    def std_duration(self) -> float:
        """The standard deviation of the durations (of the whole population), s."""
        return float((self._statistic(M2) / self._count) ** 0.5 / _NS) if self._count else 0.0

    @property
    def first_duration(self) -> float:
        """The duration of the call recorded first, s."""
        return self._seconds(FIRST)

    @property
    def last_duration(self) -> float:
        """The duration of the call recorded last, s."""
        return self._seconds(LAST)

    @property
    def first_start_time(self) -> float:
        """When the earliest call began, s."""
        return self._seconds(START_MINIMUM)

    @property
    def last_end_time(self) -> float:
        """When the latest call ended, s."""
        return self._seconds(END_MAXIMUM)

    def percentile_duration(self, percentile: float) -> float | None:
        """A percentile (0 to 100, interpolated linearly) of the durations, s; None if it is not known without single calls.

        Raises ValueError for a percentile outside of 0 to 100.
        """
        wanted = check_percentile(percentile)
        if not self._count:
            return 0.0
        if self._percentiles is not None and wanted in _STORED_PERCENTILES:
            return self._percentiles[_STORED_PERCENTILES.index(wanted)] / _NS
        if not self._columns.count:
            return None
        chunk = (self._columns.buffer("start_ns"), self._columns.buffer("end_ns"))
        return _core.percentiles([chunk], [wanted])[0] / _NS

    @property
    def total_await_duration(self) -> float | None:
        """The time that all calls spent awaiting, s."""
        total = self._await_total_ns()
        return None if total is None else total / _NS

    def _await_total_ns(self) -> int | None:
        values = self._columns.array("await_ns")
        return None if values is None else _exact_sum(values)

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def has_timing(self) -> bool:
        """Whether there was any call."""
        return self._count > 0

    @property
    def has_event_data(self) -> bool:
        """False if the profile was read without its single calls."""
        return self._event_data_available

    @property
    def has_source(self) -> bool:
        """Whether it is known where the region is entered."""
        return self._source_file is not None

    @property
    def has_gpu_timing(self) -> bool:
        """Whether device time was measured, of one call at least."""
        return self._count > 0 and self._statistic(GPU_COUNT) > 0

    @property
    def has_thread_data(self) -> bool:
        """Whether the threads of the calls were recorded."""
        return self._columns.array("thread_ids") is not None

    @property
    def source_file(self) -> str | None:
        """The file in which the region is entered."""
        return self._source_file

    @property
    def source_lineno(self) -> int | None:
        """The line in ``source_file``, from 1."""
        return self._source_lineno

    @property
    def source_text(self) -> str | None:
        """The code of the region, if it was captured."""
        return self._source_text

    @property
    def tags(self) -> tuple[str, ...]:
        """The region's tags."""
        return self._tags

    @property
    def stored_summary(self) -> dict[str, Any] | None:
        """The statistics that stand in for single calls (ns); None where the calls are here."""
        return None if self._aggregate is None else dict(self._aggregate)

    @property
    def threads(self) -> list[int]:
        """The threads that have calls of this region, ascending; -1 stands for unknown ones."""
        threads = self._columns.array("thread_ids")
        return [] if threads is None else sorted(set(threads.tolist()))

    # -- views -----------------------------------------------------------------------------------------------------

    def get_summary(self) -> dict[str, Any]:
        """The statistics by name. ``exclusive_duration`` is None where calls overlap without nesting."""
        return self._summary()

    def events(self, origin: float = 0.0) -> list[dict[str, Any]]:
        """One dict a call: ``call_index start end duration`` (s; ``start`` and ``end`` from ``origin``), and where recorded
        ``gpu_duration``, ``call_id`` and ``parent_id``, ``thread``, ``task`` and ``await_duration`` (s), ``metadata``.

        Raises EventDataUnavailableError if the profile was read without its calls.
        """
        if not self._event_data_available:
            raise EventDataUnavailableError(
                "events() lists single calls, and this profile was read without them (read_h5_summary); read_h5 reads them"
            )
        return self._events(origin_ns(origin))

    def _events(self, origin: int) -> list[dict[str, Any]]:
        fields = self._event_columns(origin)
        names = list(fields)
        rows = [dict(zip(names, values)) for values in zip(*(column.tolist() for column in fields.values()))]
        if rows and self._read_metadata() is not None:
            for row, metadata in zip(rows, self.event_metadata):
                if metadata:
                    row["metadata"] = metadata
        return rows

    def _event_columns(self, origin: int) -> dict[str, NDArray[Any]]:
        """The columns of events() without the metadata, as arrays. Seconds are made from differences of ns."""
        import numpy as np

        starts, ends = self.start_times_ns, self.end_times_ns
        fields: dict[str, NDArray[Any]] = {
            "call_index": np.arange(self._columns.count),
            "start": (starts - origin) / 1e9,
            "end": (ends - origin) / 1e9,
            "duration": (ends - starts) / 1e9,
        }
        optional: dict[str, NDArray[Any] | None] = {"gpu_duration": self.gpu_durations}
        if self.call_ids is not None and self.parent_ids is not None:
            optional.update(call_id=self.call_ids, parent_id=self.parent_ids)
        optional["thread"] = self.thread_ids
        if self.task_ids is not None:
            optional.update(task=self.task_ids, await_duration=self.await_times)
        fields.update((name, values) for name, values in optional.items() if values is not None)
        return fields

    def for_thread(self, thread_index: int) -> Region:
        """The calls that ran on one thread; none if the thread has none. Everything about a call comes along.

        Raises ValueError if threads were not tracked, EventDataUnavailableError if the profile was read without its calls.
        """
        if not self._event_data_available:
            raise EventDataUnavailableError(
                "for_thread() picks single calls, and this profile was read without them (read_h5_summary); read_h5 reads them"
            )
        threads = self._columns.array("thread_ids")
        if threads is None:
            raise ValueError("the threads of the calls were not recorded: that takes track_threads=True")
        mask = threads == thread_index
        return self._select(mask)

    def _select(self, mask: NDArray[np.bool_]) -> Region:
        other = self._copy()
        columns = {name: self._columns.array(name) for name in COLUMN_NAMES}
        other._columns = ArrayColumns({name: None if v is None else v[mask] for name, v in columns.items()})
        other._count = other._columns.count
        other._statistics = None
        other._percentiles = None
        other._exclusive_total = None
        if self._exclusive is not None:
            other._exclusive = PartExclusive(self._exclusive, mask)
        if self._columns.count and self._read_metadata() is not None:
            other._metadata = tuple(m for m, chosen in zip(self.event_metadata, mask.tolist()) if chosen) or None
        return other

    # -- the rest --------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = {name: self._columns.array(name) for name in COLUMN_NAMES} if self._columns.count else {}
        exclusive: Any = None
        if self._exclusive is not None and self._columns.count:
            try:
                exclusive = self._exclusive.ns()
            except _core.NestingError as error:
                exclusive = str(error)
        state = {
            "_count": self._count,
            "_statistics": self._statistics,
            "_percentiles": self._percentiles,
            "_aggregate": self._aggregate,
            "_exclusive_total": self._exclusive_total,
            "_metadata": self._read_metadata(),
            "_event_data_available": self._event_data_available,
            "_source_file": self._source_file,
            "_source_lineno": self._source_lineno,
            "_source_text": self._source_text,
            "_tags": self._tags,
        }
        return _restore_region, (state, arrays, exclusive)

    def __copy__(self) -> Region:
        return self._copy()

    def __repr__(self) -> str:
        lines = [f"<Region: {self._count} call(s)"]
        for name, value in self.get_summary().items():
            if name != "num_calls":
                lines.append(f"  {name} = {'unknown' if value is None else f'{value:.9g} s'}")
        return "\n".join(lines) + ">"


def _restore_region(state: dict[str, Any], arrays: dict[str, Any], exclusive: Any) -> Region:
    region = Region.__new__(Region)
    for name, value in state.items():
        setattr(region, name, value)
    region._columns = ArrayColumns(arrays or {"start_ns": (), "end_ns": ()})
    region._exclusive = None
    if isinstance(exclusive, str):
        region._exclusive = FixedExclusive(None, exclusive)
    elif exclusive is not None:
        region._exclusive = FixedExclusive(exclusive)
    return region
