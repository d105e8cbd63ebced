"""scope-profiler top: a look at a program that goes on."""

import json
import os
import subprocess
import sys

import pytest

from manager_helpers import enter
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
        assert "  MainThread" in lines
        assert any(line.startswith("  job \\x1b[31m  waits") for line in lines)
    assert main(["top", "--json", str(program.pid)]) == 0
    seen = json.loads(capsys.readouterr().out)
    regions = {region["name"]: (region["calls"], region["open"]) for region in seen["regions"]}
    assert regions == {"busy": (500, 0), "waiting": (1, 1)} and seen["pid"] == program.pid and seen["alive"]
    assert all(region["total_ns"] > 0 for region in seen["regions"]) and seen["running_ns"] > 0
    assert any(task["coroutine"] == "waits" and not task["done"] for task in seen["tasks"])
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


def test_what_cannot_be_watched_is_one_line(tmp_path, capsys):
    (tmp_path / "x.spool").write_text("text")
    for target in (str(tmp_path / "x.spool"), str(tmp_path / "missing.spool"), "4194305", str(os.getppid())):
        assert main(["top", "--once", target]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["top", "4194305"]) == 2
    assert capsys.readouterr().err == "scope-profiler: there is no process 4194305\n"
