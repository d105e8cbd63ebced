"""Files that ask for more than they are: little of a file must not become much memory or time, in any reader."""

from __future__ import annotations

import ast
import gzip
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp

h5py = pytest.importorskip("h5py")
import numpy as np  # noqa: E402

from h5files import everything, int64, make, row, write_with_h5py  # noqa: E402
from scope_profiler import _core  # noqa: E402

# Reads one file with a limit on memory, and says what came of it and the most memory it took, in kB.
READ = """
import resource, sys, time
import scope_profiler as sp
import numpy, json, gzip, scope_profiler.json_export
from scope_profiler.profile_io import load
begin = time.process_time()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    results = getattr(sp, sys.argv[2])(sys.argv[1])
    print("read", len(getattr(results, "region_names", ())))
except (OSError, ValueError) as error:
    print("refused", type(error).__name__, str(error).replace("\\n", "<newline>"))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
print(max(grown, children))
print(time.process_time() - begin)
"""
MOST_KB = 100_000
MOST_SECONDS = 20.0


def outcome(path: Path, reader: str = "load") -> str:
    """What reading says, in one line that names the file; a failure when it took much memory or time."""
    process = subprocess.run([sys.executable, "-c", READ, str(path), reader], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    said, grown, seconds = process.stdout.splitlines()
    assert said.startswith("read") or path.name in said, said
    if not os.environ.get("SCOPE_PROFILER_SANITIZER"):
        assert int(grown) < MOST_KB, f"{said}: {grown} kB"
    assert float(seconds) < MOST_SECONDS, f"{said}: {seconds} s of processor time"
    return said


def sealed(path: Path) -> None:
    """Put the seal on, so that the file is read in the process itself."""
    content = path.read_bytes()
    seal = b"SPSEAL\x01\n" + struct.pack("<QI", len(content), zlib.crc32(content))
    path.write_bytes(content + seal + struct.pack("<I", zlib.crc32(seal)))


# -- HDF5 --------------------------------------------------------------------------------------------------------------


def claim_rows(file: Any) -> None:
    """2^60 calls of which none is stored."""
    del file["events/durations"], file["events/start_deltas"]
    for name in ("durations", "start_deltas"):
        file.create_dataset(f"events/{name}", shape=(2**60,), dtype=np.int64, chunks=(1024,), compression="gzip")
    file["rank_region_index/event_counts"][1] = 2**60 - 1


def claim_one_chunk(file: Any) -> None:
    """One chunk of 2^40 calls."""
    del file["events/durations"]
    space = h5py.h5s.create_simple((2**28,))
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_chunk((2**28,))
    h5py.h5d.create(file["events"].id, b"durations", h5py.h5t.NATIVE_INT64, space, options)


def claim_names(file: Any) -> None:
    del file["region_table/names"]
    file.create_dataset("region_table/names", shape=(2**50,), dtype="S16", chunks=(64,))


def claim_long_names(file: Any) -> None:
    del file["region_table/names"]
    file.create_dataset("region_table/names", shape=(2,), dtype=h5py.string_dtype(length=2**31 - 1), chunks=(1,), compression="gzip")


def claim_group_array(file: Any) -> None:
    file.create_dataset("rank0/line_profile/0/hits", shape=(2**20, 2**20, 2**20), dtype=np.int64, chunks=(1, 1, 64))


def link_groups(file: Any) -> None:
    """Ten links to a group with ten links to a group ...: 10^15 groups."""
    below = file.create_group("rank0/line_profile/x")
    for depth in range(14):
        above = file.create_group(f"level{depth}")
        for number in range(10):
            above[f"link{number}"] = below
        below = above
    file["rank0/line_profile/y"] = below


def link_itself(file: Any) -> None:
    group = file.create_group("rank0/line_profile/x")
    for number in range(10):
        group[f"link{number}"] = group


def share_values(file: Any) -> None:
    """A megabyte of zeros that compresses to a thousand bytes, in hundreds of places."""
    data = file.create_dataset("zeros", data=np.zeros(2**20, np.int64), chunks=(2**20,), compression="gzip")
    for number in range(700):
        file[f"rank0/perf_events/a{number}/values"] = data


HDF5_CLAIMS: dict[str, Callable[[Any], None]] = {
    "rows": claim_rows, "a chunk": claim_one_chunk, "names": claim_names, "long names": claim_long_names,
    "a group's array": claim_group_array, "links to links": link_groups, "a link to itself": link_itself,
    "shared values": share_values,
}  # fmt: skip


@pytest.mark.parametrize("seal", [False, True], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("claim", HDF5_CLAIMS)
def test_an_hdf5_file_that_claims_much(tmp_path: Path, claim: str, seal: bool) -> None:
    path = tmp_path / "claims.h5"
    write_with_h5py(path)
    with h5py.File(path, "r+") as file:
        HDF5_CLAIMS[claim](file)
    assert path.stat().st_size < 1_000_000
    if seal:
        sealed(path)
    assert outcome(path).startswith("refused CorruptProfileError")


def test_schema_1_regions_that_share_their_calls(tmp_path: Path) -> None:
    path = tmp_path / "old.h5"
    with h5py.File(path, "w") as file:
        region = file.create_group("rank0/regions/a")
        for name in ("start_times", "end_times"):
            region.create_dataset(name, data=np.zeros(2**20, np.int64), chunks=(2**20,), compression="gzip")
        for number in range(2000):
            file[f"rank0/regions/b{number}"] = region
    sealed(path)
    assert outcome(path).startswith("refused CorruptProfileError")


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_a_compressed_document_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"format": "scope-profiler-profile", "format_version": 1, "regions": [')
        for _ in range(512):
            file.write(b" " * 2**20)
        file.write(b"]}")
    assert path.stat().st_size < 1_000_000
    assert outcome(path).startswith("refused JSONProfileError")


JSON_CLAIMS = {
    "nesting": '{"format": "scope-profiler-profile", "format_version": 1, "x": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "a long number": '{"format": "scope-profiler-profile", "format_version": 1, "num_ranks": ' + "9" * 200_000 + "}",
    "many ranks": '{"format": "scope-profiler-profile", "format_version": 1, "num_ranks": 1000000000000000000, "regions": []}',
    "a rank far off": '{"format": "scope-profiler-profile", "format_version": 1, "num_ranks": 1, "regions": '
    '[{"name": "a", "rank": 99999999999999999999, "start_times_ns": [1], "end_times_ns": [2]}]}',
}


@pytest.mark.parametrize("claim", JSON_CLAIMS)
def test_a_json_document_that_claims_much(tmp_path: Path, claim: str) -> None:
    path = tmp_path / "claims.json"
    path.write_text(JSON_CLAIMS[claim])
    outcome(path)


# -- .prof -------------------------------------------------------------------------------------------------------------


def test_statistics_are_read_as_marshal_reads_them(tmp_path: Path) -> None:
    import cProfile
    import marshal
    import pstats

    profile = cProfile.Profile()
    profile.runcall(json.dumps, {"a": [1, 2.5, None, "é", 10**30]})
    profile.dump_stats(tmp_path / "a.prof")
    loaded = sp.load_prof(tmp_path / "a.prof")
    expected = pstats.Stats(str(tmp_path / "a.prof"))
    assert loaded.stats == expected.stats and loaded.total_calls == expected.total_calls and loaded.files == expected.files
    for version in range(marshal.version + 1):
        content = marshal.dumps({("é" * 300, 2**40, "f"): (1, -(2**70), 0.1, 2, {("a", 1, "b"): (1, 1, 0.5, -0.0)})}, version)
        if version < 2:
            continue  # floats as text, which no Python since 2.4 writes
        (tmp_path / "b.prof").write_bytes(content)
        assert sp.load_prof(tmp_path / "b.prof").stats == marshal.loads(content)


PROFS = {
    "a huge tuple": b"(" + struct.pack("<I", 2**31 - 1),
    "a huge text": b"u" + struct.pack("<I", 2**31 - 1) + b"a",
    "a huge number": b"l" + struct.pack("<i", 2**31 - 1),
    "nesting": b")\1" * 100_000,
    "a reference to itself": b"\xfb(r" + struct.pack("<I", 0) + b"0",
    "a reference to nothing": b"r" + struct.pack("<I", 7),
    "code": b"c" + bytes(200),
    "a list of statistics": b"[" + struct.pack("<I", 0),
    "nothing": b"",
    "a dictionary as key": b"{{0N0",
    "no statistics": b"{u" + struct.pack("<I", 1) + b"a" + b"N0",
    "words for numbers": b"{)\3z\1ai\0\0\0\0z\1b)\5z\1xz\1xz\1xz\1x{00",
}


@pytest.mark.parametrize("what", PROFS)
def test_a_prof_that_is_none(tmp_path: Path, what: str) -> None:
    path = tmp_path / "bad.prof"
    path.write_bytes(PROFS[what])
    assert outcome(path, "load_prof").startswith("refused ValueError")


# -- spools ------------------------------------------------------------------------------------------------------------


def spool_bytes(directory: Path) -> bytearray:
    program = (
        "import os, scope_profiler as sp\n"
        "sp.setup(output='p.h5')\n"
        "for _ in range(50):\n"
        "    with sp.region('a'): pass\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=directory, timeout=60)
    [name] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    return bytearray((directory / name).read_bytes())


def note(kind: int, index: int, payload: bytes) -> bytes:
    size = (24 + len(payload) + 7) // 8 * 8
    head = struct.pack("IHHI", len(payload), kind, 0, index)
    return (struct.pack("I", size) + head + struct.pack("II", zlib.crc32(head + payload), 0) + payload).ljust(size, b"\0")


def chunk(kind: int, owner: int, stride: int, sequence: int, body: bytes) -> bytes:
    size = (64 + len(body) + 4095) // 4096 * 4096
    head = struct.pack("IIQIIQ", 0x4B435053, kind, size, owner, stride, sequence)
    return (head + struct.pack("I", zlib.crc32(head)) + bytes(28) + body).ljust(size, b"\0")


SPOOL_CLAIMS = {
    "thread rows": chunk(3, 0, 0, 100, note(2, 2**32 - 2, bytes(32) + b"x\0")),
    "strings": chunk(3, 0, 0, 100, note(4, 2**32 - 2, b"x\0")),
    "task names": chunk(3, 0, 0, 100, note(5, 2**31 - 1, b"x\0")),
    "task pages": chunk(2, 2**32 - 1, 0, 100, struct.pack("iiQ", 0, 0, 2**40) * 10),
    "event owners": chunk(1, 2**32 - 2, 24, 100, struct.pack("QQIi", 2**40, 2**40, 0, -1) * 10),
    "regions": chunk(3, 0, 0, 100, note(1, 2**30 - 1, bytes(8) + b"\1x\0\0\0\0")),
}


@pytest.mark.parametrize("claim", SPOOL_CLAIMS)
def test_a_spool_that_claims_much(tmp_path: Path, claim: str) -> None:
    path = tmp_path / "claims.spool"
    path.write_bytes(spool_bytes(tmp_path) + SPOOL_CLAIMS[claim])
    said = outcome(path)
    assert said == "read 1" or said.startswith("refused")


def test_a_spool_with_texts_of_any_bytes(tmp_path: Path) -> None:
    """A C program may name its regions in any encoding: the names come back with marks for what cannot be shown."""
    path = tmp_path / "latin.spool"
    region = note(1, 1, bytes(8) + b"\1caf\xe9\0" + b"\1\xff.c\0" + b"\1\xfe\0" + b"\1[\"\xff\"]\0")
    slots = struct.pack("QQIi", *(struct.unpack_from("Q", spool := spool_bytes(tmp_path), 104)[0],) * 2, 1, -1)
    path.write_bytes(spool + chunk(3, 0, 0, 100, region) + chunk(1, 0, 24, 101, slots))
    results = sp.load(path)
    assert results.region_names == ["a", "caf\ufffd"]
    part = results["caf\ufffd"][0]
    assert (part.num_calls, part.source_file, part.source_text, tuple(part.tags)) == (1, "\ufffd.c", "\ufffd", ())


# -- the library's own texts ---------------------------------------------------------------------------------------------


def test_a_whole_file_is_not_refused(tmp_path: Path) -> None:
    """What a file may claim is bounded by its size; a real one with everything in it stays below that."""
    path = tmp_path / "whole.h5"
    _core.write_h5(everything(), str(path))
    assert outcome(path) == "read 2"
    assert outcome(path, "read_h5_summary") == "read 2"
    assert json.dumps(sp.load(path).metadata["label"])


def test_no_file_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    path.write_text("the old one")
    refused = "has a call that ends before it starts", "has times more than 2"
    for (start, end), why in zip(((5, 4), (-(2**63), 2**63 - 1)), refused, strict=True):
        profile = make(names=["a"], rows=[row(0, 0, 1)], columns={"start_ns": int64(start), "end_ns": int64(end)})
        with pytest.raises(ValueError, match=f'p.h5: region "a" of rank 0 {why}'):
            _core.write_h5(profile, str(path))
    assert path.read_text() == "the old one" and os.listdir(tmp_path) == ["p.h5"]


def test_no_code_of_the_package_runs_what_a_file_contains() -> None:
    """Neither pickles nor marshalled objects are loaded, and no text is evaluated."""
    unpack = {"pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "dill.load", "dill.loads"}
    # What somebody types into a cell is run, and a file that was written just now is read back.
    allowed = {("ipython_magics.py", "eval"), ("prof_export.py", "marshal.load")}
    found = []
    for path in Path(sp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if (name in unpack | {"eval"} and (path.name, name) not in allowed) or any(word.arg == "allow_pickle" for word in node.keywords):
                    found.append(f"{path.name}:{node.lineno}: {name}")
            if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "marshal", "shelve"):
                found.append(f"{path.name}:{node.lineno}: from {node.module}")
    assert found == []
