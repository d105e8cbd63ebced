"""Commands with a limit of time and of output."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from other_processes import eventually, is_alive
from scope_profiler.bounded_process import Finished, Stopped, profile_script, run_bounded


def python(source: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", source, *map(str, arguments)]


def test_outputs_and_exit_code_are_handed_over() -> None:
    done = run_bounded(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), 60)
    assert done == Finished(3, "out\n", "err\n")
    assert done.reason == "failed with exit code 3: err"


def test_there_is_no_input() -> None:
    assert run_bounded(python("import sys; print(repr(sys.stdin.read()))"), 60).stdout == "''\n"


def test_of_much_output_the_end_is_kept() -> None:
    source = "import sys\nfor n in range(200_000): print('x' * 98); print('y' * 98, file=sys.stderr)\nprint('end')"
    done = run_bounded(python(source), 120)
    assert done.returncode == 0
    assert len(done.stdout) == 2000 and done.stdout.endswith("x\nend\n")
    assert len(done.stderr) == 2000 and set(done.stderr) == {"y", "\n"}


def test_output_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    assert run_bounded(python("import os; os.write(1, b'a\\xff\\xfeb')"), 60).stdout == "a\ufffd\ufffdb"


GROUP = """
import os, signal, subprocess, sys, time
if {stubborn}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
with open(sys.argv[1] + ".part", "w") as file: file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
print("begun", flush=True)
{rest}
"""


@pytest.mark.parametrize("stubborn", [False, True])
def test_at_the_limit_the_whole_group_ends(tmp_path: Path, stubborn: bool) -> None:
    pids = tmp_path / "pids"
    done = run_bounded(python(GROUP.format(stubborn=stubborn, rest="time.sleep(600)"), pids), 2.0)
    assert done.returncode is None and done.stdout == "begun\n" and done.reason.startswith("took too long")
    for pid in map(int, pids.read_text().split()):
        assert eventually(lambda pid=pid: not is_alive(pid))


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """The child holds the pipes open, too: nobody waits for them."""
    pids = tmp_path / "pids"
    done = run_bounded(python(GROUP.format(stubborn=False, rest=""), pids), 60)
    assert (done.returncode, done.stdout) == (0, "begun\n")
    assert eventually(lambda: not is_alive(int(pids.read_text().split()[1])))


def test_a_command_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    pids, stop = tmp_path / "pids", threading.Event()
    threading.Thread(target=lambda: (eventually(pids.exists), stop.set())).start()
    with pytest.raises(Stopped):
        run_bounded(python(GROUP.format(stubborn=False, rest="time.sleep(600)"), pids), 600, stop)
    for pid in map(int, pids.read_text().split()):
        assert eventually(lambda pid=pid: not is_alive(pid))


def test_an_end_by_a_signal_is_named() -> None:
    assert run_bounded(python("import os; os.kill(os.getpid(), 11)"), 60).reason == "was ended by SIGSEGV"


def test_what_cannot_be_started_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_bounded([str(tmp_path / "none")], 60)


def test_a_script_is_profiled_whatever_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-m").write_text("import sys, scope_profiler as sp\nwith sp.region('r'): print(sys.argv[1:])\n")
    done = profile_script("-m", ["-o", "x y"], "out.h5", timeout=60)
    assert (done.returncode, done.stdout) == (0, "['-o', 'x y']\n"), done
    import scope_profiler as sp

    assert sp.load("out.h5").region_names == ["r"]
