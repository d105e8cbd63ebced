"""Profiles in files: read, write, and tell what a file is."""

from __future__ import annotations

import os

from scope_profiler import _core
from scope_profiler.spool_profile import SIGNATURE as _SPOOL_SIGNATURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Any

    from scope_profiler.results import ProfilingResults
    from scope_profiler.stored_run import StoredRun

    StrPath = str | os.PathLike[str]

__all__ = [
    "load",
    "profile_format",
    "read_h5",
    "read_h5_summary",
    "read_profile",
    "read_profile_summary",
    "sniff_profile_format",
    "write_profile",
]

FORMAT_HDF5 = "hdf5"
FORMAT_JSON = "json"
FORMAT_HTML = "html"
FORMAT_SPOOL = "spool"
HTML_SUFFIXES = (".html", ".htm")

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_GZIP_SIGNATURE = b"\x1f\x8b"


def profile_format(path: StrPath) -> str:
    """The format that the name of a file stands for: ``"json"``, ``"html"``, else ``"hdf5"``."""
    name = os.fspath(path).lower()
    if name.endswith(HTML_SUFFIXES):
        return FORMAT_HTML
    return FORMAT_JSON if name.endswith((".json", ".json.gz")) else FORMAT_HDF5


def sniff_profile_format(path: StrPath) -> str:
    """The format of a file by its first bytes, by its name where they tell nothing: ``"hdf5"``, ``"json"``, ``"html"`` or
    ``"spool"``.

    Raises FileNotFoundError, or another OSError if the file cannot be read.
    """
    with open(path, "rb") as file:
        begin = file.read(64)
    if begin.startswith(_HDF5_SIGNATURE):
        return FORMAT_HDF5
    if begin.startswith(_SPOOL_SIGNATURE):
        return FORMAT_SPOOL
    if begin.startswith(_GZIP_SIGNATURE) or begin.lstrip().startswith(b"{"):
        return FORMAT_JSON
    if begin.lstrip().startswith(b"<"):
        return FORMAT_HTML
    return profile_format(path)


def load(path: StrPath, verbose: bool = False) -> ProfilingResults:
    """The results in a file, whatever its name.

    Parameters
    ----------
    path
        A profile in HDF5, of any version, or in JSON; or the spool of a run that is not written yet, as far as it goes
        (:func:`scope_profiler.spool_profile.read_spool`).
    verbose
        Has no effect; it is there for programs that pass it.

    Raises
    ------
    OSError
        The file cannot be read: FileNotFoundError where there is none.
    CorruptProfileError
        It is damaged, inconsistent, or no profile.
    HDF5SchemaError
        Its schema is of a later version.
    JSONProfileError
        It is JSON, and not of a profile.
    ValueError
        It is a report in HTML.
    """
    if os.path.isfile(path):
        found = sniff_profile_format(path)
        if found == FORMAT_SPOOL:
            from scope_profiler.spool_profile import read_spool

            return read_spool(path)
        if found == FORMAT_JSON:
            return _read_json(path)
        if found == FORMAT_HTML:
            raise ValueError(f"{os.fspath(path)} is an HTML report: what it was made from cannot be read back from it")
    return read_h5(path, verbose)


def _read_json(path: StrPath) -> ProfilingResults:
    from scope_profiler.json_export import read_json

    return read_json(path)


def read_profile(file_path: StrPath, verbose: bool = False) -> ProfilingResults:
    """As :func:`load`, but the name decides what the file is."""
    return _read_json(file_path) if profile_format(file_path) == FORMAT_JSON else read_h5(file_path, verbose)


def read_profile_summary(file_path: StrPath, **options: Any) -> ProfilingResults:
    """:func:`read_h5_summary` for a file whose name says what it is; JSON is read whole, and ``options`` do not count."""
    return _read_json(file_path) if profile_format(file_path) == FORMAT_JSON else read_h5_summary(file_path, **options)


def read_h5(file_path: StrPath, verbose: bool = False) -> ProfilingResults:
    """The results in an HDF5 file, with every call.

    Of a file that release 1.0 or later wrote only the summary is read at first; the calls follow when they are asked for, from
    the file that was opened, even if another one has taken its place by then. A file of more than 16 MB is checked for damage
    when its calls are read.

    ``verbose`` has no effect. The errors are those of :func:`load`.
    """
    from scope_profiler.stored_run import open_run

    path = os.fspath(file_path)
    run = open_run(path)
    if run is None:
        return _results(_core.read_h5(path), file_path)
    return _results(run.head, file_path, run)


def read_h5_summary(
    file_path: StrPath,
    verbose: bool = False,
    *,
    fallback: bool = True,
    include_likwid: bool = True,
    include_line_profile: bool = True,
    regions: str | Iterable[str] | None = None,
    ranks: int | Iterable[int] | None = None,
) -> ProfilingResults:
    """Counts, statistics, percentiles and sums by call path, without reading the calls: as fast for 100 million as for ten.

    What needs single calls raises EventDataUnavailableError on such results.

    Parameters
    ----------
    file_path
        A profile in HDF5.
    verbose
        Has no effect.
    fallback
        Read a file that holds no summary (of an older version) in full; False: raise SummaryDataUnavailable.
    include_likwid, include_line_profile
        False leaves those out.
    regions
        Names of the regions to read, one or several; None: all.
    ranks
        The same for ranks.

    Raises
    ------
    OSError, CorruptProfileError, HDF5SchemaError
        As of :func:`load`.
    SummaryDataUnavailable
        There is no summary in it, and ``fallback`` is False; a ValueError.
    """
    path = os.fspath(file_path)
    names = None if regions is None else [regions] if isinstance(regions, str) else list(regions)
    numbers = None if ranks is None else [ranks] if isinstance(ranks, int) else list(ranks)
    try:
        profile = _core.read_h5(path, summary=True, regions=names, ranks=numbers)
    except _core.SummaryDataUnavailable:
        if not fallback:
            raise
        profile = _core.read_h5(path, regions=names, ranks=numbers)
    results = _results(profile, file_path)
    if not include_likwid:
        results._likwid = {}
    if not include_line_profile:
        results._line_profile = {}
    return results


def write_profile(
    results: ProfilingResults,
    file_path: StrPath,
    *,
    compression: str | None = None,
    level: int | None = None,
    chunk_size: int | None = None,
    **options: Any,
) -> Path:
    """Write results to a file, with everything that they hold, and return its path: JSON for a name in ``.json`` or
    ``.json.gz``, a page for the browser for one in ``.html`` or ``.htm``, else HDF5.

    The file is written beside the old one, if there is one, and put in its place when it is complete.

    Parameters
    ----------
    results
        What to write. Results without their calls (:func:`read_h5_summary`) cannot be written in HDF5.
    file_path
        Where to. The directory must exist.
    compression
        Of HDF5, as the rest. ``"auto"`` (and None), ``"none"``, ``"gzip"``, ``"lzf"`` or ``"zstd"``.
    level
        Of gzip (0-9) or zstd (1-22).
    chunk_size
        Calls in a chunk.
    options
        Of JSON those of :func:`write_json`, of a page those of :func:`create_html_report`.

    Raises
    ------
    OSError
        The file cannot be written; the message names it.
    TypeError
        The format has no such option.
    ValueError
        The options or results cannot be written.
    """
    from pathlib import Path

    kind = profile_format(file_path)
    if kind == FORMAT_HTML:
        from scope_profiler.html_report import create_html_report

        return create_html_report(results, file_path, **options)
    if kind == FORMAT_JSON:
        from scope_profiler.json_export import write_json

        return write_json(results, file_path, **options)
    if options:
        raise TypeError(f"write_profile() has no option {next(iter(options))!r} for HDF5")
    _core.write_h5(
        results._to_profile(), os.fspath(file_path), compression=compression, level=level, chunk_size=chunk_size
    )
    return Path(file_path)


def _results(profile: _core.Profile, path: StrPath, stored: StoredRun | None = None) -> ProfilingResults:
    from scope_profiler.results import ProfilingResults

    return ProfilingResults._from_profile(profile, file_path=path, stored=stored)
