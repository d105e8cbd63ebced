"""export_speedscope: what the viewer's importer accepts, and what was recorded."""

import asyncio
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export_helpers import any_calls, region, regions_of, results_of, speedscope_calls, strict_json, task, thread
from scope_profiler import ProfileManager, __version__, export_speedscope


def exported(run, tmp_path, **options):
    [path] = export_speedscope(run, tmp_path / "p", verbose=False, **options)
    return strict_json(path)


def test_the_document(tmp_path):
    # outer [1000, 1100] holds inner [1010, 1020] and [1020, 1100]; far from zero, where a double of seconds rounds ns
    base = 10**16
    run = results_of({"outer": {0: region([base], [base + 100])}, "unused": {1: region([0], [1])},
                      "inner": {0: region([base + 10, base + 20], [base + 20, base + 100])}}, "a run")
    assert exported(run, tmp_path) == {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"scope-profiler@{__version__}",
        "name": "a run",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": "outer"}, {"name": "inner"}]},
        "profiles": [{
            "type": "evented", "name": "rank 0", "unit": "seconds", "startValue": 0, "endValue": 1e-07,
            "events": [
                {"type": "O", "frame": 0, "at": 0}, {"type": "O", "frame": 1, "at": 1e-08}, {"type": "C", "frame": 1, "at": 2e-08},
                {"type": "O", "frame": 1, "at": 2e-08}, {"type": "C", "frame": 1, "at": 1e-07}, {"type": "C", "frame": 0, "at": 1e-07},
            ]}],
    }


def test_lanes_are_profiles_named_after_threads_and_tasks(tmp_path):
    run = results_of(
        {"a": {0: region([0, 10, 20, 30, 40], [5, 15, 25, 35, 45], [0, 1, 0, 7, 0], [-1, -1, 3, -1, 9])}},
        threads={0: [thread(0, "MainThread"), thread(1, "worker")]},
        tasks={0: [task(3, "Task-4", "Client.fetch")]})
    names = [profile["name"] for profile in exported(run, tmp_path)["profiles"]]
    assert names == ["rank 0 - thread 7", "rank 0 - worker", "rank 0 - MainThread",
                     "rank 0 - Task-4 (fetch) on MainThread", "rank 0 - task 9"]
    assert names == [f"rank 0 - {run.lane_label(lane)}" for lane in (-9, -3, -2, 3, 9)]


def test_the_viewer_begins_with_the_lane_of_the_most_time_in_calls(tmp_path):
    run = results_of(
        {"main": {0: region([0], [100], [0])}, "work": {0: region([10, 20, 70], [90, 85, 99], [1, 1, 2])}},
        threads={0: [thread(0, "MainThread"), thread(1, "worker"), thread(2, "other")]})
    document = exported(run, tmp_path)
    names = [profile["name"] for profile in document["profiles"]]
    assert names == ["rank 0 - other", "rank 0 - worker", "rank 0 - MainThread"]
    assert document["activeProfileIndex"] == 2
    assert exported(run, tmp_path, include="work")["activeProfileIndex"] == 1, "what calls enclose counts once"


def test_ranks_share_frames_and_one_origin(tmp_path):
    run = results_of({"a": {0: region([100], [110]), 1: region([50], [60])}, "b": {1: region([52], [53])}})
    calls = speedscope_calls(exported(run, tmp_path, ranks=[1, 0, 1]))
    assert calls == {"rank 1": [(0, "a", 0.0, 1e-08), (1, "b", 2e-09, 3e-09)], "rank 0": [(0, "a", 5e-08, 6e-08)]}
    assert list(speedscope_calls(exported(run, tmp_path))) == ["rank 0"]


def test_a_region_left_out_disappears_between_its_callers_and_calls(tmp_path):
    run = results_of({"a": {0: region([0], [10])}, "b": {0: region([2], [8])}, "c": {0: region([3], [4])}})
    assert speedscope_calls(exported(run, tmp_path, exclude="b")) == {"rank 0": [(0, "a", 0.0, 1e-08), (1, "c", 3e-09, 4e-09)]}
    assert speedscope_calls(exported(run, tmp_path, include=["b", "c"]))["rank 0"][0] == (0, "b", 0.0, 6e-09)


def test_overlapping_calls_of_a_lane_move_to_extra_profiles(tmp_path):
    # b starts inside a and outlives it; c is inside both, d only inside b
    run = results_of({"a": {0: region([0], [10])}, "b": {0: region([5], [15])}, "c": {0: region([6], [7])}, "d": {0: region([12], [13])}})
    assert speedscope_calls(exported(run, tmp_path)) == {
        "rank 0": [(0, "a", 0.0, 1e-08), (1, "c", 6e-09, 7e-09), (0, "d", 1.2e-08, 1.3e-08)],
        "rank 0 (overlap 1)": [(0, "b", 5e-09, 1.5e-08)]}
    tracked = results_of({"a": {0: region([0, 5], [10, 15], [2, 2])}}, threads={0: [thread(2, "T")]})
    assert list(speedscope_calls(exported(tracked, tmp_path))) == ["rank 0 - T", "rank 0 - T (overlap 1)"]


def test_a_call_that_ends_before_it_starts_has_no_length(tmp_path):
    assert speedscope_calls(exported(results_of({"a": {0: region([7], [3])}}), tmp_path)) == {"rank 0": [(0, "a", 0, 0)]}


def intervals_of(document, origin):
    return sorted((round(start * 1e9) + origin, round(end * 1e9) + origin, name)
                  for calls in speedscope_calls(document).values() for _, name, start, end in calls)


@settings(max_examples=150, deadline=None)
@given(any_calls(1), st.booleans())
def test_every_call_of_any_run_is_in_the_file_once(tmp_path_factory, calls, tracked):
    document = exported(results_of(regions_of(calls, tracked)), tmp_path_factory.mktemp("e"))
    assert intervals_of(document, min(c[1] for c in calls)) == sorted((s, s + n, name) for name, s, n, _ in calls)


def test_calls_that_all_overlap_take_as_many_tracks_as_are_open_at_once(tmp_path):
    # 40 threads recorded without tracking: never more than 40 calls are open
    rng = random.Random(3)
    starts, ends = [], []
    for _ in range(40):
        clock = rng.randrange(1000)
        for _ in range(50):
            starts.append(clock)
            clock += rng.randrange(1, 1000)
            ends.append(clock)
            clock += rng.randrange(1, 50)
    document = exported(results_of({"a": {0: region(starts, ends)}}), tmp_path)
    assert len(document["profiles"]) <= 40 + 16
    assert intervals_of(document, min(starts)) == sorted((s, e, "a") for s, e in zip(starts, ends))


@pytest.mark.filterwarnings("ignore:calls overlap")
def test_a_recorded_run_of_tasks_threads_and_generators(tmp_path):
    with ProfileManager.session(output=None, verbose=False, return_results=True, track_async=True) as run:
        region_ = ProfileManager.region

        async def child(depth):
            with region_("child"):
                await asyncio.sleep(0)
                if depth:
                    await asyncio.gather(child(depth - 1), child(depth - 1))

        def generate():
            with region_("generator"):
                for _ in range(3):
                    yield

        def recurse(n):
            with region_("recursion"):
                if n:
                    recurse(n - 1)

        asyncio.run(child(4))
        first, second = generate(), generate()
        next(first), next(second), first.close(), next(second), second.close()  # the two overlap on one lane
        recurse(200)
    document = exported(run.results, tmp_path)
    calls = speedscope_calls(document)
    names = [call[1] for profile in calls.values() for call in profile]
    assert names.count("child") == 31 and names.count("recursion") == 201 and names.count("generator") == 2
    assert max(call[0] for profile in calls.values() for call in profile if call[1] == "recursion") >= 200
    assert sum("(child) on MainThread" in name for name in calls) == 31
    assert any("overlap" in name for name in calls)


@pytest.mark.slow
def test_a_million_calls(tmp_path):
    count = 500_000
    outer = np.arange(count) * 100 + 10**15
    run = results_of({"a": {0: region(outer, outer + 90)}, "b": {0: region(outer, outer + 40)}})
    [calls] = speedscope_calls(exported(run, tmp_path)).values()
    assert len(calls) == 2 * count
    assert calls[-2:] == [(0, "a", (count - 1) * 1e-07, ((count - 1) * 100 + 90) / 1e9), (1, "b", (count - 1) * 1e-07, ((count - 1) * 100 + 40) / 1e9)]
