"""Test suites of others give the same results inside a session with track_async as without.

Known differences, left out here: greenlet's test_leaks measures the memory of the process while it makes thousands of threads
and greenlets, and the tables of a session keep a row for each.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys, unittest
if sys.argv[1] == "inside":
    import scope_profiler as sp
    session = sp.session(output=None, verbose=False, track_async=True)
    session.__enter__()
results = {}
for name in sys.argv[2:]:
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(stream=nowhere).run(suite)
    results[name] = [result.testsRun, len(result.skipped), sorted(str(test) for test, _ in result.failures + result.errors)]
if sys.argv[1] == "inside":
    session.__exit__(None, None, None)
sys.__stdout__.write("\\n" + json.dumps(results) + "\\n")
"""

ASYNCIO = ["test_taskgroups", "test_timeouts", "test_context", "test_eager_task_factory"]
MORE_ASYNCIO = ["test_tasks", "test_runners", "test_base_events", "test_events", "test_futures", "test_locks", "test_pep492",
                "test_queues", "test_streams", "test_subprocess", "test_threads", "test_unix_events", "test_waitfor",
                "test_selector_events", "test_sock_lowlevel", "test_sendfile", "test_server"]
LANGUAGE = ["test.test_coroutines", "test.test_asyncgen", "test.test_contextlib_async"]
GREENLET = ["test_contextvars", "test_cpp", "test_extension_interface", "test_gc", "test_generator", "test_generator_nested",
            "test_greenlet", "test_greenlet_trash", "test_stack_saved", "test_throw", "test_tracing", "test_weakref"]


def existing(package, names):
    """The modules that this installation has."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return []
    (directory,) = found.submodule_search_locations
    return [f"{package}.{name}" for name in names if (Path(directory) / f"{name}.py").exists()]


def same_inside(python, names):
    def run(where):
        process = python(PROGRAM, where, *names, timeout=1500)
        return json.loads(process.stdout.strip().splitlines()[-1])

    assert run("inside") == run("outside")


@pytest.mark.slow
@pytest.mark.timeout(3200)
@pytest.mark.uninstrumented
def test_cpythons_suite_of_asyncio(python, soak):
    names = existing("test.test_asyncio", ASYNCIO + (MORE_ASYNCIO if soak else []))
    if not names:
        pytest.skip("this interpreter comes without its tests")
    same_inside(python, names + (LANGUAGE if soak else []))


@pytest.mark.timeout(3200)
@pytest.mark.uninstrumented
def test_greenlets_suite(python, soak):
    if not soak:
        pytest.skip("in ./run soak")
    pytest.importorskip("greenlet")
    pytest.importorskip("psutil")
    same_inside(python, existing("greenlet.tests", GREENLET))
