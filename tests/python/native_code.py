"""Building native programs and modules against the installed library, and reading back which call was inside which."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCES = Path(__file__).resolve().parents[1] / "native"
#: A build of the C library, and the command in it, which needs no Python.
BUILD = os.environ.get("SCOPE_PROFILER_C_BUILD")
COMMAND = str(Path(BUILD or ".") / "src" / "scope-profiler")
#: The command of the package, and of the build if there is one: both do the same.
COMMANDS = [[sys.executable, "-m", "scope_profiler"], *([[COMMAND]] if BUILD else [])]
needs_command = pytest.mark.skipif(not BUILD, reason="SCOPE_PROFILER_C_BUILD is not set")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


@dataclass
class Library:
    """The library as `meson install` put it below `prefix`."""

    prefix: Path
    directory: Path

    @property
    def include(self) -> str:
        return f"-I{self.prefix / 'include'}"

    def shared(self) -> list[str]:
        return [f"-L{self.directory}", "-lscope_profiler", f"-Wl,-rpath,{self.directory}"]

    def static(self) -> list[str]:
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.directory / "pkgconfig")}
        command = ["pkg-config", f"--define-variable=prefix={self.prefix}", "--libs", "--static", "scope_profiler"]
        flags = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
        archive = str(self.directory / "libscope_profiler.a")
        return [archive if flag == "-lscope_profiler" else flag for flag in flags if flag != f"-L{self.directory}"]

    @classmethod
    def install(cls, staging: Path) -> Library:
        """The build that SCOPE_PROFILER_C_BUILD names, put below an empty directory. Skips if it names none."""
        if not BUILD:
            pytest.skip("SCOPE_PROFILER_C_BUILD names no build of the C library")
        command = ["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", str(staging)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [header] = staging.rglob("scope_profiler.h")
        [library] = staging.rglob("libscope_profiler.so.1")
        return cls(header.parents[1], library.parent)

    def compile(
        self, source: str | Path, output: Path, *arguments: str, std: str = "c99", static: bool = False
    ) -> Path:
        """Compile a source of tests/native, or a text, into a program, or with -shared into a library."""
        path = SOURCES / source if isinstance(source, str) and "\n" not in source else source
        if isinstance(path, str):
            text, path = path, output.with_suffix(".cpp" if "++" in std else ".c")
            path.write_text(text)
        compiler = "c++" if "++" in std else "cc"
        libraries = self.static() if static else self.shared()
        command = [
            compiler,
            f"-std={std}",
            "-O1",
            "-g",
            "-pthread",
            *WARNINGS,
            self.include,
            str(path),
            "-o",
            str(output),
        ]
        done = subprocess.run([*command, *arguments, *libraries], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return output

    def module(self, source: str, directory: Path, *arguments: str, **options: Any) -> Path:
        """Compile an extension module of Python."""
        output = directory / (Path(source).stem + sysconfig.get_config_var("EXT_SUFFIX"))
        include = f"-isystem{sysconfig.get_path('include')}"
        return self.compile(source, output, "-shared", "-fPIC", include, *arguments, **options)

    def cython_module(self, source: str, directory: Path) -> Path:
        """Make a module of a Cython source of tests/native."""
        code = directory / f"{Path(source).stem}.c"
        _run(directory, sys.executable, "-m", "cython", SOURCES / source, "-o", code)
        return self._link_module(directory, Path(source).stem, "cc", [code])

    def f2py_module(self, source: str, directory: Path) -> Path:
        """Make a module of a Fortran source of tests/native: what `f2py -c` does, with the compilers that are here."""
        import numpy.f2py

        name, include = Path(source).stem, Path(numpy.f2py.get_include())
        module = self.prefix / "share/scope_profiler/fortran/scope_profiler.f90"
        _run(directory, sys.executable, "-m", "numpy.f2py", SOURCES / source, "-m", name, "--lower")
        _run(directory, "gfortran", "-fPIC", "-c", module, SOURCES / source)
        objects = [directory / "scope_profiler.o", directory / f"{name}.o"]
        code = [directory / f"{name}module.c", include / "fortranobject.c"]
        includes = [f"-I{include}", f"-I{numpy.get_include()}", "-lgfortran"]
        return self._link_module(directory, name, "cc", [*code, *objects], includes)

    def _link_module(
        self, directory: Path, name: str, compiler: str, sources: list[Path], more: Iterable[str] = ()
    ) -> Path:
        output = directory / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        include = f"-I{sysconfig.get_path('include')}"
        options = ["-shared", "-fPIC", "-O1", "-g", "-w", include, self.include]
        _run(directory, compiler, *options, *sources, "-o", output, *more, *self.shared())
        return output


def _run(directory: Path, *command: object) -> None:
    done = subprocess.run([str(word) for word in command], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def library_to_preload(source: str, output: Path) -> Path:
    """A library of a text in C, whose functions stand in front of those of the same names if LD_PRELOAD has it."""
    code = output.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(output), str(code), "-ldl"], check=True)
    return output


def trees(results: Any, rank: int = 0) -> dict[tuple[int, int], list[Any]]:
    """(thread, task) -> the calls on that lane: a name, or (name, calls inside), in order of their starts.

    Parents are those that the file has; a call whose parent is on another lane is an error. A session's own call is left out.
    """
    calls = {}
    for region in results.get_regions():
        part = region[rank]
        columns = zip(
            part.call_ids.tolist(),
            part.parent_ids.tolist(),
            part.start_times_ns.tolist(),
            part.thread_ids.tolist(),
            part.task_ids.tolist() if part.task_ids is not None else [-1] * part.num_calls,
        )
        for call, parent, start, thread, task in columns:
            calls[call] = (start, call, parent, (thread if task < 0 else -1, task), region.name)
    children: dict[int, list[Any]] = {}
    lanes: dict[tuple[int, int], list[Any]] = {}
    for _, call, parent, lane, name in sorted(calls.values(), reverse=True):
        if name == "scope_profiler.session":
            if call in children:
                lanes.setdefault(lane, []).extend(children.pop(call))
            continue
        inside = children.pop(call, [])
        node = (name, inside[::-1]) if inside else name
        if parent < 0:
            lanes.setdefault(lane, []).append(node)
        else:
            assert calls[parent][3] == lane, (name, lane, calls[parent])
            children.setdefault(parent, []).append(node)
    assert not children
    return {lane: nodes[::-1] for lane, nodes in lanes.items()}


def sorted_trees(lanes: Iterable[list[Any]]) -> list[list[Any]]:
    """Trees of lanes whose numbers do not matter."""
    return sorted(lanes, key=repr)


def trace_times(path: Path, rank: int = 0) -> dict[str, tuple[Any, Any]]:
    """Starts and ends by region, mapped from a trace of version 2 (docs/native-trace-format.md)."""
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    assert struct.unpack_from("<8sii", whole) == (b"SCOPEPRF", 2, rank)
    [regions], at = struct.unpack_from("<q", whole, 16), 24
    found = {}
    for _ in range(regions):
        texts = []
        for _ in range(2):
            [size] = struct.unpack_from("<i", whole, at)
            texts.append(whole[at + 4 : at + 4 + size].tobytes().decode())
            at += 4 + size
        [count] = struct.unpack_from("<q", whole, at + 4)
        times = np.frombuffer(whole, dtype="<i8", count=2 * count, offset=at + 12)
        found[texts[0]] = times[:count], times[count:]
        at += 12 + 16 * count
    assert at == len(whole)
    return found
