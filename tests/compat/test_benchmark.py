"""Manifests of benchmarks go both ways between release 0.7.5 and this one."""

import json
import os
import subprocess
import sys

import pytest

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = [
    pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON names no interpreter with 0.7.5"),
    pytest.mark.slow,
]

CONFIG = """
[benchmark]
script = "app.py"
args = ["7"]
runs = 3
warmups = 0
[correctness]
command = ["true"]
"""


def benchmark(interpreter, directory, *arguments):
    done = subprocess.run(
        [interpreter, "-m", "scope_profiler", "benchmark", *arguments, "--json"], capture_output=True, text=True, cwd=directory, timeout=120
    )
    assert done.stdout, done
    return json.loads(done.stdout), done.returncode


def nearly(text):
    return f"{float(text):.9g}"


def shape(value):
    """The keys and types of a document."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value).__name__


def test_manifests_go_both_ways(tmp_path):
    (tmp_path / "app.py").write_text("import sys, scope_profiler as sp\nwith sp.region('r' + sys.argv[1]): pass\n")
    (tmp_path / "c.toml").write_text(CONFIG)
    ours, ours_code = benchmark(sys.executable, tmp_path, "run", "c.toml", "--label", "ours")
    theirs, theirs_code = benchmark(REFERENCE, tmp_path, "run", "c.toml", "--label", "theirs")
    assert (ours_code, theirs_code) == (0, 0)
    assert ours["config"] == theirs["config"]
    for profile in ours["profiles"]:
        assert isinstance(profile.pop("started_at"), float)  # the one addition
    assert shape(ours) == shape(theirs)
    paths = [f".scope-profiler/c/{label}/benchmark.json" for label in ("ours", "theirs")]
    mine, _ = benchmark(sys.executable, tmp_path, "compare", *paths)
    reference, _ = benchmark(REFERENCE, tmp_path, "compare", *paths)
    different = ("decision",) if not mine["significant"] else ()
    for key, value in reference.items():
        if key not in different:
            assert json.loads(json.dumps(mine[key]), parse_float=nearly) == json.loads(json.dumps(value), parse_float=nearly), key
