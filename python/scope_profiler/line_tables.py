"""Line profiles as text: one table a region and function, with the source between its counted lines."""

from __future__ import annotations

import re
import sys

from .cli.terminal import Column, printable, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TextIO

    Record = Mapping[str, Any]

__all__ = ["line_profile_lines", "print_line_profile", "select_records"]

_COLUMNS = (
    Column("line", number=True),
    Column("hits", number=True),
    Column("time [s]", number=True),
    Column("per hit [s]", number=True),
    Column("% time", number=True),
    Column("source"),
)


def select_records(
    by_rank: Mapping[int, Sequence[Record]],
    *,
    ranks: Iterable[int] | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    function: str | None = None,
    region: str | None = None,
) -> list[tuple[int, Record]]:
    """The records with their rank, ranks ascending.

    Parameters
    ----------
    by_rank
        As :attr:`ProfilingResults.line_profile` has them.
    ranks
        Only these; None: all.
    include, exclude
        Regular expressions; a region's name begins with one of the first, and with none of the second.
    function, region
        Regular expressions that are found anywhere in the function's and the region's name.

    Raises
    ------
    re.error
        A text is no regular expression.
    """
    wanted = None if ranks is None else set(ranks)
    return [
        (rank, record)
        for rank, records in sorted(by_rank.items())
        if wanted is None or rank in wanted
        for record in records
        if _begins(record["region"], include, default=True)
        and not _begins(record["region"], exclude, default=False)
        and (function is None or re.search(function, record["function"]))
        and (region is None or re.search(region, record["region"]))
    ]


def _begins(name: str, patterns: Sequence[str] | None, *, default: bool) -> bool:
    return default if not patterns else any(re.match(pattern, name) for pattern in patterns)


def line_profile_lines(records: Iterable[tuple[int, Record]], width: int | None = None) -> Iterator[str]:
    """The lines of text of records with their ranks; ``width``: columns of the terminal, None for any number."""
    for rank, record in records:
        yield ""
        yield printable(
            f"Rank {rank} | {record['region']} | {record['function']} ({record['filename']}:{int(record['first_lineno'])})"
        )
        yield from table(_COLUMNS, list(_rows(record)), width)


def _rows(record: Record) -> Iterator[list[str]]:
    lines, hits, times = (record[name].tolist() for name in ("line_numbers", "hits", "times"))
    counted = dict(zip(lines, zip(hits, times, strict=True), strict=True))
    unit, total = float(record["unit"]), float(sum(times))
    source = _source(record, lines)
    indent = min((len(text) - len(text.lstrip()) for text in source.values() if text.strip()), default=0)
    for line in range(min(lines, default=0), max(lines, default=-1) + 1):
        text = source.get(line, "")[indent:]
        if line not in counted:
            if source:
                yield [str(line), "", "", "", "", text]
            continue
        count, time = counted[line]
        seconds = time * unit
        yield [
            str(line),
            str(int(count)),
            f"{seconds:.6g}",
            f"{seconds / count:.6g}" if count else "",
            f"{100 * time / total:.2f}" if total else "",
            text if source else "<source unavailable>",
        ]


def _source(record: Record, lines: Sequence[int]) -> dict[int, str]:
    """The text of each counted line and of those between: as it was stored, else from the file."""
    stored = record.get("source")
    if stored:
        first = int(record.get("source_first_lineno", record["first_lineno"]))
        texts = dict(enumerate(str(stored).split("\n"), first))
    else:
        import linecache

        linecache.checkcache(str(record["filename"]))
        texts = {line: linecache.getline(str(record["filename"]), line).rstrip("\r\n") for line in range(min(lines, default=0), max(lines, default=-1) + 1)}
        if not any(texts.values()):
            return {}
    return {line: text.rstrip().expandtabs(4) for line, text in texts.items()}


def print_line_profile(by_rank: Mapping[int, Sequence[Record]], stream: TextIO | None = None) -> None:
    """Print all records of ``by_rank`` to ``stream`` (default: standard output)."""
    from .summary import _write

    _write(sys.stdout if stream is None else stream, list(line_profile_lines(select_records(by_rank))))
