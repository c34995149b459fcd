"""The verification reads records of other forms as the topology does, by code of its own."""

import json
import random

import pytest

from dskype.deploy.verification.reading import UnusableRecord, check_message
from dskype.deploy.verification.reading_mapping import forms_of
from dskype.deploy.verification.reading_paths import value_at
from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.record_paths import RecordPath
from dskype.spouts.record_values import RecordError
from dskype.spouts.settings import Settings
from tests.spouts.test_input_mapping import TWEET, TWEETS

NAMES = ["a", "b", "a b", "$c", "ü"]
VALUES = [
    None,
    "",
    "x",
    0,
    1.5,
    True,
    [],
    {},
    [1, "y"],
    {"a": 1},
    1364774400,
    "1364774400000",
    "2013-04-01T12:00:00+02:00",
    "Mon Apr 01 00:00:00 +0000 2013",
    "Mon, 01 Apr 2013 12:00:00 CET",
    "Mon, 01 Apr 2013 12:00:00 +0200 (CEST)",
    "Mon, 01 Apr 2013 12:00 GMT+02:00",
    "7",
    " 4.5 ",
    "1e999",
]
RING = [[8, 47], [9, 47], [9, 48], [8, 48]]
SHAPES = [
    {"type": "Point", "coordinates": [8.5, 47.25]},
    {"type": "Point", "coordinates": [8.5, 47, 300]},
    {"type": "Point", "coordinates": []},
    {"type": "Polygon", "coordinates": [RING]},
    {"type": "Polygon", "coordinates": [[*RING, RING[0]]]},
    {"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 47]]]},
    {"type": "Polygon", "coordinates": [[[8, 47]] * 4]},
    {"type": "Polygon", "coordinates": [RING, [[8.2, 47.2], [8.4, 47.2], [8.4, 47.4], [8.2, 47.2]]]},
    {"type": "MultiPolygon", "coordinates": [[RING], [[[1, 1], [2, 1], [2, 2], [1, 1]]]]},
    {"type": "MultiPolygon", "coordinates": [[RING]]},
    {"type": "Polygon", "coordinates": [[[170, 0], [-170, 0], [-170, 9], [170, 9]]]},
    {"type": "Polygon", "coordinates": [[[180, 0], [-180, 0], [-180, 9], [180, 9]]]},
    {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}},
    {"type": "Feature", "geometry": None},
    {"type": "LineString", "coordinates": [[1, 2], [3, 4]]},
    {"type": "Polygon", "coordinates": [[["8", 47]]]},
    {"type": "Polygon", "coordinates": "x"},
    {"coordinates": [1, 2]},
    json.dumps({"type": "Point", "coordinates": [1, 2]}),
    "{",
]
TEXTS = [
    "POINT (8.5 47)",
    "SRID=4326;POINT Z (8.5 47.0 3)",
    "POINT EMPTY",
    "polygon((8 47, 9 47, 9 48, 8 48, 8 47))",
    "POLYGON ((8 47, 9 47, 9 48, 8 47))",
    "POINT 8 47",
    "POINT ()",
    "POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))",
]
TEXTS += [
    "MULTIPOLYGON (((8 47, 9 47, 9 48, 8 47)), ((1 1, 2 1, 2 2, 1 1)))",
    "SRID=3857;POINT (1 2)",
    "POINT (1)",
    "POINT (1 2",
    "LINESTRING (1 2, 3 4)",
    "POINT (1 2) x",
    5,
]


def outcome(read):
    """Return what was read; None if it was refused."""
    try:
        return read()
    except (RecordError, UnusableRecord):
        return None


def both(options, value, **conf):
    """Return the own forms and the messages that the topology and the verification read; those of refused records are None."""
    settings = Settings.from_conf({f"dskype.input.{name}": entry for name, entry in options.items()} | conf)
    reader = MessageReader(settings, settings.input)

    def ours():
        own, original = forms_of(value, settings.input, settings)
        message = check_message(own, settings)
        return own, original, message._replace(region=message.region is not None)

    def theirs():
        own = reader.own_form(value)
        reader.check(own)
        message, own, original = reader.read_whole(value)
        return own, original, message._replace(region=message.region is not None)

    return outcome(ours), outcome(theirs)


def same(found, expected):
    assert (found is None) == (expected is None), (found, expected)
    if found is not None:
        assert json.dumps(found[:2]) == json.dumps(expected[:2]) and found[2] == expected[2], (found, expected)


def random_value(rng, depth=3):
    if depth and rng.random() < 0.5:
        return (
            {rng.choice(NAMES): random_value(rng, depth - 1) for _ in range(3)}
            if rng.random() < 0.6
            else [random_value(rng, depth - 1) for _ in range(rng.randrange(3))]
        )
    return rng.choice(VALUES)


def random_path(rng):
    steps = []
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(NAMES)
        steps.append(rng.choice([f"[{json.dumps(name)}]", f"['{name}']", f"[{rng.randint(-3, 3)}]", "[*]", f".{name}" if " " not in name else "[0]"]))
    return rng.choice(["$" + "".join(steps), "$" + "".join(steps), rng.choice(NAMES[:3])])


def test_paths_find_the_same_values():
    rng, found = random.Random(1), 0
    for _ in range(4000):
        path, record = random_path(rng), {name: random_value(rng) for name in NAMES}
        expected = RecordPath(path)(record)
        assert value_at(path, record) == expected, (path, record)
        found += expected is not None
    assert found > 400


def test_tweets_are_read_alike():
    found, expected = both(TWEETS, json.dumps(TWEET).encode(), **{"dskype.attributes": {"user": "string", "tags": "strings"}})
    assert found is not None
    same(found, expected)


@pytest.mark.parametrize("shape", SHAPES + TEXTS, ids=str)
def test_geometries_are_read_alike(shape):
    for kind in ("geojson", "wkt"):
        same(*both({"place": {kind: "$.g"}, "area": {"bbox": "$.box"}}, json.dumps({"text": "t", "g": shape, "box": [1, 2, 3, 4]}).encode()))


@pytest.mark.long
def test_random_records_with_random_mappings_are_read_alike():
    rng, read = random.Random(2), 0
    for _ in range(6000):
        places = [
            {"lat": "$.y", "lon": "$.x"},
            {"geojson": "$.g"},
            {"wkt": "$.w"},
            {"west": "$.x", "south": "$.y", "east": "$.x", "north": "$.y"},
            {"lat": "y", "lon": "x", "geojson": "g"},
        ]
        options = {
            "text": rng.choice(["$.t", "u", ["$.t", "$.u"], {"title": "$.t", "body": "$.u"}, "$.tags[*].name"]),
            "id": rng.choice([None, "$.id", "$.u"]),
            "place": rng.choice(places),
            "area": rng.choice([None, {"bbox": "$.box"}, {"region": "$.g"}]),
            "time": rng.choice([None, "$.at", {rng.choice(["ms", "s", "us", "iso8601", "rfc2822", "auto"]): "$.at"}]),
            "attributes": rng.choice([None, {}, "$.more", {"price": "$.p", "open": "$.o", "tags": "$.l", "since": "$.at", "name": "$.u"}]),
        }
        conf = {"dskype.attributes": {"price": "number", "open": "boolean", "tags": "strings", "since": "time"}} if rng.random() < 0.5 else {}
        if isinstance(options["text"], dict):
            conf["dskype.text.fields"] = ["title", "body"]
        record = {
            "t": rng.choice(["tea", "tea", ["a", "b"], *VALUES[:4]]),
            "u": rng.choice(["coffee", "x", None, 3]),
            "tags": [{"name": "a"}, {"name": rng.choice(["b", None])}],
            "id": rng.choice(["i", 5, "", None, 1.5]),
            "x": rng.choice([1, 2.5, "8.5", " 8 ", "", None, "x", 190]),
            "y": rng.choice([1, 2.5, "8.5", "47", "", None, True]),
            "g": rng.choice([*SHAPES, None]),
            "w": rng.choice([*TEXTS, None, ""]),
            "box": rng.choice([[1, 2, 3, 4], None, [4, 3, 2, 1]]),
            "at": rng.choice(VALUES),
            "more": rng.choice([None, {"price": "4.5"}, {"price": 4, "open": "yes"}, 5]),
            "p": rng.choice([1, "2.5", "x", None, ""]),
            "o": rng.choice([True, "no", "maybe", None]),
            "l": rng.choice([["a"], "a, b", "", None, 5]),
        }
        record = {name: value for name, value in record.items() if rng.random() < 0.9}
        found, expected = both(options, json.dumps(record).encode(), **conf)
        same(found, expected)
        read += found is not None
    assert read > 500


@pytest.mark.parametrize(
    "line",
    [
        b"tea,47,8.5",
        b'"tea, hot",47,8.5',
        b"tea;47;8.5",
        b"tea,47",
        b'"tea,47,8.5',
        b"tea,47,8.5\ntea,47,8.5",
        b"",
        b'"a\nb",47,8.5',
        b"\xff,1,2",
        b"tea,,8",
        "green\u2028tea\x0b\x85,47,8.5".encode(),
        b"tea,47,8.5\r",
        b"tea\r\nx,47,8.5\r\n",
        None,
    ],
)
def test_lines_of_values_are_read_alike(line):
    for csv in ({}, {"quote": None}, {"delimiter": ";"}):
        options = {"format": "csv", "csv": {"columns": ["t", "y", "x"], **csv}, "id": None, "text": "t", "place": {"lat": "y", "lon": "x"}}
        same(*both(options, line))
