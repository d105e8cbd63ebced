"""Text for a terminal: lines that cannot harm it, tables that fit it, progress that stays off everything else."""

from __future__ import annotations

import codecs
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `--version` is to be quick: typing and its like are not needed to run
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

__all__ = ["Column", "Output", "Progress", "count_of", "cut", "display_width", "one_line",
    "printable", "reason_of", "table"]

# Characters that format text (category Cf) and may stay: they join or split letters and emoji, and move nothing.
_HARMLESS_FORMAT = frozenset("\u00ad\u200c\u200d\ufeff")

# What an encoding without line drawing gets instead.
_PLAIN = str.maketrans("╭╮╰╯├┤┬┴┼─│└…↻×", "+++++++++-|`~@x")


def _escape(character: str) -> str:
    if character.isprintable() or character in _HARMLESS_FORMAT:
        return character
    import unicodedata

    # Controls, format characters (the direction overrides are among them), surrogates, line separators. Unassigned and private
    # ones and the odd spaces are not printable for Python but do no harm.
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable(text: object) -> str:
    """``str(text)`` with every character that could move the cursor, colour the screen or hide text written as an escape.

    A region, task or file is named by whoever made the profile; its name must not be able to drive the reader's terminal.
    """
    string = str(text)
    if string.isprintable():
        return string
    return "".join(map(_escape, string))


def one_line(error: object) -> str:
    """An error's message as one printable line."""
    return printable(" ".join(str(error).split()) or type(error).__name__)


def reason_of(error: BaseException, path: str | None = None) -> str:
    """Why something failed, as one line that names the file once: ``path``, or the one that an OSError is about."""
    text: object = error
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
        path = path if path is not None or error.filename is None else os.fsdecode(error.filename)
    line = one_line(text)
    return line if path is None or path in line else one_line(f"{path}: {line}")


def count_of(number: int, one: str, several: str | None = None) -> str:
    """``number`` and what it counts: "1 call", "2 calls"; ``several`` where an s does not do."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def display_width(text: str) -> int:
    """Columns that ``text`` takes: 2 for wide characters, 0 for combining and format ones."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    columns = 0
    for character in text:
        if category(character) in ("Mn", "Me", "Cf"):
            continue
        columns += 2 if east_asian_width(character) in ("W", "F") else 1
    return columns


def _head(text: str, columns: int) -> str:
    """The longest beginning of ``text`` that fits in ``columns``."""
    if text.isascii():
        return text[:columns]
    used = 0
    for position, character in enumerate(text):
        used += display_width(character)
        if used > columns:
            return text[:position]
    return text


def cut(text: str, columns: int, *, middle: bool = False) -> str:
    """``text`` in at most ``columns`` columns; "…" stands for what is left out, at the end or in the middle."""
    if display_width(text) <= columns:
        return text
    if columns <= 1:
        return "…"[:columns]
    if not middle or columns < 8:
        return _head(text, columns - 1) + "…"
    tail = (columns - 1) // 2
    return _head(text, columns - 1 - tail) + "…" + _head(text[::-1], tail)[::-1]


def _cut_box(text: str, columns: int) -> str:
    """The same for a line of a box, which keeps its right edge."""
    if text[-1:] not in ("│", "╮", "╯", "┤") or display_width(text) <= columns:
        return cut(text, columns)
    return _head(text, columns - 2) + ("…" if text[-1] == "│" else "─") + text[-1]


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else c.encode("unicode_escape").decode("ascii") for c in text), error.end


codecs.register_error("scope_profiler.plain", _replace_unencodable)


class Output:
    """Where a command prints: standard output, unless it is given another stream.

    A reader that goes away (``| head``) ends the output, not the command: what follows is dropped and the exit code stays what
    the command found out. An encoding that lacks a character gets an ASCII form of it. On a terminal, lines are cut to its
    width; anywhere else they are whole.
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        self._stream: TextIO | None = sys.stdout if stream is None else stream
        self._prepared = stream is not None
        self.width = width
        if width is None and self._stream is not None and _is_terminal(self._stream):
            self.width = max(_terminal_width(self._stream), 20)

    @property
    def closed(self) -> bool:
        """Whether nobody reads any more."""
        return self._stream is None

    def line(self, text: str = "") -> None:
        """Print one line. Control characters in it are escaped.

        Raises OSError if the stream cannot be written for another reason than a reader that went away.
        """
        if self._stream is None:
            return
        if not self._prepared:
            self._prepare(self._stream)
        text = printable(text)
        if self.width is not None:
            text = _cut_box(text, self.width)
        self._write(text + "\n")

    def text(self, text: str) -> None:
        """Print ``text``, which is the program's own, as it is."""
        self.flush()
        self._write(text)

    def json(self, document: object, indent: int | None = None) -> None:
        """Print ``document`` as JSON, whole and in ASCII whatever the terminal is."""
        import json

        self.flush()
        self._write(json.dumps(document, indent=indent) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Print each of ``texts`` as a line."""
        for text in texts:
            if self._stream is None:
                return
            self.line(text)

    def clear(self) -> None:
        """Empty the screen, if it is one."""
        if self._stream is not None and _is_terminal(self._stream):
            self._write("\x1b[H\x1b[2J")

    def flush(self) -> None:
        """Hand over what is buffered."""
        self._guard(lambda stream: stream.flush())

    def _prepare(self, stream: TextIO) -> None:
        """Only when something is printed: before that, standard output belongs to the program that `run` runs."""
        self._prepared = True
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            return
        try:
            "╭│─…×".encode(getattr(stream, "encoding", None) or "ascii")
        except (UnicodeError, LookupError):
            reconfigure(errors="scope_profiler.plain")

    def _write(self, text: str) -> None:
        self._guard(lambda stream: stream.write(text))

    def _guard(self, action: Callable[[TextIO], object]) -> None:
        if self._stream is None:
            return
        try:
            action(self._stream)
        except BrokenPipeError:
            discard(self._stream)
            self._stream = None
        except OSError:
            discard(self._stream)
            self._stream = None
            raise


def discard(stream: TextIO) -> None:
    """Let whatever is still buffered for ``stream`` go nowhere, so that the interpreter's last flush is silent."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stream without a descriptor
        pass


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _terminal_width(stream: TextIO) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class Column:
    """One column of a table: its title, whether it holds numbers, and whether it may be cut to make the table fit."""

    __slots__ = ("flexible", "number", "title")

    def __init__(self, title: str, *, number: bool = False, flexible: bool = False) -> None:
        self.title = title
        self.number = number
        self.flexible = flexible


NAME_WIDTH = 100  # names may have any length; a table shows their beginning and end


def shown_name(name: str) -> str:
    """A name as tables show it: printable, and of a long one the beginning and the end."""
    return cut(printable(name), NAME_WIDTH, middle=True)


_MARGIN = "  "
_GAP = "  "
_NARROWEST = 8


def _fit(columns: Sequence[Column], widths: list[int], available: int) -> None:
    """Narrow the flexible columns, the widest first, until the table fits or they are as narrow as they get."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - available
    while excess > 0:
        flexible = [i for i, column in enumerate(columns) if column.flexible and widths[i] > _NARROWEST]
        if not flexible:
            return
        widest = max(flexible, key=lambda i: widths[i])
        next_widest = max((widths[i] for i in flexible if i != widest), default=_NARROWEST)
        step = max(1, min(excess, widths[widest] - max(next_widest, _NARROWEST)))
        widths[widest] -= step
        excess -= step


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of a boxed table. ``rows`` hold texts; ``width`` is how many columns there are, None for any number."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [display_width(column.title) for column in columns]
    for row in cells:
        for i, cell in enumerate(row):
            widths[i] = max(widths[i], display_width(cell))
    if width is not None:
        _fit(columns, widths, width - len(_MARGIN) - 4)

    def text(row: Sequence[str]) -> str:
        parts = []
        for column, cell, size in zip(columns, row, widths, strict=True):
            shown = cut(cell, size, middle=column.flexible)
            padding = " " * (size - display_width(shown))
            parts.append(padding + shown if column.number else shown + padding)
        return f"{_MARGIN}│ {_GAP.join(parts)} │"

    rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1) + 2)
    body = [text(row) for row in cells]
    return [
        f"{_MARGIN}╭{rule}╮",
        text([column.title for column in columns]),
        f"{_MARGIN}├{rule}┤",
        *body,
        f"{_MARGIN}╰{rule}╯",
    ]


class Progress:
    """A context manager that says on stderr what takes long, if stderr is a terminal: nothing in the first half second, then one
    line that renews itself and is gone at the end."""

    DELAY = 0.5
    PERIOD = 0.1

    def __init__(self, text: str, stream: TextIO | None = None) -> None:
        self._text = printable(text)
        self._stream = sys.stderr if stream is None else stream
        from threading import Event, Thread

        self._done = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Progress:
        if self._stream is not None and _is_terminal(self._stream):
            from threading import Thread

            self._thread = Thread(target=self._tell, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def tell(self, text: str) -> None:
        """What takes long now."""
        self._text = printable(text)

    def _tell(self) -> None:
        import time

        begin = time.monotonic()
        if self._done.wait(self.DELAY):
            return
        width = _terminal_width(self._stream)
        try:
            while True:
                seconds = f" {time.monotonic() - begin:.1f} s"
                text = cut(self._text, width - len(seconds) - 1, middle=True)
                self._stream.write(f"\r{text}{seconds}\x1b[K")
                self._stream.flush()
                if self._done.wait(self.PERIOD):
                    break
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        except (OSError, ValueError, UnicodeError):  # no terminal any more: there is nobody to tell
            return
