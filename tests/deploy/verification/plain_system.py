"""A plain publish/subscribe system: one thread, no index; it writes the records that a DSkype topology writes.

Lists come from ``tests/naive.py``. It hesitates as a real one does: subscriptions wait for their first list, become pending, and skip watermarks;
lists are written now and then; what was written is written again after a crash.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dskype.deploy.verification import Inputs, Record
from dskype.spouts.expression import to_text
from dskype.spouts.record_values import RecordError
from dskype.spouts.records import encode_attributes, parse_key, parse_message, parse_subscription
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import TopkSubscription
from dskype.spouts.text import Tokenizer
from tests import languages, naive

WORDS = "coffee tea wifi lake park late night museum river music food bar zoo".split()
FEW_WORDS = ["bar", "coffee", "tea", "late", "night"]
TOPICS = ("messages", "subscriptions", "sequence", "registrations", "results", "matches", "topk", "dead_letters")


@dataclass
class Entry:
    """A registration that the system looks after."""

    id: str
    name: str
    subscription: Any
    arrival_ms: int
    weights: dict[str, float] = field(default_factory=dict)
    pending: int = 0  # advances until it is resolved
    fresh: bool = True
    dirty: bool = True
    shown: list[tuple[int, float]] = field(default_factory=list)


class PlainSystem:
    """The system; ``topics`` holds its records.

    :param texts: what the vocabulary was built from; None: no vocabulary.
    :param areas: how many of its random messages are areas, 0 to 1.
    :param whole: whether its random expressions speak of all that the settings allow, not only of words, AND and OR.
    """

    def __init__(
        self,
        conf: dict[str, Any],
        seed: int = 0,
        partitions: int = 1,
        texts: list[str] | None = None,
        hesitant: bool = True,
        name: str = "dskype",
        areas: float = 0,
        whole: bool = False,
    ) -> None:
        self.name, self.settings, self.whole = name, Settings.from_conf(conf), whole
        self.random, self.more_random, self.areas = random.Random(seed), random.Random(seed + 1), areas
        self.partitions, self.hesitant, self.crashes = partitions, hesitant, hesitant
        self.tokenizer = Tokenizer(self.settings.stop_words)
        self.df = Counter(t for text in texts or () for t in set(self.tokenizer.tokens(text)))
        self.documents = max(1, len(texts or ()))
        self.topics: dict[str, list[Record]] = {name: [] for name in TOPICS}
        self.now_ms = 1_000_000
        self.watermark = -1
        self.messages: list[dict[str, Any]] = []
        self.inbox: list[Record] = []
        self.topk: dict[str, Entry] = {}
        self.filters: dict[str, Entry] = {}
        self.numbers: Counter[str] = Counter()
        self.newest = -1
        self.run = "1-1000"
        self.separators = (", ", ": ") if seed % 5 == 4 else (",", ":")  # spaced as the product writes JSON, or differently

    # -- the log --------------------------------------------------------------------------------------------------------

    def write(
        self, topic: str, key: bytes | None, value: Any, headers: list[tuple[str, bytes]] | None = None, partition: int | None = None, task: int | None = None
    ) -> Record:
        """Append a record; ``task``: it gets a record-id."""
        if partition is None:
            partition = 0 if key is None or topic in ("registrations", "sequence", "dead_letters") else zlib.crc32(key) % self.partitions
        offset = sum(r.partition == partition for r in self.topics[topic])
        headers = list(headers or ())
        if task is not None:
            headers.insert(0, ("record-id", f"{self.run}-{task}-{self.numbers[str(task)]}".encode()))
            self.numbers[str(task)] += 1
        data = value if isinstance(value, bytes) or value is None else json.dumps(value, separators=self.separators).encode()
        record = Record(partition, offset, self.now_ms, key, data, headers)
        self.topics[topic].append(record)
        return record

    def task(self, id: str) -> int:
        """Return the task that a subscription lives on."""
        return 10 + zlib.crc32(id.encode()[::-1]) % 2

    def crash(self) -> None:
        """Write the last records again; some of them were lost the first time."""
        for topic in ("registrations", "results", "matches", "topk", "sequence", "dead_letters"):
            records = self.topics[topic]
            for partition in range(self.partitions):
                mine = [r for r in records if r.partition == partition]
                keep = max(0, len(mine) - self.random.randrange(6))
                written = [*mine[:keep], *(r for r in mine[keep:] if self.random.random() < 0.8), *mine[keep:]]
                records = [*(r for r in records if r.partition != partition), *(r._replace(offset=i) for i, r in enumerate(written))]
            self.topics[topic] = records

    # -- input ----------------------------------------------------------------------------------------------------------

    def publish(self, value: Any, partition: int | None = None) -> None:
        """Send a message."""
        self.now_ms += self.random.randrange(50)
        partition = self.random.randrange(self.partitions) if partition is None else partition
        self.inbox.append(self.write("messages", None, value, partition=partition))

    def subscribe(self, id: str, value: Any) -> None:
        """Register, or unregister with None; handled at once."""
        self.now_ms += self.random.randrange(50)
        key = id.encode()
        record = self.write("subscriptions", key, value)
        name = f"{record.partition}-{record.offset}"
        try:
            if record.value is None:
                parse_key(key)
                parsed = None
            else:
                settings = self.settings
                parsed = parse_subscription(
                    key, record.value, tokenizer=self.tokenizer, space=settings.space, limits=settings.limits, language=settings.language
                )
        except RecordError as error:
            self.refuse("subscriptions", record, error)
            return
        self.remove(id, isinstance(parsed, TopkSubscription))
        if parsed is None:
            return
        entry = Entry(id, name, parsed, record.timestamp_ms)
        if not isinstance(parsed, TopkSubscription):
            self.filters[id] = entry
            self.event(entry, "active")
            return
        self.topk[id] = entry
        entry.weights = naive.norm_weights(Counter(parsed.keywords), self.df, self.documents)
        if self.watermark == -1:
            self.show(entry)
        else:
            entry.pending = 1 + self.random.randrange(4) if self.hesitant else 1

    def remove(self, id: str, replaced: bool) -> None:
        """End a registration."""
        entry = self.topk.pop(id, None)
        if entry is not None:
            for seq, _ in entry.shown:
                self.delta(entry, self.watermark, "remove", seq)
            self.event(entry, "removed")
            if not replaced and self.settings.results != "deltas":
                self.write("topk", id.encode(), None, task=self.task(id))
        entry = self.filters.pop(id, None)
        if entry is not None:
            self.event(entry, "removed")

    def refuse(self, topic: str, record: Record, error: Any) -> None:
        """Write a dead letter."""
        about = {"error": str(error), "stage": "translate", "topic": f"{self.name}.{topic}", "partition": str(record.partition), "offset": str(record.offset)}
        self.write("dead_letters", record.key, record.value, [(k, v.encode()) for k, v in about.items()])

    # -- work -----------------------------------------------------------------------------------------------------------

    def work(self, limit: int | None = None) -> None:
        """Handle waiting messages: some of one partition, then some of the next; with a time window in the order in which they came, or some would be late."""
        timed = self.settings.window_kind == "time"
        while self.inbox and (limit is None or limit > 0):
            partition = self.inbox[0].partition if timed else self.random.choice(sorted({r.partition for r in self.inbox}))
            waiting = itertools.takewhile(lambda r: r.partition == partition, self.inbox) if timed else (r for r in self.inbox if r.partition == partition)
            stretch = list(itertools.islice(waiting, 1 + self.random.randrange(4)))
            self.inbox = [r for r in self.inbox if r not in stretch]
            limit = None if limit is None else limit - len(stretch)
            run: list[Record] = []
            before = self.watermark
            for record in stretch:
                try:
                    settings = self.settings
                    message = parse_message(record.value, space=settings.space, limits=settings.limits, text_fields=settings.text_fields)
                    encode_attributes(settings.attributes, message)
                    position = len(self.messages)
                    if timed:
                        position = record.timestamp_ms if message.ts is None else message.ts
                        if position <= before or position > record.timestamp_ms + self.settings.ahead_ms:
                            raise RecordError("late or early")
                except RecordError as error:
                    self.number(run)
                    run = []
                    self.refuse("messages", record, error)
                    continue
                counts = Counter(self.tokenizer.tokens(message.text))
                self.messages.append(
                    {
                        "seq": len(self.messages),
                        "position": position,
                        "lat": message.lat,
                        "lon": message.lon,
                        "area": message.bbox or (message.lon, message.lat, message.lon, message.lat),
                        "arrival_ms": record.timestamp_ms,
                        "text": dict(zip(settings.text_fields, message.text.split("\x1f"))) if settings.text_fields else message.text,
                        "attributes": message.attributes,
                        "weights": naive.norm_weights(counts, self.df, self.documents) if counts else {},
                        "carried": self.carried(json.loads(record.value or b""), record.timestamp_ms),
                        "id": json.loads(message.id) if message.id is not None else f"{record.partition}-{record.offset}",
                    }
                )
                run.append(record)
                self.newest = max(self.newest, position)
            self.number(run)
            self.advance(self.newest - self.settings.lateness_ms - 1 if timed else self.newest)

    def carried(self, value: dict[str, Any], arrival_ms: int) -> dict[str, Any]:
        """Return what results say of a message's fields."""
        fields = self.settings.result_fields
        return {} if fields is None else naive.fields(dict(fields.sources), value, arrival_ms, self.settings.text_fields, fields.max_bytes)

    def number(self, run: list[Record]) -> None:
        """Write a run of numbers."""
        if run:
            self.write(
                "sequence",
                None,
                {"v": 1, "task": 1, "first": len(self.messages) - len(run), "partition": run[0].partition, "offset": run[0].offset, "n": len(run)},
                task=1,
            )

    def advance(self, watermark: int) -> None:
        """Advance to a watermark."""
        if watermark <= self.watermark:
            return
        before, self.watermark = self.watermark, watermark
        new = sorted((m for m in self.messages if before < m["position"] <= watermark), key=lambda m: (m["position"], m["seq"]))
        extent = self.settings.extent
        times = sorted({t for m in self.messages for t in (m["position"], m["position"] + extent) if before < t <= watermark})
        for entry in list(self.topk.values()):
            if entry.pending:
                entry.pending -= 1
                if not entry.pending:
                    self.show(entry)
                continue
            if self.hesitant and self.random.random() < 0.05:
                entry.pending = 1 + self.random.randrange(4)
                continue
            for t in times:
                self.change(entry, t)
        grouped: dict[tuple[int, int], list[str]] = {}
        for entry in list(self.filters.values()):
            for m in new:
                expires = None if entry.subscription.ttl_s is None else entry.arrival_ms + round(entry.subscription.ttl_s * 1000)
                if (
                    (expires is None or m["arrival_ms"] < expires)
                    and naive.overlapping(entry.subscription.bbox, m["area"])
                    and naive.holds(entry.subscription.expression, m, self.settings.stop_words)
                ):
                    if self.settings.matches == "each":
                        self.delta(entry, m["position"], "match", m["seq"])
                    else:
                        grouped.setdefault((m["seq"], self.task(entry.id)), []).append(entry.id)
            if entry.subscription.ttl_s is not None and new and new[-1]["arrival_ms"] > entry.arrival_ms + entry.subscription.ttl_s * 1000 + 500:
                self.event(self.filters.pop(entry.id), "removed")
        for m in new:
            for task in (10, 11):
                self.group(m, task, grouped.get((m["seq"], task), []))
        if not self.hesitant or self.random.random() < 0.4:
            self.write_states()
        if self.crashes and self.random.random() < 0.15:
            self.crash()

    def top(self, entry: Entry, watermark: int) -> list[tuple[int, float]]:
        """Return the best k at a watermark."""
        s = entry.subscription
        sub = {"lat": s.lat, "lon": s.lon, "alpha": s.alpha, "k": s.k, "weights": entry.weights, "scale_m": s.scale_m}
        found = self.messages if s.where is None else [m for m in self.messages if naive.holds(s.where, m, self.settings.stop_words)]
        return naive.topk(sub, found, watermark, self.settings.extent, self.settings.space.diagonal_deg)

    def change(self, entry: Entry, watermark: int) -> None:
        """Publish how a list has changed."""
        now = self.top(entry, watermark)
        old, new = {seq for seq, _ in entry.shown}, {seq for seq, _ in now}
        for seq, _ in entry.shown:
            if seq not in new:
                self.delta(entry, watermark, "remove", seq)
        for rank, (seq, points) in enumerate(now, 1):
            if seq not in old:
                self.delta(entry, watermark, "add", seq, score=points, rank=rank)
        entry.dirty |= old != new
        entry.shown = now

    def show(self, entry: Entry) -> None:
        """Publish the list after a pause."""
        self.change(entry, self.watermark)
        if entry.fresh:
            entry.fresh = False
            self.event(entry, "active")

    def delta(self, entry: Entry, watermark: int, op: str, seq: int, **more: Any) -> None:
        """Write a delta."""
        if self.settings.results == "topk" and op != "match":
            return
        message = self.messages[seq]["id"]
        carried = {} if op == "remove" else self.messages[seq]["carried"]
        value = {"v": 1, "subscription": entry.id, "watermark": watermark, "op": op, "message": message, **carried, **more}
        if entry.subscription.meta is not None:
            value["meta"] = json.loads(entry.subscription.meta)
        identity = f"{entry.name}/{json.dumps(entry.id)}/{watermark}/{op}/{json.dumps(message)}"
        self.write("results", entry.id.encode(), value, [("result-id", identity.encode())], task=self.task(entry.id))

    def group(self, message: dict[str, Any], task: int, ids: list[str]) -> None:
        """Write the matches of a message that a task has found, together or in two records."""
        cut = self.more_random.randrange(1, len(ids)) if len(ids) > 1 and self.more_random.random() < 0.2 else len(ids)
        for part, these in enumerate((ids[:cut], ids[cut:])):
            if these:
                value = {"v": 1, "message": message["id"], **message["carried"], "watermark": message["position"], "task": task, "subscriptions": these}
                identity = f"{json.dumps(message['id'])}/{message['seq']}/{task}/{part}"
                self.write("matches", str(message["id"]).encode(), value, [("result-id", identity.encode())], task=task)

    def event(self, entry: Entry, event: str) -> None:
        """Write an event."""
        value = {"v": 1, "subscription": entry.id, "registration": entry.name, "event": event, "watermark": self.watermark}
        self.write("registrations", entry.id.encode(), value, [("result-id", f"{entry.name}/{self.watermark}/{event}".encode())], task=self.task(entry.id))

    def write_states(self) -> None:
        """Write the lists that changed."""
        for entry in self.topk.values():
            if entry.dirty and not entry.pending and self.settings.results != "deltas":
                entry.dirty = False
                entries = [{"message": self.messages[seq]["id"], **self.messages[seq]["carried"], "score": points} for seq, points in entry.shown]
                value = {"v": 1, "subscription": entry.id, "registration": entry.name, "watermark": self.watermark, "topk": entries}
                self.write("topk", entry.id.encode(), value, task=self.task(entry.id))

    def settle(self) -> None:
        """Handle all input."""
        self.work()
        self.advance(self.newest)
        for entry in self.topk.values():
            if entry.pending:
                entry.pending = 0
                self.show(entry)
        self.write_states()

    def inputs(self) -> Inputs:
        """Return what the topics hold."""
        return Inputs(topology=self.name, **{name: list(records) for name, records in self.topics.items()})

    # -- random traffic -------------------------------------------------------------------------------------------------

    def some_message(self) -> Any:
        """Return a random message; now and then a bad one."""
        rng = self.random
        value: dict[str, Any] = {
            "text": naive.written(rng.choices(WORDS, k=rng.randrange(6)), self.now_ms) + rng.choice(["", "!", " Straße"]),
            "lat": rng.choice([rng.uniform(-5, 5), 1.0]),
            "lon": rng.choice([rng.uniform(-5, 5), 2.0]),
        }
        kind = rng.random()
        if kind < 0.4:
            value["id"] = rng.choice([f"m{self.now_ms}-{rng.randrange(10**6)}", self.now_ms * 1000 + rng.randrange(1000)])
        elif kind < 0.45:
            value["lat"] = 95.0
        elif kind < 0.5:
            return b'{"text": "broken'
        if self.whole:
            texts = {name: naive.written(self.more_random.choices(FEW_WORDS, k=5), self.now_ms) for name in self.settings.text_fields or ["text"]}
            value["text"] = texts if self.settings.text_fields else texts["text"]
        if self.settings.attributes:
            value["attributes"] = languages.random_attributes(self.more_random) | ({"price": "5"} if self.more_random.random() < 0.05 else {})
        if self.settings.window_kind == "time" and rng.random() < 0.5:
            value["ts"] = self.now_ms - rng.randrange(120)
        if self.more_random.random() < self.areas and value["lat"] < 90:
            lat, lon, more = value.pop("lat"), value.pop("lon"), self.more_random
            west, east = lon - more.choice([0, more.random() * 4]), lon + more.choice([0, more.random() * 4])
            value["bbox"] = more.choice(
                [[west, lat - more.random(), east, lat + more.random()], [170, lat, -175, lat], [lon, lat, lon, lat], [lon, lat, lon - 1, lat]]
            )
        return value

    def some_subscription(self) -> Any:
        """Return a random subscription; now and then a bad one."""
        rng = self.random
        words = rng.sample(WORDS, rng.randint(1, 3))
        meta = {"meta": rng.choice([None, {"team": 1}, "x"])} if rng.random() < 0.3 else {}
        if rng.random() < (0.2 if self.whole else 0.6):
            where = {}
            if self.whole and self.more_random.random() < 0.6:
                where = {"where": to_text(languages.random_expression(self.more_random, self.settings.language, 2, FEW_WORDS[1:]))}
            return {
                **where,
                "type": "topk",
                "keywords": [naive.spelled(word, self.now_ms) for word in [*words, *words[1:]]],
                "lat": rng.uniform(-5, 5),
                "lon": rng.uniform(-5, 5),
                "k": rng.choice([1, 2, 3, 5]),
                "alpha": rng.choice([0, 0.5, 1, rng.random()]),
                **meta,
            } | ({"distance": "metres", "scale_m": [400_000, 50_000.5][self.now_ms % 2]} if self.now_ms % 3 == 0 else {})
        if rng.random() < 0.1:
            return b"[]"
        text = " ".join([words[0], *(f"{rng.choice(['AND', 'OR'])} {naive.spelled(word, self.now_ms)}" for word in words[1:])])
        text = self.more_random.choice([text, f"（{text}）", text.replace("OR", "ＯＲ"), f"{text} AND −tea" if self.more_random.random() < 0.2 else text])
        west, south = rng.uniform(-5, 2), rng.uniform(-5, 2)
        ttl = {"ttl_s": rng.uniform(0.2, 2)} if rng.random() < 0.4 else {}
        found = {"type": "boolean", "bbox": [west, south, west + rng.uniform(2, 10), south + rng.uniform(2, 10)], "expression": text, **ttl, **meta}
        if self.whole:
            found["expression"] = to_text(languages.random_expression(self.more_random, self.settings.language, 2, FEW_WORDS[1:]))
            if self.more_random.random() < 0.3:
                del found[self.more_random.choice(["bbox", "expression"])]
        return found

    def some_traffic(self, rounds: int = 30) -> PlainSystem:
        """Do random things, then settle."""
        for i in range(rounds):
            for _ in range(self.random.randrange(4)):
                id = f"s{self.random.randrange(10)}"
                self.subscribe(id, None if self.random.random() < 0.2 else self.some_subscription())
            for _ in range(self.random.randrange(8)):
                self.publish(self.some_message())
            self.work(None if i % 3 else 3)
        self.settle()
        return self
