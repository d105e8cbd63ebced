"""What all ranks of an MPI run do together at ``finalize()``: one file, or one result on rank 0.

Every function is collective. A problem of any rank is raised on every rank, with a message that names the rank; when the only
problem is that ranks did not arrive, the others are written first.
"""

from __future__ import annotations

import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._core import Profile, Run
    from ._mpi import Link
    from .profile_config import ProfilingConfig

__all__ = ["Team", "begin"]

_SUMMED = ("overhead_calls", "overhead_ns")  # in the metadata, over all ranks


def begin(config: ProfilingConfig) -> None:
    """Look whether this process is a rank, at the start of its run, and let the configuration know."""
    from ._mpi import environment_rank, find_link, is_child, rank_path

    config.link = find_link(config.mpi_timeout)
    config.comm = config.link.comm if config.link is not None else None
    launched = None if is_child() else environment_rank()
    together = config.link is not None and config.link.size > 1
    if config.link is not None and together:
        config.metadata.update(mpi_rank=config.link.rank, mpi_size=config.link.size)  # for a recovered spool
    if not together and launched is not None and (launched[1] > 1 or launched[0] > 0) and config.writes_file:
        from .recording import warn

        rank = launched[0]
        config.file_path = rank_path(config.file_path, rank)
        many = f"{launched[1]} processes" if launched[1] else "several processes"
        warn(
            f"a launcher started {many}, and each of them is on its own (SCOPE_PROFILER_MPI is off, or mpi4py is missing or "
            f"belongs to another MPI); rank {rank} writes {config.file_path}"
        )


class Team:
    """The ranks at one ``finalize()``, and what each of them has."""

    def __init__(self, link: Link, calls: int, metadata: Mapping[str, Any]) -> None:
        import json

        self._link = link
        own = {"rank": link.rank, "host": os.uname().nodename, "calls": calls}
        own.update((name, metadata[name]) for name in _SUMMED if name in metadata)
        shared, self.missing = _core.share_ranks(link, json.dumps(own).encode() + b"\n")
        self.members: list[dict[str, Any]] = [json.loads(line) for line in shared.splitlines()]
        self.calls = sum(int(member["calls"]) for member in self.members)

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """``metadata`` of one rank with what only all know."""
        size = self._link.size
        nodes = len({member["host"] for member in self.members})
        threads = int(metadata.get("omp_num_threads", 1))
        metadata.pop("mpi_rank", None)  # the file is of all ranks
        sums = {name: sum(int(member.get(name, 0)) for member in self.members) for name in _SUMMED}
        return {**metadata, **sums, "mpi_size": size, "num_nodes": nodes, "total_cores": size * threads}

    def collect(self, profile: Profile) -> Profile | None:
        """The profiles of all ranks as one, on rank 0."""
        return _core.collect_ranks(profile, self._link)

    def write_h5(self, profile: Profile, run: Run, path: str, **compression: Any) -> None:
        """All profiles into one HDF5 file. ``profile`` is what ``run`` collected last."""
        _core.write_ranks(profile, path, self._link, run=run, **compression)

    def agree(self, problem: BaseException | None) -> None:
        """Raise on every rank what rank 0 met, if it met something."""
        text = f"{type(problem).__name__}: {problem}".encode() if problem is not None and self._link.rank == 0 else b""
        told, _ = _core.share_ranks(self._link, text)
        if problem is not None:
            raise problem
        if told:
            raise OSError(f"rank 0: {told.decode()}")
