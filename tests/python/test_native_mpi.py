"""C and Fortran programs of MPI ranks: one file for all, MPI calls as regions, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

import scope_profiler as sp
from mpi_launch import Launcher, process_of, recovered, wait_for_ends
from native_code import COMMAND, COMMANDS, SOURCES, WARNINGS, Library, trace_times

pytestmark = [pytest.mark.uninstrumented, pytest.mark.beside]
FORTRAN = SOURCES.parents[1] / "fortran"


class Programs:
    """Programs of one MPI, built when they are first asked for."""

    def __init__(self, mpi: Launcher, library: Library, directory: Path) -> None:
        self.mpi = mpi
        self.directory = directory
        name = f"scope_profiler_{mpi.name}"
        if not list(library.directory.glob(f"lib{name}.so")):
            pytest.skip(f"the build of the C library has no lib{name}")
        self.flags = [
            library.include,
            f"-L{library.directory}",
            f"-l{name}",
            "-lscope_profiler",
            f"-Wl,-rpath,{library.directory}",
        ]

    def build(self, name: str, command: list[str]) -> Path:
        program = self.directory / name
        if not program.exists():
            done = subprocess.run(
                [*command, "-o", str(program), *self.flags], cwd=self.directory, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        return program

    def c(self, source: str = "ranks.c") -> Path:
        # mpi.h itself is not pedantic
        warnings = [warning for warning in WARNINGS if warning != "-pedantic"]
        return self.build(
            source.replace(".", "_"), [f"mpicc.{self.mpi.name}", *warnings, "-pthread", str(SOURCES / source)]
        )

    def fortran(self, module: str) -> Path:
        macros = ["-DWITH_F08"] if module == "mpi_f08" else []
        sources = [FORTRAN / "scope_profiler.f90", FORTRAN / "scope_profiler_mpi.f90", SOURCES / "ranks.f90"]
        return self.build(
            f"ranks_{module}", [f"mpifort.{self.mpi.name}", "-cpp", "-Wall", "-Werror", *macros, *map(str, sources)]
        )


@pytest.fixture(scope="module")
def programs(mpi: Launcher, native_library: Library, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(mpi, native_library, tmp_path_factory.mktemp("programs"))


RANKS = [1, 2, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 8, 16))]
INNER = ("all", "inner")


def counted(results: sp.ProfilingResults) -> dict[str, dict[int, int]]:
    return {region.name: region.num_calls_per_rank() for region in results.get_regions()}


def expected(ranks: int, *, skipped: int = -1) -> dict[str, dict[int, int]]:
    counts = {name: dict.fromkeys(range(ranks), 3) for name in INNER}
    return counts | {f"only {rank}": {rank: rank + 1} for rank in range(ranks) if rank != skipped}


def read_by_reference(path: Path) -> dict[str, dict[int, int]] | None:
    python = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
    if not python:
        return None
    source = """
import json, sys, scope_profiler as sp
print(json.dumps({region.name: region.num_calls_per_rank() for region in sp.load(sys.argv[1])}))
"""
    done = subprocess.run([python, "-c", source, str(path)], capture_output=True, text=True, check=True)
    return {
        name: {int(rank): calls for rank, calls in counts.items()} for name, counts in json.loads(done.stdout).items()
    }


@pytest.mark.parametrize("threads", [False, True], ids=["plain", "threads"])
@pytest.mark.parametrize("ranks", RANKS)
def test_c_ranks_write_one_file(programs: Programs, tmp_path: Path, ranks: int, threads: bool) -> None:
    done = programs.mpi.run(ranks, str(programs.c()), str(tmp_path / "run"), *(["threads"] if threads else []))
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
    # One rank alone has a file of its own, as without MPI.
    path = tmp_path / ("run.h5" if ranks > 1 else "run_rank00000.h5")
    assert list(tmp_path.iterdir()) == [path]
    wanted = expected(ranks, skipped=5)
    if threads and ranks > 1:
        wanted["work"] = {rank: rank + 1 for rank in range(1, ranks, 2)}
    results = sp.load(path)
    assert counted(results) == wanted
    assert read_by_reference(path) in (None, wanted)
    for rank in range(ranks):
        outer, inner = results["all"][rank], results["inner"][rank]
        assert list(inner.parent_ids) == list(outer.call_ids)
        names = {thread.name for thread in results.threads[rank]}
        assert ("helper" in names) == (threads and rank % 2 == 1)
    if ranks > 1:
        assert results.metadata["mpi_size"] == ranks and results.metadata["num_nodes"] == 1
        assert results.num_ranks == ranks and "mpi_rank" not in results.metadata


@pytest.mark.parametrize("module", ["mpi", "mpi_f08"])
@pytest.mark.parametrize("ranks", RANKS[1:])
def test_fortran_ranks_write_one_file(programs: Programs, tmp_path: Path, ranks: int, module: str) -> None:
    done = programs.mpi.run(ranks, str(programs.fortran(module)), str(tmp_path / "run"))
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
    assert os.listdir(tmp_path) == ["run.h5"]
    results = sp.load(tmp_path / "run.h5")
    assert counted(results) == expected(ranks)
    assert read_by_reference(tmp_path / "run.h5") in (None, expected(ranks))
    assert results["all"].source_file == "ranks.f90"


def test_traces_stay_one_a_rank(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(3, str(programs.c()), str(tmp_path / "run"), "trace")
    assert done.returncode == 0, done.stdout + done.stderr
    traces = [tmp_path / f"run_rank0000{rank}.spt" for rank in range(3)]
    assert sorted(tmp_path.iterdir()) == traces
    from scope_profiler.native_trace import load_traces

    assert counted(load_traces(traces)) == expected(3)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("trace",)], ids=["together", "traces"])
def test_memory_is_flat_however_many_calls_a_rank_has(
    programs: Programs, tmp_path: Path, words: tuple[str, ...], soak: bool
) -> None:
    # 1.5 M pairs are 96 MB of records, and were 170 MB of columns.
    pairs, ranks = (25_000_000 if soak else 1_500_000), 4
    done = programs.mpi.run(
        ranks, str(programs.c("longranks.c")), str(tmp_path / "run"), str(pairs), *words, timeout=3600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = {int(rank): list(map(int, rest)) for rank, *rest in map(str.split, done.stdout.splitlines())}
    wanted = {rank: pairs + 1000 * rank for rank in range(ranks)}
    assert {rank: calls for rank, (_, _, calls, _) in told.items()} == wanted
    for before, after, _, _ in told.values():
        assert after < 64_000 and after - before < 32_000
    if words:
        for rank in range(ranks):
            times = trace_times(tmp_path / f"run_rank{rank:05}.spt", rank)
            assert {name: len(starts) for name, (starts, _) in times.items()} == {
                "all": 1,
                "outer": wanted[rank],
                "inner": wanted[rank],
            }
            assert (times["inner"][1] - times["inner"][0]).sum() == told[rank][3]
        assert len(list(tmp_path.iterdir())) == ranks
        return
    assert os.listdir(tmp_path) == ["run.h5"]
    results = sp.load(tmp_path / "run.h5")
    assert counted(results) == {"all": dict.fromkeys(range(ranks), 1), "outer": wanted, "inner": wanted}
    for rank in range(ranks):
        assert round(results["inner"][rank].total_duration * 1e9) == told[rank][3]
        assert results["all"][rank].event_metadata == ({"open": True},)
    last = results["inner"][ranks - 1]
    assert (last.parent_ids == results["outer"][ranks - 1].call_ids).all()


def test_an_end_that_was_forgotten_is_made_up_for(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(3, str(programs.c()), str(tmp_path / "run"), "forget")
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(tmp_path) == ["run.h5"]
    assert counted(sp.load(tmp_path / "run.h5")) == expected(3)


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named_and_the_others_are_written(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(4, str(programs.c()), str(tmp_path / "run"), "absent", "3")
    # Lines of different ranks, and the launcher's own, may be mixed.
    assert all(f"{rank}: " in done.stdout for rank in range(3)), done.stdout + done.stderr
    assert done.stdout.count("rank 3 did not answer") == 3
    results = sp.load(tmp_path / "run.h5")
    assert counted(results)["all"] == {0: 3, 1: 3, 2: 3}
    assert results.metadata["missing_ranks"] == ["3"]


@pytest.mark.slow
def test_without_rank_0_each_of_the_others_writes_its_own_file(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(3, str(programs.c()), str(tmp_path / "run"), "absent", "0")
    assert done.stdout.count("rank 0 did not answer") == 2, done.stdout + done.stderr
    for rank in (1, 2):
        assert counted(sp.load(tmp_path / f"run_rank0000{rank}.h5"))["all"] == {rank: 3}


def test_a_file_that_cannot_be_written_is_an_error_on_every_rank(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(1, str(programs.c()), str(tmp_path / "missing" / "run"))
    assert done.returncode != 0
    done = programs.mpi.run(3, str(programs.c()), str(tmp_path / "missing" / "run"), env={"SCOPE_PROFILER_SPOOL": "0"})
    told = [line for line in done.stdout.splitlines() if "rank 0" in line and "missing" in line]
    assert len(told) >= 1 and done.returncode != 0, done.stdout + done.stderr


def unknown(operation: str, *, size: int = -1, root: int = -1, comm: int = 0) -> str:
    return sp.format_mpi_region(operation, bytes=size, root=root, communicator=comm)


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (1, 4))])
def test_mpi_calls_are_regions_on_request(programs: Programs, tmp_path: Path, ranks: int) -> None:
    done = programs.mpi.run(ranks, str(programs.c()), str(tmp_path / "run"), "calls")
    assert done.returncode == 0, done.stdout + done.stderr
    found = counted(sp.load(next(tmp_path.iterdir())))
    everywhere = dict.fromkeys(range(ranks), 1)
    half = next(told.communicator for told in map(sp.parse_mpi_region, found) if told and told.communicator > 1000)
    wanted = {
        unknown("barrier", size=0): dict.fromkeys(range(ranks), 5),
        unknown("bcast", size=32, root=ranks - 1): everywhere,
        unknown("allreduce", size=32): everywhere,
        unknown("allreduce", size=4): everywhere,
        unknown("dup", comm=1): {0: 1},
        unknown("dup"): everywhere,
        unknown("barrier", size=0, comm=2): everywhere,
        unknown("split", comm=2): everywhere,
        unknown("barrier", size=0, comm=half): everywhere,
    }
    if ranks > 1:
        named = sp.format_mpi_region
        wanted |= {
            named("isend", bytes=32, peer=1, tag=3, communicator=0): {0: 1},
            named("wait", bytes=32, peer=1, tag=3, communicator=0, request="isend"): {0: 1},
            **{named("send", bytes=1, peer=1, tag=100 + i, communicator=0): {0: 1} for i in range(32)},
            unknown("send"): {0: 8},
            named("recv", bytes=32, tag=3, communicator=0): {1: 1},
            named("irecv", bytes=1, peer=0, communicator=0): {1: 40},
            named("waitall", communicator=0, request="irecv"): {1: 20},
        }
    assert {name: calls for name, calls in found.items() if name.startswith("mpi:")} == wanted


@pytest.mark.parametrize("word", ["1", "0", None])
def test_the_environment_asks_for_mpi_calls(programs: Programs, tmp_path: Path, word: str | None) -> None:
    env = {} if word is None else {"SCOPE_PROFILER_MPI_CALLS": word}
    done = programs.mpi.run(2, str(programs.c()), str(tmp_path / "run"), "quiet", env=env)
    assert done.returncode == 0
    assert (unknown("bcast", size=32, root=1) in sp.load(tmp_path / "run.h5")) == (word == "1")


def test_python_and_c_number_communicators_alike(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(2, str(programs.c()), str(tmp_path / "run"), "calls")
    assert done.returncode == 0
    names = sp.load(tmp_path / "run.h5").region_names
    native = [name for name in names if (told := sp.parse_mpi_region(name)) and told.communicator > 1000]
    program = """
import sys, scope_profiler as sp
with sp.session(file_path=sys.argv[1], verbose=False, profile_mpi_calls=True):
    from mpi4py import MPI
    MPI.COMM_WORLD.Dup().Split(MPI.COMM_WORLD.rank % 2).Barrier()
"""
    done = programs.mpi.python(2, program, str(tmp_path / "python.h5"))
    assert done.returncode == 0, done.stderr
    assert [name for name in sp.load(tmp_path / "python.h5").region_names if name in native] == native != []


@pytest.mark.parametrize("command", [[COMMAND], COMMANDS[0]], ids=["native", "python"])
@pytest.mark.parametrize("how", ["kill", "abort", "hang"])
def test_ranks_that_die_leave_their_calls_in_their_spools(programs: Programs, tmp_path: Path, how: str, command: list[str]) -> None:
    ranks = 4
    with programs.mpi.start(ranks, str(programs.c()), str(tmp_path / "run"), how, "threads") as launcher:
        assert launcher.stdout is not None
        if how == "hang":  # the launcher itself, and what it leaves
            told = ""  # the launcher may put what two ranks print into one line
            while told.count("waiting") < ranks:
                line = launcher.stdout.readline()
                assert line, told
                told += line
            launcher.kill()
            launcher.wait()
            for spool in tmp_path.glob("*.spool"):
                pid = process_of(spool)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            launcher.communicate(timeout=60)
            assert launcher.returncode != 0
    results = sp.load(recovered(tmp_path, command))
    wanted = expected(ranks)
    wanted["work"] = {1: 2, 3: 4}
    assert counted(results) == wanted
    assert {rank: {thread.name for thread in rows} >= {"helper"} for rank, rows in results.threads.items()} == {
        0: False, 1: True, 2: False, 3: True,
    }  # fmt: skip


@pytest.mark.slow
def test_ranks_that_die_while_they_write_their_file_lose_no_call_and_have_none_twice(
    programs: Programs, tmp_path: Path, soak: bool
) -> None:
    chance = random.Random(programs.mpi.name)
    ends = set()
    for number in range(200 if soak else 12):
        ranks, directory = 3, tmp_path / str(number)
        directory.mkdir()
        victim, delay = chance.randrange(ranks), chance.choice((0, chance.randrange(30_000), chance.randrange(8_000)))
        with programs.mpi.start(ranks, str(programs.c()), str(directory / "run"), "die", str(victim), str(delay)) as launcher:
            launcher.communicate(timeout=60)
        wait_for_ends(directory)
        ends.add(((directory / "run.h5").exists(), len(list(directory.glob("*.spool")))))
        assert counted(sp.load(recovered(directory, [COMMAND]))) == expected(ranks), (number, victim, delay)
    assert len(ends) > 1, ends


@pytest.mark.parametrize("with_library", [True, False], ids=["library", "headers"])
def test_cpp_calls_are_regions_once_each(
    programs: Programs, native_library: Library, tmp_path: Path, with_library: bool
) -> None:
    command = ["-std=c++17", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", *WARNINGS[:-1], str(SOURCES / "ranks.cpp")]
    compiler = f"mpicxx.{programs.mpi.name}"
    if with_library:
        program = programs.build("ranks_cpp", [compiler, "-DWITH_LIBRARY", *command])
    else:
        program = programs.directory / "ranks_cpp_alone"
        done = subprocess.run(
            [compiler, *command, "-o", str(program), native_library.include, *native_library.shared()],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    done = programs.mpi.run(2, str(program), str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[int, int]] = {}
    for path in tmp_path.iterdir():
        for name, calls in counted(sp.load(path)).items():
            found.setdefault(name, {}).update(calls)
    named, both = sp.format_mpi_region, {0: 1, 1: 1}
    assert found == {
        unknown("barrier", size=0): both,
        unknown("bcast", size=32, root=1): both,
        unknown("reduce", size=32, root=0): both,
        unknown("allreduce", size=16): both,
        named("send", bytes=24, peer=1, tag=5, communicator=0): {0: 1},
        named("isend", bytes=32, peer=1, tag=6, communicator=0): {0: 1},
        named("wait", bytes=32, peer=1, tag=6, communicator=0, request="isend"): {0: 1},
        named("recv", bytes=32, communicator=0): {1: 1},
        named("irecv", bytes=32, peer=0, tag=6, communicator=0): {1: 1},
        named("wait", bytes=32, peer=0, tag=6, communicator=0, request="irecv"): {1: 1},
        **{named("send", bytes=0, peer=1, tag=100 + i, communicator=0): {0: 1} for i in range(31)},
        unknown("send"): {0: 9},
        **{named("recv", bytes=0, peer=0, tag=100 + i, communicator=0): {1: 1} for i in range(31)},
        unknown("recv"): {1: 9},
    }


def test_what_the_page_about_native_programs_says_of_mpi_works(
    programs: Programs, native_library: Library, tmp_path: Path
) -> None:
    page = (FORTRAN.parent / "docs" / "native.md").read_text(encoding="utf-8").replace("openmpi", programs.mpi.name)
    [(name, source)] = re.findall(r"<!-- file: (ring\.c) -->\n```c\n(.*?)```", page, re.DOTALL)
    [commands] = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "mpicc" in block]
    (tmp_path / name).write_text(source, encoding="utf-8")
    for found in (native_library.directory / "pkgconfig").glob("*.pc"):
        (tmp_path / found.name).write_text(
            found.read_text().replace("prefix=/usr/local", f"prefix={native_library.prefix}")
        )
    environment = {
        **os.environ,
        **programs.mpi.environment,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PKG_CONFIG_PATH": str(tmp_path),
        "LD_LIBRARY_PATH": f"{native_library.directory}:{programs.mpi.environment.get('LD_LIBRARY_PATH', '')}",
        "PATH": f"{native_library.prefix / 'bin'}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exchange" in done.stdout
    everywhere = dict.fromkeys(range(4), 1)
    assert counted(sp.load(tmp_path / "ring.h5")) == {"exchange": everywhere, unknown("barrier", size=0): everywhere}


def test_nothing_is_sent_after_mpi_is_over(programs: Programs, tmp_path: Path) -> None:
    done = programs.mpi.run(2, str(programs.c()), str(tmp_path / "run"), "late")
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted(sp.load(tmp_path / "run.h5")) == expected(2)
