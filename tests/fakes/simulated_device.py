"""A device with one stream: work takes the time that it is said to take, one piece after the other, without the host waiting."""

from __future__ import annotations

import time

present = True  # whether there is a device
refuses = False  # whether it refuses events
waits: list[str] = []  # what the host has waited for


class Stream:
    def __init__(self):
        self.busy_until = 0  # ns of device time
        self.host = time.perf_counter_ns

    def submit(self, milliseconds):
        """Work of this length goes to the end of the queue."""
        self.busy_until += int(milliseconds * 1e6)


stream = Stream()


class Event:
    """When the stream gets here, device time is noted."""

    def __init__(self):
        if refuses:
            raise RuntimeError("CUDA error: out of memory")
        self.at = None

    def note(self, where):
        assert where is stream, "events are recorded on the current stream"
        self.at = where.busy_until

    def wait(self):
        waits.append("event")


def milliseconds_between(start, end):
    assert start.at is not None and end.at is not None
    return (end.at - start.at) / 1e6


def wait_for_all():
    waits.append("device")
    time.sleep(0.002)
