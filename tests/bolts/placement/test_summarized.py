"""Placements that wait until every distribution task knows their routing terms."""

import itertools

import numpy as np
import pytest

from dskype.bolts.placement.plans import Plans
from dskype.bolts.placement.summarized import SummarizedPlacement
from dskype.bolts.protocol.interest import InterestEnded, InterestKnown, decode_interest
from dskype.bolts.protocol.reports import ReplicaReport
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state

from .test_replicated import TASKS, WINDOW, Context, Plain, topk

OTHER = 11
"""The id of the other distribution task."""


class Collector:
    def __init__(self):
        self.sent, self.told, self.interest = [], [], []

    def emit_direct(self, task, row, stream):
        if stream == streams.Interest.name:
            assert task == OTHER
            self.interest.append(decode_interest(*row))
        else:
            self.sent.append((task, *row))

    def emit(self, row, stream):
        self.told.append(row)

    def kinds(self):
        """Return (task, registration, type) of the placements that were sent, and forget them."""
        sent, self.sent = self.sent, []
        return [(task, registration, record["type"]) for task, _, registration, record in sent]

    def announced(self):
        """Return the pairs that were announced or ended, and forget them."""
        found, self.interest = self.interest, []
        return [(m.kind, sorted(zip(m.regions.tolist(), m.terms.tolist()))) for m in found]


class Every(Plain):
    """As ``Plain``, but every message goes to all tasks."""

    summaries = True

    def message_tasks(self, messages):
        return None


def made():
    collector, context = Collector(), Context()
    return SummarizedPlacement(Plans(Every({"of": [0, 1, 2]}), Every), TASKS, collector, context, WINDOW, [OTHER]), collector, context


def known(placer, number, withheld=-1):
    """Let the other task answer an announcement."""
    placer._exchange.receive(InterestKnown(number, withheld), OTHER)
    placer.finish_batch()


def register(placer, name, registration, subscription):
    placer.register(name, registration, subscription)
    placer.finish_batch()


def message(position, *terms):
    one = np.array([position])
    return MessageBatch(one, one, np.zeros(1), np.zeros(1), np.array([0, len(terms)]), np.array(terms, np.int64), np.ones(len(terms)))


def to(placer, position, *terms):
    """Return the tasks that a message goes to."""
    return placer.routes(message(position, *terms)).tasks.tolist()


def boolean(*terms):
    return BooleanSubscription([0, 0, 1, 1], ["or", *terms], None, None)


def consistent(placer):
    """Check that what the exchange has counted is what the registry and held things need."""
    placer._exchange._check()
    expected = {}
    for name in placer.epochs.registry.names():
        entry = placer.epochs.registry.get(name)
        for pair in ((task, term) for task in entry.tasks for term in entry.interest.terms):
            expected[pair] = expected.get(pair, 0) + 1
    for held in itertools.chain.from_iterable(placer._waiting.values()):
        for pair in zip(held.regions.tolist(), held.terms.tolist()):
            expected[pair] = expected.get(pair, 0) + 1
    regions, terms, counts = placer._exchange._own.items()
    assert dict(zip(zip(regions.tolist(), terms.tolist()), counts.tolist())) == expected


def restored(placer):
    copy, collector, _ = made()
    copy.restore(unpack_state(pack_state(placer.snapshot())))
    assert pack_state(copy.snapshot()) == pack_state(placer.snapshot())
    return copy, collector


def test_a_registration_begins_when_all_tasks_know_its_terms():
    placer, collector, context = made()
    placer.advance(3)
    assert to(placer, 9, 0) == []
    register(placer, "s", "0-0", boolean(0, 1))
    assert not collector.sent and not collector.told and context.gauges["held_registrations"]() == 1
    assert collector.announced() == [("added", [(0, 0), (0, 1)])]
    assert to(placer, 10, 0) == [0] and to(placer, 10, 2) == []
    known(placer, 1, withheld=12)
    assert not collector.sent, "messages up to 12 were withheld by the other task, and up to 9 by this one"
    placer, collector = restored(placer)
    placer.advance(12)
    assert collector.kinds() == [(20, "0-0", "boolean")]
    assert collector.told == [("s", "0-0", "begin", {"topk": False, "at": 12, "updated": False})]
    consistent(placer)


def test_known_terms_need_no_wait_and_are_not_announced_again():
    placer, collector, _ = made()
    register(placer, "s", "0-0", boolean(0))
    known(placer, 1)
    assert collector.announced() == [("added", [(0, 0)])] and len(collector.kinds()) == 1
    register(placer, "t", "0-1", topk(0))
    assert collector.kinds() == [(20, "0-1", "topk")] and collector.announced() == []
    placer.unregister("s")
    placer.advance(5)
    assert collector.announced() == [] and to(placer, 6, 0) == [0]
    placer.unregister("t")
    placer.advance(6)
    assert collector.announced() == [("ended", [(0, 0)])] and to(placer, 7, 0) == []
    consistent(placer)


def test_a_registration_lives_on_until_the_one_that_replaces_it_begins():
    placer, collector, _ = made()
    register(placer, "s", "0-0", boolean(0))
    known(placer, 1)
    collector.kinds()
    register(placer, "s", "0-1", boolean(1))
    placer.advance(4)
    assert not collector.sent and to(placer, 4, 0) == [0]
    register(placer, "s", "0-2", boolean(2))
    known(placer, 2)
    assert not collector.sent, "a newer one is held"
    known(placer, 3)
    assert collector.kinds() == [(20, "0-0", "end"), (21, "0-1", "boolean"), (21, "0-1", "end"), (22, "0-2", "boolean")]
    assert [(row[1], row[2], row[3]["at"]) for row in collector.told[1:]] == [("0-0", "end", 4), ("0-1", "begin", 4), ("0-1", "end", 4), ("0-2", "begin", 4)]
    placer.advance(5)
    assert to(placer, 6, 0, 1) == [] and to(placer, 6, 2) == [2]
    consistent(placer)


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_unregistered_while_it_is_held_begins_and_ends_at_once(crash):
    placer, collector, _ = made()
    register(placer, "s", "0-0", topk(0, 1))
    if crash:
        placer, collector = restored(placer)
    placer.unregister("s")
    assert [kind for *_, kind in collector.kinds()] == ["topk", "topk", "end", "end"]
    assert [row[2] for row in collector.told] == ["begin", "end"] and len(placer.epochs.registry) == 0
    known(placer, 1)
    placer.advance(7)
    assert not collector.sent and isinstance(collector.interest[-1], InterestEnded)
    consistent(placer)
    assert len(placer._exchange._own) == len(placer._exchange._copy) == 0 and not placer._waiting


def test_a_report_waits_for_the_terms_of_the_tasks_that_it_leads_to():
    placer, collector, _ = made()
    placer.advance(5)
    register(placer, "s", "0-7", topk(0, 1))
    known(placer, 1)
    placement = dict(collector.sent[0][3])
    assert collector.kinds() == [(20, "0-7", "topk")] and collector.announced() == [("added", [(0, 0), (0, 1)])]
    short = ReplicaReport.decode(("s", "0-7", 1, "short", 0.4, {**placement, "guard": 0.5, "plan": 0}))
    placer.handle_report(short, 20)
    placer.handle_report(short, 20)
    placer.finish_batch()
    assert not collector.sent and collector.announced() == [("added", [(1, 0), (1, 1)])]
    consistent(placer)
    placer, collector = restored(placer)
    known(placer, 2)
    assert collector.kinds() == [(20, "0-7", "epoch"), (21, "0-7", "topk")]
    consistent(placer)
    assert not placer._waiting


def test_an_expiry_ends_what_lives_and_not_what_is_held():
    placer, collector, _ = made()
    register(placer, "s", "0-0", boolean(0))
    known(placer, 1)
    register(placer, "s", "0-1", boolean(1))
    collector.kinds()
    placer.handle_report(ReplicaReport("s", "0-0", 1, "expired"), 20)
    assert collector.kinds() == [(20, "0-0", "end")]
    known(placer, 2)
    assert collector.kinds() == [(21, "0-1", "boolean")]
    consistent(placer)


def test_what_is_held_takes_room():
    placer, _, _ = made()
    register(placer, "s", "0-0", boolean(0))
    assert placer.has_room("s", 1) and not placer.has_room("t", 1) and placer.has_room("t", 2)


def test_messages_of_other_tasks_change_the_copy_and_are_answered():
    placer, collector, context = made()
    assert to(placer, 4, 3, 8) == [] and context.counters["withheld_messages"].get_count() == len(TASKS)

    def receive(kind, *record):
        placer._exchange.receive(decode_interest(kind, record), OTHER)
        placer.finish_batch()

    receive("added", 1, np.array([2], np.int32), np.array([8]))
    assert collector.interest == [InterestKnown(1, 4)] and to(placer, 5, 3, 8) == [2]
    receive("ended", 6, np.array([2], np.int32), np.array([8]))
    assert to(placer, 6, 8) == [2], "the watermark may still be below 6"
    placer.advance(6)
    assert to(placer, 7, 8) == [] and context.gauges["interest_pairs"]() == 0
