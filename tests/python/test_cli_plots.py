"""``scope-profiler plot`` and ``scope-profiler export plot-data``."""

import inspect
import json
import sys

import pytest

from export_helpers import results_of
from plot_helpers import nested_run, overlapping_run, times, tracked_run
from scope_profiler import ProfilingResults, plotting_scripts, write_profile
from scope_profiler.cli import main
from scope_profiler.cli.plot_kinds import KINDS, OPTIONS, PRESETS
from scope_profiler.perf_events import PerfEventTotals


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_profile(tracked_run(), tmp_path / "run.h5")
    return "run.h5"


def files(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != "run.h5")


def refused(capsys, *arguments):
    """The one line on stderr of a command that fails."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    return line


def test_a_kind_goes_into_a_directory_with_the_statistics(profile, tmp_path, capsys):
    assert main(["plot", "gantt", profile, "-o", "new/plots"]) == 0
    assert files(tmp_path / "new" / "plots") == ["gantt_plot.png", "region_statistics.json"]
    assert "wrote new/plots/gantt_plot.png" in capsys.readouterr().out
    statistics = json.loads((tmp_path / "new" / "plots" / "region_statistics.json").read_text())
    assert statistics["files"][0]["region_statistics"]["step"]["count"] == 2


@pytest.mark.parametrize(
    ("name", "head"), [("g.png", b"\x89PNG"), ("g.pdf", b"%PDF"), ("g.svg", b"<?xml"), ("g.dot", b"digraph")]
)
def test_a_single_kind_may_have_a_file_of_its_own(profile, tmp_path, name, head):
    assert main(["plot", "callgraph", profile, "-o", name]) == 0
    assert (tmp_path / name).read_bytes().startswith(head)
    assert files(tmp_path) == [name]


def test_a_file_alone_gets_the_default_plots(profile, tmp_path):
    assert main(["plot", profile]) == 0
    assert files(tmp_path) == ["durations_plot.png", "gantt_plot.png", "region_statistics.json"]


def test_all_plots_of_one_file_leave_out_those_of_several(profile, tmp_path, capsys):
    assert main(["plot", "all", profile, "-o", "out"]) == 0
    drawn = {name.removesuffix("_plot.png") for name in files(tmp_path / "out")} - {"region_statistics.json"}
    assert drawn == {
        "gantt", "density", "flame_chart", "flame_graph", "callgraph", "durations", "timeseries", "rank_heatmap", "histogram", "imbalance",
    }  # fmt: skip
    assert "skipped speedup: it compares several files" in capsys.readouterr().out


def test_quick_plots_of_several_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ranks in (1, 2):
        write_profile(nested_run(ranks=ranks, label=f"of {ranks}"), tmp_path / f"r{ranks}.h5")
    assert main(["plot", "quick", "r*.h5", "-o", "out", "--label", "one", "--label", "two"]) == 0
    assert files(tmp_path / "out") == [
        "durations_plot.png", "rank_heatmap_plot.png", "region_statistics.json", "scaling_efficiency_plot.png", "speedup_plot.png",
        "weak_scaling_plot.png",
    ]  # fmt: skip
    statistics = json.loads((tmp_path / "out" / "region_statistics.json").read_text())
    assert [file["label"] for file in statistics["files"]] == ["one", "two"]


def test_a_preset_goes_on_after_a_plot_that_cannot_be(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_profile(overlapping_run(), tmp_path / "run.h5")
    assert main(["plot", "all", "run.h5", "-o", "out"]) == 0
    assert "gantt_plot.png" in files(tmp_path / "out") and "flame_graph_plot.png" not in files(tmp_path / "out")
    assert "skipped flame_graph: run has calls that overlap" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "reason"), [([], "there are no regions"), (["-i", "x", "--"], "no region matches the filters")])
def test_a_preset_of_nothing_is_an_error(tmp_path, monkeypatch, capsys, options, reason):
    monkeypatch.chdir(tmp_path)
    write_profile(nested_run() if options else results_of({}), tmp_path / "run.h5")
    assert refused(capsys, "plot", *options, "run.h5") == f"scope-profiler: no plot was drawn (durations, gantt): {reason}"
    assert files(tmp_path) == []


def test_the_list_names_every_kind_and_preset(capsys):
    assert main(["plot", "list"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in (*KINDS, *PRESETS))


@pytest.mark.parametrize(("backend", "suffix"), [("plotly", ".html"), ("plotext", ".txt")])
def test_other_backends_have_files_of_their_own_kind(profile, tmp_path, backend, suffix):
    assert main(["plot", "durations", profile, "--backend", backend]) == 0
    assert files(tmp_path) == [f"durations_plot{suffix}", "region_statistics.json"]


def test_options_reach_the_plot(profile, tmp_path):
    options = ["--metrics", "avg", "max", "--sort-by", "name", "--combine-regions", "both=step,read"]
    assert main(["export", "plot-data", profile, "-p", "durations", "--format", "json", *options]) == 0
    document = json.loads((tmp_path / "durations_data.json").read_text())
    assert document["metrics"] == ["avg", "max"]
    assert [(bar["region"], bar["metric"]) for bar in document["bars"]][:2] == [("both", "avg"), ("fetch", "avg")]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_plot_data_is_written_for_each_kind(profile, tmp_path, form):
    assert main(["export", "plot-data", profile, "-o", "data", "--format", form, "--plots", "gantt", "flame_chart"]) == 0
    assert files(tmp_path / "data") == [f"flame_chart_data.{form}", f"gantt_data.{form}", "region_statistics.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plot", "gant", "run.h5"], ["no plot 'gant'", "did you mean 'gantt'?"]),
        (["plot", "gantt"], ["FILE"]),
        (["plot", "gantt", "none.h5"], ["none.h5: no such file"]),
        (["plot", "durations", "run.h5", "--bins", "3"], ["--bins is for density, histogram, not for durations"]),
        (["plot", "gantt", "run.h5", "--include", "zzz"], ["gantt: no region matches the filters"]),
        (["plot", "gantt", "run.h5", "--include", "("], ["not a regular expression"]),
        (["plot", "gantt", "run.h5", "--ranks", "7"], ["no rank 7"]),
        (["plot", "likwid", "run.h5"], ["--likwid-metric"]),
        (["plot", "perf_events", "run.h5", "--metric", "ipc"], ["perf_events: no profile has perf events"]),
        (["plot", "imbalance", "run.h5", "--metric", "x"], ["no metric 'x'"]),
        (["plot", "default", "run.h5", "--metric", "x"], ["--metric is for one of"]),
        (["plot", "speedup", "run.h5"], ["two profiles"]),
        (["plot", "gantt", "run.h5", "--label", "a", "--label", "b"], ["2 labels for 1 files"]),
        (["plot", "gantt", "run.h5", "-o", "run.h5/x.png"], ["run.h5"]),
        (["plot", "gantt", "run.h5", "-o", "x.xyz"], ["x.xyz: a plot is not written as .xyz", ".png"]),
        (["plot", "default", "run.h5", "-o", "x.png"], ["x.png: default is several plots", "directory"]),
        (["plot", "run.h5", "-o", "x.png"], ["x.png: default is several plots", "directory"]),
        (["plot", "durations", "run.h5", "--combine-regions", "x"], ["NAME=PATTERN"]),
        (["export", "plot-data", "run.h5", "-p", "nothing"], ["no plot 'nothing'"]),
        (["export", "plot-data", "run.h5", "-p", "callgraph", "-o", "run.h5"], ["run.h5"]),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(profile, capsys, arguments, words):
    line = refused(capsys, *arguments)
    assert all(word in line for word in words), line


def test_a_new_directory_may_have_a_dot_in_its_name(profile, tmp_path):
    (tmp_path / "v1.2").mkdir()
    for directory in ("v1.2", "v1.3/"):
        assert main(["plot", "durations", profile, "-o", directory]) == 0
        assert files(tmp_path / directory) == ["durations_plot.png", "region_statistics.json"]


@pytest.mark.parametrize("command", [["plot", "default"], ["export", "plot-data"]])
def test_a_preset_of_which_nothing_was_drawn_fails_with_the_reason(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    write_profile(results_of({}), tmp_path / "run.h5")
    assert refused(capsys, *command, "run.h5", "-o", "out") == (
        "scope-profiler: no plot was drawn (durations, gantt): there are no regions"
    )
    assert not (tmp_path / "out").exists()


def test_a_preset_without_its_library_fails_with_the_reason(profile, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = refused(capsys, "plot", profile)
    assert "no plot was drawn (durations, gantt)" in line and line.count("pip install scope-profiler[plots]") == 1


def test_a_call_graph_has_a_node_for_each_call_only_when_asked(profile, tmp_path):
    calls = [(10 * n, 10 * n + 8) for n in range(4)]
    run = results_of({"outer": {0: times(calls)}, "inner": {0: times([(a + 1, b - 1) for a, b in calls])}})
    write_profile(run, tmp_path / "four.h5")
    for options, nodes in (([], 2), (["--every-call"], 8), (["--compact-callgraph"], 2)):
        assert main(["plot", "callgraph", "four.h5", "-o", "g.dot", *options]) == 0
        assert (tmp_path / "g.dot").read_text().count("fillcolor=") == nodes, options


def test_a_backend_that_is_missing_is_told_in_one_line(profile, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install scope-profiler[plots]" in refused(capsys, "plot", "gantt", profile)


def test_every_option_belongs_to_a_kind_and_a_parameter_of_its_function():
    for parameter, kinds, _ in OPTIONS.values():
        for kind in kinds:
            assert parameter in inspect.signature(getattr(plotting_scripts, KINDS[kind][0])).parameters


def test_counters_of_any_kind_are_drawn_and_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plain = nested_run()
    first, second = plain.region_names[:2]
    totals = {first: PerfEventTotals(2, {"page-faults": 1234, "task-clock": 5}), second: PerfEventTotals(1, {"page-faults": 7})}
    run = ProfilingResults({region.name: region for region in plain}, plain.metadata, plain.num_ranks, perf_events={0: totals})
    write_profile(run, tmp_path / "run.h5")
    assert main(["plot", "perf_events", "run.h5", "-o", "x.png"]) == 0 and (tmp_path / "x.png").exists()
    capsys.readouterr()
    assert main(["inspect", "run.h5", "--exclude", f"^{second}$"]) == 0
    rows = [line.strip(" │").split() for line in capsys.readouterr().out.splitlines()]
    assert ["region", "calls", "page-faults", "task-clock"] in rows and [first, "2", "1,234", "5"] in rows and [second, "1", "7", "-"] not in rows
    run.print_summary()
    rows = [line.strip(" │").split() for line in capsys.readouterr().out.splitlines()]
    assert [first, "2", "1,234", "5"] in rows and [second, "1", "7", "-"] in rows
    assert main(["inspect", "run.h5", "--json"]) == 0
    [document] = json.loads(capsys.readouterr().out)["profiles"]
    assert document["perf_events"] == [
        {"rank": 0, "region": name, "calls": one.calls, "values": one.values} for name, one in totals.items()
    ]
