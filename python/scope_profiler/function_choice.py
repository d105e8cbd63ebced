"""Which functions are traced, and what their regions are called, where calls of Python functions are recorded."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FunctionChoice", "is_user_file"]


class FunctionChoice:
    """Asked once for each function, at its first call in a run: ``choice(name, file)`` is its region's name, or None.

    Parameters
    ----------
    only_user_code
        Leave out the standard library, installed packages, and code that came from no file.
    include, exclude
        Patterns as of a shell for region names (``module.qualname``); none in ``include`` means all.
    entrypoint
        The function with this name, qualified or not, has a region of just this name.
    """

    __slots__ = ("_entrypoint", "_exclude", "_include", "_only_user_code")

    def __init__(
        self,
        *,
        only_user_code: bool = True,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        entrypoint: str | None = None,
    ) -> None:
        self._only_user_code = only_user_code
        self._include = _patterns("include", include)
        self._exclude = _patterns("exclude", exclude)
        self._entrypoint = entrypoint

    def __call__(self, name: str, file: str) -> str | None:
        if self._only_user_code and not is_user_file(file):
            return None
        if self._entrypoint is not None and (name == self._entrypoint or name.endswith(f".{self._entrypoint}")):
            name = self._entrypoint
        if self._include and not _matches(name, self._include):
            return None
        return None if _matches(name, self._exclude) else name


def _patterns(what: str, given: Iterable[str]) -> tuple[str, ...]:
    from .settings import check_text

    return tuple(check_text(f"a pattern of {what}", one) for one in ((given,) if isinstance(given, str) else given))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns)


_libraries: tuple[str, ...] = ()
_known: dict[str, bool] = {}


def is_user_file(file: str) -> bool:
    """Whether ``file``, a code object's ``co_filename``, is of the program itself: no library, and not ``<string>`` or the like."""
    known = _known.get(file)
    if known is None:
        known = _known[file] = not file.startswith("<") and _is_outside(os.path.abspath(file))
    return known


def _is_outside(path: str) -> bool:
    if {"site-packages", "dist-packages"} & set(path.split(os.sep)):
        return False
    return not any(form.startswith(_library_directories()) for form in (path, os.path.realpath(path)))


def _library_directories() -> tuple[str, ...]:
    """Where the standard library and packages are, each with a separator behind it."""
    global _libraries
    if not _libraries:
        import site
        import sysconfig

        found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        found += [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]
        forms = {form for path in found if path for form in (os.path.abspath(path), os.path.realpath(path))}
        _libraries = tuple(sorted(os.path.join(form, "") for form in forms))
    return _libraries
