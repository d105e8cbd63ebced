"""The settings of a run: what each means, its default, and where it stands in a file of settings."""

from __future__ import annotations

from plain_text import block
from sphinx.pycode import ModuleAnalyzer

from scope_profiler.settings import GROUPS, SETTINGS


def meanings() -> dict[str, str]:
    """The comments of the fields of ProfilingOptions."""
    documents = ModuleAnalyzer.for_module("scope_profiler.options").find_attr_docs()
    return {name: " ".join(lines).strip() for (owner, name), lines in documents.items() if owner == "ProfilingOptions"}


def text() -> str:
    """A definition for each setting."""
    tables = {setting: f"[profiling.{group}] {field}" for group, fields in GROUPS.items() for field, setting in fields.items()}
    documents = meanings()
    lines: list[str] = []
    for name, (default, _) in SETTINGS.items():
        lines += [f".. py:attribute:: scope_profiler.ProfilingOptions.{name}", "   :no-contents-entry:", f"   :value: {default!r}", ""]
        lines += [f"   {documents[name]}", ""]
        if name in tables:
            lines += [f"   In a file also as ``{tables[name]}``.", ""]
    for name in GROUPS:
        lines += [f".. py:attribute:: scope_profiler.ProfilingOptions.{name}", "   :no-contents-entry:", "", f"   {documents[name]}", ""]
    return block(lines)
