"""Managers: what a program calls to mark regions, to start and end a run, and to get at its results.

All state of a manager lives in one :class:`~scope_profiler.manager_state.ManagerState`. ``ProfileManager`` itself is the
default manager: its methods are class methods. ``ProfileManager()`` makes a subclass with a state of its own, so that an
instance has the same methods and shares nothing with the default manager but the registered opt-in tags.

``region`` is the recorder's own C method, on the class and on instances: a call of it runs no Python code.
"""

from __future__ import annotations

import os

from . import _core
from .annotations import Annotator, MetadataScope
from .manager_state import ManagerState, all_states
from .profile_config import ProfilingConfig, merge_settings
from .region_handles import RegionFactory, RegionHandle
from .settings import UNSET, resolve_output, validate
from .tags import register_opt_in_tag

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


class ProfilingRun:
    """One run, as ``setup()`` returns it."""

    def __init__(self, state: ManagerState) -> None:
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
        self,
        *,
        verbose: bool = True,
        return_results: bool = True,
        native_traces: Any = None,
        verbose_line_profiler: bool = False,
    ) -> ProfilingResults | None:
        """As :meth:`ProfileManager.finalize`, with results. RuntimeError once another run has replaced this one."""
        if not self._is_current():
            raise RuntimeError("this run has been replaced by another or reset; its manager no longer has its calls")
        try:
            self.results = self._state.finalize(
                self._recording,
                verbose=verbose,
                return_results=return_results,
                native_traces=native_traces,
                verbose_line_profiler=verbose_line_profiler,
            )
        except BaseException:
            if return_results and self._recording is not None:
                self.results = self._recording.unwritten
            raise
        return self.results


class ProfileManager:
    """Marks regions and records their calls.

    The class is the default manager; ``ProfileManager()`` is one that shares nothing with it. Both have the same methods.
    """

    _state: ClassVar[ManagerState] = ManagerState()
    _state.recorder.host_native()  # C, C++ and Fortran code of the process records into the runs of the default manager

    if TYPE_CHECKING:

        @classmethod
        def region(cls, region_name: str, functions: object = None, tags: Iterable[str] | None = None) -> Region:
            """The region of this name: a context manager, re-entrant, recursive and usable from any thread.

            Made on first use, with the caller's file and line. ``tags``: None does not check them.

            Raises
            ------
            TypeError
                ``region_name`` is not a str, nor bytes of UTF-8.
            ValueError
                ``region_name`` cannot be stored (NUL, lone surrogate), or ``tags`` differ from those the region has.
            """

        profile_region = region
    else:
        region = profile_region = _state.recorder.region

    def __new__(cls) -> ProfileManager:
        """A manager of its own: other configuration, regions, definitions and numbering."""
        state = ManagerState()
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
            Settings; ``help(scope_profiler.ProfilingOptions)`` tells what each does.

        Raises
        ------
        RuntimeError
            A run is active.
        TypeError, ValueError
            As of :class:`ProfilingConfig`; the message names the setting. Nothing has changed then.
        """
        state = cls._state
        config, wanted = _configure(options, output, region_tags, config_path, dict(overrides))
        state.start(config, wanted, replace=replace)
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
        """Report the calls that are over: write the file, print the summary, return results.

        May be repeated: each file replaces the one before (with ``checkpoint="numbered"`` it gets a name of its own) and
        holds the calls that ended since; call ids go on. Without a file every finalize reports all calls again. Calls
        that are open now are reported once they are closed.

        If anything fails, no call is lost, the old file is intact, and finalize can be repeated.

        Parameters
        ----------
        verbose
            Print the summary.
        return_results
            Return the results of what is reported; False: return None.
        native_traces
            Traces of C and Fortran programs (paths or directories, see :func:`scope_profiler.native_trace.find_traces`) that
            belong to the run: their calls are reported with it, on their rank and beside its threads and tasks.
        verbose_line_profiler
            Print the line profiles of a run with ``use_line_profiler``, too.

        Raises
        ------
        OSError
            The file cannot be written, or a trace cannot be read.
        ValueError
            A trace is damaged (TraceFormatError), or has a region that the run has too.
        """
        state = cls._state
        return state.finalize(
            state.recording,
            verbose=verbose,
            return_results=return_results,
            native_traces=native_traces,
            verbose_line_profiler=verbose_line_profiler,
        )

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

        The block is in a region of its own, ``scope_profiler.session``. An exception of the block goes on when the run is written.

        Parameters
        ----------
        verbose, verbose_line_profiler, native_traces
            As of :meth:`finalize`.
        return_results
            Set the ``results`` of the session at its end.
        replace
            It may be inside another session of the same manager: that one records no further, and reports at its end what it
            has recorded until then.
        options, output, config_path, auto_finalize, region_tags, **overrides
            As of :meth:`setup`.

        Raises
        ------
        RuntimeError
            A run is active when the block is entered, and ``replace`` is False.
        TypeError, ValueError
            As of :meth:`setup`; for what can be seen without the file of settings at once, before the block is entered.
        """
        from .profiling_session import ProfilingSession

        settings = dict(overrides)
        # What is wrong without looking at the file of settings is told here, not when the session is entered.
        validate(merge_settings(resolve_output(output, settings)[0], options, None))
        start = {
            "options": options,
            "output": output,
            "replace": replace,
            "config_path": config_path,
            "auto_finalize": auto_finalize,
            "region_tags": region_tags,
            **settings,
        }
        return ProfilingSession(
            cls,
            start,
            verbose=verbose,
            return_results=return_results,
            native_traces=native_traces,
            verbose_line_profiler=verbose_line_profiler,
        )

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
        cls._state.start(config, replace=True)

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
        """Record again. RuntimeError without a configuration."""
        cls._state.resume()

    @classmethod
    def sample_every(
        cls, every: int, start: int = 0
    ) -> AbstractContextManager[Callable[[int], AbstractContextManager[bool]]]:
        """Record only some steps of a loop.

        ``with sample_every(10) as step:``, then ``with step(i) as selected:`` around each step: recording goes on in steps
        ``start``, ``start + every``, ... and is paused in the others. At the end it is as it was before.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a positive integer, got {every!r}")
        if isinstance(start, bool) or not isinstance(start, int):
            raise ValueError(f"start must be an integer, got {start!r}")
        from .sampling import Sampler

        return Sampler(cls._state, every, start)

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
        covers the body's life. Static and class methods, properties, partials, builtins and callable objects can be decorated. A class
        is returned itself, with its own ``__init__``, else its ``__new__``, profiled in its name; TypeError if it has neither.

        Parameters
        ----------
        region_name
            Default: the function's ``__name__``, or its ``__qualname__`` if that name is taken with other tags.
        recursive
            True: Python functions that it calls, at any depth and on the same thread, are calls of regions too, named
            ``module.qualname``. False: they are not, in a run with ``recursive_profile`` either. None: as the run says.
        metadata
            Values of each call: a mapping, or a callable of the call's arguments that returns one.
        record_outcome
            Add ``status`` (``"ok"`` or ``"error"``) and ``exception`` (its class name) to each call's values.
        tags
            Tags of the region.
        """
        if region_name is not None and not isinstance(region_name, (str, bytes)):
            return cls._wrap(region_name, None, None, None, recursive)
        annotate = None if metadata is None and not record_outcome else Annotator(cls._state, metadata, record_outcome)
        wanted = None if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)

        def decorate(function: Any) -> Any:
            return cls._wrap(function, region_name, wanted, annotate, recursive)

        return decorate

    @classmethod
    def _wrap(
        cls, function: Any, name: Any, wanted: tuple[str, ...] | None, annotate: Any, recursive: bool | None = None
    ) -> Any:
        recorder = cls._state.recorder
        names = _default_names(function) if name is None else [name]
        for candidate in names:
            try:
                wrapped = _core.wrap(recorder, function, candidate, wanted, annotate, recursive)
                break
            except ValueError:
                if candidate is names[-1]:
                    raise
                # else the name is taken with other tags
        cls._state.keep(recorder.region(candidate))
        cls._state.line_functions.add(candidate, function)
        return wrapped

    @classmethod
    def define_region(cls, region_name: str, functions: Any = None, tags: Iterable[str] | None = None) -> RegionHandle:
        """A handle for a region, to be kept at module level.

        Parameters
        ----------
        region_name
            The region's name.
        functions
            Functions whose lines are timed in runs with ``use_line_profiler``.
        tags
            The region's tags.

        Raises
        ------
        ValueError
            A region of this name is defined with other arguments.
        """
        wanted = None if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)
        definition = (functions, wanted)
        known = cls._state.definitions.get(region_name)
        if known is not None and known[1] != definition:
            raise ValueError(f"region {region_name!r} is already defined with other arguments")
        handle = RegionHandle(cls, region_name, functions, wanted)
        cls._state.definitions[region_name] = (handle, definition)
        return handle

    @classmethod
    def region_factory(cls, region_name: str, *, tags: Iterable[str] | None = None) -> RegionFactory:
        """A callable: with keywords, a context manager that is the region with these values as metadata.

        Parameters
        ----------
        region_name
            The region's name.
        tags
            Its tags; ValueError if it has others.
        """
        return RegionFactory(cls, region_name, tags)

    @classmethod
    def metadata(cls, **values: Any) -> AbstractContextManager[dict[str, Any]]:
        """Values for every call that starts and ends in this scope, on the same thread, task or greenlet.

        Scopes nest; the inner one wins where both have a key. The scope yields its values, those of the scopes around it
        included, as a dict that may be changed until it ends.
        """
        return MetadataScope(cls._state, values)

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
        """Decorate the functions that a module defines, in place. Those that it only imported are left alone.

        Parameters
        ----------
        module
            The module.
        include, exclude
            Globs: functions whose name matches one of ``include`` and none of ``exclude``.
        prefix
            Regions are called ``<prefix>.<function>``; None: the module's name.
        tags
            Tags of the regions.

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
            if type(value) is not FunctionType or value.__module__ != module.__name__:  # not what is decorated
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
        for state in all_states():
            if state.listening and state.rules is not None:
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
        """Call a function in a session and return its value; the results are ``last_results()``.

        Parameters
        ----------
        func, *args
            The function and its arguments.
        output
            The file to write, as of :meth:`setup`.
        **keywords
            Those that :meth:`session` knows are for the session, the others for the function. Nothing is printed unless
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

        Parameters
        ----------
        recursive
            The script is a region, ``region_name`` or the name of its file, and each call of a Python function in it is a call
            of a region named ``module.qualname``.
        only_user_code
            Leave out functions of the standard library and of installed packages.
        include_patterns, exclude_patterns
            Patterns as of a shell for region names.
        entrypoint
            The function with this name has a region of just this name.
        """
        from .function_choice import FunctionChoice
        from .launch import run_script

        if not recursive:
            run_script(script_path, script_args)
            return
        choice = FunctionChoice(
            only_user_code=only_user_code, include=include_patterns, exclude=exclude_patterns, entrypoint=entrypoint
        )
        cls._state.begin_tracing(choice)
        try:
            with cls._state.recorder.add(region_name or os.path.basename(os.fspath(script_path))):
                run_script(script_path, script_args)
        finally:
            cls._state.end_tracing()

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

        Parameters
        ----------
        script_path
            The script.
        script_args
            What it finds in ``sys.argv`` behind its name.
        output
            The file to write, as of :meth:`setup`.
        **settings
            Settings of the run.

        Raises
        ------
        FileNotFoundError
            There is no such script.
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
        left out. The result's ``profile_results`` are the run's, or None if the process failed or recorded into a run of its own. ``recursive`` records each call
        of a Python function of the program, ``all`` those of libraries too, ``mpi_calls`` the MPI calls of mpi4py.
        """
        from .launch import profile_command

        options = ["--all"] if all else ["--recursive"] if recursive else []
        if mpi_calls:
            options.append("--mpi-calls")
        return profile_command(command, output, options)


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
    if config.writes_file:
        _check_place(config.file_path)
    return config, None if region_tags is None else check_tags("region_tags", region_tags)


def _check_place(path: str) -> None:
    """ValueError for what can never be replaced by a file: told now, not when the run is over."""
    from stat import S_ISREG

    if os.path.isdir(path):
        raise ValueError(f"file_path: {path!r} is a directory")
    if path.endswith(os.sep):
        raise ValueError(f"file_path: {path!r} names a directory")
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return  # nothing is there, or what is in the way may go until the file is written
    if not S_ISREG(kind):
        raise ValueError(f"file_path: {path!r} is not a regular file; output=None records without a file")


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
