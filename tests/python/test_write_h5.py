"""write_h5: the layout of schema 3 as h5py sees it, and what happens to the file when writing goes wrong."""

import json
import os
import stat
import subprocess
import sys
import threading
import zlib

import h5py
import numpy as np
import pytest

from native_code import library_to_preload
from scope_profiler import _core

STATISTICS = [("total", "<i8"), ("minimum", "<i8"), ("maximum", "<i8"), ("first", "<i8"), ("last", "<i8"),
              ("start_minimum", "<i8"), ("end_maximum", "<i8"), ("gpu_count", "<u8"), ("gpu_total", "<i8"),
              ("mean", "<f8"), ("m2", "<f8")]


def int64(*values):
    return np.array(values, dtype=np.int64)


def row(name, first, count, *, rank=0, source=None, line=-1, text=None, tags=(), metadata=None, exclusive=-1,
        statistics=None, aggregate=None):
    return (name, rank, first, count, source, line, text, tags, metadata, exclusive, statistics, aggregate)


def make(rows, columns, names=("a", "b", "c"), **rest):
    return _core.make_profile(names=list(names), rows=rows, columns=columns, **rest)


def threaded():
    return make(
        [row(0, 0, 1, exclusive=50), row(1, 1, 3, source="x.py", line=7, text="with r:", tags=("t", "é"),
                                         metadata='[{"k": 1}, {}, {}]', exclusive=45)],
        {"start_ns": int64(1000, 1010, 1020, 1015), "end_ns": int64(1100, 1015, 1050, 1025),
         "call_ids": int64(0, 1, 3, 2), "parent_ids": int64(-1, 0, 0, -1), "thread_ids": int64(0, 0, 0, 1),
         "task_ids": int64(-1, -1, 0, -1), "await_ns": int64(0, 0, 5, 0), "gpu_ns": int64(-1, 3, -1, 4)},
        threads={"ranks": int64(0, 0), "index": int64(0, 1), "ident": int64(11, 2**47), "native_id": int64(21, 22),
                 "daemon": int64(0, 1), "start_ns": int64(1, 2), "end_ns": int64(-1, 90), "cpu_ns": int64(5, 6),
                 "name": ["MainThread", "wörker"]},
        tasks={"ranks": int64(0), "index": int64(0), "kind": ["task"], "name": ["Task-1"], "coro_name": ["main"],
               "thread_index": int64(0), "created_ns": int64(3), "done_ns": int64(-1), "steps": int64(2),
               "running_ns": int64(8), "suspended_ns": int64(9)},
        metadata={"label": "L", "mpi_size": 1, "ratio": 0.5, "flag": True, "modules": ["m1", "m2"], "none": []},
    )


def random_profile(calls, regions=3, seed=0):
    random = np.random.default_rng(seed)
    counts = np.full(regions, calls // regions)
    counts[-1] += calls - counts.sum()
    start, rows, first = [], [], 0
    for i, count in enumerate(counts):
        start.append(10**12 + np.sort(random.integers(0, 10**9, count)))
        rows.append(row(i, first, int(count)))
        first += int(count)
    start = np.concatenate(start).astype(np.int64)
    columns = {"start_ns": start, "end_ns": start + random.integers(0, 5000, calls),
               "call_ids": random.permutation(calls).astype(np.int64), "thread_ids": np.zeros(calls, np.int64)}
    return make(rows, columns, names=[f"r{i}" for i in range(regions)]), columns, rows


def starts_of(deltas, rows):
    return np.concatenate([np.cumsum(deltas[r[2]:r[2] + r[3]]) for r in rows])


def test_every_dataset_has_the_name_type_and_values_of_schema_3(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(threaded(), path)
    with h5py.File(path) as f:
        assert f.attrs["scope_profiler_schema"] == 3 and f.attrs["scope_profiler_schema"].dtype == np.int64
        assert f.attrs["storage_layout"] == "columnar"
        assert f["region_table/names"].asstr()[:].tolist() == ["a", "b", "c"]
        index = f["rank_region_index"]
        expected = {
            "region_ids": ("<u4", [0, 1]), "ranks": ("<u4", [0, 0]), "event_offsets": ("<u8", [0, 1]),
            "event_counts": ("<u8", [1, 3]), "source_lines": ("<i8", [-1, 7]), "exclusive_totals": ("<i8", [50, 45]),
        }
        for name, (dtype, values) in expected.items():
            assert index[name].dtype == np.dtype(dtype) and index[name][:].tolist() == values, name
        texts = {"source_files": ["", "x.py"], "source_texts": ["", "with r:"], "event_metadata": ["[]", '[{"k": 1}, {}, {}]']}
        for name, values in texts.items():
            assert index[name].asstr()[:].tolist() == values, name
        assert [json.loads(t) for t in index["tags"].asstr()[:]] == [[], ["t", "é"]]
        assert index["summary_statistics"].dtype == np.dtype(STATISTICS)
        # durations of b: 5 30 10; mean 15, squares 100 + 225 + 25
        assert index["summary_statistics"][1].item() == (45, 5, 30, 5, 10, 1010, 1050, 2, 7, 15.0, 350.0)
        events = {"start_deltas": [1000, 1010, 10, -5], "durations": [100, 5, 30, 10], "call_ids": [0, 1, 3, 2],
                  "parent_ids": [-1, 0, 0, -1], "thread_ids": [0, 0, 0, 1], "task_ids": [-1, -1, 0, -1],
                  "await_ns": [0, 0, 5, 0], "gpu_durations": [-1, 3, -1, 4]}
        assert set(f["events"]) == set(events)
        for name, values in events.items():
            assert f["events"][name].dtype == np.dtype("<i8") and f["events"][name][:].tolist() == values, name
        threads = {"ranks": ("<u4", [0, 0]), "index": ("<i8", [0, 1]), "ident": ("<i8", [11, 2**47]),
                   "native_id": ("<i8", [21, 22]), "daemon": ("i1", [0, 1]), "start_ns": ("<i8", [1, 2]),
                   "end_ns": ("<i8", [-1, 90]), "cpu_ns": ("<i8", [5, 6]), "cpu_before_ns": ("<i8", [0, 0])}
        assert set(f["thread_table"]) == {*threads, "name"}
        for name, (dtype, values) in threads.items():
            assert f["thread_table"][name].dtype == np.dtype(dtype) and f["thread_table"][name][:].tolist() == values, name
        assert f["thread_table/name"].asstr()[:].tolist() == ["MainThread", "wörker"]
        tasks = {"index": [0], "thread_index": [0], "created_ns": [3], "done_ns": [-1], "steps": [2], "running_ns": [8],
                 "suspended_ns": [9]}
        for name, values in tasks.items():
            assert f["task_table"][name].dtype == np.dtype("<i8") and f["task_table"][name][:].tolist() == values, name
        assert f["task_table/ranks"].dtype == np.dtype("<u4")
        assert [f["task_table"][n].asstr()[0] for n in ("kind", "name", "coro_name")] == ["task", "Task-1", "main"]
        attributes = dict(f["metadata"].attrs)
        assert attributes["label"] == "L" and attributes["mpi_size"] == 1 and attributes["mpi_size"].dtype == np.int64
        assert attributes["ratio"] == 0.5 and attributes["flag"].dtype == bool and attributes["flag"]
        assert attributes["modules"].tolist() == ["m1", "m2"] and attributes["none"].tolist() == []


def test_an_untracked_run_has_no_lane_columns_or_tables(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(make([row(0, 0, 1)], {"start_ns": int64(5), "end_ns": int64(7)}), path)
    with h5py.File(path) as f:
        assert set(f) >= {"metadata", "region_table", "rank_region_index", "events"}
        assert "thread_table" not in f and "task_table" not in f
        assert set(f["events"]) == {"start_deltas", "durations"}


def test_a_run_without_calls_has_every_group_with_no_rows(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(make([], {}, names=[]), path)
    with h5py.File(path) as f:
        for group in ("region_table", "rank_region_index", "events"):
            for name, dataset in f[group].items():
                assert dataset.shape == (0,), name


def test_aggregates_have_their_own_columns_and_keep_tags_and_sources(tmp_path):
    path = tmp_path / "p.h5"
    rows = [row(1, 0, 0, source="x.py", line=3, tags=("t",), aggregate=(4, 100, 10, 40, 90))]
    _core.write_h5(make(rows, {}, aggregate=True), path)
    with h5py.File(path) as f:
        assert f.attrs["storage_layout"] == "aggregate"
        index = f["rank_region_index"]
        values = {"aggregate_counts": ("<u8", 4), "aggregate_totals": ("<i8", 100), "aggregate_minimums": ("<i8", 10),
                  "aggregate_maximums": ("<i8", 40), "aggregate_exclusives": ("<i8", 90)}
        for name, (dtype, value) in values.items():
            assert index[name].dtype == np.dtype(dtype) and index[name][:].tolist() == [value]
        assert index["tags"].asstr()[0] == '["t"]' and index["source_files"].asstr()[0] == "x.py"


@pytest.mark.parametrize("compression, level", [("auto", None), ("none", None), ("gzip", None), ("gzip", 0), ("gzip", 9),
                                                ("lzf", None)])
@pytest.mark.parametrize("calls", [1, 511, 513, 65_536, 65_537, 200_000])
def test_columns_of_any_length_survive_every_compression(tmp_path, calls, compression, level):
    path = tmp_path / "p.h5"
    profile, columns, rows = random_profile(calls)
    _core.write_h5(profile, path, compression=compression, level=level)
    with h5py.File(path) as f:
        events = f["events"]
        starts = starts_of(events["start_deltas"][:], rows)
        assert np.array_equal(starts, columns["start_ns"])
        assert np.array_equal(starts + events["durations"][:], columns["end_ns"])
        assert np.array_equal(events["call_ids"][:], columns["call_ids"])
        assert not events["thread_ids"][:].any()
        want = {"auto": "gzip", "none": None}.get(compression, compression)
        if calls > 1000:
            assert events["durations"].compression == want and events["durations"].shuffle == (want is not None)


def test_zstd_chunks_are_zstd_frames_behind_the_registered_filter(tmp_path):
    path = tmp_path / "p.h5"
    profile, columns, _ = random_profile(100_000)
    _core.write_h5(profile, path, compression="zstd", level=5)
    with h5py.File(path) as f:
        dataset = f["events/call_ids"]
        filters = dataset.id.get_create_plist()
        assert [filters.get_filter(i)[0] for i in range(filters.get_nfilters())] == [2, 32015]
        assert filters.get_filter(1)[2] == (5,)
        mask, chunk = dataset.id.read_direct_chunk((0,))
        assert mask == 0 and chunk[:4] == b"\x28\xb5\x2f\xfd"


def test_the_chunk_size_is_the_users(tmp_path):
    path = tmp_path / "p.h5"
    profile, columns, rows = random_profile(1000)
    for compression in ("auto", "none", "gzip"):
        _core.write_h5(profile, path, compression=compression, chunk_size=128)
        with h5py.File(path) as f:
            assert f["events/durations"].chunks == (128,)
            assert np.array_equal(f["events/call_ids"][:], columns["call_ids"])
    _core.write_h5(profile, path, chunk_size=10**15)
    with h5py.File(path) as f:
        assert f["events/durations"].chunks == (1000,)


def test_incompressible_chunks_are_stored_as_they_are(tmp_path):
    path = tmp_path / "p.h5"
    noise = np.random.default_rng(1).integers(-2**63, 2**63, 70_000)
    zero = np.zeros(70_000, np.int64)
    for compression in ("gzip", "lzf"):
        _core.write_h5(make([row(0, 0, 70_000)], {"start_ns": zero, "end_ns": zero, "call_ids": noise}), path,
                       compression=compression)
        with h5py.File(path) as f:
            assert np.array_equal(f["events/call_ids"][:], noise)


def test_small_runs_make_small_files(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(threaded(), path)
    assert path.stat().st_size < 17_600  # what 0.7.5 takes for 2-3 calls


def test_many_regions_and_long_texts(tmp_path):
    path = tmp_path / "p.h5"
    names = [f"region {i} ü" for i in range(20_000)] + ["x" * 100_000]
    calls = len(names)
    zero = np.zeros(calls, np.int64)
    _core.write_h5(make([row(i, i, 1, metadata="[{}]") for i in range(calls)], {"start_ns": zero, "end_ns": zero}, names), path)
    with h5py.File(path) as f:
        assert f["region_table/names"].asstr()[:].tolist() == names
        assert f["rank_region_index/event_metadata"].asstr()[-1] == "[{}]"
        assert f["rank_region_index/summary_statistics"].shape == (calls,)


def test_rows_may_come_in_any_order_but_not_share_calls(tmp_path):
    path = tmp_path / "p.h5"
    columns = {"start_ns": int64(10, 20, 30), "end_ns": int64(11, 21, 31)}
    _core.write_h5(make([row(0, 2, 1), row(1, 0, 2)], columns), path)
    with h5py.File(path) as f:
        assert f["events/start_deltas"][:].tolist() == [10, 10, 30]
        assert f["rank_region_index/event_offsets"][:].tolist() == [2, 0]
    before = path.read_bytes()
    for rows in ([row(0, 0, 2), row(1, 1, 2)], [row(0, 0, 2), row(1, 0, 1)], [row(0, 0, 3), row(1, 0, 3)]):
        with pytest.raises(ValueError, match="rows share calls"):
            _core.write_h5(make(rows, columns), path)
    assert path.read_bytes() == before


def test_groups_of_other_tools_are_carried(tmp_path):
    path = tmp_path / "p.h5"
    aux = {3: {"attributes": {}, "datasets": {}, "groups": {
        "line_profile": {"attributes": {}, "datasets": {}, "groups": {"0": {
            "attributes": {"region": "a", "first_lineno": 4, "unit": 1e-9},
            "datasets": {"hits": ((2,), int64(1, 2)), "times": ((2,), np.array([0.5, 1.5]))}, "groups": {}}}},
        "perf_events": {"attributes": {}, "datasets": {}, "groups": {"a/b": {
            "attributes": {"calls": 2, "event_names": ["cycles"]},
            "datasets": {"values": ((1,), np.array([2**63 + 1], np.uint64)), "grid": ((2, 1), int64(5, 6))},
            "groups": {}}}}}}}
    _core.write_h5(make([], {}, aux=aux), path)
    with h5py.File(path) as f:
        lines = f["rank3/line_profile/0"]
        assert lines.attrs["region"] == "a" and lines.attrs["unit"] == 1e-9 and lines["hits"][:].tolist() == [1, 2]
        assert lines["times"][:].tolist() == [0.5, 1.5]
        (counters,) = f["rank3/perf_events"].values()  # "/" would have made two groups of it
        assert counters.attrs["scope_profiler_name"] == "a/b" and counters.attrs["event_names"].tolist() == ["cycles"]
        assert counters["values"][:].tolist() == [2**63 + 1] and counters["grid"][:].tolist() == [[5], [6]]


def test_the_seal_covers_the_whole_file(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(threaded(), path)
    data = path.read_bytes()
    seal = data[-24:]
    assert seal[:8] == b"SPSEAL\x01\n"
    assert int.from_bytes(seal[8:16], "little") == len(data) - 24
    assert int.from_bytes(seal[16:20], "little") == zlib.crc32(data[:-24])
    assert int.from_bytes(seal[20:24], "little") == zlib.crc32(seal[:20])


def test_a_program_that_changes_the_file_removes_the_seal(tmp_path):
    path = tmp_path / "p.h5"
    _core.write_h5(threaded(), path)
    with h5py.File(path, "r+") as f:
        f["metadata"].attrs["label"] = "changed"
    assert b"SPSEAL" not in path.read_bytes()


# -- the file in the directory ------------------------------------------------------------------------------------------


@pytest.fixture
def simple():
    return make([row(0, 0, 1)], {"start_ns": int64(5), "end_ns": int64(7)})


def is_profile(path):
    with h5py.File(path) as f:
        return f["events/durations"][:].tolist() == [2]


def test_a_new_file_gets_what_the_umask_leaves(tmp_path, simple):
    for mask, mode in ((0o022, 0o644), (0o027, 0o640), (0o077, 0o600)):
        path = tmp_path / f"{mask}.h5"
        before = os.umask(mask)
        try:
            _core.write_h5(simple, path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_replaced_file_keeps_its_permissions(tmp_path, simple):
    path = tmp_path / "p.h5"
    path.write_text("old")
    path.chmod(0o604)
    _core.write_h5(simple, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and is_profile(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_replaced_file_keeps_its_owner(tmp_path, simple):
    path = tmp_path / "p.h5"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    _core.write_h5(simple, path)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_reader_of_the_old_file_is_undisturbed(tmp_path, simple):
    path = tmp_path / "p.h5"
    _core.write_h5(threaded(), path)
    with h5py.File(path) as old:
        _core.write_h5(simple, path)
        assert old["events/durations"][:].tolist() == [100, 5, 30, 10]
    assert is_profile(path)


def test_symbolic_links_are_followed_and_kept(tmp_path, simple):
    (tmp_path / "data").mkdir()
    real, middle, link = tmp_path / "data" / "real.h5", tmp_path / "data" / "middle", tmp_path / "link.h5"
    real.write_text("old")
    middle.symlink_to("real.h5")  # relative to its own directory
    link.symlink_to(middle)
    _core.write_h5(simple, link)
    assert link.is_symlink() and middle.is_symlink() and not real.is_symlink() and is_profile(real)
    assert os.listdir(tmp_path / "data") and not [n for n in os.listdir(tmp_path / "data") if n.endswith(".tmp")]


def test_a_dangling_link_makes_the_file_it_names(tmp_path, simple):
    (tmp_path / "link.h5").symlink_to("later.h5")
    _core.write_h5(simple, tmp_path / "link.h5")
    assert is_profile(tmp_path / "later.h5") and (tmp_path / "link.h5").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can plant links of others")
def test_a_link_planted_in_a_shared_directory_is_not_followed(tmp_path, simple):
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    shared.chmod(0o1777)
    victim.write_text("precious")
    link = shared / "p.h5"
    link.symlink_to(victim)
    os.chown(link, 1234, 1234, follow_symlinks=False)
    _core.write_h5(simple, link)
    assert victim.read_text() == "precious" and not link.is_symlink() and is_profile(link)


def test_a_link_loop_is_an_error(tmp_path, simple):
    (tmp_path / "a.h5").symlink_to("b.h5")
    (tmp_path / "b.h5").symlink_to("a.h5")
    with pytest.raises(OSError, match="a.h5"):
        _core.write_h5(simple, tmp_path / "a.h5")


@pytest.mark.parametrize("make_target, error", [
    (lambda p: p / "missing" / "p.h5", FileNotFoundError),
    (lambda p: p, IsADirectoryError),
    (lambda p: "/dev/null", OSError),
    (lambda p: "", FileNotFoundError),
    (lambda p: p / ("n" * 300), OSError),
])
def test_a_path_that_cannot_be_written_is_named(tmp_path, simple, make_target, error):
    target = make_target(tmp_path)
    for call in (lambda: _core.write_h5(simple, target), lambda: _core.check_output(target)):
        with pytest.raises(error) as caught:
            call()
        assert str(target) in str(caught.value) and caught.value.errno
    assert os.listdir(tmp_path) == []
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_good_path_passes_the_check_and_nothing_is_made(tmp_path):
    _core.check_output(tmp_path / "p.h5")
    assert os.listdir(tmp_path) == []


def test_a_long_name_that_the_file_system_takes_is_written(tmp_path, simple):
    path = tmp_path / ("n" * 250 + ".h5")
    _core.write_h5(simple, path)
    assert is_profile(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path, simple):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        _core.write_h5(simple, tmp_path / "p.h5")


FULL_DISK = """
import resource, signal, sys
import numpy as np
from scope_profiler import _core
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
n = 200_000
noise = np.random.default_rng(0).integers(0, 2**60, n)
rows = [(i, 0, i, 1, None, -1, None, (), None, -1, None, None) for i in range(n // 100)]
profile = _core.make_profile(names=[f"region {i}" for i in range(n // 100)], rows=rows,
                             columns={"start_ns": noise, "end_ns": noise, "call_ids": noise})
path = sys.argv[1]
for limit in map(int, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        _core.write_h5(profile, path)
    except OSError as error:
        assert error.errno == 27 and path in str(error), error
    else:
        print("written", limit)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
_core.write_h5(profile, path)
print("done")
"""


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_file_and_no_temporary(tmp_path):
    path = tmp_path / "p.h5"
    path.write_text("old")
    limits = [0, 1, 10, 48, 100, 500, 1000, 2048, 3000, 5000, 10_000, 50_000, 100_000, 1_000_000, 2_000_000]
    failing = FULL_DISK.replace('_core.write_h5(profile, path)\nprint("done")', 'print("done")')
    done = subprocess.run([sys.executable, "-c", failing, path, *map(str, limits)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["p.h5"]
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path, "1000"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    with h5py.File(path) as f:
        assert f["events/durations"].shape == (200_000,)


def test_a_summary_cannot_be_written(tmp_path):
    profile = make([row(0, 0, 3)], {}, summary_only=True)
    with pytest.raises(ValueError, match="without its calls"):
        _core.write_h5(profile, tmp_path / "p.h5")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options, message", [
    ({"compression": "bzip2"}, "bzip2"), ({"compression": "gzip", "level": 10}, "10"), ({"compression": "zstd", "level": 0}, "0"),
    ({"compression": "zstd", "level": 23}, "23"), ({"chunk_size": 0}, "chunk_size"),
])
def test_options_that_make_no_sense_are_refused(tmp_path, simple, options, message):
    with pytest.raises(ValueError, match=message):
        _core.write_h5(simple, tmp_path / "p.h5", **options)
    assert os.listdir(tmp_path) == []


def test_threads_can_write_at_the_same_time(tmp_path):
    profile, columns, _ = random_profile(100_000)
    problems = []

    def write(k):
        try:
            for i in range(3):
                _core.write_h5(profile, tmp_path / f"{k}.h5", compression=("auto", "none", "lzf", "gzip")[k])
                with h5py.File(tmp_path / f"{k}.h5") as f:
                    assert np.array_equal(f["events/call_ids"][:], columns["call_ids"])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("SCOPE_PROFILER_SANITIZER") == "thread",
    reason="the thread sanitizer gives up when a forked child starts a thread where one of the parent's was",
)
def test_a_child_forked_while_another_thread_writes_can_write_too(tmp_path):
    program = f"""
import os, threading, warnings
import numpy as np
from scope_profiler import _core
warnings.simplefilter("ignore")
noise = np.random.default_rng(0).integers(0, 2**40, 300_000)
profile = _core.make_profile(names=["a"], rows=[(0, 0, 0, len(noise), None, -1, None, (), None, -1, None, None)],
                             columns={{"start_ns": noise, "end_ns": noise}})
stop = False
def keep_writing():
    while not stop:
        _core.write_h5(profile, {str(tmp_path / 'parent.h5')!r})
thread = threading.Thread(target=keep_writing)
thread.start()
codes = []
for i in range(5):
    pid = os.fork()
    if pid == 0:
        _core.write_h5(profile, {str(tmp_path)!r} + f"/child{{i}}.h5")
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
stop = True
thread.join()
print(codes)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0, 0]\n", "")
    assert sorted(os.listdir(tmp_path)) == [*(f"child{i}.h5" for i in range(5)), "parent.h5"]


ON_A_SMALL_STACK = """
import os, sys, threading
import scope_profiler as sp

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # chunks are then made on the thread that writes
sp.setup(output="p.h5", hdf5_compression=sys.argv[1])
for _ in range(20_000):
    with sp.region("a"):
        pass
threading.stack_size(128 << 10)
thread = threading.Thread(target=sp.finalize, kwargs={"verbose": False})
thread.start()
thread.join()
print(sp.load("p.h5")["a"].num_calls)
"""


@pytest.mark.uninstrumented  # whose frames are larger
@pytest.mark.parametrize("compression", ["none", "lzf", "gzip", "zstd"])
def test_a_thread_with_a_small_stack_can_write(python, compression):
    assert python(ON_A_SMALL_STACK, compression).stdout == "20000\n"


RECORD = """
import os, random, sys
from scope_profiler import ProfileManager, _core

if sys.argv[2] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
_core._manual_clock(1_000_000)
ProfileManager.setup(output=sys.argv[1], track_async=True)
regions = [ProfileManager.region(name) for name in "abcd"]
rng = random.Random(1)


def enter(depth):
    while rng.random() < 0.7:
        with rng.choice(regions):
            _core._advance_clock(rng.randrange(1000))
            if depth < 4:
                enter(depth + 1)
        _core._advance_clock(rng.randrange(5))


for _ in range(2_000):
    enter(0)
ProfileManager.finalize(verbose=False)
"""

#: pthread_create fails for threads of the library.
REFUSE_THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    Dl_info where;
    void *real = dlsym(RTLD_NEXT, "pthread_create");
    if (dladdr((void *)start, &where) && strstr(where.dli_fname, "_core.")) return EAGAIN;
    return ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))real)(thread, attributes, start, argument);
}
"""


def stored(path):
    """Every chunk of calls, and the sums of them, as they are in the file."""
    with h5py.File(path) as file:
        chunks = {}
        for name, dataset in file["events"].items():
            places = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
            chunks[name] = [(info.byte_offset, dataset.id.read_direct_chunk(info.chunk_offset)) for info in places]
        sums = {name: dataset[()].tobytes() for name, dataset in file["summary"].items()}
        return chunks, sums


@pytest.mark.slow
@pytest.mark.uninstrumented  # a library of its own is loaded first
@pytest.mark.beside
def test_a_file_is_the_same_on_one_processor_and_where_no_thread_can_be_started(tmp_path):
    library = library_to_preload(REFUSE_THREADS, tmp_path / "refuse.so")
    for processors, preload in ("all", ""), ("one", ""), ("none", str(library)):
        path = tmp_path / f"{processors}.h5"
        subprocess.run([sys.executable, "-c", RECORD, str(path), processors], env={**os.environ, "LD_PRELOAD": preload}, check=True)
    expected = stored(tmp_path / "all.h5")
    assert len(expected[0]["durations"]) > 10
    assert stored(tmp_path / "one.h5") == expected
    assert stored(tmp_path / "none.h5") == expected
