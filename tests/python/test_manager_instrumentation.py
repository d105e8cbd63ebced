"""Regions, handles, factories, the decorator and instrument(), through a manager."""

import contextlib
import functools
import gc
import sys
import threading
import time
import types
import warnings

import pytest

import scope_profiler as sp
from manager_helpers import counts, enter

QUIET = {"output": None, "verbose": False, "return_results": True}


# -- regions ---------------------------------------------------------------------------------------------------------------


def test_a_region_taken_before_setup_follows_every_run(pm):
    region = pm.region("early")
    with region:
        pass
    for calls in (1, 2):
        with pm.session(**QUIET) as run:
            for _ in range(calls):
                with region:
                    pass
            assert pm.region("early") is region and region.num_calls == calls
        assert counts(run.results) == {"early": calls}


@pytest.mark.parametrize(
    ("name", "error"), [("a\0b", ValueError), ("\ud800", ValueError), (1, TypeError), (None, TypeError), (("a",), TypeError)]
)
def test_a_name_that_no_file_can_hold_is_refused_where_it_is_written(pm, name, error):
    with pytest.raises(error):
        pm.region(name)
    with pytest.raises(error):
        pm.define_region(name)
    with pytest.raises(error):
        pm.region_factory(name)
    if isinstance(name, str):
        with pytest.raises(error):
            pm.profile(name)(len)


def test_tags_of_a_region_must_agree(pm):
    pm.region("r", tags=["a"])
    assert pm.region("r").tags == ("a",) and pm.region("r", tags=("a",)).tags == ("a",)
    with pytest.raises(ValueError, match="'r'"):
        pm.region("r", tags=["b"])


def test_source_is_the_place_of_first_use_however_it_is_made(pm):
    def line():
        return sys._getframe(1).f_lineno

    with pm.session(**QUIET) as run:
        enter_line = line() + 1
        with pm.region("plain"):
            pass
        handle_line = line() + 1
        with pm.define_region("handle"):
            pass
        factory_line = line() + 1
        with pm.region_factory("factory")(a=1):
            pass
    lines = {name: run.results[name].source_lineno for name in ("plain", "handle", "factory")}
    assert lines == {"plain": enter_line, "handle": handle_line, "factory": factory_line}
    assert {run.results[name].source_file.rpartition("/")[2] for name in lines} == {"test_manager_instrumentation.py"}


# -- handles -----------------------------------------------------------------------------------------------------------------


def test_handles_follow_every_run_and_are_context_managers(pm):
    handle = pm.define_region("h", tags=["t"])
    assert handle.name == "h" and isinstance(handle, sp.RegionHandle)
    for _ in range(2):
        with pm.session(**QUIET) as run:
            with handle as region:
                assert region is pm.region("h")
                with handle:
                    pass
            with contextlib.ExitStack() as stack:
                stack.enter_context(handle)
        assert counts(run.results) == {"h": 3} and run.results["h"].tags == ("t",)


def test_each_entry_of_a_handle_closes_its_own_call(pm):
    handle = pm.define_region("h")
    moments = []

    def held():
        with handle:
            yield

    def step(function, *arguments):
        function(*arguments)
        moments.append(time.perf_counter())
        time.sleep(0.02)

    with warnings.catch_warnings(), pm.session(**QUIET) as run:
        warnings.simplefilter("ignore")  # they do overlap
        a, b = held(), held()
        for function, *arguments in ((next, a), (next, b), (a.close,), (b.close,)):
            step(function, *arguments)
    first, second = run.results["h"].durations
    assert first == pytest.approx(moments[2] - moments[0], abs=0.01)
    assert second == pytest.approx(moments[3] - moments[1], abs=0.01)
    # Closing the newest instead would give about 0.06 and 0.02.


def test_a_handle_may_be_left_in_another_thread(pm):
    handle = pm.define_region("h")
    with pm.session(**QUIET) as run:
        stack = contextlib.ExitStack()
        stack.enter_context(handle)
        thread = threading.Thread(target=stack.close)
        thread.start()
        thread.join()
    assert counts(run.results) == {"h": 1}


def test_defining_again_must_agree(pm):
    pm.define_region("h", tags=["a"])
    assert pm.define_region("h", tags=("a",)).name == "h"
    for other in ({"tags": ["b"]}, {"tags": None}, {"functions": len, "tags": ["a"]}):
        with pytest.raises(ValueError, match="'h'"):
            pm.define_region("h", **other)


def test_a_handle_costs_no_python_frame(pm):
    handle = pm.define_region("h")
    pm.setup(output=None)
    with handle:  # the first entry asks how to store its file name
        pass
    frames = []
    sys.setprofile(lambda frame, event, arg: frames.append(event) if event == "call" else None)
    with handle:
        pass
    sys.setprofile(None)
    assert frames == []


# -- factories -----------------------------------------------------------------------------------------------------------------


def test_a_factory_is_region_and_values_in_one(pm):
    step = pm.region_factory("step", tags=["t"])
    with pm.session(**QUIET) as run:
        for index in range(2):
            with step(index=index) as nothing:
                assert nothing is None
                enter(pm, "inside")
    assert list(run.results["step"][0].event_metadata) == [{"index": 0}, {"index": 1}]
    assert list(run.results["inside"][0].event_metadata) == [{"index": 0}, {"index": 1}]
    assert run.results["step"].tags == ("t",)


# -- the decorator -----------------------------------------------------------------------------------------------------------------


def test_bare_and_called(pm):
    @pm.profile
    def bare():
        return 1

    @pm.profile()
    def called():
        return 2

    @pm.profile("named", tags=["t"])
    def other():
        return 3

    assert (bare(), called(), other()) == (1, 2, 3)
    for _ in range(2):
        with pm.session(**QUIET) as run:
            assert (bare(), called(), other()) == (1, 2, 3)
        assert counts(run.results) == {"bare": 1, "called": 1, "named": 1} and run.results["named"].tags == ("t",)


def test_decorated_names_are_registered_in_every_run_while_the_function_lives(pm):
    @pm.profile
    def kept():
        pass

    handle = pm.define_region("handle")

    def temporary():
        @pm.profile
        def gone():
            pass

        assert pm.registered_regions() == ("kept", "handle", "gone")

    temporary()
    gc.collect()
    pm.setup(output=None)
    assert pm.registered_regions() == ("kept", "handle") and pm.recorded_regions() == ()
    enter(pm, "new")
    kept()
    assert pm.registered_regions() == ("kept", "handle", "new") and pm.recorded_regions() == ("new", "kept")
    assert pm.get_region("kept").num_calls == 1 and pm.get_region("nope") is None
    assert list(pm.get_all_regions()) == ["kept", "handle", "new"]
    assert handle.name == "handle"


def test_tags_of_a_decorated_function_hold_in_later_runs_too(pm):
    @pm.profile(tags=["t"])
    def work():
        pass

    pm.setup(output=None)
    with pytest.raises(ValueError):
        pm.region("work", tags=["other"])
    assert work() is None


def test_equal_names_with_other_tags_get_longer_names_instead_of_an_error(pm):
    class A:
        @pm.profile(tags=["a"])
        def run(self):
            pass

    class B:
        @pm.profile(tags=["b"])
        def run(self):
            pass

    class C:
        @pm.profile
        def run(self):
            pass

    with pm.session(**QUIET) as run:
        A().run(), B().run(), C().run()
    longer = B.run.__qualname__
    assert counts(run.results) == {"run": 2, longer: 1}
    assert run.results["run"].tags == ("a",) and run.results[longer].tags == ("b",)
    with pytest.raises(ValueError):
        pm.profile("run", tags=["z"])(len)


def test_targets_of_every_kind(pm):
    class Callable:
        def __call__(self):
            return "instance"

    class K:
        @pm.profile
        @classmethod
        def of_class(cls):
            return cls

        @pm.profile
        @staticmethod
        def static():
            return "static"

        @classmethod
        @pm.profile
        def below(cls):
            return cls

    partial = pm.profile(functools.partial(max, 3))
    builtin = pm.profile(len)
    instance = pm.profile(Callable())
    with pm.session(**QUIET) as run:
        assert K.of_class() is K and K().static() == "static" and K.below() is K
        assert partial(2) == 3 and builtin("ab") == 2 and instance() == "instance"
    assert counts(run.results) == {"of_class": 1, "static": 1, "below": 1, "max": 1, "len": 1, "Callable": 1}
    with pytest.raises(TypeError):
        pm.profile(3)
    with pytest.raises(TypeError, match="the class K has no __init__ or __new__ of its own"):
        pm.profile(K)


# -- instrument ----------------------------------------------------------------------------------------------------------------------


def module_of(source):
    module = types.ModuleType("made_up")
    exec(source, module.__dict__)
    return module


SOURCE = """
from os.path import join
class K: pass
def first(): return 1
def second(): return first() + 1
async def third(): return 3
def _private(): return 4
number = 5
"""


def test_instrument_decorates_what_the_module_defines(pm):
    module = module_of(SOURCE)
    decorated = pm.instrument(module, exclude=["_*"], tags=["lib"])
    assert list(decorated) == ["first", "second", "third"]
    assert module.first is decorated["first"] and module.join.__module__ != "made_up" and module.K().__class__ is module.K
    with pm.session(**QUIET) as run:
        assert module.second() == 2
    assert counts(run.results) == {"made_up.second": 1, "made_up.first": 1}
    assert run.results["made_up.first"].tags == ("lib",)
    assert pm.instrument(module, exclude="_*") == {}, "what is decorated already is left alone"


def test_instrument_by_globs_and_prefix(pm):
    module = module_of(SOURCE)
    assert list(pm.instrument(module, include=("f*", "s*"), exclude=("*d",), prefix="lib")) == ["first"]
    module.first()
    assert pm.registered_regions() == ("lib.first",)


# -- pausing ---------------------------------------------------------------------------------------------------------------------------


def test_pause_and_resume(pm):
    with pm.session(**QUIET) as run:
        enter(pm, "a")
        pm.pause()
        pm.pause()
        assert pm.get_config().paused and pm.is_active()
        with pm.region("b"):
            pm.resume()
        enter(pm, "a")
        pm.resume()
    assert counts(run.results) == {"a": 2}
    pm.setup(output=None)
    assert not pm.get_config().paused


def test_pause_is_refused_without_a_run_and_inside_a_region(pm):
    for method in (pm.pause, pm.resume):
        with pytest.raises(RuntimeError, match="setup"):
            method()
    with pm.session(**QUIET):
        with pm.region("open one"):
            with pytest.raises(RuntimeError, match="'open one'"):
                pm.pause()
        pm.pause()


def test_sampling_records_the_selected_steps(pm):
    with pm.session(**QUIET) as run:
        with pm.sample_every(3, start=1) as step:
            selected = []
            for t in range(8):
                with step(t) as chosen:
                    enter(pm, f"step{t}")
                    selected.append(chosen)
        enter(pm, "after")
    assert selected == [False, True, False, False, True, False, False, True]
    assert counts(run.results) == {"step1": 1, "step4": 1, "step7": 1, "after": 1}


def test_sampling_leaves_pausing_as_it_was(pm):
    with pm.session(**QUIET):
        pm.pause()
        with pm.sample_every(2) as step:
            with step(0) as chosen:
                assert chosen and not pm.get_config().paused
        assert pm.get_config().paused
        pm.resume()
        with pm.sample_every(2) as step:
            with step(1):
                assert pm.get_config().paused
        assert not pm.get_config().paused


@pytest.mark.parametrize("arguments", [(0,), (True,), ("x",), (1, "a"), (2, True), (1.0,)])
def test_bad_sampling_is_a_valueerror(pm, arguments):
    with pytest.raises(ValueError):
        pm.sample_every(*arguments)
    with pm.sample_every(2) as step:
        for bad in ("a", 1.0, True):
            with pytest.raises(TypeError):
                step(bad)
        with step(1) as chosen:
            assert chosen is False


def test_the_lines_of_a_decorated_class_are_those_of_its_constructor(pm):
    @pm.profile
    class K:
        def __init__(self):
            self.made = True

    assert list(pm._state.line_functions.codes["K"]) == [K.__init__.__wrapped__.__code__]
