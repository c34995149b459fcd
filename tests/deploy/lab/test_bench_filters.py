"""The benchmark of filters and the comparison with Lucene's monitor, on tiny tables: what is drawn, measured, printed and translated."""

import json

import numpy as np
import pytest

from dskype.bolts.boolean import make_index
from dskype.deploy.cli.main import main
from dskype.deploy.lab.boolean import filter_world, filters
from dskype.deploy.lab.boolean.filter_tasks import FilterTask, pairs_of
from dskype.deploy.lab.boolean.filter_world import FilterWorld, lines
from dskype.deploy.lab.boolean.filters import match_batches
from dskype.deploy.lab.boolean.lucene import box_tokens, tokens
from dskype.deploy.lab.boolean.measure import insert
from dskype.spouts.regions import parse_region
from dskype.topology.errors import IllegalArgumentException
from tests import naive

PLACES = [f"{kind} {name} {name} house" for kind in ("old", "new", "Old mill") for name in ("harbour", "bridge", "lake")]


def world(subscriptions=300, messages=64):
    rng = np.random.default_rng(5)
    return FilterWorld(PLACES, rng.uniform(-0.2, 0.2, len(PLACES)), rng.uniform(-0.2, 0.2, len(PLACES)), subscriptions, messages, rng)


def test_lines_find_what_the_plain_evaluation_finds():
    drawn = world()
    index = make_index("lanes", {})
    insert(index, drawn.subscriptions, np.arange(drawn.subscriptions.n))
    matches = {}
    for line in (line for line in lines() if line.region is None):
        batches = drawn.batches(2)
        _, pairs = match_batches(index, *drawn.tables(line, 3), batches)
        found = {(int(row) + 32 * number, int(slot)) for number, (rows, slots) in enumerate(pairs) for row, slot in zip(rows, slots)}
        expected = set()
        for row, text in enumerate(drawn.texts):
            message = {"text": text, "attributes": {"price": drawn.prices.item(row), "category": drawn.categories[row]}}
            for slot, (words, number) in enumerate(zip(drawn.words, drawn.drawn(line, 3))):
                west, south, east, north = drawn.subscriptions.boxes[slot]
                inside = west <= drawn.messages.lon[row] <= east and south <= drawn.messages.lat[row] <= north
                tree = ["and", *words] if line.expression is None else line.expression(words, number)
                if inside and naive.holds(tree, message, []):
                    expected.add((row, slot))
        assert found == expected, line.name
        matches[line.name] = len(found)
    assert matches["words and rectangle"] == matches["NOT"] > matches["attribute"] > matches["string"] > 20
    assert matches["words and rectangle"] > matches["phrase"] > 20


def test_regions_are_those_that_a_subscription_would_have():
    boxes = np.array([[-3.0, 40.0, -2.5, 40.75], [10.0, -20.0, 10.5, -19.0]])
    for box, circle, polygon in zip(boxes, filter_world.circles(boxes), filter_world.polygons(boxes)):
        west, south, east, north = box
        lat, lon, radius_m = circle[-3:].tolist()
        assert (lat, lon) == ((south + north) / 2, (west + east) / 2)
        assert circle.tolist() == list(parse_region({"center": {"lat": lat, "lon": lon}, "radius_m": radius_m}))
        ring = polygon[-60:].reshape(-1, 2).tolist()
        assert polygon.tolist() == list(parse_region({"type": "Polygon", "coordinates": [[*ring, ring[0]]]}))
        assert west <= min(lon for lon, _ in ring) and max(lat for _, lat in ring) <= north


@pytest.fixture
def small(tmp_path):
    """The arguments of a run that takes a second."""
    file = tmp_path / "places.jsonl"
    file.write_text("".join(json.dumps({"text": text, "lat": 1.0, "lon": 2.0}) + "\n" for text in PLACES))
    return ["bench", "filters", str(file), "--subscriptions", "50", "--batches", "2", "--batch", "16", "--rounds", "2", "--only", "NOT,string,circle"]


def test_there_is_a_table_of_the_index_and_one_of_a_task_for_each_form_of_matches(small, capsys):
    assert main(small) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    rows = ["words and rectangle", "NOT", "string", "circle"]
    assert [row[:20].strip() for row in shown] == ["the index", *rows, "a task, each", *rows, "a task, grouped", *rows]
    assert all("ns/match" in shown[head] for head in (0, 5, 10))
    matches, records = zip(*(row[20:].split()[-5:-1:3] for row in shown[6:10]))
    assert matches == records and len(set(matches)) > 1, "each match has a record, and strings discard some"
    assert len({row.split()[-2] for row in shown[11:13]}) == 1, "a message with matches has one record when these are grouped"


def test_tables_of_tasks_can_be_left_out(small, capsys):
    assert main([*small, "--matches", ""]) == 0
    assert "a task" not in capsys.readouterr().out


def test_what_a_task_finds_must_be_what_the_index_finds(small, monkeypatch, capsys):
    monkeypatch.setattr(filters, "pairs_of", lambda written: pairs_of(written)[1:])
    assert main(small) == 1
    assert "the task finds other matches than the index: words and rectangle" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["each", "grouped"])
def test_a_task_finds_the_matches_again_when_messages_come_again(form):
    drawn = world()
    batches, line = drawn.batches(2), next(line for line in lines() if line.name == "phrase")
    index = make_index("lanes", {})
    insert(index, drawn.subscriptions, np.arange(drawn.subscriptions.n))
    _, found = match_batches(index, *drawn.tables(line, 3), batches)
    expected = np.array(sorted((row + 32 * number, slot) for number, of in enumerate(found) for row, slot in zip(*of)))
    task = FilterTask.registered(drawn, line, 3, form)
    for own in (task, task, task.continued("each")):
        spent, written = own.match(batches)
        assert np.array_equal(pairs_of(written), expected) and len(expected) > 20
        assert (spent > 0).all()


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("tea", "WORD tea"),
        (["and", "tea", ["not", "milk"]], "BOOL 2 MUST WORD tea MUST_NOT WORD milk"),
        (["or", "tea", ["and", "coffee", "cake"]], "BOOL 2 SHOULD WORD tea SHOULD BOOL 2 MUST WORD coffee MUST WORD cake"),
        (["not", "milk"], "BOOL 2 MUST ALL MUST_NOT WORD milk"),
        (["phrase", 0, [0, 2], ["late", "night"]], "PHRASE 0 2 0 late 2 night"),
        (["attribute", "category", "=", "cafe"], "VALUE category cafe"),
        (["attribute", "price", "<=", 5], "RANGE price -inf 5.0"),
        (["attribute", "price", ">", 1.0], "RANGE price 1.0000000000000002 inf"),
    ],
)
def test_expressions_are_translated_for_lucenes_monitor(tree, expected):
    assert tokens(tree) == expected.split()


def test_what_lucenes_monitor_does_not_have_is_refused():
    for tree in (["phrase", 2, [0, 1], ["late", "night"]], ["prefix", "muse"], ["attribute", "price", "!=", 5]):
        with pytest.raises(IllegalArgumentException, match=r"Lucene's monitor has"):
            tokens(tree)


def test_a_rectangle_across_the_antimeridian_is_two_for_lucenes_monitor():
    assert box_tokens([1.5, 2, 3, 4]) == ["BOX", "1.5", "2", "3", "4"]
    assert box_tokens([179.0, -1.0, -179.5, 1.0]) == "BOOL 2 SHOULD BOX 179.0 -1.0 180.0 1.0 SHOULD BOX -180.0 -1.0 -179.5 1.0".split()
