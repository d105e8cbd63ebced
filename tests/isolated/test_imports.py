"""What an import costs a program: a process each, because imports cannot be undone."""

import subprocess
import sys

import pytest

HEAVY = ["numpy", "h5py", "pandas", "matplotlib", "asyncio", "greenlet", "mpi4py", "dataclasses", "inspect", "json", "re", "typing"]


def loaded_by(program):
    """Which heavy modules a program brings in that the interpreter alone does not."""
    probe = f"import sys; before = set(sys.modules)\n{program}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.splitlines()[-1].split())
    return [name for name in HEAVY if name in found]


def test_the_package_alone_imports_nothing_heavy():
    assert loaded_by("import scope_profiler") == []


def test_marking_regions_without_recording_imports_no_arrays_and_no_event_loop():
    program = (
        "import scope_profiler as sp\n"
        "@sp.profile\n"
        "def f(): pass\n"
        "f()\n"
        "with sp.region('x'): pass\n"
    )
    assert set(loaded_by(program)) & {"numpy", "h5py", "pandas", "matplotlib", "asyncio", "greenlet", "mpi4py"} == set()


def test_recording_to_a_file_imports_no_arrays_and_no_event_loop(tmp_path):
    program = (
        "import scope_profiler as sp\n"
        f"with sp.session(output={str(tmp_path / 'p.h5')!r}, track_threads=True, verbose=False):\n"
        "    with sp.region('x'): pass\n"
    )
    assert set(loaded_by(program)) & {"numpy", "h5py", "pandas", "matplotlib", "asyncio", "greenlet", "mpi4py"} == set()


def test_names_that_load_on_demand_are_listed():
    program = "import scope_profiler as sp; print({'session', 'region', 'load', 'ProfileManager', 'NestingError'} <= set(dir(sp)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_an_unknown_name_is_an_attribute_error():
    program = "import scope_profiler as sp; sp.nothing_of_this_name"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "AttributeError: module 'scope_profiler' has no attribute 'nothing_of_this_name'"


def test_a_subinterpreter_gets_a_clear_import_error():
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    program = (
        f"import {name} as interpreters\n"
        "inner = interpreters.create()\n"
        "source = '''\n"
        "try:\n"
        "    import scope_profiler._core\n"
        "except ImportError as error:\n"
        "    print('refused:', 'subinterpreter' in str(error), flush=True)\n"
        "'''\n"
        f"{'interpreters.exec' if sys.version_info >= (3, 13) else 'interpreters.run_string'}(inner, source)\n"
        "interpreters.destroy(inner)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused:")
