"""Flame graphs as SVG: a bar per call path, as wide as the time spent in it, above the bar of its caller."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from scope_profiler.cli.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Frame(Protocol):
        """One bar."""

        name: str
        total: int  # ns
        exclusive: int
        calls: int

        @property
        def parent(self) -> Frame | None: ...


__all__ = ["flamegraph"]

_BAR = 18
_MARGIN = 10
_CHARACTER = 6.8  # of the font below, in pixels
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")

_STYLE = (
    "text{font:11px monospace;fill:#1b1b1b;pointer-events:none}"
    "rect{stroke:#fff;stroke-width:.5}g.f:hover rect{stroke:#000;stroke-width:1}"
)


def flamegraph(frames: Sequence[Frame], title: str, *, width: int, threshold: float, scalable: bool) -> str:
    """The picture of frames, which come after their parents.

    threshold: frames of a smaller share of the whole are left out, with what is above them. scalable: fill what the picture is
    put into, and leave out the XML declaration, so that it can be part of an HTML page.
    """
    whole = sum(frame.total for frame in frames if frame.parent is None)
    places = _places(frames, whole, threshold)
    deepest = max((level for _, level, _ in places.values()), default=0)
    height = (deepest + 2) * _BAR + 2 * _MARGIN
    scale = (width - 2 * _MARGIN) / whole if whole else 0.0
    bars = [_bar(title, whole, 1, whole, whole, _MARGIN, height - _MARGIN - _BAR, width - 2 * _MARGIN, "#d9d9d9")]
    for frame in frames:
        if id(frame) in places:
            start, level, size = places[id(frame)]
            top = height - _MARGIN - (level + 2) * _BAR
            bars.append(
                _bar(frame.name, frame.total, frame.calls, frame.exclusive, whole, _MARGIN + start * scale, top, size * scale,
                     _color(frame.name))
            )  # fmt: skip
    extent = f'viewBox="0 0 {width} {height}"' if scalable else f'width="{width}" height="{height}"'
    prolog = "" if scalable else '<?xml version="1.0" encoding="UTF-8"?>\n'
    return (
        f'{prolog}<svg xmlns="http://www.w3.org/2000/svg" {extent} role="img">\n<title>{_text(printable(title))}</title>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(bars) + "\n</svg>\n"
    )


def _places(frames: Sequence[Frame], whole: int, threshold: float) -> dict[int, tuple[int, int, int]]:
    """(start, level, size) of the frames that are drawn, by identity; a caller's frames follow each other from its start."""
    places: dict[int, tuple[int, int, int]] = {}
    used: dict[int, int] = {}  # how much of a frame its callees have taken
    for frame in frames:
        parent = frame.parent
        if parent is not None and id(parent) not in places:
            continue
        start, level, _ = (0, -1, whole) if parent is None else places[id(parent)]
        key = 0 if parent is None else id(parent)
        begin = start + used.get(key, 0)
        used[key] = used.get(key, 0) + frame.total
        if whole and frame.total >= threshold * whole:
            places[id(frame)] = (begin, level + 1, frame.total)
    return places


def _bar(
    name: str, total: int, calls: int, exclusive: int, whole: int, left: float, top: float, width: float, color: str
) -> str:
    name = printable(name)
    share = 100 * total / whole if whole else 0.0
    own = f", own {exclusive / 1e9:.9g} s" if calls != 1 or exclusive != total else ""
    tip = f"{name}: {total / 1e9:.9g} s ({share:.2f}%), {calls} call{'' if calls == 1 else 's'}{own}"
    room = int((width - 6) / _CHARACTER)
    label = name if len(name) <= room else name[: room - 1] + "…" if room > 2 else ""
    text = f'<text x="{left + 3:.2f}" y="{top + 13:.2f}">{_text(label)}</text>' if label else ""
    return (
        f'<g class="f"><title>{_text(tip)}</title><rect x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" '
        f'height="{_BAR - 1}" rx="1" fill="{color}"/>{text}</g>'
    )


def _text(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return escape(_NOT_XML.sub("\ufffd", text))


def _color(name: str) -> str:
    """A warm colour, the same for the same name in every picture."""
    value = 0
    for character in name:
        value = (value * 131 + ord(character)) & 0xFFFFFF
    return f"rgb({205 + value % 50},{80 + value // 50 % 150},{value // 7500 % 55})"
