"""Measure several sides of one thing in turn: interleaved rounds, medians.

A *case* is a function of a module in this directory that measures once and returns one number. A *side* is an interpreter and
the case it runs: ours, release 0.7.5, another profiler, or the physical limit of the machine. Each side runs in a worker process
of its own, which waits while another one measures; the order alternates from round to round. So what slows the machine down for
a while hits all alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType

HERE = Path(__file__).resolve().parent

OURS = "now"
REFERENCE = "0.7.5"
LIMIT = "limit"


class Worker:
    """A process of one interpreter that measures cases on demand, in a directory of its own."""

    def __init__(self, python: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        self._process = subprocess.Popen(
            [python, str(HERE / "worker.py")],
            cwd=self._directory.name,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, case: str) -> float:
        """One measurement of ``module:function``. RuntimeError with the worker's traceback when it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"case": case}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the worker died with {self._process.wait()}"}
        if "error" in answer:
            raise RuntimeError(f"{case}: {answer['error']}")
        return float(answer["value"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._directory.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Benchmark:
    """What is measured, in which unit, how often, and beside what."""

    name: str
    case: str  # "module:function", run by us and by release 0.7.5
    unit: str
    what: str
    rounds: int = 9
    compared: bool = True  # with release 0.7.5
    reference_rounds: int | None = None  # of release 0.7.5 where it takes very long; the first then counts
    limit: str | None = None  # the case that measures the physical limit
    peers: Mapping[str, str] = field(default_factory=dict)  # other profilers and the cases that measure them
    fresh: bool = False  # a new worker for every round


@dataclass
class Measurement:
    """The samples of one benchmark, by side."""

    benchmark: Benchmark
    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median_of(self, side: str) -> float | None:
        """The median of a side; None when it was not measured."""
        samples = self.samples.get(side)
        return median(samples) if samples else None

    def ratio_to(self, side: str) -> float | None:
        """How many times that side's median is ours; None when there is none."""
        ours, theirs = self.median_of(OURS), self.median_of(side)
        return theirs / ours if ours and theirs is not None and ours > 0 else None


@dataclass(frozen=True)
class Interpreters:
    """Who measures: our interpreter, that of release 0.7.5, and that with the other profilers."""

    ours: str
    reference: str | None
    peers: str | None


@dataclass
class Side:
    """One side of one benchmark while it is measured."""

    name: str
    python: str
    case: str
    rounds: int
    warm_up: bool = True
    worker: Worker | None = None


def sides_of(benchmark: Benchmark, interpreters: Interpreters, rounds: int | None) -> list[Side]:
    """Everything that is measured for a benchmark."""
    count = rounds or benchmark.rounds
    sides = [Side(OURS, interpreters.ours, benchmark.case, count)]
    if interpreters.reference and benchmark.compared:
        few = benchmark.reference_rounds
        sides.append(Side(REFERENCE, interpreters.reference, benchmark.case, min(count, few or count), few is None))
    if interpreters.peers:
        sides += [Side(name, interpreters.peers, case, count) for name, case in benchmark.peers.items()]
    if benchmark.limit:
        sides.append(Side(LIMIT, interpreters.ours, benchmark.limit, count))
    return sides


def measure(benchmark: Benchmark, interpreters: Interpreters, rounds: int | None = None) -> Measurement:
    """Measure every side, interleaved. A side that fails is left out and its failure kept."""
    result = Measurement(benchmark)
    sides = sides_of(benchmark, interpreters, rounds)
    try:
        if not benchmark.fresh:
            for side in sides:
                side.worker = Worker(side.python)
                if side.warm_up:
                    _sample(side, result, keep=False)
        for number in range(max(side.rounds for side in sides)):
            for side in sides[:: 1 if number % 2 == 0 else -1]:
                if number < side.rounds and side.name not in result.failures:
                    _sample(side, result, keep=True)
    finally:
        for side in sides:
            if side.worker:
                side.worker.close()
    return result


def _sample(side: Side, result: Measurement, keep: bool) -> None:
    try:
        if side.worker:
            value = side.worker.measure(side.case)
        else:
            with Worker(side.python) as worker:
                value = worker.measure(side.case)
    except RuntimeError as error:
        result.failures[side.name] = str(error)
        result.samples.pop(side.name, None)
        return
    if keep:
        result.samples.setdefault(side.name, []).append(value)


def version_of(python: str = sys.executable) -> str:
    """"3.11" and the like."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
