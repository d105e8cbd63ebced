"""What the profiler says that its own recording has cost."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from itertools import repeat
from time import perf_counter_ns

import pytest

import scope_profiler as sp

LINE = re.compile(
    r"^  profiler overhead: at least ([\d,]+) calls? x (\d+) ns = ([\d.]+ (?:s|ms|µs|ns))"
    r"(?: \(((?:under )?[\d.e+-]+) % of the (session|run)\)| on (\d+) threads, ([\d.e+-]+) % of the (session|run) on the busiest)$"
)


def enter(pm, calls):
    region = pm.region("r")
    for _ in repeat(None, calls):
        with region:
            pass


def summary(results, **options):
    text = io.StringIO()
    results.print_summary(stream=text, **options)
    return text.getvalue()


def the_line(results):
    found = [line for line in summary(results).splitlines() if "overhead" in line]
    assert found == [line for line in summary(results).splitlines() if line][-1:]  # at the very end, once
    return LINE.match(found[0]).groups()


def test_the_last_line_multiplies_calls_with_what_one_costs(pm):
    with pm.session(output=None, verbose=False, return_results=True) as run:
        enter(pm, 100_000)
    calls, each, seconds, share, what, *_ = the_line(run.results)
    assert calls == "100,001" and what == "session"
    metadata = run.results.metadata
    assert metadata["overhead_calls"] == 100_001
    assert int(each) == round(metadata["overhead_ns"] / 100_001) > 0
    assert seconds == f"{metadata['overhead_ns'] / 1e6:.2f} ms"
    session = run.results["scope_profiler.session"].total_duration
    assert float(share) == pytest.approx(100 * metadata["overhead_ns"] / 1e9 / session, rel=0.06)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(1, "1 ns"), (999, "999 ns"), (1000, "1.00 µs"), (145_818, "146 µs"), (999_500, "1.00 ms"), (1_000_818, "1.00 ms"),
     (9_994_999, "9.99 ms"), (9_996_000, "10.0 ms"), (99_960_000, "100 ms"), (2_345_000_000, "2.35 s"), (4_321_000_000_000, "4321 s")],
)  # fmt: skip
def test_times_are_written_with_three_digits(pm, ns, text):
    pm.setup(output=None)
    enter(pm, 1)
    results = pm.finalize(verbose=False, return_results=True)
    results.metadata["overhead_ns"] = ns
    assert f" ns = {text} (" in summary(results)


def test_without_a_session_the_share_is_of_the_run(pm):
    pm.setup(output=None)
    enter(pm, 10)
    time.sleep(0.2)
    _, _, seconds, share, what, *_ = the_line(pm.finalize(verbose=False, return_results=True))
    assert what == "run" and seconds.endswith((" ns", " µs")) and share == "under 0.01"


@pytest.mark.parametrize(
    "settings", [{}, {"track_threads": True}, {"track_async": True}, {"aggregation_mode": True}], ids=["plain", "threads", "tasks", "sums"]
)
@pytest.mark.uninstrumented
def test_it_is_never_more_than_the_calls_took(pm, settings):
    """Of many measures none is above what the same calls have taken together with the loop around them."""
    pm.setup(output=None, **settings)
    run = pm._state.recording.run
    best = min(_timed(pm, 20_000) for _ in range(20))
    for _ in range(20):
        calls, ns = run.overhead()
        assert 0 < ns <= best
    assert calls == 400_000


def _timed(pm, calls):
    start = perf_counter_ns()
    enter(pm, calls)
    return (perf_counter_ns() - start) / calls


def test_measuring_leaves_nothing_behind(pm):
    pm.setup(output=None, track_async=True)
    run = pm._state.recording.run
    with pm.region("around"):
        for _ in range(5):
            assert run.overhead()[0] == 1 + run.call_counts().get("inside", 0)
            with pm.region("inside"):
                run.overhead()
    results = pm.finalize(verbose=False, return_results=True)
    assert {name: results[name].num_calls for name in results.region_names} == {"around": 1, "inside": 5}
    assert sorted(results["inside"][0].parent_ids) == [results["around"][0].call_ids[0]] * 5
    assert pm.registered_regions() == ("around", "inside")


def test_measuring_while_others_record(pm, soak):
    """The thread that measures has another log for a moment; the others, and its own afterwards, lose nothing."""
    pm.setup(output=None, track_threads=True)
    run, calls = pm._state.recording.run, 200_000 if soak else 20_000
    threads = [threading.Thread(target=enter, args=(pm, calls)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        run.overhead()
        enter(pm, 10)
    for thread in threads:
        thread.join()
    assert pm.finalize(verbose=False, return_results=True)["r"].num_calls == 3 * calls + 500


def test_on_several_threads_the_share_is_that_of_the_busiest(pm):
    with pm.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        threads = [threading.Thread(target=enter, args=(pm, calls)) for calls in (10_000, 30_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls, *_, count, share, what = the_line(run.results)
    assert (calls, count, what) == ("40,001", "3", "session")
    seconds = run.results.metadata["overhead_ns"] / 1e9 * 30_000 / 40_001
    assert float(share) == pytest.approx(100 * seconds / run.results["scope_profiler.session"].total_duration, rel=0.06)


def test_it_is_in_files_and_json(pm, tmp_path):
    for name in ("run.h5", "run.json"):
        with pm.session(output=tmp_path / name, verbose=False):
            enter(pm, 10)
        loaded = sp.load(tmp_path / name)
        assert loaded.metadata["overhead_calls"] == 11 and loaded.metadata["overhead_ns"] > 0
        assert the_line(loaded)[0] == "11"


def test_each_checkpoint_tells_of_the_run_so_far(pm):
    pm.setup(output=None)
    for calls in (10, 30):
        enter(pm, 10 if calls == 10 else 20)
        assert pm.finalize(verbose=False, return_results=True).metadata["overhead_calls"] == calls


def test_no_line_where_notes_regions_or_ranks_are_left_out_or_nothing_is_known(pm):
    pm.setup(output=None)
    enter(pm, 10)
    results = pm.finalize(verbose=False, return_results=True)
    assert "overhead" in summary(results)
    for options in ({"suppress_notes": True}, {"include": "r"}, {"ranks": [0]}):
        assert "overhead" not in summary(results, **options)
    del results.metadata["overhead_ns"]
    assert "overhead" not in summary(results)


WORKERS = """
import multiprocessing, scope_profiler as sp
def work(calls):
    for _ in range(calls):
        with sp.region("w"): pass
if __name__ == "__main__":
    with sp.session(output="all.h5", verbose=False, follow_processes=True):
        workers = [multiprocessing.get_context("fork").Process(target=work, args=(calls,)) for calls in (100, 200)]
        [worker.start() for worker in workers]; [worker.join() for worker in workers]
"""


def test_followed_processes_are_summed(tmp_path):
    subprocess.run([sys.executable, "-c", WORKERS], cwd=tmp_path, check=True)
    metadata = sp.load(tmp_path / "all.h5").metadata
    assert metadata["overhead_calls"] == 301 and metadata["overhead_ns"] > 0


def called(calls):
    for _ in repeat(None, calls):
        nothing()


def nothing():
    pass


@pytest.mark.uninstrumented
@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="tracing is not measured without the GIL")
def test_a_traced_function_costs_what_tracing_adds_to_its_call(pm):
    """More than a region, of which it is one; less than the whole call took."""
    pm.setup(output=None, recursive_profile=True)
    run = pm._state.recording.run
    with pm.region("outside"):
        start = perf_counter_ns()
        called(20_000)
        traced = (perf_counter_ns() - start) / 20_000
    costs = [run.overhead() for _ in range(20)]
    assert {calls for calls, _ in costs} == {20_002}
    pm.finalize(verbose=False)
    pm.reset()
    pm.setup(output=None)
    with pm.region("r"):
        pass
    region = min(pm._state.recording.run.overhead()[1] for _ in range(20))
    assert 1.2 * region < min(ns for _, ns in costs) < traced
    results = pm.finalize(verbose=False, return_results=True)
    assert {name: results[name].num_calls for name in results.region_names} == {"r": 1}


def test_measuring_leaves_a_traced_run_as_it_is(pm):
    pm.setup(output=None, recursive_profile=True)
    run = pm._state.recording.run
    with pm.region("outside"):
        for _ in range(3):
            called(5)
            run.overhead()
    called(5)
    results = pm.finalize(verbose=False, return_results=True)
    counts = {name.split(".")[-1]: results[name].num_calls for name in results.region_names}
    assert counts == {"outside": 1, "called": 3, "nothing": 15}
    assert len(set(results[next(n for n in results.region_names if n.endswith("nothing"))][0].parent_ids)) == 3


@pytest.mark.parametrize("settings", ["", ", aggregation_mode=True"], ids=["calls", "sums"])
def test_calls_of_workers_that_did_not_measure_count_as_well(tmp_path, settings):
    program = WORKERS.replace("with sp.region(\"w\"): pass", "with sp.region(\"w\"): pass\n    import os; os._exit(0)")
    program = program.replace("follow_processes=True", f"follow_processes=True{settings}")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    results = sp.load(tmp_path / "all.h5")
    assert sum(region.num_calls for region in results.get_regions()) == 301
    assert the_line(results)[0] == "301"


RANKS = """
import time
from mpi4py import MPI
import scope_profiler as sp
rank = MPI.COMM_WORLD.rank
def spin():
    end = time.thread_time() + 0.2
    while time.thread_time() < end: sum(range(50))
with sp.session(output="ranks.h5", verbose=False, sample_hz=500):
    for _ in range(100 * (rank + 1)):
        with sp.region("r"): pass
    spin()
"""


@pytest.mark.slow
def test_ranks_are_summed_and_sampled(mpi, tmp_path):
    done = mpi.python(2, RANKS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = sp.load(tmp_path / "ranks.h5")
    assert results.metadata["overhead_calls"] == 302 and results.metadata["overhead_ns"] > 0
    text = summary(results)
    assert "302 calls x" in text
    assert {row.rank for row in results.samples if row.stack[-1].function == "spin"} == {0, 1}
