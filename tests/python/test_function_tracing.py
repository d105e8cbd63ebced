"""Calls of Python functions as calls of regions: recursive_profile, profile(recursive=), run_script() and `run --recursive`."""

import asyncio
import gc
import itertools
import subprocess
import sys
import textwrap
import threading
import types

import pytest

import scope_profiler as sp
from manager_helpers import counts
from scope_profiler import _core
from scope_profiler.function_choice import FunctionChoice, is_user_file

HERE = __name__
HAS_MONITORING = sys.version_info >= (3, 12)


@pytest.fixture
def pm():
    manager = sp.ProfileManager()
    yield manager
    manager.reset()


def traced(manager, **settings):
    return manager.session(output=None, verbose=False, return_results=True, recursive_profile=True, **settings)


def ours(results):
    """Calls by name of this module's functions, without its name."""
    found = {name.removeprefix(f"{HERE}."): count for name, count in counts(results).items() if name.startswith(HERE)}
    return {name: count for name, count in found.items() if "<locals>.<" not in name}


def leaf(value=None):
    return value


def node(value):
    return leaf(value) + leaf(1)


def steps(count):
    yield from range(count)


def fails():
    raise ValueError


class Thing:
    def method(self):
        return leaf(self)

    @staticmethod
    def static():
        return leaf()

    @classmethod
    def made(cls):
        return cls()

    @property
    def value(self):
        return leaf(2)


# -- what is recorded --------------------------------------------------------------------------------------------------------


def test_functions_inside_of_a_region_are_regions(pm):
    pm.setup(output=None, recursive_profile=True)
    leaf()  # outside of every region
    with pm.region("work"):
        node(1)
    leaf()
    results = pm.finalize(verbose=False, return_results=True)
    assert counts(results) == {"work": 1, f"{HERE}.node": 1, f"{HERE}.leaf": 2}
    paths = {call["name"]: call["call_path"] for call in results.call_stack()}
    assert paths[f"{HERE}.leaf"] == f"work > {HERE}.node > {HERE}.leaf"


def test_everything_in_a_session_is_inside_of_its_root(pm):
    with traced(pm) as run:
        node(1)
    assert ours(run.results) == {"node": 1, "leaf": 2}


def test_names_are_those_of_modules_and_qualified_names(pm):
    with traced(pm) as run:
        thing = Thing.made()
        thing.method(), Thing.static(), thing.value

        def local():
            class Inner:
                def method(self):
                    return [leaf() for _ in range(1)]

            Inner().method()

        local()
        (lambda: leaf())()
        exec("def made(): pass\nmade()", {"__name__": "elsewhere"})
    test = "test_names_are_those_of_modules_and_qualified_names.<locals>"
    found = ours(run.results)
    expected = {
        "Thing.made": 1, "Thing.method": 1, "Thing.static": 1, "Thing.value": 1, "leaf": 5, f"{test}.local": 1,
        f"{test}.local.<locals>.Inner": 1, f"{test}.local.<locals>.Inner.method": 1,
    }  # fmt: skip
    assert found == expected
    assert counts(run.results)[f"{HERE}.{test}.<lambda>"] == 1
    assert counts(run.results)["elsewhere.made"] == counts(run.results)["elsewhere.<module>"] == 1


def test_a_function_has_the_place_of_its_definition(pm):
    with traced(pm, metadata_detail="full") as run:
        leaf()
    one = run.results[f"{HERE}.leaf"][0]
    assert one.source_file == __file__ and one.source_lineno == leaf.__code__.co_firstlineno


def test_times_are_those_of_the_calls(pm, clock):
    def inner(duration):
        clock(duration)

    def outer():
        clock(1)
        inner(10)
        clock(2)
        inner(20)

    with traced(pm) as run:
        outer()
    name = f"{HERE}.test_times_are_those_of_the_calls.<locals>"
    outside, inside = run.results[f"{name}.outer"][0], run.results[f"{name}.inner"][0]
    assert outside.durations_ns.tolist() == [33] and outside.exclusive_durations_ns.tolist() == [3]
    assert inside.durations_ns.tolist() == [10, 20]


def test_recursion_nests(pm):
    def down(depth):
        if depth:
            down(depth - 1)

    with traced(pm) as run:
        down(50)
    name = f"{HERE}.test_recursion_nests.<locals>.down"
    assert counts(run.results)[name] == 51
    depths = sorted(call["depth"] for call in run.results.call_graph() if call["name"] == name)
    assert [depth - depths[0] for depth in depths] == list(range(51))


def test_exceptions_end_the_calls_they_leave(pm):
    def catches():
        try:
            passes()
        except ValueError:
            return leaf()

    def passes():
        fails()

    with traced(pm) as run:
        catches()
        leaf()
    assert pm._state.recording.run.open_calls() == []
    parents = {call["name"].rsplit(".", 1)[-1]: call["parent_id"] for call in run.results.call_graph()}
    calls = {call["name"].rsplit(".", 1)[-1]: call["call_id"] for call in run.results.call_graph()}
    assert parents["fails"] == calls["passes"] and parents["passes"] == calls["catches"]
    assert run.results[f"{HERE}.leaf"].num_calls == 2


def test_recursion_that_goes_too_deep_leaves_nothing_open(pm):
    def endless():
        endless()

    with traced(pm) as run:
        for _ in range(3):
            with pytest.raises(RecursionError):
                endless()
        leaf()
    assert pm._state.recording.run.open_calls() == []
    assert run.results[f"{HERE}.leaf"].num_calls == 1
    [leaf_call] = [call for call in run.results.call_graph() if call["name"] == f"{HERE}.leaf"]
    assert leaf_call["depth"] == 1


def test_a_generator_has_a_call_for_each_stretch_in_which_it_runs(pm, clock):
    def counting():
        for number in range(3):
            clock(10)
            yield number

    with traced(pm) as run:
        for _ in counting():
            clock(100)
        suspended = counting()
        next(suspended)
        suspended.close()
    one = run.results[f"{HERE}.test_a_generator_has_a_call_for_each_stretch_in_which_it_runs.<locals>.counting"][0]
    assert one.durations_ns.tolist()[:5] == [10, 10, 10, 0, 10]
    assert one.total_duration == pytest.approx(40e-9)


def test_generators_that_interleave_do_not_overlap(pm):
    with traced(pm) as run:
        a, b = steps(3), steps(3)
        for _ in zip(a, b, strict=True):
            leaf()
    assert run.results.call_graph()
    assert run.results[f"{HERE}.steps"].num_calls == 8


def test_without_tasks_a_coroutine_has_a_call_for_each_step(pm):
    async def job():
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with traced(pm) as run:
        asyncio.run(job())
    assert run.results[f"{HERE}.test_without_tasks_a_coroutine_has_a_call_for_each_step.<locals>.job"].num_calls == 3


def test_with_tasks_a_coroutine_is_one_call_that_awaits(pm, clock):
    async def inner(duration):
        clock(duration)
        await asyncio.sleep(0)
        clock(duration)

    async def outer(duration):
        await inner(duration)

    async def main():
        await asyncio.gather(outer(1), outer(100))

    with traced(pm, track_async=True) as run:
        asyncio.run(main())
    name = f"{HERE}.test_with_tasks_a_coroutine_is_one_call_that_awaits.<locals>"
    for region in ("inner", "outer"):
        one = run.results[f"{name}.{region}"][0]
        assert sorted(one.durations_ns.tolist()) == [102, 201]
        assert sorted((one.durations_ns - one.await_times_ns).tolist()) == [2, 200]
        assert len(set(one.task_ids.tolist())) == 2
    graph = {call["call_id"]: call for call in run.results.call_graph()}
    parents = [graph[call["parent_id"]]["name"] for call in graph.values() if call["name"] == f"{name}.inner"]
    assert parents == [f"{name}.outer"] * 2
    assert run.results[f"{name}.main"].num_calls == 1


def test_with_tasks_an_asynchronous_generator_has_a_call_for_each_value(pm, clock):
    async def inner():
        clock(1)
        await asyncio.sleep(0)
        clock(1)

    async def values(count):
        for i in range(count):
            clock(10)
            await inner()
            await asyncio.sleep(0)
            clock(10)
            yield i

    async def consumer(count):
        async for _ in values(count):
            clock(1000)
            await asyncio.sleep(0)

    async def closer():
        stream = values(5)
        async for _ in stream:
            break
        await stream.aclose()

    async def main():
        await asyncio.gather(consumer(3), consumer(2))
        await closer()

    with traced(pm, track_async=True) as run:
        asyncio.run(main())
    name = f"{HERE}.test_with_tasks_an_asynchronous_generator_has_a_call_for_each_value.<locals>"
    stream = run.results[f"{name}.values"][0]
    # A call for each value, one for the end, and one for being closed.
    assert stream.num_calls == (3 + 1) + (2 + 1) + (1 + 1)
    running = sorted((stream.durations_ns - stream.await_times_ns).tolist())
    assert running == [0] * 3 + [22] * 6
    graph = {call["call_id"]: call for call in run.results.call_graph()}
    parents = {(call["name"], graph[call["parent_id"]]["name"]) for call in graph.values() if call["parent_id"] in graph}
    assert {parent for child, parent in parents if child == f"{name}.inner"} == {f"{name}.values"}
    assert {parent for child, parent in parents if child == f"{name}.values"} == {f"{name}.consumer", f"{name}.closer"}
    whole = run.results[f"{name}.consumer"][0]
    assert sorted((whole.durations_ns - whole.await_times_ns).tolist()) == [2 * 1022, 3 * 1022]
    assert pm._state.recording.run.open_calls() == []


def test_a_coroutine_that_is_cancelled_ends(pm):
    async def sleeper():
        await asyncio.sleep(60)

    async def main():
        task = asyncio.create_task(sleeper())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with traced(pm, track_async=True) as run:
        asyncio.run(main())
    assert run.results[f"{HERE}.test_a_coroutine_that_is_cancelled_ends.<locals>.sleeper"].num_calls == 1
    assert pm._state.recording.run.open_calls() == []


def test_greenlets_that_switch_inside_of_functions(pm, clock):
    greenlet = pytest.importorskip("greenlet")

    def job(duration):
        clock(duration)
        pause()
        clock(duration)

    def pause():
        greenlet.getcurrent().parent.switch()

    with traced(pm, track_async=True) as run:
        jobs = [greenlet.greenlet(job) for _ in range(3)]
        for duration, one in zip((1, 10, 100), jobs, strict=True):
            one.switch(duration)
        for one in jobs:
            one.switch()
    name = f"{HERE}.test_greenlets_that_switch_inside_of_functions.<locals>"
    assert run.results[f"{name}.job"][0].durations_ns.tolist() == [112, 121, 211]
    assert run.results[f"{name}.pause"].num_calls == 3


def test_the_sums_of_traced_functions_are_exact(pm, clock):
    def inner():
        clock(2)

    def outer():
        clock(1)
        inner()

    with traced(pm, aggregation_mode=True) as run:
        for _ in range(1000):
            outer()
    name = f"{HERE}.test_the_sums_of_traced_functions_are_exact.<locals>"
    one = run.results[f"{name}.outer"][0]
    assert (one.num_calls, round(one.total_duration * 1e9), round(one.exclusive_duration * 1e9)) == (1000, 3000, 1000)
    assert run.results[f"{name}.inner"].num_calls == 1000


# -- threads -----------------------------------------------------------------------------------------------------------------


def test_threads_that_start_later_are_traced_from_their_first_function(pm):
    with traced(pm, track_threads=True) as run:
        threads = [threading.Thread(target=node, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ours(run.results) == {"node": 8, "leaf": 16}
    assert len(run.results[f"{HERE}.node"][0].threads) == 8


def test_threads_that_are_there_are_traced_inside_of_regions(pm):
    begin, entered, done = threading.Event(), threading.Event(), threading.Event()

    def work():
        begin.wait()
        node(1)
        with pm.region("inside"):
            node(1)
        entered.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with traced(pm) as run:
            begin.set()
            entered.wait()
    finally:
        done.set()
        thread.join()
    assert ours(run.results) == {"node": 1, "leaf": 2}


def test_many_threads_are_exact(pm, scale):
    times = scale(200, 20_000)

    def work():
        for _ in range(times):
            node(1)

    with traced(pm) as run:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = ours(run.results)
    assert (found["node"], found["leaf"]) == (16 * times, 32 * times)


# -- what is left out -----------------------------------------------------------------------------------------------------------


def test_decorated_functions_are_recorded_once(pm):
    @pm.profile
    def decorated():
        leaf()

    with traced(pm) as run:
        decorated()
    assert counts(run.results)["decorated"] == 1
    assert ours(run.results) == {"leaf": 1}


def test_the_profilers_own_functions_are_not_the_programs(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", recursive_profile=True)
    with pm.region("outer"):
        for name in ("a", "b"):
            with pm.region(name, tags=["t"]):
                pass
        pm.finalize(verbose=False)
        leaf()
    results = pm.finalize(verbose=False, return_results=True)
    everything = {*counts(sp.load(tmp_path / "p.h5")), *counts(results)}
    assert everything == {"outer", f"{HERE}.leaf"}


def test_pause_is_not_hindered_by_functions(pm):
    def pauses():
        pm.pause()
        leaf()
        pm.resume()
        node(1)

    pm.setup(output=None, recursive_profile=True)
    pm._state.begin_tracing(FunctionChoice())
    with _core.TraceMode(1):
        pauses()
    results = pm.finalize(verbose=False, return_results=True)
    assert ours(results) == {"test_pause_is_not_hindered_by_functions.<locals>.pauses": 1, "node": 1, "leaf": 2}


def test_code_objects_that_die_are_forgotten(pm):
    with traced(pm) as run:
        for number in range(500):
            namespace = {"__name__": f"m{number % 5}"}
            exec(f"def f{number % 7}(): pass\nf{number % 7}()", namespace)
            del namespace
            gc.collect(0)
    found = counts(run.results)
    expected = {}
    for number in range(500):
        name = f"m{number % 5}.f{number % 7}"
        expected[name] = expected.get(name, 0) + 1
    assert {name: count for name, count in found.items() if name[0] == "m" and ".f" in name} == expected


@pytest.mark.parametrize("again", range(2))
def test_a_run_after_another_has_its_own_functions(pm, again):
    for number in range(3):
        with traced(pm) as run:
            for _ in range(number + 1):
                leaf()
        assert ours(run.results) == {"leaf": number + 1}
    with pm.session(output=None, verbose=False, return_results=True) as run:
        leaf()
    assert ours(run.results) == {}


def test_where_a_run_before_was_outside_of_its_regions_says_nothing_of_the_next(pm):
    for _ in range(50):  # the calls of a run are often in the memory of those of the run before
        pm.setup(output=None, recursive_profile=True)
        with pm.region("outer"):
            leaf()
        leaf()
        assert ours(pm.finalize(verbose=False, return_results=True)) == {"leaf": 1}
        pm.setup(output=None, recursive_profile=True)
        with pm.region("outer"), pm.region("inner"):
            leaf()
        assert ours(pm.finalize(verbose=False, return_results=True)) == {"leaf": 1}


def test_two_managers_trace_at_once(pm):
    other = sp.ProfileManager()
    with traced(pm) as one:
        leaf()
        with traced(other) as two:
            leaf()
        leaf()
    assert ours(one.results)["leaf"] == 3 and ours(two.results) == {"leaf": 1}


def test_each_of_two_runs_has_what_is_inside_of_its_own_regions(pm):
    other = sp.ProfileManager()
    pm.setup(output=None, recursive_profile=True)
    other.setup(output=None, recursive_profile=True)
    for manager, count in ((pm, 3), (other, 5)):
        for _ in range(count):
            with manager.region("outer"):
                node(1)
    assert ours(pm.finalize(verbose=False, return_results=True)) == {"node": 3, "leaf": 6}
    assert ours(other.finalize(verbose=False, return_results=True)) == {"node": 5, "leaf": 10}
    other.reset()


def test_a_run_that_ends_while_it_names_a_function_takes_no_call_from_another(pm):
    other = sp.ProfileManager()

    def end(name, file):
        other.reset()
        return name

    with traced(pm) as run:
        other.setup(output=None)
        other._state.recorder.trace_functions(end)
        leaf()
        leaf()
    assert ours(run.results)["leaf"] == 2


# -- decorators ---------------------------------------------------------------------------------------------------------------------


def test_a_decorator_traces_what_its_function_calls(pm):
    @pm.profile(recursive=True)
    def main():
        node(1)

    pm.setup(output=None)
    leaf()
    main()
    leaf()
    assert counts(pm.finalize(verbose=False, return_results=True)) == {"main": 1, f"{HERE}.node": 1, f"{HERE}.leaf": 2}


def test_a_decorator_keeps_what_its_function_calls_out(pm):
    @pm.profile(recursive=False)
    def quiet():
        node(1)

    with traced(pm) as run:
        quiet()
        leaf()
    assert counts(run.results)["quiet"] == 1 and ours(run.results) == {"leaf": 1}


def test_a_decorated_generator_or_coroutine_traces_during_its_steps(pm):
    @pm.profile(recursive=True)
    def numbers():
        leaf()
        yield 1
        leaf()

    @pm.profile(recursive=True)
    async def job():
        node(1)
        await asyncio.sleep(0)
        leaf()

    @pm.profile(recursive=True)
    async def stream():
        leaf()
        yield 1

    async def consume():
        async for _ in stream():
            node(2)

    pm.setup(output=None)
    for _ in numbers():
        node(1)  # not inside
    asyncio.run(job())
    asyncio.run(consume())
    found = counts(pm.finalize(verbose=False, return_results=True))
    assert {name: found[name] for name in ("numbers", "job", "stream")} == {"numbers": 1, "job": 1, "stream": 1}
    assert (found[f"{HERE}.node"], found[f"{HERE}.leaf"]) == (1, 2 + 2 + 1 + 1)


def test_a_decorated_function_that_fails_traces_no_further(pm):
    @pm.profile(recursive=True)
    def main():
        fails()

    pm.setup(output=None)
    with pytest.raises(ValueError):
        main()
    leaf()
    assert counts(pm.finalize(verbose=False, return_results=True)) == {"main": 1, f"{HERE}.fails": 1}


# -- hooks of others ------------------------------------------------------------------------------------------------------------------


def test_a_profile_function_of_the_program_goes_on_and_comes_back(pm):
    seen = []

    def theirs(frame, event, argument):
        if event == "call" and frame.f_code is leaf.__code__:
            seen.append(event)

    sys.setprofile(theirs)
    try:
        with traced(pm) as run:
            leaf()
        assert sys.getprofile() is theirs
        leaf()
    finally:
        sys.setprofile(None)
    assert seen == ["call", "call"]
    assert ours(run.results) == {"leaf": 1}


def test_a_profile_function_that_is_set_meanwhile_stays(pm):
    def theirs(frame, event, argument): ...

    try:
        with traced(pm):
            sys.setprofile(theirs)
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)


def test_nothing_is_hooked_after_the_session(pm):
    with traced(pm):
        pass
    assert sys.getprofile() is None
    if HAS_MONITORING:
        assert "scope_profiler" not in [sys.monitoring.get_tool(number) for number in range(6)]


@pytest.mark.skipif(not HAS_MONITORING, reason="needs sys.monitoring")
def test_cprofile_works_beside(pm):
    import cProfile

    profile = cProfile.Profile()
    with traced(pm) as run:
        profile.enable()
        leaf()
        profile.disable()
    assert ours(run.results) == {"leaf": 1}
    assert any(entry.code is leaf.__code__ for entry in profile.getstats())


@pytest.mark.skipif(not HAS_MONITORING, reason="needs sys.monitoring")
def test_without_a_tool_id_setup_fails(pm):
    taken = [number for number in range(6) if sys.monitoring.get_tool(number) is None]
    for number in taken:
        sys.monitoring.use_tool_id(number, f"other {number}")
    try:
        with pytest.raises(RuntimeError, match="tool id"):
            pm.setup(output=None, recursive_profile=True)
    finally:
        for number in taken:
            sys.monitoring.free_tool_id(number)
    with traced(pm) as run:
        leaf()
    assert ours(run.results) == {"leaf": 1}


def test_a_forked_child_traces_nothing(python):
    process = python(
        """
import os, sys, scope_profiler as sp
def leaf(): pass
with sp.session(output=None, verbose=False, return_results=True, recursive_profile=True) as run:
    leaf()
    child = os.fork()
    if child == 0:
        hooked = sys.getprofile() is not None
        if sys.version_info >= (3, 12):
            hooked |= any(sys.monitoring.get_tool(n) == "scope_profiler" for n in range(6))
        os._exit(hooked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leaf()
print(run.results["__main__.leaf"].num_calls)
"""
    )
    assert process.stdout == "2\n"


# -- scripts ----------------------------------------------------------------------------------------------------------------------------

HELPER = """
def inner(x): return x + 1
def gen():
    for i in range(3): yield inner(i)
class A:
    def m(self): return inner(1)
    @staticmethod
    def s(): return inner(2)
def main():
    A().m(); A.s(); list(gen())
    import json; json.dumps({"a": [1]}, indent=2)
    eval("inner(2)")
"""
SCRIPT = """
import helper
def f(): helper.main()
f()
f()
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "app.py").write_text(SCRIPT)
    return tmp_path


def run_command(directory, *options, environment=None):
    command = [sys.executable, "-m", "scope_profiler", "run", "-q", "-o", "p.h5", *options, "app.py"]
    process = subprocess.run(command, cwd=directory, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    return counts(sp.load(directory / "p.h5")), process.stderr


ALL_OF_IT = {
    "app.py": 1, "__main__.<module>": 1, "__main__.f": 2, "helper.<module>": 1, "helper.A": 1, "helper.main": 2, "helper.A.m": 2,
    "helper.A.s": 2, "helper.gen": 8, "helper.inner": 2 * 6,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--recursive"], ALL_OF_IT),
        (["--no-recursive"], {}),
        (["--recursive", "--include", "helper.*"], {n: c for n, c in ALL_OF_IT.items() if n.startswith(("app", "helper"))}),
        (["--recursive", "--include", "helper.A*", "--exclude", "*.s"], {"app.py": 1, "helper.A": 1, "helper.A.m": 2}),
        (["--recursive", "--exclude", "helper*"], {"app.py": 1, "__main__.<module>": 1, "__main__.f": 2}),
        (["--recursive", "--entrypoint", "main"], {("main" if n == "helper.main" else n): c for n, c in ALL_OF_IT.items()}),
    ],
    ids=str,
)
def test_the_command_line_chooses_functions(program, options, expected):
    assert run_command(program, *options)[0] == expected


def test_the_command_line_traces_libraries_on_request(program):
    found, _ = run_command(program, "--all")
    assert {name: found[name] for name in ALL_OF_IT if name not in ("helper.<module>",)} == {
        name: count for name, count in ALL_OF_IT.items() if name != "helper.<module>"
    }
    assert found["json.dumps"] == 2 and found["json.encoder.JSONEncoder.encode"] == 2
    assert not [name for name in found if name.startswith("scope_profiler")]
    found, _ = run_command(program, "--all", "--include", "json.dumps")
    assert found == {"app.py": 1, "json.dumps": 2}


def test_choices_that_choose_nothing_are_told(program):
    found, told = run_command(program, "--include", "helper.*")
    assert found == {} and "--include means nothing without --recursive or --all" in told


def test_a_configuration_file_can_ask_for_it(program):
    (program / "c.toml").write_text("[profiling]\nrecursive_profile = true\n")
    assert run_command(program, "--config", "c.toml")[0] == ALL_OF_IT
    assert run_command(program, "--config", "c.toml", "--no-recursive")[0] == {}


def test_the_environment_can_ask_for_it(python, program):
    import os

    process = python(
        "import scope_profiler as sp\nsp.setup_from_env(output=None)\nimport helper\n"
        "with sp.region('r'): helper.inner(1)\nprint(sorted(sp.finalize(verbose=False, return_results=True).region_names))\n",
        env={**os.environ, "SCOPE_PROFILER_RECURSIVE": "yes"},
    )
    assert process.stdout == "['helper.inner', 'r']\n"


def test_scripts_are_traced_in_the_process_too(pm, program, monkeypatch):
    monkeypatch.chdir(program)
    sys.modules.pop("helper", None)
    pm.setup(output=None)
    pm.run_script("app.py")
    assert counts(pm.finalize(verbose=False, return_results=True)) == ALL_OF_IT
    pm.run_script("app.py", region_name="mine", include_patterns=["helper.main"])
    found = counts(pm.finalize(verbose=False, return_results=True))
    assert found["mine"] == 1 and found["helper.main"] == 2 + 2  # in memory, each finalize has all calls
    pm.run_script("app.py", recursive=False)
    assert counts(pm.finalize(verbose=False, return_results=True)) == found
    pm.reset()
    results = pm.profile_script("app.py", output=None, recursive_profile=True)
    assert counts(results) == {name: count for name, count in ALL_OF_IT.items() if name not in ("helper.<module>", "helper.A")}
    sys.modules.pop("helper", None)


def test_commands_are_traced_on_request(program, monkeypatch):
    monkeypatch.chdir(program)
    done = sp.profile_command(["app.py"], output=str(program / "c.h5"), recursive=True)
    assert counts(done.profile_results) == ALL_OF_IT


def test_what_counts_as_user_code(tmp_path):
    assert is_user_file(str(tmp_path / "app.py")) and is_user_file("relative.py")
    outside = [textwrap.__file__, pytest.__file__, "<string>", "<frozen importlib._bootstrap>", "/x/lib/site-packages/a.py"]
    assert not any(map(is_user_file, outside))


def test_patterns_are_checked():
    with pytest.raises(TypeError, match="pattern of include"):
        FunctionChoice(include=[1])
    choice = FunctionChoice(only_user_code=False, include=["a.*"], exclude=["*.b"])
    assert [choice(name, "x.py") for name in ("a.c", "a.b", "c.a")] == ["a.c", None, None]


# -- stress -------------------------------------------------------------------------------------------------------------------------------


def test_sessions_that_come_and_go_under_running_threads(pm, scale):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            node(1)
            list(steps(3))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(scale(20, 500)):
            with traced(pm) as run:
                node(1)
            assert ours(run.results)["node"] >= 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_managers_on_several_threads_begin_and_end_at_once(scale):
    """Each traces its own calls, whatever the others put in place or take out meanwhile."""
    together = threading.Barrier(4, timeout=60)
    missing = []

    def work():
        own = {}
        exec("def inner(): pass\ndef outer():\n    for _ in range(5): inner()\n", own)
        for _ in range(scale(40, 1000)):
            manager = sp.ProfileManager()
            together.wait()
            manager.setup(output=None, recursive_profile=True)
            with manager.region("x"):
                own["outer"]()
            results = manager.finalize(verbose=False, return_results=True)
            if "?.inner" not in results.region_names or results["?.inner"].num_calls != 5:
                missing.append(results.region_names)
            manager.reset()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing == []


def test_random_generators_and_calls_nest(pm):
    import random

    rng = random.Random(5)
    held = []

    def hold(depth):
        leaf()
        yield
        work(depth)

    def work(depth):
        for _ in range(rng.randrange(3)):
            choice = rng.random()
            if choice < 0.3:
                held.append(hold(depth))
                next(held[-1])
            elif choice < 0.5 and held:
                held.pop(rng.randrange(len(held))).close()
            elif choice < 0.6 and held:
                for _ in held.pop(rng.randrange(len(held))):
                    pass
            elif depth:
                work(depth - 1)

    with traced(pm) as run:
        for _ in range(300):
            work(5)
    assert run.results.call_graph()
    assert pm._state.recording.run.open_calls() == []
    for name in run.results.region_names:
        assert (run.results[name][0].exclusive_durations_ns >= 0).all()


def test_functions_made_from_one_code_object_share_a_region(pm):
    copies = [types.FunctionType(leaf.__code__, globals(), f"copy{number}") for number in range(3)]
    with traced(pm) as run:
        for copy in itertools.chain(copies, [leaf]):
            copy(1)
    assert ours(run.results) == {"leaf": 4}


@pytest.mark.slow
def test_threads_may_run_while_runs_begin_and_end(python, soak):
    """A thread that is being asked about a function may find the run over when it goes on."""
    python(
        """
import asyncio, sys, threading
import scope_profiler as sp

stop = False

def busy():
    async def step():
        await asyncio.sleep(0)

    async def main():
        while not stop:
            await asyncio.gather(*(step() for _ in range(3)))

    asyncio.run(main())

threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
sys.setswitchinterval(1e-5)

def leaf():
    return 1

@sp.profile("traced", recursive=True)
def traced():
    return sum([leaf() for _ in range(20)])

for _ in range(int(sys.argv[1])):
    with sp.session(output=None, verbose=False, return_results=True) as run:
        traced()
    assert run.results["__main__.leaf"].num_calls == 20
stop = True
for thread in threads:
    thread.join()
""",
        str(3000 if soak else 300),
    )
