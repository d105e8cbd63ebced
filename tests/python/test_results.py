"""Regions, regions over ranks, and results: every member against numbers worked out by hand."""

import copy
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_profiler import _core
from scope_profiler.concurrency import TaskInfo, ThreadInfo
from scope_profiler.errors import EventDataUnavailableError
from scope_profiler.likwid_data import LikwidRegionResult
from scope_profiler.mpi_region import MPIRegion
from scope_profiler.perf_events import PerfEventTotals
from scope_profiler.region_results import Region
from scope_profiler.results import ProfilingResults, merge_results

S = 1_000_000_000


def int64(*values):
    return np.array(values, dtype=np.int64)


def region(*calls, **columns):
    """A region of (start, end) pairs."""
    return Region(int64(*(c[0] for c in calls)), int64(*(c[1] for c in calls)), **columns)


def results_of(regions, **parts):
    """{name: Region or {rank: Region}} -> results."""
    made = {n: MPIRegion(n, r if isinstance(r, dict) else {0: r}) for n, r in regions.items()}
    return ProfilingResults(made, **parts)


def as_profile(results):
    """The same results over a profile, as a collected run or a file gives them."""
    return ProfilingResults._from_profile(results._to_profile(), file_path=results._file_path)


@pytest.fixture(params=["arrays", "profile"])
def form(request):
    """Results either as they were made from arrays, or over a profile of the same."""
    return (lambda results: results) if request.param == "arrays" else as_profile


# -- Region ------------------------------------------------------------------------------------------------------------


def test_times_of_calls_in_ns_and_seconds():
    r = region((100, 150), (200, 260), (50, 55))
    assert r.start_times_ns.tolist() == [100, 200, 50] and r.start_times_ns.dtype == np.int64
    assert r.end_times_ns.tolist() == [150, 260, 55]
    assert r.durations_ns.tolist() == r.inclusive_durations_ns.tolist() == [50, 60, 5]
    assert r.start_times.tolist() == [1e-7, 2e-7, 5e-8] and r.start_times.dtype == np.float64
    assert r.end_times.tolist() == [1.5e-7, 2.6e-7, 5.5e-8]
    assert r.durations.tolist() == r.inclusive_durations.tolist() == [5e-8, 6e-8, 5e-9]
    assert (r.num_calls, len(r), r.has_timing, r.has_event_data) == (3, 3, True, True)


def test_statistics_of_calls():
    r = region((100, 150), (200, 260), (50, 55))
    assert r.total_duration == r.inclusive_duration == 115e-9
    assert r.average_duration == 115e-9 / 3
    assert (r.min_duration, r.max_duration) == (5e-9, 60e-9)
    assert (r.first_duration, r.last_duration) == (50e-9, 5e-9)  # by recording order
    assert (r.first_start_time, r.last_end_time) == (50e-9, 260e-9)
    # deviations from 115/3: 11.666^2 + 21.666^2 + 33.333^2 = 1716.666...
    assert r.std_duration == pytest.approx(math.sqrt(1716.6666666666667 / 3) * 1e-9, rel=1e-12)


def test_percentiles_interpolate_between_calls():
    r = region((0, 10), (0, 20), (0, 40), (0, 80))
    assert r.p50_duration == 30e-9
    assert r.p95_duration == pytest.approx(74e-9)  # 0.95 * 3 = 2.85: 40 + 0.85 * 40
    assert r.p99_duration == pytest.approx(78.8e-9)
    assert (r.percentile_duration(0), r.percentile_duration(100)) == (10e-9, 80e-9)
    for bad in (-0.1, 100.1, math.nan):
        with pytest.raises(ValueError, match="0 to 100"):
            r.percentile_duration(bad)
    with pytest.raises(TypeError):
        r.percentile_duration("a")


def test_a_region_without_calls():
    r = region()
    assert r.durations.tolist() == [] and r.durations.dtype == np.float64 and r.durations_ns.dtype == np.int64
    assert r.exclusive_durations_ns.tolist() == [] and r.events() == [] and r.event_metadata == ()
    for name in (
        "total_duration average_duration min_duration max_duration std_duration first_duration last_duration first_start_time "
        "last_end_time p50_duration p95_duration p99_duration exclusive_duration"
    ).split():
        assert getattr(r, name) == 0.0, name
    assert not r.has_timing and r.num_calls == 0 and r.threads == []
    for name in (
        "gpu_durations gpu_durations_ns await_times await_times_ns call_ids parent_ids thread_ids task_ids gpu_total_duration "
        "gpu_average_duration total_await_duration source_file source_lineno source_text stored_summary"
    ).split():
        assert getattr(r, name) is None, name


def test_optional_columns():
    r = region(
        (1, 3), (2, 5), (9, 9),
        gpu_durations=[4, -1, 6], call_ids=[0, 1, 2], parent_ids=[-1, 0, -1], thread_ids=[3, 0, -1], task_ids=[-1, 2, -1],
        await_times=[0, 1, 0], source_file="a.py", source_lineno=7, source_text="with r:", tags="ab",
    )  # fmt: skip
    assert r.gpu_durations_ns.tolist() == [4, -1, 6] and r.gpu_durations.tolist() == [4e-9, -1e-9, 6e-9]
    assert (r.gpu_total_duration, r.gpu_average_duration) == (10e-9, 5e-9)  # the call that was not measured does not count
    assert r.has_gpu_timing and r.has_thread_data and r.has_source
    assert r.await_times_ns.tolist() == [0, 1, 0] and r.await_times.tolist() == [0, 1e-9, 0] and r.total_await_duration == 1e-9
    assert (r.call_ids.tolist(), r.parent_ids.tolist()) == ([0, 1, 2], [-1, 0, -1])
    assert (r.thread_ids.tolist(), r.task_ids.tolist(), r.threads) == ([3, 0, -1], [-1, 2, -1], [-1, 0, 3])
    assert (r.source_file, r.source_lineno, r.source_text, r.tags) == ("a.py", 7, "with r:", ("a", "b"))


def test_device_time_that_no_call_has_is_none():
    r = region((1, 3), (2, 5), gpu_durations=[-1, -1])
    assert not r.has_gpu_timing and r.gpu_durations is None and r.gpu_total_duration is None
    assert "gpu_total_duration" not in r.get_summary()


def test_columns_must_have_a_value_for_every_call():
    with pytest.raises(ValueError, match="end_ns"):
        Region(int64(1, 2), int64(3))
    with pytest.raises(ValueError, match="thread_ids"):
        region((1, 2), thread_ids=[0, 0])
    with pytest.raises(ValueError, match="metadata of 2 calls"):
        region((1, 2), event_metadata=[{}, {}])


def test_events_name_what_was_recorded():
    assert region((100, 150)).events() == [{"call_index": 0, "start": 1e-7, "end": 1.5e-7, "duration": 5e-8}]
    r = region((1, 3), (2, 5), gpu_durations=[7, 8], call_ids=[4, 5], parent_ids=[-1, 4], thread_ids=[0, 3], task_ids=[-1, 2],
               await_times=[0, 1], event_metadata=[{}, {"k": 1}])  # fmt: skip
    assert r.events(1e-9) == [
        {"call_index": 0, "start": 0.0, "end": 2e-9, "duration": 2e-9, "gpu_duration": 7e-9, "call_id": 4, "parent_id": -1,
         "thread": 0, "task": -1, "await_duration": 0.0},
        {"call_index": 1, "start": 1e-9, "end": 4e-9, "duration": 3e-9, "gpu_duration": 8e-9, "call_id": 5, "parent_id": 4,
         "thread": 3, "task": 2, "await_duration": 1e-9, "metadata": {"k": 1}},
    ]  # fmt: skip
    assert all(type(value) in (int, float, dict) for event in r.events() for value in event.values())


def test_durations_keep_their_ns_however_long_the_machine_is_up():
    up = 10**16  # 115 days: a float second steps by 2 ns there
    results = results_of({"m": region((up + 1, up + 2), (up + 3, up + 10))}, metadata={"start_time_ns": up})
    assert [(e["start"], e["end"], e["duration"]) for e in results.events()] == [(1e-9, 2e-9, 1e-9), (3e-9, 1e-8, 7e-9)]
    assert results.events(origin=results.time_origin)[0]["start"] == 1e-9
    assert (results.startup_time, results.time_span) == (1e-9, 9e-9)


def test_sums_are_exact_where_they_leave_int64():
    r = region(*[(0, 2**62)] * 5, gpu_durations=[2**62] * 5)
    assert r.total_duration == 5 * 2**62 / S and r.gpu_total_duration == 5 * 2**62 / S


def test_a_thread_of_a_region_has_all_that_its_calls_have():
    whole = results_of({
        "outer": region((0, 100), (0, 50), thread_ids=[0, 1], event_metadata=[{"a": 1}, {"b": 2}], tags=["t"], source_file="f",
                        gpu_durations=[1, 2], task_ids=[-1, 4], await_times=[0, 3], call_ids=[0, 1], parent_ids=[-1, -1]),
        "inner": region((10, 30), (10, 20), thread_ids=[0, 1], task_ids=[-1, 4]),
    })  # fmt: skip
    part = whole["outer"][0].for_thread(1)
    assert part.num_calls == 1 and part.durations_ns.tolist() == [50]
    assert part.exclusive_durations_ns.tolist() == [40] and part.exclusive_duration == 40e-9
    assert part.event_metadata == ({"b": 2},) and part.tags == ("t",) and part.source_file == "f"
    assert (part.gpu_durations_ns.tolist(), part.task_ids.tolist(), part.await_times_ns.tolist()) == ([2], [4], [3])
    assert (part.call_ids.tolist(), part.thread_ids.tolist()) == ([1], [1])
    assert whole["outer"][0].for_thread(9).num_calls == 0
    with pytest.raises(ValueError, match="track_threads"):
        region((0, 1)).for_thread(0)


def test_aggregates_stand_in_for_calls():
    r = region(aggregate=dict(count=3, total=100, minimum=10, maximum=60, exclusive=50))
    assert (r.num_calls, r.total_duration, r.average_duration) == (3, 100e-9, 100e-9 / 3)
    assert (r.min_duration, r.max_duration, r.exclusive_duration) == (10e-9, 60e-9, 50e-9)
    assert (r.std_duration, r.first_duration, r.last_duration, r.first_start_time, r.last_end_time) == (0, 0, 0, 0, 0)
    assert r.p50_duration is None and r.events() == [] and r.durations.tolist() == []
    assert r.stored_summary == dict(count=3, total=100, minimum=10, maximum=60, exclusive=50) and r.has_event_data
    pooled = MPIRegion("a", {0: r, 1: r})
    assert pooled.std_duration == 0.0 and pooled.p50_duration is None and pooled.total_duration == 200e-9


def test_a_region_of_its_own_reports_its_durations_as_exclusive():
    r = region((0, 10), (2, 5))
    assert r.exclusive_durations_ns.tolist() == [10, 3] and r.exclusive_duration == 13e-9


def test_repr_is_a_block_of_lines():
    text = repr(region((100, 150)))
    assert "1 call" in text and "total_duration = 5e-08 s" in text and len(text.splitlines()) > 5
    assert "unknown" in repr(results_of({"a": region((0, 10)), "b": region((5, 15))})["a"][0])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**45)), min_size=1, max_size=40))
def test_statistics_are_those_of_numpy(calls):
    durations = np.array([d for _, d in calls], dtype=np.float64) / 1e9
    made = [region(*((s, s + d) for s, d in calls))]
    made.append(as_profile(results_of({"r": made[0]}))["r"][0])
    for r in made:
        assert r.total_duration == pytest.approx(math.fsum(durations), rel=1e-12)
        assert r.average_duration == pytest.approx(durations.mean(), rel=1e-12)
        assert r.std_duration == pytest.approx(durations.std(), rel=1e-7, abs=1e-9 * durations.max())
        assert (r.min_duration, r.max_duration) == (durations.min(), durations.max())
        for p in (0, 12.5, 50, 95, 99, 100):
            assert r.percentile_duration(p) == pytest.approx(np.percentile(durations, p), rel=1e-9)


# -- MPIRegion ---------------------------------------------------------------------------------------------------------


def outer():
    return MPIRegion("outer", {1: region((10, 13), (50, 56), tags=["t"], source_file="f"), 0: region((11, 14))})


def test_ranks_are_a_mapping():
    m = outer()
    assert m.name == "outer" and m.ranks == [0, 1] and list(m) == [1, 0] and len(m) == 2 and m.color is None
    assert 1 in m and 7 not in m and m[1].num_calls == 2 and set(m.regions) == {0, 1}
    with pytest.raises(KeyError, match="rank 7"):
        m[7]


def test_pools_over_ranks():
    m = outer()
    assert m.durations.tolist() == m.inclusive_durations.tolist() == [3e-9, 6e-9, 3e-9]
    assert (m.num_calls, m.total_duration, m.average_duration) == (3, 12e-9, 4e-9)
    assert m.std_duration == pytest.approx(math.sqrt(2) * 1e-9)
    assert (m.min_duration, m.max_duration, m.p50_duration) == (3e-9, 6e-9, 3e-9)
    assert m.percentile_duration(75) == pytest.approx(4.5e-9)
    assert m.first_duration == 3e-9 and m.last_duration == 6e-9
    assert (m.first_start_time, m.last_end_time) == (10e-9, 56e-9)
    assert m.num_calls_per_rank() == {1: 2, 0: 1} and list(m.num_calls_per_rank()) == [1, 0]
    assert m.total_durations() == {1: 9e-9, 0: 3e-9} and m.average_durations() == {1: 4.5e-9, 0: 3e-9}
    assert m.min_durations() == {1: 3e-9, 0: 3e-9} and m.max_durations() == {1: 6e-9, 0: 3e-9}
    assert m.rank_imbalance == pytest.approx(1.5) and m.rank_imbalance_pct == pytest.approx(50)
    assert m.exclusive_duration == m.total_exclusive_duration == 12e-9
    assert m.gpu_durations is None and m.gpu_total_duration is None and not m.has_gpu_timing


def test_what_a_rank_does_not_say_the_next_says():
    m = outer()
    assert m.tags == ("t",) and m.source_file == "f" and m.has_source and m.source_text is None


def test_a_region_on_no_rank():
    m = MPIRegion("e", {})
    assert m.num_calls == 0 and m.total_duration == 0 and m.durations.tolist() == [] and m.rank_imbalance == 0.0
    assert m.events() == [] and m.p50_duration == 0.0 and m.tags == () and not m.has_timing
    assert m.get_summary()["num_ranks"] == 0
    with pytest.raises(ValueError, match="no rank"):
        ProfilingResults({"e": m}).get_regions()


def test_device_times_pool_over_the_ranks_that_have_them():
    m = MPIRegion("k", {0: region((0, 9), (10, 19), gpu_durations=[3, 5]), 1: region((0, 9))})
    assert m.gpu_durations.tolist() == [3e-9, 5e-9] and m.gpu_total_duration == 8e-9 and m.gpu_average_duration == 4e-9
    assert m.get_summary()["gpu_average_duration"] == 4e-9


def test_events_of_ranks():
    m = outer()
    assert [(e["name"], e["rank"], e["call_index"], e["duration"]) for e in m.events()] == [
        ("outer", 1, 0, 3e-9), ("outer", 1, 1, 6e-9), ("outer", 0, 0, 3e-9),
    ]  # fmt: skip
    assert [e["rank"] for e in m.events(ranks=[0, 9])] == [0] and [e["rank"] for e in m.events(ranks=1)] == [1, 1]
    assert m.events(ranks=0, origin=1e-9)[0]["start"] == 10e-9


# -- ProfilingResults --------------------------------------------------------------------------------------------------


def nested(**parts):
    """outer 10-40 and 50-90 with inner 20-30 and 60-70 in it, on one rank."""
    parts.setdefault("metadata", {"start_time_ns": 4})
    return results_of({"outer": region((10, 40), (50, 90)), "inner": region((20, 30), (60, 70))}, **parts)


def test_results_are_a_container_of_regions(form):
    r = form(nested(file_path="runs/x.h5"))
    assert r.region_names == ["outer", "inner"] == [region.name for region in r]
    assert len(r) == 2 and r and "inner" in r and "none" not in r and 3 not in r
    assert r["outer"] is r.get_region("outer")
    with pytest.raises(KeyError, match="'inner'"):
        r["none"]
    assert not ProfilingResults({}) and len(ProfilingResults({})) == 0
    assert repr(r) == "<ProfilingResults 'x.h5': 2 region(s) on 1 rank(s)>"


def test_exclusive_times_follow_from_all_regions(form):
    r = form(nested())
    assert r["outer"][0].exclusive_durations_ns.tolist() == [20, 30]
    assert r["outer"].exclusive_durations.tolist() == [20e-9, 30e-9]
    assert r["outer"].exclusive_duration == 50e-9 and r["inner"][0].total_exclusive_duration == 20e-9


def test_exclusive_times_of_recursion_add_up_to_the_outermost_call(form):
    r = form(results_of({"fact": region((0, 100), (10, 90), (20, 80)), "deep": region((200, 210), (201, 202))}))
    assert r["fact"][0].exclusive_durations_ns.tolist() == [20, 20, 60]


def test_totals_that_are_stored_are_not_made_again():
    r = results_of({"a": region((0, 10))}, exclusive_totals={"a": {0: 7}})
    assert r["a"][0].exclusive_duration == 7e-9


def test_overlap_raises_every_time_and_nothing_is_reported_instead(form):
    r = form(results_of({"a": region((0, 10)), "b": region((5, 15)), "c": {1: region((0, 3))}}))
    for _ in range(3):
        for ask in (lambda: r["a"].exclusive_duration, lambda: r["b"][0].exclusive_durations, lambda: r["a"][0].exclusive_durations_ns):
            with pytest.raises(_core.NestingError, match="'b'"):
                ask()
    assert r["a"].get_summary()["exclusive_duration"] is None
    assert r["a"].total_duration == 10e-9 and r["c"].exclusive_duration == 3e-9  # the other rank nests


def test_calls_that_overlap_on_a_tracked_lane_have_clamped_exclusive_times(form):
    r = form(results_of({"a": region((0, 10), thread_ids=[0]), "b": region((5, 15), thread_ids=[0])}))
    assert r["a"][0].exclusive_durations_ns.tolist() == [5] and r["b"].exclusive_duration == 10e-9
    with pytest.raises(_core.NestingError):
        r.call_graph()


def test_results_leave_the_regions_that_they_are_made_of_alone():
    a, b = MPIRegion("a", {0: region((0, 100))}), MPIRegion("b", {0: region((10, 20))})
    first = ProfilingResults({"a": a, "b": b})
    assert first["a"].exclusive_duration == 90e-9
    second = ProfilingResults({"a": a})
    third = ProfilingResults({"a": first["a"], "c": MPIRegion("c", {0: region((50, 70))})})
    assert (first["a"].exclusive_duration, second["a"].exclusive_duration, third["a"].exclusive_duration) == (90e-9, 100e-9, 80e-9)
    assert a.exclusive_duration == 100e-9


def test_filters_match_the_beginning_of_names_and_order_by_start(form):
    r = form(results_of({"solve": region((50, 60)), "setup": region((0, 10)), "post": region((70, 75))}))
    names = lambda *args: [region.name for region in r.get_regions(*args)]  # noqa: E731
    assert names() == ["setup", "solve", "post"]
    assert names("s") == ["setup", "solve"] and names(["p", "se"]) == ["setup", "post"] and names("olve") == []
    assert names(None, "s") == ["post"] and names("s", ["so.*"]) == ["setup"] and names(".*", None) == ["setup", "solve", "post"]
    with pytest.raises(re.error):
        r.get_regions("(")


def test_times_of_the_run(form):
    r = form(nested(metadata={"start_time_ns": 4, "finalize_time_ns": 104, "num_nodes": 2, "label": "L"}))
    assert (r.run_start_time, r.finalize_time, r.total_time) == (4e-9, 104e-9, 100e-9)
    assert (r.minimum_start_time, r.maximum_end_time, r.time_span) == (10e-9, 90e-9, 80e-9)
    assert (r.startup_time, r.time_origin, r.num_nodes, r.is_root, r.has_event_data) == (6e-9, 4e-9, 2, True, True)
    bare = form(nested(metadata={}))
    assert (bare.run_start_time, bare.total_time, bare.num_nodes, bare.time_origin, bare.startup_time) == (None, None, None, 10e-9, 0)
    empty = ProfilingResults({}, metadata={"start_time_ns": 5})
    assert (empty.minimum_start_time, empty.maximum_end_time, empty.time_span, empty.startup_time) == (0, 0, 0, 0)


def test_aggregates_say_nothing_about_times():
    agg = dict(count=3, total=100, minimum=10, maximum=60, exclusive=50)
    r = as_profile(results_of({"a": region(aggregate=agg, tags=["t"])}, metadata={"start_time_ns": 10**12}))
    assert (r.startup_time, r.time_span, r.minimum_start_time) == (0.0, 0.0, 0.0)
    assert r["a"][0].stored_summary == agg and r["a"].num_calls == 3 and r["a"].tags == ("t",)


def test_labels_and_titles(form):
    r = form(nested(file_path="runs/x.h5", metadata={"label": "L"}))
    assert (r.label, r.display_label, r.default_title()) == ("L", "L", "L - runs/x.h5 (1 rank)")
    r.label = "new"
    assert r.label == "new" == r.metadata["label"] == r._to_profile().metadata["label"]
    r.label = None
    assert r.label is None and "label" not in r.metadata and r.display_label == "x" and str(r.file_path) == "runs/x.h5"


def test_a_run_in_memory_says_so():
    assert nested().default_title() == "(in memory, 1 rank)"
    profile = nested(metadata={"label": "L"})._to_profile()
    r = ProfilingResults._from_profile(profile, file_path="never_written.h5", in_memory=True)
    assert r.default_title() == "L (in memory, 1 rank)" == pickle.loads(pickle.dumps(r)).default_title()


def test_number_of_ranks():
    two = {"m": {3: region((1, 2)), 0: region((1, 2))}}
    assert results_of(two).num_ranks == 2 and results_of(two, num_ranks=5).num_ranks == 5
    assert as_profile(results_of(two)).num_ranks == 4  # a file says how many there were, or the highest rank does
    assert as_profile(results_of(two, metadata={"mpi_size": 9})).num_ranks == 9
    assert ProfilingResults({}).num_ranks == 0


def test_events_by_region_rank_and_call(form):
    r = form(results_of({"b": {0: region((50, 60)), 1: region((0, 5))}, "a": region((10, 20))}, metadata={"start_time_ns": 10}))
    short = [(e["name"], e["rank"], e["start"]) for e in r.events()]
    assert short == [("b", 0, 40e-9), ("b", 1, -10e-9), ("a", 0, 0.0)]
    assert [e["name"] for e in r.events("a")] == ["a"] and [e["rank"] for e in r.events(ranks=1)] == [1]
    assert r.events("a", relative=False)[0]["start"] == 10e-9
    assert r.events("a", origin=4e-9)[0]["start"] == 6e-9 == r.events("a", relative=False, origin=4e-9)[0]["start"]


def test_call_graph_by_recorded_ids():
    r = results_of({
        "main": region((0, 100), call_ids=[7], parent_ids=[-1]),
        "mid": region((10, 90), call_ids=[8], parent_ids=[7]),
        "leaf": region((20, 30), (95, 99), call_ids=[9, 10], parent_ids=[8, 7]),
    })  # fmt: skip
    flat = lambda rows: [tuple(row.values()) for row in rows]  # noqa: E731
    assert list(r.call_graph()[0]) == ["call_id", "parent_id", "name", "call_index", "depth"]
    assert flat(r.call_graph()) == [(7, None, "main", 0, 0), (8, 7, "mid", 0, 1), (9, 8, "leaf", 0, 2), (10, 7, "leaf", 1, 1)]
    # what is left out is skipped over
    assert flat(r.call_graph(exclude="mid")) == [(7, None, "main", 0, 0), (9, 7, "leaf", 0, 1), (10, 7, "leaf", 1, 1)]
    assert flat(r.call_graph(include="leaf")) == [(9, None, "leaf", 0, 0), (10, None, "leaf", 1, 0)]
    assert r.call_graph(rank=5) == []


def test_call_graph_by_nesting_where_ids_are_missing():
    r = results_of({
        "main": region((0, 100)), "mid": region((10, 90), call_ids=[8], parent_ids=[7]), "leaf": region((20, 30), (95, 99)),
    })  # fmt: skip
    flat = lambda rows: [tuple(row.values()) for row in rows]  # noqa: E731
    assert flat(r.call_graph()) == [(0, None, "main", 0, 0), (1, 0, "mid", 0, 1), (2, 1, "leaf", 0, 2), (3, 0, "leaf", 1, 1)]
    assert flat(r.call_graph(exclude="mid")) == [(0, None, "main", 0, 0), (1, 0, "leaf", 0, 1), (2, 0, "leaf", 1, 1)]


def test_call_stack_counts_from_the_origin(form):
    r = form(nested())
    assert [(c["name"], c["start"], c["depth"], c["parent"]) for c in r.call_stack()] == [
        ("outer", 6e-9, 0, None), ("inner", 16e-9, 1, 0), ("outer", 46e-9, 0, None), ("inner", 56e-9, 1, 2),
    ]  # fmt: skip
    assert r.call_stack(include="inner", relative=False)[0]["start"] == 20e-9 and r.call_stack(rank=3) == []


def lanes():
    threads = [ThreadInfo(0, 0, "Main", 11, 12, False, 0, -1, 70), ThreadInfo(1, 0, "w", 13, 14, True, 5, 65, 40)]
    tasks = [
        TaskInfo(0, 0, "task", "Task-1", "app.<locals>.main", 0, 1, 60, 4, 30, 20),
        TaskInfo(1, 0, "task", "Task-2", "job", 0, 2, -1, 1, 5, 6),
    ]
    return results_of(
        {
            # thread 0: own call 0-10; task 0: 20-60 with 30-40 inside; task 1: 50-80 on the same thread; thread 1: 10-30
            "own": region((0, 10), (10, 30), thread_ids=[0, 1], task_ids=[-1, -1], await_times=[0, 0]),
            "co": region((20, 60), (50, 80), thread_ids=[0, 0], task_ids=[0, 1], await_times=[15, 3]),
            "in": region((30, 40), thread_ids=[0], task_ids=[0], await_times=[2]),
        },
        threads={0: threads}, tasks={0: tasks},
    )  # fmt: skip


def test_thread_summary_counts_the_wall_clock_inside_of_regions_once(form):
    assert form(lanes()).thread_summary() == [
        # 0-10 and 20-80: the two tasks overlap
        dict(index=0, name="Main", alive=True, wall_time=None, cpu_time=70e-9, num_calls=4, region_time=70e-9),
        dict(index=1, name="w", alive=False, wall_time=60e-9, cpu_time=40e-9, num_calls=1, region_time=20e-9),
    ]
    assert form(nested()).thread_summary() == [] and form(lanes()).thread_summary(rank=4) == []


def test_lane_labels(form):
    r = form(lanes())
    labels = [r.lane_label(lane) for lane in (0, 1, -2, -3, -1, 9, -9)]
    assert labels == ["Task-1 (main) on Main", "Task-2 (job) on Main", "Main", "w", "unknown lane", "task 9", "thread 7"]
    assert r.lane_label(0, rank=3) == "task 0" and r.lane_label(np.int64(-2)) == "Main"


def test_lane_tables(form):
    r = form(lanes())
    assert [t.name for t in r.threads[0]] == ["Main", "w"] and [t.coro_name for t in r.tasks[0]] == ["app.<locals>.main", "job"]
    assert (r.tasks[0][0].running_time, r.tasks[0][0].awaiting_time, r.tasks[0][1].done) == (30e-9, 20e-9, False)
    assert form(nested()).threads == {} == form(nested()).tasks


def counters():
    likwid = LikwidRegionResult(
        "tag", 1, "FLOPS", [0, 4], np.array([1.0, 2.0]), np.array([3, 4]), ["E", "E", "F"], ["PMC0", "PMC1", "PMC2"],
        np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), ["rate"], np.array([[7.0, 8.0]]), "marker",
    )  # fmt: skip
    lines = {"region": "a", "filename": "f.py", "function": "fn", "first_lineno": 3, "unit": 1e-9,
             "line_numbers": np.array([3, 4]), "hits": np.array([1, 2]), "times": np.array([5.0, 6.0])}  # fmt: skip
    perf = {"a": PerfEventTotals(2, {"cycles": 2**63 + 1}), "a/b": PerfEventTotals(1, {"cycles": 3, "branches": 4})}
    return results_of(
        {"a": region((0, 10))}, likwid={0: {"tag": likwid}}, perf_events={0: perf}, line_profile={0: [lines]}, file_path="c.h5"
    )


def test_counters_and_line_profiles(form):
    r = form(counters())
    assert r.get_perf_events(0) == {"a": PerfEventTotals(2, {"cycles": 2**63 + 1}), "a/b": PerfEventTotals(1, {"cycles": 3, "branches": 4})}
    assert r.get_perf_events() == {0: r.get_perf_events(0)} and r.get_perf_events(3) == {} and r.has_perf_events
    assert r.has_likwid and r.likwid_ranks == [0] and r.get_likwid_regions(9) == {}
    assert r.get_likwid_region("tag") == counters().get_likwid_region("tag") == r.get_likwid_regions()[0]["tag"]
    assert r.get_likwid_region("tag").event_labels == ["E:PMC0", "E:PMC1", "F"]
    with pytest.raises(KeyError, match="'tag'"):
        r.get_likwid_region("other")
    (record,) = r.line_profile[0]
    assert (record["function"], record["unit"], record["times"].tolist(), record["hits"].dtype) == ("fn", 1e-9, [5.0, 6.0], np.int64)
    none = form(nested())
    assert none.line_profile == {} == none.get_perf_events() == none.get_likwid_regions() and not none.has_likwid


def test_likwid_values_print_and_compare(capsys):
    r = counters()
    r.print_likwid_summary()
    text = capsys.readouterr().out
    assert "rank 0" in text and "cpu 4: 4 call(s), 2.000000 s" in text and re.search(r"E:PMC1 +4\.0000", text)
    nested().print_likwid_summary()
    assert "no LIKWID" in capsys.readouterr().out
    one = r.get_likwid_region("tag")
    assert one != LikwidRegionResult("tag") and LikwidRegionResult("x") == LikwidRegionResult("x")
    assert one.as_dict()["metrics"].tolist() == [[7.0, 8.0]] and LikwidRegionResult("x").events.shape == (0, 0)


def test_summary_lists_regions_by_start():
    r = results_of({"b": region((50, 60), tags=["t"]), "a": {0: region((0, 10)), 1: region((0, 30))}})
    rows = r.summary()
    assert [row["name"] for row in rows] == ["a", "b"]
    assert list(rows[0]) == (
        "name num_ranks num_calls total_duration inclusive_duration exclusive_duration average_duration min_duration max_duration "
        "first_duration last_duration std_duration tags p50_duration p95_duration p99_duration rank_imbalance "
        "rank_imbalance_pct p50 p95 p99 imbalance"
    ).split()
    assert rows[0]["p50"] == rows[0]["p50_duration"] == 20e-9 and rows[0]["rank_imbalance"] == 1.5
    assert rows[0]["imbalance"] == rows[0]["rank_imbalance_pct"] == 50.0 and rows[1]["tags"] == ("t",)
    assert [row["name"] for row in r.summary("b")] == ["b"] and ProfilingResults({}).summary() == []


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    r = results_of({
        "b": region((50, 60), thread_ids=[3], event_metadata=[{"k": 1}], gpu_durations=[4]),
        "a": {0: region((0, 10), call_ids=[0], parent_ids=[-1]), 1: region((0, 30))},
    })  # fmt: skip
    assert r.to_dataframe("a")[list(r.summary("a")[0])].to_dict("records") == r.summary("a")
    per_rank = r.to_dataframe(per_rank=True)
    assert list(zip(per_rank["name"], per_rank["rank"], per_rank["total_duration"])) == [("a", 0, 1e-8), ("a", 1, 3e-8), ("b", 0, 1e-8)]
    assert list(r.to_dataframe("a", per_rank=True))[-3:] == ["p50_duration", "p95_duration", "p99_duration"]
    events = r.to_events_dataframe()
    assert list(events) == ["name", "rank", "call_index", "start", "end", "duration", "gpu_duration", "call_id", "parent_id", "thread", "metadata"]
    assert events["name"].tolist() == ["a", "a", "b"] and events["duration"].tolist() == [1e-8, 3e-8, 1e-8]
    assert events["thread"].tolist() == [-1, -1, 3] and events["call_id"].tolist() == [0, -1, -1]
    assert events["gpu_duration"].isna().tolist() == [True, True, False]
    assert events["metadata"].tolist() == [{}, {}, {"k": 1}]
    assert r.to_events_dataframe(ranks=1)["end"].tolist() == [3e-8]
    empty = r.to_events_dataframe(include="zz")
    assert list(empty) == ["name", "rank", "call_index", "start", "end", "duration"] and len(empty) == 0
    assert isinstance(counters().likwid_to_dataframe(), pandas.DataFrame)
    assert counters().likwid_to_dataframe().to_dict("records")[1] == {
        "rank": 0, "region": "tag", "thread": 1, "cpu": 4, "group": "FLOPS", "time": 2.0, "call_count": 4,
        "E:PMC0": 2.0, "E:PMC1": 4.0, "F": 6.0, "rate": 8.0,
    }  # fmt: skip


def test_a_missing_pandas_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask in (lambda: nested().to_dataframe(), lambda: nested().to_events_dataframe(), lambda: counters().likwid_to_dataframe()):
        with pytest.raises(ImportError, match="pip install pandas"):
            ask()


# -- read without calls ------------------------------------------------------------------------------------------------


def summary_only():
    full = as_profile(lanes())._to_profile()
    rows = [(*row[:10], row[10] or _statistics(full, row), *row[11:]) for row in full.rows]
    return ProfilingResults._from_profile(
        _core.make_profile(names=full.names, rows=rows, columns={}, threads=full.threads, summary_only=True)
    )


def _statistics(profile, row):
    return Region._of_row(row, None, None, False)._statistics


def test_a_profile_without_its_calls_has_statistics_only():
    r = summary_only()
    co = r["co"][0]
    assert not r.has_event_data and not co.has_event_data and not r["co"].has_event_data
    assert (co.num_calls, co.total_duration, co.max_duration, co.first_start_time) == (2, 70e-9, 40e-9, 20e-9)
    assert co.exclusive_duration == 60e-9  # stored
    assert co.durations.tolist() == [] and co.durations.dtype == np.float64 and co.event_metadata == () and co.thread_ids is None
    assert co.stored_summary["count"] == 2 and co.stored_summary["exclusive"] == 60 and co.percentile_duration(10) is None
    assert r.time_span == 80e-9 and [t.name for t in r.threads[0]] == ["Main", "w"]
    assert r.summary("co")[0]["p50"] is None
    for ask in (co.events, lambda: co.for_thread(0), r["co"].events, r.events, r.call_stack, r.call_graph, r.to_events_dataframe, r.thread_summary):
        with pytest.raises(EventDataUnavailableError, match="read_h5"):
            ask()


def test_an_exclusive_time_that_is_not_stored_is_not_guessed():
    statistics = (60, 10, 30, 30, 10, 1000, 5000, 0, 0, 20.0, 200.0)
    r = ProfilingResults._from_profile(_core.make_profile(
        names=["a"], rows=[(0, 0, 0, 3, None, -1, None, (), None, -1, statistics, (1e3, 2e3, 3e3)[:0] or None)], columns={}, summary_only=True
    ))  # fmt: skip
    with pytest.raises(EventDataUnavailableError):
        _ = r["a"].exclusive_duration
    assert r["a"].get_summary()["exclusive_duration"] is None and r["a"].total_duration == 60e-9


def test_stored_percentiles_are_used():
    statistics = (60, 10, 30, 30, 10, 1000, 5000, 0, 0, 20.0, 200.0)
    r = ProfilingResults._from_profile(_core.make_profile(
        names=["a"], rows=[(0, 0, 0, 3, None, -1, None, (), None, 60, statistics, None, (20.0, 29.0, 29.8))], columns={}, summary_only=True
    ))  # fmt: skip
    assert (r["a"].p50_duration, r["a"].p95_duration, r["a"][0].p99_duration) == pytest.approx((20e-9, 29e-9, 29.8e-9))
    assert r["a"].percentile_duration(60) is None


# -- copies, pickles, profiles -----------------------------------------------------------------------------------------


def describe(r):
    return (
        r.summary(), r.events(), r.metadata, r.thread_summary(), r.lane_label(0), r.get_perf_events(), r.get_likwid_regions(),
        [region.exclusive_durations.tolist() for region in r], r._file_path, r.is_root, r.num_ranks,
    )  # fmt: skip


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)), lambda r: pickle.loads(pickle.dumps(r, 2))])
@pytest.mark.parametrize("make", [nested, lanes, counters])
def test_copies_and_pickles_tell_the_same(form, make, how):
    r = form(make())
    twin = how(r)
    assert describe(twin) == describe(r)
    twin.label = "changed"
    twin.metadata["more"] = 1
    assert r.label != "changed" and "more" not in r.metadata


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_regions_travel_with_their_exclusive_times(form, how):
    r = form(nested())
    one, pooled = how(r["outer"][0]), how(r["outer"])
    assert one.exclusive_durations_ns.tolist() == [20, 30] and pooled.exclusive_duration == 50e-9
    assert one.get_summary() == r["outer"][0].get_summary() and one.events() == r["outer"][0].events()
    bad = how(form(results_of({"a": region((0, 10)), "b": region((5, 15))}))["a"][0])
    with pytest.raises(_core.NestingError):
        _ = bad.exclusive_duration
    part = how(form(lanes())["co"][0].for_thread(0))
    assert part.num_calls == 2 and part.exclusive_duration == 60e-9
    assert how(summary_only()["co"][0]).num_calls == 2


def test_results_travel_to_other_processes(form, tmp_path):
    (tmp_path / "r.pickle").write_bytes(pickle.dumps(form(lanes())))
    code = f"import pickle; r = pickle.load(open({str(tmp_path / 'r.pickle')!r}, 'rb')); print(r['co'].exclusive_duration, r.lane_label(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "6e-08 Task-2 (job) on Main\n"


def test_a_profile_holds_everything_that_arrays_hold():
    r = results_of(
        {
            "a": region((0, 100), event_metadata=[{"k": [1, "é"]}], tags=["t", "u"], source_file="f.py", source_lineno=3, source_text="x"),
            "b": {0: region((10, 20)), 2: region((5, 6), gpu_durations=[9])},
        },
        metadata={"start_time_ns": np.int64(5), "label": "L", "modules": ["m"], "odd": {"x": 1}, "none": None},
    )  # fmt: skip
    p = as_profile(r)
    a = p["a"][0]
    assert a.event_metadata == ({"k": [1, "é"]},) and a.tags == ("t", "u") and (a.source_file, a.source_lineno, a.source_text) == ("f.py", 3, "x")
    assert p["b"].ranks == [0, 2] and p["b"][2].gpu_durations_ns.tolist() == [9] and p["b"][0].gpu_durations is None
    assert p["b"][0].parent_ids.tolist() == [0]  # numbered on the way
    assert p.metadata == {"start_time_ns": 5, "label": "L", "modules": ["m"], "odd": "{'x': 1}"}
    assert describe(p)[7] == describe(r)[7]


def test_what_no_profile_can_hold_is_told():
    with pytest.raises(ValueError):
        results_of({"a\0b": region((0, 1))})._to_profile()
    mixed = results_of({"a": region((0, 1)), "b": region(aggregate=dict(count=1, total=1, minimum=1, maximum=1, exclusive=1))})
    with pytest.raises(ValueError, match="sums"):
        mixed._to_profile()


def test_arrays_of_a_profile_are_views_and_readonly():
    r = as_profile(nested())
    first, again = r["outer"][0].start_times_ns, r["outer"][0].start_times_ns
    assert np.shares_memory(first, again) and not first.flags.writeable and not first.flags.owndata


# -- merging -----------------------------------------------------------------------------------------------------------


def test_merging_keeps_every_column(form):
    a = form(lanes())
    b = form(counters())
    merged = merge_results(a, results_of({"z": {1: region((0, 5), gpu_durations=[3])}}, metadata={"x": 1, "label": "Z"}), b_renamed(b))
    assert merged.region_names == ["own", "co", "in", "z", "a2"]
    assert merged["co"][0].await_times_ns.tolist() == [15, 3] and merged["co"][0].task_ids.tolist() == [0, 1]
    assert [t.name for t in merged.threads[0]] == ["Main", "w"] and merged.tasks[0][1].name == "Task-2"
    assert merged["z"][1].gpu_durations_ns.tolist() == [3] and merged.get_perf_events(0)["a/b"].calls == 1
    assert merged.label == "Z" and merged.metadata["x"] == 1 and str(merged.file_path) == "."
    assert merged.get_likwid_region("tag") == counters().get_likwid_region("tag") and len(merged.line_profile[0]) == 1


def b_renamed(results):
    return ProfilingResults(
        {"a2": MPIRegion("a2", results["a"].regions)}, likwid=results.get_likwid_regions(), perf_events=results.get_perf_events(),
        line_profile=results.line_profile,
    )  # fmt: skip


def test_merging_nests_regions_of_one_rank_into_each_other(form):
    merged = merge_results(form(results_of({"outer": region((0, 100))})), form(results_of({"native": region((10, 30))})))
    assert merged["outer"].exclusive_duration == 80e-9
    assert [(c["name"], c["depth"]) for c in merged.call_graph()] == [("outer", 0), ("native", 1)]


def test_merging_metadata_and_labels():
    a = results_of({"a": region((0, 1))}, metadata={"x": 1}, num_ranks=2)
    b = results_of({"b": {1: region((0, 1))}}, metadata={"x": 2, "y": 3, "label": "B"}, num_ranks=4)
    merged = merge_results(a, b)
    assert merged.metadata["x"] == 1 and merged.metadata["y"] == 3 and merged.label == "B" and merged.num_ranks == 4
    named = merge_results(a, b, label="L", file_path="z.h5")
    assert named.label == "L" and str(named.file_path) == "z.h5" and a.label is None
    assert merge_results(a)["a"].num_calls == 1 and merge_results(a) is not a


def test_merging_refuses_what_it_cannot_tell_apart():
    with pytest.raises(ValueError):
        merge_results()
    with pytest.raises(ValueError, match="'outer'"):
        merge_results(nested(), nested())
    away = ProfilingResults({}, is_root=False)
    assert merge_results(away, away) is away and merge_results(away, nested()).region_names == ["outer", "inner"]


# -- size --------------------------------------------------------------------------------------------------------------


def many(count):
    names = [f"region {i}" for i in range(count)]
    rows = [(i, 0, i, 1, "file.py", i, None, (), None, 5, (5, 5, 5, 5, 5, 10 * i, 10 * i + 5, 0, 0, 5.0, 0.0), None) for i in range(count)]
    starts = np.arange(count) * 10
    return _core.make_profile(names=names, rows=rows, columns={"start_ns": starts, "end_ns": starts + 5})


@pytest.mark.slow
def test_opening_many_regions_makes_only_those_that_are_asked_for():
    import tracemalloc

    profile = many(100_000)
    tracemalloc.start()
    r = ProfilingResults._from_profile(profile)
    assert tracemalloc.get_traced_memory()[0] < 20_000  # nothing is made yet
    assert len(r) == 100_000 and r["region 99999"].total_duration == 5e-9
    assert len(r._store._made) == 1 and tracemalloc.get_traced_memory()[0] < 40_000_000
    tracemalloc.stop()
    assert r.time_span == (99_999 * 10 + 5) / S and len(r._store._made) == 1


def test_arrays_import_numpy_and_nothing_else_does():
    code = """if True:
        import sys
        import array
        from scope_profiler import _core
        before = set(sys.modules)
        from scope_profiler.results import ProfilingResults
        q = lambda *v: array.array("q", v)
        p = _core.make_profile(names=["a"], rows=[(0, 0, 0, 2, "f", 1, None, ("t",), None, 15, (15, 5, 10, 5, 10, 0, 30, 0, 0, 7.5, 12.5), None)],
                               columns={"start_ns": q(0, 20), "end_ns": q(5, 30)})
        r = ProfilingResults._from_profile(p, file_path="x.h5")
        assert r["a"].total_duration == 15e-9 and r["a"].exclusive_duration == 15e-9 and r["a"].p50_duration == 7.5e-9
        r.summary(), r.threads, repr(r), repr(r["a"]), repr(r["a"][0]), r.time_span, r.get_regions("a"), r.display_label
        r.print_summary(); r.line_profile, r.get_perf_events()
        heavy = {"numpy", "pandas", "h5py", "asyncio", "typing", "dataclasses", "inspect"} & (set(sys.modules) - before)
        assert not heavy, heavy
        assert r["a"].durations.tolist() == [5e-9, 10e-9] and "numpy" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_old_names_of_the_modules_work_and_leave_the_function_callable():
    code = """if True:
        import scope_profiler as sp
        import scope_profiler.region, scope_profiler.mpi_region, scope_profiler.results, scope_profiler.summary
        from scope_profiler.region import Region
        assert Region is sp.Region and scope_profiler.mpi_region.MPIRegion is sp.MPIRegion
        sp.setup(output=None)
        with sp.region("x", tags=["t"]) as here:
            pass
        assert here.source_file == "<string>" and here.source_lineno == 7, (here.source_file, here.source_lineno)
        results = sp.finalize(verbose=False, return_results=True)
        assert results["x"].num_calls == 1 and results["x"].tags == ("t",)
        assert {"LikwidRegionResult", "PerfEventTotals", "merge_results", "EventDataUnavailableError"} <= set(dir(sp))
        assert sp.PerfEventTotals(1, {}).calls == 1 and sp.LikwidRegionResult("t").tag == "t"
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_await_times_over_ranks():
    one = MPIRegion("r", {0: region((1, 5), (2, 9), await_times=[2, 3]), 2: region((1, 5), await_times=[4]), 3: region((0, 1))})
    assert one.await_times.tolist() == [2e-9, 3e-9, 4e-9] and one.total_await_duration == 9e-9
    none = MPIRegion("r", {0: region((1, 5))})
    assert none.await_times is None and none.total_await_duration is None


def test_a_run_in_memory_is_named_after_no_file():
    import scope_profiler as sp

    with sp.ProfileManager().session(output=None, verbose=False, return_results=True) as run:
        pass
    with pytest.raises(KeyError, match="the run has no region 'x'; it has 'scope_profiler.session'"):
        run.results["x"]
