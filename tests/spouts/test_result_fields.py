"""The fields that results carry: what the settings may say, and what a message's label has behind its id."""

import json
import pickle
import random

import pyarrow as pa
import pytest

from dskype.bolts.results.formats import _without_fields
from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.result_fields import BEHIND_ID, FIELDS_OMITTED
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from tests import naive
from tests.languages import random_attributes

CONF = {"dskype.attributes": {"price": "number", "tags": "strings", "author": "string"}}


def settings(fields, **more):
    return Settings.from_conf({**CONF, "dskype.results.fields": fields, **more})


def carried(conf, value, arrival_ms=1_700_000_000_000):
    """Return what a label has behind its id."""
    found = settings(**conf)
    reader = MessageReader(found, found.mapping_of("t", "own"))
    return found.result_fields.reader()(*reader.read_whole(json.dumps(value).encode()), arrival_ms)


MESSAGE = {"id": 7, "text": "Late café", "lat": 1, "lon": 2.5, "attributes": {"price": 4.5, "other": "x"}, "user": {"name": "ann"}}


def test_without_the_setting_there_are_none():
    for nothing in (None, [], {}):
        assert settings(nothing).result_fields is None
    assert pickle.loads(pickle.dumps(settings(["text"]).result_fields)) == settings(["text"]).result_fields


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["text", "price", "author"], {"text": "Late café", "price": 4.5}),
        ({"what": "text", "who": "$.user.name", "none": "$.user.age", "all": "$.user"}, {"what": "Late café", "who": "ann", "all": {"name": "ann"}}),
        (["place", "time"], {"place": {"lat": 1, "lon": 2.5}, "time": 1_700_000_000_000}),
        ({"x": "$.attributes.other"}, {"x": "x"}),
        (["author"], {}),
    ],
)
def test_they_are_compact_json_in_the_order_of_the_setting(fields, expected):
    assert carried({"fields": fields}, MESSAGE) == ',"fields":' + json.dumps(expected, separators=(",", ":"), ensure_ascii=False)


def test_paths_lead_into_the_record_as_it_came_and_names_into_what_it_became():
    conf = {
        "fields": {"words": "text", "raw": "$.body", "price": "price", "cost": "$.cost"},
        "dskype.input.text": "$.body",
        "dskype.input.attributes": {"price": "$.cost"},
    }
    assert carried(conf, {"body": ["a", "b"], "lat": 1, "lon": 2, "cost": "5"}) == ',"fields":{"words":"a\\nb","raw":["a","b"],"price":5.0,"cost":"5"}'


def test_text_fields_are_an_object_or_one_by_one():
    conf = {"fields": {"all": "text", "head": "title", "rest": "body"}, "dskype.text.fields": ["title", "body"]}
    message = {"text": {"body": "b", "more": "x"}, "lat": 1, "lon": 2}
    assert carried(conf, message) == ',"fields":{"all":{"body":"b"},"rest":"b"}'
    assert carried(conf, {**message, "text": "t"}) == ',"fields":{"all":{"title":"t"},"head":"t"}'


@pytest.mark.parametrize("most", [19, 20])
def test_what_is_too_long_is_left_out_as_a_whole_and_said(most):
    conf = {"fields": ["text"], "dskype.results.fields.max.bytes": most}
    assert len('{"text":"Late café"}'.encode()) == 21
    assert carried(conf, {**MESSAGE, "text": "Lat café"}) == (FIELDS_OMITTED if most < 20 else ',"fields":{"text":"Lat café"}')


def test_halves_of_surrogate_pairs_and_infinities_can_be_written():
    message = json.dumps(MESSAGE)[:-1] + ', "odd": {"half": "\\ud800", "big": [1e999]}}'
    found = settings({"odd": "$.odd"})
    text = found.result_fields.reader()(*MessageReader(found, None).read_whole(message.encode()), 0)
    assert json.loads("{" + text[1:] + "}") == {"fields": {"odd": {"half": "\ud800", "big": [None]}}} and text.encode()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("text", "not usable.*given: 'text'.*legal: a list of some of text, place, time, price, tags, author, or a map"),
        (["pric"], "given: 'pric'.*did you mean price"),
        (["$.user.name"], "a path needs a name: {author:"),
        ({"a": "$.x["}, "not usable.*given: '\\$.x\\['.*legal: the name of a field, or a path"),
        ({"a": 5}, "given: 5"),
        ({1: "text"}, "not usable"),
        (["text", "text"], "not usable"),
        ([["text"]], "not usable"),
        (5, "not usable"),
        ({"": "text"}, "not usable"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(fields, text):
    with pytest.raises(IllegalArgumentException, match=text):
        settings(fields)


def test_a_list_of_fields_has_to_fit_into_a_record():
    with pytest.raises(IllegalArgumentException, match=r"fields.max.bytes.*given: 2000.*legal: at most 1048, because a list has up to dskype.k.max = 1000"):
        settings(["text"], **{"dskype.k.max": 1000, "dskype.results.fields.max.bytes": 2000})
    with pytest.raises(IllegalArgumentException, match="an integer from 2 to 65536"):
        settings(["text"], **{"dskype.results.fields.max.bytes": 70_000})
    assert settings(None, **{"dskype.k.max": 1000, "dskype.results.fields.max.bytes": 2000}).result_fields is None


@pytest.mark.long
def test_random_messages_carry_what_the_oracle_says_and_ids_are_found_again():
    rng, labels, ids = random.Random(5), [], []
    conf = {"dskype.attributes": {"price": "number", "category": "string", "open": "boolean", "tags": "strings", "since": "time"}}
    sources = {"t": "text", "p": "place", "a": "tags", "c": "price", "w": "time", "first": "$.attributes.tags[0]", "i": "$.id"}
    for _ in range(2000):
        id = rng.choice(["a", 'x,"fields', ',"fields":{', "q,", "\\", 17, -(1 << 63), "漢", ',\\"fields'])
        record = {"id": id, "text": rng.choice(["tea", 'a "b" é\n', ""]), "attributes": random_attributes(rng), "lat": 1, "lon": rng.random()}
        if rng.random() < 0.3:
            record = {name: value for name, value in record.items() if name not in ("lat", "lon")} | {"bbox": [1, 2, 3, 4]}
        chosen = dict(rng.sample(sorted(sources.items()), rng.randint(1, 5)))
        found = Settings.from_conf({**conf, "dskype.results.fields": chosen, "dskype.results.fields.max.bytes": rng.choice([40, 1024])})
        text = found.result_fields.reader()(*MessageReader(found, None).read_whole(json.dumps(record).encode()), 99)
        assert json.loads("{" + text[1:] + "}") == naive.fields(chosen, record, 99, (), found.result_fields.max_bytes)
        ids.append(json.dumps(id, ensure_ascii=rng.random() < 0.5))
        labels.append(ids[-1] + text)
    assert BEHIND_ID in labels[0]
    assert _without_fields(pa.array(labels)).to_pylist() == ids and _without_fields(pa.array(ids)).to_pylist() == ids
