"""The experiments of the PS2Stream benchmark about load adjustment (Figures 12 to 16) as data."""

from __future__ import annotations

from dskype.deploy.lab.experiments import Claim, Experiment, Row, Rows, listed, ratio, series
from dskype.deploy.lab.ps2stream.adjustment import DriftRun, MigrationRun, SelectionRun
from dskype.deploy.lab.ps2stream.experiments import EXACT

__all__ = ["ADJUSTMENTS"]

_MOVES = "GR by moves"
_NAMES = {"programme": "DP", "greedy": "GR", "size": "SI", "random": "RA", "moves": _MOVES}
"""Selections, and what the paper calls the first four."""

_SWITCHED = (10, 30, 50)
_INTERVALS = (0, 10, 20, 30, 40, 50)


_WIDE = (
    "rectangles are wide, and zones in cities are small: a quarter of a worker's load lies in more than half of its subscriptions, whichever cells are chosen"
)
_SIZES = "GR and DP make the sum of sizes small; a subscription counts there in each cell that it overlaps, but moves once"
_CROWDED = "a crowded zone in a city is cut for several tasks, and each of them gets nearly all of its subscriptions, whatever is chosen"
_HEAVIER = "crowded regions are more work for any plan; compare with the one that is learned again"
_WHERE = "what there is to gain depends on which regions are crowded at that moment; compare with the plan that is learned again"
_LEAST_SIZES = (
    "DP, whose sum of sizes is the least possible, has 69, 81 and 88 % of what RA has with 64, 256 and 1,024 cells, and GR is within 5, 0.5 and 0.1 % of DP: the finer the cells, the more alike they are, "
    "and the less there is to choose"
)
_PLANNING = "messages wait while the distribution task makes the plan, not while subscriptions move: the 99th percentile of the waiting is 0.9 to 1.0 times that time in every row, and moving takes a quarter of it at most"
_MOST = "the time follows what moves, and that differs less"


def _mean_of(found: Rows, name: str, measure: str) -> float:
    """Return the mean of a measure of a series.

    :raises KeyError: there is none.
    """
    values = [row[measure] for (series_name, _), row in found.items() if series_name == name]
    if not values:
        raise KeyError(name)
    return float(sum(values) / len(values))


def _compared(text: str, more: str, less: str, measure: str, at_least: float, digits: int = 3, why: str = "") -> Claim:
    """Claim that the mean of a measure of one series is at least ``at_least`` times that of another one."""

    def check(found: Rows) -> tuple[bool, str]:
        a, b = _mean_of(found, more, measure), _mean_of(found, less, measure)
        return ratio(a, b) >= at_least, f"{more} {a:,.{digits}f} : {less} {b:,.{digits}f} = {ratio(a, b):.2f}"

    return Claim(text, check, why)


_SELECTING = Experiment(
    "selection",
    "Selecting a quarter of the load of a worker (Figures 12a, 13 and 14)",
    "cells",
    [Row(name, cells, SelectionRun(selection, cells)) for cells in (64, 256, 1024) for selection, name in _NAMES.items()],
    [
        _compared("DP takes much longer than GR (checked: 10 times)", "DP", "GR", "select_ms", 10),
        _compared("RA is faster than GR", "GR", "RA", "select_ms", 1),
        _compared("By the sum of sizes GR has at most 70 % of what RA has (Figure 14)", "RA", "GR", "sizes", 1 / 0.7, 0, _LEAST_SIZES),
        _compared("By the sum of sizes SI has at least 1.4 times what GR has (Figure 14: 1.4 to 1.7)", "SI", "GR", "sizes", 1.4, 0, _LEAST_SIZES),
        _compared("GR moves at most 60 % of what RA moves", "RA", "GR", "moved", 1 / 0.6, 0, _SIZES),
        _compared("'GR by moves' moves at most 60 % of what RA moves", "RA", _MOVES, "moved", 1 / 0.6, 0, _WIDE),
        _compared("'GR by moves' moves less than GR", "GR", _MOVES, "moved", 1, 0),
        Claim(
            "GR selects within 10 ms", lambda found: (max(y for _, y in series(found, "GR", "select_ms")) <= 10, listed(series(found, "GR", "select_ms"), 3))
        ),
    ],
    "moved",
)

_MIGRATION = Experiment(
    "migration",
    "One local adjustment on Q3 (Figures 12b, 12c, 14 and 15)",
    "% of the regions switched",
    [Row(name, switched, MigrationRun(selection, switched)) for switched in _SWITCHED for selection, name in _NAMES.items()],
    [
        _compared("Goal: 'GR by moves' moves at most 60 % of what RA moves", "RA", _MOVES, "moved", 1 / 0.6, 0, _CROWDED),
        _compared("GR moves at most 60 % of what RA moves", "RA", "GR", "moved", 1 / 0.6, 0, _SIZES),
        _compared("GR moves less than SI (Figure 14: 60 to 70 %)", "SI", "GR", "moved", 1, 0, _SIZES),
        _compared("GR takes about half of the time of RA (Figure 14)", "RA", "GR", "move_s", 1.8, 3, _MOST),
        _compared("DP moves no more than GR", "GR", "DP", "moved", 0.99, 0, _SIZES),
        _compared("With GR no more messages wait for more than 100 ms than with RA (Figure 15)", "GR", "RA", "below_100_ms", 1, why=_PLANNING),
    ],
    "adjust_s",
)


def _restored(text: str, reference: str, at: int | None, least: float, why: str = "") -> Claim:
    """Claim that adjustment keeps a share of a reference throughput.

    :param at: the interval of the reference; None: the same one.
    """

    def check(found: Rows) -> tuple[bool, str]:
        points = [(x, ratio(y, found[reference, x if at is None else at]["modelled"])) for x, y in series(found, "adjusted", "modelled")]
        return min(y for _, y in points) >= least, listed(points, 2)

    return Claim(text, check, why)


def _gain(found: Rows) -> tuple[bool, str]:
    last = _INTERVALS[-1]
    a, b = found["adjusted", last]["modelled"], found["not adjusted", last]["modelled"]
    return a >= 1.26 * b, f"{a:,.0f} : {b:,.0f} = {ratio(a, b):.2f}"


_DRIFT = Experiment(
    "drift",
    "Throughput while 10 % of the regions of Q3 switch in each interval (Figure 16)",
    "% of the regions switched",
    [
        Row(name, switched, DriftRun(way, switched))
        for switched in _INTERVALS
        for name, way in (("adjusted", "local"), ("not adjusted", "none"), ("learned again", "scratch"))
    ],
    [
        _restored("Goal: adjustment restores 90 % of the throughput before the drift", "not adjusted", 0, 0.9, _HEAVIER),
        _restored("Adjustment keeps 90 % of the throughput of a plan that is learned again", "learned again", None, 0.9),
        Claim("With adjustment the throughput is 26 % higher in the end (Figure 16)", _gain, _WHERE),
        EXACT,
    ],
    "ratio_modelled",
)

ADJUSTMENTS: list[Experiment] = [_SELECTING, _MIGRATION, _DRIFT]
"""All experiments about load adjustment."""
