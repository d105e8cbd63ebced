"""Cases that time exports of a stored run of 2 M calls, and their peak memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

import scope_profiler
from whole import CALLS, record, resident


@lru_cache(maxsize=1)
def stored_run() -> Any:
    """Results of a file with CALLS calls, read whole."""
    manager = scope_profiler.ProfileManager
    manager.setup(output="profile.h5")
    record(CALLS)
    manager.finalize(verbose=False)
    manager.reset()
    results = scope_profiler.load("profile.h5")
    for name in results.region_names:
        assert results[name].durations.sum() > 0
    return results


def export(name: str, path: str) -> None:
    getattr(scope_profiler, f"export_{name}")(stored_run(), path, verbose=False)


def timed(name: str, path: str) -> float:
    """s that an export takes."""
    stored_run()
    gc.collect()
    begin = perf_counter_ns()
    export(name, path)
    return (perf_counter_ns() - begin) / 1e9


def speedscope() -> float:
    return timed("speedscope", "p.speedscope.json")


def chrome() -> float:
    return timed("chrome_trace", "p.trace.json")


def prof() -> float:
    return timed("prof", "p.prof")


def json() -> float:
    return timed("json", "p.json")


def svg() -> float:
    return timed("flamegraph_svg", "p.svg")


def perfetto() -> float:
    return timed("perfetto", "p.pftrace")


def folded() -> float:
    return timed("folded", "p.folded")


def csv() -> float:
    return timed("csv", "p.csv")


def peak(do: Callable[[], None]) -> float:
    """MB that memory grows by at most."""
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as control:
        control.write("5")  # the high-water mark begins anew
    before = resident("VmHWM")
    do()
    return (resident("VmHWM") - before) / 1e6


FORMATS = ("speedscope", "chrome_trace", "prof", "json", "flamegraph_svg", "perfetto", "folded", "csv")


def memory() -> float:
    """MB above the run's own, of the format that takes most."""
    stored_run()
    return max(peak(lambda name=name: export(name, f"p.{name}")) for name in FORMATS)  # type: ignore[misc]


def memory_speedscope() -> float:
    """The same of a format that release 0.7.5 writes too."""
    stored_run()
    return peak(lambda: export("speedscope", "p.speedscope.json"))
