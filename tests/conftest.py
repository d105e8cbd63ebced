"""What every test may ask for."""

import os
import signal

import pytest

# A background job starts with SIGINT ignored, and its children inherit that: tests that interrupt programs would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def scale():
    """``scale(reduced, full)``: how much to do. The full amount under ``./run soak``."""
    full_form = os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0")
    return lambda reduced, full: full if full_form else reduced
