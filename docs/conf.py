"""The site: `./run docs` builds it from the Markdown pages here, the docstrings of the package, and the headers."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_extensions"))

from pygments.lexers.python import PythonLexer  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import scope_profiler  # noqa: E402

project = "scope-profiler"
author = "the developers of scope-profiler"
release = version = scope_profiler.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "generated_pages"]
exclude_patterns = ["_extensions"]
smartquotes = False  # they would turn --option into something else

# Markdown. Headings get the anchors that a repository's own view of the pages gives them, so that links work in both.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

# Docstrings in the style of numpy.
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

# Furo brings everything that a page shows; nothing is fetched when one is read.
html_theme = "furo"
html_title = f"scope-profiler {release}"
html_static_path: list[str] = []
html_show_search_summary = False  # it fetches the pages, which a browser refuses to do for files
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """The cells of notebooks are shown as Python, also where IPython is not installed."""
    app.add_lexer("ipython", PythonLexer)
