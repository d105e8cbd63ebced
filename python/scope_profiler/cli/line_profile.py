"""``scope-profiler line-profile FILE``: the line profiles that a run with use_line_profiler stored."""

from __future__ import annotations

import argparse

from scope_profiler.cli.arguments import add_selection, check_patterns, load_profile, merge_ranks
from scope_profiler.cli.terminal import Output, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scope_profiler.results import ProfilingResults

DESCRIPTION = (
    "Print which lines the functions of a region ran, how often and for how long: the line profiles of a run with "
    "use_line_profiler (or `scope-profiler run --line-profile`)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("file", metavar="FILE", help="a profile")
    add_selection(parser)
    parser.add_argument("--function", metavar="REGEX", help="only functions whose name has a match of this")
    parser.add_argument("--region", metavar="REGEX", help="only regions whose name has a match of this")


def print_lines(results: ProfilingResults, output: Output, **selection: Any) -> None:
    """Print the tables of a run; ``selection`` as of :func:`~scope_profiler.line_tables.select_records`."""
    from scope_profiler.line_tables import line_profile_lines, select_records

    records = select_records(results.line_profile, **selection)
    output.lines(line_profile_lines(records, output.width))
    if not records:
        output.lines(["", "No line-profile records matched."])


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the tables; that nothing matches is said, and no error."""
    for pattern in (arguments.function, arguments.region):
        check_patterns([pattern] if pattern is not None else None)
    check_patterns(arguments.include, arguments.exclude)
    results = load_profile(arguments.file)
    output.line(printable(f"Line profile: {results.file_path}"))
    if not results.line_profile:
        output.line(printable(f"{results.file_path} has no lines: `scope-profiler run --line-profile` records them."))
    print_lines(
        results,
        output,
        ranks=merge_ranks(arguments.ranks),
        include=arguments.include,
        exclude=arguments.exclude,
        function=arguments.function,
        region=arguments.region,
    )
    return 0
