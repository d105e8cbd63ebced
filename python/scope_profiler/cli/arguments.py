"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import Progress, reason_of

if TYPE_CHECKING:
    from scope_profiler.results import MPIRegion, ProfilingResults

__all__ = [
    "add_label",
    "add_selection",
    "build_parser",
    "check_patterns",
    "did_you_mean",
    "expand_files",
    "load_profile",
    "load_runs",
    "percentage",
    "rank_set",
    "require_match",
    "select",
]


class _MisplacedFiles(CommandError):
    """Files are missing, or a value of an option is none: files may have been taken for values."""


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line, and the files may follow an option that takes several values."""

    def error(self, message: str) -> NoReturn:
        kind = _MisplacedFiles if "required" in message or message.startswith("argument ") else CommandError
        raise kind(f"{message} (see {self.prog} --help)")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """parse_args(), but where files are missing, those at the end of an option's values are taken for them."""
        try:
            return self.parse_args(arguments)
        except _MisplacedFiles as error:
            files, others = self._files_among_values(arguments)
            if not files:
                raise CommandError(f"{error}{self._taken_for_values(arguments)}") from None
            return self.parse_args([*files, *others])

    def parse_args(self, args: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """As argparse has it, but options that it does not know are told with those that they may be meant for."""
        parsed, unknown = self.parse_known_args(args)
        if unknown:
            shown = [name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings]
            option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
            hint = did_you_mean(option, shown) if option else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def _taken_for_values(self, arguments: Sequence[str]) -> str:
        """A hint for when the words at the end of the line were taken for values of an option."""
        last = next((word for word in reversed(arguments) if word.startswith("-")), None)
        takers = {name for action in self._actions if action.nargs in ("+", "*") for name in action.option_strings}
        if last not in takers or arguments[-1] == last or any(map(_is_files, arguments)):
            return ""
        return f"; no file among what follows {last}: {' '.join(arguments[arguments.index(last) + 1:])}"

    def _files_among_values(self, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
        """(files, the rest): words that are files, at the end of the values of an option that takes several, all that it can miss."""
        needed = {"+": 1, "*": 0}
        several = {name: needed[str(action.nargs)] for action in self._actions if action.nargs in needed for name in action.option_strings}
        files: list[str] = []
        others: list[str] = []
        begin = len(arguments)  # where the values of such an option begin
        for place, word in enumerate(arguments):
            if word.startswith("-"):
                begin = place + 1 + several[word] if word in several else len(arguments)
            values_end = place + 1 == len(arguments) or arguments[place + 1].startswith("-")
            others.append(word)
            if values_end and place >= begin:
                tail: list[str] = []
                while place >= begin and _is_files(arguments[place]):
                    tail.insert(0, others.pop())
                    place -= 1
                files += tail
        return files, others


def _is_files(word: str) -> bool:
    import glob

    return os.path.isfile(word) or (glob.has_magic(word) and any(map(os.path.isfile, glob.iglob(word))))


def build_parser(program: str, summary: str, command: ModuleType) -> _Parser:
    """The parser of a command's module."""
    parser = _Parser(
        prog=program,
        description=getattr(command, "DESCRIPTION", None) or summary[0].upper() + summary[1:] + ".",
        epilog=getattr(command, "EPILOG", None),
        usage=getattr(command, "USAGE", None),
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` when a known name is near or begins with this one, else nothing."""
    import re
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name.lower().replace("_", "-"), known, n=1, cutoff=0.6) or get_close_matches(name, known, n=1, cutoff=0.6)
    near = near or [other for other in known if name and other.startswith(name.lower())]
    # Or one of its words: fame for flame_chart.
    near = near or [other for other in known if get_close_matches(name.lower(), re.split("[-_ ]+", other), n=1, cutoff=0.8)]
    return f", did you mean {near[0]!r}?" if near else ""


def add_selection(parser: argparse.ArgumentParser, bare_ranks: str | None = None) -> None:
    """The options that choose regions and ranks; ``bare_ranks`` is what --ranks without a rank shows."""
    parser.add_argument(
        "-i", "--include", nargs="+", metavar="REGEX", help="only regions whose name begins with one of these"
    )
    parser.add_argument("-e", "--exclude", nargs="+", metavar="REGEX", help="no regions whose name begins with one of these")
    parser.add_argument(
        "-r", "--ranks", nargs="*" if bare_ranks else "+", metavar="RANKS", type=rank_set,
        help="only these ranks: 0 2, 0-3 or 1,3" + (f"; without any: {bare_ranks}" if bare_ranks else ""),
    )  # fmt: skip


def add_label(parser: argparse.ArgumentParser) -> None:
    """The option that names runs."""
    parser.add_argument("--label", action="append", metavar="TEXT", help="name of a file's run; once a file, in their order")


def rank_set(text: str) -> frozenset[int]:
    """Ranks written as "2", "0-3" or "1,3"."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of ranks (as in 0 2, 0-3 or 1,3)")
        low, high = int(first), int(last or first)
        if high < low or high - low > 10_000_000:
            raise argparse.ArgumentTypeError(f"{text!r} is not a range of ranks")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def percentage(text: str) -> float:
    """A percentage that is not negative."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage of 0 or more")
    return value


def expand_files(patterns: Sequence[str]) -> list[str]:
    """Paths from paths and globs, each once. A name that exists is itself, whatever characters it has."""
    import glob

    paths: dict[str, None] = {}
    for pattern in patterns:
        if os.path.lexists(pattern) or not glob.has_magic(pattern):
            paths[pattern] = None
            continue
        matches = sorted(glob.glob(pattern, recursive=True))
        if not matches:
            raise CommandError(f"{pattern}: no file matches")
        paths.update(dict.fromkeys(matches))
    return list(paths)


def _spool_of(path: str) -> str:
    """What to do about a profile that was not written because its process was killed, or still runs."""
    import glob

    spools = glob.glob(f"{glob.escape(path)}.*-*.spool")
    return f", but there is {max(spools)}, to be read by `scope-profiler recover`" if spools else ""


def load_profile(path: str, progress: str | None = None) -> ProfilingResults:
    """The profile at ``path``; any failure is a CommandError that names it."""
    from scope_profiler import load

    try:
        with Progress(progress or f"reading {path}"):
            return load(path)
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file{_spool_of(path)}") from None
    except (OSError, ValueError, KeyError, UnicodeError, EOFError) as error:
        raise CommandError(reason_of(error, os.fspath(path))) from None


def load_runs(arguments: argparse.Namespace) -> list[ProfilingResults]:
    """The profiles of the command line with their labels."""
    paths = expand_files(arguments.files)
    if arguments.label is not None and len(arguments.label) != len(paths):
        raise CommandError(f"there are {len(arguments.label)} labels for {len(paths)} files")
    runs = [load_profile(path) for path in paths]
    for run, label in zip(runs, arguments.label or ()):
        run.label = label
    return runs


def select(
    results: ProfilingResults,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
    ranks: Iterable[int] | None,
) -> list[MPIRegion]:
    """The regions that the options choose, each with the chosen ranks only, in order of appearance.

    Raises CommandError for a pattern that is no regular expression, or ranks of which the profile has none.
    """
    from scope_profiler.results import MPIRegion

    check_patterns(include, exclude)
    regions: list[MPIRegion] = list(results.get_regions(include=include, exclude=exclude))
    if ranks is None:
        return regions
    wanted = set(ranks)
    if wanted.isdisjoint(range(int(results.num_ranks))):
        raise CommandError(f"{results.file_path}: no such rank (it has {int(results.num_ranks)})")
    kept = []
    for region in regions:
        chosen = {rank: part for rank, part in region.regions.items() if rank in wanted}
        if chosen:
            kept.append(region if len(chosen) == len(region.regions) else MPIRegion(region.name, chosen))
    return kept


def require_match(runs: Sequence[ProfilingResults], arguments: argparse.Namespace) -> None:
    """CommandError where --include and --exclude leave no region of any run: what would be written had nothing in it."""
    check_patterns(arguments.include, arguments.exclude)
    if arguments.include is None and arguments.exclude is None:
        return
    if any(len(run) for run in runs) and not any(run.get_regions(arguments.include, arguments.exclude) for run in runs):
        raise CommandError(f"{', '.join(str(run.file_path) for run in runs)}: no region matches the filters")


def check_patterns(*patterns: Sequence[str] | None) -> None:
    """CommandError for one that is no regular expression."""
    import re

    for pattern in (one for several in patterns for one in several or ()):
        try:
            re.compile(pattern)
        except re.error as error:
            raise CommandError(f"{pattern!r} is not a regular expression: {error}") from None


def merge_ranks(sets: Sequence[frozenset[int]] | None) -> list[int] | None:
    """The ranks of a ``--ranks`` option, sorted; None for all of them."""
    return None if sets is None else sorted(frozenset().union(*sets))
