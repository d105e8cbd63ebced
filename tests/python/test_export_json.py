"""export_json and read_json: a run goes to JSON and comes back."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

import scope_profiler as sp
from export_helpers import int64, region, results_of, strict_json, task, thread
from scope_profiler import PerfEventTotals, ProfileManager, load, read_h5_summary, read_profile, write_profile
from scope_profiler.json_export import JSONProfileError, export_json, read_json, write_json


def full():
    return results_of(
        {"a": {0: region([100, 200], [150, 260], [0, 1], [-1, 2], call_ids=int64([0, 2]), parent_ids=int64([-1, -1]),
                         await_times=int64([0, 30]), gpu_durations=int64([5, -1]), source_file="é.py", source_lineno=4,
                         source_text="with a:", tags=("t", "u"), event_metadata=[{"k": [1, float("nan")]}, {}]),
               1: region([7], [9])},
         "b": {0: region([110], [120], [0], [-1], call_ids=int64([1]), parent_ids=int64([0]), await_times=int64([0]))}},
        "a run", threads={0: [thread(0, "MainThread"), thread(1, "T")]}, tasks={0: [task(2, "Task-3", "f")]},
        metadata={"start_time_ns": 50, "bad": float("inf"), "numbers": np.int64(3)},
        perf_events={0: {"a": PerfEventTotals(2, {"cycles": 9})}})


COLUMNS = "start_times_ns end_times_ns gpu_durations_ns call_ids parent_ids thread_ids task_ids await_times_ns exclusive_durations_ns".split()


def contents(results):
    regions = {}
    for one in results:
        for rank in one.ranks:
            values = {name: getattr(one[rank], name) for name in COLUMNS}
            regions[one.name, rank] = (
                {name: None if v is None else v.tolist() for name, v in values.items()}, one[rank].source_file,
                one[rank].source_lineno, one[rank].source_text, one[rank].tags, one[rank].exclusive_duration)
    tables = [[{key: getattr(row, key) for key in ("index", "name", "rank")} for row in rows]
              for table in (results.threads, results.tasks) for rows in table.values()]
    return regions, tables, results.num_ranks, results.label, {r: {n: p.values for n, p in e.items()} for r, e in results.get_perf_events().items()}


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_a_run_comes_back_whole(tmp_path, name):
    [path] = export_json(full(), tmp_path / "new" / name, verbose=False)
    back = read_json(path)
    assert contents(back) == contents(full())
    assert back["a"][0].event_metadata == ({"k": [1, None]}, {}) and back["a"][1].event_metadata in ((), ({},))
    assert back.metadata["start_time_ns"] == 50 and back.metadata["bad"] is None and back.metadata["numbers"] == 3
    assert back.tasks[0][0].awaiting_time == 4e-09 and back.threads[0][1].cpu_time == 7e-09


def test_the_document(tmp_path):
    [path] = export_json(results_of({"a": {0: region([5], [8])}}, "x"), tmp_path / "p", verbose=False)
    assert path.name == "p.json" and path.read_text().count("\n") == 1
    document = strict_json(path)
    assert document.pop("exporter").startswith("scope-profiler@")
    assert document == {
        "format": "scope-profiler-profile", "format_version": 1, "time_unit": "nanoseconds", "num_ranks": 1,
        "event_data_available": True, "metadata": {"label": "x"},
        "regions": [{"name": "a", "rank": 0, "start_times_ns": [5], "end_times_ns": [8]}]}
    [path] = export_json(full(), tmp_path / "q.json", indent=1, verbose=False)
    assert len(path.read_text().splitlines()) > 50 and strict_json(path)["num_ranks"] == 2


def test_ranks_regions_and_names_of_files(tmp_path, capsys):
    [path] = export_json(full(), tmp_path / "p", ranks=1)
    assert capsys.readouterr().out == f"Wrote {path}\n"
    assert [(row["name"], row["rank"]) for row in strict_json(path)["regions"]] == [("a", 1)] and "threads" not in strict_json(path)
    assert [row["name"] for row in strict_json(write_json(full(), tmp_path / "q.json", include="b"))["regions"]] == ["b"]
    names = [path.name for path in export_json([full(), full()], tmp_path / "p.x", verbose=False)]
    assert names == ["p_a_run.x", "p_a_run_2.x"]
    with pytest.raises(ValueError):
        export_json([], tmp_path / "p")


def test_a_summary_keeps_its_sums(tmp_path):
    write_profile(full(), tmp_path / "run.h5")
    summary = read_h5_summary(tmp_path / "run.h5")
    [path] = export_json(summary, tmp_path / "s.json", verbose=False)
    back = read_json(path)
    assert not back.has_event_data and not back["a"][0].has_event_data
    assert (back["a"].num_calls, back["a"].total_duration, back["b"].exclusive_duration) == (3, 1.12e-07, 1e-08)


def test_a_recorded_run_with_its_overlap(tmp_path):
    with ProfileManager.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        with ProfileManager.region("outer", tags=["x"]), ProfileManager.metadata(k=1), ProfileManager.region("inner"):
            pass
    [path] = export_json(run.results, tmp_path / "p", verbose=False)
    assert contents(read_json(path))[0] == contents(run.results)[0]


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_session_writes_json_by_the_name_of_its_output(tmp_path, name):
    output = tmp_path / name
    with ProfileManager.session(output=output, verbose=False, return_results=True, track_threads=True) as run:
        with ProfileManager.region("a"), ProfileManager.region("b"):
            pass
    assert strict_json(output)["format"] == "scope-profiler-profile"
    for back in (load(output), read_profile(output)):
        assert contents(back)[0] == contents(run.results)[0] and back.threads[0][0].name == "MainThread"
    copy = write_profile(load(output), tmp_path / f"copy.{name}")
    assert contents(load(copy))[0] == contents(run.results)[0]


def test_a_json_profile_is_known_by_its_content(tmp_path):
    write_json(full(), tmp_path / "p.json")
    (tmp_path / "p.json").rename(tmp_path / "p.data")
    assert contents(load(tmp_path / "p.data")) == contents(full())


@pytest.mark.parametrize(("text", "error", "says"), [
    ('{"format":"x"}', JSONProfileError, "not a profile"),
    ("[]", JSONProfileError, "not a profile"),
    ('{"format":"scope-profiler-profile","format_version":9}', JSONProfileError, "version 9"),
    ('{"format":"scope-profiler-profile","format_version":1,"regions":[{"name":"a"}]}', JSONProfileError, "rank"),
    ('{"format":"scope-profiler-profile","format_version":1,"regions":3}', JSONProfileError, "damaged"),
    ("{", json.JSONDecodeError, "Expecting"),
])
def test_what_is_no_profile_is_refused(tmp_path, text, error, says):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(error, match=says):
        read_json(path)
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(error):
        read_json(path)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


SURROGATES = {"path": "caf\udce9", "k\udce9": ["caf\udce9", {"\udcff": "\\\udce9"}], "whole": "\U0001f600é"}


@pytest.mark.parametrize("source", ["memory", "file", "json"])
@pytest.mark.parametrize("write", [sp.write_json, sp.export_json, sp.write_profile])
def test_names_of_files_that_are_no_text_go_both_ways_in_metadata(tmp_path, source, write):
    stored, out, again = tmp_path / "run.h5", tmp_path / "out.json", tmp_path / "again.h5"
    with sp.session(output=stored, verbose=False, return_results=True) as run:
        with sp.metadata(**SURROGATES), sp.region("x"):
            pass
        with sp.region("x"):
            pass
    results = run.results if source == "memory" else sp.load(stored)
    if source == "json":
        results = sp.load(sp.write_json(results, tmp_path / "first.json", indent=1))
    write(results, out)
    out.read_bytes().decode("utf-8")  # no surrogate is written as one
    read = sp.load(out)
    assert read["x"][0].event_metadata == (SURROGATES, {})
    assert sp.load(sp.write_profile(read, again))["x"][0].event_metadata == (SURROGATES, {})


def test_the_command_exports_and_converts_surrogates_alike(tmp_path):
    stored, direct, exported = (tmp_path / name for name in ("run.h5", "direct.json", "exported.json"))
    for output in (stored, direct):
        with sp.session(output=output, verbose=False):
            with sp.metadata(**SURROGATES), sp.region("x"):
                pass
    command = [sys.executable, "-m", "scope_profiler", "export", str(stored), "-o", str(exported)]
    subprocess.run(command, check=True, timeout=60)
    for path in (direct, exported):
        assert json.loads(path.read_bytes())["regions"][1]["event_metadata"] == [SURROGATES]


def test_a_table_of_calls_has_surrogates_escaped(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with sp.session(output=None, verbose=False, return_results=True) as run:
        with sp.metadata(**SURROGATES), sp.region("x"):
            pass
    sp.export_parquet(run.results, tmp_path / "calls.parquet", verbose=False)
    texts = parquet.read_table(tmp_path / "calls.parquet").column("metadata").to_pylist()
    assert [json.loads(text) for text in texts if text] == [SURROGATES]
