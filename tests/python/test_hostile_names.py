"""Names that are out to harm: a terminal, a browser, a spreadsheet, a viewer. Whoever made a profile chose them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import scope_profiler as sp
from export_helpers import strict_json
from native_code import COMMAND, needs_command
from perfetto_trace import Reader
from scope_profiler import plotting_scripts
from scope_profiler.cli import main

# Colours, the title of the window, the clipboard, C1 controls; lines; directions and what is not seen; markup; a NUL there cannot be.
CONTROLS = "\x1b[31m\x1b]0;owned\x07\x1b]52;c;cm0=\x1b\\\x9b2J\x90\x08\x7f\r\n\t\x0b\x0c\x85"
DIRECTIONS = "\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029\u2060"
MARKUP = "</script><script>alert(1)</script><!--]]>&amp;\"'`${x}\\N$a^{$\\frac"
HOSTILE = CONTROLS + DIRECTIONS + MARKUP
NAMES = [HOSTILE, "=" + HOSTILE, "+1", "-1", "@a", "\t=1", "\x1b", "\u202e", "plain"]

PROGRAM = """
import asyncio, json, os, sys, threading, warnings
import scope_profiler as sp
output, spooled, names = sys.argv[1], sys.argv[2] == "spooled", json.loads(sys.argv[3])
hostile = names[0]
async def work():
    for name in names:
        with sp.region(name, tags=[hostile]):
            with sp.metadata(**{hostile: hostile}):
                await asyncio.sleep(0)
work.__qualname__ = work.__name__ = hostile
async def run():
    await asyncio.gather(*(asyncio.create_task(work(), name=name) for name in names))
    if spooled:
        with sp.region("open" + hostile):
            print("ready", flush=True)
            await asyncio.sleep(0.01)
            sys.stdin.readline()
            os._exit(0)
def thread():
    for name in names:
        with sp.region(name, tags=[hostile]):
            pass
source = compile("def made(): pass", "/" + hostile.replace("\\0", ""), "exec")
exec(source)
sp.setup(output=output, track_async=True, label=hostile, capture_region_source=True, **({} if spooled else {"spool": False}))
threads = [threading.Thread(target=thread, name=name) for name in names]
for one in threads: one.start()
for one in threads: one.join()
sp.profile("made" + hostile)(made)()
asyncio.run(run())
sp.finalize(verbose=False)
"""


def harm(text: str, lines: bool = True) -> list[str]:
    """What of a text a terminal would obey, or a reader not see."""
    harmless = {"\u00ad", "\u200c", "\u200d", "\ufeff"} | ({"\n"} if lines else set())
    return [hex(ord(c)) for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in harmless]


def record(output: Path, spooled: bool = False) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(output), "spooled" if spooled else "-", json.dumps(NAMES)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if spooled:
        assert process.stdout and process.stdout.readline() == "ready\n", process.communicate()[1]
    else:
        assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    return process


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiles, whose files have hostile names too."""
    made = tmp_path_factory.mktemp("hostile")
    for name in ("a", "b"):
        path = made / f"{name}{CONTROLS}{DIRECTIONS}<&.h5"
        record(path)
        results = sp.load(path)
        results.metadata.update({HOSTILE: HOSTILE, "=list": [HOSTILE, HOSTILE], "hostname": HOSTILE})
        sp.write_profile(results, path)
    return made


@pytest.fixture
def files(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(directory)
    return sorted(path.name for path in directory.glob("[ab]*.h5"))


@pytest.fixture(scope="module")
def profile(directory: Path) -> sp.ProfilingResults:
    return sp.load(next(directory.glob("a*.h5")))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The spool of a run that is going on, and its process."""
    process = record(tmp_path / f"s{CONTROLS}{DIRECTIONS}.h5", spooled=True)
    [path] = tmp_path.glob("*.spool")
    yield str(path), process.pid
    process.communicate("\n", timeout=60)


def test_the_profile_holds_the_names_as_they_are(profile: sp.ProfilingResults) -> None:
    assert set(NAMES) <= set(profile.region_names)
    assert set(NAMES) <= {thread.name for thread in profile.threads[0]}
    assert set(NAMES) <= {task.name for task in profile.tasks[0]} and HOSTILE in {task.coro_name for task in profile.tasks[0]}
    assert profile.metadata["label"] == HOSTILE and profile.metadata[HOSTILE] == HOSTILE


READING = [
    ["inspect", "A"], ["inspect", "A", "B"], ["inspect", "A", "--tree"], ["inspect", "A", "--full"],
    ["inspect", "A", "--metadata-only"], ["inspect", "A", "--regions-only"],
    ["inspect", "A", "--source", HOSTILE, "none\x1b[2J\u202e"],
    ["diff", "A", "B"], ["diff", "A", "B", "--threshold", "0%"],
    ["check", "A", "B"], ["check", "A", "B", "--max-regression", "0"], ["check", "B", "A", "--max-regression", "0"],
]  # fmt: skip
# Each tells an error that names what it was given.
REFUSED = [
    ["inspect", "none\x1b[2J\u202e.h5"], ["inspect", "A", "--include", "(\x1b\u202e"], ["inspect", "A", "--sort", "\x1b\u202e"],
    ["inspect", "A", "--ranks", "\x1b\u202e"], ["inspect", "A", "--\x1b\u202e"], ["\x1b\u202e"], ["--\x1b\u202e"],
    ["diff", "A", "none\x1b\u202e"], ["check", "A", "none\x1b\u202e"], ["check", "A", "B", "--max-regression", "\x1b\u202e"],
    ["diff", "A", "B", "--metric", "\x1b\u202e"], ["export", "\x1b\u202e", "A"], ["export", "csv", "none\x1b\u202e"],
    ["export", "csv", "A", "-o", "A/none\x1b\u202e"], ["recover", "none\x1b\u202e"], ["recover", "A"], ["recover", "T"],
    ["top", "none\x1b\u202e", "--once"], ["top", "A", "--once"], ["merge", "none\x1b\u202e", "-o", "x.h5"], ["merge", "T", "-o", "x.h5"],
    ["merge", "A", "B", "-o", "none\x1b\u202e/x.h5"], ["inspect", "T"], ["import-native", "T", "-o", "x.h5"],
    ["import-native", "none\x1b\u202e", "-o", "x.h5"], ["view", "none\x1b\u202e"], ["inspect", "A", "extra\x1b\u202e"],
]  # fmt: skip
REFUSED_BY_PYTHON = [
    ["plot", "gantt\x1b\u202e", "A"], ["plot", "\x1b\u202e", "A"], ["plot", "gantt", "A", "-o", "A/x\x1b.png"],
    ["plot", "durations", "A", "--metrics", "\x1b\u202e"], ["plot", "gantt", "A", "--include", "(\x1b\u202e"],
    ["export", "plot-data", "A", "-p", "\x1b\u202e"], ["report", "none\x1b\u202e"], ["run", "none\x1b\u202e.py"],
    ["run", "-m", "none\x1b\u202e"], ["run", "--\x1b\u202e"], ["native-lines", "none\x1b\u202e"], ["native-lines", "T"],
    ["export", "A", "--to", "\x1b\u202e"], ["plot", "likwid", "A", "--metric", "\x1b\u202e"],
]  # fmt: skip


def filled(arguments: list[str], files: list[str], directory: Path) -> list[str]:
    """The arguments with the files: A and B are profiles, T is no profile at all."""
    trash = directory / f"trash{CONTROLS}{DIRECTIONS}"
    trash.write_bytes(b"\x1b[2Jnothing known" * 10)
    places = {"A": files[0], "B": files[1], "T": trash.name}
    return [places.get(one, f"{places['A']}{one[1:]}" if one.startswith("A/") else one) for one in arguments]


@pytest.mark.parametrize("arguments", READING)
def test_what_the_command_prints(
    arguments: list[str], files: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(filled(arguments, files, directory))
    out, err = capsys.readouterr()
    assert code in (0, 1) and (out or arguments[0] == "diff") and not harm(out) and not harm(err)
    if "--metadata-only" not in arguments and arguments[0] == "inspect":
        assert "\\x1b" in out


def test_what_the_command_prints_as_json(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["diff", *files, "--json"], ["check", *files, "--json"], ["inspect", files[0], "--json"]):
        if main(arguments) in (0, 1):
            out = capsys.readouterr().out
            assert out.isascii() and not harm(out) and json.loads(out)


@pytest.mark.parametrize("arguments", [*REFUSED, *REFUSED_BY_PYTHON])
def test_what_the_command_complains_of(
    arguments: list[str], files: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(filled(arguments, files, directory))
    out, err = capsys.readouterr()
    assert code in (1, 2) and not harm(out) and not harm(err), (code, out, err)
    assert code == 1 or len(err.splitlines()) == 1


def test_what_is_said_while_files_are_written(
    files: list[str], tmp_path: Path, spool: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "out\x1b[2J\u202e")
    for arguments in (
        *(["export", word, files[0], "-o", target] for word in ("csv", "json", "prof", "folded", "speedscope", "perfetto", "parquet")),
        ["export", files[0], "--to", "csv", "-o", target + ".csv"],
        ["export", files[0], files[1], "--to", "flamegraph", "-o", target],
        ["export", "plot-data", files[0], "-o", target],
        ["merge", *files, "-o", target + ".h5"],
        ["inspect", target + ".h5"],
        ["plot", "list"],
        ["plot", "default", files[0], "-o", target],
        ["plot", "callgraph", files[0], "-o", target + ".dot"],
        ["report", files[0], "-o", target + ".html"],
        ["report", files[0], files[1], "-o", target + ".html"],
        ["top", spool[0], "--once"],
        ["top", str(spool[1]), "--once"],
        ["recover", spool[0], "-o", target + ".recovered.h5"],
    ):
        code = main(arguments)
        out, err = capsys.readouterr()
        assert code in (0, 2) and not harm(out) and not harm(err), (arguments, out, err)
        assert code == 0 or arguments[0] == "recover", err


def native(*arguments: str) -> tuple[int, str, str]:
    process = subprocess.run([COMMAND, *arguments], capture_output=True, timeout=120)
    return process.returncode, process.stdout.decode("utf-8", "strict"), process.stderr.decode("utf-8", "strict")


@needs_command
@pytest.mark.uninstrumented
def test_what_the_native_command_prints(files: list[str], directory: Path) -> None:
    for arguments in READING:
        code, out, err = native(*filled(arguments, files, directory))
        assert code in (0, 1) and not harm(out) and not harm(err), (arguments, code, out, err)


@needs_command
@pytest.mark.uninstrumented
def test_what_the_native_command_complains_of(files: list[str], directory: Path) -> None:
    for arguments in REFUSED:
        code, out, err = native(*filled(arguments, files, directory))
        assert code in (1, 2) and not harm(out) and not harm(err), (arguments, code, out, err)
        assert code == 1 or len(err.splitlines()) == 1, (arguments, err)
    code, out, err = native("inspect", b"none\x9b\xff\xc0\x80.h5".decode("utf-8", "surrogateescape"))
    assert code == 2 and not harm(err) and len(err.splitlines()) == 1


@needs_command
@pytest.mark.uninstrumented
def test_what_the_native_command_says_while_files_are_written(files: list[str], tmp_path: Path, spool: tuple[str, int]) -> None:
    target = str(tmp_path / "out\x1b[2J\u202e")
    os.mkdir(target)
    for arguments in (
        *(["export", word, files[0], "-o", target] for word in ("csv", "folded", "speedscope", "perfetto", "chrome-trace")),
        ["merge", *files, "-o", target + ".h5"],
        ["inspect", target + ".h5"],
        ["view", files[0], "-o", target + ".html"],
        ["top", spool[0], "--once"],
        ["top", str(spool[1]), "--once"],
    ):
        code, out, err = native(*arguments)
        assert code == 0 and not harm(out) and not harm(err), (arguments, code, out, err)


def test_a_summary_and_a_plot_print_nothing_harmful(profile: sp.ProfilingResults, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile.print_summary()
    plotting_scripts.plot_durations(profile, filepath=tmp_path / "p.png")
    plotting_scripts.plot_callgraph(profile, filepath=tmp_path / "p.dot", compact=True)
    out, err = capsys.readouterr()
    assert out and not harm(out) and not harm(err)


# -- files ----------------------------------------------------------------------------------------------------------------


def test_pictures_are_well_formed_and_show_nothing_harmful(profile: sp.ProfilingResults, tmp_path: Path) -> None:
    written = sp.export_flamegraph_svg(profile, tmp_path / "f", verbose=False)
    for kind in ("gantt", "durations", "flame", "callgraph"):
        path = tmp_path / f"{kind}.svg"
        function = getattr(plotting_scripts, {"gantt": "plot_gantt", "durations": "plot_durations", "flame": "plot_flame_graph", "callgraph": "plot_callgraph"}[kind])  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(profile, filepath=path, verbose=False, **({"compact": True} if kind == "callgraph" else {}))
        written.append(path)
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert not harm(text), path
        elements = list(ElementTree.fromstring(text.encode()).iter())
        assert not any(element.tag.endswith("script") for element in elements), path
        assert not any(name.lower().startswith("on") for element in elements for name in element.attrib), path


def test_pages_run_no_script_of_a_name(profile: sp.ProfilingResults, tmp_path: Path) -> None:
    """What a name says never ends the element that it is in; each page has as many as one without names has."""
    plain = sp.ProfileManager()
    with plain.session(output=None, verbose=False, return_results=True, track_async=True) as session:
        with plain.region("a"), plain.region("b"):
            pass
    pages: dict[str, Callable[[sp.ProfilingResults, Path], object]] = {
        "report": lambda run, path: sp.create_html_report(run, path),
        "plotly": lambda run, path: plotting_scripts.plot_gantt(run, filepath=path, backend="plotly", verbose=False),
        "pyvis": lambda run, path: plotting_scripts.plot_callgraph(run, filepath=path, backend="pyvis", compact=True, verbose=False),
    }  # fmt: skip
    for name, write in pages.items():
        counts = []
        for number, run in enumerate((profile, session.results)):
            path = tmp_path / f"{name}{number}.html"
            write(run, path)
            text = path.read_text(encoding="utf-8")
            counts.append((len(re.findall("(?i)<script", text)), len(re.findall("(?i)</script", text))))
            assert "<script>alert(1)" not in text, path
        assert counts[0] == counts[1], name


def test_a_graph_for_graphviz_is_read_as_one(profile: sp.ProfilingResults, tmp_path: Path) -> None:
    text = plotting_scripts.callgraph.callgraph_dot(profile, compact=True)
    assert not harm(text)
    drawn = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, timeout=60)
    assert drawn.returncode == 0 and drawn.stderr == b""
    texts = "".join(ElementTree.fromstring(drawn.stdout).itertext())
    assert "</script><script>alert(1)</script>" in texts and "&amp;" in texts and "\\x1b[31m" in texts


def formula(cell: str) -> bool:
    return cell[:1] in ("=", "+", "-", "@", "\t", "\r") and re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", cell) is None


def test_tables_hold_no_formula_and_no_control(profile: sp.ProfilingResults, tmp_path: Path) -> None:
    written = sp.export_csv(profile, tmp_path / "calls", verbose=False)
    for kind, function in {"gantt": plotting_scripts.plot_gantt, "durations": plotting_scripts.plot_durations,
                           "callgraph": plotting_scripts.plot_callgraph}.items():  # fmt: skip
        written.append(tmp_path / f"{kind}.csv")
        function(profile, verbose=False, data_filepath=written[-1], data_format="csv")
    for path in written:
        raw = path.read_bytes().decode("utf-8", "strict")
        assert not [c for c in raw if unicodedata.category(c) == "Cc" and c != "\n"], path
        rows = list(csv.reader(io.StringIO(raw)))
        assert len(rows) == raw.count("\n") > len(NAMES), path  # no cell breaks a line
        assert not [cell for row in rows for cell in row if formula(cell)], path
        assert any(cell.startswith("'=") for row in rows for cell in row) and any("\\x1b[31m" in cell for row in rows for cell in row)


def test_traces_are_valid_and_hold_the_names_as_they_are(profile: sp.ProfilingResults, tmp_path: Path) -> None:
    [speedscope] = sp.export_speedscope(profile, tmp_path / "s", verbose=False)
    assert set(NAMES) <= {frame["name"] for frame in strict_json(speedscope)["shared"]["frames"]}
    [chrome] = sp.export_chrome_trace(profile, tmp_path / "c", verbose=False)
    assert set(NAMES) <= {event["name"] for event in strict_json(chrome)["traceEvents"]}
    [document] = sp.export_json(profile, tmp_path / "j", verbose=False)
    assert strict_json(document)["metadata"]["label"] == HOSTILE
    for path in (speedscope, chrome, document):
        assert not [c for c in path.read_text(encoding="utf-8") if unicodedata.category(c) in ("Cc", "Cs") and c != "\n" and ord(c) < 0x7F]
    [perfetto] = sp.export_perfetto(profile, tmp_path / "p", verbose=False)
    assert set(NAMES) <= {name for name, _, _ in Reader(perfetto).calls()}


# -- plots are files like others ----------------------------------------------------------------------------------------------

PLOTS: dict[str, Callable[[sp.ProfilingResults, Path], object]] = {
    "csv": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, data_filepath=path, data_format="csv"),
    "json": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, data_filepath=path, data_format="json"),
    "parquet": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, data_filepath=path, data_format="parquet"),
    "png": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, filepath=path),
    "html": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, filepath=path, backend="plotly"),
    "txt": lambda run, path: plotting_scripts.plot_durations(run, verbose=False, filepath=path, backend="plotext"),
    "pyvis.html": lambda run, path: plotting_scripts.plot_callgraph(run, verbose=False, filepath=path, backend="pyvis"),
    "dot": lambda run, path: plotting_scripts.plot_callgraph(run, verbose=False, filepath=path),
    "statistics.json": lambda run, path: plotting_scripts.write_region_statistics_json(run, path),
    "calls.parquet": lambda run, path: sp.export_parquet(run, path, verbose=False),
}


@pytest.mark.parametrize("suffix", PLOTS)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link to another user, which takes root")
def test_a_plot_follows_no_link_of_another_user(profile: sp.ProfilingResults, tmp_path: Path, suffix: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = shared / f"out.{suffix}"
    link.symlink_to(victim)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    PLOTS[suffix](profile, link)
    assert victim.read_text() == "precious" and link.stat().st_size > 0 and not link.is_symlink()
    assert os.listdir(shared) == [link.name]


@pytest.mark.parametrize("suffix", PLOTS)
def test_a_plot_that_cannot_be_written_leaves_the_old_one(
    profile: sp.ProfilingResults, tmp_path: Path, suffix: str
) -> None:
    import resource
    import signal

    path = tmp_path / f"old.{suffix}"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(OSError, match=re.escape(path.name)):
            PLOTS[suffix](profile, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]
