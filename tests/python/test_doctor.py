"""scope-profiler --doctor: what it says of a machine is so, whatever is installed there, and whatever crashes or hangs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from scope_profiler import __version__, _core
from scope_profiler.cli import doctor
from scope_profiler.doctor_checks import CHECKS, ESSENTIAL

NAMES = [
    "interpreter", "recording", "clock", "output", "HDF5", "compression", "spool", "huge pages", "asyncio", "uvloop", "trio",
    "greenlet", "MPI", "perf events", "line_profiler", "nvtx", "gpu", "likwid", "memray", "viewer", "plots", "textual", "mcp", "IPython",
]  # fmt: skip


def command(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "scope_profiler", *arguments], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def answer():
    """What the doctor says of this machine."""
    done = command("--doctor", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def blocked(directory, *modules):
    """An environment in which these modules cannot be imported."""
    (directory / "sitecustomize.py").write_text("import sys\n" + "".join(f"sys.modules[{module!r}] = None\n" for module in modules))
    return {**os.environ, "PYTHONPATH": str(directory)}


def check(name, environment):
    done = subprocess.run([sys.executable, "-m", "scope_profiler.doctor_checks", name], capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_check_has_an_answer_in_order(answer):
    assert [one["name"] for one in answer["checks"]] == NAMES == list(CHECKS)
    assert answer["version"] == __version__ and answer["records"] is True
    for one in answer["checks"]:
        assert one.keys() == {"name", "status", "detail", "remedy"} and one["detail"], one
        assert one["status"] in ("works", "limited", "missing"), one  # nothing fails here
        assert bool(one["remedy"]) == (one["status"] != "works"), one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("line_profiler", "line_profiler"), ("nvtx", "nvtx"), ("memray", "memray"), ("greenlet", "greenlet"), ("uvloop", "uvloop"),
        ("trio", "trio"), ("textual", "textual"), ("mcp", "mcp"), ("IPython", "IPython"),
    ],
)  # fmt: skip
def test_a_package_works_if_it_is_there_and_is_missing_if_not(answer, tmp_path, name, module):
    [one] = [one for one in answer["checks"] if one["name"] == name]
    assert (one["status"] == "works") == (importlib.util.find_spec(module) is not None)
    without = check(name, blocked(tmp_path, module))
    assert without["status"] == "missing" and without["remedy"].startswith("pip install "), without


def test_the_interpreter_and_the_clock_are_this_ones():
    found = check("interpreter", None)["detail"]
    assert ".".join(map(str, sys.version_info[:3])) in found and __version__ in found and os.path.basename(_core.__file__) in found
    clock = check("clock", None)
    assert clock["status"] in ("works", "limited") and "perf_counter_ns" in clock["detail"]


def test_perf_events_are_those_that_open_here():
    problems = _core.perf_event_problems()
    found = check("perf events", None)
    level = open("/proc/sys/kernel/perf_event_paranoid").read().strip()
    assert f"perf_event_paranoid is {level}" in found["detail"]
    counted = found["detail"].split("counts ")[1].split(";")[0]
    assert {name for name, problem in problems.items() if problem is None} == set(counted.split(", ")) - {"nothing"}
    assert found["status"] == ("works" if not any(problems.values()) else "limited")


def test_a_directory_that_cannot_be_written_is_said_to_be_one(tmp_path):
    (tmp_path / "no").mkdir()
    # Files of root's are writable for root: a directory that is gone is not.
    code = "import os, sys, runpy; os.rmdir(os.getcwd()); sys.argv = ['x', 'output']; from scope_profiler.doctor_checks import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path / "no")
    found = json.loads(done.stdout)
    assert found["status"] in ("limited", "fails"), found


@pytest.mark.parametrize("name", ["gpu", "likwid"])
def test_missing_hardware_is_missing_with_both_reasons(tmp_path, name):
    found = check(name, {**blocked(tmp_path, "torch", "cupy", "pylikwid"), "PATH": ""})
    assert found["status"] == "missing" and found["remedy"]
    assert ("torch" in found["detail"] and "cupy" in found["detail"]) if name == "gpu" else "neither" in found["detail"]


@pytest.mark.slow
def test_without_what_records_the_answer_is_no(tmp_path, monkeypatch):
    done = command("--doctor", "--json", env={**blocked(tmp_path, "h5py", "numpy"), "PYTHONDONTWRITEBYTECODE": "1"})
    document = json.loads(done.stdout)
    broken = {one["name"] for one in document["checks"] if one["status"] == "fails"}
    assert done.returncode == 1 and document["records"] is False and broken & set(ESSENTIAL)


@pytest.mark.parametrize(
    ("module", "detail"),
    [
        ("import os; os.abort()", "it crashes (SIGABRT)"),
        ("import os; os._exit(3)", "it ends with exit code 3"),
        ("raise OSError('broken')", "OSError: broken"),
        ("import time; time.sleep(60)", "it hangs"),
        ("print('noise'); import os; os.write(1, b'noise'); raise ImportError('half installed')", "half installed"),
    ],
)
def test_a_package_that_is_broken_does_not_break_the_doctor(tmp_path, monkeypatch, module, detail):
    (tmp_path / "nvtx.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "TIMEOUT", 20.0 if "sleep" not in module else 2.0)
    found = doctor._try("nvtx")
    assert detail in found["detail"] and found["status"] in ("fails", "missing")


def test_the_text_has_a_line_for_each_and_what_to_do_below(capsys):
    found = {
        "one": {"status": "works", "detail": "it does", "remedy": ""},
        "second": {"status": "missing", "detail": "not installed\nat all", "remedy": "pip install it"},
        "x": {"status": "fails", "detail": "ValueError: no", "remedy": "please report this"},
    }
    assert doctor._lines(found, "1.2.3") == [
        "scope-profiler 1.2.3",
        "",
        "  works    one     it does",
        "  missing  second  not installed at all",
        "                   -> pip install it",
        "  FAILS    x       ValueError: no",
        "                   -> please report this",
    ]


def test_unknown_options_are_told_in_one_line():
    done = command("--doctor", "--all")
    assert done.returncode == 2 and done.stdout == "" and done.stderr == "scope-profiler: --doctor knows no '--all', only --json\n"


def test_help_names_the_doctor():
    assert "--doctor" in command("--help").stdout
