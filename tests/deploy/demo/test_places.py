"""Places as messages, subscriptions drawn from them; against a plain reading of the same file."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from dskype.deploy.demo.places import Places, load, places, subscriptions
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import IllegalArgumentException

ENTRIES = {
    "11": {
        "geonameid": 11,
        "name": "Lake Park",
        "latitude": 26.8,
        "longitude": -80.0,
        "countrycode": "US",
        "admin1code": "FL",
        "population": 1,
        "alternatenames": ["Lejk-Park", "Лейк Парк", "lake"],
    },
    "12": {"geonameid": 12, "name": 'Quo"te}, {\\', "latitude": -1.5, "longitude": 7.25, "countrycode": "CR", "admin1code": "01", "alternatenames": [""]},
    "13": {"geonameid": 13, "name": "東京", "latitude": 35.5, "longitude": 139.75, "countrycode": "JP", "admin1code": None},
    "14": {"geonameid": 14, "name": "-", "latitude": 0.0, "longitude": 0.0, "countrycode": "XX", "alternatenames": ["..."]},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "places.json"
    path.write_text(json.dumps(ENTRIES))
    return path


@pytest.fixture(scope="module")
def world() -> Places:
    return places(seed=3, count=5000)


def test_a_place_is_a_message_with_its_names_as_text(file):
    records = [json.loads(value) for value in load(file).records()]
    assert records == [
        {"id": e["geonameid"], "text": " ".join([e["name"], *e.get("alternatenames", ())]), "lat": e["latitude"], "lon": e["longitude"]}
        for e in ENTRIES.values()
    ]


def test_a_place_is_called_by_its_name_and_region(file):
    found = load(file)
    assert [found.label(i) for i in range(4)] == ["Lake Park (Florida)", 'Quo"te}, {\\ (Costa Rica)', "東京 (Japan)", "- (XX)"]


@pytest.mark.long
def test_the_packages_places_are_all_read():
    found = load()
    assert len(found) > 200_000 and found.texts.null_count == found.ids.null_count == found.regions.null_count == 0
    assert np.all(np.abs(found.lat) <= 90) and np.all(np.abs(found.lon) <= 180)
    assert found.names.to_pylist().count("Lake Park") > 1


def test_the_order_of_messages_follows_from_the_seed(file):
    assert places(7, file=file).ids == places(7, file=file).ids
    assert sorted(places(7, file=file).ids.to_pylist()) == ["11", "12", "13", "14"]
    assert len({tuple(places(seed, file=file).ids.to_pylist()) for seed in range(20)}) > 5
    assert places(7, 2, file).ids == places(7, file=file).ids.slice(0, 2)
    assert len(places(7, 0, file)) == 0


def test_places_that_come_again_have_ids_of_their_own(file):
    found = places(1, 10, file)
    ids = [json.loads(id) for id in found.ids.to_pylist()]
    assert len(set(ids)) == 10 and sorted(ids[:4]) == [11, 12, 13, 14]
    assert sorted(ids[4:8]) == ["11.1", "12.1", "13.1", "14.1"]
    for id, record in zip(ids, found.records()):
        assert json.loads(record) == {**json.loads(record), "id": id, "lat": ENTRIES[str(id).partition(".")[0]]["latitude"]}


@pytest.mark.long
def test_a_part_of_the_records_is_a_part_of_all(world):
    assert world.records(10, 20) == world.records()[10:20] == world.slice(10, 20).records()
    assert world.records(4998, 6000) == world.records()[4998:]


@pytest.mark.long
def test_a_subscription_is_drawn_from_one_message(world):
    tokens, by_location = Tokenizer().tokens, {}
    for text, lat, lon in zip(world.texts.to_pylist(), world.lat.tolist(), world.lon.tolist()):
        by_location.setdefault((lat, lon), []).append(set(tokens(text)))
    drawn = list(subscriptions(world, 9000, seed=5, k=7, keywords=(2, 4)))
    assert [id for id, _ in drawn] == [f"s{i}" for i in range(9000)]
    for _, value in drawn:
        record = json.loads(value)
        assert set(record) == {"type", "keywords", "lat", "lon", "k", "alpha"} and record["type"] == "topk" and record["k"] == 7
        words = record["keywords"]
        assert len(set(words)) == len(words) and 0 <= record["alpha"] <= 1
        sources = [s for s in by_location[record["lat"], record["lon"]] if s >= set(words)]
        assert any(2 <= len(words) <= 4 or (words and len(words) == len(s)) for s in sources)


@pytest.mark.long
def test_numbers_of_keywords_locations_and_alphas_are_uniform(world):
    records = [json.loads(value) for _, value in subscriptions(world, 20_000, seed=1)]
    alphas = np.array([r["alpha"] for r in records])
    assert np.allclose(np.histogram(alphas, 10, (0, 1))[0] / 20_000, 0.1, atol=0.01)
    many = {(lat, lon) for lat, lon, text in zip(world.lat.tolist(), world.lon.tolist(), world.texts.to_pylist()) if len(set(Tokenizer().tokens(text))) >= 5}
    counts = np.array([len(r["keywords"]) for r in records if (r["lat"], r["lon"]) in many])
    assert np.allclose(np.bincount(counts, minlength=6)[1:6] / len(counts), 0.2, atol=0.03)
    assert len({(r["lat"], r["lon"]) for r in records}) > 4500


@pytest.mark.long
def test_fewer_subscriptions_are_the_first_of_more(world):
    more = list(subscriptions(world, 5000, seed=2))
    assert list(subscriptions(world, 700, seed=2)) == more[:700] == list(islice(subscriptions(world, 10**9, seed=2), 700))
    assert list(subscriptions(world, 700, seed=3)) != more[:700]


def test_stop_words_are_not_drawn(world):
    drawn = subscriptions(world, 3000, seed=2, tokenizer=Tokenizer(stop_words=("san", "de", "la")), prefix="x")
    for id, value in drawn:
        assert id.startswith("x") and not {"san", "de", "la"} & set(json.loads(value)["keywords"])


def test_messages_without_keywords_give_no_subscriptions(file):
    whole = load(file)
    assert all(json.loads(value)["keywords"] for _, value in subscriptions(whole, 200))
    with pytest.raises(IllegalArgumentException, match="no message with keywords"):
        next(subscriptions(whole.slice(3, 4), 1))
    with pytest.raises(IllegalArgumentException, match="no message with keywords"):
        next(subscriptions(whole.slice(0, 0), 1))
    assert list(subscriptions(whole.slice(0, 0), 0)) == []


@pytest.mark.parametrize("arguments", [{"n": -1}, {"n": 1, "k": 0}, {"n": 1, "keywords": (0, 3)}, {"n": 1, "keywords": (3, 2)}])
def test_numbers_that_make_no_sense_are_refused(world, arguments):
    with pytest.raises(IllegalArgumentException, match="given: 'n="):
        list(subscriptions(world, **arguments))


def test_a_negative_number_of_messages_is_refused(file):
    with pytest.raises(IllegalArgumentException, match="given: -1"):
        places(0, -1, file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"a": 1}',
        '{"1": {"geonameid": 1}}',
        '{"1": {"geonameid": 1, "name": "x"}',
        '{"1": {"geonameid": 1, "name": 5, "latitude": 1.0, "longitude": 1.0}}',
    ],
)
def test_a_file_that_holds_no_places_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(IllegalArgumentException, match="Not a file of places.*other.json"):
        load(path)
