"""Tasks however they are made and whoever runs them: loops, libraries, modes, sessions inside of a running loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from lanes import burn, on_threads, session, the

pytestmark = pytest.mark.usefixtures("clean_manager")

since = lambda *version: pytest.mark.skipif(sys.version_info < version, reason=f"new in {version}")  # noqa: E731


async def nap(seconds: float = 0.002, region: str = "nap") -> str:
    with sp.region(region):
        await asyncio.sleep(seconds)
    return region


def run_plain(main: Any) -> Any:
    return asyncio.run(main)


def run_uvloop(main: Any) -> Any:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def run_uvloop_run(main: Any) -> Any:
    return pytest.importorskip("uvloop").run(main)


def run_uvloop_policy(main: Any) -> Any:
    uvloop = pytest.importorskip("uvloop")
    if sys.version_info >= (3, 14):
        pytest.skip("policies are deprecated")
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        return asyncio.run(main)
    finally:
        asyncio.set_event_loop_policy(None)


def run_runner(main: Any) -> Any:
    if sys.version_info < (3, 11):
        pytest.skip("new in 3.11")
    with asyncio.Runner() as runner:
        return runner.run(main)


def run_uvloop_runner(main: Any) -> Any:
    uvloop = pytest.importorskip("uvloop")
    if sys.version_info < (3, 11):
        pytest.skip("new in 3.11")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_debug(main: Any) -> Any:
    return asyncio.run(main, debug=True)


def run_on_a_thread(main: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()


WAYS = [run_plain, run_uvloop, run_uvloop_run, run_uvloop_policy, run_runner, run_uvloop_runner, run_debug, run_on_a_thread]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: Any) -> Any:
    return request.param


def lanes_of(results: Any, region: str = "nap") -> Any:
    """The task rows of a region's calls, one a call; each call on a lane of its own."""
    call = results[region][0]
    assert -1 not in call.task_ids and len(set(call.task_ids.tolist())) == call.num_calls
    rows = {row.index: row for row in results.tasks[0]}
    return [rows[index] for index in call.task_ids.tolist()]


def test_every_way_to_make_a_task(way: Any) -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        made = [
            asyncio.create_task(nap(), name="one"),
            asyncio.ensure_future(nap()),
            loop.create_task(nap()),
            asyncio.gather(nap(), nap()),
            asyncio.wait_for(nap(), 10),
            asyncio.shield(nap()),
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(nap(), loop)),
        ]
        return await asyncio.gather(*made)

    with session(track_async=True) as run:
        results = way(main())
    assert results == ["nap"] * 3 + [["nap", "nap"]] + ["nap"] * 3
    assert run.results["nap"].num_calls == 8
    # In 3.12 and later wait_for awaits the coroutine in its own task.
    rows = lanes_of(run.results)
    assert all(row.done and row.steps >= 2 for row in rows)
    assert (run.results["nap"][0].await_times > 0).all()
    assert [row.name for row in rows].count("one") == 1


def test_a_task_made_without_the_loop_has_a_lane(way: Any) -> None:
    """asyncio.Task() called directly: a row and a lane from its first region on, without a split of its time."""

    async def main() -> None:
        if way.__name__.startswith("run_uvloop"):
            task = asyncio.Task(nap(), loop=asyncio.get_running_loop())
        else:
            task = asyncio.Task(nap())
        await task

    with session(track_async=True) as run:
        way(main())
    (row,) = lanes_of(run.results)
    assert (row.steps, row.running_time, row.awaiting_time) == (0, 0.0, 0.0)
    assert run.results["nap"][0].await_times.tolist() == [0.0]


def test_cancellation_in_every_state(way: Any) -> None:
    async def job() -> None:
        with sp.region("job"):
            try:
                await asyncio.sleep(1000)
            finally:
                with sp.region("cleaning"):
                    await asyncio.sleep(0)

    async def stubborn() -> str:
        with sp.region("stubborn"):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError as error:
                return str(error.args)
        return ""

    async def main() -> Any:
        never, started, twice, keeps = (asyncio.create_task(c, name=n) for c, n in (
            (job(), "never"), (job(), "started"), (job(), "twice"), (stubborn(), "keeps")))  # fmt: skip
        never.cancel("early")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in (started, twice, keeps):
            task.cancel("late")
        await asyncio.sleep(0)
        twice.cancel("again")
        return await asyncio.gather(never, started, twice, keeps, return_exceptions=True)

    plain = way(main())
    with session(track_async=True) as run:
        profiled = way(main())
    assert [(type(one), getattr(one, "args", one)) for one in profiled] == [
        (type(one), getattr(one, "args", one)) for one in plain
    ]
    assert {name: run.results[name].num_calls for name in ("job", "cleaning", "stubborn")} == {
        "job": 2, "cleaning": 2, "stubborn": 1
    }  # fmt: skip
    rows = {row.name: row for row in run.results.tasks[0]}
    assert all(rows[name].done for name in ("never", "started", "twice", "keeps"))
    assert rows["never"].running_time <= rows["never"].wall_time and rows["never"].steps <= 1


@since(3, 11)
def test_task_groups(way: Any) -> None:
    async def fails() -> None:
        with sp.region("fails"):
            await asyncio.sleep(0)
            raise ValueError("inside")

    async def main() -> Any:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(nap(), name=f"member {number}")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(nap(1000, "cancelled"))
        except BaseException as error:
            return [type(one) for one in error.exceptions]  # type: ignore[attr-defined]
        return None

    with session(track_async=True) as run:
        assert way(main()) == [ValueError]
    assert sorted(row.name for row in lanes_of(run.results)) == ["member 0", "member 1", "member 2"]
    assert run.results["fails"].num_calls == run.results["cancelled"].num_calls == 1


@since(3, 12)
def test_eager_tasks() -> None:
    """A lane for each, the creator's lane again on return, and their names, however they end."""

    async def quick() -> None:
        with sp.region("child"):
            burn(0.001)

    async def fails() -> None:
        with sp.region("child"):
            raise ValueError

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        with sp.region("parent"):
            made = [asyncio.create_task(one(), name=name) for one, name in ((quick, "q"), (fails, "f"), (nap, "n"))]
            assert [task.done() for task in made] == [True, True, False]
            with sp.region("after"):
                pass
            await asyncio.gather(*made, return_exceptions=True)
        assert asyncio.get_running_loop().get_task_factory() is asyncio.eager_task_factory

    with session(track_async=True) as run:
        asyncio.run(main())
    rows = {row.name: row for row in run.results.tasks[0]}
    child, parent, after = (run.results[name][0] for name in ("child", "parent", "after"))
    assert sorted(child.task_ids.tolist()) == sorted([rows["q"].index, rows["f"].index])
    assert after.task_ids.tolist() == parent.task_ids.tolist() and parent.task_ids[0] not in child.task_ids
    assert (rows["q"].steps, rows["f"].steps, rows["n"].steps) == (1, 1, 2)
    assert rows["q"].done and rows["f"].done and rows["q"].running_time >= 0.00099


def test_several_loops_in_several_threads(way: Any) -> None:
    def work() -> None:
        async def main() -> None:
            await asyncio.gather(*(nap() for _ in range(5)))

        asyncio.run(main())

    with session(track_async=True) as run:
        on_threads(work, work, work, names=("a", "b", "c"))
        way(nap())
    rows = lanes_of(run.results)
    assert len(rows) == 16
    threads = run.results["nap"][0].thread_ids.tolist()
    assert [row.thread_index for row in rows] == threads
    for name in "abc":
        assert threads.count(the(run.results.threads[0], name).index) == 5


def test_a_session_opened_and_closed_inside_a_running_loop(way: Any) -> None:
    """Tasks that run already become lanes at their first region; after the session the loop is as before."""

    rounds = 0

    async def older(stop: Any) -> None:
        nonlocal rounds
        while not stop.is_set():
            with sp.region("older"):
                await asyncio.sleep(0.001)
            rounds += 1

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        before = type(loop).create_task, loop.get_task_factory(), dict(getattr(loop, "__dict__", {}))
        stop = asyncio.Event()
        old = asyncio.create_task(older(stop), name="old")
        await asyncio.sleep(0.002)
        with session(track_async=True) as run:
            with sp.region("main"):
                young = asyncio.create_task(nap(0.01), name="young")
                pending = asyncio.create_task(nap(60, "pending"), name="pending")
                await young
                enough = rounds + 3
                while rounds < enough:
                    await asyncio.sleep(0.001)
        factory = loop.get_task_factory()
        assert (type(loop).create_task, factory) == before[:2] and set(getattr(loop, "__dict__", {})) == set(before[2])
        stop.set()
        pending.cancel()
        await asyncio.wait([old, pending])
        later = asyncio.create_task(nap())
        assert type(later.get_coro()) is types.CoroutineType
        await later
        return run.results

    results = way(main())
    rows = {row.name: row for row in results.tasks[0]}
    assert rows["old"].index in results["older"][0].task_ids.tolist()
    assert set(results["older"][0].task_ids.tolist()) == {rows["old"].index}
    assert rows["young"].done and not rows["pending"].done and not rows["old"].done
    assert results["nap"][0].await_times[0] > 0
    assert results["main"][0].task_ids[0] not in (rows["old"].index, rows["young"].index)
    assert "pending" not in results.region_names, "still open when the session closed"


def test_two_sessions_one_after_the_other_inside_one_loop() -> None:
    async def main() -> Any:
        found = []
        for number in range(2):
            with session(track_async=True) as run:
                await asyncio.gather(*(asyncio.create_task(nap(), name=f"{number} {i}") for i in range(3)))
            found.append(run.results)
        return found

    first, second = asyncio.run(main())
    assert sorted(row.name for row in lanes_of(first)) == ["0 0", "0 1", "0 2"]
    assert sorted(row.name for row in lanes_of(second)) == ["1 0", "1 1", "1 2"]


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_managers_end_in_any_order(first_out: int) -> None:
    create_task = asyncio.BaseEventLoop.create_task
    managers = [sp.ProfileManager(), sp.ProfileManager()]
    how = dict(output=None, verbose=False, return_results=True, track_async=True)
    sessions = [manager.session(**how) for manager in managers]

    async def job() -> None:
        with managers[0].region("job"), managers[1].region("job"):
            await asyncio.sleep(0.001)

    for one in sessions:
        one.__enter__()
    asyncio.run(job())
    sessions[first_out].__exit__(None, None, None)
    asyncio.run(job())
    sessions[1 - first_out].__exit__(None, None, None)
    assert asyncio.BaseEventLoop.create_task is create_task
    counts = [one.results["job"].num_calls for one in sessions]
    assert counts[first_out] == 1 and counts[1 - first_out] == 2
    for one in sessions:
        assert {row.coro_name for row in one.results.tasks[0]} >= {job.__qualname__}
        lanes_of(one.results, "job")
        assert (one.results["job"][0].await_times > 0).all()


def test_threads_and_executors_of_a_loop(way: Any) -> None:
    """to_thread and run_in_executor: the call is the worker thread's, in no task; the task that waits awaits."""

    def work() -> None:
        with sp.region("work"):
            time.sleep(0.01)

    async def main() -> None:
        with sp.region("waits"):
            await asyncio.to_thread(work)
            with ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
                await asyncio.get_running_loop().run_in_executor(pool, work)

    with session(track_async=True) as run:
        way(main())
    work_call, waits = run.results["work"][0], run.results["waits"][0]
    assert work_call.task_ids.tolist() == [-1, -1]
    assert waits.thread_ids[0] not in work_call.thread_ids
    assert len(set(work_call.thread_ids.tolist())) == 2
    assert 0.001 <= waits.await_times[0] <= waits.durations[0], "a worker may begin before the task awaits it"
    names = {row.index: row.name for row in run.results.threads[0]}
    assert any(names[index].startswith("own") for index in work_call.thread_ids.tolist())


def test_context_variables_are_those_of_the_program(way: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")

    async def child(value: str) -> str:
        before = variable.get()
        variable.set(value)
        with sp.region("child"):
            await asyncio.sleep(0)
        return f"{before} {variable.get()}"

    async def main() -> Any:
        variable.set("main")
        results = await asyncio.gather(child("a"), child("b"))
        if sys.version_info >= (3, 11):
            context = contextvars.copy_context()
            context.run(variable.set, "given")
            results.append(await asyncio.create_task(child("c"), context=context))
            results.append(context.get(variable))
        return results, variable.get()

    plain = way(main())
    with session(track_async=True):
        assert way(main()) == plain


def test_asynchronous_generators_that_the_loop_finalizes(way: Any) -> None:
    """A region that is open in an abandoned generator is closed when the loop closes it, with its true end."""

    async def numbers() -> Any:
        with sp.region("numbers"):
            yield 1
            yield 2

    kept: list[Any] = []

    async def main() -> None:
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(0.002)
        one = numbers()
        kept.append(one)
        await one.__anext__()
        await asyncio.create_task(one.aclose())
        kept.append(numbers())
        await kept[-1].__anext__()  # left to shutdown_asyncgens()

    if way.__name__ in ("run_uvloop",):
        pytest.skip("closes a loop without its generators")
    with session(track_async=True) as run:
        way(main())
    call = run.results["numbers"][0]
    assert call.num_calls == 3 and (call.durations_ns >= 0).all()
    assert (call.await_times <= call.durations).all()


def test_the_users_view_of_a_task_is_unchanged(way: Any) -> None:
    async def deep() -> None:
        await asyncio.sleep(0.003)

    async def job() -> None:
        await deep()

    async def main() -> Any:
        task = asyncio.create_task(job(), name="job")
        await asyncio.sleep(0.001)
        coro = task.get_coro()
        view = [
            coro.__qualname__,
            coro.__name__,
            coro.cr_code.co_name,
            coro.cr_running,
            type(coro.cr_await).__name__,
            [frame.f_code.co_name for frame in task.get_stack()],
            "job()" in repr(task),
            asyncio.iscoroutine(coro),
        ]
        reference = weakref.ref(task)
        await task
        del task, coro
        await asyncio.sleep(0)
        return view, reference() is None

    plain = way(main())
    with session(track_async=True):
        assert way(main()) == plain


@pytest.mark.parametrize("backend", ["asyncio", "trio", "asyncio+uvloop"])
def test_anyio(backend: str) -> None:
    """Task groups, cancel scopes, and threads of anyio on both of its backends."""
    anyio = pytest.importorskip("anyio")
    pytest.importorskip(backend.rpartition("+")[2])

    def work() -> None:
        with sp.region("thread"):
            pass

    async def job(number: int) -> None:
        with sp.region("job"):
            await anyio.sleep(0.005)

    async def main() -> None:
        with sp.region("main"):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(job, number, name=f"job {number}")
            with anyio.move_on_after(0.005):
                with sp.region("cancelled"):
                    await anyio.sleep(1000)
            await anyio.to_thread.run_sync(work)

    options = {"use_uvloop": True} if "uvloop" in backend else {}
    with session(track_async=True) as run:
        anyio.run(main, backend=backend.partition("+")[0], backend_options=options)
    rows = lanes_of(run.results, "job")
    assert len(rows) == 3 and all(row.done and row.kind == "task" for row in rows)
    assert sorted(row.name for row in rows) == ["job 0", "job 1", "job 2"]
    assert (run.results["job"][0].await_times > 0).all()
    main_call = run.results["main"][0]
    assert main_call.num_calls == 1 and main_call.task_ids[0] not in run.results["job"][0].task_ids
    assert run.results["cancelled"].num_calls == 1
    assert run.results["thread"][0].task_ids.tolist() == [-1]


def test_greenlets_inside_of_tasks(way: Any) -> None:
    """The shape of SQLAlchemy's asynchronous engine: what the task entered stays the task's across switches."""
    greenlet = pytest.importorskip("greenlet")

    async def await_in_greenlet(function: Any) -> Any:
        fiber = greenlet.greenlet(function)
        wanted = fiber.switch()
        while not fiber.dead:
            wanted = fiber.switch(await wanted)
        return wanted

    def query() -> Any:
        with sp.region("query"):
            return greenlet.getcurrent().parent.switch(nap(0.003, "driver"))

    async def handler() -> None:
        with sp.region("request"):
            await await_in_greenlet(query)
        with sp.region("after"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(handler() for _ in range(3)))

    with session(track_async=True) as run:
        way(main())
    request, after, query_call, driver = (run.results[n][0] for n in ("request", "after", "query", "driver"))
    assert request.num_calls == after.num_calls == query_call.num_calls == driver.num_calls == 3
    handlers = {row.index for row in run.results.tasks[0] if row.coro_name == handler.__qualname__}
    fibers = {row.index for row in run.results.tasks[0] if row.kind == "greenlet"}
    assert len(handlers) == len(fibers) == 3
    for call in (request, after, driver):
        assert set(call.task_ids.tolist()) == handlers
    assert set(query_call.task_ids.tolist()) == fibers
    assert (request.await_times > 0).all() and (np.sort(query_call.await_times) > 0).all()
