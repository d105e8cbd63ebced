"""The text that goes to a terminal: harmless, of the right width, in an encoding it can have."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
import threading
import time

import pytest

from scope_profiler.cli.terminal import Column, Output, Progress, cut, display_width, one_line, printable, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("żółć 🚀", "żółć 🚀"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2028\u2066", "\\u2028\\u2066"),
        ("\udc80", "\\udc80"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_printable_escapes_what_could_drive_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_of_an_error() -> None:
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("🚀x", 3), ("", 0), ("a\u200db", 2)]
)
def test_display_width(text: str, columns: int) -> None:
    assert display_width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "middle", "expected"),
    [
        ("abcdef", 6, False, "abcdef"),
        ("abcdefg", 6, False, "abcde…"),
        ("abcdefghijklmnop", 9, True, "abcd…mnop"),
        ("日本語", 5, False, "日本…"),
        ("日本語", 4, False, "日…"),
        ("abc", 1, False, "…"),
        ("abc", 0, False, ""),
    ],
)
def test_cut(text: str, columns: int, middle: bool, expected: str) -> None:
    assert cut(text, columns, middle=middle) == expected
    assert display_width(cut(text, columns, middle=middle)) <= columns


COLUMNS = [Column("name", flexible=True), Column("calls", number=True)]


def test_table_aligns_numbers_to_the_right_and_text_to_the_left() -> None:
    assert table(COLUMNS, [["a", "1"], ["long name", "12345"]]) == [
        "  ╭──────────────────╮",
        "  │ name       calls │",
        "  ├──────────────────┤",
        "  │ a              1 │",
        "  │ long name  12345 │",
        "  ╰──────────────────╯",
    ]


def test_table_gives_up_names_before_numbers_when_it_must_be_narrow() -> None:
    lines = table(COLUMNS, [["x" * 100, "12345"], ["日" * 60, "1"]], width=40)
    assert {display_width(line) for line in lines} == {40}
    assert "12345" in lines[3] and "…" in lines[3] and "…" in lines[4]


def test_output_cuts_to_the_width_and_keeps_the_edge_of_a_box() -> None:
    stream = io.StringIO()
    output = Output(stream, width=10)
    output.lines(["0123456789abc", "│ 0123456789abc │", "╭───────────────╮", "short"])
    assert stream.getvalue().splitlines() == ["012345678…", "│ 012345…│", "╭────────╮", "short"]


def test_output_is_whole_when_it_is_no_terminal() -> None:
    stream = io.StringIO()
    Output(stream).line("x" * 1000)
    assert stream.getvalue() == "x" * 1000 + "\n"


class Gone(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_output_ends_quietly_when_the_reader_leaves() -> None:
    output = Output(Gone())
    output.lines(["a", "b"])
    output.flush()
    assert output.closed


def test_output_tells_when_it_cannot_be_written() -> None:
    with pytest.raises(OSError, match="No space"):
        Output(Full()).line("a")


def shown_on_a_terminal(seconds: float) -> str:
    """What Progress writes on a terminal while something takes that long."""
    leader, follower = pty.openpty()
    try:
        with os.fdopen(follower, "w", encoding="utf-8") as stream:
            with Progress("reading \x1b[2J.h5", stream):
                time.sleep(seconds)
            shown = b""
            while select.select([leader], [], [], 0.3)[0]:  # what was written arrives a little later
                shown += os.read(leader, 65536)
            return shown.decode()
    finally:
        os.close(leader)


def test_progress_is_silent_while_nothing_takes_long() -> None:
    assert shown_on_a_terminal(0.01) == ""


def test_progress_shows_a_line_that_renews_itself_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "DELAY", 0.02)
    monkeypatch.setattr(Progress, "PERIOD", 0.02)
    shown = shown_on_a_terminal(0.2)
    assert shown.count("reading \\x1b[2J.h5") >= 2
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")


def test_progress_writes_nothing_and_starts_no_thread_when_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "DELAY", 0.0)
    stream = io.StringIO()
    before = threading.active_count()
    with Progress("reading", stream):
        assert threading.active_count() == before
        time.sleep(0.02)
    assert stream.getvalue() == ""


def test_encodings_without_line_drawing_get_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output = Output()
    output.lines([*table([Column("żółć")], [["🚀"]]), "\udc80"])
    output.flush()
    assert raw.getvalue().startswith(b"  +------+\n  | ")
    assert b"\\u017c\\xf3" in raw.getvalue() and b"\\U0001f680" in raw.getvalue() and b"\\udc80" in raw.getvalue()
