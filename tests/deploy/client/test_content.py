"""What explanations and drafts find in a message is what the topology's programs find."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dskype.bolts.filters import Filters
from dskype.deploy.client.content import Content, Occurrence
from dskype.spouts.attributes import Attributes
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.expression import words
from dskype.spouts.expression_parser import Language, parse
from dskype.spouts.filters import compile_filter, compile_program
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.records import Message
from dskype.spouts.settings import Settings
from dskype.spouts.text import BORDER, Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests import naive

DECLARED = {"price": "number", "category": "string", "open": "boolean", "tags": "strings", "since": "time"}
ATTRIBUTES = Attributes.from_conf(DECLARED)
WORDS = ["late", "night", "coffee", "museum", "muse", "the"]
TOKENIZER = Tokenizer(["the"])


def any_attributes(draw: random.Random) -> dict[str, object]:
    values = {
        "price": draw.choice([0, -0.0, 1, 2.5, None]),
        "category": draw.choice(["cafe", "Cafe", "bar"]),
        "open": draw.random() < 0.5,
        "tags": draw.sample(["vegan", "late", "bar"], draw.randrange(4)),
        "since": draw.choice([0, 1000, "1970-01-01T00:00:01Z"]),
    }
    return {name: value for name, value in values.items() if draw.random() < 0.7}


def any_message(draw: random.Random, fields: int) -> Message:
    text = BORDER.join(" ".join(draw.choices(WORDS, k=draw.randrange(7))) for _ in range(fields))
    return Message(None, text, 0.0, 0.0, None, None, any_attributes(draw))


def any_leaf(draw: random.Random) -> object:
    n = draw.randrange(2, 4)
    steps = np.cumsum([0, *draw.choices([1, 1, 2], k=n - 1)]).tolist()
    return draw.choice(
        [draw.choice(WORDS[:5]), ["phrase", draw.randrange(3), steps, draw.choices(WORDS[:5], k=n)], ["prefix", draw.choice(["mu", "museu", "la", "xy"])]]
    )


def any_comparison(draw: random.Random) -> list[object]:
    return draw.choice(
        [
            ["attribute", "price", draw.choice(["=", "!=", "<", "<=", ">", ">="]), draw.choice([0.0, 1.0, 2.0])],
            ["attribute", "price", "in", 0.0, 2.5],
            ["attribute", "category", draw.choice(["=", "!="]), draw.choice(["cafe", "bar"])],
            ["attribute", "category", "in", "cafe", "bar"],
            ["attribute", "tags", "has", "vegan"],
            ["attribute", "tags", "in", "late", "bar"],
            ["attribute", "open", draw.choice(["=", "!="]), draw.random() < 0.5],
            ["attribute", "since", draw.choice(["<", ">="]), 1000.0],
            ["attribute", draw.choice(list(ATTRIBUTES)), "exists"],
        ]
    )


def any_expression(draw: random.Random, depth: int, fields: tuple[str, ...]) -> object:
    if depth == 0 or draw.random() < 0.25:
        leaf = any_leaf(draw)
        return draw.choice([leaf, leaf, any_comparison(draw), ["in", draw.choice(fields), leaf] if fields else leaf, ["all"]])
    inside = [any_expression(draw, depth - 1, fields) for _ in range(draw.randrange(2, 4))]
    return draw.choice([["and", *inside], ["or", *inside], ["not", inside[0]], ["atleast", draw.randint(1, len(inside)), *inside]])


def programs_find(messages: list[Message], expressions: list[object], language: Language) -> np.ndarray:
    """Return bool[expressions, messages] as the topology decides."""
    vocabulary, n = Vocabulary.build([m.text for m in messages[::2]], TOKENIZER), len(messages)
    texts = pa.array([m.text for m in messages])
    pairs = [ATTRIBUTES.encode(m.attributes) for m in messages]
    offsets = np.cumsum([0, *map(len, pairs)]).astype(np.int64)
    attributes = np.array([part for own in pairs for part in own], np.int64)
    found, zeros = vocabulary.analyze(texts, TOKENIZER), np.zeros(n)
    conf = {"dskype.attributes": DECLARED, "dskype.text.fields": list(language.fields), "dskype.boolean.prefixes": True, "dskype.boolean.wordless": True}
    more = MessageTerms(Settings.from_conf({**conf, "dskype.stop.words": ["the"]}))
    details = Details(found.order_offsets, found.order, offsets, attributes, *more.prefixes(texts), *Details.empty(n)[6:])
    extra = more.of(details)
    batch = MessageBatch(np.arange(n), np.arange(n), zeros, zeros, found.offsets, found.terms, found.weights)
    whole = more.add(batch, extra)
    terms = [set(whole.terms[a:b].tolist()) for a, b in pairwise(whole.offsets.tolist())]
    compiled = [compile_filter(e, vocabulary.ids_of(words(e)), language.fields) for e in expressions]
    filters, alone = Filters(), Filters()
    for slot, (expression, (_, program)) in enumerate(zip(expressions, compiled)):
        alone.set(slot, compile_program(expression, vocabulary.ids_of(words(expression)), language.fields))
        if program is not None:
            filters.set(slot, program)
    slots, rows = (x.ravel().astype(np.int32) for x in np.indices((len(expressions), n)))
    decided, satisfied = (f.satisfying(batch, details, extra, rows, slots).reshape(len(expressions), n) for f in (filters, alone))
    led = np.array([[naive.satisfies(condition, own) for own in terms] for condition, _ in compiled])
    assert (led | ~satisfied).all(), "a condition leads to every message that satisfies the expression"
    assert ((decided & led) == satisfied).all()
    return satisfied


@pytest.mark.long
@pytest.mark.parametrize("fields", [(), ("title", "body")])
def test_a_message_satisfies_what_the_programs_of_the_topology_say(fields):
    draw = random.Random(len(fields))
    language = Language(ATTRIBUTES, fields, prefixes=True)
    messages = [any_message(draw, max(1, len(fields))) for _ in range(120)]
    expressions = [any_expression(draw, 3, fields) for _ in range(400)]
    expected = programs_find(messages, expressions, language)
    contents = [Content(message, TOKENIZER, language) for message in messages]
    for expression, row in zip(expressions, expected):
        assert [content.satisfies(expression) for content in contents] == row.tolist(), expression
    assert 0.1 < expected.mean() < 0.9
    assert {kind(expression) for expression in expressions} >= {"and", "or", "not", "atleast", "phrase", "prefix", "attribute", "all"}


def kind(expression: object) -> str:
    return expression[0] if isinstance(expression, list) else "word"


def test_the_nearest_occurrence_of_a_phrase_is_found():
    def nearest(text: str, expression: str, field: str | None = None, fields: tuple[str, ...] = ()) -> Occurrence | None:
        return Content(Message(None, text, 0.0, 0.0, None), TOKENIZER, Language(fields=fields)).nearest(parse(expression, TOKENIZER), field)

    assert nearest("late at night, late night", '"late night"') == (0, (3, 4), 0)
    assert nearest("late, late at night", '"late night"') == (0, (1, 3), 1)
    assert nearest("night, late", '"late night"') is None
    assert nearest("late of the night", '"late of the night"') == (0, (0, 1, 3), 0), "stop words have places, too"
    assert nearest("late the night", '"late the night"') == (0, (0, 2), 0)
    assert nearest("late night", '"late _ night"') is None
    assert nearest("late the the night", '"late _ night"') == (0, (0, 3), 1)
    assert nearest(f"late{BORDER}night", '"late night"', None, ("a", "b")) is None, "a border is between them"
    assert nearest(f"late night{BORDER}late at night", '"late night"', "b", ("a", "b")) == (1, (0, 2), 1)


@pytest.mark.long
def test_a_phrase_that_a_text_nearly_has_everywhere_is_decided_soon():
    """A plain search would take minutes."""
    content = Content(Message(None, "a " * 16384, 0.0, 0.0, None), Tokenizer())
    assert not content.satisfies(parse('"' + "a " * 255 + 'b"', Tokenizer())) and content.satisfies(parse('"' + "a " * 256 + '"', Tokenizer()))
    content = Content(Message(None, "a x " * 8192, 0.0, 0.0, None), Tokenizer())
    phrase = parse('"' + "a " * 256 + '"', Tokenizer())
    assert not content.satisfies(phrase) and content.nearest(phrase) == (0, tuple(range(0, 512, 2)), 255)


def documented() -> tuple[Attributes, list[tuple[str, str, str]]]:
    """Return the attributes of the table of expressions in the documents, and its rows: expression, what satisfies it, what does not."""
    page = (Path(__file__).parents[3] / "docs/concepts/boolean.md").read_text(encoding="utf-8")
    section = page.partition("\n## Expressions\n")[2].partition("\n## ")[0]
    conf = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])["config"]
    cells = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    return Attributes.from_conf(conf["dskype.attributes"]), [(expression, good, bad) for expression, _, good, bad in cells]


def test_the_examples_in_the_documents_are_right():
    attributes, rows = documented()
    language = Language(attributes, prefixes=True)

    def content(example: str) -> Content:
        given = json.loads(example) if example.startswith("{") else None
        attributes.encode(given)
        return Content(Message(None, "" if given is not None else example, 0.0, 0.0, None, None, given), Tokenizer(), language)

    assert len(rows) > 20
    for expression, good, bad in rows:
        tree = parse(expression, Tokenizer(), language)
        assert (content(good).satisfies(tree), content(bad).satisfies(tree)) == (True, False), expression
