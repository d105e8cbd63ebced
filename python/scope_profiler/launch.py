"""Running things under a manager: a callable, a script in this process, a command in another."""

from __future__ import annotations

import os

from .settings import SETTINGS, UNSET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from subprocess import CompletedProcess
    from typing import Any

    from .profile_manager import ProfileManager, ProfilingRun
    from .results import ProfilingResults

__all__ = ["environment_settings", "profile_command", "profile_script", "run", "run_script", "written"]

_SESSION_KEYWORDS = frozenset(SETTINGS) | {
    "options", "verbose", "verbose_line_profiler", "native_traces", "replace", "config_path", "auto_finalize", "region_tags",
}  # fmt: skip


# Variables of setup_from_env() that say yes or no, and the keywords they are.
_FLAGS = {"SCOPE_PROFILER_RECURSIVE": "recursive_profile", "SCOPE_PROFILER_AUTO_FINALIZE": "auto_finalize"}


def run(
    manager: type[ProfileManager], function: Any, args: tuple[Any, ...], output: Any, keywords: Mapping[str, Any]
) -> Any:
    """See :meth:`ProfileManager.run`."""
    settings = {name: value for name, value in keywords.items() if name in _SESSION_KEYWORDS}
    others = {name: value for name, value in keywords.items() if name not in _SESSION_KEYWORDS}
    settings.setdefault("verbose", False)
    with manager.session(output=output, return_results=True, **settings):
        return function(*args, **others)


def environment_settings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords for ``setup()`` from the environment and ``overrides``, which win."""
    settings: dict[str, Any] = {}
    config = os.environ.get("SCOPE_PROFILER_CONFIG")
    output = os.environ.get("SCOPE_PROFILER_OUTPUT")
    if config:
        settings["config_path"] = config
    if output and not any(overrides.get(name) is not None for name in ("file_path", "deactivate_file_output")):
        settings["output"] = output
    for variable, name in _FLAGS.items():
        value = os.environ.get(variable)
        if value:
            settings[name] = value.strip().lower() in ("1", "true", "yes", "on")
    return {**settings, **overrides}


def run_script(path: str | os.PathLike[str], script_args: Iterable[str] | None) -> None:
    """Run the script at ``path`` as ``__main__``. ``sys.argv`` and ``sys.path`` are as before when it ends."""
    import runpy
    import sys

    full = os.path.abspath(os.fspath(path))
    if not os.path.exists(full):
        raise FileNotFoundError(f"no script at {os.fspath(path)!r}")
    argv, search = sys.argv, list(sys.path)
    sys.argv = [full, *(script_args or ())]
    sys.path[0:1] = [os.path.dirname(full)]
    try:
        runpy.run_path(full, run_name="__main__")
    finally:
        sys.argv = argv
        sys.path[:] = search


def profile_script(
    manager: type[ProfileManager],
    path: str | os.PathLike[str],
    script_args: Iterable[str] | None,
    output: Any,
    settings: dict[str, Any],
) -> ProfilingResults | None:
    """See :meth:`ProfileManager.profile_script`."""
    started = manager.setup(output=output, **settings)
    config = manager.get_config()
    try:
        manager.run_script(path, script_args, recursive=config is not None and config.recursive_profile)
    except BaseException as error:
        _finalize_after(started, error)
        raise
    return started.finalize(verbose=False)


def _finalize_after(started: ProfilingRun, error: BaseException) -> None:
    from .profiling_session import attach_failure

    try:
        started.finalize(verbose=False)
    except BaseException as failure:
        attach_failure(error, failure)


def profile_command(command: str | Iterable[str], output: Any, options: list[str]) -> CompletedProcess[str]:
    """See :meth:`ProfileManager.profile_command`."""
    import subprocess
    import sys

    from .profile_io import load

    path = os.fspath(output) if output not in (None, UNSET) else SETTINGS["file_path"][0]
    script = list(_script_words(command))
    if not script or script[0].startswith("-"):
        raise ValueError(f"a command needs the path of a Python script, got {command!r}")
    words = [sys.executable, "-m", "scope_profiler", "run", "-q", "-o", path, *options, *script]
    before = written(path)
    completed: Any = subprocess.run(words, check=False)
    # A program with a run of its own has written its own file, and none here.
    completed.profile_results = load(path) if completed.returncode == 0 and written(path) != before else None
    return completed  # type: ignore[no-any-return]


def written(path: str) -> tuple[int, int] | None:
    """What a file becomes another by when it is written anew; None: there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _script_words(command: str | Iterable[str]) -> Iterator[str]:
    if isinstance(command, str):
        import shlex

        command = shlex.split(command)
    words = [os.fspath(word) for word in command]
    if words and _is_interpreter(words[0]):
        del words[0]
    yield from words


def _is_interpreter(word: str) -> bool:
    import sys

    name = os.path.basename(word)
    return (
        word == sys.executable
        or (name.startswith("python") and name[6:].replace(".", "").isdecimal())
        or name == "python"
    )
