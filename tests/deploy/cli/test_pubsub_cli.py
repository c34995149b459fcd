"""The verbs of publish/subscribe: arguments, what is sent, what is printed, exit codes; on a real broker without a topology."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dskype.deploy.cli import lines
from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import LazyParser
from dskype.deploy.cli.commands import dead_letters as dead_letters_command
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.machine import connection
from dskype.deploy.machine.registry import DSKYPE, registry
from dskype.deploy.machine.terminal import clean, clock_text, put
from dskype.spouts.readers import LINE_BYTES
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.deploy.client.test_pubsub import COFFEE, PARK, delta, event, letter, write

LINES = [{"id": "a", "type": "topk", **PARK}, {"id": 17, "type": "boolean", **COFFEE}, {"type": "boolean", "bbox": [0, 0, 1, 1], "keywords": ["x"]}]


@pytest.fixture(scope="module")
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def name(kafka: KafkaSettings, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topology's name; its topics are there, and the brokers are those of the environment."""
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", bootstrap_servers)
    name = f"cli-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name)
    return name


@pytest.fixture
def run(name: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a verb on that topology; returns exit code, standard output and standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        words = list(arguments)
        at = 2 if words[0] in ("sub", "vocabulary") else 1
        code = cli.main([*words[:at], "-t", name, *words[at:]])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def json_lines(path: Path, items: list[Any]) -> str:
    path.write_bytes(b"\n".join(i if isinstance(i, bytes) else json.dumps(i).encode() for i in items) + b"\n")
    return str(path)


def subscriptions(kafka: KafkaSettings, name: str) -> list[tuple[str, Any]]:
    return [(r.key.decode(), None if r.value is None else json.loads(r.value)) for r in read_to_end(kafka, Topics.for_topology(name).subscriptions)]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [
        ("sub", "add"),
        ("sub", "list"),
        ("sub", "show"),
        ("sub", "rm"),
        ("publish",),
        ("tail",),
        ("vocabulary", "build"),
        ("vocabulary", "show"),
        ("verify",),
        ("bench", "throughput"),
    ],
)
def test_every_verb_has_help(verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([*verb, "-h"], ["help", *verb]):
        assert cli.main(arguments) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"usage: dskype {' '.join(verb)} [-h]")
        assert "--config FILE" in out
        assert ("-t NAME, --topology NAME" in out) == (verb not in (("vocabulary", "show"), ("bench", "throughput")))


def test_engines_are_given_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    from dskype.deploy.cli.commands import verify
    from dskype.deploy.demo import command as demo
    from dskype.deploy.lab.system import throughput

    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", "h:1")
    monkeypatch.setattr(connection, "await_brokers", lambda *_, **__: None)
    calls: list[Any] = []
    monkeypatch.setattr(verify, "_run", lambda args, given, kafka, topology: calls.append((args.sample, kafka.bootstrap_servers, topology)) or 1)
    monkeypatch.setattr(throughput, "run", lambda args: calls.append(args.seed))
    monkeypatch.setattr(demo, "run", lambda args: calls.append(args.seed) or 0)
    assert [cli.main(["verify", "--sample", "7", "-t", "x"]), cli.main(["bench", "throughput", "--seed", "3"]), cli.main(["demo", "--seed", "5"])] == [1, 0, 0]
    assert calls == [(7, "h:1", "x"), 3, 5]


def test_verbs_are_listed_in_groups_and_need_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.index("publish and subscribe:\n  sub ") < out.index("topologies:\n  local ") < out.index("this machine:\n")
    for verb in ("sub", "vocabulary", "bench"):
        assert cli.main([verb]) == 2
        assert "actions:" in capsys.readouterr().err
    assert cli.main(["sub", "ad"]) == 2
    assert "choose from" in capsys.readouterr().err
    assert cli.main(["help", "sub", "ad"]) == 1
    assert "'ad' is no command; did you mean 'add'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["sub", "add", "--near", "43"],
        ["sub", "add", "--near", "a,b"],
        ["sub", "add", "--bbox", "1,2,3"],
        ["sub", "add", "-k", "0"],
        ["sub", "add", "--ttl", "0"],
        ["sub", "add", "--meta", "{"],
        ["sub", "add", "--alpha", "x"],
        ["sub", "rm"],
        ["sub", "show"],
        ["publish", "--bbox", "0,0,1"],
        ["publish", "x", "--rate", "0"],
        ["publish", "x", "--validate", "--no-check"],
        ["tail", "--from", "yesterday"],
        ["tail", "--count", "0"],
        ["vocabulary", "show"],
        ["tail", "--timeout", "0"],
        ["vocabulary", "build", "x", "--sample", "none"],
        ["sub", "list", "--type", "other"],
    ],
)
def test_arguments_that_make_no_sense_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert "error:" in capsys.readouterr().err


def test_a_place_west_or_south_needs_no_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    parser = LazyParser()
    for option in ("--near", "--bbox", "-k"):
        parser.add_argument(option)
    args = parser.parse_args(["--near", "-33.9,151", "--bbox", "-.5,0,1,1", "-k", "-3"])
    assert (args.near, args.bbox, args.k) == ("-33.9,151", "-.5,0,1,1", "-3")
    with pytest.raises(SystemExit):
        parser.parse_args(["--near", "-k"])
    assert "--near: expected one argument" in capsys.readouterr().err


def test_verbs_need_a_cluster_and_topics(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bootstrap_servers: str, tmp_path: Path) -> None:
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)
    file = json_lines(tmp_path / "m", [{"text": "x", "lat": 0, "lon": 0}])
    verbs = [
        ["sub", "add", "--text", "x", "--near", "0,0"],
        ["sub", "list"],
        ["sub", "show", "a"],
        ["sub", "rm", "a"],
        ["publish", file],
        ["tail"],
        ["tail", "--topk"],
        ["vocabulary", "build", "--topic"],
    ]
    for verb in verbs:
        assert cli.main(verb) == 1
        assert "No cluster is named. hint: use --bootstrap-servers" in capsys.readouterr().err
        assert cli.main([*verb, "--bootstrap-servers", bootstrap_servers, "-t", "cli not there"]) == 1
        assert re.search(
            r"error: The topics? cli_x20not_x20there\.\w+.* not exist. hint: a DSkype topology creates its topics when it starts: run one named 'cli not there'",
            capsys.readouterr().err,
        )
    admin = TopicAdmin(KafkaSettings(bootstrap_servers))
    try:
        assert admin.existing(Topics.for_topology("cli not there")) == {}
    finally:
        admin.close()


def test_classes_of_dskype_have_short_names() -> None:
    classes = registry()
    assert [classes.resolve(name, "a test").__name__ for name in DSKYPE] == [name.removeprefix("dskype.") for name in DSKYPE]
    short = {n for n in classes if n.startswith("dskype.")}
    assert {
        "dskype.MessageSpout",
        "dskype.SubscriptionSpout",
        "dskype.DistributionBolt",
        "dskype.SubscriptionBolt",
        "dskype.MessageBolt",
        "dskype.AggregationBolt",
        "dskype.ResultBolt",
        "dskype.demo.PlacesSpout",
    } <= short


# --- sub add ----------------------------------------------------------------------------------------------------------


def test_a_file_of_subscriptions_is_sent_and_bad_lines_are_told(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    bad = [b"{", b"[1]", {"id": True, "type": "topk", **PARK}, {"id": "c", "type": "topk", **PARK, "k": 0}, b"\xff\xfe"]
    file = json_lines(tmp_path / "s", [LINES[0], bad[0], b"", bad[1], LINES[1], *bad[2:], LINES[2]])
    code, out, err = run("sub", "add", file)
    assert code == 1
    assert "3 subscriptions sent, 5 refused" in err
    assert re.findall(r"error: line (\d+): ", err) == ["2", "4", "6", "7", "8"]
    sent = subscriptions(kafka, name)
    generated = out.strip()
    assert re.fullmatch(r"[0-9a-f]{32}", generated)
    assert sent == [("a", {k: v for k, v in LINES[0].items() if k != "id"}), ("17", {k: v for k, v in LINES[1].items() if k != "id"}), (generated, LINES[2])]


def test_a_subscription_is_sent_by_options(run: Any, name: str, kafka: KafkaSettings) -> None:
    assert run("sub", "add", "--id", "lake-park", "--text", "lake park", "--near", "-43.04,-87.9", "--meta", '{"a": [1]}') == (
        0,
        "",
        "1 subscription sent, 0 refused\n",
    )
    assert run("sub", "add", "--id", "c", "--bbox", "-88,42,-87,44", "--expression", "coffee AND wifi", "--ttl", "3600")[0] == 0
    code, out, _ = run("sub", "add", "--keyword", "a", "--keyword", "b", "--near", "1,2", "-k", "3", "--alpha", "0", "-o", "json")
    assert run("sub", "add", "--id", "near", "--text", "tea", "--near", "1,2", "--distance", "metres", "--scale-m", "5000", "--ttl", "60")[0] == 0
    assert (
        "Expected 'scale_m' with 'distance': metres; given: 0.5"
        in run("sub", "add", "--text", "tea", "--near", "1,2", "--distance", "metres", "--scale-m", "0.5")[2]
    )
    assert run("sub", "add", "--id", "good", "--text", "tea", "--near", "1,2", "--min-score", "0.6")[0] == 0
    assert (
        "Expected no 'k' in a subscription of the type 'threshold'; given: 3"
        in run("sub", "add", "--text", "tea", "--near", "1,2", "--min-score", "1", "-k", "3")[2]
    )
    [generated] = json.loads(out)["generated"]
    assert code == 0
    assert subscriptions(kafka, name) == [
        ("lake-park", {"type": "topk", "k": 10, "alpha": 0.5, "text": "lake park", "meta": {"a": [1]}, "lat": -43.04, "lon": -87.9}),
        ("c", {"type": "boolean", "bbox": [-88, 42, -87, 44], "expression": "coffee AND wifi", "ttl_s": 3600}),
        (generated, {"type": "topk", "k": 3, "alpha": 0, "keywords": ["a", "b"], "lat": 1, "lon": 2}),
        ("near", {"type": "topk", "k": 10, "alpha": 0.5, "text": "tea", "distance": "metres", "scale_m": 5000, "ttl_s": 60, "lat": 1, "lon": 2}),
        ("good", {"type": "threshold", "alpha": 0.5, "text": "tea", "min_score": 0.6, "lat": 1, "lon": 2}),
    ]
    assert "tea near 1.0,2.0, score >= 0.6, alpha 0.5" in run("sub", "list", "--type", "threshold")[1]


def test_options_that_do_not_go_together_are_refused(run: Any, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "s", LINES)
    assert "given: neither" in run("sub", "add")[2]
    assert "given: both" in run("sub", "add", file, "--text", "x")[2]
    assert "expected --near LAT,LON for a top-k or threshold subscription" in run("sub", "add", "--text", "x")[2]
    code, _, err = run("sub", "add", "--text", "x", "--near", "1,2", "--bbox", "1,2,3,4")
    assert code == 1
    assert "--text, --near, -k, --min-score, --alpha, --distance, --scale-m and --where are for top-k and threshold" in err


def test_standard_input_is_read_and_a_summary_is_json_on_request(run: Any, name: str, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b"\xef\xbb\xbf" + json.dumps(LINES[0]).encode() + b"\r\nnonsense")
    code, out, err = run("sub", "add", "-", "-o", "json")
    summary = json.loads(out)
    assert (code, summary["sent"], summary["refused"], summary["failed"], summary["generated"]) == (1, 1, 1, 0, [])
    assert summary["errors"][0]["line"] == 2
    assert [id for id, _ in subscriptions(kafka, name)] == ["a"]


def test_many_bad_lines_are_counted_and_not_all_shown(run: Any, tmp_path: Path) -> None:
    code, _, err = run("sub", "add", json_lines(tmp_path / "s", [b"x"] * 50))
    assert code == 1
    assert err.count("error: line") == 20
    assert "0 subscriptions sent, 50 refused" in err


def test_a_dry_run_sends_nothing_and_needs_no_cluster(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = json_lines(tmp_path / "s", [*LINES, b"x"])
    assert run("sub", "add", file, "--dry-run")[0] == 1
    assert subscriptions(kafka, name) == []
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS")
    code, _, err = run("sub", "add", file, "--dry-run")
    assert code == 1
    assert "3 subscriptions would be sent, 1 refused" in err
    (tmp_path / "t.yaml").write_text("name: t\nconfig: {dskype.k.max: 5, spark.x: 1}\n")
    assert (
        "1 subscription would be sent, 1 refused"
        in run("sub", "add", json_lines(tmp_path / "s", LINES[:2]), "--dry-run", "--file", str(tmp_path / "t.yaml"))[2]
    )
    assert (
        "1 subscription would be sent, 1 refused"
        in run("sub", "add", file, "--dry-run", "--file", str(tmp_path / "t.yaml"), "-c", "dskype.k.max=100", "-c", "dskype.space=[0,0,1,1]")[2]
    )
    assert "2 subscriptions would be sent, 0 refused" in run("sub", "add", file, "--dry-run", "-c", "dskype.k.max=10")[2]
    assert "1 subscription would be sent, 1 refused" in run("sub", "add", file, "--dry-run", "-c", "dskype.k.max=9")[2]
    (tmp_path / "t.yaml").write_text("[1]")
    assert "must be a topology file with a map 'config'" in run("sub", "add", file, "--dry-run", "--file", str(tmp_path / "t.yaml"))[2]
    assert "The configuration key dskype.k.mix is not known" in run("sub", "add", file, "--dry-run", "-c", "dskype.k.mix=9")[2]


# --- sub list, show, rm -----------------------------------------------------------------------------------------------


def test_subscriptions_are_listed_with_their_states(run: Any, name: str, kafka: KafkaSettings) -> None:
    assert run("sub", "list") == (0, "No subscriptions.\n", "")
    topics = Topics.for_topology(name)
    write(
        kafka, topics.subscriptions, [("a\x1b[31m", {"type": "topk", **PARK}), ("b", {"type": "boolean", **COFFEE, "ttl_s": 99}), ("j", b"junk"), ("l", b"[]")]
    )
    write(kafka, topics.registrations, [event("b", "0-1", "active", 41)])
    code, out, err = run("sub", "list")
    assert code == 0
    head, a, b, *junk = out.splitlines()
    assert head.split() == ["ID", "TYPE", "STATUS", "SINCE", "REGISTERED", "WHAT"]
    assert "\x1b" not in out
    assert a.split()[:5] == ["a", "[31m", "topk", "pending", "-"]
    assert a.endswith("lake park near 43.04,-87.9, k 10, alpha 0.5")
    assert b.split()[:4] == ["b", "boolean", "active", "41"]
    assert b.endswith('coffee AND (wifi OR "late night") in [-88, 42, -87, 44], ttl 99 s')
    assert len(junk) == 2
    assert f"note: no topology '{name}' runs" in err
    code, out, _ = run("sub", "list", "--type", "boolean", "-o", "json")
    [found] = json.loads(out)
    assert (found["id"], found["status"], found["since"], found["ttl_s"]) == ("b", "active", 41, 99)


def test_expressions_are_listed_and_shown_as_they_are_read(run: Any, name: str, kafka: KafkaSettings) -> None:
    topics = Topics.for_topology(name)
    records = {"a": {"expression": "Wi-Fi and  not (tea)"}, "b": {"bbox": [0, 0, 1, 1]}, "c": {"expression": "price < 5"}, "d": {"keywords": ["x", "y"]}}
    write(kafka, topics.subscriptions, [(id, {"type": "boolean", **record}) for id, record in records.items()])
    _, *rows = run("sub", "list")[1].splitlines()
    assert [row.split("  ")[-1] for row in rows] == ['"wi fi" AND NOT tea everywhere', "everything in [0, 0, 1, 1]", "price < 5 everywhere", "x y everywhere"]
    assert '  expression   "wi fi" AND NOT tea' in run("sub", "show", "a")[1].splitlines()
    assert "  expression   price < 5" in run("sub", "show", "c")[1].splitlines(), "the topology cannot read it: it is shown as it is"


def test_one_subscription_is_shown_with_its_topk_and_their_texts(run: Any, name: str, kafka: KafkaSettings) -> None:
    topics = Topics.for_topology(name)
    write(
        kafka, topics.messages, [(None, {"text": "the \x1b[2Jlake\nin the park", "lat": 0, "lon": 0}), (None, {"id": 17, "text": "a park", "lat": 0, "lon": 0})]
    )
    write(kafka, topics.subscriptions, [("a", {"type": "topk", **PARK, "meta": {"u": "\u202ex"}}), ("b", {"type": "boolean", **COFFEE})])
    write(kafka, topics.registrations, [event("a", "0-0", "active", -1), event("b", "0-1", "active", 0), event("b", "0-1", "removed", 5)])
    value = {
        "v": 1,
        "subscription": "a",
        "registration": "0-0",
        "watermark": 3,
        "topk": [{"message": "0-0", "score": 0.75}, {"message": 17, "score": 0.5}, {"message": "gone", "score": 0.25}],
    }
    write(kafka, topics.topk, [("a", value, [("version", "1 0-0 3")])])
    code, out, err = run("sub", "show", "a")
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0] == "a: topk, active since watermark -1"
    assert rows[1].endswith(", record 0-0")
    assert "  alpha        0.5" in rows
    assert '  meta         {"u": "x"}' in rows
    assert rows[-4:] == [
        "top-k at watermark 3, 3 messages:",
        "   1  0.750000  0-0  the [2Jlake in the park",
        "   2  0.500000  17  a park",
        "   3  0.250000  gone",
    ]
    code, out, _ = run("sub", "show", "a", "-o", "json")
    shown = json.loads(out)
    assert (shown["status"], shown["watermark"], shown["topk"], shown["k"]) == ("active", 3, value["topk"], 10)
    assert run("sub", "show", "b")[1].startswith("b: boolean, expired at watermark 5\n")
    write(kafka, topics.subscriptions, [("a", {"type": "topk", **PARK})])
    code, out, err = run("sub", "show", "a")
    assert out.startswith("a: topk, pending\n")
    assert "top-k at" not in out  # it answers for subscriptions that were registered before
    assert "pending subscriptions wait for it" in err
    assert json.loads(run("sub", "show", "a", "-o", "json")[1])["topk"] is None


def test_what_the_topology_refused_is_shown_with_its_reason(run: Any, name: str, kafka: KafkaSettings) -> None:
    topics = Topics.for_topology(name)
    admin = TopicAdmin(kafka)
    try:
        admin.create({topics.dead_letters: 1}, {})
    finally:
        admin.close()
    write(kafka, topics.subscriptions, [("a", b"junk")])
    write(kafka, topics.dead_letters, [("a", b"junk", [("error", "not \x07JSON"), ("topic", topics.subscriptions), ("partition", "0"), ("offset", "0")])])
    assert run("sub", "show", "a")[1].splitlines()[-1] == "refused by the topology: not JSON"
    assert json.loads(run("sub", "show", "a", "-o", "json")[1])["refused"] == "not \x07JSON"


def test_an_unknown_subscription_fails_with_a_near_one(run: Any, name: str, kafka: KafkaSettings) -> None:
    write(kafka, Topics.for_topology(name).subscriptions, [("lake-park", {"type": "topk", **PARK}), ("b", {"type": "topk", **PARK})])
    code, out, err = run("sub", "show", "lake-prk")
    assert (code, out) == (1, "")
    assert err == f"error: there is no subscription 'lake-prk' in topology '{name}'; hint: did you mean 'lake-park'?\n"
    code, _, err = run("sub", "rm", "b", "zzzzzz", "b")
    assert code == 1
    assert "1 subscription removed" in err
    assert "'dskype sub list' lists them" in err
    assert subscriptions(kafka, name)[2:] == [("b", None)]
    assert run("sub", "rm", "b", "zzzzzz", "--ignore-missing")[0] == 0
    assert subscriptions(kafka, name)[3:] == [("b", None), ("zzzzzz", None)]


def test_a_subscription_moves_and_keeps_what_is_not_given(run: Any, name: str, kafka: KafkaSettings) -> None:
    park, coffee = {"type": "topk", **PARK}, {"type": "boolean", **COFFEE, "ttl_s": 99}
    write(kafka, Topics.for_topology(name).subscriptions, [("park", park), ("b", coffee)])
    assert run("sub", "move", "park", "--near", "43.5,-87.5", "--ttl", "60") == (0, "", "subscription park changes\n")
    assert run("sub", "move", "b", "--circle", "43.04,-87.91,500")[0] == 0
    (_, one), (_, other) = subscriptions(kafka, name)[2:]
    assert one == {**park, "lat": 43.5, "lon": -87.5, "ttl_s": 60, "update": True}
    assert 0 < other.pop("ttl_s") < 99
    assert other == {
        "type": "boolean",
        "expression": COFFEE["expression"],
        "region": {"center": {"lat": 43.04, "lon": -87.91}, "radius_m": 500},
        "update": True,
    }
    code, _, err = run("sub", "move", "prak", "--near", "1,2")
    assert code == 1 and "did you mean 'park'?" in err
    assert "Expected 'lat' in degrees" in run("sub", "move", "park", "--near", "91,2")[2] or "LAT" in run("sub", "move", "park", "--near", "91,2")[2]
    assert run("sub", "move", "park")[0] == 1
    assert len(subscriptions(kafka, name)) == 4


# --- publish ----------------------------------------------------------------------------------------------------------

MESSAGES = [{"text": "one", "lat": 1, "lon": 2}, {"id": "a", "text": "two", "lat": 1, "lon": 2, "more": 1}]


def test_messages_are_sent_as_they_stand_and_bad_ones_left_out(
    run: Any, name: str, kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [b"{", {"text": "x", "lat": 91, "lon": 0}, b"null"]
    file = json_lines(tmp_path / "m", [*MESSAGES, *bad])
    code, out, err = run("publish", file)
    assert (code, out) == (1, "")
    assert "2 messages sent, 3 refused" in err
    assert re.findall(r"error: line (\d+)", err) == ["3", "4", "5"]
    assert [r.value for r in read_to_end(kafka, Topics.for_topology(name).messages)] == [json.dumps(m).encode() for m in MESSAGES]
    stdin(monkeypatch, b"{\n" + json.dumps(MESSAGES[0]).encode())
    code, out, _ = run("publish", "-", "--no-check", "-o", "json")
    assert (code, json.loads(out)) == (0, {"sent": 2, "refused": 0, "failed": 0, "errors": []})
    assert [r.value for r in read_to_end(kafka, Topics.for_topology(name).messages)][2:] == [b"{", json.dumps(MESSAGES[0]).encode()]


def test_one_message_is_published_by_options(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    assert run("publish", "--text", "Storm warning", "--bbox=170,-10,-170.5,10")[0] == 0
    assert run("publish", "--text", "été", "--at=43.05,-87.88", "--id", "a", "--ts", "5", "--attribute", "price=4.5", "--attribute", 'tags=["x"]')[0] == 0
    assert [json.loads(r.value) for r in read_to_end(kafka, Topics.for_topology(name).messages)] == [
        {"text": "Storm warning", "bbox": [170, -10, -170.5, 10]},
        {"id": "a", "text": "été", "attributes": {"price": 4.5, "tags": ["x"]}, "ts": 5, "lat": 43.05, "lon": -87.88},
    ]
    code, _, err = run("publish", "--text", "x", "--at=1,2", "--bbox=0,0,1,1")
    assert code == 1 and "error: Expected 'lat' and 'lon', 'bbox', or 'region', not several" in err and "0 messages sent, 1 refused" in err
    for arguments, given in (["--text", "x"], "--text"), (["--at=1,2"], "--at"), (["--id", "a"], "none of them"):
        code, _, err = run("publish", *arguments)
        assert code == 1 and f"expected --text, and its place by --at LAT,LON or --bbox W,S,E,N; given: {given}" in err
    file = json_lines(tmp_path / "m", MESSAGES)
    for arguments, given in ([], "neither"), ([file, "--text", "x"], "both"):
        code, _, err = run("publish", *arguments)
        assert code == 1 and f"expected a FILE (- is standard input), or one message by options; given: {given}" in err
    assert len(read_to_end(kafka, Topics.for_topology(name).messages)) == 2


def test_a_line_that_fits_into_no_record_is_left_out(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "m", [b"x" * (LINE_BYTES * 2 + 5), MESSAGES[0]])
    code, _, err = run("publish", file, "--no-check")
    assert code == 1
    assert "error: line 1: Expected a shorter line; given: more than 4,194,304 bytes" in err
    assert len(read_to_end(kafka, Topics.for_topology(name).messages)) == 1


def test_a_file_that_is_not_there_is_an_error(run: Any) -> None:
    code, _, err = run("publish", "/nope/nope")
    assert code == 1
    assert "No such file" in err


def test_ctrl_c_ends_publishing_with_the_counts_and_130(name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "m", MESSAGES[:1] * 1000)
    running = subprocess.Popen(
        [sys.executable, "-m", "dskype.deploy", "publish", "-t", name, file, "--rate", "20"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        following = PubSub(kafka, name, conf={})
        for _ in range(200):
            if sent := len(list(following.scan(following.topics.messages))):
                break
            time.sleep(0.1)
        following.close()
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=30)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.returncode == 130
    [told] = re.fullmatch(r"(\d+) messages? sent, 0 refused\n", err).groups()
    assert sent <= int(told) == len(read_to_end(kafka, Topics.for_topology(name).messages)) < 1000


def test_a_rate_is_kept_and_what_was_late_is_caught_up_with() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    pace = lines.Pace(10, clock=lambda: now[0], sleep=sleep)
    for _ in range(3):
        pace.wait()
    now[0] += 0.35
    for _ in range(5):
        pace.wait()
    assert slept == [0.1, 0.1, 0.05, 0.1]
    assert sum(slept) + 0.35 == pytest.approx(now[0])
    free = lines.Pace(None, sleep=lambda _: pytest.fail("no wait"))
    free.wait()


# --- tail -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(name: str, kafka: KafkaSettings) -> Topics:
    topics = Topics.for_topology(name)
    write(
        kafka,
        topics.messages,
        [(None, {"text": "lake \x1b[2J\u202epark", "lat": 0, "lon": 0}), (None, {"id": 17, "text": "own id", "lat": 0, "lon": 0}), (None, b"junk")],
    )
    write(
        kafka,
        topics.results,
        [
            delta("a", "add", "0-0", 0, score=0.75, rank=1),
            delta("a", "add", "0-0", 0, score=0.75, rank=1),
            delta("b", "match", 17, 1, meta="m"),
            delta("a\x07", "remove", "gone", 2),
            delta("a", "add", "0-2", 3, score=0.5, rank=12),
            delta("a", "add", "5-0", 3, score=0.5, rank=2),
        ],
    )
    return topics


def test_results_are_printed_once_with_the_texts_of_their_messages(run: Any, results: Topics) -> None:
    code, out, err = run("tail", "--from", "beginning", "--count", "5")
    assert (code, err.startswith("note: no topology"), err.count("\n")) == (0, True, 1)
    rows = [re.sub(r"^\d\d:\d\d:\d\d\.\d\d\d  ", "", line) for line in out.splitlines()]
    assert rows == [
        "add      #1  0.750000  a  0-0  lake [2Jpark",
        f"match{'':18}b  17  own id",
        f"remove{'':17}a  gone",
        "add     #12  0.500000  a  0-2",
        "add      #2  0.500000  a  5-0",
    ]


def test_results_of_some_subscriptions_are_followed_as_json(run: Any, results: Topics) -> None:
    code, out, _ = run("tail", "--from", "beginning", "--sub", "b", "--count", "1", "-o", "json")
    found = json.loads(out)
    assert found.pop("time_ms") > 0
    assert found == {
        "v": 1,
        "subscription": "b",
        "watermark": 1,
        "op": "match",
        "message": 17,
        "meta": "m",
        "result_id": '0-0/"b"/1/match/17',
        "text": "own id",
    }
    code, out, _ = run("tail", "--from", "beginning", "--sub", "b", "--sub", "a", "--count", "4", "--no-text")
    assert "lake" not in out
    assert [line.split()[1] for line in out.splitlines()] == ["add", "match", "add", "add"]


def test_grouped_matches_are_printed_one_by_one(run: Any, name: str, kafka: KafkaSettings) -> None:
    topics = Topics.for_topology(name)
    admin = TopicAdmin(kafka)
    admin.create({topics.matches: 1}, {})
    admin.close()
    write(kafka, topics.messages, [(None, {"text": "lake", "bbox": [0, 0, 1, 1]})])
    record = ("0-0", {"v": 1, "message": "0-0", "watermark": 0, "task": 5, "subscriptions": ["a", "b"]}, [("result-id", '"0-0"/0/5/0')])
    write(kafka, topics.matches, [record, record])
    code, out, _ = run("tail", "--from", "beginning", "--count", "2")
    assert code == 0 and [re.sub(r"^\S+ +", "", line) for line in out.splitlines()] == [f"match{'':18}{id}  0-0  lake" for id in "ab"]
    code, out, _ = run("tail", "--from", "beginning", "--count", "1", "--sub", "b", "-o", "json", "--no-text")
    assert json.loads(out).items() >= {"v": 1, "subscription": "b", "watermark": 0, "op": "match", "message": "0-0", "result_id": '"0-0"/0/5/0/"b"'}.items()


def test_an_own_id_is_not_taken_for_the_place_of_another_message(run: Any, name: str, kafka: KafkaSettings) -> None:
    topics = Topics.for_topology(name)
    write(kafka, topics.messages, [(None, {"id": "x", "text": "wrong", "lat": 0, "lon": 0}), (None, {"id": "0-0", "text": "right", "lat": 0, "lon": 0})])
    write(kafka, topics.results, [delta("a", "match", "0-0", 1)])
    assert run("tail", "--from", "beginning", "--count", "1")[1].rstrip().endswith("0-0  right")


def test_only_new_results_are_followed_and_old_messages_are_looked_up(run: Any, results: Topics, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    from dskype.deploy.cli import result_lines

    monkeypatch.setattr(result_lines, "_BEFORE", 0)

    def later() -> None:
        for i in range(100):
            write(kafka, results.results, [delta("a", "remove", "0-0", 100 + i), delta("a", "remove", 17, 100 + i)])
            if done.wait(0.2):
                return

    done = threading.Event()
    thread = threading.Thread(target=later)
    thread.start()
    try:
        code, out, _ = run("tail", "--count", "2")
    finally:
        done.set()
        thread.join()
    assert code == 0
    first, second = out.splitlines()
    assert "remove" in first
    assert first.endswith("a  0-0  lake [2Jpark")
    assert second.endswith("a  17")  # an id of the user's does not say where its message is


def test_whole_topk_lists_are_followed(run: Any, results: Topics, kafka: KafkaSettings) -> None:
    write(
        kafka,
        results.topk,
        [
            ("a", {"v": 1, "subscription": "a", "registration": "0-0", "watermark": 3, "topk": [{"message": "0-0", "score": 0.75}]}),
            ("a", None),
            ("b", b"junk"),
            ("c", {"v": 1, "subscription": "c", "watermark": 4, "topk": []}),
        ],
    )
    code, out, _ = run("tail", "--topk", "--from", "beginning", "--count", "3")
    rows = [re.sub(r"^\d\d:\d\d:\d\d\.\d\d\d  ", "", line) for line in out.splitlines()]
    assert rows == ["a  watermark 3, 1 message", "   1  0.750000  0-0  lake [2Jpark", "a  unregistered", "c  watermark 4, 0 messages"]
    code, out, _ = run("tail", "--topk", "--from", "beginning", "--count", "2", "--sub", "a", "-o", "json")
    first, second = map(json.loads, out.splitlines())
    assert first["topk"] == [{"message": "0-0", "score": 0.75}]
    assert second["topk"] is None


def test_ctrl_c_ends_a_tail_with_130(name: str, results: Topics, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "dskype.deploy", "tail", "-t", name, "--from", "beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert "lake" in running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=30)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert (running.returncode, err) == (130, f"note: no topology {name!r} runs; results come when one does\n")


# --- vocabulary -------------------------------------------------------------------------------------------------------


def test_a_vocabulary_is_built_from_lines_and_shown(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "v.tsv")
    file = json_lines(tmp_path / "m", [{"text": "Lake park"}, {"text": "park Café"}, b"x", {"text": 5}, {"body": "lake"}])
    code, _, err = run("vocabulary", "build", file, "-o", out)
    assert code == 1
    assert "2 documents, 3 words; 3 lines refused" in err
    assert Path(out).read_text().splitlines() == ['{"documents": 2, "words": 2}', "café\t1", "lake\t1", "park\t2"]
    assert os.listdir(tmp_path) == ["m", "v.tsv"] or set(os.listdir(tmp_path)) == {"m", "v.tsv"}
    code, _, err = run("vocabulary", "build", file, "-o", out)
    assert code == 1
    assert "exists already" in err
    file = json_lines(tmp_path / "m", [{"body": "a b"}, {"body": "b"}])
    assert run("vocabulary", "build", file, "-o", out, "--force", "--field", "body")[0] == 0
    assert (
        run("vocabulary", "build", json_lines(tmp_path / "m", [b"the a b", b"the b"]), "-o", out, "--force", "--plain", "-c", 'dskype.stop.words=["The"]')[0]
        == 0
    )
    assert cli.main(["vocabulary", "show", out]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["2", "documents,", "2", "words"],
        ["2", "0.693147", "b"],
        ["1", "1.098612", "a"],
    ]
    assert cli.main(["vocabulary", "show", out, "--term", "B nope"]) == 0
    assert "nope  (not in the vocabulary)" in capsys.readouterr().out
    assert cli.main(["vocabulary", "show", out, "--top", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"documents": 2, "words": 2, "terms": [{"term": "b", "id": 1, "df": 2, "idf": 0.693147}]}
    assert cli.main(["vocabulary", "show", file]) == 1


def test_a_vocabulary_is_built_from_the_newest_messages(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    write(kafka, Topics.for_topology(name).messages, [(None, {"text": f"w{i} all"}) for i in range(20)] + [(None, b"junk")])
    out = str(tmp_path / "v.tsv")
    assert run("vocabulary", "build", "--topic", "messages", "--sample", "5", "-o", out)[0] == 0
    assert Path(out).read_text().splitlines() == ['{"documents": 4, "words": 2}', "w16\t1", "w17\t1", "w18\t1", "w19\t1", "all\t4"]
    assert run("vocabulary", "build", "--topic", Topics.for_topology(name).messages, "-o", out, "--force")[0] == 0
    assert Path(out).read_text().startswith('{"documents": 20, "words": 2}')
    assert "given: both" in run("vocabulary", "build", "x", "--topic")[2]
    assert "there is no text" in run("vocabulary", "build", "--topic", Topics.for_topology(name).results, "-o", out, "--force")[2]


def test_a_sample_of_a_file_is_random_and_the_same_again(run: Any, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "m", [{"text": f"w{i}"} for i in range(1000)])
    found = []
    for _ in range(2):
        assert run("vocabulary", "build", file, "--sample", "50", "-o", str(tmp_path / "v"), "--force")[0] == 0
        found.append((tmp_path / "v").read_text())
    assert found[0] == found[1]
    words = [int(line.split("\t")[0][1:]) for line in found[0].splitlines()[1:]]
    assert len(words) == 50
    assert 300 < sum(words) / 50 < 700


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_what_steers_a_terminal_is_not_shown() -> None:
    assert clean("a\x1b[31m\r\nb\u2028c\u202e\u200fd\ud800e\x9b f\t") == "a [31m b cd e f"
    assert clean({"x": "\x07é"}) == '{"x": "\\u0007é"}'
    assert clean("x" * 50, 10) == "x" * 9 + "…"
    assert clean("👩‍👩‍👧") == "👩‍👩‍👧"
    assert clock_text(None) == clock_text(-1) == "-"
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.007", clock_text(1_700_000_000_007))


def test_output_that_cannot_be_encoded_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    put("café")
    assert raw.getvalue() == b"caf\\xe9\n"


# --- explain ----------------------------------------------------------------------------------------------------------


def test_ids_are_looked_up_in_the_topics(run: Any, name: str, kafka: KafkaSettings, tmp_path: Path) -> None:
    assert run("publish", json_lines(tmp_path / "m", [{"text": "too early coffee", "lat": 1, "lon": 2}]))[0] == 0
    time.sleep(0.01)
    assert run("sub", "add", json_lines(tmp_path / "s", [{"id": "park", "type": "topk", **PARK}, {"id": "coffee", "type": "boolean", **COFFEE}]))[0] == 0
    south, north = COFFEE["bbox"][1], COFFEE["bbox"][3]
    time.sleep(0.01)
    near = {"id": "a", "text": "coffee, park", "lat": (south + north) / 2, "lon": COFFEE["bbox"][0]}
    assert run("publish", json_lines(tmp_path / "m", [{"id": "a", "text": "older", "lat": 0, "lon": 0}, near]))[0] == 0
    code, out, err = run("explain", "a", "park", "--json")
    found = json.loads(out)
    assert code == 0 and found["message"] == "a" and found["tokens"] == ["coffee", "park"] and found["score"] is not None, err
    assert "no list has been published for this subscription yet" in found["notes"] and "the subscription is pending, not active" in found["notes"]
    found = json.loads(run("explain", "a", "coffee", "--json")[1])
    assert found["rectangle"]["inside"] and [time["held"] for time in found["times"]] == [True]
    found = json.loads(run("explain", "0-0", "coffee", "-o", "json")[1])
    assert found["message"] == "0-0" and [time["held"] for time in found["times"]] == [False] and not found["matches"]
    write_topk = {"subscription": "park", "watermark": 4, "topk": [{"message": "a", "score": 0.5}]}
    write(kafka, Topics.for_topology(name).topk, [("park", write_topk, [("version", "1 0-0 4")])])
    code, out, _ = run("explain", "a", "park")
    assert code == 0 and "list    at watermark 4 it has rank 1" in out
    write(kafka, Topics.for_topology(name).sequence, [("0", {"partition": 0, "offset": 0, "first": 0, "n": 3})])
    write(kafka, Topics.for_topology(name).topk, [("park", {**write_topk, "watermark": 1, "topk": []}, [("version", "2 0-0 1")])])
    assert json.loads(run("explain", "a", "park", "--json")[1])["list"]["reason"] == "came later"
    registration = f"0-{len(subscriptions(kafka, name)) - 1}"
    write(kafka, Topics.for_topology(name).registrations, [event("coffee", registration, "active", 2)])
    found = json.loads(run("explain", "a", "coffee", "--json")[1])
    assert [time["held"] for time in found["times"]] == [True, False] and found["notes"] == []
    for unknown in (("zzz", "park"), ("0-1", "park"), ("a", "zzz")):
        code, out, err = run("explain", *unknown)
        assert (code, out) == (1, "") and "There is no such" in err


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_dead_letters_are_shown_with_reason_place_and_record(run: Any, name: str, kafka: KafkaSettings) -> None:
    assert run("dead-letters")[::2] == (
        1,
        f"error: The topic {name}.dead-letters does not exist. hint: a DSkype topology creates its topics when it starts: "
        f"run one named {name!r} with 'dskype local' or 'dskype submit' (for example -R dskype.yaml), or name the running one with -t ('dskype list')\n",
    )
    topics = Topics.for_topology(name)
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        admin.create({topics.dead_letters: 1}, {})
    assert run("dead-letters") == (0, "", f"topology {name} has no dead letters\n")
    write(
        kafka,
        topics.dead_letters,
        [
            (None, b'{"text": "a", "lat": 91}', letter(3, "Expected 'lat' from -90 to 90; given: 91", "invalid-lat")),
            (None, b"\x1b[31mred\xff" + b"x" * 500, letter(4, "Expected a message as \x1b[1mJSON", "invalid-json")),
        ],
    )
    code, out, err = run("dead-letters")
    first, record, second, other = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert first == "TIME  invalid-lat  m 0-3  Expected 'lat' from -90 to 90; given: 91"
    assert record == '    {"text": "a", "lat": 91}'
    assert second == "TIME  invalid-json  m 0-4  Expected a message as [1mJSON"
    assert other.startswith("    [31mred\\xffxxx") and len(other) == 164 and other.endswith("…")
    assert run("dead-letters", "--count", "1")[1].startswith(out.splitlines()[2][:19])
    code, out, err = run("dead-letters", "--reason", "invalid-lat", "-o", "json")
    assert [(found["code"], found["offset"], found["value"]) for found in map(json.loads, out.splitlines())] == [("invalid-lat", 3, '{"text": "a", "lat": 91}')]
    assert run("dead-letters", "--reason", "nothing like it") == (0, "", f"topology {name} has no dead letters about 'nothing like it'\n")


def test_dead_letters_are_followed_until_ctrl_c(run: Any, name: str, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics.for_topology(name)
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        admin.create({topics.dead_letters: 1}, {})
    real, shown = dead_letters_command.put, []

    def interrupt(*lines: str) -> None:
        real(*lines)
        shown.extend(lines)
        if not shown:
            write(kafka, topics.dead_letters, [(None, b"new", letter(0, "Expected", "late"))])
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(dead_letters_command, "put", interrupt)
    code, out, err = run("dead-letters", "--follow")
    assert code == 130 and "late  m 0-0  Expected\n    new" in out and err == f"topology {name} has no dead letters; waiting for others\n"
