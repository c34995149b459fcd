"""One executor of a query, simulated: it gets the records of its partitions one by one, cuts its own batches, and writes its records itself.

- An executor goes on while a batch of another executor of its component has failed.
- An executor that cannot write ends, so its tasks are never ahead of what was written. Its successor begins where everything before was written, and cuts its
  batches elsewhere.
- Nobody runs a batch beside its executor. But a query that was replaced may go on reading and writing.
- An executor that Spark starts on another host begins at its snapshots, and emits again.
- Spark may pass on records again, which the executor leaves out.
- Spouts emit without a record, too.
- Executors report from time to time and not with each batch.

Micro-batches take the same path; only the pulses differ, which wake an executor for an idle spout.
"""

from __future__ import annotations

from typing import Any

from dskype.topology.config import Config
from dskype.topology.core.executor import route, start_positions
from dskype.topology.core.frames import OutRecord, expand_records
from dskype.topology.core.loss import LostInputError
from dskype.topology.core.next_offsets import NextOffsets
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

__all__ = ["real_time_components", "report", "run_executor"]

_EMITS = 0.3
"""How often a spout that may emit is asked before its next record comes."""


def real_time_components(plan: TopologyPlan) -> frozenset[str]:
    """Return the components that ask for real-time queries."""
    return frozenset(c for c in plan.topology.components if plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] == "real-time")


def run_executor(sim: Any, query: Any) -> None:
    """Run the next batch of one executor of a query, perhaps with faults.

    :param sim: the :class:`~dskype.topology.simulated.engine.SimulatedTopology`, which has a seed.
    """
    rng = sim._random
    sim.write_late()
    sim._perhaps_restart(query)
    by_executor: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
    for place, cut in sim._cut(query).items():
        by_executor.setdefault(sim.plan.executor_of(route(sim.plan, query.component, *place)), {})[place] = cut
    if not by_executor:
        return
    index = rng.choice(sorted(by_executor))
    if sim._strikes("elsewhere"):
        _move(sim, query, index)
        return
    ranges = by_executor[index]
    try:
        records = _begun_again(sim, ranges) if sim._strikes("begun_again") else sim._batch_records(ranges)
    except LostInputError:  # an executor that it has replaced was ahead of it
        sim._count("overtaken")
        _move(sim, query, index)
        return
    query.batch_id += 1
    sim._perhaps_save(query)
    if sim._strikes("lost_before"):
        sim._lose_executors(query)
    done: dict[tuple[str, int], tuple[int, int]] = {}

    def step() -> list[OutRecord]:
        # A spout may emit before its next record comes: that is a batch of its own.
        emitted = _emitted(sim, query, index) if rng.random() < _EMITS else None
        if emitted is not None:
            return emitted
        done.update(ranges)
        return sim._handle(query, records, report=False)

    if (out := sim._run_among(sim._other_owners(query), [step])) is None:
        query.executors.pop(index, None)
        return
    if sim._strikes("lost_after"):
        written, acknowledged = 0, False
    elif sim._strikes("torn_write"):
        written, acknowledged = rng.randint(0, len(out)), False
    else:
        written, acknowledged = len(out), not sim._strikes("repeated")
    for record in _in_any_order(out, rng)[:written]:
        sim._write(record)
    if not acknowledged:  # the process has ended before the brokers had everything
        query.executors.pop(index, None)
        return
    sim._commit(query, done)


def _begun_again(sim: Any, ranges: dict[tuple[str, int], tuple[int, int]]) -> list[InRecord]:
    """Return what an executor takes if Spark's tasks begin again where their batch began, and those that they replace pass on some records first."""
    rng, passed_on = sim._random, []
    for (topic, partition), (start, stop) in sorted(ranges.items()):
        again = rng.randint(min(sim.log.begin(topic, partition), start), start)
        passed_on += [*sim.log.read(topic, partition, start, rng.randint(start, stop)), *sim.log.read(topic, partition, again, stop)]
    return NextOffsets({place: start for place, (start, _) in ranges.items()}).take(passed_on)


def report(sim: Any) -> None:
    """Let executors report what they have done since they last did; those that have ended start again before."""
    for component, query in sorted(sim._queries.items()):
        for index in range(sim.plan.num_executors(component)):
            if index not in query.executors:
                executor = sim._executor(query, index)
                for task in () if executor.is_spout else executor.tasks:
                    if (version := query.positions[task.inbox, task.index]) > task.version:
                        executor.bring_to(task.id, version)
                executor.note_restored()
            for record in query.executors[index].report():
                sim.log.write(record)


def _move(sim: Any, query: Any, index: int) -> None:
    """Start an executor on another host, where nobody knows how far the former one was."""
    query.executors.pop(index, None)
    tasks = sim.plan.executor_tasks(query.component, index)
    starts = start_positions(sim.plan, query.component, sim.store)
    query.positions |= {place: offset for place, offset in starts.items() if route(sim.plan, query.component, *place) in tasks}


def _emitted(sim: Any, query: Any, index: int) -> list[OutRecord] | None:
    """Return what an executor's spouts emit without a record; None if that is nothing."""
    executor = sim._executor(query, index)
    reply = executor.emit(query.batch_id) if executor.askable or executor.unfinished else None
    if reply is None:
        return None
    sim._count("emitted_between")
    return list(expand_records(reply))


def _in_any_order(records: list[OutRecord], rng: Any) -> list[OutRecord]:
    """Mix the records of different partitions; those of one partition stay in order."""
    places = [(r.topic, r.partition) for r in records]
    queues: dict[Any, list[OutRecord]] = {}
    for place, record in zip(places, records):
        queues.setdefault(place, []).append(record)
    rng.shuffle(places)
    iterators = {place: iter(queue) for place, queue in queues.items()}
    return [next(iterators[place]) for place in places]
