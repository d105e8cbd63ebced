"""NVTX ranges around the calls of regions, for NVIDIA's Nsight tools."""

from __future__ import annotations

from .modes import Mode, caller

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        self._functions = functions
        self._pushed: dict[int, list[_Pushed]] = {}  # by thread

    def enter(self, region: str) -> object:
        """A call begins, and its range."""
        frame = caller()
        if self._may_be_suspended(region, frame.f_code.co_flags if frame is not None else 0):
            return self._start(region)
        thread = _thread()
        self._push(region)
        pushed = _Pushed(thread)
        self._pushed.setdefault(thread, []).append(pushed)
        return pushed

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended. A range that is not the last one pushed ends when those above it have."""
        if not isinstance(mark, _Pushed):
            self._end(mark)
            return False
        mark.over = True
        thread = _thread()
        stack = self._pushed.get(thread, [])
        while stack and stack[-1].over:
            stack.pop()
            self._pop()
        if not stack:
            self._pushed.pop(thread, None)
        return False

    def _may_be_suspended(self, region: str, flags: int) -> bool:
        codes = self._functions.codes.get(region, ())
        return bool(flags & _SUSPENDED) or any(code.co_flags & _SUSPENDED for code in codes)


class _Pushed:
    """A range that was pushed on a thread."""

    __slots__ = ("over", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.over = False


def _thread() -> int:
    from _thread import get_ident

    return get_ident()
