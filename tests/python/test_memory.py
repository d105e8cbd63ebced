"""What recording costs in memory, each measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.uninstrumented

Program = Callable[..., "subprocess.CompletedProcess[str]"]

MIB = 1 << 20

# resident() is the memory that the process has now, peak() the most it had since reset_peak(), allocated() what of it is in use by
# malloc's callers. All in bytes.
TOOLS = """
import ctypes, gc, json, os, sys, threading
import numpy
import scope_profiler as sp

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))

def resident():
    gc.collect()
    return status("VmRSS")

def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

def peak():
    return status("VmHWM")

class MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

def allocated():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0  # not glibc
    libc.mallinfo2.restype = MallInfo
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd

size = int(sys.argv[1]) if len(sys.argv) > 1 else 0
"""


def measure(python: Program, source: str, size: int = 0) -> dict[str, Any]:
    process = python(TOOLS + source, str(size), timeout=1800)
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


CALLS = """
def warm(count):
    with sp.session(output="warm.h5", verbose=False, track_threads=TRACKED):
        region = sp.region("r")
        for _ in range(count):
            with region: pass

warm(1000)
run = sp.setup(output="calls.h5", track_threads=TRACKED)
regions = [sp.region(f"r{i}") for i in range(8)]
before = resident()
for _ in range(size // 8):
    with regions[0]:
        with regions[1], regions[2], regions[3]: pass
        with regions[4]:
            with regions[5]:
                with regions[6]: pass
        with regions[7]: pass
recorded = resident()
reset_peak()
sp.finalize(verbose=False)
highest = peak()
after = resident()
print(json.dumps({name: (value - before) / size for name, value in
                  {"recorded": recorded, "peak": highest, "after": after}.items()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("tracked", [False, True])
def test_a_call_takes_32_bytes_while_recording_and_60_at_the_peak_of_finalize(
    python: Program, soak: bool, tracked: bool
) -> None:
    # A fixed cost of a few hundred kB is no matter in a run of millions: the reduced form allows for it.
    size, fixed = (10_000_000, 0.0) if soak else (2_000_000, 2.0)
    per_call = measure(python, CALLS.replace("TRACKED", str(tracked)), size)
    assert per_call["recorded"] <= 32 + fixed
    assert per_call["peak"] <= 60 + fixed
    assert per_call["after"] <= 4 + fixed, "what is written leaves memory"


NAMES = """
with sp.session(output="warm.h5", verbose=False):
    with sp.region("warm"): pass
before = resident()
with sp.session(output="names.h5", verbose=False):
    for i in range(size):
        with sp.region(f"module.function_{i}"): pass
    used = resident() - before
    reset_peak()
print(json.dumps({"used": used, "peak": peak() - before, "rows": len(sp.read_h5_summary("names.h5"))}))
"""


@pytest.mark.slow
def test_a_hundred_thousand_region_names_take_100_mb_and_120_in_finalize_at_most(python: Program, soak: bool) -> None:
    size = 100_000 if soak else 20_000
    used = measure(python, NAMES, size)
    assert used["rows"] == size + 1
    fixed = 0 if soak else 4 * MIB
    assert used["used"] <= 100e6 * size / 100_000 + fixed
    assert used["peak"] <= 120e6 * size / 100_000 + fixed


THREADS = """
def work():
    for i in range(5):
        with sp.region(f"r{i}"): pass

def batch(count):
    for _ in range(count):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

sp.setup(output="threads.h5", track_threads=True)
batch(200)
sp.finalize(verbose=False)
before = resident(), allocated()
levels, in_use = [], []
for _ in range(4):
    batch(size)
    sp.finalize(verbose=False)
    levels.append(resident() - before[0])
    in_use.append(allocated() - before[1])
results = sp.finalize(verbose=False, return_results=True)
print(json.dumps({"levels": levels, "in_use": in_use, "rows": len(results.threads[0])}))
"""


@pytest.mark.slow
def test_short_threads_leave_nothing_but_their_rows(python: Program) -> None:
    size = 3_000
    measured = measure(python, THREADS, size)
    assert measured["rows"] == 4 * size + 200 + 1
    # A row: its numbers, its name, its place in the table. Each batch adds its rows and no more.
    for number, in_use in enumerate(measured["in_use"], 1):
        assert in_use <= number * size * 200 + 0.5 * MIB, measured
    # malloc keeps a few pages between what stays.
    assert max(measured["levels"]) <= 4 * size * 200 + 5 * MIB, measured


SESSIONS = """
def work():
    with sp.region("in a thread"): pass

def sessions(count):
    for i in range(count):
        with sp.session(output="s.h5" if i % 10 == 0 else None, verbose=False, track_threads=i % 2 == 0, return_results=True):
            for j in range(20):
                with sp.region(f"region {j}"): pass
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

sessions(size // 5)
first = resident()
sessions(size * 2 // 5)
second = resident()
sessions(size * 2 // 5)
third = resident()
print(json.dumps({"growth": [second - first, third - second]}))
"""


@pytest.mark.slow
def test_a_thousand_sessions_keep_memory_flat(python: Program, soak: bool) -> None:
    growth = measure(python, SESSIONS, 10_000 if soak else 1_000)["growth"]
    assert growth[0] <= 2 * MIB and growth[1] <= MIB // 2, growth


MANAGERS = """
def managers(count):
    for _ in range(count):
        manager = sp.ProfileManager()
        with manager.session(output=None, verbose=False, track_threads=True, return_results=True) as run:
            for j in range(20):
                with manager.region(f"region {j}"): pass
        del manager, run

managers(size // 5)
first = resident()
managers(size)
print(json.dumps({"growth": resident() - first}))
"""


@pytest.mark.slow
def test_independent_managers_are_freed(python: Program) -> None:
    assert measure(python, MANAGERS, 1_000)["growth"] <= 2 * MIB


DECORATED = """
sp.setup(output=None)

def define(count):
    for i in range(count):
        @sp.profile("inner")
        def inner(): return 1
        inner()

define(2_000)
before = resident()
define(size)
print(json.dumps({"growth": (resident() - before) / size}))
"""


@pytest.mark.slow
def test_decorated_inner_functions_are_released(python: Program) -> None:
    # 24 bytes is what each call's record takes.
    assert measure(python, DECORATED, 100_000)["growth"] <= 24 + 30


KEPT_RESULTS = """
def one():
    with sp.session(output=None, verbose=False, return_results=True) as run:
        region = sp.region("r")
        for _ in range(size):
            with region: pass
    return run.results

one()
before = resident()
results = one()
held = resident() - before
starts = results["r"][0].start_times_ns
del results
kept_by_array = resident() - before
del starts
print(json.dumps({"held": held / size, "kept_by_array": kept_by_array / size, "freed": (resident() - before) / size}))
"""


@pytest.mark.slow
def test_results_hold_their_columns_once_and_free_them(python: Program) -> None:
    measured = measure(python, KEPT_RESULTS, 1_000_000)
    # start, end, call id, parent id: 32 bytes in an untracked run, and what the session still keeps of it.
    assert measured["held"] <= 60
    assert measured["kept_by_array"] <= 60
    assert measured["freed"] <= 4, measured
