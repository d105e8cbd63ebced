"""run, profile_script, run_script, profile_command."""

import os
import sys

import pytest

import scope_profiler as sp
from manager_helpers import counts, enter

SCRIPT = """
import sys, scope_profiler as sp
print(sys.argv[1:], __name__, sys.path[0])
with sp.region("in_script"): pass
sys.path.insert(0, "left behind"); sys.argv.append("left behind")
if "exit" in sys.argv: sys.exit(3)
if "raise" in sys.argv: raise KeyError("script")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "app.py"
    path.write_text(SCRIPT)
    return path


# -- run -----------------------------------------------------------------------------------------------------------------


def test_run_calls_in_a_session_and_returns_the_value(pm, tmp_path, capsys):
    def work(a, b, *, c=0):
        enter(pm, "in")
        return a + b + c

    assert pm.run(work, 1, 2, output=tmp_path / "p.h5", label="lab", c=4) == 7
    results = pm.last_results()
    assert counts(results) == {"in": 1} and results.label == "lab" and "scope_profiler.session" in results
    assert counts(sp.load(tmp_path / "p.h5")) == {"in": 1}
    assert capsys.readouterr().out == ""


def test_run_without_output_writes_the_default_file_and_with_none_no_file(pm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pm.run(lambda: None, output=None)
    assert os.listdir(tmp_path) == []
    pm.run(lambda: None)
    assert os.listdir(tmp_path) == ["profiling_data.h5"]


def test_run_passes_the_functions_exception(pm):
    with pytest.raises(ZeroDivisionError):
        pm.run(lambda: 1 / 0, output=None)
    with pytest.raises(TypeError, match="lable"):
        pm.run(lambda: 1, output=None, lable="x")
    assert not pm.is_active()


# -- profile_script ---------------------------------------------------------------------------------------------------------


def test_profile_script_runs_it_as_main_and_restores(default, script, capsys):
    argv, search = list(sys.argv), list(sys.path)
    results = sp.profile_script(script, script_args=["a", "b"], output=script.parent / "p.h5", label="lab")
    assert counts(results) == {"in_script": 1} and results.label == "lab" and sp.last_results() is results
    assert "scope_profiler.session" not in results
    assert capsys.readouterr().out == f"['a', 'b'] __main__ {script.parent}\n"
    assert (sys.argv, sys.path) == (argv, search)
    assert counts(sp.load("p.h5")) == {"in_script": 1}


@pytest.mark.parametrize(("argument", "error"), [("exit", SystemExit), ("raise", KeyError)])
def test_the_scripts_exception_is_raised_when_all_is_written(default, script, argument, error):
    with pytest.raises(error) as caught:
        sp.profile_script("app.py", script_args=[argument], output="p.h5")
    assert error is not SystemExit or caught.value.code == 3
    assert counts(sp.last_results()) == {"in_script": 1} == counts(sp.load("p.h5"))


def test_a_write_that_fails_does_not_replace_the_scripts_exception(default, script):
    with pytest.raises(KeyError) as caught:
        sp.profile_script("app.py", script_args=["raise"], output="missing/p.h5")
    assert isinstance(caught.value.__context__, FileNotFoundError)


def test_profile_script_in_memory(default, script):
    assert counts(sp.profile_script("app.py", output=None)) == {"in_script": 1}
    assert os.listdir(".") == ["app.py"]
    with pytest.raises(FileNotFoundError, match="none.py"):
        sp.profile_script("none.py", output=None)


def test_run_script_runs_in_the_current_run(default, script):
    sp.setup(output=None)
    sp.ProfileManager.run_script("app.py", ["x"], recursive=False)
    sp.ProfileManager.run_script("app.py", recursive=False)
    assert counts(sp.finalize(verbose=False, return_results=True)) == {"in_script": 2}


# -- profile_command --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["app.py", "a b"], "app.py 'a b'", [sys.executable, "app.py", "a b"], "python app.py 'a b'", "/usr/bin/python3.11 app.py 'a b'"],
)
def test_profile_command_runs_a_script_in_another_process(default, script, command, capfd):
    completed = sp.profile_command(command, output="p.h5")
    assert completed.returncode == 0 and completed.args[-2:] == ["app.py", "a b"]
    assert counts(completed.profile_results) == {"in_script": 1} == counts(sp.load("p.h5"))
    assert capfd.readouterr().out.startswith("['a b'] __main__")


def test_profile_command_that_fails(default, script):
    completed = sp.profile_command("app.py exit")
    assert completed.returncode == 3 and completed.profile_results is None
    assert counts(sp.load("profiling_data.h5")) == {"in_script": 1}


@pytest.mark.parametrize("command", [[], "", "python", [sys.executable], "python -c pass", ["-x"]])
def test_a_command_without_a_script_is_refused(default, command):
    with pytest.raises(ValueError, match="script"):
        sp.profile_command(command)
