"""What the spool costs: a recorded call with it, less one without."""

from __future__ import annotations

import tempfile
import time

CALLS = 1_000_000


def _call(spool: bool, directory: str) -> float:
    """CPU ns of a call of the recording thread."""
    from scope_profiler import _core

    recorder = _core.Recorder()
    run = recorder.open(spool=f"{directory}/x.spool" if spool else None)
    region = recorder.region("x")
    begin = time.thread_time_ns()
    for _ in range(CALLS):
        with region:
            pass
    spent = time.thread_time_ns() - begin
    run.finish_spool(False)
    recorder.forget()
    return spent / CALLS


def spool_call() -> float:
    """The difference of the least of five each, taken in turn, in the working directory's file system."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        pairs = [(_call(False, directory), _call(True, directory)) for _ in range(5)]
    return min(spooled for _, spooled in pairs) - min(plain for plain, _ in pairs)
