"""Which values belong to which call: the ``metadata()`` scopes of one run.

A scope covers an interval on one lane. A call gets the values of every scope of *its lane* that contains it whole; the
inner scope wins where two have a key. Two kinds of entries are kept:

* scopes, from ``metadata()`` and from ``profile(metadata=...)``: they also reach the calls inside;
* outcomes, from ``profile(record_outcome=True)``: they belong to exactly one call.

Matching is one pass per lane over sorted times: linear in calls and scopes after the sort. Scopes that overlap without
nesting (held by generators that interleave) take a slower pass, for their lane only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from ._core import Profile, Run

    OpenScope = tuple[int, int, dict[str, Any], int]  # lane, start in ticks, values, what the spool ends it by
    Scope = tuple[int, int, dict[str, Any]]  # start ns, end ns, values

__all__ = ["EventMetadata", "encode", "recovered"]

NEVER = (1 << 63) - 1
SHARED = 1000  # values whose text is remembered for the next call that has them


class EventMetadata:
    """The metadata of one run's calls. Adding is safe from any thread, during a collection too.

    The run's spool is told of each, for the process that is killed before it writes its file.
    """

    __slots__ = ("_closed", "_open", "_outcomes", "_run", "_spooled", "_texts")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._spooled = run.spool_path is not None
        self._texts: dict[int, tuple[dict[str, Any], str]] = {}  # of values that calls share, by identity
        self._open: dict[int, OpenScope] = {}  # by identity
        self._closed: list[tuple[int, int, int, dict[str, Any]]] = []
        self._outcomes: list[tuple[str, int, int, dict[str, Any]]] = []

    def open(self, values: dict[str, Any]) -> OpenScope:
        """A scope starts now on the caller's lane; ``values`` may change until it is given to :meth:`close`."""
        lane, start = self._run.lane(), self._run.ticks()
        number = self._run.note_scope(0, lane, start, 0, encode(values)) if self._spooled else 0
        scope = (lane, start, values, number)
        self._open[id(scope)] = scope
        return scope

    def close(self, scope: OpenScope) -> None:
        """The scope ends now."""
        lane, start, values, number = scope
        end = self._run.ticks()
        # Into the list first: a collection in between sees it twice, which is harmless, rather than not at all.
        self._closed.append((lane, start, end, dict(values)))
        self._open.pop(id(scope), None)
        if self._spooled:
            self._run.note_scope(number, lane, start, end, encode(values))

    def add_scope(self, lane: int, start: int, end: int, values: dict[str, Any]) -> None:
        """A scope that is over; times in ticks. ``values`` do not change any more."""
        self._closed.append((lane, start, end, values))
        if self._spooled:
            self._run.note_scope(0, lane, start, end, self._text(values))

    def add_outcome(self, region: str, lane: int, start: int, values: dict[str, Any]) -> None:
        """Values of the one call of ``region`` on ``lane`` that started at this tick."""
        self._outcomes.append((region, lane, start, values))
        if self._spooled:
            self._run.note_outcome(lane, start, region, self._text(values))

    def _text(self, values: dict[str, Any]) -> str:
        known = self._texts.get(id(values))
        if known is not None and known[0] is values:
            return known[1]
        text = encode(values)
        if len(self._texts) < SHARED:
            self._texts[id(values)] = values, text
        return text

    @property
    def used(self) -> bool:
        """Whether some call may have metadata."""
        return bool(self._open or self._closed or self._outcomes)

    def mark(self) -> tuple[int, int, int]:
        """To be taken before a collection and given to :meth:`drop` once it is safe."""
        return len(self._closed), len(self._outcomes), self._run.mark_values() if self._spooled else 0

    def drop(self, mark: tuple[int, int, int]) -> None:
        """Forget what was over at ``mark``: every call it could belong to is reported."""
        if self._spooled:
            self._run.drop_values(mark[2])
        del self._closed[: mark[0]]
        del self._outcomes[: mark[1]]

    def texts(self, profile: Profile) -> dict[int, str]:
        """JSON text (a list of one object per call) by row of ``profile``, which the run collected last."""
        still_open, closed, outcomes = list(self._open.values()), list(self._closed), list(self._outcomes)
        if not (still_open or closed or outcomes) or not profile.call_count:
            return {}
        lane_keys = self._run.collect_lanes()
        if lane_keys is None:  # all of its calls ended before metadata was first used
            return {}
        import numpy as np

        to_ns = self._run.to_ns
        calls = _Calls(profile, np.frombuffer(lane_keys, dtype=np.int64))
        lanes: dict[int, list[Scope]] = {}
        for lane, start, end, values in reversed(closed):  # the outer of two equal scopes closed last: it comes first
            # A decorated call's scope is the call itself: it must not end up 1 ns too short by rounding.
            lanes.setdefault(lane, []).append((to_ns(start) - 1, to_ns(end) + 1, values))
        for lane, start, values, _ in still_open:
            lanes.setdefault(lane, []).append((to_ns(start) - 1, NEVER, dict(values)))
        for lane, scopes in lanes.items():
            calls.add_scopes(lane, scopes)
        for region, lane, start, values in outcomes:
            calls.add_outcome(region, lane, to_ns(start), values)
        return calls.texts()


def recovered(profile: Profile, notes: list[tuple[str | None, int, int, int, int | None, str]], lane_keys: bytes) -> dict[int, str]:
    """JSON text by row of ``profile``, from what a spool has noted of its calls (:func:`_core.read_spool`).

    Rows that have metadata already, of calls that were open, keep it. What is no JSON object is left out.
    """
    import json

    import numpy as np

    calls = _Calls(profile, np.frombuffer(lane_keys, dtype=np.int64))
    still_open: dict[int, tuple[int, Scope]] = {}  # by number
    closed: list[tuple[int, Scope]] = []
    for region, number, lane, start, end, text in notes:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(values, dict):
            continue
        if region is not None:
            calls.add_outcome(region, lane, start, values)
        elif end is None:
            still_open[number] = (lane, (start - 1, NEVER, values))
        else:
            still_open.pop(number, None)
            closed.append((lane, (start - 1, end + 1, values)))
    lanes: dict[int, list[Scope]] = {}
    for lane, scope in [*reversed(closed), *still_open.values()]:
        lanes.setdefault(lane, []).append(scope)
    for lane, found in lanes.items():
        calls.add_scopes(lane, found)
    texts = calls.texts()
    for index, row in enumerate(profile.rows):
        if row[8] is not None and index in texts:
            pairs = zip(json.loads(texts[index]), json.loads(row[8]), strict=True)
            texts[index] = json.dumps([{**values, **marks} for values, marks in pairs])
    return texts


class _Calls:
    """The calls of a profile, and the values found for them so far."""

    def __init__(self, profile: Profile, lanes: NDArray[Any]) -> None:
        import numpy as np

        self._profile = profile
        self._starts = np.frombuffer(_column(profile, "start_ns"), dtype=np.int64)
        self._ends = np.frombuffer(_column(profile, "end_ns"), dtype=np.int64)
        self._lanes = lanes
        self._by_lane = np.argsort(lanes, kind="stable")
        self._sorted_lanes = lanes[self._by_lane]
        self._found = np.zeros(profile.call_count, dtype=np.int64)  # index into _values
        self._values: list[dict[str, Any]] = [{}]
        self._outcomes: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}

    def add_scopes(self, lane: int, scopes: list[Scope]) -> None:
        low, high = self._sorted_lanes.searchsorted([lane, lane + 1])
        selected = self._by_lane[low:high]
        if not len(selected):
            return
        scopes.sort(key=lambda scope: (scope[0], -scope[1]))
        parents, bounds, owners = _nest(scopes)
        starts, ends = self._starts[selected], self._ends[selected]
        if parents is None:
            found = self._overlapping(scopes, starts, ends)
        else:
            found = _innermost(scopes, parents, bounds, owners, starts, ends)
            first = len(self._values)
            for (_, _, values), parent in zip(scopes, parents, strict=True):
                self._values.append(values if parent < 0 else {**self._values[first + parent], **values})
            found = (found + first) * (found >= 0)
        self._found[selected] = found

    def _overlapping(self, scopes: list[Scope], starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
        """As _innermost, for scopes of any shape: keeps those that are open while it goes through the calls."""
        import numpy as np

        found = np.zeros(len(starts), dtype=np.int64)
        known: dict[tuple[int, ...], int] = {(): 0}
        active: list[int] = []
        coming = 0
        for call in np.argsort(starts, kind="stable").tolist():
            start, end = int(starts[call]), int(ends[call])
            while coming < len(scopes) and scopes[coming][0] <= start:
                active.append(coming)
                coming += 1
            active = [scope for scope in active if scopes[scope][1] > start or scopes[scope][0] == start]
            around = tuple(scope for scope in active if scopes[scope][1] >= end)
            if around not in known:
                known[around] = len(self._values)
                self._values.append({key: value for scope in around for key, value in scopes[scope][2].items()})
            found[call] = known[around]
        return found

    def add_outcome(self, region: str, lane: int, start: int, values: dict[str, Any]) -> None:
        self._outcomes.setdefault(region, {})[lane, start] = values

    def texts(self) -> dict[int, str]:
        encoded = self._encoded()
        names = self._profile.names
        texts = {}
        for index, row in enumerate(self._profile.rows):
            name, first, count = names[row[0]], row[2], row[3]
            found = self._found[first : first + count]
            outcomes = self._outcomes.get(name)
            if outcomes:
                texts[index] = self._with_outcomes(first, found, outcomes)
            elif found.any():
                texts[index] = "[" + ",".join([encoded[value] for value in found.tolist()]) + "]"
        return texts

    def _encoded(self) -> list[str]:
        """Every value as text; a decorated function's calls share one object."""
        known: dict[int, str] = {}
        for values in self._values:
            if id(values) not in known:
                known[id(values)] = encode(values)
        return [known[id(values)] for values in self._values]

    def _with_outcomes(self, first: int, found: NDArray[Any], outcomes: dict[tuple[int, int], dict[str, Any]]) -> str:
        part = slice(first, first + len(found))
        known: dict[tuple[int, int], str] = {}
        objects = []
        for lane, start, value in zip(self._lanes[part].tolist(), self._starts[part].tolist(), found.tolist(), strict=True):
            outcome = _near(outcomes, lane, start)
            key = value, id(outcome)
            if key not in known:
                known[key] = encode({**self._values[value], **outcome})
            objects.append(known[key])
        return "[" + ",".join(objects) + "]"


def _near(outcomes: dict[tuple[int, int], dict[str, Any]], lane: int, start: int) -> dict[str, Any]:
    """The outcome of the call at ``start``, give or take the rounding of a tick; no two calls are that near."""
    for shift in (0, 1, -1):
        outcome = outcomes.get((lane, start + shift))
        if outcome is not None:
            return outcome
    return _NOTHING


_NOTHING: dict[str, Any] = {}


def _column(profile: Profile, name: str) -> Any:
    column = profile.column(name)
    assert column is not None  # every recorded profile has its times
    return column


def _nest(scopes: list[Scope]) -> tuple[list[int] | None, list[int], list[int]]:
    """How the scopes of a lane nest.

    Returns the index of the scope around each (-1: none), and the innermost scope as a function of time: from
    ``bounds[i]`` on it is ``owners[i]``. The first is None if they do not nest.
    """
    parents: list[int] = []
    bounds: list[int] = []
    owners: list[int] = []
    stack: list[int] = []

    def close_until(moment: int) -> None:
        while stack and scopes[stack[-1]][1] <= moment:
            bounds.append(scopes[stack.pop()][1])
            owners.append(stack[-1] if stack else -1)

    for index, (start, end, _) in enumerate(scopes):
        close_until(start)
        if stack and end > scopes[stack[-1]][1]:
            return None, [], []
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
        bounds.append(start)
        owners.append(index)
    close_until(NEVER)
    return parents, bounds, owners


def _innermost(
    scopes: list[Scope],
    parents: list[int],
    bounds: list[int],
    owners: list[int],
    starts: NDArray[Any],
    ends: NDArray[Any],
) -> NDArray[Any]:
    """For each call, the innermost scope that contains it whole, or -1."""
    import numpy as np

    # A last entry for "none", which index -1 reaches.
    scope_ends = np.array([end for _, end, _ in scopes] + [NEVER], dtype=np.int64)
    parent = np.array([*parents, -1], dtype=np.int64)
    at = np.searchsorted(np.array(bounds, dtype=np.int64), starts, side="right") - 1
    found = np.where(at < 0, -1, np.array([*owners, -1], dtype=np.int64)[at])
    while True:
        too_short = scope_ends[found] < ends
        if not too_short.any():
            return found
        found[too_short] = parent[found[too_short]]


def encode(values: dict[str, Any]) -> str:
    """``values`` as JSON. What JSON cannot say is said nearly (numpy scalars, sets, paths) or as its ``str``."""
    import json

    try:
        return json.dumps(values, default=_nearly)
    except (TypeError, ValueError, RecursionError):  # a key that is no str, or an object inside itself
        return json.dumps({_text(key): _shallow(value) for key, value in values.items()})


def _nearly(value: Any) -> Any:
    for method in ("tolist", "__fspath__"):
        convert = getattr(value, method, None)
        if callable(convert):
            return convert()
    if isinstance(value, (set, frozenset)):
        return list(value)
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # a broken __str__ must not cost the run its file
        return object.__repr__(value)


def _shallow(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else _text(value)
