"""Which settings exclude each other: every pair, refused by setup() with one message that names both."""

from __future__ import annotations

import itertools

import pytest

from scope_profiler.settings import SETTINGS, check_combinations, defaults

# One letter a setting; x where the row and the column exclude each other.
LETTERS = {
    "t": "track_threads", "a": "track_async", "A": "aggregation_mode", "l": "use_line_profiler", "g": "use_gpu_timing", "n": "use_nvtx",
    "k": "use_likwid", "p": "perf_events", "m": "use_memray", "r": "recursive_profile", "f": "follow_processes",
    "s": "sample_hz",
}  # fmt: skip
MATRIX = """
  t a A l g n k p m r f s
t . . x x x x x x . . . .
a . . x x x x x x . . . .
A x x . x x x x x . . . x
l x x x . x x x x . . x .
g x x x x . . x x . . x .
n x x x x . . x x . . . .
k x x x x x x . x . . x .
p x x x x x x x . . . x .
m . . . . . . . . . . x .
r . . . . . . . . . . . .
f . . . x x . x x x . . .
s . . x . . . . . . . . .
"""


def excluded():
    header, *rows = (line.split() for line in MATRIX.strip().splitlines())
    table = {(row[0], column): mark == "x" for row in rows for column, mark in zip(header, row[1:], strict=True)}
    assert all(table[a, b] == table[b, a] for a, b in table)
    return {frozenset((LETTERS[a], LETTERS[b])) for (a, b), mark in table.items() if mark}


PAIRS = list(itertools.combinations(LETTERS.values(), 2))


def on(*names):
    values = {"perf_events": ["task-clock"], "sample_hz": 50.0}
    return {name: values.get(name, True) for name in names}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=" ".join)
def test_every_pair_of_modes_is_allowed_or_refused_by_both_names(pm, one, other):
    values = {**defaults(), **on(one, other)}
    if frozenset((one, other)) not in excluded():
        check_combinations(values)
        return
    with pytest.raises(ValueError, match="cannot be combined with") as caught:
        pm.setup(output=None, **on(one, other))
    assert one in str(caught.value) and other in str(caught.value) and "\n" not in str(caught.value)
    assert not pm.is_configured() and not pm.is_active()


@pytest.mark.parametrize("names", list(itertools.combinations(LETTERS.values(), 3)), ids=" ".join)
def test_three_modes_are_refused_for_one_pair_of_them(names):
    values = {**defaults(), **on(*names)}
    pairs = [pair for pair in excluded() if pair <= set(names)]
    if not pairs:
        check_combinations(values)
        return
    with pytest.raises(ValueError, match="cannot be combined with") as caught:
        check_combinations(values)
    assert any(all(name in str(caught.value) for name in pair) for pair in pairs)


def test_every_switch_of_a_mode_is_in_the_matrix():
    modes = {name for name in SETTINGS if name.startswith(("use_", "track_")) or name.endswith(("_mode", "_profile", "_events"))}
    assert modes - {"output_mode"} <= set(LETTERS.values())
