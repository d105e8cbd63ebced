"""Cases that time single calls. Each returns ns a call, less the loop around it, and leaves nothing recording."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter_ns

from scope_profiler import ProfileManager

CALLS = 50_000


@contextmanager
def recording(track_threads: bool = False) -> Iterator[None]:
    """A run in memory, and nothing left of it."""
    ProfileManager.setup(output=None, track_threads=track_threads)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        ProfileManager.reset()


def timed(loop: Callable[[], None]) -> int:
    start = perf_counter_ns()
    loop()
    return perf_counter_ns() - start


def net(loop: Callable[[], None], empty: Callable[[], None]) -> float:
    """ns a call of ``loop`` above ``empty``, after one run of each that warms both up and touches fresh memory."""
    loop()
    empty()
    return (timed(loop) - timed(empty)) / CALLS


def empty_loop() -> None:
    for _ in repeat(None, CALLS):
        pass


def reused_loop() -> None:
    marked = ProfileManager.region("reused")
    for _ in repeat(None, CALLS):
        with marked:
            pass


def named_loop() -> None:
    region = ProfileManager.region
    for _ in repeat(None, CALLS):
        with region("named"):
            pass


def nothing() -> None:
    pass


decorated = ProfileManager.profile("decorated")(nothing)


def plain_calls() -> None:
    function = nothing
    for _ in repeat(None, CALLS):
        function()


def decorated_calls() -> None:
    function = decorated
    for _ in repeat(None, CALLS):
        function()


def reused() -> float:
    with recording():
        return net(reused_loop, empty_loop)


def reused_threads() -> float:
    with recording(track_threads=True):
        return net(reused_loop, empty_loop)


def named() -> float:
    with recording():
        return net(named_loop, empty_loop)


def named_threads() -> float:
    with recording(track_threads=True):
        return net(named_loop, empty_loop)


def decorated_call() -> float:
    with recording():
        return net(decorated_calls, plain_calls)


def decorated_threads() -> float:
    with recording(track_threads=True):
        return net(decorated_calls, plain_calls)


def least(loop: Callable[[], None], empty: Callable[[], None]) -> float:
    """ns a call of ``loop`` above ``empty``, by the fastest run of each: for differences that are small against the noise."""
    pairs = [(timed(loop), timed(empty)) for _ in range(7)]
    return (min(first for first, _ in pairs) - min(second for _, second in pairs)) / CALLS


def disabled_decorated() -> float:
    """Not configured at all."""
    return least(decorated_calls, plain_calls)


def disabled_reused() -> float:
    """Not configured at all."""
    return least(reused_loop, empty_loop)


THREADS = 200


def run_threads() -> None:
    for _ in range(THREADS):
        thread = threading.Thread(target=nothing)
        thread.start()
        thread.join()


def thread_life() -> float:
    """µs that starting and ending a thread takes longer in a run that tracks threads, by the fastest round of each kind."""
    times: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(7):
        for track_threads, samples in times.items():
            with recording(track_threads):
                samples.append(timed(run_threads))
    return (min(times[True]) - min(times[False])) / THREADS / 1000
