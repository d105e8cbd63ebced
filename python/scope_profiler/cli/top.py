"""``scope-profiler top PID|SPOOL``: what a running program has recorded so far, read from its spool without stopping it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scope_profiler import _core
from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Output, one_line

DESCRIPTION = (
    "Show the regions, threads and tasks of a program that records into a spool, again and again until q, Ctrl-C or its end. "
    "Calls that were in a file already (of a checkpoint) at the first look are not counted. Times of open calls go on."
)

SORTS = ("total", "calls", "rate", "open", "name")  # their first letters are the keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("target", metavar="PID|SPOOL", help="a process id, or the file OUTPUT.PID-N.spool")
    parser.add_argument("--once", action="store_true", help="show one look and end")
    parser.add_argument("--json", action="store_true", help="one look as a JSON object: times in ns, null where not known")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks (default: 1)")
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="lines of each table (default: 20)")
    parser.add_argument("--sort", choices=SORTS, default="total", help="order of regions (default: total)")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not an interval from 0.05 to 86400 seconds")
    return value


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show it. 0 also when the program ends meanwhile."""
    path = _find(arguments.target)
    watch = _guarded(path, lambda: _core.watch_spool(path))
    if arguments.json:
        _guarded(path, lambda: _core.watch_look(watch))
        output.json(_core.watch_facts(watch))
        return 0
    try:
        with _keyboard(arguments.once or output.width is None) as key:
            _show(path, watch, arguments, output, key)
    except KeyboardInterrupt:
        pass
    return 0


def _show(path: str, watch: Any, arguments: argparse.Namespace, output: Output, key: Callable[[float], str] | None) -> None:
    sort, paused, seen = arguments.sort[0], False, False
    while True:
        if seen and not os.path.exists(path):
            output.line("the run has ended")
            return
        if not paused or not seen:
            _guarded(path, lambda: _core.watch_look(watch))
        seen = True
        if not arguments.once:
            output.clear()
        output.lines(_core.watch_text(watch, sort, arguments.rows, key is not None, paused).splitlines())
        output.flush()
        if arguments.once or output.closed:
            return
        if key is None:
            time.sleep(arguments.interval)
            continue
        pressed = key(arguments.interval)
        if pressed == "q":
            return
        if pressed == "p":
            paused = not paused
        elif pressed and any(name[0] == pressed for name in SORTS):
            sort = pressed


@contextmanager
def _keyboard(off: bool) -> Iterator[Callable[[float], str] | None]:
    """What waits for a key, if somebody sits there, and takes it at once and unseen; what was is restored."""
    try:
        import select
        import termios

        keyboard = sys.stdin.fileno()
        there = not off and os.isatty(keyboard) and os.tcgetpgrp(keyboard) == os.getpgrp()
        usual = termios.tcgetattr(keyboard) if there else None
    except (ImportError, OSError, ValueError, AttributeError):  # no terminal, or no standard input at all
        usual = None
    if usual is None:
        yield None
        return

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([keyboard], [], [], seconds)
        return os.read(keyboard, 1).decode("latin-1") or "q" if ready else ""

    raw = list(usual)
    raw[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(keyboard, termios.TCSANOW, raw)
    try:
        yield wait
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, usual)


def _find(target: str) -> str:
    """The spool itself, or the one that the process has mapped."""
    if not target.isdecimal() or os.path.exists(target):
        return target
    try:
        return _core.spool_of_process(int(target))
    except (ValueError, OverflowError) as error:
        raise CommandError(one_line(error)) from None


def _guarded(path: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        text = one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
        raise CommandError(text if path in text else f"{path}: {text}") from None
