"""trio tasks as lanes: an instrument for every runner that starts while a run follows tasks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from scope_profiler import _core, _imports

_Runner = Any


class TrioHook:
    """Adds an instrument of ``run`` to each trio runner, until ``remove()``.

    Every way into trio makes its runner by one function, ``setup_runner``. It is wrapped where it is looked up, which is
    independent of how ``trio.run`` was imported.
    """

    def __init__(self, run: _core.Run) -> None:
        self._run: _core.Run | None = run
        self._module: Any = None
        self._original: Any = None
        self._installed: Any = None
        self._callback: Any = self._install  # a cycle, until it is removed: the run must not wait for the collector
        _imports.when_imported("trio", self._callback)

    def _install(self, trio: ModuleType) -> None:
        module: Any = trio._core._run
        original = module.setup_runner

        def setup_runner(*args: Any, **keywords: Any) -> _Runner:
            runner = original(*args, **keywords)
            run = hook._run
            if run is not None:
                runner.instruments.add_instrument(_core.TrioInstrument(run))
            return runner

        hook = self
        self._module, self._original, self._installed = module, original, setup_runner
        module.setup_runner = setup_runner
        self._adopt_running(trio)

    def _adopt_running(self, trio: ModuleType) -> None:
        """Follow the runner that is running on this thread already; its current task is a lane from now on."""
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return
        if self._run is None:
            return
        instrument = _core.TrioInstrument(self._run)
        trio.lowlevel.add_instrument(instrument)
        instrument.before_task_step(task)

    def remove(self) -> None:
        """Give trio its function back, unless somebody else has replaced ours since: then ours only passes on."""
        _imports.forget("trio", self._callback)
        if self._module is not None and self._module.setup_runner is self._installed:
            self._module.setup_runner = self._original
        self._installed = self._original = self._callback = self._run = None
