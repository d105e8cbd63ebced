"""The two commands that recover a spool, with Python and without, make equal files of it and say the same."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest

from native_code import COMMAND, Library, needs_command
from scope_profiler.cli import main
from test_spool_values import HEAD as VALUES

pytestmark = [needs_command, pytest.mark.uninstrumented, pytest.mark.beside]

HEAD = (
    VALUES
    + """
@sp.profile(metadata=lambda n: {"depth": n, f"only {n}": [n, {"deep": None}]})
def deeper(n):
    if n: deeper(n - 1)
async def job(i):
    with sp.metadata(task=i, outer=False):
        with sp.region("waits"): await asyncio.sleep(0)
        with sp.metadata(task=-i):
            with sp.region("inner"): await asyncio.sleep(0)
async def tasks(count):
    with sp.metadata(outer=True):
        await asyncio.gather(*(asyncio.create_task(job(i), name=f"job {i}") for i in range(count)))
def interleaved():
    def held(name):
        with sp.metadata(**{name: 1, "last": name}):
            with sp.region("held"): yield
            enter("after " + name)
            yield
    one, two = held("one"), held("two")
    next(one); next(two); enter("between"); next(one); list(one); enter("between"); next(two)
"""
)

PROGRAMS = {
    "metadata": """
sp.setup(output="p.h5", track_async=True, label="agreed \\u20ac")
with sp.metadata(job="a", odd=float("inf"), huge=10 ** 30, text="\\u20ac \\x00 \\udc80 \\"quoted\\"", list=[1, [2.5, {"x": None}]]):
    asyncio.run(tasks(5))
    thread = threading.Thread(target=run, args=range(20), name="other"); thread.start(); thread.join()
    run(0, 1, 2); deeper(6); interleaved()
enter("plain", 3)
with sp.metadata(**{"": 0, "same": 1}):
    with sp.region("open"):
        with sp.metadata(same=2):
            with sp.region("open too"): die()
""",
    "threads": """
sp.setup(output="p.h5", track_threads=True)
def work(i):
    with sp.region("whole"):
        enter(f"of {i}", 1000)
        stop.wait()
stop = threading.Event()
for i in range(5): threading.Thread(target=work, args=(i,), name=f"t{i}", daemon=True).start()
time.sleep(0.3); die()
""",
    "plain": """
sp.setup(output="p.h5")
with sp.region("around"): enter("x", 5000); die()
""",
    "sums": """
sp.setup(output="p.h5", aggregation_mode=True)
with sp.region("around"):
    enter("x", 5000); enter("y", 10); die()
""",
    "newest": """
sp.setup(output="p.h5", spool_limit=4 << 20, spool_policy="newest")
with sp.metadata(all=1):
    for n in range(0, 60_000, 2): halves(n)
    die()
""",
    "stopped": """
sp.setup(output="p.h5", spool_limit=2 << 20, spool_policy="stop")
with sp.metadata(all=1): enter("x", 200_000); die()
""",
    "checkpoint": """
sp.setup(output="p.h5", checkpoint="numbered", track_async=True)
with sp.metadata(all=1):
    run(0, 1); asyncio.run(tasks(3)); sp.finalize(verbose=False)
    run(2, 3); asyncio.run(tasks(3)); die()
""",
    "nothing": """
sp.setup(output="p.h5")
enter("x"); sp.finalize(verbose=False); die()
""",
}


def contents(path: Path) -> dict[str, Any]:
    """Everything in the file; JSON texts as what they say."""
    found: dict[str, Any] = {}

    def note(name: str, item: Any) -> None:
        found[name, "attributes"] = {key: repr(value) for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            values = item[()].tolist()
            if name.endswith("event_metadata"):
                found[name] = [json.loads(value) for value in values]
                values = []
            found[name, "values"] = repr((item.dtype.kind if name.endswith("event_metadata") else item.dtype, values))

    with h5py.File(path, "r") as file:
        note("", file)
        file.visititems(note)
    return found


def recovered(spool: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[int, str, dict[str, Any] | None]]:
    """Exit code, output and file of each of the commands."""
    outcomes = []
    for number in range(2):
        target = spool.parent / "recovered.h5"
        arguments = ["recover", str(spool), "--keep", "-o", str(target)]
        if number:
            done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120)
            code, said = done.returncode, done.stdout + done.stderr
        else:
            capsys.readouterr()
            code = main(arguments)
            said = "".join(capsys.readouterr())
        outcomes.append((code, said, contents(target) if target.exists() else None))
        target.unlink(missing_ok=True)
    return outcomes


def agree(
    spool: Path, capsys: pytest.CaptureFixture[str], what: object = None
) -> tuple[int, str, dict[str, Any] | None]:
    ours, theirs = recovered(spool, capsys)
    assert ours[:2] == theirs[:2], what
    for key in {*(ours[2] or {}), *(theirs[2] or {})}:
        assert (ours[2] or {}).get(key) == (theirs[2] or {}).get(key), (what, key)
    return theirs


@pytest.fixture(scope="module")
def spools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, body in PROGRAMS.items():
        directory = tmp_path_factory.mktemp(name)
        done = subprocess.run(
            [sys.executable, "-c", HEAD + body], cwd=directory, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        [found[name]] = directory.glob("*.spool")
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_killed_programs(spools: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, found = agree(spools[name], capsys)
    assert code == (name == "nothing"), said
    if name == "metadata":
        assert found is not None
        objects = [one for row in found["rank_region_index/event_metadata"] for one in row]
        assert {"": 0, "same": 2, "open": True} in objects and {"job", "n", "status"} <= {
            key for one in objects for key in one
        }
        deepest = max(objects, key=len)
        assert (
            deepest["odd"] == math.inf
            and deepest["huge"] == 10**30
            and deepest["text"] == '\u20ac \x00 \udc80 "quoted"'
        )
        assert deepest["depth"] == 0 and [deepest[f"only {n}"][0] for n in range(7)] == list(range(7))


def test_killed_native_programs(native_library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = native_library.compile("survivor.c", tmp_path / "program")
    with subprocess.Popen([str(program), "killed"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "recorded\n"
        process.send_signal(signal.SIGKILL)
    [spool] = tmp_path.glob("*.spool")
    assert agree(spool, capsys)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metadata", "threads", "sums", "newest", "checkpoint"])
def test_damaged_spools(
    spools: dict[str, Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], soak: bool
) -> None:
    whole = spools[name].read_bytes()
    chance = random.Random(name)
    spool = tmp_path / "p.h5.1-1.spool"
    for number in range(200 if soak else 12):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 10, 100))):
            at = chance.randrange(chance.choice((4096, len(data))))
            size = chance.choice((1, 1, 8, 4096))
            data[at : at + size] = bytes([chance.randrange(256)]) * min(size, len(data) - at)
        if number % 4 == 3:
            del data[chance.randrange(len(data)) :]
        spool.write_bytes(data)
        agree(spool, capsys, (name, number))
