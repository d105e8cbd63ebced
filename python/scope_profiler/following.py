"""Runs that follow worker processes (``follow_processes=True``).

A run invites the processes that ``multiprocessing`` starts while it goes on: an invitation lies in the configuration that every
``Process`` copies from the one that makes it, whatever starts it later, and by which processes of processes are invited too.
A process that begins its work with an invitation records into a run of its own, in a directory beside the output: into a
spool there, and into a file when it ends by itself. What it leaves is read by the parent at ``finalize()``, so it does not
matter how it ends. Nobody else pays: without such a run no module of multiprocessing is touched.
"""

from __future__ import annotations

import os

from . import _core
from .recording import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ._core import Profile
    from .manager_state import ManagerState
    from .profile_config import ProfilingConfig
    from .recording import Recording

__all__ = ["Membership", "Workers"]

KEY = "scope_profiler"  # of the invitations in the configuration of a process
LAST = -1_000_000  # among what a process does at its end
ATTEMPTS = 20  # to read a worker that writes its file at the same time

# What workers do as their parent does. Where and how the parent writes is not among it.
_SHARED = (
    "track_threads", "track_async", "aggregation_mode", "recursive_profile", "capture_region_source", "metadata_detail", "buffer_limit", "enable_tags", "clock", "spool_limit", "spool_policy",
    "sample_hz",
)  # fmt: skip

_SUMMED = ("lost_calls", "overhead_calls", "overhead_ns")  # in the metadata, over all processes

_number = 0  # of the last directory that this process made


# -- in the parent ---------------------------------------------------------------------------------------------------------


class Workers:
    """The processes that a run follows: their invitation, and what they leave in the directory.

    Raises OSError if there can be no directory.
    """

    def __init__(self, state: ManagerState, config: ProfilingConfig, region_tags: Iterable[str] | None) -> None:
        self._pid = os.getpid()
        self._temporary = False
        self.directory = self._make_directory(config)
        settings = {name: getattr(config, name) for name in _SHARED}
        tags = None if region_tags is None else tuple(region_tags)
        self._invitation = Invitation(self.directory, settings, tags, state)
        self._taken: dict[str, tuple[list[str], Profile]] = {}  # by the last join: files and profile by worker
        self._kept: dict[str, Profile] = {}  # of workers whose files are gone
        self._ended = False
        self._invite()
        import atexit

        atexit.register(self._at_exit)

    def _make_directory(self, config: ProfilingConfig) -> str:
        global _number
        output = os.path.abspath(config.file_path)
        while config.writes_file:
            _number += 1
            path = f"{output}.{self._pid}-{_number}.workers"
            try:
                os.mkdir(path, 0o700)
                return path
            except FileExistsError:
                continue
            except OSError:
                break  # the run itself has told that its directory is not there
        from tempfile import mkdtemp

        self._temporary = True
        return mkdtemp(prefix="scope_profiler-", suffix=".workers")

    # -- invitations ---------------------------------------------------------------------------------------------------

    def _invite(self) -> None:
        _watch()
        for configuration in _configurations():
            configuration[KEY] = (*configuration.get(KEY, ()), self._invitation)

    def uninvite(self) -> None:
        """Processes that are started from now on are not followed."""
        if os.getpid() != self._pid:
            return
        for configuration in _configurations():
            left = tuple(one for one in configuration.get(KEY, ()) if one is not self._invitation)
            if left:
                configuration[KEY] = left
            else:
                configuration.pop(KEY, None)

    # -- what they recorded --------------------------------------------------------------------------------------------

    def join(self, profile: Profile, *, over: bool, alive: bool) -> Profile:
        """The parent's profile with those of its workers: ranks 1, 2, ... in the order of their start.

        With ``over`` this is the last time; without it, workers that live are included if ``alive``.
        """
        self._taken = {}
        if os.getpid() != self._pid:
            return profile
        reap()
        found = dict(self._kept)
        for worker in self._listing():
            part = self._read(worker, alive=over or alive)
            if part is not None:
                found[worker] = part
        if not found:
            return profile
        workers = [found[worker] for worker in sorted(found, key=_age)]
        names: list[str | None] = [_own_name(), *(_text(one.metadata.get("process_name")) for one in workers)]
        sums = {name: sum(int(one.metadata.get(name, 0)) for one in (profile, *workers)) for name in _SUMMED}
        _add_unmeasured(sums, workers)
        # Whatever else a worker says about itself would be taken for what is said of the whole.
        parts = [
            _core.replace_profile(one, metadata={"start_time_ns": one.metadata["start_time_ns"]}) for one in workers
        ]
        metadata = {**profile.metadata, **{name: total for name, total in sums.items() if total}}
        return _core.stack_profiles([_core.replace_profile(profile, metadata=metadata), *parts], names, align=True)

    @property
    def any(self) -> bool:
        """Whether a worker has left something, or is at work."""
        return os.getpid() == self._pid and bool(self._kept or self._listing())

    def _listing(self) -> dict[str, list[str]]:
        """The files by worker."""
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return {}
        found: dict[str, list[str]] = {}
        for name in names:
            if name.endswith((".h5", ".spool")):
                found.setdefault(name.partition(".")[0], []).append(os.path.join(self.directory, name))
        return found

    def _read(self, worker: str, *, alive: bool) -> Profile | None:
        """All that a worker recorded; None if it lives and is not wanted, or left nothing that can be read."""
        for _ in range(ATTEMPTS):
            files = self._listing().get(worker, [])
            lives = any(map(_is_written, files))
            if lives and not alive:
                return None
            parts = list(_parts(files))
            if not lives or self._listing().get(worker, []) == files:
                break
        if not parts:
            return None
        whole = parts[0] if len(parts) == 1 else _whole(parts)
        if not lives:
            self._taken[worker] = (files, whole)
        return whole

    def confirm(self, *, written: bool) -> None:
        """What join() took is in a file (``written``), or was shown, and will be again: the workers that ended leave nothing else."""
        for worker, (files, profile) in self._taken.items():
            if not written:
                self._kept[worker] = profile
            for path in files:
                _remove(path)
        if written:
            self._kept = {}
        self._taken = {}

    def end(self) -> None:
        """Remove the directory; workers that live find it gone, and record no further."""
        if self._ended or os.getpid() != self._pid:
            return
        import atexit
        from shutil import rmtree

        self._ended = True
        self.uninvite()
        atexit.unregister(self._at_exit)
        rmtree(self.directory, ignore_errors=True)

    def _at_exit(self) -> None:
        # Calls that nobody has reported stay, as those of the parent stay in its spool.
        if os.getpid() == self._pid and (self._temporary or not self._listing()):
            self.end()


def reap() -> None:
    """Let the system forget the children that ended: until then they seem to live."""
    from multiprocessing.process import active_children

    active_children()


def wait_for_children() -> None:
    """As multiprocessing does at the end of a process, but before the last report."""
    from multiprocessing.process import active_children

    for child in active_children():
        if not child.daemon:
            child.join()


def _configurations() -> Iterator[dict[str, Any]]:
    """Those of this process, which new ones copy, and of the processes that are made but not started."""
    from multiprocessing import process

    current = process.current_process()
    yield current._config  # type: ignore[attr-defined]
    for other in list(getattr(process, "_dangling", ())):
        if other is not current and getattr(other, "_popen", None) is None:
            yield other._config


def _own_name() -> str:
    from multiprocessing.process import current_process

    return current_process().name


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _age(worker: str) -> tuple[int, int]:
    start, _, pid = worker.partition("-")
    return int(start), int(pid)


def _is_written(path: str) -> bool:
    """Whether a process writes this spool."""
    try:
        return path.endswith(".spool") and bool(_core.inspect_spool(path)["alive"])
    except (OSError, ValueError):
        return False


def _parts(files: list[str]) -> Iterator[Profile]:
    """What is in the files of a worker, oldest first, each of its calls once."""
    from .spool_profile import recover

    spools = []
    # First: a file that is finished meanwhile then has more than the listing told, which is noticed.
    for path in (one for one in files if one.endswith(".spool")):
        try:
            results, facts = recover(path)
        except (OSError, ValueError):
            continue  # killed before there was anything in it, or removed by its process
        spools.append(results._to_profile())
        if facts["damaged_bytes"]:
            warn(f"{facts['damaged_bytes']} bytes of what a worker process left in {path} could not be understood")
    written = [path for path in files if path.endswith(".h5")]
    for path in written:
        yield _core.read_h5(path)
    yield from (one for one in spools if one.call_count or (one.aggregate and one.row_count) or not written)


def _whole(parts: list[Profile]) -> Profile:
    """Parts of a worker's run as one; of groups beside the calls those of the last part stay, and the samples of all."""
    whole = _core.merge_profiles(parts)
    samples: dict[int, list[Any]] = {}
    for part in parts:
        for rank, root in part.aux.items():
            if "samples" in root["groups"]:
                samples.setdefault(rank, []).append(root["groups"]["samples"])
    if not samples:
        return whole
    from .stack_samples import add_groups

    aux = dict(whole.aux)
    for rank, groups in samples.items():
        root = aux.setdefault(rank, {"attributes": {}, "datasets": {}, "groups": {}})
        root["groups"]["samples"] = add_groups(groups)
    return _core.replace_profile(whole, aux=aux)


def _add_unmeasured(sums: dict[str, int], workers: Iterable[Profile]) -> None:
    """A worker that was killed, or lives, has not measured what its calls cost: they cost what those of the others do."""
    calls, ns = sums["overhead_calls"], sums["overhead_ns"]
    more = sum(one.calls for one in workers if "overhead_calls" not in one.metadata)
    if calls and more:
        sums["overhead_calls"] += more
        sums["overhead_ns"] += ns * more // calls


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        pass


# -- in the worker ---------------------------------------------------------------------------------------------------------


class Invitation:
    """What a process needs to know to take part in the run of another."""

    def __init__(
        self,
        directory: str,
        settings: dict[str, Any],
        region_tags: tuple[str, ...] | None,
        state: ManagerState | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.region_tags = region_tags
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (self.directory, self.settings, self.region_tags)

    @property
    def state(self) -> ManagerState:
        """The manager that records: the one that invited, in a forked process; else the default manager."""
        if self._state is None:
            from .profile_manager import ProfileManager

            self._state = ProfileManager._state
        return self._state


def _receive(directory: str, settings: dict[str, Any], region_tags: tuple[str, ...] | None) -> Invitation:
    """An invitation that came to a new interpreter; what the process will do is not read yet."""
    from multiprocessing.process import current_process

    invitation = Invitation(directory, settings, region_tags)
    _watch()
    if getattr(current_process(), "_inheriting", False):
        _accept(invitation)  # a process that was not forked calls no hook when it begins
    return invitation


class _Anchor:
    """multiprocessing keeps its hooks as long as such an object."""


_anchor = _Anchor()
_watching = False


def _watch() -> None:
    """Have multiprocessing call :func:`_begin` in each forked process that begins to work."""
    global _watching
    if not _watching:
        from multiprocessing.util import register_after_fork

        register_after_fork(_anchor, _begin)
        _watching = True


def _begin(_: object) -> None:
    from multiprocessing.process import current_process

    served: list[ManagerState] = []
    for invitation in reversed(current_process()._config.get(KEY, ())):  # type: ignore[attr-defined]
        if invitation.state not in served:
            served.append(invitation.state)
            _accept(invitation)


def _accept(invitation: Invitation) -> None:
    recording = invitation.state.recording
    if recording is not None and not recording.inherited:
        if recording.membership is not None:
            recording.membership.promise_end()
        if recording.membership is not None or not recording.config.follow_processes:
            return  # at work already, or a run of the program's own, from its import
    if not os.path.isdir(invitation.directory):
        return
    try:
        Membership(invitation).begin()
    except Exception as error:
        if os.path.isdir(invitation.directory):  # else the session has ended meanwhile
            warn(f"this worker process is not followed: {error}")


class Membership:
    """A worker in the run of its parent."""

    def __init__(self, invitation: Invitation) -> None:
        self._invitation = invitation
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._left = False

    def begin(self) -> None:
        """Record from now on. OSError, RuntimeError, ValueError: as of ``setup()``."""
        from multiprocessing.process import current_process

        from .profile_config import ProfilingConfig

        invitation = self._invitation
        path = os.path.join(invitation.directory, f"{_core.now_ns()}-{self._pid}.h5")
        # Files that follow each other: the worker's calls come to the parent whatever the worker does with its manager.
        settings = {**invitation.settings, "spool": True, "checkpoint": "numbered", "hdf5_compression": "none"}
        config = ProfilingConfig(path, **settings)
        config.followed = True
        config.metadata["process_name"] = current_process().name
        state = invitation.state
        last_results = state.last_results
        state.start(config, invitation.region_tags, replace=True)
        self._recording = state.recording
        if self._recording is not None:
            self._recording.membership = self
            state.last_results = last_results
            self.promise_end()

    def promise_end(self) -> None:
        """Have multiprocessing call :meth:`end`. A process forgets such promises as it begins, so it may be needed twice."""
        from multiprocessing.util import Finalize

        Finalize(None, self.end, exitpriority=LAST)

    def end(self) -> None:
        """Leave what was recorded until now for the parent, unless it has ended its run. What comes after it stays in the spool."""
        from multiprocessing.process import current_process

        recording = self._recording
        if recording is None or self._left or os.getpid() != self._pid:
            return
        self._left = True
        if not os.path.isdir(self._invitation.directory):
            recording.end_spool()
            return
        recording.config.metadata["process_name"] = current_process().name
        try:
            recording.finalize(need_results=False)
        except OSError:
            pass  # the spool has it all, and is read instead

    def again(self) -> None:
        """After a session of the worker's own: the next part."""
        self._recording, self._left = None, False
        if os.path.isdir(self._invitation.directory):
            self.begin()
