"""Traces of native programs: read whole or refused with one clear error, put together, and put into a Python run."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import scope_profiler as sp
from native_traces import spt
from scope_profiler.native_trace import (
    TraceFormatError,
    convert_traces,
    find_traces,
    load_traces,
    read_trace,
    write_results,
)

# outer 10..100 with two inner calls, and again 110..200 with none
REGIONS = [("outer", [10, 110], [100, 200], "solver.f90", 7), ("inner", [20, 60], [50, 70], "", -1)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def refused(path: Path, *words: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_trace(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_trace_reads_the_same_in_both_versions_and_byte_orders(tmp_path: Path, version: int, order: str) -> None:
    path = write(tmp_path / "t.spt", spt(REGIONS, rank=3, version=version, order=order))
    rank, regions = read_trace(path)
    assert rank == 3 and list(regions) == ["outer", "inner"]
    starts, ends = regions["outer"]
    assert starts.dtype == np.int64 and starts.tolist() == [10, 110] and ends.tolist() == [100, 200]
    assert [column.tolist() for column in regions["inner"]] == [[20, 60], [50, 70]]
    expected = ("solver.f90", 7) if version == 2 else (None, None)
    assert (regions["outer"].source_file, regions["outer"].source_lineno) == expected
    assert (regions["inner"].source_file, regions["inner"].source_lineno) == (None, None)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [1, 2])
def test_every_shorter_prefix_of_a_trace_is_refused(tmp_path: Path, version: int, order: str) -> None:
    whole = spt(REGIONS, version=version, order=order)
    path = tmp_path / "t.spt"
    for size in range(len(whole)):
        refused(write(path, whole[:size]))


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.spt", spt(REGIONS) + b"\0"), "1 byte after its end")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "too short"),
        (b"XCOPEPRF" + spt(REGIONS)[8:], "does not begin with SCOPEPRF"),
        (spt(REGIONS, version=3), "version 3"),
        (spt(REGIONS, version=0), "version 0"),
        (spt(REGIONS, rank=-1), "rank -1"),
        (b"SCOPEPRF" + struct.pack("<iiq", 2, 0, -1), "-1 regions"),
        (b"SCOPEPRF" + struct.pack("<iiq", 2, 0, 2**62), "regions"),
        (b"SCOPEPRF" + struct.pack("<iiqi", 1, 0, 1, -5) + bytes(20), "length -5"),
        (b"SCOPEPRF" + struct.pack("<iiqi", 1, 0, 1, 2**31 - 1) + bytes(20), "ends within a region name"),
        (b"SCOPEPRF" + struct.pack("<iiqi1sq", 1, 0, 1, 1, b"a", 2**60), "ends before its"),
        (b"SCOPEPRF" + struct.pack("<iiqi1sq", 1, 0, 1, 1, b"a", -1), "-1 calls"),
        (spt([("a\0b", [1], [2])]), "NUL"),
        (spt([("b", [1, 5], [2, 4])]), "ends before it starts"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(tmp_path: Path, data: bytes, word: str) -> None:
    refused(write(tmp_path / "t.spt", data), word)


def test_claims_of_a_trace_allocate_no_memory(tmp_path: Path) -> None:
    """A file of a few bytes that claims 2^31 of everything is refused under a limit of memory that none of that fits in."""
    program = """
import resource, sys
from scope_profiler.native_trace import TraceFormatError, read_trace
import numpy
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096 + (64 << 20),) * 2)
for path in sys.argv[1:]:
    try: read_trace(path)
    except TraceFormatError: continue
    sys.exit(path)
"""
    claims = [
        b"SCOPEPRF" + struct.pack("<iiq", 2, 0, 2**31) + bytes(100),
        b"SCOPEPRF" + struct.pack("<iiqi", 1, 0, 1, 2**31 - 1) + bytes(100),
        b"SCOPEPRF" + struct.pack("<iiqi1sq", 1, 0, 1, 1, b"a", 2**31) + bytes(100),
    ]
    paths = [str(write(tmp_path / f"{i}.spt", data)) for i, data in enumerate(claims)]
    subprocess.run([sys.executable, "-c", program, *paths], check=True, timeout=120)


def test_damaged_traces_are_read_or_refused_but_never_anything_else(tmp_path: Path, soak: bool) -> None:
    chance = random.Random(8)
    path = tmp_path / "t.spt"
    wholes = [spt(REGIONS, version=version, order=order) for version in (1, 2) for order in "<>"]
    for _ in range(200_000 if soak else 600):
        data = bytearray(chance.choice(wholes))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(8, len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        write(path, bytes(data))
        try:
            _, regions = read_trace(path)
        except TraceFormatError as error:
            assert "\n" not in str(error)
        else:
            assert all(len(starts) == len(ends) for starts, ends in regions.values())


def test_a_name_that_comes_twice_keeps_all_its_calls(tmp_path: Path) -> None:
    regions = [("a", [1, 5], [2, 6]), ("b", [3], [4], "b.c", 9), ("a", [7], [8], "a.c", 3)]
    _, read = read_trace(write(tmp_path / "t.spt", spt(regions)))
    assert [column.tolist() for column in read["a"]] == [[1, 5, 7], [2, 6, 8]]
    assert (read["a"].source_file, read["a"].source_lineno) == ("a.c", 3)
    assert [column.tolist() for column in read["b"]] == [[3], [4]]


def test_regions_without_calls_and_traces_without_regions(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path / "t.spt", spt([], rank=5))) == (5, {})
    rank, regions = read_trace(write(tmp_path / "t.spt", spt([("none", [], []), ("one", [1], [2])], rank=2, order=">")))
    assert rank == 2 and list(regions) == ["one"]


def test_a_name_in_another_encoding_keeps_its_calls(tmp_path: Path) -> None:
    _, regions = read_trace(write(tmp_path / "t.spt", spt([(b"l\xf6sen", [1], [2]), ("größe", [3], [4])])))
    assert list(regions) == ["l\ufffdsen", "größe"]


def test_long_names_and_many_regions(tmp_path: Path) -> None:
    names = ["x" * 100_000, *(f"region {i}" for i in range(20_000))]
    regions = [(name, [i], [i + 1]) for i, name in enumerate(names)]
    _, read = read_trace(write(tmp_path / "t.spt", spt(regions)))
    assert list(read) == names
    assert read["region 19999"][0].tolist() == [20_000]


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe"])
def test_what_is_no_file_is_an_os_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.spt"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(FileNotFoundError if kind == "missing" else OSError):
        read_trace(path)


# -- finding and putting together --------------------------------------------------------------------------------------


def test_traces_are_found_in_directories_by_name(tmp_path: Path) -> None:
    for name in ("b.spt", "a.spt", "run_rank00001.h5", "run_rank.h5", "rank1.h5", "notes.txt", ".hidden.spt", "c.spt.bak"):
        write(tmp_path / name, spt(REGIONS))
    (tmp_path / "d.spt").mkdir()
    assert [path.name for path in find_traces(tmp_path)] == ["a.spt", "b.spt", "run_rank00001.h5"]
    os.symlink(tmp_path / "a.spt", tmp_path / "link.spt")
    assert [path.name for path in find_traces([tmp_path / "a.spt", tmp_path])] == ["a.spt", "b.spt", "run_rank00001.h5"]
    assert find_traces(tmp_path / "notes.txt") == [tmp_path / "notes.txt"]
    assert find_traces([]) == []


def test_inputs_without_traces_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        find_traces(tmp_path / "nothing-here")
    with pytest.raises(FileNotFoundError, match="no native traces"):
        find_traces(tmp_path)


def test_ranks_come_from_one_file_each(tmp_path: Path) -> None:
    write(tmp_path / "x_rank00000.spt", spt(REGIONS))
    write(tmp_path / "x_rank00001.spt", spt([("outer", [5], [8])], rank=1, version=1, order=">"))
    results = load_traces(tmp_path, label="run 7")
    assert results.num_ranks == 2 and results.region_names == ["outer", "inner"]
    assert results["outer"].num_calls_per_rank() == {0: 2, 1: 1}
    assert results.metadata == {"source": "native", "trace_format_version": 2, "start_time_ns": 5, "label": "run 7"}
    assert results["outer"][0].source_file == "solver.f90"
    # exclusive: outer 90 + 90 less inner's 30 + 10; ids in order of start
    assert results["outer"][0].exclusive_durations_ns.tolist() == [50, 90]
    assert results["inner"][0].parent_ids.tolist() == [results["outer"][0].call_ids.tolist()[0]] * 2
    write(tmp_path / "again.spt", spt(REGIONS))
    with pytest.raises(TraceFormatError, match=r"again\.spt and .*x_rank00000\.spt are both of rank 0"):
        load_traces(tmp_path)
    assert not load_traces([]).region_names


def test_calls_that_overlap_have_no_tree_but_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "t.spt", spt([("a", [10], [30]), ("b", [20], [40])]))
    results = load_traces(path)
    assert results["a"][0].durations_ns.tolist() == [20] and results["a"][0].call_ids is None
    with pytest.raises(sp.NestingError):
        sp.build_call_arrays(list(results), 0)


def test_hdf5_files_of_native_programs_are_read_beside_traces(tmp_path: Path) -> None:
    write_results(load_traces(write(tmp_path / "a.spt", spt(REGIONS, rank=4))), tmp_path / "x_rank00004.h5")
    os.remove(tmp_path / "a.spt")
    write(tmp_path / "x_rank00000.spt", spt([("inner", [1], [2])]))
    results = load_traces(tmp_path)
    assert results["inner"].num_calls_per_rank() == {0: 1, 4: 2}
    assert results["outer"][4].exclusive_durations_ns.tolist() == [50, 90]


def test_a_converted_trace_is_a_profile(tmp_path: Path) -> None:
    path = write(tmp_path / "t.spt", spt(REGIONS))
    assert convert_traces(path, tmp_path / "out.h5", "named") == tmp_path / "out.h5"
    read = sp.load(tmp_path / "out.h5")
    assert read.label == "named" and read["inner"][0].start_times_ns.tolist() == [20, 60]
    assert [call["depth"] for call in read.call_stack()] == [0, 1, 1, 0]
    with pytest.raises(FileNotFoundError):
        convert_traces(path, tmp_path / "nowhere" / "out.h5")


# -- beside what Python recorded ---------------------------------------------------------------------------------------


def test_native_calls_have_no_lane_beside_threads(tmp_path: Path) -> None:
    path = write(tmp_path / "t.spt", spt(REGIONS))
    pm = sp.ProfileManager()
    with pm.session(output=tmp_path / "p.h5", verbose=False, return_results=True, track_threads=True, native_traces=path) as run:
        with pm.region("python"):
            pass
    for results in (run.results, sp.load(tmp_path / "p.h5")):
        assert results["outer"][0].thread_ids.tolist() == [-1, -1]
        lanes = {call["name"]: call["lane"] for call in results.call_stack()}
        assert lanes == {"outer": -1, "inner": -1, "python": -2, "scope_profiler.session": -2}
        parents = {call["name"]: call["parent"] for call in results.call_stack()}
        assert parents["outer"] is None and parents["inner"] is not None
        assert results["outer"][0].source_file == "solver.f90"
        assert results.metadata.get("source") is None and len(results.threads[0]) == 1
        ids = [int(i) for name in results.region_names for i in results[name][0].call_ids]
        assert sorted(ids) == list(range(6))


def test_native_calls_of_other_ranks_are_ranks_of_the_run(tmp_path: Path) -> None:
    pm = sp.ProfileManager()
    pm.setup(output=None)
    with pm.region("outer"):
        pass
    results = pm.finalize(verbose=False, return_results=True, native_traces=[write(tmp_path / "t.spt", spt(REGIONS, rank=2))])
    assert results["outer"].ranks == [0, 2] and results["inner"].ranks == [2]


@pytest.mark.parametrize("fault", ["clash", "missing", "damaged"])
def test_a_finalize_that_cannot_take_a_trace_loses_nothing(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "t.spt"
    if fault != "missing":
        write(path, spt([("mine", [1], [2])]) if fault == "clash" else spt(REGIONS)[:-1])
    pm = sp.ProfileManager()
    pm.setup(output=tmp_path / "p.h5")
    with pm.region("mine"):
        pass
    with pytest.raises(FileNotFoundError if fault == "missing" else ValueError, match="mine|t.spt"):
        pm.finalize(verbose=False, native_traces=path)
    assert not (tmp_path / "p.h5").exists()
    results = pm.finalize(verbose=False, return_results=True)
    assert results["mine"].num_calls == 1 and sp.load(tmp_path / "p.h5")["mine"].num_calls == 1


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scope_profiler", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_import_native_writes_a_profile_and_can_merge_it(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.spt", spt(REGIONS))
    done = command("import-native", trace, "-o", tmp_path / "n.h5", "--label", "native run")
    assert done.returncode == 0, done.stderr
    assert "outer (2x)" in done.stdout and done.stdout.endswith("n.h5\n")
    assert sp.load(tmp_path / "n.h5").label == "native run"
    pm = sp.ProfileManager()
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        with pm.region("python", tags=["t"]):
            pass
    done = command("import-native", trace, "--merge", tmp_path / "p.h5", "-o", tmp_path / "m.h5", "-q")
    assert (done.returncode, done.stdout) == (0, f"wrote {tmp_path / 'm.h5'}\n")
    merged = sp.load(tmp_path / "m.h5")
    assert merged["python"].tags == ("t",) and merged["outer"].num_calls == 2


@pytest.mark.parametrize("data", [None, b"no trace at all", spt(REGIONS)[:-3]])
def test_import_native_tells_in_one_line_what_is_wrong(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "t.spt"
    if data is not None:
        write(path, data)
    done = command("import-native", path, "-o", tmp_path / "n.h5")
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "t.spt" in done.stderr
    assert not (tmp_path / "n.h5").exists()
