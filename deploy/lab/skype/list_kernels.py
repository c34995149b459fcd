"""Kernels that several baseline indexes share: reading messages, and the exact test of candidates. They import numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.topk._kernels import ALPHA, LAT, LON, THRESHOLD, find_term
from dskype.spouts.score_kernels import score as combined_score
from dskype.spouts.score_kernels import ssim
from dskype.topology.kernel_cache import njit


class Known(NamedTuple):
    """The known terms of messages: those that some subscription has.

    :ivar first: int64[n + 1]; those of message *i* are ``first[i]`` to ``first[i + 1]``.
    :ivar term: int32[], dense ids.
    :ivar weight: float64[], >= 0.
    :ivar sum: float64[], wtsum: of the weights of a term and those after it in its message.
    :ivar most: float64[], maxwt: the highest of these weights.
    :ivar norm: float64[n], Euclidean norm of the weights of a message.
    """

    first: np.ndarray
    term: np.ndarray
    weight: np.ndarray
    sum: np.ndarray
    most: np.ndarray
    norm: np.ndarray


@njit(cache=True)
def sort_small(values, n):
    """Sort the first ``n`` values in place; often they are sorted already."""
    sorted_ = True
    for i in range(1, n):
        sorted_ &= values[i - 1] <= values[i]
    if sorted_:
        return
    if n > 48:
        values[:n] = np.sort(values[:n])
        return
    for i in range(1, n):
        v = values[i]
        j = i - 1
        while j >= 0 and values[j] > v:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = v


@njit(cache=True)
def read_messages(messages, terms):
    """Return the known terms of messages (:class:`Known`).

    :param messages: dskype.bolts.topk._kernels.Messages; ``terms``: its TermMap.
    """
    lon, _, offsets, m_terms, m_weights = messages
    key, local = terms.key, terms.local
    n = lon.shape[0]
    size = offsets[n] - offsets[0]
    first, norm = np.zeros(n + 1, np.int64), np.zeros(n)
    term, weight, sum_, most = np.empty(size, np.int32), np.empty(size), np.empty(size), np.empty(size)
    at = np.int64(0)
    for m in range(n):
        for i in range(offsets[m], offsets[m + 1]):
            known = find_term(m_terms[i], key, local)
            if known >= 0:
                term[at], weight[at] = known, m_weights[i]
                norm[m] += m_weights[i] * m_weights[i]
                at += 1
        first[m + 1] = at
        norm[m] = np.sqrt(norm[m])
        total, largest = 0.0, 0.0
        for back in range(at - first[m]):
            i = at - 1 - back
            total += weight[i]
            largest = max(largest, weight[i])
            sum_[i], most[i] = total, largest
    return Known(first, term[:at], weight[:at], sum_[:at], most[:at], norm)


@njit(cache=True)
def verify(message, slot, messages, known, place, words, weight_of, diagonal_deg):
    """Return the candidates that reach their thresholds, as (message, slot, score) in order of message, slot.

    :param message: int32[n]; ``slot``: int32[n]; each pair once, in any order of messages.
    :param messages: dskype.bolts.topk._kernels.Messages; ``words``: its Words; ``known``: :class:`Known`.
    :param weight_of: float64[terms], scratch, all -1 before and after.
    """
    lon, lat, first, term, weight = messages.lon, messages.lat, known.first, known.term, known.weight
    block, word_term, word_weight = words.block, words.term, words.weight
    n = lon.shape[0]
    begin = np.zeros(n + 1, np.int64)
    for i in range(message.shape[0]):
        begin[message[i] + 1] += 1
    for m in range(n):
        begin[m + 1] += begin[m]
    by_message, cursor = np.empty(message.shape[0], np.int32), begin[:n].copy()
    for i in range(message.shape[0]):
        by_message[cursor[message[i]]] = slot[i]
        cursor[message[i]] += 1
    out_message, out_slot, out_score = np.empty(message.shape[0], np.int32), np.empty(message.shape[0], np.int32), np.empty(message.shape[0])
    kept = np.int64(0)
    for m in range(n):
        candidates = by_message[begin[m] : begin[m + 1]]
        sort_small(candidates, candidates.shape[0])
        for i in range(first[m], first[m + 1]):
            weight_of[term[i]] = weight[i]
        for c in range(candidates.shape[0]):
            s = candidates[c]
            text = 0.0
            common = False
            for at in range(block[s, START], block[s, START] + block[s, LENGTH]):
                w = weight_of[word_term[at]]
                if w >= 0.0:
                    text += word_weight[at] * w
                    common = True
            value = combined_score(place[s, ALPHA], ssim(lon[m] - place[s, LON], lat[m] - place[s, LAT], diagonal_deg), text)
            if common and value >= place[s, THRESHOLD]:
                out_message[kept], out_slot[kept], out_score[kept] = m, s, value
                kept += 1
        for i in range(first[m], first[m + 1]):
            weight_of[term[i]] = -1.0
    return out_message[:kept].copy(), out_slot[:kept].copy(), out_score[:kept].copy()
