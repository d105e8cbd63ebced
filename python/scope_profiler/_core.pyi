"""The C extension: recording, lanes, call tree and files. Internal; the package's other modules are its users."""

import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

class Buffer(Protocol):  # any object with the buffer protocol
    ...

__version__: str  # of the package and of the library in it

# -- errors ------------------------------------------------------------------------------------------------------------

class CorruptProfileError(OSError): ...
class HDF5SchemaError(ValueError): ...
class NestingError(ValueError): ...
class PerfEventError(RuntimeError): ...
class SummaryDataUnavailable(ValueError): ...
class TraceFormatError(ValueError): ...

# -- clock -------------------------------------------------------------------------------------------------------------

def now_ns() -> int:
    """Nanoseconds of the clock behind ``time.perf_counter_ns()``."""

def choose_clock(name: str, /) -> None:
    """The clock of this process's runs: "auto", "tsc" or "monotonic". ValueError if it has another already, or there is none."""

def clock_source() -> str:
    """"tsc" or "monotonic"; "injected" in tests."""

def _manual_clock(start_ns: int | None, /) -> None:
    """For tests: times come from a clock that stands at ``start_ns`` until it is moved on; None: the machine's again.

    RuntimeError while a run is open. Runs of one clock cannot be collected under the other.
    """

def _advance_clock(ns: int, /) -> int:
    """Move that clock on; the time it shows then."""

# -- recording (region.c, recorder.c, run.c) -----------------------------------------------------------------------------

class Region:
    """A region object: a context manager whose every entry closes its own call."""

    region_name: str
    tags: tuple[str, ...]
    source_file: str | None
    source_lineno: int | None
    source_text: str | None
    num_calls: int  # entries in the current run, open ones included
    def __enter__(self) -> Region: ...
    def __exit__(self, *exc: object) -> None: ...
    # ns of the calls that are closed and not yet written to a file
    def get_durations_numpy(self) -> Any: ...
    def get_start_times_numpy(self) -> Any: ...
    def get_end_times_numpy(self) -> Any: ...

class Run:
    """One run of a recorder: from open() on; it stays readable after close()."""

    start_ns: int
    track_threads: bool
    track_async: bool
    uncollected: int  # entries that no collection has taken, open ones included
    unmatched: int  # exits that no open call belonged to
    lost: int  # calls that found no memory, and those that vanished
    vanished: int | None  # calls that were in the spool when it was cut off or its disk failed; None: it is whole
    limited: bool  # recording stopped because the spool had reached its limit
    dropped: tuple[int, int]  # calls that went to keep newer ones, and until when (ns; 0: none)
    unsaved: int  # calls that have ended, are in no file, and not in the spool for want of room
    inherited: bool  # this process is a forked child of the one that opened the run
    spool_path: str | None
    confirmed: int  # calls that are in a file
    unreported: bool  # calls would be lost if the run went now
    keep_lanes: bool  # settable: collect() keeps the lane of every call for collect_lanes()
    def collect(self) -> Profile:
        """Every closed call that is not confirmed yet, with the call tree resolved; callable while others record."""
    def collect_lanes(self) -> bytes | None:
        """int64 lane key (see lane()) of each call of the profile that collect() returned last; None without keep_lanes."""
    def confirm(self, files: list[str] = ..., path: str = ..., /) -> None:
        """What collect() returned last is safe (written): never report it again. Call ids go on after it.

        ``path`` is added to ``files``: no exception of a signal handler can come in between.
        """
    @property
    def failures(self) -> tuple[int, BaseException | None]:
        """How often a function of the run's instrument failed, and the first exception."""
    def counters(self) -> tuple[dict[str, tuple[int, list[tuple[int, int, int]]]], int] | None:
        """Since the run began, by region: calls, and of each event its value, ns enabled and ns running. And the calls that were not
        counted. None unless the run counts events."""
    def end_counters(self) -> None:
        """Close what counts events; what was counted stays."""
    def open_calls(self) -> list[str]:
        """Names of the regions of calls that are open now, one entry per open call."""
    def call_counts(self) -> dict[str, int]:
        """Entries so far by region name (open ones included), in order of creation."""
    def overhead(self) -> tuple[int, float]:
        """(calls, ns of one): how many there are so far, and what recording one takes at least, measured now."""
    def lane(self) -> int:
        """Key of the lane the caller is on: its task's index, else -2 - its thread's number."""
    def ticks(self) -> int: ...
    def to_ns(self, ticks: int) -> int: ...

    def finish_spool(self, keep: bool) -> None:
        """Remove the spool, or leave it. Nothing more is written to it."""
    rank: int  # that collected calls are of
    def note_metadata(self, text: str) -> None:
        """Put the run's metadata (JSON text) into the spool."""
    def note_scope(self, scope: int, lane: int, start: int, end: int, text: str, /) -> int:
        """Tell the spool of a metadata scope (JSON text; times in ticks): 0 as its end begins it, and the result ends it."""
    def note_outcome(self, lane: int, start: int, region: str, text: str, /) -> None:
        """Tell the spool of the metadata of one call."""
    def mark_values(self) -> int:
        """What the spool knows of scopes and outcomes until now, for drop_values()."""
    def drop_values(self, mark: int, /) -> None:
        """The calls they belong to are in a file."""
    def tables(self) -> Profile:
        """The tables of threads and tasks as they are now: a Profile without calls."""
    def thread_records(self) -> list[ThreadRecord]: ...
    def task_records(self) -> list[TaskRecord]: ...
    def current_thread(self) -> ThreadRecord:
        """The calling thread's record; registers the thread. RuntimeError once the run is gone."""

def perf_event_problems() -> dict[str, str | None]:
    """For each event that can be counted by region: None, or why this process cannot count it here."""

class TrioInstrument:
    """Makes the tasks of one trio runner lanes of the run."""

    def __init__(self, run: Run) -> None: ...
    def task_spawned(self, task: Any) -> None: ...
    def before_task_step(self, task: Any) -> None: ...
    def after_task_step(self, task: Any) -> None: ...
    def task_exited(self, task: Any) -> None: ...

class ThreadRecord:
    index: int
    ident: int
    native_id: int
    name: str
    daemon: bool
    start_ns: int
    end_ns: int
    cpu_ns: int
    task: TaskRecord | None
    def __init__(self, index: int, thread: Any) -> None: ...
    @property
    def alive(self) -> bool: ...
    def sample_cpu(self) -> None: ...

class TaskRecord:
    index: int
    kind: str
    name: str
    coro_name: str
    thread_index: int
    created_ns: int
    done_ns: int
    steps: int
    running_ns: int
    suspended_ns: int
    step_started_ns: int
    last_step_end_ns: int
    def __init__(self, index: int, kind: str, name: str, coro_name: str, thread_index: int) -> None: ...
    @property
    def done(self) -> bool: ...
    def enter_step(self) -> int: ...
    def leave_step(self) -> None: ...
    def finish(self) -> None: ...

class Recorder:
    """What one manager records with: its switch, its regions and its current run."""

    run: Run | None
    on_functions: Callable[[str, Any], None] | None  # called with what region() was given as functions
    recording: bool  # open and not paused
    paused: bool
    def region(self, region_name: str, functions: Any = None, tags: Any = None) -> Region:
        """The region of this name; made on first use, with the caller's file and line."""
    def open(
        self,
        *,
        track_threads: bool = False,
        track_async: bool = False,
        aggregate: bool = False,  # sums of regions instead of calls
        enabled: Callable[[str, tuple[str, ...]], bool] | None = None,
        buffer_limit: int = 1024,
        capture_source: bool = False,  # text of the with block, by scope_profiler._source.block_text(file, line)
        source_path: Callable[[str], str] | None = None,  # the file name as it is to be stored
        spool: str | None = None,  # path of a file to make, in which the run survives its process
        spool_output: str | None = None,  # told in it: where the run will be written
        spool_limit: int = 0,  # bytes; recording stops there. 0: no limit
        spool_newest: bool = False,  # or, at the limit, the oldest calls go
        spool_ends_with_name: bool = False,  # recording stops once the spool was removed
        instrument: tuple[Callable[[str], object], Callable[[str, Any, int], object]] | None = None,
        perf_events: Sequence[str] | None = None,
    ) -> Run:
        """Start a run; every region of this recorder, old objects included, records into it. Replaces an earlier run.

        ``instrument``: called at every call, with its region's name; what the first returns at the entry, unless None, is given to
        the second at the exit, with the ticks at which the call started, and if that returns a true value, the call ends only then.
        ``perf_events`` (names): count them by region; PerfEventError where the kernel does not.
        """
    def close(self) -> None:
        """Recording off. The run can still be collected."""
    def install_hooks(self) -> None:
        """Follow threads and tasks of the open run (open() does). Idempotent."""
    def trace_functions(self, chooser: Callable[[str, str], str | None] | None) -> None:
        """Calls of Python functions inside of regions are calls of regions too (function_tracer.h)."""
    def stop_tracing(self) -> None:
        """Trace no functions any more; calls that are open stay so."""
    def remove_hooks(self) -> None:
        """Follow no more threads and tasks; regions go on recording."""
    def forget(self) -> None:
        """close(), and drop the run and the regions that nothing outside holds."""
    def host_native(self) -> None:
        """What native code records in this process goes into the runs of this recorder from now on."""
    def native_metadata(self) -> dict[str, str]:
        """What native code has set in the current run, if this recorder hosts it."""
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def refilter(self, enabled: Callable[[str, tuple[str, ...]], bool] | None) -> None:
        """Decide again which regions record (they ask at their next entry)."""
    def add(self, name: str, tags: Iterable[str] | None = None, /) -> Region:
        """The region called ``name``; made when new, without a file and line. ``tags``: None does not check them."""
    def adopt(self, region: Region) -> Region:
        """List a region of an earlier run with those of the current one; returns the one that has the name now."""
    def regions(self) -> list[Region]:
        """Every region of the current run, in order of creation."""

class OpenCall:
    """A call that goes on until :meth:`end`. One that is dropped without it is never reported."""

    start: int  # ticks
    lane: int  # key, as of Run.lane()
    def end(self, region: Region | None, only_innermost: bool = False, /) -> bool:
        """The call ends now, and is one of ``region`` (None: of the one it began with).

        With ``only_innermost`` a call that others on its lane are still inside of is left alone, and the answer is False.
        """

def begin_call(region: Region, /) -> OpenCall | None:
    """Open a call on the lane that the caller is on; None when nothing is recorded."""

class TraceMode:
    """Within it, functions that the calling thread calls are traced as the run says (0), always (1) or never (2)."""

    def __init__(self, mode: int, /) -> None: ...
    def __enter__(self) -> TraceMode: ...
    def __exit__(self, *exc: object) -> None: ...

def wrap(
    recorder: Recorder,
    function: Any,
    name: str | None = None,
    tags: Any = None,
    annotate: Callable[..., Callable[[str, int, int, int, BaseException | None], object]] | None = None,
    recursive: bool | None = None,
) -> Any:
    """``function`` as a profiled callable of its own kind (decorator.c).

    A staticmethod, classmethod, property, cached_property or partialmethod is rebuilt around a profiled function; any other
    callable becomes a ProfiledFunction, ProfiledDescriptor or ProfiledCallable. ``name`` is by default the function's
    ``__name__``. A call of a coroutine function, generator function or asynchronous generator function is recorded from
    the first step of its body to the end of it; one made while nothing records returns the undecorated object.
    TypeError: not callable. ValueError: a name or tag that cannot be stored.

    annotate, if given, is called before every recorded call with the call's arguments; what it raises reaches the caller
    instead of the call. What it returns is called after it, as finish(region_name, lane, start_ticks, end_ticks,
    exception_or_None); start_ticks is the recorded start, end_ticks is taken just after the recorded end. What that raises
    goes to sys.unraisablehook.
    """

class ProfiledFunction:
    """What ``wrap`` makes of a callable that binds as a method. isinstance() takes it for a function."""

    __wrapped__: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...

class ProfiledDescriptor:
    """What ``wrap`` makes of a callable with another ``__get__``."""

    __wrapped__: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...

class ProfiledCallable:
    """What ``wrap`` makes of a class, a built-in or another callable. A class stays good for isinstance and as a base."""

    __wrapped__: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# -- asyncio tasks (task_wrapper.c) ----------------------------------------------------------------------------------------

class TaskHook:
    """Stands before ``create_task`` or a task factory: the coroutine it hands on carries the lanes of all followed runs."""

    __wrapped__: Any
    def __init__(self, original: Callable[..., Any], position: int) -> None:
        """``original`` takes the coroutine as its positional argument ``position``, or as ``coro``."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def follow_tasks(run: Run) -> int:
    """From now on TaskHooks make lanes of ``run``. How many runs they serve."""

def unfollow_tasks(run: Run) -> int:
    """They make none any more; delegates of pending tasks only pass on. How many runs are left."""

def use_asyncio(asyncio: ModuleType) -> None:
    """Where the region path asks for the task that runs without a delegate."""

# -- profiles (profile_object.c) -------------------------------------------------------------------------------------------

class Profile:
    """A collected run (src/analysis/profile.h). Immutable; columns are shared with the arrays made from them."""

    calls: int  # that it tells of, singly or by their sums
    call_count: int  # in the columns
    aggregate: bool
    summary_only: bool
    nested: bool
    schema: int
    names: list[str]
    # (name_index, rank, first, count, source_file | None, source_line | -1, source_text | None, tags: tuple[str, ...],
    #  event_metadata JSON text | None, exclusive_total_ns | -1, statistics | None, aggregate | None,
    #  percentiles | None)
    # statistics: (total, minimum, maximum, first, last, start_minimum, end_maximum, gpu_count, gpu_total, mean, m2)
    # aggregate: (count, total, minimum, maximum, exclusive)
    # percentiles: (p50, p95, p99) of the durations in ns, float, interpolated as numpy does
    rows: list[tuple[Any, ...]]  # made at each access; row() and row_keys() for what need not see all of them
    row_count: int
    def row(self, index: int) -> tuple[Any, ...]: ...
    def row_keys(self) -> tuple[array[int], array[int]]:
        """int64 name index and int64 rank of every row."""
    # columns of the file's thread_table / task_table: array.array of int64, and lists of str for name, kind, coro_name;
    # None when the run did not track (tasks: or had none)
    threads: dict[str, Any] | None
    tasks: dict[str, Any] | None
    processes: dict[str, Any] | None  # columns of the process_table; None in files that have none
    metadata: dict[str, Any]
    # {rank: group}, group = {"attributes": {name: value}, "datasets": {name: (shape, array.array of q, Q or d | list[str])}, "groups": {name: group}}
    aux: dict[int, dict[str, Any]]
    def column(self, name: str) -> memoryview | None:
        """int64 column of call_count values: start_ns end_ns call_ids parent_ids thread_ids task_ids await_ns gpu_ns.

        A read-only view of the profile's own memory, which it keeps alive; None when the run has no such column.
        """

def make_profile(
    *,
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    columns: Mapping[str, Buffer],
    threads: Mapping[str, Any] | None = None,
    tasks: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    aux: Mapping[int, Any] | None = None,
    aggregate: bool = False,
    nested: bool = True,
    summary_only: bool = False,
    schema: int = 0,
) -> Profile:
    """A Profile from Python values in the forms that Profile gives them; columns are copied and checked.

    The last item of a row (percentiles) may be left out. ValueError names the region or column that does not fit, and a
    text that no file can hold (with a NUL or a lone surrogate). A Profile pickles.
    """

# -- native traces (trace_object.c) ------------------------------------------------------------------------------------

def read_trace(path: str | os.PathLike[str], /) -> tuple[int, Profile]:
    """The rank and the calls of a ``.spt`` file. TraceFormatError, OSError."""

def find_traces(inputs: Sequence[str | os.PathLike[str]], /) -> list[str]:
    """Native output in files and directories, each file once. FileNotFoundError."""

def load_traces(paths: Sequence[str | os.PathLike[str]], label: str | None = None, /) -> Profile:
    """Files of any native format as one profile. TraceFormatError (also for a rank that two have), OSError."""

def read_samples(path: str | os.PathLike[str], /) -> tuple[int, int, int, list[str], list[tuple[str, int]], bytes]:
    """(rank, hz, ticks, regions, [(module, base)], samples of (int32 region, int32 module, uint64 address)) of a ``.sps`` file."""

# -- profiles, continued -----------------------------------------------------------------------------------------------

def stack_profiles(profiles: Sequence[Profile], names: Sequence[str | None], *, align: bool = False) -> Profile:
    """Processes side by side in one Profile, their ranks counted on where two share one; ``align`` moves their times onto the
    clock of the first. ValueError."""

class RankLink(Protocol):
    """How this rank reaches the others."""

    rank: int
    size: int
    patience: float  # seconds to wait for another rank
    def send(self, to: int, data: memoryview, seconds: float) -> bool:
        """Bytes to a rank, in order; False when the time is over."""
    def receive(self, source: int, data: memoryview, seconds: float) -> bool:
        """Fill ``data`` with the next bytes from a rank; False when the time is over."""

# All three are collective. A problem of any rank is raised on every rank, and names it; the exception's ``missing`` tells
# whether it was only that a rank did not arrive, ``written`` whether this rank's calls are in the file all the same, and
# ``cut_off`` whether this rank heard nothing from rank 0.
def share_ranks(link: RankLink, data: bytes) -> tuple[bytes, str | None]:
    """``data`` of all ranks, one after the other, on every rank; and which rank is missing, in words."""
def sync_ranks(run: Run, link: RankLink) -> None:
    """Compare the clocks of the ranks with rank 0's, as the start of the run."""
def collect_ranks(profile: Profile, link: RankLink) -> Profile | None:
    """The profiles of all ranks as one, on rank 0; None on the others."""
def write_ranks(profile: Profile, path: str, link: RankLink, *, compression: str | None = None, level: int | None = None,
                chunk_size: int | None = None, run: Run | None = None) -> None:
    """Write the profiles of all ranks to one file, all at once. ``run``: as of ``write_h5``."""
def finish_ranks(run: Run, link: RankLink, meet: Callable[[int], tuple[str, Profile] | None], files: list[str], *,
                 compression: str | None = None, level: int | None = None, chunk_size: int | None = None) -> Profile | None:
    """``collect``, ``write_ranks`` and ``confirm`` in one, in bounded memory. Other ranks may call ``write_ranks`` instead.

    ``meet`` is called with the number of this rank's calls, once they are chosen. It returns the path and a Profile with the metadata
    and groups that the file gets; or None, and nothing is written. The path is added to ``files`` once the file is in its place.

    The Profile is without its calls. None, and nothing is done, if calls were collected that are not confirmed. After an exception with
    ``written`` the calls are confirmed, after any other the run still has all of them.
    """
def replace_profile(profile: Profile, *, metadata: Mapping[str, Any] | None = None,
                    event_metadata: Mapping[int, str] | None = None, aux: Mapping[int, Any] | None = None,
                    gpu_ns: Buffer | None = None) -> Profile:
    """The same profile (columns shared, not copied) with other metadata, event metadata for rows by index, groups by rank, or
    GPU times of the calls (int64, -1: none)."""

# -- files (hdf5_object.c) ---------------------------------------------------------------------------------------------

def read_h5(path: str, *, summary: bool = False, regions: Sequence[str] | None = None,
            ranks: Sequence[int] | None = None, head: bool = False, fd: int = -1) -> Profile:
    """The profile in an HDF5 file of schema 1, 2 or 3.

    summary: rows with counts, statistics and percentiles, and the sums by call path, without reading the calls.
    head: such a summary of a file whose calls can be read later, else SummaryDataUnavailable.
    fd: an open descriptor of the file, which stays open.
    FileNotFoundError, OSError (cannot be read), CorruptProfileError (damaged, inconsistent or not a profile; names the file
    and the dataset), HDF5SchemaError, SummaryDataUnavailable (summary=True and the file has none).
    """

def finish_h5(run: Run, path: str, description: Profile, files: list[str], *, compression: str | None = "auto",
              level: int | None = None, chunk_size: int | None = None) -> Profile | None:
    """``collect``, ``write_h5`` and ``confirm`` in one, in bounded memory; the file gets the metadata and groups of ``description``.

    The path is added to ``files`` once the file is in its place.

    The Profile is without its calls. None, and nothing is done, if calls were collected that are not confirmed. OSError and MemoryError: the run still has all of its calls.
    """

def write_h5(profile: Profile, path: str, *, compression: str | None = "auto", level: int | None = None,
             chunk_size: int | None = None, run: Run | None = None) -> None:
    """Write schema 3 to a temporary file beside ``path``, fsync, rename. OSError names the path; the old file survives.

    run: the run whose last collection this is, so that its spool knows of the file.

    compression: None or "auto" (ours), "none", "gzip" (level 0-9), "lzf", "zstd" (level 1-22); ValueError for others.
    """

def is_planted_link(path: str | os.PathLike[str], /) -> bool:
    """Whether there is a link that another user put into a directory that everybody may write to (sticky): it is not to be followed."""

def check_output(path: str) -> None:
    """OSError if a file could not be written to ``path`` now; makes nothing. For errors as early as possible."""

# -- call tree (call_tree_object.c) --------------------------------------------------------------------------------------

def call_tree(
    regions: Sequence[tuple[Buffer | None, ...]], names: Sequence[str], clamp: bool = False
) -> tuple[Any, ...]:
    """Order and nest the calls of regions, given as int64 (start_ns, end_ns, thread or None, task or None[, id or None]).

    Ids spare the sort where they are call ids of a recorded run; wrong ones do no harm.

    Returns writable int64 buffers in call order: (region, call, start_ns, end_ns, depth, parent, exclusive_ns, lane);
    lane is None when no region has threads. See src/analysis/call_tree.h. NestingError names the calls with ``names``; with
    ``clamp`` there is none. ValueError: columns of different lengths.
    """

def call_overlaps(regions: Sequence[tuple[Buffer | None, ...]], names: Sequence[str]) -> list[tuple[int, str]]:
    """The lanes (-1: no lanes) of which calls overlap without nesting, and of each a sentence that names the first two."""

def profile_tree(profile: Profile, rank: int, clamp: bool = False) -> tuple[Any, ...]:
    """The same over the calls of a rank of a profile; ``region`` holds indices of profile rows."""

def profile_exclusive(profile: Profile, rank: int, clamp: bool = False) -> Buffer:
    """Exclusive ns of every call of a rank, in column order: the calls of its rows, row by row."""

def union_profiles(profiles: Sequence[Profile]) -> Profile:
    """Different runs side by side (src/analysis/merge.h). ValueError names a region that two of them have."""

def merge_profiles(profiles: Sequence[Profile]) -> Profile:
    """Parts of one run put together, with the call tree made again (call ids from 0)."""

# -- exports (export_object.c) -------------------------------------------------------------------------------------------

def export_profile(profile: Profile, path: str, format: str, name: str, ranks: Sequence[int],
                   names: Sequence[bool] | None = None, flat: bool = False, by_lane: bool = False) -> None:
    """Write ``path`` in another format, whole or not at all; compressed if it ends in ``.gz``.

    format: "speedscope", "chrome_trace", "perfetto", "pstats" (of one rank), "folded", "csv". name: of the run, for people.
    names: one bool per profile name, False leaves a region out. flat: an entry a region, not a call path (pstats). by_lane:
    threads and tasks apart (folded). OSError names the path; ValueError if the profile was read without its calls.
    """

HAS_VIEWER: bool  # whether this build can write pages

def export_html(runs: Sequence[tuple[Profile, str, Sequence[int], Sequence[bool] | None]], path: str, options: str = "{}",
                calls: bool = True) -> None:
    """Write a page that shows runs, given as (profile, name, ranks, names), in a browser; whole or not at all.

    options: a JSON object for viewer/src/report.ts. calls: False leaves out the single calls. OSError names the path;
    ValueError: this build has no viewer.
    """

def call_paths(profile: Profile, rank: int, names: Sequence[bool] | None = None) -> list[tuple[int, int, int, int, int, int]]:
    """Nodes (row, parent | -1, calls, outermost calls, total_ns, exclusive_ns): see src/analysis/call_paths.h."""

def trace_origin(profile: Profile, ranks: Sequence[int], names: Sequence[bool] | None = None) -> int:
    """The ns that times of traces count from: see src/analysis/lane_events.h."""

def write_file(path: str, pieces: Iterable[Any]) -> None:
    """Put the pieces in the place of a file, whole or not at all; compressed if the name ends in ``.gz``. OSError names the path.

    A piece is bytes, or a buffer of int64, which is written as numbers with commas between them.
    """

def strict_json(text: str) -> bytes:
    """A valid JSON text as UTF-8, with null for the NaN and infinities that Python writes."""

# -- summary by call path (path_summary_object.c) ------------------------------------------------------------------------

def path_summary(profile: Profile, *, names: Sequence[bool] | None = None, ranks: Sequence[int] | None = None,
                 percentiles: Sequence[float] = ()) -> tuple[Any, ...]:
    """Calls by call path: (nested, clamped, nodes, rows, threads, percentiles); see src/analysis/path_summary.h.

    names: one bool per profile name, False leaves a region out. Times in ns, -1: unknown. percentiles ascend.
    nodes: [(name_index, parent | -1)]; rows: [(node, rank, count, recursive, inclusive, exclusive, covered, statistics, awaiting)];
    threads: [(rank, thread, count, covered)]; percentiles: [[float, ...] per node], or None if not asked for.
    """

def percentiles(chunks: Sequence[tuple[Buffer, Buffer]], ranks: Sequence[float]) -> list[float]:
    """Percentiles, in ns, of the durations of calls given as int64 (start_ns, end_ns) buffers; ``ranks`` ascend."""

# -- stacks between regions (stack_sampler.c) ------------------------------------------------------------------------------

class StackSampler:
    """Looks at the stacks of all Python threads, until :meth:`stop`. None in builds without the GIL.

    OSError: there can be no thread.
    """

    lost: int  # samples for which there was no memory
    def __init__(self, run: Run, hz: float) -> None: ...
    def stop(self) -> None:
        """Look no more. Idempotent; what was seen stays."""
    def collect(self) -> tuple[
        list[tuple[str, int, int]], list[tuple[int, str, str, int]], list[tuple[int, str | None, int, int, int, int, int]]
    ]:
        """(threads, stacks, samples), of what is not confirmed: [(name, row index | -1, native id | -1)],
        [(caller | -1, function, file, first line)] and [(thread, region | None, stack, line, samples, ns, CPU ns)]."""
    def confirm(self) -> None:
        """What was collected last is safe, and is not collected again."""

# -- spools (spool_object.c) --------------------------------------------------------------------------------------------

def read_spool(path: str, rank: int = 0, /) -> tuple[Profile, dict[str, Any]]:
    """What a spool holds that no file has, and {"open_calls", "damaged_bytes", "limited", "incomplete", "values"}.

    ``values``: what was noted of single calls, as (region of an outcome or None, number of a scope, lane, start ns, end ns or None,
    JSON text); and the lane of each call in column order, int64, as bytes.
    """

def inspect_spool(path: str) -> dict[str, Any]:
    """{"pid", "alive", "track_threads", "track_async", "start_ns", "output"} of a spool."""

def watch_spool(path: str) -> Any:
    """What looks at the spool of a running process, for the three functions below. FileNotFoundError, OSError, ValueError."""

def watch_look(watch: Any) -> int:
    """Read what is new in the spool; how many slots and notes that were."""

def watch_text(watch: Any, sort: str, rows: int, keys: bool, paused: bool, /) -> str:
    """The last look as lines of text, regions in the order of a key: t, c, r, o or n."""

def watch_facts(watch: Any) -> dict[str, Any]:
    """The last look: {"pid", "alive", "output", "running_ns", "all_tasks", "regions", "threads", "tasks", "children"}."""

def spool_of_process(pid: int, /) -> str:
    """The newest spool that a process has mapped. ValueError that says in words for people why there is none."""

def spool_is_local(directory: str) -> bool:
    """Whether the directory's file system is local."""

# -- native code (native.c) ---------------------------------------------------------------------------------------------

_C_API: Any  # capsule "scope_profiler._core._C_API": the struct sp_host of include/scope_profiler.h
