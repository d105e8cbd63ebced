"""What is read from a spool, and the recover command."""

import json
import os
import sys

import numpy as np
import pytest

import scope_profiler as sp
from manager_helpers import enter
from scope_profiler import _core
from scope_profiler.cli import main
from scope_profiler.profile_io import sniff_profile_format

HEAD = """
import os, signal, sys, threading, time, asyncio, scope_profiler as sp
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
def die(): os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(python, tmp_path):
    """Run a program that is to kill itself; the path of its spool."""

    def run(body):
        process = python(HEAD + body, check=False)
        assert process.returncode == -9, process.stderr
        [name] = [name for name in os.listdir(tmp_path) if name.endswith(".spool")]
        return tmp_path / name

    return run


# -- load --------------------------------------------------------------------------------------------------------------


def test_a_spool_is_known_by_its_content(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", label="of a run")
    enter(pm, "a", 5)
    [name] = os.listdir(tmp_path)
    assert sniff_profile_format(tmp_path / name) == "spool"
    os.link(tmp_path / name, tmp_path / "renamed.h5")
    results = sp.load(tmp_path / "renamed.h5")
    assert results["a"].num_calls == 5 and results.metadata["label"] == "of a run"


def test_a_run_that_goes_on_can_be_looked_at(pm, tmp_path):
    run = pm.setup(output=tmp_path / "p.h5")
    [name] = os.listdir(tmp_path)
    enter(pm, "a", 5)
    assert sp.load(tmp_path / name)["a"].num_calls == 5
    enter(pm, "a", 5)
    before = sp.load(tmp_path / name)["a"][0]
    after = run.finalize(verbose=False)["a"][0]
    # Times are the same ones, though converted by other anchors.
    assert np.abs(before.start_times_ns - after.start_times_ns).max() < 1000


def test_the_metadata_are_those_of_the_run(killed):
    path = killed(
        """
import numpy
sp.setup(output="p.h5", label='a "label" \\\\ \\n \\u00e4')
facts = sp.ProfileManager.get_config().metadata
facts.update(text="added", number=7, share=0.5, list=["a", "b"])
sp.finalize(verbose=False)
enter("a")
die()
"""
    )
    metadata = sp.load(path).metadata
    assert metadata["label"] == 'a "label" \\ \n \u00e4'
    added = {key: metadata[key] for key in ("text", "number", "share", "list")}
    assert added == {"text": "added", "number": 7, "share": 0.5, "list": ["a", "b"]}
    assert metadata["recovered"] is True and metadata["recovered_open_calls"] == 0
    assert "recovered_damaged_bytes" not in metadata and "spool_metadata" not in metadata
    assert metadata["python_version"] == sys.version.split()[0]
    assert metadata["finalize_time_ns"] >= metadata["start_time_ns"] > 0


def test_calls_that_had_not_ended_are_marked_and_end_with_what_is_known(killed):
    path = killed(
        """
def work():
    with sp.region("elsewhere"):
        started.set()
        time.sleep(60)
started = threading.Event()
sp.setup(output="p.h5", track_threads=True)
threading.Thread(target=work, daemon=True).start()
started.wait()
for number in range(3):
    with sp.region("outer"):
        with sp.region("inner"): pass
        if number == 2:
            with sp.region("last"): pass
            die()
"""
    )
    results = sp.load(path)
    assert results["outer"].num_calls == 3 and results["inner"].num_calls == 3
    assert list(results["outer"][0].event_metadata) == [{}, {}, {"open": True}]
    assert list(results["elsewhere"][0].event_metadata) == [{"open": True}]
    assert list(results["last"][0].event_metadata) == [{}]
    end = results["last"][0].end_times_ns[0]
    assert results["outer"][0].end_times_ns[2] == end == results["elsewhere"][0].end_times_ns[0]
    assert results.metadata["recovered_open_calls"] == 2
    # The open call encloses what was in it.
    assert results["last"][0].parent_ids[0] == results["outer"][0].call_ids[2]


def test_calls_of_a_checkpoint_are_not_reported_again(killed, tmp_path):
    path = killed(
        """
sp.setup(output="p.h5")
enter("written", 10)
open_region = sp.region("open"); open_region.__enter__()
sp.finalize(verbose=False)
enter("later", 4)
die()
"""
    )
    assert sp.load(tmp_path / "p.h5").region_names == ["written"]
    results = sp.load(path)
    assert {name: results[name].num_calls for name in results.region_names} == {"open": 1, "later": 4}


def test_a_spool_of_nothing_is_an_empty_profile(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    [name] = os.listdir(tmp_path)
    assert sp.load(tmp_path / name).region_names == []


# -- recover -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def left(killed):
    return killed("sp.setup(output='p.h5'); enter('a', 3); sp.region('b').__enter__(); die()")


def test_recover_writes_a_profile_and_removes_the_spool(left, tmp_path, capsys):
    assert main(["recover", str(left)]) == 0
    assert os.listdir(tmp_path) == ["p.recovered.h5"]
    target = tmp_path / "p.recovered.h5"
    assert capsys.readouterr().out == f"wrote {target}: 4 calls of 2 regions, 1 of them open at the end\n"
    results = sp.load(target)
    assert results["a"].num_calls == 3 and list(results["b"][0].event_metadata) == [{"open": True}]
    assert results.metadata["recovered"] is True


def test_recover_to_a_given_file_keeping_the_spool(left, tmp_path):
    assert main(["recover", str(left), "-o", str(tmp_path / "q.h5"), "--keep"]) == 0
    assert sorted(os.listdir(tmp_path)) == [left.name, "q.h5"]


def test_recover_never_takes_the_name_of_another_profile(left, tmp_path):
    for name in ("p.h5", "p.recovered.h5"):
        (tmp_path / name).write_text("mine")
    assert main(["recover", str(left)]) == 0
    assert sp.load(tmp_path / "p.recovered-2.h5")["a"].num_calls == 3
    assert (tmp_path / "p.h5").read_text() == (tmp_path / "p.recovered.h5").read_text() == "mine"


def test_run_tells_of_what_is_left_in_one_line(left, tmp_path, python):
    (tmp_path / "app.py").write_text("print('hello')\n")
    process = python("from scope_profiler.cli import main; main(['run', '-q', '-o', 'p.h5', 'app.py'])")
    assert process.stdout == "hello\n"
    assert process.stderr.startswith("scope-profiler: ") and process.stderr.count("\n") == 1
    assert f"scope-profiler recover {left}" in process.stderr


def test_recover_of_a_spool_without_a_call_says_so(python, tmp_path, capsys):
    python(HEAD + "sp.setup(output='p.h5'); die()", check=False)
    [name] = os.listdir(tmp_path)
    assert main(["recover", str(tmp_path / name)]) == 1
    assert "holds no call" in capsys.readouterr().out and os.listdir(tmp_path) == []


def test_recover_of_a_process_that_lives_is_a_look_at_it(pm, tmp_path, capsys):
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a", 3)
    [name] = os.listdir(tmp_path)
    assert main(["recover", str(tmp_path / name)]) == 0
    assert "still running" in capsys.readouterr().out and (tmp_path / name).exists()
    enter(pm, "a", 3)
    pm.finalize(verbose=False)
    assert sp.load(tmp_path / "p.h5")["a"].num_calls == 6


def test_recover_keeps_the_spool_when_the_profile_cannot_be_written(left, tmp_path, capsys):
    assert main(["recover", str(left), "-o", str(tmp_path / "missing" / "p.h5")]) == 2
    assert "missing" in capsys.readouterr().err and left.exists()


def test_recover_keeps_a_spool_that_is_damaged(left, tmp_path, capsys):
    with open(left, "r+b") as file:
        file.seek(4096 * 200)
        file.write(b"damage")
    assert main(["recover", str(left)]) == 0
    out = capsys.readouterr().out
    assert "were damaged" in out and f"{left} stays" in out and left.exists()
    assert sp.load(tmp_path / "p.recovered.h5").metadata["recovered_damaged_bytes"] > 0


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "no such file"), (b"", "not a spool"), (b"text" * 2000, "not a spool"), (b"SPSPOOL\n" + bytes(9000), "spool")],
)
def test_recover_of_something_else_is_one_line(tmp_path, capsys, content, word):
    path = tmp_path / "x.spool"
    if content is not None:
        path.write_bytes(content)
    assert main(["recover", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(path) in error and word in error
    assert content is None or path.exists()


def test_metadata_that_no_file_can_hold_are_left_out(killed, monkeypatch):
    path = killed("sp.setup(output='p.h5'); enter('a'); die()")
    read = _core.read_spool
    for text in ('{"good": 1, "nul": "\\u0000", "big": 1e999, "huge": 99999999999999999999, "half": "\\ud800", "deep": {}}',
                 "[" * 100_000, "null", "{", '{"start_time_ns": 1}'):

        def crafted(path, text=text):
            profile, facts = read(path)
            return _core.replace_profile(profile, metadata={**profile.metadata, "spool_metadata": text}), facts

        monkeypatch.setattr(_core, "read_spool", crafted)
        metadata = sp.load(path).metadata
        assert metadata["recovered"] is True and metadata["start_time_ns"] > 1
        assert not {"nul", "huge", "half", "deep"} & metadata.keys() and metadata.get("good", 1) == 1


def test_tables_show_no_cpu_time_where_none_is_known(killed, capsys):
    """The CPU clock of a thread is read when it ends or is collected; a killed process did neither."""
    spool = killed("sp.setup(output='p.h5', track_threads=True)\nenter('a')\ndie()")
    assert main(["inspect", str(spool)]) == 0
    shown = capsys.readouterr().out
    [row] = [line for line in shown.splitlines() if "MainThread" in line]
    assert " - " in row and "-0.0" not in shown, shown
    assert main(["inspect", str(spool), "--json"]) == 0
    [thread] = json.loads(capsys.readouterr().out)["profiles"][0]["threads"]
    assert thread["cpu_time"] is None and thread["run_cpu_time"] is None
    results = sp.load(spool)
    [info], [summed] = results.threads[0], results.thread_summary()
    assert all(value != value for value in (info.cpu_time, info.run_cpu_time, summed["cpu_time"]))  # NaN
    assert "CPU time unknown" in repr(info)
    sp.write_profile(results, spool.with_name("again.json"))
    [again] = sp.load(spool.with_name("again.json")).threads[0]
    sp.write_profile(sp.ProfilingResults({}, threads=results.threads), spool.with_name("bare.h5"))
    [bare] = sp.load(spool.with_name("bare.h5")).threads[0]
    assert again.cpu_time != again.cpu_time and bare.cpu_time != bare.cpu_time


def test_calls_that_were_opened_last_stay_inside_their_callers(killed):
    results = sp.load(killed("""
sp.setup(output="p.h5", track_threads=True)
calls = [sp.region(f"level {i}") for i in range(40)]
for call in calls: call.__enter__()
die()
"""))
    above = -1
    for level in range(40):
        part = results[f"level {level}"][0]
        assert part.event_metadata == ({"open": True},) and list(part.parent_ids) == [above]
        [above] = part.call_ids
