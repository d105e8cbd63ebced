"""How regions of MPI calls are named, and how large messages are.

A name is ``mpi:<operation> kind=<kind> bytes=<n> peer=<rank> root=<rank> tag=<tag> comm=<number>``, with `` request=<operation>``
after it for what waits for a request. -1 stands for what is not known, or not the same for all calls of the region.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "COLLECTIVE",
    "POINT_TO_POINT",
    "WAIT",
    "MPIRegionMetadata",
    "format_mpi_region",
    "kind_of",
    "message_nbytes",
    "parse_mpi_region",
]

COLLECTIVE, POINT_TO_POINT, WAIT = "collective", "point-to-point", "wait"

_PREFIX = "mpi:"
_NUMBERS = ("bytes", "peer", "root", "tag", "comm")
_WAITS = frozenset(("wait", "waitall", "waitany", "waitsome"))
_COLLECTIVES = frozenset(
    ("barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
     "alltoallw", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan", "neighbor_allgather",
     "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw", "clone", "dup", "dup_with_info",
     "split", "split_type", "create", "create_group", "create_cart", "create_graph", "create_dist_graph",
     "create_dist_graph_adjacent", "create_intercomm", "sub", "merge")
)  # fmt: skip


@dataclass(frozen=True)
class MPIRegionMetadata:
    """What the name of an MPI region says: see :func:`parse_mpi_region`. Sizes are bytes; -1 is unknown."""

    operation: str
    kind: str
    bytes: int
    peer: int
    root: int
    tag: int
    communicator: int
    request: str | None = None


def kind_of(operation: str) -> str:
    """``"collective"``, ``"wait"`` or ``"point-to-point"``; the nonblocking form of an operation has the kind of the other."""
    if operation in _WAITS:
        return WAIT
    if operation in _COLLECTIVES or (operation.startswith("i") and operation[1:] in _COLLECTIVES):
        return COLLECTIVE
    return POINT_TO_POINT


def format_mpi_region(
    operation: str,
    *,
    bytes: int = -1,
    peer: int = -1,
    root: int = -1,
    tag: int = -1,
    communicator: int = -1,
    request: str | None = None,
) -> str:
    """The name of the region of an MPI operation.

    Parameters
    ----------
    operation
        ``"send"``, ``"allreduce"``, ``"wait"`` ...
    bytes
        The size of the message; -1, here and below: not known.
    peer, root, tag
        The other rank (-2: ``PROC_NULL``), the root of a collective, the tag.
    communicator
        Its number: 0 is ``COMM_WORLD``, 1 ``COMM_SELF``.
    request
        For a wait: the operation that is waited for.
    """
    name = f"{_PREFIX}{operation} kind={kind_of(operation)} bytes={bytes} peer={peer} root={root} tag={tag} comm={communicator}"
    return name if request is None else f"{name} request={request}"


def parse_mpi_region(name: str) -> MPIRegionMetadata | None:
    """What the name of an MPI region says; None if it is none. Words that are not known are passed over."""
    if not name.startswith(_PREFIX):
        return None
    operation, *words = name[len(_PREFIX) :].split() or [""]
    pairs = [word.partition("=") for word in words]
    values = {key: value for key, equals, value in pairs if equals}
    if not operation or len(values) < len(words) or "kind" not in values:
        return None
    try:
        size, peer, root, tag, communicator = (int(values[key]) for key in _NUMBERS)
    except (KeyError, ValueError):
        return None
    return MPIRegionMetadata(operation, values["kind"], size, peer, root, tag, communicator, values.get("request"))


def message_nbytes(value: Any, *, pickle_objects: bool = True) -> int:
    """The size of a message in bytes, -1 if it is not known.

    Objects with a buffer (bytes, arrays, also on a device) have its size. What else there is has the size of its pickle, which
    is made to be measured, unless ``pickle_objects`` is false. None, which stands for no buffer, is -1.
    """
    if value is None:
        return -1
    size = buffer_nbytes(value)
    if size >= 0 or not pickle_objects:
        return size
    import pickle

    try:
        return len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    except Exception:  # an object's own __reduce__ may raise anything
        return -1


def buffer_nbytes(value: Any) -> int:
    """The bytes of an object's buffer, -1 if it has none."""
    try:
        return memoryview(value).nbytes
    except TypeError:
        pass
    if hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__"):
        size = getattr(value, "nbytes", -1)
        return size if isinstance(size, int) else -1
    return -1
