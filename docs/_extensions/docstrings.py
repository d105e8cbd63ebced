"""Docstrings, before they are parsed: attributes that are described together become one entry each, so that each can be found."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)+)(?P<type> : .*)?")


def separate(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Write ``a, b`` of a section "Attributes" as ``a`` and ``b`` with the same text."""
    if "Attributes" not in lines:
        return
    begin = lines.index("Attributes") + 2
    done: list[str] = []
    rest = lines[begin:]
    while rest and (not rest[0] or rest[0].startswith(" ") or len(rest) < 2 or not rest[1].startswith("---")):
        entry = ENTRY.fullmatch(rest[0])
        text = next((place for place, line in enumerate(rest[1:], 1) if line and not line.startswith(" ")), len(rest))
        if entry is None:
            done.append(rest.pop(0))
            continue
        for one in entry["names"].split(", "):
            done += [one + (entry["type"] or ""), *rest[1:text]]
        del rest[:text]
    lines[begin:] = done + rest


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx, ahead of what reads the sections."""
    app.connect("autodoc-process-docstring", separate, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
