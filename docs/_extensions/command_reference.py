"""Every command with its options, from the parsers that the command line uses."""

from __future__ import annotations

import argparse
from importlib import import_module

from plain_text import block, escaped, paragraphs

from scope_profiler.cli import COMMANDS, PROGRAM
from scope_profiler.cli.arguments import build_parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command."""
    module, summary = COMMANDS[name]
    return build_parser(f"{PROGRAM} {name}", summary, import_module(module))


def text() -> str:
    """A section for each command."""
    return "\n\n".join(_section(name) for name in COMMANDS)


def _section(name: str) -> str:
    parser = parser_of(name)
    formatter = argparse.HelpFormatter(parser.prog, width=100)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    usage = formatter.format_help().removeprefix("usage: ").rstrip()
    lines = [*paragraphs(parser.description or ""), ".. code-block:: none", ""]
    lines += [f"   {line}" for line in usage.splitlines()]
    lines += ["", f".. program:: {parser.prog}", ""]
    for group in parser._action_groups:
        for action in group._group_actions:
            lines += _option(parser, action)
    epilog = parser.epilog or ""
    lines += [".. code-block:: none", "", *(f"   {line}" for line in epilog.splitlines()), ""] if "\n" in epilog else paragraphs(epilog)
    return f"## {name}\n\n{block(lines)}"


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """An argument or option and what its help says, with the default in place."""
    value = parser._get_formatter()._format_args(action, action.dest.upper() if action.option_strings else action.dest)
    names = ", ".join(f"{name} {value}".rstrip() for name in action.option_strings) or value
    help_text = (action.help or "") % {"default": action.default, "prog": parser.prog} if action.help else ""
    if action.choices and not action.metavar:
        help_text += f" (one of {', '.join(map(str, action.choices))})"
    kind = "option" if action.option_strings else "describe"
    return [f".. {kind}:: {names}", "", f"   {escaped(help_text)}", ""]
