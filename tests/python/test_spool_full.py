"""A spool that finds no room: its calls stay in memory, and what would be lost is counted and told."""

import os
import re
import signal
import subprocess
import sys

import pytest

import scope_profiler as sp
from scope_profiler.cli import main

PROGRAM = """
import os, resource, signal, sys, threading, warnings, scope_profiler as sp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sp.setup(output="p.h5", track_threads=True)
def calls(name, count):
    region = sp.region(name)
    for _ in range(count):
        with region: pass
calls("before", 1000)
[spool] = [name for name in os.listdir() if name.endswith(".spool")]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(spool), resource.RLIM_INFINITY))
calls("before", 200_000)
threads = [threading.Thread(target=calls, args=(f"thread {i}", 5000)) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for i in range(5000): calls(f"region {i}", 1)
if sys.argv[1] == "kill": os.kill(os.getpid(), signal.SIGKILL)
room = resource.RLIM_INFINITY if sys.argv[1] == "room" else 1000
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
warnings.simplefilter("always")
sp.finalize(verbose=False)
"""
TOTAL = 201_000 + 3 * 5000 + 5000


def run(tmp_path, how):
    process = subprocess.run([sys.executable, "-c", PROGRAM, how], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    spools = [name for name in os.listdir(tmp_path) if name.endswith(".spool")]
    return process, str(tmp_path / spools[0]) if spools else None


def calls_in(results):
    return sum(results[name].num_calls for name in results.region_names)


def test_a_finalize_that_fails_counts_what_is_in_memory_only(tmp_path):
    process, spool = run(tmp_path, "stay")
    assert process.returncode == 1 and "OSError" in process.stderr
    [told] = re.findall(r"RuntimeWarning: (\d+) calls are in no file and not in the spool, which had no room", process.stderr)
    found = sp.load(spool)
    assert 0 < int(told) < TOTAL and calls_in(found) == TOTAL - int(told)
    assert found.metadata["recovered_incomplete"] and "recovered_damaged_bytes" not in found.metadata


def test_with_room_for_the_file_nothing_is_missing(tmp_path):
    process, spool = run(tmp_path, "room")
    assert (process.returncode, process.stderr, spool) == (0, "", None)
    assert calls_in(sp.load(tmp_path / "p.h5")) == TOTAL


def test_after_a_kill_the_spool_says_that_it_was_full(tmp_path, capsys):
    process, spool = run(tmp_path, "kill")
    assert process.returncode == -signal.SIGKILL
    assert main(["recover", spool, "-o", str(tmp_path / "r.h5")]) == 0
    assert "the disk was full" in capsys.readouterr().out
    found = sp.load(tmp_path / "r.h5")
    assert found.metadata["recovered_incomplete"] and 0 < found["before"].num_calls <= 201_000


@pytest.mark.parametrize("how", ["stay", "kill"])
def test_the_other_calls_are_whole(tmp_path, how):
    _, spool = run(tmp_path, how)
    part = sp.load(spool)["before"][0]
    assert (part.start_times[1:] >= part.end_times[:-1]).all()
