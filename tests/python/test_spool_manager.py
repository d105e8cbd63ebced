"""When a run has a spool, where it lies, and when it goes."""

import contextlib
import os
import stat
import subprocess
import sys
import warnings

import pytest

import scope_profiler as sp
from manager_helpers import enter
from scope_profiler import _core
from scope_profiler.profile_config import ProfilingConfig

HEAD = """
import os, sys, threading, warnings, scope_profiler as sp
def enter(name, times=1):
    for _ in range(times):
        with sp.region(name): pass
def spools(): return sorted(n for n in os.listdir(".") if n.endswith(".spool"))
"""


def spools(directory):
    return sorted(name for name in os.listdir(directory) if name.endswith(".spool"))


# -- where and when ----------------------------------------------------------------------------------------------------


def test_the_spool_lies_beside_the_output_until_the_session_is_written(pm, tmp_path):
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        [name] = spools(tmp_path)
        assert name.startswith(f"p.h5.{os.getpid()}-")
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        facts = _core.inspect_spool(tmp_path / name)
        assert facts["pid"] == os.getpid() and facts["alive"]
        assert facts["output"] == str(tmp_path / "p.h5")
    assert os.listdir(tmp_path) == ["p.h5"]


def test_every_run_has_one_of_its_own(tmp_path):
    one, other = sp.ProfileManager(), sp.ProfileManager()
    with one.session(output=tmp_path / "p.h5", verbose=False):
        with other.session(output=tmp_path / "p.h5", verbose=False):
            assert len(spools(tmp_path)) == 2
        assert len(spools(tmp_path)) == 1
    assert spools(tmp_path) == []


def test_the_spool_is_removed_after_the_program_has_changed_its_directory(pm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pm.session(output="p.h5", verbose=False):
        assert spools(tmp_path)
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
    assert spools(tmp_path) == []


def test_a_file_that_has_taken_the_name_is_not_removed(pm, tmp_path):
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        [name] = spools(tmp_path)
        os.rename(tmp_path / name, tmp_path / "moved")
        (tmp_path / name).write_text("another")
    assert (tmp_path / name).read_text() == "another"


@pytest.mark.parametrize("settings", [{"output": None}, {"spool": False}, {"deactivate_profiling": True}])
def test_no_spool_without_a_file_or_where_it_is_turned_off(pm, tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    with pm.session(verbose=False, **settings):
        assert spools(tmp_path) == []


@pytest.mark.parametrize(("word", "made"), [("0", 0), ("off", 0), ("no", 0), ("1", 1), ("True", 1), ("auto", 1), ("", 1)])
def test_the_environment_chooses_where_the_settings_do_not(pm, tmp_path, monkeypatch, word, made):
    monkeypatch.setenv("SCOPE_PROFILER_SPOOL", word)
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        assert len(spools(tmp_path)) == made
    for setting in (True, False):
        with pm.session(output=tmp_path / "p.h5", verbose=False, spool=setting):
            assert len(spools(tmp_path)) == setting


def test_a_word_that_means_nothing_is_refused(pm, tmp_path, monkeypatch):
    monkeypatch.setenv("SCOPE_PROFILER_SPOOL", "perhaps")
    with pytest.raises(ValueError, match="SCOPE_PROFILER_SPOOL.*perhaps"):
        pm.setup(output=tmp_path / "p.h5")
    assert not pm.is_active()
    with pytest.raises(ValueError, match="spool"):
        ProfilingConfig(spool="perhaps")
    with pytest.raises(ValueError, match="spool_limit"):
        ProfilingConfig(spool_limit=10)


def test_a_file_system_of_another_machine_has_none_unless_asked_for(pm, tmp_path, monkeypatch):
    monkeypatch.setattr(_core, "spool_is_local", lambda directory: False)
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        assert spools(tmp_path) == []
    with pm.session(output=tmp_path / "p.h5", verbose=False, spool=True):
        assert len(spools(tmp_path)) == 1


# -- setup and finalize ------------------------------------------------------------------------------------------------


def test_a_checkpoint_keeps_the_spool_and_drops_what_is_written(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a", 3)
    pm.finalize(verbose=False)
    [name] = spools(tmp_path)
    profile, _ = _core.read_spool(tmp_path / name)
    assert profile.call_count == 0
    enter(pm, "b", 2)
    profile, _ = _core.read_spool(tmp_path / name)
    assert profile.names == ["b"] and profile.call_count == 2


def test_what_a_failed_finalize_collected_is_still_there(pm, tmp_path):
    (tmp_path / "made").mkdir()
    pm.setup(output=tmp_path / "made" / "p.h5", checkpoint="numbered")
    enter(pm, "a", 3)
    (tmp_path / "made" / "p.0001.h5").mkdir()
    with pytest.raises(OSError):
        pm.finalize(verbose=False)
    [name] = spools(tmp_path / "made")
    enter(pm, "a", 4)
    assert _core.read_spool(tmp_path / "made" / name)[0].call_count == 7


def test_reset_and_replacement_remove_the_spool(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a")
    with pytest.warns(RuntimeWarning, match="dropped"):
        pm.setup(output=tmp_path / "q.h5", replace=True)
    assert [name.partition(".h5")[0] for name in spools(tmp_path)] == ["q"]
    enter(pm, "a")
    with pytest.warns(RuntimeWarning, match="dropped"):
        pm.reset()
    assert os.listdir(tmp_path) == []


def test_a_session_that_another_replaced_keeps_its_spool_to_its_end(pm, tmp_path):
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        enter(pm, "a")
        with pm.session(output=tmp_path / "q.h5", verbose=False, replace=True):
            assert [name.partition(".h5")[0] for name in spools(tmp_path)] == ["p", "q"]
        assert [name.partition(".h5")[0] for name in spools(tmp_path)] == ["p"]
    assert spools(tmp_path) == []


# -- the end of the process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("sp.setup(output='p.h5')", 0),
        ("sp.setup(output='p.h5'); enter('a')", 1),
        ("sp.setup(output='p.h5'); enter('a'); sp.finalize(verbose=False)", 0),
        ("sp.setup(output='p.h5'); enter('a'); sp.finalize(verbose=False); enter('b')", 1),
        ("sp.setup(output='p.h5', auto_finalize=True); enter('a')", 0),
        ("sp.setup(output='p.h5'); sp.region('open').__enter__()", 1),
        # A loop that never ends is no reason to keep the file after a report.
        ("sp.setup(output='p.h5'); sp.region('open').__enter__(); enter('a'); sp.finalize(verbose=False)", 0),
        ("run = sp.setup(output='p.h5'); enter('a'); raise SystemExit(0)", 1),
        ("import atexit; atexit.register(sp.finalize, False); sp.setup(output='p.h5'); enter('a')", 0),
    ],
)
def test_a_normal_exit_leaves_the_spool_only_for_calls_that_nobody_reported(python, tmp_path, body, left):
    python(HEAD + body)
    assert len(spools(tmp_path)) == left
    for name in spools(tmp_path):
        assert sum(region.num_calls for region in sp.load(tmp_path / name).get_regions()) == 1


@pytest.mark.parametrize("way", ["pass", "del run; sp.reset = None; manager = None; gc.collect()", "raise KeyError"])
def test_a_spool_that_a_normal_exit_leaves_has_everything(python, tmp_path, way):
    python(
        HEAD
        + f"""
import gc
manager = sp.ProfileManager()
run = manager.setup(output="p.h5", track_threads=True)
def work():
    for _ in range(20_000):
        with manager.region("a"): pass
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
{way}
""",
        check=False,
    )
    [name] = spools(tmp_path)
    assert sp.load(tmp_path / name)["a"].num_calls == 60_000


def test_a_call_that_was_given_up_is_no_reason_to_keep_the_spool(python, tmp_path):
    python(
        HEAD
        + """
def generator():
    with sp.region("given up"):
        yield
sp.setup(output="p.h5")
g = generator(); next(g); del g
@sp.profile
def other():
    yield
o = other(); next(o); del o
enter("a")
sp.finalize(verbose=False)
"""
    )
    assert spools(tmp_path) == []


def test_the_child_of_a_fork_leaves_the_parents_spool_alone(python, tmp_path):
    python(
        HEAD
        + """
import gc
sp.setup(output="p.h5")
enter("parent", 1000)
before = os.stat(spools()[0])
for way in range(4):
    pid = os.fork()
    if not pid:
        enter("child", 5000)
        if way == 0: sys.exit(0)
        if way == 1: sp.reset(); gc.collect(); sys.exit(0)
        if way == 2: sp.finalize(verbose=False); os._exit(0)
        if way == 3: os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    after = os.stat(spools()[0])
    assert len(spools()) == 1 and after.st_ino == before.st_ino
    profile, _ = sp._core.read_spool(spools()[0])
    assert profile.names == ["parent"] and profile.call_count == 1000
os.remove("p.h5")
enter("parent", 7)
sp.finalize(verbose=False)
assert sp.load("p.h5")["parent"].num_calls == 1007
"""
    )
    assert spools(tmp_path) == []


def test_a_child_with_a_run_of_its_own_has_a_spool_of_its_own(python, tmp_path):
    python(
        HEAD
        + """
sp.setup(output="p.h5")
enter("parent")
pid = os.fork()
if not pid:
    with sp.session(output="p.h5", verbose=False):
        enter("child")
        assert len(spools()) == 2
    os._exit(0 if len(spools()) == 1 else 1)
assert os.waitpid(pid, 0)[1] == 0
assert len(spools()) == 1
sp.finalize(verbose=False)
"""
    )
    assert spools(tmp_path) == []


# -- failure, and what was left ----------------------------------------------------------------------------------------


def test_a_spool_that_cannot_be_made_is_one_warning_and_the_run_goes_on(pm, tmp_path):
    path = tmp_path / "later" / "p.h5"
    with pytest.warns(RuntimeWarning, match="there is no directory .*later to write p.h5 to") as caught:
        pm.setup(output=path)
    assert len(caught) == 1 and caught[0].filename == __file__
    enter(pm, "a")
    path.parent.mkdir()
    pm.finalize(verbose=False)
    assert os.listdir(path.parent) == ["p.h5"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_one_warning(pm, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.warns(RuntimeWarning, match="cannot create the spool .*denied"):
        pm.setup(output=tmp_path / "p.h5")


def test_a_limit_on_files_is_one_warning_and_no_signal(python):
    python(
        HEAD
        + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    sp.setup(output="p.h5")
assert len(caught) == 1 and "room for the spool" in str(caught[0].message), caught
assert spools() == []
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
enter("a")
sp.finalize(verbose=False)
assert sp.load("p.h5")["a"].num_calls == 1
"""
    )


def test_a_warning_that_is_an_error_leaves_the_run_before(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a")
    pm.finalize(verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="there is no directory"):
            pm.setup(output=tmp_path / "missing" / "p.h5")
    assert pm.is_active() and len(spools(tmp_path)) == 1
    enter(pm, "b")
    pm.finalize(verbose=False)
    assert sp.load(tmp_path / "p.h5").region_names == ["b"]


def test_what_a_dead_process_left_is_told_once_at_the_next_start(python, pm, tmp_path):
    python(HEAD + "sp.setup(output='p.h5'); enter('a'); os.kill(os.getpid(), 9)", check=False)
    [name] = spools(tmp_path)
    with pytest.warns(RuntimeWarning) as caught:
        pm.setup(output=tmp_path / "p.h5")
    assert [f"scope-profiler recover {tmp_path / name}" in str(warning.message) for warning in caught] == [True]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.setup(output=tmp_path / "p.h5", replace=True)
        pm.setup(output=tmp_path / "other.h5", replace=True)


def test_the_spool_of_a_process_that_lives_is_not_told(pm, tmp_path):
    other = sp.ProfileManager()
    other.setup(output=tmp_path / "p.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.setup(output=tmp_path / "p.h5")
    other.reset()


def test_a_file_that_only_looks_like_a_spool_is_not_told(pm, tmp_path):
    (tmp_path / "p.h5.12-1.spool").write_bytes(b"no spool" * 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.setup(output=tmp_path / "p.h5")


def test_a_process_that_meets_an_old_spool_of_its_own_name_takes_the_next_number(pm, tmp_path):
    from scope_profiler import spooling

    for number in range(1, 4):
        (tmp_path / f"p.h5.{os.getpid()}-{spooling._number + number}.spool").touch()
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        assert len(spools(tmp_path)) == 4


def test_a_fork_copies_little_of_a_long_run_and_the_child_can_report_it(python):
    python(
        HEAD
        + """
sp.setup(output="p.h5", checkpoint="numbered")
def private():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))
enter("parent", 1_000_000)
before = private()
pid = os.fork()
if not pid:
    grown = private() - before
    enter("child", 10)
    results = sp.finalize(verbose=False, return_results=True)
    counts = {name: results[name].num_calls for name in results.region_names}
    assert counts == {"parent": 1_000_000, "child": 10}, counts
    os._exit(0 if grown < 12_000 else 9)
assert os.waitpid(pid, 0)[1] == 0
enter("parent", 5)
sp.finalize(verbose=False)
assert sp.load("p.0001.h5")["parent"].num_calls == 1_000_005
"""
    )


RIVAL = HEAD + """
with sp.session(output=sys.argv[1], verbose=False):
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def rival(output):
    """Another process that records to a file, until the end of the block."""
    process = subprocess.Popen([sys.executable, "-c", RIVAL, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.communicate("\n", timeout=60)


def warnings_of_a_session(pm, output):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pm.session(output=output, verbose=False):
            pass
    return [str(warning.message) for warning in caught]


def test_a_process_that_records_to_the_same_file_is_told_at_setup(pm, tmp_path):
    output = tmp_path / "p.h5"
    with rival(output) as pid:
        expected = f"process {pid} records to {output} as well: each that finalizes replaces the file of the one before"
        assert warnings_of_a_session(pm, output) == [expected]
        assert warnings_of_a_session(pm, tmp_path / "q.h5") == []
        with rival(output):
            [text] = warnings_of_a_session(pm, output)
            assert text.startswith(f"2 other processes record to {output} as well")
    assert warnings_of_a_session(pm, output) == []


def test_a_name_that_goes_on_is_another_file(pm, tmp_path):
    with rival(tmp_path / "p.h5.more.h5"):
        assert warnings_of_a_session(pm, tmp_path / "p.h5") == []


@pytest.mark.parametrize(
    "session",
    [
        "sp.session(output='p.h5', verbose=False)",
        "sp.session(output='p.h5', verbose=False, track_async=True)",
        "sp.session(output='p.h5', verbose=False, aggregation_mode=True)",
        "sp.ProfileManager().session(output='p.h5', verbose=False)",
        "sp.ProfileManager().session(output='p.h5', verbose=False, track_async=True)",
    ],
)
def test_a_session_that_is_over_has_no_file_open(python, session):
    """Whether or not the garbage collector ever runs."""
    python(f"""
import gc, os, scope_profiler as sp
gc.disable()
def here():
    files = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{{fd}}")]
    return sum(".spool" in file for file in files), sum(".spool" in line for line in open("/proc/self/maps"))
maps = []
for _ in range(12):
    with {session} as run:
        with sp.region("x"): pass
        assert here()[0] == 1
    files, mapped = here()
    assert files == 0, files
    maps.append(mapped)
# What was recorded into stays mapped for as long as the run is known: that of the last session, and of managers that are there.
each = {int("ProfileManager" in session)}
assert maps[-1] - maps[2] <= each * 2 * 9 and (each or maps[-1] == maps[2]), maps
""")


def test_sessions_do_not_use_up_the_files_of_a_process(python, tmp_path):
    python("""
import resource, warnings, scope_profiler as sp
warnings.simplefilter("error")
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
for _ in range(60):
    with sp.session(output="p.h5", track_async=True, verbose=False):
        with sp.region("x"): pass
    assert sp.load("p.h5")["x"].num_calls == 1
""")


def test_results_are_read_from_the_file_when_the_spool_is_gone(pm, tmp_path):
    with pm.session(output=tmp_path / "p.h5", track_async=True, verbose=False, return_results=True) as run:
        for _ in range(100):
            with pm.region("x"):
                pass
    (tmp_path / "p.h5").rename(tmp_path / "moved.h5")
    assert run.results["x"][0].num_calls == len(run.results["x"][0].durations) == 100
    assert [row.name for row in run.results.threads[0]] == ["MainThread"]
    assert pm.get_config().tracker.threads[0].name == "MainThread"
