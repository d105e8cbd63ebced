"""``scope-profiler top PID|SPOOL``: what a running program has recorded so far, read from its spool without stopping it."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from scope_profiler import _core
from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Output, one_line, printable
from scope_profiler.results import ProfilingResults
from scope_profiler.spool_profile import recover

DESCRIPTION = (
    "Show the regions, threads and tasks of a program that records into a spool, again and again until Ctrl-C or its end. "
    "Calls that are in a file already (of a checkpoint) are not counted. Each look reads the whole spool."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("target", metavar="PID|SPOOL", help="a process id, or the file OUTPUT.PID-N.spool")
    parser.add_argument("--once", action="store_true", help="show one look and end")
    parser.add_argument("--json", action="store_true", help="one look as a JSON object: times in ns, null where not known")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks (default: 1)")
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="lines of each table (default: 20)")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not an interval from 0.05 to 86400 seconds")
    return value


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show it. 0 also when the program ends meanwhile."""
    path = _find(arguments.target)
    if arguments.json:
        output.line(json.dumps(_facts(path)))
        return 0
    seen = False
    try:
        while True:
            if seen and not os.path.exists(path):
                output.line("the run has ended")
                return 0
            lines = _look(path, arguments.rows)
            if not arguments.once:
                output.clear()
            output.lines(lines)
            output.flush()
            seen = True
            if arguments.once:
                return 0
            time.sleep(arguments.interval)
    except KeyboardInterrupt:
        return 0


def _find(target: str) -> str:
    """The spool itself, or the one that the process has mapped."""
    if not target.isdecimal() or os.path.exists(target):
        return target
    try:
        with open(f"/proc/{target}/maps", "rb") as maps:
            mapped = {os.fsdecode(line.rstrip(b"\n").partition(b"/")[2]) for line in maps}
    except FileNotFoundError:
        raise CommandError(f"there is no process {target}") from None
    except OSError as error:
        raise CommandError(f"process {target}: {error.strerror or error}") from None
    found = sorted(_unescaped("/" + path) for path in mapped if path.endswith(".spool"))
    if not found:
        raise CommandError(f"process {target} records into no spool")
    return max(found, key=lambda path: os.stat(path).st_mtime_ns if os.path.exists(path) else 0)


def _unescaped(path: str) -> str:
    """A path of a list of mappings, in which the kernel writes a newline as \\012 and a backslash as itself."""
    return path if os.path.exists(path) else path.replace("\\012", "\n")


def _read(path: str) -> tuple[dict[str, Any], ProfilingResults]:
    try:
        facts = _core.inspect_spool(path)
        return facts, recover(path)[0]
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        text = one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
        raise CommandError(text if path in text else f"{path}: {text}") from None


def _facts(path: str) -> dict[str, Any]:
    facts, results = _read(path)
    regions = [
        {
            "name": region.name,
            "calls": region[0].num_calls,
            "open": sum(1 for mark in region[0].event_metadata or () if mark.get("open")),
            "total_ns": round(float(region[0].total_duration) * 1e9),
        }
        for region in results.get_regions()
    ]
    threads = [
        {"name": thread.name, "alive": thread.end_time is None, "native_id": thread.native_id}
        for thread in (results.threads[0] if results.threads else ())
    ]
    tasks = [
        {"name": task.name, "coroutine": task.coro_name, "done": task.done_time is not None, "steps": task.steps}
        for task in (results.tasks[0] if results.tasks else ())
    ]
    return {
        "pid": facts["pid"],
        "alive": facts["alive"],
        "output": facts["output"],
        "running_ns": _core.now_ns() - facts["start_ns"],
        "regions": regions,
        "threads": threads,
        "tasks": tasks,
    }


def _look(path: str, rows: int) -> list[str]:
    facts, results = _read(path)
    age = (_core.now_ns() - facts["start_ns"]) / 1e9
    state = f"running for {age:.1f} s" if facts["alive"] else "not running"
    lines = [printable(f"{facts['output'] or path}: process {facts['pid']}, {state}"), ""]
    lines += _regions(results, rows)
    lines += _threads(results, rows)
    return lines + _tasks(results, rows)


def _regions(results: ProfilingResults, rows: int) -> list[str]:
    table = []
    for region in results.get_regions():
        part = region[0]
        marks = part.event_metadata or ()
        running = sum(1 for mark in marks if mark.get("open"))
        total = float(part.total_duration)
        table.append((total, part.num_calls, running, region.name))
    table.sort(key=lambda row: (-row[0], row[3]))
    lines = [f"{'total [s]':>12} {'calls':>12} {'open':>6}  region"]
    lines += [f"{total:12.6f} {calls:12d} {running:6d}  {printable(name)}" for total, calls, running, name in table[:rows]]
    return [*lines, *_more(len(table), rows), ""]


def _threads(results: ProfilingResults, rows: int) -> list[str]:
    threads = results.threads[0] if results.threads else ()
    if not threads:
        return []
    living = [thread for thread in threads if thread.end_time is None]
    lines = [f"{len(threads)} threads, {len(living)} alive"]
    lines += [f"  {printable(thread.name)}" for thread in living[:rows]]
    return [*lines, *_more(len(living), rows), ""]


def _tasks(results: ProfilingResults, rows: int) -> list[str]:
    tasks = results.tasks[0] if results.tasks else ()
    if not tasks:
        return []
    pending = [task for task in tasks if task.done_time is None]
    lines = [f"{len(tasks)} tasks, {len(pending)} pending"]
    lines += [f"  {printable(task.name)}  {printable(task.coro_name)}  {task.steps} steps" for task in pending[:rows]]
    return [*lines, *_more(len(pending), rows), ""]


def _more(count: int, rows: int) -> list[str]:
    return [f"  ... and {count - rows} more"] if count > rows else []
