"""What one manager keeps: its recorder, its current run, and what outlives a run."""

from __future__ import annotations

import os

from . import _core
from ._mpi import might_be_rank
from .clock_choice import choose_clock
from .line_functions import LineFunctions
from .recording import ProcessLock, Recording, warn, warn_dropped
from .spooling import open_run
from .tags import ROOT_REGION, TagRules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._core import Region
    from .following import Membership
    from .function_choice import FunctionChoice
    from .modes import Modes
    from .mpi_wrappers import MPIHooks
    from .profile_config import ProfilingConfig
    from .region_handles import RegionHandle
    from .results import ProfilingResults

__all__ = ["ManagerState", "all_states"]

INACTIVE, ACTIVE, FINALIZED = "inactive", "active", "finalized"
_UNTRACED = 2  # functions that the profiler itself calls are none of the program's


class ManagerState:
    """One manager: its recorder, the current run, and what outlives a run."""

    def __init__(self) -> None:
        self.recorder = _core.Recorder()
        self.line_functions = LineFunctions()
        self.recorder.on_functions = self.line_functions.add
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
        self.membership: Membership | None = None  # of a worker whose own session stands in for the run of its parent
        self.stand_in: Callable[[], None] | None = None  # of a run that makes way for one of the program's own: called once it has
        self.mpi_hooks: MPIHooks | None = None  # while MPI calls are recorded
        self.function_choice: FunctionChoice | None = None  # which functions a run with recursive_profile traces; None: all
        self._changing = ProcessLock("setup() or reset()")
        _states.append(_weak(self))

    # -- runs ----------------------------------------------------------------------------------------------------------

    def start(self, config: ProfilingConfig, region_tags: Iterable[str] | None = None, *, replace: bool) -> None:
        """Begin a run, ending the one before. RuntimeError if that is active and not to be replaced."""
        with self._changing.free(), _core.TraceMode(_UNTRACED):
            if self._is_busy() and not replace and self.stand_in is None:
                raise RuntimeError("a run is active already; finalize() it first, or pass replace=True")
            self.cancel_at_exit()
            region_tags = None if region_tags is None else tuple(region_tags)
            before = self.recording
            # Before anything changes, so that a warning that is made an error leaves the run to be finalized.
            warn_dropped(self._calls_to_drop())
            rules = TagRules(config.enable_tags, region_tags)
            recording = None if config.deactivate_profiling else self._open(config, rules)
            if recording is not None and config.follow_processes:
                from .following import Workers

                recording.workers = Workers(self, config, region_tags)
            if recording is None:
                self.recorder.forget()
            config.paused = False
            if before is not None:
                before.abandon()
                self.membership = None if before.inherited else before.membership
            self.config, self.rules, self.recording = config, rules, recording
            self.listening = recording is not None
            self.last_results = None
            self.configured = True
            self.phase = ACTIVE
            made_way, self.stand_in = self.stand_in, None
            self._adopt_kept()
            self._unhook_mpi()
            if recording is not None and config.profile_mpi_calls:
                self._hook_mpi()
            if made_way is not None and before is not None and not before.inherited:
                made_way()

    def _hook_mpi(self) -> None:
        from .mpi_wrappers import MPIHooks

        self.mpi_hooks = MPIHooks(self)
        self.mpi_hooks.install()

    def _unhook_mpi(self) -> None:
        hooks, self.mpi_hooks = self.mpi_hooks, None
        if hooks is not None:
            hooks.remove()

    def _is_busy(self) -> bool:
        """Whether a run is active that a new one would have to replace."""
        if self.phase != ACTIVE or self.recording is None:  # None: profiling is deactivated
            return False
        return not self.recording.inherited and self.recording.membership is None

    def _calls_to_drop(self) -> int:
        """Calls that nobody will report once the current run is gone."""
        recording = self.recording
        if recording is None or recording.inherited or recording.owned_by_session or recording.membership is not None:
            return 0  # the parent, or the session at its exit, will report them
        return recording.unreported()

    def _open(self, config: ProfilingConfig, rules: TagRules) -> Recording:
        if config.output_mode == "parallel" and config.track_threads:
            raise RuntimeError('output_mode="parallel" cannot be combined with track_threads or track_async; "direct" can')
        if might_be_rank():
            from ._ranks import begin

            begin(config)
        if config.follow_processes and config.link is not None and config.link.size > 1:
            raise RuntimeError("follow_processes cannot be combined with several MPI ranks; merge the files of their workers instead")
        choose_clock(config.clock)
        modes = self._begin_modes(config)
        try:
            run = open_run(
                self.recorder,
                config,
                track_threads=config.track_threads,
                track_async=config.track_async,
                aggregate=config.aggregation_mode,
                enabled=rules.filter(),
                buffer_limit=config.buffer_limit,
                capture_source=config.capture_region_source,
                source_path=_source_path(config.metadata_detail),
                **(modes.options() if modes is not None else {}),
            )
        except BaseException:
            if modes is not None:
                modes.end()
            raise
        if modes is not None:
            modes.opened(run)
        run.keep_lanes = self.annotates
        if config.link is not None:
            run.rank = config.link.rank
            if config.mpi_sync_clocks:
                _core.sync_ranks(run, config.link)
        config.track(self.recorder, run)
        if config.recursive_profile:
            self._trace_functions(modes)
        return Recording(run, config, self.recorder.native_metadata, modes)

    def _trace_functions(self, modes: Modes | None) -> None:
        try:
            self.recorder.trace_functions(self.function_choice)
        except BaseException:
            self.recorder.close()
            if modes is not None:
                modes.end()
            raise

    def begin_tracing(self, choice: FunctionChoice) -> None:
        """Record calls of Python functions by this choice, instead of the run's own if it has one."""
        self.recorder.stop_tracing()
        self.recorder.trace_functions(choice)

    def end_tracing(self) -> None:
        """As the run has it."""
        self.recorder.stop_tracing()
        if self.listening and self.config is not None and self.config.recursive_profile:
            self.recorder.trace_functions(self.function_choice)

    def _begin_modes(self, config: ProfilingConfig) -> Modes | None:
        """What the run is to record besides its calls. What is missing for that is an error here, before anything has changed."""
        if not config.has_modes:
            return None
        from .modes import Modes

        modes = Modes(config, self.line_functions)
        if self.recording is not None and self.recording.modes is not None:
            self.recording.modes.end()  # the process has one memray and one LIKWID
        modes.begin()
        return modes

    def forget(self) -> None:
        """Back to before the first setup(). Decorators and definitions stay."""
        with self._changing.free():
            recording = self.recording
            dropped = self._calls_to_drop()
            if recording is not None:
                if recording.owned_by_session and not recording.inherited:
                    dropped = recording.unreported()
                recording.discarded = True
                recording.leave()
                recording.end_spool()
                recording.end_modes()
            self.cancel_at_exit()
            self._unhook_mpi()
            self.recorder.forget()
            self.config = self.recording = self.rules = self.last_results = None
            self.configured = self.listening = False
            self.phase = INACTIVE
        warn_dropped(dropped)

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

    def rejoin(self) -> None:
        """After a session in a worker process that is followed: its calls are its parent's again."""
        if self.membership is not None:
            self.membership.again()

    def stop(self) -> None:
        """Regions record nothing from now on; what they recorded can still be collected."""
        self._unhook_mpi()
        self.recorder.close()
        self.listening = False
        if self.recording is not None:
            self.recording.closed = True
            if self.recording.workers is not None:
                self.recording.workers.uninvite()

    def finalize(
        self,
        recording: Recording | None,
        *,
        verbose: bool,
        return_results: bool,
        native_traces: Any = None,
        verbose_line_profiler: bool = False,
    ) -> ProfilingResults | None:
        """Report ``recording``, with native traces; None is a manager with nothing to report."""
        with _core.TraceMode(_UNTRACED):
            results = self._finalize(recording, verbose, return_results, native_traces, verbose_line_profiler)
        if recording is not None:
            recording.files_before = None  # the last thing: from here on whoever called knows of the file
        return results

    def _finalize(
        self, recording: Recording | None, verbose: bool, return_results: bool, native_traces: Any, verbose_line_profiler: bool
    ) -> ProfilingResults | None:
        is_current = recording is self.recording
        if is_current and self.configured:
            # Not active any more even if it fails: a new run may replace this one, and this one can be tried again.
            self.phase = FINALIZED
        if recording is None:
            if not return_results:
                return None
            self.last_results = _empty_results(self.config)
            return self.last_results
        try:
            results = recording.finalize(
                need_results=verbose or return_results, need_calls=return_results, native_traces=native_traces
            )
        except BaseException:
            if return_results and recording.unwritten is not None:
                self.last_results = recording.unwritten
            if is_current and recording.written_unseen:
                self.cancel_at_exit()  # a second file would replace the one that is there
            raise
        if is_current:
            self.cancel_at_exit()
        if return_results:
            self.last_results = results
        if verbose and results is not None:
            _show(results, recording)
        if verbose_line_profiler:
            recording.print_lines()
        return results if return_results else None

    def finish(self, *, verbose: bool, return_results: bool) -> ProfilingResults | None:
        """The last finalize of the process. Daemon threads may go on, but nothing is recorded any more: nobody would report it."""
        self.stop()
        return self.finalize(self.recording, verbose=verbose, return_results=return_results)

    # -- at exit -------------------------------------------------------------------------------------------------------

    def finalize_at_exit(self) -> None:
        """Register one finalize for the end of the process."""
        import atexit

        pid = os.getpid()

        def at_exit() -> None:
            if os.getpid() == pid:  # a forked child that exits normally is not the end of this run
                if self.recording is not None and self.recording.workers is not None:
                    from .following import wait_for_children

                    wait_for_children()
                self.finish(verbose=True, return_results=False)

        self.at_exit = at_exit
        atexit.register(at_exit)

    def cancel_at_exit(self) -> None:
        """Nothing will be finalized at the end of the process."""
        if self.at_exit is not None:
            import atexit

            atexit.unregister(self.at_exit)
            self.at_exit = None

    # -- pause ---------------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Between pause() and resume()."""
        return self.config is not None and self.config.paused

    def pause(self) -> None:
        """Record nothing; RuntimeError without a configuration, or while a region other than the session's root is open."""
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
        """Record again; RuntimeError without a configuration."""
        if self.config is None:
            raise RuntimeError("resume() needs a run: call setup() first")
        self.recorder.resume()
        self.config.paused = False


_states: list[Any] = []  # weak references to every manager's state, for what concerns them all


def _weak(state: ManagerState) -> Any:
    import weakref

    return weakref.ref(state, _states.remove)


def _source_path(detail: str) -> Callable[[str], str]:
    from .run_metadata import absolute_source_path, short_source_path

    return absolute_source_path if detail == "full" else short_source_path


def _show(results: ProfilingResults, recording: Recording) -> None:
    """Print the summary. That it cannot be printed is no failure of the program that was measured: the run is reported."""
    import sys

    try:
        if recording.files and len(recording.files) == recording.files_before and results.is_root and not len(results):
            print(f"nothing was recorded since {recording.files[-1]} was written, which is as it was")
            return
        results.print_summary()
        for note in (recording.open_note, recording.trace_note):
            if results.is_root and note:
                print(note)
    except BrokenPipeError:
        pass  # nobody reads it any more
    except OSError as error:
        warn(f"cannot print the summary: {error.strerror or error}")
    except ValueError:
        if not getattr(sys.stdout, "closed", False):  # the program has closed it
            raise


def _empty_results(config: ProfilingConfig | None) -> ProfilingResults:
    from .results import ProfilingResults

    return ProfilingResults({}, num_ranks=0, file_path=config.file_path if config else "")


def all_states() -> list[ManagerState]:
    """The state of every manager there is."""
    return [state for state in (reference() for reference in list(_states)) if state is not None]
