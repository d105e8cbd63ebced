"""Profiles of several processes on one timeline: ranks, names, lanes, and clocks that differ on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import scope_profiler as sp
from native_code import library_to_preload
from scope_profiler import _core
from scope_profiler.__main__ import main
from scope_profiler.processes import merge_files, stack
from shifted_clock import SHIM

WORKER = """
import sys, threading
from scope_profiler import ProfileManager
manager = ProfileManager()
with manager.session(file_path=sys.argv[1], verbose=False, track_threads=True):
    def work():
        for i in range(5):
            with manager.profile_region("in thread"):
                with manager.profile_region(sys.argv[2]): pass
    thread = threading.Thread(target=work, name=f"thread of {sys.argv[2]}")
    thread.start()
    thread.join()
"""


def record(path: Path, name: str) -> None:
    subprocess.run([sys.executable, "-c", WORKER, str(path), name], check=True, timeout=60)


def test_a_run_knows_its_process(tmp_path: Path) -> None:
    before = time.time_ns()
    with sp.ProfileManager.session(file_path=tmp_path / "p.h5", verbose=False):
        pass
    after = time.time_ns()
    (process,) = sp.load(tmp_path / "p.h5").processes.values()
    assert (process.rank, process.pid, process.reference) == (0, os.getpid(), "realtime")
    assert before - 10**6 <= process.start_reference_ns <= process.end_reference_ns <= after + 10**6
    assert process.start_ns < process.end_ns <= time.perf_counter_ns()
    now = time.time_ns() - time.perf_counter_ns()
    assert abs(process.offset_ns - now) < 10**7  # the calendar may be slewed meanwhile
    assert abs(process.drift) < 1e-3
    assert 0 <= process.error_ns < 10**6
    assert process.clock_domain != 0


def test_processes_of_one_host_become_ranks_in_the_order_of_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"worker{i}.h5" for i in range(3)]
    for i, path in enumerate(paths):
        record(path, f"region {i}")
    merged = merge_files(paths)
    assert merged.num_ranks == 3
    assert [process.name for process in merged.processes.values()] == [path.name for path in paths]
    assert [process.error_ns for process in merged.processes.values()] == [0, 0, 0]
    assert [merged["in thread"][rank].num_calls for rank in range(3)] == [5, 5, 5]
    for rank, path in enumerate(paths):
        own = sp.load(path)
        assert [thread.name for thread in merged.threads[rank]] == ["MainThread", f"thread of region {rank}"]
        np.testing.assert_array_equal(merged["in thread"][rank].start_times_ns, own["in thread"][0].start_times_ns)
        np.testing.assert_array_equal(merged[f"region {rank}"][rank].parent_ids, own[f"region {rank}"][0].parent_ids)
        starts = [thread.start_time for thread in merged.threads[rank]]
        shift = (own.metadata["start_time_ns"] - merged.metadata["start_time_ns"]) / 1e9
        wanted = [thread.start_time + shift for thread in own.threads[0]]
        assert starts == pytest.approx(wanted, abs=1e-9), "lane times count from the merged start"
    # one process after the other
    assert merged["in thread"][0].end_times_ns.max() < merged["in thread"][1].start_times_ns.min()
    assert merged["in thread"][1].end_times_ns.max() < merged["in thread"][2].start_times_ns.min()


def test_ranks_that_differ_keep_their_numbers() -> None:
    def of_rank(rank: int) -> sp.ProfilingResults:
        times = np.array([10 * rank + 1], dtype=np.int64)
        return sp.ProfilingResults({"a": sp.MPIRegion("a", {rank: sp.Region(times, times + 5)})})

    merged = stack([of_rank(4), of_rank(1)], [None, None])
    assert merged["a"].ranks == [1, 4]
    counted_on = stack([of_rank(1), of_rank(1)], [None, None])
    assert counted_on["a"].ranks == [1, 3]


def profile(rank: int, starts: list[int], process: dict[str, int | str]) -> _core.Profile:
    """Calls of 10 ns at `starts`, and a process row."""
    from array import array

    ends = [start + 10 for start in starts]
    table = {key: [value] if isinstance(value, str) else array("q", [value]) for key, value in process.items()}
    return _core.make_profile(
        names=["a"], rows=[(0, rank, 0, len(starts), None, -1, None, (), None, -1, None, None)],
        columns={"start_ns": array("q", starts), "end_ns": array("q", ends)},
        metadata={"start_time_ns": starts[0]}, processes=table,
    )  # fmt: skip


def process(pid: int, domain: int, points: tuple[int, int, int, int], error: int = 3, reference: str = "realtime") -> dict[str, int | str]:
    local0, reference0, local1, reference1 = points
    return {
        "ranks": 0, "pid": pid, "clock_domain": domain, "start_ns": local0, "start_reference_ns": reference0, "end_ns": local1,
        "end_reference_ns": reference1, "error_ns": error, "name": "", "reference": reference,
    }  # fmt: skip


def test_an_offset_and_a_drift_are_taken_out() -> None:
    second = 10**9
    # The first clock runs with the calendar's, 1,000 s behind; the second started at 5 s and gains 100 microseconds a second.
    a = profile(0, [10 * second, 30 * second], process(1, 11, (10 * second, 1010 * second, 40 * second, 1040 * second)))
    fast = 1 + 1e-4
    local = [5 * second + round(fast * (at - 10) * second) for at in (20, 25)]
    points = (5 * second, 1010 * second, 5 * second + round(fast * 30 * second), 1040 * second)
    b = profile(0, local, process(2, 22, points))
    stacked = _core.stack_profiles([a, b], ["a", "b"], align=True)
    results = sp.ProfilingResults._from_profile(stacked)
    np.testing.assert_array_equal(results["a"][0].start_times_ns, [10 * second, 30 * second])
    assert np.abs(results["a"][1].start_times_ns - np.array([20 * second, 25 * second])).max() <= 2
    assert [p.error_ns for p in results.processes.values()] == [0, 6]
    untouched = sp.ProfilingResults._from_profile(_core.stack_profiles([a, b], ["a", "b"]))
    np.testing.assert_array_equal(untouched["a"][1].start_times_ns, local)


def test_clocks_that_cannot_be_compared_stay_and_say_so() -> None:
    a = profile(0, [100], process(1, 11, (0, 0, 0, 0)))
    b = profile(0, [50], process(2, 22, (0, 0, 0, 0), error=-1, reference=""))
    results = sp.ProfilingResults._from_profile(_core.stack_profiles([a, b], [None, None], align=True))
    assert results["a"][1].start_times_ns[0] == 50
    assert [p.error_ns for p in results.processes.values()] == [0, -1]


ALTERNATE = """
import sys, time
from scope_profiler import ProfileManager
own = int(sys.argv[2])
with ProfileManager.session(file_path=sys.argv[1], verbose=False):
    until = float(sys.argv[3])
    for turn in range(20):
        while time.time() < until + turn * 0.1 + own * 0.05: time.sleep(0.0005)
        with ProfileManager.profile_region("turn"): pass
"""


@pytest.mark.slow
@pytest.mark.uninstrumented  # a library of its own is loaded first
@pytest.mark.beside
def test_two_processes_with_shifted_clocks_merge_in_order(tmp_path: Path) -> None:
    """They take turns by the calendar; one's monotonic clock starts at 7 s, the other's at a day, and gains 500 ppm."""
    library = library_to_preload(SHIM, tmp_path / "shim.so")
    begin = str(time.time() + 1.5)
    processes = []
    for own, (start, drift) in enumerate([("7000000000", "0"), ("86400000000000", "500e-6")]):
        environment = {**os.environ, "LD_PRELOAD": str(library), "SHIM_START": start, "SHIM_DRIFT": drift, "SCOPE_PROFILER_CLOCK": "monotonic"}
        command = [sys.executable, "-c", ALTERNATE, str(tmp_path / f"{own}.h5"), str(own), begin]
        processes.append(subprocess.Popen(command, env=environment))
    assert [process.wait(60) for process in processes] == [0, 0]
    first, second = (sp.load(tmp_path / f"{own}.h5") for own in range(2))
    assert first["turn"][0].start_times_ns[0] < 60 * 10**9 < second["turn"][0].start_times_ns[0]
    assert main(["merge", str(tmp_path / "0.h5"), str(tmp_path / "1.h5"), "-o", str(tmp_path / "both.h5")]) == 0
    merged = sp.load(tmp_path / "both.h5")
    order = np.argsort(np.concatenate([merged["turn"][rank].start_times_ns for rank in range(2)]), kind="stable")
    assert [int(index) // 20 for index in order] == [0, 1] * 20
    # 500 ppm over 2 s would be 1 ms: what is left must be far less.
    gaps = merged["turn"][1].start_times_ns - merged["turn"][0].start_times_ns
    assert second.processes[0].drift == pytest.approx(-500e-6, abs=50e-6)
    assert merged.processes[1].drift == pytest.approx(0, abs=1e-6)
    assert abs(float(np.median(gaps[:5])) - float(np.median(gaps[-5:]))) < 20e6
    assert 0 <= merged.processes[1].error_ns < 10**6


def test_the_command_merges_and_names_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(2):
        record(tmp_path / f"w{i}.h5", "r")
    target = tmp_path / "all.h5"
    assert main(["merge", str(tmp_path / "w*.h5"), "-o", str(target)]) == 0
    assert "22 calls of 2 processes" in capsys.readouterr().out
    assert main(["merge", str(tmp_path / "w0.h5"), "-o", str(tmp_path / "one.h5")]) == 0
    assert capsys.readouterr().out.endswith("one.h5: 11 calls of 1 process\n")
    assert sp.load(target).num_ranks == 2
    assert main(["merge", str(tmp_path / "w0.h5"), str(tmp_path / "none.h5"), "-o", str(tmp_path / "x.h5")]) == 2
    told = capsys.readouterr().err
    assert "none.h5" in told and told.count("\n") == 1
    assert not (tmp_path / "x.h5").exists()
    (tmp_path / "text.h5").write_text("hello")
    assert main(["merge", str(tmp_path / "text.h5"), "-o", str(tmp_path / "x.h5")]) == 2
    assert "text.h5" in capsys.readouterr().err


def test_files_of_one_run_are_no_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manager = sp.ProfileManager()
    manager.setup(file_path=tmp_path / "c.h5", checkpoint="numbered")
    for _ in range(3):
        with manager.region("r"):
            time.sleep(0.01)
        manager.finalize(verbose=False)
    files = sorted(tmp_path.glob("c.*.h5"))
    assert len(files) == 3
    assert main(["merge", *map(str, files), "-o", str(tmp_path / "all.h5")]) == 0
    assert capsys.readouterr().out.endswith("all.h5: 3 calls of 1 process in 3 ranks: each file of a run is a rank of its own\n")
    merged = sp.load(tmp_path / "all.h5")
    assert merged.metadata["finalize_time_ns"] == sp.load(files[-1]).metadata["finalize_time_ns"]
    assert merged.total_time is not None and merged.total_time >= merged.time_span
    assert main(["merge", str(files[0]), str(files[1]), str(files[0]), "-o", str(tmp_path / "all.h5")]) == 0
    assert f"{files[0].name}: it is named 2 times, and its calls are counted as often\n" in capsys.readouterr().out


def test_a_merged_file_can_be_merged_again(tmp_path: Path) -> None:
    for i in range(3):
        record(tmp_path / f"w{i}.h5", "r")
    assert main(["merge", str(tmp_path / "w0.h5"), str(tmp_path / "w1.h5"), "-o", str(tmp_path / "two.h5")]) == 0
    assert main(["merge", str(tmp_path / "two.h5"), str(tmp_path / "w2.h5"), "-o", str(tmp_path / "three.h5")]) == 0
    merged = sp.load(tmp_path / "three.h5")
    assert [process.name for process in merged.processes.values()] == ["w0.h5", "w1.h5", "w2.h5"]
    assert merged["r"].ranks == [0, 1, 2]


def test_release_0_7_5_reads_a_merged_file(tmp_path: Path) -> None:
    reference = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
    if not reference:
        pytest.skip("SCOPE_PROFILER_REFERENCE_PYTHON is not set")
    for i in range(2):
        record(tmp_path / f"w{i}.h5", "r")
    assert main(["merge", str(tmp_path / "w0.h5"), str(tmp_path / "w1.h5"), "-o", str(tmp_path / "all.h5")]) == 0
    program = "import sys, scope_profiler as sp; r = sp.load(sys.argv[1]); print(r.num_ranks, [r['r'][k].num_calls for k in (0, 1)])"
    done = subprocess.run([reference, "-c", program, str(tmp_path / "all.h5")], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "2 [5, 5]", done.stderr
