"""Distribution plans of a running topology: read the current one, send another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dskype.distribution import DISTRIBUTORS, HasPartitions, distributor_of_plan, make_distributor, start_distributor
from dskype.distribution.base import TAKEOVER, read_takeover
from dskype.distribution.methods.partitioned import Partitioned
from dskype.spouts.records import PLAN_BYTES_MAX, PLAN_VERSION_MAX, RecordError, parse_plan
from dskype.spouts.settings import Settings
from dskype.spouts.topics import PLAN_KEY
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.planning.outline import PlanOutline
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

__all__ = [
    "SUBSCRIPTION_BOLT",
    "PlanOvertakenError",
    "component_tasks",
    "distributor_of",
    "fitting",
    "is_usable",
    "parse_record",
    "partitioned",
    "plan_in_force",
    "read_current",
    "read_version",
    "send_plan",
    "with_partitions",
]

SUBSCRIPTION_BOLT = "subscription-bolt"

_AGAIN = "'dskype partition show' shows the plan in force; make the change again"


class PlanOvertakenError(TopologyError):
    """Another plan came first, so the topology ignores this one."""


def distributor_of(plan: Mapping[str, Any]) -> Any:
    """Return the distributor of a plan."""
    return make_distributor(plan["distributor"], plan["tasks"], plan=plan)


def with_partitions(plan: Mapping[str, Any]) -> HasPartitions:
    """Return the distributor of a plan with partitions.

    :raises IllegalArgumentException: the distributor has no partitions.
    """
    return _checked(plan, HasPartitions, "This distributor has no partitions.")


def partitioned(plan: Mapping[str, Any]) -> Partitioned:
    """Return the distributor of a plan whose partitions the monitor can rearrange.

    :raises IllegalArgumentException: it cannot.
    """
    return _checked(plan, Partitioned, "The monitor cannot balance the partitions of this distributor.")


def _checked(plan: Mapping[str, Any], kind: type, problem: str) -> Any:
    found = distributor_of(plan)
    if not isinstance(found, kind):
        raise IllegalArgumentException(
            problem, given=plan["distributor"], legal=", ".join(sorted(name for name, found in DISTRIBUTORS.items() if issubclass(found, kind)))
        )
    return found


def is_usable(settings: Settings, tasks: Any, plan: Mapping[str, Any]) -> bool:
    """Tell whether a topology uses a plan. It refuses others, and goes on with the plan before them.

    :param settings: of the topology.
    :param tasks: of its subscription bolt.
    """
    if type(tasks) is not int or tasks < 1:
        return False
    try:
        distributor_of_plan(settings, tasks, read_takeover(plan)[0])
    except IllegalArgumentException:
        return False
    return True


def plan_in_force(client: Any) -> tuple[int, dict[str, Any] | None]:
    """Return version and plan of the newest usable record in the topic of plans; (0, None) if there is none. How the plan takes over is in it.

    :param client: a ``PubSub``.
    """
    return _in_force(client, _arrived(client))


def read_current(client: Any) -> tuple[int, dict[str, Any]]:
    """Return version and plan that the running topology follows. Version 0 is the plan that it started with. How the plan takes over is not in it.

    :param client: a ``PubSub``.
    :raises TopologyError: the topology does not run.
    """
    conf = client.running_conf()
    if conf is None:
        raise TopologyError("There is no such topology.", given=client.name, hint="'dskype list' lists those that run")
    version, plan = plan_in_force(client)
    return version, _start_plan(client) if plan is None else read_takeover(plan)[0]


def _arrived(client: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return (version, plan) of the records in the topic of plans that a topology looks at: each version is above all before it."""
    found: list[tuple[int, dict[str, Any]]] = []
    for record in client.scan(client.topics.plans):
        version, plan = parse_record(record.value)
        if plan is not None and version > (found[-1][0] if found else 0):
            found.append((version, plan))
    return found


def _in_force(client: Any, arrived: Sequence[tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any] | None]:
    if not arrived:
        return 0, None
    fits = fitting(client)
    return next(((version, plan) for version, plan in reversed(arrived) if fits(plan)), (0, None))


def fitting(client: Any) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that tells whether the running topology uses a plan.

    :param client: a ``PubSub``.
    """
    settings, tasks = client.settings, _tasks(client.running())
    return lambda plan: is_usable(settings, plan.get("tasks") if tasks is None else tasks, plan)


def _tasks(record: Mapping[str, Any] | None) -> int | None:
    """Return the number of tasks of the subscription bolt in a topology's record in the nimbus topic; None: it does not say so."""
    try:
        return PlanOutline.from_json(record["plan"]).components[SUBSCRIPTION_BOLT].num_tasks  # type: ignore[index]
    except (ValueError, KeyError, TypeError, AttributeError):  # there is no record, or it is that of an earlier version
        return None


def parse_record(value: bytes | None) -> tuple[int, dict[str, Any] | None]:
    """Return version and plan in the value of a record of the topic of plans; (0, None) if the topology refuses it."""
    try:
        return parse_plan(value)
    except RecordError:
        return 0, None


def read_version(client: Any, version: int) -> dict[str, Any] | None:
    """Return the plan of a version that the topology has followed, as :func:`read_current` does; None if Kafka has it no more.

    :param client: a ``PubSub``.
    :param version: 0 is the plan with which it started.
    :raises TopologyError: the topology does not run.
    """
    if version == 0:
        return _start_plan(client)
    for record in client.scan(client.topics.plans):
        found, content = parse_record(record.value)
        if found == version and content is not None:  # of several plans with one version, the first one counts
            content.pop(TAKEOVER, None)
            return content
    return None


def _start_plan(client: Any) -> dict[str, Any]:
    settings, tasks = client.settings, _tasks(client.running())
    vocabulary = Vocabulary.load(settings.vocabulary, settings.analyzer()) if settings.vocabulary else Vocabulary.empty()
    return start_distributor(settings, len(component_tasks(client)) if tasks is None else tasks, vocabulary).plan()


def component_tasks(client: Any, component: str = SUBSCRIPTION_BOLT) -> list[int]:
    """Return the ids of a component's tasks, in the order of their indexes."""
    reports = ClusterClient(client.kafka).stats(client.name).tasks
    tasks = sorted(task for task, report in reports.items() if report["component"] == component)
    if not tasks:
        raise TopologyError(
            "The topology has no such component, or its tasks have not reported yet.",
            given=component,
            legal=", ".join(sorted({r["component"] for r in reports.values() if not r["component"].startswith("__")})) or None,
        )
    return tasks


def send_plan(client: Any, replaced: int, plan: Mapping[str, Any]) -> int:
    """Make the running topology change to a plan; return its version, which is above all others in the topic. Of several plans with one version, the first one in the topic counts.

    :param client: a ``PubSub``.
    :param replaced: version of the plan that this one is made of, as :func:`read_current` returned it.
    :raises TopologyError: the plan is too large for a record.
    :raises PlanOvertakenError: another plan came since, for example from load balancing.
    """
    arrived = _arrived(client)
    in_force, _ = _in_force(client, arrived)
    if in_force > replaced:
        raise PlanOvertakenError(
            "The plan is not sent, because another one came first.",
            given=f"a change of version {replaced}",
            legal=f"a change of version {in_force}",
            hint=_AGAIN,
        )
    version = max([replaced, *(seen for seen, _ in arrived)]) + 1
    if version > PLAN_VERSION_MAX:
        raise TopologyError(
            "The topic of plans has had the highest version.", given=version, legal=f"up to {PLAN_VERSION_MAX}", hint="start the topology with another name"
        )
    value = json.dumps({"v": 1, "version": version, "plan": plan}, separators=(",", ":")).encode()
    if len(value) > PLAN_BYTES_MAX:
        raise TopologyError(
            "The plan is too large for a record of Kafka.",
            given=f"{len(value):,} bytes, {len(with_partitions(plan).partitions()):,} partitions",
            legal=f"up to {PLAN_BYTES_MAX:,} bytes",
            hint="learn one with fewer partitions: --option method=balanced",
        )
    client.send_plan(value)
    client.flush()
    first = next((record.value for record in client.scan(client.topics.plans) if parse_record(record.value)[0] >= version), value)
    if first != value:
        _keep_newest(client)
        raise PlanOvertakenError("The plan is ignored, because another one came first.", given=version, hint=_AGAIN)
    return version


def _keep_newest(client: Any) -> None:
    """Let compaction keep the newest plan of clients, and not an ignored one behind it: write it again, until it is the last one of its key."""
    while True:
        newest, counts, last = 0, None, b""
        for record in client.scan(client.topics.plans):
            version, _ = parse_record(record.value)
            if version > newest:
                newest, counts = version, record
            if record.key == PLAN_KEY:
                last = record.value
        if counts is None or counts.key != PLAN_KEY or counts.value == last:
            return
        client.send_plan(counts.value)
        client.flush()
