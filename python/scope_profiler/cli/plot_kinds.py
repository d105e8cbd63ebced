"""The kinds of plots on the command line, and the options that `plot` and `export plot-data` share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import CommandError, complain
from scope_profiler.cli.arguments import add_label, add_selection, did_you_mean, merge_ranks
from scope_profiler.cli.terminal import Output, one_line

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["DESCRIBED", "KINDS", "PRESETS", "SUFFIXES", "add_kind_options", "call", "draw", "kinds_of", "selection", "tell_skipped"]

#: Kind -> (function of scope_profiler.plotting_scripts, one line of help).
KINDS = {
    "gantt": ("plot_gantt", "every call over time, a row a thread, task or region"),
    "density": ("plot_timeline_density", "how much of the time regions were open"),
    "flame_chart": ("plot_flame_chart", "calls over time, each below its caller"),
    "flame_graph": ("plot_flame_graph", "call paths by their time together"),
    "callgraph": ("plot_callgraph", "who called whom; OUT.dot is for Graphviz"),
    "durations": ("plot_durations", "statistics of regions as bars"),
    "timeseries": ("plot_duration_timeseries", "durations of calls over time"),
    "speedup": ("plot_speedup", "how much faster larger runs are (several files)"),
    "weak_scaling": ("plot_weak_scaling", "durations as multiples of the smallest run's (several files)"),
    "weak_scaling_efficiency": ("plot_weak_scaling_efficiency", "the same, inverted (several files)"),
    "rank_heatmap": ("plot_rank_heatmap", "total durations by rank and region"),
    "scaling_efficiency": ("plot_scaling_efficiency", "speedup over the ideal one (several files)"),
    "histogram": ("plot_duration_histogram", "how durations are spread"),
    "imbalance": ("plot_imbalance", "ranks against each other"),
    "likwid": ("plot_likwid", "a LIKWID metric by region (--likwid-metric)"),
    "roofline": ("plot_roofline", "FLOP rate against arithmetic intensity, from LIKWID"),
    "perf_events": ("plot_perf_events", "a metric of Linux perf events by region (--perf-metric)"),
}
COUNTER_KINDS = ("likwid", "roofline", "perf_events")
SEVERAL = ("speedup", "weak_scaling", "weak_scaling_efficiency", "scaling_efficiency")

PRESETS = {
    "default": ("durations", "gantt"),
    "quick": ("durations", "rank_heatmap", "scaling_efficiency", "speedup", "weak_scaling"),
    "all": tuple(kind for kind in KINDS if kind not in COUNTER_KINDS),
}

#: What --plots takes, described; `plot` takes it as its first word.
DESCRIBED = {
    **{kind: words for kind, (_, words) in KINDS.items()},
    **{name: "every plot but those of counters" if name == "all" else ", ".join(kinds) for name, kinds in PRESETS.items()},
}

#: Backend -> the suffix of its files.
SUFFIXES = {"matplotlib": ".png", "plotly": ".html", "pyvis": ".html", "plotext": ".txt"}

_STATISTICS = ("avg", "min", "max", "total", "first", "last")


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _groups(text: str) -> tuple[str, list[str]]:
    name, equals, patterns = text.partition("=")
    if not name or not equals or not patterns:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATTERN[,PATTERN...]")
    return name, patterns.split(",")


# Option -> (the parameter of the plot functions, the kinds that take it, what argparse knows of it).
_TIMELINE = ("gantt", "density")
OPTIONS: dict[str, tuple[str, Sequence[str], dict[str, Any]]] = {
    "--start-time": ("start_time", _TIMELINE, {"type": float, "metavar": "S", "help": "begin of the part to show, s from the first call"}),
    "--end-time": ("end_time", _TIMELINE, {"type": float, "metavar": "S", "help": "end of the part to show"}),
    "--min-duration": ("min_duration", _TIMELINE, {"type": float, "metavar": "S", "help": "leave out shorter calls"}),
    "--aggregate-calls": ("aggregate_calls", ("gantt",), {"type": _positive, "metavar": "N", "help": "so many calls become one bar"}),
    "--collapse-depth": ("collapse_depth", ("gantt",), {"type": _count, "metavar": "N", "help": "leave out calls with more callers"}),
    "--bins": ("bins", ("density", "histogram"), {"type": _positive, "metavar": "N", "help": "number of parts"}),
    "--compact-callgraph": ("compact", ("callgraph",), {"action": "store_true", "help": "a node a region"}),
    "--every-call": ("every_call", ("callgraph",), {"action": "store_true", "help": "a node a call, of up to 150 calls"}),
    "--fluid-callgraph": ("fluid", ("callgraph",), {"action": "store_true", "help": "nodes arrange themselves (pyvis)"}),
    "--metrics": ("metrics", ("durations",), {"nargs": "+", "choices": _STATISTICS, "help": "statistics to draw (default: total)"}),
    "--sort-by": ("sort_by", ("durations",), {"choices": ("name", "avg", "min", "max", "total"), "help": "order of the regions"}),
    "--top-n": ("top_n", ("durations",), {"type": _positive, "metavar": "N", "help": "only so many regions"}),
    "--combine-regions": (
        "combine_regions", ("durations",),
        {"nargs": "+", "type": _groups, "metavar": "NAME=PATTERN[,PATTERN...]", "help": "draw regions as one"},
    ),
    "--stack-children": ("stack_children", ("durations",), {"action": "store_true", "help": "split bars by what is called"}),
    "--log-scale": (
        "log_scale", ("durations", "timeseries", "histogram", "imbalance", "likwid"),
        {"action": "store_true", "help": "logarithmic axis"},
    ),
    "--exclusive": ("exclusive", ("rank_heatmap",), {"action": "store_true", "help": "time without the calls inside"}),
    "--imbalance-metric": ("metric", ("imbalance",), {"choices": ("avg", "min", "max", "total"), "help": "statistic of the imbalance"}),
    "--x": ("x_field", SEVERAL, {"metavar": "FIELD", "help": "what the runs differ in: num_ranks (default), num_nodes, omp_num_threads, total_cores, or other metadata"}),
    "--work-per-rank": ("work_per_rank", ("weak_scaling_efficiency",), {"nargs": "+", "type": float, "metavar": "WORK", "help": "one number a file: must be the same"}),
    "--likwid-metric": ("metric", ("likwid",), {"metavar": "NAME", "help": "which LIKWID metric"}),
    "--perf-metric": ("metric", ("perf_events",), {"metavar": "NAME", "help": "which perf-event metric (default: ipc, or the first that there is)"}),
    "--flops-metric": ("flops_metric", ("roofline",), {"metavar": "NAME", "help": "LIKWID metric of the FLOP rate"}),
    "--bandwidth-metric": ("bandwidth_metric", ("roofline",), {"metavar": "NAME", "help": "LIKWID metric of the memory bandwidth"}),
    "--peak-flops": ("peak_flops", ("roofline",), {"type": float, "metavar": "GFLOP/S", "help": "what the machine can compute"}),
    "--peak-bandwidth": ("peak_bandwidth", ("roofline",), {"type": float, "metavar": "GB/S", "help": "what its memory can deliver"}),
}  # fmt: skip

#: The kinds whose metric is called just --metric when they are the only one.
METRIC_KINDS = ("imbalance", "likwid", "perf_events")


def _place(option: str) -> str:
    return "kind_" + option.strip("-").replace("-", "_")


def add_kind_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose what is plotted, and those of single kinds."""
    add_label(parser)
    add_selection(parser)
    for option, (_, kinds, settings) in OPTIONS.items():
        default = None if "action" not in settings else False
        words = f"{settings['help']} [{', '.join(kinds)}]"
        parser.add_argument(option, dest=_place(option), default=default, **{**settings, "help": words})
    parser.add_argument("--metric", metavar="NAME", help=f"the metric of the one kind [{', '.join(METRIC_KINDS)}]")


def kinds_of(words: Sequence[str]) -> list[str]:
    """The kinds that a kind's or a preset's name means; CommandError for an unknown one."""
    kinds: dict[str, None] = {}
    for word in words:
        if word not in KINDS and word not in PRESETS:
            raise CommandError(f"no plot {word!r}{did_you_mean(word, [*KINDS, *PRESETS])}; see scope-profiler plot list")
        kinds.update(dict.fromkeys(PRESETS.get(word, (word,))))
    return list(kinds)


def check_options(arguments: argparse.Namespace, kinds: Sequence[str]) -> None:
    """CommandError for an option that none of the kinds takes."""
    for option, (_, takers, _) in OPTIONS.items():
        if getattr(arguments, _place(option)) not in (None, False) and not set(takers) & set(kinds):
            raise CommandError(f"{option} is for {', '.join(takers)}, not for {', '.join(kinds)}")
    if arguments.metric is not None and (len(kinds) != 1 or kinds[0] not in METRIC_KINDS):
        raise CommandError(f"--metric is for one of {', '.join(METRIC_KINDS)}; with several kinds it is --KIND-metric")


def _settings(arguments: argparse.Namespace, kind: str) -> dict[str, Any]:
    settings = selection(kind, arguments.include, arguments.exclude, merge_ranks(arguments.ranks))
    for option, (parameter, takers, _) in OPTIONS.items():
        value = getattr(arguments, _place(option))
        if kind in takers and value not in (None, False):
            settings[parameter] = dict(value) if parameter == "combine_regions" else value
    if kind in METRIC_KINDS and arguments.metric is not None:
        settings["metric"] = arguments.metric
    if kind == "likwid" and "metric" not in settings:
        raise CommandError("the likwid plot needs --likwid-metric NAME")
    return settings


def selection(
    kind: str, include: Sequence[str] | None, exclude: Sequence[str] | None, ranks: Sequence[int] | None
) -> dict[str, Any]:
    """The parameters of a kind's function that choose regions and ranks."""
    settings: dict[str, Any] = {"include": include, "exclude": exclude}
    if kind != "callgraph":
        settings["ranks"] = ranks
    elif ranks:
        settings["rank"] = ranks[0]
    return settings


def draw(kind: str, runs: Sequence[ProfilingResults], arguments: argparse.Namespace, **how: Any) -> tuple[list[str], Any]:
    """Call the function of a kind: the lines that it says, and what it returns. CommandError for what goes wrong."""
    import contextlib
    import io

    settings = _settings(arguments, kind)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        returned = call(kind, runs, settings, **how)
    return said.getvalue().splitlines(), returned


def call(kind: str, runs: Sequence[ProfilingResults], settings: Mapping[str, Any], **how: Any) -> Any:
    """What the function of a kind returns. CommandError for what goes wrong."""
    import re

    from scope_profiler import EventDataUnavailableError, plotting_scripts

    function = getattr(plotting_scripts, KINDS[kind][0])
    data = runs[0] if kind == "callgraph" and len(runs) == 1 else runs
    if kind == "perf_events" and "metric" not in settings:
        # What only some processors count cannot be what is drawn of every run.
        known = plotting_scripts.available_perf_event_metrics(data)
        settings = {**settings, "metric": known[0]} if known else settings
    try:
        return function(data, **settings, **how)
    except re.error as error:
        raise CommandError(f"{error.pattern!r} is not a regular expression: {error}") from None
    except (ValueError, ImportError, RuntimeError, EventDataUnavailableError) as error:
        raise CommandError(f"{kind}: {one_line(error)}") from None
    except OSError as error:
        where = error.filename if error.filename is not None else how.get("filepath") or how.get("data_filepath") or kind
        raise CommandError(f"{os.fspath(where)}: {one_line(error.strerror or error)}") from None


def write_statistics(path: str, runs: Sequence[ProfilingResults], arguments: argparse.Namespace) -> None:
    """region_statistics.json; CommandError where it cannot be written."""
    from scope_profiler.plotting_scripts import write_region_statistics_json

    try:
        write_region_statistics_json(runs, path, merge_ranks(arguments.ranks), arguments.include, arguments.exclude)
    except OSError as error:
        raise CommandError(f"{path}: {one_line(error.strerror or error)}") from None
    except ValueError as error:
        raise CommandError(one_line(error)) from None


def tell_skipped(output: Output, failed: Mapping[str, str], skipped: Mapping[str, str], *, drawn: bool) -> None:
    """Say which plots of a preset there are not, and why: ``failed`` could not be drawn, ``skipped`` are not for these files.

    Raises CommandError if nothing was ``drawn`` at all.
    """
    if not drawn and failed:
        reasons = dict.fromkeys(reason.removeprefix(f"{kind}: ") for kind, reason in failed.items())
        raise CommandError(f"no plot was drawn ({', '.join(failed)}): {'; '.join(reasons)}")
    for reason in failed.values():
        complain(f"scope-profiler: skipped {reason}")
    for kind, reason in skipped.items():
        output.line(f"skipped {kind}: {reason}")


def applicable(kinds: Sequence[str], runs: Sequence[ProfilingResults]) -> tuple[list[str], Mapping[str, str]]:
    """Of the kinds of a preset those that these files have, and why not the others."""
    skipped = {kind: "it compares several files" for kind in kinds if kind in SEVERAL and len(runs) < 2}
    if "callgraph" in kinds and len(runs) > 1:
        skipped["callgraph"] = "it is of one file"
    return [kind for kind in kinds if kind not in skipped], skipped
