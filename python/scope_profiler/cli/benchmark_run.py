"""``scope-profiler benchmark run CONFIG``: a script, profiled several times."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scope_profiler.cli import ANSWER_NO
from scope_profiler.cli.benchmark import add_json, decide, print_document, told
from scope_profiler.cli.terminal import Progress

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = (
    "Run what CONFIG describes: warm-ups, the check of correctness, the runs. Prints the manifest as JSON. Exits with 1 when the check "
    "does not pass."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("config", metavar="CONFIG", help="TOML file with a table [benchmark]")
    parser.add_argument("--label", default="candidate", metavar="LABEL", help="name of what is run (default: candidate)")
    parser.add_argument(
        "--against", metavar="CONFIG",
        help="run this one too, in turns with the other; print the comparison, and exit as `benchmark compare` does",
    )  # fmt: skip
    parser.add_argument(
        "--against-label", default="baseline", metavar="LABEL", help="name of what is run with --against (default: baseline)"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run. 0, or 1 when the check of correctness fails, or with --against when the candidate is rejected."""
    from scope_profiler.benchmark import load_config, run_benchmark, run_interleaved
    from scope_profiler.bounded_process import ending_with_this_process

    with told():
        config = load_config(arguments.config)
        baseline = None if arguments.against is None else load_config(arguments.against)
        with ending_with_this_process(), Progress(f"running {config.name}") as progress:
            if baseline is None:
                manifest = run_benchmark(config, arguments.label, progress=progress.tell)
            else:
                labels = (arguments.against_label, arguments.label)
                first, manifest = run_interleaved(baseline, config, labels, progress=progress.tell)
        if baseline is not None:
            return decide(first, manifest, arguments.json, output)
    if manifest["correctness"]["passed"]:
        print_document(manifest, arguments.json, output)
        return 0
    print_document(manifest, arguments.json, output, "scope-profiler: the check of correctness did not pass")
    return ANSWER_NO
