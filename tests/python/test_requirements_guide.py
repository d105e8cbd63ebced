"""The guide of threads, tasks and coroutines, statement by statement. Each test says which one it is about."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from lanes import NS, Stopwatch, burn, on_threads, relative, session, the
from own_loop import OwnLoop, SealedLoop
from scope_profiler import NestingError, ProfileManager
from scope_profiler.call_stack import build_call_arrays, split_by_lane

pytestmark = pytest.mark.usefixtures("clean_manager")

# Lower bounds of await times are far below the sleeps: a busy machine may stop a task between asking for the timer and giving up its
# thread, which is running time. The exact arithmetic is tested with a clock that is moved by hand.
SLACK = 2e-6  # between the clock of the calls and time.perf_counter_ns()


@pytest.fixture(autouse=True)
def nothing_of_a_hook_is_left() -> Any:
    create_task = asyncio.BaseEventLoop.create_task
    run_forever = asyncio.BaseEventLoop.run_forever
    yield
    sp.reset()
    assert asyncio.BaseEventLoop.create_task is create_task
    assert asyncio.BaseEventLoop.run_forever is run_forever
    assert threading._profile_hook is None


async def nap(seconds: float, region: str = "nap") -> None:
    with ProfileManager.profile_region(region):
        await asyncio.sleep(seconds)


# -- why it is there -----------------------------------------------------------------------------------------------------


def test_a_call_that_starts_while_another_is_open_is_nested_in_it() -> None:
    """Introduction: while one stack owns the process, nesting follows from start and end alone."""
    with session() as run:
        with ProfileManager.profile_region("outer"):
            with ProfileManager.profile_region("inner"):
                with ProfileManager.profile_region("innermost"):
                    pass
            with ProfileManager.profile_region("inner"):
                pass
    outer, inner, innermost = (run.results[name][0] for name in ("outer", "inner", "innermost"))
    assert inner.parent_ids.tolist() == [outer.call_ids[0]] * 2
    assert innermost.parent_ids.tolist() == [inner.call_ids[0]]
    assert outer.exclusive_durations_ns[0] == outer.durations_ns[0] - inner.durations_ns.sum()


def test_threads_of_an_untracked_run_lose_no_call_to_each_other() -> None:
    """Introduction: threads in one region must not overwrite each other's slots, tracked or not."""

    def work() -> None:
        for _ in range(2000):
            with ProfileManager.profile_region("shared"):
                pass

    with session() as run:
        on_threads(work, work, work)
    shared = run.results["shared"][0]
    assert shared.num_calls == 6000
    assert (shared.durations_ns >= 0).all()


def test_tracking_is_off_by_default() -> None:
    """Introduction: both settings are off by default, and a single-threaded run pays nothing for them."""
    config = sp.profile_config.ProfilingConfig()
    assert config.track_threads is False and config.track_async is False
    with session() as run:
        assert ProfileManager.get_config().tracker is None
        assert threading._profile_hook is None
        with ProfileManager.profile_region("r"):
            pass
    region = run.results["r"][0]
    assert region.thread_ids is None and region.task_ids is None and region.await_times is None


# -- profiling every thread --------------------------------------------------------------------------------------------------


def test_each_thread_has_its_own_stack_and_each_call_its_thread() -> None:
    """Profiling every thread: own buffers and scope stack by thread, the thread's id with every call."""
    meet = threading.Barrier(2)

    def work() -> None:
        with ProfileManager.profile_region("outer"):
            meet.wait()
            with ProfileManager.profile_region("inner"):
                meet.wait()
            meet.wait()

    with session(track_threads=True) as run:
        on_threads(work, work, names=("a", "b"))
    indices = sorted(the(run.results.threads[0], name).index for name in "ab")
    for name in ("outer", "inner"):
        assert sorted(run.results[name][0].thread_ids.tolist()) == indices


def test_nesting_is_that_of_each_thread() -> None:
    """Profiling every thread: exclusive times, call stack and call graph are not an interleaving of stacks."""
    meet = threading.Barrier(2)

    def work() -> None:
        with ProfileManager.profile_region("outer"):
            meet.wait()
            with ProfileManager.profile_region("inner"):
                meet.wait()
            meet.wait()

    with session(track_threads=True) as run:
        on_threads(work, work)
    outer, inner = run.results["outer"][0], run.results["inner"][0]
    for index in outer.threads:
        mine, child = outer.for_thread(index), inner.for_thread(index)
        assert child.parent_ids.tolist() == mine.call_ids.tolist()
        assert mine.exclusive_durations_ns[0] == mine.durations_ns[0] - child.durations_ns[0]
    graph = {call["call_id"]: call for call in run.results.call_graph()}
    for call in graph.values():
        caller = graph.get(call["parent_id"], {"name": None})
        assert caller["name"] == {"inner": "outer"}.get(call["name"])
    calls = [call for call in run.results.call_stack() if call["name"] == "inner"]
    assert [call["depth"] for call in calls] == [1, 1]


def test_a_row_of_the_thread_table_describes_its_thread() -> None:
    """Table of fields: index, name, ident, native_id, daemon."""
    seen: dict[str, Any] = {}

    def work() -> None:
        seen.update(ident=threading.get_ident(), native_id=threading.get_native_id())
        with ProfileManager.profile_region("work"):
            pass

    with session(track_threads=True) as run:
        thread = threading.Thread(target=work, name="worker", daemon=True)
        thread.start()
        thread.join()
        on_threads(lambda: None, names=("idle",))
    rows = run.results.threads[0]
    worker = the(rows, "worker")
    assert [row.index for row in rows] == list(range(len(rows))), "dense within the rank"
    assert run.results["work"][0].thread_ids.tolist() == [worker.index]
    assert (worker.ident, worker.native_id, worker.daemon) == (seen["ident"], seen["native_id"], True)
    assert the(rows, "MainThread").daemon is False
    assert the(rows, "idle").cpu_time >= 0


def test_times_of_a_thread_are_relative_to_the_start_of_the_run() -> None:
    """Table of fields: start_time, end_time, wall_time; end_time and wall_time are None while the thread lives."""
    release = threading.Event()
    clock = Stopwatch()

    def work() -> None:
        clock("first")
        time.sleep(0.01)
        clock("last")

    alive = threading.Thread(target=release.wait, name="alive", daemon=True)
    with session(track_threads=True) as run:
        alive.start()
        clock("before")
        on_threads(work, names=("worker",))
        clock("after")
    release.set()
    alive.join()
    worker = the(run.results.threads[0], "worker")
    assert relative(run.results, clock.at["before"]) - SLACK <= worker.start_time
    assert worker.start_time <= relative(run.results, clock.at["first"]) + SLACK
    assert relative(run.results, clock.at["last"]) - SLACK <= worker.end_time
    assert worker.end_time <= relative(run.results, clock.at["after"]) + SLACK
    assert worker.wall_time == pytest.approx(worker.end_time - worker.start_time, abs=1e-9)
    row = the(run.results.threads[0], "alive")
    assert row.alive and row.end_time is None and row.wall_time is None


def test_a_thread_is_registered_at_its_first_bytecode() -> None:
    """The start is exact: also for a thread whose first region comes late, or never."""
    clock = Stopwatch()

    def work() -> None:
        clock("first")
        time.sleep(0.03)
        with ProfileManager.profile_region("late"):
            pass

    with session(track_threads=True) as run:
        clock("before")
        on_threads(work, names=("late",))
        on_threads(lambda: None, names=("never",))
    start = the(run.results.threads[0], "late").start_time
    assert relative(run.results, clock.at["before"]) - SLACK <= start
    assert start <= relative(run.results, clock.at["first"]) + SLACK
    assert the(run.results.threads[0], "never").wall_time > 0


def test_the_hook_that_registers_a_thread_does_not_survive_into_its_work() -> None:
    """The profile hook removes itself at once: a thread's work runs without any profile or trace function."""
    seen: list[Any] = []
    with session(track_threads=True):
        on_threads(lambda: seen.append((sys.getprofile(), sys.gettrace())))
    assert seen == [(None, None)]


def test_end_and_cpu_time_are_taken_on_the_dying_thread() -> None:
    """End and CPU total are exact and there when join() returns."""
    clock = Stopwatch()
    used: list[int] = []

    def work() -> None:
        burn(0.02)
        used.append(time.thread_time_ns())
        clock("last")

    with session(track_threads=True) as run:
        on_threads(work, names=("worker",))
        clock("joined")
        tracker = ProfileManager.get_config().tracker
        record = the(tracker.threads, "worker")
        assert not record.alive and record.end_ns <= clock.at["joined"] + 2000
    worker = the(run.results.threads[0], "worker")
    assert relative(run.results, clock.at["last"]) - SLACK <= worker.end_time
    assert worker.end_time <= relative(run.results, clock.at["joined"]) + SLACK
    assert used[0] * NS <= worker.cpu_time <= used[0] * NS + 0.005
    assert worker.cpu_time <= worker.wall_time + 0.01


def test_a_thread_that_lives_at_finalize_is_alive_and_has_its_cpu_time_so_far() -> None:
    """A thread still running reports alive, and the CPU time it has used up to then."""
    burnt, release = threading.Event(), threading.Event()
    used: list[float] = []

    def work() -> None:
        burn(0.03)
        used.append(time.thread_time())
        burnt.set()
        release.wait()

    thread = threading.Thread(target=work, name="worker", daemon=True)
    with session(track_threads=True) as run:
        thread.start()
        burnt.wait()
    release.set()
    thread.join()
    worker = the(run.results.threads[0], "worker")
    assert worker.alive
    assert used[0] <= worker.cpu_time <= used[0] + 0.01


def test_thread_summary_shows_cpu_time_outside_of_regions() -> None:
    """thread_summary(rank): name, num_calls, region_time and cpu_time; CPU burned outside regions is the gap."""

    def inside() -> None:
        for _ in range(3):
            with ProfileManager.profile_region("work"):
                burn(0.01)

    def outside() -> None:
        with ProfileManager.profile_region("work"):
            pass
        burn(0.03)

    with session(track_threads=True) as run:
        on_threads(inside, outside, names=("inside", "outside"))
    rows = {row["name"]: row for row in run.results.thread_summary(rank=0)}
    assert rows["inside"]["num_calls"] == 3 and rows["outside"]["num_calls"] == 1
    work = run.results["work"][0]
    for name, row in rows.items():
        if name in ("inside", "outside"):
            index = the(run.results.threads[0], name).index
            assert row["region_time"] == pytest.approx(work.for_thread(index).total_duration, abs=1e-12)
    assert rows["inside"]["region_time"] >= 0.03
    assert rows["outside"]["cpu_time"] - rows["outside"]["region_time"] >= 0.029


def test_a_region_can_be_sliced_by_thread() -> None:
    """solve.threads and solve.for_thread(index), which is an ordinary Region."""

    def calls(count: int) -> Any:
        def work() -> None:
            for _ in range(count):
                with ProfileManager.profile_region("solve"):
                    pass

        return work

    with session(track_threads=True) as run:
        on_threads(calls(2), calls(5), names=("two", "five"))
    solve = run.results["solve"][0]
    assert solve.threads == sorted(the(run.results.threads[0], name).index for name in ("two", "five"))
    parts = {index: solve.for_thread(index) for index in solve.threads}
    assert all(type(part) is type(solve) for part in parts.values())
    assert {part.num_calls for part in parts.values()} == {2, 5}
    for index, part in parts.items():
        mine = solve.durations[solve.thread_ids == index]
        assert part.durations.tolist() == mine.tolist()
        assert part.average_duration == pytest.approx(mine.mean(), rel=1e-12)


# -- asyncio and greenlets -------------------------------------------------------------------------------------------------------


def test_track_async_implies_track_threads() -> None:
    """track_async=True implies track_threads=True."""
    with session(track_async=True) as run:
        assert ProfileManager.get_config().track_threads is True
        on_threads(lambda: None, names=("worker",))
    the(run.results.threads[0], "worker")


def test_every_task_is_a_lane_and_interleaved_tasks_are_not_nested() -> None:
    """Each task is a lane of its own, so tasks that interleave are not mistaken for nested calls."""

    async def main() -> None:
        await asyncio.gather(nap(0.01), nap(0.02), nap(0.03))

    with session(track_async=True) as run:
        asyncio.run(main())
    call = run.results["nap"][0]
    assert len(set(call.task_ids.tolist())) == 3 and -1 not in call.task_ids
    assert call.parent_ids.tolist() == [-1, -1, -1]
    assert call.exclusive_durations_ns.tolist() == call.durations_ns.tolist()
    for duration, least in zip(sorted(call.durations), (0.01, 0.02, 0.03)):
        assert duration >= least - 1e-4


def test_a_call_records_how_much_of_it_was_spent_awaiting() -> None:
    """await_times is the suspended part of durations; the difference held the thread."""
    clock = Stopwatch()

    async def fetch() -> None:
        with ProfileManager.profile_region("fetch"):
            burn(0.01)
            clock("before")
            await asyncio.sleep(0.02)
            clock("after")
            burn(0.01)

    with session(track_async=True) as run:
        asyncio.run(fetch())
    call = run.results["fetch"][0]
    assert 0.01 <= call.await_times[0] <= clock.between("before", "after") + SLACK
    assert (call.durations - call.await_times)[0] >= 0.0199
    assert call.await_times[0] <= call.durations[0]


def test_a_call_outside_of_every_task_awaits_nothing() -> None:
    """task_ids is -1 outside any task, and such a call has await time 0."""

    async def main() -> None:
        await nap(0, "in_task")

    with session(track_async=True) as run:
        with ProfileManager.profile_region("bare"):
            asyncio.run(main())
    assert run.results["bare"][0].task_ids.tolist() == [-1]
    assert run.results["bare"][0].await_times.tolist() == [0.0]
    assert run.results["in_task"][0].task_ids[0] >= 0


def test_a_row_of_the_task_table_describes_its_task() -> None:
    """Table of fields: index, kind, name, coro_name, thread_index, steps, running, awaiting, created and done times."""
    clock = Stopwatch()

    async def worker() -> None:
        clock("started")
        burn(0.01)
        for _ in range(3):
            await asyncio.sleep(0.005)
        clock("ending")

    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()

    async def main() -> Any:
        clock("before")
        task = loop.create_task(worker(), name="named")
        clock("made")
        pending = loop.create_task(forever())
        await task
        clock("after")
        return pending

    with session(track_async=True) as run:
        pending = loop.run_until_complete(main())
        name_of_pending = pending.get_name()
    pending.cancel()
    loop.run_until_complete(asyncio.wait([pending]))
    loop.close()
    rows = run.results.tasks[0]
    assert [row.index for row in rows] == list(range(len(rows)))
    row = the(rows, "named")
    assert (row.kind, row.coro_name, row.rank) == ("task", worker.__qualname__, 0)
    assert row.thread_index == the(run.results.threads[0], "MainThread").index
    assert row.steps == 4
    at = {name: relative(run.results, ns) for name, ns in clock.at.items()}
    assert at["before"] - SLACK <= row.created_time <= at["made"] + SLACK
    assert at["ending"] - SLACK <= row.done_time <= at["after"] + SLACK
    assert row.running_time >= 0.0099
    assert 0.005 <= row.awaiting_time
    assert row.running_time + row.awaiting_time <= at["after"] - at["made"] + SLACK
    unfinished = the(rows, name_of_pending)
    assert unfinished.done_time is None and not unfinished.done and unfinished.coro_name == forever.__qualname__


def test_greenlets_are_rows_of_their_own_kind() -> None:
    """When greenlet is installed every greenlet is followed: kind, name, target, steps and the split of its time."""
    greenlet = pytest.importorskip("greenlet")
    clock = Stopwatch()

    def target() -> None:
        with ProfileManager.profile_region("inside"):
            burn(0.01)
            clock("leave")
            greenlet.getcurrent().parent.switch()
            clock("back")
            burn(0.01)

    class Named(greenlet.greenlet):
        name = "fetcher"

    with session(track_async=True) as run:
        lane = Named(target)
        lane.switch()
        time.sleep(0.02)
        lane.switch()
        assert lane.dead
    (row,) = run.results.tasks[0]
    # Code objects of Python 3.10 do not know their qualified name, and a greenlet that runs has forgotten its function.
    coro_name = target.__qualname__ if sys.version_info >= (3, 11) else target.__name__
    assert (row.kind, row.name, row.coro_name, row.steps) == ("greenlet", "fetcher", coro_name, 2)
    inside = run.results["inside"][0]
    assert inside.task_ids.tolist() == [row.index]
    assert 0.01 <= inside.await_times[0] <= clock.between("leave", "back") + SLACK
    assert row.awaiting_time == pytest.approx(inside.await_times[0], abs=1e-7)  # each is converted from ticks by itself
    assert row.running_time >= 0.0199 and row.done


# -- how it works ------------------------------------------------------------------------------------------------------------------


def test_every_send_and_throw_of_the_loop_is_a_step_of_the_c_task() -> None:
    """Each send() and throw() is timed; it works with the C implementation of asyncio.Task."""
    import _asyncio

    assert asyncio.Task is _asyncio.Task

    async def steps() -> None:
        for _ in range(4):
            await asyncio.sleep(0)  # a send each
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # one throw
            await asyncio.sleep(0)  # and a last send

    async def main() -> None:
        task = asyncio.ensure_future(steps())
        for _ in range(6):
            await asyncio.sleep(0)
        task.cancel()
        await task

    with session(track_async=True) as run:
        asyncio.run(main())
    (row,) = [row for row in run.results.tasks[0] if row.coro_name == steps.__qualname__]
    assert row.steps == 1 + 4 + 1 + 1


def run_in_asyncio_run(main: Any) -> None:
    asyncio.run(main())


def run_until_complete(main: Any) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def run_bare_run_forever(main: Any) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.create_task(main()).add_done_callback(lambda task: loop.stop())
        loop.run_forever()
    finally:
        loop.close()


@pytest.mark.parametrize("way", [run_in_asyncio_run, run_until_complete, run_bare_run_forever])
def test_every_way_to_run_a_loop_is_covered(way: Any) -> None:
    """asyncio.run(), run_until_complete() and a bare run_forever(), with loops made long after the setup."""

    async def main() -> None:
        await asyncio.gather(nap(0.002), nap(0.002))

    with session(track_async=True) as run:
        time.sleep(0.002)
        way(main)
    call = run.results["nap"][0]
    assert call.num_calls == 2 and len(set(call.task_ids.tolist())) == 2
    assert (call.await_times > 0).all()


def test_a_loop_made_before_the_session_is_covered_too() -> None:
    """Loops are found through BaseEventLoop, whenever they were made."""
    loop = asyncio.new_event_loop()
    with session(track_async=True) as run:
        loop.run_until_complete(nap(0.002))
    loop.close()
    assert run.results["nap"][0].task_ids.tolist() == [0]


def test_the_task_factory_of_the_application_stays_and_is_used() -> None:
    """An application's own task factory is kept, and chained onto."""
    made: list[Any] = []

    class OwnTask(asyncio.Task):  # type: ignore[type-arg]
        pass

    def factory(loop: Any, coro: Any, **keywords: Any) -> Any:
        task = OwnTask(coro, loop=loop, **keywords)
        made.append(task)
        return task

    async def main() -> None:
        assert asyncio.get_running_loop().get_task_factory() is factory
        task = asyncio.create_task(nap(0.002))
        assert type(task) is OwnTask
        await task

    loop = asyncio.new_event_loop()
    loop.set_task_factory(factory)
    with session(track_async=True) as run:
        loop.run_until_complete(main())
    assert loop.get_task_factory() is factory
    loop.close()
    assert len(made) == 2
    call = run.results["nap"][0]
    assert call.task_ids[0] >= 0 and call.await_times[0] > 0


@pytest.mark.parametrize("kind", [OwnLoop, SealedLoop])
def test_any_other_loop_can_be_instrumented_by_hand(kind: Any) -> None:
    """ProfileManager.get_config().tracker.instrument_loop(loop) serves loops that never reach BaseEventLoop."""

    async def main() -> None:
        await asyncio.gather(nap(0.01), nap(0.02))

    loop = kind()
    with session(track_async=True) as run:
        ProfileManager.get_config().tracker.instrument_loop(loop)
        loop.run_until_complete(main())
    call = run.results["nap"][0]
    assert len(set(call.task_ids.tolist())) == 2 and -1 not in call.task_ids
    assert (np.sort(call.await_times) >= (0.001, 0.01)).all()
    assert "create_task" not in vars(loop) and loop.get_task_factory() is None, "gone after the session"


def test_uvloop_is_followed_unaided() -> None:
    """A loop such as uvloop's: nothing has to be called for it."""
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()

    async def main() -> None:
        await asyncio.gather(nap(0.01), nap(0.02))

    with session(track_async=True) as run:
        loop.run_until_complete(main())
    loop.close()
    call = run.results["nap"][0]
    assert len(set(call.task_ids.tolist())) == 2
    assert (np.sort(call.await_times) >= (0.001, 0.01)).all()


def test_greenlets_are_followed_in_every_thread() -> None:
    """Greenlets are followed by the switches that greenlet's trace reports."""
    greenlet = pytest.importorskip("greenlet")

    def target() -> None:
        with ProfileManager.profile_region("inside"):
            greenlet.getcurrent().parent.switch()

    def work() -> None:
        lanes = [greenlet.greenlet(target) for _ in range(2)]
        for lane in lanes * 2:
            lane.switch()

    with session(track_async=True) as run:
        work()
        on_threads(work, names=("worker",))
    inside = run.results["inside"][0]
    assert sorted(inside.task_ids.tolist()) == [0, 1, 2, 3]
    assert inside.parent_ids.tolist() == [-1] * 4
    threads = {row.index: row.thread_index for row in run.results.tasks[0]}
    worker = the(run.results.threads[0], "worker").index
    assert sorted(threads.values()) == sorted([0, 0, worker, worker])


def test_split_by_lane_gives_each_lane_its_own_view() -> None:
    """call_stack.split_by_lane(): a call tree for every thread and task."""

    async def main() -> None:
        await asyncio.gather(nap(0.001), nap(0.001))

    with session(track_async=True) as run:
        with ProfileManager.profile_region("bare"):
            asyncio.run(main())
    calls = build_call_arrays(run.results.get_regions(), 0)
    parts = dict(split_by_lane(calls))
    tasks = run.results["nap"][0].task_ids.tolist()
    assert set(parts) == {-2, *tasks}
    assert [len(parts[task]) for task in tasks] == [1, 1]
    assert len(parts[-2]) == 2, "the session's root and the region in it"


# -- multiprocessing -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_each_process_profiles_itself_into_a_file_of_its_own(python: Any, tmp_path: Path, method: str) -> None:
    """Multiprocessing: the worker of the guide, under every start method."""
    (tmp_path / "program.py").write_text(
        """
import multiprocessing, sys
from scope_profiler import ProfileManager

def worker(index):
    manager = ProfileManager()
    with manager.session(file_path=f"worker_{index}.h5", track_threads=True, verbose=False):
        for _ in range(index + 1):
            with manager.profile_region("work"):
                pass

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(4) as pool:
        pool.map(worker, range(4))
"""
    )
    process = python("import runpy; runpy.run_path('program.py', run_name='__main__')", method)
    assert process.stderr == ""
    for index in range(4):
        results = sp.load(tmp_path / f"worker_{index}.h5")
        assert results["work"].num_calls == index + 1
        assert [row.name for row in results.threads[0]] == ["MainThread"]


def test_the_default_file_has_the_same_name_in_every_process(tmp_path: Path, monkeypatch: Any) -> None:
    """Each worker needs a file_path of its own: the default is one name for all."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        manager = ProfileManager()
        with manager.session(track_threads=True, verbose=False):
            pass
        assert manager.get_config().file_path == "profiling_data.h5"
    assert [path.name for path in tmp_path.iterdir()] == ["profiling_data.h5"]


def in_child(function: Any) -> None:
    """Run in a forked child, which must end well."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_of_an_active_session_stands_down() -> None:
    """Fork: the hooks come out in the child, and the inherited tables of threads and tasks are dropped."""
    create_task = asyncio.BaseEventLoop.create_task

    async def main() -> None:
        await asyncio.gather(nap(0), nap(0))

    def child() -> None:
        tracker = ProfileManager.get_config().tracker
        for _ in range(2):
            assert threading._profile_hook is None
            assert asyncio.BaseEventLoop.create_task is create_task
            assert tracker.threads == [] and tracker.tasks == []
            snapshot = tracker.snapshot()
            assert {len(column) for table in snapshot.values() for column in table.values()} == {0}
            on_threads(lambda: None)
            asyncio.run(main())

    with session(track_async=True) as run:
        asyncio.run(main())
        on_threads(lambda: None)
        in_child(child)
        asyncio.run(main())
    assert len(run.results.tasks[0]) >= 6, "the parent goes on as before"


def test_a_child_tracks_again_with_a_setup_of_its_own() -> None:
    """Fork: the child tracks concurrency again as soon as it calls setup() for itself."""

    async def main() -> None:
        await asyncio.gather(nap(0.001), nap(0.001))

    def child() -> None:
        for manager in (ProfileManager(), ProfileManager):
            manager.setup(track_async=True, output=None)

            async def own() -> None:
                with manager.profile_region("own"):
                    await asyncio.sleep(0.001)

            asyncio.run(own())
            on_threads(lambda: None, names=("worker",))
            results = manager.finalize(verbose=False, return_results=True)
            assert results.region_names == ["own"], "nothing of the parent"
            assert results["own"][0].await_times[0] > 0
            the(results.threads[0], "worker")
            manager.reset()

    with session(track_async=True):
        asyncio.run(main())
        in_child(child)


def test_finalizing_the_parents_manager_in_the_child_reports_both() -> None:
    """Fork: the region buffers are not dropped, so the parent's calls before the fork come with the child's."""

    def child() -> None:
        with ProfileManager.profile_region("child"):
            pass
        results = ProfileManager.finalize(verbose=False, return_results=True)
        assert {name: results[name].num_calls for name in ("before", "child")} == {"before": 2, "child": 1}

    with session(track_threads=True) as run:
        for _ in range(2):
            with ProfileManager.profile_region("before"):
                pass
        in_child(child)
    assert "child" not in run.results.region_names


# -- lifetime of the hooks -----------------------------------------------------------------------------------------------------------


def test_a_session_has_its_hooks_from_entry_to_exit() -> None:
    """session() installs the hooks at entry and removes them at exit, also when the block raises."""
    create_task = asyncio.BaseEventLoop.create_task
    for error in (None, ValueError):
        try:
            with session(track_async=True):
                assert threading._profile_hook is not None
                assert asyncio.BaseEventLoop.create_task is not create_task
                if error:
                    raise error
        except ValueError:
            pass
        assert threading._profile_hook is None
        assert asyncio.BaseEventLoop.create_task is create_task


def test_hooks_of_setup_stay_after_finalize_until_the_next_setup() -> None:
    """finalize() after setup() can be a checkpoint: threads and tasks go on being followed until the next setup()."""
    create_task = asyncio.BaseEventLoop.create_task
    ProfileManager.setup(track_async=True, output=None)
    ProfileManager.finalize(verbose=False)
    assert threading._profile_hook is not None
    on_threads(lambda: None, names=("late",))
    asyncio.run(nap(0, "late"))
    results = ProfileManager.finalize(verbose=False, return_results=True)
    the(results.threads[0], "late")
    assert results["late"][0].task_ids[0] >= 0
    ProfileManager.setup(output=None)
    assert threading._profile_hook is None
    assert asyncio.BaseEventLoop.create_task is create_task


def test_finalize_may_be_a_checkpoint_while_threads_work() -> None:
    """Threads that work through a checkpoint lose nothing by it."""
    stop = threading.Event()
    counts = [0, 0]

    def work(which: int) -> Any:
        def body() -> None:
            while not stop.is_set():
                with ProfileManager.profile_region("work"):
                    counts[which] += 1

        return body

    ProfileManager.setup(track_threads=True, output=None)
    threads = [threading.Thread(target=work(i)) for i in range(2)]
    for thread in threads:
        thread.start()
    before = 0
    for _ in range(3):
        time.sleep(0.005)
        results = ProfileManager.finalize(verbose=False, return_results=True)
        if "work" in results.region_names:
            assert results["work"].num_calls >= before
            before = results["work"].num_calls
    stop.set()
    for thread in threads:
        thread.join()
    results = ProfileManager.finalize(verbose=False, return_results=True)
    assert results["work"].num_calls == sum(counts)


# -- limits ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["track_threads", "track_async"])
@pytest.mark.parametrize(
    "other", ["use_line_profiler", "use_gpu_timing", "use_nvtx", "use_likwid", "aggregation_mode"]
)
def test_modes_without_a_meaning_by_thread_are_refused(setting: str, other: str) -> None:
    """track_threads with line, GPU, NVTX, LIKWID or aggregation profiling: setup() raises."""
    with pytest.raises((ValueError, ImportError, RuntimeError)) as refusal:
        ProfileManager.setup(output=None, **{setting: True, other: True})
    assert setting in str(refusal.value) and other in str(refusal.value)
    assert not ProfileManager.is_active()


def test_the_parallel_output_mode_is_refused() -> None:
    """output_mode="parallel" raises with track_threads."""
    with pytest.raises((ValueError, RuntimeError)):
        ProfileManager.setup(output=None, output_mode="parallel", track_threads=True)
    assert not ProfileManager.is_active()


def test_imported_regions_are_one_stack_without_a_lane() -> None:
    """Regions of a Fortran or C trace have no lane, and are reconstructed as one stack beside those of the run."""
    from scope_profiler.mpi_region import MPIRegion
    from scope_profiler.region_results import Region

    def region(name: str, starts: list[int], ends: list[int], **columns: Any) -> Any:
        return MPIRegion(name, {0: Region(np.array(starts), np.array(ends), **columns)})

    native_outer = region("native outer", [0], [100])
    native_inner = region("native inner", [10, 40], [30, 60])
    tracked = region("tracked", [5, 6], [50, 70], thread_ids=[0, 1])
    calls = build_call_arrays([native_outer, native_inner, tracked], 0)
    by_lane = {lane: part for lane, part in split_by_lane(calls)}
    assert set(by_lane) == {-1, -2, -3}
    assert by_lane[-1].depth.tolist() == [0, 1, 1]
    assert by_lane[-1].exclusive_ns.tolist() == [60, 20, 20]
    assert by_lane[-2].depth.tolist() == by_lane[-3].depth.tolist() == [0]


def test_very_many_short_tasks(soak: bool) -> None:
    """A run of hundreds of thousands of short tasks is reconstructed, lane by lane."""
    count = 300_000 if soak else 10_000

    async def job() -> None:
        with ProfileManager.profile_region("outer"):
            with ProfileManager.profile_region("inner"):
                await asyncio.sleep(0)

    async def main() -> None:
        for _ in range(count // 100):
            await asyncio.gather(*(job() for _ in range(100)))

    with session(track_async=True) as run:
        asyncio.run(main())
    outer, inner = run.results["outer"][0], run.results["inner"][0]
    assert outer.num_calls == inner.num_calls == count
    assert len(set(outer.task_ids.tolist())) == count
    order = np.argsort(outer.task_ids), np.argsort(inner.task_ids)
    assert (inner.parent_ids[order[1]] == outer.call_ids[order[0]]).all()
    own = outer.durations_ns[order[0]] - inner.durations_ns[order[1]]
    assert (outer.exclusive_durations_ns[order[0]] == own).all()


# -- what a run without tracking does -----------------------------------------------------------------------------------------------------


def test_a_file_without_tracking_has_no_lane_columns(tmp_path: Path) -> None:
    """A file written without tracking carries no lane columns, and its results.threads is empty."""
    h5py = pytest.importorskip("h5py")

    def columns(path: Path) -> set[str]:
        names: set[str] = set()
        with h5py.File(path) as file:
            file.visit(lambda name: names.add(name.rsplit("/", 1)[-1]) or None)
        return names

    for tracked in (False, True):
        path = tmp_path / f"{tracked}.h5"
        with ProfileManager.session(file_path=str(path), verbose=False, track_async=tracked):
            with ProfileManager.profile_region("r"):
                asyncio.run(nap(0))
        lanes = {name for name in columns(path) if name.startswith(("thread_", "task_", "await_"))}
        assert bool(lanes) is tracked, lanes
        results = sp.load(path)
        assert bool(results.threads) is tracked and bool(results.tasks) is tracked


def test_asyncio_and_greenlet_are_not_imported_without_track_async(python: Any) -> None:
    """Importing the package, and running it without track_async, imports neither asyncio nor greenlet."""
    python(
        """
import sys
import scope_profiler as sp
assert not {"asyncio", "greenlet"} & set(sys.modules)
for settings in ({}, {"track_threads": True}):
    with sp.session(output=None, verbose=False, return_results=True, **settings) as run:
        with sp.region("r"): pass
    assert run.results["r"].num_calls == 1
    assert not {"asyncio", "greenlet"} & set(sys.modules), settings
"""
    )


def test_without_lanes_the_lane_array_is_empty() -> None:
    """CallArrays.lane is empty on a run without lanes, not a column of -1."""
    with session() as run:
        with ProfileManager.profile_region("r"):
            pass
    calls = build_call_arrays(run.results.get_regions(), 0)
    assert len(calls) == 2 and len(calls.lane) == 0
    with session(track_threads=True) as run:
        with ProfileManager.profile_region("r"):
            pass
    assert build_call_arrays(run.results.get_regions(), 0).lane.tolist() == [-2, -2]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_concurrent_threads_without_tracking_raise_nesting_error() -> None:
    """Interleaved calls of an untracked run have no call graph: NestingError, rather than an invented one."""
    steps = [threading.Event() for _ in range(3)]

    def first() -> None:
        with ProfileManager.profile_region("first"):
            steps[0].set()
            steps[1].wait()
        steps[2].set()

    def second() -> None:
        steps[0].wait()
        with ProfileManager.profile_region("second"):
            steps[1].set()
            steps[2].wait()

    for tracked in (False, True):
        for step in steps:
            step.clear()
        with session(track_threads=tracked) as run:
            on_threads(first, second)
        if tracked:
            assert len(build_call_arrays(run.results.get_regions(), 0)) == 3
            continue
        with pytest.raises(NestingError):
            build_call_arrays(run.results.get_regions(), 0)
        with pytest.raises(NestingError):
            run.results.call_graph()
        assert run.results["first"].num_calls == run.results["second"].num_calls == 1
    gc.collect()
