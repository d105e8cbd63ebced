"""What a sampler saw of a run's threads (``sample_hz=``): ``results.samples``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    import pandas

__all__ = ["Sample", "SampledFunction", "Samples", "add_groups"]

_NS = 1e9
_ROOT = "scope_profiler.session"  # is around everything, and says nothing


class Frame(NamedTuple):
    """A function on a stack."""

    function: str
    file: str
    first_line: int

    @property
    def label(self) -> str:
        return f"{self.function} ({self.file}:{self.first_line})"


class Sample(NamedTuple):
    """What was seen of one thread in one place.

    ``region`` is the innermost region that was open, None for none (the session's own root counts as none); ``thread_index`` its row
    in ``results.threads`` (-1: none); ``line`` the line in the innermost function of ``stack`` (outermost function first); ``samples``
    how many; ``time`` the s of wall clock, and ``cpu_time`` those of CPU, that they stand for: the rest was waited.
    """

    rank: int
    thread: str
    thread_index: int
    region: str | None
    stack: tuple[Frame, ...]
    line: int
    samples: int
    time: float
    cpu_time: float


class SampledFunction(NamedTuple):
    """The samples of a thread whose innermost function is the same. ``share`` is of the thread's ``time`` in what was asked for."""

    rank: int
    thread: str
    function: str
    file: str
    first_line: int
    samples: int
    time: float
    cpu_time: float
    share: float


class Samples:
    """The samples of a run, a sequence of :class:`Sample`; empty for a run without a sampler.

    ``hz``: how often the sampler looked, on average (0.0: there was none).
    """

    def __init__(self, groups: Mapping[int, Mapping[str, Any]]) -> None:
        self.groups = groups
        """As a profile keeps them, by rank."""
        self._rows = [row for rank, group in sorted(groups.items()) for row in _rows(rank, group)]
        attributes = [group["attributes"] for group in groups.values()]
        self.hz = max((float(one.get("hz", 0.0)) for one in attributes), default=0.0)
        self.lost = sum(int(one.get("lost", 0)) for one in attributes)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Sample:
        return self._rows[index]

    def __repr__(self) -> str:
        return f"<Samples: {self.count} at {self.hz:g} Hz>"

    @property
    def count(self) -> int:
        """How many samples were taken, over all threads."""
        return sum(row.samples for row in self._rows)

    def outside(self) -> list[Sample]:
        """The samples of threads that had no region open."""
        return [row for row in self._rows if row.region is None]

    def inside(self, region: str | None = None) -> list[Sample]:
        """The samples of threads inside of a region, or of this one as the innermost."""
        return [row for row in self._rows if row.region is not None and region in (None, row.region)]

    def functions(self, rows: Iterable[Sample] | None = None) -> list[SampledFunction]:
        """Samples by thread and innermost function, those with the most time first; of ``rows``, or outside of regions."""
        sums: dict[tuple[int, str, int, Frame], list[float]] = {}
        of_thread: dict[tuple[int, str, int], float] = {}
        for row in self.outside() if rows is None else rows:
            thread = (row.rank, row.thread, row.thread_index)
            into = sums.setdefault((*thread, row.stack[-1]), [0, 0.0, 0.0])
            into[0] += row.samples
            into[1] += row.time
            into[2] += row.cpu_time
            of_thread[thread] = of_thread.get(thread, 0.0) + row.time
        found = [
            SampledFunction(rank, thread, *frame, int(count), time, cpu, time / whole if whole else 0.0)
            for (rank, thread, index, frame), (count, time, cpu) in sums.items()
            for whole in (of_thread[rank, thread, index],)
        ]
        return sorted(found, key=lambda row: -row.time)

    def to_dataframe(self) -> pandas.DataFrame:
        """A row a :class:`Sample`: its fields, with ``function file first_line`` of the innermost function, and the whole stack as text.

        ImportError without pandas.
        """
        from scope_profiler.results import _need_pandas

        columns = ["rank", "thread", "thread_index", "region", "function", "file", "first_line", "line", "samples", "time", "cpu_time", "stack"]
        rows = [
            (row.rank, row.thread, row.thread_index, row.region, *row.stack[-1], row.line, row.samples, row.time, row.cpu_time, _folded(row))
            for row in self._rows
        ]
        frame: pandas.DataFrame = _need_pandas().DataFrame(rows, columns=columns)
        return frame

    def export_folded(self, path: str | os.PathLike[str], rows: Iterable[Sample] | None = None) -> None:
        """Write folded stacks for flamegraph.pl and others: a line ``thread;outer;inner µs``. Of ``rows``; else of all.

        OSError names the path; an older file stays. ValueError: there are no samples.
        """
        sums: dict[str, float] = {}
        for row in self._some(rows):
            line = ";".join([_folded_name(_lane(row)), _folded(row)])
            sums[line] = sums.get(line, 0.0) + row.time
        self._write(path, "".join(f"{line} {max(1, round(time * 1e6))}\n" for line, time in sums.items()))

    def export_speedscope(self, path: str | os.PathLike[str], rows: Iterable[Sample] | None = None) -> None:
        """Write a file for https://www.speedscope.app: a sampled profile a thread, in s. As :meth:`export_folded`."""
        import json

        frames: dict[Frame, int] = {}
        profiles: dict[str, dict[str, Any]] = {}
        for row in self._some(rows):
            profile = profiles.setdefault(
                _lane(row), {"type": "sampled", "name": _lane(row), "unit": "seconds", "startValue": 0, "endValue": 0.0, "samples": [], "weights": []}
            )
            profile["samples"].append([frames.setdefault(frame, len(frames)) for frame in row.stack])
            profile["weights"].append(row.time)
            profile["endValue"] += row.time
        busiest = max(range(len(profiles)), key=[profile["endValue"] for profile in profiles.values()].__getitem__)
        document = {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "scope-profiler",
            "name": "samples",
            "activeProfileIndex": busiest,
            "shared": {"frames": [{"name": frame.function, "file": frame.file, "line": frame.first_line} for frame in frames]},
            "profiles": list(profiles.values()),
        }
        self._write(path, json.dumps(document))

    def _some(self, rows: Iterable[Sample] | None) -> Sequence[Sample]:
        chosen = self._rows if rows is None else list(rows)
        if not chosen:
            raise ValueError("there are no samples to export: the run has none, or none was chosen (sample_hz= takes them)")
        return chosen

    def _write(self, path: str | os.PathLike[str], text: str) -> None:
        import os

        from scope_profiler import _core

        _core.write_file(os.fsdecode(path), [text.encode("utf-8", "backslashreplace")])


def _lane(row: Sample) -> str:
    return f"rank {row.rank} {row.thread}" if row.rank else row.thread


def _folded_name(text: str) -> str:
    return "".join(" " if ord(c) < 32 else ":" if c == ";" else c for c in text) or "-"


def _folded(row: Sample) -> str:
    return ";".join(_folded_name(frame.label) for frame in row.stack)


def _rows(rank: int, group: Mapping[str, Any]) -> list[Sample]:
    """The rows of a rank. CorruptProfileError for a group whose columns do not fit together."""
    try:
        return list(_read_rows(rank, {name: list(values) for name, (_, values) in group["datasets"].items()}))
    except (IndexError, KeyError, TypeError, ValueError):
        from scope_profiler._core import CorruptProfileError

        raise CorruptProfileError(f"the samples of rank {rank} are damaged: they refer to what is not there") from None


def _read_rows(rank: int, columns: Mapping[str, list[Any]]) -> Iterator[Sample]:
    threads = list(zip(columns["thread_names"], columns["thread_index"]))
    regions = [None if name == _ROOT else str(name) for name in columns["region_names"]]
    frames = zip(columns["stack_functions"], columns["stack_files"], columns["stack_first_lines"], columns["stack_callers"])
    stacks: list[tuple[Frame, ...]] = []
    for function, file, line, caller in frames:
        outer = () if caller < 0 else stacks[caller]  # a stack comes behind that of its caller
        stacks.append((*outer, Frame(str(function), str(file), int(line))))
    of_rows = (columns[name] for name in ("threads", "regions", "stacks", "lines", "counts", "wall_ns", "cpu_ns"))
    for thread, region, stack, line, count, wall, cpu in zip(*of_rows):
        if thread < 0 or stack < 0:
            raise IndexError
        name, index = threads[thread]
        inside = None if region < 0 else regions[region]
        yield Sample(rank, str(name), int(index), inside, stacks[stack], int(line), int(count), wall / _NS, cpu / _NS)


# Columns that refer to other rows of the group, and what they refer to.
_REFERENCES = {"threads": "thread_names", "stacks": "stack_functions", "stack_callers": "stack_functions", "regions": "region_names"}


def add_groups(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The samples of several parts of one run as one: rows behind each other. There is one part at least."""
    from array import array

    columns: dict[str, Any] = {}
    counts = dict.fromkeys(_REFERENCES.values(), 0)
    for group in groups:
        values = {name: list(column) for name, (_, column) in group["datasets"].items()}
        for name, column in values.items():
            by = counts[_REFERENCES[name]] if name in _REFERENCES else 0
            columns.setdefault(name, []).extend(value + by if by and value >= 0 else value for value in column)
        for name in counts:
            counts[name] += len(values.get(name, ()))
    attributes = {**groups[-1]["attributes"], "lost": max(int(group["attributes"].get("lost", 0)) for group in groups)}
    datasets = {
        name: ((len(column),), column if name.endswith(("names", "functions", "files")) else array("q", column))
        for name, column in columns.items()
    }
    return {"attributes": attributes, "datasets": datasets, "groups": {}}
