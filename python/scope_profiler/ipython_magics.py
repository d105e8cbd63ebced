"""Magics for IPython and Jupyter: ``%load_ext scope_profiler.ipython_magics``.

A cell is a run of the default manager, kept in memory under a name: what other magics print, compare, export and turn into data
frames. A cell that awaits at its top level is turned into one that awaits the magic, so it runs on the notebook's own event loop.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from inspect import CO_COROUTINE
from typing import TYPE_CHECKING, Any

try:
    from IPython.core.async_helpers import _should_be_async
    from IPython.core.error import UsageError
    from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
except ImportError:
    raise ImportError("the magics need IPython: pip install scope-profiler[notebook]") from None

from scope_profiler.cli import CommandError
from scope_profiler.cli.comparison import METRICS, compare, ordered, print_changes
from scope_profiler.cli.export import FORMATS, format_of
from scope_profiler.cli.terminal import Output, one_line, reason_of
from scope_profiler.profile_manager import ProfileManager

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["ScopeMagics", "load_ipython_extension", "unload_ipython_extension"]

_MODES = {"scope_line": "use_line_profiler", "scope_agg": "aggregation_mode"}
_TIMEIT_COLUMNS = ("region", "calls", "total", "avg", "min", "max")
_TIMEIT_RUNS = 7
_PROFILES = (".h5", ".hdf5", ".html", ".htm")  # what %scope_export writes besides the formats of the exports


def _pattern(action: str) -> Any:
    """An option that chooses regions."""
    name = "include" if action.startswith("only") else "exclude"
    return argument(f"--{name}", action="append", metavar="REGEX", help=f"{action} whose name begins with this; may be repeated")


def _run_name() -> Any:
    return argument("-n", "--name", help="the run (default: the most recent one)")


class _Recorded:
    """A run that a magic records."""

    results: ProfilingResults | None = None  # once it is over
    error: BaseException | None = None  # what the cell raised
    began: bool = True  # False: it was no Python, or was rejected

    def judge(self, outcome: Any) -> None:
        """Take from IPython's result of a cell how it went."""
        self.began = outcome.error_before_exec is None
        self.error = outcome.error_before_exec or outcome.error_in_exec


@magics_class
class ScopeMagics(Magics):
    """The magics, and the runs that they have recorded or loaded in this shell, the most recent one last."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.runs: dict[str, ProfilingResults] = {}

    # -- cells ---------------------------------------------------------------------------------------------------------

    @magic_arguments("%scope")
    @argument("name", nargs="?", default="cell", help="name of the run and of its region (default: cell)")
    @argument("-q", "--quiet", action="store_true", help="print no summary")
    @argument("-p", "--plot", action="store_true", help="draw the durations of the regions")
    @argument("--threads", action="store_true", help="record on which thread each call ran")
    @argument("--async", dest="tasks", action="store_true", help="record on which task each call ran; a cell that awaits does")
    @_pattern("only regions")
    @cell_magic("scope")
    def scope_cell(self, line: str, cell: str) -> None:
        """Record a cell as a region, and print the summary of its run.

        What the cell marks with region() and @profile is recorded within. An exception of the cell is shown after the summary.
        """
        self._record("scope", line, cell)

    @magic_arguments("%scope_line")
    @argument("name", nargs="?", default="cell", help="name of the run (default: cell)")
    @argument("-q", "--quiet", action="store_true", help="print no summary of the regions")
    @argument("-Q", "--quiet-lines", action="store_true", help="print no tables of lines")
    @cell_magic("scope_line")
    def scope_line_cell(self, line: str, cell: str) -> None:
        """Record a cell with line_profiler: time of every line of the functions that it profiles.

        Functions count that are decorated with @profile in the cell, or named by region(name, functions=[...]).
        """
        self._record("scope_line", line, cell)

    @magic_arguments("%scope_agg")
    @argument("name", nargs="?", default="cell", help="name of the run and of its region (default: cell)")
    @argument("-q", "--quiet", action="store_true", help="print no summary")
    @_pattern("only regions")
    @cell_magic("scope_agg")
    def scope_agg_cell(self, line: str, cell: str) -> None:
        """Record a cell in aggregation mode: sums of each region instead of single calls.

        Memory stays the same however many calls there are. There is no timeline: %scope_df --events is empty, and
        %scope_export writes only what needs no single calls.
        """
        self._record("scope_agg", line, cell)

    @magic_arguments("%scope_recursive")
    @argument("name", nargs="?", default="cell", help="name of the run and of its region (default: cell)")
    @argument("-q", "--quiet", action="store_true", help="print no summary")
    @_pattern("only regions")
    @cell_magic("scope_recursive")
    def scope_recursive_cell(self, line: str, cell: str) -> None:
        """Record every Python function that a cell calls, whether it is marked or not.

        Each is a region, <module>.<qualified name>. Functions of libraries are recorded as well: --include shortens the table.
        """
        arguments = parse_argstring(self.scope_recursive_cell, line)
        codes, shown = self._compiled(cell)
        spaces = self.shell.user_global_ns, self.shell.user_ns

        # The one frame inside of which functions are traced: those of IPython and of the magic itself are not.
        @ProfileManager.profile(arguments.name, recursive=True)
        def traced() -> Any:
            value = None
            for code in codes:
                value = eval(code, *spaces)
            return value

        with self._recorded("scope_recursive", {}) as run:
            try:
                value = traced()
                if shown:
                    self.shell.displayhook(value)
            except BaseException as error:  # shown after the summary
                run.error = error
        self._after("scope_recursive", arguments, run)

    async def scope_recursive_async(self, line: str, cell: str) -> None:
        """The same for a cell that awaits."""
        arguments = parse_argstring(self.scope_recursive_cell, line)
        codes, shown = self._compiled(cell, awaits=True)
        spaces = self.shell.user_global_ns, self.shell.user_ns

        @ProfileManager.profile(arguments.name, recursive=True)
        async def traced() -> Any:
            value = None
            for code in codes:
                value = eval(code, *spaces)
                if code.co_flags & CO_COROUTINE:
                    value = await value
            return value

        with self._recorded("scope_recursive", {"track_async": True}) as run:
            try:
                value = await traced()
                if shown:
                    self.shell.displayhook(value)
            except BaseException as error:
                run.error = error
        self._after("scope_recursive", arguments, run)

    def _record(self, magic: str, line: str, cell: str) -> None:
        """Run a cell in a session, and tell of it."""
        arguments, settings = self._plan(magic, line)
        with self._recorded(magic, settings) as run, self._region(magic, arguments), self._errors_kept():
            run.judge(self.shell.run_cell(cell))
        self._after(magic, arguments, run)

    async def record_awaiting(self, magic: str, line: str, cell: str) -> None:
        """The same for a cell that awaits: on the loop that runs the notebook, in one of whose tasks this is."""
        arguments, settings = self._plan(magic, line, awaits=True)
        code = self.shell.transform_cell(cell)
        with self._recorded(magic, settings) as run, self._region(magic, arguments), self._errors_kept():
            run.judge(await self.shell.run_cell_async(cell, transformed_cell=code))
        self._after(magic, arguments, run)

    def _plan(self, magic: str, line: str, awaits: bool = False) -> tuple[Any, dict[str, Any]]:
        """The arguments of a cell magic, and the settings of its run."""
        arguments = parse_argstring(getattr(self, f"{magic}_cell"), line)
        if magic == "scope":
            wanted = "track_async" if arguments.tasks or awaits else "track_threads" if arguments.threads else None
            return arguments, {} if wanted is None else {wanted: True}
        return arguments, {_MODES[magic]: True}

    def _region(self, magic: str, arguments: Any) -> Any:
        # line_profiler would take the frame that enters a region for one whose lines are wanted.
        return nullcontext() if magic == "scope_line" else ProfileManager.region(arguments.name)

    @contextmanager
    def _recorded(self, magic: str, settings: dict[str, Any]) -> Iterator[_Recorded]:
        """A session around what a magic runs. UsageError if there can be none."""
        run = _Recorded()
        session = ProfileManager.session
        try:
            began = session(output=None, verbose=False, return_results=True, **settings)
            began.__enter__()
        except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"%{magic}: {one_line(error)}" if magic == "scope_timeit" else f"%%{magic}: {one_line(error)}") from None
        try:
            yield run
        finally:
            began.__exit__(None, None, None)
        run.results = began.results

    @contextmanager
    def _errors_kept(self) -> Iterator[None]:
        """What a cell raises is not shown. A host may have put functions of its own there, which are put back."""
        own = vars(self.shell)
        before = {name: own.get(name) for name in ("showtraceback", "showsyntaxerror", "showindentationerror")}
        for name in before:
            setattr(self.shell, name, lambda *args, **kwargs: None)
        try:
            yield
        finally:
            for name, function in before.items():
                if function is None:
                    delattr(self.shell, name)
                else:
                    setattr(self.shell, name, function)

    def _compiled(self, cell: str, awaits: bool = False) -> tuple[list[Any], bool]:
        """The code of a cell, in one or two pieces, and whether the value of the last is shown, as IPython does for an expression."""
        tree, name = self._parsed(cell)
        flags = self.shell.compile.flags | (ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if awaits else 0)
        last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        rest = tree.body[:-1] if last is not None else tree.body
        pieces: list[Any] = [compile(ast.Module(rest, []), name, "exec", flags, True)] if rest else []
        if last is not None:
            pieces.append(compile(ast.Expression(last.value), name, "eval", flags, True))
        return pieces, last is not None and not cell.rstrip().endswith(";")

    def _parsed(self, text: str) -> tuple[Any, str]:
        """The syntax tree of what a user wrote, and the name by which tracebacks find its text."""
        code = self.shell.transform_cell(text)
        name = self.shell.compile.cache(code, self.shell.execution_count, raw_code=text)
        return self.shell.transform_ast(self.shell.compile.ast_parse(code, filename=name)), name

    def _after(self, magic: str, arguments: Any, run: _Recorded) -> None:
        """Keep the run, print what is asked for, and let the cell's own exception be the cell's."""
        if run.results is not None and run.began:
            self._keep(arguments.name, run.results)
            if not arguments.quiet:
                self._print(f"%%{magic} {arguments.name!r}", run.results, getattr(arguments, "include", None))
            if magic == "scope_line" and not arguments.quiet_lines:
                self._print_lines(run.results)
            if getattr(arguments, "plot", False):
                self._plot(run.results, arguments.include)
        if run.error is not None:
            raise self._as_the_cells_own(run.error)

    def _print_lines(self, results: ProfilingResults) -> None:
        """The tables of line_profiler."""
        from scope_profiler.cli.line_profile import print_lines

        print_lines(results, Output(sys.stdout))

    def _as_the_cells_own(self, error: BaseException) -> BaseException:
        """Have IPython show the traceback of the cell alone, without the magic that ran it; once."""
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        shell = self.shell

        def render() -> Any:
            del error._render_traceback_  # type: ignore[attr-defined]
            tables = shell.InteractiveTB
            return tables.structured_traceback(type(error), error, traceback, tb_offset=tables.tb_offset)

        try:
            error._render_traceback_ = render  # type: ignore[attr-defined]
        except AttributeError:  # a class without room for it
            pass
        return error

    # -- statements ----------------------------------------------------------------------------------------------------

    @line_magic
    def scope_timeit(self, line: str) -> None:
        """Run a statement several times, each time as a call of one region, and print what it took.

        %scope_timeit [-n RUNS] [-q] STATEMENT

        -n RUNS: how often (default: 7). -q: print no summary. The run is called timeit.
        """
        arguments, code = self._timeit_arguments(line)
        with self._recorded("scope_timeit", {}) as run:
            region, spaces = ProfileManager.region("timeit"), (self.shell.user_global_ns, self.shell.user_ns)
            try:
                for _ in range(arguments.runs):
                    with region:
                        exec(code, *spaces)
            except BaseException as error:
                run.error = error
        self._after_timeit(arguments, run)

    async def scope_timeit_async(self, line: str) -> None:
        """The same for a statement that awaits."""
        arguments, code = self._timeit_arguments(line)
        with self._recorded("scope_timeit", {"track_async": True}) as run:
            region, spaces = ProfileManager.region("timeit"), (self.shell.user_global_ns, self.shell.user_ns)
            try:
                for _ in range(arguments.runs):
                    with region:
                        await eval(code, *spaces)
            except BaseException as error:
                run.error = error
        self._after_timeit(arguments, run)

    def _timeit_arguments(self, line: str) -> tuple[Any, Any]:
        """The options and the statement, compiled: that is not part of what is measured."""
        from types import SimpleNamespace

        options, statement = self.parse_options(line, "n:q", "number=", "quiet", posix=False, strict=False, preserve_non_opts=True)
        written = options.get("n", options.get("number", _TIMEIT_RUNS))
        try:
            runs = int(written)
        except ValueError:
            runs = 0
        if runs < 1:
            raise UsageError(f"%scope_timeit: {written!r} is no number of runs")
        if not statement.strip():
            raise UsageError("%scope_timeit [-n RUNS] [-q] STATEMENT: there is no statement")
        tree, name = self._parsed(statement)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if self.shell.autoawait else 0
        code = compile(tree, name, "exec", flags | self.shell.compile.flags, True)
        return SimpleNamespace(runs=runs, statement=statement.strip(), quiet="q" in options or "quiet" in options), code

    def _after_timeit(self, arguments: Any, run: _Recorded) -> None:
        if run.error is not None:
            raise self._as_the_cells_own(run.error)
        assert run.results is not None
        self._keep("timeit", run.results)
        if not arguments.quiet:
            runs = f"{arguments.runs} {'run' if arguments.runs == 1 else 'runs'}"
            self._print(f"%scope_timeit {arguments.statement!r} ({runs})", run.results, None, _TIMEIT_COLUMNS)

    # -- runs ----------------------------------------------------------------------------------------------------------

    @magic_arguments()
    @argument("filepath", help="a profile: HDF5, JSON or a spool")
    @argument("-n", "--name", help="name to keep it under (default: that of the file, without its suffix)")
    @argument("-q", "--quiet", action="store_true", help="print no summary")
    @line_magic
    def scope_load(self, line: str) -> None:
        """Load a profile from a file as a run, to be printed, compared and exported like those of cells."""
        arguments = parse_argstring(self.scope_load, line)
        path = os.path.expanduser(arguments.filepath)
        from scope_profiler.profile_io import load

        try:
            results = load(path)
        except FileNotFoundError:
            raise UsageError(f"%scope_load: {path}: no such file") from None
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise UsageError(f"%scope_load: {reason_of(error, path)}") from None
        name = arguments.name or os.path.splitext(os.path.basename(path).removesuffix(".gz"))[0] or path
        self._keep(name, results)
        if not arguments.quiet:
            self._print(f"%scope_load {arguments.filepath} as {name!r}", results, None)

    @magic_arguments()
    @_run_name()
    @argument("--events", action="store_true", help="a row for each call, not for each region")
    @argument("--per-rank", action="store_true", help="a row for each region and rank")
    @_pattern("only regions")
    @_pattern("no regions")
    @line_magic
    def scope_df(self, line: str) -> Any:
        """A run as a pandas data frame, which is the value of the magic: df = %scope_df"""
        arguments = parse_argstring(self.scope_df, line)
        _, results = self._find(arguments.name)
        include, exclude = arguments.include, arguments.exclude
        try:
            if not arguments.events:
                return results.to_dataframe(include, exclude, per_rank=arguments.per_rank)
            frame = results.to_events_dataframe(include, exclude)
        except ImportError as error:
            raise UsageError(f"%scope_df: {one_line(error)}") from None
        if frame.empty:
            print("there are no single calls: the run was recorded in aggregation mode, or no region matches")
        return frame

    @magic_arguments()
    @argument("name", nargs="?", help="the run (default: the most recent one)")
    @argument("-p", "--plot", action="store_true", help="draw the durations of the regions")
    @_pattern("only regions")
    @line_magic
    def scope_last(self, line: str) -> None:
        """Print the summary of a run again."""
        arguments = parse_argstring(self.scope_last, line)
        name, results = self._find(arguments.name)
        self._print(f"{name!r} (last)" if name == list(self.runs)[-1] else repr(name), results, arguments.include)
        if arguments.plot:
            self._plot(results, arguments.include)

    @magic_arguments()
    @argument("name_a", nargs="?", help="baseline (default: the run before the most recent one)")
    @argument("name_b", nargs="?", help="what is compared with it (default: the most recent run)")
    @argument("--metric", choices=METRICS, default="total", help="what is compared (default: total)")
    @argument("--sort", choices=("delta", "pct", "name"), default="delta", help="largest difference first, largest percentage, or name")
    @line_magic
    def scope_compare(self, line: str) -> None:
        """Compare the regions of two runs."""
        arguments = parse_argstring(self.scope_compare, line)
        if arguments.name_a is not None and arguments.name_b is None:
            raise UsageError("%scope_compare: name two runs, or none to compare the two most recent ones")
        if arguments.name_a is None and len(self.runs) < 2:
            raise UsageError(f"%scope_compare needs two runs; there {'is one' if self.runs else 'are none'}")
        name_a, name_b = (arguments.name_a, arguments.name_b) if arguments.name_a else list(self.runs)[-2:]
        (_, a), (_, b) = self._find(name_a), self._find(name_b)
        output = Output(sys.stdout)
        output.line(f"{name_a!r} -> {name_b!r}")
        changes = compare(a.get_regions(), b.get_regions(), arguments.metric)
        print_changes(ordered(changes, arguments.sort), arguments.metric, output)

    @magic_arguments()
    @argument("filepath", help="file to write, such as run.prof, run.speedscope.json, run.pftrace, run.h5 or run.html")
    @_run_name()
    @argument("--format", choices=tuple(FORMATS), help="the format (default: what the suffix of the file tells)")
    @_pattern("only regions")
    @_pattern("no regions")
    @argument("--no-call-paths", action="store_true", help="prof, flamegraph: an entry for each region, not for each call path")
    @line_magic
    def scope_export(self, line: str) -> None:
        """Write a run into a file: for a viewer, or as a profile."""
        arguments = parse_argstring(self.scope_export, line)
        _, results = self._find(arguments.name)
        path = os.path.expanduser(arguments.filepath)
        try:
            written = self._export(results, path, arguments)
        except (CommandError, ImportError, OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"%scope_export: {reason_of(error)}") from None
        for one in written:
            print(f"wrote {one}")

    def _export(self, results: ProfilingResults, path: str, arguments: Any) -> Sequence[object]:
        import scope_profiler

        include, exclude = arguments.include, arguments.exclude
        if arguments.format is None and path.lower().endswith(_PROFILES):
            if path.lower().endswith((".html", ".htm")):
                return [scope_profiler.create_html_report(results, path, include=include, exclude=exclude)]
            if include or exclude:
                raise ValueError("a profile is written whole: --include and --exclude are for the other formats")
            scope_profiler.write_profile(results, path)
            return [path]
        form = FORMATS[arguments.format or self._format_of(path)]
        options: dict[str, Any] = {}
        if arguments.no_call_paths:
            if "call_paths" not in form.options:
                raise ValueError("--no-call-paths is for the formats prof and flamegraph")
            options["call_paths"] = False
        written: Sequence[object] = getattr(scope_profiler, form.function)(
            results, path, include=include, exclude=exclude, verbose=False, **options
        )
        return written

    def _format_of(self, path: str) -> str:
        try:
            return format_of(path)
        except CommandError:
            raise ValueError(f"the suffix of {path} tells no format; --format does: {', '.join(FORMATS)}") from None

    @magic_arguments()
    @argument("name", nargs="?", help="the run (default: all)")
    @line_magic
    def scope_reset(self, line: str) -> None:
        """Forget a run, or all of them."""
        arguments = parse_argstring(self.scope_reset, line)
        if arguments.name is None:
            self.runs.clear()
            print("forgot all runs")
        else:
            name, _ = self._find(arguments.name)
            del self.runs[name]
            print(f"forgot the run {name!r}")

    def _keep(self, name: str, results: ProfilingResults) -> None:
        self.runs.pop(name, None)
        self.runs[name] = results

    def _find(self, name: str | None) -> tuple[str, ProfilingResults]:
        if not self.runs:
            raise UsageError("there are no runs yet: %%scope and %scope_timeit record one, %scope_load loads one")
        if name is None:
            name = list(self.runs)[-1]
        if name not in self.runs:
            from scope_profiler.cli.arguments import did_you_mean

            raise UsageError(f"there is no run {name!r}{did_you_mean(name, self.runs)} (runs: {', '.join(self.runs)})")
        return name, self.runs[name]

    def _print(
        self, title: str, results: ProfilingResults, include: Sequence[str] | None, columns: Sequence[str] | None = None
    ) -> None:
        print(title)
        results.print_summary(include=include, suppress_notes=True, columns=columns)

    def _plot(self, results: ProfilingResults, include: list[str] | None) -> None:
        from scope_profiler.plotting_scripts import plot_durations

        try:
            plot_durations(results, include=include, show=True, verbose=False)
        except (ImportError, ValueError) as error:
            raise UsageError(f"no plot: {one_line(error)}") from None


# -- cells that await --------------------------------------------------------------------------------------------------------

_CELLS = ("%%scope", "%%scope_line", "%%scope_agg")


def _await_magics(lines: list[str]) -> list[str]:
    """Have a cell await its magic, where what the magic runs awaits."""
    from IPython import get_ipython

    shell = get_ipython()
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if shell is None or first is None or not shell.autoawait:
        return lines
    word, _, rest = lines[first].strip().partition(" ")
    if word in _CELLS:
        body = "".join(lines[first + 1 :])
        call = f"record_awaiting({word[2:]!r}, {rest!r}, {body!r})"
    elif word == "%%scope_recursive":
        body = "".join(lines[first + 1 :])
        call = f"scope_recursive_async({rest!r}, {body!r})"
    elif word == "%scope_timeit" and not any(line.strip() for line in lines[first + 1 :]):
        body, call = _statement(rest), f"scope_timeit_async({rest!r})"
    else:
        return lines
    if not ("await" in body or "async" in body) or not _should_be_async(shell.transform_cell(body)):
        return lines
    return [f"await get_ipython().magics_manager.registry['ScopeMagics'].{call}\n"]


def _statement(rest: str) -> str:
    """What follows the options of %scope_timeit."""
    words = rest.split(" ")
    while words and (words[0].startswith("-") or not words[0]):
        if words.pop(0) in ("-n", "--number") and words:
            words.pop(0)
    return " ".join(words)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext scope_profiler.ipython_magics``"""
    shell.register_magics(ScopeMagics)
    if _await_magics not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(_await_magics)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext scope_profiler.ipython_magics``"""
    if _await_magics in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(_await_magics)
    magics = shell.magics_manager.registry.pop("ScopeMagics", None)
    for kind, names in ScopeMagics.magics.items() if magics is not None else ():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
