"""Runs to export, and the rules that viewers of exports enforce."""

import collections
import gzip
import json
import math
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from scope_profiler import MPIRegion, ProfilingResults, Region
from scope_profiler.concurrency import TaskInfo, ThreadInfo


def int64(values):
    return None if values is None else np.array(values, dtype=np.int64)


def region(start, end, threads=None, tasks=None, **more):
    return Region(int64(start), int64(end), thread_ids=int64(threads), task_ids=int64(tasks), **more)


def results_of(regions, label="run", threads=None, tasks=None, **more):
    """regions: {name: {rank: Region}}"""
    return ProfilingResults({name: MPIRegion(name, ranks) for name, ranks in regions.items()},
                            metadata={"label": label, **more.pop("metadata", {})}, threads=threads, tasks=tasks, **more)


def thread(index, name, rank=0, cpu_ns=7):
    return ThreadInfo(index, rank, name, 1000 + index, 2000 + index, False, 5, -1, cpu_ns)


def task(index, name, coro_name, thread_index=0, rank=0, created_ns=1):
    return TaskInfo(index, rank, "task", name, coro_name, thread_index, created_ns, 90, 2, 3, 4)


def any_calls(at_least=0):
    """Lists of (name, start, duration, thread): so few of each that calls meet, overlap and contain each other."""
    one = st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 6), st.integers(0, 2))
    return st.lists(one, min_size=at_least, max_size=25)


def regions_of(calls, tracked=True):
    """The regions of a run with such calls, without their threads if it did not track them."""
    regions = {}
    for name in sorted({call[0] for call in calls}):
        own = [call for call in calls if call[0] == name]
        regions[name] = {0: region([c[1] for c in own], [c[1] + c[2] for c in own], [c[3] for c in own] if tracked else None)}
    return regions


# -- reading ----------------------------------------------------------------------------------------------------------------


def strict_json(path):
    """The document, by the strictest reading: UTF-8, no NaN or Infinity, no control characters in texts."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    raw = Path(path).read_bytes()
    if str(path).endswith(".gz"):
        raw = gzip.decompress(raw)
    return json.loads(raw.decode("utf-8", "strict"), parse_constant=refuse)


# -- speedscope ---------------------------------------------------------------------------------------------------------------


def speedscope_calls(document):
    """{profile name: [(depth, frame name, start, end)]} in the order of opening; asserts what the importer needs."""
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    found = {}
    for profile in document["profiles"]:
        assert profile["type"] == "evented" and profile["unit"] == "seconds"
        assert profile["name"] not in found
        stack, calls, clock = [], [], profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= clock, "time goes back"
            clock = event["at"]
            if event["type"] == "O":
                stack.append(len(calls))
                calls.append([len(stack) - 1, frames[event["frame"]], clock, None])
            else:
                assert event["type"] == "C" and stack, "a close without an open"
                call = calls[stack.pop()]
                assert call[1] == frames[event["frame"]], "closes another frame than it opened"
                call[3] = clock
        assert not stack and clock == profile["endValue"]
        assert calls and calls[0][2] == profile["startValue"]
        found[profile["name"]] = [tuple(call) for call in calls]
    return found


# -- Chrome -------------------------------------------------------------------------------------------------------------------


def chrome_slices(document):
    """{(pid, tid): [(name, ts, dur, args)]} of complete events; asserts that they nest, in doubles and in whole ns."""
    slices, names = collections.defaultdict(list), {}
    for event in document["traceEvents"]:
        track = (event["pid"], event["tid"])
        if event["ph"] == "M" and event["name"] == "thread_name":
            assert track not in names, "two names for one track"
            names[track] = event["args"]["name"]
        if event["ph"] == "X":
            assert math.isfinite(event["ts"]) and math.isfinite(event["dur"])
            assert event["ts"] >= 0 and event["dur"] >= 0
            slices[track].append((event["name"], event["ts"], event["dur"], event["args"]))
    for rows in slices.values():
        intervals = [(ts, ts + dur) for _, ts, dur, _ in rows]
        assert_nested(intervals)
        assert_nested([(round(a * 1000), round(b * 1000)) for a, b in intervals])
    return slices, names


def assert_nested(intervals):
    stack = []
    for start, end in sorted(intervals, key=lambda interval: (interval[0], -interval[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], f"{start}..{end} overlaps a slice that ends at {stack[-1]}"
        stack.append(end)
