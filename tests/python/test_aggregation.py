"""Runs with aggregation_mode=True: sums of regions instead of calls, however threads, tasks and generators interleave."""

import asyncio
import contextvars
import gc
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

import scope_profiler as sp
from manager_helpers import counts, enter

SESSION = "scope_profiler.session"


def summed(manager, **settings):
    return manager.session(output=None, verbose=False, return_results=True, aggregation_mode=True, **settings)


def sums(results, rank=0):
    """{name: (calls, total, min, max, exclusive)} in ns, without the session's root."""
    rows = {}
    for name in results.region_names:
        one = results[name][rank]
        times = (one.total_duration, one.min_duration, one.max_duration, one.exclusive_duration)
        rows[name] = (one.num_calls, *(round(seconds * 1e9) for seconds in times))
    rows.pop(SESSION, None)
    return rows


# -- one lane ------------------------------------------------------------------------------------------------------------


def test_count_total_shortest_longest_and_own_time_are_exact(clock):
    pm = sp.ProfileManager()
    with summed(pm) as run:
        for inner in (10, 30, 20):
            with pm.region("outer"):
                clock(5)
                with pm.region("inner"):
                    clock(inner)
    assert sums(run.results) == {"outer": (3, 75, 15, 35, 15), "inner": (3, 60, 10, 30, 60)}
    assert run.results[SESSION].exclusive_duration == 0.0


def test_statistics_beyond_the_sums_are_kept_too(clock):
    pm = sp.ProfileManager()
    durations = [7, 1, 100, 3, 3]
    with summed(pm) as run:
        clock(50)
        for duration in durations:
            with pm.region("a"):
                clock(duration)
        clock(9)
    one = run.results["a"][0]
    assert one.std_duration == pytest.approx(statistics.pstdev(durations) / 1e9, rel=1e-12)
    assert (one.first_duration, one.last_duration) == (7e-9, 3e-9)
    assert one.last_end_time - one.first_start_time == pytest.approx(sum(durations) / 1e9)
    assert run.results.time_span == pytest.approx((50 + sum(durations) + 9) / 1e9)
    assert 0 <= run.results.startup_time < 1


def test_recursion_counts_every_level(clock):
    pm = sp.ProfileManager()

    @pm.profile("down")
    def down(depth):
        clock(1)
        if depth:
            down(depth - 1)

    with summed(pm) as run:
        down(3)
    assert sums(run.results) == {"down": (4, 4 + 3 + 2 + 1, 1, 4, 4)}
    assert run.results["down"][0].first_duration == 4e-9 and run.results["down"][0].last_duration == 1e-9


def test_exceptions_end_calls(clock):
    pm = sp.ProfileManager()
    with summed(pm) as run:
        for error in (ValueError, KeyboardInterrupt, GeneratorExit):
            with pytest.raises(error), pm.region("outer"):
                clock(1)
                with pm.region("inner"):
                    clock(2)
                    raise error
    assert sums(run.results) == {"outer": (3, 9, 3, 3, 3), "inner": (3, 6, 2, 2, 6)}


def test_every_kind_of_handle_adds_to_its_region(clock):
    pm = sp.ProfileManager()
    before = pm.region("object")  # older than the run
    defined = pm.define_region("defined")

    @pm.profile
    def decorated():
        clock(1)

    @pm.profile
    def generator():
        clock(1)
        yield
        clock(1)

    @pm.profile
    async def coroutine():
        clock(1)

    with summed(pm) as run:
        for handle in (before, pm.region("named"), defined):
            for _ in range(2):
                with handle:
                    clock(1)
        decorated()
        list(generator())
        with pytest.raises(StopIteration):
            coroutine().send(None)
        region = pm.region("explicit")
        region.__enter__()
        clock(3)
        region.__exit__(None, None, None)
        with ExitStack() as stack:
            stack.enter_context(pm.region("stack"))
            clock(4)
    expected = {"object": 2, "named": 2, "defined": 2, "decorated": 1, "generator": 2, "coroutine": 1, "explicit": 3, "stack": 4}
    assert {name: row[1] for name, row in sums(run.results).items()} == expected


def test_regions_that_are_filtered_or_paused_add_nothing(clock):
    pm = sp.ProfileManager()
    pm.setup(output=None, aggregation_mode=True, region_tags=["wanted"])
    with pm.region("outer", tags=["wanted"]), pm.region("skipped"), pm.region("inner", tags=["wanted"]):
        clock(2)
    pm.pause()
    enter(pm, "outer")
    pm.resume()
    assert sums(pm.finalize(verbose=False, return_results=True)) == {"outer": (1, 2, 2, 2, 0), "inner": (1, 2, 2, 2, 2)}
    pm.reset()


def random_program(pm, clock, seed, generators):
    """Nested regions, and generators that hold some across their yields and end in any order. No two calls begin at once."""
    rng = random.Random(seed)
    held = []

    def hold():
        clock(1)
        with pm.region(rng.choice("abc")):
            clock(rng.randrange(5))
            yield
            clock(rng.randrange(5))

    def body(depth):
        for _ in range(rng.randrange(4)):
            clock(1 + rng.randrange(10))
            choice = rng.random()
            if generators and choice < 0.2:
                held.append(hold())
                next(held[-1])
            elif generators and held and choice < 0.45:
                for _ in held.pop(rng.randrange(len(held))):
                    pass
            elif depth:
                with pm.region(rng.choice("abcdef")):
                    body(depth - 1)

    for _ in range(40):
        body(4)
    while held:
        held.pop(rng.randrange(len(held))).close()


@pytest.mark.filterwarnings("ignore:calls overlap")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("generators", [False, True])
def test_the_sums_are_those_of_the_calls(clock, seed, generators):
    """The same program with its calls kept one by one. With generators calls overlap, and the one that began last has the time."""
    pm = sp.ProfileManager()
    with summed(pm) as run:
        random_program(pm, clock, seed, generators)
    with pm.session(output=None, verbose=False, return_results=True, track_threads=True) as plain:
        random_program(pm, clock, seed, generators)
    expected, own = {}, own_times(plain.results)
    for name in plain.results.region_names:
        one = plain.results[name][0]
        durations = one.durations_ns.tolist()
        expected[name] = (len(durations), sum(durations), min(durations), max(durations), own[name])
        summary = run.results[name][0]
        assert summary.std_duration == pytest.approx(one.std_duration, rel=1e-9, abs=1e-15)
    expected.pop(SESSION)
    assert sums(run.results) == expected


def own_times(results):
    """At each moment, the open call that began last has the time."""
    calls = []
    for name in results.region_names:
        one = results[name][0]
        calls += zip(one.start_times_ns.tolist(), one.end_times_ns.tolist(), [name] * len(one), strict=True)
    moments = sorted({moment for start, end, _ in calls for moment in (start, end)})
    own = dict.fromkeys(results.region_names, 0)
    for begin, after in itertools.pairwise(moments):
        own[max((start, name) for start, end, name in calls if start <= begin and end >= after)[1]] += after - begin
    return own


# -- several lanes -------------------------------------------------------------------------------------------------------


def test_tasks_that_interleave_are_not_each_others_callers(clock):
    pm = sp.ProfileManager()

    async def job(name, first, second):
        with pm.region(name):
            clock(first)
            await asyncio.sleep(0)
            with pm.region("inner"):
                clock(second)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(job("a", 1, 2), job("b", 10, 20), job("a", 100, 200))

    with summed(pm) as run:
        asyncio.run(main())
    # a: 1 + 10 + 100 + 2 + 20 + 200 from its start; the other `a` begins 11 later, and ends last
    assert sums(run.results) == {
        "a": (2, 333 + 322, 322, 333, 333 + 322 - 202),
        "b": (1, 332, 332, 332, 332 - 20),
        "inner": (3, 222, 2, 200, 222),
    }


def test_many_tasks_are_as_exact_as_tracked_ones(clock):
    pm = sp.ProfileManager()

    async def job(seed):
        rng = random.Random(seed)
        for _ in range(5):
            with pm.region(rng.choice("ab")):
                clock(rng.randrange(5))
                if rng.random() < 0.7:
                    await asyncio.sleep(0)
                with pm.region("inner"):
                    clock(rng.randrange(5))
                    if rng.random() < 0.5:
                        await asyncio.sleep(0)

    async def main():
        with pm.region("main"):
            await asyncio.gather(*map(job, range(50)))

    with summed(pm) as run:
        asyncio.run(main())
    with pm.session(output=None, verbose=False, return_results=True, track_async=True) as tracked:
        asyncio.run(main())
    assert sums(run.results) == sums(tracked.results)


def test_code_that_enters_a_context_stays_inside_its_caller(clock):
    pm = sp.ProfileManager()

    def inner():
        with pm.region("inner"):
            clock(3)

    with summed(pm) as run, pm.region("outer"):
        clock(1)
        contextvars.copy_context().run(inner)
    assert sums(run.results) == {"outer": (1, 4, 4, 4, 1), "inner": (1, 3, 3, 3, 3)}


def test_an_asynchronous_generator_that_its_loop_closes(clock):
    pm = sp.ProfileManager()

    async def numbers():
        with pm.region("numbers"):
            clock(1)
            yield 1
            yield 2

    async def use():
        async for _ in numbers():
            break

    async def main():
        await asyncio.create_task(use())
        gc.collect()
        await asyncio.sleep(0)
        with pm.region("after"):
            clock(2)

    with summed(pm) as run:
        asyncio.run(main())
    assert counts(run.results) == {"numbers": 1, "after": 1}
    assert sums(run.results)["after"] == (1, 2, 2, 2, 2)


def test_trio_tasks_are_lanes(clock):
    trio = pytest.importorskip("trio")
    pm = sp.ProfileManager()
    order = []

    async def job(name):
        with pm.region(name):
            for _ in range(3):
                clock(1)
                order.append(name)
                await trio.lowlevel.checkpoint()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(job, "a")
            nursery.start_soon(job, "b")

    with summed(pm) as run:
        trio.run(main)
    rows = sums(run.results)
    assert all(row[0] == 1 and row[1] == row[4] for row in rows.values()), rows


def test_greenlets_are_lanes(clock):
    greenlet = pytest.importorskip("greenlet")
    pm = sp.ProfileManager()

    def job(name, duration):
        with pm.region(name):
            clock(duration)
            greenlet.getcurrent().parent.switch()
            clock(duration)

    with summed(pm) as run, pm.region("main"):
        jobs = [greenlet.greenlet(job), greenlet.greenlet(job)]
        jobs[0].switch("a", 1)
        jobs[1].switch("b", 10)
        for one in jobs:
            one.switch()
    assert sums(run.results) == {"a": (1, 12, 12, 12, 12), "b": (1, 21, 21, 21, 21), "main": (1, 22, 22, 22, 22)}


def test_sixty_four_threads_are_exact(scale):
    pm = sp.ProfileManager()
    times = scale(300, 20_000)
    start = threading.Barrier(64)

    @pm.profile
    def decorated(): ...

    def work(number):
        start.wait()
        region = pm.region("reused")
        for _ in range(times):
            with region:
                decorated()
            with pm.region(f"own {number % 40}"):
                pass

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with summed(pm) as run:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(switch)
    found = counts(run.results)
    assert found.pop("reused") == found.pop("decorated") == 64 * times
    assert found == {f"own {number}": times * (2 if number < 24 else 1) for number in range(40)}
    for name in run.results.region_names:
        one = run.results[name][0]
        assert one.min_duration <= one.total_duration / one.num_calls <= one.max_duration
        assert 0 <= one.exclusive_duration <= one.total_duration
    inside = run.results["decorated"].total_duration
    assert run.results["reused"].exclusive_duration == pytest.approx(run.results["reused"].total_duration - inside, abs=1e-6)


def test_threads_that_come_and_go_lose_nothing():
    pm = sp.ProfileManager()
    with summed(pm) as run:
        for number in range(300):
            thread = threading.Thread(target=enter, args=(pm, f"r{number % 5}", 3))
            thread.start()
            thread.join()
    assert counts(run.results) == {f"r{number}": 180 for number in range(5)}


def test_a_call_may_end_on_another_thread(clock):
    pm = sp.ProfileManager()
    with summed(pm) as run:
        with pm.region("main"):
            clock(1)
            stack = ExitStack()
            stack.enter_context(pm.region("moved"))
            clock(2)
            thread = threading.Thread(target=lambda: (clock(3), stack.close()))
            thread.start()
            thread.join()
            clock(4)
            with pm.region("after"):
                clock(5)
    assert sums(run.results) == {"main": (1, 15, 15, 15, 5), "moved": (1, 5, 5, 5, 5), "after": (1, 5, 5, 5, 5)}


def test_a_thread_that_ends_with_an_open_call_encloses_nothing_of_the_next(clock):
    pm = sp.ProfileManager()
    stack = ExitStack()
    with summed(pm) as run:
        thread = threading.Thread(target=lambda: stack.enter_context(pm.region("left open")))
        thread.start()
        thread.join()
        clock(1)
        thread = threading.Thread(target=lambda: [clock(2), enter(pm, "next")])
        thread.start()
        thread.join()
        clock(4)
        stack.close()
    assert sums(run.results) == {"left open": (1, 7, 7, 7, 7), "next": (1, 0, 0, 0, 0)}


def test_a_call_that_is_given_up_is_not_counted(clock):
    pm = sp.ProfileManager()

    def holds():
        with pm.region("held"):
            yield

    with summed(pm) as run, pm.region("outer"):
        enters = type(pm.region("lost")).__enter__
        assert enters is not None
        generator = holds()
        next(generator)
        clock(1)
        generator.close()
        clock(2)
    assert sums(run.results) == {"outer": (1, 3, 3, 3, 2), "held": (1, 1, 1, 1, 1)}


# -- collections -----------------------------------------------------------------------------------------------------------


def test_each_finalize_has_the_calls_since_the_last_one(clock, tmp_path):
    pm = sp.ProfileManager()
    pm.setup(output=tmp_path / "p.h5", aggregation_mode=True)
    for duration in (5, 100, 1):
        with pm.region("a"):
            clock(duration)
        found = pm.finalize(verbose=False, return_results=True)
        assert sums(found) == sums(sp.load(tmp_path / "p.h5")) == {"a": (1, duration, duration, duration, duration)}
    assert pm.region("a").num_calls == 3
    assert sums(pm.finalize(verbose=False, return_results=True)) == {}
    pm.reset()


def test_in_memory_each_finalize_has_all_calls(clock):
    pm = sp.ProfileManager()
    pm.setup(output=None, aggregation_mode=True)
    for number in (1, 2, 3):
        with pm.region("a"):
            clock(10 * number)
        assert sums(pm.finalize(verbose=False, return_results=True))["a"][:4] == (number, 5 * number * (number + 1), 10, 10 * number)
    pm.reset()


def test_an_open_call_is_reported_whole_by_the_first_finalize_after_its_end(clock, tmp_path):
    pm = sp.ProfileManager()
    pm.setup(output=tmp_path / "p.h5", aggregation_mode=True)
    with pm.region("outer"):
        clock(1)
        with pm.region("inner"):
            clock(2)
        assert sums(pm.finalize(verbose=False, return_results=True)) == {"inner": (1, 2, 2, 2, 2)}
        clock(4)
    assert sums(pm.finalize(verbose=False, return_results=True)) == {"outer": (1, 7, 7, 7, 5)}
    pm.reset()


def test_a_failed_finalize_loses_nothing(clock, tmp_path):
    pm = sp.ProfileManager()
    (tmp_path / "d").mkdir()
    pm.setup(output=tmp_path / "d" / "p.h5", aggregation_mode=True)
    with pm.region("a"):
        clock(1)
    (tmp_path / "d").rename(tmp_path / "away")
    with pytest.raises(OSError):
        pm.finalize(verbose=False)
    with pm.region("a"):
        clock(2)
    (tmp_path / "away").rename(tmp_path / "d")
    assert sums(pm.finalize(verbose=False, return_results=True)) == {"a": (2, 3, 1, 2, 3)}
    assert sums(sp.load(tmp_path / "d" / "p.h5")) == {"a": (2, 3, 1, 2, 3)}
    pm.reset()


def test_finalize_while_threads_record_loses_no_call_and_counts_none_twice(tmp_path, scale):
    pm = sp.ProfileManager()
    pm.setup(output=tmp_path / "p.h5", aggregation_mode=True, spool=False)
    done, made = threading.Event(), [0] * 4

    def work(number):
        region = pm.region("r")
        while not done.is_set():
            with region, pm.region(f"r{number}"):
                pass
            made[number] += 1

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        found = []
        for _ in range(scale(10, 300)):
            time.sleep(0.01)
            found.append(pm.finalize(verbose=False, return_results=True))
        done.set()
        for thread in threads:
            thread.join()
        found.append(pm.finalize(verbose=False, return_results=True))
    finally:
        done.set()
        sys.setswitchinterval(switch)
    assert sum(results["r"].num_calls for results in found if "r" in results) == sum(made)
    for number in range(4):
        name = f"r{number}"
        parts = [results[name][0] for results in found if name in results]
        assert sum(one.num_calls for one in parts) == made[number]
        for one in parts:
            assert 0 <= one.min_duration <= one.max_duration <= one.total_duration < 60
            assert one.exclusive_duration == one.total_duration
    pm.reset()


# -- what there is not ---------------------------------------------------------------------------------------------------------


def test_what_needs_single_calls_says_so(tmp_path):
    pm = sp.ProfileManager()
    with pm.session(output=tmp_path / "p.h5", verbose=False, return_results=True, aggregation_mode=True) as run:
        enter(pm, "a", 3)
        with pytest.raises(RuntimeError, match="aggregation_mode"), pm.metadata(k=1):
            pass
    for results in (run.results, sp.load(tmp_path / "p.h5")):
        one = results["a"][0]
        assert one.num_calls == len(one) == 3 and len(one.durations) == 0
        assert one.p50_duration is None and one.percentile_duration(30) is None
        assert results.events() == [] and results.call_graph() == []
        for export in (sp.export_speedscope, sp.export_chrome_trace, sp.export_prof, sp.export_flamegraph_svg):
            with pytest.raises(ValueError, match="totals"):
                export(results, tmp_path / "out")


def test_outcomes_and_metadata_of_decorated_functions_take_no_memory():
    pm = sp.ProfileManager()

    @pm.profile(metadata={"k": 1}, record_outcome=True)
    def function(): ...

    with summed(pm) as run:
        for _ in range(100):
            function()
        assert not pm._state.recording.events.used
    assert counts(run.results) == {"function": 100}


@pytest.mark.parametrize("mode", ["track_threads", "track_async"])
def test_threads_cannot_be_told_apart_in_sums(mode):
    pm = sp.ProfileManager()
    with pytest.raises(ValueError, match=f"{mode} cannot be combined with aggregation_mode"):
        pm.setup(output=None, aggregation_mode=True, **{mode: True})
    assert not pm.is_configured()


# -- files ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["p.h5", "p.json", "p.json.gz"])
def test_files_keep_sums_tags_and_sources(clock, tmp_path, name):
    pm = sp.ProfileManager()
    with pm.session(output=tmp_path / name, verbose=False, return_results=True, aggregation_mode=True) as run:
        for duration in (10, 30):
            with pm.region("a", tags=["t"]):
                clock(duration)
    loaded = sp.load(tmp_path / name)
    assert sums(loaded) == sums(run.results) == {"a": (2, 40, 10, 30, 40)}
    one = loaded["a"][0]
    assert one.tags == ("t",) and one.source_file.endswith("test_aggregation.py")
    assert (one.std_duration, one.first_duration, one.last_duration) == (10e-9, 10e-9, 30e-9)
    assert loaded.time_span == run.results.time_span == 40e-9
    summary = sp.read_profile(tmp_path / name).summary(include="a")[0]
    assert (summary["num_calls"], summary["p95"]) == (2, None)


def test_a_file_of_sums_can_be_rewritten_and_merged(clock, tmp_path):
    pm = sp.ProfileManager()
    parts = []
    for number, durations in enumerate([(10, 30), (50,)]):
        with summed(pm) as run:
            for duration in durations:
                with pm.region(f"a{number}"):
                    clock(duration)
        parts.append(run.results)
    merged = sp.merge_results(sp.merge_results(parts[0]), sp.ProfilingResults({"a1": parts[1]["a1"]}))
    sp.write_profile(merged, tmp_path / "m.h5")
    loaded = sp.load(tmp_path / "m.h5")
    assert sums(loaded) == {"a0": (2, 40, 10, 30, 40), "a1": (1, 50, 50, 50, 50)}
    assert loaded["a0"][0].std_duration == 10e-9


def test_the_table_lists_the_sums(capsys, clock):
    pm = sp.ProfileManager()
    with pm.session(output=None, aggregation_mode=True):
        for _ in range(3):
            with pm.region("a"):
                clock(10**9)
    table = capsys.readouterr().out
    assert "a (3x)" in table and "3.000000" in table and "overlap" not in table


# -- processes -------------------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading, scope_profiler as sp
sp.setup(output="p.h5", aggregation_mode=True)
def work(times):
    for _ in range(times):
        with sp.region("outer"):
            with sp.region("inner"): pass
"""


def spool_of(directory):
    [name] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    return sp.load(directory / name)


def test_a_process_that_is_killed_loses_no_call_that_had_ended(python, tmp_path):
    process = python(
        KILLED
        + """
threads = [threading.Thread(target=work, args=(5000,)) for _ in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
work(7)
with sp.region("open"):
    os.kill(os.getpid(), signal.SIGKILL)
""",
        check=False,
    )
    assert process.returncode == -9, process.stderr
    found = spool_of(tmp_path)
    assert counts(found) == {"outer": 15007, "inner": 15007}
    outer, inner = found["outer"][0], found["inner"][0]
    assert outer.exclusive_duration == pytest.approx(outer.total_duration - inner.total_duration, abs=1e-6)
    assert outer.min_duration <= outer.average_duration <= outer.max_duration and outer.std_duration > 0


def test_a_kill_behind_a_checkpoint_leaves_what_came_after_it(python, tmp_path):
    process = python(KILLED + "work(10); sp.finalize(verbose=False); work(3); os.kill(os.getpid(), signal.SIGKILL)", check=False)
    assert process.returncode == -9, process.stderr
    assert counts(sp.load(tmp_path / "p.h5")) == {"outer": 10, "inner": 10}
    assert counts(spool_of(tmp_path)) == {"outer": 3, "inner": 3}
    recovered = subprocess.run(
        [sys.executable, "-m", "scope_profiler", "recover", *tmp_path.glob("*.spool"), "-o", tmp_path / "r.h5"], capture_output=True, text=True
    )
    assert recovered.returncode == 0, recovered.stderr
    assert counts(sp.load(tmp_path / "r.h5")) == {"outer": 3, "inner": 3}


def test_a_kill_behind_a_failed_finalize_loses_nothing(python, tmp_path):
    (tmp_path / "sub").mkdir()
    process = python(
        KILLED.replace("p.h5", "sub/p.h5")
        + """
work(10)
os.rename("sub", "away")
try: sp.finalize(verbose=False)
except OSError: pass
os.rename("away", "sub")
work(3)
os.kill(os.getpid(), signal.SIGKILL)
""",
        check=False,
    )
    assert process.returncode == -9, process.stderr
    assert counts(spool_of(tmp_path / "sub")) == {"outer": 13, "inner": 13}


@pytest.mark.slow
def test_kills_at_random_moments_leave_sums_that_agree(tmp_path, scale):
    """Each region's calls are inside the other's, one to one, so that every count tells of every other."""
    program = KILLED + "print('on', flush=True)\n[threading.Thread(target=work, args=(10**9,)).start() for _ in range(2)]\n"
    for number in range(scale(8, 500)):
        directory = tmp_path / str(number)
        directory.mkdir()
        process = subprocess.Popen([sys.executable, "-c", program], cwd=directory, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.01 + 0.1 * random.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = spool_of(directory)
        if not found.region_names:
            continue
        outer, inner = found["outer"][0], found["inner"][0]
        assert 0 <= inner.num_calls - outer.num_calls <= 2
        for one in (outer, inner):
            assert one.min_duration <= one.average_duration <= one.max_duration <= one.total_duration
            assert one.exclusive_duration <= one.total_duration and one.std_duration**2 * one.num_calls <= one.total_duration**2
        assert inner.exclusive_duration == inner.total_duration
        assert "recovered_damaged_bytes" not in found.metadata


def test_a_damaged_spool_of_sums_is_read_or_refused(python, tmp_path, scale):
    process = python(KILLED + "work(10); sp.finalize(verbose=False); work(3); os.kill(os.getpid(), signal.SIGKILL)", check=False)
    assert process.returncode == -9, process.stderr
    [spool] = tmp_path.glob("*.spool")
    data = spool.read_bytes()
    end = len(data.rstrip(b"\0")) + 64
    for seed in range(scale(60, 5000)):
        rng, damaged = random.Random(seed), bytearray(data)
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(rng.choice((0, 4096)), end)
            damaged[at] = rng.choice((0, 255, damaged[at] ^ 1 << rng.randrange(8)))
        (tmp_path / "damaged.spool").write_bytes(damaged)
        try:
            results = sp.load(tmp_path / "damaged.spool")
        except (OSError, ValueError):
            continue
        for name in results.region_names:
            one = results[name][0]
            assert one.min_duration <= one.max_duration <= one.total_duration and one.std_duration >= 0


def test_top_shows_the_sums_of_a_process(python, tmp_path):
    process = python(KILLED + "work(1000); os.kill(os.getpid(), signal.SIGKILL)", check=False)
    assert process.returncode == -9, process.stderr
    [spool] = tmp_path.glob("*.spool")
    process = subprocess.run([sys.executable, "-m", "scope_profiler", "top", "--json", spool], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    regions = {region["name"]: region["calls"] for region in json.loads(process.stdout)["regions"]}
    assert regions == {"outer": 1000, "inner": 1000}


def test_a_normal_end_leaves_no_spool(python, tmp_path):
    process = python(KILLED + "work(10); sp.finalize(verbose=False)")
    assert process.returncode == 0, process.stderr
    assert sorted(os.listdir(tmp_path)) == ["p.h5"]
    process = python(KILLED + "work(10)")
    assert process.returncode == 0, process.stderr
    assert counts(spool_of(tmp_path)) == {"outer": 10, "inner": 10}


def test_a_forked_child_has_the_sums_so_far_and_leaves_the_parents_alone(python, tmp_path):
    process = python(
        KILLED
        + """
import json
stop = threading.Event()
def busy():
    while not stop.is_set(): work(1)
other = threading.Thread(target=busy); other.start()
work(10)
for _ in range(20):
    child = os.fork()
    if child == 0:
        work(5)
        child_counts = sp.finalize(verbose=False, return_results=True)
        assert child_counts["outer"].num_calls >= 15 and child_counts["inner"].num_calls >= 15
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set(); other.join()
before = sp.region("outer").num_calls
result = sp.finalize(verbose=False, return_results=True)
print(json.dumps([before, result["outer"].num_calls, result["inner"].num_calls]))
"""
    )
    assert process.returncode == 0, process.stderr
    before, outer, inner = json.loads(process.stdout.splitlines()[-1])
    assert before == outer == inner >= 10


def test_memory_does_not_grow_with_the_calls(python, scale):
    process = python(
        f"""
import resource, scope_profiler as sp
sp.setup(output="p.h5", aggregation_mode=True)
def make(times):
    region, outer = sp.region("r"), sp.region("outer")
    for _ in range(times // 2):
        with outer:
            with region: pass
make(100_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
make({scale(2_000_000, 100_000_000)})
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
result = sp.finalize(verbose=False, return_results=True)
print(grown, result["r"].num_calls + result["outer"].num_calls)
""",
        timeout=scale(60, 3600),
    )
    assert process.returncode == 0, process.stderr
    grown, calls = map(int, process.stdout.split())
    assert grown < 300 and calls == scale(2_100_000, 100_100_000)


# -- native code -------------------------------------------------------------------------------------------------------------------


def test_native_code_of_the_process_adds_to_the_same_sums(native_library, python):
    process = python(
        f"""
import ctypes, scope_profiler as sp
library = ctypes.CDLL({str(native_library.directory / "libscope_profiler.so.1")!r})
library.sp_region.restype = ctypes.c_int
library.sp_region.argtypes = [ctypes.c_char_p]
sp.setup(output=None, aggregation_mode=True)
handle = library.sp_region(b"native")
with sp.region("outer"):
    for _ in range(5):
        library.sp_begin(handle)
        with sp.region("inner"): pass
        library.sp_end(handle)
    print(library.sp_num_calls(handle))
r = sp.finalize(verbose=False, return_results=True)
print([r[name].num_calls for name in ("outer", "native", "inner")])
own = {{name: r[name].total_duration - r[name].exclusive_duration for name in r.region_names}}
print(abs(own["outer"] - r["native"].total_duration) < 1e-7, abs(own["native"] - r["inner"].total_duration) < 1e-7)
"""
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["5", "[1, 5, 5]", "True True"]


def test_what_recording_has_cost_is_told_for_sums_too():
    pm = sp.ProfileManager()
    with summed(pm) as run:
        enter(pm, "a", 1000)
    assert run.results.metadata["overhead_calls"] == 1001
    assert 1_000 < run.results.metadata["overhead_ns"] < 10_000_000


def test_the_command_line_keeps_sums_on_request(tmp_path):
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nfor _ in range(5):\n    with sp.region('a'): pass\n")
    command = [sys.executable, "-m", "scope_profiler", "run", "--aggregation-mode", "-o", "p.h5", "app.py"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0 and "a (5x)" in process.stdout, process.stderr
    loaded = sp.load(tmp_path / "p.h5")
    assert counts(loaded) == {"a": 5} and loaded["a"].p50_duration is None


FOLLOWED = """
import multiprocessing, sys, scope_profiler as sp
def work(times):
    with sp.region("worker"):
        for _ in range(times):
            with sp.region("inner"): pass
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with sp.session(output="p.h5", verbose=False, aggregation_mode=True, follow_processes=True):
        with context.Pool(2) as pool: pool.map(work, [10, 20, 30])
        process = context.Process(target=work, args=(5,))
        process.start(); process.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_followed_keep_sums_too(tmp_path, method):
    (tmp_path / "app.py").write_text(FOLLOWED)
    process = subprocess.run([sys.executable, "app.py", method], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (process.returncode, process.stderr) == (0, "")
    loaded = sp.load(tmp_path / "p.h5")
    assert counts(loaded) == {"worker": 4, "inner": 65} and loaded["inner"].p50_duration is None
    assert loaded["worker"].exclusive_duration < loaded["worker"].total_duration
