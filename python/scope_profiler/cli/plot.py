"""``scope-profiler plot KIND FILE...``: pictures of profiles."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from scope_profiler.cli import CommandError
from scope_profiler.cli.arguments import load_runs
from scope_profiler.cli.plot_kinds import (
    DESCRIBED,
    KINDS,
    PRESETS,
    SUFFIXES,
    add_kind_options,
    applicable,
    check_options,
    draw,
    kinds_of,
    tell_skipped,
    write_statistics,
)
from scope_profiler.cli.terminal import Output, printable

DESCRIPTION = (
    "Draw plots of profiles. KIND is a kind of plot or a preset; `scope-profiler plot list` names them. Without a KIND it is "
    "`default`. Pictures need matplotlib, or what --backend names."
)
USAGE = "scope-profiler plot [KIND] FILE... [-o OUT] [OPTIONS]\n       scope-profiler plot list"

_FILES = frozenset((".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp", ".html", ".htm", ".txt", ".dot", ".gv"))


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments without the kind, if they begin with one, and the kind."""
    if arguments and (arguments[0] in KINDS or arguments[0] in PRESETS):
        return list(arguments[1:]), arguments[0]
    return list(arguments), None


def first_words() -> Mapping[str, str]:
    """What may stand before the files."""
    return {**DESCRIBED, "list": "name the kinds and presets"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="profiles, or globs of them")
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="directory to write KIND_plot.png and region_statistics.json to (default: here); for a single kind also a file",
    )  # fmt: skip
    parser.add_argument("--show", action="store_true", help="show the plots too")
    parser.add_argument(
        "--backend", choices=tuple(SUFFIXES), default="matplotlib",
        help="what draws: matplotlib (default), plotly (interactive pages), pyvis (call graphs), plotext (text)",
    )  # fmt: skip
    parser.add_argument("--cmap", metavar="NAME", help="colormap of matplotlib, instead of colours for every colour vision")
    add_kind_options(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Draw the plots. 0."""
    word = getattr(arguments, "program", None)
    if word is None:
        if arguments.files == ["list"]:
            _print_list(output)
            return 0
        if len(arguments.files) > 1 and arguments.files[0].isidentifier() and not os.path.lexists(arguments.files[0]):
            kinds_of([arguments.files[0]])  # tells that there is no such plot
        word = "default"
    kinds = kinds_of([word])
    check_options(arguments, kinds)
    target = arguments.output or "."
    single = _is_file(target, word)
    runs = load_runs(arguments)
    skipped: Mapping[str, str] = {}
    if word in PRESETS:
        kinds, skipped = applicable(kinds, runs)
    suffix = SUFFIXES[arguments.backend]
    failed: dict[str, str] = {}
    for kind in kinds:
        path = target if single else os.path.join(target, f"{kind}_plot{suffix}")
        try:
            said, written = draw(
                kind, runs, arguments, filepath=path, show=arguments.show, cmap=arguments.cmap, backend=arguments.backend
            )
        except CommandError as error:
            if word in KINDS:
                raise
            failed[kind] = str(error)
            continue
        output.lines(said)
        output.lines(f"  wrote {printable(name)}" for name in (written if isinstance(written, list) else [path]))
    tell_skipped(output, failed, skipped, drawn=len(kinds) > len(failed))
    if not single:
        path = os.path.join(target, "region_statistics.json")
        write_statistics(path, runs, arguments)
        output.line(f"wrote {printable(path)}")
    return 0


def _is_file(target: str, word: str) -> bool:
    """Whether -o names a file, which a single kind may have; CommandError for a name that is neither a picture nor a directory."""
    suffix = os.path.splitext(target)[1].lower()
    if os.path.isdir(target) or target.endswith(os.sep) or not suffix:
        return False
    if word not in KINDS:
        raise CommandError(f"{target}: {word} is several plots, for which -o is a directory (with {os.sep} at its end, if it is new)")
    if suffix not in _FILES:
        raise CommandError(
            f"{target}: a plot is not written as {suffix}, but as {', '.join(sorted(_FILES))} (a new directory has {os.sep} at its end)"
        )
    return True


def _print_list(output: Output) -> None:
    width = max(map(len, (*KINDS, *PRESETS)))
    output.lines(["kinds:", *(f"  {kind:<{width}}  {words}" for kind, (_, words) in KINDS.items()), "", "presets:"])
    output.lines(f"  {name:<{width}}  {DESCRIBED[name]}" for name in PRESETS)
