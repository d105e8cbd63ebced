"""Runs as JSON documents, both ways: every call with its times, ids, lanes and metadata, and the run's tables."""

from __future__ import annotations

import json
import math
import os

from scope_profiler import _core
from scope_profiler._exports import labelled, output_path
from scope_profiler.concurrency import TASK_COLUMNS, THREAD_COLUMNS, ns_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath
    from scope_profiler.region_results import Region
    from scope_profiler.results import ProfilingResults

__all__ = ["JSONProfileError", "export_json", "read_json", "write_json"]

FORMAT = "scope-profiler-profile"
VERSION = 1

# Columns of a region: key in the document, attribute of Region.
_COLUMNS = (
    ("gpu_durations_ns", "gpu_durations_ns"),
    ("call_ids", "call_ids"),
    ("parent_ids", "parent_ids"),
    ("thread_ids", "thread_ids"),
    ("task_ids", "task_ids"),
    ("await_ns", "await_times_ns"),
)


class JSONProfileError(ValueError):
    """A JSON document that is no profile, or one of a later version."""


def plain(value: Any) -> Any:
    """What JSON can hold: no arrays, no NaN, no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


class _Text:
    """A piece of the document that is JSON already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _event_metadata(one: Region) -> Any:
    """The list of one object per call; None when all are empty. What came as a text goes on as one."""
    if isinstance(one._metadata, str):
        return _Text(_core.strict_json(one._metadata)) if one._metadata.strip("[]{}, \t\r\n") else None
    values = () if one._read_metadata() is None else one.event_metadata
    return [plain(item) for item in values] if any(values) else None


def _region(name: str, rank: int, one: Region) -> dict[str, Any]:
    """A row of the document. Columns stay arrays."""
    row: dict[str, Any] = {"name": name, "rank": rank}
    if one.source_file is not None:
        row["source_file"] = one.source_file
    if one.source_lineno is not None:
        row["source_lineno"] = one.source_lineno
    if one.source_text is not None:
        row["source_text"] = one.source_text
    if one.tags:
        row["tags"] = list(one.tags)
    summary = one.stored_summary
    if summary is not None:
        row["aggregate"] = plain(summary)
        if not one.has_event_data:
            row["event_data_available"] = False
        return row
    row["start_times_ns"] = one.start_times_ns
    row["end_times_ns"] = one.end_times_ns
    metadata = _event_metadata(one)
    if metadata is not None:
        row["event_metadata"] = metadata
    for key, attribute in _COLUMNS:
        values = getattr(one, attribute)
        if values is not None:
            row[key] = values
    if one._exclusive_total is not None:
        row["exclusive_total_ns"] = one._exclusive_total
    return row


def _thread(row: Any) -> list[Any]:
    return [row.index, row.name, row.ident, row.native_id, row.daemon, ns_of(row.start_time), ns_of(row.end_time), ns_of(row.cpu_time)]


def _task(row: Any) -> list[Any]:
    return [row.index, row.kind, row.name, row.coro_name, row.thread_index, ns_of(row.created_time), ns_of(row.done_time),
            row.steps, ns_of(row.running_time), ns_of(row.awaiting_time)]  # fmt: skip


def _document(results: ProfilingResults, ranks: Ranks, include: Patterns, exclude: Patterns) -> dict[str, Any]:
    chosen = None if ranks is None else {ranks} if isinstance(ranks, int) else set(ranks)

    def shown(rank: int) -> bool:
        return chosen is None or rank in chosen

    regions = results.get_regions(include, exclude)
    document: dict[str, Any] = {
        "format": FORMAT,
        "format_version": VERSION,
        "exporter": f"scope-profiler@{_core.__version__}",
        "time_unit": "nanoseconds",
        "num_ranks": results.num_ranks,
        "event_data_available": results.has_event_data,
        "metadata": plain(results.metadata),
        "regions": (_region(region.name, rank, region[rank]) for region in regions for rank in region.ranks if shown(rank)),
    }
    tables: dict[str, dict[int, Any]] = {
        "threads": {rank: [dict(zip(THREAD_COLUMNS, _thread(row))) for row in rows] for rank, rows in results.threads.items()},
        "tasks": {rank: [dict(zip(TASK_COLUMNS, _task(row))) for row in rows] for rank, rows in results.tasks.items()},
        "thread_cpu_before": {
            rank: {str(row.index): ns_of(row.cpu_before) for row in rows if row.cpu_before > 0}
            for rank, rows in results.threads.items()
        },
        "task_creators": {
            rank: {str(row.index): [row.creator_thread, row.creator_task] for row in rows if row.creator_thread >= 0}
            for rank, rows in results.tasks.items()
        },
        "likwid": {
            rank: {tag: plain(one.as_dict()) for tag, one in results.get_likwid_regions(rank).items()}
            for rank in results.likwid_ranks
        },
        "line_profile": {rank: [plain(row) for row in rows] for rank, rows in results.line_profile.items()},
        "perf_events": {
            rank: {name: {"calls": one.calls, "values": one.values} for name, one in by_region.items()}
            for rank, by_region in results.get_perf_events().items()
        },
        "samples": {
            rank: {**group["attributes"], "columns": {name: list(values) for name, (_, values) in group["datasets"].items()}}
            for rank, group in results.samples.groups.items()
        },
    }
    for key, table in tables.items():
        kept = {str(rank): rows for rank, rows in table.items() if shown(rank) and rows}
        if kept:
            document[key] = kept
    return document


def _pieces(value: Any, indent: int | None, level: int = 0) -> Iterator[Any]:
    """The JSON text of a value, piece by piece, as write_file() takes them. Columns are on one line."""
    if isinstance(value, _Text):
        yield value.data
    elif hasattr(value, "tolist"):
        yield b"["
        yield value if value.flags.c_contiguous else value.copy()
        yield b"]"
    elif isinstance(value, dict) and level < _STREAMED_LEVELS:
        members = ((json.dumps(key, ensure_ascii=False), item) for key, item in value.items())
        yield from _container(b"{}", members, indent, level)
    elif hasattr(value, "__next__"):
        yield from _container(b"[]", ((None, item) for item in value), indent, level)
    else:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, separators=_separators(indent))
        yield utf8(text.replace("\n", _new_line(indent, level)) if indent is not None else text)


def utf8(text: str) -> bytes:
    """JSON text as bytes. Lone surrogates, which os.fsdecode() makes of bytes in file names, are escaped as JSON has it."""
    return text.encode("utf-8", "backslashreplace")


_STREAMED_LEVELS = 3  # the document, its list of regions, a region


def _separators(indent: int | None) -> tuple[str, str]:
    return (",", ":") if indent is None else (",", ": ")


def _new_line(indent: int | None, level: int) -> str:
    return "" if indent is None else "\n" + " " * (indent * level)


def _container(
    brackets: bytes, members: Iterable[tuple[str | None, Any]], indent: int | None, level: int
) -> Iterator[Any]:
    comma, colon = _separators(indent)
    separator = ""
    yield brackets[:1]
    for key, item in members:
        name = "" if key is None else key + colon
        yield utf8(separator + _new_line(indent, level + 1) + name)
        yield from _pieces(item, indent, level + 1)
        separator = comma
    if separator:
        yield _new_line(indent, level).encode()
    yield brackets[1:]


def write_json(
    results: ProfilingResults,
    filepath: StrPath,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    ranks: Ranks = None,
    indent: int | None = None,
) -> Path:
    """Write one run as JSON and return the path. A name that ends in ``.gz`` is compressed; directories are made.

    The document is written region by region. Arguments and errors are those of :func:`export_json`.
    """
    from itertools import chain
    from pathlib import Path

    document = _document(results, ranks, include, exclude)
    path = Path(filepath)
    path.parent.mkdir(parents=True, exist_ok=True)
    _core.write_file(os.fspath(path), chain(_pieces(document, indent), [b"\n"]))
    return path


def export_json(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
    indent: int | None = None,
) -> list[Path]:
    """Write one JSON document per run, with everything :func:`read_json` needs to give the run back.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.json`` is appended to a name without a suffix, and a name that ends in ``.gz`` is compressed. With several
        runs, each run's label becomes part of its file's name. Directories are made.
    ranks
        Which ranks; all if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    verbose
        Print a line per file.
    indent
        Spaces per level; everything on one line if not given.

    Returns
    -------
    list of Path
        The files, in the order of the runs; empty on a process that does not have the run (MPI).

    Raises
    ------
    ValueError
        If no results were given.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    """
    paths = []
    for _, tail, results in labelled(profiling_data):
        path = output_path(filepath, ".json", tail)
        paths.append(write_json(results, path, include=include, exclude=exclude, ranks=ranks, indent=indent))
        if verbose:
            print(f"Wrote {path}")
    return paths


# -- reading -----------------------------------------------------------------------------------------------------------


def read_json(file_path: StrPath, verbose: bool = False) -> ProfilingResults:
    """The results in a JSON document, compressed or not.

    ``verbose`` has no effect. Raises FileNotFoundError, another OSError if the file cannot be read, JSONProfileError for a
    document that is no profile, is of a later version or lacks something, and json.JSONDecodeError for what is no JSON.
    """
    name = os.fspath(file_path)
    with open(file_path, "rb") as file:
        data = file.read()
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data, name)
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(f"{name}: {error.msg}", error.doc, error.pos) from None
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of too many digits
        raise JSONProfileError(f"{name} is no profile: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise JSONProfileError(f"{name} is JSON, but not a profile")
    version = document.get("format_version")
    if not isinstance(version, int) or version > VERSION:
        raise JSONProfileError(f"{name} has version {version!r:.100} of the format; this package reads up to {VERSION}")
    try:
        return _checked(_results(document, file_path))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, IndexError, RecursionError) as error:
        reason = " ".join(f"{error!s:.500}".split())  # it may quote the file, line breaks included
        raise JSONProfileError(f"{name} is a damaged profile: {type(error).__name__}: {reason}") from error


def _checked(results: ProfilingResults) -> ProfilingResults:
    """The results, if their numbers and texts are of the kinds that they should be: what is not would fail at its first use."""
    from contextlib import suppress

    with suppress(ValueError):  # what only a file cannot hold (a name with NUL) can be looked at
        results._to_profile()
    return results


# A profile in JSON is a few times as large as its compressed form; a document that is made to fill the memory a thousand times.
_EXPANSION = 100
_SMALL = 32 << 20
_PIECE = 1 << 20


def _unpacked(data: bytes, name: str) -> bytes:
    import zlib

    most = _SMALL + _EXPANSION * len(data)
    whole = bytearray()
    try:
        while data:  # one compressed member after the other
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while not member.eof:
                piece = member.decompress(data, _PIECE)
                if not (piece or member.eof):
                    raise JSONProfileError(f"{name} is damaged: its compressed data end too early")
                whole += piece
                if len(whole) > most:
                    raise JSONProfileError(f"{name} is no profile: unpacked, it is more than {_EXPANSION} times as large")
                data = member.unconsumed_tail
            data = member.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise JSONProfileError(f"{name} is damaged: {error}") from None
    return bytes(whole)


def _array(values: Any) -> Any:
    import numpy as np

    return None if values is None else np.array(values, dtype=np.int64)


def _read_region(row: Mapping[str, Any]) -> Region:
    from scope_profiler.region_results import Region

    columns = {key: _array(row.get(key)) for key, _ in _COLUMNS}
    starts, ends = _array(row.get("start_times_ns", ())), _array(row.get("end_times_ns", ()))
    if (starts is None) != (ends is None):
        raise ValueError("a region has starts or ends alone")
    tags = row.get("tags", ())
    if not all(isinstance(tag, str) for tag in tags):
        raise ValueError(f"a tag is no text: {tags!r:.100}")
    return Region(
        starts,
        ends,
        gpu_durations=columns["gpu_durations_ns"],
        call_ids=columns["call_ids"],
        parent_ids=columns["parent_ids"],
        thread_ids=columns["thread_ids"],
        task_ids=columns["task_ids"],
        await_times=columns["await_ns"],
        event_metadata=row.get("event_metadata"),
        source_file=row.get("source_file"),
        source_lineno=row.get("source_lineno"),
        source_text=row.get("source_text"),
        tags=tuple(tags),
        aggregate=row.get("aggregate"),
        event_data_available=row.get("event_data_available", True),
    )


def _line_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a line profile with its numbers as arrays, as files of the other format have them."""
    import numpy as np

    kinds = {"line_numbers": np.int64, "hits": np.int64, "times": np.float64}
    return {name: np.array(value, dtype=kinds[name]) if name in kinds else value for name, value in row.items()}


def _results(document: Mapping[str, Any], path: StrPath) -> ProfilingResults:
    from scope_profiler.concurrency import TaskInfo, ThreadInfo
    from scope_profiler.likwid_data import LikwidRegionResult
    from scope_profiler.mpi_region import MPIRegion
    from scope_profiler.perf_events import PerfEventTotals
    from scope_profiler.results import ProfilingResults
    from scope_profiler.stack_samples import Samples

    ranks: dict[str, dict[int, Region]] = {}
    totals: dict[str, dict[int, int]] = {}
    for row in document.get("regions", ()):
        name, rank = row["name"], int(row["rank"])
        ranks.setdefault(name, {})[rank] = _read_region(row)
        if "exclusive_total_ns" in row:
            totals.setdefault(name, {})[rank] = int(row["exclusive_total_ns"])

    def table(key: str) -> dict[int, Any]:
        return {int(rank): rows for rank, rows in document.get(key, {}).items()}

    befores = table("thread_cpu_before")  # release 0.7.5 knows none
    creators = table("task_creators")  # nor these

    def thread(rank: int, row: Mapping[str, Any]) -> ThreadInfo:
        return ThreadInfo(rank=rank, **row, cpu_before_ns=befores.get(rank, {}).get(str(row["index"]), 0))

    def task(rank: int, row: Mapping[str, Any]) -> TaskInfo:
        thread, maker = creators.get(rank, {}).get(str(row["index"]), (-1, -1))
        return TaskInfo(rank=rank, **row, creator_thread=thread, creator_task=maker)

    def likwid_region(row: Mapping[str, Any]) -> LikwidRegionResult:
        return LikwidRegionResult(**{name: value for name, value in row.items() if name != "event_labels"})  # those are made

    results = ProfilingResults(
        {name: MPIRegion(name, by_rank) for name, by_rank in ranks.items()},
        metadata=document.get("metadata"),
        num_ranks=document.get("num_ranks"),
        likwid={r: {tag: likwid_region(one) for tag, one in by_tag.items()} for r, by_tag in table("likwid").items()},
        perf_events={
            r: {name: PerfEventTotals(one["calls"], one["values"]) for name, one in by_region.items()}
            for r, by_region in table("perf_events").items()
        },
        line_profile={r: [_line_record(row) for row in rows] for r, rows in table("line_profile").items()},
        file_path=path,
        exclusive_totals=totals,
        event_data_available=document.get("event_data_available", True),
        threads={r: [thread(r, row) for row in rows] for r, rows in table("threads").items()},
        tasks={r: [task(r, row) for row in rows] for r, rows in table("tasks").items()},
    )
    results._samples = Samples({rank: _samples_group(row) for rank, row in table("samples").items()})
    return results


def _samples_group(row: Mapping[str, Any]) -> dict[str, Any]:
    """The samples of a rank as a profile has them."""
    from array import array

    columns = {
        name: ((len(values),), values if values and isinstance(values[0], str) else array("q", values))
        for name, values in row["columns"].items()
    }
    attributes = {name: value for name, value in row.items() if name != "columns"}
    return {"attributes": attributes, "datasets": columns, "groups": {}}
