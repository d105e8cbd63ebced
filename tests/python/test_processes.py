"""Processes made during a run: forked children stand down, workers profile themselves, the parent's profile is its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from manager_helpers import counts

HEAD = """
import asyncio, os, sys, threading, time, warnings
import scope_profiler as sp
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)

def enter(name, manager=sp):
    with manager.region(name): pass

def child(function, status=0):
    # Run in a forked child, which ends at once; this process waits for it.
    pid = os.fork()
    if not pid:
        code = 99
        try:
            function(); code = status
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            os._exit(code)
    wait(pid, status)

def wait(pid, status=0):
    deadline = time.monotonic() + 60
    while True:
        got, raw = os.waitpid(pid, os.WNOHANG)
        if got: break
        if time.monotonic() > deadline:
            os.kill(pid, 9); os.waitpid(pid, 0); raise SystemExit("the child hangs")
        time.sleep(0.001)
    code = os.waitstatus_to_exitcode(raw)
    assert code == status, code

def on_thread(function, name=None):
    thread = threading.Thread(target=function, name=name); thread.start(); thread.join()

async def job(manager=sp):
    with manager.region("job"):
        await asyncio.sleep(0)

async def jobs(count, manager=sp):
    await asyncio.gather(*(job(manager) for _ in range(count)))

def files(): return sorted(name for name in os.listdir(".") if name.endswith(".h5"))
"""

Program = Callable[..., subprocess.CompletedProcess[str]]


def run(python: Program, body: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    process = python(HEAD + textwrap.dedent(body), *arguments, check=check)
    assert process.stderr == "", process.stderr
    return process


# -- standing down -------------------------------------------------------------------------------------------------------


def test_no_hook_of_any_kind_is_left_in_the_child(python: Program) -> None:
    run(
        python,
        """
        before = asyncio.BaseEventLoop.create_task, list(sys.meta_path)
        with sp.session(output="p.h5", verbose=False, track_async=True):
            asyncio.run(jobs(3))
            def standing():
                assert threading._profile_hook is None
                assert (asyncio.BaseEventLoop.create_task, list(sys.meta_path)) == before
                if "greenlet" in sys.modules:
                    assert sys.modules["greenlet"].gettrace() is None
            child(standing)
            assert asyncio.BaseEventLoop.create_task is not before[0], "the parent's are in place"
            assert threading._profile_hook is not None
        """,
    )


def test_hooks_of_the_application_are_what_the_child_has(python: Program) -> None:
    run(
        python,
        """
        seen = []
        def profile(*event): seen.append(event[1])
        threading.setprofile(profile)
        with sp.session(output="p.h5", verbose=False, track_threads=True):
            def standing():
                assert threading._profile_hook is profile
                on_thread(lambda: None)
                assert seen
            child(standing)
        assert threading._profile_hook is profile
        """,
    )


def test_hooks_of_every_manager_come_out(python: Program) -> None:
    run(
        python,
        """
        create_task = asyncio.BaseEventLoop.create_task
        managers = [sp.ProfileManager() for _ in range(3)]
        for manager in managers: manager.setup(output=None, track_async=True)
        managers[1].reset()
        def standing():
            assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task
            asyncio.run(jobs(2)); on_thread(lambda: None)
            for manager in (managers[0], managers[2]):
                assert manager.get_config().tracker.tasks == [] == manager.get_config().tracker.threads
        child(standing)
        for manager in managers: manager.reset()
        assert threading._profile_hook is None and asyncio.BaseEventLoop.create_task is create_task
        """,
    )


def test_tables_do_not_grow_in_a_child_that_works_for_long(python: Program) -> None:
    run(
        python,
        """
        with sp.session(output="p.h5", verbose=False, track_async=True) as session:
            on_thread(lambda: asyncio.run(jobs(5)))
            tracker = sp.ProfileManager.get_config().tracker
            def long_lived():
                async def idle(): await asyncio.sleep(0)
                async def serve():
                    for _ in range(300): await asyncio.gather(*(idle() for _ in range(10)))
                asyncio.run(serve())
                for _ in range(50): on_thread(lambda: None)
                assert tracker.tasks == [] and tracker.threads == []
                run = sp.ProfileManager._state.recording.run.tables()
                assert not (run.threads and run.threads["index"]) and not (run.tasks and run.tasks["index"])
            child(long_lived)
        """,
    )


def test_regions_work_in_the_child_in_its_threads_and_tasks(python: Program) -> None:
    run(
        python,
        """
        region = sp.region("made before")
        decorated = sp.profile("decorated")(lambda: None)
        with sp.session(output="p.h5", verbose=False, track_async=True):
            enter("before")
            def working():
                with region: decorated()
                on_thread(lambda: enter("on a thread"))
                asyncio.run(jobs(1))  # one after the other: tasks are no lanes here
                asyncio.run(jobs(1))
                results = sp.finalize(verbose=False, return_results=True)
                found = {name: results[name].num_calls for name in results.region_names}
                assert found == {"before": 1, "made before": 1, "decorated": 1, "on a thread": 1, "job": 2}, found
            child(working)
            decorated()
        """,
    )


@pytest.mark.parametrize("where", ["task", "greenlet", "generator"])
def test_a_fork_inside_of_a_lane(python: Program, where: str) -> None:
    """The child goes on in the middle of a task, a greenlet or a generator, whose regions are open."""
    if where == "greenlet":
        pytest.importorskip("greenlet")
    run(
        python,
        """
        where = sys.argv[1]
        def split():
            global forked
            with sp.region("open"):
                enter("before")
                forked = os.fork()
                enter("after")
        async def task():
            split()
            await asyncio.sleep(0)
            with sp.region("later"): await asyncio.sleep(0)
        def lane(switch):
            split()
            switch()
            enter("later")
        def generator():
            split()
            yield
            enter("later")
        forked = None
        with sp.session(output="p.h5", verbose=False, track_async=True) as session:
            if where == "task":
                asyncio.run(task())
            elif where == "greenlet":
                import greenlet
                fiber = greenlet.greenlet(lane); fiber.switch(greenlet.getcurrent().switch); fiber.switch()
                assert fiber.dead
            else:
                list(generator())
            if not forked:
                results = sp.finalize(verbose=False, return_results=True)
                found = {name: results[name].num_calls for name in results.region_names}
                assert found == {"before": 1, "after": 1, "open": 1, "later": 1}, found
                os._exit(0)
            wait(forked)
        results = sp.load("p.h5")
        assert {n: results[n].num_calls for n in ("before", "after", "open", "later")} == dict.fromkeys(
            ("before", "after", "open", "later"), 1)
        """,
        where,
    )


# -- finalize in the child ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tracking", ["", "track_threads=True", "track_async=True"])
def test_an_explicit_finalize_in_the_child_reports_and_writes_both(python: Program, tracking: str) -> None:
    """The parent's calls before the fork and the child's own: returned, and in the file that the parent then replaces."""
    run(
        python,
        f"""
        with sp.session(output="p.h5", verbose=False, return_results=True, {tracking}) as session:
            for _ in range(3): enter("before")
            asyncio.run(jobs(1))
            def report():
                enter("child")
                asyncio.run(jobs(1))
                results = sp.finalize(verbose=False, return_results=True)
                expected = {{"before": 3, "child": 1, "job": 2}}
                for profile in (results, sp.load("p.h5")):
                    assert {{n: profile[n].num_calls for n in profile.region_names}} == expected
                    assert not profile.tasks.get(0) and not profile.threads.get(0), "inherited tables are dropped"
                    assert profile.thread_summary() == []
                    profile.summary(); len(profile.call_graph())
            child(report)
            enter("after")
        assert session.results["before"].num_calls == 3 and "child" not in session.results.region_names
        names = sp.load("p.h5").region_names
        assert "after" in names and "child" not in names
        """,
    )


def test_a_child_may_finalize_while_the_parent_still_has_open_calls(python: Program) -> None:
    """Calls that the child has left are closed in its report; those still open are in no report yet."""
    run(
        python,
        """
        with sp.session(output="p.h5", verbose=False, track_threads=True):
            with sp.region("outer"):
                with sp.region("inner"):
                    pid = os.fork()
                if not pid:
                    results = sp.finalize(verbose=False, return_results=True)
                    assert results.region_names == ["inner"], results.region_names
                    os._exit(0)
                wait(pid)
        assert sorted(sp.load("p.h5").region_names) == ["inner", "outer", "scope_profiler.session"]
        """,
    )


def test_the_child_leaves_the_spool_of_the_parent_alone(python: Program) -> None:
    run(
        python,
        """
        def spools(): return {name: os.stat(name).st_size for name in os.listdir(".") if ".spool" in name}
        with sp.session(output="p.h5", verbose=False, spool=True):
            for _ in range(1000): enter("parent")
            before = spools()
            assert len(before) == 1
            def child_work():
                for _ in range(20000): enter("child")
                sp.finalize(verbose=False)
                sp.reset()
            child(child_work)
            assert spools() == before
            enter("after")
            (name,) = before
            assert sp.load(name)["parent"].num_calls == 1000 and "child" not in sp.load(name).region_names
        assert spools() == {}
        assert sp.load("p.h5")["parent"].num_calls == 1000
        """,
    )


# -- unwinding -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", ["pass", "sys.exit(5)", "raise KeyError('child')", "os._exit(6)", "os.kill(os.getpid(), 15)", "return"]
)
@pytest.mark.parametrize("opened", ["session", "setup"])
def test_a_child_that_unwinds_the_parents_blocks_writes_and_prints_nothing(
    python: Program, tmp_path: Path, end: str, opened: str
) -> None:
    """However it leaves: no file, no output, and its exit status is its own."""
    expected = {"pass": 0, "return": 0, "sys.exit(5)": 5, "raise KeyError('child')": 1, "os._exit(6)": 6}.get(end, -15)
    process = python(
        HEAD
        + textwrap.dedent(
            """
            def program():
                global pid
                with sp.region("outer"), sp.region("inner"):
                    pid = os.fork()
                    if not pid:
                        for number, name in enumerate(("child.out", "child.err"), 1):
                            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), number)
                        enter("child")
                        %s
            def parent():
                wait(pid, int(sys.argv[1]))
                assert files() == [], files()
            if sys.argv[2] == "session":
                with sp.session(output="p.h5", track_async=True):
                    program()
                    if pid: parent()
            else:
                sp.setup(output="p.h5", track_async=True, auto_finalize=True)
                program()
                if pid: parent()
            """
            % end
        ),
        str(expected),
        opened,
    )
    assert process.stderr == "" and process.stdout.count("inner") == 1, "the parent prints its table, once"
    out, err = ((tmp_path / f"child.{name}").read_text() for name in ("out", "err"))
    assert out == ""
    assert err == "" or (end.startswith("raise") and err.rstrip().endswith("KeyError: 'child'")), err
    assert {"inner", "outer"} <= set(sp.load(tmp_path / "p.h5").region_names)
    assert "child" not in sp.load(tmp_path / "p.h5").region_names


# -- threads ------------------------------------------------------------------------------------------------------------------------


def test_a_fork_on_a_thread_of_its_own(python: Program) -> None:
    """The forking thread is all that the child has: it records, finalizes, and may have a session."""
    run(
        python,
        """
        with sp.session(output="p.h5", verbose=False, track_async=True) as session:
            enter("main")
            def worker():
                with sp.region("worker"):
                    pid = os.fork()
                    if not pid:
                        code = 99
                        try:
                            enter("child")
                            assert threading.main_thread() is threading.current_thread()
                            manager = sp.ProfileManager()
                            with manager.session(output="c.h5", verbose=False, track_async=True) as own:
                                asyncio.run(jobs(2, manager))
                                on_thread(lambda: enter("t", manager), "second")
                            loaded = sp.load("c.h5")
                            assert len(loaded.threads[0]) == 2 and loaded["job"].num_calls == 2
                            results = sp.finalize(verbose=False, return_results=True)
                            assert results.region_names == ["main", "child"], results.region_names
                            code = 0
                        except BaseException:
                            import traceback; traceback.print_exc()
                        finally:
                            os._exit(code)
                    wait(pid)
            on_thread(worker, "worker")
        loaded = sp.load("p.h5")
        assert loaded["worker"].num_calls == 1 and "child" not in loaded.region_names
        assert [row.name for row in loaded.threads[0]] == ["MainThread", "worker"]
        """,
    )


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="free-threaded Python forks while locks of its objects are being handed over to threads that the child does not have",
)
def test_forks_while_other_threads_record_and_start_and_end(python: Program, soak: bool) -> None:
    """No lock that another thread held at the fork is waited for in the child, whatever the child then does.

    Without the GIL no program of several threads can ask for that: a lock for which a thread has waited a millisecond is handed
    over to it still locked, the fork may come before that thread goes on, and nobody unlocks it in the child. Children then hang
    in threading's own handler of forks, or in an import at ``sys.modules``. ``tests/c/test_registry.c`` asks it of the core alone.
    """
    run(
        python,
        """
        sys.setswitchinterval(1e-6)
        forks = int(sys.argv[1])
        stop = threading.Event()
        made = [0, 0, 0]
        def churn(which):
            while not stop.is_set():
                def short():
                    for i in range(5): enter(f"n{(made[which] + i) % 40}")
                on_thread(short)
                made[which] += 5
        def loops():
            while not stop.is_set():
                asyncio.run(jobs(3)); made[2] += 3
        def checkpoints():
            while not stop.is_set():
                sp.finalize(verbose=False); time.sleep(0.001)
        def work(number):
            def body():
                if number % 3 == 0:
                    on_thread(lambda: [enter(f"n{i}") for i in range(40)])
                    asyncio.run(jobs(2))
                elif number % 3 == 1:
                    sp.finalize(verbose=False, return_results=True)
                else:
                    sp.reset()
                    with sp.session(output=None, verbose=False, return_results=True, track_async=True) as own:
                        asyncio.run(jobs(3)); on_thread(lambda: enter("own"))
                    assert own.results["job"].num_calls == 3 and len(own.results.threads[0]) == 2
            return body
        sp.setup(output=None, track_async=True)
        threads = [threading.Thread(target=churn, args=(0,)), threading.Thread(target=churn, args=(1,)),
                   threading.Thread(target=loops), threading.Thread(target=checkpoints)]
        for thread in threads: thread.start()
        for number in range(forks): child(work(number))
        stop.set()
        for thread in threads: thread.join()
        results = sp.finalize(verbose=False, return_results=True)
        calls = {name: results[name].num_calls for name in results.region_names}
        assert calls.pop("job") == made[2] and sum(calls.values()) == made[0] + made[1]
        sp.reset()
        """,
        "300" if soak else "12",
    )


def test_grandchildren(python: Program) -> None:
    run(
        python,
        """
        with sp.session(output="p.h5", verbose=False, track_async=True):
            enter("parent")
            def first():
                enter("child")
                def second():
                    enter("grandchild")
                    results = sp.finalize(verbose=False, return_results=True)
                    assert results.region_names == ["parent", "child", "grandchild"]
                child(second)
                with sp.ProfileManager().session(output="c.h5", verbose=False, track_async=True):
                    asyncio.run(jobs(1))
                    child(lambda: sp.ProfileManager().setup(output=None, track_async=True))
                assert sp.finalize(verbose=False, return_results=True).region_names == ["parent", "child", "job"]
            child(first)
        assert sp.load("p.h5").region_names == ["scope_profiler.session", "parent"]
        """,
    )


def test_a_child_that_outlives_its_parent(python: Program, tmp_path: Path) -> None:
    run(
        python,
        """
        parent = os.getpid()
        with sp.session(output="p.h5", verbose=False, track_async=True):
            enter("parent")
            pid = os.fork()
        if pid: sys.exit(0)
        os.close(1); os.close(2)
        while os.getppid() == parent:
            enter("orphan"); time.sleep(0.001)
        manager = sp.ProfileManager()
        with manager.session(output="orphan.h5.part", verbose=False, track_async=True):
            asyncio.run(jobs(3, manager))
        os.rename("orphan.h5.part", "orphan.h5")
        """,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "orphan.h5").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counts(sp.load(tmp_path / "orphan.h5")) == {"job": 3}
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1}


# -- pools -----------------------------------------------------------------------------------------------------------------------------

WORKERS = """
import asyncio, os, threading
import scope_profiler as sp

async def job(manager, number):
    with manager.region("job"):
        await asyncio.sleep(0.001 * number)

async def jobs(manager, count):
    await asyncio.gather(*(job(manager, number) for number in range(count)))

def work(index):
    # A worker that profiles itself into a file of its own.
    manager = sp.ProfileManager()
    with manager.session(file_path=f"worker_{index}.h5", track_async=True, verbose=False):
        asyncio.run(jobs(manager, index + 1))
        thread = threading.Thread(target=manager.region, args=("made on a thread",), name="helper")
        thread.start(); thread.join()
    return index, os.getpid()

def work_with_the_default_manager(index):
    with sp.session(output=f"worker_{index}.h5", track_async=True, verbose=False):
        asyncio.run(jobs(sp, index + 1))
    return index, os.getpid()

def fail(index):
    with sp.session(output=f"worker_{index}.h5", track_threads=True, verbose=False):
        with sp.region("failing"):
            raise ValueError(index)

def die(index):
    with sp.region("dying"):
        os._exit(3)
"""


def check_worker(path: Path, index: int) -> None:
    results = sp.load(path)
    assert counts(results) == {"job": index + 1}
    job = results["job"][0]
    assert len(set(job.task_ids.tolist())) == index + 1 and -1 not in job.task_ids
    assert (job.await_times >= 0).all() and (job.await_times <= job.durations).all()
    rows = [row for row in results.tasks[0] if row.coro_name == "job"]
    assert len(rows) == index + 1 and all(row.done for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("pool", ["Pool", "ProcessPoolExecutor"])
def test_workers_of_a_pool_have_sessions_of_their_own(
    python: Program, tmp_path: Path, method: str, pool: str
) -> None:
    """Under every start method, from within a session of the parent that is active all along."""
    (tmp_path / "workers.py").write_text(WORKERS)
    process = run(
        python,
        """
        import multiprocessing, workers
        from concurrent.futures import ProcessPoolExecutor
        if __name__ == "__main__":
            method, kind = sys.argv[1:]
            context = multiprocessing.get_context(method)
            with sp.session(output="p.h5", verbose=False, track_async=True):
                asyncio.run(jobs(2))
                if kind == "Pool":
                    with context.Pool(2, maxtasksperchild=2) as pool:
                        done = pool.map(workers.work, range(3), chunksize=1)
                        done += pool.map(workers.work_with_the_default_manager, range(3, 5), chunksize=1)
                else:
                    with ProcessPoolExecutor(2, mp_context=context) as pool:
                        done = list(pool.map(workers.work, range(3)))
                        done += pool.map(workers.work_with_the_default_manager, range(3, 5))
                asyncio.run(jobs(2))
            assert [index for index, _ in done] == [0, 1, 2, 3, 4]
            assert os.getpid() not in {pid for _, pid in done}
        """,
        method,
        pool,
    )
    assert process.stdout == ""
    for index in range(5):
        check_worker(tmp_path / f"worker_{index}.h5", index)
    parent = sp.load(tmp_path / "p.h5")
    assert counts(parent) == {"job": 4}
    assert sorted(path.name for path in tmp_path.glob("*.spool")) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_fail_and_die(python: Program, tmp_path: Path, method: str) -> None:
    """An exception reaches the parent and its worker's file is written; a worker that dies breaks the pool, nothing else."""
    (tmp_path / "workers.py").write_text(WORKERS)
    run(
        python,
        """
        import multiprocessing, workers
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            with sp.session(output="p.h5", verbose=False, track_async=True):
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    try: pool.submit(workers.fail, 7).result()
                    except ValueError as error: assert error.args == (7,)
                    else: raise SystemExit("no error")
                    try: pool.submit(workers.die, 0).result()
                    except BrokenProcessPool: pass
                    else: raise SystemExit("not broken")
                enter("parent")
        """,
        method,
    )
    assert counts(sp.load(tmp_path / "worker_7.h5")) == {"failing": 1}
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1}


def test_a_process_object_and_its_subclass(python: Program, tmp_path: Path) -> None:
    run(
        python,
        """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        class Worker(context.Process):
            def run(self):
                enter("in the child")
                assert threading._profile_hook is None
                with sp.ProfileManager().session(output="own.h5", verbose=False, track_async=True):
                    asyncio.run(jobs(2))
        with sp.session(output="p.h5", verbose=False, track_async=True):
            worker = Worker(); worker.start(); worker.join()
            assert worker.exitcode == 0
            plain = context.Process(target=sys.exit, args=(4,)); plain.start(); plain.join()
            assert plain.exitcode == 4
        """,
    )
    assert counts(sp.load(tmp_path / "p.h5")) == {}
    assert sp.load(tmp_path / "own.h5").region_names == ["scope_profiler.session"]


def test_programs_that_are_started_during_a_session(python: Program, tmp_path: Path) -> None:
    """subprocess, with and without a function that runs between fork and exec, and asyncio's subprocesses."""
    run(
        python,
        """
        import subprocess
        command = [sys.executable, "-c", "print('out')"]
        with sp.session(output="p.h5", verbose=False, track_async=True):
            for extra in ({}, {"preexec_fn": lambda: enter("between fork and exec")}):
                assert subprocess.run(command, capture_output=True, text=True, **extra).stdout == "out\\n"
            async def main():
                process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                return (await process.communicate())[0]
            assert asyncio.run(main()) == b"out\\n"
            enter("parent")
        """,
    )
    assert counts(sp.load(tmp_path / "p.h5")) == {"parent": 1}


# -- os._exit ----------------------------------------------------------------------------------------------------------------------------


def test_os_exit_of_the_parent(python: Program, tmp_path: Path) -> None:
    """The process ends at once: status kept, nothing printed, no broken file; the calls are in the spool."""
    process = run(
        python,
        """
        def worker():
            while True: enter("thread")
        with sp.session(output="p.h5", track_async=True, spool=True):
            threading.Thread(target=worker, daemon=True).start()
            async def main():
                enter("task")
                os._exit(7)
            asyncio.run(main())
        """,
        check=False,
    )
    assert (process.returncode, process.stdout) == (7, "")
    assert not (tmp_path / "p.h5").exists()
    (spool,) = tmp_path.glob("*.spool")
    results: Any = sp.load(spool)
    assert results["task"].num_calls == 1
    assert {row.coro_name for row in results.tasks[0]} == {"main"}
