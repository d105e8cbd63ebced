"""Input and output that cannot be used: one clear error, as early as possible, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scope_profiler as sp

pytestmark = pytest.mark.usefixtures("clean_manager")

Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile with a bit of everything: threads, nesting, tags, metadata, odd names."""
    path = tmp_path / "good.h5"

    def work() -> None:
        for i in range(50):
            with sp.region("outer", tags=["a", "b"]), sp.region(f"inner {i % 3}"):
                pass

    with sp.session(output=path, track_threads=True, label="good", verbose=False):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with sp.metadata(step=1):
            work()
        with sp.region("żółć/🚀 \x1b[31m"):
            pass
    return path


def inspect(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scope_profiler", "inspect", str(path)], capture_output=True, text=True, timeout=60
    )


def assert_refused(
    path: Path, error: type[Exception] | tuple[type[Exception], ...], message: str | None = None
) -> None:
    """`load` raises ``error`` naming the file; `inspect` exits with 2, and one line that names it on stderr."""
    with pytest.raises(error, match=message) as caught:
        sp.load(path)
    assert path.name in str(caught.value) or path.name in str(getattr(caught.value, "filename", ""))
    process = inspect(path)
    assert process.returncode == 2
    assert process.stdout == ""
    assert len(process.stderr.splitlines()) == 1 and path.name in process.stderr


# -- files that are no profile -------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(tmp_path / "missing.h5", FileNotFoundError)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"not a profile\n",
        b"\x89PNG\r\n\x1a\n" + bytes(64),
        b"\x89HDF\r\n\x1a\n",
        b"\x89HDF\r\n\x1a\n" + bytes(4096),
        bytes(range(256)) * 64,
        b"SCOPEPRF" + bytes(32),
    ],
    ids=["empty", "one byte", "text", "picture", "only a signature", "signature and zeros", "bytes", "trace"],
)
def test_a_foreign_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.h5"
    path.write_bytes(content)
    assert_refused(path, sp.CorruptProfileError)


def test_a_foreign_hdf5_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["temperature"] = [1.0, 2.0]
    assert_refused(path, sp.CorruptProfileError)


def test_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "directory.h5"
    path.mkdir()
    assert_refused(path, OSError)


def test_a_file_that_may_not_be_read(profile: Path, python: Program) -> None:
    profile.chmod(0)
    if os.geteuid() == 0:
        # Root may read anything: ask as nobody, from a process of its own.
        process = python(
            "import os, sys\n"
            "import scope_profiler as sp\n"
            "sp.load(sys.argv[1])  # imports what it needs\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "try: sp.load(sys.argv[1])\n"
            "except PermissionError as error: print('refused', error.filename)\n",
            str(profile),
        )
        assert process.stdout.split() == ["refused", str(profile)]
    else:
        assert_refused(profile, PermissionError)


# -- damaged profiles ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_truncation(profile: Path, tmp_path: Path, soak: bool) -> None:
    content = profile.read_bytes()
    path = tmp_path / "truncated.h5"
    step = 1 if soak else 197
    whole = sp.load(profile)["outer"][0].durations_ns.tolist()
    for length in [*range(0, len(content) - 1, step), len(content) - 1]:
        path.write_bytes(content[:length])
        try:
            loaded = sp.load(path)
        except sp.CorruptProfileError as error:  # noqa: PERF203
            assert "truncated.h5" in str(error)
        else:
            # Only the checksum at the very end is missing: it is as good as a file that never had one.
            assert length > len(content) - 64
            assert loaded["outer"][0].durations_ns.tolist() == whole


# Reads damaged copies of a file in its own process, where a crash is seen as what it is.
FLIP = """
import random, sys
import scope_profiler as sp
source, first, count, bits = sys.argv[1], *map(int, sys.argv[2:])
content = open(source, "rb").read()
for seed in range(first, first + count):
    chance = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(bits):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    with open("flipped.h5", "wb") as file:
        file.write(damaged)
    try:
        results = sp.load("flipped.h5")
        for region in results:
            for rank in region:
                part = region[rank]
                part.num_calls, part.durations_ns.sum(), part.thread_ids, part.tags, part.event_metadata
        results.threads, results.metadata
        sp.read_h5_summary("flipped.h5").summary()
    except (OSError, ValueError) as error:
        assert str(error), seed
    except BaseException:
        print("seed", seed, flush=True)
        raise
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, 8, 64])
def test_flipped_bits_give_an_error_or_a_profile_and_never_crash(
    profile: Path, python: Program, bits: int, soak: bool
) -> None:
    count = 50_000 if soak else 300
    process = python(FLIP, str(profile), "0", str(count), str(bits), timeout=3600)
    assert process.stdout.split() == ["done"]


def damage(profile: Path, change: Callable[[Any], None]) -> Path:
    """A copy of the profile with something changed in it."""
    h5py = pytest.importorskip("h5py")
    path = profile.with_name("damaged.h5")
    shutil.copy(profile, path)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replace(group: Any, name: str, value: Any) -> None:
    del group[name]
    group[name] = value


INCONSISTENT: dict[str, Callable[[Any], None]] = {
    "no events": lambda f: f.__delitem__("events"),
    "no index": lambda f: f.__delitem__("rank_region_index"),
    "no names": lambda f: f.__delitem__("region_table"),
    "no durations": lambda f: f["events"].__delitem__("durations"),
    "no region ids": lambda f: f["rank_region_index"].__delitem__("region_ids"),
    "region id out of range": lambda f: replace(f["rank_region_index"], "region_ids", f["rank_region_index/region_ids"][()] + 99),
    "rows beyond the events": lambda f: replace(f["rank_region_index"], "event_counts", f["rank_region_index/event_counts"][()] + 1),
    "offsets beyond the events": lambda f: replace(f["rank_region_index"], "event_offsets", f["rank_region_index/event_offsets"][()] + 10**9),
    "huge counts": lambda f: replace(f["rank_region_index"], "event_counts", f["rank_region_index/event_counts"][()] + (2**63)),
    "columns of different lengths": lambda f: replace(f["events"], "durations", f["events/durations"][1:]),
    "index of different lengths": lambda f: replace(f["rank_region_index"], "ranks", f["rank_region_index/ranks"][1:]),
    "short thread ids": lambda f: replace(f["events"], "thread_ids", f["events/thread_ids"][:-1]),
    "negative durations": lambda f: replace(f["events"], "durations", -1 - f["events/durations"][()]),
    "events that are text": lambda f: replace(f["events"], "durations", [b"x"] * len(f["events/durations"])),
    "a group in place of a column": lambda f: (f["events"].__delitem__("durations"), f["events"].create_group("durations")),
    "a table of two dimensions": lambda f: replace(f["events"], "durations", f["events/durations"][()].reshape(1, -1)),
    "short thread table": lambda f: replace(f["thread_table"], "name", f["thread_table/name"][1:]),
    "unknown layout": lambda f: f.attrs.__setitem__("storage_layout", "spiral"),
}  # fmt: skip


@pytest.mark.parametrize("what", INCONSISTENT)
def test_an_inconsistent_profile(profile: Path, what: str) -> None:
    assert_refused(damage(profile, INCONSISTENT[what]), sp.CorruptProfileError)


@pytest.mark.parametrize("version", [0, -1, 4, 10**12, 2.5, "three"])
def test_an_unknown_schema(profile: Path, version: Any) -> None:
    from scope_profiler.h5schema import HDF5SchemaError

    path = damage(profile, lambda file: file.attrs.__setitem__("scope_profiler_schema", version))
    assert_refused(path, HDF5SchemaError)


def test_json_that_is_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"hello": [1, 2, 3]}))
    assert_refused(path, ValueError)


# -- output that cannot be written ---------------------------------------------------------------------------------------


def record(count: int) -> None:
    for _ in range(count):
        with sp.region("kept"):
            pass


def files_of(directory: Path) -> list[str]:
    """What is there besides the spool of the run that goes on."""
    return sorted(name for name in os.listdir(directory) if not name.endswith(".spool"))


def test_a_missing_directory_is_told_and_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "not yet" / "profile.h5"
    with pytest.warns(RuntimeWarning, match="not yet"):
        sp.setup(output=output)
    record(5)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="not yet"):
            sp.finalize(verbose=False)
        record(1)
    output.parent.mkdir()
    assert sp.finalize(verbose=False, return_results=True)["kept"].num_calls == 7
    assert sp.load(output)["kept"].num_calls == 7
    assert files_of(output.parent) == ["profile.h5"]


def test_an_output_that_became_a_directory_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "profile.h5"
    sp.setup(output=output)
    record(3)
    output.mkdir()
    (output / "in the way").touch()
    with pytest.raises(OSError, match="profile.h5"):
        sp.finalize(verbose=False)
    assert files_of(tmp_path) == ["profile.h5"], "no temporary file is left"
    shutil.rmtree(output)
    assert sp.finalize(verbose=False, return_results=True)["kept"].num_calls == 3


def test_an_exception_of_the_body_and_of_the_write_are_both_told(tmp_path: Path) -> None:
    output = tmp_path / "gone" / "profile.h5"
    output.parent.mkdir()
    with warnings.catch_warnings(record=True) as warned, pytest.raises(ZeroDivisionError) as caught:
        warnings.simplefilter("always")
        with sp.session(output=output, verbose=False):
            record(2)
            shutil.rmtree(output.parent)
            raise ZeroDivisionError("of the body")
    told = [*getattr(caught.value, "__notes__", ()), str(caught.value.__context__)]  # notes are shown from 3.11 on
    assert not warned and "gone/profile.h5" in told[0]
    # The manager is not stuck: the calls can still be written, or a new session begun.
    output.parent.mkdir()
    assert sp.finalize(verbose=False, return_results=True)["kept"].num_calls == 2
    with sp.session(output=None, verbose=False, return_results=True) as run:
        record(1)
    assert run.results["kept"].num_calls == 1


FULL_DISK = """
import hashlib, json, os, signal, sys
import numpy as np  # what is imported later would be written as .pyc files
import scope_profiler as sp
output = sys.argv[1]
sp.setup(output=output, hdf5_compression=None, track_threads=True)
region = sp.region("old")
with region: pass
sp.finalize(verbose=False)
old = open(output, "rb").read()
region = sp.region("kept")
for _ in range(200_000):
    with region: pass
begin()
errors = []
for _ in range(3):
    try:
        sp.finalize(verbose=False)
    except OSError as error:
        errors.append([type(error).__name__, error.errno, str(error)])
    assert open(output, "rb").read() == old
    files = [name for name in os.listdir(os.path.dirname(output)) if not name.endswith(".spool")]
    assert files == [os.path.basename(output)], files
assert sp.load(output)["old"].num_calls == 1
end()
with region: pass
results = sp.finalize(verbose=False, return_results=True)
print(json.dumps({"errors": errors, "calls": results["kept"].num_calls, "loaded": sp.load(output)["kept"].num_calls}))
"""

LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
def begin(): resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
def end(): resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""

FILLED = """
import os, sys
filler = os.path.join(os.path.dirname(os.path.dirname(sys.argv[1])), "filler")
def begin():
    with open(filler, "wb") as file:
        try:
            while True: file.write(bytes(65536)); file.flush()
        except OSError: pass
def end(): os.unlink(filler)
"""


def check_full_disk(process: subprocess.CompletedProcess[str], output: Path) -> None:
    outcome = json.loads(process.stdout)
    assert len(outcome["errors"]) == 3
    for _, number, text in outcome["errors"]:
        assert number in (27, 28), "EFBIG, ENOSPC"
        assert output.name in text
        assert "\n" not in text
    assert outcome["calls"] == outcome["loaded"] == 200_001
    assert process.stderr == "", "nothing of the library's own is printed"


def test_a_file_that_cannot_grow_keeps_the_old_output_and_the_calls(tmp_path: Path, python: Program) -> None:
    output = tmp_path / "out" / "profile.h5"
    output.parent.mkdir()
    check_full_disk(python(LIMITED + FULL_DISK, str(output)), output)


def test_a_full_disk_keeps_the_old_output_and_the_calls(tmp_path: Path, python: Program) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        output = disk / "out" / "profile.h5"
        output.parent.mkdir()
        check_full_disk(python(FILLED + FULL_DISK, str(output)), output)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_keeps_the_old_output(tmp_path: Path) -> None:
    """The write of 300,000 calls takes a while: kill it at random moments of it."""
    output = tmp_path / "profile.h5"
    source = (
        "import sys, scope_profiler as sp\n"
        "sp.setup(output=sys.argv[1])\n"
        "region = sp.region('x')\n"
        "while True:\n"
        "    for _ in range(300_000):\n"
        "        with region: pass\n"
        "    sp.finalize(verbose=False)\n"
        "    print('written', flush=True)\n"
    )
    chance = random.Random(1)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", source, str(output)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"written\n"
            try:
                process.wait(chance.random() * 0.15)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        assert sp.load(output)["x"].num_calls == 300_000


# -- names and values ----------------------------------------------------------------------------------------------------

BAD_NAMES = {"NUL": "a\0b", "lone surrogate": "a\ud800", "number": 7, "None": None}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_name_that_no_file_can_hold_is_refused_where_it_is_given(tmp_path: Path, name: Any) -> None:
    output = tmp_path / "profile.h5"
    sp.setup(output=output)
    record(1)
    with pytest.raises((ValueError, TypeError)):
        with sp.region(name):
            pass
    with pytest.raises((ValueError, TypeError)):
        sp.define_region(name)
    if name is not None:

        def function() -> None: ...

        with pytest.raises((ValueError, TypeError)):
            sp.profile(name)(function)
    record(1)
    results = sp.finalize(verbose=False, return_results=True)
    assert results.region_names == ["kept"]
    assert sp.load(output)["kept"].num_calls == 2


@pytest.mark.parametrize("label", ["a\0b", "\udc80"])
def test_a_label_that_no_file_can_hold_is_refused_at_setup(label: str) -> None:
    with pytest.raises(ValueError):
        sp.setup(output=None, label=label)
    assert not sp.is_active()


@pytest.mark.parametrize("tag", ["a\0b", "\udc80"])
def test_a_tag_that_no_file_can_hold_is_refused_at_the_region(tmp_path: Path, tag: str) -> None:
    sp.setup(output=tmp_path / "profile.h5")
    record(1)
    with pytest.raises(ValueError):
        sp.region("tagged", tags=[tag])
    sp.finalize(verbose=False)
    assert sp.load(tmp_path / "profile.h5")["kept"].num_calls == 1


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", float("nan")], ids=["object", "set", "bytes", "nan"])
def test_metadata_that_no_file_can_hold_loses_no_call(tmp_path: Path, value: Any) -> None:
    output = tmp_path / "profile.h5"
    sp.setup(output=output)
    record(1)
    try:
        with sp.metadata(value=value):
            record(1)
    except (TypeError, ValueError):
        record(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sp.finalize(verbose=False)
    assert sp.load(output)["kept"].num_calls == 2


def test_odd_names_come_back_as_they_were(tmp_path: Path) -> None:
    names = [
        "", " ", " a", "a ", "a/b", "a", "/a", "a//b", ".", "..", "a\nb", "a\tb", "\x01", "\x1b[2J", "\x7f", "\u2028", "e\u0301",
        "\u00e9", "\u202egnp.exe", "𝔘𝔫𝔦", "🚀", "<b>&amp;", 'q"\\', "x" * 5000, "ż" * 100_000, "a > b",
    ]  # fmt: skip
    output = tmp_path / "profile.h5"
    with sp.session(output=output, verbose=False, return_results=True) as run:
        for count, name in enumerate(names, 1):
            for _ in range(count):
                with sp.region(name):
                    pass
    for results in (run.results, sp.load(output)):
        assert results.region_names == ["scope_profiler.session", *names]
        assert [results[name].num_calls for name in names] == list(range(1, len(names) + 1))
