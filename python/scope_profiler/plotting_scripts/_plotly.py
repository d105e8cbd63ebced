"""Draw charts with plotly: interactive, in a page of its own that needs no network."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from scope_profiler.cli.terminal import cut, printable
from scope_profiler.plotting_scripts._chart import Bars, Chart, Graph, Heat, Lines, Panel, Spans
from scope_profiler.plotting_scripts._files import write_pieces, write_text

__all__ = ["draw", "require"]

_DPI = 96


def require() -> Any:
    """plotly, or an ImportError that says what to install."""
    try:
        import plotly.graph_objects
        import plotly.subplots
    except ImportError:
        raise ImportError("the plotly backend needs plotly: pip install scope-profiler[plots]") from None
    return plotly


def draw(chart: Chart, path: str | os.PathLike[str] | None, show: bool) -> Any:
    """The figure. A path that ends in .html becomes a page; other images need kaleido."""
    plotly = require()
    heights = [panel.height for panel in chart.panels]
    figure = plotly.subplots.make_subplots(
        len(chart.panels), 1, row_heights=heights, subplot_titles=[_text(panel.title) for panel in chart.panels],
        vertical_spacing=0.08 / max(len(chart.panels) - 1, 1),
    )  # fmt: skip
    for row, panel in enumerate(chart.panels, 1):
        _draw_panel(plotly.graph_objects, figure, panel, row)
    notes = "<br>".join(map(_text, chart.notes))
    figure.update_layout(
        template="plotly_white", width=chart.width * _DPI, height=chart.height * _DPI + 100, barmode="overlay", title=notes or None,
        title_font_size=11,
    )  # fmt: skip
    if path is not None:
        _write(figure, path)
    if show:
        figure.show()
    return figure


def _write(figure: Any, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    if target.suffix.lower() in (".html", ".htm"):
        write_text(target, figure.to_html(include_plotlyjs=True))
        return
    try:
        picture = figure.to_image(format=target.suffix[1:] or None)
    except (ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RuntimeError(f"plotly cannot write {target} (it needs kaleido for images; .html needs nothing): {reason}") from None
    write_pieces(target, [picture])


def _text(name: str) -> str:
    """A name as plotly shows it: it reads some HTML."""
    return escape(cut(printable(name), 60, middle=True), quote=False)


def _draw_panel(go: Any, figure: Any, panel: Panel, row: int) -> None:
    for mark in panel.marks:
        if isinstance(mark, Spans):
            traces = _spans(go, mark)
        elif isinstance(mark, Bars):
            traces = [
                go.Bar(
                    x=list(mark.x), y=list(mark.heights), width=mark.width, base=mark.bottoms, marker_color=mark.color,
                    name=_text(mark.label), showlegend=bool(mark.label),
                )
            ]  # fmt: skip
        elif isinstance(mark, Lines):
            traces = _lines(go, mark)
        elif isinstance(mark, Heat):
            traces = [_heat(go, mark)]
        else:
            traces = _graph(go, mark)
        for trace in traces:
            figure.add_trace(trace, row=row, col=1)
    _axes(figure, panel, row)


def _spans(go: Any, spans: Spans) -> list[Any]:
    """A trace a colour, so that the legend switches regions on and off."""
    traces = []
    for color in np.unique(spans.color).tolist():
        mine = spans.color == color
        left, width = spans.left[mine], spans.width[mine]
        traces.append(
            go.Bar(
                x=width, base=left, y=spans.bottom[mine] + spans.height[mine] / 2, width=spans.height[mine], orientation="h",
                marker_color=spans.colors[color], marker_line_width=0, name=_text(spans.texts[color]),
                customdata=np.column_stack((left, left + width)),
                hovertemplate="%{fullData.name}<br>%{customdata[0]:.6g} to %{customdata[1]:.6g}: %{x:.6g}<extra></extra>",
            )
        )  # fmt: skip
    return traces


def _lines(go: Any, lines: Lines) -> list[Any]:
    mode = "+".join(word for word, wanted in (("lines", lines.line or lines.dashed), ("markers", lines.marker)) if wanted)
    style = {"color": lines.color, "dash": "dash" if lines.dashed else "solid", "shape": "hv" if lines.step else "linear"}
    traces = []
    if lines.low is not None and lines.high is not None:
        x = np.asarray(lines.x)
        traces.append(
            go.Scatter(
                x=np.concatenate((x, x[::-1])), y=np.concatenate((np.asarray(lines.high), np.asarray(lines.low)[::-1])), fill="toself",
                fillcolor=lines.color, opacity=0.2, line_width=0, showlegend=False, hoverinfo="skip",
            )
        )  # fmt: skip
    traces.append(
        go.Scatter(x=lines.x, y=lines.y, mode=mode or "markers", line=style, name=_text(lines.label), showlegend=bool(lines.label))
    )
    return traces


def _heat(go: Any, heat: Heat) -> Any:
    known = heat.cmap.capitalize() if heat.cmap in ("cividis", "viridis", "magma", "inferno", "plasma") else "Cividis"
    middle = (heat.x_edges[:-1] + heat.x_edges[1:]) / 2
    texts = {} if heat.texts is None else {"text": heat.texts, "texttemplate": "%{text}"}
    return go.Heatmap(z=heat.values, x=middle, y=np.arange(len(heat.values)), colorscale=known, zmin=0, colorbar_title=_text(heat.label), **texts)


def _graph(go: Any, graph: Graph) -> list[Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for start, end, _, _ in graph.edges:
        x += [graph.x[start], graph.x[end], None]
        y += [graph.y[start], graph.y[end], None]
    texts = [_text(text.partition("\n")[0]) for text in graph.texts]
    details = ["<br>".join(map(_text, text.split("\n"))) for text in graph.texts]
    return [
        go.Scatter(x=x, y=y, mode="lines", line_color="#999999", hoverinfo="skip", showlegend=False),
        go.Scatter(
            x=graph.x, y=graph.y, mode="markers+text", text=texts, textposition="top center", hovertext=details, hoverinfo="text",
            marker={"color": graph.colors, "size": 18, "symbol": "square"}, showlegend=False,
        ),
    ]  # fmt: skip


def _axes(figure: Any, panel: Panel, row: int) -> None:
    heat = any(isinstance(mark, Heat) for mark in panel.marks)
    for update, ticks, limits, label, log in (
        (figure.update_xaxes, panel.x_ticks, panel.x_limits, panel.x_label, panel.x_log),
        (figure.update_yaxes, panel.y_ticks, panel.y_limits, panel.y_label, panel.y_log),
    ):
        settings: dict[str, Any] = {"title_text": _text(label)}
        if ticks is not None:
            settings.update(tickvals=[place for place, _ in ticks], ticktext=[_text(text) for _, text in ticks])
        if limits is not None:
            settings["range"] = list(limits)
        if log:
            settings["type"] = "log"
        update(row=row, col=1, **settings)
    if heat:
        figure.update_yaxes(autorange="reversed", row=row, col=1)
    if any(isinstance(mark, Graph) for mark in panel.marks):
        figure.update_xaxes(visible=False, row=row, col=1)
        figure.update_yaxes(visible=False, row=row, col=1)
