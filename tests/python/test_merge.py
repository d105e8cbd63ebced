"""Several profiles as one: parts of a run, and different runs side by side."""

import array
import json

import numpy as np
import pytest

from export_helpers import region, results_of, thread
from scope_profiler import _core, load, merge_results, read_h5_summary, write_profile

THREADS = "ranks index ident native_id daemon start_ns end_ns cpu_ns".split()
TASKS = "ranks index thread_index created_ns done_ns steps running_ns suspended_ns".split()


def int64(values):
    return np.array(values, dtype=np.int64)


def table(names, rows, texts, words):
    columns = {name: int64([row[i] for row in rows]) for i, name in enumerate(names)}
    return columns | {key: [words] * len(rows) for key in texts}


def profile(rows, threads=None, tasks=None, **more):
    """rows: (name, rank, [(start, end, **columns)], {row attributes}); threads and tasks: rows of their tables."""
    names = list(dict.fromkeys(row[0] for row in rows))
    specs, columns = [], {}
    total = sum(len(row[2]) for row in rows)
    first = 0
    for name, rank, calls, *rest in rows:
        attributes = rest[0] if rest else {}
        specs.append((names.index(name), rank, first, len(calls), attributes.get("file"), attributes.get("line", -1),
                      attributes.get("text"), attributes.get("tags", ()), attributes.get("metadata"),
                      attributes.get("exclusive", -1), attributes.get("statistics"), attributes.get("aggregate"),
                      attributes.get("percentiles")))
        for i, call in enumerate(calls):
            for key, value in zip(more.get("keys", ("start_ns", "end_ns")), call):
                columns.setdefault(key, np.full(total, -7))[first + i] = value
        first += len(calls)
    return _core.make_profile(
        names=names, rows=specs, columns={key: int64(column) for key, column in columns.items()},
        threads=None if threads is None else table(THREADS, threads, ["name"], more.get("word", "T")),
        tasks=None if tasks is None else table(TASKS, tasks, ["kind", "name", "coro_name"], more.get("word", "T")),
        metadata=more.get("metadata"), aux=more.get("aux"), **more.get("flags", {}))


def column(merged, name):
    view = merged.column(name)
    return None if view is None else view.tolist()


def row_names(merged):
    return [(merged.names[row[0]], row[1], row[3]) for row in merged.rows]


# -- parts of one run ----------------------------------------------------------------------------------------------------


def test_parts_of_a_run_meet_by_region_and_rank():
    first = profile([("a", 0, [(0, 9)]), ("b", 0, [(1, 2)]), ("a", 1, [(3, 4)])])
    second = profile([("c", 0, [(20, 30)]), ("a", 0, [(10, 40), (21, 22)])])
    merged = _core.merge_profiles([first, second])
    assert row_names(merged) == [("a", 0, 3), ("b", 0, 1), ("c", 0, 1), ("a", 1, 1)]
    assert column(merged, "start_ns") == [0, 10, 21, 1, 20, 3]
    assert column(merged, "end_ns") == [9, 40, 22, 2, 30, 4]


def test_the_tree_spans_the_parts():
    # b was closed and collected before a, which encloses it
    merged = _core.merge_profiles([profile([("b", 0, [(5, 7)], {"exclusive": 2})]), profile([("a", 0, [(0, 10)], {"exclusive": 10})])])
    assert column(merged, "call_ids") == [1, 0] and column(merged, "parent_ids") == [0, -1]
    assert [row[9] for row in merged.rows] == [2, 8] and merged.nested


def test_a_part_that_overlaps_leaves_the_whole_without_a_tree():
    merged = _core.merge_profiles([profile([("a", 0, [(0, 10)])]), profile([("a", 0, [(5, 15)])])])
    assert not merged.nested and column(merged, "call_ids") is None and merged.rows[0][9] == -1


def test_columns_that_one_part_lacks_get_their_default():
    keys = ("start_ns", "end_ns", "thread_ids", "task_ids", "await_ns")
    merged = _core.merge_profiles([
        profile([("a", 0, [(0, 9, 3, 4, 5)])], keys=keys), profile([("a", 0, [(20, 30)])])])
    assert column(merged, "thread_ids") == [3, -1] and column(merged, "task_ids") == [4, -1]
    assert column(merged, "await_ns") == [5, 0]


def test_event_metadata_is_joined_call_by_call():
    parts = [
        profile([("a", 0, [(0, 1)], {"metadata": '[{"k": "]["}]'}), ("b", 0, [(2, 3)])]),
        profile([("a", 0, [(4, 5), (6, 7)])]),
        profile([("a", 0, [(8, 9)], {"metadata": ' [ {} ] '})]),
    ]
    merged = _core.merge_profiles(parts)
    assert json.loads(merged.rows[0][8]) == [{"k": "]["}, {}, {}, {}]
    assert merged.rows[1][8] is None


def test_what_describes_the_run_comes_from_the_last_part_and_regions_from_the_first():
    first = profile([("a", 0, [(0, 1)], {"tags": ("t",)})], threads=[(0, 0, 1, 2, 0, 3, -1, 5)], word="old",
                    metadata={"finalize_time_ns": 1, "gone": 1}, aux={0: {"attributes": {"n": 1}, "datasets": {}, "groups": {}}})
    second = profile([("a", 0, [(2, 3)], {"tags": ("u",), "file": "f.py", "line": 4, "text": "with a:"})],
                     threads=[(0, 0, 1, 2, 0, 3, 9, 6), (0, 1, 8, 9, 1, 3, 4, 1)], word="new",
                     metadata={"finalize_time_ns": 2}, aux={0: {"attributes": {"n": 2}, "datasets": {}, "groups": {}}})
    merged = _core.merge_profiles([first, second])
    assert merged.metadata == {"finalize_time_ns": 2} and merged.aux[0]["attributes"] == {"n": 2}
    assert merged.threads["name"] == ["new", "new"] and merged.threads["end_ns"].tolist() == [9, 4]
    assert merged.rows[0][4:8] == ("f.py", 4, "with a:", ("t",))


def test_statistics_and_aggregates_of_a_row_are_those_of_all_its_calls():
    first = profile([("a", 0, [(0, 10)], {"statistics": (10, 10, 10, 10, 10, 0, 10, 0, 0, 10.0, 0.0)})])
    second = profile([("a", 0, [(20, 50)], {"statistics": (30, 30, 30, 30, 30, 20, 50, 0, 0, 30.0, 0.0)})])
    # mean 20, deviations -10 and 10
    assert _core.merge_profiles([first, second]).rows[0][10] == (40, 10, 30, 10, 30, 0, 50, 0, 0, 20.0, 200.0)
    aggregates = [profile([("a", 0, [], {"aggregate": values})], flags={"aggregate": True})
                  for values in ((2, 30, 10, 20, 25), (0, 0, 0, 0, 0), (1, 5, 5, 5, 5))]
    merged = _core.merge_profiles(aggregates)
    assert merged.aggregate and merged.rows[0][11] == (3, 35, 5, 20, 30)


def test_nothing_to_merge_is_an_error():
    with pytest.raises(ValueError):
        _core.merge_profiles([])
    with pytest.raises(TypeError):
        _core.union_profiles([3])


# -- different runs ------------------------------------------------------------------------------------------------------


def full(name, rank, shift, word, start_time):
    """A tracked run with every kind of content; thread 0 encloses, task 0 runs on thread 1."""
    keys = ("start_ns", "end_ns", "call_ids", "parent_ids", "thread_ids", "task_ids", "await_ns", "gpu_ns")
    return profile(
        [(name, rank, [(shift, shift + 9, 0, -1, 0, -1, 0, 3), (shift + 1, shift + 3, 1, 0, 0, -1, 0, 3),
                       (shift + 2, shift + 5, 2, -1, 1, 0, 2, 4)],
          {"exclusive": 12, "statistics": (14, 2, 9, 9, 3, shift, shift + 9, 3, 10, 14 / 3, 28.0),
           "percentiles": (3.0, 8.4, 8.9), "tags": (word,), "file": f"{word}.py", "line": 3, "text": word,
           "metadata": '[{"n": 1}, {}, {}]'})],
        threads=[(rank, 0, 100, 200, 0, 5, -1, 7), (rank, 1, 101, 201, 1, 6, 8, 9)],
        tasks=[(rank, 0, 1, 6, -1, 2, 3, 4)], word=word, keys=keys,
        metadata={"start_time_ns": start_time, "mpi_size": rank + 1, f"only_{word}": word},
        aux={rank: {"attributes": {}, "datasets": {}, "groups": {"line_profile": {"attributes": {}, "datasets": {}, "groups": {
            "0": {"attributes": {"region": name}, "datasets": {"hits": ((2,), array.array("q", [1, 2]))}, "groups": {}}}}}}})


def test_sets_of_different_ranks_are_kept_whole():
    one, two = full("a", 0, 1000, "x", 50), full("b", 1, 2000, "y", 70)
    both = _core.union_profiles([one, two])
    assert row_names(both) == [("a", 0, 3), ("b", 1, 3)]
    for name in "start_ns end_ns call_ids parent_ids thread_ids task_ids await_ns gpu_ns".split():
        assert column(both, name) == column(one, name) + column(two, name)
    assert both.rows[0][4:] == one.rows[0][4:]
    assert both.rows[1][4:] == two.rows[0][4:]
    assert both.metadata == {"start_time_ns": 50, "mpi_size": 2, "only_x": "x", "only_y": "y"}
    assert both.aux == one.aux | two.aux
    assert both.threads["ranks"].tolist() == [0, 0, 1, 1] and both.threads["index"].tolist() == [0, 1, 0, 1]
    # the second run started 20 ns after the first, whose start times now count from
    assert both.threads["start_ns"].tolist() == [5, 6, 25, 26] and both.threads["end_ns"].tolist() == [-1, 8, -1, 28]
    assert both.tasks["created_ns"].tolist() == [6, 26] and both.tasks["done_ns"].tolist() == [-1, -1]
    assert both.threads["cpu_ns"].tolist() == [7, 9, 7, 9] and both.tasks["name"] == ["x", "y"]


def test_lanes_of_two_processes_of_one_rank_stay_apart():
    both = _core.union_profiles([full("a", 0, 1000, "x", 50), full("b", 0, 1001, "y", 50), full("c", 0, 1002, "z", 50)])
    assert both.threads["index"].tolist() == [0, 1, 2, 3, 4, 5]
    assert both.tasks["index"].tolist() == [0, 1, 2] and both.tasks["thread_index"].tolist() == [1, 3, 5]
    assert column(both, "thread_ids") == [0, 0, 1, 2, 2, 3, 4, 4, 5]
    assert column(both, "task_ids") == [-1, -1, 0, -1, -1, 1, -1, -1, 2]
    # the intervals of the three overlap in time, but not on a lane
    assert both.nested and [row[9] for row in both.rows] == [12, 12, 12]
    # ids are unique in the rank, and each inner call still has its outer one as parent
    ids, parents = column(both, "call_ids"), column(both, "parent_ids")
    assert sorted(ids) == list(range(9))
    assert [parents[i] for i in (1, 4, 7)] == [ids[i] for i in (0, 3, 6)]
    records = both.aux[0]["groups"]["line_profile"]["groups"]
    assert [records[number]["attributes"]["region"] for number in ("0", "1", "2")] == ["a", "b", "c"]


def test_calls_of_one_set_may_lie_inside_those_of_another():
    python = profile([("py", 0, [(0, 100)], {"exclusive": 100})])
    native = profile([("c", 0, [(10, 40)], {"exclusive": 30})])
    both = _core.union_profiles([native, python])
    assert [(both.names[row[0]], row[9]) for row in both.rows] == [("c", 30), ("py", 70)]
    assert column(both, "parent_ids") == [0, -1] and both.nested
    overlapping = _core.union_profiles([python, profile([("c", 0, [(90, 140)])])])
    assert not overlapping.nested and [row[9] for row in overlapping.rows] == [-1, -1]


def test_a_region_in_two_sets_is_named():
    with pytest.raises(ValueError, match="'solve'"):
        _core.union_profiles([profile([("solve", 0, [(0, 1)])]), profile([("solve", 0, [(2, 3)])])])
    apart = _core.union_profiles([profile([("solve", 0, [(0, 1)])]), profile([("solve", 1, [(2, 3)])])])
    assert apart.names == ["solve"] and [row[1:4] for row in apart.rows] == [(0, 0, 1), (1, 1, 1)]


def test_one_set_is_itself_and_empty_sets_add_nothing():
    one = full("a", 0, 1000, "x", 50)
    same = _core.union_profiles([one, profile([])])
    assert same.rows == one.rows and same.tasks["created_ns"].tolist() == [6] and same.metadata == one.metadata
    assert column(same, "call_ids") == column(one, "call_ids")
    assert _core.union_profiles([profile([])]).threads is None


def test_summaries_go_together_only_with_summaries():
    row = {"statistics": (10, 10, 10, 10, 10, 0, 10, 0, 0, 10.0, 0.0), "exclusive": 4}

    def summary(name):
        return _core.make_profile(
            names=[name], rows=[(0, 0, 0, 1, None, -1, None, (), None, 4, row["statistics"], None)], columns={}, summary_only=True)

    both = _core.union_profiles([summary("a"), summary("b")])
    assert both.summary_only and [r[3] for r in both.rows] == [1, 1] and [r[9] for r in both.rows] == [4, 4]
    with pytest.raises(ValueError, match="without their calls"):
        _core.union_profiles([summary("a"), profile([("b", 0, [(0, 1)])])])


def recorded(directory, outer, inner):
    """A stored run: outer [0, 100] around inner [10, 40] on thread 0, and inner [0, 7] on thread 1."""
    threads = {0: [thread(0, "T"), thread(1, "U")]}
    run = results_of({outer: {0: region([0], [100], [0])}, inner: {0: region([10, 0], [40, 7], [0, 1])}}, threads=threads)
    return write_profile(run, directory / f"{outer}.h5")


def test_sums_by_call_path_of_summaries_are_kept_side_by_side(tmp_path):
    files = [recorded(tmp_path, "a", "b"), recorded(tmp_path, "c", "d")]
    both = merge_results(*map(read_h5_summary, files))._to_profile()
    _, _, nodes, rows, threads, _ = _core.path_summary(both)

    def path(node):
        name, parent = nodes[node]
        return (*(path(parent) if parent >= 0 else ()), both.names[name])

    assert {path(row[0]): (row[2], row[4], row[5]) for row in rows} == {
        ("a",): (1, 100, 70), ("a", "b"): (1, 30, 30), ("b",): (1, 7, 7), ("c",): (1, 100, 70), ("c", "d"): (1, 30, 30), ("d",): (1, 7, 7)}
    assert threads == [(0, 0, 2, 100), (0, 1, 1, 7), (0, 2, 2, 100), (0, 3, 1, 7)]  # those of the second run have new numbers
    assert [row for row in both.threads["index"]] == [0, 1, 2, 3]


def test_sums_by_call_path_of_calls_that_nest_anew_are_made_anew(tmp_path):
    outer = results_of({"a": {0: region([0], [100])}})
    inner = results_of({"b": {0: region([10], [40])}})
    files = [write_profile(run, tmp_path / f"{i}.h5") for i, run in enumerate((outer, inner))]
    write_profile(merge_results(*map(load, files)), tmp_path / "both.h5")
    both = read_h5_summary(tmp_path / "both.h5")._to_profile()
    _, _, nodes, rows, _, _ = _core.path_summary(both)
    assert [(both.names[name], parent) for name, parent in nodes] == [("a", -1), ("b", 0)] and rows[0][5] == 70


def test_many_regions_and_ranks_stay_in_order():
    sets = [profile([(f"r{s}.{i}", rank, [(i, i + 1)]) for rank in range(3) for i in range(400)]) for s in range(5)]
    both = _core.union_profiles(sets)
    assert [(row[1], both.names[row[0]]) for row in both.rows] == [
        (rank, f"r{s}.{i}") for rank in range(3) for s in range(5) for i in range(400)]
    starts = column(both, "start_ns")
    assert all(starts[row[2]] == int(both.names[row[0]].split(".")[1]) for row in both.rows)


# -- trees of profiles ---------------------------------------------------------------------------------------------------


def test_the_tree_of_a_profiles_rank():
    keys = ("start_ns", "end_ns", "thread_ids")
    one = profile([("a", 0, [(5, 6, 0)]), ("a", 1, [(0, 50, 0), (60, 70, 0)]), ("b", 1, [(10, 20, 0), (12, 80, 1)])], keys=keys)
    region, call, start, end, depth, parent, exclusive, lane = (view.tolist() for view in _core.profile_tree(one, 1))
    assert region == [1, 2, 2, 1] and call == [0, 0, 1, 1] and parent == [-1, 0, -1, -1] and lane == [-2, -2, -3, -2]
    assert (start, end, depth, exclusive) == ([0, 10, 12, 60], [50, 20, 80, 70], [0, 1, 0, 0], [40, 10, 68, 10])
    assert _core.profile_exclusive(one, 1).tolist() == [40, 10, 10, 68]  # in column order
    assert _core.profile_exclusive(one, 0).tolist() == [1] and _core.profile_exclusive(one, 9).tolist() == []
    assert _core.profile_tree(one, 9)[7] is None and len(_core.profile_tree(one, 9)[0]) == 0


def test_strict_and_clamped_exclusive_times_of_overlapping_calls():
    one = profile([("a", 0, [(0, 10)]), ("b", 0, [(5, 15)])])
    with pytest.raises(_core.NestingError, match=r"'b' \[5, 15\] ns starts inside call 0 of 'a'"):
        _core.profile_exclusive(one, 0)
    with pytest.raises(_core.NestingError):
        _core.profile_tree(one, 0)
    assert _core.profile_exclusive(one, 0, clamp=True).tolist() == [5, 10]
    with pytest.raises(ValueError, match="no calls"):
        _core.profile_exclusive(_core.make_profile(names=[], rows=[], columns={}, aggregate=True), 0)
