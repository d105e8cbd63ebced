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


@pytest.mark.slow
@pytest.mark.parametrize("mended", [False, True])
def test_login_service_hashes_on_the_loop_until_it_is_mended(tmp_path, mended):
    source = (EXAMPLES / "login_service.py").read_text()
    wrong, right = 'hash_password("secret")', 'await asyncio.to_thread(hash_password, "secret")'
    (tmp_path / "service.py").write_text(source.replace(f"given = {wrong}", f"given = {right}") if mended else source)
    command = [sys.executable, "-m", "scope_profiler", "run", "-q", "--track-async", "-o", "run.h5", "service.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "160 profiles" in done.stdout, done.stderr
    results = sp.load(tmp_path / "run.h5")
    login, hashed = results["/login"][0], results["hash password"][0]
    assert (login.num_calls, results["/profile"].num_calls, results["client: profile"].num_calls) == (40, 160, 160)
    if mended:
        assert hashed.task_ids.tolist() == [0] + 40 * [-1], "all but the one of the set-up are on the pool's threads"
        assert login.total_await_duration > 0.5 * login.total_duration
    else:
        assert (hashed.task_ids >= 0).all() and hashed.total_await_duration == 0
        assert login.total_await_duration == 0, "it never lets go of the thread"


def test_the_tutorial_shows_the_example():
    page = (EXAMPLES.parent / "docs" / "tutorial.md").read_text()
    assert f"<!-- file: login_service.py -->\n```python\n{(EXAMPLES / 'login_service.py').read_text()}```\n" in page
