"""``scope-profiler benchmark compare BASELINE CANDIDATE``: whether a change made it faster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scope_profiler.cli.benchmark import add_json, decide, told

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = "Decide from two manifests whether CANDIDATE is to be kept, and print that as JSON. Exits with 1 when it is not."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("baseline", metavar="BASELINE", help="benchmark.json of the version before")
    parser.add_argument("candidate", metavar="CANDIDATE", help="benchmark.json of the version after")
    add_json(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Compare. 0, or 1 when the candidate is rejected."""
    with told():
        return decide(arguments.baseline, arguments.candidate, arguments.json, output)
