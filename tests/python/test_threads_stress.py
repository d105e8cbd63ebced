"""Many threads in the same regions, exceptions flying, checkpoints all the time: no call is lost, doubled or moved.

The model is the list that each thread keeps of the regions it enters. The calls that the checkpoints report must be the same, in
the same order, thread by thread.
"""

from __future__ import annotations

import random
import threading
from array import array
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import scope_profiler as sp

REGIONS = [f"shared {i}" for i in range(8)]


class Escape(Exception):
    """Leaves a random number of open calls at once."""


class Worker:
    """Makes nested calls of the shared regions, and writes down each entry: ``calls`` of them, and on until ``enough``."""

    def __init__(self, number: int, calls: int, own_region: bool, enough: threading.Event) -> None:
        self.number = number
        self.left = calls
        self.enough = enough
        self.entered = array("B")
        self.roots = 0
        self.random = random.Random(number)
        self.regions = [sp.region(name) for name in REGIONS]
        self.own = sp.region(f"thread {number}") if own_region else None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while self.left > 0 or not self.enough.is_set():
                self.roots += 1
                try:
                    if self.own is None:
                        self.call(0)
                    else:
                        with self.own:
                            self.call(0)
                except Escape:
                    pass
        except BaseException as error:
            self.error = error

    def call(self, depth: int) -> None:
        self.left -= 1
        which = self.random.randrange(len(REGIONS))
        # Both ways to name a region, which must mean the same one.
        context = self.regions[which] if which % 2 else sp.region(REGIONS[which])
        with context:
            self.entered.append(which)
            if self.random.random() < 0.08:
                raise Escape
            while depth < 12 and self.left > 0 and self.random.random() < 0.55:
                try:
                    self.call(depth + 1)
                except Escape:  # noqa: PERF203
                    if self.random.random() < 0.5:
                        raise


class Checkpoints(threading.Thread):
    """Calls finalize() all the time and keeps what each call reports."""

    def __init__(self) -> None:
        super().__init__(name="checkpoints")
        self.stop = threading.Event()
        self.enough = threading.Event()  # several checkpoints fell into the recording
        self.reports: list[sp.ProfilingResults] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.take()
                if len(self.reports) >= 5:
                    self.enough.set()
        except BaseException as error:
            self.error = error
            self.enough.set()

    def take(self) -> None:
        self.reports.append(sp.finalize(verbose=False, return_results=True))

    def columns(self, name: str, column: str) -> np.ndarray:
        """One column of a region's calls over all reports, in the order of the reports."""
        parts = [getattr(report[name][0], column) for report in self.reports if name in report and 0 in report[name]]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def stress(tmp_path: Path, threads: int, calls: int, *, tracked: bool) -> tuple[list[Worker], Checkpoints]:
    sp.reset()
    sp.setup(output=tmp_path / "stress.h5", track_threads=tracked)
    try:
        checkpoints = Checkpoints()
        workers = [Worker(number, calls, not tracked, checkpoints.enough) for number in range(threads)]
        pool = [threading.Thread(target=worker.run, name=f"worker {worker.number}") for worker in workers]
        checkpoints.start()
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        checkpoints.stop.set()
        checkpoints.join()
        for party in (*workers, checkpoints):
            if party.error is not None:
                raise party.error
        checkpoints.take()
    finally:
        sp.reset()
    return workers, checkpoints


@pytest.fixture
def size(soak: bool) -> tuple[int, int]:
    """Threads, and calls a thread."""
    return (64, 100_000) if soak else (16, 3_000)


def test_tracked_threads_report_every_call_once_in_order_on_its_thread(tmp_path: Path, size: tuple[int, int]) -> None:
    workers, checkpoints = stress(tmp_path, *size, tracked=True)
    last = checkpoints.reports[-1]
    origin = int(last.metadata["start_time_ns"])
    names = {thread.index: thread.name for thread in last.threads[0]}
    starts = np.concatenate([checkpoints.columns(name, "start_times_ns") for name in REGIONS])
    ends = np.concatenate([checkpoints.columns(name, "end_times_ns") for name in REGIONS])
    threads = np.concatenate([checkpoints.columns(name, "thread_ids") for name in REGIONS])
    which = np.concatenate(
        [np.full(len(checkpoints.columns(name, "start_times_ns")), i) for i, name in enumerate(REGIONS)]
    )

    assert len(starts) == sum(len(worker.entered) for worker in workers)
    assert (ends >= starts).all()
    for thread in last.threads[0]:
        mine = threads == thread.index
        if thread.name.startswith("worker "):
            worker = workers[int(names[thread.index].split()[1])]
            order = np.lexsort((-ends[mine], starts[mine]))
            assert which[mine][order].tolist() == worker.entered.tolist(), thread.name
            assert not thread.alive
            assert starts[mine].min() - origin >= round(thread.start_time * 1e9) - 1
            assert ends[mine].max() - origin <= round(thread.end_time * 1e9) + 1
        else:
            assert not mine.any(), thread.name


@pytest.mark.filterwarnings("ignore:.*nest:RuntimeWarning")
def test_untracked_threads_report_every_call_once(tmp_path: Path, size: tuple[int, int]) -> None:
    workers, checkpoints = stress(tmp_path, *size, tracked=False)
    expected = Counter(name for worker in workers for name in map(REGIONS.__getitem__, worker.entered))
    for name in REGIONS:
        starts, ends = checkpoints.columns(name, "start_times_ns"), checkpoints.columns(name, "end_times_ns")
        assert len(starts) == len(ends) == expected[name], name
        assert (ends >= starts).all()
    for worker in workers:
        name = f"thread {worker.number}"
        starts, ends = checkpoints.columns(name, "start_times_ns"), checkpoints.columns(name, "end_times_ns")
        assert len(starts) == worker.roots, name
        order = np.argsort(starts)
        # One thread's calls of its own region follow each other: were an exit to close another thread's call, they would overlap.
        assert (starts[order][1:] >= ends[order][:-1]).all(), name


def test_call_ids_are_unique_over_all_checkpoints(tmp_path: Path, size: tuple[int, int]) -> None:
    _, checkpoints = stress(tmp_path, 4, size[1], tracked=True)
    ids = np.concatenate([checkpoints.columns(name, "call_ids") for name in REGIONS])
    assert len(np.unique(ids)) == len(ids)
    assert (ids >= 0).all()


def test_files_of_checkpoints_hold_what_they_reported(tmp_path: Path) -> None:
    workers, checkpoints = stress(tmp_path, 2, 500, tracked=True)
    last = checkpoints.reports[-1]
    loaded = sp.load(tmp_path / "stress.h5")
    assert {name: loaded[name].num_calls for name in loaded.region_names} == {
        name: last[name].num_calls for name in last.region_names
    }
