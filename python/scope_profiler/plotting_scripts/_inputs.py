"""What is plotted: runs with labels, their chosen regions and ranks, and all calls of a run as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler._exports import labelled
from scope_profiler.errors import EventDataUnavailableError
from scope_profiler.mpi_region import MPIRegion
from scope_profiler.results import ProfilingResults

if TYPE_CHECKING:
    from scope_profiler.region_results import Region

__all__ = ["Calls", "Data", "Patterns", "Ranks", "Run", "by_thread", "calls_of", "chosen_runs", "sums_by"]

Data: TypeAlias = ProfilingResults | Sequence[ProfilingResults]
Patterns: TypeAlias = list[str] | str | None
Ranks: TypeAlias = Iterable[int] | int | None
_Ints: TypeAlias = NDArray[np.int64]

NO_LANE = -1


@dataclass
class Run:
    """One profile with its label, and the part of it that is plotted. Regions have the chosen ranks only."""

    label: str
    results: ProfilingResults
    regions: list[MPIRegion]
    ranks: list[int]
    lane: str | None = None  # the thread that the regions are restricted to, with the tasks on it

    @property
    def title(self) -> str:
        """The label, and the thread or the number of ranks."""
        if self.lane is not None:
            return f"{self.label}: {self.lane}"
        return self.label if self.results.num_ranks <= 1 else f"{self.label} ({self.results.num_ranks} ranks)"

    def parts(self) -> Iterable[tuple[MPIRegion, int, Region]]:
        """Every region on every chosen rank that has it."""
        for region in self.regions:
            for rank in region.ranks:
                yield region, rank, region[rank]


def chosen_runs(
    data: Data,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    labels: Sequence[str] | None = None,
    events: str | None = None,
) -> list[Run]:
    """The runs to plot. ``events``: what needs the single calls of the runs, for the error of a profile without them.

    Raises ValueError if there is no run, a rank is in none of them, the labels are not as many as the runs, or no chosen region
    has a call; EventDataUnavailableError for a profile that was read without its calls.
    """
    wanted = None if ranks is None else [ranks] if isinstance(ranks, int) else list(ranks)
    runs = []
    for label, _, results in labelled(data):
        if events is not None:
            results._need_events(events)
        runs.append(_run(label, results, wanted, include, exclude))
    if labels is not None:
        if len(labels) != len(runs):
            raise ValueError(f"there are {len(labels)} labels for {len(runs)} runs")
        for run, label in zip(runs, labels):
            run.label = label
    _check_ranks(wanted, runs)
    if runs and not any(run.regions for run in runs):
        raise ValueError("no region matches the filters" if any(len(r.results) for r in runs) else "there are no regions")
    return runs


def _check_ranks(wanted: list[int] | None, runs: list[Run]) -> None:
    most = max((run.results.num_ranks for run in runs), default=0)
    known = {rank for run in runs for region in run.results for rank in region}
    for rank in wanted or ():
        if rank not in range(max(most, 1)) and rank not in known:
            raise ValueError(f"no rank {rank}: there are {most}")


def _run(label: str, results: ProfilingResults, wanted: list[int] | None, include: Patterns, exclude: Patterns) -> Run:
    regions = []
    for region in results.get_regions(include, exclude):
        kept = {rank: one for rank, one in region.regions.items() if one.num_calls and (wanted is None or rank in wanted)}
        if kept:
            regions.append(MPIRegion(region.name, kept))
    ranks = sorted({rank for region in regions for rank in region})
    return Run(label, results, regions, ranks)


def by_thread(run: Run, limit: int) -> tuple[list[Run], int]:
    """The run once for each of the ``limit`` threads with the most time in regions, and how many others there are.

    The run itself where threads were not tracked, or only one has calls, or there are several ranks.
    """
    if len(run.ranks) != 1:
        return [run], 0
    rank = run.ranks[0]
    if not all(region[rank].has_thread_data for region in run.regions):
        return [run], 0
    spent: dict[int, int] = {}
    for region in run.regions:
        one = region[rank]
        threads, inverse = np.unique(one._required("thread_ids"), return_inverse=True)
        for thread, ns in zip(threads.tolist(), sums_by(inverse, one.durations_ns, len(threads))):
            spent[thread] = spent.get(thread, 0) + ns
    if len(spent) < 2:
        return [run], 0
    kept = sorted(sorted(spent, key=lambda thread: -spent[thread])[:limit])
    runs = []
    for thread in kept:
        regions = []
        for region in run.regions:
            part = region[rank].for_thread(thread)
            if part.num_calls:
                regions.append(MPIRegion(region.name, {rank: part}))
        runs.append(Run(run.label, run.results, regions, [rank], run.results.lane_label(-2 - thread, rank)))
    return runs, len(spent) - len(kept)


@dataclass
class Calls:
    """Calls of one rank as columns, callers first. ``name`` points into ``names``; ``depth`` counts all callers, also those that
    are not shown; ``parent`` is a position here or -1. ``nested`` is False if calls overlap without nesting: then depth and
    parent are those of a flat list and the exclusive time is the whole duration."""

    names: list[str]
    name: _Ints
    start_ns: _Ints
    end_ns: _Ints
    depth: _Ints
    parent: _Ints
    exclusive_ns: _Ints
    lane: _Ints
    call_index: _Ints
    nested: bool

    def __len__(self) -> int:
        return len(self.name)

    @property
    def tracked(self) -> bool:
        """Whether it is known which thread each call was on."""
        return bool(len(self) and (self.lane != NO_LANE).any())

    def where(self, mask: NDArray[np.bool_]) -> Calls:
        """Some of the calls. Callers that are left out are skipped, as far as their own callers are here."""
        return Calls(
            self.names, self.name[mask], self.start_ns[mask], self.end_ns[mask], self.depth[mask], self._parents(mask),
            self.exclusive_ns[mask], self.lane[mask], self.call_index[mask], self.nested,
        )  # fmt: skip

    def _parents(self, mask: NDArray[np.bool_]) -> _Ints:
        above = self.parent.copy()
        while True:
            skipped = (above >= 0) & ~mask[above]
            if not skipped.any():
                break
            above[skipped] = above[above[skipped]]  # twice as far each time
        place = np.cumsum(mask) - 1
        return np.where(above[mask] >= 0, place[above[mask]], -1)


def calls_of(run: Run, rank: int) -> Calls:
    """The chosen calls of a rank, nested among all that were recorded."""
    from scope_profiler._core import NestingError
    from scope_profiler.call_stack import build_lane_arrays

    everything = [region for region in run.results if rank in region and region[rank].num_calls]
    for region in everything:
        if not len(region[rank].start_times_ns):
            raise EventDataUnavailableError(f"{run.label} has no single calls of {region.name!r}, only their sums")
    names = [region.name for region in everything]
    chosen = {region.name for region in run.regions if rank in region}
    try:
        tree, _ = build_lane_arrays(everything, rank)
        lane = tree.lane if len(tree.lane) else np.full(len(tree), NO_LANE, np.int64)
        calls = Calls(
            names, tree.region_index, tree.start_ns, tree.end_ns, tree.depth, tree.parent, tree.exclusive_ns, lane,
            tree.call_index, True,
        )  # fmt: skip
    except NestingError:
        calls = _flat(everything, names, rank)
    if len(chosen) == len(names):
        return calls
    shown = np.array([name in chosen for name in names], bool)
    return calls.where(shown[calls.name])


def _flat(regions: list[MPIRegion], names: list[str], rank: int) -> Calls:
    """Calls by their start, without a tree."""
    from scope_profiler.concurrency import lane_ids

    parts = [region[rank] for region in regions]
    counts = [len(part.start_times_ns) for part in parts]
    start = np.concatenate([part.start_times_ns for part in parts])
    order = np.argsort(start, kind="stable")
    end = np.concatenate([part.end_times_ns for part in parts])[order]
    start = start[order]
    lanes = [
        np.full(count, NO_LANE, np.int64) if part.thread_ids is None else lane_ids(part.thread_ids, part.task_ids)
        for part, count in zip(parts, counts)
    ]
    return Calls(
        names,
        np.repeat(np.arange(len(parts)), counts)[order],
        start,
        end,
        np.zeros(len(start), np.int64),
        np.full(len(start), -1, np.int64),
        end - start,
        np.concatenate(lanes)[order],
        np.concatenate([np.arange(count) for count in counts])[order],
        False,
    )


def sums_by(group: _Ints, values: _Ints, count: int) -> list[int]:
    """Exact sums of ``values`` by the group that each belongs to."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    exact: list[int] = sums.tolist()
    return exact
