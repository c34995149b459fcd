"""Kernels of the index with individual and group pruning. They import numpy and numba only.

Bounds are float32. A subscription is skipped only if a bound misses by more than ``SLACK`` of the magnitudes in it, far above their
rounding errors. All other subscriptions are scored exactly.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.search_kernels import first_above, first_not_below
from dskype.bolts.topk._kernels import ALPHA, LAT, LON, THRESHOLD
from dskype.topology.kernel_cache import njit

SLACK = 1e-6
LEAST = 2.0**-60  # stands for 1 - alpha (or alpha) when that is 0: bounds scale with it, and so does their slack
DRIFT = 0.01  # a threshold that rose by less than this need not be followed
WEST, SOUTH, EAST, NORTH = range(4)
_BIG = 3e38  # near the end of float32

Tree = namedtuple("Tree", "box child")
Tree.__doc__ = """A quadtree: per node its box float64[4] (WEST, SOUTH, EAST, NORTH) and the first of its four children int32 (-1: a leaf)."""
Files = namedtuple("Files", "block runs key start slot weight total rest score ratio inner top_weight top_ratio")
Files.__doc__ = """The inverted file of every cell: block and runs are block tables by cell, of postings and of runs.

Per run: key int32, term * groups + group, rising; start int32, its first posting, from the cell's first. Per posting: slot int32 and
float32 weight: wt(s.w); total: wtsum(s.w); rest: maxwt of the keywords after w; score: kScore*, or less; ratio: a*; inner: distance to
the border of the cell / diagonal; with groups top_weight, top_ratio: largest maxwt(s.w) and a* of this and the later postings of its run.
With groups a run is in order of (score, slot), else of slot.
"""
Fresh = namedtuple("Fresh", "cell key slot weight total rest score ratio inner")
Fresh.__doc__ = """New postings, see :data:`Files`."""


# -- cells ----------------------------------------------------------------------------------------


@njit(cache=True)
def locate(slots, place, tree):
    """Return the leaf (int32[n]) of every slot."""
    out = np.empty(slots.shape[0], np.int32)
    for i in range(slots.shape[0]):
        x, y = place[slots[i], LON], place[slots[i], LAT]
        node = np.int64(0)
        while tree.child[node] >= 0:
            box = tree.box[node]
            node = tree.child[node] + np.int64(x >= middle(box[WEST], box[EAST])) + 2 * np.int64(y >= middle(box[SOUTH], box[NORTH]))
        out[i] = node
    return out


@njit(cache=True, inline="always")
def middle(low, high):
    """Return the middle of an interval without overflow."""
    return 0.5 * low + 0.5 * high


@njit(cache=True)
def enter_members(slots, leaf, block, member):
    """Append slots to the members of their leaves; there is room."""
    for i in range(slots.shape[0]):
        cell = leaf[slots[i]]
        member[block[cell, START] + block[cell, LENGTH]] = slots[i]
        block[cell, LENGTH] += 1


@njit(cache=True)
def drop_members(cells, dropped, block, member):
    """Remove the slots marked in ``dropped`` from the members of cells; the others keep their order."""
    for c in range(cells.shape[0]):
        start = block[cells[c], START]
        kept = 0
        for at in range(start, start + block[cells[c], LENGTH]):
            if not dropped[member[at]]:
                member[start + kept] = member[at]
                kept += 1
        block[cells[c], LENGTH] = kept


@njit(cache=True)
def scaled(slots, place):
    """Return kScore* = threshold / (1 - alpha) (float32[n]), or less, except for rounding."""
    out = np.empty(slots.shape[0], np.float32)
    for i in range(slots.shape[0]):
        value = place[slots[i], THRESHOLD] / max(1.0 - place[slots[i], ALPHA], LEAST)
        if value > _BIG and place[slots[i], THRESHOLD] < np.inf:
            value = _BIG
        elif value < -_BIG:
            value = -np.inf
        out[i] = value
    return out


@njit(cache=True)
def _needed_ssim(slot, place, block, word_weight):
    """Return the least spatial similarity at which a message of norm 1 could reach the threshold (Skype, equation 10)."""
    threshold, alpha = place[slot, THRESHOLD], place[slot, ALPHA]
    if threshold == np.inf:
        return np.inf
    square = 0.0
    for at in range(block[slot, START], block[slot, START] + block[slot, LENGTH]):
        square += word_weight[at] * word_weight[at]
    text = np.sqrt(square)
    return (threshold - (1.0 - alpha) * text - SLACK * (1.0 + abs(threshold) + text)) / max(alpha, LEAST)


@njit(cache=True)
def set_floors(cells, member_block, member, place, block, word_weight, floor):
    """Set the least spatial similarity that any member of a cell needs (Skype, Lemma 6)."""
    for c in range(cells.shape[0]):
        cell = cells[c]
        least = np.inf
        for at in range(member_block[cell, START], member_block[cell, START] + member_block[cell, LENGTH]):
            least = min(least, _needed_ssim(member[at], place, block, word_weight))
        floor[cell] = least


@njit(cache=True)
def lower_floors(slots, leaf, place, block, word_weight, floor):
    """Lower the floors of cells to what ``slots`` need; the caller counts how often they may have risen."""
    for i in range(slots.shape[0]):
        cell = leaf[slots[i]]
        floor[cell] = min(floor[cell], _needed_ssim(slots[i], place, block, word_weight))


# -- postings -------------------------------------------------------------------------------------


@njit(cache=True)
def _group(ratio, bounds):
    """Return the group of a*: how many of the rising bounds are not above it."""
    return first_above(bounds, 0, bounds.shape[0], ratio)


@njit(cache=True)
def make_postings(slots, leaf, scores, place, block, word_term, word_weight, bounds, box, diagonal_deg):
    """Return the postings (:data:`Fresh`) of slots, in order of slots, keywords."""
    n = np.int64(0)
    for i in range(slots.shape[0]):
        n += block[slots[i], LENGTH]
    groups = bounds.shape[0] + 1
    cell, key, slot_ = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    weight, total, rest = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    score, ratio, inner = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    first = np.int64(0)
    for i in range(slots.shape[0]):
        slot = slots[i]
        x, y, alpha = place[slot, LON], place[slot, LAT], place[slot, ALPHA]
        own = box[leaf[slot]]
        border = min(min(x - own[WEST], own[EAST] - x), min(y - own[SOUTH], own[NORTH] - y)) / diagonal_deg
        star = alpha / max(1.0 - alpha, LEAST)
        group = _group(star, bounds)
        start, length = block[slot, START], block[slot, LENGTH]
        sum_, most = 0.0, 0.0
        for back in range(length):
            nth = length - 1 - back
            at = first + nth
            w = word_weight[start + nth]
            sum_ += w
            cell[at], key[at], slot_[at] = leaf[slot], word_term[start + nth] * groups + group, slot
            weight[at], total[at], rest[at] = w, sum_, most
            score[at], ratio[at], inner[at] = scores[slot], star, border
            most = max(most, w)
        first += length
    return Fresh(cell, key, slot_, weight, total, rest, score, ratio, inner)


@njit(cache=True)
def merge_plan(cells, files, ranked, dropped, first, key, score, slot):
    """Plan the files of cells without dropped postings, and with new ones.

    :param cells: int64[T], each once.
    :param dropped: bool[slots], the slots whose postings are removed.
    :param first: int64[T + 1]; the new postings of cell *t* are ``first[t]:first[t + 1]``, in order.
    :returns: (plan int64[], lengths int64[T], run keys int32[], run starts int32[], numbers of runs int64[T]); an item of the plan
        is the place of a posting, or ~place of a new one.
    """
    most = first[-1]
    for t in range(cells.shape[0]):
        most += files.block[cells[t], LENGTH]
    plan = np.empty(most, np.int64)
    run_key, run_start = np.empty(most, np.int32), np.empty(most, np.int32)
    lengths, counts = np.zeros(cells.shape[0], np.int64), np.zeros(cells.shape[0], np.int64)
    n, runs = np.int64(0), np.int64(0)
    for t in range(cells.shape[0]):
        cell = cells[t]
        base, length = files.block[cell, START], files.block[cell, LENGTH]
        run, last_run = files.runs[cell, START], files.runs[cell, START] + files.runs[cell, LENGTH]
        at, end = base, base + length
        j, stop = first[t], first[t + 1]
        begin, begin_runs = n, runs
        while at < end or j < stop:
            if at < end:
                while run + 1 < last_run and base + files.start[run + 1] <= at:
                    run += 1
                if dropped[files.slot[at]]:
                    at += 1
                    continue
            old = at < end
            if old and j < stop:
                if files.key[run] != key[j]:
                    old = files.key[run] < key[j]
                elif ranked and files.score[at] != score[j]:
                    old = files.score[at] < score[j]
                else:
                    old = files.slot[at] < slot[j]
            now = files.key[run] if old else key[j]
            if runs == begin_runs or run_key[runs - 1] != now:
                run_key[runs], run_start[runs] = now, n - begin
                runs += 1
            if old:
                plan[n] = at
                at += 1
            else:
                plan[n] = ~j
                j += 1
            n += 1
        lengths[t], counts[t] = n - begin, runs - begin_runs
    return plan[:n], lengths, run_key[:runs], run_start[:runs], counts


@njit(cache=True)
def follow_plan(plan, array, new):
    """Return one field of the postings of a plan."""
    out = np.empty(plan.shape[0], array.dtype)
    for i in range(plan.shape[0]):
        out[i] = array[plan[i]] if plan[i] >= 0 else new[~plan[i]]
    return out


@njit(cache=True)
def _sum_up(files, first, last):
    """Set top_weight and top_ratio of ``first..last``, from the back. ``last`` is the end of the run."""
    weight, ratio = np.float32(0.0), np.float32(0.0)
    at = last
    while at >= first:
        weight = max(weight, max(files.weight[at], files.rest[at]))
        ratio = max(ratio, files.ratio[at])
        files.top_weight[at], files.top_ratio[at] = weight, ratio
        at -= 1


@njit(cache=True)
def sum_up_cells(cells, files):
    """Set top_weight and top_ratio of all postings of cells."""
    for c in range(cells.shape[0]):
        cell = cells[c]
        base, last_run = files.block[cell, START], files.runs[cell, START] + files.runs[cell, LENGTH]
        for run in range(files.runs[cell, START], last_run):
            end = files.start[run + 1] if run + 1 < last_run else files.block[cell, LENGTH]
            _sum_up(files, base + files.start[run], base + end - 1)


@njit(cache=True)
def find_run(cell, key, files):
    """Return the first run of a cell that is not below ``key``."""
    start = files.runs[cell, START]
    return first_not_below(files.key, start, start + files.runs[cell, LENGTH], key)


@njit(cache=True)
def _position(files, first, end, ranked, score, slot):
    """Return the first place in ``first..end`` whose posting is not before (score, slot)."""
    while first < end:
        mid = (first + end) >> 1
        if (files.score[mid] < score or (files.score[mid] == score and files.slot[mid] < slot)) if ranked else files.slot[mid] < slot:
            first = mid + 1
        else:
            end = mid
    return first


@njit(cache=True)
def _shift(array, source, target):
    """Move one entry to ``target``, and the entries between by one place."""
    value = array[source]
    step = 1 if target > source else -1
    at = source
    while at != target:
        array[at] = array[at + step]
        at += step
    array[target] = value


@njit(cache=True)
def drifted(slots, place, scores, new):
    """Tell for which slots the score in the index (``scores``, by slot) is too high, or too low to be useful."""
    out = np.empty(slots.shape[0], np.bool_)
    for i in range(slots.shape[0]):
        have = scores[slots[i]]
        out[i] = new[i] < have or (new[i] > have and not ((new[i] - have) * max(1.0 - place[slots[i], ALPHA], LEAST) < DRIFT and new[i] < np.inf))
    return out


@njit(cache=True)
def move_postings(slots, new, scores, leaf, place, block, word_term, bounds, files, ranked):
    """Set new scores of slots, in ``scores`` and in their postings, which move within their runs. O(log runs + run) each."""
    groups = bounds.shape[0] + 1
    for i in range(slots.shape[0]):
        slot = slots[i]
        cell = leaf[slot]
        group = _group(place[slot, ALPHA] / max(1.0 - place[slot, ALPHA], LEAST), bounds)
        base, last_run = files.block[cell, START], files.runs[cell, START] + files.runs[cell, LENGTH]
        for word in range(block[slot, START], block[slot, START] + block[slot, LENGTH]):
            run = find_run(cell, word_term[word] * groups + group, files)
            first = base + files.start[run]
            end = base + (files.start[run + 1] if run + 1 < last_run else files.block[cell, LENGTH])
            at = _position(files, first, end, ranked, scores[slot], slot)
            if ranked:
                to = _position(files, first, end, True, new[i], slot)
                if to > at:
                    to -= 1
                if to != at:
                    _shift(files.slot, at, to)
                    _shift(files.weight, at, to)
                    _shift(files.total, at, to)
                    _shift(files.rest, at, to)
                    _shift(files.score, at, to)
                    _shift(files.ratio, at, to)
                    _shift(files.inner, at, to)
                    _sum_up(files, first, end - 1)
                at = to
            files.score[at] = new[i]
        scores[slot] = new[i]


# -- dissemination --------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def _slack(text, score, ratio, far):
    return SLACK * (1.0 + text + abs(score) + ratio * (1.0 + far))


@njit(cache=True)
def _find_terms(cell, files, groups, distinct, found):
    """Find for all distinct terms (rising) the first run of the cell with that term, or -1."""
    run, last = files.runs[cell, START], files.runs[cell, START] + files.runs[cell, LENGTH]
    for u in range(distinct.shape[0]):
        key = distinct[u] * groups
        # Both rise, so each search begins where the last one ended, with steps that double.
        step = np.int64(4)
        while run + step < last and files.key[run + step] < key:
            run += step
            step *= 2
        run = first_not_below(files.key, run, min(run + step, last), key)
        found[u] = run if run < last and files.key[run] < key + groups else -1


@njit(cache=True)
def _last_needed(files, at, end, text_sum, near, outer):
    """Return the first posting of a group from which on the bounds exclude all postings (Skype, Theorem 4).

    Theorem 3 is Theorem 4 at the first posting: it excludes the whole group.

    :param text_sum: sum of the weights of the message's term and those after it.
    :param near: a bound of the spatial similarity, >= 0; ``outer``: distance of the cell / diagonal.
    """
    while at < end:
        mid = (at + end) >> 1
        text = files.top_weight[mid] * text_sum
        score, ratio = np.float64(files.score[mid]), np.float64(files.top_ratio[mid])
        if score == np.inf or text + _slack(text, score, ratio, outer) < score - ratio * near:
            end = mid
        else:
            at = mid + 1
    return at


@njit(cache=True)
def find_candidates(cells, files, box, floor, messages, known, groups, grouped, diagonal_deg, state):
    """Return (message int32[], slot int32[]): pairs that no bound rules out, at least all that match (Skype, Algorithm 1).

    Cells are the outer loop, so that the file of a cell stays in the cache for all messages. A slot is judged where it is first met. If that
    is not its first common keyword, a bound has excluded it there, so Theorem 2 may count the earlier keywords as nothing.

    :param cells: int64[], those with members; ``box``: float64[nodes, 4]; ``floor``: float64[nodes], see :func:`set_floors`.
    :param messages: dskype.bolts.topk._kernels.Messages; ``known``: dskype.deploy.lab.skype.list_kernels.Known.
    :param groups: number of groups; ``grouped``: whether runs are in order of scores.
    :param state: uint8[slots], scratch, all 0 before and after.
    """
    lon, lat = messages.lon, messages.lat
    first, term, weight, sum_, most, norm = known
    capacity = np.int64(4096)
    out_message, out_slot = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    met = np.empty(max(1, state.shape[0]), np.int32)
    n = np.int64(0)
    distinct = np.unique(term)
    nth = np.searchsorted(distinct, term)
    found = np.empty(distinct.shape[0], np.int64)
    for c in range(cells.shape[0]):
        cell = np.int64(cells[c])
        _find_terms(cell, files, groups, distinct, found)
        base, length = files.block[cell, START], files.block[cell, LENGTH]
        last_run = files.runs[cell, START] + files.runs[cell, LENGTH]
        west, south, east, north = box[cell, WEST], box[cell, SOUTH], box[cell, EAST], box[cell, NORTH]
        for m in range(lon.shape[0]):
            dx = max(max(west - lon[m], lon[m] - east), 0.0)
            dy = max(max(south - lat[m], lat[m] - north), 0.0)
            outer = np.sqrt(dx * dx + dy * dy) / diagonal_deg
            # Lemma 6, for messages of norm 1.
            if grouped and norm[m] <= 1.0 + 1e-9 and 1.0 - outer + SLACK * (1.0 + outer) < floor[cell]:
                continue
            touched = np.int64(0)
            near = max(0.0, 1.0 - outer)  # bounds of groups need one that is not negative
            for i in range(first[m], first[m + 1]):
                run = found[nth[i]]
                if run < 0:
                    continue
                beyond = np.int64(term[i] + 1) * groups
                later_sum = sum_[i + 1] if i + 1 < first[m + 1] else 0.0
                later_most = most[i + 1] if i + 1 < first[m + 1] else 0.0
                while run < last_run and files.key[run] < beyond:
                    at = base + files.start[run]
                    end = base + (np.int64(files.start[run + 1]) if run + 1 < last_run else length)
                    run += 1
                    if grouped:
                        end = _last_needed(files, at, end, sum_[i], near, outer)
                    for p in range(at, end):
                        score, ratio = np.float64(files.score[p]), np.float64(files.ratio[p])
                        far = outer + files.inner[p] if outer > 0.0 else 0.0
                        needed = score - ratio * (1.0 - far)
                        text = most[i] * files.total[p]
                        slack = _slack(text, score, ratio, far)
                        if score == np.inf or text + slack < needed:  # Theorem 1
                            continue
                        slot = files.slot[p]
                        if state[slot]:
                            continue
                        later = min((files.total[p] - files.weight[p]) * later_most, later_sum * files.rest[p])
                        met[touched] = slot
                        touched += 1
                        if files.weight[p] * weight[i] + later + slack < needed:  # Theorem 2
                            state[slot] = 2
                        else:
                            state[slot] = 1
            if n + touched > capacity:
                capacity = 2 * (n + touched)
                grown_message, grown_slot = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
                grown_message[:n], grown_slot[:n] = out_message[:n], out_slot[:n]
                out_message, out_slot = grown_message, grown_slot
            for i in range(touched):
                slot = met[i]
                if state[slot] == 1:
                    out_message[n], out_slot[n] = m, slot
                    n += 1
                state[slot] = 0
    return out_message[:n], out_slot[:n]
