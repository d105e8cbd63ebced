"""Servers of several processes: each worker records, and its requests are found, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import scope_profiler as sp
from other_processes import is_alive
from web_servers import free_port, server_process, wait_until

HERE = Path(__file__).parent
REQUESTS = 60


def serve(kind, port):
    address = f"127.0.0.1:{port}"
    return {
        # uvloop's timers count whole milliseconds from when its round began: sleeps can be shorter than they were asked for.
        "uvicorn": ["-m", "uvicorn", "--loop", "asyncio", "--workers", "2", "--port", str(port), "--log-level", "critical", "web_worker_app:asgi"],
        "hypercorn": ["-m", "hypercorn", "--workers", "2", "--bind", address, "web_worker_app:asgi"],
        "gunicorn": ["-m", "gunicorn", "--workers", "2", "--bind", address, "web_worker_app:wsgi"],
        "gunicorn threads": ["-m", "gunicorn", "--workers", "2", "--threads", "4", "--bind", address, "web_worker_app:wsgi"],
        "gunicorn preload": ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", address, "web_worker_app:wsgi"],
    }[kind]


def environment(**more):
    return {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]), **more}


def ask(client, count=REQUESTS):
    """How many requests each process answered; until two have."""
    answers = Counter()
    while sum(answers.values()) < count or len(answers) < 2:
        answers.update(int(body) for (_, body, _), _ in client.many(["/"] * 20, at_once=10))
    return answers


def recover_rest(directory, pids):
    """hypercorn ends without its workers, whom that kills, maybe while they write: then all is in their spools."""
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid))
        path = directory / f"requests.{pid}.h5"
        for spool in directory.glob(f"{path.name}.*.spool"):
            if not path.exists():
                subprocess.run([sys.executable, "-m", "scope_profiler", "recover", str(spool), "-o", str(path)], check=True, capture_output=True)
            spool.unlink(missing_ok=True)
    for rest in directory.glob(".*.tmp"):
        rest.unlink()


def check(path, requests, lanes):
    region = sp.load(path)["GET /pid"][0]
    work = sp.load(path)["work"][0]
    assert region.num_calls == work.num_calls == requests
    assert min(region.durations) >= 0.005
    assert sorted(work.parent_ids.tolist()) == sorted(region.call_ids.tolist())
    if lanes == "tasks":
        # A process may lose the processor between asking for its sleep and suspending: then that call awaits less.
        assert np.median(region.await_times) >= 0.004 and len(set(region.task_ids.tolist())) == requests


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uvicorn", "hypercorn", "gunicorn", "gunicorn threads", "gunicorn preload"])
def test_each_worker_writes_a_file_of_its_own(tmp_path, kind):
    pytest.importorskip(kind.split()[0])
    port = free_port()
    with server_process(serve(kind, port), port, tmp_path, environment(WEB_OUTPUT="run/requests.h5")) as (_, client):
        answers = ask(client)
    wanted = sorted(tmp_path / "run" / f"requests.{pid}.h5" for pid in answers)
    if kind == "hypercorn":
        recover_rest(tmp_path / "run", answers)
    files = sorted((tmp_path / "run").glob("*"))
    assert [path for path in files if path in wanted] == wanted
    assert not [path for path in files if path.suffix != ".h5"]
    for pid, count in answers.items():
        check(tmp_path / "run" / f"requests.{pid}.h5", count, "threads" if kind.startswith("gunicorn") else "tasks")
    merged = tmp_path / "all.h5"
    subprocess.run([sys.executable, "-m", "scope_profiler", "merge", *map(str, wanted), "-o", str(merged)], check=True, capture_output=True)
    results = sp.load(merged)
    assert results["GET /pid"].num_calls == sum(answers.values()) and results.num_ranks == len(answers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uvicorn", "gunicorn"])
def test_the_requests_of_a_worker_that_is_killed_are_in_its_spool(tmp_path, kind):
    pytest.importorskip(kind)
    port = free_port()
    with server_process(serve(kind, port), port, tmp_path, environment(WEB_OUTPUT="requests.h5")) as (_, client):
        answers = ask(client)
        victim = min(answers)
        os.kill(victim, signal.SIGKILL)
        [spool] = wait_until(lambda: list(tmp_path.glob(f"requests.{victim}*.spool")))
        wait_until(lambda: ask_one(client) not in (None, victim))  # the server goes on
    recovered = tmp_path / "recovered.h5"
    subprocess.run([sys.executable, "-m", "scope_profiler", "recover", str(spool), "-o", str(recovered)], check=True, capture_output=True)
    check(recovered, answers[victim], "threads" if kind == "gunicorn" else "tasks")
    assert sp.load(recovered)["GET /pid"][0].event_metadata == ({"status": 200},) * answers[victim]
    other = max(answers)
    assert sp.load(tmp_path / f"requests.{other}.h5")["GET /pid"].num_calls >= answers[other]


def ask_one(client):
    try:
        return int(client.get("/")[1])
    except OSError:
        return None


PARENT = """
import sys, uvicorn, scope_profiler as sp
if __name__ == "__main__":
    with sp.session(output="parent.h5", verbose=False, track_async=True, follow_processes=True):
        uvicorn.run("web_worker_app:asgi", port=int(sys.argv[1]), workers=2, loop="asyncio", log_level="critical")
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_a_parent_that_follows_its_workers_has_them_as_ranks(tmp_path, end):
    pytest.importorskip("uvicorn")
    (tmp_path / "parent.py").write_text(PARENT)
    port = free_port()
    with server_process(["parent.py", str(port)], port, tmp_path, environment()) as (_, client):
        answers = ask(client)
        if end == "killed":
            os.kill(min(answers), signal.SIGKILL)
    results = sp.load(tmp_path / "parent.h5")
    calls = sorted(count for count in results["GET /pid"].num_calls_per_rank().values() if count)
    assert calls == sorted(answers.values())
    assert results["work"].num_calls == sum(answers.values())


def test_a_run_of_the_program_is_left_alone(tmp_path, clean_manager):
    from scope_profiler.middleware import WSGIMiddleware
    from test_middleware_wsgi import drive, environment, plain

    sp.setup(output=None)
    drive(WSGIMiddleware(plain, output=tmp_path / "own.h5"), environment())
    assert sp.finalize(verbose=False, return_results=True).region_names == ["GET (unmatched)"]
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_costs_the_record_not_the_request(tmp_path, clean_manager):
    from scope_profiler.middleware import WSGIMiddleware
    from test_middleware_wsgi import drive, environment, plain

    (tmp_path / "file").write_text("")
    app = WSGIMiddleware(plain, output=tmp_path / "file" / "own.h5")
    with pytest.warns(RuntimeWarning):
        assert drive(app, environment("/x")) == b"/x"
    sp.reset()
