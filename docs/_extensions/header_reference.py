"""The functions, types and macros of the headers, each with the comment above it.

A comment belongs to all declarations up to the next empty line. What the header marks as its own (a trailing underscore) is left
out, and so is everything behind a title "---- inside ----".
"""

from __future__ import annotations

import re
from pathlib import Path

from plain_text import block, paragraphs

TITLE = re.compile(r"/\* ---- (.+?) ---- \*/")
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
STATUS = re.compile(r"#define SP_STATUS_MAP\(X\)(?:.*\\\n)+.*\n\ntypedef enum sp_status \{.*?\} sp_status;\n", re.DOTALL)
DEFINED = re.compile(r"typedef (struct|enum) \w+ \{(.*?)\} (\w+);", re.DOTALL)
INCLUDED = re.compile(r"\bsp_\w+\(\)")


def _plain(comment: str) -> str:
    """The text of a comment without its frame."""
    body = re.sub(r"^[ \t]*\*[ \t]?", "", comment.strip(), flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in body.splitlines())


def _introduction(header: str) -> list[str]:
    """The comment at the top of a header, without the name of the file."""
    text = re.sub(r"^\S+ - ", "", _plain(COMMENT.search(header)[1]))  # type: ignore[index]
    return paragraphs(text[0].upper() + text[1:])


def _linked(text: str) -> str:
    """Functions that are named with () are links."""
    return INCLUDED.sub(lambda found: f":c:func:`{found[0][:-2]}`", text)


def _statuses(table: re.Match[str]) -> str:
    """The table of statuses as the enumeration that it becomes, with the texts."""
    values = re.findall(r'X\((\w+), (\d+), "(.+?)"\)', table[0])
    return "typedef enum sp_status {" + ",".join(f"{name} = {value} /* {text} */" for name, value, text in values) + "} sp_status;\n"


# -- C ----------------------------------------------------------------------------------------------------------------------


def c_text(path: Path) -> str:
    """The page of a C header."""
    header = path.read_text(encoding="utf-8")
    public = header.partition("#else")[0] if "_mpi" in path.name else header.partition("#else /* SP_DISABLE")[0]
    public = public[header.index("*/") + 2 :]
    public = STATUS.sub(_statuses, public)
    parts = [block(_introduction(header))]
    titles = list(TITLE.finditer(public))
    ends = [found.start() for found in titles[1:]] + [len(public)]
    sections = [("Types and constants", public[: titles[0].start()])] if titles else [("Functions", public)]
    sections += [(found[1], public[found.end() : end]) for found, end in zip(titles, ends)]
    for title, body in sections:
        lines = [line for piece in _pieces(body) for line in piece]
        if lines:
            parts += [f"## {title[0].upper()}{title[1:]}", block(lines)]
    return "\n\n".join(parts)


def _pieces(body: str) -> list[list[str]]:
    """Each comment with the declarations below it; declarations below an empty line have no comment."""
    body = re.sub(r"\\\n", " ", body)
    pieces = []
    for group in re.split(r"\n\s*\n(?!\s*\*)", body):
        comment, declarations = "", group
        found = COMMENT.match(group.strip())
        if found:
            comment, declarations = _plain(found[1]), group.strip()[found.end() :]
        piece = _declarations(declarations, paragraphs(comment, _linked))
        if piece:
            pieces.append(piece)
    return pieces


def _declarations(code: str, text: list[str]) -> list[str]:
    """reStructuredText for what is declared, with the comment under the last of each kind."""
    documented = [(f"c:{found[1]}", [found[3]], _members(found[1], found[2])) for found in DEFINED.finditer(code)]
    code = DEFINED.sub("", code)
    opaque = re.findall(r"typedef struct \w+ (\w+);", code)
    functions = [
        " ".join(found.split()) for found in re.findall(r"^SP_API ((?:[^;{}#]|\n)+?\));", code, re.MULTILINE)
    ]
    macros = [
        name + parameters
        for name, parameters in re.findall(r"^#define (SP_\w+)(\([^)]*\))?", code, re.MULTILINE)
        if not name.endswith("_") and name not in ("SP_API", "SP_STATUS_ENUM")
    ]
    for kind, names in (("c:struct", opaque), ("c:function", functions), ("c:macro", macros)):
        names = [name for name in names if not re.search(r"_(\(|$)", name)]
        if names:
            documented.append((kind, names, []))
    lines: list[str] = []
    for kind, names, members in documented:
        gap = " " * len(f".. {kind}:: ")
        lines += [f".. {kind}:: {names[0]}", *(gap + name for name in names[1:]), ""]
        lines += [f"   {line}" if line else "" for line in [*text, *members]]
        lines.append("")
    return lines


def _members(kind: str, body: str) -> list[str]:
    """The fields of a structure, or the values of an enumeration."""
    if kind == "struct":
        return [".. code-block:: c", "", *(f"   {line.strip()}" for line in body.strip().splitlines()), ""]
    lines = []
    for value in body.split(","):
        found = re.match(r"\s*(\w+) = (\w+)(?: /\* (.*) \*/)?", value)
        if found:
            lines += [f".. c:enumerator:: {found[1]} = {found[2]}", "", *([f"   {found[3][0].upper()}{found[3][1:]}.", ""] if found[3] else [])]
    return lines


# -- C++ --------------------------------------------------------------------------------------------------------------------


def cpp_text(path: Path) -> str:
    """The page of a C++ header: each class with what is public of it, and each macro."""
    header = path.read_text(encoding="utf-8")
    parts = [*_introduction(header)]
    for found in re.finditer(r"/\*((?:[^*]|\*(?!/))*)\*/\n((?:template <.*>\n?)?(?:class|struct) (\w+).*?\n\};)", header, re.DOTALL):
        comment, code, name = found[1], found[2], found[3]
        space = "sp::mpi" if "_mpi" in path.name else "sp"
        parts += [f".. cpp:class:: {_template(code)}{space}::{name}", ""]
        parts += [f"   {line}" if line else "" for line in paragraphs(_plain(comment), _linked)]
        parts += ["   .. code-block:: cpp", "", *(f"      {line}" for line in _public(code)), ""]
    for found in re.finditer(r"/\*((?:[^*]|\*(?!/))*)\*/\n#(?:ifdef|define)((?:.*\n)+?)\n", header):
        macros = dict.fromkeys(re.findall(r"#define (SP_[A-Z_]+[A-Z])(\(.*?\))", "#define" + found[2]))
        if macros:
            names = [name + arguments for name, arguments in macros]
            parts += [f".. c:macro:: {names[0]}", *(" " * 13 + name for name in names[1:]), ""]
            parts += [f"   {line}" if line else "" for line in paragraphs(_plain(found[1]), _linked)]
    if "_mpi" in path.name:
        public = header.partition("} // namespace detail")[2]
        functions = re.findall(r"^inline ([\w ]+?[ *]+)(\w+)(\([^{;]+?\))\s*(?:noexcept\s*)?\n?\{", public, re.MULTILINE)
        for result, name, arguments in dict.fromkeys(functions):
            parts += [f".. cpp:function:: {result}sp::mpi::{name}{' '.join(arguments.split())}", ""]
    return block(parts)


def _template(code: str) -> str:
    found = re.match(r"template <[^>]*>", code)
    return found[0] + " " if found else ""


def _public(code: str) -> list[str]:
    """The declarations of a class that are public, without the bodies of its functions."""
    public = code.partition("public:")[2].partition("\nprivate:")[0]
    lines: list[str] = []
    depth = 0
    for line in re.sub(r"/\*.*?\*/", "", public, flags=re.DOTALL).splitlines():
        before, depth = depth, depth + line.count("{") - line.count("}")
        if before == 0 and line.strip() and line.strip() not in "{}" and not line.strip().startswith((":", "#")):
            head = re.sub(r"\s*(?: : \w+\(.*|\{.*)$", "", line.strip()).rstrip(";")
            lines.append(head + ";")
    return lines
