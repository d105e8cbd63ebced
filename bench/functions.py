"""What tracing every Python function costs: ns that a call of the program below takes longer, in processor time.

The program has what programs have: recursion, methods that call functions, a generator, a key function that C calls.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import process_time_ns


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def add(left: int, right: int) -> int:
    return left + right


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        self.value = add(self.value, amount)
        return self.value


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


def program() -> list[int]:
    fibonacci(23)
    counter = Counter()
    for number in numbers(30_000):
        counter.add(number)
    return sorted(range(500), key=lambda value: -value)


CALLS = 92_735 + 1 + 2 * 30_000 + 30_001 + 500 + 1  # stretches of the generator are calls


def took(function: Callable[[], object]) -> int:
    start = process_time_ns()
    function()
    return process_time_ns() - start


def added(traced: Callable[[], int]) -> float:
    """``traced`` runs the program, traced, and returns the ns that it took: what that is more than without, a call."""
    gc.collect()
    gc.disable()
    try:
        traced()
        took(program)
        pairs = [(traced(), took(program)) for _ in range(5)]
    finally:
        gc.enable()
    return sorted(with_trace - without for with_trace, without in pairs)[2] / CALLS


def traced_function() -> float:
    from scope_profiler import ProfileManager

    whole = ProfileManager.profile("whole", recursive=True)(program)

    def once() -> int:
        with ProfileManager.session(output=None, verbose=False):
            return took(whole)

    return added(once)
