"""``Region`` under the name that this module has always had.

Importing a submodule makes it an attribute of its package, and ``scope_profiler.region`` is a function first of all. So this module
can be called as well, and ``scope_profiler.region("x")`` works whether or not somebody imported the module.
"""

from __future__ import annotations

import sys
from types import ModuleType

from scope_profiler.region_results import Region

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Region"]


def _function(module: ModuleType) -> Any:
    from scope_profiler.profile_manager import ProfileManager

    return ProfileManager.region


# A property, not a method: the region is to remember the line of its caller, so no call may lie between the two.
_CallableModule = type("_CallableModule", (ModuleType,), {"__call__": property(_function)})
sys.modules[__name__].__class__ = _CallableModule
