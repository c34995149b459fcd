"""Report differences in words: expected and published lists side by side, with the texts of the messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dskype.deploy.machine.terminal import clean
from dskype.deploy.verification import _kernels
from dskype.deploy.verification.inputs import Inputs
from dskype.deploy.verification.oracle import Oracle, same_list
from dskype.deploy.verification.reading_expressions import expression_text
from dskype.deploy.verification.registrations import Registration
from dskype.deploy.verification.report import KEPT, Report
from dskype.deploy.verification.results import Changes, Matches, PublishedLists
from dskype.spouts.subscriptions import ThresholdSubscription

__all__ = ["list_difference", "match_difference", "missing_match"]

_TEXT_WIDTH = 60
_ROWS = 40
_OPS = ("add", "remove")


def _clean(text: str, width: int = _TEXT_WIDTH) -> str:
    return clean(text, width)


def describe(r: Registration) -> str:
    """Return one line about a subscription."""
    s: Any = r.subscription
    life = f"registration {r.name}, active from {r.active}" + ("" if r.removed is None else f" to {r.removed}")
    if r.is_topk:
        scale = "" if s.scale_m is None else f", scale {s.scale_m!r} m"
        return f"top-k subscription {s.id!r}: words {' '.join(s.keywords)}; lat {s.lat!r}, lon {s.lon!r}, k {s.k}, alpha {s.alpha!r}{scale}; {life}"
    if isinstance(s, ThresholdSubscription):
        scale = "" if s.scale_m is None else f", scale {s.scale_m!r} m"
        more = f"lat {s.lat!r}, lon {s.lon!r}, min_score {s.min_score!r}, alpha {s.alpha!r}{scale}"
        return f"threshold subscription {s.id!r}: words {' '.join(s.keywords)}; {more}; {life}"
    ends = "" if r.expires_ms is None else f"; arrivals before {r.expires_ms}"
    where = f"bbox {list(s.bbox)}" if s.region is None else f"region {_clean(json.dumps(s.region), 200)}"
    return f"boolean subscription {s.id!r}: {expression_text(s.expression)}; {where}{ends}; {life}"


# -- lists ----------------------------------------------------------------------------------------


def list_difference(
    report: Report, inputs: Inputs, oracle: Oracle, r: Registration, queries: Any, q: int, origin: int, verdict: int, lists: PublishedLists, changes: Changes
) -> None:
    """Report a wrong list, or wrong deltas of a watermark."""
    watermark, kind = int(queries.watermark[q]), int(queries.kind[q])
    name = "state" if kind == _kernels.STATE else "delta"
    if report.counts[name] >= KEPT:
        report.counts[name] += 1
        return
    scores = oracle.scores(r, watermark)
    first, last = int(queries.first[q]), int(queries.last[q])
    if kind == _kernels.STATE:
        published = list(zip(lists.code[first:last].tolist(), lists.score[first:last].tolist()))
        at = origin if origin >= 0 else -3 - origin if origin <= -3 else None
        where = None if at is None else "{}/{} offset {}".format(inputs.topics.topk, *lists.places[at])
        text = f"the list of subscription {r.subscription.id!r} at watermark {watermark} differs"
        if origin == -1:
            text = f"subscription {r.subscription.id!r} has no list, but messages up to watermark {watermark}"
        elif origin <= -3:
            text = (
                f"the last list of subscription {r.subscription.id!r} is of watermark {int(lists.watermark[at])}, "
                f"but the list at watermark {watermark} is another one"
            )
        reason: list[str] = []
        wrong = same_list(published, scores, r.subscription.k, oracle.history.code, oracle.tolerance)
    else:
        published = _folded(r, changes, last if origin != -2 else None, watermark)
        where = None if origin == -2 else f"{inputs.topics.results}/{changes.partition[first]} offset {changes.offset[first]}"
        text, wrong = _delta_text(r, watermark, verdict, origin), False
        if verdict == _kernels.DIFFERS:
            wrong = same_list(published, scores, r.subscription.k, oracle.history.code, oracle.tolerance)
        reason = _ops_of(oracle, changes, first, last)
    if wrong:
        raise RuntimeError(f"two oracles disagree on registration {r.name} at watermark {watermark}: please report this")
    best = [] if verdict == _kernels.NOT_WITHDRAWN else scores[: r.subscription.k]
    expected = [(int(oracle.history.code[row]), score) for score, row in best]
    report.differ(
        name,
        text,
        details=(describe(r), *reason, *_side_by_side(oracle, expected, published)),
        where=where,
        subscription=r.subscription.id,
        registration=r.name,
        watermark=watermark,
        expected=_plain(oracle, expected),
        published=_plain(oracle, published),
    )


def _delta_text(r: Registration, watermark: int, verdict: int, origin: int) -> str:
    name = f"of subscription {r.subscription.id!r} at watermark {watermark}"
    if verdict == _kernels.NOT_WITHDRAWN:
        return f"registration {r.name} of {r.subscription.id!r} was removed at watermark {watermark}, but its list was not emptied"
    if verdict == _kernels.REMOVED_UNKNOWN:
        return f"a delta {name} removes a message that is not in the list"
    if verdict == _kernels.ADDED_TWICE:
        return f"a delta {name} adds a message that is in the list"
    if verdict == _kernels.WRONG_RANK:
        return f"a delta {name} has a wrong rank or score"
    return f"after all its deltas, the list {name} differs" if origin == -2 else f"the list {name} that its deltas give differs"


def _folded(r: Registration, changes: Changes, last: int | None, watermark: int) -> list[tuple[int, float]]:
    """Return the list after the deltas up to row ``last`` (None: all up to the watermark), best first; plain Python."""
    at: dict[int, float] = {}
    for i in (changes.registration == r.number).nonzero()[0].tolist():
        if changes.watermark[i] <= watermark and (last is None or i < last):
            if changes.op[i] == 0:
                at[int(changes.code[i])] = float(changes.score[i])
            else:
                at.pop(int(changes.code[i]), None)
    return sorted(at.items(), key=lambda entry: -entry[1])


def _ops_of(oracle: Oracle, changes: Changes, first: int, last: int) -> list[str]:
    if first == last:
        return []
    names = _names(oracle)
    lines = [
        f"{_OPS[changes.op[i]]} {_name(names, int(changes.code[i]))}"
        + (f" rank {changes.rank[i]} score {float(changes.score[i])!r}" if changes.op[i] == 0 else "")
        for i in range(first, min(last, first + _ROWS))
    ]
    return [f"deltas: {'; '.join(lines)}" + ("; ..." if last - first > _ROWS else "")]


def _names(oracle: Oracle) -> list[Any]:
    return list(oracle.history.codes)


def _name(names: Sequence[Any], code: int) -> str:
    return _clean(json.dumps(names[code], ensure_ascii=False), 40)


def _plain(oracle: Oracle, entries: Sequence[tuple[int, float]]) -> list[dict[str, Any]]:
    names = _names(oracle)
    return [{"message": names[code], "score": score} for code, score in entries]


def _side_by_side(oracle: Oracle, expected: Sequence[tuple[int, float]], published: Sequence[tuple[int, float]]) -> list[str]:
    names = _names(oracle)
    texts = dict(zip(oracle.history.code.tolist(), oracle.history.texts))

    def cell(entries: Sequence[tuple[int, float]], i: int) -> tuple[str, str, str]:
        if i >= len(entries):
            return "-", "", ""
        code, score = entries[i]
        return _name(names, code), f"{score:.12f}", _clean(texts.get(code, "(no such message)"))

    n = max(len(expected), len(published))
    if not n:
        return ["both lists are empty"]
    pairs = [(cell(expected, i), cell(published, i)) for i in range(n)]
    begin = max(0, next((i for i, (left, right) in enumerate(pairs) if left[:2] != right[:2]), 0) - 3)
    rows = [("rank", "expected", "score", "published", "score", "")]
    for i, (left, right) in enumerate(pairs[begin : begin + _ROWS], begin + 1):
        text = left[2] if left[:2] == right[:2] else "<- " + " | ".join(dict.fromkeys(filter(None, (left[2], right[2]))))
        rows.append((str(i), *left[:2], *right[:2], text))
    widths = [max(len(row[c]) for row in rows) for c in range(5)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[5]]).rstrip() for row in rows]
    return [*(["..."] if begin else []), *lines, *(["..."] if n > begin + _ROWS else [])]


# -- matches --------------------------------------------------------------------------------------


def match_difference(report: Report, topic: str, oracle: Oracle, r: Registration, what: str, matches: Matches, row: int) -> None:
    """Report a wrong match, ``row`` of ``matches``, in a record of ``topic``. ``what`` continues the sentence after the match."""
    code, watermark = int(matches.code[row]), int(matches.watermark[row])
    names = _names(oracle)
    rows = (oracle.history.code == code).nonzero()[0].tolist()
    details = [_message(oracle, i) for i in rows[:3]] if rows else ["there is no such message"]
    report.differ(
        "match",
        f"a match of {r.subscription.id!r} at watermark {watermark} with message {_name(names, code)} {what}",
        details=(describe(r), *details),
        where=f"{topic}/{matches.partition[row]} offset {matches.offset[row]}",
        subscription=r.subscription.id,
        registration=r.name,
        watermark=watermark,
        published=names[code],
    )


def missing_match(report: Report, oracle: Oracle, r: Registration, row: int, initial: bool = False) -> None:
    """Report that a match with message ``row`` was not published; ``initial``: one that was there when the subscription became active."""
    names, code, watermark = _names(oracle), int(oracle.history.code[row]), int(oracle.history.position[row])
    report.differ(
        "match",
        f"subscription {r.subscription.id!r} matches message {_name(names, code)} at watermark {watermark}{' from the beginning' if initial else ''}, but that was not published",
        details=(describe(r), _message(oracle, row)),
        subscription=r.subscription.id,
        registration=r.name,
        watermark=watermark,
        expected=names[code],
    )


def _message(oracle: Oracle, row: int) -> str:
    h = oracle.history
    place = f"lat {float(h.lat[row])!r}, lon {float(h.lon[row])!r}"
    if h.areas is not None and (h.areas[row, :2] != h.areas[row, 2:]).any():
        place = f"bbox {h.areas[row].tolist()} around {place}"
    return f"message at {h.position[row]} ({h.partition[row]}/{h.offset[row]}, arrived {h.arrival_ms[row]}): {place}, {_clean(h.texts[row], 200)}"
