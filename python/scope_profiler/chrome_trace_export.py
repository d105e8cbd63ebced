"""Runs as traces for https://ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

from scope_profiler._exports import export_files

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

    Events of other categories than ``scope-profiler`` are no calls: ``task`` is a task from its first step to its end, with a flow
    from the call that created it; ``await`` is where a task awaited. How long it did is exact; where in a call is not recorded,
    and drawn where the call has the longest gap between the calls inside.

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
    return export_files(
        "chrome_trace", profiling_data, filepath, suffix=".trace.json", ranks=ranks, include=include, exclude=exclude,
        verbose=verbose, hint=", to be opened at https://ui.perfetto.dev or in chrome://tracing", calls_needed=False,
    )  # fmt: skip
