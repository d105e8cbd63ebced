"""What the tests share: the scale of the long ones, and a manager that is clean before and after."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpi_launch import Launcher
from native_code import Library


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether the long proofs run in full (`./run soak`), not in the reduced form of the normal tests."""
    return os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0")


@pytest.fixture(scope="session")
def native_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The C library that SCOPE_PROFILER_C_BUILD names a build of, installed below a directory of its own."""
    return Library.install(tmp_path_factory.mktemp("staging"))


@pytest.fixture(scope="module", params=[pytest.param("openmpi", marks=pytest.mark.slow), "mpich"])
def mpi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    """What starts ranks: once under each MPI."""
    pytest.importorskip("mpi4py")
    launcher = Launcher(request.param, tmp_path_factory.mktemp(request.param))
    if launcher.missing:
        pytest.skip(f"{launcher.missing} is not installed")
    return launcher


@pytest.fixture(scope="session")
def line_profiler() -> None:
    """Skips without the package, and does not import it: that is left to the mode, which first says how it is to count."""
    if importlib.util.find_spec("line_profiler") is None:
        pytest.skip("line_profiler is not installed")


@pytest.fixture
def clean_manager() -> Iterator[None]:
    """The default manager, not configured before the test and not after it."""
    import scope_profiler as sp

    sp.reset()
    yield
    sp.reset()


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program of its own in an interpreter of its own, in the test's directory: python(source, *arguments, **options)."""

    def run(source: str, *arguments: str, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
        options.setdefault("timeout", 240)
        process = subprocess.run(
            [sys.executable, "-c", source, *arguments], cwd=tmp_path, capture_output=True, text=True, **options
        )  # type: ignore[call-overload]
        if check:
            assert process.returncode == 0, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
        return process

    return run


@pytest.fixture
def pm() -> Iterator[object]:
    """A manager that nothing else uses."""
    import warnings

    import scope_profiler as sp

    manager = sp.ProfileManager()
    yield manager
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # calls that a test did not care to report
        manager.reset()


@pytest.fixture
def clock() -> Iterator[Callable[[int], int]]:
    """Times stand still until the test moves them on: ``clock(ns)``."""
    import gc

    from scope_profiler import _core

    gc.collect()  # a run that a test left in a cycle is still open
    _core._manual_clock(1_000_000)
    yield _core._advance_clock
    gc.collect()
    _core._manual_clock(None)


@pytest.fixture
def default() -> Iterator[object]:
    """The package, with its default manager clean before and after."""
    import warnings

    import scope_profiler as sp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sp.reset()
    yield sp
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sp.reset()
