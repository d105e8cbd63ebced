"""The example programs, run as a user would, on little input."""

import subprocess
import sys
from pathlib import Path

import pytest

import scope_profiler as sp

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name, directory, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_index_stdlib_counts_every_file_on_the_pool(tmp_path):
    run_example("index_stdlib.py", tmp_path, "--limit", "20", "--threads", "3")
    results = sp.load(tmp_path / "index_stdlib.h5")
    for name in ("read", "tokenize", "count"):
        assert results[name].num_calls == 20, name
    workers = {thread.name for thread in results.threads[0] if not thread.alive}
    assert 1 <= len(workers) <= 3


def test_serve_and_crawl_splits_time_into_running_and_awaiting(tmp_path):
    shown = run_example("serve_and_crawl.py", tmp_path, "--pages", "15", "--tasks", "4")
    assert "15 pages" in shown and "crawler-" in shown
    results = sp.load(tmp_path / "serve_and_crawl.h5")
    for name in ("page", "fetch", "serve", "read", "render", "parse"):
        assert results[name].num_calls == 15, name
    crawlers = [task for task in results.tasks[0] if task.coro_name == "Crawler._work"]
    assert sorted(task.name for task in crawlers) == [f"crawler-{number}" for number in range(4)]
    page = results["page"][0]
    assert set(page.task_ids) <= {task.index for task in crawlers}
    assert page.total_await_duration == pytest.approx(results["fetch"][0].total_await_duration)
    assert 0 < page.total_await_duration < page.total_duration
    assert set(results["read"][0].task_ids) == {-1}, "the pool's threads run no task"
