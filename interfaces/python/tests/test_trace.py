"""Traces of jobs, read by the descriptors of Perfetto itself: nothing of the picture is unknown to it, and its trace_processor, where it is, finds the
same flows and slices."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

RANKS = Path(__file__).with_name("ranks.py")
perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="skipped: no perfetto")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "job.pftrace"
    command = [sys.executable, "-m", "heddle.run", "-n", "2", "--timeout", "120", "--trace", str(path)]
    subprocess.run([*command, str(RANKS), "tagged"], check=True, timeout=180)
    return path


RECORDS = 0x8EDD1E  # the field of a packet in which `heddle explain` finds the records: Perfetto passes over it


def unknown_fields(message: object) -> Iterator[int]:
    """The numbers of those of the message and all within it."""
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    yield from (field.field_number for field in UnknownFieldSet(message))
    for field, value in message.ListFields():  # type: ignore[attr-defined]
        if field.message_type is None:
            continue
        for one in value if field.is_repeated else [value]:
            yield from unknown_fields(one)


def test_is_what_perfetto_knows(trace: Path) -> None:
    read = perfetto.Trace()
    read.ParseFromString(trace.read_bytes())
    # The records are in packets of their own, which have nothing else.
    records = [packet for packet in read.packet if not packet.ListFields()]
    assert len(records) >= 2, "each rank has records"
    assert all(list(unknown_fields(packet)) == [RECORDS] for packet in records)
    pictures = [packet for packet in read.packet if packet.ListFields()]
    assert not any(list(unknown_fields(packet)) for packet in pictures)
    assert all(packet.HasField("track_event") or packet.HasField("track_descriptor") for packet in pictures)
    tracks = {packet.track_descriptor.uuid for packet in read.packet if packet.HasField("track_descriptor")}
    events = [packet.track_event for packet in read.packet if packet.HasField("track_event")]
    assert {event.track_uuid for event in events} <= tracks
    begins = Counter(flow for event in events for flow in event.flow_ids)
    ends = Counter(flow for event in events for flow in event.terminating_flow_ids)
    assert begins == ends
    assert sum(begins.values()) > 0


def test_is_read_by_trace_processor(trace: Path) -> None:
    from perfetto.trace_processor import TraceProcessor  # type: ignore[import-untyped]

    try:
        processor = TraceProcessor(trace=str(trace))
    except Exception as error:  # it is fetched when it is first used
        pytest.skip(f"skipped: there is no trace_processor: {error}")
    with processor:
        read = perfetto.Trace()
        read.ParseFromString(trace.read_bytes())
        events = [packet.track_event for packet in read.packet if packet.HasField("track_event")]
        (slices,) = processor.query("select count(*) as n from slice")
        assert slices.n == sum(event.type in (1, 3) for event in events)
        (flows,) = processor.query("select count(*) as n from flow")
        assert flows.n == sum(len(event.flow_ids) for event in events)
        (errors,) = processor.query("select ifnull(sum(value), 0) as n from stats where severity = 'error'")
        assert errors.n == 0
