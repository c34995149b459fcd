"""The schema of streams: in today's order, read and written by name."""

import inspect
import re

import numpy as np
import pyarrow as pa
import pytest

from dskype.spouts import streams
from dskype.topology.tuples import StreamMeta, TupleBatch

ORDER = {
    "messages": "seq position id lat lon text arrival_ms attributes region",
    "updates": "seq position id lat lon text arrival_ms attributes region object time_ms deleted",
    "subscriptions": "subscription registration record",
    "matching": "seq position id lat lon terms weights arrival_ms order attributes prefixes region",
    "pairs": "seq position id lat lon terms weights arrival_ms order attributes prefixes region before since since_ms since_seq",
    "ends": "seq since position",
    "placements": "subscription registration placement",
    "window": "seq position id lat lon terms weights order attributes prefixes",
    "requests": "request subscription watermark count alpha lat lon terms weights programs scale_m filter",
    "progress": "watermark",
    "partials": "request subscription task count seqs positions scores ids",
    "answers": "request subscription seqs positions scores ids",
    "shortages": "subscription registration epoch kind theta placement",
    "plans": "version plan",
    "switched": "version at",
    "transfers": "subscription registration record",
    "interest": "kind record",
    "balance": "kind record",
    "registrations": "subscription registration event record",
    "results": "subscription registration kind watermark message score rank meta seq position",
    "lists": "subscription kind record",
    "searches": "search record",
    "lookups": "search watermark record",
}
"""What inboxes of running topologies hold. A column that is added here or moved makes their frames unreadable."""


class Collector:
    def __init__(self):
        self.sent = []

    def emit(self, values, stream):
        self.sent.append(("emit", None, values, stream))

    def emit_direct(self, task, values, stream):
        self.sent.append(("emit_direct", task, values, stream))

    def emit_batch(self, columns, stream):
        self.sent.append(("emit_batch", None, columns, stream))

    def emit_direct_batch(self, task, columns, stream):
        self.sent.append(("emit_direct_batch", task, columns, stream))


def test_columns_keep_their_order():
    assert {name: " ".join(stream.fields) for name, stream in streams.STREAMS.items()} == ORDER


def test_the_table_of_the_module_names_every_stream():
    assert sorted(re.findall(r"^\d? +``(\w+)``", inspect.getdoc(streams), re.M)) == sorted(ORDER)


@pytest.mark.parametrize("stream", streams.STREAMS.values(), ids=list(streams.STREAMS))
def test_a_stream_goes_out_and_comes_back_without_a_copy(stream):
    columns = [np.arange(3) for _ in stream.fields]
    made = stream.of(TupleBatch(columns, StreamMeta("spout", 1, stream.name, stream.fields), 3))
    assert all(getattr(made, name) is column for name, column in zip(stream.fields, columns, strict=True))
    collector = Collector()
    made.emit_batch(collector)
    made.emit_direct_batch(collector, 7)
    assert [(call, task, name) for call, task, _, name in collector.sent] == [("emit_batch", None, stream.name), ("emit_direct_batch", 7, stream.name)]
    assert all(one is other for _, _, values, _ in collector.sent for one, other in zip(values, columns, strict=True))


def test_rows_are_read_and_emitted_one_by_one():
    batch = TupleBatch([["a", "b"], pa.array(["0-1", "0-2"]), [None, {"type": "topk"}]], StreamMeta("spout", 1, "placements", streams.Placements.fields), 2)
    first, second = streams.Placements.rows(batch)
    assert (first.subscription, first.registration, first.placement) == ("a", "0-1", None)
    assert second == streams.Placements(subscription="b", registration="0-2", placement={"type": "topk"})
    assert list(streams.Placements.of(batch).each("placement", "subscription")) == [(None, "a"), ({"type": "topk"}, "b")]
    collector = Collector()
    first.emit(collector)
    second.emit_direct(collector, 4)
    assert collector.sent == [("emit", None, ("a", "0-1", None), "placements"), ("emit_direct", 4, ("b", "0-2", {"type": "topk"}), "placements")]


def test_some_tuples_are_taken_by_their_numbers():
    interest = streams.Interest(kind=pa.array(["a", "b", "c"]), record=[1, 2, 3])
    some = interest.take(np.array([2, 0]))
    assert (some.kind.to_pylist(), some.record) == (["c", "a"], [3, 1])
    some = interest.slice(1, 3)
    assert (some.kind.to_pylist(), some.record) == (["b", "c"], [2, 3])


def test_nobody_uses_a_stream_by_position():
    with pytest.raises(TypeError, match="positional"):
        streams.Progress(3)
    progress = streams.Progress(watermark=3)
    with pytest.raises(TypeError, match="non-iterable"):
        (_,) = progress


def test_a_frame_of_other_columns_is_refused():
    with pytest.raises(ValueError, match="zip"):
        streams.Progress.make([1, 2])
    with pytest.raises(ValueError, match="zip"):
        streams.Plans.make([1])
