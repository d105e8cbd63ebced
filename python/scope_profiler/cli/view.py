"""``scope-profiler view FILE...``: profiles in the browser."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import CommandError, complain
from scope_profiler.cli.arguments import add_selection, expand_files, load_profile, merge_ranks, require_match
from scope_profiler.cli.terminal import Output, Progress, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from scope_profiler.results import ProfilingResults

DESCRIPTION = "Show profiles in the browser: all threads and tasks over time, a flame graph, and tables."
EPILOG = "The page is one file that fetches nothing. Without -o it is written to a temporary directory of its own."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a profile, or the spool of a running program; several are compared"
    )
    parser.add_argument("-o", "--output", metavar="OUT.html", help="where to write the page")
    parser.add_argument("--no-open", action="store_true", help="only write the page and print where it is")
    add_selection(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the page, print its path, and show it where there is a screen."""
    paths = expand_files(arguments.files)
    runs = [load_profile(path) for path in paths]
    require_match(runs, arguments)
    target = arguments.output or _temporary(paths[0])
    written = write_page(runs, target, include=arguments.include, exclude=arguments.exclude,
                         ranks=merge_ranks(arguments.ranks), individual_reports=False, sort="own")  # fmt: skip
    output.line(str(written))
    if not arguments.no_open:
        open_page(written)
    return 0


def write_page(runs: list[ProfilingResults], target: str | os.PathLike[str], **options: Any) -> Path:
    """create_html_report, whose failures become one line."""
    from scope_profiler.html_report import create_html_report

    try:
        with Progress(f"writing {target}"):
            return create_html_report(runs, target, **options)
    except (OSError, ValueError) as error:
        text = one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
        raise CommandError(text if str(target) in text else f"{target}: {text}") from None


def _temporary(profile: str) -> str:
    """A page in a directory that only this user can look into: a profile has names and sources in it."""
    import tempfile

    stem = os.path.basename(profile).partition(".")[0] or "profile"
    return os.path.join(tempfile.mkdtemp(prefix="scope-profiler-"), f"{stem}.html")


def has_screen() -> bool:
    """Whether a browser would open beside the terminal; without one, `webbrowser` might start a browser in it."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def open_page(page: Path) -> None:
    """Show a page in the user's browser; without a screen there is nothing to do but what was printed."""
    import webbrowser

    if has_screen() and not webbrowser.open(page.resolve().as_uri()):
        complain("no browser could be started; the page is complete")
