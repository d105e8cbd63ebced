"""The table of settings in docs/reference/settings.md: what each means, its default, and where it stands in a file of settings.

It is kept in the page, so that the page can be read as it is: ``python docs/_extensions/settings_reference.py`` writes it anew, and
a test compares it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from scope_profiler import ProfilingOptions
from scope_profiler.settings import GROUPS, SETTINGS

PAGE = Path(__file__).resolve().parents[1] / "reference" / "settings.md"
BEGIN, END = "<!-- the settings -->\n", "<!-- end of the settings -->\n"


def meanings() -> dict[str, str]:
    """What the docstring of ProfilingOptions says of each attribute."""
    attributes = inspect.cleandoc(ProfilingOptions.__doc__ or "").partition("----------\n")[2]
    return {name: " ".join(text.split()) for name, text in re.findall(r"^(\w+)\n((?:[ ]+.*\n?)+)", attributes, re.MULTILINE)}


def table() -> str:
    """A row for each setting; groups come last."""
    tables = {setting: f"[profiling.{group}] {field}" for group, fields in GROUPS.items() for field, setting in fields.items()}
    documents = meanings()
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    for name, (default, _) in SETTINGS.items():
        elsewhere = f" In a file also as `{tables[name]}`." if name in tables else ""
        rows.append(f"| `{name}` | `{default!r}` | {_cell(documents[name])}{elsewhere} |")
    rows += [f"| `{name}` | | {_cell(documents[name])} |" for name in GROUPS]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def split(page: str) -> tuple[str, str, str]:
    """The page before the table, the table, and the page behind it."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    return before + BEGIN, old, END + after


if __name__ == "__main__":
    before, _, after = split(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(f"{before}\n{table()}\n{after}", encoding="utf-8")
