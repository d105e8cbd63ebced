"""``python -m scope_profiler.mcp_server``: what ``scope-profiler-mcp`` is, too."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Serve on standard input and output until the client closes them. 2, with one line on stderr, if ``mcp`` is not there."""
    try:
        from scope_profiler.mcp_server.server import serve
    except ImportError as error:
        package = (error.name or "scope_profiler").partition(".")[0]
        if package == "scope_profiler":
            raise
        print(f"scope-profiler-mcp: {package} is missing: pip install scope-profiler[mcp]", file=sys.stderr)
        return 2
    return serve()


if __name__ == "__main__":
    sys.exit(main())
