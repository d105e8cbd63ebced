"""load, read_h5, read_h5_summary, write_profile, sniff_profile_format: what users call to read and write files."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import scope_profiler as sp
from h5files import everything, int64, make, row, write_with_h5py
from scope_profiler import _core, h5reader, h5schema, profile_io


def results_of(profile: _core.Profile) -> sp.ProfilingResults:
    return sp.ProfilingResults._from_profile(profile)


def test_results_come_back_with_everything(tmp_path: Path) -> None:
    path = sp.write_profile(results_of(everything()), tmp_path / "p.h5")
    assert path == tmp_path / "p.h5"
    for read in (sp.load, sp.read_h5, sp.read_profile):
        back = read(path)
        assert back.file_path == path and back.label == "Lá" and back.region_names == ["a", "b"]
        assert back["b"].num_calls_per_rank() == {0: 3, 3: 1} and back["b"].tags == ("t", "é")
        assert back["b"][0].event_metadata == ({"k": 1}, {}, {"s": "x"}) and back["b"][0].source_file == "x.py"
        assert [t.name for t in back.threads[0]] == ["MainThread", "wörker"] and back.tasks[0][0].coro_name == "main"
        assert back.line_profile[0][0]["hits"].tolist() == [1, 2]
        assert back["b"][0].durations_ns.tolist() == [5, 30, 10]


@pytest.mark.parametrize("options", [{"compression": "gzip", "level": 9}, {"compression": "none"}, {"chunk_size": 2}])
def test_storage_can_be_chosen(tmp_path: Path, options: Any) -> None:
    sp.write_profile(results_of(everything()), tmp_path / "p.h5", **options)
    with h5py.File(tmp_path / "p.h5") as f:
        dataset = f["events/durations"]
        assert dataset.compression == ("gzip" if options.get("compression") == "gzip" or "chunk_size" in options else None)
        assert dataset.chunks == ((2,) if "chunk_size" in options else (5,) if dataset.compression else None)


def test_unknown_options_are_type_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="speed"):
        sp.write_profile(results_of(everything()), tmp_path / "p.h5", speed=9)


def test_a_written_profile_keeps_every_column_of_merged_results(tmp_path: Path) -> None:
    one = make([row(0, 0, 2, tags=("x",))], {"start_ns": int64(1, 5), "end_ns": int64(3, 6), "thread_ids": int64(0, 0)}, names=["one"],
               threads={"ranks": int64(0), "index": int64(0), "ident": int64(1), "native_id": int64(2), "daemon": int64(0),
                        "start_ns": int64(0), "end_ns": int64(-1), "cpu_ns": int64(3), "name": ["MainThread"]})  # fmt: skip
    two = make([row(0, 0, 1)], {"start_ns": int64(10), "end_ns": int64(20)}, names=["two"])
    merged = sp.merge_results(results_of(one), results_of(two), label="both")
    back = sp.load(sp.write_profile(merged, tmp_path / "p.h5"))
    assert back.label == "both" and back.region_names == ["one", "two"] and back["one"].tags == ("x",)
    assert [t.name for t in back.threads[0]] == ["MainThread"]


def test_a_summary_answers_sums_and_percentiles_but_not_calls(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    sp.write_profile(results_of(everything()), path)
    summary = sp.read_h5_summary(path)
    assert not summary.has_event_data and summary["b"][0].num_calls == 3
    assert summary["b"][0].total_duration == pytest.approx(45e-9) and summary["b"][0].std_duration == pytest.approx(np.std([5, 30, 10]) * 1e-9)
    assert summary["b"][0].p50_duration == pytest.approx(10e-9) and summary["b"][0].p95_duration == pytest.approx(28e-9)
    with pytest.raises(sp.EventDataUnavailableError):
        summary["b"][0].events()
    assert summary.threads[0][1].name == "wörker" and summary.line_profile[0] and summary.has_perf_events
    with pytest.raises(ValueError, match="without its calls|single calls"):
        sp.write_profile(summary, tmp_path / "again.h5")


def test_a_summary_of_some_regions_and_ranks(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    sp.write_profile(results_of(everything()), path)
    assert sp.read_h5_summary(path, regions="b").region_names == ["b"]
    assert sp.read_h5_summary(path, regions=["a", "none"]).region_names == ["a"]
    assert sp.read_h5_summary(path, ranks=3)["b"].ranks == [3]
    assert sp.read_h5_summary(path, ranks=[0]).threads.keys() == {0}
    assert sp.read_h5_summary(path, include_line_profile=False).line_profile == {}


def test_a_file_without_a_summary_is_read_in_full_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_with_h5py(path, schema=2, drop=["rank_region_index/summary_statistics"])
    assert sp.read_h5_summary(path).has_event_data
    assert sp.read_h5_summary(path, regions="b").region_names == ["b"]
    with pytest.raises(h5reader.SummaryDataUnavailable, match="p.h5"):
        sp.read_h5_summary(path, fallback=False)
    assert issubclass(h5reader.SummaryDataUnavailable, ValueError)


@pytest.mark.parametrize("name, content, expected", [
    ("a.txt", b"\x89HDF\r\n\x1a\n...", "hdf5"), ("a.h5", b"  {\"format\": 1}", "json"), ("a.h5", gzip.compress(b"{}", mtime=0), "json"),
    ("a.h5", b"\n<!doctype html>", "html"), ("a.json", b"", "json"), ("a.JSON.gz", b"?", "json"), ("a.htm", b"?", "html"),
    ("a.h5", b"?", "hdf5"), ("a", b"", "hdf5"),
])  # fmt: skip
def test_a_format_is_told_by_content_then_by_name(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert sp.sniff_profile_format(tmp_path / name) == expected


def test_the_format_a_name_stands_for() -> None:
    names = {"a.h5": "hdf5", "a": "hdf5", "a.json": "json", "a.json.gz": "json", "a.HTML": "html", "a.htm": "html", "a.gz": "hdf5"}
    assert {name: profile_io.profile_format(name) for name in names} == names


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    for read in (sp.load, sp.read_h5, sp.read_profile, sp.read_h5_summary):
        with pytest.raises(FileNotFoundError, match="none.h5"):
            read(tmp_path / "none.h5")
    (tmp_path / "report.h5").write_text("<html>")
    with pytest.raises(ValueError, match="report.h5 is an HTML report"):
        sp.load(tmp_path / "report.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(sp.CorruptProfileError, match="text.h5 is not an HDF5 file"):
        sp.load(tmp_path / "text.h5")
    with pytest.raises(sp.CorruptProfileError, match="is a directory"):
        sp.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        sp.sniff_profile_format(tmp_path / "none.h5")
    assert issubclass(sp.CorruptProfileError, OSError) and h5reader.CorruptProfileError is sp.CorruptProfileError


def test_the_schema_of_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    sp.write_profile(results_of(everything()), path)
    with h5py.File(path, "r+") as f:
        assert h5schema.read_schema_version(f) == h5schema.CURRENT_SCHEMA_VERSION == 3
        for wrong in (0, 4, "3", 3.0):
            f.attrs[h5schema.SCHEMA_ATTRIBUTE] = wrong
            with pytest.raises(h5schema.HDF5SchemaError):
                h5schema.read_schema_version(f)
        del f.attrs[h5schema.SCHEMA_ATTRIBUTE]
        assert h5schema.read_schema_version(f) == 1
    with pytest.raises(h5schema.HDF5SchemaError, match="p.h5"):
        f = h5py.File(path, "r+")
        f.attrs[h5schema.SCHEMA_ATTRIBUTE] = 9
        f.close()
        sp.load(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_is_an_error_that_leaves_the_old_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        sp.write_profile(results_of(everything()), disk / "p.h5")
        before = (disk / "p.h5").read_bytes()
        noise = np.random.default_rng(0).integers(0, 2**62, 100_000)
        large = results_of(make([row(0, 0, len(noise))], {"start_ns": noise, "end_ns": noise}))
        for _ in range(3):
            with pytest.raises(OSError, match="No space left.*p.h5") as caught:
                sp.write_profile(large, disk / "p.h5")
            assert caught.value.errno == 28
        assert (disk / "p.h5").read_bytes() == before and os.listdir(disk) == ["p.h5"]
        sp.write_profile(results_of(everything()), disk / "p.h5")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_h5py_is_not_needed(python: Any, tmp_path: Path) -> None:
    done = python(
        "import sys; sys.modules['h5py'] = None\n"
        "import scope_profiler as sp\n"
        "with sp.session(output='p.h5', verbose=False):\n    with sp.region('r'): pass\n"
        "print(sp.load('p.h5')['r'].num_calls, sp.read_h5_summary('p.h5')['r'].num_calls)"
    )
    assert done.stdout == "1 1\n"
