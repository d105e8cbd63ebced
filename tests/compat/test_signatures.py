"""Whatever can be called in release 0.7.5 can be called with the same arguments here, by position and by name."""

import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest

REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SCOPE_PROFILER_REFERENCE_PYTHON names no interpreter with 0.7.5")

# The modules whose names are documented; those of "" are the package's own.
MODULES = ("", ".call_stack", ".concurrency", ".native_trace", ".plotting_scripts")

LIST = f"""
import importlib, inspect, json
def parameters(thing):
    try: found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError): return None
    return [(p.name, p.kind.name, p.default is p.empty) for p in found]
listed = {{}}
def put(name, thing):
    if callable(thing): listed[name] = parameters(thing)
    if inspect.isclass(thing):
        for member in dir(thing):
            if member.startswith("_") or hasattr(BaseException, member): continue
            value = getattr(thing, member)
            if callable(value): listed[name + "." + member] = parameters(value)
for suffix in {MODULES!r}:
    module = importlib.import_module("scope_profiler" + suffix)
    for name in getattr(module, "__all__", dir(module)):
        thing = getattr(module, name)
        home = str(getattr(thing, "__module__", ""))
        if home.startswith("scope_profiler" + suffix) and not name.startswith("_"): put(suffix + ":" + name, thing)
print(json.dumps(listed))
"""

# What only that release itself calls or makes.
EXEMPT = {
    ":ProfilingRun",
    ".call_stack:regions_from_snapshot",
    ".native_trace:read_native_h5",
    ".native_trace:read_native_ranks",
}


def reference() -> dict[str, list[tuple[str, str, bool]] | None]:
    printed = subprocess.run([REFERENCE, "-c", LIST], capture_output=True, text=True, check=True, timeout=120).stdout
    return json.loads(printed)


def calls_of(parameters):
    """Argument lists that the parameters allow: (positional, named)."""
    fixed = [p for p in parameters if not p[1].startswith("VAR_")]
    itself = [None] if fixed and fixed[0][0] == "self" else []  # nobody gives it by name
    fixed = fixed[len(itself) :]
    by_position = [p for p in fixed if p[1].startswith("POSITIONAL")]
    only_named = {name: None for name, kind, _ in fixed if kind == "KEYWORD_ONLY"}
    yield itself + [None] * len(by_position), only_named
    only_position = [p for p in by_position if p[1] == "POSITIONAL_ONLY"]
    yield itself + [None] * len(only_position), {name: None for name, _, _ in fixed[len(only_position) :]}
    needed = [p for p in by_position if p[2]]
    yield itself + [None] * len(needed), {name: None for name, _, required in fixed if required and name in only_named}
    if any(kind == "VAR_POSITIONAL" for _, kind, _ in parameters):
        yield itself + [None] * (len(by_position) + 2), {}


def find(name):
    module, _, path = name.partition(":")
    thing = importlib.import_module("scope_profiler" + module)
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing


def test_everything_is_called_with_the_arguments_of_the_reference():
    wrong = []
    for name, parameters in reference().items():
        if name in EXEMPT or parameters is None:
            continue
        try:
            signature = inspect.signature(find(name))
        except (AttributeError, TypeError, ValueError) as error:
            wrong.append(f"{name}: {error}")
            continue
        for positional, named in calls_of(parameters):
            try:
                signature.bind(*positional, **named)
            except TypeError as error:
                wrong.append(f"{name}{signature}: {len(positional)} positional, named {sorted(named)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_names_of_arguments_reach_what_is_called():
    import scope_profiler as sp

    with sp.session(output=None, verbose=False, return_results=True) as run:
        with sp.region(region_name="by name", functions=None, tags=["t"]):
            pass
        with sp.ProfileManager.profile_region(region_name="by name"):
            pass
        with sp.RegionHandle(sp.ProfileManager, name="handle", tags=["h"]):
            pass
        with sp.RegionFactory(sp.ProfileManager, "factory")(step=1):
            pass
        with pytest.raises(TypeError, match="unexpected keyword argument 'nome'"):
            sp.region(nome="x")
        with pytest.raises(TypeError, match="region_name"):
            sp.region()
        with pytest.raises(TypeError, match="multiple values for argument 'region_name'"):
            sp.region("x", region_name="x")
    assert {name: run.results[name].num_calls for name in run.results.region_names[1:]} == {
        "by name": 2,
        "handle": 1,
        "factory": 1,
    }
    assert run.results["by name"].tags == ("t",) and run.results["handle"].tags == ("h",)


def test_modules_are_attributes_of_the_package_after_its_import():
    names = ["call_stack", "concurrency", "gpu_timing", "h5reader", "h5schema", "json_export", "likwid_data", "mpi_region",
             "mpi_wrappers", "perf_events", "profile_config", "profile_io", "profile_manager", "results"]  # fmt: skip
    program = f"import scope_profiler as sp\nprint([getattr(sp, name).__name__ for name in {names!r}])"
    for python in (REFERENCE, sys.executable):
        printed = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, timeout=120).stdout
        assert printed.strip() == str([f"scope_profiler.{name}" for name in names])
