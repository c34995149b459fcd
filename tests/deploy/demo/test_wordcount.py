"""The word count over places, against a plain count of the same file."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from dskype.deploy.demo import wordcount
from dskype.deploy.demo.places import places_file
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.topology import testing
from dskype.topology.builder import TopologyBuilder
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.flux import load
from dskype.topology.local import LocalCluster
from dskype.topology.simulated.faults import Faults

WORDCOUNT = TOPOLOGIES / "wordcount.yaml"


def write_places(path: Path, count: int, seed: int = 1) -> dict[str, dict]:
    rng = random.Random(seed)
    syllables = ["san", "la", "de", "Vila", "città", "東京", "Москва", "a-b", "O'Neil", 'quo"te', "br}, {ace", "x, y", "\\", "1st", ""]
    places = {}
    for i in range(count):
        names = [" ".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 30))]
        places[str(1000 + i)] = {"geonameid": 1000 + i, "name": names[0], "latitude": 1.5, "alternatenames": names[1:]}
    path.write_text(json.dumps(places))
    return places


def naive_words(places: dict[str, dict]) -> Counter:
    def is_word(char: str) -> bool:
        return unicodedata.category(char)[0] in "LM" or unicodedata.category(char) == "Nd"

    counts: Counter = Counter()
    for place in places.values():
        text = " ".join([place["name"], *place["alternatenames"]]).lower()
        counts.update("".join(c if is_word(c) else " " for c in text).split())
    return counts


def best(counts: Counter, n: int = 20) -> list[list]:
    return [list(pair) for pair in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:n]]


def loaded_wordcount(file: Path, **spout):
    flux = load(WORDCOUNT, registry=registry())
    flux.topology.components["places"].obj = wordcount.PlacesSpout(str(file), **spout)
    return flux


def last_report(cluster: LocalCluster) -> dict:
    end = cluster.log.end("wordcount.top-words", 0)
    return json.loads(next(iter(cluster.log.read("wordcount.top-words", 0, end - 1, end))).value)


@pytest.mark.parametrize("block", [64, 1000, 1 << 16])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_the_tasks_of_the_spout_emit_every_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, block: int) -> None:
    monkeypatch.setattr(wordcount, "_BLOCK_BYTES", block)
    places = write_places(tmp_path / "places.json", 60)
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("places", wordcount.PlacesSpout(str(tmp_path / "places.json")), tasks)
    builder.set_bolt("capture", capture).global_grouping("places")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("t", {}, builder.create_topology())
        cluster.advance_cluster_time(10)
    emitted = [t.values for t in capture.get_results()["places"]]
    assert sorted(emitted) == sorted([p["name"], " ".join([p["name"], *p["alternatenames"]])] for p in places.values())


@pytest.mark.parametrize(("places", "tasks"), [(1, 1), (1, 4), (2, 7)])
def test_few_places_for_many_tasks_are_no_trouble(tmp_path: Path, places: int, tasks: int) -> None:
    write_places(tmp_path / "places.json", places)
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("places", wordcount.PlacesSpout(str(tmp_path / "places.json"), rounds=3), tasks)
    builder.set_bolt("capture", capture).global_grouping("places")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("t", {}, builder.create_topology())
        cluster.advance_cluster_time(3)
    assert len(capture.get_results()["places"]) == 3 * places


def test_the_counts_equal_a_plain_count(tmp_path: Path) -> None:
    counts = naive_words(write_places(tmp_path / "places.json", 300))
    flux = loaded_wordcount(tmp_path / "places.json")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology(flux.name, flux.config, flux.topology)
        cluster.advance_cluster_time(8)
        report = last_report(cluster)
    assert report == {"top": best(counts), "words": counts.total(), "distinct": len(counts)}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_crashes_change_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(wordcount, "_BLOCK_BYTES", 2000)
    counts = naive_words(write_places(tmp_path / "places.json", 200, seed))
    flux = loaded_wordcount(tmp_path / "places.json")
    with LocalCluster(simulated=True, seed=seed, faults=Faults.heavy()) as cluster:
        cluster.submit_topology(flux.name, flux.config, flux.topology)
        cluster.advance_cluster_time(12)
        report = last_report(cluster)
    assert report == {"top": best(counts), "words": counts.total(), "distinct": len(counts)}


def test_ties_are_cut_by_word_and_the_state_comes_back() -> None:
    import pyarrow as pa

    class Batch(dict):
        pass

    bolt = wordcount.CountBolt(3)
    for words in (["b", "a", "d", "c"], ["e", "z", "z"], [f"w{i}" for i in range(2000)]):
        bolt.execute_batch(Batch(word=pa.array(words)))
    assert bolt.top() == [["z", 2], ["a", 1], ["b", 1]]
    again = wordcount.CountBolt(3)
    again.restore(bolt.snapshot())
    again.execute_batch(Batch(word=["new", "a", "new", "new"]))
    assert again.top() == [["new", 3], ["a", 2], ["z", 2]]


def test_a_file_that_holds_no_places_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[1, 2]")
    builder = TopologyBuilder()
    builder.set_spout("places", wordcount.PlacesSpout(str(tmp_path / "other.json")))
    with LocalCluster(simulated=True) as cluster, pytest.raises(IllegalArgumentException, match="Not a file of places"):
        cluster.submit_topology("t", {}, builder.create_topology())
    with pytest.raises(IllegalArgumentException, match="The number of rounds is negative. given: -1"):
        wordcount.PlacesSpout(rounds=-1)


def test_the_places_of_the_demo_are_installed_and_in_the_expected_layout() -> None:
    with places_file().open("rb") as file:
        assert re.match(wordcount._FIRST, file.read(64))
