"""How many tuples went from which task to which: the communication cost of a topology in its finest parts."""

from __future__ import annotations

from typing import Any

from dskype.deploy.metrics.meter import Meter

__all__ = ["flows"]

_MOST = 32
"""Tasks of each side that are told apart: those that send or receive most."""


def flows(meter: Meter, now_ms: int) -> list[dict[str, Any]]:
    """Return a row for each pair of components of which one sends to the other, the pair that carries most first.

    A row has ``source`` and ``target``; ``senders`` and ``receivers``: tasks; ``of_senders`` and ``of_receivers``: how many there are; ``tuples``: one list for
    each sender, of all its tuples for each receiver, of whatever stream; ``tuples_per_second``: the same over the window, or None if that is too short. Receivers count
    them, as they count frames. Bytes are counted by stream alone.
    """
    history, first_ms = meter.history, meter.history.since_ms()
    start_ms = max(now_ms - meter.window_s * 1000, now_ms if first_ms is None else first_ms)
    secs, found = (now_ms - start_ms) / 1000, []
    for source, target in sorted({(source, target) for source, _, target in meter.edges()}):
        received = {id: {int(sender): n for sender, n in (task.get("received") or {}).items()} for id, task in meter.tasks(target).items()}
        sent = {id: sum(of.get(id, 0) for of in received.values()) for id in meter.tasks(source)}
        total = sum(sent.values())
        if not total:
            continue
        senders = sorted(sorted(sent, key=lambda id: -sent[id])[:_MOST])
        receivers = sorted(sorted(received, key=lambda id: -sum(received[id].get(sender, 0) for sender in sent))[:_MOST])

        def rate(sender: int, receiver: int) -> float:
            then, now = (history.value_at(receiver, f"received/{sender}", ms) or 0 for ms in (start_ms, now_ms))
            return round(max(0, now - then) / secs, 3)

        rates = None if secs < 1 else [[rate(sender, receiver) for receiver in receivers] for sender in senders]
        row = {"source": source, "target": target, "senders": senders, "receivers": receivers, "of_senders": len(sent), "of_receivers": len(received)}
        found.append(
            (total, {**row, "tuples": [[received[receiver].get(sender, 0) for receiver in receivers] for sender in senders], "tuples_per_second": rates})
        )
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]
