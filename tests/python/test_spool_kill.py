"""A process that dies, in whatever way, loses no call that had ended."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import scope_profiler as sp

PROGRAM = Path(__file__).with_name("spool_program.py")

HEAD = """
import asyncio, ctypes, faulthandler, os, resource, signal, sys, threading, time, scope_profiler as sp
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
"""


def spool_of(directory):
    [name] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    return sp.load(directory / name)


def counts(results):
    return {name: results[name].num_calls for name in results.region_names}


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_invent_nothing(tmp_path, scale):
    seed = random.randrange(1 << 30)
    count = scale(12, 1000)
    process = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, str(seed), str(count)], capture_output=True, text=True, timeout=60 + 20 * count
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert int(process.stdout) > 1000 * count


DEATHS = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    "left without clean-up": ("os._exit(3)", 3),
    "aborted": ("os.abort()", -6),
    "segmentation fault": ("ctypes.string_at(8)", -11),
    "fault that is reported": ("faulthandler.enable(); ctypes.string_at(8)", -11),
    "bus error": ("os.kill(os.getpid(), signal.SIGBUS)", -7),
    "out of CPU time": ("resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); [None for _ in iter(int, 1)]", -9),
    "replaced by another program": ("os.execv('/bin/true', ['true'])", 0),
}


@pytest.mark.parametrize("death", DEATHS)
def test_the_way_of_death_does_not_matter(python, tmp_path, death):
    statement, status = DEATHS[death]
    process = python(
        HEAD
        + f"""
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sp.setup(output="p.h5", track_threads=True)
def work():
    enter("worker", 5000)
    with sp.region("sleeping"):
        ready.set(); time.sleep(60)
ready = threading.Event()
threading.Thread(target=work, name="wörker", daemon=True).start()
ready.wait()
enter("main", 2000)
with sp.region("open"):
    {statement}
""",
        check=False,
    )
    assert process.returncode == status, process.stderr
    results = spool_of(tmp_path)
    assert counts(results) == {"worker": 5000, "sleeping": 1, "main": 2000, "open": 1}
    assert [row.name for row in results.threads[0]] == ["MainThread", "wörker"]
    assert results["worker"][0].thread_ids.tolist() == [1] * 5000
    assert [list(results[name][0].event_metadata) for name in ("open", "sleeping")] == [[{"open": True}]] * 2


def test_death_from_another_thread_while_everything_runs(python, tmp_path):
    process = python(
        HEAD
        + """
sp.setup(output="p.h5")
totals = [0] * 4
def work(number):
    region = sp.region(f"r{number}")
    while True:
        with region: pass
        totals[number] += 1
for number in range(4): threading.Thread(target=work, args=(number,), daemon=True).start()
while not all(totals): time.sleep(0.01)  # without the GIL a busy machine takes long to begin them
time.sleep(0.3)
before = list(totals)
print(*before, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        check=False,
    )
    before = list(map(int, process.stdout.split()))
    results = spool_of(tmp_path)
    for number, ended in enumerate(before):
        assert results[f"r{number}"].num_calls >= ended > 0


def test_names_sources_and_tags_are_there(python, tmp_path):
    (tmp_path / "app.py").write_text(
        HEAD
        + """
sp.setup(output="p.h5", capture_region_source=True)
with sp.region("äöü / \\"quoted\\"", tags=("one", "two")):
    pass
names = [f"region {i} " + "x" * (i % 300) for i in range(5000)]
for name in names: enter(name)
enter("y" * 300_000)
os.kill(os.getpid(), 9)
"""
    )
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, timeout=240)
    results = spool_of(tmp_path)
    first = 'äöü / "quoted"'
    assert results.region_names == [first, *(f"region {i} " + "x" * (i % 300) for i in range(5000)), "y" * 300_000]
    region = results[first][0]
    assert region.source_file == "app.py" and region.source_lineno == 8
    assert "pass" in region.source_text and tuple(region.tags) == ("one", "two")


def test_tasks_and_threads_as_far_as_they_were(python, tmp_path):
    python(
        HEAD
        + """
async def ends():
    with sp.region("ended"): await asyncio.sleep(0)
async def waits(event):
    with sp.region("waiting"): await event.wait()
async def main():
    event = asyncio.Event()
    await asyncio.create_task(ends(), name="done")
    rest = [asyncio.create_task(waits(event), name="pending"), asyncio.create_task(waits(event))]
    t = threading.Thread(target=enter, args=("thread",), name="gone"); t.start(); t.join()
    rest[1].set_name("set later")
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), 9)
sp.setup(output="p.h5", track_async=True)
asyncio.run(main())
""",
        check=False,
    )
    results = spool_of(tmp_path)
    tasks = {row.name: row for row in results.tasks[0]}
    assert tasks.keys() >= {"done", "pending", "set later"}
    assert tasks["done"].coro_name == "ends" and tasks["done"].done_time is not None and tasks["done"].steps == 2
    assert tasks["pending"].coro_name == "waits" and tasks["pending"].done_time is None
    main, gone = results.threads[0]
    assert gone.name == "gone" and gone.end_time is not None and main.end_time is None
    waiting = results["waiting"][0]
    assert list(waiting.event_metadata) == [{"open": True}] * 2
    assert set(waiting.task_ids.tolist()) == {tasks["pending"].index, tasks["set later"].index}
    assert results["ended"][0].await_times_ns[0] >= 0


@pytest.mark.parametrize("clock", ["auto", "monotonic"])
def test_calls_of_tasks_that_waited_at_the_end_have_awaited(python, tmp_path, clock):
    """As long as their tasks did since they began: of a task all of whose awaiting is inside of a call, these are the same."""
    python(
        HEAD
        + """
async def job(seconds):
    with sp.region("job"):
        await asyncio.sleep(seconds)
        with sp.region("inner"): await asyncio.sleep(60)
async def main():
    with sp.region("ended"): await asyncio.sleep(0.01)
    jobs = [asyncio.create_task(job(0.02 * n)) for n in (1, 2)]
    await asyncio.sleep(0.2)
    live = sp.load([name for name in os.listdir() if name.endswith(".spool")][0])  # this process, which goes on
    print(*live["job"][0].await_times, *live["inner"][0].await_times)
    with sp.region("busy"):
        with sp.region("behind"): pass
        sys.stdout.flush()
        os.kill(os.getpid(), 9)
sp.setup(output="p.h5", track_async=True, clock=sys.argv[1])
asyncio.run(main())
""",
        clock,
        check=False,
    )
    results = spool_of(tmp_path)
    tasks = {row.index: row for row in results.tasks[0]}
    jobs, inner = results["job"][0], results["inner"][0]
    assert list(jobs.event_metadata) == list(inner.event_metadata) == [{"open": True}] * 2
    for at, (task, awaited) in enumerate(zip(jobs.task_ids, jobs.await_times)):
        assert abs(awaited - tasks[task].awaiting_time) < 1e-6  # two roundings to ns, and of ticks
        assert 0.19 < awaited < jobs.durations[at]
        slept = 0.02 * (at + 1)
        assert slept - 0.001 < awaited - inner.await_times[at] < slept + 0.05 and inner.await_times[at] > 0.1
    assert results["busy"][0].await_times[0] == 0.0 and 0.009 < results["ended"][0].await_times[0]


def test_calls_of_tasks_that_wait_while_they_are_looked_at_have_awaited(pm, tmp_path):
    import asyncio

    async def job():
        with pm.region("job"):
            await asyncio.sleep(60)

    async def main():
        task = asyncio.create_task(job())
        await asyncio.sleep(0.1)
        [name] = [name for name in os.listdir(tmp_path) if name.endswith(".spool")]
        with pm.region("now"):
            found = sp.load(tmp_path / name)
        task.cancel()
        return found

    with pm.session(output=tmp_path / "p.h5", track_async=True, verbose=False):
        found = asyncio.run(main())
    waiting = found["job"][0]
    assert 0.09 < waiting.await_times[0] <= waiting.durations[0] < waiting.await_times[0] + 0.05
    assert found["now"][0].await_times[0] == 0.0


def test_many_tasks_fill_pages(python, tmp_path):
    python(
        HEAD
        + """
async def job(i):
    with sp.region("job"): await asyncio.sleep(0)
async def main():
    for start in range(0, 10_000, 1000):
        await asyncio.gather(*(asyncio.create_task(job(i), name=f"n{i}") for i in range(start, start + 1000)))
    os.kill(os.getpid(), 9)
sp.setup(output="p.h5", track_async=True)
asyncio.run(main())
""",
        check=False,
    )
    results = spool_of(tmp_path)
    names = [row.name for row in results.tasks[0] if row.coro_name == "job"]
    assert sorted(names) == sorted(f"n{i}" for i in range(10_000))
    assert results["job"].num_calls == 10_000
    assert len(set(results["job"][0].task_ids.tolist())) == 10_000


def test_threads_that_come_and_go(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5", track_threads=True)
for number in range(300):
    t = threading.Thread(target=enter, args=("short", number % 7 + 1), name=f"t{number}"); t.start(); t.join()
    if number == 150: sp.finalize(verbose=False)
os.kill(os.getpid(), 9)
""",
        check=False,
    )
    results = spool_of(tmp_path)
    assert counts(results) == {"short": sum(number % 7 + 1 for number in range(151, 300))}
    assert [row.name for row in results.threads[0]][1:] == [f"t{number}" for number in range(300)]
    assert sp.load(tmp_path / "p.h5")["short"].num_calls == sum(number % 7 + 1 for number in range(151))


def test_parent_and_child_of_a_fork_both_die(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5")
with sp.region("at fork"):
    enter("parent", 3000)
    pid = os.fork()
    if not pid:
        enter("child of the parent's run", 100)  # nobody's: the child does not write to the parent's spool
        with sp.session(output="child.h5", verbose=False, replace=True):
            enter("child", 50)
            os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
enter("parent", 4000)
os.kill(os.getpid(), 9)
""",
        check=False,
    )
    found = {name.partition(".h5")[0]: sp.load(tmp_path / name) for name in os.listdir(tmp_path)}
    assert counts(found["p"]) == {"at fork": 1, "parent": 7000}
    assert list(found["p"]["at fork"][0].event_metadata or [{}]) == [{}]
    assert counts(found["child"]) == {"scope_profiler.session": 1, "child": 50}
    assert found["child"].metadata["recovered_open_calls"] == 1


def test_a_pause_records_nothing_and_breaks_nothing(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5")
enter("a", 10); sp.ProfileManager.pause(); enter("a", 10); sp.ProfileManager.resume(); enter("a", 5)
os.kill(os.getpid(), 9)
""",
        check=False,
    )
    assert counts(spool_of(tmp_path)) == {"a": 15}
