"""Forked children: they have the parent's profiling state, and leave its report to the parent."""

import pytest

import scope_profiler as sp
from manager_helpers import counts

HEAD = """
import os, sys, warnings, threading, scope_profiler as sp
warnings.simplefilter("error")
def enter(name, manager=sp):
    with manager.region(name): pass
def wait(pid):
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status
"""


def run(python, body):
    return python(HEAD + body)


def test_a_child_that_leaves_the_parents_block_writes_and_prints_nothing(python, tmp_path):
    process = run(
        python,
        """
with sp.session(output="p.h5", track_threads=True) as session:
    enter("parent")
    pid = os.fork()
    if pid:
        wait(pid)
        print(os.path.exists("p.h5"), flush=True)
    else:
        enter("child")
if not pid:
    assert session.results is None and not sp.is_active()
    sys.exit(0)
""",
    )
    assert process.stdout.startswith("False\n") and process.stdout.count("scope_profiler.session") == 1
    assert process.stderr == ""
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1}


def test_a_child_that_ends_by_an_exception_inside_the_block(python, tmp_path):
    run(
        python,
        """
try:
    with sp.session(output="p.h5", verbose=False):
        pid = os.fork()
        if not pid: raise KeyError("child")
        wait(pid)
        enter("parent")
except KeyError as error:
    assert not pid and error.__context__ is None
    sys.exit(0)
""",
    )
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1}


def test_auto_finalize_is_the_parents(python, tmp_path):
    process = run(
        python,
        """
sp.setup(output="p.h5", auto_finalize=True)
enter("parent")
pid = os.fork()
if not pid:
    enter("child")
    sys.exit(0)
wait(pid)
assert not os.path.exists("p.h5")
""",
    )
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1} and process.stdout.count("parent") == 1


def test_an_explicit_finalize_in_the_child_reports_both(python, tmp_path):
    run(
        python,
        """
with sp.session(output="p.h5", verbose=False):
    enter("before")
    pid = os.fork()
    if not pid:
        enter("child")
        sp.finalize(verbose=False)
        os._exit(0)
    wait(pid)
    assert sorted(sp.load("p.h5").region_names) == ["before", "child"]
    enter("after")
""",
    )
    assert counts(sp.load(tmp_path / "p.h5")) == {"before": 1, "after": 1}


@pytest.mark.parametrize("same", [True, False])
def test_a_session_of_the_child_starts_empty(python, tmp_path, same):
    run(
        python,
        f"""
with sp.session(output="p.h5", verbose=False, track_threads=True):
    enter("before")
    with sp.region("open"):
        pid = os.fork()
        if not pid:
            manager = sp if {same} else sp.ProfileManager()
            with manager.session(output="child.h5", verbose=False, return_results=True, track_threads=True) as run:
                enter("child", manager)
                thread = threading.Thread(target=enter, args=("worker", manager)); thread.start(); thread.join()
            assert len(run.results.threads[0]) == 2
            os._exit(0)
        wait(pid)
""",
    )
    assert counts(sp.load(tmp_path / "child.h5")) == {"child": 1, "worker": 1}
    assert counts(sp.load(tmp_path / "p.h5")) == {"before": 1, "open": 1}


def test_pools_of_every_start_method(python, tmp_path):
    (tmp_path / "workers.py").write_text(
        """
import scope_profiler as sp
def work(index):
    manager = sp.ProfileManager()
    with manager.session(file_path=f"worker_{index}.h5", track_threads=True, verbose=False):
        for _ in range(index + 1):
            with manager.region("w"): pass
    return index
"""
    )
    process = run(
        python,
        """
import multiprocessing, workers
if __name__ == "__main__":
    with sp.session(output="p.h5", verbose=False, track_threads=True):
        enter("main")
        for k, method in enumerate(("fork", "spawn", "forkserver")):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(workers.work, range(2 * k, 2 * k + 2)) == [2 * k, 2 * k + 1]
""",
    )
    assert process.stdout == ""
    assert [counts(sp.load(tmp_path / f"worker_{k}.h5")) for k in range(6)] == [{"w": k + 1} for k in range(6)]
    assert counts(sp.load(tmp_path / "p.h5")) == {"main": 1}


def test_a_lock_held_at_the_fork_is_free_in_the_child(python):
    run(
        python,
        """
import time
from scope_profiler.recording import Recording
describe = Recording._describe
inside, go = threading.Event(), threading.Event()
def slow(self, profile):
    if os.getpid() == parent:
        inside.set(); go.wait(20)
    return describe(self, profile)
parent = os.getpid()
Recording._describe = slow
sp.setup(output=None)
enter("a")
thread = threading.Thread(target=sp.finalize, kwargs={"verbose": False}); thread.start()
inside.wait()
pid = os.fork()
if not pid:
    assert sp.finalize(verbose=False, return_results=True)["a"].num_calls == 1
    os._exit(0)
wait(pid)
go.set(); thread.join()
""",
    )


FORKS_AND_CHECKPOINTS = """
import os, sys, threading, time, scope_profiler as sp
import warnings; warnings.simplefilter("ignore")
sp.setup(output="p.h5", track_threads=True)
with sp.region("a"): pass
sp.finalize(verbose=False, return_results=True)  # what is imported at first use is imported before the first fork
stop = False
def record():
    region, number = sp.region("a"), 0
    while not stop:
        with region: number += 1
        if number % 1000 == 0: time.sleep(0.0005)
def report():
    number = 0
    while not stop:
        sp.finalize(verbose=False, return_results=number % 2 == 1)
        number += 1
threads = [threading.Thread(target=work) for work in (record, record, report)]
for thread in threads: thread.start()
ends = []
for number in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.mkdir(f"child {number}")
            os.chdir(f"child {number}")
            with sp.region("child"): pass
            found = sp.finalize(verbose=False, return_results=True)
            assert found["child"].num_calls == 1
            if "a" in found.region_names:
                part = found["a"][0]
                assert (part.start_times_ns <= part.end_times_ns).all() and (part.start_times_ns > 0).all()
            code = 0
        finally:
            os._exit(code)
    ends.append(os.waitpid(child, 0)[1])
stop = True
for thread in threads: thread.join()
print(sorted(set(ends)))
"""


@pytest.mark.slow
def test_children_report_while_their_parent_records_and_reports(python, scale):
    """What the parent marks and takes up again after the fork is not in what the child has."""
    assert python(FORKS_AND_CHECKPOINTS, str(scale(60, 1000))).stdout == "[0]\n"
