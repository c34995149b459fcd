"""Kernels that put records of grouped matches together. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["Names", "cut", "fill", "gather"]

_COMMA, _TAIL = 44, (93, 125)  # "," and "]}"


class Names(NamedTuple):
    """Texts by number, in UTF-8.

    :ivar spans: int64[n, 2]; text *i* is ``data[spans[i, 0]:spans[i, 1]]``. Both in one row, because texts are asked for in no order and each row may be a miss of the cache.
    :ivar data: uint8[].
    """

    spans: np.ndarray
    data: np.ndarray


@njit(cache=True)
def cut(messages, subscriptions, names, heads, most_bytes):
    """Cut matches into records of one message each; return (firsts int64[r + 1], offsets int64[r + 1]).

    Record *i* has the matches ``firsts[i]`` to ``firsts[i + 1]``, and the bytes ``offsets[i]`` to ``offsets[i + 1]``.

    :param messages: int32[m], not falling: the message of each match.
    :param subscriptions: int32[m], the number of its subscription's name.
    :param names: spans of names by subscription; ``heads``: spans of the beginnings of records by message.
    :param most_bytes: a record with several subscriptions is not longer.
    """
    m = len(messages)
    firsts, offsets = np.empty(m + 1, np.int64), np.empty(m + 1, np.int64)
    records, size = 0, np.int64(0)
    offsets[0] = 0
    for i in range(m):
        message, subscription = messages[i], subscriptions[i]
        more = names[subscription, 1] - names[subscription, 0] + 1
        if i == 0 or message != messages[i - 1] or size + more > most_bytes:
            if i:
                offsets[records] = offsets[records - 1] + size
            firsts[records] = i
            records += 1
            size = heads[message, 1] - heads[message, 0] + more + len(_TAIL) - 1
        else:
            size += more
    if m:
        offsets[records] = offsets[records - 1] + size
    firsts[records] = m
    return firsts[: records + 1].copy(), offsets[: records + 1].copy()


@njit(cache=True)
def fill(firsts, messages, subscriptions, names, heads, out):
    """Write records one behind another: the head of the message, the names of subscriptions with commas between them, ``]}``.

    :param firsts: as of :func:`cut`, or a part of it.
    :param names: :class:`Names` by subscription; ``heads``: :class:`Names` by message.
    :param out: uint8[], as long as the records.
    """
    spans, data, head_spans, head_data = names.spans, names.data, heads.spans, heads.data
    at = np.uint64(0)
    one = np.uint64(1)
    # Unsigned numbers and loops without a call: LLVM makes them copies of memory, ten times as fast.
    for record in range(len(firsts) - 1):
        message = messages[firsts[record]]
        begin, end = np.uint64(head_spans[message, 0]), np.uint64(head_spans[message, 1])
        for j in range(end - begin):
            out[at + j] = head_data[begin + j]
        at += end - begin
        for i in range(firsts[record], firsts[record + 1]):
            subscription = subscriptions[i]
            begin, end = np.uint64(spans[subscription, 0]), np.uint64(spans[subscription, 1])
            for j in range(end - begin):
                out[at + j] = data[begin + j]
            at += end - begin
            out[at] = _COMMA
            at += one
        out[at - one], out[at] = _TAIL
        at += one


@njit(cache=True)
def gather(numbers, names, spans, out):
    """Copy texts to ``out``, one behind another, and write to ``spans`` where they are now; return their bytes.

    :param numbers: int64[], which texts.
    """
    at = np.int64(0)
    for i in range(len(numbers)):
        begin, end = names.spans[numbers[i], 0], names.spans[numbers[i], 1]
        for j in range(end - begin):
            out[at + j] = names.data[begin + j]
        spans[numbers[i], 0] = at
        at += end - begin
        spans[numbers[i], 1] = at
    return at
