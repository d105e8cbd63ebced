"""Measure two interpreters side by side: interleaved rounds, medians, ratios, a table.

A *case* is a function of a module in this directory that measures once and returns one number. Each interpreter runs cases in
a worker process of its own, which waits while the other one measures; the order alternates from round to round. So what slows
the machine down for a while hits both alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType

HERE = Path(__file__).resolve().parent


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
    """What is measured, in which unit, how often, and whether release 0.7.5 is measured beside it."""

    name: str
    case: str  # "module:function"
    unit: str
    what: str
    rounds: int = 15
    compared: bool = True
    fresh: bool = False  # a new worker for every round


@dataclass
class Measurement:
    """The samples of one benchmark."""

    benchmark: Benchmark
    ours: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def value(self) -> float:
        """Our median."""
        return median(self.ours)

    @property
    def ratio(self) -> float | None:
        """How many times the reference's median is ours; None when it was not measured."""
        return median(self.reference) / self.value if self.reference and self.value > 0 else None


def measure(benchmark: Benchmark, ours: str, reference: str | None, rounds: int | None = None) -> Measurement:
    """Measure with the interpreters ``ours`` and, if the benchmark compares, ``reference``."""
    result = Measurement(benchmark)
    sides = [(ours, result.ours)]
    if reference and benchmark.compared:
        sides.append((reference, result.reference))
    count = rounds or benchmark.rounds
    try:
        if benchmark.fresh:
            _measure_fresh(benchmark.case, sides, count)
        else:
            _measure_warm(benchmark.case, sides, count)
    except RuntimeError as error:
        result.failure = str(error)
    return result


def _measure_fresh(case: str, sides: list[tuple[str, list[float]]], count: int) -> None:
    for number in range(count):
        for python, samples in sides[:: 1 if number % 2 == 0 else -1]:
            with Worker(python) as worker:
                samples.append(worker.measure(case))


def _measure_warm(case: str, sides: list[tuple[str, list[float]]], count: int) -> None:
    workers = [(Worker(python), samples) for python, samples in sides]
    try:
        for worker, _ in workers:
            worker.measure(case)  # the first round warms up and does not count
        for number in range(count):
            for worker, samples in workers[:: 1 if number % 2 == 0 else -1]:
                samples.append(worker.measure(case))
    finally:
        for worker, _ in workers:
            worker.close()


# -- budgets and reports -------------------------------------------------------------------------------------------------


def verdicts(result: Measurement, budget: Mapping[str, object], python: str) -> list[tuple[str, bool]]:
    """Each promise about this benchmark as (text, kept). ``python`` is the version as in "3.11"."""
    if result.failure:
        return [("it runs", False)]
    found = []
    by_python = budget.get("max_by_python", {})
    assert isinstance(by_python, Mapping)
    limit = by_python.get(python, budget.get("max"))
    if limit is not None:
        found.append((f"at most {limit:g} {result.benchmark.unit}", result.value <= float(limit)))
    least = budget.get("min_ratio")
    if isinstance(least, (int, float)) and result.ratio is not None:
        found.append((f"at least {least:g} times better", result.ratio >= least))
    return found


def markdown(results: Sequence[Measurement], budgets: Mapping[str, Mapping[str, object]], python: str) -> str:
    """The table of all results."""
    lines = [
        "| benchmark | 0.7.5 | now | unit | ratio | budget | |",
        "|---|---:|---:|---|---:|---|---|",
    ]
    for result in results:
        benchmark = result.benchmark
        promises = verdicts(result, budgets.get(benchmark.name, {}), python)
        cells = [
            benchmark.what,
            f"{median(result.reference):.4g}" if result.reference else "",
            f"{result.value:.4g}" if result.ours else "failed",
            benchmark.unit,
            f"{result.ratio:.1f}" if result.ratio is not None else "",
            ", ".join(text for text, _ in promises),
            ("kept" if all(kept for _, kept in promises) else "**missed**") if promises else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def as_json(results: Sequence[Measurement], python: str) -> str:
    """All samples, for later comparison."""
    rows = [
        {
            "name": result.benchmark.name,
            "unit": result.benchmark.unit,
            "ours": result.ours,
            "reference": result.reference,
            "failure": result.failure,
        }
        for result in results
    ]
    return json.dumps({"python": python, "results": rows}, indent=1) + "\n"


def version_of(python: str = sys.executable) -> str:
    """"3.11" and the like."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
