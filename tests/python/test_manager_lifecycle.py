"""setup, finalize, reset: what each leaves behind, and that no recorded call is lost without a word."""

import os
import sys
import threading
import warnings

import pytest

import scope_profiler as sp
from manager_helpers import counts, enter, ids


def finalize(manager, **options):
    return manager.finalize(verbose=False, return_results=True, **options)


# -- states ------------------------------------------------------------------------------------------------------------


def test_before_any_setup_nothing_is_active_and_finalize_gives_nothing(pm):
    assert not pm.is_configured() and not pm.is_active()
    assert pm.finalize(verbose=False) is None
    empty = finalize(pm)
    assert empty.num_ranks == 0 and empty.region_names == []
    enter(pm, "a")
    assert pm.recorded_regions() == () and pm.registered_regions() == ("a",)


def test_states_from_setup_to_reset(pm):
    run = pm.setup(output=None)
    assert pm.is_configured() and pm.is_active() and run.is_active and run.results is None
    enter(pm, "a", 2)
    results = run.finalize(verbose=False)
    assert run.results is results and pm.last_results() is results and counts(results) == {"a": 2}
    assert pm.is_active() and run.is_active, "finalize() of setup() is a checkpoint"
    pm.reset()
    assert not pm.is_configured() and not pm.is_active() and not run.is_active
    assert pm.last_results() is None and pm.registered_regions() == () and pm.get_config().label is None


def test_setup_while_active_is_refused_and_changes_nothing(pm):
    pm.setup(output=None, label="first")
    enter(pm, "a")
    with pytest.raises(RuntimeError, match="replace=True"):
        pm.setup(output=None)
    assert pm.get_config().label == "first"
    assert counts(finalize(pm)) == {"a": 1}
    pm.setup(output=None, label="second")  # finalized: allowed
    assert pm.get_config().label == "second" and finalize(pm).region_names == []


def test_a_refused_setting_leaves_the_run_before_as_it_was(pm):
    pm.setup(output=None)
    enter(pm, "a")
    with pytest.raises(ValueError):
        pm.setup(output=None, replace=True, metadata_detail="some")
    enter(pm, "a")
    assert counts(finalize(pm)) == {"a": 2}


def test_replaced_run_cannot_be_finalized_through_its_handle(pm):
    first = pm.setup(output=None)
    second = pm.setup(output=None, replace=True)
    with pytest.raises(RuntimeError, match="replaced"):
        first.finalize()
    assert second.is_active and not first.is_active
    pm.reset()
    with pytest.raises(RuntimeError):
        second.finalize()


def test_last_results_are_the_requested_ones(pm):
    pm.setup(output=None)
    enter(pm, "a")
    pm.finalize(verbose=False)
    assert pm.last_results() is None
    results = finalize(pm)
    assert pm.last_results() is results
    pm.setup(output=None)
    assert pm.last_results() is None


def test_deactivated_profiling_records_and_writes_nothing(pm, tmp_path):
    path = tmp_path / "p.h5"
    run = pm.setup(output=path, deactivate_profiling=True)
    enter(pm, "a")
    assert pm.is_configured() and not pm.is_active() and not run.is_active
    assert pm.recorded_regions() == () and pm.region("a").num_calls == 0
    assert pm.finalize(verbose=False) is None and finalize(pm).num_ranks == 0
    assert not path.exists()
    pm.setup(deactivate_profiling=True)
    pm.setup(output=None)  # a deactivated run is in nobody's way


def test_set_config_starts_a_run(pm, tmp_path):
    from scope_profiler.profile_config import ProfilingConfig

    config = ProfilingConfig(file_path=tmp_path / "c.h5", label="mine")
    pm.set_config(config)
    assert pm.get_config() is config and pm.is_configured() and pm.is_active()
    enter(pm, "a")
    pm.finalize(verbose=False)
    assert sp.load(tmp_path / "c.h5").label == "mine" and pm.read_results()["a"].num_calls == 1


# -- checkpoints ---------------------------------------------------------------------------------------------------------


def test_each_file_holds_the_calls_since_the_last_and_ids_go_on(pm, tmp_path):
    path = tmp_path / "p.h5"
    pm.setup(output=path)
    enter(pm, "a", 3)
    pm.finalize(verbose=False)
    assert ids(sp.load(path)) == [0, 1, 2]
    enter(pm, "a", 2)
    enter(pm, "b")
    pm.finalize(verbose=False)
    again = sp.load(path)
    assert counts(again) == {"a": 2, "b": 1} and ids(again) == [3, 4, 5]
    assert pm.region("a").num_calls == 5, "the runtime count is of the whole run"


def test_without_a_file_every_finalize_has_all_calls(pm):
    pm.setup(output=None)
    enter(pm, "a", 2)
    assert counts(finalize(pm)) == {"a": 2}
    enter(pm, "a")
    again = finalize(pm)
    assert counts(again) == {"a": 3} and len(set(ids(again))) == 3


def test_open_calls_are_reported_once_they_are_closed(pm, tmp_path):
    path = tmp_path / "p.h5"
    pm.setup(output=path)
    with pm.region("outer"):
        enter(pm, "inner")
        pm.finalize(verbose=False)
        assert counts(sp.load(path)) == {"inner": 1}
    pm.finalize(verbose=False)
    assert counts(sp.load(path)) == {"outer": 1}
    pm.finalize(verbose=False)
    assert counts(sp.load(path)) == {}


def test_numbered_checkpoints_keep_every_file(pm, tmp_path):
    run = pm.setup(output=tmp_path / "p.h5", checkpoint="numbered")
    for calls in (1, 2, 3):
        enter(pm, "a", calls)
        pm.finalize(verbose=False)
    names = [f"p.000{n}.h5" for n in (1, 2, 3)]
    assert sorted(name for name in os.listdir(tmp_path) if not name.endswith(".spool")) == names
    assert [os.path.basename(file) for file in run.files] == names
    assert [counts(sp.load(tmp_path / name))["a"] for name in names] == [1, 2, 3]
    assert sorted(i for name in names for i in ids(sp.load(tmp_path / name))) == list(range(6))


@pytest.mark.slow
def test_every_call_is_in_exactly_one_checkpoint_while_threads_record(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5", track_threads=True, checkpoint="numbered")
    made = [0] * 3
    stop = threading.Event()

    def work(k):
        region = pm.region("r")
        while not stop.is_set() and made[k] < 50_000:
            with region:
                made[k] += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            stop.wait(0.01)
            pm.finalize(verbose=False)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    pm.finalize(verbose=False)
    loaded = [sp.load(tmp_path / name) for name in sorted(os.listdir(tmp_path)) if name.endswith(".h5")]
    assert sum(counts(results).get("r", 0) for results in loaded) == sum(made)
    every = [i for results in loaded for i in ids(results)]
    assert len(set(every)) == len(every)


# -- failures --------------------------------------------------------------------------------------------------------------


def test_a_finalize_that_cannot_write_keeps_the_calls(pm, tmp_path):
    path = tmp_path / "missing" / "p.h5"
    run = pm.setup(output=path)
    enter(pm, "a", 3)
    with pytest.raises(FileNotFoundError):
        run.finalize(verbose=False)
    assert counts(run.results) == {"a": 3} and pm.last_results() is run.results, "the calls can be looked at all the same"
    enter(pm, "a")
    path.parent.mkdir()
    assert counts(run.finalize(verbose=False)) == {"a": 4}
    assert counts(sp.load(path)) == {"a": 4} and ids(sp.load(path)) == [0, 1, 2, 3]


def test_a_failed_finalize_does_not_block_the_next_run(pm, tmp_path):
    pm.setup(output=tmp_path / "missing" / "p.h5")
    enter(pm, "a", 2)
    with pytest.raises(FileNotFoundError):
        pm.finalize(verbose=False)
    with pytest.warns(RuntimeWarning, match="2 recorded calls"):
        pm.setup(output=None)
    assert finalize(pm).region_names == []


def test_failures_past_the_collection_keep_the_calls_too(pm, tmp_path, monkeypatch):
    from scope_profiler import _core, results

    path = tmp_path / "p.h5"
    pm.setup(output=path)
    enter(pm, "a")
    for owner, name in ((_core, "write_h5"), (_core, "replace_profile"), (results.ProfilingResults, "_from_profile")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *args, **kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                finalize(pm)
    assert counts(finalize(pm)) == {"a": 1} and counts(sp.load(path)) == {"a": 1}


def test_a_full_disk_leaves_the_old_file_and_the_calls(python, tmp_path):
    python(
        """
import os, resource, signal, scope_profiler as sp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing past the limit is an error then, as on a full disk
def enter(name, times):
    for _ in range(times):
        with sp.region(name): pass
def counts(): return {name: region.num_calls for name, region in ((n, sp.load("p.h5")[n]) for n in sp.load("p.h5").region_names)}
sp.setup(output="p.h5", hdf5_compression="none")
enter("a", 1); sp.finalize(verbose=False)
before = open("p.h5", "rb").read()
enter("b", 50_000)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
try: sp.finalize(verbose=False)
except OSError as error: print(error)
else: raise AssertionError("written past the limit")
assert open("p.h5", "rb").read() == before and not [name for name in os.listdir(".") if name.endswith(".tmp")]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
sp.finalize(verbose=False)
assert counts() == {"b": 50_000}
"""
    )


def test_a_printing_error_comes_after_the_file_is_safe(pm, tmp_path, monkeypatch):
    from scope_profiler.results import ProfilingResults

    monkeypatch.setattr(ProfilingResults, "print_summary", lambda self, **options: 1 / 0)
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a")
    with pytest.raises(ZeroDivisionError):
        pm.finalize(verbose=True)
    assert counts(sp.load(tmp_path / "p.h5")) == {"a": 1}


def test_finalize_within_finalize_is_refused_not_a_deadlock(pm, monkeypatch):
    from scope_profiler.recording import Recording

    pm.setup(output=None)
    enter(pm, "a")
    inner = []
    describe = Recording._describe

    def meddle(self, profile):
        with pytest.raises(RuntimeError, match="under way"):
            pm.finalize(verbose=False)
        inner.append(1)
        return describe(self, profile)

    monkeypatch.setattr(Recording, "_describe", meddle)
    assert counts(finalize(pm)) == {"a": 1} and inner == [1]


# -- what is thrown away is told --------------------------------------------------------------------------------------------


def test_replacing_a_run_tells_how_many_calls_it_drops(pm):
    pm.setup(output=None)
    enter(pm, "a", 3)
    with pytest.warns(RuntimeWarning, match="3 recorded calls were never reported") as caught:
        pm.setup(output=None, replace=True)
    assert caught[0].filename == __file__
    enter(pm, "a")
    with pytest.warns(RuntimeWarning, match="1 recorded call was"):
        pm.reset()


def test_calls_after_the_last_finalize_are_missed_by_the_next_setup(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    enter(pm, "a")
    pm.finalize(verbose=False)
    enter(pm, "a", 2)
    with pytest.warns(RuntimeWarning, match="2 recorded calls"):
        pm.setup(output=None)


def test_nothing_is_told_when_everything_was_reported(pm, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for output in (None, tmp_path / "p.h5"):
            pm.setup(output=output)
            enter(pm, "a", 2)
            pm.finalize(verbose=False)
        pm.reset()
        pm.setup(output=None)
        pm.reset()


def test_a_dropping_that_is_made_an_error_drops_nothing(pm):
    pm.setup(output=None)
    enter(pm, "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            pm.setup(output=None, replace=True)
        assert counts(finalize(pm)) == {"a": 1}
        enter(pm, "a")
        with pytest.raises(RuntimeWarning):
            pm.reset()
    assert not pm.is_configured(), "reset() has reset all the same"


def test_only_one_of_many_threads_can_start_a_run(pm):
    barrier = threading.Barrier(8)
    outcomes = []

    def start():
        barrier.wait()
        try:
            pm.setup(output=None)
            outcomes.append("started")
        except RuntimeError:
            outcomes.append("refused")

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["started"]


# -- warnings of a recording -----------------------------------------------------------------------------------------------


def test_calls_that_do_not_nest_are_kept_and_told(pm, tmp_path):
    a, b = pm.region("a"), pm.region("b")
    pm.setup(output=tmp_path / "p.h5")

    def held(region):
        with region:
            yield

    first, second = held(a), held(b)
    next(first), next(second)
    first.close(), second.close()
    with pytest.warns(RuntimeWarning, match="overlap without nesting"):
        results = finalize(pm)
    assert counts(results) == {"a": 1, "b": 1} and results["a"][0].call_ids is None
    assert counts(sp.load(tmp_path / "p.h5")) == {"a": 1, "b": 1}


def test_an_exit_without_a_call_is_told_once(pm):
    pm.setup(output=None)
    type(pm.region("a")).__exit__(pm.region("a"), None, None, None)
    enter(pm, "a")
    with pytest.warns(RuntimeWarning, match="1 exit of regions"):
        pm.finalize(verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.finalize(verbose=False)


def test_a_warning_turned_into_an_error_loses_nothing(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    type(pm.region("a")).__exit__(pm.region("a"), None, None, None)
    enter(pm, "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            pm.finalize(verbose=False)
    assert counts(sp.load(tmp_path / "p.h5")) == {"a": 1}


# -- verbose -----------------------------------------------------------------------------------------------------------------


def test_verbose_prints_the_table_of_the_run(pm, capsys):
    pm.setup(output=None)
    enter(pm, "solve", 2)
    pm.finalize()
    assert "solve" in capsys.readouterr().out
    pm.finalize(verbose=False)
    assert capsys.readouterr().out == ""


# -- end of the process ------------------------------------------------------------------------------------------------------


AUTO = """
import scope_profiler as sp, sys
sp.setup(output="auto.h5", auto_finalize=True)
with sp.region("a"): pass
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError('x')", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
def test_auto_finalize_writes_and_prints_however_the_program_ends(python, tmp_path, end):
    process = python(AUTO + end, check=False)
    assert counts(sp.load(tmp_path / "auto.h5")) == {"a": 1}
    assert "a" in process.stdout
    assert (process.returncode == 0) == (end == "")


@pytest.mark.parametrize("cancel", ["sp.finalize(verbose=False)", "sp.reset()", "sp.setup(output=None, replace=True)"])
def test_auto_finalize_is_cancelled(python, cancel):
    process = python(AUTO + cancel)
    assert process.stdout == ""


def test_auto_finalize_tries_again_what_has_failed(python, tmp_path):
    python(
        """
import os, scope_profiler as sp
sp.setup(output="sub/p.h5", auto_finalize=True)
with sp.region("a"): pass
try: sp.finalize(verbose=False)
except FileNotFoundError: os.mkdir("sub")
"""
    )
    assert counts(sp.load(tmp_path / "sub" / "p.h5")) == {"a": 1}


# -- independent managers -----------------------------------------------------------------------------------------------------


def test_instances_share_nothing(pm, default):
    other = sp.ProfileManager()
    assert isinstance(pm, sp.ProfileManager) and type(pm).__name__ == "ProfileManagerInstance"
    with default.session(output=None, verbose=False, return_results=True) as outer:
        with pm.session(output=None, verbose=False, return_results=True, label="mine") as inner:
            enter(default.ProfileManager, "same")
            enter(pm, "same", 2)
            enter(other, "same")
            assert other.recorded_regions() == () and not other.is_active()
    assert counts(outer.results) == {"same": 1} and counts(inner.results) == {"same": 2}
    assert outer.results.label is None and inner.results.label == "mine"
    assert ids(inner.results) == [0, 1, 2]


@pytest.mark.skipif(
    sys.version_info < (3, 14) and not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="free-threaded Python 3.13 keeps every class for good once there was a second thread, and a manager's with it",
)
def test_managers_are_garbage(pm):
    import gc
    import weakref

    def use():
        manager = sp.ProfileManager()
        manager.setup(output=None, track_threads=True)
        enter(manager, "a")
        manager.finalize(verbose=False)
        return weakref.ref(manager), weakref.ref(type(manager)), weakref.ref(manager._state)

    references = use()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_region_is_the_recorders_own_method(pm):
    for method in (sp.region, sp.ProfileManager.region, sp.ProfileManager.profile_region, pm.region, pm.profile_region):
        assert type(method).__name__ == "builtin_function_or_method"
    assert sp.region.__self__ is sp.ProfileManager.profile_region.__self__
    assert pm.region.__self__ is not sp.region.__self__


def test_a_finalize_that_has_nothing_to_write_says_so_and_leaves_the_file(pm, tmp_path, capsys):
    with pm.session(output=tmp_path / "p.h5", verbose=False):
        with pm.region("x"):
            pass
    assert pm.finalize() is None
    assert capsys.readouterr().out == f"nothing was recorded since {tmp_path / 'p.h5'} was written, which is as it was\n"
    assert "x" in sp.load(tmp_path / "p.h5")
