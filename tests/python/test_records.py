"""ThreadRecord, TaskRecord and ConcurrencyTracker used by hand."""

import threading
import time

import numpy as np
import pytest

from scope_profiler._core import TaskRecord, ThreadRecord
from scope_profiler._tracker import ConcurrencyTracker


@pytest.fixture
def tracker():
    made = ConcurrencyTracker()
    yield made
    made.uninstall()


def test_task_record_splits_wall_time_into_steps_and_gaps():
    before = time.perf_counter_ns()
    record = TaskRecord(3, "task", "name", "coro", 1)
    assert before <= record.created_ns <= time.perf_counter_ns()
    assert (record.index, record.kind, record.name, record.coro_name) == (3, "task", "name", "coro")
    assert (record.thread_index, record.steps, record.running_ns, record.suspended_ns) == (1, 0, 0, 0)
    assert (record.done_ns, record.done, record.last_step_end_ns, record.step_started_ns) == (-1, False, 0, 0)

    time.sleep(0.002)
    first = record.enter_step()
    assert before <= first <= time.perf_counter_ns()
    assert (record.steps, record.suspended_ns) == (1, 0), "the wait before the first step is no suspension"
    assert record.step_started_ns == first
    assert record.leave_step() is None
    assert record.running_ns == record.last_step_end_ns - first

    end = record.last_step_end_ns
    time.sleep(0.002)
    second = record.enter_step()
    assert record.suspended_ns == second - end >= 2_000_000
    running = record.running_ns
    record.leave_step()
    assert record.running_ns == running + record.last_step_end_ns - second
    assert record.steps == 2


def test_the_first_finish_counts():
    record = TaskRecord(0, "greenlet", "", "", 0)
    assert record.finish() is None
    done = record.done_ns
    record.finish()
    assert record.done and record.done_ns == done > 0


def test_thread_record_describes_a_thread():
    record = ThreadRecord(2, threading.current_thread())
    thread = threading.current_thread()
    assert (record.index, record.name, record.daemon) == (2, thread.name, thread.daemon)
    assert (record.ident, record.native_id) == (thread.ident, thread.native_id)
    assert (record.end_ns, record.alive, record.task) == (-1, True, None)
    before = record.cpu_ns
    while time.thread_time_ns() < before + 2_000_000:
        pass
    record.sample_cpu()
    assert before + 2_000_000 <= record.cpu_ns <= time.thread_time_ns()


def test_a_tracker_is_free_until_it_is_installed():
    made = ConcurrencyTracker(track_async=True)
    assert made.track_async is True
    assert (made.threads, made.tasks) == ([], [])
    snapshot = made.snapshot()
    assert {len(column) for table in snapshot.values() for column in table.values()} == {0}
    with pytest.raises(RuntimeError, match="install"):
        made.current_thread()


def test_current_thread_is_one_object(tracker):
    tracker.install()
    tracker.install()
    assert tracker.current_thread() is tracker.current_thread()
    assert tracker.threads == [tracker.current_thread()]
    assert tracker.current_thread().name == threading.current_thread().name


def test_every_started_thread_is_listed_in_order(tracker):
    tracker.install()
    for number in range(3):
        thread = threading.Thread(target=lambda: None, name=f"t{number}", daemon=number == 1)
        thread.start()
        thread.join()
    records = tracker.threads
    assert [record.name for record in records[1:]] == ["t0", "t1", "t2"]
    assert [record.index for record in records] == [0, 1, 2, 3]
    assert [record.daemon for record in records[1:]] == [False, True, False]
    assert [record.alive for record in records] == [True, False, False, False]
    for record in records[1:]:
        assert record.end_ns > record.start_ns
        assert 0 <= record.cpu_ns <= record.end_ns - record.start_ns + 10_000_000


def test_uninstall_stops_listing_and_gives_threadings_hook_back(tracker):
    before = threading._profile_hook
    tracker.install()
    assert threading._profile_hook is not before
    tracker.uninstall()
    assert threading._profile_hook is before
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert len(tracker.threads) == 1


def test_snapshot_is_arrays_relative_to_the_origin(tracker):
    origin = time.perf_counter_ns()
    tracker.install()
    thread = threading.Thread(target=lambda: None, name="zażółć")
    thread.start()
    thread.join()
    table = tracker.snapshot(origin)["threads"]
    assert list(table) == ["index", "ident", "native_id", "name", "daemon", "start_ns", "end_ns", "cpu_ns"]
    assert all(isinstance(column, np.ndarray) for column in table.values())
    assert table["name"].tolist() == [threading.current_thread().name, "zażółć"]
    assert table["end_ns"][0] == -1, "an unknown time is not shifted"
    assert 0 <= table["start_ns"][1] <= table["end_ns"][1] <= time.perf_counter_ns() - origin
    again = tracker.snapshot(0)["threads"]
    assert again["start_ns"][1] - table["start_ns"][1] == origin


def test_two_trackers_number_their_own_threads(tracker):
    tracker.install()
    thread = threading.Thread(target=lambda: None, name="first")
    thread.start()
    thread.join()
    other = ConcurrencyTracker()
    other.install()
    try:
        thread = threading.Thread(target=lambda: None, name="second")
        thread.start()
        thread.join()
    finally:
        other.uninstall()
    assert [record.name for record in tracker.threads][1:] == ["first", "second"]
    assert [record.name for record in other.threads][1:] == ["second"]
