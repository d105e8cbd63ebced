"""The delegate that a loop gets for a task's coroutine: whatever is done to it, it does what the coroutine would have done."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scope_profiler as sp


class Odd(BaseException):
    pass


@types.coroutine
def pause(value: Any) -> Any:
    return (yield value)


async def plain(log: list[Any]) -> Any:
    for number in range(3):
        log.append(await pause(number))
    return log


async def handles(log: list[Any]) -> Any:
    while True:
        try:
            log.append(await pause(len(log)))
        except (ValueError, asyncio.CancelledError) as error:
            log.append(repr(error))
        finally:
            log.append("finally")
        if len(log) > 6:
            return (1, 2)


async def refuses(log: list[Any]) -> Any:
    try:
        await pause(1)
    except GeneratorExit:
        log.append("refused")
        await pause(2)
    return None


async def raises(log: list[Any]) -> Any:
    await pause(0)
    raise Odd("raised")


async def raises_stop(log: list[Any]) -> Any:
    await pause(0)
    raise StopIteration(7)


async def at_once(log: list[Any]) -> Any:
    return StopIteration(3)


async def nested(log: list[Any]) -> Any:
    async def inner() -> Any:
        try:
            return await plain(log)
        except Odd:
            return await handles(log)

    async def numbers() -> Any:
        try:
            for number in range(2):
                yield await pause(number)
        finally:
            log.append("closed")

    async for number in numbers():
        log.append(("number", number))
    with sp.region("nested"):
        return await inner()


BODIES: list[Callable[[list[Any]], Any]] = [plain, handles, refuses, raises, raises_stop, at_once, nested]
ERRORS = [ValueError("v"), asyncio.CancelledError("c"), GeneratorExit(), StopIteration(4), Odd(), KeyboardInterrupt()]
STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([None, None, None, 5, "x", (1,)])),
    st.tuples(st.just("throw"), st.sampled_from(range(len(ERRORS)))),
    st.tuples(st.just("throw type"), st.sampled_from(range(len(ERRORS)))),
    st.tuples(st.just("close"), st.none()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("await"), st.integers(0, 3)),
    st.tuples(st.just("collect"), st.none()),
)


def step(coroutine: Any, what: str, value: Any) -> Any:
    if what == "send":
        return coroutine.send(value)
    if what == "throw":
        error = ERRORS[value]
        return coroutine.throw(type(error)(*error.args))
    if what == "throw type":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated since 3.12
            return coroutine.throw(type(ERRORS[value]), ERRORS[value].args and ERRORS[value].args[0])
    if what == "close":
        return coroutine.close()
    if what == "await":
        iterator = coroutine.__await__()
        return [next(iterator) for _ in range(value)]
    if what == "collect":
        gc.collect(0)
        return None
    return (coroutine.cr_running, inspect.getcoroutinestate(coroutine), coroutine.cr_frame is None, coroutine.__name__,
            coroutine.__qualname__, coroutine.cr_code.co_name, coroutine.cr_await is None)  # fmt: skip


def drive(coroutine: Any, log: list[Any], steps: list[tuple[str, Any]]) -> list[Any]:
    seen: list[Any] = []
    for what, value in steps:
        try:
            seen.append((what, step(coroutine, what, value)))
        except BaseException as error:  # noqa: BLE001
            seen.append((what, type(error), error.args, type(error.__cause__)))
    seen.append(("log", list(map(repr, log))))
    try:
        coroutine.close()
    except RuntimeError as error:
        seen.append(str(error))
    seen.append(list(map(repr, log)))
    return list(map(repr, seen))


class Loop(asyncio.SelectorEventLoop):
    """Its tasks are never run: what is handed to them is kept."""


class Unstarted(asyncio.Future):  # type: ignore[type-arg]
    """What a loop takes for a task: late releases of 3.13 name it themselves."""

    def set_name(self, name: object) -> None:
        pass


@pytest.fixture(scope="module")
def delegate_of() -> Any:
    kept: list[Any] = []
    loop = Loop()
    loop.set_task_factory(lambda loop, coroutine, **rest: kept.append(coroutine) or Unstarted(loop=loop))
    with sp.session(output=None, verbose=False, track_async=True):

        def delegate(coroutine: Any) -> Any:
            loop.create_task(coroutine)
            return kept.pop()

        yield delegate
    loop.close()


FULL = os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0")


@settings(max_examples=20_000 if FULL else 60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(BODIES), st.lists(STEPS, max_size=8))
def test_a_delegate_does_what_its_coroutine_would_do(delegate_of: Any, body: Any, steps: list[tuple[str, Any]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # coroutines that are never awaited
        expected_log: list[Any] = []
        expected = drive(body(expected_log), expected_log, steps)
        log: list[Any] = []
        delegate = delegate_of(body(log))
        assert type(delegate) is not types.CoroutineType, "this is about the delegate"
        assert drive(delegate, log, steps) == expected
