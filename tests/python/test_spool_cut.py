"""A spool that somebody cuts off while it is in use: the process that records goes on and says what is missing, readers give one error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.cli import main

pytestmark = pytest.mark.uninstrumented  # sanitizers have a handler of their own

Program = Callable[..., "subprocess.CompletedProcess[str]"]

# Calls before the cut, and behind it. What is told and found goes to standard output.
RECORD = """
import asyncio, faulthandler, json, os, sys, threading, time, warnings
import scope_profiler as sp
settings, size = json.loads(sys.argv[1]), int(sys.argv[2])
sp.setup(output="run.h5", **settings)
spool = sp.ProfileManager._state.recording.run.spool_path
outer, inner = sp.region("outer"), sp.region("inner")

def record(number):
    for _ in range(number):
        with outer:
            with inner: pass

def cut():
    os.truncate(spool, size)

def finalize():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = sp.finalize(verbose=False, return_results=True)
    counts = {name: results[name].num_calls for name in results.region_names}
    print(json.dumps({"told": [str(one.message) for one in told], "counts": counts, "lost": results.metadata.get("lost_calls", 0)}))
    return results
"""

SETTINGS = {"plain": {}, "threads": {"track_threads": True}, "tasks": {"track_async": True}}
FEW, MANY = 20_000, 60_000


@pytest.mark.parametrize("size", [0, 4096, 100_000, 2_500_000])
@pytest.mark.parametrize("settings", SETTINGS)
def test_recording_goes_on_in_memory_and_what_is_missing_is_counted(
    python: Program, tmp_path: Path, settings: str, size: int
) -> None:
    program = """
record(MANY)
with sp.region("around"):  # its begin goes, its end comes
    cut()
    record(FEW)
finalize()
record(FEW)
finalize()
"""
    source = RECORD + program.replace("MANY", str(MANY)).replace("FEW", str(FEW))
    done = python(source, json.dumps(SETTINGS[settings]), str(size))
    first, second = map(json.loads, done.stdout.splitlines())
    [text] = first["told"]
    assert ".spool was cut off" in text and f" {first['lost']} calls that were in it are missing" in text
    assert sum(first["counts"].values()) + first["lost"] == 2 * (MANY + FEW) + 1
    assert first["lost"] > 0 and first["counts"]["outer"] >= FEW
    assert second["counts"] == {"outer": FEW, "inner": FEW} and second["told"] == [], "and it is told once"


def test_a_run_that_keeps_its_newest_calls_goes_on_too(python: Program) -> None:
    program = """
record(60_000)
cut()
record(60_000)
finalize()
record(100)
finalize()
"""
    done = python(RECORD + program, json.dumps({"spool_limit": 1 << 21, "spool_policy": "newest"}), "4096")
    first, second = map(json.loads, done.stdout.splitlines())
    assert any("was cut off" in text for text in first["told"]) and first["counts"]["inner"] > 1000
    assert second["counts"] == {"outer": 100, "inner": 100} and second["told"] == []


def test_tasks_keep_their_lanes(python: Program) -> None:
    """Rows of tasks were in the spool too: their calls may not become those of another task."""
    program = """
async def job(number):
    region = sp.region(f"job {number}")
    for _ in range(20):
        with region: await asyncio.sleep(0)

async def main():
    tasks = [asyncio.create_task(job(number)) for number in range(200)]
    for _ in range(3): await asyncio.sleep(0)
    cut()
    await asyncio.gather(*tasks)

asyncio.run(main())
results = finalize()
ids = {name: set(results[name][0].task_ids) for name in results.region_names}
assert len(ids) == 200 and all(len(found) == 1 for found in ids.values()), ids
assert len(set.union(*ids.values())) == 200, ids
"""
    done = python(RECORD + program, json.dumps({"track_async": True}), "0")
    told = json.loads(done.stdout)
    assert sum(told["counts"].values()) + told["lost"] == 200 * 20


def test_sums_go_on_from_nothing(python: Program) -> None:
    program = """
record(1000)
with sp.region("around"):
    cut()
    record(10)
results = finalize()
assert 0 < results["outer"][0].min_duration < 1  # that of a call with nothing in it may be 0 ns
record(5)
finalize()
"""
    done = python(RECORD + program, json.dumps({"aggregation_mode": True}), "0")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["counts"] == {"outer": 10, "inner": 10, "around": 1}
    assert any("was cut off" in text for text in first["told"])
    assert second["counts"] == {"outer": 5, "inner": 5} and second["told"] == []


def test_threads_that_record_meanwhile_all_go_on(python: Program) -> None:
    program = """
def work():
    for _ in range(300):
        record(200)

threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for share in range(4):
    size = 3_000_000 >> share
    time.sleep(0.02)
    cut()
for thread in threads: thread.join()
finalize()
"""
    done = python(RECORD + program, json.dumps({"track_threads": True}), "0")
    told = json.loads(done.stdout)
    assert sum(told["counts"].values()) + told["lost"] == 6 * 300 * 200 * 2


def test_a_fork_behind_the_cut_and_an_end_without_finalize(python: Program) -> None:
    program = """
record(30_000)
cut()
child = os.fork()
if child == 0:
    record(10)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
record(10)
print(sp.ProfileManager._state.recording.run.unsaved > 0)
sp.reset()
"""
    done = python(RECORD + program, "{}", "0")
    assert done.stdout.strip() == "True"


def test_a_cut_while_the_file_is_written_is_an_error_and_the_next_end_has_what_is_left(python: Program) -> None:
    program = """
record(300_000)
began = time.perf_counter()
sp.finalize(verbose=False)
taken = time.perf_counter() - began
failed = 0
for moment in range(12):
    sp.setup(output="run.h5", replace=True, **settings)
    spool = sp.ProfileManager._state.recording.run.spool_path
    outer, inner = sp.region("outer"), sp.region("inner")
    record(300_000)
    timer = threading.Timer(taken * moment / 12, cut)
    timer.start()
    try:
        with warnings.catch_warnings(record=True):
            results = sp.finalize(verbose=False, return_results=True)
    except OSError as error:
        assert "was cut off" in str(error), error
        failed += 1
        with warnings.catch_warnings(record=True):
            results = sp.finalize(verbose=False, return_results=True)
    timer.join()
    region = results["inner"][0]
    found = sum(results[name].num_calls for name in results.region_names) + results.metadata.get("lost_calls", 0)
    assert found == 600_000, (moment, found)
    assert (region.end_times_ns >= region.start_times_ns).all() and (region.start_times_ns[1:] >= region.start_times_ns[:-1]).all()
print(failed)
"""
    done = python(RECORD + program, json.dumps({"track_threads": True}), "1000000")
    assert int(done.stdout) > 0


@pytest.mark.parametrize("when", ["before", "behind"])
def test_faulthandler_still_tells_of_other_faults(python: Program, when: str) -> None:
    """Enabled before the run, or in it: then it is the one who gets the signals, and the spool is not watched over."""
    program = """
import mmap
if when == "behind": faulthandler.enable()
record(10)
with open("other", "wb+") as file:
    file.truncate(8192)
    memory = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    print("now", flush=True)
    memory[5000]
"""
    source = f"import faulthandler\nwhen = {when!r}\nif when == 'before': faulthandler.enable()\n" + RECORD + program
    done = python(source, "{}", "0", check=False)
    assert done.returncode == -signal.SIGBUS and done.stdout == "now\n"
    assert done.stderr.count("Fatal Python error: Bus error") == 1


# -- readers --


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool of a million calls of a process that was killed."""
    directory = tmp_path_factory.mktemp("large")
    program = """
import os, scope_profiler as sp
sp.setup(output="run.h5", track_async=True)
a = sp.region("a")
for _ in range(1_000_000):
    with a: pass
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], cwd=directory, check=False)
    [spool] = directory.glob("*.spool")
    return spool


def outcomes(spool: Path, copy: Path, read: Callable[[str], object], share: float = 1) -> list[str]:
    """What reading a spool says that is cut off meanwhile, at moments of the first ``share`` of the time that it takes."""
    shutil.copy(spool, copy)
    began = time.perf_counter()
    read(str(copy))
    taken = time.perf_counter() - began
    said = []
    for moment in range(16):
        shutil.copy(spool, copy)
        timer = threading.Timer(share * taken * moment / 16, os.truncate, (copy, (0, 8192, 1_000_000)[moment % 3]))
        timer.start()
        try:
            read(str(copy))
            said.append("")
        except (sp.CorruptProfileError, ValueError, OSError) as error:
            said.append(str(error))
        timer.join()
    return said


@pytest.mark.parametrize("how", ["load", "watch"])
def test_a_spool_that_is_cut_off_while_it_is_read_is_one_error(large: Path, tmp_path: Path, how: str) -> None:
    def watch(path: str) -> None:
        watched = _core.watch_spool(path)
        for _ in range(3):
            _core.watch_look(watched)
            time.sleep(0.01)

    said = outcomes(large, tmp_path / "cut.spool", sp.load if how == "load" else watch)
    assert any("cut.spool was cut off, or its disk failed, while it was read" in text for text in said), said
    assert all(not text or "cut.spool" in text for text in said), said


def test_the_command_says_so_on_one_line(large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def recover(path: str) -> None:
        status = main(["recover", "--keep", path, "-o", str(tmp_path / "out.h5")])
        told = capsys.readouterr()
        if status:
            assert status == 2 and told.err.count("\n") == 1
            raise ValueError(told.err)

    said = outcomes(large, tmp_path / "cut.spool", recover, 0.25)  # the rest is writing
    assert any("was cut off" in text for text in said), said
