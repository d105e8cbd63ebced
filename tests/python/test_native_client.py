"""Programs that are not linked with the library but open it: scope_profiler.c compiled in, and SP_HEADER_ONLY in C++."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import scope_profiler as sp
from native_code import SOURCES, WARNINGS, trees
from scope_profiler.native_trace import c_source_path, read_trace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(native_library, tmp_path_factory):
    """The headers, the source and the library as a wheel has them, away from where the system's loader looks."""
    directory = tmp_path_factory.mktemp("package")
    shutil.copytree(native_library.prefix / "include", directory / "include")
    source = native_library.prefix / "share/scope_profiler/c/scope_profiler.c"
    shutil.copy(source, directory / "include")
    (directory / "lib").mkdir()
    shutil.copy(native_library.directory / "libscope_profiler.so.1", directory / "lib")
    return directory


def run(*command, cwd, fails=False, **environment):
    words = [str(word) for word in command]
    settings = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, env={**settings, **environment})
    assert fails or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


PROGRAM = r"""
#include "scope_profiler.h"
#include <stdio.h>

static int fib(int region, int n)
{
    int value;
    sp_begin(region);
    value = n < 2 ? n : fib(region, n - 1) + fib(region, n - 2);
    sp_end(region);
    return value;
}

int main(void)
{
    const int first = sp_init("own", 3), region = sp_region("fib");
    sp_scope scope;
    printf("%d %d %s\n", first, sp_start_sampling(100), sp_error_string(7));
    scope = sp_scope_begin(sp_region("outer"));
    (void)fib(region, 6);
    (void)sp_scope_end(&scope);
    { SP_SCOPE("block"); }
    printf("%d %s\n", (int)sp_num_calls(region), sp_output_path());
    return sp_finalize();
}
"""


def build_as_before(package, directory, *flags):
    """The lines that programs were built with before release 1.0."""
    source = directory / "program.c"
    source.write_text(PROGRAM)
    run("cc", "-O2", *flags, "-c", package / "include/scope_profiler.c", cwd=directory)
    run("cc", "-O2", f"-I{package / 'include'}", source, "scope_profiler.o", "-lm", "-o", "program", cwd=directory)
    return directory / "program"


@pytest.mark.parametrize(
    ("flags", "sampling", "written"),
    [
        ([], "0", "own_rank00003.spt"),
        (["-DSP_USE_HDF5", "-I/usr/include/hdf5/serial"], "0", "own_rank00003.h5"),
        (["-DSP_NO_SAMPLING"], "7", "own_rank00003.spt"),
        (["-DSP_USE_LIKWID"], "0", "own_rank00003.spt"),
    ],
)
def test_build_lines_of_earlier_releases_make_programs_that_record(package, tmp_path, flags, sampling, written):
    program = build_as_before(package, tmp_path, *flags)
    done = run(program, cwd=tmp_path)
    assert done.stdout == f"0 {sampling} not supported\n25 {written}\n" and done.stderr == ""
    path = tmp_path / written
    if path.suffix == ".spt":
        rank, regions = read_trace(path)
        assert (rank, {name: len(one[0]) for name, one in regions.items()}) == (3, {"fib": 25, "outer": 1, "block": 1})
    else:
        (lane,) = trees(sp.load(path), rank=3).values()
        assert [node[0] if isinstance(node, list | tuple) else node for node in lane] == ["outer", "block"]
        assert len(lane[0][1]) == 1  # the outermost call of fib


def test_the_source_without_profiling_compiles_to_nothing(package, tmp_path):
    run("cc", "-DSP_DISABLE_PROFILING", "-c", package / "include/scope_profiler.c", cwd=tmp_path)
    assert run("nm", "scope_profiler.o", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("standard", ["c99", "c17", "gnu11"])
def test_the_source_is_clean_c(package, tmp_path, compiler, standard):
    run(compiler, f"-std={standard}", *WARNINGS, "-c", package / "include/scope_profiler.c", cwd=tmp_path)


def test_the_source_has_every_function_of_the_header_and_shows_none(package, tmp_path):
    run("cc", "-fPIC", "-c", package / "include/scope_profiler.c", cwd=tmp_path)
    run("cc", "-shared", "scope_profiler.o", "-o", "lib.so", cwd=tmp_path)
    defined = {
        line.split()[-1]
        for line in run("nm", "-g", "--defined-only", "scope_profiler.o", cwd=tmp_path).stdout.splitlines()
    }
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/scope_profiler.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    declared = set(re.findall(r"^(?:extern )?SP_API\b[^;(]*?\b(sp_\w+)\s*[(;]", header, flags=re.MULTILINE))
    assert defined == declared - {"sp_host_v1"}
    # A library opened later must not find these in place of its own.
    assert "sp_" not in run("nm", "-D", "--defined-only", "lib.so", cwd=tmp_path).stdout


HEADER_ONLY = r"""
#include "scope_profiler.hpp"
#include <cstdio>
#include <stdexcept>

void other(int);

static void fails()
{
    SP_PROFILE_FUNCTION();
    throw std::runtime_error("x");
}

int main()
{
    const int status = sp_init("own", 0);
    {
        SP_PROFILE_SCOPE("outer");
        other(3);
        try {
            fails();
        } catch (const std::runtime_error &) {
        }
    }
    std::printf("%d %d\n", status, static_cast<int>(sp_num_calls(sp_region("inner"))));
    return sp_finalize();
}
"""

OTHER = r"""
#include "scope_profiler.hpp"

void other(int times);
void other(int times)
{
    const int inner = sp_region("inner");
    for (int i = 0; i < times; i++) sp::Scope scope(inner);
}
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_a_cpp_program_of_headers_alone_records(package, tmp_path, compiler, standard):
    (tmp_path / "main.cpp").write_text(HEADER_ONLY)
    (tmp_path / "other.cpp").write_text(OTHER)
    flags = [f"-std={standard}", "-DSP_HEADER_ONLY", "-DSP_USE_HDF5", *WARNINGS, f"-I{package / 'include'}"]
    run(compiler, *flags, "main.cpp", "other.cpp", "-o", "program", cwd=tmp_path)
    assert run("./program", cwd=tmp_path).stdout == "0 3\n"
    (lane,) = trees(sp.load(tmp_path / "own_rank00000.h5")).values()
    ((name, inside),) = lane
    assert (name, inside[:3], len(inside)) == ("outer", ["inner"] * 3, 4) and "fails" in inside[3]


@pytest.mark.parametrize(
    "macro",
    ["SP_HEADER_ONLY", "SP_HEADER_ONLY -DSP_DISABLE_PROFILING", "SP_USE_HDF5", "SP_NO_SAMPLING", "SP_USE_LIKWID"],
)
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_macros_of_earlier_releases_break_no_build(package, tmp_path, macro, language):
    compiler, standard = ("cc", "c99") if language == "c" else ("c++", "c++17")
    source = SOURCES / f"every_name.{language}"
    flags = [f"-std={standard}", *f"-D{macro}".split(), *WARNINGS, f"-I{package / 'include'}"]
    run(compiler, *flags, "-c", source, "-o", "out.o", cwd=tmp_path)


def test_header_only_is_refused_before_cpp17(package, tmp_path):
    (tmp_path / "other.cpp").write_text(OTHER)
    done = run(
        "g++", "-std=c++14", "-DSP_HEADER_ONLY", f"-I{package / 'include'}", "-c", "other.cpp", cwd=tmp_path, fails=True
    )
    assert done.returncode != 0 and "C++17" in done.stderr


def test_a_program_without_the_library_says_so_once_and_goes_on(package, tmp_path):
    program = build_as_before(package, tmp_path)
    done = run(program, cwd=tmp_path, fails=True, SCOPE_PROFILER_LIBRARY="/nowhere/lib.so")
    assert done.returncode == 0 and done.stdout.splitlines() == ["9 1 not supported", "0 (null)"]
    (line,) = done.stderr.splitlines()
    assert "libscope_profiler.so.1 was not found" in line and not list(tmp_path.glob("own*"))
    other = tmp_path / "moved.so"
    shutil.copy(package / "lib/libscope_profiler.so.1", other)
    assert run(program, cwd=tmp_path, SCOPE_PROFILER_LIBRARY=str(other)).stderr == ""
    assert (tmp_path / "own_rank00003.spt").exists()


MODULE = r"""
#include "scope_profiler.hpp"
extern "C" __attribute__((visibility("default"))) void work(int times);
void work(int times)
{
    SP_PROFILE_SCOPE("native");
    for (int i = 0; i < times; i++) {
        SP_SCOPE("step");
    }
}
"""


@pytest.fixture(scope="module")
def module(package, tmp_path_factory):
    directory = tmp_path_factory.mktemp("module")
    (directory / "module.cpp").write_text(MODULE)
    flags = ["-std=c++17", "-DSP_HEADER_ONLY", "-shared", "-fPIC", f"-I{package / 'include'}"]
    run("c++", *flags, "module.cpp", "-o", "module.so", cwd=directory)
    return directory / "module.so"


PYTHON = """
import ctypes, _ctypes, json, sys
{before}
import scope_profiler as sp
sys.path.insert(0, {tests!r})
from native_code import trees
work = ctypes.CDLL({module!r}).work
with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
    with sp.region("py"):
        work(2)
work(9)
print(json.dumps(list(trees(run.results).values())))
"""


@pytest.mark.parametrize(
    "before",
    ["", "ctypes.CDLL({module!r}).work(1)", "_ctypes.dlclose(ctypes.CDLL({module!r})._handle)"],
    ids=["python first", "module first", "a module that is gone"],
)
def test_a_module_of_headers_alone_joins_the_run_of_python(python, module, before):
    names = {"module": str(module), "tests": str(Path(__file__).parent)}
    source = PYTHON.format(before=before.format(**names), **names)
    assert json.loads(python(source).stdout) == [[["py", [["native", ["step", "step"]]]]]]


def test_the_package_knows_the_source():
    path = c_source_path()
    assert path.name == "scope_profiler.c" and (path.parent / "scope_profiler.h").exists()
