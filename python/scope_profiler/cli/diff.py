"""``scope-profiler diff A B``: how the regions of two profiles differ."""

from __future__ import annotations

import argparse

from scope_profiler.cli.arguments import add_selection, percentage
from scope_profiler.cli.comparison import METRICS, as_values, compare_files, name_of, ordered, print_changes, unmeasured
from scope_profiler.cli.terminal import Output

DESCRIPTION = "Compare the regions of two profiles: A is the baseline, B what it is compared with."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("file_a", metavar="A", help="baseline profile")
    parser.add_argument("file_b", metavar="B", help="profile to compare with it")
    add_selection(parser)
    parser.add_argument("--metric", choices=METRICS, default="total", help="what to compare (default: total)")
    parser.add_argument(
        "--sort",
        choices=("delta", "pct", "name"),
        default="delta",
        help="largest difference first (default), largest percentage, name",
    )
    parser.add_argument(
        "--threshold", type=percentage, metavar="PCT", help="only regions that changed by at least this many percent"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the comparison. 0."""
    a, b, changes = compare_files(arguments)
    missing = unmeasured(changes)
    if arguments.threshold is not None:
        changes = [c for c in changes if c.percent is None or abs(c.percent) >= arguments.threshold]
    changes = ordered(changes, arguments.sort)
    if arguments.json:
        output.json(
            {"a": str(a.file_path), "b": str(b.file_path), "metric": arguments.metric, "regions": as_values(changes)}
        )
        return 0
    rule = "=" * min(output.width or 78, 78)
    output.lines([rule, f"a: {name_of(a)}", f"b: {name_of(b)}", rule, "", f"Regions ({len(changes)})"])
    print_changes(changes, arguments.metric, output)
    if missing:
        output.line(
            f"  Without {arguments.metric} in one of the profiles: {len(missing)} region(s), first {missing[0]!r}"
        )
    return 0
