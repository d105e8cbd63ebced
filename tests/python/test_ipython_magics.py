"""The magics, in a Jupyter kernel and in IPython's shell, each in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp

pytest.importorskip("ipykernel")
from jupyter_client.manager import start_new_kernel  # noqa: E402

PICKLE = "import base64, pickle; base64.b64encode(pickle.dumps({}))"


@dataclass
class Outcome:
    """What a front end gets to see of a cell."""

    status: str
    text: str = ""  # streams
    values: list[str] = field(default_factory=list)  # what Out[...] shows
    displays: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)  # (name, traceback)
    order: list[str] = field(default_factory=list)  # kinds of messages, as they came


class Kernel:
    """A Jupyter kernel with the extension loaded."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str) -> Outcome:
        """Run a cell as a notebook does."""
        outcome = Outcome("")

        def take(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind in ("stream", "execute_result", "display_data", "error") and outcome.order[-1:] != [kind]:
                outcome.order.append(kind)  # a text may come in pieces
            if kind == "stream":
                outcome.text += content["text"]
            elif kind == "execute_result":
                outcome.values.append(content["data"]["text/plain"])
            elif kind == "display_data":
                outcome.displays.append(content["data"])
            elif kind == "error":
                outcome.errors.append((content["ename"], re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))))

        reply = self.client.execute_interactive(code, timeout=60, output_hook=take, stop_on_error=False)
        outcome.status = reply["content"]["status"]
        return outcome

    def ok(self, code: str) -> Outcome:
        """Run a cell that must succeed."""
        outcome = self.run(code)
        assert outcome.status == "ok" and not outcome.errors, outcome
        return outcome

    def usage_error(self, code: str) -> str:
        """Run a cell that must end with one line."""
        outcome = self.run(code)
        assert outcome.status == "error"
        [line] = outcome.text.strip().splitlines()
        assert line.startswith("UsageError: ")
        return line.removeprefix("UsageError: ")

    def value(self, expression: str) -> Any:
        """A value in the kernel."""
        [shown] = self.ok(f"import json as _j; _j.dumps({expression})").values
        return json.loads(shown[1:-1].replace("\\'", "'"))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    directory = tmp_path_factory.mktemp("notebook")
    environment = {**os.environ, "IPYTHONDIR": str(directory / "ipython"), "JUPYTER_PLATFORM_DIRS": "1"}
    manager, client = start_new_kernel(cwd=str(directory), env=environment, kernel_name="python3")
    try:
        kernel = Kernel(manager, client)
        kernel.ok("%load_ext scope_profiler.ipython_magics")
        kernel.ok("import asyncio, time\nimport scope_profiler as sp\nfrom scope_profiler import profile, region")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(started: Kernel) -> Kernel:
    """The kernel, with no runs."""
    started.ok("%scope_reset")
    return started


RUNS = "get_ipython().magics_manager.registry['ScopeMagics'].runs"


def regions(kernel: Kernel, name: str) -> dict[str, int]:
    """The regions of a run with their numbers of calls."""
    found: dict[str, int] = kernel.value(f"{{r.name: r.num_calls for r in {RUNS}['{name}'].get_regions()}}")
    return found


# -- %%scope ---------------------------------------------------------------------------------------------------------------


def test_a_cell_is_a_region_and_shows_its_value_and_summary(kernel: Kernel) -> None:
    outcome = kernel.ok("%%scope\nwith region('work'):\n    time.sleep(0.02)\n6 * 7")
    assert outcome.values == ["42"]
    title, *table = outcome.text.splitlines()
    assert title == "%%scope 'cell'"
    assert [line.split()[:2] for line in table if "work" in line] == [["│", "│"]]
    assert regions(kernel, "cell") == {"scope_profiler.session": 1, "cell": 1, "work": 1}
    assert 0.02 <= kernel.value(f"{RUNS}['cell']['work'].total_duration") < kernel.value(f"{RUNS}['cell']['cell'].total_duration")
    assert not kernel.value("sp.is_active()")


def test_names_quiet_and_selection(kernel: Kernel) -> None:
    assert kernel.ok("%%scope first -q\nnumber = 5").text == ""
    assert kernel.value("number") == 5  # in the user's namespace
    kernel.ok("@profile\ndef helper(): return 1\n@profile\ndef other(): return 2")
    text = kernel.ok("%%scope --include hel second\nhelper(); helper(); other();").text
    assert "helper (2x)" in text and "other" not in text and "second" not in text.splitlines()[2]
    assert regions(kernel, "second") == {"scope_profiler.session": 1, "second": 1, "helper": 2, "other": 1}
    assert list(kernel.value(f"list({RUNS})")) == ["first", "second"]
    kernel.ok("%%scope first -q\n1")
    assert list(kernel.value(f"list({RUNS})")) == ["second", "first"]  # the most recent one is the last


def test_magics_and_shell_commands_work_in_a_cell(kernel: Kernel) -> None:
    outcome = kernel.ok("%%scope -q\nhere = %pwd\n!echo from a shell\nhere[:1]")
    assert "from a shell" in outcome.text and outcome.values == ["'/'"]


def test_an_exception_is_the_cells_own_and_comes_after_the_summary(kernel: Kernel) -> None:
    outcome = kernel.run("%%scope bad\nwith region('before'):\n    pass\n1 / 0")
    assert outcome.status == "error"  # so that a notebook that is run as a whole stops here
    assert outcome.order == ["stream", "error"] and "before" in outcome.text
    [(name, traceback)] = outcome.errors
    assert name == "ZeroDivisionError" and "1 / 0" in traceback and "ipython_magics" not in traceback and "run_cell_magic" not in traceback
    assert regions(kernel, "bad") == {"scope_profiler.session": 1, "bad": 1, "before": 1}
    # Raised again by somebody else, it is shown as ever.
    again = kernel.run("import sys\nraise sys.last_value")
    assert "raise sys.last_value" in again.errors[0][1]


def test_what_a_host_shows_errors_with_stays(kernel: Kernel) -> None:
    kernel.ok("shell = get_ipython()\nold = shell.showtraceback\nshell.showtraceback = lambda *a, **k: (print('own'), old(*a, **k))[1]")
    try:
        outcome = kernel.run("%%scope -q\n1 / 0")
        assert outcome.text == "own\n" and [name for name, _ in outcome.errors] == ["ZeroDivisionError"]
        assert kernel.run("1 / 0").text == "own\n"
    finally:
        kernel.run("del shell.showtraceback")
    assert kernel.run("1 / 0").text == ""


def test_a_cell_that_is_no_python_is_not_recorded(kernel: Kernel) -> None:
    outcome = kernel.run("%%scope broken\n1 +")
    assert outcome.status == "error" and outcome.errors[0][0] == "SyntaxError"
    assert "%%scope" not in outcome.text and kernel.value(f"list({RUNS})") == []


def test_a_run_that_is_active_is_left_alone(kernel: Kernel) -> None:
    kernel.ok("run = sp.setup(output=None)\nwith region('mine'):\n    pass")
    assert "a run is active already" in kernel.usage_error("%%scope\n1")
    assert kernel.value("sp.finalize(verbose=False, return_results=True).region_names") == ["mine"]
    kernel.ok("sp.reset()")
    outcome = kernel.run("%%scope outer -q\nwith sp.session(output=None):\n    pass")
    assert outcome.errors[0][0] == "RuntimeError"
    assert regions(kernel, "outer") == {"scope_profiler.session": 1, "outer": 1}


def test_options_that_do_not_exist_are_told(kernel: Kernel) -> None:
    assert "-z" in kernel.usage_error("%%scope -z\n1")


def test_the_plot_is_shown(kernel: Kernel) -> None:
    pytest.importorskip("matplotlib")
    outcome = kernel.ok("%matplotlib inline\n")
    outcome = kernel.ok("%%scope drawn -p\nwith region('work'):\n    time.sleep(0.01)")
    [picture] = [data["image/png"] for data in outcome.displays if "image/png" in data]
    assert base64.b64decode(picture).startswith(b"\x89PNG")


# -- cells that await ------------------------------------------------------------------------------------------------------


def test_a_cell_may_await_on_the_notebooks_own_loop(kernel: Kernel) -> None:
    kernel.ok("loop = asyncio.get_running_loop()")
    outcome = kernel.ok(
        "%%scope waiting\nasync def one(name):\n    with region(name):\n        await asyncio.sleep(0.05)\n"
        "results = await asyncio.gather(one('a'), one('b'))\nasyncio.get_running_loop() is loop"
    )
    assert outcome.values == ["True"] and outcome.text.startswith("%%scope 'waiting'\n")
    assert regions(kernel, "waiting") == {"scope_profiler.session": 1, "waiting": 1, "a": 1, "b": 1}
    total, a, b = (kernel.value(f"{RUNS}['waiting']['{name}'].total_duration") for name in ("waiting", "a", "b"))
    assert min(a, b) >= 0.05 and total < a + b  # at the same time
    assert kernel.value(f"float({RUNS}['waiting']['a'][0].total_await_duration)") >= 0.045


def test_an_exception_of_a_cell_that_awaits(kernel: Kernel) -> None:
    outcome = kernel.run("%%scope bad\nawait asyncio.sleep(0)\nraise KeyError('gone')")
    assert outcome.status == "error" and outcome.order == ["stream", "error"]
    [(name, traceback)] = outcome.errors
    assert name == "KeyError" and "raise KeyError" in traceback and "ipython_magics" not in traceback


def test_a_statement_may_await(kernel: Kernel) -> None:
    kernel.ok("async def nap():\n    await asyncio.sleep(0.01)")
    text = kernel.ok("%scope_timeit -n 3 await nap()").text
    assert text.startswith("%scope_timeit 'await nap()' (3 runs)\n")
    assert regions(kernel, "timeit") == {"scope_profiler.session": 1, "timeit": 3}
    assert kernel.value(f"{RUNS}['timeit']['timeit'].min_duration") >= 0.01


def test_the_word_alone_makes_no_cell_wait(kernel: Kernel) -> None:
    kernel.ok("%%scope word -q\ntext = 'await nothing'\nasync def later():\n    await asyncio.sleep(0)")
    assert regions(kernel, "word") == {"scope_profiler.session": 1, "word": 1}


# -- %scope_timeit ---------------------------------------------------------------------------------------------------------


def test_a_statement_is_run_as_often_as_asked(kernel: Kernel) -> None:
    kernel.ok("count = 0\ndef step():\n    global count\n    count += 1\n    time.sleep(0.002)")
    text = kernel.ok("%scope_timeit step()").text
    assert kernel.value("count") == 7 and text.startswith("%scope_timeit 'step()' (7 runs)\n")
    [row] = [line for line in text.splitlines() if "timeit " in line and "%" not in line]
    calls, total, average, least, most = re.findall(r"[\d.e+-]*\d", row)
    assert calls == "7" and 0.002 <= float(least) <= float(average) <= float(most) < float(total)
    kernel.ok("%scope_timeit -q -n 2 step()")
    assert kernel.value("count") == 9 and regions(kernel, "timeit") == {"scope_profiler.session": 1, "timeit": 2}
    kernel.ok("%scope_timeit -n1 -q x = 3; y = -n1 if False else 4".replace("-n1 if", "1 if"))
    assert kernel.value("[x, y]") == [3, 4]


def test_wrong_numbers_of_runs_and_statements(kernel: Kernel) -> None:
    assert "'0' is no number of runs" in kernel.usage_error("%scope_timeit -n 0 1")
    assert "'x' is no number of runs" in kernel.usage_error("%scope_timeit -n x 1")
    assert "there is no statement" in kernel.usage_error("%scope_timeit -n 3")
    outcome = kernel.run("%scope_timeit undefined_name")
    [(name, traceback)] = outcome.errors
    assert name == "NameError" and "ipython_magics" not in traceback
    assert kernel.value(f"list({RUNS})") == []


# -- runs ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(kernel: Kernel) -> Kernel:
    """The kernel with two runs: `a` has x and y, `b` has x twice."""
    kernel.ok("%%scope a -q\nwith region('x'):\n    pass\nwith region('y'):\n    pass")
    kernel.ok("%%scope b -q\nfor _ in range(2):\n    with region('x'):\n        pass")
    return kernel


def test_the_summary_is_printed_again(two: Kernel) -> None:
    assert two.ok("%scope_last").text.splitlines()[0] == "'b' (last)"
    text = two.ok("%scope_last a").text
    assert text.splitlines()[0] == "'a'" and " y " in text
    assert " y " not in two.ok("%scope_last a --include x").text
    assert two.usage_error("%scope_last c") == "there is no run 'c' (runs: a, b)"


def test_runs_are_compared(two: Kernel) -> None:
    text = two.ok("%scope_compare --metric calls --sort name").text
    assert text.splitlines()[0] == "'a' -> 'b'"
    rows = {cells[1]: cells[2:6] for cells in (line.split() for line in text.splitlines()) if len(cells) == 7}
    assert rows["x"] == ["1", "2", "+1", "+100%"] and rows["y"] == ["1", "-", "-1", "-100%"]
    assert "Only in a: a, y" in text.replace("y, a", "a, y") and "Only in b: b" in text
    assert two.ok("%scope_compare b a").text.startswith("'b' -> 'a'\n")
    assert "name two runs" in two.usage_error("%scope_compare a")
    assert "there is no run 'c'" in two.usage_error("%scope_compare a c")
    two.ok("%scope_reset a")
    assert two.usage_error("%scope_compare") == "%scope_compare needs two runs; there is one"


def test_runs_are_data_frames(two: Kernel) -> None:
    pytest.importorskip("pandas")
    two.ok("frame = %scope_df -n a")
    assert two.value("dict(zip(frame['name'], frame['num_calls'].tolist()))") == {"scope_profiler.session": 1, "a": 1, "x": 1, "y": 1}
    two.ok("frame = %scope_df --include x --include b --exclude b")
    assert two.value("frame['name'].tolist()") == ["x"]
    two.ok("frame = %scope_df --events --include x")
    assert two.value("frame['call_index'].tolist()") == [0, 1]
    two.ok("frame = %scope_df --per-rank")
    assert two.value("frame['rank'].tolist()") == [0, 0, 0]


def test_runs_are_exported_in_the_format_that_the_name_tells(two: Kernel, tmp_path: Path) -> None:
    def export(arguments: str) -> list[str]:
        return [line.removeprefix("wrote ") for line in two.ok(f"%scope_export {arguments}").text.splitlines()]

    assert export(f"{tmp_path}/a.prof -n a") == [f"{tmp_path}/a_rank0.prof"]
    assert export(f"{tmp_path}/b.speedscope.json") == [f"{tmp_path}/b.speedscope.json"]
    assert json.loads((tmp_path / "b.speedscope.json").read_text())["$schema"].startswith("https://www.speedscope.app")
    assert export(f"{tmp_path}/no/suffix --format speedscope") == [f"{tmp_path}/no/suffix.speedscope.json"]
    assert export(f"{tmp_path}/b.h5") == [f"{tmp_path}/b.h5"]
    assert sp.load(tmp_path / "b.h5")["x"].num_calls == 2
    assert export(f"{tmp_path}/b.html")[0] == f"{tmp_path}/b.html"
    flat = export(f"{tmp_path}/flat.prof --no-call-paths -n a --exclude y")
    assert {key[2] for key in sp.load_prof(flat[0]).stats} >= {"x"} and "y" not in {key[2] for key in sp.load_prof(flat[0]).stats}
    assert "tells no format" in two.usage_error(f"%scope_export {tmp_path}/b.txt")
    assert "prof and flamegraph" in two.usage_error(f"%scope_export {tmp_path}/b.csv --no-call-paths")
    (tmp_path / "file").write_text("")
    assert str(tmp_path) in two.usage_error(f"%scope_export {tmp_path}/file/b.csv")


def test_profiles_are_loaded(kernel: Kernel, tmp_path: Path) -> None:
    manager = sp.ProfileManager()
    with manager.session(output=tmp_path / "cluster.run.h5", verbose=False), manager.region("solve"):
        pass
    text = kernel.ok(f"%scope_load {tmp_path}/cluster.run.h5").text
    assert text.splitlines()[0] == f"%scope_load {tmp_path}/cluster.run.h5 as 'cluster.run'" and "solve" in text
    assert kernel.ok(f"%scope_load -q -n mine {tmp_path}/cluster.run.h5").text == ""
    assert regions(kernel, "mine") == {"scope_profiler.session": 1, "solve": 1}
    assert kernel.usage_error(f"%scope_load {tmp_path}/none.h5") == f"%scope_load: {tmp_path}/none.h5: no such file"
    (tmp_path / "bad.h5").write_text("not a profile")
    assert f"{tmp_path}/bad.h5" in kernel.usage_error(f"%scope_load {tmp_path}/bad.h5")


def test_runs_are_forgotten(two: Kernel) -> None:
    assert two.ok("%scope_reset a").text == "forgot the run 'a'\n"
    assert two.usage_error("%scope_reset a") == "there is no run 'a' (runs: b)"
    assert two.ok("%scope_reset").text == "forgot all runs\n"
    for magic in ("%scope_last", "%scope_df", "%scope_export x.prof", "%scope_reset x"):
        assert two.usage_error(magic).startswith("there are no runs yet")
    assert two.usage_error("%scope_compare") == "%scope_compare needs two runs; there are none"


def test_every_magic_explains_itself(kernel: Kernel) -> None:
    documented = kernel.value(
        "{kind: {name: (magic.__doc__ or '') for name, magic in magics.items() if name.startswith('scope')}"
        " for kind, magics in get_ipython().magics_manager.magics.items()}"
    )
    assert sorted(documented["cell"]) == ["scope", "scope_agg", "scope_line", "scope_recursive"]
    assert sorted(documented["line"]) == [
        "scope_compare", "scope_df", "scope_export", "scope_last", "scope_load", "scope_reset", "scope_timeit",
    ]  # fmt: skip
    for kind, magics in documented.items():
        prefix = "%%" if kind == "cell" else "%"
        for name, text in magics.items():
            assert f"{prefix}{name}" in text, name


# -- modes -----------------------------------------------------------------------------------------------------------------


def test_a_cell_in_aggregation_mode_keeps_sums(kernel: Kernel) -> None:
    text = kernel.ok("%%scope_agg sums\nfor _ in range(1000):\n    with region('many'):\n        pass\n'done'").text
    assert text.startswith("%%scope_agg 'sums'\n") and "many (1kx)" in text
    assert regions(kernel, "sums") == {"scope_profiler.session": 1, "sums": 1, "many": 1000}
    assert "aggregation mode" in kernel.ok("frame = %scope_df --events").text
    assert kernel.value("[len(frame), list(frame.columns)]") == [0, ["name", "rank", "call_index", "start", "end", "duration"]]
    kernel.ok("%%scope_agg awaited -q\nawait asyncio.sleep(0.01)\nwith region('many'):\n    pass")
    assert kernel.value(f"{RUNS}['awaited']['awaited'].total_duration") >= 0.01
    assert " -999 " in kernel.ok("%scope_compare --metric calls --sort pct").text
    assert "no calls" in kernel.usage_error("%scope_export x.prof")


@pytest.mark.usefixtures("line_profiler")
def test_the_lines_of_decorated_functions_are_timed(kernel: Kernel) -> None:
    cell = "%%scope_line {}\n@profile\ndef sum_up(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total\nsum_up(100)"
    outcome = kernel.ok(cell.format("lines"))
    assert outcome.values == ["4950"] and outcome.text.startswith("%%scope_line 'lines'\n")
    rows = [line.split() for line in outcome.text.splitlines() if "total += i" in line or "return total" in line]
    assert [(row[1], row[2]) for row in rows] == [("5", "100"), ("6", "1")]
    quiet = kernel.ok(cell.format("lines -q")).text
    assert "%%scope_line" not in quiet and "total += i" in quiet
    assert kernel.ok(cell.format("lines -Q")).text.count("total += i") == 0
    assert kernel.ok(cell.format("lines -q -Q")).text == ""


@pytest.mark.usefixtures("line_profiler")
def test_the_lines_of_a_function_that_awaits_are_timed(kernel: Kernel) -> None:
    outcome = kernel.ok("%%scope_line -q\n@profile\nasync def wait():\n    await asyncio.sleep(0.01)\n    return 3\nawait wait()")
    assert outcome.values == ["3"] and "return 3" in outcome.text


def test_every_function_that_a_cell_calls_is_a_region(kernel: Kernel) -> None:
    outcome = kernel.ok(
        "%%scope_recursive all\ndef leaf(n):\n    return n\ndef branch():\n    return leaf(1) + leaf(2)\nclass Tree:\n    def grow(self):\n"
        "        return branch()\nhere = Tree()\nhere.grow()"
    )
    assert outcome.values == ["3"] and "__main__.leaf (2x)" in outcome.text
    found = regions(kernel, "all")
    assert {name: found.get(name) for name in ("all", "__main__.Tree.grow", "__main__.branch", "__main__.leaf")} == {
        "all": 1, "__main__.Tree.grow": 1, "__main__.branch": 1, "__main__.leaf": 2,
    }  # fmt: skip
    assert not [name for name in found if name.startswith(("IPython", "ipykernel", "scope_profiler.ipython"))]
    assert kernel.value("here.grow()") == 3  # in the user's namespace
    text = kernel.ok("%%scope_recursive --include __main__.leaf\nleaf(1);").text
    assert "__main__.leaf" in text and "<module>" not in text
    silent = kernel.ok("%%scope_recursive -q\nleaf(1);")
    assert (silent.text, silent.values) == ("", [])
    empty = kernel.ok("%%scope_recursive -q\n# nothing")
    assert (empty.text, empty.values) == ("", [])
    failed = kernel.run("%%scope_recursive\nleaf(1)\n1 / 0")
    assert failed.order == ["stream", "error"] and "__main__.leaf" in failed.text
    [(name, traceback)] = failed.errors
    assert name == "ZeroDivisionError" and "----> 2 1 / 0" in traceback and "ipython_magics" not in traceback


def test_functions_of_a_cell_that_awaits_are_regions(kernel: Kernel) -> None:
    outcome = kernel.ok(
        "%%scope_recursive awaited\nasync def inner():\n    await asyncio.sleep(0.01)\n    return 4\nasync def outer():\n    return await inner()\n"
        "before = await outer()\nbefore + await outer()"
    )
    assert outcome.values == ["8"]
    found = regions(kernel, "awaited")
    assert {name: found.get(name) for name in ("awaited", "__main__.outer", "__main__.inner")} == {
        "awaited": 1, "__main__.outer": 2, "__main__.inner": 2,
    }  # fmt: skip


# -- IPython in a terminal -------------------------------------------------------------------------------------------------


def ipython(directory: Path, text: str) -> str:
    """What IPython prints for these lines, as if they were typed."""
    environment = {**os.environ, "IPYTHONDIR": str(directory), "TERM": "dumb", "PYTHON_COLORS": "0"}
    process = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=NoColor"],
        input=text, cwd=directory, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", process.stdout + process.stderr)


@pytest.mark.slow
def test_the_magics_in_a_terminal(tmp_path: Path) -> None:
    text = ipython(
        tmp_path,
        "%load_ext scope_profiler.ipython_magics\n"
        "import scope_profiler as sp, asyncio\n"
        "%%scope typed\nwith sp.region('inner'):\n    print('printed')\n\n\n"
        "%%scope waits\nawait asyncio.sleep(0.01)\n\n\n"
        "%%scope bad\n1 / 0\n\n\n"
        "%scope_compare typed waits --metric calls\n"
        "%unload_ext scope_profiler.ipython_magics\n"
        "%scope_last\n",
    )
    assert "printed" in text and "inner" in text
    assert "%%scope 'waits'" in text
    assert text.count("ZeroDivisionError: division by zero") == 1 and "ipython_magics.py" not in text
    assert "Only in a: typed, inner" in text or "Only in a: inner, typed" in text
    assert "`%scope_last` not found" in text


def test_the_module_says_what_is_missing(python: Any) -> None:
    process = python("import sys; sys.modules['IPython'] = None; import scope_profiler.ipython_magics", check=False)
    assert process.stderr.strip().splitlines()[-1] == "ImportError: the magics need IPython: pip install scope-profiler[notebook]"
