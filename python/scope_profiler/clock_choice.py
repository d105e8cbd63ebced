"""Which clock the runs of this process are measured by."""

from __future__ import annotations

import os

from . import _core

VARIABLE = "SCOPE_PROFILER_CLOCK"


def choose_clock(setting: str) -> None:
    """Choose the clock by the setting, or by the environment where the setting is ``"auto"``.

    ``"tsc"`` is the processor's counter, ``"monotonic"`` the kernel's clock; ``"auto"`` takes the counter where the kernel's clock
    uses it as well. The first run of a process decides. ValueError: there is no such clock, or the process has another already.
    """
    name = setting
    if setting == "auto":
        from .settings import CLOCKS

        name = os.environ.get(VARIABLE, "").strip().lower() or "auto"
        if name not in CLOCKS:
            raise ValueError(f"{VARIABLE} must be one of {', '.join(map(repr, CLOCKS))}, got {name!r}")
    if name != "auto":
        _core.choose_clock(name)
