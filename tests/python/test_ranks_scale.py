"""Hundreds of ranks, each a process, write one file: rank 0's memory does not grow with the calls."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import scope_profiler as sp
from native_code import BUILD

pytestmark = [pytest.mark.slow, pytest.mark.uninstrumented]

RANKS = 1024 if os.environ.get("SCOPE_PROFILER_SOAK") else 128


def write(path: Path, ranks: int, regions: int, calls: int) -> dict[str, float]:
    if not BUILD:
        pytest.skip("SCOPE_PROFILER_C_BUILD does not name a C build with the tests")
    program = Path(BUILD) / "tests" / "c" / "bench_ranks"
    done = subprocess.run(
        [str(program), str(ranks), str(regions), str(calls), str(path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, float] = json.loads(done.stdout)
    return told


def test_rank_0_holds_rows_and_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    few = write(path, RANKS, 10, 100)
    many = write(path, RANKS, 10, 10_000)
    # 8 bytes a call would be 800 kB more for its own calls, and 80 kB a rank for those of the others.
    assert many["root_kb"] < few["root_kb"] + 8 * 1024
    results = sp.read_h5_summary(path)
    assert results.num_ranks == RANKS
    for name in results.region_names:
        assert results[name].num_calls == 1000 * RANKS
    whole = sp.load(path)
    for rank in (0, 1, RANKS // 2, RANKS - 1):
        starts = whole["region 9"][rank].start_times_ns
        assert len(starts) == 1000
        assert (starts[1:] > starts[:-1]).all()
