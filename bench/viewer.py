"""Cases that time the page of a run of 1 M calls on 64 threads and 10,000 tasks in headless Chromium, drawn without a GPU."""

from __future__ import annotations

import atexit
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

from browser_page import Page, start_browser
from large_run import large_run

import scope_profiler

if TYPE_CHECKING:
    from scope_profiler import ProfilingResults

SECONDS = 20

# As a user does it, in the page: wheel events zoom in and out around a moving pointer and pan, while the lanes scroll. A frame's
# time is from one animation frame to the next; `work` is the part that the drawing takes.
MOVE_ABOUT = """
const [seconds] = args;
await scopeProfiler.ready;
const surface = document.querySelector('.surface'), lanes = document.querySelector('.lanes'), box = surface.getBoundingClientRect();
const {drawing} = scopeProfiler.exposed, frames = [], work = drawing.costs.length;
const wheel = options => surface.dispatchEvent(new WheelEvent('wheel', {bubbles: true, cancelable: true,
    clientX: box.left + box.width * (0.5 + 0.4 * Math.sin(frames.length / 50)), clientY: box.top + 300, ...options}));
let last = await new Promise(requestAnimationFrame);
const end = last + seconds * 1000;
for (let step = 0; last < end; step++) {
    const phase = step % 240;
    if (phase < 80) wheel({ctrlKey: true, deltaY: -60});
    else if (phase < 160) wheel({deltaX: phase % 40 < 20 ? 60 : -60});
    else wheel({ctrlKey: true, deltaY: 60});
    if (step % 3 === 0) lanes.scrollTop = (Math.sin(step / 300) * 0.5 + 0.5) * (lanes.scrollHeight - lanes.clientHeight);
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
}
return {frames, work: drawing.costs.slice(work)};
"""

DRAWN = "await scopeProfiler.ready; await new Promise(done => requestAnimationFrame(() => setTimeout(done)));"


@lru_cache(maxsize=1)
def run() -> ProfilingResults:
    path = directory() / "run.h5"
    scope_profiler.write_profile(large_run(), path)
    return scope_profiler.load(path)


@lru_cache(maxsize=1)
def directory() -> Path:
    made = tempfile.TemporaryDirectory(prefix="bench-viewer-")
    atexit.register(made.cleanup)
    return Path(made.name)


@lru_cache(maxsize=1)
def browser() -> Page:
    driver = start_browser(directory() / "browser")
    atexit.register(driver.quit)
    page = Page(driver)
    page.size(1440, 900)
    return page


def write_page() -> float:
    """s to write the page."""
    results = run()
    begin = perf_counter()
    scope_profiler.create_html_report(results, directory() / "page.html")
    return perf_counter() - begin


def open_page() -> float:
    """s from the address to the first picture."""
    if not (directory() / "page.html").exists():
        write_page()
    page = browser()
    page.open("about:blank")
    begin = perf_counter()
    page.open(directory() / "page.html")
    page.run(DRAWN)
    return perf_counter() - begin


@lru_cache(maxsize=1)
def movement() -> dict[str, list[float]]:
    open_page()
    times: dict[str, list[float]] = browser().run(MOVE_ABOUT, SECONDS)
    return times


def frame_median() -> float:
    """ms from one picture to the next."""
    return quantiles(movement()["frames"], n=2)[0]


def frame_p95() -> float:
    """The same, of which 95 of 100 are faster."""
    return quantiles(movement()["frames"], n=100)[94]


def draw_p95() -> float:
    """ms that drawing one takes, of which 95 of 100 are faster."""
    return quantiles(movement()["work"], n=100)[94]


if __name__ == "__main__":
    print(f"write {write_page():.2f} s, open {min(open_page() for _ in range(3)):.2f} s")
    frames = sorted(movement()["frames"])
    print(f"{len(frames)} frames in {SECONDS} s: median {frame_median():.1f} ms, p95 {frame_p95():.1f} ms, worst {frames[-1]:.0f} ms")
    print(f"drawing: p95 {draw_p95():.1f} ms")
