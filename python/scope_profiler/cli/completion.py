"""``scope-profiler completion SHELL``: the script by which a shell completes command lines."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from scope_profiler.cli import CommandError

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = "Print the script by which a shell completes the commands, options, values and files of scope-profiler."
EPILOG = """\
how to use it:
  bash   eval "$(scope-profiler completion bash)" in ~/.bashrc, or the output in
         ~/.local/share/bash-completion/completions/scope-profiler
  zsh    the output in a file _scope-profiler in a directory of $fpath, or after compinit in ~/.zshrc:
         eval "$(scope-profiler completion zsh)"
  fish   scope-profiler completion fish > ~/.config/fish/completions/scope-profiler.fish
Where the package is installed in a place that the shell looks into, nothing is needed."""

SCRIPTS = {"bash": "scope-profiler.bash", "zsh": "_scope-profiler", "fish": "scope-profiler.fish"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="which shell (default: the one of $SHELL)")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the script. 0."""
    shell = arguments.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SCRIPTS:
        raise CommandError(f"which shell? {', '.join(SCRIPTS)} are known{f', not {shell}' if shell else ''}")
    script = Path(__file__).with_name("completions") / SCRIPTS[shell]
    output.text(script.read_text(encoding="utf-8"))
    return 0
