"""scope-profiler top: a look at a program that goes on."""

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time

import pytest

from manager_helpers import enter
from native_code import COMMANDS
from scope_profiler import _core
from scope_profiler.cli import main

PROGRAM = """
import asyncio, sys, threading, scope_profiler as sp
sp.setup(output="p.h5", track_async=True)
for _ in range(500):
    with sp.region("busy"): pass
async def waits():
    with sp.region("waiting"): await asyncio.sleep(600)
async def main():
    task = asyncio.create_task(waits(), name="job \\x1b[31m")
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    task.cancel()
asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_look_by_process_and_by_spool(program, tmp_path, capsys):
    [name] = [name for name in os.listdir(tmp_path) if name.endswith(".spool")]
    for target in (str(program.pid), str(tmp_path / name)):
        assert main(["top", "--once", target]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"{tmp_path / 'p.h5'}: process {program.pid}, running for ")
        rows = {line.split()[-1]: line.split() for line in lines if line.endswith((" busy", " waiting"))}
        assert rows["busy"][1:3] == ["500", "0"] and rows["waiting"][1:3] == ["1", "1"]
        threads = [line.split() for line in lines if line.endswith("  MainThread")]
        assert len(threads) == 1 and float(threads[0][0]) > 0 and threads[0][1].endswith("%")
        assert any(line.endswith("  job \\x1b[31m  waits") for line in lines)
    assert main(["top", "--json", str(program.pid)]) == 0
    seen = json.loads(capsys.readouterr().out)
    regions = {region["name"]: (region["calls"], region["open"]) for region in seen["regions"]}
    assert regions == {"busy": (500, 0), "waiting": (1, 1)} and seen["pid"] == program.pid and seen["alive"]
    assert all(region["total_ns"] > 0 for region in seen["regions"]) and seen["running_ns"] > 0
    assert any(task["coroutine"] == "waits" and task["steps"] == 1 for task in seen["tasks"]) and seen["all_tasks"] >= 2
    assert all(thread["cpu_ns"] > 0 for thread in seen["threads"] if thread["alive"])
    assert any(thread["name"] == "MainThread" and thread["alive"] for thread in seen["threads"])
    program.stdin.write("go on\n")
    program.stdin.flush()
    assert program.wait(60) == 0  # it was not disturbed


def test_looks_go_on_until_the_run_has_ended(pm, tmp_path, capsys, monkeypatch):
    import time

    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a", 3)
    [name] = os.listdir(tmp_path)
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        enter(pm, "a", 1)
        if len(looks) == 2:
            pm._state.recording.end_spool()

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["top", "--interval", "0.5", str(tmp_path / name)]) == 0
    out = capsys.readouterr().out
    assert looks == [0.5, 0.5] and out.endswith("the run has ended\n") and "\x1b" not in out
    assert [line.split()[1] for line in out.splitlines() if line.endswith("  a")] == ["3", "4"]


CHANGING = """
import asyncio, sys, threading, scope_profiler as sp
sp.setup(output="p.h5", track_async=True, checkpoint="numbered")
def enter(name, times):
    for _ in range(times):
        with sp.region(name): pass
async def job(event):
    with sp.region("job"): await event.wait()
async def main():
    event = asyncio.Event()
    for line in iter(lambda: sys.stdin.readline().split(), []):
        if line[0] == "enter": enter(line[1], int(line[2]))
        elif line[0] == "thread":
            thread = threading.Thread(target=enter, args=(line[1], int(line[2])), name=line[3]); thread.start(); thread.join()
        elif line[0] == "task": asyncio.create_task(job(event), name=line[1]); await asyncio.sleep(0)
        elif line[0] == "release": event.set(); await asyncio.sleep(0.01); event.clear()
        elif line[0] == "write": sp.finalize(verbose=False)
        print("done", flush=True)
asyncio.run(main())
"""


class Changing:
    """A program that does as it is told, and its spool."""

    def __init__(self, directory):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHANGING], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.tell("enter", "first", 1)
        [self.spool] = [str(directory / name) for name in os.listdir(directory) if name.endswith(".spool")]

    def tell(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def changing(tmp_path):
    program = Changing(tmp_path)
    yield program
    program.process.kill()
    program.process.communicate()


def seen_by(watch):
    looked_at = _core.watch_look(watch)
    facts = _core.watch_facts(watch)
    return looked_at, facts, {region["name"]: (region["calls"], region["open"]) for region in facts["regions"]}


def test_a_look_reads_what_is_new_and_no_more(changing):
    changing.tell("enter", "a", 300_000)
    watch = _core.watch_spool(changing.spool)
    looked_at, _, regions = seen_by(watch)
    assert regions == {"first": (1, 0), "a": (300_000, 0)} and looked_at > 300_000
    for times in (1, 10, 200_000, 0):
        changing.tell("enter", "a", times)
        before = regions["a"][0]
        looked_at, facts, regions = seen_by(watch)
        assert regions["a"] == (before + times, 0)
        assert times <= looked_at <= times + 60  # anchors are noted as well
        [rate] = [region["calls_per_second"] for region in facts["regions"] if region["name"] == "a"]
        assert (rate > 0) == (times > 0)


def test_looks_follow_threads_tasks_and_open_calls(changing):
    watch = _core.watch_spool(changing.spool)
    seen_by(watch)
    for number in range(5):
        changing.tell("task", f"job-{number}")
    changing.tell("thread", "b", 50, "short")
    _, facts, regions = seen_by(watch)
    assert regions == {"first": (1, 0), "job": (5, 5), "b": (50, 0)}
    assert [task["name"] for task in facts["tasks"] if task["coroutine"] == "job"] == [f"job-{number}" for number in range(5)]
    assert {thread["name"]: (thread["alive"], thread["calls"]) for thread in facts["threads"]} == {
        "MainThread": (True, 6), "short": (False, 50)
    }
    first = next(region["total_ns"] for region in facts["regions"] if region["name"] == "job")
    _, facts, _ = seen_by(watch)
    assert next(region["total_ns"] for region in facts["regions"] if region["name"] == "job") > first, "they go on"
    changing.tell("release")
    _, facts, regions = seen_by(watch)
    assert regions["job"] == (5, 0) and [task["name"] for task in facts["tasks"]] == ["Task-1"] and facts["all_tasks"] == 6


def test_what_a_checkpoint_wrote_was_seen_or_is_not_counted(changing):
    watch = _core.watch_spool(changing.spool)
    changing.tell("enter", "a", 100)
    seen_by(watch)
    changing.tell("task", "open")
    changing.tell("write")
    changing.tell("enter", "a", 7)
    assert seen_by(watch)[2] == {"first": (1, 0), "a": (107, 0), "job": (1, 1)}
    assert seen_by(_core.watch_spool(changing.spool))[2] == {"a": (7, 0), "job": (1, 1)}
    for _ in range(20):
        changing.tell("enter", "a", 100_000)
        assert seen_by(watch)[2]["a"][0] % 100 == 7
        changing.tell("write")
    assert seen_by(watch)[2]["a"] == (2_000_107, 0), "blocks that are taken up again are read from their begin"


def test_keys_on_a_terminal(changing, tmp_path):
    changing.tell("enter", "many", 1000)
    changing.tell("task", "job")
    for command in COMMANDS:
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        termios.tcsetwinsize(slave, (50, 100)) if hasattr(termios, "tcsetwinsize") else None
        top = subprocess.Popen(
            [*command, "top", "--interval", "0.1", changing.spool], stdin=slave, stdout=slave, stderr=slave, preexec_fn=foreground
        )
        try:
            screen = until(master, lambda text: "keys: q quit" in text and "  many" in text)
            assert screen.index("  job\r") < screen.index("  many\r"), "the open call has the largest total"
            os.write(master, b"c")
            until(master, lambda text: "  job\r" in text and text.index("  many\r") < text.index("  job\r"))
            os.write(master, b"p")
            until(master, lambda text: "p go on" in text)
            os.write(master, b"p")
            until(master, lambda text: "  many\r" in text and "p pause" in text)
            os.write(master, b"q")
            assert top.wait(30) == 0
            assert termios.tcgetattr(slave)[3] == before[3], "the terminal is as it was"
        finally:
            top.kill()
            top.wait()
            os.close(master)
            os.close(slave)


def foreground():
    """The child has the terminal, as a shell would give it."""
    os.setsid()
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def until(master, right):
    """What a screen shows once it is right: everything behind the last clearing of it."""
    text, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 1)
        if ready:
            text += os.read(master, 65536).decode()
        # The last screen may not be whole yet: the one before is.
        screens = text.split("\x1b[H\x1b[2J")
        if len(screens) > 2 and right(screens[-2]):
            return screens[-2]
    raise AssertionError(text[-2000:])


def test_what_cannot_be_watched_is_one_line(tmp_path, capsys):
    (tmp_path / "x.spool").write_text("text")
    for target in (str(tmp_path / "x.spool"), str(tmp_path / "missing.spool"), "4194305", str(os.getppid())):
        assert main(["top", "--once", target]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["top", "4194305"]) == 2
    assert capsys.readouterr().err == "scope-profiler: there is no process 4194305\n"


FAMILY = """
import multiprocessing, os, sys, scope_profiler as sp
def work(ready, done):
    with sp.region("work"): pass
    if sys.argv[1] == "own":
        sp.setup(output=f"own.{os.getpid()}.h5", replace=True)
        with sp.region("work"): pass
    ready.put(os.getpid())
    done.get()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    if sys.argv[1] == "followed": sp.setup(output="p.h5", follow_processes=True, track_threads=True)
    ready, done = context.Queue(), context.Queue()
    workers = [context.Process(target=work, args=(ready, done)) for _ in range(2)]
    for worker in workers: worker.start()
    print(*sorted(ready.get() for _ in workers), flush=True)
    sys.stdin.readline()
    for _ in workers: done.put(None)
    for worker in workers: worker.join()
    sp.reset()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["followed", "own"])
def test_a_look_at_a_parent_names_the_spools_of_the_processes_it_started(tmp_path, capsys, kind, method):
    (tmp_path / "family.py").write_text(FAMILY)
    process = subprocess.Popen(
        [sys.executable, "family.py", kind, method], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        workers = [int(word) for word in process.stdout.readline().split()]
        if kind == "own":
            assert main(["top", "--once", str(process.pid)]) == 2
            told = f"process {process.pid} records into no spool, but what it started does: {workers[0]}, {workers[1]}"
            assert capsys.readouterr().err == f"scope-profiler: {told}\n"
        else:
            assert main(["top", "--once", str(process.pid)]) == 0
            text = capsys.readouterr().out
            assert "2 processes that it started record too" in text
            assert main(["top", "--json", str(process.pid)]) == 0
            children = json.loads(capsys.readouterr().out)["children"]
            assert [child["pid"] for child in children] == workers
            for child in children:
                assert f"{child['pid']:10d}  {child['spool']}\n" in text
                assert f".{child['pid']}-" in child["spool"] and os.path.exists(child["spool"])
        for worker in workers:
            assert main(["top", "--once", str(worker)]) == 0
            assert " work\n" in capsys.readouterr().out
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
