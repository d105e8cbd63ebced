"""``scope-profiler run app.py``: a Python program with its regions recorded."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import INTERRUPTED, PROGRAM, USAGE_ERROR, CommandError, complain
from scope_profiler.cli.terminal import Output, count_of, one_line, reason_of

if TYPE_CHECKING:
    from scope_profiler.recording import Recording

DESCRIPTION = (
    "Run a Python program as `python SCRIPT` would, with the regions that it marks recorded. Options come before the script; what "
    "comes after it is the script's. The profile is written when the program has ended, its threads and exit handlers included. "
    "The exit code is the program's."
)
USAGE = f"{PROGRAM} run [OPTIONS] SCRIPT [ARGUMENTS]\n       {PROGRAM} run [OPTIONS] -m MODULE [ARGUMENTS]"
DEFAULT_OUTPUT = "profiling_data.h5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command; the script and its arguments are cut off by split_arguments() before."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-o", "--outfile", metavar="FILE", help=f"profile to write (default: {DEFAULT_OUTPUT}): JSON as .json or .json.gz, a page as .html, HDF5 as anything else")
    where.add_argument("--no-output", action="store_true", help="write no file, only print the summary")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings (table [profiling])")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    parser.add_argument(
        "--track-threads", action="store_true", default=None, help="record threads, and on which one each call ran"
    )
    parser.add_argument(
        "--track-async", action="store_true", default=None, help="record asyncio tasks and greenlets too"
    )
    parser.add_argument("--label", metavar="TEXT", help="a short label, stored in the profile")
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="record only regions with this tag (may be repeated)"
    )
    parser.add_argument(
        "--enable-tag",
        action="append",
        metavar="TAG",
        help="record regions behind this opt-in tag; '*' is all (may be repeated)",
    )
    parser.add_argument("--buffer-limit", type=int, metavar="N", help="first capacity of the buffers, in calls")
    parser.add_argument(
        "--aggregation-mode",
        action="store_true",
        default=None,
        help="keep sums of each region instead of its calls: memory and file stay small, however long the program runs",
    )
    parser.add_argument(
        "--line-profile", action="store_true", default=None,
        help="count the lines of the script's functions too, and of those that regions are about (needs line_profiler)",
    )
    parser.add_argument(
        "--memory-profile", action="store_true", default=None,
        help="write a trace of all allocations beside the profile, FILE.memray.bin (needs memray)",
    )
    parser.add_argument(
        "--sample-hz", type=float, metavar="HZ",
        help="look at the stacks of all threads so often a second, to tell where the time outside of regions went (50 will do)",
    )
    recursive = parser.add_mutually_exclusive_group()
    recursive.add_argument(
        "--recursive", action="store_true", default=None, help="record each call of a Python function of the program"
    )
    recursive.add_argument(
        "--no-recursive", dest="recursive", action="store_false", help="do not, whatever the configuration says"
    )
    parser.add_argument(
        "--all", action="store_true", help="like --recursive, with the standard library and installed packages"
    )
    parser.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="of functions, only those whose module.name matches (may be repeated)",
    )
    parser.add_argument(
        "--exclude", action="append", metavar="GLOB", help="of functions, not those that match (may be repeated)"
    )
    parser.add_argument(
        "--entrypoint", metavar="NAME", help="the function of this name has a region of just this name"
    )
    calls = parser.add_mutually_exclusive_group()
    calls.add_argument(
        "--mpi-calls", action="store_true", default=None, help="record the MPI calls that the program makes with mpi4py"
    )
    calls.add_argument("--no-mpi-calls", dest="mpi_calls", action="store_false", help="do not record them (the default)")
    # For commands that need one file, whoever records: where the program has a run of its own, a copy of that.
    parser.add_argument("--copy-own-run", action="store_true", help=argparse.SUPPRESS)


# Options that take a value: what follows them is not the script.
_VALUED = frozenset(
    (
        "-o",
        "--outfile",
        "--config",
        "--label",
        "--tag",
        "--enable-tag",
        "--buffer-limit",
        "--sample-hz",
        "--include",
        "--exclude",
        "--entrypoint",
    )
)


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and from the first word that is none: the script (or ``-m``, module) with its arguments."""
    i = 0
    while i < len(arguments):
        word = arguments[i]
        if word == "--":
            return list(arguments[:i]), list(arguments[i + 1 :])
        if word.startswith("-m") and not word.startswith("--"):
            module = [word[2:]] if len(word) > 2 else []
            return list(arguments[:i]), ["-m", *module, *arguments[i + 1 :]]
        if not word.startswith("-") or word == "-":
            return list(arguments[:i]), list(arguments[i:])
        i += 2 if word in _VALUED else 1
    return list(arguments), []


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run the program. Its exit code; an exception that leaves it is shown as Python shows it."""
    if not arguments.program or arguments.program == ["-m"]:
        raise CommandError(f"no script to run (see {PROGRAM} run --help)")
    program = _find_module(arguments.program[1:]) if arguments.program[0] == "-m" else _find_script(arguments.program)
    recording = _Recording(arguments, output)
    recording.begin()
    return program.run(recording)


class _Recording:
    """The profile of the program: from setup() to the very end of the process."""

    def __init__(self, arguments: argparse.Namespace, output: Output) -> None:
        self._arguments = arguments
        self._output = output
        self._pid = os.getpid()
        self._recorded: Recording | None = None
        self._root: str | None = None  # the region that the whole program is in, if there is one
        self._calls_before: int | None = None  # once the program has begun a run of its own: calls to report beside that
        self.exit_code = 0

    def begin(self) -> None:
        """Start to record. Anything that is wrong with the options is told here, before the program runs."""
        import atexit

        import scope_profiler

        settings = {
            "config_path": self._arguments.config,
            "label": self._arguments.label,
            "region_tags": self._arguments.tag,
            "enable_tags": self._arguments.enable_tag,
            "buffer_limit": self._arguments.buffer_limit,
            "track_threads": self._arguments.track_threads,
            "track_async": self._arguments.track_async,
            "aggregation_mode": self._arguments.aggregation_mode,
            "recursive_profile": self._arguments.all or self._arguments.recursive,
            "use_line_profiler": self._arguments.line_profile,
            "use_memray": self._arguments.memory_profile,
            "sample_hz": self._arguments.sample_hz,
            "profile_mpi_calls": self._arguments.mpi_calls,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        if self._arguments.no_output:
            settings["output"] = None
        elif self._arguments.outfile is not None:
            settings["output"] = self._arguments.outfile
        elif self._arguments.config is None:
            settings["output"] = DEFAULT_OUTPUT
        import warnings

        try:
            self._choose_functions()
        except (TypeError, ValueError) as error:
            raise CommandError(one_line(error)) from None
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                scope_profiler.setup(**settings)
            except (OSError, ValueError, TypeError, ImportError, RuntimeError) as error:
                raise CommandError(one_line(error)) from None
        state = scope_profiler.ProfileManager._state
        state.stand_in = self._make_way
        self._recorded = state.recording
        if self._recorded is not None:
            self._recorded.owned_by_session = True  # whoever takes the manager over, end() reports it
        if not (state.config is not None and state.config.recursive_profile):
            for name in ("include", "exclude", "entrypoint"):
                if getattr(self._arguments, name):
                    complain(f"{PROGRAM}: --{name} means nothing without --recursive or --all")
        for warning in told:  # no line of the program is to blame
            complain(f"{PROGRAM}: {one_line(warning.message)}")
        note = _format_note(self._arguments.outfile or "")
        if note:
            complain(f"{PROGRAM} run: {note}")
        # Registered before the program's own handlers, hence called after them: at that point its threads have ended too.
        atexit.register(self.end)

    def around(self, code: CodeType, name: str) -> AbstractContextManager[object]:
        """What the script runs in: where its lines or functions are recorded, a region with its name."""
        from contextlib import nullcontext

        from scope_profiler import ProfileManager

        state = ProfileManager._state
        if state.config is None or not (state.config.use_line_profiler or state.config.recursive_profile):
            return nullcontext()
        self._root = name
        if state.config.use_line_profiler:
            state.line_functions.add_text(name, code)
        return state.recorder.add(name)

    def _choose_functions(self) -> None:
        """Which functions are recorded, if any are."""
        from scope_profiler import ProfileManager

        from ..function_choice import FunctionChoice

        arguments = self._arguments
        ProfileManager._state.function_choice = FunctionChoice(
            only_user_code=not arguments.all,
            include=arguments.include or (),
            exclude=arguments.exclude or (),
            entrypoint=arguments.entrypoint,
        )

    def end(self) -> None:
        """The last exit handler: write the profile, then see to the exit code, which no exit handler can set."""
        if os.getpid() != self._pid:
            return  # a forked child that ends normally: the parent's profile is not its own
        written = self._write()
        if self.exit_code == INTERRUPTED:
            _flush_streams()
            _end_by_interrupt()
        elif not written and self.exit_code == 0:
            _flush_streams()
            os._exit(USAGE_ERROR)

    def _make_way(self) -> None:
        """The program has begun a run of its own: that one counts. What was recorded before it is reported at the end, if there is any."""
        from scope_profiler import ProfileManager

        config, before = ProfileManager._state.config, self._recorded
        assert config is not None
        own = config.file_path if config.writes_file else "memory"
        line = f"{PROGRAM} run: the program begins a run of its own, in {own}; that one is recorded"
        if config.deactivate_profiling:
            line = f"{PROGRAM} run: the program deactivates profiling; nothing is recorded from here on"
        self._calls_before = 0
        if before is None:
            complain(line)
            return
        before.closed = True
        calls = before.unreported()
        together = before.config.link is not None and before.config.link.size > 1  # a file of all ranks, which may differ in this
        same = before.config.writes_file and config.writes_file and _same_file(before.config.file_path, own)
        if calls and not (together or same or self._arguments.copy_own_run):
            self._calls_before = calls
            line += f"; calls before it are in {before.config.file_path}" if before.config.writes_file else ""
        else:
            before.owned_by_session = False
            before.abandon()
            line += f"; {count_of(calls, 'call')} before it {'is' if calls == 1 else 'are'} dropped" if calls else ""
            if before.config.writes_file and not before.files and not same and not self._arguments.copy_own_run:
                line += f", and {before.config.file_path} is not written"
        complain(line)

    def _end_own_run(self) -> bool:
        """As _write(), where the program has had a run of its own."""
        from scope_profiler import ProfileManager

        state = ProfileManager._state
        own, before = state.recording, self._recorded
        try:
            if self._calls_before and before is not None and not before.discarded:
                state.finalize(before, verbose=False, return_results=False)
            if own is not None and own.unreported():
                state.finish(verbose=not self._arguments.quiet, return_results=False)
            if self._arguments.copy_own_run:
                return self._copy(own.files[-1] if own is not None and own.files else None)
        except BaseException as error:  # the last handler of the process: there is nobody above it
            complain(f"{PROGRAM}: the profile was not written: {reason_of(error)}")
            return False
        return True

    def _copy(self, path: str | None) -> bool:
        import shutil

        target = self._arguments.outfile
        if path is None or os.path.splitext(path)[1] != os.path.splitext(target)[1]:
            kind = os.path.splitext(target)[1]
            complain(f"{PROGRAM}: the program has a run of its own, which wrote no {kind} file that could be taken for {target}")
            return False
        if not _same_file(path, target):
            shutil.copyfile(path, target)
        return True

    def _write(self) -> bool:
        """Write the profile and print the summary. False when the profile could not be written."""
        from scope_profiler import ProfileManager

        if self._calls_before is not None:
            return self._end_own_run()
        try:
            results = ProfileManager._state.finish(verbose=False, return_results=not self._arguments.quiet)
        except BaseException as error:  # the last handler of the process: there is nobody above it
            recording = ProfileManager._state.recording
            if recording is not None and recording.written_unseen and isinstance(error, KeyboardInterrupt):
                self.exit_code = INTERRUPTED
                complain(f"{PROGRAM}: interrupted; the profile is in {recording.files[-1]}")
                return True
            complain(f"{PROGRAM}: the profile was not written: {reason_of(error)}")
            return False
        if results is None or self._arguments.quiet:
            return True
        import io

        text = io.StringIO()
        results.print_summary(stream=text)
        recording = ProfileManager._state.recording
        if results.is_root and recording is not None and recording.trace_note:
            text.write(recording.trace_note + "\n")
        if results.line_profile and recording is not None and recording.config.writes_file:
            text.write(f"lines: {PROGRAM} line-profile {results.file_path}\n")
        try:
            self._output.lines(text.getvalue().split("\n"))
            self._output.flush()
        except OSError as error:
            complain(f"{PROGRAM}: cannot print the summary: {one_line(error.strerror or error)}")
        if results.is_root and recording is not None and self.exit_code == 0:
            self._hint(recording)
        return True

    def _hint(self, recording: Recording) -> None:
        """Where nothing was recorded, what would have been."""
        config = recording.config
        if any(calls for name, calls in recording.run.call_counts().items() if name != self._root) or config.sample_hz:
            return
        if config.recursive_profile and self._arguments.include:
            asked = " ".join(f"--include {pattern}" for pattern in self._arguments.include)
            complain(f"{PROGRAM} run: no function was recorded: none that was called matches {asked} (globs of module.name)")
        elif config.recursive_profile:
            complain(f"{PROGRAM} run: no function was recorded; --all has those of libraries too")
        elif self._arguments.tag:
            complain(f"{PROGRAM} run: no region with a tag of --tag was recorded")
        elif not config.use_line_profiler and not config.use_memray:
            complain(f"{PROGRAM} run: the program has recorded no region: mark some, with region() or @profile, or try --recursive")


def _format_note(path: str) -> str:
    """What a name promises that the file does not keep; empty where it does."""
    name = os.path.basename(path).lower()
    for suffix, kind in ((".speedscope.json", "speedscope"), (".trace.json", "chrome-trace")):
        if name.endswith(suffix):
            return f"{path} will be a JSON profile; `{PROGRAM} export {kind}` makes of it what its name says"
    suffix = os.path.splitext(name)[1]
    if suffix in ("", ".h5", ".hdf5", ".hdf", ".he5", ".json", ".html", ".htm") or name.endswith(".json.gz"):
        return ""
    return f"{path} will be an HDF5 profile, like every name but .json, .json.gz, .html and .htm; `{PROGRAM} export` makes other formats of it"


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except OSError:  # the working directory was removed
        return one == other


def _flush_streams() -> None:
    import contextlib

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _end_by_interrupt() -> None:
    """End the process as Ctrl-C does, so that a shell that waits for it stops too."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


class _Program:
    """Code that is to run as ``__main__``."""

    def __init__(
        self, code: CodeType, argv: list[str], path_entry: str, attributes: dict[str, Any], name: str | None = None
    ) -> None:
        self._code = code
        self._name = name or os.path.basename(os.path.abspath(argv[0]))
        self._argv = argv
        self._path_entry = path_entry
        self._attributes = attributes

    def run(self, recording: _Recording) -> int:
        """Run it, as the interpreter would: in a new ``__main__`` that stays, since threads and exit handlers still use it."""
        main = ModuleType("__main__")
        import builtins

        main.__dict__.update(self._attributes, __builtins__=builtins)
        sys.modules["__main__"] = main
        sys.argv[:] = self._argv
        if _has_path_entry():
            sys.path[0] = self._path_entry
        try:
            with recording.around(self._code, self._name):
                exec(self._code, main.__dict__)  # noqa: S102 - this is what the command is for
        except SystemExit as stop:
            recording.exit_code = _exit_code(stop.code)
            raise
        except BaseException as error:
            recording.exit_code = 1
            # This function's own frame is none of the program's.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            sys.excepthook(type(error), error, error.__traceback__)
            if isinstance(error, KeyboardInterrupt):
                recording.exit_code = INTERRUPTED
            return recording.exit_code
        return 0


def _has_path_entry() -> bool:
    """Whether the first entry of sys.path is where the script is (not so under -P and -I)."""
    return not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else 1


def _find_script(words: list[str]) -> _Program:
    """A file of Python source, or a directory or archive with a ``__main__``."""
    path = words[0]
    if os.path.isdir(path) or _is_archive(path):
        return _find_main_inside(path, words)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise CommandError(f"{path}: {one_line(error.strerror or error)}") from None
    full = os.path.abspath(path)
    try:
        code = compile(source, full, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CommandError(f"{path}: {one_line(error)}") from None
    attributes = {
        "__file__": full,
        "__cached__": None,
        "__doc__": None,
        "__loader__": _loader(full),
        "__package__": None,
        "__spec__": None,
    }
    return _Program(code, list(words), os.path.dirname(os.path.realpath(path)), attributes)


def _loader(path: str) -> object:
    from importlib.machinery import SourceFileLoader

    return SourceFileLoader("__main__", path)


def _is_archive(path: str) -> bool:
    import zipfile

    return os.path.isfile(path) and zipfile.is_zipfile(path)


def _find_main_inside(path: str, words: list[str]) -> _Program:
    import pkgutil

    finder = pkgutil.get_importer(path)
    spec = finder.find_spec("__main__") if finder is not None else None
    if spec is None:
        raise CommandError(f"{path}: it has no __main__ module")
    return _from_spec(spec, list(words), path)


def _find_module(words: list[str]) -> _Program:
    """A module or package by name, as ``python -m`` finds it."""
    import importlib.util

    name, entry = words[0], os.getcwd()
    if _has_path_entry():
        sys.path[0] = entry  # the module is looked for beside the caller first
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError, AttributeError) as error:
        raise CommandError(f"cannot run module {name}: {one_line(error)}") from None
    if spec is None:
        raise CommandError(f"no module named {name}, or a package without __main__")
    return _from_spec(spec, [spec.origin or name, *words[1:]], entry, name)


def _from_spec(spec: Any, argv: list[str], path_entry: str, name: str | None = None) -> _Program:
    try:
        code = spec.loader.get_code(spec.name) if hasattr(spec.loader, "get_code") else None
    except (ImportError, SyntaxError) as error:
        raise CommandError(f"cannot run module {spec.name}: {one_line(error)}") from None
    if code is None:
        raise CommandError(f"cannot run module {spec.name}: it is not Python code")
    attributes = {
        "__file__": spec.origin, "__cached__": spec.cached, "__doc__": None, "__loader__": spec.loader, "__package__": spec.parent,
        "__spec__": spec,
    }  # fmt: skip
    return _Program(code, argv, path_entry, attributes, name)
