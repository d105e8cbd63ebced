"""use_nvtx, with the real package and a tool of our own (tests/native/nvtx_listener.c) that NVTX tells of every range."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvtx")

LISTENER = Path(__file__).parents[1] / "native" / "nvtx_listener.c"


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    library = tmp_path_factory.mktemp("nvtx") / "listener.so"
    subprocess.run(["cc", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC", str(LISTENER), "-o", str(library)], check=True)
    return library


@pytest.fixture
def ranges(listener, tmp_path):
    """What the tool hears while a program runs: (kind, thread or number, name) each; and what the program prints."""

    def run(code, settings="use_nvtx=True", tool=True):
        log, path = tmp_path / "log", tmp_path / "program.py"
        log.unlink(missing_ok=True)
        path.write_text(
            f"import asyncio, threading, scope_profiler as sp\nsp.setup(output=None, {settings})\n{code}\n"
            "results = sp.finalize(verbose=False, return_results=True)\n"
            "print({name: results[name].num_calls for name in results.region_names})\n"
        )
        environment = {**os.environ, "NVTX_LISTENER": str(log)}
        if tool:
            environment["NVTX_INJECTION64_PATH"] = str(listener)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        heard = [line.split(" ", 2) for line in log.read_text().splitlines()] if log.exists() else []
        return [(kind, int(number), *rest) for kind, number, *rest in heard], done.stdout.strip()

    return run


def story(heard):
    """Without threads and numbers."""
    return " ".join(kind if kind in ("pop", "end") else f"{kind}:{name[0]}" for kind, _, *name in heard)


def test_calls_of_functions_are_pushed_and_popped(ranges):
    heard, printed = ranges(
        """
@sp.profile
def work():
    with sp.region("inner"): pass
with sp.region("outer"):
    work()
    work()
"""
    )
    assert story(heard) == "push:outer push:work push:inner pop pop push:work push:inner pop pop pop"
    assert len({thread for _, thread, *_ in heard}) == 1
    assert printed == "{'outer': 1, 'work': 2, 'inner': 2}"


def test_names_arrive_as_they_are(ranges):
    heard, _ = ranges('for name in ("a b", "ä→", "x" * 200): sp.region(name).__enter__(); sp.region(name).__exit__(None, None, None)')
    assert [name for kind, _, *name in heard if kind == "push"] == [["a b"], ["ä→"], ["x" * 200]]


def test_each_thread_has_ranges_of_its_own(ranges):
    heard, _ = ranges(
        """
def work():
    with sp.region("r"): pass
for _ in range(3):
    thread = threading.Thread(target=work); thread.start(); thread.join()
"""
    )
    assert story(heard) == "push:r pop " * 2 + "push:r pop"
    assert all(first[1] == second[1] for first, second in zip(heard[::2], heard[1::2], strict=True))


def test_calls_that_may_be_suspended_are_started_and_ended_by_number(ranges):
    heard, _ = ranges(
        """
def generator(name):
    with sp.region(name): yield
@sp.profile
async def decorated(): await asyncio.sleep(0)
a, b = generator("a"), generator("b")
next(a); next(b)
with sp.region("between"): a.close()
b.close()
async def main(): await asyncio.gather(decorated(), decorated())
asyncio.run(main())
"""
    )
    numbers = {number: name[0] for kind, number, *name in heard if kind == "start"}
    ends = [numbers[number] for kind, number, *_ in heard if kind == "end"]
    assert ends == ["a", "b", "decorated", "decorated"] and sorted(numbers.values()) == sorted(ends)
    assert story([event for event in heard if event[0] in ("push", "pop")]) == "push:between pop"


def test_a_range_that_ends_out_of_order_waits_for_those_above_it(ranges):
    heard, _ = ranges(
        """
a, b = sp.region("a"), sp.region("b")
a.__enter__(); b.__enter__(); a.__exit__(None, None, None)
print("middle")
with sp.region("c"): pass
b.__exit__(None, None, None)
"""
    )
    assert story(heard) == "push:a push:b push:c pop pop pop"


def test_a_call_that_another_thread_ends_is_popped_by_its_own(ranges):
    heard, _ = ranges(
        """
region = sp.region("moved")
entered, left = threading.Event(), threading.Event()
def work():
    region.__enter__(); entered.set(); left.wait()
    with sp.region("next"): pass
thread = threading.Thread(target=work); thread.start(); entered.wait()
region.__exit__(None, None, None); left.set(); thread.join()
"""
    )
    assert story(heard) == "push:moved push:next pop pop" and len({thread for _, thread, *_ in heard}) == 1


def test_paused_and_filtered_regions_have_no_range(ranges):
    heard, _ = ranges(
        """
with sp.region("off"): pass
sp.ProfileManager.pause()
with sp.region("on", tags=["on"]): sp.ProfileManager.resume()
with sp.region("on"): pass
""",
        settings="use_nvtx=True, region_tags=['on']",
    )
    assert story(heard) == "push:on pop"


def test_without_the_setting_there_are_none(ranges):
    assert ranges('with sp.region("r"): pass', settings="")[0] == []


def test_without_a_tool_calls_are_timed_all_the_same(ranges):
    assert ranges('with sp.region("r"): pass', tool=False) == ([], "{'r': 1}")


def test_ranges_go_with_gpu_times(ranges):
    heard, printed = ranges(
        """
with sp.region("outer"), sp.region("inner"): pass
""",
        settings="use_nvtx=True, use_gpu_timing=True, "
        "gpu_timing_backend=type('B', (), {'record_event': lambda self: 0, 'elapsed_time_ns': lambda self, a, b: 7})()",
    )
    assert story(heard) == "push:outer push:inner pop pop" and printed == "{'outer': 1, 'inner': 1}"


def test_a_missing_package_is_told_at_setup(pm, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ImportError, match=r"use_nvtx needs the package nvtx.*pip install"):
        pm.setup(output=None, use_nvtx=True)
    assert not pm.is_configured()
