"""Real MPI ranks: one file for all of them, exact for each, and no rank waits for ever."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import scope_profiler as sp
from mpi_launch import Launcher, recovered
from native_code import library_to_preload
from scope_profiler.processes import align
from shifted_clock import SHIM

pytestmark = [pytest.mark.uninstrumented, pytest.mark.beside]


# Rank r enters the region that only it has r + 1 times, and the one that all have 3 times, one inside the other. Odd ranks have
# a thread too, where threads are tracked. What it counted itself goes to a file of its own.
PROGRAM = """
import json, sys, threading
import scope_profiler as sp
from scope_profiler.processes import align
from scope_profiler import ProfileManager
assert "mpi4py" not in sys.modules, "importing the package must not import mpi4py"

@ProfileManager.profile("decorated")
def decorated(): pass

assert "mpi4py" not in sys.modules, "nor must decorating"
path, settings = sys.argv[1], json.loads(sys.argv[2])
with ProfileManager.session(return_results=True, verbose=False, file_path=path, **settings) as run:
    from mpi4py import MPI
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    def work():
        for i in range(rank + 1):
            with ProfileManager.profile_region(f"only {rank}"):
                pass
    for i in range(3):
        with ProfileManager.profile_region("all"):
            decorated()
            MPI.COMM_WORLD.barrier()
    if settings.get("track_threads") and rank % 2:
        thread = threading.Thread(target=work, name=f"worker of {rank}")
        thread.start()
        thread.join()
    elif rank != 5:
        work()
results = run.results
assert results.is_root == (rank == 0)
assert results.num_ranks == size, results.num_ranks
if rank == 0:
    told = {name: {r: region[r].num_calls for r in region.ranks} for name, region in ((n, results[n]) for n in results.region_names)}
    print(json.dumps(told))
else:
    assert len(results) == 0
"""


def expected(size: int, *, threads: bool) -> dict[str, dict[int, int]]:
    counts = {"scope_profiler.session": dict.fromkeys(range(size), 1)}
    counts["all"] = counts["decorated"] = dict.fromkeys(range(size), 3)
    for rank in range(size):
        if rank != 5 or threads:
            counts[f"only {rank}"] = {rank: rank + 1}
    return counts


def counted(results: sp.ProfilingResults) -> dict[str, dict[int, int]]:
    return {name: {rank: results[name][rank].num_calls for rank in results[name].ranks} for name in results.region_names}


@pytest.mark.parametrize(
    "settings",
    [pytest.param({}, id="plain", marks=pytest.mark.slow), pytest.param({"track_threads": True}, id="threads", marks=pytest.mark.slow),
     pytest.param({"track_async": True}, id="async")],
)
@pytest.mark.parametrize("ranks", [1, 2, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 8, 16))])
def test_one_file_has_the_calls_of_every_rank(mpi: Launcher, tmp_path: Path, ranks: int, settings: dict[str, bool]) -> None:
    path = tmp_path / "all.h5"
    done = mpi.python(ranks, PROGRAM, str(path), json.dumps(settings))
    assert done.returncode == 0, done.stderr
    tracked = bool(settings)
    wanted = expected(ranks, threads="track_threads" in settings)
    told = {name: {int(rank): count for rank, count in counts.items()} for name, counts in json.loads(done.stdout).items()}
    assert told == wanted
    results = sp.load(path)
    assert counted(results) == wanted
    assert results.num_ranks == ranks
    assert results.metadata["mpi_size"] == ranks
    assert results.metadata["num_nodes"] == 1
    assert results.metadata["total_cores"] == ranks * results.metadata["omp_num_threads"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["all.h5"], "no spool and no temporary stays"
    for rank in range(ranks):
        all_calls, decorated = results["all"][rank], results["decorated"][rank]
        assert (all_calls.start_times_ns < decorated.start_times_ns).all()
        assert (decorated.end_times_ns < all_calls.end_times_ns).all()
        assert list(decorated.parent_ids) == list(all_calls.call_ids), "each rank has a tree of its own"
        if tracked:
            names = [thread.name for thread in results.threads[rank]]
            own = [f"worker of {rank}"] if "track_threads" in settings and rank % 2 else []
            assert names == ["MainThread", *own]
            thread_ids = set(results[f"only {rank}"][rank].thread_ids) if f"only {rank}" in wanted else {len(own)}
            assert thread_ids == {len(own)}


@pytest.mark.parametrize("mode", ["auto", "direct", "parallel"])
def test_every_output_mode_writes_the_same(mpi: Launcher, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "all.h5"
    done = mpi.python(3, PROGRAM, str(path), json.dumps({"output_mode": mode, "hdf5_compression": "gzip", "hdf5_chunk_size": 4}))
    assert done.returncode == 0, done.stderr
    assert counted(sp.load(path)) == expected(3, threads=False)


def test_parallel_output_with_lanes_is_refused_on_every_rank(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys
from scope_profiler import ProfileManager
try:
    ProfileManager.setup(file_path=sys.argv[1], output_mode="parallel", track_threads=True)
except RuntimeError as error:
    print(error)
"""
    done = mpi.python(3, program, str(tmp_path / "x.h5"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("track_threads") == 3
    assert not (tmp_path / "x.h5").exists()


# Rank r records CALLS + 2 r calls, in pairs. It tells the peak of its memory before the end, behind it, and with its results read.
MANY = """
import json, sys
from itertools import repeat
import scope_profiler as sp

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

path, calls, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
with sp.session(return_results=True, verbose=False, file_path=path, **settings) as run:
    from mpi4py import MPI
    rank = MPI.COMM_WORLD.rank
    outer, inner = sp.region("outer"), sp.region("inner")
    for _ in repeat(None, calls // 2 + rank):
        with outer:
            with inner: pass
    before = peak()
results = run.results
counts = {name: {r: results[name][r].num_calls for r in results[name].ranks} for name in results.region_names}
print(json.dumps([rank, before, peak(), counts]) + "\\n", end="", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"output_mode": "auto"}, {"output_mode": "direct", "track_threads": True}, {"track_async": True}, {"output_mode": "parallel"}],
    ids=["plain", "threads", "async", "parallel"],
)
def test_memory_is_flat_however_many_calls_a_rank_has(
    mpi: Launcher, tmp_path: Path, settings: dict[str, object], soak: bool
) -> None:
    # 1.5 M calls are 36 to 48 MB of records, and were 60 to 84 MB of columns.
    calls, ranks, path = (30_000_000 if soak else 1_500_000), 3, tmp_path / "many.h5"
    done = mpi.python(ranks, MANY, str(path), str(calls), json.dumps(settings), timeout=1800)
    assert done.returncode == 0, done.stderr
    told = {rank: rest for rank, *rest in map(json.loads, done.stdout.splitlines())}
    print(told)
    for before, after, _ in told.values():
        assert after - before < 24_000
    wanted = {rank: calls // 2 + rank for rank in range(ranks)}
    counts = {name: {int(rank): count for rank, count in there.items()} for name, there in told[0][2].items()}
    assert counts == {"scope_profiler.session": dict.fromkeys(range(ranks), 1), "outer": wanted, "inner": wanted}
    assert [entry.name for entry in tmp_path.iterdir()] == ["many.h5"], "no spool and no temporary stays"
    results, summary = sp.load(path), sp.read_h5_summary(path)
    for rank in range(ranks):
        outer, inner = results["outer"][rank], results["inner"][rank]
        assert (inner.parent_ids == outer.call_ids).all()
        assert (outer.start_times_ns <= inner.start_times_ns).all() and (inner.end_times_ns <= outer.end_times_ns).all()
        lengths = inner.end_times_ns - inner.start_times_ns
        stored = summary["inner"][rank]
        assert round(stored.total_duration * 1e9) == lengths.sum()
        assert (round(stored.min_duration * 1e9), round(stored.max_duration * 1e9)) == (lengths.min(), lengths.max())
        assert stored.p99_duration * 1e9 == pytest.approx(numpy.percentile(lengths, 99))


# Rank 1 has metadata of its calls, which is matched with them in memory; the others write from where they recorded.
MIXED = """
import sys
import scope_profiler as sp
with sp.session(return_results=True, verbose=False, file_path=sys.argv[1], track_threads=True) as run:
    from mpi4py import MPI
    rank = MPI.COMM_WORLD.rank
    for i in range(rank):
        with sp.region("a"): pass
    with sp.metadata(rank=rank) if rank == 1 else sp.region("around"):
        with sp.region("a"): pass
"""


def test_ranks_that_need_their_calls_in_memory_write_with_others_that_do_not(mpi: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "mixed.h5"
    done = mpi.python(4, MIXED, str(path))
    assert done.returncode == 0, done.stderr
    results = sp.load(path)
    around = {"around": {0: 1, 2: 1, 3: 1}}
    assert counted(results) == {"scope_profiler.session": dict.fromkeys(range(4), 1), "a": {r: r + 1 for r in range(4)}, **around}
    assert [list(results["a"][rank].event_metadata) for rank in range(4)] == [[{}], [{}, {"rank": 1}], [{}] * 3, [{}] * 4]
    for rank in (2, 3):
        assert results["a"][rank].parent_ids[-1] == results["around"][rank].call_ids[0]


def test_calls_that_overlap_are_told_of_on_their_rank(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys, warnings
import scope_profiler as sp
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
sp.setup(file_path=sys.argv[1])
a, b = sp.region("a").__enter__(), sp.region("b")
with b:
    if rank == 1: a.__exit__(None, None, None)
if rank != 1: a.__exit__(None, None, None)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    sp.finalize(verbose=False)
assert [("overlap" in str(one.message)) for one in told] == [True] * (rank == 1), told
"""
    done = mpi.python(2, program, str(tmp_path / "o.h5"))
    assert done.returncode == 0, done.stderr
    assert counted(sp.load(tmp_path / "o.h5")) == {"a": {0: 1, 1: 1}, "b": {0: 1, 1: 1}}


def test_an_end_without_new_calls_replaces_no_file(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys
import scope_profiler as sp
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
sp.setup(file_path=sys.argv[1], track_threads=True)
if rank:
    with sp.region("a"): pass
def finalize():
    results = sp.finalize(verbose=False, return_results=True)
    assert results.is_root == (rank == 0) and results.num_ranks == 2
    return list(results.region_names)
assert finalize() == (["a"] if rank == 0 else [])
sp.ProfileManager._state.stop()
assert finalize() == []
"""
    path = tmp_path / "e.h5"
    done = mpi.python(2, program, str(path))
    assert done.returncode == 0, done.stderr
    assert counted(sp.load(path)) == {"a": {1: 1}}
    assert [entry.name for entry in tmp_path.iterdir()] == ["e.h5"]


def test_without_a_file_rank_0_has_all(mpi: Launcher, tmp_path: Path) -> None:
    done = mpi.python(4, PROGRAM, "unused.h5", json.dumps({"deactivate_file_output": True, "track_threads": True}), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = {name: {int(rank): count for rank, count in counts.items()} for name, counts in json.loads(done.stdout).items()}
    assert told == expected(4, threads=True)
    assert list(tmp_path.iterdir()) == []


def test_json_output_holds_all_ranks(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys
from scope_profiler import ProfileManager
with ProfileManager.session(output=sys.argv[1], verbose=False):
    from mpi4py import MPI
    with ProfileManager.profile_region(f"rank {MPI.COMM_WORLD.rank}"): pass
"""
    done = mpi.python(3, program, str(tmp_path / "all.json"))
    assert done.returncode == 0, done.stderr
    results = sp.load(tmp_path / "all.json")
    assert {name for name in results.region_names if name.startswith("rank")} == {"rank 0", "rank 1", "rank 2"}


def test_checkpoints_hold_all_ranks_and_an_idle_end_replaces_nothing(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys
from scope_profiler import ProfileManager
ProfileManager.setup(file_path=sys.argv[1])
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
if rank == 1:  # the other has nothing to report at this checkpoint
    with ProfileManager.profile_region("first"): pass
ProfileManager.finalize(verbose=False)
if rank == 0:
    import scope_profiler
    print(list(scope_profiler.load(sys.argv[1]).region_names))
MPI.COMM_WORLD.barrier()
if rank == 0:
    with ProfileManager.profile_region("second"): pass
ProfileManager.finalize(verbose=False)
"""
    path = tmp_path / "c.h5"
    done = mpi.python(2, program, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['first']"
    assert counted(sp.load(path)) == {"second": {0: 1}}


def test_a_failed_write_is_an_error_on_every_rank_and_nothing_is_lost(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import os, sys
from scope_profiler import ProfileManager
ProfileManager.setup(file_path=sys.argv[1], spool=False)
from mpi4py import MPI
with ProfileManager.profile_region("a"): pass
try:
    ProfileManager.finalize(verbose=False)
except OSError as error:
    print("rank 0" in str(error) and "no-such" in str(error), flush=True)
MPI.COMM_WORLD.barrier()
if MPI.COMM_WORLD.rank == 0: os.mkdir(os.path.dirname(sys.argv[1]))
MPI.COMM_WORLD.barrier()
ProfileManager.finalize(verbose=False)
"""
    path = tmp_path / "no-such" / "f.h5"
    done = mpi.python(3, program, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 3, "lines of different ranks may be mixed"
    assert counted(sp.load(path)) == {"a": {0: 1, 1: 1, 2: 1}}


MISSING = """
import sys, time
from mpi4py import MPI
from scope_profiler import ProfileManager
comm, absent = MPI.COMM_WORLD, int(sys.argv[2])
try:
    with ProfileManager.session(verbose=False, file_path=sys.argv[1], mpi_timeout=1):
        with ProfileManager.profile_region("a"): pass
        if comm.rank == absent: time.sleep(6)
except OSError as error:
    print(f"{comm.rank}: {error}\\n", end="", flush=True)
time.sleep(max(0, 7 - time.perf_counter()) if comm.rank != absent else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("absent", [3, 0])
def test_a_rank_that_does_not_come_is_named_and_the_others_lose_nothing(mpi: Launcher, tmp_path: Path, absent: int) -> None:
    path = tmp_path / "m.h5"
    done = mpi.python(4, MISSING, str(path), str(absent))
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if re.match(r"\d: ", line))
    here = [rank for rank in range(4) if rank != absent]
    for rank in here:
        assert f"rank {absent} did not answer" in told[str(rank)], done.stdout + done.stderr
    if absent == 3:
        results = sp.load(path)
        assert counted(results)["a"] == {0: 1, 1: 1, 2: 1}
        assert results.metadata["missing_ranks"] == ["3"]
    else:
        for rank in here:
            assert counted(sp.load(tmp_path / f"m.rank{rank}.h5"))["a"] == {rank: 1}


def test_a_rank_that_raises_does_not_hang_the_others(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys
from scope_profiler import ProfileManager
from mpi4py import MPI
try:
    with ProfileManager.session(verbose=False, file_path=sys.argv[1]):
        with ProfileManager.profile_region("a"):
            if MPI.COMM_WORLD.rank == 1: raise KeyError("mine")
except KeyError as error:
    print(error)
"""
    path = tmp_path / "r.h5"
    done = mpi.python(3, program, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "'mine'"
    assert counted(sp.load(path))["a"] == {0: 1, 1: 1, 2: 1}


def test_a_killed_rank_ends_the_job_and_its_calls_are_recovered_with_its_rank(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import os, sys, time
from scope_profiler import ProfileManager
ProfileManager.setup(file_path=sys.argv[1])
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
for i in range(10 + rank):
    with ProfileManager.profile_region("a"): pass
MPI.COMM_WORLD.barrier()
if rank == 2: os.kill(os.getpid(), 9)
time.sleep(30)
"""
    done = mpi.python(3, program, str(tmp_path / "k.h5"), timeout=60)
    assert done.returncode != 0
    spools = sorted(tmp_path.glob("*.spool"))
    assert len(spools) == 3
    found = {}
    for spool in spools:
        results = sp.load(spool)
        (rank,) = results["a"].ranks
        found[rank] = results["a"][rank].num_calls
        assert results.metadata["mpi_size"] == 3
    assert found == {0: 10, 1: 11, 2: 12}


# Rank VICTIM is ended by the kernel at MOMENT, in parts of the time that such an end took before. Its launcher then ends the others.
DYING = """
import os, signal, sys, time
import scope_profiler as sp
from mpi4py import MPI
comm, victim, moment = MPI.COMM_WORLD, int(sys.argv[2]), float(sys.argv[3])
for name in ("first.h5", "second.h5", "run.h5"):
    sp.setup(file_path=f"{sys.argv[1]}/{name}", track_threads=True)
    for i in range(20_000 + comm.rank):
        with sp.region("a"): pass
    with sp.metadata(kind="b") if comm.rank == 2 else sp.region("around"):  # a rank that collects its calls in memory
        with sp.region("b"): pass
    comm.barrier()
    began = time.perf_counter()
    if name == "run.h5" and comm.rank == victim: signal.setitimer(signal.ITIMER_REAL, moment * took)
    sp.finalize(verbose=False)
    comm.barrier()
    took = time.perf_counter() - began
    sp.reset()
"""


@pytest.mark.slow
def test_ranks_that_die_while_they_write_their_file_lose_no_call_and_have_none_twice(
    mpi: Launcher, tmp_path: Path, soak: bool
) -> None:
    chance = random.Random(mpi.name)
    ends = set()
    for number in range(200 if soak else 8):
        ranks, directory = 3, tmp_path / str(number)
        directory.mkdir()
        victim, moment = chance.randrange(ranks), chance.uniform(0.01, 1.5)
        mpi.python(ranks, DYING, str(directory), str(victim), str(moment))
        ends.add(((directory / "run.h5").exists(), len(list(directory.glob("*.spool")))))
        wanted = {"a": {rank: 20_000 + rank for rank in range(ranks)}, "b": dict.fromkeys(range(ranks), 1), "around": {0: 1, 1: 1}}
        assert counted(sp.load(recovered(directory))) == wanted, (number, victim, moment)
    print(ends)
    assert len(ends) > 1, ends


def test_a_rank_that_is_killed_when_the_file_is_there_is_not_recovered_again(mpi: Launcher, tmp_path: Path) -> None:
    """One that collects its calls in memory: between the file and its confirmation there is Python code."""
    program = """
import os, sys
import scope_profiler as sp
from mpi4py import MPI
from scope_profiler.recording import Recording
Recording._confirm = lambda *_: os.kill(os.getpid(), 9)
sp.setup(file_path=sys.argv[1])
for i in range(5):
    with sp.metadata(kind="b"), sp.region("a"): pass
sp.finalize(verbose=False)
"""
    mpi.python(2, program, str(tmp_path / "run.h5"))
    assert list(tmp_path.glob("*.spool"))
    assert counted(sp.load(recovered(tmp_path))) == {"a": {0: 5, 1: 5}}


def test_after_mpi_is_finalized_each_rank_writes_a_file_of_its_own(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys, warnings
from scope_profiler import ProfileManager
ProfileManager.setup(file_path=sys.argv[1])
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
with ProfileManager.profile_region("a"): pass
MPI.Finalize()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ProfileManager.finalize(verbose=False)
assert len(told) == 1 and f"rank{rank}.h5" in str(told[0].message), told
"""
    done = mpi.python(2, program, str(tmp_path / "o.h5"))
    assert done.returncode == 0, done.stderr
    assert counted(sp.load(tmp_path / "o.rank1.h5")) == {"a": {1: 1}}
    assert counted(sp.load(tmp_path / "o.rank0.h5")) == {"a": {0: 1}}


def test_ranks_that_are_on_their_own_do_not_overwrite_each_other_unnoticed(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys, warnings
from scope_profiler import ProfileManager
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with ProfileManager.session(verbose=False, file_path=sys.argv[1]):
        with ProfileManager.profile_region("a"): pass
assert "on its own" in str(told[0].message)
assert "mpi4py" not in sys.modules
"""
    done = mpi.python(2, program, str(tmp_path / "s.h5"), env={"SCOPE_PROFILER_MPI": "0"})
    assert done.returncode == 0, done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s.rank0.h5", "s.rank1.h5"]


def test_workers_of_a_rank_are_no_ranks(mpi: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text("""
import multiprocessing, sys
from scope_profiler import ProfileManager

def work(index):
    manager = ProfileManager()
    with manager.session(file_path=f"{sys.argv[1]}/worker{index}.h5", verbose=False):
        with manager.profile_region("in worker"): pass

if __name__ == "__main__":
    with ProfileManager.session(file_path=f"{sys.argv[1]}/ranks.h5", verbose=False):
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.rank
        process = multiprocessing.get_context("spawn").Process(target=work, args=(rank,))
        process.start()
        process.join()
        assert process.exitcode == 0
""")
    done = mpi.run(2, sys.executable, str(program), str(tmp_path))
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert counted(sp.load(tmp_path / f"worker{rank}.h5"))["in worker"] == {0: 1}
    assert counted(sp.load(tmp_path / "ranks.h5"))["scope_profiler.session"] == {0: 1, 1: 1}


@pytest.mark.parametrize("word", ["1", "true", "YES", "on"])
def test_the_environment_asks_for_mpi(word: str, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    launcher = Launcher("openmpi", tmp_path)
    program = "import sys, scope_profiler as sp; sp.ProfileManager.setup(deactivate_file_output=True); print('mpi4py.MPI' in sys.modules)"
    environment = {**os.environ, **launcher.environment, "SCOPE_PROFILER_MPI": word}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize(("setting", "problem"), [(0, "mpi_timeout"), ("soon", "mpi_timeout"), (True, "mpi_timeout")])
def test_a_timeout_that_is_none_is_refused(setting: object, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        sp.ProfileManager.setup(deactivate_file_output=True, mpi_timeout=setting)


# As on two hosts: each rank's monotonic clock starts elsewhere, rank 1's gains 300 ppm, and they are in clock domains of their own.
CLOCKS = """
import os, sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
if "SHIM_START" not in os.environ:
    os.environ.update(SHIM_START=str((7 + 86400 * rank) * 10**9), SHIM_DRIFT=str(300e-6 * rank), LD_PRELOAD=sys.argv[2])
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
from mpi4py import MPI
from scope_profiler import ProfileManager
with ProfileManager.session(file_path=sys.argv[1], verbose=False, mpi_sync_clocks=True, spool=False):
    MPI.COMM_WORLD.barrier()
    until = MPI.COMM_WORLD.bcast(time.time()) + 0.1
    for turn in range(20):
        while time.time() < until + turn * 0.1 + rank * 0.05: time.sleep(0.0005)
        with ProfileManager.profile_region("turn"): pass
"""


@pytest.mark.slow
def test_clocks_of_different_hosts_are_compared_at_both_ends_and_taken_out_on_request(mpi: Launcher, tmp_path: Path) -> None:
    library = library_to_preload(SHIM, tmp_path / "shim.so")
    path = tmp_path / "hosts.h5"
    done = mpi.python(2, CLOCKS, str(path), str(library), env={"SCOPE_PROFILER_CLOCK": "monotonic"})
    assert done.returncode == 0, done.stderr
    results = sp.load(path)
    clock = results.processes[1]
    assert clock.reference == "rank 0"
    assert 0 <= clock.error_ns < 50 * 10**6
    # An error of the readings of 0.1 ms over 2 s is 50 ppm.
    assert clock.drift == pytest.approx(-300e-6, abs=100e-6 + 2 * clock.error_ns / 2e9)
    own, other = (results["turn"][rank].start_times_ns for rank in range(2))
    assert own[0] < 3600 * 10**9 < other[0], "as they were recorded"
    aligned = align(results)
    own, other = (aligned["turn"][rank].start_times_ns for rank in range(2))
    assert (own < other).all() and (other[:-1] < own[1:]).all()
    assert aligned.processes[1].error_ns == clock.error_ns
