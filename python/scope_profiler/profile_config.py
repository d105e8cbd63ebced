"""The configuration of a run, and where its settings come from: keywords, an options object, a TOML file."""

from __future__ import annotations

from .settings import GROUPS, SETTINGS, rate_from_environment, unknown_settings, validate

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from typing_extensions import Unpack

    from ._core import Recorder, Run
    from ._mpi import Link
    from ._tracker import ConcurrencyTracker
    from .options import GPUOptions as GPUOptions
    from .options import HDF5Options as HDF5Options
    from .options import MemrayOptions as MemrayOptions
    from .options import ProfilingOptions as ProfilingOptions
    from .options import SetupOptions as SetupOptions

__all__ = [
    "GPUOptions",
    "HDF5Options",
    "MemrayOptions",
    "ProfilingConfig",
    "ProfilingOptions",
    "SetupOptions",
    "load_profiling_config",
    "merge_settings",
]


class ProfilingConfig:
    """One checked configuration: every setting is an attribute of its name.

    ``metadata`` describes the run and the machine (keys as in the file), ``start_time_ns`` is its start in nanoseconds of
    ``time.perf_counter_ns()``, ``paused`` is True between ``pause()`` and ``resume()``.

    Raises
    ------
    TypeError
        An unknown setting, or a value of the wrong kind.
    ValueError
        A value out of range, settings that exclude each other, or one that this version cannot do.
    """

    file_path: str
    label: str | None
    use_likwid: bool
    perf_events: tuple[str, ...] | None
    use_line_profiler: bool
    use_memray: bool
    memory_profile_path: str | None
    memray_native_traces: bool
    memray_trace_python_allocators: bool
    memray_follow_fork: bool
    deactivate_profiling: bool
    use_nvtx: bool
    use_gpu_timing: bool
    gpu_timing_backend: Any
    gpu_sync_on_exit: bool
    deactivate_file_output: bool
    recursive_profile: bool
    aggregation_mode: bool
    profile_mpi_calls: bool
    track_threads: bool
    track_async: bool
    follow_processes: bool
    capture_region_source: bool
    metadata_detail: str
    buffer_limit: int
    output_mode: str
    hdf5_compression: str | None
    hdf5_compression_level: int | None
    hdf5_chunk_size: int | None
    enable_tags: tuple[str, ...]
    checkpoint: str
    clock: str
    spool: bool | str
    spool_limit: int | None
    spool_policy: str | None
    sample_hz: float | None
    mpi_timeout: float | None
    mpi_sync_clocks: bool

    comm: Any = None  #: mpi4py's communicator of all ranks, once the run has started; None: a single process
    link: Link | None = None  #: how this rank reaches the others
    paused: bool = False  #: between ``pause()`` and ``resume()``
    followed: bool = False  #: the run is part of one of the parent process, which reads its spool

    def __init__(self, file_path: str | os.PathLike[str] | None = None, /, **settings: Unpack[SetupOptions]) -> None:
        given: dict[str, Any] = dict(settings)
        if file_path is not None:
            if "file_path" in given:
                raise TypeError("file_path is given twice")
            given["file_path"] = file_path
        values = validate(given)
        values["enable_tags"] = values["enable_tags"] or ()
        values["track_threads"] = values["track_threads"] or values["track_async"]
        if values["sample_hz"] is None and not values["aggregation_mode"]:
            values["sample_hz"] = rate_from_environment()
        self.__dict__.update(values)
        self.output_format = "hdf5"
        from .run_metadata import RunFacts

        self._facts = RunFacts(full=self.metadata_detail == "full")
        self._metadata: dict[str, Any] | None = None
        self._start_time_ns: int | None = None
        self._tracked: tuple[Recorder, Run] | None = None
        self._tracker: ConcurrencyTracker | None = None

    @property
    def tracker(self) -> ConcurrencyTracker | None:
        """The threads, tasks and greenlets of the run, once it has started; None if it does not track them."""
        if self._tracker is None and self._tracked is not None:
            from ._tracker import ConcurrencyTracker

            tracker = ConcurrencyTracker(self.track_async)
            tracker._attach(*self._tracked)
            self._tracker = tracker
        return self._tracker

    def track(self, recorder: Recorder, run: Run) -> None:
        """The run of this configuration has started."""
        self.start_time_ns = run.start_ns
        self._tracker = None
        self._tracked = (recorder, run) if self.track_threads else None

    @property
    def start_time_ns(self) -> int:
        """Start of the run in ns; before the run, the moment of the first call."""
        if self._start_time_ns is None:
            from ._core import now_ns

            self._start_time_ns = now_ns()
        return self._start_time_ns

    @start_time_ns.setter
    def start_time_ns(self, value: int) -> None:
        self._start_time_ns = value
        if self._metadata is not None:
            self._metadata["start_time_ns"] = value

    @property
    def metadata(self) -> dict[str, Any]:
        """The run's metadata, to which a program may add; gathered when first asked for."""
        if self._metadata is None:
            self._metadata = self._facts.collect(
                label=self.label, memory_profile_path=self.memory_profile_path, start_time_ns=self.start_time_ns
            )
        return self._metadata

    @property
    def has_modes(self) -> bool:
        """Whether the run records more than its calls, lanes and metadata (modes.py)."""
        return bool(
            self.use_line_profiler
            or self.use_nvtx
            or self.use_gpu_timing
            or self.use_likwid
            or self.perf_events
            or self.use_memray
            or self.sample_hz
        )

    @property
    def writes_file(self) -> bool:
        """Whether ``finalize()`` leaves a file."""
        return not (self.deactivate_file_output or self.deactivate_profiling)

    def __repr__(self) -> str:
        changed = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name, (default, _) in SETTINGS.items()
            if getattr(self, name) != (default if name != "enable_tags" else ())
        )
        return f"ProfilingConfig({changed})"


def load_profiling_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a TOML file: its ``[profiling]`` table, or its top level if there is none.

    Raises
    ------
    ValueError
        The file cannot be read or parsed, a name is unknown, or one setting is written twice.
    """
    table = read_toml(path)
    if "profiling" in table:
        table = table["profiling"]
        if not isinstance(table, dict):
            raise ValueError(f"{path}: [profiling] must be a table")
    flat: dict[str, Any] = {}
    for name, value in table.items():
        _add_setting(flat, path, name, value)
    problem = unknown_settings(flat)
    if problem:
        raise ValueError(f"{path}: {problem}")
    return flat


_MOST_DOTS = 100  # no setting has more than two


def read_toml(path: str | os.PathLike[str], what: str = "profiling config") -> dict[str, Any]:
    """What a TOML file holds; ValueError, which says ``what`` the file is, if it cannot be read or parsed."""
    import sys
    from importlib import import_module

    tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        # The parser takes time and memory in the square of a dotted key's parts: gigabytes for a file of 200 kB.
        if any(line.partition("#")[0].partition("=")[0].count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ValueError(f"a key has more than {_MOST_DOTS} parts")
        table: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"cannot read the {what} {str(path)!r}: {error}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, an integer of too many digits, and nesting too deep besides
        raise ValueError(f"invalid TOML in the {what} {str(path)!r}: {error}") from error
    return table


def _add_setting(flat: dict[str, Any], path: Any, name: str, value: Any) -> None:
    if name not in GROUPS:
        pairs = {name: value}
    elif not isinstance(value, dict):
        raise ValueError(f"{path}: {name} must be a table")
    else:
        problem = unknown_settings(value, GROUPS[name])
        if problem:
            raise ValueError(f"{path}: [{name}]: {problem}")
        pairs = {GROUPS[name][field]: entry for field, entry in value.items()}
    for setting, entry in pairs.items():
        if setting in flat:
            raise ValueError(f"{path}: {setting} is set both directly and in a group table")
        flat[setting] = entry


def merge_settings(
    keywords: dict[str, Any], options: ProfilingOptions | None, config_path: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """All given settings: ``keywords`` before ``options`` before the file. None counts as not given."""
    problem = unknown_settings(keywords)
    if problem:
        raise TypeError(problem)
    merged: dict[str, Any] = {} if config_path is None else load_profiling_config(config_path)
    if options is not None:
        from .options import ProfilingOptions

        if not isinstance(options, ProfilingOptions):
            raise TypeError(f"options must be a ProfilingOptions, got {options!r}")
        merged.update(options.to_kwargs())
    merged.update((name, value) for name, value in keywords.items() if value is not None)
    return merged


def __getattr__(name: str) -> Any:
    # The option classes need dataclasses, which most programs never import.
    if name in ("GPUOptions", "HDF5Options", "MemrayOptions", "ProfilingOptions", "SetupOptions"):
        from . import options

        return getattr(options, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
