"""Whether another distribution plan would load the subscription tasks of a running topology better, by what the topology has just received.

The newest messages and a sample of the living subscriptions are read from Kafka. The load model of ``dskype partition advise`` says what the tasks have to do by the plan in force, by a new one, and with each
distributor. New plans are learned from one half of the sample, and all are judged by the other half.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from dskype.deploy.client.advice import Advice, Candidate, Costs, Judge, advise, learning_options
from dskype.deploy.client.plans import read_current, send_plan
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.records import json_object, rest_of_life
from dskype.distribution import Distributor, HasPartitions, distributor_class, distributor_of_plan, make_distributor
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.migration import matched_tasks
from dskype.distribution.learning.sampling import halves, make_sample
from dskype.spouts.record_values import RecordError
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

__all__ = ["Plans", "TooFewError", "await_plan", "compare_plans", "moved_share", "recent_sample", "renumbered", "send"]

_MOST, _FEWEST = 20_000, 100
"""So many messages and subscriptions make a sample: beyond that it takes long, below that it says nothing."""
_IN_FORCE_S, _ASK_EVERY_S = 600.0, 0.5


class TooFewError(TopologyError):
    """There are too few messages or subscriptions to say anything about plans."""


@dataclass(frozen=True)
class Plans:
    """What the tasks of the subscription bolt have to do by different plans, as the load model says.

    :ivar version: of the plan in force.
    :ivar present: with this plan.
    :ivar new: with a new plan of the same distributor; None: it has no plans.
    :ivar plan: the new plan, learned from the whole sample.
    :ivar moved: the share of the subscriptions that it moves.
    :ivar others: all distributors compared, each with a plan of its own.
    :ivar messages: in the sample; ``subscriptions``: in the sample; ``registered``: about how many there are.
    :ivar with_tasks: number of tasks -> the work of the busiest one for a message, in us, with a plan for so many; None: the distributor cannot have so many.
    """

    version: int
    present: Candidate
    new: Candidate | None
    plan: dict[str, Any] | None
    moved: float
    others: Advice
    messages: int
    subscriptions: int
    registered: int
    with_tasks: Callable[[int], float | None] = field(repr=False, compare=False)

    @property
    def best(self) -> Candidate:
        """The recommended distributor."""
        return self.others.chosen


def compare_plans(client: PubSub, costs: Costs | None = None) -> Plans:
    """Compare the plan in force with others.

    :param client: of the topology, which runs.
    :raises TooFewError: there are too few messages or subscriptions.
    :raises TopologyError: the vocabulary cannot be read here, or the topology does not run.
    """
    settings, costs = client.settings, costs or Costs()
    version, in_force = read_current(client)
    tasks = int(in_force["tasks"])
    present = distributor_of_plan(settings, tasks, in_force)
    sample, registered = recent_sample(client)
    window = min(settings.extent if settings.window_kind == "count" else sample.messages.n, sample.messages.n)
    learned, judged = halves(sample)
    judge = Judge(judged, window, registered, costs)
    own = {key: value for key, value in settings.distributor_options.items() if key not in ("plan", "sample")}
    options, kind = {**learning_options(settings.distributor, registered, sample), **own}, distributor_class(settings.distributor)

    def expect(tasks: int) -> Candidate:
        return judge.expect(make_distributor(settings.distributor, tasks, options, kind.learn(tasks, learned, options)), options)

    def with_tasks(tasks: int) -> float | None:
        try:
            return expect(tasks).slowest_us
        except TopologyError:
            return None

    new, plan, moved = None, None, 0.0
    if kind.replicates:  # without replicas nothing can move
        new, plan = expect(tasks), kind.learn(tasks, sample, options)
        if isinstance(present, HasPartitions):
            plan = renumbered(plan, _near(present, make_distributor(settings.distributor, tasks, options, plan), sample))
        moved = moved_share(present, make_distributor(settings.distributor, tasks, options, plan), sample)
    others = advise(sample, window, tasks, registered, costs)
    return Plans(version, judge.expect(present, options), new, plan, moved, others, sample.messages.n, sample.n, registered, with_tasks)


def send(client: PubSub, plans: Plans) -> int:
    """Send the new plan to the topology; return its version.

    :raises PlanOvertakenError: another plan came since the comparison.
    """
    assert plans.plan is not None
    return send_plan(client, plans.version, plans.plan)


def await_plan(kafka: Any, topology: str, version: int) -> None:
    """Wait until all distribution tasks follow a plan, and all subscriptions live by it.

    :raises TopologyError: they do not, after ten minutes.
    """
    client, deadline = ClusterClient(kafka), time.monotonic() + _IN_FORCE_S
    while True:
        metrics = [task.get("metrics") or {} for task in client.stats(topology).tasks.values()]
        metrics = [one for one in metrics if "plan_version" in one]
        if metrics and all(one["plan_version"] >= version and not one["plan_changing"] for one in metrics):
            return
        if time.monotonic() > deadline:
            raise TopologyError(
                f"Version {version} of the plan of {topology} is not in force.",
                given=f"{sum(one.get('moving', 0) for one in metrics):,} subscriptions have yet to move",
                hint="messages must come for it; 'dskype stats' shows plan_version, plan_changing and moving of the distribution bolt",
            )
        time.sleep(_ASK_EVERY_S)


# -- tasks that stay -------------------------------------------------------------------------------------------------------


def _held(distributor: Distributor, sample: Sample) -> np.ndarray:
    """Return which task has which subscription, int64[subscriptions, tasks] of 0 and 1."""
    found = np.zeros((sample.n, distributor.tasks), np.int64)
    offsets, tasks, _ = distributor.place_all(sample, sample.thresholds)
    found[np.repeat(np.arange(sample.n), np.diff(offsets)), tasks] = 1
    return found


def _near(present: Distributor, other: Distributor, sample: Sample) -> list[int]:
    """Return for each task of another plan the present task whose subscriptions it has."""
    return matched_tasks(_held(other, sample).T @ _held(present, sample)).tolist()


def moved_share(present: Distributor, other: Distributor, sample: Sample) -> float:
    """Return the share of the subscriptions that live on other tasks by another plan."""
    return float((_held(present, sample) != _held(other, sample)).any(axis=1).mean())


def renumbered(plan: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Return a plan with partitions in which task *i* is called ``numbers[i]``, whatever its distributor: in all of them ``task`` and ``tasks`` of a part name tasks."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: change(one) for key, one in value.items()}
        if "task" in found:
            found["task"] = numbers[found["task"]]
        if isinstance(found.get("tasks"), list):
            found["tasks"] = [numbers[task] for task in found["tasks"]]
        return found

    found = change(dict(plan))
    for task, number in enumerate(numbers):
        found["loads"][number] = plan["loads"][task]
    return found


# -- what the topology has received ----------------------------------------------------------------------------------------


def recent_sample(client: PubSub, most: int = _MOST) -> tuple[Sample, int]:
    """Return the newest messages and a sample of the living subscriptions, and about how many of these there are.

    :param most: of each.
    :raises TooFewError: there are fewer than 100 of one of them.
    """
    settings = client.settings
    messages, (subscriptions, registered) = _newest_messages(client, most), _living_subscriptions(client, most)
    if min(len(messages), len(subscriptions)) < _FEWEST:
        raise TooFewError(
            "Too little is known for a plan.", given=f"{len(messages):,} messages, {len(subscriptions):,} subscriptions", legal=f"{_FEWEST} of each or more"
        )
    vocabulary = Vocabulary.load(settings.vocabulary, settings.analyzer()) if settings.vocabulary else Vocabulary.empty()
    sample = make_sample(messages, subscriptions, vocabulary, settings)
    if settings.half_life_ms is not None:  # then the topology places without thresholds, too
        sample = sample._replace(thresholds=np.full(sample.n, -np.inf))
    return sample, registered


def _newest_messages(client: PubSub, most: int) -> list[Any]:
    topics, found = client.message_topics, []
    records = (record for topic in topics.names for record in client.scan(topic, most))
    for record in sorted(heapq.nlargest(most, records, key=lambda record: record.timestamp), key=lambda record: record.timestamp):
        try:
            message = topics.read(record.topic, record.value)
        except RecordError:  # the topology has refused it as well
            continue
        if not message.deleted:
            found.append(message)
    return found


def _living_subscriptions(client: PubSub, most: int) -> tuple[list[Any], int]:
    """Return a sample of the living subscriptions, and about how many there are. What it keeps in memory is bounded."""
    kept: dict[bytes, Any] = {}
    one_in = 1  # by a hash of their ids: a later record of an id meets the same choice
    for record in client.scan(client.topics.subscriptions):
        key = record.key or b""
        if _hash(key) % one_in:
            continue
        kept.pop(key, None)
        if record.value is not None:
            kept[key] = record
        while len(kept) > 2 * most:
            one_in *= 2
            kept = {key: record for key, record in kept.items() if not _hash(key) % one_in}
    now_ms, found = time.time_ns() // 1_000_000, []
    for key, record in kept.items():
        fields = json_object(record.value)
        value = None if fields is None else rest_of_life(fields, record.timestamp, now_ms)
        if value is not None:
            try:
                found.append(client.parse_subscription(key, json.dumps(value).encode()))
            except RecordError:  # the topology has refused it as well
                continue
    chosen = found if len(found) <= most else [found[i] for i in np.linspace(0, len(found) - 1, most).astype(np.int64).tolist()]
    return chosen, len(found) * one_in


def _hash(key: bytes) -> int:
    """Return a number that has nothing to do with the CRC-32 by which distributors choose tasks."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
