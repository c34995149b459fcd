"""Kernels of the plain term-at-a-time index. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts._kernels import score as combined_score
from dskype.bolts._kernels import ssim
from dskype.bolts.topk._kernels import ALPHA, LAT, LENGTH, LON, START, THRESHOLD, find_term
from dskype.bolts.topk.baselines._kernels import sort_small


@njit(cache=True)
def link_postings(slots, words, word_term, word_weight, word_where, lists, posting_slot, posting_nth, posting_weight):
    """Append a posting for every keyword of ``slots``; there is room for all."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = words[slot, START]
        for nth in range(words[slot, LENGTH]):
            term = word_term[start + nth]
            length = lists[term, LENGTH]
            at = lists[term, START] + length
            posting_slot[at], posting_nth[at], posting_weight[at] = slot, nth, word_weight[start + nth]
            word_where[start + nth] = length
            lists[term, LENGTH] = length + 1


@njit(cache=True)
def unlink_postings(slots, words, word_term, word_where, lists, posting_slot, posting_nth, posting_weight):
    """Remove the postings of ``slots``: the last one of a list fills the gap."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = words[slot, START]
        for nth in range(words[slot, LENGTH]):
            term = word_term[start + nth]
            last = lists[term, LENGTH] - 1
            lists[term, LENGTH] = last
            gap = lists[term, START] + word_where[start + nth]
            tail = lists[term, START] + last
            if gap != tail:
                posting_slot[gap], posting_nth[gap], posting_weight[gap] = posting_slot[tail], posting_nth[tail], posting_weight[tail]
                word_where[words[posting_slot[gap], START] + posting_nth[gap]] = word_where[start + nth]


@njit(cache=True)
def match_taat(lon, lat, offsets, terms, weights, key, local, lists, posting_slot, posting_weight, place, diagonal_deg, sums):
    """Return (message, slot, score) of what reaches its threshold, term at a time.

    :param place: float64[slots, 4], LON, LAT, ALPHA, THRESHOLD.
    :param sums: float64[slots], scratch, all -1 (no common term yet) before and after.
    """
    capacity = 1024
    out_message, out_slot, out_score = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity)
    candidates = np.empty(sums.shape[0], np.int32)
    n = 0
    for m in range(lon.shape[0]):
        met = 0
        for i in range(offsets[m], offsets[m + 1]):
            term = find_term(terms[i], key, local)
            if term < 0:
                continue
            weight = weights[i]
            start = lists[term, START]
            for j in range(start, start + lists[term, LENGTH]):
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
            # Rounding is monotone, so nothing nearer than distance 0 could score more: no square root for most.
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
