"""Regions by name, kept by a program: handles and factories."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from typing import Any

    from ._core import Region
    from .profile_manager import ProfileManager

__all__ = ["RegionFactory", "RegionHandle"]


class _Forward(property):
    """The region's method, for its handle.

    A ``with`` statement finds the region's own bound method behind it, without a Python frame; ExitStack, which asks the
    class, finds something that it can call.
    """

    method: str

    def __call__(self, handle: Any, *arguments: Any) -> Any:
        return getattr(type(handle._region), self.method)(handle._region, *arguments)


def _forward(method: str) -> _Forward:
    from operator import attrgetter

    forward = _Forward(attrgetter(f"_region.{method}"))
    forward.method = method
    return forward


class RegionHandle:
    """A region that was defined before it is used; a context manager like the region itself. Follows every ``setup()``.

    Attributes
    ----------
    name
        The region's name.
    """

    __slots__ = ("_region", "name")

    def __init__(
        self, manager: type[ProfileManager], name: str, functions: Any = None, tags: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self._region = manager.region(name, functions, tags)
        manager._state.keep(self._region)

    if TYPE_CHECKING:

        def __enter__(self) -> Region: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = _forward("__enter__")
        __exit__ = _forward("__exit__")

    def __repr__(self) -> str:
        return f"RegionHandle({self.name!r})"


class RegionFactory:
    """Makes context managers that are a region and a ``metadata()`` scope in one: ``step = region_factory("step")``,
    then ``with step(index=3): ...``.

    Attributes
    ----------
    name
        The region's name.
    """

    __slots__ = ("_manager", "_region", "name")

    def __init__(self, manager: type[ProfileManager], name: str, tags: Iterable[str] | None = None) -> None:
        self._manager = manager
        self._region = manager.region(name, None, tags)
        self.name = name

    def __call__(self, **values: Any) -> AbstractContextManager[None]:
        """A context manager for one call with these values."""
        from contextlib import contextmanager

        @contextmanager
        def scope() -> Any:
            with self._manager.metadata(**values), self._region:
                yield

        return scope()

    def __repr__(self) -> str:
        return f"RegionFactory({self.name!r})"
