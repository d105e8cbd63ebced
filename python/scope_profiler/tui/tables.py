"""Tables that can be searched and sorted, of which only the rows that are on the screen are made into text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scope_profiler.cli.terminal import NAME_WIDTH, cut, printable, shown_name
from scope_profiler.plotting_scripts._chart import time_text

__all__ = ["CallsTable", "Column", "RowsTable", "Table", "count", "name", "percent", "seconds", "text"]


def text(value: Any) -> str:
    """Whatever has no form of its own; nothing for None."""
    return "" if value is None else cut(printable(value), 4 * NAME_WIDTH, middle=True)


def name(value: Any) -> str:
    """A name, which may have any length and any characters."""
    return shown_name(value)


def count(value: Any) -> str:
    """A whole number, in groups of three digits."""
    return "" if value is None else f"{int(value):,}"


def seconds(value: Any) -> str:
    """A time in its unit; "-" if it is not known."""
    return "-" if value is None else time_text(float(value))


def percent(value: Any) -> str:
    """A percentage; "-" if it is not known."""
    return "-" if value is None else f"{value:.1f} %"


@dataclass(frozen=True)
class Column:
    """A column: its title, and how a value of it is written. Numbers stand at the right, and sort with the largest first."""

    title: str
    show: Callable[[Any], str] = text

    @property
    def is_number(self) -> bool:
        return self.show not in (text, name)


class Table:
    """Rows by number. ``order`` says which are shown, and in which order; ``cells`` makes the text of one."""

    columns: Sequence[Column] = ()
    #: Where a search looks, as an index into the columns; None: there is nothing to search.
    searched: int | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def order(self, search: str = "", column: int | None = None, descending: bool = False) -> Sequence[int]:
        """The rows whose searched text contains ``search``, whatever its case, sorted by a column; None: as they come."""
        raise NotImplementedError

    def cells(self, row: int) -> list[str]:
        """One row as text."""
        raise NotImplementedError


class RowsTable(Table):
    """A table of rows of values, one for each column."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]], searched: int | None = 0) -> None:
        self.columns = columns
        self.searched = searched
        self._rows = rows
        self._lower: list[str] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def order(self, search: str = "", column: int | None = None, descending: bool = False) -> Sequence[int]:
        chosen: Sequence[int] = range(len(self._rows))
        if search and self.searched is not None:
            if self._lower is None:
                self._lower = [str(row[self.searched]).lower() for row in self._rows]
            wanted = search.lower()
            chosen = [number for number, lower in enumerate(self._lower) if wanted in lower]
        if column is None:
            return chosen

        # What is not known comes last, in either direction.
        known = [number for number in chosen if self._rows[number][column] is not None]
        unknown = [number for number in chosen if self._rows[number][column] is None]
        return sorted(known, key=lambda number: self._rows[number][column], reverse=descending) + unknown

    def cells(self, row: int) -> list[str]:
        return [column.show(value) for column, value in zip(self.columns, self._rows[row])]

    def value(self, row: int, column: int) -> Any:
        """One value, as it is."""
        return self._rows[row][column]


class CallsTable(Table):
    """A table of calls as arrays, one for each column; times are int64 ns there and seconds in the table."""

    def __init__(self, columns: Sequence[Column], arrays: Sequence[np.ndarray], names: Sequence[Callable[[int], str] | None]) -> None:
        """``names`` has for each column what its values are the numbers of, or None for a value of its own."""
        self.columns = columns
        self._arrays = arrays
        self._names = names

    def __len__(self) -> int:
        return len(self._arrays[0])

    def order(self, search: str = "", column: int | None = None, descending: bool = False) -> Sequence[int]:
        if column is None:
            return range(len(self))
        values = self._arrays[column]
        order: np.ndarray = np.argsort(-values if descending else values, kind="stable")
        return order  # type: ignore[return-value]

    def cells(self, row: int) -> list[str]:
        cells = []
        for column, values, names in zip(self.columns, self._arrays, self._names):
            value = values[row].item()
            if names is not None:
                cells.append(name(names(value)))
            else:
                cells.append(column.show(value / 1e9 if column.show is seconds else value))
        return cells
