"""Traces that programs write with release 0.7.5's C source and Fortran module, compiled here, read by both packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from scope_profiler.native_samples import line_profile, read_samples
from scope_profiler.native_trace import find_traces, load_traces, read_trace, write_results

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = [
    pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON is not set"),
    pytest.mark.uninstrumented,
    pytest.mark.slow,
]

C_PROGRAM = """
#include "scope_profiler.h"
#include <stdlib.h>
static int fib, leaf;
static int run(int n) { sp_begin(fib); int r = n < 2 ? n : run(n - 1) + run(n - 2); sp_end(fib); return r; }
int main(int argc, char **argv)
{
    if (sp_init(argv[1], atoi(argv[2])) != 0) return 1;
    fib = sp_region_at("fib", "fib.c", 42);
    leaf = sp_region("leaf \\xc3\\xa9");
    sp_region("never called");
    run(8);
    for (int i = 0; i < 1000; i++) { sp_begin(leaf); sp_end(leaf); }
    return sp_finalize();
}
"""

FORTRAN_PROGRAM = """
program p
  use scope_profiler
  implicit none
  integer :: a, b, i
  call sp_init("fortran", 2)
  a = sp_region("assemble", "p.f90", 7)
  b = sp_region("solve")
  do i = 1, 20
    call sp_begin(a)
    call sp_begin(b)
    call sp_begin(b)
    call sp_end(b)
    call sp_end(b)
    call sp_end(a)
  end do
  call sp_finalize()
end program
"""

SAMPLED_PROGRAM = """
#include "scope_profiler.h"
int main(void)
{
    sp_init("sampled", 0);
    int busy = sp_region("busy");
    sp_start_sampling(1000);
    sp_begin(busy);
    for (volatile long i = 0; i < 200000000; i++) {}
    sp_end(busy);
    return sp_finalize();
}
"""

TELL = """
import json, sys
from scope_profiler.native_trace import read_trace
def tell(path):
    rank, regions = read_trace(path)
    return rank, {name: [starts.tolist() for starts in pair] + [pair.source_file, pair.source_lineno] for name, pair in regions.items()}
print(json.dumps([tell(path) for path in sys.argv[1:]]))
"""


def reference(source: str, *arguments: str, cwd: Path | None = None) -> Any:
    done = subprocess.run([str(REFERENCE), "-c", source, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return reference(
        "import json; from scope_profiler.native_trace import *; "
        "print(json.dumps({'c': str(c_source_path()), 'include': str(c_include_dir()), 'fortran': str(fortran_source_path())}))"
    )


def build(directory: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def compile_c(directory: Path, sources: dict[str, str], program: str, *options: str) -> str:
    (directory / "p.c").write_text(program)
    build(directory, "cc", "-g", f"-I{sources['include']}", "p.c", sources["c"], "-o", "p", *options)
    return str(directory / "p")


@pytest.fixture
def c_trace(tmp_path: Path, sources: dict[str, str]) -> Path:
    program = compile_c(tmp_path, sources, C_PROGRAM)
    for rank in ("0", "3"):
        subprocess.run([program, "run", rank], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def told(path: Path) -> Any:
    rank, regions = read_trace(path)
    return [
        rank,
        {name: [column.tolist() for column in pair] + [pair.source_file, pair.source_lineno] for name, pair in regions.items()},
    ]


def test_a_trace_of_the_c_source_reads_as_the_release_reads_it(c_trace: Path) -> None:
    paths = find_traces(c_trace)
    assert [path.name for path in paths] == ["run_rank00000.spt", "run_rank00003.spt"]
    assert [told(path) for path in paths] == reference(TELL, *map(str, paths))
    results = load_traces(c_trace)
    assert results.num_ranks == 4 and results.region_names == ["fib", "leaf é"]
    # fib(8) calls itself 67 times; leaf is called after it
    assert [results["fib"][0].num_calls, results["leaf é"][3].num_calls] == [67, 1000]
    depths = [call["depth"] for call in results.call_stack() if call["name"] == "fib"]
    assert max(depths) == 7 and depths.count(0) == 1


def test_a_trace_of_the_fortran_module_reads_as_the_release_reads_it(tmp_path: Path, sources: dict[str, str]) -> None:
    if shutil.which("gfortran") is None:
        pytest.skip("needs gfortran")
    (tmp_path / "p.f90").write_text(FORTRAN_PROGRAM)
    build(tmp_path, "gfortran", "-cpp", sources["fortran"], "p.f90", "-o", "p")
    subprocess.run(["./p"], cwd=tmp_path, check=True, timeout=60)
    path = tmp_path / "fortran_rank00002.spt"
    assert told(path) == reference(TELL, str(path))[0]
    stack = load_traces(path).call_stack(rank=2)
    assert [call["name"] for call in stack[:3]] == ["assemble", "solve", "solve"]
    assert [call["depth"] for call in stack] == [0, 1, 2] * 20


def test_an_hdf5_file_of_the_c_source_is_native_output(tmp_path: Path, sources: dict[str, str]) -> None:
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "hdf5-serial"], capture_output=True, text=True, timeout=60)
    if flags.returncode != 0:
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "hdf5"], capture_output=True, text=True, timeout=60)
    program = compile_c(tmp_path, sources, C_PROGRAM, "-DSP_USE_HDF5", *flags.stdout.split())
    subprocess.run([program, "run", "5"], cwd=tmp_path, check=True, timeout=60)
    assert [path.name for path in find_traces(tmp_path)] == ["run_rank00005.h5"]
    results = load_traces(tmp_path)
    assert results["fib"][5].num_calls == 67 and results["fib"][5].source_file == "fib.c"
    assert max(call["depth"] for call in results.call_stack(rank=5)) == 7
    assert results.metadata["source"] == "native" and "mpi_rank" not in results.metadata


def test_the_release_reads_a_profile_made_of_traces(c_trace: Path) -> None:
    write_results(load_traces(c_trace, "both"), c_trace / "both.h5")
    source = (
        "import json, sys, scope_profiler as sp; r = sp.load(sys.argv[1]); "
        "print(json.dumps([r.label, r['fib'][3].start_times_ns.tolist(), [c['depth'] for c in r.call_stack(rank=3)]]))"
    )
    ours = sp.load(c_trace / "both.h5")
    expected = ["both", ours["fib"][3].start_times_ns.tolist(), [call["depth"] for call in ours.call_stack(rank=3)]]
    assert reference(source, str(c_trace / "both.h5")) == expected


def test_samples_of_the_c_source_fall_on_the_line_that_was_busy(tmp_path: Path, sources: dict[str, str]) -> None:
    subprocess.run([compile_c(tmp_path, sources, SAMPLED_PROGRAM)], cwd=tmp_path, check=True, timeout=60)
    samples = read_samples(tmp_path / "sampled_rank00000.sps")
    assert samples.regions[0] == "busy" and len(samples.samples) > 0
    best = line_profile(samples)["busy"][0]
    assert (best.function, Path(best.file).name, best.line) == ("main", "p.c", 9)


def test_the_release_reads_what_our_fortran_module_writes(tmp_path: Path) -> None:
    """The release's own kind of program, built with our module and library, in both formats."""
    build_directory = os.environ.get("SCOPE_PROFILER_C_BUILD")
    if not build_directory:
        pytest.skip("SCOPE_PROFILER_C_BUILD names no build of the C library")
    library = Path(build_directory) / "src"
    module = Path(__file__).resolve().parents[2] / "fortran" / "scope_profiler.f90"
    hdf5 = FORTRAN_PROGRAM.replace('"fortran", 2)', '"fortran", 2)\n  call sp_set_output_format(SP_OUTPUT_HDF5)')
    for name, program in (("trace.f90", FORTRAN_PROGRAM), ("hdf5.f90", hdf5)):
        (tmp_path / name).write_text(program)
        build(tmp_path, "gfortran", str(module), name, "-o", "p", f"-L{library}", f"-Wl,-rpath,{library}", "-lscope_profiler")
        subprocess.run(["./p"], cwd=tmp_path, check=True, timeout=60)
    path = tmp_path / "fortran_rank00002.spt"
    (rank, regions), = reference(TELL, str(path))
    assert [rank, regions] == told(path) and rank == 2
    assert [len(regions["assemble"][0]), len(regions["solve"][0]), regions["assemble"][2:]] == [20, 40, ["p.f90", 7]]
    source = (
        "import json, sys, scope_profiler as sp; r = sp.load(sys.argv[1]); "
        "print(json.dumps([[c['name'], c['depth']] for c in r.call_stack(rank=2)]))"
    )
    assert reference(source, str(tmp_path / "fortran_rank00002.h5")) == [["assemble", 0], ["solve", 1], ["solve", 2]] * 20
