"""What ``scope-profiler --doctor`` tries: one function a check, each run in a process of its own (``python -m
scope_profiler.doctor_checks NAME``), so that what crashes, hangs or brings half of a package along ends with it.

A check returns what it found. What is not there is a :class:`Missing`, what works only in part a :class:`Limited`; both say what to
do about it. Any other exception is a fault, and is shown as it is.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["CHECKS", "ESSENTIAL", "Limited", "Missing"]


class Missing(Exception):
    """Something optional is not there. Arguments: what is amiss, and what to do about it."""


class Limited(Exception):
    """Something works in part. Arguments: what does and does not, and what to do about it."""


def _need(module: str, extra: str | None = None, package: str | None = None) -> Any:
    """An optional package, imported."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        wanted = f"'scope-profiler[{extra}]'" if extra else package or module
        reason = "not installed" if isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0] else str(error)
        raise Missing(reason, f"pip install {wanted}") from None


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


# -- recording -----------------------------------------------------------------------------------------------------------


def interpreter() -> str:
    """The interpreter, and what of the package was built for it."""
    import platform
    import sysconfig

    from scope_profiler import __version__, _core

    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    gil = "free-threaded" if free else "with the GIL"
    if free and sys._is_gil_enabled():  # type: ignore[attr-defined, unused-ignore]
        gil = "free-threaded build, but with the GIL switched on"
    pages = "with" if _core.HAS_VIEWER else "without"
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {gil}, {platform.machine()}, {_libc()}; scope-profiler {__version__} "
        f"{pages} pages, {os.path.basename(str(_core.__file__))}"
    )


def _libc() -> str:
    import platform

    name, version = platform.libc_ver()
    return f"{name} {version}".strip() or "musl or another libc"


def recording() -> str:
    """Calls of regions and decorated functions, on two threads, are recorded, nested, and cost what they should."""
    import threading
    import time

    import scope_profiler as sp

    calls, rounds = 1000, 20

    @sp.profile
    def work() -> None:
        with sp.region("inner"):
            pass

    with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        thread = threading.Thread(target=work, name="doctor")
        thread.start()
        thread.join()
        region = sp.region("many")
        costs = []
        for _ in range(rounds):  # the quickest: others may be using the processor
            start = time.perf_counter()
            for _ in range(calls):
                with region:
                    pass
            costs.append((time.perf_counter() - start) / calls * 1e9)
    results = run.results
    assert results is not None
    names = [info.name for info in results.threads[0]]
    found = {name: results[name].num_calls for name in ("work", "inner", "many")}
    if found != {"work": 1, "inner": 1, "many": calls * rounds} or "doctor" not in names:
        raise RuntimeError(f"recorded {found} on threads {names}")
    parents, calls_of_work = results["inner"][0].parent_ids, results["work"][0].call_ids
    if parents is None or calls_of_work is None or parents.tolist() != calls_of_work.tolist():
        raise RuntimeError("a nested call has not the parent that it should have")
    return f"a call of a region takes {min(costs):.0f} ns here, the loop around it included"


def clock() -> str:
    """The clock that stamps calls, against time.perf_counter_ns()."""
    import time

    import scope_profiler as sp
    from scope_profiler import _core

    sp.setup(output=None)
    with sp.region("r"):
        pass
    sp.finalize(verbose=False)
    apart = 0
    for _ in range(1000):
        before, here, after = time.perf_counter_ns(), _core.now_ns(), time.perf_counter_ns()
        apart = max(apart, before - here, here - after)
    source = {"tsc": "the processor's time-stamp counter", "monotonic": "clock_gettime(CLOCK_MONOTONIC)"}[_core.clock_source()]
    if apart > 1000:
        raise RuntimeError(f"{source} and time.perf_counter_ns() are {apart} ns apart")
    agreement = "at most 1 µs from time.perf_counter_ns()"
    if _core.clock_source() == "tsc":
        return f"{source}, {agreement}"
    raise Limited(f"{source}, {agreement}; the time-stamp counter, which makes calls cheaper, is not trustworthy here", "nothing: times are right")


# -- files ---------------------------------------------------------------------------------------------------------------


def output() -> str:
    """Whether a file can be made in the current directory, and how much room there is."""
    import tempfile

    directory = os.getcwd()
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".scope-profiler-doctor-") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        raise Limited(f"{directory}: {error.strerror or error}", "choose another place with output=, or -o") from None
    room = os.statvfs(directory)
    return f"{directory} can be written, with {room.f_bavail * room.f_frsize / 1e9:.1f} GB free"


def hdf5() -> str:
    """A profile is written and read back."""
    import tempfile

    import scope_profiler as sp

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "p.h5")
        _record(sp, path, 3)
        results = sp.load(path)
        size = os.path.getsize(path)
        if results["r"].num_calls != 3 or len(results["r"].durations) != 3:
            raise RuntimeError("a file does not read back as it was written")
    return f"a profile was written ({size / 1000:.0f} kB) and read back"


def _record(sp: Any, path: str, calls: int, **settings: Any) -> None:
    with sp.session(output=path, verbose=False, **settings):
        for _ in range(calls):
            with sp.region("r"):
                pass


def compression() -> str:
    """Each kind of compression, written and read back."""
    import tempfile

    import scope_profiler as sp

    sizes, failed = [], []
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("none", "auto", "gzip", "lzf", "zstd"):
            path = os.path.join(directory, f"{kind}.h5")
            try:
                _record(sp, path, 20_000, hdf5_compression=kind)
                if sp.load(path)["r"].num_calls != 20_000:
                    raise RuntimeError("calls are missing")
                sizes.append(f"{kind} {os.path.getsize(path) / 20_000:.1f}")
            except Exception as error:
                failed.append(f"{kind} ({error})")
    text = f"bytes a call: {', '.join(sizes)}"
    if failed:
        raise Limited(f"{text}; not: {', '.join(failed)}", "build with that library, or use hdf5_compression='auto'")
    return text


def spool() -> str:
    """A run in the current directory survives its process: one is killed, and recovered."""
    import shutil
    import signal
    import subprocess
    import tempfile

    from scope_profiler import _core

    here = os.getcwd()
    kind = _file_system(here)
    if not _core.spool_is_local(here):
        raise Limited(f"{here} is on {kind}, which is not local: runs have no spool there unless spool=True asks for one", "record to a local disk")
    directory = tempfile.mkdtemp(prefix=".scope-profiler-doctor-", dir=here)
    try:
        code = (
            "import os, signal, scope_profiler as sp\nsp.setup(output='p.h5')\n"
            "for _ in range(7):\n    with sp.region('r'): pass\nos.kill(os.getpid(), signal.SIGKILL)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True)
        left = [name for name in os.listdir(directory) if name.endswith(".spool")]
        if done.returncode != -signal.SIGKILL or not left:
            raise Limited(f"{here} ({kind}) takes no spool: {done.stderr.strip().splitlines()[-1:]}", "see docs/spool-format.md")
        command = [sys.executable, "-m", "scope_profiler", "recover", left[0], "-o", "q.h5"]
        subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
        import scope_profiler as sp

        calls = sp.load(os.path.join(directory, "q.h5"))["r"].num_calls
        if calls != 7:
            raise RuntimeError(f"{calls} of 7 calls were recovered")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return f"{here} ({kind}): of a killed process all calls were recovered"


def _file_system(path: str) -> str:
    """The type of the file system that a path is on."""
    best, kind = "", "an unknown file system"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = left.split()[4]
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, right.split()[0]
    return kind


def huge_pages() -> str:
    """Whether the kernel gives a huge page to memory that asks for one."""
    import mmap

    mode = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    size = 8 << 20
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
        got = True
    except OSError:
        got = False
    before = _anonymous_huge()
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1
    grown = _anonymous_huge() - before
    memory.close()
    if got and grown > 0:
        return f"{grown >> 10} of 8 MB that asked for them came on huge pages (the kernel's setting: {mode})"
    advice = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    raise Limited(f"the kernel gives none (its setting: {mode}): a call costs a few ns more", advice)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "none"


def _anonymous_huge() -> int:
    for line in _read("/proc/self/smaps_rollup").splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    return 0


# -- concurrency ---------------------------------------------------------------------------------------------------------


def _tasks(run: Callable[[Any], None]) -> int:
    """How many tasks of the package's own making are recorded when ``run`` runs them."""
    import scope_profiler as sp

    with sp.session(output=None, verbose=False, return_results=True, track_async=True) as session:
        run(sp)
    results = session.results
    assert results is not None
    region = results["task"][0] if "task" in results else None
    return 0 if region is None or region.task_ids is None else len({task for task in region.task_ids.tolist() if task >= 0})


def _expect_tasks(run: Callable[[Any], None], what: str) -> str:
    found = _tasks(run)
    if found != 2:
        raise RuntimeError(f"{found} of 2 tasks were followed")
    return f"{what}: two tasks followed, with their awaiting"


def _two_coroutines(sp: Any, asyncio: Any) -> Any:
    async def one() -> None:
        with sp.region("task"):
            await asyncio.sleep(0.001)

    async def main() -> None:
        await asyncio.gather(one(), one())

    return main()


def asyncio() -> str:
    """Two tasks of asyncio are followed."""
    import asyncio

    return _expect_tasks(lambda sp: asyncio.run(_two_coroutines(sp, asyncio)), "the standard loop")


def uvloop() -> str:
    """The same on uvloop."""
    import asyncio

    package = _need("uvloop")

    def run(sp: Any) -> None:
        loop = package.new_event_loop()
        try:
            loop.run_until_complete(_two_coroutines(sp, asyncio))
        finally:
            loop.close()

    return _expect_tasks(run, f"uvloop {_version('uvloop')}")


def trio() -> str:
    """Two tasks of trio are followed."""
    package = _need("trio")

    def run(sp: Any) -> None:
        async def one() -> None:
            with sp.region("task"):
                await package.sleep(0.001)

        async def main() -> None:
            async with package.open_nursery() as nursery:
                nursery.start_soon(one)
                nursery.start_soon(one)

        package.run(main)

    return _expect_tasks(run, f"trio {_version('trio')}")


def greenlet() -> str:
    """Two greenlets are followed."""
    package = _need("greenlet", "greenlet")

    def run(sp: Any) -> None:
        def work() -> None:
            with sp.region("task"):
                package.getcurrent().parent.switch()

        both = [package.greenlet(work), package.greenlet(work)]
        for _ in range(2):
            for one in both:
                one.switch()

    return _expect_tasks(run, f"greenlet {_version('greenlet')}")


def mpi() -> str:
    """mpi4py starts, and belongs to an MPI."""
    import shutil

    launcher = shutil.which("mpiexec") or shutil.which("mpirun")
    _need("mpi4py", "mpi")
    from mpi4py import MPI

    library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip()
    text = f"mpi4py {_version('mpi4py')} with {library}"
    if launcher is None:
        raise Limited(f"{text}, but there is no mpiexec to start ranks with", "install an MPI (openmpi-bin, mpich)")
    return f"{text}; ranks start with {launcher}"


# -- modes ---------------------------------------------------------------------------------------------------------------


def perf_events() -> str:
    """Which events of the kernel can be counted by region."""
    from scope_profiler import _core

    level = _read("/proc/sys/kernel/perf_event_paranoid")
    problems = _core.perf_event_problems()
    works = [name for name, problem in problems.items() if problem is None]
    fails = [name for name, problem in problems.items() if problem is not None]
    text = f"perf_event_paranoid is {level}; counts {', '.join(works) or 'nothing'}"
    if not fails:
        return text
    reason = next(problem for problem in problems.values() if problem is not None).removeprefix("perf_events: ")
    permitted = "does not let" not in reason
    advice = "use a machine with counters, or a virtual one that hands them on" if permitted else _PERMISSION
    kind = Limited if works else Missing
    raise kind(f"{text}; not {', '.join(fails)} ({reason})", advice)


_PERMISSION = "as root: sysctl kernel.perf_event_paranoid=1, or give the program the capability CAP_PERFMON"


def line_profiler() -> str:
    """The lines of a function are counted."""
    _need("line_profiler", "line-profiler")
    import scope_profiler as sp

    def three() -> None:
        for _ in range(3):
            pass

    with sp.session(output=None, verbose=False, return_results=True, use_line_profiler=True) as run:
        with sp.region("r", functions=[three]):
            three()
    assert run.results is not None
    hits = [record["hits"].tolist() for record in run.results.line_profile.get(0, []) if record["function"].endswith("three")]
    if hits != [[4, 3]]:
        raise RuntimeError(f"a loop of three rounds was counted as {hits}")
    return f"line_profiler {_version('line_profiler')}: a loop was counted right"


def nvtx() -> str:
    """Ranges are made; whether a tool hears of them."""
    _need("nvtx", "nvtx")
    import scope_profiler as sp

    with sp.session(output=None, verbose=False, use_nvtx=True), sp.region("doctor"):
        pass
    tool = os.environ.get("NVTX_INJECTION64_PATH")
    heard = f"heard by {tool}" if tool else "heard by no tool now; start the program under nsys or ncu"
    return f"nvtx {_version('nvtx')}: ranges are made, and {heard}"


def gpu() -> str:
    """A GPU's events are recorded and measured."""
    from scope_profiler.gpu_timing import resolve_gpu_timing_backend

    try:
        backend = resolve_gpu_timing_backend("auto")
    except RuntimeError as error:
        text = str(error).removeprefix("use_gpu_timing: ")
        raise Missing(text, "install torch or cupy for the machine's CUDA or ROCm; or give gpu_timing_backend an object") from None
    first, last = backend.record_event(), backend.record_event()
    return f"{backend.name}: two events, {backend.elapsed_time_ns(first, last)} ns apart"


def likwid() -> str:
    """LIKWID's markers open; whether it counts."""
    import shutil

    from scope_profiler.likwid_markers import import_pylikwid, is_counting

    program = shutil.which("likwid-perfctr")
    try:
        import_pylikwid()
    except ImportError:
        found = f"{program} is there, pylikwid is not" if program else "neither LIKWID nor pylikwid is there"
        raise Missing(found, "install LIKWID, then pip install 'scope-profiler[likwid]'") from None
    text = f"pylikwid {_version('pylikwid')}"
    if is_counting():
        return f"{text}, and LIKWID counts {os.environ['LIKWID_EVENTS']} in this process"
    if program is None:
        raise Limited(f"{text}, but no likwid-perfctr to start programs with", "put LIKWID's programs into PATH")
    return f"{text}; LIKWID counts in programs that {program} -m starts"


def memray() -> str:
    """An allocation is traced and found again."""
    package = _need("memray", "memray")
    import tempfile

    import scope_profiler as sp

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "p.bin")
        with sp.session(output=None, verbose=False, use_memray=True, memory_profile_path=path):
            block = bytearray(10_000_000)
        found = [record.size for record in package.FileReader(path).get_high_watermark_allocation_records()]
        if not any(size >= len(block) for size in found):
            raise RuntimeError("an allocation of 10 MB is not in the trace")
    return f"memray {_version('memray')}: an allocation of 10 MB was traced"


# -- showing -------------------------------------------------------------------------------------------------------------


def viewer() -> str:
    """A page is written."""
    import tempfile

    import scope_profiler as sp
    from scope_profiler import _core

    if not _core.HAS_VIEWER:
        raise Missing("this build has no page in it", "build it where Node.js is, or install a wheel")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "p.html")
        _record(sp, path, 3)
        return f"a page of {os.path.getsize(path) / 1000:.0f} kB was written"


def plots() -> str:
    """A plot is drawn with each of the packages that can."""
    import tempfile

    drawn, missing = [], []
    with tempfile.TemporaryDirectory() as directory:
        import scope_profiler as sp

        path = os.path.join(directory, "p.h5")
        _record(sp, path, 3)
        results = sp.load(path)
        for backend in ("matplotlib", "plotly", "plotext"):
            try:
                sp.plot_gantt(results, backend=backend, show=False, filepath=os.path.join(directory, f"{backend}.out.{_ENDINGS[backend]}"))
                drawn.append(f"{backend} {_version(backend)}")
            except ImportError:
                missing.append(backend)
    for package in ("pyvis", "pandas", "pyarrow"):
        try:
            _need(package)
            drawn.append(f"{package} {_version(package)}")
        except Missing:
            missing.append(package)
    if not missing:
        return ", ".join(drawn)
    text = f"{', '.join(drawn) or 'none'}; not installed: {', '.join(missing)}"
    kind = Limited if drawn else Missing
    raise kind(text, "pip install 'scope-profiler[plots,pandas,parquet]'")


_ENDINGS = {"matplotlib": "png", "plotly": "html", "plotext": "txt"}


def textual() -> str:
    """An application runs in a terminal that is only thought of."""
    import asyncio

    app = _need("textual.app", "tui").App()

    async def start() -> None:
        async with app.run_test():
            pass

    asyncio.run(start())
    return f"textual {_version('textual')}: an application ran"


def mcp() -> str:
    """The server for agents offers its tools."""
    import asyncio

    _need("mcp.server.fastmcp", "mcp")
    from scope_profiler.mcp_server.server import create_server

    tools = asyncio.run(create_server().list_tools())
    return f"mcp {_version('mcp')}: the server offers {len(tools)} tools"


def ipython() -> str:
    """The magics load into a shell."""
    import io
    from contextlib import redirect_stdout

    _need("IPython", "notebook")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    with redirect_stdout(io.StringIO()) as said:
        shell.run_line_magic("load_ext", "scope_profiler.ipython_magics")
        shell.run_cell_magic("scope", "doctor -q", "x = 1")
    from scope_profiler import last_results

    if last_results() is None:
        raise RuntimeError(f"a cell was not recorded: {said.getvalue()[:200]}")
    return f"IPython {_version('ipython')}: a cell was recorded"


# What is shown, in this order: name -> check.
CHECKS: dict[str, Callable[[], str]] = {
    "interpreter": interpreter, "recording": recording, "clock": clock, "output": output, "HDF5": hdf5, "compression": compression,
    "spool": spool, "huge pages": huge_pages, "asyncio": asyncio, "uvloop": uvloop, "trio": trio, "greenlet": greenlet, "MPI": mpi,
    "perf events": perf_events, "line_profiler": line_profiler, "nvtx": nvtx, "gpu": gpu, "likwid": likwid, "memray": memray,
    "viewer": viewer, "plots": plots, "textual": textual, "mcp": mcp, "IPython": ipython,
}  # fmt: skip

# Without these nothing is recorded.
ESSENTIAL = ("interpreter", "recording", "HDF5")


def run_check(name: str) -> dict[str, str]:
    """Try one: ``status`` (works, limited, missing, fails), ``detail`` and ``remedy``."""
    import warnings

    warnings.simplefilter("ignore")
    try:
        return {"status": "works", "detail": CHECKS[name](), "remedy": ""}
    except (Missing, Limited) as found:
        detail, remedy = found.args
        return {"status": type(found).__name__.lower(), "detail": detail, "remedy": remedy}
    except Exception as error:
        return {"status": "fails", "detail": f"{type(error).__name__}: {error}", "remedy": "please report this"}


def main() -> int:
    """Try the check that the command line names, and write what it found as JSON where nobody else writes."""
    import json

    answer = os.dup(1)
    os.dup2(2, 1)  # packages print, some from C
    found = run_check(sys.argv[1])
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
