"""Repeatable benchmarks: a script that is profiled several times, and whether a change made it faster.

A configuration in TOML says what is run; :func:`run_benchmark` writes a manifest of what came out, :func:`compare_benchmarks`
decides between two of them. Manifests are those of release 0.7.5, which reads ours and whose manifests are read.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from threading import Event

    StrPath: TypeAlias = str | os.PathLike[str]

__all__ = ["BenchmarkConfig", "BenchmarkError", "compare_benchmarks", "load_config", "run_benchmark", "run_interleaved"]

FORMAT = 1
LEAST_RUNS = 2
#: How sure the bounds of a change are, both together; one of them is what the decision looks at.
CONFIDENCE_PCT = 90.0
_ROUNDING = 1e-9  # of probabilities
TEST = "Mann-Whitney, exact, one-sided at 5 %"


class BenchmarkError(ValueError):
    """A configuration, a run or a manifest that cannot be used."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """What is run: paths are absolute, times in seconds, the threshold in percent."""

    name: str
    script: str
    args: tuple[str, ...] = ()
    runs: int = 5
    warmups: int = 1
    timeout_seconds: float = 300.0
    only_user_code: bool = True
    output_dir: str = ".scope-profiler"
    correctness_command: tuple[str, ...] = ()
    correctness_timeout_seconds: float = 300.0
    threshold_pct: float = 2.0


# -- configuration ---------------------------------------------------------------------------------------------------------

_TABLES = {
    "benchmark": (
        "script", "args", "runs", "warmups", "timeout_seconds", "only_user_code", "output_dir", "threshold_pct", "name",
    ),
    "correctness": ("command", "timeout_seconds"),
}  # fmt: skip


def load_config(path: StrPath) -> BenchmarkConfig:
    """Read a configuration: the tables ``[benchmark]`` and, if there is a check of correctness, ``[correctness]``.

    Relative paths in it are beside the file. ``args`` and ``command`` are lists of words, or one text that is split as a shell would.
    Raises BenchmarkError that names the file and what is wrong in it.
    """
    from scope_profiler.profile_config import read_toml

    try:
        document = read_toml(path, "benchmark config")
        values = _Values(document)
        return _config(values, Path(path).absolute())
    except BenchmarkError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    except ValueError as error:
        raise BenchmarkError(str(error)) from None


def _config(values: _Values, path: Path) -> BenchmarkConfig:
    script = path.parent / values.text("benchmark", "script", "")
    if not values.has("benchmark", "script"):
        raise BenchmarkError("it has no benchmark.script")
    if not script.is_file():
        raise BenchmarkError(f"benchmark.script: there is no file {os.path.normpath(script)}")
    timeout = values.number("benchmark", "timeout_seconds", 300.0, above=0.0)
    return BenchmarkConfig(
        name=_part_of_path("benchmark.name", values.text("benchmark", "name", path.stem)),
        script=os.path.normpath(script),
        args=values.words("benchmark", "args"),
        runs=values.count("benchmark", "runs", 5, least=LEAST_RUNS),
        warmups=values.count("benchmark", "warmups", 1, least=0),
        timeout_seconds=timeout,
        only_user_code=values.flag("benchmark", "only_user_code", True),
        output_dir=os.path.normpath(path.parent / values.text("benchmark", "output_dir", ".scope-profiler")),
        correctness_command=values.words("correctness", "command"),
        correctness_timeout_seconds=values.number("correctness", "timeout_seconds", timeout, above=0.0),
        threshold_pct=values.number("benchmark", "threshold_pct", 2.0, above=None),
    )


class _Values:
    """The values of a document, each checked where it is asked for. Errors name the key."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        from scope_profiler.cli.arguments import did_you_mean

        self._document = document
        for table, keys in _TABLES.items():
            if not isinstance(document.get(table, {}), dict):
                raise BenchmarkError(f"[{table}] must be a table")
            for key in document.get(table, {}):
                if key not in keys:
                    raise BenchmarkError(f"[{table}] has no {key!r}{did_you_mean(key, keys)}")
        unknown = [key for key in document if key not in _TABLES]
        if unknown:
            raise BenchmarkError(f"there is no table or key {unknown[0]!r}{did_you_mean(unknown[0], _TABLES)}")

    def has(self, table: str, key: str) -> bool:
        return key in self._document.get(table, {})

    def _get(self, table: str, key: str, otherwise: Any, kinds: tuple[type, ...], what: str) -> Any:
        value = self._document.get(table, {}).get(key, otherwise)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise BenchmarkError(f"{table}.{key} must be {what}, not {value!r}")
        return value

    def text(self, table: str, key: str, otherwise: str) -> str:
        value: str = self._get(table, key, otherwise, (str,), "a text")
        if "\0" in value or (self.has(table, key) and not value):
            raise BenchmarkError(f"{table}.{key} must be a text of one character or more, none of them NUL")
        return value

    def flag(self, table: str, key: str, otherwise: bool) -> bool:
        return bool(self._get(table, key, otherwise, (bool,), "true or false"))

    def count(self, table: str, key: str, otherwise: int, least: int) -> int:
        value: int = self._get(table, key, otherwise, (int,), f"a whole number of {least} or more")
        if value < least:
            raise BenchmarkError(f"{table}.{key} must be a whole number of {least} or more, not {value}")
        return value

    def number(self, table: str, key: str, otherwise: float, above: float | None) -> float:
        """A finite number that is more than ``above``; None: 0 or more."""
        what = "a number of 0 or more" if above is None else f"a number above {above:g}"
        value = float(self._get(table, key, otherwise, (int, float), what))
        if not (value >= 0.0 if above is None else value > above) or value == float("inf"):
            raise BenchmarkError(f"{table}.{key} must be {what}, not {value:g}")
        return value

    def words(self, table: str, key: str) -> tuple[str, ...]:
        value = self._get(table, key, [], (str, list), "a list of texts, or one text")
        if isinstance(value, str):
            try:
                value = shlex.split(value)
            except ValueError as error:
                raise BenchmarkError(f"{table}.{key} cannot be split into words: {error}") from None
        if not all(isinstance(word, str) and "\0" not in word for word in value):
            raise BenchmarkError(f"{table}.{key} must be a list of texts")
        return tuple(value)


def _part_of_path(what: str, name: str) -> str:
    """A name or label, which becomes a directory: below the output directory, nowhere else."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise BenchmarkError(f"{what} {name!r} cannot be the name of a directory below the output directory")
    return name


# -- running ---------------------------------------------------------------------------------------------------------------


def run_benchmark(
    config: BenchmarkConfig,
    label: str = "candidate",
    *,
    stop: Event | None = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Run what ``config`` says: warm-ups, the check of correctness, then the runs; profiles and the manifest go to
    ``<output_dir>/<name>/<label>``.

    Returns the manifest, with its own path as ``manifest_path``. Raises BenchmarkError for a run that fails or takes too long, and
    OSError for a directory or manifest that cannot be written. ``stop`` ends it, ``progress`` is told what is being done.
    """
    side = _Side(config, label, stop, progress)
    side.prepare()
    for number in range(config.runs):
        side.run(number)
    return side.finish()


def run_interleaved(
    baseline: BenchmarkConfig,
    candidate: BenchmarkConfig,
    labels: tuple[str, str] = ("baseline", "candidate"),
    *,
    stop: Event | None = None,
    progress: Callable[[str], object] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run two configurations in turns (a b, b a, a b ...), so that what else the machine does falls on both. The two manifests.

    Raises what :func:`run_benchmark` raises, and BenchmarkError if both would write to the same place.
    """
    sides = _Side(baseline, labels[0], stop, progress), _Side(candidate, labels[1], stop, progress)
    if sides[0].directory == sides[1].directory:
        raise BenchmarkError(f"both would be written to {sides[0].directory}: they need different names or labels")
    for side in sides:
        side.prepare()
    for number in range(max(baseline.runs, candidate.runs)):
        for side in sides if number % 2 == 0 else sides[::-1]:
            if number < side.config.runs:
                side.run(number)
    return sides[0].finish(), sides[1].finish()


class _Side:
    """One configuration with its directory, and what its runs have given."""

    def __init__(
        self, config: BenchmarkConfig, label: str, stop: Event | None, progress: Callable[[str], object] | None
    ) -> None:
        self.config = config
        self.directory = Path(config.output_dir, config.name, _part_of_path("the label", label))
        self._label = label
        self._stop = stop
        self._tell = progress or (lambda text: None)
        self._correctness: dict[str, Any] = {}
        self._profiles: list[dict[str, Any]] = []

    def prepare(self) -> None:
        """Make the directory, warm up, and check the correctness."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for number in range(self.config.warmups):
            self._tell(f"{self._label}: warm-up {number + 1} of {self.config.warmups}")
            self._profile(self.directory / f"warmup-{number}.h5")
        if self.config.correctness_command:
            self._tell(f"{self._label}: checking the correctness")
        self._correctness = _check_correctness(self.config, self._stop)

    def run(self, number: int) -> None:
        """One of the runs that count."""
        self._tell(f"{self._label}: run {number + 1} of {self.config.runs}")
        begin = time.time()
        self._profiles.append({**self._profile(self.directory / f"run-{number}.h5"), "started_at": begin})

    def _profile(self, path: Path) -> dict[str, Any]:
        """Run the script once; the path of its profile, its time and the totals of its regions, in seconds."""
        from scope_profiler import load
        from scope_profiler.bounded_process import profile_script

        config = self.config
        done = profile_script(
            config.script, config.args, path, timeout=config.timeout_seconds, only_user_code=config.only_user_code, stop=self._stop
        )
        if done.returncode is None:
            raise BenchmarkError(f"{config.script}: a run took longer than {config.timeout_seconds:g} s and was ended")
        if done.returncode != 0:
            raise BenchmarkError(f"{config.script}: a run {done.reason}")
        results = load(path)
        if results.total_time is None:
            raise BenchmarkError(f"{path}: the profile does not tell how long the run took")
        regions = {region.name: float(region.total_duration) for region in results}
        return {"path": str(path), "total_time_seconds": results.total_time, "regions": regions}

    def finish(self) -> dict[str, Any]:
        """Write the manifest, whole or not at all."""
        from scope_profiler import _core

        path = self.directory / "benchmark.json"
        manifest = {
            "format": FORMAT,
            "name": self.config.name,
            "label": self._label,
            "config": json.loads(json.dumps(asdict(self.config))),
            "correctness": self._correctness,
            "profiles": self._profiles,
            "total_time_seconds": _statistics([profile["total_time_seconds"] for profile in self._profiles]),
        }
        _core.write_file(str(path), [(json.dumps(manifest, indent=2) + "\n").encode()])
        return {**manifest, "manifest_path": str(path)}


def _check_correctness(config: BenchmarkConfig, stop: Event | None) -> dict[str, Any]:
    from scope_profiler.bounded_process import run_bounded

    command = list(config.correctness_command)
    result: dict[str, Any] = {"configured": bool(command), "passed": True, "command": command, "stdout_tail": "", "stderr_tail": ""}
    if not command:
        return result
    try:
        done = run_bounded(command, config.correctness_timeout_seconds, stop)
    except OSError as error:
        raise BenchmarkError(f"correctness.command: {command[0]}: {error.strerror or error}") from None
    result.update(passed=done.returncode == 0, stdout_tail=done.stdout, stderr_tail=done.stderr)
    if done.returncode is None:
        result["error"] = "timeout"
    else:
        result["returncode"] = done.returncode
    return result


def _statistics(values: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(values),
        "min": min(values),
        "max": max(values),
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "stdev": statistics.stdev(values),
    }


# -- deciding --------------------------------------------------------------------------------------------------------------


def compare_benchmarks(baseline: Mapping[str, Any] | StrPath, candidate: Mapping[str, Any] | StrPath) -> dict[str, Any]:
    """Decide whether a candidate is to be kept, from two manifests or their paths.

    ``decision`` is ``"keep"`` if the candidate's check of correctness passed, its median is faster by more than its
    ``threshold_pct``, and the difference is no accident: the upper bound of the change, at 95 % confidence, is below zero. Else it is
    ``"reject"``, and ``reason`` says why. The bounds (``confidence_interval_pct``) are those of the shift of the times' logarithms
    that belong to the exact Mann-Whitney test: no distribution is assumed, outliers count by their rank only. Two runs on
    each side are too few for any, and nothing is kept then. ``notes`` say what weakens the comparison.

    Raises BenchmarkError that names the manifest and what is wrong in it.
    """
    a, b = _Manifest(baseline, "baseline"), _Manifest(candidate, "candidate")
    before, after = statistics.median(a.times), statistics.median(b.times)
    change = None if before == 0.0 else 100.0 * (after - before) / before
    interval = _interval(a.times, b.times)
    faster = after < before and (change is None or change < -b.threshold_pct)
    significant = interval is not None and interval[1] < 1.0
    kept = faster and significant and b.correct
    return {
        "baseline": {"label": a.label, "stats": _statistics(a.times)},
        "candidate": {"label": b.label, "stats": _statistics(b.times)},
        "relative_change_pct": change,
        "speedup": None if after == 0.0 else before / after,
        "confidence_interval_pct": None if interval is None else [100.0 * (bound - 1.0) for bound in interval],
        "confidence_pct": CONFIDENCE_PCT,
        "test": TEST,
        "p_value": _p_value(a.times, b.times),
        "faster_beyond_threshold": faster,
        "significant": significant,
        "correctness_passed": b.correct,
        "decision": "keep" if kept else "reject",
        "reason": _reason(a, b, change, interval, faster),
        "threshold_pct": b.threshold_pct,
        "notes": _notes(a, b),
    }


class _Manifest:
    """The parts of a manifest that a comparison needs, checked."""

    def __init__(self, source: Mapping[str, Any] | StrPath, role: str) -> None:
        self.name = role if isinstance(source, Mapping) else str(source)
        document = source if isinstance(source, Mapping) else self._read(source)
        if not isinstance(document, Mapping):
            raise self._wrong("it is no manifest of a benchmark")
        if document.get("format") != FORMAT:
            raise self._wrong(f"format {FORMAT} is known, not {document.get('format')!r}")
        self.label = str(document.get("label", ""))
        profiles = document.get("profiles")
        if not isinstance(profiles, list) or not all(isinstance(profile, Mapping) for profile in profiles):
            raise self._wrong("it has no list of profiles")
        if len(profiles) < LEAST_RUNS:
            raise self._wrong(f"it has {len(profiles)} of at least {LEAST_RUNS} runs")
        self.times = [self._number(profile, "total_time_seconds") for profile in profiles]
        self.begins = [profile["started_at"] for profile in profiles if isinstance(profile.get("started_at"), float)]
        correctness = document.get("correctness")
        self.correct = isinstance(correctness, Mapping) and correctness.get("passed") is True
        self.config = document.get("config") if isinstance(document.get("config"), Mapping) else {}
        self.threshold_pct = self._number(self.config or {}, "threshold_pct")

    def _read(self, path: StrPath) -> Any:
        try:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            raise self._wrong("no such file") from None
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"it is not JSON: {error}") from None

    def _number(self, values: Mapping[str, Any], key: str) -> float:
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < float("inf"):
            raise self._wrong(f"{key} is no number of 0 or more: {value!r}")
        return float(value)

    def _wrong(self, what: str) -> BenchmarkError:
        return BenchmarkError(f"{self.name}: {what}")


def _ranks_below(m: int, n: int) -> list[float]:
    """For each u from 0 to m n, the probability that U of the Mann-Whitney test is at most u when both samples are alike."""
    import numpy as np

    # alike[j][u]: how probable it is that, of i values of one and j of the other sample in order, the other comes first in u pairs.
    # The last in order is one of the i, with all j before it, or one of the j, with none of the i after it.
    alike = [np.ones(1) for _ in range(n + 1)]
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            mixed = np.zeros(i * j + 1)
            mixed[j : j + len(alike[j])] = i / (i + j) * alike[j]
            mixed[: len(alike[j - 1])] += j / (i + j) * alike[j - 1]
            alike[j] = mixed
    below: list[float] = np.cumsum(alike[n]).tolist()
    return below


def _p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """How probable a result as good as this is, or better, if nothing changed. Times that are equal speak against a change."""
    not_faster = sum(b >= a for a in before for b in after)
    return _ranks_below(len(before), len(after))[not_faster]


def _interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """Bounds of after / before: each is missed in at most 5 % of all comparisons. None: too few runs, or a time that is zero."""
    if min(*before, *after) <= 0.0:
        return None
    ratios = sorted(b / a for a in before for b in after)
    missed = (100.0 - CONFIDENCE_PCT) / 200.0 + _ROUNDING
    left_out = sum(probability <= missed for probability in _ranks_below(len(before), len(after)))
    if left_out == 0:
        return None
    return ratios[left_out - 1], ratios[-left_out]


def _reason(
    a: _Manifest, b: _Manifest, change: float | None, interval: tuple[float, float] | None, faster: bool
) -> str:
    if not b.correct:
        return "the candidate's check of correctness did not pass"
    words = "the medians cannot be compared" if change is None else f"the median changed by {change:+.2f} %"
    if not faster:
        return f"{words}, which is not faster by more than {b.threshold_pct:g} %"
    if interval is None:
        return f"{words}, but {len(a.times)} and {len(b.times)} runs are too few to tell that from chance"
    low, high = (100.0 * (bound - 1.0) for bound in interval)
    bounds = f"between {low:+.2f} % and {high:+.2f} % ({CONFIDENCE_PCT:g} % confidence)"
    if high < 0.0:
        return f"{words}, {bounds}"
    return f"{words}, but that may be chance: it is {bounds}"


def _notes(a: _Manifest, b: _Manifest) -> list[str]:
    """What weakens the comparison."""
    notes = []
    if not a.correct:
        notes.append("the baseline's check of correctness did not pass")
    differ = [key for key in ("args", "only_user_code") if (a.config or {}).get(key) != (b.config or {}).get(key)]
    if differ:
        notes.append(f"the two were run differently: {', '.join(differ)}")
    if not a.begins or not b.begins or max(a.begins) < min(b.begins) or max(b.begins) < min(a.begins):
        notes.append("one was run after the other: if the machine changed in between, that counts as a change of the program")
    return notes
