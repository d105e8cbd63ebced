"""The end of a process, signals, finalizers and other interpreters: nothing crashes, nothing is printed, no call is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp
from scope_profiler import _core

Program = Callable[..., subprocess.CompletedProcess[str]]

# A program calls begin() and uses R(name) for regions. argv: mode, then what the program wants.
HEAD = """
import sys
mode = sys.argv[1]
if mode == "plain":
    from contextlib import nullcontext
    def R(name): return nullcontext()
    def begin(): pass
else:
    import scope_profiler as sp
    R = sp.region
    def begin():
        how = dict(output="run.h5", track_async="async" in mode, track_threads="threads" in mode)
        if "setup" in mode:
            sp.setup(**how)
        elif "auto" in mode:
            sp.setup(auto_finalize=True, **how)
        else:
            global opened
            opened = sp.session(verbose=False, **how); opened.__enter__()
"""

MODES = ["session async", "setup async", "auto async", "setup threads"]


def normal(text: str) -> str:
    """Standard error without what differs from run to run: addresses, numbers of tasks and lines of the program."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return re.sub(r"Task-\d+", "Task-N", text)


_plain_ends: dict[Any, subprocess.CompletedProcess[str]] = {}


def same_end(python: Program, program: str, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program plainly (once) and profiled: exit status and standard error must be the same."""
    source = HEAD + textwrap.dedent(program)
    if (source, arguments) not in _plain_ends:
        _plain_ends[source, arguments] = python(source, "plain", *arguments, check=False)
    plain = _plain_ends[source, arguments]
    profiled = python(source, mode, *arguments, check=False)
    assert profiled.returncode == plain.returncode, profiled.stderr
    # Tasks that are pending are told of in the order of a set.
    assert sorted(normal(profiled.stderr).splitlines()) == sorted(normal(plain.stderr).splitlines())
    if "auto" not in mode:  # that one prints its table
        assert profiled.stdout == plain.stdout
    return profiled


# -- the end of the process ------------------------------------------------------------------------------------------------

ENDS = {
    "daemon threads that record": """
        import threading, time
        begin()
        def forever():
            while True:
                with R("hot"), R("inner"): pass
        for _ in range(3): threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.02)
        sys.exit(3)
        """,
    "daemon threads with loops and tasks": """
        import asyncio, threading, time
        begin()
        async def job(n):
            while True:
                with R("job"): await asyncio.sleep(0)
        async def main(): await asyncio.gather(*(job(n) for n in range(3)))
        for _ in range(2): threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
        time.sleep(0.05)
        """,
    "a daemon thread that waits inside of a region": """
        import threading, time
        begin()
        inside = threading.Event()
        def waits():
            with R("open"):
                inside.set(); threading.Event().wait()
        threading.Thread(target=waits, daemon=True).start()
        inside.wait()
        raise KeyError("the program's own error")
        """,
    "pending tasks": """
        import asyncio
        begin()
        async def job(n):
            with R("job"): await asyncio.sleep(1000)
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(job(n), name=f"job {n}") for n in range(3)]
        loop.run_until_complete(asyncio.sleep(0))
        del tasks
        """,
    "pending tasks and a loop that others hold": """
        import asyncio, builtins
        begin()
        async def job(n):
            with R("job"):
                try: await asyncio.sleep(1000)
                finally:
                    with R("cleaning up"): pass
        builtins.loop = loop = asyncio.new_event_loop()
        builtins.tasks = [loop.create_task(job(n)) for n in range(3)]
        loop.run_until_complete(asyncio.sleep(0))
        """,
    "a task that exits the process": """
        import asyncio
        begin()
        async def other():
            with R("other"): await asyncio.sleep(1000)
        async def main():
            task = asyncio.create_task(other())
            with R("main"):
                await asyncio.sleep(0)
                sys.exit(9)
        asyncio.run(main())
        """,
    "an exception that no task has been asked for": """
        import asyncio
        begin()
        async def fails():
            with R("fails"): raise ValueError("never retrieved")
        async def main():
            asyncio.create_task(fails(), name="failing")
            await asyncio.sleep(0); await asyncio.sleep(0)
        asyncio.run(main())
        """,
    "a coroutine that was never awaited": """
        import asyncio
        begin()
        async def job(): pass
        async def main(): job()
        asyncio.run(main())
        """,
    "suspended generators": """
        import asyncio
        begin()
        def generator():
            with R("generator"):
                try: yield
                finally: print("closed")
        async def agenerator():
            with R("asynchronous"):
                try: yield
                finally: print("closed")
        held = [generator() for _ in range(3)]
        for one in held: next(one)
        async def main():
            held.append(agenerator()); await held[-1].__anext__()
            async for _ in agenerator(): break
            await asyncio.sleep(0)
        asyncio.run(main())
        """,
    "regions in atexit functions and finalizers of globals": """
        import atexit, builtins, weakref
        class Late:
            def __init__(self, name): self.name = name
            def __del__(self):
                with R(self.name): pass
        def at_exit():
            with R("at exit"): Late("in an atexit function")
        atexit.register(at_exit)
        begin()
        atexit.register(at_exit)
        kept = Late("global")
        builtins.kept = Late("builtins")
        cycle = Late("cycle"); cycle.self = cycle
        kept.region = R("kept"); kept.region.__enter__()
        """,
    "executors and their threads": """
        import asyncio, threading, time
        from concurrent.futures import ThreadPoolExecutor
        begin()
        pool = ThreadPoolExecutor(2)
        def work(n):
            with R("work"): time.sleep(0.001)
        for n in range(20): pool.submit(work, n)
        async def main():
            await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(5)))
        asyncio.run(main())
        def late():
            time.sleep(0.05)
            with R("late"): pass
        threading.Thread(target=late).start()
        """,
    "an interrupt": """
        import asyncio, os, signal
        begin()
        async def main():
            with R("main"):
                asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGINT)
                await asyncio.sleep(1000)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asyncio.run(main())
        """,
    "a signal that ends the process": """
        import os, signal
        begin()
        with R("open"): os.kill(os.getpid(), signal.SIGTERM)
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", sorted(ENDS))
def test_a_process_ends_as_it_does_without_profiling(python: Program, program: str, mode: str) -> None:
    same_end(python, ENDS[program], mode)


@pytest.mark.parametrize("program", ["daemon threads with loops and tasks", "pending tasks", "suspended generators"])
def test_a_process_ends_well_often(python: Program, program: str, tmp_path: Path, soak: bool) -> None:
    """The same again and again."""
    source = "import faulthandler; faulthandler.enable()\n" + textwrap.dedent(ENDS[program])
    for _ in range(50 if soak else 3):
        same_end(python, source, "setup async")
        for left in tmp_path.glob("run.h5*"):
            left.unlink()  # the next one would tell of it


GREENLETS = """
    import threading
    greenlets = __import__(sys.argv[2])
    greenlet = greenlets.greenlet if sys.argv[2] == "greenlet" else None
    begin()
    def fiber():
        with R("fiber"):
            try: greenlets.getcurrent().parent.switch()
            finally:
                with R("cleaning up"): pass
    def start():
        made = [greenlet(fiber) for _ in range(3)]
        for one in made: one.switch()
        return made
    if greenlet:
        kept = start()
        def daemon():
            mine = start(); ready.set(); threading.Event().wait()
        ready = threading.Event()
        threading.Thread(target=daemon, daemon=True).start(); ready.wait()
        thread = threading.Thread(target=start); thread.start(); thread.join()
    else:
        def body():
            with R("body"): greenlets.sleep(1000)
        kept = [greenlets.spawn(body) for _ in range(3)]
        greenlets.sleep(0.01)
        greenlets.get_hub().loop.run_callback(lambda: None)
"""


@pytest.mark.parametrize("module", ["greenlet", "gevent"])
@pytest.mark.parametrize("mode", ["session async", "auto async"])
def test_suspended_greenlets_at_the_end(python: Program, module: str, mode: str) -> None:
    pytest.importorskip(module)
    same_end(python, GREENLETS, mode, module)


def test_auto_finalize_has_the_tables_of_what_still_runs(python: Program, tmp_path: Path) -> None:
    """At exit the file has the threads and tasks of the run, with those that go on as alive and not done."""
    python(
        """
import asyncio, threading
import scope_profiler as sp
sp.setup(output="run.h5", track_async=True, auto_finalize=True)
inside = threading.Event()
def waits():
    with sp.region("done"): pass
    inside.set(); threading.Event().wait()
threading.Thread(target=waits, name="waiting", daemon=True).start()
inside.wait()
def late():
    threading.main_thread().join()
    with sp.region("late"): pass
threading.Thread(target=late, name="late").start()
async def quick():
    with sp.region("quick"): await asyncio.sleep(0)
async def slow(): await asyncio.sleep(1000)
loop = asyncio.new_event_loop()
kept = loop.create_task(slow(), name="slow")
kept._log_destroy_pending = False
loop.run_until_complete(quick())
"""
    )
    results = sp.load(tmp_path / "run.h5")
    assert {name: results[name].num_calls for name in results.region_names} == {"done": 1, "quick": 1, "late": 1}
    threads = {row.name: row for row in results.threads[0]}
    assert threads["waiting"].alive and threads["MainThread"].alive and not threads["late"].alive
    tasks = {row.name: row for row in results.tasks[0]}
    assert not tasks["slow"].done and tasks["slow"].steps == 1
    assert [row.done for row in results.tasks[0] if row.coro_name == "quick"] == [True]


# -- native threads ------------------------------------------------------------------------------------------------------------

NATIVE = """
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

static void (*callback)(void);
static sem_t called, go;
static pthread_t threads[4];
static int count;

static void *run(void *unused)
{
    (void)unused;
    callback();
    sem_post(&called);
    sem_wait(&go); /* until the interpreter is gone */
    return NULL;
}

/* Runs in exit(), after the interpreter has been finalized: the threads' own destructors come after this. */
static void at_exit(void)
{
    for (int i = 0; i < count; i++) sem_post(&go);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    write(2, "joined\\n", 7);
}

int start(void (*given)(void), int how_many)
{
    callback = given;
    count = how_many;
    sem_init(&called, 0, 0);
    sem_init(&go, 0, 0);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, run, NULL)) return -1;
    }
    return atexit(at_exit);
}

void wait_for_calls(void)
{
    for (int i = 0; i < count; i++) sem_wait(&called);
}
"""


@pytest.fixture(scope="session")
def native_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(NATIVE)
    command = [compiler, "-shared", "-fPIC", "-pthread", "-o", "native.so", "native.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return str(folder / "native.so")


@pytest.mark.parametrize("mode", ["session async", "setup threads", "auto async"])
def test_native_threads_that_outlive_the_interpreter(python: Program, native_library: str, mode: str) -> None:
    """Threads that called into Python and end after it is gone: their ends must not touch it."""
    process = same_end(
        python,
        """
        import ctypes
        library = ctypes.CDLL(sys.argv[2])
        begin()
        @ctypes.CFUNCTYPE(None)
        def called():
            with R("native"), R("inner"): pass
        assert library.start(called, 4) == 0
        library.wait_for_calls()
        """,
        mode,
        native_library,
    )
    assert process.returncode == 0 and process.stderr == "joined\n"


def test_native_threads_are_counted_and_alive_in_the_table(python: Program, native_library: str, tmp_path: Path) -> None:
    same_end(
        python,
        """
        import ctypes
        library = ctypes.CDLL(sys.argv[2])
        begin()
        @ctypes.CFUNCTYPE(None)
        def called():
            with R("native"): pass
        assert library.start(called, 3) == 0
        library.wait_for_calls()
        if mode != "plain": opened.__exit__(None, None, None)
        """,
        "session threads",
        native_library,
    )
    results = sp.load(tmp_path / "run.h5")
    native = results["native"][0]
    assert native.num_calls == 3 and len(set(native.thread_ids.tolist())) == 3
    rows = {row.index: row for row in results.threads[0]}
    assert len(rows) == 4
    assert all(rows[index].native_id > 0 for index in native.thread_ids.tolist())


# -- signals and finalizers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["setup", "setup threads", "setup async"])
def test_a_region_in_a_signal_handler(python: Program, mode: str) -> None:
    """Signals that arrive anywhere, between a look-up and its call too: every call of the handler and of the program counts."""
    python(
        HEAD
        + """
import signal, time
begin()
handled = made = 0
def handler(number, frame):
    global handled
    with R("handler"), R("shared"): handled += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
end = time.monotonic() + 0.5
while handled < 200 and time.monotonic() < end + 20:
    for _ in range(100):
        with R("program"), R("shared"): made += 1
signal.setitimer(signal.ITIMER_REAL, 0)
results = sp.finalize(verbose=False, return_results=True)
assert results["handler"].num_calls == handled >= 200, (results["handler"].num_calls, handled)
assert results["program"].num_calls == made
assert results["shared"].num_calls == made + handled
graph = {call["call_id"]: call for call in results.call_graph()}
parents = {(call["name"], graph[call["parent_id"]]["name"]) for call in graph.values()
           if call["name"] == "shared" and call["parent_id"] is not None}
assert parents == {("shared", "program"), ("shared", "handler")}, parents
""",
        mode,
    )


def test_a_signal_handler_that_raises_closes_the_regions_it_leaves(python: Program) -> None:
    python(
        HEAD
        + """
import signal, time
begin()
class Stop(Exception): pass
def handler(number, frame): raise Stop
signal.signal(signal.SIGALRM, handler)
for delay in range(1, 60):
    until = time.monotonic() + 20
    try:
        signal.setitimer(signal.ITIMER_REAL, delay / 20000)
        while True: # on 3.13 an exception in the first test of a condition here is not in the try statement
            with R("outer"):
                with R("inner"): pass
            if time.monotonic() > until: sys.exit("nothing was raised in the loop")
    except Stop: pass
run = sp.ProfileManager._state.recording.run
results = sp.finalize(verbose=False, return_results=True)
# An exception between __enter__ and the block (or in the exit) leaves that one call open, as Python has it for any context manager.
opened = run.open_calls()
counts = run.call_counts()
for name in ("outer", "inner"):
    assert results[name].num_calls + opened.count(name) <= counts[name]
    assert (results[name][0].durations_ns >= 0).all()
assert len(opened) <= 2 * 59
assert len(results.call_graph()) == sum(results[name].num_calls for name in results.region_names)
""",
        "setup threads",
    )


def test_regions_in_asyncio_signal_handlers(python: Program) -> None:
    python(
        HEAD
        + """
import asyncio, os, signal
begin()
handled = 0
def handler():
    global handled
    handled += 1
    with R("handler"): pass
async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, handler)
    for _ in range(20):
        with R("main"):
            os.kill(os.getpid(), signal.SIGUSR1)
            while handled <= _: await asyncio.sleep(0)
asyncio.run(main())
results = sp.finalize(verbose=False, return_results=True)
assert results["handler"].num_calls == results["main"].num_calls == 20
assert set(results["handler"][0].task_ids.tolist()) == {-1}, "a callback of the loop is in no task"
assert set(results["main"][0].task_ids.tolist()) == {0}
""",
        "setup async",
    )


@pytest.mark.parametrize("mode", ["setup", "setup threads", "setup async"])
def test_a_region_in_a_finalizer_during_a_region(python: Program, mode: str) -> None:
    """__del__ and weak reference callbacks run at any moment: inside of a region, and by the collector."""
    python(
        HEAD
        + """
import asyncio, gc, weakref
begin()
gc.set_threshold(7)
made = died = 0
class Late:
    def __init__(self, cycle):
        global made
        made += 1
        self.cycle = self if cycle else None
        weakref.finalize(self, done)
    def __del__(self):
        with R("del"):
            with R("shared"): [[] for _ in range(20)]
def done():
    global died
    died += 1
    with R("callback"): pass
def body():
    for i in range(300):
        with R("body"):
            Late(i % 2)
            with R("shared"): [[] for _ in range(10)]
async def main():
    for _ in range(3): await asyncio.gather(*(asyncio.to_thread(lambda: None), asyncio.sleep(0)))
    body()
if "async" in mode: asyncio.run(main())
else: body()
gc.collect()
assert died == made == 300
results = sp.finalize(verbose=False, return_results=True)
counts = {name: results[name].num_calls for name in results.region_names}
assert counts == {"body": 300, "del": 300, "callback": 300, "shared": 600}, counts
results.call_graph()
""",
        mode,
    )


def test_a_finalizer_that_finalizes(python: Program) -> None:
    """finalize() called by a finalizer in the middle of another one is refused, not a deadlock."""
    python(
        HEAD
        + """
import gc
begin()
gc.set_threshold(1)
outcomes = []
class Late:
    def __del__(self):
        try: sp.finalize(verbose=False)
        except RuntimeError as error: outcomes.append(str(error))
        else: outcomes.append(None)
for _ in range(20):
    one = Late(); one.cycle = one; del one
    with R("r"): pass
    sp.finalize(verbose=False)
gc.collect()
assert outcomes and all(o is None or "under way" in o for o in outcomes), outcomes
""",
        "setup threads",
    )


# -- other interpreters ------------------------------------------------------------------------------------------------------------------

SUBINTERPRETER = """
import sys, threading
import scope_profiler as sp
if sys.version_info >= (3, 14):
    from concurrent import interpreters
    def execute(source):
        one = interpreters.create()
        try: one.exec(source)
        finally: one.close()
elif sys.version_info >= (3, 13):
    import _interpreters
    def execute(source):
        one = _interpreters.create(sys.argv[1])
        try:
            failure = _interpreters.exec(one, source)
            if failure is not None: raise RuntimeError(failure.formatted)
        finally: _interpreters.destroy(one)
else:
    import _xxsubinterpreters
    def execute(source):
        one = _xxsubinterpreters.create(isolated=sys.argv[1] == "isolated")
        try: _xxsubinterpreters.run_string(one, source)
        finally: _xxsubinterpreters.destroy(one)

IMPORTS = '''
try: import scope_profiler._core
except ImportError as error: assert "subinterpreter" in str(error) or "interpreter" in str(error), error
else: raise SystemExit("imported")
try:
    import scope_profiler
    scope_profiler.region("in a subinterpreter")
except ImportError: pass
else: raise SystemExit("a region")
'''
WORKS = '''
import _thread
done = []
for _ in range(3): done.append(_)
'''
async_main = sp.profile("decorated")(lambda: None)
with sp.session(output=None, verbose=False, return_results=True, track_async=True) as run:
    for _ in range(3):
        with sp.region("main"):
            async_main()
            execute(IMPORTS)
            execute(WORKS)
        thread = threading.Thread(target=execute, args=(IMPORTS,)); thread.start(); thread.join()
assert run.results["main"].num_calls == run.results["decorated"].num_calls == 3
assert len(run.results.threads[0]) == 4
assert "in a subinterpreter" not in run.results.region_names
with sp.session(output=None, verbose=False, return_results=True) as run:
    with sp.region("again"): pass
assert run.results["again"].num_calls == 1
print("fine")
"""


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_subinterpreters(python: Program, tmp_path: Path, kind: str) -> None:
    """There the import is a clear ImportError, and the main interpreter's run goes on untouched."""
    # An editable install runs its build at the import, which an isolated interpreter must not do: a plain one stands in.
    package = tmp_path / "site" / "scope_profiler"
    package.mkdir(parents=True)
    extension = Path(_core.__file__)
    for file in [*Path(sp.__file__).parent.glob("*.py"), extension]:
        (package / file.name).symlink_to(file)
    environment = {
        **os.environ, "PYTHONPATH": str(package.parent), "MESONPY_EDITABLE_SKIP": str(extension.parents[1])
    }  # fmt: skip
    process = python(SUBINTERPRETER, kind, env=environment)
    assert process.stdout == "fine\n" and process.stderr == ""


EMBEDDING = """
#include <Python.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argc;
    for (int round = 0; round < 2; round++) {
        Py_Initialize();
        if (PyRun_SimpleString(argv[1]) != 0) return 2;
        if (Py_FinalizeEx() < 0) return 3;
    }
    puts("finalized twice");
    return 0;
}
"""


@pytest.mark.uninstrumented
def test_an_interpreter_that_is_started_again_in_one_process(tmp_path: Path) -> None:
    """A program that embeds Python may finalize it, and start it again: the second one gets the package or an ImportError."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("LDLIBRARY") or "")
    if compiler is None or not library.is_file() or not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("needs a C compiler and what it takes to embed Python")
    (tmp_path / "embed.c").write_text(EMBEDDING)
    link = (sysconfig.get_config_var("LIBS") or "").split() + (sysconfig.get_config_var("SYSLIBS") or "").split()
    command = [compiler, "-I", sysconfig.get_path("include"), "embed.c", str(library), *link, "-lm", "-ldl", "-lpthread"]
    command += ["-Wl,-export-dynamic", f"-Wl,-rpath,{library.parent}", "-o", "embed"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    if built.returncode:
        pytest.skip(f"cannot embed this Python: {built.stderr[-300:]}")
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
try:
    import scope_profiler as sp
    import asyncio, threading
    with sp.session(output=None, verbose=False, return_results=True, track_async=True) as run:
        with sp.region("r"): pass
        thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
        asyncio.run(asyncio.sleep(0))
    assert run.results["r"].num_calls == 1
    sp.setup(output=None, track_async=True)
    sp.region("left open").__enter__()
except ImportError as error:
    print(error)
"""
    plain = "import asyncio; asyncio.run(asyncio.sleep(0))"
    if subprocess.run([str(tmp_path / "embed"), plain], capture_output=True, timeout=240).returncode:
        pytest.skip("this Python cannot import asyncio in its second interpreter")
    process = subprocess.run([str(tmp_path / "embed"), program], capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("finalized twice\n") and process.stderr == ""
