"""How frequent words are, for clients: as the vocabulary of topologies says, from the same file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dskype.spouts.frequencies import Frequencies
from dskype.spouts.text import WORD_RULE, Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException


def test_shares_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    rng, words = random.Random(3), ["lake", "Straße", "café", "漢", "\U0001d54f", "9", *(f"w{n}" for n in range(200))]
    vocabulary = Vocabulary.build([" ".join(rng.choices(words, k=5)) for _ in range(300)], Tokenizer())
    vocabulary.save(tmp_path / "v")
    frequencies = Frequencies.load(str(tmp_path / "v"))
    asked = [token for word in [*words, "unknown", ""] for token in (word, *Tokenizer().tokens(word))]
    assert [frequencies.share(word) for word in asked] == [vocabulary.share(word) for word in asked]
    assert len({frequencies.share(word) for word in asked}) > 5


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"lake 3\n", "line 2: expected one word, a tab and a document frequency from 1 to 9"),
        (b"a\t1\nlake\t10\n", "line 3: expected one word"),
        (b"lake\t0\n", "line 2"),
        (b"lake\t\xd9\xa3\n", "line 2"),
        (b"lake\t" + b"1" * 5000 + b"\n", "line 2"),
        (b"lake\t3", "line 2: expected a line feed at the end"),
        (b"a\t1\n\xff\t3\n", "line 3: expected UTF-8"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused_with_the_line(tmp_path: Path, body: bytes, says: str) -> None:
    file = tmp_path / "v"
    file.write_bytes(b'{"documents": 9, "words": %d}\n' % WORD_RULE + body)
    with pytest.raises(IllegalArgumentException, match=says):
        Frequencies.load(str(file))


def test_a_file_of_another_word_rule_or_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v").write_text('{"documents": 9, "words": 1}\na\t1\n')
    with pytest.raises(IllegalArgumentException, match=f"expected rule {WORD_RULE}"):
        Frequencies.load(str(tmp_path / "v"))
    with pytest.raises(IllegalArgumentException, match="Cannot read the vocabulary file"):
        Frequencies.load(str(tmp_path / "missing"))
