"""``scope-profiler merge FILE... -o FILE``: profiles of several processes, ranks or hosts on one timeline."""

from __future__ import annotations

import argparse
import glob
import os
from typing import TYPE_CHECKING

from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Output, Progress, count_of, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scope_profiler.processes import ProcessInfo

DESCRIPTION = (
    "Put profiles, and spools, of several processes into one: each process becomes a rank, named after its file, and keeps its "
    "threads and tasks. Times of other hosts are moved onto the clock of the first file."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles and spools, or patterns of their names")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="profile to write")
    parser.add_argument("--no-align", action="store_true", help="leave all times as they were recorded")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read, merge and write. 0."""
    from scope_profiler.processes import merge_files
    from scope_profiler.profile_io import write_profile

    paths = [path for pattern in arguments.files for path in _expand(pattern)]
    try:
        with Progress(f"reading {count_of(len(paths), 'file')}"):
            results = merge_files(paths, align=not arguments.no_align)
        with Progress(f"writing {arguments.output}"):
            write_profile(results, arguments.output)
    except (OSError, ValueError) as error:
        raise CommandError(_told(error)) from None
    for path, times in _repeated(paths).items():
        output.line(printable(f"{os.path.basename(path)}: it is named {times} times, and its calls are counted as often"))
    processes = results.processes
    for process in processes.values():
        if process.error_ns < 0 and len(processes) > 1 and not arguments.no_align:
            name = process.name or f"rank {process.rank}"
            output.line(printable(f"{name}: nothing is known of its clock; its times are as they were recorded"))
    calls = sum(region.num_calls for region in results.get_regions())
    ranks = int(results.num_ranks)
    distinct = ranks - _repeated_processes(processes.values())
    counted = f"{count_of(calls, 'call')} of {count_of(distinct, 'process', 'processes')}"
    if distinct < ranks:
        counted += f" in {ranks} ranks: each file of a run is a rank of its own"
    output.line(printable(f"wrote {arguments.output}: {counted}"))
    return 0


def _repeated(paths: list[str]) -> dict[str, int]:
    """The files that are named more than once, by their first name, and how often."""
    found: dict[tuple[int, int], list[str]] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # it has been read, and is gone by now
        found.setdefault((status.st_dev, status.st_ino), []).append(path)
    return {names[0]: len(names) for names in found.values() if len(names) > 1}


def _repeated_processes(processes: Iterable[ProcessInfo]) -> int:
    """How many are a process of which an earlier one is another part: no two runs begin in the same ns of one process."""
    known = [(one.pid, one.clock_domain, one.start_ns) for one in processes if one.pid and one.clock_domain]
    return len(known) - len(set(known))


def _expand(pattern: str) -> list[str]:
    """The files that a pattern names; a name that is no pattern stays, so that its absence is told."""
    if os.path.exists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    return sorted(glob.glob(pattern)) or [pattern]


def _told(error: OSError | ValueError) -> str:
    text = one_line(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = os.fspath(error.filename)
        if isinstance(error, FileNotFoundError):
            return one_line(f"{name}: no such file")
        text = one_line(error.strerror if str(name) in error.strerror else f"{name}: {error.strerror}")
    return text
