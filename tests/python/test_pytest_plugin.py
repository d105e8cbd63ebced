"""`pytest --scope-profile`, in real runs of pytest and pytest-xdist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import scope_profiler as sp

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SUITE = """
import pytest, time

@pytest.fixture
def slow_fixture():
    time.sleep(0.03)
    yield
    time.sleep(0.02)

@pytest.mark.parametrize("value", ["a::b", "\\u00e9", 3])
def test_passes(slow_fixture, value):
    time.sleep(0.01)

def test_fails():
    assert 0

def test_cannot_start(no_such_fixture):
    pass

@pytest.mark.skip
def test_is_skipped():
    pass
"""

COMMON = ("-p", "scope_profiler.pytest_plugin", "-p", "xdist", "-p", "no:cacheprovider", "-o", "addopts=")
# Of an editable install of this package, whose loader is listed among its files.
EDITABLE = ("-W", "ignore:Module already imported so cannot be rewritten")

MANY = """
import os, pytest, time

@pytest.mark.parametrize("number", range(8))
def test_one(number):
    time.sleep(0.01)
"""


def pytest_in(directory: Path, *arguments: str, code: int | None = 0, **options: object) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, in an interpreter of its own; its exit code must be `code`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the many others of the tests' environment take a second
    environment.update(options.pop("env", {}))  # type: ignore[call-overload]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *COMMON, *arguments, *EDITABLE],
        cwd=directory, capture_output=True, text=True, timeout=120, env=environment, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    if code is not None:
        assert process.returncode == code, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """pytest in the test's directory, whose suite is in test_suite.py."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def start(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        return pytest_in(tmp_path, *arguments, **options)

    return start


def suite(directory: Path, source: str) -> None:
    (directory / "test_suite.py").write_text(source)


def section(process: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of the plugin's section of the output."""
    lines = process.stdout.splitlines()
    [begin] = [place for place, line in enumerate(lines) if re.fullmatch("=+ scope-profiler =+", line)]
    rest = lines[begin + 1 :]
    return rest[: next((place for place, line in enumerate(rest) if line.startswith("=")), len(rest))]


def called(path: Path) -> dict[str, int]:
    """How often each region was called, its prefix left out."""
    counts = {region.name: region.num_calls for region in sp.load(path).get_regions()}
    assert all(name.startswith("pytest::test_suite.py::") for name in counts)
    return {name.removeprefix("pytest::test_suite.py::"): number for name, number in counts.items()}


# -- what is recorded ------------------------------------------------------------------------------------------------------


def test_a_region_for_each_test_also_where_tests_fail(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, SUITE)
    process = run("--scope-profile", code=1)
    profile = tmp_path / "pytest-profile.h5"
    assert called(profile) == {
        "test_passes[a::b]::call": 1, "test_passes[\\xe9]::call": 1, "test_passes[3]::call": 1, "test_fails::call": 1,
    }  # fmt: skip
    results = sp.load(profile)
    assert results.label == "pytest"
    assert 0.01 <= results["pytest::test_suite.py::test_passes[3]::call"].total_duration < 0.03  # without its fixtures
    told = section(process)
    assert told[0].startswith("wrote pytest-profile.h5: 4 tests, 0.")
    assert sorted(line.partition("s  ")[2] for line in told[1:]) == sorted(
        f"test_suite.py::{name.removesuffix('::call')}" for name in called(profile)
    )
    assert not list(tmp_path.glob("*.spool"))


def test_setup_and_teardown_are_recorded_on_request(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, SUITE)
    run("--scope-profile", "--scope-profile-phases=all", "--scope-profile-out", "deep/er/all.h5", code=1)
    profile = tmp_path / "deep/er/all.h5"  # whose directory was not there
    ran = ["test_passes[a::b]", "test_passes[\\xe9]", "test_passes[3]", "test_fails"]
    not_called = ["test_cannot_start", "test_is_skipped"]
    assert called(profile) == {
        **{f"{test}::{phase}": 1 for test in ran for phase in ("setup", "call", "teardown")},
        **{f"{test}::{phase}": 1 for test in not_called for phase in ("setup", "teardown")},
    }
    results = sp.load(profile)
    for phase, least in (("setup", 0.03), ("call", 0.01), ("teardown", 0.02)):
        assert results[f"pytest::test_suite.py::test_passes[3]::{phase}"].total_duration >= least


def test_the_format_is_that_of_the_name(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "def test_it(): pass\n")
    run("--scope-profile", "--scope-profile-out=out.json.gz")
    assert (tmp_path / "out.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert called(tmp_path / "out.json.gz") == {"test_it::call": 1}


@pytest.mark.slow
def test_the_profile_is_written_when_a_run_is_interrupted_or_stopped(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "def test_first(): pass\ndef test_stop(): raise KeyboardInterrupt\ndef test_never(): pass\n")
    run("--scope-profile", code=2)
    assert called(tmp_path / "pytest-profile.h5") == {"test_first::call": 1, "test_stop::call": 1}
    suite(tmp_path, "def test_first(): assert 0\ndef test_never(): pass\n")
    run("--scope-profile", "-x", code=1)
    assert called(tmp_path / "pytest-profile.h5") == {"test_first::call": 1}


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_its_spool(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "import os\ndef test_first(): pass\ndef test_kill(): os.kill(os.getpid(), 9)\n")
    run("--scope-profile", code=-9)
    [spool] = tmp_path.glob("pytest-profile.h5.*.spool")
    assert called(spool) == {"test_first::call": 1, "test_kill::call": 1}
    suite(tmp_path, "def test_next(): pass\n")
    # Told in the section: as a warning it would be a test's, and here an error.
    process = run("--scope-profile", "-W", "error")
    assert [line for line in section(process) if line.startswith("warning: ") and f"recover {spool}" in line]


def test_tests_may_change_the_directory(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "import os\ndef test_it(tmp_path): os.chdir(tmp_path)\n")
    run("--scope-profile", "--scope-profile-out=here.h5")
    assert called(tmp_path / "here.h5") == {"test_it::call": 1}


@pytest.mark.slow
def test_collecting_alone_leaves_the_last_profile(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "def test_it(): pass\n")
    run("--scope-profile")
    run("--scope-profile", "--collect-only")
    assert called(tmp_path / "pytest-profile.h5") == {"test_it::call": 1}


def test_names_that_are_no_text_can_be_regions() -> None:
    from scope_profiler.pytest_recording import _region_name

    assert _region_name("test_\udcff.py::test[\0]", "call") == "pytest::test_\\udcff.py::test[\\x00]::call"


# -- settings --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_in_the_configuration_of_pytest(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, SUITE)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nscope_profile = true\nscope_profile_out = below/ini.h5\nscope_profile_phases = all\n"
        "scope_profile_config = profiling.toml\n"
    )
    (tmp_path / "profiling.toml").write_text('label = "nightly"\n')
    (tmp_path / "below").mkdir()
    process = pytest_in(tmp_path / "below", "..", "-k", "fails", code=1)
    assert section(process)[0].startswith("wrote ini.h5: 1 test, ")  # from where pytest was started
    assert called(tmp_path / "below/ini.h5") == {f"test_fails::{phase}": 1 for phase in ("setup", "call", "teardown")}
    assert sp.load(tmp_path / "below/ini.h5").label == "nightly"
    # The command line goes before it.
    run("-k", "fails", "--scope-profile-out=line.h5", "--scope-profile-phases=call", code=1)
    assert called(tmp_path / "line.h5") == {"test_fails::call": 1}
    os.remove(tmp_path / "line.h5")
    run("-k", "fails", "-o", "scope_profile=false", "--scope-profile-out=line.h5", code=1)
    assert not (tmp_path / "line.h5").exists()


def test_the_settings_file_does_not_say_where_the_profile_goes(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "def test_it(): pass\n")
    (tmp_path / "profiling.toml").write_text(
        '[profiling]\nfile_path = "elsewhere.h5"\ndeactivate_file_output = true\ntrack_threads = true\n'
    )
    run("--scope-profile", "--scope-profile-config=profiling.toml")
    assert called(tmp_path / "pytest-profile.h5") == {"test_it::call": 1}
    assert [thread.name for thread in sp.load(tmp_path / "pytest-profile.h5").threads[0]] == ["MainThread"]
    assert not (tmp_path / "elsewhere.h5").exists()


WRONG = {
    "--scope-profile-config=none.toml": "none.toml",
    "--scope-profile-config=bad.toml": "bad.toml",
    "--scope-profile-config=wrong.toml": "trak_threads",
    "--scope-profile-config=value.toml": "buffer_limit",
    "--scope-profile-out=.": "is a directory",
    "--override-ini=scope_profile_phases=some": "scope_profile_phases is one of call, all, not 'some'",
}


def test_what_is_wrong_is_told_in_one_line_before_a_test_runs(tmp_path: Path) -> None:
    suite(tmp_path, "def test_it(): open('ran', 'w')\n")
    (tmp_path / "bad.toml").write_text("= 3")
    (tmp_path / "wrong.toml").write_text("trak_threads = true")
    (tmp_path / "value.toml").write_text('buffer_limit = "x"')
    # All in one process, which is quicker.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    program = (
        "import pytest, sys\nfor argument in sys.argv[1:]:\n"
        f"    code = pytest.main([*{COMMON}, '--scope-profile', argument, *{EDITABLE}])\n"
        "    print(f'EXIT {int(code)}', file=sys.stderr, flush=True)\n"
    )
    process = subprocess.run([sys.executable, "-c", program, *WRONG], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    *told, rest = process.stderr.split("EXIT 4\n")
    assert len(told) == len(WRONG) and rest == ""
    for text, message in zip(told, WRONG.values()):
        [line] = [line for line in text.splitlines() if line]
        assert line.startswith("ERROR: ") and message in line
    assert not (tmp_path / "ran").exists()


def test_a_profile_that_cannot_be_written_fails_the_run_and_loses_nothing(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "import os\ndef test_it(): os.mkdir('pytest-profile.h5')\n")
    process = run("--scope-profile", code=1)
    assert section(process)[0].startswith(f"error: {tmp_path}/pytest-profile.h5 was not written: ")
    assert "INTERNALERROR" not in process.stdout
    [spool] = tmp_path.glob("*.spool")
    assert called(spool) == {"test_it::call": 1}


def test_profiling_may_be_deactivated(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, "def test_it(): pass\n")
    (tmp_path / "off.toml").write_text("deactivate_profiling = true\n")
    process = run("--scope-profile", "--scope-profile-config=off.toml")
    assert section(process) == ["nothing was recorded: deactivate_profiling is set"]
    assert not (tmp_path / "pytest-profile.h5").exists()


# -- what it does to others ------------------------------------------------------------------------------------------------


def test_pytest_finds_the_plugin_which_costs_nothing_when_it_is_off(tmp_path: Path) -> None:
    suite(
        tmp_path,
        "import json, sys\n"
        "def test_it(): print('LOADED', json.dumps([m for m in sys.modules if m.startswith('scope_profiler')]))\n",
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "scope-profiler-" in process.stdout
    loaded = json.loads(process.stdout.partition("LOADED ")[2].splitlines()[0])
    assert sorted(loaded) == ["scope_profiler", "scope_profiler.pytest_plugin"]


def test_suites_that_use_the_default_manager_see_it_untouched(tmp_path: Path, run: Run) -> None:
    suite(
        tmp_path,
        """
import scope_profiler as sp

def test_nothing_is_set_up():
    assert not sp.is_configured() and not sp.is_active() and sp.registered_regions() == () and sp.recorded_regions() == ()

def test_a_session():
    with sp.session(output="inner.h5", verbose=False, return_results=True) as run:
        with sp.region("work"):
            pass
    assert run.results.region_names == ["scope_profiler.session", "work"]

def test_setup_with_threads_and_reset():
    import threading
    sp.setup(output=None, track_async=True)
    threads = [threading.Thread(target=sp.profile("body")(lambda: None)) for _ in range(3)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert sp.finalize(verbose=False, return_results=True)["body"].num_calls == 3
    sp.reset()

def test_two_managers():
    manager = sp.ProfileManager()
    manager.setup(output=None)
    with manager.region("own"):
        pass
    assert manager.finalize(verbose=False, return_results=True).region_names == ["own"]
""",
    )
    run("--scope-profile", "--scope-profile-phases=all", "-W", "error")
    assert len(called(tmp_path / "pytest-profile.h5")) == 12
    assert sp.load(tmp_path / "inner.h5").region_names == ["scope_profiler.session", "work"]


@pytest.mark.slow
def test_the_tests_of_this_package_pass_under_it(tmp_path: Path) -> None:
    here = Path(__file__).parent
    tests = [str(here / f"test_manager_{name}.py") for name in ("lifecycle", "session", "instrumentation")]
    process = pytest_in(here.parents[1], "-q", "-m", "not uninstrumented", "-p", "timeout", "--import-mode=importlib", "--scope-profile", f"--scope-profile-out={tmp_path}/own.h5", *tests)
    [passed] = re.findall(r"(\d+) passed", process.stdout)
    results = sp.load(tmp_path / "own.h5")
    assert sum(region.num_calls for region in results.get_regions()) == int(passed) > 50


# -- pytest-xdist ----------------------------------------------------------------------------------------------------------


def workers(path: Path) -> dict[str, set[str]]:
    """The tests that each worker ran."""
    results = sp.load(path)
    ran: dict[str, set[str]] = {process.name: set() for process in results.processes.values()}
    for region in results.get_regions():
        for rank in region.ranks:
            ran[results.processes[rank].name].add(region.name.removeprefix("pytest::test_suite.py::").removesuffix("::call"))
    return ran


@pytest.mark.slow
def test_workers_write_files_of_their_own_which_are_merged(tmp_path: Path, run: Run) -> None:
    suite(
        tmp_path,
        MANY + "\n@pytest.fixture(autouse=True)\ndef note(request, worker_id):\n    yield\n"
        "    open(f'ran-{worker_id}', 'a').write(request.node.name + '\\n')\n",
    )
    process = run("--scope-profile", "-n2", "--scope-profile-out=merged.h5")
    assert section(process)[0].startswith("wrote merged.h5: 8 tests by 2 workers, 0.")
    expected = {path.name.removeprefix("ran-"): set(path.read_text().split()) for path in tmp_path.glob("ran-*")}
    assert sorted(expected) == ["gw0", "gw1"] and sum(map(len, expected.values())) == 8
    assert workers(tmp_path / "merged.h5") == expected
    results = sp.load(tmp_path / "merged.h5")
    assert results.label == "pytest" and results.num_ranks == 2
    assert all(region.num_calls == 1 and region.total_duration >= 0.01 for region in results.get_regions())
    assert not list(tmp_path.glob("*.workers"))


@pytest.mark.slow
def test_workers_get_all_settings(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, MANY)
    (tmp_path / "pytest.ini").write_text("[pytest]\nscope_profile = true\nscope_profile_phases = all\n")
    (tmp_path / "profiling.toml").write_text('track_threads = true\nlabel = "mine"\n')
    run("-n2", "--scope-profile-config=profiling.toml")
    results = sp.load(tmp_path / "pytest-profile.h5")
    assert results.label == "mine"
    assert len(results.region_names) == 24
    assert {rank: [thread.name for thread in threads if thread.name == "MainThread"] for rank, threads in results.threads.items()} == {
        0: ["MainThread"], 1: ["MainThread"],
    }  # fmt: skip


@pytest.mark.slow
def test_what_a_crashed_worker_recorded_is_recovered(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, MANY + "\ndef test_crash(): os.kill(os.getpid(), 9)\n")
    process = run("--scope-profile", "-n1", "--dist=load", code=1)
    ran = workers(tmp_path / "pytest-profile.h5")
    assert ran["gw0"] == {f"test_one[{number}]" for number in range(8)} | {"test_crash"}
    crash = sp.load(tmp_path / "pytest-profile.h5")["pytest::test_suite.py::test_crash::call"]
    assert crash[0].event_metadata == ({"open": True},)
    assert "gw0 crashed: what it had recorded was recovered" in section(process)
    assert not list(tmp_path.glob("*.workers")) and not list(tmp_path.glob("*.spool"))


@pytest.mark.slow
def test_a_worker_that_does_not_see_the_directory_sends_its_file(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, MANY)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_configure(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        config.workerinput['scope_profile']['directory'] = '/nowhere/else'\n"
    )
    run("--scope-profile", "-n2")
    ran = workers(tmp_path / "pytest-profile.h5")
    assert sorted(ran) == ["gw0", "gw1"] and sorted(set().union(*ran.values())) == [f"test_one[{number}]" for number in range(8)]


@pytest.mark.slow
def test_no_workers_no_merging(tmp_path: Path, run: Run) -> None:
    suite(tmp_path, MANY)
    run("--scope-profile", "-n0")
    assert len(called(tmp_path / "pytest-profile.h5")) == 8
    os.remove(tmp_path / "pytest-profile.h5")
    run("-n1")  # nothing is asked for
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"pytest.ini", "test_suite.py"}
