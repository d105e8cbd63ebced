"""What could stand next on a command line: ``scope-profiler __complete WORD... CURRENT``, which the scripts of the shells ask.

The answer is read off the same argparse parsers that read the command line, so every command and option is in it. It is one
candidate a line, ``VALUE<tab>DESCRIPTION``, and where names of files may stand, a line ``:files [SUFFIX...]``: the shell
knows best how to complete and quote those.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import COMMANDS, OPTIONS, PROGRAM

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Candidates", "candidates"]

PROFILES = (".h5", ".hdf5", ".json", ".json.gz", ".spool")

# Argument -> the suffixes of the files it is about; none: any file.
_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("files", "file", "file_a", "file_b", "merge", "baseline", "candidate"), PROFILES),
    **dict.fromkeys(("spool", "target"), (".spool",)),
    "inputs": (".spt", ".sps", ".h5"),
    **dict.fromkeys(("config", "against"), (".toml",)),
    "manifest": (".yaml", ".yml"),
    "reports": (".html", ".htm"),
}
# What names a file or directory in a usage line.
_FILE_WORDS = frozenset(("FILE", "PATH", "DIR", "OUT", "OUT.html", "PROFILE", "SPOOL", "INPUT", "MANIFEST"))


class Candidates:
    """What could stand next: words with descriptions, and names of files with one of these suffixes (``()``: any; None: none)."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.suffixes: tuple[str, ...] | None = None

    def add(self, words: Iterable[str] | Mapping[str, str]) -> None:
        """Words that may stand there, with descriptions if it is a mapping."""
        self.words.update(words if isinstance(words, Mapping) else dict.fromkeys(words, ""))

    def add_files(self, suffixes: Iterable[str]) -> None:
        """Files may stand there too."""
        self.suffixes = tuple(suffixes)

    def lines(self, current: str) -> list[str]:
        """The answer for a word that begins with ``current``."""
        found = [
            f"{word}\t{' '.join(text.split())}" if text else word for word, text in self.words.items() if word.startswith(current)
        ]
        return found if self.suffixes is None else [*found, " ".join((":files", *self.suffixes))]


def candidates(words: Sequence[str], current: str) -> Candidates:
    """What could stand in the place of ``current``, after ``words`` (without the program's name)."""
    found = Candidates()
    if not words:
        found.add({name: summary for name, (_, summary) in COMMANDS.items() if " " not in name})
        if current.startswith("-"):
            found.add(OPTIONS)
        return found
    name, rest = _command(words)
    if name is None:
        return found
    if not rest and name == words[0]:
        found.add({two.split()[1]: summary for two, (_, summary) in COMMANDS.items() if two.startswith(f"{name} ")})
    from importlib import import_module

    from scope_profiler.cli.arguments import build_parser

    module_name, summary = COMMANDS[name]
    command = import_module(module_name)
    if name == "run" and _is_program(command, rest, found):
        return found
    first = getattr(command, "first_words", None)
    if first is not None:
        if not rest:
            found.add(first())
        elif rest[0] in first():
            rest = rest[1:]
    _Line(build_parser(f"{PROGRAM} {name}", summary, command), getattr(command, "VALUES", {})).complete(rest, current, found)
    return found


def _command(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    if " ".join(words[:2]) in COMMANDS:
        return " ".join(words[:2]), words[2:]
    return (words[0], words[1:]) if words[0] in COMMANDS else (None, [])


def _is_program(command: ModuleType, words: Sequence[str], found: Candidates) -> bool:
    """Whether the word belongs to the program that is run; then it may be any file, unless it is the name of a module."""
    _, program = command.split_arguments(words)
    if program and program != ["-m"]:
        found.add_files(())
    elif not program and (not words or words[-1] not in command._VALUED):
        found.add_files((".py", ".pyz"))
        return False
    return bool(program)


class _Line:
    """A parser, and how far a line has got in it."""

    def __init__(self, parser: argparse.ArgumentParser, values: Mapping[str, Any]) -> None:
        self._values = values
        self._options = {text: action for action in parser._actions for text in action.option_strings}
        self._places = [action for action in parser._actions if not action.option_strings]
        self._open: argparse.Action | None = None  # the option whose values come
        self._taken = 0  # values that it has
        self._positionals = 0
        self._ended = False  # "--" was there
        self._given: set[argparse.Action] = set()

    def complete(self, words: Sequence[str], current: str, found: Candidates) -> None:
        """Walk over the words, and add what could follow."""
        for word in words:
            self._take(word)
        option, equals, _ = current.partition("=")
        if equals and option in self._options and not self._ended:
            values = Candidates()
            self._add_values(self._options[option], values)
            found.add({f"{option}={word}": text for word, text in values.words.items()})
            found.suffixes = values.suffixes
            return
        least, most = _arity(self._open)
        if self._open is not None and self._taken < most:
            self._add_values(self._open, found)
            if self._taken < least:
                return
        if current.startswith("-") and not self._ended:
            self._add_options(found)
            return
        place = self._place()
        if place is not None:
            self._add_values(place, found)
        elif not found.words and found.suffixes is None and not current and not self._ended:
            self._add_options(found)

    def _take(self, word: str) -> None:
        least, most = _arity(self._open)
        if self._open is not None and self._taken < most and (self._taken < least or not word.startswith("-")):
            self._taken += 1
            return
        if self._ended or not word.startswith("-") or word == "-":
            self._open = None
            self._positionals += 1
            return
        self._open, self._taken = None, 0
        if word == "--":
            self._ended = True
            return
        option, equals, _ = word.partition("=")
        action = self._options.get(option)
        if action is None and not word.startswith("--"):  # -oFILE
            action, equals = self._options.get(word[:2]), "="
        if action is not None:
            self._given.add(action)
            self._open = None if equals else action

    def _place(self) -> argparse.Action | None:
        """The positional argument whose turn it is."""
        number = self._positionals
        for action in self._places:
            most = _arity(action)[1]
            if number < most:
                return action
            number -= most
        return None

    def _add_options(self, found: Candidates) -> None:
        for text, action in self._options.items():
            repeats = isinstance(action, argparse._AppendAction)
            if action.help != argparse.SUPPRESS and (repeats or action not in self._given) and text.startswith("--"):
                found.add({text: (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")})

    def _add_values(self, action: argparse.Action, found: Candidates) -> None:
        values = self._values.get(action.dest, action.choices)
        if values is not None:
            found.add(values if isinstance(values, Mapping) else [str(value) for value in values])
        elif action.dest in _FILES or action.metavar in _FILE_WORDS:
            found.add_files(_FILES.get(action.dest, ()))


def _arity(action: argparse.Action | None) -> tuple[int, int]:
    """How many values an argument takes, at least and at most."""
    many = 1 << 30
    if action is None:
        return 0, 0
    if isinstance(action.nargs, int):
        return action.nargs, action.nargs
    return {None: (1, 1), "?": (0, 1), "*": (0, many), "+": (1, many)}.get(action.nargs, (0, many))
