"""Traces that C and Fortran programs write on their own: reading, finding and converting them.

A native program that is not loaded into a profiled Python process writes one file a rank: a ``.spt`` trace (releases before
1.0, and programs that ask for it), or an HDF5 profile called ``*_rank<number>.h5``. The calls of a trace have no lane of their
own: on their rank they are one stack, beside the threads and tasks of a Python run that they are put together with.
"""

from __future__ import annotations

import os

from scope_profiler import _core
from scope_profiler._core import TraceFormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    import numpy as np

    from scope_profiler.results import ProfilingResults

    StrPath: TypeAlias = str | os.PathLike[str]
    Inputs: TypeAlias = StrPath | Iterable[StrPath]

__all__ = [
    "FORMAT_VERSION",
    "KNOWN_FORMAT_VERSIONS",
    "MAGIC",
    "RegionTrace",
    "TRACE_SUFFIX",
    "TraceFormatError",
    "c_include_dir",
    "c_library_path",
    "c_source_path",
    "convert_traces",
    "find_traces",
    "fortran_source_path",
    "load_traces",
    "read_trace",
    "write_results",
]

#: The first eight bytes of a trace.
MAGIC = b"SCOPEPRF"
#: What the names of traces end with.
TRACE_SUFFIX = ".spt"
#: The version of the traces that the library writes.
FORMAT_VERSION = 2
#: The versions that can be read.
KNOWN_FORMAT_VERSIONS = (1, 2)


class RegionTrace:
    """The calls of one region in a trace: a pair ``(start_times, end_times)``, and where the region is.

    Attributes
    ----------
    start_times, end_times
        int64 ns, one value a call.
    source_file, source_lineno
        A str and an int, each None where the trace has none.
    """

    __slots__ = ("end_times", "source_file", "source_lineno", "start_times")

    def __init__(
        self, start_times: np.ndarray, end_times: np.ndarray, source_file: str | None = None, source_lineno: int | None = None
    ) -> None:
        self.start_times = start_times
        self.end_times = end_times
        self.source_file = source_file
        self.source_lineno = source_lineno

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.start_times, self.end_times))

    def __getitem__(self, index: int) -> np.ndarray:
        return (self.start_times, self.end_times)[index]

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return f"RegionTrace({len(self.start_times)} calls)"


def read_trace(path: StrPath) -> tuple[int, dict[str, RegionTrace]]:
    """The rank of a ``.spt`` file, and its regions by name in order of appearance.

    Versions 1 and 2 are read, in either byte order. Calls of a name that the file has twice go together. Raises
    TraceFormatError, a ValueError, for anything else, and OSError where the file cannot be read.
    """
    rank, profile = _core.read_trace(path)
    starts, ends = _column(profile, "start_ns"), _column(profile, "end_ns")
    names = profile.names
    regions = {}
    for name, _, first, count, source_file, source_line, *_ in profile.rows:
        place = slice(first, first + count)
        line = source_line if source_file is not None and source_line >= 0 else None
        regions[names[name]] = RegionTrace(starts[place], ends[place], source_file, line)
    return rank, regions


def _column(profile: _core.Profile, name: str) -> np.ndarray:
    import numpy as np

    column = profile.column(name)
    return np.empty(0, np.int64) if column is None else np.asarray(column)


def _listed(inputs: Inputs) -> list[StrPath]:
    return [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)


def find_traces(inputs: Inputs) -> list[Path]:
    """The native output that ``inputs`` name, each file once.

    A path or several: files are taken as they are, and of a directory what is called ``*.spt`` or ``*_rank<number>.h5``, by
    name. FileNotFoundError for a path that is not there, and for a directory without such files.
    """
    from pathlib import Path

    return [Path(path) for path in _core.find_traces(_listed(inputs))]


def load_traces(inputs: Inputs, label: str | None = None) -> ProfilingResults:
    """Native output as results, one rank or more a file.

    ``inputs`` are as for :func:`find_traces`. The metadata are ``source`` (``"native"``), ``trace_format_version``,
    ``start_time_ns`` (the earliest start), what HDF5 files say about themselves, and ``label`` if there is one. Without any
    file the results are empty.

    Raises TraceFormatError, a ValueError, for a file that is damaged or no trace, and for two files of one rank; OSError for
    what cannot be read.
    """
    from scope_profiler.results import ProfilingResults

    paths = _core.find_traces(_listed(inputs))
    if not paths:
        return ProfilingResults({}, {"source": "native"}, file_path="native_trace")
    return ProfilingResults._from_profile(_core.load_traces(paths, label), file_path=label or "native_trace")


def join_traces(profile: _core.Profile, inputs: Inputs) -> _core.Profile:
    """The profile of a run with native output beside what it recorded itself.

    Raises ValueError for a region that both have on a rank, and what :func:`load_traces` raises.
    """
    paths = _core.find_traces(_listed(inputs))
    if not paths:
        return profile
    native = _core.load_traces(paths)
    _check_names(profile, native, paths)
    return _core.union_profiles([profile, _core.replace_profile(native, metadata={})])


def _check_names(profile: _core.Profile, native: _core.Profile, paths: list[str]) -> None:
    mine, theirs = _named_rows(profile), _named_rows(native)
    for name, rank in theirs:
        if (name, rank) in mine:
            raise ValueError(
                f"region {name!r} was recorded in this process and in the native traces ({', '.join(paths[:3])}): its calls "
                "could not be told apart; give it another name in one of them"
            )


def _named_rows(profile: _core.Profile) -> dict[tuple[str, int], None]:
    names, ranks = profile.row_keys()
    known = profile.names
    return {(known[name], rank): None for name, rank in zip(names, ranks)}


def convert_traces(inputs: Inputs, output_path: StrPath, label: str | None = None) -> Path:
    """Write native output as one profile and return its path. The errors are those of :func:`load_traces` and
    :func:`write_results`."""
    return write_results(load_traces(inputs, label), output_path)


def write_results(results: ProfilingResults, output_path: StrPath) -> Path:
    """Write results with everything they hold: :func:`scope_profiler.write_profile`."""
    from scope_profiler.profile_io import write_profile

    return write_profile(results, output_path)


# -- what native code is compiled with ---------------------------------------------------------------------------------


def _native_dir(part: str) -> Path:
    """A directory of the installed package; of the checkout where the package runs from it."""
    from pathlib import Path

    package = Path(__file__).resolve().parent
    installed = package / "native" / part
    return installed if installed.is_dir() else package.parents[1] / part


def c_include_dir() -> Path:
    """The directory with ``scope_profiler.h`` and ``scope_profiler.hpp``, for a compiler's ``-I``."""
    return _native_dir("include")


def c_source_path() -> Path:
    """A C source to compile into a program that is not linked with the library: it opens the library when the program starts.

    Its headers are beside it. Programs that compiled the profiler in before release 1.0 need not change their build lines.
    """
    return _native_dir("include") / "scope_profiler.c"


def c_library_path() -> Path:
    """The C library that native code links with. FileNotFoundError where the package runs from a checkout without one."""
    path = _native_dir("lib") / "libscope_profiler.so.1"
    if not path.exists():
        raise FileNotFoundError(f"{path}: the library comes with an installed package, or with `meson install`")
    return path


def fortran_source_path() -> Path:
    """The Fortran module ``scope_profiler``, to compile into a program."""
    return _native_dir("fortran") / "scope_profiler.f90"
