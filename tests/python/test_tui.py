"""The terminal UI, driven by Textual's own pilot, and once in a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Tree
from textual.widgets.tree import TreeNode

import scope_profiler as sp
from scope_profiler.cli import main
from scope_profiler.tui import model
from scope_profiler.tui.app import ProfileApp
from scope_profiler.tui.plots import default_directory

pytestmark = pytest.mark.slow

MS = 1_000_000


def make(path: Path, regions: dict[str, list[tuple[int, int]]], label: str | None = None) -> Path:
    """A profile of one rank from intervals in ms."""
    made = {
        name: sp.MPIRegion(
            name,
            {
                0: sp.Region(
                    *(np.array(side, np.int64) * MS + 10**9 for side in zip(*intervals, strict=True)),
                    source_file="app.py", source_lineno=7, source_text=f"def {name[:3]}():\n    pass",
                )
            },
        )
        for name, intervals in regions.items()
    }  # fmt: skip
    metadata = {"start_time_ns": 10**9, "finalize_time_ns": 2 * 10**9, "hostname": "node", "thing": "a thing"}
    sp.write_profile(sp.ProfilingResults(made, metadata={**metadata, **({"label": label} if label else {})}), path)
    return path


NESTED = {"main": [(0, 100), (200, 260)], "solve": [(10, 60), (210, 230)], "io": [(20, 30), (70, 90)]}


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    return make(tmp_path / "nested.h5", NESTED, label="the run")


@pytest.fixture
def concurrent(tmp_path: Path, clean_manager: None) -> Path:
    """Three tasks on a worker thread, a call on the main one."""
    path = tmp_path / "concurrent.h5"

    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0.001)
            with sp.region("inner"):
                pass

    async def jobs() -> None:
        await asyncio.gather(*(asyncio.create_task(job(), name=f"job {number}") for number in range(3)))

    with sp.session(output=path, track_async=True, verbose=False):
        thread = threading.Thread(target=lambda: asyncio.run(jobs()), name="worker", daemon=True)
        thread.start()
        thread.join()
        with sp.region("alone"):
            pass
    return path


class User:
    """Somebody who looks at the screen and presses keys."""

    def __init__(self, app: ProfileApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def settle(self) -> None:
        for _ in range(4):
            await self.pilot.pause(0.02)
            await self.app.workers.wait_for_complete()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        await self.press(*({" ": "space", "/": "slash", ",": "comma", "(": "left_parenthesis"}.get(one, one) for one in text))

    def labels(self, *path: str) -> list[str]:
        return [str(node.label) for node in self.find(*path).children]

    def find(self, *path: str) -> TreeNode[Any]:
        node = self.app.query_one("#navigation", Tree).root
        for label in path:
            (node,) = [child for child in node.children if str(child.label).startswith(label)][:1]
        return node

    async def open(self, *path: str) -> TreeNode[Any]:
        """Open the nodes on the way to one, and put the cursor on it."""
        for length in range(1, len(path)):
            self.find(*path[:length]).expand()
            await self.settle()
        node = self.find(*path)
        self.app.query_one("#navigation", Tree).move_cursor(node)
        await self.settle()
        return node

    @property
    def table(self) -> DataTable[Any]:
        return self.app.query_one("#table", DataTable)

    def rows(self) -> list[list[str]]:
        assert self.app.query_one("#pages").current == "table"  # type: ignore[attr-defined]
        return [[str(cell) for cell in self.table.get_row_at(row)] for row in range(self.table.row_count)]

    def titles(self) -> list[str]:
        return [str(column.label) for column in self.table.columns.values()]

    @property
    def text(self) -> str:
        assert self.app.query_one("#pages").current == "page"  # type: ignore[attr-defined]
        return str(self.app.query_one("#text").render())

    @property
    def state(self) -> str:
        return str(self.app.query_one("#state").render())

    @property
    def screen(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def browse(path: Path | str, conversation: Callable[[User], Awaitable[Any]], plot_output: Path | None = None) -> Any:
    """Open a profile, do what the conversation does, and quit."""

    async def run() -> Any:
        app = ProfileApp(sp.load(path), str(path), None if plot_output is None else str(plot_output))
        async with app.run_test(size=(150, 45)) as pilot:
            user = User(app, pilot)
            await user.settle()
            result = await conversation(user)
            await pilot.press("escape", "q")
        assert app.return_code == 0
        return result

    return asyncio.run(run())


# -- what there is -------------------------------------------------------------------------------------------------------


def test_the_first_level_and_the_overview(nested: Path) -> None:
    async def look(user: User) -> None:
        assert user.labels() == ["Overview", "Plots", "Metadata", "Regions", "Call tree", "Raw HDF5"]
        facts = dict(line.split("   ", 1) for line in user.text.splitlines() if "   " in line and not line.startswith(" "))
        facts = {key.strip(): value.strip() for key, value in facts.items()}
        assert facts["Label"] == "the run" and facts["File"] == str(nested)
        assert (facts["Regions"], facts["Calls"], facts["Ranks"]) == ("3", "6", "1")
        assert (facts["First call to last"], facts["Run"]) == ("260 ms", "1 s")
        # Own times, by hand: main 160 - 70 - 20, solve 70 - 10, io 30.
        assert [line.split()[1:6] for line in user.text.splitlines() if " ms " in line and "│" in line] == [
            ["main", "2", "70", "ms", "43.8"], ["solve", "2", "60", "ms", "37.5"], ["io", "2", "30", "ms", "18.8"],
        ]  # fmt: skip

    browse(nested, look)


def test_the_keys(nested: Path) -> None:
    shown = {binding.key: binding.action for binding in ProfileApp.BINDINGS}
    assert shown == {
        "q": "quit", "escape": "focus_navigation", "slash": "search", "o": "sort", "r": "reverse", "g": "plot('window')",
        "p": "plot('browse')", "t": "plot('text')", "s": "plot('save')", "v": "snakeviz",
    }  # fmt: skip

    async def look(user: User) -> None:
        footer = user.screen.splitlines()[-1]
        assert all(f" {key} " in footer for key in ("q", "esc", "/", "o", "r", "g", "p", "t", "s", "v"))
        await user.press("t")
        assert user.state == "choose a plot first"

    browse(nested, look)


def test_metadata_by_section(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Metadata", "Other")
        assert user.labels("Metadata") == ["Run", "System", "Other"]
        assert user.rows() == [["thing", "a thing"]]
        await user.open("Metadata", "System")
        assert user.rows() == [["hostname", "node"]]

    browse(nested, look)


# -- regions -------------------------------------------------------------------------------------------------------------


def test_regions_are_listed_searched_and_sorted(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Regions")
        assert [row[:6] for row in user.rows()] == [
            ["main", "1", "2", "160 ms", "70 ms", "80 ms"], ["solve", "1", "2", "70 ms", "60 ms", "35 ms"],
            ["io", "1", "2", "30 ms", "30 ms", "15 ms"],
        ]  # fmt: skip
        assert user.state == "3 regions"
        await user.press("slash")
        await user.type("O")
        assert [row[0] for row in user.rows()] == ["solve", "io"] and user.state == "2 of 3 regions"
        await user.press("enter", "escape")
        await user.press("o")
        assert [row[0] for row in user.rows()] == ["io", "solve"] and user.titles()[0] == "region ▲"
        await user.press("r")
        assert [row[0] for row in user.rows()] == ["solve", "io"] and user.titles()[0] == "region ▼"
        user.app.post_message(DataTable.HeaderSelected(user.table, list(user.table.columns)[3], 3, user.table.columns[list(user.table.columns)[3]].label))
        await user.settle()
        assert [row[3] for row in user.rows()] == ["70 ms", "30 ms"] and user.titles()[3] == "total ▼"

    browse(nested, look)


def test_enter_on_a_row_goes_to_its_region(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Regions")
        user.table.focus()
        await user.press("down", "enter")
        node = user.app.query_one("#navigation", Tree).cursor_node
        assert node is not None and str(node.label) == "solve"
        assert "Region               solve" in user.text
        assert "Min / max            20 ms / 50 ms" in user.text

    browse(nested, look)


def test_a_region_has_its_numbers_calls_and_source(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Regions", "solve", "Summary")
        assert user.labels("Regions", "solve") == ["Summary", "Calls", "Source"]
        facts = dict(line.split("   ", 1) for line in user.text.splitlines())
        facts = {key.strip(): value.strip() for key, value in facts.items()}
        assert facts == {
            "Region": "solve", "Ranks": "1", "Calls": "2", "Total": "70 ms", "Own": "60 ms", "Average": "35 ms",
            "Min / max": "20 ms / 50 ms", "Standard deviation": "15 ms", "P50 / P95 / P99": "35 ms / 48.5 ms / 49.7 ms",
            "Source": "app.py:7",
        }  # fmt: skip
        await user.open("Regions", "solve", "Calls")
        assert user.titles() == ["start", "duration", "own"]
        assert user.rows() == [["10 ms", "50 ms", "40 ms"], ["210 ms", "20 ms", "20 ms"]]
        await user.press("o", "o")  # by duration, the longest first
        assert [row[1] for row in user.rows()] == ["50 ms", "20 ms"]
        await user.press("r")
        assert [row[1] for row in user.rows()] == ["20 ms", "50 ms"]
        await user.open("Regions", "solve", "Source")
        assert user.text.splitlines() == ["app.py:7", "", "7  def sol():", "8      pass"]

    browse(nested, look)


def test_ranks_of_a_region(tmp_path: Path) -> None:
    one = sp.Region(np.array([0, 20 * MS]), np.array([10 * MS, 30 * MS]))
    two = sp.Region(np.array([0]), np.array([60 * MS]))
    sp.write_profile(sp.ProfilingResults({"r": sp.MPIRegion("r", {0: one, 1: two})}, num_ranks=2), tmp_path / "two.h5")

    async def look(user: User) -> None:
        await user.open("Regions", "r", "Ranks")
        assert [row[:3] for row in user.rows()] == [["0", "2", "20 ms"], ["1", "1", "60 ms"]]
        await user.open("Regions", "r", "Calls")
        assert sorted((row[1], row[3]) for row in user.rows()) == [("10 ms", "0"), ("10 ms", "0"), ("60 ms", "1")]
        await user.open("Regions")
        assert user.rows()[0][9] == "50.0 %"  # the larger of 20 and 60 over their mean
        assert user.find("Overview") and "Ranks" in user.labels("Regions", "r")

    browse(tmp_path / "two.h5", look)


# -- lanes ---------------------------------------------------------------------------------------------------------------


def test_threads_and_tasks(concurrent: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Threads")
        rows = {row[1]: row for row in user.rows()}
        assert set(rows) == {"MainThread", "worker (daemon)"}
        assert (rows["MainThread"][2], rows["worker (daemon)"][2]) == ("2", "6")
        assert (rows["MainThread"][-1], rows["worker (daemon)"][-1]) == ("alive", "ended")
        await user.open("Tasks")
        await user.press("slash")
        await user.type("jobs.")  # no coroutine is called so
        assert user.rows() == []
        await user.press("backspace", "backspace", "backspace", "backspace", "backspace")
        await user.type("job")
        await user.press("enter", "escape")
        jobs = [row for row in user.rows() if row[1].startswith("job ")]
        assert [(row[1], row[4], row[5], row[-1]) for row in jobs] == [(f"job {n}", "worker", "2", "done") for n in range(3)]

    browse(concurrent, look)


def test_the_call_tree_of_all_lanes_and_of_each(concurrent: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Call tree", "All lanes", "job")
        assert [label.split("  ")[:2] for label in user.labels("Call tree", "All lanes")] == [["scope_profiler.session", "1x"], ["job", "3x"]]
        assert [(row[0], row[1]) for row in user.rows()] == [("job", "3"), ("inner", "3")]
        lanes = [label.split("  ")[0] for label in user.labels("Call tree")]
        assert lanes[0] == "All lanes" and sorted(lanes[1:]) == ["MainThread", *(f"job {n} (job) on worker" for n in range(3))]
        await user.open("Call tree", "job 1", "job")
        assert user.find("Call tree", "job 1", "job").allow_expand
        assert [(row[0], row[1]) for row in user.rows()] == [("job", "1"), ("inner", "1")]
        assert user.titles()[-1] == "awaiting" and user.rows()[0][-1].endswith("ms")
        await user.open("Call tree", "job 1", "job", "inner")
        assert not user.find("Call tree", "job 1", "job", "inner").allow_expand

    browse(concurrent, look)


def test_a_path_tells_its_times_by_hand(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Call tree", "All lanes", "main", "solve", "io")
        assert user.labels("Call tree", "All lanes") == ["main  2x  160 ms, 100.0 %, own 70 ms"]
        assert user.labels("Call tree", "All lanes", "main") == ["solve  2x  70 ms, 43.8 %, own 60 ms", "io  1x  20 ms, 12.5 %"]
        assert user.labels("Call tree", "all calls") == []  # not opened, not read
        await user.open("Call tree", "all calls", "main", "solve")
        assert user.labels("Call tree", "all calls", "main") == ["solve  2x  70 ms, 43.8 %, own 60 ms", "io  1x  20 ms, 12.5 %"]

    browse(nested, look)


def test_calls_that_overlap_have_no_tree_and_are_told_so(tmp_path: Path) -> None:
    make(tmp_path / "x.h5", {"a": [(0, 10)], "b": [(5, 15)]})

    async def look(user: User) -> None:
        await user.open("Call tree", "rank 0")
        assert "There is no call tree" in user.text
        await user.open("Regions")
        assert len(user.rows()) == 2

    browse(tmp_path / "x.h5", look)


def test_one_row_is_counted_as_one(tmp_path: Path) -> None:
    make(tmp_path / "x.h5", {"a": [(0, 10)]})

    async def look(user: User) -> None:
        await user.open("Regions")
        assert user.state == "1 region"
        await user.open("Call tree", "All lanes")
        assert user.state == "1 path"

    browse(tmp_path / "x.h5", look)


# -- the file ------------------------------------------------------------------------------------------------------------


def test_the_raw_file(nested: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Raw HDF5", "summary", "p50")
        assert "dataset" in user.text and "/summary/p50" in user.text
        assert "float64" in user.text and user.text.split("values")[1].split()[0] == "80000000.0"  # of main, in ns
        await user.open("Raw HDF5", "events")
        assert user.text.startswith("group /events")

    browse(nested, look)


def test_the_raw_file_without_its_reader(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)

    async def look(user: User) -> None:
        await user.open("Raw HDF5")
        assert user.text == "This needs h5py: pip install scope-profiler[tui]"

    browse(nested, look)


def test_other_inputs(tmp_path: Path, nested: Path) -> None:
    sp.export_json(sp.load(nested), tmp_path / "run.json", verbose=False)
    program = "import os, scope_profiler as sp\nsp.setup(output='killed.h5')\nwith sp.region('late'): pass\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    (spool,) = tmp_path.glob("killed.h5.*.spool")

    async def look(user: User) -> list[str]:
        await user.open("Raw HDF5")
        assert "is no HDF5 file" in user.text
        await user.open("Regions")
        return [row[0] for row in user.rows()]

    assert browse(tmp_path / "run.json", look) == ["main", "solve", "io"]
    assert browse(spool, look) == ["late"]


def test_a_file_that_goes_away_is_told_and_the_rest_stays(nested: Path) -> None:
    async def look(user: User) -> None:
        nested.unlink()
        await user.open("Raw HDF5")
        assert "nested.h5" in user.text or "No such file" in user.text
        await user.open("Regions", "io", "Calls")  # the profile was opened before
        assert [row[1] for row in user.rows()] == ["10 ms", "20 ms"]

    browse(nested, look)


def test_nothing_is_read_before_it_is_looked_at(concurrent: Path) -> None:
    async def look(user: User) -> None:
        stored = user.app._results._stored
        for path in (["Plots"], ["Metadata"], ["Regions"], ["Regions", "job", "Summary"], ["Threads"], ["Tasks"], ["Raw HDF5"]):
            await user.open(*path)
        assert stored is not None and not stored.is_read
        await user.open("Regions", "job", "Calls")
        assert stored.is_read

    browse(concurrent, look)


def test_a_run_with_too_many_calls_keeps_to_its_summary(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MOST_CALLS", 5)

    async def look(user: User) -> None:
        await user.open("Regions", "io", "Calls")
        assert user.text.startswith("The run has 6 calls, more than are read here (5)")
        await user.open("Call tree", "Single lanes")
        assert "its summary is all that is shown" in user.text
        await user.open("Call tree", "All lanes", "main")
        assert user.rows()[0][:2] == ["main", "2"]
        assert not user.app._results._stored.is_read  # type: ignore[union-attr]

    browse(nested, look)


def test_many_regions_come_as_they_are_needed(tmp_path: Path) -> None:
    make(tmp_path / "many.h5", {f"r{number:04}": [(number, number + 1)] for number in range(1000)})

    async def look(user: User) -> None:
        await user.open("Regions")
        assert len(user.rows()) == 200 and user.state == "1,000 regions"
        user.table.focus()
        await user.press("ctrl+end")
        assert len(user.rows()) == 400
        await user.press("slash")
        await user.type("r07")
        assert len(user.rows()) == 100 and user.state == "100 of 1,000 regions"
        await user.press("enter", "down", "enter")  # a region that the navigation has not shown yet
        node = user.app.query_one("#navigation", Tree).cursor_node
        assert node is not None and str(node.label) == "r0701"
        labels = user.labels("Regions")
        assert len(labels) == 801 and labels[-1] == "... more"
        user.app.query_one("#navigation", Tree).move_cursor(user.find("Regions").children[-1])
        await user.press("enter")
        assert len(user.labels("Regions")) == 1000

    browse(tmp_path / "many.h5", look)


def test_what_cannot_be_read_once_can_be_opened_again(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [True]

    def nodes(results: sp.ProfilingResults) -> Iterator[model.Node]:
        yield model.Node("one", lambda: model.TextView(["1"]))
        if failing.pop():
            failing.append(False)
            raise OSError("the disk is away")
        yield model.Node("two", lambda: model.TextView(["2"]))

    monkeypatch.setattr(model, "_region_nodes", nodes)

    async def look(user: User) -> None:
        regions = user.find("Regions")
        regions.expand()
        await user.settle()
        assert user.labels("Regions") == [] and "the disk is away" in user.state
        regions.collapse()
        await user.settle()
        regions.expand()
        regions.collapse()
        regions.expand()  # while it is being read: once is enough
        await user.settle()
        assert user.labels("Regions") == ["one", "two"]

    browse(nested, look)


def test_quitting_does_not_wait_for_the_screen_to_be_complete(nested: Path) -> None:
    program = (
        "import sys, time\nfrom scope_profiler.tui import model\n"
        "model._overview = lambda results, path: time.sleep(2) or model.TextView(['late'])\n"
        "from scope_profiler.cli import main\nsys.exit(main())"
    )
    with terminal(sys.executable, "-c", program, "tui", str(nested)) as user:
        assert user.read_until("reading ..."), user.output[-2000:]
        user.press(b"q")
        assert user.read_until("\x1b[?1049l")
        assert user.process.wait(30) == 0
        assert b"late" not in user.output and b"Traceback" not in user.output


def test_names_cannot_drive_the_terminal_or_the_markup(tmp_path: Path) -> None:
    names = ["\x1b[2Jgone", "[bold]not bold[/bold]", "[/]", "a\nb", "\u202eback", "x" * 5000]
    make(tmp_path / "odd.h5", {name: [(number, number + 1)] for number, name in enumerate(names)})

    async def look(user: User) -> None:
        await user.open("Regions")
        shown = [row[0] for row in user.rows()]
        assert shown[:5] == ["\\x1b[2Jgone", "[bold]not bold[/bold]", "[/]", "a\\nb", "\\u202eback"]
        assert len(shown[5]) == 100
        for number in range(len(names)):
            user.find("Regions").expand()
            await user.settle()
            user.app.query_one("#navigation", Tree).move_cursor(user.find("Regions").children[number])
            await user.settle()
            assert shown[number][:20] in user.text
        await user.open("Call tree", "All lanes")
        await user.open("Plots", "Durations")
        assert "\x1b" not in user.screen

    browse(tmp_path / "odd.h5", look)


# -- plots ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_screen: None) -> Path:
    """A browser that only writes down what it was to show."""
    browser = tmp_path / "browser.sh"
    browser.write_text(f"#!/bin/sh\necho \"$1\" >>{tmp_path}/opened\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    return tmp_path / "opened"


def test_plots_are_drawn_as_text_and_saved(nested: Path, tmp_path: Path, no_screen: None) -> None:
    async def look(user: User) -> None:
        await user.open("Plots", "Gantt")
        assert user.labels("Plots") == [
            "Gantt", "Density", "Flame chart", "Flame graph", "Callgraph", "Durations", "Timeseries", "Rank heatmap", "Histogram", "Imbalance",
        ]  # fmt: skip
        assert "3 of 3 regions: main, solve, io" in user.screen
        await user.press("t")
        assert "Gantt chart of" in user.text and "solve" in user.text
        await user.open("Plots", "Callgraph")
        await user.press("t")
        assert "plotext" in user.state  # which draws no such plot
        await user.press("s")
        assert user.state == f"saved {tmp_path}/out/callgraph_plot.png"
        await user.press("p")
        assert user.state == f"there is no screen to show it on: saved {tmp_path}/out/callgraph_plot.html"
        await user.press("g")
        assert "there is no screen for a window" in user.state
        await user.press("v")
        assert "there is no screen for a browser" in user.state

    browse(nested, look, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["callgraph_plot.html", "callgraph_plot.png"]
    assert (tmp_path / "out" / "callgraph_plot.png").read_bytes().startswith(b"\x89PNG")


def test_plots_are_saved_beside_the_profile_if_nothing_else_is_said(nested: Path, no_screen: None) -> None:
    assert default_directory("a/b.c.h5") == "a/b_plots" and default_directory("b.h5") == "b_plots"

    async def look(user: User) -> None:
        await user.open("Plots", "Histogram")
        await user.press("s")

    browse(nested, look)
    assert [file.name for file in (nested.parent / "nested_plots").iterdir()] == ["histogram_plot.png"]


def test_the_regions_of_a_plot_can_be_chosen(nested: Path, tmp_path: Path, no_screen: None) -> None:
    async def look(user: User) -> None:
        await user.open("Plots", "Durations")
        user.app.query_one("#include", Input).focus()
        await user.type("so, i")
        assert "2 of 3 regions: solve, io" in user.screen
        user.app.query_one("#exclude", Input).focus()
        await user.type("i")
        assert "1 of 3 regions: solve" in user.screen
        await user.press("escape", "t")
        assert "solve" in user.text and "main" not in user.text
        user.app.query_one("#include", Input).focus()
        await user.type("(")
        assert "is not a regular expression" in user.screen
        await user.press("escape", "s")
        assert "is not a regular expression" in user.state
        user.app.query_one("#include", Input).value = "none"
        await user.settle()
        assert "no region" in user.screen
        await user.press("s")
        assert user.state == "durations: no region matches the filters"

    browse(nested, look, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plot_library_that_is_missing_is_told(nested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Path) -> None:
    for name in ("matplotlib", "plotly", "plotext", "snakeviz"):
        monkeypatch.setitem(sys.modules, name, None)

    async def look(user: User) -> None:
        await user.open("Plots", "Durations")
        for key in ("t", "s", "p"):
            await user.press(key)
            assert "pip install scope-profiler[plots]" in user.state, key
        await user.press("v")
        assert user.state == "this needs snakeviz: pip install snakeviz"

    browse(nested, look, tmp_path / "out")


def test_plotly_opens_in_the_browser(nested: Path, tmp_path: Path, opened: Path) -> None:
    async def look(user: User) -> None:
        await user.open("Plots", "Gantt")
        await user.press("p")
        assert user.state.startswith("opened ") and user.state.endswith(" in the browser")
        page = opened.read_text().strip().removeprefix("file://")
        assert "plotly" in Path(page).read_text()

    browse(nested, look, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_window_is_a_process_of_its_own(nested: Path, monkeypatch: pytest.MonkeyPatch, no_screen: None) -> None:
    monkeypatch.setenv("DISPLAY", ":77")
    monkeypatch.setenv("MPLBACKEND", "Agg")  # there is no window then, but everything before it

    async def look(user: User) -> None:
        await user.open("Plots", "Gantt")
        await user.press("g")
        assert user.state == "the window is open"
        user.app.query_one("#include", Input).value = "none"
        await user.press("g")
        assert "no region matches the filters" in user.state

    browse(nested, look)


def test_snakeviz_shows_the_profile_and_ends_with_the_ui(nested: Path, opened: Path) -> None:
    async def look(user: User) -> str:
        await user.press("v")
        deadline = time.monotonic() + 30
        while not opened.exists() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await user.settle()
        assert user.state == "snakeviz is open in the browser"
        address = opened.read_text().strip()
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(address, timeout=20).read())
        assert b"solve" in page
        return address

    address = browse(nested, look)
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)


# -- the command ---------------------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["tui", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


def test_without_a_terminal_one_line_says_so(nested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, str(nested)) == "scope-profiler: tui needs a terminal; `scope-profiler inspect` prints"


class Terminal:
    """A process with a pseudo-terminal of 120 columns and 40 lines."""

    def __init__(self, *command: str, **options: Any) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": "xterm-256color", **options.pop("env", {})}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, **options)
        self.slave = slave
        self.output = b""

    def read_until(self, text: str, seconds: float = 60) -> bool:
        deadline = time.monotonic() + seconds
        while text.encode() not in self.output:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                return False
            self.output += os.read(self.master, 1 << 16)
        return True

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)


@contextmanager
def terminal(*command: str, **options: Any) -> Iterator[Terminal]:
    made = Terminal(*command, **options)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
            made.process.wait()
        os.close(made.master)
        os.close(made.slave)


def test_in_a_real_terminal(nested: Path) -> None:
    with terminal(sys.executable, "-m", "scope_profiler", "tui", str(nested), "--plot-output", str(nested.parent / "plots")) as user:
        assert user.read_until("First call to last"), user.output[-2000:]
        assert b"\x1b[?1049h" in user.output
        user.press(b"\x1b[B\x1b[B\x1b[B")  # down to the regions
        assert user.read_until("3 regions"), user.output[-2000:]
        user.press(b"q")
        assert user.read_until("\x1b[?1049l")
        assert user.process.wait(30) == 0
        assert termios.tcgetattr(user.slave)[:4] == user.before[:4]


@pytest.mark.parametrize(
    ("arguments", "blocked", "words"),
    [
        (["none.h5"], "", "scope-profiler: none.h5: no such file"),
        (["text.h5"], "", "scope-profiler: text.h5"),
        (["nested.h5"], "textual", "scope-profiler: tui needs textual: pip install scope-profiler[tui]"),
        ([], "", "FILE"),
    ],
)
def test_what_cannot_be_shown_is_one_line(nested: Path, arguments: list[str], blocked: str, words: str) -> None:
    (nested.parent / "text.h5").write_text("no profile")
    program = f"import sys; sys.modules.update({{{blocked!r}: None}}); from scope_profiler.cli import main; sys.exit(main())"
    with terminal(sys.executable, "-c", program, "tui", *arguments, cwd=nested.parent) as user:
        assert user.process.wait(60) == 2
        assert user.read_until("\n", 10)
        lines = user.output.decode().splitlines()
        assert len(lines) == 1 and words in lines[0], lines


def test_the_command_imports_textual_only_when_it_runs() -> None:
    program = "import sys, scope_profiler.cli as c; c.main(['tui', '--help'])\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json\ntry:\n    exec({program.splitlines()[0]!r})\nexcept SystemExit: pass\nimport sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not {"textual", "rich", "h5py", "numpy"} & set(json.loads(done.stdout.splitlines()[-1]))
