"""What goes to message tasks may be held back: it comes whole and once, before the watermark that says so, and at once when somebody asks."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts import window_feed
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import FORMER, StatePairs
from dskype.bolts.window_feed import WindowFeed
from dskype.spouts import streams
from dskype.spouts.batch import Details, MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.tuples import column_to_list


class Sent:
    """Takes what is emitted, and the order in which tasks get rows and watermarks."""

    def __init__(self):
        self.rows, self.held, self.log = {}, set(), []

    def emit_direct_batch(self, task, columns, stream):
        if n := len(columns[0]):
            self.rows.setdefault((stream, task), []).extend(zip(*map(column_to_list, columns), strict=True))
            self.log.append((task, stream, n))

    def hold_watermarks(self, tasks):
        self.held.update(tasks)

    def pass_watermarks(self, tasks):
        self.held.difference_update(tasks)
        self.log += [(task, "watermark", 0) for task in tasks]


def arrived(seqs):
    seqs = np.array(seqs, np.int64)
    offsets = np.concatenate(([0], np.cumsum(seqs % 3)))
    terms = np.arange(offsets[-1])
    details = Details.empty(len(seqs))._replace(attribute_offsets=offsets, attributes=terms)
    messages = MessageBatch(seqs, seqs + 5, seqs / 2, seqs / 4, offsets, terms, terms / 8)
    return Arrived(messages, pa.array([f'"m{seq}"' for seq in seqs.tolist()], pa.string()), seqs * 7, details)


def pairs(seqs):
    """Return updates, each of which ends the state of the one ten before."""
    seqs = np.repeat(np.array(seqs, np.int64), 2)
    before = np.tile(np.array([0, FORMER], np.int8), len(seqs) // 2)
    since_seq = seqs - 10 * before
    return StatePairs(arrived(seqs), before, since_seq + 5, since_seq * 7, since_seq)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_held_back_comes_whole_and_before_its_watermark(seed, monkeypatch):
    monkeypatch.setattr(window_feed, "_MOST", random.Random(seed).choice([1, 30, 4096]))
    rng = random.Random(seed)
    tasks = [80, 81, 82][: rng.randint(1, 3)]
    plain, sent = Sent(), Sent()
    direct, feed, seq = WindowFeed(tasks, plain, alone=False), WindowFeed(tasks, sent, alone=True), 0
    for _ in range(60):
        what = rng.random()
        if what < 0.7:
            n = rng.randrange(5)
            some = [seq + i for i in range(n)]
            seq += n
            for one in (direct, feed):
                one.messages(arrived(some)) if what < 0.35 else one.updates(pairs(some))
        elif what < 0.8:
            feed.tick()
        elif what < 0.9:
            feed.release()
        elif what < 0.92:
            feed.ask()
        else:
            state, sent.held = unpack_state(pack_state(feed.snapshot())), set()
            feed = WindowFeed(tasks, sent, alone=True)
            feed.restore(state)
        missing = {key for key, rows in plain.rows.items() if sorted(rows) != sorted(sent.rows.get(key, ()))}
        assert not missing or sent.held == set(tasks), "a watermark could overtake what is held back"
    feed.release()
    assert {key: sorted(rows) for key, rows in sent.rows.items()} == {key: sorted(rows) for key, rows in plain.rows.items()} and not sent.held
    assert not plain.log or all(stream != "watermark" for _, stream, _ in plain.log)


def test_nothing_is_held_back_while_somebody_asks():
    sent = Sent()
    feed = WindowFeed([80], sent, alone=True)
    feed.messages(arrived([0, 1]))
    feed.updates(pairs([2]))
    assert not sent.rows and sent.held == {80}
    feed.ask()
    assert sent.log == [(80, streams.Window.name, 2), (80, streams.Window.name, 1), (80, streams.Ends.name, 1), (80, "watermark", 0)] and not sent.held
    feed.messages(arrived([3]))
    assert len(sent.log) == 5
    for _ in range(window_feed._TICKS):
        feed.tick()
    feed.messages(arrived([4]))
    assert len(sent.log) == 5 and sent.held == {80}
    feed.ask(lasting=True)
    for _ in range(2 * window_feed._TICKS):
        feed.tick()
    feed.messages(arrived([5]))
    assert [row[0] for row in sent.rows[streams.Window.name, 80]] == [0, 1, 2, 3, 4, 5] and not sent.held


def test_a_state_of_an_earlier_version_holds_nothing_back():
    sent = Sent()
    feed = WindowFeed([80], sent, alone=True)
    feed.restore(None)
    feed.messages(arrived([0]))
    assert len(sent.rows) == 1 and not sent.held
