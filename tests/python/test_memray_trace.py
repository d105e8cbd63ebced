"""use_memray, with the real package: its own reader finds the allocations of the program, under the program's functions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import scope_profiler as sp
from scope_profiler.memray import MemrayAllocationTracker, ranked

memray = pytest.importorskip("memray")

# Sanitizers and memray both want to be the allocator.
pytestmark = [pytest.mark.uninstrumented, pytest.mark.beside]

# The program allocates two blocks of known size, one of them in a function that a region is about.
PROGRAM = """
import mmap, os, sys
import scope_profiler as sp

def in_region():
    return bytearray(40_000_000)

def beside():
    return bytearray(20_000_000)

def deeper(levels, make):
    return deeper(levels - 1, make) if levels else make()

"""


def run(tmp_path, code, **environment):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + code)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def large(path, attribute="get_high_watermark_allocation_records"):
    """{size: names of the functions, innermost first} of the allocations of more than 10 MB."""
    reader = memray.FileReader(str(path))
    return {record.size: [frame[0] for frame in record.stack_trace()] for record in getattr(reader, attribute)() if record.size > 10_000_000}


def test_allocations_are_found_under_the_functions_that_made_them(tmp_path):
    code = """
sp.setup(output="p.h5", use_memray=True)
with sp.region("work"):
    one = deeper(3, in_region)
two = beside()
print(sp.finalize(verbose=False, return_results=True)["work"].num_calls)
after = bytearray(90_000_000)
"""
    assert run(tmp_path, code) == "1\n"
    assert large(tmp_path / "p.memray.bin") == {
        40_000_001: ["in_region", "deeper", "deeper", "deeper", "deeper", "<module>"], 20_000_001: ["beside", "<module>"],
    }  # fmt: skip
    assert sp.load(tmp_path / "p.h5")["work"].num_calls == 1


def test_a_session_traces_from_its_start_to_its_end(tmp_path):
    code = """
def main():
    with sp.session(output=None, verbose=False, use_memray=True, memory_profile_path="here.bin"):
        one = in_region()
    two = beside()
main()
"""
    run(tmp_path, code)
    assert large(tmp_path / "here.bin") == {40_000_001: ["in_region", "main", "<module>"]}


def test_an_older_trace_is_replaced(tmp_path):
    code = """
for make in (in_region, beside):
    sp.setup(output="p.h5", use_memray=True)
    kept = make()
    sp.finalize(verbose=False)
"""
    run(tmp_path, code)
    assert set(large(tmp_path / "p.memray.bin")) == {20_000_001}


def test_the_allocators_of_python_and_native_frames_can_be_traced(tmp_path):
    code = """
def small():
    return [float(i) for i in range(50_000)]
for path, settings in (("plain.bin", {}), ("python.bin", {"memray_trace_python_allocators": True}), ("native.bin", {"memray_native_traces": True})):
    sp.setup(output=None, use_memray=True, memory_profile_path=path, replace=True, **settings)
    kept = small()
    sp.finalize(verbose=False)
"""
    run(tmp_path, code)
    counts = {name: memray.FileReader(str(tmp_path / f"{name}.bin")).metadata.total_allocations for name in ("plain", "python", "native")}
    assert counts["python"] > counts["plain"] + 40_000  # one for each float
    native = {name: memray.FileReader(str(tmp_path / f"{name}.bin")).metadata.has_native_traces for name in counts}
    assert native == {"plain": False, "python": False, "native": True}


@pytest.mark.parametrize("follow", [False, True])
def test_children_are_followed_if_asked_for(tmp_path, follow):
    code = f"""
sp.setup(output=None, use_memray=True, memory_profile_path="p.bin", memray_follow_fork={follow})
child = os.fork()
if child == 0:
    kept = in_region()
    os._exit(0)
os.waitpid(child, 0)
kept = beside()
sp.finalize(verbose=False)
"""
    run(tmp_path, code)
    assert set(large(tmp_path / "p.bin")) == {20_000_001}
    assert len(list(tmp_path.glob("p.bin.*"))) == follow
    for path in tmp_path.glob("p.bin.*"):
        assert 40_000_001 in large(path)


def test_a_run_that_is_given_up_ends_its_trace(tmp_path):
    code = """
sp.setup(output=None, use_memray=True, memory_profile_path="first.bin")
sp.setup(output=None, use_memray=True, memory_profile_path="second.bin", replace=True)
one = in_region()
sp.reset()
two = beside()
sp.setup(output=None, use_memray=True, memory_profile_path="third.bin")
sp.finalize(verbose=False)
"""
    run(tmp_path, code)
    assert large(tmp_path / "first.bin") == {} == large(tmp_path / "third.bin") and set(large(tmp_path / "second.bin")) == {40_000_001}


def test_a_second_manager_cannot_trace_and_is_told_at_setup(tmp_path):
    code = """
one, two = sp.ProfileManager(), sp.ProfileManager()
one.setup(output=None, use_memray=True, memory_profile_path="one.bin")
try: two.setup(output=None, use_memray=True, memory_profile_path="two.bin")
except RuntimeError as error: print(error)
print(two.is_configured(), one.is_active())
one.finalize(verbose=False)
two.setup(output=None, use_memray=True, memory_profile_path="two.bin")
two.finalize(verbose=False)
"""
    told, states = run(tmp_path, code).splitlines()
    assert told.startswith("use_memray: ") and states == "False True"


def test_the_trace_is_complete_when_the_program_ends_by_itself(tmp_path):
    run(tmp_path, 'sp.setup(output="p.h5", use_memray=True, auto_finalize=True)\nkept = in_region()\n')
    assert set(large(tmp_path / "p.memray.bin")) == {40_000_001}


def test_threads_are_traced_and_the_starting_one_is_not_in_the_run(tmp_path):
    code = """
import threading
sp.setup(output="p.h5", use_memray=True, track_threads=True)
kept = []
thread = threading.Thread(target=lambda: kept.append(in_region()), name="worker")
thread.start()
thread.join()
print([thread.name for thread in sp.finalize(verbose=False, return_results=True).threads[0]])
"""
    assert run(tmp_path, code) in ("['MainThread', 'worker']\n", "['worker', 'MainThread']\n", "['worker']\n")
    assert large(tmp_path / "p.memray.bin")[40_000_001][:2] == ["in_region", "<lambda>"]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"memory_profile_path": "missing/p.bin"}, OSError, "memory_profile_path.*does not exist"),
        ({"memory_profile_path": ""}, ValueError, "memory_profile_path"),
        ({"memory_profile_path": 3}, TypeError, "memory_profile_path"),
        ({"memray_native_traces": "no"}, TypeError, "memray_native_traces"),
        ({"memray_follow_fork": []}, TypeError, "memray_follow_fork"),
    ],
)
def test_what_is_wrong_is_told_at_setup(pm, tmp_path, monkeypatch, settings, error, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        pm.setup(output=None, use_memray=True, **settings)
    assert not pm.is_configured() and os.listdir(tmp_path) == []


def test_the_trace_cannot_go_where_the_profile_goes(pm, tmp_path):
    with pytest.raises(ValueError, match="memory_profile_path.*is where the profile goes"):
        pm.setup(output=tmp_path / "p.h5", use_memray=True, memory_profile_path=f"{tmp_path}/./p.h5")
    assert not pm.is_configured()


def test_a_missing_package_is_told_at_setup(pm, monkeypatch):
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(ImportError, match=r"use_memray needs the package memray.*pip install"):
        pm.setup(output=None, use_memray=True)
    assert not pm.is_configured()


def test_the_path_is_known_and_goes_into_full_metadata(tmp_path):
    code = """
sp.setup(output="p.h5", use_memray=True, metadata_detail="full")
print(sp.ProfileManager.get_config().memory_profile_path)
print(sp.finalize(verbose=False, return_results=True).metadata["memory_profile_path"])
"""
    assert [os.path.basename(line) for line in run(tmp_path, code).split()] == ["p.memray.bin"] * 2


def test_a_verbose_finalize_says_where_the_trace_is(tmp_path):
    assert "allocations: p.memray.bin" in run(tmp_path, 'sp.setup(output="p.h5", use_memray=True)\nsp.finalize()\n').splitlines()


def test_ranks_have_names_of_their_own():
    assert ranked("a/run.memray.bin", 3) == "a/run.memray.rank3.bin" and ranked("x", 0) == "x.rank0"


def test_the_tracker_by_itself(tmp_path):
    code = """
from scope_profiler.memray import MemrayAllocationTracker
tracker = MemrayAllocationTracker("t.bin")
tracker.start()
kept = in_region()
tracker.stop(); tracker.stop()
"""
    run(tmp_path, code)
    assert set(large(tmp_path / "t.bin")) == {40_000_001}
    assert MemrayAllocationTracker(tmp_path / "never.bin").path == tmp_path / "never.bin"


def test_run_memory_profile_writes_beside_the_profile(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM + "kept = in_region()\n")
    command = [sys.executable, "-m", "scope_profiler", "run", "-o", "out.h5", "--memory-profile", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "allocations: out.memray.bin" in done.stdout.splitlines(), done.stdout + done.stderr
    assert large(tmp_path / "out.memray.bin")[40_000_001][:2] == ["in_region", "<module>"] and (tmp_path / "out.h5").exists()
