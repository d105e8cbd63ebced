"""``scope-profiler benchmark``: which of its two commands, and what they share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import ANSWER_NO, PROGRAM, CommandError, complain
from scope_profiler.cli.arguments import did_you_mean
from scope_profiler.cli.terminal import one_line, printable, reason_of

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = "Profile a script several times, and decide from two such benchmarks whether a change made it faster."
USAGE = "scope-profiler benchmark run CONFIG [OPTIONS]\n       scope-profiler benchmark compare BASELINE CANDIDATE [--json]"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], None]:
    """The arguments; CommandError for a word, which is none of the two commands."""
    if arguments and not arguments[0].startswith("-"):
        hint = did_you_mean(arguments[0], ("run", "compare"))
        raise CommandError(f"unknown command 'benchmark {arguments[0]}'{hint}; see {PROGRAM} benchmark --help")
    return list(arguments), None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The word benchmark alone has none."""


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Tell what is missing."""
    raise CommandError("which one, `benchmark run` or `benchmark compare`? (see scope-profiler benchmark --help)")


@contextmanager
def told() -> Iterator[None]:
    """What cannot be used or written is one line."""
    from scope_profiler.benchmark import BenchmarkError

    try:
        yield
    except BenchmarkError as error:
        raise CommandError(one_line(error)) from None
    except OSError as error:
        raise CommandError(reason_of(error)) from None


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option of both commands."""
    parser.add_argument("--json", action="store_true", help="print only JSON, on one line")


def print_document(document: Mapping[str, Any], only_json: bool, output: Output, *lines: str) -> None:
    """Print JSON, and for people ``lines`` on stderr."""
    output.json(document, indent=None if only_json else 2)
    if not only_json:
        output.flush()
        for line in lines:
            complain(printable(line))


def decide(baseline: Any, candidate: Any, only_json: bool, output: Output) -> int:
    """Print the comparison of two manifests or their paths. 0, or 1 when the candidate is rejected."""
    from scope_profiler.benchmark import compare_benchmarks

    result = compare_benchmarks(baseline, candidate)
    notes = [f"note: {note}" for note in result["notes"]]
    print_document(result, only_json, output, f"{result['decision']}: {result['reason']}", *notes)
    return 0 if result["decision"] == "keep" else ANSWER_NO
