"""Messages of benchmarks: files of any form, with their times and areas, in bounded memory; and every benchmark on a file like those of tweets."""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tracemalloc

import numpy as np
import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.lab import command
from dskype.deploy.lab.boolean.workloads import draw_messages
from dskype.deploy.lab.corpus import messages_of, read_file, read_rows
from dskype.deploy.lab.skype.workload import Stream

pytestmark = pytest.mark.lab(seconds=120)


@pytest.fixture(scope="module")
def tweets(tmp_path_factory):
    """Return a file like those of tweets: no header, times as text, a text with commas and quotes at the end."""
    rng = random.Random(5)
    words = [f"word{i}" for i in range(400)] + ["lol,", '"so', 'good"', "@ann", "#fun", "é\u2019s"]
    path = tmp_path_factory.mktemp("tweets") / "tweets.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for i in range(1200):
            at = f"2013-04-01 {i // 60 % 24:02}:{i % 60:02}:00"
            text = " ".join(rng.choices(words, [1 / (j + 1) for j in range(len(words))], k=rng.randint(3, 15)))
            file.write(f"{318513035734048768 + i},{at},{rng.uniform(30, 45):.8f},{rng.uniform(-120, -75):.8f},{rng.randint(1, 99)},{text}\n")
    return path


def test_times_are_kept_and_replayed_in_their_order(tweets):
    corpus = read_file(tweets)
    assert len(corpus) == 1200 and corpus.areas is None
    assert corpus.times_ms is not None and corpus.times_ms[0] == 1_364_774_400_000 and corpus.times_ms[61] - corpus.times_ms[0] == 61 * 60_000
    stream, arrived, last = Stream(corpus, 300, timed=True), 0, -1
    for number in range(-(-len(corpus) // stream.batch)):
        messages, full, _ = stream.slot()
        arrived += messages.n
        assert messages.n == 0 or (2 * number * stream.half <= messages.position[0] and messages.position[-1] <= full)
        assert (np.diff(messages.position) >= 0).all()
        rows = np.searchsorted(corpus.times_ms, np.sort(corpus.times_ms)[arrived - messages.n : arrived])
        assert messages.n == 0 or rows[0] > last
        assert (messages.lat == corpus.lat[rows]).all()
        last = rows[-1] if messages.n else last
    assert arrived == len(corpus)
    assert (stream.slot()[0].lat == corpus.lat[:1]).any()  # they begin again


def test_areas_are_kept_and_drawn(tmp_path):
    path = tmp_path / "areas.json"
    records = [{"text": "a b", "lat": 1.0, "lon": 2.0}, {"text": "b c", "bbox": [3, 4, 5, 6]}, {"text": "c d", "lat": 7.0, "lon": 8.0}]
    path.write_text("\n".join(map(json.dumps, records)))
    corpus = read_file(path)
    assert corpus.areas is not None and corpus.times_ms is None
    assert corpus.areas.tolist() == [[2, 1, 2, 1], [3, 4, 5, 6], [8, 7, 8, 7]]
    drawn = draw_messages(corpus, 50, np.random.default_rng(1), area_km=(1, 2, False)).areas
    assert drawn is not None and {tuple(area) for area in drawn.tolist()} == {tuple(area) for area in corpus.areas.tolist()}
    assert corpus.of_rows(np.array([1, 0])).areas.tolist() == corpus.areas[[1, 0]].tolist()


def test_reviews_take_the_places_of_their_businesses(tmp_path, capsys):
    businesses, reviews = tmp_path / "business.json", tmp_path / "review.json"
    businesses.write_text("\n".join(json.dumps({"business_id": f"b{i}", "name": "Cafe", "latitude": 40.0 + i, "longitude": -75.0}) for i in range(2)))
    reviews.write_text(
        "\n".join(json.dumps({"review_id": f"r{i}", "business_id": f"b{i % 3}", "text": f"nice {i}", "date": "2018-07-07 22:09:11"}) for i in range(9))
    )
    texts, lat, lon = read_rows(reviews, f"business_id={businesses}")
    assert texts == [f"nice {i}" for i in range(9) if i % 3 < 2] and lat.tolist() == [40.0, 41.0] * 3 and set(lon) == {-75.0}
    assert read_file(reviews, f"business_id={businesses}").times_ms.tolist() == [1_531_001_351_000] * 6
    assert "warning: 3 records of" in capsys.readouterr().err
    with pytest.raises(UsageError, match="expected FIELD=FILE, e.g. business_id=business.json; given: business.json"):
        read_file(reviews, "business.json")
    with pytest.raises(UsageError, match="no record of .* has both the field 'id' and a place"):
        read_file(reviews, f"id={businesses}")
    with pytest.raises(UsageError, match="has no messages; 'dskype inspect"):
        read_file(reviews)


def test_a_dump_of_geonames_has_names_and_alternate_names(tmp_path):
    path = tmp_path / "AD.txt"
    rest = "T\tPK\tAD\t\t00\t\t\t\t0\t\t2860\tEurope/Andorra\t2014-11-05"
    path.write_text(f"1\tPic de Font\tPic de Font\tPic du Port\t42.6\t1.5\t{rest}\n2\tRoc Melé\tRoc Mele\t\t42.5\t1.7\t{rest}\n", encoding="utf-8")
    texts, lat, lon = read_rows(path)
    assert texts == ["Pic de Font\nPic du Port", "Roc Melé\n"] and lat.tolist() == [42.6, 42.5] and lon.tolist() == [1.5, 1.7]


def test_memory_does_not_grow_with_the_size_of_a_file(tmp_path):
    path = tmp_path / "long.json.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for i in range(12_000):
            file.write(json.dumps({"text": "coffee and wifi " * 300 + str(i % 50), "lat": 1.0, "lon": i / 1e5}) + "\n")
    tracemalloc.start()
    try:
        assert sum(1 for _ in messages_of(path)) == 12_000
        read = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert len(read_file(path)) == 12_000
        whole = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read < 16 << 20 and whole < 48 << 20  # the texts are 58 MB


# Command -> options that make it short.
SHORT = {
    "skype": "--only index,time --subscriptions 60 --window 80 --arrivals 40",
    "boolean": "--only tokens-short-points,sorting-short-areas,expressions --subscriptions 200 --messages 64",
    "filters": "--subscriptions 60 --batches 1 --rounds 1",
    "distances": "--subscriptions 60 --window 80 --messages 20 --scales 50000 --rounds 1",
    "balancing": "--evaluators 4 --subscriptions 200 --moves 1 --rate 200 --grid 100",
    "tornado": "--only alternatives --subscriptions 300 --messages 128 --step 64 --sample 200 --repeat 1",
    "ps2stream": "--only throughput --rows hybrid;kd-tree;metric --subscriptions 300 --messages 128 --step 64 --sample 200 --repeat 1",
    "distribution": "--data tweets --only methods --subscriptions 60 --window 80 --arrivals 40 --warm-up 10 --sample 50 --repeat 1 --check 10",
    "routing": "--rounds 1 --cells 100",
}


def _takes_a_file(parser: argparse.ArgumentParser) -> bool:
    return any(action.dest == "messages" and action.metavar == "FILE" for action in parser._actions)


def test_every_benchmark_of_messages_is_run_on_tweets():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    (actions,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for sub in actions.choices.values():
        sub.format_help()  # an action adds its arguments when they are needed
    names = {name for name, sub in actions.choices.items() if _takes_a_file(sub)}
    assert names - {"monitor"} == set(SHORT)  # which downloads Lucene, and reads messages as "filters" does


@pytest.mark.parametrize("name", SHORT)
def test_a_benchmark_runs_on_tweets(name, tweets, capsys):
    assert not cli.main(["bench", name, str(tweets), *SHORT[name].split()])
    printed = capsys.readouterr()
    assert printed.out and ("tweets" in printed.out + printed.err or name in ("filters", "distances"))  # these name no source
