"""Paths find one value in a record, and what is none is refused with the place."""

import json
import random

import pytest

from dskype.spouts.record_paths import RecordPath, get_field
from dskype.topology.errors import IllegalArgumentException

RECORD = {
    "user": {"name": "ann", "a name": "b", "x.y": 5},
    "coordinates": {"coordinates": [8.5, 47.3]},
    "tags": [{"text": "a"}, {"name": "b"}, {"text": None}, {"text": "c"}],
    "null": None,
    "Longitude (deg)": 8.5,
    "$odd": 1,
    "text": "late",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.user.name", "ann"),
        ('$.user["a name"]', "b"),
        ("$.user['x.y']", 5),
        ("$.coordinates.coordinates[1]", 47.3),
        ("$.coordinates.coordinates[-1]", 47.3),
        ("$['coordinates']['coordinates'][0]", 8.5),
        ("$.tags[*].text", ["a", "c"]),
        ("$.tags[0]", {"text": "a"}),
        ("Longitude (deg)", 8.5),
        ('$["$odd"]', 1),
        ("$", RECORD),
    ],
)
def test_a_path_finds_its_value(path, value):
    assert RecordPath(path)(RECORD) == value
    assert RecordPath(path).getter()(RECORD) == value
    assert str(RecordPath(path)) == path


@pytest.mark.parametrize(
    "path",
    ["$.no", "$.user.no", "$.user[0]", "$.coordinates.coordinates[2]", "$.coordinates.coordinates.x", "$.text[0]", "$.text.x", "$.null", "$.null.x", "no"],
)
def test_what_is_not_there_is_none(path):
    assert RecordPath(path)(RECORD) is None
    assert RecordPath(path).getter()(RECORD) is None


def test_each_entry_of_what_is_no_list_is_none_at_all():
    assert RecordPath("$.user[*].name")(RECORD) == []


@pytest.mark.parametrize(
    ("path", "character"),
    [("$user", 2), ("$.", 2), ("$.a..b", 4), ("$.a[b]", 4), ("$.a[0", 4), ('$["a]', 2), ("$.a b", 4), ("$.a[1.5]", 4), (r'$.a["\q"]', 4), ('$["\n"]', 2)],
)
def test_a_wrong_path_is_refused_with_the_place(path, character):
    with pytest.raises(IllegalArgumentException, match=rf"wrong at character {character}\).*given.*legal"):
        RecordPath(path)


@pytest.mark.parametrize("path", ["", None, 5, ["$.a"]])
def test_a_path_is_a_text(path):
    with pytest.raises(IllegalArgumentException, match="given.*legal"):
        RecordPath(path)


def test_every_name_has_a_path():
    draw = random.Random(0)
    for _ in range(500):
        name = "".join(draw.choices("$.[]\"'\\ aé\n*0", k=draw.randint(1, 6)))
        assert RecordPath(get_field(name))({name: 5}) == 5, json.dumps(name)
        assert RecordPath(f"$[{json.dumps(name)}]")({name: 5}) == 5
