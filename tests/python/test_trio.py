"""trio tasks as lanes."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from scope_profiler import _core, _imports

trio = pytest.importorskip("trio")
pytest.importorskip("trio.testing")


@pytest.fixture
def recorder():
    made = _core.Recorder()
    yield made
    made.forget()


def tasks_of(profile):
    columns = profile.tasks
    return [dict(zip(columns, row, strict=True)) for row in zip(*map(list, columns.values()), strict=True)]


def calls_of(profile, name):
    for row in profile.rows:
        if profile.names[row[0]] == name:
            part = slice(row[2], row[2] + row[3])
            return [tuple(list(profile.column(c))[part]) for c in ("task_ids", "start_ns", "end_ns", "await_ns")]
    return None


async def nap(recorder, seconds):
    with recorder.region("nap"):
        await trio.sleep(seconds)


async def two_naps(recorder):
    with recorder.region("outer"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nap, recorder, 0.02, name="short")
            nursery.start_soon(nap, recorder, 0.05)


def test_each_task_is_a_lane_with_its_await_time(recorder, clock):
    async def nap(over):
        with recorder.region("nap"):
            await over.wait()
            clock(7)

    async def two_naps():
        short, long = trio.Event(), trio.Event()
        with recorder.region("outer"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nap, short, name="short")
                nursery.start_soon(nap, long)
                for over, ns in ((short, 100), (long, 1000)):
                    await trio.testing.wait_all_tasks_blocked()
                    clock(ns)
                    over.set()

    run = recorder.open(track_async=True)
    trio.run(two_naps)
    recorder.close()
    profile = run.collect()
    tasks = {task["index"]: task for task in tasks_of(profile)}
    naps = {}
    for lane, start, end, awaited in zip(*calls_of(profile, "nap"), strict=True):
        task = tasks[lane]
        naps[task["name"].rpartition(".")[2]] = (task["kind"], task["steps"], task["done_ns"] - task["created_ns"], end - start, awaited)
    assert naps == {"short": ("task", 2, 107, 107, 100), "nap": ("task", 2, 1114, 1114, 1107)}
    [outer] = calls_of(profile, "outer")[0]
    assert tasks[outer]["coro_name"].endswith("two_naps")


def test_the_hook_is_gone_after_the_run(recorder):
    before = trio._core._run.setup_runner
    recorder.open(track_async=True)
    assert trio._core._run.setup_runner is not before
    recorder.close()
    assert trio._core._run.setup_runner is before


def test_runners_in_several_threads_keep_their_lanes(recorder):
    run = recorder.open(track_async=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: trio.run(two_naps, recorder), range(4)))
    recorder.close()
    profile = run.collect()
    lanes = calls_of(profile, "nap")[0]
    assert len(lanes) == len(set(lanes)) == 8
    assert profile.nested


def test_a_session_opened_inside_a_running_task_follows_it_from_then(recorder):
    async def main():
        run = recorder.open(track_async=True)
        with recorder.region("here"):
            await trio.sleep(0.01)
        recorder.close()
        return run

    profile = trio.run(main).collect()
    (lanes, starts, ends, awaits) = calls_of(profile, "here")
    assert lanes == (0,)
    assert awaits[0] >= 9_000_000
    assert tasks_of(profile)[0]["done_ns"] == -1


def test_anyio_on_trio(recorder):
    anyio = pytest.importorskip("anyio")

    async def main():
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(job)

    async def job():
        with recorder.region("job"):
            await anyio.sleep(0.01)

    run = recorder.open(track_async=True)
    anyio.run(main, backend="trio")
    recorder.close()
    lanes, _, _, awaits = calls_of(run.collect(), "job")
    assert len(set(lanes)) == 3 and min(lanes) >= 0
    assert min(awaits) >= 9_000_000


@pytest.fixture
def module_to_import(tmp_path, monkeypatch):
    (tmp_path / "scope_profiler_imported_late.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "scope_profiler_imported_late"
    sys.modules.pop("scope_profiler_imported_late", None)


def test_when_imported_waits_for_the_import(module_to_import):
    seen = []
    _imports.when_imported(module_to_import, seen.append)
    assert seen == []
    module = __import__(module_to_import)
    assert seen == [module] and module.value == 7
    assert type(module.__loader__).__module__ != "scope_profiler._imports"
    assert _imports._finder not in sys.meta_path
    _imports.when_imported(module_to_import, seen.append)
    assert seen == [module, module]


def test_forget_waits_no_longer(module_to_import):
    seen = []
    callback = seen.append
    _imports.when_imported(module_to_import, callback)
    _imports.forget(module_to_import, callback)
    __import__(module_to_import)
    assert seen == []
    assert _imports._finder not in sys.meta_path
