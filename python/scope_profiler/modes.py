"""What a run records besides the times of its calls, one class a mode; which of them exclude each other says settings.py.

A mode is made, and complains, before anything of its run exists; begins with the run; is asked at every collection for what it
has; and ends with the run. Modes that act at every call have ``enter`` and ``leave``, which the extension calls
(src/python/call_probe.c): what ``enter`` returns goes to ``leave``, and None spares that call.
"""

from __future__ import annotations

import os
from sys import _getframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ._core import Profile, Run
    from .line_functions import LineFunctions
    from .profile_config import ProfilingConfig

    Group = dict[str, Any]

__all__ = ["Mode", "Modes", "caller"]


class Mode:
    """What the modes have in common: doing nothing where nothing is to be done."""

    needs_columns = False  # what it collects goes with the single calls, or beside them: the run cannot be streamed into its file
    acts = False  # it has enter() and leave()

    def begin(self) -> None:
        """The run is about to open. RuntimeError or OSError: it cannot."""

    def opened(self, run: Run) -> None:
        """The run is open."""

    def enter(self, region: str) -> object:
        """A call begins."""
        raise NotImplementedError

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended. True: the mode has waited for something that belongs to the call."""
        raise NotImplementedError

    def before_collection(self) -> None:
        """A finalize begins."""

    def group(self) -> Group | None:
        """What goes beside the calls into the profile, for this rank (see auxiliary.py)."""
        return None

    def gpu_ns(self, profile: Profile) -> Any:
        """GPU times of the profile's calls, or None."""
        return None

    def confirm(self) -> None:
        """What was collected last is in a file."""

    def problems(self) -> list[str]:
        """What is to be told after a collection."""
        return []

    def end(self) -> None:
        """The run is over. Idempotent."""


class Modes:
    """The modes of one run."""

    def __init__(self, config: ProfilingConfig, functions: LineFunctions) -> None:
        self._modes = list(_wanted(config, functions))
        self._events = config.perf_events
        self._pid = os.getpid()
        self._run: Run | None = None
        self._told_failures = 0

    @property
    def needs_columns(self) -> bool:
        """Whether the calls have to be collected in memory."""
        return any(mode.needs_columns for mode in self._modes)

    def options(self) -> dict[str, Any]:
        """What the recorder is to be told when it opens the run."""
        acting = [mode for mode in self._modes if mode.acts]
        instrument = None if not acting else (acting[0].enter, acting[0].leave) if len(acting) == 1 else _together(acting)
        return {"instrument": instrument, "perf_events": self._events}

    def begin(self) -> None:
        """The run is about to open; if one mode cannot begin, those before it end again."""
        for index, mode in enumerate(self._modes):
            try:
                mode.begin()
            except BaseException:
                for begun in self._modes[:index]:
                    begun.end()
                raise

    def opened(self, run: Run) -> None:
        """The run is open."""
        self._run = run
        for mode in self._modes:
            mode.opened(run)

    def before_collection(self) -> None:
        """A finalize begins."""
        if not self._inherited:
            for mode in self._modes:
                mode.before_collection()

    def describe(self, profile: Profile) -> dict[str, Any]:
        """What the modes have for a profile that was just collected, as keywords of ``replace_profile``."""
        assert self._run is not None
        found: dict[str, Any] = {}
        if self._inherited:
            return found
        aux = self.aux()
        if aux:
            found["aux"] = aux
        for mode in self._modes:
            gpu_ns = mode.gpu_ns(profile)
            if gpu_ns is not None:
                found["gpu_ns"] = gpu_ns
        return found

    def aux(self) -> dict[int, Group]:
        """What goes beside the calls into the profile: a group by rank, or nothing."""
        groups = [] if self._inherited else [group for group in (mode.group() for mode in self._modes) if group is not None]
        if not groups or self._run is None:
            return {}
        root: Group = {"attributes": {}, "datasets": {}, "groups": {}}
        for group in groups:
            root["groups"].update(group["groups"])
        return {self._run.rank: root}

    def confirm(self) -> None:
        """What was collected last is in a file."""
        for mode in self._modes:
            mode.confirm()

    def problems(self) -> list[str]:
        """What is to be told after a collection."""
        problems = [problem for mode in self._modes for problem in mode.problems()]
        failures, first = self._run.failures if self._run is not None else (0, None)
        if failures > self._told_failures:
            what = ", ".join(mode.__class__.__doc__.split(":")[0].lower() for mode in self._modes if mode.acts and mode.__class__.__doc__)
            problems.append(
                f"{what}: {failures - self._told_failures} of the calls into it failed, the first with {type(first).__name__}: {first}"
            )
            self._told_failures = failures
        return problems

    def end(self) -> None:
        """The run is over. A forked child leaves everything to its parent."""
        if not self._inherited:
            for mode in self._modes:
                mode.end()

    def line_records(self) -> list[dict[str, Any]]:
        """The line profiles that were collected last."""
        from .line_profiling import LineProfiling

        return [record for mode in self._modes if isinstance(mode, LineProfiling) for record in mode.last]

    @property
    def _inherited(self) -> bool:
        return self._pid != os.getpid()

    def __bool__(self) -> bool:
        return bool(self._modes)


def caller() -> FrameType | None:
    """The frame of the program that begins a call, for ``enter``; None on a thread without Python code."""
    try:
        return _getframe(2)
    except ValueError:
        return None


def _wanted(config: ProfilingConfig, functions: LineFunctions) -> Any:
    if config.use_line_profiler:
        from .line_profiling import LineProfiling

        yield LineProfiling(functions, full_paths=config.metadata_detail == "full")
    if config.use_nvtx:
        from .nvtx_ranges import NVTXRanges

        yield NVTXRanges(functions)
    if config.use_gpu_timing:
        from .gpu_timing import GPUTiming

        yield GPUTiming(config.gpu_timing_backend, sync_on_exit=config.gpu_sync_on_exit)
    if config.use_likwid:
        from .likwid_markers import LikwidMarkers

        yield LikwidMarkers()
    if config.perf_events:
        from .perf_counting import PerfCounting

        yield PerfCounting(config.perf_events)
    if config.sample_hz:
        from .run_metadata import absolute_source_path, short_source_path
        from .stack_sampling import StackSampling

        yield StackSampling(config.sample_hz, absolute_source_path if config.metadata_detail == "full" else short_source_path)
    if config.use_memray:
        from .memray import AllocationTrace

        yield AllocationTrace(config)


def _together(modes: list[Mode]) -> tuple[Callable[[str], object], Callable[[str, Any, int], object]]:
    """Several modes as one: the last to enter is the first to leave."""

    def enter(region: str) -> object:
        return [(mode, mode.enter(region)) for mode in modes]

    def leave(region: str, marks: Any, start: int) -> object:
        waited = [mode.leave(region, mark, start) for mode, mark in reversed(marks) if mark is not None]
        return any(waited)

    return enter, leave
