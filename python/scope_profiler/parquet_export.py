"""Runs as Parquet files, a row per call, written by pyarrow."""

from __future__ import annotations

import io
import json
import os

from scope_profiler import _core
from scope_profiler._exports import Selection, labelled, output_path, trace_origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    import numpy as np

    from scope_profiler._exports import Patterns, Ranks, Runs, StrPath

__all__ = ["export_parquet"]

_BATCH = 100_000  # calls that are converted at once: what an export needs of memory
_NUMBERS = (
    ("call_id", "call_ids"),
    ("parent_id", "parent_ids"),
    ("thread", "thread_ids"),
    ("task", "task_ids"),
    ("await_ns", "await_ns"),
    ("gpu_ns", "gpu_ns"),
)


class _Calls:
    """The calls of a selection as Arrow tables, a batch at a time."""

    def __init__(self, selection: Selection) -> None:
        import numpy as np

        self.profile = profile = selection.profile
        shown = selection.shown
        rows = [profile.row(index) for index in range(profile.row_count)]
        order = {rank: place for place, rank in enumerate(selection.ranks)}
        self.rows = sorted(
            (row for row in rows if row[1] in order and row[3] and (shown is None or shown[row[0]])),
            key=lambda row: order[row[1]],
        )
        self.columns: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
        for name in ("start_ns", "end_ns", *(column for _, column in _NUMBERS)):
            values = profile.column(name)
            if values is not None:
                self.columns[name] = np.frombuffer(values, dtype=np.int64)
        self.origin = trace_origin(selection)
        self.has_sources = any(row[4] is not None for row in self.rows)
        self.has_metadata = any(row[8] is not None for row in self.rows)
        self.lanes = {"thread": _names(profile.threads), "task": _names(profile.tasks)}

    def tables(self) -> Iterator[Any]:
        """One for each batch."""
        pieces: list[tuple[tuple[Any, ...], int, int]] = []
        room = _BATCH
        for row in self.rows:
            begin = 0
            while begin < row[3]:
                end = min(row[3], begin + room)
                pieces.append((row, begin, end))
                room -= end - begin
                begin = end
                if room == 0:
                    yield self._table(pieces)
                    pieces, room = [], _BATCH
        if pieces:
            yield self._table(pieces)

    def _table(self, pieces: Sequence[tuple[tuple[Any, ...], int, int]]) -> Any:
        import numpy as np
        import pyarrow as pa

        sizes = [end - begin for _, begin, end in pieces]

        def numbers(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
            column = self.columns[name]
            return np.concatenate([column[row[2] + begin : row[2] + end] for row, begin, end in pieces])

        def repeated(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
            return np.repeat(np.array(values, dtype=np.int64), sizes)

        start, end = numbers("start_ns") - self.origin, numbers("end_ns") - self.origin
        table = {
            "region": _texts([self.profile.names[row[0]] for row, _, _ in pieces], sizes),
            "rank": pa.array(repeated([row[1] for row, _, _ in pieces])),
            "call_index": pa.array(np.concatenate([np.arange(begin, end) for _, begin, end in pieces])),
            "start_ns": pa.array(start),
            "end_ns": pa.array(end),
            "duration_ns": pa.array(end - start),
        }
        for name, column in _NUMBERS:
            if column in self.columns:
                values = numbers(column)
                table[name] = _known(values)
                if name in self.lanes:
                    table[f"{name}_name"] = _lane_names(values, repeated([row[1] for row, _, _ in pieces]), self.lanes[name])
        if self.has_sources:
            table["source_file"] = _texts([row[4] for row, _, _ in pieces], sizes)
            table["source_line"] = _known(repeated([row[5] if row[4] is not None else -1 for row, _, _ in pieces]))
        if self.has_metadata:
            table["metadata"] = pa.array([text for piece in pieces for text in _metadata(*piece)], pa.string())
        return pa.table(table)


def _known(values: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    import pyarrow as pa

    return pa.array(values, mask=values < 0)


def _texts(values: Sequence[str | None], sizes: Sequence[int]) -> Any:
    """Each text as often as its size says, stored once."""
    import numpy as np
    import pyarrow as pa

    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return _dictionary(np.repeat(np.array(codes, dtype=np.int32), sizes), list(places), pa)


def _dictionary(codes: np.ndarray[Any, Any], texts: Sequence[str], pa: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(texts, pa.string()))


def _names(table: Mapping[str, Any] | None) -> dict[tuple[int, int], str]:
    """{(rank, index): name} of a lane table."""
    return {} if table is None else dict(zip(zip(table["ranks"], table["index"]), table["name"]))


def _lane_names(values: np.ndarray[Any, Any], ranks: np.ndarray[Any, Any], names: Mapping[tuple[int, int], str]) -> Any:
    import numpy as np
    import pyarrow as pa

    lanes, places = np.unique(np.stack([ranks, values]), axis=1, return_inverse=True)
    texts: dict[str, int] = {}
    found = (names.get((int(rank), int(lane))) for rank, lane in lanes.T)
    codes = np.array([-1 if name is None else texts.setdefault(name, len(texts)) for name in found], dtype=np.int32)
    return _dictionary(codes[places.ravel()], list(texts), pa)


def _metadata(row: tuple[Any, ...], begin: int, end: int) -> Iterator[str | None]:
    if row[8] is None:
        yield from (None for _ in range(begin, end))
        return
    from scope_profiler.json_export import plain, utf8

    for item in json.loads(row[8])[begin:end]:
        yield utf8(json.dumps(plain(item), ensure_ascii=False, separators=(",", ":"))).decode() if item else None


def export_parquet(
    profiling_data: Runs,
    filepath: StrPath,
    ranks: Ranks = None,
    include: Patterns = None,
    exclude: Patterns = None,
    verbose: bool = True,
) -> list[Path]:
    """Write one Parquet file per run: a row per call, region by region. Needs pyarrow.

    Columns: ``region``, ``rank``, ``call_index`` (in the region), ``start_ns``, ``end_ns`` (since the start of the run),
    ``duration_ns``, and as far as the run has them ``call_id``, ``parent_id``, ``thread``, ``thread_name``, ``task``,
    ``task_name``, ``await_ns``, ``gpu_ns``, ``source_file``, ``source_line``, ``metadata`` (JSON). Numbers that are not known are
    null.

    Parameters
    ----------
    profiling_data
        Results, one or several.
    filepath
        Where to; ``.parquet`` is appended to a name without a suffix. With several runs, each run's label becomes part of
        its file's name. Directories are made.
    ranks
        Which ranks; rank 0 if not given.
    include, exclude
        Regular expressions that match the beginning of a region's name.
    verbose
        Print a line per file.

    Returns
    -------
    list of Path
        The files, in the order of the runs; empty on a process that does not have the run (MPI).

    Raises
    ------
    ValueError
        If there is nothing to export: no results, no such rank, no region that matches, no call.
    EventDataUnavailableError
        If the results were read without their calls.
    OSError
        If a file cannot be written; an older file of that name is left as it was.
    ImportError
        If pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("export_parquet() needs pyarrow, which is not installed: pip install pyarrow") from error

    paths = []
    for _, tail, results in labelled(profiling_data):
        selection = Selection(results, "export_parquet()", ranks, include, exclude)
        selection.need_calls()
        path = output_path(filepath, ".parquet", tail)
        path.parent.mkdir(parents=True, exist_ok=True)
        _core.write_file(os.fspath(path), _pieces(_Calls(selection), pyarrow.parquet.ParquetWriter))
        paths.append(path)
        if verbose:
            print(f"Wrote {path}")
    return paths


class _Sink(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def take(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _pieces(calls: _Calls, writer_type: Any) -> Iterator[bytes]:
    """The file's content, a batch at a time."""
    sink = _Sink()
    tables = calls.tables()
    first = next(tables)  # the selection has calls
    with writer_type(sink, first.schema) as writer:
        writer.write_table(first)
        yield from sink.take()
        for table in tables:
            writer.write_table(table)
            yield from sink.take()
    yield from sink.take()
