"""``scope-profiler native-lines INPUT...``: the source lines that the samples of native programs fell on."""

from __future__ import annotations

import argparse

from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Output, one_line, printable

DESCRIPTION = (
    "Print for every region of a native program the source lines that its sampling timer found it on (.sps files). The program "
    "must have been built with -g."
)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help=".sps files, or directories of them")
    parser.add_argument("--top", type=_count, default=10, metavar="N", help="lines of a region (default: %(default)s)")
    parser.add_argument("--no-source", action="store_true", help="do not print what the lines say")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the tables, file by file. 0, or 1 when no file has a sample."""
    from scope_profiler.native_samples import (
        SymbolizerError,
        find_sample_files,
        format_line_profile,
        line_profile,
        read_samples,
    )

    any_samples = False
    try:
        for path in find_sample_files(arguments.inputs):
            samples = read_samples(path)
            output.line(printable(f"{path}  (rank {samples.rank}, {samples.hz} Hz)"))
            output.line()
            text = format_line_profile(line_profile(samples), top=arguments.top, source=not arguments.no_source)
            output.lines(text.splitlines() if text else ["no samples"])
            output.line()
            any_samples = any_samples or len(samples.samples) > 0
    except (OSError, ValueError, SymbolizerError) as error:
        raise CommandError(one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)) from None
    return 0 if any_samples else 1
