"""Runs as folded stacks, for flamegraph.pl, inferno and speedscope."""

from __future__ import annotations

from scope_profiler._exports import export_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_folded"]


def export_folded(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    by_lane: bool = False,
    verbose: bool = True,
) -> list[Path]:
    """Write one file of folded stacks per run: a line per call path, ``outer;inner 1500``, with the ns spent in it exclusively.

    The format has no escapes: in names, a semicolon becomes a colon, a control character a space, and no name at all ``-``.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.folded`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed. With
        several runs, each run's label becomes part of its file's name. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    by_lane
        Keep threads and tasks apart, each below a frame of its own; else they are summed.
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
        "folded", profiling_data, filepath, suffix=".folded", ranks=ranks, include=include, exclude=exclude, verbose=verbose,
        by_lane=by_lane,
    )  # fmt: skip
