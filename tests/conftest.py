"""What every test may ask for."""

import os

import pytest


@pytest.fixture(scope="session")
def scale():
    """``scale(reduced, full)``: how much to do. The full amount under ``./run soak``."""
    full_form = os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0")
    return lambda reduced, full: full if full_form else reduced
