"""Sampling between regions: what the threads of a run do while no region is open, and inside of which function they are else.

The sampler is a thread of the extension (src/python/stack_sampler.c). Its table goes beside the calls into the profile, as a group
``samples`` of the rank, which stack_samples.py reads.
"""

from __future__ import annotations

import os

from .modes import Mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._core import Run, StackSampler

__all__ = ["StackSampling"]

_VERSION = 1
_WITHOUT_PROGRAM = frozenset(("manager_state.py", "recording.py"))  # whose functions call no function of the program


class StackSampling(Mode):
    """Stack sampler: where the time outside of regions goes."""

    def __init__(self, hz: float, source_path: Callable[[str], str]) -> None:
        from . import _core

        if _core.StackSampler is None:
            raise ValueError(
                "sample_hz needs Python's global interpreter lock: in a free-threaded build the frames of a thread that runs cannot be read"
            )
        self._hz = hz
        self._source_path = source_path
        self._sampler: StackSampler | None = None
        self._told_lost = 0

    def opened(self, run: Run) -> None:
        """The sampler starts."""
        from . import _core

        self._sampler = _core.StackSampler(run, self._hz)

    def group(self) -> dict[str, Any] | None:
        """What was seen and is in no file yet."""
        if self._sampler is None:
            return None
        threads, stacks, samples = self._sampler.collect()
        own = _own(stacks)
        samples = [row for row in samples if not own[row[2]]]
        paths: dict[str, str] = {}
        for _, _, file, _ in stacks:
            if file not in paths:
                paths[file] = self._source_path(file)
        regions = sorted({row[1] for row in samples if row[1] is not None})
        numbers: dict[str | None, int] = {name: index for index, name in enumerate(regions)}
        columns = list(zip(*samples)) or [()] * 7
        datasets = {
            "thread_names": _texts([_plain(row[0]) for row in threads]),
            "thread_index": _integers([row[1] for row in threads]),
            "thread_native_id": _integers([row[2] for row in threads]),
            "region_names": _texts(regions),
            "stack_callers": _integers([row[0] for row in stacks]),
            "stack_functions": _texts([_plain(row[1]) for row in stacks]),
            "stack_files": _texts([_plain(paths[row[2]]) for row in stacks]),
            "stack_first_lines": _integers([row[3] for row in stacks]),
            "threads": _integers(columns[0]),
            "regions": _integers([numbers.get(name, -1) for name in columns[1]]),
            "stacks": _integers(columns[2]),
            "lines": _integers(columns[3]),
            "counts": _integers(columns[4]),
            "wall_ns": _integers(columns[5]),
            "cpu_ns": _integers(columns[6]),
        }
        attributes = {"version": _VERSION, "hz": self._hz, "lost": self._sampler.lost}
        samples_group = {"attributes": attributes, "datasets": datasets, "groups": {}}
        return {"attributes": {}, "datasets": {}, "groups": {"samples": samples_group}}

    def confirm(self) -> None:
        """What was collected last is in a file."""
        if self._sampler is not None:
            self._sampler.confirm()

    def problems(self) -> list[str]:
        """Samples that found no memory."""
        lost = self._sampler.lost if self._sampler is not None else 0
        new, self._told_lost = lost - self._told_lost, lost
        return [f"{new} samples of stacks found no memory and are missing"] if new else []

    def end(self) -> None:
        """The sampler ends; what it saw can still be collected."""
        if self._sampler is not None:
            self._sampler.stop()


def _own(stacks: Sequence[tuple[int, str, str, int]]) -> list[bool]:
    """Of each stack: whether the profiler is at work there, and not the program: setting up, finalizing, or in a function of this package."""
    package = os.path.dirname(_own.__code__.co_filename)
    within: list[bool] = []
    found: list[bool] = []
    for caller, _, file, _ in stacks:
        directory, name = os.path.split(file)
        ours = directory == package or directory.startswith(package + os.sep)
        within.append((caller >= 0 and within[caller]) or (directory == package and name in _WITHOUT_PROGRAM))
        found.append(ours or within[-1])
    return found


def _integers(values: Sequence[int]) -> tuple[tuple[int], Any]:
    from array import array

    return (len(values),), array("q", values)


def _texts(values: list[str]) -> tuple[tuple[int], list[str]]:
    return (len(values),), values


def _plain(text: str) -> str:
    """Text that a file can hold."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
