"""Parts of pages that are made from the program when the site is built, so that they cannot be out of date.

A page has an empty block for each, a directive for the eyes of others:

    ```{generated} commands
    ```

It is replaced by the text that :data:`PARTS` makes for the name, before the page is parsed.
"""

from __future__ import annotations

import re
from pathlib import Path

import command_reference
import fortran_reference
import header_reference
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "commands": command_reference.text,
    "c": lambda: header_reference.c_text(ROOT / "include" / "scope_profiler.h"),
    "c-mpi": lambda: header_reference.c_text(ROOT / "include" / "scope_profiler_mpi.h"),
    "cpp": lambda: header_reference.cpp_text(ROOT / "include" / "scope_profiler.hpp"),
    "cpp-mpi": lambda: header_reference.cpp_text(ROOT / "include" / "scope_profiler_mpi.hpp"),
    "fortran": lambda: fortran_reference.text(ROOT / "fortran" / "scope_profiler.f90"),
    "fortran-mpi": lambda: fortran_reference.text(ROOT / "fortran" / "scope_profiler_mpi.f90"),
}
BLOCK = re.compile(r"^```\{generated\} (\S+)\n```$", re.MULTILINE)


def other_pages(app: Sphinx) -> str:
    """The pages of docs/ that no list of contents names: they are there as soon as somebody writes them."""
    pages = Path(app.srcdir)
    named = (pages / "index.md").read_text(encoding="utf-8").splitlines()
    return "\n".join(page.stem for page in sorted(pages.glob("*.md")) if page.stem not in ("index", *named))


def fill_in(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the blocks of a page."""
    source[0] = BLOCK.sub(lambda found: PARTS[found[1]](), source[0])
    if name == "index":
        source[0] = source[0].replace("OTHER_PAGES", other_pages(app))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_object_type("fortran", "fortran", "pair: %s; Fortran procedure")
    app.connect("source-read", fill_in)
    # What is generated depends on the program, not on the page: those are read anew each time.
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: [
        page for page in env.found_docs if page == "index" or page.startswith("reference/")
    ])  # fmt: skip
    return {"parallel_read_safe": True, "parallel_write_safe": True}
