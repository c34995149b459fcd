"""The report of the Skype benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dskype.deploy.lab.report import Report, machine_in_words, messages_in_words

__all__ = ["REPORT"]

_MEASURES = {
    "match_us": ("match us", 1),
    "amp_us": ("AMP us", 1),
    "emp_us": ("EMP us", 1),
    "total_us": ("sum us", 1),
    "evaluations_per_1000": ("re-eval. /1000", 1),
    "changes": ("changes", 1),
    "buffer_mean": ("buffer", 1),
    "index_mib": ("index MiB", 1),
    "buffer_mib": ("buffers MiB", 1),
    "memory_mib": ("all MiB", 1),
}
"""Measure -> heading, digits."""

_LEGEND = (
    "AMP: time per arriving message, of which *match* finds the subscriptions; EMP: per expiring one, with re-evaluations; us.",
    "Buffer: messages held per subscription; changes: of lists, per message; re-eval. / 1000: re-evaluations per 1000 messages.",
)

_LONG = {"buffer_mean": "messages per buffer", "index_mib": "subscription index, MiB", "memory_mib": "indexes and buffers, MiB"}


def _conditions(found: Mapping[str, Any]) -> list[str]:
    s, rows = found["scale"], [row for e in found["experiments"] for row in e["rows"]]
    checked, wrong = (sum(row.get(name, 0) for row in rows) for name in ("checked", "different"))
    return [
        messages_in_words(found),
        f"{s['subscriptions']:,} subscriptions, |W| = {s['window']:,}, k = 20 and 1 to 5 keywords unless varied; "
        f"{s['arrivals']:,} arrivals measured, after {s['warm_up']:,}",
        f"{checked:,} lists compared with a plain computation, {wrong or 'none'} of them different",
        machine_in_words(found, repeat=found["repeat"]),
    ]


def _draw(experiment: Mapping[str, Any], left: Any, right: Any) -> None:
    """Draw the times on the left, the second measure on the right."""
    rows, second = experiment["rows"], experiment["second"]
    if any(row["x"] is not None for row in rows):
        _lines(left, right, rows, second)
        left.set_xlabel(experiment["x"])
        right.set_xlabel(experiment["x"])
    else:
        names = [row["series"] for row in rows]
        amp, emp = ([row[name] for row in rows] for name in ("amp_us", "emp_us"))
        left.bar(names, amp, label="AMP")
        left.bar(names, emp, bottom=amp, label="EMP")
        right.bar(names, [row[second] for row in rows], color="tab:gray")
        for axes in (left, right):
            axes.tick_params(axis="x", rotation=20)
    left.set_ylabel("us per message")
    left.legend(fontsize="small")
    right.set_ylabel(_LONG[second])


def _lines(left: Any, right: Any, rows: Sequence[Mapping[str, Any]], second: str) -> None:
    for number, series in enumerate(dict.fromkeys(row["series"] for row in rows)):
        color, of = f"C{number}", [row for row in rows if row["series"] == series]
        if of[0]["x"] is None:  # a single value to compare with
            left.axhline(of[0]["total_us"], color=color, linestyle="-", label=f"{series}: sum")
            right.axhline(of[0][second], color=color, label=series)
            continue
        of.sort(key=lambda row: row["x"])
        xs = [row["x"] for row in of]
        for measure, style, what in (("amp_us", "--", "AMP"), ("emp_us", ":", "EMP"), ("total_us", "-", "sum")):
            left.plot(xs, [row[measure] for row in of], style, color=color, marker="o", markersize=3, label=f"{series}: {what}")
        right.plot(xs, [row[second] for row in of], color=color, marker="o", markersize=3, label=series)
    right.legend(fontsize="small")


REPORT = Report(
    "Skype on one machine",
    "the paper says",
    _MEASURES,
    tuple(_MEASURES),
    {f"setting_{name}": name for name in ("index", "index_options", "buffer", "buffer_options", "window_index", "k", "keywords", "zipf", "timed")},
    ("subscriptions", "window", *_MEASURES, "window_mib", "seconds"),
    _conditions,
    _LEGEND,
    _draw,
    "skype",
)
