"""Kernels that merge answers of the message window with the messages that pending slots collected, and publish the lists."""

from __future__ import annotations

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.topk.buffers._kernels import ACTIVE, FAR, FROZEN, LIMIT, STATE, THETA, K, enter_date, grow_log, log_difference, new_log, ranks_before
from dskype.bolts.topk.buffers.step_kernels import fit_block, keep_skyband, share
from dskype.topology.kernel_cache import njit


@njit(cache=True)
def resolve_kmax(buffers, calendar, slots, answers, gone, expired, watermark):
    """Merge answers with collected messages, and publish the lists; ``slots`` are pending and rise.

    :param answers: dskype.bolts.ranked_lists.RankedLists, one for each slot.
    :param gone: bool[], the messages of the answers that have ended; empty: none has.
    :param expired: positions up to this one have left the window.
    :returns: (log, number of changes, slots that are due again int32[]).
    """
    block, real = buffers.block, buffers.real
    offsets, seq, position, score = answers
    log, n_log = new_log(64), 0
    due, n_due = np.empty(slots.shape[0], np.int32), 0
    all_seq, all_position, all_score = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256)
    for a in range(slots.shape[0]):
        slot = slots[a]
        k, limit = np.int64(block[slot, K]), np.int64(block[slot, LIMIT])
        start, frozen = np.int64(block[slot, START]), np.int64(block[slot, FROZEN])
        collected = start + frozen
        n = block[slot, LENGTH] - frozen
        answer, answer_end = offsets[a], offsets[a + 1]
        bound = score[answer_end - 1] if answer_end - answer >= limit else -np.inf
        # Arrivals in rank order: newest first, then a stable sort by falling score.
        rank = np.argsort(-buffers.score[collected : collected + n][::-1], kind="mergesort")
        # The published list, with the merged one behind it.
        room = frozen + min(limit, n + answer_end - answer)
        if room > all_seq.shape[0]:
            all_seq, all_position, all_score = np.empty(2 * room, np.int64), np.empty(2 * room, np.int64), np.empty(2 * room)
        for e in range(frozen):
            all_seq[e], all_position[e], all_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
        kept = 0
        oldest = FAR
        r = 0
        while kept < limit and (answer < answer_end or r < n):
            c = collected + n - 1 - rank[r] if r < n else collected
            if r < n and (
                answer == answer_end or not ranks_before(score[answer], position[answer], seq[answer], buffers.score[c], buffers.position[c], buffers.seq[c])
            ):
                if answer < answer_end and seq[answer] == buffers.seq[c]:
                    answer += 1  # in both
                one_seq, one_position, one_score = buffers.seq[c], buffers.position[c], buffers.score[c]
                r += 1
                if one_score < bound:
                    break
            else:
                one_seq, one_position, one_score = seq[answer], position[answer], score[answer]
                if gone.shape[0] > 0 and gone[answer]:
                    one_position = expired
                answer += 1
            if one_position > expired:
                at = frozen + kept
                all_seq[at], all_position[at], all_score[at] = one_seq, one_position, one_score
                oldest = min(oldest, one_position)
                kept += 1
        if kept == limit:
            bound = max(bound, all_score[frozen + kept - 1])
        if kept < k and bound > -np.inf:
            block[slot, LENGTH] = frozen
            due[n_due] = slot
            n_due += 1
            continue
        log = grow_log(log, n_log, frozen + kept)
        n_log = log_difference(log, n_log, slot, all_seq, all_position, all_score, frozen, min(k, kept), watermark)
        for e in range(kept):
            at = frozen + e
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = all_seq[at], all_position[at], all_score[at]
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE] = kept, 0, ACTIVE
        real[slot, THETA] = bound
        if kept:
            enter_date(calendar, buffers.long, slot, oldest)
    return log, n_log, due[:n_due]


@njit(cache=True)
def choose_theta(chosen, bound, by_ratio, ratio, merged, k):
    """Return the theta of a skyband.

    :param chosen: the score at the wanted rank of the answer.
    :param bound: the least theta.
    :param by_ratio: ignore ``chosen``, and use ``ratio`` times the k-th score.
    :param merged: float64[], scores of the live messages, falling.
    """
    if by_ratio and merged.shape[0] >= k:
        chosen = min(merged[k - 1], ratio * merged[k - 1])
    if merged.shape[0] < k or merged[k - 1] < chosen:
        chosen = bound  # too few messages would be at or above it
    return max(chosen, bound)


@njit(cache=True)
def resolve_skyband(buffers, calendar, slots, answers, wanted, ranks, ratio, expired, watermark):
    """Merge answers with collected messages, choose theta, and publish the lists; ``slots`` are pending and rise.

    :param answers: dskype.bolts.ranked_lists.RankedLists, one for each slot.
    :param wanted: int64[n], the length of a full answer.
    :param ranks: int64[n]; theta is the score at this rank of the answer; 0: theta is ``ratio`` times the k-th score.
    :param expired: positions up to this one have left the window.
    :returns: (log, number of changes, slots that are due again int32[]).
    """
    block, real = buffers.block, buffers.real
    offsets, seq, position, score = answers
    log, n_log = new_log(64), 0
    due, n_due = np.empty(slots.shape[0], np.int32), 0
    all_seq, all_position, all_score = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256)
    newest = np.empty(256, np.int64)
    for a in range(slots.shape[0]):
        slot = slots[a]
        k, start, frozen = np.int64(block[slot, K]), np.int64(block[slot, START]), np.int64(block[slot, FROZEN])
        collected = start + frozen
        n = block[slot, LENGTH] - frozen
        answer, answer_end = offsets[a], offsets[a + 1]
        bound = score[answer_end - 1] if answer_end - answer >= wanted[a] else -np.inf
        chosen = -np.inf
        if ranks[a] and answer_end - answer >= ranks[a]:
            chosen = score[answer + ranks[a] - 1]
        # Arrivals in rank order: newest first, then a stable sort by falling score.
        rank = np.argsort(-buffers.score[collected : collected + n][::-1], kind="mergesort")
        # The published list, with the merged one behind it.
        room = frozen + n + answer_end - answer
        if room > all_seq.shape[0]:
            all_seq, all_position, all_score = np.empty(2 * room, np.int64), np.empty(2 * room, np.int64), np.empty(2 * room)
            newest = np.empty(2 * room, np.int64)
        for e in range(frozen):
            all_seq[e], all_position[e], all_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
        end = frozen
        r = 0
        while answer < answer_end or r < n:
            c = collected + n - 1 - rank[r] if r < n else collected
            if r < n and (
                answer == answer_end or not ranks_before(score[answer], position[answer], seq[answer], buffers.score[c], buffers.position[c], buffers.seq[c])
            ):
                if answer < answer_end and seq[answer] == buffers.seq[c]:
                    answer += 1  # in both
                all_seq[end], all_position[end], all_score[end] = buffers.seq[c], buffers.position[c], buffers.score[c]
                r += 1
                if all_score[end] < bound:
                    break
            else:
                all_seq[end], all_position[end], all_score[end] = seq[answer], position[answer], score[answer]
                answer += 1
            end += all_position[end] > expired
        merged = end - frozen
        if merged < k and bound > -np.inf:
            block[slot, LENGTH] = frozen
            due[n_due] = slot
            n_due += 1
            continue
        chosen = choose_theta(chosen, bound, ranks[a] == 0, ratio, all_score[frozen : frozen + merged], k)
        while merged and all_score[frozen + merged - 1] < chosen:
            merged -= 1
        log = grow_log(log, n_log, frozen + merged)
        n_log = log_difference(log, n_log, slot, all_seq, all_position, all_score, frozen, min(k, merged), watermark)
        merged = keep_skyband(all_seq, all_position, all_score, frozen, merged, k, newest)
        if merged > block[slot, LIMIT]:
            merged = share(k, np.int64(block[slot, LIMIT]))
            chosen = all_score[frozen + merged]
        real[slot, THETA] = chosen
        fit_block(buffers, slot, merged)
        start = np.int64(block[slot, START])
        oldest = FAR
        for e in range(merged):
            at = frozen + e
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = all_seq[at], all_position[at], all_score[at]
            oldest = min(oldest, all_position[at])
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE] = merged, 0, ACTIVE
        if merged:
            enter_date(calendar, buffers.long, slot, oldest)
    return log, n_log, due[:n_due]
