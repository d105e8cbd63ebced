"""Perfetto traces read with Perfetto's own schema, by the rules of its trace processor."""

import gzip
from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema


@dataclass
class Slice:
    """One slice or instant of a track."""

    name: str
    category: str
    start: int
    end: int | None
    depth: int
    args: dict
    source: tuple | None
    flows: list = field(default_factory=list)
    ends_flows: list = field(default_factory=list)

    @property
    def duration(self):
        return self.end - self.start


@dataclass
class Track:
    """A track of the trace: what it is called, where it hangs, and what is on it in order of beginning."""

    name: str
    parent: int
    process: str | None
    thread: str | None
    slices: list = field(default_factory=list)


def parsed(path):
    """The trace message; asserts that every packet holds known fields only."""
    raw = Path(path).read_bytes()
    trace = schema.Trace()
    trace.ParseFromString(gzip.decompress(raw) if str(path).endswith(".gz") else raw)
    return trace


class Reader:
    """What a trace processor makes of the packets: interned data resolved, slices matched on their tracks."""

    def __init__(self, path):
        self.names, self.categories, self.arguments, self.sources = {}, {}, {}, {}
        self.tracks, self._open = {}, {}
        cleared = False
        events = []
        for number, packet in enumerate(parsed(path).packet):
            assert packet.trusted_packet_sequence_id == 1
            if packet.sequence_flags & 1:
                self.names, self.categories, self.arguments, self.sources = {}, {}, {}, {}
                cleared = True
            if packet.sequence_flags & 2:
                assert cleared, "refers to state that was never begun"
            self._learn(packet.interned_data)
            if packet.HasField("track_descriptor"):
                self._describe(packet.track_descriptor)
            if packet.HasField("track_event"):
                assert packet.HasField("timestamp")
                events.append((packet.timestamp, number, packet.track_event))
        for at, _, event in sorted(events, key=lambda item: item[:2]):  # as the trace processor sorts
            self._event(at, event)
        assert not any(self._open.values()), "slices that never end"

    def _learn(self, data):
        for table, entries in ((self.names, data.event_names), (self.categories, data.event_categories),
                               (self.arguments, data.debug_annotation_names)):
            for entry in entries:
                assert table.setdefault(entry.iid, entry.name) == entry.name and entry.iid
        for entry in data.source_locations:
            assert entry.iid not in self.sources
            line = entry.line_number if entry.HasField("line_number") else None
            self.sources[entry.iid] = (entry.file_name, line, entry.function_name)

    def _describe(self, track):
        assert track.uuid and track.uuid not in self.tracks
        process = track.process.process_name if track.HasField("process") else None
        thread = track.thread.thread_name if track.HasField("thread") else None
        self.tracks[track.uuid] = Track(track.name or thread or process, track.parent_uuid, process, thread)
        self._open[track.uuid] = []

    def _args(self, event):
        found = {}
        for one in event.debug_annotations:
            value = getattr(one, one.WhichOneof("value"))
            assert self.arguments[one.name_iid] not in found
            found[self.arguments[one.name_iid]] = value
        return found

    def _event(self, at, event):
        track, stack = self.tracks[event.track_uuid], self._open[event.track_uuid]
        if event.type == schema.TrackEvent.TYPE_SLICE_END:
            assert stack, "an end without a beginning"
            stack.pop().end = at
            return
        name = self.names[event.name_iid] if event.name_iid else event.name
        category = "".join(self.categories[iid] for iid in event.category_iids)
        source = self.sources[event.source_location_iid] if event.source_location_iid else None
        one = Slice(name, category, at, None, len(stack), self._args(event), source, list(event.flow_ids),
                    list(event.terminating_flow_ids))
        track.slices.append(one)
        if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(one)
        else:
            assert event.type == schema.TrackEvent.TYPE_INSTANT
            one.end = at

    def named(self, name):
        [track] = [track for track in self.tracks.values() if track.name == name]
        return track

    def of(self, category):
        """{track name: slices of this category}, without tracks that have none."""
        found = {track.name: [one for one in track.slices if one.category == category] for track in self.tracks.values()}
        return {name: slices for name, slices in found.items() if slices}

    def calls(self):
        return [(one.name, one.start, one.end) for slices in self.of("call").values() for one in slices]
