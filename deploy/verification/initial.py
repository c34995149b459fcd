"""What matched boolean subscriptions already when they became active: the newest messages of the window, where they ask for them."""

from __future__ import annotations

import numpy as np

from dskype.deploy.verification import show
from dskype.deploy.verification.inputs import Inputs
from dskype.deploy.verification.oracle import Oracle
from dskype.deploy.verification.registrations import Registration, Registry
from dskype.deploy.verification.report import Report
from dskype.deploy.verification.results import Matches
from dskype.spouts.subscriptions import BooleanSubscription

__all__ = ["check_initial"]


def check_initial(matches: Matches, registry: Registry, oracle: Oracle, inputs: Inputs, report: Report, least: int, final: bool) -> None:
    """Compare initial matches with the newest messages of the window that ends where each subscription became active.

    :param matches: those that say that they are initial.
    :param least: the lowest watermark that is compared.
    :param final: everything must have been published.
    """
    report.compared["initial matches"] += len(matches.code)
    order = np.argsort(matches.registration, kind="stable")
    bounds = np.searchsorted(matches.registration[order], np.arange(len(registry.all) + 1)).tolist()
    for r in registry.all:
        rows = order[bounds[r.number] : bounds[r.number + 1]].tolist()
        if not rows and not _asked(r):
            continue
        if r.active is None:
            if rows and final:
                registry.wrong(r, "has initial matches, but never became active")
            elif rows:
                report.unchecked["initial matches of registrations without an event yet"] += len(rows)
        elif not least <= r.active <= oracle.history.newest:
            report.unchecked["initial matches over messages that are not looked at, or that the log does not have"] += len(rows)
        else:
            complete = (final or bool(rows)) and not inputs.cut("results")  # those of a registration are written at once
            _compare(r, r.active, matches, rows, oracle, inputs.topics.results, report, complete)


def _asked(r: Registration) -> int:
    """Return how many initial matches a registration asks for at most; one that goes on from another asks for none."""
    if not isinstance(r.subscription, BooleanSubscription) or r.goes_on is not None or r.adopted:
        return 0
    return r.subscription.initial or 0


def _compare(r: Registration, at: int, matches: Matches, rows: list[int], oracle: Oracle, topic: str, report: Report, complete: bool) -> None:
    """Compare the initial matches of a registration that became active at a watermark, ``rows`` of ``matches``.

    :param complete: none may be missing.
    """
    history, most = oracle.history, _asked(r)
    expected = oracle.newest(r, at, most).tolist() if most else []
    wanted, published = set(history.code[expected].tolist()), set(matches.code[rows].tolist())
    for row in rows:
        if matches.watermark[row] != at:
            what = f"is initial, but the subscription became active at watermark {at}"
        elif not most:
            what = "is initial, but the subscription does not ask for what matches already"
        elif int(matches.code[row]) not in wanted:
            what = f"is initial, but not one of the newest {most} messages that matched at first"
        else:
            continue
        show.match_difference(report, topic, oracle, r, what, matches, row)
    for row in expected if complete else ():
        if int(history.code[row]) not in published:
            show.missing_match(report, oracle, r, row, initial=True)
