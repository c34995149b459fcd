"""The end of boolean subscriptions on one task, with every index: each expires once, also after a restart, and matches nothing from then on."""

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.boolean import INDEXES
from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.message_queue import Arrived
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.settings import Settings
from dskype.topology.core.values import pack_state, unpack_state

SLACK_MS = 60_000


@pytest.fixture(params=sorted(INDEXES))
def settings(request):
    return Settings(boolean_index=request.param)


def opened(settings, *expires_ms):
    """Return subscriptions ``s0``, ``s1``, ... with these times of expiry."""
    found = BooleanSubscriptions(settings)
    for i, end_ms in enumerate(expires_ms):
        found.open(f"s{i}", f"0-{i}", BooleanSubscription([-180, -90, 180, 90], 7, end_ms, None))
    return found


def arrival(ms):
    """Return a message that matches every subscription, and arrives at a time."""
    one, at = np.zeros(1, np.int64), np.zeros(1)
    messages = MessageBatch(one, one, at, at, np.array([0, 1]), np.array([7]), np.ones(1))
    return Arrived(messages, pa.array(["1"]), np.array([ms]), Details.empty(1))


def restarted(settings, subscriptions):
    found = BooleanSubscriptions(settings)
    found.restore(unpack_state(pack_state(subscriptions.snapshot())))
    return found


def test_each_expires_once_even_if_the_task_restarts_before_its_owner_has_ended_it(settings):
    subscriptions = opened(settings, 1000, None, 3000, 2000)
    for restarts in (False, True):
        subscriptions = restarted(settings, subscriptions) if restarts else subscriptions
        assert subscriptions.pop_expired(arrival(SLACK_MS + 999)) == []
    assert subscriptions.pop_expired(arrival(SLACK_MS + 2000)) == [0, 3]
    for restarts in (False, True):
        subscriptions = restarted(settings, subscriptions) if restarts else subscriptions
        assert subscriptions.pop_expired(arrival(SLACK_MS + 2999)) == []
    assert subscriptions.pop_expired(arrival(SLACK_MS + 3000)) == [2]


def test_what_has_expired_matches_nothing_while_it_waits_for_its_end(settings):
    subscriptions = opened(settings, 1000, None)
    assert subscriptions.match(arrival(999))[1].tolist() == [0, 1]
    assert subscriptions.pop_expired(arrival(SLACK_MS + 1000)) == [0]
    for restarts in (False, True):
        subscriptions = restarted(settings, subscriptions) if restarts else subscriptions
        assert subscriptions.match(arrival(SLACK_MS + 1000))[1].tolist() == [1]


def test_what_was_forgotten_does_not_expire_and_its_slot_may_have_another_end(settings):
    subscriptions = opened(settings, 1000, 1000)
    subscriptions.forget(0)
    assert subscriptions.open("other", "0-9", BooleanSubscription([-180, -90, 180, 90], 7, 5000, None)) == 0
    assert subscriptions.pop_expired(arrival(SLACK_MS + 1000)) == [1]
    subscriptions.forget(1)
    assert restarted(settings, subscriptions).pop_expired(arrival(SLACK_MS + 5000)) == [0]
    assert len(subscriptions._expiring) == 1 and not subscriptions._expired
