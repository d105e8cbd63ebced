"""The processes of a profile, and profiles of several processes as one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from . import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._core import Profile
    from .results import ProfilingResults

__all__ = ["ProcessInfo", "align", "label_of", "merge_files", "processes_of", "stack"]


class ProcessInfo(NamedTuple):
    """One process of a run: a rank, a worker, a program on another host."""

    rank: int
    """The number under which its calls are found."""
    pid: int
    """Its process id; 0 where it is not known."""
    name: str
    """What it is called, or an empty string."""
    clock_domain: int
    """Processes with the same number read the same monotonic clock (one boot of one host); 0: not known."""
    reference: str
    """What its clock was compared with: ``"realtime"`` (the calendar's clock), ``"rank 0"``, or an empty string."""
    start_ns: int
    """The first moment at which both clocks were read, in ns of its own clock."""
    start_reference_ns: int
    """The same moment in ns of the reference."""
    end_ns: int
    """The second such moment, at the end of the run."""
    end_reference_ns: int
    """The same moment in ns of the reference."""
    error_ns: int
    """How far a comparison may be off, in ns, by what was measured: half of the time that reading both clocks took. What the
    calendar's clocks of two hosts differ by is not in it. 0 within a clock domain; -1: not known."""

    @property
    def offset_ns(self) -> int:
        """Reference less own clock at the first moment."""
        return self.start_reference_ns - self.start_ns

    @property
    def drift(self) -> float:
        """By how much the reference runs faster: 1e-6 is a microsecond a second. 0.0 where there is one moment only."""
        own = self.end_ns - self.start_ns
        return (self.end_reference_ns - self.start_reference_ns - own) / own if own > 0 else 0.0


def processes_of(profile: Profile | None) -> dict[int, ProcessInfo]:
    """The processes of a profile by rank; empty for files of releases that did not tell."""
    table = profile.processes if profile is not None else None
    if table is None:
        return {}
    columns = (table["ranks"], *(table[name] for name in ProcessInfo._fields[1:]))
    return {int(row[0]): ProcessInfo(*row) for row in zip(*columns, strict=True)}


def label_of(processes: Mapping[int, ProcessInfo], rank: int) -> str:
    """A rank for people, as exported traces have it."""
    process = processes.get(rank)
    if process is None or not process.name:
        return f"rank {rank}"
    return f"{process.name} (rank {rank}, pid {process.pid})" if process.pid > 0 else f"{process.name} (rank {rank})"


def stack(runs: Sequence[ProfilingResults], names: Sequence[str | None], *, align: bool = True) -> ProfilingResults:
    """Results of different processes as one: every process is a rank.

    Parameters
    ----------
    runs
        At least one. Ranks keep their numbers where no two runs have the same one; else they are counted on from run to run.
    names
        What the processes of each run are called, or None.
    align
        Move times onto the clock of the first run's first process. Within one boot of one host nothing moves. Between hosts
        the calendar's clock is what they have in common: processes are in order up to its error.

    Raises
    ------
    ValueError
        There are no runs, or one was read without its calls and stands beside others, or would have to be moved.
    """
    from .results import ProfilingResults

    profiles = [run._to_profile() for run in runs]
    stacked = _core.stack_profiles(profiles, names, align=align)
    return ProfilingResults._from_profile(stacked)


def align(results: ProfilingResults) -> ProfilingResults:
    """The same run with all times on the clock of its first process. What a rank's clock was is told by ``processes``; one
    of which nothing is known keeps its times, and has -1 for its ``error_ns``.

    Raises ValueError for a profile that was read without its calls, where times would have to be moved.
    """
    return stack([results], [None])


def merge_files(paths: Iterable[str | os.PathLike[str]], *, align: bool = True) -> ProfilingResults:
    """Profiles (and spools) in files as one; each process is named after its file. See :func:`stack`.

    Raises what :func:`scope_profiler.load` raises, which names the file.
    """
    from .profile_io import load

    paths = [os.fspath(path) for path in paths]
    runs = [load(path) for path in paths]
    return stack(runs, [os.path.basename(path) for path in paths], align=align)
