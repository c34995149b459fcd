"""Objects: whether subscriptions reported what became of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dskype.deploy.verification.inputs import Inputs
from dskype.deploy.verification.oracle import Oracle
from dskype.deploy.verification.registrations import Registration, Registry
from dskype.deploy.verification.replay import NEVER
from dskype.deploy.verification.report import Report
from dskype.deploy.verification.results import Moves
from dskype.deploy.verification.steps import Step, may_be_refused
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import BooleanSubscription

__all__ = ["check_moves"]

_FAR = 1 << 62
_NAMES = {3: "enter", 4: "inside", 5: "leave"}


def check_moves(moves: Moves, registry: Registry, oracle: Oracle, settings: Settings, inputs: Inputs, report: Report, since: int, final: bool) -> None:
    """Compare what was published of objects with what their states say, subscription by subscription.

    :param since: compare only results from this watermark on.
    :param final: everything must have been published.
    """
    history = oracle.history
    report.compared["results of objects"] += len(moves.object)
    if history.missing != NEVER or inputs.cut("results"):
        report.unchecked["results of objects, because the log has dropped older messages or results"] += len(moves.object)
        return
    steps = oracle.steps
    if may_be_refused(steps, settings):
        report.unchecked["results of objects, because some objects may have been refused (dskype.objects.max)"] += len(moves.object)
        return
    columns = np.array([(step.at, step.arrived_ms, step.old, step.new) for step in steps], np.int64).reshape(-1, 4).T
    order = np.argsort(moves.registration, kind="stable")
    bounds = np.searchsorted(moves.registration[order], np.arange(len(registry.all) + 1))
    for r in registry.all:
        if not r.is_topk:
            _check_registration(r, moves, order[bounds[r.number] : bounds[r.number + 1]], steps, columns, oracle, inputs, report, since, final)


def _check_registration(
    r: Registration,
    moves: Moves,
    rows: np.ndarray,
    steps: list[Step],
    columns: np.ndarray,
    oracle: Oracle,
    inputs: Inputs,
    report: Report,
    since: int,
    final: bool,
) -> None:
    history = oracle.history
    if r.active is None:
        if len(rows):
            report.unchecked["results of objects, of registrations without an event yet"] += len(rows)
        return
    until = min(history.newest, _FAR if r.removed is None else r.removed)
    if not final and r.removed is None:
        until = int(moves.watermark[rows].max(initial=NEVER)) - 1  # more may follow
    at, arrived_ms, old, new = columns
    matching = np.zeros(len(history) + 1, bool)  # the last one is that of no state
    matching[oracle.matching(r, r.active if r.begun is None else r.begun, history.newest)] = True
    was, now = matching[old], matching[new]
    wanted = (at > r.active) & (at <= until) & (at >= since) & (was | now)
    if r.expires_ms is not None:
        wanted &= arrived_ms < r.expires_ms
    if not (isinstance(r.subscription, BooleanSubscription) and r.subscription.inside):
        wanted &= ~(was & now)
    expected: Counter[Any] = Counter()
    for i in np.flatnonzero(wanted).tolist():
        step = steps[i]
        op = 5 if not now[i] else 4 if was[i] else 3
        expected[step.at, op, int(history.code[step.message]), step.object] += 1
    for row in rows.tolist():
        key = int(moves.watermark[row]), int(moves.op[row]), int(moves.code[row]), moves.object[row]
        if key in expected:
            expected[key] -= 1
            if not expected[key]:
                del expected[key]
        elif since <= key[0] <= until or key[0] > history.newest or (r.removed is not None and key[0] > r.removed):
            partition, offset = moves.places[row]
            report.differ(
                "match",
                f"{_NAMES[key[1]]} of object {key[3]!r} for {r.subscription.id!r} at watermark {key[0]} is wrong, or was published twice",
                where=f"{inputs.topics.results}/{partition} offset {offset}",
                subscription=r.subscription.id,
                registration=r.name,
                watermark=key[0],
                published=_NAMES[key[1]],
            )
    for watermark, op, _, name in sorted(expected):
        report.differ(
            "match",
            f"{_NAMES[op]} of object {name!r} for {r.subscription.id!r} at watermark {watermark} was not published",
            subscription=r.subscription.id,
            registration=r.name,
            watermark=watermark,
            expected=_NAMES[op],
        )
