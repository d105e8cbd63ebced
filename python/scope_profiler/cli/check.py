"""``scope-profiler check A B``: whether B keeps within what baseline A allows."""

from __future__ import annotations

import argparse

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import add_selection, percentage
from scope_profiler.cli.comparison import (
    METRICS,
    Change,
    as_values,
    compare_files,
    name_of,
    ordered,
    print_changes,
    unmeasured,
)
from scope_profiler.cli.terminal import Output, shown_name

DESCRIPTION = (
    "Exit with 1 when a region of B is more than --max-regression percent above the same region of A. What cannot be judged, "
    "because no region matches or a profile lacks the metric, exits with 2: it never passes."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("file_a", metavar="A", help="baseline profile")
    parser.add_argument("file_b", metavar="B", help="candidate profile")
    parser.add_argument(
        "--max-regression",
        type=percentage,
        default=0.0,
        metavar="PCT",
        help="increase that is allowed, in percent (default: 0)",
    )
    add_selection(parser)
    parser.add_argument("--metric", choices=METRICS, default="total", help="what to judge (default: total)")
    parser.add_argument(
        "--fail-on-new", action="store_true", help="a region that the baseline does not have is a failure too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def violations(changes: list[Change], budget: float, fail_on_new: bool) -> list[Change]:
    """The changes beyond the budget (percent). A region that is gone is none; a new one only when asked for."""
    return [
        change
        for change in changes
        if (not change.in_a and fail_on_new) or (change.in_a and change.in_b and (change.percent or 0.0) > budget)
    ]


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the verdict. 0: within the budget, 1: not."""
    a, b, changes = compare_files(arguments)
    if not any(change.in_a and change.in_b for change in changes) and not (arguments.fail_on_new and changes):
        raise CommandError(f"nothing to check: {arguments.file_a} and {arguments.file_b} have no such region in common")
    missing = unmeasured(changes)
    if missing:
        raise CommandError(
            f"cannot check {arguments.metric}: {len(missing)} region(s) have none in {arguments.file_a} or {arguments.file_b}, "
            f"first {missing[0]!r}"
        )
    broken = violations(changes, arguments.max_regression, arguments.fail_on_new)
    changes = ordered(changes, "pct")
    if arguments.json:
        output.json(
            {
                "baseline": str(a.file_path),
                "candidate": str(b.file_path),
                "metric": arguments.metric,
                "max_regression_percent": arguments.max_regression,
                "passed": not broken,
                "violations": [change.name for change in broken],
                "regions": as_values(changes),
            }
        )
        return 1 if broken else 0
    output.lines(
        [
            f"Baseline: {name_of(a)}",
            f"Candidate: {name_of(b)}",
            f"Regression budget: +{arguments.max_regression:g}% ({arguments.metric})",
            f"Regression check: {'FAIL' if broken else 'PASS'}",
        ]
    )
    print_changes(changes, arguments.metric, output)
    if broken:
        output.line(f"Budget violations: {', '.join(shown_name(change.name) for change in broken)}")
    return 1 if broken else 0
