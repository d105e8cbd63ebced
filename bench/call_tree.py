"""Cases that time the call tree: processor ns a call of build_call_arrays over 2 M calls."""

from __future__ import annotations

import gc
import random
from functools import lru_cache
from time import process_time_ns
from typing import Any

import numpy as np

from scope_profiler import MPIRegion, ProfileManager, Region, build_call_arrays

CALLS = 2_000_000
REGIONS = 8


def forest(calls: int) -> tuple[list[list[int]], int]:
    """(region, start, end) of calls as a recursive program makes them, up to 12 deep, and when the last of them ended."""
    rng = random.Random(calls)
    rows: list[list[int]] = []
    stack: list[int] = []
    clock = 0
    while len(rows) < calls or stack:
        clock += rng.randrange(100, 2000)
        if len(rows) < calls and (not stack or (len(stack) < 12 and rng.random() < 0.5)):
            stack.append(len(rows))
            rows.append([rng.randrange(REGIONS), clock, 0])
        else:
            rows[stack.pop()][2] = clock
    return rows, clock


@lru_cache(maxsize=1)
def columns(lanes: int, shuffled: bool = False) -> list[MPIRegion]:
    """The same forest again and again, on every lane at once; a region's calls in the order they were entered, or in none."""
    rows, length = forest(min(20_000, CALLS // lanes))
    name, start, end = np.array(rows).T
    copies = np.arange(CALLS // len(rows))
    # A lane goes as many times slower as there are lanes, and they do not start together.
    starts = [(copy // lanes * length + column) * lanes + copy % lanes * 7919 % (1000 * lanes)
              for copy in (copies[:, None],) for column in (start, end)]  # fmt: skip
    start, end = (column.ravel() for column in starts)
    name = np.tile(name, len(copies))
    lane = np.repeat(copies % lanes, len(rows))
    order = np.random.default_rng(1).permutation(len(start)) if shuffled else np.argsort(start, kind="stable")
    regions = []
    for region in range(REGIONS):
        own = order[name[order] == region]
        tracked: dict[str, Any] = {}
        if lanes > 1:
            tracked = {"thread_ids": np.zeros(len(own), np.int64), "task_ids": lane[own]}
        regions.append(MPIRegion(f"region{region}", {0: Region(start[own], end[own], **tracked)}))
    return regions


def timed(regions: list[MPIRegion]) -> float:
    gc.collect()
    begin = process_time_ns()
    calls = build_call_arrays(regions, 0)
    return (process_time_ns() - begin) / len(calls)


def one_lane() -> float:
    return timed(columns(1))


def one_lane_shuffled() -> float:
    return timed(columns(1, shuffled=True))


def many_lanes() -> float:
    return timed(columns(20_000))


@lru_cache(maxsize=1)
def recorded_regions() -> list[MPIRegion]:
    """A run of 2 M calls as it was collected, four deep."""
    ProfileManager.setup(output=None)
    first, second, third, fourth = (ProfileManager.region(name) for name in ("first", "second", "third", "fourth"))
    for _ in range(CALLS // 4):
        with first, second:
            with third:
                pass
            with fourth:
                pass
    results = ProfileManager.finalize(verbose=False, return_results=True)
    ProfileManager.reset()
    assert results is not None
    return list(results.get_regions())


def recorded() -> float:
    return timed(recorded_regions())


def spread() -> float:
    """How many times slower a call is with the worst number of lanes than with the best."""
    found = []
    for lanes in (1, 100, 20_000, 100_000):
        regions = columns(lanes)
        timed(regions)
        found.append(min(timed(regions) for _ in range(3)))
    return max(found) / min(found)
