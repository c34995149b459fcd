"""Find lost, repeated and out-of-order records in topics.

Every record that leaves a topology has a header ``record-id``, ``<run>-<task>-<number>``. A task numbers its records 0, 1, 2, ..., over all
topics. The checks need nothing else, so they work for every topology:

* *lost*: no record has a number that is below the highest one of its writer.
* *written again*: equal record-ids. This is allowed (at least once) and counted; the records must be equal.
* *offsets*: one offset has two records; or an offset is missing in a topic that drops no records.
* *published twice*: two record-ids have the same ``result-id``. This is counted, and the records must be equal.
* *disorder*: the version of a key goes back, for a reader that takes the last occurrence of each record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dskype.deploy.verification.inputs import Inputs, Record, header, raw_header, record_id, run_of_record, where
from dskype.deploy.verification.report import SHARED_RESULT_ID, WRITTEN_AGAIN, Report

__all__ = ["Dump", "check_topology_writes", "check_writes", "delta_place"]

_SHOWN = 5
_RESULT_ID = re.compile(rb'([0-9]+-[0-9]+)/"(?:[^"\\]|\\.)*"/(-?[0-9]+)/')
"""Registration, subscription as JSON, watermark."""

Version = Callable[[Record], Any]


@dataclass(frozen=True)
class Dump:
    """The contents of a topic.

    :param topic: its name.
    :param records: in the order of partition and offset.
    :param compacted: Kafka may drop records anywhere in it.
    :param version: returns (key, version) of a record, or None; the versions of a key must not decrease.
    :param is_ambiguous: tells whether a record may differ from an earlier one with the same ``result-id``, because two things have one name.
    """

    topic: str
    records: Sequence[Record]
    compacted: bool = False
    version: Version | None = None
    is_ambiguous: Callable[[Record], bool] = lambda record: False


class _Place(NamedTuple):
    dump: int
    row: int


def check_writes(dumps: Iterable[Dump], report: Report, *, final: bool = True) -> Report:
    """Look for lost, repeated and out-of-order records.

    :param dumps: all topics that the writers wrote to; the records of a missing topic would count as lost.
    :param report: gets differences of the kind ``write``, and notes.
    :param final: the writers are at rest. Otherwise the dumps must be in the order in which they were read, and records that a writer wrote
        after its last one in the first dump are not looked for.
    """
    dumps = list(dumps)
    holes = sum(_check_offsets(dump, report) for dump in dumps)
    writers = _writers(dumps)
    missing: list[str] = []
    for writer, (numbers, places) in sorted(writers.items()):
        order = np.argsort(numbers, kind="stable")
        rising = numbers[order]
        again = np.flatnonzero(rising[1:] == rising[:-1]) + 1
        report.compared["written records"] += len(numbers) - len(again)
        if len(again):
            report.notes[WRITTEN_AGAIN] += len(again)
            _compare_repetitions(dumps, f"{writer}-", rising, order, places, again, report)
        known = rising if final else rising[: 1 + max((int(rising.searchsorted(numbers[i])) for i, place in enumerate(places) if place.dump == 0), default=-1)]
        missing += [f"{writer}-{n}" for n in _missing(known)]
    if len(missing) > holes:
        report.differ(
            "write",
            f"{len(missing)} records were lost: their numbers are missing, and Kafka has dropped at most {holes} records: "
            f"{', '.join(missing[:_SHOWN])}{', ...' if len(missing) > _SHOWN else ''}",
        )
    elif missing:
        report.unchecked["numbers of records that may have been compacted or expired"] += len(missing)
    for dump in dumps:
        _check_identities(dump, report)
        if dump.version is not None:
            _check_versions(dump, dump.version, report)
    return report


def _missing(numbers: np.ndarray) -> Iterable[int]:
    """Yield the numbers that are missing below the last of some numbers, which do not fall."""
    start = 0
    for i in np.flatnonzero(np.diff(numbers, prepend=-1) > 1).tolist():
        start = int(numbers[i - 1]) + 1 if i else 0
        yield from range(start, int(numbers[i]))


def _writers(dumps: Sequence[Dump]) -> dict[str, tuple[np.ndarray, list[_Place]]]:
    """Return writer (``<run>-<task>``) -> the numbers of its records, and where they are."""
    found: dict[bytes, tuple[list[bytes], list[_Place]]] = {}
    for d, dump in enumerate(dumps):
        for row, record in enumerate(dump.records):
            writer, _, number = record_id(record).rpartition(b"-")
            if not number.isdigit():
                continue
            entry = found.get(writer)
            if entry is None:
                entry = found[writer] = ([], [])
            entry[0].append(number)
            entry[1].append(_Place(d, row))
    return {writer.decode(errors="replace"): (np.array(numbers).astype(np.int64), places) for writer, (numbers, places) in found.items()}


def _check_offsets(dump: Dump, report: Report) -> int:
    """Check the offsets of a topic; return how many records Kafka may have dropped."""
    dropped = 0
    before: Record | None = None
    for record in dump.records:
        expected = 0 if before is None or before.partition != record.partition else before.offset + 1
        at_start = expected == 0
        if record.offset < expected:
            if before is not None and before.offset == record.offset and tuple(before[-3:]) != tuple(record[-3:]):  # key, value, headers
                report.differ("write", f"offset {record.offset} of {dump.topic}/{record.partition} has two records", where=where(dump.topic, record))
        elif record.offset > expected:
            if dump.compacted or at_start:
                dropped += record.offset - expected
            else:
                report.differ(
                    "write",
                    f"offsets {expected} to {record.offset - 1} of {dump.topic}/{record.partition} are missing, and that topic drops no records",
                    where=where(dump.topic, record),
                )
        before = record
    return dropped


def _compare_repetitions(
    dumps: Sequence[Dump], writer: str, rising: np.ndarray, order: np.ndarray, places: Sequence[_Place], again: np.ndarray, report: Report
) -> None:
    for i in again.tolist():
        one, other = places[order[i - 1]], places[order[i]]
        first, second = dumps[one.dump].records[one.row], dumps[other.dump].records[other.row]
        if one.dump != other.dump or first.key != second.key or first.value != second.value or list(first.headers) != list(second.headers):
            report.differ(
                "write",
                f"two records with the record-id {writer}{rising[i]} differ; the other one is {where(dumps[one.dump].topic, first)}",
                where=where(dumps[other.dump].topic, second),
                expected=f"{first.value!r:.300}",
                published=f"{second.value!r:.300}",
            )


def _check_identities(dump: Dump, report: Report) -> None:
    """Compare records of equal result-ids and different record-ids, of one run and key."""
    known: dict[tuple[bytes, bytes | None, bytes], Record] = {}
    for record in dump.records:
        identity = raw_header(record, "result-id")
        if identity is None:
            continue
        name = record_id(record)
        first = known.setdefault((name.rpartition(b"-")[0].rpartition(b"-")[0], record.key, identity), record)
        if first is record or record_id(first) == name:
            continue
        report.notes["records that were published twice (result-id)"] += 1
        if first.value == record.value:
            continue
        if dump.is_ambiguous(record):
            report.unchecked[SHARED_RESULT_ID] += 1
        else:
            report.differ(
                "write",
                f"two records of {dump.topic} with the result-id {identity.decode(errors='replace')} of one subscription differ",
                where=where(dump.topic, record),
                expected=f"{first.value!r:.300}",
                published=f"{record.value!r:.300}",
            )


def _check_versions(dump: Dump, version: Version, report: Report) -> None:
    last = {(r.partition, record_id(r) or row): row for row, r in enumerate(dump.records)}
    newest: dict[Any, tuple[Any, Record]] = {}
    for row in sorted(last.values()):
        record = dump.records[row]
        if (found := version(record)) is None:
            continue
        key, value = found
        before = newest.get(key)
        if before is not None and value < before[0]:
            report.differ(
                "write",
                f"records of key {key!r} in {dump.topic} go back from version {before[0]} to {value}",
                where=where(dump.topic, record),
                details=(f"before: {where(dump.topic, before[1])}, {header(before[1], 'record-id')}", f"then:   {header(record, 'record-id')}"),
            )
        newest[key] = value, record


# -- the topics of DSkype -------------------------------------------------------------------------


def check_topology_writes(inputs: Inputs, report: Report, *, final: bool = True, is_ambiguous: Callable[[Record], bool] = lambda delta: False) -> Report:
    """Look for lost, repeated and out-of-order records of a DSkype topology, in all its runs; see :func:`check_writes`.

    :param is_ambiguous: tells whether another message has the id of a delta's message; default: ids are unique.
    """
    topics = inputs.topics
    return check_writes(
        (
            Dump(topics.results, inputs.results, version=_delta_version, is_ambiguous=is_ambiguous),
            Dump(topics.matches, inputs.matches),
            Dump(topics.topk, inputs.topk, compacted=True, version=_list_version),
            Dump(topics.registrations, inputs.registrations),
            Dump(topics.sequence, inputs.sequence),
            Dump(topics.dead_letters, inputs.dead_letters),  # those of refused subscriptions have numbers, too
        ),
        report,
        final=final,
    )


def delta_place(record: Record) -> tuple[str, int] | None:
    """Return registration and watermark of a delta from its ``result-id``; None without one."""
    found = _RESULT_ID.match(raw_header(record, "result-id") or b"")
    return (found[1].decode(), int(found[2])) if found else None


def _delta_version(record: Record) -> Any:
    """Return the version of a delta: those of a registration must be in the order of their watermarks, but initial matches may come after later ones."""
    if (place := delta_place(record)) is None:
        return None
    value = record.value or b""
    return ((run_of_record(record), place[0], b'"initial":true' in value and _is_initial(value)), place[1])


def _is_initial(value: bytes) -> bool:
    """Tell whether a delta is a match that was there when its subscription became active."""
    try:
        return json.loads(value)["initial"] is True
    except (ValueError, KeyError, TypeError):
        return False


def _list_version(record: Record) -> Any:
    """Return the version of a list: those of a subscription must be in the order of registrations, then of watermarks."""
    parts = (header(record, "version") or "").split(" ")
    if len(parts) != 3:
        return None
    partition, _, offset = parts[1].partition("-")
    return (((record.key or b"").decode(errors="replace"), partition), (int(parts[0]), int(offset), int(parts[2])))
