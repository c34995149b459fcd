"""Programs of random expressions against a plain evaluation of the same messages, and their keeping by slot."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.boolean import INDEXES
from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.filter_kernels import LINE
from dskype.bolts.filters import Filters
from dskype.bolts.message_queue import Arrived
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.attributes import term_hash, value_hash
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.expression import words
from dskype.spouts.expression_parser import parse
from dskype.spouts.filters import EVERY_MESSAGE, VERSION, compile_filter, compile_program, is_wordless
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException
from tests import languages, naive

SETTINGS = Settings.from_conf(languages.CONF)
VOCABULARY = languages.vocabulary()


def compiled(tree, settings=SETTINGS):
    return compile_filter(tree, VOCABULARY.ids_of(words(tree)), settings.language.fields)


def terms_of(batch):
    return [set(batch.terms[a:b].tolist()) for a, b in zip(batch.offsets.tolist(), batch.offsets[1:].tolist())]


def decide(programs, messages, settings=SETTINGS):
    """Return for each program which messages satisfy it, bool[programs, messages]."""
    batch, details, _ = languages.analyzed(messages, settings, VOCABULARY)
    filters = Filters()
    for slot, program in enumerate(programs):
        if program is not None:
            filters.set(slot, program)
    slots, rows = np.divmod(np.arange(len(programs) * len(messages), dtype=np.int32), np.int32(len(messages)))
    found = filters.satisfying(batch, details, extra := MessageTerms(settings).of(details), rows, slots)
    for kept, all_of in zip(filters.keep(batch, details, extra, rows, slots), (rows, slots)):
        assert kept.dtype == np.int32 and kept.tolist() == all_of[found].tolist()
    return found.reshape(len(programs), len(messages))


def check(trees, messages, settings=SETTINGS):
    """Check that conditions are necessary and that programs decide; return how many pairs hold, and how many only meet the condition."""
    found = [compiled(tree, settings) for tree in trees]
    decided = decide([one.program for one in found], messages, settings)
    terms = terms_of(languages.analyzed(messages, settings, VOCABULARY)[2])
    held = candidates = 0
    for tree, one, satisfied in zip(trees, found, decided.tolist()):
        for message, own, result in zip(messages, terms, satisfied):
            expected, candidate = naive.holds(tree, message, settings.stop_words), naive.satisfies(one.condition, own)
            assert candidate or not expected, (tree, message)
            assert (candidate and (one.program is None or result)) == expected, (tree, message)  # programs see candidates only
            held, candidates = held + expected, candidates + candidate
    return held, candidates - held


@pytest.mark.long
@pytest.mark.parametrize("depth", range(6))
def test_programs_decide_as_the_plain_evaluation_and_their_conditions_are_necessary(depth):
    rng = random.Random(depth)
    trees = [languages.random_expression(rng, languages.WHOLE, depth) for _ in range(150 if depth < 5 else 60)]
    held, others = check(trees, [languages.random_message(rng) for _ in range(60)])
    assert held > 300 and others > 300


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [{"dskype.text.fields": []}, {"dskype.boolean.prefixes": False}, {"dskype.stop.words": []}, {"dskype.attributes": {}}],
    ids=["one text", "no prefixes", "no stop words", "no attributes"],
)
def test_programs_decide_with_other_settings(more):
    settings, rng = Settings.from_conf(languages.CONF | more), random.Random(7)
    trees = [languages.random_expression(rng, settings.language, 3) for _ in range(150)]
    check(trees, [languages.random_message(rng, settings.text_fields) for _ in range(60)], settings)


@pytest.mark.long
def test_without_wordless_subscriptions_words_and_prefixes_lead_to_all_others():
    settings, rng = Settings.from_conf(languages.CONF | {"dskype.boolean.wordless": False}), random.Random(8)
    trees = [tree for tree in (languages.random_expression(rng, settings.language, 3) for _ in range(600)) if not is_wordless(tree)]
    assert len(trees) > 150
    check(trees, [languages.random_message(rng) for _ in range(60)], settings)


def nested(rng, depth):
    if not depth:
        return rng.choice(languages.WORDS[:4])
    inside = [nested(rng, depth - 1), *rng.choices(languages.WORDS[:4], k=2)]
    rng.shuffle(inside)
    return rng.choice([["atleast", 2, *inside], ["not", ["atleast", 2, *inside]], ["not", ["and", *inside]], ["or", *inside]])


@pytest.mark.long
def test_deep_trees_of_not_and_atleast():
    rng = random.Random(9)
    held, _ = check([nested(rng, depth) for depth in range(1, 16) for _ in range(6)], [languages.random_message(rng) for _ in range(60)])
    assert held > 1000


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ('"late night"', "Late, night!", True),
        ('"late night"', "night late", False),
        ('"late night"', "late the night", False),
        ('"late night"~1', "late the night", True),
        ('"late the night"', "late night", False),
        ('"late the night"', "late blue night", True),
        ('"late _ night"', "late the night", True),
        ('"late _ night"', "late a b night", False),
        ('"late _ night"~1', "late a b night", True),
        ('"late _ night"~1', "late night", False),
        ('"late late"', "late", False),
        ('"late late"', "late late", True),
        ('"late night late"~2', "late x night x late", True),
        ('"late night late"~2', "late x night x x late", False),
        ('"late night late"~2', "late late x x night late night x late", True),
        ('"the late"', "late", True),
        ("wi-fi", "wi fi", True),
        ("wi-fi", "fi wi", False),
        ("NOT wi-fi", "wifi", True),
        ('"late zythum"', "late zythum", True),
        ('"zythum zythum"~100', "zythum" + " x" * 100 + " zythum", True),
        ('"zythum zythum"~100', "zythum" + " x" * 101 + " zythum", False),
        ('"late night"', "late\x1fnight", False),
        ('"late night"~5', "late \x1f x \x1f night", False),
    ],
)
def test_phrases(expression, text, expected):
    settings = Settings.from_conf({"dskype.stop.words": ["the"]})
    tree = parse(expression, Tokenizer(["the"]))
    message = {"text": text, "attributes": {}}
    assert naive.holds(tree, message, ["the"]) == expected
    program = compiled(tree, settings).program
    if program is not None:
        assert decide([program], [message], settings).tolist() == [[expected]]


@pytest.mark.long
def test_phrases_over_few_words_in_texts_that_repeat_them():
    rng, settings = random.Random(13), Settings.from_conf({"dskype.stop.words": ["the"]})
    messages = [
        {"text": "\x1f".join(" ".join(rng.choices(["a", "b", "c", "the"], k=rng.randrange(11))) for _ in range(2)), "attributes": {}} for _ in range(40)
    ]
    trees = []
    for _ in range(300):
        places = np.cumsum([0, *rng.choices([1, 1, 2, 4], k=rng.randrange(1, 4))]).tolist()
        trees.append(["phrase", rng.choice([0, 0, 1, 2, 3, 8]), places, rng.choices(["a", "b", "c"], k=len(places))])
    held, others = check(trees, messages, settings)
    assert held > 1000 and others > 1000


def test_a_phrase_of_as_many_words_as_there_may_be():
    settings = Settings.from_conf({"dskype.expression.max.terms": 1000})
    long = [f"w{i % 7}" for i in range(1000)]
    tree = parse(f'"{" ".join(long)}"', Tokenizer(), settings.language)
    texts = [" ".join(long), " ".join(["x", *long, "y"]), " ".join(long[:-1]), " ".join([*long[:500], "x", *long[500:]]), " ".join(long[1:] + long[:1])]
    found = decide([compiled(tree, settings).program], [{"text": text, "attributes": {}} for text in texts], settings)
    assert found.tolist() == [[True, True, False, False, False]]


@pytest.mark.long
def test_filters_are_kept_by_slot():
    rng, filters, programs = random.Random(10), Filters(), {}

    def whole(tree):
        return compile_program(tree, VOCABULARY.ids_of(words(tree)), SETTINGS.language.fields)

    trees = [tree for tree in (languages.random_expression(rng, depth=3) for _ in range(300)) if compiled(tree).program is not None]
    messages = [languages.random_message(rng) for _ in range(8)]
    batch, details, _ = languages.analyzed(messages, SETTINGS, VOCABULARY)
    extra = MessageTerms(SETTINGS).of(details)
    expected = [[naive.holds(tree, m, SETTINGS.stop_words) for m in messages] for tree in trees]
    assert not filters
    lengths = {len(whole(tree)) - 1 for tree in trees}
    assert {LINE - 1, LINE, LINE + 1} <= lengths and min(lengths) < 4  # some fit into a line, and some only just
    for step in range(400):
        slot = rng.choice([rng.randrange(8), rng.randrange(400)])
        if slot in programs or (programs and rng.random() < 0.3):
            slot = slot if slot in programs else rng.choice(list(programs))
            del programs[slot]
            filters.clear(slot)
        elif rng.random() < 0.1:
            filters.clear(slot)  # an empty slot stays empty
        else:
            programs[slot] = rng.randrange(len(trees))
            filters.set(slot, whole(trees[programs[slot]]))
        assert bool(filters) == bool(programs)
        if step % 10 == 0:
            state, filters = unpack_state(pack_state(filters.snapshot())), Filters()
            filters.restore(state)
        slots = np.array([*programs, *rng.sample(range(500), 5)], np.int32).repeat(len(messages))
        rows = np.tile(np.arange(len(messages), dtype=np.int32), len(slots) // len(messages))
        wanted = [not programs or slot not in programs or expected[programs[slot]][row] for slot, row in zip(slots.tolist(), rows.tolist())]
        assert filters.satisfying(batch, details, extra, rows, slots).tolist() == wanted
    assert 0 < len(filters._steps) < 8 * sum(len(whole(trees[i])) for i in programs.values()) + 128
    filters.restore(None)
    assert not filters


def test_a_program_of_another_version_is_refused():
    for version in (VERSION - 1, VERSION + 1):
        with pytest.raises(IllegalArgumentException, match=f"another format. given: {version}; legal: {VERSION}"):
            Filters().set(0, [version, 1, 7])


@pytest.mark.long
@pytest.mark.parametrize("index", sorted(INDEXES))
def test_subscriptions_match_the_messages_that_satisfy_them_with_every_index(index):
    rng, settings = random.Random(11), Settings.from_conf(languages.CONF | {"dskype.boolean.index": index})
    subscriptions, trees = BooleanSubscriptions(settings), {}
    matched = 0
    for step in range(40):
        for _ in range(rng.randrange(8)):
            if trees and rng.random() < 0.3:
                slot = rng.choice(list(trees))
                del trees[slot]
                subscriptions.forget(slot)
                continue
            tree = ["all"] if rng.random() < 0.1 else languages.random_expression(rng, languages.WHOLE, 2)
            condition, program = compiled(tree)
            subscription = BooleanSubscription([-1, -1, 1, 1], condition, None, None, program)
            trees[subscriptions.open(f"s{step}", f"0-{step}", subscription)] = tree
        if step % 8 == 7:
            state, subscriptions = unpack_state(pack_state(subscriptions.snapshot())), BooleanSubscriptions(settings)
            subscriptions.restore(state)
        messages = [languages.random_message(rng) for _ in range(5)]
        batch, details, _ = languages.analyzed(messages, settings, VOCABULARY)
        rows, slots, _ = subscriptions.match(Arrived(batch, pa.array(["1"] * 5), np.zeros(5, np.int64), details))
        expected = {(row, slot) for row, m in enumerate(messages) for slot, tree in trees.items() if naive.holds(tree, m, settings.stop_words)}
        found = list(zip(rows.tolist(), slots.tolist()))
        assert len(found) == len(set(found)) and set(found) == expected
        matched += len(found)
    assert matched > 300


def test_messages_have_the_terms_of_their_attributes_and_of_the_beginnings_of_their_words():
    rng = random.Random(12)
    messages = [languages.random_message(rng) for _ in range(50)]
    for more in (
        {},
        {"dskype.boolean.wordless": False},
        {"dskype.boolean.prefixes": False},
        {"dskype.boolean.wordless": False, "dskype.boolean.prefixes": False},
    ):
        settings = Settings.from_conf(languages.CONF | more)
        batch, _, whole = languages.analyzed(messages, settings, VOCABULARY)
        for row, (m, own) in enumerate(zip(messages, terms_of(whole))):
            others = {EVERY_MESSAGE} if settings.wordless else set()
            if settings.wordless:
                strings = [("category", m["attributes"].get("category")), *(("tags", tag) for tag in m["attributes"].get("tags") or [])]
                others |= {value_hash(name, value) for name, value in strings if value is not None}
            if settings.prefixes:
                begun = [
                    (field, word[:n]) for field, text in m["text"].items() for word in naive.words(text, settings.stop_words) for n in range(2, len(word) + 1)
                ]
                others |= {term_hash(name) for field, begin in begun if len(begin) <= 16 for name in (f"{begin}*", f"{field}:{begin}*")}
            assert own == others | terms_of(batch)[row]
            a, b = whole.offsets[row : row + 2]
            terms, weights = whole.terms[a:b], whole.weights[a:b]
            assert (np.diff(terms) > 0).all() and (weights[np.isin(terms, list(others))] == 0).all()
            assert weights[~np.isin(terms, list(others))].tolist() == batch.weights[slice(*batch.offsets[row : row + 2])].tolist()


def test_a_text_of_many_words_has_all_their_beginnings():
    settings = Settings.from_conf({"dskype.boolean.prefixes": True})
    text = " ".join(f"word{i}number" for i in range(5000)) + " late night"
    message = {"text": text, "attributes": {}}
    trees = [parse(e, Tokenizer(), settings.language) for e in ('"word4999number late night"', "word4999n* AND lat*", '"late word7number"', "NOT word123456*")]
    assert decide([compiled(tree, settings).program or compiled(["not", ["not", tree]]).program for tree in trees], [message], settings)[
        [0, 2, 3]
    ].tolist() == [[True], [False], [True]]
    assert naive.satisfies(compiled(trees[1], settings).condition, terms_of(languages.analyzed([message], settings, VOCABULARY)[2])[0])


def test_messages_of_earlier_versions_have_no_details():
    empty = Details.empty(2)
    batch = MessageBatch(np.arange(2), np.arange(2), np.zeros(2), np.zeros(2), np.array([0, 1, 1]), np.array([5]), np.ones(1))
    filters = Filters()
    filters.set(0, compile_filter(["not", "tea"], {"tea": 5}).program)
    filters.set(1, compile_filter(["phrase", 0, [0, 1], ["tea", "tea"]], {"tea": 5}).program)
    filters.set(2, compile_filter(["attribute", "price", "exists"], {}).program)
    rows, slots = np.array([0, 1] * 3, np.int32), np.array([0, 0, 1, 1, 2, 2], np.int32)
    found = filters.satisfying(batch, empty, MessageTerms(Settings()).of(empty), rows, slots)
    assert found.tolist() == [False, True, False, False, False, False]


def test_equal_words_have_equal_ids_in_every_process():
    assert VOCABULARY.ids_of(["zythum"]) == Vocabulary.empty().ids_of(["zythum"]) == {"zythum": term_hash("zythum")}
