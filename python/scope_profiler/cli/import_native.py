"""``scope-profiler import-native INPUT...``: traces of C and Fortran programs as a profile."""

from __future__ import annotations

import argparse

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import load_profile
from scope_profiler.cli.terminal import Output, Progress, one_line, printable

DESCRIPTION = (
    "Write the output of native programs, one file a rank, as one profile: .spt traces, HDF5 files called *_rank<number>.h5, "
    "and directories that have such files."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="traces, or directories of them")
    parser.add_argument("-o", "--output", default="profiling_data.h5", metavar="FILE", help="profile to write (default: %(default)s)")
    parser.add_argument("--label", help="name of the run")
    parser.add_argument(
        "--merge", metavar="PROFILE", help="a profile to put the native calls into, as that of the program's Python part"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read, merge and write. 0."""
    from scope_profiler import merge_results, write_profile
    from scope_profiler.native_trace import load_traces

    try:
        with Progress("reading native traces"):
            results = load_traces(arguments.inputs, label=arguments.label)
        if arguments.merge:
            results = merge_results(load_profile(arguments.merge), results, label=arguments.label)
        with Progress(f"writing {arguments.output}"):
            write_profile(results, arguments.output)
    except (OSError, ValueError) as error:
        raise CommandError(one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)) from None
    if not arguments.quiet:
        from scope_profiler.inspection import print_regions

        print_regions(results, output)
    output.line(printable(f"wrote {arguments.output}"))
    return 0
