"""export_prof, to_pstats, load_prof: what pstats and its viewers read."""

import io
import marshal
import os

import pytest

from export_helpers import region, results_of
from scope_profiler import EventDataUnavailableError, export_prof, load_prof, read_h5_summary, to_pstats, write_profile

ROOT = ("~", 0, "<run rank 0>")


def stats_of(run, **options):
    [(key, stats)] = to_pstats(run, **options).items()
    assert key == ("run", 0)
    return stats.stats


def at(file, line):
    return {"source_file": file, "source_lineno": line}


def example():
    """main [0, 100] calls step [10, 40] and [50, 60], the first of which calls leaf [20, 25]; leaf [200, 230] on its own."""
    return results_of({
        "main": {0: region([0], [100], **at("m.py", 3))},
        "step": {0: region([10, 50], [40, 60])},
        "leaf": {0: region([20, 200], [25, 230], **at("l.py", 9))},
    })


def test_one_entry_a_path():
    main, step = ("m.py", 3, "main"), ("~", 0, "main > step")
    assert stats_of(example()) == {
        ROOT: (1, 1, 0.0, 1.3e-07, {}),
        main: (1, 1, 6e-08, 1e-07, {ROOT: (1, 1, 6e-08, 1e-07)}),
        step: (2, 2, 3.5e-08, 4e-08, {main: (2, 2, 3.5e-08, 4e-08)}),
        ("l.py", 9, "main > step > leaf"): (1, 1, 5e-09, 5e-09, {step: (1, 1, 5e-09, 5e-09)}),
        ("l.py", 9, "leaf"): (1, 1, 3e-08, 3e-08, {ROOT: (1, 1, 3e-08, 3e-08)}),
    }


def test_one_entry_a_region():
    main, step = ("m.py", 3, "main"), ("~", 0, "step")
    assert stats_of(example(), call_paths=False) == {
        ROOT: (1, 1, 0.0, 1.3e-07, {}),
        main: (1, 1, 6e-08, 1e-07, {ROOT: (1, 1, 6e-08, 1e-07)}),
        step: (2, 2, 3.5e-08, 4e-08, {main: (2, 2, 3.5e-08, 4e-08)}),
        ("l.py", 9, "leaf"): (2, 2, 3.5e-08, 3.5e-08, {step: (1, 1, 5e-09, 5e-09), ROOT: (1, 1, 3e-08, 3e-08)}),
    }


@pytest.mark.parametrize("call_paths", [True, False])
def test_recursion_counts_calls_but_takes_the_time_of_the_outermost(call_paths):
    run = results_of({"rec": {0: region([0, 1, 2, 50], [40, 30, 20, 60])}})
    key = ("~", 0, "rec")
    # own times: 40 - 29, 29 - 18, 18, 10
    assert stats_of(run, call_paths=call_paths)[key] == (
        2, 4, 5e-08, 5e-08, {ROOT: (2, 2, 5e-08, 5e-08), key: (0, 2, 0.0, 0.0)})


def test_mutual_recursion_by_region():
    # a [0, 100] > b [10, 90] > a [20, 80]
    run = results_of({"a": {0: region([0, 20], [100, 80])}, "b": {0: region([10], [90])}})
    a, b = ("~", 0, "a"), ("~", 0, "b")
    stats = stats_of(run, call_paths=False)
    assert stats[a] == (1, 2, 8e-08, 1e-07, {ROOT: (1, 1, 2e-08, 1e-07), b: (0, 1, 6e-08, 0.0)})
    assert stats[b] == (1, 1, 2e-08, 8e-08, {a: (1, 1, 2e-08, 8e-08)})


def test_a_region_may_be_called_what_a_path_is_called():
    run = results_of({"a": {0: region([0], [100])}, "b": {0: region([10], [20])}, "a > b": {0: region([200], [900])}})
    entries = {key[2]: entry[2:4] for key, entry in stats_of(run).items()}
    assert entries.pop("a > b") == (1e-08, 1e-08) and entries.pop("a > b [2]") == (7e-07, 7e-07)


def test_lanes_count_together_and_overlaps_are_not_lost():
    run = results_of({"a": {0: region([0, 5], [10, 15], [0, 1])}, "b": {0: region([6, 8], [7, 20], [1, 0])}})
    stats = stats_of(run)
    assert stats["~", 0, "a"][:4] == (2, 2, 1.9e-08, 2e-08) and stats["~", 0, "a > b"][:4] == (1, 1, 1e-09, 1e-09)
    assert stats["~", 0, "b"][:4] == (1, 1, 1.2e-08, 1.2e-08)  # starts inside a on thread 0 and outlives it


def test_files_are_read_back(tmp_path, capsys):
    [path] = export_prof(example(), tmp_path / "deep" / "p.x.prof")
    assert path == tmp_path / "deep" / "p.x_rank0.prof"
    assert capsys.readouterr().out.startswith(f"Wrote {path}")
    loaded = load_prof(path)
    assert loaded.stats == stats_of(example()) == marshal.loads(path.read_bytes())
    loaded.stream = io.StringIO()
    loaded.sort_stats("cumulative").print_stats()
    assert "main > step > leaf" in loaded.stream.getvalue()


def test_names_of_files(tmp_path):
    two = results_of({"a": {0: region([0], [1]), 1: region([0], [2])}}, "x y")
    names = lambda *args, **options: [path.name for path in export_prof(*args, verbose=False, **options)]
    assert names(two, tmp_path / "p", ranks=[1, 0]) == ["p_rank1.prof", "p_rank0.prof"]
    assert names([two, two], tmp_path / "p.out") == ["p_x_y_rank0.out", "p_x_y_2_rank0.out"]
    assert set(to_pstats([two, two], ranks=[0, 1])) == {("x y", 0), ("x y", 1), ("x y (2)", 0), ("x y (2)", 1)}


def test_nothing_to_export_is_an_error(tmp_path):
    for wrong in ({"ranks": 4}, {"include": "nothing"}):
        with pytest.raises(ValueError):
            export_prof(example(), tmp_path / "p", **wrong)
    with pytest.raises(ValueError):
        export_prof([], tmp_path / "p")
    write_profile(example(), tmp_path / "run.h5")
    with pytest.raises(EventDataUnavailableError):
        export_prof(read_h5_summary(tmp_path / "run.h5"), tmp_path / "p")
    assert os.listdir(tmp_path) == ["run.h5"]
    with pytest.raises(FileNotFoundError):
        load_prof(tmp_path / "none.prof")


def test_regions_left_out_disappear_between_callers_and_calls():
    stats = stats_of(example(), exclude="step")
    assert {key[2] for key in stats} == {"<run rank 0>", "main", "main > leaf", "leaf"}
    assert stats["m.py", 3, "main"][2] == 9.5e-08


def test_deep_recursion_is_one_entry():
    depth = 20_000
    run = results_of({"rec": {0: region(range(depth), range(3 * depth, 2 * depth, -1))}})
    stats = stats_of(run)
    assert len(stats) == 2 and stats["~", 0, "rec"][:2] == (1, depth) and stats["~", 0, "rec"][3] == 3 * depth / 1e9
