"""scope-profiler: a region profiler for concurrent Python, C and Fortran programs.

Everything here is imported when it is first used: ``import scope_profiler`` alone imports nothing else.
"""

# name: the module that has it; for the manager's methods, "profile_manager.ProfileManager"
_MANAGER = "profile_manager.ProfileManager"
_HOMES = {
    **dict.fromkeys(
        ("setup", "session", "finalize", "reset", "run", "setup_from_env", "profile_script", "profile_command", "is_active",
         "is_configured", "last_results", "region", "profile", "define_region", "region_factory", "instrument", "metadata",
         "register_opt_in_tag", "registered_regions", "recorded_regions"),
        _MANAGER,
    ),
    **dict.fromkeys(("ProfileManager", "ProfilingRun", "RegionHandle", "RegionFactory"), "profile_manager"),
    **dict.fromkeys(("ProfilingOptions", "HDF5Options", "GPUOptions", "MemrayOptions"), "options"),
    **dict.fromkeys(("CorruptProfileError", "NestingError", "PerfEventError", "__version__"), "_core"),
    **dict.fromkeys(("EventDataUnavailableError", "MPIRegion", "ProfilingResults", "Region", "merge_results"), "results"),
    **dict.fromkeys(
        ("MPIRegionMetadata", "ProfiledMPIComm", "ProfiledMPIRequest", "format_mpi_region", "message_nbytes", "parse_mpi_region",
         "profile_mpi4py", "profile_mpi_comm"),
        "mpi_wrappers",
    ),
    "LikwidRegionResult": "likwid_data",
    "PerfEventTotals": "perf_events",
    **dict.fromkeys(
        ("CallArrays", "build_call_arrays", "build_call_stack", "call_stack_children", "call_stack_roots"), "call_stack"
    ),
    **dict.fromkeys(("JSONProfileError", "export_json", "read_json", "write_json"), "json_export"),
    "export_chrome_trace": "chrome_trace_export",
    "export_csv": "csv_export",
    "export_folded": "folded_export",
    "export_parquet": "parquet_export",
    "export_perfetto": "perfetto_export",
    **dict.fromkeys(("export_flamegraph_svg", "export_prof", "load_prof", "to_pstats"), "prof_export"),
    "export_speedscope": "speedscope_export",
    "create_html_report": "html_report",
    **dict.fromkeys(("load", "read_h5", "read_h5_summary", "read_profile", "sniff_profile_format", "write_profile"), "profile_io"),
    **dict.fromkeys(
        ("collect_region_statistics", "collect_roofline_points", "plot_duration_timeseries", "plot_durations", "plot_flame",
         "plot_flame_chart", "plot_flame_graph", "plot_gantt", "plot_perf_events", "plot_rank_heatmap", "plot_roofline",
         "plot_scaling_efficiency", "plot_speedup", "plot_weak_scaling", "plot_weak_scaling_efficiency",
         "write_region_statistics_json"),
        "plotting_scripts",
    ),
    **dict.fromkeys(("collect_file_metadata", "inspect_file"), "inspection"),
}  # fmt: skip

# Modules that are reachable as attributes without an import of their own; PyCapsule_Import() needs that of _core.
_MODULES = frozenset(
    (
        "_core",
        "call_stack",
        "concurrency",
        "gpu_timing",
        "h5reader",
        "h5schema",
        "json_export",
        "likwid_data",
        "mpi_region",
        "mpi_wrappers",
        "perf_events",
        "plotting_scripts",
        "profile_config",
        "profile_io",
        "profile_manager",
        "results",
        "summary",
    )
)

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name):  # type: ignore[no-untyped-def]
    home = _HOMES.get(name)
    if home is None and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sys import modules

    core = modules.get(f"{__name__}._core")
    if core is None:
        return _imported(home, name)
    with core.TraceMode(2):  # what is imported here is no call of the program's
        return _imported(home, name)


def _imported(home, name):  # type: ignore[no-untyped-def]
    from importlib import import_module

    if home is None:
        return import_module(f"{__name__}.{name}")
    module, _, owner = home.partition(".")
    value = import_module(f"{__name__}.{module}")
    if owner:
        value = getattr(value, owner)
    value = globals()[name] = getattr(value, name)
    return value


def __dir__():  # type: ignore[no-untyped-def]
    return sorted({*globals(), *_HOMES, *_MODULES} - {"_core"})
