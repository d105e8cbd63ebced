"""Commands on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path


def on_a_terminal(command: Sequence[str], directory: Path, columns: int) -> str:
    """What a command shows on a terminal of that width. It ends with 0 or 1."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    with subprocess.Popen(command, cwd=directory, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(leader)
    assert process.returncode in (0, 1), shown
    # On a slow machine a line of progress is shown and erased before.
    return shown.decode().replace("\r\n", "\n").replace("\x1b[K", "")
