"""Why claims of the boolean benchmark do not hold here, as far as its figures and those of ``docs/benchmarks/boolean.md`` tell."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REASONS", "reason"]

_NO_WORDS_LEFT = (
    "with 100 words and more a message has some word of nearly every subscription that overlaps, so words spare little. The Rt++-tree then leaves its lists aside and takes "
    "the same way as the spatial-first method"
)
_SHORT_LISTS = (
    "there are about as many words as subscriptions here, so the lists of rarest keywords are short wherever a subscription lies. FAST asks for the words of a message on up to "
    "eleven levels, GI2 in one cell. FAST gains as lists grow: with five million subscriptions it takes half the time of the plain table"
)
_RARE_WORDS = (
    "the paper does not say how many words there are. With 645,582 equally frequent ones each has one subscription here, so whatever begins with words is done at once; with 6,424 ones, "
    "94 subscriptions for each, the spatial-first method is ahead of the keyword-first one for points and behind it for rectangles, and the Rt++-tree is the fastest of the four"
)
_EVERY_WORD = (
    "lanes asks for each of 100 to 1,000 words and reads its list; the spatial-first method only looks at the words of subscriptions that overlap, so its time does not even double "
    "from 100 to 1,000 words"
)

REASONS: Mapping[str, Mapping[str, str]] = {
    "df is better than random": {
        "": "the most frequent of a subscription's words is in most messages, so it spares less than one drawn at random. That upper nodes share it saves memory alone"
    },
    "The locality-aware method is better than idf": {
        "": "a word is rare for a message where it is rare among messages; most words of these messages come from other places, so what is rare nearby is not rare for them"
    },
    "With 1,000 words the Rt-tree takes 50 ms, the Rt++-tree 12 (checked: 4 times)": {
        "": "the Rt-tree takes less than half a millisecond here: one look at a table tells for a word which of a node's children have it, and verifying a word is one "
        "comparison. There is little left to spare"
    },
    "For rectangles the keyword-first method outperforms the spatial-first one": {
        "": "with regions of up to 1,000 km the spatial-first method takes 1.4 to 2.2 times as long for rectangles as for points, but the keyword-first method reads lists of the whole world "
        "for both"
    },
    "For points the spatial-first method outperforms the keyword-first one": {"uniform-short": _RARE_WORDS},
    "The IR-tree is worse than the spatial-first method": {"uniform-short": _RARE_WORDS},
    "The Rt++-tree is always the fastest of the four": {"existing-long": _NO_WORDS_LEFT, "uniform-long": _NO_WORDS_LEFT, "uniform-short": _RARE_WORDS},
    "The index of our own, lanes, is faster than all of them (checked: 12 times)": {
        "existing-long": _EVERY_WORD,
        "uniform-long": _EVERY_WORD,
        "": "with few words lanes is near the cost of a batch, of asking for each word and of sorting, about a microsecond; the Rt++-tree has few lists to read, too",
    },
    "The time rises sublinearly (long messages, points)": {"": "matches rise in proportion to subscriptions, and the index outgrows the caches"},
    "The time rises sublinearly (long messages, rectangles)": {"": "matches rise in proportion to subscriptions, and the index outgrows the caches"},
    "The Rt-tree takes twice the memory of the Rt+-tree (checked: 1.5 times)": {
        "": "words are stored once for all children of a node, 16 bytes for each, so rectangles and the subscriptions themselves outweigh them"
    },
    "The Rt+-tree is smallest with df, as upper nodes share their tokens": {
        "": "the table of words has a power of two of places, and those of df and of random ones need the same"
    },
    "FAST is more than twice as fast as GI2": {"": _SHORT_LISTS},
    "FAST is faster than a plain table": {"": _SHORT_LISTS},
    "FAST is faster than GI2 at every size": {"": _SHORT_LISTS},
    "FAST is faster than GI2 at every number": {"": _SHORT_LISTS},
    "FAST is faster than GI2": {"": _SHORT_LISTS},
    "Between changes FAST is faster than GI2": {"": _SHORT_LISTS},
    "FAST is faster than GI2 whatever has expired": {"": _SHORT_LISTS},
    "The index of our own, lanes, is faster than FAST (checked: 12 times)": {
        "": "with few subscriptions lanes is near the cost of a batch, of asking for each word and of sorting, about a microsecond; with millions FAST reads little more than what matches, and matches cost both the same to sort and to write"
    },
    "Expired queries do not slow FAST down (checked: with three quarters gone a message takes half the time or less)": {
        "": "they are removed just before the messages come. A message reads lists that still have them, and takes out those that it meets"
    },
}
"""Claim -> beginning of an experiment's name -> reason; the first that fits counts."""


def reason(experiment: str, claim: str) -> str:
    """Return why a claim of an experiment may not hold; empty if nothing is known."""
    return next((why for name, why in REASONS.get(claim, {}).items() if experiment.startswith(name)), "")
