"""Random expressions of the whole language, and messages about the same things."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.spouts.attributes import Attributes
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import lists_to_csr
from dskype.spouts.expression import join
from dskype.spouts.expression_parser import Language
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

ATTRIBUTES = {"price": "number", "category": "string", "open": "boolean", "tags": "strings", "since": "time"}
STOP_WORDS = ("the", "a")
WORDS = ["late", "night", "tea", "cake", "muse", "museum", "musik", "and", "not", "in", "has", "of", "exists", "atleast", "2", "price", "title", "mü", "東京"]
FIELDS = ("title", "body")
STRINGS = ["cafe", "Cafe", "bar", "a b", "", "wi-fi", "\\", "é", "and"]
NUMBERS = [0.0, -0.0, 1.0, -1.5, 2.5, 1e300, 5e-324, 199.99, 200.0]
TIMES = ["2026-01-31", "2026-01-31T00:00:00.001Z", "2026-01-31T02:00:00.001+02:00", 1769817600000, 1769817600001, 1769817600000.5, "2025-12-31T23:59:59.999999"]
TIMES_MS = [1769817600000.0, 1769817600001.0, 1769817600000.5, 1767225599999.999]

PLAIN = Language()
WHOLE = Language(Attributes.from_conf(ATTRIBUTES), FIELDS, prefixes=True, wordless=True, max_depth=64)
"""Everything that expressions may speak of."""

CONF = {
    "dskype.stop.words": list(STOP_WORDS),
    "dskype.attributes": ATTRIBUTES,
    "dskype.text.fields": list(FIELDS),
    "dskype.boolean.prefixes": True,
    "dskype.boolean.wordless": True,
    "dskype.expression.max.depth": 16,
}
"""The settings of a topology with such expressions."""


def random_expression(rng: random.Random, language: Language = WHOLE, depth: int = 4, words: Sequence[str] = WORDS) -> Any:
    """Return a tree as the parser simplifies it."""
    kind = rng.choice(["leaf", "and", "or", "not", "atleast"]) if depth else "leaf"
    if kind == "leaf":
        return _leaf(rng, language, words)
    if kind == "not":
        found = random_expression(rng, language, depth - 1, words)
        return found[1] if isinstance(found, list) and found[0] == "not" else ["not", found]
    parts = [random_expression(rng, language, depth - 1, words) for _ in range(rng.choice([2, 2, 3, 4]))]
    if kind == "atleast" and len(parts) > 2:
        return ["atleast", rng.randrange(2, len(parts)), *parts]
    return join("or" if kind == "or" else "and", parts)


def _leaf(rng: random.Random, language: Language, words: Sequence[str]) -> Any:
    if language.attributes and rng.random() < 0.35:
        return _comparison(rng, language)
    leaf: Any = rng.choice(words)
    if rng.random() < 0.35:
        n = rng.choice([2, 2, 3])
        places = [0]
        for _ in range(n - 1):
            places.append(places[-1] + rng.choice([1, 1, 1, 2, 3]))
        leaf = ["phrase", rng.choice([0, 0, 1, 2, 5]), places, rng.choices(words, k=n)]
    elif language.prefixes and rng.random() < 0.2:
        leaf = ["prefix", rng.choice([word for word in words if len(word) > 1])[: rng.choice([2, 2, 3, 5])]]
    return ["in", rng.choice(language.fields), leaf] if len(language.fields) > 1 and rng.random() < 0.25 else leaf


def _comparison(rng: random.Random, language: Language) -> Any:
    attribute = rng.choice(list(language.attributes.values()))
    if rng.random() < 0.15:
        return ["attribute", attribute.name, "exists"]
    values: Any = {"number": NUMBERS, "time": TIMES_MS, "boolean": [True, False]}.get(attribute.type, STRINGS)
    comparisons = {"number": "= != < <= > >= in", "time": "= != < <= > >= in", "strings": "has in"}.get(attribute.type, "= != in").split()
    comparison = rng.choice(comparisons)
    n = rng.randrange(1, 4) if comparison == "in" else 1
    return ["attribute", attribute.name, comparison, *dict.fromkeys(rng.choices(values, k=n))]


def random_text(rng: random.Random, words_max: int = 7, words: Sequence[str] = WORDS) -> str:
    """Return a text with some of the words, and stop words."""
    return " ".join(rng.choice([*words, *STOP_WORDS, "other"]) for _ in range(rng.randrange(words_max + 1)))


def random_attributes(rng: random.Random) -> dict[str, Any]:
    """Return the attributes of a message, as in its record."""
    found: dict[str, Any] = {
        "price": rng.choice([*NUMBERS, 2, 200]),
        "category": rng.choice(STRINGS),
        "open": rng.random() < 0.5,
        "tags": rng.sample(STRINGS, rng.randrange(4)),
        "since": rng.choice(TIMES),
        "unknown": "x",
    }
    for name in list(found):
        if rng.random() < 0.3:
            found[name] = None
        elif rng.random() < 0.3:
            del found[name]
    return found


def random_message(rng: random.Random, fields: tuple[str, ...] = FIELDS) -> dict[str, Any]:
    """Return the text and the attributes of a message, as in its record."""
    return {"text": {name: random_text(rng) for name in fields} if fields else random_text(rng), "attributes": random_attributes(rng)}


def joined(text: Any) -> str:
    """Return a text as it travels."""
    return text if isinstance(text, str) else "\x1f".join(text.values())


@cache
def vocabulary() -> Vocabulary:
    """Return a vocabulary that knows most of the words."""
    return Vocabulary.build([" ".join(WORDS[: 3 + i % 8]) for i in range(20)], Tokenizer(STOP_WORDS))


def analyzed(messages: Sequence[dict[str, Any]], settings: Settings, words: Vocabulary) -> tuple[MessageBatch, Details, MessageBatch]:
    """Return what the distribution bolt makes of messages, all at 0, 0: (with their words, details, with all their terms)."""
    texts, n = [joined(m["text"]) for m in messages], len(messages)
    found = words.analyze(texts, Tokenizer(settings.stop_words))
    attributes = lists_to_csr([settings.attributes.encode(m["attributes"]) for m in messages], np.int64)
    terms = MessageTerms(settings)
    none = np.zeros(n + 1, np.int64), np.zeros(0)
    details = Details(found.order_offsets, found.order, *attributes, *terms.prefixes(pa.array(texts)), *none)
    batch = MessageBatch(np.arange(n), np.arange(n), np.zeros(n), np.zeros(n), found.offsets, found.terms, found.weights)
    return batch, details, terms.add(batch, terms.of(details))
