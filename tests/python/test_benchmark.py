"""Benchmarks: what a configuration may say, what is run, and how it is decided."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import statistics
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import scope_profiler as sp
from scope_profiler.benchmark import BenchmarkConfig, BenchmarkError, compare_benchmarks, load_config, run_benchmark
from scope_profiler.cli import main

SCRIPT = """
import sys
import scope_profiler as sp
with open({log!r}, "a") as log: log.write(f"{{sys.argv[1:]}}\\n")
for _ in range(3):
    with sp.region("step"):
        with sp.region("work"): sum(range(1000))
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def cli(*arguments: object) -> Answer:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())


def write_config(directory: Path, text: str = "", correctness: str | None = None, name: str = "bench.toml") -> Path:
    (directory / "app.py").write_text(SCRIPT.format(log=str(directory / "log")))
    path = directory / name
    path.write_text(f"[benchmark]\nscript = 'app.py'\n{text}\n" + ("" if correctness is None else f"[correctness]\n{correctness}\n"))
    return path


def manifest(times: list[float], **changes: Any) -> dict[str, Any]:
    """A manifest as release 0.7.5 writes it."""
    return {
        "format": 1,
        "name": "demo",
        "label": "x",
        "config": {"args": [], "only_user_code": True, "threshold_pct": 2.0},
        "correctness": {"configured": False, "passed": True, "command": [], "stdout_tail": "", "stderr_tail": ""},
        "profiles": [{"path": f"run-{i}.h5", "total_time_seconds": t, "regions": {}} for i, t in enumerate(times)],
        "total_time_seconds": {"median": statistics.median(times)},
        **changes,
    }


# -- configuration -------------------------------------------------------------------------------------------------------


def test_the_defaults_and_paths_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    path = write_config(tmp_path / "deep")
    monkeypatch.chdir(tmp_path)
    assert load_config("deep/bench.toml") == BenchmarkConfig(
        name="bench", script=str(path.parent / "app.py"), args=(), runs=5, warmups=1, timeout_seconds=300.0, only_user_code=True,
        output_dir=str(path.parent / ".scope-profiler"), correctness_command=(), correctness_timeout_seconds=300.0, threshold_pct=2.0,
    )  # fmt: skip


def test_every_key(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        "args = ['a', 'b c']\nruns = 2\nwarmups = 0\ntimeout_seconds = 7\nonly_user_code = false\noutput_dir = '/out'\n"
        "threshold_pct = 0.5\nname = 'n'",
        "command = 'make \"check it\"'\ntimeout_seconds = 1.5",
    )
    assert load_config(path) == BenchmarkConfig(
        "n", str(tmp_path / "app.py"), ("a", "b c"), 2, 0, 7.0, False, "/out", ("make", "check it"), 1.5, 0.5
    )


@pytest.mark.parametrize(
    ("text", "correctness", "words"),
    [
        ("runs = 1", None, "benchmark.runs must be a whole number of 2 or more, not 1"),
        ("runs = true", None, "benchmark.runs"),
        ("runs = 2.5", None, "benchmark.runs"),
        ("warmups = -1", None, "benchmark.warmups"),
        ("timeout_seconds = 0", None, "benchmark.timeout_seconds must be a number above 0"),
        ("timeout_seconds = nan", None, "benchmark.timeout_seconds"),
        ("timeout_seconds = inf", None, "benchmark.timeout_seconds"),
        ("threshold_pct = -1", None, "benchmark.threshold_pct"),
        ("only_user_code = 1", None, "benchmark.only_user_code must be true or false"),
        ("args = [1]", None, "benchmark.args must be a list of texts"),
        ("args = '\"'", None, "benchmark.args cannot be split"),
        ("name = '../x'", None, "benchmark.name '../x'"),
        ("name = '/x'", None, "benchmark.name"),
        ("name = ''", None, "benchmark.name"),
        ("output_dir = ''", None, "benchmark.output_dir"),
        ("run = 3", None, "[benchmark] has no 'run', did you mean 'runs'?"),
        ("", "comand = ['x']", "[correctness] has no 'comand', did you mean 'command'?"),
        ("", "timeout_seconds = '1'", "correctness.timeout_seconds"),
        ("[corectness]\ncommand = 'x'", None, "'corectness', did you mean 'correctness'?"),
        ("x = ", None, "invalid TOML"),
    ],
)
def test_what_is_wrong_in_a_configuration_is_told_in_one_line(
    tmp_path: Path, text: str, correctness: str | None, words: str
) -> None:
    path = write_config(tmp_path, text, correctness)
    answer = cli("benchmark", "run", path)
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert "bench.toml" in line and words in line


def test_a_configuration_without_its_script(tmp_path: Path) -> None:
    for text, words in (("[benchmark]", "no benchmark.script"), ("[benchmark]\nscript = 'no.py'", "no.py"), ("benchmark = 1", "table")):
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(BenchmarkError, match=words):
            load_config(tmp_path / "c.toml")
    with pytest.raises(BenchmarkError, match="gone.toml"):
        load_config(tmp_path / "gone.toml")


# -- running -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_writes_profiles_and_a_manifest(tmp_path: Path) -> None:
    path = write_config(tmp_path, "args = ['a', '-q']\nruns = 3\nwarmups = 1", "command = ['sh', '-c', 'echo checked >>log']")
    config = path.read_text().replace("echo checked >>log", f"echo checked >>{tmp_path}/log; echo fine; echo odd >&2")
    path.write_text(config)
    answer = cli("benchmark", "run", path, "--label", "v/1", "--json")
    assert (answer.code, answer.err) == (0, ""), answer
    assert answer.out.count("\n") == 1
    out = tmp_path / ".scope-profiler" / "bench" / "v" / "1"
    document = json.loads(answer.out)
    assert document.pop("manifest_path") == str(out / "benchmark.json")
    assert json.loads((out / "benchmark.json").read_text()) == document
    assert document["correctness"] == {
        "configured": True, "passed": True, "command": document["config"]["correctness_command"], "stdout_tail": "fine\n",
        "stderr_tail": "odd\n", "returncode": 0,
    }  # fmt: skip
    assert (document["format"], document["name"], document["label"]) == (1, "bench", "v/1")
    # A warm-up, the check, the runs.
    assert (tmp_path / "log").read_text().splitlines() == ["['a', '-q']", "checked", *["['a', '-q']"] * 3]
    assert sorted(file.name for file in out.iterdir()) == ["benchmark.json", *(f"run-{i}.h5" for i in range(3)), "warmup-0.h5"]
    times = []
    for number, profile in enumerate(document["profiles"]):
        results = sp.load(out / f"run-{number}.h5")
        assert profile["path"] == str(out / f"run-{number}.h5")
        assert profile["total_time_seconds"] == results.total_time
        assert profile["regions"] == {name: results[name].total_duration for name in ("step", "work")}
        times.append(results.total_time)
    assert document["total_time_seconds"] == {
        "count": 3, "min": min(times), "max": max(times), "mean": pytest.approx(sum(times) / 3), "median": sorted(times)[1],
        "stdev": pytest.approx(math.sqrt(sum((t - sum(times) / 3) ** 2 for t in times) / 2)),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("['sh', '-c', 'exit 4']", {"passed": False, "returncode": 4}),
        ("['sleep', '60']\ntimeout_seconds = 0.3", {"passed": False, "error": "timeout"}),
    ],
)
def test_a_check_that_fails_is_exit_code_1(tmp_path: Path, command: str, facts: dict[str, Any]) -> None:
    answer = cli("benchmark", "run", write_config(tmp_path, "runs = 2\nwarmups = 0", f"command = {command}"))
    assert answer.code == 1 and "check of correctness did not pass" in answer.err
    document = json.loads(answer.out)
    assert facts.items() <= document["correctness"].items()
    assert len(document["profiles"]) == 2  # it is measured all the same


@pytest.mark.parametrize(
    ("program", "text", "words"),
    [
        ("import sys; sys.exit(3)", "", "app.py: a run failed with exit code 3"),
        ("raise ValueError('all wrong')", "", "ValueError: all wrong"),
        ("import time; time.sleep(60)", "timeout_seconds = 1", "app.py: a run took longer than 1 s"),
        ("(", "", "app.py"),
    ],
)
def test_a_run_that_fails_is_one_line(tmp_path: Path, program: str, text: str, words: str) -> None:
    path = write_config(tmp_path, text)
    (tmp_path / "app.py").write_text(program)
    answer = cli("benchmark", "run", path)
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert words in line
    assert not list(tmp_path.rglob("benchmark.json"))


def test_a_check_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    answer = cli("benchmark", "run", write_config(tmp_path, "warmups = 0", "command = ['no-such-program']"))
    assert answer.code == 2 and "correctness.command: no-such-program: No such file" in answer.err


def test_a_label_stays_below_the_output_directory(tmp_path: Path) -> None:
    for label in ("..", "/tmp", "a/../..", ""):
        with pytest.raises(BenchmarkError, match="label"):
            run_benchmark(load_config(write_config(tmp_path)), label)


@pytest.mark.slow
def test_two_configurations_are_run_in_turns(tmp_path: Path) -> None:
    write_config(tmp_path, "args = ['old']\nruns = 3\nwarmups = 0", name="old.toml")
    write_config(tmp_path, "args = ['new']\nruns = 2\nwarmups = 0\nthreshold_pct = 0", name="new.toml")
    answer = cli("benchmark", "run", tmp_path / "new.toml", "--against", tmp_path / "old.toml", "--json")
    order = [line.strip("[']") for line in (tmp_path / "log").read_text().splitlines()]
    assert order == ["old", "new", "new", "old", "old"]
    document = json.loads(answer.out)
    assert (document["baseline"]["stats"]["count"], document["candidate"]["stats"]["count"]) == (3, 2)
    assert document["notes"] == ["the two were run differently: args"]
    assert answer.code == (0 if document["decision"] == "keep" else 1)
    assert len(list(tmp_path.rglob("benchmark.json"))) == 2
    answer = cli("benchmark", "run", tmp_path / "old.toml", "--against", tmp_path / "old.toml", "--label", "baseline")
    assert answer.code == 2 and "different names or labels" in answer.err


# -- deciding ------------------------------------------------------------------------------------------------------------


def exact_p(before: list[float], after: list[float]) -> float:
    """Of all ways to deal the ranks out to the two samples, the share that is as good for the second, or better."""
    m, n = len(before), len(after)
    seen = sum(b >= a for a in before for b in after)
    better = total = 0
    for mine in itertools.combinations(range(m + n), n):
        others = [rank for rank in range(m + n) if rank not in mine]
        total += 1
        better += sum(b > a for a in others for b in mine) <= seen
    return better / total


@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 3), (2, 5), (5, 5), (4, 7), (6, 6)])
def test_the_test_is_exact(m: int, n: int) -> None:
    dice = random.Random(m * 100 + n)
    for shift in (0.8, 0.95, 1.0, 1.1):
        before = [dice.gauss(1.0, 0.1) for _ in range(m)]
        after = [dice.gauss(shift, 0.1) for _ in range(n)]
        result = compare_benchmarks(manifest(before), manifest(after))
        assert result["p_value"] == pytest.approx(exact_p(before, after))
        assert result["significant"] == (exact_p(before, after) <= 0.05 + 1e-12)


def test_the_bounds_hold_every_change_that_the_test_cannot_exclude() -> None:
    before, after = [1.0, 1.1, 1.25, 0.97, 1.05], [0.9, 0.84, 0.99, 0.88, 1.02]
    low, high = compare_benchmarks(manifest(before), manifest(after))["confidence_interval_pct"]

    def excluded(change_pct: float) -> bool:
        factor = 1.0 + change_pct / 100.0
        moved = [time * factor for time in before]
        return exact_p(moved, after) <= 0.05 or exact_p(after, moved) <= 0.05

    assert excluded(low - 0.01) and excluded(high + 0.01)
    assert not any(excluded(low + part * (high - low)) for part in (0.001, 0.3, 0.7, 0.999))


@pytest.mark.parametrize(
    ("before", "after", "changes", "decision", "reason"),
    [
        ([1.00, 1.01, 1.02], [0.90, 0.91, 0.92], {}, "keep", "-9.90 %, between"),
        ([1.00, 1.01, 1.02], [1.00, 1.01, 1.02], {}, "reject", "not faster by more than 2 %"),
        ([1.00, 1.01, 1.02], [0.995, 1.00, 1.01], {}, "reject", "not faster by more than 2 %"),
        ([1.00, 1.01, 1.02], [1.10, 1.11, 1.12], {}, "reject", "+9.90 %"),
        ([1.0, 2.0, 3.0], [0.9, 1.5, 3.1], {}, "reject", "may be chance"),
        ([1.00, 1.01], [0.90, 0.91], {}, "reject", "2 and 2 runs are too few"),
        ([1.00, 1.01, 1.02], [0.90, 0.91, 0.92], {"correctness": {"passed": False}}, "reject", "correctness"),
        ([1.00, 1.01, 1.02], [0.90, 0.91, 0.92], {"correctness": {"passed": None}}, "reject", "correctness"),
        ([1.00, 1.01, 1.02], [0.90, 0.91, 0.92], {"config": {"threshold_pct": 20}}, "reject", "by more than 20 %"),
        ([0.0, 0.0, 0.0], [0.1, 0.1, 0.1], {}, "reject", "cannot be compared"),
    ],
)
def test_decisions(tmp_path: Path, before: list[float], after: list[float], changes: dict[str, Any], decision: str, reason: str) -> None:
    for name, document in (("a.json", manifest(before)), ("b.json", manifest(after, **changes))):
        (tmp_path / name).write_text(json.dumps(document))
    answer = cli("benchmark", "compare", tmp_path / "a.json", tmp_path / "b.json")
    document = json.loads(answer.out)
    assert (document["decision"], answer.code) == (decision, 0 if decision == "keep" else 1)
    assert reason in document["reason"] and answer.err.startswith(f"{decision}: ")
    only = cli("benchmark", "compare", tmp_path / "a.json", tmp_path / "b.json", "--json")
    assert only == Answer(answer.code, json.dumps(document) + "\n", "")


def test_numbers_by_hand() -> None:
    result = compare_benchmarks(manifest([2.0, 4.0, 5.0]), manifest([1.0, 3.0, 2.5]))
    assert (result["relative_change_pct"], result["speedup"]) == (-37.5, 1.6)
    assert (result["baseline"]["stats"]["median"], result["candidate"]["stats"]["median"]) == (4.0, 2.5)
    assert result["confidence_interval_pct"] == pytest.approx([-80.0, 50.0])  # 1/5 and 3/2: with 3 and 3, all ratios


def test_what_weakens_a_comparison_is_noted() -> None:
    a, b = manifest([1.0, 1.1, 1.2]), manifest([0.8, 0.9, 0.95])
    assert [note[:34] for note in compare_benchmarks(a, b)["notes"]] == ["one was run after the other: if th"]
    for document, begins in ((a, (1.0, 3.0, 5.0)), (b, (2.0, 4.0, 6.0))):
        for profile, begin in zip(document["profiles"], begins):
            profile["started_at"] = begin
    assert compare_benchmarks(a, b)["notes"] == []
    a["correctness"] = {"passed": False}
    assert compare_benchmarks(a, b)["notes"] == ["the baseline's check of correctness did not pass"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no manifest"),
        ("{}", "format 1 is known"),
        (json.dumps(manifest([1.0, 2.0], format=2)), "format 1 is known, not 2"),
        (json.dumps(manifest([1.0, 2.0], profiles=None)), "no list of profiles"),
        (json.dumps(manifest([1.0])), "1 of at least 2 runs"),
        (json.dumps(manifest([1.0, -2.0])), "total_time_seconds"),
        (json.dumps(manifest([1.0, 2.0], config={})), "threshold_pct"),
        ("[" * 100_000, "not JSON"),
        (None, "no such file"),
    ],
    ids=range(10),
)
def test_a_manifest_that_cannot_be_used_is_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    (tmp_path / "good.json").write_text(json.dumps(manifest([1.0, 2.0])))
    if text is not None:
        (tmp_path / "bad.json").write_text(text)
    answer = cli("benchmark", "compare", tmp_path / "good.json", tmp_path / "bad.json")
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert "bad.json" in line and words in line


@pytest.mark.parametrize("arguments", [[], ["frob"], ["run"], ["compare", "a.json"], ["run", "c.toml", "--labl", "x"]])
def test_usage_errors_are_one_line(arguments: list[str]) -> None:
    answer = cli("benchmark", *arguments)
    assert answer.code == 2 and len(answer.err.splitlines()) == 1
