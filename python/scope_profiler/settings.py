"""The settings of a run: names, defaults and checks.

Keywords, :class:`~scope_profiler.ProfilingOptions`, TOML files and the environment all end here, so that a name means the
same and is refused in the same words wherever it is written. Every function raises ``TypeError`` for a value of the wrong
kind or an unknown name, and ``ValueError`` for a value that cannot be used; the message names the setting.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Final

__all__ = ["UNSET", "check_setting", "defaults", "path_with", "resolve_output", "unknown_settings", "validate"]


class _Unset:
    """The type of :data:`UNSET`: a keyword that was not given, where None means something."""

    def __repr__(self) -> str:
        return "<unset>"


UNSET: Final = _Unset()

PERF_EVENTS: Final = (
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
)

GPU_BACKENDS: Final = ("auto", "torch", "pytorch", "cupy")
CLOCKS: Final = ("auto", "tsc", "monotonic")
SPOOL_POLICIES: Final = ("stop", "newest")  # what happens at spool_limit
SMALLEST_SPOOL: Final = 1 << 20  # bytes; what a run of a few threads needs besides its calls

COMPRESSIONS: Final = ("auto", "gzip", "lzf", "zstd")
_LEVELS: Final = {"auto": (0, 9), "gzip": (0, 9), "zstd": (1, 22)}


# -- kinds of values ---------------------------------------------------------------------------------------------------


def _flag(name: str, value: Any) -> bool:
    # numpy's bool and 0/1 are flags; "no" and [] are mistakes that truth value testing would turn into an answer.
    if isinstance(value, (str, bytes, list, tuple, dict, set)) or not hasattr(type(value), "__bool__"):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _integer(name: str, value: Any, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return value


def check_text(name: str, value: Any) -> str:
    """``value`` if it is a str that a file can hold: no NUL, no lone surrogate."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    if "\0" in value:
        raise ValueError(f"{name} must not contain a NUL character: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must not contain a lone surrogate: {value!r}") from None
    return value


def check_path(name: str, value: Any) -> str:
    """``value`` (str, bytes or os.PathLike) as a str that can name a file."""
    import os

    try:
        path = os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{name} must be a path, got {value!r}") from None
    if not path:
        raise ValueError(f"{name} must not be empty")
    if "\0" in path:
        raise ValueError(f"{name} must not contain a NUL character: {path!r}")
    return path


def check_tags(name: str, value: Any) -> tuple[str, ...]:
    """Tags from one str (one tag) or an iterable of them."""
    if isinstance(value, bytes) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a str or an iterable of them, got {value!r}")
    tags = (value,) if isinstance(value, str) else tuple(value)
    for tag in tags:
        check_text(f"a tag of {name}", tag)
    return tags


# -- checks of single settings -------------------------------------------------------------------------------------------


def _label(name: str, value: Any) -> str | None:
    return check_text(name, value) or None


def _buffer_limit(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def check_spool(name: str, value: Any) -> bool | str:
    """``"auto"``, True or False."""
    if isinstance(value, str):
        return _choice(("auto",))(name, value)
    return _flag(name, value)


def _spool_limit(name: str, value: Any) -> int:
    if _integer(name, value, "a number of bytes or None") < SMALLEST_SPOOL:
        raise ValueError(f"{name} must be at least {SMALLEST_SPOOL} bytes, got {value}")
    return int(value)


def _choice(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        return str(value)

    return check


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    if not 0 < value < 1e9:
        raise ValueError(f"{name} must be more than 0 and less than a billion seconds, got {value!r}")
    return float(value)


FASTEST_SAMPLING: Final = 1000.0  # Hz


def _rate(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of samples a second, got {value!r}")
    if not 0 <= value <= FASTEST_SAMPLING:
        raise ValueError(f"{name} must be from 0 (none) to {FASTEST_SAMPLING:g}, got {value!r}")
    return float(value)


def rate_from_environment() -> float | None:
    """What ``SCOPE_PROFILER_SAMPLE_HZ`` says; None when it is not set. ValueError names it."""
    import os

    text = os.environ.get("SCOPE_PROFILER_SAMPLE_HZ", "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"SCOPE_PROFILER_SAMPLE_HZ must be a number of samples a second, got {text!r}") from None
    return _rate("SCOPE_PROFILER_SAMPLE_HZ", value)


def _compression(name: str, value: Any) -> str | None:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("", "none"):
        return None
    if word not in COMPRESSIONS:
        raise ValueError(f"{name} must be None, 'none', {', '.join(map(repr, COMPRESSIONS))}, got {value!r}")
    return str(word)


def _level(name: str, value: Any) -> int:
    return _integer(name, value, "an integer or None")


def _chunk_size(name: str, value: Any) -> int:
    if _integer(name, value, "a positive integer or None") < 1:
        raise ValueError(f"{name} must be a positive integer or None, got {value}")
    return int(value)


def _perf_events(name: str, value: Any) -> tuple[str, ...]:
    try:
        events = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise TypeError(f"{name} must be the name of an event or a list of names, got {value!r}") from None
    events = tuple(event.strip().lower() if isinstance(event, str) else event for event in events)
    if not events:
        raise ValueError(f"{name} must name at least one event")
    unknown = [event for event in events if event not in PERF_EVENTS]
    if unknown:
        raise ValueError(f"{name}: unknown event {unknown[0]!r}; known are {', '.join(PERF_EVENTS)}")
    if len(set(events)) != len(events):
        raise ValueError(f"{name} must not name an event twice, got {value!r}")
    return events


def _gpu_backend(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return _choice(GPU_BACKENDS)(name, value.strip().lower())
    missing = [method for method in ("record_event", "elapsed_time_ns") if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{name} must be {', '.join(map(repr, GPU_BACKENDS))}, or an object with {missing[0]}(), got {value!r}")
    return value


# name: (default, check). A check is never called with None: None means unset.
SETTINGS: Final[dict[str, tuple[Any, Callable[[str, Any], Any]]]] = {
    "file_path": ("profiling_data.h5", check_path),
    "label": (None, _label),
    "use_likwid": (False, _flag),
    "perf_events": (None, _perf_events),
    "use_line_profiler": (False, _flag),
    "use_memray": (False, _flag),
    "memory_profile_path": (None, check_path),
    "memray_native_traces": (False, _flag),
    "memray_trace_python_allocators": (False, _flag),
    "memray_follow_fork": (False, _flag),
    "deactivate_profiling": (False, _flag),
    "use_nvtx": (False, _flag),
    "use_gpu_timing": (False, _flag),
    "gpu_timing_backend": ("auto", _gpu_backend),
    "gpu_sync_on_exit": (False, _flag),
    "deactivate_file_output": (False, _flag),
    "recursive_profile": (False, _flag),
    "aggregation_mode": (False, _flag),
    "profile_mpi_calls": (False, _flag),
    "track_threads": (False, _flag),
    "track_async": (False, _flag),
    "follow_processes": (False, _flag),
    "capture_region_source": (False, _flag),
    "metadata_detail": ("minimal", _choice(("minimal", "full"))),
    "buffer_limit": (1024, _buffer_limit),
    "output_mode": ("auto", _choice(("auto", "direct", "parallel"))),
    "hdf5_compression": ("auto", _compression),
    "hdf5_compression_level": (None, _level),
    "hdf5_chunk_size": (None, _chunk_size),
    "enable_tags": (None, check_tags),
    "checkpoint": ("replace", _choice(("replace", "numbered"))),
    "clock": ("auto", _choice(CLOCKS)),
    "spool": ("auto", check_spool),
    "spool_limit": (None, _spool_limit),
    "spool_policy": (None, _choice(SPOOL_POLICIES)),
    "sample_hz": (None, _rate),
    "mpi_timeout": (None, _seconds),
    "mpi_sync_clocks": (False, _flag),
}

# What a run may record besides the times of its calls; one of them a run.
_MODES: Final = ("use_line_profiler", "use_gpu_timing", "use_nvtx", "use_likwid", "perf_events")
_TOGETHER: Final = frozenset({("use_gpu_timing", "use_nvtx")})  # ranges around what is timed change nothing of it


def _forbidden() -> tuple[tuple[str, str, str], ...]:
    pairs = []
    for mode in (*_MODES, "aggregation_mode"):
        reason = "what that records belongs to the process or the device, not to a thread or task"
        pairs += [(tracking, mode, reason) for tracking in ("track_threads", "track_async")]
    pairs += [("aggregation_mode", mode, "that needs the single calls, which aggregation does not keep") for mode in _MODES]
    for index, one in enumerate(_MODES):
        others = [other for other in _MODES[index + 1 :] if (one, other) not in _TOGETHER]
        pairs += [(one, other, "each would measure the other's own cost") for other in others]
    kept_by_process = (*(mode for mode in _MODES if mode != "use_nvtx"), "use_memray")
    pairs += [("follow_processes", mode, "what that records in a worker process is not collected") for mode in kept_by_process]
    pairs.append(("sample_hz", "aggregation_mode", "which call a thread is in is not known of a run that keeps sums"))
    return tuple(pairs)


# Settings that cannot both be on in one run, and why. setup() refuses each pair, naming both.
FORBIDDEN: Final = _forbidden()

# option group: {field: setting}, for ProfilingOptions and the tables of a TOML file
GROUPS: Final[dict[str, dict[str, str]]] = {
    "memray": {
        "enabled": "use_memray",
        "path": "memory_profile_path",
        "native_traces": "memray_native_traces",
        "trace_python_allocators": "memray_trace_python_allocators",
        "follow_fork": "memray_follow_fork",
    },
    "gpu": {
        "timing": "use_gpu_timing",
        "backend": "gpu_timing_backend",
        "nvtx": "use_nvtx",
        "sync_on_exit": "gpu_sync_on_exit",
    },
    "hdf5": {
        "compression": "hdf5_compression",
        "compression_level": "hdf5_compression_level",
        "chunk_size": "hdf5_chunk_size",
    },
}


def defaults() -> dict[str, Any]:
    """Every setting with its default."""
    return {name: default for name, (default, _) in SETTINGS.items()}


def unknown_settings(names: Iterable[str], known: Iterable[str] = SETTINGS) -> str | None:
    """What is wrong with ``names``, with the nearest known name of each unknown one; None if all are known."""
    known = tuple(known)
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    from difflib import get_close_matches

    described = []
    for name in unknown:
        close = get_close_matches(str(name), known, n=1)
        described.append(f"{name!r} (did you mean {close[0]!r}?)" if close else repr(name))
    return f"unknown profiling setting{'s' if len(unknown) > 1 else ''}: {', '.join(described)}"


def check_setting(name: str, value: Any) -> Any:
    """The value of one setting in the form the configuration keeps; None gives the default."""
    default, check = SETTINGS[name]
    return default if value is None else check(name, value)


def validate(given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings, from those that were given and the defaults.

    Raises
    ------
    TypeError
        An unknown name, or a value of the wrong kind.
    ValueError
        A value out of range, settings that exclude each other, or one that this version cannot do.
    """
    problem = unknown_settings(given)
    if problem:
        raise TypeError(problem)
    values = {name: check_setting(name, given.get(name)) for name in SETTINGS}
    check_combinations(values)
    return values


def check_combinations(values: Mapping[str, Any]) -> None:
    """ValueError, naming both, where two settings (by name, all of them) exclude each other."""
    for one, other, reason in FORBIDDEN:
        if values[one] and values[other]:
            # track_async brings track_threads with it: name what was asked for.
            asked = "track_async" if one == "track_threads" and values["track_async"] else one
            raise ValueError(f"{asked} cannot be combined with {other}: {reason}")
    if values["gpu_sync_on_exit"] and not values["use_gpu_timing"]:
        raise ValueError("gpu_sync_on_exit needs use_gpu_timing=True")
    backend = values["gpu_timing_backend"]
    if values["gpu_sync_on_exit"] and not isinstance(backend, str) and not callable(getattr(backend, "synchronize", None)):
        raise TypeError(f"gpu_sync_on_exit needs a gpu_timing_backend with synchronize(), which {backend!r} has not")
    _check_level(values["hdf5_compression"], values["hdf5_compression_level"])


def _check_level(compression: str | None, level: int | None) -> None:
    if compression is None or level is None:
        return
    if compression == "lzf":
        raise ValueError("hdf5_compression_level cannot be set for lzf, which has no levels")
    low, high = _LEVELS[compression]
    if not low <= level <= high:
        raise ValueError(f"hdf5_compression_level must be from {low} to {high} for {compression}, got {level}")


# -- output --------------------------------------------------------------------------------------------------------------


def output_format(path: str) -> str:
    """``"hdf5"``, ``"json"`` or ``"html"``, by the extension."""
    name = path.lower()
    if name.endswith((".json", ".json.gz")):
        return "json"
    if name.endswith((".html", ".htm")):
        return "html"
    return "hdf5"


def resolve_output(output: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Turn ``output=`` into the settings it stands for.

    Returns
    -------
    tuple
        ``given`` with ``file_path`` or ``deactivate_file_output`` added, and the format of the file.
    """
    settings = dict(given)
    if output is UNSET:
        return settings, "hdf5"
    for name in ("file_path", "deactivate_file_output"):
        if settings.get(name) is not None:
            raise TypeError(f"output cannot be combined with {name}")
    if output is None:
        settings["deactivate_file_output"] = True
        return settings, "hdf5"
    path = check_path("output", output)
    kind = output_format(path)
    if kind == "html":
        _need_viewer(path)
    settings.update(file_path=path, deactivate_file_output=False)
    return settings, kind


def _need_viewer(path: str) -> None:
    from scope_profiler import _core

    if not _core.HAS_VIEWER:
        raise ValueError(
            f"output={path!r}: this build of scope-profiler has no viewer to write pages with; use a .h5 name"
        )


def path_with(path: str, part: str) -> str:
    """The name of a file beside ``path``, with ``part`` before its suffixes: ``run.h5`` becomes ``run.part.h5``."""
    import os

    directory, name = os.path.split(path)
    stem, dot, suffix = name.partition(".") if not name.startswith(".") else (name, "", "")
    return os.path.join(directory, f"{stem}.{part}{dot}{suffix}")
