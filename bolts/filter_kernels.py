"""Runs the programs of :mod:`dskype.spouts.filters`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.boolean.program_kernels import contains
from dskype.spouts.filter_kernels import COUNT, EXISTS, IF, NOT, NUMBER, PHRASE, TERM, UNLESS, VALUE
from dskype.topology.kernel_cache import njit

__all__ = ["Texts", "satisfying"]

_BORDER = -2
_MOST_WORDS = 64
_MOST_COUNTS = 64
"""The most COUNT that may be open at once: more than an expression may be deep."""


class Texts(NamedTuple):
    """What programs look at; all arrays are read-only.

    :ivar offsets: int64[n + 1]; message *i* has the rising terms ``terms[offsets[i]:offsets[i + 1]]``, int64[].
    :ivar extra_offsets: int64[n + 1], into ``extra``, int64[]: the terms that are no words, rising.
    :ivar order_offsets: int64[n + 1]; its words in reading order are ``order``, int16[]: indexes of its terms, -1 a word that was left out,
        -2 the border between two fields.
    :ivar attribute_offsets: int64[n + 1], into ``attributes``, int64[]: pairs of key and value, rising.
    """

    offsets: np.ndarray
    terms: np.ndarray
    extra_offsets: np.ndarray
    extra: np.ndarray
    order_offsets: np.ndarray
    order: np.ndarray
    attribute_offsets: np.ndarray
    attributes: np.ndarray


@njit(cache=True)
def _index(terms, first, last, term):
    """Return at which place among the rising ``terms[first:last]`` ``term`` is, or -1."""
    at, end = first, last
    while at < end:
        middle = (at + end) >> 1
        if terms[middle] < term:
            at = middle + 1
        else:
            end = middle
    return at - first if at < last and terms[at] == term else -1


@njit(cache=True)
def _follows(program, at, n, within, texts, row, place, end, wanted):
    """Tell whether the other words of a phrase follow the one at ``place``, before ``end``: each taken as near as possible."""
    left = within
    for i in range(1, n):
        step = program[at + 2 * i] - program[at + 2 * i - 2]
        nearest = place + step
        found = False
        for other in range(nearest, min(end, nearest + left + 1)):
            if texts.order[other] == wanted[i]:
                left -= other - nearest
                place = other
                found = True
                break
        if not found:
            return False
    return True


@njit(cache=True)
def _has_phrase(program, at, texts, row, wanted):
    """Tell whether a message has the phrase whose operands begin at ``at``.

    :param wanted: int64[], room for the words' places among the message's terms.
    """
    field, within, n = program[at], program[at + 1], program[at + 2]
    at += 3
    for i in range(n):
        wanted[i] = _index(texts.terms, texts.offsets[row], texts.offsets[row + 1], program[at + 2 * i + 1])
        if wanted[i] < 0:
            return False
    first, last = texts.order_offsets[row], texts.order_offsets[row + 1]
    number, end = np.int64(0), first
    while end <= last:
        first = end
        while end < last and texts.order[end] != _BORDER:
            end += 1
        if field < 0 or field == number:
            for place in range(first, end):
                if texts.order[place] == wanted[0] and _follows(program, at, n, within, texts, row, place, end, wanted):
                    return True
        number += 1
        end += 1
    return False


@njit(cache=True)
def _as_number(bits):
    return np.int64(bits).view(np.float64)


@njit(cache=True)
def _run(programs, base, end, texts, row, wanted, needed, left):
    """Tell whether a message satisfies the program ``programs[base:end]``; targets of jumps count from ``base``."""
    first, last = texts.attribute_offsets[row], texts.attribute_offsets[row + 1]
    found, counts, at = False, -1, base + 1
    while at < end:
        op = programs[at]
        if op == TERM:
            found = contains(texts.terms, texts.offsets[row], texts.offsets[row + 1], programs[at + 1]) or contains(
                texts.extra, texts.extra_offsets[row], texts.extra_offsets[row + 1], programs[at + 1]
            )
            at += 2
        elif op == NUMBER or op == VALUE or op == EXISTS:
            found = False
            for pair in range(first, last, 2):
                if texts.attributes[pair] == programs[at + 1]:
                    value = texts.attributes[pair + 1]
                    if op == EXISTS:
                        found = True
                    elif op == VALUE:
                        found = value == programs[at + 2]
                    else:
                        found = _as_number(programs[at + 2]) <= _as_number(value) <= _as_number(programs[at + 3])
                    if found:
                        break
            at += 2 if op == EXISTS else 3 if op == VALUE else 4
        elif op == PHRASE:
            found = _has_phrase(programs, at + 1, texts, row, wanted)
            at += 4 + 2 * programs[at + 3]
        elif op == NOT:
            found = not found
            at += 1
        elif op == UNLESS:
            at = at + 2 if found else base + programs[at + 1]
        elif op == IF:
            at = base + programs[at + 1] if found else at + 2
        elif op == COUNT:
            counts += 1
            needed[counts], left[counts] = programs[at + 1], programs[at + 2]
            at += 3
        else:
            needed[counts] -= found
            left[counts] -= 1
            if needed[counts] == 0 or needed[counts] > left[counts]:
                found = needed[counts] == 0
                counts -= 1
                at = base + programs[at + 1]
            else:
                at += 2
    return found


@njit(cache=True)
def satisfying(programs, spans, rows, slots, texts):
    """Tell for each pair of a message and a slot whether the message satisfies the slot's program; True where it has none.

    :param programs: int64[], and ``spans``: int64[slots, 2], begin and end of each slot's program; 0, 0: none. Slots beyond have none.
    :param rows, slots: int32[m].
    :returns: bool[m].
    """
    found = np.ones(len(rows), np.bool_)
    wanted, needed, left = np.empty(_MOST_WORDS, np.int64), np.empty(_MOST_COUNTS, np.int64), np.empty(_MOST_COUNTS, np.int64)
    for i in range(len(rows)):
        slot = slots[i]
        if slot < len(spans) and spans[slot, 1] > 0:
            begin, end = spans[slot, 0], spans[slot, 1]
            if end - begin > len(wanted):
                wanted = np.empty(end - begin, np.int64)
            found[i] = _run(programs, begin, end, texts, rows[i], wanted, needed, left)
    return found
