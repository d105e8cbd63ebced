"""Which functions belong to which region: those that it decorates, and those that ``region()`` was given for it.

Kept for every manager, because a line profile may be asked for after the functions were decorated. Code objects are kept, not
functions: closures that a program makes again and again share theirs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

__all__ = ["LineFunctions", "code_of"]

_INNER = ("__wrapped__", "__func__", "func", "fget")  # what a wrapper, a method, a partial and a property are around


class LineFunctions:
    """Code objects by region name."""

    __slots__ = ("codes",)

    def __init__(self) -> None:
        self.codes: dict[str, dict[CodeType, None]] = {}

    def add(self, region: str, functions: Any) -> None:
        """``functions``: a callable, or an iterable of them; one without Python code has no lines, and is passed over."""
        for function in (functions,) if callable(functions) or isinstance(functions, _WRAPPERS) else functions:
            code = code_of(function)
            if code is not None:
                self.codes.setdefault(region, {})[code] = None


    def add_text(self, region: str, code: CodeType) -> None:
        """All functions that are written in the text that ``code`` was compiled from, at whatever depth, and the text itself."""
        known = self.codes.setdefault(region, {})
        found = [code]
        while found:
            code = found.pop()
            known[code] = None
            found += [constant for constant in code.co_consts if isinstance(constant, _Code)]


_WRAPPERS = (staticmethod, classmethod, property)
_Code = type(LineFunctions.add.__code__)


def code_of(target: Any) -> CodeType | None:
    """The code of the Python function behind wrappers, methods, partials, properties, and of a class's own constructor; None if
    there is none."""
    if isinstance(target, type):
        target = vars(target).get("__init__", vars(target).get("__new__"))
    for _ in range(100):
        inner = next((value for value in (getattr(target, name, None) for name in _INNER) if value is not None), None)
        if inner is None:
            code = getattr(target, "__code__", None)
            return code if isinstance(code, _Code) else None
        target = inner
    return None
