"""``scope-profiler tui FILE``: a profile in the terminal."""

from __future__ import annotations

import argparse
import sys

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import load_profile
from scope_profiler.cli.terminal import Output

DESCRIPTION = (
    "Browse a profile in the terminal: regions, threads, tasks and call trees, plots, metadata, and the file itself. Needs textual "
    "(pip install scope-profiler[tui])."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("file", metavar="FILE", help="a profile, or the spool of a program that was killed or still runs")
    parser.add_argument(
        "--plot-output", metavar="DIR", help="where plots are saved (default: beside FILE, in a directory <name>_plots)"
    )


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the profile until the user quits. 0."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("tui needs a terminal; `scope-profiler inspect` prints")
    try:
        import textual  # noqa: F401
    except ImportError:
        raise CommandError("tui needs textual: pip install scope-profiler[tui]") from None
    results = load_profile(arguments.file)
    from scope_profiler.tui.app import ProfileApp

    app = ProfileApp(results, arguments.file, arguments.plot_output)
    app.run()
    return app.return_code or 0
