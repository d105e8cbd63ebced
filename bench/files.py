"""Files of 2 M calls, against release 0.7.5: python bench/files.py [CALLS]

Both sides work in processes of their own that take turns; medians are compared. Each side records the same calls and times
``finalize(verbose=False)``, which collects and writes them; then both read the files (in full, and the summary). Sizes are
those of the files. SCOPE_PROFILER_REFERENCE_PYTHON is the interpreter that has the release.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 7
BUDGETS = {  # at least so many times faster than the release
    "finalize": 5.0,
    "finalize tracked": 5.0,
    "finalize async": 4.0,
    "load": 2.0,
    "load summary": 1.0,
}
BYTES = {"finalize": 14.0, "finalize tracked": 16.0, "finalize async": 24.0}  # a call, at most


def record(sp, calls, path, **settings):
    sp.reset()
    sp.setup(output=path, **settings)
    outer, inner, other = sp.region("outer"), sp.region("inner"), sp.region("other")
    for i in range(calls // 4):
        with outer:
            with inner:
                pass
            with other:
                with inner:
                    pass


SETTINGS = {"finalize": {}, "finalize tracked": {"track_threads": True}, "finalize async": {"track_async": True}}


def worker(calls, directory):
    """Answer each line of stdin, the name of a measurement, with its seconds."""
    import scope_profiler as sp

    for line in sys.stdin:
        name = line.strip()
        path = os.path.join(directory, "untracked.h5")
        if name in SETTINGS:
            path = path if name == "finalize" else os.path.join(directory, name.split()[1] + ".h5")
            record(sp, calls, path, **SETTINGS[name])
            function = lambda: sp.finalize(verbose=False)  # noqa: E731
        elif name == "load":
            function = lambda: sp.load(path)["inner"].total_duration  # noqa: E731
        else:
            function = lambda: sp.read_h5_summary(path)["inner"].total_duration  # noqa: E731
        begin = time.perf_counter()
        function()
        print(time.perf_counter() - begin, os.path.getsize(path), flush=True)


class Side:
    def __init__(self, python, calls):
        self.directory = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([python, __file__, "--worker", str(calls), self.directory.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip

    def measure(self, name):
        print(name, file=self.process.stdin, flush=True)
        seconds, size = self.process.stdout.readline().split()
        return float(seconds), int(size)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.directory.cleanup()


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]), sys.argv[3])
        return 0
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    ours, theirs = Side(sys.executable, calls), Side(os.environ["SCOPE_PROFILER_REFERENCE_PYTHON"], calls)
    failures = 0
    print(f"{'':18} {'ours':>9} {'0.7.5':>9} {'faster':>7} {'bytes/call':>11} {'0.7.5':>6}")
    for name, budget in BUDGETS.items():
        taken = []
        for _ in range(ROUNDS):
            taken.append((ours.measure(name), theirs.measure(name)))
        mine, other = (statistics.median(t[side][0] for t in taken) for side in (0, 1))
        sizes = [t / calls for t in (taken[0][0][1], taken[0][1][1])]
        fine = other / mine >= budget and sizes[0] <= BYTES.get(name, sizes[1]) and sizes[0] <= sizes[1]
        failures += not fine
        print(f"{name:18} {mine * 1e3:7.1f}ms {other * 1e3:7.1f}ms {other / mine:6.1f}x {sizes[0]:11.2f} {sizes[1]:6.2f}"
              + ("" if fine else f"   over budget ({budget}x)"))  # fmt: skip
    ours.close()
    theirs.close()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
