"""Runs as traces in Perfetto's own format, for https://ui.perfetto.dev and its trace processor."""

from __future__ import annotations

from scope_profiler._exports import export_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_perfetto"]


def export_perfetto(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
) -> list[Path]:
    """Write one Perfetto trace (protocol buffers) per run: a process per rank, a track per thread, tasks below their threads.

    Times are ns since the start of the run. A slice per call, of category ``call``, has its ids, await time, GPU time and
    metadata as arguments, and its place in the source. Around them, a slice per lane shows a thread from its start to its end
    (category ``thread``, with its CPU time and system ids), or a task from its first step to its end (``task``, with steps,
    running and awaiting time). A flow leads from where a task was created to its first step. Slices named ``awaiting``
    (category ``await``) show where a task awaited: how long it did is exact; where in a call is not recorded, and drawn where the
    call has the longest gap between the calls inside. Without a choice of regions, threads and tasks that recorded no call
    are shown too.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.pftrace`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed. With
        several runs, each run's label becomes part of its file's name. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    verbose
        Print a line per file.

    Returns
    -------
    list of Path
        The files, in the order of the runs; empty on a process that does not have the run (MPI).

    Raises
    ------
    ValueError
        If no results were given, or a rank that the run does not have.
    EventDataUnavailableError
        If the results were read without their calls.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    """
    return export_files(
        "perfetto", profiling_data, filepath, suffix=".pftrace", ranks=ranks, include=include, exclude=exclude, verbose=verbose,
        hint=", to be opened at https://ui.perfetto.dev", calls_needed=False,
    )  # fmt: skip
