"""Calls of one path put together: the call tree as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scope_profiler.call_stack import CallArrays

__all__ = ["NO_LANES", "Tree", "build_tree"]

NO_LANES = -1


class Tree:
    """The paths of one rank, parents before children. Every attribute is an array with one value a path; times in ns.

    ``parent`` is a path, or -1 for the first level; ``awaiting`` is None when the run did not follow tasks. ``path`` alone has one value
    a call: its path. Paths are numbered level by level. ``folded`` has the lanes that stand for several alike, and for how many;
    ``overlaps`` those of which calls overlap, and a sentence about it.
    """

    __slots__ = ("awaiting", "calls", "exclusive", "folded", "inclusive", "lane", "names", "overlaps", "parent", "path", "region")

    def __init__(
        self,
        names: Sequence[str],
        region: np.ndarray,
        parent: np.ndarray,
        lane: np.ndarray,
        calls: np.ndarray,
        inclusive: np.ndarray,
        exclusive: np.ndarray,
        awaiting: np.ndarray | None,
        path: np.ndarray,
    ) -> None:
        self.names = names
        self.region = region
        self.parent = parent
        self.lane = lane
        self.calls = calls
        self.inclusive = inclusive
        self.exclusive = exclusive
        self.awaiting = awaiting
        self.path = path
        self.folded: dict[int, int] = {}
        self.overlaps: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self.parent)

    def lanes(self) -> list[int]:
        """Lane keys: what has no lane first, then threads by index, then tasks by index."""
        keys = [int(key) for key in np.unique(self.lane)]
        return sorted(keys, key=lambda key: (key >= 0, -key if key < 0 else key))

    def children(self) -> dict[int, list[int]]:
        """Paths by their parent, each list in order of the first call. First levels are under ``-1``."""
        below: dict[int, list[int]] = {}
        for path, parent in enumerate(self.parent.tolist()):
            below.setdefault(parent, []).append(path)
        return below


def build_tree(calls: CallArrays, await_ns: np.ndarray | None) -> Tree:
    """Put the calls of one path together. ``await_ns`` is one value a call, in the order of ``calls``, or None.

    One pass a level: at each, a path is the pair of the parent's path and the region.
    """
    count = len(calls)
    lanes = calls.lane if len(calls.lane) else np.full(count, NO_LANES, np.int64)
    lane_keys, lane_index = np.unique(lanes, return_inverse=True)
    path = np.empty(count, np.int64)
    region_of, parent_of, lane_of = [], [], []
    order = np.argsort(calls.depth, kind="stable")
    ends: list[int] = np.cumsum(np.bincount(calls.depth)).tolist()
    begin = known = 0
    for level, end in enumerate(ends):
        members = order[begin:end]
        above = path[calls.parent[members]] if level else lane_index[members]
        key = above * len(calls.names) + calls.region_index[members]
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))  # number the paths in order of their first call
        path[members] = known + rank[inverse.reshape(-1)]
        leaders = members[np.sort(first)]
        region_of.append(calls.region_index[leaders])
        parent_of.append(path[calls.parent[leaders]] if level else np.full(len(leaders), -1, np.int64))
        lane_of.append(lane_keys[lane_index[leaders]])
        begin, known = end, known + len(first)

    def joined(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    by_path = np.argsort(path, kind="stable")
    starts = np.searchsorted(path[by_path], np.arange(known))

    def total(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values[by_path], starts) if known else np.empty(0, np.int64)

    return Tree(
        calls.names,
        joined(region_of),
        joined(parent_of),
        joined(lane_of),
        np.bincount(path, minlength=known),
        total(calls.end_ns - calls.start_ns),
        total(calls.exclusive_ns),
        None if await_ns is None else total(await_ns),
        path,
    )
