"""Callers and callees of a rank, by recorded ids or by nesting, with some regions left out."""

from __future__ import annotations

import numpy as np

from scope_profiler.call_stack import build_call_arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from scope_profiler.call_columns import IntArray
    from scope_profiler.mpi_region import MPIRegion

__all__ = ["call_graph"]


class _Calls:
    """The calls of a rank, callers first: arrays with one value a call. ``parent`` is a position, -1 without a caller."""

    __slots__ = ("call_index", "ids", "parent", "region")

    def __init__(self, ids: IntArray | None, region: IntArray, call_index: IntArray, parent: IntArray) -> None:
        self.ids = ids  # None: not recorded
        self.region = region
        self.call_index = call_index
        self.parent = parent


def _recorded(regions: Sequence[MPIRegion], rank: int) -> _Calls | None:
    """By the recorded ids; None if some call has none, or if they do not put callers first."""
    ids, parents, region, call_index = [], [], [], []
    for number, one in enumerate(regions):
        calls = one[rank]
        if not len(calls.start_times_ns):
            continue
        if calls.call_ids is None or calls.parent_ids is None:
            return None
        ids.append(calls.call_ids)
        parents.append(calls.parent_ids)
        region.append(np.full(len(calls.call_ids), number))
        call_index.append(np.arange(len(calls.call_ids)))
    if not ids:
        return None
    order = np.argsort(np.concatenate(ids), kind="stable")
    number_of = np.concatenate(ids)[order]
    parent_ids = np.concatenate(parents)[order]
    if number_of[0] < 0 or (number_of[1:] == number_of[:-1]).any():
        return None
    parent = np.searchsorted(number_of, parent_ids)
    known = (parent_ids >= 0) & (number_of[np.minimum(parent, len(order) - 1)] == parent_ids)
    parent[~known] = -1
    if (parent >= np.arange(len(order))).any():
        return None
    return _Calls(number_of, np.concatenate(region)[order], np.concatenate(call_index)[order], parent)


def _nested(regions: Sequence[MPIRegion], rank: int) -> _Calls:
    calls = build_call_arrays(regions, rank)
    return _Calls(None, calls.region_index, calls.call_index, calls.parent)


def call_graph(regions: Sequence[MPIRegion], rank: int, chosen: Callable[[str], bool]) -> list[dict[str, Any]]:
    """What ProfilingResults.call_graph() gives for the ``regions`` of a rank, all of them; ``chosen`` says which show."""
    calls = _recorded(regions, rank) or _nested(regions, rank)
    names = [region.name for region in regions]
    visible = [chosen(name) for name in names]
    rows: list[dict[str, Any]] = []
    shown: list[int] = []  # for each call the row of itself or, if it is left out, of its nearest caller that is not; -1: none
    ids = None if calls.ids is None else calls.ids.tolist()
    columns = zip(calls.region.tolist(), calls.call_index.tolist(), calls.parent.tolist())
    for position, (region, call_index, parent) in enumerate(columns):
        above = -1 if parent < 0 else shown[parent]
        if not visible[region]:
            shown.append(above)
            continue
        shown.append(len(rows))
        rows.append(
            {
                "call_id": len(rows) if ids is None else ids[position],
                "parent_id": None if above < 0 else rows[above]["call_id"],
                "name": names[region],
                "call_index": call_index,
                "depth": 0 if above < 0 else rows[above]["depth"] + 1,
            }
        )
    return rows
