"""The end of boolean subscriptions on one task: each expires once, also after a restart, and matches nothing from then on."""

import numpy as np
import pyarrow as pa

from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.message_queue import Arrived
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.batch import MessageBatch
from dskype.spouts.settings import Settings
from dskype.topology.core.values import pack_state, unpack_state

SLACK_MS = 60_000


def opened(*expires_ms):
    """Return subscriptions ``s0``, ``s1``, ... with these times of expiry."""
    found = BooleanSubscriptions(Settings())
    for i, end_ms in enumerate(expires_ms):
        found.open(f"s{i}", f"0-{i}", BooleanSubscription([-180, -90, 180, 90], 7, end_ms, None))
    return found


def arrival(ms):
    """Return a message that matches every subscription, and arrives at a time."""
    one, at = np.zeros(1, np.int64), np.zeros(1)
    messages = MessageBatch(one, one, at, at, np.array([0, 1]), np.array([7]), np.ones(1))
    return Arrived(messages, pa.array(["1"]), np.array([ms]))


def restarted(subscriptions):
    found = BooleanSubscriptions(Settings())
    found.restore(unpack_state(pack_state(subscriptions.snapshot())))
    return found


def test_each_expires_once_even_if_the_task_restarts_before_its_owner_has_ended_it():
    subscriptions = opened(1000, None, 3000, 2000)
    for make in (lambda s: s, restarted):
        subscriptions = make(subscriptions)
        assert subscriptions.pop_expired(arrival(SLACK_MS + 999)) == []
    assert subscriptions.pop_expired(arrival(SLACK_MS + 2000)) == [0, 3]
    for make in (lambda s: s, restarted):
        subscriptions = make(subscriptions)
        assert subscriptions.pop_expired(arrival(SLACK_MS + 2999)) == []
    assert subscriptions.pop_expired(arrival(SLACK_MS + 3000)) == [2]


def test_what_has_expired_matches_nothing_while_it_waits_for_its_end():
    subscriptions = opened(1000, None)
    assert subscriptions.match(arrival(999))[1].tolist() == [0, 1]
    assert subscriptions.pop_expired(arrival(SLACK_MS + 1000)) == [0]
    for make in (lambda s: s, restarted):
        subscriptions = make(subscriptions)
        assert subscriptions.match(arrival(SLACK_MS + 1000))[1].tolist() == [1]


def test_what_was_forgotten_does_not_expire_and_its_slot_may_have_another_end():
    subscriptions = opened(1000, 1000)
    subscriptions.forget(0)
    assert subscriptions.open("other", "0-9", BooleanSubscription([-180, -90, 180, 90], 7, 5000, None)) == 0
    assert subscriptions.pop_expired(arrival(SLACK_MS + 1000)) == [1]
    subscriptions.forget(1)
    assert restarted(subscriptions).pop_expired(arrival(SLACK_MS + 5000)) == [0]
    assert len(subscriptions._expiring) == 1 and not subscriptions._expired
