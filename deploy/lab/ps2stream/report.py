"""The report of the PS2Stream benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.deploy.lab.dskype.report import draw_bars, draw_lines
from dskype.deploy.lab.report import Report, machine_in_words, messages_in_words

__all__ = ["REPORT"]

_MEASURES = {
    "throughput": ("tuples/s", 0),
    "modelled": ("by model", 0),
    "distribution_per_s": ("dispatcher/s", 0),
    "latency_ms": ("latency ms", 2),
    "communication": ("messages", 3),
    "replication": ("repl.", 2),
    "ratio_load": ("load max/min", 2),
    "ratio_modelled": ("model max/min", 2),
    "ratio_busy": ("busy max/min", 2),
    "balance_busy": ("bal. work", 2),
    "route_us": ("route us", 3),
    "distribution_us": ("distr. us", 2),
    "place_us": ("place us", 1),
    "work_us": ("work us", 2),
    "slowest_us": ("slowest us", 3),
    "update_us": ("update us", 1),
    "matches": ("matches", 2),
    "dispatcher_mib": ("dispatcher MiB", 1),
    "worker_mib": ("worker MiB", 1),
    "summary_pairs": ("H2 pairs", 0),
    "zones": ("zones", 0),
    "divided": ("by text", 0),
    "learn_s": ("learning s", 1),
    "cells": ("cells", 0),
    "select_ms": ("select ms", 3),
    "adjust_s": ("adjust s", 3),
    "rounds": ("rounds", 0),
    "sizes": ("sum of sizes", 0),
    "moved": ("moved", 0),
    "moved_mib": ("moved MiB", 2),
    "move_s": ("moving s", 3),
    "p50_ms": ("p50 ms", 3),
    "p99_ms": ("p99 ms", 2),
    "below_100_ms": ("< 100 ms", 3),
    "above_1_s": ("> 1 s", 4),
}
"""Measures -> heading, digits."""

_HIDDEN = ("distribution_us", "slowest_us", "summary_pairs", "balance_busy", "update_us", "matches")
"""Measures that are not printed on a terminal."""

_LEGEND = (
    "tuples/s: messages and updates that the busiest worker could do; dispatcher/s: messages that one dispatcher could do, and there can be several; latency: of a step, dispatching and its slowest worker; "
    "messages: copies that are sent, per message; repl.: workers of a subscription.",
    "load max/min: of workers, as the plan estimates it; busy: as measured. route: the distributor's part of distr.; place: per subscription; work: of all workers, per tuple; slowest: of the busiest; "
    "update: of all workers, per update; us. zones: leaves of the tree, of which some are divided by text.",
    "by model: tuples/s, and load max/min, by the load model from all messages and subscriptions; select: choosing the cells that move; adjust: all of a local adjustment; sum of sizes: the subscriptions of each cell, as the paper counts; moved: subscriptions, to each worker; moving: work of the busiest worker for it; p50, p99, < 100 ms, > 1 s: latency of "
    "messages, and shares of them, in the 10 s from the beginning of the adjustment on, at 0.7 of the throughput.",
)

_LONG = {
    "throughput": "tuples/s of the busiest worker",
    "communication": "copies of a message",
    "replication": "workers of a subscription",
    "dispatcher_mib": "MiB of a dispatcher",
    "summary_pairs": "pairs in H2",
    "select_ms": "ms to select what moves",
    "moved": "subscriptions that move",
    "adjust_s": "seconds to adjust the plan",
    "modelled": "tuples/s of the busiest worker by the load model",
    "ratio_modelled": "greatest / least load of a worker",
}


def _conditions(found: Mapping[str, Any]) -> list[str]:
    s = found["scale"]
    return [
        messages_in_words(found),
        f"{s['subscriptions']:,} subscriptions; {s['messages']:,} messages and {round(0.2 * s['messages']):,} updates, {s['step']:,} messages at a time; index of each worker: {found['index']}; "
        f"plans learned from {s['sample']:,} other subscriptions and messages; grid of {s['grid']:,} x {s['grid']:,}",
        machine_in_words(found, "CPU times, each task for itself", "the least of {} runs of each step", s["repeat"]),
    ]


def _draw(experiment: Mapping[str, Any], left: Any, right: Any) -> None:
    """Draw the main measure on the left and the second one on the right."""
    rows = experiment["rows"]
    words = any(isinstance(row["x"], str) for row in rows)
    first = next(measure for measure in ("select_ms", "moved", "modelled", "throughput", "dispatcher_mib") if measure in rows[0])
    for axes, measure in ((left, first), (right, experiment["second"])):
        if words:
            draw_bars(axes, rows, measure)
        else:
            draw_lines(axes, rows, measure)
            axes.set_xlabel(experiment["x"])
            axes.legend(fontsize="small")
        axes.set_ylabel(_LONG[measure])
    if words:
        right.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))


REPORT = Report(
    "PS2Stream: hybrid partitioning",
    "the paper says, or is the goal",
    _MEASURES,
    tuple(name for name in _MEASURES if name not in _HIDDEN),
    {name: name for name in ("method", "group", "workers", "share", "millions", "selection", "switched", "way")},
    (*_MEASURES, "subscriptions", "measured", "different", "seconds"),
    _conditions,
    _LEGEND,
    _draw,
    "ps2stream",
)
