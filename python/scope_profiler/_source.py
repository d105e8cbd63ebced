"""Source text of regions, for runs with ``capture_region_source``."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache


def _first_line(node: ast.stmt) -> int:
    """Where a statement begins, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


@lru_cache(maxsize=64)
def _statements(source: str) -> tuple[tuple[int, int, int], ...]:
    """``(first line of the header, last line of the header, last line)`` of every statement, outer ones first."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        start, end = _first_line(node), node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        body_start = _first_line(body[0]) if isinstance(body, list) and body else start
        found.append((start, body_start - 1 if body_start > node.lineno else end, end))
    return tuple(found)


def block_text(file: str, line: int) -> str | None:
    """The lines of the statement whose header is at ``line``: a whole ``with`` block, or a function with its decorators,
    indentation kept.

    None when the source cannot be had or parsed.
    """
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return None
    try:
        statements = _statements("".join(lines))
    except (SyntaxError, ValueError):
        return None
    best = None
    for first, header_end, end in statements:
        if first <= line <= header_end and (best is None or first >= best[0]):
            best = (first, end)
    if best is None:
        return None
    return "".join(lines[best[0] - 1 : best[1]])
