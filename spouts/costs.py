"""The cost of a subscription: how many results one message is expected to cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dskype.spouts.expression import parts
from dskype.spouts.frequencies import Frequencies
from dskype.spouts.reach import reach
from dskype.spouts.records import RecordError
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import Subscription, ThresholdSubscription, TopkSubscription
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import explain

__all__ = ["CostCeiling", "subscription_cost"]


class Shares(Protocol):
    """How frequent words are: a vocabulary, or what clients know of one."""

    def share(self, word: str) -> float:
        """Return the share of messages that contain a word."""
        ...


_HINTS = {TopkSubscription: "a smaller k", ThresholdSubscription: "rarer words, or a higher min_score"}


class CostCeiling:
    """Finds subscriptions above ``dskype.limits.subscription.cost``.

    The decision depends on the record, the settings and the vocabulary alone, so a replay decides as the topology did.

    :param settings: of the topology; the vocabulary is read only if there is a ceiling.
    :param load: reads the vocabulary's file. A topology gives ``Vocabulary.load``, because it has the vocabulary in memory anyway.
    """

    def __init__(self, settings: Settings, load: Callable[[str, Tokenizer], Shares] = Frequencies.load) -> None:
        self._settings = settings
        limited = settings.cost_ceiling is not None and settings.vocabulary is not None
        self._vocabulary = load(settings.vocabulary, settings.analyzer()) if limited else None

    def excess(self, subscription: Subscription) -> str | None:
        """Return the warning about a subscription above the ceiling, or None if it is not above."""
        ceiling = self._settings.cost_ceiling
        if ceiling is None or (cost := subscription_cost(subscription, self._settings, self._vocabulary)) <= ceiling:
            return None
        hint = _HINTS.get(type(subscription), "rarer words, more of them joined by AND, or a smaller bbox")
        return explain(
            f"Subscription {subscription.id[:80]!r} is expected to make too many results",
            given=round(cost, 4),
            legal=f"up to {ceiling} per message (dskype.limits.subscription.cost)",
            hint=hint,
        )

    def check(self, subscription: Subscription) -> str | None:
        """Refuse a subscription above the ceiling, or return a warning, as ``dskype.limits.subscription.cost.action`` says.

        :returns: the warning; None if the subscription is not above the ceiling.
        :raises RecordError: the subscription is refused.
        """
        excess = self.excess(subscription)
        if excess is not None and self._settings.cost_action == "refuse":
            raise RecordError(excess, "too-costly")
        return excess


def subscription_cost(subscription: Subscription, settings: Settings, vocabulary: Shares | None) -> float:
    """Return an upper bound of the mean number of results that one message causes. O(parts of the subscription).

    A word occurs in ``df / documents`` of the messages; without a vocabulary, in all of them.

    Boolean: the share of messages that satisfy the expression, times the share of the data space that the bbox covers (as if messages were
    spread evenly). An AND is as frequent as its rarest part, a phrase as its rarest word, an OR as the sum of its parts, and n of them as an nth of
    the sum. Everything else, such as a NOT or a comparison, counts as if all messages satisfied it.

    Threshold: the share of messages with one of the words, times the share of the data space from which a message can reach the score.

    Top-k: only a message with one of the words can enter the list and leave it. With a count window and messages in random order, at
    most k of the messages of a window do so.
    """
    if isinstance(subscription, TopkSubscription):
        cost = 2 * _any_of(subscription.keywords, vocabulary)
        return cost if settings.window_kind == "time" else min(cost, 2 * subscription.k / settings.extent)
    if isinstance(subscription, ThresholdSubscription):
        s = subscription
        bbox = reach(s.alpha, s.lat, s.lon, s.scale_m, s.min_score, settings.space.diagonal_deg)
        return _any_of(s.keywords, vocabulary) * _covered(bbox, settings)
    return _satisfied(subscription.expression, vocabulary) * _covered(subscription.bbox, settings)


def _share(word: str, vocabulary: Shares | None) -> float:
    return 1.0 if vocabulary is None else vocabulary.share(word)


def _any_of(words: list[str], vocabulary: Shares | None) -> float:
    """Return an upper bound of the share of messages with one of some words."""
    return min(1.0, sum(_share(word, vocabulary) for word in dict.fromkeys(words)))


def _satisfied(expression: Any, vocabulary: Shares | None) -> float:
    """Return an upper bound of the share of messages that satisfy an expression."""
    if not isinstance(expression, list):
        return _share(expression, vocabulary)
    operator, *rest = expression
    if operator == "phrase":
        return min(_share(word, vocabulary) for word in rest[2])
    if operator in ("not", "prefix", "attribute", "all"):  # nothing is known of how frequent these are
        return 1.0
    inside = [_satisfied(part, vocabulary) for part in parts(expression)]
    # Where n parts hold, their sum is n: so the mean of the sum is at least n times the share of such messages.
    return min(inside) if operator in ("and", "in") else min(1.0, sum(inside) / (rest[0] if operator == "atleast" else 1))


def _covered(bbox: tuple[float, float, float, float], settings: Settings) -> float:
    """Return the share of the data space that a bbox covers, by area in degrees; a bbox across the antimeridian has two parts."""
    west, south, east, north = bbox
    space = settings.space
    width = sum(max(0.0, min(b, space.east) - max(a, space.west)) for a, b in ([(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]))
    height = max(0.0, min(north, space.north) - max(south, space.south))
    return width / (space.east - space.west) * height / (space.north - space.south)
