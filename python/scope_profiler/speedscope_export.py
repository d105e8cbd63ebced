"""Runs as files for https://www.speedscope.app."""

from __future__ import annotations

from scope_profiler._exports import export_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_speedscope"]


def export_speedscope(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
) -> list[Path]:
    """Write one speedscope file per run, with one profile per lane: per thread, and per task in runs that followed tasks.

    Times are seconds from the first call. Calls of a lane that overlap without nesting are moved to extra profiles of the lane.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.speedscope.json`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed.
        With several runs, each run's label becomes part of its file's name. Directories are made.
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
        If there is nothing to export: no results, no such rank, no region that matches, no call.
    EventDataUnavailableError
        If the results were read without their calls.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    """
    return export_files(
        "speedscope", profiling_data, filepath, suffix=".speedscope.json", ranks=ranks, include=include, exclude=exclude,
        verbose=verbose, hint=", to be opened at https://www.speedscope.app",
    )  # fmt: skip
