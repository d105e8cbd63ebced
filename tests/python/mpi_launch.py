"""Starting programs as MPI ranks, under each MPI that is installed.

mpi4py's wheels load the MPI library that the environment names; Debian's MPICH has its library under a name of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def library_of_mpich() -> Path | None:
    """Debian's name of what other systems call libmpi.so.12."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        if "libmpich.so.12 " in line:
            return Path(line.rsplit(" ", 1)[1])
    return None


class Launcher:
    """One MPI: how it starts ranks, and what they need to find it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.command = f"mpiexec.{name}"
        self.environment: dict[str, str] = {"MPI4PY_MPIABI": name}
        self.options: list[str] = []
        if name == "openmpi":
            self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            # Ranks that share processors must give them up while they wait.
            self.options = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
            return
        library = library_of_mpich()
        if library is not None:
            link = directory / "libmpi.so.12"
            if not link.is_symlink():
                link.symlink_to(library)
            self.environment["LD_LIBRARY_PATH"] = f"{directory}:{os.environ.get('LD_LIBRARY_PATH', '')}"

    @property
    def missing(self) -> str | None:
        """What is not installed, if anything."""
        return None if shutil.which(self.command) else self.command

    def run(
        self, ranks: int, *command: str, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as ``ranks`` ranks, to its end."""
        environment = {**os.environ, **self.environment, **(env or {})}
        return subprocess.run(
            [self.command, *self.options, "-n", str(ranks), *command],
            capture_output=True, text=True, timeout=timeout, check=False, env=environment, cwd=cwd,
        )  # fmt: skip

    def start(self, ranks: int, *command: str) -> subprocess.Popen[str]:
        """Start a command as ``ranks`` ranks, and do not wait for it; its messages go with its output."""
        return subprocess.Popen(
            [self.command, *self.options, "-n", str(ranks), *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **self.environment},
        )  # fmt: skip

    def python(self, ranks: int, program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run Python source text as ``ranks`` ranks."""
        return self.run(ranks, sys.executable, "-c", program, *arguments, **options)  # type: ignore[arg-type]


def process_of(spool: Path) -> int:
    """The number of the process that wrote a spool."""
    return int(spool.name.split(".")[-2].split("-")[0])


def _wait_for_end(pid: int) -> None:
    """Until a process of a job that was ended is there no more."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} goes on")


def wait_for_ends(directory: Path) -> None:
    """Until none of the processes whose spools are there goes on."""
    for spool in directory.glob("*.spool"):
        _wait_for_end(process_of(spool))


def recovered(directory: Path, command: Sequence[str] = (sys.executable, "-m", "scope_profiler")) -> Path:
    """When they have all ended: recover what every spool there holds, and merge it with the file of the ranks, if it is there."""
    wait_for_ends(directory)
    files = sorted(directory.glob("run.h5"))
    for number, spool in enumerate(sorted(directory.glob("*.spool"))):
        file = directory / f"{number}.h5"
        done = subprocess.run([*command, "recover", "--keep", str(spool), "-o", str(file)], capture_output=True, text=True)
        assert done.returncode == (0 if file.exists() else 1), done.stderr
        files += [file] * file.exists()
    if len(files) == 1:
        return files[0]
    done = subprocess.run([*command, "merge", *map(str, files), "-o", str(directory / "merged.h5")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return directory / "merged.h5"
