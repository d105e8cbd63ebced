"""``scope-profiler benchmark run CONFIG`` and ``benchmark compare BASELINE CANDIDATE``: is a change faster?"""

from __future__ import annotations

import argparse
from typing import Any

from scope_profiler.cli import ANSWER_NO, CommandError, complain
from scope_profiler.cli.terminal import Output, Progress, one_line, printable, reason_of

DESCRIPTION = (
    "Profile a script several times, and decide from two such benchmarks whether a change made it faster. Both print JSON; what was "
    "decided is said on stderr."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two commands and their arguments."""
    commands = parser.add_subparsers(dest="action", metavar="run|compare", required=True)
    run = commands.add_parser(
        "run", help="run what a TOML file describes, and write a manifest", allow_abbrev=False,
        description="Run what CONFIG describes: warm-ups, the check of correctness, the runs. Exits with 1 when the check does not pass.",
    )  # fmt: skip
    run.add_argument("config", metavar="CONFIG", help="TOML file with a table [benchmark]")
    run.add_argument("--label", default="candidate", metavar="LABEL", help="name of what is run (default: candidate)")
    run.add_argument(
        "--against", metavar="CONFIG",
        help="run this one too, in turns with the other; print the comparison, and exit as `benchmark compare` does",
    )  # fmt: skip
    run.add_argument(
        "--against-label", default="baseline", metavar="LABEL", help="name of what is run with --against (default: baseline)"
    )
    run.add_argument("--json", action="store_true", help="print only JSON, on one line")
    compare = commands.add_parser(
        "compare", help="decide between two manifests", allow_abbrev=False,
        description="Decide whether CANDIDATE is to be kept. Exits with 1 when it is not.",
    )  # fmt: skip
    compare.add_argument("baseline", metavar="BASELINE", help="benchmark.json of the version before")
    compare.add_argument("candidate", metavar="CANDIDATE", help="benchmark.json of the version after")
    compare.add_argument("--json", action="store_true", help="print only JSON, on one line")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run or compare. 0, or 1 when the check of correctness fails or the candidate is rejected."""
    from scope_profiler.benchmark import BenchmarkError

    try:
        if arguments.action == "compare":
            return _compare(arguments.baseline, arguments.candidate, arguments.json, output)
        return _run(arguments, output)
    except BenchmarkError as error:
        raise CommandError(one_line(error)) from None
    except OSError as error:
        raise CommandError(reason_of(error)) from None


def _run(arguments: argparse.Namespace, output: Output) -> int:
    from scope_profiler.benchmark import load_config, run_benchmark, run_interleaved
    from scope_profiler.bounded_process import ending_with_this_process

    config = load_config(arguments.config)
    baseline = None if arguments.against is None else load_config(arguments.against)
    with ending_with_this_process(), Progress(f"running {config.name}") as progress:
        if baseline is None:
            manifest = run_benchmark(config, arguments.label, progress=progress.tell)
        else:
            labels = (arguments.against_label, arguments.label)
            first, manifest = run_interleaved(baseline, config, labels, progress=progress.tell)
    if baseline is not None:
        return _compare(first, manifest, arguments.json, output)
    _print(manifest, arguments.json, output)
    if manifest["correctness"]["passed"]:
        return 0
    if not arguments.json:
        output.flush()
        complain("scope-profiler: the check of correctness did not pass")
    return ANSWER_NO


def _compare(baseline: Any, candidate: Any, only_json: bool, output: Output) -> int:
    from scope_profiler.benchmark import compare_benchmarks

    result = compare_benchmarks(baseline, candidate)
    _print(result, only_json, output)
    if not only_json:
        output.flush()
        for line in (f"{result['decision']}: {result['reason']}", *(f"note: {note}" for note in result["notes"])):
            complain(printable(line))
    return 0 if result["decision"] == "keep" else ANSWER_NO


def _print(document: dict[str, Any], only_json: bool, output: Output) -> None:
    output.json(document, indent=None if only_json else 2)
