"""Gives tasks crafted and damaged frames: ``python -m tests.topology.core.frame_fuzz SEED COUNT``.

It runs as a process of its own, because the errors that it looks for kill processes. It prints how many frames were refused, how many were accepted, and by how many
MiB its memory grew at most.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
from collections.abc import Iterator

import msgpack
import numpy as np
import pyarrow as pa

from dskype.topology import BatchBolt, Bolt, Fields, Spout, TopologyBuilder
from dskype.topology.core.bolt_task import BoltTask
from dskype.topology.core.frames import encode_data, encode_pulse, encode_segment, encode_watermark
from dskype.topology.core.kafka_spout import make_spout_task
from dskype.topology.core.poison import PoisonedBatchError
from dskype.topology.core.values import pack_state
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

SPOUT, ROWS, BATCHES = "spout", "rows", "batches"
_NUMBERS = (0, 1, 2, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2)


class Source(Spout):
    def open(self, conf, context, collector):
        pass

    def next_tuple(self):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("a", "b"))


class TouchesRows(Bolt):
    """Reads every value, and emits tuples."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        repr(tup.values)
        self.collector.emit(tup.values, anchors=tup)
        self.collector.ack(tup)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("a", "b"))


class TouchesColumns(BatchBolt):
    """Reads every column as kernels do."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute_batch(self, batch):
        for column in batch.columns:
            if isinstance(column, pa.Array):
                column.take(pa.array(np.arange(len(column))[::-1]))
                column.slice(len(column) // 2).to_pylist()
                if pa.types.is_dictionary(column.type):
                    column.dictionary_decode()
            repr(list(column))
        self.collector.emit_batch(batch.columns, parents=np.arange(len(batch)))

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("a", "b"))


def ext(code: int, data: bytes) -> msgpack.ExtType:
    return msgpack.ExtType(code, data)


def nested(code: int, depth: int, wrap=lambda data: data) -> msgpack.ExtType:
    value = msgpack.packb(msgpack.ExtType(code, wrap(msgpack.packb([1]))))
    for _ in range(depth):
        value = msgpack.packb(msgpack.ExtType(code, wrap(msgpack.packb([msgpack.unpackb(value)]))))
    return msgpack.unpackb(value)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def crafted() -> dict[str, bytes]:
    """Return what is wrong -> frame; each is an otherwise correct frame of two columns."""

    def column(value, n=1, anchors=None):
        return encode_data(1, 0, [msgpack.packb(["default", n, [value, list(range(n))], anchors])])

    header = b"\x95\x01\x00\x01\x00"
    return {
        "tuples nested 300 deep": column([nested(4, 300)]),
        "sets nested 300 deep": column([nested(5, 300)]),
        "held tuples nested 300 deep": column([nested(6, 300, lambda data: pack_state([[msgpack.unpackb(data)], "spout", 1, "default", ["a"], None, 0]))]),
        "lists nested 3000 deep": header + b"\x91" * 3000,
        "array headers without elements": header + b"\xdd\x00\x0f\xff\xff" * 900 + bytes(1 << 20),
        "map headers without elements": header + b"\xdf\x00\x07\xff\xff" * 900 + bytes(1 << 20),
        "array headers in a short record": header + b"\xdc\x3f\xff" * 900 + bytes(1 << 14),
        "array headers within a tuple": column([ext(4, b"\xdd\x00\x0f\xff\xff" * 900 + bytes(1 << 20))]),
        "4 billion elements": header + b"\xdd\xff\xff\xff\xff",
        "array of objects": column(ext(1, b"O\x01" + u32(1) + bytes(8))),
        "array without data": column(ext(1, b"")),
        "array of half a number": column(ext(1, b"q\x01" + u32(1) + bytes(7))),
        "array of no dimension": column(ext(1, b"q\x00" + bytes(8))),
        "array of 255 dimensions": column(ext(1, b"q\xff" + u32(*[1] * 255) + bytes(8))),
        "array with a wrong shape": column(ext(1, b"q\x02" + u32(1, 2**32 - 1) + bytes(8))),
        "array whose shape overflows": column(ext(1, b"q\x04" + u32(1, 2**31, 2**31, 2**31) + bytes(8))),
        "empty array of 4 billion rows": column(ext(1, b"q\x03" + u32(1, 2**32 - 1, 0))),
        "strings beyond the data": column(ext(2, u32(1, 0, 2**30) + b"abc")),
        "strings before the data": column(ext(2, u32(1, 2**32 - 2**30, 3) + b"abc")),
        "string offsets that go back": column(ext(2, u32(3, 0, 2**30, 1, 3) + b"abc"), 3),
        "more strings than offsets": column(ext(2, u32(2**20, 0, 1) + b"a"), 2**20),
        "strings without offsets": column(ext(2, u32(2**32 - 1))),
        "strings that are no UTF-8": column(ext(2, u32(1, 0, 3) + b"\xff\xfe\xfd")),
        "codes beyond the dictionary": column(ext(3, u32(1, 2**30) + u32(1, 0, 1) + b"a")),
        "codes below 0": column(ext(3, u32(1, 2**32 - 1) + u32(1, 0, 1) + b"a")),
        "dictionary with strings beyond the data": column(ext(3, u32(1, 0) + u32(1, 0, 2**30) + b"a")),
        "list offsets that go back": column(ext(7, u32(2, 0, 2**30, 1) + b"q" + bytes(8)), 2),
        "list offsets whose differences overflow": column(ext(7, u32(4, 0, 2**31 - 1, 2**31, 2**32 - 1, 1) + b"q" + bytes(8)), 4),
        "list offsets beyond the numbers": column(ext(7, u32(1, 0, 2**30) + b"q" + bytes(8))),
        "a hole of 4 billion tuples": encode_data(1, 0, [msgpack.packb(["default", 2**32, None, None])]),
        "4 billion tuples without fields": encode_data(1, 0, [msgpack.packb(["default", 2**32, [], None])]),
        "a number that is none": encode_data(1, 2**64 - 1, [msgpack.packb(["default", 1, [[1], [1]], None])]),
        "a watermark that is none": encode_data(1, 0, [msgpack.packb([None, 2**64 - 1])]),
        "anchors beyond 64 bits": column([1], 1, [2**64 - 1]),
        "anchors beyond 64 bits in pairs": column([1], 1, [[2**64 - 1, 1]]),
        "anchors of pairs that are none": column([1], 1, [[1, 2, 3]]),
        "roots that are lists": encode_data(4, 0, [msgpack.packb(["__ack_ack", 1, [[[1]], [[1]]], None])]),
        "a task that is none": encode_data(10**6, 0, [encode_watermark(1)]),
        "a long name": encode_data(1, 0, [msgpack.packb(["x" * (1 << 20), 1, [[1], [1]], None])]),
    }


def good() -> list[bytes]:
    """Return well-formed frames of all kinds of columns."""
    texts = pa.array(["a", "straße", "", "🙂 four"])
    columns = [
        [1, "x", None, [1, {"a": (1, 2)}]],
        np.arange(4),
        np.array([0.5, 1, 2, 3]),
        np.array([True, False, True, True]),
        texts,
        pa.array(["p", "q", "p", "q"]).dictionary_encode(),
        pa.array([[1, 2], [], [3], [4, 5]]),
        np.arange(8).reshape(4, 2),
    ]
    anchors = [None, np.arange(4), [1, 0, [5, 6, 7, 8], 2]]
    frames = [
        encode_data(1, 0, [encode_segment("default", 4, [column, other], which)]) for column in columns for other in (columns[1], texts) for which in anchors
    ]
    held = encode_segment("default", 1, [[1], [2]], None)
    return [
        *frames,
        encode_data(1, 0, [held, encode_watermark(5), encode_segment("default", 1, None, None), held]),
        encode_pulse(1, 2, 3),
        encode_data(4, 0, [encode_segment("__ack_ack", 2, [np.arange(2), np.arange(2)], None)]),
    ]


def mutants(rng: random.Random, count: int) -> Iterator[bytes]:
    """Yield damaged frames."""
    frames = good()
    for _ in range(count):
        value = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 3)):
            at, how = rng.randrange(len(value)), rng.randrange(6)
            if how == 0:
                value[at] = rng.randrange(256)
            elif how == 1:
                value[at : at + 4] = struct.pack(rng.choice("<>") + "I", rng.choice(_NUMBERS))
            elif how == 2:
                del value[at : at + rng.randint(1, 8)]
            elif how == 3:
                value[at:at] = rng.randbytes(rng.randint(1, 8))
            elif how == 4:
                other = rng.choice(frames)
                value[at:] = other[rng.randrange(len(other)) :]
            else:
                value[at] ^= 1 << rng.randrange(8)
            value = value or bytearray(b"\0")
        yield bytes(value)


def main(seed: int, count: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout(SPOUT, Source())
    builder.set_bolt(ROWS, TouchesRows()).shuffle_grouping(SPOUT)
    builder.set_bolt(BATCHES, TouchesColumns()).shuffle_grouping(SPOUT)
    for bolt in (ROWS, BATCHES):
        builder.set_bolt(f"after-{bolt}", TouchesRows()).shuffle_grouping(bolt)
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 1}, builder.create_topology())

    def source(component: str) -> int:
        return plan.component_tasks(component)[0]

    values = [("good", value) for value in good()] + list(crafted().items()) + [("mutant", value) for value in mutants(random.Random(seed), count)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = accepted = 0
    for name, value in values:
        before_it = refused
        for component in (ROWS, BATCHES, SPOUT, "__acker"):
            # The crafted frames name task 1 and the acker's task 4 as their source; the tasks that get them have received nothing before.
            task_id = source(component)
            task = make_spout_task(plan, task_id, lambda: 0, None, None, None) if component == SPOUT else BoltTask(plan, task_id, lambda: 0)
            task.start()
            renamed = value.replace(b"\x95\x01\x00\x01", b"\x95\x01\x00" + bytes([source(SPOUT)]), 1).replace(
                b"\x95\x01\x00\x04", b"\x95\x01\x00" + bytes([source("__acker")]), 1
            )
            assert source("__acker") < 128 and source(SPOUT) < 128
            try:
                task.process([InRecord(task.inbox, 0, 0, 0, None, renamed)])
            except PoisonedBatchError as error:  # as an executor does
                task = BoltTask(plan, task_id, lambda: 0)
                task.start()
                task.poison.places[error.place] = str(error)
                task.process([InRecord(task.inbox, 0, 0, 0, None, renamed)])
            task.flush()
            if any(key.startswith("decode/") for key in task.stats.rejected):
                refused += 1
                assert name != "good" or component in (SPOUT, "__acker"), task.stats.rejected
            else:
                accepted += 1
                assert name != "good" or not any(task.stats.rejected), task.stats.rejected
        assert name in ("good", "mutant") or refused > before_it, f"not refused: {name}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(refused, accepted, grown)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
