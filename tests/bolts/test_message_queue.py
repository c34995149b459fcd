"""Messages that wait for the watermark come out once, in order, whole."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.message_queue import MessageQueue
from dskype.spouts import streams
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.tuples import StreamMeta, TupleBatch

META = StreamMeta("distribution-bolt", 3, streams.MATCHING, streams.FIELDS[streams.MATCHING])


def frame(rows):
    """Return a frame of (seq, position) pairs; all else follows from the seq."""
    seqs = [seq for seq, _ in rows]
    terms = [list(range(seq % 3)) for seq in seqs]
    columns = [
        np.array(seqs),
        np.array([position for _, position in rows]),
        pa.array([f'"m{seq}"' for seq in seqs]),
        np.array(seqs) / 2,
        np.array(seqs) / 4,
        terms,
        [[0.5] * len(part) for part in terms],
        np.array(seqs) * 10,
    ]
    return TupleBatch(columns, META, len(rows))


@pytest.mark.parametrize("seed", range(20))
def test_each_message_comes_once_when_the_watermark_has_passed_it(seed):
    rng = random.Random(seed)
    messages = [(seq, rng.randrange(50)) for seq in range(60)]
    rng.shuffle(messages)
    queue, found, watermark = MessageQueue(), [], -1
    while messages or len(queue):
        due = [messages.pop() for _ in range(min(len(messages), rng.randrange(6)))]
        late = [row for row in due if row[1] <= watermark]
        if due := [row for row in due if row not in late]:
            queue.append(frame(due))
        watermark += rng.randrange(4)
        arrived = queue.pop_until(watermark)
        seqs, positions = arrived.messages.seq.tolist(), arrived.messages.position.tolist()
        assert list(zip(positions, seqs)) == sorted(zip(positions, seqs)) and all(position <= watermark for position in positions)
        assert arrived.ids.to_pylist() == [f'"m{seq}"' for seq in seqs] and arrived.arrival_ms.tolist() == [10 * seq for seq in seqs]
        assert np.diff(arrived.messages.offsets).tolist() == [seq % 3 for seq in seqs] and arrived.messages.lat.tolist() == [seq / 2 for seq in seqs]
        found += seqs
        found += [seq for seq, _ in late]
        state, queue = unpack_state(pack_state(queue.snapshot())), MessageQueue()
        queue.restore(state)
    assert sorted(found) == list(range(60))
