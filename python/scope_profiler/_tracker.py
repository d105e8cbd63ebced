"""The registry of one run's threads, tasks and greenlets, as ``scope_profiler.concurrency`` offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scope_profiler import _core
from scope_profiler.concurrency import TASK_COLUMNS

if TYPE_CHECKING:
    import numpy as np

_THREAD_COLUMNS = ("index", "ident", "native_id", "name", "daemon", "start_ns", "end_ns", "cpu_ns")
_TIMES = frozenset({"start_ns", "end_ns", "created_ns", "done_ns"})
_UNKNOWN = -1


class ConcurrencyTracker:
    """Threads, asyncio tasks and greenlets of one run.

    One tracker belongs to one configuration, so that two managers that record at the same time share no numbering. It can
    also be used without a manager: ``install()`` then opens a run of its own.

    Parameters
    ----------
    track_async : bool
        Follow asyncio tasks and greenlets too, not only threads.

    Attributes
    ----------
    track_async : bool
        As given.
    """

    def __init__(self, track_async: bool = False) -> None:
        self.track_async = bool(track_async)
        self._recorder: _core.Recorder | None = None
        self._run: _core.Run | None = None
        self._thread_records: dict[int, _core.ThreadRecord] = {}

    def _attach(self, recorder: _core.Recorder, run: _core.Run) -> None:
        """Speak of ``run``, whose hooks ``recorder`` has put in place."""
        self._recorder = recorder
        self._run = run
        self._thread_records = {}

    def install(self) -> None:
        """Put the hooks for threads, and for tasks and greenlets with ``track_async``, in place.

        Idempotent. The calling thread is registered; others are at their first bytecode, or at their first region if
        they are running already.
        """
        if self._recorder is None:
            self._recorder = _core.Recorder()
            self._run = self._recorder.open(track_threads=True, track_async=self.track_async)
        else:
            self._recorder.install_hooks()

    def uninstall(self) -> None:
        """Take every hook out again; what others put in meanwhile stays. The tables can still be read."""
        if self._recorder is not None:
            self._recorder.remove_hooks()

    def instrument_loop(self, loop: Any) -> None:
        """Follow the tasks of a loop whose class is not hooked: neither asyncio's, nor one derived from it, nor uvloop's.

        Creation of tasks is wrapped on the loop object where it takes attributes; else a task factory is set, which calls
        the one that was there. Both are undone with the last run that follows tasks. Idempotent.
        """
        from scope_profiler._asyncio import instrument_loop

        instrument_loop(loop)

    def current_thread(self) -> _core.ThreadRecord:
        """The calling thread's record; the thread is registered if it was not.

        Raises
        ------
        RuntimeError
            Before ``install()``, and after the run of this tracker has been replaced.
        """
        if self._run is None:
            raise RuntimeError("no run: call install() first")
        return self._known(self._run.current_thread())

    @property
    def threads(self) -> list[_core.ThreadRecord]:
        """Every registered thread, in order of registration; those that recorded nothing included."""
        return [] if self._run is None else [self._known(record) for record in self._run.thread_records()]

    def _known(self, record: _core.ThreadRecord) -> _core.ThreadRecord:
        """The one object by which this tracker shows a thread."""
        return self._thread_records.setdefault(record.index, record)

    @property
    def tasks(self) -> list[_core.TaskRecord]:
        """Every task and greenlet that was followed, in order of creation."""
        return [] if self._run is None else self._run.task_records()

    def snapshot(self, origin_ns: int = 0) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """The tables of threads and tasks as columns.

        Parameters
        ----------
        origin_ns : int
            Subtracted from every time stamp, ns of ``time.perf_counter_ns()``. Unknown times stay -1.

        Returns
        -------
        dict
            ``{"threads": {...}, "tasks": {...}}``, each a dict of arrays of equal length: int64, ``daemon`` int8, and
            names as object arrays of str. Empty arrays when nothing was tracked.
        """
        profile = None if self._run is None else self._run.tables()
        shift = 0 if self._run is None else self._run.start_ns - int(origin_ns)
        return {
            "threads": _columns(None if profile is None else profile.threads, _THREAD_COLUMNS, shift),
            "tasks": _columns(None if profile is None else profile.tasks, TASK_COLUMNS, shift),
        }


def _columns(
    table: dict[str, Any] | None, names: tuple[str, ...], shift: int
) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np

    made: dict[str, np.ndarray[Any, Any]] = {}
    for name in names:
        values = [] if table is None else table[name]
        if name in ("name", "kind", "coro_name"):
            made[name] = np.array(list(values), dtype=object)
            continue
        column = np.array(values, dtype=np.int64)
        if name in _TIMES:
            column[column != _UNKNOWN] += shift
        made[name] = column.astype(np.int8) if name == "daemon" else column
    return made
