"""Runs as traces for https://ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

from scope_profiler._exports import Selection, labelled, output_path, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_chrome_trace"]


def export_chrome_trace(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
) -> list[Path]:
    """Write one trace in Chrome's JSON format per run: a process per rank, a thread per lane, an event per call.

    Times are microseconds since the start of the run, exact to the nanosecond. An event's arguments hold the call's ids, what it
    spent awaiting, its source and its metadata. Calls of a lane that overlap without nesting are moved to extra threads of the
    lane. Counters of perf events become counter tracks.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.trace.json`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed. With
        several runs, each run's label becomes part of its file's name. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name. If none matches, the trace has no calls.
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
    paths = []
    for label, tail, results in labelled(profiling_data):
        selection = Selection(results, "export_chrome_trace()", ranks, include, exclude)
        path = output_path(filepath, ".trace.json", tail)
        write(selection, path, "chrome_trace", label)
        paths.append(path)
        if verbose:
            print(f"Wrote {path}, to be opened at https://ui.perfetto.dev or in chrome://tracing")
    return paths
