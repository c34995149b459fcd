"""Compile the kernels of the set-up's first stage, then run the demo's topology on the simulated log, and print the kernels that it needs besides, one in a line."""

import sys
from pathlib import Path

from numba.core.caching import Cache

from dskype.deploy.cli import warmup
from dskype.deploy.demo.feeder import Plan, subscriptions_of
from dskype.deploy.demo.places import places
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.spouts.text import Tokenizer
from dskype.spouts.topics import Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology import flux, kernel_parts
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.engine import SimulatedTopology
from dskype.topology.simulated.log import MemoryLog

_MESSAGES, _SUBSCRIPTIONS, _WINDOW, _STEP = 1200, 800, 300, 50


def _run_demo(vocabulary: Path) -> None:
    messages = places(1, _MESSAGES)
    Vocabulary.build(messages.texts.to_pylist(), Tokenizer()).save(vocabulary)
    subscriptions = list(subscriptions_of(Plan(subscriptions=_SUBSCRIPTIONS), messages))
    loaded = flux.load(TOPOLOGIES / "dskype.yaml", registry=registry(), config={"dskype.vocabulary": str(vocabulary), "dskype.window.messages": _WINDOW})
    time_ms = [1_000_000]
    log, topics = MemoryLog(lambda: time_ms[0]), Topics.for_topology(loaded.name)
    topology = SimulatedTopology(TopologyPlan.build(loaded.name, f"{loaded.name}-1-0", loaded.config, loaded.topology), log, lambda: time_ms[0])
    topology.activate()
    for start in range(0, _MESSAGES, _STEP):
        for value in messages.records(start, start + _STEP):
            log.append(topics.messages, 0, None, value)
        for id, value in subscriptions[start : start + _STEP]:
            log.append(topics.subscriptions, 0, id.encode(), value)
        time_ms[0] += 1000
        topology.tick_clock()
        topology.run_until_quiet()
    assert log.end(topics.results, 0) > _MESSAGES


def main() -> None:
    """Compile, run, and print."""
    wanted, load = set[str](), Cache.load_overload

    def note(cache, signature, context):
        if cache._py_func.__module__.startswith("dskype.") and not kernel_parts.in_part():
            wanted.add(f"{cache._py_func.__module__}.{cache._py_func.__qualname__} {signature}")
        return load(cache, signature, context)

    Cache.load_overload = note
    warmup._run_small_topology()
    warmup._beside_first()
    assert wanted
    wanted.clear()
    _run_demo(Path(sys.argv[1]))
    print(*sorted(wanted), sep="\n")


if __name__ == "__main__":
    main()
