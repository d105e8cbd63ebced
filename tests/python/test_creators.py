"""Which lane made a task: recorded, kept in files, and left open where it is not known."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from scope_profiler import ProfileManager, load, merge_results, read_json, write_json, write_profile


def recorded(body):
    with ProfileManager.session(output=None, verbose=False, return_results=True, track_async=True) as run:
        body()
    return run.results


def creators(results, rank=0):
    return {task.name: (task.creator_thread, task.creator_task) for task in results.tasks[rank]}


def family():
    async def child():
        await asyncio.sleep(0)

    async def parent():
        await asyncio.create_task(child(), name="child")

    async def main():
        await asyncio.create_task(parent(), name="parent")

    asyncio.run(main())


def test_a_task_is_made_by_a_task_or_by_a_thread():
    results = recorded(family)
    by_name = {task.name: task for task in results.tasks[0]}
    main = next(task for task in results.tasks[0] if task.coro_name.endswith("main"))
    assert (main.creator_thread, main.creator_task) == (0, -1)
    assert (by_name["parent"].creator_thread, by_name["parent"].creator_task) == (0, main.index)
    assert (by_name["child"].creator_thread, by_name["child"].creator_task) == (0, by_name["parent"].index)


def test_the_thread_that_made_it_need_not_be_the_one_that_runs_it():
    async def work():
        pass

    def elsewhere(loop):
        with ProfileManager.region("submit"):
            asyncio.run_coroutine_threadsafe(work(), loop).result()

    async def main():
        await asyncio.get_running_loop().run_in_executor(None, elsewhere, asyncio.get_running_loop())

    results = recorded(lambda: asyncio.run(main()))
    work_task = next(task for task in results.tasks[0] if task.coro_name.endswith("work"))
    # ensure_future() runs in a callback of the loop, so it is the loop's thread that makes the task
    assert (work_task.creator_thread, work_task.creator_task, work_task.thread_index) == (0, -1, 0)


def test_greenlets_are_made_where_they_are_first_switched_to():
    greenlet = pytest.importorskip("greenlet")

    def outer():
        greenlet.greenlet(inner).switch()

    def inner():
        with ProfileManager.region("inner"):
            pass

    results = recorded(lambda: greenlet.greenlet(outer).switch())
    first, second = results.tasks[0]
    assert (first.creator_thread, first.creator_task) == (0, -1)
    assert (second.creator_thread, second.creator_task) == (0, first.index)


def test_tasks_older_than_the_session_have_no_creator():
    async def old(event):
        await event.wait()
        with ProfileManager.region("late"):
            pass

    async def main():
        event = asyncio.Event()
        task = asyncio.create_task(old(event), name="old")
        await asyncio.sleep(0)
        with ProfileManager.session(output=None, verbose=False, return_results=True, track_async=True) as run:
            event.set()
            await task
        return run.results

    results = asyncio.run(main())
    assert creators(results).get("old", (-1, -1)) == (-1, -1)


@pytest.mark.parametrize("name", ["run.h5", "run.json"])
def test_files_keep_it(tmp_path, name):
    results = recorded(family)
    path = tmp_path / name
    (write_json if name.endswith("json") else write_profile)(results, path)
    back = (read_json if name.endswith("json") else load)(path)
    assert creators(back) == creators(results) and len(set(creators(back).values())) >= 3
    assert creators(load(write_profile(back, tmp_path / "again.h5"))) == creators(results)


def test_json_documents_stay_readable_for_the_release_before(tmp_path):
    document = json.loads(write_json(recorded(family), tmp_path / "p.json").read_text())
    assert all(set(row) == {"index", "kind", "name", "coro_name", "thread_index", "created_ns", "done_ns", "steps", "running_ns",
                            "suspended_ns"} for row in document["tasks"]["0"])  # fmt: skip


def test_merged_runs_keep_their_own_creators(tmp_path):
    def run(name):
        async def child():
            pass

        async def main():
            with manager.region(name):
                await asyncio.create_task(child(), name=f"{name} child")

        manager = ProfileManager()
        manager.setup(output=None, track_async=True)
        asyncio.run(main())
        return manager.finalize(verbose=False, return_results=True)

    merged = merge_results(run("one"), run("two"))
    tasks = {task.index: task for task in merged.tasks[0]}
    for task in tasks.values():
        if task.name.endswith("child"):
            assert tasks[task.creator_task].coro_name.endswith("main")
            assert task.creator_thread == tasks[task.creator_task].thread_index
    assert len({task.creator_task for task in tasks.values() if task.name.endswith("child")}) == 2


KILLED = """
import asyncio, os, scope_profiler as sp
async def child():
    with sp.region("child"):
        pass
async def main():
    await asyncio.create_task(child(), name="child")
    os.kill(os.getpid(), 9)
sp.setup(output="run.h5", track_async=True)
asyncio.run(main())
"""


def test_a_killed_run_keeps_it(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False)
    [spool] = tmp_path.glob("*.spool")
    command = [sys.executable, "-m", "scope_profiler", "recover", spool.name, "-o", "run.h5"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    results = load(tmp_path / "run.h5")
    tasks = {task.name: task for task in results.tasks[0]}
    assert tasks["child"].creator_thread == 0 and results.tasks[0][tasks["child"].creator_task].coro_name.endswith("main")


def test_many_threads_make_tasks_of_their_own():
    def loop_of_its_own(barrier):
        barrier.wait()
        for _ in range(5):
            family()

    barrier = threading.Barrier(4)

    def body():
        threads = [threading.Thread(target=loop_of_its_own, args=(barrier,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    results = recorded(body)
    tasks = {task.index: task for task in results.tasks[0]}
    assert all(task.creator_thread == task.thread_index for task in tasks.values())
    assert all(tasks[task.creator_task].thread_index == task.thread_index for task in tasks.values() if task.creator_task >= 0)
    assert sum(task.name == "child" for task in tasks.values()) == 20
