"""Files go both ways between this package and release 0.7.5, which runs in an interpreter of its own and answers in JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from scope_profiler import _core

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
from h5files import everything, int64, make, row  # noqa: E402

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set")

# Runs in both: what results made from a file say.
TELL = '''
def tell(results, calls=True):
    def plain(value):
        if hasattr(value, "tolist"): return value.tolist()
        if isinstance(value, dict): return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)): return [plain(v) for v in value]
        return value
    def ask(one, name):
        try: return plain(getattr(one, name))
        except (ValueError, RuntimeError) as error: return type(error).__name__
    regions = {}
    for name in results.region_names:
        for rank in results[name].ranks:
            one = results[name][rank]
            told = {n: ask(one, n) for n in ("num_calls", "total_duration", "average_duration", "min_duration",
                "max_duration", "std_duration", "first_duration", "last_duration", "first_start_time", "last_end_time",
                "exclusive_duration", "source_file", "source_lineno", "source_text", "tags")}
            if calls:
                told.update({n: ask(one, n) for n in ("start_times_ns", "end_times_ns", "exclusive_durations_ns",
                    "call_ids", "parent_ids", "thread_ids", "task_ids", "await_times_ns", "event_metadata")})
            regions["%s/%d" % (name, rank)] = told
    lanes = {}
    for kind, fields in (("threads", "index rank name ident native_id daemon start_time end_time cpu_time alive wall_time"),
                         ("tasks", "index rank kind name coro_name thread_index created_time done_time steps running_time "
                                   "awaiting_time done wall_time")):
        lanes[kind] = {str(rank): [{f: plain(getattr(lane, f)) for f in fields.split()} for lane in table]
                       for rank, table in getattr(results, kind).items()}
    return {"names": results.region_names, "ranks": results.num_ranks, "regions": regions, "lanes": lanes,
            "metadata": plain(results.metadata), "label": results.label}
'''
exec(TELL)

MAKE = '''
import asyncio, sys, threading, warnings
import scope_profiler as sp
warnings.simplefilter("ignore")

def nested(depth):
    with sp.region("recursive"):
        if depth: nested(depth - 1)

def work():
    with sp.region("outer", tags=["t", "ü"]):
        for i in range(3):
            with sp.metadata(step=i, text="é"):
                with sp.region("inner"): pass
        nested(4)

def threads():
    all = [threading.Thread(target=work, name="wörker-%d" % i) for i in range(3)]
    for thread in all: thread.start()
    for thread in all: thread.join()

async def tasks():
    async def one(i):
        with sp.region("task"):
            await asyncio.sleep(0.001)
            work()
    await asyncio.gather(*(one(i) for i in range(4)))

def overlap():
    a, b = sp.region("a"), sp.region("b")
    a.__enter__(); b.__enter__(); a.__exit__(None, None, None); b.__exit__(None, None, None)

def many():
    a, b = sp.region("a"), sp.region("b")
    for _ in range(10_000):
        with a:
            with b: pass

quiet = dict(verbose=False)
def session(path, body, **settings):
    with sp.session(output=path, verbose=False, **settings): body()

session("plain.h5", work, label="L")
session("threads.h5", threads, track_threads=True)
session("tasks.h5", lambda: asyncio.run(tasks()), track_async=True)
session("sources.h5", work, capture_region_source=True, metadata_detail="full")
session("overlap.h5", overlap)
session("empty.h5", lambda: None, region_tags=["none"])
session("aggregate.h5", many, aggregation_mode=True)
for compression in (None, "auto", "gzip", "lzf"):
    session("many-%s.h5" % compression, many, hdf5_compression=compression)
session("level.h5", many, hdf5_compression="gzip", hdf5_compression_level=9)
session("chunks.h5", many, hdf5_chunk_size=700)
session("threads-gzip.h5", threads, track_threads=True, hdf5_compression="gzip")
'''

ANSWER = TELL + '''
import glob, json, sys
import scope_profiler as sp
told = {}
for path in json.load(sys.stdin):
    full = sp.load(path)
    told[path] = [tell(full), tell(sp.read_h5_summary(path), calls=False)]
json.dump(told, sys.stdout)
'''  # fmt: skip


def reference(script: str, directory: Path, question: Any = None) -> Any:
    done = subprocess.run([str(REFERENCE), "-c", script], input=json.dumps(question), capture_output=True, text=True,
                          cwd=directory, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if question is not None else done.stdout


def same(ours: Any, theirs: Any, where: str) -> None:
    """Equal, floats up to their last digits: seconds are made from ns in other ways."""
    if isinstance(theirs, float) and isinstance(ours, (int, float)):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=5e-10), where
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs)):
            same(a, b, f"{where}[{i}]")
    else:
        assert ours == theirs, where


def test_what_the_release_writes_is_read_as_it_reads_it(tmp_path: Path) -> None:
    reference(MAKE, tmp_path)
    paths = sorted(p.name for p in tmp_path.glob("*.h5"))
    assert len(paths) == 14
    told = reference(ANSWER, tmp_path, paths)
    for path in paths:
        full, summary = sp.load(tmp_path / path), sp.read_h5_summary(tmp_path / path)
        ours = json.loads(json.dumps([tell(full), tell(summary, calls=False)]))  # noqa: F821
        for mine, theirs in zip(ours, told[path]):
            if path in ("empty.h5", "aggregate.h5"):
                mine["ranks"] = theirs["ranks"]
            if path in ("aggregate.h5", "overlap.h5"):
                for name, region in theirs["regions"].items():  # the release has no times for sums; exclusive ones are clamped here
                    for field in ("first_duration", "last_duration", "std_duration", "first_start_time", "last_end_time",
                                  *(["exclusive_duration", "exclusive_durations_ns"] if path == "overlap.h5" else [])):  # fmt: skip
                        region.pop(field, None)
                        mine["regions"][name].pop(field, None)
            same(mine, theirs, path)


def test_what_we_write_is_read_by_the_release_as_we_read_it(tmp_path: Path) -> None:
    calls = 50_000
    start = 10**12 + np.arange(calls) * 100
    halves = (np.arange(calls) % 97).reshape(2, -1).sum(axis=1).tolist()
    large = make([row(0, 0, calls // 2, exclusive=halves[0]), row(1, calls // 2, calls // 2, exclusive=halves[1])], names=["a", "b"], columns=
                 {"start_ns": start, "end_ns": start + np.arange(calls) % 97, "call_ids": np.arange(calls),
                  "parent_ids": np.full(calls, -1)})  # fmt: skip
    profiles = {
        "everything": everything(),
        "empty": make([], {}, names=[]),
        "one": make([row(0, 0, 1, source="a.py", line=3, exclusive=500)], {"start_ns": int64(1000), "end_ns": int64(1500)}, names=["a"]),
        "strange-names": make([row(i, i, 1, exclusive=4 if i == 4 else 1) for i in range(5)], {"start_ns": int64(1, 2, 3, 4, 5), "end_ns": int64(9, 9, 9, 9, 9)},
                              names=["", "/", "a/b", "ü\n", "x" * 100_000]),
        "aggregate": make([row(0, 0, 0, aggregate=(4, 100, 10, 40, 90))], {}, names=["a"], aggregate=True),
    }  # fmt: skip
    for name, profile in profiles.items():
        _core.write_h5(profile, tmp_path / f"{name}.h5")
    for compression in ("auto", "none", "gzip", "lzf"):
        _core.write_h5(large, tmp_path / f"large-{compression}.h5", compression=compression)
    _core.write_h5(large, tmp_path / "large-chunks.h5", chunk_size=777)
    paths = sorted(p.name for p in tmp_path.glob("*.h5"))
    told = reference(ANSWER, tmp_path, paths)
    for path in paths:
        ours = [tell(sp.load(tmp_path / path)), tell(sp.read_h5_summary(tmp_path / path), calls=False)]  # noqa: F821
        for mine, theirs in zip(json.loads(json.dumps(ours)), told[path]):
            if path in ("empty.h5", "aggregate.h5"):
                mine["ranks"] = theirs["ranks"]
            if path == "aggregate.h5":
                leave_out_what_the_release_has_no_sums_of(mine, theirs)
            same(mine, theirs, path)


def leave_out_what_the_release_has_no_sums_of(*told: Any) -> None:
    for one in told:
        for region in one["regions"].values():
            for field in ("first_start_time", "last_end_time", "first_duration", "last_duration", "std_duration"):
                region.pop(field)
            for field in ("tags", "source_file", "source_lineno", "source_text", "average_duration"):
                region.pop(field, None)


def test_sessions_recorded_here_are_read_by_the_release_as_we_read_them(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MAKE], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    paths = sorted(p.name for p in tmp_path.glob("*.h5"))
    told = reference(ANSWER, tmp_path, paths)
    for path in paths:
        ours = [tell(sp.load(tmp_path / path)), tell(sp.read_h5_summary(tmp_path / path), calls=False)]  # noqa: F821
        for mine, theirs in zip(json.loads(json.dumps(ours)), told[path]):
            if path == "empty.h5":
                mine["ranks"] = theirs["ranks"]
            if path == "aggregate.h5":
                leave_out_what_the_release_has_no_sums_of(mine, theirs)
            if path == "overlap.h5":  # no exclusive times: an error here, inclusive ones there
                for region in (*mine["regions"].values(), *theirs["regions"].values()):
                    for field in ("exclusive_duration", "exclusive_durations_ns"):
                        region.pop(field, None)
            same(mine, theirs, path)


def test_our_files_are_not_larger(tmp_path: Path) -> None:
    reference(MAKE, tmp_path)
    for path in sorted(tmp_path.glob("*.h5")):
        results = sp.load(path)
        again = tmp_path / "again.h5"
        # How much the default level leaves depends on how even the times are: compare like with like.
        options = {"compression": "gzip", "level": 9} if path.name == "level.h5" else {}
        sp.write_profile(results, again, **options)
        assert again.stat().st_size <= path.stat().st_size, path.name
        again.unlink()


def test_a_profile_that_went_through_both_is_what_it_was(tmp_path: Path) -> None:
    reference(MAKE, tmp_path)
    for path in sorted(tmp_path.glob("*.h5")):
        before = sp.load(path)
        sp.write_profile(before, tmp_path / "again.h5")
        after = sp.load(tmp_path / "again.h5")
        told = json.loads(json.dumps([tell(before), tell(after)]))  # noqa: F821
        same(told[1], told[0], path.name)
        (tmp_path / "again.h5").unlink()
