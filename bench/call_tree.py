"""The call tree of columns, against release 0.7.5: python bench/call_tree.py [CALLS]

Both sides run build_call_arrays over the same regions, in processes of their own that take turns; medians are compared.
SCOPE_PROFILER_REFERENCE_PYTHON is the interpreter that has the release.
"""

import os
import random
import statistics
import subprocess
import sys
import time

ROUNDS = 5
REGIONS = 8
# lanes -> how many times faster than the release it has to be (None: too slow there to be measured)
BUDGETS = {1: 6.0, 100: None, 20_000: 250.0, 100_000: None}
SPREAD_BUDGET = 2.0  # time per call between the fastest and the slowest number of lanes


def forest(calls):
    """(region, start, end) of calls as a recursive program makes them, up to 12 deep."""
    rng = random.Random(calls)
    rows, stack, clock = [], [], 0
    while len(rows) < calls or stack:
        clock += rng.randrange(100, 2000)
        if len(rows) < calls and (not stack or (len(stack) < 12 and rng.random() < 0.5)):
            stack.append(len(rows))
            rows.append([rng.randrange(REGIONS), clock, 0])
        else:
            rows[stack.pop()][2] = clock
    return rows, clock


def regions_of(calls, lanes):
    """The same forest again and again on every lane at once; each region's calls in the order they were entered."""
    import numpy as np
    from scope_profiler import MPIRegion, Region

    rows, length = forest(min(20_000, calls // lanes))
    name, start, end = np.array(rows).T
    copies = np.arange(calls // lanes // len(rows) * lanes)
    offset = (copies // lanes * length + copies % lanes)[:, None]
    lane = np.broadcast_to((copies % lanes)[:, None], (len(copies), len(rows)))
    start, end, name = (start + offset).ravel(), (end + offset).ravel(), np.tile(name, len(copies))
    lane = lane.ravel()
    order = np.argsort(start, kind="stable")
    regions = []
    for r in range(REGIONS):
        own = order[name[order] == r]
        threads = {"thread_ids": np.zeros(len(own), np.int64), "task_ids": lane[own]} if lanes > 1 else {}
        regions.append(MPIRegion(f"region{r}", {0: Region(start[own], end[own], **threads)}))
    return regions


def worker(calls):
    from scope_profiler import build_call_arrays

    regions = {}
    for line in sys.stdin:
        lanes = int(line)
        if lanes not in regions:
            regions.clear()
            regions[lanes] = regions_of(calls, lanes)
            build_call_arrays(regions[lanes], 0)
        begin = time.perf_counter()
        built = build_call_arrays(regions[lanes], 0)
        end = time.perf_counter()
        print((end - begin) / len(built), flush=True)


class Side:
    def __init__(self, python, calls):
        self.process = subprocess.Popen([python, __file__, "--worker", str(calls)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def seconds_per_call(self, lanes):
        print(lanes, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main(calls=2_000_000):
    reference = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
    ours, theirs = Side(sys.executable, calls), Side(reference, calls) if reference else None
    failures, medians = 0, {}
    print(f"build_call_arrays, {calls:,} calls: ns a call")
    for lanes, budget in BUDGETS.items():
        mine, other = [], []
        compare = theirs and budget
        for round_ in range(ROUNDS):
            mine.append(ours.seconds_per_call(lanes) * 1e9)
            if compare and (lanes <= 100 or round_ < 2):
                other.append(theirs.seconds_per_call(lanes) * 1e9)
        medians[lanes] = statistics.median(mine)
        line = f"  {lanes:>7} lanes  {medians[lanes]:9.1f}"
        if compare:
            factor = statistics.median(other) / medians[lanes]
            failures += factor < budget
            line += f"   0.7.5 {statistics.median(other):9.1f}   {factor:.1f} times faster (at least {budget:g})"
        print(line)
    spread = max(medians.values()) / min(medians.values())
    failures += spread > SPREAD_BUDGET
    print(f"  slowest / fastest number of lanes: {spread:.2f} (at most {SPREAD_BUDGET:g})")
    ours.close()
    if theirs:
        theirs.close()
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
    else:
        sys.exit(main(*map(int, sys.argv[1:2])))
