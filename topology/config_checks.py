"""Type checks of configuration values, in Storm's words (``org.apache.storm.validation.ConfigValidation``).

A check is a function of the key's constant (``TOPOLOGY_DEBUG``) and the value, which is not None. It raises
:class:`~dskype.topology.errors.IllegalArgumentException`, or returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from dskype.topology.errors import IllegalArgumentException

__all__ = ["PARK", "PROGRESSIVE", "SLEEP", "Check"]

Check = Callable[[str, Any], None]


def _java_class(value: Any) -> str:
    for kind, name in (
        (bool, "java.lang.Boolean"),
        (int, "java.lang.Long"),
        (float, "java.lang.Double"),
        (str, "java.lang.String"),
        (Mapping, "java.util.HashMap"),
        ((list, tuple), "java.util.ArrayList"),
    ):
        if isinstance(value, kind):
            return name
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _refuse(words: str, value: Any, **more: Any) -> NoReturn:
    raise IllegalArgumentException(words, given=value, **more)


def _refuse_type(name: str, java_class: str, value: Any) -> NoReturn:
    kind = "interface" if java_class in ("java.util.Map", "java.lang.Iterable") else "class"
    _refuse(f"Field {name} must be of type {kind} {java_class}. Object: {value} actual type: class {_java_class(value)}", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


# --- numbers, booleans, strings ---------------------------------------------------------------------------------------


def anything(name: str, value: Any) -> None:
    """Accept anything."""


def boolean(name: str, value: Any) -> None:
    """Accept true and false."""
    if not isinstance(value, bool):
        _refuse_type(name, "java.lang.Boolean", value)


def string(name: str, value: Any) -> None:
    """Accept a string."""
    if not isinstance(value, str):
        _refuse_type(name, "java.lang.String", value)


def one_of(*accepted: str) -> Check:
    """Return a check that accepts some strings only."""

    def check(name: str, value: Any) -> None:
        string(name, value)
        if value not in accepted:
            _refuse(f"Field {name} is not an accepted value. Value: {value} Accepted values: [{', '.join(accepted)}]", value)

    return check


def number(name: str, value: Any) -> None:
    """Accept any number."""
    if not _is_number(value):
        _refuse_type(name, "java.lang.Number", value)


def integer(name: str, value: Any) -> None:
    """Accept an integer of 32 bits."""
    if isinstance(value, float) and value.is_integer():
        _refuse(f"Don't know how to convert {value} to int", value, hint=f"write {int(value)} for {name}")
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        _refuse(f"Field {name} must be an Integer within type range.", value)


def positive(name: str, value: Any) -> None:
    """Accept a number above 0."""
    if not _is_number(value) or not value > 0:
        _refuse(f"Field {name} must be a Positive Number", value)


def from_zero(name: str, value: Any) -> None:
    """Accept a number from 0."""
    if not _is_number(value) or not value >= 0:
        _refuse(f"Field {name} must be a Positive Number", value)


def positive_integer(name: str, value: Any) -> None:
    """Accept an integer from 1."""
    integer(name, value)
    positive(name, value)


def at_least(least: int) -> Check:
    """Return a check that accepts an integer from ``least``."""

    def check(name: str, value: Any) -> None:
        integer(name, value)
        if value is not None and value < least:
            _refuse(f"Field {name} must be at least {least}", value)

    return check


def integer_from_zero(name: str, value: Any) -> None:
    """Accept an integer from 0."""
    integer(name, value)
    from_zero(name, value)


# --- lists and maps ---------------------------------------------------------------------------------------------------


def _strings(name: str, items: Iterable[Any], what: str) -> None:
    for item in items:
        if item is not None and not isinstance(item, str):
            _refuse(f"{what} {name} must be a java.lang.String. ({item})", item)


def strings(name: str, value: Any) -> None:
    """Accept a list of strings."""
    if not _is_list(value):
        _refuse(f"Field {name} must be an Iterable but was a class {_java_class(value)}", value)
    _strings(name, value, "Each element of the list")


def string_or_strings(name: str, value: Any) -> None:
    """Accept a string, or a list of strings."""
    if not isinstance(value, str):
        strings(name, value)


def _map(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        _refuse(f"Field {name} must be a Map", value)
    _strings(name, value, "Each key of the map")


def map_of_strings(name: str, value: Any) -> None:
    """Accept a map of strings to strings."""
    _map(name, value)
    _strings(name, value.values(), "Each value in the map")


def map_of_numbers(name: str, value: Any) -> None:
    """Accept a map of strings to numbers."""
    _map(name, value)
    for item in value.values():
        if item is not None and not _is_number(item):
            _refuse(f"Each value in the map {name} must be a java.lang.Number. ({item})", item)


def map_of_maps(name: str, value: Any) -> None:
    """Accept a map of strings to maps with strings as keys."""
    _map(name, value)
    for item in value.values():
        if item is None:
            _refuse(f"Field {name} must not be null", value)
        _map(name, item)


def kryo_register(name: str, value: Any) -> None:
    """Accept a list of class names, and of maps of class names to serializers."""
    if not _is_list(value):
        _refuse(f"Field {name} must be an Iterable containing only Strings or Maps of Strings", value)
    for item in value:
        texts = [*item, *item.values()] if isinstance(item, Mapping) else [item]
        if not all(isinstance(text, str) for text in texts):
            _refuse(f"Each element of the list {name} must be a String or a Map of Strings", item)


def registrations(*, hint: bool = False, arguments: bool = False, filters: bool = False) -> Check:
    """Return a check of a list of maps that have a ``class``.

    :param hint: whether each needs an integer ``parallelism.hint``.
    :param arguments: whether ``arguments``, if there, must be a map.
    :param filters: whether the ``class`` of a ``filter`` must be a string.
    """

    def check(name: str, value: Any) -> None:
        if not _is_list(value):
            _refuse_type(name, "java.lang.Iterable", value)
        entry = f"{name} list entry"
        for item in value:
            if item is None:
                continue
            if not isinstance(item, Mapping):
                _refuse_type(entry, "java.util.Map", item)
            for key in ("class", "parallelism.hint") if hint else ("class",):
                if key not in item:
                    _refuse(f"Field {entry} must have map entry with key: {key}", item)
            for text in (item["class"], (item.get("filter") or {}).get("class") if filters else None):
                if text is not None:
                    string(entry, text)
            if hint and item["parallelism.hint"] is not None:
                integer(entry, item["parallelism.hint"])
            if arguments and item.get("arguments") is not None and not isinstance(item["arguments"], Mapping):
                _refuse_type(entry, "java.util.Map", item["arguments"])

    return check


def constraints(name: str, value: Any) -> None:
    """Accept a list of lists of component ids, or a map of component id to constraints."""
    legal = "[[component, component], ...] or {component: {maxNodeCoLocationCnt: n, incompatibleComponents: [component, ...]}}"
    words = f"Field {name} must be one of ListOfListOfStringValidator, RasConstraintsTypeValidator"
    if _is_list(value):
        fits = all(_is_list(group) and all(isinstance(item, str) for item in group) for group in value)
    else:
        fits = isinstance(value, Mapping) and all(isinstance(key, str) and _is_constraint(item) for key, item in value.items())
    if not fits:
        _refuse(words, value, legal=legal)


def _is_constraint(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value.keys() <= {"maxNodeCoLocationCnt", "incompatibleComponents"}:
        return False
    count, others = value.get("maxNodeCoLocationCnt", 1), value.get("incompatibleComponents", [])
    others = [others] if isinstance(others, str) else others
    return isinstance(count, int) and not isinstance(count, bool) and count >= 1 and _is_list(others) and all(isinstance(other, str) for other in others)


PROGRESSIVE = "org.apache.storm.policy.WaitStrategyProgressive"
PARK = "org.apache.storm.policy.WaitStrategyPark"
SLEEP = "org.apache.storm.spout.SleepSpoutWaitStrategy"
"""Storm's names of the strategies by which an idle spout waits."""


# --- stricter than Storm ----------------------------------------------------------------------------------------------


def rate(name: str, value: Any) -> None:
    """Accept a share above 0, up to 1; Storm takes any positive number."""
    if not _is_number(value) or value == 0:
        positive(name, value)
    if math.isnan(value) or not 0 <= value <= 1:
        _refuse(f"Field {name} must be a share between 0 and 1.", value, hint="1.0 counts every tuple, 0.05 one in twenty")


def spout_wait_strategy(name: str, value: Any) -> None:
    """Accept the wait strategies that are here; Storm loads any class."""
    string(name, value)
    if value not in (PROGRESSIVE, PARK, SLEEP):
        _refuse(f"Field {name} names a wait strategy that is not here.", value, legal=f"{PROGRESSIVE}, {PARK}, {SLEEP}")


def bucket(name: str, value: Any) -> None:
    """Accept an integer from 1; Storm takes any."""
    integer(name, value)
    if value < 1:
        _refuse(f"Field {name} must be at least 1.", value, hint="seconds")


def tick(name: str, value: Any) -> None:
    """Accept a number of seconds from 1; Storm takes any integer."""
    integer(name, value)
    if value <= 0:
        _refuse(f"Field {name} must be at least 1 second.", value, hint="leave the key out (or None) for no ticks")


def tasks(name: str, value: Any) -> None:
    """Accept a number of tasks from 1; Storm takes 0."""
    integer(name, value)
    if value <= 0:
        _refuse(f"Field {name} must be at least 1.", value, hint="a component without tasks would never run; leave the key out for one task per executor")


# --- the emulator's own -----------------------------------------------------------------------------------------------


def retention(name: str, value: Any) -> None:
    """Accept a size or a time that Kafka keeps records, or -1 for no limit."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63 or value == 0:
        _refuse(f"Field {name} must be how much Kafka keeps.", value, legal="an integer >= 1, or -1: no limit")


def on_data_loss(name: str, value: Any) -> None:
    """Accept ``fail`` and ``skip``."""
    if value not in ("fail", "skip"):
        _refuse(f"Field {name} says what to do about lost input.", value, legal="fail, skip")
