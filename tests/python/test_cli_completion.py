"""Completion of command lines, by what the program answers and in the shells themselves; and mistyped commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scope_profiler.cli import COMMANDS, main
from scope_profiler.cli.complete import candidates
from scope_profiler.cli.completion import SCRIPTS

BIN = Path(sys.executable).parent
PROFILES = (".h5", ".hdf5", ".json", ".json.gz", ".spool")


def answer(*words: str) -> tuple[list[str], tuple[str, ...] | None]:
    """(words, suffixes of files) that could stand in the place of the last word."""
    found = candidates(words[:-1], words[-1])
    return [line.partition("\t")[0] for line in found.lines(words[-1]) if not line.startswith(":")], found.suffixes


# -- what the program answers ----------------------------------------------------------------------------------------------


def test_commands_and_options_of_the_program() -> None:
    assert set(answer("")[0]) == {name for name in COMMANDS if " " not in name}
    assert answer("re")[0] == [name for name in COMMANDS if name.startswith("re")]
    assert {"--help", "--version", "--libs"} <= set(answer("-")[0])
    assert answer("nosuch", "") == ([], None)


@pytest.mark.parametrize(
    ("words", "some", "suffixes"),
    [
        (("plot", ""), {"gantt", "flame_chart", "default", "all", "list"}, PROFILES),
        (("plot", "gan"), {"gantt"}, PROFILES),
        (("plot", "gantt", ""), set(), PROFILES),
        (("plot", "run.h5", ""), set(), PROFILES),
        (("plot", "gantt", "run.h5", "--backend", ""), {"matplotlib", "plotly", "pyvis", "plotext"}, None),
        (("plot", "gantt", "--backend=plot"), {"--backend=plotly", "--backend=plotext"}, None),
        (("export", "spe"), {"speedscope"}, PROFILES),
        (("export", "plot-"), {"plot-data"}, PROFILES),
        (("export", "plot-data", "--plots", "gantt", "flame_"), {"flame_chart", "flame_graph"}, PROFILES),
        (("export", "run.h5", "--to", "per"), {"perfetto"}, None),
        (("inspect", "--sort", "p"), {"p50", "p95", "p99"}, None),
        (("inspect", "--columns", "calls", "per"), {"percent"}, PROFILES),
        (("inspect", "run.h5", "--colu"), {"--columns"}, None),
        (("check", "a.h5", "b.h5", "--max"), {"--max-regression"}, None),
        (("diff", "a.h5", ""), set(), PROFILES),
        (("report", "-o", ""), set(), ()),
        (("report", "-oout.html", ""), set(), PROFILES),
        (("recover", ""), set(), (".spool",)),
        (("run", "--conf"), {"--config"}, (".py", ".pyz")),
        (("run", "--config", ""), set(), (".toml",)),
        (("run", ""), set(), (".py", ".pyz")),
        (("run", "-o", "x.h5", ""), set(), (".py", ".pyz")),
        (("run", "app.py", "--any"), set(), ()),
        (("run", "-m", ""), set(), None),
        (("completion", ""), {"bash", "zsh", "fish"}, None),
        (("inspect", "--", "-x"), set(), PROFILES),
    ],
)
def test_values_and_files(words: tuple[str, ...], some: set[str], suffixes: tuple[str, ...] | None) -> None:
    found, files = answer(*words)
    if some and words[-1]:
        assert set(found) == some
    else:
        assert some <= set(found)
    assert files == suffixes


def test_an_option_is_offered_once_unless_it_repeats() -> None:
    assert "--output" not in answer("report", "-o", "x.html", "--o")[0]
    assert "--tag" in answer("run", "--tag", "a", "--ta")[0]
    assert answer("diff", "a", "b", "--metric", "total", "")[0][:1] == ["--help"]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_completes_its_own_options(name: str) -> None:
    found, _ = answer(*name.split(), "--")
    assert "--help" in found and all(option.startswith("--") for option in found)


def test_the_answer_is_lines_with_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "plot", "gan"]) == 0
    first, files = capsys.readouterr().out.splitlines()
    assert first == "gantt\tevery call over time, a row a thread, task or region"
    assert files == ":files .h5 .hdf5 .json .json.gz .spool"


def test_the_script_of_the_users_shell_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in SCRIPTS:
        assert main(["completion", shell]) == 0
        explicit = capsys.readouterr().out
        monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
        assert main(["completion"]) == 0
        assert capsys.readouterr().out == explicit and "__complete" in explicit
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == 2
    assert capsys.readouterr().err == "scope-profiler: which shell? bash, zsh, fish are known, not tcsh\n"


# -- in the shells ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with files, and the environment's command on the path."""
    for name in ("run one.h5", "other.h5", "trace.json", "notes.txt", "app.py", "settings.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "deep.h5").write_text("")
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def need(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


CASES: dict[str, set[str]] = {
    "scope-profiler che": {"check"},
    "scope-profiler plot flame_": {"flame_chart", "flame_graph"},
    "scope-profiler plot gantt ": {"run one.h5", "other.h5", "trace.json", "results/"},
    "scope-profiler plot gantt other.h5 --backend plotl": {"plotly"},
    "scope-profiler inspect other.h5 --sor": {"--sort"},
    "scope-profiler inspect results/": {"results/deep.h5"},
    "scope-profiler run --config ": {"settings.toml", "results/"},
    "scope-profiler run app.py n": {"notes.txt"},
    "scope-profiler export other.h5 --to speed": {"speedscope"},
    "scope-profiler completion z": {"zsh"},
}

BASH = r"""
source "$1"
line=$2
COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
case $line in *" ") COMP_WORDS+=("") COMP_CWORD=$((COMP_CWORD + 1)) ;; esac
_scope_profiler
printf '%s\n' "${COMPREPLY[@]}"
"""


def script(place: Path, shell: str) -> Path:
    path = place.with_name(f"{place.name}-scripts") / SCRIPTS[shell]
    path.parent.mkdir(exist_ok=True)
    text = subprocess.run([BIN / "scope-profiler", "completion", shell], capture_output=True, text=True, check=True).stdout
    path.write_text(text)
    return path


def ask_bash(place: Path, line: str) -> set[str]:
    """The function of the script, called as readline calls it."""
    command = [need("bash"), "--norc", "-c", BASH, "bash", str(script(place, "bash")), line]
    done = subprocess.run(command, cwd=place, env=environment(place), capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    # readline appends the slash, told by `compopt -o filenames`.
    return {name + "/" * (place / name).is_dir() for name in done.stdout.splitlines() if name}


def ask_fish(place: Path, line: str) -> set[str]:
    """fish's own engine, with descriptions left out."""
    program = f"source {script(place, 'fish')}; complete -C '{line}'"
    command = [need("fish"), "--no-config", "-c", program]
    done = subprocess.run(command, cwd=place, env=environment(place), capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return {entry.partition("\t")[0] for entry in done.stdout.splitlines()}


@pytest.mark.slow
@pytest.mark.parametrize("line", list(CASES))
def test_completion_in_bash(place: Path, line: str) -> None:
    assert ask_bash(place, line) == CASES[line]


@pytest.mark.slow
@pytest.mark.parametrize("line", list(CASES))
def test_completion_in_fish(place: Path, line: str) -> None:
    assert ask_fish(place, line) == CASES[line]


@pytest.fixture(params=["bash", "zsh", "zsh-fpath"])
def terminal(request: pytest.FixtureRequest, place: Path) -> Iterator[Callable[[str], str]]:
    """Types a line with tabs into a real shell, and returns the words that the program is called with in the end."""
    pexpect = pytest.importorskip("pexpect")
    shell = request.param.partition("-")[0]
    path = script(place, shell)
    start = {
        "bash": ([need(shell), "--norc", "--noprofile", "-i"], f"bind 'set enable-bracketed-paste off'; source '{path}'"),
        "zsh": ([need(shell), "-f", "-i"], f"unset zle_bracketed_paste; autoload -U compinit; compinit -u -D; source '{path}'"),
        # As from a directory in which zsh looks for functions.
        "zsh-fpath": ([need(shell), "-f", "-i"], f"unset zle_bracketed_paste; fpath=('{path.parent}' $fpath); autoload -U compinit; compinit -u -D"),
    }
    command, preparation = start[request.param]
    child = pexpect.spawn(
        command[0], command[1:], cwd=str(place), env=environment(place), encoding="utf-8", timeout=60, dimensions=(50, 200)
    )
    child.sendline(f"{preparation}; echo pre''pared")
    child.expect_exact("prepared\r\n")

    def typed(keys: str) -> str:
        # Keys are read in order, so the line is complete before Ctrl-A goes to its beginning, where printf is put.
        child.send(f"{keys}\x01printf '<%s>' \r")
        child.expect(r"(<[^\r\n%]*>)")
        return str(child.match.group(1))

    yield typed
    child.close(force=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("scope-profiler insp\t", "<scope-profiler><inspect>"),
        ("scope-profiler plot gan\t", "<scope-profiler><plot><gantt>"),
        ("scope-profiler inspect run\t", "<scope-profiler><inspect><run one.h5>"),
        ("scope-profiler plot other.h5 --backend=plotl\t", "<scope-profiler><plot><other.h5><--backend=plotly>"),
        ("scope-profiler run --config=sett\t", "<scope-profiler><run><--config=settings.toml>"),
        # Nothing of the word is typed yet.
        ("scope-profiler completion \tzs\t", "<scope-profiler><completion><zsh>"),
        ("scope-profiler run --config \tsett\t", "<scope-profiler><run><--config><settings.toml>"),
        ("scope-profiler export other.h5 --to \tspeed\t", "<scope-profiler><export><other.h5><--to><speedscope>"),
    ],
)
def test_tabs_in_a_terminal(terminal: Callable[[str], str], keys: str, words: str) -> None:
    assert terminal(keys) == words


@pytest.mark.slow
def test_bash_completion_finds_the_script_by_itself(place: Path) -> None:
    loader = Path("/usr/share/bash-completion/bash_completion")
    if not loader.exists():
        pytest.skip("bash-completion is not installed")
    directory = place / ".local/share/bash-completion/completions"
    directory.mkdir(parents=True)
    shutil.copy(script(place, "bash"), directory / "scope-profiler")
    program = f"source {loader}; _completion_loader scope-profiler; complete -p scope-profiler"
    done = subprocess.run([need("bash"), "--norc", "-c", program], env=environment(place), capture_output=True, text=True)
    assert done.stdout.strip() == "complete -F _scope_profiler scope-profiler"


@pytest.mark.slow
def test_fish_finds_the_script_by_itself(place: Path) -> None:
    directory = place / "share/fish/vendor_completions.d"
    directory.mkdir(parents=True)
    shutil.copy(script(place, "fish"), directory)
    command = [need("fish"), "-c", "complete -C 'scope-profiler plot flame_'"]
    variables = {**environment(place), "XDG_DATA_DIRS": f"{place}/share:/usr/local/share:/usr/share"}
    done = subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True, timeout=60)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["flame_chart", "flame_graph"]


@pytest.mark.slow
def test_a_command_that_cannot_answer_leaves_files(place: Path) -> None:
    (place / "bin").mkdir()
    other = place / "bin" / "scope-profiler"
    other.write_text("#!/bin/sh\necho 'unknown command' >&2\nexit 2\n")
    other.chmod(0o755)
    assert ask_bash(place, f"{other} not") == {"notes.txt"}


# -- mistyped commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("insepct", "inspect"), ("inpect", "inspect"), ("Inspect", "inspect"), ("insp", "inspect"), ("rnu", "run"), ("exprot", "export"),
        ("import_native", "import-native"), ("natve-lines", "native-lines"), ("chek", "check"), ("comp", "completion"), ("gantt", "plot gantt"),
        ("speedscope", "export speedscope"), ("repot", "report"), ("ex", "export"), ("mrege", "merge"), ("VIEW", "view"),
    ],
)  # fmt: skip
def test_a_mistyped_command_finds_the_right_one(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed, "x.h5"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"scope-profiler: unknown command '{typed}', did you mean '{meant}'?; see scope-profiler --help\n"


def test_what_is_like_no_command_is_only_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert capsys.readouterr().err == "scope-profiler: unknown command 'xyzzy'; see scope-profiler --help\n"
    assert main(["--verson"]) == 2
    assert "did you mean '--version'?" in capsys.readouterr().err
