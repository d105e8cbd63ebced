"""The constants, rows and lane keys of scope_profiler.concurrency."""

import array
import copy
import pickle

import numpy as np
import pytest

from scope_profiler import concurrency
from scope_profiler.concurrency import NO_TASK, UNKNOWN, TaskInfo, ThreadInfo, lane_ids, lane_tables_from_columns


def test_constants():
    assert (concurrency.CPU_SAMPLE_MASK, NO_TASK, UNKNOWN) == (255, -1, -1)


def test_lane_keys():
    both = lane_ids(np.array([0, 3, -1, -1]), np.array([-1, 7, -1, 0]))
    assert both.dtype == np.int64 and both.tolist() == [-2, 7, -1, 0]
    threads = lane_ids(np.array([0, 3, -1]), None)
    assert threads.dtype == np.int64 and threads.tolist() == [-2, -5, -1]
    assert lane_ids([], None).tolist() == []


def test_a_thread():
    dead = ThreadInfo(np.int64(1), 2, "w", 5, 6, np.int8(1), 500_000_000, 2_000_000_000, 250_000_000)
    assert (dead.index, dead.rank, dead.name, dead.ident, dead.native_id, dead.daemon) == (1, 2, "w", 5, 6, True)
    assert (dead.start_time, dead.end_time, dead.cpu_time, dead.alive, dead.wall_time) == (0.5, 2.0, 0.25, False, 1.5)
    assert type(dead.index) is int and type(dead.daemon) is bool
    alive = ThreadInfo(0, 0, "Main", 5, 6, False, 0, UNKNOWN, 7)
    assert (alive.end_time, alive.alive, alive.wall_time) == (None, True, None)
    assert "'w'" in repr(dead) and "0.25" in repr(dead) and "alive" in repr(alive)


def test_a_task():
    done = TaskInfo(3, 1, "task", "Task-1", "app.main", 2, 1_000_000_000, 4_000_000_000, 5, 250_000_000, 500_000_000)
    assert (done.index, done.rank, done.kind, done.name, done.coro_name, done.thread_index) == (3, 1, "task", "Task-1", "app.main", 2)
    assert (done.created_time, done.done_time, done.steps, done.running_time, done.awaiting_time) == (1.0, 4.0, 5, 0.25, 0.5)
    assert done.done and done.wall_time == 3.0 and "'Task-1'" in repr(done)
    pending = TaskInfo(0, 0, "greenlet", "g", "f", 0, 0, UNKNOWN, 0, 0, 0)
    assert (pending.done_time, pending.done, pending.wall_time) == (None, False, None)


def test_times_are_rounded_once():
    # 2**53 + 1 ns is no double: dividing the int gives the double nearest to the time itself
    assert ThreadInfo(0, 0, "", 0, 0, False, 2**53 + 1, -1, 0).start_time == (2**53 + 1) / 10**9

    # 0.0134541770 less 0.0000316770 is a little less than 0.0134225000 in doubles, which shows where it is rounded to microseconds
    start, end, between = 31_677, 13_454_177, 0.0134225
    thread = ThreadInfo(0, 0, "", 0, 0, False, start, end, end, start)
    task = TaskInfo(0, 0, "task", "", "", 0, start, end, 1, 0, 0)
    assert end / 1e9 - start / 1e9 != between and thread.wall_time == thread.run_cpu_time == task.wall_time == between


THREADS = {"index": [0, 1], "name": ["Main", "w"], "ident": [11, 12], "native_id": [1, 2], "daemon": [0, 1],
           "start_ns": [0, 5], "end_ns": [-1, 9], "cpu_ns": [3, 4], "ranks": [7, 7]}  # fmt: skip
TASKS = {"index": [0], "kind": ["task"], "name": ["T"], "coro_name": ["c"], "thread_index": [1], "created_ns": [2], "done_ns": [-1],
         "steps": [4], "running_ns": [5], "suspended_ns": [6]}  # fmt: skip


@pytest.mark.parametrize("kind", [list, np.array, lambda values: array.array("q", values)])
def test_tables_from_columns(kind):
    def columns(table):
        return {name: values if isinstance(values[0], str) else kind(values) for name, values in table.items()}

    threads, tasks = lane_tables_from_columns(7, {"threads": columns(THREADS), "tasks": columns(TASKS)})
    assert [(t.index, t.rank, t.name, t.daemon, t.alive) for t in threads] == [(0, 7, "Main", False, True), (1, 7, "w", True, False)]
    assert [(t.index, t.rank, t.name, t.running_time, t.awaiting_time) for t in tasks] == [(0, 7, "T", 5e-9, 6e-9)]


def test_tables_that_are_not_there_have_no_rows():
    assert lane_tables_from_columns(0, {}) == ([], [])
    assert lane_tables_from_columns(0, {"threads": None, "tasks": None}) == ([], [])
    assert lane_tables_from_columns(0, {"threads": {name: [] for name in THREADS}}) == ([], [])


def test_rows_are_copied_and_pickled():
    threads, tasks = lane_tables_from_columns(0, {"threads": THREADS, "tasks": TASKS})
    for row in (*threads, *tasks):
        for twin in (copy.copy(row), copy.deepcopy(row), pickle.loads(pickle.dumps(row))):
            assert repr(twin) == repr(row) and [getattr(twin, n) for n in row.__slots__] == [getattr(row, n) for n in row.__slots__]
