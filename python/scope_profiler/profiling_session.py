"""A run for the length of a ``with`` block or of a function's calls."""

from __future__ import annotations

from .tags import ROOT_REGION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeVar

    from ._core import Region
    from .profile_manager import ProfileManager
    from .recording import Recording
    from .results import ProfilingResults

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])

__all__ = ["ProfilingSession"]


class ProfilingSession:
    """What :meth:`ProfileManager.session` returns: a context manager, and a decorator.

    Can be entered again after it was left. As a decorator, each call of the function has a session of its own, which
    covers the body: a coroutine's, generator's or asynchronous generator's too.
    """

    ROOT_REGION_NAME = ROOT_REGION

    def __init__(
        self,
        manager: type[ProfileManager],
        start: dict[str, Any],
        *,
        verbose: bool,
        return_results: bool,
        native_traces: Any = None,
        verbose_line_profiler: bool = False,
    ) -> None:
        self._manager = manager
        self._start = start
        self._verbose = verbose
        self._return_results = return_results
        self._native_traces = native_traces
        self._verbose_line_profiler = verbose_line_profiler
        self._recording: Recording | None = None
        self._root: Generator[None, None, None] | None = None
        self.results: ProfilingResults | None = None
        """The results, once the session is over and if it was asked to return them."""

    def __enter__(self) -> ProfilingSession:
        if self._root is not None:
            raise RuntimeError("this session is open already")
        self.results = None
        self._manager.setup(**self._start)
        state = self._manager._state
        self._recording = state.recording
        if self._recording is not None:
            self._recording.owned_by_session = True
        self._root = _hold(state.recorder.add(ROOT_REGION))
        next(self._root)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        root, self._root = self._root, None
        if root is None:
            raise RuntimeError("this session is not open")
        root.close()
        recording, self._recording = self._recording, None
        try:
            self._finish(recording)
        except BaseException as failure:
            if error is None:
                raise
            attach_failure(error, failure)

    def _finish(self, recording: Recording | None) -> None:
        state = self._manager._state
        if recording is state.recording:
            state.stop()  # first, so that no call is recorded that the collection has not seen
        if recording is not None:
            recording.closed = True
            if recording.inherited or recording.discarded:
                return
            recording.owned_by_session = False
        try:
            results = state.finalize(
                recording,
                verbose=self._verbose,
                return_results=self._return_results,
                native_traces=self._native_traces,
                verbose_line_profiler=self._verbose_line_profiler,
            )
        except BaseException:
            if self._return_results and recording is not None:
                self.results = recording.unwritten
            raise
        self.results = results
        if recording is state.recording:
            state.rejoin()

    def __call__(self, function: Decorated) -> Decorated:
        """Decorate ``function``: each call of it is a session."""
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if not callable(function):
            raise TypeError(f"a session decorates functions, not {function!r}")
        decorated: Decorated = _decorate(self, function)
        return decorated

    def _again(self) -> ProfilingSession:
        return ProfilingSession(
            self._manager,
            self._start,
            verbose=self._verbose,
            return_results=self._return_results,
            native_traces=self._native_traces,
            verbose_line_profiler=self._verbose_line_profiler,
        )


def _hold(region: Region) -> Generator[None, None, None]:
    # The region's own `with` statement: what closes the call is made for it, and works from any thread.
    with region:
        yield


def attach_failure(error: BaseException, failure: BaseException) -> None:
    """``error`` leaves the block as it is; that the profile could not be written is told with it."""
    end = failure
    while end.__context__ is not None and end.__context__ is not error:
        end = end.__context__
    end.__context__ = None  # it was raised while `error` was handled: that would close a circle
    last = error
    while last.__context__ is not None:
        last = last.__context__
    last.__context__ = failure
    if hasattr(error, "add_note"):
        error.add_note(
            f"scope_profiler: the profile of this session could not be written ({type(failure).__name__}: {failure}); "
            "its calls are kept, and finalize() tries again"
        )


def _decorate(session: ProfilingSession, function: Any) -> Any:
    from functools import wraps
    from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

    if iscoroutinefunction(function):

        @wraps(function)
        async def decorated(*args: Any, **kwargs: Any) -> Any:
            with session._again():
                return await function(*args, **kwargs)

    elif isasyncgenfunction(function):

        @wraps(function)
        async def decorated(*args: Any, **kwargs: Any) -> Any:
            with session._again():
                inner = function(*args, **kwargs)
                step = inner.__anext__()
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)

    elif isgeneratorfunction(function):

        @wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with session._again():
                return (yield from function(*args, **kwargs))

    else:

        @wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with session._again():
                return function(*args, **kwargs)

    return decorated
