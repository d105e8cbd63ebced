"""The numbers behind a plot, as columns, and the files they go to."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scope_profiler.plotting_scripts._files import write_pieces

__all__ = ["FORMATS", "Column", "Table", "check_format", "write_table"]

FORMATS = ("csv", "json", "parquet")
Column: TypeAlias = Sequence[Any] | NDArray[Any]

_ROWS = 50_000  # that are text at once


@dataclass
class Table:
    """Columns of one length under the name of a plot. ``rows`` is what JSON calls the list of rows; ``extra`` goes beside it."""

    plot: str
    rows: str
    columns: Mapping[str, Column]
    extra: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return max((len(column) for column in self.columns.values()), default=0)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Rows, of Python's own numbers; None where there is no value."""
        for start in range(0, len(self), _ROWS):
            yield from zip(*(_plain(column[start : start + _ROWS]) for column in self.columns.values()))


def _plain(values: Column) -> Sequence[Any]:
    if isinstance(values, np.ndarray):
        plain: list[Any] = values.tolist()
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return [value if value - value == 0 else None for value in plain]
        return plain
    return values


def check_format(data_format: str) -> None:
    """ValueError for a format that there is not, ImportError for one that a library is missing for."""
    if data_format not in FORMATS:
        raise ValueError(f"no data format {data_format!r}; there are {', '.join(FORMATS)}")
    if data_format == "parquet":
        _pyarrow()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install scope-profiler[parquet]") from None
    return pyarrow


def write_table(table: Table, path: str | os.PathLike[str], data_format: str) -> None:
    """Write the table; the directory is made."""
    write_pieces(path, {"csv": _csv, "json": _json, "parquet": _parquet}[data_format](table))


def _csv(table: Table) -> Iterator[bytes]:
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(_cells(list(table.columns)))
    for start in range(0, len(table), _ROWS):
        writer.writerows(zip(*(_cells(column[start : start + _ROWS]) for column in table.columns.values())))
        yield lines.getvalue().encode("utf-8", "backslashreplace")
        lines.seek(0)
        lines.truncate()
    yield lines.getvalue().encode("utf-8", "backslashreplace")


# What a cell has an escape for, as those of export_csv().
_SPECIAL = re.compile("[\\\\\x00-\x1f\x7f-\x9f]")


def _cells(values: Column) -> list[Any]:
    """Values as cells. A text neither drives a terminal nor is it a formula for a spreadsheet; each is looked at once."""
    known: dict[str, str] = {}
    cells = []
    for value in _plain(values):
        if isinstance(value, str):
            cell = known.get(value)
            if cell is None:
                guard = "'" if value.startswith(("=", "+", "-", "@")) else ""
                cell = known[value] = guard + _SPECIAL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)
            value = cell
        cells.append(value)
    return cells


def _json(table: Table) -> Iterator[bytes]:
    head = {"format": "scope-profiler-plot-data", "format_version": 1, "plot": table.plot, **table.extra}
    row = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in table.columns) + "}"
    yield (json.dumps(head, indent=2)[:-2] + f',\n  "{table.rows}": [').encode()
    separator = "\n    "
    for start in range(0, len(table), _ROWS):
        parts = (_encoded(column[start : start + _ROWS]) for column in table.columns.values())
        yield (separator + ",\n    ".join(map(row.__mod__, zip(*parts)))).encode()
        separator = ",\n    "
    yield b"\n  ]\n}\n"


def _encoded(values: Column) -> list[str]:
    """Each value in JSON. Texts of a column are few, and each is encoded once."""
    known: dict[Any, str] = {}
    encoded = []
    for value in _plain(values):
        if isinstance(value, str):
            text = known.get(value)
            if text is None:
                text = known[value] = json.dumps(value)
        elif isinstance(value, float):
            text = repr(value)
        else:
            text = json.dumps(value)
        encoded.append(text)
    return encoded


def _parquet(table: Table) -> Iterator[bytes]:
    pyarrow = _pyarrow()
    columns = {name: pyarrow.array(_unmasked(values), from_pandas=True) for name, values in table.columns.items()}
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), content)
    yield content.getvalue()


def _unmasked(values: Column) -> Column:
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
