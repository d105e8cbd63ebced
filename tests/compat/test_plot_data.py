"""The numbers behind plots are those of release 0.7.5.

``tests/golden/plot_data_0.7.5.json`` holds what that release wrote for the runs below. It needs a plot library of its own for
this, so the file was made once: with the release, maxplotlibx and this module's directory on the path,
``python -c "import test_plot_data as t; t.write_golden()"``.
"""

import csv
import json
import tempfile
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden" / "plot_data_0.7.5.json"
MS = 1_000_000

# Kind -> (function, its options); the kinds of SEVERAL compare the runs, the others are of the larger one.
KINDS = {
    "gantt": ("plot_gantt", {}),
    "flame_chart": ("plot_flame_chart", {}),
    "flame_graph": ("plot_flame_graph", {}),
    "callgraph": ("plot_callgraph", {}),
    "callgraph_compact": ("plot_callgraph", {"compact": True}),
    "durations": ("plot_durations", {"metrics": ["avg", "min", "max", "total", "first", "last"]}),
    "durations_stacked": ("plot_durations", {"stack_children": True}),
    "durations_combined": ("plot_durations", {"combine_regions": {"parts": ["solve", "io"]}, "metrics": ["avg", "max"]}),
    "timeseries": ("plot_duration_timeseries", {}),
    "rank_heatmap": ("plot_rank_heatmap", {}),
    "rank_heatmap_exclusive": ("plot_rank_heatmap", {"exclusive": True}),
    "histogram": ("plot_duration_histogram", {"bins": 7}),
    "imbalance": ("plot_imbalance", {"metric": "avg"}),
    "density": ("plot_timeline_density", {"bins": 20}),
    "speedup": ("plot_speedup", {}),
    "weak_scaling": ("plot_weak_scaling", {"x_field": "total_cores"}),
    "weak_scaling_efficiency": ("plot_weak_scaling_efficiency", {}),
    "scaling_efficiency": ("plot_scaling_efficiency", {}),
}
SEVERAL = ("speedup", "weak_scaling", "weak_scaling_efficiency", "scaling_efficiency", "durations")

CALLS = {
    "main": [[(0, 100)], [(0, 90)], [(2, 97)]],
    "solve": [[(10, 40), (50, 70)], [(5, 45)], [(8, 30), (40, 50), (60, 90)]],
    "io": [[(20, 30), (80, 95)], [(50, 60)], [(62, 70), (70, 71)]],
}


def run(ranks):
    """The same run for this package and for the release: nothing tracked, calls that nest."""
    import scope_profiler as sp

    def region(calls):
        return sp.Region(*(np.array([call[i] * MS for call in calls], np.int64) for i in (0, 1)))

    regions = {name: sp.MPIRegion(name, {rank: region(of[rank]) for rank in range(ranks)}) for name, of in CALLS.items()}
    return sp.ProfilingResults(regions, {"label": f"of {ranks}", "total_cores": 4 * ranks, "omp_num_threads": 4, "start_time_ns": 0}, ranks)


def rows():
    """Kind -> its rows as they stand in the CSV file."""
    from scope_profiler import plotting_scripts

    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for kind, (function, options) in KINDS.items():
            path = Path(directory, kind + ".csv")
            data = [run(1), run(3)] if kind in SEVERAL else run(3)
            getattr(plotting_scripts, function)(data, data_filepath=path, verbose=False, **options)
            with path.open(newline="") as file:
                found[kind] = list(csv.DictReader(file))
    return found


def write_golden():
    """Only with the release."""
    GOLDEN.write_text(json.dumps(rows(), indent=0, sort_keys=True) + "\n")


def comparable(row, columns):
    """The values of the columns, numbers rounded so that two ways to compute them agree."""
    values = []
    for column in columns:
        try:
            values.append(round(float(row[column]), 12))
        except ValueError:
            values.append(row[column])
    return tuple(values)


def test_rows_are_those_of_the_release():
    golden, ours = json.loads(GOLDEN.read_text()), rows()
    assert set(golden) == set(ours) == set(KINDS)
    for kind, expected in golden.items():
        columns = list(expected[0])
        assert set(columns) <= set(ours[kind][0]), kind  # we may have more
        assert sorted(comparable(row, columns) for row in ours[kind]) == sorted(comparable(row, columns) for row in expected), kind
