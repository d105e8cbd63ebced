"""Plots of the terminal UI: as text, as files, in a window or a browser, each made without holding up the UI."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from threading import Lock
from typing import TYPE_CHECKING, Any

from scope_profiler.cli import CommandError
from scope_profiler.cli.plot_kinds import SUFFIXES, call, selection

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["Choice", "Plotter", "default_directory"]


def default_directory(path: str) -> str:
    """Where plots are saved if nothing else is said: ``<stem>_plots`` beside the profile."""
    return os.path.join(os.path.dirname(path), os.path.basename(path).partition(".")[0] + "_plots")


class Choice:
    """Which regions are plotted: patterns as they are typed, with commas between them."""

    def __init__(self, include: str = "", exclude: str = "") -> None:
        self.include = self._patterns(include)
        self.exclude = self._patterns(exclude)

    @staticmethod
    def _patterns(typed: str) -> list[str] | None:
        return [pattern.strip() for pattern in typed.split(",") if pattern.strip()] or None

    def names(self, results: ProfilingResults) -> list[str]:
        """The regions that are chosen. CommandError for what is no regular expression."""
        from scope_profiler.cli.arguments import check_patterns

        check_patterns(self.include, self.exclude)
        return [region.name for region in results.get_regions(self.include, self.exclude)]

    def words(self) -> list[str]:
        """The same for a command line."""
        return [*(["--include", *self.include] if self.include else []), *(["--exclude", *self.exclude] if self.exclude else [])]


class Plotter:
    """Draws plots of one profile. Every method returns what happened in a line, and raises CommandError for what did not."""

    def __init__(self, results: ProfilingResults, path: str, output: str | None) -> None:
        self._results = results
        self._path = path
        self._output = output or default_directory(path)
        self._drawing = Lock()  # plot libraries have settings of the whole process
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """End what was started, and remove what only the browser and other programs were to look at."""
        for child in self._children:
            if child.poll() is None:
                child.terminate()
            child.wait()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _temporary(self, name: str) -> str:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="scope-profiler-")
        return os.path.join(self._scratch.name, name)

    def _draw(self, kind: str, choice: Choice, path: str, backend: str) -> Any:
        settings = selection(kind, choice.include, choice.exclude, None)
        with self._drawing:
            return call(kind, [self._results], settings, filepath=path, backend=backend, verbose=False)

    def text(self, kind: str, choice: Choice) -> str:
        """The plot as text."""
        path = self._temporary(f"{kind}.txt")
        self._draw(kind, choice, path, "plotext")
        with open(path, encoding="utf-8") as file:
            return file.read()

    def save(self, kind: str, choice: Choice) -> str:
        """Write a picture into the directory for plots."""
        path = os.path.join(self._output, f"{kind}_plot{SUFFIXES['matplotlib']}")
        written = self._draw(kind, choice, path, "matplotlib")
        return f"saved {', '.join(map(str, written)) if isinstance(written, list) else path}"

    def browse(self, kind: str, choice: Choice) -> str:
        """Open the plot in the browser; without a screen it is written into the directory for plots."""
        from pathlib import Path

        from scope_profiler.cli.view import has_screen, open_page

        name = f"{kind}_plot{SUFFIXES['plotly']}"
        if not has_screen():
            path = os.path.join(self._output, name)
            self._draw(kind, choice, path, "plotly")
            return f"there is no screen to show it on: saved {path}"
        path = self._temporary(name)
        self._draw(kind, choice, path, "plotly")
        open_page(Path(path))
        return f"opened {path} in the browser"

    def window(self, kind: str, choice: Choice) -> str:
        """Show the plot in a window of another process, so that both can be used."""
        if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
            raise CommandError("there is no screen for a window: s saves the plot as a picture, t draws it as text")
        path = self._temporary(f"{kind}_window.png")
        command = [sys.executable, "-m", "scope_profiler", "plot", kind, self._path, "--show", "-o", path, *choice.words()]
        return self._start(command, "the window is open")

    def snakeviz(self) -> str:
        """Open the whole profile in snakeviz."""
        from scope_profiler import export_prof
        from scope_profiler.cli.view import has_screen

        try:
            import snakeviz  # noqa: F401
        except ImportError:
            raise CommandError("this needs snakeviz: pip install snakeviz") from None
        if not has_screen():
            raise CommandError("there is no screen for a browser: scope-profiler export prof writes what snakeviz reads")
        try:
            (path, *_) = export_prof(self._results, self._temporary("profile.prof"), verbose=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise CommandError(f"snakeviz: {error}") from None
        return self._start([sys.executable, "-m", "snakeviz", str(path)], "snakeviz is open in the browser")

    def _start(self, command: list[str], done: str) -> str:
        """Start a program that stays; CommandError with its last line if it ends at once."""
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        self._children.append(child)
        try:
            _, told = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            return done
        if child.returncode == 0:
            return done
        lines = told.decode(errors="replace").strip().splitlines()
        raise CommandError(lines[-1] if lines else f"{command[3]} failed with exit code {child.returncode}")

