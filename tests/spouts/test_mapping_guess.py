"""What is guessed of records makes messages of them."""

import gzip
import json

import pytest

from dskype.spouts.input_mapping import InputMapping, MessageReader
from dskype.spouts.mapping_guess import guess_csv, guess_mapping, look, look_at_values
from dskype.spouts.settings import Settings
from tests.spouts.test_input_mapping import TWEET, changed

POINT = {"type": "Point", "coordinates": [8.5, 47.3]}


def only(options):
    return {name: value for name, value in options.items() if value}


def test_the_fields_of_a_tweet_are_found():
    options, others = guess_mapping([TWEET, changed(TWEET, coordinates=None)])
    assert only(options) == {
        "id": "$.id_str",
        "text": "$.full_text",
        "place": {"geojson": "$.coordinates"},
        "area": {"geojson": "$.place.bounding_box"},
        "time": {"rfc2822": "$.created_at"},
    }
    assert others == {"place.full_name": "$.place.full_name", "user.name": "$.user.name", "user.verified": "$.user.verified"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"text": "late", "lat": 1, "lon": 2, "ts": 1364817600000}, {"text": "$.text", "place": {"lat": "$.lat", "lon": "$.lon"}, "time": {"ms": "$.ts"}}),
        ({"a": {"Latitude": "1.5", "LNG": "2"}, "note": "a long text"}, {"text": "$.note", "place": {"lat": "$.a.Latitude", "lon": "$.a.LNG"}}),
        ({"title": "Late", "description": "coffee", "where": POINT}, {"text": ["$.title", "$.description"], "place": {"geojson": "$.where"}}),
        ({"type": "Feature", "geometry": POINT, "properties": {"name": "Café"}}, {"text": "$.properties.name", "place": {"geojson": "$.geometry"}}),
        ({"name": "Café", "geom": "SRID=4326;POINT(8.5 47.3)", "id": 5}, {"id": "$.id", "text": "$.name", "place": {"wkt": "$.geom"}}),
        ({"name": "Café", "geo": json.dumps(POINT)}, {"text": "$.name", "place": {"geojson": "$.geo"}}),
        (
            {"body": "x y", "x": 200, "y": 100, "bbox": [1, 2, 3, 4], "time": 1364817600.5},
            {"text": "$.body", "place": {"bbox": "$.bbox"}, "time": {"s": "$.time"}},
        ),
        (
            {"Text (en)": "x y", "lat": 1, "lon": 2, "date": "2013-04-01"},
            {"text": "Text (en)", "place": {"lat": "$.lat", "lon": "$.lon"}, "time": {"iso8601": "$.date"}},
        ),
        ({"url": "https://a.b/c", "text": None, "lat": None}, {}),
    ],
)
def test_what_is_named_or_looks_like_it_is_found(record, expected):
    options, _ = guess_mapping([record] * 3)
    assert only(options) == expected
    if "place" in expected:
        assert InputMapping(only(options)).canonical(record)["text"]


def test_the_exchanged_place_of_a_tweet_is_not_taken():
    options, _ = guess_mapping([changed(TWEET, geo={"type": "Point", "coordinates": [47.37, 8.54]})])
    assert options["place"] == {"geojson": "$.coordinates"} and options["area"] is None


def test_a_time_of_no_single_unit_is_no_time():
    assert guess_mapping([{"ts": 1364817600000}, {"ts": 1364817600}])[0]["time"] is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["id,text", "1,a", "2,b"], ("csv", {})),
        (["id,text", '1,"a, b"', "2,b", "3"], ("csv", {})),
        (["id,text", "1,a, b", "2,b"], ("csv", {"quote": None})),
        (["id,text", '1,"a" b', '2,"b'], ("csv", {"quote": None})),
        (["id,text", "1,a", '2,"b and the next line'], ("csv", {})),
        (["id\ttext", "1\ta"], ("tsv", {})),
        (["id\ttext", '1\t"a"'], ("tsv", {"quote": '"'})),
        (["id;text", "1;a,b"], ("csv", {"delimiter": ";"})),
        (["id|text", "1|a"], ("csv", {"delimiter": "|"})),
        (["7,47.3,8.5,late"], ("csv", {"columns": ["id", "lat", "lon", "text"]})),
        (["8.5,147.3,late", "8.5,47.3,a"], ("csv", {"columns": ["lat", "lon", "text"]})),
        (["147.3,8.5,late tea,x", "47.3,8.5,a,x"], ("csv", {"columns": ["lon", "lat", "text", "column4"]})),
        (["a,2013-04-01,1.5,2.5,late", "b,2013-04-02,1,2,tea"], ("csv", {"columns": ["id", "time", "lat", "lon", "text"]})),
    ],
)
def test_the_form_of_lines_is_found(lines, expected):
    assert guess_csv(lines) == expected


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_look_at_a_file_finds_how_to_read_it(tmp_path, ending):
    text = 'tweet;Breite;Länge;am\nlate;47.3;8.5;2013-04-01T12:00:00Z\n"a; b";47;8;2013-04-01T12:00:00Z\n'
    path = tmp_path / f"a.csv{ending}"

    def looked(text):
        path.write_bytes(gzip.compress(text.encode()) if ending else text.encode())
        return look(path)

    found = looked(text)
    assert found.options["csv"] == {"delimiter": ";"} and found.options["place"] == {"lat": "$.Breite", "lon": "$.Länge"} and found.usable()["format"] == "csv"
    assert [number for number, _ in found.records] == [2, 3]
    found = looked(text.replace("Breite;Länge", "lat;lon"))
    read = MessageReader(Settings(), InputMapping(found.usable())).read
    assert [read(value).text for _, value in found.records] == ["late", "a; b"]


def test_a_look_at_values_of_a_topic_finds_json_and_lines():
    own = look_at_values([None, json.dumps(TWEET).encode(), b"5"])
    assert own.options["text"] == "$.full_text" and len(own.records) == 2
    lines = look_at_values([b"7,47.3,8.5,late, tea", b"8,47.3,8.5,a"])
    read = MessageReader(Settings(), InputMapping(lines.usable())).read
    assert read(b"7,47.3,8.5,late, tea")[:4] == ('"7"', "late, tea", 47.3, 8.5)
