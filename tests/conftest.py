"""What every test may ask for, and which tests are the quick ones."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

# What `./run check` runs: of every room of the program the tests that tell the most in the least time, 60 s of one processor altogether.
# A line is a file, of which slow tests and those that have to run alone are left out, or one test of a file. What no line names runs
# under `./run test` only, so that a new file makes the check no slower until it is written down here; the end of a check says what
# takes longest.
QUICK = {
    "recording": """
        python/test_region.py
        python/test_decorator.py
        python/test_creators.py
        python/test_manager_instrumentation.py
        python/test_manager_lifecycle.py
        python/test_manager_metadata.py
        python/test_manager_session.py
        python/test_manager_settings.py
        python/test_manager_tags.py
        python/test_modes_recursive.py
        python/test_requirements_api.py
        python/test_setting_combinations.py
        python/test_function_tracing.py::test_functions_inside_of_a_region_are_regions
        python/test_function_tracing.py::test_exceptions_end_the_calls_they_leave
        python/test_function_tracing.py::test_threads_that_start_later_are_traced_from_their_first_function
    """,
    "lanes": """
        python/test_asyncio.py
        python/test_fuzz_coroutines.py
        python/test_greenlets.py
        python/test_lane_tables.py
        python/test_task_libraries.py
        python/test_thread_tracking.py
        python/test_trio.py
    """,
    "results": """
        python/test_call_tree.py
        python/test_lazy_load.py
        python/test_merge.py
        python/test_path_summary.py
        python/test_profile_object.py
        python/test_records.py
        python/test_results.py
        python/test_summary.py
    """,
    "files": """
        isolated/test_with_h5py.py
        python/test_native_trace.py
        python/test_profile_io.py
        python/test_read_h5.py
        python/test_write_h5.py
    """,
    "spools": """
        python/test_spool_full.py
        python/test_spool_manager.py
        python/test_spool_recover.py
        python/test_spool_window.py
        python/test_spool_kill.py::test_the_way_of_death_does_not_matter
    """,
    "exports": """
        python/test_export_chrome.py
        python/test_export_folded.py
        python/test_export_json.py
        python/test_export_perfetto.py
        python/test_export_prof.py
        python/test_export_rules.py
        python/test_export_speedscope.py
        python/test_export_svg.py
        python/test_export_tables.py
        python/test_html_report.py
        python/test_plot_timeline.py
    """,
    "command line": """
        python/test_cli.py
        python/test_cli_export.py
        python/test_native_cli.py
        python/test_spool_top.py
        python/test_terminal.py
    """,
    "native programs and ranks": """
        python/test_library.py
        python/test_native_samples.py
        python/test_native_client.py::test_a_module_of_headers_alone_joins_the_run_of_python
        python/test_native_programs.py::test_programs_run_with_either_library
        python/test_native_mpi.py::test_traces_stay_one_a_rank
        python/test_mpi.py::test_without_a_file_rank_0_has_all
        python/test_rank_balance.py
    """,
    "what surrounds it": """
        isolated/test_imports.py
        python/test_catalogue.py
        python/test_gpu_timing.py
        python/test_layers.py
        python/test_manager_launch.py
        python/test_middleware_wsgi.py
        python/test_perf_events.py
        python/test_source_text.py
    """,
}

HERE = Path(__file__).parent

# A background job starts with SIGINT ignored, and its children inherit that: tests that interrupt programs would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def scale() -> Callable[[int, int], int]:
    """``scale(reduced, full)``: how much to do. The full amount under ``./run soak``."""
    full_form = os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0")
    return lambda reduced, full: full if full_form else reduced


# -- the quick tests -----------------------------------------------------------------------------------------------------------


def quick_tests() -> dict[Path, set[str]]:
    """The files that have quick tests, and the names of these; no names are all of a file."""
    files: dict[Path, set[str]] = defaultdict(set)
    for line in " ".join(QUICK.values()).split():
        name, _, test = line.partition("::")
        path = HERE / name
        if not path.exists() or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
            raise pytest.UsageError(f"QUICK in {__file__} has {line}, which is not there")
        files[path].update([test] if test else [])
    return files


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what tests/conftest.py calls quick, and files that are named")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        config.pluginmanager.register(OnlyQuick(), "only quick tests")


PROCESSOR_TIME = "processor time"


def processor_time() -> float:
    """s, of this process and of its children that ended: a busy machine does not change it."""
    return sum(os.times()[:4])


def is_quick(item: pytest.Item) -> bool:
    alone = item.get_closest_marker("uninstrumented") and not item.get_closest_marker("beside")
    return not (alone or item.get_closest_marker("slow"))


class OnlyQuick:
    """Leaves out all other tests, and tells at the end where the time went. Files named on the command line are run whole."""

    def __init__(self) -> None:
        self.files = quick_tests()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Other files are not even imported. (Pytest does not ask about those on the command line.)"""
        return True if collection_path.suffix == ".py" and collection_path not in self.files else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen, others = [], []
        for item in items:
            name = getattr(item, "originalname", item.name)
            quick = is_quick(item) and name in (self.files.get(item.path) or {name})
            (chosen if quick or session.isinitpath(item.path) else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = chosen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.begin = processor_time()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((PROCESSOR_TIME, processor_time() - self.begin))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        seconds: dict[str, float] = defaultdict(float)
        reports = (report for kind in terminalreporter.stats.values() for report in kind if isinstance(report, pytest.TestReport))
        for report in reports:
            seconds[report.nodeid.partition("::")[0]] += dict(report.user_properties).get(PROCESSOR_TIME, 0.0)
        longest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:5]
        shares = ", ".join(f"{Path(path).name} {seconds[path]:.1f}" for path in longest)
        terminalreporter.write_line(f"the tests took {sum(seconds.values()):.0f} s of processors, most of it {shares}")
