"""Cases of C programs: see native.c. All are measured by one program, where they take turns, and read from what it prints.

With a checkout of Tracy in SCOPE_PROFILER_TRACY (a directory with ``public/TracyClient.cpp``), its C zones take turns too.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path

PROGRAM = "SCOPE_PROFILER_BENCH_NATIVE"
ROOT = Path(__file__).resolve().parents[1]


def build(directory: Path) -> None:
    """Build the C library as it is released, and the program, into ``directory``, for the workers to find."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "library"
    if not (library / "build.ninja").exists():
        setup = ["meson", "setup", str(library), str(ROOT), "-Dpython=disabled", "-Dbuildtype=release"]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["meson", "compile", "-C", str(library)], check=True, stdout=subprocess.DEVNULL)
    compiler = [
        *shlex.split(os.environ.get("CC", "cc")),
        "-O2",
        f"-I{ROOT / 'include'}",
        f"-I{ROOT / 'src'}",
        str(ROOT / "bench" / "native.c"),
    ]
    link = [f"-L{library / 'src'}", "-lscope_profiler", f"-Wl,-rpath,{library / 'src'}", "-pthread"]
    program = directory / "native"
    tracy = os.environ.get("SCOPE_PROFILER_TRACY")
    if tracy:
        client = directory / "tracy.o"
        if not client.exists():
            source = str(Path(tracy) / "public" / "TracyClient.cpp")
            flags = ["-O2", "-DNDEBUG", "-DTRACY_ENABLE", "-std=c++17"]
            subprocess.run(["c++", *flags, "-c", source, "-o", str(client)], check=True)
        macros = ["-DWITH_TRACY", "-DTRACY_ENABLE", f"-I{Path(tracy) / 'public'}"]
        compiler += macros
        link += [str(client), "-lstdc++", "-ldl"]
    subprocess.run([*compiler, "-o", str(program), *link], check=True)
    os.environ[PROGRAM] = str(program)


@lru_cache
def measured() -> dict[str, float]:
    """ns by name."""
    done = subprocess.run([os.environ[PROGRAM], "9"], check=True, capture_output=True, text=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def bare_pair() -> float:
    """ns of two reads of the clock that write fresh memory, with that memory's mapping."""
    return measured()["bare_pair"]


def begin_end() -> float:
    """ns of sp_begin and sp_end."""
    return measured()["begin_end"]


def scope() -> float:
    """ns of a block with SP_SCOPE."""
    return measured()["scope"]


def above() -> float:
    """ns of sp_begin and sp_end beyond the bare pair."""
    return begin_end() - bare_pair()


def idle() -> float:
    """ns of sp_begin and sp_end while nothing records."""
    return measured()["begin_end_inactive"]


def idle_scope() -> float:
    """ns of a block with SP_SCOPE while nothing records."""
    return measured()["scope_inactive"]


if __name__ == "__main__":
    build(Path("build/bench/native"))
    print(json.dumps(measured(), indent=2))
