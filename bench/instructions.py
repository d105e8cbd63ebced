"""Instructions that hot paths take, counted by callgrind: from C and from Python.

Counts do not depend on what else the machine does, so a change of one instruction shows. The processor's time-stamp counter
counts as one instruction here. instructions.toml holds what is recorded for each version of Python, and how far from it a count may
be. Needs valgrind, and for the part in C a build made with ``meson setup DIRECTORY -Dtests=true``, which
SCOPE_PROFILER_C_BUILD names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COUNTS = (4000, 24000)
RECORDED = Path(__file__).with_suffix(".toml")

# Without site-packages an interpreter starts in a third of the instructions; they are put back after that. Whether a full collection of
# garbage falls between the short and the long process depends on how many objects there happen to be: a million instructions, or none.
# All processes do the same until the run is opened: dicts and sets look for objects by their addresses, the loop's too.
PROGRAM = """
import gc, os, sys
sys.path += {paths}
opening, function, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if "task" in opening + function:
    import asyncio
    event_loop = asyncio.new_event_loop()
from scope_profiler import _core
recorder = _core.Recorder()
r = recorder.region("region")
region = recorder.region

def nothing(): pass
def steps(count):
    for _ in range(count): yield
decorated = _core.wrap(recorder, nothing, "decorated")
profiled = _core.wrap(recorder, steps, "steps")

async def empty(): pass

def reused(count):
    for _ in range(count):
        with r: pass
def named(count):
    for _ in range(count):
        with region("region"): pass
def loop(count):
    for _ in range(count): pass
def plain(count):
    for _ in range(count): nothing()
def calls(count):
    for _ in range(count): decorated()
def generator(count):
    for _ in profiled(count): pass
def plain_generator(count):
    for _ in steps(count): pass
def task_steps(count):
    async def main():
        for _ in range(count): await asyncio.sleep(0)
    event_loop.run_until_complete(main())
def task_lives(count):
    async def main():
        for _ in range(count): await asyncio.create_task(empty())
    event_loop.run_until_complete(main())

settings = {{"on": {{}}, "sums": dict(aggregate=True), "threads": dict(track_threads=True),
             "tasks": dict(track_threads=True, track_async=True)}}
if opening != "off":
    recorder.open(**settings[opening])
gc.collect()
gc.disable()
globals()[function](count)
os._exit(0)  # to take everything apart takes more or less from process to process
"""

OFF, ON, SUMS, THREADS, TASKS = "off", "on", "sums", "threads", "tasks"

# What is counted: the name, what runs and how it is opened, and the same for what is taken off.
PATHS = {
    "with, reused": ("reused", ON, "loop"),
    "with, named": ("named", ON, "loop"),
    "with, reused, threads": ("reused", THREADS, "loop"),
    "with, reused, tasks": ("reused", TASKS, "loop"),
    "with, reused, sums": ("reused", SUMS, "loop"),
    "with, reused, off": ("reused", OFF, "loop"),
    "decorated call": ("calls", ON, "plain"),
    "decorated call, sums": ("calls", SUMS, "plain"),
    "decorated call, off": ("calls", OFF, "plain"),
    "generator step": ("generator", ON, "plain_generator"),
    "asyncio step": ("task_steps", TASKS, "task_steps"),
    "task life": ("task_lives", TASKS, "task_lives"),
}


def instructions(command: Sequence[str]) -> int:
    """What the whole process executes."""
    with tempfile.TemporaryDirectory() as directory:
        # Anchors of the clock are due by the time that passes, and valgrind is slow: slower yet beside other programs.
        options = ["--toggle-collect=sp_timeline_anchor", "--collect-atstart=yes", f"--callgrind-out-file={directory}/out"]
        wrapped = ["valgrind", "--tool=callgrind", *options, *command]
        # The processor that valgrind shows has no invariant counter: the library would read the kernel's clock. Hashes and
        # addresses in dicts would differ from process to process.
        environment = {**os.environ, "SCOPE_PROFILER_CLOCK": "tsc", "PYTHONHASHSEED": "0"}
        done = subprocess.run(wrapped, capture_output=True, text=True, check=True, env=environment)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(done.stderr)
    return int(found[1])


def per_call(command: Sequence[str], *more: str) -> float:
    """Instructions of one iteration of a command that is told how many: the difference of a long and a short process."""
    few, many = (instructions([*command, str(count), *more]) for count in COUNTS)
    return (many - few) / (COUNTS[1] - COUNTS[0])


def of_c(build: Path) -> dict[str, float]:
    program = build / "tests" / "c" / "bench_instructions"
    if not program.exists():
        return {}
    return {
        "C: enter and exit": per_call([str(program)]),
        "C: enter and exit, tasks": per_call([str(program)], "tasks"),
        "C: enter and exit, sums": per_call([str(program)], "sums"),
    }


def of_python() -> dict[str, float]:
    wanted = {(function, opening) for function, opening, _ in PATHS.values()} | {(less, OFF) for _, _, less in PATHS.values()}

    program = PROGRAM.format(paths=[path for path in sys.path if path])

    def count(path: tuple[str, str]) -> float:
        """Of a function in a run that is opened so."""
        function, opening = path
        return per_call([sys.executable, "-S", "-c", program, opening, function])

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # counts do not mind
        found = dict(zip(wanted, pool.map(count, wanted)))
    return {f"Python: {name}": found[function, opening] - found[less, OFF] for name, (function, opening, less) in PATHS.items()}


def count_all() -> dict[str, float]:
    """Every path's instructions."""
    return {**of_c(Path(os.environ.get("SCOPE_PROFILER_C_BUILD", "build/c"))), **of_python()}


def compared(counts: Mapping[str, float], python: str, record: bool) -> tuple[str, bool]:
    """A table beside what is recorded, and whether a count has grown beyond the tolerance; with ``record`` it is recorded."""
    text = RECORDED.read_text(encoding="utf-8")
    stored = tomllib.loads(text)
    before = stored.get(python, {})
    tolerance = float(stored["tolerance"])
    lines = ["| hot path | instructions | recorded | |", "|---|---:|---:|---|"]
    grown = False
    for name, count in counts.items():
        recorded = before.get(name)
        verdict = ""
        if recorded is not None and not record:
            change = count - recorded
            more = change > max(1.0, tolerance * abs(recorded))
            grown |= more
            verdict = f"**{change:+.0f}**" if more else "as recorded" if abs(change) <= 1 else f"{change:+.0f}"
        lines.append(f"| {name} | {count:.0f} | {'' if recorded is None else f'{recorded:.0f}'} | {verdict} |")
    if record:
        body = "".join(f'"{name}" = {count:.1f}\n' for name, count in counts.items())
        rest = re.sub(rf"\n\[\"{re.escape(python)}\"\]\n[^\[]*", "\n", text)
        RECORDED.write_text(f'{rest.rstrip()}\n\n["{python}"]\n{body}', encoding="utf-8")
    return "\n".join(lines) + "\n", grown


def main() -> None:
    for name, count in count_all().items():
        print(f"{count:8.1f}  {name}")


if __name__ == "__main__":
    main()
