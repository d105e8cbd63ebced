"""The printed summary of a run: its regions by call path, what its threads and tasks did, and notes.

The sums come from one pass in C (``_core.path_summary``), so a summary costs a few ns a call and needs no numpy.
"""

from __future__ import annotations

import os
import sys
from math import isnan

from scope_profiler import _core
from scope_profiler.call_statistics import (
    END_MAXIMUM,
    FIRST,
    GPU_COUNT,
    GPU_TOTAL,
    LAST,
    M2,
    MAXIMUM,
    MEAN,
    MINIMUM,
    START_MINIMUM,
    TOTAL,
)
from scope_profiler.cli.terminal import Column, display_width, printable, shown_name, table
from scope_profiler.mpi_region import imbalance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from typing import Any, TextIO

    from scope_profiler.concurrency import TaskInfo, ThreadInfo
    from scope_profiler.perf_events import PerfEventTotals
    from scope_profiler.results import Patterns, ProfilingResults

    _Usage = dict[tuple[int, int], tuple[int, int]]  # (rank, thread) -> (calls, ns inside of regions)

__all__ = ["PERCENTAGE_MODES", "REGION_TABLE_COLUMNS", "SORT_KEYS", "Path", "call_paths", "path_rows", "print_likwid", "print_results"]

SESSION = "scope_profiler.session"
#: What the percentages of the table can be of.
PERCENTAGE_MODES = ("coverage", "exclusive")

_NS = 1e9
_DEEPEST = 64  # levels that are drawn: mutual recursion makes a level of every call
_GAP = 4
_THREADS_SHOWN = 16
_COROUTINES_SHOWN = 10
_SAMPLED_SHOWN = 10
_COUNTED_SHOWN = 20


class Path:
    """One call path, over the ranks that have it. Times in ns; None: not known.

    Attributes
    ----------
    name, children
        The region, and the paths of the calls directly inside.
    calls, recursive
        How many calls, of every level of a recursion; whether some call is directly inside another of its region.
    inclusive, exclusive, covered
        Of the outermost calls; without what is inside; the wall clock during which one was open.
    awaiting
        Of the outermost calls, on the ranks that followed tasks; None: on none.
    total, minimum, maximum, first, last, mean, m2
        Of the durations of all levels; ``m2`` is the sum of the squared differences from the mean.
    start
        When the earliest call began.
    gpu_calls, gpu_total
        Calls of which the device time was measured, and their sum.
    rank_totals
        ``inclusive`` of each rank.
    percentiles
        50, 95 and 99, where the path is on one rank.
    """

    __slots__ = (
        "awaiting",
        "calls",
        "children",
        "covered",
        "exclusive",
        "first",
        "gpu_calls",
        "gpu_total",
        "inclusive",
        "last",
        "m2",
        "maximum",
        "mean",
        "minimum",
        "name",
        "percentiles",
        "rank_totals",
        "recursive",
        "start",
        "total",
        "_end",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: list[Path] = []
        self.calls = 0
        self.recursive = False
        self.inclusive = 0
        self.exclusive: int | None = 0
        self.covered: int | None = 0
        self.awaiting: int | None = None
        self.total = 0  # of every level of a recursion; `inclusive` is of the outermost ones
        self.minimum = self.maximum = self.first = self.last = 0
        self.start = self._end = 0
        self.mean = self.m2 = 0.0
        self.gpu_calls = self.gpu_total = 0
        self.rank_totals: list[int] = []
        self.percentiles: list[float] | None = None

    def add(self, row: tuple[Any, ...]) -> None:
        """Pool the row of one more rank."""
        _, _, count, recursive, inclusive, exclusive, covered, statistics, awaiting = row
        if not count:
            return
        first = not self.calls
        if first or statistics[MINIMUM] < self.minimum:
            self.minimum = statistics[MINIMUM]
        if first or statistics[MAXIMUM] > self.maximum:
            self.maximum = statistics[MAXIMUM]
        if first or statistics[START_MINIMUM] < self.start:
            self.start, self.first = statistics[START_MINIMUM], statistics[FIRST]
        if first or statistics[END_MAXIMUM] > self._end:
            self._end, self.last = statistics[END_MAXIMUM], statistics[LAST]
        pooled = self.calls + count
        if first:
            self.mean, self.m2 = statistics[MEAN], statistics[M2]
        else:
            apart = statistics[MEAN] - self.mean
            self.m2 += statistics[M2] + apart * apart * self.calls * count / pooled
            self.mean += apart * count / pooled
        self.calls = pooled
        self.recursive |= recursive
        self.inclusive += inclusive
        self.exclusive = None if self.exclusive is None or exclusive < 0 else self.exclusive + exclusive
        self.covered = None if self.covered is None or covered < 0 else self.covered + covered
        if awaiting >= 0:
            self.awaiting = (self.awaiting or 0) + awaiting
        self.total += statistics[TOTAL]
        self.gpu_calls += statistics[GPU_COUNT]
        self.gpu_total += statistics[GPU_TOTAL]
        self.rank_totals.append(inclusive)

    def percentile(self, place: int) -> float | None:
        """The ``place``-th of the stored percentiles (50, 95, 99) of the durations, ns; None: not known."""
        return None if self.percentiles is None else self.percentiles[place]


class _Table:
    """Everything about the table that its cells depend on."""

    __slots__ = ("exclusive_mode", "session", "session_ranks")

    def __init__(self, session: int, session_ranks: int, exclusive_mode: bool) -> None:
        self.session = session  # ns of the session on all ranks; 0: there is none
        self.session_ranks = session_ranks
        self.exclusive_mode = exclusive_mode

    def whole(self, path: Path) -> float:
        """ns that 100 % of a path are. Processes that were followed have no session of their own: that of the first one is theirs."""
        beyond = len(path.rank_totals) / self.session_ranks if self.session_ranks else 1.0
        return self.session * max(beyond, 1.0)


# -- cells -------------------------------------------------------------------------------------------------------------


def _cpu(thread: ThreadInfo) -> str:
    """CPU time in the run as text; a thread that was killed with its process has none that is known."""
    return "-" if isnan(thread.run_cpu_time) else f"{thread.run_cpu_time:.6f}"


def _seconds(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / _NS:.6f}"


def _share(part: float | None, whole: float | None) -> str:
    return "-" if part is None or not whole else f"{100 * part / whole:.2f}%"


def format_count(count: int) -> str:
    """A count in at most three figures: 999, 1.5k, 100k, 1.23M."""
    if count < 1000:
        return str(count)
    value = float(count)
    for unit in ("k", "M", "G", "T", "P"):
        value /= 1000
        if value < 999.5 or unit == "P":
            break
    return f"{value:.3g}{unit}" if value < 999.5 else f"{value:.0f}{unit}"


def _percent(path: Path, parent: Path | None, to: _Table) -> str:
    whole = to.whole(path)
    if to.exclusive_mode:
        return _share(path.exclusive, whole)
    if path.covered is None:  # a sum over threads and tasks: above the whole it is no share of the wall clock
        return _share(None if path.inclusive > whole else path.inclusive, whole)
    return _share(path.covered, whole)


def _own_percent(path: Path, to: _Table) -> str:
    """The share of the path that is its own. On several threads at once that is of the wall clock, like the path's percentage."""
    whole = to.whole(path)
    if path.exclusive is None or not path.inclusive:
        return _share(path.exclusive, whole)
    covered = path.inclusive if to.exclusive_mode or path.covered is None else path.covered
    return _share(covered * path.exclusive / path.inclusive, whole)


def _own_nothing(path: Path, to: _Table) -> str:
    return ""


class _RegionColumn:
    """A column of the table: its title, the cell of a path, the cell of its ``(own)`` row, and the key that it sorts by.

    Cells of an ``indented`` column are moved in like the tree is, so that siblings line up.
    """

    __slots__ = ("cell", "indented", "own", "title")

    def __init__(
        self,
        title: str,
        cell: Callable[[Path, Path | None, _Table], str],
        own: Callable[[Path, _Table], str] = _own_nothing,
        indented: bool = False,
    ) -> None:
        self.title = title
        self.cell = cell
        self.own = own
        self.indented = indented


def _plain(title: str, get: Callable[[Path], float | None]) -> _RegionColumn:
    return _RegionColumn(title, lambda path, parent, to: _seconds(get(path)) if path.calls else "-")


_COLUMNS: dict[str, _RegionColumn] = {
    "region": _RegionColumn("region", lambda path, parent, to: path.name),
    "ranks": _RegionColumn("ranks", lambda path, parent, to: str(len(path.rank_totals))),
    "calls": _RegionColumn("n", lambda path, parent, to: format_count(path.calls)),
    "total": _RegionColumn(
        "total [s]",
        lambda path, parent, to: _seconds(path.inclusive) if path.calls else "-",
        lambda path, to: _seconds(path.exclusive),
        True,
    ),
    "percent": _RegionColumn(
        "% session",
        lambda path, parent, to: _percent(path, parent, to) if path.calls else "-",
        _own_percent,
        True,
    ),
    "parent_percent": _RegionColumn(
        "% parent",
        lambda path, parent, to: "-" if parent is None else _share(path.inclusive, parent.inclusive),
        lambda path, to: _share(path.exclusive, path.inclusive),
        True,
    ),
    "avg": _RegionColumn(
        "avg/call [s]",
        lambda path, parent, to: f"{path.total / path.calls / _NS:.3e}" if path.calls else "-",
        lambda path, to: "-" if path.exclusive is None else f"{path.exclusive / path.calls / _NS:.3e}",
        True,
    ),
    "gpu_total": _plain("gpu total [s]", lambda path: path.gpu_total if path.gpu_calls else None),
    "gpu_avg": _plain("gpu avg [s]", lambda path: path.gpu_total / path.gpu_calls if path.gpu_calls else None),
    "min": _plain("min [s]", lambda path: path.minimum),
    "max": _plain("max [s]", lambda path: path.maximum),
    "first": _plain("first [s]", lambda path: path.first),
    "last": _plain("last [s]", lambda path: path.last),
    "std": _plain("std [s]", lambda path: (path.m2 / path.calls) ** 0.5),
    "p50": _plain("p50 [s]", lambda path: path.percentile(0)),
    "p95": _plain("p95 [s]", lambda path: path.percentile(1)),
    "p99": _plain("p99 [s]", lambda path: path.percentile(2)),
    "imbalance": _RegionColumn("imbalance [%]", lambda path, parent, to: f"{_imbalance(path):.2f}"),
}

#: The columns there are, in the order they are documented in.
REGION_TABLE_COLUMNS = tuple(
    "region ranks calls total percent parent_percent avg gpu_total gpu_avg min max first last std p50 p95 p99 imbalance".split()
)


def _imbalance(path: Path) -> float:
    ratio = imbalance(path.rank_totals)
    return (ratio - 1) * 100 if ratio else 0.0


def _largest(get: Callable[[Path], float | None]) -> Callable[[Path], Any]:
    def key(path: Path) -> float:
        value = get(path) if path.calls else None
        return float("inf") if value is None else -value

    return key


_SORT: dict[str, Callable[[Path], Any]] = {
    "start": lambda path: path.start if path.calls else float("inf"),
    "total": _largest(lambda path: path.inclusive),
    "calls": _largest(lambda path: path.calls),
    "avg": _largest(lambda path: path.total / path.calls),
    "min": _largest(lambda path: path.minimum),
    "max": _largest(lambda path: path.maximum),
    "first": _largest(lambda path: path.first),
    "last": _largest(lambda path: path.last),
    "std": _largest(lambda path: path.m2 / path.calls),
    "p50": _largest(lambda path: path.percentile(0)),
    "p95": _largest(lambda path: path.percentile(1)),
    "p99": _largest(lambda path: path.percentile(2)),
    "imbalance": _largest(_imbalance),
    "name": lambda path: path.name,
}

#: What ``sort`` may be. Names ascend and so do starts; everything else has its largest values first.
SORT_KEYS = tuple(_SORT)


# -- the tree ----------------------------------------------------------------------------------------------------------


class _Tree:
    __slots__ = ("clamped", "nested", "roots", "threads")

    def __init__(self, nested: bool, clamped: bool, roots: list[Path], threads: list[tuple[int, int, int, int]]) -> None:
        self.nested = nested
        self.clamped = clamped
        self.roots = roots
        self.threads = threads  # (rank, thread, calls, ns inside of regions)


def _collect(results: ProfilingResults, include: Patterns, exclude: Patterns, ranks: Sequence[int] | None, percentiles: bool) -> _Tree:
    from scope_profiler.results import name_filter

    whole = include is None and not exclude and ranks is None and not percentiles
    profile = results._to_summary() if whole else results._to_profile()
    chosen = name_filter(include, exclude)
    names = profile.names
    visible = None if include is None and not exclude else [chosen(name) for name in names]
    nested, clamped, nodes, rows, threads, wanted = _core.path_summary(
        profile, names=visible, ranks=None if ranks is None else list(ranks), percentiles=(50, 95, 99) if percentiles else ()
    )
    paths = [Path(names[name]) for name, _ in nodes]
    rows.reverse()
    while rows:  # each is dropped as it is read: a profile may have very many
        row = rows.pop()
        paths[row[0]].add(row)
    for path, values in zip(paths, (wanted if percentiles else None) or ()):
        path.percentiles = values
    if percentiles and not wanted:
        _use_stored_percentiles(results, paths, nested, ranks)
    roots: list[Path] = []
    for path, (_, parent) in zip(paths, nodes):
        (roots if parent < 0 else paths[parent].children).append(path)
    seen = {name for name, _ in nodes}
    named = {name for name in results.region_names if chosen(name)} - {names[name] for name in seen}
    roots += [Path(name) for name in results.region_names if name in named]
    return _Tree(nested, clamped, roots, threads)


def _use_stored_percentiles(results: ProfilingResults, paths: Iterable[Path], nested: bool, ranks: Sequence[int] | None) -> None:
    """Without the calls only those of whole regions are known: right where every region has one path and no rank is left out."""
    if nested or ranks is not None:
        return
    for path in paths:
        region = results[path.name]
        values = [region.p50_duration, region.p95_duration, region.p99_duration]
        if None not in values:
            path.percentiles = [value * _NS for value in values if value is not None]


def _sessions(paths: Iterable[Path]) -> Iterator[Path]:
    """The outermost session paths."""
    stack = list(paths)
    while stack:
        path = stack.pop()
        if path.name == SESSION:
            yield path
        else:
            stack += path.children


def _hidden_session(results: ProfilingResults, ranks: Sequence[int] | None) -> tuple[int, int]:
    """(ns, on how many ranks) of the session where the table does not show it."""
    if SESSION not in results:
        return 0, 0
    region = results[SESSION]
    chosen = region.ranks if ranks is None else [rank for rank in ranks if rank in region]
    return sum(int(region[rank]._statistic(TOTAL)) for rank in chosen), len(chosen)


def call_paths(results: ProfilingResults) -> list[Path]:
    """The outermost call paths of a run, over all ranks and lanes, from its summary: no call is read."""
    return sorted(_collect(results, None, None, None, False).roots, key=_SORT["start"])


def path_rows(
    results: ProfilingResults,
    include: Patterns = None,
    exclude: Patterns = None,
    ranks: Sequence[int] | None = None,
    sort: str = "total",
    limit: int | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """The call paths as values, in the order of ``sort`` (one of SORT_KEYS), the first ``limit`` of them; and how many there are.

    Times are in seconds, starts from the origin of the run, the imbalance in percent; None: not known. ``call_path`` joins the
    names from the outermost region on with " > ". ``total`` is of the outermost calls of a recursion.
    """
    tree = _collect(results, include, exclude, ranks, True)
    found: list[tuple[Path, Path | None, tuple[str, ...]]] = []
    stack: list[tuple[Path, Path | None, tuple[str, ...]]] = [(path, None, ()) for path in reversed(tree.roots)]
    while stack:
        path, parent, above = stack.pop()
        found.append((path, parent, above))
        # A deep recursion of several regions has a path for each level: their names are shown up to the level that is drawn.
        below = (*above, path.name) if len(above) < _DEEPEST else above
        stack += [(child, path, below) for child in reversed(path.children)]
    key = _SORT[sort]
    found.sort(key=lambda item: key(item[0]))
    origin = results._time_origin_ns
    return [_path_values(*item, origin) for item in found[:limit]], len(found)


def _path_values(path: Path, parent: Path | None, above: tuple[str, ...], origin: int) -> dict[str, Any]:
    def seconds(ns: float | None) -> float | None:
        return ns / _NS if ns is not None and path.calls else None

    return {
        "name": path.name,
        "call_path": " > ".join((*above, path.name)),
        "depth": len(above),
        "recursive": path.recursive,
        "num_ranks": len(path.rank_totals),
        "calls": path.calls,
        "total": path.inclusive / _NS,
        "exclusive": seconds(path.exclusive),
        "coverage": seconds(path.covered),
        "awaiting": seconds(path.awaiting),
        "parent_coverage": None if parent is None else seconds(parent.covered),
        "start": seconds(path.start - origin),
        "avg": seconds(path.total / path.calls if path.calls else None),
        "min": seconds(path.minimum),
        "max": seconds(path.maximum),
        "first": seconds(path.first),
        "last": seconds(path.last),
        "std": seconds((path.m2 / path.calls) ** 0.5 if path.calls else None),
        **{name: seconds(path.percentile(place)) for place, name in enumerate(("p50", "p95", "p99"))},
        "imbalance": _imbalance(path),
        "gpu_total": path.gpu_total / _NS if path.gpu_calls else None,
        "gpu_avg": path.gpu_total / path.gpu_calls / _NS if path.gpu_calls else None,
    }


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines_of_tree(tree: _Tree, sort: str) -> list[tuple[str, Path | None, Path | None]]:
    """(prefix, path, parent) of every row, depth first; path None with parent set is its ``(own)`` row, both None are levels cut."""
    key = _SORT[sort]
    lines: list[tuple[str, Path | None, Path | None]] = []
    stack: list[tuple[Path, Path | None, int]] = [(path, None, 0) for path in sorted(tree.roots, key=key)[::-1]]
    while stack:
        path, parent, depth = stack.pop()
        lines.append((_prefix(depth), path, parent))
        if not path.children:
            continue
        if depth + 1 >= _DEEPEST:
            lines.append((_prefix(depth + 1), None, None))
            continue
        if path.exclusive is not None:
            lines.append((_prefix(depth + 1), None, path))
        stack += [(child, path, depth + 1) for child in sorted(path.children, key=key)[::-1]]
    return lines


def _prefix(depth: int) -> str:
    return "│ " * (depth - 1) + "└─ " if depth else ""


def _region_cell(path: Path, counted: bool) -> str:
    label = shown_name(path.name)
    if path.recursive:
        label += " ↻"
    if not counted and path.calls > 1:
        label += f" ({format_count(path.calls)}x)"
    return label


def _cells(line: tuple[str, Path | None, Path | None], columns: Sequence[str], to: _Table) -> list[str]:
    prefix, path, parent = line
    cells = []
    for name in columns:
        column = _COLUMNS[name]
        if name == "region":
            text = "…" if path is None and parent is None else "(own)" if path is None else _region_cell(path, "calls" in columns)
            cells.append(prefix + text)
            continue
        if path is not None:
            text = column.cell(path, parent, to)
        else:
            text = "" if parent is None else column.own(parent, to)
        cells.append(" " * len(prefix) + text if column.indented and text else text)
    return cells


# What the tree is drawn with takes one column a character.
_DRAWING = str.maketrans("└─│↻…", "-----")


def _width(text: str) -> int:
    """display_width, without looking up what the tree is drawn with."""
    plain = text.translate(_DRAWING)
    return len(plain) if plain.isascii() else display_width(text)


def _region_table(tree: _Tree, columns: Sequence[str], to: _Table, sort: str) -> list[str]:
    rows = [[_COLUMNS[name].title for name in columns]]
    rows += [_cells(line, columns, to) for line in _lines_of_tree(tree, sort)]
    widths = [list(map(_width, row)) for row in rows]
    widest = [max(column) for column in zip(*widths)]
    rule = "─" * (sum(widest) + _GAP * (len(widest) - 1) + 2)
    gap = " " * _GAP
    body = []
    for row, taken in zip(rows, widths):
        text = gap.join([cell + " " * (most - width) for cell, width, most in zip(row, taken, widest)])
        body.append(f"  │ {text} │")
    return [f"  ╭{rule}╮", body[0], f"  ├{rule}┤", *body[1:], f"  ╰{rule}╯"]


def _box(title: str, lines: Sequence[str]) -> list[str]:
    width = max([display_width(line) for line in lines] + [len(title) + 2])
    top = f"  ╭─ {title} " + "─" * (width - len(title) - 1) + "╮"
    return [top, *(f"  │ {line}{' ' * (width - display_width(line))} │" for line in lines), f"  ╰{'─' * (width + 2)}╯"]


# -- threads and tasks -------------------------------------------------------------------------------------------------


def _most_at_once(threads: Sequence[ThreadInfo]) -> int:
    changes = []
    for thread in threads:
        changes.append((thread.start_time, 1))
        if thread.end_time is not None:
            changes.append((thread.end_time, -1))
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _concurrency(results: ProfilingResults, tree: _Tree, ranks: Sequence[int] | None, whole: bool) -> list[str]:
    """The section about threads and tasks, if the run has more than one lane."""
    wanted = [rank for rank in sorted(set(results.threads) | set(results.tasks)) if ranks is None or rank in ranks]
    threads = [thread for rank in wanted for thread in results.threads.get(rank, ())]
    tasks = [task for rank in wanted for task in results.tasks.get(rank, ())]
    if len(threads) < 2 and not tasks:
        return []
    usage = {(rank, thread): (calls, ns) for rank, thread, calls, ns in tree.threads} if whole else None
    if usage is None:
        usage = {(r, t): values for r, by_thread in results._thread_usage().items() for t, values in by_thread.items()}
    lines = [f"  Concurrent run: {_thread_facts(results, wanted, threads, usage)}"]
    lines += _thread_table(threads, usage)
    if tasks:
        lines += ["", *_coroutine_table(tasks)]
    return [*lines, ""]


def _thread_facts(results: ProfilingResults, ranks: Sequence[int], threads: Sequence[ThreadInfo], usage: _Usage) -> str:
    facts = [f"{len(threads)} thread{'' if len(threads) == 1 else 's'}"]
    alive = sum(thread.alive for thread in threads)
    if alive and len(threads) > 1:
        facts.append(f"{alive} of them alive at the end")
    if len(ranks) == 1 and len(threads) > 1:
        facts.append(f"at most {_most_at_once(threads)} at once")
    wall = results.total_time or results.time_span
    if wall and len(ranks) == 1:
        inside = sum(usage.get((thread.rank, thread.index), (0, 0))[1] for thread in threads) / _NS
        facts.append(f"{inside / wall:.2f} inside of regions on average over {wall:.3f} s")
    known = [thread.run_cpu_time for thread in threads if not isnan(thread.run_cpu_time)]
    if known:
        unknown = f" on {len(known)} of them, unknown on the others" if len(known) < len(threads) else ""
        facts.append(f"{sum(known):.3f} s of CPU{unknown}")
    return ", ".join(facts)


def _thread_table(threads: Sequence[ThreadInfo], usage: _Usage) -> list[str]:
    ranked = len({thread.rank for thread in threads}) > 1
    columns = [Column("rank", number=True)] if ranked else []
    columns += [Column("#", number=True), Column("thread")]
    columns += [Column(title, number=True) for title in ("calls", "in regions [s]", "cpu [s]", "wall [s]")]
    busiest = sorted(threads, key=lambda thread: 0.0 if isnan(thread.run_cpu_time) else -thread.run_cpu_time)[:_THREADS_SHOWN]
    shown = set(map(id, busiest))
    rows = []
    for thread in threads:
        if id(thread) not in shown:
            continue
        calls, covered = usage.get((thread.rank, thread.index), (0, 0))
        wall = "alive" if thread.wall_time is None else f"{thread.wall_time:.6f}"
        name = shown_name(thread.name)
        row = [str(thread.rank)] if ranked else []
        rows.append([*row, str(thread.index), name, format_count(calls), _seconds(covered), _cpu(thread), wall])
    lines = table(columns, rows)
    if len(threads) > len(busiest):
        rest = [thread.run_cpu_time for thread in threads if id(thread) not in shown]
        known = [time for time in rest if not isnan(time)]
        told = f" with {sum(known):.6f} s of CPU in all" if known else ""
        unknown = f", of {len(rest) - len(known)} it is unknown" if known and len(known) < len(rest) else ""
        lines.append(f"  and {len(rest)} more threads{told}{unknown}")
    return lines


def coroutine_sums(tasks: Iterable[TaskInfo]) -> dict[tuple[str, str], list[float]]:
    """(coroutine, kind) -> how many tasks, how many of them done, their steps, s running, s awaiting."""
    groups: dict[tuple[str, str], list[float]] = {}
    for task in tasks:
        sums = groups.setdefault((task.coro_name, task.kind), [0, 0, 0, 0.0, 0.0])
        for i, value in enumerate((1, task.done, task.steps, task.running_time, task.awaiting_time)):
            sums[i] += value
    return groups


def _coroutine_table(tasks: Sequence[TaskInfo]) -> list[str]:
    """Tasks by what they run."""
    groups = coroutine_sums(tasks)
    columns = [Column("coroutine")]
    columns += [Column(title, number=True) for title in ("tasks", "steps", "running [s]", "awaiting [s]")]
    busiest = sorted(groups.items(), key=lambda item: -item[1][3])
    rows = []
    for (name, kind), (count, _, steps, running, awaiting) in busiest[:_COROUTINES_SHOWN]:
        label = shown_name(name) + (" (greenlet)" if kind == "greenlet" else "")
        rows.append([label, format_count(int(count)), format_count(int(steps)), f"{running:.6f}", f"{awaiting:.6f}"])
    lines = table(columns, rows)
    if len(busiest) > _COROUTINES_SHOWN:
        lines.append(f"  and {len(busiest) - _COROUTINES_SHOWN} more coroutines that ran less")
    return lines


# -- notes -------------------------------------------------------------------------------------------------------------


def _notes(results: ProfilingResults, title: str, tree: _Tree, columns: Sequence[str], exclusive_mode: bool) -> list[str]:
    lines = [f"Summary: {printable(title)}"]
    path = results._file_path
    if not results._in_memory and os.path.exists(path):
        name = _shell(path)
        lines += [
            "",
            f"Look closer:   scope-profiler inspect {name}",
            f"Compare runs:  scope-profiler diff {name} OTHER.h5",
            f"Guard a limit: scope-profiler check {name} NEW.h5",
        ]
    lines += ["", "Times are in seconds. A region's total includes what it calls; (own) is the rest."]
    if any(path.recursive for path in _walk(tree.roots)):
        lines.append("↻ recursive: the calls are those of all levels, the total is that of the outermost ones (total_duration sums all levels).")
    if "percent" in columns and not exclusive_mode:
        lines.append("% session is wall clock during which the region was open, on any thread, relative to the session.")
        if _summed(results):
            lines.append("Of sums it is summed over threads and tasks, and left out where that is more than the session.")
    if not results.has_event_data and not tree.nested:
        lines.append("The profile was read without its calls: regions are listed, not nested.")
    elif not tree.nested and tree.roots and not _summed(results):
        lines.append("Calls overlap without nesting, so there is no call tree: track_threads=True keeps threads apart.")
    if tree.clamped:
        lines.append("Calls of one thread or task overlap: where they do, the one that began last has the time as its own.")
    return lines


def _samples(results: ProfilingResults) -> list[str]:
    """Where the time outside of regions went, if the run had a sampler."""
    # The module of samples evaluates text when it is imported, and Python then forgets that an interrupt is what ends it.
    if not results.has_samples:
        return []
    samples = results.samples
    functions = samples.functions()
    if not functions:
        return []
    time, cpu = sum(row.time for row in functions), sum(row.cpu_time for row in functions)
    ranked = len({row.rank for row in functions}) > 1
    columns = [Column("rank", number=True)] if ranked else []
    columns += [Column("thread"), Column("function")]
    columns += [Column(title, number=True) for title in ("outside [s]", "cpu [s]", "% thread")]
    rows = []
    for row in functions[:_SAMPLED_SHOWN]:
        place = f"{row.function} ({os.path.basename(row.file)}:{row.first_line})"
        cells = [str(row.rank)] if ranked else []
        cells += [shown_name(row.thread), shown_name(place)]
        rows.append([*cells, f"{row.time:.3f}", f"{row.cpu_time:.3f}", f"{100 * row.share:.1f}"])
    lines = [f"  Outside of regions: {time:.3f} s of threads, {cpu:.3f} s of CPU ({samples.count:,} samples at {samples.hz:g} Hz)"]
    lines += table(columns, rows)
    if len(functions) > _SAMPLED_SHOWN:
        rest = sum(row.time for row in functions[_SAMPLED_SHOWN:])
        lines.append(f"  and {len(functions) - _SAMPLED_SHOWN} more with {rest:.3f} s")
    return [*lines, ""]


def counter_rows(results: ProfilingResults, names: Container[str] | None, ranks: Sequence[int] | None) -> list[tuple[int, str, PerfEventTotals]]:
    """The perf counters of a run: (rank, region, totals), of these regions and ranks (None: all)."""
    by_rank = results.get_perf_events() if results.has_perf_events else {}
    return [
        (rank, name, totals)
        for rank in sorted(by_rank)
        if ranks is None or rank in ranks
        for name, totals in by_rank[rank].items()
        if names is None or name in names
    ]


def counter_lines(rows: Sequence[tuple[int, str, PerfEventTotals]]) -> list[str]:
    """The table of counter_rows(), with the regions of the largest counts; nothing without any."""
    if not rows:
        return []
    events = list(dict.fromkeys(event for _, _, totals in rows for event in totals.values))
    ranked = len({rank for rank, _, _ in rows}) > 1
    columns = [Column("rank", number=True)] if ranked else []
    columns += [Column("region"), *(Column(printable(title), number=True) for title in ("calls", *events))]
    largest = sorted(rows, key=lambda row: -max(row[2].values.values(), default=0))
    cells = []
    for rank, name, totals in largest[:_COUNTED_SHOWN]:
        counts = [f"{totals.values[event]:,}" if event in totals.values else "-" for event in events]
        label = shown_name(name)
        cells.append([*([str(rank)] if ranked else []), label, format_count(totals.calls), *counts])
    lines = ["  Events, those of the calls inside included (clocks in ns)", *table(columns, cells)]
    if len(rows) > _COUNTED_SHOWN:
        lines.append(f"  and {len(rows) - _COUNTED_SHOWN} more with smaller counts")
    return [*lines, ""]


def _short(ns: int) -> str:
    """Three digits, in the unit that reads best."""
    for unit, size in (("s", _NS), ("ms", 1_000_000), ("µs", 1000)):
        if ns >= 0.9995 * size:
            value = ns / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{ns} ns"


def _overhead(results: ProfilingResults, tree: _Tree, session: int) -> list[str]:
    """What recording has cost at least, by the run's own measure: what all ways to a call have in common."""
    calls, ns = results._integer("overhead_calls"), results._integer("overhead_ns")
    if not calls or not ns:
        return []
    seconds = ns / _NS
    line = f"  profiler overhead: at least {calls:,} call{'' if calls == 1 else 's'} x {ns / calls:.0f} ns = {_short(ns)}"
    busy = sorted((count for _, _, count, _ in tree.threads if count), reverse=True)
    if len(busy) > 1:
        # They record at the same time: what takes longer for it takes longer by the part of one of them.
        seconds *= busy[0] / sum(busy)
        session = max((most for path in _sessions(tree.roots) for most in path.rank_totals), default=0)
    whole = session / _NS if session else results.total_time or 0.0
    if whole > 0:
        part = 100 * seconds / whole
        share = f"{f'{part:.2g}' if part >= 0.01 else 'under 0.01'} % of the {'session' if session else 'run'}"
        line += f" on {len(busy)} threads, {share} on the busiest" if len(busy) > 1 else f" ({share})"
    return [line, ""]


def _summed(results: ProfilingResults) -> bool:
    return results._profile is not None and results._profile.aggregate


def _walk(roots: Iterable[Path]) -> Iterator[Path]:
    stack = list(roots)
    while stack:
        path = stack.pop()
        yield path
        stack += path.children


def _shell(path: str) -> str:
    text = os.path.relpath(path) if not os.path.relpath(path).startswith("..") else path
    if all(c.isalnum() or c in "/._-+=@%," for c in text):
        return text
    import shlex

    return printable(shlex.quote(text))


# -- the whole ---------------------------------------------------------------------------------------------------------


def check_columns(columns: Sequence[str] | str | None) -> list[str] | None:
    """The columns asked for as a list; None for the default. Raises ValueError for one that does not exist, or for none."""
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise ValueError(f"the summary has no column {', '.join(map(repr, unknown))}; it has {', '.join(REGION_TABLE_COLUMNS)}")
    if not names:
        raise ValueError("the summary needs a column at least")
    return names


def print_results(
    results: ProfilingResults,
    *,
    include: Patterns,
    exclude: Patterns,
    ranks: Sequence[int] | None,
    sort: str,
    title: str | None,
    stream: TextIO | None,
    suppress_notes: bool,
    columns: Sequence[str] | str | None,
    percentage_mode: str,
) -> None:
    """What ProfilingResults.print_summary() documents."""
    names = check_columns(columns)
    if percentage_mode not in PERCENTAGE_MODES:
        raise ValueError(f"percentage_mode is one of {', '.join(PERCENTAGE_MODES)}, not {percentage_mode!r}")
    if sort not in _SORT:
        raise KeyError(f"the summary cannot be sorted by {sort!r}, only by {', '.join(SORT_KEYS)}")
    title = results.default_title() if title is None else title
    if not len(results):
        sampled = [] if suppress_notes else _samples(results)
        _write(stream, [printable(title), "  (no regions recorded)", *([""] if sampled else []), *sampled])
        return
    percentiles = any(name in ("p50", "p95", "p99") for name in (*(names or ()), sort))
    tree = _collect(results, include, exclude, ranks, percentiles)
    session = sum(path.inclusive for path in _sessions(tree.roots))
    session_ranks = sum(len(path.rank_totals) for path in _sessions(tree.roots))
    if names is None:
        names = ["region", "percent", "total"] if session else ["region", "total"]
    elif "percent" in names and not session:
        session, session_ranks = _hidden_session(results, ranks)
    exclusive_mode = percentage_mode == "exclusive"
    lines = [*_region_table(tree, names, _Table(session, session_ranks, exclusive_mode), sort), ""]
    if not suppress_notes:
        whole = include is None and not exclude
        lines += _concurrency(results, tree, ranks, whole)
        shown = None if whole else {path.name for path in _walk(tree.roots)}
        lines += counter_lines(counter_rows(results, shown, ranks))
        lines += [*_box("Info", _notes(results, title, tree, names, exclusive_mode)), ""]
        if whole and ranks is None:
            lines += _samples(results)
            lines += _overhead(results, tree, session)
    _write(stream, lines)


def _write(stream: TextIO | None, lines: Sequence[str]) -> None:
    out = sys.stdout if stream is None else stream
    if out is None:
        return  # a process without a standard output: print() does nothing there either
    text = "\n".join(lines) + "\n"
    try:
        out.write(text)
    except UnicodeEncodeError:
        # the stream's encoding lacks line drawing or a letter of a name
        encoding = getattr(out, "encoding", None) or "ascii"
        out.write(text.encode(encoding, "scope_profiler.plain").decode(encoding))


def print_likwid(results: ProfilingResults, stream: TextIO | None) -> None:
    """What ProfilingResults.print_likwid_summary() documents."""
    if not results.has_likwid:
        _write(stream, [f"{printable(results._where)} has no LIKWID counters"])
        return
    lines = []
    for rank in results.likwid_ranks:
        for region in results.get_likwid_regions(rank).values():
            lines.append(f"rank {rank}, region {printable(region.tag)}, group {printable(region.group_name)}")
            for thread, (time, calls) in enumerate(zip(region.times, region.call_counts)):
                lines.append(f"  cpu {region.cpus[thread]}: {int(calls)} call(s), {float(time):.6f} s")
                values = [*zip(region.event_labels, region.events), *zip(region.metric_names, region.metrics)]
                lines += [f"    {printable(name):<40} {float(of_threads[thread]):>18.4f}" for name, of_threads in values]
    _write(stream, lines)
