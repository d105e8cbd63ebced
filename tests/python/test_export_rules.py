"""What all exporters have in common: names of files, selection, errors, and that a file is whole or not there."""

import contextlib
import gzip
import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from export_helpers import region, results_of, strict_json
from scope_profiler import (
    EventDataUnavailableError,
    export_chrome_trace,
    export_csv,
    export_folded,
    export_parquet,
    export_perfetto,
    export_speedscope,
    read_h5_summary,
    write_profile,
)

JSON_EXPORTERS = [(export_speedscope, ".speedscope.json"), (export_chrome_trace, ".trace.json")]
STREAMED = [*JSON_EXPORTERS, (export_perfetto, ".pftrace"), (export_csv, ".csv"), (export_folded, ".folded")]
EXPORTERS = [*STREAMED, (export_parquet, ".parquet")]
EMPTY_FILES = (export_chrome_trace, export_perfetto)  # write a file without calls rather than fail


def each(exporters):
    return pytest.mark.parametrize(("export", "suffix"), exporters, ids=[e.__name__ for e, _ in exporters])


each_exporter, each_streamed, each_json = map(each, (EXPORTERS, STREAMED, JSON_EXPORTERS))


def one(label="run", at=0):
    return results_of({"a": {0: region([at], [at + 5])}}, label)


@each_exporter
def test_the_default_suffix_is_added_to_a_name_without_one(export, suffix, tmp_path):
    assert export(one(), tmp_path / "name", verbose=False) == [tmp_path / f"name{suffix}"]
    assert export(one(), str(tmp_path / "name.v2.x"), verbose=False) == [tmp_path / "name.v2.x"]
    assert sorted(os.listdir(tmp_path)) == sorted([f"name{suffix}", "name.v2.x"])


@each_exporter
def test_several_runs_have_their_labels_in_the_names(export, suffix, tmp_path):
    runs = [one("my run/1"), one("my run/1"), one("ä"), one("//")]
    paths = export(runs, tmp_path / "deep" / "er" / "p.x.y", verbose=False)
    assert [path.name for path in paths] == ["p_my_run_1.x.y", "p_my_run_1_2.x.y", "p_ä.x.y", "p_run.x.y"]
    assert all(path.is_file() for path in paths)


@each_exporter
def test_a_line_is_printed_for_each_file(export, suffix, tmp_path, capsys):
    paths = export([one("x"), one("y")], tmp_path / "p")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"Wrote {path}") for line, path in zip(lines, paths))
    export(one(), tmp_path / "p", verbose=False)
    assert capsys.readouterr().out == ""


@each_exporter
def test_nothing_to_export_is_an_error(export, suffix, tmp_path):
    with pytest.raises(ValueError, match="no results"):
        export([], tmp_path / "p")
    with pytest.raises(ValueError, match="no rank 3"):
        export(one(), tmp_path / "p", ranks=3)
    with pytest.raises(ValueError, match="no rank -1"):
        export(one(), tmp_path / "p", ranks=[-1])
    if export in EMPTY_FILES:
        return
    with pytest.raises(ValueError, match="no region matches"):
        export(one(), tmp_path / "p", include="nothing")
    two_ranks = results_of({"a": {0: region([0], [1])}, "b": {1: region([0], [1])}})
    with pytest.raises(ValueError, match="no calls on rank 1"):
        export(two_ranks, tmp_path / "p", ranks=1, include="a")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("export", EMPTY_FILES, ids=lambda export: export.__name__)
def test_some_files_may_be_without_calls(export, tmp_path):
    [path] = export(one(), tmp_path / "p", include="nothing", verbose=False)
    assert path.stat().st_size > 0


@each_exporter
def test_results_of_other_processes_are_left_out(export, suffix, tmp_path):
    elsewhere = results_of({}, is_root=False)
    assert export(elsewhere, tmp_path / "p", verbose=False) == []
    assert export([elsewhere, one("x")], tmp_path / "p", verbose=False) == [tmp_path / f"p{suffix}"]


@each_exporter
def test_a_summary_has_no_calls_to_export(export, suffix, tmp_path):
    write_profile(one(), tmp_path / "run.h5")
    with pytest.raises(EventDataUnavailableError):
        export(read_h5_summary(tmp_path / "run.h5"), tmp_path / "p")


@each_exporter
def test_a_failed_write_names_the_path_and_leaves_the_old_file(export, suffix, tmp_path):
    target = tmp_path / f"old{suffix}"
    target.write_text("old")
    with pytest.raises(OSError) as caught:
        export(one(), target / "below", verbose=False)
    assert str(target) in str(caught.value)
    assert target.read_text() == "old" and os.listdir(tmp_path) == [target.name]
    (tmp_path / f"dir{suffix}").mkdir()
    with pytest.raises(IsADirectoryError):
        export(one(), tmp_path / f"dir{suffix}", verbose=False)


@contextlib.contextmanager
def files_limited_to(size, handler):
    """No file can be larger; ``handler`` gets the signal of the write that would make it so."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, handler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, previous)


@each_exporter
def test_a_full_disk_is_told_and_leaves_nothing(export, suffix, tmp_path):
    calls = 20_000
    big = results_of({"a" * calls: {0: region(range(calls), range(1, calls + 1))}})
    with files_limited_to(10_000, signal.SIG_IGN), pytest.raises(OSError, match="p"):
        export(big, tmp_path / "p", verbose=False)
    assert os.listdir(tmp_path) == []


def large():
    """Several MB in every format of text."""
    starts = np.arange(40_000) * 10
    return results_of({name: {0: region(starts + at, starts + at + 3)} for at, name in enumerate("ab")})


@each_json
def test_a_large_file_keeps_no_space_on_the_disk_that_it_does_not_use(export, suffix, tmp_path):
    [path] = export(large(), tmp_path / "p", verbose=False)
    facts = path.stat()
    assert facts.st_size > 4_000_000
    assert facts.st_blocks * 512 < facts.st_size + 100_000


@each_json
def test_a_large_file_is_written_below_a_limit_of_size(export, suffix, tmp_path):
    """tmpfs counts space that is reserved: a file below the limit must not be killed for it."""
    shared = Path("/dev/shm")
    signals = []
    run = large()
    [plain] = export(run, tmp_path / "p", verbose=False)
    with (
        files_limited_to(plain.stat().st_size + 1000, lambda *_: signals.append("SIGXFSZ")),
        tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as place,
    ):
        [path] = export(run, Path(place) / "p", verbose=False)
        assert path.read_bytes() == plain.read_bytes()
    assert signals == []


@each_json
def test_what_just_fits_on_a_disk_is_written(export, suffix, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    run = large()
    [plain] = export(run, tmp_path / "p", verbose=False)
    size = plain.stat().st_size + 100_000
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        [path] = export(run, disk / "p", verbose=False)
        assert path.read_bytes() == plain.read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)


@each_exporter
def test_files_get_the_umask_and_replace_what_a_link_points_to(export, suffix, tmp_path):
    old = os.umask(0o027)
    try:
        [path] = export(one(), tmp_path / "p", verbose=False)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / f"link{suffix}"
    link.symlink_to(path)
    before = path.read_bytes()
    path.write_text("x")
    export(one(), link, verbose=False)
    assert link.is_symlink() and path.read_bytes() == before


@each_streamed
def test_equal_runs_give_equal_files_compressed_or_not(export, suffix, tmp_path):
    [plain] = export(one(), tmp_path / f"p{suffix}", verbose=False)
    [first] = export(one(), tmp_path / f"p{suffix}.gz", verbose=False)
    [second] = export(one(), tmp_path / f"q{suffix}.gz", verbose=False)
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()) == plain.read_bytes()


@each_json
def test_any_name_is_written_as_strict_json(export, suffix, tmp_path):
    names = ['q"\\\n\x01\x7f\u2028é😀</script>', "", "a" * 100_000]
    run = results_of({name: {0: region([i], [i + 1])} for i, name in enumerate(names)}, 'label "\t')
    [path] = export(run, tmp_path / "p", verbose=False)
    text = repr(strict_json(path))
    assert all(repr(name)[1:-1] in text for name in names)
