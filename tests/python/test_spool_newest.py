"""A spool with a limit that keeps the newest calls: what goes, what stays, and how it is told."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import scope_profiler as sp
from scope_profiler.cli import main
from scope_profiler.profile_config import ProfilingConfig

MIB = 1 << 20

PROGRAM = """
import os, signal, sys, threading, warnings, scope_profiler as sp
how, limit, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sp.setup(output="p.h5", track_threads=True, spool_limit=limit, spool_policy="newest")
def work(name):
    outer, inner, leaf = sp.region(f"{name} outer"), sp.region(f"{name} inner"), sp.region(f"{name} leaf")
    with sp.region(f"{name} all"):
        for _ in range(rounds):
            with outer:
                with inner:
                    for _ in range(3):
                        with leaf: pass
threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
open_call = sp.region("open"); open_call.__enter__()
[spool] = [name for name in os.listdir() if name.endswith(".spool")]
print(os.stat(spool).st_blocks * 512)
if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
open_call.__exit__(None, None, None)
warnings.simplefilter("always")
sp.finalize(verbose=False)
"""


def run(tmp_path, how, limit, rounds):
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(limit), str(rounds)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    path = next(str(tmp_path / name) for name in os.listdir(tmp_path) if name.endswith(".spool" if how == "kill" else ".h5"))
    return process, sp.load(path), int(process.stdout)


@pytest.mark.parametrize(("limit", "rounds"), [(4 * MIB, 30_000), (70 * MIB, 400_000)])
@pytest.mark.parametrize("how", ["write", "kill"])
def test_the_newest_calls_are_kept_whole(tmp_path, capsys, how, limit, rounds):
    process, found, taken = run(tmp_path, how, limit, rounds)
    total = 2 * (1 + 5 * rounds) + 1
    dropped, until = found.metadata["dropped_calls"], found.metadata["dropped_until_ns"]
    assert found.metadata["recording_limited"] and 0 < dropped < total
    assert sum(found[name].num_calls for name in found.region_names) == total - dropped
    assert "lost_calls" not in found.metadata and "recovered_damaged_bytes" not in found.metadata
    assert taken <= limit + 4 * MIB and (total - dropped) * 24 > limit / 3
    for thread in ("t0", "t1"):
        if f"{thread} leaf" not in found.region_names:  # it had ended before the other one began
            continue
        parts = {name: found[f"{thread} {name}"][0] for name in ("all", "outer", "inner", "leaf")}
        kept = parts["leaf"].num_calls // 3
        assert abs(parts["outer"].num_calls - kept) <= 2 and abs(parts["inner"].num_calls - kept) <= 2
    assert until > 0
    if how == "write":
        assert f"{dropped} calls, the oldest, were dropped to keep newer ones" in process.stderr
    else:
        [spool] = [str(tmp_path / name) for name in os.listdir(tmp_path) if name.endswith(".spool")]
        assert main(["recover", spool, "-o", str(tmp_path / "r.h5")]) == 0
        assert f"to keep newer ones ({dropped})" in capsys.readouterr().out
        assert found["open"][0].event_metadata == ({"open": True},)


def test_what_encloses_kept_calls_stays_and_nothing_has_a_caller_that_went(tmp_path):
    _, found, _ = run(tmp_path, "write", 4 * MIB, 30_000)
    calls = []
    for name in found.region_names:
        part = found[name][0]
        calls += list(
            zip(
                np.asarray(part.call_ids).tolist(),
                np.asarray(part.parent_ids).tolist(),
                [name] * part.num_calls,
                np.asarray(part.start_times).tolist(),
                np.asarray(part.end_times).tolist(),
                strict=True,
            )
        )
    by_id = {call[0]: call for call in calls}
    above = {"outer": "all", "inner": "outer", "leaf": "inner"}
    newest = {"t0": 0, "t1": 0}
    for _, parent, name, start, end in calls:
        if name == "open":
            continue
        thread, kind = name.split()
        if kind == "all":
            assert parent == -1
            continue
        if parent == -1:  # "all" had ended before the calls behind it, so it may have gone
            assert f"{thread} all" not in found.region_names or start >= found[f"{thread} all"][0].end_times.max()
            continue
        around = by_id[parent]
        assert around[2].split()[0] == thread and around[3] <= start and end <= around[4]
        newest[thread] += around[2] == f"{thread} {above[kind]}"
    assert sum(newest.values()) > 20_000


def test_a_checkpoint_makes_room_and_a_program_may_go_on(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", checkpoint="numbered", spool_limit=4 * MIB, spool_policy="newest")
    written = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            for _ in range(250_000):
                with pm.region("a"):
                    pass
            pm.finalize(verbose=False)
    for number in (1, 2, 3):
        found = sp.load(tmp_path / f"p.{number:04d}.h5")
        written += found["a"].num_calls
    assert written + found.metadata["dropped_calls"] == 750_000
    assert any("dropped to keep newer ones" in str(warning.message) for warning in told)


def test_under_stop_the_file_says_that_recording_was_limited(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", spool_limit=4 * MIB)
    for _ in range(300_000):
        with pm.region("a"):
            pass
    with pytest.warns(RuntimeWarning, match="recording stopped at the limit of the spool's size: .* are missing"):
        pm.finalize(verbose=False)
    found = sp.load(tmp_path / "p.h5")
    assert found.metadata["recording_limited"]
    assert found["a"].num_calls + found.metadata["dropped_calls"] == 300_000
    # Every call that began later is missing, until the run was written.
    assert found.metadata["dropped_until_ns"] == found.metadata["finalize_time_ns"] > found["a"][0].end_times_ns.max()
    assert np.diff(found["a"][0].start_times).min() >= 0


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("tasks", [False, True])
def test_under_stop_most_of_the_limit_is_calls(pm, tmp_path, limit, tasks):
    """Calls take 24 bytes (32 with tasks), and little goes for anything else: the smallest limit is of use."""
    pm.setup(output=tmp_path / "p.h5", spool_limit=limit * MIB, track_async=tasks)
    region, count = pm.region("a"), limit * MIB // 20
    for _ in range(count):
        with region:
            pass
    [spool] = tmp_path.glob("*.spool")
    assert os.stat(spool).st_blocks * 512 <= limit * MIB
    recovered = sp.load(spool)
    with pytest.warns(RuntimeWarning, match="recording stopped at the limit of the spool's size"):
        pm.finalize(verbose=False)
    found = sp.load(tmp_path / "p.h5")
    kept = found["a"].num_calls
    assert 0.85 * limit * MIB < kept * (32 if tasks else 24) < limit * MIB
    assert kept + found.metadata["dropped_calls"] == count
    assert recovered["a"].num_calls == kept and recovered.metadata["recording_limited"] is True


def test_under_stop_tasks_and_threads_share_the_smallest_limit(python, tmp_path):
    python(
        """
import asyncio, os, threading, scope_profiler as sp
def enter(name):
    region = sp.region(name)
    for _ in range(60_000):
        with region: pass
async def work(name): enter(name)
async def main():
    for name in "ab": await asyncio.create_task(work(name))
sp.setup(output="p.h5", track_async=True, spool_limit=1 << 20)
thread = threading.Thread(target=enter, args=("thread",)); thread.start(); thread.join()
asyncio.run(main())
os.kill(os.getpid(), 9)
""",
        check=False,
    )
    [spool] = tmp_path.glob("*.spool")
    assert os.stat(spool).st_blocks * 512 <= MIB
    found = sp.load(spool)
    assert found.metadata["recording_limited"] is True and "recovered_damaged_bytes" not in found.metadata
    assert found["thread"].num_calls > 20_000


def test_the_environment_chooses_limit_and_policy(pm, tmp_path, monkeypatch):
    monkeypatch.setenv("SCOPE_PROFILER_SPOOL_LIMIT", str(4 * MIB))
    monkeypatch.setenv("SCOPE_PROFILER_SPOOL_POLICY", "newest")
    pm.setup(output=tmp_path / "p.h5")
    for _ in range(300_000):
        with pm.region("a"):
            pass
    with pytest.warns(RuntimeWarning, match="dropped"):
        pm.finalize(verbose=False)
    assert sp.load(tmp_path / "p.h5").metadata["dropped_calls"] > 100_000
    pm.reset()
    for name, value in (("LIMIT", "much"), ("LIMIT", "12"), ("POLICY", "oldest")):
        with monkeypatch.context() as other:
            other.setenv(f"SCOPE_PROFILER_SPOOL_{name}", value)
            with pytest.raises(ValueError, match=f"SCOPE_PROFILER_SPOOL_{name}"):
                pm.setup(output=tmp_path / "q.h5")
    with pytest.raises(ValueError, match="spool_policy"):
        ProfilingConfig(spool_policy="oldest")
