"""The versions of the HDF5 layout. The layout itself: docs/file-format.md."""

from __future__ import annotations

from scope_profiler._core import HDF5SchemaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CURRENT_SCHEMA_VERSION", "SCHEMA_ATTRIBUTE", "HDF5SchemaError", "read_schema_version"]

SCHEMA_ATTRIBUTE = "scope_profiler_schema"
CURRENT_SCHEMA_VERSION = 3


def read_schema_version(h5file: Any) -> int:
    """The schema of an open ``h5py.File``; 1 if it says nothing, as the first versions did.

    Raises HDF5SchemaError for what is not a version that can be read.
    """
    from operator import index

    found = h5file.attrs.get(SCHEMA_ATTRIBUTE, 1)
    try:
        version = index(found)
    except TypeError:
        raise HDF5SchemaError(f"schema {found!r} is not an integer") from None
    if not 1 <= version <= CURRENT_SCHEMA_VERSION:
        raise HDF5SchemaError(f"schema {version} is unknown; this version reads 1 to {CURRENT_SCHEMA_VERSION}")
    return version
