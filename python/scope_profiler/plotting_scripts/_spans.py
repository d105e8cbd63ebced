"""Calls as spans over time: rows of lanes, and as many spans as there are pixels to see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler.plotting_scripts._inputs import NO_LANE

if TYPE_CHECKING:
    from scope_profiler.plotting_scripts._inputs import Calls
    from scope_profiler.results import ProfilingResults

__all__ = ["Merged", "busiest", "lane_order", "lane_text", "merge_narrow"]

_Ints: TypeAlias = NDArray[np.int64]

#: How many parts of the time axis are told apart: a little more than the pixels it has.
BINS = 2400


class Merged:
    """Spans to draw, those that are narrower than a part of the axis put together. ``together``: how many calls that was."""

    __slots__ = ("end", "name", "row", "start", "together")

    def __init__(self, row: _Ints, name: _Ints, start: _Ints, end: _Ints, together: int) -> None:
        self.row = row
        self.name = name
        self.start = start
        self.end = end
        self.together = together


def merge_narrow(row: _Ints, name: _Ints, start: _Ints, end: _Ints, begin: int, finish: int, bins: int = BINS) -> Merged:
    """Put together the calls of a row that begin in the same part of the axis (from ``begin`` to ``finish``, in ``bins`` parts) and
    are shorter than it. Together they reach from the first start to the last end, as the name that has most of their time."""
    part = max((finish - begin) / bins, 1.0)
    narrow = (end - start) < part
    if not narrow.any():
        return Merged(row, name, start, end, 0)
    wide = ~narrow
    cell = row[narrow] * (bins + 2) + np.clip(((start[narrow] - begin) / part).astype(np.int64), -1, bins) + 1
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    first = np.flatnonzero(np.concatenate(([True], cell[1:] != cell[:-1])))
    starts, ends, names, rows = (values[narrow][order] for values in (start, end, name, row))
    counts = np.diff(np.append(first, len(cell)))
    chosen = _most_time(np.repeat(np.arange(len(first)), counts), names, ends - starts, len(first))
    return Merged(
        np.concatenate((row[wide], rows[first])),
        np.concatenate((name[wide], chosen)),
        np.concatenate((start[wide], np.minimum.reduceat(starts, first))),
        np.concatenate((end[wide], np.maximum.reduceat(ends, first))),
        int(counts[counts > 1].sum()),
    )


def _most_time(cell: _Ints, names: _Ints, durations: _Ints, cells: int) -> _Ints:
    """For each cell the name with the largest sum of durations."""
    width = int(names.max()) + 1
    keys, inverse = np.unique(cell * width + names, return_inverse=True)
    sums = np.bincount(inverse, weights=durations + 1)
    best = np.lexsort((-sums, keys // width))
    owner = (keys // width)[best]
    leaders = best[np.concatenate(([True], owner[1:] != owner[:-1]))]
    chosen: _Ints = (keys % width)[leaders]
    assert len(chosen) == cells
    return chosen


def lane_order(results: ProfilingResults, rank: int, lanes: list[int]) -> list[int]:
    """What has no lane, then each thread with its tasks below it, all by their numbers."""
    threads = {task.index: task.thread_index for task in results.tasks.get(rank, ())}

    def place(lane: int) -> tuple[int, int]:
        if lane >= 0:
            return threads.get(lane, -1), lane + 1
        return (-2 - lane, 0) if lane != NO_LANE else (-2, 0)

    return sorted(lanes, key=place)


def lane_text(results: ProfilingResults, rank: int, lane: int) -> str:
    """A lane's name at the edge of a plot."""
    return "" if lane == NO_LANE else results.lane_label(lane, rank)


def busiest(calls: Calls, limit: int) -> tuple[list[int], int]:
    """The lanes with the most time in outermost calls, at most ``limit``, and how many others there are."""
    lanes, inverse = np.unique(calls.lane, return_inverse=True)
    if len(lanes) <= limit:
        return lanes.tolist(), 0
    outermost = calls.parent < 0
    sums = np.bincount(inverse[outermost], weights=(calls.end_ns - calls.start_ns)[outermost], minlength=len(lanes))
    kept = np.argsort(-sums, kind="stable")[:limit]
    return lanes[kept].tolist(), len(lanes) - limit
