"""MPI calls of mpi4py as regions: what they are called, which are recorded, and that programs notice nothing."""

from __future__ import annotations

import array
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import scope_profiler as sp
from mpi_launch import Launcher

pytestmark = [pytest.mark.uninstrumented, pytest.mark.beside]

WORLD = "root=-1 tag=-1 comm=0"


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "values", "name"),
    [
        (
            "send",
            {"bytes": 8, "peer": 1, "tag": 3},
            "mpi:send kind=point-to-point bytes=8 peer=1 root=-1 tag=3 comm=-1",
        ),
        ("barrier", {}, "mpi:barrier kind=collective bytes=-1 peer=-1 root=-1 tag=-1 comm=-1"),
        ("ibcast", {"root": 2, "communicator": 0}, "mpi:ibcast kind=collective bytes=-1 peer=-1 root=2 tag=-1 comm=0"),
        ("wait", {"request": "isend"}, "mpi:wait kind=wait bytes=-1 peer=-1 root=-1 tag=-1 comm=-1 request=isend"),
        ("irecv", {"peer": 0}, "mpi:irecv kind=point-to-point bytes=-1 peer=0 root=-1 tag=-1 comm=-1"),
    ],
)
def test_a_name_is_read_as_it_was_written(operation: str, values: dict[str, Any], name: str) -> None:
    assert sp.format_mpi_region(operation, **values) == name
    kind = name.split("kind=")[1].split()[0]
    unknown: dict[str, Any] = dict.fromkeys(("bytes", "peer", "root", "tag", "communicator"), -1)
    assert sp.parse_mpi_region(name) == sp.MPIRegionMetadata(operation, kind, **{**unknown, **values})


def test_words_in_another_order_and_unknown_ones_are_read() -> None:
    name = "mpi:send kind=odd comm=4 tag=3 root=2 peer=1 bytes=0 more=yes"
    assert sp.parse_mpi_region(name) == sp.MPIRegionMetadata("send", "odd", 0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "name",
    ["send", "mpi:", "mpi:send", "mpi:send kind=x", "mpi:a b kind=x bytes=1 peer=1 root=1 tag=1 comm=1", " mpi:send",
     "mpi:send kind=x bytes=z peer=1 root=1 tag=1 comm=1", "mpi:send bytes=1 peer=1 root=1 tag=1 comm=1"],
)  # fmt: skip
def test_other_names_are_no_mpi_regions(name: str) -> None:
    assert sp.parse_mpi_region(name) is None


@pytest.mark.parametrize(
    ("value", "size"),
    [(b"abc", 3), (bytearray(5), 5), (memoryview(b"abcd"), 4), (np.zeros(3), 24), (array.array("d", [1, 2]), 16), (None, -1),
     (np.zeros((4, 4))[:, 0], 32), (SimpleNamespace(__cuda_array_interface__={}, nbytes=12), 12)],
)  # fmt: skip
def test_a_buffer_is_as_large_as_it_is(value: object, size: int) -> None:
    assert sp.message_nbytes(value) == sp.message_nbytes(value, pickle_objects=False) == size


def test_other_objects_are_as_large_as_their_pickle() -> None:
    value = {"a": [1, 2], "b": "text"}
    assert sp.message_nbytes(value) == len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    assert sp.message_nbytes(value, pickle_objects=False) == -1
    assert sp.message_nbytes(lambda: 1) == -1, "it has no pickle"


# -- communicators that are none of mpi4py's -----------------------------------------------------------------------------


class Peer:
    """Behaves like a communicator of one rank."""

    rank = 7

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def send(self, obj: object, dest: int, tag: int = 0) -> None:
        self.said.append((obj, dest, tag))

    def isend(self, obj: object, dest: int, tag: int = 0) -> Any:
        self.said.append((obj, dest, tag))
        return SimpleNamespace(wait=lambda: "done", Test=lambda: True)

    def barrier(self) -> str:
        return "passed"


def test_a_communicator_of_another_kind_is_recorded_too(default: Any) -> None:
    peer = Peer()
    with sp.session(output=None, return_results=True, verbose=False) as run:
        comm = sp.profile_mpi_comm(peer)
        comm.send(b"abc", 1, tag=2)
        request = comm.isend(obj=b"abcd", dest=3)
        assert request.wait() == "done" and request.Test()
        assert comm.barrier() == "passed"
        assert comm.rank == 7 and comm.communicator is peer and isinstance(comm, sp.ProfiledMPIComm)
        assert isinstance(request, sp.ProfiledMPIRequest)
        with pytest.raises(AttributeError):
            comm.bcast(1)
    assert peer.said == [(b"abc", 1, 2), (b"abcd", 3, 0)]
    assert [name for name in run.results.region_names if name != "scope_profiler.session"] == [
        "mpi:send kind=point-to-point bytes=3 peer=1 root=-1 tag=2 comm=0",
        "mpi:isend kind=point-to-point bytes=4 peer=3 root=-1 tag=0 comm=0",
        "mpi:wait kind=wait bytes=4 peer=3 root=-1 tag=0 comm=0 request=isend",
        f"mpi:barrier kind=collective bytes=0 peer=-1 {WORLD}",
    ]
    assert comm.barrier() == "passed", "after the session it is a communicator like any other"


# -- in one process ------------------------------------------------------------------------------------------------------


def test_what_was_in_place_is_put_back(python: Callable[..., Any]) -> None:
    python("""
import scope_profiler as sp
with sp.session(output=None, verbose=False, profile_mpi_calls=True):
    import sys
    assert "mpi4py.MPI" not in sys.modules, "it is the program that imports it"
    from mpi4py import MPI
    ours = MPI.COMM_WORLD, MPI.COMM_SELF, MPI.Request
    assert isinstance(ours[0], sp.ProfiledMPIComm) and isinstance(ours[0], MPI.Intracomm)
    assert "scope_profiler" not in str(MPI.__spec__.loader)
assert not any(isinstance(comm, sp.ProfiledMPIComm) for comm in (MPI.COMM_WORLD, MPI.COMM_SELF))
assert MPI.Request.__module__ == "mpi4py.MPI" and MPI.COMM_WORLD == ours[0]
assert not any("mpi_wrappers" in type(finder).__module__ for finder in sys.meta_path)
other = MPI.COMM_WORLD.Dup()
with sp.session(output=None, verbose=False, profile_mpi_calls=True):
    MPI.COMM_WORLD = other
assert MPI.COMM_WORLD is other, "what the program put there stays"
with sp.profile_mpi4py(MPI):
    assert isinstance(MPI.COMM_SELF, sp.ProfiledMPIComm)
assert not isinstance(MPI.COMM_SELF, sp.ProfiledMPIComm)
with sp.profile_mpi4py(lazy=True):
    assert isinstance(MPI.COMM_SELF, sp.ProfiledMPIComm)
sp.setup(output=None, profile_mpi_calls=True)
assert isinstance(MPI.COMM_SELF, sp.ProfiledMPIComm)
sp.setup(output=None, replace=True)
assert not isinstance(MPI.COMM_SELF, sp.ProfiledMPIComm)
sp.reset()
""")


def test_a_manager_of_its_own_records_into_its_own_run(python: Callable[..., Any]) -> None:
    python("""
import scope_profiler as sp
from mpi4py import MPI
manager = sp.ProfileManager()
with manager.session(output=None, verbose=False, profile_mpi_calls=True, return_results=True) as run:
    MPI.COMM_WORLD.barrier()
assert len(run.results) == 2 and not sp.registered_regions()
""")


@pytest.mark.slow
def test_the_command_line_records_mpi_calls(python: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.barrier()\n")
    python("""
import sys, subprocess, scope_profiler as sp
name = "mpi:barrier kind=collective bytes=0 peer=-1 root=-1 tag=-1 comm=0"
for option, wanted in (["--mpi-calls"], [name]), (["--no-mpi-calls"], []), ([], []):
    subprocess.run([sys.executable, "-m", "scope_profiler", "run", "-q", "-o", "run.h5", *option, "app.py"], check=True)
    assert sp.load("run.h5").region_names == wanted, option
assert sp.profile_command("app.py", mpi_calls=True).profile_results.region_names == [name]
""")


# -- ranks ---------------------------------------------------------------------------------------------------------------

RANKS = """
import json, sys
import numpy as np
from scope_profiler import ProfileManager
path, settings = sys.argv[1], json.loads(sys.argv[2])
with ProfileManager.session(verbose=False, file_path=path, profile_mpi_calls=True, **settings):
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    left, right = (rank - 1) % size, (rank + 1) % size
    numbers = np.full(4, float(rank))
"""


def run_ranks(mpi: Launcher, tmp_path: Path, ranks: int, body: str, **settings: Any) -> sp.ProfilingResults:
    """The results of ranks that run ``body`` in a session with MPI calls."""
    path = tmp_path / "ranks.h5"
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = mpi.python(ranks, RANKS + lines, str(path), json.dumps(settings))
    assert done.returncode == 0, done.stdout + done.stderr
    return sp.load(path)


def counts(results: sp.ProfilingResults) -> dict[str, dict[int, int]]:
    return {
        region.name: region.num_calls_per_rank() for region in results.get_regions() if region.name.startswith("mpi:")
    }


def everywhere(ranks: int, calls: int = 1) -> dict[int, int]:
    return dict.fromkeys(range(ranks), calls)


SETTINGS: list[dict[str, bool]] = [{}, {"track_threads": True}, {"track_async": True}]


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "threads", "async"])
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_collectives_are_regions_that_all_ranks_share(
    mpi: Launcher, tmp_path: Path, ranks: int, settings: dict[str, bool]
) -> None:
    results = run_ranks(
        mpi, tmp_path, ranks, """
for i in range(5):
    world.barrier()
    world.Barrier()
assert world.bcast({"from": rank}, root=1) == {"from": 1}
assert world.allreduce(10 ** (3 * rank)) == sum(10 ** (3 * r) for r in range(size))
total = np.empty(4)
world.Allreduce(numbers, total)
assert (total == sum(range(size))).all()
world.Allreduce(MPI.IN_PLACE, numbers)
assert (numbers == total).all()
world.Bcast([numbers, 2, MPI.DOUBLE], 1)
assert world.gather(rank, root=1) == (list(range(size)) if rank == 1 else None)
assert world.scatter(list(range(size)) if rank == 0 else None) == rank
world.Ibarrier().Wait()
""", **settings)  # fmt: skip
    unknown, known = "bytes=-1 peer=-1", "bytes=32 peer=-1"
    assert counts(results) == {
        f"mpi:barrier kind=collective bytes=0 peer=-1 {WORLD}": everywhere(ranks, 10),
        f"mpi:bcast kind=collective {unknown} root=1 tag=-1 comm=0": everywhere(ranks),
        f"mpi:allreduce kind=collective {unknown} {WORLD}": everywhere(ranks),
        f"mpi:allreduce kind=collective {known} {WORLD}": everywhere(ranks, 2),
        "mpi:bcast kind=collective bytes=16 peer=-1 root=1 tag=-1 comm=0": everywhere(ranks),
        f"mpi:gather kind=collective {unknown} root=1 tag=-1 comm=0": everywhere(ranks),
        f"mpi:scatter kind=collective {unknown} root=0 tag=-1 comm=0": everywhere(ranks),
        f"mpi:ibarrier kind=collective bytes=0 peer=-1 {WORLD}": everywhere(ranks),
        f"mpi:wait kind=wait bytes=0 peer=-1 {WORLD} request=ibarrier": everywhere(ranks),
    }
    barrier = results[f"mpi:barrier kind=collective bytes=0 peer=-1 {WORLD}"]
    assert barrier.tags == (
        "mpi", "mpi.kind:collective", "mpi.operation:barrier", "mpi.bytes:0", "mpi.peer:-1", "mpi.root:-1", "mpi.tag:-1",
        "mpi.communicator:0",
    )  # fmt: skip
    reduced = results[f"mpi:allreduce kind=collective {unknown} {WORLD}"]
    for rank in range(ranks):  # a number of another size on each rank is told, and divides no region
        size = len(pickle.dumps(10 ** (3 * rank), protocol=pickle.HIGHEST_PROTOCOL))
        assert list(reduced[rank].event_metadata) == [{"bytes": size}]


@pytest.mark.parametrize("settings", SETTINGS[:2], ids=["plain", "threads"])
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_messages_are_regions_with_their_size_and_peer(
    mpi: Launcher, tmp_path: Path, ranks: int, settings: dict[str, bool]
) -> None:
    results = run_ranks(
        mpi, tmp_path, ranks, """
text = "x" * 100
if rank == 0:
    world.send(text, 1, tag=4)
    world.Send(numbers, dest=1)
    assert world.isend([1, 2], 1, tag=5).wait() is None
    request = world.Isend(numbers, 1, 6)
    MPI.Request.Waitall([request])
    assert request == MPI.REQUEST_NULL and isinstance(request, MPI.Request)
elif rank == 1:
    got = np.empty(8)
    status = MPI.Status()
    assert world.recv(source=MPI.ANY_SOURCE, status=status) == text and status.tag == 4
    world.Recv(got, source=0)
    assert (got[:4] == 0).all()
    request = world.irecv(source=0, tag=5)
    while True:
        done, value = request.test()
        if done: break
    assert value == [1, 2]
    world.Irecv(got, 0, 6).Wait()
else:
    assert world.sendrecv("self", rank, source=rank) == "self"
    assert world.recv(source=MPI.PROC_NULL) is None
""", **settings)  # fmt: skip
    text = len(pickle.dumps("x" * 100, protocol=pickle.HIGHEST_PROTOCOL))
    pair = len(pickle.dumps([1, 2], protocol=pickle.HIGHEST_PROTOCOL))
    wanted = {
        f"mpi:send kind=point-to-point bytes={text} peer=1 root=-1 tag=4 comm=0": {0: 1},
        "mpi:send kind=point-to-point bytes=32 peer=1 root=-1 tag=0 comm=0": {0: 1},
        f"mpi:isend kind=point-to-point bytes={pair} peer=1 root=-1 tag=5 comm=0": {0: 1},
        f"mpi:wait kind=wait bytes={pair} peer=1 root=-1 tag=5 comm=0 request=isend": {0: 1},
        "mpi:isend kind=point-to-point bytes=32 peer=1 root=-1 tag=6 comm=0": {0: 1},
        "mpi:waitall kind=wait bytes=-1 peer=-1 root=-1 tag=-1 comm=0 request=isend": {0: 1},
        "mpi:recv kind=point-to-point bytes=-1 peer=-1 root=-1 tag=-1 comm=0": {1: 1},
        "mpi:recv kind=point-to-point bytes=64 peer=0 root=-1 tag=-1 comm=0": {1: 1},
        "mpi:irecv kind=point-to-point bytes=-1 peer=0 root=-1 tag=5 comm=0": {1: 1},
        "mpi:irecv kind=point-to-point bytes=64 peer=0 root=-1 tag=6 comm=0": {1: 1},
        "mpi:wait kind=wait bytes=64 peer=0 root=-1 tag=6 comm=0 request=irecv": {1: 1},
    }
    if ranks == 3:
        wanted["mpi:sendrecv kind=point-to-point bytes=-1 peer=2 root=-1 tag=0 comm=0"] = {2: 1}
        wanted["mpi:recv kind=point-to-point bytes=-1 peer=-2 root=-1 tag=-1 comm=0"] = {2: 1}
    assert counts(results) == wanted
    received = results["mpi:recv kind=point-to-point bytes=-1 peer=-1 root=-1 tag=-1 comm=0"][1]
    assert list(received.event_metadata) == [{"bytes": text, "peer": 0, "tag": 4}], "what came is told with the call"


@pytest.mark.slow
def test_a_derived_communicator_is_one_region_on_all_ranks(mpi: Launcher, tmp_path: Path) -> None:
    results = run_ranks(mpi, tmp_path, 4, """
if rank == 2:
    MPI.COMM_SELF.Dup().barrier()     # one more communicator here than elsewhere: handles differ from now on
world.Dup().barrier()
half = world.Split(rank % 2)
half.Barrier()
assert half.size == 2 and isinstance(half, MPI.Intracomm)
half.Dup().barrier()
part = world.Split(0 if rank < 3 else MPI.UNDEFINED)
assert (part == MPI.COMM_NULL) == (rank == 3)
grid = world.Create_cart([2, 2])
assert isinstance(grid, MPI.Cartcomm) and grid.Get_dim() == 2
grid.barrier()
grid.Free()
assert grid == MPI.COMM_NULL
""")  # fmt: skip
    barriers = {}
    for name, calls in counts(results).items():
        told = sp.parse_mpi_region(name)
        assert told is not None
        if told.operation == "barrier":
            barriers[told.communicator] = calls
    nested = [number for number in barriers if number > 1000]
    assert len(nested) == 2, "that of a half, and that of COMM_SELF"
    assert sorted((barriers.pop(number) for number in nested), key=len) == [{2: 1}, everywhere(4)]
    assert barriers == {2: everywhere(4), 3: everywhere(4), 5: everywhere(4)}


def test_many_shapes_make_few_regions_and_lose_nothing(mpi: Launcher, tmp_path: Path) -> None:
    results = run_ranks(mpi, tmp_path, 2, """
for n in range(100):
    if rank == 0: world.Send(bytearray(n), 1, tag=n)
    else: world.Recv(bytearray(n), 0, tag=n)
for n in range(100):
    world.Dup().Barrier()
""")  # fmt: skip
    found = counts(results)
    for operation, rank in ("send", 0), ("recv", 1):
        names = [name for name in found if name.startswith(f"mpi:{operation} ")]
        assert len(names) == 33
        assert sum(found[name][rank] for name in names) == 100
        rest = f"mpi:{operation} kind=point-to-point bytes=-1 peer=-1 root=-1 tag=-1 comm=0"
        told = list(results[rest][rank].event_metadata)
        assert told == [{"bytes": n, "peer": 1 - rank, "tag": n} for n in range(32, 100)]
    barriers = {name: calls for name, calls in found.items() if name.startswith("mpi:barrier")}
    assert len(barriers) == 65 and sum(calls[0] for calls in barriers.values()) == 100


def test_messages_of_the_profiler_are_not_recorded(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys, scope_profiler as sp
from mpi4py import MPI
run = sp.setup(file_path=sys.argv[1], profile_mpi_calls=True)
MPI.COMM_WORLD.barrier()
run.finalize(verbose=False)
MPI.COMM_WORLD.Barrier()
run.finalize(verbose=False)
names = run.results.region_names
assert names == ([sys.argv[2]] if MPI.COMM_WORLD.rank == 0 else []), names
sp.setup(file_path=sys.argv[1], profile_mpi_calls=True)   # while the hooks of the first run are in place
sp.finalize(verbose=False)
"""
    done = mpi.python(3, program, str(tmp_path / "own.h5"), f"mpi:barrier kind=collective bytes=0 peer=-1 {WORLD}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sp.load(tmp_path / "own.h5").region_names == []


def test_sizes_of_collective_objects_on_request(mpi: Launcher, tmp_path: Path) -> None:
    program = """
import sys, scope_profiler as sp
from mpi4py import MPI
world = MPI.COMM_WORLD
with sp.session(file_path=sys.argv[1], verbose=False):
    comm = sp.profile_mpi_comm(world, pickle_object_sizes=True)
    comm.allgather([1, 2])
    with sp.profile_mpi4py(pickle_object_sizes=True):
        MPI.COMM_WORLD.allgather([1, 2])
    MPI.COMM_WORLD.barrier()
"""
    done = mpi.python(2, program, str(tmp_path / "sizes.h5"))
    assert done.returncode == 0, done.stdout + done.stderr
    size = len(pickle.dumps([1, 2], protocol=pickle.HIGHEST_PROTOCOL))
    assert counts(sp.load(tmp_path / "sizes.h5")) == {
        f"mpi:allgather kind=collective bytes={size} peer=-1 {WORLD}": {0: 2, 1: 2}
    }


def test_an_error_of_a_call_is_the_programs(mpi: Launcher, tmp_path: Path) -> None:
    results = run_ranks(mpi, tmp_path, 2, """
for wrong in (lambda: world.send(1, size + 5), lambda: world.bcast(1, root=99), lambda: world.Send(3, 0)):
    try: wrong()
    except (MPI.Exception, TypeError): pass
    else: raise AssertionError("no error")
for wrong in (lambda: world.send(lambda: 0, 0), lambda: world.recv(1, 2, 3, 4, 5)):
    try: wrong()
    except (AttributeError, TypeError, __import__("pickle").PicklingError): pass
world.barrier()
""")  # fmt: skip
    assert counts(results)[f"mpi:barrier kind=collective bytes=0 peer=-1 {WORLD}"] == {0: 1, 1: 1}


def test_ranks_of_the_release_and_ours_name_the_same_calls(mpi: Launcher, tmp_path: Path) -> None:
    """What 0.7.5 called these (tried there with two ranks) is what they are called here."""
    results = run_ranks(mpi, tmp_path, 2, """
other = 1 - rank
world.Bcast(numbers, root=0)
world.Reduce(numbers, np.empty(4), root=1)
request = world.Isend(numbers, other, tag=1)
world.Recv(np.empty(4), other)
request.Wait()
""")  # fmt: skip
    expected: dict[str, dict[int, int]] = {
        "mpi:bcast kind=collective bytes=32 peer=-1 root=0 tag=-1 comm=0": {0: 1, 1: 1},
        "mpi:reduce kind=collective bytes=32 peer=-1 root=1 tag=-1 comm=0": {0: 1, 1: 1},
    }
    for rank in range(2):
        peer = 1 - rank
        expected |= {
            f"mpi:isend kind=point-to-point bytes=32 peer={peer} root=-1 tag=1 comm=0": {rank: 1},
            f"mpi:wait kind=wait bytes=32 peer={peer} root=-1 tag=1 comm=0 request=isend": {rank: 1},
            f"mpi:recv kind=point-to-point bytes=32 peer={peer} root=-1 tag=-1 comm=0": {rank: 1},
        }
    assert counts(results) == expected


def test_the_package_alone_knows_nothing_of_mpi(python: Callable[..., Any]) -> None:
    python("""
import sys, scope_profiler as sp
sp.ProfiledMPIComm, sp.ProfiledMPIRequest, sp.format_mpi_region, sp.profile_mpi4py
assert not any(name.startswith("mpi4py") for name in sys.modules)
""")
