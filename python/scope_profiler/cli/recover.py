"""``scope-profiler recover SPOOL``: the calls that a process had recorded when it was killed, as a profile."""

from __future__ import annotations

import argparse
import os
import shlex

from scope_profiler import _core
from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Output, Progress, count_of, one_line, printable, reason_of
from scope_profiler.profile_io import write_profile
from scope_profiler.spool_profile import recover
from scope_profiler.spooling import split_name, worker_directories

DESCRIPTION = (
    "Write a profile of the calls in a spool: what a process had recorded and not written when it was killed. The spool is "
    "removed then, unless its process still lives, part of it could not be understood, or worker processes left calls of their own. Exits with 1 when it holds no call."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("spool", metavar="SPOOL", help="the file that the process left: OUTPUT.PID-N.spool")
    parser.add_argument("-o", "--output", metavar="FILE", help="profile to write (default: OUTPUT with .recovered)")
    parser.add_argument("--keep", action="store_true", help="leave the spool where it is")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the profile. 0: written, 1: there was nothing to write."""
    path = arguments.spool
    try:
        with Progress(f"reading {path}"):
            alive = _core.inspect_spool(path)["alive"]
            results, facts = recover(path)
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise CommandError(reason_of(error, path)) from None
    calls = sum(region.num_calls for region in results.get_regions())
    if calls:
        target = arguments.output or _free_name(path)
        try:
            with Progress(f"writing {target}"):
                write_profile(results, target)
        except (OSError, ValueError) as error:
            raise CommandError(reason_of(error, target)) from None
        output.line(printable(f"wrote {target}: {_describe(calls, len(results.region_names), facts)}"))
    else:
        output.line(printable(f"{path} holds no call that is not written"))
    if facts["incomplete"]:
        output.line(
            "the disk was full, or the spool at its limit while a file was written: "
            "later calls may have been in memory only, and are missing"
        )
    dropped = results.metadata.get("dropped_calls")
    if dropped:
        output.line(f"the spool had reached its limit: the oldest calls were dropped to keep newer ones ({dropped})")
    if facts["limited"]:
        output.line("recording had stopped at the limit of the spool's size: later calls are missing")
    workers = [] if alive else worker_directories(path)
    if workers:
        _tell_workers(path, workers, target if calls else arguments.output or _free_name(path), output)
    _dispose(path, output, keep=arguments.keep or bool(workers), alive=alive, damaged=facts["damaged_bytes"])
    return 0 if calls else 1


def _tell_workers(path: str, directories: list[str], target: str, output: Output) -> None:
    """The calls of processes that the run followed are not in the profile; the spool stays, as they are put together with it."""
    files = " ".join(f"{shlex.quote(directory)}/*" for directory in directories)
    command = f"scope-profiler merge {shlex.quote(path)} {files} -o {shlex.quote(target)}"
    output.line(printable(f"the calls of its worker processes are not in it, so {path} stays; all of them: {command}"))


def _free_name(spool: str) -> str:
    """Beside the spool, a name made of the output's that no file has."""
    named = split_name(spool)
    stem, suffix = os.path.splitext(named[0] if named else f"{spool}.h5")
    name = f"{stem}.recovered{suffix}"
    number = 1
    while os.path.lexists(name):
        number += 1
        name = f"{stem}.recovered-{number}{suffix}"
    return name


def _describe(calls: int, regions: int, facts: dict[str, int]) -> str:
    parts = [f"{count_of(calls, 'call')} of {count_of(regions, 'region')}"]
    if facts["open_calls"]:
        parts.append(f"{facts['open_calls']} of them open at the end")
    if facts["damaged_bytes"]:
        parts.append(f"{facts['damaged_bytes']} bytes of the spool were damaged")
    return ", ".join(parts)


def _dispose(path: str, output: Output, *, keep: bool, alive: bool, damaged: int) -> None:
    if keep:
        return
    if alive:
        output.line("its process is still running, so the spool stays")
    elif damaged:
        output.line(printable(f"{path} stays, because part of it could not be understood"))
    else:
        try:
            os.remove(path)
        except OSError as error:
            raise CommandError(f"cannot remove {path}: {one_line(error.strerror or error)}") from None
