"""The parts of an expression, whether a message satisfies each, and what would be enough: as data, and as lines of text.

A part (``tree``) is a map with ``satisfied`` and one of

- ``word``, perhaps with ``field``;
- ``operator`` (``and``, ``or``, ``not``, ``atleast`` with ``n`` and ``holding``) and ``parts``;
- ``phrase`` (its text), ``within``, perhaps ``field``, and ``found``: the nearest occurrence (``field``, ``places`` from 1, ``between``: the words that stand between
  beside those that the phrase leaves room for, ``more``: how many), or None; then ``occurrences`` has where its words are: maps ``word``, ``field``, ``place``;
- ``prefix``, perhaps ``field``, and ``found``: words that begin so;
- ``attribute``, ``op``, ``values``, ``text``, and ``value``, what the message has; None: nothing;
- ``everything``: every message satisfies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dskype.deploy.client.content import Content, Occurrence
from dskype.deploy.machine.terminal import clean, counted
from dskype.spouts.expression import Expression, parts, to_text

__all__ = ["explain_expression", "expression_lines", "parts_of"]

_SHOWN = 8
"""Words of a list that are shown."""


def explain_expression(expression: Expression, content: Content) -> dict[str, Any]:
    """Say whether a message satisfies an expression, and why.

    :returns: ``text``, ``satisfied``, ``tree`` (see the module), ``needs``: few things that are missing, as texts of expressions, and ``excludes``: few that must not be there.
    """
    lacking = _lacking(expression, content, True, None)
    tree = parts_of(expression, content)
    return {"text": to_text(expression), "satisfied": tree["satisfied"], "tree": tree, "needs": sorted(lacking.missing), "excludes": sorted(lacking.excluded)}


class _Lacking(NamedTuple):
    """Few changes of a message with which it would satisfy an expression, as texts of expressions.

    :ivar missing: what it would have to have.
    :ivar excluded: what it must not have.
    """

    missing: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, several: Iterable[_Lacking]) -> _Lacking:
        """Return all changes of several."""
        several = list(several)
        return cls(frozenset().union(*(one.missing for one in several)), frozenset().union(*(one.excluded for one in several)))

    @property
    def size(self) -> int:
        """The number of changes."""
        return len(self.missing) + len(self.excluded)


def _lacking(expression: Expression, content: Content, wanted: bool, field: str | None) -> _Lacking:
    """Return few things that a message lacks so that an expression holds, or for ``wanted`` False, does not hold.

    They are all that an AND lacks, and what the nearest part of an OR lacks.
    """
    if content.satisfies(expression, field) is wanted:
        return _Lacking()
    operator = expression[0] if isinstance(expression, list) else ""
    if operator == "not":
        return _lacking(expression[1], content, not wanted, None)
    if operator == "in":
        return _lacking(expression[2], content, wanted, expression[1])
    inside = parts(expression)
    if inside:
        found = sorted((_lacking(part, content, wanted, None) for part in inside), key=lambda lacking: lacking.size)
        least = {"and": len(inside), "or": 1}.get(operator) or expression[1]  # so many parts have to hold
        return _Lacking.all_of(found[: least if wanted else len(inside) - least + 1])
    leaf = expression if field is None else ["in", field, expression]
    text = frozenset({to_text(leaf)})
    return _Lacking(missing=text) if wanted else _Lacking(excluded=text)


def parts_of(expression: Expression, content: Content, field: str | None = None) -> dict[str, Any]:
    """Return the parts of an expression; see the module.

    :param field: the field that the expression is about; None: the whole text.
    """
    if isinstance(expression, list) and expression[0] == "in":
        return parts_of(expression[2], content, expression[1])
    found: dict[str, Any] = {"satisfied": content.satisfies(expression, field), **({} if field is None else {"field": field})}
    if not isinstance(expression, list):
        return {**found, "word": expression}
    operator, *rest = expression
    if operator == "phrase":
        return {**found, **_phrase(expression, content, field)}
    if operator == "prefix":
        return {**found, "prefix": rest[0], "found": content.beginning_with(rest[0], field)}
    if operator == "attribute":
        name, op, *values = rest
        return {**found, "attribute": name, "op": op, "values": values, "text": to_text(expression), "value": content.given.get(name)}
    if operator == "all":
        return {**found, "everything": True}
    inside = [parts_of(part, content) for part in parts(expression)]
    if operator == "atleast":
        found |= {"n": rest[0], "holding": sum(part["satisfied"] for part in inside)}
    return {**found, "operator": operator, "parts": inside}


def _phrase(phrase: Expression, content: Content, field: str | None) -> dict[str, Any]:
    occurrence = content.nearest(phrase, field)
    about = {"phrase": to_text(phrase), "within": phrase[1], "words": phrase[3]}
    if occurrence is not None:
        between = _between(occurrence, phrase[2], content)
        places = [place + 1 for place in occurrence.places]
        return {**about, "found": {"field": content.field_name(occurrence.field), "places": places, "between": between, "more": occurrence.between}}
    occurrences = [
        {"word": word, "field": content.field_name(number), "place": place + 1}
        for word in dict.fromkeys(phrase[3])
        for number, place in content.occurrences(word, field)[:_SHOWN]
    ]
    return {**about, "found": None, "occurrences": occurrences}


def _between(occurrence: Occurrence, steps: list[int], content: Content) -> list[str]:
    """Return the words between those of a phrase where there are more than it leaves room for."""
    written = content.written(occurrence.field)
    gaps = zip(pairwise(occurrence.places), pairwise(steps))
    return [word for (a, b), (before, after) in gaps if b - a > after - before for word in written[a + 1 : b]]


# -- as text ------------------------------------------------------------------------------------------------------------


def expression_lines(name: str, explained: Mapping[str, Any]) -> list[str]:
    """Return what :func:`explain_expression` returned as lines of text.

    :param name: what the expression is called.
    """
    tree = explained["tree"]
    if tree.get("everything"):
        return [f"{name:<12}yes   it asks for no words, so every text will do"]
    lines = [f"{name:<12}{'yes' if tree['satisfied'] else 'no '}   {clean(explained['text'])}"]
    if not tree["satisfied"] or tree.keys() - {"satisfied", "word"}:
        lines += _part_lines(tree, 12)
    if explained["needs"]:
        lines.append(f"{'':12}missing: {clean(' AND '.join(explained['needs']))}")
    if explained["excludes"]:
        lines.append(f"{'':12}must not have: {clean(', '.join(explained['excludes']))}")
    return lines


def _part_lines(part: Mapping[str, Any], indent: int) -> list[str]:
    """Return a part, and the parts in it, as lines of text.

    :param indent: blanks before the first line.
    """
    lines = [f"{'':{indent}}{'yes' if part['satisfied'] else 'no '}   {clean(_text(part))}"]
    for inside in part.get("parts", ()):
        lines += _part_lines(inside, indent + 6)
    return lines


def _text(part: Mapping[str, Any]) -> str:
    if "operator" in part:
        if part["operator"] == "atleast":
            return f"at least {part['n']} of {len(part['parts'])}: {part['holding']}"
        return {"and": "all of", "or": "any of", "not": "not"}[part["operator"]]
    before = f"{part['field']}:" if "field" in part else ""
    if "word" in part:
        return f"{before}{part['word']}"
    if "phrase" in part:
        return f"{before}{part['phrase']}: {_occurrence_text(part)}"
    if "prefix" in part:
        return f"{before}{part['prefix']}*: {_some(part['found']) or 'no word begins so'}"
    if "attribute" in part:
        value = part["value"]
        shown = f"no {part['attribute']}" if value is None else _some(map(str, value), ", ") or "an empty list" if isinstance(value, list) else str(value)
        return f"{part['text']}: the message has {shown}"
    return "every message"


def _occurrence_text(part: Mapping[str, Any]) -> str:
    found = part["found"]
    if found is None:
        there = {one["word"]: one for one in reversed(part["occurrences"])}
        if absent := [word for word in dict.fromkeys(part["words"]) if word not in there]:
            return f"{_joined(absent)} {'does' if len(absent) == 1 else 'do'} not occur"
        return f"{_joined([_where(one) for one in reversed(there.values())])}; not in this order{_in_one_field(there)}"
    text = f"words {_joined(list(map(str, found['places'])))}{_of_field(found['field'])}"
    if found["more"]:
        text += f", between them {_some(found['between'])}"
    if part["satisfied"]:
        return text
    allowed = f"at most {counted(part['within'], 'word')}" if part["within"] else "no word"
    return f"{text}; {allowed} may be there"


def _where(one: Mapping[str, Any]) -> str:
    return f"{one['word']} is word {one['place']}{_of_field(one['field'])}"


def _of_field(field: str | None) -> str:
    return "" if field is None else f" of {field}"


def _in_one_field(there: Mapping[str, Mapping[str, Any]]) -> str:
    return " in one field" if len({one["field"] for one in there.values()}) > 1 else ""


def _some(words: Iterable[str], between: str = " ") -> str:
    """Return some words, and how many others there are."""
    found = list(words)
    return between.join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _joined(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
