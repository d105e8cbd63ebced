"""Runs as ``.prof`` files, for pstats and for viewers such as snakeviz, and as flame graphs."""

from __future__ import annotations

import os

from scope_profiler import _core
from scope_profiler._exports import Selection, export_files, labelled, rank_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pstats
    from pathlib import Path
    from typing import Any

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_flamegraph_svg", "export_prof", "load_prof", "to_pstats"]

class _Node:
    """One bar of a flame graph."""

    __slots__ = ("calls", "exclusive", "name", "parent", "total")

    def __init__(self, name: str, parent: _Node | None, calls: int, total: int, exclusive: int) -> None:
        self.name = name
        self.parent = parent
        self.calls = calls
        self.total = total
        self.exclusive = exclusive


def _nodes(selection: Selection, rank: int) -> list[_Node]:
    profile = selection.profile
    names, (name_of_row, _) = profile.names, profile.row_keys()
    nodes: list[_Node] = []
    for row, parent, calls, _, total, exclusive in _core.call_paths(profile, rank, selection.shown):
        above = nodes[parent] if parent >= 0 else None
        nodes.append(_Node(names[name_of_row[row]], above, calls, total, exclusive))
    return nodes


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
    return export_files(
        "prof", profiling_data, filepath, suffix=".prof", ranks=ranks, include=include, exclude=exclude, verbose=verbose,
        hint=", to be opened with: snakeviz {}", per_rank=True, flat=not call_paths,
    )  # fmt: skip


def _flat(nodes: list[_Node]) -> list[_Node]:
    """One node per region, with its exclusive time."""
    flat: dict[str, _Node] = {}
    for node in nodes:
        whole = flat.setdefault(node.name, _Node(node.name, None, 0, 0, 0))
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
            _core.write_file(os.fspath(path), [picture.encode()])
            paths.append(path)
            if verbose:
                print(f"Wrote {path}")
    return paths


class _Loaded:
    """What pstats.Stats takes in the place of a profiler: it then names no file."""

    def __init__(self, stats: dict[Any, Any]) -> None:
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
    """The same as :func:`export_prof` without files to keep: ``{(label, rank): pstats.Stats}``."""
    import marshal
    import pstats
    from tempfile import TemporaryDirectory

    found = {}
    with TemporaryDirectory(prefix="scope-profiler-") as directory:
        for label, _, results in labelled(profiling_data):
            selection = Selection(results, "to_pstats()", ranks, include, exclude)
            selection.need_calls()
            for rank in selection.ranks:
                path = os.path.join(directory, "rank.prof")
                _core.export_profile(selection.profile, path, "pstats", label, [rank], selection.shown, flat=not call_paths)
                with open(path, "rb") as file:
                    found[label, rank] = pstats.Stats(_Loaded(marshal.load(file)))  # type: ignore[arg-type]
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _is_key(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and list(map(type, value)) == [str, int, str]


def _is_entry(value: object) -> bool:
    """What pstats keeps of a function: four numbers, and for each caller the same or, in old files, a count."""
    if not (isinstance(value, tuple) and len(value) == 5 and all(map(_is_number, value[:4])) and isinstance(value[4], dict)):
        return False
    return all(
        _is_key(caller) and (_is_number(numbers) or (isinstance(numbers, tuple) and all(map(_is_number, numbers))))
        for caller, numbers in value[4].items()
    )


def load_prof(filepath: StrPath) -> pstats.Stats:
    """The statistics in a ``.prof`` file, of whatever program.

    The file need not be trusted: it is read without ``marshal``. Raises FileNotFoundError, another OSError if the file cannot
    be read, and ValueError for a file that holds no statistics or is damaged.
    """
    import pstats
    import time

    from scope_profiler.marshalled import loads

    name = os.fspath(filepath)
    with open(name, "rb") as file:
        data = file.read()
        changed = os.fstat(file.fileno()).st_mtime
    try:
        stats = loads(data)
    except ValueError as error:
        raise ValueError(f"{name} holds no statistics: {error}") from None
    if not isinstance(stats, dict) or not all(_is_key(key) and _is_entry(entry) for key, entry in stats.items()):
        raise ValueError(f"{name} holds no statistics")
    loaded = pstats.Stats(_Loaded(stats))  # type: ignore[arg-type]
    loaded.files = [f"{time.ctime(changed)}    {name}"]  # type: ignore[attr-defined]
    return loaded
