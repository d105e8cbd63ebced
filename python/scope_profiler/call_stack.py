"""Which call encloses which: the call tree of recorded intervals.

A region stores when each of its calls started and ended. What called what follows from that: within one lane (a thread, an
asyncio task or a greenlet) a call is the child of the innermost call that was open when it started. The functions here
build that tree for one rank, as arrays (:func:`build_call_arrays`) or as one dict per call (:func:`build_call_stack`).

The work is done in C, in time proportional to the number of calls, whatever the number of lanes.

Rules for calls that meet:

* of calls that start together, the longer encloses the shorter; identical intervals nest in the order given;
* calls that touch are siblings; a child may end together with its parent;
* a call of zero length at the start of another is its child; at the end of another it is a sibling, or the child of what starts
  there; several at one instant nest in each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scope_profiler import _core
from scope_profiler._core import NestingError

__all__ = [
    "CallArrays",
    "NestingError",
    "build_call_arrays",
    "build_call_stack",
    "call_stack_children",
    "call_stack_roots",
    "exclusive_totals_ns",
    "split_by_lane",
]

_Int64 = npt.NDArray[np.int64]

_NO_LANE = -1


class _Columns(NamedTuple):
    names: list[str]
    source_files: list[str | None]
    source_lines: list[int | None]
    region_index: _Int64
    call_index: _Int64
    start_ns: _Int64
    end_ns: _Int64
    depth: _Int64
    parent: _Int64
    exclusive_ns: _Int64
    lane: _Int64 = np.empty(0, dtype=np.int64)


class CallArrays(_Columns):
    """The calls of one rank in call order: by start, and parents before their children.

    ``len()`` is the number of calls. All arrays are int64 and have one value per call, except ``lane``, which is empty when no
    region recorded threads: then all calls are one stack.

    Attributes
    ----------
    names, source_files, source_lines : list
        Of the regions, in the order they were given; ``region_index`` points into these.
    region_index, call_index : array
        Which region a call is of, and its place among the recorded calls of that region.
    start_ns, end_ns : array
        Absolute nanoseconds, as recorded.
    depth : array
        0 for a call that nothing encloses.
    parent : array
        Position of the enclosing call in these arrays; -1 if there is none.
    exclusive_ns : array
        Duration less the durations of the direct children.
    lane : array
        The stack a call is on: its task if that is not negative, else ``-2 - thread``; -1 when neither is known.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.start_ns)

    # A named tuple checks the length of what it makes, and ours is the number of calls.
    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> CallArrays:  # type: ignore[override]
        return cls(*iterable)


def _array(view: Any) -> _Int64:
    return np.frombuffer(view, dtype=np.int64) if len(view) else np.empty(0, dtype=np.int64)


def _int64(values: Any) -> _Int64:
    return np.ascontiguousarray(values, dtype=np.int64)


def _columns_of(start: Any, end: Any, threads: Any, tasks: Any, ids: Any = None) -> tuple[Any, ...]:
    return (
        _int64(start),
        _int64(end),
        None if threads is None else _int64(threads),
        None if threads is None or tasks is None else _int64(tasks),
        None if ids is None or len(ids) != len(start) else _int64(ids),
    )


def build_call_arrays(regions: Iterable[Any], rank: int) -> CallArrays:
    """Nest the calls of one rank.

    Parameters
    ----------
    regions : iterable of MPIRegion
        What to include, for example ``results.get_regions()``. Regions that the rank has not entered are skipped.
    rank : int
        Whose calls.

    Returns
    -------
    CallArrays
        Empty when the rank has no calls.

    Raises
    ------
    NestingError
        If a call ends before it starts, or starts inside another of its lane and ends after it. The message names both calls
        and their intervals. Threads or tasks recorded without ``track_threads`` or ``track_async`` are the usual reason.
    ValueError
        If the columns of a region have different lengths.
    """
    return _arrays([region for region in regions if rank in region], rank, clamp=False)


def build_lane_arrays(regions: Iterable[Any], rank: int) -> tuple[CallArrays, list[tuple[int, str]]]:
    """Nest the calls of one rank, lane by lane; and the lanes of which calls overlap, with a sentence about the first two.

    Lanes that nest are as :func:`build_call_arrays` has them. On the others a call that outlives the one it starts in stands beside that
    one, and every instant is the exclusive time of the open call that began last, as in exports.

    Raises
    ------
    NestingError
        As :func:`build_call_arrays`, for a run that did not record lanes.
    """
    present = [region for region in regions if rank in region]
    try:
        return _arrays(present, rank, clamp=False), []
    except NestingError:
        if all(region[rank].thread_ids is None for region in present):
            raise
    return _arrays(present, rank, clamp=True), _core.call_overlaps(_columns(present, rank), [region.name for region in present])


def _columns(present: Sequence[Any], rank: int) -> list[tuple[Any, ...]]:
    ranked = [region[rank] for region in present]
    return [_columns_of(one.start_times_ns, one.end_times_ns, one.thread_ids, one.task_ids, one.call_ids) for one in ranked]


def _arrays(present: Sequence[Any], rank: int, *, clamp: bool) -> CallArrays:
    names = [region.name for region in present]
    region, call, start, end, depth, parent, exclusive, lane = _core.call_tree(_columns(present, rank), names, clamp)
    return CallArrays(
        names,
        [one[rank].source_file for one in present],
        [one[rank].source_lineno for one in present],
        _array(region),
        _array(call),
        _array(start),
        _array(end),
        _array(depth),
        _array(parent),
        _array(exclusive),
        np.empty(0, dtype=np.int64) if lane is None else _array(lane),
    )


def _origin_ns(calls: CallArrays, origin: float) -> int:
    """``origin`` in ns; exact where it is the start of the first call, so that this call starts at 0."""
    if len(calls) and int(calls.start_ns[0]) / 1e9 == origin:
        return int(calls.start_ns[0])
    return round(origin * 1e9)


def build_call_stack(regions: Iterable[Any], rank: int, origin: float = 0.0) -> list[dict[str, Any]]:
    """Nest the calls of one rank, as one dict per call.

    Convenient for walking; a dict takes about a kilobyte, so use :func:`build_call_arrays` for large runs.

    Parameters
    ----------
    regions : iterable of MPIRegion
        What to include.
    rank : int
        Whose calls.
    origin : float, optional
        Seconds that become time zero, for example ``results.minimum_start_time``.

    Returns
    -------
    list of dict
        In call order, with the keys ``call_id`` (the position in this list), ``name``, ``call_index``, ``start``, ``end``,
        ``duration``, ``inclusive_duration``, ``exclusive_duration`` (seconds), ``depth``, ``parent`` (a ``call_id`` or None),
        ``call_path`` (the names from the root on, joined with ``" > "``), ``source_file``, ``source_lineno``, ``lane`` (-1 if no
        region recorded threads) and ``color``.

    Raises
    ------
    NestingError
        As :func:`build_call_arrays`.
    """
    regions = [region for region in regions if rank in region]
    calls = build_call_arrays(regions, rank)
    colors = [getattr(region, "color", None) for region in regions]
    zero = _origin_ns(calls, origin)
    lanes = calls.lane.tolist() if len(calls.lane) else [_NO_LANE] * len(calls)
    stack: list[dict[str, Any]] = []
    rows = zip(
        calls.region_index.tolist(),
        calls.call_index.tolist(),
        calls.start_ns.tolist(),
        calls.end_ns.tolist(),
        calls.depth.tolist(),
        calls.parent.tolist(),
        calls.exclusive_ns.tolist(),
        lanes,
    )
    for region, call, start, end, depth, parent, exclusive, lane in rows:
        name = calls.names[region]
        duration = (end - start) / 1e9
        stack.append(
            {
                "call_id": len(stack),
                "name": name,
                "call_index": call,
                "start": (start - zero) / 1e9,
                "end": (end - zero) / 1e9,
                "duration": duration,
                "inclusive_duration": duration,
                "exclusive_duration": exclusive / 1e9,
                "depth": depth,
                "parent": None if parent < 0 else parent,
                "call_path": name if parent < 0 else f"{stack[parent]['call_path']} > {name}",
                "source_file": calls.source_files[region],
                "source_lineno": calls.source_lines[region],
                "lane": lane,
                "color": colors[region],
            }
        )
    return stack


def call_stack_roots(calls: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of the calls of :func:`build_call_stack` that nothing encloses."""
    return [index for index, call in enumerate(calls) if call["parent"] is None]


def call_stack_children(calls: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """For each call of :func:`build_call_stack`, the positions of its direct children, in call order."""
    children: list[list[int]] = [[] for _ in calls]
    for index, call in enumerate(calls):
        if call["parent"] is not None:
            children[call["parent"]].append(index)
    return children


def split_by_lane(calls: CallArrays) -> list[tuple[int, CallArrays]]:
    """The calls of each lane on their own.

    Returns
    -------
    list of (int, CallArrays)
        Lanes ascending: threads from the highest number down, then tasks. ``parent`` points into the arrays of the lane; a
        lane's calls stay in call order. Without a lane column there is one entry, with key -1; without calls there is none.
    """
    if len(calls) == 0:
        return []
    if len(calls.lane) == 0:
        return [(_NO_LANE, calls)]
    order = np.argsort(calls.lane, kind="stable")
    lanes = calls.lane[order]
    first = np.flatnonzero(np.concatenate(([True], lanes[1:] != lanes[:-1])))
    if len(first) == 1:
        return [(int(lanes[0]), calls)]
    ends = np.append(first[1:], len(order))
    inside = np.empty(len(order), dtype=np.int64)  # place of each call in its lane
    inside[order] = np.arange(len(order)) - np.repeat(first, ends - first)
    parent = calls.parent[order]
    parent = np.where(parent < 0, -1, inside[parent])
    moved = [column[order] for column in (calls.region_index, calls.call_index, calls.start_ns, calls.end_ns, calls.depth)]
    moved += [parent, calls.exclusive_ns[order], lanes]
    return [
        (int(lanes[a]), CallArrays(*calls[:3], *(column[a:b] for column in moved)))
        for a, b in zip(first.tolist(), ends.tolist())
    ]


def exclusive_totals_ns(regions: Mapping[str, Sequence[Any]], rank: int = 0) -> dict[str, int]:
    """Exclusive nanoseconds of each region, summed over its calls.

    Parameters
    ----------
    regions : mapping
        Name -> arrays in the order of :class:`~scope_profiler.results.Region`'s parameters: starts and ends first, threads
        and tasks (optional) at places 5 and 6.
    rank : int, optional
        Accepted for compatibility; the numbers do not depend on it.

    Raises
    ------
    NestingError
        As :func:`build_call_arrays`.
    """
    names = list(regions)
    columns = []
    for arrays in regions.values():
        threads = arrays[5] if len(arrays) > 5 else None
        tasks = arrays[6] if len(arrays) > 6 else None
        columns.append(_columns_of(arrays[0], arrays[1], threads, tasks))
    region, _, _, _, _, _, exclusive, _ = _core.call_tree(columns, names)
    totals = np.zeros(len(names), dtype=np.int64)
    np.add.at(totals, _array(region), _array(exclusive))
    return dict(zip(names, totals.tolist()))
