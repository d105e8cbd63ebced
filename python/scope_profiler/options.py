"""Settings as objects: :class:`ProfilingOptions` and its groups, and the types of the keywords."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from .settings import GROUPS

__all__ = ["GPUOptions", "HDF5Options", "MemrayOptions", "ProfilingOptions", "SetupOptions"]


class _Group:
    def to_kwargs(self) -> dict[str, Any]:
        """The fields that are set, under the names that ``setup()`` takes."""
        names = GROUPS[type(self).__name__.removesuffix("Options").lower()]
        values = {setting: getattr(self, field) for field, setting in names.items()}
        return {setting: value for setting, value in values.items() if value is not None}


@dataclass
class MemrayOptions(_Group):
    """Memory profiling by memray. None leaves a setting unset."""

    enabled: bool | None = None  #: the setting ``use_memray``
    path: str | None = None  #: the setting ``memory_profile_path``
    native_traces: bool | None = None  #: the setting ``memray_native_traces``
    trace_python_allocators: bool | None = None  #: the setting ``memray_trace_python_allocators``
    follow_fork: bool | None = None  #: the setting ``memray_follow_fork``


@dataclass
class GPUOptions(_Group):
    """GPU timing. None leaves a setting unset."""

    timing: bool | None = None  #: the setting ``use_gpu_timing``
    backend: Any = None  #: the setting ``gpu_timing_backend``
    nvtx: bool | None = None  #: the setting ``use_nvtx``
    sync_on_exit: bool | None = None  #: the setting ``gpu_sync_on_exit``


@dataclass
class HDF5Options(_Group):
    """How files are stored. None leaves a setting unset."""

    compression: str | None = None  #: the setting ``hdf5_compression``
    compression_level: int | None = None  #: the setting ``hdf5_compression_level``
    chunk_size: int | None = None  #: the setting ``hdf5_chunk_size``


@dataclass
class ProfilingOptions:
    """Settings of a run, to be passed around before it. None leaves a setting unset.

    A setting of a group may be given directly or through the group, not both (``ValueError`` from :meth:`to_kwargs`).

    Attributes
    ----------
    file_path
        The file to write, as HDF5 whatever its suffix. ``output=`` of ``setup()`` writes what the suffix says.
    label
        What the run is called in comparisons; empty is none.
    use_likwid
        Hardware counters by LIKWID's marker API.
    perf_events
        Hardware and software counters of the kernel to read around each call, one name or several: ``cycles``,
        ``instructions``, ``cache-references``, ``cache-misses``, ``branches``, ``branch-misses``, ``cpu-clock``,
        ``task-clock``, ``page-faults``, ``context-switches``.
    use_line_profiler
        Time of each source line of the functions that regions are given, by line_profiler.
    use_memray
        Record allocations with memray beside the run.
    memory_profile_path
        The file that memray writes; by default beside the output.
    memray_native_traces
        Let memray take native stacks too.
    memray_trace_python_allocators
        Let memray see each object of Python's own allocator.
    memray_follow_fork
        Let memray follow forked children.
    deactivate_profiling
        Record nothing and write nothing: the program runs as if there were no profiler.
    use_nvtx
        Open an NVTX range around each call, for NVIDIA's tools.
    use_gpu_timing
        Measure the time on the device between entry and exit of each call.
    gpu_timing_backend
        What makes and compares the device's events: ``"auto"``, ``"torch"``, ``"cupy"``, or an object with
        ``record_event()`` and ``elapsed_time_ns(first, second)``.
    deactivate_file_output
        Write no file: results are in memory only. As ``output=None``.
    recursive_profile
        A region for every Python function that decorated functions call.
    aggregation_mode
        Keep sums of each region (calls, total, minimum, maximum, exclusive time) instead of single calls.
    profile_mpi_calls
        Calls of mpi4py are regions, named by operation, size and peer.
    track_threads
        Describe threads, and know the thread of every call.
    track_async
        Follow asyncio and trio tasks and greenlets as well, and know how long each call awaited. Turns
        ``track_threads`` on.
    capture_region_source
        Keep the source text of each region in the file.
    metadata_detail
        ``"full"`` adds the user, host, directories, command line and batch system to the run's metadata, which without
        it name no person, host or path.
    buffer_limit
        Accepted from programs for earlier releases, and checked; buffers grow by themselves.
    output_mode
        How ranks write one file: ``"auto"``, ``"direct"``, ``"parallel"`` are all the same here; ``"parallel"`` refuses
        runs with lanes.
    hdf5_compression
        ``"auto"`` (fast deflate for long columns), ``"gzip"``, ``"lzf"``, ``"zstd"``, or None for none.
    hdf5_compression_level
        0 to 9 for ``"gzip"`` and ``"auto"``, 1 to 22 for ``"zstd"``; None: the usual one.
    hdf5_chunk_size
        Values of a column in one chunk; None: 32,768 of them (256 KiB).
    enable_tags
        Opt-in tags whose regions are to record: one tag or several; ``"*"`` is all.
    memray
        The settings of memray as a group.
    gpu
        The settings of GPU timing as a group.
    hdf5
        How the file is stored, as a group.
    gpu_sync_on_exit
        Wait for the device at the end of each call; needs ``use_gpu_timing``.
    checkpoint
        ``"replace"``: each ``finalize()`` replaces the file of the one before. ``"numbered"``: each writes a file of
        its own.
    clock
        ``"auto"``, ``"tsc"`` (the processor's counter) or ``"monotonic"`` (``clock_gettime``). ``"auto"`` takes the
        counter where it can be trusted.
    spool
        Whether calls are in a file beside the output while the program runs, so that a kill loses none: True, False, or
        ``"auto"`` (on local file systems).
    spool_limit
        How many bytes the spool may take, at least 1 MiB; None: no limit.
    spool_policy
        At that limit ``"stop"`` recording, or keep the ``"newest"`` calls; None: as the environment says, else stop.
    sample_hz
        How often a second a sampler looks at what threads do, in and between regions, at most 1000; 0: not at all;
        None: as the environment says, else not.
    mpi_timeout
        Seconds to wait for a rank that does not come to ``finalize()``; None: as the environment says, else 300.
    mpi_sync_clocks
        Compare the clocks of hosts at ``setup()`` too, which makes it collective.
    follow_processes
        Record the worker processes of ``multiprocessing`` and ``concurrent.futures`` as ranks of this run.
    """

    file_path: str | os.PathLike[str] | None = None
    label: str | None = None
    use_likwid: bool | None = None
    perf_events: list[str] | tuple[str, ...] | str | None = None
    use_line_profiler: bool | None = None
    use_memray: bool | None = None
    memory_profile_path: str | None = None
    memray_native_traces: bool | None = None
    memray_trace_python_allocators: bool | None = None
    memray_follow_fork: bool | None = None
    deactivate_profiling: bool | None = None
    use_nvtx: bool | None = None
    use_gpu_timing: bool | None = None
    gpu_timing_backend: Any = None
    deactivate_file_output: bool | None = None
    recursive_profile: bool | None = None
    aggregation_mode: bool | None = None
    profile_mpi_calls: bool | None = None
    track_threads: bool | None = None
    track_async: bool | None = None
    capture_region_source: bool | None = None
    metadata_detail: str | None = None
    buffer_limit: int | None = None
    output_mode: str | None = None
    hdf5_compression: str | None = None
    hdf5_compression_level: int | None = None
    hdf5_chunk_size: int | None = None
    enable_tags: Iterable[str] | None = None
    memray: MemrayOptions | None = None
    gpu: GPUOptions | None = None
    hdf5: HDF5Options | None = None
    gpu_sync_on_exit: bool | None = None
    checkpoint: str | None = None
    clock: str | None = None
    spool: bool | str | None = None
    spool_limit: int | None = None
    spool_policy: str | None = None
    sample_hz: float | None = None
    mpi_timeout: float | None = None
    mpi_sync_clocks: bool | None = None
    follow_processes: bool | None = None

    def to_kwargs(self) -> dict[str, Any]:
        """The settings that are set, as keywords for ``setup()``."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in GROUPS}
        given = {name: value for name, value in values.items() if value is not None}
        for group in GROUPS:
            options = getattr(self, group)
            for setting, value in ({} if options is None else options.to_kwargs()).items():
                if setting in given:
                    raise ValueError(f"{setting} is set both directly and by the {group!r} group; set it in one place")
                given[setting] = value
        return given


class SetupOptions(TypedDict, total=False):
    """The keywords of ``setup()`` and ``session()`` that are settings of the run."""

    file_path: str | os.PathLike[str] | None
    label: str | None
    use_likwid: bool | None
    perf_events: list[str] | tuple[str, ...] | str | None
    use_line_profiler: bool | None
    use_memray: bool | None
    memory_profile_path: str | os.PathLike[str] | None
    memray_native_traces: bool | None
    memray_trace_python_allocators: bool | None
    memray_follow_fork: bool | None
    deactivate_profiling: bool | None
    use_nvtx: bool | None
    use_gpu_timing: bool | None
    gpu_timing_backend: Any
    deactivate_file_output: bool | None
    recursive_profile: bool | None
    aggregation_mode: bool | None
    profile_mpi_calls: bool | None
    track_threads: bool | None
    track_async: bool | None
    capture_region_source: bool | None
    metadata_detail: str | None
    buffer_limit: int | None
    output_mode: str | None
    hdf5_compression: str | None
    hdf5_compression_level: int | None
    hdf5_chunk_size: int | None
    enable_tags: Iterable[str] | None
    gpu_sync_on_exit: bool | None
    checkpoint: str | None
    clock: str | None
    spool: bool | str | None
    spool_limit: int | None
    spool_policy: str | None
    sample_hz: float | None
    mpi_timeout: float | None
    mpi_sync_clocks: bool | None
    follow_processes: bool | None
