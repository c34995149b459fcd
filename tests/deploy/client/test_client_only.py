"""An install without the extra ``spark`` publishes, subscribes and reads results, and says what it cannot do. No heavy package is even looked for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from dskype.deploy.cli.main import COMMANDS
from dskype.deploy.client.topics import ensure_topics
from dskype.spouts.text import Tokenizer
from dskype.spouts.topics import Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, _ensure_topic
from tests.deploy.client import client_only
from tests.deploy.client.test_pubsub import delta, event, letter, write

pytestmark = pytest.mark.long  # starts processes

ROOT = Path(__file__).parents[3]
LIBRARY = ("pubsub", "dead_letters", "follower", "names", "records", "sequence", "topic_reader", "topics")
NEEDS_SPARK = {"explain", "vocabulary", "partition", "bench", "verify", "demo", "up", "status", "down", "local", "submit", "ui"}
"""Commands that run topologies on this machine, or compute as they do. All others are for clients, too."""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)


def client_only_python(*arguments: str, **environment: str) -> str:
    """Run a program as in a client's environment; return what it prints."""
    done = python("-m", "tests.deploy.client.client_only", *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_clients_import_brings_none_of_the_packages_of_topologies() -> None:
    commands = [command for group in COMMANDS.values() for command in group]
    assert {command.name for command in commands if command.extra} == NEEDS_SPARK
    modules = [command.module or f"dskype.deploy.cli.commands.{command.name.replace('-', '_')}" for command in commands if not command.extra]
    modules = [*(f"dskype.deploy.client.{name}" for name in LIBRARY), *(m for m in modules if not m.endswith(".help"))]
    # What the commands import when they run.
    modules += [f"dskype.deploy.{name}" for name in ("cli.result_lines", "metrics.prometheus", "metrics.reader", "metrics.tables", "web.webhooks")]
    program = f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sorted({client_only.HEAVY!r} & set(sys.modules)))"
    done = python("-c", program)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_command_that_needs_more_says_what_to_install() -> None:
    names = sorted(NEEDS_SPARK)
    done = python("-m", "tests.deploy.client.client_only", "each", *names)
    assert json.loads(done.stdout) == [1] * len(names)
    told = done.stderr.splitlines()
    assert len(told) == len(names)
    for name, text in zip(names, told):
        extra = {"demo": "demo", "bench": "bench", "ui": "ui"}.get(name, "spark")
        assert text.startswith(f"error: 'dskype {name}' needs what topologies need. given: 'no module pyspark, ")
        assert text.endswith(f"; hint: pip install '/path/to/dskype[{extra}]'")


def test_doctor_says_which_packages_topologies_need() -> None:
    done = python("-m", "tests.deploy.client.client_only", "command", "doctor", "--no-broker", "-o", "json", DSKYPE_BOOTSTRAP_SERVERS="127.0.0.1:9")
    rows = json.loads(done.stdout)["checks"]
    (packages,) = (row for row in rows if row["check"] == "packages")
    assert done.returncode == 1 and packages["status"] == "fail" and "pyspark" in packages["detail"] and "numba" in packages["detail"]
    assert packages["fix"] == "pip install '/path/to/dskype[spark]' in this environment"
    assert not [row for row in rows if "the check itself failed" in row["detail"]]


@pytest.mark.parametrize("action", ["refuse", "warn"])
def test_records_are_checked_as_with_all_packages(tmp_path: Path, action: str) -> None:
    Vocabulary.build(["old lake", "the lake", "lake", "café Ümläut"] * 25, Tokenizer()).save(tmp_path / "words")
    conf = {
        "dskype.vocabulary": str(tmp_path / "words"),
        "dskype.stop.words": ["The"],
        "dskype.limits.subscription.cost": 1.0,
        "dskype.limits.subscription.cost.action": action,
        "dskype.window.messages": 1,
    }
    found = json.loads(client_only_python("check", json.dumps(conf)))
    assert found == client_only.checked(conf)
    codes = [text.partition(":")[0] for text in found]
    assert (codes.count("too-costly") > 0) is (action == "refuse") and "invalid-lat" in codes
    assert sum(code.startswith(("TopkSubscription(", "BooleanSubscription(", "Message(")) for code in codes) >= 3, codes


def prepare(kafka: KafkaSettings, name: str) -> Topics:
    """Write what a topology would have written."""
    topics = Topics.for_topology(name)
    assert ensure_topics(kafka, name) == []
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        admin.create({topics.dead_letters: 1, metrics_topic(name): 1}, {})
    write(kafka, topics.registrations, [event("mine", "0-0", "active", -1)])
    score = {"score": 0.75, "rank": 1}
    write(kafka, topics.results, [delta("mine", "add", 17, 17, **score), delta("mine", "add", 17, 17, **score), delta("other", "match", "m", 18)])
    topk = {"v": 1, "subscription": "mine", "registration": "0-0", "watermark": 17, "topk": [{"message": 17, "score": 0.75}]}
    write(kafka, topics.topk, [("mine", topk, [("version", "1 0-0 17")])])
    write(kafka, topics.dead_letters, [(None, b"{}", letter(7, "Expected a text", "no-text", topic=topics.subscriptions))])
    return topics


def test_a_client_publishes_subscribes_and_reads_results(bootstrap_servers: str) -> None:
    kafka, name = KafkaSettings(bootstrap_servers), f"client-{uuid.uuid4().hex[:8]}"
    topics = prepare(kafka, name)
    assert json.loads(client_only_python("use", bootstrap_servers, name)) == {
        "stored": 103,
        "subscriptions": [["mine", "active"]],
        "results": [["mine", "add", 17], ["other", "match", "m"]],
        "topk": [17],
        "dead": ["no-text"],
        "refusals": {"0-7": "Expected a text"},
    }
    assert sorted(json.loads(record.value)["id"] for record in read_to_end(kafka, topics.messages)) == list(range(100))


def test_the_commands_of_clients_work(bootstrap_servers: str, tmp_path: Path) -> None:
    kafka, name = KafkaSettings(bootstrap_servers), f"client-{uuid.uuid4().hex[:8]}"
    topics = prepare(kafka, name)
    _ensure_topic(kafka)
    state = TopologyState(f"{name}-1-0", name, {"topology.workers": 1}, [], 0).to_json()
    summary = {"name": name, "id": f"{name}-1-0", "status": "ACTIVE", "num_tasks": 4, "num_workers": 1, "uptime_secs": 9, "owner": "o", "started_ms": 0}
    about = {"v": 1, "state": state, "summary": summary, "driver": {"host": "h", "pid": 1}, "heartbeat_ms": 0}
    write(kafka, NIMBUS_TOPIC, [(f"topology:{name}", about)])

    def command(*words: str) -> Any:
        return client_only_python("command", *words, DSKYPE_BOOTSTRAP_SERVERS=bootstrap_servers)

    lines = tmp_path / "messages"
    lines.write_text("".join(json.dumps({"id": n, "text": "late coffee", "lat": 1, "lon": 2}) + "\n" for n in range(20)))
    command("sub", "add", "-t", name, "--id", "mine", "--text", "lake park", "--near", "43,-87.9", "-k", "3")
    command("publish", "-t", name, str(lines))
    assert [json.loads(record.value)["id"] for record in read_to_end(kafka, topics.messages)] == list(range(20))
    assert [found["id"] for found in json.loads(command("sub", "list", "-t", name, "-o", "json"))] == ["mine"]
    assert "no-text" in command("dead-letters", "-t", name)
    assert name in command("list")
    assert json.loads(command("stats", name, "-o", "json"))
    assert "17" in command("tail", "-t", name, "--from", "beginning", "--count", "2", "--no-text")
    write(kafka, NIMBUS_TOPIC, [(f"topology:{name}", None)])
