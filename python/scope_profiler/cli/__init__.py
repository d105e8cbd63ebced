"""The command line: ``scope-profiler COMMAND``, one module a command.

A command's module has ``SUMMARY`` (one line of help), ``add_arguments(parser)`` and ``execute(arguments, output) -> int``; it is
imported only when its command runs. Exit codes: 0, 1 for a negative answer, 2 for a usage error or a file that cannot be used,
which is told in one line on stderr. ``run`` passes on what the script exits with.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from scope_profiler.cli.terminal import Output

__all__ = ["CommandError", "main"]

PROGRAM = "scope-profiler"

# Command -> (module, one line of help). The line is here, so that the list of commands imports none of them.
COMMANDS = {
    "run": ("scope_profiler.cli.run", "run a Python program with its regions recorded"),
    "inspect": ("scope_profiler.cli.inspect", "print regions, threads, tasks and metadata of profiles"),
    "view": ("scope_profiler.cli.view", "show profiles in the browser: timeline, flame graph, tables"),
    "report": ("scope_profiler.cli.report", "write a page about profiles, or one that compares them"),
    "catalogue": ("scope_profiler.cli.catalogue", "write a page that lists reports"),
    "site": ("scope_profiler.cli.site", "write pages about many runs, for a site that Astro builds"),
    "diff": ("scope_profiler.cli.diff", "compare the regions of two profiles"),
    "check": ("scope_profiler.cli.check", "fail when a profile is slower than a baseline allows"),
    "benchmark": ("scope_profiler.cli.benchmark", "decide by repeated runs whether a change is faster"),
    "benchmark run": ("scope_profiler.cli.benchmark_run", "profile a script several times, as a TOML file says"),
    "benchmark compare": ("scope_profiler.cli.benchmark_compare", "decide from two benchmarks whether to keep the second"),
    "tui": ("scope_profiler.cli.tui", "browse a profile in the terminal"),
    "plot": ("scope_profiler.cli.plot", "draw plots: Gantt and flame charts, durations, call graphs, scaling"),
    "export": ("scope_profiler.cli.export", "write profiles for viewers and other tools: speedscope, Perfetto, .prof, CSV ..."),
    "export plot-data": ("scope_profiler.cli.plot_data", "write the numbers behind plots as CSV, JSON or Parquet"),
    "import-native": ("scope_profiler.cli.import_native", "write traces of C and Fortran programs as a profile"),
    "native-lines": ("scope_profiler.cli.native_lines", "print the source lines that native samples fell on"),
    "line-profile": ("scope_profiler.cli.line_profile", "print the lines that the functions of regions ran, with their times"),
    "top": ("scope_profiler.cli.top", "watch a running program: regions, threads and tasks"),
    "merge": ("scope_profiler.cli.merge", "put profiles of several processes on one timeline"),
    "recover": ("scope_profiler.cli.recover", "write the profile of a process that was killed"),
    "completion": ("scope_profiler.cli.completion", "print what a shell needs to complete these commands"),
}

# Options of the program itself.
OPTIONS = {
    "--help": "show the commands",
    "--version": "show the version",
    "--doctor": "try what works on this machine, and say how to get what is missing",
    "--includes": "show the compiler's options for C and C++ code with regions",
    "--libs": "show the linker's options for it",
    "--fortran": "show the source of the Fortran module",
}

ANSWER_NO = 1
USAGE_ERROR = 2
INTERRUPTED = 130

# Printed instead of running a command; several go together.
_BUILD_OPTIONS = ("--includes", "--libs", "--fortran")


class CommandError(Exception):
    """What stops a command: told in one line, exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code. ``argv`` are the arguments without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["--version"], ["-V"]):
        return _print_version()
    if arguments and all(argument in _BUILD_OPTIONS for argument in arguments):
        return _print_build_options(arguments)
    from scope_profiler.cli.terminal import Output, one_line

    output = Output()
    code = INTERRUPTED
    try:
        code = _dispatch(arguments, output)
        output.flush()
    except CommandError as error:
        code = USAGE_ERROR
        complain(f"{PROGRAM}: {one_line(error)}")
    except KeyboardInterrupt:
        complain(f"{PROGRAM}: interrupted")
    except MemoryError:
        code = USAGE_ERROR
        complain(f"{PROGRAM}: out of memory")
    except OSError as error:  # files that are read have their own handling: this is standard output
        code = USAGE_ERROR
        complain(f"{PROGRAM}: cannot write the output: {one_line(error.strerror or error)}")
    return code


def complain(line: str) -> None:
    """Write one line on stderr, whatever state stderr is in."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        pass


def _print_version() -> int:
    from scope_profiler import __version__
    from scope_profiler.cli.terminal import Output

    output = Output()
    output.line(f"{PROGRAM} {__version__}")
    output.flush()
    return 0


def _print_build_options(wanted: Sequence[str]) -> int:
    """What native code is compiled and linked with, in one line for a compiler's command."""
    from scope_profiler.cli.terminal import Output
    from scope_profiler.native_trace import c_include_dir, c_library_path, fortran_source_path

    output = Output()
    words: list[str] = []
    try:
        for option in wanted:
            if option == "--includes":
                words.append(f"-I{c_include_dir()}")
            elif option == "--fortran":
                words.append(str(fortran_source_path()))
            else:
                library = c_library_path()
                words += [f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", f"-l:{library.name}"]
    except FileNotFoundError as error:
        complain(f"{PROGRAM}: {error}")
        return USAGE_ERROR
    output.line(" ".join(words))
    output.flush()
    return 0


def _dispatch(arguments: list[str], output: Output) -> int:
    if not arguments:
        output.lines(_help())
        return ANSWER_NO
    if arguments[0] == "--doctor":
        from scope_profiler.cli.doctor import examine

        return examine(arguments[1:], output)
    if arguments[0] == "__complete":
        from scope_profiler.cli.complete import candidates

        *words, current = arguments[1:] or [""]
        output.text("".join(f"{line}\n" for line in candidates(words, current).lines(current)))
        return 0
    two_words = " ".join(arguments[:2]) in COMMANDS
    name, rest = (" ".join(arguments[:2]), arguments[2:]) if two_words else (arguments[0], arguments[1:])
    if name in ("-h", "--help", "help"):
        output.lines(_help())
        return 0
    if name not in COMMANDS:
        raise CommandError(_unknown_command(name))
    from importlib import import_module

    from scope_profiler.cli.arguments import build_parser

    module_name, summary = COMMANDS[name]
    command = import_module(module_name)
    prepare = getattr(command, "split_arguments", None)
    extra = None
    if prepare is not None:
        rest, extra = prepare(rest)
    parser = build_parser(f"{PROGRAM} {name}", summary, command)
    parsed = parser.parse(rest)
    if extra is not None:
        parsed.program = extra
    return int(command.execute(parsed, output))


def _help() -> list[str]:
    width = max(map(len, COMMANDS))
    return [
        f"usage: {PROGRAM} COMMAND [ARGUMENTS]",
        "",
        "Record and read profiles of regions, threads and tasks.",
        "",
        "commands:",
        *(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()),
        "",
        "options:",
        "  -h, --help     show this text",
        "  -V, --version  show the version",
        "  --doctor       try what works on this machine, and say how to get what is missing; with --json as JSON",
        "  --includes     show the compiler's options for C and C++ code with regions; --libs: the linker's;",
        "                 --fortran: the source of the Fortran module",
        "",
        f"`{PROGRAM} COMMAND --help` tells more about a command.",
    ]


def _unknown_command(name: str) -> str:
    from scope_profiler.cli.arguments import did_you_mean

    if name.startswith("-"):
        return f"unknown option {name!r}{did_you_mean(name, OPTIONS)}; see {PROGRAM} --help"
    return f"unknown command {name!r}{did_you_mean(name, COMMANDS) or _as_a_kind(name)}; see {PROGRAM} --help"


def _as_a_kind(name: str) -> str:
    """Where the name is of a plot or an export, the command that makes it."""
    from scope_profiler.cli.export import FORMATS
    from scope_profiler.cli.plot_kinds import KINDS

    for command, kinds in (("plot", KINDS), ("export", FORMATS)):
        if name in kinds:
            return f", did you mean '{command} {name}'?"
    return ""
