"""Draw charts with plotext, as text in a terminal. Simple plots only: bars and lines."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from scope_profiler.cli.terminal import cut, printable
from scope_profiler.plotting_scripts._chart import Bars, Chart, Lines, Panel, Spans
from scope_profiler.plotting_scripts._files import write_text

__all__ = ["draw", "require"]

_SIZE = (100, 28)  # characters
_SPANS = 2000


def require() -> Any:
    """plotext, or an ImportError that says what to install."""
    try:
        import plotext
    except ImportError:
        raise ImportError("the plotext backend needs plotext: pip install scope-profiler[plots]") from None
    if not hasattr(plotext, "clear_figure"):
        raise ImportError("the plotext backend needs plotext 5: pip install scope-profiler[plots]")
    return plotext


def draw(chart: Chart, path: str | os.PathLike[str] | None, show: bool) -> str:
    """The text, with colours where it is shown and without them in a file. Raises ValueError for plots that text cannot show."""
    plotext = require()
    coloured, plain = [], []
    for panel in chart.panels:
        text = _draw_panel(plotext, panel)
        coloured.append(text)
        plain.append(str(plotext.uncolorize(text)))
    if path is not None:
        write_text(path, "\n\n".join(plain) + "\n")
    if show:
        print("\n\n".join(coloured))
    return "\n\n".join(plain)


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _text(name: str) -> str:
    return cut(printable(name), 24, middle=True)


def _draw_panel(plotext: Any, panel: Panel) -> str:
    plotext.clear_figure()
    plotext.plotsize(*_SIZE)
    for mark in panel.marks:
        if isinstance(mark, Bars):
            plotext.bar(list(mark.x), list(mark.heights), width=mark.width, color=_rgb(mark.color), label=_text(mark.label) or None)
        elif isinstance(mark, Lines):
            draws = plotext.plot if mark.line or mark.dashed else plotext.scatter
            draws(np.asarray(mark.x).tolist(), np.asarray(mark.y).tolist(), color=_rgb(mark.color), label=_text(mark.label) or None)
        elif isinstance(mark, Spans):
            _draw_spans(plotext, mark, panel)
        else:
            raise ValueError("the plotext backend draws bars, lines and spans, not this plot; use matplotlib or plotly")
    if panel.x_ticks is not None:
        plotext.xticks([place for place, _ in panel.x_ticks], [_text(text) for _, text in panel.x_ticks])
    if panel.y_ticks is not None:
        plotext.yticks([-place for place, _ in panel.y_ticks], [_text(text) for _, text in panel.y_ticks])
    plotext.title(_text(panel.title))
    plotext.xlabel(_text(panel.x_label))
    plotext.ylabel(_text(panel.y_label))
    return str(plotext.build())


def _draw_spans(plotext: Any, spans: Spans, panel: Panel) -> None:
    """Each span as a line at its middle; rows count downwards. The widest ones, where there are many."""
    widest = np.argsort(-spans.width, kind="stable")[:_SPANS]
    for place in np.sort(widest).tolist():
        y = -float(spans.bottom[place] + spans.height[place] / 2)
        left = float(spans.left[place])
        plotext.plot([left, left + float(spans.width[place])], [y, y], color=_rgb(spans.colors[int(spans.color[place])]))
