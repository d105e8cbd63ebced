"""The hooks on task libraries that a run with ``track_async`` puts in place; called by the extension."""

from __future__ import annotations

from typing import Protocol

from scope_profiler import _core
from scope_profiler._asyncio import AsyncioHook
from scope_profiler._trio import TrioHook


class Hook(Protocol):
    """Something put in place for one run."""

    def remove(self) -> None:
        """Take out what is still ours."""


def install(run: _core.Run) -> list[Hook]:
    """Follow the tasks of every library that the process uses, or comes to use."""
    return [AsyncioHook(run), TrioHook(run)]


def after_fork(_: object = None) -> None:
    """In a forked child: locks that another thread of the parent may have held are free again."""
    import threading

    from scope_profiler import _asyncio, _imports

    _asyncio._lock = threading.RLock()
    _imports._lock = threading.RLock()


def remove(hooks: list[Hook]) -> None:
    """Take the hooks out, the last first."""
    for hook in reversed(hooks):
        hook.remove()
