"""Which regions record, by their tags.

Two rules, both of which must let a region through:

* *opt-in*: tags registered with :func:`register_opt_in_tag` are off unless enabled. A region carrying such tags records if
  one of *them* is enabled, or ``*`` is.
* *filter*: with ``region_tags`` a region records if it shares a tag with the list. The session's root region is exempt:
  it is what the shares of the others are measured by.

Opt-in tags belong to the process, as the code that carries them does; what is enabled belongs to a run.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "ENABLE_TAGS_VARIABLE",
    "ROOT_REGION",
    "TagRules",
    "enabled_from_environment",
    "opt_in_tags",
    "register_opt_in_tag",
]

ENABLE_TAGS_VARIABLE = "SCOPE_PROFILER_ENABLE_TAGS"
ROOT_REGION = "scope_profiler.session"

_opt_in: frozenset[str] = frozenset()


def opt_in_tags() -> frozenset[str]:
    """The tags that are off unless enabled."""
    return _opt_in


def register_opt_in_tag(*tags: str) -> bool:
    """Make ``tags`` opt-in. True if one of them is new. TypeError unless all are non-empty strings."""
    global _opt_in
    for tag in tags:
        if not isinstance(tag, str) or not tag:
            raise TypeError(f"an opt-in tag must be a non-empty str, got {tag!r}")
    grown = _opt_in.union(tags)
    new = grown != _opt_in
    _opt_in = grown
    return new


def enabled_from_environment() -> tuple[str, ...]:
    """The comma-separated tags of ``SCOPE_PROFILER_ENABLE_TAGS``."""
    import os

    words = os.environ.get(ENABLE_TAGS_VARIABLE, "").split(",")
    return tuple(word.strip() for word in words if word.strip())


class TagRules:
    """The rules of one run; callable as the recorder's filter."""

    __slots__ = ("_enabled", "_wanted")

    def __init__(self, enable_tags: Iterable[str] = (), region_tags: Iterable[str] | None = None) -> None:
        self._wanted = None if region_tags is None else frozenset(region_tags)
        self._enabled = frozenset(enable_tags) | (self._wanted or frozenset()) | frozenset(enabled_from_environment())

    def filter(self) -> Callable[[str, tuple[str, ...]], bool] | None:
        """What a recorder asks about each region; None when every region records."""
        if self._wanted is None and (not _opt_in or "*" in self._enabled):
            return None
        return self.allows

    def allows(self, name: str, tags: tuple[str, ...] | Any) -> bool:
        """Whether the region ``name`` with ``tags`` records."""
        opt_in = _opt_in.intersection(tags)
        if opt_in and "*" not in self._enabled and not opt_in & self._enabled:
            return False
        if self._wanted is None or name == ROOT_REGION:
            return True
        return not self._wanted.isdisjoint(tags)
