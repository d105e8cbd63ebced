"""session(): a run for the length of a block, or of a function's calls."""

import asyncio
import inspect
import sys
import threading
import traceback
import warnings

import pytest

import scope_profiler as sp
from manager_helpers import counts, enter

ROOT = "scope_profiler.session"
QUIET = {"output": None, "verbose": False, "return_results": True}


def test_a_session_is_one_run_under_a_root_region(pm):
    with pm.session(**QUIET) as run:
        assert pm.is_active() and run.results is None
        enter(pm, "a", 2)
    assert not pm.is_active(), "after a session its regions are off"
    assert run.results.region_names == [ROOT, "a"] and run.results["a"].num_calls == 2
    root = run.results[ROOT][0]
    assert root.num_calls == 1 and root.source_file is None and root.source_lineno is None
    assert root.total_duration >= run.results["a"].total_duration
    enter(pm, "after")
    assert pm.recorded_regions() == (ROOT, "a")
    assert pm.last_results() is run.results


def test_results_only_on_request_and_a_summary_by_default(pm, capsys):
    with pm.session(output=None) as run:
        enter(pm, "a")
    assert run.results is None and ROOT in capsys.readouterr().out


def test_finalize_after_a_session_does_not_replace_its_file_by_an_empty_one(pm, tmp_path):
    path = tmp_path / "p.h5"
    with pm.session(output=path, verbose=False):
        enter(pm, "a")
    pm.finalize(verbose=False)
    assert counts(sp.load(path)) == {"a": 1}


def test_a_call_that_outlives_its_session_can_still_be_had(pm):
    def held():
        with pm.region("long"):
            yield

    with pm.session(**QUIET) as run:
        generator = held()
        next(generator)
    assert counts(run.results) == {}
    generator.close()
    with pytest.warns(RuntimeWarning, match="overlap"):  # it ended after the root region it began in
        assert counts(pm.finalize(verbose=False, return_results=True)) == {"long": 1}


def test_unknown_and_unusable_settings_are_told_at_once(pm):
    with pytest.raises(TypeError, match="did you mean 'label'"):
        pm.session(lable="x")
    with pytest.raises(ValueError, match="metadata_detail"):
        pm.session(sp.ProfilingOptions(metadata_detail="some"))
    with pytest.raises(TypeError, match="ProfilingOptions"):
        pm.session(lambda: None)


def test_a_session_can_be_entered_again_but_not_twice(pm):
    session = pm.session(**QUIET)
    for _ in range(2):
        with session as run:
            enter(pm, "a")
            with pytest.raises(RuntimeError, match="open already"):
                session.__enter__()
        assert counts(run.results) == {"a": 1}
    with pytest.raises(RuntimeError, match="not open"):
        session.__exit__(None, None, None)


def test_a_session_while_a_run_is_active_is_refused(pm):
    pm.setup(output=None)
    with pytest.raises(RuntimeError, match="active"):
        with pm.session(**QUIET):
            pass
    with pm.session(**QUIET, replace=True) as run:
        enter(pm, "a")
    assert counts(run.results) == {"a": 1}


def test_a_nested_session_takes_over_and_the_outer_keeps_what_it_had(pm, tmp_path):
    with pm.session(output=tmp_path / "outer.h5", verbose=False, return_results=True) as outer:
        enter(pm, "outer_work", 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pm.session(output=tmp_path / "inner.h5", verbose=False, replace=True, return_results=True) as inner:
                enter(pm, "inner_work")
    assert counts(inner.results) == {"inner_work": 1} and counts(outer.results) == {"outer_work": 2}
    assert outer.results[ROOT].num_calls == 1
    assert counts(sp.load(tmp_path / "outer.h5")) == {"outer_work": 2}
    assert counts(sp.load(tmp_path / "inner.h5")) == {"inner_work": 1}


def test_reset_inside_a_session_tells_what_it_drops(pm):
    with pm.session(**QUIET) as run:
        enter(pm, "a", 2)
        with pytest.warns(RuntimeWarning, match="3 recorded calls"):  # the root is one
            pm.reset()
    assert run.results is None and not pm.is_configured()


# -- exceptions ------------------------------------------------------------------------------------------------------------


def test_the_bodys_exception_passes_and_everything_is_finalized(pm):
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        with pm.session(**QUIET) as run:
            with pm.region("a"):
                raise error
    assert caught.value is error and error.__context__ is None
    assert counts(run.results) == {"a": 1}


def test_a_failed_write_is_raised_and_leaves_the_manager_usable(pm, tmp_path):
    path = tmp_path / "missing" / "p.h5"
    with pytest.raises(FileNotFoundError):
        with pm.session(output=path, verbose=False, return_results=True) as run:
            enter(pm, "a")
    assert counts(run.results) == {"a": 1} and not pm.is_active()
    path.parent.mkdir()
    pm.finalize(verbose=False)
    assert counts(sp.load(path)) == {"a": 1}


def test_a_failed_write_does_not_replace_the_bodys_exception(pm, tmp_path):
    path = tmp_path / "missing" / "p.h5"
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        with pm.session(output=path, verbose=False):
            enter(pm, "a")
            try:
                raise ValueError("before")
            except ValueError:
                raise error from None
    assert caught.value is error and str(error) == "'mine'" and error.__suppress_context__
    chain = []
    step = error
    while step is not None:
        chain.append(type(step))
        step = step.__context__
    assert chain == [KeyError, ValueError, FileNotFoundError]
    if sys.version_info >= (3, 11):
        assert "could not be written" in "".join(traceback.format_exception(error))
    path.parent.mkdir()
    pm.finalize(verbose=False)
    assert counts(sp.load(path)) == {"a": 1}


# -- threads ---------------------------------------------------------------------------------------------------------------


def test_a_session_may_be_closed_from_another_thread(pm):
    session = pm.session(**QUIET, track_threads=True)
    session.__enter__()
    enter(pm, "a")
    thread = threading.Thread(target=session.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert session.results.region_names == [ROOT, "a"] and session.results[ROOT].num_calls == 1


def test_hooks_are_installed_at_entry_and_removed_at_exit(pm):
    before = threading._profile_hook
    with pm.session(**QUIET, track_threads=True):
        assert threading._profile_hook is not before
    assert threading._profile_hook is before
    with pytest.raises(KeyError):
        with pm.session(**QUIET, track_threads=True):
            raise KeyError
    assert threading._profile_hook is before


def test_hooks_of_setup_stay_until_the_next_setup_or_reset(pm):
    before = threading._profile_hook
    pm.setup(output=None, track_threads=True)
    pm.finalize(verbose=False)
    assert threading._profile_hook is not before
    pm.setup(output=None)
    assert threading._profile_hook is before
    pm.finalize(verbose=False)
    pm.setup(output=None, track_threads=True)
    pm.reset()
    assert threading._profile_hook is before


def test_threads_of_a_tracked_session_are_rows_of_its_results(pm):
    with pm.session(**QUIET, track_threads=True) as run:
        workers = [threading.Thread(target=enter, args=(pm, "w", 3), name=f"w{k}") for k in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    rows = run.results.threads[0]
    assert sorted(row.name for row in rows) == ["MainThread", "w0", "w1", "w2"]
    assert [row.alive for row in rows if row.name != "MainThread"] == [False] * 3
    region = run.results["w"][0]
    assert len(region.threads) == 3 and all(region.for_thread(i).num_calls == 3 for i in region.threads)


# -- as a decorator ---------------------------------------------------------------------------------------------------------


def test_each_call_of_a_decorated_function_is_a_session(default, tmp_path):
    path = tmp_path / "p.h5"

    @sp.session(output=path, verbose=False)
    def work(a, *, b=1):
        """What it does."""
        with sp.region("body"):
            return a + b

    assert work.__name__ == "work" and work.__doc__ == "What it does."
    assert str(inspect.signature(work)) == "(a, *, b=1)"
    for _ in range(2):
        assert work(1, b=2) == 3
        assert counts(sp.load(path)) == {"body": 1}


def test_recursion_of_a_decorated_function_is_an_active_run(default):
    @sp.session(output=None, verbose=False)
    def recurse(n):
        return recurse(n - 1) if n else 0

    with pytest.raises(RuntimeError, match="active"):
        recurse(1)
    assert recurse(0) == 0


def test_a_coroutine_functions_session_covers_the_awaited_body(default):
    @sp.session(**QUIET)
    async def work():
        with sp.region("body"):
            await asyncio.sleep(0.01)
        return 7

    assert inspect.iscoroutinefunction(work)
    assert asyncio.run(work()) == 7
    results = sp.last_results()
    assert counts(results) == {"body": 1} and results[ROOT].total_duration >= 0.01
    assert not sp.is_active()


def test_a_generator_functions_session_covers_its_life(default):
    @sp.session(**QUIET)
    def work():
        with sp.region("body"):
            got = yield 1
        with pytest.raises(KeyError):
            yield got
        return "end"

    assert inspect.isgeneratorfunction(work)
    generator = work()
    assert not sp.is_active()
    assert next(generator) == 1 and sp.is_active()
    assert generator.send("sent") == "sent"
    with pytest.raises(StopIteration) as stop:
        generator.throw(KeyError())
    assert stop.value.value == "end" and not sp.is_active()
    assert counts(sp.last_results()) == {"body": 1}


def test_an_async_generator_functions_session_covers_its_life(default):
    log = []

    @sp.session(**QUIET)
    async def work():
        try:
            with sp.region("body"):
                got = yield 1
            try:
                yield got
            except KeyError:
                yield "caught"
        finally:
            await asyncio.sleep(0)
            log.append("cleanup")

    assert inspect.isasyncgenfunction(work)

    async def drive(close):
        generator = work()
        assert await generator.__anext__() == 1 and sp.is_active()
        assert await generator.asend("sent") == "sent"
        assert await generator.athrow(KeyError()) == "caught"
        if close:
            await generator.aclose()
        else:
            with pytest.raises(StopAsyncIteration):
                await generator.__anext__()

    for close in (False, True):
        asyncio.run(drive(close))
        assert not sp.is_active() and log.pop() == "cleanup" and not log
        assert counts(sp.last_results()) == {"body": 1}


def test_methods_can_be_decorated(default):
    class Worker:
        @sp.session(**QUIET)
        def plain(self):
            return self

        @sp.session(**QUIET)
        @classmethod
        def of_class(cls):
            return cls

        @sp.session(**QUIET)
        @staticmethod
        def static(x):
            return x

    worker = Worker()
    assert worker.plain() is worker and worker.of_class() is Worker and Worker.static(3) == 3
    with pytest.raises(TypeError):
        sp.session(**QUIET)(3)


# -- many ------------------------------------------------------------------------------------------------------------------


def test_sessions_of_two_managers_may_end_in_any_order(pm):
    other = sp.ProfileManager()
    before = threading._profile_hook
    first, second = pm.session(**QUIET, track_threads=True), other.session(**QUIET, track_threads=True)
    first.__enter__()
    second.__enter__()

    def work():
        enter(pm, "a")
        enter(other, "b")

    thread = threading.Thread(target=work, name="both")
    thread.start()
    thread.join()
    first.__exit__(None, None, None)
    enter(pm, "late")
    enter(other, "late")
    second.__exit__(None, None, None)
    assert counts(first.results) == {"a": 1} and counts(second.results) == {"b": 1, "late": 1}
    for session in (first, second):
        assert "both" in [row.name for row in session.results.threads[0]]
    assert threading._profile_hook is before


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_many_sessions_keep_memory_flat(python):
    process = python(
        """
import resource, scope_profiler as sp
def some(n):
    for _ in range(n):
        with sp.session(output=None, verbose=False, track_threads=True, return_results=True) as run:
            for name in ("a", "b"):
                with sp.region(name): pass
        assert run.results["a"].num_calls == 1
def resident():
    with open("/proc/self/statm") as file: return int(file.read().split()[1]) * 4
some(300); before = resident(); some(700); print(resident() - before)
"""
    )
    assert int(process.stdout) < 2500  # kB


def test_a_call_that_is_open_when_a_session_ends_is_no_reason_to_warn_later(tmp_path):
    manager = sp.ProfileManager()
    entered, leave = threading.Event(), threading.Event()

    def work():
        with manager.region("open at the end"):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=work)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with manager.session(output=tmp_path / "first.h5", track_threads=True, verbose=False):
            thread.start()
            entered.wait()
        leave.set()
        thread.join()
        with manager.session(output=tmp_path / "second.h5", verbose=False):
            pass


def test_calls_that_are_still_open_are_told_of(pm, capsys):
    begun, go = threading.Barrier(3), threading.Event()

    def work(name):
        with pm.region(name):
            begun.wait(60)
            go.wait(60)

    with pm.session(output=None):
        threads = [threading.Thread(target=work, args=(name,)) for name in ("left\x1b", "behind")]
        for thread in threads:
            thread.start()
        begun.wait(60)
    assert capsys.readouterr().out.endswith("\n2 calls were still open and are not in it: behind, left\\x1b\n")
    go.set()
    for thread in threads:
        thread.join()
    with pm.session(output=None):
        enter(pm, "a")
    assert "still open" not in capsys.readouterr().out
