"""The root of the package: complete, lazy, quick; and typed."""

import os
import subprocess
import sys

import pytest

import scope_profiler as sp

NAMES = """
setup session finalize reset run setup_from_env profile_script profile_command is_active is_configured last_results
region profile define_region region_factory instrument metadata register_opt_in_tag registered_regions recorded_regions
ProfileManager ProfilingRun RegionHandle RegionFactory ProfilingOptions HDF5Options GPUOptions MemrayOptions ProfilingResults
MPIRegion Region CallArrays CorruptProfileError EventDataUnavailableError NestingError build_call_arrays build_call_stack
call_stack_children call_stack_roots load read_h5 read_h5_summary read_profile write_profile sniff_profile_format
merge_results
""".split()


def test_every_name_is_there_and_listed():
    assert set(NAMES) <= set(sp.__all__)
    for name in sp.__all__:
        assert getattr(sp, name) is not None
    assert {*sp.__all__, "__version__"} <= set(dir(sp))
    assert sp.__version__.split(".")[0].isdecimal()
    with pytest.raises(AttributeError, match="no_such_name"):
        sp.no_such_name  # noqa: B018


def test_functions_at_the_root_are_the_managers():
    for name in NAMES[:20]:
        assert getattr(sp, name) == getattr(sp.ProfileManager, name)


def test_submodules_do_not_replace_names_of_the_root(python):
    process = python(
        """
import pkgutil, importlib, scope_profiler as sp
for module in pkgutil.iter_modules(sp.__path__):
    if not module.name.startswith("_"): importlib.import_module("scope_profiler." + module.name)
print(all(type(getattr(sp, name)).__name__ != "module" for name in sp.__all__))
print(sp.call_stack.__name__, sp.results.__name__)
"""
    )
    assert process.stdout.split() == ["True", "scope_profiler.call_stack", "scope_profiler.results"]


def test_import_star(python):
    assert python("from scope_profiler import *; print(session.__name__, ProfilingOptions)").stdout


def test_importing_and_using_the_package_imports_nothing_heavy(python):
    heavy = "{'numpy', 'h5py', 'pandas', 'matplotlib', 'asyncio', 'mpi4py', 'dataclasses', 'inspect', 'typing', 'json', 're'}"
    process = python(
        f"""
import sys
before = set(sys.modules)
import scope_profiler as sp
print(sorted(m for m in set(sys.modules) - before if m.startswith("scope_profiler.") or m in {heavy}))
before = set(sys.modules)
sp.setup; sp.region("x"); sp.profile(lambda: 0)
print(sorted((set(sys.modules) - before) & {heavy}))
"""
    )
    assert process.stdout.splitlines() == ["[]", "[]"]


def test_a_run_with_a_file_needs_no_numpy(python):
    process = python(
        """
import sys, scope_profiler as sp
with sp.session(output="p.h5", verbose=False, track_threads=True):
    with sp.region("a"): pass
print("numpy" in sys.modules)
"""
    )
    assert process.stdout == "False\n"


@pytest.mark.slow
def test_import_takes_less_than_5_ms():
    # In a process each, since an import happens once; the best of several, since others use the machine too.
    code = "import time; t = time.perf_counter(); import scope_profiler; print(time.perf_counter() - t)"
    seconds = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) for _ in range(7)]
    assert min(seconds) < 0.005 * (1 if "editable" not in str(sp.__spec__.loader) else 10)


USER_PROGRAM = '''
from pathlib import Path
from scope_profiler import (
    HDF5Options, ProfileManager, ProfilingOptions, ProfilingResults, define_region, finalize, instrument, last_results, load,
    metadata, profile, region, region_factory, run, session, setup,
)

HANDLE = define_region("handle", tags=["t"])
STEP = region_factory("step")

@profile
def plain(a: int, b: str = "") -> float:
    return float(a)

@profile("named", tags=("x",), record_outcome=True, metadata={"a": 1})
async def named(a: int) -> str:
    return str(a)

@session(output=None, verbose=False)
def whole(n: int) -> list[int]:
    return [n]

class Worker:
    @profile
    def work(self, n: int) -> int:
        return n

def use() -> None:
    options = ProfilingOptions(label="x", hdf5=HDF5Options(compression="gzip"))
    with session(options, output=Path("a.h5"), track_threads=True, return_results=True) as running:
        with region("a"), HANDLE, STEP(index=1), metadata(k=1) as values:
            values["more"] = 2
        total: float = plain(3, b="x") + Worker().work(4)
    results: ProfilingResults | None = running.results
    if results is not None:
        seconds: float = results["a"].total_duration + total
        print(seconds, results.region_names, whole(3)[0])
    manager = ProfileManager()
    active = manager.setup(output=None, replace=True, buffer_limit=10)
    with manager.region("b", tags=["t"]) as inner, manager.sample_every(3) as step, step(4) as selected:
        print(inner.num_calls, selected, active.file_path)
    again = active.finalize(verbose=False)
    print(again, finalize(), load("a.h5").label, last_results(), run(max, 1, 2), setup().is_active)
'''


WEB_PROGRAM = """
from fastapi import FastAPI
from starlette.applications import Starlette
from scope_profiler.middleware import ASGIMiddleware, WSGIMiddleware, request_id

app = FastAPI()
app.add_middleware(ASGIMiddleware, request_id="x-request-id", metadata="errors")
other = Starlette()
other.add_middleware(ASGIMiddleware)
outer = ASGIMiddleware(ASGIMiddleware(other), name_of=lambda scope: str(scope["path"]), output="requests.h5", sample_hz=50)
ident: str | None = request_id()
"""


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_a_web_program_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("fastapi")
    assert check_types(tmp_path, WEB_PROGRAM) == ""
    assert check_types(tmp_path, WEB_PROGRAM + "ASGIMiddleware(other, track_asink=True)\n").count("error:") == 1


def check_types(directory, source):
    """What mypy finds in a program; nothing where it finds no fault."""
    (directory / "user.py").write_text(source)
    # The package's own sources are checked by the lint command, not here. An editable install is one that mypy must be shown.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(directory), "user.py"]
    path = os.path.dirname(os.path.dirname(sp.__file__))
    environment = os.environ if path.endswith("site-packages") else {**os.environ, "MYPYPATH": path}
    process = subprocess.run(command, cwd=directory, capture_output=True, text=True, env=environment)
    return process.stdout if process.returncode else ""


@pytest.mark.slow
@pytest.mark.parametrize("bad", [False, True])
def test_a_users_program_passes_mypy_strict(tmp_path, bad):
    pytest.importorskip("mypy")
    source = USER_PROGRAM
    if bad:
        source += "\nplain('no')\nsetup(lable='x')\nWorker().work('no')\nregion(3)\n"
    found = check_types(tmp_path, source)
    assert found.count("error:") == 4 if bad else found == "", found
