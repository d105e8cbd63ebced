"""asyncio tasks as lanes: every way to make them, exact times, and what the program sees, which is nothing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import io
import re
import sys
import threading
import time
import traceback
import types
import warnings
import weakref

import pytest

from scope_profiler import _core
from scope_profiler._tracker import ConcurrencyTracker

ADDRESS = re.compile(r"0x[0-9a-f]+")
PLAIN_CREATE_TASK = asyncio.BaseEventLoop.create_task


def normal(value):
    return ADDRESS.sub("0x", str(value))


class Recording:
    """A recorder with an open run that follows tasks."""

    def __init__(self):
        self.recorder = _core.Recorder()
        self.region = self.recorder.region
        self.run = None

    def __enter__(self):
        self.run = self.recorder.open(track_async=True)
        return self

    def __exit__(self, *exc):
        self.recorder.close()

    @property
    def tasks(self):
        return self.run.task_records()

    def rows(self, coro_name):
        return [row for row in self.tasks if row.coro_name.rpartition(".")[2] == coro_name]

    def row(self, coro_name):
        (row,) = self.rows(coro_name)
        return row

    def calls(self, name):
        """(task index, duration ns, await ns) of a region's calls."""
        profile = self.run.collect()
        columns = [memoryview(profile.column(c)).tolist() for c in ("task_ids", "start_ns", "end_ns", "await_ns")]
        (row,) = [row for row in profile.rows if profile.names[row[0]] == name]
        return [(t, e - s, a) for t, s, e, a in list(zip(*columns))[row[2] : row[2] + row[3]]]


@pytest.fixture
def recording():
    with Recording() as recording:
        yield recording
    assert asyncio.BaseEventLoop.create_task is PLAIN_CREATE_TASK


@pytest.fixture
def clock():
    """A clock that is moved by hand: ``clock(ns)`` lets time pass."""
    gc.collect()  # a run that an earlier test left in a cycle is still open
    _core._manual_clock(1_000_000)
    yield _core._advance_clock
    _core._manual_clock(None)


@types.coroutine
def pause():
    """Give the thread back to the loop once."""
    yield


# -- times ------------------------------------------------------------------------------------------------------------------------


def test_running_awaiting_and_await_times_are_exact(clock):
    with Recording() as recording:

        async def worker(first, second):
            clock(first)
            with recording.region("held"):
                clock(second)
                await pause()
                clock(1)
            clock(7)

        async def main():
            one = asyncio.create_task(worker(10, 100))
            two = asyncio.create_task(worker(20, 1000))
            clock(5)
            await pause()
            clock(3)
            await one
            await two

        asyncio.run(main())
        # main 5 | one 10+100 | two 20+1000 | main 3 | one 1+7 | two 1+7 | main
        main_row, (one, two) = recording.row("main"), recording.rows("worker")
        assert (one.running_ns, one.suspended_ns, one.steps) == (118, 1023, 2)
        assert (two.running_ns, two.suspended_ns, two.steps) == (1028, 3 + 8, 2)
        assert (main_row.running_ns, main_row.suspended_ns) == (8, 1130 + 16)
        assert one.created_ns == main_row.created_ns == 1_000_000
        assert one.done_ns - one.created_ns == 5 + 110 + 1020 + 3 + 8
        assert recording.calls("held") == [(one.index, 101 + 1023, 1023), (two.index, 1001 + 11, 11)]


def test_nested_regions_across_awaits_have_their_own_await_times(clock):
    with Recording() as recording:

        async def inner():
            with recording.region("inner"):
                clock(2)
                await pause()

        async def worker():
            with recording.region("outer"):
                await pause()
                await inner()
                clock(4)

        async def other():
            for _ in range(2):
                clock(50)
                await pause()

        async def main():
            await asyncio.gather(worker(), other())

        asyncio.run(main())
        index = recording.row("worker").index
        assert recording.calls("outer") == [(index, 106, 100)]
        assert recording.calls("inner") == [(index, 52, 50)]


def test_a_task_created_and_left_waiting_has_not_awaited(clock):
    with Recording() as recording:

        async def late():
            clock(1)

        async def main():
            task = asyncio.create_task(late())
            clock(100)
            await task

        asyncio.run(main())
        row = recording.row("late")
        assert (row.running_ns, row.suspended_ns, row.done_ns - row.created_ns) == (1, 0, 101)


# -- every way to make a task -------------------------------------------------------------------------------------------------------------


async def job(recording):
    with recording.region("job"):
        await asyncio.sleep(0.005)
    return "result"


async def by_create_task(recording):
    return await asyncio.create_task(job(recording))


async def by_loop(recording):
    return await asyncio.get_running_loop().create_task(job(recording))


async def by_keyword(recording):
    return await asyncio.get_running_loop().create_task(coro=job(recording))


async def by_ensure_future(recording):
    return await asyncio.ensure_future(job(recording))


async def by_gather(recording):
    return (await asyncio.gather(job(recording)))[0]


async def by_wait_for(recording):
    return await asyncio.wait_for(job(recording), 5)


async def by_wait(recording):
    done, _ = await asyncio.wait([asyncio.ensure_future(job(recording))])
    return done.pop().result()


async def by_as_completed(recording):
    for future in asyncio.as_completed([job(recording)]):
        return await future


async def by_threadsafe(recording):
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(job(recording), asyncio.get_running_loop()))


async def by_task_group(recording):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(job(recording))
    return task.result()


async def by_shield(recording):
    return await asyncio.shield(job(recording))


WAYS = [by_create_task, by_loop, by_keyword, by_ensure_future, by_gather, by_wait_for, by_wait, by_as_completed,
        by_threadsafe, by_shield] + ([by_task_group] if sys.version_info >= (3, 11) else [])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_make_a_task_gives_it_a_lane(recording, way):
    assert asyncio.run(way(recording)) == "result"
    if way is by_wait_for and sys.version_info >= (3, 12):
        return  # runs in the caller's task
    (row,) = recording.rows("job")
    ((index, duration, awaited),) = recording.calls("job")
    assert index == row.index and row.done and row.steps >= 2
    assert 4_900_000 <= awaited <= duration


def run_runner(main):
    with asyncio.Runner() as runner:
        runner.run(main)


def run_until_complete(main):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main)
    loop.close()


def run_forever(main):
    loop = asyncio.new_event_loop()

    async def then_stop():
        await main
        loop.stop()

    loop.create_task(then_stop())
    loop.run_forever()
    loop.close()


@pytest.mark.parametrize("run", [asyncio.run, run_until_complete, run_forever]
                         + ([run_runner] if sys.version_info >= (3, 11) else []))
def test_every_way_to_run_a_loop(recording, run):
    run(by_gather(recording))
    assert recording.row("job").done


def test_a_loop_made_before_the_run_is_followed():
    loop = asyncio.new_event_loop()
    with Recording() as recording:
        loop.run_until_complete(by_create_task(recording))
        assert recording.row("job").done
    loop.run_until_complete(by_create_task(recording))
    assert len(recording.rows("job")) == 1
    loop.close()


def test_loops_in_several_threads(recording):
    def work():
        asyncio.run(by_gather(recording))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = recording.rows("job")
    assert len(rows) == 4 and len({row.thread_index for row in rows}) == 4
    assert sorted(index for index, *_ in recording.calls("job")) == sorted(row.index for row in rows)


def test_work_in_other_threads_is_on_their_lanes(recording):
    def blocking():
        with recording.region("blocking"):
            return threading.get_ident()

    async def main():
        return await asyncio.to_thread(blocking)

    asyncio.run(main())
    assert recording.calls("blocking")[0][0] == -1


def test_a_task_made_directly_gets_a_row_at_its_first_region(recording):
    async def main():
        task = asyncio.Task(job(recording), name="direct")
        again = asyncio.Task(job(recording), name="again")
        await asyncio.gather(task, again)
        with recording.region("main"):
            await asyncio.sleep(0)

    asyncio.run(main())
    rows = recording.rows("job")
    assert [(row.name, row.steps, row.running_ns, row.suspended_ns) for row in rows] == [
        ("direct", 0, 0, 0), ("again", 0, 0, 0)]
    assert all(row.done for row in rows)
    assert [(index, awaited) for index, _, awaited in recording.calls("job")] == [(rows[0].index, 0), (rows[1].index, 0)]
    assert recording.calls("main")[0][0] == recording.row("main").index


def test_a_callback_of_the_loop_is_on_the_threads_lane(recording):
    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def callback():
            with recording.region("callback"):
                done.set_result(None)

        loop.call_soon(callback)
        await done

    asyncio.run(main())
    assert recording.calls("callback")[0][0] == -1


def test_a_run_opened_inside_a_running_task_follows_from_there():
    recording = Recording()

    async def old():
        await asyncio.sleep(0.01)
        with recording.region("old"):
            await asyncio.sleep(0)

    async def main():
        earlier = asyncio.create_task(old(), name="earlier")
        await asyncio.sleep(0)
        with recording:
            with recording.region("main"):
                await asyncio.gather(earlier, job(recording))
            assert [row.name for row in recording.rows("old")] == ["earlier"]
            ids = [recording.calls(name)[0][0] for name in ("main", "old", "job")]
            assert ids == [recording.row(name).index for name in ("main", "old", "job")]
            pending = asyncio.create_task(job(recording))
            await asyncio.sleep(0)
        assert await pending == "result"
        await asyncio.create_task(job(recording))

    asyncio.run(main())
    assert len(recording.rows("job")) == 2
    assert not recording.rows("job")[1].done


def test_hooks_taken_out_and_put_in_within_one_step(recording):
    async def main():
        recording.recorder.remove_hooks()
        with recording.region("between"):
            await asyncio.sleep(0)
        recording.recorder.install_hooks()
        with recording.region("after"):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert recording.calls("after")[0][0] == recording.row("main").index


# -- names --------------------------------------------------------------------------------------------------------------------------------


def test_the_last_name_counts(recording):
    async def worker(new=None):
        if new:
            asyncio.current_task().set_name(new)
        await asyncio.sleep(0)

    async def main():
        tasks = [asyncio.create_task(worker(), name="given"), asyncio.create_task(worker("set inside"), name="first"),
                 asyncio.create_task(worker(), name="zażółć ✓"), asyncio.create_task(worker(), name="a\0b\ud800"),
                 asyncio.create_task(worker(), name=17)]
        await asyncio.gather(*tasks)
        default = asyncio.create_task(worker())
        await default
        names = [row.name for row in recording.rows("worker")]
        assert names == ["given", "set inside", "zażółć ✓", "a?b?", "17", default.get_name()]
        living = asyncio.create_task(asyncio.sleep(5))
        living.set_name("while it lives")
        assert recording.row("sleep").name == "while it lives"
        living.set_name("and later")
        assert list(recording.run.collect().tasks["name"])[-1] == "and later"
        living.cancel()

    asyncio.run(main())


def test_a_task_that_never_ended_keeps_the_name_it_was_given(recording):
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(asyncio.sleep(1), name="forgotten")
    loop.run_until_complete(asyncio.sleep(0))
    del task
    loop.close()
    del loop
    gc.collect()
    row = recording.rows("sleep")[0]
    assert (row.name, row.done, row.done_ns) == ("forgotten", False, -1)


def test_a_coroutine_that_outlives_its_task_is_not_taken_for_another(recording):
    async def worker():
        await asyncio.sleep(0)

    async def closer(coroutine):
        coroutine.close()
        asyncio.current_task().set_name("the closer")

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    for closes in (False, True):
        task = loop.create_task(worker(), name="gone")
        left = task.get_coro()
        if closes:
            loop.run_until_complete(asyncio.sleep(0))
        loop._ready.clear()
        address = id(task)
        del task
        gc.collect()
        # Tasks until one is where the other was.
        others = [loop.create_task(closer(left), name="another") for _ in range(50)]
        at_its_place = [other for other in others if id(other) == address] or others[:1]
        for other in others:
            if other is not at_its_place[0]:
                other.cancel()
        loop.run_until_complete(at_its_place[0])
        loop.run_until_complete(asyncio.gather(*others, return_exceptions=True))
    loop.close()
    assert [row.name for row in recording.rows("worker")] == ["gone", "gone"]


# -- eager tasks -----------------------------------------------------------------------------------------------------------------------------

eager = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")


@eager
def test_eager_tasks_are_lanes_and_give_the_creators_back(clock):
    with Recording() as recording:

        async def child(steps):
            clock(10)
            with recording.region("child"):
                for _ in range(steps):
                    clock(100)
                    await pause()

        async def main():
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            with recording.region("parent"):
                clock(1)
                done = asyncio.create_task(child(0), name="at once")
                assert done.done()
                half = asyncio.create_task(child(1), name="half")
                with recording.region("after"):
                    clock(1000)
                await half
            assert asyncio.get_running_loop().get_task_factory() is asyncio.eager_task_factory

        asyncio.run(main())
        at_once, half = recording.rows("child")
        assert (at_once.name, at_once.steps, at_once.done, at_once.running_ns) == ("at once", 1, True, 10)
        assert (half.name, half.steps, half.running_ns, half.suspended_ns) == ("half", 2, 110, 1000)
        parent = recording.row("main").index
        assert recording.calls("child") == [(at_once.index, 0, 0), (half.index, 1100, 1000)]
        assert [recording.calls(name)[0][0] for name in ("parent", "after")] == [parent, parent]


@eager
def test_an_eager_task_that_fails_at_once(recording):
    async def fails():
        with recording.region("fails"):
            raise LookupError("at once")

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        with pytest.raises(LookupError, match="at once"):
            await asyncio.create_task(fails())
        with recording.region("after"):
            pass

    asyncio.run(main())
    assert recording.row("fails").done
    assert recording.calls("after")[0][0] == recording.row("main").index


# -- factories, kinds of coroutines -----------------------------------------------------------------------------------------------------------


def test_factories_of_the_application_are_used_and_stay(recording):
    made = []

    class Special(asyncio.Task):
        pass

    def factory(loop, coro, **keywords):
        made.append((coro, keywords))
        return Special(coro, loop=loop, **keywords)

    async def main():
        loop = asyncio.get_running_loop()
        assert loop.get_task_factory() is None
        await asyncio.create_task(job(recording))
        loop.set_task_factory(factory)
        task = asyncio.create_task(job(recording))
        assert type(task) is Special and loop.get_task_factory() is factory
        assert await task == "result"

    asyncio.run(main())
    assert len(recording.rows("job")) == 2 and all(row.done for row in recording.rows("job"))
    assert [coro.__qualname__ for coro, _ in made][0] == "job"


def test_a_factory_that_refuses_leaves_no_row(recording):
    def factory(loop, coro, **keywords):
        coro.close()
        raise LookupError("no tasks today")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        try:
            with pytest.raises(LookupError):
                loop.create_task(job(recording))
        finally:
            loop.set_task_factory(None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
    assert recording.rows("job") == []


def test_a_factory_may_return_anything(recording):
    class Result(asyncio.Future):
        set_name = print

    def factory(loop, coro, **keywords):
        coro.close()
        future = Result(loop=loop)
        future.set_result(3)
        return future

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        value = await loop.create_task(job(recording))
        loop.set_task_factory(None)
        return value

    assert asyncio.run(main()) == 3


@pytest.mark.parametrize("debug", [False, True])
def test_lookalikes_of_coroutines(recording, debug):
    import collections.abc

    async def agen():
        await asyncio.sleep(0)
        yield 42

    class Handmade(collections.abc.Coroutine):
        def __init__(self):
            self.n = 0

        def send(self, value):
            self.n += 1
            if self.n == 3:
                raise StopIteration("hand")

        def throw(self, typ, val=None, tb=None):
            raise typ if val is None else val

        def close(self):
            pass

        def __await__(self):
            return self

        def __iter__(self):
            return self

        def __next__(self):
            return self.send(None)

    async def main():
        generator = agen()
        results = [await asyncio.create_task(anext(generator)), await asyncio.create_task(generator.aclose())]
        hand = Handmade()
        task = asyncio.create_task(hand)
        assert task.get_coro().n == 0 and isinstance(task.get_coro(), Handmade)
        results.append(await task)
        if sys.version_info < (3, 12):

            @types.coroutine
            def old():
                yield
                return "old"

            results.append(await asyncio.get_running_loop().create_task(old()))
        with pytest.raises(TypeError):
            asyncio.get_running_loop().create_task(3)
        with pytest.raises(TypeError):
            asyncio.get_running_loop().create_task()
        return results

    assert asyncio.run(main(), debug=debug) == [42, None, "hand", "old"][: 3 if sys.version_info >= (3, 12) else 4]
    assert recording.row("Handmade").steps == 3
    assert all(row.coro_name and row.done for row in recording.tasks)


# -- what the program sees ------------------------------------------------------------------------------------------------------------------------


class Odd(BaseException):
    pass


async def observe_tasks(seen):
    """A program that looks at its tasks; what it saw."""

    async def waits():
        await asyncio.sleep(0.01)

    async def fails(error):
        await asyncio.sleep(0)
        raise error

    async def stops():
        raise StopIteration("x")

    variable = contextvars.ContextVar("variable", default=0)

    async def sets():
        variable.set(5)
        await asyncio.sleep(0)
        return variable.get()

    task = asyncio.create_task(waits(), name="named")
    seen.append(normal(task))
    await asyncio.sleep(0)
    seen.append(normal(task))
    seen.append([frame.f_code.co_name for frame in task.get_stack()])
    stack = io.StringIO()
    task.print_stack(file=stack)
    seen.append(stack.getvalue())
    coroutine = task.get_coro()
    seen.append((coroutine.__name__, coroutine.__qualname__, coroutine.cr_code.co_name, normal(coroutine)))
    seen.append((inspect.iscoroutine(coroutine), asyncio.iscoroutine(coroutine), inspect.getcoroutinestate(coroutine)))
    seen.append(normal(coroutine.cr_await))
    await task
    seen.append(normal(task))
    seen.append(coroutine.cr_frame)
    for error in (ValueError("user error", 7), Odd("odd"), KeyError()):
        task = asyncio.create_task(fails(error))
        try:
            await task
        except BaseException as caught:
            names = [(frame.name, frame.lineno) for frame in traceback.extract_tb(caught.__traceback__)]
            seen.append((type(caught).__name__, caught.args, caught is error, caught.__context__, caught.__cause__, names))
            del caught
    try:
        await asyncio.create_task(stops())
    except RuntimeError as error:
        seen.append((error.args, type(error.__cause__).__name__))
    task = asyncio.create_task(waits())
    task.cancel("early")
    try:
        await task
    except asyncio.CancelledError as error:
        seen.append(("cancelled", error.args))
    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel("late")
    try:
        await task
    except asyncio.CancelledError as error:
        seen.append(("cancelled", error.args))
    seen.append((await asyncio.create_task(sets()), variable.get()))
    seen.append(sorted(normal(task) for task in asyncio.all_tasks()))


@pytest.mark.parametrize("debug", [False, True])
def test_a_program_sees_its_own_tasks(recording, debug):
    def observe():
        seen: list = []
        messages: list = []

        async def main():
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: messages.append(context["message"]))
            await observe_tasks(seen)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(main(), debug=debug)
            gc.collect()
        numbers = re.compile(r"Task-\d+")
        return numbers.sub("Task-N", repr(seen)), messages, [str(w.message) for w in caught]

    recording.recorder.remove_hooks()
    plain = observe()
    recording.recorder.install_hooks()
    assert observe() == plain


def test_messages_about_forgotten_tasks_are_the_users(recording, caplog):
    async def fails():
        raise ValueError("never retrieved")

    async def pending():
        await asyncio.get_running_loop().create_future()

    def observe():
        caplog.clear()
        loop = asyncio.new_event_loop()

        async def main():
            asyncio.create_task(fails(), name="failing")
            asyncio.create_task(pending(), name="pending")
            await asyncio.sleep(0.001)

        loop.run_until_complete(main())
        gc.collect()
        loop.close()
        del loop
        gc.collect()
        return sorted(normal(record.getMessage()) for record in caplog.records)

    recording.recorder.remove_hooks()
    plain = observe()
    recording.recorder.install_hooks()
    assert observe() == plain != []


def test_nothing_is_kept_alive_that_would_not_be(recording):
    class Big:
        pass

    def world():
        references = {}

        async def good():
            local = Big()
            references["local"] = weakref.ref(local)
            await asyncio.sleep(0)
            result = Big()
            references["result"] = weakref.ref(result)
            return result

        async def bad():
            local = Big()
            references["local of a failed one"] = weakref.ref(local)
            await asyncio.sleep(0)
            raise ValueError

        async def main():
            task = asyncio.create_task(good())
            references["task"] = weakref.ref(task)
            references["coroutine"] = weakref.ref(task.get_coro())
            await task
            counts = sys.getrefcount(task)
            del task
            task = asyncio.create_task(bad())
            references["failed task"] = weakref.ref(task)
            with contextlib.suppress(ValueError):
                await task
            del task
            await asyncio.sleep(0)
            return counts, sorted(name for name, reference in references.items() if reference() is not None)

        return asyncio.run(main())

    gc.disable()
    try:
        recording.recorder.remove_hooks()
        plain = world()
        recording.recorder.install_hooks()
        assert world() == plain
    finally:
        gc.enable()


def test_the_hook_passes_for_the_function_it_stands_before(recording):
    hooked = asyncio.BaseEventLoop.create_task
    assert hooked is not PLAIN_CREATE_TASK and isinstance(hooked, _core.TaskHook)
    assert hooked.__name__ == "create_task" and hooked.__module__ == "asyncio.base_events"
    assert inspect.signature(hooked) == inspect.signature(PLAIN_CREATE_TASK)
    assert inspect.isfunction(hooked) and hooked.__doc__ == PLAIN_CREATE_TASK.__doc__
    loop = asyncio.new_event_loop()
    assert isinstance(loop.create_task, types.MethodType) and loop.create_task.__self__ is loop
    loop.close()
    with pytest.raises(TypeError):
        asyncio.BaseEventLoop.create_task()


# -- several runs, hooks of others ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["last in first out", "first in first out"])
def test_two_runs_at_once_share_nothing(order):
    first, second = Recording(), Recording()
    first.__enter__()
    asyncio.run(job(first))
    second.__enter__()

    async def main():
        with first.region("both"), second.region("both"):
            await asyncio.create_task(asyncio.sleep(0.001))

    asyncio.run(main())
    leaving = [second, first] if order.startswith("last") else [first, second]
    leaving[0].__exit__()
    asyncio.run(job(leaving[1]))
    leaving[1].__exit__()
    assert asyncio.BaseEventLoop.create_task is PLAIN_CREATE_TASK
    for recording in (first, second):
        (main_row,), sleeps = recording.rows("main"), recording.rows("sleep")
        assert len(sleeps) == 1 and sleeps[0].steps == 2 and main_row.steps == 2
        assert recording.calls("both")[0][0] == main_row.index
    assert [len(recording.rows("job")) for recording in (first, leaving[1])] == ([2, 2] if leaving[1] is first else [1, 1])


def test_a_hook_of_somebody_else_stays():
    seen = []

    def somebody(self, *args, **keywords):
        seen.append(1)
        return original(self, *args, **keywords)

    with Recording() as recording:
        original = asyncio.BaseEventLoop.create_task
        asyncio.BaseEventLoop.create_task = somebody
        try:
            asyncio.run(job(recording))
            recording.recorder.remove_hooks()
            assert asyncio.BaseEventLoop.create_task is somebody
            count = len(seen)
            asyncio.run(job(recording))
            assert len(seen) > count and len(recording.rows("job")) == 1
            recording.recorder.install_hooks()
            asyncio.run(job(recording))
            assert len(recording.rows("job")) == 2
            recording.recorder.remove_hooks()
            assert asyncio.BaseEventLoop.create_task is somebody
        finally:
            asyncio.BaseEventLoop.create_task = PLAIN_CREATE_TASK


def test_tasks_pending_at_the_end_of_the_run_only_pass_through():
    recording = Recording()

    async def main():
        with recording:
            task = asyncio.create_task(job(recording), name="pending")
            await asyncio.sleep(0)
        steps = recording.row("job").steps
        assert await task == "result"
        return steps

    steps = asyncio.run(main())
    row = recording.row("job")
    assert (row.steps, row.done, row.name) == (steps, False, "pending")


def test_a_run_closed_from_another_thread_while_tasks_step():
    for _ in range(20):
        recording = Recording()
        recording.__enter__()
        stop = threading.Event()

        async def main():
            while not stop.is_set():
                await asyncio.gather(*(job_short(recording) for _ in range(10)))

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        time.sleep(0.005)
        recording.run.collect()
        recording.recorder.close()
        recording.recorder.forget()
        stop.set()
        thread.join()
    assert asyncio.BaseEventLoop.create_task is PLAIN_CREATE_TASK


async def job_short(recording):
    with recording.region("short"):
        await asyncio.sleep(0)


# -- other loops -------------------------------------------------------------------------------------------------------------------------------------


def test_a_loop_with_a_create_task_of_its_own_can_be_instrumented():
    class Loop(asyncio.SelectorEventLoop):
        def create_task(self, coro, **keywords):
            return asyncio.Task(coro, loop=self, **keywords)

    tracker = ConcurrencyTracker(track_async=True)
    tracker.install()
    loop = Loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
        assert tracker.tasks == []
        tracker.instrument_loop(loop)
        tracker.instrument_loop(loop)
        loop.run_until_complete(asyncio.sleep(0.001))
        (row,) = tracker.tasks
        assert (row.coro_name, row.done, row.steps) == ("sleep", True, 2)
    finally:
        tracker.uninstall()
    assert "create_task" not in vars(loop)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(tracker.tasks) == 1
    loop.close()


def test_a_loop_that_takes_no_attributes_gets_a_factory():
    class Loop(asyncio.SelectorEventLoop):
        def create_task(self, coro, **keywords):
            if self._task_factory:
                return self._task_factory(self, coro, **keywords)
            return asyncio.Task(coro, loop=self, **keywords)

        def __setattr__(self, name, value):
            if name == "create_task":
                raise AttributeError(name)
            super().__setattr__(name, value)

    tracker = ConcurrencyTracker(track_async=True)
    tracker.install()
    loops = Loop(), Loop()

    def factory(loop, coro, **keywords):
        return asyncio.Task(coro, loop=loop, **keywords)

    loops[1].set_task_factory(factory)
    try:
        for loop in loops:
            tracker.instrument_loop(loop)
            tracker.instrument_loop(loop)
            loop.run_until_complete(asyncio.sleep(0.001))
    finally:
        tracker.uninstall()
    assert [row.steps for row in tracker.tasks] == [2, 2]
    assert [loop.get_task_factory() for loop in loops] == [None, factory]
    for loop in loops:
        loop.close()


def test_instrumenting_a_loop_of_asyncio_changes_nothing(recording):
    tracker = ConcurrencyTracker(track_async=True)
    tracker.install()
    loop = asyncio.new_event_loop()
    tracker.instrument_loop(loop)
    assert "create_task" not in vars(loop) and loop.get_task_factory() is None
    loop.run_until_complete(asyncio.sleep(0))
    tracker.uninstall()
    assert [row.steps for row in tracker.tasks] == [2]
    loop.close()


def test_uvloop_is_followed_whenever_it_is_imported(python):
    pytest.importorskip("uvloop")
    for first in ("import uvloop", "pass"):
        process = python(
            f"""
{first}
import asyncio, sys
import scope_profiler as sp
async def job():
    with sp.region("job"): await asyncio.sleep(0.01)
async def main(): await asyncio.gather(job(), job())
with sp.session(output=None, verbose=False, track_async=True, return_results=True) as run:
    import uvloop
    loop = uvloop.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
job = run.results["job"][0]
assert len(set(job.task_ids.tolist())) == 2 and -1 not in job.task_ids, job.task_ids
assert min(job.await_times) > 0.009, job.await_times
assert "create_task" not in vars(uvloop.Loop)
assert {{t.name for t in run.results.tasks[0]}} >= {{"Task-2", "Task-3"}}, run.results.tasks
"""
        )
        assert process.stderr == ""


def test_a_program_that_ends_inside_a_session_says_nothing(python):
    process = python(
        """
import asyncio
import scope_profiler as sp
sp.setup(output=None, track_async=True)
async def main():
    sp.region("r").__enter__()
    asyncio.get_running_loop().create_task(asyncio.sleep(10), name="pending")
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)
loop.run_until_complete(main())
"""
    )
    assert (process.stdout, process.stderr) == ("", "")


async def first_of_two():
    pass


async def second_of_two():
    pass


def test_coroutines_keep_their_names_from_run_to_run():
    def run(*functions):
        async def main():
            for function in functions:
                for _ in range(3):
                    await asyncio.create_task(function())

        with Recording() as recording:
            asyncio.run(main())
            return [row.coro_name for row in recording.tasks if "." not in row.coro_name]  # not main, nor the loop's own

    assert run(first_of_two, second_of_two) == ["first_of_two"] * 3 + ["second_of_two"] * 3
    assert run(second_of_two) == ["second_of_two"] * 3
    second_of_two.__qualname__ = "renamed"
    assert run(second_of_two, first_of_two) == ["renamed"] * 3 + ["first_of_two"] * 3


def test_a_task_class_of_the_application_says_what_it_is_called():
    class Named(asyncio.Task):
        def get_name(self):
            return f"my {super().get_name()}"

    async def main():
        asyncio.get_running_loop().set_task_factory(lambda loop, coro, **options: Named(coro, loop=loop, **options))
        await asyncio.create_task(first_of_two(), name="one")

    with Recording() as recording:
        asyncio.run(main())
        assert [row.name for row in recording.rows("first_of_two")] == ["my one"]
