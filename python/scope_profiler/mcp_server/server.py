"""The tools of ``tools``, offered over the Model Context Protocol by FastMCP."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError as ProtocolError
from pydantic import ValidationError

from scope_profiler import __version__
from scope_profiler.bounded_process import ending_with_this_process
from scope_profiler.cli.arguments import did_you_mean
from scope_profiler.cli.terminal import one_line
from scope_profiler.mcp_server import tools

__all__ = ["create_server", "serve"]

INSTRUCTIONS = (
    "Tools that record, read and compare profiles of Python, C and Fortran programs with marked regions, threads and tasks. To make a "
    "program faster: run_profile or inspect_profile shows where its time goes; run_benchmark before and after a change, then "
    "compare_benchmarks decides whether to keep it. Paths are relative to the server's working directory."
)

# Tool -> what clients may be told of it: whether it changes nothing, and may be repeated.
_TOOLS: dict[Callable[..., dict[str, Any]], dict[str, bool]] = {
    tools.inspect_profile: {"readOnlyHint": True},
    tools.compare_profiles: {"readOnlyHint": True},
    tools.run_profile: {"readOnlyHint": False, "openWorldHint": True},
    tools.run_benchmark: {"readOnlyHint": False, "openWorldHint": True},
    tools.compare_benchmarks: {"readOnlyHint": True},
    tools.plot_profile: {"readOnlyHint": False, "destructiveHint": False},
}


class _Server(FastMCP):
    """FastMCP, but an error is one line, also that of an argument that is missing or of a wrong type."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        _check_names(name, arguments)
        try:
            return await super().call_tool(name, arguments)
        except ProtocolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ProtocolError(one_line(f"{name}: {_problems(cause)}")) from None
            raise ProtocolError(one_line(error)) from None


def _check_names(tool: str, arguments: dict[str, Any]) -> None:
    """FastMCP drops arguments that it does not know, and a filter with a mistyped name would not filter."""
    function = next((function for function in _TOOLS if function.__name__ == tool), None)
    if function is None:
        return
    known = [name for name in inspect.signature(function).parameters if name != "stop"]
    for name in arguments:
        if name not in known:
            raise ProtocolError(one_line(f"{tool}: it has no argument {name!r}{did_you_mean(name, known)}"))


def _problems(error: ValidationError) -> str:
    """What is wrong with which argument."""
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False, include_input=False)]
    return "; ".join(dict.fromkeys(told))


def create_server() -> FastMCP:
    """A server with all tools, not started."""
    from mcp.types import ToolAnnotations

    server = _Server("scope-profiler", instructions=INSTRUCTIONS, lifespan=_quietly, log_level="WARNING")
    server._mcp_server.version = __version__  # what clients are told; FastMCP's own parameter for it is younger
    for function, hints in _TOOLS.items():
        server.add_tool(_in_thread(function), annotations=ToolAnnotations(**hints))  # type: ignore[arg-type]
    return server


def _in_thread(function: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The function as a coroutine function that leaves the event loop free. If its request is cancelled, what it runs is ended."""
    signature = inspect.signature(function, eval_str=True)
    stoppable = "stop" in signature.parameters

    async def tool(*arguments: Any, **options: Any) -> Any:
        stop = threading.Event()
        if stoppable:
            options["stop"] = stop
        try:
            return await anyio.to_thread.run_sync(partial(function, *arguments, **options), abandon_on_cancel=True)
        finally:
            stop.set()

    shown = [parameter for name, parameter in signature.parameters.items() if name != "stop"]
    tool.__name__ = function.__name__
    tool.__doc__ = function.__doc__
    tool.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    tool.__annotations__ = {parameter.name: parameter.annotation for parameter in shown} | {"return": signature.return_annotation}
    return tool


@asynccontextmanager
async def _quietly(server: FastMCP) -> AsyncIterator[None]:
    """While the server runs, its standard output belongs to the protocol: what anything else prints goes to standard error."""
    protocol, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = protocol


def serve(arguments: Sequence[str] | None = None) -> int:
    """Serve on standard input and output until the client closes them. The exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words:
        code = 0 if words in (["-h"], ["--help"]) else 2
        stream = sys.stdout if code == 0 else sys.stderr
        print("usage: scope-profiler-mcp\n" if code == 0 else f"scope-profiler-mcp: unknown argument {words[0]!r}", file=stream, end="")
        if code == 0:
            print("\nOffers scope-profiler's tools to a client of the Model Context Protocol, on standard input and output.")
        else:
            print(file=stream)
        return code
    _keep_the_protocol_apart()
    # Ctrl-C is no exception here: the thread that waits for input would not hear of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with ending_with_this_process():
        create_server().run()
    return 0


def _keep_the_protocol_apart() -> None:
    """Move the protocol off descriptor 1, so that what libraries and child processes print there cannot get into it."""
    protocol = os.dup(1)
    os.set_inheritable(protocol, False)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(protocol, "w", encoding="utf-8")
