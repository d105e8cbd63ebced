"""``scope-profiler export plot-data FILE...``: the numbers behind plots."""

from __future__ import annotations

import argparse
import os

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import load_runs
from scope_profiler.cli.plot_kinds import (
    DESCRIBED,
    PRESETS,
    add_kind_options,
    applicable,
    check_options,
    draw,
    kinds_of,
    tell_skipped,
    write_statistics,
)
from scope_profiler.cli.terminal import Output, printable

DESCRIPTION = (
    "Write the numbers behind plots, as KIND_data.csv, .json or .parquet, and region_statistics.json. `scope-profiler plot list` names "
    "the kinds."
)


VALUES = {"plots": DESCRIBED}  # for completion


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles, or globs of them")
    parser.add_argument("-o", "--output", metavar="DIR", default=".", help="directory to write to (default: here)")
    parser.add_argument("--format", choices=("csv", "json", "parquet"), default="csv", help="format of the data (default: csv)")
    parser.add_argument(
        "-p", "--plots", nargs="+", metavar="KIND", default=None, help="which plots (default: durations gantt)"
    )
    add_kind_options(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the files. 0."""
    words = arguments.plots or ["default"]
    kinds = kinds_of(words)
    check_options(arguments, kinds)
    runs = load_runs(arguments)
    asked = {word for word in words if word not in PRESETS}
    fitting, skipped = applicable([kind for kind in kinds if kind not in asked], runs)
    failed: dict[str, str] = {}
    chosen = [kind for kind in kinds if kind in asked or kind in fitting]
    for kind in chosen:
        path = os.path.join(arguments.output, f"{kind}_data.{arguments.format}")
        try:
            draw(kind, runs, arguments, verbose=False, data_filepath=path, data_format=arguments.format)
        except CommandError as error:
            if kind in asked:
                raise
            failed[kind] = str(error)
            continue
        output.line(f"wrote {printable(path)}")
    tell_skipped(output, failed, skipped, drawn=len(chosen) > len(failed))
    path = os.path.join(arguments.output, "region_statistics.json")
    write_statistics(path, runs, arguments)
    output.line(f"wrote {printable(path)}")
    return 0
