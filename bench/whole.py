"""Cases that take a process of their own: imports, the end of a run, memory."""

from __future__ import annotations

import gc
import io
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from typing import Any

CALLS = 2_000_000
MANY_CALLS = 10_000_000
NAMES = 100_000
THREADS = 3_000


def process_time(program: str) -> float:
    """ms that an interpreter takes for ``program``, start and end included."""
    start = perf_counter_ns()
    subprocess.run([sys.executable, "-E", "-c", program], check=True)
    return (perf_counter_ns() - start) / 1e6


def above_bare(program: str) -> float:
    """ms above an interpreter that does nothing; both alternate."""
    return median(process_time(program) - process_time("pass") for _ in range(9))


def import_time() -> float:
    return above_bare("import scope_profiler")


def import_used_time() -> float:
    """The import with what a program takes from it to mark its regions."""
    return above_bare("from scope_profiler import ProfileManager, profile, region, session")


def record(calls: int) -> None:
    """``calls`` calls of four regions, three of them inside the fourth."""
    from scope_profiler import ProfileManager

    outer, *inner = [ProfileManager.region(name) for name in ("outer", "first", "second", "third")]
    first, second, third = inner
    for _ in repeat(None, calls // 4):
        with outer:
            with first:
                pass
            with second:
                pass
            with third:
                pass


def finalize(verbose: bool = False, **settings: Any) -> float:
    """s that writing CALLS calls takes."""
    from scope_profiler import ProfileManager

    ProfileManager.setup(output="profile.h5", **settings)
    record(CALLS)
    start = perf_counter_ns()
    ProfileManager.finalize(verbose=verbose)
    return (perf_counter_ns() - start) / 1e9


def finalize_quiet() -> float:
    return finalize(verbose=False)


def finalize_printed() -> float:
    return finalize(verbose=True)


def finalize_threads() -> float:
    return finalize(track_threads=True)


def finalize_async() -> float:
    return finalize(track_async=True)


def file_size() -> float:
    """Bytes a call of the file with CALLS calls, as written by default."""
    finalize()
    return os.stat("profile.h5").st_size / CALLS


def file_size_async() -> float:
    """The same with the columns of threads, tasks and await time."""
    finalize(track_async=True)
    return os.stat("profile.h5").st_size / CALLS


def irregular_file_size(**settings: Any) -> float:
    """Bytes a call of a file whose CALLS calls, and the gaps between them, have no two lengths alike.

    A clock that is moved by hand gives them to the ns: 100 ns to 1 ms, each power of ten as often as the others, the same in every run.
    """
    from scope_profiler import ProfileManager, _core

    _core._manual_clock(1_000_000)
    ProfileManager.setup(output="profile.h5", **settings)
    uniform, advance = random.Random(1).uniform, _core._advance_clock
    outer, *inner = [ProfileManager.region(name) for name in ("outer", "first", "second", "third")]
    for _ in repeat(None, CALLS // 4):
        with outer:
            for region in inner:
                advance(int(10 ** uniform(2, 6)))
                with region:
                    advance(int(10 ** uniform(2, 6)))
    ProfileManager.finalize(verbose=False)
    return os.stat("profile.h5").st_size / CALLS


def file_size_irregular() -> float:
    return irregular_file_size()


def file_size_irregular_async() -> float:
    return irregular_file_size(track_async=True)


def reading(read: Callable[[str], Any]) -> float:
    """s until the sum of a region of a file with CALLS calls is there."""
    if not os.path.exists("profile.h5"):
        finalize()
    start = perf_counter_ns()
    assert read("profile.h5")["outer"].total_duration > 0
    return (perf_counter_ns() - start) / 1e9


def load() -> float:
    import scope_profiler

    return reading(scope_profiler.load)


def large_file() -> str:
    """A file with MANY_CALLS calls that all sides read: the first one, ours, has made it."""
    from scope_profiler import ProfileManager

    path = os.path.join(os.environ["SCOPE_PROFILER_BENCH_BUILD"], "large.h5")
    if not os.path.exists(path):
        ProfileManager.setup(output=path)
        record(MANY_CALLS)
        ProfileManager.finalize(verbose=False)
        ProfileManager.reset()
    return path


def load_summary() -> float:
    """ms from its path to its printed summary."""
    import scope_profiler

    path = large_file()
    start = perf_counter_ns()
    scope_profiler.load(path).print_summary(stream=io.StringIO())
    return (perf_counter_ns() - start) / 1e6


def read_summary() -> float:
    """ms from its path to statistics of its regions."""
    import scope_profiler

    path = large_file()
    start = perf_counter_ns()
    assert len(scope_profiler.read_h5_summary(path).summary()) == 4
    return (perf_counter_ns() - start) / 1e6


def resident(key: str = "VmRSS") -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM at its peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise LookupError(key)


def warm_up() -> None:
    """Everything imported and every path taken once, so that only what calls need is measured afterwards."""
    from scope_profiler import ProfileManager

    ProfileManager.setup(output="warm.h5")
    record(4000)
    ProfileManager.finalize(verbose=False)
    ProfileManager.reset()
    gc.collect()


def memory_recording() -> float:
    """Bytes a call while recording."""
    from scope_profiler import ProfileManager

    warm_up()
    ProfileManager.setup(output="profile.h5")
    before = resident()
    record(MANY_CALLS)
    return (resident() - before) / MANY_CALLS


def memory_finalize() -> float:
    """Bytes a call at the peak of writing them."""
    from scope_profiler import ProfileManager

    warm_up()
    ProfileManager.setup(output="profile.h5")
    before = resident()
    record(MANY_CALLS)
    ProfileManager.finalize(verbose=False)
    return (resident("VmHWM") - before) / MANY_CALLS


def memory_names() -> float:
    """MB that NAMES regions with one call each take, written once."""
    from scope_profiler import ProfileManager

    warm_up()
    ProfileManager.setup(output="profile.h5")
    before = resident()
    for number in range(NAMES):
        with ProfileManager.region(f"region number {number}"):
            pass
    recorded = resident() - before
    ProfileManager.finalize(verbose=False)
    return recorded / 1e6


def short_threads() -> None:
    from scope_profiler import ProfileManager

    def work() -> None:
        for name in ("one", "two", "three", "four", "five"):
            with ProfileManager.region(name):
                pass

    for _ in range(THREADS):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


def memory_threads() -> float:
    """Bytes a thread that stay after its calls are written: the growth from the second wave of THREADS on."""
    from scope_profiler import ProfileManager

    ProfileManager.setup(output="profile.h5", track_threads=True)
    sizes = []
    for _ in range(4):
        short_threads()
        ProfileManager.finalize(verbose=False)
        gc.collect()
        sizes.append(resident())
    return (sizes[-1] - sizes[0]) / (THREADS * (len(sizes) - 1))
