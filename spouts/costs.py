"""What a subscription costs the others: how many results it is expected to make of one message."""

from __future__ import annotations

from typing import Any

from dskype.spouts.records import RecordError, Subscription, TopkSubscription
from dskype.spouts.settings import Settings
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import explain

__all__ = ["CostCeiling", "subscription_cost"]


class CostCeiling:
    """Tells subscriptions above ``dskype.limits.subscription.cost`` from others.

    It follows from the record, the settings and the vocabulary alone, so a replay decides as the topology did.

    :param settings: of the topology; without a ceiling nothing is read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        limited = settings.cost_ceiling is not None and settings.vocabulary is not None
        self._vocabulary = Vocabulary.load(settings.vocabulary) if limited else None

    def excess(self, subscription: Subscription) -> str | None:
        """Return what is to be said of a subscription above the ceiling; None: it is below."""
        ceiling = self._settings.cost_ceiling
        if ceiling is None or (cost := subscription_cost(subscription, self._settings, self._vocabulary)) <= ceiling:
            return None
        hint = "a smaller k" if isinstance(subscription, TopkSubscription) else "rarer words, more of them joined by AND, or a smaller bbox"
        return explain(
            f"Subscription {subscription.id[:80]!r} is expected to make too many results",
            given=round(cost, 4),
            legal=f"up to {ceiling} per message (dskype.limits.subscription.cost)",
            hint=hint,
        )

    def check(self, subscription: Subscription) -> str | None:
        """Refuse a subscription above the ceiling, or return the warning, as the settings say.

        :raises RecordError: it is refused.
        """
        excess = self.excess(subscription)
        if excess is not None and self._settings.cost_action == "refuse":
            raise RecordError(excess)
        return excess


def subscription_cost(subscription: Subscription, settings: Settings, vocabulary: Vocabulary | None) -> float:
    """Return how many results a subscription makes of one message, on average and at most. O(its words).

    A word is in ``df / documents`` of the messages; without a vocabulary in all of them. Boolean: the share of the messages that satisfy the
    expression, of an AND that of its rarest part, of an OR the sum of its parts, times the bbox's share of the data space (as if messages were spread evenly). Top-k: a message
    enters the list, and leaves it, not more often than it has one of the words, and with a count window not more often than k in every
    window of messages that come in any order.
    """
    if isinstance(subscription, TopkSubscription):
        cost = 2 * min(1.0, sum(_share(word, vocabulary) for word in subscription.keywords))
        return cost if settings.window_kind == "time" else min(cost, 2 * subscription.k / settings.extent)
    return _satisfied(subscription.expression, vocabulary) * _covered(subscription.bbox, settings)


def _share(word: str, vocabulary: Vocabulary | None) -> float:
    return 1.0 if vocabulary is None else int(vocabulary.df(vocabulary.ids([word]))[0]) / vocabulary.documents


def _satisfied(expression: Any, vocabulary: Vocabulary | None) -> float:
    if not isinstance(expression, list):
        return _share(expression, vocabulary)
    parts = [_satisfied(part, vocabulary) for part in expression[1:]]
    return min(parts) if expression[0] == "and" else min(1.0, sum(parts))


def _covered(bbox: tuple[float, float, float, float], settings: Settings) -> float:
    """Return which share of the data space a bbox covers, in degrees; one across the antimeridian has two parts."""
    west, south, east, north = bbox
    space = settings.space
    width = sum(max(0.0, min(b, space.east) - max(a, space.west)) for a, b in ([(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]))
    height = max(0.0, min(north, space.north) - max(south, space.south))
    return width / (space.east - space.west) * height / (space.north - space.south)
