"""The metadata of a run in its spool, as JSON text, so that a recovered profile has it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._core import Run
    from .profile_config import ProfilingConfig

__all__ = ["note_metadata"]


def note_metadata(run: Run, config: ProfilingConfig) -> None:
    """Put the metadata of the run, as it is now, into its spool if it has one."""
    if run.spool_path is not None:
        run.note_metadata(_json(config.metadata))


# What JSON does not allow inside a string.
_ESCAPES = {**{code: f"\\u{code:04x}" for code in range(32)}, ord('"'): '\\"', ord("\\"): "\\\\"}


def _json(value: Any) -> str:
    # Not by the json package: it would be imported at the start of every program that records.
    if isinstance(value, dict):
        return f"{{{','.join(f'{_json(str(key))}:{_json(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_json, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):  # as the json package writes and reads them
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return f'"{text.translate(_ESCAPES)}"'
