"""A second reader of spools, written from docs/spool-format.md alone, and what becomes of damaged ones."""

import os
import random
import struct
import subprocess
import sys
import zlib
from collections import defaultdict

import pytest

import scope_profiler as sp
from scope_profiler import _core

PROGRAM = """
import asyncio, os, threading, scope_profiler as sp
sp.setup(output="p.h5", track_async={tasks}, spool_limit={limit})
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
def work(number):
    for i in range(3000):
        with sp.region(f"thread {{number}}"):
            with sp.region("inner"): pass
async def job(i):
    with sp.region("job"): await asyncio.sleep(0)
async def main():
    await asyncio.gather(*(asyncio.create_task(job(i), name=f"job {{i}}") for i in range(50)))
threads = [threading.Thread(target=work, args=(n,), name=f"t{{n}}") for n in range(3)]
for t in threads: t.start()
for t in threads: t.join()
enter("written", 100); sp.finalize(verbose=False); enter("later", {later})
if {tasks}: asyncio.run(main())
sp.region("open").__enter__()
os.kill(os.getpid(), 9)
"""


def make(directory, tasks=True, later=70, limit=None):
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(tasks=tasks, later=later, limit=limit)], cwd=directory, timeout=240
    )
    [name] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    return directory / name


# -- the second reader -------------------------------------------------------------------------------------------------


class SecondReader:
    """What a spool holds, by its specification."""

    def __init__(self, data):
        self.header(data)
        self.regions, self.threads, self.task_names, self.anchors = {}, {}, {}, []
        self.collected = self.confirmed = 0
        chunks = sorted(self.chunks(data))
        for _, kind, _, body in chunks:
            if kind == 3:
                for note in self.notes(body):
                    self.read_note(*note)
        self.tasks = sum(self.count_tasks(body) for _, kind, _, body in chunks if kind == 2)
        self.calls = defaultdict(list)  # region -> (start, end, thread row, task)
        for _, kind, owner, body in chunks:
            if kind == 1:
                for region, *call in self.slots(body):
                    self.calls[self.regions[region]].append((call[0], call[1], owner, call[2]))

    def header(self, data):
        assert data[:8] == b"SPSPOOL\n"
        version, order, self.slot, self.task, self.clock, self.tracks = struct.unpack_from("6I", data, 8)
        assert version == 1 and order == 0x01020304
        self.pid, self.began = struct.unpack_from("qQ", data, 32)
        self.boot = data[48:88].split(b"\0")[0].decode()
        self.first, self.started = struct.unpack_from("Qq", data, 88), struct.unpack_from("Qq", data, 104)
        self.output = os.fsdecode(data[120:2168].split(b"\0")[0])
        assert struct.unpack_from("I", data, 2168) == (zlib.crc32(data[:2168]),)

    @staticmethod
    def chunks(data):
        offset = 4096
        while offset + 4096 <= len(data):
            magic, kind, size, owner, element, sequence, crc, dropped = struct.unpack_from("IIQIIQII", data, offset)
            if magic != 0x4B435053 or crc != zlib.crc32(data[offset : offset + 32]):
                offset += 4096
                continue
            if not dropped:
                yield sequence, kind, owner, data[offset + 64 : offset + size]
            offset += size

    @staticmethod
    def notes(body):
        at = 0
        while at + 24 <= len(body):
            size, payload, kind, _, index, crc = struct.unpack_from("IIHHII", body, at)
            if not size:
                return
            content = body[at + 24 : at + 24 + payload]
            assert crc == zlib.crc32(body[at + 4 : at + 16] + content)
            yield kind, index, content
            at += size

    def read_note(self, kind, index, content):
        if kind == 1:
            assert content[8] == 1
            self.regions[index] = content[9:].split(b"\0")[0].decode()
        elif kind == 2:
            self.threads[index] = content[32:].split(b"\0")[0].decode()
        elif kind == 5:
            self.task_names[index] = content.split(b"\0")[0].decode()
        elif kind == 6:
            self.anchors.append(struct.unpack("Qq", content))
        elif kind == 8:
            self.collected = index
        elif kind == 9:
            self.confirmed = index

    def count_tasks(self, body):
        offset = 8  # of the creation time in a row
        return sum(
            struct.unpack_from("Q", body, row * self.task + offset)[0] != 0 for row in range(len(body) // self.task)
        )

    def slots(self, body):
        for at in range(0, len(body) - self.slot + 1, self.slot):
            start, end, region, task = struct.unpack_from("QQIi", body, at)
            if not start:
                return
            if region == 0xFFFFFFFF or end == 2**64 - 1 or (region >> 30 & 1 and self.collected == self.confirmed):
                continue
            yield region & 0x3FFFFFFF, start, end, task

    def to_ns(self, ticks):
        if self.clock == 2:
            return ticks
        anchors = [self.first, *self.anchors]
        for (left, left_ns), (right, right_ns) in zip(anchors, anchors[1:]):
            if left <= ticks <= right and right > left:
                return left_ns + (ticks - left) * (right_ns - left_ns) / (right - left)
        last = anchors[-1]
        base = next((anchor for anchor in reversed(anchors) if last[1] - anchor[1] >= 1e9), anchors[0])
        return last[1] + (ticks - last[0]) * (last[1] - base[1]) / (last[0] - base[0])


@pytest.mark.parametrize("tasks", [False, True])
def test_both_readers_find_the_same(tmp_path, tasks):
    path = make(tmp_path, tasks)
    second = SecondReader(path.read_bytes())
    facts = _core.inspect_spool(path)
    assert (second.pid, second.output) == (facts["pid"], facts["output"]) and not facts["alive"]
    assert second.slot == (32 if tasks else 24) and second.started[1] == facts["start_ns"]
    results = sp.load(path)
    expected = {"later": 70, "open": 1, **({"job": 50} if tasks else {})}
    assert {name: len(calls) for name, calls in second.calls.items()} == expected
    assert {name: results[name].num_calls for name in results.region_names} == expected
    assert [call[1] for call in second.calls["open"]] == [0]
    for name, calls in second.calls.items():
        region = results[name][0]
        for number, (start, end, thread, task) in enumerate(calls):
            if tasks:
                assert (region.thread_ids[number], region.task_ids[number]) == (thread, task)
            for ticks, ns in ((start, region.start_times_ns[number]), (end, region.end_times_ns[number])):
                if ticks:
                    assert abs(second.to_ns(ticks) - ns) <= 2
    if tasks:
        assert [row.name for row in results.threads[0]] == [second.threads[row] for row in sorted(second.threads)]
        assert second.tasks == len(results.tasks[0]) >= 51
        assert {row.index: row.name for row in results.tasks[0] if row.name.startswith("job")} == second.task_names


def test_a_checkpoint_is_not_repeated_whichever_moment_the_kill_hit(tmp_path):
    path = make(tmp_path)
    second = SecondReader(path.read_bytes())
    assert second.collected == second.confirmed == 1 and "written" in second.regions.values()
    assert "written" not in second.calls


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    return make(tmp_path_factory.mktemp("spool"), later=5000).read_bytes()


CHECK = """
import sys, warnings, scope_profiler as sp
from scope_profiler import _core
for path in sys.argv[1:]:
    try:
        results = sp.load(path)
        for name in results.region_names:
            region = results[name][0]
            assert region.num_calls == len(region.durations_ns) and (region.durations_ns >= 0).all()
        results.print_summary(stream=open("/dev/null", "w"))
    except (_core.CorruptProfileError, _core.HDF5SchemaError, ValueError) as error:
        assert path in str(error), error
"""


def check(python, tmp_path, damaged):
    paths = []
    for number, data in enumerate(damaged):
        paths.append(tmp_path / f"{number}.spool")
        paths[-1].write_bytes(data)
    python(CHECK, *map(str, paths))


def test_flipped_bits_never_harm_the_reader(python, tmp_path, spool, scale):
    chance = random.Random(5)
    used = [page for page in range(0, len(spool), 4096) if any(spool[page : page + 4096])]

    def flipped():
        data = bytearray(spool)
        for _ in range(chance.choice((1, 3, 30, 300))):
            data[chance.choice(used) + chance.choice((chance.randrange(4096), chance.randrange(200)))] ^= 1 << chance.randrange(8)
        return data

    check(python, tmp_path, [flipped() for _ in range(scale(40, 1000))])


def test_headers_with_wrong_numbers_and_right_checksums_never_harm_it(python, tmp_path, spool, scale):
    chance = random.Random(6)
    chunks = [at for at in range(4096, len(spool), 4096) if spool[at : at + 4] == b"SPCK"]
    odd = (0, 1, 2, 63, 64, 4095, 4096, 2**31, 2**32 - 1)

    def crafted():
        data = bytearray(spool)
        for _ in range(3):
            at = chance.choice(chunks)
            struct.pack_into("I", data, at + 4 * chance.randrange(1, 8), chance.choice((*odd, chance.getrandbits(32))))
            struct.pack_into("I", data, at + 32, zlib.crc32(data[at : at + 32]))
        field = chance.choice((0, 8, 12, 16, 20, 24, 28, 32, 88, 96, 104, 112, 120))
        if chance.random() < 0.5 and field:
            struct.pack_into("I", data, field, chance.choice((*odd, chance.getrandbits(32))))
            struct.pack_into("I", data, 2168, zlib.crc32(data[:2168]))
        return data

    check(python, tmp_path, [crafted() for _ in range(scale(40, 1000))])


def test_a_spool_cut_off_anywhere_gives_what_is_before(python, tmp_path, spool):
    check(python, tmp_path, [spool[:size] for size in (0, 1, 8, 100, 4095, 4096, 4097, 8192, 70_000, len(spool) // 2, len(spool) - 1)])


def test_one_damaged_page_costs_only_what_was_in_it(tmp_path, spool):
    """The journal is whole: every call outside of the page is found."""
    path = tmp_path / "x.spool"
    path.write_bytes(spool)
    whole = sp.load(path)
    events = [
        at
        for at in range(4096, len(spool), 4096)
        if spool[at : at + 8] == struct.pack("II", 0x4B435053, 1) and not struct.unpack_from("I", spool, at + 36)[0]
    ]
    chunk = max(events, key=lambda at: len(spool[at : at + struct.unpack_from("Q", spool, at + 8)[0]].rstrip(b"\0")))
    data = bytearray(spool)
    assert any(data[chunk + 8192 : chunk + 12288])
    data[chunk + 8192 : chunk + 12288] = os.urandom(4096)
    path.write_bytes(data)
    results = sp.load(path)
    before = sum(region.num_calls for region in whole.get_regions())
    after = sum(region.num_calls for region in results.get_regions())
    assert before - 4096 // 32 - 2 <= after <= before
    assert results.metadata["recovered_damaged_bytes"] > 0


def test_the_limit_stops_the_recording_and_says_so(tmp_path):
    path = make(tmp_path, tasks=False, later=500_000, limit=4 << 20)
    assert path.stat().st_size <= 4 << 20
    results = sp.load(path)
    assert 1000 < results["later"].num_calls < 500_000
    assert results.metadata["recording_limited"] is True
