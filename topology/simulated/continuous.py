"""Continuous queries in the simulated transport: each partition has batches of its own, and executors write their records themselves.

What differs from micro-batches: a partition goes on while a batch of another one of the same executor has failed; a process that cannot write ends, so that
its task is never ahead of what was written; nobody runs a batch beside its executor, but a query that was replaced may go on reading and writing.
"""

from __future__ import annotations

from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.executor import route
from dskype.topology.core.frames import OutRecord
from dskype.topology.core.nudges import add_nudges
from dskype.topology.core.snapshots import JournalTakenError
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["continuous_components", "run_partition"]


def continuous_components(plan: TopologyPlan) -> frozenset[str]:
    """Return the components that ask for continuous queries and can have them."""
    return frozenset(
        c
        for c in plan.topology.components
        if plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] == "continuous" and not isinstance(plan.spec(c).obj, KafkaSpout)
    )


def run_partition(sim: Any, query: Any) -> None:
    """Run the next batch of one partition of a continuous query, perhaps with faults.

    :param sim: the :class:`~dskype.topology.simulated.engine.SimulatedTopology`, which has a seed.
    """
    rng = sim._random
    sim.write_late()
    if sim._strikes("all_restarted"):
        sim.restart_all()
    elif sim._strikes("restarted"):
        sim._restart(query)
    cut = sim._cut(query)
    if not (places := sorted({*query.unacknowledged, *cut})):
        return
    place = rng.choice(places)
    # The shim sends the same rows again until the brokers have what follows from them.
    index = sim.plan.executor_of(route(sim.plan, query.component, *place))
    ranges = {place: query.unacknowledged.get(place) or cut[place]}
    query.unacknowledged[place] = ranges[place]
    query.batch_id += 1
    if sim._strikes("snapshot"):
        for executor in query.executors.values():
            sim._save(executor, query.batch_id)
    if sim._strikes("lost_before"):
        sim._lose_executors(query)
    if query.stale is None and sim._strikes("second_owner"):
        sim._leave_behind(query)
    others = [lambda: sim._run_stale(query)] * (query.stale is not None)
    try:
        sim._let_run(others, 0.3)
        sim.store.in_between = lambda: sim._let_run(others, 0.3)
        out = add_nudges(sim._handle(query, sim._batch_records(ranges)), sim.nudged)
        sim._let_run(others, 0.5)
    except JournalTakenError:
        sim._count("journal_taken")
        query.executors.pop(index, None)
        return
    finally:
        sim.store.in_between = None
    if sim._strikes("lost_after"):
        written, acknowledged = 0, False
    elif sim._strikes("torn_write"):
        written, acknowledged = rng.randint(0, len(out)), False
    else:
        written, acknowledged = len(out), not sim._strikes("repeated")
    for record in _in_any_order(out, rng)[:written]:
        sim._write(record)
    if not acknowledged:  # the process has ended before it could answer
        query.executors.pop(index, None)
        return
    del query.unacknowledged[place]
    sim._commit(query, ranges)


def _in_any_order(records: list[OutRecord], rng: Any) -> list[OutRecord]:
    """Mix the records of different partitions; those of one partition stay in order."""
    places = [(r.topic, r.partition) for r in records]
    queues: dict[Any, list[OutRecord]] = {}
    for place, record in zip(places, records):
        queues.setdefault(place, []).append(record)
    rng.shuffle(places)
    iterators = {place: iter(queue) for place, queue in queues.items()}
    return [next(iterators[place]) for place in places]
