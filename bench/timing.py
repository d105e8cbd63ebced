"""How a single call is timed: a loop of CALLS, less the same loop without it.

Times are the processor time of the process, all of its threads and the kernel's work for them included: what else runs on the
machine counts less than in wall clock, and nothing that is timed here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import process_time_ns

CALLS = 100_000


def timed(loop: Callable[[], None]) -> int:
    """ns that ``loop`` takes."""
    start = process_time_ns()
    loop()
    return process_time_ns() - start


def net(loop: Callable[[], None], empty: Callable[[], None]) -> float:
    """ns a call of ``loop`` above ``empty``, after one run of each to warm up."""
    loop()
    empty()
    return (timed(loop) - timed(empty)) / CALLS


def least(loop: Callable[[], None], empty: Callable[[], None]) -> float:
    """ns a call of ``loop`` above ``empty``, by the fastest run of each: for differences that are small against the noise."""
    pairs = [(timed(loop), timed(empty)) for _ in range(7)]
    return (min(first for first, _ in pairs) - min(second for _, second in pairs)) / CALLS


def empty_loop() -> None:
    for _ in repeat(None, CALLS):
        pass


def nothing() -> None:
    pass


def calls_of(function: Callable[[], None], calls: int = CALLS) -> Callable[[], None]:
    """A loop of calls."""

    def loop() -> None:
        called = function
        for _ in repeat(None, calls):
            called()

    return loop
