"""Scores, matches and lists, computed in the plainest way: each message is compared with every subscription, and each subscription with every message."""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.skype.workload import Subscriptions
from dskype.spouts.batch import MessageBatch

__all__ = ["best", "scores_of_message", "scores_of_subscription"]


def scores_of_message(subscriptions: Subscriptions, messages: MessageBatch, row: int, diagonal_deg: float) -> np.ndarray:
    """Return the score of the message at ``row`` for each subscription (float64[n]); NaN without a common keyword. O(all keywords)."""
    s, words = subscriptions, slice(messages.offsets[row], messages.offsets[row + 1])
    text = _text(messages.terms[words], messages.weights[words], s.offsets, s.terms, s.weights)
    return _score(s.alpha, messages.lon[row] - s.lon, messages.lat[row] - s.lat, diagonal_deg, text)


def scores_of_subscription(subscriptions: Subscriptions, row: int, messages: MessageBatch, diagonal_deg: float) -> np.ndarray:
    """Return the score of each message for the subscription at ``row`` (float64[n]); NaN without a common keyword. O(all keywords)."""
    s, words = subscriptions, slice(subscriptions.offsets[row], subscriptions.offsets[row + 1])
    text = _text(s.terms[words], s.weights[words], messages.offsets, messages.terms, messages.weights)
    return _score(s.alpha[row], messages.lon - s.lon[row], messages.lat - s.lat[row], diagonal_deg, text)


def best(subscriptions: Subscriptions, row: int, window: MessageBatch, diagonal_deg: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (seqs, scores) of the top-k list of the subscription at ``row``, best first, newer messages first among equals.

    :param window: the messages of the window, and no others.
    """
    scores = scores_of_subscription(subscriptions, row, window, diagonal_deg)
    common = np.flatnonzero(~np.isnan(scores))
    order = common[np.lexsort((-window.seq[common], -window.position[common], -scores[common]))][: subscriptions.k[row]]
    return window.seq[order], scores[order]


def _text(terms: np.ndarray, weights: np.ndarray, offsets: np.ndarray, all_terms: np.ndarray, all_weights: np.ndarray) -> np.ndarray:
    """Return the textual similarity of one list of keywords with many, summed in order of rising terms; NaN without a common keyword."""
    n = len(offsets) - 1
    owner = np.repeat(np.arange(n), np.diff(offsets))
    text, common = np.zeros(n), np.zeros(n, bool)
    for term, weight in zip(terms.tolist(), weights.tolist()):
        at = np.flatnonzero(all_terms == term)  # at most one of each list
        text[owner[at]] += all_weights[at] * weight
        common[owner[at]] = True
    text[~common] = np.nan
    return text


def _score(alpha: np.ndarray, dx: np.ndarray, dy: np.ndarray, diagonal_deg: float, text: np.ndarray) -> np.ndarray:
    return alpha * (1.0 - np.sqrt(dx * dx + dy * dy) / diagonal_deg) + (1.0 - alpha) * text
