"""Reading of HDF5 profiles, under the module name that programs import it by: see :mod:`scope_profiler.profile_io`."""

from __future__ import annotations

from scope_profiler._core import CorruptProfileError, SummaryDataUnavailable
from scope_profiler.profile_io import read_h5, read_h5_summary

__all__ = ["CorruptProfileError", "SummaryDataUnavailable", "read_h5", "read_h5_summary"]
