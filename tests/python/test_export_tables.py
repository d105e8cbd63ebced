"""export_csv and export_parquet: a row a call."""

import csv
import gzip
import json

import pandas
import pytest

from export_helpers import int64, region, results_of, task, thread
from scope_profiler import export_csv, export_parquet


def rows_of(run, tmp_path, **options):
    [path] = export_csv(run, tmp_path / "p", verbose=False, **options)
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def full():
    return results_of(
        {"a": {0: region([5100, 5200], [5150, 5260], [0, 1], [-1, 2], call_ids=int64([0, 2]), parent_ids=int64([-1, -1]),
                         await_times=int64([0, 30]), gpu_durations=int64([5, -1]), source_file="é.py", source_lineno=4,
                         event_metadata=[{"k": ["\n", float("nan")]}, {}]),
               1: region([5007], [5009])},
         "b": {0: region([5110], [5120], [0], [-1], call_ids=int64([1]), parent_ids=int64([0]), await_times=int64([0]))}},
        "a run", threads={0: [thread(0, "MainThread"), thread(1, "T")]}, tasks={0: [task(2, "Task-3", "f")]},
        metadata={"start_time_ns": 5000})


EXPECTED = [
    {"region": "a", "rank": 0, "call_index": 0, "start_ns": 100, "end_ns": 150, "duration_ns": 50, "thread": 0,
     "thread_name": "MainThread", "task": None, "task_name": None, "await_ns": 0, "gpu_ns": 5, "source_file": "é.py", "source_line": 4,
     "metadata": {"k": ["\n", None]}},
    {"region": "a", "rank": 0, "call_index": 1, "start_ns": 200, "end_ns": 260, "duration_ns": 60, "thread": 1, "thread_name": "T",
     "task": 2, "task_name": "Task-3", "await_ns": 30, "gpu_ns": None, "source_file": "é.py", "source_line": 4, "metadata": None},
    {"region": "b", "rank": 0, "call_index": 0, "start_ns": 110, "end_ns": 120, "duration_ns": 10, "thread": 0,
     "thread_name": "MainThread", "task": None, "task_name": None, "await_ns": 0, "gpu_ns": None, "source_file": None, "source_line": None,
     "metadata": None},
]
TEXTS = ("region", "thread_name", "task_name", "source_file")


def test_a_line_a_call_with_what_is_known(tmp_path):
    found = []
    for row in rows_of(full(), tmp_path):
        numbers = {key: int(value) if value else None for key, value in row.items() if key not in (*TEXTS, "metadata")}
        texts = {key: row[key] or None for key in TEXTS}
        found.append({**numbers, **texts, "metadata": json.loads(row["metadata"]) if row["metadata"] else None})
    for row in found:
        del row["call_id"], row["parent_id"]
    assert found == EXPECTED


def test_columns_that_no_call_has_are_left_out(tmp_path):
    [row] = rows_of(results_of({"a": {0: region([7], [9])}}), tmp_path)
    assert row == {"region": "a", "rank": "0", "call_index": "0", "start_ns": "0", "end_ns": "2", "duration_ns": "2", "call_id": "0", "parent_id": ""}


NASTY = {
    "=1+1": "'=1+1", "+a": "'+a", "-a": "'-a", "@a": "'@a", "a=1": "a=1", "'=1": "'=1",
    'say "hi", ok': 'say "hi", ok', "line\nbreak\r\ttab": r"line\nbreak\r\ttab", "\x1b[31m\x00"[:-1]: r"\x1b[31m", "back\\slash": r"back\\slash",
    "\x85next": r"\x85next", "\t=1": r"\t=1", "": "", "é😀": "é😀",
}  # fmt: skip


def test_texts_are_taken_for_nothing_else(tmp_path):
    run = results_of({name: {0: region([i], [i + 1], source_file=name or None)} for i, name in enumerate(NASTY)})
    rows = rows_of(run, tmp_path)
    assert [row["region"] for row in rows] == [row["source_file"] for row in rows] == list(NASTY.values())
    [path] = export_csv(run, tmp_path / "q", verbose=False)
    assert len(path.read_bytes().split(b"\n")) == len(NASTY) + 2  # no cell breaks a line
    frame = pandas.read_csv(path, keep_default_na=False)
    assert list(frame["region"]) == list(NASTY.values())


def test_a_compressed_file_is_reproducible(tmp_path):
    [plain] = export_csv(full(), tmp_path / "p.csv", verbose=False)
    [first] = export_csv(full(), tmp_path / "a.csv.gz", verbose=False)
    [second] = export_csv(full(), tmp_path / "b.csv.gz", verbose=False)
    assert first.read_bytes() == second.read_bytes() and gzip.decompress(first.read_bytes()) == plain.read_bytes()


def test_parquet_has_the_same_rows_with_types(tmp_path):
    import pyarrow.parquet as parquet

    [path] = export_parquet(full(), tmp_path / "p", verbose=False)
    table = parquet.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        del row["call_id"], row["parent_id"]
        row["metadata"] = json.loads(row["metadata"]) if row["metadata"] else None
    assert rows == EXPECTED
    assert {str(table.schema.field(name).type) for name in ("rank", "start_ns", "task", "await_ns")} == {"int64"}
    [both] = export_parquet(full(), tmp_path / "q", ranks=[1, 0], verbose=False)
    assert [(row["region"], row["rank"]) for row in parquet.read_table(both).to_pylist()] == [("a", 1), ("a", 0), ("a", 0), ("b", 0)]
    assert [row["region"] for row in parquet.read_table(export_parquet(full(), tmp_path / "r", include="b", verbose=False)[0]).to_pylist()] == ["b"]


def test_parquet_is_written_in_batches(tmp_path, monkeypatch):
    import pyarrow.parquet as parquet

    from scope_profiler import parquet_export

    monkeypatch.setattr(parquet_export, "_BATCH", 3)
    run = results_of({"a": {0: region(range(0, 50, 10), range(5, 55, 10))}, "b": {0: region([2, 12], [3, 13])}})
    [path] = export_parquet(run, tmp_path / "p", verbose=False)
    assert parquet.ParquetFile(path).num_row_groups == 3
    rows = parquet.read_table(path).to_pylist()
    assert [(row["region"], row["call_index"], row["start_ns"]) for row in rows] == [
        ("a", 0, 0), ("a", 1, 10), ("a", 2, 20), ("a", 3, 30), ("a", 4, 40), ("b", 0, 2), ("b", 1, 12)]


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        export_parquet(full(), tmp_path / "p")
