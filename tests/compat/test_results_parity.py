"""Results made of the same arrays here and in release 0.7.5 tell the same numbers, wherever that release is right.

The release runs in an interpreter of its own (environment variable SCOPE_PROFILER_REFERENCE_PYTHON) and answers in JSON. What
differs on purpose is not asked for: device times that were not measured, overlapping calls, calls without length, the exclusive
times of a region that is part of two results, times relative to an origin beyond the precision of a float.
"""

import io
import json
import os
import random
import re
import subprocess

import pytest

from scope_profiler.mpi_region import MPIRegion
from scope_profiler.region_results import Region
from scope_profiler.results import ProfilingResults, merge_results

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")

REGION_VALUES = """start_times_ns end_times_ns durations_ns inclusive_durations_ns exclusive_durations_ns start_times end_times durations
    inclusive_durations exclusive_durations gpu_durations_ns gpu_durations await_times_ns await_times call_ids parent_ids thread_ids
    task_ids num_calls total_duration inclusive_duration total_exclusive_duration exclusive_duration average_duration min_duration
    max_duration std_duration first_duration last_duration first_start_time last_end_time p50_duration p95_duration p99_duration
    gpu_total_duration gpu_average_duration total_await_duration event_metadata has_timing has_event_data has_source has_gpu_timing
    has_thread_data source_file source_lineno source_text tags threads""".split()
MPI_VALUES = """name ranks color durations exclusive_durations inclusive_durations gpu_durations num_calls total_duration
    exclusive_duration inclusive_duration average_duration std_duration min_duration max_duration first_duration last_duration
    first_start_time last_end_time p50_duration p95_duration p99_duration gpu_total_duration gpu_average_duration rank_imbalance
    rank_imbalance_pct has_timing has_source has_gpu_timing source_file source_lineno source_text""".split()
RESULTS_VALUES = """region_names label display_label num_ranks num_nodes is_root has_event_data run_start_time finalize_time total_time
    minimum_start_time maximum_end_time time_span startup_time time_origin has_likwid likwid_ranks has_perf_events""".split()

# Runs in both: in the reference's interpreter as text, here as it stands.
ASK = '''
def plain(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def answers(results, names):
    region_values, mpi_values, results_values = names
    told = {name: plain(getattr(results, name)) for name in results_values}
    told["summary"] = plain(results.summary())
    told["some"] = [region.name for region in results.get_regions(include=["r1", "r3"], exclude="r33")]
    told["by start"] = [region.name for region in results.get_regions()]
    told["events"] = plain(results.events())
    told["events of a rank"] = plain(results.events(include="r1", ranks=1, relative=False))
    for rank in range(results.num_ranks + 1):
        told["graph %d" % rank] = plain(results.call_graph(rank))
        told["graph without r2 %d" % rank] = plain(results.call_graph(rank, exclude="r2"))
        told["stack %d" % rank] = plain(results.call_stack(rank))
    for region in results:
        told[region.name] = {name: plain(getattr(region, name)) for name in mpi_values}
        told[region.name]["summary"] = plain(region.get_summary())
        for method in ("num_calls_per_rank", "average_durations", "min_durations", "max_durations", "total_durations"):
            told[region.name][method] = plain(getattr(region, method)())
        for rank in region:
            one = region[rank]
            told["%s on %d" % (region.name, rank)] = {name: plain(getattr(one, name)) for name in region_values}
            told["%s on %d" % (region.name, rank)].update(summary=plain(one.get_summary()), events=plain(one.events()),
                                                          p12=one.percentile_duration(12.5), length=len(one))
            for thread in one.threads:
                part = one.for_thread(thread)
                told["%s on %d, thread %d" % (region.name, rank, thread)] = [part.num_calls, part.total_duration,
                                                                             plain(part.start_times_ns)]
    return told


def build(run, Region, MPIRegion, ProfilingResults):
    import numpy as np

    def array(values):
        return None if values is None else np.array(values, dtype=np.int64)

    regions = {}
    for name, by_rank in run["regions"].items():
        made = {}
        for rank, (columns, rest) in by_rank.items():
            made[int(rank)] = Region(**{key: array(values) for key, values in columns.items()}, **rest)
        regions[name] = MPIRegion(name, made)
    return ProfilingResults(regions, metadata=run["metadata"], file_path="run.h5")
'''
exec(ASK)

REFERENCE_SCRIPT = (
    ASK
    + """
import json, sys
import scope_profiler as sp
job = json.load(sys.stdin)
results = [build(run, sp.Region, sp.MPIRegion, sp.ProfilingResults) for run in job["runs"]]
told = [answers(r, job["names"]) for r in results]
merged = sp.merge_results(*results[:2])
json.dump([told, merged.region_names, merged.metadata, merged.num_ranks, merged.label], sys.stdout)
"""
)


def run_of(seed, prefix="r"):
    """A run of nested calls on two ranks and, in every second run, some threads."""
    rng = random.Random(seed)
    tracked = seed % 2 == 1
    regions = {}
    described = {f"{prefix}{i}" for i in range(5) if rng.random() < 0.7}  # on all ranks: the release takes rank 0's word for it
    for rank in range(2):
        rows = {}
        for thread in range(rng.randint(1, 3) if tracked else 1):
            # half-open intervals of even numbers inside of odd ones: nothing touches, nothing has the same start
            stack = [(10**12, 10**12 + 10**7)]
            while stack and sum(map(len, rows.values())) < 60:
                low, high = stack.pop()
                cuts = sorted(rng.sample(range(low + 1, high), 2 * rng.randint(1, 3)))
                for start, end in zip(cuts[::2], cuts[1::2]):
                    rows.setdefault(f"{prefix}{rng.randint(0, 4)}", []).append((start, end, thread))
                    if end - start > 100 and rng.random() < 0.7:
                        stack.append((start, end))
        for name, calls in rows.items():
            if rng.random() < 0.5:
                calls.sort()
            columns = {"start_times": [c[0] for c in calls], "end_times": [c[1] for c in calls]}
            rest = {}
            if tracked:
                columns["thread_ids"] = [c[2] for c in calls]
            if rng.random() < 0.3:
                columns["gpu_durations"] = [rng.randint(0, 1000) for _ in calls]
            if tracked and rng.random() < 0.3:
                columns["task_ids"] = [-1] * len(calls)
                columns["await_times"] = [rng.randint(0, end - start) for start, end, _ in calls]
            if rng.random() < 0.3:
                rest["event_metadata"] = [{"k": i} if i % 2 else {} for i in range(len(calls))]
            if name in described:
                rest.update(source_file=f"f{seed}.py", source_lineno=rng.randint(1, 99), source_text="with x:", tags=["t", name])
            regions.setdefault(name, {})[str(rank)] = (columns, rest)
    metadata = {"start_time_ns": 10**12 - 5, "finalize_time_ns": 10**12 + 10**8, f"k{seed}": seed, "shared": seed}
    if seed % 2:
        metadata["label"] = f"run {seed}"
    return {"regions": regions, "metadata": metadata}


def near(ours, theirs, where):
    """Equal; floats to 1e-9 relative or, where the release computed with seconds of the clock, to its rounding of 1e-12 s."""
    if isinstance(theirs, float) and isinstance(ours, (int, float)):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=3e-13), where
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for key in theirs:
            near(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs)):
            near(a, b, f"{where}[{i}]")
    else:
        assert ours == theirs, where


@pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set")
def test_every_member_of_results_tells_what_the_release_told():
    runs = [run_of(0, "a"), run_of(1, "b"), *(run_of(seed) for seed in range(2, 12))]
    names = (REGION_VALUES, MPI_VALUES, RESULTS_VALUES)
    done = subprocess.run(
        [REFERENCE, "-c", REFERENCE_SCRIPT], input=json.dumps({"runs": runs, "names": names}), capture_output=True, text=True, check=True
    )
    told, merged_names, merged_metadata, merged_ranks, merged_label = json.loads(done.stdout)
    results = [build(run, Region, MPIRegion, ProfilingResults) for run in runs]  # noqa: F821
    for seed, (ours, theirs) in enumerate(zip(results, told)):
        near(json.loads(json.dumps(answers(ours, names))), theirs, f"run {seed}")  # noqa: F821
    merged = merge_results(*results[:2])
    assert sorted(merged.region_names) == sorted(merged_names) and merged.num_ranks == merged_ranks and merged.label == merged_label
    assert {key: merged.metadata[key] for key in merged_metadata} == merged_metadata


def test_results_over_a_profile_tell_the_same_as_results_of_arrays():
    for seed in range(8):
        results = build(run_of(seed), Region, MPIRegion, ProfilingResults)  # noqa: F821
        names = ([n for n in REGION_VALUES if n not in ("call_ids", "parent_ids", "gpu_durations_ns", "gpu_durations", "await_times_ns",
                                                        "await_times", "task_ids", "total_await_duration")],
                 MPI_VALUES, RESULTS_VALUES)  # fmt: skip
        over = ProfilingResults._from_profile(results._to_profile(), file_path="run.h5")
        ours, theirs = (json.loads(json.dumps(answers(r, names))) for r in (over, results))  # noqa: F821
        for told in (ours, theirs):
            for name in list(told):  # a profile has the ids, and a column for all regions if one has it
                if "events" in name or "graph without" in name:
                    del told[name]
                elif isinstance(told[name], dict):
                    told[name].pop("events", None)
        near(ours, theirs, f"run {seed}")


TABLE_SCRIPT = (
    ASK
    + """
import io, json, sys
import scope_profiler as sp
told = []
for run in json.load(sys.stdin):
    stream = io.StringIO()
    build(run, sp.Region, sp.MPIRegion, sp.ProfilingResults).print_summary(
        stream=stream, suppress_notes=True, columns="region ranks calls percent parent_percent total imbalance".split())
    told.append(stream.getvalue())
json.dump(told, sys.stdout)
"""
)


def rows_of_table(text):
    """The rows as lists of cells, of which only the numbers and their order count."""
    return [re.split(r"  +", line.strip(" │")) for line in text.splitlines() if line.startswith("  │")]


@pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set")
def test_the_printed_table_has_the_same_rows_and_numbers():
    runs = [run_of(seed) for seed in range(0, 20, 2)]  # one thread a rank: the release adds up threads in other ways
    for run in runs:
        whole = {"start_times": [10**12], "end_times": [10**12 + 10**7]}
        run["regions"] = {"scope_profiler.session": {str(rank): (whole, {}) for rank in range(2)}, **run["regions"]}
    done = subprocess.run([REFERENCE, "-c", TABLE_SCRIPT], input=json.dumps(runs), capture_output=True, text=True, check=True)
    for run, theirs in zip(runs, json.loads(done.stdout)):
        stream = io.StringIO()
        results = build(run, Region, MPIRegion, ProfilingResults)  # noqa: F821
        columns = "region ranks calls percent parent_percent total imbalance".split()
        results.print_summary(stream=stream, suppress_notes=True, columns=columns)
        assert rows_of_table(stream.getvalue()) == rows_of_table(theirs)
