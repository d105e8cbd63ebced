"""Cases of tasks, greenlets and threads: what tracking them costs. Nothing is left recording."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from statistics import median
from typing import Any

from calls import recording
from timing import nothing, timed
from whole import resident

STEPS = 20_000
TASKS = 5_000
KEPT_TASKS = 100_000
SWITCHES = 50_000
THREADS = 200


def above_untracked(work: Callable[[], None], count: int, pairs: int, **settings: bool) -> float:
    """ns that each of ``count`` pieces of work takes longer in a run with these settings: the median of pairs."""

    def one(**chosen: bool) -> int:
        with recording(**chosen):
            return timed(work)

    one()
    one(**settings)
    return median(one(**settings) - one() for _ in range(pairs)) / count


async def step() -> None:
    for _ in repeat(None, STEPS):
        await asyncio.sleep(0)


def run_steps() -> None:
    asyncio.run(step())


def asyncio_step() -> float:
    """ns added to a step of a task."""
    return above_untracked(run_steps, STEPS, 9, track_async=True)


async def empty_task() -> None:
    pass


async def task_after_task(count: int) -> None:
    for _ in repeat(None, count):
        await asyncio.create_task(empty_task())


def run_tasks() -> None:
    asyncio.run(task_after_task(TASKS))


def task_life() -> float:
    """ns added to making, running and ending a task."""
    return above_untracked(run_tasks, TASKS, 9, track_async=True)


def task_kept() -> float:
    """Bytes that stay of a task that has ended, by the growth of this process."""
    with recording(track_async=True):
        asyncio.run(task_after_task(1000))
        gc.collect()
        before = resident()
        asyncio.run(task_after_task(KEPT_TASKS))
        gc.collect()
        return (resident() - before) / KEPT_TASKS


def switching() -> Callable[[], None]:
    """Switch to a greenlet and back, SWITCHES in all."""
    greenlet: Any = import_module("greenlet")

    def work() -> None:
        main = greenlet.getcurrent()

        def serve() -> None:
            switch = main.switch
            while True:
                switch()

        switch = greenlet.greenlet(serve).switch
        for _ in repeat(None, SWITCHES // 2):
            switch()

    return work


def greenlet_switch() -> float:
    """ns of a whole switch, tracked."""
    work = switching()
    with recording(track_async=True):
        work()
        return timed(work) / SWITCHES


def greenlet_empty_callback() -> float:
    """ns of a switch with a trace function in C that does nothing: what following switches takes at least."""
    greenlet: Any = import_module("greenlet")
    import limits

    work = switching()
    before = greenlet.settrace(limits.native().callback)
    try:
        work()
        return timed(work) / SWITCHES
    finally:
        greenlet.settrace(before)


def run_threads() -> None:
    for _ in range(THREADS):
        thread = threading.Thread(target=nothing)
        thread.start()
        thread.join()


def thread_life() -> float:
    """µs added to starting a thread and waiting for its end."""
    return above_untracked(run_threads, THREADS, 9, track_threads=True) / 1000


def thread_life_alone() -> float:
    """The same on one processor, where no thread waits for the interpreter's lock while another one's processor wakes up."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        return thread_life()
    finally:
        os.sched_setaffinity(0, allowed)
