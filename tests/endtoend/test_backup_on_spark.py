"""``dskype backup`` and ``dskype restore``: another topology has the same lists afterwards, and matches no old message again."""

from __future__ import annotations

import gzip
import json
import random
import time

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.client.backup import BackupError, differences, read_backup
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.records import rest_of_life
from tests.waiting import wait_for

from .harness import topology

WORDS = "lake park coffee wifi museum boat".split()


def lists_of(client, ids):
    return {id: client.topk(id).entries for id in ids}


def test_a_topology_that_is_restored_has_the_lists_and_the_subscriptions_of_the_old_one(cluster, name, feed_of, tmp_path, monkeypatch, capsys):
    kafka, rng = cluster.environment.kafka, random.Random(4)
    conf = {"topology.acker.executors": 0, "dskype.window.messages": 40}
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    feed = feed_of(kafka, name, 1)
    path = tmp_path / "kept.gz"
    ids = [f"t{i}" for i in range(6)]
    with cluster.submit_topology(name, conf, topology({}, name)) as handle:
        topk = {"type": "topk", "lat": 43.0, "lon": -88.0, "k": 4, "alpha": 0.5}
        feed.subscribe([(id, {**topk, "text": " ".join(rng.sample(WORDS, 2))}) for id in ids])
        feed.subscribe(
            [
                ("gone", {**topk, "text": "lake"}),
                ("coffee", {"type": "boolean", "keywords": ["coffee"], "bbox": [-90, 40, -85, 45]}),
                ("short", {"type": "boolean", "keywords": ["park"], "bbox": [-90, 40, -85, 45], "ttl_s": 0.5}),
            ]
        )
        for id in (*ids, "gone"):
            feed.wait_until_active(id)
        messages = [{"text": " ".join(rng.choices(WORDS, k=3)), "lat": 43 + rng.random(), "lon": -88 + rng.random()} for _ in range(60)]
        feed.publish([json.dumps({**message, "id": f"m{i}"} if i % 2 else message).encode() for i, message in enumerate(messages)])
        feed.wait_for(59)
        with PubSub(kafka, name) as client:
            client.unsubscribe("gone", wait=True)
            newest = "m59"
            wait_for(lambda: any(result.message == newest for result in client.results()) or client.topk(ids[0]) is not None, 60, "results")
            before = wait_for(lambda: lists_of(client, ids) if all(client.topk(id) for id in ids) and settled(client, ids) else None, 60, "lists")
        time.sleep(0.6)  # the short one is over
        assert cli.main(["backup", "-t", name, str(path)]) == 0
        assert "7 subscriptions, 40 messages" in capsys.readouterr().err
        assert cli.main(["backup", "-t", name, str(path)]) == 1
        assert "exists already" in capsys.readouterr().err
        assert cli.main(["restore", "-t", name, str(path)]) == 1
        assert "has subscriptions already" in capsys.readouterr().err
        assert handle.backend.failure is None
    other = f"{name}-again"
    with cluster.submit_topology(other, conf, topology({}, other)) as handle:
        assert cli.main(["restore", "-t", other, str(path)]) == 0, capsys.readouterr().err
        with PubSub(kafka, other) as client:
            client.await_active([*ids, "coffee"], 60)
            wait_for(lambda: all(client.topk(id) for id in ids) and settled(client, ids), 60, "lists")
            assert lists_of(client, ids) == before
            assert [one.id for one in client.subscriptions()] == ["coffee", *ids]
            assert list(client.results(subscriptions=["coffee"])) == [], "old messages matched again"
            client.publish(text="coffee", lat=43, lon=-88, id="new", wait=True)
            wait_for(lambda: [result.message for result in client.results(subscriptions=["coffee"])] == ["new"], 60, "a match of a new message")
        assert handle.backend.failure is None


def settled(client, ids):
    """Tell whether lists are what the deltas say: they are written a second later."""
    inside = {id: {} for id in ids}
    for result in client.results(subscriptions=ids):
        if result.op == "add":
            inside[result.subscription][result.message] = True
        else:
            inside[result.subscription].pop(result.message, None)
    return all(set(inside[id]) == {message for message, _ in client.topk(id).entries} for id in ids)


def kept(path, *lines):
    import hashlib

    data = b"".join(json.dumps(line).encode() + b"\n" for line in ({"backup": 1, "topology": "t", "written_ms": 0, "settings": {}}, *lines))
    counts = {"messages": 0, "plans": 0, "subscriptions": len(lines)}
    path.write_bytes(gzip.compress(data + json.dumps({"end": counts, "sha256": hashlib.sha256(data).hexdigest()}).encode() + b"\n"))
    return path


def test_a_backup_that_was_cut_or_changed_is_refused_as_a_whole(tmp_path):
    rows = [{"subscription": f"s{i}", "value": {"type": "topk"}, "registered_ms": i} for i in range(20)]
    path = kept(tmp_path / "kept.gz", *rows)
    assert list(read_backup(path))[1:] == rows
    whole = gzip.decompress(path.read_bytes())
    for at in range(0, len(whole), 97):
        path.write_bytes(gzip.compress(whole[:at] + (b"" if at % 2 else b"#") + whole[at + 1 :]))
        with pytest.raises(BackupError):
            list(read_backup(path))
    packed = gzip.compress(whole)
    for data in (packed[: len(packed) // 2], b"", b"no gzip", gzip.compress(b""), gzip.compress(b"[]\n")):
        path.write_bytes(data)
        with pytest.raises(BackupError, match="backup"):
            list(read_backup(path))


def test_what_is_left_of_a_life_is_restored():
    assert rest_of_life({"ttl_s": 60}, 1000, 11_000) == {"ttl_s": 50.0}
    assert rest_of_life({"ttl_s": 10}, 1000, 11_000) is None
    assert rest_of_life({"k": 3}, 0, 9) == {"k": 3}


def test_settings_that_change_lists_are_told_and_others_are_not():
    head = {"settings": {"dskype.window.messages": 40, "dskype.results": "both", "dskype.space": [0, 0, 1, 1]}}
    assert differences(head, {"dskype.window.messages": 50, "dskype.results": "deltas", "dskype.space": [0, 0, 1, 1]}) == [
        "dskype.window.messages was 40, and is 50"
    ]
    assert differences(head, head["settings"] | {"dskype.half.life.s": 60, "dskype.objects": True, "dskype.tenants": {"acme": {}}}) == [
        "dskype.half.life.s was null, and is 60",
        "dskype.objects was null, and is true",
        'dskype.tenants was null, and is {"acme": {}}',
    ]
