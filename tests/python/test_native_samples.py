"""Samples of native programs, and the source lines they fell on, of a real program compiled here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native_traces import sps
from scope_profiler.native_samples import (
    SampleFormatError,
    find_sample_files,
    format_line_profile,
    line_profile,
    read_samples,
    symbolize,
)

REGIONS = ["outer", "größe"]
MODULES = [("/bin/a", 0x1000)]
SAMPLES = [(0, 0, 0x1234), (1, -1, 2**63 + 5), (-1, 0, 0x1300)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_samples_read_the_same_in_both_byte_orders(tmp_path: Path, order: str) -> None:
    path = tmp_path / "t.sps"
    path.write_bytes(sps(REGIONS, MODULES, SAMPLES, rank=2, hz=997, ticks=5, order=order))
    read = read_samples(path)
    assert (read.rank, read.hz, read.ticks, read.regions, read.modules) == (2, 997, 5, REGIONS, MODULES)
    assert read.samples.tolist() == SAMPLES


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_shorter_prefix_of_samples_is_refused(tmp_path: Path, order: str) -> None:
    path = tmp_path / "t.sps"
    whole = sps(REGIONS, MODULES, SAMPLES, order=order)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SampleFormatError, match="t.sps"):
            read_samples(path)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (sps([], [], []) + b"\0", "after its end"),
        (b"SCOPEPRF" + sps([], [], [])[8:], "SCOPESMP"),
        (sps(["a"], [], [(1, -1, 0)]), "region 1 of 1"),
        (sps(["a"], [], [(-2, -1, 0)]), "region -2"),
        (sps(["a"], [], [(0, 0, 0)]), "module 0 of 0"),
        (sps([], [], [], rank=-1), "rank -1"),
    ],
)
def test_samples_that_cannot_be_are_refused(tmp_path: Path, data: bytes, word: str) -> None:
    path = tmp_path / "t.sps"
    path.write_bytes(data)
    with pytest.raises(SampleFormatError, match=word):
        read_samples(path)


def test_sample_files_are_found_once_each(tmp_path: Path) -> None:
    for name in ("b.sps", "a.sps", "c.spt"):
        (tmp_path / name).write_bytes(sps([], [], []))
    assert [path.name for path in find_sample_files([tmp_path / "b.sps", tmp_path])] == ["b.sps", "a.sps"]
    with pytest.raises(FileNotFoundError):
        find_sample_files(tmp_path / "none.sps")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no sample files"):
        find_sample_files(tmp_path / "empty")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A program with debugging information, and the offsets of two of its functions."""
    if not (shutil.which("cc") and shutil.which("nm")):
        pytest.skip("needs a C compiler")
    directory = tmp_path_factory.mktemp("program")
    (directory / "p.c").write_text("int first(int x) { return x + 1; }\n\nint second(int x)\n{\n    return x * 3;\n}\nint main(void) { return 0; }\n")
    subprocess.run(["cc", "-g", "-O0", "p.c", "-o", "p"], cwd=directory, check=True, timeout=60)
    table = subprocess.run(["nm", "p"], cwd=directory, capture_output=True, text=True, check=True, timeout=60).stdout
    offsets = {line.split()[2]: int(line.split()[0], 16) for line in table.splitlines() if len(line.split()) == 3}
    return directory / "p", offsets


def test_addresses_become_lines(program: tuple[Path, dict[str, int]]) -> None:
    path, offsets = program
    base = 0x7F0000000000
    places = symbolize(str(path), base, [base + offsets["first"], base + offsets["second"], base + 0x7FFFFFF])
    assert [(function, Path(file).name, line) for function, file, line in places] == [
        ("first", "p.c", 1), ("second", "p.c", 4), ("?", "?", 0)
    ]  # fmt: skip
    assert symbolize("/nowhere/module", 0, [1, 2]) == [("?", "?", 0)] * 2


def test_lines_of_a_region_are_counted_and_printed(program: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    path, offsets = program
    base = 0x1000000
    hits = [(0, 0, base + offsets["second"])] * 3 + [(0, 0, base + offsets["first"]), (-1, 0, base + offsets["first"])]
    (tmp_path / "t.sps").write_bytes(sps(["solve"], [(str(path), base)], hits))
    profile = line_profile(read_samples(tmp_path / "t.sps"))
    assert [(stat.function, stat.line, stat.samples) for stat in profile["solve"]] == [("second", 4, 3), ("first", 1, 1)]
    assert [(stat.function, stat.samples) for stat in profile["(no region)"]] == [("first", 1)]
    text = format_line_profile(profile, top=1)
    assert "solve  (4 samples)" in text and "75.0%" in text and "... and 1 more lines with 1 samples" in text
    done = subprocess.run(
        [sys.executable, "-m", "scope_profiler", "native-lines", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("p.c")]
    assert lines[0][:4] == ["p.c:4", "second", "3", "75.0%"]
    assert "int first(int x) { return x + 1; }" in done.stdout


def test_native_lines_tells_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "t.sps").write_bytes(b"nothing")
    for target in (tmp_path / "t.sps", tmp_path / "none.sps"):
        done = subprocess.run(
            [sys.executable, "-m", "scope_profiler", "native-lines", str(target)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and target.name in done.stderr
