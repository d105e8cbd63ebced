"""The numbers behind a plot, as columns, and the files they go to."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[data_format](table, target)


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table)


def _write_json(table: Table, path: Path) -> None:
    head = {"format": "scope-profiler-plot-data", "format_version": 1, "plot": table.plot, **table.extra}
    row = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in table.columns) + "}"
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, indent=2)[:-2] + f',\n  "{table.rows}": [')
        separator = "\n    "
        for start in range(0, len(table), _ROWS):
            parts = (_encoded(column[start : start + _ROWS]) for column in table.columns.values())
            file.write(separator + ",\n    ".join(map(row.__mod__, zip(*parts))))
            separator = ",\n    "
        file.write("\n  ]\n}\n")


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


def _write_parquet(table: Table, path: Path) -> None:
    pyarrow = _pyarrow()
    columns = {name: pyarrow.array(_unmasked(values), from_pandas=True) for name, values in table.columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), os.fspath(path))


def _unmasked(values: Column) -> Column:
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
