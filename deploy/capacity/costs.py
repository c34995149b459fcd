"""Measured costs: processor time, bytes and counts, each with the command that measured it and the date. docs/guides/scale.md shows the same table.

The processor times are of one core of the machine of docs/benchmarks/README.md, with continuous queries, the default until 2026-11-27.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COSTS", "DISTRIBUTORS", "Cost", "Routing", "cost"]

_TOPK = "`dskype bench throughput --subscriptions 100000 --window 200000 --results deltas --warm-up 30`, 2026-11-23"
_LISTS = "`dskype bench throughput --subscriptions 100000 --window 200000 --results topk --warm-up 30`, 2026-11-23"
_MILLION = "`dskype bench throughput --subscriptions 1000000 --window 200000 --results deltas --warm-up 40 --seconds 60`, 2026-11-23"
_MICRO = "the same with 100,000 and a million subscriptions in micro-batches, 2026-11-22"
_BOOLEAN = "docs/benchmarks/boolean.md, 1 and 5 million boolean subscriptions, 2026-11-23"
_CHAIN = "`python -m dskype.deploy.lab.emulator.chain --only throughput --acking no`, batch bolts, 2026-11-23"
_ROUTING = "`dskype bench distribution --full --only methods --data places --window 50000`, and without `--full`, 2026-11-23"
_SPARK = "`dskype bench distribution --spark --methods hashing,prefix --tasks 2 --subscriptions 5000 --window 10000`, 2026-11-23"
_BYTES = "frames of 256 places, 6.7 words each, 2026-11-23"


class Cost(NamedTuple):
    """A measured cost.

    :ivar value: in ``unit``.
    :ivar what: what costs it.
    :ivar source: the command or page that measured it, and when.
    """

    value: float
    unit: str
    what: str
    source: str


COSTS = {
    "topk_message": Cost(29, "µs", "a message in everything but its results, all processes: 112 µs less 17 deltas", _TOPK),
    "boolean_message": Cost(34, "µs", "a message with boolean subscriptions in everything but its matches: 35 µs less 4.8 matches", _BOOLEAN),
    "spout_message": Cost(16, "µs", "of these, the message spout: the most of all runs", _LISTS),
    "distribution_message": Cost(5.0, "µs", "of these, the distribution bolt where it routes nothing", _TOPK),
    "broker_message": Cost(6.6, "µs", "of these, the broker: 20 µs less 17 deltas", _TOPK),
    "tuple": Cost(
        1.08,
        "µs",
        "a message at a subscription task that it changes nothing at: 47 µs with hashing, 22 with prefix for 28.4 fewer tuples and 23 more changes",
        _ROUTING,
    ),
    "tuple_transport": Cost(0.23, "µs", "a tuple's hop in all processes: 1.71 cores for 2,463,427 tuples/s over three hops", _CHAIN),
    "topk_result": Cost(2.6, "µs", "a delta in the subscription bolt, matching included: 44 µs for 17", _TOPK),
    "boolean_result": Cost(0.34, "µs", "a match in the subscription bolt: 15.3 less 8.8 µs for 19.1 more of them", _BOOLEAN),
    "result_transport": Cost(1.5, "µs", "a result in the client that writes it: 26 µs for 17", _TOPK),
    "result_broker": Cost(0.8, "µs", "a result in the broker: 147 less 20 µs for 161 more of them", _MILLION),
    "result_merge": Cost(2.8, "µs", "a result whose replicas the result bolt merges: 49 µs more for 17.4 of them", _SPARK),
    "delta_share": Cost(0.87, "", "deltas of a subscription per message, as a share of 2 k / window: 17 of 20, 178 of 200", _MILLION),
    "matches": Cost(4.8e-6, "", "matches per message and boolean subscription, unless you know better: 4.8 with a million", _BOOLEAN),
    "topk_subscription": Cost(2_100, "bytes", "a subscription in all processes, k = 20: 5.3 less 3.5 GiB for 900,000 more", _MICRO),
    "boolean_subscription": Cost(376, "bytes", "a boolean subscription in all processes: 4.6 less 3.2 GiB for 4 million more", _BOOLEAN),
    "window_message": Cost(
        445,
        "bytes",
        "a message in the window of the message bolt (`chunks`), with what filters look at",
        "`FilteredWindow.memory_bytes`, 100,000 places, 2026-11-28",
    ),
    "registration": Cost(332, "µs", "a top-k subscription, registered and looked up in a full window: 166 s on two cores for a million", _MILLION),
    "boolean_registration": Cost(143, "µs", "a boolean subscription, registered: 358 s on two cores for 5 million", _BOOLEAN),
    "message_bytes": Cost(129, "bytes", "a message as JSON", "20,000 places, 2026-11-23"),
    "tuple_bytes": Cost(161, "bytes", "a message in a frame", _BYTES),
    "result_bytes": Cost(199, "bytes", "a result in its topic: 12,000/s fill 32 GiB in four hours", "docs/concepts/pubsub.md, 2026-11-22"),
    "partition_bytes": Cost(60e6, "bytes/s", "results into one partition: the most that a run wrote, 17,671 messages/s with 17 deltas of 199 bytes", _TOPK),
    "task_memory": Cost(200e6, "bytes", "an executor's process without subscriptions", "`dskype demo`, PSS, 2026-11-22"),
    "host_memory": Cost(1.5e9, "bytes", "Spark's JVM and Python workers of a host", "docs/guides/failures.md, soak, 2026-11-22"),
}
"""Every cost by its name."""


class Routing(NamedTuple):
    """What a distributor does to messages and subscriptions, from the routing simulation.

    :ivar name: the distributor.
    :ivar kinds: the kinds of subscriptions that it is meant for.
    :ivar tuples: tasks that get a message, of 32; None: all, however many there are.
    :ivar growth: how many more tasks get it whenever the number of tasks doubles.
    :ivar replication: tasks on which a subscription lives.
    :ivar repeats: how often a result is found: by every replica, or, where a message reaches one of them, once.
    :ivar balance: largest over mean work of the tasks.
    :ivar distribution: processor time of the distribution bolt, as a multiple of that which routes nothing.
    """

    name: str
    kinds: tuple[str, ...]
    tuples: float | None
    growth: float
    replication: float
    repeats: float
    balance: float
    distribution: float

    @property
    def passes(self) -> bool:
        """Whether results pass the result bolt, which writes them. With hashing the tasks of the subscription bolt do so."""
        return self.name != "hashing"


DISTRIBUTORS = (
    Routing("hashing", ("topk", "boolean"), None, 0.0, 1.00, 1.00, 1.08, 1.0),
    Routing("location", ("topk",), None, 0.0, 1.00, 1.00, 1.19, 1.0),
    Routing("keyword", ("topk",), 3.6, 0.55, 1.82, 1.82, 1.29, 1.9),
    Routing("prefix", ("topk",), 3.6, 0.55, 1.82, 1.82, 1.38, 1.9),
    Routing("agrid", ("boolean",), 0.6, 0.0, 1.22, 1.00, 1.38, 1.5),
    Routing("hybrid", ("boolean",), 0.6, 0.0, 1.23, 1.00, 1.38, 1.7),
)
"""The distributors. hashing to prefix: docs/benchmarks/distribution.md, places, 32 tasks, a million subscriptions (location with cells by work), and prefix
with 128 tasks for the growth. agrid and hybrid: docs/benchmarks/tornado.md, routing alternatives; hybrid was measured beside other work, so it has agrid's balance. The last column:
hashing and prefix on Spark, the others by their times to route."""


def cost(name: str) -> float:
    """Return the value of a cost.

    >>> cost("spout_message")
    16
    """
    return COSTS[name].value
