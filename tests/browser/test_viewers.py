"""The viewers that people open exports with take them, and show what was recorded."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from export_helpers import int64, region, results_of, task, thread
from scope_profiler import export_chrome_trace, export_folded, export_prof, export_speedscope

SPEEDSCOPE = Path(__file__).parent / "node_modules" / "speedscope" / "dist" / "release" / "index.html"
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


def example():
    """main [0, 100 ms] around fetch [10, 40] and [50, 60] on MainThread; fetch [20, 25] in a task; a zero-length call; an overlap."""
    ms = 1_000_000
    return results_of(
        {"main": {0: region([0], [100 * ms], [0], [-1], await_times=int64([0]))},
         "fetch é <b>": {0: region([10 * ms, 50 * ms, 20 * ms], [40 * ms, 60 * ms, 25 * ms], [0, 0, 0], [-1, -1, 0],
                                   await_times=int64([0, 0, 2 * ms]))},
         "instant": {0: region([15 * ms, 15 * ms], [15 * ms, 15 * ms], [0, 0], [-1, -1], await_times=int64([0, 0]))},
         "overlap": {0: region([90 * ms], [120 * ms], [0], [-1], await_times=int64([0]))}},
        "an example", threads={0: [thread(0, "MainThread")]}, tasks={0: [task(0, "Task-1", "fetch")]},
        metadata={"start_time_ns": 0})  # fmt: skip


def show_in_speedscope(open_page, path, directory):
    """As `speedscope FILE` does it: a script beside the page hands the file over."""
    script = directory / "profile.js"
    data = base64.b64encode(Path(path).read_bytes()).decode()
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(Path(path).name)}, {json.dumps(data)})")
    page = open_page("about:blank")
    page.open(f"{SPEEDSCOPE.as_uri()}#localProfilePath={script}")
    page.wait("document.querySelectorAll('canvas').length > 0 && !document.body.innerText.includes('Loading')")
    return page


def profiles(page):
    """{profile: its whole time} of the viewer's list of profiles."""
    rows = page.run("return [...document.querySelectorAll('table tbody tr[title]')].map(row => [...row.cells].map(c => c.textContent))")
    return {name: weight for _, name, weight in rows}


def sandwich(page):
    """{frame: (total, self)} of the viewer's table, as it writes times."""
    page.keys("3")
    rows = "[...document.querySelectorAll('table tr')].filter(row => !row.title && row.querySelectorAll('td').length === 3)"
    page.wait(f"{rows}.length > 0")
    cells = page.run(f"return {rows}.map(row => [...row.cells].map(cell => cell.textContent))")
    return {name: (total.split(" ")[0], own.split(" ")[0]) for total, own, name in cells}


def shown(page, name):
    """Keep a picture for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(SCREENSHOTS / f"{name}.png")


def test_speedscope_shows_every_lane_with_its_frames(open_page, tmp_path):
    [path] = export_speedscope(example(), tmp_path / "p", verbose=False)
    page = show_in_speedscope(open_page, path, tmp_path)
    shown(page, "speedscope-time-order")
    assert "rank 0 - MainThread (1/3)" in page.find("body").text
    assert sandwich(page) == {
        "main": ("100.00ms", "60.00ms"), "fetch é <b>": ("40.00ms", "40.00ms"), "instant": ("0.00ns", "0.00ns")}
    shown(page, "speedscope-sandwich")
    assert profiles(page) == {"rank 0 - MainThread": "100.00ms", "rank 0 - MainThread (overlap 1)": "30.00ms",
                              "rank 0 - Task-1 (fetch) on MainThread": "5.00ms"}
    page.keys("n")
    page.wait("document.body.innerText.includes('overlap 1) (2/3)')")
    assert sandwich(page) == {"overlap": ("30.00ms", "30.00ms")}
    assert page.requests() == []


def test_speedscope_reads_the_other_formats(open_page, tmp_path):
    [path] = export_chrome_trace(example(), tmp_path / "p", include=["main", "fetch", "overlap"], verbose=False)
    page = show_in_speedscope(open_page, path, tmp_path)
    lanes = {}
    for _ in range(3):
        lanes[page.find("body").text.split("\n")[1]] = {name.split(" {")[0]: times for name, times in sandwich(page).items()}
        page.keys("n")
    assert sorted(map(dict.__len__, lanes.values())) == [1, 2, 3]
    [task_lane] = [lane for name, lane in lanes.items() if "Task-1 (fetch)" in name]
    assert task_lane == {"Task-1": ("25.00ms", "20.00ms"), "fetch é <b>": ("5.00ms", "3.00ms"), "awaiting": ("2.00ms", "2.00ms")}
    assert {"main": ("100.00ms", "60.00ms"), "fetch é <b>": ("10.00ms", "10.00ms")} in lanes.values()  # of two calls the last one
    [path] = export_folded(example(), tmp_path / "p", verbose=False)
    table = sandwich(show_in_speedscope(open_page, path, tmp_path))
    assert table["main"] == ("100,000,000", "60,000,000") and table["overlap"] == ("30,000,000", "30,000,000")


@pytest.mark.slow
def test_speedscope_takes_a_million_calls(open_page, tmp_path):
    count = 500_000
    outer = np.arange(count) * 100
    run = results_of({"a": {0: region(outer, outer + 90)}, "b": {0: region(outer, outer + 40)}})
    [path] = export_speedscope(run, tmp_path / "p", verbose=False)
    page = show_in_speedscope(open_page, path, tmp_path)
    assert sandwich(page) == {"a": ("45.00ms", "25.00ms"), "b": ("20.00ms", "20.00ms")}


@pytest.fixture
def snakeviz(tmp_path):
    """Serve a .prof file; the page's address."""
    servers = []

    def serve(path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "snakeviz", "--server", "--hostname", "127.0.0.1", "--port", str(port), str(path)]
        servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        address = f"http://127.0.0.1:{port}/snakeviz/{urllib.parse.quote(str(path), safe='')}"
        for _ in range(600):
            try:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    assert answer.status == 200
                    return address
            except urllib.error.URLError as error:
                assert servers[-1].poll() is None and not isinstance(error, urllib.error.HTTPError), error
                time.sleep(0.1)
        raise AssertionError("snakeviz does not answer")

    yield serve
    for server in servers:
        server.terminate()
        server.wait()


def test_snakeviz_shows_the_call_paths(open_page, snakeviz, tmp_path):
    [path] = export_prof(example(), tmp_path / "p", verbose=False)
    page = open_page(snakeviz(path))
    page.wait("document.querySelectorAll('#pstats-table tbody tr').length >= 5")
    rows = page.run("return [...document.querySelectorAll('#pstats-table tbody tr')].map(row => [...row.cells].map(c => c.textContent))")
    found = {row[5]: (row[0], float(row[1]), float(row[3])) for row in rows}
    assert found["~:0(main)"] == ("1", 0.06, 0.1)
    assert found["~:0(main > fetch é <b>)"] == ("2", 0.04, 0.04)
    assert found["~:0(<an example rank 0>)"][2] == 0.135
    page.wait("document.querySelectorAll('#chart svg path, #chart svg rect').length > 0")
    shown(page, "snakeviz")


def test_snakeviz_does_not_recurse_for_ever(open_page, snakeviz, tmp_path):
    # direct recursion, and two regions that call each other, deeper than a stack of frames allows
    depth = 2000
    run = results_of({"a": {0: region(range(0, depth, 2), range(3 * depth, 2 * depth, -2))},
                      "b": {0: region(range(1, depth, 2), range(3 * depth - 1, 2 * depth - 1, -2))},
                      "r": {0: region(range(4 * depth, 5 * depth), range(7 * depth, 6 * depth, -1))}})
    [path] = export_prof(run, tmp_path / "p", call_paths=False, verbose=False)
    page = open_page(snakeviz(path))
    page.wait("document.querySelectorAll('#pstats-table tbody tr').length >= 4")
    rows = page.run("return [...document.querySelectorAll('#pstats-table tbody tr')].map(row => [...row.cells].map(c => c.textContent))")
    assert {row[5]: row[0] for row in rows} == {
        "~:0(a)": f"{depth // 2}/1", "~:0(b)": f"{depth // 2}/1", "~:0(r)": f"{depth}/1", "~:0(<run rank 0>)": "1"}
