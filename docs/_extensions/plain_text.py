"""The comments of headers and help texts as reStructuredText: plain English with `code` in it and indented examples."""

from __future__ import annotations

import re
from collections.abc import Callable

_SPECIAL = re.compile(r"([\\*_|<>])")


def escaped(text: str, words: Callable[[str], str] = lambda word: word) -> str:
    """One line or paragraph; what is between backticks is code. `words` may mark up the rest."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(f"``{part[1:-1]}``" if part.startswith("`") else words(_SPECIAL.sub(r"\\\1", part)) for part in parts)


def paragraphs(text: str, words: Callable[[str], str] = lambda word: word) -> list[str]:
    """Lines of reStructuredText for a text: its paragraphs, and as they stand those whose lines are indented."""
    lines: list[str] = []
    for part in re.split(r"\n[ \t]*\n", text.strip("\n")):
        rows = part.splitlines()
        if rows and all(row.startswith("    ") for row in rows):
            lines += ["::", "", *rows, ""]
            continue
        flowing = [row for row in rows if not row.startswith("  ")]
        lines += [escaped(" ".join(row.strip() for row in flowing), words), ""] if flowing else []
        table = [row for row in rows if row.startswith("  ")]
        lines += [*(f"| {escaped(row.strip(), words)}" for row in table), ""] if table else []
    return lines


def block(lines: list[str]) -> str:
    """Such lines as a block of a Markdown page."""
    return "\n".join(["````{eval-rst}", *lines, "````"])
