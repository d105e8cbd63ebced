"""One run of a manager: from its opening to each collection, file and result.

The order in :meth:`Recording.finalize` is what keeps calls safe: collect, write, and only then tell the core that what was
collected need not be reported again. Whatever fails in between, the next collection has the same calls.
"""

from __future__ import annotations

import os

from .event_metadata import EventMetadata
from .settings import path_with
from .spool_metadata import note_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from ._core import Profile, Run
    from ._mpi import Link
    from ._ranks import Team
    from .following import Membership, Workers
    from .modes import Modes
    from .profile_config import ProfilingConfig
    from .results import ProfilingResults

    Reported = tuple[Profile, str | None, ProfilingResults | None]  # what was collected, the file that has it, results if they are wanted

__all__ = ["ProcessLock", "Recording", "warn", "warn_dropped"]

MANY = 500_000  # calls from which on results get the single ones from the file, when they are asked for
_OPEN_SHOWN = 3  # regions that are named in the note about open calls


class ProcessLock:
    """A lock that a forked child finds free, and that a thread cannot wait for while it holds it itself.

    The second would be a deadlock in a signal handler or an object's finalizer; it is a RuntimeError here. It is used as
    ``with lock.free():``. Such a statement takes a lock of C and knows that it has it in one step; between a method
    ``__enter__`` of our own and its block an exception of a signal handler would leave the lock held for ever.
    """

    __slots__ = ("_locks", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._locks: dict[int, Any] = {}  # by process: its own, and until it is first needed the one of the process that forked

    def free(self) -> AbstractContextManager[object]:
        """The lock, for a ``with`` statement. RuntimeError if this thread has it already."""
        pid = os.getpid()
        lock = self._locks.get(pid)
        if lock is None:
            from _thread import RLock

            lock = self._locks.setdefault(pid, RLock())
            for other in list(self._locks):  # at once: another thread may do the same
                if other != pid:
                    self._locks.pop(other, None)
        if lock._is_owned():
            raise RuntimeError(f"{self._what} is already under way in this thread")
        taken: AbstractContextManager[object] = lock
        return taken


class Recording:
    """A run with its configuration, its metadata scopes, and how much of it has been reported."""

    def __init__(
        self,
        run: Run,
        config: ProfilingConfig,
        native_metadata: Callable[[], dict[str, str]],
        modes: Modes | None = None,
    ) -> None:
        self.run = run
        self.modes = modes  # what it records besides its calls
        self.native_metadata = native_metadata  # what C, C++ and Fortran code of the process says about the run
        self.config = config
        self.events = EventMetadata(run)
        self.files: list[str] = []  # written so far
        self.owned_by_session = False
        self.discarded = False  # by reset()
        self.workers: Workers | None = None  # processes that this run follows
        self.membership: Membership | None = None  # in the run of the parent process, which follows this one
        self.closed = False  # no further calls will start
        self.files_before: int | None = None  # how many there were when the finalize began that has not returned yet; None: it has
        self.unwritten: ProfilingResults | None = None  # of a finalize that failed to write them
        self._lock = ProcessLock("finalize()")
        self._pid = os.getpid()
        self._over = False  # reported after its last call could start
        self._handed_out = 0  # calls that were shown, and go into no file
        self._told = (0, 0)  # unmatched exits and lost calls that a warning has named
        self._told_dropped = 0
        self._told_vanished: int | None = None  # as Run.vanished

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy: the parent has the calls and will report them."""
        return self._pid != os.getpid()

    def unreported(self) -> int:
        """Calls that no finalize has reported, those that are still open included.

        None once the run is over and was reported: what a thread had open at that moment is no loss to warn of.
        """
        if self._over:
            return 0
        reported = self.run.confirmed + self._handed_out
        return max(0, sum(self.run.call_counts().values()) - reported - self.run.dropped[0] - (self.run.vanished or 0))

    def finalize(
        self, *, need_results: bool, need_calls: bool = True, native_traces: Any = None
    ) -> ProfilingResults | None:
        """Report every call that is over and not in a file yet: into the file, as results, or both.

        After an OSError or any other failure the calls are still there, and ``unwritten`` shows them if results were wanted.
        Under MPI this is collective, and the results are those of all ranks on rank 0 and empty on the others. Without
        ``need_calls`` they may be a summary of the file. An exception of a signal handler (Ctrl-C) may come when the file is in its
        place already: the next finalize then goes on behind that, if ``files_before`` has not been set to None. Problems of the recording (calls that do not nest, exits without a call) become RuntimeWarnings at the very end,
        when everything is safe.
        """
        with self._lock.free():
            try:
                profile, results = self._finalize(need_results, need_calls, native_traces)
            except BaseException as error:
                if getattr(error, "written", False) and self.closed:
                    self.end_spool()  # other ranks are missing, this one is in a file
                self._tell_unsaved()
                raise
            problems = self._problems(profile)
        for problem in problems:
            warn(problem)
        return results if need_results else None

    def _finalize(
        self, need_results: bool, need_calls: bool, native_traces: Any
    ) -> tuple[Profile, ProfilingResults | None]:
        self.unwritten = None
        if self.written_unseen:
            self._catch_up()
        else:
            self.files_before = len(self.files)
        if self.modes is not None:
            self.modes.before_collection()
        link = self._others()
        reported = None
        if self._streams(native_traces):
            reported = self._finish(need_results, need_calls) if link is None else self._finish_together(link, need_results, need_calls)
        if reported is None:
            reported = self._collect_and_report(link, need_results, need_calls, native_traces)
        profile, path, results = reported
        if path is None and self.config.writes_file and need_results and self.written_unseen:
            results = self._read_back(self.files[-1], need_calls)  # there was nothing to write that is not in a file
        if self.workers is not None:
            self.workers.confirm(written=path is not None)
            if self.closed:
                self.workers.end()
        if path is not None and self.closed:
            self.end_spool()
        elif path is not None:
            note_metadata(self.run, self.config)  # the program may have added to it
        self._over = self.closed
        if self.closed:
            self.end_modes()
        return profile, results

    @property
    def written_unseen(self) -> bool:
        """Whether a finalize was interrupted when its file was in its place: whoever called it has only seen the exception."""
        return self.files_before is not None and len(self.files) > self.files_before

    def _catch_up(self) -> None:
        """What such a finalize had still to do. Each can be done twice."""
        self._confirm_modes()
        if self.workers is not None:
            self.workers.confirm(written=True)

    def _tell_unsaved(self) -> None:
        """Nothing could be written: say what goes if the process ends now, which is what its spool had no room for."""
        unsaved = self.run.unsaved
        if unsaved:
            why = "had no room" if self.run.vanished is None else "was cut off, or its disk failed"
            warn(
                f"{_count(unsaved, 'call')} {'is' if unsaved == 1 else 'are'} in no file and not in the spool, which {why}: "
                f"{'it is' if unsaved == 1 else 'they are'} lost if the process ends before finalize() succeeds"
            )
        lost = self._without_memory - self._told[1]
        if lost > 0:
            self._told = (self._told[0], self._told[1] + lost)
            warn(self._lost_text(lost))

    def _collect_and_report(self, link: Link | None, need_results: bool, need_calls: bool, native_traces: Any) -> Reported:
        """Through columns in memory: the profile as it was written, the path if there is one, and the results."""
        mark = self.events.mark()
        profile = recorded = self._describe(self.run.collect())
        if native_traces:
            profile = self._join_traces(recorded, native_traces, need_results)
        if self.workers is not None:
            profile = self.workers.join(profile, over=self.closed, alive=self.config.checkpoint == "replace")
        try:
            path, results = self._report(link, profile, need_results, need_calls)
        except BaseException as error:
            if getattr(error, "written", False):
                self._confirm(mark)
            raise
        if path is not None:
            self._confirm(mark, self.files, path)
        elif not self.config.writes_file:
            self._handed_out = recorded.calls
        return profile, path, results

    def _report(
        self, link: Link | None, profile: Profile, need_results: bool, need_calls: bool
    ) -> tuple[str | None, ProfilingResults | None]:
        """Write the profile, if it goes to a file, and make results of it; the path that was written."""
        if link is not None:
            return self._report_together(link, profile, need_results, need_calls)
        path = self._next_path(profile.calls)
        results = self._results(profile, path) if need_results else None
        if path is not None:
            self._write(profile, results, path)
        return path, results

    def _report_together(
        self, link: Link, profile: Profile, need_results: bool, need_calls: bool
    ) -> tuple[str | None, ProfilingResults | None]:
        try:
            return self._meet(link, profile, need_results, need_calls)
        except BaseException as error:
            self._keep_own(link.rank, error, lambda own: self._write_h5(profile, own))
            raise

    def _meet(
        self, link: Link, profile: Profile, need_results: bool, need_calls: bool
    ) -> tuple[str | None, ProfilingResults | None]:
        from ._core import replace_profile
        from ._ranks import Team

        team = Team(link, profile.calls, profile.metadata)
        profile = replace_profile(profile, metadata=team.describe(profile.metadata))
        path = self._next_path(team.calls)
        if path is not None and self.config.output_format == "hdf5":
            team.write_h5(profile, self.run, path, **self._compression())
            results = self._results_of_file(link, path, need_calls) if need_results else None
            return path, results
        return path, self._gather(team, link, profile, path, need_results)

    def _gather(self, team: Team, link: Link, profile: Profile, path: str | None, need_results: bool) -> ProfilingResults | None:
        """The profiles of all ranks in memory, and from there into the file."""
        everything = team.collect(profile)
        results = None if everything is None else self._results(everything, path)
        problem: BaseException | None = None
        if path is not None:
            if everything is not None:
                try:
                    self._write(everything, results, path)
                except BaseException as error:
                    problem = error
            team.agree(problem)
        if not need_results:
            return None
        return self._nothing(link) if results is None else results

    def _results_of_file(self, link: Link, path: str, need_calls: bool) -> ProfilingResults:
        """What rank 0 has to show is in the file: its memory need not hold the calls of all ranks before."""
        return self._nothing(link) if link.rank else self._read_back(path, need_calls)

    def _read_back(self, path: str, need_calls: bool) -> ProfilingResults:
        from .profile_io import load, read_h5_summary

        return load(path) if need_calls or self.config.output_format != "hdf5" else read_h5_summary(path)

    def _nothing(self, link: Link) -> ProfilingResults:
        from .results import ProfilingResults

        return ProfilingResults({}, num_ranks=link.size, file_path=self.config.file_path, is_root=False)

    def _keep_own(self, rank: int, error: BaseException, write: Callable[[str], object]) -> None:
        """A rank that lost touch with rank 0 writes a file of its own, and says so."""
        from ._mpi import rank_path

        if not getattr(error, "cut_off", False) or not self.config.writes_file:
            return
        own = rank_path(self.config.file_path, rank)
        try:
            write(own)
        except OSError:
            return  # the calls are still here, and in the spool
        error.written = True  # type: ignore[attr-defined]
        if hasattr(error, "add_note"):
            error.add_note(f"scope_profiler: the calls of rank {rank} are in {own}")

    def _others(self) -> Link | None:
        """The link to the other ranks, if there are any; where MPI is over this one is on its own from here on."""
        link = self.config.link
        if link is None or link.size == 1 or self.inherited:
            return None
        if link.open:
            return link
        self._stand_alone(link.rank)
        return None

    def _stand_alone(self, rank: int) -> None:
        """MPI is over: nothing can be sent any more, and four ranks must not write one file."""
        from ._mpi import rank_path

        self.config.link = None
        if self.config.writes_file:
            self.config.file_path = rank_path(self.config.file_path, rank)
            warn(f"MPI was finalized before the profile was: rank {rank} writes a file of its own, {self.config.file_path}")

    def _confirm(self, mark: Any, *file: Any) -> None:
        """What was collected is safe, in ``file``: a list, and the path to add to it."""
        self.run.confirm(*file)
        self._confirm_modes()
        self.events.drop(mark)

    def _confirm_modes(self) -> None:
        """The same of what is recorded beside the calls. Can be done twice."""
        if self.modes is not None:
            self.modes.confirm()

    def abandon(self) -> None:
        """Another run takes the manager over: nobody will report these calls, unless a session does at its end."""
        if self.membership is not None:
            self.leave()
        elif not self.owned_by_session:
            self.end_spool()
            self.end_modes()

    def leave(self) -> None:
        """A run that the parent process follows ends before its process does."""
        if self.membership is not None and not self.inherited:
            self.membership.end()

    def end_spool(self) -> None:
        """The file in which the run survives its process is of no use any more. A forked child leaves it to the parent."""
        self.run.finish_spool(False)
        if self.workers is not None:
            self.workers.end()

    def end_modes(self) -> None:
        """Nothing but calls is recorded from now on. Idempotent."""
        if self.modes is not None:
            self.modes.end()

    @property
    def trace_note(self) -> str:
        """Where the trace of allocations is, in a line for people; empty without one."""
        return f"allocations: {self.config.memory_profile_path}" if self.config.use_memray else ""

    @property
    def open_note(self) -> str:
        """Which calls what was reported last does not have, as they had not ended, in a line for people; empty without any."""
        from .cli.terminal import printable

        names = self.run.open_calls()
        if not names:
            return ""
        shown = sorted(set(names))
        regions = ", ".join(map(printable, shown[:_OPEN_SHOWN])) + (", ..." if len(shown) > _OPEN_SHOWN else "")
        were = "was still open and is" if len(names) == 1 else "were still open and are"
        return f"{_count(len(names), 'call')} {were} not in it: {regions}"

    def print_lines(self) -> None:
        """Print the line profiles of what was reported last."""
        records = self.modes.line_records() if self.modes is not None else []
        if records:
            from .line_tables import print_line_profile

            print_line_profile({self.run.rank: records})

    # -- parts of finalize ---------------------------------------------------------------------------------------------

    def _streams(self, native_traces: Any) -> bool:
        """Whether the calls can go from where they were recorded into the file, without all of them ever being in memory.

        Not so for metadata of calls, for other formats, and for traces and workers' calls that go into the same file.
        """
        config = self.config
        if native_traces or config.aggregation_mode or self.events.used or not config.writes_file or config.output_format != "hdf5":
            return False
        if self.modes is not None and self.modes.needs_columns:
            return False
        return self.workers is None or not self.workers.any

    def _finish(self, need_results: bool, need_calls: bool) -> Reported | None:
        """Write the calls of a run of one process. None, and nothing is done, where they are to be collected: for a small run's
        results, and after a collection whose file could not be written.
        """
        calls = self.run.uncollected
        if calls < MANY and (need_results or self.written_unseen):
            return None  # whether there is anything to write is known when it is collected
        path = self._next_path(calls)
        if path is None:
            return None
        from ._core import finish_h5

        try:
            profile = finish_h5(self.run, path, self._description(self._metadata()), self.files, **self._compression())
        except OSError:
            if need_results:
                self.unwritten = self._results(self._describe(self.run.collect()), path)
            raise
        if profile is None:
            return None
        self._confirm_modes()
        return profile, path, self._read_back(path, need_calls) if need_results else None

    def _finish_together(self, link: Link, need_results: bool, need_calls: bool) -> Reported | None:
        """Write the calls of a rank into the file of all of them; whether the others do the same or collect is their affair.

        None, and nothing is done, after a collection whose file could not be written.
        """
        from ._core import finish_h5, finish_ranks, replace_profile
        from ._ranks import Team

        path: str | None = None
        team: Team | None = None

        def meet(calls: int) -> tuple[str, Profile] | None:
            nonlocal path, team
            metadata = self._metadata()
            team = Team(link, calls, metadata)
            path = self._next_path(team.calls)
            return None if path is None else (path, self._description(team.describe(metadata)))

        try:
            profile = finish_ranks(self.run, link, meet, self.files, **self._compression())
        except BaseException as error:
            own_files: list[str] = []
            self._keep_own(
                link.rank, error, lambda own: finish_h5(self.run, own, self._description(self._metadata()), own_files, **self._compression())
            )
            if getattr(error, "written", False):
                self._confirm_modes()
            raise
        if profile is None or team is None:
            return None
        if path is None:  # no rank has calls that are not in a file
            profile = replace_profile(profile, metadata=team.describe(self._metadata()))
            return profile, None, self._gather(team, link, profile, None, need_results)
        self._confirm_modes()
        return profile, path, self._results_of_file(link, path, need_calls) if need_results else None

    def _description(self, metadata: dict[str, Any]) -> Profile:
        """What a file has besides the calls, as a profile without any."""
        from ._core import make_profile

        aux = self.modes.aux() if self.modes is not None else {}
        return make_profile(names=[], rows=[], columns={}, metadata=metadata, aux=aux)

    def _metadata(self) -> dict[str, Any]:
        from ._core import now_ns

        metadata = dict({**self.native_metadata(), **self.config.metadata}, finalize_time_ns=now_ns())
        calls, ns = self.run.overhead()
        metadata.update(overhead_calls=calls, overhead_ns=int(calls * ns))
        lost = self.run.lost
        if lost:
            metadata["lost_calls"] = lost
        limited = self.run.limited  # recording has stopped, and every call since is missing
        missed = lost - (self.run.vanished or 0)
        dropped, until_ns = (missed, metadata["finalize_time_ns"]) if limited else self.run.dropped
        if dropped:
            metadata.update(dropped_calls=dropped, dropped_until_ns=until_ns)
        if dropped or limited:
            metadata["recording_limited"] = True
        return metadata

    def _describe(self, profile: Profile) -> Profile:
        from ._core import replace_profile

        besides = self.modes.describe(profile) if self.modes is not None else {}
        return replace_profile(profile, metadata=self._metadata(), event_metadata=self.events.texts(profile) or None, **besides)

    def _join_traces(self, profile: Profile, native_traces: Any, need_results: bool) -> Profile:
        from .native_trace import join_traces

        try:
            return join_traces(profile, native_traces)
        except BaseException:
            self.unwritten = self._results(profile, None) if need_results else None
            raise

    def _next_path(self, calls: int) -> str | None:
        """The file to write, if any, for so many calls (of all ranks)."""
        config = self.config
        if not config.writes_file:
            return None
        if (self.closed or self.written_unseen) and self.files and not calls:
            return None  # it is in its file already: an empty one would only replace it
        if config.checkpoint != "numbered":
            return config.file_path
        return path_with(config.file_path, f"{len(self.files) + 1:04d}")

    def _results(self, profile: Profile, path: str | None) -> ProfilingResults:
        from .results import ProfilingResults

        file_path = path or self.config.file_path
        return ProfilingResults._from_profile(profile, file_path=file_path, in_memory=not self.config.writes_file)

    def _write(self, profile: Profile, results: ProfilingResults | None, path: str) -> None:
        try:
            if self.config.output_format == "hdf5":
                self._write_h5(profile, path)
            else:
                from .profile_io import write_profile

                write_profile(results or self._results(profile, path), path)
        except BaseException:
            self.unwritten = results
            raise

    def _write_h5(self, profile: Profile, path: str) -> None:
        from ._core import write_h5

        write_h5(profile, path, run=self.run, **self._compression())

    def _compression(self) -> dict[str, Any]:
        config = self.config
        return {
            "compression": config.hdf5_compression or "none",
            "level": config.hdf5_compression_level,
            "chunk_size": config.hdf5_chunk_size,
        }

    def _way_out(self) -> str:
        """What keeps calls apart that this run did not."""
        if not self.run.track_threads:
            return "track_threads=True (threads) or track_async=True (tasks) keeps them apart"
        if not self.run.track_async:
            return "track_async=True keeps those of tasks and greenlets apart; a generator that is suspended inside of a region does this too"
        return "a generator that is suspended inside of a region does this"

    def _problems(self, profile: Profile) -> list[str]:
        problems = []
        if not profile.nested:
            what = (
                "calls of one thread or task overlap without nesting, so there is no call graph, and while two are open the one that "
                "began last has the time as its own; "
                if self.run.track_threads
                else "calls overlap without nesting, so the call graph and exclusive times are left out; "
            )
            problems.append(what + self._way_out())
        vanished = self.run.vanished
        unmatched, lost = self.run.unmatched - self._told[0], self._without_memory - self._told[1]
        self._told = (self._told[0] + unmatched, self._told[1] + lost)
        if unmatched > 0:
            problems.append(f"{_count(unmatched, 'exit')} of regions belonged to no open call")
        if lost > 0:
            problems.append(self._lost_text(lost))
        if vanished != self._told_vanished:
            problems.append(self._vanished_text((vanished or 0) - (self._told_vanished or 0)))
            self._told_vanished = vanished
        dropped = self.run.dropped[0] - self._told_dropped
        self._told_dropped += dropped
        if dropped > 0:
            problems.append(
                f"the spool reached its limit: {_count(dropped, 'call')}, the oldest, {'was' if dropped == 1 else 'were'} dropped to "
                "keep newer ones"
            )
        if self.modes is not None:
            problems += self.modes.problems()
        return problems

    @property
    def _without_memory(self) -> int:
        """Calls that found no memory: what is lost besides the calls that vanished."""
        return self.run.lost - (self.run.vanished or 0)

    def _vanished_text(self, calls: int) -> str:
        what = f"the spool {self.run.spool_path} was cut off, or its disk failed, while calls were recorded"
        if calls:
            what += f": {_count(calls, 'call')} that {'was' if calls == 1 else 'were'} in it {'is' if calls == 1 else 'are'} missing"
        return what + "; from then on calls were in memory only"

    def _lost_text(self, calls: int) -> str:
        missing = f"{_count(calls, 'call')} found no memory and {'is' if calls == 1 else 'are'} missing"
        return f"recording stopped at the limit of the spool's size: {missing}" if self.run.limited else missing


def warn(message: str) -> None:
    """A RuntimeWarning at the caller's line, whatever lies between in this package."""
    import sys
    import warnings

    level = 2  # of the frame that called this function
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def warn_dropped(calls: int) -> None:
    """Tell that recorded calls are thrown away."""
    if calls > 0:
        warn(
            f"{_count(calls, 'recorded call')} {'was' if calls == 1 else 'were'} never reported and "
            f"{'is' if calls == 1 else 'are'} dropped; finalize() first to keep {'it' if calls == 1 else 'them'}"
        )
