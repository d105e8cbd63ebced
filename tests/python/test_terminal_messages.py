"""What a reader is told: about files that cannot be read or written, missing lanes, and runs that others began."""

import asyncio
import os
import re
import time

import pytest

import scope_profiler as sp
from export_helpers import int64, region, results_of
from scope_profiler.cli import main
from scope_profiler.cli.arguments import build_parser
from scope_profiler.profile_manager import ProfileManager


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sp.write_profile(results_of({"solve": {0: region([0], [100])}, "io": {0: region([10], [20])}}), "run.h5")
    return "run.h5"


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "--include", "solve", "run.h5"],
        ["inspect", "--include", "solve", "io", "run.h5", "--regions-only"],
        ["inspect", "--columns", "region", "calls", "run.h5"],
        ["inspect", "--regions-only", "--exclude", "nothing", "run.h5"],
        ["inspect", "--include", "solve", "r*.h5"],
        ["diff", "--include", "solve", "run.h5", "run.h5"],
        ["plot", "gantt", "--include", "solve", "run.h5", "-o", "g.svg"],
    ],
)
def test_files_may_follow_an_option_of_several_values(profile, arguments, capsys):
    assert main(arguments) == 0
    assert "solve" in capsys.readouterr().out or os.path.exists("g.svg")


def test_a_pattern_that_is_a_file_too_stays_a_pattern_where_the_file_is_given(profile, capsys):
    open("io", "w").close()
    assert main(["inspect", profile, "--regions-only", "--include", "solve", "io"]) == 0
    assert "io" in capsys.readouterr().out


def test_a_missing_file_is_still_told(profile, capsys):
    assert main(["inspect", "--include", "solve", "none.h5"]) == 2
    assert "FILE" in capsys.readouterr().err


def test_only_values_of_options_of_several_values_are_taken_for_files(profile):
    import scope_profiler.cli.inspect as command

    parser = build_parser("p", "summary", command)
    taken = parser._files_among_values(["--sort", "run.h5", "--include", "run.h5", "run.h5", "--depth", "3"])
    assert taken == (["run.h5"], ["--sort", "run.h5", "--include", "run.h5", "--depth", "3"])


def test_a_truncated_file_says_where_it_ends(profile, capsys):
    with open(profile, "rb") as file:
        content = file.read()
    with open("cut.h5", "wb") as file:
        file.write(content[:3000])
    assert main(["inspect", "cut.h5"]) == 2
    line = capsys.readouterr().err
    found = re.search(r"cut.h5 is damaged: HDF5 cannot open it \(it is cut off after 3000 of (\d+) bytes\)", line)
    assert found and len(content) - 24 <= int(found[1]) <= len(content)  # a seal of 24 bytes is behind what HDF5 knows of
    assert line.count("cut.h5") == 1


def test_an_error_names_the_file_once(tmp_path):
    target = tmp_path / "none" / "x.h5"
    with pytest.raises(FileNotFoundError) as caught:
        sp.write_profile(results_of({"a": {0: region([0], [1])}}), target)
    assert str(caught.value).count(str(target)) == 1
    assert caught.value.filename == str(target)


def test_lanes_that_were_not_recorded_say_so():
    manager = ProfileManager()
    with manager.session(output=None, verbose=False, return_results=True) as run:
        with manager.region("a"):
            pass
    with pytest.raises(KeyError, match="recorded none .*track_threads=True"):
        run.results.threads[0]
    with pytest.raises(KeyError, match="track_async=True"):
        run.results.tasks[0]
    assert run.results.threads == {} and run.results.threads.get(0) is None
    with manager.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        pass
    with pytest.raises(KeyError, match=r"rank 3; there are those of \[0\]"):
        run.results.threads[3]


def test_a_wrong_word_for_the_spool_names_the_right_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("SCOPE_PROFILER_SPOOL", "maybe")
    with pytest.raises(ValueError, match="SCOPE_PROFILER_SPOOL is one of auto, 1, .*, off, not 'maybe'"):
        ProfileManager().setup(output=tmp_path / "p.h5")


def test_a_missing_directory_is_told_at_setup_even_without_a_spool(tmp_path):
    with pytest.warns(RuntimeWarning, match="there is no directory .*none to write p.h5 to"):
        ProfileManager().setup(output=tmp_path / "none" / "p.h5", spool=False)


OWN_RUN = "import scope_profiler as sp\nwith sp.session(output='own.h5', verbose=False):\n    with sp.region('mine'):\n        pass\n"


def _run(python, *words, check=True):
    return python("import sys; from scope_profiler.cli import main; sys.exit(main(['run', *sys.argv[1:]]))", *words, check=check)


@pytest.mark.parametrize("begin", ["", "sp.setup(output='own.h5')\nwith sp.region('mine'): pass\nsp.finalize(verbose=False)\n"])
def test_run_makes_way_for_a_run_of_the_program(tmp_path, python, begin):
    (tmp_path / "app.py").write_text("import scope_profiler as sp\n" + begin if begin else OWN_RUN)
    done = _run(python, "-o", "o.h5", "app.py")
    assert done.stdout == ""
    assert done.stderr == (
        "scope-profiler run: the program begins a run of its own, in own.h5; that one is recorded, and o.h5 is not written\n"
    )
    assert sp.load(tmp_path / "own.h5").get_region("mine").num_calls == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.py", "own.h5"]


def test_run_keeps_what_was_recorded_before_a_run_of_the_program(tmp_path, python):
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nwith sp.region('early'):\n    pass\n" + OWN_RUN)
    done = _run(python, "-o", "o.h5", "app.py")
    assert "calls before it are in o.h5" in done.stderr
    assert [region.name for region in sp.load(tmp_path / "o.h5")] == ["early"]
    assert "early" not in sp.load(tmp_path / "own.h5") and "mine" in sp.load(tmp_path / "own.h5")
    done = _run(python, "-o", "own.h5", "app.py")
    assert "1 call before it is dropped" in done.stderr
    assert "mine" in sp.load(tmp_path / "own.h5")


def test_run_tells_that_the_program_deactivates_profiling(tmp_path, python):
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nsp.setup(deactivate_profiling=True)\nwith sp.region('mine'):\n    pass\n")
    done = _run(python, "-o", "o.h5", "app.py")
    assert "deactivates profiling; nothing is recorded from here on, and o.h5 is not written" in done.stderr


def test_a_file_that_the_program_had_run_write_stays_beside_its_own(tmp_path, python):
    (tmp_path / "app.py").write_text(
        "import scope_profiler as sp\nwith sp.region('early'):\n    pass\nsp.finalize(verbose=False)\n" + OWN_RUN
    )
    done = _run(python, "-o", "o.h5", "app.py")
    assert "not written" not in done.stderr
    assert "early" in sp.load(tmp_path / "o.h5") and "mine" in sp.load(tmp_path / "own.h5")


def test_a_forked_child_with_a_session_leaves_the_run_to_its_parent(tmp_path, python):
    (tmp_path / "app.py").write_text(
        "import os, scope_profiler as sp\nif os.fork() == 0:\n    " + OWN_RUN.replace("\n", "\n    ")
        + "\n    os._exit(0)\nos.wait()\nwith sp.region('late'):\n    pass\n"
    )
    done = _run(python, "-q", "-o", "o.h5", "app.py")
    assert done.stderr == ""
    assert "late" in sp.load(tmp_path / "o.h5") and "mine" in sp.load(tmp_path / "own.h5")


def test_profile_command_has_no_results_of_a_program_with_a_run_of_its_own(profile, tmp_path):
    (tmp_path / "app.py").write_text(OWN_RUN)
    done = ProfileManager.profile_command("app.py", output="run.h5")  # which is of another run
    assert done.returncode == 0 and done.profile_results is None
    assert "mine" in sp.load("own.h5")


def test_run_reports_a_run_of_the_program_that_nobody_finalized(tmp_path, python):
    (tmp_path / "app.py").write_text("import scope_profiler as sp\nsp.setup(output='own.h5')\nwith sp.region('mine'):\n    pass\n")
    done = _run(python, "-o", "o.h5", "app.py")
    assert "mine" in done.stdout and "mine" in sp.load(tmp_path / "own.h5")


def test_commands_that_run_a_program_take_its_own_run(tmp_path, monkeypatch):
    from scope_profiler.bounded_process import profile_script

    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(OWN_RUN)
    done = profile_script("app.py", (), "o.h5", timeout=60, only_user_code=False)
    assert done.returncode == 0
    assert "mine" in sp.load("o.h5")
    (tmp_path / "app.py").write_text(OWN_RUN.replace("'own.h5'", "None"))
    done = profile_script("app.py", (), "none.h5", timeout=60)
    assert done.returncode == 2 and "which wrote no .h5 file" in done.reason


def test_own_time_is_never_more_than_the_region(capsys):
    threads = {"threads": int64([0, 1, 2])}
    run = results_of(
        {
            "scope_profiler.session": {0: region([0], [100], [0])},
            "work": {0: region([0, 0, 0], [100, 100, 100], **threads)},
            "part": {0: region([0, 0, 0], [10, 10, 10], **threads)},
        }
    )
    run.print_summary(include=["work", "part", "scope"], columns=["region", "percent"], suppress_notes=True)
    shares = [float(word[:-1]) for word in capsys.readouterr().out.split() if word.endswith("%") and word != "%"]
    assert shares and max(shares) <= 100.0


def test_a_task_that_waits_at_the_end_has_waited_till_then():
    manager = ProfileManager()
    results = {}

    async def waits():
        with manager.region("quick"):
            pass
        await asyncio.sleep(30)

    async def main_task():
        task = asyncio.create_task(waits(), name="waiting")
        await asyncio.sleep(0)
        time.sleep(0.05)
        results["then"] = manager.finalize(verbose=False, return_results=True)
        task.cancel()

    manager.setup(output=None, track_async=True)
    asyncio.run(main_task())
    (waiting,) = [task for task in results["then"].tasks[0] if task.name == "waiting"]
    (running,) = [task for task in results["then"].tasks[0] if "main_task" in task.coro_name]
    assert not waiting.done and 0.05 <= waiting.awaiting_time < 20
    assert not running.done and running.running_time >= 0.05


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plot", "fame", "run.h5"], "did you mean 'flame_"),
        (["benchmark", "rnu", "x", "--json"], "unknown command 'benchmark rnu', did you mean 'run'?"),
        (["run", "--trak-async", "app.py"], "did you mean '--track-async'?"),
        (["inspect", "run.h5", "--sorrt=total"], "did you mean '--sort'?"),
        (["inspect", "--columns", "foo"], "no file among what follows --columns: foo"),
    ],
)
def test_what_is_mistyped_is_told_with_what_it_may_be(profile, arguments, expected, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


def test_a_wrong_column_behind_a_file_is_told_as_that_alone(profile, capsys):
    assert main(["inspect", "run.h5", "--columns", "foo"]) == 2
    error = capsys.readouterr().err
    assert "no column 'foo'" in error and "no file" not in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "the program has recorded no region: mark some, with region() or @profile, or try --recursive"),
        (["--no-output"], "the program has recorded no region"),
        (["--recursive", "--include", "zzz"], "no function was recorded: none that was called matches --include zzz"),
    ],
)
def test_run_says_why_nothing_was_recorded(tmp_path, python, options, expected):
    (tmp_path / "app.py").write_text("def work(): pass\nwork()\n")
    done = _run(python, *options, "app.py")
    assert expected in done.stderr and done.stderr.count("\n") == 1
    assert _run(python, "-q", *options, "app.py").stderr == ""


def test_run_with_regions_gives_no_hint(tmp_path, python):
    (tmp_path / "app.py").write_text("from scope_profiler import region\nwith region('a'): pass\n")
    assert _run(python, "app.py").stderr == ""
    (tmp_path / "app.py").write_text("raise SystemExit(3)\n")
    done = _run(python, "app.py", check=False)
    assert done.returncode == 3 and done.stderr == ""


@pytest.mark.parametrize(("words", "root"), [(["-m", "package"], "package"), (["package/"], "package"), (["-m", "package.other"], "package.other")])
def test_the_root_region_of_a_module_is_named_after_it(tmp_path, python, words, root):
    (tmp_path / "package").mkdir()
    for name in ("__init__", "__main__", "other"):
        (tmp_path / "package" / f"{name}.py").write_text("")
    _run(python, "-q", "-o", "o.h5", "--recursive", *words)
    assert root in sp.load(tmp_path / "o.h5")


def test_line_profile_says_that_a_file_has_none(profile, capsys):
    assert main(["line-profile", "run.h5"]) == 0
    out = capsys.readouterr().out
    assert "No line-profile records matched." in out and "run.h5 has no lines: `scope-profiler run --line-profile`" in out


@pytest.mark.usefixtures("line_profiler")
def test_run_says_how_to_see_the_lines_it_recorded(tmp_path, python):
    (tmp_path / "app.py").write_text("def work():\n    return 1\nwork()\n")
    assert "lines: scope-profiler line-profile o.h5\n" in _run(python, "--line-profile", "-o", "o.h5", "app.py").stdout
    assert main(["line-profile", str(tmp_path / "o.h5")]) == 0


def test_top_counts_one_thread_as_one(tmp_path, monkeypatch, capsys):
    manager = ProfileManager()
    manager.setup(output=tmp_path / "p.h5", track_threads=True)
    with manager.region("work"):
        [spool] = tmp_path.glob("p.h5.*.spool")
        assert main(["top", "--once", str(spool)]) == 0
    manager.finalize(verbose=False)
    assert "\n1 thread, 1 alive\n" in capsys.readouterr().out
