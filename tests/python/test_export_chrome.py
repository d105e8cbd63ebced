"""export_chrome_trace: a document that viewers take whole, with what is known about every call."""

import random

import numpy as np
import pytest
from hypothesis import given, settings

from export_helpers import any_calls, chrome_slices, int64, region, regions_of, results_of, strict_json, task, thread
from scope_profiler import PerfEventTotals, __version__, export_chrome_trace


def exported(run, tmp_path, **options):
    [path] = export_chrome_trace(run, tmp_path / "p", verbose=False, **options)
    return strict_json(path)


def events(document, kind):
    return [event for event in document["traceEvents"] if event["ph"] == kind]


def test_the_document(tmp_path):
    run = results_of({"a": {0: region([1_000_100], [1_002_600], source_file="a.py", source_lineno=3)}}, "a run",
                     metadata={"start_time_ns": 1_000_000})
    document = exported(run, tmp_path)
    trace = document.pop("traceEvents")
    assert document == {"displayTimeUnit": "ms", "metadata": {"name": "a run", "exporter": f"scope-profiler@{__version__}"}}
    assert trace == [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
        {"name": "process_sort_index", "ph": "M", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0", "lane": "rank"}},
        {"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
        {"name": "a", "cat": "scope-profiler", "ph": "X", "ts": 0.1, "dur": 2.5, "pid": 0, "tid": 0,
         "args": {"rank": 0, "call_index": 0, "duration_s": 2.5e-06, "call_id": 0, "parent_id": -1, "source_file": "a.py", "source_line": 3}}]


def test_arguments_tell_everything_that_is_known_about_a_call(tmp_path):
    run = results_of({"a": {0: region(
        [0, 1000], [900, 1100], call_ids=int64([4, 6]), parent_ids=int64([-1, 4]), gpu_durations=int64([250, -1]),
        await_times=int64([600, 0]), threads=[0, 0], tasks=[-1, 2],
        event_metadata=[{"text": 'NaN "I" \\ -Infinity', "bad": float("nan"), "list": [1, float("-inf"), -5], "in": {"x": []}}, {}])}})
    first, second = events(exported(run, tmp_path), "X")[::-1]  # tasks come first
    assert first["args"] == {
        "rank": 0, "call_index": 0, "duration_s": 9e-07, "call_id": 4, "parent_id": -1, "gpu_duration": 2.5e-07,
        "await_duration": 6e-07,
        "metadata": {"text": 'NaN "I" \\ -Infinity', "bad": None, "list": [1, None, -5], "in": {"x": []}}}
    assert second["args"] == {"rank": 0, "call_index": 1, "duration_s": 1e-07, "call_id": 6, "parent_id": 4,
                              "gpu_duration": -1e-09, "await_duration": 0}
    # 600 of 900 ns awaiting: shown as sleeping
    assert first["cname"] == "thread_state_sleeping" and "cname" not in second


def test_numbers_of_every_length_are_exact(tmp_path):
    numbers = sorted({sign * (base**power + near) for base, most in ((2, 63), (10, 19)) for power in range(most)
                      for near in (-1, 0, 1) for sign in (1, -1)} | {2**63 - 1, -(2**63)})
    count = len(numbers)
    run = results_of({"a": {0: region(range(0, 10 * count, 10), range(5, 10 * count, 10), call_ids=int64(numbers),
                                      parent_ids=int64(numbers[::-1]))}})
    arguments = [event["args"] for event in events(exported(run, tmp_path), "X")]
    assert sorted((a["call_index"], a["call_id"], a["parent_id"]) for a in arguments) == [
        (i, numbers[i], numbers[count - 1 - i]) for i in range(count)]


def test_tracks_are_processes_threads_and_tasks(tmp_path):
    run = results_of(
        {"a": {0: region([0, 10, 20, 30, 40], [5, 15, 25, 35, 45], [0, 1, 0, -1, 1], [-1, -1, 3, -1, 2]), 2: region([7], [9])}},
        threads={0: [thread(0, "MainThread", cpu_ns=2_500_000_000), thread(1, "worker", cpu_ns=-1)]},
        tasks={0: [task(2, "Task-3", "fetch", thread_index=1), task(3, "Task-4", "Client.fetch")]})
    document = exported(run, tmp_path, ranks=[2, 0])
    names = [(e["pid"], e["tid"], e["args"]) for e in events(document, "M") if e["name"] == "thread_name"]
    assert names == [
        (2, 0, {"name": "rank 2", "lane": "rank"}),
        (0, 0, {"name": "rank 0", "lane": "rank"}),
        (0, 1, {"name": "Task-3 (fetch) on worker", "lane": "async task", "task_index": 2, "thread_index": 1, "steps": 2,
                "running_s": 3e-09, "awaiting_s": 4e-09}),
        (0, 2, {"name": "Task-4 (fetch) on MainThread", "lane": "async task", "task_index": 3, "thread_index": 0, "steps": 2,
                "running_s": 3e-09, "awaiting_s": 4e-09}),
        (0, 3, {"name": "MainThread", "lane": "thread", "thread_index": 0, "native_id": 2000, "ident": 1000, "cpu_time_s": 2.5}),
        (0, 4, {"name": "worker", "lane": "thread", "thread_index": 1, "native_id": 2001, "ident": 1001})]
    # a viewer sorts: the unknown lane, MainThread and its task, worker and its task
    order = {(e["pid"], e["tid"]): e["args"]["sort_index"] for e in events(document, "M") if e["name"] == "thread_sort_index"}
    assert sorted((index, tid) for (pid, tid), index in order.items() if pid == 0) == [(0, 0), (2, 3), (3, 2), (4, 4), (5, 1)]
    assert [(e["pid"], e["args"]["sort_index"]) for e in events(document, "M") if e["name"] == "process_sort_index"] == [(2, 0), (0, 1)]
    slices, _ = chrome_slices(document)
    assert {track: [ts for _, ts, _, _ in rows] for track, rows in slices.items()} == {
        (2, 0): [0.007], (0, 0): [0.03], (0, 1): [0.04], (0, 2): [0.02], (0, 3): [0], (0, 4): [0.01]}


def test_times_count_from_the_start_of_the_run_unless_calls_are_before_it(tmp_path):
    assert events(exported(results_of({"a": {0: region([500], [600])}}, metadata={"start_time_ns": 400}), tmp_path), "X")[0]["ts"] == 0.1
    assert events(exported(results_of({"a": {0: region([500], [600])}}, metadata={"start_time_ns": 700}), tmp_path), "X")[0]["ts"] == 0
    assert events(exported(results_of({"a": {0: region([500], [600])}}), tmp_path), "X")[0]["ts"] == 0


def test_counters_become_counter_tracks(tmp_path):
    totals = PerfEventTotals(2, {"cycles": 2**60, "page-faults": 7})
    run = results_of({"a/b": {0: region([1000], [3000])}, "c": {0: region([1000], [1500])}},
                     perf_events={0: {"a/b": totals, "c": totals}})
    document = exported(run, tmp_path)
    counter = {"cat": "perf_events", "ph": "C", "ts": 2, "pid": 0, "tid": 0, "args": {"cycles": 2**60, "page-faults": 7, "calls": 2}}
    assert events(document, "C") == [{"name": "perf events: a/b", **counter}, {"name": "perf events: c", **counter}]
    assert [e["name"] for e in events(exported(run, tmp_path, include="a"), "C")] == ["perf events: a/b"]


def test_overlapping_calls_move_to_extra_threads(tmp_path):
    run = results_of({"a": {0: region([0, 5], [10, 15], [0, 0])}}, threads={0: [thread(0, "T")]})
    slices, names = chrome_slices(exported(run, tmp_path))
    assert names == {(0, 0): "T", (0, 1): "T (overlap 1)"} and {track: len(rows) for track, rows in slices.items()} == {(0, 0): 1, (0, 1): 1}


def nested_calls(rng, count, clock):
    """Nested intervals far from zero: their ends have to agree as sums of two doubles."""
    rows, stack = [], []
    while len(rows) < count or stack:
        clock += rng.choice((0, 1, 7, 999, rng.randrange(10**rng.randrange(1, 11))))
        if len(rows) < count and (not stack or rng.random() < 0.5):
            stack.append(len(rows))
            rows.append([clock, None])
        else:
            rows[stack.pop()][1] = clock
            while stack and rng.random() < 0.3:
                rows[stack.pop()][1] = clock  # ends with its parent
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_slices_nest_as_doubles_and_every_nanosecond_is_kept(tmp_path, seed):
    rng = random.Random(seed)
    rows = nested_calls(rng, 4000, 10 ** rng.randrange(1, 15))
    run = results_of({"a": {0: region([r[0] for r in rows], [r[1] for r in rows])}}, metadata={"start_time_ns": 0})
    slices, _ = chrome_slices(exported(run, tmp_path))
    found = sorted((round(ts * 1000), round((ts + dur) * 1000)) for _, ts, dur, _ in slices[0, 0])
    assert found == sorted(map(tuple, rows))


@settings(max_examples=100, deadline=None)
@given(any_calls())
def test_every_call_of_any_run_is_in_the_file_once(tmp_path_factory, calls):
    slices, _ = chrome_slices(exported(results_of(regions_of(calls), metadata={"start_time_ns": 0}), tmp_path_factory.mktemp("e")))
    found = sorted((round(ts * 1000), round((ts + dur) * 1000), name) for rows in slices.values() for name, ts, dur, _ in rows)
    assert found == sorted((s, s + n, name) for name, s, n, _ in calls)


@pytest.mark.slow
def test_a_million_calls(tmp_path):
    count = 500_000
    outer = np.arange(count) * 100 + 10**13
    run = results_of({"a": {0: region(outer, outer + 90)}, "b": {0: region(outer, outer + 40)}}, metadata={"start_time_ns": 0})
    slices, _ = chrome_slices(exported(run, tmp_path))
    assert len(slices[0, 0]) == 2 * count
