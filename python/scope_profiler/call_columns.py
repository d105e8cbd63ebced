"""The columns of calls behind a region, and the exclusive times that follow from all regions of a rank.

A region's calls are either arrays that somebody handed over (:class:`ArrayColumns`) or a slice of a collected run
(:class:`ProfileColumns`), whose arrays are views of the run's own memory. numpy is imported when the first array is asked for.
"""

from __future__ import annotations

from scope_profiler import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from scope_profiler.stored_run import StoredRun

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

    class CallColumns(Protocol):
        """Calls in recording order. ``count`` is how many are here, which is none in a profile read without them."""

        count: int

        def array(self, name: str) -> IntArray | None:
            """One of COLUMN_NAMES, or None if it was not recorded."""

        def buffer(self, name: str) -> Any:
            """The same for the extension: anything with an int64 buffer."""

    class Exclusive(Protocol):
        """Where a region finds its exclusive times."""

        def ns(self) -> IntArray:
            """One value a call. Raises NestingError if the calls have no tree, every time."""


__all__ = ["ArrayColumns", "ArrayExclusive", "COLUMN_NAMES", "FixedExclusive", "ProfileColumns", "ProfileExclusive", "RunColumns"]

#: As ``_core.Profile.column`` calls them. The first two are always there.
COLUMN_NAMES = ("start_ns", "end_ns", "call_ids", "parent_ids", "thread_ids", "task_ids", "await_ns", "gpu_ns")


class ArrayColumns:
    """Columns that are arrays. Other types than int64 are converted, which copies."""

    __slots__ = ("_arrays", "count")

    def __init__(self, arrays: dict[str, ArrayLike | None]) -> None:
        import numpy as np

        self._arrays: dict[str, IntArray] = {
            name: np.asarray(values, dtype=np.int64) for name, values in arrays.items() if values is not None
        }
        self.count: int = len(self._arrays["start_ns"])
        for name, values in self._arrays.items():
            if values.shape != (self.count,):
                raise ValueError(f"{name} has shape {values.shape}, but there are {self.count} start times")

    def array(self, name: str) -> IntArray | None:
        return self._arrays.get(name)

    def buffer(self, name: str) -> Any:
        import numpy as np

        values = self._arrays.get(name)
        return None if values is None else np.ascontiguousarray(values)


class RunColumns:
    """The columns of a whole run as arrays, each made once. They are read-only views of the run's memory."""

    __slots__ = ("_arrays", "_profile", "_views")

    def __init__(self, profile: _core.Profile | StoredRun) -> None:
        self._profile = profile
        self._views: dict[str, memoryview | None] = {}
        self._arrays: dict[str, IntArray] = {}

    @property
    def profile(self) -> _core.Profile:
        """The run with its calls, read now if need be."""
        return self._profile if isinstance(self._profile, _core.Profile) else self._profile.whole()

    def view(self, name: str) -> memoryview | None:
        if name not in self._views:
            self._views[name] = self.profile.column(name)
        return self._views[name]

    def array(self, name: str) -> IntArray | None:
        array = self._arrays.get(name)
        if array is None:
            view = self.view(name)
            if view is None:
                return None
            import numpy as np

            array = self._arrays[name] = np.asarray(view)
        return array


    def rank_span(self, rank: int) -> tuple[int, int]:
        """Where a rank's calls begin and end: the rows of a rank lie together, and so do their calls."""
        ranks = self.profile.row_keys()[1]
        rows = [row for row in range(len(ranks)) if ranks[row] == rank]
        if not rows:
            return 0, 0
        first, last = self.profile.row(rows[0]), self.profile.row(rows[-1])
        return first[2], last[2] + last[3]

    def has_lanes(self, rank: int) -> bool:
        """Whether the threads of a rank's calls are known (of some of them, at least)."""
        threads = self.array("thread_ids")
        if threads is None:
            return False
        begin, end = self.rank_span(rank)
        return bool(end > begin and threads[begin:end].max() >= 0)


class ProfileColumns:
    """The calls of one row of a run."""

    __slots__ = ("_first", "_run", "count")

    def __init__(self, run: RunColumns, first: int, count: int) -> None:
        self._run = run
        self._first = first
        self.count = count

    def array(self, name: str) -> IntArray | None:
        if self.count:
            whole = self._run.array(name)
            return None if whole is None else whole[self._first : self._first + self.count]
        if name in ("start_ns", "end_ns") or (not self._run.profile.summary_only and self._run.view(name) is not None):
            import numpy as np

            return np.empty(0, np.int64)
        return None

    def buffer(self, name: str) -> Any:
        view = self._run.view(name)
        return None if view is None else view[self._first : self._first + self.count]


class FixedExclusive:
    """Exclusive times that are known, or why there are none."""

    __slots__ = ("_failure", "_values")

    def __init__(self, values: IntArray | None, failure: str = "") -> None:
        self._values = values
        self._failure = failure

    def ns(self) -> IntArray:
        if self._values is None:
            raise _core.NestingError(self._failure)
        return self._values


class ProfileExclusive:
    """Exclusive times of a run, made for a whole rank when the first of them is asked for."""

    __slots__ = ("_failures", "_ranks", "_run")

    def __init__(self, run: RunColumns) -> None:
        self._run = run
        self._ranks: dict[int, IntArray] = {}
        self._failures: dict[int, str] = {}

    def rank(self, rank: int) -> IntArray:
        """Of all calls of a rank, in the order of its rows.

        Calls that overlap on a lane get clamped times where the lanes were recorded, and NestingError where they were not.
        """
        values = self._ranks.get(rank)
        if values is not None:
            return values
        if rank in self._failures:
            raise _core.NestingError(self._failures[rank])
        import numpy as np

        try:
            buffer = _core.profile_exclusive(self._run.profile, rank, self._run.has_lanes(rank))
        except _core.NestingError as error:
            self._failures[rank] = str(error)
            raise
        values = self._ranks[rank] = np.asarray(buffer)
        return values

    def row(self, rank: int, first: int, count: int) -> ProfileRowExclusive:
        """Of ``count`` calls of a rank, ``first`` being how many calls of the rank come before them."""
        return ProfileRowExclusive(self, rank, first, count)


class ProfileRowExclusive:
    __slots__ = ("_count", "_first", "_rank", "_times")

    def __init__(self, times: ProfileExclusive, rank: int, first: int, count: int) -> None:
        self._times = times
        self._rank = rank
        self._first = first
        self._count = count

    def ns(self) -> IntArray:
        return self._times.rank(self._rank)[self._first : self._first + self._count]


class ArrayExclusive:
    """The same for regions made of arrays: ``add`` every region of a rank, then ask."""

    __slots__ = ("_columns", "_failure", "_names", "_values")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._columns: list[CallColumns] = []
        self._values: Sequence[IntArray] | None = None
        self._failure: str | None = None

    def add(self, name: str, columns: CallColumns) -> ArrayRowExclusive:
        self._names.append(name)
        self._columns.append(columns)
        return ArrayRowExclusive(self, len(self._columns) - 1)

    def region(self, position: int) -> IntArray:
        if self._failure is not None:
            raise _core.NestingError(self._failure)
        if self._values is None:
            try:
                self._values = self._resolve()
            except _core.NestingError as error:
                self._failure = str(error)
                raise
        return self._values[position]

    def _resolve(self) -> list[IntArray]:
        import numpy as np

        columns = self._columns
        threads = [c.array("thread_ids") for c in columns]
        tracked = any(values is not None and np.max(values, initial=-1) >= 0 for values in threads)
        names = ("start_ns", "end_ns", "thread_ids", "task_ids")
        regions = [tuple(c.buffer(name) for name in names) for c in columns]
        tree = _core.call_tree(regions, self._names, tracked)
        region, call, exclusive = (np.asarray(tree[i]) for i in (0, 1, 6))
        ends = np.cumsum([c.count for c in columns])
        flat = np.empty(int(ends[-1]), np.int64)
        flat[(ends - [c.count for c in columns])[region] + call] = exclusive
        return np.split(flat, ends[:-1])


class ArrayRowExclusive:
    __slots__ = ("_position", "_times")

    def __init__(self, times: ArrayExclusive, position: int) -> None:
        self._times = times
        self._position = position

    def ns(self) -> IntArray:
        return self._times.region(self._position)


class PartExclusive:
    """Exclusive times of some calls of a region: those where ``mask`` is true."""

    __slots__ = ("_mask", "_whole")

    def __init__(self, whole: Exclusive, mask: NDArray[np.bool_]) -> None:
        self._whole = whole
        self._mask = mask

    def ns(self) -> IntArray:
        return self._whole.ns()[self._mask]
