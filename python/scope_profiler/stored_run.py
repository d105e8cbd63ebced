"""A run in a file, whose calls are read when they are first asked for."""

from __future__ import annotations

import os
import threading

from scope_profiler import _core

#: So many files are kept open at most; a run beyond that is read whole at once.
MOST_OPEN = 64

_open = 0
_lock = threading.Lock()


class StoredRun:
    """The summary of a run (``head``), and the file with the rest of it.

    The file stays open until its calls are read, so that one which takes its place changes nothing.
    """

    __slots__ = ("_descriptor", "_lock", "_path", "_stamp", "_whole", "head")

    def __init__(self, path: str, descriptor: int, head: _core.Profile) -> None:
        """``descriptor`` is taken over."""
        global _open
        self.head = head
        self._path = path
        self._descriptor = descriptor
        self._stamp = _stamp(descriptor)
        self._whole: _core.Profile | None = None
        self._lock = threading.Lock()
        with _lock:
            _open += 1

    @property
    def is_read(self) -> bool:
        """Whether the calls are in memory."""
        return self._whole is not None

    def whole(self) -> _core.Profile:
        """The run with its calls.

        Raises CorruptProfileError if the file is damaged or has been changed in place since it was opened, and OSError if it
        cannot be read.
        """
        with self._lock:
            if self._whole is None:
                if _stamp(self._descriptor) != self._stamp:
                    raise _core.CorruptProfileError(f"{self._path} was changed after it had been opened")
                self._whole = _core.read_h5(self._path, fd=self._descriptor)
                self._close()
            return self._whole

    def _close(self) -> None:
        global _open
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            with _lock:
                _open -= 1

    def __del__(self) -> None:
        # An interpreter that ends may have emptied this module already; the descriptor goes with the process then.
        if os is not None:
            self._close()


def _stamp(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def open_run(path: str) -> StoredRun | None:
    """The run in an HDF5 file; None if the file cannot be opened, or holds no summary that stands for its calls.

    Raises what reading a profile raises.
    """
    if _open >= MOST_OPEN:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return StoredRun(path, descriptor, _core.read_h5(path, head=True, fd=descriptor))
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, _core.SummaryDataUnavailable):
            return None
        raise
