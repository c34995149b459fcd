"""Searches as records of their topic: a subscription that is answered once, from the window, and never registered."""

from __future__ import annotations

from typing import NamedTuple

from dskype.spouts.record_values import encode_json, json_object, refusal, shown
from dskype.spouts.records import parse_subscription
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import Subscription
from dskype.spouts.text import Tokenizer

__all__ = ["DEFAULT_TIMEOUT_MS", "MOST_TIMEOUT_MS", "Search", "parse_search"]

DEFAULT_K, DEFAULT_ALPHA = 10, 0.5
DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS = 10_000, 300_000
"""How long a search waits for its answer: by default, and at most."""
_NOT_HERE = ("meta", "ttl_s", "inside", "initial")
"""Fields of subscriptions that say nothing about a search."""


class Search(NamedTuple):
    """A search.

    :ivar subscription: the subscription that asks the same.
    :ivar k: the most messages that the answer names.
    :ivar timeout_ms: after its arrival nobody waits longer for the answer.
    """

    subscription: Subscription
    k: int
    timeout_ms: int


def parse_search(key: bytes | None, value: bytes | None, settings: Settings, tokenizer: Tokenizer) -> Search:
    """Read a record of the topic of searches.

    It has the fields of a subscription (:func:`~dskype.spouts.records.parse_subscription`). ``k`` and ``alpha`` may be absent, both types have ``k``, and an
    expression needs no word. There may be a ``timeout_ms``.

    :raises RecordError: it cannot be used.
    """
    record = json_object(value, settings.limits.text_max_bytes, "a search")
    if record.get("type") == "threshold":
        raise refusal("unknown-type", "Expected the 'type' of the search", shown("threshold"), '"topk" or "boolean"', "the answer to a top-k search has scores")
    alpha = {} if record.get("type") == "boolean" else {"alpha": DEFAULT_ALPHA}
    record = {"k": min(DEFAULT_K, settings.limits.k_max), **alpha, **{name: value for name, value in record.items() if name not in _NOT_HERE}}
    timeout_ms, k = record.pop("timeout_ms", DEFAULT_TIMEOUT_MS), record["k"]
    if type(timeout_ms) is not int or not 1 <= timeout_ms <= MOST_TIMEOUT_MS:
        raise refusal("invalid-timeout", "Expected 'timeout_ms'", shown(timeout_ms), f"an integer from 1 to {MOST_TIMEOUT_MS}")
    if type(k) is not int or not 1 <= k <= settings.limits.k_max:
        raise refusal("invalid-k", "Expected 'k'", shown(k), f"an integer from 1 to {settings.limits.k_max}")
    if record.get("type") == "boolean":  # a subscription of this type has no number
        del record["k"]
    language = settings.language._replace(wordless=True)  # every message of the window is looked at in any case
    try:
        text = encode_json(record).encode()
    except ValueError:  # half a surrogate pair, or a number that is read as infinity
        raise refusal("invalid-json", "Expected a search of whole characters and finite numbers", repr((value or b"")[:40])) from None
    return Search(parse_subscription(key, text, tokenizer=tokenizer, **settings.reading | {"language": language}), k, timeout_ms)
