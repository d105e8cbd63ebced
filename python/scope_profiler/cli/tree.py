"""The call tree of every lane: calls of one path put together, with their inclusive, exclusive and awaiting time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scope_profiler.cli.terminal import Column, Output, one_line, printable, shown_name, table
from scope_profiler.path_tree import NO_LANES, Tree, build_tree

if TYPE_CHECKING:
    from scope_profiler.call_stack import CallArrays
    from scope_profiler.results import MPIRegion, ProfilingResults

__all__ = ["longest_lanes", "print_tree", "tree_values", "trees"]

LANE_LIMIT = 64
OVERLAPS_SHOWN = 5  # lanes whose calls overlap that are named
OVERLAP_RULE = "while both are open, the one that began last has the time as its own"
ALIKE = 5  # so many tasks of one coroutine on one thread are shown as one lane


def _await_column(calls: CallArrays, regions: Sequence[MPIRegion], rank: int) -> np.ndarray | None:
    """The await time of each call, in the order of ``calls``."""
    parts = [region[rank] for region in regions if rank in region]
    if all(part.await_times_ns is None for part in parts):
        return None
    columns = [
        np.zeros(int(part.num_calls), np.int64) if part.await_times_ns is None else np.asarray(part.await_times_ns)
        for part in parts
    ]
    first = np.cumsum([0, *map(len, columns)])[:-1]
    result: np.ndarray = np.concatenate(columns)[first[calls.region_index] + calls.call_index]
    return result


def _fold(results: ProfilingResults, rank: int, calls: CallArrays) -> tuple[CallArrays, dict[int, int]]:
    """The calls with one lane for all tasks of a coroutine on a thread, where there are ``ALIKE`` or more; these lanes, and how many each is."""
    tasks = {int(task.index): task for task in results.tasks.get(rank, ())}
    present = np.unique(calls.lane[calls.lane >= 0]) if tasks else np.empty(0, np.int64)
    groups: dict[tuple[str, str, int], list[int]] = {}
    for lane in present.tolist():
        task = tasks.get(lane)
        if task is not None and task.coro_name:
            groups.setdefault((task.kind, task.coro_name, int(task.thread_index)), []).append(lane)
    alike = [lanes for lanes in groups.values() if len(lanes) >= ALIKE]
    if not alike:
        return calls, {}
    stands = {lane: lanes[0] for lanes in alike for lane in lanes}
    lanes = calls.lane.copy()
    in_task = lanes >= 0
    lanes[in_task] = np.array([stands.get(lane, lane) for lane in present.tolist()])[np.searchsorted(present, lanes[in_task])]
    return calls._replace(lane=lanes), {lanes[0]: len(lanes) for lanes in alike}


def trees(
    results: ProfilingResults, regions: Sequence[MPIRegion], ranks: Iterable[int] | None, *, fold: bool = False
) -> Iterator[tuple[int, Tree | Exception]]:
    """The tree of each rank, or why there is none. ``fold``: tasks that are alike share a lane."""
    from scope_profiler import EventDataUnavailableError, NestingError
    from scope_profiler.call_stack import build_lane_arrays

    for rank in sorted({rank for region in regions for rank in region.ranks}):
        if ranks is not None and rank not in ranks:
            continue
        if any(region[rank].num_calls and not len(region[rank].start_times_ns) for region in regions if rank in region):
            yield rank, EventDataUnavailableError("the profile has no single calls, only their sums")
            continue
        try:
            folded: dict[int, int] = {}
            calls, overlaps = build_lane_arrays(regions, rank)
            if fold:
                calls, folded = _fold(results, rank, calls)
            tree = build_tree(calls, _await_column(calls, regions, rank))
            tree.folded, tree.overlaps = folded, overlaps
            yield rank, tree
        except (NestingError, EventDataUnavailableError) as error:
            yield rank, error


def print_tree(
    results: ProfilingResults,
    regions: Sequence[MPIRegion],
    output: Output,
    *,
    ranks: Sequence[int] | None = None,
    depth: int = 64,
    limit: int | None = None,
) -> bool:
    """A table for every lane. ``depth`` levels and ``limit`` lanes are shown (0: all, and each task by itself). False when a rank has no tree."""
    complete = True
    empty = True
    for rank, tree in trees(results, regions, ranks, fold=limit != 0):
        if isinstance(tree, Exception):
            output.lines([f"rank {rank}: no call tree: {one_line(tree)}", ""])
            complete = empty = False
            continue
        empty = empty and not len(tree)
        below = tree.children()
        lanes = tree.lanes()
        shown = longest_lanes(tree, below, LANE_LIMIT if limit is None else limit)
        roots: dict[int, list[int]] = {}
        for root in below.get(-1, []):
            roots.setdefault(int(tree.lane[root]), []).append(root)
        for lane in lanes:
            if lane in shown:
                _print_lane(results, tree, below, roots[lane], rank, lane, depth, output)
        if len(shown) < len(lanes):
            rest = len(lanes) - len(shown)
            output.lines([f"{rest} more {'lane' if rest == 1 else 'lanes'} with less time (--top 0 shows all)", ""])
        _print_overlaps(results, tree, rank, output)
    if empty:
        output.lines(["  (no calls)", ""])
    return complete


def _print_overlaps(results: ProfilingResults, tree: Tree, rank: int, output: Output) -> None:
    """The lanes whose calls do not nest. Their tables are right as far as they go."""
    for lane, sentence in tree.overlaps[:OVERLAPS_SHOWN]:
        output.lines([one_line(f"{_lane_title(results, rank, results.lane_label(lane, rank))}: {sentence}; {OVERLAP_RULE}"), ""])
    rest = len(tree.overlaps) - OVERLAPS_SHOWN
    if rest > 0:
        output.lines([f"{rest} more {'lane has' if rest == 1 else 'lanes have'} calls that overlap", ""])


def _lane_title(results: ProfilingResults, rank: int, label: str) -> str:
    return f"{results.rank_label(rank)} - {label}" if int(results.num_ranks) > 1 else label


def longest_lanes(tree: Tree, below: dict[int, list[int]], limit: int) -> set[int]:
    """The ``limit`` lanes with the most time in calls; 0: all."""
    totals: dict[int, int] = {}
    for root in below.get(-1, []):
        lane = int(tree.lane[root])
        totals[lane] = totals.get(lane, 0) + int(tree.inclusive[root])
    if limit <= 0 or len(totals) <= limit:
        return set(totals)
    import heapq

    return set(heapq.nlargest(limit, totals, key=lambda lane: totals[lane]))


def _print_lane(
    results: ProfilingResults,
    tree: Tree,
    below: dict[int, list[int]],
    roots: list[int],
    rank: int,
    lane: int,
    depth: int,
    output: Output,
) -> None:
    columns = [
        Column("call tree", flexible=True),
        Column("calls", number=True),
        Column("inclusive [s]", number=True),
        Column("exclusive [s]", number=True),
    ]
    if tree.awaiting is not None:
        columns.append(Column("awaiting [s]", number=True))
    rows = []
    for text, path in _walk(tree, below, roots, depth):
        row = [text]
        if path >= 0:
            times = [tree.inclusive[path], tree.exclusive[path]]
            if tree.awaiting is not None:
                times.append(tree.awaiting[path])
            row += [str(int(tree.calls[path])), *(f"{int(ns) / 1e9:.6f}" for ns in times)]
        rows.append(row + [""] * (len(columns) - len(row)))
    if lane in tree.folded:
        label = _folded_label(results, tree.folded[lane], lane, rank)
    else:
        label = "all calls" if lane == NO_LANES else results.lane_label(lane, rank)
    output.lines([printable(_lane_title(results, rank, label)), *table(columns, rows, output.width), ""])


def _folded_label(results: ProfilingResults, count: int, lane: int, rank: int) -> str:
    task = next(task for task in results.tasks[rank] if int(task.index) == lane)
    label = f"{count} {task.kind}s of {task.coro_name.rsplit('.', 1)[-1]}"
    if task.thread_index >= 0:
        label += f" on {results.lane_label(-2 - int(task.thread_index), rank)}"
    return f"{label} (--top 0 shows each)"


def _walk(tree: Tree, below: dict[int, list[int]], roots: list[int], depth: int) -> Iterator[tuple[str, int]]:
    """Lines of a lane's tree and their paths, depth first; -1 is a line that stands for levels left out."""
    stack = [(root, "", "", 1) for root in reversed(roots)]
    while stack:
        path, branch, prefix, level = stack.pop()
        yield branch + shown_name(tree.names[tree.region[path]]), path
        children = below.get(path, [])
        if not children:
            continue
        if 0 < depth <= level:
            yield f"{prefix}└─ … deeper calls (--depth)", -1
            continue
        last = children[-1]
        for child in reversed(children):
            end = child == last
            stack.append((child, prefix + ("└─ " if end else "├─ "), prefix + ("   " if end else "│  "), level + 1))


def tree_values(
    results: ProfilingResults, regions: Sequence[MPIRegion], ranks: Sequence[int] | None
) -> list[dict[str, Any]]:
    """The trees as JSON has them: for every rank and lane its paths, parents first; ``parent`` is an index into them or None."""
    documents: list[dict[str, Any]] = []
    for rank, tree in trees(results, regions, ranks):
        if isinstance(tree, Exception):
            documents.append({"rank": rank, "error": str(tree)})
            continue
        members: dict[int, list[int]] = {lane: [] for lane in tree.lanes()}
        for path, lane in enumerate(tree.lane.tolist()):
            members[lane].append(path)
        overlaps = dict(tree.overlaps)
        for lane, paths in members.items():
            position = {path: i for i, path in enumerate(paths)}
            documents.append(
                {
                    "rank": rank,
                    "lane": lane,
                    "label": None if lane == NO_LANES else results.lane_label(lane, rank),
                    "paths": [_path_values(tree, path, position) for path in paths],
                }
            )
            if lane in overlaps:
                documents[-1]["overlap"] = overlaps[lane]
    return documents


def _path_values(tree: Tree, path: int, position: dict[int, int]) -> dict[str, Any]:
    values = {
        "name": tree.names[tree.region[path]],
        "parent": position.get(int(tree.parent[path])),
        "calls": int(tree.calls[path]),
        "inclusive": int(tree.inclusive[path]) / 1e9,
        "exclusive": int(tree.exclusive[path]) / 1e9,
    }
    if tree.awaiting is not None:
        values["awaiting"] = int(tree.awaiting[path]) / 1e9
    return values
