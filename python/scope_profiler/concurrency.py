"""Lanes: which thread, asyncio task or greenlet a call ran on.

A call belongs to a lane, and only calls of one lane can nest. The lane of a call is its task if it ran inside one, else its
thread. Threads and tasks are numbered from 0 in each rank and described once, in two tables, which :class:`ThreadInfo` and
:class:`TaskInfo` are the rows of.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import ArrayLike

    from ._core import TaskRecord as TaskRecord
    from ._core import ThreadRecord as ThreadRecord
    from ._tracker import ConcurrencyTracker as ConcurrencyTracker

__all__ = [
    "CPU_SAMPLE_MASK",
    "ConcurrencyTracker",
    "NO_TASK",
    "TaskInfo",
    "TaskRecord",
    "ThreadInfo",
    "ThreadRecord",
    "UNKNOWN",
    "lane_ids",
    "lane_tables_from_columns",
]

#: The task number of a call that ran outside of every task.
NO_TASK = -1
#: A time or number that is not known: the end of a thread that is still alive, say.
UNKNOWN = -1
#: Of releases that sampled the CPU time of live threads: one sample in 256 calls. It is read exactly now, at collection.
CPU_SAMPLE_MASK = 255

_NS = 1_000_000_000
_NAN = float("nan")


def _seconds(ns: int) -> float:
    """Rounded once: an int is divided by an int."""
    return int(ns) / _NS


def _seconds_or_none(ns: int) -> float | None:
    return None if int(ns) == UNKNOWN else int(ns) / _NS


def ns_of(seconds: float | None) -> int:
    """The way back; -1 for what is not known: None or NaN."""
    return UNKNOWN if seconds is None or seconds != seconds else round(seconds * _NS)


def _between(start: float, end: float) -> float:
    """Seconds from one time to another: both are whole ns, and so is what lies between, which their difference may miss."""
    return round((end - start) * _NS) / _NS


class ThreadInfo:
    """One thread of a run.

    Attributes
    ----------
    index
        Its number in the rank: what ``Region.thread_ids`` holds.
    rank
        The rank it belongs to.
    name, ident, native_id, daemon
        As ``threading`` knows it; ``native_id`` is the system's number of it.
    start_time, end_time
        Seconds since the start of the run; ``end_time`` is None if the thread was alive when the run was collected.
    cpu_time
        Seconds of CPU it used in its whole life, up to its end or the collection; NaN where that is not known: of a thread that was
        killed with its process.
    cpu_before
        That part of it which it had used before ``start_time``, and so not in the run; 0.0 where that is not known.
    """

    __slots__ = ("cpu_before", "cpu_time", "daemon", "end_time", "ident", "index", "name", "native_id", "rank", "start_time")

    def __init__(
        self,
        index: int,
        rank: int,
        name: str,
        ident: int,
        native_id: int,
        daemon: bool,
        start_ns: int,
        end_ns: int,
        cpu_ns: int,
        cpu_before_ns: int = 0,
    ) -> None:
        self.index: int = int(index)
        self.rank: int = int(rank)
        self.name: str = str(name)
        self.ident: int = int(ident)
        self.native_id: int = int(native_id)
        self.daemon: bool = bool(daemon)
        self.start_time: float = _seconds(start_ns)
        self.end_time: float | None = _seconds_or_none(end_ns)
        self.cpu_time: float = _seconds(cpu_ns) if int(cpu_ns) >= 0 else _NAN
        self.cpu_before: float = _seconds(cpu_before_ns)

    @property
    def run_cpu_time(self) -> float:
        """Seconds of CPU that it used in the run; NaN where ``cpu_time`` is."""
        return max(_between(self.cpu_before, self.cpu_time), 0.0) if self.cpu_time >= 0 else _NAN

    @property
    def alive(self) -> bool:
        """Whether it was still running when the run was collected."""
        return self.end_time is None

    @property
    def wall_time(self) -> float | None:
        """Seconds from its start to its end; None while it is alive."""
        return None if self.end_time is None else _between(self.start_time, self.end_time)

    def __repr__(self) -> str:
        state = "alive" if self.alive else f"{self.wall_time:.6f} s wall"
        cpu = f"{self.cpu_time:.6f} s CPU" if self.cpu_time >= 0 else "CPU time unknown"
        return f"<ThreadInfo {self.index} {self.name!r} of rank {self.rank}: {cpu}, {state}>"


class TaskInfo:
    """One asyncio task or greenlet of a run.

    Attributes
    ----------
    index
        Its number in the rank: what ``Region.task_ids`` holds.
    rank
        The rank it belongs to.
    kind
        ``"task"`` or ``"greenlet"``.
    name, coro_name
        The task's name; the qualified name of its coroutine, or of what the greenlet runs.
    thread_index
        The number of the thread it ran on last.
    created_time, done_time
        Seconds since the start of the run; ``done_time`` is None if it had not finished when the run was collected.
    steps
        How often it got its thread.
    running_time, awaiting_time
        Seconds it held its thread, and seconds between those steps.
    creator_thread, creator_task
        The lane that made it: numbers of a thread (-1: not known) and of a task (-1: the thread was in none).
    """

    __slots__ = (
        "awaiting_time",
        "coro_name",
        "created_time",
        "creator_task",
        "creator_thread",
        "done_time",
        "index",
        "kind",
        "name",
        "rank",
        "running_time",
        "steps",
        "thread_index",
    )

    def __init__(
        self,
        index: int,
        rank: int,
        kind: str,
        name: str,
        coro_name: str,
        thread_index: int,
        created_ns: int,
        done_ns: int,
        steps: int,
        running_ns: int,
        suspended_ns: int,
        creator_thread: int = -1,
        creator_task: int = -1,
    ) -> None:
        self.index: int = int(index)
        self.rank: int = int(rank)
        self.kind: str = str(kind)
        self.name: str = str(name)
        self.coro_name: str = str(coro_name)
        self.thread_index: int = int(thread_index)
        self.created_time: float = _seconds(created_ns)
        self.done_time: float | None = _seconds_or_none(done_ns)
        self.steps: int = int(steps)
        self.running_time: float = _seconds(running_ns)
        self.awaiting_time: float = _seconds(suspended_ns)
        self.creator_thread: int = int(creator_thread)
        self.creator_task: int = int(creator_task)

    @property
    def done(self) -> bool:
        """Whether it had finished when the run was collected."""
        return self.done_time is not None

    @property
    def wall_time(self) -> float | None:
        """Seconds from its creation to its end; None if it had not finished."""
        return None if self.done_time is None else _between(self.created_time, self.done_time)

    def __repr__(self) -> str:
        return (
            f"<TaskInfo {self.index} {self.name!r} ({self.kind}) of rank {self.rank}: "
            f"{self.running_time:.6f} s running, {self.awaiting_time:.6f} s awaiting>"
        )


def lane_ids(thread_ids: ArrayLike, task_ids: ArrayLike | None) -> np.ndarray:
    """The lane of every call, as one int64 each: the task where there is one (>= 0), else ``-2 - thread``.

    -1 is left for calls of which neither is known. ``task_ids`` is None for a run that followed threads only.
    """
    import numpy as np

    threads = -2 - np.asarray(thread_ids, dtype=np.int64)
    if task_ids is None:
        return threads
    tasks = np.asarray(task_ids, dtype=np.int64)
    return np.where(tasks >= 0, tasks, threads)


THREAD_COLUMNS = ("index", "name", "ident", "native_id", "daemon", "start_ns", "end_ns", "cpu_ns")
TASK_COLUMNS = (
    "index",
    "kind",
    "name",
    "coro_name",
    "thread_index",
    "created_ns",
    "done_ns",
    "steps",
    "running_ns",
    "suspended_ns",
)
_BEFORE_COLUMN = "cpu_before_ns"  # as below
_CREATOR_COLUMNS = ("creator_thread", "creator_task")  # files of release 0.7.5 do not have them


def _rows(table: Mapping[str, Sequence[Any]] | None, columns: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name] for name in columns)) if table else ()


def lane_tables_from_columns(
    rank: int, tables: Mapping[str, Mapping[str, Sequence[Any]] | None]
) -> tuple[list[ThreadInfo], list[TaskInfo]]:
    """The rows of one rank's lane tables.

    ``tables`` may have ``"threads"`` and ``"tasks"``, each a mapping of the columns that a file stores
    (``index name ident native_id daemon start_ns end_ns cpu_ns``; ``index kind name coro_name thread_index created_ns done_ns
    steps running_ns suspended_ns``; times in ns from the start of the run, -1 unknown). A table that is not there has no rows.
    """
    table = tables.get("threads")
    known: tuple[str, ...] = (*THREAD_COLUMNS, _BEFORE_COLUMN) if table and _BEFORE_COLUMN in table else THREAD_COLUMNS
    threads = [ThreadInfo(index, rank, *rest) for index, *rest in _rows(table, known)]
    table = tables.get("tasks")
    known = TASK_COLUMNS + _CREATOR_COLUMNS if table and set(table).issuperset(_CREATOR_COLUMNS) else TASK_COLUMNS
    tasks = [TaskInfo(index, rank, *rest) for index, *rest in _rows(table, known)]
    return threads, tasks


# What records and tracks is imported when it is asked for: reading a profile needs none of it.
_HOMES = {"ConcurrencyTracker": "_tracker", "TaskRecord": "_core", "ThreadRecord": "_core"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__package__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
