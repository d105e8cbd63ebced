"""C and C++ programs without Python: every compiler and standard, many threads, deep stacks, coroutines, sudden ends."""

import os
import shutil
import signal
import subprocess

import pytest

import scope_profiler as sp
from native_code import SOURCES, WARNINGS, trace_times, trees

C_STANDARDS = ["c99", "c11", "c17", "gnu99", "gnu11", "gnu17"]
CPP_STANDARDS = ["c++17", "c++20", "gnu++17"]


def run(program, *arguments, **options):
    return subprocess.run(
        [str(program), *arguments], cwd=program.parent, capture_output=True, text=True, timeout=120, **options
    )


def compiler(name):
    assert shutil.which(name), f"{name} is needed"
    return name


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("standard", C_STANDARDS)
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_header_is_clean_c(native_library, name, standard, disabled):
    macros = ["-DSP_DISABLE_PROFILING"] if disabled else []
    command = [compiler(name), f"-std={standard}", *WARNINGS, *macros, "-fsyntax-only", native_library.include]
    done = subprocess.run([*command, str(SOURCES / "every_name.c")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("standard", CPP_STANDARDS)
@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_the_headers_are_clean_cpp(native_library, name, standard, disabled):
    macros = ["-DSP_DISABLE_PROFILING"] if disabled else []
    command = [compiler(name), f"-std={standard}", *WARNINGS, *macros, "-fsyntax-only", native_library.include]
    done = subprocess.run([*command, str(SOURCES / "every_name.cpp")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("source", ["every_name.c", "every_name.cpp"])
def test_disabled_programs_need_no_library_and_keep_no_names(native_library, tmp_path, source):
    name, standard = ("c++", "c++17") if source.endswith("pp") else ("cc", "c99")
    program = tmp_path / "program"
    command = [name, f"-std={standard}", "-O1", "-DSP_DISABLE_PROFILING", native_library.include, str(SOURCES / source)]
    subprocess.run([*command, "-pthread", "-o", str(program)], check=True)
    assert run(program).returncode == 0
    assert os.listdir(tmp_path) == ["program"]
    # sp::Lane takes its name as any argument; a scope's name is gone.
    assert b"made at run time" not in program.read_bytes()


@pytest.mark.parametrize("source", ["every_name.c", "every_name.cpp"])
@pytest.mark.parametrize("static", [False, True])
def test_programs_run_with_either_library(native_library, tmp_path, source, static):
    std = "c++17" if source.endswith("pp") else "c99"
    done = run(native_library.compile(source, tmp_path / "program", std=std, static=static))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_scope_ends_when_an_exception_leaves_it(native_library, tmp_path):
    assert run(native_library.compile("every_name.cpp", tmp_path / "program", std="c++17")).returncode == 0
    results = sp.read_h5(tmp_path / "cpp_rank00000.h5")
    [tree] = [nodes for (_, task), nodes in trees(results).items() if task < 0]
    assert tree == [("void throws(sp_profiler*)", ["made at run time"]), "moved"]
    assert {region.name for region in sp.read_h5(tmp_path / "cpp_own_rank00000.h5").get_regions()} == {
        "own", "void throws(sp_profiler*)", "by handle",
    }  # fmt: skip


def test_each_coroutine_is_a_lane(native_library, tmp_path):
    program = native_library.compile("coroutines.cpp", tmp_path / "program", std="c++20")
    assert run(program, "200").returncode == 0
    results = sp.read_h5(tmp_path / "coroutines_rank00000.h5")
    expected = [("coroutine", [("round", ["step"])] * 4)]
    assert trees(results) == {(-1, task): expected for task in range(200)}
    assert {(task.name, task.steps) for task in results.tasks[0]} == {("worker", 9)}


def test_a_thousand_threads_are_exact(native_library, tmp_path):
    program = native_library.compile("crowd.c", tmp_path / "program")
    done = run(program, "threads", "1000")
    assert done.returncode == 0, done.stderr
    results = sp.read_h5(tmp_path / "crowd_rank00000.h5")
    lanes = {thread.index: thread.name for thread in results.threads[0]}
    found = {lanes[thread]: nodes for (thread, _), nodes in trees(results).items()}
    assert found == {f"t{i}": [("outer", ["inner"])] * 10 for i in range(1000)}


def test_recursion_of_ten_thousand_is_exact(native_library, tmp_path):
    program = native_library.compile("crowd.c", tmp_path / "program")
    assert run(program, "depth", "10000").returncode == 0
    part = sp.read_h5(tmp_path / "crowd_rank00000.h5")["r"][0]
    assert part.parent_ids.tolist() == [call - 1 for call in part.call_ids.tolist()]
    assert sorted(part.call_ids.tolist()) == list(range(10000))


@pytest.mark.slow
def test_a_million_names_are_exact(native_library, tmp_path, soak):
    count = 1_000_000 if soak else 100_000
    program = native_library.compile("crowd.c", tmp_path / "program")
    assert run(program, "names", str(count)).returncode == 0
    summary = sp.read_h5_summary(tmp_path / "crowd_rank00000.h5")
    assert len(summary.region_names) == count


HOST_OF_PLUGIN = r"""
#include <scope_profiler.h>
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *plugin = 0;
    void (*run)(int);
    sp_host later = sp_host_v1, other = sp_host_v1;
    const int early = count > 2;
    if (early) plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (sp_init("program", 0) != 0) return 2;
    if (!early) plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return 3;
    *(void **)&run = dlsym(plugin, "kernel_run");
    {
        SP_SCOPE("program");
        run(2);
    }
    /* A host of another version is not joined, and none while there is a run. */
    later.version = 2;
    later.calls = 0;
    if (sp_attach(&later) == SP_OK) return 4;
    other.rank = 9;
    if (sp_attach(&other) != SP_OK) return 5; /* it is this very copy */
    return sp_finalize();
}
"""


@pytest.mark.parametrize("early", [[], ["early"]])
def test_copies_of_the_library_share_one_run(native_library, tmp_path, early):
    plugin = native_library.compile(
        "kernel.c", tmp_path / "plugin.so", "-shared", "-fPIC", "-fvisibility=hidden", static=True
    )
    program = native_library.compile(HOST_OF_PLUGIN, tmp_path / "program", "-ldl", "-Wno-pedantic")
    done = run(program, str(plugin), *early)
    assert (done.returncode, done.stderr) == (0, "")
    results = sp.read_h5(tmp_path / "program_rank00000.h5")
    assert trees(results) == {(0, -1): [("program", [("c.kernel", ["c.step", "c.step"])])]}
    assert not list(tmp_path.glob("*rank*.spool"))


# -- sudden ends --------------------------------------------------------------------------------------------------------


def recovered(directory):
    """The profile that `scope-profiler recover` makes of the one spool there."""
    [spool] = directory.glob("survivor_rank00000.h5.*.spool")
    output = directory / "recovered.h5"
    from scope_profiler.cli import main

    assert main(["recover", str(spool), "-o", str(output)]) == 0
    return sp.read_h5(output)


def test_a_killed_program_loses_no_finished_call(native_library, tmp_path):
    program = native_library.compile("survivor.c", tmp_path / "program")
    with subprocess.Popen([str(program), "killed"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "recorded\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "survivor_rank00000.h5").exists()
    results = recovered(tmp_path)
    assert trees(results) == {(0, -1): [("outer", ["inner"] * 100_000)]}
    assert results.metadata["source"] == "native"


@pytest.mark.parametrize("how", ["exit", "flushed"])
def test_a_program_that_ends_without_finalize_can_be_recovered(native_library, tmp_path, how):
    assert run(native_library.compile("survivor.c", tmp_path / "program"), how).returncode == 0
    assert (tmp_path / "survivor_rank00000.h5").exists() == (how == "flushed")
    assert trees(recovered(tmp_path)) == {(0, -1): [("outer", ["inner"] * 100_000)]}


def test_a_child_that_exits_leaves_spool_and_file_to_its_parent(native_library, tmp_path):
    assert run(native_library.compile("survivor.c", tmp_path / "program"), "forked").returncode == 0
    assert trees(sp.read_h5(tmp_path / "survivor_rank00000.h5")) == {(0, -1): [("outer", ["inner"] * 100_000)]}
    assert sorted(os.listdir(tmp_path)) == ["program", "survivor_rank00000.h5"]


@pytest.mark.slow
@pytest.mark.uninstrumented
@pytest.mark.parametrize("words", [(), ("flush",), ("trace",), ("trace", "flush")], ids="-".join)
def test_memory_is_flat_however_many_calls_a_program_has(native_library, tmp_path, words, soak):
    # 3 M pairs are 192 MB of records, and were 340 MB of columns.
    pairs = 50_000_000 if soak else 3_000_000
    program = native_library.compile("longrun.c", tmp_path / "program", "-O2")
    done = subprocess.run(
        [str(program), str(pairs), *words], cwd=tmp_path, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stderr
    peak, calls, total = map(int, done.stdout.split())
    assert peak < 64_000 and calls == pairs
    if "trace" in words:
        path = tmp_path / "longrun_rank00000.spt"
        times = trace_times(path)
        assert {name: len(starts) for name, (starts, _) in times.items()} == {"all": 1, "outer": pairs, "inner": pairs}
        (outer_starts, outer_ends), (starts, ends) = times["outer"], times["inner"]
        assert (ends - starts).sum() == total
        assert (
            (outer_starts <= starts).all()
            and (ends <= outer_ends).all()
            and (outer_ends[:-1] <= outer_starts[1:]).all()
        )
    else:
        path = tmp_path / "longrun_rank00000.h5"
        results = sp.load(path)
        assert [results[name].num_calls for name in ("all", "outer", "inner")] == [1, pairs, pairs]
        assert round(results["inner"][0].total_duration * 1e9) == total
        assert results["all"][0].event_metadata == ({"open": True},)
    assert sorted(os.listdir(tmp_path)) == [path.name, "program"]
