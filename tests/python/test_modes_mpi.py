"""Modes under MPI: every rank's counters, lines and device times are in the one file, and each has a memory trace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import scope_profiler as sp
from mpi_launch import Launcher

pytestmark = [pytest.mark.uninstrumented, pytest.mark.beside]

PROGRAM = """
import sys, scope_profiler as sp
class Backend:
    now = 0
    def record_event(self): return self.now
    def elapsed_time_ns(self, start, end): return end - start
backend = Backend()
def helper(n):
    for _ in range(n):
        pass
settings = {
    "lines": {"use_line_profiler": True}, "perf": {"perf_events": ["task-clock"]},
    "gpu": {"use_gpu_timing": True, "gpu_timing_backend": backend}, "memray": {"use_memray": True},
}[sys.argv[1]]
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
with sp.session(output="p." + sys.argv[2], verbose=False, **settings):
    for call in range(rank + 1):
        with sp.region("solve", functions=[helper]):
            helper(10 * (rank + 1))
            backend.now += 100 * rank + call
    kept = bytearray(20_000_000 + rank)
"""


def run(mpi: Launcher, directory: Path, mode: str, ending: str = "h5") -> sp.ProfilingResults:
    done = mpi.python(2, PROGRAM, mode, ending, cwd=directory)
    assert done.returncode == 0, done.stderr
    return sp.load(directory / f"p.{ending}")


@pytest.mark.usefixtures("line_profiler")
@pytest.mark.parametrize("ending", ["h5", "json"])
def test_every_ranks_lines_are_in_the_file(mpi, tmp_path, ending):
    lines = run(mpi, tmp_path, "lines", ending).line_profile
    found = {rank: [r["hits"].tolist() for r in records if r["function"] == "helper"] for rank, records in lines.items()}
    assert found == {0: [[11, 10]], 1: [[42, 40]]}


def test_every_ranks_counters_are_in_the_file(mpi, tmp_path):
    totals = run(mpi, tmp_path, "perf").get_perf_events()
    assert {rank: regions["solve"].calls for rank, regions in totals.items()} == {0: 1, 1: 2}
    assert all(regions["solve"].values["task-clock"] > 0 for regions in totals.values())


@pytest.mark.parametrize("ending", ["h5", "json"])
def test_every_ranks_device_times_are_in_the_file(mpi, tmp_path, ending):
    results = run(mpi, tmp_path, "gpu", ending)
    assert {rank: results["solve"][rank].gpu_durations_ns.tolist() for rank in (0, 1)} == {0: [0], 1: [100, 101]}


def test_every_rank_has_a_memory_trace_of_its_own(mpi, tmp_path):
    memray = pytest.importorskip("memray")
    run(mpi, tmp_path, "memray")
    for rank in (0, 1):
        reader = memray.FileReader(str(tmp_path / f"p.memray.rank{rank}.bin"))
        assert 20_000_001 + rank in {record.size for record in reader.get_high_watermark_allocation_records()}
    assert len(list(tmp_path.glob("*.bin"))) == 2
