"""asyncio tasks as lanes: the hooks where loops make tasks, while a run follows them.

The hooks belong to the process and serve every run (``_core.TaskHook``); the last run that goes takes them out.
"""

from __future__ import annotations

import threading
import weakref
from types import ModuleType
from typing import Any

from scope_profiler import _core, _imports

_lock = threading.RLock()
_following = 0
_patches: list[_Attribute | _Factory] = []


class _Attribute:
    """``create_task`` of a class or a loop, replaced by a hook."""

    def __init__(self, owner: Any, position: int) -> None:
        self._owner = weakref.ref(owner)
        self._own: list[Any] = [vars(owner)["create_task"]] if "create_task" in vars(owner) else []
        self._hook = _core.TaskHook(owner.create_task, position)
        owner.create_task = self._hook

    def stands_for(self, owner: Any) -> bool:
        return self._owner() is owner

    def remove(self) -> None:
        """Give the owner its attribute back, unless somebody else has replaced ours: then ours only passes on."""
        owner = self._owner()
        if owner is None or vars(owner).get("create_task") is not self._hook:
            return
        if self._own:
            owner.create_task = self._own[0]
        else:
            del owner.create_task


class _Factory:
    """The task factory of a loop that takes no attributes."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop  # such loops need not take weak references
        self._previous = loop.get_task_factory()
        self._hook = _core.TaskHook(self._previous or _make_task, 1)
        loop.set_task_factory(self._hook)

    def stands_for(self, owner: Any) -> bool:
        return self._loop is owner

    def remove(self) -> None:
        """Put the former factory back, unless the application has set another."""
        if self._loop.get_task_factory() is self._hook:
            self._loop.set_task_factory(self._previous)


def _make_task(loop: Any, coro: Any, **keywords: Any) -> Any:
    import asyncio

    return asyncio.Task(coro, loop=loop, **keywords)


def _patch_class(owner: type) -> None:
    with _lock:
        if _following and not isinstance(vars(owner).get("create_task"), _core.TaskHook):
            _patches.append(_Attribute(owner, 1))


def _asyncio_imported(asyncio: ModuleType) -> None:
    _core.use_asyncio(asyncio)
    _patch_class(asyncio.BaseEventLoop)


def _uvloop_imported(uvloop: ModuleType) -> None:
    _patch_class(uvloop.Loop)


_MODULES = {"asyncio": _asyncio_imported, "uvloop": _uvloop_imported}


class AsyncioHook:
    """Makes lanes of ``run`` from the tasks of asyncio's loops and uvloop's, until ``remove()``."""

    def __init__(self, run: _core.Run) -> None:
        global _following
        self._run = run
        with _lock:
            _following = _core.follow_tasks(run)
            if _following == 1:
                for name, callback in _MODULES.items():
                    _imports.when_imported(name, callback)

    def remove(self) -> None:
        """Make no more lanes; with the last run, take out every hook that is still ours."""
        global _following
        with _lock:
            _following = _core.unfollow_tasks(self._run)
            if _following:
                return
            for name, callback in _MODULES.items():
                _imports.forget(name, callback)
            while _patches:
                _patches.pop().remove()


def instrument_loop(loop: Any) -> None:
    """See ``ConcurrencyTracker.instrument_loop``."""
    with _lock:
        if not _following or any(patch.stands_for(loop) for patch in _patches):
            return
        if isinstance(getattr(type(loop), "create_task", None), _core.TaskHook) and "create_task" not in getattr(
            loop, "__dict__", ()
        ):
            return
        try:
            _patches.append(_Attribute(loop, 0))
        except (AttributeError, TypeError):
            _patches.append(_Factory(loop))
