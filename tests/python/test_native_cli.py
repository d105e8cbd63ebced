"""The command without Python: what it prints is what the Python package's command prints, and it fails as clearly."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from native_code import COMMAND, Library, needs_command
from native_traces import spt
from on_terminal import on_a_terminal
from scope_profiler.native_trace import load_traces
from scope_profiler.perf_events import PerfEventTotals
from scope_profiler.summary import REGION_TABLE_COLUMNS

pytestmark = [needs_command, pytest.mark.uninstrumented, pytest.mark.beside]


def native(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([COMMAND, *map(str, arguments)], **options)


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([sys.executable, "-m", "scope_profiler", *map(str, arguments)], **options)


def told(process: subprocess.CompletedProcess[str], *words: str) -> None:
    assert process.returncode == 2 and process.stdout == "", process
    assert len(process.stderr.splitlines()) == 1, process.stderr
    for word in words:
        assert word in process.stderr


def write_overlaps(pm: Any, path: Path) -> None:
    """Eight threads, of which six leave a generator suspended in a region."""

    @pm.profile("gén\n" + "n" * 200)
    def values() -> Iterator[int]:
        yield from (1, 2)

    def work(number: int) -> None:
        generator = values()
        with pm.region("head"):
            if number < 6:
                next(generator)
        with pm.region("rest"):
            list(generator)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pm.session(output=path, track_threads=True, verbose=False):
            for number in range(8):
                thread = threading.Thread(target=work, args=(number,), name=f"w{number}")
                thread.start()
                thread.join()


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.h5: tasks, threads, recursion, odd names. b.h5: no lanes. c.h5: two ranks. d.h5: calls that overlap. e.h5: empty. f.h5: the same on some of
    its lanes."""
    import asyncio

    directory = tmp_path_factory.mktemp("profiles")
    pm = sp.ProfileManager()

    async def work(number: int) -> None:
        with pm.region("wörk"):
            await asyncio.sleep(0.0005 * number)
            with pm.region('inner "x"'):
                pass

    async def everything() -> None:
        await asyncio.gather(*(work(i) for i in range(25)))

    def thread() -> None:
        for _ in range(5):
            with pm.region("deep", tags=["t"]):
                with pm.region("deep"):
                    with pm.region("漢字 \x1b[31m" + "n" * 200):
                        time.sleep(0.0005)

    with pm.session(
        output=directory / "a.h5", verbose=False, track_async=True, label="label \x07", capture_region_source=True
    ):
        asyncio.run(everything())
        threads = [threading.Thread(target=thread, name=f"t{i}", daemon=i % 2 == 0) for i in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    with pm.session(output=directory / "b.h5", verbose=False):
        for _ in range(3):
            with pm.region("deep"):
                with pm.region("other"):
                    time.sleep(0.001)
        with pm.region(f"a long\nname of {'漢字' * 100}"):
            pass
    (directory / "0.spt").write_bytes(spt([("a", [10, 110], [100, 200], "a.f90", 3), ("b", [20, 60], [50, 70])]))
    (directory / "1.spt").write_bytes(spt([("a", [1000, 2100], [2000, 2250]), ("c", [1500], [1600])], rank=1))
    (directory / "overlap.spt").write_bytes(spt([("a", [10], [30]), ("b", [20], [40])]))
    from scope_profiler.native_trace import convert_traces

    convert_traces([directory / "0.spt", directory / "1.spt"], directory / "c.h5")
    convert_traces(directory / "overlap.spt", directory / "d.h5")
    write_overlaps(pm, directory / "f.h5")
    with pm.session(output=directory / "e.h5", verbose=False, region_tags=["none"]):
        pass
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "a.h5"],
        ["inspect", "b.h5", "c.h5", "d.h5", "e.h5"],
        ["inspect", "*.h5", "--regions-only"],
        ["inspect", "a.h5", "--tree"],
        ["inspect", "a.h5", "--tree", "--top", "0"],
        ["inspect", "b.h5", "--tree"],
        ["inspect", "c.h5", "--tree"],
        ["inspect", "d.h5", "--tree"],
        ["inspect", "f.h5", "--tree"],
        ["inspect", "f.h5", "--tree", "--top", "2", "--include", "head", "gén"],
        ["inspect", "a.h5", "--tree", "--depth", "2", "--top", "3"],
        ["inspect", "a.h5", "--top", "2"],
        ["inspect", "a.h5", "--top", "0", "--full"],
        ["inspect", "a.h5", "--sort", "name", "--columns", *REGION_TABLE_COLUMNS],
        ["inspect", "c.h5", "--sort", "imbalance", "--columns", *REGION_TABLE_COLUMNS],
        ["inspect", "c.h5", "--ranks", "1", "--columns", "region,p50,p99", "--sort", "p95"],
        ["inspect", "a.h5", "--include", "w.rk", "inner", "--exclude", "deep"],
        ["inspect", "a.h5", "--include", "nothing"],
        ["inspect", "a.h5", "--metadata-only"],
        ["inspect", "a.h5", "--regions-only", "--percentage-mode", "exclusive"],
        ["inspect", "a.h5", "--source", "deep", "no such region"],
        ["diff", "a.h5", "b.h5"],
        ["diff", "a.h5", "c.h5", "--metric", "calls", "--sort", "name"],
        ["diff", "a.h5", "b.h5", "--metric", "p95", "--sort", "pct", "--threshold", "5%"],
        ["diff", "a.h5", "b.h5", "--metric", "gpu_total"],
        ["diff", "c.h5", "c.h5", "--metric", "imbalance", "--ranks", "0-1"],
        ["check", "a.h5", "b.h5"],
        ["check", "a.h5", "a.h5", "--metric", "p50"],
        ["check", "a.h5", "b.h5", "--max-regression", "1e9"],
        ["check", "a.h5", "b.h5", "--fail-on-new", "--metric", "avg"],
    ],
    ids=" ".join,
)
def test_it_prints_what_the_python_command_prints(profiles: Path, arguments: list[str]) -> None:
    if "*.h5" in arguments:
        arguments = [arguments[0], *sorted(path.name for path in profiles.glob("*.h5")), *arguments[2:]]
    ours, theirs = native(*arguments, cwd=profiles), python(*arguments, cwd=profiles)
    assert ours.stdout == theirs.stdout
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert "\x1b" not in ours.stdout and "\x07" not in ours.stdout


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        ([""], ["inspect", "diff", "check", "export", "view", "merge", "import-native", "recover", "top"]),
        (["re"], ["recover"]),
        (["-"], ["--help", "--version"]),
        (["inspect", "--inc"], ["--include"]),
        (["inspect", "--sort", "-"], [":files"]),
        (["merge", "-o", "-"], [":files"]),
        (["inspect", "a"], [":files"]),
        (["colour", ""], []),
    ],
)
def test_what_could_stand_next(words: list[str], candidates: list[str]) -> None:
    process = native("__complete", *words)
    assert process.returncode == 0 and process.stderr == ""
    assert [line.partition("\t")[0] for line in process.stdout.splitlines()] == candidates


def test_the_shells_find_their_scripts(native_library: Library) -> None:
    share = native_library.prefix / "share"
    for place in (
        "bash-completion/completions/scope-profiler",
        "zsh/site-functions/_scope-profiler",
        "fish/vendor_completions.d/scope-profiler.fish",
    ):
        assert "__complete" in (share / place).read_text()
    program = (
        f"source {share}/bash-completion/completions/scope-profiler; COMP_WORDS=({COMMAND} inspect --percent) COMP_CWORD=2; _scope_profiler; "
        "echo ${COMPREPLY[@]}"
    )
    process = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=60)
    assert (process.stdout, process.stderr) == ("--percentage-mode\n", "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["inspect"], "FILE"),
        (["inspect", "none.h5"], "none.h5: no such file"),
        (["inspect", "x*.h5"], "no file matches"),
        (["inspect", "0.spt"], "0.spt"),
        (["inspect", "a.h5", "--include", "("], "not a regular expression"),
        (["inspect", "a.h5", "--ranks", "9"], "no such rank"),
        (["inspect", "a.h5", "--ranks", "3-1"], "list of ranks"),
        (["inspect", "a.h5", "--sort", "colour"], "colour"),
        (["inspect", "a.h5", "--columns", "colour"], "colour"),
        (["inspect", "a.h5", "--depth"], "--depth needs a value"),
        (["inspect", "a.h5", "--colour"], "unknown option --colour"),
        (["colour"], "unknown command 'colour'; see"),
        (["insepct"], "unknown command 'insepct', did you mean 'inspect'?; see"),
        (["Exprot", "a.h5"], "did you mean 'export'?"),
        (["chek"], "did you mean 'check'?"),
        (["rec"], "did you mean 'recover'?"),
        (["import_native"], "did you mean 'import-native'?"),
        (["x" * 500], "unknown command 'xxx"),
        ([""], "unknown command ''; see"),
        (["diff", "a.h5"], "A B"),
        (["check", "a.h5", "b.h5", "--include", "wörk"], "nothing to check"),
        (["check", "a.h5", "b.h5", "--metric", "gpu_avg"], "cannot check gpu_avg"),
        (["check", "a.h5", "b.h5", "--max-regression", "-1"], "percentage"),
        (["export", "pictures", "a.h5"], "no format 'pictures'"),
        (["export", "speedscope", "a.h5", "--include", "none"], "no region matches the filters"),
        (
            ["view", "a.h5", "c.h5", "--include", "none", "--no-open", "-o", "x.html"],
            "a.h5: no region matches the filters",
        ),
        (["merge", "a.h5"], "--output is required"),
        (["merge", "a.h5", "-o", "/nowhere/m.h5"], "/nowhere/m.h5"),
        (["merge", "a.h5", "-o", "m.json"], "HDF5"),
        (["recover", "none.spool"], "none.spool: no such file"),
        (["recover", "a.h5"], "a.h5"),
        (["top", "999999999"], "999999999"),
        (["import-native", "none.spt"], "none.spt"),
        (["import-native", "a.h5", "c.h5"], "rank 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_told_in_one_line(profiles: Path, arguments: list[str], word: str) -> None:
    told(native(*arguments, cwd=profiles), word)


def test_a_name_cannot_drive_the_terminal_and_lines_fit_it(profiles: Path) -> None:
    ours, theirs = (
        on_a_terminal([*command, "inspect", "a.h5"], profiles, 60)
        for command in ([COMMAND], [sys.executable, "-m", "scope_profiler"])
    )
    assert ours == theirs
    assert "\x1b" not in ours and max(map(len, ours.splitlines())) <= 60


def test_a_reader_that_goes_away_is_no_failure(profiles: Path) -> None:
    done = subprocess.run(
        f"'{COMMAND}' inspect a.h5 a.h5 a.h5 | head -1",
        shell=True,
        cwd=profiles,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "" and done.stdout.startswith("=====")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [COMMAND, "inspect", "a.h5"], cwd=profiles, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "cannot write" in done.stderr


def test_exports_are_those_of_the_package(profiles: Path, tmp_path: Path) -> None:
    results = sp.load(profiles / "a.h5")
    sp.export_speedscope(results, tmp_path / "p.speedscope.json", verbose=False)
    sp.export_chrome_trace(results, tmp_path / "p.trace.json", verbose=False)
    for name, suffix in (("speedscope", ".speedscope.json"), ("chrome-trace", ".trace.json")):
        done = native("export", name, profiles / "a.h5", "-o", tmp_path / "out")
        assert (done.returncode, done.stdout) == (0, f"Wrote {tmp_path}/out/profile{suffix}\n"), done.stderr
        ours, theirs = (
            json.loads(path.read_text()) for path in (tmp_path / f"out/profile{suffix}", tmp_path / f"p{suffix}")
        )
        assert ours == theirs
    done = native("export", "speedscope", profiles / "b.h5", profiles / "c.h5", "-o", tmp_path / "two")
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        "profile_b.speedscope.json",
        "profile_c.speedscope.json",
    ]


@pytest.mark.parametrize(
    ("name", "file", "options"),
    [
        ("perfetto", "x.pftrace", []),
        ("folded", "x.folded", []),
        ("csv", "x.csv", []),
        ("prof", "x.prof", ["--ranks", "0", "1"]),
    ],
)
def test_every_export_is_that_of_the_package(
    profiles: Path, tmp_path: Path, name: str, file: str, options: list[str]
) -> None:
    done = native("export", name, profiles / "c.h5", "-o", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    ranks = [0, 1] if options else None
    theirs = getattr(sp, f"export_{name}")(sp.load(profiles / "c.h5"), tmp_path / file, ranks=ranks, verbose=False)
    ours = sorted((tmp_path / "out").iterdir())
    assert [path.name.replace("profile", "x") for path in ours] == sorted(path.name for path in theirs)
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in sorted(theirs)]


def test_view_writes_the_page_of_the_package(profiles: Path, tmp_path: Path) -> None:
    done = native("view", profiles / "a.h5", profiles / "c.h5", "--no-open", "-o", tmp_path / "page.html")
    if done.returncode == 2 and "has no viewer" in done.stderr:
        pytest.skip("this build has no viewer")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'page.html'}\n"), done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="sp-report"' in page and "w\u00f6rk" in page or "wörk" in page
    alone = native("view", profiles / "b.h5", "--no-open", cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)})
    written = Path(alone.stdout.strip())
    assert written.name == "b.html" and written.parent.stat().st_mode & 0o777 == 0o700 and written.exists()


@pytest.mark.parametrize(
    "files",
    [
        ["c.h5", "a.h5", "b.h5"],
        ["?.h5"],
        ["a.h5", "a.h5"],
        ["b.h5", "--no-align"],
        ["old.h5", "b.h5"],
        ["b.h5", "old.h5"],
        ["x*.h5"],
    ],
    ids=" ".join,
)
def test_merge_prints_and_writes_what_the_package_does(profiles: Path, tmp_path: Path, files: list[str]) -> None:
    for path in profiles.glob("[abc].h5"):
        (tmp_path / path.name).symlink_to(path)
    # A process that tells nothing of its clock.
    sp.write_profile(load_traces(profiles / "0.spt"), tmp_path / "old.h5")
    printed = []
    for run in (native, python):
        done = run("merge", *files, "-o", "out", cwd=tmp_path)
        printed.append((done.returncode, done.stdout, done.stderr))
        if done.returncode == 0:
            merged = sp.load(tmp_path / "out")
            events = [merged.call_stack(rank=rank) for rank in range(merged.num_ranks)]
            printed[-1] += (
                merged.metadata,
                merged.processes,
                merged.region_names,
                repr(merged.threads),
                repr(merged.tasks),
                events,
            )
            (tmp_path / "out").unlink()
    assert printed[0] == printed[1]
    assert printed[0][0] == (2 if files == ["x*.h5"] else 0), printed[0]


def test_merge_moves_times_onto_the_clock_of_the_first_file(profiles: Path, tmp_path: Path) -> None:
    done = native("merge", profiles / "c.h5", profiles / "a.h5", profiles / "b.h5", "-o", tmp_path / "m.h5")
    assert done.returncode == 0 and done.stdout.endswith(" calls of 4 processes\n"), done
    merged, a, b = sp.load(tmp_path / "m.h5"), sp.load(profiles / "a.h5"), sp.load(profiles / "b.h5")
    assert merged["deep"].num_calls_per_rank() == {2: a["deep"].num_calls, 3: b["deep"].num_calls}
    assert [thread.name for thread in merged.threads[2]] == [thread.name for thread in a.threads[0]]
    assert [call["call_path"] for call in merged.call_stack(rank=3)] == [call["call_path"] for call in b.call_stack()]


def test_import_native_writes_what_the_package_writes(profiles: Path, tmp_path: Path) -> None:
    printed = []
    for name, run in (("n.h5", native), ("p.h5", python)):
        done = run("import-native", profiles / "0.spt", profiles / "1.spt", "-o", name, "--label", "both", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.replace(name, "OUT"))
    assert printed[0] == printed[1]
    ours, theirs = sp.load(tmp_path / "n.h5"), sp.load(tmp_path / "p.h5")
    assert ours.metadata == theirs.metadata and ours.events() == theirs.events()
    done = native("import-native", profiles / "0.spt", "--merge", profiles / "b.h5", "-o", tmp_path / "m.h5", "-q")
    assert done.returncode == 0, done.stderr
    assert [*sp.load(tmp_path / "m.h5").region_names] == [*sp.load(profiles / "b.h5").region_names, "a", "b"]


SPOOLED = """
import os, sys, threading, time
import scope_profiler as sp
sp.setup(output="run.h5", track_threads=True, label="spooled")
def work():
    with sp.region("waiting"):
        time.sleep(60)
thread = threading.Thread(target=work, name="worker", daemon=True)
with sp.region("done"):
    pass
thread.start()
time.sleep(0.2)
print("ready", flush=True)
time.sleep(60)
"""


def test_top_and_recover_look_into_a_spool(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SPOOLED], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        looks = [run("top", process.pid, "--once", cwd=tmp_path) for run in (native, python)]
        assert looks[0].returncode == 0, looks[0].stderr
        ours, theirs = (look.stdout.splitlines() for look in looks)
        assert f"process {process.pid}, running for" in ours[0]
        for lines in (ours, theirs):
            rows = [line.split() for line in lines[3:5]]
            assert {name: (calls, open_) for _, calls, open_, _, name in rows} == {
                "waiting": ("1", "1"),
                "done": ("1", "0"),
            }
        # The numbers go on; everything else is the same.
        assert [re.sub(r"[\d.]+|-", "#", " ".join(line.split())) for line in ours] == [
            re.sub(r"[\d.]+|-", "#", " ".join(line.split())) for line in theirs
        ]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (spool,) = tmp_path.glob("*.spool")
    done = native("recover", spool.name, "--keep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote run.recovered.h5: 2 calls of 2 regions, 1 of them open at the end\n"
    again = native("recover", spool.name, cwd=tmp_path)
    assert "run.recovered-2.h5" in again.stdout and not spool.exists()
    recovered = sp.load(tmp_path / "run.recovered.h5")
    assert recovered.label == "spooled" and recovered["waiting"][0].event_metadata == ({"open": True},)
    assert [thread.name for thread in recovered.threads[0]] == ["MainThread", "worker"]
    assert recovered.metadata["python_version"] and "spool_metadata" not in recovered.metadata


def test_help_names_every_command_and_option() -> None:
    done = native()
    assert done.returncode == 1 and native("--help").stdout == done.stdout
    for command in ("inspect", "diff", "check", "export", "merge", "import-native", "recover", "top"):
        assert f"\n  {command} " in done.stdout
        shown = native(command, "--help")
        assert shown.returncode == 0 and shown.stdout.startswith(f"usage: scope-profiler {command}")
    assert native("--version").stdout == f"scope-profiler {sp.__version__}\n"


@pytest.mark.parametrize("options", [[], ["--tree"], ["--ranks", "1"]])
def test_processes_are_named_as_by_the_package(profiles: Path, tmp_path: Path, options: list[str]) -> None:
    assert python("merge", profiles / "a.h5", profiles / "b.h5", "-o", tmp_path / "m.h5").returncode == 0
    ours, theirs = (run("inspect", "m.h5", *options, cwd=tmp_path) for run in (native, python))
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert "b.h5" in ours.stdout and ("Processes (" in ours.stdout) == ("--tree" not in options)


def test_counts_of_events_are_shown_as_by_the_package(tmp_path: Path) -> None:
    names = ["b", "a/b/c", "", "rät \x1b[31m", *(f"r{i}" for i in range(30))]
    counts = {
        rank: {
            name: PerfEventTotals(
                1000 * i + 3, {"cycles": 10**i % 2**61, **({"page\x1b[2Jfaults": i} if i % 3 else {})}
            )
            for i, name in enumerate(names)
            if (i + rank) % 4 != 3
        }
        for rank in (0, 2)
    }
    regions = {name: sp.MPIRegion(name, {rank: sp.Region([1, 5], [3, 9]) for rank in counts}) for name in names[:-3]}
    sp.write_profile(sp.ProfilingResults(regions, {}, 3, perf_events=counts), tmp_path / "p.h5")
    for options in (
        [],
        ["--ranks", "2"],
        ["--include", "r[0-9]"],
        ["--top", "3"],
        ["--regions-only"],
        ["--include", "none"],
    ):
        ours, theirs = (run("inspect", "p.h5", *options, cwd=tmp_path) for run in (native, python))
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
        assert ("Events, those" in ours.stdout) == (options not in (["--regions-only"], ["--include", "none"]))
        assert "\x1b" not in ours.stdout
    whole = native("inspect", "p.h5", cwd=tmp_path).stdout
    assert "more with smaller counts" in whole and re.search(r"\d,\d{3},\d{3},\d{3} ", whole)


def test_sums_have_the_span_of_their_run(tmp_path: Path) -> None:
    pm = sp.ProfileManager()
    pm.setup(output=str(tmp_path / "sums.h5"), aggregation_mode=True)
    for _ in range(3):
        with pm.region("a"), pm.region("b"):
            time.sleep(0.002)
    pm.finalize(verbose=False)
    for options in ([], ["--columns", "region", "calls", "total", "first", "last"]):
        ours, theirs = (run("inspect", "sums.h5", *options, cwd=tmp_path) for run in (native, python))
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
        span = re.search(r"([\d.]+) s from first call to last", ours.stdout)
        assert span is not None and 0.006 <= float(span[1])


def test_comparisons_show_the_beginning_and_the_end_of_a_long_name(tmp_path: Path) -> None:
    pm = sp.ProfileManager()
    for file, extra in (("a.h5", "only a "), ("b.h5", "only b ")):
        with pm.session(output=tmp_path / file, verbose=False):
            for name in ("shared ", extra):
                with pm.region(name + "x" * 100_000 + " end"):
                    pass
    for arguments in (["diff", "a.h5", "b.h5"], ["check", "a.h5", "b.h5", "--fail-on-new", "--max-regression", "1e9"]):
        ours, plain = python(*arguments, cwd=tmp_path), native(*arguments, cwd=tmp_path)
        assert ours.stdout == plain.stdout and ours.returncode == plain.returncode == (arguments[0] == "check")
        for text in ("shared xx", "only b xx", "xx end", "Only in a: only a xx"):
            assert text in ours.stdout
        assert "…" in ours.stdout and max(map(len, ours.stdout.splitlines())) < 250
