"""Records of other forms become messages; those that do not fit are refused with the path that failed."""

import json
import pickle
import random

import pytest

from dskype.spouts.input_mapping import INPUT_DEFAULTS, InputMapping, MessageReader
from dskype.spouts.record_values import RecordError
from dskype.spouts.records import Limits, parse_message
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from tests.spouts.test_records import CODES

TWEET = {
    "id_str": "318513035734048768",
    "created_at": "Mon Apr 01 00:00:00 +0000 2013",
    "full_text": "Late coffee",
    "coordinates": {"type": "Point", "coordinates": [8.54, 47.37]},
    "place": {"full_name": "Zürich", "bounding_box": {"type": "Polygon", "coordinates": [[[8.4, 47.3], [8.6, 47.3], [8.6, 47.5], [8.4, 47.5]]]}},
    "user": {"name": "ann", "verified": True},
    "entities": {"hashtags": [{"text": "cafe"}, {"text": "late"}]},
}
TWEETS = {
    "id": "$.id_str",
    "text": "$.full_text",
    "place": {"geojson": "$.coordinates"},
    "area": {"geojson": "$.place.bounding_box"},
    "time": {"rfc2822": "$.created_at"},
    "attributes": {"user": "$.user.name", "tags": "$.entities.hashtags[*].text", "lang": "$.lang"},
}


def changed(record, **fields):
    return {**record, **fields}


def read(options, record, **conf):
    settings = Settings.from_conf({f"dskype.input.{name}": value for name, value in options.items()} | conf)
    value = record if isinstance(record, (bytes, dict)) else record.encode()
    reader = MessageReader(settings, settings.input)
    return reader.check(reader.own_form(value))


def refused(options, record, **conf):
    with pytest.raises(RecordError) as e:
        read(options, record, **conf)
    assert f"`{e.value.code}`" in CODES and "\n" not in e.value.reason and len(e.value.reason) < 600
    return e.value.reason


def test_a_tweet_becomes_a_message():
    message = read(TWEETS, json.dumps(TWEET))
    assert message[:7] == ('"318513035734048768"', "Late coffee", 47.37, 8.54, 1364774400000, None, {"user": "ann", "tags": ["cafe", "late"]})
    assert read(TWEETS, TWEET) == message
    assert read(TWEETS, changed(TWEET, coordinates=None)).bbox == (8.4, 47.3, 8.6, 47.5)
    assert refused(TWEETS, changed(TWEET, coordinates=None, place=None)).startswith(
        "Expected the place of the message at $.coordinates, $.place.bounding_box; given: nothing"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"full_text": None}, "Expected the text of the message at $.full_text; given: nothing; legal: a string or a list of strings"),
        ({"full_text": 5}, "Expected the text of the message at $.full_text; given: 5"),
        ({"full_text": ["a", 5]}, 'Expected the text of the message at $.full_text; given: ["a", 5]'),
        (
            {"id_str": 1.5},
            "Expected 'id' as a string or an integer; given: 1.5; legal: 1 to 128 bytes of UTF-8, or a signed integer of 64 bits; read from: $.id_str",
        ),
        ({"created_at": "soon"}, 'Expected the time of the message at $.created_at; given: "soon"; legal: a time as in RFC 2822'),
        ({"coordinates": [8.54, 47.37]}, "Expected a GeoJSON geometry at $.coordinates; given: [8.54, 47.37]; legal: a GeoJSON Point"),
        ({"coordinates": {"type": "Point", "coordinates": [47.37, 198]}}, "Expected 'lat' in degrees; given: 198"),
        ({"coordinates": {"type": "Point", "coordinates": ["8.54", 47]}}, "Expected 'lon' in degrees; given: \"8.54\""),
    ],
)
def test_a_record_that_does_not_fit_names_the_path(fields, reason):
    found = refused(TWEETS, changed(TWEET, **fields))
    assert found.startswith(reason) and ("$.coordinates" in found or "coordinates" not in fields)


def test_what_is_named_nowhere_is_found_where_the_own_form_has_it():
    assert read({"text": "$.body"}, {"id": 5, "body": "tea", "lat": 1, "lon": 2, "ts": 5, "attributes": {"a": 1}})[:7] == (
        "5",
        "tea",
        1.0,
        2.0,
        5,
        None,
        {"a": 1},
    )
    assert read({"text": "$.body"}, {"body": "tea", "bbox": [1, 2, 3, 4]}).bbox == (1, 2, 3, 4)


def test_a_polygon_becomes_the_region_of_a_message():
    ring = [[8, 47], [9, 47], [8.5, 48], [8, 47]]
    own = parse_message(json.dumps({"text": "tea", "region": {"type": "Polygon", "coordinates": [ring]}}).encode())
    options = {"place": {"wkt": "wkt", "geojson": "$.where"}}
    assert read(options, {"text": "tea", "where": {"type": "Polygon", "coordinates": [ring[:3]]}}) == own
    assert read(options, {"text": "tea", "wkt": "POLYGON((8 47, 9 47, 8.5 48, 8 47))"}) == own
    assert read({"id": "$.key"}, {"text": "tea", "region": {"type": "Polygon", "coordinates": [ring]}}) == own
    far = {"text": "tea", "where": {"type": "Polygon", "coordinates": [[[8, 47], [9, 97], [8.5, 48], [8, 47]]]}}
    assert "read from: wkt, $.where" in refused(options, far)


def test_what_is_null_in_the_mapping_is_not_read():
    record = {"id": [], "text": "tea", "lat": 1, "lon": 2, "ts": "soon", "attributes": 5, "bbox": 5}
    assert read({"id": None, "time": None, "attributes": None}, record)[:7] == (None, "tea", 1.0, 2.0, None, None, None)
    assert "Expected the place" in refused({"id": None, "time": None, "attributes": None, "area": None}, {"text": "tea", "bbox": [1, 2, 3, 4]})


def test_several_texts_become_one():
    options = {"text": ["$.title", "$.body", "$.tags"]}
    place = {"lat": 1, "lon": 2}
    assert read(options, {"title": "Late", "tags": ["a", "b"], **place}).text == "Late\na\nb"
    assert "at $.title, $.body, $.tags; given: nothing" in refused(options, {"title": None, **place})
    assert "at $.body; given: an object" in refused(options, {"title": "Late", "body": {}, **place})


def test_texts_may_become_the_fields_of_a_text():
    options = {"text": {"title": "$.headline", "body": "$.content"}}
    conf = {"dskype.text.fields": ["body", "title"]}
    assert read(options, {"headline": "Late", "content": "coffee", "lat": 1, "lon": 2}, **conf).text == "coffee\x1fLate"
    assert read(options, {"headline": "Late", "lat": 1, "lon": 2}, **conf).text == "\x1fLate"
    assert read({"id": "$.key"}, {"text": {"title": "Late"}, "lat": 1, "lon": 2}, **conf).text == "\x1fLate"


@pytest.mark.parametrize(
    ("lat", "lon", "place"), [("47.37", " 8.5 ", (47.37, 8.5)), (47, "-8", (47, -8)), ("4.737e1", ".5", (47.37, 0.5)), (47.37, 8.5, (47.37, 8.5))]
)
def test_degrees_may_be_texts(lat, lon, place):
    message = read({"place": {"lat": "$.y", "lon": "$.x"}}, {"text": "tea", "y": lat, "x": lon})
    assert (message.lat, message.lon) == place and type(message.lat) is float


@pytest.mark.parametrize("lat", ["nan", "inf", "1_0", "47,37", "0x1", "٤٧", "north", True, [], "9e999"])
def test_what_is_no_number_of_degrees_is_refused(lat):
    assert "read from: $.y, $.x" in refused({"place": {"lat": "$.y", "lon": "$.x"}}, {"text": "tea", "y": lat, "x": 8.5})


def test_half_a_place_names_the_missing_half():
    options = {"place": {"lat": "$.y", "lon": "$.x"}}
    assert (
        refused(options, {"text": "tea", "y": 47.3, "x": ""}) == "Expected 'lon' of the message at $.x; given: nothing; legal: a number of degrees, or its text"
    )


def test_a_rectangle_may_have_its_sides_in_fields():
    options = {"place": {"west": "w", "south": "s", "east": "e", "north": "n"}}
    assert read(options, {"text": "tea", "w": "1", "s": 2, "e": "3", "n": 4}).bbox == (1, 2, 3, 4)
    assert "Expected 'north' of the message at n" in refused(options, {"text": "tea", "w": "1", "s": 2, "e": "3"})


def test_places_are_tried_in_the_order_of_the_mapping():
    options = {"place": {"wkt": "$.wkt", "geojson": "$.json"}}
    point = {"type": "Point", "coordinates": [1, 2]}
    assert read(options, {"text": "tea", "wkt": "POINT(3 4)", "json": point}).lon == 3
    assert read(options, {"text": "tea", "wkt": "POINT EMPTY", "json": point}).lon == 1
    assert "Expected a geometry in WKT at $.wkt" in refused(options, {"text": "tea", "wkt": "POINT 3 4", "json": point})


def test_texts_of_columns_that_are_empty_are_absent():
    options = {"format": "csv", "csv": {"columns": ["id", "text", "lat", "lon", "ts", "price"]}, "attributes": {"price": "price"}}
    assert read(options, b",tea,1,2,,")[:7] == (None, "tea", 1.0, 2.0, None, None, None)
    assert read(options, b"a,,1,2,1364774400000,12.5")[:7] == ('"a"', "", 1.0, 2.0, 1364774400000, None, {"price": "12.5"})


CSV = {"columns": ["lat", "lon", "text"]}


@pytest.mark.parametrize(
    ("form", "line", "text"),
    [
        ({}, b"1,2,tea", "tea"),
        ({}, b"1,2,tea\r\n", "tea"),
        ({}, b'1,2,"a ""b"", c\nd"\n', 'a "b", c\nd'),
        ({"delimiter": ";"}, b"1;2;a,b", "a,b"),
        ({"quote": "'"}, b"1,2,'a,\"b'", 'a,"b'),
        ({"quote": None}, b'1,2,"a, b', '"a, b'),
    ],
)
def test_a_line_of_values_is_a_record(form, line, text):
    assert read({"format": "csv", "csv": {**CSV, **form}}, line).text == text


def test_tabs_separate_values_without_quotes():
    assert read({"format": "tsv", "csv": CSV}, b'1\t2\t"a, b\n').text == '"a, b'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2", "Expected a value for each column; given: 2 values; legal: 3: lat, lon, text"),
        (b"1,2,a,b", "hint: quote: null in dskype.input.csv"),
        (b"1,2,a\n1,2,b", "Expected a message as one line of values; given: 2 lines"),
        (b"", "given: 0 lines"),
        (b'1,2,"a', "Expected a message as one line of values ("),
        (b'1,2,"a"b', "Expected a message as one line of values ("),
        (b"1,2,\xff", "Expected a message in UTF-8 (wrong at byte 5)"),
        (b"x" * 2_000_000, "Expected a message as a line of values; given: 2000000 bytes"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line, reason):
    assert reason in refused({"format": "csv", "csv": CSV}, line)


def test_lines_of_a_topic_need_the_names_of_columns_and_a_value():
    assert "hint: dskype.input.csv: {columns: [...]}" in refused({"format": "csv"}, b"1,2,tea")
    reader = MessageReader(Settings(), InputMapping({"format": "csv", "csv": CSV})).read
    with pytest.raises(RecordError, match="given: nothing"):
        reader(None)


def test_json_is_refused_as_in_the_own_form():
    assert refused({"text": "$.body"}, b"{").startswith("Expected a message as JSON (wrong at character 2: ")


DECLARED = {"price": "number", "open": "boolean", "tags": "strings", "from": "time", "kind": "string"}


def test_texts_become_what_the_attributes_are_declared_as():
    options = {"format": "csv", "csv": {"columns": ["text", "lat", "lon", *DECLARED]}, "attributes": {name: name for name in DECLARED}}
    line = b'tea,1,2, 12.50 ,YES,"a, b",2013-04-01T12:00:00Z,7'
    found = read(options, line, **{"dskype.attributes": DECLARED}).attributes
    assert found == {"price": 12.5, "open": True, "tags": ["a", "b"], "from": 1364817600000, "kind": "7"}
    assert read(options, b"tea,1,2,,,,,", **{"dskype.attributes": DECLARED}).attributes is None
    reason = refused(options, b"tea,1,2,cheap,,,,", **{"dskype.attributes": DECLARED})
    assert "price" in reason and "cheap" in reason and reason.endswith("; read from: price, open, tags, from, kind")
    values = {"price": 5, "open": False, "tags": ["x"], "from": 1364817600, "kind": "k"}
    assert read({"id": "$.key"}, {"text": "tea", "lat": 1, "lon": 2, "attributes": values}, **{"dskype.attributes": DECLARED}).attributes == values | {
        "from": 1364817600000
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format": "xml"}, r"dskype.input.format is not usable.*given: 'xml'.*legal: json \| csv \| tsv"),
        ({"id": "$[id]"}, "dskype.input.id is not usable.*wrong at character 2"),
        ({"text": []}, "dskype.input.text is not usable"),
        ({"text": {}}, "dskype.input.text is not usable"),
        ({"text": {5: "$.a"}}, "dskype.input.text is not usable"),
        ({"text": None}, "dskype.input.text is not usable"),
        ({"place": "$.place"}, "dskype.input.place is not usable.*legal: a map"),
        ({"place": {}}, "dskype.input.place is not usable"),
        ({"place": None}, "dskype.input.place is not usable"),
        ({"place": {"lat": "$.lat"}}, "dskype.input.place is not usable.*hint: lat needs lon"),
        ({"place": {"latlon": "$.lat"}}, "dskype.input.place is not usable"),
        ({"place": {"lat": "$.", "lon": "$.b"}}, "dskype.input.place.lat is not usable"),
        ({"area": 5}, "dskype.input.area is not usable"),
        ({"time": {"days": "$.t"}}, "dskype.input.time is not usable.*legal: a path, or {unit: path}"),
        ({"time": {"s": "$.t", "ms": "$.u"}}, "dskype.input.time is not usable"),
        ({"time": []}, "dskype.input.time is not usable"),
        ({"attributes": {"a": 5}}, "dskype.input.attributes.a is not usable"),
        ({"csv": {"header": False}}, "a file without a header needs columns"),
        ({"csv": {"columns": []}}, "dskype.input.csv is not usable"),
        ({"csv": {"columns": ["a", "a"]}}, "each column needs a name of its own"),
        ({"csv": {"columns": "a,b"}}, "dskype.input.csv is not usable"),
        ({"csv": {"delimiter": ", "}}, "dskype.input.csv is not usable"),
        ({"csv": {"delimiter": '"'}}, "delimiter and quote have to differ"),
        ({"csv": {"separator": ";"}}, "dskype.input.csv is not usable"),
        ({"csv": 5}, "dskype.input.csv is not usable"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(options, text):
    with pytest.raises(IllegalArgumentException, match=text):
        InputMapping(options)


def test_mappings_are_equal_by_what_they_say_and_can_be_pickled():
    mapping = InputMapping(TWEETS)
    copy = pickle.loads(pickle.dumps(mapping))
    assert copy == mapping and hash(copy) == hash(mapping) and copy != InputMapping({}) and copy.canonical(TWEET) == mapping.canonical(TWEET)


def test_the_mapping_of_the_own_form_changes_nothing():
    """Whatever is read through it is read, and refused, as without it."""
    mapped = MessageReader(Settings(), InputMapping(dict(INPUT_DEFAULTS))).read
    draw = random.Random(0)
    values = [None, 5, 1.5, "", "tea", "47.3", True, [], {}, [1, 2, 3, 4], {"a": 1}, 1364774400000, 1364774400, 47.3]
    outcomes = set()
    for _ in range(3000):
        record = {"text": "tea", "lat": 47.3, "lon": 8.5} | {
            name: draw.choice(values) for name in draw.sample(["id", "text", "lat", "lon", "ts", "bbox"], draw.randint(0, 2))
        }
        value = json.dumps(record).encode()
        try:
            plain = parse_message(value)
        except RecordError:
            continue  # a mapping takes more: texts that are numbers, null for what is absent
        assert mapped(value) == plain
        outcomes.add(plain.bbox is None)
    assert outcomes


def test_limits_hold_for_what_was_mapped():
    settings = Settings(limits=Limits(text_max_bytes=5, id_max_bytes=3))
    reader = MessageReader(settings, InputMapping(TWEETS))
    with pytest.raises(RecordError, match="Expected a shorter 'text'") as e:
        reader.read(TWEET)
    assert str(reader.located(e.value)).endswith("; read from: $.full_text")
