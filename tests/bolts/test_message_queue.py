"""Messages that wait for the watermark come out once, in order, whole."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.message_queue import Arrived, MessageQueue
from dskype.spouts import streams
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.tuples import StreamMeta, TupleBatch

META = StreamMeta("distribution-bolt", 3, streams.Matching.name, streams.Matching.fields)


def frame(rows, areas=False):
    """Return a frame of (seq, position) pairs; all else follows from the seq. With areas, those with an even seq are."""
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
        [[*range(seq % 3), -1] for seq in seqs],
        [[5, seq] * (seq % 2) for seq in seqs],
        [[-seq] * (seq % 4) for seq in seqs],
        [[0.5] * (seq % 3) for seq in seqs],
    ]
    if areas:
        west_east, south_north = (np.array([[x, x + (seq % 2 == 0)] for x, seq in zip(columns[i], seqs)]) for i in (4, 3))
        columns[3:5] = south_north, west_east
    return Arrived.of(streams.Matching.of(TupleBatch(columns, META, len(rows))))


def check_details(arrived):
    """Check that each message has the details of its frame."""
    details, seqs = arrived.details, arrived.messages.seq.tolist()

    def lists(offsets, values):
        return [values[a:b].tolist() for a, b in zip(offsets.tolist(), offsets[1:].tolist())]

    assert lists(details.order_offsets, details.order) == [[*range(seq % 3), -1] for seq in seqs] and details.order.dtype == np.int16
    assert lists(details.attribute_offsets, details.attributes) == [[5, seq] * (seq % 2) for seq in seqs]
    assert lists(details.prefix_offsets, details.prefixes) == [[-seq] * (seq % 4) for seq in seqs]
    assert lists(details.region_offsets, details.regions) == [[0.5] * (seq % 3) for seq in seqs]


@pytest.mark.parametrize("seed", range(20))
def test_each_message_comes_once_when_the_watermark_has_passed_it(seed):
    rng = random.Random(seed)
    messages = [(seq, rng.randrange(50)) for seq in range(60)]
    rng.shuffle(messages)
    queue, found, watermark = MessageQueue(Arrived), [], -1
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
        check_details(arrived)
        found += seqs
        found += [seq for seq, _ in late]
        state, queue = unpack_state(pack_state(queue.snapshot())), MessageQueue(Arrived)
        queue.restore(state)
    assert sorted(found) == list(range(60))


@pytest.mark.parametrize("seed", range(5))
def test_areas_wait_with_their_messages(seed):
    rng = random.Random(seed)
    queue, found, sent = MessageQueue(Arrived), [], 0
    for watermark in range(0, 40, 4):
        for _ in range(rng.randrange(3)):
            n = rng.randrange(1, 5)
            queue.append(frame([(seq, watermark + rng.randrange(9)) for seq in range(sent, sent + n)], areas=rng.random() < 0.5))
            sent += n
        state, queue = unpack_state(pack_state(queue.snapshot())), MessageQueue(Arrived)
        queue.restore(state)
        messages = queue.pop_until(watermark + 3 if watermark < 36 else 100).messages
        for i, seq in enumerate(messages.seq.tolist()):
            west, south, east, north = messages.rectangles()[i].tolist()
            assert (west, south) == (seq / 4, seq / 2) and (east - west, north - south) in ((0, 0), (1, 1))
            assert (messages.lat[i], messages.lon[i]) == ((south + north) / 2, (west + east) / 2)
            found.append((seq, east > west))
    assert sorted(seq for seq, _ in found) == list(range(sent))
    assert all(seq % 2 == 0 for seq, is_area in found if is_area)


def test_what_earlier_versions_kept_is_read():
    queue, old = MessageQueue(Arrived), MessageQueue(Arrived)
    queue.append(frame([(0, 0), (1, 1)]))
    state = queue.snapshot()
    assert [len(columns) for columns, *_ in state] == [7], "points are kept as they always were"
    old.restore(unpack_state(pack_state([kept[:3] for kept in state])))  # there were no details
    old.append(frame([(2, 2)]))
    arrived = old.pop_until(5)
    assert arrived.messages.areas is None and arrived.messages.seq.tolist() == [0, 1, 2]
    check_details(arrived.select(np.array([2])))
    assert all(not len(values) for values in arrived.select(np.array([0, 1])).details[1::2])
