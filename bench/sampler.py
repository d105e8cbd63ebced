"""Cases of the stack sampler: what it takes from a program that it looks at, in processor time of the whole process."""

from __future__ import annotations

import threading
from statistics import median
from time import process_time

from calls import recording

WORK = 4_000_000  # steps of a Python loop: 0.2 s and ten looks, beside which the start of the thread that looks is little
PAIRS = 25  # equal loops differ by 1 to 3 % of their processor time; fewer pairs would tell the machine's mood
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


def pair(sampled_first: bool) -> float:
    """% that a sampled loop takes longer than one that is not."""
    if sampled_first:
        sampled, bare = cost(50), cost(None)
    else:
        bare, sampled = cost(None), cost(50)
    return 100 * (sampled / bare - 1)


def added() -> float:
    """The median; which of a pair is first alternates, since the machine may get faster or slower for a while."""
    cost(None)
    return median(pair(number % 2 == 0) for number in range(PAIRS))


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
