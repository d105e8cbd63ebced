"""A run as its user sees it: regions, threads, tasks, metadata, and views of all calls."""

from __future__ import annotations

import os
from functools import partial

from scope_profiler import _core
from scope_profiler.call_columns import ArrayExclusive, ProfileColumns, ProfileExclusive, RunColumns
from scope_profiler.call_statistics import END_MAXIMUM, START_MINIMUM
from scope_profiler.errors import EventDataUnavailableError
from scope_profiler.mpi_region import MPIRegion
from scope_profiler.region_results import Region, origin_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Protocol, TextIO, TypeVar

    import pandas

    from scope_profiler.concurrency import TaskInfo, ThreadInfo
    from scope_profiler.likwid_data import LikwidRegionResult
    from scope_profiler.perf_events import PerfEventTotals
    from scope_profiler.processes import ProcessInfo
    from scope_profiler.rank_balance import RankBalance
    from scope_profiler.stack_samples import Samples
    from scope_profiler.stored_run import StoredRun

    T = TypeVar("T")
    Patterns = Sequence[str] | str | None
    Ranks = Iterable[int] | int | None

    class RegionStore(Protocol):
        """The regions of a run in order of appearance, each made when it is asked for."""

        def names(self) -> list[str]: ...
        def get(self, name: str) -> MPIRegion | None: ...
        def ranks(self) -> set[int]: ...
        def time_range(self) -> tuple[int, int] | None:
            """ns from the start of the earliest call to the end of the latest; None without calls."""


__all__ = ["EventDataUnavailableError", "MPIRegion", "ProfilingResults", "Region", "merge_results"]

_NS = 1_000_000_000


class _ProfileRegions:
    """Regions over the rows of a profile. Opening one of many thousand regions makes none of the others."""

    def __init__(self, profile: _core.Profile, stored: StoredRun | None) -> None:
        self._profile = profile
        self._summary_only = profile.summary_only and stored is None
        self._stored = stored
        self._run = RunColumns(stored or profile)
        self._exclusive = ProfileExclusive(self._run)
        self._rows: dict[str, list[int]] | None = None
        self._rank_rows: dict[int, int] = {}  # rank -> its first row
        self._made: dict[str, MPIRegion] = {}

    def _index(self) -> dict[str, list[int]]:
        if self._rows is None:
            names = self._profile.names
            name_of, rank_of = self._profile.row_keys()
            found: dict[int, list[int]] = {}
            for row, name in enumerate(name_of):
                found.setdefault(name, []).append(row)
                self._rank_rows.setdefault(rank_of[row], row)
            self._rows = {names[name]: found[name] for name in sorted(found)}
        return self._rows

    def names(self) -> list[str]:
        return list(self._index())

    def ranks(self) -> set[int]:
        self._index()
        return set(self._rank_rows)

    def time_range(self) -> tuple[int, int] | None:
        profile = self._profile
        found: list[tuple[int, int]] = []
        for index in range(profile.row_count):
            row = profile.row(index)
            if not (row[3] if row[11] is None else row[11][0]):
                continue
            if row[10] is None:  # a file of an earlier release, that stores no statistics
                return _time_range(one for name in self.names() for one in self._get(name).regions.values())
            found.append((row[10][START_MINIMUM], row[10][END_MAXIMUM]))
        return (min(first for first, _ in found), max(last for _, last in found)) if found else None

    def _get(self, name: str) -> MPIRegion:
        region = self.get(name)
        assert region is not None
        return region

    def get(self, name: str) -> MPIRegion | None:
        region = self._made.get(name)
        if region is not None:
            return region
        rows = self._index().get(name)
        if rows is None:
            return None
        made = MPIRegion(name, dict(map(self._region, rows)))
        return self._made.setdefault(name, made)

    def _region(self, index: int) -> tuple[int, Region]:
        profile = self._profile
        row = profile.row(index)
        rank, first, count = row[1:4]
        here = 0 if self._summary_only or profile.aggregate else count
        rank_first = profile.row(self._rank_rows[rank])[2]
        exclusive = self._exclusive.row(rank, first - rank_first, here)
        late = None if self._stored is None else partial(_stored_metadata, self._stored, index)
        return rank, Region._of_row(row, ProfileColumns(self._run, first, here), exclusive, self._summary_only, late)


def _stored_metadata(stored: StoredRun, row: int) -> str | None:
    metadata: str | None = stored.whole().row(row)[8]
    return metadata


class _GivenRegions:
    """Regions that were handed over. They are copied (not their data), so that they can belong to other results as well."""

    def __init__(
        self,
        regions: Mapping[str, MPIRegion],
        exclusive_totals: Mapping[str, Mapping[int, int]] | None,
        event_data_available: bool,
    ) -> None:
        totals = exclusive_totals or {}
        times: dict[int, ArrayExclusive] = {}
        self._regions: dict[str, MPIRegion] = {}
        for name, region in regions.items():
            bound = {}
            for rank, one in region.regions.items():
                exclusive = times.setdefault(rank, ArrayExclusive()).add(region.name, one._columns)
                total = totals.get(name, {}).get(rank, -1)
                bound[rank] = one._bind(exclusive, total if total >= 0 else None)
                bound[rank]._event_data_available &= event_data_available
            self._regions[name] = MPIRegion(region.name, bound)

    def names(self) -> list[str]:
        return list(self._regions)

    def ranks(self) -> set[int]:
        return {rank for region in self._regions.values() for rank in region}

    def time_range(self) -> tuple[int, int] | None:
        return _time_range(one for region in self._regions.values() for one in region.regions.values())

    def get(self, name: str) -> MPIRegion | None:
        return self._regions.get(name)


def _time_range(regions: Iterable[Region]) -> tuple[int, int] | None:
    timed = [one for one in regions if one.num_calls and (one._aggregate is None or "start_minimum" in one._aggregate)]
    if not timed:
        return None
    return min(one._statistic(START_MINIMUM) for one in timed), max(one._statistic(END_MAXIMUM) for one in timed)


def _samples_of(group: dict[str, Any]) -> dict[str, Any]:
    samples: dict[str, Any] = group["groups"].get("samples") or {}
    return samples


def _patterns(patterns: Patterns) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns or ())


def name_filter(include: Patterns, exclude: Patterns) -> Callable[[str], bool]:
    """Whether a region of a name is chosen: it begins with a match of some ``include`` (None: any) and of no ``exclude``.

    Raises re.error for a pattern that is no regular expression.
    """
    if include is None and not exclude:
        return lambda name: True
    import re

    wanted = None if include is None else [re.compile(pattern) for pattern in _patterns(include)]
    unwanted = [re.compile(pattern) for pattern in _patterns(exclude)]

    def chosen(name: str) -> bool:
        if wanted is not None and not any(pattern.match(name) for pattern in wanted):
            return False
        return not any(pattern.match(name) for pattern in unwanted)

    return chosen


def _need_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError("data frames need pandas: pip install pandas") from None
    return pandas


class _LaneTable(dict):  # type: ignore[type-arg]
    """A dict that says why a rank has no rows."""

    def __init__(self, kind: str, rows: Mapping[int, Any]) -> None:
        super().__init__(rows)
        self._kind = kind

    def __missing__(self, rank: object) -> Any:
        if self:
            raise KeyError(f"no {self._kind} of rank {rank!r}; there are those of {sorted(self)}")
        setting = "track_threads" if self._kind == "threads" else "track_async"
        raise KeyError(f"no {self._kind} of rank {rank!r}: the run recorded none (that takes {setting}=True)")

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ProfilingResults:
    """The results of a run, collected or read from a file. A mapping-like container of :class:`MPIRegion` by name.

    Results can be copied, pickled and sent to other processes. They do not change the objects they are made from.

    Parameters
    ----------
    regions
        The regions by name, in order of appearance.
    metadata
        What is known about the run (``start_time_ns``, ``label``, ...).
    num_ranks
        How many ranks the run had; None: as many as have regions.
    likwid, perf_events, line_profile
        Counters and line profiles by rank.
    file_path
        Where the run was read from or written to.
    is_root
        False for the results that other ranks than the first get of a collective run: those are empty.
    exclusive_totals
        Exclusive ns by region name and rank, where they are known; negative: not known.
    event_data_available
        False if the single calls are elsewhere, and only statistics are here.
    threads, tasks
        The lane tables by rank.
    """

    __slots__ = (
        "__weakref__",
        "_event_data_available",
        "_file_path",
        "_in_memory",
        "_is_root",
        "_lanes",
        "_likwid",
        "_line_profile",
        "_metadata",
        "_num_ranks",
        "_perf_events",
        "_profile",
        "_samples",
        "_store",
        "_stored",
        "_tasks",
        "_threads",
        "_time_range",
        "_usage",
    )

    def __init__(
        self,
        regions: Mapping[str, MPIRegion],
        metadata: Mapping[str, Any] | None = None,
        num_ranks: int | None = None,
        likwid: Mapping[int, dict[str, LikwidRegionResult]] | None = None,
        perf_events: Mapping[int, dict[str, PerfEventTotals]] | None = None,
        line_profile: Mapping[int, list[dict[str, Any]]] | None = None,
        file_path: str | os.PathLike[str] = "",
        is_root: bool = True,
        exclusive_totals: Mapping[str, Mapping[int, int]] | None = None,
        event_data_available: bool = True,
        threads: Mapping[int, list[ThreadInfo]] | None = None,
        tasks: Mapping[int, list[TaskInfo]] | None = None,
    ) -> None:
        self._profile: _core.Profile | None = None
        self._stored: StoredRun | None = None  # where the calls are that the profile is without
        self._store: RegionStore = _GivenRegions(regions, exclusive_totals, bool(event_data_available))
        self._metadata: dict[str, Any] = dict(metadata or {})
        self._num_ranks: int | None = None if num_ranks is None else int(num_ranks)
        self._file_path: str = os.fspath(file_path)
        self._in_memory: bool = not self._file_path  # a run without a file may still be named after one
        self._is_root: bool = bool(is_root)
        self._event_data_available: bool = bool(event_data_available)
        self._likwid: dict[int, dict[str, LikwidRegionResult]] | None = dict(likwid or {})
        self._perf_events: dict[int, dict[str, PerfEventTotals]] | None = dict(perf_events or {})
        self._line_profile: dict[int, list[dict[str, Any]]] | None = dict(line_profile or {})
        self._threads: dict[int, list[ThreadInfo]] | None = _LaneTable("threads", threads or {})
        self._tasks: dict[int, list[TaskInfo]] | None = _LaneTable("tasks", tasks or {})
        self._lanes: dict[int, tuple[dict[int, ThreadInfo], dict[int, TaskInfo]]] = {}
        self._time_range: tuple[tuple[int, int] | None, ...] = ()  # empty: not asked for yet
        self._usage: dict[int, dict[int, tuple[int, int]]] | None = None
        self._samples: Samples | None = None

    @classmethod
    def _from_profile(
        cls,
        profile: _core.Profile,
        *,
        file_path: str | os.PathLike[str] = "",
        is_root: bool = True,
        in_memory: bool = False,
        stored: StoredRun | None = None,
    ) -> ProfilingResults:
        """Results over a collected or read profile. Nothing of it is copied; everything is made when it is asked for.

        ``in_memory``: the run is not in the file that it is named after. ``stored``: the profile is the summary of this run,
        whose calls are read when they are asked for.
        """
        self = cls({}, profile.metadata, file_path=file_path, is_root=is_root)
        self._in_memory |= in_memory
        self._profile = profile
        self._stored = stored
        self._store = _ProfileRegions(profile, stored)
        self._event_data_available = stored is not None or not profile.summary_only
        self._likwid = self._perf_events = self._line_profile = self._threads = self._tasks = None
        return self

    @classmethod
    def from_h5(cls, file_path: str | os.PathLike[str], verbose: bool = False) -> ProfilingResults:
        """Read an HDF5 profile: :func:`scope_profiler.read_h5`."""
        from scope_profiler.profile_io import read_h5

        return read_h5(file_path, verbose=verbose)

    # -- regions -------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        """What messages call this; a run in memory may be named after a file that it has not written."""
        return "the run" if self._in_memory else self._file_path

    def get_region(self, region_name: str) -> MPIRegion:
        """The region of a name. Raises KeyError, which lists the names there are."""
        region = self._store.get(region_name)
        if region is None:
            names = self.region_names
            listed = ", ".join(map(repr, names[:50])) + (f" and {len(names) - 50} more" if len(names) > 50 else "")
            raise KeyError(f"{self._where} has no region {region_name!r}; it has {listed or 'none'}")
        return region

    def __getitem__(self, region_name: str) -> MPIRegion:
        return self.get_region(region_name)

    def __contains__(self, region_name: object) -> bool:
        return isinstance(region_name, str) and self._store.get(region_name) is not None

    def __iter__(self) -> Iterator[MPIRegion]:
        for name in self.region_names:
            yield self.get_region(name)

    def __len__(self) -> int:
        return len(self._store.names())

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def region_names(self) -> list[str]:
        """The names of the regions in order of appearance."""
        return self._store.names()

    def _chosen(self, include: Patterns, exclude: Patterns) -> list[MPIRegion]:
        """The chosen regions in order of appearance."""
        chosen = name_filter(include, exclude)
        return [self.get_region(name) for name in self.region_names if chosen(name)]

    def get_regions(self, include: Patterns = None, exclude: Patterns = None) -> list[MPIRegion]:
        """Regions by the start of their first call.

        Parameters
        ----------
        include, exclude
            Regular expressions that match the beginning of a name, one or several. None: all regions, and no exception from that.

        Raises
        ------
        re.error
            An expression is none.
        ValueError
            A chosen region is on no rank.
        """
        regions = self._chosen(include, exclude)
        for region in regions:
            if not len(region):
                raise ValueError(f"region {region.name!r} is on no rank")
        return sorted(regions, key=_first_start)

    # -- the run -------------------------------------------------------------------------------------------------------

    @property
    def file_path(self) -> Path:
        """Where the run was read from or written to; ``Path("")`` if it was neither."""
        from pathlib import Path

        return Path(self._file_path)

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known about the run."""
        return self._metadata

    @property
    def label(self) -> str | None:
        """The run's label. Setting it to None or an empty text removes it."""
        label = self._metadata.get("label")
        return None if label is None else str(label)

    @label.setter
    def label(self, value: str | None) -> None:
        if value:
            self._metadata["label"] = str(value)
        else:
            self._metadata.pop("label", None)

    @property
    def display_label(self) -> str:
        """The label, or the file's name without its ending."""
        return self.label or self.file_path.stem

    def default_title(self) -> str:
        """Label, file and number of ranks in one line."""
        ranks = f"{self.num_ranks} rank{'' if self.num_ranks == 1 else 's'}"
        if self._in_memory:
            return f"{self.display_label} (in memory, {ranks})".lstrip()
        return " - ".join(filter(None, (self.label, f"{self._file_path} ({ranks})")))

    @property
    def is_root(self) -> bool:
        """False on the ranks of a collective run that do not get its results."""
        return self._is_root

    @property
    def has_event_data(self) -> bool:
        """False if the profile was read without its single calls."""
        return self._event_data_available

    @property
    def num_ranks(self) -> int:
        """How many ranks the run had."""
        if self._num_ranks is None:
            ranks = self._store.ranks()
            if self._profile is None:
                self._num_ranks = len(ranks)
            else:
                self._num_ranks = max(self._integer("mpi_size") or 0, max(ranks, default=-1) + 1)
        return self._num_ranks

    def _integer(self, key: str) -> int | None:
        try:
            return int(self._metadata[key])
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def num_nodes(self) -> int | None:
        """How many hosts the run used, if that is known."""
        return self._integer("num_nodes")

    def _seconds_of(self, key: str) -> float | None:
        ns = self._integer(key)
        return None if ns is None else ns / _NS

    @property
    def run_start_time(self) -> float | None:
        """When the run began, s on the clock of ``time.perf_counter()``."""
        return self._seconds_of("start_time_ns")

    @property
    def finalize_time(self) -> float | None:
        """When the run was collected, s on the clock of ``time.perf_counter()``."""
        return self._seconds_of("finalize_time_ns")

    @property
    def total_time(self) -> float | None:
        """Seconds from the begin of the run to its collection."""
        start, end = self._integer("start_time_ns"), self._integer("finalize_time_ns")
        return None if start is None or end is None else (end - start) / _NS

    def _range(self) -> tuple[int, int] | None:
        if not self._time_range:
            self._time_range = (self._store.time_range(),)
        return self._time_range[0]

    @property
    def minimum_start_time(self) -> float:
        """When the earliest call began, s; 0.0 without calls."""
        times = self._range()
        return 0.0 if times is None else times[0] / _NS

    @property
    def maximum_end_time(self) -> float:
        """When the latest call ended, s; 0.0 without calls."""
        times = self._range()
        return 0.0 if times is None else times[1] / _NS

    @property
    def time_span(self) -> float:
        """Seconds from the start of the earliest call to the end of the latest; 0.0 without calls."""
        times = self._range()
        return 0.0 if times is None else (times[1] - times[0]) / _NS

    @property
    def startup_time(self) -> float:
        """Seconds from the begin of the run to the earliest call; 0.0 if either is not known."""
        times, start = self._range(), self._integer("start_time_ns")
        return 0.0 if times is None or start is None else (times[0] - start) / _NS

    @property
    def _time_origin_ns(self) -> int:
        start = self._integer("start_time_ns")
        if start is not None:
            return start
        times = self._range()
        return 0 if times is None else times[0]

    @property
    def time_origin(self) -> float:
        """What relative times count from: the begin of the run, else the earliest call; s."""
        return self._time_origin_ns / _NS

    def _origin_ns(self, relative: bool, origin: float | None) -> int:
        if origin is None:
            return self._time_origin_ns if relative else 0
        exact = self._time_origin_ns
        return exact if exact / _NS == origin else origin_ns(origin)

    def _need_events(self, what: str) -> None:
        if not self._event_data_available:
            raise EventDataUnavailableError(
                f"{what} needs single calls, and this profile was read without them (read_h5_summary); read_h5 reads them"
            )

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def _lane_tables(self) -> tuple[dict[int, list[ThreadInfo]], dict[int, list[TaskInfo]]]:
        if self._threads is None or self._tasks is None:
            assert self._profile is not None
            threads, tasks = _lane_tables(self._profile)
            self._threads, self._tasks = _LaneTable("threads", threads), _LaneTable("tasks", tasks)
        return self._threads, self._tasks

    @property
    def processes(self) -> dict[int, ProcessInfo]:
        """The processes that recorded, by rank, with what is known of their clocks; empty for files of earlier releases."""
        from .processes import processes_of

        return processes_of(self._profile)

    def rank_label(self, rank: int) -> str:
        """A rank for people: ``"worker 1 (rank 2, pid 4711)"``, or ``"rank 2"`` where its process has no name."""
        from .processes import label_of

        return label_of(self.processes, rank)

    def imbalance(
        self,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        ranks: Iterable[int] | None = None,
    ) -> list[RankBalance]:
        """How evenly the ranks share the time of each region; the region that loses most time first. Needs no single calls.

        Parameters
        ----------
        include, exclude
            Which regions; see :meth:`get_regions`.
        ranks
            Which ranks to compare; None: all.
        """
        from .rank_balance import balance_of

        return balance_of(self.get_regions(include=include, exclude=exclude), ranks)

    @property
    def threads(self) -> dict[int, list[ThreadInfo]]:
        """The threads of each rank; empty if they were not tracked."""
        return self._lane_tables()[0]

    @property
    def tasks(self) -> dict[int, list[TaskInfo]]:
        """The asyncio tasks and greenlets of each rank; empty if there were none or they were not followed."""
        return self._lane_tables()[1]

    def _lane_names(self, rank: int) -> tuple[dict[int, ThreadInfo], dict[int, TaskInfo]]:
        lanes = self._lanes.get(rank)
        if lanes is None:
            threads = {thread.index: thread for thread in self.threads.get(rank, ())}
            tasks = {task.index: task for task in self.tasks.get(rank, ())}
            lanes = self._lanes[rank] = (threads, tasks)
        return lanes

    def lane_label(self, lane: int, rank: int = 0) -> str:
        """The name of a lane (a key of :func:`scope_profiler.concurrency.lane_ids`) for people."""
        lane = int(lane)
        if lane == -1:
            return "unknown lane"
        threads, tasks = self._lane_names(rank)
        if lane < 0:
            thread = threads.get(-2 - lane)
            return f"thread {-2 - lane}" if thread is None else thread.name
        task = tasks.get(lane)
        if task is None:
            return f"task {lane}"
        label = task.name
        if task.coro_name:
            label += f" ({task.coro_name.rsplit('.', 1)[-1]})"
        if task.thread_index >= 0:
            label += f" on {self.lane_label(-2 - task.thread_index, rank)}"
        return label

    def _thread_usage(self) -> dict[int, dict[int, tuple[int, int]]]:
        """By rank and thread: the number of its calls, and the ns during which it was inside one at least."""
        if self._usage is None:
            usage: dict[int, dict[int, tuple[int, int]]] = {}
            for rank, thread, count, covered in _core.path_summary(self._to_summary())[4]:
                usage.setdefault(rank, {})[thread] = (count, covered)
            self._usage = usage
        return self._usage

    def thread_summary(self, rank: int = 0) -> list[dict[str, Any]]:
        """One dict a thread: ``index name alive wall_time cpu_time num_calls region_time``; none if threads were not tracked, and of a
        rank that the run does not have.

        ``region_time`` is the wall clock, in s, during which the thread was inside a region, be it in its own calls or those
        of the tasks it ran. A thread that used more CPU than that used it outside of every region. ``cpu_time`` is NaN where it is
        not known.

        Raises EventDataUnavailableError if the profile was read without its calls and does not store these sums.
        """
        threads = self.threads.get(rank, [])
        usage: dict[int, tuple[int, int]] = {}
        if threads:
            by_rank = self._thread_usage()
            if not by_rank and not self._event_data_available and any(region.num_calls for region in self):
                self._need_events("thread_summary()")
            usage = by_rank.get(rank, {})
        rows = []
        for thread in threads:
            count, covered = usage.get(thread.index, (0, 0))
            rows.append(
                {
                    "index": thread.index,
                    "name": thread.name,
                    "alive": thread.alive,
                    "wall_time": thread.wall_time,
                    "cpu_time": thread.cpu_time,
                    "num_calls": count,
                    "region_time": covered / _NS,
                }
            )
        return rows

    # -- samples -------------------------------------------------------------------------------------------------------

    @property
    def has_samples(self) -> bool:
        """Whether a sampler looked at the threads."""
        if self._samples is None and self._profile is not None:
            return bool(self._of_ranks(_samples_of))
        return bool(self._samples)

    @property
    def samples(self) -> Samples:
        """What the sampler saw of the threads (``sample_hz=``); empty without one."""
        if self._samples is None:
            from scope_profiler.stack_samples import Samples

            self._samples = Samples({} if self._profile is None else self._of_ranks(_samples_of))
        return self._samples

    # -- counters ------------------------------------------------------------------------------------------------------

    def _of_ranks(self, read: Callable[[dict[str, Any]], T]) -> dict[int, T]:
        assert self._profile is not None
        found = {rank: read(group) for rank, group in self._profile.aux.items()}
        return {rank: values for rank, values in sorted(found.items()) if values}

    @property
    def line_profile(self) -> dict[int, list[dict[str, Any]]]:
        """Line profiles of each rank: one dict a function, with the arrays ``line_numbers hits times`` (s = times * unit)."""
        if self._line_profile is None:
            from scope_profiler.auxiliary import line_profiles

            self._line_profile = self._of_ranks(line_profiles)
        return self._line_profile

    def _perf_by_rank(self) -> dict[int, dict[str, PerfEventTotals]]:
        if self._perf_events is None:
            from scope_profiler.auxiliary import perf_events

            self._perf_events = self._of_ranks(perf_events)
        return self._perf_events

    @property
    def has_perf_events(self) -> bool:
        """Whether perf counters were recorded."""
        return any(self._perf_by_rank().values())

    def get_perf_events(self, rank: int | None = None) -> dict[Any, Any]:
        """Perf counters: PerfEventTotals by region name of one rank, or such a dict by rank if ``rank`` is None."""
        by_rank = self._perf_by_rank()
        return by_rank if rank is None else by_rank.get(rank, {})

    def _likwid_by_rank(self) -> dict[int, dict[str, LikwidRegionResult]]:
        if self._likwid is None:
            from scope_profiler.auxiliary import likwid_regions

            self._likwid = self._of_ranks(likwid_regions)
        return self._likwid

    @property
    def has_likwid(self) -> bool:
        """Whether LIKWID counters were recorded."""
        return any(self._likwid_by_rank().values())

    @property
    def likwid_ranks(self) -> list[int]:
        """The ranks that have LIKWID counters, ascending."""
        return sorted(rank for rank, regions in self._likwid_by_rank().items() if regions)

    def get_likwid_regions(self, rank: int | None = None) -> dict[Any, Any]:
        """LikwidRegionResult by tag of one rank, or such a dict by rank if ``rank`` is None."""
        by_rank = self._likwid_by_rank()
        return by_rank if rank is None else by_rank.get(rank, {})

    def get_likwid_region(self, tag: str, rank: int = 0) -> LikwidRegionResult:
        """The LIKWID counters of one marker region. Raises KeyError, which lists the tags there are."""
        regions = self._likwid_by_rank().get(rank, {})
        if tag not in regions:
            raise KeyError(f"rank {rank} has no LIKWID region {tag!r}; it has {sorted(regions)}")
        return regions[tag]

    def likwid_to_dataframe(self) -> pandas.DataFrame:
        """LIKWID counters as a pandas data frame, one row a rank, region and thread. Raises ImportError without pandas."""
        from scope_profiler.likwid_data import table_rows

        pandas = _need_pandas()
        by_rank = self._likwid_by_rank()
        return pandas.DataFrame([row for rank in self.likwid_ranks for row in table_rows(rank, by_rank[rank])])

    def print_likwid_summary(self, stream: TextIO | None = None) -> None:
        """Print the LIKWID counters of every rank and thread to ``stream``, by default standard output."""
        from scope_profiler.summary import print_likwid

        print_likwid(self, stream)

    # -- all calls -----------------------------------------------------------------------------------------------------

    def events(
        self,
        include: Patterns = None,
        exclude: Patterns = None,
        ranks: Ranks = None,
        relative: bool = True,
        origin: float | None = None,
    ) -> list[dict[str, Any]]:
        """One dict a call, by region, rank and call: what :meth:`MPIRegion.events` gives.

        Parameters
        ----------
        include, exclude, ranks
            Which regions (see :meth:`get_regions`) and ranks.
        relative
            Times count from :attr:`time_origin`; False: from the clock's zero.
        origin
            The moment, in s of the clock, that times count from instead.

        Raises
        ------
        EventDataUnavailableError
            The profile was read without its calls.
        """
        self._need_events("events()")
        zero = self._origin_ns(relative, origin)
        return [event for region in self.get_regions(include, exclude) for event in region._events(ranks, zero)]

    def call_stack(
        self,
        rank: int = 0,
        include: Patterns = None,
        exclude: Patterns = None,
        relative: bool = True,
        origin: float | None = None,
    ) -> list[dict[str, Any]]:
        """The calls of a rank nested: what :func:`scope_profiler.build_call_stack` gives.

        Parameters
        ----------
        rank
            Whose calls; there are none of a rank that the run does not have.
        include, exclude
            Which regions; see :meth:`get_regions`. The calls of others are not there, nor count as callers.
        relative, origin
            What times count from; see :meth:`events`.

        Raises
        ------
        NestingError
            Calls of a lane overlap.
        EventDataUnavailableError
            The profile was read without its calls.
        """
        self._need_events("call_stack()")
        from scope_profiler.call_stack import build_call_stack

        return build_call_stack(self.get_regions(include, exclude), rank, self._origin_ns(relative, origin) / _NS)

    def call_graph(self, rank: int = 0, include: Patterns = None, exclude: Patterns = None) -> list[dict[str, Any]]:
        """One dict a call of a rank, callers first: ``call_id parent_id name call_index depth``.

        ``parent_id`` is None for a call without a caller. The ids are the recorded ones where every region of the rank has them;
        else the calls are nested and numbered here.

        Parameters
        ----------
        rank
            Whose calls; there are none of a rank that the run does not have.
        include, exclude
            Which regions; see :meth:`get_regions`. Others are skipped: their calls' callees belong to the nearest caller that is
            chosen.

        Raises
        ------
        NestingError
            The calls do not nest.
        EventDataUnavailableError
            The profile was read without its calls.
        """
        self._need_events("call_graph()")
        from scope_profiler.call_graph import call_graph

        return call_graph([region for region in self if rank in region], rank, name_filter(include, exclude))

    # -- tables --------------------------------------------------------------------------------------------------------

    def summary(self, include: Patterns = None, exclude: Patterns = None) -> list[dict[str, Any]]:
        """One dict a region, by the start of its first call.

        What MPIRegion.get_summary() gives, and ``tags p50_duration p95_duration p99_duration rank_imbalance
        rank_imbalance_pct``; ``p50 p95 p99 imbalance`` are other names of the percentiles and of ``rank_imbalance_pct``.
        """
        return [_region_summary(region) for region in self.get_regions(include, exclude)]

    def to_dataframe(self, include: Patterns = None, exclude: Patterns = None, per_rank: bool = False) -> pandas.DataFrame:
        """:meth:`summary` as a pandas data frame.

        Parameters
        ----------
        include, exclude
            Which regions; see :meth:`get_regions`.
        per_rank
            A row a region and rank; False: a row a region.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        pandas = _need_pandas()
        if not per_rank:
            return pandas.DataFrame(self.summary(include, exclude))
        rows = [
            _rank_summary(region, rank) for region in self.get_regions(include, exclude) for rank in region.ranks
        ]
        return pandas.DataFrame(rows)

    def to_events_dataframe(
        self,
        include: Patterns = None,
        exclude: Patterns = None,
        ranks: Ranks = None,
        relative: bool = True,
        origin: float | None = None,
    ) -> pandas.DataFrame:
        """:meth:`events` as a pandas data frame with every column that was recorded. Its arguments are those of that.

        The columns are ``name rank call_index start end duration`` (s), then where any region has them ``gpu_duration call_id
        parent_id thread task await_duration metadata``.

        Raises
        ------
        ImportError
            pandas is not installed.
        EventDataUnavailableError
            The profile was read without its calls.
        """
        self._need_events("to_events_dataframe()")
        pandas = _need_pandas()
        from scope_profiler.call_table import events_table

        regions = self.get_regions(include, exclude)
        return pandas.DataFrame(events_table(regions, ranks, self._origin_ns(relative, origin)))

    def print_summary(
        self,
        include: Patterns = None,
        exclude: Patterns = None,
        ranks: Sequence[int] | None = None,
        sort: str = "start",
        title: str | None = None,
        stream: TextIO | None = None,
        suppress_notes: bool = False,
        columns: Sequence[str] | str | None = None,
        percentage_mode: str = "coverage",
    ) -> None:
        """Print the regions by call path, and notes about the run. Does nothing unless :attr:`is_root`.

        Parameters
        ----------
        include, exclude, ranks
            What counts; see :meth:`get_regions`. Regions left out disappear between their callers and their calls.
        sort
            Order of the paths below one caller: ``start total calls avg min max first last std p50 p95 p99 imbalance name``.
        title
            Instead of :meth:`default_title`.
        stream
            Instead of standard output.
        suppress_notes
            Print the table alone.
        columns
            Any of ``region ranks calls total percent parent_percent avg gpu_total gpu_avg min max first last std p50 p95 p99
            imbalance``. By default region, percent (if there is a session) and total.
        percentage_mode
            ``"coverage"``: wall clock during which a region was open; ``"exclusive"``: its exclusive time.

        Raises
        ------
        ValueError
            A column or a percentage mode is unknown.
        KeyError
            The sort key is unknown.
        """
        if not self._is_root:
            return
        from scope_profiler.summary import print_results

        print_results(
            self,
            include=include,
            exclude=exclude,
            ranks=ranks,
            sort=sort,
            title=title,
            stream=stream,
            suppress_notes=suppress_notes,
            columns=columns,
            percentage_mode=percentage_mode,
        )

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _to_profile(self) -> _core.Profile:
        """These results as one profile, with every column, for files and for the C side.

        Raises ValueError for what no profile can hold: a name with NUL, say, or regions with and without single calls in one.
        """
        if self._profile is None:
            from scope_profiler.profile_conversion import profile_of_results

            return profile_of_results(self)
        profile = self._whole_profile()
        assert profile is not None
        return profile if profile.metadata == self._metadata else _core.replace_profile(profile, metadata=self._metadata)

    def _whole_profile(self) -> _core.Profile | None:
        return self._profile if self._stored is None else self._stored.whole()

    def _to_summary(self) -> _core.Profile:
        """The same, but without the calls where they are not read yet and a summary stands for them."""
        if self._stored is None or self._stored.is_read:
            return self._to_profile()
        assert self._profile is not None
        return self._profile

    def _state(self) -> tuple[Any, ...]:
        """What results are made of, for copies and pickles."""
        if self._profile is not None:
            return (self._whole_profile(), self._metadata, self._file_path, self._is_root, self._in_memory, self._num_ranks)
        totals: dict[str, dict[int, int]] = {}
        for region in self:
            known = {rank: one._exclusive_total for rank, one in region.regions.items() if one._exclusive_total is not None}
            totals[region.name] = known
        return (
            {region.name: _detached(region) for region in self},
            self._metadata,
            self._num_ranks,
            self._likwid,
            self._perf_events,
            self._line_profile,
            self._file_path,
            self._is_root,
            totals,
            self._event_data_available,
            self._threads,
            self._tasks,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore_profile_results if self._profile is not None else ProfilingResults), self._state()

    def __copy__(self) -> ProfilingResults:
        restore, state = self.__reduce__()
        copied: ProfilingResults = restore(*state)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> ProfilingResults:
        if self._profile is None:
            from copy import deepcopy

            return ProfilingResults(*(deepcopy(value, memo) for value in self._state()))
        from copy import deepcopy

        # a profile cannot change, so both may have it
        profile, metadata, *rest = self._state()
        return _restore_profile_results(profile, deepcopy(metadata, memo), *rest)

    def __repr__(self) -> str:
        name = os.path.basename(self._file_path)
        return f"<ProfilingResults {name!r}: {len(self)} region(s) on {self.num_ranks} rank(s)>"


def _restore_profile_results(
    profile: _core.Profile, metadata: dict[str, Any], file_path: str, is_root: bool, in_memory: bool, num_ranks: int | None
) -> ProfilingResults:
    results = ProfilingResults._from_profile(profile, file_path=file_path, is_root=is_root, in_memory=in_memory)
    results._metadata = dict(metadata)
    results._num_ranks = num_ranks
    return results


def _detached(region: MPIRegion) -> MPIRegion:
    """The region without what ties it to its results, which make that again."""
    copies = {}
    for rank, one in region.regions.items():
        copies[rank] = one._copy()
        copies[rank]._exclusive = None
    return MPIRegion(region.name, copies)


def _first_start(region: MPIRegion) -> int:
    return min((one._statistic(START_MINIMUM) for one in region._called()), default=0)


def _region_summary(region: MPIRegion) -> dict[str, Any]:
    summary = region.get_summary()
    summary["tags"] = region.tags
    for name in ("p50", "p95", "p99"):
        summary[f"{name}_duration"] = getattr(region, f"{name}_duration")
    summary["rank_imbalance"] = region.rank_imbalance
    summary["rank_imbalance_pct"] = region.rank_imbalance_pct
    for name in ("p50", "p95", "p99"):
        summary[name] = summary[f"{name}_duration"]
    summary["imbalance"] = summary["rank_imbalance_pct"]
    return summary


def _rank_summary(region: MPIRegion, rank: int) -> dict[str, Any]:
    one = region[rank]
    percentiles = {f"{name}_duration": getattr(one, f"{name}_duration") for name in ("p50", "p95", "p99")}
    return {"name": region.name, "rank": rank, **one.get_summary(), **percentiles}


def _lane_tables(profile: _core.Profile) -> tuple[dict[int, list[ThreadInfo]], dict[int, list[TaskInfo]]]:
    from scope_profiler.concurrency import lane_tables_from_columns

    split: dict[int, dict[str, dict[str, list[Any]]]] = {}
    for kind, table in (("threads", profile.threads), ("tasks", profile.tasks)):
        if table is None:
            continue
        for position, rank in enumerate(table["ranks"]):
            rows = split.setdefault(rank, {}).setdefault(kind, {name: [] for name in table})
            for name, values in table.items():
                rows[name].append(values[position])
    threads, tasks = {}, {}
    for rank in sorted(split):
        of_rank = lane_tables_from_columns(rank, split[rank])
        if of_rank[0]:
            threads[rank] = of_rank[0]
        if of_rank[1]:
            tasks[rank] = of_rank[1]
    return threads, tasks


def merge_results(
    *sets: ProfilingResults, label: str | None = None, file_path: str | os.PathLike[str] | None = None
) -> ProfilingResults:
    """Results of several runs as one, with everything that was recorded.

    Regions must have different names. Earlier sets win where metadata differ; the number of ranks is the largest one. Threads
    and tasks of a rank that several sets have stay lanes of their own, with new numbers, and calls of such a rank are nested
    anew. Sets that are not :attr:`ProfilingResults.is_root` are left out; if all are, the first one is returned.

    Parameters
    ----------
    sets
        What to merge, one at least.
    label
        The label of the merged results. By default that of the first set that has one.
    file_path
        What they say as their ``file_path``.

    Raises
    ------
    ValueError
        There are no sets, two of them have a region of the same name, or only some of them have their single calls.
    """
    if not sets:
        raise ValueError("merge_results() needs at least one set of results")
    rooted = [results for results in sets if results.is_root]
    if not rooted:
        return sets[0]
    _check_names(rooted)
    profile = _core.union_profiles([results._to_profile() for results in rooted])
    merged = ProfilingResults._from_profile(profile, file_path="" if file_path is None else file_path)
    for results in reversed(rooted):
        merged._metadata.update(results._metadata)
    merged._num_ranks = max(results.num_ranks for results in rooted)
    merged.label = label or next((results.label for results in rooted if results.label), None)
    return merged


def _check_names(sets: Sequence[ProfilingResults]) -> None:
    seen: set[str] = set()
    for results in sets:
        for name in results.region_names:
            if name in seen:
                raise ValueError(
                    f"two sets of results have a region {name!r}: merged, its calls could not be told apart; rename it in one of them"
                )
            seen.add(name)
