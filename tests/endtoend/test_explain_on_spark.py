"""``dskype explain`` beside a running topology: what it says of messages and subscriptions by their ids is what the topology publishes about them."""

from __future__ import annotations

import json
import shutil

from dskype.deploy.cli import main as cli
from dskype.deploy.client.pubsub import PubSub
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests.waiting import wait_for

from .harness import topology

TEXTS = [
    "lake park with coffee",  # it leaves the window
    "a museum of coffee",  # no common word
    "late coffee on a late night",
    "park",
    "lake, far away",
    "lake park",
    "lake and coffee and fast wifi",
    "park, lake",
]
MESSAGES = [{"id": f"m{i}", "text": text, "lat": 43.0 + i / 100, "lon": -87.9 if i != 4 else 20.0} for i, text in enumerate(TEXTS)]
NEAR = {"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.91, "k": 2, "alpha": 0.5}
COFFEE = {"type": "boolean", "bbox": [-88, 42.9, -87.8, 43.055], "expression": 'coffee AND (wifi OR "late night")'}


def test_explanations_are_what_a_running_topology_publishes(cluster, name, feed_of, tmp_path, monkeypatch, capsys):
    kafka = cluster.environment.kafka
    vocabulary, kept = tmp_path / "words.tsv", tmp_path / "kept.tsv"
    Vocabulary.build([*TEXTS, "park", "park bench"], Tokenizer()).save(vocabulary)
    shutil.copy(vocabulary, kept)
    conf = {"topology.acker.executors": 0, "dskype.window.messages": 6, "dskype.vocabulary": str(vocabulary)}
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)

    def explain(message: str, subscription: str) -> dict:
        assert cli.main(["explain", "-t", name, message, subscription, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    feed = feed_of(kafka, name, 1)
    with cluster.submit_topology(name, conf, topology({}, name)) as handle:
        vocabulary.unlink()  # the topology has a copy, and the explanation finds that
        feed.publish([json.dumps({"id": "early", "text": "coffee and wifi", "lat": 43.0, "lon": -87.9}).encode()])
        feed.wait_for(0)
        feed.subscribe([("near", NEAR), ("coffee", COFFEE)])
        feed.wait_until_active("near")
        feed.wait_until_active("coffee")
        feed.publish([json.dumps(message).encode() for message in MESSAGES])
        feed.wait_for(len(MESSAGES))
        with PubSub(kafka, name) as client:
            wait_for(lambda: (found := client.topk("near")) is not None and [id for id, _ in found.entries] == ["m5", "m7"], 60, "the last list")
            entries = client.topk("near").entries
            matched = wait_for(lambda: [result.message for result in client.results(subscriptions=["coffee"])], 60, "the match")
        for rank, (id, score) in enumerate(entries, 1):
            found = explain(id, "near")
            assert (found["score"], found["list"]["rank"], found["list"]["reason"], found["notes"]) == (score, rank, "listed", [])
            assert found["words"]["documents"] == len(TEXTS) + 2 and {word["word"] for word in found["words"]["common"]} == {"lake", "park"}
        reasons = {"m0": "left the window", "m1": "no common word", "m3": "below the threshold", "m4": "below the threshold"}
        for id, reason in reasons.items():
            found = explain(id, "near")
            assert (found["list"]["reason"], found["list"]["rank"], found["list"]["threshold"]) == (reason, None, entries[-1][1]), id
        assert explain("m3", "near")["score"] < entries[-1][1]
        assert matched == ["m2"]
        explained = {id: explain(id, "coffee") for id in ("early", "m0", "m2", "m6")}
        assert [id for id, found in explained.items() if found["matches"]] == matched
        early, without, within, outside = explained.values()
        assert early["expression"]["satisfied"] and early["rectangle"]["inside"] and [time["held"] for time in early["times"]] == [False, False]
        assert without["rectangle"]["inside"] and without["expression"]["needs"] == ["wifi"] and [time["held"] for time in without["times"]] == [True, True]
        assert within["notes"] == [] and outside["expression"]["satisfied"]
        assert [(border["border"], round(border["by_deg"], 6)) for border in outside["rectangle"]["outside"]] == [("north", 0.005)]
        assert cli.main(["explain", "-t", name, "m5", "near"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"message m5 scores {entries[0][1]:.6f} for near\n") and "it has rank 1" in out
        feed.verify({**conf, "dskype.vocabulary": str(kept)})
        assert handle.backend.failure is None
