"""Reads what `heddle trace` writes: the part of Perfetto's protobuf that observe/trace/perfetto.cpp has, and refuses what it does not have.

    trace = perfetto_read.read(path)
    for track in trace.tracks.values(): …
    for event in trace.events: …                     in the order of the file
    for piece in trace.slices(track): …              those of a track, as they begin; AssertionError: they are not nested and closed
"""

import collections
import dataclasses
import struct

VARINT, FIXED64, BYTES = 0, 1, 2
TYPES = {1: "begin", 2: "end", 3: "instant"}


@dataclasses.dataclass
class Track:
    uuid: int
    kind: str = "track"  # or "process", "thread"
    name: str = ""
    parent: int = 0  # uuid; 0: none
    pid: int = 0
    tid: int = 0


@dataclasses.dataclass
class Event:
    track: int  # uuid
    ns: int
    type: str
    name: str
    annotations: dict
    flows: list  # arrows that begin here
    terminating: list  # arrows that end here


@dataclasses.dataclass
class Slice:
    name: str
    begin: int
    end: int
    depth: int  # 0: it is in no other one
    parent: "Slice"  # None: there is none
    annotations: dict


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of each field: an int, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind == FIXED64:
            (value,) = struct.unpack_from("<Q", data, at)
            at += 8
        else:
            assert kind == BYTES, f"a field of kind {kind}"
            size, at = varint(data, at)
            value = data[at:at + size]
            assert len(value) == size, "the file ends within a field"
            at += size
        yield key >> 3, value


def read_track(data):
    track = Track(0)
    for number, value in fields(data):
        if number == 1:
            track.uuid = value
        elif number == 2:
            track.name = value.decode()
        elif number == 5:
            track.parent = value
        elif number in (3, 4):
            track.kind = "process" if number == 3 else "thread"
            inner = dict(fields(value))
            track.pid, track.tid = inner.get(1, 0), inner.get(2, 0)
            track.name = inner.get(6 if number == 3 else 5, b"").decode()
        else:
            raise AssertionError(f"TrackDescriptor has field {number}")
    return track


def read_annotation(data):
    values = dict(fields(data))
    return values[10].decode(), values[6].decode() if 6 in values else values[3]


def read_event(data, ns):
    event = Event(0, ns, "", "", {}, [], [])
    for number, value in fields(data):
        if number == 4:
            name, of = read_annotation(value)
            event.annotations[name] = of
        elif number == 9:
            event.type = TYPES[value]
        elif number == 11:
            event.track = value
        elif number == 23:
            event.name = value.decode()
        elif number == 47:
            event.flows.append(value)
        elif number == 48:
            event.terminating.append(value)
        else:
            raise AssertionError(f"TrackEvent has field {number}")
    return event


class Trace:
    def __init__(self, data):
        self.tracks = {}
        self.events = []
        self.of_track = collections.defaultdict(list)  # by uuid
        for number, packet in fields(data):
            assert number == 1, f"Trace has field {number}"
            parts = dict(fields(packet))
            if 60 in parts:
                track = read_track(parts[60])
                assert track.uuid not in self.tracks, f"two tracks {track.uuid}"
                self.tracks[track.uuid] = track
            if 11 in parts:
                self.events.append(read_event(parts[11], parts[8]))
                assert self.events[-1].track in self.tracks, "an event of no track"
                self.of_track[self.events[-1].track].append(self.events[-1])

    def processes(self):
        return [track for track in self.tracks.values() if track.kind == "process"]

    def threads(self, process):
        return [track for track in self.tracks.values() if track.kind == "thread" and track.pid == process.pid]

    def slices(self, track):
        found, opened = [], []
        for event in sorted(self.of_track[track.uuid], key=lambda one: one.ns):  # those of one moment in the order of the file
            if event.type == "begin":
                parent = opened[-1] if opened else None
                opened.append(Slice(event.name, event.ns, -1, len(opened), parent, event.annotations))
                found.append(opened[-1])
            elif event.type == "end":
                assert opened, f"{track.name}: an end without a beginning at {event.ns}"
                opened.pop().end = event.ns
        assert not opened, f"{track.name}: not closed: {[one.name for one in opened]}"
        return found


def read(path):
    with open(path, "rb") as file:
        return Trace(file.read())
