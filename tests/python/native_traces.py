"""Native traces made byte by byte from their specification, in either byte order: no code of the package writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

Region = tuple[Any, ...]  # name, starts, ends[, source file, source line]


def spt(regions: Sequence[Region], rank: int = 0, version: int = 2, order: str = "<") -> bytes:
    """A ``.spt`` file. Names and source files are str or bytes."""
    parts = [b"SCOPEPRF", struct.pack(order + "iiq", version, rank, len(regions))]
    for name, starts, ends, *source in regions:
        parts.append(_text(name, order))
        if version >= 2:
            file, line = source if source else ("", -1)
            parts += [_text(file, order), struct.pack(order + "i", line)]
        parts.append(struct.pack(f"{order}q{2 * len(starts)}q", len(starts), *starts, *ends))
    return b"".join(parts)


def sps(
    regions: Sequence[str],
    modules: Sequence[tuple[str, int]],
    samples: Sequence[tuple[int, int, int]],
    rank: int = 0,
    hz: int = 1000,
    ticks: int = 100,
    order: str = "<",
) -> bytes:
    """A ``.sps`` file; samples are (region, module, address)."""
    parts = [b"SCOPESMP", struct.pack(order + "iiiq", 1, rank, hz, ticks), struct.pack(order + "i", len(regions))]
    parts += [_text(name, order) for name in regions]
    parts.append(struct.pack(order + "i", len(modules)))
    parts += [_text(path, order) + struct.pack(order + "Q", base) for path, base in modules]
    parts.append(struct.pack(order + "q", len(samples)))
    parts += [struct.pack(order + "iiQ", *sample) for sample in samples]
    return b"".join(parts)


def _text(text: str | bytes, order: str) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack(order + "i", len(raw)) + raw
