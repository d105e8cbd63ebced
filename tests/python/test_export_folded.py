"""export_folded: lines that flame graph tools sum up."""

import gzip

import pytest

from export_helpers import region, results_of, task, thread
from scope_profiler import export_folded


def lines(run, tmp_path, **options):
    [path] = export_folded(run, tmp_path / "p", verbose=False, **options)
    return path.read_text(encoding="utf-8").splitlines()


def test_a_line_a_path_with_its_exclusive_ns(tmp_path):
    # main [0, 100] calls step [10, 40] and [50, 60], the first of which calls leaf [20, 25]; leaf [200, 230] on its own
    run = results_of({"main": {0: region([0], [100])}, "step": {0: region([10, 50], [40, 60])}, "leaf": {0: region([20, 200], [25, 230])}})
    assert sorted(lines(run, tmp_path)) == ["leaf 30", "main 60", "main;step 35", "main;step;leaf 5"]
    assert sorted(lines(run, tmp_path, exclude="step")) == ["leaf 30", "main 95", "main;leaf 5"]


def test_paths_without_time_of_their_own_are_left_out(tmp_path):
    run = results_of({"a": {0: region([0], [10])}, "b": {0: region([0, 20], [10, 20])}})
    assert lines(run, tmp_path) == ["a;b 10"]


def test_recursion_is_one_frame(tmp_path):
    assert lines(results_of({"r": {0: region([0, 1, 2], [40, 30, 20])}}), tmp_path) == ["r 40"]


def test_names_cannot_break_the_format(tmp_path):
    names = ["a;b", "new\nline 9", "", "tab\t\x1b[31m\x7f", "spaced name", "é;"]
    run = results_of({name: {0: region([10 * i], [10 * i + i + 1])} for i, name in enumerate(names)})
    assert lines(run, tmp_path) == ["a:b 1", "new line 9 2", "- 3", "tab  [31m  4", "spaced name 5", "é: 6"]


def test_lanes_and_ranks_are_frames_when_there_are_several(tmp_path):
    run = results_of(
        {"a": {0: region([0, 20, 5], [10, 30, 9], [0, 0, 1], [-1, 3, -1]), 1: region([7], [9], [0], [-1])}},
        threads={0: [thread(0, "Main;Thread"), thread(1, "w")], 1: [thread(0, "T", rank=1)]}, tasks={0: [task(3, "Task-4", "m.f")]})
    assert lines(run, tmp_path) == ["a 24"]
    assert sorted(lines(run, tmp_path, by_lane=True)) == ["Main:Thread;a 10", "Task-4 (f) on Main:Thread;a 10", "w;a 4"]
    assert sorted(lines(run, tmp_path, ranks=[0, 1])) == ["rank 0;a 24", "rank 1;a 2"]
    assert sorted(lines(run, tmp_path, ranks=[1, 0], by_lane=True))[-1] == "rank 1;T;a 2"
    assert lines(results_of({"a": {0: region([0], [3])}}), tmp_path, by_lane=True) == ["a 3"]


def test_a_compressed_file_is_reproducible(tmp_path):
    run = results_of({"a": {0: region([0], [10])}})
    [first] = export_folded(run, tmp_path / "a.folded.gz", verbose=False)
    [second] = export_folded(run, tmp_path / "b.folded.gz", verbose=False)
    assert first.read_bytes() == second.read_bytes() and gzip.decompress(first.read_bytes()) == b"a 10\n"


@pytest.mark.parametrize("by_lane", [False, True])
def test_deep_paths_of_two_regions(tmp_path, by_lane):
    depth = 2000  # a > b > a > b ...
    run = results_of({"a": {0: region(range(0, depth, 2), range(3 * depth, 2 * depth, -2))},
                      "b": {0: region(range(1, depth, 2), range(3 * depth - 1, 2 * depth - 1, -2))}})
    found = lines(run, tmp_path, by_lane=by_lane)
    assert len(found) == depth and sum(int(line.rpartition(" ")[2]) for line in found) == 3 * depth
