"""read_h5: what comes back, of every schema and storage, and what damage and nonsense are called."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5files import (
    SMALL_COLUMNS,
    columns_of,
    contents,
    everything,
    int64,
    make,
    read_with_h5py,
    row,
    write_with_h5py,
)  # fmt: skip
from scope_profiler import _core

CorruptProfileError = _core.CorruptProfileError


def break_seal(path: Path) -> Path:
    """The same file without the promise that it is whole: it is then read as a stranger's."""
    path.write_bytes(path.read_bytes()[:-24])
    return path


# -- what was written comes back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("compression", ["auto", "none", "gzip", "lzf", "zstd"])
def test_everything_comes_back(tmp_path: Path, compression: str, sealed: bool) -> None:
    path = tmp_path / "p.h5"
    profile = everything()
    _core.write_h5(profile, path, compression=compression)
    if not sealed:
        break_seal(path)
    back = _core.read_h5(path)
    assert contents(back) == contents(profile)
    assert back.schema == 3 and back.nested
    # durations of b on rank 0: 5 30 10
    assert back.rows[1][10] == (45, 5, 30, 5, 10, 1010, 1050, 2, 7, 15.0, 350.0)
    assert back.rows[1][12] == pytest.approx((10.0, 28.0, 29.6))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("chunk_size", [None, 1000, 70_001])
@pytest.mark.parametrize("compression", ["auto", "none", "gzip", "lzf", "zstd"])
def test_long_columns_come_back(tmp_path: Path, compression: str, chunk_size: int | None, sealed: bool) -> None:
    path = tmp_path / "p.h5"
    calls = 200_003
    noise = np.random.default_rng(3).integers(0, 2**40, calls)
    start = np.arange(calls) * 1000
    columns = {"start_ns": start, "end_ns": start + noise % 1000, "call_ids": noise, "thread_ids": np.full(calls, 2)}
    profile = make([row(0, 0, 100_000), row(1, 100_000, 100_003)], columns)
    _core.write_h5(profile, path, compression=compression, chunk_size=chunk_size)
    if not sealed:
        break_seal(path)
    back = _core.read_h5(path)
    for name, values in columns.items():
        assert np.array_equal(np.asarray(back.column(name)), values), name


def test_aggregates_come_back_with_tags_and_sources(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    profile = make([row(1, 0, 0, source="x.py", line=3, tags=("t",), aggregate=(4, 100, 10, 40, 90))], {}, aggregate=True)
    _core.write_h5(profile, path)
    for summary in (False, True):
        back = _core.read_h5(path, summary=summary)
        assert back.aggregate and back.rows[0][4:8] == ("x.py", 3, None, ("t",))
        assert back.rows[0][11] == (4, 100, 10, 40, 90)


def test_single_calls_and_sums_can_be_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    profile = make([row(0, 0, 1), row(1, 0, 0, aggregate=(4, 100, 10, 40, 90))], {"start_ns": int64(1), "end_ns": int64(2)})
    _core.write_h5(profile, path)
    back = _core.read_h5(path)
    assert [r[11] for r in back.rows] == [None, (4, 100, 10, 40, 90)] and not back.aggregate


def test_a_run_without_calls_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(make([], {}, names=[], threads={"ranks": int64(), "index": int64(), "ident": int64(), "native_id": int64(),
                                                   "daemon": int64(), "start_ns": int64(), "end_ns": int64(),
                                                   "cpu_ns": int64(), "name": []}), path)  # fmt: skip
    for file in (path, break_seal(path)):
        back = _core.read_h5(file)
        assert (back.names, back.rows, back.call_count) == ([], [], 0)
        assert back.threads["name"] == [] and back.tasks is None and back.column("start_ns").tolist() == []


def test_the_second_reader_sees_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    plain = read_with_h5py(path)
    back = _core.read_h5(path)
    assert len(plain["rows"]) == back.row_count == 3
    for mine, theirs in zip(back.rows, plain["rows"]):
        part = slice(mine[2], mine[2] + mine[3])
        assert (back.names[mine[0]], mine[1]) == (theirs["name"], theirs["rank"])
        for name in ("start_ns", "end_ns", "call_ids", "parent_ids", "thread_ids", "task_ids", "await_ns"):
            assert back.column(name)[part].tolist() == theirs[name], name
        assert list(mine[7]) == theirs["tags"] and mine[9] == theirs["exclusive"]
    assert plain["rows"][1]["event_metadata"] == [{"k": 1}, {}, {"s": "x"}]


# -- selections and summaries ---------------------------------------------------------------------------------------------


def test_rows_of_some_regions_and_ranks(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    for file in (path, break_seal(path)):
        only_b = _core.read_h5(file, regions=["b", "no such region"])
        assert [r[:4] for r in only_b.rows] == [(1, 0, 0, 3), (1, 3, 3, 1)]
        assert only_b.column("start_ns").tolist() == [1010, 1020, 1015, 2000]
        assert only_b.column("task_ids").tolist() == [-1, 0, -1, -1]
        only_3 = _core.read_h5(file, ranks=[3, 2**40, -1])
        assert [r[:4] for r in only_3.rows] == [(1, 3, 0, 1)] and only_3.column("end_ns").tolist() == [2005]
        assert only_3.threads["native_id"].tolist() == [23] and only_3.tasks is None and list(only_3.aux) == []
        nothing = _core.read_h5(file, regions=[])
        assert nothing.rows == [] and nothing.call_count == 0


def test_rows_that_are_chosen_from_compressed_chunks(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    counts = [10, 5000, 1, 70_000, 3, 20_000]
    firsts = np.concatenate([[0], np.cumsum(counts)])
    start = np.arange(firsts[-1]) * 10
    names = [f"r{i}" for i in range(len(counts))]
    _core.write_h5(make([row(i, int(firsts[i]), c) for i, c in enumerate(counts)], {"start_ns": start, "end_ns": start + 3}, names), path)
    for chosen in ([0], [1, 2], [3], [2, 4], [0, 5], [1, 3, 5]):
        back = _core.read_h5(path, regions=[names[i] for i in chosen])
        expected = np.concatenate([start[firsts[i]:firsts[i] + counts[i]] for i in chosen])
        assert np.array_equal(np.asarray(back.column("start_ns")), expected)
        assert np.array_equal(np.asarray(back.column("end_ns")), expected + 3)


def test_a_summary_has_everything_but_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    for file in (path, break_seal(path)):
        summary, full = _core.read_h5(file, summary=True), _core.read_h5(file)
        assert summary.summary_only and summary.call_count == 0 and summary.column("start_ns") is None
        assert [r[:8] + r[9:] for r in summary.rows] == [r[:8] + r[9:] for r in full.rows]
        assert summary.threads == full.threads and summary.tasks == full.tasks and summary.metadata == full.metadata
        assert _core.path_summary(summary)[2] == _core.path_summary(full)[2]
        for mine, theirs in zip(_core.path_summary(summary)[3], _core.path_summary(full)[3]):
            assert mine[:8] == theirs[:8] and mine[8] == -1  # what calls awaited is not summed in the file


def test_a_summary_pickles_with_its_sums_by_path(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    summary = _core.read_h5(path, summary=True)
    again = pickle.loads(pickle.dumps(summary))
    assert again.summary_only and again.rows == summary.rows
    assert _core.path_summary(again) == _core.path_summary(summary)
    assert _core.path_summary(_core.replace_profile(again)) == _core.path_summary(summary)


def test_a_summary_never_reads_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    start = np.arange(100_000) * 10
    _core.write_h5(make([row(0, 0, 100_000)], {"start_ns": start, "end_ns": start + 3}), path)
    with h5py.File(path) as f:
        places = [f["events/durations"].id.get_chunk_info(i) for i in range(f["events/durations"].id.get_num_chunks())]
    data = bytearray(path.read_bytes())[:-24]
    for place in places:
        data[place.byte_offset : place.byte_offset + place.size] = b"\xff" * place.size
    path.write_bytes(data)
    assert _core.read_h5(path, summary=True).rows[0][10][0] == 300_000
    with pytest.raises(CorruptProfileError, match="p.h5.*/events/durations"):
        _core.read_h5(path)


@pytest.mark.slow
@pytest.mark.uninstrumented  # how long it takes
def test_a_summary_reads_little_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    noise = np.random.default_rng(0).integers(0, 2**50, 3_000_000)
    _core.write_h5(make([row(0, 0, len(noise))], {"start_ns": noise * 0, "end_ns": noise, "call_ids": noise}), path, compression="none")
    assert path.stat().st_size > 64 << 20
    before = bytes_read()
    _core.read_h5(path, summary=True)
    assert bytes_read() - before < 1 << 20  # of 72 MB


def bytes_read() -> int:
    """What this process has asked read(2) and its kin for."""
    text = Path("/proc/self/io").read_text()
    return int(text.split("rchar: ", 1)[1].split("\n", 1)[0])


def test_a_file_without_statistics_has_no_summary(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, schema=2, drop=["rank_region_index/summary_statistics"])
    with pytest.raises(_core.SummaryDataUnavailable, match="p.h5"):
        _core.read_h5(path, summary=True)
    assert columns_of(_core.read_h5(path)) == SMALL_COLUMNS


# -- files of other versions and programs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [2, 3])
@pytest.mark.parametrize("options", [{}, {"chunks": (3,), "maxshape": (None,)}, {"compression": "gzip", "shuffle": True},
                                     {"compression": "lzf"}, {"chunks": (2,), "fletcher32": True, "compression": "gzip"},
                                     {"chunks": (4,), "scaleoffset": 0}, {"dtype": ">i8"}, {"dtype": "<i4"}])  # fmt: skip
@pytest.mark.parametrize("text_type", [h5py.string_dtype(), h5py.string_dtype("utf-8", 30), h5py.string_dtype("ascii")])
def test_any_storage_of_schemas_2_and_3(tmp_path: Path, schema: int, options: Any, text_type: Any) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, schema=schema, options=options, text_type=text_type)
    back = _core.read_h5(path)
    assert columns_of(back) == SMALL_COLUMNS and back.schema == schema and back.names == ["a", "b"]
    assert back.rows[1][4:10] == ("b.py", 5, None, ("t",), '[{"k": 1}, {}, {}]', 45)
    assert back.threads["name"] == ["MainThread"] and back.metadata == {"mpi_size": 1}


def test_schema_2_without_the_columns_that_came_later(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    names = ("exclusive_totals", "summary_statistics", "event_metadata", "tags", "source_files", "source_texts", "source_lines")
    write_with_h5py(path, schema=2, drop=[f"rank_region_index/{n}" for n in names], layout=None)
    back = _core.read_h5(path)
    assert columns_of(back) == SMALL_COLUMNS
    assert back.rows[1][4:11] == (None, -1, None, (), None, -1, None)


def schema_1(path: Path, optional: bool = True) -> None:
    with h5py.File(path, "w") as f:
        f.create_group("metadata").attrs["label"] = "old"
        for rank, name, start, end in ((0, "a", [100], [200]), (0, "b/c", [110, 130], [120, 145]), (0, "b", [150], [151]),
                                       (2, "a", [5], [6])):  # fmt: skip
            group = f.require_group(f"rank{rank}/regions/{name}")
            group["start_times"], group["end_times"] = int64(*start), int64(*end)
            if optional and name == "a":
                group["call_ids"], group["parent_ids"] = int64(0), int64(-1)
                group["gpu_durations"] = int64(7)
                group.attrs["source_file"], group.attrs["source_lineno"] = "a.py", 3
                group.attrs["source_text"], group.attrs["tags"] = "with a:", ["x", 'y"']
        f.create_group("rank0/perf_events/a").attrs["calls"] = 1


def test_schema_1(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    schema_1(path)
    back = _core.read_h5(path)
    found = {(back.names[r[0]], r[1]): (r, back.column("start_ns")[r[2] : r[2] + r[3]].tolist(),
                                        back.column("end_ns")[r[2] : r[2] + r[3]].tolist()) for r in back.rows}  # fmt: skip
    assert {k: v[1:] for k, v in found.items()} == {
        ("a", 0): ([100], [200]), ("b", 0): ([150], [151]), ("b/c", 0): ([110, 130], [120, 145]), ("a", 2): ([5], [6]),
    }  # fmt: skip
    assert found["a", 0][0][4:8] == ("a.py", 3, "with a:", ("x", 'y"'))
    assert back.schema == 1 and back.metadata == {"label": "old"}
    first = found["b/c", 0][0][2]
    assert back.column("call_ids")[first] == -1 and back.column("gpu_ns")[found["a", 2][0][2]] == 7
    assert back.aux[0]["groups"]["perf_events"]["groups"]["a"]["attributes"] == {"calls": 1} and list(back.aux) == [0]
    chosen = _core.read_h5(path, regions=["b/c"])
    assert [(chosen.names[r[0]], r[3]) for r in chosen.rows] == [("b/c", 2)]
    assert [r[1] for r in _core.read_h5(path, ranks=[2]).rows] == [2]
    with pytest.raises(_core.SummaryDataUnavailable):
        _core.read_h5(path, summary=True)


def test_schema_1_without_optional_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    schema_1(path, optional=False)
    back = _core.read_h5(path)
    assert back.column("call_ids") is None and back.column("gpu_ns") is None and back.rows[0][4:8] == (None, -1, None, ())


def test_zstd_files_of_h5py(tmp_path: Path) -> None:
    hdf5plugin = pytest.importorskip("hdf5plugin")
    path = tmp_path / "p.h5"
    write_with_h5py(path, options={"chunks": (3,), "shuffle": True, **hdf5plugin.Zstd(clevel=5)})
    assert columns_of(_core.read_h5(path)) == SMALL_COLUMNS
    _core.write_h5(everything(), path, compression="zstd")
    assert read_with_h5py(path)["rows"][0]["start_ns"] == [1000]


def test_filters_that_only_libhdf5_knows(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, options={"chunks": (4,), "scaleoffset": True, "shuffle": True})
    assert columns_of(_core.read_h5(path)) == SMALL_COLUMNS


def test_counters_of_a_region_with_a_slash_that_became_groups(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    with h5py.File(path, "a") as f:
        group = f.create_group("rank0/perf_events/a/b")
        group.attrs["calls"] = 1
        group["values"] = np.array([5], np.uint64)
    assert _core.read_h5(path).aux[0]["groups"]["perf_events"]["groups"]["a"]["groups"]["b"]["attributes"] == {"calls": 1}


# -- what is no profile, or a wrong one --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_file, error, message", [
    (lambda p: None, FileNotFoundError, "p.h5"),
    (lambda p: p.mkdir(), CorruptProfileError, "p.h5 is a directory"),
    (lambda p: p.write_bytes(b""), CorruptProfileError, "p.h5 is empty"),
    (lambda p: p.write_text("hello, world"), CorruptProfileError, "p.h5 is not an HDF5 file"),
    (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n"), CorruptProfileError, "p.h5 is damaged"),
    (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 5000), CorruptProfileError, "p.h5 is damaged"),
    (lambda p: os.mkfifo(p), CorruptProfileError, "p.h5 is not a regular file"),
    (lambda p: h5py.File(p, "w").close(), CorruptProfileError, "p.h5 is an HDF5 file, but not a profile"),
])
@pytest.mark.parametrize("summary", [False, True])
def test_files_that_are_no_profile(tmp_path: Path, make_file: Any, error: type, message: str, summary: bool) -> None:
    path = tmp_path / "p.h5"
    make_file(path)
    with pytest.raises(error, match=message):
        _core.read_h5(path, summary=summary)


def test_a_foreign_hdf5_file_with_data_is_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as f:
        f["measurements/x"] = np.arange(10)
        f.create_group("metadata").attrs["author"] = "someone"
    with pytest.raises(CorruptProfileError, match="not a profile"):
        _core.read_h5(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    path.chmod(0)
    with pytest.raises(PermissionError, match="p.h5"):
        _core.read_h5(path)


@pytest.mark.parametrize("value", [0, -1, 4, 2**40, "3", 3.0, [3]])
def test_unknown_schemas(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    with h5py.File(path, "a") as f:
        f.attrs["scope_profiler_schema"] = value
    with pytest.raises(_core.HDF5SchemaError, match="p.h5 has schema"):
        _core.read_h5(path)


INDEX = "rank_region_index"


@pytest.mark.parametrize("dataset", [
    "region_table/names", f"{INDEX}/region_ids", f"{INDEX}/ranks", f"{INDEX}/event_offsets", f"{INDEX}/event_counts",
    "events/start_deltas", "events/durations", "thread_table/ident", "thread_table/name",
])
def test_a_missing_dataset_is_named(tmp_path: Path, dataset: str) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, drop=[dataset])
    name = dataset.replace("start_deltas", "start_times").replace("durations", "end_times")  # which would do as well
    with pytest.raises(CorruptProfileError, match=f"p.h5 is damaged: /{name} is missing"):
        _core.read_h5(path)


@pytest.mark.parametrize("dataset", ["region_table", INDEX, "events"])
def test_a_missing_group_is_named(tmp_path: Path, dataset: str) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    with h5py.File(path, "a") as f:
        del f[dataset]
    with pytest.raises(CorruptProfileError, match=f"/{dataset} is missing"):
        _core.read_h5(path)


@pytest.mark.parametrize("dataset, values, message", [
    (f"{INDEX}/region_ids", np.array([0, 2], np.uint32), "row 1 is region 2 of 2"),
    (f"{INDEX}/region_ids", np.array([1, 1], np.uint32), 'two rows for region "b" of rank 0'),
    (f"{INDEX}/region_ids", int64(0, -1), "row 1 is region -1"),
    (f"{INDEX}/ranks", int64(0, -3), "row 1 is rank -3"),
    (f"{INDEX}/event_offsets", np.array([0, 2], np.uint64), "row 1 covers calls that are not in /events"),
    (f"{INDEX}/event_counts", np.array([1, 2**63], np.uint64), "row 1 covers calls"),
    (f"{INDEX}/event_counts", np.array([2, 3], np.uint64), "rows 0 and 1 share calls"),
    (f"{INDEX}/ranks", np.array([0, 0, 0], np.uint32), "/rank_region_index/ranks has 3 rows instead of 2"),
    (f"{INDEX}/tags", ["[]"], "tags has 1 rows"),
    (f"{INDEX}/tags", ["[]", '["t"'], "tags of region \"b\" are not a list"),
    (f"{INDEX}/tags", ["[]", "[1]"], "tags of region"),
    (f"{INDEX}/tags", ["[]", b"[\"\xff\"]"], "tags holds text that is not UTF-8"),
    (f"{INDEX}/event_metadata", ["[]", "[{}, {}]"], "event_metadata of region \"b\" is not one object per call"),
    (f"{INDEX}/event_metadata", ["[]", "[{}, {}, 1]"], "event_metadata of region"),
    (f"{INDEX}/event_metadata", ["[]", "[{}, {}, {]"], "event_metadata of region"),
    (f"{INDEX}/event_metadata", ["[]", "[" * 100_000], "event_metadata of region"),
    (f"{INDEX}/summary_statistics", int64(1, 2), "summary_statistics does not hold statistics"),
    (f"{INDEX}/source_lines", ["a", "b"], "source_lines does not hold integers"),
    (f"{INDEX}/source_files", int64(1, 2), "source_files does not hold text"),
    ("region_table/names", int64(1, 2), "/region_table/names does not hold text"),
    ("region_table/names", ["a"], "region 1 of 1"),
    ("events/durations", int64(90, -1, 15, 20), "/events/durations has a call that ends before it starts in region \"b\""),
    ("events/durations", int64(90), "/events/durations has 1 values instead of 4"),
    ("events/durations", int64(90, 10, 15, 2**63 - 1), "times out of range in region \"b\""),
    ("events/durations", np.array([1.0, 2.0, 3.0, 4.0]), "does not hold integers"),
    ("events/durations", np.zeros((2, 2), np.int64), "/events/durations is not one-dimensional"),
    ("events/start_deltas", int64(100, 110, 2**63 - 1, 5), "/events/start_deltas holds times out of range"),
    ("events/call_ids", int64(0, 1), "/events/call_ids has 2 values"),
    ("events/parent_ids", int64(0, 0, -2, 0), "/events/parent_ids holds -2"),
    ("events/thread_ids", int64(0, 0, -7, 0), "/events/thread_ids holds -7"),
    ("thread_table/cpu_ns", int64(1, 2), "/thread_table/cpu_ns has 2 rows"),
])
def test_an_inconsistent_file_is_named_with_its_dataset(tmp_path: Path, dataset: str, values: Any, message: str) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, replace=[(dataset, values)])
    with pytest.raises(CorruptProfileError, match="p.h5 is damaged: .*" + message) as caught:
        _core.read_h5(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", ["rows", ""])
def test_an_unknown_layout(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, layout=layout)
    with pytest.raises(CorruptProfileError, match="storage_layout is neither"):
        _core.read_h5(path)


def test_a_column_that_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, drop=["events/call_ids"])
    with h5py.File(path, "a") as f:
        f.create_dataset("events/call_ids", shape=(4,), dtype="<i8", chunks=(2,))[:2] = [1, 2]
    with pytest.raises(CorruptProfileError, match="/events/call_ids"):
        _core.read_h5(path)


@pytest.mark.uninstrumented  # a limit on memory
@pytest.mark.parametrize("options", [{}, {"chunks": (1024,)}, {"chunks": (1024,), "compression": "gzip"}, {"chunks": (2**26,)}])
def test_lengths_that_the_file_cannot_hold_allocate_nothing(tmp_path: Path, options: Any) -> None:
    """A few bytes say that a column has 2**40 values."""
    path = tmp_path / "p.h5"
    names = ["events/start_deltas", "events/durations"]
    write_with_h5py(path, drop=[*names, "events/call_ids", "events/parent_ids", "events/thread_ids"])
    with h5py.File(path, "a") as f:
        for name in names:
            f.create_dataset(name, shape=(2**40,), dtype="<i8", **({"chunks": None} | options))
        f[f"{INDEX}/event_counts"][1] = 2**40 - 1
    program = "import resource, sys; from scope_profiler import _core\n" \
              "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n" \
              "try: _core.read_h5(sys.argv[1])\nexcept _core.CorruptProfileError as e: print(e)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60)
    assert "claims 1099511627776 values" in done.stdout and done.stderr == ""


def test_a_bomb_of_zeros_is_refused(tmp_path: Path) -> None:
    """A chunk that decompresses to more than it should."""
    path = tmp_path / "p.h5"
    write_with_h5py(path, options={"chunks": (4,), "compression": "gzip"})
    import zlib

    with h5py.File(path, "a") as f:
        f["events/durations"].id.write_direct_chunk((0,), zlib.compress(b"\0" * 10_000_000))
    with pytest.raises(CorruptProfileError, match="/events/durations cannot be decompressed"):
        _core.read_h5(path)


def test_links_out_of_the_file_are_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "p.h5", tmp_path / "other.h5"
    write_with_h5py(other)
    for link in (h5py.ExternalLink("other.h5", "/events/durations"), h5py.SoftLink("/events/call_ids")):
        write_with_h5py(path, drop=["events/durations"])
        with h5py.File(path, "a") as f:
            f["events/durations"] = link
        with pytest.raises(CorruptProfileError, match="/events/durations is a link"):
            _core.read_h5(path)


def test_values_in_other_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    (tmp_path / "raw").write_bytes(b"\0" * 32)
    write_with_h5py(path, drop=["events/durations"])
    with h5py.File(path, "a") as f:
        f.create_dataset("events/durations", shape=(4,), dtype="<i8", external=[(str(tmp_path / "raw"), 0, 32)])
    with pytest.raises(CorruptProfileError, match="/events/durations keeps its values elsewhere"):
        _core.read_h5(path)


def test_groups_that_contain_themselves_end(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    with h5py.File(path, "a") as f:
        group = f.create_group("rank0/line_profile")
        group["again"] = group
    with pytest.raises(CorruptProfileError, match="nested too deeply"):
        _core.read_h5(path)


# -- damage ------------------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_in_a_file_of_ours_is_found(tmp_path: Path, soak: bool) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    data, chance = path.read_bytes(), random.Random(5)
    for _ in range(5000 if soak else 300):
        at = chance.randrange(len(data) - 24)
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(CorruptProfileError, match="p.h5"):
            _core.read_h5(path)


@pytest.mark.slow
def test_every_truncation_of_a_file_of_ours_is_found(tmp_path: Path, soak: bool) -> None:
    path = tmp_path / "p.h5"
    _core.write_h5(everything(), path)
    data = path.read_bytes()
    lengths = range(len(data) - 24) if soak else random.Random(6).sample(range(len(data) - 24), 60)
    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises(CorruptProfileError, match="p.h5"):
            _core.read_h5(path)


FUZZ = """
import os, random, sys
from scope_profiler import _core
source, target, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = open(source, "rb").read()
chance = random.Random(seed)
outcomes = {}
for _ in range(rounds):
    changed = bytearray(data)
    kind = chance.randrange(4)
    if kind == 0:
        del changed[chance.randrange(len(changed)):]
    for _ in range(chance.randrange(1, 4) if kind else 0):
        at = chance.randrange(len(changed))
        if kind < 3: changed[at] ^= 1 << chance.randrange(8)
        else: changed[at:at + 8] = chance.choice([b"\\xff" * 8, b"\\0" * 8, chance.randbytes(8)])[:len(changed) - at]
    with open(target, "wb") as f: f.write(changed)
    for summary in (False, True):
        try:
            profile = _core.read_h5(target, summary=summary)
            rows = profile.rows, profile.names, profile.threads, profile.tasks, profile.metadata, profile.aux
            _core.path_summary(profile) if not summary else None
            outcome = "read"
        except _core.SummaryDataUnavailable:
            outcome = "no summary"
        except (_core.CorruptProfileError, _core.HDF5SchemaError, _core.NestingError) as error:
            assert str(error).strip() and "\\n" not in str(error), error
            assert isinstance(error, _core.NestingError) or os.path.basename(target) in str(error), error
            outcome = "refused"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
# Not ru_maxrss: that one starts at what the process that started this one had.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
assert peak < 400_000, peak
print(sorted(outcomes))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["h5py", "h5py-v110", "ours-unsealed", "schema-1"])
def test_no_damage_crashes_or_hangs_the_reader(tmp_path: Path, kind: str, soak: bool) -> None:
    """libhdf5 itself crashes on these files; the process that reads them must not, and nothing is printed."""
    source = tmp_path / "source.h5"
    if kind == "h5py":
        write_with_h5py(source)
    elif kind == "schema-1":
        schema_1(source)
    elif kind == "ours-unsealed":
        _core.write_h5(everything(), source)
        break_seal(source)
    else:
        write_with_h5py(tmp_path / "plain.h5", options={"chunks": (4,), "compression": "gzip", "shuffle": True})
        with h5py.File(tmp_path / "plain.h5") as old, h5py.File(source, "w", libver="v110") as new:
            new.attrs.update(old.attrs)
            for name in old:
                old.copy(name, new)
    rounds = 5000 if soak else 150
    done = subprocess.run([sys.executable, "-c", FUZZ, source, tmp_path / "damaged.h5", "11", str(rounds)],
                          capture_output=True, text=True, timeout=3600 if soak else 300)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "'refused'" in done.stdout


def test_a_reader_does_not_leave_children_or_files_open(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        _core.read_h5(path)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_an_application_that_reaps_all_children_does_not_disturb(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path)
    program = "import signal, sys; from scope_profiler import _core\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" \
              "for _ in range(20): print(_core.read_h5(sys.argv[1]).call_count)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60)
    assert done.stdout == "4\n" * 20 and done.stderr == ""


def test_reading_while_the_file_is_replaced(tmp_path: Path) -> None:
    """Each read sees one whole file, whichever."""
    path = tmp_path / "p.h5"
    profiles = [make([row(0, 0, n)], {"start_ns": np.arange(n), "end_ns": np.arange(n) + n}) for n in (3, 2000, 100_000)]
    _core.write_h5(profiles[0], path)
    import threading

    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for profile in profiles:
                _core.write_h5(profile, path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(30):
            back = _core.read_h5(path)
            assert back.call_count in (3, 2000, 100_000) and back.column("end_ns")[0] == back.call_count
    finally:
        stop.set()
        thread.join()


def test_paths_that_are_not_text(tmp_path: Path) -> None:
    strange = os.fsencode(tmp_path) + b"/p\xff.h5"
    _core.write_h5(everything(), strange)
    shutil.copy(strange, tmp_path / "copy.h5")
    assert _core.read_h5(os.fsdecode(strange)).row_count == 3
    with open(strange, "wb"):
        pass
    with pytest.raises(CorruptProfileError):
        _core.read_h5(strange)
    with pytest.raises(FileNotFoundError):
        _core.read_h5(strange + b"x")
