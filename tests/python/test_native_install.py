"""What `meson install` gives programs in C, C++ and Fortran, and Python's native code: the installed examples, built as they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scope_profiler as sp
from native_code import BUILD
from scope_profiler.native_trace import load_traces

pytestmark = [
    pytest.mark.skipif(not BUILD, reason="SCOPE_PROFILER_C_BUILD names no build of the C library"),
    pytest.mark.uninstrumented,
    pytest.mark.slow,
]


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of an installation, moved from where the build thinks it is."""
    staging = tmp_path_factory.mktemp("staging")
    run("meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", staging, cwd=staging)
    (header,) = staging.rglob("include/scope_profiler.h")
    return header.parents[1]


def find(prefix: Path, name: str) -> Path:
    (path,) = prefix.rglob(name)
    return path


@pytest.fixture(scope="module", params=["pkg-config", "cmake"])
def built(prefix: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The installed examples, built in a directory of their own."""
    directory = tmp_path_factory.mktemp("examples")
    shutil.copytree(find(prefix, "CMakeLists.txt").parent, directory, dirs_exist_ok=True)
    if request.param == "cmake":
        run("cmake", "-B", "out", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=directory)
        run("cmake", "--build", "out", cwd=directory)
        return directory / "out"
    # The .pc file has the prefix that the build was configured with; a user's is where it was installed.
    text = find(prefix, "scope_profiler.pc").read_text().replace("prefix=/usr/local", f"prefix={prefix}")
    (directory / "scope_profiler.pc").write_text(text)
    run("make", cwd=directory, PKG_CONFIG_PATH=str(directory))
    return directory


def depths(results: sp.ProfilingResults, lane: str) -> list[tuple[str, int]]:
    """The calls of a lane, named as people see it, in order, with their depth."""
    return [(call["name"], call["depth"]) for call in results.call_stack() if results.lane_label(call["lane"]) == lane]


def test_the_c_example_has_a_lane_for_each_thread(built: Path, tmp_path: Path) -> None:
    assert run(built / "solver_c", cwd=tmp_path) == "solve: 3 calls\n"
    results = sp.load(tmp_path / "solver_rank00000.h5")
    assert {thread.name for thread in results.threads[0]} >= {"helper"} and len(results.threads[0]) == 2
    assert depths(results, "helper") == [("work", 0)] * 5
    (main,) = (thread.name for thread in results.threads[0] if thread.name != "helper")
    calls = depths(results, main)
    assert calls[:6] == [("solve", 0), ("work", 1)] * 3
    # fibonacci(5) calls itself 14 times, down to five levels
    assert len(calls) == 6 + 15 and max(depth for _, depth in calls[6:]) == 4
    assert Path(results["solve"].source_file or "").name == "solver.c"


def test_the_cpp_example_ends_regions_when_an_exception_passes(built: Path, tmp_path: Path) -> None:
    assert run(built / "solver_cpp", cwd=tmp_path) == "failed: 1\n"
    results = sp.load(tmp_path / "solver_cpp_rank00000.h5")
    assert [call["depth"] for call in results.call_stack()] == [0, 1] * 4
    assert results["step"].num_calls == 4


def test_the_fortran_example_has_the_threads_of_openmp_as_lanes(built: Path, tmp_path: Path) -> None:
    assert run(built / "solver_f", cwd=tmp_path, OMP_NUM_THREADS="2") == "solve: 6\n"
    results = sp.load(tmp_path / "solver_f_rank00000.h5")
    assert results["assemble"].num_calls == 3 and results["assemble"].source_file == "solver.f90"
    lanes = {}
    for call in results.call_stack():
        lanes.setdefault(call["lane"], []).append((call["name"], call["depth"]))
    assert sorted(lanes.values()) == [[("assemble", 0), ("solve", 1)] * 3, [("solve", 0)] * 3]


def test_kernels_in_python_join_its_run(built: Path, tmp_path: Path) -> None:
    run(sys.executable, built / "mixed/mixed.py" if (built / "mixed").exists() else built.parent / "mixed/mixed.py",
        built / "libkernel.so", "mixed.h5", cwd=tmp_path)  # fmt: skip
    results = sp.load(tmp_path / "mixed.h5")
    assert not list(tmp_path.glob("*_rank*"))
    kernels = [("kernel_sum", 1), ("kernel_norm", 1)]
    for thread in ("worker-0", "worker-1"):
        assert depths(results, thread) == [("in thread", 0), *kernels]
    for task in results.tasks[0]:
        if task.coro_name == "task":
            lane = results.lane_label(task.index)
            assert depths(results, lane) == [("task", 0), ("in task", 1), ("kernel_sum", 2), ("kernel_norm", 2)]
    assert sum(task.coro_name == "task" for task in results.tasks[0]) == 3
    main = [(name, depth) for name, depth in depths(results, "MainThread")]
    assert main == [("scope_profiler.session", 0), ("in main", 1), ("kernel_sum", 2), ("kernel_norm", 2), ("kernel_team", 1), ("part", 2)]
    lanes = {call["lane"] for call in results.call_stack() if call["name"] == "part"}
    assert len(lanes) == 2 and results["part"].num_calls == 2
    assert results["kernel_sum"].num_calls == results["kernel_norm"].num_calls == 6


FORTRAN = """
program p
  use, intrinsic :: iso_fortran_env, only: int64
  use scope_profiler
  implicit none
  integer :: a, b, i, stat
  character(len=80) :: message
  type(sp_region_stats) :: stats

  a = sp_region("too early", stat=stat)
  if (a /= 0 .or. stat /= SP_ERR_INACTIVE) error stop "region before init"
  call sp_begin(1, stat)
  if (stat /= SP_ERR_INACTIVE) error stop "begin before init"
  call sp_end(1)
  call sp_finalize(stat)
  if (stat /= SP_OK) error stop "finalize before init"
  call sp_init("", stat=stat, errmsg=message)
  if (stat /= SP_ERR_INVALID_ARGUMENT .or. index(message, "prefix") == 0) error stop "empty prefix"
  call sp_init("trace", -1, stat)
  if (stat /= SP_ERR_INVALID_ARGUMENT) error stop "negative rank"

  call sp_init("trace", 3, stat, message)
  if (stat /= SP_OK .or. message /= "" .or. .not. sp_is_active()) error stop "init"
  if (sp_output_path() /= "trace_rank00003.spt") error stop "path"
  a = sp_region("outer  ", "p.f90", 12)
  b = sp_region("inn\u00e9r")
  if (a /= 1 .or. b /= 2 .or. sp_region("outer") /= a) error stop "handles"
  call sp_begin(99, stat)
  if (stat /= SP_ERR_INVALID_ARGUMENT) error stop "no such region"
  call sp_end(a, stat, message)
  if (stat /= SP_ERR_UNMATCHED_END .or. message == "") error stop "unmatched"
  do i = 1, 3
    call sp_begin(a, stat)
    call nested(100)
    call sp_end(a, stat)
    if (stat /= SP_OK) error stop "end"
  end do
  call sp_begin_name("by name")
  call sp_end_name("by name")
  if (sp_num_calls(b) /= 300_int64) error stop "calls"
  call sp_get_region_stats(b, stats, stat)
  if (stat /= SP_OK .or. stats%calls /= 300 .or. stats%min_ns > stats%max_ns) error stop "stats"
  call sp_get_region_stats(0, stats, stat)
  if (stat /= SP_ERR_INVALID_ARGUMENT) error stop "stats of nothing"
  if (sp_now_ns() <= 0) error stop "clock"
  call sp_flush(stat)
  if (stat /= SP_OK) error stop "flush"
  call sp_begin(a)
  call sp_reset(stat)
  if (stat /= SP_ERR_OPEN_SCOPES) error stop "reset while open"
  call sp_finalize(stat)
  if (stat /= SP_ERR_OPEN_SCOPES) error stop "open at the end"
  if (sp_is_active()) error stop "still active"
contains
  recursive subroutine nested(depth)
    integer, intent(in) :: depth
    call sp_begin(b)
    if (depth > 1) call nested(depth - 1)
    call sp_end(b)
  end subroutine nested
end program
"""


@pytest.fixture(scope="module")
def fortran(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that compiles a program with the module."""
    directory = tmp_path_factory.mktemp("module")
    source = find(prefix, "scope_profiler.f90")
    run("gfortran", "-Wall", "-Wextra", "-Werror", "-std=f2008", "-pedantic", "-O2", "-c", source, "-o", "module.o", cwd=directory)
    library = find(prefix, "libscope_profiler.so.1").parent
    return ["gfortran", "-fopenmp", f"-I{directory}", "-O2", f"{directory}/module.o", "-L", str(library), f"-Wl,-rpath,{library}", "-lscope_profiler"]


def compile_fortran(command: list[str], source: str, directory: Path) -> Path:
    (directory / "p.f90").write_text(source, encoding="utf-8")
    run(command[0], "p.f90", *command[1:], "-o", "p", cwd=directory)
    return directory / "p"


def test_the_fortran_module_tells_what_happens_and_has_no_limit_of_depth(fortran: list[str], tmp_path: Path) -> None:
    done = subprocess.run([compile_fortran(fortran, FORTRAN, tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    results = load_traces(tmp_path / "trace_rank00003.spt")
    assert results["innér"][3].num_calls == 300 and results["outer"][3].source_file == "p.f90" and results["outer"][3].source_lineno == 12
    stack = results.call_stack(rank=3)
    assert [call["depth"] for call in stack[:303]] == [*range(101)] * 3
    assert results["by name"][3].num_calls == 1


def test_constants_of_the_module_are_those_of_the_header() -> None:
    import re

    root = Path(__file__).resolve().parents[2]
    module = (root / "fortran/scope_profiler.f90").read_text()
    header = (root / "include/scope_profiler.h").read_text()
    ours = {name: int(value) for name, value in re.findall(r"parameter, public :: (SP_\w+) = (\d+)", module)}
    statuses = {name: int(value) for name, value in re.findall(r"X\((SP_\w+), (\d+),", header)}
    assert {name: ours[name] for name, value in statuses.items() if value < 7} == {name: value for name, value in statuses.items() if value < 7}
    assert (ours["SP_ERR_INVALID_ARGUMENT"], ours["SP_ERR_DEPTH"]) == (7, 8)
    for name in ("SP_OUTPUT_HDF5", "SP_OUTPUT_TRACE"):
        assert re.search(rf"{name} = {ours[name]}\b", header)
    assert re.search(rf"#define SP_FORMAT_VERSION {ours['SP_FORMAT_VERSION']}\b", header)
    bound = set(re.findall(r'bind\(c, name="(sp_\w+)"\)', module))
    assert bound <= set(re.findall(r"^SP_API .*?\b(sp_\w+)\(", header, re.MULTILINE))


def test_the_blocks_of_the_page_about_native_programs_run(prefix: Path, tmp_path: Path) -> None:
    import re

    page = (Path(__file__).resolve().parents[2] / "docs" / "native.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    pc = find(prefix, "scope_profiler.pc").read_text().replace("prefix=/usr/local", f"prefix={prefix}")
    (tmp_path / "scope_profiler.pc").write_text(pc)
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    # Others have those of programs that are not linked, of MPI (test_native_mpi.py) and of wheels (test_packaging.py).
    commands = [block for block in blocks if "gfortran" in block or "import-native" in block or "program_rank" in block]
    assert len(commands) == 3
    environment = {
        "PKG_CONFIG_PATH": str(tmp_path),
        "LD_LIBRARY_PATH": str(find(prefix, "libscope_profiler.so.1").parent),
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
    }
    shown = run("sh", "-ec", "".join(commands), cwd=tmp_path, **environment)
    assert "relax (100x)" in shown and "Regression check: PASS" in shown
    assert sp.load(tmp_path / "program_rank00000.h5")["part"].num_calls >= 1
    assert load_traces(tmp_path / "heat_rank00000.spt")["relax"].num_calls == 100
    assert (tmp_path / "exports" / "profile.speedscope.json").exists()
