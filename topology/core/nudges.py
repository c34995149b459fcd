"""Nudges: records without content, which let a continuous query pass on the record before them (see docs/transport.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from dskype.topology.core.clock import ClockRecord
from dskype.topology.core.frames import NUDGE, OutRecord, OutRecords

__all__ = ["add_nudges", "nudge_each"]

Record = TypeVar("Record", OutRecord, OutRecord | OutRecords)


def add_nudges(records: Iterable[Record], inboxes: Collection[str]) -> list[Record]:
    """Return records that are written together, with a nudge behind the last one for each partition of ``inboxes``."""
    out: list[Record] = list(records)
    places: dict[tuple[str, Any], None] = {(r.topic, r.partition): None for r in out if isinstance(r, OutRecord) and r.topic in inboxes}
    out.extend(OutRecord(topic, partition, None, NUDGE) for topic, partition in places)
    return out


def nudge_each(records: Iterable[ClockRecord], inboxes: Collection[str]) -> list[ClockRecord]:
    """Return records of the clock with a nudge behind each one for ``inboxes``."""
    return [out for r in records for out in ((r, r._replace(value=NUDGE)) if r.topic in inboxes else (r,))]
