"""A program that is to be killed, and what must be found of it afterwards.

It records and keeps a log of its own at the same time, in a file that it maps shared: for every call the time before its
entry, after it, before its exit and after it. Each is one store of eight bytes, so that the log is exact whenever the program
dies. ``check`` compares what was recovered with that log.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import threading
import time
from collections import defaultdict

import scope_profiler as sp

THREADS = 3  # besides the main one, which runs the tasks
TASKS = 100
LANES = THREADS + TASKS
RECORDS = 1 << 16  # a lane
TOLERANCE_NS = 1000  # what two readings of the clock may disagree by

BEFORE_ENTRY, AFTER_ENTRY, BEFORE_EXIT, AFTER_EXIT = range(4)


class Log:
    """Times by lane, record and kind."""

    def __init__(self, path, *, create):
        size = LANES * RECORDS * 32
        with open(path, "w+b" if create else "r+b") as file:
            if create:
                file.truncate(size)
            self.memory = mmap.mmap(file.fileno(), size)

    def put(self, lane, record, kind):
        struct.pack_into("q", self.memory, (lane * RECORDS + record) * 32 + kind * 8, time.perf_counter_ns())

    def records(self, lane):
        """Every record that was begun."""
        found = []
        for record in range(RECORDS):
            times = struct.unpack_from("4q", self.memory, (lane * RECORDS + record) * 32)
            if not times[BEFORE_ENTRY]:
                break
            found.append(times)
        return found


def call(log, lane, record, region, body=None):
    log.put(lane, record, BEFORE_ENTRY)
    with region:
        log.put(lane, record, AFTER_ENTRY)
        if body is not None:
            body()
        log.put(lane, record, BEFORE_EXIT)
    log.put(lane, record, AFTER_EXIT)


def thread_body(log, lane):
    region = sp.region(f"lane {lane}")
    for record in range(RECORDS):
        call(log, lane, record, region, (lambda: time.sleep(0.0005)) if record % 500 == 0 else None)


async def task_body(log, lane):
    region = sp.region(f"lane {lane}")
    record = 0
    while record < RECORDS:
        log.put(lane, record, BEFORE_ENTRY)
        with region:
            log.put(lane, record, AFTER_ENTRY)
            await asyncio.sleep(0.001 * (lane % 5))
            log.put(lane, record, BEFORE_EXIT)
        log.put(lane, record, AFTER_EXIT)
        record += 1


async def tasks_body(log):
    await asyncio.gather(
        *(asyncio.create_task(task_body(log, THREADS + n), name=f"job {n}") for n in range(TASKS))
    )


def run(directory, ready, checkpoints=0.0):
    """Record until killed. ``ready()`` is called when everything runs."""
    os.chdir(directory)
    log = Log("log", create=True)
    sp.setup(output="p.h5", track_async=True, checkpoint="numbered")
    for lane in range(THREADS):
        threading.Thread(target=thread_body, args=(log, lane), name=f"thread {lane}", daemon=True).start()
    if checkpoints:

        def checkpoint():
            while True:
                time.sleep(checkpoints)
                sp.finalize(verbose=False)

        threading.Thread(target=checkpoint, daemon=True).start()
    ready()
    asyncio.run(tasks_body(log))


def check(directory):
    """Compare; the number of calls that had ended. An AssertionError tells what is wrong."""
    log = Log(os.path.join(directory, "log"), create=False)
    calls = defaultdict(list)
    names = sorted(name for name in os.listdir(directory) if name.endswith(".h5"))
    [spool] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    parts = [sp.load(os.path.join(directory, name)) for name in (*names, spool)]
    if names and _is_repeated(parts[-2], parts[-1]):
        del parts[-2]  # killed after the file was in place, before the spool was told
    for results in parts:
        for name in results.region_names:
            region = results[name][0]
            marks = region.event_metadata or ({},) * region.num_calls
            columns = (region.start_times_ns, region.end_times_ns, region.thread_ids, region.task_ids)
            calls[name] += zip(*(column.tolist() for column in columns), marks)
    ended = 0
    last = parts[-1]
    for lane in range(LANES):
        ended += _check_lane(log.records(lane), sorted(calls.pop(f"lane {lane}", [])), lane, last)
    assert not calls, f"regions that the program does not have: {sorted(calls)}"
    return ended


def _is_repeated(file, spool):
    starts = [{name: set(part[name][0].start_times_ns.tolist()) for name in part.region_names} for part in (file, spool)]
    near = [
        any(abs(start - other) < TOLERANCE_NS for other in starts[1].get(name, ()))
        for name, values in starts[0].items()
        for start in list(values)[:1]
    ]
    return bool(near) and all(near)


def _check_lane(records, calls, lane, results):
    done = [record for record in records if record[AFTER_EXIT]]
    assert len(done) >= len(records) - 1
    assert len(calls) >= len(done), f"lane {lane}: {len(done) - len(calls)} of {len(done)} ended calls are missing"
    assert len(calls) <= len(records), f"lane {lane}: {len(calls) - len(records)} calls were never begun"
    for record, (start, end, thread, task, mark) in zip(records, calls):
        before_entry, after_entry, before_exit, after_exit = record
        what = f"lane {lane}: {start} to {end}, the log says {record}"
        assert before_entry - TOLERANCE_NS <= start, what
        assert not after_entry or start <= after_entry + TOLERANCE_NS, what
        assert not after_exit or (before_exit - TOLERANCE_NS <= end <= after_exit + TOLERANCE_NS), what
        assert mark == {} or (mark == {"open": True} and not after_exit), what
        assert mark or before_exit or not after_entry, f"{what}: not marked open"
        _check_names(lane, thread, task, results)
    return len(done)


def _check_names(lane, thread, task, results):
    if lane < THREADS:
        assert task == -1 and results.threads[0][thread].name == f"thread {lane}"
    else:
        row = results.tasks[0][task]
        assert row.name == f"job {lane - THREADS}" and row.coro_name == "task_body", row


def kill_many(directory, seed, count):
    """Start and kill the program ``count`` times; the number of ended calls that were looked for, all of them found."""
    import random
    import shutil
    import signal

    chance = random.Random(seed)
    ended = 0
    for number in range(count):
        place = os.path.join(directory, f"{seed}-{number}")
        os.mkdir(place)
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                run(place, lambda: os.write(writer, b"x"), chance.choice((0.0, 0.0, 0.02, 0.1)))
            finally:
                os._exit(3)
        chance.random()
        os.close(writer)
        assert os.read(reader, 1) == b"x", f"kill {number} of seed {seed}: the program did not start"
        os.close(reader)
        time.sleep(chance.random() ** 2 * 0.5)
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        try:
            ended += check(place)
        except AssertionError as error:
            raise AssertionError(f"kill {number} of seed {seed}: {error}") from None
        shutil.rmtree(place)
    return ended


if __name__ == "__main__":
    import sys

    print(kill_many(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
