"""A run of a server's own process, for servers that make processes of which the program knows nothing."""

from __future__ import annotations

import os

from .recording import ProcessLock, warn
from .settings import path_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .profile_manager import ProfileManager

__all__ = ["OwnRun"]


class OwnRun:
    """Begins a run in each process that serves, at its first request, into a file that has the process's id in its name.

    It ends with the application (lifespan) or the process. A process that is killed leaves its spool.
    """

    def __init__(self, manager: type[ProfileManager], output: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        from .settings import check_path, unknown_settings

        self._manager = manager
        self._output = check_path("output", output)
        problem = unknown_settings(settings)
        if problem:
            raise TypeError(problem)
        self._settings = settings
        self._lock = ProcessLock("the begin of a run")
        self._pid = 0
        self._recording: Any = None

    def begin(self) -> None:
        """Idempotent, and cheap when it is done."""
        if self._pid != os.getpid():
            with self._lock.free():
                if self._pid != os.getpid():
                    self._start()
                    self._pid = os.getpid()

    def _start(self) -> None:
        import atexit

        state = self._manager._state
        if state.recording is not None and not state.recording.inherited and state.listening:
            return  # the program records itself, or a parent follows this process
        try:
            os.makedirs(os.path.dirname(self._output) or ".", exist_ok=True)
            self._manager.setup(output=self._path(), replace=True, **self._settings)
        except OSError as error:
            warn(f"requests are not recorded: {error}")
            return
        self._recording = state.recording
        atexit.register(self.end)

    def _path(self) -> str:
        path = path_with(self._output, str(os.getpid()))
        number = 1
        while os.path.exists(path):  # of an earlier process with this id
            number += 1
            path = path_with(self._output, f"{os.getpid()}-{number}")
        return path

    def end(self) -> None:
        """Write the file, unless the run is another one's, or over. A forked child leaves it to its parent."""
        recording, self._recording = self._recording, None
        state = self._manager._state
        if recording is None or recording.inherited or recording is not state.recording:
            return
        state.finish(verbose=False, return_results=False)
