"""``python -m scope_profiler`` and the ``scope-profiler`` script."""

from __future__ import annotations

import sys

from scope_profiler.cli import main

if __name__ == "__main__":
    sys.exit(main())
