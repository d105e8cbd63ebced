"""use_line_profiler, with the real package: hits as counted by hand, times inside the region's own, for every way into a region."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import h5py
import numpy as np
import pytest

import scope_profiler as sp

pytestmark = pytest.mark.usefixtures("line_profiler")


def helper(n):
    total = 0
    for i in range(n):
        total += i
    return total


HELPER = helper.__code__.co_firstlineno


def lines(results, region, function, rank=0):
    """{line relative to the function's first: hits} of one record; {} if there is none."""
    for record in results.line_profile.get(rank, []):
        if record["region"] == region and record["function"].split(".")[-1] == function:
            return dict(zip((record["line_numbers"] - record["first_lineno"]).tolist(), record["hits"].tolist(), strict=True))
    return {}


def finish(pm):
    return pm.finalize(verbose=False, return_results=True)


@pytest.fixture
def lp(pm):
    """A manager with a run that profiles lines."""
    pm.setup(output=None, use_line_profiler=True)
    return pm


def test_a_decorated_functions_lines_are_counted(lp):
    @lp.profile
    def work(n):
        total = 0
        for i in range(n):
            total += helper(i)
        return total

    work(3)
    work(5)
    results = finish(lp)
    assert lines(results, "work", "work") == {2: 2, 3: 10, 4: 8, 5: 2}
    assert lines(results, "work", "helper") == {}
    assert results["work"].num_calls == 2


def test_functions_decorated_before_the_run_are_counted_too(pm):
    @pm.profile
    def work():
        return 1

    pm.setup(output=None, use_line_profiler=True)
    work()
    assert lines(finish(pm), "work", "work") == {2: 1}


def test_the_function_around_a_with_statement_is_counted_from_its_first_call_on(lp):
    def work():
        before = 1
        with lp.region("block"):
            inside = before
            for _ in range(3):
                inside += 1
        return inside

    work()
    work()
    counted = lines(finish(lp), "block", "work")
    assert {line: counted.get(line) for line in (3, 4, 5)} == {3: 2, 4: 8, 5: 6}
    assert 1 not in counted and 6 not in counted


def test_functions_that_region_is_given_are_counted(lp):
    with lp.region("block", functions=[helper]):
        helper(10)
    helper(7)  # outside
    handle = lp.define_region("handle", functions=helper)
    with handle:
        helper(2)
    results = finish(lp)
    assert lines(results, "block", "helper") == {1: 1, 2: 11, 3: 10, 4: 1}
    assert lines(results, "handle", "helper") == {1: 1, 2: 3, 3: 2, 4: 1}


def test_closures_share_the_lines_of_their_function(lp):
    def make(step):
        @lp.profile("closure")
        def inner():
            return step

        return inner

    for step in range(4):
        make(step)()
    assert lines(finish(lp), "closure", "inner") == {2: 4}


@pytest.mark.parametrize("kind", ["staticmethod", "classmethod", "property", "partial", "wrapped"])
def test_the_code_behind_every_kind_of_callable_is_found(lp, kind):
    class Holder:
        def method(*args):
            return 1

        if kind in ("staticmethod", "classmethod", "property"):
            method = lp.profile("region")({"staticmethod": staticmethod, "classmethod": classmethod, "property": property}[kind](method))

    if kind == "property":
        Holder().method
    elif kind == "partial":
        lp.profile("region")(functools.partial(Holder.method, 1))()
    elif kind == "wrapped":

        @functools.wraps(Holder.method)
        def wrapper():
            return Holder.method()

        lp.profile("region")(wrapper)()
    else:
        Holder.method()
    assert lines(finish(lp), "region", "method") == {1: 1}


def test_recursive_and_nested_regions_count_each_in_its_own_record(lp):
    @lp.profile
    def down(n):
        if n:
            down(n - 1)

    with lp.region("outer", functions=[helper]):
        helper(1)
        with lp.region("inner", functions=[helper]):
            helper(1)
    down(3)
    results = finish(lp)
    assert lines(results, "outer", "helper") == {1: 2, 2: 4, 3: 2, 4: 2}
    assert lines(results, "inner", "helper") == {1: 1, 2: 2, 3: 1, 4: 1}
    assert lines(results, "down", "down") == {2: 4, 3: 3}


def test_a_call_of_a_decorated_function_does_not_count_its_caller(lp):
    @lp.profile
    def callee():
        return 1

    def caller():
        callee()
        return 2

    caller()
    results = finish(lp)
    assert [record["function"].split(".")[-1] for record in results.line_profile[0]] == ["callee"]


def test_generators_and_coroutines_are_counted_while_their_call_is_open(lp):
    @lp.profile
    def generator():
        yield 1
        yield 2

    @lp.profile
    async def coroutine():
        for _ in range(3):
            await asyncio.sleep(0)
        return 1

    assert list(generator()) == [1, 2]
    asyncio.run(coroutine())
    results = finish(lp)
    assert lines(results, "generator", "generator") == {2: 1, 3: 1}
    assert lines(results, "coroutine", "coroutine") == {2: 4, 3: 3, 4: 1}


def test_exit_stacks_factories_and_explicit_calls_count_their_function(lp):
    def stacked():
        with ExitStack() as stack:
            stack.enter_context(lp.region("stack"))
            value = 1
        return value

    def explicit():
        region = lp.region("explicit")
        region.__enter__()
        value = 1
        region.__exit__(None, None, None)
        return value

    def made():
        with lp.region_factory("factory")(index=1):
            value = 1
        return value

    stacked(), explicit(), made()
    results = finish(lp)
    assert lines(results, "stack", "stacked").get(3) == 1
    assert lines(results, "explicit", "explicit").get(3) == 1
    assert lines(results, "factory", "made").get(2) == 1


@pytest.mark.filterwarnings("ignore:calls overlap:RuntimeWarning")
def test_threads_count_together(lp):
    barrier = threading.Barrier(4)

    def work():
        with lp.region("threads", functions=[helper]):
            barrier.wait()
            helper(5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines(finish(lp), "threads", "helper") == {1: 4, 2: 24, 3: 20, 4: 4}


def test_what_another_thread_ends_is_switched_off_on_its_own(lp):
    region = lp.region("moved", functions=[helper])
    entered, left = threading.Event(), threading.Event()

    def work():
        region.__enter__()
        helper(1)
        entered.set()
        left.wait()
        with lp.region("next"):
            pass
        helper(100)  # nobody counts here any more

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    region.__exit__(None, None, None)
    left.set()
    thread.join()
    assert lines(finish(lp), "moved", "helper") == {1: 1, 2: 2, 3: 1, 4: 1}
    assert sys.gettrace() is None


def test_an_exception_ends_the_counting(lp):
    @lp.profile
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert sys.gettrace() is None
    assert lines(finish(lp), "fails", "fails") == {2: 1}


def test_paused_and_filtered_regions_count_nothing(pm):
    pm.setup(output=None, use_line_profiler=True, region_tags=["on"])
    with pm.region("off", functions=[helper]):
        helper(1)
    pm.pause()
    with pm.region("paused", functions=[helper], tags=["on"]):
        helper(1)
    assert finish(pm).line_profile == {}


def test_without_the_setting_nothing_is_traced(pm):
    pm.setup(output=None)
    with pm.region("block", functions=[helper]):
        assert sys.gettrace() is None
        helper(1)
    assert finish(pm).line_profile == {}


def test_times_of_lines_add_up_to_no_more_than_the_call_and_are_where_the_time_went(lp):
    @lp.profile
    def work():
        time.sleep(0.02)
        time.sleep(0.06)

    work()
    results = finish(lp)
    [record] = results.line_profile[0]
    seconds = record["times"] * record["unit"]
    assert record["line_numbers"].tolist() == [record["first_lineno"] + 2, record["first_lineno"] + 3]
    assert seconds[0] >= 0.02 and seconds[1] >= 0.06 and seconds[0] < seconds[1]
    assert seconds.sum() <= results["work"].total_duration * 1.001


def test_a_record_has_its_source_and_the_path_that_the_detail_of_the_metadata_asks_for(pm, tmp_path, monkeypatch):
    code = "import scope_profiler as sp\ndef work():\n    x = 1\n    return x\n"
    path = tmp_path / "program.py"
    path.write_text(code)
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(compile(code, str(path), "exec"), namespace)
    for detail, stored in (("minimal", "program.py"), ("full", str(path))):
        pm.setup(output=None, use_line_profiler=True, metadata_detail=detail, replace=True)
        with pm.region("r", functions=[namespace["work"]]):
            namespace["work"]()
        [record] = [record for record in finish(pm).line_profile[0] if record["function"] == "work"]
        assert record["source"] == "def work():\n    x = 1\n    return x" and record["source_first_lineno"] == 2
        assert record["filename"] == stored and record["first_lineno"] == 2


def test_records_are_in_the_file_as_they_are_in_the_results(pm, tmp_path):
    path = tmp_path / "p.h5"
    with pm.session(output=path, verbose=False, return_results=True, use_line_profiler=True) as run:
        with pm.region("block", functions=[helper]):
            helper(4)
    stored = sp.load(path).line_profile[0]
    assert len(stored) == len(run.results.line_profile[0]) == 2
    for one, other in zip(stored, run.results.line_profile[0], strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)
    assert all(record["region"] == "block" for record in stored)  # none of the session's own
    with h5py.File(path) as file:
        group = file["rank0/line_profile/0"]
        assert {name: group[name].dtype.str for name in group} == {"hits": "<i8", "line_numbers": "<i8", "times": "<f8"}
        assert {"region", "filename", "function", "first_lineno", "unit", "source", "source_first_lineno"} == set(group.attrs)


def test_records_go_through_json_and_the_command_prints_them(pm, tmp_path):
    path = tmp_path / "p.json"
    with pm.session(output=path, verbose=False, return_results=True, use_line_profiler=True) as run:
        with pm.region("block", functions=[helper]):
            helper(4)
    stored = sp.load(path)
    assert lines(stored, "block", "helper") == {1: 1, 2: 5, 3: 4, 4: 1}
    for one, other in zip(stored.line_profile[0], run.results.line_profile[0], strict=True):
        assert all(np.array_equal(one[key], other[key]) for key in other)
    assert "for i in range(n):" in command("line-profile", path).stdout
    sp.write_profile(stored, tmp_path / "q.h5")
    assert lines(sp.load(tmp_path / "q.h5"), "block", "helper") == {1: 1, 2: 5, 3: 4, 4: 1}


def test_each_checkpoint_has_the_lines_since_the_last(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", use_line_profiler=True)
    for n in (3, 5):
        with pm.region("block", functions=[helper]):
            helper(n)
        assert lines(finish(pm), "block", "helper") == {1: 1, 2: n + 1, 3: n, 4: 1}
    assert finish(pm).line_profile == {}


def test_a_failed_write_keeps_the_lines(pm, tmp_path):
    path = tmp_path / "gone" / "p.h5"
    path.parent.mkdir()
    pm.setup(output=path, use_line_profiler=True)
    with pm.region("block", functions=[helper]):
        helper(3)
    import shutil

    shutil.rmtree(path.parent)
    with pytest.raises(OSError):
        finish(pm)
    path.parent.mkdir()
    assert lines(finish(pm), "block", "helper")[3] == 3


@pytest.mark.parametrize("through", ["finalize", "session", "run"])
def test_verbose_line_profiler_prints_the_tables(pm, capsys, through):
    if through == "session":
        with pm.session(output=None, verbose=False, verbose_line_profiler=True, use_line_profiler=True):
            with pm.region("block", functions=[helper]):
                helper(2)
    else:
        run = pm.setup(output=None, use_line_profiler=True)
        with pm.region("block", functions=[helper]):
            helper(2)
        (pm if through == "finalize" else run).finalize(verbose=False, verbose_line_profiler=True)
    printed = capsys.readouterr().out
    assert f"Rank 0 | block | helper (tests/python/test_line_profiling.py:{HELPER})" in printed.replace("\\", "/") or "block | helper" in printed
    assert "for i in range(n):" in printed and "hits" in printed


def test_verbose_line_profiler_prints_nothing_without_the_mode(pm, capsys):
    pm.setup(output=None)
    pm.finalize(verbose=False, verbose_line_profiler=True)
    assert capsys.readouterr().out == ""


def test_the_environment_is_as_it_was(pm):
    import os

    before = dict(os.environ)
    pm.setup(output=None, use_line_profiler=True)
    assert dict(os.environ) == before


def test_a_missing_package_is_told_at_setup(pm, monkeypatch):
    monkeypatch.setitem(sys.modules, "line_profiler", None)
    with pytest.raises(ImportError, match=r"use_line_profiler needs the package line_profiler.*pip install"):
        pm.setup(output=None, use_line_profiler=True)
    assert not pm.is_configured()
    pm.setup(output=None, use_line_profiler=True, deactivate_profiling=True)  # nothing is needed then


# -- the command line ----------------------------------------------------------------------------------------------------


def command(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", "scope_profiler", *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "p.h5"
    pm = sp.ProfileManager()

    @pm.profile
    def solve():
        return 1

    with pm.session(output=path, verbose=False, use_line_profiler=True):
        with pm.region("io", functions=[helper]):
            helper(2)
        solve()
    return path


def test_the_command_prints_the_tables_of_a_file(profile):
    done = command("line-profile", profile)
    assert done.returncode == 0 and done.stderr == ""
    text = done.stdout.splitlines()
    assert text[0] == f"Line profile: {profile}"
    [row] = [line for line in text if "for i in range(n):" in line]
    assert row.split("│")[1].split()[:2] == [str(HELPER + 2), "3"]
    assert "  return total" in done.stdout  # indented as in the source


@pytest.mark.parametrize(
    ("options", "functions"),
    [
        (["--function", "help"], {"helper"}),
        (["--region", "olv"], {"solve"}),
        (["--include", "io"], {"helper", "profile"}),
        (["--exclude", "io"], {"solve"}),
        (["--include", "o"], set()),
        (["--ranks", "0"], {"helper", "profile", "solve"}),
        (["--ranks", "1-3"], set()),
        (["--region", "io", "--function", "solve"], set()),
    ],
)  # fmt: skip
def test_the_command_selects(profile, options, functions):
    done = command("line-profile", profile, *options)
    found = {line.split(" | ")[2].split(" (")[0].split(".")[-1] for line in done.stdout.splitlines() if line.startswith("Rank ")}
    assert done.returncode == 0 and found == functions
    assert ("No line-profile records matched." in done.stdout) == (not functions)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["nothing.h5"], "no such file"), (["FILE", "--function", "("], "regular expression"), (["FILE", "--ranks", "x"], "ranks")],
)
def test_the_command_tells_what_is_wrong_in_one_line(profile, arguments, told):
    done = command("line-profile", *(str(profile) if argument == "FILE" else argument for argument in arguments))
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1 and told in done.stderr


def test_a_file_without_lines_is_said_to_have_none(tmp_path):
    path = tmp_path / "p.h5"
    with sp.ProfileManager().session(output=path, verbose=False):
        pass
    done = command("line-profile", path)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "No line-profile records matched."


def test_a_source_that_is_gone_is_said_to_be(tmp_path):
    from scope_profiler.line_tables import line_profile_lines

    arrays = {"line_numbers": np.array([3, 5]), "hits": np.array([1, 2]), "times": np.array([10.0, 30.0])}
    record = {"region": "r", "function": "f", "filename": str(tmp_path / "gone.py"), "first_lineno": 1, "unit": 0.5, **arrays}
    text = list(line_profile_lines([(0, record)]))
    rows = [line.split("│")[1].split() for line in text if line.startswith("  │")][1:]
    assert rows == [["3", "1", "5", "5", "25.00", "<source", "unavailable>"], ["5", "2", "15", "7.5", "75.00", "<source", "unavailable>"]]


def test_run_line_profile_counts_the_scripts_own_functions(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("def work(n):\n    for i in range(n):\n        i += 1\n    return n\n\nclass A:\n    def m(self):\n        return work(2)\n\nA().m()\nprint(work(3))\n")
    done = command("run", "-q", "-o", "p.h5", "--line-profile", script, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "3\n", done.stderr
    results = sp.load(tmp_path / "p.h5")
    assert lines(results, "program.py", "work") == {1: 7, 2: 5, 3: 2}
    assert lines(results, "program.py", "m") == {1: 1}
    assert lines(results, "program.py", "<module>")[10] == 1
