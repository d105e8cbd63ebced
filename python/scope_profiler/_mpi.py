"""Whether this process is one of several MPI ranks, and how ranks reach each other.

MPI is looked at when a run starts, never before: importing the package, decorating and making regions leave it alone. The
answer is, in this order: the environment variable ``SCOPE_PROFILER_MPI`` (1/true/yes/on or 0/false/no/off), a launcher's
variables in the environment, ``mpi4py.MPI`` loaded and initialised. A child that ``multiprocessing`` or a fork made is no rank,
although it inherits the launcher's variables.

Messages go over the process's own ``COMM_WORLD`` under a tag of their own: making a communicator is collective, and would hang
where a rank is missing.
"""

from __future__ import annotations

import os

from .settings import path_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Link", "environment_rank", "find_link", "is_child", "might_be_rank", "rank_path"]

VARIABLE = "SCOPE_PROFILER_MPI"
TIMEOUT_VARIABLE = "SCOPE_PROFILER_MPI_TIMEOUT"

# (rank, size) of launchers; the size may be told under another name or not at all.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", ""),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("ALPS_APP_PE", ""),
    ("PALS_RANKID", "PALS_SIZE"),
)

_TAG = 22_871  # below the smallest upper bound that MPI allows (32767); nothing else should use it
_SHORTEST, _LONGEST = 20e-6, 2e-3  # seconds between two looks

_loaded_by = 0  # the process that first asked for MPI here


class Link:
    """This rank among the others: what the core needs to send bytes between them."""

    def __init__(self, mpi: Any, patience: float) -> None:
        self._mpi = mpi
        world = mpi.COMM_WORLD
        self.comm = getattr(world, "communicator", world)  # not one whose calls are recorded
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self.patience = patience

    @property
    def open(self) -> bool:
        """Whether messages can be sent: MPI is initialised and not finalized."""
        return bool(self._mpi.Is_initialized() and not self._mpi.Is_finalized())

    def send(self, to: int, data: memoryview, seconds: float) -> bool:
        """Bytes to rank ``to``; False if it does not take them within ``seconds``."""
        return self._finish(self.comm.Isend([data, self._mpi.BYTE], to, _TAG), seconds)

    def receive(self, source: int, data: memoryview, seconds: float) -> bool:
        """The next bytes from rank ``source`` into ``data``; False if there are none within ``seconds``."""
        return self._finish(self.comm.Irecv([data, self._mpi.BYTE], source, _TAG), seconds)

    def _finish(self, request: Any, seconds: float) -> bool:
        from time import monotonic, sleep

        until = monotonic() + seconds
        pause = _SHORTEST
        while not request.Test():
            if monotonic() > until:
                request.Cancel()
                request.Free()
                return False
            sleep(pause)
            pause = min(2 * pause, _LONGEST)
        return True


def environment_rank() -> tuple[int, int] | None:
    """Rank and size as a launcher told them in the environment; a size that it did not tell is 0."""
    for rank_name, size_name in _LAUNCHERS:
        rank = _number(os.environ.get(rank_name))
        if rank is not None:
            return rank, _number(os.environ.get(size_name)) or 0
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _asked_for() -> bool | None:
    word = os.environ.get(VARIABLE, "").strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    return False if word in ("0", "false", "no", "off") else None


def is_child() -> bool:
    """Whether this process was forked from one that used MPI, or made by multiprocessing: no rank of its own."""
    import sys

    if _loaded_by not in (0, os.getpid()):
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _wanted() -> bool:
    import sys

    asked = _asked_for()
    if asked is not None:
        return asked
    if is_child():
        return False
    if environment_rank() is not None:
        return True
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and bool(mpi.Is_initialized())


def might_be_rank() -> bool:
    """Whether anything at all speaks of MPI here: a quick look, for programs that have nothing to do with it."""
    import sys

    if VARIABLE in os.environ or "mpi4py.MPI" in sys.modules:
        return True
    return any(rank in os.environ for rank, _ in _LAUNCHERS)


def find_link(patience: float | None) -> Link | None:
    """The link of this rank, None in a process that is on its own. Initialises MPI if it must.

    ``patience``: seconds to wait for another rank; None: as the environment says, else 300. ValueError for an environment
    that says nonsense.
    """
    global _loaded_by
    if not _wanted():
        return None
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # RuntimeError: mpi4py's word for an MPI library that is not there
        return None
    _loaded_by = os.getpid()
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return None
    return Link(MPI, _patience() if patience is None else patience)


def _patience() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    if not text:
        return 300.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"{TIMEOUT_VARIABLE} must be a number of seconds, got {text!r}")
    return seconds


def rank_path(path: str, rank: int) -> str:
    """The name of one rank's own file: ``run.h5`` becomes ``run.rank3.h5``."""
    return path_with(path, f"rank{rank}")
