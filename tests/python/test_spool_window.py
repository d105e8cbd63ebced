"""A process that ends between the renaming of its file and the note that it is in place: no call is lost, none is there twice."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import scope_profiler as sp

Program = Callable[..., "subprocess.CompletedProcess[str]"]

KILLED = """
import os, sys
import scope_profiler as sp
from scope_profiler.recording import Recording

sp.setup(output="p.h5", checkpoint=sys.argv[1])
for _ in range(3):
    with sp.region("first"): pass
sp.finalize(verbose=False, return_results=True)
with sp.region("outer"):
    for _ in range(5):
        with sp.region("second"): pass
    Recording._confirm = lambda *ignored: os.kill(os.getpid(), 9)
    sp.finalize(verbose=False, return_results=True)
"""


def killed(python: Program, directory: Path, checkpoint: str) -> Path:
    process = python(KILLED, checkpoint, check=False)
    assert process.returncode == -9, process.stderr
    [spool] = directory.glob("*.spool")
    return spool


def counts(path: Path) -> dict[str, int]:
    return {region.name: region.num_calls for region in sp.load(path)}


def test_calls_in_a_file_that_is_in_place_are_not_recovered_again(python: Program, tmp_path: Path) -> None:
    for checkpoint, last in (("replace", "p.h5"), ("numbered", "p.0002.h5")):
        spool = killed(python, tmp_path, checkpoint)
        assert counts(tmp_path / last) == {"second": 5}
        assert counts(spool) == {"outer": 1}, "the call that was open is in no file"
        spool.unlink()


def test_calls_of_a_file_that_is_gone_are_recovered(python: Program, tmp_path: Path) -> None:
    spool = killed(python, tmp_path, "replace")
    (tmp_path / "p.h5").unlink()
    assert counts(spool) == {"second": 5, "outer": 1}


def test_calls_of_a_file_that_another_has_replaced_are_recovered(python: Program, tmp_path: Path) -> None:
    spool = killed(python, tmp_path, "replace")
    with sp.session(output=tmp_path / "p.h5", verbose=False), sp.region("other"):
        pass
    assert counts(spool) == {"second": 5, "outer": 1}
