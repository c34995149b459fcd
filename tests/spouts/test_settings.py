"""The configuration keys of DSkype."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dskype.spouts.settings import DEFAULTS, Settings
from dskype.topology.errors import IllegalArgumentException

YAML = Path(__file__).parents[2] / "deploy" / "topologies" / "dskype.yaml"


def test_without_keys_everything_has_its_default():
    assert Settings.from_conf({"topology.workers": 3}) == Settings()
    assert (Settings().window_kind, Settings().extent) == ("count", 100_000)


def test_the_yaml_names_every_key_with_its_default():
    text = YAML.read_text()
    assert all(f"{key}:" in text for key in DEFAULTS), [key for key in DEFAULTS if f"{key}:" not in text]
    conf = yaml.safe_load(text)["config"]
    # Topologies of earlier versions, which have no such line, must send their messages where they did.
    assert Settings.from_conf(conf) == replace(Settings(), wordless=True)


def test_a_time_window_takes_the_place_of_a_count_window():
    settings = Settings.from_conf({"dskype.window.span.ms": 5000, "dskype.window.lateness.ms": 10})
    assert (settings.window_kind, settings.extent, settings.lateness_ms) == ("time", 5000, 10)


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"dskype.window.mesages": 5}, "dskype.window.mesages is not known.*did you mean dskype.window.messages"),
        ({"dksype.objects": True}, "dksype.objects is not known.*did you mean dskype.objects"),
        ({"dskype.window.messages": 0}, "dskype.window.messages is not usable.*given: 0.*legal: an integer, 1 or more"),
        ({"dskype.window.messages": True}, "given: True"),
        ({"dskype.window.messages": 5, "dskype.window.span.ms": 5}, "either dskype.window.messages or dskype.window.span.ms"),
        ({"dskype.k.max": 1.5}, "dskype.k.max is not usable"),
        ({"dskype.meta.max.bytes": 0}, "dskype.meta.max.bytes is not usable.*given: 0.*legal: an integer, 2 or more"),
        ({"dskype.id.max.bytes": 4097}, "given: 4097.*legal: an integer from 1 to 4096"),
        ({"dskype.results": "all"}, "legal: deltas | topk | both"),
        ({"dskype.space": [0, 0, 1]}, "west, south, east, north"),
        ({"dskype.space": [5, 0, 1, 1]}, "given"),
        ({"dskype.vocabulary": 7}, "the path of a file, or null"),
        ({"dskype.stop.words": "the"}, "a list of words"),
        ({"dskype.results.retention.ms": 0}, "dskype.results.retention.ms is not usable.*given: 0.*or null for no bound"),
        ({"dskype.results.retention.bytes": 1.5}, "given: 1.5"),
        ({"dskype.expression.max.depth": 17}, "given: 17.*legal: an integer from 1 to 16"),
        ({"dskype.limits.subscription.cost": 0}, "given: 0.*a number above 0, or null for no ceiling"),
        ({"dskype.limits.subscription.cost.action": "log"}, "legal: refuse | warn"),
        ({"dskype.balance": "on"}, "dskype.balance is not usable.*legal: auto | off"),
        ({"dskype.balance.period.ms": 0}, "an integer, 1 or more"),
        ({"dskype.balance.aging": 0}, "a number from 0.01 to 1"),
        ({"dskype.index": ""}, "dskype.index is not usable"),
        ({"dskype.index.options": [1]}, "a map of options"),
        ({"dskype.text.fields": "title"}, "dskype.text.fields is not usable.*a list of names, or a map"),
        ({"dskype.text.fields": ["title", "title"]}, "each name once"),
        ({"dskype.input.text": "$text"}, r"dskype.input.text is not usable.*wrong at character 2.*given: '\$text'.*legal"),
        ({"dskype.input.topics": ["tweets"]}, "dskype.input.topics is not usable.*a map of topics"),
        ({"dskype.input.topics": {"tweets": {"txt": "$.a"}}}, "dskype.input.topics: tweets is not usable.*given: 'txt'.*did you mean text"),
    ],
)
def test_what_makes_no_sense_is_refused(conf, text):
    with pytest.raises(IllegalArgumentException, match=text):
        Settings.from_conf(conf)


def test_options_of_a_store_are_not_shown():
    assert "secret" not in repr(Settings.from_conf({"dskype.store.options": {"url": "redis://:secret@h/0"}}))


def test_settings_are_checked_once_and_stay_what_they_were():
    conf = {"dskype.distributor.options": {"box": [0, 0, 1, 1]}, "topology.workers": 1}
    settings = Settings.from_conf(conf)
    assert Settings.from_conf({**conf, "topology.workers": 2}) is settings
    conf["dskype.distributor.options"]["box"].append(2)
    assert settings.distributor_options == {"box": [0, 0, 1, 1]} and Settings.from_conf(conf).distributor_options == {"box": [0, 0, 1, 1, 2]}
    assert Settings.from_conf({"dskype.k.max": 1}) != Settings.from_conf({"dskype.k.max": 2})


def test_mappings_apply_to_every_topic_but_the_topologys_own():
    settings = Settings.from_conf({"dskype.input.text": "$.body", "dskype.input.topics": {"orders": {"text": "$.item"}}})
    texts = {topic: settings.mapping_of(topic, "t.messages") for topic in ("t.messages", "tweets", "orders")}
    record = {"body": "late", "item": "tea", "lat": 1.0, "lon": 2.0}
    assert texts["t.messages"] is None
    assert texts["tweets"].canonical(record)["text"] == "late" and texts["orders"].canonical(record)["text"] == "tea"
    assert Settings().mapping_of("tweets", "t.messages") is None
