"""Draw charts with matplotlib. Pictures that are only written need no display and leave pyplot alone."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from scope_profiler.cli.terminal import cut, printable
from scope_profiler.plotting_scripts._chart import Bars, Chart, Graph, Heat, Lines, Panel, Spans
from scope_profiler.plotting_scripts._colors import text_on
from scope_profiler.plotting_scripts._files import write_pieces

__all__ = ["colormap", "draw", "require"]

DPI = 150
_GRID = "#DDDDDD"
_TEXTS = 400  # names that are written into one panel
_LEGEND_ENTRIES = 24
_LEGEND_INCHES = 0.2  # a line of a legend, which is beside its panel: one that is taller leaves no room for the panel
_NAME = 40  # characters of a name that axes and legends show
_RASTER = 2_000  # spans from which a vector file holds them as an image


def require() -> Any:
    """matplotlib, or an ImportError that says what to install."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("plots need matplotlib: pip install scope-profiler[plots]") from None
    return matplotlib


def colormap(name: str) -> Any:
    """A colormap by name. Raises ValueError for one that matplotlib does not have."""
    maps = require().colormaps
    if name not in maps:
        raise ValueError(f"matplotlib has no colormap {name!r}")
    return maps[name]


def draw(chart: Chart, path: str | os.PathLike[str] | None, show: bool) -> tuple[Any, Any]:
    """(figure, axes): axes as an array with one row a panel and one column."""
    matplotlib = require()
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name may have any characters
        heights = [max(panel.height, _LEGEND_INCHES * _legend_lines(panel)) for panel in chart.panels]
        figure = _figure(chart, sum(heights), show)
        axes = figure.subplots(len(chart.panels), 1, squeeze=False, height_ratios=heights)
        for ax, panel in zip(axes[:, 0], chart.panels):
            _draw_panel(figure, ax, panel, chart.width)
        if chart.notes:
            text = "\n".join(map(printable, chart.notes))
            figure.supxlabel(text, fontsize=8, color="#555555", x=0.01, ha="left", parse_math=False)
        if path is not None:
            _write(figure, Path(path), matplotlib.rcParams["savefig.format"])
    if show:
        import matplotlib.pyplot as plt

        plt.show()
    return figure, axes


def _write(figure: Any, path: Path, default: str) -> None:
    """In the format that the suffix names; a name without one gets the default's."""
    if not path.suffix:
        path = path.with_name(f"{path.name}.{default}")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DPI, format=path.suffix[1:])
    write_pieces(path, [picture.getvalue()])


def _figure(chart: Chart, height: float, show: bool) -> Any:
    size = (chart.width, chart.margin + height)
    if show:
        import matplotlib.pyplot as plt

        return plt.figure(figsize=size, layout="constrained")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def shorten(name: str, length: int = _NAME) -> str:
    """A name as axes and legends show it."""
    return cut(printable(name), length, middle=True)


def _draw_panel(figure: Any, ax: Any, panel: Panel, width: float) -> None:
    ax.set_title(printable(panel.title), fontsize=10, loc="left", parse_math=False)
    ax.set_xlabel(printable(panel.x_label), parse_math=False)
    ax.set_ylabel(printable(panel.y_label), parse_math=False)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    _set_scales(ax, panel)
    for mark in panel.marks:
        if isinstance(mark, Spans):
            _draw_spans(ax, mark, panel, width)
        elif isinstance(mark, Bars):
            ax.bar(
                mark.x, mark.heights, mark.width, mark.bottoms, color=mark.color, edgecolor="white", linewidth=0.5,
            )  # fmt: skip
        elif isinstance(mark, Lines):
            _draw_lines(ax, mark)
        elif isinstance(mark, Graph):
            _draw_graph(ax, mark)
        else:
            _draw_heat(figure, ax, mark)
    _set_ticks(ax, panel)
    for place in panel.bands:
        ax.axhline(place, color="#888888", linewidth=0.6)
    if panel.x_limits is not None:
        ax.set_xlim(panel.x_limits)
    if panel.y_limits is not None:
        ax.set_ylim(panel.y_limits)
    _draw_legend(ax, panel)


def _set_scales(ax: Any, panel: Panel) -> None:
    heat = any(isinstance(mark, Heat) for mark in panel.marks)
    if not heat:
        ax.grid(axis="x" if panel.y_ticks is not None else "y", color=_GRID, linewidth=0.6)
    if panel.x_log:
        ax.set_xscale("log")
    if panel.y_log:
        ax.set_yscale("log")


def _set_ticks(ax: Any, panel: Panel) -> None:
    if panel.y_ticks is not None:
        places = [place for place, _ in panel.y_ticks]
        ax.set_yticks(places, [shorten(text) for _, text in panel.y_ticks], parse_math=False)
        ax.tick_params(axis="y", length=0)
    if panel.x_ticks is not None:
        places = [place for place, _ in panel.x_ticks]
        texts = [shorten(text, 28) for _, text in panel.x_ticks]
        crowded = sum(map(len, texts)) > 110
        turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(places, texts, parse_math=False, **turned)
        if panel.x_log:
            ax.minorticks_off()


def _draw_spans(ax: Any, spans: Spans, panel: Panel, width: float) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    count = len(spans.left)
    if not count:
        return
    left, end = panel.x_limits or (float(spans.left.min()), float((spans.left + spans.width).max()))
    inches = width * 0.8 / max(end - left, 1e-300)
    wide = spans.width * inches > 0.03
    colors = to_rgba_array(spans.colors)
    # What is narrower than that has no edge, and a width that can be seen.
    for some, line, least in ((~wide, 0.0, 0.008 / inches), (wide, 0.5, 0.0)):
        if not some.any():
            continue
        right, top = spans.left + np.maximum(spans.width, least), spans.bottom + spans.height
        corners: Any = np.empty((int(some.sum()), 4, 2))
        corners[:, (0, 3), 0] = spans.left[some, None]
        corners[:, (1, 2), 0] = right[some, None]
        corners[:, (0, 1), 1] = spans.bottom[some, None]
        corners[:, (2, 3), 1] = top[some, None]
        patches = PolyCollection(
            corners, facecolors=colors[spans.color[some]], edgecolors="white", linewidths=line, rasterized=count > _RASTER,
            antialiaseds=bool(line),
        )  # fmt: skip
        patches.set_in_layout(False)
        ax.add_collection(patches, autolim=False)
    ax.update_datalim(((left, float(spans.bottom.min())), (end, float((spans.bottom + spans.height).max()))))
    ax.autoscale_view()
    _write_names(ax, spans, left, end, width)


def _write_names(ax: Any, spans: Spans, begin: float, end: float, width: float) -> None:
    """Names inside of their spans where they fit, for the widest ones."""
    left = np.maximum(spans.left, begin)
    right = np.minimum(spans.left + (spans.width if spans.room is None else spans.room), end)
    inches = (right - left) * (width * 0.8 / max(end - begin, 1e-300))
    roomy = np.flatnonzero(inches > 0.3)
    if len(roomy) > _TEXTS:
        roomy = roomy[np.argsort(-inches[roomy], kind="stable")[:_TEXTS]]
    for place in roomy.tolist():
        letters = int(float(inches[place]) / 0.075)
        name = spans.texts[spans.color[place]]
        if letters < min(len(name), 4):
            continue
        text = ax.text(
            (left[place] + right[place]) / 2, spans.bottom[place] + spans.height[place] / 2,
            shorten(name, letters), ha="center", va="center", fontsize=7, clip_on=True, parse_math=False,
            color=text_on(spans.colors[spans.color[place]]),
        )  # fmt: skip
        text.set_in_layout(False)


def _draw_lines(ax: Any, lines: Lines) -> None:
    style = "--" if lines.dashed else "-" if lines.line else "none"
    ax.plot(
        lines.x, lines.y, color=lines.color, linestyle=style, marker="o" if lines.marker else None,
        markersize=4, linewidth=1.4, drawstyle="steps-post" if lines.step else "default",
        rasterized=not lines.line and np.size(lines.x) > _RASTER,
    )  # fmt: skip
    if lines.low is not None and lines.high is not None:
        ax.fill_between(lines.x, lines.low, lines.high, color=lines.color, alpha=0.2, linewidth=0)


def _draw_heat(figure: Any, ax: Any, heat: Heat) -> None:
    rows = len(heat.values)
    mesh = ax.pcolormesh(
        heat.x_edges, np.arange(rows + 1) - 0.5, np.ma.masked_invalid(heat.values), cmap=colormap(heat.cmap),
        edgecolors="white" if heat.texts else "none", linewidth=0.5, rasterized=heat.values.size > _RASTER, vmin=0,
    )  # fmt: skip
    ax.set_ylim(rows - 0.5, -0.5)
    figure.colorbar(mesh, ax=ax, pad=0.01).set_label(printable(heat.label), parse_math=False)
    if heat.texts is None:
        return
    middle = (heat.x_edges[:-1] + heat.x_edges[1:]) / 2
    for row, texts in enumerate(heat.texts):
        for x, value, text in zip(middle, heat.values[row], texts):
            if value - value == 0:
                shade = mesh.cmap(mesh.norm(value))
                color = text_on("#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in shade[:3])))
                ax.text(x, row, text, ha="center", va="center", fontsize=7, color=color)


def _draw_graph(ax: Any, graph: Graph) -> None:
    ax.set_axis_off()
    for start, end, text, share in graph.edges:
        here, there = (graph.x[start], graph.y[start]), (graph.x[end], graph.y[end])
        bent = "arc3,rad=0.25" if here[1] >= there[1] else "arc3"  # back up, or to the side
        ax.annotate(
            "", there, here,
            arrowprops={
                "arrowstyle": "-|>", "color": "#777777", "linewidth": 0.7 + 2.3 * share, "shrinkA": 14, "shrinkB": 15, "connectionstyle": bent,
            },
        )  # fmt: skip
        if text:
            middle = (here[0] + there[0]) / 2, (here[1] + there[1]) / 2
            ax.text(*middle, text, fontsize=7, color="#555555", ha="center", va="center", backgroundcolor="white")
    for x, y, text, color in zip(graph.x, graph.y, graph.texts, graph.colors):
        name, _, numbers = text.partition("\n")
        ax.text(
            x, y, f"{shorten(name, 24)}\n{numbers}", ha="center", va="center", fontsize=7, color=text_on(color), parse_math=False,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "#555555", "linewidth": 0.6},
        )  # fmt: skip


def _labelled(panel: Panel) -> list[Bars | Lines]:
    """The marks that a legend of the marks names."""
    return [mark for mark in panel.marks if isinstance(mark, (Bars, Lines)) and mark.label]


def _legend_lines(panel: Panel) -> int:
    return min(len(_labelled(panel) if panel.legend is None else panel.legend), _LEGEND_ENTRIES + 1)


def _draw_legend(ax: Any, panel: Panel) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any]
    if panel.legend is not None:
        entries = panel.legend
        handles = [Patch(color=color) for _, color in entries]
        texts = [text for text, _ in entries]
    else:
        marks = _labelled(panel)
        handles = [
            Patch(color=mark.color)
            if isinstance(mark, Bars)
            else Line2D(
                [], [], color=mark.color, linestyle="--" if mark.dashed else "-" if mark.line else "none",
                marker="o" if mark.marker else None,
            )  # fmt: skip
            for mark in marks
        ]
        texts = [mark.label for mark in marks]
    if not texts:
        return
    left_out = len(texts) - _LEGEND_ENTRIES
    shown = [shorten(text) for text in texts[:_LEGEND_ENTRIES]]
    if left_out > 0:
        handles, shown = [*handles[:_LEGEND_ENTRIES], Patch(alpha=0)], [*shown, f"and {left_out} more"]
    # Given by hand: matplotlib leaves out texts that begin with an underscore.
    legend = ax.legend(handles, ["x"] * len(shown), loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=8, frameon=False)
    for text, label in zip(legend.get_texts(), shown):
        text.set_parse_math(False)
        text.set_text(label)
