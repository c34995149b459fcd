"""Small topologies that are interrupted in the middle of their work, and continue from what they left: snapshots, journals and the log."""

from __future__ import annotations

import itertools
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

import msgpack

from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.distribution import DISTRIBUTORS
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.simulated.engine import SimulatedTopology
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.tuples import InRecord
from tests import languages
from tests.endtoend import harness
from tests.endtoend.places import Places
from tests.topology.simulated import test_faults as plain
from tests.topology.simulated.fault_topologies import TOPOLOGIES

HERE = Path(__file__).parent
SEED = 11
UNRELEASED = "unreleased"
"""The folder of what the present sources leave, where that is not the state of a release."""


# -- what is kept ---------------------------------------------------------------------------------


def kept(sim: SimulatedTopology, time_ms: int, **more) -> bytes:
    """Return what an interrupted topology leaves, and ``more`` about it.

    Statistics are left out, and so are records of inboxes that a driver would have dropped.
    """
    sim.drop_old_records()
    records = [
        [t, p, [None] * (begin := sim.log.begin(t, p)) + [[r.timestamp_ms, r.key, r.value, r.headers] for r in sim.log.read(t, p, begin, sim.log.end(t, p))]]
        for t in sim.log.topics()
        if t != metrics_topic(sim.plan.name)
        for p in range(sim.log.partitions(t))
    ]
    return lzma.compress(msgpack.packb({"time_ms": time_ms, "files": sim.store.files, "log": records, **more}), preset=9)


def opened(path: Path) -> dict:
    """Return what :func:`kept` wrote."""
    return msgpack.unpackb(lzma.decompress(path.read_bytes()), strict_map_key=False)


def log_of(state: dict, now_ms) -> MemoryLog:
    """Return the log as it was."""
    log = MemoryLog(now_ms)
    for topic, partition, records in state["log"]:
        log._opened(topic, partition)[:] = [
            None if record is None else InRecord(topic, partition, i, *record[:3], [tuple(h) for h in record[3]]) for i, record in enumerate(records)
        ]
        log.drop_before(topic, partition, next((i for i, record in enumerate(records) if record is not None), len(records)))
    return log


# -- plain topologies: bolts with and without state, spouts with journals, ackers -----------------------------------------------------


def plain_plan(name: str) -> TopologyPlan:
    """Return the plan of one of the plain topologies, its state saved often."""
    topology, conf = TOPOLOGIES[name]()
    return TopologyPlan.build(
        "t",
        "t-1-0",
        {"topology.emulator.snapshot.interval.ms": 300, "topology.emulator.pulse.interval.ms": 200, "topology.emulator.pulse.max.tuples": 1, **conf},
        topology,
    )


def make_plain(name: str) -> bytes:
    """Run a plain topology until a third of its results are out, every bolt has saved its state, and a driver would have dropped records that precede it."""
    time_ms = [1_000_000]
    sim = simulate(plain_plan(name), MemoryLog(lambda: time_ms[0]), lambda: time_ms[0], seed=SEED)
    sim.activate()
    bolts = [t for c in sim.plan.component_ids if not sim.plan.spec(c).is_spout for t in sim.plan.component_tasks(c)]
    while len(sim.log.records("out")) < plain.N // 3 or not all(map(sim.store.versions, bolts)) or not _dropped(sim):
        sim.tick_clock()
        sim.run(9)
        sim.drop_old_records()
        time_ms[0] += 200
    return kept(sim, time_ms[0])


def _dropped(sim: SimulatedTopology) -> bool:
    return any(sim.log.begin(t, p) for t in sim.log.topics() for p in range(sim.log.partitions(t)))


def go_on_plain(name: str, path: Path, seed: int | None = None) -> SimulatedTopology:
    """Continue to the end; with a seed, under faults."""
    state = opened(path)
    time_ms = [state["time_ms"] + 5_000]
    sim = simulate(plain_plan(name), log_of(state, lambda: time_ms[0]), lambda: time_ms[0], seed=seed, faults=Faults() if seed is None else Faults.heavy())
    sim.store.files = dict(state["files"])
    sim.activate()
    for step_ms in [200] * 120 + [31_000] * 4:
        sim.tick_clock()
        sim.run_until_quiet()
        time_ms[0] += step_ms
    return sim


# -- DSkype: every index, buffer, window and distributor --------------------------------------------------------------------------------


_FIRST = (
    *("hashing", "keyword", "keyword-first", "location", "prefix", "spatial-first", "agrid"),
    *("replicate-all", "text-routing", "uniform-space", "hybrid", "space-partitioning", "text-partitioning"),
)
"""Distributors of the first scenes, which keep their parts; later ones follow."""


def dskype_scenes() -> dict[str, tuple[dict, dict, bool]]:
    """Return name -> (configuration, tasks, whether the window is one of time); each kind of each part occurs."""
    found = {}
    parts = [itertools.cycle(sorted(kinds)) for kinds in (INDEXES, BUFFERS, WINDOWS)]
    for i, (distributor, index, buffer, window) in enumerate(zip([*_FIRST, *sorted(DISTRIBUTORS.keys() - set(_FIRST))], *parts)):
        timed = i == 1
        tasks = {"subscription-bolt": 4 if distributor.endswith("first") else 2, "message-bolt": 2, "distribution-bolt": 1 + i % 2}
        conf = {
            "dskype.index": index,
            "dskype.buffer": buffer,
            "dskype.window.index": window,
            "dskype.distributor": distributor,
            "dskype.distributor.options": harness.options_of(distributor, tasks["subscription-bolt"]),
            "dskype.results.topk.interval.ms": 0,
        }
        conf |= {"dskype.window.messages": None, "dskype.window.span.ms": 2000, "dskype.window.lateness.ms": 100} if timed else {"dskype.window.messages": 15}
        found[f"dskype-{distributor}"] = conf, tasks, timed
    return found


LANGUAGE = {
    "dskype.attributes": languages.ATTRIBUTES,
    "dskype.boolean.prefixes": True,
    "dskype.boolean.wordless": True,
    "dskype.text.fields": {"title": {"fold_accents": True, "stop": ["new", "the"], "synonyms": harness.RULES}, "body": "plain"},
}
"""Settings of scenes with the whole language. No stemmer is among them: snapshots name its version, which is not ours."""


def language_scenes() -> dict[str, tuple[dict, dict, bool]]:
    """Return the same for scenes with filters, regions, attributes and analyzers."""
    found = dskype_scenes()
    return {f"{name}-language": ({**found[name][0], **LANGUAGE}, *found[name][1:]) for name in ("dskype-hashing", "dskype-keyword", "dskype-hybrid")}


class Draw:
    """Draws messages and subscriptions, of the whole language if the topology takes it."""

    def __init__(self, conf: dict, seed: int) -> None:
        self.rng = random.Random(seed)
        whole = "dskype.attributes" in conf
        self.whole = random.Random(f"language {seed}") if whole else None
        self.speech = harness.Speech(self.whole, conf) if whole else None
        self.places = Places(random.Random(f"places {seed}"), 0.3, turned=False) if whole else None

    def message(self, number: int) -> dict:
        """Return a message without an id."""
        found = harness.random_message(self.rng, number)
        return found if self.speech is None else self.places.of_message(self.speech.of_message(found, number))

    def subscription(self) -> dict:
        """Return a subscription."""
        found = harness.random_subscription(self.rng)
        return found if self.speech is None else self.places.of_subscription(self.speech.of_subscription(found))


def make_dskype(name: str) -> bytes:
    """Run DSkype through messages and subscriptions and stop it while it works."""
    conf, tasks, timed = (dskype_scenes() | language_scenes())[name]
    simulation = harness.Simulation({**conf, "dskype.vocabulary": harness.vocabulary(conf)}, tasks, seed=SEED)
    draw = Draw(conf, SEED)
    simulation.subscription("all", {"type": "boolean", "bbox": [-10, -10, 10, 10], "expression": " OR ".join(harness.WORDS[:6])})
    for i in range(10):  # an even start, so that every task has a snapshot
        simulation.subscription(f"a{i}", draw.subscription())
        simulation.message({**draw.message(-1 - i), "id": f"a{i}", **({"ts": simulation.time_ms} if timed else {})})
        simulation.step()
        simulation.step()
    harness.play(simulation, draw.rng, messages=15, subscriptions=6, timed=timed, whole=draw.whole, places=draw.places)
    for i in range(8):
        simulation.message({**draw.message(0), "id": f"b{i}", **({"ts": simulation.time_ms} if timed else {})})
        simulation.subscription(f"b{i}", draw.subscription())
        simulation.step(3, ms=50)
    return kept(simulation.sim, simulation.time_ms, conf=conf, tasks=tasks, timed=timed)


def go_on_dskype(path: Path, seed: int | None = None) -> tuple[harness.Simulation, bool]:
    """Continue to the end with further messages and subscriptions; with a seed, under faults."""
    state = opened(path)
    simulation = harness.Simulation({**state["conf"], "dskype.vocabulary": harness.vocabulary(state["conf"])}, state["tasks"])
    simulation.time_ms = state["time_ms"] + 5_000

    def clock() -> int:
        return simulation.time_ms

    simulation.log = log_of(state, clock)
    simulation.sim = simulate(simulation.plan, simulation.log, clock, seed=seed, faults=Faults() if seed is None else Faults.heavy())
    simulation.sim.store.files = dict(state["files"])
    simulation.sim.activate()
    draw = Draw(state["conf"], SEED + 1)
    for i in range(12):
        simulation.message({**draw.message(0), "id": f"c{i}", **({"ts": simulation.time_ms} if state["timed"] else {})})
        simulation.subscription(draw.rng.choice(["a1", "a2", f"c{i}"]), None if draw.rng.random() < 0.3 else draw.subscription())
        simulation.step(1000 if seed is None else 10)
    simulation.drain(4, ms=800)
    return simulation, state["timed"]


# -- all ------------------------------------------------------------------------------------------


def scenes() -> dict[str, bytes]:
    """Make every scene: name -> what it leaves."""
    return {**{name: make_plain(name) for name in TOPOLOGIES}, **{name: make_dskype(name) for name in dskype_scenes()}, **new_scenes()}


def new_scenes() -> dict[str, bytes]:
    """Make the scenes that the newest released version does not have."""
    return {name: make_dskype(name) for name in language_scenes()}


def files() -> Iterator[tuple[str, Path]]:
    """Yield (version, file) of every scene of every version that is kept."""
    for path in sorted(HERE.glob("*/*.state")):
        yield path.parent.name, path
