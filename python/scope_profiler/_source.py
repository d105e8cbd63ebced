"""Source text of regions, for runs with ``capture_region_source``."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, FunctionType


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


FUNCTION = 2  # CO_NEWLOCALS: the code of a function, not of a class body


@lru_cache(maxsize=4096)
def _names_in(module: str) -> dict[CodeType, str]:
    """``__qualname__`` by code object, of the functions that a module has and of all code in them."""
    import sys
    import types

    found: dict[CodeType, str] = {}

    def add(code: CodeType, name: str) -> None:
        if code in found:
            return
        found[code] = name
        is_class = not code.co_flags & FUNCTION
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                add(inner, f"{name}.{inner.co_name}" if is_class else f"{name}.<locals>.{inner.co_name}")

    def look(namespace: dict[str, object], seen: set[int]) -> None:
        for value in list(namespace.values()):
            for one in _functions_of(value):
                if one.__module__ == module:
                    add(one.__code__, one.__qualname__)
            if isinstance(value, type) and value.__module__ == module and id(value) not in seen:
                seen.add(id(value))
                look(dict(vars(value)), seen)

    look(dict(vars(sys.modules[module])) if module in sys.modules else {}, set())
    return found


def _functions_of(value: object) -> list[FunctionType]:
    """The Python functions in an attribute of a module or class."""
    from types import FunctionType

    parts = [value, *(getattr(value, name, None) for name in ("__func__", "__wrapped__", "fget", "fset", "fdel"))]
    return [part for part in parts if isinstance(part, FunctionType)]


def qualified_name(code: CodeType, frame: FrameType) -> str:
    """The qualified name of a function whose first call this is, for interpreters whose code objects do not have it (before 3.11).

    Found by the functions of its module, else by the code around it; at worst its bare name.
    """
    module = frame.f_globals.get("__name__")
    names = _names_in(module) if isinstance(module, str) else {}
    if code not in names and isinstance(module, str):
        _names_in.cache_clear()  # it was defined since
        names = _names_in(module)
    if code in names:
        return names[code]
    outer = frame.f_back
    if outer is not None and code in outer.f_code.co_consts:
        around = names.get(outer.f_code, outer.f_code.co_name)
        if around == "<module>":
            return code.co_name
        is_class = not outer.f_code.co_flags & FUNCTION
        return f"{around}.{code.co_name}" if is_class else f"{around}.<locals>.{code.co_name}"
    return code.co_name
