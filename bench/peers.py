"""Cases of other profilers, in the fastest way that each of them recommends: ns a call, less the loop and the plain call.

What is not the same (NOTES says it in the report): nvtx and ittapi hand each call to a tool, and record nothing themselves; here
nvtx has one that ignores it (nvtx_tool.c), ittapi none, and its call ends at a null pointer. cProfile and yappi keep sums a function, no single calls. viztracer keeps the last
million calls. OpenTelemetry makes an object with a random id of each call; here it stays in a queue, and nothing exports it.
"""

from __future__ import annotations

import cProfile
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import repeat
from typing import Any

from timing import CALLS, calls_of, empty_loop, net, nothing, timed

NOTES = {
    "viztracer": "keeps the last million calls; its reader is not part of this",
    "yappi": "keeps sums a function, no single calls",
    "cProfile": "keeps sums a function, no single calls; one thread",
    "nvtx": "records nothing itself: it hands calls to a tool, here one that ignores them",
    "ittapi": "records nothing itself: it hands calls to a tool, and none is attached here",
    "OpenTelemetry": "an object and a random id a call; kept in a list and not exported here",
}

plain_calls = calls_of(nothing)


@contextmanager
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def statements(manager: Any) -> Callable[[], None]:
    """A loop of ``with`` statements on one object."""

    def loop() -> None:
        entered = manager
        for _ in repeat(None, CALLS):
            with entered:
                pass

    return loop


def named_statements(make: Callable[[str], Any], calls: int = CALLS) -> Callable[[], None]:
    """A loop of ``with`` statements on an object asked for by name each time."""

    def loop() -> None:
        marked = make
        for _ in repeat(None, calls):
            with marked("named"):
                pass

    return loop


def while_traced(start: Callable[[], object], stop: Callable[[], object]) -> float:
    """ns that tracing every function adds to a call of one."""

    def traced() -> int:
        start()
        try:
            return timed(plain_calls)
        finally:
            stop()

    with without_collector():
        traced()
        plain_calls()
        return (traced() - timed(plain_calls)) / CALLS


# -- profilers of every function ------------------------------------------------------------------------------------------------


@lru_cache
def tracer() -> Any:
    """As its documentation has it for the least overhead: nothing but the calls themselves."""
    return import_module("viztracer").VizTracer(verbose=0, ignore_c_function=True)


def viztracer_call() -> float:
    value = while_traced(tracer().start, tracer().stop)
    tracer().clear()
    return value


def viztracer_named() -> float:
    """``log_event``, its way to mark a block."""
    one = tracer()
    one.start()
    try:
        with without_collector():
            return net(named_statements(one.log_event), empty_loop)
    finally:
        one.stop()
        one.clear()


# What is measured while a profiler is on, by what starts and stops it: while_traced or traced_by.
Measure = Callable[[Callable[[], object], Callable[[], object]], float]


def with_yappi(measure: Measure) -> float:
    yappi = import_module("yappi")
    yappi.set_clock_type("wall")
    value = measure(lambda: yappi.start(builtins=False, profile_threads=False), yappi.stop)
    yappi.clear_stats()
    return value


def yappi_call() -> float:
    return with_yappi(while_traced)


def with_cprofile(measure: Measure) -> float:
    profile = cProfile.Profile(builtins=False)
    return measure(profile.enable, profile.disable)


def cprofile_call() -> float:
    return with_cprofile(while_traced)


def traced_by(start: Callable[[], object], stop: Callable[[], object]) -> float:
    """The program of functions.py, every function of it traced."""
    from functions import added, program, took

    def once() -> int:
        start()
        try:
            return took(program)
        finally:
            stop()

    return added(once)


def viztracer_functions() -> float:
    one = tracer()

    def stop() -> None:
        one.stop()
        one.clear()

    return traced_by(one.start, stop)


def cprofile_functions() -> float:
    return with_cprofile(traced_by)


def yappi_functions() -> float:
    return with_yappi(traced_by)


# -- annotations for a tool -----------------------------------------------------------------------------------------------------


def nvtx_reused() -> float:
    """``push_range`` and ``pop_range`` of a domain, with attributes made before: the fast way in its documentation."""
    domain = import_module("nvtx").get_domain("bench")
    attributes = domain.get_event_attributes(message="reused")

    def loop() -> None:
        push, pop, what = domain.push_range, domain.pop_range, attributes
        for _ in repeat(None, CALLS):
            push(what)
            pop()

    return net(loop, empty_loop)


def nvtx_named() -> float:
    annotate = import_module("nvtx").annotate
    return net(named_statements(lambda name: annotate(name, domain="bench")), empty_loop)


def nvtx_decorated() -> float:
    return net(calls_of(import_module("nvtx").annotate("decorated", domain="bench")(nothing)), plain_calls)


def ittapi_reused() -> float:
    return net(statements(import_module("ittapi").task("reused")), empty_loop)


def ittapi_named() -> float:
    return net(named_statements(import_module("ittapi").task), empty_loop)


def ittapi_decorated() -> float:
    return net(calls_of(import_module("ittapi").task(nothing)), plain_calls)


# -- OpenTelemetry --------------------------------------------------------------------------------------------------------------


class Kept:
    """A span processor that keeps what has ended, as the in-memory exporter does, but without its lock."""

    def __init__(self) -> None:
        self.spans: list[object] = []

    def on_start(self, span: object, parent_context: object = None) -> None:
        pass

    def on_end(self, span: object) -> None:
        self.spans.append(span)

    def _on_ending(self, span: object) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


@lru_cache
def telemetry() -> tuple[Any, Kept]:
    provider = import_module("opentelemetry.sdk.trace").TracerProvider(shutdown_on_exit=False)
    kept = Kept()
    provider.add_span_processor(kept)
    return provider.get_tracer("bench"), kept


SPANS = CALLS // 10  # it takes 10 µs a call: a tenth of the calls tells as much


def spans_of(loop: Callable[[], None]) -> float:
    """ns a call of a loop of SPANS."""
    with without_collector():
        loop()
        value = timed(loop) / SPANS
    telemetry()[1].spans.clear()
    return value


def telemetry_named() -> float:
    return spans_of(named_statements(telemetry()[0].start_as_current_span, SPANS))


def telemetry_decorated() -> float:
    return spans_of(calls_of(telemetry()[0].start_as_current_span("decorated")(nothing), SPANS))
