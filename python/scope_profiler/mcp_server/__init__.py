"""A server of the Model Context Protocol, with which agents record, read and compare profiles: ``scope-profiler-mcp``.

``tools`` has what its tools do, and needs no package; ``server`` offers them, with the package ``mcp``.
"""
