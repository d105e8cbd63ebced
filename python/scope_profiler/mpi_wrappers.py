"""MPI calls of mpi4py as regions.

``profile_mpi4py()`` (and a run with ``profile_mpi_calls``) puts communicators of our own in the place of ``MPI.COMM_WORLD`` and
``MPI.COMM_SELF``, and a class of our own in the place of ``MPI.Request``, for as long as it lasts. They are communicators and
requests of mpi4py in every respect: instances of subclasses of its types, which other extensions take too. Communicators and
requests that come from them are of the same kind.

What is in a region's name (:mod:`scope_profiler.mpi_names`) is bounded and the same on all ranks:

* A communicator's number is 0 for ``COMM_WORLD``, 1 for ``COMM_SELF``, and for others says how they were made: the n-th one made
  from the same communicator has the same number on every rank, and the parts of one ``Split`` share it.
* Each operation has at most ``SHAPES`` regions for different sizes, peers and tags on one communicator; further ones share
  a region in whose name they are -1, and each of its calls has its own as metadata. So have receives from any source, and
  those of objects, whose size is not known before, and collectives of numbers and texts.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from .mpi_names import (
    MPIRegionMetadata,
    buffer_nbytes,
    format_mpi_region,
    kind_of,
    message_nbytes,
    parse_mpi_region,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._core import Region
    from .manager_state import ManagerState

__all__ = [
    "MPIRegionMetadata",
    "ProfiledMPIComm",
    "ProfiledMPIRequest",
    "format_mpi_region",
    "message_nbytes",
    "parse_mpi_region",
    "profile_mpi4py",
    "profile_mpi_comm",
]

SHAPES: Final = 32  # regions of an operation on one communicator that differ by bytes, peer and tag
CHILDREN: Final = 64  # numbered communicators made from one; further ones are "comm=-1"
_WORLD, _SELF = 0, 1

# -- the operations --------------------------------------------------------------------------------------------------------

_SEND, _SEND_BUFFER, _RECEIVE = ("obj", "dest", "tag"), ("buf", "dest", "tag"), ("buf", "source", "tag", "status")
_ROOTED_OBJECT, _ALL_OBJECT, _ALL = ("sendobj", "root"), ("sendobj", "op"), ("sendbuf", "recvbuf")
_ROOTED = ("sendbuf", "recvbuf", "root")
_EXCHANGE = ("sendbuf", "dest", "sendtag", "recvbuf", "source", "recvtag", "status")

# The parameters that say something, in their order, by the name of the method.
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("send", "ssend", "bsend", "isend", "issend", "ibsend"), _SEND),
    **dict.fromkeys(
        ("Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend", "Send_init", "Ssend_init", "Bsend_init", "Rsend_init"),
        _SEND_BUFFER,
    ),
    **dict.fromkeys(("recv", "Recv"), _RECEIVE),
    **dict.fromkeys(("irecv", "Irecv", "Recv_init"), _RECEIVE[:3]),
    **dict.fromkeys(("probe", "Probe", "mprobe", "Mprobe"), _RECEIVE[1:]),
    "sendrecv": ("sendobj", *_EXCHANGE[1:]),
    **dict.fromkeys(("Sendrecv", "Isendrecv"), _EXCHANGE),
    **dict.fromkeys(("Sendrecv_replace", "Isendrecv_replace"), ("buf", "dest", "sendtag", "source", "recvtag", "status")),
    **dict.fromkeys(("barrier", "Barrier", "Ibarrier"), ()),
    "bcast": ("obj", "root"),
    **dict.fromkeys(("Bcast", "Ibcast"), ("buf", "root")),
    **dict.fromkeys(("gather", "scatter"), _ROOTED_OBJECT),
    **dict.fromkeys(("Gather", "Gatherv", "Igather", "Igatherv", "Scatter", "Scatterv", "Iscatter", "Iscatterv"), _ROOTED),
    "reduce": ("sendobj", "op", "root"),
    **dict.fromkeys(("Reduce", "Ireduce"), ("sendbuf", "recvbuf", "op", "root")),
    **dict.fromkeys(
        ("allgather", "alltoall", "allreduce", "scan", "exscan", "neighbor_allgather", "neighbor_alltoall"), _ALL_OBJECT
    ),
    **dict.fromkeys(
        ("Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw", "Allreduce", "Reduce_scatter", "Reduce_scatter_block",
         "Scan", "Exscan", "Iallgather", "Iallgatherv", "Ialltoall", "Ialltoallv", "Ialltoallw", "Iallreduce", "Ireduce_scatter",
         "Ireduce_scatter_block", "Iscan", "Iexscan", "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
         "Neighbor_alltoallv", "Neighbor_alltoallw", "Ineighbor_allgather", "Ineighbor_allgatherv", "Ineighbor_alltoall",
         "Ineighbor_alltoallv", "Ineighbor_alltoallw"),
        _ALL,
    ),
    **dict.fromkeys(
        ("Clone", "Dup", "Dup_with_info", "Idup", "Idup_with_info", "Split", "Split_type", "Create", "Create_group", "Create_cart",
         "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent", "Create_intercomm", "Sub", "Merge"),
        (),
    ),
}  # fmt: skip
# How the names of those begin that make communicators.
_FAMILY: Final = ("clone", "dup", "idup", "split", "create", "sub", "merge")

# Methods that every communicator of mpi4py has; the others are added to the classes whose base has them.
_EVERYWHERE: Final = (
    "send", "ssend", "bsend", "isend", "issend", "ibsend", "Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend",
    "recv", "Recv", "irecv", "Irecv", "probe", "Probe", "sendrecv", "Sendrecv", "barrier", "Barrier", "bcast", "Bcast", "gather",
    "Gather", "scatter", "Scatter", "allgather", "Allgather", "alltoall", "Alltoall", "reduce", "Reduce", "allreduce", "Allreduce",
)  # fmt: skip
_DATA: Final = ("obj", "buf", "sendobj", "sendbuf")
_CHEAP: Final = (int, float, complex, bool, str, bytes, bytearray)  # what is pickled in no time


class _Method:
    """What a method of a communicator does, and where its arguments say with whom and how much."""

    __slots__ = ("creates", "data", "default_tag", "is_object", "name", "operation", "parameters", "receives", "rooted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.operation = name.lower()
        self.parameters = _PARAMETERS[name]
        self.data = next((parameter for parameter in self.parameters if parameter in _DATA), None)
        self.receives = "source" in self.parameters and "dest" not in self.parameters
        self.rooted = "root" in self.parameters
        self.is_object = name[0].islower()
        self.creates = self.operation.startswith(_FAMILY)
        self.default_tag = 0 if "dest" in self.parameters else -1

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.parameters, args)), **kwargs}  # noqa: B905 - what is left out has its default


_METHODS: Final = {name: _Method(name) for name in _PARAMETERS}
_PICKLED_SENDS: Final = {
    "send": "Send", "ssend": "Ssend", "bsend": "Bsend", "isend": "Isend", "issend": "Issend", "ibsend": "Ibsend",
}  # fmt: skip

Shape = tuple[int, int, int]  # bytes, peer, tag


class _Recorder:
    """Where the MPI calls of some communicators are recorded: a manager, and the regions they have had."""

    def __init__(self, state: ManagerState, pickle_object_sizes: bool) -> None:
        self.state = state
        self.pickle_object_sizes = pickle_object_sizes
        self._regions: dict[tuple[Any, ...], tuple[Region, bool]] = {}
        self._shapes: dict[tuple[Any, ...], int] = {}

    def region(self, operation: str, shape: Shape, root: int, comm: int, request: str | None) -> tuple[Region, bool]:
        """The region of a call, and whether its name says all of the shape that is known."""
        key = (operation, shape, root, comm, request)
        found = self._regions.get(key)
        if found is not None:
            return found
        group = (operation, root, comm, request)
        known = self._shapes.get(group, 0)
        if known >= SHAPES:
            # Not kept: there is no end to them.
            return self._make(operation, (-1, -1, -1), root, comm, request), False
        self._shapes[group] = known + 1
        made = self._regions[key] = self._make(operation, shape, root, comm, request), True
        return made

    def _make(self, operation: str, shape: Shape, root: int, comm: int, request: str | None) -> Region:
        size, peer, tag = shape
        name = format_mpi_region(
            operation, bytes=size, peer=peer, root=root, tag=tag, communicator=comm, request=request
        )
        tags = [
            "mpi", f"mpi.kind:{kind_of(operation)}", f"mpi.operation:{operation}", f"mpi.bytes:{size}", f"mpi.peer:{peer}",
            f"mpi.root:{root}", f"mpi.tag:{tag}", f"mpi.communicator:{comm}",
        ]  # fmt: skip
        if request is not None:
            tags.append(f"mpi.request:{request}")
        return self.state.recorder.region(name, None, tags)

    def call(
        self,
        operation: str,
        shape: Shape,
        root: int,
        comm: int,
        request: str | None,
        run: Callable[[], Any],
        arrived: Callable[[], Shape] | None = None,
    ) -> Any:
        """``run()`` as a call of its region. ``arrived`` tells afterwards what was not known before."""
        region, exact = self.region(operation, shape, root, comm, request)
        recording = self.state.recording
        if recording is None or recording.config.aggregation_mode or (exact and (arrived is None or -1 not in shape)):
            with region:
                return run()
        self.state.annotate()
        values: dict[str, Any] = {}
        scope = recording.events.open(values)
        try:
            with region:
                result = run()
            late = shape if arrived is None else arrived()
            for key, before, now in zip(("bytes", "peer", "tag"), shape, late, strict=True):
                if max(before, now) != -1:
                    values[key] = now if before == -1 else before
            return result
        finally:
            recording.events.close(scope)


_recorders: dict[bool, _Recorder] = {}  # of the default manager's communicators, by whether they measure pickles


def _default_recorder(pickle_object_sizes: bool) -> _Recorder:
    from .profile_manager import ProfileManager

    return _recorders.setdefault(pickle_object_sizes, _Recorder(ProfileManager._state, pickle_object_sizes))


# -- communicators ---------------------------------------------------------------------------------------------------------


class ProfiledMPIComm:
    """A communicator whose operations are regions.

    ``ProfiledMPIComm(comm)`` is of the class of ``comm`` too: an ``MPI.Intracomm`` stays one. What it makes (``Dup``,
    ``Split``, ``Create_cart`` ...) and the requests that it returns are profiled as well. The regions are those of the default
    manager. ``pickle_object_sizes`` measures objects given to collectives by pickling them once more; the sizes of buffers,
    numbers, texts and of objects that are sent are always known.
    """

    __slots__ = ()

    def __new__(cls, communicator: Any = None, *, pickle_object_sizes: bool = False) -> ProfiledMPIComm:
        if communicator is None:  # mpi4py makes an empty one before it fills it
            return super().__new__(cls)
        return _profiled(communicator, _default_recorder(pickle_object_sizes), None)

    def __init__(self, communicator: Any = None, *, pickle_object_sizes: bool = False) -> None:
        pass

    if TYPE_CHECKING:
        _recorder: _Recorder
        _number: int
        _children: Iterator[int]
        _base: Any

        def __getattr__(self, name: str) -> Any: ...

    @property
    def communicator(self) -> Any:
        """The communicator itself, whose operations are not recorded."""
        if self._base is None:
            self._base = _plain(self)
        return self._base

    def _original(self, name: str) -> Any:
        return getattr(super(), name)

    def _next_number(self) -> int:
        """The number of the next communicator that is made from this one: all its ranks count alike."""
        child = next(self._children)
        if child > CHILDREN or self._number < 0:
            return -1
        return child + 1 if self._number == _WORLD else self._derived(f"{child}")

    def _derived(self, way: str) -> int:
        import zlib

        return zlib.crc32(f"{self._number}.{way}".encode()) & 0x7FFFFFFF | 1 << 30

    def _invoke(self, method: _Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder: _Recorder | None = getattr(self, "_recorder", None)
        original = self._original(method.name)
        if recorder is None:
            return original(*args, **kwargs)
        if not recorder.state.listening:
            return self._own(original(*args, **kwargs), method, (-1, -1, -1))
        given = method.bind(args, kwargs)
        peer = _rank(self, given.get("source" if method.receives else "dest"))
        tag = _tag(given.get("sendtag", given.get("tag", method.default_tag)))
        root = _rank(self, given.get("root", 0)) if method.rooted else -1
        data = given.get(method.data) if method.data else None
        if method.name in _PICKLED_SENDS and self._is_real and peer >= 0:
            # What mpi4py does with the object, done here, since the size must be known.
            module = _mpi()
            content = data = module.pickle.dumps(data)
            original = self._original(_PICKLED_SENDS[method.name])
            args, kwargs = ([content, module.BYTE], given["dest"], given.get("tag", 0)), {}
        shape = (self._nbytes(method, data, given), peer, tag)
        arrived = None
        if method.receives and -1 in shape and self._is_real and "status" in method.parameters:
            status = given.get("status")
            if status is None:
                status = kwargs["status"] = _mpi().Status()
                args = args[: method.parameters.index("status")]
            arrived = _arrival(status, method.data is not None)
        elif method.is_object and shape[0] == -1 and isinstance(data, _CHEAP) and self._is_real:
            # Not in the name: ranks have objects of different sizes, and a collective is to be one region of all.
            size = _pickled_nbytes(data)
            arrived = lambda: (size, peer, tag)  # noqa: E731
        result = recorder.call(
            method.operation, shape, root, self._number, None, lambda: original(*args, **kwargs), arrived
        )
        return self._own(result, method, shape)

    def _nbytes(self, method: _Method, data: Any, given: dict[str, Any]) -> int:
        if method.data is None:
            return 0 if method.operation.endswith("barrier") else -1
        if method.is_object:
            if method.receives:
                return -1
            if method.name in _PICKLED_SENDS and isinstance(data, bytes):
                return len(data)
            return _pickled_nbytes(data) if self._recorder.pickle_object_sizes else -1
        if self._is_real and data is _mpi().IN_PLACE:
            data = given.get("recvbuf")
        return _specified_nbytes(data)

    def _own(self, result: Any, method: _Method, shape: Shape) -> Any:
        """What an operation made, profiled in its turn."""
        if result is None:
            return None
        if method.creates:
            return self._own_child(result, method)
        if self._makes_request(result, method):
            return _profiled_request(result, self._recorder, method.operation, shape, self._number)
        return result

    def _makes_request(self, result: Any, method: _Method) -> bool:
        if self._is_real:
            return isinstance(result, _request_type(_mpi()))
        return method.operation[0] == "i" and hasattr(result, "wait")

    def _own_child(self, result: Any, method: _Method) -> Any:
        if isinstance(result, tuple):  # with the request of its making
            request = _profiled_request(result[1], self._recorder, method.operation, (-1, -1, -1), self._number)
            return self._own_child(result[0], method), request
        # Create_group is for the members of the group alone: the others do not count it.
        number = self._derived("group") if method.operation == "create_group" else self._next_number()
        if self._is_real and result == _mpi().COMM_NULL:
            return result
        return _profiled(result, self._recorder, number)

    _is_real = False


def _add_method(namespace: dict[str, Any], name: str) -> None:
    method = _METHODS[name]

    def invoke(self: ProfiledMPIComm, *args: Any, **kwargs: Any) -> Any:
        return self._invoke(method, args, kwargs)

    invoke.__name__ = name
    invoke.__qualname__ = f"ProfiledMPIComm.{name}"
    invoke.__doc__ = f"``{name}`` of mpi4py's communicators, as a call of a region ``mpi:{method.operation} ...``."
    namespace[name] = invoke


def _add_everywhere() -> None:
    methods: dict[str, Any] = {}
    for name in _EVERYWHERE:
        _add_method(methods, name)
    for name, method in methods.items():
        setattr(ProfiledMPIComm, name, method)


_add_everywhere()


class _Delegate(ProfiledMPIComm):
    """A communicator that is none of mpi4py's, but behaves like one."""

    __slots__ = ("_base", "_children", "_number", "_recorder")

    def _original(self, name: str) -> Any:
        return getattr(self._base, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


_classes: dict[type, type] = {}


def _mpi() -> Any:
    import sys

    return sys.modules["mpi4py.MPI"]


def _is_mpi4py(value: Any, name: str) -> bool:
    import sys

    module = sys.modules.get("mpi4py.MPI")
    kind = getattr(module, name, None)
    return kind is not None and isinstance(value, kind)


def _class_of(base: type) -> type:
    found = _classes.get(base)
    if found is None:
        namespace: dict[str, Any] = {
            "__slots__": ("_base", "_children", "_number", "_recorder"),
            "__module__": __name__,
            "__doc__": ProfiledMPIComm.__doc__,
            "_is_real": True,
        }
        for name in _PARAMETERS:
            if hasattr(base, name) and name not in _EVERYWHERE:
                _add_method(namespace, name)
        found = _classes[base] = type("ProfiledMPIComm", (ProfiledMPIComm, base), namespace)
    return found


def _plain(comm: Any) -> Any:
    """The same communicator as one of mpi4py's own classes."""
    kind = next(kind for kind in type(comm).__mro__ if kind.__module__ == "mpi4py.MPI")
    return kind(comm)


def _profiled(comm: Any, recorder: _Recorder, number: int | None) -> ProfiledMPIComm:
    made: Any
    base: Any = comm
    if not _is_mpi4py(comm, "Comm"):
        made = object.__new__(_Delegate)
    elif isinstance(comm, ProfiledMPIComm) and not hasattr(comm, "_recorder"):
        made, base = comm, None  # mpi4py has made it of the class of its parent
    else:
        base = comm.communicator if isinstance(comm, ProfiledMPIComm) else comm
        kind = _class_of(type(base))
        made = type(base).__new__(kind, base)
    made._base = base
    made._recorder = recorder
    made._children = count(1)
    made._number = _own_number(comm) if number is None else number
    return made  # type: ignore[no-any-return]


def _own_number(comm: Any) -> int:
    """The number of a communicator that was made out of sight."""
    if isinstance(comm, ProfiledMPIComm):
        return comm._number
    if not _is_mpi4py(comm, "Comm"):
        return _WORLD
    module = _mpi()
    if comm == module.COMM_WORLD:
        return _WORLD
    return _SELF if comm == module.COMM_SELF else -1


def _rank(comm: ProfiledMPIComm, rank: Any) -> int:
    """A peer or root; -1 for any source, -2 for no process."""
    if rank is None:
        return -1
    if not comm._is_real or rank >= 0:
        return int(rank)
    return -2 if rank == _mpi().PROC_NULL else -1


def _tag(tag: Any) -> int:
    return int(tag) if tag is not None and tag >= 0 else -1


def _pickled_nbytes(value: Any) -> int:
    try:
        return len(_mpi().pickle.dumps(value))
    except Exception:  # the call itself will say what is wrong
        return -1


def _specified_nbytes(spec: Any) -> int:
    """The bytes that a buffer argument of mpi4py stands for: a buffer, or a list of it, counts and a type."""
    if spec is None:
        return 0
    if not isinstance(spec, (list, tuple)):
        return buffer_nbytes(spec)
    if not spec:
        return -1
    counts = spec[1] if len(spec) > 2 else None
    size = getattr(spec[-1], "Get_size", None)
    if isinstance(counts, int) and size is not None:
        return int(counts * size())
    return buffer_nbytes(spec[0])


def _arrival(status: Any, has_data: bool) -> Callable[[], Shape]:
    def arrived() -> Shape:
        size = int(status.Get_count(_mpi().BYTE)) if has_data else -1
        return max(size, -1), int(status.Get_source()), int(status.Get_tag())

    return arrived


# -- requests --------------------------------------------------------------------------------------------------------------


class ProfiledMPIRequest:
    """A request whose waits are regions, of the default manager. It is of the class of ``request`` too."""

    __slots__ = ()

    def __new__(
        cls,
        request: Any = None,
        *,
        operation: str = "",
        bytes: int = -1,
        peer: int = -1,
        tag: int = -1,
        communicator: int = -1,
    ) -> ProfiledMPIRequest:
        if request is None:
            return super().__new__(cls)
        return _profiled_request(request, _default_recorder(False), operation, (bytes, peer, tag), communicator)

    def __init__(self, request: Any = None, **what: Any) -> None:
        pass

    if TYPE_CHECKING:
        _recorder: _Recorder
        _operation: str
        _shape: Shape
        _number: int
        _base: Any

        def __getattr__(self, name: str) -> Any: ...

    _is_real = False

    def _original(self, name: str) -> Any:
        return getattr(super(), name)

    def wait(self, status: Any = None) -> Any:
        """Wait, and return the object that was received, as a call of a region ``mpi:wait ...``."""
        return self._wait("wait", status)

    def Wait(self, status: Any = None) -> Any:  # noqa: N802
        """Wait, as a call of a region ``mpi:wait ...``."""
        return self._wait("Wait", status)

    def _wait(self, name: str, status: Any) -> Any:
        original = self._original(name)
        recorder = getattr(self, "_recorder", None)
        if recorder is None or not recorder.state.listening:
            return original() if status is None else original(status)
        arrived = None
        if self._is_real and "recv" in self._operation and -1 in self._shape:
            status = _mpi().Status() if status is None else status
            arrived = _arrival(status, True)
        run = original if status is None else lambda: original(status)
        return recorder.call("wait", self._shape, -1, self._number, self._operation, run, arrived)


class _DelegateRequest(ProfiledMPIRequest):
    __slots__ = ("_base", "_number", "_operation", "_recorder", "_shape")

    def _original(self, name: str) -> Any:
        return getattr(self._base, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


def _request_class_of(base: type) -> type:
    found = _classes.get(base)
    if found is None:
        namespace = {
            "__slots__": ("_number", "_operation", "_recorder", "_shape"),
            "__module__": __name__,
            "__doc__": ProfiledMPIRequest.__doc__,
            "_is_real": True,
        }
        found = _classes[base] = type("ProfiledMPIRequest", (ProfiledMPIRequest, base), namespace)
    return found


def _profiled_request(request: Any, recorder: _Recorder, operation: str, shape: Shape, comm: int) -> ProfiledMPIRequest:
    made: Any
    if _is_mpi4py(request, "Request"):
        base = next(kind for kind in type(request).__mro__ if kind.__module__ == "mpi4py.MPI")
        made = base.__new__(_request_class_of(base), request)
    else:
        made = object.__new__(_DelegateRequest)
        made._base = request
    made._recorder, made._operation, made._shape, made._number = recorder, operation, shape, comm
    return made  # type: ignore[no-any-return]


def _request_type(module: Any) -> type:
    """mpi4py's own class of requests, whatever is in its place."""
    return next(kind for kind in module.Request.__mro__ if kind.__module__ == "mpi4py.MPI")  # type: ignore[no-any-return]


def _waiting_class(base: type, recorder: _Recorder) -> type:
    """A class in the place of ``MPI.Request``, for what waits for several requests: the same to everyone, but recording."""

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, base)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, base)

    def waiting(name: str) -> Any:
        def wait(cls: type, requests: Any, *args: Any, **kwargs: Any) -> Any:
            def run() -> Any:
                return getattr(base, name)(requests, *args, **kwargs)

            if not recorder.state.listening:
                return run()
            requests = requests if isinstance(requests, (list, tuple)) else list(requests)
            ours = [request for request in requests if isinstance(request, ProfiledMPIRequest)]
            operations = {request._operation for request in ours}
            comms = {request._number for request in ours}
            operation = operations.pop() if len(operations) == 1 else None
            return recorder.call(name.lower(), (-1, -1, -1), -1, comms.pop() if len(comms) == 1 else -1, operation, run)

        wait.__name__ = name
        wait.__doc__ = f"``{name}`` of mpi4py's requests, as a call of a region ``mpi:{name.lower()} ...``."
        return classmethod(wait)

    names = ("waitall", "Waitall", "waitany", "Waitany", "waitsome", "Waitsome")
    namespace = {name: waiting(name) for name in names if hasattr(base, name)}
    return Kind("Request", (base,), {"__slots__": (), "__module__": "scope_profiler.mpi_wrappers", **namespace})


# -- putting them in place -------------------------------------------------------------------------------------------------


class MPIHooks:
    """What stands in the places of ``COMM_WORLD``, ``COMM_SELF`` and ``Request`` while a run records MPI calls."""

    def __init__(self, state: ManagerState, *, pickle_object_sizes: bool = False) -> None:
        self._recorder = _Recorder(state, pickle_object_sizes)
        self._module: Any = None
        self._placed: dict[str, tuple[Any, Any]] = {}
        self._finder: _Finder | None = None

    def install(self, module: Any = None) -> None:
        """Put them there; if mpi4py.MPI is not loaded yet, as soon as it is."""
        import sys

        module = module or sys.modules.get("mpi4py.MPI")
        if module is None:
            self._finder = _Finder(self)
            sys.meta_path.insert(0, self._finder)
            return
        self._module = module
        recorder = self._recorder
        real = {name: getattr(module, name) for name in ("COMM_WORLD", "COMM_SELF")}
        made: dict[str, Any] = {
            "COMM_WORLD": _profiled(real["COMM_WORLD"], recorder, _WORLD),
            "COMM_SELF": _profiled(real["COMM_SELF"], recorder, _SELF),
        }
        if isinstance(getattr(module, "Request", None), type):
            made["Request"] = _waiting_class(_request_type(module), recorder)
        for name, value in made.items():
            self._placed[name] = getattr(module, name), value
            setattr(module, name, value)

    def remove(self) -> None:
        """Put back what was there, unless somebody else has put something else there."""
        import sys

        if self._finder is not None:
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            self._finder = None
        for name, (before, ours) in self._placed.items():
            if getattr(self._module, name, None) is ours:
                setattr(self._module, name, before)
        self._placed = {}


class _Finder:
    """Sees mpi4py.MPI being imported. mpi4py puts a finder of its own before all others: this one goes before that again."""

    def __init__(self, hooks: MPIHooks) -> None:
        self._hooks = hooks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        import sys

        if name not in ("mpi4py", "mpi4py.MPI"):
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._loaded)
                return spec
        return None

    def _loaded(self, module: Any) -> None:
        import sys

        if module.__name__ == "mpi4py.MPI":
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._hooks.install(module)
        elif self in sys.meta_path:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)


class _Loader:
    """A loader that tells when a module is loaded, and leaves no trace."""

    def __init__(self, loader: Any, loaded: Callable[[Any], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._loaded(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


@contextmanager
def profile_mpi4py(mpi_module: Any = None, *, pickle_object_sizes: bool = False, lazy: bool = False) -> Iterator[None]:
    """Record the MPI calls of mpi4py in the default manager for the length of a ``with`` block.

    Communicators and functions that the program took from ``mpi4py.MPI`` before are not recorded; see
    :func:`profile_mpi_comm`.

    Parameters
    ----------
    mpi_module
        ``mpi4py.MPI``, which is imported if it is not given.
    pickle_object_sizes
        As of :class:`ProfiledMPIComm`.
    lazy
        Do not import it: wait until the program does.
    """
    from .profile_manager import ProfileManager

    if mpi_module is None and not lazy:
        from mpi4py import MPI

        mpi_module = MPI
    hooks = MPIHooks(ProfileManager._state, pickle_object_sizes=pickle_object_sizes)
    hooks.install(mpi_module)
    try:
        yield
    finally:
        hooks.remove()


def profile_mpi_comm(communicator: Any, *, pickle_object_sizes: bool = False) -> ProfiledMPIComm:
    """``communicator`` with its operations recorded as regions; see :class:`ProfiledMPIComm`."""
    return ProfiledMPIComm(communicator, pickle_object_sizes=pickle_object_sizes)
