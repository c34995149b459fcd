"""What a message has of what expressions ask for (:mod:`dskype.spouts.expression`), for one message at a time.

Explanations and the page that counts what a draft would have matched decide by it. It decides as the programs of :mod:`dskype.spouts.filters` do,
but on words and values in place of ids, so that the answer can name them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from dskype.spouts.expression import Expression
from dskype.spouts.expression_parser import WORDS_ONLY, Language
from dskype.spouts.records import Message
from dskype.spouts.text import BORDER, LEFT_OUT, Tokenizer, cut

__all__ = ["Content", "Occurrence"]


class Occurrence(NamedTuple):
    """The words of a phrase in the order of the phrase, as near to each other as a text has them.

    :ivar field: the number of the field of the text, from 0.
    :ivar places: of the words in that field, from 0; words that were left out are counted.
    :ivar between: how many words stand between them beside those that the phrase leaves room for.
    """

    field: int
    places: tuple[int, ...]
    between: int


class Content:
    """The words and attributes of a message.

    :param message: one that the topology would not refuse.
    :param tokenizer: of the topology.
    :param language: of the topology; its attributes and fields count.
    :ivar places: for each field of the text: word -> its places, rising.
    :ivar given: the attributes as the message has them.
    :ivar values: declared attribute -> its value: a float64, a string, or a set of strings; absent ones are missing.
    """

    def __init__(self, message: Message, tokenizer: Tokenizer, language: Language = WORDS_ONLY) -> None:
        self._names = language.fields
        self._texts = message.text.split(BORDER)
        self.places: list[dict[str, list[int]]] = []
        analyzers = [tokenizer.by_field(name)[0][1] for name in self._names] or [tokenizer] * len(self._texts)
        self._written = [set(analyzer.written(part)) for analyzer, part in zip(analyzers, self._texts)]
        self._words = [part.split() for part in tokenizer.spaced(message.text).split(BORDER)]
        for words in self._words:
            places: dict[str, list[int]] = {}
            for place, word in enumerate(words):
                if word != LEFT_OUT:
                    places.setdefault(word, []).append(place)
            self.places.append(places)
        self.given, self.values = message.attributes or {}, dict[str, Any]()
        for name, attribute in language.attributes.items():
            value = self.given.get(name)
            if value is None or value == []:
                continue
            self.values[name] = (frozenset(value) if attribute.type == "strings" else value) if attribute.is_textual() else attribute.number(value)

    def satisfies(self, expression: Expression, field: str | None = None) -> bool:
        """Tell whether the message satisfies an expression.

        :param field: the name of the field that words, phrases and prefixes are looked for in; None: in each.
        """
        if not isinstance(expression, list):
            return any(expression in places for places in self._searched(field))
        operator, *rest = expression
        if operator == "and":
            return all(self.satisfies(part) for part in rest)
        if operator == "or":
            return any(self.satisfies(part) for part in rest)
        if operator == "not":
            return not self.satisfies(rest[0])
        if operator == "atleast":
            return sum(self.satisfies(part) for part in rest[1:]) >= rest[0]
        if operator == "in":
            return self.satisfies(rest[1], rest[0])
        if operator == "phrase":
            return self.nearest(expression, field, rest[0]) is not None
        if operator == "prefix":
            return bool(self.beginning_with(rest[0], field))
        if operator == "attribute":
            return self._compares(*rest)
        return True

    def _searched(self, field: str | None) -> Sequence[dict[str, list[int]]]:
        if field is None:
            return self.places
        number = self._names.index(field)
        return self.places[number : number + 1]

    def nearest(self, phrase: Expression, field: str | None = None, most: int | None = None) -> Occurrence | None:
        """Return the occurrence of a phrase with the fewest words between, the first of several; None: no field has all words in this order.

        :param most: return None, too, if there are more words between; default: any number.
        """
        _, _, steps, words = phrase
        first = 0 if field is None else self._names.index(field)
        found: Occurrence | None = None
        for number, places in enumerate(self._searched(field), first):
            lists = [places.get(word, ()) for word in words]
            gaps = [after - before for before, after in pairwise(steps)]
            for start in lists[0] if all(lists) else ():
                at = _following(start, lists, gaps, found.between - 1 if found is not None else most)
                if at is None:  # the end of the text is too near, for later starts, too
                    break
                if len(at) == len(words):  # and so it is nearer than the one before
                    found = Occurrence(number, tuple(at), at[-1] - start - sum(gaps))
                    if found.between == 0:
                        return found
        return found

    def beginning_with(self, prefix: str, field: str | None = None) -> list[str]:
        """Return the words that begin with a prefix as they are written, sorted."""
        written = self._written if field is None else self._written[self._names.index(field) :][:1]
        return sorted({word for words in written for word in words if word.startswith(prefix)})

    def occurrences(self, word: str, field: str | None = None) -> list[tuple[int, int]]:
        """Return where a word is: pairs of the number of a field and a place in it."""
        first = 0 if field is None else self._names.index(field)
        return [(number, place) for number, places in enumerate(self._searched(field), first) for place in places.get(word, ())]

    def written(self, field: int) -> list[str]:
        """Return the words of a field of the text as they are written, in reading order, those that are left out too; in a script without spaces, as they are cut."""
        found = cut(self._texts[field])
        return found if len(found) == len(self._words[field]) else self._words[field]

    def field_name(self, field: int) -> str | None:
        """Return the name of a field of the text; None: the text has no fields."""
        return self._names[field] if field < len(self._names) else None

    def _compares(self, name: str, op: str, *wanted: Any) -> bool:
        value = self.values.get(name)
        if value is None:
            return False
        if op == "exists":
            return True
        if op in ("in", "has", "="):
            return any(one in value if isinstance(value, frozenset) else one == value for one in wanted)
        if op == "!=":
            return bool(value != wanted[0])
        return bool({"<": value < wanted[0], "<=": value <= wanted[0], ">": value > wanted[0], ">=": value >= wanted[0]}[op])


def _following(start: int, lists: Sequence[Sequence[int]], gaps: Sequence[int], most: int | None) -> list[int] | None:
    """Return the places of the words of a phrase, each as near as possible to the one before; fewer if more than ``most`` words would be between them;
    None: one does not follow. O(words * log places).

    :param start: the place of the first word.
    :param lists: the places of each word, rising.
    :param gaps: from each word to the next one, without words between.
    """
    at, between = [start], 0
    for places, gap in zip(lists[1:], gaps):
        nearest = at[-1] + gap
        i = bisect_left(places, nearest)
        if i == len(places):
            return None
        between += places[i] - nearest
        if most is not None and between > most:
            break
        at.append(places[i])
    return at
