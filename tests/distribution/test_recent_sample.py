"""The sample that load adjustment decides from."""

import numpy as np
import pytest

from dskype.distribution.learning.recent_sample import RecentSample
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.topology.core.values import pack_state, unpack_state
from tests.distribution import worlds


def restored(found, most):
    state = unpack_state(pack_state(found.snapshot()))
    again = RecentSample(most)
    again.restore(state)
    assert pack_state(again.snapshot()) == pack_state(state)
    return again


def everywhere(name):
    return True


@pytest.mark.parametrize("areas", [False, True])
def test_the_newest_messages_are_kept_whatever_the_batches_and_restarts(areas):
    rng, most = np.random.default_rng(1), 40
    kept, restarted, everything = RecentSample(most), RecentSample(most), []
    for first in range(0, 2_000, 50):
        batch = worlds.messages(rng, 50, first=first)
        batch = worlds.with_areas(rng, batch) if areas else batch
        everything += batch.seq.tolist()
        kept.record(batch)
        at = int(rng.integers(0, 51))
        restarted.record(batch.select(np.arange(at)))
        restarted = restored(restarted, most)
        restarted.record(batch.select(np.arange(at, 50)))
        if first == 950:
            assert kept.sample(everywhere).messages.seq.tolist() == everything[-most:], "at first every message is kept"
            for one in (kept, restarted):
                one.choose_stride(2)  # 1,000 messages in a period: every 50th, so that 40 messages are two periods
    found = [one.sample(everywhere).messages for one in (kept, restarted)]
    assert all(np.array_equal(a, b) for a, b in zip(found[0].columns(), found[1].columns(), strict=True))
    assert found[0].seq.tolist() == [*everything[980:1000], *everything[1000::50]] and (found[0].areas is not None) == areas


@pytest.mark.long
def test_a_present_subscription_is_kept_as_likely_as_any_other():
    rng, sample, present = np.random.default_rng(2), RecentSample(100), set()
    for number in range(4_000):
        name = f"s{number}"
        sample.register(name, worlds.boolean(rng, 300) if number % 5 else worlds.subscription(worlds.sample(rng, 3, 3), 0), present.__contains__)
        present.add(name)
        if number % 3 == 0:
            present.discard(f"s{int(rng.integers(0, number + 1))}")
        if number % 500 == 0:
            sample = restored(sample, 100)
    found = sample.sample(lambda name: name in present)
    assert 25 <= found.n <= 100
    boolean = ~np.isnan(found.rectangles()[:, 0])
    assert 0.6 < boolean.mean() < 0.95 and len(found.terms) == found.offsets[-1] >= found.n
    numbers = [int(name[1:]) for name in sample._subscriptions]
    mean = np.mean([int(name[1:]) for name in present])
    assert set(sample._subscriptions) <= present and abs(np.mean(numbers) - mean) < 500, "old ones and new ones alike"


def test_subscriptions_that_have_ended_take_no_room_from_those_that_are_present():
    """A topology may run for months before somebody asks for the sample, with subscriptions that live for minutes."""
    sample, looked_at = RecentSample(100), 0

    def present(name):
        nonlocal looked_at
        looked_at += 1
        return number - 50 < int(name[1:]) <= number

    one = BooleanSubscription([0.0, 0.0, 9.0, 9.0], ["and", 3, 7], None, None)
    for number in range(20_000):
        sample.register(f"s{number}", one, present)
    assert looked_at < 5 * 20_000, "they are not looked at each time"
    assert sample.sample(present).n == 50


def test_a_subscription_that_is_replaced_counts_as_it_is_now():
    sample = RecentSample(10)
    for west in (0.0, 5.0):
        sample.register("s", BooleanSubscription([west, 0.0, 9.0, 9.0], ["and", 3, 7], None, None), everywhere)
    found = sample.sample(everywhere)
    assert found.rectangles().tolist() == [[5.0, 0.0, 9.0, 9.0]] and found.terms.tolist() == [3]
    assert sample.sample(lambda name: False).n == 0
