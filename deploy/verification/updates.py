"""Lists that go on from one registration to the next: an update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dskype.deploy.verification.inputs import Inputs
from dskype.deploy.verification.registrations import Registration
from dskype.deploy.verification.report import Report
from dskype.deploy.verification.results import SCORED, Changes

__all__ = ["with_inherited_lists"]

_Row = tuple[int, int, int, int, float, int, int, int, bool]
"""The columns of a change."""
_ADD, _REMOVE = 0, 1


def with_inherited_lists(changes: Changes, registrations: Sequence[Registration], inputs: Inputs, report: Report) -> Changes:
    """Return changes in which each update begins with additions only: its first list, as the published changes make it from the last one of the registration before.

    Takes memory for what updates go on from, and O(n) time besides.

    :param registrations: all that are compared, in the order of their numbers.
    """
    concerned = {number for r in registrations if r.goes_on is not None for number in (r.number, r.goes_on.number)}
    concerned.update(changes.registration[changes.op == SCORED].tolist())
    taken = np.isin(changes.registration, sorted(concerned))
    parts: dict[int, list[_Row]] = {}
    for row in zip(*(column[taken].tolist() for column in vars(changes).values())):
        parts.setdefault(row[0], []).append(row)
    for r in registrations:
        before = r.goes_on
        if before is not None and r.is_topk and before.adopted:  # what it went on from has been compacted away
            r.adopted = True
        elif before is not None and r.is_topk:
            parts[r.number] = _begun(r, _folded(parts.get(before.number, [])), parts.get(before.number, []), parts.get(r.number, []), inputs, report)
        if r.number in parts and not r.adopted:
            for row in parts[r.number]:
                if row[2] == SCORED:
                    _differ(r, row, "gives a message another score, but not at an update", inputs, report)
            parts[r.number] = [row for row in parts[r.number] if row[2] != SCORED]
    made = list(zip(*(row for part in parts.values() for row in part))) or [()] * 9
    found = Changes(*(np.concatenate((old[~taken], np.array(new, old.dtype))) for old, new in zip(vars(changes).values(), made)))
    order = np.argsort(found.registration, kind="stable")
    return Changes(*(column[order] for column in vars(found).values()))


def _folded(rows: Iterable[_Row]) -> dict[int, float]:
    """Return code -> score of the list that changes make."""
    found: dict[int, float] = {}
    for _, _, op, code, score, *_ in rows:
        if op == _REMOVE:
            found.pop(code, None)
        else:
            found[code] = score
    return found


def _begun(r: Registration, listed: dict[int, float], before: list[_Row], rows: list[_Row], inputs: Inputs, report: Report) -> list[_Row]:
    """Return the changes of an update with its first list as additions.

    :param listed: the last list of the registration before; ``before``: its changes.
    """
    first, ranks = [row for row in rows if row[1] == r.active], {}
    for row in first:
        _, _, op, code, score, rank, *_ = row
        if (code in listed) == (op == _ADD):
            _differ(r, row, "adds a message that is in the list" if op == _ADD else "is about a message that is not in the list", inputs, report)
        if op == _REMOVE:
            listed.pop(code, None)
        else:
            listed[code], ranks[code] = score, rank
    if not listed:
        return [row for row in rows if row[1] != r.active]
    partition, offset = (first or before or rows)[0][6:8]
    is_open = any(row[8] for row in first)
    ordered = sorted(listed.items(), key=lambda pair: -pair[1])
    begun = [(r.number, r.active or 0, _ADD, code, score, ranks.get(code, place), partition, offset, is_open) for place, (code, score) in enumerate(ordered, 1)]
    return begun + [row for row in rows if row[1] != r.active]


def _differ(r: Registration, row: _Row, text: str, inputs: Inputs, report: Report) -> None:
    where = f"{inputs.topics.results}/{row[6]} offset {row[7]}"
    about = f"a delta of registration {r.name} of {r.subscription.id!r}"
    report.differ("delta", f"{about} {text}", where=where, subscription=r.subscription.id, registration=r.name, watermark=row[1])
