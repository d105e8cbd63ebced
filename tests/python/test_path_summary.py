"""Calls summed by call path: against numbers worked out by hand and against a model that walks a tree of Python objects."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_profiler import _core


def profile_of(calls, *, lanes=False, ids=False, nested=True):
    """calls: (name, start, end[, rank[, thread]]) in any order; rows and columns like a recorder lays them out."""
    calls = [(*call, *(0, 0)[len(call) - 3 :]) for call in calls]
    names = list(dict.fromkeys(call[0] for call in calls))
    rows, columns = [], {"start_ns": [], "end_ns": [], "thread_ids": [], "call_ids": [], "parent_ids": []}
    number = {}
    if ids:
        for rank in {c[3] for c in calls}:
            tree = nest([c for c in calls if c[3] == rank])
            number.update(((rank, id(node["call"])), (i, node["parent"])) for i, node in enumerate(tree))
    for rank in sorted({c[3] for c in calls}):
        for index, name in enumerate(names):
            mine = [c for c in calls if c[0] == name and c[3] == rank]
            if not mine:
                continue
            rows.append((index, rank, len(columns["start_ns"]), len(mine), None, -1, None, (), None, -1, None, None))
            for call in mine:
                columns["start_ns"].append(call[1])
                columns["end_ns"].append(call[2])
                columns["thread_ids"].append(call[4])
                if ids:
                    own, parent = number[rank, id(call)]
                    columns["call_ids"].append(own)
                    columns["parent_ids"].append(-1 if parent is None else parent)
    if not lanes:
        columns["thread_ids"] = []
    arrays = {name: np.array(values, dtype=np.int64) for name, values in columns.items() if values or name[-2:] == "ns"}
    return _core.make_profile(names=names, rows=rows, columns=arrays, nested=nested)


def nest(calls):
    """The calls of one rank in call order, each with its parent's place and the lane's innermost open calls kept as a stack."""
    order = sorted(calls, key=lambda c: (c[1], -c[2]))
    stacks, nodes = {}, []
    for call in order:
        stack = stacks.setdefault(call[4], [])
        while stack and nodes[stack[-1]]["call"][2] <= call[1] and nodes[stack[-1]]["call"][1] < call[1]:
            stack.pop()
        nodes.append({"call": call, "parent": stack[-1] if stack else None, "inside": 0})
        if stack:
            nodes[stack[-1]]["inside"] += call[2] - call[1]
        stack.append(len(nodes) - 1)
    return nodes


def union(intervals):
    total, until = 0, -math.inf
    for start, end in sorted(intervals):
        if end > until:
            total += end - max(start, until)
            until = end
    return total


def model(calls, visible=lambda name: True):
    """{path: {rank: (count, recursive, inclusive, exclusive, covered, durations)}} and {(rank, thread): (count, covered)}."""
    paths, threads = {}, {}
    for rank in {c[3] for c in calls}:
        nodes = nest([c for c in calls if c[3] == rank])
        for node in nodes:
            name, start, end, _, thread = node["call"]
            above = () if node["parent"] is None else nodes[node["parent"]]["path"]
            node["path"] = above
            if not visible(name):
                continue
            inner = bool(above) and above[-1] == name
            node["path"] = above if inner else (*above, name)
            entry = paths.setdefault(node["path"], {}).setdefault(rank, [0, False, 0, 0, [], []])
            entry[0] += 1
            entry[1] |= inner
            entry[2] += 0 if inner else end - start
            entry[3] += end - start - node["inside"]
            entry[4].append((start, end))
            entry[5].append(end - start)
            usage = threads.setdefault((rank, thread), [0, []])
            usage[0] += 1
            usage[1].append((start, end))
    return (
        {path: {r: (*e[:4], union(e[4]), sorted(e[5])) for r, e in ranks.items()} for path, ranks in paths.items()},
        {key: (count, union(intervals)) for key, (count, intervals) in threads.items()},
    )


def answer(profile, **options):
    nested, clamped, nodes, rows, threads, percentiles = _core.path_summary(profile, **options)
    names, paths = profile.names, []
    for name, parent in nodes:
        assert parent < len(paths)
        paths.append((*(paths[parent] if parent >= 0 else ()), names[name]))
    assert len(set(paths)) == len(paths)
    found = {}
    for node, rank, count, recursive, inclusive, exclusive, covered, statistics, awaiting in rows:
        assert awaiting == -1  # none of these profiles has tasks
        found.setdefault(paths[node], {})[rank] = (count, recursive, inclusive, exclusive, covered, statistics)
    return nested, clamped, found, {(r, t): (c, covered) for r, t, c, covered in threads}, dict(zip(paths, percentiles or []))


def test_a_tree_by_hand():
    # main 0-100: solve 10-60 (solve 20-40 (dot 25-30)), dot 70-80; thread 1: dot 5-15
    calls = [("main", 0, 100), ("solve", 10, 60), ("solve", 20, 40), ("dot", 25, 30), ("dot", 70, 80), ("dot", 5, 15, 0, 1)]
    nested, clamped, found, threads, _ = answer(profile_of(calls, lanes=True))
    assert nested and not clamped
    assert {path: ranks[0][:5] for path, ranks in found.items()} == {
        ("main",): (1, False, 100, 40, 100),  # 100 - 50 - 10
        ("main", "solve"): (2, True, 50, 45, 50),  # 50 - 20 + 20 - 5
        ("main", "solve", "dot"): (1, False, 5, 5, 5),
        ("main", "dot"): (1, False, 10, 10, 10),
        ("dot",): (1, False, 10, 10, 10),
    }
    # total minimum maximum first last start_minimum end_maximum gpu_count gpu_total mean m2, over both levels: 50 and 20
    assert found["main", "solve"][0][5] == (70, 20, 50, 50, 50, 10, 60, 0, 0, 35.0, 450.0)
    assert threads == {(0, 0): (5, 100), (0, 1): (1, 10)}


def test_paths_come_in_order_of_their_first_call_and_parents_first():
    calls = [("b", 50, 60), ("a", 0, 10), ("c", 5, 6), ("d", 2, 3), ("c", 55, 56)]
    _, _, nodes, _, _, _ = _core.path_summary(profile_of(calls))
    assert nodes == [(1, -1), (3, 0), (2, 0), (0, -1), (2, 3)]  # a, a>d, a>c, b, b>c


def test_mutual_recursion_keeps_its_levels_apart():
    calls = [("a", 0, 100), ("b", 1, 90), ("a", 2, 80), ("b", 3, 70)]
    _, _, found, _, _ = answer(profile_of(calls))
    assert {path: ranks[0][:4] for path, ranks in found.items()} == {
        ("a",): (1, False, 100, 11),
        ("a", "b"): (1, False, 89, 11),
        ("a", "b", "a"): (1, False, 78, 11),
        ("a", "b", "a", "b"): (1, False, 67, 67),
    }


def test_a_region_left_out_disappears_between_its_callers_and_its_calls():
    calls = [("a", 0, 100), ("x", 10, 60), ("b", 20, 30), ("a", 40, 50), ("b", 70, 90)]
    profile = profile_of(calls)
    _, _, found, _, _ = answer(profile, names=[name != "x" for name in profile.names])
    # a's own time is what it was: 100 - 50 - 20, and the level inside x counts with its own 10
    assert {path: ranks[0][:4] for path, ranks in found.items()} == {
        ("a",): (2, True, 100, 40),
        ("a", "b"): (2, False, 30, 30),
    }


def test_calls_of_a_lane_that_overlap_are_clamped_where_lanes_are_known():
    calls = [("a", 0, 50), ("b", 30, 80), ("c", 85, 90)]
    nested, clamped, found, threads, _ = answer(profile_of(calls, lanes=True, nested=False))
    assert nested and clamped
    assert {path: ranks[0][3] for path, ranks in found.items()} == {("a",): 30, ("b",): 50, ("c",): 5}
    assert threads == {(0, 0): (3, 85)}


@pytest.mark.parametrize("lanes", [False, "unknown"])
def test_without_known_lanes_overlap_leaves_a_flat_list(lanes):
    calls = [("a", 0, 50, 0, -1), ("b", 30, 80, 0, -1), ("a", 10, 20, 0, -1), ("c", 0, 5, 1, -1), ("d", 1, 2, 1, -1)]
    nested, clamped, found, _, _ = answer(profile_of(calls, lanes=bool(lanes), nested=False))
    assert not nested and not clamped
    assert {path: {r: row[:5] for r, row in ranks.items()} for path, ranks in found.items()} == {
        ("a",): {0: (2, False, 60, -1, 50)},
        ("b",): {0: (1, False, 50, -1, 50)},
        ("c",): {1: (1, False, 5, -1, 5)},
        ("d",): {1: (1, False, 1, -1, 1)},
    }


def test_rows_without_calls_give_what_they_store():
    statistics = (60, 10, 30, 30, 10, 1000, 5000, 0, 0, 20.0, 200.0)
    profile = _core.make_profile(
        names=["a", "b"],
        rows=[(0, 0, 0, 3, None, -1, None, (), None, 45, statistics, None), (1, 0, 0, 1, None, -1, None, (), None, -1, statistics, None)],
        columns={}, summary_only=True,
    )  # fmt: skip
    nested, _, found, threads, _ = answer(profile)
    assert not nested and threads == {}
    assert found == {("a",): {0: (3, False, 60, 45, -1, statistics)}, ("b",): {0: (1, False, 60, -1, -1, statistics)}}
    aggregate = _core.make_profile(
        names=["a"], rows=[(0, 2, 0, 0, None, -1, None, (), None, -1, None, (5, 100, 1, 50, 70))], columns={}, aggregate=True
    )
    assert answer(aggregate)[2] == {("a",): {2: (5, False, 100, 70, -1, (100, 1, 50, 0, 0, 0, 0, 0, 0, 0.0, 0.0))}}


def test_device_time_that_was_not_measured_does_not_count():
    profile = _core.make_profile(
        names=["k"], rows=[(0, 0, 0, 3, None, -1, None, (), None, -1, None, None)],
        columns={"start_ns": np.array([0, 10, 20]), "end_ns": np.array([5, 15, 25]), "gpu_ns": np.array([7, -1, 4])},
    )  # fmt: skip
    assert answer(profile)[2]["k",][0][5][7:9] == (2, 11)


def test_awaiting_is_that_of_the_outermost_calls():
    # r 0-100 (60 awaiting) > r 10-90 (50 of these 60), then r 200-210 (5 awaiting); without tasks it is not known
    columns = {
        "start_ns": np.array([0, 10, 200]), "end_ns": np.array([100, 90, 210]), "call_ids": np.array([0, 1, 2]),
        "parent_ids": np.array([-1, 0, -1]), "await_ns": np.array([60, 50, 5]),
    }  # fmt: skip
    row = (0, 0, 0, 3, None, -1, None, (), None, -1, None, None)
    rows = _core.path_summary(_core.make_profile(names=["r"], rows=[row], columns=columns))[3]
    assert [row[8] for row in rows] == [65]
    del columns["await_ns"]
    assert [row[8] for row in _core.path_summary(_core.make_profile(names=["r"], rows=[row], columns=columns))[3]] == [-1]


def test_options_that_make_no_sense_are_refused():
    profile = profile_of([("a", 0, 1)])
    for options in ({"names": []}, {"percentiles": [101]}, {"percentiles": [float("nan")]}, {"percentiles": [-1]}):
        with pytest.raises(ValueError):
            _core.path_summary(profile, **options)
    for options in ({"names": 3}, {"ranks": ["x"]}, {"percentiles": "x"}):
        with pytest.raises(TypeError):
            _core.path_summary(profile, **options)
    with pytest.raises(TypeError):
        _core.path_summary(object())
    assert _core.path_summary(profile, ranks=[-3, 2**80, 7])[2] == []
    assert _core.path_summary(_core.make_profile(names=[], rows=[], columns={})) == (True, False, [], [], [], None)


@st.composite
def forests(draw):
    """Properly nested calls of a few regions on a few ranks and threads; children may touch and be of no length."""
    calls = []

    def grow(rank, thread, low, high, depth):
        at = low
        for _ in range(draw(st.integers(0, 3 if depth < 4 else 0))):
            if at >= high:
                break
            start = draw(st.integers(at, high))
            end = draw(st.integers(start, high))
            calls.append((draw(st.sampled_from("abcd")), start, end, rank, thread))
            if end > start:
                grow(rank, thread, start, end, depth + 1)
            at = max(end, start + 1)

    for rank in range(draw(st.integers(1, 2))):
        for thread in range(draw(st.integers(1, 3))):
            grow(rank, thread, 0, 60, 0)
    return calls


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(forests(), st.sets(st.sampled_from("abcd")), st.booleans())
def test_sums_equal_those_of_a_tree_of_objects(calls, hidden, ids):
    # identical intervals nest in the order of rows; the model sorts calls, so keep starts of one lane apart from equals
    seen = set()
    calls = [c for c in calls if (c[1], c[2], c[3], c[4]) not in seen and not seen.add((c[1], c[2], c[3], c[4]))]
    profile = profile_of(calls, lanes=True, ids=ids)
    ranks = [25.0, 50.0, 99.0]
    nested, clamped, found, threads, percentiles = answer(
        profile, names=[name not in hidden for name in profile.names], percentiles=ranks
    )
    expected, expected_threads = model(calls, lambda name: name not in hidden)
    assert nested and not clamped and threads == expected_threads
    assert set(found) == set(expected)
    for path, by_rank in expected.items():
        pooled = []
        for rank, (count, recursive, inclusive, exclusive, covered, durations) in by_rank.items():
            row = found[path][rank]
            assert row[:5] == (count, recursive, inclusive, exclusive, covered)
            assert row[5][:3] == (sum(durations), min(durations), max(durations))
            assert row[5][9] == pytest.approx(np.mean(durations))
            assert row[5][10] == pytest.approx(np.var(durations) * count, abs=1e-9)
            pooled += durations
        assert percentiles[path] == pytest.approx(np.percentile(pooled, ranks), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 2**40)), max_size=60), max_size=4),
    st.lists(st.floats(0, 100), max_size=5),
)
def test_percentiles_are_those_of_numpy(chunks, ranks):
    pairs = [(np.array([s for s, _ in c], dtype=np.int64), np.array([s + d for s, d in c], dtype=np.int64)) for c in chunks]
    durations = [d for chunk in chunks for _, d in chunk]
    expected = np.percentile(durations, ranks) if durations else [0.0] * len(ranks)
    assert _core.percentiles(pairs, ranks) == pytest.approx(list(expected), rel=1e-9)


def test_percentiles_of_many_equal_and_ordered_values_stay_linear():
    for values in (np.zeros(400_000), np.arange(400_000), np.arange(400_000)[::-1], np.arange(400_000) % 3):
        ends = values.astype(np.int64)
        assert _core.percentiles([(np.zeros(len(ends), np.int64), ends)], [50, 95]) == list(np.percentile(ends, [50, 95]))


def test_percentiles_refuse_what_is_no_time():
    with pytest.raises(TypeError, match="int64"):
        _core.percentiles([(np.zeros(3), np.zeros(3))], [50])
    with pytest.raises(ValueError, match="as many"):
        _core.percentiles([(np.zeros(3, np.int64), np.zeros(2, np.int64))], [50])
    assert _core.percentiles([], [50]) == [0.0]
