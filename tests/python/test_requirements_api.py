"""The page of scope_profiler.concurrency, name by name. Each test says which name, and what the page says of it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from lanes import burn, on_threads, session, the
from own_loop import OwnLoop, SealedLoop
from scope_profiler import _core, concurrency
from scope_profiler.call_stack import build_call_arrays
from scope_profiler.concurrency import (
    CPU_SAMPLE_MASK,
    NO_TASK,
    UNKNOWN,
    ConcurrencyTracker,
    TaskInfo,
    TaskRecord,
    ThreadInfo,
    ThreadRecord,
    lane_ids,
    lane_tables_from_columns,
)

pytestmark = pytest.mark.usefixtures("clean_manager")

# What the page lists: classes with their attributes, properties and methods.
MEMBERS = {
    "ConcurrencyTracker": (
        ["track_async"],
        ["tasks", "threads"],
        ["current_thread", "install", "instrument_loop", "snapshot", "uninstall"],
    ),
    "TaskInfo": (
        ["awaiting_time", "coro_name", "created_time", "done_time", "index", "kind", "name", "rank", "running_time"]
        + ["steps", "thread_index"],
        ["done", "wall_time"],
        [],
    ),
    "TaskRecord": (
        ["coro_name", "created_ns", "done_ns", "index", "kind", "last_step_end_ns", "name", "running_ns"]
        + ["step_started_ns", "steps", "suspended_ns", "thread_index"],
        ["done"],
        ["enter_step", "finish", "leave_step"],
    ),
    "ThreadInfo": (
        ["cpu_time", "daemon", "end_time", "ident", "index", "name", "native_id", "rank", "start_time"],
        ["alive", "wall_time"],
        [],
    ),
    "ThreadRecord": (
        ["cpu_ns", "daemon", "end_ns", "ident", "index", "name", "native_id", "start_ns", "task"],
        ["alive"],
        ["sample_cpu"],
    ),
}


@pytest.fixture
def clock() -> Iterator[Any]:
    """Time stands still until ``clock(ns)`` moves it on; it returns the time then."""
    sp.reset()
    gc.collect()  # a run that an earlier test left in a cycle is still open
    _core._manual_clock(1_000)
    yield _core._advance_clock
    sp.reset()
    _core._manual_clock(None)


@pytest.fixture
def tracker() -> Iterator[ConcurrencyTracker]:
    made = ConcurrencyTracker(track_async=True)
    yield made
    made.uninstall()
    if made._recorder is not None:
        made._recorder.forget()  # its run is open until then, and the clock cannot be given back


def example(name: str) -> Any:
    return {
        "ConcurrencyTracker": lambda: ConcurrencyTracker(),
        "TaskInfo": lambda: TaskInfo(0, 0, "task", "n", "c", 0, 1, 2, 3, 4, 5),
        "TaskRecord": lambda: TaskRecord(0, "task", "n", "c", 0),
        "ThreadInfo": lambda: ThreadInfo(0, 0, "n", 1, 2, False, 3, 4, 5),
        "ThreadRecord": lambda: ThreadRecord(0, threading.current_thread()),
    }[name]()


# -- the module ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_every_member_of_every_class_is_there(name: str) -> None:
    """The page: every class with its attributes, properties and methods."""
    one = example(name)
    assert type(one) is getattr(concurrency, name) and type(one).__name__ == name
    attributes, properties, methods = MEMBERS[name]
    for member in attributes + properties:
        assert not callable(getattr(one, member)), member
    for member in methods:
        assert callable(getattr(one, member)) and getattr(type(one), member).__doc__, member


def test_the_module_lists_its_names() -> None:
    """The page: constants, classes and functions are what the module exports."""
    expected = {*MEMBERS, "CPU_SAMPLE_MASK", "NO_TASK", "UNKNOWN", "lane_ids", "lane_tables_from_columns"}
    assert set(concurrency.__all__) == expected <= set(dir(concurrency))
    star: dict[str, Any] = {}
    exec("from scope_profiler.concurrency import *", star)
    assert expected <= set(star)
    with pytest.raises(AttributeError, match="no_such_name"):
        concurrency.no_such_name  # noqa: B018
    assert sp.concurrency is concurrency


def test_constants() -> None:
    """CPU_SAMPLE_MASK, NO_TASK and UNKNOWN."""
    assert (CPU_SAMPLE_MASK, NO_TASK, UNKNOWN) == (255, -1, -1)


def test_every_call_is_stamped_with_its_lane_and_lanes_are_described_in_two_tables() -> None:
    """Module: each call has the lane it ran on; two small tables that travel with the run describe the lanes."""

    async def job() -> None:
        with sp.region("task"):
            await asyncio.sleep(0)

    def worker() -> None:
        with sp.region("thread"):
            pass

    with session(track_async=True) as run:
        asyncio.run(job())
        on_threads(worker)
    threads = {row.index for row in run.results.threads[0]}
    tasks = {row.index for row in run.results.tasks[0]}
    for name, in_task in (("task", True), ("thread", False)):
        call = run.results[name][0]
        assert call.thread_ids[0] in threads
        assert (call.task_ids[0] in tasks) is in_task
        assert (call.task_ids[0] == NO_TASK) is not in_task


def test_nothing_is_installed_without_track_threads() -> None:
    """Module: nothing of it is installed unless track_threads is set."""
    create_task = asyncio.BaseEventLoop.create_task
    with session():
        assert threading._profile_hook is None
        assert asyncio.BaseEventLoop.create_task is create_task
        assert sp.ProfileManager.get_config().tracker is None


# -- ConcurrencyTracker -------------------------------------------------------------------------------------------------------


def test_a_tracker_belongs_to_one_configuration() -> None:
    """ConcurrencyTracker: one by configuration, so managers that are active together share no numbering."""
    first, second = sp.ProfileManager(), sp.ProfileManager()
    how = dict(output=None, verbose=False, return_results=True, track_threads=True)
    with first.session(**how) as one:
        on_threads(lambda: None, names=("early",))
        with second.session(**how) as two:
            assert first.get_config().tracker is not second.get_config().tracker
            assert first.get_config().tracker is first.get_config().tracker

            def work() -> None:
                with first.region("both"), second.region("both"):
                    pass

            on_threads(work, names=("late",))
    assert [row.name for row in one.results.threads[0]] == ["MainThread", "early", "late"]
    assert [row.name for row in two.results.threads[0]] == ["MainThread", "late"]
    assert one.results["both"][0].thread_ids.tolist() == [2]
    assert two.results["both"][0].thread_ids.tolist() == [1]


def test_creating_a_tracker_installs_nothing() -> None:
    """ConcurrencyTracker: creating it is free; install() is what puts the hooks in place, uninstall() takes them out."""
    create_task = asyncio.BaseEventLoop.create_task
    made = ConcurrencyTracker(track_async=True)
    assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task
    made.install()
    assert threading._profile_hook is not None and asyncio.BaseEventLoop.create_task is not create_task
    made.uninstall()
    assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task


def test_track_async_is_a_bool() -> None:
    """ConcurrencyTracker.track_async: bool(track_async), False by default."""
    assert ConcurrencyTracker().track_async is False
    assert ConcurrencyTracker(1).track_async is True  # type: ignore[arg-type]
    assert ConcurrencyTracker(track_async=True).track_async is True


def test_tasks_are_all_that_were_followed_in_order_of_creation(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.tasks: every task and greenlet, in creation order."""
    greenlet = pytest.importorskip("greenlet")

    async def job() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(asyncio.create_task(job(), name=f"job {i}") for i in range(3)))
        greenlet.greenlet(lambda: None).switch()

    tracker.install()
    asyncio.run(main())
    records = tracker.tasks
    assert all(type(record) is TaskRecord for record in records)
    assert [record.index for record in records] == list(range(len(records)))
    assert [record.name for record in records[1:4]] == ["job 0", "job 1", "job 2"]
    assert [record.kind for record in records[:5]] == ["task"] * 4 + ["greenlet"]
    created = [record.created_ns for record in records]
    assert created == sorted(created)


def test_threads_are_in_registration_order(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.threads: every registered thread, in order of registration."""
    tracker.install()
    for name in ("a", "b", "c"):
        on_threads(lambda: None, names=(name,))
    records = tracker.threads
    assert all(type(record) is ThreadRecord for record in records)
    assert [record.index for record in records] == [0, 1, 2, 3]
    assert [record.name for record in records[1:]] == ["a", "b", "c"]


def test_current_thread_registers_on_first_use(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.current_thread(): this thread's record, registered on first use and the same ever after."""
    go, known = threading.Event(), threading.Event()
    found: list[ThreadRecord] = []

    def older() -> None:
        go.wait()
        found.append(tracker.current_thread())
        found.append(tracker.current_thread())
        known.set()

    thread = threading.Thread(target=older, name="older")
    thread.start()
    tracker.install()
    assert [record.name for record in tracker.threads] == ["MainThread"]
    go.set()
    known.wait()
    thread.join()
    assert found[0] is found[1]
    assert [record.name for record in tracker.threads] == ["MainThread", "older"]
    assert tracker.threads[1] is found[0]
    assert tracker.current_thread().ident == threading.get_ident()


def test_install_is_idempotent(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.install(): a second one does not stack wrappers, and one uninstall() takes all out."""
    create_task = asyncio.BaseEventLoop.create_task

    async def job() -> None:
        await asyncio.sleep(0)

    for _ in range(3):
        tracker.install()
    on_threads(lambda: None)
    asyncio.run(job())
    assert len(tracker.threads) == 2
    assert [record.coro_name for record in tracker.tasks].count(job.__qualname__) == 1
    assert tracker.tasks[0].steps == 2
    tracker.uninstall()
    assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task


def test_a_second_setup_of_one_configuration_does_not_stack_hooks() -> None:
    """ConcurrencyTracker.install(): idempotent, so a second setup() does not stack wrappers."""
    create_task = asyncio.BaseEventLoop.create_task
    for _ in range(3):
        sp.setup(output=None, track_async=True, replace=True)
    asyncio.run(asyncio.sleep(0))
    assert len([row for row in sp.ProfileManager.get_config().tracker.tasks if row.coro_name == "sleep"]) == 1
    sp.reset()
    assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task


@pytest.mark.parametrize("kind", [OwnLoop, SealedLoop])
def test_instrument_loop_follows_the_tasks_of_that_loop(tracker: ConcurrencyTracker, kind: Any) -> None:
    """ConcurrencyTracker.instrument_loop(): a loop that never reaches BaseEventLoop; once by loop."""

    async def job() -> None:
        await asyncio.sleep(0)

    loop, other = kind(), kind()
    tracker.install()
    for _ in range(3):
        tracker.instrument_loop(loop)
    loop.run_until_complete(job())
    other.run_until_complete(job())
    assert [record.steps for record in tracker.tasks] == [2]


@pytest.mark.parametrize("kind", [OwnLoop, SealedLoop])
def test_instrument_loop_chains_onto_the_applications_factory(tracker: ConcurrencyTracker, kind: Any) -> None:
    """ConcurrencyTracker.instrument_loop(): the factory that is there goes on making the tasks."""
    made: list[Any] = []

    def factory(loop: Any, coro: Any, **keywords: Any) -> Any:
        made.append(asyncio.Task(coro, loop=loop, **keywords))
        return made[-1]

    loop = kind()
    loop.set_task_factory(factory)
    tracker.install()
    tracker.instrument_loop(loop)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(made) == 1 and len(tracker.tasks) == 1
    tracker.uninstall()
    assert loop.get_task_factory() is factory
    loop.run_until_complete(asyncio.sleep(0))
    assert len(made) == 2 and len(tracker.tasks) == 1


@pytest.mark.parametrize("instrumented", [False, True])
def test_a_factory_set_after_the_loop_has_started_calls_nobody_for_ever(instrumented: bool) -> None:
    """ConcurrencyTracker.instrument_loop(): an application that swaps its factory later keeps it, with regions and threads."""

    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0)

    def factory(loop: Any, coro: Any, **keywords: Any) -> Any:
        return asyncio.Task(coro, loop=loop, **keywords)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_task(job())
        loop.set_task_factory(factory)
        if instrumented:
            sp.ProfileManager.get_config().tracker.instrument_loop(loop)
        await loop.create_task(job())
        assert loop.get_task_factory() is factory

    loop = asyncio.new_event_loop()
    with session(track_async=True) as run:
        if instrumented:
            sp.ProfileManager.get_config().tracker.instrument_loop(loop)
        loop.run_until_complete(main())
    loop.close()
    call = run.results["job"][0]
    assert call.num_calls == 2
    assert call.thread_ids.tolist() == [the(run.results.threads[0], "MainThread").index] * 2
    assert len(set(call.task_ids.tolist())) == 2 and -1 not in call.task_ids, "a lane for the second too"


def test_a_factory_set_on_a_sealed_loop_after_it_was_instrumented() -> None:
    """The same where only the factory can be chained: the task made after the swap gets its lane at its first region."""

    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0)

    async def main() -> None:
        await loop.create_task(job())
        loop.set_task_factory(lambda loop, coro, **keywords: asyncio.Task(coro, loop=loop, **keywords))
        sp.ProfileManager.get_config().tracker.instrument_loop(loop)
        await loop.create_task(job())

    loop = SealedLoop()
    with session(track_async=True) as run:
        sp.ProfileManager.get_config().tracker.instrument_loop(loop)
        loop.run_until_complete(main())
    call = run.results["job"][0]
    assert len(set(call.task_ids.tolist())) == 2 and -1 not in call.task_ids


def test_snapshot_is_two_dicts_of_equally_long_arrays(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.snapshot(): {"threads": ..., "tasks": ...}, each of numpy arrays of equal length."""
    tracker.install()
    on_threads(lambda: None)
    asyncio.run(asyncio.sleep(0))
    snapshot = tracker.snapshot()
    assert sorted(snapshot) == ["tasks", "threads"]
    for name, records in (("threads", tracker.threads), ("tasks", tracker.tasks)):
        table = snapshot[name]
        assert all(type(column) is np.ndarray and column.shape == (len(records),) for column in table.values())
        for field, column in table.items():
            if field == "cpu_ns":
                continue  # of a thread that lives: read again each time
            assert column.tolist() == [getattr(record, field) for record in records], field


def test_snapshot_of_nothing_is_empty_arrays() -> None:
    """ConcurrencyTracker.snapshot(): empty arrays when nothing was tracked."""
    snapshot = ConcurrencyTracker().snapshot()
    for table in snapshot.values():
        assert table and all(type(column) is np.ndarray and column.shape == (0,) for column in table.values())


def test_snapshot_shifts_known_times_by_the_origin(clock: Any, tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.snapshot(origin_ns): times relative to it; unknown ones are left alone."""

    async def main() -> None:
        pending = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        shots.append(tracker.snapshot())
        shots.append(tracker.snapshot(700))
        pending.cancel()

    shots: list[Any] = []
    tracker.install()
    clock(50)
    asyncio.run(main())
    plain, shifted = shots
    for table, times in (("threads", ("start_ns", "end_ns")), ("tasks", ("created_ns", "done_ns"))):
        for name, column in plain[table].items():
            other = shifted[table][name]
            if name in times:
                expected = [value if value == UNKNOWN else value - 700 for value in column.tolist()]
                assert other.tolist() == expected
            elif name != "cpu_ns":
                assert other.tolist() == column.tolist()
    assert plain["threads"]["start_ns"].tolist() == [1000]
    assert plain["tasks"]["created_ns"].tolist() == [1050, 1050]
    assert plain["tasks"]["done_ns"].tolist() == [UNKNOWN, UNKNOWN]


def test_snapshot_shares_one_timeline_with_the_calls(clock: Any) -> None:
    """ConcurrencyTracker.snapshot(): by the start of the run, times are those that the event columns have."""
    with session(track_async=True) as run:

        async def job() -> None:
            clock(30)
            with sp.region("job"):
                clock(5)

        clock(100)
        asyncio.run(job())
        config = sp.ProfileManager.get_config()
        table = config.tracker.snapshot(config.start_time_ns)["tasks"]
        name = table["coro_name"].tolist().index(job.__qualname__)
        assert table["created_ns"][name] == 100
        assert table["done_ns"][name] == 135
    start = run.results["job"][0].start_times_ns - run.results.metadata["start_time_ns"]
    assert start.tolist() == [130]


def test_uninstall_restores_what_was_there_before(tracker: ConcurrencyTracker) -> None:
    """ConcurrencyTracker.uninstall(): every hook goes, and what was there before is there again."""

    def profile(*event: Any) -> None:
        pass

    greenlet = pytest.importorskip("greenlet")
    create_task, run_forever = asyncio.BaseEventLoop.create_task, asyncio.BaseEventLoop.run_forever
    threading.setprofile(profile)
    greenlet.settrace(profile)
    try:
        tracker.install()
        asyncio.run(asyncio.sleep(0))
        tracker.uninstall()
        assert threading._profile_hook is profile
        assert greenlet.gettrace() is profile
        assert asyncio.BaseEventLoop.create_task is create_task
        assert asyncio.BaseEventLoop.run_forever is run_forever
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        greenlet.settrace(None)
    before = len(tracker.tasks), len(tracker.threads)
    asyncio.run(asyncio.sleep(0))
    on_threads(lambda: None)
    assert (len(tracker.tasks), len(tracker.threads)) == before


# -- TaskInfo, ThreadInfo ---------------------------------------------------------------------------------------------------------


def test_task_info() -> None:
    """TaskInfo: the types of its fields, ns to seconds, done and wall_time."""
    info = TaskInfo(np.int64(3), np.int64(1), "task", "n", "c", np.int64(2), 1_500_000_000, 4_000_000_000, 7, 250, 750)
    assert (info.index, info.rank, info.kind, info.name, info.coro_name, info.thread_index) == (3, 1, "task", "n", "c", 2)
    assert type(info.index) is type(info.rank) is type(info.steps) is type(info.thread_index) is int
    assert (info.created_time, info.done_time, info.wall_time) == (1.5, 4.0, 2.5)
    assert (info.steps, info.running_time, info.awaiting_time) == (7, 250 / 1e9, 750 / 1e9)
    assert info.done is True
    unfinished = TaskInfo(0, 0, "greenlet", "n", "c", 0, 5, UNKNOWN, 0, 0, 0)
    assert unfinished.done is False and unfinished.done_time is None and unfinished.wall_time is None


def test_thread_info() -> None:
    """ThreadInfo: the fields of a ThreadRecord, in seconds relative to the start of the run; alive and wall_time."""
    info = ThreadInfo(np.int64(1), np.int64(2), "n", np.int64(11), np.int64(12), np.int8(1), 500_000_000, 2_000_000_000, 3)
    assert (info.index, info.rank, info.name, info.ident, info.native_id) == (1, 2, "n", 11, 12)
    assert info.daemon is True and type(info.index) is type(info.ident) is type(info.native_id) is int
    assert (info.start_time, info.end_time, info.wall_time, info.cpu_time) == (0.5, 2.0, 1.5, 3 / 1e9)
    assert info.alive is False
    living = ThreadInfo(0, 0, "n", 1, 2, False, -5_000_000_000, UNKNOWN, 0)
    assert living.alive is True and living.end_time is None and living.wall_time is None
    assert living.start_time == -5.0, "older than the run"


# -- TaskRecord ----------------------------------------------------------------------------------------------------------------------


def test_a_new_task_record(clock: Any) -> None:
    """TaskRecord: what is given, the clock as created_ns, and zeros; done_ns UNKNOWN."""
    clock(7)
    record = TaskRecord(index=4, kind="greenlet", name="n", coro_name="c", thread_index=2)
    assert (record.index, record.kind, record.name, record.coro_name) == (4, "greenlet", "n", "c")
    assert (record.thread_index, record.created_ns, record.done_ns) == (2, 1007, UNKNOWN)
    assert (record.steps, record.running_ns, record.suspended_ns) == (0, 0, 0)
    assert (record.last_step_end_ns, record.step_started_ns) == (0, 0)
    assert record.done is False


def test_steps_and_gaps_of_a_task_record(clock: Any) -> None:
    """TaskRecord: enter_step() charges the gap as suspension and returns the clock, leave_step() the step as running."""
    record = TaskRecord(0, "task", "n", "c", 0)
    running = suspended = 0
    clock(11)
    for number, (step, gap) in enumerate(((5, 30), (0, 0), (7, 0), (1, 12)), 1):
        now = record.enter_step()
        assert (now, record.step_started_ns, record.steps) == (clock(0), now, number)
        assert (record.running_ns, record.suspended_ns) == (running, suspended)
        running += step
        end = clock(step)
        assert record.leave_step() is None
        assert (record.running_ns, record.suspended_ns, record.last_step_end_ns) == (running, suspended, end)
        clock(gap)
        suspended += gap
    assert record.suspended_ns == suspended - 12, "the last gap is not over"
    assert record.done is False


def test_the_first_finish_of_a_task_record_counts(clock: Any) -> None:
    """TaskRecord.finish(): records that the lane completed; the first call wins."""
    record = TaskRecord(0, "task", "n", "c", 0)
    clock(5)
    assert record.finish() is None
    clock(5)
    record.finish()
    assert (record.done_ns, record.done) == (1005, True)


def test_the_records_of_a_run_follow_the_same_arithmetic(clock: Any) -> None:
    """TaskRecord: running_ns over every step, suspended_ns between them; a region's await time is the difference of two."""

    async def job() -> None:
        clock(3)
        with sp.region("outer"):
            clock(4)
            await asyncio.sleep(0)
            clock(5)
            with sp.region("inner"):
                await asyncio.sleep(0)
            clock(6)

    async def main() -> None:
        task = asyncio.ensure_future(job())
        clock(100)  # before the first step: neither running nor suspended
        await asyncio.sleep(0)
        clock(20)
        await asyncio.sleep(0)
        clock(40)
        await task

    with session(track_async=True) as run:
        clock(9)
        asyncio.run(main())
        (record,) = [record for record in sp.ProfileManager.get_config().tracker.tasks if record.coro_name == job.__qualname__]
    assert (record.created_ns, record.done_ns) == (1009, 1009 + 100 + 3 + 4 + 20 + 5 + 40 + 6)
    assert (record.steps, record.running_ns, record.suspended_ns) == (3, 3 + 4 + 5 + 6, 20 + 40)
    outer, inner = run.results["outer"][0], run.results["inner"][0]
    assert outer.await_times_ns.tolist() == [60] and outer.durations_ns.tolist() == [75]
    assert inner.await_times_ns.tolist() == [40] and inner.durations_ns.tolist() == [40]
    row = [row for row in run.results.tasks[0] if row.coro_name == job.__qualname__][0]
    assert (row.running_time, row.awaiting_time, row.steps) == (18 / 1e9, 60 / 1e9, 3)
    assert (row.created_time, row.done_time) == (9 / 1e9, 187 / 1e9)


def test_greenlets_share_the_task_record(clock: Any, tracker: ConcurrencyTracker) -> None:
    """Module: greenlets are cooperative lanes of the same shape, tagged kind="greenlet"."""
    greenlet = pytest.importorskip("greenlet")

    def target() -> None:
        clock(2)
        greenlet.getcurrent().parent.switch()
        clock(3)

    tracker.install()
    lane = greenlet.greenlet(target)
    lane.switch()
    clock(50)
    lane.switch()
    (record,) = tracker.tasks
    assert type(record) is TaskRecord and record.kind == "greenlet"
    assert (record.steps, record.running_ns, record.suspended_ns) == (2, 5, 50)
    assert record.done and record.done_ns == 1055


# -- ThreadRecord ------------------------------------------------------------------------------------------------------------------------


def test_a_new_thread_record() -> None:
    """ThreadRecord: the Thread's ids, name and daemon flag; start_ns the clock, cpu_ns the thread's, end_ns UNKNOWN."""
    thread = threading.current_thread()
    before, cpu = time.perf_counter_ns(), time.thread_time_ns()
    record = ThreadRecord(5, thread)
    assert (record.index, record.ident, record.native_id) == (5, thread.ident, thread.native_id)
    assert (record.name, record.daemon) == (thread.name, thread.daemon)
    assert before - 1000 <= record.start_ns <= time.perf_counter_ns() + 1000
    assert cpu <= record.cpu_ns <= time.thread_time_ns()
    assert (record.end_ns, record.alive, record.task) == (UNKNOWN, True, None)


def test_a_thread_record_of_a_thread_without_ids() -> None:
    """ThreadRecord: ident and native_id of a thread that has not started are 0."""
    record = ThreadRecord(0, threading.Thread(name="unborn", daemon=True))
    assert (record.ident, record.native_id, record.daemon) == (0, 0, True)


def test_sample_cpu_refreshes_the_cpu_time() -> None:
    """ThreadRecord.sample_cpu(): the thread's own CPU time, now."""
    record = ThreadRecord(0, threading.current_thread())
    first = record.cpu_ns
    burn(0.003)
    record.sample_cpu()
    assert first + 3_000_000 <= record.cpu_ns <= time.thread_time_ns()


def test_cpu_of_an_ended_thread_is_exact_and_its_record_keeps_it(tracker: ConcurrencyTracker) -> None:
    """ThreadRecord: cpu_ns is exact for a thread that has ended."""
    used: list[int] = []

    def work() -> None:
        burn(0.005)
        used.append(time.thread_time_ns())

    tracker.install()
    on_threads(work, names=("worker",))
    record = the(tracker.threads, "worker")
    assert used[0] <= record.cpu_ns <= used[0] + 5_000_000
    again = record.cpu_ns
    record.sample_cpu()
    assert record.cpu_ns == again and record.alive is False and record.end_ns > record.start_ns


def test_the_index_of_a_record_is_what_the_calls_store() -> None:
    """ThreadRecord.index: dense within a rank, and what the thread_ids column stores."""
    found: list[int] = []

    def work() -> None:
        found.append(sp.ProfileManager.get_config().tracker.current_thread().index)
        with sp.region("work"):
            pass

    with session(track_threads=True) as run:
        for _ in range(3):
            on_threads(work)
    assert found == [1, 2, 3] == run.results["work"][0].thread_ids.tolist()


def test_task_is_what_holds_the_thread(tracker: ConcurrencyTracker) -> None:
    """ThreadRecord.task: the task that holds the thread, or None; None on a record made by hand."""

    async def job() -> None:
        found.append(tracker.current_thread().task)

    found: list[Any] = []
    tracker.install()
    assert tracker.current_thread().task is None
    asyncio.run(job())
    assert found == [record for record in tracker.tasks if record.coro_name == job.__qualname__]
    assert tracker.current_thread().task is None


# -- functions ----------------------------------------------------------------------------------------------------------------------------


def test_lane_ids() -> None:
    """lane_ids(): the task where there is one, else -2 - thread; -1 where the thread is unknown."""
    threads = np.array([0, 1, 1, 7, -1], dtype=np.int64)
    tasks = np.array([-1, 5, 0, -1, -1], dtype=np.int64)
    lanes = lane_ids(threads, tasks)
    assert type(lanes) is np.ndarray and lanes.tolist() == [-2, 5, 0, -9, -1]
    assert lane_ids(threads, None).tolist() == [-2, -3, -3, -9, -1]
    assert lane_ids(np.array([], dtype=np.int64), None).tolist() == []
    assert list(inspect.signature(lane_ids).parameters) == ["thread_ids", "task_ids"]


def test_lane_ids_is_the_key_that_call_arrays_are_grouped_by() -> None:
    """lane_ids(): only calls that share a lane can nest."""

    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0)

    with session(track_async=True) as run:
        with sp.region("bare"):
            asyncio.run(job())
    calls = build_call_arrays(run.results.get_regions(), 0)
    by_region = dict(zip(calls.region_index.tolist(), calls.lane.tolist()))
    for index, region in enumerate(run.results.get_regions()):
        expected = lane_ids(region[0].thread_ids, region[0].task_ids)
        assert by_region[index] == expected[0]
    assert calls.depth.tolist().count(1) == 1, "the bare call in the session's root, the task's in nothing"


def test_lane_tables_from_columns_reads_what_a_snapshot_has(tracker: ConcurrencyTracker) -> None:
    """lane_tables_from_columns(): one rank's stored columns as ThreadInfo and TaskInfo."""
    tracker.install()
    on_threads(lambda: None, names=("worker",))
    asyncio.run(asyncio.sleep(0))
    snapshot = tracker.snapshot(tracker.threads[0].start_ns)
    threads, tasks = lane_tables_from_columns(3, snapshot)
    assert [type(row) for row in threads] == [ThreadInfo] * 2 and {type(row) for row in tasks} == {TaskInfo}
    assert {row.rank for row in [*threads, *tasks]} == {3}
    assert [row.name for row in threads] == [record.name for record in tracker.threads]
    for row, record in zip(tasks, tracker.tasks, strict=True):
        assert (row.index, row.kind, row.name, row.coro_name) == (record.index, record.kind, record.name, record.coro_name)
        assert (row.steps, row.running_time, row.awaiting_time) == (
            record.steps,
            record.running_ns / 1e9,
            record.suspended_ns / 1e9,
        )


def test_a_file_and_the_returned_results_have_the_same_lanes(tmp_path: Any) -> None:
    """lane_tables_from_columns(): the file and finalize(return_results=True) cannot disagree about the lanes."""

    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0)

    path = str(tmp_path / "lanes.h5")
    with sp.session(output=path, verbose=False, return_results=True, track_async=True) as run:
        asyncio.run(job())
        on_threads(lambda: None)
    loaded = sp.load(path)
    for table in ("threads", "tasks"):
        rows = [[{name: getattr(row, name) for name in row.__slots__} for row in getattr(results, table)[0]]
                for results in (loaded, run.results)]  # fmt: skip
        assert rows[0] == rows[1] and rows[0]
    for column in ("thread_ids", "task_ids", "await_times_ns"):
        assert getattr(loaded["job"][0], column).tolist() == getattr(run.results["job"][0], column).tolist()
