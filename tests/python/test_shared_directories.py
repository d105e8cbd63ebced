"""Files that are written where others may write too: nobody else's link is followed, and nobody gets what is not theirs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import scope_profiler as sp

OTHER = 65534  # nobody
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)
    yield lambda mask: (os.umask(mask), None)[1]
    os.umask(before)


def record(output: Path, **options: object) -> None:
    with sp.session(output=output, verbose=False, **options):
        with sp.region("=cmd|' /C calc'!A0"):
            pass


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


EXPORTS = {
    "json": lambda run, path: sp.export_json(run, path, verbose=False),
    "json.gz": lambda run, path: sp.export_json(run, path, verbose=False),
    "csv": lambda run, path: sp.export_csv(run, path, verbose=False),
    "speedscope.json": lambda run, path: sp.export_speedscope(run, path, verbose=False),
    "trace.json": lambda run, path: sp.export_chrome_trace(run, path, verbose=False),
    "prof": lambda run, path: sp.export_prof(run, path, verbose=False),
    "svg": lambda run, path: sp.export_flamegraph_svg(run, path, verbose=False),
    "h5": lambda run, path: sp.write_profile(run, path),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sp.ProfilingResults:
    path = tmp_path_factory.mktemp("run") / "p.h5"
    record(path)
    return sp.load(path)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027, 0o002])
def test_files_get_what_the_umask_leaves(tmp_path: Path, run: sp.ProfilingResults, umask: Callable[[int], None], mask: int) -> None:
    umask(mask)
    record(tmp_path / "session.h5")
    for suffix, export in EXPORTS.items():
        export(run, tmp_path / f"export.{suffix}")
    assert len(os.listdir(tmp_path)) == 1 + len(EXPORTS)
    assert {name: oct(mode(tmp_path / name)) for name in os.listdir(tmp_path)} == dict.fromkeys(os.listdir(tmp_path), oct(0o666 & ~mask))


def test_a_spool_is_for_its_user_alone(tmp_path: Path, umask: Callable[[int], None]) -> None:
    umask(0)
    sp.setup(output=tmp_path / "p.h5")
    [spool] = tmp_path.glob("*.spool")
    assert mode(spool) == 0o600
    sp.reset()


def test_a_file_that_is_replaced_keeps_its_permissions_from_the_first_moment(tmp_path: Path) -> None:
    """The new content lies in a temporary file that nobody can open who could not open the old one."""
    path = tmp_path / "p.h5"
    path.touch(0o600)
    program = (
        "import os, sys, scope_profiler as sp\n"
        "os.umask(0)\n"
        "with sp.session(output=sys.argv[1], verbose=False, spool=False):\n"
        "    with sp.region('a'): pass\n"
    )
    process = subprocess.run(
        ["strace", "-f", "-e", "trace=openat,open", sys.executable, "-c", program, str(path)], capture_output=True, text=True
    ) if _has_strace() else None  # fmt: skip
    if process is not None:
        lines = process.stderr.splitlines()
        [made] = [line for line in lines if "O_TMPFILE" in line and "EOPNOTSUPP" not in line] or [
            line for line in lines if ".tmp" in line and "O_CREAT" in line and "O_EXCL" in line and "O_NOFOLLOW" in line
        ]
        assert "0600" in made
    else:
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert mode(path) == 0o600 and sp.load(path)["a"].num_calls == 1


def _has_strace() -> bool:
    import shutil

    return shutil.which("strace") is not None


@needs_root
@pytest.mark.parametrize("suffix", EXPORTS)
def test_a_link_of_another_user_is_not_followed(shared: Path, tmp_path: Path, run: sp.ProfilingResults, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    probe = tmp_path / "probe"
    probe.mkdir()
    EXPORTS[suffix](run, probe / f"out.{suffix}")
    [name] = os.listdir(probe)  # some formats add the rank
    link = shared / name
    link.symlink_to(victim)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    EXPORTS[suffix](run, shared / f"out.{suffix}")
    assert victim.read_text() == "precious"
    assert not link.is_symlink() and link.stat().st_uid == os.geteuid()
    assert sorted(os.listdir(shared)) == [name]


@needs_root
def test_a_link_of_another_user_in_the_place_of_a_session_s_output(shared: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    output = shared / "p.h5"
    output.symlink_to(victim)
    os.chown(output, OTHER, OTHER, follow_symlinks=False)
    record(output)
    assert victim.read_text() == "precious" and not output.is_symlink()
    assert sp.load(output)["scope_profiler.session"].num_calls == 1


@needs_root
def test_links_in_the_places_of_spools_are_not_followed(shared: Path, tmp_path: Path, python: Callable[..., object]) -> None:
    """The names of spools can be guessed: a link there is left alone, and the next name taken."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    program = """
import os, sys, scope_profiler as sp
shared, victim = sys.argv[1:]
for number in range(1, 6):
    link = f"{shared}/p.h5.{os.getpid()}-{number}.spool"
    os.symlink(victim, link)
    os.chown(link, 65534, 65534, follow_symlinks=False)
sp.setup(output=shared + "/p.h5")
[spool] = [name for name in os.listdir(shared) if not os.path.islink(shared + "/" + name)]
assert spool == f"p.h5.{os.getpid()}-6.spool", spool
with sp.region("a"): pass
assert sp.finalize(verbose=False, return_results=True)["a"].num_calls == 1
"""
    python(program, str(shared), str(victim))
    assert victim.read_text() == "precious" and victim.stat().st_uid == os.geteuid()


@needs_root
def test_a_file_that_another_user_put_there_gives_neither_owner_nor_permissions(
    shared: Path, umask: Callable[[int], None]
) -> None:
    umask(0o077)
    output = shared / "p.h5"
    output.write_text("bait")
    output.chmod(0o666)
    os.chown(output, OTHER, OTHER)
    record(output)
    assert (output.stat().st_uid, mode(output)) == (os.geteuid(), 0o600)


@needs_root
def test_a_file_of_another_user_in_a_directory_of_theirs_stays_theirs(tmp_path: Path) -> None:
    """Root writes into a user's project: the file is still the user's."""
    output = tmp_path / "p.h5"
    output.write_text("old")
    output.chmod(0o640)
    os.chown(output, OTHER, OTHER)
    record(output)
    assert (output.stat().st_uid, mode(output)) == (OTHER, 0o640)


def test_one_s_own_link_is_kept_and_followed(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.h5"
    output = shared / "p.h5"
    output.symlink_to(target)
    record(output)
    assert output.is_symlink() and sp.load(target)["scope_profiler.session"].num_calls == 1


def test_a_spreadsheet_does_not_take_a_name_for_a_formula(tmp_path: Path) -> None:
    import csv

    with sp.session(output=None, verbose=False, return_results=True) as session:
        for name in ("=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "plain"):
            with sp.region(name):
                pass
    path = tmp_path / "p.csv"
    sp.export_csv(session.results, path, verbose=False)
    with path.open(newline="") as file:
        cells = [cell for row in list(csv.reader(file))[1:] for cell in row]
    assert "plain" in cells and "'=1+1" in cells
    for cell in cells:
        if not cell.lstrip("-").replace(".", "").replace("e", "").isdigit():
            assert cell[:1] not in ("=", "+", "-", "@", "\t", "\r"), cell


@needs_root
def test_a_trace_of_allocations_follows_no_link_of_another_user(shared: Path, tmp_path: Path) -> None:
    from scope_profiler import _core

    pytest.importorskip("memray")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = shared / "p.memray.bin"
    link.symlink_to(victim)
    assert not _core.is_planted_link(link)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert _core.is_planted_link(link)
    with pytest.raises(PermissionError, match=r"link of another user.*p\.memray\.bin"):
        sp.setup(output=shared / "p.h5", use_memray=True)
    assert victim.read_text() == "precious" and not sp.is_active()


def test_a_fifo_in_the_place_of_a_spool_is_not_waited_for(shared: Path, python: Callable[..., object]) -> None:
    """Whoever starts a run looks at what another process left beside its output."""
    os.mkfifo(shared / "p.h5.123-1.spool")
    program = "import sys, scope_profiler as sp\nwith sp.session(output=sys.argv[1], verbose=False): pass"
    python(program, str(shared / "p.h5"), timeout=30)
    assert sorted(os.listdir(shared)) == ["p.h5", "p.h5.123-1.spool"]


@pytest.mark.parametrize("command", ["recover", "top"])
def test_a_fifo_is_no_spool(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "p.spool")
    process = subprocess.run(
        [sys.executable, "-m", "scope_profiler", command, str(tmp_path / "p.spool")], capture_output=True, text=True, timeout=30
    )
    assert process.returncode == 2 and "is not a spool" in process.stderr and process.stderr.count("\n") == 1
