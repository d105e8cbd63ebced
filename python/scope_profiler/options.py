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

    enabled: bool | None = None
    path: str | None = None
    native_traces: bool | None = None
    trace_python_allocators: bool | None = None
    follow_fork: bool | None = None


@dataclass
class GPUOptions(_Group):
    """GPU timing. None leaves a setting unset."""

    timing: bool | None = None
    backend: Any = None
    nvtx: bool | None = None
    sync_on_exit: bool | None = None


@dataclass
class HDF5Options(_Group):
    """How files are stored. None leaves a setting unset."""

    compression: str | None = None
    compression_level: int | None = None
    chunk_size: int | None = None


@dataclass
class ProfilingOptions:
    """Settings of a run, to be passed around before it. None leaves a setting unset.

    A setting of a group may be given directly or through the group, not both (``ValueError`` from :meth:`to_kwargs`).
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
    mpi_timeout: float | None
    mpi_sync_clocks: bool | None
    follow_processes: bool | None
