"""Ctrl-C, and whatever else a signal handler raises, at every moment of a setup, a finalize and a session's end: no call is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from scope_profiler import _core

pytestmark = pytest.mark.usefixtures("clean_manager")
PACKAGE = os.path.dirname(sp.__file__)
CALLS = 7


def looks(function: Callable[[], object], moment: int = 0) -> tuple[int, bool]:
    """Call ``function``, with a KeyboardInterrupt where the interpreter looks for signals in the package for the ``moment``-th time.

    It looks when a function begins, and when one of C has returned. Returns how often it looked, and whether the interrupt came out.
    """
    seen = 0

    def look(frame: Any, event: str, argument: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            seen += 1
            if seen == moment:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        function()
    except KeyboardInterrupt:
        return seen, True
    finally:
        sys.setprofile(None)
    return seen, False


def interrupted_at(moment: int, function: Callable[[], object]) -> bool:
    """Whether an interrupt at that moment comes out of ``function``."""
    return looks(function, moment)[1]


def record(number: int = CALLS) -> None:
    region = sp.region("a")
    for _ in range(number):
        with region:
            pass


def check(output: Path) -> None:
    """The calls are in the file, once, and nothing lies beside it."""
    found = sp.load(output)
    assert found["a"].num_calls == CALLS
    sp.reset()
    assert [name for name in os.listdir(output.parent) if not name.endswith(".workers")] == [output.name]


def every(step: int, attempt: Callable[[int], bool]) -> None:
    """Interrupt at every ``step``-th moment, until there are no more."""
    attempt(10**9)  # what is imported at first use is imported
    moment = 1
    while attempt(moment):
        moment += step
    assert moment > 20


SETTINGS: dict[str, dict[str, Any]] = {
    "calls": {}, "tasks": {"track_async": True}, "sums": {"aggregation_mode": True}, "workers": {"follow_processes": True},
    "functions": {"recursive_profile": True}, "samples": {"sample_hz": 50},
}  # fmt: skip
if _core.StackSampler is None:
    del SETTINGS["samples"]  # a build without the GIL


@pytest.mark.parametrize("return_results", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.filterwarnings("ignore")
def test_a_finalize_that_is_interrupted_can_be_repeated(tmp_path: Path, settings: str, return_results: bool, soak: bool) -> None:
    """Whether or not the file was in its place already."""
    output = tmp_path / "p.h5"

    def attempt(moment: int) -> bool:
        sp.setup(output=output, replace=True, **SETTINGS[settings])
        record()
        hit = interrupted_at(moment, lambda: sp.finalize(verbose=False, return_results=return_results))
        if hit:
            again = sp.finalize(verbose=False, return_results=True)
            assert again is not None and again["a"].num_calls == CALLS
        check(output)
        return hit

    every(1 if soak else 5, attempt)


@pytest.mark.parametrize("output", ["p.json", "p.h5"])
@pytest.mark.filterwarnings("ignore")
def test_the_end_of_a_session_that_is_interrupted_can_be_made_up_for(tmp_path: Path, output: str, soak: bool) -> None:
    def attempt(moment: int) -> bool:
        session = sp.session(output=tmp_path / output, verbose=False, return_results=True)
        session.__enter__()
        record()
        hit = interrupted_at(moment, lambda: session.__exit__(None, None, None))
        sp.finalize(verbose=False)
        check(tmp_path / output)
        return hit

    every(1 if soak else 9, attempt)


@pytest.mark.filterwarnings("ignore")
def test_a_setup_that_is_interrupted_can_be_repeated(tmp_path: Path, soak: bool) -> None:
    output = tmp_path / "p.h5"

    def attempt(moment: int) -> bool:
        hit = interrupted_at(moment, lambda: sp.setup(output=output, replace=True))
        if hit:
            sp.setup(output=output, replace=True)
        record()
        sp.finalize(verbose=False)
        check(output)
        return hit

    every(1 if soak else 37, attempt)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_with_numbers_have_each_call_once(tmp_path: Path) -> None:
    def attempt(moment: int) -> bool:
        for file in tmp_path.iterdir():
            file.unlink()
        sp.setup(output=tmp_path / "p.h5", checkpoint="numbered", replace=True)
        record()
        hit = interrupted_at(moment, lambda: sp.finalize(verbose=False))
        record(3)
        sp.finalize(verbose=False)
        sp.reset()
        files = [sp.load(file) for file in sorted(tmp_path.iterdir())]
        assert sum(found["a"].num_calls for found in files) == CALLS + 3
        assert sorted(file.name for file in tmp_path.iterdir()) == [f"p.000{number}.h5" for number in range(1, len(files) + 1)]
        return hit

    every(3, attempt)


def traced() -> None:
    pass


@pytest.mark.filterwarnings("ignore")
def test_functions_are_traced_after_every_interrupt(tmp_path: Path, soak: bool) -> None:
    """What the profiler does itself is left out; that must not go on when it is interrupted."""

    def run(output: Path | None, body: Callable[[], object] = lambda: None) -> Any:
        sp.setup(output=output, replace=True, recursive_profile=True)
        with sp.region("around"):
            body()
        return sp.finalize(verbose=False, return_results=True)

    def attempt(moment: int) -> bool:
        hit = interrupted_at(moment, lambda: run(tmp_path / "p.h5"))
        results = run(None, traced)
        assert {name.rpartition(".")[2] for name in results.region_names} == {"around", "traced"}
        return hit

    every(1 if soak else 17, attempt)


@pytest.mark.parametrize("thread", ["main", "another"])
@pytest.mark.parametrize("settings", [{}, {"capture_region_source": True, "region_tags": ["kept"], "track_threads": True}])
def test_the_first_call_of_a_region_swallows_no_interrupt(tmp_path: Path, settings: dict[str, Any], thread: str) -> None:
    """What is found out about a region then is Python code, in which signals are looked for."""

    def first_calls() -> None:
        with sp.region("a", tags=("kept",)):
            pass
        for _ in range(10):
            traced()  # where the program goes on

    def attempt(moment: int = 0) -> tuple[int, bool]:
        answers = []
        sp.setup(output=tmp_path / "p.h5", replace=True, **settings)
        if thread == "main":
            answers.append(looks(first_calls, moment))
        else:
            other = threading.Thread(target=lambda: answers.append(looks(first_calls, moment)))
            other.start()
            other.join()
        sp.finalize(verbose=False)
        return answers[0]

    attempt()  # what is imported at first use is imported
    count, _ = attempt()
    assert count > 3
    assert [moment for moment in range(1, count + 1) if not attempt(moment)[1]] == []


def test_new_calls_after_an_interrupt_do_not_replace_those_in_the_file_at_exit(tmp_path: Path, python: Callable[..., Any]) -> None:
    """The region around the interrupted finalize ends as the exception passes: the handler at exit would report that call alone."""
    output = tmp_path / "p.h5"
    program = """
import os, signal, sys, scope_profiler as sp
sp.setup(output=sys.argv[1], auto_finalize=True)
from scope_profiler import _core
finish = _core.finish_h5
def finish_and_interrupt(*arguments, **options):
    finish(*arguments, **options)
    raise KeyboardInterrupt
_core.finish_h5 = finish_and_interrupt
try:
    with sp.region("main"):
        for _ in range(5):
            with sp.region("a"): pass
        sp.finalize(verbose=False)
except KeyboardInterrupt:
    print("interrupted")
_core.finish_h5 = finish
"""
    assert python(program, str(output)).stdout == "interrupted\n"
    assert sp.load(output)["a"].num_calls == 5
    [spool] = tmp_path.glob("*.spool")
    assert sp.load(spool).region_names == ["main"], "the call that came after is in the spool"


def test_signals_that_come_while_a_file_is_written(tmp_path: Path) -> None:
    """The handler runs when the file is in its place, which must not be replaced by an empty one."""
    output = tmp_path / "p.h5"
    for delay in (0.0, 0.002, 0.01):
        sp.setup(output=output, replace=True)
        record(200_000)
        returned = False
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            sp.finalize(verbose=False)
            returned = True
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        if not returned:
            sp.finalize(verbose=False)
        assert sp.load(output)["a"].num_calls == 200_000
