"""``scope-profiler --doctor``: what works on this machine, what is missing, and how to get it. Each line was tried."""

from __future__ import annotations

import json
import subprocess
import sys

from scope_profiler.cli import ANSWER_NO, CommandError
from scope_profiler.cli.terminal import Output, Progress, one_line, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["examine"]

TIMEOUT = 60.0  # seconds a check may take; then it hangs
AT_ONCE = 4

_SHOWN = {"works": "works", "limited": "in part", "missing": "missing", "fails": "FAILS"}


def examine(options: Sequence[str], output: Output) -> int:
    """Try everything and print a line for each. 0, or 1 where nothing can be recorded."""
    unknown = [option for option in options if option != "--json"]
    if unknown:
        raise CommandError(f"--doctor knows no {unknown[0]!r}, only --json")
    from scope_profiler import __version__
    from scope_profiler.doctor_checks import CHECKS, ESSENTIAL

    with Progress("trying what works here"):
        found = _try_all(list(CHECKS))
    records = all(found[name]["status"] in ("works", "limited") for name in ESSENTIAL)
    if "--json" in options:
        checks = [{"name": name, **answer} for name, answer in found.items()]
        output.json({"version": __version__, "records": records, "checks": checks}, indent=2)
    else:
        output.lines(_lines(found, __version__))
    return 0 if records else ANSWER_NO


def _try_all(names: list[str]) -> dict[str, dict[str, str]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(_try, names), strict=True))


def _try(name: str) -> dict[str, str]:
    """Run a check in a process of its own."""
    command = [sys.executable, "-m", "scope_profiler.doctor_checks", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {"status": "fails", "detail": f"it hangs: no answer within {TIMEOUT:.0f} s", "remedy": ""}
    except OSError as error:
        return {"status": "fails", "detail": f"cannot start {sys.executable}: {one_line(error.strerror or error)}", "remedy": ""}
    try:
        answer: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        return {"status": "fails", "detail": _end_of(done), "remedy": ""}
    return answer


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    """How a check ended that gave no answer."""
    import signal

    said = done.stderr.strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if done.returncode < 0:
        try:
            return f"it crashes ({signal.Signals(-done.returncode).name}){last}"
        except ValueError:
            return f"it crashes (signal {-done.returncode}){last}"
    return f"it ends with exit code {done.returncode}{last}"


def _lines(found: dict[str, dict[str, str]], version: str) -> list[str]:
    width = max(map(len, found))
    status_width = max(map(len, _SHOWN.values()))
    lines = [f"scope-profiler {version}", ""]
    for name, answer in found.items():
        start = f"  {_SHOWN[answer['status']]:<{status_width}}  {name:<{width}}  "
        lines.append(start + printable(one_line(answer["detail"])))
        if answer["remedy"]:
            lines.append(" " * len(start) + "-> " + printable(answer["remedy"]))
    return lines
