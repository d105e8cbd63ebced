"""Metadata and outcomes of single calls of a process that dies: they are in its spool until they are in a file."""

import os

import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.cli import main

HEAD = """
import asyncio, os, sys, threading, time, scope_profiler as sp
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
@sp.profile(record_outcome=True, metadata=lambda n: {"n": n})
def halves(n):
    if n % 2: raise ValueError("odd \\x1b[31m \\u00e4")
    enter("inside")
def run(*numbers):
    for n in numbers:
        try: halves(n)
        except ValueError: pass
def die(): os.kill(os.getpid(), 9)
"""
ODD = {"status": "error", "exception": "ValueError"}
EVEN = {"status": "ok"}


def spool_in(directory):
    [name] = [name for name in os.listdir(directory) if name.endswith(".spool")]
    return directory / name


def values(results):
    return {name: list(results[name][0].event_metadata) for name in results.region_names}


def test_scopes_and_outcomes_as_a_file_would_have_them(python, tmp_path):
    body = """
sp.setup(output="p.h5", track_async=True)
async def job(i):
    with sp.metadata(task=i, outer=False):
        with sp.region("waits"): await asyncio.sleep(0)
        with sp.metadata(task=-i):
            with sp.region("inner"): await asyncio.sleep(0)
async def main():
    with sp.metadata(outer=True):
        await asyncio.gather(*(asyncio.create_task(job(i)) for i in range(3)))
        thread = threading.Thread(target=run, args=(5, 6)); thread.start(); thread.join()
        run(0, 1)
        enter("plain")
    enter("plain")
asyncio.run(main())
"""
    python(HEAD + body + "die()", check=False)
    python(HEAD + body.replace("p.h5", "whole.h5") + "sp.finalize(verbose=False)")
    recovered, whole = values(sp.load(spool_in(tmp_path))), values(sp.load(tmp_path / "whole.h5"))
    assert recovered == whole
    assert recovered == {
        "waits": [{"task": i, "outer": False} for i in range(3)],
        "inner": [{"task": -i, "outer": False} for i in range(3)],
        "halves": [{"n": 5, **ODD}, {"n": 6, **EVEN}, {"outer": True, "n": 0, **EVEN}, {"outer": True, "n": 1, **ODD}],
        "inside": [{"n": 6}, {"outer": True, "n": 0}],
        "plain": [{"outer": True}, {}],
    }


def test_what_is_open_at_the_end_counts_for_calls_that_are_open(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5")
with sp.metadata(job="a"):
    enter("ended")
    with sp.region("open"):
        with sp.metadata(step=1):
            with sp.region("deeper"): die()
""",
        check=False,
    )
    assert values(sp.load(spool_in(tmp_path))) == {
        "ended": [{"job": "a"}],
        "open": [{"job": "a", "open": True}],
        "deeper": [{"job": "a", "step": 1, "open": True}],
    }


def test_a_checkpoint_takes_what_it_wrote_and_leaves_what_is_open(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5", checkpoint="numbered")
with sp.metadata(all=1):
    run(0, 1)
    sp.finalize(verbose=False)
    run(2)
    die()
""",
        check=False,
    )
    [written] = tmp_path.glob("*.h5")
    assert values(sp.load(written)) == {
        "halves": [{"all": 1, "n": 0, **EVEN}, {"all": 1, "n": 1, **ODD}],
        "inside": [{"all": 1, "n": 0}],
    }
    spool = spool_in(tmp_path)
    assert values(sp.load(spool)) == {"halves": [{"all": 1, "n": 2, **EVEN}], "inside": [{"all": 1, "n": 2}]}
    _, facts = _core.read_spool(spool)
    noted = [(region, text) for region, _, _, _, _, text in facts["values"][0]]
    # The scope is told of once, and again nothing of the first two calls but what shares a chunk with it.
    assert (None, '{"n": 2}') in noted and ("halves", '{"status": "ok"}') in noted


def test_checkpoints_leave_nothing_behind(python, tmp_path):
    process = python(
        HEAD
        + """
from scope_profiler import _core
sp.setup(output="p.h5", checkpoint="replace")
noted = []
for _ in range(20):
    run(*range(1000))
    path = sp.ProfileManager._state.recording.run.spool_path
    noted.append(len(_core.read_spool(path)[1]["values"][0]))
    sp.finalize(verbose=False)
    noted.append(len(_core.read_spool(path)[1]["values"][0]))
print(noted == [2000, 0] * 20, noted[:4])
"""
    )
    assert process.stdout.startswith("True "), process.stdout


def test_old_values_go_with_their_calls_where_the_newest_are_kept(python, tmp_path):
    limit = 4 << 20
    python(
        HEAD
        + f"""
sp.setup(output="p.h5", spool_limit={limit}, spool_policy="newest")
with sp.metadata(all=1):
    for n in range(0, 120_000, 2): halves(n)
    die()
""",
        check=False,
    )
    spool = spool_in(tmp_path)
    assert os.stat(spool).st_blocks * 512 <= limit + (2 << 20)
    results = sp.load(spool)
    found = results["halves"][0].event_metadata
    assert 5_000 < len(found) == results["halves"].num_calls < 60_000
    # Values take half of the room at most: those of older calls go before the calls do.
    assert all(one["n"] == 2 * place for place, one in enumerate(found[:100]) if "n" in one), "each call has its own"
    assert list(found[-3_000:]) == [{"all": 1, "n": 120_000 - 2 * number, "status": "ok"} for number in range(3_000, 0, -1)]


def test_values_of_any_kind_and_size(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5")
class Odd:
    def __repr__(self): return "ödd \\x1b"
with sp.metadata(big="x" * 300_000, odd=Odd(), **{"a\\0b": "\\0", "ü": {1, 1}, "n": float("nan")}):
    enter("a")
for size in range(0, 70_000, 777):
    with sp.metadata(size="y" * size): enter("b")
die()
""",
        check=False,
    )
    results = sp.load(spool_in(tmp_path))
    [first] = results["a"][0].event_metadata
    assert first["big"] == "x" * 300_000 and first["odd"] == "ödd \x1b" and first["ü"] == [1] and first["a\0b"] == "\0"
    assert [len(one["size"]) for one in results["b"][0].event_metadata] == list(range(0, 70_000, 777))


def test_damaged_notes_cost_only_themselves(python, tmp_path, monkeypatch):
    python(HEAD + 'sp.setup(output="p.h5")\nrun(0)\nwith sp.metadata(k=1): enter("a")\ndie()', check=False)
    path = spool_in(tmp_path)
    read = _core.read_spool
    for text in ("[1]", "{", "null", "", '{"a": ' * 100_000, "\ufffd"):

        def damaged(*args, text=text):
            profile, facts = read(*args)
            notes, lanes = facts["values"]
            return profile, {**facts, "values": ([(*note[:5], text) if '"k"' in note[5] else note for note in notes], lanes)}

        with monkeypatch.context() as patch:
            patch.setattr(_core, "read_spool", damaged)
            assert values(sp.load(path)) == {"halves": [{"n": 0, **EVEN}], "inside": [{"n": 0}], "a": [{}]}


def test_the_command_gives_them_back(python, tmp_path, capsys):
    python(HEAD + 'sp.setup(output="p.h5")\nrun(0)\ndie()', check=False)
    assert main(["recover", str(spool_in(tmp_path)), "-o", str(tmp_path / "r.h5")]) == 0
    assert values(sp.load(tmp_path / "r.h5")) == {"halves": [{"n": 0, **EVEN}], "inside": [{"n": 0}]}
    assert os.listdir(tmp_path) == ["r.h5"]


@pytest.mark.parametrize("spool", [True, False])
def test_a_forked_child_does_not_write_to_its_parents(python, tmp_path, spool):
    python(
        HEAD
        + f"""
sp.setup(output="p.h5", spool={spool})
with sp.metadata(of="parent"):
    run(0)
    pid = os.fork()
    if pid == 0:
        for n in range(3000): run(n)
        with sp.session(output="child.h5", verbose=False, replace=True):
            run(8)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    run(2)
sp.finalize(verbose=False)
"""
    )
    assert values(sp.load(tmp_path / "p.h5"))["halves"] == [{"of": "parent", "n": n, **EVEN} for n in (0, 2)]
    assert values(sp.load(tmp_path / "child.h5"))["halves"] == [{"n": 8, **EVEN}]
    assert sorted(os.listdir(tmp_path)) == ["child.h5", "p.h5"]


def test_values_never_stop_the_recording_of_calls(python, tmp_path):
    process = python(
        HEAD
        + """
import warnings
sp.setup(output="p.h5", track_threads=True, spool_limit=3 << 20, spool_policy="newest")
def work():
    for n in range(0, 20_000, 2): halves(n)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
run = sp.ProfileManager._state.recording.run
print(run.lost, run.limited, run.dropped[0])
warnings.simplefilter("ignore")
sp.finalize(verbose=False)
"""
    )
    lost, limited, dropped = process.stdout.split()
    assert (lost, limited) == ("0", "False")
    results = sp.load(tmp_path / "p.h5")
    assert results["halves"].num_calls + results["inside"].num_calls + int(dropped) == 80_000
