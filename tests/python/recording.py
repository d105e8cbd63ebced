"""A recorder of the extension with one open run, for tests of what records into it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from scope_profiler import _core


class Call(NamedTuple):
    name: str
    start: int
    end: int
    lane: int


class Recording:
    """``profile`` decorates; ``calls`` are the closed ones so far, in start order."""

    def __init__(self, **options: Any) -> None:
        self.recorder = _core.Recorder()
        self.options = options
        self.run: Any = None

    def __enter__(self) -> Recording:
        self.run = self.recorder.open(**self.options)
        self.run.keep_lanes = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.recorder.close()

    def profile(self, target: Any = None, name: str | None = None, **how: Any) -> Any:
        if target is None or isinstance(target, str):
            return lambda function: _core.wrap(self.recorder, function, target or name, **how)
        return _core.wrap(self.recorder, target, name, **how)

    def calls(self) -> list[Call]:
        profile = self.run.collect()
        starts, ends = (memoryview(profile.column(name)).tolist() for name in ("start_ns", "end_ns"))
        lanes = struct.unpack(f"{len(starts)}q", self.run.collect_lanes())
        found = []
        for name_index, _rank, first, count, *_ in profile.rows:
            found += [Call(profile.names[name_index], starts[i], ends[i], lanes[i]) for i in range(first, first + count)]
        return sorted(found, key=lambda call: call.start)

    def names(self) -> list[str]:
        return [call.name for call in self.calls()]

    def open_calls(self) -> list[str]:
        return self.run.open_calls()


Decorator = Callable[[Any], Any]
