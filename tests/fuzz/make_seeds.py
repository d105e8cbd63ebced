"""Make the good files that the fuzz targets begin with: ``python make_seeds.py`` in this directory, with the tests' packages.

They are kept in the repository, so that the targets need no Python; run it again when a format changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

import h5py  # noqa: E402
import numpy as np  # noqa: E402

from h5files import everything, make, row, write_with_h5py  # noqa: E402
from native_traces import sps, spt  # noqa: E402
from scope_profiler import _core  # noqa: E402

SPOOL = """
import asyncio, os, threading, scope_profiler as sp
sp.setup(output="p.h5", track_async={tasks})
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
async def job(i):
    with sp.region("job"): await asyncio.sleep(0)
async def main():
    await asyncio.gather(*(asyncio.create_task(job(i), name=f"job {{i}}") for i in range(3)))
t = threading.Thread(target=enter, args=("thread", 5)); t.start(); t.join()
enter("written", 3); sp.finalize(verbose=False); enter("later", 7)
if {tasks}: asyncio.run(main())
sp.region("open").__enter__()
os.kill(os.getpid(), 9)
"""


def bases(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    _core.write_h5(everything(), str(directory / "whole.h5"))
    with h5py.File(directory / "whole.h5") as whole, h5py.File(directory / "schema3.h5", "w", libver=("v110", "v110")) as file:
        del_long = {name: value for name, value in whole["metadata"].attrs.items() if name != "long"}
        for name in whole:
            if name != "metadata":
                whole.copy(name, file)
        file.create_group("metadata").attrs.update(del_long)
        file.attrs.update(whole.attrs)
    (directory / "whole.h5").unlink()
    write_with_h5py(directory / "h5py3.h5", options={"chunks": (2,), "compression": "gzip", "shuffle": True})
    write_with_h5py(directory / "schema2.h5", schema=2)
    _core.write_h5(
        make(names=["a"], rows=[row(0, 0, 0, aggregate=(3, 60, 10, 30, 50))], columns={}, aggregate=True),
        str(directory / "aggregate.h5"),
    )
    with h5py.File(directory / "schema1.h5", "w") as file:
        file.create_group("metadata").attrs["mpi_size"] = 1
        region = file.create_group("rank0/regions/solve")
        region.create_dataset("start_times", data=np.array([100, 200], np.int64))
        region.create_dataset("end_times", data=np.array([150, 260], np.int64))
        region.attrs["source_file"] = "a.py"
        region.attrs["source_lineno"] = 3


def spools(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for tasks in (False,):  # a page of tasks takes a megabyte
        with tempfile.TemporaryDirectory() as place:
            subprocess.run([sys.executable, "-c", SPOOL.format(tasks=tasks)], cwd=place, timeout=60)
            [name] = [name for name in os.listdir(place) if name.endswith(".spool")]
            content = Path(place, name).read_bytes()
        used = max(at for at in range(0, len(content), 4096) if any(content[at : at + 4096])) + 4096
        (directory / f"good-{int(tasks)}").write_bytes(b"\1" + content[:used])


def traces(directory: Path) -> None:
    regions = [("a", [1, 5], [2, 9], "x.c", 3), ("ö", [], []), ("a", [20], [30], "", -1)]
    for order, name in (("<", "little"), (">", "big")):
        for version in (1, 2):
            content = spt([r[:3] if version == 1 else r for r in regions], version=version, order=order)
            place = directory / "spt" / f"good-{name}-{version}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        place = directory / "sps" / f"good-{name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(sps(["a", "b"], [("/lib/x.so", 4096)], [(0, 0, 5000), (-1, -1, 7), (1, 0, 4097)], order=order))


if __name__ == "__main__":
    traces(HERE / "corpus")
    bases(HERE / "bases")
    spools(HERE / "corpus" / "spool")
