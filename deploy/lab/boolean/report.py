"""How the findings of the boolean benchmark are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.deploy.lab.report import Report, machine_in_words, messages_in_words

__all__ = ["REPORT"]

_MEASURES = {
    "message_us": ("us/message", 2),
    "p50_us": ("p50 us", 1),
    "p99_us": ("p99 us", 1),
    "matches": ("matches", 1),
    "build_us": ("insert us", 2),
    "remove_us": ("remove us", 2),
    "again_us": ("again us", 2),
    "longest_ms": ("longest ms", 1),
    "bytes": ("bytes", 0),
}
"""Measure -> heading, digits."""

_LEGEND = (
    "us/message: CPU time in batches of 256, us; p50 and p99: of single messages, by the wall clock; matches: per message.",
    "Insert, remove, again (insert what was removed): us per subscription, in calls with 256; longest ms: the longest of these calls; bytes: per subscription.",
)

_LONG = {"bytes": "bytes per subscription", "matches": "matches per message", "longest_ms": "longest call, ms"}


def _conditions(found: Mapping[str, Any]) -> list[str]:
    s = found["scale"]
    return [
        messages_in_words(found),
        f"{s['subscriptions']:,} subscriptions, squares of 1 to 50 km and 1 to 5 keywords unless varied; {s['messages']:,} messages, "
        f"or as many as {s['budget_s']:g} s last for",
        machine_in_words(found, repeat=s["repeat"]),
    ]


def _draw(experiment: Mapping[str, Any], left: Any, right: Any) -> None:
    """Draw the time per message on the left, on a logarithmic scale, and the second measure on the right."""
    rows, second = experiment["rows"], experiment["second"]
    names = list(dict.fromkeys(row["series"] for row in rows))
    if any(row["x"] is not None for row in rows):
        for number, name in enumerate(names):
            of = sorted((row for row in rows if row["series"] == name), key=lambda row: row["x"])
            for axes, measure in ((left, "message_us"), (right, second)):
                axes.plot([row["x"] for row in of], [row[measure] for row in of], color=f"C{number}", marker="o", markersize=3, label=name)
        left.set_xlabel(experiment["x"])
        right.set_xlabel(experiment["x"])
        left.legend(fontsize="small")
    else:
        left.bar(names, [row["message_us"] for row in rows])
        right.bar(names, [row[second] for row in rows], color="tab:gray")
        for axes in (left, right):
            axes.tick_params(axis="x", rotation=60)
    left.set_yscale("log")
    left.set_ylabel("us per message")
    right.set_ylabel(_LONG[second])


REPORT = Report(
    "Boolean indexes on one machine",
    "the papers say",
    _MEASURES,
    tuple(_MEASURES),
    {f"setting_{name}": name for name in ("index", "options", "world", "removed", "updates")},
    ("subscriptions", "measured", *_MEASURES, "longest_insert_ms", "longest_again_ms", "longest_remove_ms", "resident_bytes", "seconds"),
    _conditions,
    _LEGEND,
    _draw,
    "boolean",
)
