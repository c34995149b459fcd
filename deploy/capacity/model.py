"""The load model: what subscriptions and messages need, by adding up measured costs (:mod:`dskype.deploy.capacity.costs`).

It is linear: each message, tuple, result and subscription costs what it costs on one machine, and nothing else is a limit. docs/guides/scale.md says what the model does not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dskype.deploy.capacity.costs import DISTRIBUTORS, Routing, cost

__all__ = ["Bottleneck", "Load", "Need", "Site", "bottlenecks", "choose", "need"]

_US = 1e-6
_LEAST_BROKERS = 3


@dataclass(frozen=True)
class Load:
    """What is to be carried.

    :ivar subscriptions: how many.
    :ivar rate: messages per second.
    :ivar kind: ``topk`` or ``boolean``.
    :ivar k: entries of a list, top-k only.
    :ivar window_s: span of the window in seconds, top-k only.
    :ivar results_per_message: None: as the costs say.
    """

    subscriptions: int
    rate: float
    kind: str = "topk"
    k: int = 20
    window_s: float = 3600.0
    results_per_message: float | None = None

    @property
    def results(self) -> float:
        """Results per message: a message enters a list and a later one leaves it for it, so at most 2 k / |W| per subscription."""
        if self.results_per_message is not None:
            return self.results_per_message
        if self.kind == "boolean":
            return cost("matches") * self.subscriptions
        return cost("delta_share") * 2 * self.k / max(self.k, self.rate * self.window_s) * self.subscriptions


@dataclass(frozen=True)
class Site:
    """What a host has, and how full it may be.

    :ivar cores: of a host.
    :ivar memory_bytes: of a host.
    :ivar network_bytes: of a host, per second and direction.
    :ivar full: the share of each that may be used.
    :ivar copies: of each record in Kafka.
    """

    cores: int = 16
    memory_bytes: float = 64e9
    network_bytes: float = 1.25e9
    full: float = 0.6
    copies: int = 3


class Need(NamedTuple):
    """What a load needs with one distributor.

    :ivar subscription_tasks: of the subscription bolt; inf if no number is enough, as for what follows from it.
    :ivar spout_tasks: of the message spout; ``distribution_tasks``, ``message_tasks`` and ``result_tasks`` of those bolts.
    :ivar tuples: subscription tasks that get a message.
    :ivar worker_cores: at work, of all worker hosts; ``broker_cores`` of all brokers.
    :ivar memory_bytes: of all tasks, without Spark's JVMs and Python workers.
    :ivar broker_in_bytes: per second into all brokers, copies included; ``broker_out_bytes`` out of them.
    :ivar result_partitions: of the topic of results.
    :ivar registration_s: until the cores of the worker hosts have registered all subscriptions.
    :ivar hosts: worker hosts.
    """

    distributor: str
    subscription_tasks: float
    spout_tasks: int
    distribution_tasks: int
    message_tasks: int
    result_tasks: int
    tuples: float
    results_per_s: float
    worker_cores: float
    broker_cores: float
    memory_bytes: float
    broker_in_bytes: float
    broker_out_bytes: float
    result_partitions: int
    registration_s: float
    hosts: float
    brokers: float


class Bottleneck(NamedTuple):
    """Something that is full at a rate, while everything else is as large as it has to be.

    :ivar rate: messages per second.
    :ivar way: what helps.
    """

    rate: float
    what: str
    way: str


def _tuples(routing: Routing, tasks: float) -> float:
    if routing.tuples is None:
        return tasks
    return min(tasks, routing.tuples + routing.growth * max(0.0, math.log2(max(1.0, tasks) / 32)))


def _per_result(load: Load, routing: Routing) -> float:
    """Return the processor time of a result in the workers, replicas included, us."""
    merge = cost("result_merge") if routing.replication > 1 else 0.0
    return routing.repeats * cost(f"{load.kind}_result") + cost("result_transport") + merge


def _subscription_tasks(load: Load, site: Site, routing: Routing) -> float:
    """Return how many tasks of the subscription bolt share the work; inf if messages alone fill each of them."""
    each = routing.repeats * cost(f"{load.kind}_result") + (0.0 if routing.passes else cost("result_transport"))
    changes = load.rate * load.results * each * _US * routing.balance
    memory = load.subscriptions * routing.replication * cost(f"{load.kind}_subscription")
    least = max(1.0, memory / (site.memory_bytes * site.full / site.cores))  # a task has its core's share of a host's memory
    if routing.tuples is None:
        left = site.full - load.rate * cost("tuple") * _US
        return math.ceil(max(least, changes / left)) if left > 0 else math.inf
    tasks = least
    for _ in range(50):  # the number of tasks that get a message grows slower than that of all tasks
        tuples = load.rate * _tuples(routing, tasks) * cost("tuple") * _US * routing.balance
        tasks = max(least, (changes + tuples) / site.full)
    return math.ceil(tasks)


def need(load: Load, site: Site, routing: Routing) -> Need:
    """Return what a load needs with a distributor.

    :raises ValueError: a number of the load or the site is not above 0.
    """
    if min(load.subscriptions, load.rate, load.k, load.window_s, site.cores, site.memory_bytes, site.network_bytes, site.full, site.copies) <= 0:
        raise ValueError("a load and a site are numbers above 0")
    tasks = _subscription_tasks(load, site, routing)
    tuples, results = _tuples(routing, tasks), load.rate * load.results
    # The first tuple of a message is in its own cost.
    more = max(0.0, tuples - 1) * (cost("tuple") + cost("tuple_transport"))
    worker_us = cost(f"{load.kind}_message") - cost("broker_message") + (routing.distribution - 1) * cost("distribution_message") + more
    worker_cores = load.rate * worker_us * _US + results * _per_result(load, routing) * _US
    broker_cores = (load.rate * cost("broker_message") + results * cost("result_broker")) * _US * site.copies
    window = load.rate * load.window_s if load.kind == "topk" else 0.0
    merge = cost("result_merge") if routing.replication > 1 else 0.0
    counts = {
        "spout": load.rate * cost("spout_message"),
        "distribution": load.rate * cost("distribution_message") * routing.distribution,
        "result": results * (merge + cost("result_transport")) if routing.passes else 0.0,
    }
    small = {name: max(1, math.ceil(us * _US / site.full)) for name, us in counts.items()}
    message_tasks = max(1, math.ceil(window * cost("window_message") / (site.memory_bytes * site.full / site.cores)))
    # A message comes in, goes to the distribution bolt, to a message bolt, and to subscription tasks; a result passes its bolt.
    frames = 2 + tuples if load.kind == "topk" else 1 + tuples
    passed = results * (2 if routing.passes else 1)
    written = load.rate * (cost("message_bytes") + frames * cost("tuple_bytes")) + passed * cost("result_bytes")
    all_tasks = tasks + message_tasks + sum(small.values())
    memory = (
        load.subscriptions * routing.replication * cost(f"{load.kind}_subscription") + window * cost("window_message") + all_tasks * cost("task_memory")
        if math.isfinite(tasks)
        else math.inf
    )
    network = written / (site.network_bytes * site.full)
    hosts = max(worker_cores / (site.cores * site.full), memory / max(1.0, site.memory_bytes * site.full - cost("host_memory")), network)
    brokers = max(_LEAST_BROKERS, broker_cores / (site.cores * site.full), network * site.copies)
    registration = cost("boolean_registration" if load.kind == "boolean" else "registration") * routing.replication
    return Need(
        distributor=routing.name,
        subscription_tasks=tasks,
        spout_tasks=small["spout"],
        distribution_tasks=small["distribution"],
        message_tasks=message_tasks if load.kind == "topk" else 0,
        result_tasks=small["result"],
        tuples=tuples,
        results_per_s=results,
        worker_cores=worker_cores,
        broker_cores=broker_cores,
        memory_bytes=memory,
        broker_in_bytes=written * site.copies,
        broker_out_bytes=written * site.copies,  # to the other brokers, and to who reads it
        result_partitions=max(1, math.ceil(results * cost("result_bytes") / (cost("partition_bytes") * site.full))),
        registration_s=load.subscriptions * registration * _US / max(1.0, _rounded_up(hosts) * site.cores * site.full),
        hosts=_rounded_up(hosts),
        brokers=_rounded_up(brokers),
    )


def _rounded_up(value: float) -> float:
    return math.ceil(value) if math.isfinite(value) else math.inf


def choose(load: Load, site: Site) -> list[Need]:
    """Return what the load needs with each distributor for its kind, the one with the fewest hosts and brokers first."""
    found = [need(load, site, routing) for routing in DISTRIBUTORS if load.kind in routing.kinds]
    return sorted(found, key=lambda n: (n.hosts + n.brokers, n.worker_cores + n.broker_cores, n.subscription_tasks))


def bottlenecks(load: Load, site: Site, chosen: Need) -> list[Bottleneck]:
    """Return what is full at some rate however many worker hosts there are, the lowest rate first.

    :param chosen: what the load needs with the distributor.
    """
    routing = next(r for r in DISTRIBUTORS if r.name == chosen.distributor)
    boolean = load.kind == "boolean"
    found = [
        Bottleneck(
            1 / (cost("spout_message") * _US),
            "one task of the message spout" + ("" if boolean else ", which a window of a number of messages needs"),
            "a time window (dskype.window.span.ms): then there are as many tasks as the topic has partitions"
            + ("; boolean subscriptions do not depend on the window" if boolean else ""),
        ),
        Bottleneck(
            1 / (cost("distribution_message") * routing.distribution * _US),
            "one task of the distribution bolt",
            "several tasks: each routes a share of the messages",
        ),
        Bottleneck(
            site.network_bytes * site.full * chosen.brokers / (chosen.broker_in_bytes / load.rate),
            f"the network of {chosen.brokers:,.0f} brokers",
            "more brokers, or fewer copies",
        ),
    ]
    if routing.tuples is None:
        found.append(
            Bottleneck(
                1 / (cost("tuple") * _US),
                f"every subscription task: with {routing.name} it gets every message",
                "a distributor that routes by keywords or by place",
            )
        )
    if load.results > 0:
        found.append(
            Bottleneck(
                cost("partition_bytes") / (cost("result_bytes") * load.results),
                "one partition of the topic of results",
                "make the topic with more partitions before the first start",
            )
        )
    return sorted(found)
