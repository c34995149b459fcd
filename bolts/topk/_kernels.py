"""Kernels of the top-k library: term ids, scores, and checks of the engine. They import the score, and other kernels.

All are compiled lazily (arguments may be read-only) and cached on disk.
"""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.spouts.score_kernels import score, ssim, ssim_in_metres
from dskype.topology.kernel_cache import njit

LON, LAT, ALPHA, THRESHOLD = range(4)
_LOW = np.int64(0xFFFFFFFF)

TermMap = namedtuple("TermMap", "key local name references spare counters")
TermMap.__doc__ = """Dense ids of terms: open addressing from key int64[m] to local int32[m] (-1: empty place, m a power of two); by
local id its term (name int64) and its number of uses (references int32); spare int32: local ids to reuse; counters int64[3]:
number of local ids ever given, of spare ones, and of places in use."""


class Words(NamedTuple):
    """The keywords of the subscription table.

    :ivar block: int32[slots, 3], block table of the arrays below: by slot.
    :ivar term: int32[], dense ids, in rising order of the global ids within a slot.
    :ivar weight: float64[], >= 0.
    :ivar where: int32[], place of the keyword's posting in its list; empty if the index does not need it.
    """

    block: np.ndarray
    term: np.ndarray
    weight: np.ndarray
    where: np.ndarray


class Messages(NamedTuple):
    """The columns of messages that indexes read. Arrays may be read-only.

    :ivar lon: float64[n], degrees.
    :ivar lat: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the terms of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a message.
    :ivar weights: float64[], >= 0.
    """

    lon: np.ndarray
    lat: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray


# -- terms ----------------------------------------------------------------------------------------


@njit(cache=True)
def _home(term, mask):
    mixed = ((term & _LOW) * np.int64(0x2545F491)) ^ (((term >> np.int64(32)) & _LOW) * np.int64(0x1B873593))
    return (mixed >> np.int64(20)) & mask


@njit(cache=True)
def find_term(term, key, local):
    """Return the local id of a term, or -1 if it has none."""
    mask = np.int64(key.shape[0] - 1)
    at = _home(term, mask)
    while local[at] >= 0 and key[at] != term:
        at = (at + 1) & mask
    return local[at]


@njit(cache=True)
def rehash_terms(old_key, old_local, key, local):
    """Enter the terms of one table into a larger, empty one."""
    mask = np.int64(key.shape[0] - 1)
    for i in range(old_key.shape[0]):
        if old_local[i] >= 0:
            at = _home(old_key[i], mask)
            while local[at] >= 0:
                at = (at + 1) & mask
            key[at], local[at] = old_key[i], old_local[i]


@njit(cache=True)
def acquire_terms(terms, table):
    """Return local ids (int32[n]) of terms, new ones if needed, and count each as a use. The table has room for all."""
    out = np.empty(terms.shape[0], np.int32)
    mask = np.int64(table.key.shape[0] - 1)
    for i in range(terms.shape[0]):
        term = terms[i]
        at = _home(term, mask)
        while table.local[at] >= 0 and table.key[at] != term:
            at = (at + 1) & mask
        if table.local[at] < 0:
            if table.counters[1]:
                table.counters[1] -= 1
                new = np.int64(table.spare[table.counters[1]])
            else:
                new = table.counters[0]
                table.counters[0] += 1
            table.key[at], table.local[at] = term, new
            table.name[new] = term
            table.counters[2] += 1
        out[i] = table.local[at]
        table.references[out[i]] += 1
    return out


@njit(cache=True)
def release_terms(locals_, table):
    """Count one use less for each id, and delete terms without uses (by shifting entries back)."""
    mask = np.int64(table.key.shape[0] - 1)
    for i in range(locals_.shape[0]):
        gone = locals_[i]
        table.references[gone] -= 1
        if table.references[gone]:
            continue
        table.spare[table.counters[1]] = gone
        table.counters[1] += 1
        table.counters[2] -= 1
        hole = _home(table.name[gone], mask)
        while table.local[hole] != gone:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if table.local[at] < 0:
                break
            if ((at - _home(table.key[at], mask)) & mask) >= ((at - hole) & mask):
                table.key[hole], table.local[hole] = table.key[at], table.local[at]
                hole = at
        table.local[hole] = -1


@njit(cache=True)
def first_unordered_terms(offsets, terms):
    """Return the first row whose terms do not rise strictly, or -1."""
    for i in range(offsets.shape[0] - 1):
        for j in range(offsets[i] + 1, offsets[i + 1]):
            if terms[j] <= terms[j - 1]:
                return i
    return -1


@njit(cache=True)
def first_disorder(position, seq):
    """Return the first message that is not after its predecessor, or -1."""
    for i in range(1, seq.shape[0]):
        if position[i] < position[i - 1] or (position[i] == position[i - 1] and seq[i] <= seq[i - 1]):
            return i
    return -1


@njit(cache=True)
def lowest_free_slots(live, n, first):
    """Return the ``n`` lowest free slots (int32) from ``first`` on; slots beyond the end of ``live`` are free."""
    out = np.empty(n, np.int32)
    at = first
    for i in range(n):
        while at < live.shape[0] and live[at]:
            at += 1
        out[i] = at
        at += 1
    return out


# -- scores of given pairs ------------------------------------------------------------------------


@njit(cache=True)
def scores_of_pairs(messages, rows, slots, first, place, scale_m, words, names, diagonal_deg):
    """Return the scores (float64[n]) of message ``rows[i]`` for subscription ``slots[i]``.

    :param messages: :class:`Messages`.
    :param first: int32[slots], the rows of ``words`` with the keywords of each subscription.
    :param place: float64[slots, 4]: LON, LAT, ALPHA, THRESHOLD.
    :param scale_m: float64[slots]; 0: distances are in degrees, over ``diagonal_deg``.
    :param names: int64[], the terms by their dense ids.
    """
    scores = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        row, slot = rows[i], slots[i]
        at, end = np.int64(words.block[first[slot], START]), np.int64(words.block[first[slot], LENGTH])
        end += at
        text = 0.0
        for j in range(messages.offsets[row], messages.offsets[row + 1]):
            term = messages.terms[j]
            while at < end and names[words.term[at]] < term:
                at += 1
            if at == end:
                break
            if names[words.term[at]] == term:
                text += words.weight[at] * messages.weights[j]
        if scale_m[slot] > 0:
            spatial = ssim_in_metres(place[slot, LAT], place[slot, LON], messages.lat[row], messages.lon[row], scale_m[slot])
        else:
            spatial = ssim(messages.lon[row] - place[slot, LON], messages.lat[row] - place[slot, LAT], diagonal_deg)
        scores[i] = score(place[slot, ALPHA], spatial, text)
    return scores


# -- plain term-at-a-time index -------------------------------------------------------------------
