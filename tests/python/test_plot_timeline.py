"""Gantt charts, flame charts, flame graphs and densities: what is drawn where, in which colour, against runs made by hand."""

import csv
import json

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export_helpers import int64, results_of, thread
from plot_helpers import legend_texts, nested_run, overlapping_run, spans_of, texts_inside, times, tracked_run, y_texts
from scope_profiler import NestingError, Region, plot_flame_chart, plot_flame_graph, plot_gantt
from scope_profiler.plotting_scripts import plot_timeline_density
from scope_profiler.plotting_scripts._chart import time_unit
from scope_profiler.plotting_scripts._spans import merge_narrow
from scope_profiler.plotting_scripts.timeline import open_intervals

matplotlib.use("Agg")

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"  # by the order of first calls: the first three of the palette


def figure(function, data, **more):
    drawn, axes = function(data, return_fig=True, verbose=False, **more)
    return drawn, axes[:, 0]


def rows(function, tmp_path, data, **more):
    path = tmp_path / "data.csv"
    function(data, data_filepath=path, verbose=False, **more)
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("function", [plot_gantt, plot_flame_chart])
def test_a_legend_that_is_taller_than_the_lanes_has_room(tmp_path, function):
    regions = {f"region {i}": {0: times([(i, i + 1)], thread_ids=int64([0]))} for i in range(30)}
    drawn, (ax,) = figure(function, results_of(regions, threads={0: [thread(0, "MainThread")]}), filepath=tmp_path / "plot.png")
    legend = ax.get_legend().get_window_extent()
    assert legend_texts(ax)[-1] == "and 6 more"
    assert 0 <= legend.y0 and legend.y1 <= drawn.bbox.y1 and ax.get_window_extent().width > drawn.bbox.width / 2


def test_gantt_of_a_tracked_run_has_a_row_for_each_thread_and_task():
    _, (ax,) = figure(plot_gantt, tracked_run())
    assert y_texts(ax) == ["MainThread", "Task-1 (fetch_all) on MainThread", "worker"]
    assert spans_of(ax) == [  # inner calls are less high than outer ones
        (0, 40, -0.43, 0.43, BLUE),
        (5, 25, -0.36, 0.36, ORANGE),
        (2, 60, 0.57, 1.43, GREEN),
        (10, 90, 1.57, 2.43, BLUE),
        (20, 80, 1.64, 2.36, ORANGE),
    ]
    assert legend_texts(ax) == ["step", "read", "fetch"]
    assert texts_inside(ax) == ["fetch", "read", "read", "step", "step"]
    assert [text.get_position()[0] for text in ax.texts if text.get_text() == "step"] == [2.5, 15]  # where nothing covers it
    assert ax.get_xlabel() == "time from the first call [ms]"
    assert ax.get_xlim() == (0, 90)
    low, high = ax.get_ylim()
    assert low > high  # the first row is at the top


def test_gantt_without_lanes_has_a_row_for_each_region_and_rank():
    _, (ax,) = figure(plot_gantt, nested_run(ranks=2))
    assert y_texts(ax) == [
        "rank 0: main", "rank 0: solve", "rank 0: io", "rank 1: main", "rank 1: solve", "rank 1: io",
    ]  # fmt: skip
    assert [span[:2] + span[4:] for span in spans_of(ax)] == [
        (0, 100, BLUE), (10, 40, ORANGE), (50, 70, ORANGE), (20, 30, GREEN), (80, 95, GREEN),
        (0, 90, BLUE), (5, 45, ORANGE), (50, 60, GREEN),
    ]  # fmt: skip
    assert legend_texts(ax) == []  # the rows are named


def test_gantt_draws_calls_that_overlap_without_nesting():
    _, (ax,) = figure(plot_gantt, overlapping_run())
    assert [span[:2] for span in spans_of(ax)] == [(0, 60), (30, 90)]


def test_gantt_shows_a_part_of_the_time(tmp_path):
    run = nested_run()
    _, (ax,) = figure(plot_gantt, run, start_time=0.045, end_time=0.075)
    assert ax.get_xlim() == (45, 75)
    assert [span[:2] for span in spans_of(ax)] == [(0, 100), (50, 70)]
    shown = rows(plot_gantt, tmp_path, run, start_time=0.045, end_time=0.075)
    assert [(row["region"], row["start_seconds"], row["end_seconds"]) for row in shown] == [("main", "0.0", "0.1"), ("solve", "0.05", "0.07")]


def test_gantt_leaves_out_short_and_deep_calls(tmp_path):
    run = nested_run()
    assert [row["region"] for row in rows(plot_gantt, tmp_path, run, min_duration=0.02)] == ["main", "solve", "solve"]
    assert [row["region"] for row in rows(plot_gantt, tmp_path, run, collapse_depth=0)] == ["main"]
    assert [row["depth"] for row in rows(plot_gantt, tmp_path, run, collapse_depth=1)] == ["0", "1", "1", "1"]


def test_depth_counts_callers_that_are_not_shown(tmp_path):
    shown = rows(plot_gantt, tmp_path, nested_run(), include="io", collapse_depth=1)
    assert [(row["region"], row["start_seconds"]) for row in shown] == [("io", "0.08")]  # the other io is inside of main and solve


def test_gantt_puts_calls_of_a_region_together(tmp_path):
    run = results_of({"a": {0: times([(0, 10), (20, 30), (40, 50), (60, 70), (80, 90)])}})
    shown = rows(plot_gantt, tmp_path, run, aggregate_calls=2)
    assert [(float(row["start_seconds"]), float(row["end_seconds"])) for row in shown] == [(0, 0.03), (0.04, 0.07), (0.08, 0.09)]


def test_gantt_puts_calls_together_on_each_lane_for_itself(tmp_path):
    run = results_of(
        {"a": {0: times([(0, 10), (5, 15), (20, 30), (25, 35)], thread_ids=int64([0, 1, 0, 1]))}},
        threads={0: [thread(0, "one"), thread(1, "two")]},
    )
    shown = rows(plot_gantt, tmp_path, run, aggregate_calls=2)
    assert [(row["lane"], float(row["start_seconds"]), float(row["end_seconds"])) for row in shown] == [("one", 0, 0.03), ("two", 0.005, 0.035)]


def test_calls_narrower_than_a_pixel_are_drawn_together_and_counted(capsys):
    tiny = [(50_000 + n, 50_000 + n + 1) for n in range(0, 20, 2)]
    run = results_of({"all": {0: times([(0, 100_000)])}, "tiny": {0: times(tiny)}})
    drawn, axes = plot_gantt(run, return_fig=True)
    note = "10 of 11 calls are narrower than a pixel and drawn together"
    assert note in capsys.readouterr().out
    assert note in drawn.get_supxlabel()
    (drawn_together,) = [span for span in spans_of(axes[0, 0]) if span[4] == ORANGE]
    assert drawn_together[:2] == (50, 50.083333)  # 19 ms of 100 s, as wide as can be seen: 0.008 of 9.6 inches


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1000), st.integers(0, 40)), min_size=1, max_size=60))
def test_merged_spans_cover_what_they_stand_for(calls):
    row, name, start, length = (int64([call[i] for call in calls]) for i in range(4))
    end = start + length
    merged = merge_narrow(row, name, start, end, 0, 1050, bins=50)  # parts of 21
    got = sorted(zip(*(values.tolist() for values in (merged.row, merged.name, merged.start, merged.end))))
    cells, expected, together = {}, [], 0
    for r, n, s, e in zip(row.tolist(), name.tolist(), start.tolist(), end.tolist()):
        if e - s >= 21:
            expected.append((r, n, s, e))
        else:
            cells.setdefault((r, s // 21), []).append((n, s, e))
    for (r, _), members in cells.items():
        spent = {}
        for n, s, e in members:
            spent[n] = spent.get(n, 0) + e - s + 1
        best = min(n for n in spent if spent[n] == max(spent.values()))
        expected.append((r, best, min(s for _, s, _ in members), max(e for _, _, e in members)))
        together += len(members) if len(members) > 1 else 0
    assert got == sorted(expected)
    assert merged.together == together


def test_flame_chart_has_a_band_for_each_lane_with_levels_downwards():
    _, (ax,) = figure(plot_flame_chart, tracked_run())
    assert y_texts(ax) == ["MainThread", "Task-1 (fetch_all) on MainThread", "worker"]
    assert spans_of(ax) == [
        (0, 40, 0.03, 0.97, BLUE),
        (5, 25, 1.03, 1.97, ORANGE),
        (2, 60, 2.43, 3.37, GREEN),
        (10, 90, 3.83, 4.77, BLUE),
        (20, 80, 4.83, 5.77, ORANGE),
    ]
    assert texts_inside(ax) == ["fetch", "read", "read", "step", "step"]


def test_flame_chart_without_lanes_is_by_depth():
    _, (ax,) = figure(plot_flame_chart, nested_run())
    assert ax.get_ylabel() == "call depth"
    assert [(span[0], span[1], int(span[2])) for span in spans_of(ax)] == [(0, 100, 0), (10, 40, 1), (50, 70, 1), (80, 95, 1), (20, 30, 2)]


def test_flame_chart_shows_the_first_rank_or_a_panel_for_each_asked_for():
    run = nested_run(ranks=2)
    _, (ax,) = figure(plot_flame_chart, run)
    assert ax.get_title(loc="left") == "Flame chart of run (rank 0)"
    _, axes = figure(plot_flame_chart, run, ranks=[1, 0])
    assert [ax.get_title(loc="left") for ax in axes] == ["Flame chart of run (rank 0)", "Flame chart of run (rank 1)"]
    assert [span[:2] for span in spans_of(axes[1])] == [(0, 90), (5, 45), (50, 60)]


def test_flame_chart_data_names_callers_and_paths(tmp_path):
    found = rows(plot_flame_chart, tmp_path, nested_run())
    assert [(r["call_id"], r["parent_call_id"], r["call_path"], r["depth"]) for r in found] == [
        ("0", "", "main", "0"), ("1", "0", "main > solve", "1"), ("2", "1", "main > solve > io", "2"),
        ("3", "0", "main > solve", "1"), ("4", "0", "main > io", "1"),
    ]  # fmt: skip
    assert [float(r["exclusive_duration_seconds"]) for r in found] == [0.035, 0.02, 0.01, 0.02, 0.015]


def test_filters_skip_callers_that_are_not_shown(tmp_path):
    found = rows(plot_flame_chart, tmp_path, nested_run(), exclude="solve")
    assert [(r["call_path"], r["parent_call_id"], r["depth"]) for r in found] == [("main", "", "0"), ("main > io", "0", "1"), ("main > io", "0", "1")]


def test_flame_graph_puts_calls_of_a_path_side_by_side_below_their_caller():
    _, (ax,) = figure(plot_flame_graph, nested_run())
    assert [(span[0], span[1], int(span[2]), span[4]) for span in spans_of(ax)] == [
        (0, 100, 0, BLUE),
        (0, 50, 1, ORANGE),  # both calls of solve
        (50, 65, 1, GREEN),  # io below main
        (0, 10, 2, GREEN),  # io below solve
    ]


def test_flame_graph_has_a_band_for_each_lane():
    _, (ax,) = figure(plot_flame_graph, tracked_run())
    assert [(span[0], span[1], span[2]) for span in spans_of(ax)] == [(0, 40, 0.03), (0, 20, 1.03), (0, 58, 2.43), (0, 80, 3.83), (0, 60, 4.83)]


def test_flame_graph_of_calls_that_do_not_nest_says_what_to_do():
    with pytest.raises(NestingError, match="track_threads=True"):
        plot_flame_graph(overlapping_run(), return_fig=True, verbose=False)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_flame_graph_spans_lie_within_their_callers(seed):
    random = np.random.default_rng(seed)
    calls = {name: [] for name in "abc"}

    def fill(begin, end, depth):
        at = begin
        while depth < 5 and at < end - 4 and random.random() < 0.8:
            stop = int(random.integers(at + 2, end))
            calls["abc"[random.integers(3)]].append((at, stop))
            fill(at, stop, depth + 1)
            at = stop + 1

    calls["a"].append((0, 400))
    fill(0, 400, 1)
    run = results_of({name: {0: times(values)} for name, values in calls.items() if values})
    from scope_profiler.plotting_scripts._inputs import chosen_runs
    from scope_profiler.plotting_scripts.flame import _FlameGraph

    graph = _FlameGraph(chosen_runs(run)[0], 0)
    tree, start, end = graph.tree, graph.start, graph.end
    for path, parent in enumerate(tree.parent.tolist()):
        siblings = [p for p in range(len(tree)) if p != path and tree.parent[p] == parent]
        assert all(end[path] <= start[p] or end[p] <= start[path] for p in siblings)
        if parent >= 0:
            assert start[parent] <= start[path] and end[path] <= end[parent]
            assert graph.depth[path] == graph.depth[parent] + 1
        children = [p for p in range(len(tree)) if tree.parent[p] == path]
        assert tree.exclusive[path] == tree.inclusive[path] - sum(tree.inclusive[p] for p in children)


def test_many_lanes_are_limited_to_the_busiest_and_the_rest_is_told(capsys):
    regions = {"a": {0: times([(0, n + 1) for n in range(200)], thread_ids=int64(range(200)))}}
    run = results_of(regions, threads={0: [thread(n, f"t{n}") for n in range(200)]})
    _, axes = plot_gantt(run, return_fig=True)
    assert y_texts(axes[0, 0]) == [f"t{n}" for n in range(140, 200)]
    assert "140 more threads and tasks" in capsys.readouterr().out


def test_deep_recursion_is_cut_and_told(capsys):
    run = results_of({"deep": {0: times([(n, 3000 - n) for n in range(1000)])}})
    _, axes = plot_flame_chart(run, return_fig=True)
    assert len(spans_of(axes[0, 0])) == 100
    assert "levels deeper than those shown are left out" in capsys.readouterr().out


def test_times_are_exact_far_from_the_clocks_zero(tmp_path):
    far = 10**18
    run = results_of({"a": {0: Region(int64([far, far + 3]), int64([far + 1, far + 5]))}})
    found = rows(plot_gantt, tmp_path, run)
    assert [(r["start_seconds"], r["end_seconds"]) for r in found] == [("0.0", "1e-09"), ("3e-09", "5e-09")]


def test_units_follow_the_length_of_the_axis():
    assert [time_unit(s)[1] for s in (3600, 1, 0.5, 2e-4, 3e-8, 0)] == ["s", "s", "ms", "µs", "ns", "s"]
    _, (ax,) = figure(plot_gantt, nested_run(scale=1000))
    assert ax.get_xlabel().endswith("[s]") and ax.get_xlim() == (0, 100)


def test_density_is_the_time_that_regions_were_open(tmp_path):
    found = rows(plot_timeline_density, tmp_path, nested_run(ranks=2), bins=10)
    table = {name: [float(r["occupied_seconds"]) for r in found if r["region"] == name] for name in ("main", "solve", "io")}
    assert table["main"] == pytest.approx([0.02] * 9 + [0.01])
    assert table["solve"] == pytest.approx([0.005, 0.02, 0.02, 0.02, 0.005, 0.01, 0.01, 0, 0, 0])
    assert table["io"] == pytest.approx([0, 0, 0.01, 0, 0, 0.01, 0, 0, 0.01, 0.005])


def test_density_of_a_recursive_region_counts_once():
    starts, ends = open_intervals(int64([0, 0, 0, 1, 0]), int64([0, 10, 20, 5, 60]), int64([50, 40, 30, 55, 70]))
    assert sorted(zip(starts.tolist(), ends.tolist())) == [(0, 50), (5, 55), (60, 70)]


def test_density_panel_is_a_map_with_a_row_a_region():
    _, (ax,) = figure(plot_timeline_density, nested_run(), bins=20)
    (mesh,) = [c for c in ax.collections if hasattr(c, "get_array") and c.get_array() is not None and c.get_array().size == 60]
    assert np.asarray(mesh.get_array()).reshape(3, 20)[1].tolist() == pytest.approx([0] * 2 + [1] * 6 + [0] * 2 + [1] * 4 + [0] * 6)
    assert y_texts(ax) == ["main", "solve", "io"]


def test_json_data_has_colours_and_the_exact_calls(tmp_path):
    path = tmp_path / "gantt.json"
    plot_gantt(tracked_run(), data_filepath=path, data_format="json", verbose=False)
    document = json.loads(path.read_text())
    assert document["format"] == "scope-profiler-plot-data" and document["plot"] == "gantt"
    assert document["colors"] == {"step": BLUE, "fetch": GREEN, "read": ORANGE}
    first = {"file": "tracked", "rank": 0, "region": "step", "start_seconds": 0.0, "end_seconds": 0.04, "depth": 0, "lane": "MainThread"}
    assert document["intervals"][0] == first


@pytest.mark.parametrize("bad", [{"start_time": 1.0, "end_time": 0.5}, {"aggregate_calls": 0}, {"min_duration": 1.0}, {"ranks": 3}])
def test_nothing_to_draw_or_a_senseless_argument_is_an_error(bad):
    with pytest.raises(ValueError):
        plot_gantt(nested_run(), return_fig=True, verbose=False, **bad)


def test_a_region_has_its_colour_in_every_plot_and_with_every_filter():
    run = nested_run()
    seen = set()
    for function in (plot_gantt, plot_flame_chart, plot_flame_graph):
        for include in (None, "io", ["io", "solve"]):
            _, (ax,) = figure(function, run, include=include)
            seen |= {span[4] for span in spans_of(ax) if include == "io"}
            assert BLUE not in {span[4] for span in spans_of(ax)} or include is None
    assert seen == {GREEN}


def test_a_colormap_by_name_is_used_and_an_unknown_one_refused():
    _, (ax,) = figure(plot_gantt, nested_run(), cmap="tab20")
    assert spans_of(ax)[0][4] == "#1F77B4"
    with pytest.raises(ValueError, match="no colormap 'nothing'"):
        figure(plot_gantt, nested_run(), cmap="nothing")


def test_times_use_the_first_call_of_the_run_whatever_is_shown(tmp_path):
    found = rows(plot_gantt, tmp_path, nested_run(), include="io")
    assert [float(r["start_seconds"]) for r in found] == [0.02, 0.08]
