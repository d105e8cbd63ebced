"""A spool as a profile: what a process that ended before it wrote its file had recorded."""

from __future__ import annotations

import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._core import Profile
    from .profile_io import StrPath
    from .results import ProfilingResults

__all__ = ["SIGNATURE", "read_spool", "recover"]

SIGNATURE = b"SPSPOOL\n"


def read_spool(path: StrPath) -> ProfilingResults:
    """The calls in a spool that are in no file yet, also while its process goes on (as they are at this moment).

    Calls that had not ended carry ``{"open": True}`` as metadata and end at the last moment that the spool knows. The
    metadata are those of the run as of its start or last checkpoint, and ``recovered``, ``recovered_open_calls`` and, if
    part of the file could not be understood, ``recovered_damaged_bytes``. The file is not changed.

    Raises FileNotFoundError, another OSError if the file cannot be read, CorruptProfileError if it is no spool or its header
    is damaged, HDF5SchemaError for a later version, ValueError for one of a machine with another byte order.
    """
    return recover(path)[0]


def recover(path: StrPath) -> tuple[ProfilingResults, dict[str, Any]]:
    """:func:`read_spool`, and ``{"open_calls", "damaged_bytes", "limited", "incomplete"}``."""
    from .results import ProfilingResults

    profile, facts = _core.read_spool(os.fspath(path))
    rank = _rank(profile)
    if rank:
        profile, facts = _core.read_spool(os.fspath(path), rank)
    profile = _with_metadata(profile, *facts.pop("values"))
    return ProfilingResults._from_profile(profile, file_path=path), facts


def _rank(profile: Profile) -> int:
    """Which rank of its run the process was."""
    rank = _parse(profile.metadata.get("spool_metadata", "{}")).get("mpi_rank", 0)
    return rank if isinstance(rank, int) and 0 < rank < 1 << 31 else 0


def _with_metadata(profile: Profile, notes: list[Any], lanes: bytes) -> Profile:
    found = dict(profile.metadata)
    noted = _parse(found.pop("spool_metadata", "{}"))
    # What the reader found out itself is nearer to the truth.
    texts = None
    if notes and profile.call_count:
        from .event_metadata import recovered

        texts = recovered(profile, notes, lanes) or None
    return _core.replace_profile(profile, metadata={**noted, **found}, event_metadata=texts)


def _parse(text: str) -> dict[str, Any]:
    """The metadata in the spool, as far as a file can hold them: they may come from anywhere."""
    import json

    try:
        noted = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in noted.items() if _storable(key, value)} if isinstance(noted, dict) else {}


def _storable(key: str, value: Any) -> bool:
    if isinstance(value, list):
        return _is_text(key) and all(isinstance(item, str) and _is_text(item) for item in value)
    if isinstance(value, int):
        return _is_text(key) and -(1 << 63) <= value < 1 << 63
    return _is_text(key) and (isinstance(value, float) or (isinstance(value, str) and _is_text(value)))


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
