"""The C library as a C program finds it: installed, found by pkg-config, and exporting what its header declares."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "scope_profiler.h"


@pytest.fixture(scope="module")
def installed(native_library):
    """The prefix below which the library was put."""
    return native_library.prefix


def find(prefix, name):
    [path] = prefix.rglob(name)
    return path


def pkg_config(prefix, *arguments):
    path = find(prefix, "scope_profiler.pc").parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(path)}
    command = ["pkg-config", f"--define-variable=prefix={prefix}", *arguments, "scope_profiler"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


def exported(path):
    """Names of the symbols that a shared library defines for others."""
    listing = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in listing.stdout.splitlines()}


def declared():
    """Names of the functions and variables that the header declares."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"^(?:extern )?SP_API\b[^;(]*?\b(sp_\w+)\s*[(;]", text, flags=re.MULTILINE))


PROGRAM = r"""
#include <scope_profiler.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    printf("%s %s %d\n", sp_version(), sp_error_string(SP_ERR_NO_MEMORY), sp_now_ns() > 0);
    return strcmp(sp_version(), SP_VERSION) != 0;
}
"""


def compile_and_run(directory, arguments, environment=None):
    source = directory / "program.c"
    source.write_text(PROGRAM)
    command = ["cc", "-std=c99", "-Wall", "-Werror", "-pedantic", str(source), "-o", str(directory / "program"), *arguments]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [str(directory / "program")], check=True, capture_output=True, text=True, env={**os.environ, **(environment or {})}
    )
    return done.stdout


def test_the_shared_library_exports_exactly_what_the_header_declares(installed):
    assert exported(find(installed, "libscope_profiler.so.1")) == declared()


def test_the_soname_is_the_major_version(installed):
    library = find(installed, "libscope_profiler.so.1")
    listing = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout
    assert "soname: [libscope_profiler.so.1]" in listing


def test_a_program_links_to_the_shared_library_by_pkg_config(installed, tmp_path):
    directory = find(installed, "libscope_profiler.so.1").parent
    flags = pkg_config(installed, "--cflags", "--libs")
    output = compile_and_run(tmp_path, flags, {"LD_LIBRARY_PATH": str(directory)})
    assert output == "1.0.0 out of memory 1\n"


def test_a_program_links_to_the_static_library_by_pkg_config(installed, tmp_path):
    flags = pkg_config(installed, "--cflags", "--libs", "--static")
    archive = find(installed, "libscope_profiler.a")
    flags = [str(archive) if flag == "-lscope_profiler" else flag for flag in flags]
    assert compile_and_run(tmp_path, flags) == "1.0.0 out of memory 1\n"


def test_the_header_compiles_as_cplusplus(tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM)
    command = ["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{HEADER.parent}"]
    subprocess.run([*command, str(source)], check=True)


@pytest.mark.uninstrumented
@pytest.mark.beside
def test_the_extension_exports_only_its_entry_point_and_the_host_of_native_code():
    core = pytest.importorskip("scope_profiler._core")
    assert exported(core.__file__) == {"PyInit__core", "sp_host_v1"}


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_the_library_of_an_mpi_exports_its_header_and_functions_of_mpi(installed, name):
    libraries = list(installed.rglob(f"libscope_profiler_{name}.so.1"))
    if not libraries:
        pytest.skip(f"the build of the C library is without {name}")
    header = (ROOT / "include" / "scope_profiler_mpi.h").read_text(encoding="utf-8")
    names = exported(libraries[0])
    assert {symbol for symbol in names if not symbol.startswith("MPI_")} == set(re.findall(r"^SP_API\b[^;(]*?\b(sp_\w+)\s*\(", header, re.M))
    assert {"MPI_Send", "MPI_Waitall", "MPI_Alltoallv", "MPI_Comm_split", "MPI_Finalize"} <= names
    assert not names & {"MPI_Init", "MPI_Test"}
