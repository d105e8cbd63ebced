"""Outputs where none can be, and file systems that lack what others have: told at once, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from scope_profiler.cli import main

pytestmark = pytest.mark.usefixtures("clean_manager")


def make_socket(path: Path) -> None:
    place = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(place)


THINGS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo, "socket": make_socket, "device": lambda path: path.symlink_to("/dev/null"), "directory": Path.mkdir,
}  # fmt: skip


@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_file_is_refused_before_anything_is_recorded(tmp_path: Path, thing: str) -> None:
    output = tmp_path / "p.h5"
    THINGS[thing](output)
    with pytest.raises(ValueError, match=r"file_path: '.*p\.h5' is (not a regular file|a directory)"):
        sp.setup(output=output)
    assert os.listdir(tmp_path) == ["p.h5"] and not sp.is_active()


def test_a_name_that_ends_like_a_directory_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names a directory"):
        sp.setup(output=f"{tmp_path}/p.h5/")


@pytest.mark.parametrize("suffix", ["h5", "json", "csv", "speedscope.json"])
def test_an_export_to_what_is_no_file_says_so(tmp_path: Path, suffix: str) -> None:
    with sp.session(output=None, verbose=False, return_results=True) as run:
        pass
    target = tmp_path / f"p.{suffix}"
    os.mkfifo(target)
    export: Callable[..., Any] = {
        "h5": sp.write_profile, "json": sp.export_json, "csv": sp.export_csv, "speedscope.json": sp.export_speedscope,
    }[suffix]  # fmt: skip
    with pytest.raises(OSError, match="it is not a regular file"):
        export(run.results, target)
    assert os.listdir(tmp_path) == [target.name]


@pytest.mark.parametrize("way", ["circle", "to nowhere"])
def test_links_that_lead_nowhere_are_one_warning_at_the_start_and_can_be_mended(tmp_path: Path, way: str) -> None:
    output = tmp_path / "p.h5"
    output.symlink_to("p.h5" if way == "circle" else "missing/p.h5")
    with pytest.warns(RuntimeWarning, match=r"p\.h5 cannot be written now \(.*\): it must be possible at finalize") as told:
        sp.setup(output=output)
    assert len(told) == 1
    with sp.region("a"):
        pass
    with pytest.raises(OSError):
        sp.finalize(verbose=False)
    output.unlink()
    sp.finalize(verbose=False)
    sp.reset()
    assert sp.load(output)["a"].num_calls == 1 and os.listdir(tmp_path) == ["p.h5"]


def test_a_working_directory_that_is_gone_is_one_warning_and_loses_nothing(tmp_path: Path, python: Callable[..., Any]) -> None:
    program = """
import os, sys, scope_profiler as sp
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
sp.setup(output="p.h5")
with sp.region("a"): pass
try: sp.finalize(verbose=False)
except OSError as error: print(error)
os.chdir(sys.argv[1])
sp.finalize(verbose=False)
"""
    process = python(program, str(tmp_path))
    assert process.stderr.count("RuntimeWarning") == 1 and "there is no working directory to write p.h5 to" in process.stderr
    assert "p.h5" in process.stdout and sp.load(tmp_path / "p.h5")["a"].num_calls == 1


# -- files that are written ------------------------------------------------------------------------------------------------

WRITES = """
import os, sys, scope_profiler as sp
sp.setup(output=sys.argv[1], spool=False)
region = sp.region("x")
for _ in range(300_000):
    with region: pass
print("recorded", flush=True)
sp.finalize(verbose=False)
"""


def has_files_without_a_name(directory: Path) -> bool:
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_who_is_killed_while_it_writes_leaves_nothing_behind(tmp_path: Path, old: bool) -> None:
    if not has_files_without_a_name(tmp_path):
        pytest.skip("this file system has no files without a name")
    output = tmp_path / "p.h5"
    for number in range(5):
        if old:
            output.write_text("old")
        with subprocess.Popen([sys.executable, "-c", WRITES, str(output)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"recorded\n"
            time.sleep(0.003 * number)
            process.send_signal(signal.SIGKILL)
        assert os.listdir(tmp_path) == (["p.h5"] if output.exists() else [])
        if output.exists() and output.read_bytes() != b"old":
            assert sp.load(output)["x"].num_calls == 300_000
            output.unlink()


# The kernel is told (by seccomp) to refuse a system call where a bit of an argument is set, from `refuse()` on.
REFUSE = """
import ctypes, errno, os, struct, sys
def refuse():
    call, error = sys.argv[2:]
    arm = os.uname().machine == "aarch64"
    number, argument, bit = {
        "openat": (56 if arm else 257, 2, os.O_TMPFILE & ~os.O_DIRECTORY), "linkat": (37 if arm else 265, 4, 0x400),
    }[call]
    steps = [
        (0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16 + 8 * argument), (0x45, 0, 1, bit),
        (0x06, 0, 0, 0x50000 | getattr(errno, error)), (0x06, 0, 0, 0x7fff0000),
    ]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0, ctypes.get_errno()
import os"""

PLACES = {
    # What openat() and linkat() say where a file cannot be made without a name, or not be given one.
    "no files without a name": ("openat", "EOPNOTSUPP"), "no names for them": ("linkat", "EPERM"),
}  # fmt: skip


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_other_file_systems(tmp_path: Path, place: str, old: bool) -> None:
    call, error = PLACES[place]
    output = tmp_path / "p.h5"
    if old:
        output.write_text("old")
        output.chmod(0o640)
    program = REFUSE + WRITES.strip().removeprefix("import os").replace("300_000", "100").replace("sp.finalize", "refuse(); sp.finalize")
    process = subprocess.run([sys.executable, "-c", program, str(output), call, error], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert sp.load(output)["x"].num_calls == 100 and os.listdir(tmp_path) == ["p.h5"]
    if old:
        assert output.stat().st_mode & 0o777 == 0o640


# -- spools of processes that recorded nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize("written", [False, True])
def test_a_spool_without_a_call_goes_without_a_word_at_the_next_start(tmp_path: Path, python: Callable[..., Any], written: bool) -> None:
    """Servers end by their own signal: what they had open is left, though there is nothing in it."""
    output = tmp_path / "p.h5"
    program = "import os, signal, sys, scope_profiler as sp\nsp.setup(output=sys.argv[1])\n"
    if written:
        program += "with sp.region('a'): pass\nsp.finalize(verbose=False)\n"
    process = python(program + "os.kill(os.getpid(), signal.SIGTERM)", str(output), check=False)
    assert process.returncode == -signal.SIGTERM
    [left] = tmp_path.glob("*.spool")
    again = python("import sys, scope_profiler as sp\nwith sp.session(output=sys.argv[1], verbose=False): pass", str(output))
    assert again.stderr == ""
    assert os.listdir(tmp_path) == ["p.h5"], f"{left.name} is gone"


def test_a_spool_with_a_call_stays_and_is_told(tmp_path: Path, python: Callable[..., Any]) -> None:
    output = tmp_path / "p.h5"
    program = (
        "import os, signal, sys, scope_profiler as sp\nsp.setup(output=sys.argv[1])\n"
        "with sp.region('a'):\n  os.kill(os.getpid(), signal.SIGTERM)"
    )
    python(program, str(output), check=False)
    [left] = tmp_path.glob("*.spool")
    again = python("import sys, scope_profiler as sp\nwith sp.session(output=sys.argv[1], verbose=False): pass", str(output))
    assert f"scope-profiler recover {left}" in again.stderr and left.exists()
    assert main(["recover", str(left)]) == 0


# -- standard streams ------------------------------------------------------------------------------------------------------


def without_streams(tmp_path: Path, program: str, *closed: int) -> subprocess.CompletedProcess[bytes]:
    closes = " ".join(f"{number}>&-" for number in closed)
    return subprocess.run(["bash", "-c", f'exec "$0" -c "$1" {closes}', sys.executable, program], cwd=tmp_path, capture_output=True)


def test_what_is_printed_to_a_closed_stream_does_not_get_into_a_file(tmp_path: Path) -> None:
    """The next files of a process without standard streams get their numbers."""
    program = """
import os, signal, scope_profiler as sp
sp.setup(output="p.h5")
for _ in range(10):
    with sp.region("a"): pass
for number in (0, 1, 2):
    try: os.write(number, b"an error message " * 1000)
    except OSError: pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    without_streams(tmp_path, program, 0, 1, 2)
    [spool] = tmp_path.glob("*.spool")
    found = sp.load(spool)
    assert found["a"].num_calls == 10 and "recovered_damaged_bytes" not in found.metadata


@pytest.mark.parametrize("closed", [[1], [0, 1, 2]])
def test_a_session_without_a_standard_output_prints_nothing_and_goes_well(tmp_path: Path, closed: list[int]) -> None:
    program = "import scope_profiler as sp\nwith sp.session(output='p.h5'):\n  with sp.region('a'): pass\nopen('fine', 'w').close()"
    process = without_streams(tmp_path, program, *closed)
    assert (process.returncode, process.stderr) == (0, b"")
    assert sorted(os.listdir(tmp_path)) == ["fine", "p.h5"]


@pytest.mark.parametrize(("way", "told"), [("full", "cannot print the summary: No space left on device"), ("pipe", ""), ("closed", "")])
def test_a_summary_that_cannot_be_printed_is_no_failure_of_the_program(tmp_path: Path, way: str, told: str) -> None:
    program = """
import io, os, sys, scope_profiler as sp
class Full(io.StringIO):
    def write(self, text): raise OSError(28, os.strerror(28))
class Pipe(io.StringIO):
    def write(self, text): raise BrokenPipeError(32, os.strerror(32))
if WAY == "closed": sys.stdout.close()
else: sys.stdout = Full() if WAY == "full" else Pipe()
with sp.session(output="p.h5"):
    with sp.region("a"): pass
open("fine", "w").close()
os._exit(0)
"""
    process = subprocess.run([sys.executable, "-c", f"WAY = {way!r}\n{program}"], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0 and sorted(os.listdir(tmp_path)) == ["fine", "p.h5"]
    assert told in process.stderr and bool(process.stderr) == bool(told)


def test_run_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text("import sys, scope_profiler as sp\nwith sp.session(output=sys.argv[1], verbose=False):\n  with sp.region('a'): pass")
    command = 'mkdir gone; cd gone; rmdir ../gone; exec "$0" -m scope_profiler run -o "$1/run.h5" "$1/app.py" "$1/p.h5"'
    process = subprocess.run(["bash", "-c", command, sys.executable, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert sp.load(tmp_path / "p.h5")["a"].num_calls == 1


@pytest.mark.parametrize("suffix", ["spt", "sps"])
def test_native_traces_are_read_from_regular_files_only(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"t.{suffix}"
    os.mkfifo(path)
    assert main(["import-native", str(path), "-o", str(tmp_path / "p.h5")]) == 2
    assert capsys.readouterr().err.splitlines() == [f"scope-profiler: {path} is not a regular file"]
