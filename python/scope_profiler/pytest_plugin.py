"""The pytest plugin: ``pytest --scope-profile`` records each test as a region.

pytest imports this module in every run of an environment that has the package, so there are only the options here. What
records is in :mod:`scope_profiler.pytest_recording`, and is imported when it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_configure"]

PHASES = ("call", "all")
DEFAULT_OUTPUT = "pytest-profile.h5"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and settings of the same names in pytest's configuration."""
    group = parser.getgroup("scope-profiler")
    group.addoption("--scope-profile", action="store_true", default=None, help="record the tests as regions with scope-profiler")
    group.addoption(
        "--scope-profile-out", metavar="PATH", default=None,
        help=f"profile to write (default: {DEFAULT_OUTPUT}); .json, .json.gz and .html are written in these formats",
    )  # fmt: skip
    group.addoption("--scope-profile-config", metavar="FILE", default=None, help="TOML file with settings of the run")
    group.addoption(
        "--scope-profile-phases", choices=PHASES, default=None,
        help="record the test alone, or its setup and teardown too (default: call)",
    )  # fmt: skip
    parser.addini("scope_profile", "record the tests as regions, as --scope-profile does", type="bool", default=False)
    parser.addini("scope_profile_out", "as --scope-profile-out, from the directory of this file", type="string", default="")
    parser.addini("scope_profile_config", "as --scope-profile-config, from the directory of this file", type="string", default="")
    parser.addini("scope_profile_phases", "as --scope-profile-phases", type="string", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register what records, if it is asked for."""
    wanted = config.getoption("scope_profile")
    if wanted is None:
        wanted = config.getini("scope_profile")
    if wanted and not config.getoption("collectonly", False):
        from scope_profiler.pytest_recording import make_plugin

        plugin = make_plugin(config)
        if plugin is not None:
            config.pluginmanager.register(plugin, "scope_profiler_recording")
