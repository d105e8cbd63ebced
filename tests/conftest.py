"""What every test may ask for."""

import os

import pytest


@pytest.fixture
def scale():
    """``scale(reduced, full)``: how much to do; the full amount under ``./run soak`` (tests marked ``soak``)."""
    return lambda reduced, full: full if os.environ.get("SCOPE_PROFILER_SOAK") else reduced


@pytest.fixture
def sanitizer():
    """The sanitizer that this process runs under, ``"address"`` or ``"thread"``, or None."""
    return os.environ.get("SCOPE_PROFILER_SANITIZER")
