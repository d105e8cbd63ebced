"""use_likwid: markers around calls, and what LIKWID counted. The real package runs here without counters to count with; for
numbers a stand-in of it (tests/fakes/pylikwid) writes the same files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import scope_profiler as sp
from scope_profiler.likwid_markers import parse_marker_file

FAKES = str(Path(__file__).parents[1] / "fakes")

BEFORE = """
import threading, pylikwid, scope_profiler as sp
def finish(**options):
    results = sp.finalize(verbose=False, return_results=True)
    print(pylikwid.misuse)
    return results
"""


@pytest.fixture
def run(tmp_path):
    """A program with the stand-in, as likwid-perfctr -m would start it."""

    def start(code, counting=True, **environment):
        path = tmp_path / "program.py"
        path.write_text(BEFORE + code)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("LIKWID_")}
        if counting:
            variables.update(LIKWID_FILEPATH=str(tmp_path / "markers"), LIKWID_EVENTS="WORKING", LIKWID_THREADS="0,1", LIKWID_MODE="1")
        # -P: the directory of this test's program has no pylikwid either
        variables.update(PYTHONPATH=os.pathsep.join([FAKES, variables.get("PYTHONPATH", "")]), **environment)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, env=variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    return start


WORK = """
sp.setup(output="p.h5", use_likwid=True)
with sp.region("solve"):
    pylikwid.work(5)
    with sp.region("a-b/c"):
        pylikwid.work(2)
for _ in range(2):
    with sp.region("solve"): pylikwid.work(10)
def other():
    with sp.region("solve"): pylikwid.work(1000)
thread = threading.Thread(target=other); thread.start(); thread.join()
finish()
"""


def test_counters_have_their_names_and_metrics_thread_by_thread(run, tmp_path):
    assert run(WORK) == (["[]"], "")
    results = sp.load(tmp_path / "p.h5")
    assert set(results.get_likwid_regions(0)) == {"solve", "a-b/c"} and results.has_likwid and results.likwid_ranks == [0]
    solve = results.get_likwid_region("solve")
    assert (solve.group_id, solve.group_name, solve.source) == (0, "WORKING", "full_api")
    assert (solve.event_names, solve.counter_names, solve.metric_names) == (["WORK", "STARTS"], ["PMC0", "PMC1"], ["Work per start"])
    assert solve.cpus == [0, 1] and solve.call_counts.tolist() == [3, 1]
    assert solve.events.tolist() == [[27.0, 1000.0], [3.0, 1.0]] and solve.metrics.tolist() == [[9.0, 1000.0]]
    assert (solve.times > 0).all()
    assert results.get_likwid_region("a-b/c").events.tolist() == [[2.0], [1.0]]
    with h5py.File(tmp_path / "p.h5") as file:
        group = file["rank0/likwid"]
        assert group.attrs["num_regions"] == 2 and group.attrs["LIKWID_EVENTS"] == "WORKING" and group.attrs["LIKWID_MODE"] == "1"
        assert set(group["regions"]) == {"solve", "a-b|c"} and group["regions/a-b|c"].attrs["tag"] == "a-b/c"


def test_counters_go_through_json(run, tmp_path):
    run(WORK.replace("p.h5", "p.json"))
    solve = sp.load(tmp_path / "p.json").get_likwid_region("solve")
    assert solve.events.tolist() == [[27.0, 1000.0], [3.0, 1.0]] and solve.source == "full_api"


@pytest.mark.parametrize("how", ["crash", "refuse"])
def test_where_likwid_cannot_read_its_file_the_numbers_are_read_without_it(run, tmp_path, how):
    assert run(WORK, FAKE_LIKWID_COUNTERS=how) == (["[]"], "")
    solve = sp.load(tmp_path / "p.h5").get_likwid_region("solve")
    assert (solve.source, solve.event_names, solve.metric_names) == ("marker_file", ["event_0", "event_1"], [])
    assert solve.events.tolist() == [[27.0, 1000.0], [3.0, 1.0]] and solve.cpus == [0, 1] and solve.call_counts.tolist() == [3, 1]


def test_where_there_is_no_file_the_finalizing_thread_has_its_numbers(run, tmp_path):
    assert run(WORK, FAKE_LIKWID_WRITES="0") == (["[]"], "")
    results = sp.load(tmp_path / "p.h5")
    solve = results.get_likwid_region("solve")
    assert (solve.source, solve.events.tolist(), solve.call_counts.tolist()) == ("marker_api", [[27.0], [3.0]], [3])
    assert results.get_likwid_region("a-b/c").events.tolist() == [[2.0], [1.0]]


def test_recursive_calls_start_their_region_once(run, tmp_path):
    run(
        """
sp.setup(output="p.h5", use_likwid=True)
@sp.profile
def down(n):
    pylikwid.work(1)
    if n: down(n - 1)
down(4); down(0)
finish()
"""
    )
    down = sp.load(tmp_path / "p.h5").get_likwid_region("down")
    assert down.events.tolist() == [[6.0], [2.0]] and down.call_counts.tolist() == [2]


def test_a_call_that_another_thread_ends_is_stopped_by_its_own(run, tmp_path):
    printed, _ = run(
        """
sp.setup(output="p.h5", use_likwid=True)
region = sp.region("moved")
entered, left = threading.Event(), threading.Event()
def work():
    region.__enter__(); pylikwid.work(3); entered.set(); left.wait()
    with sp.region("next"): pass
thread = threading.Thread(target=work); thread.start(); entered.wait()
region.__exit__(None, None, None); left.set(); thread.join()
finish()
"""
    )
    assert printed == ["[]"]
    assert sp.load(tmp_path / "p.h5").get_likwid_region("moved").events.tolist() == [[3.0], [1.0]]


def test_counting_ends_with_the_first_finalize_and_memory_runs_keep_the_numbers(run):
    printed, _ = run(
        """
sp.setup(output=None, use_likwid=True)
for _ in range(2):
    with sp.region("r"): pylikwid.work(1)
    print(finish().get_likwid_region("r").events.tolist())
"""
    )
    assert printed == ["[]", "[[1.0], [1.0]]"] * 2


def test_one_run_of_the_process_has_the_markers(run):
    printed, _ = run(
        """
one, two = sp.ProfileManager(), sp.ProfileManager()
one.setup(output=None, use_likwid=True)
try: two.setup(output=None, use_likwid=True)
except RuntimeError as error: print(error)
print(two.is_configured())
one.finalize(verbose=False)
two.setup(output=None, use_likwid=True)
two.setup(output=None, use_likwid=True, replace=True)
two.reset()
print(pylikwid.misuse)
"""
    )
    assert printed == ["use_likwid: another run of this process has LIKWID's markers; finalize() it first", "False", "[]"]


def test_a_program_that_likwid_did_not_start_is_timed_and_told(run, tmp_path):
    printed, told = run('sp.setup(output="p.h5", use_likwid=True)\nwith sp.region("r"): pass\nfinish()', counting=False)
    assert "was not started by likwid-perfctr -m" in told and printed == ["[]"]
    results = sp.load(tmp_path / "p.h5")
    assert results["r"].num_calls == 1 and not results.has_likwid


def test_a_missing_package_and_a_missing_library_are_told_at_setup(pm, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pylikwid", None)
    with pytest.raises(ImportError, match=r"use_likwid needs the package pylikwid.*pip install"):
        pm.setup(output=None, use_likwid=True)
    monkeypatch.delitem(sys.modules, "pylikwid")
    (tmp_path / "pylikwid.py").write_text("raise ImportError('liblikwid.so.5.3: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("LIKWID_PREFIX", "LIKWID_HOME", "LIKWID_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImportError, match="does not find LIKWID's library.*LD_LIBRARY_PATH"):
        pm.setup(output=None, use_likwid=True)
    assert not pm.is_configured()


@pytest.mark.parametrize("text", ["", "1", "1 2 1\n0:a-0\n", "1 1 1\n0:a-0\n0 0 x 1 1.0 1 1.0\n", "binary\0stuff", "1 1 1\nno colon\n"])
def test_a_marker_file_that_is_not_one_gives_nothing(tmp_path, text):
    path = tmp_path / "markers"
    path.write_text(text)
    assert parse_marker_file(path) == [] == parse_marker_file(tmp_path / "missing")


def test_a_marker_file_of_likwid_is_read(tmp_path):
    path = tmp_path / "markers"
    path.write_text(
        "2 2 2\n0:solve-0\n1:a:b-c-1\n"
        "0 0 3 7 1.500000e+00 2 1.000000e+03 2.000000e+03 \n0 0 5 7 1.250000e+00 2 1.100000e+03 2.100000e+03 \n"
        "1 1 3 1 5.000000e-01 1 1.000000e+01 \n"
    )
    solve, other = parse_marker_file(path)
    assert (solve.tag, solve.group_id, solve.cpus, solve.times.tolist()) == ("solve", 0, [3, 5], [1.5, 1.25])
    assert solve.events.tolist() == [[1000.0, 1100.0], [2000.0, 2100.0]] and solve.call_counts.tolist() == [7, 7]
    assert (other.tag, other.group_id, other.events.tolist()) == ("a:b-c", 1, [[10.0]])
    assert isinstance(other.events, np.ndarray) and other.source == "marker_file"


@pytest.mark.skipif(importlib.util.find_spec("pylikwid") is None, reason="pylikwid is not installed")
def test_the_real_package_times_regions_where_likwid_counts_nothing(tmp_path):
    code = """
import scope_profiler as sp, warnings
warnings.simplefilter("ignore")
sp.setup(output="p.h5", use_likwid=True)
with sp.region("outer"), sp.region("inner"): pass
sp.finalize(verbose=False)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LIKWID_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(sp.load(tmp_path / "p.h5").region_names) == {"outer", "inner"}


@pytest.mark.skipif(importlib.util.find_spec("pylikwid") is None, reason="pylikwid is not installed")
def test_the_stand_in_has_what_is_used_of_the_real_package():
    spec = importlib.util.spec_from_file_location("stand_in", Path(FAKES) / "pylikwid" / "__init__.py")
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    import pylikwid

    used = {name for name in vars(stand_in) if callable(getattr(stand_in, name)) and not name.startswith("_")} - {"work"}
    assert used <= set(dir(pylikwid))
