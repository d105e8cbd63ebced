"""Recording only some steps of a loop."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .manager_state import ManagerState

__all__ = ["Sampler"]


class Sampler:
    """What ``sample_every()`` returns: entering it gives the function that marks a step."""

    __slots__ = ("_every", "_start", "_state", "_was_paused")

    def __init__(self, state: ManagerState, every: int, start: int) -> None:
        self._state = state
        self._every = every
        self._start = start
        self._was_paused = False

    def __enter__(self) -> Callable[[int], AbstractContextManager[bool]]:
        self._was_paused = self._state.paused
        return self._step

    def __exit__(self, *exc: object) -> None:
        if self._state.paused != self._was_paused:
            (self._state.pause if self._was_paused else self._state.resume)()

    def _step(self, step: int) -> _Step:
        if isinstance(step, bool) or not isinstance(step, int):
            raise TypeError(f"a step must be an integer, got {step!r}")
        selected = step >= self._start and (step - self._start) % self._every == 0
        return _Step(self._state, selected)


class _Step:
    """One step of a :class:`Sampler`; records if it is selected."""

    __slots__ = ("_selected", "_state")

    def __init__(self, state: ManagerState, selected: bool) -> None:
        self._state = state
        self._selected = selected

    def __enter__(self) -> bool:
        if self._state.configured:
            (self._state.resume if self._selected else self._state.pause)()
        return self._selected

    def __exit__(self, *exc: object) -> None:
        return None
