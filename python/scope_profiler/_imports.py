"""Do something when a module is imported, without importing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_lock = threading.RLock()
_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}


class _Loader:
    """The module's own loader, which tells who waits once the module has run."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: only its first run goes through this one.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            callbacks = _waiting.pop(module.__name__, [])
            _remove_finder_if_idle()
        for callback in callbacks:
            callback(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder:
    """Lets the other finders find a module that somebody waits for, and puts ``_Loader`` before its loader."""

    def __init__(self) -> None:
        self._busy = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _waiting or getattr(self._busy, "name", None) == name:
            return None
        self._busy.name = name
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                    return spec
        finally:
            self._busy.name = None
        return None


_finder = _Finder()


def _remove_finder_if_idle() -> None:
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback(module)`` once the module ``name`` has been imported: at once if it has been already."""
    with _lock:
        module = sys.modules.get(name)
        ready = module is not None and not getattr(module.__spec__, "_initializing", False)
        if not ready:
            _waiting.setdefault(name, []).append(callback)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
    if ready and module is not None:
        callback(module)


def forget(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Wait no longer; nothing happens if the callback was not waiting."""
    with _lock:
        callbacks = _waiting.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            _waiting.pop(name, None)
        _remove_finder_if_idle()
