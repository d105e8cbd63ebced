"""Native code of a Python process records into Python's run, on the lane that calls it: one tree a lane, call by call."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pybind11
import pytest

from native_code import sorted_trees


@pytest.fixture(scope="module")
def modules(native_library, tmp_path_factory):
    """A directory with the native code: a shared library, a pybind11 module with a copy of its own, an extension module, a Cython
    and an f2py module."""
    directory = tmp_path_factory.mktemp("native")
    native_library.compile("kernel.c", directory / "libkernel.so", "-shared", "-fPIC", "-fopenmp")
    native_library.module(
        "module_cpp.cpp",
        directory,
        f"-isystem{pybind11.get_include()}",
        "-fvisibility=hidden",
        std="c++17",
        static=True,
    )
    native_library.module("module_c.c", directory, "-Wl,--exclude-libs,ALL", "-Wno-pedantic", std="c11", static=True)
    native_library.cython_module("module_cython.pyx", directory)
    native_library.f2py_module("module_f2py.f90", directory)
    return directory


def run(python, modules, body, *arguments):
    """Run a program whose directory of modules is importable; what it prints last is JSON."""
    source = f"import sys; sys.path[:0] = [{str(modules)!r}, {str(Path(__file__).parent)!r}]\n{body}"
    return json.loads(python(source, *arguments).stdout.splitlines()[-1])


PREPARE = """
import asyncio, ctypes, json, threading
import scope_profiler as sp
from native_code import trees
import sys
kernel = ctypes.CDLL(sys.path[0] + "/libkernel.so")

def told(results):
    names = {thread.index: thread.name for thread in results.threads[0]}
    print(json.dumps([[names.get(thread, ""), task, nodes] for (thread, task), nodes in trees(results).items()]))
"""

MIXED = """
import cffi, module_c, module_cpp, module_cython, module_f2py
ffi = cffi.FFI()
ffi.cdef("void kernel_run(int);")
through_cffi = ffi.dlopen(sys.path[0] + "/libkernel.so")

def inside():
    with sp.region("py.inside"):
        kernel.kernel_run(1)

async def task(steps):
    with sp.region("py.task"):
        kernel.kernel_run(steps)
        await asyncio.sleep(0)
        module_cpp.call_without_gil(1)
        await asyncio.sleep(0.001)
        kernel.kernel_run(steps)
        module_cython.work(steps)
        module_f2py.work(steps)

async def tasks():
    await asyncio.gather(task(1), task(2))

def thread():
    with sp.region("py.thread"):
        kernel.kernel_run(3)
        module_c.around(inside)
        module_cython.work(1, inside)
        module_f2py.work(2)

with sp.session(output=None, verbose=False, return_results=True, track_async=True) as run:
    with sp.region("py.main"):
        kernel.kernel_run(2)
        through_cffi.kernel_run(1)
        module_cpp.compute(2)
        try:
            module_cpp.fail()
        except RuntimeError:
            pass
        module_c.around(inside)
        module_cython.work(2, inside)
        module_f2py.work(1)
        kernel.kernel_openmp(3)
    threads = [threading.Thread(target=thread, name=f"python-{i}") for i in range(2)]
    for one in threads: one.start()
    for one in threads: one.join()
    kernel.kernel_threads(3)
    module_cpp.on_thread()
    asyncio.run(tasks())
told(run.results)
"""


def kernel(steps):
    return ["c.kernel", ["c.step"] * steps]


def cython(steps, *inside):
    return ["cython.work", [*["cython.step"] * steps, *inside]]


def fortran(steps):
    return ["f2py.work", ["f2py.step"] * steps]


def test_every_kind_of_native_code_is_on_the_lane_that_calls_it(python, modules):
    lanes = run(python, modules, PREPARE + MIXED)
    inside = ["py.inside", [kernel(1)]]
    around = ["ext.around", [inside]]
    part = ["omp.part", [kernel(1)]]
    main = [kernel(2), kernel(1), ["cpp.compute", ["cpp.inner"] * 2], "cpp.fail", around, cython(2, inside), fortran(1), part]
    by_name = {name: nodes for name, task, nodes in lanes if task < 0}
    assert by_name["MainThread"] == [["py.main", main]]
    assert by_name["python-0"] == by_name["python-1"] == [["py.thread", [kernel(3), around, cython(1, inside), fortran(2)]]]
    assert [by_name[f"native-{i}"] for i in range(3)] == [[kernel(2)]] * 3
    tasks = sorted_trees(nodes for _, task, nodes in lanes if task >= 0)
    compute = ["cpp.compute", ["cpp.inner"]]
    assert tasks == sorted_trees([[["py.task", [kernel(n), compute, kernel(n), cython(n), fortran(n)]]] for n in (1, 2)])
    # What is left are the threads of OpenMP and of std::thread, which only the system can name.
    rest = [nodes for name, task, nodes in lanes if task < 0 and not name.startswith(("Main", "python-", "native-"))]
    assert sorted_trees(rest) == sorted_trees([[part], [part], [compute]])


@pytest.mark.parametrize("native_first", [False, True])
def test_either_may_be_loaded_first(python, modules, native_first):
    load = 'import ctypes, sys\nctypes.CDLL(sys.path[0] + "/libkernel.so").kernel_run(1)\n' if native_first else ""
    body = """
with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
    with sp.region("py"):
        kernel.kernel_run(1)
told(run.results)
"""
    assert run(python, modules, load + PREPARE + body) == [["MainThread", -1, [["py", [kernel(1)]]]]]


def test_native_regions_rest_between_sessions_and_record_in_the_next(python, modules):
    body = """
said = []
for name in "first", "second":
    kernel.kernel_run(5)
    before = kernel.kernel_active()
    with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        with sp.region(name):
            kernel.kernel_run(1)
    said.append([before, kernel.kernel_active(), list(trees(run.results).values())])
print(json.dumps(said))
"""
    said = run(python, modules, PREPARE + body)
    assert said == [[0, 0, [[[name, [kernel(1)]]]]] for name in ("first", "second")]


def test_a_paused_run_records_no_native_code(python, modules):
    body = """
sp.setup(output=None, track_threads=True)
kernel.kernel_run(1)
sp.ProfileManager.pause()
paused = kernel.kernel_active()
kernel.kernel_run(7)
sp.ProfileManager.resume()
kernel.kernel_run(2)
results = sp.finalize(return_results=True, verbose=False)
print(json.dumps([paused, list(trees(results).values())]))
"""
    assert run(python, modules, PREPARE + body) == [0, [[kernel(1), kernel(2)]]]


def test_a_region_begun_before_a_task_waits_ends_on_its_own_lane(python, modules):
    body = """
async def task(name):
    kernel.kernel_begin(b"held")
    await asyncio.sleep(0.001)
    with sp.region(name):
        await asyncio.sleep(0)
    kernel.kernel_end(b"held")

async def main():
    await asyncio.gather(task("a"), task("b"))

with sp.session(output=None, verbose=False, return_results=True, track_async=True) as run:
    asyncio.run(main())
assert run.results["held"][0].await_times_ns.min() >= 1_000_000
told(run.results)
"""
    assert sorted_trees(nodes for *_, nodes in run(python, modules, PREPARE + body)) == [
        [["held", ["a"]]],
        [["held", ["b"]]],
    ]


def test_other_managers_do_not_record_native_code(python, modules):
    body = """
manager = sp.ProfileManager()
with manager.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
    with manager.region("py"):
        kernel.kernel_run(1)
told(run.results)
"""
    assert run(python, modules, PREPARE + body) == [["MainThread", -1, ["py"]]]


def test_ends_without_a_call_are_told(python, modules):
    body = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        kernel.kernel_end(b"never")
print(json.dumps([str(one.message) for one in caught]))
"""
    [message] = run(python, modules, PREPARE + body)
    assert "1" in message


def test_threads_that_python_never_sees_are_named_and_timed(python, modules):
    body = """
with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
    kernel.kernel_threads(4)
rows = [one for one in run.results.threads[0] if one.name.startswith("native-")]
print(json.dumps([[one.name, one.end_time is not None, one.cpu_time] for one in rows]))
"""
    rows = run(python, modules, PREPARE + body)
    assert sorted(name for name, *_ in rows) == [f"native-{i}" for i in range(4)]
    assert all(ended and cpu >= 0 for _, ended, cpu in rows)


def test_metadata_of_native_code_is_that_of_the_run(python, modules):
    body = """
said = []
for value in b"fine", None:
    with sp.session(output=None, verbose=False, return_results=True) as run:
        if value: assert kernel.kernel_tell(b"mesh", value) == 0
    said.append(run.results.metadata.get("mesh"))
print(json.dumps(said))
"""
    assert run(python, modules, PREPARE + body) == ["fine", None]


def test_a_forked_child_leaves_the_run_to_its_parent(python, modules):
    body = """
import os
with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
    kernel.kernel_run(1)
    child = os.fork()
    if child == 0:
        kernel.kernel_run(3)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
told(run.results)
"""
    assert run(python, modules, PREPARE + body) == [["MainThread", -1, [kernel(1)]]]


def test_the_capsule_is_the_host():
    from scope_profiler import _core

    capsule = _core._C_API
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    version = ctypes.cast(address(capsule, b"scope_profiler._core._C_API"), ctypes.POINTER(ctypes.c_uint32))
    assert version[0] == 1
    assert version[2] == 2
