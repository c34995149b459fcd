"""Runs the programs of :mod:`dskype.spouts.filters`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.boolean.lanes.vector_kernels import fetch
from dskype.spouts.filter_kernels import COUNT, EXISTS, IF, NOT, NUMBER, PHRASE, TERM, UNLESS, VALUE
from dskype.topology.kernel_cache import njit

__all__ = ["LENGTH_SHIFT", "LINE", "LONG", "Texts", "keep", "satisfying"]

LINE = 8
"""Numbers in the line of a slot: a cache line."""
LENGTH_SHIFT = 8
"""A line begins with its first operation, below these bits, and its length. Length 0: the program is elsewhere."""
LONG = 1
"""Begins a line whose program is elsewhere, between the next two numbers; the operation is not that of the program."""
_AHEAD = 32
"""Lines that memory is asked for before they are read, so that the waits overlap."""
_PASS = 128
"""Pairs of which those that need more than one test run in one loop."""
_FEW = 8
"""Terms that most messages have at most."""
_OPERATION = (1 << LENGTH_SHIFT) - 1
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
    """Return at which place among the rising ``terms[first:last]`` ``term`` is, or -1. The loop takes the same way whatever is found, so that the processor foresees it."""
    at, n = first, last - first
    while n > 1:
        half = n >> 1
        at += half * (terms[at + half - 1] < term)
        n -= half
    return at - first if n == 1 and terms[at] == term else -1


@njit(cache=True)
def _follows(program, at, n, within, order, place, last, wanted):
    """Tell whether the other words of a phrase follow the one at ``place`` in the same field: each taken as near as possible."""
    left = within
    for i in range(1, n):
        nearest = place + program[at + 2 * i] - program[at + 2 * i - 2]
        found = False
        for other in range(place + 1, min(last, nearest + left + 1)):
            if order[other] == _BORDER:
                return False
            if other >= nearest and order[other] == wanted[i]:
                left -= other - nearest
                place = other
                found = True
                break
        if not found:
            return False
    return True


@njit(cache=True)
def _has_phrase(program, at, terms, begin, stop, order, first, last, wanted):
    """Tell whether a message has the phrase whose operands begin at ``at``.

    :param terms: those of the message from ``begin`` to ``stop``.
    :param order: its words in reading order from ``first`` to ``last``.
    :param wanted: int64[], room for the words' places among the message's terms.
    """
    field, within, n = program[at], program[at + 1], program[at + 2]
    at += 3
    for i in range(n):
        wanted[i] = _index(terms, begin, stop, program[at + 2 * i + 1])
        if wanted[i] < 0:
            return False
    number = np.int64(0)
    for place in range(first, last):
        number += order[place] == _BORDER
        if order[place] == wanted[0] and (field < 0 or field == number) and _follows(program, at, n, within, order, place, last, wanted):
            return True
    return False


@njit(cache=True)
def _as_number(bits):
    return np.int64(bits).view(np.float64)


@njit(cache=True)
def _has_attribute(attributes, first, last, op, key, low, high):
    """Tell whether among the pairs ``attributes[first:last]`` is one that satisfies an EXISTS, VALUE or NUMBER."""
    for pair in range(first, last, 2):
        if attributes[pair] == key:
            value = attributes[pair + 1]
            if op == EXISTS or (op == VALUE and value == low) or (op == NUMBER and _as_number(low) <= _as_number(value) <= _as_number(high)):
                return True
    return False


@njit(cache=True)
def _signature(terms, first, last):
    """Return which of 64 bits the terms have, for a quick look whether a term is missing."""
    found = np.int64(0)
    for at in range(first, last):
        found |= np.int64(1) << (terms[at] & 63)
    return found


@njit(cache=True)
def _run(program, chosen, n, rows, texts, scratch, found):
    """Run the programs ``program[begin:end]`` of ``n`` pairs of a message and a program, and say in ``found`` which messages satisfy them.

    :param chosen: int64[n, 3]: number of the pair, begin, end.
    :param scratch: int64[], room for the words of a phrase and for what is open of COUNT.
    """
    offsets, terms, extra_offsets, extra, order_offsets, order, attribute_offsets, attributes = texts
    needed, left, wanted = scratch[:_MOST_COUNTS], scratch[_MOST_COUNTS : 2 * _MOST_COUNTS], scratch[2 * _MOST_COUNTS :]
    row, signature = np.int64(-1), np.int64(0)
    for i in range(n):
        pair, at, end = chosen[i, 0], chosen[i, 1], chosen[i, 2]
        if end - at > len(wanted):
            wanted = np.empty(end - at, np.int64)
        if rows[pair] != row:
            row = np.int64(rows[pair])
            signature = _signature(terms, offsets[row], offsets[row + 1]) | _signature(extra, extra_offsets[row], extra_offsets[row + 1])
        base, holds, counts = at - 1, False, -1  # targets of jumps count from the version
        while at < end:
            op = program[at] & _OPERATION
            if op == TERM:
                term = program[at + 1]
                holds = (signature >> (term & 63)) & 1 != 0 and (
                    _index(terms, offsets[row], offsets[row + 1], term) >= 0 or _index(extra, extra_offsets[row], extra_offsets[row + 1], term) >= 0
                )
                at += 2
            elif op == NOT:
                holds = not holds
                at += 1
            elif op == NUMBER or op == VALUE or op == EXISTS:
                size = 2 if op == EXISTS else 3 if op == VALUE else 4
                low, high = program[min(at + 2, end - 1)], program[min(at + 3, end - 1)]
                holds = _has_attribute(attributes, attribute_offsets[row], attribute_offsets[row + 1], op, program[at + 1], low, high)
                at += size
            elif op == PHRASE:
                holds = _has_phrase(program, at + 1, terms, offsets[row], offsets[row + 1], order, order_offsets[row], order_offsets[row + 1], wanted)
                at += 4 + 2 * program[at + 3]
            elif op == UNLESS:
                at = at + 2 if holds else base + program[at + 1]
            elif op == IF:
                at = base + program[at + 1] if holds else at + 2
            elif op == COUNT:
                counts += 1
                needed[counts], left[counts] = program[at + 1], program[at + 2]
                at += 3
            else:
                needed[counts] -= holds
                left[counts] -= 1
                if needed[counts] == 0 or needed[counts] > left[counts]:
                    holds = needed[counts] == 0
                    counts -= 1
                    at = base + program[at + 1]
                else:
                    at += 2
        found[pair] = holds


@njit(cache=True)
def _signatures(first, last, texts):
    """Return for the messages ``first..last - 1`` which of 64 bits their terms have, for a quick look whether a term is missing (int64[]).

    Most messages have up to eight terms, and the processor foresees a loop that always has eight steps: those behind the last term repeat it.
    """
    offsets, terms, extra_offsets, extra = texts[:4]
    found = np.zeros(max(last - first, 0), np.int64)
    for row in range(first, last):
        begin, end, bits = offsets[row], offsets[row + 1], np.int64(0)
        if begin < end:
            for at in range(begin, begin + _FEW):
                bits |= np.int64(1) << (terms[min(at, end - 1)] & 63)
        for at in range(begin + _FEW, end):
            bits |= np.int64(1) << (terms[at] & 63)
        for at in range(extra_offsets[row], extra_offsets[row + 1]):
            bits |= np.int64(1) << (extra[at] & 63)
        found[row - first] = bits
    return found


@njit(cache=True)
def _has_pair(terms, begin, end, order, first, last, one, other):
    """Tell whether a message has two terms right behind each other."""
    at_one, at_other, found = np.int64(-3), np.int64(-3), False
    for at in range(begin, end):
        term = terms[at]
        at_one = at - begin if term == one else at_one
        at_other = at - begin if term == other else at_other
    for place in range(first, last - 1):
        found |= (order[place] == at_one) & (order[place + 1] == at_other)
    return found


@njit(cache=True)
def _decide(lines, steps, rows, slots, texts, found):
    """Say in ``found`` which of the pairs hold; see :func:`satisfying`.

    Most filters are one test, which is made here, without a search for the instruction and without a decision that the processor does not foresee. The others run
    afterwards.
    """
    offsets, terms, _, _, order_offsets, order, attribute_offsets, attributes = texts
    m, size, flat = len(rows), len(lines), lines.ravel()
    if m == 0 or size == 0:
        return
    low, high = np.int64(rows[0]), np.int64(rows[0])
    for i in range(m):
        low, high = min(low, np.int64(rows[i])), max(high, np.int64(rows[i]))
    signatures = _signatures(low, high + 1, texts)
    short, long, scratch = np.empty((_PASS, 3), np.int64), np.empty((_PASS, 3), np.int64), np.empty(2 * _MOST_COUNTS + _MOST_WORDS, np.int64)
    for i in range(min(m, _AHEAD)):
        fetch(flat, LINE * min(np.int64(slots[i]), size - 1))
    for start in range(0, m, _PASS):
        n = n_long = 0
        for i in range(start, min(start + _PASS, m)):
            fetch(flat, LINE * min(np.int64(slots[min(i + _AHEAD, m - 1)]), size - 1))
            slot, row = np.int64(slots[i]), np.int64(rows[i])
            if slot >= size:
                continue
            at = LINE * slot
            first = flat[at]
            op, length = first & _OPERATION, first >> LENGTH_SHIFT
            if op == TERM and (length == 2 or length == 3):  # the term, or NOT the term
                short[n, 0], short[n, 1], short[n, 2] = i, at, at + length
                found[i] = length == 3
                n += (signatures[row - low] >> (flat[at + 1] & 63)) & 1
            elif (op == NUMBER and length == 4) or (op == VALUE and length == 3):
                key, least, most, hit = flat[at + 1], flat[at + 2], flat[at + 3], False
                for pair in range(attribute_offsets[row], attribute_offsets[row + 1], 2):
                    value = attributes[pair + 1]
                    within = value == least if op == VALUE else (_as_number(least) <= _as_number(value)) & (_as_number(value) <= _as_number(most))
                    hit |= (attributes[pair] == key) & within
                found[i] = hit
            elif op == PHRASE and length == 8 and flat[at + 3] == 2 and flat[at + 1] < 0 and flat[at + 2] == 0 and flat[at + 6] == 1:  # two words in a row
                found[i] = _has_pair(terms, offsets[row], offsets[row + 1], order, order_offsets[row], order_offsets[row + 1], flat[at + 5], flat[at + 7])
            elif first == LONG:
                long[n_long, 0], long[n_long, 1], long[n_long, 2] = i, flat[at + 1], flat[at + 2]
                n_long += 1
            elif first:
                short[n, 0], short[n, 1], short[n, 2] = i, at, at + length
                n += 1
        if n:
            _run(flat, short, n, rows, texts, scratch, found)
        if n_long:
            _run(steps, long, n_long, rows, texts, scratch, found)


@njit(cache=True)
def satisfying(lines, steps, rows, slots, texts):
    """Tell for each pair of a message and a slot whether the message satisfies the slot's program; True where it has none.

    :param lines: int64[n, LINE], of the slots: a program without its version, with its length above its first operation (:data:`LENGTH_SHIFT`); or :data:`LONG`, and
        its begin and its end in ``steps``, int64[]; or zeros. Slots beyond have none.
    :param rows, slots: int32[m]. Fastest in the order of the messages.
    :param texts: what a :class:`Texts` has, as a plain tuple, which takes less time to hand over.
    :returns: bool[m].
    """
    found = np.ones(len(rows), np.bool_)
    _decide(lines, steps, rows, slots, texts, found)
    return found


@njit(cache=True)
def keep(lines, steps, rows, slots, texts):
    """Return the rows and slots of the pairs that hold (int32[m], of which the first n count), and n; see :func:`satisfying`."""
    found = satisfying(lines, steps, rows, slots, texts)
    kept_rows, kept_slots, n = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32), 0
    for i in range(len(rows)):
        kept_rows[n], kept_slots[n] = rows[i], slots[i]
        n += found[i]
    return kept_rows, kept_slots, n
