"""Every format tells the same of a run: counts and times of its calls, against the run's own columns and a slow model of nesting."""

import asyncio
import collections
import csv
import json
import threading

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export_helpers import chrome_slices, int64, region, results_of, speedscope_calls, strict_json, task, thread
from perfetto_trace import Reader
from scope_profiler import (
    ProfileManager,
    export_chrome_trace,
    export_csv,
    export_folded,
    export_json,
    export_parquet,
    export_perfetto,
    export_prof,
    export_speedscope,
    load_prof,
    read_json,
)


def totals(pairs):
    """{name: (calls, ns)} of (name, ns) pairs."""
    found = collections.defaultdict(lambda: [0, 0])
    for name, ns in pairs:
        found[name][0] += 1
        found[name][1] += ns
    return {name: tuple(sums) for name, sums in found.items()}


def of_profile(run):
    return {one.name: (one[0].num_calls, int(one[0].durations_ns.sum())) for one in run if 0 in one and one[0].num_calls}


def of_speedscope(run, directory):
    [path] = export_speedscope(run, directory / "p", verbose=False)
    calls = [call for lane in speedscope_calls(strict_json(path)).values() for call in lane]
    return totals((name, round(end * 1e9) - round(start * 1e9)) for _, name, start, end in calls)


def of_chrome(run, directory):
    [path] = export_chrome_trace(run, directory / "p", verbose=False)
    document = strict_json(path)
    chrome_slices(document)  # all slices nest
    events = [event for event in document["traceEvents"] if event.get("cat") == "scope-profiler"]
    return totals((e["name"], round((e["ts"] + e["dur"]) * 1000) - round(e["ts"] * 1000)) for e in events)


def of_perfetto(run, directory):
    [path] = export_perfetto(run, directory / "p", verbose=False)
    return totals((name, end - start) for name, start, end in Reader(path).calls())


def of_csv(run, directory):
    [path] = export_csv(run, directory / "p", verbose=False)
    with open(path, newline="", encoding="utf-8") as file:
        return totals((row["region"], int(row["duration_ns"])) for row in csv.DictReader(file))


def of_parquet(run, directory):
    [path] = export_parquet(run, directory / "p", verbose=False)
    return totals((row["region"], row["duration_ns"]) for row in pyarrow.parquet.read_table(path).to_pylist())


def of_json(run, directory):
    [path] = export_json(run, directory / "p", verbose=False)
    return of_profile(read_json(path))


SINGLE_CALLS = [of_speedscope, of_chrome, of_perfetto, of_csv, of_parquet, of_json]


def check_all(run, directory):
    expected = of_profile(run)
    for read in SINGLE_CALLS:
        assert read(run, directory) == expected, read.__name__
    exclusive = {one.name: int(one[0].exclusive_durations_ns.sum()) for one in run if one.name in expected}
    [path] = export_prof(run, directory / "flat", call_paths=False, verbose=False)
    entries = {key[2]: entry for key, entry in load_prof(path).stats.items() if key[2] in expected}
    assert {name: entry[1] for name, entry in entries.items()} == {name: calls for name, (calls, _) in expected.items()}
    assert {name: round(entry[2] * 1e9) for name, entry in entries.items()} == exclusive
    for by_lane in (False, True):
        [path] = export_folded(run, directory / "p", by_lane=by_lane, verbose=False)
        found = collections.Counter()
        for line in path.read_text().splitlines():
            stack, _, weight = line.rpartition(" ")
            found[stack.rpartition(";")[2]] += int(weight)
        assert found == {name: ns for name, ns in exclusive.items() if ns}


@st.composite
def nested_runs(draw):
    """Calls that nest on each lane: (name, start, end, thread, task, await)."""
    rows = []
    for lane in range(draw(st.integers(1, 4))):
        clock, stack = draw(st.integers(0, 20)), []
        for _ in range(draw(st.integers(0, 14))):
            clock += draw(st.integers(0, 9)) * draw(st.sampled_from((1, 1, 1000)))
            if stack and draw(st.booleans()):
                rows.append(close(stack, clock, lane))
            else:
                stack.append((draw(st.sampled_from(("a", "b", "c"))), clock, draw(st.floats(0, 1))))
        while stack:
            clock += draw(st.integers(0, 5))
            rows.append(close(stack, clock, lane))
    return rows


def close(stack, clock, lane):
    name, start, share = stack.pop()
    awaited = int((clock - start) * share) if lane % 2 else 0
    return name, start, clock, lane // 2, lane if lane % 2 else -1, awaited


def run_of(rows):
    regions = {}
    for name in sorted({row[0] for row in rows}):
        own = sorted((row for row in rows if row[0] == name), key=lambda row: (row[1], -row[2]))
        columns = list(zip(*own))
        regions[name] = {0: region(columns[1], columns[2], columns[3], columns[4], await_times=int64(columns[5]))}
    return results_of(regions, threads={0: [thread(0, "T"), thread(1, "U")]}, metadata={"start_time_ns": 0},
                      tasks={0: [task(1, "Task-1", "f"), task(3, "Task-3", "g", thread_index=1)]})


@settings(max_examples=60, deadline=None)
@given(nested_runs().filter(bool))
def test_every_format_agrees_with_the_profile(tmp_path_factory, rows):
    check_all(run_of(rows), tmp_path_factory.mktemp("agree"))


def test_a_call_of_no_length_at_the_end_of_a_task_lies_in_it(tmp_path):
    # 0.002 + 4.004 is less than 4.006 as doubles of microseconds: the slice around ends before the call begins.
    check_all(run_of([("a", 0, 0, 0, -1, 0), ("a", 2, 6, 0, 1, 0), ("a", 4006, 4006, 0, 1, 0)]), tmp_path)


def generator():
    with ProfileManager.region("generator"):
        yield 1
        with ProfileManager.region("inside generator"):
            yield 2


def deep(depth):
    with ProfileManager.region("deep"):
        if depth:
            deep(depth - 1)


def recorded():
    """Threads, tasks that make tasks, generators held across switches, deep recursion, zero-length calls."""

    async def child(number):
        with ProfileManager.region("child"):
            await asyncio.sleep(0.001 * number)
            for _ in generator():
                await asyncio.sleep(0)

    async def main():
        with ProfileManager.region("main"):
            await asyncio.gather(*(child(number) for number in range(5)))

    def work():
        deep(300)
        running = [generator() for _ in range(3)]
        for one in running:
            next(one)
        for one in running:
            list(one)

    with ProfileManager.session(output=None, verbose=False, return_results=True, track_async=True) as run:
        threads = [threading.Thread(target=work, name=f"worker {number}") for number in range(3)]
        for one in threads:
            one.start()
        asyncio.run(main())
        for one in threads:
            one.join()
    return run.results


def test_a_recorded_program_is_exported_whole_to_every_format(tmp_path):
    run = recorded()
    expected = of_profile(run)
    assert expected["deep"][0] == 3 * 301 and expected["generator"][0] == 5 + 9
    for read in SINGLE_CALLS:
        assert read(run, tmp_path) == expected, read.__name__


def test_awaiting_in_traces_is_what_calls_recorded(tmp_path):
    run = recorded()
    child, main = run["child"][0], run["main"][0]
    [path] = export_perfetto(run, tmp_path / "p", verbose=False)
    reader = Reader(path)
    document = strict_json(export_chrome_trace(run, tmp_path / "p", verbose=False)[0])
    drawn = collections.Counter()
    for track, slices in reader.of("await").items():
        drawn[track] += sum(one.duration for one in slices)
    for index, ns in [*zip(child.task_ids, child.await_times_ns), (main.task_ids[0], main.await_times_ns[0])]:
        lane = run.lane_label(int(index))
        whole = next(t for t in run.tasks[0] if t.index == index)
        assert abs(drawn[lane] - round(whole.awaiting_time * 1e9)) < 100, lane
        assert drawn[lane] >= ns - 100
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    in_chrome = collections.Counter()
    for event in document["traceEvents"]:
        if event.get("cat") == "await":
            in_chrome[tracks[event["pid"], event["tid"]]] += round(event["dur"] * 1000)
    assert in_chrome == drawn


def test_flows_of_the_chrome_trace_bind_to_slices(tmp_path):
    run = recorded()
    document = strict_json(export_chrome_trace(run, tmp_path / "p", verbose=False)[0])
    events = document["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(starts) == set(ends) and len(starts) >= 5 and all(e["bp"] == "e" for e in ends.values())
    slices, _ = chrome_slices(document)
    names = collections.Counter()
    for identity, start in starts.items():
        end = ends[identity]
        assert start["ts"] <= end["ts"]
        around = [s for s in slices[start["pid"], start["tid"]] if s[1] <= start["ts"] <= s[1] + s[2]]
        assert around
        names[max(around, key=lambda s: s[1])[0]] += 1
        assert any(s[1] == end["ts"] for s in slices[end["pid"], end["tid"]])
    assert names["main"] >= 5  # gather() makes the children inside of main


@pytest.mark.slow
def test_a_million_calls_in_every_trace(tmp_path):
    count = 250_000
    outer = np.arange(count) * 100
    regions = {
        "a": {0: region(np.concatenate([outer, outer + 7]), np.concatenate([outer + 90, outer + 95]), np.repeat([0, 1], count))},
        "b": {0: region(np.concatenate([outer, outer + 7]), np.concatenate([outer, outer + 50]), np.repeat([0, 1], count))},
    }
    run = results_of(regions, threads={0: [thread(0, "T"), thread(1, "U")]}, metadata={"start_time_ns": 0})
    expected = {"a": (2 * count, (90 + 88) * count), "b": (2 * count, 43 * count)}
    assert of_profile(run) == expected
    assert of_chrome(run, tmp_path) == of_speedscope(run, tmp_path) == of_perfetto(run, tmp_path) == expected
    assert json.loads((tmp_path / "p.speedscope.json").read_text())["profiles"][1]["name"] == "rank 0 - T"
