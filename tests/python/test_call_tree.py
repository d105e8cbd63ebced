"""The call tree: against a slow, obvious model, and rule by rule."""

import copy
import pickle
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export_helpers import int64
from scope_profiler import _core
from scope_profiler.call_stack import (
    CallArrays,
    NestingError,
    build_call_arrays,
    build_call_stack,
    build_lane_arrays,
    call_stack_children,
    call_stack_roots,
    exclusive_totals_ns,
    split_by_lane,
)


class OneRegion:
    """What build_call_arrays needs of an MPIRegion."""

    def __init__(self, name, start, end, threads=None, tasks=None, rank=0, color=None, ids=None):
        self.name, self.rank, self.color = name, rank, color
        self.calls = SimpleNamespace(
            start_times_ns=int64(start), end_times_ns=int64(end), thread_ids=int64(threads), task_ids=int64(tasks),
            call_ids=int64(ids),
            source_file=f"{name}.py", source_lineno=7)

    def __contains__(self, rank):
        return rank == self.rank

    def __getitem__(self, rank):
        return self.calls


# -- the model -----------------------------------------------------------------------------------------------------------


def lane_of(thread, task):
    if thread is None:
        return -1
    return task if task is not None and task >= 0 else -2 - thread


class Model:
    """Everything by definition, quadratic: the parent is the last call before, in order, that encloses this one."""

    def __init__(self, regions, clamp=False):
        calls = []
        for r, region in enumerate(regions):
            start, end, threads, tasks = region
            for c in range(len(start)):
                lane = lane_of(threads[c] if threads else None, tasks[c] if threads and tasks else None)
                calls.append((start[c], -end[c], len(calls), r, c, lane))
        calls.sort()
        self.region = [call[3] for call in calls]
        self.call = [call[4] for call in calls]
        self.start = [call[0] for call in calls]
        self.end = [-call[1] for call in calls]
        self.lane = [call[5] for call in calls]
        self.fails = not clamp and self.overlapping()
        if clamp:
            self.end = [max(s, e) for s, e in zip(self.start, self.end)]
        if self.fails:
            return
        count = range(len(calls))
        self.parent = [max((j for j in range(i) if self.encloses(j, i)), default=-1) for i in count]
        self.depth = []
        for parent in self.parent:
            self.depth.append(0 if parent < 0 else self.depth[parent] + 1)
        self.exclusive = self.owned() if clamp else [
            self.end[i] - self.start[i] - sum(self.end[j] - self.start[j] for j in count if self.parent[j] == i)
            for i in count]

    def overlapping(self):
        for i, (s, e) in enumerate(zip(self.start, self.end)):
            if e < s:
                return True
            if any(self.lane[j] == self.lane[i] and self.start[j] <= s < self.end[j] < e for j in range(i)):
                return True
        return False

    def encloses(self, outer, inner):
        if self.lane[outer] != self.lane[inner]:
            return False
        inside = self.start[outer] <= self.start[inner] and self.end[inner] <= self.end[outer]
        return inside and (self.start[inner] < self.end[outer] or self.start[inner] == self.start[outer])

    def owned(self):
        """Every instant of a lane belongs to the open call that started last."""
        owned = [0] * len(self.start)
        instants = sorted(set(self.start) | set(self.end))
        for a, b in zip(instants, instants[1:]):
            for lane in set(self.lane):
                open_calls = [i for i in range(len(owned)) if self.lane[i] == lane and self.start[i] <= a and b <= self.end[i]]
                if open_calls:
                    owned[open_calls[-1]] += b - a
        return owned


def tree(regions, clamp=False):
    names = [chr(97 + i) for i in range(len(regions))]
    result = _core.call_tree([tuple(map(int64, region)) for region in regions], names, clamp)
    return [None if view is None else view.tolist() for view in result]


def check(regions, clamp=False):
    model = Model(regions, clamp)
    if model.fails:
        with pytest.raises(NestingError):
            tree(regions, clamp)
        return
    region, call, start, end, depth, parent, exclusive, lane = tree(regions, clamp)
    assert (region, call) == (model.region, model.call)
    assert (depth, parent, exclusive) == (model.depth, model.parent, model.exclusive)
    assert lane == (model.lane if any(r[2] is not None and len(r[0]) for r in regions) else None)
    assert start == model.start
    if not clamp:
        assert end == model.end


# -- properties ----------------------------------------------------------------------------------------------------------

FAR = [-(2**63), -(2**40), 2**40, 2**63 - 1]


@st.composite
def arbitrary_regions(draw):
    """Short intervals close together: ties, touching, zero length and overlaps are all common."""
    regions = []
    tracked = draw(st.sampled_from([0, 1, 2]))
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(0, 7))
        start = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
        length = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
        end = [s + n for s, n in zip(start, length)]
        threads = tasks = None
        if tracked and draw(st.booleans()):
            number = st.integers(-1, 2) if tracked == 1 else st.sampled_from([-1, 0, 1, 2**40, 2**62])
            threads = draw(st.lists(number, min_size=size, max_size=size))
            if draw(st.booleans()):
                tasks = draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size))
        regions.append((start, end, threads, tasks))
    return regions


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(arbitrary_regions())
def test_strict_trees_are_the_models_and_fail_exactly_when_it_does(regions):
    check(regions)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(arbitrary_regions(), st.randoms(use_true_random=False))
def test_clamped_trees_never_fail_and_give_every_instant_to_one_call(regions, rng):
    for _, end, _, _ in regions:
        for i in range(len(end)):
            if rng.random() < 0.1:
                end[i] -= 4  # some end before they start
    check(regions, clamp=True)


def random_forest(rng, calls, lanes, names):
    """Properly nested calls on each lane, thrown together in random order."""
    rows = []
    for lane in range(lanes):
        clock, open_calls = rng.randrange(50), []
        for _ in range(calls // lanes):
            clock += rng.choice((0, 0, 1, 2, 5))
            while open_calls and rng.random() < 0.45:
                rows.append((*open_calls.pop(), clock, lane))
                clock += rng.choice((0, 1, 3))
            open_calls.append((rng.randrange(names), clock))
        while open_calls:
            clock += rng.choice((0, 1))
            rows.append((*open_calls.pop(), clock, lane))
    rng.shuffle(rows)
    return rows


def as_regions(rows, names, sparse=1):
    regions = []
    for name in range(names):
        own = [row for row in rows if row[0] == name]
        regions.append(([r[1] for r in own], [r[2] for r in own], [0] * len(own), [r[3] * sparse for r in own]))
    return regions


@pytest.mark.parametrize("seed", range(30))
def test_random_forests_nest_as_the_model_says(seed):
    rng = random.Random(seed)
    rows = random_forest(rng, rng.randrange(1, 160), rng.choice((1, 2, 5, 40)), 3)
    check(as_regions(rows, 3, sparse=rng.choice((1, 2**40))))


def expected_order(starts, ends):
    return np.lexsort((np.arange(len(starts)), -ends, starts))


@pytest.mark.parametrize("spread", [1, 2**12, 2**30, 2**60])
@pytest.mark.parametrize("count", [2, 25, 4095, 30_000])
def test_order_is_by_start_then_end_then_input_over_any_range(count, spread):
    rng = np.random.default_rng(count + spread % 97)
    starts = rng.integers(0, 50, count) * spread + rng.integers(0, 3, count) + 7
    ends = starts + rng.integers(0, 4, count)
    call = np.array(_core.call_tree([(starts, ends, None, None)], ["x"], True)[1])
    assert (call == expected_order(starts, ends)).all()


def test_order_over_the_whole_range_of_int64():
    low, high = -(2**63), 2**63 - 1
    starts = np.array([high, 0, low, 5, low, 0] * 20)
    ends = np.array([high, 9, low, 5, high, 1] * 20)
    call = np.array(_core.call_tree([(starts, ends, None, None)], ["x"], True)[1])
    assert (call == np.array(sorted(range(len(starts)), key=lambda i: (int(starts[i]), -int(ends[i]), i)))).all()


def test_many_calls_that_start_together_nest_by_length():
    lengths = np.random.default_rng(1).permutation(50_000)
    starts = np.full(50_000, 10**15)
    result = _core.call_tree([(starts, starts + lengths, None, None)], ["x"])
    assert (np.array(result[1]) == np.argsort(-lengths)).all()
    assert result[4].tolist() == list(range(50_000))  # each inside the one before
    # all but the innermost lose their only child's length: one ns is left to each
    assert result[6].tolist() == [1] * 49_999 + [0]


@pytest.mark.parametrize("lanes", [1, 3, 1000, 100_000])
@pytest.mark.parametrize("sparse", [1, -(2**37)])
def test_lanes_are_stacks_of_their_own_however_many_there_are(lanes, sparse):
    # every lane: outer [0, 100 + lane], inside it [1, 2] and [3, 4]
    lane = np.arange(lanes) * sparse
    zero = np.zeros(lanes, np.int64)
    outer = (zero, zero + 100 + np.arange(lanes), lane, None)
    inner = (np.repeat([1, 3], lanes), np.repeat([2, 4], lanes), np.tile(lane, 2), None)
    region, call, _, _, depth, parent, exclusive, lane_column = map(np.array, _core.call_tree([outer, inner], ["o", "i"]))
    assert (region == np.repeat([0, 1], [lanes, 2 * lanes])).all()
    assert (depth == region).all()
    assert (lane_column[parent[lanes:]] == lane_column[lanes:]).all() and (parent[:lanes] == -1).all()
    assert (exclusive[:lanes] == 98 + call[:lanes]).all() and (exclusive[lanes:] == 1).all()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(arbitrary_regions(), st.randoms(use_true_random=False), st.integers(-5, 10**12))
def test_ids_right_or_wrong_change_nothing(regions, rng, first):
    model = Model(regions, clamp=True)
    right = [[None] * len(region[0]) for region in regions]
    for position, (r, c) in enumerate(zip(model.region, model.call)):
        right[r][c] = first + position
    wrong = [rng.choice(sum(right, [])) for _ in model.call]
    shuffled = rng.sample(sum(right, []), len(model.call))
    for numbers in (sum(right, []), wrong, shuffled):
        numbers = iter(numbers)
        columns = [tuple(map(int64, (*region, [next(numbers) for _ in region[0]]))) for region in regions]
        result = _core.call_tree(columns, [""] * len(regions), True)
        assert result[1].tolist() == model.call and result[5].tolist() == model.parent
        assert result[6].tolist() == model.exclusive


# -- rules, one by one ---------------------------------------------------------------------------------------------------


def nest(*intervals):
    """Parents of intervals given in order, as positions in call order."""
    return tree([([a for a, _ in intervals], [b for _, b in intervals], None, None)])[5]


def test_touching_calls_are_siblings():
    assert nest((0, 9), (1, 4), (4, 6)) == [-1, 0, 0]


def test_a_child_may_end_with_its_parent():
    assert nest((0, 9), (3, 9)) == [-1, 0]


def test_zero_length_at_the_start_is_a_child():
    assert nest((5, 5), (5, 9)) == [-1, 0]
    assert tree([([5, 5], [5, 9], None, None)])[1] == [1, 0]


def test_zero_length_at_the_end_is_a_sibling():
    assert nest((0, 5), (5, 5)) == [-1, -1]


def test_zero_length_where_the_next_starts_belongs_to_the_next():
    # order: [0, 5], [5, 9], [5, 5]
    assert nest((0, 5), (5, 5), (5, 9)) == [-1, -1, 1]


def test_zero_length_calls_at_one_instant_nest():
    assert nest((5, 5), (5, 5), (5, 5)) == [-1, 0, 1]


def test_identical_intervals_nest_by_region_then_by_call():
    result = tree([([3, 3], [8, 8], None, None), ([3], [8], None, None)])
    assert result[0] == [0, 0, 1] and result[1] == [0, 1, 0] and result[5] == [-1, 0, 1]
    assert result[6] == [0, 0, 5]


def test_the_nesting_error_names_both_calls_and_their_intervals():
    with pytest.raises(NestingError) as caught:
        build_call_arrays([OneRegion("load", [0, 100], [10, 120]), OneRegion("solve", [105], [130])], 0)
    message = str(caught.value)
    assert "call 0 of 'solve' [105, 130] ns" in message and "call 1 of 'load' [100, 120] ns" in message
    assert isinstance(caught.value, ValueError)


def test_the_nesting_error_says_what_would_have_kept_the_calls_apart():
    lanes = [1, 1], [-1, -1]
    for threads, tasks, hint in (
        (None, None, "; threads and tasks need track_threads or track_async to be told apart"),
        (lanes[0], None, "; tasks need track_async to be told apart, and a generator that is suspended inside of a region does this"),
        (lanes[0], lanes[1], "; a generator that is suspended inside of a region does this"),
    ):
        with pytest.raises(NestingError) as caught:
            _core.call_tree([(int64([0, 5]), int64([10, 15]), int64(threads), int64(tasks))], ["r"])
        assert str(caught.value).endswith("on the same lane, but ends after it" + hint)


def test_lanes_that_overlap_are_named_and_the_others_nest():
    #   lane -2 (thread 0): a[0,10] b[5,15]      c[20,30] d[25,35]: two pairs, the first is told
    #   lane -3 (thread 1): a[0,10] b[2,3]       nests
    #   lane 4 (task 4):    a[0,100] b[10,20] c[15,25]  siblings of one call
    regions = [
        ([0, 0, 0], [10, 10, 100], [0, 1, 0], [-1, -1, 4]),
        ([5, 2, 10], [15, 3, 20], [0, 1, 0], [-1, -1, 4]),
        ([20, 15], [30, 25], [0, 0], [-1, 4]),
        ([25], [35], [0], [-1]),
    ]
    found = _core.call_overlaps([tuple(map(int64, region)) for region in regions], list("abcd"))
    assert found == [
        (-2, "call 0 of 'b' [5, 15] ns starts inside call 0 of 'a' [0, 10] ns on the same lane, but ends after it"),
        (4, "call 1 of 'c' [15, 25] ns starts inside call 2 of 'b' [10, 20] ns on the same lane, but ends after it"),
    ]
    # Without the second and the third that is a run that nests; and one call that ends before it starts is told as such.
    assert _core.call_overlaps([(int64([0, 2]), int64([10, 3]), None, None)], ["r"]) == []
    assert _core.call_overlaps([(int64([7]), int64([3]), None, None)], ["r"]) == [(-1, "call 0 of 'r' [7, 3] ns ends before it starts")]


def test_overlaps_are_found_on_the_lanes_that_a_model_finds():
    """Two calls of a lane overlap if the one that begins in the other ends behind it."""
    dice = random.Random(5)
    for _ in range(300):
        regions, lanes = [], {}
        for name in "abc":
            starts, ends, threads = [], [], []
            for _ in range(dice.randrange(4)):
                start = dice.randrange(12)
                starts.append(start)
                ends.append(start + dice.randrange(6))
                threads.append(dice.randrange(3))
                lanes.setdefault(-2 - threads[-1], []).append((start, ends[-1]))
            regions.append(OneRegion(name, starts, ends, threads))
        expected = {
            lane for lane, calls in lanes.items() if any(a[0] < b[0] < a[1] < b[1] for a in calls for b in calls)
        }
        calls, overlaps = build_lane_arrays(regions, 0)
        assert {lane for lane, _ in overlaps} == expected
        clamped = tree([(r[0].start_times_ns, r[0].end_times_ns, r[0].thread_ids, None) for r in regions], clamp=True)
        assert [calls.parent.tolist(), calls.exclusive_ns.tolist()] == [clamped[5], clamped[6]]


def test_a_call_that_ends_before_it_starts_is_named():
    with pytest.raises(NestingError, match=r"call 1 of 'x' \[7, 3\] ns ends before it starts"):
        build_call_arrays([OneRegion("x", [0, 7], [1, 3])], 0)


def test_long_and_strange_names_fit_into_the_message():
    with pytest.raises(NestingError) as caught:
        build_call_arrays([OneRegion("é" * 5000, [0], [10]), OneRegion("\ud800\n", [5], [12])], 0)
    assert "[0, 10]" in str(caught.value) and "[5, 12]" in str(caught.value) and "\n" not in str(caught.value)


def test_clamped_overlaps_are_siblings_and_share_their_time():
    # outer 0..20; a 2..8 and b 6..12 overlap: 6..8 is b's
    _, _, _, _, depth, parent, exclusive, _ = tree([([0, 2, 6], [20, 8, 12], None, None)], clamp=True)
    assert (parent, depth, exclusive) == ([-1, 0, 0], [0, 1, 1], [10, 4, 6])


def test_columns_must_fit_and_be_int64():
    column = np.array([1, 2])
    with pytest.raises(ValueError, match="'solve' has 2 start values, but 1 end values"):
        _core.call_tree([(column, column[:1], None, None)], ["solve"])
    with pytest.raises(TypeError):
        _core.call_tree([(column.astype(float), column, None, None)], ["solve"])
    with pytest.raises(ValueError):
        _core.call_tree([(column, column, None, None)], [])
    with pytest.raises(TypeError):
        _core.call_tree([(column, column)], ["x"])


# -- the public functions ------------------------------------------------------------------------------------------------


def example():
    """Thread 0: main [100, 200] with step [110, 150] inside; thread 1: step [120, 160]; task 4: step [105, 190]."""
    return [
        OneRegion("main", [100], [200], [0], [-1], color="red"),
        OneRegion("step", [110, 120, 105], [150, 160, 190], [0, 1, 0], [-1, -1, 4]),
        OneRegion("elsewhere", [0], [1], rank=3),
    ]


def test_call_arrays_have_names_sources_and_columns():
    calls = build_call_arrays(example(), 0)
    assert calls.names == ["main", "step"] and calls.source_files == ["main.py", "step.py"]
    assert calls.source_lines == [7, 7]
    assert len(calls) == 4 and all(getattr(calls, f).dtype == np.int64 for f in CallArrays._fields[3:])
    assert calls.region_index.tolist() == [0, 1, 1, 1] and calls.call_index.tolist() == [0, 2, 0, 1]
    assert calls.start_ns.tolist() == [100, 105, 110, 120] and calls.end_ns.tolist() == [200, 190, 150, 160]
    assert calls.lane.tolist() == [-2, 4, -2, -3]
    assert calls.parent.tolist() == [-1, -1, 0, -1] and calls.depth.tolist() == [0, 0, 1, 0]
    assert calls.exclusive_ns.tolist() == [60, 85, 40, 40]
    calls.depth[0] = 5  # the arrays are the caller's


def test_call_arrays_replace_copy_and_pickle():
    calls = build_call_arrays(example(), 0)
    assert calls._replace(names=["x"]).names == ["x"]
    assert len(copy.copy(calls)) == len(pickle.loads(pickle.dumps(calls))) == 4
    assert isinstance(copy.copy(calls), CallArrays)


def test_no_lane_column_without_threads_and_nothing_without_calls():
    calls = build_call_arrays([OneRegion("a", [1], [2])], 0)
    assert calls.lane.shape == (0,) and len(calls) == 1
    for nothing in (build_call_arrays([], 0), build_call_arrays([OneRegion("a", [], [], [], [])], 0)):
        assert len(nothing) == 0 and not nothing and nothing.parent.dtype == np.int64
    assert len(build_call_arrays([OneRegion("a", [1], [2])], 5)) == 0


def test_regions_without_threads_are_a_lane_of_their_own_beside_tracked_ones():
    calls = build_call_arrays([OneRegion("py", [0], [10], [0]), OneRegion("native", [2], [12])], 0)
    assert calls.lane.tolist() == [-2, -1] and calls.parent.tolist() == [-1, -1]


def test_the_stack_of_dicts():
    stack = build_call_stack(example(), 0, origin=100 / 1e9)
    assert [call["call_path"] for call in stack] == ["main", "step", "main > step", "step"]
    first, inner = stack[0], stack[2]
    assert first == {
        "call_id": 0, "name": "main", "call_index": 0, "start": 0.0, "end": 1e-07, "duration": 1e-07,
        "inclusive_duration": 1e-07, "exclusive_duration": 6e-08, "depth": 0, "parent": None, "call_path": "main",
        "source_file": "main.py", "source_lineno": 7, "lane": -2, "color": "red"}
    assert (inner["start"], inner["end"], inner["parent"], inner["depth"]) == (1e-08, 5e-08, 0, 1)
    assert call_stack_roots(stack) == [0, 1, 3]
    assert call_stack_children(stack) == [[2], [], [], []]


def test_times_stay_exact_far_from_zero():
    uptime = 10**16 + 1  # 115 days: a float of seconds no longer resolves a ns
    stack = build_call_stack([OneRegion("a", [uptime, uptime + 3], [uptime + 1, uptime + 5])], 0, origin=uptime / 1e9)
    assert [(call["start"], call["end"], call["duration"]) for call in stack] == [(0.0, 1e-09, 1e-09), (3e-09, 5e-09, 2e-09)]


def test_split_by_lane():
    lanes = split_by_lane(build_call_arrays(example(), 0))
    assert [lane for lane, _ in lanes] == [-3, -2, 4]
    main = lanes[1][1]
    assert main.names == ["main", "step"] and main.start_ns.tolist() == [100, 110] and main.parent.tolist() == [-1, 0]
    assert main.lane.tolist() == [-2, -2] and main.exclusive_ns.tolist() == [60, 40]
    assert split_by_lane(build_call_arrays([], 0)) == []
    [(key, whole)] = split_by_lane(build_call_arrays([OneRegion("a", [1], [2])], 0))
    assert key == -1 and len(whole) == 1
    [(key, whole)] = split_by_lane(build_call_arrays([OneRegion("a", [1], [2], [3])], 0))
    assert key == -5


@settings(max_examples=200, deadline=None)
@given(arbitrary_regions())
def test_a_split_lane_is_the_tree_of_that_lane_alone(regions):
    wrapped = [OneRegion(chr(97 + i), *region) for i, region in enumerate(regions)]
    try:
        calls = build_call_arrays(wrapped, 0)
    except NestingError:
        return
    parts = split_by_lane(calls)
    assert sum(len(part) for _, part in parts) == len(calls)
    for lane, part in parts:
        alone = Model([
            tuple(None if column is None else [v for v, l in zip(column, lanes) if l == lane] for column in region)
            for region, lanes in (
                (region, [lane_of(region[2][c] if region[2] else None, region[3][c] if region[2] and region[3] else None)
                          for c in range(len(region[0]))])
                for region in regions)])
        assert part.parent.tolist() == alone.parent and part.exclusive_ns.tolist() == alone.exclusive


def test_exclusive_totals_of_raw_arrays():
    column = lambda *values: np.array(values)
    regions = {"a": (column(0, 20), column(10, 30)), "b": (column(2), column(5)), "empty": (column(), column())}
    assert exclusive_totals_ns(regions) == {"a": 17, "b": 3, "empty": 0}
    regions = {"a": (column(0), column(10), None, None, None, column(0)), "b": (column(2), column(5), None, None, None, column(1))}
    assert exclusive_totals_ns(regions) == {"a": 10, "b": 3}
