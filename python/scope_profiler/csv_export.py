"""Runs as CSV, a line per call, for spreadsheets and data frames."""

from __future__ import annotations

from scope_profiler._exports import export_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_csv"]


def export_csv(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
) -> list[Path]:
    """Write one CSV file per run: UTF-8, a line per call, region by region.

    Columns: ``region``, ``rank``, ``call_index`` (in the region), ``start_ns``, ``end_ns`` (since the start of the run),
    ``duration_ns``, and as far as the run has them ``call_id``, ``parent_id``, ``thread``, ``thread_name``, ``task``,
    ``task_name``, ``await_ns``, ``gpu_ns``, ``source_file``, ``source_line``, ``metadata`` (JSON). Numbers that are not known are
    empty.

    Texts are in double quotes, with quotes in them doubled. So that a text is taken for nothing else, a backslash in it is doubled,
    a control character becomes ``\\n``, ``\\r``, ``\\t`` or ``\\xhh``, and one that begins with ``=``, ``+``, ``-`` or ``@``, which a
    spreadsheet would take for a formula, gets an apostrophe before it. The JSON of the metadata column has quotes only.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.csv`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed. With several runs, each run's label becomes part of
        its file's name. Directories are made.
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
        "csv", profiling_data, filepath, suffix=".csv", ranks=ranks, include=include, exclude=exclude, verbose=verbose
    )
