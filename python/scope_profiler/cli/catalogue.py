"""``scope-profiler catalogue REPORT...``: a page that lists reports."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scope_profiler.catalogue import TITLE, create_catalogue
from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import expand_files
from scope_profiler.cli.terminal import printable, reason_of

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = "Write a page that lists report pages with a link to each, and what is known of their runs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("reports", nargs="+", metavar="REPORT", help="pages that `scope-profiler report` wrote, or globs of them")
    parser.add_argument("-o", "--output", metavar="PATH", default="catalogue.html", help="the page (default: catalogue.html)")
    parser.add_argument("--title", metavar="TEXT", default=TITLE, help=f"title of the page (default: {TITLE})")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the page and print its path. 0."""
    try:
        written = create_catalogue(expand_files(arguments.reports), arguments.output, title=arguments.title)
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename}: no such file") from None
    except (OSError, ValueError) as error:
        raise CommandError(reason_of(error)) from None
    output.line(printable(f"wrote {written}"))
    return 0
