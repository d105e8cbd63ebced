"""Files of plots: whole or not there, as those of exports."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scope_profiler import _core

__all__ = ["write_pieces", "write_text"]


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> None:
    """Put the pieces in the place of a file, whose directory is made. OSError names the path and leaves an older file as it was."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _core.write_file(os.fspath(target), pieces)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """The same for a text, in UTF-8; half of a surrogate pair is written as an escape."""
    write_pieces(path, [text.encode("utf-8", "backslashreplace")])
