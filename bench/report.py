"""What is promised about a measurement, and the table and the JSON of a run."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence

from harness import LIMIT, OURS, REFERENCE, Measurement

Budget = Mapping[str, object]


def number(budget: Budget, key: str, python: str) -> float | None:
    """The promise ``key``, that for this version of Python before the general one."""
    by_python = budget.get(f"{key}_by_python", {})
    assert isinstance(by_python, Mapping)
    value = by_python.get(python, budget.get(key))
    return float(value) if isinstance(value, (int, float)) else None


def verdicts(result: Measurement, budget: Budget, python: str) -> list[tuple[str, bool]]:
    """Each promise about this benchmark as (text, kept). ``python`` is the version as in "3.11"."""
    ours, limit, unit = result.median_of(OURS), result.median_of(LIMIT), result.benchmark.unit
    if ours is None:
        return [("it runs", False)]
    found = []
    most = number(budget, "max", python)
    if most is not None:
        found.append((f"at most {most:g} {unit}", ours <= most))
    least, ratio = number(budget, "min_ratio", python), result.ratio_to(REFERENCE)
    if least is not None and ratio is not None:
        found.append((f"at least {least:g} times better", ratio >= least))
    times = number(budget, "max_limit_ratio", python)
    if times is not None and limit is not None:
        found.append((f"at most {times:g} times the limit", ours <= times * limit))
    above = number(budget, "max_above_limit", python)
    if above is not None and limit is not None:
        found.append((f"at most {above:g} {unit} above the limit", ours <= limit + above))
    ahead = budget.get("ahead_of", ())
    assert isinstance(ahead, Sequence)
    for peer in ahead:
        theirs = result.median_of(str(peer))
        if theirs is not None:
            found.append((f"ahead of {peer}", ours < theirs))
    return found


def _cell(result: Measurement, side: str) -> str:
    if side in result.failures:
        return "failed"
    value = result.median_of(side)
    return "" if value is None else f"{value:.4g}"


def _peer_cell(result: Measurement, side: str) -> str:
    ratio = result.ratio_to(side)
    return _cell(result, side) + (f" ({ratio:.1f}×)" if ratio is not None else "")


def _columns(results: Sequence[Measurement]) -> list[str]:
    """The peers that were measured, in the order of their first appearance."""
    return list(dict.fromkeys(peer for result in results for peer in result.benchmark.peers if result.median_of(peer) is not None))


def markdown(results: Sequence[Measurement], budgets: Mapping[str, Budget], python: str) -> str:
    """The table of all results: medians; behind each of the others how many times ours it is."""
    peers = _columns(results)
    heads = ["what", "unit", OURS, REFERENCE, "ratio", LIMIT, *peers, "promise", ""]
    lines = ["| " + " | ".join(heads) + " |", "|---|---" + "|---:" * (4 + len(peers)) + "|---|---|"]
    for result in results:
        promises = verdicts(result, budgets.get(result.benchmark.name, {}), python)
        ratio = result.ratio_to(REFERENCE)
        cells = [
            result.benchmark.what,
            result.benchmark.unit,
            _cell(result, OURS),
            _cell(result, REFERENCE),
            f"{ratio:.1f}" if ratio is not None else "",
            _cell(result, LIMIT),
            *(_peer_cell(result, peer) for peer in peers),
            ", ".join(text for text, _ in promises),
            _verdict(promises),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _verdict(promises: Sequence[tuple[str, bool]]) -> str:
    if not promises:
        return ""
    missed = [text for text, kept in promises if not kept]
    return f"**missed**: {', '.join(missed)}" if missed and len(promises) > 1 else "**missed**" if missed else "kept"


def machine() -> str:
    """One line about where and when a run was made."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    load = os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d')}, {model}, {os.cpu_count()} processors, Linux {platform.release()}, "
        f"CPython {platform.python_version()}, load {load:.1f}"
    )


def as_json(results: Sequence[Measurement], python: str, counts: Mapping[str, float]) -> str:
    """All samples, for later comparison."""
    rows = [
        {
            "name": result.benchmark.name,
            "unit": result.benchmark.unit,
            "samples": result.samples,
            "failures": result.failures,
        }
        for result in results
    ]
    return json.dumps({"python": python, "machine": machine(), "results": rows, "instructions": counts}, indent=1) + "\n"
