"""Draw call graphs with pyvis: nodes that can be moved, in a page of its own that needs no network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scope_profiler.plotting_scripts._chart import Chart, Graph
from scope_profiler.plotting_scripts._colors import text_on
from scope_profiler.plotting_scripts._files import write_text

__all__ = ["draw", "require"]


def require() -> Any:
    """pyvis, or an ImportError that says what to install."""
    try:
        import pyvis.network
    except ImportError:
        raise ImportError("the pyvis backend needs pyvis: pip install scope-profiler[plots]") from None
    return pyvis


def draw(chart: Chart, path: str | os.PathLike[str] | None, show: bool) -> Any:
    """The network. Raises ValueError for anything but a call graph, or a path that is no page."""
    marks = [mark for panel in chart.panels for mark in panel.marks]
    if len(marks) != 1 or not isinstance(marks[0], Graph):
        raise ValueError("the pyvis backend draws call graphs only; use matplotlib or plotly")
    if path is not None and Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the pyvis backend writes pages: {os.fspath(path)} does not end in .html")
    graph = marks[0]
    network = require().network.Network(height="800px", width="100%", directed=True, cdn_resources="in_line")
    network.toggle_physics(chart.fluid)
    for node, (x, y, text, color) in enumerate(zip(graph.x, graph.y, graph.texts, graph.colors)):
        name = text.partition("\n")[0]
        network.add_node(
            node, label=name, title=text, color=color, shape="box", font={"color": text_on(color)}, x=x * 220, y=y * 130
        )
    for start, end, text, share in graph.edges:
        network.add_edge(start, end, label=text, width=1 + 4 * share, color="#777777")
    html = network.generate_html(notebook=False)
    if path is not None:
        write_text(path, html)
    if show:
        import tempfile
        import webbrowser

        with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(html)
        webbrowser.open(Path(file.name).as_uri())
    return network
