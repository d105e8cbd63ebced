"""A trace of allocations beside the profile, by the memray package."""

from __future__ import annotations

import os

from .modes import Mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .profile_config import ProfilingConfig

__all__ = ["AllocationTrace", "MemrayAllocationTracker", "default_path"]


class MemrayAllocationTracker:
    """One trace of the process's allocations, from :meth:`start` to :meth:`stop`. An older file of the name is replaced.

    Raises
    ------
    ImportError
        memray cannot be imported.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        native_traces: bool = False,
        trace_python_allocators: bool = False,
        follow_fork: bool = False,
    ) -> None:
        try:
            from importlib import import_module

            memray: Any = import_module("memray")  # not followed by type checkers: its own names have no types
        except ImportError as error:
            raise ImportError(
                f"use_memray needs the package memray, which cannot be imported ({error}); install it with: "
                "pip install 'scope-profiler[memray]'"
            ) from error
        self.path = path
        self._make: Callable[[], Any] = lambda: memray.Tracker(
            destination=memray.FileDestination(os.fspath(path), overwrite=True),
            native_traces=native_traces,
            trace_python_allocators=trace_python_allocators,
            follow_fork=follow_fork,
        )
        self._tracker: Any = None

    def start(self) -> None:
        """Trace from here on. RuntimeError: the process is traced already. OSError: the file cannot be written.

        On a thread of its own: memray takes a frame too many off the stack for each one that was there when its thread began
        to trace and returns later, as all between this function and the program's do. Other threads' stacks it gets right.
        """
        self._tracker = _on_another_thread(self._begin)

    def _begin(self) -> Any:
        from scope_profiler import _core

        if _core.is_planted_link(self.path):
            from errno import EACCES

            raise PermissionError(EACCES, "this is a link of another user, which is not followed", os.fspath(self.path))
        tracker = self._make()
        tracker.__enter__()
        return tracker

    def stop(self) -> None:
        """The trace is complete. Idempotent."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.__exit__(None, None, None)


def _on_another_thread(function: Callable[[], Any]) -> Any:
    """What ``function`` returns or raises there."""
    from _thread import allocate_lock, start_new_thread

    done = allocate_lock()
    done.acquire()
    answer: list[Any] = [None, None]

    def run() -> None:
        try:
            answer[0] = function()
        except BaseException as error:
            answer[1] = error
        finally:
            done.release()

    start_new_thread(run, ())
    done.acquire()
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


class AllocationTrace(Mode):
    """Allocations: a trace from the start of the run to its first collection."""

    def __init__(self, config: ProfilingConfig) -> None:
        path = config.memory_profile_path or default_path(config.file_path)
        if config.link is not None and config.link.size > 1:
            path = ranked(path, config.link.rank)
        directory = os.path.dirname(os.path.abspath(path))
        if not os.access(directory, os.W_OK):
            what = "is not writable" if os.path.isdir(directory) else "does not exist"
            raise OSError(f"memory_profile_path: the directory {directory} {what}")
        if config.writes_file and os.path.abspath(path) == os.path.abspath(config.file_path):
            raise ValueError(f"memory_profile_path: {path!r} is where the profile goes")
        self.path = config.memory_profile_path = path
        self._tracker = MemrayAllocationTracker(
            path,
            native_traces=config.memray_native_traces,
            trace_python_allocators=config.memray_trace_python_allocators,
            follow_fork=config.memray_follow_fork,
        )

    def begin(self) -> None:
        """Trace from here on."""
        try:
            self._tracker.start()
        except RuntimeError as error:
            raise RuntimeError(f"use_memray: {error}") from error

    def before_collection(self) -> None:
        """The trace ends before the profile's own work would be in it."""
        self._tracker.stop()

    end = before_collection


def default_path(file_path: str) -> str:
    """Beside the profile: ``run.h5`` gives ``run.memray.bin``."""
    return os.path.splitext(file_path)[0] + ".memray.bin"


def ranked(path: str, rank: int) -> str:
    """One rank's own: ``run.memray.bin`` gives ``run.memray.rank3.bin``."""
    stem, ending = os.path.splitext(path)
    return f"{stem}.rank{rank}{ending}"
