"""What a wheel must do on a system that has nothing but Python: record a concurrent program, keep it when it is killed, show it.

Run by `./run bare` with the interpreter that has the wheel; ends with 0 when all of it is right.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import scope_profiler as sp

THREADS = 4
TASKS = 50
CALLS = 1000


def work(barrier):
    step = sp.region("step")
    barrier.wait()
    for _ in range(CALLS):
        with step:
            pass


@sp.profile("request")
async def request():
    await asyncio.sleep(0.001)


async def serve():
    await asyncio.gather(*(request() for _ in range(TASKS)))


def record(path):
    with sp.session(file_path=str(path), verbose=False, track_threads=True, track_async=True):
        barrier = threading.Barrier(THREADS)
        threads = [threading.Thread(target=work, args=(barrier,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(serve())


def check_results(path):
    results = sp.load(path)
    assert results["step"][0].num_calls == THREADS * CALLS
    assert results["request"][0].num_calls == TASKS
    assert all(waited >= 0.001 for waited in results["request"][0].await_times)
    assert len(results.threads[0]) == THREADS + 1
    assert len([task for task in results.tasks[0] if task.coro_name == "request"]) == TASKS


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "scope_profiler", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def check_commands(path, directory):
    assert "request" in command("inspect", path)
    for kind in ("speedscope", "chrome-trace", "perfetto", "prof", "folded", "csv", "json", "flamegraph"):
        command("export", kind, path, "-o", directory / kind)
        assert any((directory / kind).iterdir()), kind
    command("view", path, "--no-open", "-o", directory / "page.html")
    assert (directory / "page.html").stat().st_size > 100_000
    assert json.loads(command("--doctor", "--json"))


def be_killed(path):
    sp.ProfileManager.setup(file_path=str(path), track_threads=True)
    for _ in range(CALLS):
        with sp.region("before the end"):
            pass
    os.kill(os.getpid(), signal.SIGKILL)


def check_recovery(directory):
    path = directory / "killed.h5"
    done = subprocess.run([sys.executable, __file__, "be killed", str(path)])
    assert done.returncode == -signal.SIGKILL
    [spool] = directory.glob("killed.h5.*.spool")
    command("recover", spool, "-o", path)
    assert sp.load(path)["before the end"][0].num_calls == CALLS


def main():
    if sys.argv[1:2] == ["be killed"]:
        be_killed(Path(sys.argv[2]))
    assert shutil.which("cc") is None, "there is a compiler here: this system is not bare"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        record(directory / "profile.h5")
        check_results(directory / "profile.h5")
        check_commands(directory / "profile.h5", directory)
        check_recovery(directory)
    print("records, shows and recovers: Python {}.{}.{}".format(*sys.version_info))


if __name__ == "__main__":
    main()
