"""Kernels of the acker: a hash table of tuple trees, and what messages do to it. Imports numpy and numba only.

The table is one array, so that all about a tree is in one line of the processor's cache. Roots are hashed already; a tree is at the first free row from
``root & mask`` on (linear probing). When a tree is removed, those behind it move up.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["ACK", "FAIL", "INIT", "RESET", "ROOT", "TOUCHED", "WIDTH", "apply_messages", "insert_rows"]

INIT, ACK, FAIL, RESET = range(4)
"""Kinds of messages: to the acker; the last three are also its answers."""
ROOT, VALUE, SPOUT, FAILED, SINCE, TOUCHED = range(6)
"""Columns of the table: the root; XOR of the edge ids; the spout's task, 0 until it is known; whether the tree has failed (0 or 1); time of the first message,
ms; number of the tick before the last message, 0 in a free row."""
WIDTH = 6


@njit(cache=True)
def _remove(table, row):
    """Free a row, and move up the trees behind it that may not stay behind a free row."""
    mask = len(table) - 1
    free = row
    row = (row + 1) & mask
    while table[row, TOUCHED] != 0:
        home = table[row, ROOT] & mask
        if (row - home) & mask >= (row - free) & mask:
            table[free] = table[row]
            free = row
        row = (row + 1) & mask
    table[free, TOUCHED] = 0


@njit(cache=True)
def apply_messages(table, kind, roots, values, spouts, tick, now_ms):
    """Apply messages of one kind to the table, and return the answers in order.

    :param table: int64[2**k, WIDTH], with at least ``n`` free rows besides one that stays free.
    :param kind: INIT, ACK, FAIL or RESET.
    :param roots: int64[n].
    :param values: int64[n], edge ids; read for INIT and ACK.
    :param spouts: int64[n], tasks; read for INIT.
    :param tick: number of the last tick, from 1.
    :param now_ms: the acker's time.
    :returns: int64[m, 4] with kind (ACK, FAIL or RESET), root, spout's task and time since the first message, and by how many trees the table has grown.
    """
    mask = len(table) - 1
    answers = np.empty((len(roots), 4), np.int64)
    count, growth = 0, 0
    for i in range(len(roots)):
        root = roots[i]
        row = root & mask
        while table[row, ROOT] != root and table[row, TOUCHED] != 0:
            row = (row + 1) & mask
        if table[row, TOUCHED] == 0:
            table[row, ROOT] = root
            table[row, VALUE] = 0
            table[row, SPOUT] = 0
            table[row, FAILED] = 0
            table[row, SINCE] = now_ms
            growth += 1
        table[row, TOUCHED] = tick
        if kind == FAIL:
            table[row, FAILED] = 1
        elif kind != RESET:
            table[row, VALUE] ^= values[i]
            if kind == INIT:
                table[row, SPOUT] = spouts[i]
        if table[row, SPOUT] == 0:
            continue
        if kind == RESET:
            answer = RESET
        elif table[row, FAILED] != 0 and kind != ACK:
            answer = FAIL
        elif table[row, VALUE] == 0 and kind != FAIL:
            answer = ACK
        else:
            continue
        answers[count, 0] = answer
        answers[count, 1] = root
        answers[count, 2] = table[row, SPOUT]
        answers[count, 3] = now_ms - table[row, SINCE]
        count += 1
        if answer != RESET:
            _remove(table, row)
            growth -= 1
    return answers[:count], growth


@njit(cache=True)
def insert_rows(table, rows):
    """Put rows of trees that are not in the table into free rows.

    :param rows: int64[n, WIDTH].
    """
    mask = len(table) - 1
    for i in range(len(rows)):
        row = rows[i, ROOT] & mask
        while table[row, TOUCHED] != 0:
            row = (row + 1) & mask
        table[row] = rows[i]
