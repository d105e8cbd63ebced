"""A plot before it is drawn: panels of marks, which every backend draws its own way, and the numbers behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scope_profiler.cli.terminal import printable
from scope_profiler.plotting_scripts._table import Table, check_format, write_table

__all__ = [
    "BACKENDS", "Bars", "Chart", "Graph", "Heat", "Lines", "Options", "Panel", "Spans", "StrPath", "finish", "time_text", "time_unit",
]  # fmt: skip

StrPath: TypeAlias = str | os.PathLike[str]
_Floats: TypeAlias = NDArray[np.float64]

BACKENDS = ("matplotlib", "plotly", "plotext", "pyvis")


@dataclass
class Spans:
    """Rectangles: ``left`` and ``width`` on the x axis, ``bottom`` and ``height`` on the y axis. ``color`` and ``text`` point into
    ``colors`` and ``texts``; a text is drawn where it fits into ``room``, the part of the width from the left that nothing covers."""

    left: _Floats
    width: _Floats
    bottom: _Floats
    height: _Floats
    color: NDArray[np.int64]
    colors: list[str]
    texts: list[str]
    room: _Floats | None = None


@dataclass
class Bars:
    """Upright bars at ``x`` (places of the panel's categories)."""

    x: Sequence[float]
    heights: Sequence[float]
    width: float
    color: str
    label: str
    bottoms: Sequence[float] | None = None


@dataclass
class Lines:
    """One line; ``low`` and ``high`` are a band around it, ``marker`` draws its points, ``dashed`` a reference."""

    x: ArrayLike
    y: ArrayLike
    color: str
    label: str
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    marker: bool = False
    line: bool = True
    dashed: bool = False
    step: bool = False


@dataclass
class Heat:
    """A table of values: columns between ``x_edges``, one row a label. NaN is left empty."""

    values: _Floats
    x_edges: _Floats
    label: str
    cmap: str
    texts: list[list[str]] | None = None


@dataclass
class Graph:
    """Boxes with text, and arrows between them. ``edges`` are (from, to, text, share of the heaviest)."""

    x: list[float]
    y: list[float]
    texts: list[str]
    colors: list[str]
    edges: list[tuple[int, int, str, float]]


@dataclass
class Panel:
    """One pair of axes. Ticks are (place, text); None leaves them to the backend."""

    title: str = ""
    x_label: str = ""
    y_label: str = ""
    marks: list[Spans | Bars | Lines | Heat | Graph] = field(default_factory=list)
    x_ticks: list[tuple[float, str]] | None = None
    y_ticks: list[tuple[float, str]] | None = None
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_log: bool = False
    y_log: bool = False
    bands: list[float] = field(default_factory=list)  # heights at which lanes meet
    legend: list[tuple[str, str]] | None = None  # (text, colour); None: from the marks
    height: float = 3.5  # inches


@dataclass
class Chart:
    """A whole picture: panels below each other. ``notes`` are said below it, and when the plot is verbose."""

    title: str
    panels: list[Panel]
    table: Callable[[], Table]
    width: float = 12.0
    notes: list[str] = field(default_factory=list)
    fluid: bool = False  # whether the nodes of a graph arrange themselves

    @property
    def margin(self) -> float:
        """Inches of room above and below the panels."""
        return 0.3 + 0.2 * len(self.notes)

    @property
    def height(self) -> float:
        """Inches, with room for titles and axes."""
        return sum(panel.height for panel in self.panels) + self.margin


@dataclass
class Options:
    """What every plot function takes and none of them cares for."""

    filepath: StrPath | None
    show: bool
    verbose: bool
    data_filepath: StrPath | None
    data_format: str
    backend: str
    return_fig: bool = False

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"no backend {self.backend!r}; there are {', '.join(BACKENDS)}")
        if self.data_filepath is not None:
            check_format(self.data_format)

    @property
    def draws(self) -> bool:
        """Whether a picture is wanted at all."""
        return self.filepath is not None or self.show or self.return_fig


def finish(make: Callable[[], Chart], options: Options) -> Any:
    """Draw, write and show what the options ask for. The figure if they ask for it (matplotlib: with its axes), else None."""
    backend = import_module(f"{__package__}._{options.backend}")
    if options.draws:
        backend.require()  # before the work, not after it
    chart = make()
    if options.verbose:
        print(printable(chart.title))
        for note in chart.notes:
            print(f"  {printable(note)}")
    if options.data_filepath is not None:
        write_table(chart.table(), options.data_filepath, options.data_format)
    if not options.draws:
        return None
    drawn = backend.draw(chart, options.filepath, options.show)
    return drawn if options.return_fig else None


_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))


def time_text(seconds: float) -> str:
    """A time in its unit: "12.34 ms"."""
    factor, unit = time_unit(seconds)
    return f"{seconds * factor:.4g} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """(factor, unit) in which a time reads well: the first where it is 1 or more."""
    for factor, unit in _UNITS:
        if seconds * factor >= 1:
            return factor, unit
    return _UNITS[-1] if seconds > 0 else _UNITS[0]
