"""Runs that follow worker processes: every start method and kind of pool, and every way in which a worker can end."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from native_code import COMMANDS

Program = Callable[..., subprocess.CompletedProcess[str]]

METHODS = ["fork", "spawn", "forkserver"]

# Imported by the program and by spawned workers, which read their functions from it.
WORKERS = """
import asyncio, multiprocessing, os, signal, threading, time
import scope_profiler as sp

@sp.profile
def work(calls):
    for _ in range(calls):
        with sp.region("inner"): pass
    return os.getpid()

def work_and_wait(calls, barrier):
    barrier.wait()
    work(calls)

def concurrent(tasks):
    async def job():
        with sp.region("job"): await asyncio.sleep(0.001)
    async def jobs(): await asyncio.gather(*(job() for _ in range(tasks)))
    thread = threading.Thread(target=work, args=(tasks,), name="helper"); thread.start(); thread.join()
    asyncio.run(jobs())

def fail(calls):
    work(calls)
    raise ValueError("on purpose")

def leave(calls):
    work(calls)
    os._exit(7)

def leave_by_exit(calls):
    work(calls)
    raise SystemExit(3)

def hold(calls, ready):
    work(calls)
    ready.set()
    time.sleep(600)

def late(calls):
    # This thread records after the process's work is over.
    def body():
        time.sleep(0.3)
        work(calls)
    threading.Thread(target=body).start()
    work(calls)

def nest(method, calls):
    context = multiprocessing.get_context(method)
    work(calls)
    inner = context.Process(target=work, args=(10 * calls,), name="grandchild")
    inner.start(); inner.join()

def own_session(path, calls):
    work(calls)
    with sp.session(output=path, verbose=False, return_results=True) as session:
        work(2 * calls)
    assert session.results["work"].num_calls == 1
    assert sp.last_results() is session.results
    work(4 * calls)

def own_manager(path, calls):
    manager = sp.ProfileManager()
    with manager.session(output=path, verbose=False):
        with manager.region("own"): work(calls)

def annotated(name):
    with sp.metadata(step=name): work(1)
    multiprocessing.current_process().name = name

def annotated_and_killed(name):
    with sp.metadata(step=name): work(1)
    os.kill(os.getpid(), 9)

def tagged():
    with sp.region("wanted", tags="t"): pass
    with sp.region("unwanted"): pass

def imported_late(calls):
    import extra
    extra.more(calls)
"""

HEAD = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
import scope_profiler as sp
import workers

def counts(results, name):
    return {} if name not in results.region_names else {r: results[name][r].num_calls for r in results[name].ranks}

def names(results): return {rank: process.name for rank, process in results.processes.items()}

def left(): return sorted(name for name in os.listdir(".") if name.endswith((".workers", ".spool")))
"""


@pytest.fixture
def run(python: Program, tmp_path: Path) -> Program:
    """Run a program as a file of its own, which spawned workers import."""
    (tmp_path / "workers.py").write_text(WORKERS)
    start = "import runpy, sys; sys.argv[1:2], sys.argv[0] = [], sys.argv[1]; sys.path[0] = '.'; runpy.run_path(sys.argv[0], run_name='__main__')"

    def run(body: str, *arguments: str, stderr: bool = False) -> subprocess.CompletedProcess[str]:
        program = HEAD + "if __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(body), "    ")
        (tmp_path / "program.py").write_text(program)
        process = python(start, "program.py", *arguments)
        assert stderr or process.stderr == "", process.stderr
        return process

    return run


def total(results: Any, name: str) -> int:
    return int(results[name].num_calls)


# -- kinds of pools ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_processes_are_ranks_with_their_names_and_exact_totals(run: Program, tmp_path: Path, method: str) -> None:
    run(
        """
        context = multiprocessing.get_context(sys.argv[1])
        with sp.session(output="p.h5", verbose=False, track_threads=True, follow_processes=True, return_results=True) as session:
            with sp.region("parent"):
                processes = [context.Process(target=workers.work, args=(i,), name=f"worker {i}") for i in (3, 5, 7)]
                for process in processes: process.start()
                for process in processes: process.join()
        pids = {process.name: process.pid for process in processes}
        for results in (session.results, sp.load("p.h5")):
            found = {process.name: process for process in results.processes.values()}
            assert found.pop("MainProcess").pid == os.getpid()
            assert {name: process.pid for name, process in found.items()} == pids
            assert [process.error_ns for process in results.processes.values()] == [0] * 4
            assert counts(results, "parent") == {0: 1}
            for name, process in found.items():
                assert results["work"][process.rank].num_calls == 1
                assert results["inner"][process.rank].num_calls == int(name[-1])
                (thread,) = results.threads[process.rank]
                assert thread.cpu_time > 0
                parent = results["parent"][0]
                inner = results["inner"][process.rank]
                assert parent.start_times_ns[0] < inner.start_times_ns[0] < inner.end_times_ns[-1] < parent.end_times_ns[0]
                assert (inner.parent_ids >= 0).all()
            assert results.num_ranks == 4
        assert left() == [] and "scope_profiler" not in multiprocessing.current_process()._config
        """,
        method,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["terminated", "closed", "executor", "alive"])
def test_pools(run: Program, tmp_path: Path, method: str, kind: str) -> None:
    """A pool that is ended by a signal, one that is closed, an executor, and a pool that goes on after the session."""
    run(
        """
        method, kind = sys.argv[1:]
        context = multiprocessing.get_context(method)
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            if kind == "executor":
                with ProcessPoolExecutor(2, mp_context=context) as pool:
                    pids = set(pool.map(workers.work, range(1, 9)))
            else:
                pool = context.Pool(2, maxtasksperchild=None if kind == "alive" else 3)
                pids = set(pool.map(workers.work, range(1, 9), chunksize=1))
                if kind == "terminated":
                    pool.terminate(); pool.join()
                elif kind == "closed":
                    pool.close(); pool.join()
        results = sp.load("p.h5")
        assert results["work"].num_calls == 8 and results["inner"].num_calls == 36
        recorded = {results.processes[rank].pid for rank in results["work"].ranks}
        assert recorded == pids
        assert all(name.split("-")[0].endswith(("PoolWorker", "Process")) for name in names(results).values() if name != "MainProcess")
        assert left() == []
        if kind == "alive":
            assert pool.apply(workers.work, (1,)) != os.getpid(), "it goes on, and nothing comes of it"
            pool.close(); pool.join()
            assert sp.load("p.h5")["work"].num_calls == 8
            assert left() == [] and sp.last_results() is None
        """,
        method,
        kind,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_threads_and_tasks_of_workers(run: Program, tmp_path: Path, method: str) -> None:
    run(
        """
        context = multiprocessing.get_context(sys.argv[1])
        with sp.session(output="p.h5", verbose=False, track_async=True, follow_processes=True):
            process = context.Process(target=workers.concurrent, args=(4,)); process.start(); process.join()
        results = sp.load("p.h5")
        assert [thread.name for thread in results.threads[1]][:2] == ["MainThread", "helper"]
        assert [task.coro_name.endswith("job") for task in results.tasks[1]].count(True) == 4 and not results.tasks.get(0)
        assert counts(results, "job") == {1: 4} and counts(results, "inner") == {1: 4}
        assert len(set(results["job"][1].task_ids.tolist())) == 4
        """,
        method,
    )


# -- how workers end -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ending", ["fail", "leave", "leave_by_exit", "terminate", "kill", "late"])
def test_every_way_to_end(run: Program, tmp_path: Path, method: str, ending: str) -> None:
    run(
        """
        method, ending = sys.argv[1:]
        context = multiprocessing.get_context(method)
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            if ending in ("terminate", "kill"):
                ready = context.Event()
                process = context.Process(target=workers.hold, args=(1000, ready)); process.start()
                assert ready.wait(60)
                getattr(process, ending)()
            else:
                process = context.Process(target=getattr(workers, ending), args=(1000,)); process.start()
            process.join()
        codes = {"fail": 1, "leave": 7, "leave_by_exit": 3, "terminate": -15, "kill": -9, "late": 0}
        assert process.exitcode == codes[ending], process.exitcode
        results = sp.load("p.h5")
        expected = 2 if ending == "late" else 1
        assert counts(results, "work") == {1: expected} and counts(results, "inner") == {1: 1000 * expected}
        assert results.processes[1].pid == process.pid
        assert "recovered" not in results.metadata and "process_name" not in results.metadata
        assert left() == []
        """,
        method,
        ending,
        stderr=ending == "fail",
    )


@pytest.mark.slow
@pytest.mark.parametrize("outer", METHODS)
@pytest.mark.parametrize("inner", METHODS)
def test_workers_of_workers(run: Program, tmp_path: Path, outer: str, inner: str) -> None:
    run(
        """
        outer, inner = sys.argv[1:]
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            process = multiprocessing.get_context(outer).Process(target=workers.nest, args=(inner, 2), name="child")
            process.start(); process.join()
        results = sp.load("p.h5")
        assert names(results) == {0: "MainProcess", 1: "child", 2: "grandchild"}
        assert counts(results, "inner") == {1: 2, 2: 20}
        assert left() == []
        """,
        outer,
        inner,
    )


def test_processes_made_before_the_session_and_after_it(run: Program, tmp_path: Path) -> None:
    run(
        """
        context = multiprocessing.get_context("spawn")
        early = context.Process(target=workers.work, args=(2,), name="early")
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            late = context.Process(target=workers.work, args=(3,), name="late")
            early.start(); early.join()
        late.start(); late.join()
        assert late.exitcode == 0
        results = sp.load("p.h5")
        assert names(results) == {0: "MainProcess", 1: "early"} and counts(results, "inner") == {1: 2}
        """,
    )


# -- what workers do with the profiler ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_session_of_the_workers_own_has_a_file_of_its_own(run: Program, tmp_path: Path, method: str) -> None:
    run(
        """
        context = multiprocessing.get_context(sys.argv[1])
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            for target in (workers.own_session, workers.own_manager):
                process = context.Process(target=target, args=(target.__name__ + ".h5", 3)); process.start(); process.join()
                assert process.exitcode == 0
        results = sp.load("p.h5")
        by_worker = [sum(results["inner"][r].num_calls for r in results["inner"].ranks if results.processes[r].pid == p)
                     for p in {process.pid: 0 for process in results.processes.values()}]
        assert by_worker == [0, 15, 3], by_worker
        assert sp.load("own_session.h5")["inner"].num_calls == 6
        assert sp.load("own_manager.h5").region_names == ["scope_profiler.session", "own"]
        assert "own" not in results.region_names and counts(results, "scope_profiler.session") == {0: 1}
        assert left() == []
        """,
        method,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_settings_tags_metadata_and_names_reach_the_result(run: Program, tmp_path: Path, method: str) -> None:
    run(
        """
        context = multiprocessing.get_context(sys.argv[1])
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            process = context.Process(target=workers.annotated, args=("renamed",)); process.start(); process.join()
        results = sp.load("p.h5")
        assert names(results)[1] == "renamed"
        assert [values["step"] for values in results["work"][1].event_metadata] == ["renamed"]
        with sp.session(output="k.h5", verbose=False, follow_processes=True):
            process = context.Process(target=workers.annotated_and_killed, args=("kept",)); process.start(); process.join()
        assert [values["step"] for values in sp.load("k.h5")["work"][1].event_metadata] == ["kept"]
        with sp.session(output="q.h5", verbose=False, follow_processes=True, region_tags=["t"]):
            process = context.Process(target=workers.tagged); process.start(); process.join()
        assert sp.load("q.h5").region_names == ["scope_profiler.session", "wanted"]
        """,
        method,
    )


# -- runs ------------------------------------------------------------------------------------------------------------------------------


def test_the_default_and_programs_without_workers_are_untouched(run: Program, tmp_path: Path) -> None:
    run(
        """
        with sp.session(output="p.h5", verbose=False): pass
        assert "scope_profiler.following" not in sys.modules
        with sp.session(output="p.h5", verbose=False):
            context = multiprocessing.get_context("fork")
            process = context.Process(target=workers.work, args=(3,)); process.start(); process.join()
        assert sp.load("p.h5").region_names == ["scope_profiler.session"]
        with sp.session(output="q.h5", verbose=False, follow_processes=True):
            with sp.region("only"): pass
        results = sp.load("q.h5")
        assert results.num_ranks == 1 and len(results.processes) == 1 and left() == []
        """,
    )


@pytest.mark.parametrize("way", ["setup", "options", "toml", "decorator", "memory", "manager", "json"])
def test_every_way_to_ask_for_it(run: Program, tmp_path: Path, way: str) -> None:
    run(
        """
        way = sys.argv[1]
        def job():
            process = multiprocessing.get_context("fork").Process(target=workers.work, args=(6,)); process.start(); process.join()
        if way == "setup":
            sp.setup(output="p.h5", follow_processes=True); job(); results = sp.finalize(verbose=False, return_results=True)
        elif way == "options":
            with sp.session(sp.ProfilingOptions(file_path="p.h5", follow_processes=True), verbose=False): job()
            results = sp.load("p.h5")
        elif way == "toml":
            open("s.toml", "w").write("follow_processes = true\\n")
            with sp.session(config_path="s.toml", output="p.h5", verbose=False): job()
            results = sp.load("p.h5")
        elif way == "decorator":
            sp.session(output="p.h5", verbose=False, follow_processes=True)(job)()
            results = sp.load("p.h5")
        elif way == "memory":
            sp.setup(output=None, follow_processes=True); job(); sp.finalize(verbose=False); job()
            results = sp.finalize(verbose=False, return_results=True)
            assert counts(results, "inner") == {1: 6, 2: 6}, "without a file every finalize reports all calls"
            assert os.listdir(".") == sorted(["workers.py", "program.py", "__pycache__"]) or not left()
            sys.exit()
        elif way == "manager":
            manager = sp.ProfileManager()
            def decorated():
                with manager.region("of the manager"): pass
            with manager.session(output="p.h5", verbose=False, follow_processes=True):
                process = multiprocessing.get_context("fork").Process(target=decorated); process.start(); process.join()
            assert counts(sp.load("p.h5"), "of the manager") == {1: 1}
            sys.exit()
        else:
            with sp.session(output="p.json", verbose=False, follow_processes=True): job()
            results = sp.load("p.json")
        assert counts(results, "inner") == {1: 6}, counts(results, "inner")
        """,
        way,
    )
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".workers", ".spool")]


def test_checkpoints_have_each_call_once(run: Program, tmp_path: Path) -> None:
    run(
        """
        context = multiprocessing.get_context("fork")
        def job(calls):
            process = context.Process(target=workers.work, args=(calls,)); process.start(); process.join()
        sp.setup(output="p.h5", follow_processes=True, checkpoint="numbered")
        ready = context.Event()
        alive = context.Process(target=workers.hold, args=(100, ready)); alive.start(); assert ready.wait(60)
        job(3); sp.finalize(verbose=False)
        job(4); sp.finalize(verbose=False)
        alive.kill(); alive.join(); sp.finalize(verbose=False)
        found = [sp.load(f"p.000{i}.h5") for i in (1, 2, 3)]
        assert [list(counts(one, "inner").values()) for one in found] == [[3], [4], [100]]
        """,
    )
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".workers", ".spool")]


def test_a_failed_write_keeps_what_workers_recorded(run: Program, tmp_path: Path) -> None:
    run(
        """
        os.mkdir("d")
        try:
            with sp.session(output="d/p.h5", verbose=False, follow_processes=True):
                process = multiprocessing.get_context("fork").Process(target=workers.work, args=(6,)); process.start(); process.join()
                os.mkdir("d/p.h5")
        except OSError: pass
        else: raise SystemExit("written over a directory")
        assert len([name for name in os.listdir("d") if name.endswith(".workers")]) == 1
        os.rmdir("d/p.h5")
        sp.finalize(verbose=False)
        assert counts(sp.load("d/p.h5"), "inner") == {1: 6}
        assert os.listdir("d") == ["p.h5"]
        """,
    )


def killed_parent(run: Program, directory: Path, output: str, calls: int) -> tuple[Path, Path]:
    """The spool of a process that was killed behind so many calls and a worker with six, and the directory of the worker."""
    run(
        """
        import signal
        if os.fork():
            os.wait()
            sys.exit()
        output, calls = sys.argv[1:]
        sp.setup(output=output, follow_processes=True)
        for _ in range(int(calls)):
            with sp.region("parent"): pass
        process = multiprocessing.get_context("fork").Process(target=workers.work, args=(6,)); process.start(); process.join()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        output,
        str(calls),
    )
    (spool,) = directory.glob(f"{output}.*.spool")
    (workers,) = directory.glob(f"{output}.*.workers")
    return spool, workers


def test_a_parent_that_is_killed_leaves_what_can_be_merged(run: Program, tmp_path: Path) -> None:
    from scope_profiler.processes import merge_files

    spool, directory = killed_parent(run, tmp_path, "p.h5", 1)
    merged = merge_files([spool, *sorted(directory.glob("*.h5"))])
    assert [merged["parent"][0].num_calls, merged["inner"][1].num_calls] == [1, 6]


def test_recover_says_how_the_workers_calls_are_put_with_their_parents(run: Program, tmp_path: Path) -> None:
    spool, directory = killed_parent(run, tmp_path, "a run's.h5", 1)
    texts = []
    for command in COMMANDS:  # each leaves everything that is needed
        target = tmp_path / "p.h5"
        process = subprocess.run([*command, "recover", spool.name, "-o", target.name], cwd=tmp_path, capture_output=True, text=True)
        assert process.returncode == 0 and process.stderr == "" and spool.exists()
        texts.append(process.stdout)
        wrote, told = process.stdout.splitlines()
        assert wrote == "wrote p.h5: 1 call of 1 region" and sp.load(target).region_names == ["parent"]
        assert told.startswith(f"the calls of its worker processes are not in it, so {spool.name} stays; all of them: scope-profiler merge ")
        words = shlex.split(told.partition("scope-profiler ")[2])
        assert words == ["merge", spool.name, f"{directory.name}/*", "-o", "p.h5"]
        subprocess.run(["sh", "-c", f'"$@" {told.partition("scope-profiler ")[2]}', "-", *command], cwd=tmp_path, check=True, capture_output=True)
        merged = sp.load(target)
        assert [merged["parent"][0].num_calls, merged["inner"][1].num_calls] == [1, 6]
    assert len(set(texts)) == 1
    shutil.rmtree(directory)
    directory.mkdir()  # nothing is in it: nothing is told, and the spool is of no use any more
    process = subprocess.run([*COMMANDS[-1], "recover", spool.name, "-o", "q.h5"], cwd=tmp_path, capture_output=True, text=True)
    assert process.stdout == "wrote q.h5: 1 call of 1 region\n" and not spool.exists()


def test_the_spool_of_a_parent_without_calls_stays_with_those_of_its_workers(run: Program, tmp_path: Path) -> None:
    """Else nobody would ever be told of them."""
    spool, _ = killed_parent(run, tmp_path, "p.h5", 0)
    with pytest.warns(RuntimeWarning, match=f"scope-profiler recover .*{spool.name}"):
        with sp.ProfileManager().session(output=tmp_path / "p.h5", verbose=False):
            pass
    assert spool.exists()
    process = subprocess.run([sys.executable, "-m", "scope_profiler", "recover", spool.name], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 1 and spool.exists()
    none, told = process.stdout.splitlines()
    assert none == f"{spool.name} holds no call that is not written" and told.endswith("-o p.recovered.h5")


def test_a_fork_without_multiprocessing_stands_down(run: Program, tmp_path: Path) -> None:
    run(
        """
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            pid = os.fork()
            if pid == 0:
                workers.work(5)
                os._exit(0)
            os.waitpid(pid, 0)
        results = sp.load("p.h5")
        assert results.num_ranks == 1 and results.region_names == ["scope_profiler.session"]
        assert left() == []
        """,
    )


def test_a_worker_whose_parent_is_done_records_no_further(run: Program, tmp_path: Path) -> None:
    """It stops when its spool would grow: nobody would ever read that."""
    run(
        """
        context = multiprocessing.get_context("fork")
        go, done = context.Event(), context.Event()
        def body():
            go.wait()
            import glob
            workers.work(400_000)
            # The parent's spool is gone too, and has a page or two.
            links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")}
            own = [fd for fd, link in links.items() if ".workers/" in link and link.endswith(".spool (deleted)")]
            assert len(own) == 1 and os.stat(f"/proc/self/fd/{own[0]}").st_size < 6 << 20  # 400,000 calls take 9.6 MB
        with sp.session(output="p.h5", verbose=False, follow_processes=True):
            process = context.Process(target=body); process.start()
            time.sleep(0.2)
        go.set(); process.join()
        assert process.exitcode == 0 and left() == []
        """,
    )


def test_bad_values_are_refused() -> None:
    with pytest.raises(TypeError, match="follow_processes must be True or False"):
        sp.session(follow_processes="yes")  # type: ignore[arg-type]
