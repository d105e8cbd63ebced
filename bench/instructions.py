"""Instructions that a recorded call takes, counted by callgrind: from C, and for ``with region`` from Python.

Counts do not depend on what else the machine does, so a change of one instruction shows. The processor's time-stamp counter
counts as one instruction here. ``python bench/instructions.py [C build directory]``; needs valgrind, and a C build made with
``meson setup DIRECTORY -Dtests=true`` for the part in C.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

COUNTS = (2000, 12000)

PROGRAM = """
import sys
from scope_profiler import _core
recorder = _core.Recorder()
recorder.open(track_threads={threads})
r = recorder.region("region")
region = recorder.region
for _ in range(int(sys.argv[1])):
    {statement}
"""

STATEMENTS = {
    "empty loop": "pass",
    "with r": "\n    with r: pass",
    'with region("region")': '\n    with region("region"): pass',
}


def instructions(command: Sequence[str]) -> int:
    """What the whole process executes."""
    with tempfile.TemporaryDirectory() as directory:
        wrapped = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", *command]
        # The processor that valgrind shows has no invariant counter: the library would read the kernel's clock.
        environment = {**os.environ, "SCOPE_PROFILER_CLOCK": "tsc"}
        done = subprocess.run(wrapped, capture_output=True, text=True, check=True, env=environment)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(done.stderr)
    return int(found[1])


def per_call(command: Sequence[str]) -> float:
    """Instructions of one iteration: the difference of a long and a short process."""
    few, many = (instructions([*command, str(count)]) for count in COUNTS)
    return (many - few) / (COUNTS[1] - COUNTS[0])


def of_c(build: Path) -> dict[str, float]:
    program = build / "tests" / "c" / "bench_instructions"
    if not program.exists():
        return {}
    few, many = (instructions([str(program), str(count), "tasks"]) for count in COUNTS)
    return {
        "C: enter and exit": per_call([str(program)]),
        "C: enter and exit, run with tasks": (many - few) / (COUNTS[1] - COUNTS[0]),
    }


def of_python() -> dict[str, float]:
    results = {}
    for threads in (False, True):
        loop = 0.0
        for name, statement in STATEMENTS.items():
            program = PROGRAM.format(threads=threads, statement=statement)
            measured = per_call([sys.executable, "-c", program])
            if name == "empty loop":
                loop = measured
                continue
            results[f"Python: {name}{', track_threads' if threads else ''}, net of the loop"] = measured - loop
    return results


def main() -> None:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build/c")
    for name, count in {**of_c(build), **of_python()}.items():
        print(f"{count:8.1f}  {name}")


if __name__ == "__main__":
    main()
