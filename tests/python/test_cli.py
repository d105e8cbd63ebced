"""The command line, as its users and their scripts meet it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from on_terminal import on_a_terminal
from scope_profiler.cli import main

Process = subprocess.CompletedProcess
Cli = Callable[..., "Process[str]"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command line in the test's directory: in a process of its own if it is to run a program, or is given options of
    subprocess.run; else here, which is quicker."""
    monkeypatch.chdir(tmp_path)

    def in_process(*arguments: str, **options: Any) -> Process[str]:
        options = {"capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path, **options}
        return subprocess.run([sys.executable, "-m", "scope_profiler", *arguments], **options)

    def here(*arguments: str) -> Process[str]:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def run(*arguments: str, **options: Any) -> Process[str]:
        return in_process(*arguments, **options) if options or arguments[:1] == ("run",) else here(*arguments)

    return run


def tell_error(process: Process[str], *words: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr with these words."""
    assert process.returncode == 2, process
    assert process.stdout == ""
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    for word in words:
        assert word in lines[0]


def make(path: Path, regions: dict[str, Sequence[tuple[int, int]]], **metadata: Any) -> Path:
    """A profile of one rank from intervals in ns."""
    made = {
        name: sp.MPIRegion(
            name, {0: sp.Region(*(np.array(side, np.int64) + 10**9 for side in zip(*intervals, strict=True)))}
        )
        for name, intervals in regions.items()
    }
    sp.write_profile(sp.ProfilingResults(made, metadata={"start_time_ns": 10**9, **metadata}), path)
    return path


@pytest.fixture
def threaded(tmp_path: Path) -> Path:
    """outer > inner, twice on each of two workers; alone on the main thread."""
    path = tmp_path / "threaded.h5"

    def work() -> None:
        for _ in range(2):
            with sp.region("outer"), sp.region("inner"):
                pass

    sp.reset()
    with sp.session(output=path, track_threads=True, label="a run", verbose=False):
        for number in range(2):
            thread = threading.Thread(target=work, name=f"worker {number}", daemon=bool(number))
            thread.start()
            thread.join()
        with sp.region("alone", tags=["tag"]):
            pass
    sp.reset()
    return path


# -- the program ---------------------------------------------------------------------------------------------------------


def test_version(cli: Cli) -> None:
    process = cli("--version")
    assert (process.returncode, process.stdout, process.stderr) == (0, f"scope-profiler {sp.__version__}\n", "")


def test_version_imports_neither_numpy_nor_argparse(python: Callable[..., Process[str]]) -> None:
    source = (
        "import sys; from scope_profiler.cli import main; main(['--version']); "
        "print([name for name in ('numpy', 'argparse', 'asyncio') if name in sys.modules])"
    )
    assert python(source).stdout.splitlines()[1] == "[]"


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["-h"], 0), ([], 1)])
def test_help_lists_the_commands(cli: Cli, arguments: list[str], code: int) -> None:
    process = cli(*arguments)
    assert process.returncode == code and process.stderr == ""
    for command in ("run", "inspect", "diff", "check"):
        assert re.search(rf"^  {command} ", process.stdout, re.M)


@pytest.mark.parametrize("command", ["run", "inspect", "diff", "check"])
def test_every_command_has_help(cli: Cli, command: str) -> None:
    process = cli(command, "--help")
    assert process.returncode == 0 and process.stderr == ""
    assert process.stdout.startswith(f"usage: scope-profiler {command}")


def test_run_shows_its_options(cli: Cli) -> None:
    shown = cli("run", "--help").stdout
    for option in ("--track-threads", "--no-mpi-calls", "--recursive", "--no-recursive", "--all", "--aggregation-mode", "--include"):
        assert option in shown


@pytest.mark.parametrize(
    ("typed", "meant"), [("inspekt", "'inspect'"), ("chek", "'check'"), ("rn", "'run'"), ("--versoin", "'--version'")]
)
def test_a_mistyped_command_is_told_the_nearest(cli: Cli, typed: str, meant: str) -> None:
    tell_error(cli(typed), typed, f"did you mean {meant}?")


def test_a_command_like_no_other_gets_no_suggestion(cli: Cli) -> None:
    process = cli("xyzzy\x1b[2J")
    tell_error(process, "unknown command")
    assert "did you mean" not in process.stderr and "\x1b" not in process.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "a.h5", "--nonsense"],
        ["inspect", "a.h5", "--sort", "size"],
        ["inspect", "a.h5", "--columns", "colour"],
        ["inspect", "a.h5", "--ranks", "zz"],
        ["inspect", "a.h5", "--ranks", "3-1"],
        ["inspect", "a.h5", "--top", "-1"],
        ["inspect", "a.h5", "--metadata-only", "--regions-only"],
        ["inspect", "no*.h5"],
        ["diff", "a.h5"],
        ["diff", "a.h5", "b.h5", "--metric", "size"],
        ["check", "a.h5", "b.h5", "--max-regression", "-5"],
        ["check", "a.h5", "b.h5", "--max-regression", "nan"],
        ["run"],
        ["run", "-m"],
        ["run", "--label"],
        ["run", "missing.py"],
        ["run", "-m", "no_such_module_anywhere"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_one_line(cli: Cli, arguments: list[str]) -> None:
    tell_error(cli(*arguments), "scope-profiler: ")


@pytest.mark.parametrize("options", [["-i", "none"], ["-e", ""], ["-i", "a", "-e", "a"]], ids=" ".join)
@pytest.mark.parametrize(
    "command", [["view", "--no-open", "-o"], ["report", "-o"], ["export", "--to", "json", "-o"], ["export", "--to", "chrome-trace", "-o"]]
)
def test_nothing_is_written_of_a_selection_that_is_empty(cli: Cli, tmp_path: Path, command: list[str], options: list[str]) -> None:
    make(tmp_path / "run.h5", {"a": [(0, 10)]})
    tell_error(cli(*command, "out", "run.h5", *options), "run.h5: no region matches the filters")
    assert not (tmp_path / "out").exists()


def test_a_selection_may_leave_nothing_of_one_of_several_profiles(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "a.h5", {"a": [(0, 10)]})
    make(tmp_path / "b.h5", {"b": [(0, 10)]})
    assert cli("report", "a.h5", "b.h5", "-i", "b", "-o", "out.html").returncode == 0


def test_a_missing_file_behind_patterns_is_named(cli: Cli) -> None:
    tell_error(cli("inspect", "--include", "a", "gone.h5"), "FILE", "no file among what follows --include: a gone.h5")


def test_a_missing_file_is_one_line(cli: Cli, tmp_path: Path) -> None:
    good = make(tmp_path / "good.h5", {"a": [(0, 10)]})
    tell_error(cli("inspect", "nothing.h5"), "nothing.h5", "no such file")
    (tmp_path / "killed.h5.17-1.spool").touch()
    tell_error(cli("inspect", "killed.h5"), "killed.h5: no such file, but there is killed.h5.17-1.spool")
    tell_error(cli("diff", str(good), "nothing.h5"), "nothing.h5")
    tell_error(cli("check", "nothing.h5", str(good)), "nothing.h5")


# -- inspect -------------------------------------------------------------------------------------------------------------


def test_inspect_prints_metadata_regions_and_threads(cli: Cli, threaded: Path) -> None:
    process = cli("inspect", "threaded.h5")
    assert process.returncode == 0 and process.stderr == ""
    for text in ("a run - threaded.h5", "4 regions", "10 calls", "3 threads", "python_version", "Threads (3)"):
        assert text in process.stdout
    row = re.search(r"│ +\d+ +worker 1 \(daemon\) +4 ", process.stdout)
    assert row, process.stdout


def test_inspect_parts(cli: Cli, threaded: Path) -> None:
    metadata = cli("inspect", "threaded.h5", "--metadata-only").stdout
    assert "python_version" in metadata and "outer" not in metadata and "worker" not in metadata
    regions = cli("inspect", "threaded.h5", "--regions-only").stdout
    assert "python_version" not in regions and "outer" in regions and "worker" not in regions


def test_inspect_include_exclude_and_top(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"ab": [(0, 30)], "ac": [(40, 60)], "b": [(70, 80)], "a.c": [(90, 190)]})

    def names(*options: str) -> list[str]:
        document = json.loads(cli("inspect", "p.h5", "--json", *options).stdout)
        return [region["name"] for region in document["profiles"][0]["regions"]]

    assert names() == ["ab", "ac", "b", "a.c"]
    assert names("--include", "a") == ["ab", "ac", "a.c"]
    assert names("--include", "a", "--exclude", r"a\.", "b") == ["ab", "ac"]
    assert names("--top", "2") == ["a.c", "ab"]
    assert names("--top", "2", "--sort", "name") == ["a.c", "ab"]
    assert names("--sort", "total") == ["a.c", "ab", "ac", "b"]
    assert names("--top", "0") == ["ab", "ac", "b", "a.c"]
    table = cli("inspect", "p.h5", "--regions-only", "--top", "1").stdout
    assert "a.c" in table and "ab" not in table
    tell_error(cli("inspect", "p.h5", "--include", "("), "regular expression")
    assert "(no region matches)" in cli("inspect", "p.h5", "--include", "zz").stdout


def test_inspect_ranks(cli: Cli, tmp_path: Path) -> None:
    parts = {rank: sp.Region(np.array([10, 100]), np.array([20 + rank, 101])) for rank in range(3)}
    results = sp.ProfilingResults({"a": sp.MPIRegion("a", parts)}, metadata={"mpi_size": 3}, num_ranks=3)
    sp.write_profile(results, tmp_path / "ranks.h5")

    def region(*options: str) -> dict[str, Any]:
        document = json.loads(cli("inspect", "ranks.h5", "--json", *options).stdout)
        value: dict[str, Any] = document["profiles"][0]["regions"][0]
        return value

    assert region()["ranks"] == [0, 1, 2]
    assert region("--ranks", "0", "2")["ranks"] == [0, 2]
    assert region("--ranks", "1-2")["num_calls"] == 4
    assert region("--ranks", "1,2")["max_duration"] == pytest.approx(12e-9)
    tell_error(cli("inspect", "ranks.h5", "--ranks", "7"), "no such rank")


def test_inspect_json_has_exact_numbers(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 1_000), (2_000, 5_000)], "b": [(2_500, 3_000)]}, label="x")
    document = json.loads(cli("inspect", "p.h5", "--json").stdout)
    (profile,) = document["profiles"]
    assert profile["label"] == "x" and profile["metadata"]["label"] == "x" and profile["num_ranks"] == 1
    a, b = profile["regions"]
    assert (a["name"], a["num_calls"], b["num_calls"]) == ("a", 2, 1)
    assert a["total_duration"] == pytest.approx(4e-6) and a["exclusive_duration"] == pytest.approx(3.5e-6)
    assert (a["min_duration"], a["max_duration"]) == (pytest.approx(1e-6), pytest.approx(3e-6))
    assert a["p50_duration"] == pytest.approx(2e-6)


def test_inspect_json_of_threads(cli: Cli, threaded: Path) -> None:
    (profile,) = json.loads(cli("inspect", "threaded.h5", "--json").stdout)["profiles"]
    threads = {thread["name"]: thread for thread in profile["threads"]}
    assert sorted(threads) == ["MainThread", "worker 0", "worker 1"]
    assert threads["worker 1"]["daemon"] is True and threads["worker 1"]["alive"] is False
    assert threads["MainThread"]["end_time"] is None
    assert {region["name"]: region["tags"] for region in profile["regions"]}["alone"] == ["tag"]


def test_inspect_columns_and_sort(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 10)], "b": [(20, 90)]})
    process = cli("inspect", "p.h5", "--regions-only", "--sort", "total", "--columns", "region", "calls", "max")
    assert process.returncode == 0
    body = [line for line in process.stdout.splitlines() if re.match(r"  │ (a|b) ", line)]
    assert [line.split()[1] for line in body] == ["b", "a"]
    assert cli("inspect", "p.h5", "--columns", "region,calls").returncode == 0


def test_inspect_several_files_and_globs(cli: Cli, tmp_path: Path) -> None:
    for name in ("one.h5", "two.h5", "[x].h5"):
        make(tmp_path / name, {name: [(0, 10)]})
    listed = json.loads(cli("inspect", "*.h5", "one.h5", "--json").stdout)["profiles"]
    assert [Path(profile["file_path"]).name for profile in listed] == ["[x].h5", "one.h5", "two.h5"]
    assert json.loads(cli("inspect", "[x].h5", "--json").stdout)["profiles"][0]["regions"][0]["name"] == "[x].h5"


def test_inspect_source(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text("import scope_profiler as sp\nwith sp.region('marked'):\n    x = 1\n")
    (tmp_path / "p.toml").write_text("[profiling]\ncapture_region_source = true\nfile_path = 'p.h5'\n")
    assert cli("run", "-q", "--config", "p.toml", "app.py").returncode == 0
    process = cli("inspect", "p.h5", "--source", "marked")
    assert process.returncode == 0
    assert "app.py:2" in process.stdout and "    x = 1" in process.stdout
    process = cli("inspect", "p.h5", "--source", "other")
    assert process.returncode == 1 and "no such region" in process.stdout


def test_inspect_export_metadata(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 10)]}, label="x")
    process = cli("inspect", "p.h5", "-q", "--export-metadata", "m.json")
    assert (process.returncode, process.stdout) == (0, "")
    (entry,) = json.loads((tmp_path / "m.json").read_text())["files"]
    assert entry["num_ranks"] == 1 and entry["metadata"]["label"] == "x"
    tell_error(cli("inspect", "p.h5", "-q", "--export-metadata", "no/such/m.json"), "no/such/m.json")


def test_inspect_full_prints_long_metadata_whole(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 10)]}, PATH="/x" * 200)
    assert "/x" * 200 not in cli("inspect", "p.h5").stdout
    assert "/x" * 200 in cli("inspect", "p.h5", "--full").stdout


def test_inspect_an_empty_profile(cli: Cli, tmp_path: Path) -> None:
    sp.reset()
    sp.setup(output=tmp_path / "empty.h5")
    sp.finalize(verbose=False)
    sp.reset()
    for options in ([], ["--json"], ["--tree"]):
        process = cli("inspect", "empty.h5", *options)
        assert process.returncode == 0 and process.stderr == ""


# -- the tree ------------------------------------------------------------------------------------------------------------


def test_inspect_tree_prints_every_lane(cli: Cli, threaded: Path) -> None:
    process = cli("inspect", "threaded.h5", "--tree")
    assert process.returncode == 0
    parts = re.split(r"^(MainThread|worker \d)$", process.stdout, flags=re.M)[1:]
    trees = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(trees) == ["MainThread", "worker 0", "worker 1"]
    assert re.search(r"│ scope_profiler\.session +1 ", trees["MainThread"])
    assert re.search(r"│ └─ alone +1 ", trees["MainThread"])
    for worker in ("worker 0", "worker 1"):
        assert re.search(r"│ outer +2 .*\n.*│ └─ inner +2 ", trees[worker])


def test_tree_puts_many_tasks_of_a_coroutine_together(cli: Cli, tmp_path: Path) -> None:
    import asyncio

    pm = sp.ProfileManager()

    async def fetch() -> None:
        with pm.region("fetch"), pm.region("parse"):
            await asyncio.sleep(0)

    async def store() -> None:
        with pm.region("store"):
            await asyncio.sleep(0)

    async def everything() -> None:
        await asyncio.gather(*(fetch() for _ in range(30)), *(store() for _ in range(4)))

    with pm.session(output=tmp_path / "p.h5", verbose=False, track_async=True):
        asyncio.run(everything())
    titles = re.compile(r"^\S.* on MainThread.*$", re.M)
    shown = cli("inspect", "p.h5", "--tree").stdout
    many, *few = titles.findall(shown)
    assert many == "30 tasks of fetch on MainThread (--top 0 shows each)"
    assert [re.sub(r"\d+", "N", title) for title in few] == ["Task-N (store) on MainThread"] * 4
    assert re.search(r"│ fetch +30 .*\n.*│ └─ parse +30 ", shown)
    each = cli("inspect", "p.h5", "--tree", "--top", "0").stdout
    assert titles.findall(each)[30:] == few
    assert [re.sub(r"\d+", "N", title) for title in titles.findall(each)[:30]] == ["Task-N (fetch) on MainThread"] * 30
    assert len(json.loads(cli("inspect", "p.h5", "--json", "--tree").stdout)["profiles"][0]["tree"]) == 35


def test_tree_values_by_hand(cli: Cli, tmp_path: Path) -> None:
    #   a[0,100]            a[200,300]
    #   b[10,30] b[40,50]   c[210,290]
    #   c[12,22]
    make(tmp_path / "p.h5", {"a": [(0, 100), (200, 300)], "b": [(10, 30), (40, 50)], "c": [(12, 22), (210, 290)]})
    (lane,) = json.loads(cli("inspect", "p.h5", "--json", "--tree").stdout)["profiles"][0]["tree"]
    assert lane["lane"] == -1
    found = [
        (p["name"], p["parent"], p["calls"], round(p["inclusive"] * 1e9), round(p["exclusive"] * 1e9))
        for p in lane["paths"]
    ]
    assert found == [("a", None, 2, 200, 90), ("b", 0, 2, 30, 20), ("c", 0, 1, 80, 80), ("c", 1, 1, 10, 10)]
    shown = cli("inspect", "p.h5", "--tree").stdout
    rows = [re.match(r"  │ ((?:[│ ] {2})*(?:[├└]─ )?[abc]) +\d", line) for line in shown.splitlines()]
    assert [row[1] for row in rows if row] == ["a", "├─ b", "│  └─ c", "└─ c"]


def test_tree_of_calls_that_overlap_is_a_negative_answer(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 100)], "b": [(50, 150)]})
    process = cli("inspect", "p.h5", "--tree")
    assert process.returncode == 1
    assert "no call tree" in process.stdout and process.stderr == ""


def test_tree_shows_the_lanes_that_nest_and_names_the_one_that_does_not(cli: Cli, tmp_path: Path) -> None:
    """A generator that is suspended in a region: its call overlaps those of its thread, and no other lane."""
    import asyncio

    pm = sp.ProfileManager()

    @pm.profile("lines")
    def lines() -> Iterator[int]:
        yield 1
        yield 2

    async def job() -> None:
        with pm.region("job"):
            await asyncio.sleep(0)
            with pm.region("inner"):
                pass

    with pytest.warns(RuntimeWarning) as told, pm.session(output=tmp_path / "p.h5", track_async=True, verbose=False):
        it = lines()
        with pm.region("head"):
            next(it)
        with pm.region("rest"):
            list(it)
        asyncio.run(job())
    (warning,) = map(str, (one.message for one in told))
    assert "no call graph" in warning and "left out" not in warning
    assert warning.endswith("began last has the time as its own; a generator that is suspended inside of a region does this")
    process = cli("inspect", "p.h5", "--tree")
    assert process.returncode == 0 and "track_threads" not in process.stdout
    assert re.search(r"│ ├─ head  .*\n.*│ ├─ lines .*\n.*│ └─ rest ", process.stdout)
    assert re.search(r"\nTask-\d+ \(job\) on MainThread\n(.*\n)+.*│ job  .*\n.*│ └─ inner ", process.stdout)
    [note] = [line for line in process.stdout.splitlines() if "overlap" in line or "starts inside" in line]
    assert re.fullmatch(
        r"MainThread: call 0 of 'lines' \[\d+, \d+\] ns starts inside call 0 of 'head' \[\d+, \d+\] ns on the same lane, "
        "but ends after it; while both are open, the one that began last has the time as its own",
        note,
    )
    lanes = json.loads(cli("inspect", "p.h5", "--json", "--tree").stdout)["profiles"][0]["tree"]
    assert ["overlap" in lane for lane in lanes] == [True, False]
    results = sp.load(tmp_path / "p.h5")
    head, generator = results["head"][0], results["lines"][0]
    both = head.end_times_ns[0] - generator.start_times_ns[0]
    assert head.exclusive_durations_ns[0] == head.durations_ns[0] - both  # the tree's numbers are the results'
    assert round(lanes[0]["paths"][1]["exclusive"] * 1e9) == head.exclusive_durations_ns[0]
    with pytest.raises(sp.NestingError, match="does this$"):
        results.call_graph()


def test_tree_depth(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"r": [(i, 1000 - i) for i in range(100)]})
    lines = cli("inspect", "p.h5", "--tree").stdout
    assert lines.count("─ r") == 63 and "deeper calls" in lines
    assert cli("inspect", "p.h5", "--tree", "--depth", "3").stdout.count("─ r") == 2
    assert cli("inspect", "p.h5", "--tree", "--depth", "0").stdout.count("─ r") == 99


# -- terminals, pipes, encodings -------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07\x1b[2J\nsecond line\u202e\x9b31m"


def test_names_cannot_drive_the_terminal(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {HOSTILE: [(0, 10)]}, label=HOSTILE, note=HOSTILE)
    make(tmp_path / "q.h5", {HOSTILE + "2": [(0, 10)]}, label=HOSTILE)
    for arguments in (
        ["inspect", "p.h5"],
        ["inspect", "p.h5", "--json"],
        ["inspect", "p.h5", "--tree"],
        ["inspect", "p.h5", "--source", HOSTILE],
        ["inspect", "p.h5", "--columns", "region", "calls", "p99"],
        ["diff", "p.h5", "q.h5"],
        ["check", "p.h5", "q.h5", "--fail-on-new"],
        ["inspect", HOSTILE],
    ):
        process = cli(*arguments)
        for text in (process.stdout, process.stderr):
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), arguments
            assert "\nsecond line" not in text
    assert "\\x1b]0;owned\\x07" in cli("inspect", "p.h5").stdout


@pytest.mark.parametrize(
    "encoding", [{"LC_ALL": "C"}, {"LANG": "C"}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_every_locale_can_show_every_name(cli: Cli, tmp_path: Path, encoding: dict[str, str]) -> None:
    make(tmp_path / "p.h5", {"żółć 🚀": [(0, 10)]})
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHONUTF8", "PYTHONIO", "PYTHONCOERCE"))}
    for arguments in (
        ["inspect", "p.h5"],
        ["inspect", "p.h5", "--tree"],
        ["diff", "p.h5", "p.h5"],
        ["inspect", "żółć.h5"],
    ):
        process = cli(*arguments, env={**environment, **encoding}, text=False)
        assert process.returncode == (2 if arguments[1] == "żółć.h5" else 0)
        assert b"Traceback" not in process.stderr


def test_a_pipe_that_closes_is_no_error(tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {f"region {i}": [(10 * i, 10 * i + 5)] for i in range(5000)})
    process = subprocess.run(
        f"{sys.executable} -m scope_profiler inspect p.h5 --columns region calls p99 | head -n 3",
        shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert process.stderr == ""
    assert len(process.stdout.splitlines()) == 3


def test_a_closed_pipe_keeps_the_answer(tmp_path: Path) -> None:
    many = {f"region {i}": [(10 * i, 10 * i + 5)] for i in range(3000)}
    make(tmp_path / "a.h5", many)
    make(tmp_path / "b.h5", {**many, "region 7": [(70, 77)]})
    process = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m scope_profiler check a.h5 b.h5 | head -n 1; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (1, "")


def test_a_full_standard_output_is_one_line(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 10)]})
    with open("/dev/full", "w") as full:
        process = cli("inspect", "p.h5", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert process.returncode == 2
    assert process.stderr.splitlines() == ["scope-profiler: cannot write the output: No space left on device"]


@pytest.mark.slow
def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"a": [(0, 10)]})
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        command = f"{sys.executable} -m scope_profiler inspect p.h5 {closed}"
        assert subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=60).returncode == 0, closed


def test_the_tree_shows_the_ends_of_a_long_name(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "p.h5", {"outer": [(0, 20)], "begin" + "x" * 300 + "end": [(5, 10)]})
    shown = cli("inspect", "p.h5", "--tree").stdout
    assert f" └─ begin{'x' * 45}…{'x' * 46}end " in shown


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60, 100])
def test_tables_are_cut_to_the_terminal(tmp_path: Path, threaded: Path, columns: int) -> None:
    make(tmp_path / "p.h5", {"a long name of a region " * 5: [(0, 10)], "b": [(20, 30)]}, note="x" * 300)
    for arguments in (
        ["inspect", "p.h5"],
        ["inspect", "p.h5", "--tree"],
        ["diff", "p.h5", "p.h5"],
        ["inspect", "threaded.h5"],
        ["inspect", "threaded.h5", "--columns", "region", "calls", "total", "avg", "min", "max", "p50", "p95"],
    ):
        lines = on_a_terminal([sys.executable, "-m", "scope_profiler", *arguments], tmp_path, columns).splitlines()
        assert max(map(len, lines)) <= columns, arguments
        boxes = [line for line in lines if line.lstrip().startswith(("│", "╭", "├", "╰"))]
        assert boxes and all(line.endswith(("│", "╮", "┤", "╯")) for line in boxes)


# -- diff and check --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> None:
    """Two profiles: same, slower (+50 %), faster (-90 %), gone, new."""
    make(tmp_path / "a.h5", {"same": [(0, 100)], "slower": [(200, 300)], "faster": [(400, 500)], "gone": [(600, 650)]})
    make(tmp_path / "b.h5", {"same": [(0, 100)], "slower": [(200, 350)], "faster": [(400, 410)], "new": [(600, 650)]})


@pytest.mark.usefixtures("pair")
def test_diff(cli: Cli) -> None:
    process = cli("diff", "a.h5", "b.h5")
    assert process.returncode == 0 and process.stderr == ""
    rows = [
        line.split()[1:-1]
        for line in process.stdout.splitlines()
        if re.match(r"  │ (same|slower|faster|gone|new) ", line)
    ]
    assert rows == [
        ["faster", "1e-07", "1e-08", "-9e-08", "-90%"],
        ["slower", "1e-07", "1.5e-07", "+5e-08", "+50%"],
        ["gone", "5e-08", "-", "-5e-08", "-100%"],
        ["new", "-", "5e-08", "+5e-08", "-"],
        ["same", "1e-07", "1e-07", "+0", "+0%"],
    ]
    assert "Only in a: gone" in process.stdout and "Only in b: new" in process.stdout


@pytest.mark.usefixtures("pair")
def test_diff_sort_threshold_and_json(cli: Cli) -> None:
    def names(*options: str) -> list[str]:
        return [row["name"] for row in json.loads(cli("diff", "a.h5", "b.h5", "--json", *options).stdout)["regions"]]

    assert names("--sort", "name") == ["faster", "gone", "new", "same", "slower"]
    assert names("--sort", "pct") == ["gone", "faster", "slower", "same", "new"]
    assert names("--threshold", "60") == ["faster", "gone", "new"]
    assert names("--include", "s") == ["slower", "same"]
    rows = json.loads(cli("diff", "a.h5", "b.h5", "--json", "--metric", "calls").stdout)["regions"]
    assert {row["name"]: (row["a"], row["b"], row["percent"]) for row in rows}["slower"] == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("options", "code", "violations"),
    [
        ([], 1, ["slower"]),
        (["--max-regression", "49.9"], 1, ["slower"]),
        (["--max-regression", "50%"], 0, []),
        (["--include", "faster"], 0, []),
        (["--exclude", "slower"], 0, []),
        (["--max-regression", "60", "--fail-on-new"], 1, ["new"]),
        (["--metric", "p95"], 1, ["slower"]),
        (["--metric", "calls"], 0, []),
    ],
)
@pytest.mark.usefixtures("pair")
def test_check(cli: Cli, options: list[str], code: int, violations: list[str]) -> None:
    process = cli("check", "a.h5", "b.h5", *options)
    assert process.returncode == code and process.stderr == ""
    assert f"Regression check: {'FAIL' if code else 'PASS'}" in process.stdout
    assert (f"Budget violations: {', '.join(violations)}" in process.stdout) == bool(violations)
    document = json.loads(cli("check", "a.h5", "b.h5", "--json", *options).stdout)
    assert document["passed"] is (code == 0) and document["violations"] == violations


@pytest.mark.usefixtures("pair")
def test_check_never_passes_what_it_cannot_judge(cli: Cli, tmp_path: Path) -> None:
    tell_error(cli("check", "a.h5", "b.h5", "--include", "nothing"), "nothing to check")
    tell_error(cli("check", "a.h5", "b.h5", "--metric", "gpu_total"), "cannot check gpu_total")


def test_check_of_sums_has_no_percentiles(cli: Cli, tmp_path: Path) -> None:
    make_sums(tmp_path / "sums.h5")
    assert cli("check", "sums.h5", "sums.h5", "--metric", "total").returncode == 0
    tell_error(cli("check", "sums.h5", "sums.h5", "--metric", "p95"), "cannot check p95")
    assert "Without p95" in cli("diff", "sums.h5", "sums.h5", "--metric", "p95").stdout


def make_sums(path: Path) -> None:
    """A file of the aggregate layout, as release 0.7.5 writes it: two calls of `a`, 10 and 20 ns."""
    h5py = pytest.importorskip("h5py")
    columns: dict[str, Any] = {
        "region_ids": np.array([0], np.uint32),
        "ranks": np.array([0], np.uint32),
        "aggregate_counts": np.array([2], np.uint64),
        "aggregate_totals": np.array([30], np.int64),
        "aggregate_minimums": np.array([10], np.int64),
        "aggregate_maximums": np.array([20], np.int64),
        "aggregate_exclusives": np.array([30], np.int64),
        "event_offsets": np.empty(0, np.uint64),
        "event_counts": np.empty(0, np.uint64),
        "source_lines": np.empty(0, np.int64),
    }
    with h5py.File(path, "w") as file:
        file.attrs["scope_profiler_schema"] = 3
        file.attrs["storage_layout"] = "aggregate"
        file.create_group("metadata").attrs["start_time_ns"] = 1
        file["region_table/names"] = ["a"]
        for name, values in columns.items():
            file[f"rank_region_index/{name}"] = values
        for name in ("start_deltas", "durations"):
            file[f"events/{name}"] = np.empty(0, np.int64)


def test_check_from_zero_is_beyond_any_budget(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "a.h5", {"r": [(10, 10)]})
    make(tmp_path / "b.h5", {"r": [(10, 12)]})
    assert cli("check", "a.h5", "b.h5", "--max-regression", "1000").returncode == 1
    assert cli("check", "a.h5", "a.h5").returncode == 0


# -- run -----------------------------------------------------------------------------------------------------------------


def script(directory: Path, name: str, source: str) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))


APP = """
    import sys
    import scope_profiler as sp
    with sp.region("app"):
        print(sys.argv, __name__, __file__, __spec__)
"""


def test_run_is_what_python_does(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "app.py", APP)
    plain = subprocess.run(
        [sys.executable, "app.py", "-o", "x", "--label"], cwd=tmp_path, capture_output=True, text=True
    )
    process = cli("run", "-q", "-o", "out.h5", "app.py", "-o", "x", "--label")
    assert (process.returncode, process.stdout, process.stderr) == (0, plain.stdout, plain.stderr)
    results = sp.load(tmp_path / "out.h5")
    assert results.region_names == ["app"]
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_run_a_module_a_package_and_a_directory(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "package/__init__.py", "")
    script(tmp_path, "package/__main__.py", APP)
    script(tmp_path, "package/module.py", APP)
    for plain_arguments in (["-m", "package", "x"], ["-mpackage.module", "x"], ["package", "x"]):
        plain = subprocess.run([sys.executable, *plain_arguments], cwd=tmp_path, capture_output=True, text=True)
        process = cli("run", "-q", *plain_arguments)
        assert plain.returncode == 0, plain.stderr
        assert re.sub("0x[0-9a-f]+", "", process.stdout) == re.sub("0x[0-9a-f]+", "", plain.stdout)
        assert process.returncode == 0, process.stderr
        assert sp.load(tmp_path / "profiling_data.h5").region_names == ["app"]
        (tmp_path / "profiling_data.h5").unlink()


def test_run_prints_the_summary_unless_quiet(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "app.py", "import scope_profiler as sp\nwith sp.region('in the app'): print('hello')\n")
    process = cli("run", "--no-output", "app.py")
    assert process.stdout.startswith("hello\n") and "in the app" in process.stdout.split("hello\n")[1]
    assert os.listdir(tmp_path) == ["app.py"]
    assert cli("run", "-q", "--no-output", "app.py").stdout == "hello\n"


@pytest.mark.parametrize(
    ("ending", "code", "on_stderr"),
    [
        ("", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit('the reason')", 1, "the reason\n"),
        ("raise SystemExit", 0, ""),
    ],
)
def test_run_passes_on_the_exit_code(cli: Cli, tmp_path: Path, ending: str, code: int, on_stderr: str) -> None:
    script(tmp_path, "app.py", f"import sys, scope_profiler as sp\nwith sp.region('r'): {ending or 'pass'}\n")
    process = cli("run", "-q", "app.py")
    assert (process.returncode, process.stderr) == (code, on_stderr)
    assert sp.load(tmp_path / "profiling_data.h5")["r"].num_calls == 1


def test_run_shows_an_exception_as_python_does(cli: Cli, tmp_path: Path) -> None:
    script(
        tmp_path,
        "app.py",
        """
        import scope_profiler as sp
        def fail():
            with sp.region("r"):
                raise ValueError("wrong")
        fail()
        """,
    )
    plain = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True)
    process = cli("run", "-q", "app.py")
    assert process.returncode == plain.returncode == 1
    assert process.stderr.replace(str(tmp_path) + "/", "") == plain.stderr.replace(str(tmp_path) + "/", "")
    assert sp.load(tmp_path / "profiling_data.h5")["r"].num_calls == 1


def test_run_ends_by_ctrl_c_as_python_does(cli: Cli, tmp_path: Path) -> None:
    script(
        tmp_path,
        "app.py",
        """
        import os, signal, scope_profiler as sp
        with sp.region("r"):
            os.kill(os.getpid(), signal.SIGINT)
            __import__("time").sleep(10)
        """,
    )
    process = cli("run", "-q", "app.py")
    assert process.returncode == -signal.SIGINT
    assert process.stderr.count("KeyboardInterrupt") == 1 and "scope_profiler/cli" not in process.stderr
    assert sp.load(tmp_path / "profiling_data.h5")["r"].num_calls == 1


def test_run_records_threads_that_outlive_the_main_one_and_exit_handlers(cli: Cli, tmp_path: Path) -> None:
    script(
        tmp_path,
        "app.py",
        """
        import atexit, threading, time
        from concurrent.futures import ThreadPoolExecutor
        import scope_profiler as sp

        def late(name):
            time.sleep(0.1)
            with sp.region(name):
                pass

        threading.Thread(target=late, args=("in a thread",), name="late").start()
        pool = ThreadPoolExecutor(1)
        pool.submit(late, "in a pool")
        atexit.register(late, "at exit")
        """,
    )
    assert cli("run", "-q", "--track-threads", "app.py").returncode == 0
    results = sp.load(tmp_path / "profiling_data.h5")
    assert sorted(results.region_names) == ["at exit", "in a pool", "in a thread"]
    assert [thread.alive for thread in results.threads[0] if thread.name == "late"] == [False]


def test_run_gives_programs_a_real_main_module(cli: Cli, tmp_path: Path) -> None:
    script(
        tmp_path,
        "app.py",
        """
        import multiprocessing, pickle, sys, inspect
        def double(x):
            return 2 * x
        class Thing:
            pass
        if __name__ == "__main__":
            assert sys.modules["__main__"].double is double
            assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
            assert "2 * x" in inspect.getsource(double)
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(double, [1, 2]))
        """,
    )
    process = cli("run", "-q", "app.py")
    assert (process.returncode, process.stdout, process.stderr) == (0, "[2, 4]\n[2, 4]\n", "")


def test_run_imports_from_beside_the_script(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "code/helper.py", "VALUE = 41\n")
    script(tmp_path, "code/app.py", "import helper; print(helper.VALUE + 1)\n")
    (tmp_path / "link.py").symlink_to("code/app.py")
    assert cli("run", "-q", "code/app.py").stdout == "42\n"
    assert cli("run", "-q", "link.py").stdout == "42\n"


def test_run_of_code_that_does_not_compile(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "app.py", "print('x'\n")
    tell_error(cli("run", "app.py"), "app.py")
    assert os.listdir(tmp_path) == ["app.py"]


def test_run_tells_when_the_profile_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    script(tmp_path, "app.py", "import shutil, sys\nprint('done')\nshutil.rmtree('there')\nsys.exit(int(sys.argv[1]))\n")
    process = cli("run", "-q", "-o", "there/p.h5", "app.py", "0")
    assert process.returncode == 2 and process.stdout == "done\n"
    assert len(process.stderr.splitlines()) == 1 and "there/p.h5" in process.stderr
    (tmp_path / "there").mkdir()
    assert cli("run", "-q", "-o", "there/p.h5", "app.py", "5").returncode == 5


def test_run_settings(cli: Cli, tmp_path: Path) -> None:
    script(
        tmp_path,
        "app.py",
        """
        import scope_profiler as sp
        sp.register_opt_in_tag("extra")
        for name, tags in (("plain", ()), ("tagged", ("one",)), ("optional", ("extra", "one"))):
            with sp.region(name, tags=tags):
                pass
        """,
    )

    def names(*options: str) -> list[str]:
        process = cli("run", "-q", "--label", "my run", *options, "app.py")
        assert process.returncode == 0, process.stderr
        results = sp.load(tmp_path / "profiling_data.h5")
        assert results.label == "my run"
        return list(results.region_names)

    assert names() == ["plain", "tagged"]
    assert names("--tag", "one") == ["tagged"]
    assert names("--enable-tag", "extra") == ["plain", "tagged", "optional"]
    assert names("--enable-tag", "*", "--tag", "one") == ["tagged", "optional"]


@pytest.mark.parametrize(
    "options",
    [
        ["--aggregation-mode", "--track-threads"],
        ["--recursive", "--no-recursive"],
        ["--config", "missing.toml"],
        ["--buffer-limit", "-3"],
    ],
    ids=" ".join,
)
def test_run_refuses_what_it_cannot_do_before_the_program_runs(cli: Cli, tmp_path: Path, options: list[str]) -> None:
    script(tmp_path, "app.py", "open('it ran', 'w')\n")
    tell_error(cli("run", *options, "app.py"), "scope-profiler: ")
    assert os.listdir(tmp_path) == ["app.py"]


def test_run_leaves_the_output_of_the_program_alone(cli: Cli, tmp_path: Path) -> None:
    script(tmp_path, "app.py", "import sys\nprint(sys.stdout.encoding, sys.stdout.errors)\nprint('\\u2500')\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    plain = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    process = cli("run", "-q", "app.py", env=environment)
    assert process.stdout == plain.stdout and process.returncode == plain.returncode == 1
    assert "UnicodeEncodeError" in process.stderr


def test_the_installed_script_is_the_same_program() -> None:
    program = Path(sys.executable).with_name("scope-profiler")
    if not program.exists():
        pytest.skip("the package is not installed beside this interpreter")
    process = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    assert process.stdout == f"scope-profiler {sp.__version__}\n"


@pytest.mark.parametrize(
    ("name", "word"),
    [("p.txt", "HDF5 profile"), ("p.prof", "HDF5 profile"), ("p.speedscope.json", "export speedscope"), ("p.json", ""), ("p.h5", ""), ("p", "")],
)
def test_run_says_where_a_name_promises_another_format(cli: Cli, tmp_path: Path, name: str, word: str) -> None:
    """The file is what release 0.7.5 makes of the name."""
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nwith sp.region('a'): pass\n")
    process = cli("run", "-q", "-o", name, "app.py")
    assert process.returncode == 0 and sp.load(tmp_path / name)["a"].num_calls == 1
    assert len(process.stderr.splitlines()) == bool(word) and word in process.stderr
