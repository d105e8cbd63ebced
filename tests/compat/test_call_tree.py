"""build_call_arrays against release 0.7.5: equal arrays wherever that nests at all."""

import os
import random
import subprocess

import numpy as np
import pytest

import scope_profiler._core as core

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set")

FIELDS = "region_index call_index start_ns end_ns depth parent exclusive_ns lane".split()

SCRIPT = """
import sys
import numpy as np
from scope_profiler import MPIRegion, NestingError, Region, build_call_arrays
cases, results = np.load(sys.argv[1]), {}
for case in range(int(cases["cases"])):
    regions = []
    for r in range(int(cases[f"{case}.regions"])):
        column = lambda name: cases.get(f"{case}.{r}.{name}")
        regions.append(MPIRegion(f"r{r}", {0: Region(column("start"), column("end"), thread_ids=column("threads"),
                                                     task_ids=column("tasks"))}))
    try:
        calls = build_call_arrays(regions, 0)
    except NestingError:
        results[f"{case}.fails"] = 1
        continue
    for field in sys.argv[3:]:
        results[f"{case}.{field}"] = getattr(calls, field)
np.savez(sys.argv[2], **results)
"""


def forest(rng, lanes):
    """(name, start, end, lane) of properly nested calls; ties and zero lengths are common."""
    rows = []
    for lane in range(lanes):
        clock, stack = rng.randrange(10), []
        for _ in range(rng.randrange(1, 60)):
            clock += rng.choice((0, 0, 1, 4))
            while stack and rng.random() < 0.5:
                rows.append((*stack.pop(), clock, lane))
                clock += rng.choice((0, 2))
            stack.append((rng.randrange(4), clock))
        while stack:
            rows.append((*stack.pop(), clock, lane))
            clock += rng.choice((0, 1))
    rng.shuffle(rows)
    return rows


def random_case(rng):
    kind = rng.choice(("plain", "threads", "tasks", "overlapping"))
    lanes = 1 if kind == "plain" else rng.randrange(1, 9)
    rows = forest(rng, lanes)
    regions = []
    for name in range(4):
        own = [row for row in rows if row[0] == name]
        region = {"start": [row[1] for row in own], "end": [row[2] for row in own]}
        if kind in ("threads", "tasks") and (name != 2 or rng.random() < 0.5):
            region["threads"] = [row[3] if kind == "threads" else 0 for row in own]
            if kind == "tasks":
                region["tasks"] = [row[3] - 1 for row in own]
        regions.append({key: np.array(column, dtype=np.int64) for key, column in region.items()})
    return regions


def ours(regions):
    columns = [(r["start"], r["end"], r.get("threads"), r.get("tasks")) for r in regions]
    try:
        result = core.call_tree(columns, [f"r{i}" for i in range(len(regions))])
    except core.NestingError:
        return None
    return [np.empty(0, np.int64) if view is None else np.array(view, dtype=np.int64) for view in result]


def test_arrays_equal_those_of_the_reference(tmp_path):
    rng = random.Random(75)
    cases = [random_case(rng) for _ in range(400)]
    stored = {"cases": len(cases)}
    for c, regions in enumerate(cases):
        stored[f"{c}.regions"] = len(regions)
        for r, region in enumerate(regions):
            stored |= {f"{c}.{r}.{key}": column for key, column in region.items()}
    np.savez(tmp_path / "cases.npz", **stored)
    subprocess.run([REFERENCE, "-c", SCRIPT, tmp_path / "cases.npz", tmp_path / "results.npz", *FIELDS], check=True,
                   env={**os.environ, "PYTHONPATH": ""})
    expected = np.load(tmp_path / "results.npz")
    nested = 0
    for c, regions in enumerate(cases):
        result = ours(regions)
        if f"{c}.fails" in expected:
            assert result is None, c
            continue
        assert result is not None, c
        nested += 1
        for field, column in zip(FIELDS, result):
            np.testing.assert_array_equal(column, expected[f"{c}.{field}"], err_msg=f"case {c}, {field}")
    assert nested > 200 and nested < len(cases)  # both answers occur
