"""Profiles for the tests of files: made from plain values, and a second reader of the format, on h5py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scope_profiler import _core

COLUMNS = ("start_ns", "end_ns", "call_ids", "parent_ids", "thread_ids", "task_ids", "await_ns", "gpu_ns")
STATISTICS = [
    ("total", "<i8"), ("minimum", "<i8"), ("maximum", "<i8"), ("first", "<i8"), ("last", "<i8"), ("start_minimum", "<i8"),
    ("end_maximum", "<i8"), ("gpu_count", "<u8"), ("gpu_total", "<i8"), ("mean", "<f8"), ("m2", "<f8"),
]  # fmt: skip


def int64(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def row(name: int, first: int, count: int, *, rank: int = 0, source: str | None = None, line: int = -1, text: str | None = None,
        tags: Any = (), metadata: str | None = None, exclusive: int = -1, statistics: Any = None, aggregate: Any = None) -> Any:  # fmt: skip
    return (name, rank, first, count, source, line, text, tags, metadata, exclusive, statistics, aggregate)


def make(rows: Any, columns: Any, names: Any = ("a", "b", "c"), **rest: Any) -> _core.Profile:
    return _core.make_profile(names=list(names), rows=rows, columns=columns, **rest)


def everything() -> _core.Profile:
    """Two ranks, every optional column and table, every kind of metadata and group."""
    return make(
        names=["a", "b"],
        rows=[row(0, 0, 1, exclusive=50), row(1, 1, 3, source="x.py", line=7, text="with r:\n  pass", tags=("t", "é"),
                                         metadata='[{"k": 1}, {}, {"s": "x"}]', exclusive=45),
              row(1, 4, 1, rank=3, exclusive=5)],
        columns={"start_ns": int64(1000, 1010, 1020, 1015, 2000), "end_ns": int64(1100, 1015, 1050, 1025, 2005),
         "call_ids": int64(0, 1, 3, 2, 0), "parent_ids": int64(-1, 0, 0, -1, -1), "thread_ids": int64(0, 0, 0, 1, 0),
         "task_ids": int64(-1, -1, 0, -1, -1), "await_ns": int64(0, 0, 5, 0, 0), "gpu_ns": int64(-1, 3, -1, 4, -1)},
        threads={"ranks": int64(0, 0, 3), "index": int64(0, 1, 0), "ident": int64(11, 2**47, 12), "native_id": int64(21, 22, 23),
                 "daemon": int64(0, 1, 0), "start_ns": int64(1, 2, 0), "end_ns": int64(-1, 90, -1), "cpu_ns": int64(5, 6, 7),
                 "name": ["MainThread", "wörker", ""]},
        tasks={"ranks": int64(0), "index": int64(0), "kind": ["task"], "name": ["Task-1"], "coro_name": ["main"],
               "thread_index": int64(0), "created_ns": int64(3), "done_ns": int64(-1), "steps": int64(2),
               "running_ns": int64(8), "suspended_ns": int64(9)},
        metadata={"label": "Lá", "mpi_size": 4, "ratio": 0.5, "flag": True, "off": False, "modules": ["m1", ""], "none": [],
                  "long": "x" * 100_000, "start_time_ns": 990},
        aux={0: {"attributes": {}, "datasets": {}, "groups": {
            "line_profile": {"attributes": {}, "datasets": {}, "groups": {"0": {
                "attributes": {"region": "a", "filename": "a.py", "function": "f", "first_lineno": 4, "unit": 1e-9},
                "datasets": {"line_numbers": ((2,), int64(4, 5)), "hits": ((2,), int64(1, 2)), "times": ((2,), np.array([0.5, 1.5]))}, "groups": {}}}},
            "perf_events": {"attributes": {}, "datasets": {}, "groups": {"a/b": {
                "attributes": {"calls": 2, "event_names": ["cycles", "é"]},
                "datasets": {"values": ((1,), np.array([2**63 + 1], np.uint64)), "grid": ((2, 1), int64(5, 6)),
                             "labels": ((2, 2), ["a", "b", "c", ""])},
                "groups": {}}}}}}},
    )  # fmt: skip


def contents(profile: _core.Profile) -> dict[str, Any]:
    """All that a profile says, but for what a file adds (statistics, percentiles, sums by path)."""
    return {
        "names": profile.names, "rows": [r[:10] + r[11:12] for r in profile.rows], "threads": profile.threads,
        "tasks": profile.tasks, "metadata": profile.metadata, "aux": profile.aux, "aggregate": profile.aggregate,
        "columns": {n: None if profile.column(n) is None else list(profile.column(n)) for n in COLUMNS},
    }  # fmt: skip


def write_with_h5py(path: Path, *, schema: int = 3, drop: Any = (), replace: Any = (), layout: str | None = "columnar",
                    options: Any = None, text_type: Any = None) -> None:  # fmt: skip
    """A small tracked run as any program with h5py may write it; ``drop`` and ``replace`` make it wrong in one place."""
    options = options or {}
    text_type = text_type or h5py.string_dtype()
    start, duration = int64(100, 110, 130, 150), int64(90, 10, 15, 20)
    datasets: dict[str, Any] = {
        "region_table/names": ["a", "b"],
        "rank_region_index/region_ids": np.array([0, 1], np.uint32),
        "rank_region_index/ranks": np.array([0, 0], np.uint32),
        "rank_region_index/event_offsets": np.array([0, 1], np.uint64),
        "rank_region_index/event_counts": np.array([1, 3], np.uint64),
        "rank_region_index/source_lines": int64(-1, 5),
        "rank_region_index/exclusive_totals": int64(45, 45),
        "rank_region_index/source_files": ["", "b.py"],
        "rank_region_index/source_texts": ["", ""],
        "rank_region_index/tags": ["[]", '["t"]'],
        "rank_region_index/event_metadata": ["[]", '[{"k": 1}, {}, {}]'],
        "rank_region_index/summary_statistics": np.array(
            [(90, 90, 90, 90, 90, 100, 190, 0, 0, 90.0, 0.0), (45, 10, 20, 10, 20, 110, 170, 0, 0, 15.0, 50.0)], STATISTICS),
        "events/call_ids": int64(0, 1, 2, 3),
        "events/parent_ids": int64(-1, 0, 0, 0),
        "events/thread_ids": int64(0, 0, 0, 0),
        "thread_table/ranks": np.array([0], np.uint32), "thread_table/index": int64(0), "thread_table/ident": int64(9),
        "thread_table/native_id": int64(8), "thread_table/daemon": np.array([0], np.int8), "thread_table/start_ns": int64(1),
        "thread_table/end_ns": int64(-1), "thread_table/cpu_ns": int64(2), "thread_table/name": ["MainThread"],
    }  # fmt: skip
    if schema == 3:
        datasets |= {"events/start_deltas": int64(100, 110, 20, 20), "events/durations": duration}
    else:
        datasets |= {"events/start_times": start, "events/end_times": start + duration}
    datasets |= dict(replace)
    with h5py.File(path, "w") as f:
        f.attrs["scope_profiler_schema"] = schema
        if layout is not None:
            f.attrs["storage_layout"] = layout
        f.create_group("metadata").attrs["mpi_size"] = 1
        f.create_group("region_table")
        for name, values in datasets.items():
            if name in drop:
                continue
            if isinstance(values, list):
                encoded = [v.encode() if isinstance(v, str) else v for v in values]
                f.create_dataset(name, data=np.array(encoded, dtype=text_type))
            else:
                f.create_dataset(name, data=values, **(options if name.startswith("events/") else {}))


SMALL_COLUMNS = {"start_ns": [100, 110, 130, 150], "end_ns": [190, 120, 145, 170], "call_ids": [0, 1, 2, 3],
                 "parent_ids": [-1, 0, 0, 0], "thread_ids": [0, 0, 0, 0], "task_ids": None, "await_ns": None, "gpu_ns": None}  # fmt: skip


def columns_of(profile: _core.Profile) -> dict[str, Any]:
    return {n: None if profile.column(n) is None else list(profile.column(n)) for n in COLUMNS}


def read_with_h5py(path: Path) -> dict[str, Any]:
    """The independent reader: everything of schema 3 in plain Python, by the text of docs/file-format.md."""
    with h5py.File(path) as f:
        names = f["region_table/names"].asstr()[:].tolist()
        index = {n: (d.asstr()[:] if h5py.check_string_dtype(d.dtype) else d[:]) for n, d in f["rank_region_index"].items()}
        events = {n: d[:] for n, d in f["events"].items()}
        rows = []
        for i, region in enumerate(index["region_ids"]):
            first, count = int(index["event_offsets"][i]), int(index["event_counts"][i])
            part = slice(first, first + count)
            start = np.cumsum(events["start_deltas"][part])
            rows.append({
                "name": names[region], "rank": int(index["ranks"][i]), "start_ns": start.tolist(),
                "end_ns": (start + events["durations"][part]).tolist(),
                "tags": json.loads(index["tags"][i]), "event_metadata": json.loads(index["event_metadata"][i]),
                "source": (index["source_files"][i], int(index["source_lines"][i]), index["source_texts"][i]),
                "exclusive": int(index["exclusive_totals"][i]),
                **{n: v[part].tolist() for n, v in events.items() if n not in ("start_deltas", "durations")},
            })  # fmt: skip
        return {"rows": rows, "metadata": dict(f["metadata"].attrs)}
