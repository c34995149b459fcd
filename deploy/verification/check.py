"""The comparison of everything that was published with the oracle."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dskype.deploy.verification import _kernels, show
from dskype.deploy.verification.carried import check_carried
from dskype.deploy.verification.grouped import read_grouped
from dskype.deploy.verification.initial import check_initial
from dskype.deploy.verification.inputs import Inputs
from dskype.deploy.verification.moves import check_moves
from dskype.deploy.verification.oracle import TOLERANCE, Oracle
from dskype.deploy.verification.registrations import Registration, Registry
from dskype.deploy.verification.replay import NEVER, parse_subscriptions, replay
from dskype.deploy.verification.report import KEPT, Report
from dskype.deploy.verification.results import SCORED, Changes, Matches, PublishedLists, has_repeated_id, read_deltas, read_lists
from dskype.deploy.verification.searches import check_searches
from dskype.deploy.verification.steps import may_be_refused
from dskype.deploy.verification.updates import with_inherited_lists
from dskype.deploy.verification.writes import check_topology_writes
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import ThresholdSubscription

__all__ = ["verify"]

_CHUNK = 250
_FAR = 1 << 62


def verify(
    inputs: Inputs,
    settings: Settings,
    *,
    final: bool = False,
    since: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    writes: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compare everything that a topology published with a brute-force oracle.

    What is checked:

    - Every record of the messages topic has one number, without gaps between numbers, or is rightly a dead letter.
    - Registrations begin and end in order.
    - Each whole list equals the best k of the window at its watermark.
    - Deltas, folded in order, give that list at each of their watermarks, with the right ranks.
    - Boolean matches are right and complete, and occur once. So are those that were there when a subscription became active, if it asks for them, and ``enter``, ``inside`` and ``leave`` of objects.
    - The fields that results carry are those of their messages.
    - Answers of searches are those of the window at their watermark.
    - With ``final``, each subscription is active, and its last list and last deltas equal the best k at the newest message.

    Scores are compared within 1e-9; messages whose scores differ by less may be in any order. Lists may skip watermarks: a subscription that
    waits for an evaluation publishes nothing, and then jumps. The notes count the changes that were skipped.

    Without ``final`` the logs may end anywhere. Only a batch that is written in part, and will be written again, can then look like a difference
    for a moment.

    :param inputs: the records; see :class:`Inputs`. Only the newest run of the topology counts.
    :param settings: of the topology.
    :param final: the topology has handled all its input and is at rest (or has ended).
    :param since: compare only results from this watermark on.
    :param sample: compare only this many subscriptions, drawn with ``seed``; default: all.
    :param writes: also look for records that are lost, differ from their repetitions, or are out of order:
        :func:`~dskype.deploy.verification.writes.check_topology_writes`.
    :param progress: called with a short text from time to time.
    """
    return _Verification(inputs, settings, final, since, sample, seed, writes, progress).run()


class _Verification:
    def __init__(
        self, inputs: Inputs, settings: Settings, final: bool, since: int | None, sample: int | None, seed: int, writes: bool, progress: Callable[[str], None]
    ) -> None:
        self._inputs, self._settings, self._final, self._progress = inputs, settings, final, progress
        self._since = NEVER if since is None else since
        self._sample, self._seed, self._writes = sample, seed, writes
        self._report = Report(topology=inputs.topology, final=final, read=inputs.counts())

    def run(self) -> Report:
        """Verify, and return the report."""
        began, report, inputs = time.perf_counter(), self._report, self._inputs
        of_all_runs = copy.copy(inputs)
        report.run, others = inputs.newest_run()
        if others:
            report.notes["records of former runs were passed over"] += others
        self._progress("parsing subscriptions")
        parsed = parse_subscriptions(inputs, self._settings)
        self._history = history = replay(inputs, self._settings, parsed, report, self._final, self._progress)
        report.watermark = history.newest
        self._registry = Registry(inputs, parsed, report, self._wanted(parsed))
        self._registry.read_events()
        self._registry.check_order(self._final, history.newest, int(history.arrival_ms.max(initial=0)), inputs.runs == 1)
        report.compared["subscriptions"] += len(self._registry.last)
        lists = read_lists(inputs, self._registry, history, report, self._progress)
        changes, matches, moves, initial = read_deltas(inputs, self._registry, history, report, self._progress, ends=not self._final)
        grouped, self._known = read_grouped(inputs, self._registry, history, report, self._progress, self._final)
        self._single, self._grouped = len(matches.code), self._settings.matches == "grouped"
        check_carried(inputs, self._registry, history, report, self._progress)
        self._oracle = Oracle(history, self._settings)
        self._check_lists(lists, changes)
        self._check_matches(matches.joined(grouped))
        check_initial(initial, self._registry, self._oracle, inputs, report, max(self._since, self._least), self._final)
        check_searches(inputs, self._settings, self._oracle, report, max(self._since, self._least))
        if self._settings.objects:
            self._progress("comparing objects")
            check_moves(moves, self._registry, self._oracle, self._settings, inputs, report, self._since, self._final)
        if self._writes:
            self._progress("looking for lost and repeated records")
            check_topology_writes(of_all_runs, report, final=self._final, is_ambiguous=lambda delta: has_repeated_id(delta, history))
        report.sort()
        report.seconds = time.perf_counter() - began
        return report

    def _wanted(self, parsed: dict[Any, Any]) -> set[str] | None:
        if self._sample is None:
            return None
        ids = sorted({s.id for s in parsed.values() if not isinstance(s, str)})
        return set(random.Random(self._seed).sample(ids, min(self._sample, len(ids))))

    @property
    def _least(self) -> int:
        """The lowest watermark whose window is known."""
        missing = self._history.missing
        return NEVER if missing == NEVER else missing + self._settings.extent

    # -- top-k lists ----------------------------------------------------------------------------------------------------

    def _check_lists(self, lists: PublishedLists, changes: Changes) -> None:
        registrations = [r for r in self._registry.all if r.is_topk]
        if self._settings.objects and registrations:
            report, history = self._report, self._history
            forgotten = history.missing != NEVER and self._settings.window_kind == "count"
            if forgotten or may_be_refused(self._oracle.steps, self._settings):
                why = "the log has dropped older messages" if forgotten else "some objects may have been refused (dskype.objects.max)"
                report.unchecked[f"lists and changes of lists, because {why}"] += len(lists.watermark) + len(changes.op)
                return
        if any(r.goes_on is not None for r in registrations) or (changes.op == SCORED).any():
            if self._inputs.cut("results"):  # what an update goes on from may be gone
                for r in registrations:
                    r.adopted = r.adopted or r.goes_on is not None
            else:
                changes = with_inherited_lists(changes, self._registry.all, self._inputs, self._report)
        number = np.full(len(self._registry.all) + 1, -1)
        number[[r.number for r in registrations]] = np.arange(len(registrations))
        state_of, first, last = number[lists.registration], lists.offsets[:-1], lists.offsets[1:]
        checked = self._within(registrations, state_of, lists.watermark, "state", lambda i: (self._inputs.topics.topk, lists.places[i]))
        groups = self._groups(registrations, number, changes)
        final = self._final_queries(registrations, lists, groups)
        self._report.compared["lists"] += int(checked.sum())
        parts = [
            (state_of[checked], lists.watermark[checked], np.zeros(checked.sum(), np.int8), first[checked], last[checked], np.flatnonzero(checked)),
            groups,
            final,
        ]
        sub, watermark, kind, first, last, origin = (np.concatenate([part[i] for part in parts]) for i in range(6))
        order = np.lexsort((watermark, sub))  # stable: states before deltas, the final queries last
        sub, watermark, kind, first, last, origin = (column[order] for column in (sub, watermark, kind, first, last, origin))
        offsets = np.searchsorted(sub, np.arange(len(registrations) + 1))
        queries = _kernels.Queries(offsets, watermark, kind.astype(np.int8), first, last)
        published = _kernels.Published(lists.code, lists.score, changes.op, changes.code, changes.score, changes.rank)
        start = np.array([_FAR if r.active is None else r.active for r in registrations], np.int64)
        verdicts, counts = self._run_kernel(registrations, start, queries, published)
        self._judge(registrations, sub, queries, origin, verdicts, counts, lists, changes)

    def _run_kernel(self, registrations: list[Registration], start: np.ndarray, queries: Any, published: Any) -> tuple[np.ndarray, np.ndarray]:
        subs = self._oracle.subscriptions(registrations, start)
        verdicts, counts = np.zeros(len(queries.watermark), np.int8), np.zeros((len(registrations), 2), np.int64)
        for begin in range(0, len(registrations), _CHUNK):
            self._progress(f"comparing subscriptions {begin:,} of {len(registrations):,}")
            _kernels.check(begin, min(begin + _CHUNK, len(registrations)), self._oracle.rows, subs, queries, published, verdicts, counts)
        return verdicts, counts

    def _within(self, registrations: list[Registration], sub: np.ndarray, watermark: np.ndarray, kind: str, place: Callable[[int], Any]) -> np.ndarray:
        """Return which results can be compared; report those outside the life of their registration, or beyond the newest message."""
        report, newest = self._report, self._history.newest
        active = np.array([NEVER if r.active is None else r.active for r in registrations] + [NEVER])[sub]
        removed = np.array([_FAR if r.removed is None else r.removed for r in registrations] + [_FAR])[sub]
        wrong = (watermark < active) | (watermark > removed)
        ahead = watermark > newest
        for i in np.flatnonzero(wrong | ahead).tolist():
            r = registrations[sub[i]]
            if wrong[i]:
                text = (
                    f"a result of registration {r.name} of {r.subscription.id!r} is of watermark {watermark[i]}, outside its life from "
                    f"{r.active} to {'now' if r.removed is None else r.removed}"
                )
            elif self._final or self._history.newest >= 0:
                text = f"a result of registration {r.name} of {r.subscription.id!r} is of watermark {watermark[i]}, but the newest message is at {newest}"
            else:
                report.unchecked["results of messages that are not in the sequence yet"] += 1
                continue
            topic, (partition, offset) = place(i)
            report.differ(
                kind, text, where=f"{topic}/{partition} offset {offset}", subscription=r.subscription.id, registration=r.name, watermark=int(watermark[i])
            )
        early = ~wrong & (watermark < self._since)
        unknown = ~wrong & ~early & (watermark < self._least)
        if unknown.any():
            report.unchecked["results over messages that the log has dropped"] += int(unknown.sum())
        silent = [r for r in registrations if r.active is None]
        if silent and len(sub):
            lonely = np.isin(sub, [i for i, r in enumerate(registrations) if r.active is None])
            if self._final:
                for i in np.unique(sub[lonely]).tolist():
                    self._registry.wrong(registrations[i], "has results, but never became active")
            elif lonely.any():
                report.unchecked["results of registrations without an event yet (their lists are compared)"] += int(lonely.sum())
        return ~(wrong | ahead | early | unknown)

    def _groups(self, registrations: list[Registration], number: np.ndarray, changes: Changes) -> tuple[np.ndarray, ...]:
        """Return a query for the deltas of each registration and watermark; its origin is the first of these deltas."""
        n = len(changes.watermark)
        sub = number[changes.registration]
        self._report.compared["deltas"] += n
        if not n:
            return tuple(np.zeros(0, np.int64) for _ in range(6))
        new = np.ones(n, bool)
        new[1:] = (sub[1:] != sub[:-1]) | (changes.watermark[1:] != changes.watermark[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], n)
        of, watermark = sub[first], changes.watermark[first]

        def place(i: int) -> tuple[str, tuple[int, int]]:
            return self._inputs.topics.results, (int(changes.partition[first[i]]), int(changes.offset[first[i]]))

        back = np.flatnonzero((of[1:] == of[:-1]) & (watermark[1:] < watermark[:-1])) + 1
        usable = np.ones(len(first), bool)
        for i in back.tolist():
            r = registrations[of[i]]
            topic, (partition, offset) = place(i)
            self._report.differ(
                "delta",
                f"deltas of registration {r.name} of {r.subscription.id!r} go back from watermark {watermark[i - 1]} to {watermark[i]}",
                where=f"{topic}/{partition} offset {offset}",
                subscription=r.subscription.id,
                registration=r.name,
                watermark=int(watermark[i]),
            )
            usable[i:] &= of[i:] != of[i]
        inside = self._within(registrations, of, watermark, "delta", place)
        kind = np.where(inside, _kernels.GROUP, _kernels.FOLD)
        outside = ~inside & ((watermark > self._history.newest) | (watermark < np.array([NEVER if r.active is None else r.active for r in registrations])[of]))
        usable &= ~outside
        removed = np.array([_FAR if r.removed is None else r.removed for r in registrations])[of]
        ended = np.array([not r.bequeathed for r in registrations])[of]
        kind[inside & ended & (watermark == removed)] = _kernels.WITHDRAWN
        usable &= watermark <= removed
        if not self._final:
            still_open = np.logical_or.reduceat(changes.open, first)
            kind[inside & still_open] = _kernels.TAIL
        adopted = np.append(True, of[1:] != of[:-1]) & np.array([r.adopted for r in registrations])[of]
        if adopted.any():
            kind[adopted] = _kernels.ADOPT
            self._report.unchecked["first lists of updates whose earlier list is not known"] += int(adopted.sum())
        if self._inputs.cut("results"):
            usable &= self._adopt(of, watermark, kind, changes, first)
        self._report.compared["watermarks with deltas"] += int((usable & (kind != _kernels.FOLD)).sum())
        return tuple(column[usable] for column in (of, watermark, kind.astype(np.int64), first, last, first))

    def _adopt(self, of: np.ndarray, watermark: np.ndarray, kind: np.ndarray, changes: Changes, first: np.ndarray) -> np.ndarray:
        """Where older deltas are gone, begin with the first list that can be computed; return which deltas can be used."""
        usable = np.ones(len(of), bool)
        begins = self._inputs.begins["results"]
        dropped = np.array([begins[p] > 0 for p in changes.partition[first].tolist()])
        done = -1
        for i in np.flatnonzero(dropped).tolist():
            if of[i] == done:
                continue
            if watermark[i] < self._least or kind[i] == _kernels.WITHDRAWN:
                usable[i] = False
                continue
            kind[i], done = _kernels.ADOPT, of[i]
            self._report.unchecked["first lists of subscriptions whose older deltas the log has dropped"] += 1
        return usable

    def _final_queries(self, registrations: list[Registration], lists: PublishedLists, groups: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Return the last list and the last deltas of each subscription as queries at the newest message.

        The origin is -1 for a missing list, -2 for the end of the deltas, and -3 - i for list i, which is older than the newest message.
        """
        rows: list[tuple[int, ...]] = []
        newest, topk = self._history.newest, self._inputs.topics.topk
        if not self._final or newest < max(self._since, self._least):
            return tuple(np.zeros(0, np.int64) for _ in range(6))
        settings = self._settings
        in_topic = settings.results != "deltas" and (settings.store == "kafka" or bool(settings.store_options.get("topic")))
        if settings.results != "deltas" and not in_topic:
            self._report.unchecked[f"last lists, which are kept in {settings.store}"] += 1
        index = {id(r): i for i, r in enumerate(registrations)}
        dropped, with_deltas = self._inputs.cut("results"), set(groups[0].tolist())
        for subscription, registration in self._registry.last.items():
            at = lists.last.get(subscription)
            if registration is None or not registration.is_topk:
                if at is not None:
                    self._report.differ(
                        "state",
                        f"subscription {subscription!r} is not a top-k subscription any more, but {topk} still has its list",
                        subscription=subscription,
                        watermark=int(lists.watermark[at]),
                    )
                continue
            i = index[id(registration)]
            if registration.active is None or (registration.removed is not None):
                continue  # reported already
            if in_topic and at is not None and lists.registration[at] != registration.number:
                self._report.differ(
                    "state",
                    f"the last list of subscription {subscription!r} is of registration {self._registry.all[lists.registration[at]].name}, not of {registration.name}",
                    subscription=subscription,
                    registration=registration.name,
                    watermark=newest,
                )
            elif in_topic and at is not None and lists.watermark[at] == newest:
                self._report.compared["final lists"] += 1  # compared with the others
            elif in_topic:
                rows.append(
                    (
                        i,
                        newest,
                        _kernels.STATE,
                        0 if at is None else int(lists.offsets[at]),
                        0 if at is None else int(lists.offsets[at + 1]),
                        -1 if at is None else -3 - at,
                    )
                )
                self._report.compared["final lists"] += 1
            if settings.results != "topk" and (i in with_deltas or not dropped):
                rows.append((i, newest, _kernels.GROUP, 0, 0, -2))
        ended = np.array([i for i, r in enumerate(registrations) if r.active is not None and r.removed is not None and not r.bequeathed], np.int64)
        if settings.results != "topk" and len(ended):
            withdrawn = set(groups[0][groups[2] == _kernels.WITHDRAWN].tolist())
            rows += [
                (i, registrations[i].removed, _kernels.WITHDRAWN, 0, 0, -2)
                for i in ended.tolist()
                if i not in withdrawn and (i in with_deltas or not dropped) and registrations[i].removed >= max(self._least, self._since)
            ]
        return tuple(np.array([row[c] for row in rows], np.int64) for c in range(6))

    # -- verdicts -------------------------------------------------------------------------------------------------------

    def _judge(
        self,
        registrations: list[Registration],
        sub: np.ndarray,
        queries: Any,
        origin: np.ndarray,
        verdicts: np.ndarray,
        counts: np.ndarray,
        lists: PublishedLists,
        changes: Changes,
    ) -> None:
        report = self._report
        for column, what in (
            (_kernels.TIES, "places where messages of equal score stand in another order"),
            (_kernels.JUMPED, "changes of lists that were not published one by one, but in a jump"),
        ):
            if total := int(counts[:, column].sum()):
                report.notes[what] += total
        for verdict, why in (
            (_kernels.AMBIGUOUS, "deltas after a list with two messages of one id"),
            (_kernels.UNFINISHED, "last deltas, of which more may follow"),
            (_kernels.FOLLOWS, "deltas behind a wrong one"),
        ):
            if n := int((verdicts == verdict).sum()):
                report.unchecked[why] += n
        wrong = np.flatnonzero((verdicts > _kernels.EQUAL) & (verdicts < _kernels.AMBIGUOUS))
        twice = {-3 - int(origin[q]) for q in wrong.tolist() if queries.kind[q] == _kernels.STATE and origin[q] >= 0}
        wrong = np.array([q for q in wrong.tolist() if queries.kind[q] != _kernels.STATE or int(origin[q]) not in twice], np.int64)
        for q in wrong[np.argsort(queries.watermark[wrong], kind="stable")].tolist():
            show.list_difference(report, self._inputs, self._oracle, registrations[sub[q]], queries, q, int(origin[q]), int(verdicts[q]), lists, changes)

    # -- boolean --------------------------------------------------------------------------------------------------------

    def _check_matches(self, matches: Matches) -> None:
        order = np.argsort(matches.registration, kind="stable")
        bounds = np.searchsorted(matches.registration[order], np.arange(len(self._registry.all) + 1))
        filters = [r for r in self._registry.all if not r.is_topk]
        self._report.compared["matches"] += len(order)
        wrong: list[tuple[int, Registration, str, int]] = []
        for i, r in enumerate(filters):
            if not i % 1000:
                self._progress(f"comparing boolean subscriptions {i:,} of {len(filters):,}")
            wrong += self._check_filter(r, matches, order[bounds[r.number] : bounds[r.number + 1]])
        wrong.sort(key=lambda found: found[0])
        for _, r, what, row in wrong[:KEPT]:
            if what:
                topic = self._inputs.topics.results if row < self._single else self._inputs.topics.matches
                show.match_difference(self._report, topic, self._oracle, r, what, matches, row)
            else:
                show.missing_match(self._report, self._oracle, r, row)
        if len(wrong) > KEPT:
            self._report.counts["match"] += len(wrong) - KEPT

    def _check_filter(self, r: Registration, matches: Matches, rows: np.ndarray) -> list[tuple[int, Registration, str, int]]:
        """Compare the matches of one registration.

        :param rows: its published matches, as rows of ``matches``.
        :returns: for each difference (watermark, registration, what is wrong, row of ``matches``), or (watermark, registration, "", row of the
            message) for a match that was not published.
        """
        history, report = self._history, self._report
        watermark = matches.watermark[rows]
        wrong: list[tuple[int, Registration, str, int]] = []
        back = np.flatnonzero(watermark[1:] < watermark[:-1])
        if len(back):
            wrong.append((int(watermark[back[0] + 1]), r, "comes after one of a later message", int(rows[back[0] + 1])))
        if r.active is None:
            if len(rows) and self._final:
                self._registry.wrong(r, "has matches, but never became active")
            elif len(rows):
                report.unchecked["matches of registrations without an event yet"] += len(rows)
            return wrong
        until = min(history.newest, _FAR if r.removed is None else r.removed)
        if not self._final and r.removed is None:
            until = int(watermark.max(initial=NEVER)) if len(rows) else NEVER  # more may follow
        after = max(r.active, self._since - 1, history.missing)
        if self._grouped:
            after, until = max(after, self._known.after), min(until, self._known.until)
        elif self._inputs.cut("results"):  # its matches come in order, so from the first one on, all must be there
            if not len(rows):
                report.unchecked["boolean subscriptions whose matches the log may have dropped"] += 1
                return wrong
            after = max(after, int(watermark[0]))
        looked = watermark > after
        if skipped := int((~looked & (watermark > r.active)).sum()):
            report.unchecked["matches of messages that are not looked at or that the log has dropped"] += skipped
        last = max(until, int(watermark.max(initial=NEVER)))
        expected, scores, certain = self._expected(r, after, last)
        wide = max(len(history.codes), 1)
        found_key = self._rank(watermark) * wide + matches.code[rows]
        expected_key = self._rank(history.position[expected]) * wide + history.code[expected]
        end = _FAR if r.removed is None else r.removed
        known, seen = set(expected_key.tolist()), set()
        scored: dict[int, list[float]] = {}
        if scores is not None:
            for key, score in zip(expected_key.tolist(), scores.tolist()):
                scored.setdefault(key, []).append(score)
        for row, key, at, look in zip(rows.tolist(), found_key.tolist(), watermark.tolist(), looked.tolist()):
            if at <= r.active or at > end:
                wrong.append((at, r, f"is outside its life from {r.active} to {'now' if r.removed is None else r.removed}", row))
            elif look and key not in known:
                wrong.append((at, r, "is wrong", row))
            elif key in seen:
                wrong.append((at, r, "was published twice", row))
            elif look and row < self._single and not _has_score(float(matches.score[row]), scored.get(key)):
                wrong.append((at, r, f"has a wrong score, or none: {matches.score[row]}, expected {scored.get(key, 'none')}", row))
            seen.add(key)
        missing = expected[certain & (history.position[expected] <= until) & ~np.isin(expected_key, found_key)]
        return wrong + [(int(history.position[row]), r, "", row) for row in missing.tolist()]

    def _expected(self, r: Registration, after: int, until: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return the messages that a registration matches, as rows; their scores, None: they have none; and which of them it certainly does, bool[n]."""
        history = self._history
        if isinstance(r.subscription, ThresholdSubscription):
            rows, scores = self._oracle.reaching(r, after, until)
            return rows, scores, scores >= r.subscription.min_score + TOLERANCE
        rows = self._oracle.matching(r, after, until)
        rows = rows[[row not in history.states for row in rows.tolist()]] if history.states else rows
        return rows, None, np.ones(len(rows), bool)

    def _rank(self, position: np.ndarray) -> np.ndarray:
        """Return a small even number for each position of a message, and an odd one for any other position."""
        at = np.searchsorted(self._history.position, position)
        there = np.zeros(len(position), bool)
        inside = at < len(self._history)
        there[inside] = self._history.position[at[inside]] == np.asarray(position)[inside]
        return 2 * at + ~there


def _has_score(published: float, expected: Sequence[float] | None) -> bool:
    """Tell whether a match has one of the scores that it may have, or none where it may have none (None)."""
    return math.isnan(published) if expected is None else any(abs(published - score) <= TOLERANCE for score in expected)
