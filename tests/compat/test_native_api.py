"""Programs for the C header of release 0.7.5 compile and run with ours, and 0.7.5 reads what they write."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from native_code import WARNINGS, Library  # noqa: E402

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(
    not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON names no interpreter with release 0.7.5"
)


@pytest.fixture(scope="session")
def native_library(tmp_path_factory):
    return Library.install(tmp_path_factory.mktemp("staging"))


def reference(source, *arguments):
    done = subprocess.run([REFERENCE, "-c", source, *map(str, arguments)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def examples():
    """The directory with the C sources of the release."""
    source = "import json, os, scope_profiler as s; print(json.dumps(os.path.join(os.path.dirname(s.__file__), 'c')))"
    return Path(reference(source))


READ = """
import json, sys
import scope_profiler
from scope_profiler import native_trace as native
path = sys.argv[1]
if path.endswith(".spt"):
    rank, pairs = native.read_trace(path)
    print(json.dumps([rank, {name: len(pair[0]) for name, pair in pairs.items()}]))
else:
    results = scope_profiler.read_h5(path) if hasattr(scope_profiler, "read_h5") else scope_profiler.ProfilingResults.from_h5(path)
    print(json.dumps([results.num_ranks - 1, {r.name: sum(p.num_calls for p in r.regions.values()) if hasattr(r, "regions") else r[0].num_calls for r in results.get_regions()}]))
"""

CALLS = {"solve": 20, "assemble": 20, "checkpoint": 2, "fibonacci": 1, "fib_call": 465}


def build(library, source, output, *flags):
    command = [
        "cc",
        "-std=c99",
        "-O2",
        *WARNINGS,
        *flags,
        library.include,
        str(source),
        "-o",
        str(output),
        *library.shared(),
        "-lm",
    ]
    subprocess.run(command, check=True)


def test_the_example_of_the_release_runs_unchanged(native_library, examples, tmp_path):
    build(native_library, examples / "example.c", tmp_path / "example")
    done = subprocess.run(["./example"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "solve entered 20 time(s)" in done.stdout
    assert "writing profile_rank00000.h5" in done.stdout
    assert reference(READ, tmp_path / "profile_rank00000.h5") == [0, CALLS]


def test_the_release_reads_our_traces(native_library, examples, tmp_path):
    text = (examples / "example.c").read_text(encoding="utf-8")
    changed = text.replace('sp_init("profile", 0);', 'sp_init("profile", 4); sp_set_output_format(SP_OUTPUT_TRACE);')
    assert changed != text
    source = tmp_path / "example.c"
    source.write_text(changed)
    build(native_library, source, tmp_path / "example")
    subprocess.run(["./example"], cwd=tmp_path, capture_output=True, check=True)
    assert reference(READ, tmp_path / "profile_rank00004.spt") == [4, CALLS]


def test_the_cpp_header_takes_the_same_programs(native_library, examples, tmp_path):
    program = """
#include "scope_profiler.hpp"
#include <cstdio>
#include <stdexcept>
static void work(sp_profiler *p) { SP_PROFILE_FUNCTION_CTX(p); throw std::runtime_error("x"); }
int main() {
    sp_profiler *p = sp_create("own", 0);
    sp_init("global", 0);
    int r = sp_profiler_region(p, "r");
    for (int i = 0; i < 3; i++) { sp::Scope s(p, r); sp::Scope t(static_cast<sp::Scope &&>(s)); }
    try { work(p); } catch (const std::runtime_error &) {}
    { SP_PROFILE_SCOPE("a"); SP_PROFILE_FUNCTION(); }
    sp_region_stats st;
    sp_profiler_get_region_stats(p, r, &st);
    std::printf("%lld %d %lld\\n", (long long)st.calls, sp_profiler_num_regions(p), (long long)sp_num_calls(sp_region("a")));
    return sp_profiler_finalize(p) || sp_finalize();
}
""".replace("SP_PROFILE_FUNCTION(); }", "\nSP_PROFILE_FUNCTION(); }")
    source = tmp_path / "program.cpp"
    source.write_text(program)
    flags = ["-std=c++17", "-O1"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    subprocess.run(["c++", *flags, native_library.include, source, "-o", ours, *native_library.shared()], check=True)
    subprocess.run(
        ["cc", "-O1", "-c", f"-I{examples}", examples / "scope_profiler.c", "-o", tmp_path / "theirs.o"], check=True
    )
    subprocess.run(["c++", *flags, f"-I{examples}", source, tmp_path / "theirs.o", "-o", theirs, "-lm"], check=True)
    said = [
        subprocess.run([str(one)], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for one in (ours, theirs)
    ]
    assert said[0] == said[1] == "3 2 1\n"


def test_the_build_lines_of_the_release_work_unchanged(native_library, examples, tmp_path):
    """The two lines at the head of its example, with the source and the headers where c_source_path() has them: side by side."""
    package = tmp_path / "package"
    shutil.copytree(native_library.prefix / "include", package / "c")
    shutil.copy(native_library.prefix / "share/scope_profiler/c/scope_profiler.c", package / "c")
    shutil.copytree(native_library.directory, package / "lib", symlinks=True)
    for macros, ending in (([], "spt"), (["-DSP_USE_HDF5"], "h5")):
        work = tmp_path / ending
        work.mkdir()
        shutil.copy(examples / "example.c", work)
        lines = [
            ["cc", "-O2", *macros, "-c", str(package / "c" / "scope_profiler.c")],
            ["cc", "-O2", f"-I{package / 'c'}", "example.c", "scope_profiler.o", "-lm", "-o", "example"],
        ]
        for line in lines:
            subprocess.run(line, cwd=work, check=True)
        said = subprocess.run(["./example"], cwd=work, capture_output=True, text=True, check=True).stdout
        assert f"writing profile_rank00000.{ending}" in said
        assert reference(READ, work / f"profile_rank00000.{ending}") == [0, CALLS]
