"""Profile: made from Python values, read back the same, shared without copies."""

import array
import gc
import pickle
import weakref

import numpy as np
import pytest

from scope_profiler import _core


def int64(*values):
    return np.array(values, dtype=np.int64)


def small(**changes):
    parts = dict(
        names=["outer", "inner/é"],
        rows=[
            (0, 0, 0, 1, "a.py", 3, "with x:", ("t", 'q"'), None, 70, None, None),
            (1, 0, 1, 2, None, -1, None, (), '[{"k": 1}, {}]', 30, (30, 10, 20, 10, 20, 110, 150, 0, 0, 15.0, 50.0), None),
        ],
        columns={"start_ns": int64(100, 110, 130), "end_ns": int64(200, 120, 150), "call_ids": int64(0, 1, 2)},
        threads={"ranks": int64(0), "index": int64(0), "ident": int64(2**47), "native_id": int64(12), "daemon": int64(1),
                 "start_ns": int64(5), "end_ns": int64(-1), "cpu_ns": int64(7), "name": ["MainThread"]},
        tasks={"ranks": int64(0), "index": int64(3), "thread_index": int64(0), "created_ns": int64(1), "done_ns": int64(-1),
               "steps": int64(2), "running_ns": int64(4), "suspended_ns": int64(6), "kind": ["task"], "name": ["Task-1"],
               "coro_name": ["main"]},
        metadata={"label": "L", "mpi_size": 1, "ratio": 0.5, "flag": True, "modules": ["a", "b"]},
        aux={0: {"attributes": {"n": 3, "v": [1.5, 2.5], "s": ["x"]},
                 "datasets": {"hits": ((2, 2), array.array("Q", [1, 2, 3, 4])), "events": ((1,), ["cycles"])},
                 "groups": {"0": {"attributes": {"region": "outer"}, "datasets": {}, "groups": {}}}}},
    )
    parts.update(changes)
    return _core.make_profile(**parts)


def state_of(profile):
    return {
        name: getattr(profile, name)
        for name in "names rows threads tasks metadata aux row_count aggregate nested summary_only schema call_count".split()
    } | {name: None if profile.column(name) is None else profile.column(name).tolist()
         for name in "start_ns end_ns call_ids parent_ids thread_ids task_ids await_ns gpu_ns".split()}


def test_values_come_back_in_the_form_they_were_given():
    profile = small()
    assert profile.names == ["outer", "inner/é"]
    assert profile.rows[0] == (0, 0, 0, 1, "a.py", 3, "with x:", ("t", 'q"'), None, 70, None, None, None)
    assert profile.rows[1][8] == '[{"k": 1}, {}]'
    assert profile.rows[1][10] == (30, 10, 20, 10, 20, 110, 150, 0, 0, 15.0, 50.0)
    assert profile.threads["ident"].tolist() == [2**47] and profile.threads["name"] == ["MainThread"]
    assert profile.tasks["index"].tolist() == [3] and profile.tasks["coro_name"] == ["main"]
    assert profile.metadata == {"label": "L", "mpi_size": 1, "ratio": 0.5, "flag": True, "modules": ["a", "b"]}
    assert profile.metadata["flag"] is True
    group = profile.aux[0]
    assert group["attributes"] == {"n": 3, "v": [1.5, 2.5], "s": ["x"]}
    assert group["datasets"]["hits"] == ((2, 2), array.array("Q", [1, 2, 3, 4]))
    assert group["datasets"]["events"] == ((1,), ["cycles"])
    assert group["groups"]["0"]["attributes"] == {"region": "outer"}
    assert (profile.call_count, profile.aggregate, profile.nested, profile.summary_only) == (3, False, True, False)


def test_one_row_and_the_keys_of_all():
    profile = small()
    assert [profile.row(i) for i in range(profile.row_count)] == profile.rows
    names, ranks = profile.row_keys()
    assert names.tolist() == [0, 1] and ranks.tolist() == [0, 0]
    for index in (-1, 2, 2**70):
        with pytest.raises(IndexError):
            profile.row(index)


def test_columns_are_readonly_views_that_keep_the_profile_alive():
    profile = small()
    view = profile.column("end_ns")
    first = np.asarray(view)
    assert np.shares_memory(first, np.asarray(profile.column("end_ns")))
    assert first.dtype == np.int64 and not first.flags.writeable
    del profile, view
    gc.collect()
    assert first.tolist() == [200, 120, 150]


def test_absent_columns_are_none_and_unknown_ones_an_error():
    profile = small()
    assert profile.column("thread_ids") is None
    with pytest.raises(ValueError, match="'durations'"):
        profile.column("durations")


def test_a_run_without_calls_has_empty_columns():
    profile = small(rows=[], columns={})
    assert profile.column("start_ns").tolist() == [] and profile.column("call_ids") is None


def test_large_columns_survive_their_own_allocation():
    count = 3_000_000  # 24 MB: mapped, not malloc'ed
    start = np.arange(count, dtype=np.int64)
    profile = small(rows=[(0, 0, 0, count, None, -1, None, (), None, -1, None, None)],
                    columns={"start_ns": start, "end_ns": start + 1})
    assert np.array_equal(np.asarray(profile.column("end_ns")), start + 1)


def test_pickle_round_trip_keeps_everything():
    profile = small()
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert state_of(pickle.loads(pickle.dumps(profile, protocol))) == state_of(profile)


def test_replace_shares_the_columns_and_leaves_the_original():
    profile = small()
    changed = _core.replace_profile(profile, metadata={"label": "new"}, event_metadata={0: "[{}]", 1: None})
    assert changed.metadata == {"label": "new"} and profile.metadata["label"] == "L"
    assert changed.rows[0][8] == "[{}]" and changed.rows[1][8] is None and profile.rows[0][8] is None
    assert np.shares_memory(np.asarray(changed.column("start_ns")), np.asarray(profile.column("start_ns")))
    again = _core.replace_profile(changed)
    del profile, changed
    gc.collect()
    assert again.column("start_ns").tolist() == [100, 110, 130]
    assert again.aux[0]["groups"]["0"]["attributes"] == {"region": "outer"}
    assert again.tasks["name"] == ["Task-1"] and again.threads["name"] == ["MainThread"]


@pytest.mark.parametrize("name, message", [("a\0b", "NUL"), ("\ud800", "surrogate")])
def test_a_name_no_file_can_hold_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        small(names=["outer", name])


@pytest.mark.parametrize("changes, message", [
    ({"columns": {"start_ns": int64(1), "end_ns": int64(1, 2)}}, "end_ns"),
    ({"columns": {"start_ns": int64(1, 2, 3)}}, "end_ns"),
    ({"columns": {"begin": int64(1)}}, "begin"),
    ({"names": ["outer"]}, "row 1"),
    ({"rows": [(0, 0, 2, 2, None, -1, None, (), None, -1, None, None)]}, "row 0 .outer."),
    ({"rows": [(-1, 0, 0, 0, None, -1, None, (), None, -1, None, None)]}, "row 0"),
    ({"metadata": {"big": 2**70}}, "big"),
    ({"threads": {"ranks": int64(0)}}, "index"),
])
def test_inconsistent_values_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.parametrize("changes", [
    {"columns": {"start_ns": np.zeros(3), "end_ns": int64(1, 2, 3)}},
    {"columns": {"start_ns": np.zeros(3, np.int32), "end_ns": int64(1, 2, 3)}},
    {"metadata": {"thing": object()}},
    {"names": ["outer", 7]},
])
def test_values_of_the_wrong_kind_are_type_errors(changes):
    with pytest.raises(TypeError):
        small(**changes)


def test_profiles_are_freed():
    class Holder:
        pass

    holder = Holder()
    holder.profile = small()
    gone = weakref.ref(holder)
    view = holder.profile.column("start_ns")
    del holder
    assert gone() is None and view[0] == 100
