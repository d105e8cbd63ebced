"""Measure against release 0.7.5, other profilers, the machine's limits and the budgets: ``./run bench [NAME...]``.

Prints a table, and leaves it with all samples in build/bench/; ``--publish`` puts it into docs/benchmarks.md too. The exit code is 0
even when a budget is missed, since times depend on the machine, but 1 when a hot path takes more instructions than recorded in
instructions.toml. SCOPE_PROFILER_REFERENCE_PYTHON is the interpreter that has release 0.7.5, SCOPE_PROFILER_PEERS_PYTHON that with
the other profilers.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

import instructions
import limits
import native
from benchmarks import BENCHMARKS
from harness import HERE, Benchmark, Interpreters, Measurement, measure, version_of
from peers import NOTES
from report import as_json, machine, markdown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INSTRUCTIONS = "instructions"
PAGE = HERE.parent / "docs" / "benchmarks.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure against other profilers and the budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run, or {INSTRUCTIONS} (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and end")
    parser.add_argument("--publish", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--record", action="store_true", help="record the counted instructions instead of comparing them")
    parsed = parser.parse_args()
    known = {benchmark.name for benchmark in BENCHMARKS} | {INSTRUCTIONS}
    unknown = set(parsed.names) - known
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return parsed


def measure_all(chosen: list[Benchmark], rounds: int | None) -> list[Measurement]:
    environment = os.environ
    interpreters = Interpreters(
        sys.executable,
        environment.get("SCOPE_PROFILER_REFERENCE_PYTHON"),
        environment.get("SCOPE_PROFILER_PEERS_PYTHON"),
    )
    results = []
    for benchmark in chosen:
        begin = time.monotonic()
        result = measure(benchmark, interpreters, rounds)
        print(f"measured {benchmark.name} in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        for side, failure in result.failures.items():
            print(f"{side}: {failure}", file=sys.stderr)
        results.append(result)
    return results


def publish(text: str, python: str) -> None:
    """Replace what docs/benchmarks.md has between the marks of this version."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {python} -->\n", f"<!-- end {python} -->"
    replaced, count = re.subn(
        re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + text + end, page, flags=re.DOTALL
    )
    if not count:
        raise SystemExit(f"{PAGE} has no place for Python {python}")
    PAGE.write_text(replaced, encoding="utf-8")


def main() -> int:
    asked = arguments()
    chosen = [benchmark for benchmark in BENCHMARKS if not asked.names or benchmark.name in asked.names]
    count_instructions = not asked.names or INSTRUCTIONS in asked.names
    if asked.list:
        for benchmark in chosen:
            print(f"{benchmark.name:24} {benchmark.what}")
        print(f"{INSTRUCTIONS:24} what the hot paths execute, compared with bench/instructions.toml")
        return 0
    budgets = tomllib.loads((HERE / "budgets.toml").read_text(encoding="utf-8"))
    python = version_of()
    output = Path("build/bench")
    limits.build(output / f"limits-{python}")
    if any(benchmark.name.startswith("native") for benchmark in chosen):
        native.build(output / "native")
    results = measure_all(chosen, asked.rounds)
    text = ""
    if results:
        text += f"{machine()}\n\n{markdown(results, budgets, python)}"
        peers = {peer for result in results for peer in result.benchmark.peers if peer in result.samples}
        text += "".join(f"\n- {peer}: {NOTES[peer]}." for peer in NOTES if peer in peers) + "\n" * bool(peers)
    counts, grown = {}, False
    if count_instructions:
        counts = instructions.count_all()
        table, grown = instructions.compared(counts, python, record=asked.record)
        text += f"\n{table}"
    print(text, end="")
    (output / f"bench-{python}.md").write_text(text, encoding="utf-8")
    (output / f"bench-{python}.json").write_text(as_json(results, python, counts), encoding="utf-8")
    if asked.publish:
        publish(text, python)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
