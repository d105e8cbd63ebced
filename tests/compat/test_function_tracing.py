"""The same functions are traced, and have the same names, under release 0.7.5 and under this one, where that release traces them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import scope_profiler as sp

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON names no interpreter with 0.7.5")

HELPER = """
def inner(x): return x + 1
def gen():
    for i in range(3): yield inner(i)
class A:
    def m(self): return (lambda: inner(1))()
    @staticmethod
    def s():
        def local(): return inner(2)
        return local()
def raiser(): raise ValueError
def main():
    A().m(); A.s(); list(gen())
    try: raiser()
    except ValueError: pass
    import json; json.dumps({"a": [1]}, indent=2)
    sorted([3, 1, 2], key=lambda v: -v)
    eval("inner(2)")
"""
SCRIPT = """
import helper
class K: pass
def f(): helper.main()
f()
f()
"""
DECORATED = """
import json, helper
import scope_profiler as sp
@sp.profile(recursive=True)
def traced(): helper.main(); decorated()
@sp.profile
def decorated(): helper.inner(3)
sp.setup(output=None)
traced()
results = sp.finalize(verbose=False, return_results=True)
print(json.dumps({name: results[name].num_calls for name in results.region_names}))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "app.py").write_text(SCRIPT)
    return tmp_path


def run(python: str, directory: Path, *words: str) -> str:
    done = subprocess.run([python, *words], cwd=directory, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--recursive"], ["--recursive", "--include", "helper*"], ["--recursive", "--include", "helper.A*", "--exclude", "*.s"],
        ["--recursive", "--exclude", "helper*"], ["--recursive", "--entrypoint", "main"], ["--recursive", "--include", "json*"],
        ["--all", "--include", "json.dumps"], ["--no-recursive"], ["--include", "helper*"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_command_line_traces_the_same_functions(program: Path, options: list[str]) -> None:
    assert REFERENCE
    found = []
    for number, python in enumerate((REFERENCE, sys.executable)):
        output = f"{number}.h5"
        run(python, program, "-m", "scope_profiler", "run", "-q", "-o", output, *options, "app.py")
        results = sp.load(program / output)
        found.append({name: results[name].num_calls for name in results.region_names})
    assert found[0] == found[1]


def test_a_decorator_traces_the_same_functions(program: Path) -> None:
    assert REFERENCE
    (program / "decorated.py").write_text(DECORATED)
    theirs, ours = (json.loads(run(python, program, "decorated.py")) for python in (REFERENCE, sys.executable))
    assert {name for name in theirs if name.startswith("json.")} and {name for name in ours if name.startswith("json.")}
    for found in (theirs, ours):  # what json calls inside is another thing in other versions of Python
        for name in [name for name in found if name.startswith("json.")]:
            del found[name]
    assert theirs == ours
