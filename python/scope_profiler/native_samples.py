"""Samples that a native program took with a timer (``.sps``), and the source lines they fell on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from scope_profiler import _core
from scope_profiler._core import TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    import numpy as np

    StrPath: TypeAlias = str | os.PathLike[str]

__all__ = [
    "LineStat",
    "SAMPLES_SUFFIX",
    "SampleFile",
    "SampleFormatError",
    "SymbolizerError",
    "find_sample_files",
    "format_line_profile",
    "line_profile",
    "read_samples",
    "symbolize",
]

MAGIC = b"SCOPESMP"
#: What the names of files with samples end with.
SAMPLES_SUFFIX = ".sps"
NO_REGION = "(no region)"

#: A sample file that is damaged, or none.
SampleFormatError = TraceFormatError

_AT_ONCE = 4096  # addresses a run of addr2line gets


class SymbolizerError(RuntimeError):
    """No tool maps addresses to lines here, or it failed."""


class LineStat(NamedTuple):
    """How many samples of a region fell on one line. ``file`` is ``"?"`` and ``line`` 0 where the module does not tell."""

    file: str
    line: int
    function: str
    samples: int


class SampleFile(NamedTuple):
    """One rank's samples.

    ``hz`` is their rate and ``ticks`` how often the timer fired; ``regions`` are names, ``modules`` pairs of a path and the
    address it was loaded at. ``samples`` is a structured array: ``region`` (int32 index, -1: none), ``module`` (int32 index,
    -1: none), ``ip`` (uint64 address).
    """

    rank: int
    hz: int
    ticks: int
    regions: list[str]
    modules: list[tuple[str, int]]
    samples: np.ndarray


def read_samples(path: StrPath) -> SampleFile:
    """The samples in a ``.sps`` file. Raises SampleFormatError, a ValueError, or OSError."""
    import numpy as np

    rank, hz, ticks, regions, modules, raw = _core.read_samples(path)
    samples = np.frombuffer(raw, dtype=[("region", "=i4"), ("module", "=i4"), ("ip", "=u8")])
    return SampleFile(rank, hz, ticks, regions, modules, samples)


def find_sample_files(inputs: StrPath | Iterable[StrPath]) -> list[Path]:
    """Sample files from paths and directories, each once. FileNotFoundError for a path that is not there, and for a directory
    without any."""
    from pathlib import Path

    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    found: dict[Path, Path] = {}
    for path in map(Path, given):
        if path.is_dir():
            files = sorted(path.glob(f"*{SAMPLES_SUFFIX}"))
            if not files:
                raise FileNotFoundError(f"no sample files (*{SAMPLES_SUFFIX}) in {path}")
        elif path.exists():
            files = [path]
        else:
            raise FileNotFoundError(f"no such file or directory: {path}")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def line_profile(samples: SampleFile) -> dict[str, list[LineStat]]:
    """For every region that was sampled its lines, those with the most samples first.

    Samples outside of any region are under ``"(no region)"``. Raises SymbolizerError without a tool that maps addresses.
    """
    import numpy as np

    data = samples.samples
    keys, counts = np.unique(data, return_counts=True)
    places: dict[tuple[int, int], tuple[str, str, int]] = {}
    for number, (path, base) in enumerate(samples.modules):
        addresses = sorted({int(ip) for ip in keys["ip"][keys["module"] == number]})
        for address, place in zip(addresses, symbolize(path, base, addresses)):
            places[number, address] = place
    lines: dict[str, dict[tuple[str, str, int], int]] = {}
    sampled = sorted(zip(keys.tolist(), counts.tolist()), key=lambda item: (item[0][0] < 0, item[0]))
    for (region, module, ip), count in sampled:
        name = samples.regions[region] if region >= 0 else NO_REGION
        place = places.get((module, ip), ("?", "?", 0))
        of_region = lines.setdefault(name, {})
        of_region[place] = of_region.get(place, 0) + count
    return {
        name: [
            LineStat(file, line, function, count)
            for (function, file, line), count in sorted(of_region.items(), key=lambda item: (-item[1], item[0]))
        ]
        for name, of_region in lines.items()
    }


def symbolize(module: str, base: int, addresses: Sequence[int]) -> list[tuple[str, str, int]]:
    """``(function, file, line)`` of addresses in a module that was loaded at ``base``; ``("?", "?", 0)`` where it is not known.

    Asks ``addr2line`` or ``llvm-symbolizer``, whichever is found first; SymbolizerError without either.
    """
    if not addresses or not os.path.exists(module):
        return [("?", "?", 0)] * len(addresses)
    command = _symbolizer(module)
    result: list[tuple[str, str, int]] = []
    for first in range(0, len(addresses), _AT_ONCE):
        result += _ask(command, [address - base for address in addresses[first : first + _AT_ONCE]])
    return result


def _symbolizer(module: str) -> list[str]:
    from shutil import which

    # A path that begins with a dash would be an option.
    path = os.path.join(".", module) if module.startswith("-") else module
    for name, options in (("addr2line", ["-f", "-C", "-e"]), ("llvm-symbolizer", ["--output-style=GNU", "-f", "-C", "-e"])):
        tool = which(name)
        if tool:
            return [tool, *options, path]
    raise SymbolizerError("neither addr2line (binutils) nor llvm-symbolizer was found")


def _ask(command: Sequence[str], offsets: Sequence[int]) -> list[tuple[str, str, int]]:
    import subprocess

    given = "".join(f"0x{offset & 0xFFFFFFFFFFFFFFFF:x}\n" for offset in offsets)
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SymbolizerError(f"{command[0]}: {error}") from None
    answers = [line for line in done.stdout.splitlines() if line]
    if done.returncode != 0 or len(answers) < 2 * len(offsets):
        raise SymbolizerError(f"{command[0]} does not understand {command[-1]}: {done.stderr.strip() or 'no answer'}")
    return [(_known(answers[2 * i]), *_place(answers[2 * i + 1])) for i in range(len(offsets))]


def _known(text: str) -> str:
    return "?" if text.startswith("??") else text


def _place(text: str) -> tuple[str, int]:
    """``file:line``, to which tools add a discriminator in parentheses."""
    file, _, line = text.split(" (")[0].rpartition(":")
    return (_known(file), int(line)) if line.isdecimal() else (_known(file or text), 0)


def format_line_profile(profile: dict[str, list[LineStat]], top: int = 10, source: bool = True) -> str:
    """The lines of every region as text: ``top`` of each, and with ``source`` what is written there, where it can be read."""
    from scope_profiler.cli.terminal import printable

    blocks = []
    texts: dict[str, list[str]] = {}
    for name, stats in profile.items():
        total = sum(stat.samples for stat in stats)
        rows = [("line", "function", "samples", "% region", "source")]
        for stat in stats[:top]:
            place = f"{os.path.basename(stat.file)}:{stat.line}" if stat.line else os.path.basename(stat.file)
            text = _source_line(texts, stat) if source else ""
            rows.append((place, stat.function, str(stat.samples), f"{100 * stat.samples / total:.1f}%", text))
        blocks.append([f"{name}  ({total} sample{'' if total == 1 else 's'})", *_columns(rows, source)])
        if len(stats) > top:
            rest = sum(stat.samples for stat in stats[top:])
            blocks[-1].append(f"... and {len(stats) - top} more lines with {rest} samples")
    return "\n".join("\n".join(map(printable, block)) + "\n" for block in blocks)


def _columns(rows: list[tuple[str, str, str, str, str]], source: bool) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]), row[3].rjust(widths[3])]
        lines.append("  ".join([*cells, row[4]] if source else cells).rstrip())
        if number == 0:
            rules = [*("-" * width for width in widths), *(["------"] if source else [])]
            lines.append("  ".join(rules))
    return lines


def _source_line(texts: dict[str, list[str]], stat: LineStat) -> str:
    if not stat.line:
        return ""
    if stat.file not in texts:
        try:
            with open(stat.file, encoding="utf-8", errors="replace") as file:
                texts[stat.file] = file.read().splitlines()
        except OSError:
            texts[stat.file] = []
    lines = texts[stat.file]
    return lines[stat.line - 1].strip() if stat.line <= len(lines) else ""
