"""Cases of what the machine and the interpreter allow at best, measured in the same run: see limits.c.

A clock pair is two reads, stored; the context manager, the decorator and the callback are written in C and do nothing.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any

from timing import CALLS, calls_of, empty_loop, net, nothing

DIRECTORY = "SCOPE_PROFILER_BENCH_BUILD"


def build(directory: Path) -> None:
    """Compile limits.c, and the tool that nvtx is given, into ``directory``, for the workers to find."""
    directory.mkdir(parents=True, exist_ok=True)
    os.environ[DIRECTORY] = str(directory.resolve())
    includes = (f"-I{path}" for path in (sysconfig.get_path("include"), Path(__file__).resolve().parents[1] / "src"))
    compile_shared("limits.c", directory / f"_limits{sysconfig.get_config_var('EXT_SUFFIX')}", *includes)
    tool = directory / "nvtx_tool.so"
    compile_shared("nvtx_tool.c", tool)
    os.environ["NVTX_INJECTION64_PATH"] = str(tool.resolve())


def compile_shared(source: str, target: Path, *options: str) -> None:
    """A shared library of a C file in this directory, unless it is there and younger."""
    path = Path(__file__).with_name(source)
    if target.exists() and target.stat().st_mtime > path.stat().st_mtime:
        return
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, *options, str(path), "-o", str(target)], check=True)


@lru_cache
def native() -> Any:
    """The compiled module."""
    path = Path(os.environ[DIRECTORY]) / f"_limits{sysconfig.get_config_var('EXT_SUFFIX')}"
    found = importlib.util.spec_from_file_location("_limits", path)
    assert found and found.loader, path
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def counter_pair() -> float:
    """ns of two reads of the processor's counter."""
    return float(native().counter_pair())


def kernel_pair() -> float:
    """ns of two reads of the kernel's clock."""
    return float(native().kernel_pair())


def fresh_pair() -> float:
    """ns of two reads of the counter, stored in memory that is touched for the first time."""
    return float(native().fresh_pair())


def context_manager() -> float:
    """ns of a ``with`` statement on an object whose methods do nothing, and of a pair of reads of the counter."""
    manager = native().Manager()

    def loop() -> None:
        entered = manager
        for _ in repeat(None, CALLS):
            with entered:
                pass

    return net(loop, empty_loop) + counter_pair()


def named_context_manager() -> float:
    """The same after a method that looks the object up in a dict."""
    found = {"named": native().Manager()}.__getitem__

    def loop() -> None:
        look_up = found
        for _ in repeat(None, CALLS):
            with look_up("named"):
                pass

    return net(loop, empty_loop) + counter_pair()


def decorator() -> float:
    """ns that a decorator which only forwards adds to a call, and of a pair of reads of the counter."""
    return net(calls_of(native().Forwarder(nothing)), calls_of(nothing)) + counter_pair()


def idle_context_manager() -> float:
    """ns of a ``with`` statement on an object whose methods do nothing."""
    return context_manager() - counter_pair()


def idle_decorator() -> float:
    """ns that a decorator which only forwards adds to a call."""
    return decorator() - counter_pair()


def main() -> None:
    """Print every limit."""
    build(Path("build/bench") / f"limits-{sys.version_info.major}.{sys.version_info.minor}")
    for case in (counter_pair, kernel_pair, fresh_pair, context_manager, named_context_manager, decorator):
        print(f"{case():8.1f} ns  {case.__name__}")


if __name__ == "__main__":
    main()
