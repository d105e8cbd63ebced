"""Line profiles of the functions that regions run, by the line_profiler package.

Each region has a line profiler of its own, which counts while a call of the region is open: in the functions that it decorates,
those that ``region()`` was given, and the function (or module) that a ``with`` statement of it is in.
"""

from __future__ import annotations

from _thread import get_ident

from .modes import Mode, caller
from .tags import ROOT_REGION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any

    from .line_functions import LineFunctions

    Key = tuple[str, str, int, str]  # region, file, first line, function
    Lines = dict[int, tuple[int, int]]  # by line: hits and time in the timer's unit

__all__ = ["LineProfiling"]

LONGEST_SOURCE = 60_000  # characters of a function's text that are stored


class LineProfiling(Mode):
    """Line profiler: which lines a region's calls ran, how often, and for how long."""

    needs_columns = True
    acts = True

    def __init__(self, functions: LineFunctions, *, full_paths: bool) -> None:
        self._make = _import_profiler()
        self._codes = functions.codes
        self._full_paths = full_paths
        self._regions: dict[str, _RegionLines] = {}
        self._left_elsewhere: dict[int, list[Any]] = {}  # by thread: profilers that only it can switch off
        self._confirmed: dict[Key, Lines] = {}
        self._collected: dict[Key, Lines] = {}
        self.last: list[dict[str, Any]] = []  # the records that were collected last

    # -- calls ---------------------------------------------------------------------------------------------------------

    def enter(self, region: str) -> object:
        """A call begins: count in the functions of its region, and in the one around its ``with`` statement."""
        if region == ROOT_REGION:
            return None
        lines = self._regions.get(region)
        if lines is None:
            lines = self._regions[region] = _RegionLines(self._make())
        thread = get_ident()
        if self._left_elsewhere:
            self._switch_off_here(thread)
        codes = self._codes.get(region)
        if codes is not None and len(codes) != lines.known:
            lines.known = len(codes)
            for code in list(codes):
                lines.register(code)
        lines.register_caller(caller(), decorated=codes is not None)
        lines.profiler.enable_by_count()
        return lines.profiler, thread

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended. What was switched on for one thread is switched off on that."""
        profiler, owner = mark
        thread = get_ident()
        if self._left_elsewhere:
            self._switch_off_here(thread)
        if thread == owner:
            profiler.disable_by_count()
        else:
            self._left_elsewhere.setdefault(owner, []).append(profiler)
        return False

    def _switch_off_here(self, thread: int) -> None:
        if thread in self._left_elsewhere:
            for profiler in self._left_elsewhere.pop(thread):
                profiler.disable_by_count()

    # -- what was counted ----------------------------------------------------------------------------------------------

    def _now(self) -> dict[Key, Lines]:
        found: dict[Key, Lines] = {}
        for region, lines in list(self._regions.items()):
            for (file, first, function), timings in lines.profiler.get_stats().timings.items():
                if timings:
                    found[region, str(file), int(first), str(function)] = {int(line): (int(hits), time) for line, hits, time in timings}
        return found

    def records(self) -> list[dict[str, Any]]:
        """One record a region and function, of what no file has yet, as results have them."""
        import numpy as np

        self._collected = self._now()
        unit = next((lines.profiler.get_stats().unit for lines in self._regions.values()), 1e-9)
        records = []
        for key, lines in self._collected.items():
            rows = list(_beyond(lines, self._confirmed.get(key, {})))
            if not rows:
                continue
            region, file, first, function = key
            records.append(
                {
                    **_source(file, first, [row[0] for row in rows]),
                    "region": region,
                    "filename": self._stored_path(file),
                    "function": function,
                    "first_lineno": first,
                    "line_numbers": np.array([row[0] for row in rows], dtype=np.int64),
                    "hits": np.array([row[1] for row in rows], dtype=np.int64),
                    "times": np.array([row[2] for row in rows], dtype=np.float64),
                    "unit": float(unit),
                }
            )
        return records

    def _stored_path(self, file: str) -> str:
        from .run_metadata import absolute_source_path, short_source_path

        return absolute_source_path(file) if self._full_paths else short_source_path(file)

    def group(self) -> dict[str, Any] | None:
        """The records as a group."""
        from .auxiliary import group_of

        self.last = records = self.records()
        return group_of(records, {}, {}) if records else None

    def confirm(self) -> None:
        """The next file has what is counted from here on."""
        self._confirmed = self._collected

    def end(self) -> None:
        """Nothing to let go: profilers are off once their calls have ended."""


def _import_profiler() -> Any:
    """line_profiler's class. ImportError says how to get it."""
    import os

    # From Python 3.12 on it counts by sys.monitoring if it is not told otherwise, which is one tool for all threads: those that
    # count at the same time switch each other off. It reads this when it is imported.
    chosen = os.environ.get(_CORE)
    os.environ.setdefault(_CORE, "legacy")
    try:
        from line_profiler import LineProfiler
    except ImportError as error:
        raise ImportError(
            f"use_line_profiler needs the package line_profiler, which cannot be imported ({error}); install it with: "
            "pip install 'scope-profiler[line-profiler]'"
        ) from error
    finally:
        if chosen is None:
            del os.environ[_CORE]
    return LineProfiler


_CORE = "LINE_PROFILER_CORE"


class _RegionLines:
    """The line profiler of one region, and what it looks at."""

    __slots__ = ("_places", "_seen", "known", "profiler")

    def __init__(self, profiler: Any) -> None:
        self.profiler = profiler
        self.known = 0  # how many of the region's own functions are registered
        self._seen: set[CodeType] = set()
        self._places: set[tuple[CodeType, int]] = set()  # calls whose place is known

    def register(self, code: CodeType) -> None:
        if code not in self._seen:
            self._seen.add(code)
            _register(self.profiler, code)

    def register_caller(self, frame: FrameType | None, *, decorated: bool) -> None:
        """The function around the ``with`` statement that enters; a call of a decorated function has none of its own."""
        if frame is not None and (frame.f_code, frame.f_lasti) in self._places:
            return
        direct = True
        while frame is not None and _is_machinery(frame.f_globals.get("__name__")):
            frame, direct = frame.f_back, False
        if frame is None or (frame.f_code, frame.f_lasti) in self._places:
            return
        self._places.add((frame.f_code, frame.f_lasti))
        if not decorated or not direct or _enters_with(frame):
            self.register(frame.f_code)


def _is_machinery(module: Any) -> bool:
    return isinstance(module, str) and (module.partition(".")[0] == "scope_profiler" or module == "contextlib")


def _enters_with(frame: FrameType) -> bool:
    """Whether the frame is at the start of a ``with`` statement, rather than in a call."""
    from opcode import opname

    code, at = frame.f_code.co_code, frame.f_lasti
    if opname[code[at]] in ("BEFORE_WITH", "SETUP_WITH"):
        return True
    return at >= 2 and opname[code[at - 2]] == "LOAD_SPECIAL"  # 3.14: looked up, then called


def _register(profiler: Any, code: CodeType) -> None:
    """Have the profiler count in all functions with this code, the ones that run already included.

    line_profiler tells functions apart by making their bytecode longer, which a running frame does not notice: it would only
    count from the next call on, and not in closures that are made later. Its table of lengths is told to add nothing here.
    """
    from types import FunctionType

    cells = tuple(_cell() for _ in code.co_freevars)
    function = FunctionType(code, {}, code.co_name, None, cells)
    lengths = getattr(type(profiler), "_all_paddings", None)
    if lengths is None:  # a release that does so only for functions of equal bytecode
        profiler.add_function(function)
        return
    before = lengths.get(code.co_code)
    lengths[code.co_code] = 0
    try:
        profiler.add_function(function)
    finally:
        lengths[code.co_code] = max(before or 0, 1)


def _cell() -> Any:
    from types import CellType

    return CellType()


def _beyond(lines: Lines, before: Lines) -> Iterator[tuple[int, int, float]]:
    """(line, hits, time) of what was counted since ``before``."""
    for line, (hits, time) in sorted(lines.items()):
        old_hits, old_time = before.get(line, (0, 0))
        if hits > old_hits or time > old_time:
            yield line, hits - old_hits, float(time - old_time)


def _source(file: str, first: int, numbers: list[int]) -> dict[str, Any]:
    """The text of the function up to its last counted line, from the file as it was run; nothing where there is none."""
    import linecache

    start = min(first, *numbers)
    text = "\n".join(linecache.getline(file, number).rstrip("\n") for number in range(start, max(numbers) + 1))
    if not text.strip() or len(text) > LONGEST_SOURCE or "\0" in text:
        return {}
    return {"source": text, "source_first_lineno": start}
