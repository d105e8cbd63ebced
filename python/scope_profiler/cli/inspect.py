"""``scope-profiler inspect FILE...``: what profiles hold."""

from __future__ import annotations

import argparse
import io
import json
from typing import TYPE_CHECKING, Any

from scope_profiler import _core
from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import add_selection, expand_files, load_profile, merge_ranks, select
from scope_profiler.cli.terminal import Output, Progress, one_line
from scope_profiler.inspection import (
    REGION_TABLE_COLUMNS,
    SORT_KEYS,
    collect_file_metadata,
    exactly,
    largest_regions,
    plain,
    print_balance,
    print_banner,
    print_metadata,
    print_processes,
    print_regions,
    print_source,
    print_tasks,
    print_threads,
    rows_of,
)
from scope_profiler.rank_balance import balance_of
from scope_profiler.summary import counter_lines, counter_rows

if TYPE_CHECKING:
    from scope_profiler.rank_balance import RankBalance
    from scope_profiler.results import MPIRegion, ProfilingResults

VALUES = {"columns": REGION_TABLE_COLUMNS}  # for completion
DESCRIPTION = "Print the metadata, regions, threads and tasks of profiles. Times are in seconds."


def _limit(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return value


def _names(text: str) -> list[str]:
    names = [name for name in text.replace(",", " ").split() if name]
    unknown = [name for name in names if name not in REGION_TABLE_COLUMNS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"no column {', '.join(map(repr, unknown))}; there are {', '.join(REGION_TABLE_COLUMNS)}"
        )
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles, or globs of them")
    add_selection(parser, bare_ranks="how evenly the ranks share the time of each region")
    parser.add_argument(
        "--sort",
        choices=SORT_KEYS,
        metavar="KEY",
        help=f"order of the regions: {', '.join(SORT_KEYS)} (default: start)",
    )
    parser.add_argument(
        "--top", type=_limit, metavar="N",
        help="only the first N regions (of the longest total, unless --sort says otherwise), the N busiest threads and tasks; 0: all",
    )  # fmt: skip
    parser.add_argument(
        "--columns",
        nargs="+",
        type=_names,
        metavar="COLUMN",
        help=f"columns of the region table: {', '.join(REGION_TABLE_COLUMNS)}",
    )
    parser.add_argument(
        "--percentage-mode", choices=("coverage", "exclusive"), default="coverage",
        help="what the session percentage counts: time covered by a region (default), or its exclusive time",
    )  # fmt: skip
    parser.add_argument(
        "--tree", action="store_true", help="print the call tree of every thread and task instead of the tables; many tasks of one coroutine are one tree (--top 0: each)"
    )
    parser.add_argument(
        "--depth", type=_limit, default=64, metavar="N", help="levels of the tree that are shown (default: 64; 0: all)"
    )
    parser.add_argument("--full", action="store_true", help="print long metadata values whole")
    parser.add_argument("--source", nargs="+", metavar="NAME", help="print the captured source of these regions")
    parser.add_argument(
        "--export-metadata", metavar="PATH", help="write the metadata of the profiles to this JSON file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing (with --export-metadata)")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--metadata-only", action="store_true", help="only the metadata")
    part.add_argument("--regions-only", action="store_true", help="only the regions")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Inspect the files one by one. 0, or 1 when --source names a region that a profile does not have."""
    paths = expand_files(arguments.files)
    arguments.balance = arguments.ranks == []
    arguments.ranks = merge_ranks(arguments.ranks or None)
    arguments.columns = None if arguments.columns is None else [name for names in arguments.columns for name in names]
    code = 0
    documents: list[dict[str, Any]] = []
    metadata: list[dict[str, Any]] = []
    for number, path in enumerate(paths, 1):
        results = load_profile(path, f"reading {path} ({number} of {len(paths)})" if len(paths) > 1 else None)
        metadata += collect_file_metadata(results)["files"]
        if arguments.quiet or output.closed:
            continue
        if arguments.json:
            with Progress(f"summing up {path}"):
                documents.append(_document(results, arguments))
            continue
        text = io.StringIO()
        with Progress(f"summing up {path}"):
            code = max(code, _print(results, arguments, Output(text, width=output.width)))
        output.lines([""] * (number > 1) + text.getvalue().split("\n")[:-1])
    if arguments.json and not arguments.quiet:
        output.json({"profiles": documents}, indent=2)
    if arguments.export_metadata is not None:
        _write_metadata(arguments.export_metadata, metadata)
    return code


def _write_metadata(path: str, entries: list[dict[str, Any]]) -> None:
    text = json.dumps({"files": entries}, indent=2) + "\n"
    try:
        _core.write_file(path, [text.encode()])
    except OSError as error:
        raise CommandError(f"{path}: {one_line(error.strerror or error)}") from None


def _narrowed(results: ProfilingResults, arguments: argparse.Namespace) -> tuple[list[MPIRegion], dict[str, Any]]:
    """The chosen regions, and the options of the region table that show just these."""
    regions = select(results, arguments.include, arguments.exclude, arguments.ranks)
    sort = arguments.sort or ("total" if arguments.top else "start")
    options: dict[str, Any] = {
        "include": arguments.include, "exclude": arguments.exclude, "ranks": arguments.ranks, "sort": sort,
    }  # fmt: skip
    names = largest_regions(regions, sort, arguments.top or len(regions))
    if len(names) < len(regions):
        options.update(include=exactly(names), exclude=None)
    by_name = {region.name: region for region in regions}
    return [by_name[name] for name in names], options


def _print(results: ProfilingResults, arguments: argparse.Namespace, output: Output) -> int:
    regions, options = _narrowed(results, arguments)
    print_banner(results, output)
    if arguments.balance:
        print_processes(results, output)
        print_balance(results, output, regions)
        return 0
    if not arguments.regions_only and not arguments.tree:
        print_metadata(results.metadata, output, full=arguments.full)
    complete = True
    if arguments.tree:
        from scope_profiler.cli.tree import print_tree

        complete = print_tree(
            results, regions, output, ranks=arguments.ranks, depth=arguments.depth, limit=arguments.top
        )
    elif not arguments.metadata_only:
        if regions:
            print_regions(
                results, output, columns=arguments.columns, percentage_mode=arguments.percentage_mode, **options
            )
        else:
            output.line("  (no regions)" if not len(results) else "  (no region matches)")
        if not arguments.regions_only:
            print_processes(results, output, ranks=arguments.ranks)
            print_threads(results, output, ranks=arguments.ranks, limit=arguments.top)
            print_tasks(results, output, ranks=arguments.ranks, limit=arguments.top)
            names = {region.name for region in regions}
            output.lines(counter_lines(counter_rows(results, names, arguments.ranks)))
    if arguments.source:
        complete = print_source(results, arguments.source, output) and complete
    return 0 if complete else 1


_THREAD_FIELDS = (
    "rank",
    "index",
    "name",
    "ident",
    "native_id",
    "daemon",
    "alive",
    "start_time",
    "end_time",
    "wall_time",
    "cpu_time",
    "run_cpu_time",
)
_TASK_FIELDS = (
    "rank", "index", "kind", "name", "coro_name", "thread_index", "done", "created_time", "done_time", "wall_time", "steps",
    "running_time", "awaiting_time",
)  # fmt: skip


def _document(results: ProfilingResults, arguments: argparse.Namespace) -> dict[str, Any]:
    document: dict[str, Any] = collect_file_metadata(results)["files"][0]
    document["label"] = results.label
    if arguments.regions_only:
        del document["metadata"]
    if arguments.metadata_only:
        return document
    regions, _ = _narrowed(results, arguments)
    document["regions"] = [_region(region) for region in regions]
    if arguments.balance:
        document["balance"] = [_balance(one) for one in balance_of(regions)]
    if not arguments.regions_only:
        processes = results.processes
        if len(processes) > 1:
            chosen = [row for rank, row in sorted(processes.items()) if arguments.ranks is None or rank in arguments.ranks]
            document["processes"] = [{field: plain(getattr(row, field)) for field in ("rank", "name", "pid")} for row in chosen]
        for kind, fields in (("threads", _THREAD_FIELDS), ("tasks", _TASK_FIELDS)):
            rows = rows_of(results, kind, arguments.ranks)
            document[kind] = [{field: plain(getattr(row, field)) for field in fields} for row in rows]
        names = {region.name for region in regions}
        counted = counter_rows(results, names, arguments.ranks)
        if counted:
            document["perf_events"] = [
                {"rank": rank, "region": name, "calls": totals.calls, "values": totals.values} for rank, name, totals in counted
            ]
    if arguments.tree:
        from scope_profiler.cli.tree import tree_values

        document["tree"] = tree_values(results, regions, arguments.ranks)
    return document


def _balance(one: RankBalance) -> dict[str, Any]:
    fields = ("name", "num_calls", "mean", "minimum", "min_rank", "maximum", "max_rank", "imbalance_pct", "lost_time")
    return {**{field: plain(getattr(one, field)) for field in fields}, "totals": {str(rank): value for rank, value in one.totals.items()}}


def _region(region: MPIRegion) -> dict[str, Any]:
    values = {
        **region.get_summary(),
        **{key: getattr(region, key) for key in ("p50_duration", "p95_duration", "p99_duration")},
    }
    values.pop("regions", None)
    return {
        "name": region.name,
        "ranks": [int(rank) for rank in region.ranks],
        **{key: plain(value) for key, value in values.items() if key not in ("name", "num_ranks")},
        "rank_imbalance": plain(region.rank_imbalance),
        "tags": [str(tag) for tag in region.tags or ()],
        "source_file": region.source_file,
        "source_lineno": plain(region.source_lineno),
    }
