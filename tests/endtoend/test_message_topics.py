"""Topologies that read several topics of messages, each in a form of its own, and whose results carry fields: what they publish passes the verification."""

import json
import random

import pytest

from dskype.deploy.verification import Inputs, verify
from dskype.spouts.settings import Settings
from dskype.topology.simulated.faults import Faults

from .harness import TOPICS, Simulation, metric, options_of, random_message, random_subscription

pytestmark = pytest.mark.long

MESSAGES = ["tweets", TOPICS.messages, "places"]
"""The first one has a form of its own; the last one has lines of values."""
CONF = {
    "dskype.attributes": {"price": "number", "tags": "strings"},
    "dskype.input.topics": {
        "tweets": {
            "text": "$.body",
            "place": {"geojson": "$.where"},
            "area": {"wkt": "$.wkt"},
            "time": {"iso8601": "$.at"},
            "attributes": {"price": "$.cost", "tags": "$.entities[*].tag"},
        },
        "places": {
            "format": "csv",
            "csv": {"columns": ["name", "y", "x", "cost"]},
            "id": None,
            "text": "name",
            "place": {"lat": "y", "lon": "x"},
            "time": None,
            "attributes": {"price": "cost"},
        },
    },
    "dskype.results.fields": {"words": "text", "where": "place", "price": "price", "tags": "tags", "at": "time", "author": "$.user.name", "column": "$.name"},
}


def tweet(rng, number):
    """Return a record of the first topic; one in five has no place."""
    message = random_message(rng, number)
    record = {"body": message["text"], "user": {"name": f"ann é {number}"}, "entities": [{"tag": "a"}, {}, {"tag": f"t{number}"}]}
    record |= {"id": message["id"]} if "id" in message else {}
    kind = rng.random()
    if kind < 0.5:
        record["where"] = {"type": "Point", "coordinates": [message["lon"], message["lat"]]}
    elif kind < 0.8:
        west, south = message["lon"] - 1, message["lat"] - 1
        record["wkt"] = f"POLYGON (({west} {south}, {west + 2} {south}, {west + 2} {south + 2}, {west} {south}))"
    if rng.random() < 0.5:
        record["cost"] = rng.choice([number, f"{number}.5", "much"])
    if rng.random() < 0.5:
        record["at"] = f"2023-11-14T22:13:20.{number % 1000:03}Z"
    return json.dumps(record).encode()


def line(rng, number):
    """Return a record of the last topic."""
    message = random_message(rng, number)
    return f'"{message["text"]}, {number}",{message["lat"]},{message["lon"]},{rng.choice(["", number, "x"])}'.encode()


def played(seed):
    rng = random.Random(seed)
    name, n = (("hashing", 2), ("agrid", 3), ("keyword", 2), ("hybrid", 3))[seed % 4]
    conf = {
        **CONF,
        "dskype.distributor": name,
        "dskype.distributor.options": options_of(name, n),
        "dskype.results.fields.max.bytes": rng.choice([120, 1024]),
        "dskype.results.matches": rng.choice(["each", "grouped"]),
    }
    tasks = {"subscription-bolt": n, "message-bolt": 2, "result-bolt": 2}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed), message_topics=MESSAGES)
    number = 0
    for _ in range(14):
        for _ in range(rng.randint(0, 6)):
            number += 1
            topic = rng.choice(MESSAGES)
            value = tweet(rng, number) if topic == "tweets" else line(rng, number) if topic == "places" else json.dumps(random_message(rng, number)).encode()
            simulation.log.append(topic, 0, None, value)
        for _ in range(rng.randint(0, 3)):
            simulation.subscription(f"s{rng.randrange(9)}", None if rng.random() < 0.15 else random_subscription(rng))
        simulation.step(rng.choice([3, 30, 1000]))
    simulation.rest()
    return simulation


@pytest.mark.parametrize("seed", range(12))
def test_what_is_published_passes_the_verification(seed):
    simulation = played(seed)
    settings = Settings.from_conf(simulation.conf)

    def verified(**changed):
        return verify(
            Inputs.read("dskype", simulation.records, message_topics=MESSAGES), Settings.from_conf({**simulation.conf, **changed}), final=True, writes=True
        )

    report = verified()
    assert report.ok, report.as_text(3)
    assert report.compared["fields"] > 10 and report.compared["dead letters"] and set(report.read) >= set(MESSAGES)
    assert metric(simulation, "omitted_fields") or settings.result_fields.max_bytes > 200
    assert not verified(**{"dskype.results.fields": ["text"]}).ok
