"""What a profile carries besides calls - line profiles and counters - between its groups and the objects of the results.

A group is ``{"attributes": {name: value}, "datasets": {name: (shape, values)}, "groups": {name: group}}``, as
``_core.Profile.aux`` has it for every rank.
"""

from __future__ import annotations

from scope_profiler.perf_events import PerfEventTotals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from scope_profiler.likwid_data import LikwidRegionResult

    Group = dict[str, Any]

__all__ = ["group_of", "likwid_regions", "line_profiles", "perf_events"]

_LINE_ARRAYS = ("line_numbers", "hits", "times")


def _empty_group() -> Group:
    return {"attributes": {}, "datasets": {}, "groups": {}}


def _child(group: Group, name: str) -> Group:
    child: Group = group["groups"].get(name) or _empty_group()
    return child


def _array(group: Group, name: str, dtype: Any = None) -> Any:
    """A dataset as an array in its shape; empty if the group has none of that name."""
    import numpy as np

    shape, values = group["datasets"].get(name, ((0,), ()))
    return np.array(values, dtype=dtype).reshape(shape)


# -- reading -----------------------------------------------------------------------------------------------------------


def line_profiles(group: Group) -> list[dict[str, Any]]:
    """The line profiles of a rank: one dict a function, with its attributes and the arrays ``line_numbers hits times``."""
    profiles = _child(group, "line_profile")["groups"]
    records = []
    for name in sorted(profiles, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)):
        record = dict(profiles[name]["attributes"])
        record.update((array, _array(profiles[name], array)) for array in _LINE_ARRAYS)
        records.append(record)
    return records


def perf_events(group: Group) -> dict[str, PerfEventTotals]:
    """The counters of a rank by region."""
    return dict(_perf_regions(_child(group, "perf_events"), ""))


def _perf_regions(group: Group, prefix: str) -> Iterator[tuple[str, PerfEventTotals]]:
    for name, child in group["groups"].items():
        path = prefix + name
        if "values" in child["datasets"]:
            attributes = child["attributes"]
            values = _array(child, "values").tolist()
            yield path, PerfEventTotals(int(attributes.get("calls", 0)), dict(zip(attributes.get("event_names", ()), values)))
        yield from _perf_regions(child, path + "/")  # a region with a slash in its name is a group inside a group


def likwid_regions(group: Group) -> dict[str, LikwidRegionResult]:
    """The LIKWID marker regions of a rank by tag."""
    regions = {}
    for name, child in _child(_child(group, "likwid"), "regions")["groups"].items():
        region = _likwid_region(name, child)
        regions[region.tag] = region
    return regions


def _likwid_region(name: str, group: Group) -> LikwidRegionResult:
    import numpy as np

    from scope_profiler.likwid_data import LikwidRegionResult

    attributes = group["attributes"]
    return LikwidRegionResult(
        tag=str(attributes.get("tag", name)),
        group_id=int(attributes.get("group_id", -1)),
        group_name=str(attributes.get("group_name", "")),
        cpus=_array(group, "cpus").tolist(),
        times=_array(group, "times", np.float64),
        call_counts=_array(group, "call_counts", np.int64),
        event_names=list(attributes.get("event_names", ())),
        counter_names=list(attributes.get("counter_names", ())),
        events=_array(group, "events", np.float64),
        metric_names=list(attributes.get("metric_names", ())),
        metrics=_array(group, "metrics", np.float64),
        source=str(attributes.get("source", "full_api")),
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def _dataset(values: Any) -> tuple[tuple[int, ...], Any]:
    """An array as a group has it: int64, uint64 or float64."""
    import numpy as np

    array = np.ascontiguousarray(values)
    kinds = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
    converted = array.astype(kinds.get(array.dtype.kind, np.float64), copy=False)
    return converted.shape, converted.reshape(-1)


def _put_at(group: Group, path: str, child: Group) -> None:
    """Make ``child`` the group at a path of names, keeping what is below it already."""
    *parents, name = path.split("/")
    for parent in parents:
        group = group["groups"].setdefault(parent, _empty_group())
    below = group["groups"].setdefault(name, child)
    below["attributes"], below["datasets"] = child["attributes"], child["datasets"]


def group_of(
    lines: Sequence[Mapping[str, Any]], counters: Mapping[str, PerfEventTotals], likwid: Mapping[str, LikwidRegionResult]
) -> Group:
    """The group of one rank that the functions above read back."""
    root = _empty_group()
    for number, record in enumerate(lines):
        attributes = {name: value for name, value in record.items() if name not in _LINE_ARRAYS and value is not None}
        datasets = {name: _dataset(record[name]) for name in _LINE_ARRAYS if name in record}
        _put_at(root, f"line_profile/{number}", {"attributes": attributes, "datasets": datasets, "groups": {}})
    for region, totals in counters.items():
        import numpy as np

        attributes = {"calls": int(totals.calls), "event_names": list(totals.values)}
        datasets = {"values": _dataset(np.array(list(totals.values.values()), dtype=np.uint64))}
        _put_at(root, f"perf_events/{region}", {"attributes": attributes, "datasets": datasets, "groups": {}})
    for tag, result in likwid.items():
        # A slash would make a group inside a group; the attribute has the tag as it is.
        _put_at(root, f"likwid/regions/{tag.replace('/', '|')}", _likwid_group(result))
    if likwid:
        root["groups"]["likwid"]["attributes"]["num_regions"] = len(likwid)
    return root


def _likwid_group(result: LikwidRegionResult) -> Group:
    values = result.as_dict()
    attributes = ("tag", "group_id", "group_name", "source", "event_names", "counter_names", "metric_names")
    datasets = ("cpus", "times", "call_counts", "events", "metrics")
    return {
        "attributes": {name: values[name] for name in attributes},
        "datasets": {name: _dataset(values[name]) for name in datasets},
        "groups": {},
    }
