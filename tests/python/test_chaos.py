"""Bad things at random moments: what is left is exact, can be recovered, or is one clear error."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("chaos_program.py")


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("SCOPE_PROFILER_SANITIZER")), reason="limits on memory, and crashes on purpose")
def test_whatever_happens_nothing_is_lost_invented_or_left_half_done(tmp_path: Path, scale: Callable[[int, int], int]) -> None:
    """Each kind of event once (in the long form 60 times), in programs with threads, tasks and children."""
    seed = random.randrange(1 << 30)
    count = scale(17, 1020)
    process = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, str(seed), str(count)], capture_output=True, text=True, timeout=120 + 10 * count
    )
    assert process.returncode == 0, f"seed {seed}\n{process.stdout}{process.stderr}"
    outcomes = process.stdout.splitlines()
    assert sum(int(line.split()[0]) for line in outcomes) == count
    assert any("kill: recovered" in line for line in outcomes) and any("nothing: whole" in line for line in outcomes)
