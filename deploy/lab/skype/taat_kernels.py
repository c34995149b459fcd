"""Kernels of the plain term-at-a-time index. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.topk._kernels import ALPHA, LAT, LON, THRESHOLD, find_term
from dskype.deploy.lab.skype.list_kernels import sort_small
from dskype.spouts.score_kernels import score as combined_score
from dskype.spouts.score_kernels import ssim
from dskype.topology.kernel_cache import njit


class TaatLists(NamedTuple):
    """One list of postings per term.

    :ivar block: int64[terms, 3], block table of the arrays below: by dense id.
    :ivar slot: int32[], the subscription of a posting.
    :ivar nth: int16[], which of its keywords it is.
    :ivar weight: float64[], of that keyword.
    """

    block: np.ndarray
    slot: np.ndarray
    nth: np.ndarray
    weight: np.ndarray


@njit(cache=True)
def link_postings(slots, words, lists):
    """Append a posting for every keyword of ``slots``; there is room for all."""
    block, word_term, word_weight, word_where = words
    heads, posting_slot, posting_nth, posting_weight = lists
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = block[slot, START]
        for nth in range(block[slot, LENGTH]):
            term = word_term[start + nth]
            length = heads[term, LENGTH]
            at = heads[term, START] + length
            posting_slot[at], posting_nth[at], posting_weight[at] = slot, nth, word_weight[start + nth]
            word_where[start + nth] = length
            heads[term, LENGTH] = length + 1


@njit(cache=True)
def unlink_postings(slots, words, lists):
    """Remove the postings of ``slots``: the last one of a list fills the gap."""
    block, word_term, _, word_where = words
    heads, posting_slot, posting_nth, posting_weight = lists
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = block[slot, START]
        for nth in range(block[slot, LENGTH]):
            term = word_term[start + nth]
            last = heads[term, LENGTH] - 1
            heads[term, LENGTH] = last
            gap = heads[term, START] + word_where[start + nth]
            tail = heads[term, START] + last
            if gap != tail:
                posting_slot[gap], posting_nth[gap], posting_weight[gap] = posting_slot[tail], posting_nth[tail], posting_weight[tail]
                word_where[block[posting_slot[gap], START] + posting_nth[gap]] = word_where[start + nth]


@njit(cache=True)
def match_taat(messages, terms, lists, place, diagonal_deg, sums):
    """Return the matches (message, slot, score), term at a time.

    :param messages: dskype.bolts.topk._kernels.Messages; ``terms``: its TermMap.
    :param place: float64[slots, 4], LON, LAT, ALPHA, THRESHOLD.
    :param sums: float64[slots], scratch, all -1 (no common term yet) before and after.
    """
    lon, lat, offsets, m_terms, m_weights = messages
    key, local = terms.key, terms.local
    heads, posting_slot, posting_weight = lists.block, lists.slot, lists.weight
    capacity = 1024
    out_message, out_slot, out_score = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity)
    candidates = np.empty(sums.shape[0], np.int32)
    n = 0
    for m in range(lon.shape[0]):
        met = 0
        for i in range(offsets[m], offsets[m + 1]):
            term = find_term(m_terms[i], key, local)
            if term < 0:
                continue
            weight = m_weights[i]
            start = heads[term, START]
            for j in range(start, start + heads[term, LENGTH]):
                slot = posting_slot[j]
                if sums[slot] < 0.0:
                    candidates[met] = slot
                    met += 1
                    sums[slot] = 0.0
                sums[slot] += posting_weight[j] * weight
        kept = 0
        for i in range(met):
            slot = candidates[i]
            textual = sums[slot]
            # Rounding is monotone, so the score at distance 0 is an upper bound: most candidates need no square root.
            if combined_score(place[slot, ALPHA], 1.0, textual) >= place[slot, THRESHOLD]:
                value = combined_score(place[slot, ALPHA], ssim(lon[m] - place[slot, LON], lat[m] - place[slot, LAT], diagonal_deg), textual)
                if value >= place[slot, THRESHOLD]:
                    sums[slot] = value
                    candidates[kept] = slot
                    kept += 1
                    continue
            sums[slot] = -1.0
        sort_small(candidates, kept)
        if n + kept > capacity:
            capacity = 2 * (n + kept)
            grown_message, grown_slot, grown_score = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity)
            grown_message[:n], grown_slot[:n], grown_score[:n] = out_message[:n], out_slot[:n], out_score[:n]
            out_message, out_slot, out_score = grown_message, grown_slot, grown_score
        for i in range(kept):
            slot = candidates[i]
            out_message[n], out_slot[n], out_score[n] = m, slot, sums[slot]
            sums[slot] = -1.0
            n += 1
    return out_message[:n], out_slot[:n], out_score[:n]
