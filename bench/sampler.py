"""Cases of the stack sampler: what it takes from a program that it looks at, in processor time of the whole process."""

from __future__ import annotations

import threading
from statistics import median
from time import process_time

from calls import recording

WORK = 400_000  # steps of a Python loop: some tenths of a second
PAIRS = 7
WAITING = 50  # threads that wait, each with a stack of its own to be read


def step(value: int) -> int:
    return value * 3 & 0xFFFF


def work() -> None:
    value = 1
    for _ in range(WORK):
        value = step(value) + 1


def cost(hz: float | None) -> float:
    with recording(sample_hz=hz, track_threads=True):
        begin = process_time()
        work()
        return process_time() - begin


def added() -> float:
    cost(None)
    return median(100 * (cost(50) / cost(None) - 1) for _ in range(PAIRS))


def one_thread() -> float:
    """% of processor time that 50 looks a second add to a Python loop."""
    return added()


def among_waiting() -> float:
    """The same beside 50 threads that wait."""
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(WAITING)]
    for thread in threads:
        thread.start()
    try:
        return added()
    finally:
        done.set()
        for thread in threads:
            thread.join()
