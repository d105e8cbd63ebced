"""A program to which bad things happen at random moments, and what may come of them.

It records from threads, tasks and forked children, and counts in a shared mapping what it does: for each lane the calls that were
begun and the calls that ended. Then something happens to it. ``judge`` looks at what is left: a whole file, a spool, or one clear
error; and in what is found no call that had ended is missing, and none is there that was never begun.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings

LANES = 8  # 3 threads, 4 tasks, 1 main
PLACE = struct.Struct("qq")  # begun, ended


class Counts:
    """Calls by lane, in a file that outlives the process."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        with open(path, "w+b" if create else "r+b") as file:
            if create:
                file.truncate(LANES * PLACE.size)
            self.memory = mmap.mmap(file.fileno(), LANES * PLACE.size)

    def begin(self, lane: int) -> None:
        begun, ended = PLACE.unpack_from(self.memory, lane * PLACE.size)
        struct.pack_into("q", self.memory, lane * PLACE.size, begun + 1)

    def end(self, lane: int) -> None:
        begun, ended = PLACE.unpack_from(self.memory, lane * PLACE.size)
        struct.pack_into("q", self.memory, lane * PLACE.size + 8, ended + 1)

    def of(self, lane: int) -> tuple[int, int]:
        begun, ended = PLACE.unpack_from(self.memory, lane * PLACE.size)
        return begun, ended


# -- what happens --------------------------------------------------------------------------------------------------------


def _signal(number: int):
    return lambda work: os.kill(os.getpid(), number)


def _limit(what: int, value: int):
    def happen(work: str) -> None:
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (value, hard))

    return happen


def _no_memory(work: str) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + random.choice((0, 1 << 20, 16 << 20)), resource.RLIM_INFINITY))


def _no_descriptors(work: str) -> None:
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + random.choice((0, 1, 3)), 1024), 1024))


def _directory_removed(work: str) -> None:
    shutil.rmtree(work)


def _directory_moved(work: str) -> None:
    os.rename(work, work + ".moved")


def _directory_closed(work: str) -> None:
    os.chmod(work, 0o500)


def _full_disk(work: str) -> None:
    """Nothing of this size fits any more (the tests have a real full disk besides)."""
    _limit(resource.RLIMIT_FSIZE, random.choice((0, 5000, 200_000)))(work)


def _output_is_a_directory(work: str) -> None:
    os.mkdir(os.path.join(work, "p.h5.next"))
    os.rename(os.path.join(work, "p.h5.next"), os.path.join(work, "p.h5"))


def _fork_and_die(work: str) -> None:
    if os.fork() == 0:
        os.kill(os.getpid(), random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)))


def _fork_and_leave(work: str) -> None:
    if os.fork() == 0:
        os._exit(0)


EVENTS = {
    "kill": _signal(signal.SIGKILL), "terminate": _signal(signal.SIGTERM), "interrupt": _signal(signal.SIGINT),
    "segmentation fault": _signal(signal.SIGSEGV), "abort": _signal(signal.SIGABRT), "hang up": _signal(signal.SIGHUP),
    "leave": lambda work: os._exit(3), "no memory": _no_memory, "no descriptors": _no_descriptors,
    "directory removed": _directory_removed, "directory moved": _directory_moved, "directory closed": _directory_closed,
    "full disk": _full_disk, "output is a directory": _output_is_a_directory, "a child dies": _fork_and_die,
    "a child leaves": _fork_and_leave, "nothing": lambda work: None,
}  # fmt: skip


# -- the program ---------------------------------------------------------------------------------------------------------


def program(work: str, counts_path: str, seed: int, event: str) -> None:
    import scope_profiler as sp

    chance = random.Random(seed)
    random.seed(seed)
    counts = Counts(counts_path)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stop = threading.Event()

    def call(lane: int, region: object) -> None:
        counts.begin(lane)
        with region:  # type: ignore[attr-defined]
            pass
        counts.end(lane)

    def thread(lane: int) -> None:
        region = sp.region(f"lane {lane}")
        for number in range(20_000):
            if stop.is_set():
                return
            call(lane, region)
            if number % 200 == 0:
                time.sleep(0.0005)

    async def task(lane: int) -> None:
        region = sp.region(f"lane {lane}")
        for _ in range(2000):
            if stop.is_set():
                return
            counts.begin(lane)
            with region:
                await asyncio.sleep(0)
            counts.end(lane)

    async def tasks() -> None:
        await asyncio.gather(*(asyncio.create_task(task(lane)) for lane in range(3, 7)))

    def happens() -> None:
        try:
            time.sleep(chance.random() * 0.15)
            EVENTS[event](work)
            time.sleep(chance.random() * 0.05)
        finally:
            stop.set()

    told: list[str] = []

    def tell(message: Warning | str, *rest: object) -> None:
        told.append(str(message))
        sys.stderr.write(f"{message}\n")

    warnings.showwarning = tell  # type: ignore[assignment]
    options = {"track_async": True} if seed % 2 else {"track_threads": True}
    with sp.session(output=os.path.join(work, "p.h5"), verbose=False, return_results=True, **options) as run:
        threads = [threading.Thread(target=thread, args=(lane,)) for lane in range(3)]
        threads.append(threading.Thread(target=happens))
        for one in threads:
            one.start()
        try:
            if seed % 2:
                asyncio.run(tasks())
            else:
                region = sp.region("lane 7")
                while not stop.is_set():
                    call(7, region)
        finally:
            stop.set()
            for one in threads:
                if one.ident is not None:
                    one.join()
    check_results(counts, {name: run.results[name].num_calls for name in run.results.region_names}, told)
    sys.stdout.write("exact\n")


def calls_told_lost(text: str) -> int:
    """How many calls the warnings say are missing, or are if the process ends."""
    return sum(map(int, re.findall(r"(\d+) calls? (?:found no memory|(?:is|are) in no file and not in the spool)", text)))


def check_results(counts: Counts, found: dict[str, int], told: list[str]) -> None:
    """Every call is there, but for as many as the warnings say."""
    missing = 0
    for lane in range(LANES):
        begun, ended = counts.of(lane)
        have = found.get(f"lane {lane}", 0)
        assert have <= begun, (lane, begun, ended, found)
        missing += max(ended - have, 0)
    lost = calls_told_lost("\n".join(told))
    assert missing <= lost, (missing, lost, found, [counts.of(lane) for lane in range(LANES)])


# -- what came of it ------------------------------------------------------------------------------------------------------


def _read(path: str) -> dict[str, int]:
    import scope_profiler as sp

    results = sp.load(path)
    return {name: results[name].num_calls for name in results.region_names}


def judge(place: str, seed: int, event: str) -> str:
    """Run it once; one word for what came of it. An AssertionError says what is wrong."""
    place = os.path.abspath(place)
    work, counts_path = os.path.join(place, "work"), os.path.join(place, "counts")
    os.mkdir(work)
    counts = Counts(counts_path, create=True)
    process = subprocess.run(
        [sys.executable, __file__, "--once", work, counts_path, str(seed), event],
        capture_output=True, text=True, timeout=120, errors="replace", cwd=place,
    )  # fmt: skip
    where = work if os.path.isdir(work) else work + ".moved"
    if os.path.isdir(where):
        os.chmod(where, 0o700)
    names = sorted(os.listdir(where)) if os.path.isdir(where) else []
    told = f"seed {seed}, {event}: exit {process.returncode}, {names}\n{process.stdout}{process.stderr}"
    crashed = process.returncode in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)
    assert not crashed or event in ("segmentation fault", "abort"), told
    files = [name for name in names if name.endswith(".h5") and os.path.isfile(os.path.join(where, name))]
    spools = [name for name in names if name.endswith(".spool")]
    found: dict[str, int] | None = None
    if files:
        found = _read(os.path.join(where, files[0]))  # never half of a file
    elif spools:
        found = _read(os.path.join(where, spools[0]))
    if process.returncode == 0:
        assert process.stdout == "exact\n", told
        assert not [name for name in names if name.endswith(".tmp")], told
    elif found is None:
        # Nothing to recover from: only where the directory is gone, or the spool could not be made.
        assert process.stderr, told
        assert event in ("directory removed",) or "calls are lost if" in process.stderr, told
        return "told"
    missing = 0
    for lane in range(LANES):
        begun, ended = counts.of(lane)
        have = (found or {}).get(f"lane {lane}", 0)
        assert have <= begun, f"lane {lane}: {have} calls of {begun} that were begun\n{told}"
        missing += max(ended - have, 0)
    lost = calls_told_lost(process.stderr)
    assert missing <= lost or (found is None and process.returncode == 0), f"{missing} missing, {lost} told\n{told}"
    return "whole" if files else "recovered"


def run_many(directory: str, seed: int, count: int) -> dict[str, int]:
    """``count`` runs; how many came to what."""
    warnings.simplefilter("ignore")
    outcomes: dict[str, int] = {}
    names = sorted(EVENTS)
    for number in range(count):
        event = names[number % len(names)]
        with tempfile.TemporaryDirectory(dir=directory) as place:
            outcome = f"{event}: {judge(place, seed + number, event)}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


if __name__ == "__main__":
    if sys.argv[1] == "--once":
        program(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        for outcome, times in sorted(run_many(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).items()):
            print(times, outcome)
