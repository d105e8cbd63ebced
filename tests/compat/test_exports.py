"""Exports against release 0.7.5: JSON both ways, and the same calls in speedscope and Chrome files."""

import json
import os
import subprocess

import pytest

from scope_profiler import export_chrome_trace, export_json, export_prof, export_speedscope, load, load_prof, read_json

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set")

RECORD = """
import threading, scope_profiler as sp
with sp.session(output="run.h5", verbose=False, track_threads=True, label="a run"):
    def work():
        for _ in range(20):
            with sp.region("outer"):
                with sp.region("inner", tags=["t"]): pass
                with sp.metadata(k=[1]), sp.region("noted"): pass
    threads = [threading.Thread(target=work, name=f"W{i}") for i in range(3)]
    [t.start() for t in threads]; [t.join() for t in threads]; work()
results = sp.load("run.h5")
sp.export_json(results, "theirs.json", verbose=False)
sp.export_speedscope(results, "theirs.speedscope.json", verbose=False)
sp.export_chrome_trace(results, "theirs.trace.json", verbose=False)
sp.export_prof(results, "theirs.prof", verbose=False)
"""

SUMMARY = """
import sys, json, scope_profiler as sp
r = sp.read_json(sys.argv[1])
print(json.dumps({name: [[int(v) for v in getattr(r[name][0], c)] for c in
    ("start_times_ns", "end_times_ns", "thread_ids", "call_ids", "parent_ids", "exclusive_durations_ns")] +
    [list(r[name][0].tags), list(r[name][0].event_metadata)] for name in r.region_names}
    | {"": [t.name for t in r.threads[0]]}))
"""


def reference(directory, script, *arguments):
    return subprocess.run([REFERENCE, "-c", script, *arguments], check=True, cwd=directory, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": ""}).stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports")
    reference(path, RECORD)
    return path


def summary(results):
    regions = {
        name: [getattr(results[name][0], column).tolist() for column in (
            "start_times_ns", "end_times_ns", "thread_ids", "call_ids", "parent_ids", "exclusive_durations_ns")]
        + [list(results[name][0].tags), list(results[name][0].event_metadata)]
        for name in results.region_names}
    return regions | {"": [thread.name for thread in results.threads[0]]}


def test_json_goes_both_ways(directory):
    ours = load(directory / "run.h5")
    assert summary(read_json(directory / "theirs.json")) == summary(ours)
    export_json(ours, directory / "ours.json", verbose=False)
    assert json.loads(reference(directory, SUMMARY, "ours.json")) == summary(ours)


def test_speedscope_files_have_the_same_profiles(directory):
    [path] = export_speedscope(load(directory / "run.h5"), directory / "ours", verbose=False)
    ours, theirs = (json.loads(p.read_text()) for p in (path, directory / "theirs.speedscope.json"))
    assert ours["shared"] == theirs["shared"] and ours["name"] == theirs["name"]
    assert [p["name"] for p in ours["profiles"]] == [p["name"] for p in theirs["profiles"]]
    for mine, other in zip(ours["profiles"], theirs["profiles"]):
        assert [(e["type"], e["frame"]) for e in mine["events"]] == [(e["type"], e["frame"]) for e in other["events"]]
        assert all(abs(a["at"] - b["at"]) < 5e-9 for a, b in zip(mine["events"], other["events"]))


def test_chrome_traces_have_the_same_slices_on_the_same_tracks(directory):
    [path] = export_chrome_trace(load(directory / "run.h5"), directory / "ours", verbose=False)
    ours, theirs = (
        sorted(((e["name"], e["pid"], e["tid"], e["args"]["call_id"], e["args"]["parent_id"], e["args"]["call_index"],
                 round(e["ts"] * 1000), round(e["dur"] * 1000))
                for e in json.loads(p.read_text())["traceEvents"] if e["ph"] == "X"))
        for p in (path, directory / "theirs.trace.json"))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert mine[:6] == other[:6] and abs(mine[6] - other[6]) <= 5 and abs(mine[7] - other[7]) <= 5


def test_prof_files_have_the_same_entries(directory):
    [path] = export_prof(load(directory / "run.h5"), directory / "ours", verbose=False)
    ours, theirs = load_prof(path).stats, load_prof(directory / "theirs_rank0.prof").stats
    assert set(ours) == set(theirs)
    for key, (primitive, calls, own, total, callers) in ours.items():
        other = theirs[key]
        assert (primitive, calls) == other[:2] and own == pytest.approx(other[2], abs=1e-9) and total == pytest.approx(other[3], abs=1e-9)
        assert set(callers) == set(other[4])
