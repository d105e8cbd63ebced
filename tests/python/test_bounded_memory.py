"""A run of many calls: memory stays flat while it is recorded, written and opened, and nothing is lost or rounded."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from test_memory import TOOLS

pytestmark = pytest.mark.uninstrumented

Program = Callable[..., "subprocess.CompletedProcess[str]"]


RECORD = """
import time
from itertools import repeat
outer, first, second, third = [sp.region(name) for name in ("outer", "first", "second", "third")]

def record(calls):
    for _ in repeat(None, calls // 4):
        with outer:
            with first: pass
            with second: pass
            with third: pass
"""

RUN = """
sp.setup(output="run.h5", spool=SPOOL, track_threads=TRACKED)
RECORD
began = time.process_time()
record(size)
recorded = time.process_time() - began
facts = {"recorded_peak": peak(), "ns_a_call": recorded / size * 1e9}
began = time.perf_counter()
sp.finalize(verbose=False)
facts.update(finalized_peak=peak(), finalize_seconds=time.perf_counter() - began, bytes_a_call=os.stat("run.h5").st_size / size)
began = time.perf_counter()
run = sp.load("run.h5")
facts["counts"] = [run[name].num_calls for name in ("outer", "first", "second", "third")]
facts["totals"] = [run[name][0].total_duration for name in ("outer", "first", "second", "third")]
facts["p99"] = run["first"].p99_duration

import contextlib, io
text = io.StringIO()
with contextlib.redirect_stdout(text): run.print_summary()
facts.update(opened_peak=peak(), open_seconds=time.perf_counter() - began, printed="outer" in text.getvalue())
print(json.dumps(facts))
"""

CHECK = """
# The columns, region by region, against what the file says of them in sum.
run = sp.load("run.h5")
wrong = []
for name in ("outer", "first", "second", "third"):
    region = run[name][0]
    start, end = region.start_times_ns, region.end_times_ns
    lengths = end - start
    expected = (len(lengths), int(lengths.sum()), int(lengths.min()), int(lengths.max()), float(numpy.percentile(lengths, 99)))
    stored = sp.read_h5_summary("run.h5")[name][0]
    found = (stored.num_calls, round(stored.total_duration * 1e9), round(stored.min_duration * 1e9), round(stored.max_duration * 1e9),
             stored.p99_duration * 1e9)
    if expected[:4] != found[:4] or abs(expected[4] - found[4]) > 1e-6 * expected[4]:
        wrong.append((name, expected, found))
    if (numpy.diff(start) < 0).any():
        wrong.append((name, "is not in order"))
print(json.dumps({"wrong": wrong}))
"""


def run(python: Program, directory: Path, size: int, *, spool: bool = True, tracked: bool = False, check: bool = True) -> dict[str, Any]:
    source = RUN.replace("RECORD", RECORD).replace("SPOOL", str(spool)).replace("TRACKED", str(tracked))
    process = python(TOOLS + source, str(size), timeout=3600)
    facts: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    facts["left"] = os.listdir(directory)
    if check:
        process = python(TOOLS + CHECK, timeout=3600)
        facts.update(json.loads(process.stdout.splitlines()[-1]))
    return facts


@pytest.mark.slow
def test_memory_is_flat_however_many_calls_a_run_has(python: Program, tmp_path: Path, soak: bool) -> None:
    # 100 M calls are 2.4 GB of records and 3.2 GB of columns; 6 M are 144 and 192 MB.
    size, limit = (100_000_000, 300e6) if soak else (6_000_000, 80e6)
    facts = run(python, tmp_path, size)
    print(facts)
    assert facts["recorded_peak"] < limit
    assert facts["finalized_peak"] < limit
    assert facts["opened_peak"] < limit
    assert facts["counts"] == [size // 4] * 4, "every call is there"
    assert facts["totals"][0] > sum(facts["totals"][1:]), "the outer calls hold the inner ones"
    assert facts["printed"]
    assert facts["left"] == ["run.h5"], "the spool is gone"
    assert facts["wrong"] == [], "what the file says of its calls is exact"
    assert facts["bytes_a_call"] <= 14
    if soak:  # by CPU time, in turn: the least of both
        taken = {spool: [] for spool in (True, False)}
        for number in range(3):
            for spool in taken:
                place = tmp_path / f"{number}-{spool}"
                place.mkdir()
                source = RUN.replace("RECORD", RECORD).replace("SPOOL", str(spool)).replace("TRACKED", "False")
                process = python(TOOLS + f"import os; os.chdir({str(place)!r})\n" + source, str(size // 10), timeout=3600)
                taken[spool].append(json.loads(process.stdout.splitlines()[-1])["ns_a_call"])
        print(taken)
        assert min(taken[True]) <= 1.25 * min(taken[False])
