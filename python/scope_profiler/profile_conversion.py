"""Results that were put together from arrays, as a profile."""

from __future__ import annotations

from scope_profiler import _core
from scope_profiler.call_columns import COLUMN_NAMES
from scope_profiler.call_statistics import exclusive_or_none
from scope_profiler.concurrency import ns_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from scope_profiler.call_columns import IntArray
    from scope_profiler.region_results import Region
    from scope_profiler.results import ProfilingResults

__all__ = ["profile_of_results"]

_DEFAULTS = {"await_ns": 0}  # of a column that other regions have; -1 for the rest


def profile_of_results(results: ProfilingResults) -> _core.Profile:
    """One profile with every column, table and counter of ``results``; calls without ids are nested and numbered.

    Raises ValueError for what no profile can hold.
    """
    ranks = sorted(results._store.ranks())
    parts = [(region, rank, region[rank]) for rank in ranks for region in results if rank in region]
    aggregate = _is_aggregate([one for _, _, one in parts])
    with_calls = results.has_event_data and not aggregate
    columns = _columns([one for _, _, one in parts]) if with_calls else {}
    numbered = "call_ids" in columns
    index = {name: position for position, name in enumerate(results.region_names)}
    first, rows = 0, []
    for region, rank, one in parts:
        rows.append(_row(index[region.name], rank, first, one, numbered or not with_calls))
        first += one._columns.count
    threads, tasks = results.threads, results.tasks
    profile = _core.make_profile(
        names=list(index),
        rows=rows,
        columns=columns,
        threads=_table(threads, _THREAD_COLUMNS) if threads or "thread_ids" in columns else None,
        tasks=_table(tasks, _TASK_COLUMNS) if tasks else None,
        metadata={key: _value(value) for key, value in results.metadata.items() if value is not None},
        aux=_groups(results),
        aggregate=aggregate,
        nested=numbered or not with_calls,
        summary_only=not results.has_event_data,
    )
    return profile if numbered or not columns else _core.merge_profiles([profile])


def _is_aggregate(parts: Sequence[Region]) -> bool:
    summed = [one._aggregate is not None and one.has_event_data for one in parts]
    if any(summed) and not all(summed):
        raise ValueError("some of these regions have single calls and some only their sums; one profile cannot hold both")
    return any(summed)


def _columns(parts: Sequence[Region]) -> dict[str, IntArray]:
    """Every column that a region has, with the default where others do not have it. Ids only if all calls have them."""
    import numpy as np

    columns: dict[str, IntArray] = {}
    for name in COLUMN_NAMES:
        values = [one._columns.array(name) for one in parts]
        missing = [value is None for value, one in zip(values, parts) if one._columns.count]
        if all(missing) or (name in ("call_ids", "parent_ids") and any(missing)):
            continue
        default = 0 if name == "await_ns" else -1
        filled = [np.full(one._columns.count, default) if v is None else v for v, one in zip(values, parts)]
        columns[name] = np.ascontiguousarray(np.concatenate(filled), dtype=np.int64)
    if "call_ids" not in columns or "parent_ids" not in columns:
        columns.pop("call_ids", None)
        columns.pop("parent_ids", None)
    for name in ("start_ns", "end_ns"):
        columns.setdefault(name, np.empty(0, np.int64))
    return columns


def _row(name: int, rank: int, first: int, one: Region, resolved: bool) -> tuple[Any, ...]:
    """A row as make_profile takes it. The exclusive total only if nobody makes it later."""
    count = one._columns.count if one.has_event_data else one.num_calls
    aggregate = one._aggregate if one.has_event_data else None
    exclusive = one._exclusive_total
    if exclusive is None and resolved and exclusive_or_none(one) is not None:
        exclusive = one._exclusive_total_ns
    one._statistic(0)  # they are made when first asked for
    return (
        name,
        rank,
        first,
        0 if aggregate is not None else count,
        one.source_file,
        -1 if one.source_lineno is None else one.source_lineno,
        one.source_text,
        one.tags,
        _metadata_text(one),
        -1 if exclusive is None else exclusive,
        one._statistics if count and (aggregate is None or "m2" in aggregate) else None,
        None if aggregate is None else tuple(int(aggregate.get(key, -1)) for key in _AGGREGATE),
        one._percentiles,
    )


def _metadata_text(one: Region) -> str | None:
    if one._metadata is None or isinstance(one._metadata, str):
        return one._metadata
    import json

    return json.dumps(one._metadata)


_AGGREGATE = ("count", "total", "minimum", "maximum", "exclusive")
_THREAD_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "ranks": lambda row: row.rank,
    "index": lambda row: row.index,
    "ident": lambda row: row.ident,
    "native_id": lambda row: row.native_id,
    "daemon": lambda row: int(row.daemon),
    "start_ns": lambda row: ns_of(row.start_time),
    "end_ns": lambda row: ns_of(row.end_time),
    "cpu_ns": lambda row: ns_of(row.cpu_time),
    "cpu_before_ns": lambda row: ns_of(row.cpu_before),
    "name": lambda row: row.name,
}
_TASK_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "ranks": lambda row: row.rank,
    "index": lambda row: row.index,
    "kind": lambda row: row.kind,
    "name": lambda row: row.name,
    "coro_name": lambda row: row.coro_name,
    "thread_index": lambda row: row.thread_index,
    "created_ns": lambda row: ns_of(row.created_time),
    "done_ns": lambda row: ns_of(row.done_time),
    "steps": lambda row: row.steps,
    "running_ns": lambda row: ns_of(row.running_time),
    "suspended_ns": lambda row: ns_of(row.awaiting_time),
    "creator_thread": lambda row: row.creator_thread,
    "creator_task": lambda row: row.creator_task,
}
_TEXTS = ("name", "kind", "coro_name")


def _table(lanes: Mapping[int, Sequence[Any]], columns: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """A lane table as columns, rank by rank: int64, and lists of texts."""
    from array import array

    rows = [row for rank in sorted(lanes) for row in lanes[rank]]
    return {
        name: list(map(get, rows)) if name in _TEXTS else array("q", map(get, rows)) for name, get in columns.items()
    }


def _value(value: Any) -> Any:
    """Metadata as a profile has it: numbers, texts and lists of texts. Anything else is kept as its text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _value(value.item())  # a scalar of numpy
    if isinstance(value, (list, tuple, set, frozenset)) or hasattr(value, "tolist"):
        return [str(item) for item in value]
    return str(value)


def _groups(results: ProfilingResults) -> dict[int, dict[str, Any]]:
    from scope_profiler.auxiliary import group_of

    lines, counters, likwid = results.line_profile, results.get_perf_events(), results.get_likwid_regions()
    ranks = sorted({*lines, *counters, *likwid})
    groups = {rank: group_of(lines.get(rank, ()), counters.get(rank, {}), likwid.get(rank, {})) for rank in ranks}
    for rank, samples in results.samples.groups.items():
        groups.setdefault(rank, group_of((), {}, {}))["groups"]["samples"] = samples
    return groups
