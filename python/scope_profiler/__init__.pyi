# What `from scope_profiler import ...` finds; at run time each name is imported when it is first used.
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from . import call_stack as call_stack
from . import concurrency as concurrency
from . import mpi_region as mpi_region
from . import plotting_scripts as plotting_scripts
from . import profile_config as profile_config
from . import profile_io as profile_io
from . import profile_manager as profile_manager
from . import results as results
from . import summary as summary
from ._core import CorruptProfileError as CorruptProfileError
from ._core import NestingError as NestingError
from ._core import PerfEventError as PerfEventError
from ._core import Region as _RecordedRegion
from ._core import __version__ as __version__
from .call_stack import CallArrays as CallArrays
from .call_stack import build_call_arrays as build_call_arrays
from .call_stack import build_call_stack as build_call_stack
from .call_stack import call_stack_children as call_stack_children
from .call_stack import call_stack_roots as call_stack_roots
from .chrome_trace_export import export_chrome_trace as export_chrome_trace
from .csv_export import export_csv as export_csv
from .folded_export import export_folded as export_folded
from .html_report import create_html_report as create_html_report
from .inspection import collect_file_metadata as collect_file_metadata
from .inspection import inspect_file as inspect_file
from .json_export import JSONProfileError as JSONProfileError
from .json_export import export_json as export_json
from .json_export import read_json as read_json
from .json_export import write_json as write_json
from .likwid_data import LikwidRegionResult as LikwidRegionResult
from .mpi_wrappers import MPIRegionMetadata as MPIRegionMetadata
from .mpi_wrappers import ProfiledMPIComm as ProfiledMPIComm
from .mpi_wrappers import ProfiledMPIRequest as ProfiledMPIRequest
from .mpi_wrappers import format_mpi_region as format_mpi_region
from .mpi_wrappers import message_nbytes as message_nbytes
from .mpi_wrappers import parse_mpi_region as parse_mpi_region
from .mpi_wrappers import profile_mpi4py as profile_mpi4py
from .mpi_wrappers import profile_mpi_comm as profile_mpi_comm
from .options import GPUOptions as GPUOptions
from .options import HDF5Options as HDF5Options
from .options import MemrayOptions as MemrayOptions
from .options import ProfilingOptions as ProfilingOptions
from .options import SetupOptions
from .parquet_export import export_parquet as export_parquet
from .perf_events import PerfEventTotals as PerfEventTotals
from .perfetto_export import export_perfetto as export_perfetto
from .plotting_scripts import collect_region_statistics as collect_region_statistics
from .plotting_scripts import collect_roofline_points as collect_roofline_points
from .plotting_scripts import plot_duration_timeseries as plot_duration_timeseries
from .plotting_scripts import plot_durations as plot_durations
from .plotting_scripts import plot_flame as plot_flame
from .plotting_scripts import plot_flame_chart as plot_flame_chart
from .plotting_scripts import plot_flame_graph as plot_flame_graph
from .plotting_scripts import plot_gantt as plot_gantt
from .plotting_scripts import plot_perf_events as plot_perf_events
from .plotting_scripts import plot_rank_heatmap as plot_rank_heatmap
from .plotting_scripts import plot_roofline as plot_roofline
from .plotting_scripts import plot_scaling_efficiency as plot_scaling_efficiency
from .plotting_scripts import plot_speedup as plot_speedup
from .plotting_scripts import plot_weak_scaling as plot_weak_scaling
from .plotting_scripts import plot_weak_scaling_efficiency as plot_weak_scaling_efficiency
from .plotting_scripts import write_region_statistics_json as write_region_statistics_json
from .prof_export import export_flamegraph_svg as export_flamegraph_svg
from .prof_export import export_prof as export_prof
from .prof_export import load_prof as load_prof
from .prof_export import to_pstats as to_pstats
from .profile_io import load as load
from .profile_io import read_h5 as read_h5
from .profile_io import read_h5_summary as read_h5_summary
from .profile_io import read_profile as read_profile
from .profile_io import sniff_profile_format as sniff_profile_format
from .profile_io import write_profile as write_profile
from .profile_manager import ProfileManager as ProfileManager
from .profile_manager import ProfilingRun as ProfilingRun
from .profile_manager import RegionFactory as RegionFactory
from .profile_manager import RegionHandle as RegionHandle
from .profiling_session import ProfilingSession
from .results import EventDataUnavailableError as EventDataUnavailableError
from .results import MPIRegion as MPIRegion
from .results import ProfilingResults as ProfilingResults
from .results import Region as Region
from .results import merge_results as merge_results
from .speedscope_export import export_speedscope as export_speedscope

_Target = TypeVar("_Target", bound=Callable[..., Any])

# The methods of ProfileManager; its docstrings describe them.
def setup(
    options: ProfilingOptions | None = None,
    *,
    auto_finalize: bool = False,
    output: str | PathLike[str] | None = ...,
    replace: bool = False,
    region_tags: Iterable[str] | None = None,
    config_path: str | PathLike[str] | None = None,
    **overrides: Unpack[SetupOptions],
) -> ProfilingRun: ...
def session(
    options: ProfilingOptions | None = None,
    *,
    verbose: bool = True,
    verbose_line_profiler: bool = False,
    return_results: bool = False,
    native_traces: Any = None,
    output: str | PathLike[str] | None = ...,
    replace: bool = False,
    config_path: str | PathLike[str] | None = None,
    auto_finalize: bool = False,
    region_tags: Iterable[str] | None = None,
    **overrides: Unpack[SetupOptions],
) -> ProfilingSession: ...
def finalize(
    verbose: bool = True, return_results: bool = False, native_traces: Any = None, verbose_line_profiler: bool = False
) -> ProfilingResults | None: ...
def reset() -> None: ...
def run(func: Callable[..., Any], *args: Any, output: str | PathLike[str] | None = ..., **keywords: Any) -> Any: ...
def setup_from_env(**overrides: Any) -> ProfilingRun: ...
def profile_script(
    script_path: str | PathLike[str],
    *,
    script_args: Iterable[str] | None = None,
    output: str | PathLike[str] | None = ...,
    **settings: Any,
) -> ProfilingResults | None: ...
def profile_command(
    command: str | Iterable[str],
    *,
    output: str | PathLike[str] | None = None,
    recursive: bool = False,
    all: bool = False,
    mpi_calls: bool = False,
) -> CompletedProcess[str]: ...
def is_active() -> bool: ...
def is_configured() -> bool: ...
def last_results() -> ProfilingResults | None: ...
def region(region_name: str, functions: object = None, tags: Iterable[str] | None = None) -> _RecordedRegion: ...
@overload
def profile(region_name: _Target) -> _Target: ...
@overload
def profile(
    region_name: str | None = None,
    recursive: bool | None = None,
    metadata: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
    record_outcome: bool = False,
    tags: Iterable[str] | None = None,
) -> Callable[[_Target], _Target]: ...
def define_region(region_name: str, functions: Any = None, tags: Iterable[str] | None = None) -> RegionHandle: ...
def region_factory(region_name: str, *, tags: Iterable[str] | None = None) -> RegionFactory: ...
def instrument(
    module: ModuleType,
    *,
    include: Iterable[str] = ("*",),
    exclude: Iterable[str] = (),
    prefix: str | None = None,
    tags: Iterable[str] | None = None,
) -> dict[str, Any]: ...
def metadata(**values: Any) -> AbstractContextManager[dict[str, Any]]: ...
def register_opt_in_tag(*opt_in: str) -> None: ...
def registered_regions() -> tuple[str, ...]: ...
def recorded_regions() -> tuple[str, ...]: ...

__all__: list[str]
