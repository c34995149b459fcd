"""Kernels for merged lists. They import numpy, numba and other kernels only.

A merged list consists of the k best messages in the rows of all replicas' lists. Rows are kept in rank order: score descending, then newer
(position, then sequence number) first. So the rows of one message are adjacent; it counts once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.topk.buffers._kernels import ADD, REMOVE, ranks_before
from dskype.topology.kernel_cache import njit

K = 3  # column of block after START, LENGTH and CAPACITY


class Lists(NamedTuple):
    """The rows of all replicas' lists, one block of rows per slot.

    :ivar block: int64[slots, 4]: START, LENGTH, CAPACITY, K.
    :ivar score: float64[rows].
    :ivar position: int64[rows].
    :ivar seq: int64[rows].
    :ivar task: int32[rows], the task of the replica.
    """

    block: np.ndarray
    score: np.ndarray
    position: np.ndarray
    seq: np.ndarray
    task: np.ndarray


class Changes(NamedTuple):
    """Changes of replicas' lists.

    :ivar slot: int64[n].
    :ivar task: int32[n], the task of the replica.
    :ivar op: int8[n], ADD or REMOVE.
    :ivar watermark: int64[n].
    :ivar seq: int64[n].
    :ivar position: int64[n], read where the op is ADD, as ``score``.
    :ivar score: float64[n].
    """

    slot: np.ndarray
    task: np.ndarray
    op: np.ndarray
    watermark: np.ndarray
    seq: np.ndarray
    position: np.ndarray
    score: np.ndarray


@njit(cache=True)
def top(score, position, seq, start, length, k, scores, positions, seqs):
    """Write the k best messages of a list into the last three arrays; return how many there are."""
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
    """Insert a row, for which there is room, unless it is there already; return the new length."""
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
    """Remove a row if it is there; return the new length."""
    end = start + length
    for at in range(start, end):
        if seq[at] == old_seq and task[at] == old_task:
            for row in range(at, end - 1):
                score[row], position[row], seq[row], task[row] = score[row + 1], position[row + 1], seq[row + 1], task[row + 1]
            return length - 1
    return length


@njit(cache=True)
def merge(lists, last, changes):
    """Apply changes of replicas' lists; return the changes of the merged lists.

    :param lists: :class:`Lists`, with room for the rows that are added.
    :param last: int64[slots], set to the watermark of each list's last change.
    :param changes: :class:`Changes`, sorted by slot and watermark.
    :returns: (slot, op, seq, score, rank, watermark); for each watermark of a list the removals, then the additions, in rank order.
    """
    block, score, position, seq, task = lists.block, lists.score, lists.position, lists.seq, lists.task
    slots, tasks, ops, watermarks = changes.slot, changes.task, changes.op, changes.watermark
    seqs, positions, scores = changes.seq, changes.position, changes.score
    n, most = len(slots), 1
    for i in range(n):
        most = max(most, block[slots[i], K])
    old_scores, old_positions, old_seqs = np.empty(most, np.float64), np.empty(most, np.int64), np.empty(most, np.int64)
    new_scores, new_positions, new_seqs = np.empty(most, np.float64), np.empty(most, np.int64), np.empty(most, np.int64)
    # Each change concerns the rows of one message, so the merged list loses and gains at most one message.
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
def tops(lists, slots):
    """Return the merged lists of slots: (offsets, positions, seqs, scores)."""
    block, score, position, seq = lists.block, lists.score, lists.position, lists.seq
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
