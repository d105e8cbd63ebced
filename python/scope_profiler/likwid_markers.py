"""LIKWID markers around the calls of regions, by the pylikwid package, and what LIKWID counted in them.

LIKWID counts in a program that ``likwid-perfctr -m`` has started; without that its markers do nothing. When they are closed it writes
what it counted into a file. Its own library reads that with the names of events and with derived metrics, but has to open the
counters again for it, which can end the process on machines that cannot count: another process does that
(likwid_readback.py). If it fails, the file is read here, where it has numbers without names; and if there is none, what the
thread that finalizes had counted is asked for before the markers are closed.
"""

from __future__ import annotations

import os
from _thread import get_ident

from .modes import Mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .likwid_data import LikwidRegionResult

__all__ = ["LikwidMarkers", "import_pylikwid", "is_counting", "parse_marker_file"]

READBACK_TIMEOUT = 120.0  # seconds

_user: LikwidMarkers | None = None  # the process has one set of markers


def is_counting() -> bool:
    """Whether ``likwid-perfctr -m`` (or ``likwid-mpirun``) has started this process."""
    return bool(os.environ.get("LIKWID_FILEPATH") and os.environ.get("LIKWID_EVENTS"))


def import_pylikwid() -> Any:
    """The package. ImportError says how to get it."""
    try:
        import pylikwid
    except ImportError as error:
        if "liblikwid" in str(error) and _preload():
            import pylikwid
        else:
            raise ImportError(_advice(error)) from error
    return pylikwid


def _advice(error: ImportError) -> str:
    if "liblikwid" in str(error):
        return (
            f"use_likwid: pylikwid does not find LIKWID's library ({error}); load LIKWID's module, or put the directory of liblikwid.so "
            "into LD_LIBRARY_PATH"
        )
    return (
        f"use_likwid needs the package pylikwid, which cannot be imported ({error}); install LIKWID, then: "
        "pip install 'scope-profiler[likwid]'"
    )


def _preload() -> bool:
    """Load LIKWID's library from where its programs are; then pylikwid finds it though no path leads there."""
    import ctypes
    import glob
    import shutil

    prefixes = [os.environ.get(name, "") for name in ("LIKWID_PREFIX", "LIKWID_HOME", "LIKWID_ROOT")]
    program = shutil.which("likwid-perfctr")
    if program:
        prefixes.append(os.path.dirname(os.path.dirname(os.path.realpath(program))))
    for prefix in filter(None, prefixes):
        for path in sorted(glob.glob(os.path.join(glob.escape(prefix), "lib*", "liblikwid.so*")), reverse=True):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            return True
    return False


class LikwidMarkers(Mode):
    """LIKWID markers: what its counters counted in each region, until the first collection."""

    needs_columns = True
    acts = True

    def __init__(self) -> None:
        self._likwid = import_pylikwid()
        self._threads: dict[int, _Thread] = {}
        self._regions: dict[str, None] = {}  # that were entered
        self._open = False
        self._results: dict[str, LikwidRegionResult] = {}

    def begin(self) -> None:
        """Open the markers. RuntimeError: another run has them."""
        global _user
        if _user is not None and _user is not self:
            raise RuntimeError("use_likwid: another run of this process has LIKWID's markers; finalize() it first")
        if not is_counting():
            from .recording import warn

            warn("use_likwid: the program was not started by likwid-perfctr -m, so LIKWID counts nothing; its regions are timed only")
        self._likwid.markerinit()
        _user = self
        self._open = True

    def enter(self, region: str) -> object:
        """A call begins. LIKWID starts a region once: calls inside of calls belong to the outermost."""
        if not self._open:
            return None
        thread = self._threads.get(get_ident())
        if thread is None:
            thread = self._threads[get_ident()] = _Thread(self._likwid)
        thread.enter(region)
        self._regions[region] = None
        return thread

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended; the thread that began it stops the region."""
        begun_on: _Thread = mark
        if self._threads.get(get_ident()) is begun_on:
            begun_on.leave(region)
        else:
            begun_on.left_elsewhere.append(region)
        return False

    def group(self) -> dict[str, Any] | None:
        """What was counted, as a group."""
        from .auxiliary import group_of

        if self._open:
            self._results = self._collect()
        if not self._results:
            return None
        group = group_of([], {}, self._results)
        group["groups"]["likwid"]["attributes"].update(_environment())
        return group

    def _collect(self) -> dict[str, LikwidRegionResult]:
        snapshots = self._snapshots() if is_counting() and get_ident() in self._threads else []
        self.end()
        if not is_counting():
            return {}
        path = os.environ["LIKWID_FILEPATH"]
        results = _read_elsewhere() or parse_marker_file(path) or snapshots
        return {result.tag: result for result in results}

    def _snapshots(self) -> list[LikwidRegionResult]:
        """What the calling thread has counted, from the open markers."""
        import numpy as np

        from .likwid_data import LikwidRegionResult

        found = []
        for region in self._regions:
            try:
                _, events, time, count = self._likwid.markergetregion(region)
            except Exception:  # this thread was not in it
                continue
            if count > 0:
                values = np.asarray(events, dtype=np.float64).reshape(-1, 1)
                found.append(
                    LikwidRegionResult(
                        region,
                        times=np.array([time], dtype=np.float64),
                        call_counts=np.array([count], dtype=np.int64),
                        event_names=_numbered(len(values)),
                        events=values,
                        source="marker_api",
                    )
                )
        return found

    def confirm(self) -> None:
        """They are in a file."""
        self._results = {}

    def end(self) -> None:
        """Close the markers. Idempotent."""
        global _user
        if self._open:
            self._open = False
            _user = None
            self._likwid.markerclose()


class _Thread:
    """What one thread has open."""

    __slots__ = ("_likwid", "depths", "left_elsewhere")

    def __init__(self, likwid: Any) -> None:
        self._likwid = likwid
        self.depths: dict[str, int] = {}
        self.left_elsewhere: list[str] = []  # regions that other threads ended
        likwid.markerthreadinit()

    def enter(self, region: str) -> None:
        self._settle()
        depth = self.depths.get(region, 0)
        if depth == 0:
            self._likwid.markerstartregion(region)
        self.depths[region] = depth + 1

    def leave(self, region: str) -> None:
        self._settle()
        self._stop(region)

    def _settle(self) -> None:
        while self.left_elsewhere:
            self._stop(self.left_elsewhere.pop())

    def _stop(self, region: str) -> None:
        self.depths[region] -= 1
        if self.depths[region] == 0:
            self._likwid.markerstopregion(region)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("LIKWID_")}


def _numbered(count: int) -> list[str]:
    return [f"event_{index}" for index in range(count)]


def _read_elsewhere() -> list[LikwidRegionResult]:
    """The marker file as LIKWID reads it, in a process of its own; nothing if that fails."""
    import json
    import subprocess
    import sys
    import tempfile

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")])),
        "SCOPE_PROFILER_MPI": "0",  # it is no rank
    }
    # Not by a pipe: LIKWID prints on both streams.
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        command = [sys.executable, "-m", "scope_profiler.likwid_readback", answer.name]
        try:
            subprocess.run(command, env=environment, timeout=READBACK_TIMEOUT, capture_output=True, check=False)
            rows = json.load(answer)
        except (OSError, ValueError, subprocess.SubprocessError):
            return []
    return [_result(row) for row in rows]


def _result(row: dict[str, Any]) -> LikwidRegionResult:
    import numpy as np

    from .likwid_data import LikwidRegionResult

    threads = len(row["times"])
    arrays: dict[str, Any] = {
        "times": np.array(row["times"], dtype=np.float64),
        "call_counts": np.array(row["call_counts"], dtype=np.int64),
        "events": np.array(row["events"], dtype=np.float64).reshape(-1, threads),
        "metrics": np.array(row["metrics"], dtype=np.float64).reshape(-1, threads),
    }
    return LikwidRegionResult(**{**row, **arrays}, source="full_api")


def parse_marker_file(path: str | os.PathLike[str]) -> list[LikwidRegionResult]:
    """What LIKWID's markers wrote, without LIKWID: numbers of events, without their names and metrics.

    The first line has the numbers of threads, regions and groups; then comes a line ``<id>:<tag>-<group>`` for each region, and a line
    ``<region> <group> <cpu> <calls> <seconds> <events> <counts...>`` for each region and thread. A file that is missing or is not
    like that gives nothing: the times of the run are worth more than its counters.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split("\n")[0] for line in file if line.strip()]
        regions = int(lines[0].split()[1])
        names = [_tag(line) for line in lines[1 : 1 + regions]]
        rows = [line.split() for line in lines[1 + regions :]]
        return [_from_rows(tag, group, [row for row in rows if int(row[0]) == number]) for number, tag, group in names]
    except (OSError, ValueError, IndexError):
        return []


def _tag(line: str) -> tuple[int, str, int]:
    number, _, rest = line.partition(":")
    tag, _, group = rest.rpartition("-")  # a tag may have both
    return int(number), tag, int(group)


def _from_rows(tag: str, group: int, rows: list[list[str]]) -> LikwidRegionResult:
    import numpy as np

    from .likwid_data import LikwidRegionResult

    counts = [list(map(float, row[6 : 6 + int(row[5])])) for row in rows]
    return LikwidRegionResult(
        tag,
        group,
        cpus=[int(row[2]) for row in rows],
        times=np.array([float(row[4]) for row in rows], dtype=np.float64),
        call_counts=np.array([int(row[3]) for row in rows], dtype=np.int64),
        event_names=_numbered(max(map(len, counts), default=0)),
        events=np.array(counts, dtype=np.float64).reshape(len(rows), -1).T,
        source="marker_file",
    )
