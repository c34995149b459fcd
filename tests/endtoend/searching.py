"""Random searches of simulated topologies, and the check of their answers with the plain oracle."""

from __future__ import annotations

import json
import math
from collections import defaultdict

from dskype.deploy.client.searches import AnswerParts
from dskype.deploy.verification.reading_expressions import read_expression, read_keywords
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from tests import naive

from . import places as plain_places

TOPICS = Topics.for_topology("dskype")


def send_search(simulation, id, record, partition=0):
    """Write a search."""
    simulation.log.append(TOPICS.searches, partition, id.encode(), record if isinstance(record, bytes) else json.dumps(record).encode())


class Searcher:
    """Writes searches now and then.

    :param subscription: draws a subscription, which says what to search for.
    """

    def __init__(self, simulation, rng, subscription):
        self._simulation, self._rng, self._subscription, self._sent = simulation, rng, subscription, 0

    def step(self):
        rng = self._rng
        for _ in range(rng.choice([0, 0, 1, 3])):
            record = {name: value for name, value in self._subscription().items() if name not in ("ttl_s", "meta")}
            record |= {"k": rng.randint(1, 6), "timeout_ms": 1 if rng.random() < 0.1 else 300_000}
            send_search(self._simulation, f"q{self._sent}", record)
            self._sent += 1


def answers_of(simulation, hint=""):
    """Return search -> its records in the topic of answers, each once; repetitions have to be equal."""
    found, unique = defaultdict(list), {}
    for key, value, headers in simulation.json(TOPICS.answers):
        assert key == value["search"] and value["v"] == 1
        if "task" in value:
            assert unique.setdefault((key, value["task"]), value) == value, f"a task has answered {key} twice; {hint}"
        assert headers["record-id"]
        found[key].append(value)
    return found


def check_searches(simulation, world, words_of, compared, hint=""):
    """Compare every answer with the plain oracle.

    :param words_of: record -> weights of the words of a top-k search.
    """
    answers, settings = answers_of(simulation, hint), Settings.from_conf(simulation.conf)
    west, south, east, north = simulation.conf["dskype.space"]
    tasks = simulation.plan.component_tasks("message-bolt")
    for log_record in simulation.records(TOPICS.searches):
        id, record = log_record.key.decode(), json.loads(log_record.value)
        records = answers.pop(id, [])
        if not records and record["timeout_ms"] == 1:
            compared["expired searches"] += 1
            continue
        if any("error" in part for part in records):
            assert len(records) == 1 and records[0]["error"], f"{id}: {records}; {hint}"
            compared["refused searches"] += 1
            continue
        assert sorted(part["task"] for part in records) == sorted(tasks), f"{id} is not answered by all tasks: {records}; {hint}"
        assert len({part["watermark"] for part in records}) == 1, f"{id} has several watermarks: {records}; {hint}"
        parts = AnswerParts(record["k"])
        answer = [parts.add(part) for part in records][-1]
        window = world.window(answer.watermark, settings.extent)
        found = [json.dumps(match.message) for match in answer.matches]
        for match in answer.matches:
            message = world.by_id[json.dumps(match.message)]
            near = abs(match.lat - message["lat"]) < 1e-9 and abs(match.lon - message["lon"]) < 1e-9  # two computations of the centre of a region
            assert near and match.carried == message["carried"], f"{id}: {match}, expected {message}; {hint}"
        if record["type"] == "topk":
            where = read_expression(record["where"], settings) if "where" in record else None
            counting = [m for m in window if where is None or naive.holds(where, m, read=world.read)]
            question = {**record, "weights": words_of(record)}
            diagonal_deg = math.hypot(east - west, north - south)
            half_life_ms = settings.half_life_ms
            scores = {m["id"]: s for m in window if (s := naive.score(question, m, diagonal_deg, half_life_ms)) is not None}
            names = {m["seq"]: m["id"] for m in window}
            best = [(names[seq], s) for seq, s in naive.topk(question, counting, answer.watermark, settings.extent, diagonal_deg, half_life_ms)]
            assert naive.same_topk(list(zip(found, [m.score for m in answer.matches])), best, scores), f"{id}: {answer}, expected {best}; {hint}"
            compared["top-k searches"] += 1
        else:
            tree = (
                read_keywords(record["keywords"], settings)
                if "keywords" in record
                else read_expression(record["expression"], settings)
                if "expression" in record
                else ["all"]
            )
            good = [
                m for m in window if plain_places.sharing(record, {"lat": m["lat"], "lon": m["lon"]}, world.turned) and naive.holds(tree, m, read=world.read)
            ]
            expected = [m["id"] for m in naive.newest(good, record["k"])]
            assert (found, answer.total) == (expected, len(good)), f"{id}: {answer}, expected {expected} of {len(good)}; {hint}"
            compared["boolean searches"] += 1
            compared["found by boolean searches"] += len(found)
    assert not answers, f"answers to nobody: {answers}; {hint}"
