"""A large run for the viewer: many threads, many tasks on them, and their calls."""

from __future__ import annotations

import random

import numpy as np

from scope_profiler import MPIRegion, ProfilingResults, Region
from scope_profiler.concurrency import TaskInfo, ThreadInfo

REGIONS = 24
LENGTH = 60_000_000_000  # ns


def forest(calls: int) -> np.ndarray:
    """Rows (region, start, end) of calls up to 8 deep, in order of their start, over a time of 1."""
    rng = random.Random(calls)
    rows: list[list[float]] = []
    stack: list[int] = []
    clock = 0.0
    while len(rows) < calls or stack:
        clock += rng.random()
        if len(rows) < calls and (not stack or (len(stack) < 8 and rng.random() < 0.5)):
            stack.append(len(rows))
            rows.append([rng.randrange(REGIONS), clock, 0.0])
        else:
            rows[stack.pop()][2] = clock
    table = np.array(rows)
    table[:, 1:] /= clock + 1
    return table


def lanes(count: int, calls: int, begin: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same forest on every lane, each at its own time and with the regions in another order: region, start, end, lane."""
    table = forest(calls)
    start = (begin[:, None] + table[None, :, 1] * length[:, None]).astype(np.int64)
    end = (begin[:, None] + table[None, :, 2] * length[:, None]).astype(np.int64)
    region = (table[None, :, 0].astype(np.int64) + np.arange(count)[:, None]) % REGIONS
    lane = np.broadcast_to(np.arange(count)[:, None], start.shape)
    return region.ravel(), start.ravel(), end.ravel(), lane.ravel()


def large_run(calls: int = 1_000_000, threads: int = 64, tasks: int = 10_000) -> ProfilingResults:
    """About `calls` calls, two in five of them on `threads` threads and the rest on `tasks` tasks."""
    rng = np.random.default_rng(7)
    on_threads, on_tasks = calls * 2 // 5 // threads, calls * 3 // 5 // tasks
    thread = lanes(threads, on_threads, rng.uniform(0, LENGTH * 0.02, threads), np.full(threads, LENGTH * 0.97))
    life = rng.uniform(0.01, 0.2, tasks) * LENGTH
    born = rng.uniform(0, 1, tasks) * (LENGTH - life)
    task = lanes(tasks, on_tasks, born, life)
    region, start, end = (np.concatenate(pair) for pair in zip(thread[:3], task[:3]))
    thread_ids = np.concatenate([thread[3], task[3] % threads])
    task_ids = np.concatenate([np.full(thread[3].size, -1), task[3]])
    await_ns = np.where(task_ids >= 0, (end - start) * (region % 4) // 4, 0)
    regions = {}
    for number in range(REGIONS):
        own = np.flatnonzero(region == number)
        own = own[np.argsort(start[own], kind="stable")]
        part = Region(start[own], end[own], thread_ids=thread_ids[own], task_ids=task_ids[own], await_times=await_ns[own])
        regions[f"package.module.region_{number:02}"] = MPIRegion(f"package.module.region_{number:02}", {0: part})
    thread_rows = [ThreadInfo(i, 0, f"worker-{i}", 1000 + i, 2000 + i, False, 0, LENGTH, LENGTH * i // threads) for i in range(threads)]
    task_rows = [
        TaskInfo(i, 0, "task", f"Task-{i + 1}", "Client.fetch", i % threads, int(born[i]), int(born[i] + life[i]), 7,
                 int(life[i]) // 4, int(life[i]) // 4 * 3)
        for i in range(tasks)
    ]  # fmt: skip
    return ProfilingResults(
        regions, metadata={"label": "large run", "start_time_ns": 0}, threads={0: thread_rows}, tasks={0: task_rows}
    )
