"""Read what ``marshal`` wrote, as far as statistics go: numbers, texts, tuples and dictionaries.

``marshal.load`` is not for files of others: damaged data can crash the interpreter, and a few bytes can ask for any amount of
memory. This reader makes no objects but these, none that is larger than what is left of the file, and no deep nesting.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["loads"]

_DEEPEST = 20  # statistics nest four deep
_KEPT = 0x80  # a flag of the type: later references mean this object
_CONSTANTS: dict[str, Any] = {"N": None, "T": True, "F": False}
_TEXTS = {"u": ("I", "utf-8"), "t": ("I", "utf-8"), "a": ("I", "ascii"), "A": ("I", "ascii"), "z": ("B", "ascii"), "Z": ("B", "ascii")}  # fmt: skip
_END = object()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.kept: list[Any] = []

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.at:
            raise ValueError("the data end too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> int:
        (value,) = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        return int(value)

    def value(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("the data are nested too deeply")
        byte = self.number("B")
        code = chr(byte & ~_KEPT)
        if code == "r":
            index = self.number("I")
            if index >= len(self.kept) or self.kept[index] is _END:
                raise ValueError("the data refer to what is not there")
            return self.kept[index]
        place = len(self.kept)
        if byte & _KEPT and code not in _CONSTANTS:
            self.kept.append(_END)  # what is inside comes after it
        value = self.plain(code, depth)
        if place < len(self.kept) and byte & _KEPT:
            self.kept[place] = value
        return value

    def plain(self, code: str, depth: int) -> Any:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code == "0":
            return _END
        if code == "i":
            return self.number("i")
        if code == "l":
            return self.long()
        if code == "g":
            return struct.unpack("<d", self.take(8))[0]
        if code in _TEXTS:
            size, encoding = _TEXTS[code]
            return self.take(self.number(size)).decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        if code in "()":
            return self.items(self.number("I" if code == "(" else "B"), depth)
        if code == "{":
            return self.dictionary(depth)
        raise ValueError(f"the data hold something of type {code!r}")

    def long(self) -> int:
        """15 bits a digit; the sign is that of the number of digits."""
        count = self.number("i")
        digits = self.take(2 * abs(count))
        value: int = sum(digit << 15 * place for place, (digit,) in enumerate(struct.iter_unpack("<H", digits)))
        return value if count > 0 else -value

    def items(self, count: int, depth: int) -> tuple[Any, ...]:
        if count > len(self.data) - self.at:  # each takes a byte or more
            raise ValueError("the data end too early")
        return tuple([self.value(depth + 1) for _ in range(count)])

    def dictionary(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while (key := self.value(depth + 1)) is not _END:
            found[key] = self.value(depth + 1)
        return found


def loads(data: bytes) -> Any:
    """The object. ValueError for data that are damaged, or that hold anything but the types above."""
    try:
        return _Reader(data).value()
    except (TypeError, OverflowError) as error:  # a dictionary as a key; a number beyond what a float holds
        raise ValueError(str(error)) from None
