"""Records of other forms on the command line: looked at, published, counted, and read from a topic."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.result_lines import Texts
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.machine.registry import registry
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.topology.flux import load
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.deploy.client.test_pubsub import write
from tests.spouts.test_input_mapping import TWEET, changed

PLACES = 'Name;Breite;Länge\nLate café;47.3;8.5\n"Bar; tea";47.4;8.6\nnowhere;north;8\n'


@pytest.fixture
def kafka(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", bootstrap_servers)
    return KafkaSettings(bootstrap_servers)


def mapping(path: Path, options: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump({f"dskype.input.{name}": value for name, value in options.items()}))
    return str(path)


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["inspect", *arguments])
    return code, *capsys.readouterr()


def test_an_array_of_tweets_is_looked_at_and_the_yaml_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tweets.json.gz"
    file.write_bytes(gzip.compress(json.dumps([TWEET, changed(TWEET, coordinates=None), changed(TWEET, full_text=None)], indent=1).encode()))
    code, out, err = inspected(capsys, str(file))
    assert code == 0
    assert f"{file}: 3 records looked at, 2 messages, 1 refused" in err
    assert "318513035734048768: 'Late coffee' at 47.37, 8.54; 2013-04-01 00:00:00" in err and "at an area around 47.4, 8.5" in err
    assert "refused: line 3: Expected the text of the message at $.full_text; given: nothing" in err
    conf = yaml.safe_load(out)
    assert conf["dskype.input.area"] == {"geojson": "$.place.bounding_box"} and '#   user.name: "$.user.name"' in out
    assert Settings.from_conf(conf).input is not None
    (tmp_path / "input.yaml").write_text(out)
    code, out, again = inspected(capsys, str(file), "--config", str(tmp_path / "input.yaml"))
    assert (code, out, again) == (0, "", err)


def test_what_was_not_found_is_said_and_a_mapping_by_hand_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "places.csv"
    file.write_text(PLACES.replace("Breite", "Hoch").replace("Länge", "Quer"))
    code, out, err = inspected(capsys, str(file))
    assert code == 1 and "3 records looked at, 0 messages, 3 refused" in err
    assert "# the place was not found; dskype.input.place says where it is" in out
    by_hand = mapping(tmp_path / "m.yaml", {"csv": {"delimiter": ";"}, "text": "Name", "place": {"lat": "Hoch", "lon": "Quer"}})
    code, out, err = inspected(capsys, str(file), "--config", by_hand, "--show", "1")
    assert code == 0 and out == "" and "2 messages, 1 refused" in err and "'Late café' at 47.3, 8.5" in err and "Bar" not in err


def test_the_own_form_needs_no_mapping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m").write_text('{"text": "late", "lat": 1, "lon": 2}\n')
    code, out, err = inspected(capsys, str(tmp_path / "m"))
    assert code == 0 and out == "" and "they need no mapping" in err
    code, out, _ = inspected(capsys, str(tmp_path / "m"), "-o", "json")
    assert json.loads(out)["messages"] == [{"line": 1, "id": None, "text": "late", "lat": 1.0, "lon": 2.0}] and not json.loads(out)["needed"]


@pytest.mark.parametrize(("arguments", "told"), [(["-"], "given: standard input"), (["no/file"], "there is no file no/file")])
def test_what_cannot_be_looked_at_is_an_error(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = inspected(capsys, *arguments)
    assert code == 1 and out == "" and told in err


def test_an_empty_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m").write_text("")
    assert "there is no record in" in inspected(capsys, str(tmp_path / "m"))[2]


def test_a_file_of_another_form_is_published_in_the_own_form(kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"own-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name)
    (tmp_path / "places.csv.gz").write_bytes(gzip.compress(PLACES.encode()))
    options = mapping(tmp_path / "m.yaml", {"csv": {"delimiter": ";"}, "text": "Name", "place": {"lat": "Breite", "lon": "Länge"}})
    assert cli.main(["publish", "-t", name, "--config", options, str(tmp_path / "places.csv.gz")]) == 1
    err = capsys.readouterr().err
    assert "error: line 4: Expected 'lat' in degrees; given: \"north\"" in err and "read from: Breite, Länge" in err and "2 messages sent, 1 refused" in err
    found = [json.loads(record.value) for record in read_to_end(kafka, Topics.for_topology(name).messages)]
    assert found == [{"text": "Late café", "lat": 47.3, "lon": 8.5}, {"text": "Bar; tea", "lat": 47.4, "lon": 8.6}]
    own = tmp_path / "own.json"
    own.write_text(json.dumps([{"text": "late", "lat": 1, "lon": 2}, {"text": "late"}]))
    assert cli.main(["publish", "-t", name, str(own)]) == 1
    assert "error: line 2: Expected 'lat' and 'lon', 'bbox' or 'region'" in capsys.readouterr().err
    assert cli.main(["publish", "-t", name, "--no-check", str(own)]) == 0
    assert len(read_to_end(kafka, Topics.for_topology(name).messages)) == 5


def test_words_are_counted_in_records_of_another_form(kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, out = f"own-{uuid.uuid4().hex[:8]}", str(tmp_path / "v.tsv")
    (tmp_path / "places.csv").write_text(PLACES)
    options = mapping(tmp_path / "m.yaml", {"csv": {"delimiter": ";"}, "text": "Name"})
    assert cli.main(["vocabulary", "build", "--config", options, str(tmp_path / "places.csv"), "-o", out]) == 0
    words = ['{"documents": 3, "words": 2}', "bar\t1", "café\t1", "late\t1", "nowhere\t1", "tea\t1"]
    assert Path(out).read_text().splitlines() == words
    topic = f"{name}-tweets"
    with TopicAdmin(kafka) as admin:
        admin.create({topic: 1}, {})
    write(kafka, topic, [(None, TWEET), (None, changed(TWEET, coordinates=None))])
    options = mapping(tmp_path / "m.yaml", {"text": "$.full_text"})
    assert cli.main(["vocabulary", "build", "--config", options, "--topic", topic, "-o", out, "--force"]) == 0
    assert Path(out).read_text().splitlines() == ['{"documents": 2, "words": 2}', "coffee\t2", "late\t2"]
    capsys.readouterr()
    code, yaml_text, err = inspected(capsys, topic)
    assert code == 0 and "2 records looked at, 2 messages" in err and yaml.safe_load(yaml_text)["dskype.input.text"] == "$.full_text"


def test_messages_of_other_topics_are_explained_and_shown_with_their_texts(kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]) -> None:
    name, topic = f"t-{uuid.uuid4().hex[:8]}", f"tweets-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name)
    with TopicAdmin(kafka) as admin:
        admin.create({topic: 1}, {})
    topics = Topics.for_topology(name)
    inputs = {topic: {"id": "$.id_str", "text": "$.full_text", "place": {"geojson": "$.coordinates"}}}
    write(kafka, topic, [(None, TWEET), (None, changed(TWEET, id_str=None, full_text="Early tea")), (None, b"{")])
    write(kafka, topics.messages, [(None, {"text": "own", "lat": 1, "lon": 2})])
    write(kafka, topics.sequence, [(None, {"v": 1, "task": 1, "first": 5, "partition": 0, "offset": 0, "n": 2, "topic": topic})])
    write(kafka, topics.subscriptions, [("s", {"type": "boolean", "expression": "coffee OR tea"})])
    write(kafka, topics.registrations, [("s", {"v": 1, "subscription": "s", "registration": "0-0", "event": "active", "watermark": 5})])
    conf = ["-c", f"dskype.input.topics={json.dumps(inputs)}"]
    for id, word, number in ((TWEET["id_str"], "coffee", 5), (f"{topic}-0-1", "tea", 6)):
        assert cli.main(["explain", "-t", name, "--json", *conf, id, "s"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert word in found["tokens"] and found["message"] == id and f"this is message {number}" in json.dumps(found["times"])
    assert cli.main(["explain", "-t", name, *conf, f"{topic}-0-2", "s"]) != 0
    with PubSub(kafka, name, conf={"dskype.input.topics": inputs}) as client:
        texts = Texts(client, "beginning")
        asked = [TWEET["id_str"], f"{topic}-0-1", "0-0", "unknown"]
        assert texts.find(asked) == {json.dumps(id): text for id, text in zip(asked, ["Late coffee", "Early tea", "own"])}
        texts.close()


def test_a_topology_file_that_reads_a_topic_is_printed(kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"tweets-{uuid.uuid4().hex[:8]}"
    with TopicAdmin(kafka) as admin:
        admin.create({topic: 1}, {})
    write(kafka, topic, [(None, TWEET)])
    code, out, _ = inspected(capsys, topic, "--as-topology", "-c", 'dskype.input.registry={"url": "http://u:secret@r", "auth": "x"}')
    assert code == 0 and '"x"' not in out
    (tmp_path / "mine.yaml").write_text(out)
    loaded = load(str(tmp_path / "mine.yaml"), registry=registry())
    assert list(loaded.topology.components["message-spout"].obj.topics) == ["dskype.messages", topic]
    settings = Settings.from_conf(loaded.config)
    assert settings.mapping_of(topic, "dskype.messages").canonical(TWEET)["text"] == "Late coffee"
    assert cli.main(["inspect", str(tmp_path / "mine.yaml"), "--as-topology"]) != 0
