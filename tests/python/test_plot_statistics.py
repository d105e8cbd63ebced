"""Plots of statistics and call graphs: bar heights, lines, cells and the numbers behind them; names, colours, backends, errors."""

import csv
import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

import scope_profiler
from export_helpers import int64, results_of
from plot_helpers import legend_texts, nested_run, overlapping_run, times, tracked_run, x_texts, y_texts
from scope_profiler import LikwidRegionResult, PerfEventTotals, ProfilingResults, plotting_scripts
from scope_profiler.plotting_scripts import (
    available_likwid_metrics,
    available_perf_event_metrics,
    callgraph_dot,
    collect_region_statistics,
    collect_roofline_points,
    plot_callgraph,
    plot_duration_histogram,
    plot_duration_timeseries,
    plot_durations,
    plot_gantt,
    plot_imbalance,
    plot_likwid,
    plot_perf_events,
    plot_rank_heatmap,
    plot_roofline,
    plot_scaling_efficiency,
    plot_speedup,
    plot_weak_scaling,
    plot_weak_scaling_efficiency,
    write_region_statistics_json,
)
from scope_profiler.plotting_scripts._colors import PALETTE, named_colors, text_on

matplotlib.use("Agg")

STRANGE = ["a $x^2$ b", "_hidden", 'quote " and \\n \\', "two\nlines", "<b>&amp;</b>", "\x1b[31mred", "名前 🎉", "%s {0}"]


def figure(function, data, *arguments, **more):
    drawn, axes = function(data, *arguments, return_fig=True, verbose=False, **more)
    return drawn, axes[:, 0]


def rows(function, tmp_path, data, **more):
    path = tmp_path / "data.csv"
    function(data, data_filepath=path, verbose=False, **more)
    with path.open() as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def bars(ax):
    return [[round(patch.get_height(), 6) for patch in container] for container in ax.containers]


def strange_run():
    return results_of({name: {0: times([(n, 100 - n)])} for n, name in enumerate(STRANGE)}, "label $1$ \n")


def counted_run():
    counters = LikwidRegionResult(
        "solve", 1, "MEM_DP", [0, 1], np.array([1.0, 2.0]), np.array([1, 1]), ["E"], ["PMC0"], np.array([[1.0, 2.0]]),
        ["DP [MFLOP/s]", "Memory bandwidth [MBytes/s]", "CPI"], np.array([[1000.0, 2000.0], [500.0, 500.0], [1.0, 2.0]]),
    )  # fmt: skip
    totals = PerfEventTotals(2, {"cycles": 100, "instructions": 300, "cache-misses": 3})
    plain = nested_run(ranks=2)
    return ProfilingResults(
        {region.name: region for region in plain}, plain.metadata, 2, likwid={0: {"solve": counters}}, perf_events={0: {"solve": totals}}
    )


# -- durations -----------------------------------------------------------------------------------------------------------


def test_durations_are_bars_by_region():
    _, (ax,) = figure(plot_durations, nested_run(ranks=2))
    assert bars(ax) == [[190, 90, 35]]
    assert x_texts(ax) == ["main", "solve", "io"]
    assert ax.get_ylabel() == "total duration [ms]"


def test_durations_of_several_runs_stand_side_by_side():
    _, (ax,) = figure(plot_durations, [nested_run(), nested_run(ranks=2, label="larger")], labels=["A", "B"])
    assert bars(ax) == [[100, 50, 25], [190, 90, 35]]
    assert legend_texts(ax) == ["A", "B"]
    assert [patch.get_x() + patch.get_width() / 2 for patch in ax.containers[1]] == pytest.approx([0.2, 1.2, 2.2])


def test_durations_of_a_tracked_run_are_by_thread(tmp_path):
    _, (ax,) = figure(plot_durations, tracked_run())
    assert legend_texts(ax) == ["MainThread", "worker"]
    assert x_texts(ax) == ["step", "fetch", "read"]
    assert bars(ax) == [[40, 58, 20], [80, 0, 60]]
    assert rows(plot_durations, tmp_path, tracked_run())[0] == ("tracked", "step", "total", "0.04", "MainThread")


@pytest.mark.parametrize(
    ("metric", "heights"),
    [("avg", [95, 30, 11.666667]), ("min", [90, 20, 10]), ("max", [100, 40, 15]), ("first", [100, 40, 10]), ("last", [100, 20, 15])],
)
def test_metrics_of_durations(metric, heights):
    _, (ax,) = figure(plot_durations, nested_run(ranks=2), metric=metric)
    assert bars(ax) == [heights]


def test_durations_sorted_limited_and_combined(tmp_path):
    run = nested_run()
    assert [row[1] for row in rows(plot_durations, tmp_path, run, sort_by="name")] == ["io", "main", "solve"]
    assert [row[1] for row in rows(plot_durations, tmp_path, run, sort_by="min")] == ["main", "solve", "io"]
    assert [row[1] for row in rows(plot_durations, tmp_path, run, sort_by="total", top_n=2)] == ["main", "solve"]
    assert rows(plot_durations, tmp_path, run, metric="avg", combine_regions={"parts": ["so", "io"]}) == [
        ("run", "main", "avg", "0.1"), ("run", "parts", "avg", "0.01875"),
    ]  # fmt: skip


def test_durations_stacked_by_what_is_called(tmp_path):
    run = nested_run()
    _, (ax,) = figure(plot_durations, run, stack_children=True)
    assert legend_texts(ax) == ["own time", "solve", "io"]
    assert bars(ax) == [[35, 40, 25], [50, 0, 0], [15, 10, 0]]
    bottoms = [[round(patch.get_y(), 6) for patch in container] for container in ax.containers]
    assert bottoms == [[0, 0, 0], [35, 40, 25], [85, 40, 25]]
    assert ("run", "solve", "total", "io", "0.01") in rows(plot_durations, tmp_path, run, stack_children=True)


def test_several_metrics_become_several_files(tmp_path):
    written = plot_durations(nested_run(), metrics=["avg", "max"], filepath=tmp_path / "new" / "d.png", verbose=False)
    assert written == [str(tmp_path / "new" / "d_avg.png"), str(tmp_path / "new" / "d_max.png")]
    for path in written:
        with open(path, "rb") as file:
            assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    drawn = plot_durations(nested_run(), metrics=["avg", "max"], return_fig=True, verbose=False)
    assert [axes[0, 0].get_ylabel() for _, axes in drawn] == ["average duration of a call [ms]", "longest call [ms]"]


# -- over time, ranks, runs ------------------------------------------------------------------------------------------------


def test_timeseries_averages_the_ranks_of_a_call(tmp_path):
    assert rows(plot_duration_timeseries, tmp_path, nested_run(ranks=2), include="solve") == [
        ("run", "solve", "0", "0.0075", "0.035", "0.03", "0.04", "2"), ("run", "solve", "1", "0.05", "0.02", "0.02", "0.02", "1"),
    ]  # fmt: skip
    _, (ax,) = figure(plot_duration_timeseries, nested_run(ranks=2), include="solve")
    (line,) = ax.lines
    assert np.column_stack(line.get_data()).tolist() == [[7.5, 35], [50, 20]]
    assert legend_texts(ax) == ["solve"]


def test_timeseries_of_a_tracked_run_has_a_panel_for_each_thread(tmp_path):
    _, axes = figure(plot_duration_timeseries, tracked_run())
    assert [ax.get_title(loc="left") for ax in axes] == [
        "Duration of calls over time in tracked: MainThread", "Duration of calls over time in tracked: worker",
    ]  # fmt: skip
    assert [[line.get_ydata().tolist() for line in ax.lines] for ax in axes] == [[[40], [58], [20]], [[80], [60]]]
    assert {row[-1] for row in rows(plot_duration_timeseries, tmp_path, tracked_run())} == {"MainThread", "worker"}


def test_many_calls_become_averages_within_a_band():
    count = 10_000
    run = results_of({"a": {0: times([(10 * n, 10 * n + 1 + n % 2) for n in range(count)])}})
    _, (ax,) = figure(plot_duration_timeseries, run)
    (line,) = ax.lines
    assert len(line.get_xdata()) <= 2000
    assert set(np.round(line.get_ydata(), 3)) <= {1.4, 1.5, 1.6, 1.333, 1.667, 2.0, 1.0}
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1, 2)


def test_histogram_counts_calls_by_duration(tmp_path):
    found = rows(plot_duration_histogram, tmp_path, nested_run(ranks=2), bins=3)
    assert [int(row[-1]) for row in found] == [0, 0, 2, 2, 1, 0, 3, 0, 0]
    assert [float(row[2]) for row in found[:3]] == pytest.approx([0.01, 0.04, 0.07])
    _, (ax,) = figure(plot_duration_histogram, nested_run(ranks=2), bins=3, log_scale=True)
    assert ax.get_yscale() == "log"
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0, 0, 2, 2], [2, 1, 0, 0], [3, 0, 0, 0]]


def test_imbalance_shows_each_rank_and_the_mean(tmp_path):
    assert rows(plot_imbalance, tmp_path, nested_run(ranks=2), include="solve") == [
        ("run", "solve", "0", "0.05", "0.045"), ("run", "solve", "1", "0.04", "0.045"),
    ]  # fmt: skip
    _, (ax,) = figure(plot_imbalance, nested_run(ranks=2), "avg")
    assert bars(ax) == [[100, 25, 12.5], [90, 40, 10]]
    assert [line.get_ydata()[0] for line in ax.lines] == pytest.approx([95, 32.5, 11.25])
    assert legend_texts(ax) == ["rank 0", "rank 1", "mean of the ranks"]


def test_heat_map_is_a_table_of_ranks_and_regions():
    for exclusive, cells in ((False, [[100, 50, 25], [90, 40, 10]]), (True, [[35, 40, 25], [40, 40, 10]])):
        _, (ax,) = figure(plot_rank_heatmap, nested_run(ranks=2), exclusive=exclusive)
        (mesh,) = [c for c in ax.collections if c.get_array() is not None]
        assert np.asarray(mesh.get_array()).reshape(2, 3) == pytest.approx(np.array(cells, float))
        assert (x_texts(ax), y_texts(ax)) == (["main", "solve", "io"], ["0", "1"])
        assert [text.get_text() for text in ax.texts] == [str(cell) for row in cells for cell in row]


def test_heat_map_leaves_empty_what_a_rank_does_not_have():
    run = results_of({"a": {0: times([(0, 10)]), 1: times([(0, 5)])}, "b": {1: times([(1, 3)])}})
    _, (ax,) = figure(plot_rank_heatmap, run)
    (mesh,) = [c for c in ax.collections if c.get_array() is not None]
    assert np.ma.getmaskarray(mesh.get_array()).reshape(2, 2).tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    ("function", "column"),
    [(plot_speedup, 100 / 95), (plot_weak_scaling, 0.95), (plot_weak_scaling_efficiency, 100 / 95), (plot_scaling_efficiency, 50 / 95)],
)
def test_scaling_over_runs(function, column, tmp_path):
    runs = [nested_run(ranks=2, label="two"), nested_run(label="one")]  # in any order
    found = rows(function, tmp_path, runs)
    assert [(row[0], row[1]) for row in found[:2]] == [("main", "1"), ("main", "2")]
    assert [float(row[2]) for row in found[:2]] == pytest.approx([1, column])
    _, (ax,) = figure(function, runs, x_field="total_cores")
    assert legend_texts(ax) == ["ideal", "main", "solve", "io"]
    assert ax.lines[1].get_xdata().tolist() == [4, 8]
    assert x_texts(ax) == ["4", "8"]


def test_scaling_needs_several_runs_and_a_number_that_all_have():
    with pytest.raises(ValueError, match="two profiles"):
        plot_speedup(nested_run(), return_fig=True, verbose=False)
    with pytest.raises(ValueError, match="no 'nothing' in its metadata"):
        plot_speedup([nested_run(), nested_run(ranks=2)], x_field="nothing", return_fig=True, verbose=False)
    with pytest.raises(ValueError, match="not a number above 0"):
        plot_speedup([nested_run(), nested_run(ranks=2)], x_field="label", return_fig=True, verbose=False)
    with pytest.raises(ValueError, match="same work per rank"):
        plot_weak_scaling_efficiency([nested_run(), nested_run(ranks=2)], work_per_rank=[1, 2], return_fig=True, verbose=False)


# -- counters ---------------------------------------------------------------------------------------------------------------


def test_counters_are_bars_by_region(tmp_path):
    run = counted_run()
    assert available_likwid_metrics(run) == ["DP [MFLOP/s]", "Memory bandwidth [MBytes/s]", "CPI", "E"]
    assert available_perf_event_metrics(run) == ["ipc", "cache-misses-per-ki", "cache-misses", "cycles", "instructions"]
    _, (ax,) = figure(plot_likwid, run, "CPI")
    assert bars(ax) == [[1.5]]
    _, (ax,) = figure(plot_perf_events, run)
    assert (bars(ax), x_texts(ax)) == ([[3.0]], ["solve"])
    assert rows(plot_perf_events, tmp_path, run, metric="cache-misses-per-ki") == [("rank 0", "solve", "10.0")]


def test_counters_that_are_not_there_are_an_error():
    with pytest.raises(ValueError, match="no metric 'x'; there are ipc"):
        plot_perf_events(counted_run(), "x", return_fig=True, verbose=False)
    with pytest.raises(ValueError, match=r"perf_events=\[\.\.\.\]"):
        plot_perf_events(nested_run(), return_fig=True, verbose=False)
    with pytest.raises(ValueError, match="use_likwid=True"):
        plot_likwid(nested_run(), "CPI", return_fig=True, verbose=False)
    with pytest.raises(ValueError, match="FLOP rate"):
        plot_roofline(nested_run(), verbose=False)


def test_roofline_points_and_roof(tmp_path):
    (point,) = collect_roofline_points(counted_run())
    assert (point["performance_gflops"], point["bandwidth_gbs"], point["arithmetic_intensity_flops_per_byte"]) == (3, 1, 3)
    told = plot_roofline(counted_run(), peak_flops=8, peak_bandwidth=2, filepath=tmp_path / "r.svg", verbose=False)
    assert told["empirical_ceilings"] is False
    assert all(
        p["performance_gflops"] == pytest.approx(min(8, 2 * p["arithmetic_intensity_flops_per_byte"])) for p in told["roofline"]
    )
    assert "8 GFLOP/s" in (tmp_path / "r.svg").read_text()


# -- call graphs ------------------------------------------------------------------------------------------------------------


def drawn_by_graphviz(text):
    """The texts of the nodes that dot draws, by node."""
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    svg = ET.fromstring(done.stdout)
    space = {"s": "http://www.w3.org/2000/svg"}
    assert done.stderr == ""
    return [
        [text.text for text in group.findall("s:text", space)]
        for group in svg.iterfind(".//s:g[@class='node']", space)
    ]  # fmt: skip


def test_graphviz_draws_the_call_graph():
    nodes = drawn_by_graphviz(callgraph_dot(nested_run()))
    assert nodes == [
        ["main", "100 ms, own 35 ms"], ["solve", "2 calls, 50 ms", "own 40 ms"], ["io", "2 calls, 25 ms", "own 25 ms"],
    ]  # fmt: skip
    text = callgraph_dot(nested_run())
    assert text.count("->") == 3 and 'n0 -> n1 [label="2x, 50 ms"' in text


def test_graphviz_shows_names_as_they_are():
    nodes = drawn_by_graphviz(callgraph_dot(strange_run()))
    assert [node[0].replace("\xa0", " ") for node in nodes] == [
        "a $x^2$ b", "_hidden", 'quote " and \\n \\', "two\\nlines", "<b>&amp;</b>", "\\x1b[31mred", "名前 🎉", "%s {0}",
    ]  # fmt: skip


def test_a_call_graph_file_for_graphviz_needs_no_plot_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    plot_callgraph(nested_run(), filepath=tmp_path / "new" / "g.dot", verbose=False)
    assert [node[0] for node in drawn_by_graphviz((tmp_path / "new" / "g.dot").read_text())] == ["main", "solve", "io", "io"]


def test_call_graph_picture_has_a_box_for_each_node():
    _, ax = plot_callgraph(nested_run(), compact=True, return_fig=True, verbose=False)
    boxes = {text.get_text().split("\n")[0]: text.get_position() for text in ax.texts if "own" in text.get_text()}
    assert {name: position[1] for name, position in boxes.items()} == {"main": 0, "solve": 1, "io": 2}
    _, ax = plot_callgraph(nested_run(), return_fig=True, verbose=False)
    assert sorted(t.get_text().split("\n")[0] for t in ax.texts if "own" in t.get_text()) == ["io", "io", "main", "solve"]
    _, ax = plot_callgraph(nested_run(), return_fig=True, verbose=False, every_call=True)
    assert sorted(t.get_text().split("\n")[0] for t in ax.texts if "own" in t.get_text()) == ["io", "io", "main", "solve", "solve"]


def test_call_graph_of_many_calls_is_by_path(capsys):
    calls = [(10 * n, 10 * n + 8) for n in range(300)]
    run = results_of({"outer": {0: times(calls)}, "inner": {0: times([(a + 1, b - 1) for a, b in calls])}})
    _, ax = plot_callgraph(run, return_fig=True, every_call=True)
    assert "600 calls are drawn as 2 call paths" in capsys.readouterr().out
    assert [t.get_text().split("\n")[1] for t in ax.texts if "own" in t.get_text()] == ["300 calls, 2.4 s", "300 calls, 1.8 s"]


def test_call_graph_rows(tmp_path):
    assert rows(plot_callgraph, tmp_path, nested_run()) == [
        ("0", "", "main", "0"), ("1", "0", "solve", "1"), ("2", "1", "io", "2"), ("3", "0", "solve", "1"), ("4", "0", "io", "1"),
    ]  # fmt: skip
    compact = rows(plot_callgraph, tmp_path, nested_run(), compact=True)
    assert sorted(compact) == [("main", "io", "1", "0.015"), ("main", "solve", "2", "0.05"), ("solve", "io", "1", "0.01")]


def test_call_graph_errors():
    with pytest.raises(ValueError, match="one profile, not of 2"):
        plot_callgraph([nested_run(), nested_run()], verbose=False, return_fig=True)
    with pytest.raises(scope_profiler.NestingError, match="track_threads"):
        callgraph_dot(overlapping_run())


# -- statistics, names, colours, backends ----------------------------------------------------------------------------------------


def test_region_statistics(tmp_path):
    told = write_region_statistics_json([nested_run(), nested_run(ranks=2, label="two")], tmp_path / "new" / "s.json", ranks=0)
    assert json.loads((tmp_path / "new" / "s.json").read_text()) == told
    assert told["common_regions"] == ["main", "solve", "io"]
    solve = told["files"][1]["region_statistics"]["solve"]
    assert (solve["count"], solve["total_duration_seconds"], list(solve["per_rank"])) == (2, 0.05, ["0"])
    assert collect_region_statistics(nested_run(), include="io")["common_regions"] == ["io"]


ONE_RUN = [name for name in plotting_scripts.__all__ if name.startswith("plot_") and "scal" not in name and name not in ("plot_speedup", "plot_likwid", "plot_perf_events", "plot_roofline")]


@pytest.mark.parametrize("backend", ["matplotlib", "plotly"])
@pytest.mark.parametrize("name", ONE_RUN)
def test_strange_names_are_drawn_as_they_are(name, backend, tmp_path, recwarn):
    path = tmp_path / ("p.svg" if backend == "matplotlib" else "p.html")
    getattr(plotting_scripts, name)(strange_run(), filepath=path, backend=backend, verbose=False)
    text = path.read_text()
    assert "_hidden" in text
    assert "\x1b" not in text
    assert not recwarn.list
    if backend == "matplotlib":
        ET.fromstring(text)
        assert "$x^2$" in text


def test_colours_differ_and_text_on_them_can_be_read():
    assert len(set(PALETTE)) == len(PALETTE) == 15
    assert len(set(named_colors(map(str, range(45))).values())) == 45
    assert [text_on(color) for color in ("#000000", "#332288", "#F0E442", "#FFFFFF")] == ["#FFFFFF", "#FFFFFF", "#000000", "#000000"]


def seen(color, matrix):
    """Linear RGB as somebody with a colour-vision deficiency sees it (the matrices of Machado et al., 2009, severity 1)."""
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(matrix) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear / [0.9505, 1, 1.089]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    "matrix",
    [
        np.eye(3),
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],  # protanopia
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],  # deuteranopia
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],  # tritanopia
    ],
    ids=["usual", "protanopia", "deuteranopia", "tritanopia"],
)
def test_the_first_colours_differ_for_every_colour_vision(matrix):
    colors = [seen(color, matrix) for color in PALETTE[:7]]
    apart = [np.linalg.norm(a - b) for n, a in enumerate(colors) for b in colors[:n]]
    assert min(apart) > 11  # 2.3 is a just noticeable difference


def test_pictures_need_no_display_and_leave_pyplot_alone():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    figure(plot_gantt, nested_run())
    assert plt.get_fignums() == before


def test_plotly_has_a_trace_for_each_region():
    drawn = plot_gantt(tracked_run(), backend="plotly", return_fig=True, verbose=False)
    assert [(trace.name, list(trace.base), list(trace.x)) for trace in drawn.data] == [
        ("step", [0, 10], [40, 80]), ("read", [5, 20], [20, 60]), ("fetch", [2], [58]),
    ]  # fmt: skip


def test_plotly_pages_need_no_network_and_other_images_say_what_is_missing(tmp_path):
    plot_durations(nested_run(), backend="plotly", filepath=tmp_path / "d.html", verbose=False)
    page = (tmp_path / "d.html").read_text()
    assert "<script src=" not in page.replace('<script src="data:', "")
    if "kaleido" not in sys.modules:
        with pytest.raises(RuntimeError, match="kaleido"):
            plot_durations(nested_run(), backend="plotly", filepath=tmp_path / "d.png", verbose=False)


def test_plotext_writes_text(tmp_path):
    plot_durations(nested_run(), backend="plotext", filepath=tmp_path / "d.txt", verbose=False)
    text = (tmp_path / "d.txt").read_text()
    assert "main" in text and "solve" in text and "\x1b" not in text
    with pytest.raises(ValueError, match="plotext backend"):
        plot_rank_heatmap(nested_run(), backend="plotext", filepath=tmp_path / "h.txt", verbose=False)


def test_pyvis_draws_call_graphs_only(tmp_path):
    plot_callgraph(nested_run(), backend="pyvis", filepath=tmp_path / "g.html", fluid=True, verbose=False)
    assert '"label": "solve"' in (tmp_path / "g.html").read_text()
    with pytest.raises(ValueError, match="call graphs only"):
        plot_gantt(nested_run(), backend="pyvis", filepath=tmp_path / "x.html", verbose=False)


@pytest.mark.parametrize("backend", ["matplotlib", "plotly", "plotext", "pyvis"])
def test_a_library_that_is_missing_is_named_with_what_installs_it(backend, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(ImportError, match=rf"{backend}.*scope-profiler\[plots\]"):
        plot_callgraph(nested_run(), backend=backend, filepath=tmp_path / "x.html", verbose=False)
    assert list(tmp_path.iterdir()) == []


def test_data_needs_no_plot_library(python):
    python("""
import sys
for name in ("matplotlib", "plotly", "plotext", "pyvis", "pyarrow", "pandas"):
    sys.modules[name] = None
import scope_profiler as sp
with sp.session(output=None, verbose=False, return_results=True) as run:
    with sp.region("a"):
        pass
sp.plot_gantt(run.results, data_filepath="g.csv", verbose=False)
sp.plot_durations(run.results, data_filepath="d.json", data_format="json", verbose=False)
assert open("g.csv").read().startswith("file,rank,region")
try:
    sp.plot_gantt(run.results, data_filepath="g.parquet", data_format="parquet", verbose=False)
except ImportError as error:
    assert "scope-profiler[parquet]" in str(error)
else:
    raise AssertionError
""")


def test_parquet_holds_the_rows(tmp_path):
    import pyarrow.parquet

    plot_gantt(tracked_run(), data_filepath=tmp_path / "g.parquet", data_format="parquet", verbose=False)
    table = pyarrow.parquet.read_table(tmp_path / "g.parquet").to_pydict()
    assert table["region"] == ["step", "fetch", "read", "step", "read"]
    assert table["start_seconds"] == [0, 0.002, 0.005, 0.01, 0.02]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"backend": "crayon"}, "no backend 'crayon'"), ({"ranks": [5]}, "no rank 5"), ({"include": "zz"}, "no region matches"),
        ({"data_filepath": "x", "data_format": "xls"}, "no data format 'xls'"),
    ],
)  # fmt: skip
def test_bad_arguments_say_what_is_wrong(bad, says):
    for function in (plot_gantt, plot_durations, plot_rank_heatmap):
        with pytest.raises(ValueError, match=says):
            function(nested_run(), verbose=False, return_fig=True, **bad)


def test_no_runs_is_an_error_and_the_empty_results_of_other_ranks_are_nothing():
    with pytest.raises(ValueError, match="no results"):
        plot_durations([], verbose=False)


def test_nothing_is_drawn_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot_gantt(nested_run(), verbose=False) is None
    assert plot_durations(nested_run(), verbose=False) == []


def test_every_region_of_an_aggregated_run_has_its_bar():
    from scope_profiler import EventDataUnavailableError, Region

    sums = {"count": 3, "total": 30_000_000, "minimum": 5, "maximum": 20, "exclusive": 30_000_000}
    run = results_of({"a": {0: Region(int64([]), int64([]), aggregate=sums)}})
    _, (ax,) = figure(plot_durations, run)
    assert bars(ax) == [[30]]
    with pytest.raises(EventDataUnavailableError, match="only their sums"):
        plot_gantt(run, return_fig=True, verbose=False)
