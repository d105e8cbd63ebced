"""Cases that time single calls at the default settings: ns a call, less the loop around it; nothing is left recording.

A run has an output file, hence the spool, unless a case says otherwise.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import repeat
from statistics import median
from typing import Any

from scope_profiler import ProfileManager
from timing import CALLS, calls_of, empty_loop, least, net, nothing, timed


@contextmanager
def recording(**settings: Any) -> Iterator[None]:
    """A run, and nothing left of it."""
    ProfileManager.setup(**{"output": "profile.h5", **settings})
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        ProfileManager.reset()


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


plain_calls = calls_of(nothing)
decorated_calls = calls_of(ProfileManager.profile("decorated")(nothing))


def steps() -> Generator[None, None, None]:
    for _ in repeat(None, CALLS):
        yield


profiled_steps = ProfileManager.profile("steps")(steps)


def plain_generator() -> None:
    for _ in steps():
        pass


def profiled_generator() -> None:
    for _ in profiled_steps():
        pass


def reused() -> float:
    with recording():
        return net(reused_loop, empty_loop)


def reused_memory() -> float:
    with recording(output=None):
        return net(reused_loop, empty_loop)


def reused_threads() -> float:
    with recording(track_threads=True):
        return net(reused_loop, empty_loop)


def reused_async() -> float:
    with recording(track_async=True):
        return net(reused_loop, empty_loop)


def reused_in_task() -> float:
    async def main() -> float:
        return net(reused_loop, empty_loop)

    with recording(track_async=True):
        return asyncio.run(main())


def named() -> float:
    with recording():
        return net(named_loop, empty_loop)


def named_threads() -> float:
    with recording(track_threads=True):
        return net(named_loop, empty_loop)


def named_async() -> float:
    with recording(track_async=True):
        return net(named_loop, empty_loop)


def decorated_call() -> float:
    with recording():
        return net(decorated_calls, plain_calls)


def decorated_threads() -> float:
    with recording(track_threads=True):
        return net(decorated_calls, plain_calls)


def decorated_async() -> float:
    with recording(track_async=True):
        return net(decorated_calls, plain_calls)


def reused_sums() -> float:
    with recording(aggregation_mode=True):
        return net(reused_loop, empty_loop)


def decorated_sums() -> float:
    with recording(aggregation_mode=True):
        return net(decorated_calls, plain_calls)


def generator_step() -> float:
    """Of a profiled generator function; release 0.7.5 records its creation only, and its steps cost nothing."""
    with recording():
        return net(profiled_generator, plain_generator)


# -- what tracking adds -------------------------------------------------------------------------------------------------------


def added(loop: Callable[[], None], **settings: bool) -> float:
    """ns that ``loop`` takes longer with these settings than without, a call: the median of pairs, each one after the other."""

    def one(**chosen: bool) -> int:
        with recording(**chosen):
            loop()
            return timed(loop)

    one()
    return median(one(**settings) - one() for _ in range(9)) / CALLS


def reused_threads_added() -> float:
    return added(reused_loop, track_threads=True)


def reused_async_added() -> float:
    return added(reused_loop, track_async=True)


def named_threads_added() -> float:
    return added(named_loop, track_threads=True)


def named_async_added() -> float:
    return added(named_loop, track_async=True)


def decorated_threads_added() -> float:
    return added(decorated_calls, track_threads=True)


def decorated_async_added() -> float:
    return added(decorated_calls, track_async=True)


# -- nothing records ----------------------------------------------------------------------------------------------------------


def disabled_decorated() -> float:
    """Not configured at all."""
    return least(decorated_calls, plain_calls)


def disabled_reused() -> float:
    """Not configured at all."""
    return least(reused_loop, empty_loop)


def disabled_named() -> float:
    """Not configured at all."""
    return least(named_loop, empty_loop)
