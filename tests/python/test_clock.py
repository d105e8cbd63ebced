"""Recorded times are those of time.perf_counter_ns(), to a microsecond, on every processor, however long the run."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import scope_profiler as sp
from scope_profiler import _core

TOLERANCE = 1000  # ns
SECONDS = 600.0 if os.environ.get("SCOPE_PROFILER_SOAK") else 1.5

pytestmark = pytest.mark.uninstrumented


@pytest.fixture
def manager() -> Iterator[type[sp.ProfileManager]]:
    """One of the test's own, that follows nothing afterwards."""
    own = sp.ProfileManager()
    yield own
    own.reset()


def record_between_readings(manager: type[sp.ProfileManager], name: str, cpu: int, until: float, readings: list[tuple[int, ...]]) -> None:
    """Calls of a region on one processor, and what perf_counter_ns() said just before and after their start and end."""
    os.sched_setaffinity(0, {cpu})
    region = manager.region(name)
    clock = time.perf_counter_ns
    while time.monotonic() < until:
        a = clock()
        region.__enter__()
        b = clock()
        region.__exit__(None, None, None)
        c = clock()
        readings.append((a, b, c))
        time.sleep(0.0005 if len(readings) < 2000 else 0.02)


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.timeout(1500)
def test_every_processor_agrees_with_perf_counter(
    manager: type[sp.ProfileManager], tmp_path: Path, checkpoints: bool
) -> None:
    manager.setup(output=tmp_path / "p.h5", track_threads=True, checkpoint="numbered")
    cpus = sorted(os.sched_getaffinity(0))
    readings: dict[str, list[tuple[int, ...]]] = {f"on {cpu}": [] for cpu in cpus}
    until = time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=record_between_readings, args=(manager, f"on {cpu}", cpu, until, readings[f"on {cpu}"]))
        for cpu in cpus
    ]
    for thread in threads:
        thread.start()
    while checkpoints and time.monotonic() < until:
        time.sleep(SECONDS / 10)
        manager.finalize(verbose=False)
    for thread in threads:
        thread.join()
    manager.finalize(verbose=False)
    files = sorted(tmp_path.glob("p*.h5"))
    assert len(files) > 1 or not checkpoints
    for name, times in readings.items():
        calls = sorted(
            pair
            for results in map(sp.load, files) if name in results
            for pair in zip(results[name][0].start_times_ns.tolist(), results[name][0].end_times_ns.tolist())
        )
        assert len(calls) == len(times) > 50
        for (start, end), (a, b, c) in zip(calls, times):
            assert a - TOLERANCE <= start <= b + TOLERANCE
            assert b - TOLERANCE <= end <= c + TOLERANCE


def test_what_happens_later_on_another_thread_has_a_later_time(manager: type[sp.ProfileManager]) -> None:
    """A token goes round between threads on all processors; whoever has it makes one call."""
    manager.setup(output=None, track_threads=True)
    cpus = sorted(os.sched_getaffinity(0)) * 2
    inboxes: list[queue.SimpleQueue[int]] = [queue.SimpleQueue() for _ in cpus]
    rounds = 2000

    def serve(number: int) -> None:
        os.sched_setaffinity(0, {cpus[number]})
        while True:
            turn = inboxes[number].get()
            if turn < rounds:
                with manager.region("turn"):
                    pass
            inboxes[(number + 1) % len(cpus)].put(turn + 1)
            if turn >= rounds:
                return

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(cpus))]
    for thread in threads:
        thread.start()
    inboxes[0].put(0)
    for thread in threads:
        thread.join()
    results = manager.finalize(verbose=False, return_results=True)
    assert results is not None
    region = results["turn"][0]
    calls = sorted(zip(region.start_times_ns.tolist(), region.end_times_ns.tolist(), region.thread_ids.tolist()))
    assert len(calls) == rounds
    assert all(before[1] <= after[0] for before, after in zip(calls, calls[1:]))
    order = [thread for _, _, thread in calls]
    assert all(order[turn] == order[turn % len(cpus)] for turn in range(rounds)), "the turns went round in order"


def in_process(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key != "SCOPE_PROFILER_CLOCK"}
    code = "import scope_profiler as sp\nfrom scope_profiler import _core\nM = sp.ProfileManager\n" + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", code], env={**variables, **environment}, capture_output=True, text=True)


CALL = """
M.setup(output=None{options})
with M.region("a"): pass
print(_core.clock_source())
"""


@pytest.mark.parametrize("clock", ["monotonic", "tsc"])
def test_a_setting_or_the_environment_chooses(clock: str) -> None:
    assert in_process(CALL.format(options=f", clock={clock!r}")).stdout.strip() == clock
    assert in_process(CALL.format(options=""), SCOPE_PROFILER_CLOCK=clock).stdout.strip() == clock
    other = "tsc" if clock == "monotonic" else "monotonic"
    assert in_process(CALL.format(options=f", clock={clock!r}"), SCOPE_PROFILER_CLOCK=other).stdout.strip() == clock
    assert in_process(CALL.format(options=""), SCOPE_PROFILER_CLOCK=" Auto ").stdout.strip() == _core.clock_source()


def test_where_the_kernel_does_not_trust_the_counter_neither_do_we(tmp_path: Path) -> None:
    """In a mount namespace where the kernel says that it uses another clock; the process itself sees no difference."""
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source.exists():
        pytest.skip("the system does not tell its clock source")
    (tmp_path / "other").write_text("hpet\n")
    hidden = ["unshare", "--mount", "sh", "-c", f'mount --bind {tmp_path}/other {source} && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    program = """
import time
import scope_profiler as sp
from scope_profiler import _core
sp.setup(output=None)
before = time.perf_counter_ns()
with sp.region("a"): pass
after = time.perf_counter_ns()
region = sp.finalize(verbose=False, return_results=True)["a"][0]
print(_core.clock_source(), before <= region.start_times_ns[0] <= region.end_times_ns[0] <= after)
"""
    variables = {key: value for key, value in os.environ.items() if key != "SCOPE_PROFILER_CLOCK"}
    done = subprocess.run([*hidden, sys.executable, "-c", program], env=variables, capture_output=True, text=True)
    assert done.stdout.split() == ["monotonic", "True"], done.stderr


def test_what_is_no_clock_is_named() -> None:
    with pytest.raises(ValueError, match="clock must be one of 'auto', 'tsc', 'monotonic', got 'sundial'"):
        sp.ProfileManager().setup(output=None, clock="sundial")
    failed = in_process(CALL.format(options=""), SCOPE_PROFILER_CLOCK="sundial")
    assert failed.returncode and "SCOPE_PROFILER_CLOCK must be one of" in failed.stderr and "'sundial'" in failed.stderr


def test_the_first_run_of_a_process_decides() -> None:
    done = in_process("""
        M.setup(output=None, clock="monotonic")
        other = sp.ProfileManager()
        try:
            other.setup(output=None, clock="tsc")
        except ValueError as error:
            print(error)
        other.setup(output=None, clock="monotonic")
        with other.region("a"): pass
        print(other.finalize(verbose=False, return_results=True)["a"].num_calls)
    """)
    first, second = done.stdout.splitlines()
    assert '"monotonic" since its first run' in first and '"tsc"' in first and second == "1"


def test_the_kernel_clock_agrees_exactly() -> None:
    done = in_process("""
        import time
        M.setup(output=None, clock="monotonic")
        a = time.perf_counter_ns()
        with M.region("a"): b = time.perf_counter_ns()
        c = time.perf_counter_ns()
        region = M.finalize(verbose=False, return_results=True)["a"][0]
        print(a <= region.start_times_ns[0] <= b <= region.end_times_ns[0] <= c)
    """)
    assert done.stdout.strip() == "True", done.stderr
