"""The procedures, constants and types of a Fortran module, each with the comment above it."""

from __future__ import annotations

import re
from pathlib import Path

from plain_text import block, paragraphs


def public_names(source: str) -> list[str]:
    """What a module makes public, in its order."""
    listed = re.findall(r"^ *public :: (.+)$", source, re.MULTILINE)
    names = [name.strip() for line in listed for name in line.split(",")]
    names += re.findall(r"^ *(?:integer, parameter|type, bind\(c\)), public :: (\w+)", source, re.MULTILINE)
    return names


def text(path: Path) -> str:
    """The page of a module."""
    source = path.read_text(encoding="utf-8")
    top = re.match(r"(?:!>.*\n)(?:!!.*\n)*", source)
    assert top is not None
    lines = paragraphs(_plain(top[0]))
    for name in public_names(source):
        lines += _entry(source, name)
    return block(lines)


def _plain(comment: str) -> str:
    return "\n".join(re.sub(r"^\s*!(?:>|!) ?", "", line).rstrip() for line in comment.splitlines())


def _entry(source: str, name: str) -> list[str]:
    above = r"((?:^ *!(?:>|!).*\n)*)"
    procedure = re.search(rf"{above}^ *(?:recursive )?(subroutine|function) {name}\((.*?)\)(?: result\((\w+)\))?((?:.*\n)*?)^ *end \2", source, re.MULTILINE)
    if procedure is None:
        return _value(source, name)
    comment, kind, arguments, result, body = procedure.groups()
    arguments = " ".join(re.sub(r"&\s*&?", "", arguments).split())
    call = f"call {name}({arguments})" if kind == "subroutine" else f"{name}({arguments})"
    declared = [
        line.strip() for line in body.splitlines()
        if re.search(r"intent\(", line) or (result and re.search(rf":: {result}\b", line))
    ]  # fmt: skip
    lines = [f".. fortran:: {call}", "", *_indented(paragraphs(_plain(comment)))]
    return [*lines, "   .. code-block:: fortran", "", *(f"      {line}" for line in declared), ""] if declared else lines


def _value(source: str, name: str) -> list[str]:
    """A constant with its value, or a type with its components."""
    found = re.search(rf"((?:^ *!(?:>|!).*\n)*)^ *integer, parameter, public :: {name} = (.+)$", source, re.MULTILINE)
    if found:
        return [f".. fortran:: {name} = {found[2]}", "", *_indented(paragraphs(_plain(found[1])))]
    found = re.search(rf"((?:^ *!(?:>|!).*\n)*)^ *type, bind\(c\), public :: {name}\n((?:.*\n)*?) *end type", source, re.MULTILINE)
    assert found is not None, name
    code = [f"      {line.strip()}" for line in found[2].splitlines()]
    return [f".. fortran:: type({name})", "", *_indented(paragraphs(_plain(found[1]))), "   .. code-block:: fortran", "", *code, ""]


def _indented(lines: list[str]) -> list[str]:
    return [f"   {line}" if line else "" for line in lines]
