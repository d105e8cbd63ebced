"""Decorated coroutines, generators and asynchronous generators: one call for the life of each body."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import gc
import inspect
import re
import sys
import threading
import time
import tracemalloc
import types
import warnings
import weakref

import pytest

from recording import Recording

MS = 1_000_000


@pytest.fixture
def recording():
    with Recording() as recording:
        yield recording


def nap(ms):
    time.sleep(ms / 1000)


# -- from the first step to the end ----------------------------------------------------------------------------------------------


def test_a_coroutines_call_covers_what_it_awaits(recording):
    @recording.profile
    async def handler(x):
        await asyncio.sleep(0.03)
        return x + 1

    async def main():
        return await asyncio.gather(handler(1), handler(2))

    assert asyncio.run(main()) == [2, 3]
    calls = recording.calls()
    assert [call.name for call in calls] == ["handler"] * 2
    assert all(call.end - call.start >= 30 * MS for call in calls)
    assert calls[1].start < calls[0].end


def test_the_wait_before_the_first_step_is_outside(recording):
    @recording.profile
    def numbers():
        yield 1

    iterator = numbers()
    nap(30)
    assert recording.run.call_counts().get("numbers", 0) == 0
    next(iterator)
    assert recording.open_calls() == ["numbers"]
    list(iterator)
    (call,) = recording.calls()
    assert call.end - call.start < 20 * MS


def test_two_generators_keep_their_own_durations(recording):
    @recording.profile
    def held():
        yield

    first, second = held(), held()
    edges = []

    def at(operation):
        edges.append(time.perf_counter_ns())
        operation()
        edges.append(time.perf_counter_ns())

    at(lambda: next(first))
    nap(10)
    at(lambda: next(second))
    nap(20)
    at(first.close)
    nap(30)
    at(second.close)
    durations = [call.end - call.start for call in recording.calls()]
    assert edges[4] - edges[1] - 1000 <= durations[0] <= edges[5] - edges[0] + 1000
    assert edges[6] - edges[3] - 1000 <= durations[1] <= edges[7] - edges[2] + 1000


@pytest.mark.parametrize("end", ["return", "exception", "close", "throw", "del", "cycle"])
def test_every_end_closes_the_call(recording, end):
    log = []

    @recording.profile
    def body():
        try:
            yield 1
            if end == "exception":
                raise KeyError("why")
        finally:
            nap(5)
            log.append("cleanup")

    iterator = body()
    next(iterator)
    assert recording.open_calls() == ["body"]
    if end == "close":
        iterator.close()
    elif end == "throw":
        with pytest.raises(LookupError):
            iterator.throw(LookupError())
    elif end in ("return", "exception"):
        with contextlib.suppress(KeyError):
            assert list(iterator) == []
    elif end == "cycle":
        cycle = [iterator]
        cycle.append(cycle)
        del cycle
    if end in ("del", "cycle"):
        del iterator
        gc.collect()
    assert log == ["cleanup"]
    assert recording.open_calls() == []
    (call,) = recording.calls()
    assert call.end - call.start >= 5 * MS


def test_a_body_that_never_starts_is_no_call(recording):
    @recording.profile
    def numbers():
        yield 1

    @recording.profile
    async def coroutine():
        pass

    numbers()
    numbers().close()
    with pytest.raises(ValueError):
        numbers().throw(ValueError())
    coroutine().close()
    with pytest.raises(ValueError):
        coroutine().throw(ValueError())
    with pytest.raises(TypeError, match="just-started"):
        numbers().send(1)
    assert recording.names() == []


def test_a_refused_close_keeps_the_call_open(recording):
    @recording.profile
    def stubborn():
        while True:
            try:
                yield
            except GeneratorExit:
                yield "no"

    iterator = stubborn()
    next(iterator)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        iterator.close()
    assert recording.open_calls() == ["stubborn"]
    with pytest.raises(KeyError):
        iterator.throw(KeyError())
    assert recording.open_calls() == []


def test_a_call_belongs_to_the_thread_of_its_first_step(recording):
    @recording.profile
    def travels():
        yield threading.get_ident()
        yield threading.get_ident()

    iterator = travels()
    lanes = []

    def first():
        lanes.append(recording.run.lane())
        next(iterator)

    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    assert list(iterator) == [threading.get_ident()]
    (call,) = recording.calls()
    assert call.lane == lanes[0] != recording.run.lane()


def test_a_body_that_outlives_its_run_harms_nothing(recording):
    other = Recording()

    @other.profile
    def body():
        yield 1
        yield 2

    with other:
        kept, dropped = body(), body()
        next(kept)
        next(dropped)
    other.recorder.forget()
    assert list(kept) == [2]
    del dropped
    with other:
        assert list(body()) == [1, 2]
        assert other.names() == ["body"]


def test_a_body_made_while_nothing_records_is_the_users_own():
    recording = Recording()

    @recording.profile
    async def coroutine():
        pass

    @recording.profile
    def generator():
        yield

    made = generator()
    assert type(made) is types.GeneratorType
    with recording:
        list(made)
        assert recording.names() == []
    body = coroutine()
    assert type(body) is types.CoroutineType
    body.close()


# -- coroutines --------------------------------------------------------------------------------------------------------------------


def test_cancellation_closes_the_call_and_arrives_unchanged(recording):
    seen = []

    @recording.profile
    async def waits():
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError as error:
            seen.append(error.args)
            raise

    async def main():
        task = asyncio.create_task(waits())
        await asyncio.sleep(0.01)
        task.cancel("please")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        early = asyncio.create_task(waits())
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        return caught.value.args

    assert asyncio.run(main()) == (("please",) if sys.version_info >= (3, 11) else ())
    assert seen == [("please",)]
    assert recording.names() == ["waits"]


def normal(text):
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def test_a_task_looks_like_one_of_the_undecorated_coroutine(recording):
    async def waits():
        await asyncio.sleep(0.01)

    async def main(function):
        task = asyncio.create_task(function(), name="named")
        before = normal(repr(task))
        await asyncio.sleep(0)
        stack = [frame.f_code.co_name for frame in task.get_stack()]
        running = normal(repr(task))
        coroutine = task.get_coro()
        facts = (coroutine.__name__, coroutine.__qualname__, coroutine.cr_frame.f_lineno, asyncio.iscoroutine(coroutine),
                 inspect.iscoroutine(coroutine), inspect.isawaitable(coroutine), inspect.getcoroutinestate(coroutine))
        await task
        return before, stack, running, facts, normal(repr(task))

    assert asyncio.run(main(recording.profile(waits))) == asyncio.run(main(waits))


def test_never_awaited_is_said_once_in_the_users_words(recording):
    @recording.profile
    async def forgotten():
        pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forgotten()
        gc.collect()
    assert [str(w.message) for w in caught] == [
        "coroutine 'test_never_awaited_is_said_once_in_the_users_words.<locals>.forgotten' was never awaited"]
    assert caught[0].filename == __file__


def test_an_awaited_coroutine_cannot_be_awaited_again(recording):
    @types.coroutine
    def pause():
        yield

    @recording.profile
    async def inner():
        await pause()

    async def outer(coroutine):
        await coroutine

    shared = inner()
    first, second = outer(shared), outer(shared)
    first.send(None)
    assert first.cr_await is shared
    with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
        second.send(None)
    with pytest.raises(StopIteration):
        first.send(None)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        outer(shared).send(None)


def test_generator_based_coroutines_can_be_awaited(recording):
    @recording.profile
    @types.coroutine
    def old(n):
        got = yield n
        return got

    @recording.profile
    def not_a_coroutine():
        yield

    async def main():
        return await old(3)

    driver = main()
    assert driver.send(None) == 3
    with pytest.raises(StopIteration) as stop:
        driver.send("sent")
    assert stop.value.value == "sent"
    assert inspect.isawaitable(old(1)) and not inspect.isawaitable(not_a_coroutine())

    async def wrong():
        await not_a_coroutine()

    with pytest.raises(TypeError, match="can't be used in 'await' expression"):
        wrong().send(None)
    assert recording.names() == ["old"]


def test_abstract_base_classes_know_them(recording):
    def gen():
        yield

    async def co():
        pass

    async def agen():
        yield

    abstract = [collections.abc.Coroutine, collections.abc.Awaitable, collections.abc.Generator, collections.abc.Iterator,
                collections.abc.Iterable, collections.abc.AsyncGenerator, collections.abc.AsyncIterator,
                types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType]
    for function in (gen, co, agen):
        bodies = [function(), recording.profile(function)()]
        answers = [[isinstance(body, kind) for kind in abstract] for body in bodies]
        assert answers[0] == answers[1], function
        assert [name for name in ("__next__", "__iter__", "__await__", "send", "asend") if hasattr(bodies[0], name)] == [
            name for name in ("__next__", "__iter__", "__await__", "send", "asend") if hasattr(bodies[1], name)]
        assert set(dir(bodies[0])) == set(dir(bodies[1]))
        for body in bodies:
            if function is co:
                body.close()


def test_names_can_be_set(recording):
    @recording.profile
    def gen():
        yield

    body = gen()
    body.__name__, body.__qualname__ = "other", "else.other"
    assert (body.__name__, body.gi_code.co_name) == ("other", "gen")
    assert "else.other" in repr(body)
    with pytest.raises(TypeError):
        body.__name__ = 3
    with pytest.raises(AttributeError):
        body.anything = 1
    with pytest.raises((AttributeError, TypeError)):
        body.gi_code = 1
    with pytest.raises(TypeError):
        import copy

        copy.copy(body)


# -- asynchronous generators ----------------------------------------------------------------------------------------------------------


def test_an_asynchronous_generator_is_one_call(recording):
    @recording.profile
    async def numbers(n):
        for i in range(n):
            await asyncio.sleep(0.005)
            yield i

    async def main():
        found = [i async for i in numbers(3)]
        found.append(await anext(numbers(0), "default"))
        found.append(await anext(aiter(numbers(1))))
        return found

    assert asyncio.run(main()) == [0, 1, 2, "default", 0]
    calls = recording.calls()
    assert [call.name for call in calls] == ["numbers"] * 3
    assert calls[0].end - calls[0].start >= 15 * MS
    assert recording.open_calls() == []


def test_an_abandoned_generator_is_closed_by_its_loop_with_its_true_end(recording):
    cleaned = []

    @recording.profile
    async def stream():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0.03)
            cleaned.append(time.perf_counter_ns())

    async def main():
        async for _ in stream():
            break
        gc.collect()
        await asyncio.sleep(0.06)

    asyncio.run(main())
    (call,) = recording.calls()
    assert call.end - call.start >= 30 * MS
    assert abs(call.end - cleaned[0]) < 10 * MS


def test_shutdown_asyncgens_closes_one_that_is_still_held(recording):
    held = []

    @recording.profile
    async def stream():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            held.append("clean")

    async def main():
        held.append(stream())
        await held[0].__anext__()
        await asyncio.sleep(0.02)

    asyncio.run(main())
    ended = time.perf_counter_ns()
    assert held[1:] == ["clean"]
    assert recording.open_calls() == []
    (call,) = recording.calls()
    assert call.end - call.start >= 20 * MS and call.end <= ended + 1000


def test_one_closed_from_another_task_is_one_call(recording):
    @recording.profile
    async def stream():
        yield 1
        yield 2

    async def main():
        generator = stream()
        await generator.__anext__()
        await asyncio.sleep(0.02)
        await asyncio.create_task(generator.aclose())

    asyncio.run(main())
    (call,) = recording.calls()
    assert call.end - call.start >= 20 * MS


def test_the_interpreters_hooks_see_the_decorated_generator(recording):
    @recording.profile
    async def stream():
        yield 1

    seen = []
    old = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=lambda g: seen.append(("first", weakref.ref(g))),
                           finalizer=lambda g: seen.append(("final", g)))
    try:
        generator = stream()
        with contextlib.suppress(StopIteration):
            generator.__anext__().send(None)
        assert [kind for kind, _ in seen] == ["first"]
        assert seen[0][1]() is generator
        del generator
    finally:
        sys.set_asyncgen_hooks(*old)
    assert [kind for kind, _ in seen] == ["first", "final"]
    final = seen[1][1]
    assert isinstance(final, types.AsyncGeneratorType)
    assert recording.open_calls() == ["stream"]
    with pytest.raises(StopIteration):
        final.aclose().send(None)
    assert recording.names() == ["stream"]


def test_awaitables_of_a_generator_can_be_tasks(recording):
    @recording.profile
    async def numbers():
        await asyncio.sleep(0)
        yield 42

    async def main():
        generator = numbers()
        first = await asyncio.create_task(anext(generator))
        return first, await asyncio.create_task(generator.aclose())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(main()) == (42, None)
    assert recording.names() == ["numbers"]


def test_context_managers_made_of_decorated_generators(recording):
    log = []

    @contextlib.contextmanager
    @recording.profile("cm")
    def manager():
        try:
            yield 1
        except KeyError:
            log.append("caught")
        finally:
            log.append("cleanup")

    @contextlib.asynccontextmanager
    @recording.profile("acm")
    async def amanager():
        try:
            yield 1
        finally:
            log.append("async cleanup")

    with manager() as one:
        assert one == 1
        raise KeyError

    async def use():
        with contextlib.suppress(ValueError):
            async with amanager():
                raise ValueError

    asyncio.run(use())
    assert log == ["caught", "cleanup", "async cleanup"]
    assert recording.names() == ["cm", "acm"]


# -- methods, decorated twice, memory --------------------------------------------------------------------------------------------------


def test_methods_of_every_kind_of_body(recording):
    class Thing:
        @recording.profile
        async def co(self):
            return self

        @recording.profile
        def gen(self):
            yield self

        @recording.profile
        @classmethod
        async def agen(cls):
            yield cls

    thing = Thing()

    async def main():
        return await thing.co(), [x async for x in thing.agen()]

    assert asyncio.run(main()) == (thing, [Thing])
    assert list(thing.gen()) == [thing]
    assert inspect.iscoroutinefunction(thing.co) and inspect.isgeneratorfunction(thing.gen)
    assert inspect.isasyncgenfunction(Thing.agen)
    assert recording.names() == ["co", "agen", "gen"]


def test_bodies_decorated_twice_record_both(recording):
    def twice(function):
        return recording.profile("outer")(recording.profile("inner")(function))

    @twice
    async def co():
        await asyncio.sleep(0)

    @twice
    def gen():
        yield 1

    @twice
    async def agen():
        yield 1

    async def main():
        await co()
        return [x async for x in agen()]

    assert asyncio.run(main()) == [1]
    assert list(gen()) == [1]
    calls = recording.calls()
    assert [call.name for call in calls] == ["outer", "inner"] * 3
    for outer, inner in zip(calls[::2], calls[1::2]):
        assert outer.start <= inner.start <= inner.end <= outer.end


def test_bodies_leave_nothing_behind(recording):
    class Big:
        pass

    @recording.profile
    async def co(big):
        await asyncio.sleep(0)

    @recording.profile
    def gen(big):
        yield big

    @recording.profile
    async def agen(big):
        yield big

    async def rounds(n):
        for _ in range(n):
            big = Big()
            await co(big)
            list(gen(big))
            next(gen(big))
            async for _ in agen(big):
                pass
            generator = agen(big)
            await generator.asend(None)
            await generator.aclose()
            with contextlib.suppress(ValueError):
                await agen(big).athrow(ValueError())

    def total():
        gc.collect()
        return sum(type(o) is Big for o in gc.get_objects()), tracemalloc.get_traced_memory()[0]

    asyncio.run(rounds(50))
    tracemalloc.start()
    try:
        asyncio.run(rounds(10))
        before = total()
        asyncio.run(rounds(1000))
        after = total()
    finally:
        tracemalloc.stop()
    assert after[0] == before[0] == 0
    assert after[1] - before[1] < 20_000
    gc.disable()
    try:
        body = gen(Big())
        reference = weakref.ref(next(body))
        del body
        assert reference() is None
    finally:
        gc.enable()


def test_bodies_nobody_ended_are_closed_at_the_end_of_the_program(python):
    process = python(
        """
import scope_profiler._core as core
recorder = core.Recorder()
run = recorder.open()
def gen():
    try: yield 1
    finally: print("cleanup")
async def agen():
    yield 1
kept = core.wrap(recorder, gen)()
next(kept)
other = core.wrap(recorder, agen)()
try: other.__anext__().send(None)
except StopIteration: pass
cycle = [kept, other]
cycle.append(cycle)
"""
    )
    assert process.stderr == ""


def test_two_threads_cannot_run_one_generator(recording):
    entered, release = threading.Event(), threading.Event()

    @recording.profile
    def body():
        entered.set()
        release.wait(10)
        yield 1

    shared = body()
    thread = threading.Thread(target=lambda: next(shared))
    thread.start()
    entered.wait(10)
    with pytest.raises(ValueError, match="already executing"):
        next(shared)
    with pytest.raises(ValueError, match="already executing"):
        shared.close()
    release.set()
    thread.join()
    assert recording.open_calls() == ["body"]
    assert list(shared) == []
    assert recording.names() == ["body"]
