"""Kernels that search the lists of cones for messages. They import numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.topk._kernels import find_term
from dskype.bolts.topk.cones._kernels import ALPHA, CAPACITY, LANES, LAT, LENGTH, LON, LONG, START, THRESHOLD, room_for
from dskype.bolts.topk.cones.prune_kernels import Point, near_blocks, near_groups, new_codes, new_hits, new_keywords, scan_blocks, spread, test_codes
from dskype.spouts.score_kernels import score as combined_score
from dskype.spouts.score_kernels import ssim
from dskype.topology.kernel_cache import njit

_BITS, _LAST = np.int64(4), np.int64(LANES - 1)
_POSITIVE = np.int64(2**62 - 1)  # n & _POSITIVE cannot be negative, so the compiler omits the code for indexes from the end


class Terms(NamedTuple):
    """The terms of one message as a table without collisions.

    :ivar keys: int64[power of 2], the dense id at a place, -1: none.
    :ivar weight_of: float64[at least as many], the weight of the term at a place; undefined without one.
    :ivar turn: parameter of the hash function, see :func:`place_of`.
    """

    keys: np.ndarray
    weight_of: np.ndarray
    turn: int


class Checks(NamedTuple):
    """Room for the exact test of n subscriptions.

    :ivar begin: int64[n], where the keywords of each begin.
    :ivar count: int64[n], how many it has.
    :ivar passed: int64[n], the slot above 32 bits, and which of ``score`` it has.
    :ivar score: float64[n].
    :ivar spare: int64[n], for sorting.
    """

    begin: np.ndarray
    count: np.ndarray
    passed: np.ndarray
    score: np.ndarray
    spare: np.ndarray


@njit(cache=True)
def new_checks(n):
    """Return room for the exact test of ``n`` subscriptions."""
    return Checks(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64))


@njit(cache=True, inline="always")
def place_of(term, turn, keys):
    """Return the place of a dense term id in ``keys``, if it is there."""
    return (term ^ (term >> turn)) & np.int64(keys.shape[0] - 1)


@njit(cache=True)
def enter_terms(ids, n, keys):
    """Enter the terms (those >= 0 among ``ids[:n]``) of a message without collisions; return (keys, turn).

    :param keys: int64[m], m a power of two, all -1; if it is too short, a longer one is returned.
    """
    turn, size = np.int64(12), keys.shape[0]
    while size < min(n * n // 2, 65536):  # large enough that a try succeeds about every second time
        size *= 2
    if size > keys.shape[0]:
        keys = np.full(size, -1, np.int64)
    while True:
        i = 0
        while i < n:
            if ids[i] >= 0:
                at = place_of(ids[i], turn, keys)
                if keys[at] >= 0 and keys[at] != ids[i]:
                    break
                keys[at] = ids[i]
            i += 1
        if i == n:
            return keys, turn
        keys[:] = -1
        turn -= 1
        if turn == 0:
            turn, keys = np.int64(12), np.full(2 * keys.shape[0], -1, np.int64)


@njit(cache=True)
def sort_passed(values, n, bits, spare, counts):
    """Return ``values`` (or ``spare``, as large) with the first ``n`` in order of their ``bits`` bits above the lower 32 (radix sort).

    :param counts: int64[256], scratch.
    """
    if n <= 24:
        for i in range(1, n):
            value = values[i]
            j = i - 1
            while j >= 0 and values[j] > value:
                values[j + 1] = values[j]
                j -= 1
            values[j + 1] = value
        return values
    rounds = (bits + 7) // 8
    width = (bits + rounds - 1) // rounds
    last = (np.int64(1) << width) - 1
    for r in range(rounds):
        shift = 32 + r * width
        for d in range(last + 1):
            counts[d] = 0
        for i in range(n):
            counts[(values[i] >> shift) & last] += 1
        end = 0
        for d in range(last + 1):
            size = counts[d]
            counts[d] = end
            end += size
        for i in range(n):
            d = (values[i] >> shift) & last
            spare[counts[d] & _POSITIVE] = values[i]
            counts[d] += 1
        values, spare = spare, values
    return values


@njit(cache=True)
def open_lists(lists, keywords, weights, found, origin):
    """Find the lists of a message's terms: enter long lists into ``keywords``, and write the slots of short lists into ``found``.

    :param weights: float64[terms], of the message.
    :param found: int64[], receives slots; if it is too short, a longer one is returned.
    :param origin: int64[], receives the dense id of the term in whose list each slot was found; as ``found``.
    :returns: (number of long lists, of their groups, of their blocks, found, origin, number of slots found).
    """
    ids, numbers, nth, scales = keywords.ids, keywords.numbers, keywords.nth, keywords.scales
    block, id_slot, groups, lanes = lists.ids, lists.id_slot, lists.groups, lists.lanes
    n_lists, n_groups, n_blocks, n, later = 0, 0, 0, 0, 0.0
    for i in range(weights.shape[0] - 1, -1, -1):
        term = ids[i]
        if term < 0:
            continue
        weight = weights[i]
        number = block[term, LONG] - 1
        if number >= 0:
            numbers[n_lists], nth[n_lists] = number, i
            scales[n_lists, 0], scales[n_lists, 1] = min(weight, 1e30), min(later, 1e30)
            n_lists += 1
            n_groups += groups[number, CAPACITY]
            n_blocks += lanes[number, CAPACITY]
        else:
            length = block[term, LENGTH]
            found, origin = room_for(found, n, length), room_for(origin, n, length)
            for e in range(block[term, START], block[term, START] + length):
                found[n], origin[n] = id_slot[e], term
                n += 1
        later = max(later, weight)
    return n_lists, n_groups, n_blocks, found, origin, n


@njit(cache=True)
def search_lists(lists, keywords, n_lists, point, hits, weights, coded, found, origin, n):
    """Search the long lists of a message's terms; append slots that may match to ``found``, as :func:`open_lists` does. Return (found, origin, n, sink)."""
    ids, nth, ends, blocks, masks, slots = keywords.ids, keywords.nth, keywords.ends, hits.blocks, hits.masks, lists.slot
    _, sink = near_groups(lists, keywords, n_lists, point, hits)
    _, touched = near_blocks(lists, keywords, n_lists, point, hits)
    sink += touched
    _, touched = scan_blocks(lists.field, keywords, n_lists, point, hits)
    sink += touched
    n_blocks, touched = test_codes(lists.field, lists.code, keywords, n_lists, point, hits, weights, coded)
    sink += touched
    for i in range(n_blocks):
        sink += slots[blocks[i], 0]
    low = 0
    for l in range(n_lists):
        found, origin = room_for(found, n, LANES * (ends[l] - low) + 1), room_for(origin, n, LANES * (ends[l] - low) + 1)
        high = spread(blocks, masks, low, ends[l], 0, found, n)
        for c in range(n, high):
            lane, origin[c] = found[c], ids[nth[l]]
            found[c] = slots[lane >> _BITS, lane & _LAST]
        low, n = ends[l], high
    return found, origin, n, sink


@njit(cache=True)
def score_found(found, origin, n, words, place, own, lon, lat, diagonal_deg, checks):
    """Score the ``n`` subscriptions found; write matches into ``checks.passed`` and ``checks.score``. Return (number, sink).

    :param own: :class:`Terms` of the message; ``lon``, ``lat``: its place, degrees.
    """
    begin, count, passed, passed_score, sink = checks.begin, checks.count, checks.passed, checks.score, 0.0
    keys, weight_of, turn = own.keys, own.weight_of, own.turn
    block, word_term, word_weight = words.block, words.term, words.weight
    # Read the memory that the checks will need, so that it is fetched in parallel.
    for c in range(n):
        slot = found[c]
        begin[c], count[c] = block[slot, START], block[slot, LENGTH]
        sink += place[slot, LON]
    for c in range(n):
        at = begin[c] + count[c] - 1
        sink += word_weight[begin[c]] + word_weight[at] + word_term[begin[c]] + word_term[at]
    n_passed = 0
    for c in range(n):
        slot = found[c]
        first_common, text = np.int64(-1), 0.0
        for at in range(begin[c], begin[c] + count[c]):
            other = np.int64(word_term[at])
            h = place_of(other, turn, keys)
            part = word_weight[at] * weight_of[h]
            common = keys[h] == other
            text += part if common else 0.0
            first_common = other if common & (first_common < 0) else first_common
        spatial = ssim(lon - place[slot, LON], lat - place[slot, LAT], diagonal_deg)
        result = combined_score(place[slot, ALPHA], spatial, text)
        # If an earlier keyword is common, the match is found in that keyword's list.
        passed[n_passed], passed_score[n_passed] = (slot << np.int64(32)) | n_passed, result
        n_passed += np.int64((first_common == origin[c]) & (result >= place[slot, THRESHOLD]))
    return n_passed, sink


@njit(cache=True)
def match(messages, terms, lists, words, place, frame, step, diagonal_deg):
    """Return the matches, (message, slot, score, sink), ordered by message, then slot.

    :param messages: dskype.bolts.topk._kernels.Messages; ``terms``: its TermMap.
    :param place: float64[slots, 4]: LON, LAT, ALPHA, THRESHOLD.
    :param frame: float64[3]: west, south, steps per degree.
    :param step: a step of distance in steps of score, for a step of NEAR.
    """
    m_lon, m_lat, offsets, m_terms, m_weights = messages
    key, local = terms.key, terms.local
    n_out = 0
    out_message, out_slot, out_score = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024)
    keywords, coded, hits, checks = new_keywords(12), new_codes(16), new_hits(128, 1024), new_checks(1024)
    found, origin, counts = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(256, np.int64)
    keys, weight_of = np.full(512, -1, np.int64), np.zeros(512)
    near_scale, far, bits = np.float32(step), 1e15, 1
    while place.shape[0] >> bits:
        bits += 1
    sink = 0.0
    for m in range(m_lon.shape[0]):
        first, n_ids = offsets[m], offsets[m + 1] - offsets[m]
        if n_ids > keywords.ids.shape[0]:
            keywords, coded = new_keywords(2 * n_ids), new_codes(2 * n_ids + 4)
        ids, weights = keywords.ids, m_weights[first : first + n_ids]
        x = np.float32(min(max((m_lon[m] - frame[0]) * frame[2], -far), far))
        y = np.float32(min(max((m_lat[m] - frame[1]) * frame[2], -far), far))
        for i in range(n_ids):
            ids[i] = find_term(m_terms[first + i], key, local)
        # Without collisions a lookup needs no loop and no branch.
        keys, turn = enter_terms(ids, n_ids, keys)
        if weight_of.shape[0] < keys.shape[0]:
            weight_of = np.zeros(keys.shape[0])
        for i in range(n_ids):
            if ids[i] >= 0:
                weight_of[place_of(ids[i], turn, keys)] = weights[i]
        n_lists, n_groups, n_blocks, found, origin, n = open_lists(lists, keywords, weights, found, origin)
        if n_lists:
            if n_groups + LANES > hits.groups.shape[0] or n_blocks + LANES > hits.blocks.shape[0]:
                hits = new_hits(max(2 * n_groups, hits.groups.shape[0]), max(2 * n_blocks, hits.blocks.shape[0]))
            found, origin, n, touched = search_lists(lists, keywords, n_lists, Point(x, y, near_scale), hits, weights, coded, found, origin, n)
            sink += touched
        if n > checks.begin.shape[0]:
            checks = new_checks(2 * n)
        n_passed, read = score_found(found, origin, n, words, place, Terms(keys, weight_of, turn), m_lon[m], m_lat[m], diagonal_deg, checks)
        sink += read
        ordered = sort_passed(checks.passed, n_passed, bits, checks.spare, counts)
        if n_out + n_passed > out_slot.shape[0]:
            out_message, out_slot = room_for(out_message, n_out, n_passed), room_for(out_slot, n_out, n_passed)
            out_score = room_for(out_score, n_out, n_passed)
        scores = checks.score
        for c in range(n_passed):
            out_message[n_out], out_slot[n_out] = m, ordered[c] >> np.int64(32)
            out_score[n_out] = scores[ordered[c] & np.int64(0xFFFFFFFF)]
            n_out += 1
        for i in range(n_ids):
            if ids[i] >= 0:
                keys[place_of(ids[i], turn, keys)] = -1
    return out_message[:n_out].copy(), out_slot[:n_out].copy(), out_score[:n_out].copy(), sink
