"""Checks that neither the log nor the stores have lost what the other says was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dskype.topology.core.frames import DataFrame, decode_frame, peek_header
from dskype.topology.core.inbox_reader import InboxReader
from dskype.topology.core.snapshots import LostStateError, SnapshotStore
from dskype.topology.core.values import FrameError
from dskype.topology.errors import explain
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan, inbox_topic

__all__ = ["check_journals", "check_released", "lost_tails"]


def check_journals(plan: TopologyPlan, store: SnapshotStore, reader: InboxReader) -> None:
    """Check that no spout has released tuples that its journal does not know; called when no process of the topology runs.

    A power cut may destroy the newest journal entries. The tuples that they released are in Kafka, and the spout would give their numbers to
    other tuples.

    :raises LostStateError: it names the spout and the numbers.
    """
    for component, spec in plan.topology.components.items():
        for task in plan.component_tasks(component) if spec.is_spout else ():
            if (found := store.load_journal(task)) is not None:
                check_released(plan, store, reader, task, found[1])


def check_released(plan: TopologyPlan, store: SnapshotStore, reader: InboxReader, task: int, entry: dict[str, Any]) -> None:
    """Check that a spout task has released nothing after a journal entry.

    :raises LostStateError: it has.
    """
    for target, sent in _targets(plan, task, entry["state"]["sent"]).items():
        topic, partition = inbox_topic(plan.name, plan.task_component[target]), plan.task_index(target)
        start, released = 0, 0
        if not plan.spec(plan.task_component[target]).is_spout and (found := store.load(target)) is not None:
            start, released = found[0], found[1]["received"]["expected"].get(task, 0)
        for record in reader.read(topic, partition, start, None):
            if (header := peek_header(record.value)) is not None and header.source_task == task and released <= header.first_seq:
                try:
                    frame = decode_frame(record.value)
                    assert isinstance(frame, DataFrame)  # it has such a header
                    released = header.first_seq + sum(s.n for s in frame.segments if s.stream is not None)
                except FrameError:
                    released = header.first_seq + 1
        if released > sent:
            raise LostStateError(
                f"The journal of spout {plan.task_component[task]!r} has lost its newest entries, perhaps in a power cut: tuples that they released are in "
                f"Kafka, and the spout would give their numbers to others.",
                given=f"task {task}, entry {entry['number']} with {sent} tuples for task {target}, of which the log has {released}",
                hint=f"restore {store.location(task)} as it was, or start the topology afresh",
            )


def _targets(plan: TopologyPlan, task: int, sent: dict[int, int]) -> dict[int, int]:
    """Return target task -> tuples sent, for all tasks that a task may send to."""
    component = plan.task_component[task]
    consumers = [c for c, spec in plan.topology.components.items() if c == ACKER_COMPONENT_ID or any(source == component for source, _ in spec.inputs)]
    return dict.fromkeys((t for c in consumers for t in plan.component_tasks(c)), 0) | sent


def lost_tails(plan: TopologyPlan, versions: Mapping[int, int], end: Callable[[str, int], int]) -> list[str]:
    """Return a message for each task that has processed inbox records which the brokers have lost.

    A broker that was not shut down properly may lose records that were not on its disk yet and have no replica, and then assigns their offsets
    to new records. The tasks would skip the new records, and what they made of the lost ones has been released.

    :param versions: task -> version in its newest report or snapshot.
    :param end: (topic, partition) -> offset of the next record.
    """
    found = []
    for task, version in sorted(versions.items()):
        topic, partition = inbox_topic(plan.name, plan.task_component[task]), plan.task_index(task)
        if version > (behind := end(topic, partition)):
            found.append(
                explain(
                    f"The brokers have lost records of {topic}/{partition} that task {task} had processed.",
                    given=f"processed up to offset {version - 1}; the log ends at offset {behind}",
                    component=plan.task_component[task],
                    hint="start the topology afresh; to avoid this, replicate its topics, or shut the broker's machine down properly",
                )
            )
    return found
