"""The expected results: inputs of the kernels, and the same answers in plain Python, which reports of differences show."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dskype.deploy.verification import _kernels, geometry
from dskype.deploy.verification.reading import meeting
from dskype.deploy.verification.reading_analysis import fields_of, is_as_written, written_fields_of
from dskype.deploy.verification.registrations import Registration
from dskype.deploy.verification.replay import History
from dskype.deploy.verification.steps import ends_of, steps_of
from dskype.spouts.columns import read_only
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import ThresholdSubscription

__all__ = ["TOLERANCE", "Oracle", "same_list"]

TOLERANCE = _kernels.TOLERANCE
_NOWHERE = np.zeros(0, np.int64)


class Oracle:
    """Answers over a history of messages.

    :ivar rows: the messages by term, for the kernels; its arrays are read-only.
    :ivar steps: what became of objects.
    :ivar tolerance: scores in lists that differ by less are equal.
    """

    def __init__(self, history: History, settings: Settings) -> None:
        self.history, self.extent, self.diagonal_deg = history, settings.extent, settings.space.diagonal_deg
        self._fields, self._settings, self._half_life_ms = settings.text_fields, settings, settings.half_life_ms
        self.tolerance = TOLERANCE
        if self._half_life_ms is not None:  # scores are numbers as large as the time in half-lives, and rounded as these are
            self.tolerance = max(TOLERANCE, 4 * math.ulp(max(0, history.newest, *history.position[-1:].tolist()) / self._half_life_ms))
        self._words_as_written = is_as_written(settings)
        self._sorted: list[str] | None = None
        self._known, numbers = np.unique(history.terms, return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        offsets = np.zeros(len(self._known) + 1, np.int64)
        np.cumsum(np.bincount(numbers, minlength=len(self._known)), out=offsets[1:])
        rows = np.repeat(np.arange(len(history)), np.diff(history.offsets))[order]
        times = np.bincount(history.code, minlength=1)
        self.steps = steps_of(history, settings) if settings.objects else []
        self._leave = np.minimum(history.position + settings.extent, ends_of(history, self.steps))
        self.rows = _kernels.MessageRows(
            *map(
                read_only,
                (history.position, history.lat, history.lon, history.code, times[history.code] > 1, self._leave, offsets, rows, history.values[order]),
            ),
            settings.extent,
            self.diagonal_deg,
            self._half_life_ms or 0.0,
            self.tolerance,
        )

    # -- top-k ----------------------------------------------------------------------------------------------------------

    def subscriptions(self, registrations: Sequence[Registration], start: np.ndarray) -> _kernels.Subscriptions:
        """Return top-k registrations as input of the kernels."""
        subscriptions: list[Any] = [r.subscription for r in registrations]
        offsets, terms, weights = np.zeros(len(subscriptions) + 1, np.int64), [_NOWHERE], [np.zeros(0)]
        for i, subscription in enumerate(subscriptions):
            ids, values = self.history.weights.weigh(subscription.keywords)
            numbers = np.searchsorted(self._known, ids)
            there = np.flatnonzero(numbers < len(self._known))
            there = there[self._known[numbers[there]] == ids[there]]
            terms.append(numbers[there])
            weights.append(values[there])
            offsets[i + 1] = offsets[i] + len(there)

        def column(name: str, kind: Any) -> np.ndarray:
            return np.array([getattr(s, name) for s in subscriptions], kind)

        allowed = [self._allowed(s.where, terms[i + 1]) for i, s in enumerate(subscriptions)]
        return _kernels.Subscriptions(
            column("k", np.int64),
            column("alpha", np.float64),
            column("lat", np.float64),
            column("lon", np.float64),
            offsets,
            np.concatenate(terms),
            np.concatenate(weights),
            np.array([s.scale_m or 0.0 for s in subscriptions]),
            start,
            np.array([s.where is not None for s in subscriptions], np.bool_),
            np.cumsum([0, *map(len, allowed)]),
            np.concatenate([_NOWHERE, *allowed]),
        )

    def _allowed(self, where: Any, terms: np.ndarray) -> np.ndarray:
        """Return the rows with one of some terms, by their numbers, that satisfy an expression, in rising order; none if there is no expression."""
        if where is None:
            return _NOWHERE
        candidates = np.concatenate([_NOWHERE, *(self.rows.rows[slice(*self.rows.offsets[term : term + 2])] for term in terms.tolist())])
        return np.intersect1d(candidates, self._satisfying(where, 0, len(self.history)))

    def scores(self, registration: Registration, watermark: int) -> list[tuple[float, int]]:
        """Return (score, row) of all messages in the window that count, with a common keyword, in rank order; plain Python."""
        history, subscription = self.history, registration.subscription
        ids, values = self.history.weights.weigh(subscription.keywords)
        wanted = dict(zip(ids.tolist(), values.tolist()))
        first, last = np.searchsorted(history.position, [watermark - self.extent, watermark], side="right").tolist()
        found = []
        for row in range(first, last) if subscription.where is None else self._satisfying(subscription.where, first, last).tolist():
            if self._leave[row] <= watermark:
                continue
            start, stop = history.offsets[row], history.offsets[row + 1]
            common = [(t, w) for t, w in zip(history.terms[start:stop].tolist(), history.values[start:stop].tolist()) if t in wanted]
            if common:
                text = sum(wanted[t] * w for t, w in sorted(common))
                if subscription.scale_m is None:
                    distance = math.hypot(history.lon[row] - subscription.lon, history.lat[row] - subscription.lat) / self.diagonal_deg
                else:
                    away_m = geometry.distance_m((subscription.lat, subscription.lon), (float(history.lat[row]), float(history.lon[row])))
                    distance = min(1.0, away_m / subscription.scale_m)
                score = subscription.alpha * (1 - distance) + (1 - subscription.alpha) * text
                if self._half_life_ms is not None:
                    score = math.log2(max(score, _kernels.FAINT)) + int(history.position[row]) / self._half_life_ms
                found.append((score, row))
        return sorted(found, reverse=True)

    # -- threshold ------------------------------------------------------------------------------------------------------

    def reaching(self, registration: Registration, after: int, until: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows with ``after < position <= until`` that reach the score of a threshold subscription, or miss it by less than the tolerance, rising, and their scores."""
        history, s = self.history, registration.subscription
        assert isinstance(s, ThresholdSubscription)
        first, last = np.searchsorted(history.position, [after, until], side="right").tolist()
        found, parts = [_NOWHERE], [np.zeros(0)]
        for term, weight in zip(*(column.tolist() for column in history.weights.weigh(s.keywords))):
            number = np.searchsorted(self._known, term)
            if number < len(self._known) and self._known[number] == term:
                begin, end = self.rows.offsets[number : number + 2].tolist()
                inside = slice(*(begin + np.searchsorted(self.rows.rows[begin:end], [first, last])).tolist())
                found.append(self.rows.rows[inside])
                parts.append(weight * self.rows.weights[inside])
        rows, which = np.unique(np.concatenate(found), return_inverse=True)
        text = np.bincount(which, np.concatenate(parts), len(rows))
        lat, lon = history.lat[rows], history.lon[rows]
        if s.scale_m is None:
            distance = np.hypot(lon - s.lon, lat - s.lat) / self.diagonal_deg
        else:
            distance = np.minimum(1.0, geometry.distances_m((s.lat, s.lon), lat, lon) / s.scale_m)
        scores = s.alpha * (1 - distance) + (1 - s.alpha) * text
        reached = scores >= s.min_score - TOLERANCE
        if s.where is not None:
            reached &= np.isin(rows, self._satisfying(s.where, first, last))
        if registration.expires_ms is not None:
            reached &= history.arrival_ms[rows] < registration.expires_ms
        return rows[reached], scores[reached]

    # -- boolean --------------------------------------------------------------------------------------------------------

    def matching(self, registration: Registration, after: int, until: int) -> np.ndarray:
        """Return the rows with ``after < position <= until`` that a boolean subscription matches, in rising order."""
        history, subscription = self.history, registration.subscription
        first, last = np.searchsorted(history.position, [after, until], side="right").tolist()
        rows = self._satisfying(subscription.expression, first, last)
        bbox = subscription.bbox if subscription.region is None else geometry.widened(subscription.bbox)
        inside = self._centred(rows, bbox) if history.areas is None else meeting(history.areas[rows], bbox)
        if registration.expires_ms is not None:
            inside &= history.arrival_ms[rows] < registration.expires_ms
        return self._touching(rows[inside], subscription)

    def newest(self, registration: Registration, watermark: int, most: int) -> np.ndarray:
        """Return the newest rows of the window that a boolean subscription matches, rising. Areas lie at their centres there."""
        history, subscription = self.history, registration.subscription
        first, last = np.searchsorted(history.position, [watermark - self.extent, watermark], side="right").tolist()
        rows, region = self._satisfying(subscription.expression, first, last), subscription.region
        rows = rows[self._leave[rows] > watermark]
        rows = rows[self._centred(rows, subscription.bbox if region is None else geometry.widened(subscription.bbox))]
        if region is not None:
            gaps_m = [geometry.gap_m(region, lat, lon) for lat, lon in zip(history.lat[rows].tolist(), history.lon[rows].tolist())]
            rows = rows[np.array(gaps_m) <= 0]
        return rows[-most:]

    def _centred(self, rows: np.ndarray, bbox: Sequence[float]) -> np.ndarray:
        """Tell of which rows the centre is in a rectangle, bool[]."""
        west, south, east, north = bbox
        lat, lon = self.history.lat[rows], self.history.lon[rows]
        inside = (lon >= west) & (lon <= east) if west <= east else (lon >= west) | (lon <= east)
        return inside & (lat >= south) & (lat <= north)

    def _touching(self, rows: np.ndarray, subscription: Any) -> np.ndarray:
        """Return those of some rows whose messages share a place with a subscription; their rectangles do already."""
        regions = self.history.regions
        if subscription.region is None and not regions:
            return rows
        own = subscription.region or {"bbox": list(subscription.bbox)}
        kept = []
        for row in rows.tolist():
            other = regions.get(row)
            if other is None and self.history.areas is not None:
                other = {"bbox": self.history.areas[row].tolist()}
            if other is None:
                gap_m = geometry.gap_m(own, float(self.history.lat[row]), float(self.history.lon[row]))
            elif subscription.region is None and row not in regions:
                gap_m = 0.0  # two rectangles
            else:
                gap_m = geometry.regions_gap_m(own, other)
            kept.append(gap_m <= 0)
        return rows[np.array(kept, np.bool_)]

    def _satisfying(self, expression: Any, first: int, last: int) -> np.ndarray:
        """Return the rows from ``first`` up to ``last`` whose messages satisfy an expression, in rising order."""
        if not isinstance(expression, list):
            return self._having(expression, first, last)
        operator, *parts = expression
        if operator == "all":
            return np.arange(first, last)
        if operator == "not":
            return np.setdiff1d(np.arange(first, last), self._satisfying(parts[0], first, last), assume_unique=True)
        if operator == "attribute":
            return self._comparing(parts[0], parts[1], parts[2:], first, last)
        if operator == "in":
            field = self._fields.index(parts[0])
            rows = self._satisfying(parts[1], first, last)
            return rows[[_occurs(parts[1], [self._words(row, written=parts[1][0] == "prefix")[field]]) for row in rows.tolist()]] if len(rows) else rows
        if operator == "phrase":
            rows = self._satisfying(["and", *parts[2]], first, last)
            return rows[[_occurs(expression, self._words(row)) for row in rows.tolist()]] if len(rows) else rows
        if operator == "prefix" and not self._words_as_written:
            return np.array([row for row in range(first, last) if _occurs(expression, self._words(row, written=True))], np.int64)
        if operator == "prefix":
            parts = self._words_with(parts[0])
        least = parts.pop(0) if operator == "atleast" else len(parts) if operator == "and" else 1
        found = sorted((self._satisfying(part, first, last) for part in parts), key=len)
        if least < len(found) or not found:
            rows, counts = np.unique(np.concatenate([_NOWHERE, *found]), return_counts=True)
            return rows[counts >= least]
        rows = found[0]
        for part in found[1:]:
            if not len(rows):
                break
            at = np.searchsorted(part, rows)
            at[at == len(part)] = 0
            rows = rows[part[at] == rows]
        return rows

    def _having(self, word: str, first: int, last: int) -> np.ndarray:
        number = np.searchsorted(self._known, term := self.history.weights.number(word))
        if number == len(self._known) or self._known[number] != term:
            return _NOWHERE
        rows = self.rows.rows[self.rows.offsets[number] : self.rows.offsets[number + 1]]
        return rows[slice(*np.searchsorted(rows, [first, last]).tolist())]

    def _words_with(self, prefix: str) -> list[str]:
        """Return the words of the messages that begin so."""
        if self._sorted is None:
            known = set(self._known.tolist())
            self._sorted = sorted(word for word, number in self.history.weights.numbers.items() if number in known)
        words = self._sorted
        return words[bisect_left(words, prefix) : bisect_left(words, prefix + chr(sys.maxunicode))]

    def _words(self, row: int, written: bool = False) -> list[list[str | None]]:
        """Return the words of each field of a message's text, or those of them that are no stop words as they are written."""
        text = self.history.texts[row]
        fields: list[list[str | None]] = [*(written_fields_of if written else fields_of)(text, self._settings)]
        return fields + [[]] * (len(self._fields) - len(fields))

    def _comparing(self, name: str, comparison: str, operands: list[Any], first: int, last: int) -> np.ndarray:
        rows, values = self.history.attributes[name]
        begin, end = np.searchsorted(rows, [first, last]).tolist()
        compare = _COMPARISONS[comparison]
        return rows[begin:end][[compare(value, operands) for value in values[begin:end]]] if begin < end else _NOWHERE


def _is_one_of(value: float | frozenset[str], operands: list[Any]) -> bool:
    """Tell whether a number is one of the operands, or one of the strings of an attribute is."""
    return not value.isdisjoint(operands) if isinstance(value, frozenset) else value in operands


_COMPARISONS: dict[str, Callable[[Any, list[Any]], bool]] = {
    "<": lambda value, operands: value < operands[0],
    "<=": lambda value, operands: value <= operands[0],
    ">": lambda value, operands: value > operands[0],
    ">=": lambda value, operands: value >= operands[0],
    "!=": lambda value, operands: not _is_one_of(value, operands),
    **dict.fromkeys(("=", "in", "has"), _is_one_of),
    "exists": lambda value, operands: True,
}


def _occurs(expression: Any, fields: list[list[str | None]]) -> bool:
    """Tell whether one of the fields has a word, a prefix or a phrase; plain Python."""
    if not isinstance(expression, list):
        return any(expression in words for words in fields)
    if expression[0] == "prefix":
        return any(word is not None and word.startswith(expression[1]) for words in fields for word in words)
    _, within, places, wanted = expression
    for words in fields:
        # How the words so far can lie: the place of the last of them, and how many others were between them.
        lying = {(at, 0) for at, word in enumerate(words) if word == wanted[0]}
        for i in range(1, len(wanted)):
            step = places[i] - places[i - 1]
            lying = {
                (at + step + more, others + more)
                for at, others in lying
                for more in range(within - others + 1)
                if at + step + more < len(words) and words[at + step + more] == wanted[i]
            }
        if lying:
            return True
    return False


def same_list(published: Sequence[tuple[int, float]], scores: Sequence[tuple[float, int]], k: int, code: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Compare a list of (code of the id, score) with :meth:`Oracle.scores`; equal scores may be in any order. Plain Python."""
    expected = scores[:k]
    if len(published) != len(expected):
        return False
    left = list(scores)
    for (number, value), (score, _) in zip(published, expected):
        if not abs(value - score) <= tolerance:
            return False
        same = [entry for entry in left if code[entry[1]] == number and abs(entry[0] - score) <= tolerance]
        if not same:
            return False
        left.remove(same[0])
    return True
