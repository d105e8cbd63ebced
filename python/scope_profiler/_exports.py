"""What all exports share: which runs, ranks and regions, and what the files are called."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from scope_profiler import _core
    from scope_profiler.results import ProfilingResults

    StrPath: TypeAlias = str | os.PathLike[str]
    Runs: TypeAlias = ProfilingResults | Sequence[ProfilingResults]
    Patterns: TypeAlias = Sequence[str] | str | None
    Ranks: TypeAlias = Iterable[int] | int | None

__all__ = ["Selection", "checked_ranks", "export_files", "labelled", "output_path", "rank_path", "trace_origin"]


class Selection:
    """The part of one run that is exported: ``profile`` with its calls, ``ranks``, and which of its names are ``shown``.

    Raises EventDataUnavailableError for a profile that was read without its calls.
    """

    __slots__ = ("names", "profile", "ranks", "results", "shown")

    def __init__(self, results: ProfilingResults, what: str, ranks: Ranks, include: Patterns, exclude: Patterns) -> None:
        results._need_events(what)
        self.results = results
        self.profile: _core.Profile = results._to_profile()
        self.names = [region.name for region in results.get_regions(include, exclude)]
        chosen = set(self.names)
        self.shown = None if include is None and exclude is None else [name in chosen for name in self.profile.names]
        self.ranks = checked_ranks(ranks, results)

    def need_regions(self) -> None:
        """ValueError if no region was chosen."""
        if not self.names:
            raise ValueError("no region matches the filters" if self.results else "the run has no regions")

    def need_calls(self) -> None:
        """ValueError if the chosen regions have no call on the chosen ranks."""
        self.need_regions()
        chosen = set(self.names)
        for region in self.results:
            if region.name in chosen and any(rank in region and region[rank].num_calls for rank in self.ranks):
                return
        raise ValueError(f"the chosen regions have no calls on {_words(self.ranks)}")


def _words(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks))}"


def checked_ranks(ranks: Ranks, results: ProfilingResults) -> list[int]:
    """Ranks without repetition. None: rank 0."""
    if ranks is None:
        return [0]
    chosen = [ranks] if isinstance(ranks, int) else list(dict.fromkeys(ranks))
    for rank in chosen:
        if rank not in range(max(results.num_ranks, 1)) and not any(rank in region for region in results):
            raise ValueError(f"no rank {rank}: the run has {results.num_ranks}")
    return chosen


def labelled(data: Runs) -> Iterator[tuple[str, str | None, ProfilingResults]]:
    """(label, label for file names or None, run) of every run that this process has; labels are made unique.

    A single run needs no label in its file's name. Raises ValueError when there is nothing to export.
    """
    from scope_profiler.results import ProfilingResults

    runs = [data] if isinstance(data, ProfilingResults) else list(data)
    if not runs:
        raise ValueError("nothing to export: no results were given")
    used: set[str] = set()
    own = [run for run in runs if run.is_root]  # under MPI, rank 0 has the run and the others have nothing
    for run in own:
        label, number = run.display_label, 1
        while label in used:
            number += 1
            label = f"{run.display_label} ({number})"
        used.add(label)
        yield label, label if len(own) > 1 else None, run


def output_path(path: StrPath, default_suffix: str, label: str | None) -> Path:
    """Where a file goes: the path, with the label before its suffix. The suffix begins at the first dot of the name."""
    from pathlib import Path

    directory, name = os.path.split(os.fspath(path))
    stem, dot, suffix = name.partition(".")
    return Path(directory, f"{stem}{_tail(label)}{dot + suffix if dot else default_suffix}")


def rank_path(path: StrPath, default_suffix: str, label: str | None, rank: int) -> Path:
    """The same with the rank in the name, for formats that hold one rank; here the suffix begins at the last dot."""
    from pathlib import Path

    path = Path(path)
    compressed = ".gz" if path.suffix == ".gz" else ""
    plain = path.with_suffix("") if compressed else path
    return path.with_name(f"{plain.stem}{_tail(label)}_rank{rank}{plain.suffix or default_suffix}{compressed}")


def _tail(label: str | None) -> str:
    if label is None:
        return ""
    return "_" + (re.sub(r"[^\w.-]+", "_", label).strip("_") or "run")


def trace_origin(selection: Selection) -> int:
    """What times of traces and tables count from, ns: the run's start, or its first call if that is not known or before it."""
    from scope_profiler import _core

    return _core.trace_origin(selection.profile, selection.ranks, selection.shown)


def export_files(
    format: str,
    profiling_data: Runs,
    filepath: StrPath,
    *,
    suffix: str,
    ranks: Ranks,
    include: Patterns,
    exclude: Patterns,
    verbose: bool,
    hint: str = "",
    per_rank: bool = False,
    calls_needed: bool = True,
    flat: bool = False,
    by_lane: bool = False,
) -> list[Path]:
    """Write every run in a format of the extension, and return the files; their directories are made.

    format: as the extension names it, and as errors name the function (``export_<format>()``).
    suffix: of names that have none.
    hint: what a file can be opened with; ``{}`` is its name.
    per_rank: a file holds one rank, whose number becomes part of its name.
    calls_needed: no call is a ValueError, not a file without calls.
    flat, by_lane: see src/formats/export.h.
    """
    from scope_profiler import _core

    paths = []
    for label, tail, results in labelled(profiling_data):
        selection = Selection(results, f"export_{format}()", ranks, include, exclude)
        if calls_needed:
            selection.need_calls()
        for part in [[rank] for rank in selection.ranks] if per_rank else [selection.ranks]:
            path = rank_path(filepath, suffix, tail, part[0]) if per_rank else output_path(filepath, suffix, tail)
            path.parent.mkdir(parents=True, exist_ok=True)
            _core.export_profile(selection.profile, os.fspath(path), _CORE_NAMES.get(format, format), label, part,
                                 selection.shown, flat=flat, by_lane=by_lane)  # fmt: skip
            paths.append(path)
            if verbose:
                print(f"Wrote {path}{hint.format(path)}")
    return paths


_CORE_NAMES = {"prof": "pstats"}
