"""Commands that are run with a limit of time and of output, and end with everything that they started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

__all__ = ["Finished", "Stopped", "ending_with_this_process", "profile_script", "run_bounded"]

_groups: set[int] = set()  # of the processes that run

_TAIL = 2000  # characters of the outputs that are kept
_TAIL_BYTES = 4 * _TAIL
_LOOK = 0.05  # s between two looks at whether the process has ended
_GRACE = 2.0  # s between the request to end and the end by force


class Stopped(Exception):
    """The process was ended because nobody waits for it any more."""


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    ``returncode`` is that of ``subprocess``: negative for a signal; None: it took longer than it had, and was ended. The last 2000
    characters of what it wrote are in ``stdout`` and ``stderr``.
    """

    returncode: int | None
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """Why it failed, in a few words: its exit code, and the last line that it wrote on stderr."""
        code = self.returncode
        if code is None:
            how = "took too long"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
        else:
            how = f"failed with exit code {code}"
        lines = self.stderr.strip().splitlines()
        return f"{how}: {lines[-1].strip()}" if lines else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_bounded(command: Sequence[str], timeout: float, stop: Event | None = None) -> Finished:
    """Run ``command`` for at most ``timeout`` seconds, in a process group of its own, without an input.

    When it ends, by itself or because its time is over, whatever is left of its group is ended too. Of its outputs only the ends are
    kept, however much there is. Raises OSError if it cannot be started, and Stopped once ``stop`` is set.
    """
    process = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    _groups.add(process.pid)
    deadline = time.monotonic() + timeout
    tails = _Tails(process)
    try:
        while not _has_ended(process.pid):
            if stop is not None and stop.is_set():
                raise Stopped
            left = deadline - time.monotonic()
            if left <= 0:
                _end_group(process, tails)
                return Finished(None, *tails.texts())
            tails.read(min(left, _LOOK))
        tails.read_rest()
    finally:
        _end_group(process, tails)
        tails.close()
    return Finished(process.returncode, *tails.texts())


@contextmanager
def ending_with_this_process() -> Iterator[None]:
    """While this is entered, a signal that ends this process ends what it runs first. For the main thread."""
    ends = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    numbers = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _end_all)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _end_all(number: int, frame: object) -> None:
    for group in list(_groups):
        _signal_group(group, signal.SIGKILL)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays a zombie, so that nobody else has its number, or that of its group."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes], tails: _Tails) -> None:
    """End what is left of the group: by request, then by force; and wait for the process itself."""
    if process.returncode is not None:
        return
    if not _has_ended(process.pid):
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while not _has_ended(process.pid) and time.monotonic() < deadline:
            tails.read(_LOOK)
    _signal_group(process.pid, signal.SIGKILL)
    _groups.discard(process.pid)  # before its number is free for others
    process.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # nobody is left, or it has become another user's
        pass


class _Tails:
    """The ends of the two outputs of a process. A process that inherited them may keep them open for ever: nobody waits for that."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._selector = selectors.DefaultSelector()
        self._ends: dict[Any, bytes] = {}
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
            self._ends[stream] = b""

    def read(self, seconds: float) -> bool:
        """Take what comes within this time; False if nothing did."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return False
        events = self._selector.select(seconds)
        for key, _ in events:
            stream: Any = key.fileobj
            try:
                piece = os.read(stream.fileno(), 1 << 16)
            except BlockingIOError:
                continue
            if piece:
                self._ends[stream] = (self._ends[stream] + piece)[-_TAIL_BYTES:]
            else:
                self._selector.unregister(stream)
        return bool(events)

    def read_rest(self) -> None:
        """Take what is there already: at most what a pipe holds, and not what others go on to write."""
        for _ in range(64):
            if not self._selector.get_map() or not self.read(0):
                return

    def texts(self) -> tuple[str, str]:
        """The ends of stdout and stderr."""
        stdout, stderr = (end.decode(errors="replace")[-_TAIL:] for end in self._ends.values())
        return stdout, stderr

    def close(self) -> None:
        self._selector.close()
        for stream in self._ends:
            stream.close()


def profile_script(
    script: str | os.PathLike[str],
    arguments: Sequence[str],
    output: str | os.PathLike[str],
    *,
    timeout: float,
    only_user_code: bool = True,
    buffer_limit: int | None = None,
    stop: Event | None = None,
) -> Finished:
    """Run a script with its regions recorded, as ``scope-profiler run -o OUTPUT SCRIPT ARGUMENTS`` does, in a process of its own.

    Where the script has a run of its own, the file is a copy of that. ``only_user_code=False`` records the calls of all functions, those of libraries too.
    """
    import sys

    command = [sys.executable, "-m", "scope_profiler", "run", "-q", "--copy-own-run", "-o", os.fspath(output)]
    if not only_user_code:
        command.append("--all")
    if buffer_limit is not None:
        command += ["--buffer-limit", str(buffer_limit)]
    path = os.fspath(script)
    if path.startswith("-"):
        path = os.path.join(os.curdir, path)
    return run_bounded([*command, "--", path, *arguments], timeout, stop)
