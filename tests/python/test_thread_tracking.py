"""`track_threads`, one statement of the guide after the other, with real threads."""

from __future__ import annotations

import _thread
import cProfile
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp

pytestmark = pytest.mark.usefixtures("clean_manager")

NS = 1e-9


def tracked(**settings: Any) -> Any:
    return sp.session(track_threads=True, output=None, verbose=False, return_results=True, **settings)


def burn(seconds: float) -> None:
    """Use CPU time on the calling thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def row(results: sp.ProfilingResults, name: str) -> Any:
    rows = [thread for thread in results.threads[0] if thread.name == name]
    assert len(rows) == 1, (name, [thread.name for thread in results.threads[0]])
    return rows[0]


def relative(results: sp.ProfilingResults, ns: int) -> float:
    """A reading of perf_counter_ns() as the thread table has it: seconds since the start of the run."""
    return (ns - int(results.metadata["start_time_ns"])) * NS


def wait_for_exit(native_id: int) -> None:
    """Until the system knows the thread no more."""
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/self/task/{native_id}"):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def hooks_stay_as_they_are() -> Iterator[None]:
    before = threading.getprofile(), sys.getprofile()
    yield
    sp.reset()
    assert (threading.getprofile(), sys.getprofile()) == before
    threading.setprofile(None)  # type: ignore[arg-type]


# -- calls ---------------------------------------------------------------------------------------------------------------


def test_every_call_carries_the_thread_it_ran_on() -> None:
    def work(count: int) -> None:
        for _ in range(count):
            with sp.region("work"):
                pass

    with tracked() as run:
        threads = [threading.Thread(target=work, args=(count,), name=f"w{count}") for count in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        work(4)

    work_region = run.results["work"][0]
    assert work_region.thread_ids.dtype == np.int64
    counts = {row(run.results, f"w{count}").index: count for count in (1, 2, 3)}
    counts[row(run.results, "MainThread").index] = 4
    assert work_region.threads == sorted(counts)
    assert {index: work_region.for_thread(index).num_calls for index in work_region.threads} == counts
    assert work_region.for_thread(99).num_calls == 0


def test_nesting_is_reconstructed_for_each_thread() -> None:
    ready = threading.Barrier(2)

    def work() -> None:
        with sp.region("outer"):
            ready.wait()
            with sp.region("inner"):
                ready.wait()
            ready.wait()

    with tracked() as run:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    outer, inner = run.results["outer"][0], run.results["inner"][0]
    for index in outer.threads:
        out, into = outer.for_thread(index), inner.for_thread(index)
        assert out.exclusive_durations_ns[0] == out.durations_ns[0] - into.durations_ns[0]
        assert into.parent_ids[0] == out.call_ids[0]
    depths = {entry["name"]: entry["depth"] for entry in run.results.call_graph()}
    assert depths == {"scope_profiler.session": 0, "outer": 0, "inner": 1}


def test_a_call_belongs_to_the_thread_that_entered_it() -> None:
    region = sp.region("moved")

    with tracked() as run:
        context = sp.region("moved")
        context.__enter__()
        closed: list[int] = []

        def close() -> None:
            context.__exit__(None, None, None)
            closed.append(time.perf_counter_ns())

        thread = threading.Thread(target=close, name="closer")
        thread.start()
        thread.join()

    moved = run.results["moved"][0]
    assert moved.num_calls == 1
    assert moved.thread_ids[0] == row(run.results, "MainThread").index
    assert abs(int(moved.end_times_ns[0]) - closed[0]) < 50_000_000
    assert moved.end_times_ns[0] <= closed[0]
    del region


# -- the rows ------------------------------------------------------------------------------------------------------------


def test_a_row_describes_its_thread() -> None:
    seen: dict[str, Any] = {}

    def work() -> None:
        seen.update(ident=threading.get_ident(), native_id=threading.get_native_id())
        with sp.region("work"):
            pass

    with tracked() as run:
        thread = threading.Thread(target=work, name="worker", daemon=True)
        thread.start()
        thread.join()

    worker = row(run.results, "worker")
    assert (worker.ident, worker.native_id) == (seen["ident"], seen["native_id"])
    assert worker.daemon is True and worker.rank == 0
    assert [thread.index for thread in run.results.threads[0]] == list(range(len(run.results.threads[0])))
    main = row(run.results, "MainThread")
    assert main.daemon is False and main.native_id == threading.get_native_id()


def test_start_end_and_cpu_time_are_exact() -> None:
    at: dict[str, int] = {}

    def work() -> None:
        at["first"] = time.perf_counter_ns()
        with sp.region("work"):
            burn(0.03)
        at["cpu"] = time.thread_time_ns()
        at["last"] = time.perf_counter_ns()

    with tracked() as run:
        at["before"] = time.perf_counter_ns()
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
        at["joined"] = time.perf_counter_ns()

    worker = row(run.results, "worker")
    slack = 1e-6
    assert (
        relative(run.results, at["before"]) - slack <= worker.start_time <= relative(run.results, at["first"]) + slack
    )
    assert not worker.alive
    assert relative(run.results, at["last"]) - slack <= worker.end_time <= relative(run.results, at["joined"]) + slack
    assert at["cpu"] * NS <= worker.cpu_time <= at["cpu"] * NS + 0.005
    assert worker.wall_time == pytest.approx(worker.end_time - worker.start_time, abs=1e-12)
    assert worker.cpu_time <= worker.wall_time + 0.01


def test_a_thread_that_was_joined_has_ended_at_once() -> None:
    with tracked():
        for number in range(200):
            thread = threading.Thread(target=lambda: None, name=f"t{number}")
            thread.start()
            thread.join()
            if number % 20 == 0:
                results = sp.finalize(verbose=False, return_results=True)
                assert [t.name for t in results.threads[0] if t.alive] == ["MainThread"]


def test_cpu_time_of_a_thread_that_is_alive_is_read_at_collection() -> None:
    burnt, release = threading.Event(), threading.Event()
    cpu: list[float] = []

    def work() -> None:
        with sp.region("first"):
            pass
        burn(0.2)  # long after its only region
        cpu.append(time.thread_time())
        burnt.set()
        release.wait()

    thread = threading.Thread(target=work, name="burner")
    with tracked() as run:
        thread.start()
        burnt.wait()
    release.set()
    thread.join()

    burner = row(run.results, "burner")
    assert burner.alive and burner.end_time is None and burner.wall_time is None
    assert cpu[0] <= burner.cpu_time <= cpu[0] + 0.02


def test_cpu_time_of_the_main_thread_is_that_of_its_whole_life() -> None:
    with tracked() as run:
        with sp.region("work"):
            burn(0.01)
        before = time.thread_time()
    after = time.thread_time()
    main = row(run.results, "MainThread")
    assert before <= main.cpu_time <= after
    assert main.alive and not main.daemon


def test_what_a_thread_burned_before_the_run_is_told_apart() -> None:
    bounds: list[float] = []
    ready, go = threading.Event(), threading.Event()

    def early() -> None:
        burn(0.05)
        ready.set()
        go.wait()
        burn(0.02)
        bounds.append(time.thread_time())
        with sp.region("late"):
            bounds.append(time.thread_time())
            burn(0.01)

    old = threading.Thread(target=early, name="early")
    old.start()
    ready.wait()
    burn(0.05)
    begin = time.thread_time()
    with tracked() as run:
        entered = time.thread_time()
        burn(0.02)
        new = threading.Thread(target=burn, args=(0.02,), name="new")
        new.start()
        new.join()
        go.set()
        old.join()
        left = time.thread_time()
    end = time.thread_time()
    main = row(run.results, "MainThread")
    assert begin <= main.cpu_before <= entered
    assert left - entered <= main.run_cpu_time <= end - begin
    late = row(run.results, "early")
    assert bounds[0] <= late.cpu_before <= bounds[1]  # its row begins with its first region
    assert late.run_cpu_time == pytest.approx(late.cpu_time - late.cpu_before) and late.run_cpu_time >= 0.01
    fresh = row(run.results, "new")
    assert fresh.cpu_before == 0.0 and fresh.run_cpu_time == fresh.cpu_time >= 0.02


def test_the_thread_that_opens_a_run_counts_from_there() -> None:
    begin = time.thread_time()
    sp.setup(output=None, track_threads=True)
    opened = time.thread_time()
    burn(0.05)  # before its first region
    with sp.region("first"):
        pass
    main = row(sp.finalize(verbose=False, return_results=True), "MainThread")
    assert begin <= main.cpu_before <= opened and main.run_cpu_time >= 0.05


@pytest.mark.parametrize("name", ["run.h5", "run.json"])
def test_files_keep_what_a_thread_burned_before(tmp_path: Any, name: str) -> None:
    burn(0.01)
    with tracked() as run, sp.region("r"):
        pass
    sp.write_profile(run.results, tmp_path / name)
    back = sp.load(tmp_path / name)
    assert row(back, "MainThread").cpu_before == pytest.approx(row(run.results, "MainThread").cpu_before, abs=1e-9)
    assert row(back, "MainThread").cpu_before >= 0.01
    sp.write_profile(back, tmp_path / "again.h5")
    assert row(sp.load(tmp_path / "again.h5"), "MainThread").run_cpu_time == row(back, "MainThread").run_cpu_time


def test_inspect_shows_the_cpu_time_of_the_run(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from scope_profiler.cli import main as command

    burn(0.2)
    with sp.session(track_threads=True, output=tmp_path / "run.h5", verbose=False):
        begin = time.thread_time()
        with sp.region("r"):
            pass
    spent = time.thread_time() - begin
    assert command(["inspect", str(tmp_path / "run.h5")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " MainThread " in line]
    assert float(line.split()[5]) <= spent + 0.02 < 0.2
    sp.load(tmp_path / "run.h5").print_summary()
    assert "MainThread" not in capsys.readouterr().out  # one thread alone is no concurrent run


def test_a_thread_that_records_nothing_is_listed() -> None:
    with tracked() as run:
        thread = threading.Thread(target=burn, args=(0.02,), name="silent")
        thread.start()
        thread.join()
    silent = row(run.results, "silent")
    assert silent.cpu_time >= 0.02 and not silent.alive
    summary = {line["name"]: line for line in run.results.thread_summary(rank=0)}
    assert summary["silent"]["num_calls"] == 0 and summary["silent"]["region_time"] == 0.0


def test_thread_summary_shows_cpu_time_outside_of_regions_as_a_gap() -> None:
    def work() -> None:
        with sp.region("inside"):
            burn(0.02)
        burn(0.05)

    with tracked() as run:
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    line = next(line for line in run.results.thread_summary() if line["name"] == "worker")
    inside = run.results["inside"][0].total_duration
    assert line["num_calls"] == 1 and line["alive"] is False
    assert line["region_time"] == pytest.approx(inside, abs=1e-9)
    assert line["cpu_time"] >= 0.07
    assert line["wall_time"] >= line["region_time"]


def test_a_name_is_the_last_one() -> None:
    def rename_itself() -> None:
        with sp.region("work"):
            threading.current_thread().name = "renamed inside"

    release = threading.Event()
    with tracked() as run:
        inside = threading.Thread(target=rename_itself, name="first")
        inside.start()
        inside.join()
        outside = threading.Thread(target=release.wait, name="second")
        outside.start()
        outside.name = "renamed outside"
    release.set()
    outside.join()
    names = [thread.name for thread in run.results.threads[0]]
    assert names == ["MainThread", "renamed inside", "renamed outside"]


def test_idents_that_are_used_again_make_rows_of_their_own() -> None:
    idents = set()

    def work() -> None:
        idents.add(threading.get_ident())
        with sp.region("work"):
            pass

    with tracked() as run:
        for _ in range(100):
            thread = threading.Thread(target=work, name="same")
            thread.start()
            thread.join()
    assert len(idents) < 100, "the system was to use an ident again"
    rows = [thread for thread in run.results.threads[0] if thread.name == "same"]
    assert len(rows) == len({thread.index for thread in rows}) == 100
    assert run.results["work"][0].threads == [thread.index for thread in rows]
    for thread in rows:
        assert not thread.alive
        assert 0 <= thread.cpu_time <= thread.wall_time + 0.01
    starts = [thread.start_time for thread in rows]
    assert starts == sorted(starts)


# -- kinds of threads ----------------------------------------------------------------------------------------------------


def test_threads_of_a_pool() -> None:
    def work(number: int) -> int:
        with sp.region("job"):
            burn(0.001)
        return threading.get_native_id()

    with tracked() as run:
        with ThreadPoolExecutor(3, thread_name_prefix="pool") as pool:
            used = set(pool.map(work, range(30)))
    rows = [thread for thread in run.results.threads[0] if thread.name.startswith("pool_")]
    assert used <= {thread.native_id for thread in rows}
    assert not any(thread.alive for thread in rows)
    job = run.results["job"][0]
    assert job.num_calls == 30
    assert {thread.native_id for thread in rows if thread.index in job.threads} == used


def test_subclasses_and_timers() -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            with sp.region("own"):
                pass

    with tracked() as run:
        own = Own(name="own thread")
        timer = threading.Timer(0.001, lambda: None)
        timer.name = "timer"
        for thread in (own, timer):
            thread.start()
        for thread in (own, timer):
            thread.join()
    assert run.results["own"][0].thread_ids.tolist() == [row(run.results, "own thread").index]
    assert not row(run.results, "timer").alive


def test_a_daemon_that_outlives_the_session() -> None:
    release = threading.Event()
    recording = threading.Event()

    def work() -> None:
        with sp.region("before"):
            recording.set()
        release.wait()
        with sp.region("after"):
            pass

    with tracked() as run:
        thread = threading.Thread(target=work, daemon=True, name="daemon")
        thread.start()
        recording.wait()
    release.set()
    thread.join()
    assert row(run.results, "daemon").alive
    assert "after" not in run.results.region_names
    assert sp.is_active() is False


def test_a_thread_of_the_low_level_module() -> None:
    seen: dict[str, int] = {}
    done = threading.Event()

    def work() -> None:
        seen.update(ident=_thread.get_ident(), native_id=_thread.get_native_id())
        name_this_thread("low level")
        seen["before"] = time.perf_counter_ns()
        with sp.region("work"):
            burn(0.01)
        seen["cpu"] = time.thread_time_ns()
        done.set()

    with tracked() as run:
        _thread.start_new_thread(work, ())
        done.wait()
        wait_for_exit(seen["native_id"])
    low = row(run.results, "low level")
    assert (low.ident, low.native_id) == (seen["ident"], seen["native_id"])
    assert run.results["work"][0].thread_ids.tolist() == [low.index]
    assert not low.alive
    assert seen["cpu"] * NS <= low.cpu_time <= seen["cpu"] * NS + 0.005
    assert low.start_time <= relative(run.results, int(run.results["work"][0].start_times_ns[0])) + 1e-6


def name_this_thread(name: str) -> None:
    ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(threading.get_ident()), name.encode())


def run_native(function: Callable[[], None]) -> None:
    """Call ``function`` on a thread that C made."""
    callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: function() or 0)
    library = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert library.pthread_create(ctypes.byref(thread), None, callback, None) == 0
    assert library.pthread_join(thread, None) == 0


def test_a_thread_that_c_made() -> None:
    seen: dict[str, int] = {}

    def work() -> None:
        name_this_thread("native")
        seen["native_id"] = _thread.get_native_id()
        for _ in range(3):
            with sp.region("work"):
                pass

    with tracked() as run:
        run_native(work)
    native = row(run.results, "native")
    assert native.native_id == seen["native_id"]
    assert run.results["work"][0].thread_ids.tolist() == [native.index] * 3
    assert not native.alive and native.end_time >= native.start_time


def test_a_thread_that_c_made_and_calls_python_again_and_again() -> None:
    """Each call from C makes a new Python thread state; it stays one thread."""

    def work() -> None:
        with sp.region("work"):
            pass

    callback = ctypes.CFUNCTYPE(None)(work)
    trampoline = ctypes.CFUNCTYPE(None)(
        ctypes.cast(callback, ctypes.c_void_p).value
    )  # releases the lock around the call
    with tracked() as run:
        run_native(lambda: [trampoline() for _ in range(5)] and None)
    assert run.results["work"][0].num_calls == 5
    assert len(run.results["work"][0].threads) == 1


# -- hooks ---------------------------------------------------------------------------------------------------------------


class Hook:
    """An application's profile function, which counts what it is called for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls.append((event, frame.f_code.co_name))

    def saw(self, name: str) -> bool:
        return ("call", name) in self.calls


def started(target: Callable[[], object], name: str = "worker") -> None:
    thread = threading.Thread(target=target, name=name)
    thread.start()
    thread.join()


def test_nothing_of_the_hook_is_left_in_the_work_of_a_thread() -> None:
    seen = []
    with tracked():
        started(lambda: seen.append(sys.getprofile()))
    assert seen == [None]


def test_hooks_are_removed_at_the_end_of_a_session() -> None:
    with tracked():
        pass
    assert threading.getprofile() is None and sys.getprofile() is None
    seen = []
    started(lambda: seen.append(sys.getprofile()))
    assert seen == [None]


def test_runs_that_begin_and_end_at_once_leave_each_others_hooks(soak: bool) -> None:
    """Each run meets a thread that records nothing, and in the end no hook is left."""
    together = threading.Barrier(4, timeout=60)
    missed: list[str] = []

    def work(name: str) -> None:
        manager = sp.ProfileManager()
        for _ in range(5000 if soak else 300):
            together.wait()
            manager.setup(output=None, track_threads=True)
            together.wait()
            silent = threading.Thread(target=int, name=name)
            silent.start()
            silent.join()
            recording = manager._state.recording
            if recording is None or name not in [row.name for row in recording.run.thread_records()]:
                missed.append(name)
            together.wait()
            manager.reset()

    threads = [threading.Thread(target=work, args=(f"silent {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == [] and threading.getprofile() is None


def test_hooks_are_removed_when_the_body_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        with tracked():
            raise ZeroDivisionError
    assert threading.getprofile() is None


def test_hooks_stay_after_finalize_until_the_next_setup(tmp_path: Any) -> None:
    sp.setup(output=tmp_path / "checkpoints.h5", track_threads=True)
    sp.finalize(verbose=False)
    started(lambda: None, "after the checkpoint")
    results = sp.finalize(verbose=False, return_results=True)
    assert not row(results, "after the checkpoint").alive

    sp.setup(output=None)
    assert threading.getprofile() is None
    started(lambda: None, "untracked")
    assert sp.finalize(verbose=False, return_results=True).threads == {}


def test_the_profile_function_of_the_application_is_called_in_tracked_threads() -> None:
    hook = Hook()
    seen = []

    def application_work() -> None:
        seen.append(sys.getprofile())
        with sp.region("work"):
            pass

    threading.setprofile(hook)
    try:
        with tracked() as run:
            started(application_work)
        assert threading.getprofile() is hook
        started(application_work)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert hook.saw("application_work")
    assert seen == [hook, hook]
    assert row(run.results, "worker").index == run.results["work"][0].thread_ids[0]


def test_a_profile_function_installed_during_the_session_stays() -> None:
    hook = Hook()
    with tracked() as run:
        threading.setprofile(hook)

        def application_work() -> None:
            with sp.region("work"):
                pass

        started(application_work)
    try:
        assert threading.getprofile() is hook
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert hook.saw("application_work")
    assert run.results["work"][0].thread_ids.tolist() == [row(run.results, "worker").index]


def test_a_profile_function_removed_during_the_session_stays_away() -> None:
    hook = Hook()
    threading.setprofile(hook)
    with tracked():
        threading.setprofile(None)  # type: ignore[arg-type]
        started(lambda: None)
    assert threading.getprofile() is None
    assert hook.calls == []


def test_a_profile_function_that_the_application_saved_and_restores() -> None:
    """The usual way of other tools: remember the hook, set one's own, set the old one again."""
    mine, other = Hook(), Hook()
    threading.setprofile(mine)
    try:
        with tracked():
            saved = threading.getprofile()
            threading.setprofile(other)
            threading.setprofile(saved)  # type: ignore[arg-type]
            started(lambda: None)
        assert threading.getprofile() is mine
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


def test_a_hook_saved_in_the_session_and_restored_after_it_does_no_harm() -> None:
    with tracked():
        saved = threading.getprofile()
        threading.setprofile(Hook())
    threading.setprofile(saved)  # type: ignore[arg-type]
    try:
        seen = []
        started(lambda: seen.append(sys.getprofile()))
        assert seen == [None]
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


def test_the_profile_function_of_a_running_thread_is_left_alone() -> None:
    hook = Hook()
    sys.setprofile(hook)
    try:
        with tracked():
            assert sys.getprofile() is hook
            with sp.region("work"):
                pass
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)


def test_a_profile_function_set_inside_of_a_thread_stays() -> None:
    hook = Hook()
    seen = []

    def application_work() -> None:
        sys.setprofile(hook)
        with sp.region("work"):
            pass
        seen.append(sys.getprofile())
        sys.setprofile(None)

    with tracked() as run:
        started(application_work)
    assert seen == [hook]
    assert not row(run.results, "worker").alive


def test_cprofile_runs_through_a_session() -> None:
    def application_work() -> None:
        with sp.region("work"):
            pass

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with tracked():
            application_work()
        application_work()
    finally:
        profiler.disable()
    counts = {key[2]: value[0] for key, value in profiler_entries(profiler).items()}
    assert counts["application_work"] == 2


def profiler_entries(profiler: cProfile.Profile) -> dict[tuple[str, int, str], tuple[int, ...]]:
    profiler.create_stats()
    return profiler.stats  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_managers_may_end_in_any_order(first_out: int) -> None:
    managers = [sp.ProfileManager(), sp.ProfileManager()]
    sessions = [m.session(track_threads=True, output=None, verbose=False, return_results=True) for m in managers]
    for session in sessions:
        session.__enter__()
    started(lambda: None, "both")
    sessions[first_out].__exit__(None, None, None)
    started(lambda: None, "one")
    sessions[1 - first_out].__exit__(None, None, None)
    started(lambda: None, "none")
    assert threading.getprofile() is None
    names = [[thread.name for thread in session.results.threads[0]] for session in sessions]
    assert names[first_out] == ["MainThread", "both"]
    assert names[1 - first_out] == ["MainThread", "both", "one"]


# -- an untracked run ----------------------------------------------------------------------------------------------------


def overlapping(**settings: Any) -> sp.ProfilingResults:
    """Two threads, each in a region of its own: the second starts within the first and ends after it."""
    first_entered, second_entered, first_left = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with sp.region("first"):
            first_entered.set()
            second_entered.wait()
        first_left.set()

    def second() -> None:
        first_entered.wait()
        with sp.region("second"):
            second_entered.set()
            first_left.wait()

    sp.setup(output=None, **settings)
    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sp.finalize(verbose=False, return_results=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_untracked_run_of_threads_raises_nesting_error() -> None:
    results = overlapping()
    for _ in range(2):  # the second time too
        with pytest.raises(sp.NestingError, match="first|second"):
            _ = results["first"][0].exclusive_durations
    with pytest.raises(sp.NestingError):
        sp.build_call_arrays(list(results), 0)


def test_a_tracked_run_of_the_same_threads_nests() -> None:
    results = overlapping(track_threads=True)
    for name in ("first", "second"):
        assert results[name][0].exclusive_durations_ns.tolist() == results[name][0].durations_ns.tolist()
    assert len(sp.build_call_arrays(list(results), 0).lane) == 2


def test_an_untracked_run_has_no_threads() -> None:
    with sp.session(output=None, verbose=False, return_results=True) as run:
        with sp.region("work"):
            pass
    assert run.results.threads == {} and run.results.tasks == {}
    assert run.results["work"][0].thread_ids is None
    assert run.results["work"][0].has_thread_data is False
    assert run.results["work"][0].threads == []
    with pytest.raises(ValueError):
        run.results["work"][0].for_thread(0)
    assert len(sp.build_call_arrays(list(run.results), 0).lane) == 0


@pytest.mark.parametrize("mode", ["aggregation_mode", "use_line_profiler", "use_gpu_timing", "use_nvtx", "use_likwid"])
def test_modes_without_a_meaning_for_threads_are_refused_at_setup(mode: str) -> None:
    with pytest.raises((ValueError, ImportError, RuntimeError)):
        sp.setup(output=None, track_threads=True, **{mode: True})
    assert not sp.is_active()
    sp.setup(output=None)
