"""What the tests of threads, tasks and greenlets do again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import scope_profiler as sp

NS = 1e-9


def session(**settings: Any) -> Any:
    """A session of the default manager in memory, which returns its results."""
    return sp.session(output=None, verbose=False, return_results=True, **settings)


def burn(seconds: float) -> None:
    """Use CPU time on the calling thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def on_threads(*functions: Callable[[], Any], names: tuple[str, ...] = ()) -> None:
    """Run each function on a thread of its own, at the same time, to the end."""
    threads = [
        threading.Thread(target=function, name=names[i] if i < len(names) else None)
        for i, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def the(rows: list[Any], name: str) -> Any:
    """The one row with a name."""
    found = [row for row in rows if row.name == name]
    assert len(found) == 1, (name, [row.name for row in rows])
    return found[0]


def relative(results: Any, ns: int) -> float:
    """A reading of perf_counter_ns() as the tables have it: seconds since the start of the run."""
    return (ns - int(results.metadata["start_time_ns"])) * NS


class Stopwatch:
    """Readings of the clock by name; seconds between them."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}

    def __call__(self, name: str) -> None:
        self.at[name] = time.perf_counter_ns()

    def between(self, first: str, last: str) -> float:
        return (self.at[last] - self.at[first]) * NS
