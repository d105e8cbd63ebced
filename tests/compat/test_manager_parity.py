"""The same program under release 0.7.5 and under this one prints the same, where that release is right.

Regions of decorated functions come in the order of their first calls here, and in the order of decoration there; so
programs where that shows are sorted.
"""

import os
import subprocess
import sys

import pytest

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON names no interpreter with 0.7.5")

HEAD = """
import json, os, sys, warnings
import scope_profiler as sp
from scope_profiler import ProfileManager as PM
warnings.simplefilter("ignore")
seen = []
def enter(name, times=1, **kw):
    for _ in range(times):
        with sp.region(name, **kw): pass
def kind(function, *args, **kw):
    try: function(*args, **kw)
    except Exception as error: return type(error).__name__
    return "no error"
def calls(results):
    return {name: results[name].num_calls for name in results.region_names}
def final(**kw):
    return sp.finalize(verbose=False, return_results=True, **kw)
def see(*what): seen.append(json.loads(json.dumps(what)))
"""
TAIL = "\nprint('SEEN', json.dumps(seen))\n"

PROGRAMS = {
    "states": """
see(sp.is_configured(), sp.is_active(), sp.finalize(verbose=False), final().num_ranks)
run = sp.setup(output=None)
see(sp.is_configured(), sp.is_active(), run.is_active, run.results, sp.registered_regions(), sp.recorded_regions())
enter("a", 3)
results = run.finalize(verbose=False)
see(calls(results), run.results is results, sp.last_results() is results, run.is_active, sp.is_active())
enter("b"); see(calls(final()), sp.recorded_regions())
sp.setup(output=None); see(sp.last_results(), calls(final()))
sp.reset(); see(sp.is_configured(), sp.is_active(), sp.last_results())
""",
    "errors of the lifecycle": """
see(kind(PM.pause), kind(PM.resume))
run = sp.setup(output=None)
see(kind(sp.setup), kind(sp.setup, output=None))
with sp.region("x"): see(kind(PM.pause))
sp.setup(output=None, replace=True)
see(kind(run.finalize), kind(sp.define_region, "h"), kind(sp.define_region, "h", tags=["t"]))
sp.region("tagged", tags=["a"])
see(kind(sp.region, "tagged", tags=["b"]), kind(sp.region, "tagged"), kind(sp.region, "tagged", tags=("a",)))
""",
    "checkpoints": """
sp.setup(output="c.h5")
def look():
    results = sp.load("c.h5")
    ids = sorted(int(i) for name in results.region_names for i in results[name][0].call_ids)
    see(calls(results), ids)
enter("a", 3); sp.finalize(verbose=False); look()
enter("a", 2); enter("b"); sp.finalize(verbose=False); look()
with sp.region("open"):
    enter("in"); sp.finalize(verbose=False); look()
sp.finalize(verbose=False); look()
see(sp.region("a").num_calls, sp.region("open").num_calls, sp.region("b").get_durations_numpy().size)
""",
    "regions": """
sp.setup(output=None)
region = sp.region("r", tags=("x", "y"))
with region as same: see(same is region, sp.region("r") is region, region.num_calls)
with region:
    with region: pass
see(region.region_name, region.tags, region.num_calls, region.source_lineno, region.source_text)
see(str(region.get_durations_numpy().dtype), region.get_start_times_numpy().size)
see(bool((region.get_end_times_numpy() >= region.get_start_times_numpy()).all()))
for name in ("", "/", "a/b", "\\u017c\\u00f3", "x" * 5000): enter(name)
see(sp.recorded_regions(), list(PM.get_all_regions()), PM.get_region("nope"))
results = final()
see(results.region_names, results["r"].source_file, results["r"].source_lineno, results["r"].tags)
""",
    "nesting": """
sp.setup(output="n.h5")
def recurse(n):
    with sp.region("rec"):
        if n: recurse(n - 1)
with sp.region("outer"):
    recurse(3); enter("leaf", 2)
    try:
        with sp.region("raises"): raise KeyError
    except KeyError: pass
sp.finalize(verbose=False)
results = sp.load("n.h5")
for name in results.region_names:
    r = results[name][0]
    see(name, r.call_ids.tolist(), r.parent_ids.tolist())
see([[c["name"], c["parent_id"], c["depth"], c["call_index"]] for c in results.call_graph()])
""",
    "decorators": """
@sp.profile
def plain(): return 1
@sp.profile("named", tags=["t"])
def other(x, *, y=2): return x + y
class K:
    @sp.profile
    def method(self): return self
k = K()
see(sp.registered_regions(), plain(), other(1), k.method() is k, plain.__name__, other.__name__, K.method.__qualname__)
for _ in range(2):
    sp.setup(output=None); plain(); other(1, y=5); k.method()
    results = final(); see(calls(results), results["named"].tags, results["plain"].source_lineno)
sp.setup(output=None); see(sp.registered_regions(), sp.recorded_regions())
""",
    "metadata of calls": """
@sp.profile(metadata={"kind": 1}, record_outcome=True)
def work(fail):
    if fail: raise ValueError
@sp.profile(metadata=lambda items, scale=1: {"n": len(items) * scale})
def sized(items, scale=1): items.clear()
step = sp.region_factory("step")
sp.setup(output="m.h5")
enter("x")
with sp.metadata(a=1, b=1) as outer:
    enter("x")
    with sp.metadata(b=2, c="\\u017c") as inner: see(inner); inner["d"] = [1, None]; enter("x")
    enter("x")
work(False)
try: work(True)
except ValueError: pass
sized([1, 2], scale=3)
with step(index=4): pass
sp.finalize(verbose=False)
results = sp.load("m.h5")
for name in sorted(results.region_names): see(name, list(results[name][0].event_metadata))
""",
    "pausing and sampling": """
sp.setup(output=None)
enter("a"); PM.pause(); enter("a"); see(PM.get_config().paused); PM.resume(); PM.resume(); enter("a")
with PM.sample_every(3, start=1) as step:
    for t in range(6):
        with step(t) as selected: see(selected); enter("s")
        see(PM.get_config().paused)
enter("after")
see(calls(final()))
""",
    "tags": """
sp.register_opt_in_tag("slow")
def use():
    for name, tags in (("x", ["slow"]), ("y", ["b"]), ("z", None)): enter(name, tags=tags)
for kw in ({}, {"enable_tags": "slow"}, {"enable_tags": ["*"]}, {"region_tags": ["b"]}, {"region_tags": ["slow", "b"]}, {"region_tags": []}):
    sp.setup(output=None, **kw); use(); see(calls(final()), sp.registered_regions())
os.environ["SCOPE_PROFILER_ENABLE_TAGS"] = "q,slow"
sp.setup(output=None); use(); see(calls(final()))
see([kind(sp.register_opt_in_tag, bad) for bad in ("", 1)], kind(sp.register_opt_in_tag))
""",
    "settings": """
for kw in ({"metadata_detail": "x"}, {"output_mode": "x"}, {"hdf5_compression": "x"}, {"hdf5_compression_level": True},
           {"hdf5_compression": "gzip", "hdf5_compression_level": 11}, {"hdf5_compression": "lzf", "hdf5_compression_level": 2},
           {"hdf5_compression": "zstd", "hdf5_compression_level": 23}, {"hdf5_chunk_size": 0}, {"hdf5_chunk_size": 2.0},
           {"perf_events": ["a"]}, {"perf_events": []}, {"output": "a", "file_path": "b"}, {"output": "a", "deactivate_file_output": False},
           {"gpu_sync_on_exit": True}, {"aggregation_mode": True, "track_threads": True}, {"bogus": 1}, {"hdf5": 1},
           {"config_path": "/nope"}, {"hdf5_compression": " GZIP "}, {"hdf5_chunk_size": 5}, {"track_threads": True},
           {"buffer_limit": 0}, {"label": ""}, {"label": "x"}, {"enable_tags": "t"}, {"enable_tags": ["t", "u"]}):
    sp.reset()
    error = kind(sp.setup, **kw)
    see(list(kw), error)
    if error == "no error":
        c = PM.get_config(); see(c.label, c.buffer_limit, c.hdf5_chunk_size, list(c.enable_tags), c.track_threads, c.file_path)
sp.reset()
sp.setup(sp.ProfilingOptions(label="o", buffer_limit=9, hdf5=sp.HDF5Options(chunk_size=3)), label="kw")
c = PM.get_config(); see(c.label, c.buffer_limit, c.hdf5_chunk_size, c.paused, c.metadata_detail, c.output_mode)
see(sp.ProfilingOptions(label="q", hdf5=sp.HDF5Options(chunk_size=3)).to_kwargs())
see(kind(sp.ProfilingOptions(hdf5=sp.HDF5Options(compression="gzip"), hdf5_compression="lzf").to_kwargs))
""",
    "toml and environment": """
from scope_profiler.profile_config import load_profiling_config
for text in ('label="lab"\\nbuffer_limit=9\\n[hdf5]\\nchunk_size=9', 'label="no"\\n[profiling]\\nbuffer_limit=7\\n[profiling.hdf5]\\nchunk_size=9',
             '[profiling]\\nbogus=1', 'profiling=3', '[profiling]\\nhdf5_chunk_size=3\\n[profiling.hdf5]\\nchunk_size=9',
             '[profiling.hdf5]\\nbogus=1', 'x=', '[profiling]\\nhdf5=3', '[profiling]\\nauto_finalize=true'):
    open("c.toml", "w").write(text)
    error = kind(load_profiling_config, "c.toml")
    see(error, load_profiling_config("c.toml") if error == "no error" else None)
open("c.toml", "w").write('label="lab"')
os.environ.update(SCOPE_PROFILER_CONFIG="c.toml", SCOPE_PROFILER_OUTPUT="env.h5", SCOPE_PROFILER_AUTO_FINALIZE="0")
run = sp.setup_from_env(); see(run.file_path, PM.get_config().label); sp.reset()
run = sp.setup_from_env(output="kw.h5", label="kw"); see(run.file_path, PM.get_config().label)
""",
    "sessions": """
with sp.session(output="s.h5", verbose=False, return_results=True, label="l") as run:
    enter("a", 2); see(run.results)
see(calls(run.results), run.results.label, calls(sp.load("s.h5")), run.results["scope_profiler.session"].source_file, sp.last_results() is run.results)
try:
    with sp.session(output=None, verbose=False, return_results=True) as run:
        enter("a"); raise KeyError("mine")
except KeyError as error: see(str(error), calls(run.results))
session = sp.session(output=None, verbose=False, return_results=True)
for n in (1, 2):
    with session: enter("again", n)
    see(calls(session.results))
@sp.session(output="d.h5", verbose=False)
def work(x):
    enter("body"); return x
see(work(3), work.__name__, calls(sp.load("d.h5")))
@sp.session(output=None, verbose=False)
def recurse(n): return recurse(n - 1) if n else 0
see(kind(recurse, 1))
def nested():
    with sp.session(output=None, verbose=False):
        with sp.session(output=None, verbose=False): pass
see(kind(nested))
""",
    "managers": """
a, b = PM(), PM()
with a.session(output=None, verbose=False, return_results=True) as ra, b.session(output=None, verbose=False, return_results=True) as rb:
    for manager, n in ((a, 1), (b, 2)):
        for _ in range(n):
            with manager.region("same"): pass
see(calls(ra.results), calls(rb.results), sp.is_configured(), isinstance(a, PM), type(a).__name__)
see(PM.get_config().file_path, a.recorded_regions(), a.is_configured())
""",
    "run and scripts": """
see(sp.run(lambda a, b: a + b, 1, 2, output="r.h5", label="L"), calls(sp.last_results()), sp.last_results().label)
open("app.py", "w").write('import sys, scope_profiler as sp\\nwith sp.region("in_script"): pass\\nsys.exit(len(sys.argv) - 1)\\n')
try: sp.profile_script("app.py", script_args=["a", "b"], output="p.h5")
except SystemExit as stop: see(stop.code, calls(sp.last_results()), calls(sp.load("p.h5")))
done = sp.profile_command(["python", "app.py"], output="q.h5"); see(done.returncode, calls(done.profile_results), done.args[1:])
done = sp.profile_command(["app.py", "x"], output="q.h5"); see(done.returncode, done.profile_results)
see(kind(sp.profile_command, []))
""",
    "instrument": """
import types
module = types.ModuleType("made_up")
exec("def f(): return 1\\ndef g(): return f()\\ndef _h(): pass\\n", module.__dict__)
see(list(sp.instrument(module, exclude=("_*",))), sp.registered_regions())
sp.setup(output=None); module.g(); see(sorted(calls(final()).items()))
see(list(sp.instrument(module, include=("_*",), prefix="p")), sp.registered_regions())
""",
    "deactivated": """
sp.setup(output="off.h5", deactivate_profiling=True)
enter("q"); see(sp.is_active(), sp.is_configured(), sp.recorded_regions(), sp.region("q").num_calls)
see(sp.finalize(verbose=False), final().num_ranks, os.path.exists("off.h5"))
see(kind(sp.setup, output=None))
""",
    "metadata of runs": """
with sp.session(output="a.h5", verbose=False, label="l"): enter("a")
added = {"overhead_calls", "overhead_ns"}  # by this release
see(sorted(set(sp.load("a.h5").metadata) - added))
os.environ.update(LOADEDMODULES="gcc/12:mpi/4", SLURM_JOB_ID="3", SLURMD_NODENAME="n", MODULEPATH="/m")
with sp.session(output="b.h5", verbose=False, metadata_detail="full"): enter("a")
m = sp.load("b.h5").metadata
see(sorted(set(m) - added), list(m["modules"]))
see({k: m[k] for k in ("platform", "chip_information", "python_version", "hostname", "user", "working_directory", "PATH", "LOADEDMODULES", "SLURM_JOB_ID", "SLURMD_NODENAME")})
see([int(m[k]) for k in ("mpi_size", "num_nodes", "omp_num_threads", "total_cores")])
""",
    "auto_finalize": """
sp.setup(output="auto.h5", auto_finalize=True); enter("a")
see(os.path.exists("auto.h5"))
""",
}


def seen(interpreter, program, directory):
    """What the program saw, and the profiles it left."""
    directory.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCOPE_PROFILER_")}
    (directory / "program.py").write_text(HEAD + program + TAIL)
    process = subprocess.run(
        [interpreter, "program.py"], cwd=directory, env=environment, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    line = next(line for line in process.stdout.splitlines() if line.startswith("SEEN "))
    return line.replace(str(directory), "."), sorted(path.name for path in directory.glob("*.h5"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_the_reference(name, tmp_path):
    assert seen(sys.executable, PROGRAMS[name], tmp_path / "new") == seen(REFERENCE, PROGRAMS[name], tmp_path / "old")
