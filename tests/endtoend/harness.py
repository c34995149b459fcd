"""DSkype as a whole on the simulated log: random scenarios, and the check of everything that was published."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import random
import re
import tempfile
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from dskype.bolts import boolean
from dskype.bolts.dskype_topology import dskype_topology
from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.deploy.verification import Inputs, Report, geometry, verify
from dskype.deploy.verification.reading_expressions import needs_word, read_expression, read_keywords
from dskype.deploy.verification.writes import check_topology_writes
from dskype.distribution import DISTRIBUTORS, HasPartitions, make_distributor
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor
from dskype.spouts.analyzers import stop_list
from dskype.spouts.expression import to_text
from dskype.spouts.kafka import MessageSpout
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.topology.config import TRANSPORTS
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from tests import languages, naive

from . import places as plain_places
from .initial import Initial, check_initial
from .searching import Searcher, check_searches
from .thresholds import Thresholds, check_scored

TOPICS = Topics.for_topology("dskype")
SPACE = [-10.0, -10.0, 10.0, 10.0]
TURNED_SPACE = [-180.0, -10.0, 180.0, 10.0]
"""The space of worlds that are turned, so that the antimeridian runs through their middle."""
DIAGONAL = math.hypot(20, 20)
WORDS = ["lake", "park", "café", "river", "hill", "old", "new", "harbour", "東京", "st"]
STOP_WORD = "old"
"""The stop word, where there is one."""
KNOWN = {word: df for df, word in enumerate(sorted(WORDS[:8]), 1)}
"""How many of 20 documents a word is in, where there is a vocabulary; it has not all of them."""


def vocabulary(conf=None):
    """Return the file of a vocabulary for a topology with a configuration; without one, for words as they are written."""
    settings = Settings.from_conf(conf or {})
    analyzer = settings.analyzer()
    return _vocabulary(None if analyzer.plain else analyzer.identity, json.dumps(known(conf or {})))


@functools.cache
def _vocabulary(identity, frequencies):
    about = {"documents": 20, "words": 2} | ({} if identity is None else {"analyzer": json.loads(identity)})
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".vocabulary", delete=False) as file:
        file.write(
            "\n".join([json.dumps(about), *(f"{word}\t{df}" for word, df in sorted(json.loads(frequencies).items(), key=lambda pair: (pair[1], pair[0])))])
            + "\n"
        )
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name


def known(conf):
    """Return word -> how many documents it is in, as the fields of a topology with a vocabulary have the words."""
    read = reader(conf)
    return {form: df for word, df in KNOWN.items() for field in conf.get("dskype.text.fields") or [""] for form in read(field, word) if form is not None}


FORMS = {
    "lake": ["lakes", "lake", "pond"],
    "park": ["parks", "parked", "Parks"],
    "café": ["cafe", "cafés", "cafes"],
    "river": ["rivers", "brook", "brooks"],
    "hill": ["hills", "the"],
    "new": ["news", "newer"],
    "harbour": ["harbours", "harboured", "port"],
}
"""What else is written for words where texts are analyzed."""
RULES = ["river, brook", "pond => lake", "port, harbours"]
ANALYZERS = [
    {"language": "english"},
    {"language": "english", "stop": True, "fold_accents": True, "synonyms": RULES},
    {"fold_accents": True, "stop": ["new", "the"]},
    {"language": "french", "fold_accents": True, "synonyms": RULES[:1]},
    {"synonyms": RULES},
]


def reader(conf):
    """Return what reads a field of a text: (name, text) -> its words in the plainest way, None for each stop word."""
    fields, more = conf.get("dskype.text.fields"), tuple(conf.get("dskype.stop.words", ()))
    own = {name: _plain_options(one, more) for name, one in fields.items() if one is not None} if isinstance(fields, dict) else {}
    general = _plain_options(conf.get("dskype.text.analyzer", "plain"), more)
    return lambda name, text: _read(text, own.get(name, general))


def _plain_options(analyzer, more):
    """Return the arguments of :func:`naive.analyzed` for an analyzer."""
    given = {} if analyzer == "plain" else analyzer
    stop = stop_list(given["language"]) if given.get("stop") is True else given.get("stop") or ()
    pairs = []
    for rule in given.get("synonyms", ()):
        left, arrow, right = rule.partition("=>")
        listed = [word.strip() for word in left.split(",")]
        pairs += [(word, right.strip() if arrow else listed[0]) for word in (listed if arrow else listed[1:])]
    return given.get("language"), (*stop, *more), given.get("fold_accents", False), tuple(pairs)


@functools.lru_cache(100_000)
def _read(text, options):
    return naive.analyzed(text, *options)


def topology(tasks, name="dskype", message_topics=None):
    """Build DSkype; ``tasks``: component -> number of tasks; ``message_topics``: those of the message spout, by default its own."""
    built = dskype_topology(name, tasks, result_tick_secs=1).create_topology()
    if message_topics is not None:
        built.components["message-spout"].obj = MessageSpout(message_topics)
    return built


class Simulation:
    """One DSkype on the simulated log."""

    def __init__(self, conf=None, tasks=None, seed=None, faults=Faults(), message_topics=None):
        self.time_ms = 1_700_000_000_000
        self.log = MemoryLog(lambda: self.time_ms)
        self.conf = {
            "topology.acker.executors": 0,
            "topology.emulator.snapshot.interval.ms": 300,
            "dskype.space": SPACE,
            "dskype.window.messages": 20,
            "dskype.results.topk.interval.ms": 0,
            **(conf or {}),
        }
        self.plan = TopologyPlan.build("dskype", "dskype-1-0", self.conf, topology(tasks or {}, message_topics=message_topics))
        self.sim = simulate(self.plan, self.log, lambda: self.time_ms, seed=seed, faults=faults)
        self.sim.activate()

    def message(self, record, partition=0):
        self.log.append(TOPICS.messages, partition, None, record if isinstance(record, bytes) else json.dumps(record).encode())

    def delete_object(self, key, partition=0):
        self.log.append(TOPICS.messages, partition, key, None)

    def subscription(self, id, record, partition=0):
        self.log.append(
            TOPICS.subscriptions,
            partition,
            id.encode() if isinstance(id, str) else id,
            record if record is None or isinstance(record, bytes) else json.dumps(record).encode(),
        )

    def change_plan(self, version, plan):
        self.log.append(TOPICS.plans, 0, b"plan", json.dumps({"v": 1, "version": version, "plan": plan}).encode())

    def step(self, max_batches=100_000, ms=200):
        self.time_ms += ms
        self.sim.tick_clock()
        self.sim.run(max_batches)

    def stand_still(self, ms):
        """Let time pass in which the topology's clock goes on and no query runs."""
        for _ in range(0, ms, 100):
            self.time_ms += 100
            self.sim.tick_clock()

    def rebalance(self, rng):
        """Continue with other executors, as many of each component as are drawn, on one or two workers."""
        plan = self.sim.plan
        executors = {c: rng.randint(1, len(plan.component_tasks(c))) for c in plan.component_ids if not c.startswith("__")}
        self.sim.rebalance(plan.rebalanced(executors, rng.randint(1, 2)))

    def drain(self, rounds=8, ms=200):
        for _ in range(rounds):
            self.step(ms=ms)

    def rest(self):
        """Run until nothing moves or waits any more, in large steps: each costs about the same, however long it is."""
        for _ in range(18):
            self.step(ms=600)
            self.step(ms=1200)
            if not unfinished(self) and not metric(self, "arriving") and not self.unread():
                break

    def unread(self):
        """Return how many messages are neither numbered nor dead letters: a spout whose executor has crashed again and again has not come to them yet."""
        numbered = sum(run["n"] for _, run, _ in self.json(TOPICS.sequence))
        refused = {(partition, offset) for topic, partition, offset in dead_letters(self) if topic == TOPICS.messages}
        sent = {(record.partition, record.offset) for record in self.records(TOPICS.messages)}
        return max(0, len(sent) - numbered - len(refused))  # those of other topics are numbered, too

    def records(self, topic):
        return self.log.records(topic)

    def json(self, topic):
        """Return the records of a topic as (key, value, headers), each once, where it was written last.

        A sink that fails may have written later records without earlier ones; then it writes all of them again, in order.
        """
        found = {}
        for record in self.records(topic):
            headers = dict(record.headers or [])
            mark = headers.get("record-id", len(found))
            found.pop(mark, None)
            found[mark] = record.key.decode(errors="replace") if record.key else None, None if record.value is None else json.loads(record.value), headers
        return list(found.values())


# -- scenarios ------------------------------------------------------------------------------------


def random_area(rng):
    """Return a rectangle whose centre is in the space: without extent, or a line, or larger, or across the antimeridian."""
    lat, lon = rng.randint(-10, 10), rng.randint(-10, 10)
    width, height = rng.choice([0, 0, 1, 5, 12]), rng.choice([0, 0, 1, 5, 12])
    if rng.random() < 0.15:  # almost all the way around the globe
        return rng.choice([[180, lat - height, 165, lat + height], [-170, lat - height, -180, lat + height]])
    return [lon - width, lat - height, lon + width, lat + height]


def random_message(rng, number, areas=0.0):
    """Return a message; it is an area with the probability ``areas``."""
    words = rng.choices(WORDS, k=rng.randint(0, 5))
    message = {"text": naive.written(words, number), "lat": float(rng.randint(-10, 10)), "lon": float(rng.randint(-10, 10))}
    if rng.random() < 0.5:
        message["id"] = number if rng.random() < 0.5 else f"m{number}"
    if areas and rng.random() < areas:
        del message["lat"], message["lon"]
        message["bbox"] = random_area(rng)
    return message


def random_subscription(rng, topk=0.7, expiring=0.2, lives_s=(0.5, 1, 2)):
    """Return a subscription; it is a top-k one with the probability ``topk``, and a boolean one expires with the probability ``expiring``."""
    words = rng.sample(WORDS, rng.randint(1, 3))
    if rng.random() < topk:
        record = {
            "type": "topk",
            "keywords": [naive.spelled(word, len(words)) for word in [*words, *words[1:]]],  # all but the first one count twice
            "k": rng.randint(1, 6),
            "alpha": rng.choice([0, 1, 0.5, rng.random()]),
            "lat": float(rng.randint(-10, 10)),
            "lon": float(rng.randint(-10, 10)),
        }
        if (kind := int(record["lat"] * 7 + record["lon"] * 3 + record["k"]) % 6) < 2:  # without a draw more
            record |= {"distance": "metres", "scale_m": ((1_500_000, 300_000.5), (700_000, 20))[kind][record["k"] % 2]}
    else:
        west, south = rng.uniform(-10, 5), rng.uniform(-10, 0)
        record = {
            "type": "boolean",
            "bbox": [west, south, west + rng.uniform(5, 25), south + rng.uniform(5, 20)],
            "expression": f" {rng.choice(['AND', 'OR', 'OR', 'ＯＲ'])} ".join(naive.spelled(word, len(words)) for word in words),
        }
        if rng.random() < expiring:
            record["ttl_s"] = rng.choice(lives_s)
    if rng.random() < 0.3:
        record["meta"] = {"n": rng.randint(0, 9)}
    return record


def moved(rng, record):
    """Return a subscription that goes on from another one: a top-k one at another place, a boolean one with another rectangle, if it has one."""
    record = record | {"update": True}
    if record["type"] == "topk":
        return record | {"lat": float(rng.randint(-10, 10)), "alpha": rng.choice([record["alpha"], 0.5]), "k": rng.choice([record["k"], 3])}
    if "bbox" in record and record["bbox"][0] <= record["bbox"][2]:
        west, south, east, north = record["bbox"]
        record["bbox"] = [max(-180, west - rng.uniform(0, 4)), south + rng.uniform(0, 2), east - rng.uniform(0, (east - west) / 2), north + rng.uniform(0, 5)]
    return record


def of_object(rng, message, last):
    """Let a message be a state of one of a few objects, or none; its deletion, now and then. Return it, or the key of a record that deletes the object.

    :param last: object -> its last message, which it often repeats in part.
    """
    if rng.random() < 0.2:
        return message
    name = rng.choice([*range(3), "v1", "Bus É", "0"])
    if rng.random() < 0.15:
        return str(name).encode() if rng.random() < 0.5 else {"object": name, "deleted": True, **({"id": message["id"]} if "id" in message else {})}
    if name in last and rng.random() < 0.6:
        kept = [key for key in ("text", "lat", "lon", "bbox", "region") if key in last[name]]
        kept = kept if rng.random() < 0.5 else ["text"]
        dropped = {"lat", "lon", "bbox", "region"} if len(kept) > 1 else set()
        message = {key: value for key, value in message.items() if key not in dropped} | {key: last[name][key] for key in kept}
    last[name] = message
    return {**message, "object": name}


BAD = [
    b"{",
    b"[]",
    b'{"text": "lake"}',
    b'{"text": "lake", "lat": NaN, "lon": 1}',
    b'{"text": "lake", "lat": 50, "lon": 1}',
    b'{"text": 1, "lat": 0, "lon": 0}',
]
BAD_AREAS = [
    b'{"text": "lake", "lat": 0, "lon": 0, "bbox": [0, 0, 1, 1]}',
    b'{"text": "lake", "bbox": [0, 1, 1, 0]}',
    b'{"text": "lake", "bbox": [40, 0, 50, 1]}',
]
BAD_SUBSCRIPTIONS = [b"{", b'{"type": "topk"}', b'{"type":"topk","text":"lake","k":0,"alpha":0.5,"lat":0,"lon":0}']


def another_plan(rng, name, tasks, options, plan, seen=None):
    """Return a plan that some splits, merges and shifts make of another one; the same one for distributors without partitions.

    :param seen: counts ``corner shifts``.
    """
    distributor = make_distributor(name, tasks, options, plan)
    for _ in range(rng.choice([1, 1, 2, 5]) if isinstance(distributor, HasPartitions) else 0):
        parts = len(distributor.partitions())
        try:
            if isinstance(distributor, AGridDistributor) and rng.random() < 0.5:
                plan = shifted(rng, distributor, Counter() if seen is None else seen)
            elif isinstance(distributor, GridtDistributor) and rng.random() < 0.4:
                plan = distributor.divide(rng.randrange(parts), rng.randrange(tasks))
            elif rng.random() < 0.6:
                plan = distributor.split(rng.randrange(parts), rng.randrange(tasks))
            else:
                plan = distributor.merge(rng.randrange(parts), rng.randrange(parts))
        except IllegalArgumentException:
            continue
        distributor = make_distributor(name, tasks, options, plan)
    return distributor.plan()


def corners(distributor):
    """Return between which partitions corner shifts are possible, as (giver, taker)."""
    grid = distributor.grid
    return [(giver, taker) for giver in grid.partitions() for taker in grid.neighbours(giver) if grid.corner(giver, taker) is not None]


def shifted(rng, distributor, seen):
    """Return a plan in which a neighbour has some cells of a partition: by a corner shift, where there is one, as often as by another shift."""
    if rng.random() < 0.5 and (found := corners(distributor)):
        seen["corner shifts"] += 1
        return distributor.shift(*rng.choice(found))
    giver = rng.randrange(len(distributor.partitions()))
    near, cells = distributor.grid.neighbours(giver), distributor.grid.cells(giver)
    taker = rng.choice(near) if near else giver
    beside = cells.x1 == distributor.grid.cells(taker).x0 or cells.x0 == distributor.grid.cells(taker).x1
    low, high = (cells.x0, cells.x1) if beside else (cells.y0, cells.y1)
    return distributor.shift(giver, taker, rng.randint(low, high))


class Planner:
    """Writes plans now and then: mostly good ones.

    :param takeovers: the share of plans that take over step by step.
    """

    def __init__(self, simulation, rng, often=0.3, takeovers=0.0):
        self.simulation, self.rng, self.often, self.version, self.takeovers = simulation, rng, often, 0, takeovers
        conf = simulation.conf
        self.name, self.tasks = conf.get("dskype.distributor", "hashing"), len(simulation.plan.component_tasks("subscription-bolt"))
        self.options = conf.get("dskype.distributor.options", {})
        self.newest = make_distributor(self.name, self.tasks, self.options).plan()
        self.seen = Counter()
        """How many ``corner shifts`` the plans have."""

    def begin_with_corners(self):
        """Write a first plan whose partitions share few whole sides, so that corner shifts are often the only ones; each task keeps one partition."""
        for _ in range(12):
            distributor = make_distributor(self.name, self.tasks, self.options, self.newest)
            with contextlib.suppress(IllegalArgumentException):
                self.newest = shifted(self.rng, distributor, Counter())
        self.version += 1
        self.simulation.change_plan(self.version, self.newest)

    def step(self):
        rng = self.rng
        if rng.random() >= self.often:
            return
        kind = rng.random()
        if kind < 0.05:
            self.simulation.change_plan(max(1, self.version), self.newest)
        elif kind < 0.1:
            self.version += 1
            self.simulation.change_plan(self.version, {**self.newest, "tasks": self.tasks + 1})
        else:
            self.version += 1
            self.newest = another_plan(rng, self.name, self.tasks, self.options, self.newest, self.seen)
            by_steps = self.takeovers and rng.random() < self.takeovers
            self.simulation.change_plan(self.version, {**self.newest, "takeover": rng.choice([0, 0.4, 0.8])} if by_steps else self.newest)


EXPIRING = {"expiring": 0.7, "lives_s": (1, 25, 60)}
LONG_STEPS = {"steps_ms": (200, 30_000, 40_000), "most": 3, "lives": EXPIRING}
"""What :func:`random_subscription` and :func:`play` take so that boolean subscriptions end by themselves while it plays: a task ends one only a minute after its time, when a message comes."""


def inflected(rng, words):
    """Return words, some of them in another form."""
    return [rng.choice(FORMS[word]) if word in FORMS and rng.random() < 0.5 else word for word in words]


class Speech:
    """Lets messages and subscriptions say what takes the whole language.

    :param rng: what it draws from.
    :param conf: the configuration of the topology.
    """

    def __init__(self, rng, conf):
        self._rng, self._settings = rng, Settings.from_conf(conf)
        self._whole = bool(self._settings.attributes)
        self._analyzed = not self._settings.analyzer().plain
        read, fields = reader(conf), self._settings.text_fields or ("",)
        forms = [*WORDS, *(form for forms in FORMS.values() for form in forms)] if self._analyzed else WORDS
        self._words = [word for word in forms if all(read(field, word) != [None] for field in fields)]

    def of_message(self, record, number):
        """Return a message, perhaps with attributes, with fields of its text, and with other forms of its words."""
        rng, fields = self._rng, self._settings.text_fields
        if self._whole:
            record = record | {"attributes": languages.random_attributes(rng)}
        text = naive.written(inflected(rng, naive.words(record["text"])), number) if self._analyzed else record["text"]
        if fields:
            other = rng.choices(WORDS, k=rng.randint(0, 4))
            text = {fields[0]: text, fields[1]: naive.written(inflected(rng, other) if self._analyzed else other, number)}
        return record | {"text": text}

    def of_subscription(self, record):
        """Return a subscription that perhaps has an expression of the whole language."""
        if record is None:
            return None
        rng, record, topk = self._rng, dict(record), record["type"] == "topk"
        if topk and self._analyzed:
            record["keywords"] = inflected(rng, [word for text in record["keywords"] for word in naive.words(text)])
        if rng.random() < 0.6 and (self._whole or not topk):
            record["where" if topk else "expression"] = to_text(languages.random_expression(rng, self._settings.language, 2, self._words))
        elif not topk and rng.random() < 0.2:
            del record["expression"]
            record["keywords"] = [naive.spelled(word, rng.random()) for word in rng.choices(self._words, k=rng.randint(1, 3))]
        if not topk and rng.random() < 0.7:
            for name in ("expression", "keywords") if self._settings.wordless and rng.random() < 0.75 else ("bbox",):
                record.pop(name, None)
        return record


def play(
    simulation,
    rng,
    *,
    messages=40,
    subscriptions=14,
    timed=False,
    partitions=1,
    planner=None,
    areas=0.0,
    topk=0.7,
    lives=None,
    most=8,
    steps_ms=(20, 200),
    drain=True,
    trouble=None,
    whole=None,
    places=None,
    objects=None,
    living=None,
    searcher=None,
    thresholds=None,
    initial=None,
):
    """Write messages and subscriptions a few at a time, and let the topology run in between.

    :param areas: probability that a message is an area; ``topk``: that a subscription is a top-k one; ``lives``: how boolean ones expire, as :func:`random_subscription` takes it.
    :param most: the most messages at a time.
    :param steps_ms: lengths of the time in between.
    :param drain: whether to let it come to rest in the end.
    :param trouble: a generator with which to draw standstills, in which further messages come, and rebalances; None: there are none.
    :param whole: a generator with which to draw what takes the whole language, see :class:`Speech`; None: there is nothing of it.
    :param places: gives messages and subscriptions other places; None: they keep theirs.
    :param objects: a generator with which to draw of which objects messages are states; None: of none.
    :param living: a generator with which to draw how long top-k subscriptions live, and which registrations are updates; None: they do not end by themselves, and none is.
    :param searcher: writes searches; None: there are none.
    :param thresholds: puts threshold subscriptions in place of others; None: there are none.
    :param initial: lets boolean subscriptions ask for what matches already; None: none does.
    """
    speech = None if whole is None else Speech(whole, simulation.conf)
    last: dict = {}
    records: dict = {}
    number, ids = 0, [f"s{i}" for i in range(max(3, subscriptions * 2 // 3))]
    while number < messages:
        for _ in range(rng.randint(0, most)):
            if rng.random() < 0.05:
                simulation.message(rng.choice(BAD + BAD_AREAS if areas else BAD), rng.randrange(partitions))
                continue
            message = random_message(rng, number, areas)
            if speech is not None:
                message = speech.of_message(message, number)
            if places is not None:
                message = places.of_message(message)
            if timed:
                message["ts"] = simulation.time_ms - rng.randint(-300, 300)
            partition = rng.randrange(partitions)
            number += 1
            if objects is not None:
                ts = {"ts": message["ts"]} if timed else {"ts": simulation.time_ms - objects.randint(0, 200)} if objects.random() < 0.3 else {}
                found = of_object(objects, message, last)
                if isinstance(found, bytes):
                    simulation.delete_object(found, partition)
                    continue
                message = found | ts
            simulation.message(message, partition)
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            chosen = rng.choice(ids)
            record = None if rng.random() < 0.25 else random_subscription(rng, topk, **(lives or {}))
            if speech is not None:
                record = speech.of_subscription(record)
            if places is not None:
                record = places.of_subscription(record)
            if objects is not None and isinstance(record, dict) and objects.random() < 0.5:
                inside = objects.random() < 0.7
                record |= {"inside": inside} if record["type"] == "boolean" else {}
            if living is not None and record is not None and record["type"] == "topk" and living.random() < 0.3:
                record["ttl_s"] = living.choice([0.2, 0.5, 1, 2])
            record = record if initial is None else initial.of_subscription(record)
            records[chosen] = record
            simulation.subscription(chosen, record if thresholds is None else thresholds.instead_of(chosen, record))
        if living is not None and living.random() < 0.6 and records:
            chosen = living.choice(list(records))
            records[chosen] = moved(living, records[chosen] or random_subscription(living, topk))
            simulation.subscription(chosen, records[chosen] if thresholds is None else thresholds.moved(chosen, records[chosen]))
        if rng.random() < 0.05:
            simulation.subscription(rng.choice(ids), rng.choice(BAD_SUBSCRIPTIONS))
        if planner is not None:
            planner.step()
        if searcher is not None:
            searcher.step()
        if trouble is not None and trouble.random() < 0.06:
            for _ in range(trouble.randint(1, 4)):
                simulation.stand_still(trouble.choice([100, 300, 700, 2000]))
                message = random_message(trouble, number, areas)
                if places is not None:
                    message = places.of_message(message)
                if timed and trouble.random() < 0.7:
                    message["ts"] = simulation.time_ms - trouble.choice([0, 50, 300, 900])
                simulation.message(message, trouble.randrange(partitions))
                number += 1
        if trouble is not None and trouble.random() < 0.04:
            simulation.rebalance(trouble)
        simulation.step(rng.choice([3, 10, 30, 1000]), ms=rng.choice(steps_ms))
    if drain:
        simulation.step(ms=500)  # shorter than from tick to tick: there are crashes while changed lists wait for one
        # Lists wait for the next tick. With time windows the last message waits until nothing has come for a while.
        simulation.drain(3 if timed else 2, ms=1000)


def options_of(name, tasks, space=SPACE):
    """Return options of a distributor for a number of tasks."""
    if name in ("agrid", "hybrid", "space-partitioning", "text-partitioning"):  # lines between cells that cut the subscriptions
        return {"granularity": 24, "box": space}
    if name not in ("spatial-first", "keyword-first"):
        return {}
    n1 = max(n for n in range(1, tasks + 1) if tasks % n == 0 and n * n <= tasks)
    return {"n1": n1, "n2": tasks // n1}


def in_turn(seed, names):
    """Return one of some names: of as many seeds in a row as there are names, each gets another one, in an order that is drawn anew each time."""
    names = sorted(names)
    turn, place = divmod(seed, len(names))
    random.Random(f"{turn} {names}").shuffle(names)
    return names[place]


def boolean_index(seed):
    """Return a boolean index: of four seeds in a row one has ``plain``, two ``lanes``, the default, and one has one of the others, which take turns."""
    turn, place = divmod(seed, 4)
    return in_turn(turn, boolean.INDEXES.keys() - {"plain", "lanes"}) if place == 3 else ("plain", "lanes", "lanes")[place]


def end_expired(simulation, rng, words=WORDS):
    """Let the time of all boolean subscriptions that expire be over, and check that each has ended, everywhere."""
    simulation.step(rng.choice([3, 10, 30]), ms=130_000)
    for id in ("last but one", "last"):  # both go to every task. A task ends them with its next message that was not applied together with older ones
        simulation.message({"id": id, "text": " ".join(words), "bbox": SPACE})
        simulation.rest()
    world = world_of(simulation)
    removed = {event["registration"] for _, event, _ in simulation.json(TOPICS.registrations) if event["event"] == "removed"}
    left = [registration for registration, subscription in world.subscriptions.items() if "ttl_s" in subscription and registration not in removed]
    assert not left, f"{left} have expired and not ended"
    stay = [id for id, registration in world.newest.items() if registration is not None and "ttl_s" not in world.subscriptions[registration]]
    assert metric(simulation, "registered") == len(stay), "what has ended is still registered, or more has ended"


def random_run(seed, most=5, objects=False, topk=0.05):
    """Play a random scenario with random numbers of tasks and heavy faults, and check it; returns what was compared, and the faults.

    Distributors, indexes, buffers, windows and transports take turns, so that few seeds have all of them about equally often.

    :param most: how many tasks the subscription bolt has at most.
    :param objects: messages are states of objects; ``topk``: then, the share of subscriptions that are top-k ones.
    """
    rng = random.Random(seed)
    timed = seed % 4 == 3
    partitions = rng.choice([1, 1, 2])
    name = in_turn(seed, DISTRIBUTORS)
    n = 32 if most == 32 else rng.randint(1, most)
    tasks = {
        "subscription-bolt": n,
        "message-bolt": rng.randint(1, 3),
        "distribution-bolt": rng.randint(1, 3),
        "aggregation-bolt": rng.randint(1, 2),
        "subscription-spout": rng.randint(1, 2),
        "result-bolt": rng.randint(1, 2),
    }
    conf = {
        "dskype.results.topk.interval.ms": rng.choice([0, 300]),
        "dskype.index": in_turn(seed, INDEXES),
        "dskype.buffer": in_turn(seed, BUFFERS),
        "dskype.window.index": in_turn(seed, WINDOWS),
        "dskype.boolean.index": in_turn(seed, boolean.INDEXES),
        "dskype.distributor": name,
        "dskype.distributor.options": options_of(name, n),
    }
    has_vocabulary = rng.random() < 0.7
    if timed:
        tasks["message-spout"] = rng.randint(1, partitions)
        conf |= {"dskype.window.messages": None, "dskype.window.span.ms": rng.choice([500, 2000]), "dskype.window.lateness.ms": rng.choice([0, 100])}
    else:
        conf["dskype.window.messages"] = rng.choice([3, 10, 25, 200])
    trouble = random.Random(f"trouble {seed}")
    if timed:
        partitions = trouble.choice([1, 2, 2, 3])
        tasks["message-spout"] = trouble.choice([1, 1, partitions])
        conf["dskype.window.lateness.ms"] = trouble.choice([0, 100, 300, 1000])
        conf["dskype.window.idle.ms"] = trouble.choice([0, 200, 500, 500])
    more = random.Random(seed + 1)  # a generator of its own: the other draws of a seed stay the same
    areas, conf["dskype.results.matches"] = more.choice([0.0, 0.0, 0.1, 0.6]), more.choice(["each", "grouped"])
    if random.Random(f"meta {seed}").random() < 0.3:
        conf |= {"dskype.results.meta.bytes.per.second": 20, "dskype.results.meta.total.bytes.per.second": 60}
    if DISTRIBUTORS[name].summaries is not None:
        conf["dskype.distributor.options"] |= {"summaries": more.random() < 0.7}
    whole = random.Random(f"language {seed}")
    if whole.random() < 0.6:
        conf |= {"dskype.attributes": languages.ATTRIBUTES, "dskype.boolean.prefixes": whole.random() < 0.7, "dskype.boolean.wordless": whole.random() < 0.6}
        conf |= {"dskype.text.fields": list(languages.FIELDS)} if whole.random() < 0.5 else {}
        conf |= {"dskype.stop.words": [STOP_WORD]} if whole.random() < 0.5 else {}
    forms = random.Random(f"analyzers {seed}")
    if analyzed := forms.random() < 0.4:
        if "dskype.text.fields" in conf and forms.random() < 0.7:
            conf["dskype.text.fields"] = {name: forms.choice([*ANALYZERS, "plain", None]) for name in languages.FIELDS}
        conf["dskype.text.analyzer"] = forms.choice(ANALYZERS)
    if has_vocabulary:
        conf["dskype.vocabulary"] = vocabulary(conf)
    shapes = random.Random(f"regions {seed}")
    places = plain_places.Places(shapes, shapes.choice([0.1, 0.3]), shapes.random() < 0.4) if shapes.random() < 0.4 else None
    if places is not None and places.turned:
        conf |= {"dskype.space": TURNED_SPACE, "dskype.distributor.options": conf["dskype.distributor.options"] | options_of(name, n, TURNED_SPACE)}
    carried = random.Random(f"fields {seed}")
    if carried.random() < 0.5:
        sources = ["text", "place", "time", "$.lat", "$.id", *(["price", "tags", "$.attributes.tags[0]"] if "dskype.attributes" in conf else [])]
        sources += [*(conf.get("dskype.text.fields") or [])]
        conf["dskype.results.fields"] = {f"f{i} é": source for i, source in enumerate(carried.sample(sources, carried.randint(1, 4)))}
        conf["dskype.results.fields.max.bytes"] = carried.choice([60, 1024])
    moving = random.Random(f"objects {seed}") if objects else None
    if moving is not None:
        conf |= {"dskype.objects": True, "dskype.buffer": "kmax", "dskype.window.index": "chunks"}
        if timed:
            conf["dskype.objects.ttl.ms"] = moving.choice([None, 100, 700, 2000])
    if timed and not objects and (decay := random.Random(f"half-life {seed}")).random() < 0.5:
        conf["dskype.half.life.s"] = decay.choice([0.1, 0.3, 1, 20])
        if conf["dskype.buffer"] == "skyband":
            conf["dskype.buffer"] = "kmax"
    if most <= 5:  # real-time queries have many more batches, which takes minutes with 32 tasks
        conf["topology.emulator.transport"] = in_turn(seed, TRANSPORTS)
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    planner = Planner(simulation, rng) if name != "hashing" and rng.random() < 0.7 else None
    whole = whole if analyzed or "dskype.attributes" in conf else None
    more_of = {} if moving is None else {"objects": moving, "topk": topk, "messages": 60}
    more_of["living"] = random.Random(f"living {seed}")
    more_of["searcher"] = Searcher(simulation, searches := random.Random(f"searches {seed}"), drawing(searches, conf, places))
    if moving is None:
        scored, (west, south, east, north) = random.Random(f"thresholds {seed}"), simulation.conf["dskype.space"]
        more_of["initial"] = Initial(random.Random(f"initial {seed}"))
        more_of["thresholds"] = Thresholds(scored, drawing(scored, conf, places, topk=1.0), math.hypot(east - west, north - south))
    play(simulation, rng, timed=timed, partitions=partitions, planner=planner, areas=areas, trouble=trouble, whole=whole, places=places, **more_of)
    for _ in range(4):  # what moves last may take its time
        if not unfinished(simulation):
            break
        simulation.drain(2, ms=400)
    if tasks.get("message-spout", 1) > 1 and (unfinished(simulation) or metric(simulation, "plan_changes")):
        # A spout task whose partition is quiet holds the watermark behind messages that were sent by the old plan, or withheld. Until it has passed them, lists of
        # subscriptions that move stay as they are.
        for partition in range(partitions):
            simulation.message({**random_message(rng, 10_000 + partition), "ts": simulation.time_ms}, partition)
        simulation.drain(4, ms=800)
    compared = check(simulation, timed, f"reproduce with DSKYPE_SEED={seed}")
    raw, refused = {(r.partition, r.offset): r.value for r in simulation.records(TOPICS.messages)}, codes(simulation)
    wrongly = [
        place for place, code in refused.items() if place[0] == TOPICS.messages and code not in ("late", "early") and raw[place[1:]] not in BAD + BAD_AREAS
    ]
    assert not wrongly, f"good messages were refused: {wrongly}; reproduce with DSKYPE_SEED={seed}"
    good = {(r.partition, r.offset): r.value for r in simulation.records(TOPICS.subscriptions) if r.value not in BAD_SUBSCRIPTIONS}
    wrongly = [good[place[1:]] for place in refused if place[0] == TOPICS.subscriptions and place[1:] in good and not may_be_refused(good[place[1:]], conf)]
    assert not wrongly, f"good subscriptions were refused: {wrongly}; reproduce with DSKYPE_SEED={seed}"
    assert not unfinished(simulation), f"subscriptions still move, or wait to begin; reproduce with DSKYPE_SEED={seed}"
    if objects or seed in (0, 8, 16, 24):  # a few of the others; verification has tests of its own
        found = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True)
        assert found.ok and found.compared["results of objects"] == compared["enter"] + compared["inside"] + compared["leave"], f"{found.as_text()}; {seed}"
        asked = compared["top-k searches"] + compared["boolean searches"]
        assert found.compared["searches"] == asked or any("searches" in why for why in found.unchecked), f"{found.as_text()}; {asked} answers; {seed}"
        compared["verified searches"] += found.compared["searches"]
    compared["withheld"] += metric(simulation, "withheld_messages")
    compared["plans"] += metric(simulation, "plan_changes")
    compared["filtered"] += sum(b'"where"' in (r.value or b"") for r in simulation.records(TOPICS.subscriptions))
    compared["wordless"] += sum(b'"boolean"' in r.value and b'"expression"' not in r.value for r in simulation.records(TOPICS.subscriptions) if r.value)
    compared["regions"] += sum(b'"region"' in (r.value or b"") for topic in (TOPICS.messages, TOPICS.subscriptions) for r in simulation.records(topic))
    compared["analyzed"] += analyzed
    compared["areas"] += sum(b'"bbox"' in (r.value or b"") for r in simulation.records(TOPICS.messages))
    return compared, simulation.sim.fault_counts


def drawing(rng, conf, places, topk=0.5):
    """Return what draws subscriptions as :func:`play` does, by a generator of its own."""
    speech = Speech(rng, conf) if "dskype.attributes" in conf or "dskype.text.analyzer" in conf else None
    own = None if places is None else plain_places.Places(rng, 0.3, places.turned)

    def draw():
        record = random_subscription(rng, topk)
        record = record if speech is None else speech.of_subscription(record)
        return record if own is None else own.of_subscription(record)

    return draw


def may_be_refused(value, conf):
    """Tell whether a subscription has a stop word where each word has to be one that counts, or needs no word although all have to."""
    record, read, settings = json.loads(value), reader(conf), Settings.from_conf(conf)
    words = naive.words(" ".join([*record.get("keywords", ()), record.get("expression", "")]))
    if any(read(name, word) == [None] for word in words for name in settings.text_fields or [""]):
        return True
    return not settings.wordless and "expression" in record and not needs_word(read_expression(record["expression"], settings))


def unfinished(simulation):
    """Return how many subscriptions move, or wait until their interest is known everywhere."""
    return metric(simulation, "moving") + metric(simulation, "held_registrations")


def metric(simulation, name):
    """Return a metric of a running simulation, summed over tasks."""
    return sum(task.get("metrics", {}).get(name, 0) for task in simulation.sim.stats.tasks.values())


# -- the check ------------------------------------------------------------------------------------


@dataclass
class World:
    """The input, as the plain oracle sees it."""

    messages: list = field(default_factory=list)
    by_id: dict = field(default_factory=dict)
    subscriptions: dict = field(default_factory=dict)  # registration -> parsed
    newest: dict = field(default_factory=dict)  # id -> registration or None
    watermark: int = -1
    refused: int = 0
    """How many messages were rightly refused as late, or as too far ahead."""
    read: object = None
    """See :func:`reader`."""
    turned: bool = False
    diagonal_deg: float = 0.0
    changes: list = field(default_factory=list)
    """How objects change."""
    ends: dict = field(default_factory=dict)
    """Message id -> from when on it does not count in lists any more."""

    def window(self, watermark, extent):
        """Return the messages that count at a watermark."""
        return [m for m in self.messages if watermark - extent < m["position"] <= watermark < self.ends.get(m["id"], math.inf)]


def world_of(simulation, timed=False, hint=""):
    """Read the input back from the log: message numbers from the sequence topic, everything else from the input topics."""
    settings = Settings.from_conf(simulation.conf)
    read = reader(simulation.conf)
    west, south, east, north = simulation.conf["dskype.space"]
    world = World(read=read, turned=simulation.conf["dskype.space"] == TURNED_SPACE, diagonal_deg=math.hypot(east - west, north - south))
    df, documents = (known(simulation.conf), 20) if simulation.conf.get("dskype.vocabulary") else ({}, 1)
    raw = {(r.partition, r.offset): r for r in simulation.records(TOPICS.messages)}
    numbered, tasks = {}, {}
    for _, run, _ in simulation.json(TOPICS.sequence):
        for i in range(run["n"]):
            seq = run["first"] + i * run.get("step", 1)
            assert seq not in numbered, f"number {seq} was given twice"
            tasks[seq] = run["task"]
            numbered[seq] = raw[run["partition"], run["offset"] + i]
    for seq, record in sorted(numbered.items()):
        value = {"object": record.key.decode(), "deleted": True} if record.value is None else json.loads(record.value)
        if value.get("deleted"):
            value |= {"text": "", "lat": 0.0, "lon": 0.0}
        text = {settings.text_fields[0]: value["text"]} if settings.text_fields and isinstance(value["text"], str) else value["text"]
        parts = text if isinstance(text, dict) else dict(enumerate(text.split("\x1f")))
        counts = Counter(word for name, part in parts.items() for word in read(name, part) if word is not None)
        id = json.dumps(value.get("id", f"{record.partition}-{record.offset}"))
        around = geometry.box_of(value["region"]) if "region" in value else value.get("bbox")
        west, south, east, north = around or (value["lon"], value["lat"], value["lon"], value["lat"])
        middle = (west + east) / 2 if west <= east else (west + east + 360) / 2
        message = {
            "seq": seq,
            "position": value.get("ts", record.timestamp_ms) if timed else seq,
            "lat": (south + north) / 2,
            "lon": middle if middle < 180 + 1e-9 else middle - 360,  # one on the antimeridian is at 180; ``box_of`` rounds
            "place": {part: value[part] for part in ("lat", "lon", "bbox", "region") if part in value},
            "id": id,
            "weights": naive.norm_weights(counts, df, documents) if counts else {},
            "arrival_ms": record.timestamp_ms,
            "partition": record.partition,
            "text": text,
            "attributes": value.get("attributes"),
            "carried": {},
            "object": str(value["object"]) if settings.objects and "object" in value else None,
            "deleted": value.get("deleted", False),
            "own_ms": value.get("ts", math.inf if value.get("deleted") else record.timestamp_ms),
        }
        if (sources := simulation.conf.get("dskype.results.fields")) and not message["deleted"]:
            most = simulation.conf["dskype.results.fields.max.bytes"]
            message["carried"] = naive.fields(sources, value, record.timestamp_ms, settings.text_fields, most)
        world.messages.append(message)
        world.by_id[id] = message
    assert len(world.by_id) == len(world.messages), "the scenario repeats a message id"
    if not timed:
        assert sorted(numbered) == list(range(len(numbered))), "numbers are not dense"
    dead = {(p, o) for topic, p, o in dead_letters(simulation) if topic == TOPICS.messages}
    assert dead | {(r.partition, r.offset) for r in numbered.values()} == set(raw), "a message is neither numbered nor a dead letter"
    world.refused = check_refusals(simulation, world, {place: raw[place] for place in dead}, tasks, timed, hint)
    # A spout task whose partition has gone quiet holds the watermark at its newest message; one that never read any, at none.
    newest = dict.fromkeys(simulation.plan.component_tasks("message-spout"), -1)
    for message in world.messages:
        newest[tasks[message["seq"]]] = max(newest[tasks[message["seq"]]], message["position"])
    world.watermark = min(newest.values())
    if settings.objects:
        ordered = sorted(world.messages, key=lambda m: (m["position"], m["seq"]))
        world.changes = naive.object_changes(ordered, world.watermark, settings.objects_ttl_ms)
        world.ends = naive.ends(ordered, world.changes)
    bad = {(p, o) for topic, p, o in dead_letters(simulation) if topic == TOPICS.subscriptions}
    for record in simulation.records(TOPICS.subscriptions):
        if (record.partition, record.offset) in bad:
            continue
        id = record.key.decode()
        registration = f"{record.partition}-{record.offset}"
        world.newest[id] = None if record.value is None else registration
        if record.value is not None:
            value = json.loads(record.value)
            value["id"], value["at_ms"] = id, record.timestamp_ms
            if value["type"] in ("topk", "threshold"):
                words = [word for keyword in value["keywords"] for word in keywords_of(keyword, simulation.conf)]
                value["weights"] = naive.norm_weights(Counter(words), df, documents)
                value["where"] = read_expression(value["where"], settings) if "where" in value else None
            elif "keywords" in value:
                value["tree"] = read_keywords(value["keywords"], settings)
            elif settings.attributes or not settings.analyzer().plain:
                value["tree"] = read_expression(value["expression"], settings) if "expression" in value else ["all"]
            world.subscriptions[registration] = value
    return world


def keywords_of(text, conf):
    """Return the words of a top-k subscription for a text: as the first field has them, then what is new in each field with another analyzer."""
    read, found = reader(conf), []
    for name in conf.get("dskype.text.fields") or [""]:
        before = set(found)
        found += [word for word in read(name, text) if word is not None and word not in before]
    return found


def check_refusals(simulation, world, refused, tasks, timed, hint):
    """Check that messages refused as late or too far ahead were so by the documented rule (docs/concepts/pubsub.md, "Time windows"); return how many these are.

    :param refused: (partition, offset) -> record.
    :param tasks: sequence number -> task.
    """
    good = {place: record for place, record in refused.items() if codes(simulation)[TOPICS.messages, *place] in ("late", "early")}
    conf, groups, task_of = simulation.conf, defaultdict(list), {}
    for message in world.messages:
        task_of[message["partition"]] = tasks[message["seq"]]
        groups[tasks[message["seq"]]].append((message["arrival_ms"], message["position"]))
    for place, record in good.items():
        own_ms = json.loads(record.value or b"{}").get("ts", record.timestamp_ms)
        if timed and own_ms > record.timestamp_ms + conf.get("dskype.window.ahead.ms", 60_000):
            continue
        accepted = [groups[task_of[place[0]]]] if place[0] in task_of else groups.values()
        rule = conf.get("dskype.window.lateness.ms", 0), conf.get("dskype.window.idle.ms", 500)
        assert timed and any(naive.is_late(own_ms, record.timestamp_ms, sorted(group), *rule) for group in accepted), (
            f"a good message was refused: {place}, own time {own_ms}, arrival {record.timestamp_ms}; {hint}"
        )
    return len(good)


def codes(simulation):
    """Return (topic, partition, offset) -> the code of the dead letter."""
    headers = [{k: v.decode() for k, v in record.headers} for record in simulation.sim.dead_letters()]
    return {(h["topic"], int(h["partition"]), int(h["offset"])): h["code"] for h in headers}


def dead_letters(simulation):
    """Return (topic, partition, offset) of every dead letter once; each must give a reason."""
    found = set()
    for record in simulation.sim.dead_letters():
        headers = {k: v.decode() for k, v in record.headers}
        assert headers["error"] and headers["stage"]
        found.add((headers["topic"], int(headers["partition"]), int(headers["offset"])))
    return found


def half_life_of(simulation):
    """Return the half-life of a topology in ms; None: age does not count."""
    half_life_s = simulation.conf.get("dskype.half.life.s")
    return None if half_life_s is None else half_life_s * 1000


def check(simulation, timed=False, hint=""):
    """Compare everything that was published with the plain oracle; returns how much was compared."""
    world = world_of(simulation, timed, hint)
    extent = simulation.conf["dskype.window.span.ms" if timed else "dskype.window.messages"]
    compared = defaultdict(int)
    compared["refused"] = world.refused
    diagonal_deg = world.diagonal_deg
    half_life_ms = half_life_of(simulation)
    expected_cache = {}

    def expected(registration, watermark):
        key = registration, watermark
        if key not in expected_cache:
            subscription = world.subscriptions[registration]
            window = world.window(watermark, extent)
            if subscription["where"] is not None:
                window = [m for m in window if naive.holds(subscription["where"], m, read=world.read)]
            scores = {m["id"]: s for m in window if (s := naive.score(subscription, m, diagonal_deg, half_life_ms)) is not None}
            best = [(world_ids[seq], s) for seq, s in naive.topk(subscription, window, watermark, extent, diagonal_deg, half_life_ms)]
            expected_cache[key] = best, scores
        return expected_cache[key]

    world_ids = {m["seq"]: m["id"] for m in world.messages}

    def compare(what, registration, watermark, found):
        best, scores = expected(registration, watermark)
        assert naive.same_topk(found, best, scores), (
            f"{what} of {world.subscriptions[registration]['id']} ({registration}) at {watermark}: published {found}, expected {best}; {hint}"
        )
        compared[what] += 1

    # whole lists
    states = defaultdict(list)
    for id, state, _ in simulation.json(TOPICS.topk):
        states[id].append(state)
        if state is not None:
            assert state["v"] == 1 and state["subscription"] == id
            for entry in state["topk"]:
                check_fields(world, entry, compared, hint)
            compare("state", state["registration"], state["watermark"], [(json.dumps(e["message"]), e["score"]) for e in state["topk"]])
    # events
    active, removed, before_it = {}, {}, {}
    for id, event, _ in simulation.json(TOPICS.registrations):
        if event["event"] == "limited":
            compared["limited"] += 1
            continue
        if event["event"] == "updated":
            before = [r for r in active if world.subscriptions[r]["id"] == id][-1]
            assert before not in removed, f"{event}; {hint}"
            removed[before], before_it[event["registration"]] = event["watermark"], before
            assert (
                world.subscriptions[event["registration"]]["update"]
                and len({world.subscriptions[r]["type"] == "topk" for r in (before, event["registration"])}) == 1
            )
            compared["updated"] += 1
        into = removed if event["event"] == "removed" else active
        assert event["registration"] not in into, f"{event} twice; {hint}"
        into[event["registration"]] = event["watermark"]
    # deltas
    unique = {}
    for id, delta, headers in simulation.json(TOPICS.results):
        key = headers["result-id"]
        assert unique.setdefault(key, delta) == delta, f"one result-id, two results: {unique[key]} and {delta}; {hint}"
    by_registration = defaultdict(list)
    for key, delta in unique.items():
        by_registration[key.decode().split("/")[0]].append(delta)
        check_fields(world, delta, compared, hint)
        object = f',"object":{json.dumps(delta["object"], ensure_ascii=False)}' if "object" in delta else ""
        assert key.decode().endswith(json.dumps(delta["message"]) + object)
    for registration, matches in grouped_matches(simulation, world, active, removed, hint).items():
        assert all("object" in delta or "initial" in delta for delta in by_registration[registration])
        by_registration[registration] += matches
        compared["grouped"] += len(matches)
    lists = {}
    for registration, subscription in world.subscriptions.items():
        deltas = by_registration.pop(registration, [])
        if subscription["type"] != "topk":
            first, deltas = [d for d in deltas if "initial" in d], [d for d in deltas if "initial" not in d]
            if registration in active and subscription["type"] == "boolean":
                asked_at = None if registration in before_it else active[registration]
                satisfies = content_of(world, subscription)
                check_initial(subscription, registration, first, asked_at, world, Settings.from_conf(simulation.conf), satisfies, compared, hint)
            else:
                assert not first, f"{registration}: {first}; {hint}"
            check_matches(world, subscription, registration, deltas, active, removed, before_it, compared, hint)
            if simulation.conf.get("dskype.results.matches") != "grouped":
                compared["omitted"] += sum(check_meta(subscription, delta) for delta in deltas)
            continue
        current, at = dict(lists.get(before_it.get(registration), {})), None
        if registration in before_it and (not deltas or deltas[0]["watermark"] != active[registration]):
            best = sorted(current.items(), key=lambda pair: -pair[1])
            compare("delta", registration, active[registration], order_by_oracle(best, expected(registration, active[registration])))
        lists[registration] = current
        for delta in [*deltas, None]:
            if at is not None and (delta is None or delta["watermark"] != at):
                if not (registration in removed and not current):  # taken back at the end
                    best = sorted(current.items(), key=lambda pair: -pair[1])
                    compare("delta", registration, at, order_by_oracle(best, expected(registration, at)))
            if delta is None:
                break
            at = delta["watermark"]
            message = json.dumps(delta["message"])
            if delta["op"] == "add":
                assert message not in current, f"{delta} added twice; {hint}"
                compared["omitted"] += check_meta(subscription, delta)
                current[message] = delta["score"]
            elif delta["op"] == "score":
                assert delta["watermark"] == active[registration] and registration in before_it and current[message] != delta["score"], f"{delta}; {hint}"
                current[message] = delta["score"]
                compared["score"] += 1
            else:
                assert delta["op"] == "remove" and message in current, f"{delta} was not there; {hint}"
                del current[message]
        assert not current or registration not in removed or registration in before_it.values(), f"{registration} was not taken back; {hint}"
        if registration in removed and "ttl_s" in subscription and world.newest[subscription["id"]] == registration:
            arrivals = [m["arrival_ms"] for m in world.messages if m["position"] <= removed[registration]]
            assert not current and max(arrivals) >= subscription["at_ms"] + 1000 * subscription["ttl_s"], f"{registration} ended too early; {hint}"
            assert not states[subscription["id"]] or states[subscription["id"]][-1] is None, f"{registration} has expired and has a state; {hint}"
            compared["expired"] += 1
        elif world.newest[subscription["id"]] == registration and simulation.conf.get("dskype.results", "both") == "both":
            if registration not in active and world.watermark < max(m["position"] for m in world.messages) and metric(simulation, "plan_changes"):
                compared["waits"] += 1  # what was sent by an old plan is not all applied: the watermark stands
                continue
            if registration not in active and subscription.get("update") and "ttl_s" in subscription:
                # It has expired before its first list was known; then the registration that it goes on from is removed.
                arrivals = [m["arrival_ms"] for m in world.messages if m["position"] <= world.watermark]
                assert max(arrivals) >= subscription["at_ms"] + 1000 * subscription["ttl_s"], f"{registration} never became active; {hint}"
                assert any(r in removed and r not in before_it.values() for r, s in world.subscriptions.items() if s["id"] == subscription["id"])
                assert not states[subscription["id"]] or states[subscription["id"]][-1] is None, f"{registration} has expired and has a state; {hint}"
                compared["expired"] += 1
                continue
            assert registration in active, f"{registration} never became active; {hint}"
            best, scores = expected(registration, world.watermark)
            last = states[subscription["id"]][-1]
            assert last is not None and last["registration"] == registration, f"the last state of {registration} is missing; {hint}"
            found = [(json.dumps(e["message"]), e["score"]) for e in last["topk"]]
            assert naive.same_topk(found, best, scores), f"final state of {registration}: {found}, expected {best}; {hint}"
            assert naive.same_topk(order_by_oracle(sorted(current.items(), key=lambda p: -p[1]), (best, scores)), best, scores), (
                f"final deltas of {registration}; {hint}"
            )
            compared["final"] += 1
        elif world.newest[subscription["id"]] is None:
            assert not states[subscription["id"]] or states[subscription["id"]][-1] is None, f"{subscription['id']} is unregistered and has a state; {hint}"
    assert not by_registration, f"results of nobody: {by_registration}; {hint}"
    df, documents = (known(simulation.conf), 20) if simulation.conf.get("dskype.vocabulary") else ({}, 1)

    def words_of(record):
        return naive.norm_weights(Counter(word for keyword in record["keywords"] for word in keywords_of(keyword, simulation.conf)), df, documents)

    check_searches(simulation, world, words_of, compared, hint)
    written = check_topology_writes(Inputs.read("dskype", simulation.records), Report())
    assert written.ok, f"{written.as_text()}; {hint}"
    return compared


def order_by_oracle(pairs, expected):
    """Order a set of (message, score) as the oracle does: deltas carry no order of ties."""
    place = {m: i for i, (m, _) in enumerate(expected[0])}
    return sorted(pairs, key=lambda pair: (-round(pair[1], 9), place.get(pair[0], 1 << 60)))


def satisfied(expression, terms):
    """Tell whether terms satisfy an expression, by Python's own and, or and parentheses."""
    words = {"AND": "and", "OR": "or"}
    return eval(re.sub(r"\w+", lambda m: words.get(m[0]) or str(m[0].casefold() in terms), unicodedata.normalize("NFKC", naive.visible(expression))))


def grouped_matches(simulation, world, active, removed, hint):
    """Return registration -> its matches in records of several, as deltas; check what is in the records."""
    grouped = simulation.conf.get("dskype.results.matches") == "grouped"
    assert grouped or not simulation.records(TOPICS.matches)
    unique, found = {}, defaultdict(list)
    for key, record, headers in simulation.json(TOPICS.matches):
        identity, task = headers["result-id"], headers["record-id"].split(b"-")[-2]
        assert unique.setdefault(identity, record) == record, f"one result-id, two records: {unique[identity]} and {record}; {hint}"
        check_fields(world, record, Counter(), hint)
        others = record.keys() - {"fields", "fields_omitted"}
        assert others == {"v", "message", "watermark", "task", "subscriptions"} and record["v"] == 1, f"{record}; {hint}"
        assert key == str(record["message"]) and str(record["task"]).encode() == task and record["subscriptions"], f"{key}: {record}; {hint}"
    by_message = [(json.dumps(record["message"]), record["task"]) for record in unique.values()]
    assert len(set(by_message)) == len(by_message), f"a task wrote two records of a message; {hint}"
    for record in unique.values():
        at = record["watermark"]
        for id in record["subscriptions"]:
            meant = [r for r, s in world.subscriptions.items() if s["id"] == id and r in active and active[r] < at <= removed.get(r, math.inf)]
            assert len(meant) == 1 and world.subscriptions[meant[0]]["type"] != "topk", f"{id} at {at}: {meant}; {hint}"
            found[meant[0]].append({"op": "match", "message": record["message"], "watermark": at, "task": record["task"]})
    return found


def check_fields(world, result, compared, hint):
    """Check that a result, or an entry of a list, has the fields of its message; a removal has none."""
    expected = {} if result.get("op") == "remove" else world.by_id[json.dumps(result["message"])]["carried"]
    assert {name: result[name] for name in ("fields", "fields_omitted") if name in result} == expected, f"{result}, expected {expected}; {hint}"
    compared["fields"] += "fields" in expected
    compared["omitted fields"] += "fields_omitted" in expected


def check_meta(subscription, delta):
    """Check that a delta has its subscription's meta, or says that a limit has left it out; return whether it has."""
    if omitted := delta.get("meta_omitted", False):
        assert omitted is True and "meta" in subscription and "meta" not in delta
    else:
        assert delta.get("meta") == subscription.get("meta")
    return omitted


def content_of(world, subscription):
    """Return what tells whether a message has what a boolean subscription asks for, wherever it is."""
    if "tree" in subscription:
        return lambda m: naive.holds(subscription["tree"], m, read=world.read)
    return lambda m: satisfied(subscription["expression"], m["weights"])


def check_matches(world, subscription, registration, deltas, active, removed, before_it, compared, hint):
    """Compare the matches of a boolean or a threshold subscription, and what it reports of objects: none wrong, none missing, none twice."""
    moves, deltas = [d for d in deltas if "object" in d], [d for d in deltas if "object" not in d]
    found = [json.dumps(d["message"]) for d in deltas]
    assert all(d["op"] == "match" for d in deltas) and len(set(found)) == len(found), f"{registration}: {found}; {hint}"
    if registration not in active:
        assert not found and not moves
        return
    after, until, root = active[registration], removed.get(registration, math.inf), registration
    while root in before_it:
        root = before_it[root]
    end_ms = subscription["at_ms"] + 1000 * subscription["ttl_s"] if "ttl_s" in subscription else math.inf

    last = min(until, world.watermark)
    if subscription["type"] == "threshold":
        where, told = subscription["where"], [m for m in world.messages if after < m["position"] <= last and m["arrival_ms"] < end_ms]
        counting = [m for m in told if where is None or naive.holds(where, m, read=world.read)]
        check_scored(subscription, counting, deltas, world.diagonal_deg, compared, hint)
        return

    satisfies = content_of(world, subscription)

    def matches(m):
        return active[root] < m["position"] and m["arrival_ms"] < end_ms and plain_places.sharing(subscription, m["place"], world.turned) and satisfies(m)

    expected = [m["id"] for m in world.messages if m["object"] is None and after < m["position"] <= last and matches(m)]
    assert sorted(found) == sorted(expected), f"matches of {subscription['id']} ({registration}): {found}, expected {expected}; {hint}"
    compared["match"] += len(found)
    expected = []
    for change in world.changes:
        if after < change["position"] <= last and change["arrival_ms"] < end_ms:
            states = [change[name] is not None and matches(change[name]) for name in ("before", "after")]
            if (op := naive.object_event(*states, subscription.get("inside", False))) is not None:
                expected.append((change["position"], op, change["id"], change["object"]))
    found = [(d["watermark"], d["op"], json.dumps(d["message"]), d["object"]) for d in moves]
    assert sorted(found) == sorted(expected), f"objects of {subscription['id']} ({registration}): {found}, expected {expected}; {hint}"
    for name in {move["object"] for move in moves}:
        ops = [d["op"] for d in moves if d["object"] == name]
        assert all(
            (a != "leave") == (b != "enter") for a, b in zip(["leave", *ops] if root == registration else ops, ops if root == registration else ops[1:])
        ), f"{name}: {ops}; {hint}"
    for move in moves:
        compared[move["op"]] += 1
