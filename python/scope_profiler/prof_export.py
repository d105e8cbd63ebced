"""Runs as ``.prof`` files, for pstats and for viewers such as snakeviz, and as flame graphs."""

from __future__ import annotations

import marshal
import os

from scope_profiler import _core
from scope_profiler._exports import Selection, labelled, rank_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pstats
    from collections.abc import Iterator
    from pathlib import Path

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

    Key = tuple[str, int, str]  # file, line, name
    Numbers = tuple[int, int, float, float]  # primitive calls, calls, own time, cumulative time
    Stats = dict[Key, tuple[int, int, float, float, dict[Key, Numbers]]]

__all__ = ["export_flamegraph_svg", "export_prof", "load_prof", "to_pstats"]

_NOWHERE = ("~", 0)


class _Node:
    """One call path."""

    __slots__ = ("calls", "exclusive", "key", "name", "outermost", "parent", "total")

    def __init__(self, name: str, parent: _Node | None, calls: int, outermost: int, total: int, exclusive: int) -> None:
        self.name = name
        self.parent = parent
        self.calls = calls
        self.outermost = outermost
        self.total = total
        self.exclusive = exclusive
        self.key: Key = (*_NOWHERE, name)


def _nodes(selection: Selection, rank: int) -> list[_Node]:
    profile = selection.profile
    nodes: list[_Node] = []
    for row, parent, calls, outermost, total, exclusive in _core.call_paths(profile, rank, selection.shown):
        name_index, _, _, _, file, line, *_ = profile.row(row)
        node = _Node(profile.names[name_index], nodes[parent] if parent >= 0 else None, calls, outermost, total, exclusive)
        node.key = (*((file, max(line, 0)) if file else _NOWHERE), node.name)
        nodes.append(node)
    return nodes


class _Sum:
    """What several paths of one entry add up to, in ns."""

    __slots__ = ("calls", "callers", "own", "primitive", "total")

    def __init__(self) -> None:
        self.calls = self.primitive = self.own = self.total = 0
        self.callers: dict[Key, list[int]] = {}

    def add(self, primitive: int, calls: int, own: int, total: int, caller: Key | None) -> None:
        self.primitive += primitive
        self.calls += calls
        self.own += own
        self.total += total
        if caller is not None:
            numbers = self.callers.setdefault(caller, [0, 0, 0, 0])
            for place, value in enumerate((primitive, calls, own, total)):
                numbers[place] += value


def _stats(nodes: list[_Node], root: Key, call_paths: bool) -> Stats:
    sums: dict[Key, _Sum] = {}
    if call_paths:
        _name_paths(nodes, root)
    for node in nodes:
        parent = node.parent.key if node.parent is not None else root
        primitive, total = node.outermost, node.total
        if not call_paths and _inside_itself(node):
            primitive = total = 0  # only the outermost of calls that contain each other take time
        entry = sums.setdefault(node.key, _Sum())
        entry.add(primitive, node.outermost, node.exclusive, total, parent)
        if node.calls > node.outermost:  # levels of a recursion: the region calls itself
            entry.add(0, node.calls - node.outermost, 0, 0, node.key)
    stats: Stats = {
        key: (s.primitive, s.calls, s.own / 1e9, s.total / 1e9,
              {caller: (c[0], c[1], c[2] / 1e9, c[3] / 1e9) for caller, c in s.callers.items()})
        for key, s in sums.items()
    }  # fmt: skip
    whole = sum(node.total for node in nodes if node.parent is None)
    stats[root] = (1, 1, 0.0, whole / 1e9, {})
    return stats


def _inside_itself(node: _Node) -> bool:
    above = node.parent
    while above is not None:
        if above.name == node.name:
            return True
        above = above.parent
    return False


def _name_paths(nodes: list[_Node], root: Key) -> None:
    """Every path an entry of its own, called by its regions; a region may be called what a path is called."""
    used = {root}
    for node in nodes:
        file, line, name = node.key
        if node.parent is not None:
            name = f"{node.parent.key[2]} > {name}"
        key, number = (file, line, name), 1
        while key in used:
            number += 1
            key = (file, line, f"{name} [{number}]")
        used.add(key)
        node.key = key


def _runs(
    data: Runs, what: str, ranks: Ranks, include: Patterns, exclude: Patterns, call_paths: bool
) -> Iterator[tuple[str, str | None, int, Stats]]:
    for label, tail, results in labelled(data):
        selection = Selection(results, what, ranks, include, exclude)
        selection.need_calls()
        for rank in selection.ranks:
            root: Key = (*_NOWHERE, f"<{label} rank {rank}>")
            yield label, tail, rank, _stats(_nodes(selection, rank), root, call_paths)


def export_prof(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    call_paths: bool = True,
    verbose: bool = True,
) -> list[Path]:
    """Write one ``.prof`` file per run and rank.

    A root entry that stands for the rank calls every region that no other encloses, of all threads and tasks. Recursive calls
    count as calls, but only the outermost as primitive ones and in the cumulative time.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``_rank<N>`` is appended to the name, and the run's label when there are several. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    call_paths
        One entry per call path, named by its regions joined with ``" > "``; False: one entry per region.
    verbose
        Print a line per file.

    Returns
    -------
    list of Path
        The files, run by run; empty on a process that does not have the run (MPI).

    Raises
    ------
    ValueError
        If there is nothing to export: no results, no such rank, no region that matches, no call.
    EventDataUnavailableError
        If the results were read without their calls.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    """
    paths = []
    for _, tail, rank, stats in _runs(profiling_data, "export_prof()", ranks, include, exclude, call_paths):
        path = rank_path(filepath, ".prof", tail, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        _core.write_file(os.fspath(path), marshal.dumps(stats))
        paths.append(path)
        if verbose:
            print(f"Wrote {path}, to be opened with: snakeviz {path}")
    return paths


def _flat(nodes: list[_Node]) -> list[_Node]:
    """One node per region, with its exclusive time."""
    flat: dict[str, _Node] = {}
    for node in nodes:
        whole = flat.setdefault(node.name, _Node(node.name, None, 0, 0, 0, 0))
        whole.calls += node.calls
        whole.exclusive += node.exclusive
        whole.total += node.exclusive
    return list(flat.values())


def export_flamegraph_svg(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    call_paths: bool = True,
    width: int = 1200,
    threshold: float = 0.001,
    scalable: bool = True,
    verbose: bool = True,
) -> list[Path]:
    """Write one flame graph per run and rank: a bar per call path, above its caller's, as wide as the time spent in it.

    Threads and tasks are put together. A picture needs no script and no other file; a bar's tooltip has its numbers.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``_rank<N>`` is appended to the name, and the run's label when there are several. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    call_paths
        False: one bar per region, as wide as its exclusive time.
    width
        Of the picture, in pixels.
    threshold
        The smallest share of the whole time that is drawn, 0 to 1.
    scalable
        Let the picture fill what it is put into, and leave out the XML declaration; False: a picture of fixed size.
    verbose
        Print a line per file.

    Returns
    -------
    list of Path
        The files, run by run; empty on a process that does not have the run (MPI).

    Raises
    ------
    ValueError
        If there is nothing to draw: no results, no such rank, no region that matches, no call.
    EventDataUnavailableError
        If the results were read without their calls.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    """
    from scope_profiler.flamegraph_svg import flamegraph

    paths = []
    for label, tail, results in labelled(profiling_data):
        selection = Selection(results, "export_flamegraph_svg()", ranks, include, exclude)
        selection.need_calls()
        for rank in selection.ranks:
            nodes = _nodes(selection, rank)
            frames = nodes if call_paths else _flat(nodes)
            title = f"{label} rank {rank}".strip()
            picture = flamegraph(frames, title, width=width, threshold=threshold, scalable=scalable)
            path = rank_path(filepath, ".svg", tail, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            _core.write_file(os.fspath(path), picture.encode())
            paths.append(path)
            if verbose:
                print(f"Wrote {path}")
    return paths


class _Loaded:
    """What pstats.Stats takes in the place of a profiler."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats

    def create_stats(self) -> None:
        """The statistics are there already."""


def to_pstats(
    profiling_data: Runs,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    call_paths: bool = True,
) -> dict[tuple[str, int], pstats.Stats]:
    """The same as :func:`export_prof` without files: ``{(label, rank): pstats.Stats}``."""
    import pstats

    return {
        (label, rank): pstats.Stats(_Loaded(stats))  # type: ignore[arg-type]
        for label, _, rank, stats in _runs(profiling_data, "to_pstats()", ranks, include, exclude, call_paths)
    }


def load_prof(filepath: StrPath) -> pstats.Stats:
    """The statistics in a ``.prof`` file. Raises FileNotFoundError and what marshal raises for a file of another kind."""
    import pstats

    return pstats.Stats(os.fspath(filepath))
