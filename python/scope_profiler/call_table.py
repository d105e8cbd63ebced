"""All calls as columns, for data frames."""

from __future__ import annotations

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from scope_profiler.mpi_region import MPIRegion

__all__ = ["events_table"]

# What a call of a region without the column gets, as int or float.
_MISSING = {"gpu_duration": np.nan, "await_duration": 0.0, "call_id": -1, "parent_id": -1, "thread": -1, "task": -1}


def events_table(regions: Sequence[MPIRegion], ranks: Iterable[int] | int | None, origin: int) -> dict[str, NDArray[Any]]:
    """The columns of ``events()`` with ``name`` and ``rank``, each as long as there are calls; ``origin`` in ns."""
    wanted = ranks if ranks is None or isinstance(ranks, int) else list(ranks)
    parts = [(region.name, rank, region[rank]) for region in regions for rank in region._chosen(wanted)]
    columns = [one._event_columns(origin) for _, _, one in parts]
    lengths = [len(part["call_index"]) for part in columns]
    table: dict[str, NDArray[Any]] = {
        "name": np.repeat(np.array([name for name, _, _ in parts], dtype=object), lengths),
        "rank": np.repeat(np.array([rank for _, rank, _ in parts], dtype=np.int64), lengths),
    }
    for name in ("call_index", "start", "end", "duration", *_MISSING):
        if name in _MISSING and not any(name in part for part in columns):
            continue
        filled = [part[name] if name in part else np.full(n, _MISSING[name]) for part, n in zip(columns, lengths)]
        table[name] = np.concatenate(filled) if filled else np.empty(0, np.int64 if name == "call_index" else np.float64)
    if any(one._metadata is not None for _, _, one in parts):
        metadata = np.empty(sum(lengths), dtype=object)
        metadata[:] = [values for _, _, one in parts for values in one.event_metadata]
        table["metadata"] = metadata
    return _in_order(table)


def _in_order(table: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    names = "name rank call_index start end duration gpu_duration call_id parent_id thread task await_duration metadata".split()
    return {name: table[name] for name in names if name in table}
