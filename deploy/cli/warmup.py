"""Compile every kernel once, into the cache folder, so that no topology has to wait for it.

A small DSkype on the simulated log calls the kernels: it handles points and areas, both kinds of subscriptions, evaluations, and a snapshot that
is restored. Then its output is verified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from dskype.deploy.machine import paths
from dskype.deploy.machine.registry import TOPOLOGIES, registry

__all__ = ["compile_kernels"]

_WORDS = ["lake", "park", "river", "hill", "old", "new"]


def _state() -> str:
    """Return a digest of all that the compiled code depends on."""
    import llvmlite
    import numba
    import numpy

    digest = hashlib.blake2b(f"{numba.__version__} {llvmlite.__version__} {numpy.__version__}".encode(), digest_size=16)
    for file in sorted(Path(__file__).parents[2].rglob("*_kernels.py")):
        digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()


def compile_kernels(progress: Callable[[str], None]) -> bool:
    """Compile all kernels unless the cache folder has them; return whether there was anything to do.

    :param progress: gets one line of text.
    """
    folder = paths.export_numba_cache()
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "compiled"
    state = _state()
    if stamp.is_file() and stamp.read_text() == state:
        return False
    progress("compiling kernels (once)")
    _run_small_topology()
    _distribute()
    stamp.write_text(state)
    return True


def _run_small_topology() -> None:
    from dskype.deploy.verification import verify
    from dskype.deploy.verification.inputs import Inputs
    from dskype.spouts.settings import Settings
    from dskype.spouts.topics import Topics
    from dskype.topology.flux import load
    from dskype.topology.planning.plan import TopologyPlan
    from dskype.topology.simulated.engine import SimulatedTopology
    from dskype.topology.simulated.log import MemoryLog

    flux = load("dskype.yaml", registry=registry(), resources=[TOPOLOGIES], resource=True)
    time_ms = [1_000_000]
    log, topics = MemoryLog(lambda: time_ms[0]), Topics.for_topology("dskype")
    conf = {**flux.config, "dskype.window.messages": 12, "dskype.results.matches": "grouped", "topology.emulator.snapshot.interval.ms": 200}
    plan = TopologyPlan.build("dskype", "dskype-1-0", conf, flux.topology)
    simulation = SimulatedTopology(plan, log, lambda: time_ms[0])
    simulation.activate()
    for number in range(60):
        words = [_WORDS[number % 6], _WORDS[number * 7 % 6]]
        place = {"lat": number % 9, "lon": number % 7}
        where = {"bbox": [number % 7, number % 9, 8, 9]} if number % 5 == 0 else place
        log.append(topics.messages, 0, None, json.dumps({"text": " ".join(words), **where}).encode())
        if number % 4 == 0:
            value = (
                {"type": "topk", "keywords": words, "k": 3, "alpha": 0.5, **place}
                if number % 8
                else {"type": "boolean", "bbox": [0, 0, 9, 9], "expression": f"{words[0]} OR ({words[1]} AND hill)"}
            )
            log.append(topics.subscriptions, 0, f"s{number % 40}".encode(), None if number > 48 else json.dumps(value).encode())
        time_ms[0] += 100
        simulation.tick_clock()
        simulation.run_until_quiet()
        if number == 30:
            simulation.rebalance(plan)  # every task continues from a snapshot
    for _ in range(5):  # until the lists of the last message are published
        time_ms[0] += 1_000
        simulation.tick_clock()
        simulation.run_until_quiet()
    if letters := simulation.dead_letters():
        msg = f"the warm-up has dead letters: {letters[0].headers}"
        raise RuntimeError(msg)
    report = verify(Inputs.read("dskype", log.records), Settings.from_conf(plan.conf), final=True)
    if not report.ok:
        msg = f"the warm-up is not verified: {report.as_text()}"
        raise RuntimeError(msg)


def _distribute() -> None:
    """Place and route as distribution bolts with partitions and with interest do, which the small topology does not."""
    import numpy as np

    from dskype.distribution import make_distributor
    from dskype.distribution.interest import Interest
    from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription
    from dskype.spouts.batch import MessageBatch
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    vocabulary, prefix, n = Vocabulary.empty(), make_distributor("prefix", 2), len(_WORDS)
    messages = MessageBatch(np.arange(n), np.arange(n), np.zeros(n), np.zeros(n), *vocabulary.weigh_texts(_WORDS, Tokenizer()))
    routes = prefix.message_tasks(messages)
    terms, weights = vocabulary.weigh(_WORDS)
    prefix.place("s", TopkSubscription(3, 0.5, 0.0, 0.0, terms, weights, None), 0.5)
    boolean = BooleanSubscription([0, 0, 9, 9], ["or", 1, 2], None, None)
    prefix.place("s", boolean)
    by_place = [make_distributor(name, 2) for name in ("agrid", "hybrid")]
    for distributor in by_place:
        distributor.place("s", boolean)
        for batch in (messages, messages._replace(areas=messages.rectangles())):
            distributor.message_tasks(batch)
    interest, regions = Interest(2), np.zeros(len(terms), np.int32)
    interest.add(regions, terms)
    interest.filter(messages, routes, routes.tasks)
    interest.routes(messages)
    by_place[1].wanted_tasks(messages, interest)
    interest.restore(interest.snapshot())
    interest.remove(regions, terms)
