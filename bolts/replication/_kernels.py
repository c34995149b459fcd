"""Kernels of merged lists. Imports numpy, numba and other kernels only.

A merged list is the k best of the rows of all replicas' lists, which are kept in rank order: score descending, then newer (position, then
sequence number) first. The rows of one message are side by side; it counts once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts.topk._kernels import LENGTH, START
from dskype.bolts.topk.buffers._kernels import ADD, REMOVE, ranks_before

K = 3  # column of block after START, LENGTH and CAPACITY


@njit(cache=True)
def top(score, position, seq, start, length, k, scores, positions, seqs):
    """Write the k best messages of a list; return how many there are."""
    n = 0
    for row in range(start, start + length):
        if n and seqs[n - 1] == seq[row]:
            continue
        if n == k:
            break
        scores[n], positions[n], seqs[n] = score[row], position[row], seq[row]
        n += 1
    return n


@njit(cache=True)
def put(score, position, seq, task, start, length, new_score, new_position, new_seq, new_task):
    """Add a row, which has room; return the length."""
    at = start
    while at < start + length and ranks_before(score[at], position[at], seq[at], new_score, new_position, new_seq):
        at += 1
    same = at
    while same < start + length and seq[same] == new_seq:
        if task[same] == new_task:
            return length
        same += 1
    for row in range(start + length, at, -1):
        score[row], position[row], seq[row], task[row] = score[row - 1], position[row - 1], seq[row - 1], task[row - 1]
    score[at], position[at], seq[at], task[at] = new_score, new_position, new_seq, new_task
    return length + 1


@njit(cache=True)
def drop(score, position, seq, task, start, length, old_seq, old_task):
    """Remove a row, if it is there; return the length."""
    end = start + length
    for at in range(start, end):
        if seq[at] == old_seq and task[at] == old_task:
            for row in range(at, end - 1):
                score[row], position[row], seq[row], task[row] = score[row + 1], position[row + 1], seq[row + 1], task[row + 1]
            return length - 1
    return length


@njit(cache=True)
def merge(block, score, position, seq, task, last, slots, tasks, ops, watermarks, seqs, positions, scores):
    """Apply changes of replicas' lists, and return those of the merged lists.

    :param block, score, position, seq, task: the pool of lists, with room for what is added.
    :param last: int64[slots], becomes the watermark of a list's last change.
    :param slots, ...: the changes, sorted by slot and watermark.
    :returns: slot, op, seq, score, rank, watermark: at each watermark of a list what it loses, then what it gains, in rank order.
    """
    n, most = len(slots), 1
    for i in range(n):
        most = max(most, block[slots[i], K])
    old_scores, old_positions, old_seqs = np.empty(most, np.float64), np.empty(most, np.int64), np.empty(most, np.int64)
    new_scores, new_positions, new_seqs = np.empty(most, np.float64), np.empty(most, np.int64), np.empty(most, np.int64)
    # A row changes the rows of one message, and that one loses a message and gains one at most.
    out_slot, out_op, out_seq = np.empty(2 * n, np.int64), np.empty(2 * n, np.int8), np.empty(2 * n, np.int64)
    out_score, out_rank, out_watermark = np.zeros(2 * n, np.float64), np.zeros(2 * n, np.int32), np.empty(2 * n, np.int64)
    out = i = 0
    while i < n:
        slot = slots[i]
        start, length, k = block[slot, START], block[slot, LENGTH], block[slot, K]
        while i < n and slots[i] == slot:
            watermark = watermarks[i]
            old_n = top(score, position, seq, start, length, k, old_scores, old_positions, old_seqs)
            while i < n and slots[i] == slot and watermarks[i] == watermark:
                if ops[i] == ADD:
                    length = put(score, position, seq, task, start, length, scores[i], positions[i], seqs[i], tasks[i])
                else:
                    length = drop(score, position, seq, task, start, length, seqs[i], tasks[i])
                i += 1
            new_n = top(score, position, seq, start, length, k, new_scores, new_positions, new_seqs)
            for op in (REMOVE, ADD):
                a = b = 0
                while a < old_n or b < new_n:
                    if a < old_n and b < new_n and old_seqs[a] == new_seqs[b]:
                        a += 1
                        b += 1
                    elif b == new_n or (a < old_n and ranks_before(old_scores[a], old_positions[a], old_seqs[a], new_scores[b], new_positions[b], new_seqs[b])):
                        if op == REMOVE:
                            out_slot[out], out_op[out], out_seq[out], out_watermark[out] = slot, op, old_seqs[a], watermark
                            out += 1
                        a += 1
                    else:
                        if op == ADD:
                            out_slot[out], out_op[out], out_seq[out], out_watermark[out] = slot, op, new_seqs[b], watermark
                            out_score[out], out_rank[out] = new_scores[b], b + 1
                            out += 1
                        b += 1
            last[slot] = watermark
        block[slot, LENGTH] = length
    return out_slot[:out], out_op[:out], out_seq[:out], out_score[:out], out_rank[:out], out_watermark[:out]


@njit(cache=True)
def tops(block, score, position, seq, slots):
    """Return the merged lists of slots: offsets, positions, seqs, scores."""
    n, room = len(slots), 0
    for i in range(n):
        room += min(block[slots[i], K], block[slots[i], LENGTH])
    offsets = np.zeros(n + 1, np.int64)
    scores, positions, seqs = np.empty(room, np.float64), np.empty(room, np.int64), np.empty(room, np.int64)
    for i in range(n):
        slot, at = slots[i], offsets[i]
        offsets[i + 1] = at + top(score, position, seq, block[slot, START], block[slot, LENGTH], block[slot, K], scores[at:], positions[at:], seqs[at:])
    total = offsets[n]
    return offsets, positions[:total], seqs[:total], scores[:total]
