"""The work that ``make bench-guard`` measures, as a program that also runs with an earlier version of the product.

It uses contracts that seldom change, and no module of the laboratory. Each line of its input is the name of a part; its answer is a line with the seconds of
processor time that the part took. It draws everything from seeds, so two versions do the same work, on the world's places.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable

import numpy as np

_BATCH, _MESSAGES = 500, 20_000
_LANES, _PLAIN, _TOPK, _WINDOW, _QUERIES = 50_000, 1_000, 20_000, 50_000, 2_000
_SIMULATED, _SUBSCRIPTIONS = 6_000, 1_000


class GuardWorkload:
    """Messages and subscriptions from the world's places, as columns and as records."""

    def __init__(self) -> None:
        from dskype.deploy.demo import places
        from dskype.spouts.text import Tokenizer
        from dskype.spouts.vocabulary import Vocabulary

        found = places.load()
        rows = np.random.default_rng(1).permutation(len(found))[: max(_LANES, _WINDOW) + _MESSAGES]
        self.texts = found.texts.take(rows).to_pylist()
        self.lat, self.lon = found.lat[rows], found.lon[rows]
        self.offsets, self.terms, self.weights = Vocabulary.build(self.texts, Tokenizer()).weigh_texts(self.texts, Tokenizer())
        self.random = np.random.default_rng(2)

    def messages(self, start: int, stop: int, seq: int = 0):
        """Return places as messages that follow each other from ``seq`` on."""
        from dskype.spouts.batch import MessageBatch

        first, last = self.offsets[start], self.offsets[stop]
        numbers = np.arange(seq, seq + stop - start)
        offsets = self.offsets[start : stop + 1] - first
        return MessageBatch(numbers, numbers, self.lat[start:stop], self.lon[start:stop], offsets, self.terms[first:last], self.weights[first:last])

    def batches(self):
        """Return the messages, in batches."""
        return [self.messages(row, row + _BATCH, row) for row in range(0, _MESSAGES, _BATCH)]


def fixed(workload: GuardWorkload) -> Callable[[], object]:
    """Sort numbers: no code of the product, so its ratio shows the noise."""
    numbers = workload.random.random(400_000)
    return lambda: [np.sort(numbers) for _ in range(100)]


def boolean(workload: GuardWorkload, name: str, subscriptions: int, repeats: int) -> Callable[[], object]:
    """Match messages with boolean subscriptions: a rectangle of two degrees around a place, and one of the words of its name."""
    from dskype.bolts.boolean import make_index

    index, rows, batches = make_index(name), np.arange(subscriptions), workload.batches()
    lat, lon, offsets = workload.lat[:subscriptions], workload.lon[:subscriptions], workload.offsets[: subscriptions + 1]
    has_words = np.diff(offsets) > 0
    expressions = [["or", *workload.terms[offsets[row] : offsets[row + 1]].tolist()] for row in rows[has_words]]
    boxes = np.stack([lon - 1, np.maximum(lat - 1, -90), lon + 1, np.minimum(lat + 1, 90)], axis=1)[has_words]
    index.insert_many(np.arange(len(expressions)), np.ascontiguousarray(boxes), expressions)
    return lambda: [index.match(batch) for _ in range(repeats) for batch in batches]


def topk(workload: GuardWorkload) -> Callable[[], object]:
    """Keep the lists of top-k subscriptions while messages arrive; each call begins with empty lists."""
    from dskype.bolts.topk.engine import TopkEngine

    batches, last = workload.batches(), workload.offsets[_TOPK]
    k, alpha = np.full(_TOPK, 10, np.int32), workload.random.random(_TOPK)
    words = workload.offsets[: _TOPK + 1], workload.terms[:last], workload.weights[:last]

    def run() -> None:
        engine = TopkEngine(_MESSAGES, 402.5)
        engine.insert(k, alpha, workload.lat[:_TOPK], workload.lon[:_TOPK], *words, True)
        for batch in batches:
            engine.advance(batch, int(batch.position[-1]))

    return run


def window(workload: GuardWorkload) -> Callable[[], object]:
    """Fill a message window, and look up the best messages of many places and words."""
    from dskype.bolts.window.base import QueryBatch, make_window

    full = [workload.messages(row, row + _BATCH, row) for row in range(0, _WINDOW, _BATCH)]
    ids = [[str(seq) for seq in batch.seq.tolist()] for batch in full]
    last, n = workload.offsets[_QUERIES], _QUERIES
    queries = QueryBatch(
        np.full(n, _WINDOW - 1),
        np.full(n, 10),
        np.full(n, 0.5),
        workload.lat[:n],
        workload.lon[:n],
        workload.offsets[: n + 1],
        workload.terms[:last],
        workload.weights[:last],
    )

    def run() -> None:
        messages = make_window("chunks")
        for batch, own in zip(full, ids):
            messages.insert(batch, own)
        messages.topk(queries, _WINDOW, 402.5)

    return run


def pipeline(workload: GuardWorkload) -> Callable[[], object]:
    """Run DSkype's topology on a log in memory: spouts, distribution, lists, matches and results, without Spark and Kafka."""
    from dskype.deploy.machine.registry import TOPOLOGIES, registry
    from dskype.spouts.topics import Topics
    from dskype.topology.flux import load
    from dskype.topology.planning.plan import TopologyPlan
    from dskype.topology.simulated.engine import SimulatedTopology
    from dskype.topology.simulated.log import MemoryLog

    flux = load("dskype.yaml", registry=registry(), resources=[TOPOLOGIES], resource=True)
    topics = Topics.for_topology("dskype")
    lines = [json.dumps({"text": workload.texts[row], "lat": float(workload.lat[row]), "lon": float(workload.lon[row])}).encode() for row in range(_SIMULATED)]
    subscriptions = []
    for row in range(_SUBSCRIPTIONS):
        lat, lon, text = float(workload.lat[row]), float(workload.lon[row]), workload.texts[row]
        box = [max(lon - 2, -180.0), max(lat - 2, -90.0), min(lon + 2, 180.0), min(lat + 2, 90.0)]
        kind = (
            {"type": "boolean", "bbox": box, "keywords": [text]}
            if row % 4 == 0
            else {"type": "topk", "text": text, "k": 10, "alpha": 0.5, "lat": lat, "lon": lon}
        )
        subscriptions.append((f"s{row}".encode(), json.dumps(kind).encode()))

    def run() -> None:
        time_ms = [1_000_000]
        log = MemoryLog(lambda: time_ms[0])
        plan = TopologyPlan.build("dskype", "dskype-1-0", {**flux.config, "dskype.window.messages": 2_000}, flux.topology)
        simulation = SimulatedTopology(plan, log, lambda: time_ms[0])
        simulation.activate()
        for key, value in subscriptions:
            log.append(topics.subscriptions, 0, key, value)
        for row in range(0, _SIMULATED, _BATCH):
            for line in lines[row : row + _BATCH]:
                log.append(topics.messages, 0, None, line)
            for _ in range(5):
                time_ms[0] += 100
                simulation.tick_clock()
                simulation.run_until_quiet()

    return run


PARTS: dict[str, Callable[[GuardWorkload], Callable[[], object]]] = {
    "fixed": fixed,
    "plain": lambda workload: boolean(workload, "plain", _PLAIN, 30),
    "lanes": lambda workload: boolean(workload, "lanes", _LANES, 10),
    "top-k": topk,
    "window": window,
    "pipeline": pipeline,
}
"""Name -> prepares the part, and returns what is measured."""


def main() -> None:
    """Measure the parts that the input names, one after the other."""
    from dskype.deploy.machine import paths

    paths.export_numba_cache()
    workload, prepared = GuardWorkload(), {}
    for line in sys.stdin:
        name = line.strip()
        if name not in prepared:
            prepared[name] = PARTS[name](workload)
            prepared[name]()  # what is compiled or allocated once
        gc.collect()
        gc.disable()
        began = time.process_time()
        prepared[name]()
        spent_s = time.process_time() - began
        gc.enable()
        print(json.dumps(spent_s), flush=True)


if __name__ == "__main__":
    main()
