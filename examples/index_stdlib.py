"""Index the source of the Python standard library with a thread pool, and see where the time goes.

Every source file is read, cut into tokens and counted on a worker thread; the main thread merges the counts into one index of
names. The regions show what each step costs, the thread table how the work was shared, and how much of a thread's life was CPU time.

    python examples/index_stdlib.py                      # the whole library
    python examples/index_stdlib.py --limit 100 --threads 8
    scope-profiler inspect index_stdlib.h5 --tree        # afterwards
"""

from __future__ import annotations

import argparse
import io
import os
import sysconfig
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import scope_profiler as sp

# Not the library itself: other people's packages, and the library's own tests.
LEFT_OUT = {"site-packages", "dist-packages", "__pycache__"}
TESTS = {"test", "tests", "idle_test"}


@dataclass
class FileCounts:
    """What one file contributes."""

    path: Path
    lines: int
    names: Counter[str]


@dataclass
class Index:
    """All files together: how often each name occurs, and in how many files."""

    files: int = 0
    lines: int = 0
    skipped: list[Path] = field(default_factory=list)
    occurrences: Counter[str] = field(default_factory=Counter)
    files_with: Counter[str] = field(default_factory=Counter)

    def merge(self, counts: FileCounts) -> None:
        """Add one file."""
        self.files += 1
        self.lines += counts.lines
        self.occurrences.update(counts.names)
        self.files_with.update(counts.names.keys())


def source_files(root: Path, with_tests: bool) -> Iterator[Path]:
    """Every .py file below ``root``, in a fixed order."""
    left_out = LEFT_OUT if with_tests else LEFT_OUT | TESTS
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in left_out)
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


@sp.profile("index file")
def index_file(path: Path) -> FileCounts | None:
    """Read, tokenize and count one file; None when it is not valid Python (some files of the library are broken on purpose)."""
    with sp.region("read"):
        source = path.read_bytes()
    try:
        with sp.region("tokenize"):
            tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    except (SyntaxError, tokenize.TokenError, UnicodeDecodeError):
        return None
    with sp.region("count"):
        names = Counter(token.string for token in tokens if token.type == tokenize.NAME)
    return FileCounts(path, source.count(b"\n"), names)


def build_index(paths: list[Path], threads: int) -> Index:
    """Index the files on ``threads`` worker threads."""
    index = Index()
    with ThreadPoolExecutor(threads, thread_name_prefix="indexer") as pool, sp.region("index"):
        jobs = {pool.submit(index_file, path): path for path in paths}
        for job in as_completed(jobs):
            counts = job.result()
            with sp.region("merge"):
                if counts is None:
                    index.skipped.append(jobs[job])
                else:
                    index.merge(counts)
    return index


def print_threads(results: sp.ProfilingResults) -> None:
    """One line a thread: its calls, the time it spent in regions and the CPU time it burned."""
    print(f"  {'thread':<16}{'calls':>8}{'in regions [s]':>16}{'cpu [s]':>10}{'alive for [s]':>15}")
    for row in results.thread_summary():
        life = "to the end" if row["wall_time"] is None else f"{row['wall_time']:.3f}"
        print(f"  {row['name']:<16}{row['num_calls']:>8}{row['region_time']:>16.3f}{row['cpu_time']:>10.3f}{life:>15}")


def main() -> None:
    """Parse the arguments, index, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=4, help="worker threads (default: 4)")
    parser.add_argument("--limit", type=int, metavar="N", help="index only the first N files")
    parser.add_argument("--with-tests", action="store_true", help="index the tests of the library too")
    parser.add_argument("--output", default="index_stdlib.h5", help="profile to write (default: index_stdlib.h5)")
    arguments = parser.parse_args()

    threading.current_thread().name = "main"
    with sp.session(output=arguments.output, track_threads=True, label="index stdlib", verbose=False):
        with sp.region("find files"):
            root = Path(sysconfig.get_paths()["stdlib"])
            paths = list(source_files(root, arguments.with_tests))[: arguments.limit]
        index = build_index(paths, arguments.threads)

    print(f"{index.files} files of {root}, {index.lines:,} lines, {len(index.occurrences):,} names", end="")
    print(f" ({len(index.skipped)} not valid Python)" if index.skipped else "")
    for name, occurrences in index.occurrences.most_common(5):
        print(f"  {name:<10} {occurrences:>8,} times in {index.files_with[name]} files")
    print()
    results = sp.load(arguments.output)
    results.print_summary(suppress_notes=True)
    print_threads(results)
    print(f"\nThe profile is in {arguments.output}:")
    print(f"  scope-profiler inspect {arguments.output} --tree")


if __name__ == "__main__":
    main()
