"""Channels: columns that go to several tasks are serialized once, and equal for each of them."""

import numpy as np
import pyarrow as pa

from dskype.topology.core import frames
from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.channels import FrameLimits, Outbox, OutStream
from dskype.topology.core.frames import decode_frame
from dskype.topology.fields import Fields
from dskype.topology.tuples import column_to_list


def outbox(monkeypatch, max_tuples=100):
    calls = []
    monkeypatch.setattr(frames, "encode_segment", lambda *args, encode=frames.encode_segment: calls.append(args[1]) or encode(*args))
    return Outbox(1, lambda task: ("t", task), FrameLimits(max_tuples, 1 << 20, 1 << 20, lambda *given: None)), calls


def stream(name="s"):
    return OutStream(name, Fields("n", "word"), [], frozenset(), frozenset())


def read(records):
    found = {}
    for record in records:
        for segment in decode_frame(record.value).segments:
            found.setdefault(record.partition, []).extend(zip(*(column_to_list(column) for column in segment.columns)))
    return found


def test_columns_that_go_to_several_tasks_are_serialized_once(monkeypatch):
    box, calls = outbox(monkeypatch, max_tuples=2)
    columns, out = [np.arange(5), pa.array(list("abcde"))], stream()
    for task in (4, 5, 6):
        box.channel(task).add_columns(out, 5, list(columns), None)
    box.channel(5).add_columns(out, 1, [np.array([9]), pa.array(["z"])], None)
    rows = list(zip(range(5), "abcde"))
    assert read(box.flush(suppressed=False)) == {4: rows, 5: [*rows, (9, "z")], 6: rows}
    assert calls == [2, 2, 1, 1]


def test_the_same_columns_on_another_stream_or_with_anchors_are_serialized_for_themselves(monkeypatch):
    box, calls = outbox(monkeypatch)
    columns = [np.arange(3), pa.array(list("abc"))]
    box.channel(4).add_columns(stream("s"), 3, columns, None)
    box.channel(5).add_columns(stream("other"), 3, columns, None)
    for task, anchors in ((6, [7, 8, 9]), (7, [1, 2, 3])):
        box.channel(task).add_columns(stream("s"), 3, columns, np.array(anchors))
    segments = {r.partition: decode_frame(r.value).segments[0] for r in box.flush(suppressed=False)}
    assert len(calls) == 4
    assert [segments[task].stream for task in (4, 5, 6, 7)] == ["s", "other", "s", "s"]
    assert segments[4].anchors is None and segments[6].anchors.tolist() == [7, 8, 9] and segments[7].anchors.tolist() == [1, 2, 3]


def test_what_is_suppressed_is_not_serialized(monkeypatch):
    box, calls = outbox(monkeypatch)
    for task in (4, 5):
        box.channel(task).add_columns(stream(), 1, [np.array([1]), pa.array(["a"])], None)
    assert box.flush(suppressed=True) == [] and calls == []
    assert box.snapshot() == {4: 1, 5: 1}


def test_an_edge_has_the_same_id_whichever_way_it_is_computed():
    """One by one, a few at a time, many at a time, and by the channel, which computes some in advance."""
    key = edge_key(1, 4)
    many = stream_ids(key, 7, 3000)
    assert many.dtype == np.int64 and len(set(many.tolist())) == 3000
    assert [int(stream_ids(key, 7 + i, 1)[0]) for i in range(3000)] == many.tolist()
    for n in range(12):
        assert stream_ids(key, 7, n).tolist() == many[:n].tolist()
    channel = Outbox(1, lambda task: ("t", task), FrameLimits(100, 1 << 20, 1 << 20, lambda *given: None)).channel(4)
    channel.renumber(7)
    channel.open(stream())
    found = []
    for i in range(3000):
        found.append(channel.edge_id())
        channel.rows.append((i, "a"))
        if i % 700 == 699:
            channel.close_rows()
            channel.open(stream())
    assert found == many.tolist()
