"""``scope-profiler line-profile FILE``: the line profiles that a run with use_line_profiler stored."""

from __future__ import annotations

import argparse

from scope_profiler.cli.arguments import add_selection, check_patterns, load_profile, merge_ranks
from scope_profiler.cli.terminal import Output, printable

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


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the tables; that nothing matches is said, and no error."""
    from scope_profiler.line_tables import line_profile_lines, select_records

    for pattern in (arguments.function, arguments.region):
        check_patterns([pattern] if pattern is not None else None)
    check_patterns(arguments.include, arguments.exclude)
    results = load_profile(arguments.file)
    records = select_records(
        results.line_profile,
        ranks=merge_ranks(arguments.ranks),
        include=arguments.include,
        exclude=arguments.exclude,
        function=arguments.function,
        region=arguments.region,
    )
    output.line(printable(f"Line profile: {results.file_path}"))
    output.lines(line_profile_lines(records, output.width))
    if not records:
        output.lines(["", "No line-profile records matched."])
    return 0
