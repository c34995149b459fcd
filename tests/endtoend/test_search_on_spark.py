"""``PubSub.search`` and ``dskype search`` beside a running topology: the answer is the plain oracle's at the watermark that it names."""

from __future__ import annotations

import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.searches import SearchError
from dskype.spouts.record_values import RecordError
from tests import naive
from tests.waiting import wait_for

from .harness import topology

WINDOW, DIAGONAL_DEG = 20, math.hypot(360, 180)
TEXTS = ["lake park", "park bench by the lake", "museum of coffee", "lake", "coffee in the park"]
MESSAGES = [{"id": i, "text": TEXTS[i % 5], "lat": 43.0 + i % 7 / 10, "lon": -87.9 + i % 4 / 10} for i in range(50)]


def expected(watermark, **question):
    """Return the best messages of the window as (message, score)."""
    messages = [
        {"seq": i, "position": i, "lat": m["lat"], "lon": m["lon"], "weights": naive.norm_weights(Counter(naive.words(m["text"])), {}, 1)}
        for i, m in enumerate(MESSAGES)
    ]
    weights = naive.norm_weights(Counter(naive.words(question["text"])), {}, 1)
    return naive.topk({**question, "weights": weights}, messages, watermark, WINDOW, DIAGONAL_DEG)


def test_answers_are_exact_beside_a_running_topology(cluster, name, feed_of, monkeypatch, capsys):
    kafka = cluster.environment.kafka
    conf = {"topology.acker.executors": 0, "dskype.window.messages": WINDOW}
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    feed = feed_of(kafka, name, 1)
    with cluster.submit_topology(name, conf, topology({"message-bolt": 2}, name)), PubSub(kafka, name) as client:
        assert client.search("lake park", lat=43, lon=-87, timeout_s=120).as_json() == {"watermark": -1, "matches": []}
        feed.publish([json.dumps(message).encode() for message in MESSAGES])
        feed.wait_for(len(MESSAGES) - 1)
        last = wait_for(
            lambda: (found := client.search("lake park", lat=43.04, lon=-87.91, k=5)).watermark == len(MESSAGES) - 1 and found, 60, "the newest watermark"
        )
        assert [(m.message, m.score) for m in last.matches] == expected(last.watermark, text="lake park", lat=43.04, lon=-87.91, k=5, alpha=0.5)
        assert [(m.lat, m.lon) for m in last.matches] == [(MESSAGES[m.message]["lat"], MESSAGES[m.message]["lon"]) for m in last.matches]
        words = client.search("coffee", k=3)
        assert [(m.message, m.score) for m in words.matches] == expected(last.watermark, text="coffee", lat=0, lon=0, k=3, alpha=0)
        newest = client.search(expression="lake AND NOT bench", bbox=[-88, 43, -87.75, 43.35], k=2)
        good = [i for i in range(49, 29, -1) if i % 5 in (0, 3) and MESSAGES[i]["lon"] <= -87.75 and MESSAGES[i]["lat"] <= 43.35]
        assert (newest.total, [m.message for m in newest.matches]) == (len(good), good[:2])
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda k: client.search("lake park", lat=43.04, lon=-87.91, k=k), range(1, 17)))
        assert all(len(answer.matches) == min(k, 16) and answer.matches[:5] == last.matches[:k] for k, answer in enumerate(found, 1))
        with pytest.raises(RecordError, match="'k'.*101"):
            client.search("lake", k=101)

        assert cli.main(["search", "-t", name, "lake park", "--near", "43.04,-87.91", "-k", "5", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == last.as_json()
        assert cli.main(["search", "-t", name, "--expression", "coffee", "-k", "1"]) == 0
        out, told = capsys.readouterr()
        assert "coffee in the park" in out and "1 message of 8" in told and "watermark 49" in told
        assert cli.main(["search", "-t", name, "lake", "--expression", "coffee"]) == 1
    with PubSub(kafka, name) as client, pytest.raises(SearchError, match="No topology"):
        client.search("lake", timeout_s=1)
