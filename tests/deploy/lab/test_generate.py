"""Generated messages: the same for the same seed, with the statistics that are asked for, readable by the product."""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc

import numpy as np
import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.lab.corpus import read_file
from dskype.deploy.lab.generate import words_of
from dskype.deploy.lab.likeness import BLOCK, LIKE, blocks
from dskype.deploy.lab.likeness_picture import statistics

pytestmark = pytest.mark.lab(seconds=60)


def _generate(path, *words):
    assert not cli.main(["bench", "generate", "-o", str(path), *words])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_seed_gives_the_same_file_and_a_longer_one_begins_with_a_shorter_one(tmp_path):
    a, b, longer = tmp_path / "a.json.gz", tmp_path / "b.json.gz", tmp_path / "longer.json"
    assert _generate(a, "-n", "3000", "--seed", "4") == _generate(b, "-n", "3000", "--seed", "4") != _generate(longer, "-n", str(BLOCK + 10), "--seed", "4")
    assert longer.read_bytes().startswith(gzip.decompress(a.read_bytes())) and len(longer.read_bytes().splitlines()) == BLOCK + 10
    assert _generate(b, "-n", "3000", "--seed", "5") != _generate(a, "-n", "3000", "--seed", "4")


@pytest.mark.parametrize("name", LIKE)
def test_the_product_reads_what_was_drawn(name, tmp_path):
    path = tmp_path / "some.json"
    _generate(path, "--like", name, "-n", "5000", "--seed", "1")
    corpus, (block,) = read_file(path), blocks(LIKE[name], 5000, 1)
    assert (corpus.times_ms == block.ts).all() and (np.diff(block.ts) >= 0).all()
    assert np.abs(corpus.lat - block.lat).max() < 1e-5 and np.abs(corpus.lon - block.lon).max() < 1e-5
    owner = np.repeat(np.arange(5000), np.diff(block.offsets))
    assert len(corpus.terms) == len(np.unique(owner * LIKE[name].vocabulary + block.ranks)) and len(corpus.vocabulary) == len(np.unique(block.ranks))


@pytest.mark.parametrize(("name", "words"), [("tweets", 9), ("gn", 7), ("yelp", 37)])
def test_messages_have_as_many_words_as_those_of_the_paper(name, words):
    found = statistics(LIKE[name], 20_000, seed=2)
    assert found.lengths.mean() == pytest.approx(words, rel=0.05)
    middle = len(found.counts) // 100
    assert found.counts[0] > 20 * found.counts[middle] > 20  # a heavy tail
    assert found.lifts[len(found.lifts) // 50] > 3  # some words belong together


def test_words_are_all_different():
    words = words_of(1_020_100).to_pylist()
    assert len(set(words)) == len(words) == 1_020_100 and words[0] == "ba" and len(words[-1]) == 8


def test_places_are_crowded_and_topics_belong_to_places():
    made = list(blocks(LIKE["tweets"], BLOCK, 3))
    cells = np.floor(made[0].lat * 4) * 10_000 + np.floor(made[0].lon * 4)
    counts = np.sort(np.unique(cells, return_counts=True)[1])[::-1]
    assert counts[: len(counts) // 100].sum() > BLOCK / 4
    there = cells == np.unique(cells)[np.argmax(np.unique(cells, return_counts=True)[1])]
    ranks, owner = made[0].ranks, np.repeat(there, np.diff(made[0].offsets))
    middle = (ranks >= 1023) & (ranks < 2047)
    inside, outside = (np.sort(np.bincount(ranks[middle & some] - 1023, minlength=1024))[::-1] for some in (owner, ~owner))
    assert inside[:64].sum() / inside.sum() > 1.5 * outside[:64].sum() / outside.sum()


def test_drift_changes_the_largest_city_and_leaves_the_law_of_words():
    still, drifting = (list(blocks(LIKE["tweets"], 4 * BLOCK, 6, drift)) for drift in (0, BLOCK))

    def largest(block):
        cells, counts = np.unique(np.floor(block.lat * 4) * 10_000 + np.floor(block.lon * 4), return_counts=True)
        return cells[np.argmax(counts)]

    assert len({largest(block) for block in drifting}) > len({largest(block) for block in still[:1]})
    top = [np.sort(np.bincount(np.concatenate([block.ranks for block in made])))[::-1][:200] for made in (still, drifting)]
    assert np.abs(top[0] / top[1] - 1).max() < 0.35


def test_memory_does_not_grow_with_the_number():
    peaks = []
    for n in (2 * BLOCK, 8 * BLOCK):
        tracemalloc.start()
        for _ in blocks(LIKE["tweets"], n):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_picture_compares_with_a_file(tmp_path, capsys):
    file, picture = tmp_path / "some.json", tmp_path / "some.png"
    _generate(file, "-n", "2000")
    assert not cli.main(["bench", "generate", "--like", "gn", "--picture", str(picture), "--beside", str(file)])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_a_file_there_is_an_error(capsys):
    assert cli.main(["bench", "generate"]) == 1
    assert "expected -o FILE, --picture FILE.png or both" in capsys.readouterr().err
