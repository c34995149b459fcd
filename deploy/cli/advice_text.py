"""What ``dskype partition advise`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dskype.deploy.client.advice import Advice, reasons

__all__ = ["lines"]


def lines(advice: Advice, plan: str | None) -> Iterator[str]:
    """Yield the lines: a table of all distributors, the recommended one with the reasons, and how to use it.

    :param plan: the file of its plan; None: it is not written.
    """
    yield f"{'distributor':<14} {'messages/s':>12} {'copies':>8} {'replication':>12} {'balance':>8} {'work us':>9} {'router MiB':>11} {'learning s':>11}"
    for one in advice.candidates:
        yield (
            f"{one.distributor:<14} {one.per_s:>12,.0f} {one.communication:>8.2f} {one.replication:>12.2f} {one.balance:>8.2f} {one.work_us:>9.2f} "
            f"{one.memory_bytes / 2**20:>11.2f} {one.learn_s:>11.1f}"
        )
    yield "messages/s: of the busiest subscription task, estimated; copies: tasks that get a message; replication: tasks of a subscription;"
    yield "balance: work of the busiest task / mean; work: of all subscription tasks, for a message; router: of each distribution task"
    yield ""
    yield f"Recommended: {advice.chosen.distributor}"
    for reason in reasons(advice):
        yield f"- {reason}"
    yield ""
    yield f"dskype.distributor: {advice.chosen.distributor}"
    if advice.chosen.distributor != "hashing":
        yield f"dskype.distributor.options: {json.dumps({'plan': plan})}" if plan else "(-o FILE writes its plan)"
