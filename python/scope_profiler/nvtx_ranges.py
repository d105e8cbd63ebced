"""NVTX ranges around the calls of regions, for NVIDIA's Nsight tools."""

from __future__ import annotations

from _thread import get_ident

from .modes import Mode, caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from .line_functions import LineFunctions

__all__ = ["NVTXRanges"]

# inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR: code whose frames can be suspended
_SUSPENDED = 0x20 | 0x80 | 0x200


class NVTXRanges(Mode):
    """NVTX ranges: one for each call.

    NVTX has two kinds. Those that are pushed and popped are drawn on their thread, one in the other, but a pop ends whatever was
    pushed last. Calls in generators and coroutines, which may be suspended while others go on, get the other kind, which is
    started and ended by a number.
    """

    acts = True

    def __init__(self, functions: LineFunctions) -> None:
        try:
            import nvtx
        except ImportError as error:
            raise ImportError(
                f"use_nvtx needs the package nvtx, which cannot be imported ({error}); install it with: "
                "pip install 'scope-profiler[nvtx]'"
            ) from error
        self._push, self._pop = nvtx.push_range, nvtx.pop_range
        self._start, self._end = nvtx.start_range, nvtx.end_range
        self._codes = functions.codes
        self._suspending: dict[str, tuple[int, bool]] = {}
        self._pushed: dict[int, list[_Pushed]] = {}  # by thread

    def enter(self, region: str) -> object:
        """A call begins, and its range."""
        frame = caller()
        codes = self._codes.get(region)
        if (frame is not None and frame.f_code.co_flags & _SUSPENDED) or (codes is not None and self._suspends(region, codes)):
            return self._start(region)
        self._push(region)
        pushed = _Pushed()
        thread = get_ident()
        stack = self._pushed.get(thread)
        if stack is None:
            self._pushed[thread] = [pushed]
        else:
            stack.append(pushed)
        return pushed

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended. A range that is not the last one pushed ends when those above it have."""
        if type(mark) is not _Pushed:
            self._end(mark)
            return False
        mark.over = True
        thread = get_ident()
        stack = self._pushed.get(thread)
        while stack and stack[-1].over:
            stack.pop()
            self._pop()
        if stack is not None and not stack:
            del self._pushed[thread]
        return False

    def _suspends(self, region: str, codes: dict[CodeType, None]) -> bool:
        """Whether a function that the region decorates may be suspended; looked up again when it decorates another."""
        known = self._suspending.get(region)
        if known is None or known[0] != len(codes):
            known = self._suspending[region] = len(codes), any(code.co_flags & _SUSPENDED for code in list(codes))
        return known[1]


class _Pushed:
    """A range that was pushed."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False
