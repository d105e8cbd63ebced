"""``scope-profiler report FILE...``: a page about one profile, or one that compares several."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scope_profiler.cli.arguments import add_selection, expand_files, load_profile, merge_ranks, require_match
from scope_profiler.cli.view import open_page, write_page
from scope_profiler.html_report import COLUMNS, SCALINGS, SORT_KEYS, SPEEDUP_AXES, own_pages

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = "Write a page for the browser about one profile, or one that compares several with the first one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles, or globs of them")
    parser.add_argument("-o", "--output", metavar="PATH", default="report.html", help="the page (default: report.html)")
    add_selection(parser)
    parser.add_argument(
        "--sort", choices=SORT_KEYS, metavar="KEY", default="start",
        help=f"order of the regions at first: {', '.join(SORT_KEYS)} (default: start)",
    )  # fmt: skip
    parser.add_argument(
        "--columns", nargs="+", choices=COLUMNS, metavar="COLUMN", help=f"columns of the region table: {', '.join(COLUMNS)}"
    )
    parser.add_argument("--no-charts", action="store_true", help="tables only: no timeline, no flame graph, a small page")
    parser.add_argument("--charts-cdn", action="store_true", help="has no effect: the page loads nothing")
    parser.add_argument(
        "--scaling", choices=SCALINGS, default="both",
        help="what a study of several runs is: strong (charts the speedup), weak (the efficiency), both (default)",
    )  # fmt: skip
    parser.add_argument(
        "--no-individual-reports", action="store_true", help="no page of its own for each of several profiles"
    )
    parser.add_argument(
        "--speedup-x", choices=SPEEDUP_AXES, default="auto",
        help="what the charts of several runs are over: auto (default), ranks, nodes, threads (OpenMP) or cores",
    )  # fmt: skip
    parser.add_argument("--show", action="store_true", help="open the page in the browser")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the page, and one for each of several runs, and print their paths."""
    runs = [load_profile(path) for path in expand_files(arguments.files)]
    require_match(runs, arguments)
    written = write_page(
        runs, arguments.output, include=arguments.include, exclude=arguments.exclude, ranks=merge_ranks(arguments.ranks),
        sort=arguments.sort, columns=arguments.columns, charts_cdn=arguments.charts_cdn, include_charts=not arguments.no_charts,
        individual_reports=not arguments.no_individual_reports, scaling=arguments.scaling, speedup_x=arguments.speedup_x,
    )  # fmt: skip
    for page in [written, *(own_pages(written, runs) if not arguments.no_individual_reports else [])]:
        output.line(str(page))
    if arguments.show:
        open_page(written)
    return 0
