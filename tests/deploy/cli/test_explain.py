"""``dskype explain`` without a broker: JSON, files of JSON, settings of a topology file, what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

MESSAGE = '{"id": 17, "text": "Late coffee by the lake", "lat": 43.05, "lon": -87.88}'
BOOLEAN = '{"id": "night", "bbox": [-88, 42.9, -87.8, 43.2], "expression": "coffee AND (wifi OR \\"late night\\")"}'
TOPK = '{"text": "lake park", "lat": 43.04, "lon": -87.91, "k": 3, "alpha": 0.7}'


@pytest.fixture(autouse=True)
def without_brokers(monkeypatch):
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)


def test_json_for_both_is_explained_without_a_broker(capsys):
    assert cli.main(["explain", MESSAGE, BOOLEAN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "message 17 does not match night" and "            missing: wifi" in lines
    assert cli.main(["explain", MESSAGE, BOOLEAN.replace("wifi", "lake"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matches"] and (found["message"], found["subscription"], found["tokens"]) == (17, "night", Tokenizer().tokens("Late coffee by the lake"))
    area = '{"text": "coffee late at night", "bbox": [-87.9, 43, -87.7, 43.1]}'
    assert cli.main(["explain", area, BOOLEAN]) == 0
    assert "rectangle   yes   the area -87.9, 43, -87.7, 43.1 overlaps the rectangle -88, 42.9, -87.8, 43.2" in capsys.readouterr().out
    assert cli.main(["explain", area.replace("night", "lake"), TOPK]) == 0
    assert "43.05, -87.8, the centre of the area -87.9, 43, -87.7, 43.1, is " in capsys.readouterr().out
    assert cli.main(["explain", MESSAGE, TOPK]) == 0
    out = capsys.readouterr().out
    assert out.startswith("message 17 scores ") and "not in the message: park" in out and "note: there is no vocabulary" in out
    assert cli.main(["explain", MESSAGE, TOPK.replace("lake park", "zebra"), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score"] is None and found["subscription"] is None
    assert cli.main(["explain", MESSAGE.replace('"id": 17, ', ""), TOPK]) == 0
    assert capsys.readouterr().out.startswith("this message scores 0.79")


def test_files_a_vocabulary_and_the_settings_of_a_topology_count(tmp_path: Path, capsys):
    Vocabulary.build(["lake", "lake park", "lake view"], Tokenizer()).save(tmp_path / "words.tsv")
    (tmp_path / "m.json").write_text(MESSAGE + "\n")
    (tmp_path / "s.json").write_text(TOPK)
    (tmp_path / "t.yaml").write_text("name: t\nconfig:\n  dskype.space: [-90, 40, -80, 50]\n  dskype.stop.words: [by, the]\n")
    files = [f"@{tmp_path}/m.json", f"@{tmp_path}/s.json"]
    assert cli.main(["explain", *files, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert cli.main(["explain", *files, "--json", "--vocabulary", str(tmp_path / "words.tsv"), "--file", str(tmp_path / "t.yaml")]) == 0
    weighed = json.loads(capsys.readouterr().out)
    assert weighed["place"]["diagonal_deg"] == pytest.approx(200**0.5) != plain["place"]["diagonal_deg"]
    assert weighed["words"]["documents"] == 3 and weighed["words"]["common"][0]["df"] == 3 and weighed["notes"] == []
    assert "the" in plain["tokens"] and "the" not in weighed["tokens"]


ATTRIBUTES = 'dskype.attributes={"price": "number", "tags": "strings"}'


def test_attributes_and_subscriptions_without_a_rectangle_or_words_are_explained(capsys):
    priced = MESSAGE[:-1] + ', "attributes": {"price": 4.5, "tags": ["vegan"], "colour": 7}}'
    assert cli.main(["explain", "-c", ATTRIBUTES, priced, '{"expression": "coffee AND price < 4 AND tags HAS vegan AND NOT lake"}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "                  no    price < 4: the message has 4.5" in lines and "            must not have: lake" in lines
    assert cli.main(["explain", "-c", ATTRIBUTES, "-c", "dskype.boolean.wordless=true", MESSAGE, '{"bbox": [-88, 42.9, -87.8, 43.2]}', "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matches"] and found["expression"] == {
        "text": "(everything)",
        "satisfied": True,
        "tree": {"satisfied": True, "everything": True},
        "needs": [],
        "excludes": [],
    }
    assert cli.main(["explain", "-c", ATTRIBUTES, priced.replace("4.5", '"dear"'), BOOLEAN]) == 1
    assert "Expected the attribute 'price' as number; given: 'dear'; legal: a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([MESSAGE], 2, "SUBSCRIPTION"),
        (["@/nope/nope", BOOLEAN], 1, "cannot be read"),
        (['{"text": 5}', BOOLEAN], 1, "'text' as a string"),
        ([MESSAGE, '{"bbox": [1, 2], "expression": "x"}'], 1, "'bbox' as four numbers"),
        ([MESSAGE, '{"expression": '], 1, "JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(arguments, code, said, capsys):
    assert cli.main(["explain", *arguments]) == code
    assert said in capsys.readouterr().err


def test_it_says_that_a_message_is_a_state_of_an_object_or_its_end(capsys):
    state = MESSAGE.replace('"id": 17', '"id": 17, "object": "bus-7"')
    for message, words in ((state, "a state of it, and counts only until the next one"), ('{"object": "bus-7", "deleted": true}', "the end of it")):
        assert cli.main(["explain", message, TOPK, "-c", "dskype.objects=true"]) == 0
        assert f"note: the message is of object bus-7: {words}" in capsys.readouterr().out
    assert cli.main(["explain", state, TOPK]) == 0 and "bus-7" not in capsys.readouterr().out
