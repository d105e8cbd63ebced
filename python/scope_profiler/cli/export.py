"""``scope-profiler export FILE... --to FORMAT``: profiles as files for viewers and other tools."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import add_label, add_selection, did_you_mean, load_runs, merge_ranks, require_match
from scope_profiler.cli.terminal import Output, one_line, printable

DESCRIPTION = (
    "Write profiles for viewers and other tools. The format is what --to says, or the first word, or what the suffix of OUT "
    "tells. `scope-profiler export plot-data` writes the numbers behind plots."
)
USAGE = (
    "scope-profiler export FILE... --to FORMAT [-o OUT] [OPTIONS]\n"
    "       scope-profiler export FORMAT FILE... [-o DIR] [OPTIONS]"
)


@dataclass(frozen=True)
class Format:
    """One format: who writes it, what its file is called in a directory, and the options that it takes."""

    function: str
    file: str
    what: str
    options: tuple[str, ...] = ()
    compressible: bool = True


FORMATS: Mapping[str, Format] = {
    "speedscope": Format("export_speedscope", "profile.speedscope.json", "https://www.speedscope.app"),
    "perfetto": Format("export_perfetto", "profile.pftrace", "https://ui.perfetto.dev, with threads, tasks and flows"),
    "chrome-trace": Format("export_chrome_trace", "profile.trace.json", "the same as JSON, also for chrome://tracing"),
    "prof": Format("export_prof", "profile.prof", "pstats and snakeviz", ("call_paths",), compressible=False),
    "folded": Format("export_folded", "profile.folded", "folded stacks, for flamegraph.pl and inferno", ("by_lane",)),
    "flamegraph": Format(
        "export_flamegraph_svg", "flamegraph.svg", "a flame graph as SVG", ("call_paths", "width", "threshold", "scalable")
    ),
    "csv": Format("export_csv", "profile.csv", "a line per call"),
    "parquet": Format("export_parquet", "profile.parquet", "a row per call; needs pyarrow", compressible=False),
    "json": Format("export_json", "profile.json", "the whole profile as JSON, which can be read back", ("indent",)),
}
EPILOG = "formats:\n" + "\n".join(f"  {name:<13} {one.what}" for name, one in FORMATS.items())

# Option -> the parameter that it sets.
_OPTIONS = {
    "--no-call-paths": "call_paths",
    "--by-lane": "by_lane",
    "--width": "width",
    "--threshold": "threshold",
    "--fixed-width": "scalable",
    "--indent": "indent",
}


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments without the format, if they begin with one, and the format."""
    if arguments and arguments[0] in FORMATS and not os.path.isfile(arguments[0]):
        return list(arguments[1:]), arguments[0]
    return list(arguments), None


VALUES = {"to": {name: one.what for name, one in FORMATS.items()}}  # for completion


def first_words() -> Mapping[str, str]:
    """What may stand before the files."""
    return VALUES["to"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles, or globs of them")
    parser.add_argument("--to", metavar="FORMAT", help="the format, see below")
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="file or directory to write to (default: here); a directory when the format is the first word",
    )  # fmt: skip
    add_label(parser)
    add_selection(parser)
    parser.add_argument("--gzip", action="store_true", help="compress, and append .gz to the name")
    # Options of some formats; None: not given.
    parser.add_argument(
        "--no-call-paths", dest="call_paths", action="store_const", const=False,
        help="prof, flamegraph: one entry per region, not per call path",
    )  # fmt: skip
    parser.add_argument(
        "--by-lane", action="store_const", const=True, help="folded: threads and tasks apart, each below a frame of its own"
    )
    parser.add_argument("--width", type=_pixels, metavar="PX", help="flamegraph: width (default: 1200)")
    parser.add_argument(
        "--threshold", type=_share, metavar="PERCENT", help="flamegraph: leave out smaller shares of the time (default: 0.1%%)"
    )
    parser.add_argument(
        "--fixed-width", dest="scalable", action="store_const", const=False,
        help="flamegraph: of fixed size, not one that fills what it is put into",
    )  # fmt: skip
    parser.add_argument("--indent", type=_spaces, metavar="N", help="json: indent by N spaces (default: one line)")


def _number(text: str, kind: Callable[[str], Any], least: float, what: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _pixels(text: str) -> int:
    return int(_number(text, int, 1, "a number of pixels"))


def _spaces(text: str) -> int:
    return int(_number(text, int, 0, "a number of spaces"))


def _share(text: str) -> float:
    return float(_number(text.removesuffix("%"), float, 0, "a percentage")) / 100


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the files. 0."""
    word: str | None = getattr(arguments, "program", None)
    if word is not None and arguments.to is not None:
        raise CommandError(f"the format is {word!r} by the first word, and {arguments.to!r} by --to")
    name = word or arguments.to or format_of(arguments.output)
    if name not in FORMATS:
        raise CommandError(f"there is no format {name!r}{did_you_mean(name, FORMATS)} (formats: {', '.join(FORMATS)})")
    target = _target(name, arguments, is_directory=word is not None)
    options = _options(name, arguments)
    runs = load_runs(arguments)
    require_match(runs, arguments)
    for path in _write(name, runs, target, arguments, options):
        output.line(f"wrote {printable(str(path))}")
    return 0


def format_of(output: str | None) -> str:
    """By the suffix of the output's name."""
    plain = (output or "").removesuffix(".gz")
    for name, one in FORMATS.items():
        if "." + one.file.partition(".")[2] == "".join(Path(plain).suffixes[-one.file.count(".") :]):
            return name
    raise CommandError(f"which format? --to FORMAT says it: {', '.join(FORMATS)}")


def _target(name: str, arguments: argparse.Namespace, *, is_directory: bool) -> Path:
    form, path = FORMATS[name], arguments.output or "."
    if is_directory or os.path.isdir(path) or path.endswith(os.sep):
        path = os.path.join(path, form.file)
    if (arguments.gzip or path.endswith(".gz")) and not form.compressible:
        raise CommandError(f"files of the format {name} are not compressed: nothing would read them")
    if arguments.gzip and not path.endswith(".gz"):
        path = ("" if Path(path).suffix else os.path.splitext(form.file)[1]).join((path, ".gz"))
    return Path(path)


def _options(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    given = {place: getattr(arguments, place) for place in _OPTIONS.values() if getattr(arguments, place) is not None}
    for option, place in _OPTIONS.items():
        if place in given and place not in FORMATS[name].options:
            takers = [other for other, form in FORMATS.items() if place in form.options]
            raise CommandError(f"{option} is for {', '.join(takers)}, not for {name}")
    return given


def _write(
    name: str, runs: Sequence[Any], target: Path, arguments: argparse.Namespace, options: Mapping[str, Any]
) -> list[Path]:
    import scope_profiler

    export = getattr(scope_profiler, FORMATS[name].function)
    ranks = merge_ranks(arguments.ranks)
    several = runs if len(runs) > 1 else runs[0]
    try:
        paths: list[Path] = export(
            several, target, ranks=ranks, include=arguments.include, exclude=arguments.exclude, verbose=False, **options
        )
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror or one_line(error)}") from None
    except (ValueError, RuntimeError, ImportError) as error:
        raise CommandError(f"{', '.join(str(run.file_path) for run in runs)}: {one_line(error)}") from None
    return paths
