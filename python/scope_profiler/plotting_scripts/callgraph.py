"""Who calls whom: as a picture, or as a graph for Graphviz."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scope_profiler.cli.terminal import printable
from scope_profiler.plotting_scripts._chart import Chart, Graph, Options, Panel, StrPath, finish, time_text
from scope_profiler.plotting_scripts._colors import region_colors, text_on
from scope_profiler.plotting_scripts._files import write_text
from scope_profiler.plotting_scripts._inputs import Calls, Data, Patterns, Run, calls_of, chosen_runs, sums_by
from scope_profiler.plotting_scripts._table import Table, check_format, write_table

__all__ = ["callgraph_dot", "plot_callgraph"]

_CALLS = 150  # up to which each call can be a node of its own
_NODES = 200  # that are drawn
_DOT = (".dot", ".gv")


def plot_callgraph(
    profiling_data: Data,
    rank: int = 0,
    include: Patterns = None,
    exclude: Patterns = None,
    filepath: StrPath | None = None,
    show: bool = False,
    verbose: bool = True,
    cmap: str | None = None,
    data_filepath: StrPath | None = None,
    data_format: str = "csv",
    backend: str = "matplotlib",
    return_fig: bool = False,
    compact: bool = False,
    fluid: bool = False,
    every_call: bool = False,
) -> Any:
    """Draw who called whom on one rank.

    A node is a call path: calls that were made in the same way are one. ``compact``: a node a region. ``every_call``: a node a call,
    where there are few enough of them to be drawn. A ``filepath`` that ends in ``.dot`` or ``.gv`` becomes a graph for Graphviz, for
    which nothing needs to be installed. ``fluid`` (backend "pyvis"): nodes arrange themselves.

    Returns (figure, axes) if ``return_fig``, else None. Raises ValueError for more than one run.
    """
    if filepath is not None and Path(filepath).suffix.lower() in _DOT:
        return _write_dot(profiling_data, rank, include, exclude, filepath, verbose, cmap, data_filepath, data_format, compact, every_call)
    options = Options(filepath, show, verbose, data_filepath, data_format, backend, return_fig)

    def make() -> Chart:
        run, calls = _calls(profiling_data, rank, include, exclude)
        graph = _graph(calls, compact, every_call)
        colors = region_colors([run], cmap)
        notes = graph.notes(calls, every_call)
        shown = graph.first(_NODES)
        mark = _mark(shown, colors, compact)
        tall, wide = max(mark.y, default=0) + 1, max(mark.x, default=0) + 1
        panel = Panel(
            title=f"Call graph of {run.label}" + (f" (rank {rank})" if run.results.num_ranks > 1 else ""),
            marks=[mark],
            x_limits=(-0.6, wide - 0.4),
            y_limits=(tall - 0.5, -0.5),
            height=max(0.9 * tall + 0.6, 2.5),
        )
        title = f"Call graph of {run.label} (rank {rank})"
        return Chart(title, [panel], lambda: _table(calls, compact), min(max(1.6 * wide, 5.0), 40.0), notes, fluid)

    drawn = finish(make, options)
    if drawn is not None and backend == "matplotlib":
        return drawn[0], drawn[1][0, 0]
    return drawn


def callgraph_dot(
    profiling_data: Data,
    rank: int = 0,
    include: Patterns = None,
    exclude: Patterns = None,
    compact: bool = True,
    cmap: str | None = None,
) -> str:
    """The call graph of a rank in Graphviz's language: nodes with their calls and times, edges with how often and how long.

    Raises ValueError for more than one run.
    """
    run, calls = _calls(profiling_data, rank, include, exclude)
    return _dot(run, _graph(calls, compact, False), cmap, rank)


def _write_dot(
    data: Data, rank: int, include: Patterns, exclude: Patterns, path: StrPath, verbose: bool, cmap: str | None,
    data_path: StrPath | None, data_format: str, compact: bool, every_call: bool,
) -> None:  # fmt: skip
    if data_path is not None:
        check_format(data_format)
    run, calls = _calls(data, rank, include, exclude)
    write_text(path, _dot(run, _graph(calls, compact, every_call), cmap, rank))
    if data_path is not None:
        write_table(_table(calls, compact), data_path, data_format)
    if verbose:
        print(printable(f"Call graph of {run.label} (rank {rank})"))


def _calls(data: Data, rank: int, include: Patterns, exclude: Patterns) -> tuple[Run, Calls]:
    from scope_profiler._core import NestingError

    runs = chosen_runs(data, rank, include, exclude, events="a call graph")
    if len(runs) != 1:
        raise ValueError(f"a call graph is of one profile, not of {len(runs)}")
    calls = calls_of(runs[0], rank)
    if not calls.nested:
        raise NestingError(
            f"{runs[0].label} has calls that overlap without nesting, so it is not known who called whom: track_threads=True or "
            "track_async=True keeps threads and tasks apart"
        )
    return runs[0], calls


@dataclass
class _Nodes:
    """Nodes with their sums (ns), callers first, and edges (from, to, calls, ns)."""

    names: list[str]
    calls: list[int]
    total: list[int]
    own: list[int]
    depth: list[int]
    edges: list[tuple[int, int, int, int]]
    kind: str

    def first(self, limit: int) -> _Nodes:
        """The ``limit`` nodes with the most time."""
        if len(self.names) <= limit:
            return self
        kept = sorted(sorted(range(len(self.names)), key=lambda node: -self.total[node])[:limit])
        place = {node: n for n, node in enumerate(kept)}
        edges = [(place[a], place[b], c, t) for a, b, c, t in self.edges if a in place and b in place]
        numbers = ([values[node] for node in kept] for values in (self.calls, self.total, self.own, self.depth))
        calls, total, own, depth = numbers
        return _Nodes([self.names[node] for node in kept], calls, total, own, depth, edges, self.kind)

    def notes(self, calls: Calls, every_call: bool) -> list[str]:
        """What the picture does not show."""
        notes = []
        if every_call and self.kind == "path":
            notes.append(f"{len(calls):,} calls are drawn as {len(self.names):,} call paths")
        if len(self.names) > _NODES:
            notes.append(f"{len(self.names) - _NODES:,} nodes with less time are not shown")
        return notes


def _graph(calls: Calls, compact: bool, every_call: bool) -> _Nodes:
    if compact:
        node, kind = calls.name, "region"
    elif every_call and len(calls) <= _CALLS:
        node, kind = np.arange(len(calls)), "call"
    else:
        from scope_profiler.path_tree import build_tree
        from scope_profiler.plotting_scripts.flame import as_arrays, shown_depth

        arrays = as_arrays(calls, shown_depth(calls))._replace(lane=np.empty(0, np.int64))  # lanes together
        node, kind = build_tree(arrays, None).path, "path"
    return _summed(calls, node, kind)


def _summed(calls: Calls, node: Any, kind: str) -> _Nodes:
    from scope_profiler.plotting_scripts.flame import shown_depth

    spent = calls.end_ns - calls.start_ns
    used, first, inverse = np.unique(node, return_index=True, return_inverse=True)
    depth = np.full(len(used), np.iinfo(np.int64).max)
    np.minimum.at(depth, inverse, shown_depth(calls))
    inner = calls.parent >= 0
    pairs, edge_of = np.unique(inverse[calls.parent[inner]] * len(used) + inverse[inner], return_inverse=True)
    total, own = (sums_by(inverse, values, len(used)) for values in (spent, calls.exclusive_ns))
    edges = zip(
        (pairs // len(used)).tolist(),
        (pairs % len(used)).tolist(),
        np.bincount(edge_of, minlength=len(pairs)).tolist(),
        sums_by(edge_of, spent[inner], len(pairs)),
    )
    names = [calls.names[one] for one in calls.name[first].tolist()]
    return _Nodes(names, np.bincount(inverse).tolist(), total, own, depth.tolist(), list(edges), kind)


def _text(nodes: _Nodes, node: int) -> str:
    name = printable(nodes.names[node])
    if nodes.calls[node] == 1:
        return f"{name}\n{time_text(nodes.total[node] / 1e9)}, own {time_text(nodes.own[node] / 1e9)}"
    return f"{name}\n{nodes.calls[node]:,} calls, {time_text(nodes.total[node] / 1e9)}\nown {time_text(nodes.own[node] / 1e9)}"


def _mark(nodes: _Nodes, colors: dict[str, str], compact: bool) -> Graph:
    x, y = _by_level(nodes) if compact else _as_tree(nodes)
    heaviest = max((edge[3] for edge in nodes.edges), default=1) or 1
    edges = [
        (a, b, f"{calls:,}x" if calls > 1 else "", ns / heaviest) for a, b, calls, ns in nodes.edges if a != b
    ]
    texts = [_text(nodes, node) for node in range(len(nodes.names))]
    for a, b, calls, _ in nodes.edges:
        if a == b:
            texts[a] += f"\nitself {calls:,}x"
    return Graph(x, y, texts, [colors[name] for name in nodes.names], edges)


def _levels(nodes: _Nodes) -> list[int]:
    """For each node its row: below all callers, except where calls go round in a circle."""
    level = list(nodes.depth)
    order = {node: place for place, node in enumerate(sorted(range(len(level)), key=lambda node: (nodes.depth[node], node)))}
    for a, b, _, _ in sorted(nodes.edges, key=lambda edge: order[edge[0]]):
        if order[a] < order[b]:
            level[b] = max(level[b], level[a] + 1)
    rows = {depth: row for row, depth in enumerate(sorted(set(level)))}
    return [rows[depth] for depth in level]


def _by_level(nodes: _Nodes) -> tuple[list[float], list[float]]:
    """Nodes of a row side by side, near the middle of their callers."""
    callers: dict[int, list[int]] = {}
    for a, b, _, _ in nodes.edges:
        callers.setdefault(b, []).append(a)
    x = [0.0] * len(nodes.names)
    level = _levels(nodes)
    rows: dict[int, list[int]] = {}
    for node, row in enumerate(level):
        rows.setdefault(row, []).append(node)
    widest = max(map(len, rows.values()), default=1)

    def middle(node: int) -> float:
        above = [x[a] for a in callers.get(node, ()) if level[a] < level[node]]
        return sum(above) / len(above) if above else 0.0

    for row in sorted(rows):
        members = sorted(rows[row], key=middle)
        for place, node in enumerate(members):
            x[node] = (place + 0.5) * widest / len(members) - 0.5
    return x, list(map(float, level))


def _as_tree(nodes: _Nodes) -> tuple[list[float], list[float]]:
    """Leaves side by side, every other node above the middle of its children."""
    children: dict[int, list[int]] = {}
    has_caller = set()
    for a, b, _, _ in nodes.edges:
        children.setdefault(a, []).append(b)
        has_caller.add(b)
    x = [0.0] * len(nodes.names)
    depth = [0] * len(nodes.names)
    leaves = 0
    stack = [(node, 0, False) for node in range(len(nodes.names) - 1, -1, -1) if node not in has_caller]
    while stack:
        node, level, done = stack.pop()
        below = children.get(node) or []
        depth[node] = level
        if done:
            x[node] = (x[below[0]] + x[below[-1]]) / 2
        elif below:
            stack.append((node, level, True))
            stack += [(child, level + 1, False) for child in reversed(below)]
        else:
            x[node], leaves = float(leaves), leaves + 1
    return x, list(map(float, depth))


def _quoted(text: str) -> str:
    """A text as a quoted string of Graphviz: entities and escapes in names are themselves. Lines of ours end in a newline."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'


def _dot(run: Run, nodes: _Nodes, cmap: str | None, rank: int) -> str:
    colors = region_colors([run], cmap)
    title = f"{printable(run.label)} (rank {rank})"
    lines = [
        f"digraph {_quoted(title)} {{",
        f'  graph [label={_quoted(title)}, labelloc="t", fontname="Helvetica"];',
        '  node [shape="box", style="filled,rounded", fontname="Helvetica", fontsize="10"];',
        '  edge [color="#777777", fontname="Helvetica", fontsize="9"];',
    ]
    for node, name in enumerate(nodes.names):
        color = colors[name]
        lines.append(f'  n{node} [label={_quoted(_text(nodes, node))}, fillcolor="{color}", fontcolor="{text_on(color)}"];')
    heaviest = max((edge[3] for edge in nodes.edges), default=1) or 1
    for a, b, calls, ns in nodes.edges:
        text = _quoted(f"{calls:,}x, {time_text(ns / 1e9)}" if calls > 1 else time_text(ns / 1e9))
        lines.append(f'  n{a} -> n{b} [label={text}, penwidth="{0.7 + 2.3 * ns / heaviest:.2f}"];')
    return "\n".join([*lines, "}", ""])


def _table(calls: Calls, compact: bool) -> Table:
    if compact:
        nodes = _summed(calls, calls.name, "region")
        columns: dict[str, Any] = {
            "parent": [nodes.names[edge[0]] for edge in nodes.edges],
            "child": [nodes.names[edge[1]] for edge in nodes.edges],
            "calls": [edge[2] for edge in nodes.edges],
            "total_duration_seconds": [edge[3] / 1e9 for edge in nodes.edges],
        }
        regions = [
            {
                "name": name,
                "depth": depth,
                "calls": count,
                "total_duration": total / 1e9,
                "exclusive_duration": own / 1e9,
                "average_duration": total / count / 1e9,
            }
            for name, depth, count, total, own in zip(nodes.names, nodes.depth, nodes.calls, nodes.total, nodes.own)
        ]
        return Table("callgraph", "edges", columns, {"regions": regions})
    from scope_profiler.plotting_scripts.flame import or_none, shown_depth

    return Table(
        "callgraph",
        "calls",
        {
            "call_id": np.arange(len(calls)),
            "parent_id": or_none(calls.parent),
            "name": np.array(calls.names, object)[calls.name],
            "depth": shown_depth(calls),
        },
    )
