"""What a distribution task remembers of subscriptions."""

import random
import tracemalloc

import pytest

from dskype.bolts.placement.registry import Entry, Registry, SubscriptionInterest
from dskype.topology.core.values import pack_state, unpack_state


def random_interest(rng):
    regions = rng.choice([None, (), tuple(rng.sample(range(1 << 20), rng.randint(1, 4)))])
    return SubscriptionInterest(regions, tuple(rng.randrange(-(1 << 62), 1 << 62) for _ in range(rng.randint(0, 5))))


@pytest.mark.parametrize("summaries", [False, True])
def test_entries_come_back_as_they_were_put_in(summaries):
    rng, registry, plain = random.Random(4), Registry(), {}
    for _ in range(2000):
        name = f"s{rng.randrange(300)}"
        if rng.random() < 0.3:
            registry.remove(name)
            plain.pop(name, None)
        else:
            entry = Entry(
                f"{rng.randrange(40)}-{rng.randrange(1 << 40)}",
                rng.random() < 0.5,
                rng.randrange(1, 1 << 31),
                tuple(sorted(rng.sample(range(1000), rng.randint(1, 6)))),
                random_interest(rng) if summaries else None,
            )
            registry.set(name, entry)
            plain[name] = entry
    copy = Registry()
    copy.restore(unpack_state(pack_state(registry.snapshot())))
    for found in (registry, copy):
        assert {name: found.get(name) for name in found.names()} == plain
        assert len(found) == len(plain) and found.replicas == sum(len(entry[3]) for entry in plain.values())
        assert found.get("nobody") is None and not found.may_shrink("nobody")
        assert all(found.may_shrink(name) == (topk and len(tasks) > 1) for name, (_, topk, _, tasks, _) in plain.items())


@pytest.mark.long
def test_a_million_subscriptions_take_some_200_megabytes():
    n = 20_000
    tracemalloc.start()
    registry = Registry()
    for i in range(n):
        registry.set(f"subscription-{i}", Entry(f"0-{i}", True, 1, (i % 32, 40)))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / n < 220
