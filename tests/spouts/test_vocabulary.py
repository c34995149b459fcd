"""Vocabularies: the file, the ids, and weights against the plain ones."""

import doctest
import hashlib
import itertools
import os
import random
import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dskype.spouts import _kernels
from dskype.spouts import vocabulary as module
from dskype.spouts.text import Tokenizer, folded_characters
from dskype.spouts.vocabulary import Vocabulary, unknown_id
from dskype.topology.errors import IllegalArgumentException
from tests import naive

JIT = not os.environ.get("NUMBA_DISABLE_JIT")
WORDS = ["coffee", "tea", "wifi", "Café", "STRASSE", "straße", "東京", "i\u0307", "night", "late", "x1", "7", "𝒞𝑜", "a" * 130, "naïve", "the"]
SEPARATORS = [" ", ", ", "-", "😀", "\u00a0", "!? ", "_"]


def random_texts(rng, n, words=WORDS, longest=14):
    texts = []
    for _ in range(n):
        some = [rng.choice(words) if rng.random() < 0.8 else f"w{rng.randrange(40)}" for _ in range(rng.choice([0, 1, 2, 5, longest]))]
        if rng.random() < 0.6:
            some = [w for w in some if w.isascii()]
        texts.append("".join(w + rng.choice(SEPARATORS if rng.random() < 0.3 else SEPARATORS[:3]) for w in some))
    return texts


def vocabulary_of(texts, tokenizer=Tokenizer()):
    return Vocabulary.build(texts, tokenizer)


def plain_df(texts, tokenizer=Tokenizer()):
    return Counter(term for text in texts for term in set(tokenizer.tokens(text)))


def lines(*rows, documents=9):
    return f'{{"documents": {documents}, "words": 2}}\n' + "".join(f"{row}\n" for row in rows)


# -- ids ------------------------------------------------------------------------------------------


def test_ids_are_ranks_by_document_frequency_and_term():
    texts = random_texts(random.Random(1), 400)
    vocabulary, df = vocabulary_of(texts), plain_df(texts)
    terms = sorted(df, key=lambda term: (df[term], term))
    assert vocabulary.documents == 400 and len(vocabulary) == len(terms) > 40
    assert [vocabulary.term(i) for i in range(len(vocabulary))] == terms
    assert vocabulary.ids(terms).tolist() == list(range(len(terms)))
    assert vocabulary.df(np.arange(len(terms))).tolist() == [df[t] for t in terms]


def test_a_text_counts_once_for_each_of_its_terms_and_one_without_terms_counts_as_a_document():
    vocabulary = vocabulary_of(["tea tea TEA", "tea coffee", "", "!"])
    assert vocabulary.documents == 4 and len(vocabulary) == 2
    assert vocabulary.df(vocabulary.ids(["coffee", "tea"])).tolist() == [1, 2]


def test_stop_words_are_not_in_a_vocabulary():
    assert [vocabulary_of(["the tea"], Tokenizer(["The"])).term(i) for i in range(2)] == ["tea", None]


def test_an_unknown_term_has_a_negative_id_that_depends_on_nothing_but_the_term():
    golden = {
        "zythum": -4365377727431255531,
        "": -4119008146064567470,
        "東京": -1 - (int.from_bytes(hashlib.blake2b("東京".encode(), digest_size=8).digest(), "big") >> 2),
    }
    for vocabulary in (Vocabulary.empty(), vocabulary_of(["coffee"])):
        assert vocabulary.ids(list(golden)).tolist() == list(golden.values()) == [unknown_id(term) for term in golden]
        assert vocabulary.df(list(golden.values())).tolist() == [1, 1, 1]
        assert vocabulary.term(golden["zythum"]) is None


def test_unknown_ids_are_blake2b_for_every_length():
    terms = ["".join(random.Random(n).choices("abcdefgé東", k=n)) for n in range(300)]
    assert Vocabulary.empty().ids(terms).tolist() == [unknown_id(t) for t in terms]
    assert all(-(1 << 62) <= unknown_id(t) < 0 for t in terms)


def test_the_empty_vocabulary_has_one_document_and_no_terms():
    empty = Vocabulary.empty()
    assert (empty.documents, len(empty), empty.term(0)) == (1, 0, None)
    assert empty.ids([]).dtype == np.int64 and len(empty.ids([])) == 0
    assert vocabulary_of([]).documents == 1


@pytest.mark.long
def test_look_up_finds_all_of_many_terms_and_no_others():
    terms = sorted({f"t{random.Random(i).randrange(10**9)}" for i in range(20_000)})
    vocabulary = vocabulary_of([" ".join(terms)])
    assert vocabulary.ids(terms).tolist() == list(range(len(terms)))
    assert (vocabulary.ids([t + "x" for t in terms]) < 0).all()
    assert vocabulary.memory_bytes < 40 * len(terms)


def folded(texts):
    """Return, by text, its tokens as the kernel cuts them; None where it does not."""
    data, starts, ends = module._bytes_of(pa.array(texts, pa.string()) if not isinstance(texts, pa.Array) else texts)
    found, stops, counts, simple = _kernels.fold_texts(data, starts, ends, folded_characters())
    tokens = [found[a:b].tobytes().decode().split() for a, b in zip(starts.tolist(), stops.tolist())]
    borders = [found[a:b].tobytes().count(b"\x1f") for a, b in zip(starts.tolist(), stops.tolist())]
    assert all(len(part) + border == n for part, border, n, whole in zip(tokens, borders, counts.tolist(), simple.tolist()) if whole)
    return [part if whole else None for part, whole in zip(tokens, simple.tolist())]


@pytest.mark.long
def test_what_is_cut_character_by_character_is_cut_as_by_the_tokenizer():
    tokenizer = Tokenizer()
    points = [*range(0xD800), *range(0xE000, 0x10000)][:: 1 if JIT else 31]
    texts = [f"a{chr(c)}{chr(c)} ga\u30ab{chr(c)}x\u1100{chr(c)}" for c in points]  # what stands before may be composed with it
    cut = folded(texts)
    assert sum(found is not None for found in cut) > 0.9 * len(texts)
    for text, found in zip(texts, cut):
        assert found is None or found == tokenizer.tokens(text), ascii(text)
    assert folded(["Grüße", "ЁЛКА in Köln", "x\u0301", "한국 \u1112\u1161", "𝒞o"]) == [None, ["ёлка", "in", "köln"], None, None, None]


def test_half_a_character_is_left_to_the_tokenizer():
    for broken in (b"a\xc3", b"\xa9a", b"\xe3\x81", b"\xe3a\x81", b"\xc1\x81", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xff"):
        offsets = pa.py_buffer(np.array([0, len(broken), len(broken) + 2], np.int32))
        assert folded(pa.StringArray.from_buffers(2, offsets, pa.py_buffer(broken + b"tea"))) == [None, ["te"]], broken


# -- weights --------------------------------------------------------------------------------------


def by_term(vocabulary, ids, weights, tokens):
    names = dict(zip(vocabulary.ids(tokens).tolist(), tokens))
    return {names[i]: w for i, w in zip(ids.tolist(), weights.tolist())}


def test_weights_are_the_plain_tf_idf_weights_of_unit_norm():
    rng = random.Random(2)
    sample = random_texts(rng, 300)
    vocabulary, df = vocabulary_of(sample[:150]), plain_df(sample[:150])
    for text in sample:
        tokens = Tokenizer().tokens(text)
        ids, weights = vocabulary.weigh(tokens)
        assert (np.diff(ids) > 0).all()
        if tokens:
            expected = naive.norm_weights(Counter(tokens), df, 150)
            assert by_term(vocabulary, ids, weights, tokens) == pytest.approx(expected, rel=1e-13)
            assert np.dot(weights, weights) == pytest.approx(1, rel=1e-13)


def test_the_norm_is_summed_in_rising_order_of_the_ids():
    vocabulary = vocabulary_of(random_texts(random.Random(3), 200))
    tokens = ["coffee", "tea", "zz", "yy", "wifi", "coffee", "night", "xx"]
    ids, weights = vocabulary.weigh(tokens)
    raw = [Counter(vocabulary.ids(tokens).tolist())[i] * np.log(1 + vocabulary.documents / df) for i, df in zip(ids.tolist(), vocabulary.df(ids))]
    total = 0.0
    for w in raw:
        total += w * w
    assert weights.tolist() == pytest.approx([w / np.sqrt(total) for w in raw], rel=2e-16)


def rows_of(result):
    offsets, terms, weights = result
    assert offsets.dtype == terms.dtype == np.int64 and weights.dtype == np.float64 and offsets[0] == 0 and offsets[-1] == len(terms) == len(weights)
    return [(terms[a:b].tobytes(), weights[a:b].tobytes()) for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize("stop_words", [(), ("the", "STRASSE", "w7")])
@pytest.mark.parametrize("known", [0, 100, 600])
def test_many_texts_weigh_the_same_as_each_alone_to_the_last_bit_however_they_are_batched(known, stop_words):
    rng = random.Random(known)
    tokenizer = Tokenizer(stop_words)
    texts = random_texts(rng, 600, longest=60)
    vocabulary = Vocabulary.build(texts[:known], tokenizer) if known else Vocabulary.empty()
    alone = [tuple(a.tobytes() for a in vocabulary.weigh(tokenizer.tokens(text))) for text in texts]
    assert rows_of(vocabulary.weigh_texts(texts, tokenizer)) == alone
    at, found = 0, []
    while at < len(texts):
        n = rng.choice([1, 2, 7, 50])
        found += rows_of(vocabulary.weigh_texts(texts[at : at + n], tokenizer))
        at += n
    assert found == alone


def plain_order(text, terms, vocabulary, stop_words):
    """Return the order of a text's words, one field and one word at a time."""
    order = []
    for number, field in enumerate(text.split("\x1f")):
        words = naive.words(field)
        found = vocabulary.ids(words).tolist()
        order += [-2] * (number > 0) + [-1 if word in stop_words else terms.index(id_) for word, id_ in zip(words, found)]
    return order


def orders_of(analyzed):
    assert analyzed.order_offsets.dtype == np.int64 and analyzed.order.dtype == np.int16 and analyzed.order_offsets[-1] == len(analyzed.order)
    return [analyzed.order[a:b].tolist() for a, b in itertools.pairwise(analyzed.order_offsets.tolist())]


@pytest.mark.long
@pytest.mark.parametrize("stop_words", [(), ("the", "strasse", "w7")])
@pytest.mark.parametrize("known", [0, 300])
def test_the_order_of_words_is_the_plain_one_in_any_batch(known, stop_words):
    rng = random.Random(known)
    tokenizer = Tokenizer(stop_words)
    texts = ["\x1f".join(random_texts(rng, rng.choice([1, 1, 2, 4]), longest=80)) for _ in range(400)] + [
        "",
        "\x1f",
        "\x1f\x1fthe",
        "the the",
        "é\x1fthe\u0301",
    ]
    vocabulary = Vocabulary.build(texts[:known], tokenizer) if known else Vocabulary.empty()
    found = vocabulary.analyze(texts, tokenizer)
    assert rows_of(found[:3]) == rows_of(vocabulary.weigh_texts(texts, tokenizer))
    terms = [found.terms[a:b].tolist() for a, b in itertools.pairwise(found.offsets.tolist())]
    assert max(map(len, terms)) > 32 > min(map(len, terms))  # both ways to find a term's place
    assert orders_of(found) == [plain_order(text, its, vocabulary, stop_words) for text, its in zip(texts, terms)]
    for first in range(0, len(texts), 37):
        assert orders_of(vocabulary.analyze(texts[first : first + 37], tokenizer)) == orders_of(found)[first : first + 37]


def test_a_text_of_more_words_than_an_order_can_tell_is_refused():
    text = " ".join(f"w{i}" for i in range(32_768))
    found = Vocabulary.empty().analyze(["tea", text], Tokenizer())
    assert found.order[1:].max() == 32_767 and found.terms[1:][found.order[1:]].tolist() == Vocabulary.empty().ids(text.split()).tolist()
    with pytest.raises(IllegalArgumentException, match="at most 32768 different words; given: 32769"):
        Vocabulary.empty().analyze(["tea", f"{text} more"], Tokenizer())


def test_the_words_of_no_text_have_no_order():
    for texts in ([], [None, "", "?!"]):
        found = Vocabulary.empty().analyze(texts, Tokenizer())
        assert found.order_offsets.tolist() == [0] * (len(texts) + 1) and len(found.order) == 0


def test_texts_weigh_the_same_whatever_holds_them():
    texts = ["tea Coffee", "", "東京 tea", "!!", "wifi " * 50]
    vocabulary, tokenizer = vocabulary_of(texts[:3]), Tokenizer()
    expected = rows_of(vocabulary.weigh_texts(texts, tokenizer))
    array = pa.array(["skipped", *texts, "skipped"])
    for held in (
        tuple(texts),
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        pa.array(texts, pa.string_view()),
        array[1:-1],
        pa.chunked_array([texts[:2], texts[2:]]),
        np.array(texts, object),
        pa.array(texts).dictionary_encode(),
    ):
        assert rows_of(vocabulary.weigh_texts(held, tokenizer)) == expected


def test_a_text_without_tokens_and_no_text_are_empty_rows():
    for texts in ([None, "", "?!", "😀"], pa.array([None, "", "?!", "😀"])):
        offsets, terms, weights = Vocabulary.empty().weigh_texts(texts, Tokenizer())
        assert offsets.tolist() == [0] * 5 and len(terms) == len(weights) == 0
    for texts in ([], pa.array([], pa.string()), pa.array([None, None], pa.string())):
        assert Vocabulary.empty().weigh_texts(texts, Tokenizer())[0].tolist() == [0] * (len(texts) + 1)
    assert [len(a) for a in Vocabulary.empty().weigh([])] == [0, 0]


def test_half_a_surrogate_pair_separates_tokens():
    vocabulary = Vocabulary.empty()
    assert rows_of(vocabulary.weigh_texts(["tea \udc00wifi", None], Tokenizer())) == rows_of(vocabulary.weigh_texts(["tea wifi", ""], Tokenizer()))


def test_a_long_text_weighs_as_its_parts_say():
    text = " ".join(f"w{i % 5000}" for i in range(50_000))
    ids, weights = Vocabulary.empty().weigh_texts([text], Tokenizer())[1:]
    assert len(ids) == 5000 and (np.diff(ids) > 0).all() and weights == pytest.approx(1 / 5000**0.5)


def test_threads_share_a_vocabulary():
    texts = random_texts(random.Random(8), 300)
    vocabulary, tokenizer, found = vocabulary_of(texts), Tokenizer(["the"]), []
    threads = [threading.Thread(target=lambda: found.append(rows_of(vocabulary.weigh_texts(texts, tokenizer)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(f == found[0] for f in found)


# -- the file -------------------------------------------------------------------------------------


def test_the_file_says_how_many_documents_and_then_each_term_by_rising_document_frequency(tmp_path):
    vocabulary_of(["tea coffee", "Tea été", "tea"]).save(tmp_path / "v.tsv")
    assert (tmp_path / "v.tsv").read_bytes() == '{"documents": 3, "words": 2}\ncoffee\t1\nété\t1\ntea\t3\n'.encode()


def test_a_vocabulary_is_the_same_after_saving_and_loading(tmp_path):
    texts = random_texts(random.Random(4), 500)
    for vocabulary in (vocabulary_of(texts), Vocabulary.empty()):
        vocabulary.save(tmp_path / "v.tsv")
        loaded = Vocabulary.load(tmp_path / "v.tsv")
        assert (loaded.documents, len(loaded)) == (vocabulary.documents, len(vocabulary))
        assert rows_of(loaded.weigh_texts(texts, Tokenizer())) == rows_of(vocabulary.weigh_texts(texts, Tokenizer()))
        assert [loaded.term(i) for i in range(len(loaded))] == [vocabulary.term(i) for i in range(len(loaded))]


def test_a_file_is_loaded_once_until_it_changes(tmp_path):
    path = tmp_path / "v.tsv"
    vocabulary_of(["tea"]).save(path)
    first = Vocabulary.load(path)
    os.symlink(path, tmp_path / "link")
    assert Vocabulary.load(str(path)) is first and Vocabulary.load(tmp_path / "link") is first
    vocabulary_of(["tea", "tea coffee"]).save(path)
    second = Vocabulary.load(path)
    assert second is not first and second.documents == 2 and Vocabulary.load(path) is second


def test_a_file_that_cannot_be_written_completely_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "v.tsv"
    vocabulary_of(["tea"]).save(path)
    before = path.read_bytes()

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        vocabulary_of(["tea", "coffee"]).save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["v.tsv"]


MALFORMED = {
    "empty": ("", 1, "documents"),
    "no number of documents": ("tea\t1\n", 1, "documents"),
    "no object": ("[3]\n", 1, "documents"),
    "no documents": ('{"documents": 0}\n', 1, "integer N >= 1"),
    "a boolean number of documents": ('{"documents": true}\n', 1, "integer N >= 1"),
    "a fraction of documents": ('{"documents": 3.5}\n', 1, "integer N >= 1"),
    "no tab": (lines("tea\t1", "coffee 2"), 3, "one word"),
    "only a term": (lines("tea"), 2, "a tab and the document frequency"),
    "an empty line": (lines("coffee\t1", "", "tea\t1"), 3, "one word"),
    "an empty term": (lines("\t1"), 2, "makes no word of it"),
    "a term in upper case": (lines("Tea\t1"), 2, "the tokenizer makes 'tea' of it"),
    "a term with a space": (lines("green tea\t1"), 2, "makes 'green', 'tea' of it"),
    "no frequency": (lines("tea\t"), 2, "integer"),
    "a word as frequency": (lines("tea\tmany"), 2, "integer"),
    "a fraction as frequency": (lines("tea\t1.5"), 2, "integer"),
    "a negative frequency": (lines("tea\t-1"), 2, "integer"),
    "leading zeros": (lines("tea\t01"), 2, "integer"),
    "two frequencies": (lines("tea\t1\t2"), 2, "integer"),
    "carriage returns": (lines("tea\t1\r"), 2, "integer"),
    "a frequency of zero": (lines("tea\t0"), 2, "from 1 to 9"),
    "more than all documents": (lines("tea\t10"), 2, "from 1 to 9"),
    "a huge frequency": (lines("tea\t99999999999999999999"), 2, "integer"),
    "a frequency beyond 32 bits": (lines("tea\t3000000000", documents=4000000000), 2, "from 1 to"),
    "falling frequencies": (lines("tea\t2", "coffee\t1"), 3, "rising document frequency"),
    "terms out of order": (lines("b\t1", "a\t1"), 3, "ties by term"),
    "a prefix after": (lines("tea\t1", "te\t1"), 3, "ties by term"),
    "a term at once again": (lines("tea\t1", "tea\t1"), 3, "ties by term"),
    "a term again": (lines("tea\t1", "coffee\t2", "tea\t3"), 4, "each term once"),
    "cut off": (lines("coffee\t1") + "tea\t1", 3, "cut off"),
    "cut off in the first line": ('{"documents": 3', 1, "documents"),
}


@pytest.mark.parametrize("content, line, words", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_with_the_number_of_the_line(tmp_path, content, line, words):
    (tmp_path / "v.tsv").write_text(content, newline="")
    with pytest.raises(IllegalArgumentException) as e:
        Vocabulary.load(tmp_path / "v.tsv")
    assert f"v.tsv, line {line}: expected " in str(e.value) and words in str(e.value) and "given: " in str(e.value)


def test_a_file_that_is_not_utf_8_is_refused_with_the_number_of_the_line(tmp_path):
    (tmp_path / "v.tsv").write_bytes(b'{"documents": 9, "words": 2}\ncoffee\t1\nt\xe9\t1\n')
    with pytest.raises(IllegalArgumentException, match=r"line 3: expected UTF-8.*\\xe9"):
        Vocabulary.load(tmp_path / "v.tsv")


@pytest.mark.parametrize(
    "term",
    ["cafe\u0301", "ß", "ﬁne", "Σ", "İ", "①", "Ａ", "\u212a", "x\u00ad", "\ufe0f", "葛\U000e0100城", "\u093fक", "été!", "caf\u00e9 noir", "𝒞", "☕", "1\u20e3"],
)
def test_a_term_that_no_text_can_have_is_refused_with_what_the_tokenizer_makes_of_it(tmp_path, term):
    (tmp_path / "v.tsv").write_text(lines("coffee\t1", f"{term}\t2", "été\t3"), newline="")
    assert Tokenizer().tokens(term) != [term]
    with pytest.raises(
        IllegalArgumentException, match=r"v\.tsv, line 3: expected one word as the tokenizer makes it, then a tab; given: '.*; hint: no text has this word"
    ):
        Vocabulary.load(tmp_path / "v.tsv")


def test_terms_of_all_scripts_are_loaded(tmp_path):
    words = ["हिन्दी", "ภาษาไทย", "東京タワー", "𠀀𠀁", "i\u0307stanbul", "می" + "خواهم", "二〇二六", "ῥόδον"]
    (tmp_path / "v.tsv").write_text(lines(*(f"{word}\t{i}" for i, word in enumerate(words, 1))), newline="")
    loaded = Vocabulary.load(tmp_path / "v.tsv")
    assert loaded.ids(words).tolist() == list(range(8)) == loaded.ids(Tokenizer().tokens(" ".join(words))).tolist()


@pytest.mark.parametrize(
    ("head", "given"),
    [('{"documents": 9}', 1), ('{"documents": 9, "words": 1}', 1), ('{"documents": 9, "words": 3}', 3), ('{"documents": 9, "words": "2"}', "'2'")],
)
def test_a_vocabulary_by_other_rules_for_words_is_refused_by_name(tmp_path, head, given):
    (tmp_path / "v.tsv").write_text(f"{head}\ntea\t1\n")
    with pytest.raises(
        IllegalArgumentException,
        match=rf"v\.tsv was made with other rules for words.*: expected rule 2; given: {given}; hint: build it again: dskype vocabulary build",
    ):
        Vocabulary.load(tmp_path / "v.tsv")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(IllegalArgumentException, match="Cannot read the vocabulary file; given: '.*none.tsv'.*No such file"):
        Vocabulary.load(tmp_path / "none.tsv")


def test_a_vocabulary_cannot_be_written_to():
    vocabulary = vocabulary_of(["tea coffee"])
    assert not any(a.flags.writeable for a in (*vocabulary._table, vocabulary._df))


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0
