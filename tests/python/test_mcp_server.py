"""The MCP server, as a client meets it: a process of its own, spoken to over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import McpError

import scope_profiler as sp
from other_processes import eventually, is_alive
from scope_profiler.mcp_server import tools

pytestmark = pytest.mark.slow

SERVER = [sys.executable, "-m", "scope_profiler.mcp_server"]


def talk(directory: Path, conversation: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    """Start a server in ``directory``, have the conversation, and close it."""

    async def run() -> Any:
        with open(os.devnull, "w") as errors:
            parameters = StdioServerParameters(command=SERVER[0], args=SERVER[1:], cwd=directory)
            async with stdio_client(parameters, errors) as streams, ClientSession(*streams) as session:
                await session.initialize()
                return await conversation(session)

    return asyncio.run(run())


def ask(directory: Path, *calls: tuple[str, dict[str, Any]]) -> list[types.CallToolResult]:
    """The answers of one server to some calls, one after the other."""

    async def conversation(session: ClientSession) -> list[types.CallToolResult]:
        return [await session.call_tool(name, arguments) for name, arguments in calls]

    answers: list[types.CallToolResult] = talk(directory, conversation)
    return answers


def value(answer: types.CallToolResult) -> dict[str, Any]:
    """The structured value of an answer, which its text says too."""
    assert not answer.isError, answer
    assert answer.structuredContent is not None
    (text,) = answer.content
    assert isinstance(text, types.TextContent) and json.loads(text.text) == answer.structuredContent
    return answer.structuredContent


def error(answer: types.CallToolResult) -> str:
    """The one line of an answer that is an error."""
    assert answer.isError and answer.structuredContent is None
    (text,) = answer.content
    assert isinstance(text, types.TextContent)
    assert "\n" not in text.text
    return text.text


def make(path: Path, regions: dict[str, list[tuple[int, int]]], total: int = 1000) -> Path:
    """A profile of one rank from intervals in ns, of a run that took ``total`` ns."""
    made = {
        name: sp.MPIRegion(name, {0: sp.Region(*(np.array(side, np.int64) + 10**9 for side in zip(*intervals, strict=True)))})
        for name, intervals in regions.items()
    }
    metadata = {"start_time_ns": 10**9, "finalize_time_ns": 10**9 + total, "PATH": "/bin", "SLURM_JOB_ID": "7", "hostname": "node"}
    sp.write_profile(sp.ProfilingResults(made, metadata=metadata), path)
    return path


NESTED = {"main": [(0, 100), (200, 260)], "solve": [(10, 60), (210, 230)], "io": [(20, 30), (70, 90)]}


# -- what is offered -----------------------------------------------------------------------------------------------------


def test_the_tools_and_their_parameters(tmp_path: Path) -> None:
    async def conversation(session: ClientSession) -> Any:
        return (await session.list_tools()).tools

    offered = {tool.name: tool for tool in talk(tmp_path, conversation)}
    defaults = {
        name: {key: one.get("default", "required") for key, one in tool.inputSchema["properties"].items()} for name, tool in offered.items()
    }
    choice = {"include": None, "exclude": None, "ranks": None}
    assert defaults == {
        "inspect_profile": {"file_path": "required", **choice, "sort": "total", "top_n": 20, "full_metadata": False},
        "compare_profiles": {
            "baseline_path": "required", "candidate_path": "required", **choice, "metric": "total", "threshold_pct": 5.0, "top_n": 20,
        },
        "run_profile": {
            "script_path": "required", "script_args": None, "only_user_code": True, "buffer_limit": 1024, "output_path": None,
            "timeout_seconds": 300.0, "top_n": 20,
        },
        "run_benchmark": {"config_path": "required", "label": "candidate"},
        "compare_benchmarks": {"baseline_path": "required", "candidate_path": "required"},
        "plot_profile": {
            "file_paths": "required", "plot_type": "gantt", "output_dir": None, **choice, "backend": "matplotlib", "x_field": None,
        },
    }  # fmt: skip
    for tool in offered.values():
        assert tool.outputSchema is not None and tool.description
        assert all(name in tool.description for name in tool.inputSchema["properties"])
    read_only = {name for name, tool in offered.items() if tool.annotations.readOnlyHint}
    assert read_only == {"inspect_profile", "compare_profiles", "compare_benchmarks"}


def test_the_server_tells_its_name_and_version(tmp_path: Path) -> None:
    async def conversation(session: ClientSession) -> Any:
        return await session.initialize()

    told = talk(tmp_path, conversation).serverInfo
    assert (told.name, told.version) == ("scope-profiler", sp.__version__)


def test_the_entry_point_is_the_server() -> None:
    script = Path(sys.executable).with_name("scope-profiler-mcp")
    assert subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout.startswith("usage: scope-profiler-mcp\n")
    wrong = subprocess.run([script, "--port"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", "scope-profiler-mcp: unknown argument '--port'\n")


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['mcp'] = None; from scope_profiler.mcp_server.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scope-profiler-mcp: mcp is missing: pip install scope-profiler[mcp]\n"


# -- profiles ------------------------------------------------------------------------------------------------------------


def test_inspect_tells_every_call_path(tmp_path: Path) -> None:
    make(tmp_path / "a.h5", NESTED)
    (answer,) = ask(tmp_path, ("inspect_profile", {"file_path": "a.h5"}))
    document = value(answer)
    assert {key: document[key] for key in ("file_path", "label", "num_ranks", "num_regions", "total_time_seconds", "wall_clock_seconds")} == {
        "file_path": "a.h5", "label": "a", "num_ranks": 1, "num_regions": 3, "total_time_seconds": pytest.approx(1e-6),
        "wall_clock_seconds": pytest.approx(260e-9),
    }  # fmt: skip
    regions = document["regions"]
    assert (regions["sort"], regions["returned"], regions["total_matching_filter"]) == ("total", 4, 4)
    by_path = {item["call_path"]: item for item in regions["items"]}
    # ns, by hand: total, exclusive, calls, first, last, parent's coverage
    for path, numbers in {
        "main": (160, 70, 2, 100, 60, None),
        "main > solve": (70, 60, 2, 50, 20, 160),
        "main > io": (20, 20, 1, 20, 20, 160),
        "main > solve > io": (10, 10, 1, 10, 10, 70),
    }.items():
        item = by_path[path]
        seen = [item[key] for key in ("total", "exclusive", "calls", "first", "last", "parent_coverage")]
        wanted = [number if place == 2 or number is None else number * 1e-9 for place, number in enumerate(numbers)]
        assert seen == pytest.approx(wanted), path
        assert (item["name"], item["depth"]) == (path.split(" > ")[-1], path.count(">"))
    assert list(by_path) == ["main", "main > solve", "main > io", "main > solve > io"]
    assert by_path["main"]["start"] == 0.0 and by_path["main > io"]["start"] == pytest.approx(70e-9)
    assert document["threads"] is None and document["coroutines"] is None and document["likwid"] is None
    groups = document["metadata"]
    assert groups["system"] == {"hostname": "node"} and groups["slurm"] == {"SLURM_JOB_ID": "7"}
    assert groups["environment_field_count"] == 1 and "environment" not in groups


def test_inspect_chooses_sorts_and_bounds(tmp_path: Path) -> None:
    make(tmp_path / "a.h5", NESTED)
    many = {f"r{i:04}" + "x" * 5000 * (i == 0): [(2 * i, 2 * i + 1)] for i in range(1200)}
    make(tmp_path / "many.h5", many)
    answers = ask(
        tmp_path,
        ("inspect_profile", {"file_path": "a.h5", "include": ["solve", "io"], "sort": "name", "full_metadata": True}),
        ("inspect_profile", {"file_path": "a.h5", "exclude": ["io"], "sort": "avg", "top_n": 1}),
        ("inspect_profile", {"file_path": "a.h5", "top_n": 0, "ranks": [0]}),
        ("inspect_profile", {"file_path": "many.h5", "top_n": None, "sort": "name"}),
        ("inspect_profile", {"file_path": "a.h5", "include": ["none"]}),
    )
    chosen, one, whole, most, nothing = (value(answer)["regions"] for answer in answers)
    assert [item["call_path"] for item in chosen["items"]] == ["solve > io", "io", "solve"]
    assert value(answers[0])["metadata"]["environment"] == {"PATH": "/bin"}
    assert [item["name"] for item in one["items"]] == ["main"] and one["total_matching_filter"] == 2
    assert whole["returned"] == 4
    assert (most["returned"], most["total_matching_filter"]) == (1000, 1200)
    assert len(most["items"][0]["name"]) == 2000
    assert (nothing["returned"], nothing["items"]) == (0, [])


def test_inspect_tells_of_threads_tasks_and_spools(tmp_path: Path, clean_manager: None) -> None:
    async def job() -> None:
        with sp.region("job"):
            await asyncio.sleep(0)

    async def jobs() -> None:
        await asyncio.gather(*(job() for _ in range(3)))

    with sp.session(output=tmp_path / "run.h5", track_async=True, verbose=False):
        thread = threading.Thread(target=lambda: asyncio.run(jobs()), name="worker")
        thread.start()
        thread.join()
    spooled = "import os, scope_profiler as sp\nsp.setup(output='killed.h5')\nwith sp.region('late'): pass\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", spooled], cwd=tmp_path, check=False)
    (spool,) = tmp_path.glob("killed.h5.*.spool")
    run, killed = map(value, ask(tmp_path, ("inspect_profile", {"file_path": "run.h5"}), ("inspect_profile", {"file_path": spool.name})))
    assert {(row["name"], row["num_calls"]) for row in run["threads"]["items"]} == {("MainThread", 1), ("worker", 3)}
    coroutines = {row["coroutine"]: row for row in run["coroutines"]["items"]}
    [name] = [name for name in coroutines if name.endswith("job")]
    assert (coroutines[name]["tasks"], coroutines[name]["done"], coroutines[name]["steps"]) == (3, 3, 6)
    assert [(item["name"], item["awaiting"]) for item in killed["regions"]["items"]] == [("late", None)]
    [job_path] = [item for item in run["regions"]["items"] if item["name"] == "job"]
    awaited = sum(sp.load(tmp_path / "run.h5")["job"][0].await_times_ns) / 1e9
    assert 0 < job_path["awaiting"] == pytest.approx(awaited)


def test_compare_says_what_changed(tmp_path: Path) -> None:
    make(tmp_path / "a.h5", {"same": [(0, 100)], "slow": [(0, 100)], "fast": [(0, 100)], "gone": [(0, 10)]}, total=1000)
    make(tmp_path / "b.h5", {"same": [(0, 104)], "slow": [(0, 150)], "fast": [(0, 40)], "new": [(0, 30)]}, total=800)
    both = {"baseline_path": "a.h5", "candidate_path": "b.h5"}
    first, few = map(value, ask(tmp_path, ("compare_profiles", both), ("compare_profiles", {**both, "threshold_pct": 1.0, "top_n": 1})))
    assert first["overall"] == {
        "absolute_diff_seconds": pytest.approx(-200e-9), "relative_change_pct": pytest.approx(-20.0), "speedup": pytest.approx(1.25),
        "faster": True,
    }  # fmt: skip
    assert [(row["name"], row["pct"]) for row in first["regions"]["items"]] == [
        ("fast", pytest.approx(-60)), ("slow", pytest.approx(50)), ("new", None), ("gone", pytest.approx(-100)), ("same", pytest.approx(4)),
    ]  # fmt: skip
    assert [row["name"] for row in first["regressions"]] == ["slow"]
    assert [row["name"] for row in first["improvements"]] == ["gone", "fast"]
    assert first["regressions"][0] == {
        "name": "slow", "baseline": pytest.approx(100e-9), "candidate": pytest.approx(150e-9), "delta": pytest.approx(50e-9),
        "pct": pytest.approx(50),
    }  # fmt: skip
    assert (few["num_regressions"], len(few["regressions"])) == (2, 1)
    assert (few["regions"]["returned"], few["regions"]["total"]) == (1, 5)


@pytest.mark.parametrize("backend", ["matplotlib", "plotly"])
def test_plots_are_written(tmp_path: Path, backend: str) -> None:
    for name in ("a.h5", "b.h5"):
        make(tmp_path / name, NESTED)
    answers = ask(
        tmp_path,
        ("plot_profile", {"file_paths": "a.h5", "output_dir": "new/dir", "backend": backend}),
        ("plot_profile", {"file_paths": ["a.h5"], "plot_type": "flame", "backend": backend, "include": ["main"]}),
        ("plot_profile", {"file_paths": ["a.h5", "b.h5"], "plot_type": "durations", "backend": backend, "output_dir": "."}),
    )
    suffix = ".png" if backend == "matplotlib" else ".html"
    first, flame, _ = map(value, answers)
    assert first == {"plot_type": "gantt", "backend": backend, "paths": [f"new/dir/gantt_plot{suffix}"]}
    assert Path(flame["paths"][0]).name == f"flame_chart_plot{suffix}" and Path(flame["paths"][0]).is_file()
    assert {path.name for path in tmp_path.rglob("*_plot*")} == {f"gantt_plot{suffix}", f"durations_plot{suffix}"}


# -- errors --------------------------------------------------------------------------------------------------------------

WRONG = [
    ("inspect_profile", {}, "file_path: Field required"),
    ("inspect_profile", {"file_path": 7}, "file_path: Input should be a valid string"),
    ("inspect_profile", {"file_path": "a.h5", "include": "io"}, "include: Input should be a valid list"),
    ("inspect_profile", {"file_path": "a.h5", "inclued": ["io"]}, "inspect_profile: it has no argument 'inclued', did you mean 'include'?"),
    ("run_profile", {"script_path": "fails.py", "stop": None}, "run_profile: it has no argument 'stop'"),
    ("inspect_profile", {"file_path": "none.h5"}, "none.h5: no such file"),
    ("inspect_profile", {"file_path": "text.h5"}, "text.h5"),
    ("inspect_profile", {"file_path": "."}, ". is a directory"),
    ("inspect_profile", {"file_path": ""}, "is no path"),
    ("inspect_profile", {"file_path": "a\0b"}, "is no path"),
    ("inspect_profile", {"file_path": "a.h5", "sort": "size"}, "sort must be one of start, total"),
    ("inspect_profile", {"file_path": "a.h5", "include": ["("]}, "is not a regular expression"),
    ("inspect_profile", {"file_path": "a.h5", "ranks": [3]}, "no rank 3"),
    ("inspect_profile", {"file_path": "a.h5", "ranks": []}, "no ranks"),
    ("inspect_profile", {"file_path": "a.h5", "top_n": -1}, "top_n must be 0 or more"),
    ("compare_profiles", {"baseline_path": "a.h5", "candidate_path": "none.h5"}, "none.h5: no such file"),
    ("compare_profiles", {"baseline_path": "a.h5", "candidate_path": "a.h5", "metric": "sum"}, "metric must be one of total"),
    ("compare_profiles", {"baseline_path": "a.h5", "candidate_path": "a.h5", "threshold_pct": -1}, "threshold_pct"),
    ("run_profile", {"script_path": "none.py"}, "none.py: no such script"),
    ("run_profile", {"script_path": "fails.py", "timeout_seconds": 0}, "timeout_seconds must be more than 0"),
    ("run_profile", {"script_path": "fails.py", "buffer_limit": 0}, "buffer_limit must be more than 0"),
    ("run_profile", {"script_path": "fails.py", "output_path": "no/dir/x.h5"}, "fails.py"),
    ("run_profile", {"script_path": "fails.py"}, "fails.py: the run failed with exit code 1: ValueError: all wrong; what it recorded is in"),
    ("run_benchmark", {"config_path": "none.toml"}, "none.toml"),
    ("run_benchmark", {"config_path": "wrong.toml"}, "wrong.toml: it has no benchmark.script"),
    ("run_benchmark", {"config_path": "fails.toml"}, "fails.py: a run failed with exit code 1: ValueError: all wrong"),
    ("compare_benchmarks", {"baseline_path": "a.h5", "candidate_path": "none.json"}, "a.h5: it is not JSON"),
    ("plot_profile", {"file_paths": []}, "file_paths names no profile"),
    ("plot_profile", {"file_paths": ["none.h5"]}, "none.h5: no such file"),
    ("plot_profile", {"file_paths": "a.h5", "plot_type": "gant"}, "did you mean 'gantt'?"),
    ("plot_profile", {"file_paths": "a.h5", "backend": "gnuplot"}, "backend must be one of matplotlib"),
    ("plot_profile", {"file_paths": "a.h5", "x_field": "num_nodes"}, "x_field is for speedup"),
    ("plot_profile", {"file_paths": "a.h5", "plot_type": "speedup"}, "two profiles"),
    ("plot_profile", {"file_paths": "a.h5", "include": ["none"]}, "no region matches"),
    ("plot_profile", {"file_paths": "a.h5", "output_dir": "a.h5"}, "a.h5"),
]


def test_every_error_is_one_line_of_a_tool_and_the_server_goes_on(tmp_path: Path) -> None:
    make(tmp_path / "a.h5", NESTED)
    (tmp_path / "text.h5").write_text("no profile")
    (tmp_path / "fails.py").write_text("import scope_profiler as sp\nwith sp.region('r'): pass\nraise ValueError('all wrong')")
    (tmp_path / "wrong.toml").write_text("[benchmark]\n")
    (tmp_path / "fails.toml").write_text("[benchmark]\nscript = 'fails.py'\n")
    answers = ask(tmp_path, *((name, arguments) for name, arguments, _ in WRONG), ("inspect_profile", {"file_path": "a.h5"}))
    for (name, arguments, words), answer in zip(WRONG, answers):
        assert words in error(answer), (name, arguments)
    value(answers[-1])


# -- runs ----------------------------------------------------------------------------------------------------------------


def test_a_script_is_run_and_told_of(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import os, sys, scope_profiler as sp\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    with sp.region('step'): pass\n"
        "print('x' * 3000 + 'end', sys.argv[2:], sys.stdin.read())\n"
        "os.write(1, b'and more')\n"
    )
    run = {"script_path": "app.py", "script_args": ["4", "; ls", "-o"], "output_path": "out.h5"}
    document, again = map(value, ask(tmp_path, ("run_profile", run), ("inspect_profile", {"file_path": "out.h5"})))
    assert [(item["name"], item["calls"]) for item in document["regions"]["items"]] == [("step", 4)]
    assert document["file_path"] == "out.h5"
    assert len(document["stdout_tail"]) == 2000 and "xxend ['; ls', '-o'] \n" in document["stdout_tail"]
    assert {key: document[key] for key in again} == again


def test_a_benchmark_is_run_and_decided(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nwith sp.region('r'): pass\n")
    (tmp_path / "b.toml").write_text("[benchmark]\nscript = 'app.py'\nruns = 2\nwarmups = 0\n[correctness]\ncommand = 'false'\n")
    manifest, compared = map(
        value,
        ask(
            tmp_path,
            ("run_benchmark", {"config_path": "b.toml", "label": "baseline"}),
            ("compare_benchmarks", dict.fromkeys(("baseline_path", "candidate_path"), ".scope-profiler/b/baseline/benchmark.json")),
        ),
    )
    assert manifest["label"] == "baseline" and manifest["correctness"]["passed"] is False
    assert Path(manifest["manifest_path"]).is_file()
    assert compared["decision"] == "reject" and "correctness" in compared["reason"]


SLEEPER = """
import os, subprocess, sys, time
import scope_profiler as sp
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with sp.region("before"): pass
with open("pids.part", "w") as file: file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
time.sleep(600)
"""


def pids_of(directory: Path) -> list[int]:
    assert eventually((directory / "pids").exists, 30)
    return list(map(int, (directory / "pids").read_text().split()))


def test_every_function_is_recorded_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import textwrap\ndef mine(): return textwrap.fill('a b ' * 50)\nmine()\n")
    own, whole = map(value, ask(tmp_path, *(("run_profile", {"script_path": "app.py", "only_user_code": one, "top_n": 0}) for one in (True, False))))
    assert own["regions"]["items"] == []  # the script marks none
    names = [item["name"] for item in whole["regions"]["items"]]
    assert any("mine" in name for name in names) and any("fill" in name for name in names)


def test_the_time_limit_ends_the_run_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SLEEPER)
    (answer,) = ask(tmp_path, ("run_profile", {"script_path": "app.py", "timeout_seconds": 3, "output_path": "out.h5"}))
    told = error(answer)
    assert "app.py: the run took longer than 3 s and was ended; what it recorded is in out.h5." in told
    assert not any(map(is_alive, pids_of(tmp_path)))
    spool = told.rsplit(" ", 1)[1]
    assert sp.load(tmp_path / spool).region_names == ["before"]


def test_a_call_does_not_keep_others_waiting_and_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SLEEPER)
    make(tmp_path / "a.h5", NESTED)

    async def conversation(session: ClientSession) -> tuple[Any, Any]:
        pids: list[int] = []
        async with anyio.create_task_group() as group:
            number = session._request_id
            group.start_soon(slow, session)
            while not (tmp_path / "pids").exists():
                await anyio.sleep(0.05)
            pids += pids_of(tmp_path)
            seen = await session.call_tool("inspect_profile", {"file_path": "a.h5"})
            alive = [is_alive(pid) for pid in pids]
            cancelled = types.CancelledNotification(method="notifications/cancelled", params=types.CancelledNotificationParams(requestId=number))
            await session.send_notification(types.ClientNotification(cancelled))
            while any(map(is_alive, pids)):
                await anyio.sleep(0.05)
        return seen, alive

    async def slow(session: ClientSession) -> None:
        with pytest.raises(McpError, match="cancelled"):
            await session.call_tool("run_profile", {"script_path": "app.py"})

    seen, alive = talk(tmp_path, conversation)
    value(seen)
    assert alive == [True, True]


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_server_ends_what_it_runs(tmp_path: Path, end: signal.Signals | None) -> None:
    (tmp_path / "app.py").write_text(SLEEPER)
    with subprocess.Popen(SERVER, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None and server.stdout is not None
        hello = {"protocolVersion": types.LATEST_PROTOCOL_VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        for message in (
            {"id": 0, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": {"name": "run_profile", "arguments": {"script_path": "app.py"}}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            server.stdin.flush()
        pids = pids_of(tmp_path)
        if end is None:
            server.stdin.close()
        else:
            server.send_signal(end)
        assert eventually(lambda: not any(map(is_alive, pids)), 30)
        assert server.wait(30) == (0 if end is None else -end)


def test_the_tools_need_no_package(tmp_path: Path) -> None:
    """They are functions of the package, too."""
    make(tmp_path / "a.h5", NESTED)
    assert tools.inspect_profile(str(tmp_path / "a.h5"), top_n=1)["regions"]["returned"] == 1
    with pytest.raises(tools.ToolError, match=r"none\.h5: no such file"):
        tools.inspect_profile("none.h5")
