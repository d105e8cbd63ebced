"""A decorated coroutine, generator or asynchronous generator answers every operation as the undecorated one does.

Programs are driven by random sequences of operations, decorated and not; what each operation gave (value, exception with
arguments, context, cause and traceback), attributes, warnings and unraisable errors are compared.
"""

from __future__ import annotations

import gc
import random
import re
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from recording import Recording

ADDRESS = re.compile(r"0x[0-9a-f]+")


class Odd(BaseException):
    pass


@pytest.fixture(autouse=True)
def small_heap():
    """Full collections of what a test made only."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# -- programs: each gets its log and the decorator for what it calls ---------------------------------------------------------


def plain_yields(log, deco):
    def body(n):
        log.append("start")
        got = []
        for i in range(n):
            got.append((yield i))
        return got

    return body


def returns_tuple(log, deco):
    def body(n):
        log.append("start")
        yield n
        return (1, (2, 3))

    return body


def returns_exception(log, deco):
    def body(n):
        log.append("start")
        yield n
        return ValueError("a value, not an error")

    return body


def returns_none(log, deco):
    def body(n):
        log.append("start")
        return
        yield

    return body


def handles(log, deco):
    def body(n):
        log.append("start")
        while True:
            try:
                n = yield n
            except ValueError as error:
                log.append(("caught", error.args))
                n = "caught"
            except KeyError:
                raise RuntimeError("translated")
            finally:
                log.append("finally")

    return body


def refuses_exit(log, deco):
    def body(n):
        log.append("start")
        while n:
            try:
                yield n
            except GeneratorExit:
                n -= 1

    return body


def raises_stop(log, deco):
    def body(n):
        log.append("start")
        yield n
        raise StopIteration("leaks")

    return body


def raises_odd(log, deco):
    def body(n):
        log.append("start")
        yield n
        try:
            yield n
        finally:
            raise Odd(n)

    return body


def raises_in_handler(log, deco):
    def body(n):
        log.append("start")
        try:
            raise KeyError("outer")
        except KeyError:
            n = yield n
            try:
                n = yield n
            except BaseException as error:
                raise LookupError("inner") from error
            raise

    return body


def delegates(log, deco):
    @deco
    def inner(n):
        log.append("inner")
        try:
            got = yield n
            got = yield (n, got)
        except ValueError:
            got = "inner caught"
        finally:
            log.append("inner finally")
        return (n, got)

    def body(n):
        log.append("start")
        try:
            got = yield from inner(n)
            log.append(got)
            got = yield from inner(got)
        except KeyError as error:
            got = error.args
        yield got
        return got

    return body


def reenters(log, deco):
    holder: list[Any] = []

    def body(n):
        log.append("start")
        for operation in (lambda: holder[0].send(None), lambda: next(holder[0]), lambda: holder[0].close(),
                          lambda: holder[0].throw(ValueError())):
            try:
                operation()
            except BaseException as error:
                log.append((type(error).__name__, str(error)))
            yield n

    body.holder = holder
    return body


def sees_context(log, deco):
    def body(n):
        log.append("start")
        while True:
            error = sys.exc_info()[1]
            log.append(repr(error))
            try:
                n = yield n
            except Exception as thrown:
                log.append(repr(thrown.__context__))

    return body


GENERATORS = [plain_yields, returns_tuple, returns_exception, returns_none, handles, refuses_exit, raises_stop,
              raises_odd, raises_in_handler, delegates, reenters, sees_context]


@types.coroutine
def pause(value):
    return (yield value)


def awaits(log, deco):
    async def body(n):
        log.append("start")
        got = []
        for i in range(n):
            try:
                got.append(await pause(i))
            except ValueError as error:
                got.append(error.args)
            finally:
                log.append("finally")
        return tuple(got)

    return body


def awaits_nested(log, deco):
    @deco
    async def leaf(n):
        log.append("leaf")
        try:
            return await pause(("leaf", n))
        finally:
            log.append("leaf ends")

    @deco
    async def middle(n):
        return [await leaf(n), await leaf(n + 1)]

    async def body(n):
        log.append("start")
        try:
            first = await middle(n)
        except KeyError as error:
            first = error.args
        coroutine = leaf(first)
        log.append((coroutine.__name__, coroutine.cr_frame is None, coroutine.cr_running))
        second = await coroutine
        try:
            await coroutine
        except RuntimeError as error:
            log.append(str(error))
        return first, second

    return body


def awaits_by_hand(log, deco):
    @deco
    async def leaf(n):
        return await pause(n)

    class Awaitable:
        def __await__(self):
            return (yield from leaf("by hand").__await__())

    @types.coroutine
    def old(n):
        return (yield from leaf(n))

    async def body(n):
        log.append("start")
        return await Awaitable(), await old(n)

    return body


def iterates(log, deco):
    @deco
    async def numbers(n):
        log.append("agen")
        try:
            for i in range(n):
                await pause(("in", i))
                try:
                    yield i
                except ValueError as error:
                    log.append(error.args)
        finally:
            await pause("cleanup")
            log.append("agen ends")

    async def body(n):
        log.append("start")
        total = 0
        generator = numbers(n)
        try:
            async for i in generator:
                total += i
                await pause(("body", i))
        finally:
            await generator.aclose()
        log.append(await anext(numbers(0), "default"))
        return total, [i async for i in numbers(2)]

    return body


def swallows_cancel(log, deco):
    async def body(n):
        log.append("start")
        while n:
            try:
                await pause(n)
            except GeneratorExit:
                n -= 1
            except Odd as error:
                return error.args

    return body


def raises_stop_async(log, deco):
    async def body(n):
        log.append("start")
        await pause(n)
        raise (StopIteration if n % 2 else StopAsyncIteration)("leaks")

    return body


COROUTINES = [awaits, awaits_nested, awaits_by_hand, iterates, swallows_cancel, raises_stop_async]


def yields_async(log, deco):
    async def body(n):
        log.append("start")
        for i in range(n):
            got = yield i
            log.append(got)
            got = await pause(("between", i))
            log.append(got)

    return body


def handles_async(log, deco):
    async def body(n):
        log.append("start")
        while True:
            try:
                n = yield n
            except ValueError as error:
                await pause("handling")
                n = error.args
            except KeyError as error:
                raise RuntimeError("translated") from error
            finally:
                log.append("finally")

    return body


def refuses_exit_async(log, deco):
    async def body(n):
        log.append("start")
        while n:
            try:
                yield n
            except GeneratorExit:
                n -= 1

    return body


def cleans_up(log, deco):
    async def body(n):
        log.append("start")
        try:
            yield n
            yield n
        finally:
            await pause("cleanup")
            log.append("clean")

    return body


def returns_at_once(log, deco):
    async def body(n):
        log.append("start")
        return
        yield

    return body


def nests_async(log, deco):
    @deco
    async def inner(n):
        for i in range(n):
            await pause(("inner", i))
            yield i

    async def body(n):
        log.append("start")
        async for i in inner(n):
            got = yield i
            log.append(got)

    return body


ASYNC_GENERATORS = [yields_async, handles_async, refuses_exit_async, cleans_up, returns_at_once, nests_async]

# -- driving -------------------------------------------------------------------------------------------------------------------


def describe(error: BaseException | None, depth: int = 0) -> Any:
    if error is None or depth > 4:
        return None
    frames = []
    traceback = error.__traceback__
    while traceback:
        code = traceback.tb_frame.f_code
        frames.append((code.co_filename, code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        frames = frames[:1]
    arguments = [describe(a, depth + 1) if isinstance(a, BaseException) else ADDRESS.sub("0x", repr(a)) for a in error.args]
    return (type(error).__name__, arguments, frames, describe(error.__cause__, depth + 1),
            describe(error.__context__, depth + 1), error.__suppress_context__)


def attempt(operation: Callable[[], Any]) -> Any:
    try:
        value = operation()
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return "raised", describe(error)
    if isinstance(value, BaseException):
        return "value", describe(value)
    return "value", ADDRESS.sub("0x", repr(value))


def make_error(which: int) -> BaseException:
    return [ValueError("v", 1), KeyError("k"), Odd("o"), GeneratorExit(), StopIteration(3), StopAsyncIteration(4),
            RuntimeError("r")][which]


def throw(target: Any, which: int, form: int) -> Any:
    error = make_error(which)
    if form == 0:
        return target.throw(error)
    if form == 1:
        return target.throw(type(error))
    if form == 2:
        return target.throw(type(error), error, None)
    if form == 3:
        return target.throw(type(error), error.args)
    return target.throw(42)


def throw_async(target: Any, which: int, form: int) -> Any:
    error = make_error(which)
    if form == 0:
        return target.athrow(error)
    if form == 1:
        return target.athrow(type(error))
    return target.athrow(type(error), error, None)


Operation = tuple[Any, ...]


def random_operations(rng: random.Random, kind: str) -> list[Operation]:
    operations: list[Operation] = []
    for _ in range(rng.randint(0, 9)):
        roll = rng.random()
        if roll < 0.4:
            operations.append(("send", None) if rng.random() < 0.7 else ("next",))
        elif roll < 0.6:
            operations.append(("send", rng.randint(0, 3)))
        elif roll < 0.8:
            operations.append(("throw", rng.randint(0, 6), rng.choice([0, 0, 0, 1, 2, 3, 4])))
        elif roll < 0.88:
            operations.append(("close",))
        elif kind == "async generator":
            operations.append(("new", rng.choice(["anext", "asend", "asend1", "athrow", "aclose", "anext default"]),
                               rng.randint(0, 6), rng.randint(0, 2)))
        else:
            operations.append(rng.choice([("send in handler",), ("attributes",), ("collect",)]))
    return operations


ATTRIBUTES = {
    "generator": ["gi_running", "gi_frame", "gi_yieldfrom", "gi_suspended", "gi_code"],
    "coroutine": ["cr_running", "cr_frame", "cr_await", "cr_suspended", "cr_code", "cr_origin"],
    "async generator": ["ag_running", "ag_frame", "ag_await", "ag_suspended", "ag_code"],
}


def attributes(target: Any, kind: str) -> Any:
    def show(name: str) -> Any:
        value = getattr(target, name, "absent")
        if isinstance(value, types.FrameType):
            return value.f_code.co_name, value.f_lineno
        if isinstance(value, types.CodeType):
            return value.co_qualname if sys.version_info >= (3, 11) else value.co_name
        return ADDRESS.sub("0x", repr(value))

    return [show(name) for name in [*ATTRIBUTES[kind], "__name__", "__qualname__"]] + [ADDRESS.sub("0x", repr(target))]


def perform(target: Any, operation: Operation, kind: str) -> Any:
    what = operation[0]
    if what == "send":
        return attempt(lambda: target.send(operation[1]))
    if what == "next":
        return attempt(lambda: next(target) if kind == "generator" else target.send(None))
    if what == "throw":
        return attempt(lambda: throw(target, operation[1], operation[2]))
    if what == "close":
        return attempt(lambda: target.close())
    if what == "send in handler":
        def in_handler() -> Any:
            try:
                raise LookupError("handled by the caller")
            except LookupError:
                return target.send(None)
        return attempt(in_handler)
    if what == "attributes":
        return attributes(target, kind)
    gc.collect()
    return None


def drive_async(generator: Any, operations: list[Operation]) -> list[Any]:
    seen: list[Any] = []
    current: Any = None
    for operation in operations:
        if operation[0] == "new":
            make = {
                "anext": lambda: generator.__anext__(),
                "asend": lambda: generator.asend(None),
                "asend1": lambda: generator.asend(1),
                "athrow": lambda: throw_async(generator, operation[2], operation[3]),
                "aclose": lambda: generator.aclose(),
                "anext default": lambda: anext(generator, "default"),
            }[operation[1]]
            try:
                current = make()
            except BaseException as error:
                current = None
                seen.append(describe(error))
        elif current is None:
            current = generator.__anext__()
        else:
            seen.append(perform(current, operation, "coroutine"))
            if seen[-1][0] == "raised" and operation[0] != "throw":
                current = None
        seen.append(attributes(generator, "async generator"))
    del current
    return seen


class Observed:
    """Warnings, and errors that nobody could raise."""

    def __enter__(self) -> Observed:
        self.found: list[Any] = []
        self.catcher = warnings.catch_warnings(record=True)
        self.caught = self.catcher.__enter__()
        warnings.simplefilter("always")
        self.before = sys.unraisablehook
        sys.unraisablehook = self.unraisable
        return self

    def unraisable(self, what: Any) -> None:
        self.found.append((describe(what.exc_value), ADDRESS.sub("0x", repr(what.object)), what.err_msg))

    def __exit__(self, *exc: object) -> None:
        gc.collect()
        sys.unraisablehook = self.before
        # `yield from` hands throw(type, value, traceback) on to a delegate as a call, which warns of that form again.
        messages = [(w.category.__name__, ADDRESS.sub("0x", str(w.message))) for w in self.caught]
        self.found += [m for i, m in enumerate(messages) if m[0] != "DeprecationWarning" or m != messages[i - 1] or i == 0]
        self.catcher.__exit__(None, None, None)


def observe(program: Any, operations: list[Operation], kind: str, n: int, deco: Any) -> tuple[Any, bool]:
    log: list[Any] = []
    with Observed() as observed:
        body = program(log, deco)
        target = deco(body)(n)
        if hasattr(body, "holder"):
            body.holder.append(target)
        if kind == "async generator":
            seen = drive_async(target, operations)
        else:
            seen = [perform(target, operation, kind) for operation in operations]
        if hasattr(body, "holder"):
            body.holder.clear()
        del target
    return (seen, log, observed.found), "start" in log


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kind", "program"),
    [("generator", p) for p in GENERATORS] + [("coroutine", p) for p in COROUTINES]
    + [("async generator", p) for p in ASYNC_GENERATORS],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_operations_give_the_same(kind, program, soak):
    rng = random.Random(program.__name__)
    for _ in range(3000 if soak else 60):
        operations = random_operations(rng, kind)
        n = rng.randint(0, 3)
        expected, started = observe(program, operations, kind, n, lambda function: function)
        with Recording() as recording:
            actual, _ = observe(program, operations, kind, n, recording.profile)
            assert actual == expected, operations
            assert recording.open_calls() == []
            assert recording.names().count("body") == started, operations


@pytest.mark.parametrize("kind", ["generator", "coroutine", "async generator"])
def test_operations_give_the_same_while_nothing_records(kind):
    program = {"generator": handles, "coroutine": awaits_nested, "async generator": handles_async}[kind]
    rng = random.Random(kind)
    recording = Recording()
    for _ in range(40):
        operations = random_operations(rng, kind)
        expected, _ = observe(program, operations, kind, 2, lambda function: function)
        actual, _ = observe(program, operations, kind, 2, recording.profile)
        assert actual == expected, operations
