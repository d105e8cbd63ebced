"""``python -m scope_profiler.likwid_readback ANSWER``: LIKWID's marker file, read by LIKWID, as JSON.

A process of its own, because LIKWID opens the counters for it, and ends the process where that goes wrong (likwid_markers.py).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

__all__ = ["read_regions"]


def read_regions(likwid: Any) -> list[dict[str, Any]]:
    """The regions in the file that the environment names, with the names of the event sets that it names."""
    cpus = [int(cpu) for cpu in os.environ["LIKWID_THREADS"].split(",") if cpu.strip()]
    if likwid.init(cpus) != 0:
        return []
    try:
        groups = {}
        for events in os.environ["LIKWID_EVENTS"].split("|"):  # their order gives them the numbers that the file has
            group = likwid.addeventset(events.strip())
            if group >= 0:
                groups[group] = likwid.getnameofgroup(group) or events.strip()
        likwid.markerreadfile(os.environ["LIKWID_FILEPATH"])
        return [_region(likwid, number, groups) for number in range(max(0, likwid.markernumregions() or 0))]
    finally:
        likwid.finalize()


def _region(likwid: Any, number: int, groups: dict[int, str]) -> dict[str, Any]:
    group = likwid.markerregiongroup(number)
    threads, events = range(likwid.markerregionthreads(number)), range(likwid.markerregionevents(number))
    metrics = range(max(0, likwid.getnumberofmetrics(group)))
    return {
        "tag": likwid.markerregiontag(number),
        "group_id": group,
        "group_name": groups.get(group, ""),
        "cpus": [int(cpu) for cpu in likwid.markerregioncpulist(number) or ()],
        "times": [likwid.markerregiontime(number, thread) for thread in threads],
        "call_counts": [likwid.markerregioncount(number, thread) for thread in threads],
        "event_names": [likwid.getnameofevent(group, event) for event in events],
        "counter_names": [likwid.getnameofcounter(group, event) for event in events],
        "events": [[likwid.markerregionresult(number, event, thread) for thread in threads] for event in events],
        "metric_names": [likwid.getnameofmetric(group, metric) for metric in metrics],
        "metrics": [[likwid.markerregionmetric(number, metric, thread) for thread in threads] for metric in metrics],
    }


def main() -> int:
    """Write the answer; an empty list if LIKWID cannot read the file."""
    from scope_profiler.likwid_markers import import_pylikwid

    regions = read_regions(import_pylikwid())
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(regions, file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
