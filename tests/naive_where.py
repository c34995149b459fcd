"""Filters of top-k subscriptions in the plainest way: texts and attributes for messages that have terms only, random expressions over them, and what satisfies these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dskype.spouts.attributes import Attributes
from dskype.spouts.batch import Details
from dskype.spouts.expression import words
from dskype.spouts.filters import compile_program

ATTRIBUTES = Attributes.from_conf({"price": "number", "category": "string", "tags": "strings"})
STOP, BORDER = None, "|"


def text(message: dict[str, Any]) -> Sequence[Any]:
    """Return the words of a message in reading order, which its seq decides: terms, stop words and borders of fields."""
    return _text(message["seq"], *message["weights"])


@lru_cache(10_000)
def _text(seq: int, *terms: int) -> tuple[Any, ...]:
    rng = random.Random(f"text {seq}")
    found: list[Any] = [*terms, *rng.choices([*terms, STOP, STOP, BORDER], k=rng.randint(0, 4))]
    rng.shuffle(found)
    return tuple(found)


def attributes(message: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a message, which its seq decides; it may lack some."""
    return _attributes(message["seq"])


@lru_cache(10_000)
def _attributes(seq: int) -> dict[str, Any]:
    rng = random.Random(f"attributes {seq}")
    drawn = {"price": rng.randint(0, 4), "category": rng.choice(["cafe", "bar"]), "tags": rng.sample(["vegan", "late", "new"], rng.randint(1, 2))}
    return {name: value for name, value in drawn.items() if rng.random() < 0.8}


def details(messages: Sequence[dict[str, Any]]) -> Details:
    """Return texts and attributes as filters take them."""
    order, pairs = [], []
    for message in messages:
        place = {term: i for i, term in enumerate(sorted(message["weights"]))} | {STOP: -1, BORDER: -2}
        order.append([place[word] for word in text(message)])
        pairs.append(ATTRIBUTES.encode(attributes(message)))
    offsets = [np.cumsum([0, *map(len, lists)]).astype(np.int64) for lists in (order, pairs)]
    return Details(offsets[0], np.array(sum(order, []), np.int16), offsets[1], np.array(sum(pairs, []), np.int64), *Details.empty(len(messages))[4:])


def random_where(rng: random.Random, terms: Sequence[int], depth: int = 2) -> Any:
    """Return a random expression; its words are terms in digits."""
    kind = rng.random()
    if depth and kind < 0.5:
        parts = [random_where(rng, terms, depth - 1) for _ in range(3)]
        return rng.choice([["not", parts[0]], ["and", *parts[:2]], ["or", *parts], ["atleast", 2, *parts]])
    if kind < 0.65:
        return str(rng.choice(terms))
    if kind < 0.75:
        chosen = [str(rng.choice(terms)) for _ in range(rng.randint(2, 3))]
        places = [0, rng.choice([1, 1, 2])]
        return ["phrase", rng.choice([0, 0, 1, 3]), [*places, places[1] + 1][: len(chosen)], chosen]
    return rng.choice(
        [
            ["attribute", "price", rng.choice(["=", "!=", "<", "<=", ">", ">="]), float(rng.randint(0, 4))],
            ["attribute", "price", "in", 1.0, 3.0],
            ["attribute", "category", rng.choice(["=", "!="]), "cafe"],
            ["attribute", "tags", "has", "vegan"],
            ["attribute", rng.choice(list(ATTRIBUTES)), "exists"],
        ]
    )


def program(where: Any) -> list[int] | None:
    """Return the program of an expression; None: there is no expression."""
    return None if where is None else compile_program(where, {word: int(word) for word in words(where)})


def counts(subscription: dict[str, Any], message: dict[str, Any]) -> bool:
    """Tell whether a message satisfies the filter of a subscription, ``where``, if it has one."""
    where = subscription.get("where")
    return where is None or _satisfies(where, message)


def _satisfies(where: Any, message: dict[str, Any]) -> bool:
    if isinstance(where, str):
        return int(where) in message["weights"]
    operator, *rest = where
    if operator == "phrase":
        return _has_phrase(*rest, message)
    if operator == "attribute":
        return _compares(attributes(message), *rest)
    held = [_satisfies(part, message) for part in rest if part != 2]
    return {"not": not held[0], "and": all(held), "or": any(held), "atleast": sum(held) >= 2}[operator]


def _has_phrase(within: int, places: Sequence[int], wanted: Sequence[str], message: dict[str, Any]) -> bool:
    found = text(message)

    def follows(at: int, i: int, left: int) -> bool:
        if i == len(wanted):
            return True
        step = places[i] - places[i - 1]
        return any(
            found[other] == int(wanted[i]) and follows(other, i + 1, left - (other - at - step))
            for other in range(at + step, min(len(found), at + step + left + 1))
            if BORDER not in found[at:other]
        )

    return any(found[at] == int(wanted[0]) and follows(at, 1, within) for at in range(len(found)))


def _compares(given: dict[str, Any], name: str, op: str, *values: Any) -> bool:
    if name not in given:
        return False
    value = given[name]
    if op == "exists":
        return True
    if op == "has":
        return values[0] in value
    if op == "in":
        return value in values
    return bool({"=": value == values[0], "!=": value != values[0]}[op] if isinstance(value, str) else eval(f"value {op if op != '=' else '=='} values[0]"))
