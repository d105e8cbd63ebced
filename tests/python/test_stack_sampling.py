"""The sampler: where the time between regions went."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest

import scope_profiler as sp
from scope_profiler import _core

pytestmark = pytest.mark.skipif(_core.StackSampler is None, reason="a build without the GIL")

FAST = 500  # Hz: many samples in a short time


def burn(seconds):
    """Processor time, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(50))


def three_parts(seconds):
    end = time.thread_time() + 3 * seconds
    while time.thread_time() < end:
        sum(range(50))


def one_part(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(50))


def sampled(body, **settings):
    settings = {"output": None, "verbose": False, "return_results": True, "track_threads": True, "sample_hz": FAST, **settings}
    manager = sp.ProfileManager()
    with manager.session(**settings) as run:
        body(manager)
    return run.results


def cpu_by_function(rows):
    found = {}
    for row in rows:
        found[row.stack[-1].function] = found.get(row.stack[-1].function, 0.0) + row.cpu_time
    return found


@pytest.mark.slow
def test_time_outside_of_regions_has_the_shares_that_were_spent(soak):
    rounds = 200 if soak else 40

    def body(manager):
        for _ in range(rounds):
            three_parts(0.005)
            one_part(0.005)
            with manager.region("inside"):
                burn(0.005)

    results = sampled(body)
    outside, inside = cpu_by_function(results.samples.outside()), cpu_by_function(results.samples.inside("inside"))
    total = outside["three_parts"] + outside["one_part"]
    # By construction 3 to 1; with some 200 samples the share's standard deviation is 0.03.
    assert outside["three_parts"] / total == pytest.approx(0.75, abs=0.15)
    # What is accounted is what there was: 20 ms of each round outside, 5 inside, but for what lay before the first look.
    assert total == pytest.approx(rounds * 0.020, rel=0.25)
    assert inside["burn"] == pytest.approx(rounds * 0.005, rel=0.6)
    assert "three_parts" not in inside and "one_part" not in inside


def test_threads_are_told_apart_and_waiting_from_running():
    done = threading.Event()

    def body(manager):
        worker = threading.Thread(target=three_parts, args=(0.1,), name="worker")
        sleeper = threading.Thread(target=done.wait, name="sleeper")
        worker.start()
        sleeper.start()
        worker.join()
        done.set()
        sleeper.join()

    results = sampled(body)
    functions = {(row.thread, row.function): row for row in results.samples.functions()}
    names = {thread.index: thread.name for thread in results.threads[0]}
    # A thread that some other test left behind, which records nothing here, is sampled as well.
    assert all(names[row.thread_index] == row.thread for row in results.samples if row.thread_index >= 0)
    burning = functions["worker", "three_parts"]
    assert burning.cpu_time == pytest.approx(0.3, abs=0.1) and burning.share > 0.8
    waiting = [row for (thread, _), row in functions.items() if thread == "sleeper"]
    assert sum(row.time for row in waiting) > 0.2 and sum(row.cpu_time for row in waiting) < 0.05
    assert ("MainThread", "three_parts") not in functions


def test_time_and_samples_add_up_to_the_lives_of_the_threads():
    results = sampled(lambda manager: time.sleep(0.4))
    main = [row for row in results.samples if row.thread == "MainThread"]
    session = results["scope_profiler.session"].total_duration
    assert 0.3 < sum(row.time for row in main) <= session + 0.01
    assert results.samples.count == sum(row.samples for row in results.samples)
    assert all(row.region is None for row in main)  # the session's root says nothing


def test_the_innermost_region_is_that_of_the_lane_that_holds_the_thread():
    import asyncio

    async def task(manager, name):
        with manager.region(name):
            await asyncio.sleep(0)
            burn(0.05)

    async def main(manager):
        await asyncio.gather(task(manager, "a"), task(manager, "b"))
        burn(0.05)

    def body(manager):
        with manager.region("around"):
            asyncio.run(main(manager))

    samples = sampled(body, track_async=True).samples
    seen = {(row.region, row.stack[-2].function.rpartition(".")[2]) for row in samples if row.stack[-1].function == "burn"}
    assert seen == {("a", "task"), ("b", "task"), ("around", "main")}


def test_stacks_lines_and_names_are_those_of_the_program():
    def inner():
        burn(0.1)

    samples = sampled(lambda manager: inner()).samples
    [frames] = {row.stack[-3:] for row in samples if row.stack[-1].function == "burn"}
    prefix = "test_stacks_lines_and_names_are_those_of_the_program.<locals>." if sys.version_info >= (3, 11) else ""
    assert [frame.function for frame in frames] == [f"{prefix}<lambda>", f"{prefix}inner", "burn"]
    assert {os.path.basename(frame.file) for frame in frames} == {"test_stack_sampling.py"}
    assert frames[-1].first_line == burn.__code__.co_firstlineno
    lines = {row.line for row in samples if row.stack[-1].function == "burn"}
    assert lines <= set(range(burn.__code__.co_firstlineno, burn.__code__.co_firstlineno + 5))


def test_a_deep_stack_keeps_its_innermost_functions():
    def deep(levels):
        return deep(levels - 1) if levels else burn(0.05)

    rows = [row for row in sampled(lambda manager: deep(300)).samples if row.stack[-1].function == "burn"]
    assert rows and all(len(row.stack) == 128 for row in rows)


def test_without_the_setting_there_is_no_sampler_and_no_samples():
    before = threading.active_count()
    results = sampled(lambda manager: None, sample_hz=None)
    assert len(results.samples) == 0 and results.samples.hz == 0.0 and threading.active_count() == before
    assert "Outside" not in summary(results)


def summary(results):
    text = io.StringIO()
    results.print_summary(stream=text)
    return text.getvalue()


def test_the_summary_says_which_functions_took_the_time_outside():
    text = summary(sampled(lambda manager: burn(0.1)))
    assert "  Outside of regions: " in text and f"at {FAST} Hz" in text
    [row] = [line for line in text.splitlines() if " burn (test_stack_sampling.py:" in line]
    assert row.split("│")[1].split()[0] == "MainThread"


@pytest.mark.parametrize("name", ["run.h5", "run.json"])
def test_samples_are_in_the_file(tmp_path, name):
    written = sampled(lambda manager: burn(0.1), output=tmp_path / name)
    read = sp.load(tmp_path / name)
    assert [tuple(row) for row in read.samples] == [tuple(row) for row in written.samples] and len(read.samples)
    assert read.samples.hz == FAST
    sp.write_profile(read, tmp_path / "again.h5")
    assert [tuple(row) for row in sp.load(tmp_path / "again.h5").samples] == [tuple(row) for row in written.samples]


def test_the_streamed_file_has_them_too(tmp_path):
    """A run that is written without its calls ever being in memory."""
    manager = sp.ProfileManager()
    with manager.session(output=tmp_path / "run.h5", verbose=False, sample_hz=FAST):
        burn(0.1)
    assert cpu_by_function(sp.load(tmp_path / "run.h5").samples)["burn"] > 0.05


def test_a_copy_of_the_results_keeps_them(tmp_path):
    results = sampled(lambda manager: burn(0.05))
    sp.write_profile(results, tmp_path / "copy.h5")
    assert [tuple(row) for row in sp.load(tmp_path / "copy.h5").samples] == [tuple(row) for row in results.samples]


def test_each_checkpoint_has_the_samples_since_the_one_before(tmp_path):
    manager = sp.ProfileManager()
    manager.setup(output=tmp_path / "run.h5", sample_hz=FAST)
    burn(0.1)
    first = manager.finalize(verbose=False, return_results=True).samples
    three_parts(0.05)
    second = manager.finalize(verbose=False, return_results=True).samples
    manager.reset()
    assert "burn" in cpu_by_function(first) and "three_parts" not in cpu_by_function(first)
    assert cpu_by_function(second)["three_parts"] > 0.05 and cpu_by_function(second).get("burn", 0) < 0.05


def test_a_failed_write_loses_no_sample(tmp_path):
    manager = sp.ProfileManager()
    (tmp_path / "there").mkdir()
    manager.setup(output=tmp_path / "there" / "run.h5", sample_hz=FAST, spool=False)
    burn(0.1)
    (tmp_path / "there").rmdir()
    with pytest.raises(OSError):
        manager.finalize(verbose=False)
    (tmp_path / "there").mkdir()
    results = manager.finalize(verbose=False, return_results=True)
    manager.reset()
    assert cpu_by_function(results.samples)["burn"] > 0.05


def test_exports_have_every_sample(tmp_path):
    samples = sampled(lambda manager: (three_parts(0.03), one_part(0.03))).samples
    samples.export_folded(tmp_path / "out.folded")
    lines = [line.rpartition(" ") for line in (tmp_path / "out.folded").read_text().splitlines()]
    assert sum(int(value) for _, _, value in lines) == pytest.approx(sum(row.time for row in samples) * 1e6, abs=len(lines))
    assert any(stack.startswith("MainThread;") and ";three_parts (" in stack for stack, _, _ in lines)
    samples.export_speedscope(tmp_path / "out.speedscope.json", samples.outside())
    document = json.loads((tmp_path / "out.speedscope.json").read_text())
    [main] = [profile for profile in document["profiles"] if profile["name"] == "MainThread"]
    assert main["type"] == "sampled" and len(main["samples"]) == len(main["weights"])
    assert main["endValue"] == pytest.approx(sum(main["weights"]))
    frames = document["shared"]["frames"]
    assert {frames[stack[-1]]["name"] for stack in main["samples"]} >= {"three_parts", "one_part"}
    with pytest.raises(ValueError, match="no samples"):
        samples.export_folded(tmp_path / "none.folded", samples.inside("nowhere"))


def test_data_frame_has_a_row_a_place():
    pytest.importorskip("pandas")
    samples = sampled(lambda manager: burn(0.05)).samples
    frame = samples.to_dataframe()
    assert len(frame) == len(samples) and frame["samples"].sum() == samples.count
    assert {"rank", "thread", "region", "function", "file", "first_line", "line", "time", "cpu_time", "stack"} <= set(frame.columns)


@pytest.mark.parametrize(
    "value, error", [(-1, ValueError), (2000, ValueError), (float("nan"), ValueError), ("50", TypeError), (True, TypeError)]
)
def test_a_rate_that_cannot_be_is_refused_at_setup(value, error):
    with pytest.raises(error, match="sample_hz"):
        sp.ProfileManager().setup(output=None, sample_hz=value)


def test_a_rate_of_less_than_one_look_a_century_ends_with_its_run():
    assert len(sampled(lambda manager: burn(0.05), sample_hz=1e-300).samples) == 0


def test_the_environment_sets_the_rate_unless_the_program_does(monkeypatch):
    monkeypatch.setenv("SCOPE_PROFILER_SAMPLE_HZ", "250")
    assert sampled(lambda manager: burn(0.05), sample_hz=None).samples.hz == 250
    assert sampled(lambda manager: burn(0.05), sample_hz=400).samples.hz == 400
    assert len(sampled(lambda manager: burn(0.05), sample_hz=0).samples) == 0
    manager = sp.ProfileManager()
    manager.setup(output=None, aggregation_mode=True)  # which cannot be sampled: the environment does not insist
    manager.reset()
    monkeypatch.setenv("SCOPE_PROFILER_SAMPLE_HZ", "often")
    with pytest.raises(ValueError, match="SCOPE_PROFILER_SAMPLE_HZ"):
        sp.ProfileManager().setup(output=None)


def test_the_thread_of_the_sampler_ends_with_the_run():
    def samplers():
        names = []
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/comm") as comm:
                    names.append(comm.read().strip())
            except OSError:
                pass
        return names.count("sp-sampler")

    counts = []
    sampled(lambda manager: (time.sleep(0.05), counts.append(samplers())))
    assert counts == [1] and samplers() == 0
    manager = sp.ProfileManager()
    manager.setup(output=None, sample_hz=FAST)
    manager.reset()
    assert samplers() == 0


def test_signals_go_to_the_program():
    import signal

    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread().name))
    try:
        sampled(lambda manager: [(os.kill(os.getpid(), signal.SIGUSR1), time.sleep(0.002)) for _ in range(20)])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["MainThread"] * 20


def test_many_short_threads_and_many_samplers_at_once(soak):
    """Threads that begin and end under three samplers; what each saw belongs to threads that there were."""
    managers = [sp.ProfileManager() for _ in range(3)]
    for manager in managers:
        manager.setup(output=None, track_threads=True, sample_hz=1000)
    end = time.monotonic() + (20 if soak else 1)
    number = 0
    while time.monotonic() < end:
        # One in eight lives longer than the interpreter waits until it asks a thread to let others run: some of these are seen.
        threads = [threading.Thread(target=burn, args=(0.001 if i else 0.03,), name=f"t{number + i}") for i in range(8)]
        number += 8
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for manager in managers:
        samples = manager.finalize(verbose=False, return_results=True).samples
        manager.reset()
        names = {row.thread for row in samples if not row.thread.startswith("thread ")}
        assert names <= {"MainThread", *(f"t{i}" for i in range(number))} and len(names) > 1
        assert all(row.cpu_time <= row.time + 0.05 and row.time >= 0 for row in samples)


def test_recording_is_exact_while_it_is_looked_at(soak):
    calls = 400_000 if soak else 60_000

    def work(manager):
        region = manager.region("r")
        for _ in range(calls):
            with region:
                pass

    def body(manager):
        threads = [threading.Thread(target=work, args=(manager,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sampled(body, sample_hz=1000)["r"].num_calls == 3 * calls


PROGRAMS = {
    "the interpreter ends while it samples": """
import scope_profiler as sp, time, threading
sp.setup(output=None, track_threads=True, sample_hz=1000)
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
time.sleep(0.05)
""",
    "an exception ends the program": """
import scope_profiler as sp, time
sp.setup(output=None, sample_hz=1000)
time.sleep(0.05)
raise SystemExit(0)
""",
    "a run begins in an exit handler": """
import atexit, time
atexit.register(lambda: (sp.setup(output=None, sample_hz=1000), time.sleep(0.05)))
import scope_profiler as sp
""",
    "os._exit": """
import scope_profiler as sp, time, os
sp.setup(output=None, sample_hz=1000)
time.sleep(0.05)
os._exit(0)
""",
    "forks": """
import scope_profiler as sp, time, os
sp.setup(output=None, track_threads=True, sample_hz=1000)
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        manager = sp.ProfileManager()
        with manager.session(output=None, verbose=False, return_results=True, sample_hz=1000) as run:
            end = time.thread_time() + 0.1
            while time.thread_time() < end: sum(range(50))
        os._exit(0 if run.results.samples.count else 1)
    assert os.waitpid(pid, 0)[1] == 0
assert sp.finalize(verbose=False, return_results=True).samples.count
""",
    "a child of a fork ends as a program does": """
import scope_profiler as sp, time, os, sys
sp.setup(output=None, sample_hz=1000)
pid = os.fork()
if pid == 0:
    time.sleep(0.02); sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
    "subinterpreters": """
import scope_profiler as sp, time
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        interpreters = None
sp.setup(output=None, track_threads=True, sample_hz=1000)
if interpreters is not None:
    for _ in range(3):
        inner = interpreters.create()
        run = getattr(interpreters, "run_string", None) or interpreters.exec
        run(inner, "import time; time.sleep(0.03)")
        interpreters.destroy(inner)
end = time.thread_time() + 0.05
while time.thread_time() < end: sum(range(50))
assert sp.finalize(verbose=False, return_results=True).samples.count
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_processes_begin_and_end_as_without_it(tmp_path, name, soak):
    for _ in range(20 if soak else 1):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAMS[name]], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_command_samples_a_program_that_marks_nothing(tmp_path):
    (tmp_path / "program.py").write_text("import time\nend = time.thread_time() + 0.3\nwhile time.thread_time() < end: sum(range(50))\n")
    command = [sys.executable, "-m", "scope_profiler", "run", "--sample-hz", "200", "-o", "out.h5", "program.py"]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "(no regions recorded)" in printed and "<module> (program.py:1)" in printed
    [function] = {row.function for row in sp.load(tmp_path / "out.h5").samples.functions() if row.file == "program.py"}
    assert function == "<module>"
    done = subprocess.run([*command[:4], "--sample-hz", "-5", "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "sample_hz" in done.stderr and done.stderr.count("\n") == 1


def test_followed_processes_are_sampled_too(tmp_path):
    program = """
import multiprocessing, time, scope_profiler as sp
def child_work():
    end = time.thread_time() + 0.2
    while time.thread_time() < end: sum(range(50))
if __name__ == "__main__":
    with sp.session(output="all.h5", verbose=False, follow_processes=True, sample_hz=500):
        worker = multiprocessing.get_context("fork").Process(target=child_work)
        worker.start(); worker.join()
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    samples = sp.load(tmp_path / "all.h5").samples
    assert {row.rank for row in samples if row.stack[-1].function == "child_work"} == {1}
    assert {row.rank for row in samples} == {0, 1}


def test_parts_of_a_followed_process_keep_all_of_their_samples(tmp_path):
    program = """
import multiprocessing, time, scope_profiler as sp
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: sum(range(50))
def first(): spin(0.2)
def second(): spin(0.2)
def child_work():
    first()
    with sp.region("r"): pass
    sp.finalize(verbose=False)
    second()
    with sp.region("r"): first()
if __name__ == "__main__":
    with sp.session(output="all.h5", verbose=False, follow_processes=True, sample_hz=500):
        worker = multiprocessing.get_context("fork").Process(target=child_work)
        worker.start(); worker.join()
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    rows = [row for row in sp.load(tmp_path / "all.h5").samples if row.rank == 1 and row.stack[-1].function == "spin"]
    cpu = {}
    for row in rows:
        place = row.region, row.stack[-2].function
        cpu[place] = cpu.get(place, 0.0) + row.cpu_time
    assert {place: round(seconds, 1) for place, seconds in cpu.items() if seconds > 0.05} == {
        (None, "first"): 0.2, (None, "second"): 0.2, ("r", "first"): 0.2
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage", [("stacks", 10_000), ("stacks", -1), ("threads", -7), ("threads", 99), ("regions", 5), ("stack_callers", 10_000), None]
)
def test_a_damaged_group_is_told(tmp_path, damage):
    h5py = pytest.importorskip("h5py")
    sampled(lambda manager: burn(0.05), output=tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        if damage is None:
            del file["rank0/samples/lines"]
        else:
            file[f"rank0/samples/{damage[0]}"][0] = damage[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = sp.load(tmp_path / "run.h5")
        with pytest.raises(sp.CorruptProfileError, match="rank 0"):
            list(results.samples)


def test_the_profiler_at_work_is_no_sample(pm, monkeypatch):
    default_title, called = sp.ProfilingResults.default_title, []

    def slow_title(results):
        called.append(True)
        burn(0.1)
        return default_title(results)

    monkeypatch.setattr(sp.ProfilingResults, "default_title", slow_title)
    pm.setup(output=None, sample_hz=FAST)
    for _ in range(2):  # what is seen in a finalize is told by the next one
        burn(0.05)
        samples = pm.finalize(return_results=True).samples
    package = os.path.dirname(sp.__file__)
    functions = {row.stack[-1].function for row in samples}
    assert called and "burn" in functions
    assert not [row for row in samples if any(frame.function.endswith("slow_title") for frame in row.stack)]
    assert not [row for row in samples if row.stack[-1].file.startswith(package)]
