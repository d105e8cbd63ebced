"""What ``pytest --scope-profile`` does: a region for each phase of a test, in a manager that the tests do not see.

Under pytest-xdist the tests run in workers. Each worker records into a file of its own, in a directory that the controller
makes beside the output; at the end the controller merges them, each worker as a process of its own. A worker that crashed
left a spool there, and is merged from it. A worker on another host, which does not see the directory, sends its file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scope_profiler.profile_manager import ProfileManager
from scope_profiler.pytest_plugin import DEFAULT_OUTPUT, PHASES

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["make_plugin"]

LABEL = "pytest"
KEY = "scope_profile"  # of what a controller tells its workers, and they tell it
SLOWEST = 5  # tests that are named at the end


class Wishes(NamedTuple):
    """What the user asked for: paths are absolute, settings are checked."""

    output: str
    settings: dict[str, Any]
    phases: str


def make_plugin(config: pytest.Config) -> Recorder | Controller | None:
    """The plugin for this process: a worker of pytest-xdist records for its controller. UsageError for bad options."""
    if hasattr(config, "workerinput"):
        told = config.workerinput.get(KEY)
        return None if told is None else Worker(config, told)
    wishes = _wishes(config)
    return Controller(config, wishes) if _distributes(config) else Recorder(config, wishes)


def _distributes(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("xdist") and config.getoption("dist", "no") != "no"


def _wishes(config: pytest.Config) -> Wishes:
    output = _path(config, "scope_profile_out") or str(config.invocation_params.dir / DEFAULT_OUTPUT)
    phases = config.getoption("scope_profile_phases") or config.getini("scope_profile_phases") or PHASES[0]
    if phases not in PHASES:
        raise pytest.UsageError(f"scope_profile_phases is one of {', '.join(PHASES)}, not {phases!r}")
    config_file = _path(config, "scope_profile_config")
    with _usage_errors():
        settings = _settings(config_file)
        from scope_profiler.profile_config import ProfilingConfig

        ProfilingConfig(output, **settings)
        if os.path.isdir(output):
            raise ValueError(f"--scope-profile-out: {output} is a directory")
        directory = os.path.dirname(output)
        os.makedirs(directory, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise ValueError(f"--scope-profile-out: nothing can be written to {directory}")
    return Wishes(output, settings, phases)


def _path(config: pytest.Config, name: str) -> str:
    """An option's path from where pytest was started, a setting's from its file; tests may change the directory later."""
    given = config.getoption(name)
    if given:
        return os.path.join(config.invocation_params.dir, given)
    written = config.getini(name)
    return os.path.join(config.inipath.parent if config.inipath else config.rootpath, written) if written else ""


def _settings(config_file: str) -> dict[str, Any]:
    """Settings of the run; where the profile goes is not the file's to say."""
    from scope_profiler.profile_config import load_profiling_config

    settings = load_profiling_config(config_file) if config_file else {}
    for name in ("file_path", "deactivate_file_output"):
        settings.pop(name, None)
    settings.setdefault("label", LABEL)
    return settings


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise pytest.UsageError(f"--scope-profile: {' '.join(str(error).split())}") from error


class _Session:
    """A run of a private manager, and what there is to tell of it. Warnings are kept: they would count as the tests' own."""

    def __init__(self, output: str, settings: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self.manager = ProfileManager()
        with self.noting():
            self.run = self.manager.setup(output=output, **settings)
        self.region = self.manager.region

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep warnings for the end."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self.notes += [f"warning: {warning.message}" for warning in caught]

    def finish(self) -> ProfilingResults | None:
        """Stop, and write the file; as ``finalize()`` otherwise."""
        with self.noting():
            return self.manager._state.finish(verbose=False, return_results=True)


def _region_name(nodeid: str, phase: str) -> str:
    """Names of files need not be text."""
    return f"pytest::{nodeid}::{phase}".replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


class Recorder:
    """Records the tests that run in this process."""

    def __init__(self, config: pytest.Config, wishes: Wishes) -> None:
        self._config = config
        self._wishes = wishes
        self._session: _Session | None = None
        self._report: list[str] = []

    # The session begins before the tests are collected, so that whatever is wrong is told at once.
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Begin the run."""
        with _usage_errors():
            self._session = _Session(self._wishes.output, self._wishes.settings)

    @contextmanager
    def _recorded(self, item: pytest.Item, phase: str) -> Iterator[None]:
        session = self._session
        if session is None or (phase != "call" and self._wishes.phases != "all"):
            yield
            return
        with session.region(_region_name(item.nodeid, phase)):
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """A test's fixtures."""
        with self._recorded(item, "setup"):
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """The test itself."""
        with self._recorded(item, "call"):
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """The end of its fixtures."""
        with self._recorded(item, "teardown"):
            yield

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the profile, however the tests went."""
        recorded, self._session = self._session, None
        if recorded is None:
            return
        try:
            results = recorded.finish()
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            self._report = _failure(session, self._wishes.output, error)
        else:
            written = recorded.run._recording.files if recorded.run._recording is not None else []
            self._report = _told(self._config, written[-1] if written else None, results)
        self._report += recorded.notes

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where the profile is, and which tests took longest."""
        _print(terminalreporter, self._report)


class Worker(Recorder):
    """Records the tests of one worker of pytest-xdist, for the controller's file."""

    def __init__(self, config: pytest.Config, told: dict[str, Any]) -> None:
        directory = told["directory"]
        self._temporary = ""
        if not os.path.isdir(directory):  # the controller is on another host
            import tempfile

            directory = self._temporary = tempfile.mkdtemp(prefix="scope_profiler-")
        self._name = str(config.workerinput["workerid"])  # type: ignore[attr-defined]
        output = os.path.join(directory, f"{self._name}.h5")
        # The spool is what is left of a worker that crashes.
        settings = {**told["settings"], "spool": True, "checkpoint": "replace"}
        super().__init__(config, Wishes(output, settings, told["phases"]))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write this worker's file; what there is to tell is told by the controller."""
        super().pytest_sessionfinish(session)
        answer: dict[str, Any] = {"notes": [note for note in self._report if note.startswith("warning: ")]}
        if self._temporary:
            import shutil

            if os.path.exists(self._wishes.output):
                with open(self._wishes.output, "rb") as file:
                    answer["file"] = file.read()
            shutil.rmtree(self._temporary, ignore_errors=True)
        session.config.workeroutput[KEY] = answer  # type: ignore[attr-defined]


class Controller:
    """Has the workers of pytest-xdist record, and puts what they recorded into one profile."""

    def __init__(self, config: pytest.Config, wishes: Wishes) -> None:
        self._config = config
        self._wishes = wishes
        self._directory = ""
        self._report: list[str] = []
        self._notes: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker, before it starts, what to record and where to."""
        if not self._directory:
            import tempfile

            place, name = os.path.split(self._wishes.output)
            with _usage_errors():
                self._directory = tempfile.mkdtemp(prefix=f"{name}.", suffix=".workers", dir=place)
        node.workerinput[KEY] = {
            "directory": self._directory, "settings": self._wishes.settings, "phases": self._wishes.phases,
        }  # fmt: skip

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker has to say at its end; one that crashed says nothing."""
        told = (getattr(node, "workeroutput", None) or {}).get(KEY, {})
        name = node.gateway.id
        self._notes += [f"{name}: {note}" for note in told.get("notes", ())]
        if "file" in told:
            with open(os.path.join(self._directory, f"{name}.h5"), "wb") as file:
                file.write(told["file"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Merge what the workers recorded."""
        if not self._directory:
            return
        try:
            self._report = self._merge()
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            self._report = _failure(session, self._wishes.output, error)
            self._report.append(f"what the workers recorded is in {self._directory}, for scope-profiler merge")
        else:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)
        self._report += self._notes

    def _merge(self) -> list[str]:
        from scope_profiler.processes import stack
        from scope_profiler.profile_io import load, write_profile

        runs, names, recovered = [], [], []
        for entry in sorted(os.listdir(self._directory), key=_age):
            try:
                run = load(os.path.join(self._directory, entry))
            except (OSError, ValueError):
                if entry.endswith(".spool"):
                    continue  # of a worker that crashed before there was anything in it
                raise
            worker = entry.partition(".")[0]
            if entry.endswith(".spool"):
                recovered.append(worker)
            runs.append(run)
            names.append(worker)
        if not runs:
            return ["no worker recorded a test: no profile was written"]
        results = stack(runs, names)
        results.label = self._wishes.settings["label"]
        results.metadata.pop("process_name", None)
        write_profile(results, self._wishes.output)
        told = _told(self._config, self._wishes.output, results, len(set(names)))
        return told + [f"{worker} crashed: what it had recorded was recovered" for worker in recovered]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where the profile is, and which tests took longest."""
        _print(terminalreporter, self._report)


def _age(entry: str) -> tuple[int, str]:
    """Workers are called gw0, gw1 ..., and new ones get higher numbers."""
    digits = "".join(filter(str.isdigit, entry.partition(".")[0]))
    return int(digits or 0), entry


def _failure(session: pytest.Session, output: str, error: BaseException) -> list[str]:
    """What to tell; a profile that was asked for and is not there makes the run fail."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return [f"error: {output} was not written: {' '.join(str(error).split()) or type(error).__name__}"]


def _told(config: pytest.Config, path: str | None, results: ProfilingResults | None, workers: int = 0) -> list[str]:
    if path is None or results is None:
        return ["nothing was recorded: deactivate_profiling is set"]
    totals: dict[str, float] = {}
    calls = 0
    for region in results.get_regions():
        nodeid = region.name.removeprefix("pytest::").rpartition("::")[0]
        totals[nodeid] = totals.get(nodeid, 0.0) + region.total_duration
        calls += region.num_calls
    shown = os.path.relpath(path, config.invocation_params.dir)
    by = f" by {workers} {'worker' if workers == 1 else 'workers'}" if workers else ""
    lines = [f"wrote {shown}: {len(totals)} {'test' if len(totals) == 1 else 'tests'}{by}, {sum(totals.values()):.3f} s"]
    slowest = sorted(totals, key=lambda nodeid: totals[nodeid], reverse=True)[:SLOWEST]
    return lines + [f"{totals[nodeid]:10.3f} s  {nodeid}" for nodeid in slowest]


def _print(reporter: pytest.TerminalReporter, lines: list[str]) -> None:
    if not lines:
        return
    from scope_profiler.cli.terminal import printable

    reporter.write_sep("=", "scope-profiler")
    for line in lines:
        reporter.write_line(printable(line), red=line.startswith("error: "), yellow="warning: " in line)
