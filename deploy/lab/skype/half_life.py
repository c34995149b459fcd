"""What a half-life costs: the top-k engine and its window with and without one, in turns within one run.

    python -m dskype.deploy.lab.skype.half_life [FILE] --subscriptions 20000 --window 20000 --arrivals 4000

Messages come as in ``dskype bench skype`` with a time window. After each slot, subscriptions that run low are looked up in the window at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from dskype.bolts.topk.engine import TopkEngine
from dskype.bolts.window.base import make_window
from dskype.bolts.window.decaying import DecayingWindow
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.skype.workload import Stream, Subscriptions, draw_subscriptions, look_up
from dskype.deploy.machine.terminal import put

__all__ = ["Cost", "main", "measure"]

_SHARES = (None, 1.0, 4.0, 24.0)
"""How many half-lives the window has; None: there is none."""


class Cost:
    """What messages took.

    :ivar message_us: CPU time of a message, of which ``window_us`` was for look-ups.
    :ivar evaluations: look-ups of subscriptions per 1,000 messages.
    :ivar changes: how often a message entered or left a list, per message.
    """

    def __init__(self, message_us: float, window_us: float, evaluations: float, changes: float) -> None:
        self.message_us, self.window_us, self.evaluations, self.changes = message_us, window_us, evaluations, changes


def measure(corpus: Corpus, subscriptions: Subscriptions, window: int, arrivals: int, half_lives: float | None, seed: int = 0) -> Cost:
    """Fill a window, register subscriptions, and measure the messages that follow.

    :param half_lives: how many the window has; None: there is no half-life.
    """
    stream = Stream(corpus, window, timed=True, seed=seed)
    half_life_ms = None if half_lives is None else stream.extent / half_lives
    engine, plain = TopkEngine(stream.extent, corpus.diagonal_deg, half_life_ms=half_life_ms), make_window("chunks")
    messages_of = plain if half_life_ms is None else DecayingWindow(plain, half_life_ms)
    s = subscriptions
    for _ in range(stream.slots_of_window):
        messages, _, end = stream.slot()
        engine.advance(messages, end)
        messages_of.insert(messages, list(map(str, messages.seq.tolist())))
    pending = engine.insert(s.k, s.alpha, s.lat, s.lon, s.offsets, s.terms, s.weights, False)
    spent_ns = window_ns = evaluations = changes = done = 0

    def settle(slots: np.ndarray) -> None:
        nonlocal window_ns, evaluations
        while len(slots):
            began = time.process_time_ns()
            found = look_up(messages_of, s.take(slots), engine.watermark, engine.wanted(slots), engine.extent, engine.diagonal_deg)
            window_ns += time.process_time_ns() - began
            evaluations += len(slots)
            slots = engine.resolve(slots, *found).due

    settle(pending)
    warm_up, window_ns, evaluations = arrivals // 4, 0, 0
    while done < warm_up + arrivals:
        messages, _, end = stream.slot()
        if done >= warm_up > 0:
            warm_up = window_ns = evaluations = changes = spent_ns = done = 0
        began = time.process_time_ns()
        found = engine.advance(messages, end)
        messages_of.insert(messages, list(map(str, messages.seq.tolist())))
        settle(found.due)
        messages_of.free(end - engine.extent)
        spent_ns += time.process_time_ns() - began
        done += messages.n
        changes += len(found.op)
    return Cost(spent_ns / done / 1000, window_ns / done / 1000, 1000 * evaluations / done, changes / done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m dskype.deploy.lab.skype.half_life", description=__doc__.split("\n")[0])
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=int, default=20_000)
    parser.add_argument("--window", type=int, default=20_000)
    parser.add_argument("--arrivals", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(arguments)
    corpus = read_messages(args)
    subscriptions = draw_subscriptions(corpus, args.subscriptions, k=20, keywords=(1, 5))
    measure(corpus, subscriptions.take(np.arange(min(100, args.subscriptions))), args.window // 10, 200, 4.0)  # compiles
    costs: dict[float | None, list[Cost]] = {share: [] for share in _SHARES}
    with quiet():
        for _ in range(args.rounds):
            for share, found in costs.items():
                found.append(measure(corpus, subscriptions, args.window, args.arrivals, share))
    best = {share: min(found, key=lambda one: one.message_us) for share, found in costs.items()}
    put(
        f"{corpus.source}: {len(corpus):,} messages; {args.subscriptions:,} subscriptions, a window of {args.window:,} messages; the best of {args.rounds} rounds",
        "",
    )
    put(
        "| half-lives in the window | message us | of it look-ups us | look-ups per 1,000 messages | changes of lists per message | times |",
        "|---|---|---|---|---|---|",
    )
    for share, cost in best.items():
        times = cost.message_us / best[None].message_us
        put(
            f"| {'no half-life' if share is None else f'{share:g}'} | {cost.message_us:.0f} | {cost.window_us:.0f} | {cost.evaluations:.0f} | {cost.changes:.1f} | {times:.2f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
