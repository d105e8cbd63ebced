"""Managers: what a program calls to mark regions, to start and end a run, and to get at its results.

All state of a manager lives in one :class:`_State`. ``ProfileManager`` itself is the default manager: its methods are class
methods. ``ProfileManager()`` makes a subclass with a state of its own, so that an instance has the same methods and shares
nothing with the default manager but the registered opt-in tags.

``region`` is the recorder's own C method, on the class and on instances: a call of it runs no Python code.
"""

from __future__ import annotations

import os

from . import _core
from .profile_config import ProfilingConfig, merge_settings
from .recording import Recording, warn_dropped
from .settings import UNSET, resolve_output, unknown_settings
from .tags import ROOT_REGION, TagRules, register_opt_in_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from subprocess import CompletedProcess
    from types import ModuleType
    from typing import Any, ClassVar, TypeVar, overload

    from typing_extensions import Unpack

    from ._core import Region
    from .options import ProfilingOptions, SetupOptions
    from .profiling_session import ProfilingSession
    from .results import ProfilingResults

    Target = TypeVar("Target", bound=Callable[..., Any])

__all__ = ["ProfileManager", "ProfilingRun", "RegionFactory", "RegionHandle"]

INACTIVE, ACTIVE, FINALIZED = "inactive", "active", "finalized"


class _State:
    """One manager: its recorder, the current run, and what outlives a run."""

    def __init__(self) -> None:
        self.recorder = _core.Recorder()
        self.config: ProfilingConfig | None = None
        self.configured = False
        self.phase = INACTIVE
        self.recording: Recording | None = None
        self.listening = False  # the recorder is open: regions record, unless paused
        self.rules: TagRules | None = None
        self.definitions: dict[str, tuple[RegionHandle, tuple[Any, ...]]] = {}
        self.last_results: ProfilingResults | None = None
        self.at_exit: Callable[[], None] | None = None
        self.kept: dict[str, Any] = {}  # weak references to the regions of decorated functions and definitions
        self.annotates = False  # some function or scope adds metadata: runs keep the lane of every call
        self.scope_values: Any = None  # ContextVar of the innermost metadata() scope's values; made at first use
        _states.append(_weak(self))

    # -- runs ----------------------------------------------------------------------------------------------------------

    def start(self, config: ProfilingConfig, region_tags: Iterable[str] | None = None) -> None:
        """Begin a run, ending the one before."""
        rules = TagRules(config.enable_tags, region_tags)
        self.abandon()
        self.config = config
        self.rules = rules
        self.last_results = None
        self.recording = None
        config.paused = False
        self.listening = not config.deactivate_profiling
        if self.listening:
            run = self.recorder.open(
                track_threads=config.track_threads,
                track_async=config.track_async,
                enabled=rules.filter(),
                buffer_limit=config.buffer_limit,
                capture_source=config.capture_region_source,
                source_path=_source_path(config.metadata_detail),
            )
            run.keep_lanes = self.annotates
            config.track(self.recorder, run)
            self.recording = Recording(run, config)
        else:
            self.recorder.forget()
        self._adopt_kept()
        self.configured = True
        self.phase = ACTIVE

    def keep(self, region: Region) -> None:
        """A region that is to be known in later runs too, for as long as something holds it."""
        from weakref import ref

        name = region.region_name

        def forget(reference: Any) -> None:
            if self.kept.get(name) is reference:
                del self.kept[name]

        self.kept[name] = ref(region, forget)

    def _adopt_kept(self) -> None:
        for reference in list(self.kept.values()):
            region = reference()
            if region is not None:
                self.recorder.adopt(region)

    def annotate(self) -> None:
        """Metadata is used from here on."""
        if not self.annotates:
            self.annotates = True
            if self.recording is not None:
                self.recording.run.keep_lanes = True

    def abandon(self) -> None:
        """The current run is about to be replaced or forgotten: say so if calls go with it."""
        self.cancel_at_exit()
        recording = self.recording
        if recording is None or recording.inherited or recording.owned_by_session:
            return  # the parent, or the session at its exit, will report them
        warn_dropped(recording.unreported())

    def stop(self) -> None:
        """Regions record nothing from now on; what they recorded can still be collected."""
        self.recorder.close()
        self.listening = False
        if self.recording is not None:
            self.recording.closed = True

    def must_finish_first(self) -> bool:
        """Whether a run is active that a new one would have to replace."""
        if self.phase != ACTIVE or (self.config is not None and self.config.deactivate_profiling):
            return False
        return self.recording is None or not self.recording.inherited

    def forget(self) -> None:
        """Back to before the first setup(). Decorators and definitions stay."""
        recording = self.recording
        self.abandon()
        if recording is not None:
            if recording.owned_by_session and not recording.inherited:
                warn_dropped(recording.unreported())
            recording.discarded = True
        self.recorder.forget()
        self.config = None
        self.configured = self.listening = False
        self.phase = INACTIVE
        self.recording = None
        self.rules = None
        self.last_results = None

    def finalize(self, recording: Recording | None, *, verbose: bool, return_results: bool) -> ProfilingResults | None:
        """Report ``recording``; None is a manager with nothing to report."""
        if recording is self.recording:
            self.cancel_at_exit()
            # Not active any more even if it fails: a new run may replace this one, and this one can be tried again.
            self.phase = FINALIZED if self.configured else self.phase
        if recording is None:
            if not return_results:
                return None
            self.last_results = _empty_results(self.config)
            return self.last_results
        try:
            results = recording.finalize(need_results=verbose or return_results)
        except BaseException:
            if return_results and recording.unwritten is not None:
                self.last_results = recording.unwritten
            raise
        if return_results:
            self.last_results = results
        if verbose and results is not None:
            results.print_summary(suppress_notes=not recording.config.writes_file)
        return results if return_results else None

    # -- at exit -------------------------------------------------------------------------------------------------------

    def finalize_at_exit(self) -> None:
        """Register one finalize for the end of the process."""
        import atexit

        pid = os.getpid()

        def at_exit() -> None:
            if os.getpid() == pid:  # a forked child that exits normally is not the end of this run
                self.finalize(self.recording, verbose=True, return_results=False)

        self.at_exit = at_exit
        atexit.register(at_exit)

    def cancel_at_exit(self) -> None:
        """Nothing will be finalized at the end of the process."""
        if self.at_exit is not None:
            import atexit

            atexit.unregister(self.at_exit)
            self.at_exit = None

    # -- pause ---------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self.config is None:
            raise RuntimeError("pause() needs a run: call setup() first")
        if self.recording is not None and self.listening:
            others = [name for name in self.recording.run.open_calls() if name != ROOT_REGION]
            if others:
                shown = ", ".join(map(repr, sorted(set(others))[:5]))
                raise RuntimeError(f"cannot pause while regions are open: {shown}")
            self.recorder.pause()
        self.config.paused = True

    def resume(self) -> None:
        if self.config is None:
            return
        self.recorder.resume()
        self.config.paused = False


_states: list[Any] = []  # weak references to every manager's state, for what concerns them all


def _weak(state: _State) -> Any:
    import weakref

    return weakref.ref(state, _states.remove)


def _source_path(detail: str) -> Callable[[str], str]:
    from .run_metadata import absolute_source_path, short_source_path

    return absolute_source_path if detail == "full" else short_source_path


def _empty_results(config: ProfilingConfig | None) -> ProfilingResults:
    from .results import ProfilingResults

    return ProfilingResults({}, num_ranks=0, file_path=config.file_path if config else "")


# -- objects that a manager hands out --------------------------------------------------------------------------------------


class ProfilingRun:
    """One run, as ``setup()`` returns it."""

    def __init__(self, state: _State) -> None:
        self._state = state
        self._recording = state.recording
        self._config = state.config
        self.results: ProfilingResults | None = None
        """What the last :meth:`finalize` returned."""

    @property
    def file_path(self) -> str:
        """The configured output file."""
        assert self._config is not None
        return self._config.file_path

    @property
    def files(self) -> tuple[str, ...]:
        """The files written so far; more than one with ``checkpoint="numbered"``."""
        return tuple(dict.fromkeys(self._recording.files)) if self._recording else ()

    @property
    def is_active(self) -> bool:
        """Whether this is its manager's run, and calls are recorded into it."""
        return self._is_current() and self._state.listening

    def _is_current(self) -> bool:
        return self._state.configured and self._config is self._state.config

    def finalize(
        self, *, verbose: bool = True, return_results: bool = True, native_traces: Any = None, verbose_line_profiler: bool = False
    ) -> ProfilingResults | None:
        """As :meth:`ProfileManager.finalize`, with results. RuntimeError once another run has replaced this one."""
        if not self._is_current():
            raise RuntimeError("this run has been replaced by another or reset; its manager no longer has its calls")
        _refuse_native_traces(native_traces)
        try:
            self.results = self._state.finalize(self._recording, verbose=verbose, return_results=return_results)
        except BaseException:
            if return_results and self._recording is not None:
                self.results = self._recording.unwritten
            raise
        return self.results


def _refuse_native_traces(native_traces: Any) -> None:
    if native_traces:
        raise ValueError("native_traces is not available in this version of scope-profiler")


class _Forward(property):
    """The region's method, for its handle.

    A ``with`` statement finds the region's own bound method behind it, without a Python frame; ExitStack, which asks the
    class, finds something that it can call.
    """

    method: str

    def __call__(self, handle: Any, *arguments: Any) -> Any:
        return getattr(type(handle._region), self.method)(handle._region, *arguments)


def _forward(method: str) -> _Forward:
    from operator import attrgetter

    forward = _Forward(attrgetter(f"_region.{method}"))
    forward.method = method
    return forward


class RegionHandle:
    """A region that was defined before it is used; a context manager like the region itself. Follows every ``setup()``."""

    __slots__ = ("_region", "name")

    def __init__(self, name: str, region: Region) -> None:
        self.name = name
        self._region = region

    if TYPE_CHECKING:

        def __enter__(self) -> Region: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = _forward("__enter__")
        __exit__ = _forward("__exit__")

    def __repr__(self) -> str:
        return f"RegionHandle({self.name!r})"


class RegionFactory:
    """Makes context managers that are a region and a ``metadata()`` scope in one: ``step = region_factory("step")``,
    then ``with step(index=3): ...``."""

    __slots__ = ("_manager", "_region", "name")

    def __init__(self, manager: type[ProfileManager], name: str, region: Region) -> None:
        self._manager = manager
        self._region = region
        self.name = name

    def __call__(self, **values: Any) -> AbstractContextManager[None]:
        """A context manager for one call with these values."""
        from contextlib import contextmanager

        @contextmanager
        def scope() -> Any:
            with self._manager.metadata(**values), self._region:
                yield

        return scope()

    def __repr__(self) -> str:
        return f"RegionFactory({self.name!r})"


class _MetadataScope:
    """What ``metadata()`` returns."""

    __slots__ = ("_recording", "_state", "_token", "_values")

    def __init__(self, state: _State, values: dict[str, Any]) -> None:
        self._state = state
        self._values = values
        self._recording: Recording | None = None
        self._token: Any = None

    def __enter__(self) -> dict[str, Any]:
        state = self._state
        if state.scope_values is None:
            from contextvars import ContextVar

            state.scope_values = ContextVar("scope_profiler_metadata", default={})
        merged = {**state.scope_values.get(), **self._values}
        self._token = state.scope_values.set(merged)
        if state.listening and state.recording is not None:
            state.annotate()
            self._recording = state.recording
            self._recording.events.open(id(self), merged)
        return merged

    def __exit__(self, *exc: object) -> None:
        if self._recording is not None:
            self._recording.events.close(id(self))
            self._recording = None
        try:
            self._state.scope_values.reset(self._token)
        except ValueError:
            pass  # left in another context than entered, as a generator closed by its event loop does


class _Annotator:
    """Adds ``metadata=`` and the outcome to the calls of one decorated function."""

    __slots__ = ("_outcome", "_state", "_values")

    def __init__(self, state: _State, values: Any, outcome: bool) -> None:
        if values is not None and not callable(values) and not _is_mapping(values):
            raise TypeError(f"metadata must be a mapping or a callable that returns one, got {values!r}")
        self._state = state
        self._values = values
        self._outcome = outcome
        state.annotate()

    def __call__(
        self,
        region: str,
        lane: int,
        start: int,
        end: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        exception: BaseException | None,
    ) -> None:
        recording = self._state.recording
        if recording is None:
            return
        values = self._values(*args, **(kwargs or {})) if callable(self._values) else self._values
        if values:
            recording.events.add_scope(lane, start, end, dict(values))
        if self._outcome:
            recording.events.add_outcome(region, lane, start, end, _outcome(exception))


def _is_mapping(value: Any) -> bool:
    from collections.abc import Mapping

    return isinstance(value, Mapping)


_OK = {"status": "ok"}


def _outcome(exception: BaseException | None) -> dict[str, Any]:
    return _OK if exception is None else {"status": "error", "exception": type(exception).__name__}


class _Sampler:
    """What ``sample_every()`` returns: entering it gives the function that marks a step."""

    __slots__ = ("_every", "_manager", "_start", "_was_paused")

    def __init__(self, manager: type[ProfileManager], every: int, start: int) -> None:
        self._manager = manager
        self._every = every
        self._start = start
        self._was_paused = False

    def __enter__(self) -> Callable[[int], AbstractContextManager[bool]]:
        self._was_paused = self._manager._is_paused()
        return self._step

    def __exit__(self, *exc: object) -> None:
        if self._manager._is_paused() != self._was_paused:
            (self._manager.pause if self._was_paused else self._manager.resume)()

    def _step(self, step: int) -> _Step:
        if isinstance(step, bool) or not isinstance(step, int):
            raise TypeError(f"a step must be an integer, got {step!r}")
        selected = step >= self._start and (step - self._start) % self._every == 0
        return _Step(self._manager, selected)


class _Step:
    """One step of a :class:`_Sampler`; records if it is selected."""

    __slots__ = ("_manager", "_selected")

    def __init__(self, manager: type[ProfileManager], selected: bool) -> None:
        self._manager = manager
        self._selected = selected

    def __enter__(self) -> bool:
        if self._manager.is_configured():
            (self._manager.resume if self._selected else self._manager.pause)()
        return self._selected

    def __exit__(self, *exc: object) -> None:
        return None


# -- the manager -----------------------------------------------------------------------------------------------------------


class ProfileManager:
    """Marks regions and records their calls.

    The class is the default manager; ``ProfileManager()`` is one that shares nothing with it. Both have the same methods.
    """

    _state: ClassVar[_State] = _State()

    if TYPE_CHECKING:

        @classmethod
        def region(cls, name: str, functions: object = None, tags: Iterable[str] | None = None) -> Region:
            """The region called ``name``: a context manager, re-entrant, recursive and usable from any thread.

            Made on first use, with the caller's file and line. ``tags``: None does not check them.

            Raises
            ------
            TypeError
                ``name`` is not a str.
            ValueError
                ``name`` cannot be stored (NUL, lone surrogate), or ``tags`` differ from those the region has.
            """

        profile_region = region
    else:
        region = profile_region = _state.recorder.region

    def __new__(cls) -> ProfileManager:
        """A manager of its own: other configuration, regions, definitions and numbering."""
        state = _State()
        members = {"_state": state, "region": state.recorder.region, "profile_region": state.recorder.region}
        own: type[ProfileManager] = type("ProfileManagerInstance", (cls,), {"__module__": cls.__module__, **members})
        return object.__new__(own)

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    @classmethod
    def setup(
        cls,
        options: ProfilingOptions | None = None,
        *,
        auto_finalize: bool = False,
        output: Any = UNSET,
        replace: bool = False,
        region_tags: Iterable[str] | None = None,
        config_path: str | os.PathLike[str] | None = None,
        **overrides: Unpack[SetupOptions],
    ) -> ProfilingRun:
        """Start a run.

        Parameters
        ----------
        options
            Settings as an object. Keywords go before it, and it goes before the file at ``config_path`` (TOML).
        auto_finalize
            Finalize, with a summary, when the process ends normally.
        output
            Path of the file to write; None keeps the run in memory.
        replace
            End a run that is active, unwritten. Without it that is a RuntimeError.
        region_tags
            Record only regions that share a tag with these.
        **overrides
            Settings; see :class:`ProfilingOptions`.

        Raises
        ------
        RuntimeError
            A run is active.
        TypeError, ValueError
            As of :class:`ProfilingConfig`; the message names the setting. Nothing has changed then.
        """
        state = cls._state
        config, wanted = _configure(options, output, region_tags, config_path, dict(overrides))
        if state.must_finish_first() and not replace:
            raise RuntimeError("a run is active already; finalize() it first, or pass replace=True")
        state.start(config, wanted)
        if auto_finalize:
            state.finalize_at_exit()
        return ProfilingRun(state)

    @classmethod
    def finalize(
        cls,
        verbose: bool = True,
        return_results: bool = False,
        native_traces: Any = None,
        verbose_line_profiler: bool = False,
    ) -> ProfilingResults | None:
        """Report the calls that are over: write the file, print the summary (``verbose``), return results.

        May be repeated: each file replaces the one before (with ``checkpoint="numbered"`` it gets a name of its own) and
        holds the calls that ended since; call ids go on. Without a file every finalize reports all calls again. Calls
        that are open now are reported once they are closed.

        If anything fails, no call is lost, the old file is intact, and finalize can be repeated.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        _refuse_native_traces(native_traces)
        state = cls._state
        return state.finalize(state.recording, verbose=verbose, return_results=return_results)

    @classmethod
    def session(
        cls,
        options: ProfilingOptions | None = None,
        *,
        verbose: bool = True,
        verbose_line_profiler: bool = False,
        return_results: bool = False,
        native_traces: Any = None,
        output: Any = UNSET,
        replace: bool = False,
        config_path: str | os.PathLike[str] | None = None,
        auto_finalize: bool = False,
        region_tags: Iterable[str] | None = None,
        **overrides: Unpack[SetupOptions],
    ) -> ProfilingSession:
        """A run for the length of a ``with`` block or, as a decorator, of each call of a function.

        The arguments are those of :meth:`setup` and :meth:`finalize`. The block is in a region of its own,
        ``scope_profiler.session``. Its ``results`` are set at the end if ``return_results`` is true.
        """
        from .profiling_session import ProfilingSession

        _refuse_native_traces(native_traces)
        settings = dict(overrides)
        problem = unknown_settings(settings)
        if problem:
            raise TypeError(problem)
        resolve_output(output, settings)
        start = {
            "options": options,
            "output": output,
            "replace": replace,
            "config_path": config_path,
            "auto_finalize": auto_finalize,
            "region_tags": region_tags,
            **settings,
        }
        return ProfilingSession(cls, start, verbose=verbose, return_results=return_results)

    @classmethod
    def reset(cls) -> None:
        """Forget configuration, calls, regions and results. Decorated functions and definitions stay."""
        cls._state.forget()

    @classmethod
    def is_configured(cls) -> bool:
        """Whether there was a ``setup()`` since the last ``reset()``."""
        return cls._state.configured

    @classmethod
    def is_active(cls) -> bool:
        """Whether regions record (or are paused). True after ``finalize()``, a checkpoint; False after a session."""
        return cls._state.listening

    @classmethod
    def last_results(cls) -> ProfilingResults | None:
        """The results that the current run returned last."""
        return cls._state.last_results

    @classmethod
    def get_config(cls) -> ProfilingConfig:
        """The current configuration; before any, one of defaults."""
        if cls._state.config is None:
            cls._state.config = ProfilingConfig()
        return cls._state.config

    @classmethod
    def set_config(cls, config: ProfilingConfig) -> None:
        """Start a run with ``config``, replacing one that is active."""
        if not isinstance(config, ProfilingConfig):
            raise TypeError(f"config must be a ProfilingConfig, got {config!r}")
        cls._state.start(config)

    @classmethod
    def read_results(cls) -> ProfilingResults:
        """The configured output file, read back."""
        from .profile_io import load

        return load(cls.get_config().file_path)

    # -- pausing -------------------------------------------------------------------------------------------------------

    @classmethod
    def pause(cls) -> None:
        """Record nothing until :meth:`resume`. RuntimeError without a configuration, or while a region is open."""
        cls._state.pause()

    @classmethod
    def resume(cls) -> None:
        """Record again."""
        cls._state.resume()

    @classmethod
    def _is_paused(cls) -> bool:
        config = cls._state.config
        return config is not None and config.paused

    @classmethod
    def sample_every(cls, every: int, start: int = 0) -> AbstractContextManager[Callable[[int], AbstractContextManager[bool]]]:
        """Record only some steps of a loop.

        ``with sample_every(10) as step:``, then ``with step(i) as selected:`` around each step: recording goes on in steps
        ``start``, ``start + every``, ... and is paused in the others. At the end it is as it was before.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a positive integer, got {every!r}")
        if isinstance(start, bool) or not isinstance(start, int):
            raise ValueError(f"start must be an integer, got {start!r}")
        return _Sampler(cls, every, start)

    # -- instrumentation -----------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        @classmethod
        def profile(cls, region_name: Target) -> Target: ...
        @overload
        @classmethod
        def profile(
            cls,
            region_name: str | None = None,
            recursive: bool | None = None,
            metadata: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
            record_outcome: bool = False,
            tags: Iterable[str] | None = None,
        ) -> Callable[[Target], Target]: ...

    @classmethod
    def profile(
        cls,
        region_name: Any = None,
        recursive: bool | None = None,
        metadata: Any = None,
        record_outcome: bool = False,
        tags: Iterable[str] | None = None,
    ) -> Any:
        """Decorate a function: each call of it is a call of a region. Bare, or with arguments.

        The result is a callable of the same kind: a coroutine function stays one, a generator function too, and the region
        covers the body's life. Static and class methods, partials, builtins, classes and callable objects can be decorated.

        Parameters
        ----------
        region_name
            Default: the function's ``__name__``, or its ``__qualname__`` if that name is taken with other tags.
        metadata
            Values of each call: a mapping, or a callable of the call's arguments that returns one.
        record_outcome
            Add ``status`` (``"ok"`` or ``"error"``) and ``exception`` (its class name) to each call's values.
        tags
            Tags of the region.
        """
        if recursive:
            raise ValueError("recursive is not available in this version of scope-profiler")
        if region_name is not None and not isinstance(region_name, (str, bytes)):
            return cls._wrap(region_name, None, None, None)
        annotate = None if metadata is None and not record_outcome else _Annotator(cls._state, metadata, record_outcome)
        wanted = None if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)

        def decorate(function: Any) -> Any:
            return cls._wrap(function, region_name, wanted, annotate)

        return decorate

    @classmethod
    def _wrap(cls, function: Any, name: str | None, wanted: tuple[str, ...] | None, annotate: Any) -> Any:
        recorder = cls._state.recorder
        names = _default_names(function) if name is None else [name]
        for candidate in names:
            try:
                wrapped = _core.wrap(recorder, function, candidate, wanted, annotate)
                break
            except ValueError:
                if candidate is names[-1]:
                    raise
                # else the name is taken with other tags
        cls._state.keep(recorder.region(candidate))
        return wrapped

    @classmethod
    def define_region(cls, region_name: str, functions: Any = None, tags: Iterable[str] | None = None) -> RegionHandle:
        """A handle for a region, to be kept at module level. ValueError if it is defined differently already."""
        wanted = None if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)
        definition = (functions, wanted)
        known = cls._state.definitions.get(region_name)
        if known is not None and known[1] != definition:
            raise ValueError(f"region {region_name!r} is already defined with other arguments")
        region = cls.region(region_name, functions, wanted)
        cls._state.keep(region)
        handle = RegionHandle(region_name, region)
        cls._state.definitions[region_name] = (handle, definition)
        return handle

    @classmethod
    def region_factory(cls, region_name: str, *, tags: Iterable[str] | None = None) -> RegionFactory:
        """A callable: with keywords, a context manager that is the region with these values as metadata."""
        return RegionFactory(cls, region_name, cls.region(region_name, None, tags))

    @classmethod
    def metadata(cls, **values: Any) -> AbstractContextManager[dict[str, Any]]:
        """Values for every call that starts and ends in this scope, on the same thread, task or greenlet.

        Scopes nest; the inner one wins where both have a key. The scope yields its values, those of the scopes around it
        included, as a dict that may be changed until it ends.
        """
        return _MetadataScope(cls._state, values)

    @classmethod
    def instrument(
        cls,
        module: ModuleType,
        *,
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
        prefix: str | None = None,
        tags: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Decorate the functions that ``module`` defines, in place.

        Functions whose name matches a glob of ``include`` and none of ``exclude``; those that the module only imported are
        left alone. Regions are called ``<prefix or module name>.<function>``.

        Returns
        -------
        dict
            The new function by name.
        """
        from fnmatch import fnmatchcase
        from types import FunctionType

        wanted, unwanted = _globs(include), _globs(exclude)
        decorated: dict[str, Any] = {}
        for name, value in list(vars(module).items()):
            if not isinstance(value, FunctionType) or value.__module__ != module.__name__:
                continue
            if not any(fnmatchcase(name, glob) for glob in wanted) or any(fnmatchcase(name, glob) for glob in unwanted):
                continue
            decorated[name] = cls.profile(f"{prefix or module.__name__}.{name}", tags=tags)(value)
            setattr(module, name, decorated[name])
        return decorated

    @classmethod
    def register_opt_in_tag(cls, *opt_in: str) -> None:
        """Make tags opt-in, for every manager: regions that carry one record only where it is enabled."""
        if not register_opt_in_tag(*opt_in):
            return
        for reference in list(_states):
            state = reference()
            if state is not None and state.listening and state.rules is not None:
                state.recorder.refilter(state.rules.filter())

    # -- what there is -------------------------------------------------------------------------------------------------

    @classmethod
    def get_all_regions(cls) -> dict[str, Region]:
        """Every region by name, in order of creation."""
        return {region.region_name: region for region in cls._state.recorder.regions()}

    @classmethod
    def get_region(cls, region_name: str) -> Region | None:
        """The region called ``region_name`` if there is one."""
        return cls.get_all_regions().get(region_name)

    @classmethod
    def registered_regions(cls) -> tuple[str, ...]:
        """The names of all regions."""
        return tuple(cls.get_all_regions())

    @classmethod
    def recorded_regions(cls) -> tuple[str, ...]:
        """The names of the regions that have been entered in this run."""
        recording = cls._state.recording
        if recording is None:
            return ()
        return tuple(name for name, calls in recording.run.call_counts().items() if calls)

    # -- running things ------------------------------------------------------------------------------------------------

    @classmethod
    def run(cls, func: Callable[..., Any], *args: Any, output: Any = UNSET, **keywords: Any) -> Any:
        """Call ``func`` in a session and return its value; the results are ``last_results()``.

        Keywords that :meth:`session` knows are for the session, the others for ``func``. Nothing is printed unless
        ``verbose=True``.
        """
        from .launch import run

        return run(cls, func, args, output, keywords)

    @classmethod
    def setup_from_env(cls, **overrides: Any) -> ProfilingRun:
        """:meth:`setup` with what the environment says; keywords win.

        ``SCOPE_PROFILER_CONFIG`` (TOML file), ``SCOPE_PROFILER_OUTPUT`` (path), ``SCOPE_PROFILER_RECURSIVE`` and
        ``SCOPE_PROFILER_AUTO_FINALIZE`` (1, true, yes, on: true; anything else: false). Empty variables count as unset.
        """
        from .launch import environment_settings

        return cls.setup(**environment_settings(overrides))

    @classmethod
    def run_script(
        cls,
        script_path: str | os.PathLike[str],
        script_args: Iterable[str] | None = None,
        region_name: str | None = None,
        only_user_code: bool = True,
        recursive: bool = True,
        include_patterns: Iterable[str] = (),
        exclude_patterns: Iterable[str] = (),
        entrypoint: str | None = None,
    ) -> None:
        """Run a script as ``__main__`` in the current run.

        ``recursive`` asks for a region for each Python function, which this version does not have: pass False.
        """
        from .launch import run_script

        if recursive:
            raise ValueError("recursive is not available in this version of scope-profiler; pass recursive=False")
        run_script(script_path, script_args)

    @classmethod
    def profile_script(
        cls,
        script_path: str | os.PathLike[str],
        *,
        script_args: Iterable[str] | None = None,
        output: Any = UNSET,
        **settings: Any,
    ) -> ProfilingResults | None:
        """Run a script as ``__main__`` in a run of its own and return the results.

        An exception of the script, SystemExit included, is raised after the run was finalized; then they are
        ``last_results()``. ``sys.argv`` and ``sys.path`` are restored.
        """
        from .launch import profile_script

        return profile_script(cls, script_path, script_args, output, settings)

    @classmethod
    def profile_command(
        cls,
        command: str | Iterable[str],
        *,
        output: Any = None,
        recursive: bool = False,
        all: bool = False,
        mpi_calls: bool = False,
    ) -> CompletedProcess[str]:
        """Run a script in a process of its own, under ``scope-profiler run``.

        ``command`` is the script with its arguments, as a list or as a shell would write it; an interpreter before it is
        left out. The result's ``profile_results`` are the run's, or None if the process failed.
        """
        from .launch import profile_command

        for name, wanted in (("recursive", recursive), ("all", all), ("mpi_calls", mpi_calls)):
            if wanted:
                raise ValueError(f"{name} is not available in this version of scope-profiler")
        return profile_command(command, output)


def _configure(
    options: ProfilingOptions | None,
    output: Any,
    region_tags: Iterable[str] | None,
    config_path: str | os.PathLike[str] | None,
    keywords: dict[str, Any],
) -> tuple[ProfilingConfig, tuple[str, ...] | None]:
    """The checked configuration, and the tag filter."""
    from .settings import check_tags

    keywords, kind = resolve_output(output, keywords)
    config = ProfilingConfig(**merge_settings(keywords, options, config_path))
    config.output_format = kind
    if config.writes_file and os.path.isdir(config.file_path):
        raise ValueError(f"file_path: {config.file_path!r} is a directory")
    return config, None if region_tags is None else check_tags("region_tags", region_tags)


def _default_names(function: Any) -> list[str]:
    """Region names for a function, the best first; each is longer and less likely to be taken than the one before."""
    inner = function
    while isinstance(inner, (staticmethod, classmethod)):
        inner = inner.__func__
    while not hasattr(inner, "__name__") and hasattr(inner, "func"):  # a partial, or one of another
        inner = inner.func
    described = inner if hasattr(inner, "__name__") else type(inner)
    name = described.__name__
    long_name = getattr(described, "__qualname__", name)
    return [name, long_name, f"{getattr(described, '__module__', '')}.{long_name}"]


def _globs(patterns: Iterable[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


