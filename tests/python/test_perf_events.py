"""perf_events: counters of the kernel by region, against what the program did and what the kernel says elsewhere."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time

import h5py
import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.perf_counting import PerfCounting
from scope_profiler.perf_events import PerfEventTotals

PAGE = resource.getpagesize()
SOFTWARE = ["task-clock", "cpu-clock", "page-faults", "context-switches"]
HARDWARE = ["cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses"]
# A container may forbid them all. Then the refusal is what there is to be tested.
FORBIDDEN = [name for name in SOFTWARE if _core.perf_event_problems()[name]]
counts = pytest.mark.skipif(bool(FORBIDDEN), reason=f"the kernel lets nobody count {', '.join(FORBIDDEN)} here")


def touch(pages):
    """Make the kernel map so many fresh pages, whatever its huge pages would do."""
    import mmap

    memory = mmap.mmap(-1, pages * PAGE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(pages):
        memory[page * PAGE] = 1
    return memory


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@counts
def test_page_faults_are_those_that_the_region_made(pm):
    pm.setup(output=None, perf_events=["page-faults"])
    kept = []
    with pm.region("outside"):
        pass
    with pm.region("touch"):
        kept.append(touch(1000))
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    assert totals["touch"].calls == 1 and 1000 <= totals["touch"].values["page-faults"] < 1100
    assert totals["outside"].values["page-faults"] < 20


@counts
def test_task_clock_is_the_threads_cpu_time(pm):
    pm.setup(output=None, perf_events=["task-clock", "cpu-clock"])
    start = time.thread_time_ns()
    with pm.region("burn"):
        begin = time.thread_time_ns()
        burn(0.05)
        spent = time.thread_time_ns() - begin
    around = time.thread_time_ns() - start
    with pm.region("sleep"):
        time.sleep(0.05)
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    counted = totals["burn"].values["task-clock"]
    assert spent - 2e6 <= counted <= around + 2e6
    assert totals["sleep"].values["task-clock"] < 10e6


@counts
def test_context_switches_are_counted_though_they_happen_in_the_kernel(pm):
    pm.setup(output=None, perf_events="context-switches")
    before = resource.getrusage(resource.RUSAGE_THREAD)
    with pm.region("sleep"):
        for _ in range(25):
            time.sleep(0.001)
    after = resource.getrusage(resource.RUSAGE_THREAD)
    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
    counted = pm.finalize(verbose=False, return_results=True).get_perf_events(0)["sleep"].values["context-switches"]
    assert 25 <= counted <= switches


@counts
def test_nested_and_recursive_calls_count_in_each_of_them(pm):
    pm.setup(output=None, perf_events=["page-faults"])
    kept = []

    def down(levels):
        with pm.region("down"):
            kept.append(touch(100))
            if levels > 1:
                down(levels - 1)

    with pm.region("outer"):
        down(4)
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    assert totals["down"].calls == 4
    assert 1000 <= totals["down"].values["page-faults"] < 1200  # 400 + 300 + 200 + 100
    assert 400 <= totals["outer"].values["page-faults"] < 500


@counts
@pytest.mark.filterwarnings("ignore:calls overlap:RuntimeWarning")
def test_each_thread_counts_its_own(pm):
    pm.setup(output=None, perf_events=["page-faults", "task-clock"])
    barrier = threading.Barrier(4)
    kept = []

    def work(number):
        with pm.region(f"thread {number}"):
            barrier.wait()
            kept.append(touch(100 * number))
            barrier.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    for number in range(1, 5):
        assert 100 * number <= totals[f"thread {number}"].values["page-faults"] < 100 * number + 60


@counts
def test_the_counters_of_a_thread_are_closed_when_it_ends(pm):
    pm.setup(output=None, perf_events=SOFTWARE)

    def work():
        with pm.region("r"):
            pass

    def open_files():
        return len(os.listdir("/proc/self/fd"))

    with pm.region("r"):
        pass
    before = open_files()
    for _ in range(50):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    deadline = time.monotonic() + 10  # a thread's own clean-up follows join()
    while open_files() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_files() == before
    assert pm.finalize(verbose=False, return_results=True).get_perf_events(0)["r"].calls == 51
    pm.reset()


@counts
def test_counters_are_closed_when_their_session_ends_though_threads_live_on(pm):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    go, stop = threading.Event(), threading.Event()

    def work():
        with pm.region("r"):
            go.set()
        stop.wait()

    thread = threading.Thread(target=work)
    with pm.session(output=None, verbose=False, return_results=True, perf_events=SOFTWARE) as run:
        thread.start()
        go.wait()
        assert open_files() > before
    assert open_files() == before and run.results.get_perf_events(0)["r"].calls == 1
    stop.set()
    thread.join()


@counts
def test_threads_without_a_file_to_spare_are_timed_and_told(pm):
    script = """
import resource, threading, warnings, scope_profiler as sp
sp.setup(output=None, perf_events=["page-faults"])
with sp.region("r"): pass
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True: held.append(open("/dev/null"))
except OSError: pass
def work():
    with sp.region("r"): pass
thread = threading.Thread(target=work); thread.start(); thread.join()
del held
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    results = sp.finalize(verbose=False, return_results=True)
print(results["r"].num_calls, results.get_perf_events(0)["r"].calls, [str(warning.message) for warning in told])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 1 ['perf_events: 1 call could not be counted"), done.stdout + done.stderr


@counts
def test_a_call_that_another_thread_ends_is_counted_on_its_own(pm):
    pm.setup(output=None, perf_events=["page-faults"])
    region = pm.region("moved")
    entered, leave = threading.Event(), threading.Event()
    kept = []

    def work():
        region.__enter__()
        kept.append(touch(200))
        entered.set()
        leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    kept.append(touch(500))
    region.__exit__(None, None, None)
    leave.set()
    thread.join()
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    assert 200 <= totals["moved"].values["page-faults"] < 400


@counts
def test_native_calls_are_counted_too(pm, native_library, tmp_path):
    source = (
        "#include <scope_profiler.h>\n#include <sys/mman.h>\n"
        "void work(long pages);\n"
        "void work(long pages) { int region = sp_region(\"native\"); sp_begin(region);\n"
        "char *memory = mmap(0, (size_t)pages * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        "madvise(memory, (size_t)pages * 4096, MADV_NOHUGEPAGE);\n"
        "for (long page = 0; page < pages; page++) memory[page * 4096] = 1;\n"
        "munmap(memory, (size_t)pages * 4096); sp_end(region); }\n"
    )
    library = native_library.compile(source, tmp_path / "work.so", "-shared", "-fPIC", std="gnu11")
    sp.setup(output=None, perf_events=["page-faults"])
    try:
        ctypes.CDLL(str(library)).work(300)
        totals = sp.finalize(verbose=False, return_results=True).get_perf_events(0)
        assert totals["native"].calls == 1 and 300 <= totals["native"].values["page-faults"] < 400
    finally:
        sp.reset()


@counts
def test_totals_are_in_the_file_region_by_region_names_with_slashes_too(pm, tmp_path):
    path = tmp_path / "p.h5"
    with pm.session(output=path, verbose=False, return_results=True, perf_events=["page-faults", "task-clock"]) as run:
        for name in ("a", "a/b", "a/b/c"):
            with pm.region(name):
                burn(0.001)
    stored = sp.load(path).get_perf_events(0)
    assert stored == run.results.get_perf_events(0)
    assert set(stored) == {"scope_profiler.session", "a", "a/b", "a/b/c"}
    assert all(isinstance(totals, PerfEventTotals) and list(totals.values) == ["page-faults", "task-clock"] for totals in stored.values())
    with h5py.File(path) as file:
        group = file["rank0/perf_events/a"]
        assert group.attrs["calls"] == 1 and list(group.attrs["event_names"]) == ["page-faults", "task-clock"]
        assert group["values"].dtype == "uint64" and group["values"][1] == stored["a"].values["task-clock"]


@counts
def test_totals_go_through_json(pm, tmp_path):
    path = tmp_path / "p.json"
    with pm.session(output=path, verbose=False, return_results=True, perf_events=["task-clock"]) as run:
        with pm.region("a/b"):
            burn(0.001)
    assert sp.load(path).get_perf_events(0) == run.results.get_perf_events(0)


@counts
def test_each_checkpoint_has_the_calls_since_the_last(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", perf_events=["page-faults"])
    kept = []
    for pages, calls in ((100, 1), (300, 2)):
        for _ in range(calls):
            with pm.region("touch"):
                kept.append(touch(pages))
        results = pm.finalize(verbose=False, return_results=True)
        totals = results.get_perf_events(0)["touch"]
        assert totals.calls == calls == results["touch"].num_calls
        assert pages * calls <= totals.values["page-faults"] < pages * calls + 100
    assert pm.finalize(verbose=False, return_results=True).get_perf_events(0) == {}


@counts
def test_without_a_file_every_finalize_has_all_calls(pm):
    pm.setup(output=None, perf_events=["page-faults"])
    for calls in (1, 2):
        with pm.region("r"):
            pass
        assert pm.finalize(verbose=False, return_results=True).get_perf_events(0)["r"].calls == calls


@counts
def test_paused_and_filtered_calls_are_not_counted(pm):
    pm.setup(output=None, perf_events=["task-clock"], region_tags=["t"])
    with pm.region("on", tags=["t"]), pm.region("off"):
        pass
    pm.pause()
    with pm.region("on"):
        pass
    pm.resume()
    totals = pm.finalize(verbose=False, return_results=True).get_perf_events(0)
    assert {name: total.calls for name, total in totals.items()} == {"on": 1}


@counts
def test_times_are_without_the_cost_of_reading_counters(pm):
    def length(**settings):
        pm.setup(output=None, **settings)
        for _ in range(300):
            with pm.region("nothing"):
                pass
        return sorted(pm.finalize(verbose=False, return_results=True)["nothing"][0].durations_ns.tolist())[150]

    plain, counted = length(), length(perf_events=SOFTWARE)
    assert counted < plain + 500  # a reading costs more than that


@pytest.mark.parametrize("event", HARDWARE)
def test_an_event_that_this_machine_counts_is_counted_and_one_it_does_not_is_told_at_setup(pm, event):
    problem = _core.perf_event_problems()[event]
    if problem is not None:
        with pytest.raises(sp.PerfEventError, match=event) as caught:
            pm.setup(output=None, perf_events=["task-clock", event] if not FORBIDDEN else [event])
        assert str(caught.value) == problem and not pm.is_configured()
        return
    pm.setup(output=None, perf_events=[event])
    with pm.region("work"):
        burn(0.05)
    assert pm.finalize(verbose=False, return_results=True).get_perf_events(0)["work"].values[event] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the right to give rights away")
def test_what_the_kernel_forbids_is_told_at_setup_with_its_paranoid_level():
    script = (
        "import scope_profiler as sp\n"
        "for event in ('context-switches', 'page-faults'):\n"
        "    try: sp.setup(output=None, perf_events=event, replace=True); print('counts', event)\n"
        "    except sp.PerfEventError as error: print(error)\n"
    )
    level = int(open("/proc/sys/kernel/perf_event_paranoid").read())
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    # Without rights, switches of context can be counted up to level 1, page faults of the program itself up to level 2.
    assert (first == "counts context-switches") == (level <= 1), done.stdout + done.stderr
    assert (second == "counts page-faults") == (level <= 2)
    if level > 1:
        assert f"perf_event_paranoid is {level}" in first and "context-switches" in first


def test_an_event_that_shared_its_counter_is_scaled_and_told():
    """The kernel of a machine with counters does this when more are asked for than there are: its readings, by hand."""
    counted = {"half": (3, [(1000, 900, 300), (7, 900, 900)]), "never": (1, [(0, 50, 0), (1, 50, 50)])}

    class Run:
        rank = 0

        def counters(self):
            return counted, 0

    mode = PerfCounting(["cycles", "task-clock"])
    mode.opened(Run())
    totals = mode._totals()
    assert totals["half"] == PerfEventTotals(3, {"cycles": 3000, "task-clock": 7})
    assert totals["never"] == PerfEventTotals(1, {"cycles": 0, "task-clock": 1})
    [told] = mode.problems()
    assert "cycles was counted 32%" in told and mode.problems() == []


def test_a_forked_child_does_not_touch_its_parents_counters(pm):
    if FORBIDDEN:
        pytest.skip("nothing is counted here")
    pm.setup(output=None, perf_events=["page-faults"])
    with pm.region("parent"):
        child = os.fork()
        if child == 0:
            with pm.region("child"):
                pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert set(pm.finalize(verbose=False, return_results=True).get_perf_events(0)) == {"parent"}
