"""Every code block of README.md runs, in the order of the page and in one directory, as a reader would try it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))]

pytestmark = [pytest.mark.slow, pytest.mark.uninstrumented]


def execute(command, directory):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", command
    return done.stdout


def run_python(block, directory):
    name = block["file"] or "block.py"
    (directory / name).write_text(block["text"])
    return execute([sys.executable, name], directory)


def run_shell(block, directory):
    """Lines that install or test the checkout are only looked up: other tests, or this very run, carry them out."""
    output = ""
    for line in block["text"].splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "./run":
            assert re.search(rf"^  {words[1]} ", execute([ROOT / "run", "help"], ROOT), re.MULTILINE), line
        elif words[:2] != ["pip", "install"]:
            assert words[0] in ("scope-profiler", "pytest"), line
            output += execute(words, directory)
    return output


def run_c(block, directory):
    """With the C library where one was built, else to see that it compiles."""
    source, build = directory / block["file"], os.environ.get("SCOPE_PROFILER_C_BUILD")
    source.write_text(block["text"])
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT / 'include'}", str(source)]
    if not build:
        return execute([*command, "-fsyntax-only"], directory)
    library = Path(build).resolve() / "src"
    program = str(source.with_suffix(""))
    execute([*command, "-o", program, f"-L{library}", "-lscope_profiler", f"-Wl,-rpath,{library}"], directory)
    return execute([program], directory)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each block printed."""
    directory = tmp_path_factory.mktemp("readme")
    runners = {"python": run_python, "sh": run_shell, "c": run_c}
    return [runners[block["language"]](block, directory) for block in BLOCKS]


def output_of(outputs, text):
    """The output of the one block that contains this text."""
    [index] = [i for i, block in enumerate(BLOCKS) if text in block["text"]]
    return outputs[index]


def test_the_page_starts_with_the_two_commands():
    assert re.findall(r"^\./run \w+", BLOCKS[0]["text"], re.MULTILINE) == ["./run demo", "./run test"]
    before = (ROOT / "README.md").read_text(encoding="utf-8").partition("```")[0]
    assert before.strip() == "# scope-profiler"


def test_the_unrecorded_program_prints_nothing(outputs):
    assert output_of(outputs, "def compress") == ""


@pytest.mark.parametrize("text", ["scope-profiler run -o app.h5", 'session(output="session.h5")'])
def test_a_recorded_program_prints_its_regions(outputs, text):
    printed = output_of(outputs, text)
    assert "compress" in printed
    assert "make text" in printed


def test_each_worker_thread_is_listed_with_its_calls(outputs):
    rows = [line.split() for line in output_of(outputs, "thread_summary").splitlines()]
    calls = {row[0]: int(row[1]) for row in rows}
    assert {f"worker-{i}": 200 for i in range(4)}.items() <= calls.items()


def test_tests_are_regions(outputs):
    assert "pytest::test_sums.py::test_sum::call" in output_of(outputs, "pytest -q --scope-profile")


def test_runs_are_exported(outputs):
    assert output_of(outputs, "--to perfetto").splitlines() == ["wrote trace.pftrace", "wrote calls.csv"]
    assert output_of(outputs, "export_speedscope").count("Wrote") == 2


def test_results_are_read_from_the_file(outputs):
    first = output_of(outputs, "p95_duration").splitlines()[0].split()
    assert first[0] == "400"
    assert 0 < float(first[2]) < float(first[1])


def test_worker_processes_are_ranks_of_the_run(outputs):
    rows = [line.split()[:2] for line in output_of(outputs, "follow_processes").splitlines() if line[:2] in ("0 ", "1 ", "2 ")]
    assert rows[0] == ["0", "MainProcess"]
    assert len(rows) >= 2 and all("Process-" in name for _, name in rows[1:])
