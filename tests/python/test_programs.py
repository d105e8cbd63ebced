"""Whole programs of the kind that other profilers got wrong, each as a user would write it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import scope_profiler as sp

pytestmark = pytest.mark.usefixtures("clean_manager")

Program = Callable[..., "subprocess.CompletedProcess[str]"]


# -- ending a session while others record ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*never reported:RuntimeWarning")
def test_a_session_may_end_while_threads_record(tmp_path: Path, soak: bool) -> None:
    stop = threading.Event()

    def keep_recording() -> None:
        while not stop.is_set():
            with sp.region("outer"), sp.region("inner"):
                pass

    for number in range(20 if soak else 2):
        stop.clear()
        with sp.session(output=tmp_path / "r.h5", track_threads=True, verbose=False, return_results=True) as run:
            threads = [threading.Thread(target=keep_recording) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.01 * (number + 1))
        stop.set()
        for thread in threads:
            thread.join()
        outer, inner = run.results["outer"][0], run.results["inner"][0]
        for region in (outer, inner):
            columns = (region.durations_ns, region.thread_ids, region.call_ids, region.exclusive_durations_ns)
            assert {len(column) for column in columns} == {region.num_calls}
            assert region.num_calls > 0 and region.durations_ns.min() >= 0
        assert outer.exclusive_durations_ns.min() >= 0
        loaded = sp.load(tmp_path / "r.h5")
        assert loaded["outer"].num_calls == outer.num_calls and loaded["inner"].num_calls == inner.num_calls


ENDS_WITH_DAEMONS = """
import sys, threading, time
import scope_profiler as sp

def forever():
    while True:
        with sp.region("hot"), sp.region("inner"):
            pass

sp.setup(output="daemons.h5", track_threads=True, auto_finalize=True)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 5])
def test_a_process_may_end_while_daemons_record(python: Program, tmp_path: Path, code: int, soak: bool) -> None:
    for _ in range(50 if soak else 2):
        process = python(ENDS_WITH_DAEMONS, str(code), check=False, timeout=60)
        assert process.returncode == code, process.stderr
        assert process.stderr == ""
        assert sp.load(tmp_path / "daemons.h5")["hot"].num_calls > 0


# -- fork --------------------------------------------------------------------------------------------------------------------

FORKS = """
import os, sys, threading, time
import scope_profiler as sp

sys.setswitchinterval(1e-6)
stop = threading.Event()
lasting = len(sys.argv) > 2

def regions(first):
    for i in range(4):
        with sp.region(f"name {(first + i) % 60}"):
            pass

def churn(first):
    while not stop.is_set():
        if lasting:
            regions(first)
        else:
            thread = threading.Thread(target=regions, args=(first,))
            thread.start()
            thread.join()
        first += 1

def child():
    def body():
        for i in range(60):
            with sp.region(f"name {i}"):
                pass
    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)
    # Nothing of this reaches the parent's run, and a run of the child's own starts empty.
    own = sp.ProfileManager()
    with own.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        with own.region("in the child"):
            pass
    names = run.results.region_names
    os._exit(0 if not thread.is_alive() and names == ["scope_profiler.session", "in the child"] else 1)

def wait(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

outcomes = set()
with sp.session(output="fork.h5", track_threads=True, verbose=False, return_results=True) as run:
    churners = [threading.Thread(target=churn, args=(first,)) for first in (0, 20, 40)]
    for thread in churners:
        thread.start()
    for _ in range(int(sys.argv[1])):
        pid = os.fork()
        if pid == 0:
            child()
        outcomes.add(wait(pid))
    stop.set()
    for thread in churners:
        thread.join()
print(outcomes, "in the child" in run.results.region_names)
"""


@pytest.mark.slow
def test_a_child_forked_while_others_record_works(python: Program, soak: bool) -> None:
    # Older address sanitizers do not free their allocator's lock in a forked child. Threads that start or end may hold it at the
    # fork, others only while they hold the GIL.
    sanitized = os.environ.get("SCOPE_PROFILER_SANITIZER") == "address"
    process = python(FORKS, "2000" if soak else "40", *["lasting"] * sanitized, timeout=600)
    assert process.stdout == "{0} False\n"


UNWINDS = """
import os, sys
import scope_profiler as sp

with sp.session(output="parent.h5", verbose=True, return_results=True) as run:
    with sp.region("parent"):
        pid = os.fork()
    with sp.region("both"):
        pass
    if pid:
        os.waitpid(pid, 0)
if pid == 0:
    sys.exit(3)
"""


def test_a_child_that_unwinds_the_session_of_its_parent_writes_and_prints_nothing(
    python: Program, tmp_path: Path
) -> None:
    process = python(UNWINDS)
    assert process.stdout.count("both") == 1, "one summary"
    results = sp.load(tmp_path / "parent.h5")
    assert results["parent"].num_calls == results["both"].num_calls == 1
    assert os.listdir(tmp_path) == ["parent.h5"]


# -- sudden death ------------------------------------------------------------------------------------------------------------

REWRITES = """
import sys, threading
import scope_profiler as sp

def run():
    with sp.session(output="killed.h5", track_threads=True, verbose=False):
        for i in range(3000):
            with sp.region(f"r{i % 7}"):
                pass
run()
print("first", flush=True)
while True:
    run()
"""


@pytest.mark.slow
def test_a_killed_process_leaves_its_last_complete_file(tmp_path: Path) -> None:
    for number in range(8):
        with subprocess.Popen([sys.executable, "-c", REWRITES], cwd=tmp_path, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"first\n"
            time.sleep(0.003 + 0.01 * number)
            process.send_signal(signal.SIGKILL)
        assert sp.load(tmp_path / "killed.h5")["r0"].num_calls == 429
        spools = [name for name in os.listdir(tmp_path) if name.endswith(".spool")]
        others = [name for name in os.listdir(tmp_path) if not name.endswith(".spool")]
        assert len(spools) <= number + 1, "what is to be recovered"
        assert len(others) <= 1 + number + 1, "at most one temporary file a kill"


def test_a_signal_handler_may_enter_a_region() -> None:
    entered = 0

    def handler(number: int, frame: object) -> None:
        nonlocal entered
        entered += 1
        with sp.region("handler"):
            pass

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with sp.session(output=None, track_threads=True, verbose=False, return_results=True) as run:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            region = sp.region("work")
            for _ in range(200_000):
                with region:
                    pass
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert entered > 5
    assert run.results["handler"].num_calls == entered
    assert run.results["work"].num_calls == 200_000


# -- recursion and exceptions --------------------------------------------------------------------------------------------------


def test_exclusive_times_of_a_recursion_add_up_to_its_outermost_call() -> None:
    @sp.profile("down")
    def down(depth: int) -> int:
        return depth if depth == 0 else 1 + down(depth - 1)

    @sp.profile("ping")
    def ping(left: int) -> str:
        return "end" if left == 0 else pong(left - 1)

    @sp.profile("pong")
    def pong(left: int) -> str:
        return "end" if left == 0 else ping(left - 1)

    with sp.session(output=None, verbose=False, return_results=True) as run:
        assert down(200) == 200
        assert ping(9) == "end"
        with pytest.raises(TypeError):
            down("x")  # type: ignore[arg-type]
    recursion = run.results["down"][0]
    assert recursion.num_calls == 202
    first = slice(0, 201)
    assert recursion.exclusive_durations_ns[first].sum() == recursion.durations_ns[first].max()
    ping_region, pong_region = run.results["ping"][0], run.results["pong"][0]
    assert (ping_region.num_calls, pong_region.num_calls) == (5, 5)
    exclusive = ping_region.exclusive_durations_ns.sum() + pong_region.exclusive_durations_ns.sum()
    assert exclusive == ping_region.durations_ns.max()


def test_every_exception_closes_its_calls_and_passes_unchanged() -> None:
    class Odd(BaseException):
        pass

    def raising(error: BaseException) -> None:
        with sp.region("outer"), sp.region("inner"):
            raise error

    errors = [ValueError("v"), KeyboardInterrupt(), SystemExit(4), GeneratorExit(), Odd(1), StopIteration(2)]
    with sp.session(output=None, verbose=False, return_results=True) as run:
        for error in errors:
            with pytest.raises(type(error)) as caught:
                raising(error)
            assert caught.value is error
            assert error.__cause__ is None and error.__context__ is None
        with sp.region("after"):
            pass
    assert run.results["outer"].num_calls == run.results["inner"].num_calls == len(errors)
    depths = {entry["name"]: entry["depth"] for entry in run.results.call_graph()}
    assert depths["after"] == 1


@pytest.mark.filterwarnings("ignore:calls overlap:RuntimeWarning")
def test_generators_that_hold_one_region_keep_their_own_times() -> None:
    def holding() -> object:
        with sp.region("held"):
            yield

    with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        first, second = holding(), holding()
        next(first)
        next(second)
        second_entered = time.perf_counter_ns()
        first.close()
        first_closed = time.perf_counter_ns()
        second.close()
    held = run.results["held"][0]
    (first_start, second_start), (first_end, second_end) = held.start_times_ns.tolist(), held.end_times_ns.tolist()
    slack = 1000  # between the clock of the calls and perf_counter_ns
    assert first_start <= second_start <= second_entered + slack
    assert second_entered - slack <= first_end <= first_closed + slack
    assert first_closed - slack <= second_end
