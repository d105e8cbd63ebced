"""Where metadata of calls comes from: scopes, and decorated functions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .manager_state import ManagerState
    from .recording import Recording

__all__ = ["Annotator", "MetadataScope"]


class MetadataScope:
    """What ``metadata()`` returns."""

    __slots__ = ("_entered", "_state", "_values")

    def __init__(self, state: ManagerState, values: dict[str, Any]) -> None:
        self._state = state
        self._values = values
        self._entered: list[tuple[Recording | None, Any, Any]] = []

    def __enter__(self) -> dict[str, Any]:
        state = self._state
        recording, scope = state.recording if state.listening else None, None
        if recording is not None and recording.config.aggregation_mode:
            raise RuntimeError("metadata() needs single calls, which a run with aggregation_mode=True does not keep")
        if state.scope_values is None:
            from contextvars import ContextVar

            state.scope_values = ContextVar("scope_profiler_metadata", default=None)
        merged = {**(state.scope_values.get() or {}), **self._values}
        token = state.scope_values.set(merged)
        if recording is not None:
            state.annotate()
            scope = recording.events.open(merged)
        self._entered.append((recording, scope, token))
        return merged

    def __exit__(self, *exc: object) -> None:
        recording, scope, token = self._entered.pop()
        if recording is not None:
            recording.events.close(scope)
        try:
            self._state.scope_values.reset(token)
        except ValueError:
            pass  # left in another context than entered, as a generator that its event loop closes


class Annotator:
    """Adds ``metadata=`` and the outcome to the calls of one decorated function.

    Called with the arguments of each call before it runs; what it returns is called when the call is over.
    """

    __slots__ = ("_constant", "_outcome", "_state", "_values")

    def __init__(self, state: ManagerState, values: Any, outcome: bool) -> None:
        self._values = values if callable(values) else None
        self._constant = {} if values is None or callable(values) else _mapping(values)
        self._outcome = outcome
        self._state = state
        state.annotate()

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[[str, int, int, int, BaseException | None], None]:
        recording = self._state.recording
        values = self._constant if self._values is None else _mapping(self._values(*args, **kwargs))
        outcome = self._outcome

        def finish(region: str, lane: int, start: int, end: int, exception: BaseException | None) -> None:
            if recording is None or recording.config.aggregation_mode:
                return  # sums have no single calls that could have values
            if values:
                recording.events.add_scope(lane, start, end, values)
            if outcome:
                recording.events.add_outcome(region, lane, start, _outcome(exception))

        return finish


def _mapping(values: Any) -> dict[str, Any]:
    from collections.abc import Mapping

    if not isinstance(values, Mapping):
        raise TypeError(f"metadata must be a mapping or a callable that returns one, got {values!r}")
    return dict(values)


_OK = {"status": "ok"}


def _outcome(exception: BaseException | None) -> dict[str, Any]:
    return _OK if exception is None else {"status": "error", "exception": type(exception).__name__}
