"""Measure against release 0.7.5 and the budgets: ``./run bench [NAME...] [--rounds N] [--list]``.

Prints a table, and leaves it with all samples in build/bench/. The exit code is 0 even when a budget is missed: numbers depend
on the machine. SCOPE_PROFILER_REFERENCE_PYTHON is the interpreter that has release 0.7.5.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from harness import HERE, Benchmark, Measurement, as_json, markdown, measure, version_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BENCHMARKS = [
    Benchmark("reused", "calls:reused", "ns", "`with` on a region object"),
    Benchmark("named", "calls:named", "ns", "`with region(name)`"),
    Benchmark("decorated", "calls:decorated_call", "ns", "decorated call, above the plain one"),
    Benchmark("reused_threads", "calls:reused_threads", "ns", "`with` on a region object, threads tracked"),
    Benchmark("named_threads", "calls:named_threads", "ns", "`with region(name)`, threads tracked"),
    Benchmark("decorated_threads", "calls:decorated_threads", "ns", "decorated call, threads tracked"),
    Benchmark("disabled_decorated", "calls:disabled_decorated", "ns", "decorated call while nothing records"),
    Benchmark("disabled_reused", "calls:disabled_reused", "ns", "`with` on a region object while nothing records"),
    Benchmark("spool", "spool:spool_call", "ns", "what the spool adds to a recorded call", rounds=3, compared=False),
    Benchmark("thread_life", "calls:thread_life", "µs", "start and end of a tracked thread, above an untracked one", rounds=7),
    Benchmark("import", "whole:import_time", "ms", "`import scope_profiler`, above the bare interpreter", rounds=3),
    Benchmark("import_used", "whole:import_used_time", "ms", "the same with `ProfileManager, profile, region, session`", rounds=3),
    Benchmark("finalize", "whole:finalize_quiet", "s", "finalize of 2 M calls", rounds=3, fresh=True),
    Benchmark("finalize_printed", "whole:finalize_printed", "s", "the same with the summary", rounds=3, fresh=True),
    Benchmark("finalize_threads", "whole:finalize_threads", "s", "the same, threads tracked", rounds=3, fresh=True),
    Benchmark("finalize_async", "whole:finalize_async", "s", "the same, tasks tracked", rounds=3, fresh=True),
    Benchmark("file_size", "whole:file_size", "MB", "file of 2 M calls", rounds=1, fresh=True),
    Benchmark("file_size_async", "whole:file_size_async", "MB", "the same, tasks tracked", rounds=1, fresh=True),
    Benchmark("load", "whole:load", "s", "load of a file of 2 M calls", rounds=5),
    Benchmark("load_summary", "whole:load_summary", "s", "its summary alone", rounds=5),
    Benchmark("tree", "call_tree:one_lane", "ns", "call tree of columns, a call", rounds=7),
    Benchmark("tree_shuffled", "call_tree:one_lane_shuffled", "ns", "the same of calls in random order", rounds=5),
    Benchmark("tree_lanes", "call_tree:many_lanes", "ns", "the same on 20,000 lanes", rounds=3),
    Benchmark("tree_spread", "call_tree:spread", "", "slowest to fastest number of lanes, 1 to 100,000", rounds=3, compared=False),
    Benchmark("memory_recording", "whole:memory_recording", "B", "memory a call, recording 10 M", rounds=1, compared=False, fresh=True),
    Benchmark("memory_finalize", "whole:memory_finalize", "B", "memory a call, peak of finalize", rounds=1, compared=False, fresh=True),
    Benchmark("memory_names", "whole:memory_names", "MB", "100,000 region names", rounds=1, compared=False, fresh=True),
    Benchmark("memory_threads", "whole:memory_threads", "B", "left of a short thread", rounds=1, compared=False, fresh=True),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure against release 0.7.5 and the budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and end")
    parsed = parser.parse_args()
    unknown = set(parsed.names) - {benchmark.name for benchmark in BENCHMARKS}
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return parsed


def main() -> int:
    asked = arguments()
    chosen = [benchmark for benchmark in BENCHMARKS if not asked.names or benchmark.name in asked.names]
    if asked.list:
        for benchmark in chosen:
            print(f"{benchmark.name:20} {benchmark.what}")
        return 0
    budgets = tomllib.loads((HERE / "budgets.toml").read_text(encoding="utf-8"))
    python = version_of()
    results: list[Measurement] = []
    for benchmark in chosen:
        print(f"measuring {benchmark.name} ...", file=sys.stderr)
        result = measure(benchmark, sys.executable, os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON"), asked.rounds)
        if result.failure:
            print(result.failure, file=sys.stderr)
        results.append(result)
    table = markdown(results, budgets, python)
    print(table, end="")
    output = Path("build/bench")
    output.mkdir(parents=True, exist_ok=True)
    (output / f"bench-{python}.md").write_text(table, encoding="utf-8")
    (output / f"bench-{python}.json").write_text(as_json(results, python), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
