"""What the tools of the MCP server do: functions of values that JSON has, to values that JSON has.

Whatever goes wrong is a :class:`ToolError` with one line. Answers are bounded: lists have ``top_n`` items and 1000 at most, and say
how many there are; texts are cut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import Event, Lock  # read at run time: the server makes the schemas of its tools from these hints
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

    Tool = TypeVar("Tool", bound=Callable[..., dict[str, Any]])

__all__ = [
    "ToolError",
    "compare_benchmarks",
    "compare_profiles",
    "inspect_profile",
    "plot_profile",
    "run_benchmark",
    "run_profile",
]

_drawing = Lock()  # matplotlib's settings are the process's
_MOST_ITEMS = 1000
_MOST_TEXT = 2000  # characters of one text


class ToolError(ValueError):
    """Why a tool has no answer, in one line."""


def _tool(function: Tool) -> Tool:
    """Every failure that its arguments or files can cause becomes a ToolError."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> dict[str, Any]:
        from scope_profiler.cli import CommandError
        from scope_profiler.cli.terminal import one_line, reason_of

        try:
            answer: dict[str, Any] = _bounded(function(*arguments, **options))
            return answer
        except ToolError:
            raise
        except CommandError as error:
            raise ToolError(one_line(error)) from None
        except re.error as error:
            raise ToolError(f"{error.pattern!r} is not a regular expression: {error}") from None
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, ImportError, MemoryError) as error:
            raise ToolError(reason_of(error)) from None

    return call  # type: ignore[return-value]


def _bounded(value: Any) -> Any:
    """``value`` as JSON has it, with long texts cut in the middle."""
    from scope_profiler.cli.terminal import cut
    from scope_profiler.inspection import plain

    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bounded(item) for item in value]
    value = plain(value)
    if isinstance(value, str):
        return cut(value, _MOST_TEXT, middle=True)
    return [_bounded(item) for item in value] if isinstance(value, list) else value


def _limit(top_n: int | None) -> int:
    if top_n is not None and top_n < 0:
        raise ToolError(f"top_n must be 0 or more, not {top_n}")
    return min(top_n or _MOST_ITEMS, _MOST_ITEMS)


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    from scope_profiler.cli.arguments import did_you_mean

    if value not in choices:
        raise ToolError(f"{name} must be one of {', '.join(choices)}, not {value!r}{did_you_mean(value, choices)}")


def _more_than_zero(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ToolError(f"{name} must be more than 0, not {value!r}")


def _load(path: str) -> ProfilingResults:
    from scope_profiler.cli.arguments import load_profile

    if not path or "\0" in path:
        raise ToolError(f"{path!r} is no path")
    return load_profile(path)


def _check_ranks(results: ProfilingResults, ranks: Sequence[int] | None) -> None:
    unknown = [rank for rank in ranks or () if not 0 <= rank < int(results.num_ranks)]
    if unknown or ranks == []:
        raise ToolError(f"{results.file_path}: {f'no rank {unknown[0]}' if unknown else 'no ranks chosen'} of {results.num_ranks}")


# -- one profile -----------------------------------------------------------------------------------------------------------


@_tool
def inspect_profile(
    file_path: str,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    ranks: list[int] | None = None,
    sort: str = "total",
    top_n: int | None = 20,
    full_metadata: bool = False,
) -> dict[str, Any]:
    """Tell what a profile holds: how long the run took, where its time went, and what its threads and tasks did.

    All times are in seconds.

    Args:
        file_path: A profile that scope-profiler wrote, or the spool of a program that was killed or still runs.
        include: Only regions whose name begins with a match of one of these regular expressions.
        exclude: No regions whose name begins with a match of one of these.
        ranks: Only these processes (MPI ranks); all if not given.
        sort: The order: "total", "calls", "avg", "min", "max", "first", "last", "std", "p50", "p95", "p99", "imbalance" (largest
            first), "start" or "name" (ascending).
        top_n: How many call paths, threads and coroutines are returned, each; 0 or null for all, up to 1000.
        full_metadata: Return environment variables and unknown metadata too, of which there is only a count otherwise.

    Returns:
        file_path, label, num_ranks, num_regions, total_time_seconds (the run), wall_clock_seconds (first call to last), metadata
        by group, and regions: items with one entry a call path. In it total is the time of the outermost calls together,
        exclusive is without the calls inside, coverage is the wall time during which one of the calls was open, awaiting
        the part of total in which their tasks were suspended (null if tasks were not tracked). threads and coroutines are null if they were not tracked; region_time of a thread is the wall time that it spent inside of regions,
        run_cpu_time the CPU time that it used in the run, cpu_time that of its whole life (null if not known).
    """
    return _inspected(_load(file_path), include, exclude, ranks, sort, top_n, full_metadata)


def _inspected(
    results: ProfilingResults,
    include: list[str] | None,
    exclude: list[str] | None,
    ranks: list[int] | None,
    sort: str,
    top_n: int | None,
    full_metadata: bool,
) -> dict[str, Any]:
    from scope_profiler.summary import SORT_KEYS, path_rows

    _one_of("sort", sort, SORT_KEYS)
    limit = _limit(top_n)
    _check_ranks(results, ranks)
    items, count = path_rows(results, include, exclude, ranks, sort, limit)
    return {
        **_headline(results),
        "metadata": _metadata(results.metadata, full_metadata),
        "regions": {"sort": sort, "returned": len(items), "total_matching_filter": count, "items": items},
        "threads": _threads(results, ranks, limit),
        "coroutines": _coroutines(results, ranks, limit),
        "likwid": _likwid(results, ranks, limit),
    }


def _headline(results: ProfilingResults) -> dict[str, Any]:
    return {
        "file_path": str(results.file_path),
        "label": results.display_label,
        "num_ranks": int(results.num_ranks),
        "num_regions": len(results),
        "total_time_seconds": results.total_time,
        "wall_clock_seconds": results.time_span,
    }


def _metadata(metadata: Mapping[str, Any], full: bool) -> dict[str, Any]:
    """By group; what is no fact about the run but of its environment is only counted unless ``full``."""
    from scope_profiler.inspection import metadata_sections

    groups = {title.lower(): {key: metadata[key] for key in keys} for title, keys in metadata_sections(metadata).items()}
    other = groups.pop("other", {})
    slurm = {key: other.pop(key) for key in list(other) if key.startswith(("SLURM_", "SLURMD_"))}
    modules = other.pop("modules", None)
    if slurm:
        groups["slurm"] = slurm
    if modules is not None:
        groups["modules"] = modules
    if full:
        groups["environment"] = other
    elif other:
        groups["environment_field_count"] = len(other)  # type: ignore[assignment]
    return groups


def _items(rows: Sequence[Mapping[str, Any]], limit: int) -> dict[str, Any]:
    return {"returned": min(len(rows), limit), "total": len(rows), "items": [dict(row) for row in rows[:limit]]}


def _threads(results: ProfilingResults, ranks: list[int] | None, limit: int) -> dict[str, Any] | None:
    """The threads, the busiest first."""
    from scope_profiler.inspection import plain

    chosen = [rank for rank in sorted(results.threads) if ranks is None or rank in ranks]
    rows = [
        {"rank": rank, **row, "cpu_time": plain(thread.cpu_time), "run_cpu_time": plain(thread.run_cpu_time)}
        for rank in chosen
        for row, thread in zip(results.thread_summary(rank), results.threads[rank])
    ]
    return _items(sorted(rows, key=lambda row: -(row["run_cpu_time"] or 0.0)), limit) if rows else None


def _coroutines(results: ProfilingResults, ranks: list[int] | None, limit: int) -> dict[str, Any] | None:
    """The asyncio tasks and greenlets by what they run, those that ran longest first."""
    from scope_profiler.inspection import rows_of
    from scope_profiler.summary import coroutine_sums

    names = ("tasks", "done", "steps", "running_time", "awaiting_time")
    groups = coroutine_sums(rows_of(results, "tasks", ranks))
    rows = [{"coroutine": name, "kind": kind, **dict(zip(names, sums))} for (name, kind), sums in groups.items()]
    return _items(sorted(rows, key=lambda row: -row["running_time"]), limit) if rows else None


def _likwid(results: ProfilingResults, ranks: list[int] | None, limit: int) -> dict[str, Any] | None:
    from scope_profiler.likwid_data import table_rows

    chosen = [rank for rank in results.likwid_ranks if ranks is None or rank in ranks]
    rows = [row for rank in chosen for row in table_rows(rank, results.get_likwid_regions(rank))]
    return _items(rows, limit) if rows else None


# -- two profiles ----------------------------------------------------------------------------------------------------------


@_tool
def compare_profiles(
    baseline_path: str,
    candidate_path: str,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    ranks: list[int] | None = None,
    metric: str = "total",
    threshold_pct: float = 5.0,
    top_n: int | None = 20,
) -> dict[str, Any]:
    """Compare two profiles, region by region: what became slower, what faster, and the run as a whole.

    A single run of each says little about small differences; run_benchmark and compare_benchmarks decide with repeated runs.

    Args:
        baseline_path: The profile before the change.
        candidate_path: The profile after it.
        include: Only regions whose name begins with a match of one of these regular expressions.
        exclude: No regions whose name begins with a match of one of these.
        ranks: Only these processes (MPI ranks); all if not given.
        metric: What is compared: "total", "avg", "min", "max", "p50", "p95", "p99" (seconds), "imbalance" (percent), "calls",
            "gpu_total", "gpu_avg" (seconds).
        threshold_pct: By how many percent a region must have changed to be among regressions or improvements.
        top_n: How many entries each list has at most; 0 or null for all, up to 1000.

    Returns:
        baseline and candidate (as inspect_profile begins), overall (absolute_diff_seconds, relative_change_pct, speedup, faster),
        regions (largest change first), regressions and improvements (largest percentage first) with num_regressions and
        num_improvements. A value is null where a region is not in a profile, or the metric was not recorded.
    """
    from scope_profiler.cli.arguments import select
    from scope_profiler.cli.comparison import METRICS, as_values, compare, ordered

    _one_of("metric", metric, METRICS)
    if not 0 <= threshold_pct < float("inf"):
        raise ToolError(f"threshold_pct must be 0 or more, not {threshold_pct!r}")
    limit = _limit(top_n)
    baseline, candidate = _load(baseline_path), _load(candidate_path)
    for results in (baseline, candidate):
        _check_ranks(results, ranks)
    changes = compare(
        select(baseline, include, exclude, ranks), select(candidate, include, exclude, ranks), metric
    )

    def rows(chosen: Any) -> list[dict[str, Any]]:
        values = as_values(chosen)
        return [
            {"name": one["name"], "baseline": one["a"], "candidate": one["b"], "delta": one["delta"], "pct": one["percent"]}
            for one in values
        ]

    by_share = ordered((change for change in changes if change.percent is not None), "pct")
    worse = [change for change in by_share if change.percent is not None and change.percent > threshold_pct]
    better = [change for change in by_share if change.percent is not None and change.percent < -threshold_pct]
    return {
        "baseline": _headline(baseline),
        "candidate": _headline(candidate),
        "overall": _overall(baseline.total_time, candidate.total_time),
        "metric": metric,
        "threshold_pct": threshold_pct,
        "regions": _items(rows(ordered(changes, "delta")), limit),
        "num_regressions": len(worse),
        "regressions": rows(worse[:limit]),
        "num_improvements": len(better),
        "improvements": rows(better[:limit]),
    }


def _overall(before: float | None, after: float | None) -> dict[str, Any]:
    names = ("absolute_diff_seconds", "relative_change_pct", "speedup", "faster")
    if before is None or after is None:
        return dict.fromkeys(names)
    change = 100.0 * (after - before) / before if before else None
    return dict(zip(names, (after - before, change, before / after if after else None, after < before)))


# -- runs ------------------------------------------------------------------------------------------------------------------


@_tool
def run_profile(
    script_path: str,
    script_args: list[str] | None = None,
    only_user_code: bool = True,
    buffer_limit: int = 1024,
    output_path: str | None = None,
    timeout_seconds: float = 300.0,
    top_n: int | None = 20,
    *,
    stop: Event | None = None,
) -> dict[str, Any]:
    """Run a Python script with its regions recorded, and tell what inspect_profile tells of it.

    The script runs in a process of its own, in the server's working directory, without an input. When its time is over it is ended
    with every process that it started.

    Args:
        script_path: The script.
        script_args: Its arguments, one text each; no shell is involved.
        only_user_code: Record the regions that the code marks. False: the calls of all functions, those of libraries too.
        buffer_limit: How many calls buffers hold at first.
        output_path: Where the profile goes; into a temporary directory of its own if not given.
        timeout_seconds: How long the script may take.
        top_n: As for inspect_profile.

    Returns:
        What inspect_profile returns, and the last 2000 characters of the output as stdout_tail and stderr_tail.
    """
    from scope_profiler.bounded_process import profile_script
    from scope_profiler.launch import written

    _more_than_zero("timeout_seconds", timeout_seconds)
    _more_than_zero("buffer_limit", buffer_limit)
    limit = _limit(top_n)
    if not os.path.isfile(script_path):
        raise ToolError(f"{script_path}: no such script")
    with _directory(None if output_path is None else os.path.dirname(output_path)) as directory:
        target = os.path.join(directory, "profiling_data.h5") if output_path is None else output_path
        before = written(target)
        done = profile_script(
            script_path, script_args or (), target, timeout=timeout_seconds, only_user_code=only_user_code,
            buffer_limit=buffer_limit, stop=stop,
        )  # fmt: skip
        if done.returncode != 0:
            raise ToolError(f"{script_path}: {_failure(done, timeout_seconds)}{_rescued(target, before)}")
        answer = _inspected(_load(target), None, None, None, "total", limit, False)
    return {**answer, "stdout_tail": done.stdout, "stderr_tail": done.stderr}


@contextmanager
def _directory(given: str | None) -> Iterator[str]:
    """The directory to write to: the one that is given, or a new one, which is removed again if nothing came into it."""
    import tempfile

    if given is not None:
        yield given
        return
    made = tempfile.mkdtemp(prefix="scope-profiler-")
    try:
        yield made
    finally:
        if not os.listdir(made):
            os.rmdir(made)


def _failure(done: Any, timeout: float) -> str:
    return f"the run took longer than {timeout:g} s and was ended" if done.returncode is None else f"the run {done.reason}"


def _rescued(output: str, before: tuple[int, int] | None) -> str:
    """Where what a failed run has recorded is: in a profile that was not there ``before``, or in its spool."""
    import glob

    from scope_profiler.launch import written

    anew = written(output) not in (None, before)
    found = [output] if anew else sorted(glob.glob(f"{glob.escape(output)}.*-*.spool"), key=os.path.getmtime)
    return f"; what it recorded is in {found[-1]}" if found else ""


@_tool
def run_benchmark(config_path: str, label: str = "candidate", *, stop: Event | None = None) -> dict[str, Any]:
    """Profile a script several times, as a TOML configuration says, with a check of correctness: before a change and after it.

    Args:
        config_path: The configuration: a table [benchmark] with script, args, runs, warmups, timeout_seconds, output_dir,
            threshold_pct and name, and a table [correctness] with command and timeout_seconds.
        label: The name of what is run, such as "baseline" or "candidate": a directory of the output.

    Returns:
        The manifest: config, correctness, profiles (path, total_time_seconds and the totals of their regions), statistics of
        total_time_seconds, and manifest_path, which compare_benchmarks takes.
    """
    from scope_profiler import benchmark

    manifest = benchmark.run_benchmark(benchmark.load_config(config_path), label, stop=stop)
    for profile in manifest["profiles"]:
        largest = sorted(profile["regions"].items(), key=lambda item: -item[1])[:_MOST_ITEMS]
        profile["regions"] = dict(largest)
    return manifest


@_tool
def compare_benchmarks(baseline_path: str, candidate_path: str) -> dict[str, Any]:
    """Decide from two manifests of run_benchmark whether the candidate is to be kept.

    Args:
        baseline_path: The manifest before the change.
        candidate_path: The manifest after it.

    Returns:
        decision ("keep" or "reject") with its reason. It is kept if its check of correctness passed, its median is faster by more
        than its threshold_pct, and an exact test says at 95 % that it is faster; confidence_interval_pct bounds the change.
    """
    from scope_profiler import benchmark

    return benchmark.compare_benchmarks(baseline_path, candidate_path)


# -- plots -----------------------------------------------------------------------------------------------------------------


@_tool
def plot_profile(
    file_paths: list[str] | str,
    plot_type: str = "gantt",
    output_dir: str | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    ranks: list[int] | None = None,
    backend: str = "matplotlib",
    x_field: str | None = None,
) -> dict[str, Any]:
    """Draw a plot of one or several profiles, for people to look at, and return the path of the picture.

    Args:
        file_paths: One profile or a list of them.
        plot_type: "gantt", "density", "flame_chart", "flame_graph", "callgraph", "durations", "timeseries", "rank_heatmap",
            "histogram", "imbalance", "roofline", "perf_events"; and, of several profiles, "speedup", "weak_scaling",
            "weak_scaling_efficiency", "scaling_efficiency". "flame" is "flame_chart".
        output_dir: Where the picture goes; into a temporary directory of its own if not given.
        include: Only regions whose name begins with a match of one of these regular expressions.
        exclude: No regions whose name begins with a match of one of these.
        ranks: Only these processes (MPI ranks); all if not given.
        backend: "matplotlib" (a .png), "plotly" (an interactive .html), "pyvis" (call graphs) or "plotext" (text).
        x_field: What the profiles differ in, for plots of several: "num_ranks" (if not given), "num_nodes", "omp_num_threads",
            "total_cores", or any other metadata.

    Returns:
        plot_type, backend, and paths: what was written.
    """
    from scope_profiler.cli.arguments import check_patterns
    from scope_profiler.cli.plot_kinds import KINDS, SEVERAL, SUFFIXES, call, selection

    kind = "flame_chart" if plot_type == "flame" else plot_type
    _one_of("plot_type", kind, [name for name in KINDS if name != "likwid"])
    _one_of("backend", backend, tuple(SUFFIXES))
    if x_field is not None and kind not in SEVERAL:
        raise ToolError(f"x_field is for {', '.join(SEVERAL)}, not for {plot_type}")
    paths = [file_paths] if isinstance(file_paths, str) else list(file_paths)
    if not paths:
        raise ToolError("file_paths names no profile")
    check_patterns(include, exclude)
    runs = [_load(path) for path in paths]
    settings = selection(kind, include, exclude, ranks)
    if x_field is not None:
        settings["x_field"] = x_field
    with _directory(output_dir) as directory, _drawing:
        target = os.path.join(directory, f"{kind}_plot{SUFFIXES[backend]}")
        written = call(kind, runs, settings, filepath=target, backend=backend, verbose=False)
    return {"plot_type": plot_type, "backend": backend, "paths": written if isinstance(written, list) else [target]}
