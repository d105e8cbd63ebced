"""Errors of the results API that the extension does not raise itself."""

from __future__ import annotations

__all__ = ["EventDataUnavailableError"]


class EventDataUnavailableError(RuntimeError):
    """Single calls were asked for, but the profile was read without them (``read_h5_summary``)."""


EventDataUnavailableError.__module__ = "scope_profiler"
