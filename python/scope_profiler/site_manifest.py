"""The manifest of a site of profiling runs: which cases there are, and which runs and files belong to each."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scope_profiler.cli.arguments import did_you_mean, rank_set
from scope_profiler.html_report import SPEEDUP_AXES

__all__ = ["Case", "Code", "Execution", "Manifest", "Run", "SiteError", "load_manifest", "slugify"]

SCALINGS = ("strong", "weak", "both", "none")
METADATA = ("minimal", "all")
_EXECUTION = "{execution}"
_STEM = "{stem}"
_DEFAULTS = ("scaling", "speedup_x", "include", "exclude", "ranks", "charts", "metadata")  # what `defaults` may set


class SiteError(ValueError):
    """A manifest that cannot be used, or a site that cannot be written. The message names the case and the field or file."""


@dataclass(frozen=True)
class Run:
    """One profile of a case."""

    path: Path
    label: str | None = None
    files: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Execution:
    """One of the times that a case was run."""

    id: str
    label: str
    runs: tuple[Run, ...]
    date: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """Code that is shown with a case: a file, a link, or both."""

    path: Path | None = None
    url: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Case:
    """Runs that are shown together. ``executions`` has the oldest first; a case that is not repeated has one, without a name."""

    id: str
    title: str
    executions: tuple[Execution, ...]
    description: str = ""
    group: str = ""
    tags: tuple[str, ...] = ()
    scaling: str = "strong"
    speedup_x: str = "auto"
    info: Mapping[str, Any] = field(default_factory=dict)
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    charts: bool = True
    metadata: str = "minimal"
    files: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()
    code: tuple[Code, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether it has executions that are told apart."""
        return bool(self.executions[0].id)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Those of the latest execution."""
        return self.executions[-1].runs


@dataclass(frozen=True)
class Manifest:
    """All of it. ``base`` is the path of the site on its host, None if the manifest does not say."""

    title: str
    cases: tuple[Case, ...]
    description: str = ""
    base: str | None = None

    @property
    def run_count(self) -> int:
        """The runs of all executions."""
        return sum(len(execution.runs) for case in self.cases for execution in case.executions)


def slugify(text: str) -> str:
    """A name for files and addresses: lower-case letters, digits and hyphens. Empty if the text has none of them."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def base_path(value: str, where: str) -> str:
    """``""`` for a site at the root of its host, else ``/name`` or ``/a/b``."""
    text = value.rstrip("/")
    if text and (not text.startswith("/") or re.search(r"[^\w./~-]", text) or "//" in text or ".." in text.split("/")):
        raise SiteError(f"{where}: {value!r} is no base path, as in /name")
    return text


def load_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read and check a manifest. Paths in it are relative to its directory; globs are in natural order (np2 before np10).

    Raises SiteError for whatever is wrong with it, and ImportError without PyYAML.
    """
    source = Path(path)
    table = _Table(_read(source), "manifest")
    defaults = _Table(table.mapping("defaults"), "defaults").only(_DEFAULTS)
    root = source.parent
    listed = table.take("cases")
    if not isinstance(listed, list) or not listed:
        raise SiteError("manifest: cases must be a list, and not be empty")
    cases = tuple(_case(entry, f"cases[{place}]", defaults, root) for place, entry in enumerate(listed))
    seen: set[tuple[str, str]] = set()
    for case in cases:
        place = (slugify(case.group), case.id)
        if place in seen:
            raise SiteError(f"case {case.id!r}: another case has the same id")
        seen.add(place)
    base = table.text("base", None)
    manifest = Manifest(
        title=table.text("title", None) or "Profiling catalogue",
        cases=cases,
        description=table.text("description", None) or "",
        base=None if base is None else base_path(base, "base"),
    )
    table.done()
    return manifest


def _read(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise ImportError("manifests are YAML: pip install scope-profiler[site]") from None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SiteError(f"{path}: no such file") from None
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SiteError(f"{path}: {' '.join(str(error).split())}") from None


class _Table:
    """A mapping of the manifest, whose fields are taken one by one; what is left over is unknown."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise SiteError(f"{where} must be a mapping with names as keys")
        self._left = dict(value)
        self._known: list[str] = []
        self.where = where

    def take(self, name: str) -> Any:
        """A field as it is, None if it is not there."""
        self._known.append(name)
        return self._left.pop(name, None)

    def _wrong(self, name: str, what: str, value: Any) -> SiteError:
        return SiteError(f"{self.where}.{name} must be {what}, not {value!r}")

    def text(self, name: str, default: str | None) -> str | None:
        """A field that is text; numbers and dates count as written."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, (dict, list, bool)):
            raise self._wrong(name, "text", value)
        return str(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A field that is one text or several."""
        value = self.take(name)
        if value is None:
            return None
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, (dict, list, bool)) or item is None for item in items):
            raise self._wrong(name, "text or a list of texts", value)
        return tuple(map(str, items))

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """A field that is one of some words."""
        value = self.text(name, default) or default
        if value not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is a mapping; empty if it is not there."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, "a mapping", value)
        return {str(key): entry for key, entry in value.items()}

    def patterns(self, name: str) -> tuple[str, ...] | None:
        """A field that is regular expressions."""
        values = self.texts(name)
        for value in values or ():
            try:
                re.compile(value)
            except re.error as error:
                raise SiteError(f"{self.where}.{name}: {value!r} is not a regular expression: {error}") from None
        return values

    def ranks(self, name: str) -> tuple[int, ...] | None:
        """A field that is ranks, as in 3, 0-3 or [0, 2]."""
        values = self.texts(name)
        try:
            return None if values is None else tuple(sorted({rank for value in values for rank in rank_set(value)}))
        except Exception as error:
            raise SiteError(f"{self.where}.{name}: {error}") from None

    def only(self, names: Sequence[str]) -> dict[str, Any]:
        """All fields, which must be of these names."""
        found = {name: self._left[name] for name in names if name in self._left}
        for name in names:
            self.take(name)
        self.done()
        return found

    def done(self) -> None:
        """SiteError if a field was not taken."""
        for name in self._left:
            raise SiteError(f"{self.where}: there is no {name!r}{did_you_mean(name, self._known)} (known: {', '.join(sorted(self._known))})")


def _case(entry: Any, where: str, defaults: Mapping[str, Any], root: Path) -> Case:
    table = _Table({**defaults, **entry} if isinstance(entry, dict) else entry, where)
    title, given = table.text("title", None), table.text("id", None)
    identity = slugify(given or title or "")
    if not identity:
        raise SiteError(f"{where}: a case needs a title or an id with letters or digits")
    table.where = f"case {identity!r}"
    runs, executions = table.take("runs"), table.take("executions")
    if (runs is None) == (executions is None):
        raise SiteError(f"{table.where}: a case has either runs or executions")
    files = table.texts("files")
    case = Case(
        id=identity,
        title=title or str(given),
        executions=(
            (Execution("", "", _runs(runs, f"{table.where}.runs", root)),)
            if executions is None
            else _executions(executions, f"{table.where}.executions", root)
        ),
        description=table.text("description", None) or "",
        group=table.text("group", None) or "",
        tags=table.texts("tags") or (),
        scaling=table.choice("scaling", SCALINGS, "strong"),
        speedup_x=table.choice("speedup_x", SPEEDUP_AXES, "auto"),
        info=table.mapping("info"),
        include=table.patterns("include"),
        exclude=table.patterns("exclude"),
        ranks=table.ranks("ranks"),
        charts=table.flag("charts", True),
        metadata=table.choice("metadata", METADATA, "minimal"),
        images=_paths(table.texts("images"), f"{table.where}.images", root),
        code=_code(table.take("code"), f"{table.where}.code", root),
    )
    table.done()
    return _with_files(case, files, f"{case.id!r}.files", root)


def _with_files(case: Case, files: tuple[str, ...] | None, where: str, root: Path) -> Case:
    """The files of a case; where a name has {stem}, those of each run."""
    own = [text for text in files or () if _STEM in text]
    shared = _paths([text for text in files or () if _STEM not in text], f"case {where}", root)
    executions = tuple(
        replace(
            execution,
            runs=tuple(
                replace(run, files=run.files + _paths(own, f"case {where}", root, run.path.stem)) for run in execution.runs
            ),
        )
        for execution in case.executions
    )
    return replace(case, files=shared, executions=executions)


def _natural(path: str) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def _expand(pattern: str, where: str, root: Path) -> list[Path]:
    """The files of a path or glob."""
    full = os.path.join(root, os.path.expanduser(pattern))
    if os.path.isfile(full):
        return [Path(full)]
    found = sorted(filter(os.path.isfile, glob.glob(full, recursive=True)), key=_natural)
    if not found:
        raise SiteError(f"{where}: {'no file matches' if glob.has_magic(pattern) else 'there is no file'} {pattern!r}")
    return [Path(path) for path in found]


def _paths(patterns: Iterable[str] | None, where: str, root: Path, stem: str = "") -> tuple[Path, ...]:
    paths: dict[Path, None] = {}
    for pattern in patterns or ():
        paths.update(dict.fromkeys(_expand(pattern.replace(_STEM, glob.escape(stem)), where, root)))
    return tuple(paths)


def _runs(listed: Any, where: str, root: Path) -> tuple[Run, ...]:
    entries = listed if isinstance(listed, list) else [listed]
    runs: list[Run] = []
    for place, entry in enumerate(entries):
        table = _Table({"path": entry} if isinstance(entry, str) else entry, f"{where}[{place}]")
        pattern, label = table.text("path", None), table.text("label", None)
        if not pattern:
            raise SiteError(f"{table.where} needs a path")
        paths = _expand(pattern, table.where, root)
        if label is not None and len(paths) > 1:
            raise SiteError(f"{table.where}: one label for the {len(paths)} files of {pattern!r}")
        files, images = table.texts("files"), table.texts("images")
        runs += [
            Run(path, label, _paths(files, f"{table.where}.files", root, path.stem), _paths(images, f"{table.where}.images", root, path.stem))
            for path in paths
        ]
        table.done()
    if not runs:
        raise SiteError(f"{where}: there are no runs")
    return tuple(runs)


def _executions(listed: Any, where: str, root: Path) -> tuple[Execution, ...]:
    found = _discovered(listed, where, root) if isinstance(listed, (dict, str)) else _listed(listed, where, root)
    if not found:
        raise SiteError(f"{where}: there are none")
    for execution in found:
        if sum(other.id == execution.id for other in found) > 1:
            raise SiteError(f"{where}: two have the id {execution.id!r}")
    if all(execution.date for execution in found):
        found.sort(key=lambda execution: execution.date)
    return tuple(found)


def _listed(listed: Any, where: str, root: Path) -> list[Execution]:
    if not isinstance(listed, list):
        raise SiteError(f"{where} must be a list, or have a path with {_EXECUTION} in it")
    executions = []
    for place, entry in enumerate(listed):
        table = _Table(entry, f"{where}[{place}]")
        label, date = table.text("label", None), table.text("date", None) or ""
        name = table.text("id", None) or label or date
        identity = slugify(name)
        if not identity:
            raise SiteError(f"{table.where} needs an id, a label or a date")
        runs = _runs(table.take("runs"), f"{table.where}.runs", root)
        executions.append(Execution(identity, label or name, runs, date, table.mapping("info")))
        table.done()
    return executions


def _discovered(listed: Any, where: str, root: Path) -> list[Execution]:
    """One for each directory that stands where the pattern has {execution}, and has runs."""
    table = _Table({"path": listed} if isinstance(listed, str) else listed, where)
    pattern, meta = table.text("path", None) or "", table.text("meta", "meta.yml")
    table.done()
    parts = Path(pattern).parts
    if parts.count(_EXECUTION) != 1 or parts[-1] == _EXECUTION:
        raise SiteError(f"{where}.path needs one directory that is called {_EXECUTION}, as in data/{_EXECUTION}/*.h5")
    place = parts.index(_EXECUTION)
    executions = []
    above = os.path.join(root, *parts[:place])
    for directory in sorted(filter(os.path.isdir, glob.glob(os.path.join(above, "*"))), key=_natural):
        rest = os.path.join(glob.escape(directory), *parts[place + 1 :])
        files = sorted(filter(os.path.isfile, glob.glob(rest, recursive=True)), key=_natural)
        name = os.path.basename(directory)
        if files and slugify(name):
            executions.append(_described(Path(directory), name, str(meta), tuple(Run(Path(file)) for file in files)))
    return executions


def _described(directory: Path, name: str, meta: str, runs: tuple[Run, ...]) -> Execution:
    path = directory / meta
    table = _Table(_read(path) or {} if path.is_file() else {}, str(path))
    label, date, info = table.text("label", name), table.text("date", None) or "", table.mapping("info")
    table.done()
    return Execution(slugify(name), label or name, runs, date, info)


def _code(listed: Any, where: str, root: Path) -> tuple[Code, ...]:
    found: list[Code] = []
    paths: list[Path | None]
    for place, entry in enumerate(listed if isinstance(listed, list) else [] if listed is None else [listed]):
        here = f"{where}[{place}]"
        is_link = isinstance(entry, str) and entry.startswith(("https://", "http://"))
        table = _Table({"url" if is_link else "path": entry} if isinstance(entry, str) else entry, here)
        path, url, label = table.text("path", None), table.text("url", None), table.text("label", None)
        table.done()
        if url is not None and not url.startswith(("https://", "http://")):
            raise SiteError(f"{here}.url must begin with https:// or http://, not {url!r}")
        if path is None and url is None:
            raise SiteError(f"{here} needs a path or a url")
        paths = [None] if path is None else [*_expand(path, here, root)]
        found += [Code(one, url, label) for one in paths]
    return tuple(found)
