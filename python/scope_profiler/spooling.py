"""Which runs record into a spool, and where it lies.

A spool is a file beside the output in which a run survives its process (docs/spool-format.md). It is removed when the run
has been written; one that is left behind is turned into a profile by ``scope-profiler recover``.
"""

from __future__ import annotations

import os

from . import _core
from .recording import warn
from .spool_metadata import note_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._core import Recorder, Run
    from .profile_config import ProfilingConfig

__all__ = ["SUFFIX", "open_run", "split_name", "worker_directories"]

SUFFIX = ".spool"
VARIABLE = "SCOPE_PROFILER_SPOOL"
LIMIT = "SCOPE_PROFILER_SPOOL_LIMIT"
POLICY = "SCOPE_PROFILER_SPOOL_POLICY"

_number = 0  # of the last spool that this process made
_told: set[str] = set()  # orphans that a warning has named


def open_run(recorder: Recorder, config: ProfilingConfig, **options: Any) -> Run:
    """Start a run of ``recorder``, with a spool where the configuration and the place allow one.

    A spool that cannot be made is a RuntimeWarning, and the run goes on without it. A spool that a process left behind
    beside the output is told once, as a RuntimeWarning too. ValueError for a value of the environment variable that means
    nothing.
    """
    if not config.writes_file:
        return recorder.open(**options)
    try:
        output = os.path.abspath(config.file_path)
    except OSError as error:  # the working directory was removed
        warn(
            f"there is no working directory to write {config.file_path} to ({error.strerror}): the process must be in another one at "
            "finalize(), and until it is written, calls are lost if the process is killed"
        )
        return recorder.open(**options)
    wanted = _wanted(config)
    directory = os.path.dirname(output)
    if not os.path.isdir(directory):
        warn(
            f"there is no directory {directory} to write {os.path.basename(output)} to: it must be there at finalize(), and until it "
            "is written, calls are lost if the process is killed"
        )
        return recorder.open(**options)
    first = config.link is None or config.link.rank == 0
    blocked = first and _tell_blocked(output)
    if not wanted:
        return recorder.open(**options)
    limit, policy = _limit(config)
    if first:
        found = _spools_of(output)
        _tell_orphans(output, [path for path, facts in found if not facts["alive"]])
        if config.link is None:  # ranks have the same output, and write it together
            _tell_rivals(output, [facts["pid"] for _, facts in found if facts["alive"] and facts["output"] == output])
    try:
        run = _open_spooled(recorder, output, limit, policy == "newest", {**options, "spool_ends_with_name": config.followed})
    except OSError as error:
        if config.followed and not os.path.isdir(os.path.dirname(output)):
            raise  # the parent's session is over, and its directory gone: there is nothing to record for
        if not blocked:
            warn(f"calls are lost if the process is killed before they are written: {error.strerror or error}")
        return recorder.open(**options)
    note_metadata(run, config)
    return run


def _tell_blocked(output: str) -> bool:
    """Whether the file could not be written now: links in a circle, a directory without permission."""
    try:
        _core.check_output(output)
    except OSError as error:
        warn(
            f"{output} cannot be written now ({os.strerror(error.errno) if error.errno else error}): it must be possible at finalize(), and calls may be lost if "
            "the process is killed before that"
        )
        return True
    return False


def _wanted(config: ProfilingConfig) -> bool:
    choice = config.spool
    if choice == "auto":
        choice = _environment_choice()
    if choice == "auto":
        directory = os.path.dirname(os.path.abspath(config.file_path))
        return os.path.isdir(directory) and _core.spool_is_local(directory)
    return bool(choice)


_WORDS: dict[str, bool | str] = {
    **dict.fromkeys(("", "auto"), "auto"),
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _environment_choice() -> bool | str:
    word = os.environ.get(VARIABLE, "").strip().lower()
    if word not in _WORDS:
        known = ", ".join(filter(None, _WORDS))
        raise ValueError(f"the environment variable {VARIABLE} is one of {known}, not {os.environ[VARIABLE]!r}")
    return _WORDS[word]


def _limit(config: ProfilingConfig) -> tuple[int, str]:
    """Bytes (0: no limit) and what happens there; the environment chooses where the settings do not."""
    from .settings import check_setting

    limit, policy = config.spool_limit, config.spool_policy
    if limit is None and os.environ.get(LIMIT):
        try:
            limit = check_setting("spool_limit", int(os.environ[LIMIT]))
        except ValueError:
            raise ValueError(f"the environment variable {LIMIT} is a number of bytes, at least a MiB, not {os.environ[LIMIT]!r}") from None
    if policy is None and os.environ.get(POLICY):
        try:
            policy = check_setting("spool_policy", os.environ[POLICY])
        except ValueError:
            raise ValueError(f"the environment variable {POLICY} is stop or newest, not {os.environ[POLICY]!r}") from None
    return limit or 0, policy or "stop"


def _open_spooled(recorder: Recorder, output: str, limit: int, newest: bool, options: dict[str, Any]) -> Run:
    global _number
    while True:
        _number += 1
        path = f"{output}.{os.getpid()}-{_number}{SUFFIX}"
        try:
            return recorder.open(spool=path, spool_output=output, spool_limit=limit, spool_newest=newest, **options)
        except FileExistsError:  # an earlier process with this number left it
            continue


# -- what other processes have beside the output -----------------------------------------------------------------------------


def _spools_of(output: str) -> list[tuple[str, dict[str, Any]]]:
    """The spools beside ``output`` (an absolute path) and what is known of each, the newest last."""
    directory, name = os.path.split(output)
    try:
        entries = os.listdir(directory)
    except OSError:
        return []
    found = []
    for entry in entries:
        if not (entry.startswith(name + ".") and entry.endswith(SUFFIX)):
            continue
        path = os.path.join(directory, entry)
        try:
            facts = _core.inspect_spool(path)
            found.append((os.stat(path).st_mtime_ns, path, facts))
        except (OSError, ValueError):  # not a spool, or not ours to read
            continue
    return [(path, facts) for _, path, facts in sorted(found, key=lambda one: one[:2])]


def worker_directories(spool: str) -> list[str]:
    """What processes that the run of this spool followed left beside it (following.py): directories with something in them."""
    import re

    named = split_name(spool)
    if named is None:
        return []
    directory, output = os.path.split(named[0])
    wanted = re.compile(rf"{re.escape(output)}\.{named[1]}-[0-9]+\.workers")
    paths = (os.path.join(directory, entry) for entry in os.listdir(directory or ".") if wanted.fullmatch(entry))
    return sorted(path for path in paths if _has_entries(path))


def split_name(spool: str) -> tuple[str, str] | None:
    """The output that a spool is of and the number of its process, as :func:`open_run` names it; None of a file by another name."""
    import re

    named = re.fullmatch(r"(.*)\.([0-9]+)-[0-9]+\.spool", spool, re.DOTALL)
    return None if named is None else (named[1], named[2])


def _has_entries(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:  # no directory, or not ours to read
        return False


_EMPTY_BYTES = 4 << 20  # a spool without calls has about one


def _is_empty(path: str) -> bool:
    """Whether the spool of a process that is gone is our own, and holds no call and nothing that could not be understood."""
    try:
        facts = os.stat(path)
        if facts.st_size > _EMPTY_BYTES or facts.st_uid != os.geteuid() or worker_directories(path):
            return False
        profile, found = _core.read_spool(path)
    except (OSError, ValueError):
        return False
    return not (profile.calls or found["damaged_bytes"] or found["incomplete"])


def _tell_rivals(output: str, recording: list[int]) -> None:
    pids = {*recording} - {os.getpid()}
    if pids:
        others = f"process {min(pids)} records" if len(pids) == 1 else f"{len(pids)} other processes record"
        warn(f"{others} to {output} as well: each that finalizes replaces the file of the one before")


def _tell_orphans(output: str, orphans: list[str]) -> None:
    found = []
    for path in orphans:
        if path in _told:
            continue
        if _is_empty(path):
            try:
                os.unlink(path)
            except OSError:
                _told.add(path)  # it stays, and is not worth a word
        else:
            found.append(path)
    if not found:
        return
    import shlex

    _told.update(found)
    others = f" (and {len(found) - 1} older)" if len(found) > 1 else ""
    warn(
        f"a process that recorded to {output} ended before its calls were written; "
        f"they can be had with: scope-profiler recover {shlex.quote(found[-1])}{others}"
    )
