"""The top-k engine: exact lists of many subscriptions over a sliding window, from an index and buffers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.filters import Filters, Programs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.base import Changes, Matches, SubscriptionIndex
from dskype.bolts.topk.buffers._kernels import first_unranked
from dskype.bolts.topk.buffers.base import ResultBuffers, Step
from dskype.bolts.topk.buffers.store import readable_lists
from dskype.bolts.topk.metres import MetresSubscriptions
from dskype.spouts.batch import Details, MessageBatch, select_lists
from dskype.spouts.columns import read_only
from dskype.spouts.recency import least_scores
from dskype.spouts.score_kernels import time_scores
from dskype.topology.errors import IllegalArgumentException, explain
from dskype.topology.plugins import Plugins

__all__ = ["BUFFERS", "INDEXES", "TopkEngine"]

INDEXES: Plugins[SubscriptionIndex] = Plugins("dskype.index", {"cones": "dskype.bolts.topk.cones:ConeIndex"})
"""Indexes by their names in ``dskype.index``."""

BUFFERS: Plugins[ResultBuffers] = Plugins(
    "dskype.buffer", {"kmax": "dskype.bolts.topk.buffers.kmax:KmaxBuffers", "cskyband": "dskype.bolts.topk.buffers.skyband:CostSkybandBuffers"}
)
"""Result buffers by their names in ``dskype.buffer``."""

_FORMAT = 1
_NONE = np.zeros(0, np.int32)
_AHEAD = 1 / 32
"""How far, in half-lives, the horizon of an index moves ahead of the messages: its thresholds are up to 2 % lower than those of the buffers."""


class TopkEngine:
    """Keeps the exact top-k list of every active subscription while messages arrive and expire.

    The life of a subscription: :meth:`insert` gives it a slot. Unless the window is known to be empty it is then pending: the caller
    fetches the :meth:`wanted` best messages of the window at the current watermark from elsewhere, and passes them to :meth:`resolve` at
    any later watermark. :meth:`advance` processes messages. A subscription whose buffer runs low falls due (``Changes.due``) and is pending
    again; its list stays as published until the next :meth:`resolve`. :meth:`remove` ends a subscription at any time. Its slot is reused,
    so the caller has to drop answers that come too late.

    Exactness: at every watermark *w*, whether a message is there or not, the changes of an active slot up to *w* add up to the brute-force
    top-k of the messages with ``w - extent < position <= w`` that satisfy its filter. A message leaves at its position + extent.

    A slot may have a *filter*, a program that decides which messages count (:mod:`dskype.spouts.filters`): the others enter no list and no
    buffer. The caller's answers have messages that satisfy it only.

    Distances are in degrees, over the diagonal of the data space, or in metres, over the *scale* of the subscription
    (:mod:`dskype.spouts.score_kernels`). Subscriptions with a scale are in a second index of the same kind.

    With a half-life, scores are *time scores* (:func:`dskype.spouts.score_kernels.time_score`), here and in answers; positions are ms then. Indexes know plain scores: their
    thresholds are what a message up to a *horizon* needs at least, and are set anew when messages pass it.

    With ``ending`` a message may also end before it leaves the window (:meth:`advance`). Then it leaves every list at the position at which it ends.

    The same calls give the same results and equal snapshots in any process.

    :param extent: of the window, in positions: |W| messages or a span in ms, >= 1.
    :param diagonal_deg: diagonal of the data space, degrees.
    :param index: a name in :data:`INDEXES`; ``index_options`` are its keyword arguments.
    :param buffer: a name in :data:`BUFFERS`; ``buffer_options`` are its keyword arguments.
    :param ending: whether messages may end.
    :param half_life_ms: after how long a message counts half as much; None: its age does not count. Not together with ``ending``.
    :raises IllegalArgumentException: an argument or option is not usable.
    """

    def __init__(
        self,
        extent: int,
        diagonal_deg: float,
        index: str = "cones",
        buffer: str = "kmax",
        index_options: Mapping[str, Any] | None = None,
        buffer_options: Mapping[str, Any] | None = None,
        *,
        ending: bool = False,
        half_life_ms: float | None = None,
    ) -> None:
        if extent < 1:
            raise IllegalArgumentException(explain("The extent of the window is not usable.", given=extent, legal="extent >= 1"))
        if not 0 < diagonal_deg < np.inf:
            raise IllegalArgumentException(explain("The diagonal of the data space is not usable.", given=diagonal_deg, legal="degrees > 0"))
        self.extent, self.diagonal_deg, self.index_name, self.buffer_name = int(extent), float(diagonal_deg), index, buffer
        self.index = _build("index", INDEXES, index, self.diagonal_deg, index_options)
        self.buffers = _build("buffer", BUFFERS, buffer, self.extent, buffer_options)
        if ending:
            self._require("ends", "The buffer cannot take out a message before it leaves the window, as dskype.objects needs.")
            self.buffers.store.ending = True
        if half_life_ms is not None:
            self._require("decays", "The buffer cannot rank by time scores, as dskype.half.life.s needs.")
        self.half_life_ms = half_life_ms
        self._horizon = -1  # with a half-life: no position is above it for which the thresholds of the index hold
        self._ended = np.zeros((0, 2), np.int64)  # (sequence number, end) of messages that ended, and may be in an answer
        self.metres: MetresSubscriptions | None = None  # made when it is needed
        self._index_options = index_options
        self.watermark = -1
        self._filters = Filters()
        self._live = np.zeros(0, np.bool_)
        self._count = 0
        self._first_free = 0  # no free slot is below

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return self._count

    def _require(self, ability: str, words: str) -> None:
        """Refuse a buffer that does not have what a flag of its class says."""
        if not getattr(self.buffers, ability):
            legal = ", ".join(sorted(name for name in BUFFERS if getattr(BUFFERS[name], ability)))
            raise IllegalArgumentException(explain(words, given=self.buffer_name, legal=legal, hint="set dskype.buffer"))

    def insert(
        self,
        k: np.ndarray,
        alpha: np.ndarray,
        lat: np.ndarray,
        lon: np.ndarray,
        offsets: np.ndarray,
        terms: np.ndarray,
        weights: np.ndarray,
        complete: bool,
        programs: Sequence[Sequence[int] | None] | None = None,
        scale_m: np.ndarray | None = None,
    ) -> np.ndarray:
        """Insert subscriptions; return their slots (int32[n], rising): the lowest free ones.

        :param k: int32[n], >= 1.
        :param alpha: float64[n], 0..1; ``lat``, ``lon`` float64[n], degrees.
        :param offsets: int64[n + 1]; keywords of *i*: ``terms[offsets[i]:offsets[i + 1]]`` (int64, rising) and weights (float64).
        :param complete: True: the window is known to be empty, and the subscriptions are active at once, with empty lists. False: they are pending.
        :param programs: the filter of each; None among them, or in place of them: none.
        :param scale_m: float64[n], the distance at which the spatial similarity is 0; 0: distances are in degrees. None: all are.
        """
        k, alpha, lat, lon = np.asarray(k), np.asarray(alpha, np.float64), np.asarray(lat, np.float64), np.asarray(lon, np.float64)
        offsets, terms, weights = read_only(offsets, np.int64), read_only(terms, np.int64), read_only(weights, np.float64)
        n = len(k)
        if not len(alpha) == len(lat) == len(lon) == len(offsets) - 1 == n:
            raise IllegalArgumentException(
                explain("Arrays of subscriptions must be equally long.", given=[len(k), len(alpha), len(lat), len(lon), len(offsets) - 1])
            )
        if n == 0:
            return _NONE
        if not (k >= 1).all():
            raise IllegalArgumentException(explain("A subscription wants at least one message.", given=int(k.min()), legal="k >= 1"))
        if not ((alpha >= 0) & (alpha <= 1)).all():
            raise IllegalArgumentException(explain("Alpha is not usable.", legal="alpha in 0..1", given=float(alpha[~((alpha >= 0) & (alpha <= 1))][0])))
        if not (np.isfinite(lat) & np.isfinite(lon)).all():
            raise IllegalArgumentException(explain("A subscription needs a place.", legal="finite degrees"))
        if not (weights >= 0).all():
            raise IllegalArgumentException(explain("Weights must not be negative.", given=float(weights[~(weights >= 0)][0]), legal=">= 0"))
        if (row := kernels.first_unordered_terms(offsets, terms)) >= 0:
            raise IllegalArgumentException(explain("Terms must rise, each once.", given=terms[offsets[row] : offsets[row + 1]].tolist()))
        if scale_m is not None and not ((scale_m >= 0) & (scale_m < np.inf)).all():
            raise IllegalArgumentException(explain("A scale is not usable.", given=np.asarray(scale_m).tolist(), legal="metres > 0, or 0: degrees"))
        slots = kernels.lowest_free_slots(self._live, n, self._first_free)
        last = int(slots[-1])
        if last >= len(self._live):
            self._live = np.concatenate((self._live, np.zeros(last + 1 - len(self._live) + len(self._live) // 2, np.bool_)))
        self._live[slots] = True
        self._first_free = last + 1
        self._count += n
        self._enter(slots, (lon, lat, alpha), None if scale_m is None else np.asarray(scale_m, np.float64), (offsets, terms, weights))
        self.buffers.open(slots, k, complete)
        for slot, program in zip(slots.tolist(), programs or ()):
            if program is not None:
                self._filters.set(slot, program)
        return slots

    def _enter(self, slots: np.ndarray, place: tuple[np.ndarray, ...], scale_m: np.ndarray | None, lists: tuple[np.ndarray, ...]) -> None:
        """Put new slots into the index that their distances need."""
        if scale_m is None or not scale_m.any():
            self.index.insert(slots, *place, *lists)
            return
        for rows in (np.flatnonzero(scale_m == 0), np.flatnonzero(scale_m)):
            own = tuple(column[rows] for column in place)
            offsets, index = select_lists(lists[0], rows)
            words = offsets, read_only(lists[1][index], np.int64), read_only(lists[2][index], np.float64)
            if scale_m[rows].any():
                self._with_metres().insert(slots[rows], *own, scale_m[rows], words)
            elif len(rows):
                self.index.insert(slots[rows], *own, *words)

    def _with_metres(self) -> MetresSubscriptions:
        if self.metres is None:
            self.metres = MetresSubscriptions(_build("index", INDEXES, self.index_name, self.diagonal_deg, self._index_options))
        return self.metres

    def _in_metres(self, slots: np.ndarray) -> np.ndarray | None:
        """Tell which slots have distances in metres, bool[n]; None: none has."""
        if not self.metres:
            return None
        found = self.metres.has(slots)
        return found if found.any() else None

    def remove(self, slots: np.ndarray) -> None:
        """Remove subscriptions, pending or not (int32[n], each once)."""
        slots = np.sort(self._check_slots(slots))
        if not len(slots):
            return
        in_metres = self._in_metres(slots)
        if self.metres is None or in_metres is None:
            self.index.remove(slots)
        else:
            self.index.remove(slots[~in_metres])
            self.metres.remove(slots[in_metres])
        self.buffers.close(slots)
        if self._filters:
            for slot in slots.tolist():
                self._filters.clear(slot)
        self._live[slots] = False
        self._count -= len(slots)
        self._first_free = min(self._first_free, int(slots[0]))

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages an answer for each slot should bring (int64[n])."""
        return self.buffers.wanted(self._check_slots(slots))

    def advance(self, messages: MessageBatch, watermark: int, details: Details | None = None, ended: np.ndarray | None = None) -> Changes:
        """Process messages and expiry up to ``watermark``; return how lists changed.

        :param messages: with positions after the former watermark, up to ``watermark``, in rising order of (position, seq).
        :param details: what filters look at; None: the messages have none.
        :param ended: bool[n], where a former message ends: it comes once more, at the position of its end; None: nowhere.
        """
        if watermark < self.watermark:
            raise IllegalArgumentException(explain("A watermark must not fall.", given=watermark, legal=f">= {self.watermark}"))
        if messages.n:
            first, last = int(messages.position[0]), int(messages.position[-1])
            if not self.watermark < first <= last <= watermark:
                raise IllegalArgumentException(
                    explain(
                        "Messages must lie between the former watermark and the new one.",
                        given=[first, last],
                        legal=f"positions in {self.watermark + 1}..{watermark}",
                    )
                )
            if (row := kernels.first_disorder(read_only(messages.position, np.int64), read_only(messages.seq, np.int64))) >= 0:
                raise IllegalArgumentException(
                    explain(
                        "Messages must come in rising order of (position, seq).",
                        given=[(int(messages.position[i]), int(messages.seq[i])) for i in (row - 1, row)],
                    )
                )
        steps: list[Step] = []
        for start, stop in self._chunks(messages.position):
            chunk = messages.slice(start, stop)
            if self.half_life_ms is not None and chunk.n and chunk.position[-1] > self._horizon:
                self._move_horizon(int(chunk.position[-1]), self.half_life_ms)
            matches = self.index.match(chunk)
            if self.metres:
                matches = _merged(matches, self.metres.match(chunk))
            if self.half_life_ms is not None:
                matches = matches._replace(score=time_scores(matches.score, chunk.position[matches.message], self.half_life_ms))
            if self._filters:
                matches = self._satisfying(messages, details, start, matches)
            until = watermark if stop == messages.n else int(messages.position[stop - 1])
            step = self.buffers.apply(chunk, matches, until) if ended is None else self.buffers.apply(chunk, matches, until, ended[start:stop])
            self._retune(step.retuned)
            steps.append(step)
        self.watermark = int(watermark)
        if ended is not None and ended.any():
            self._ended = np.concatenate((self._ended, np.stack((messages.seq[ended], messages.position[ended]), axis=1)))
        due = np.sort(np.concatenate([step.due for step in steps]))
        self.buffers.collect(due)
        self._retune(due)
        changes = steps[0].changes
        if len(steps) > 1:
            changes = tuple(np.concatenate(columns) for columns in zip(*(step.changes for step in steps)))
        touched = np.sort(changes[0])
        return Changes(*changes, due, touched[np.diff(touched, prepend=-1) > 0])

    def forget_ends(self, watermark: int) -> None:
        """Forget which messages ended up to a watermark, because no answer that is still to come is older."""
        if len(self._ended):
            self._ended = self._ended[self._ended[:, 1] > watermark]

    def _satisfying(self, messages: MessageBatch, details: Details | None, start: int, matches: Matches) -> Matches:
        """Return the matches whose message satisfies the filter of the slot; rows count from ``start``."""
        rows = matches.message + np.int32(start)
        details = Details.empty(messages.n) if details is None else details
        chosen = self._filters.satisfying(messages, details, (details.prefix_offsets, details.prefixes), rows, matches.slot)
        return matches if chosen.all() else Matches(*(column[chosen] for column in matches))

    def resolve(self, slots: np.ndarray, offsets: np.ndarray, seqs: np.ndarray, positions: np.ndarray, scores: np.ndarray) -> Changes:
        """Merge answers with the messages that arrived since, and publish pending subscriptions at the current watermark.

        :param slots: int32[n], pending, each once.
        :param offsets: int64[n + 1]; answer *i* is ``offsets[i]:offsets[i + 1]`` of seqs, positions (int64) and scores (float64): the
            best messages that satisfy the filter in the window at the watermark of :meth:`insert` or ``due`` (or a later one), in rank order.
            Fewer than :meth:`wanted` mean that there are no more.
        :returns: ``touched`` has every slot that is published, even if its list is unchanged; ``due`` has the slots with too
            few live messages, which have to be requested again at the current watermark.
        """
        slots = self._check_slots(slots)
        answers = readable_lists(RankedLists(offsets, seqs, positions, scores))
        if len(answers.offsets) != len(slots) + 1:
            raise IllegalArgumentException(explain("Every slot needs one answer.", given=len(answers.offsets) - 1, legal=str(len(slots))))
        if not (pending := self.buffers.pending(slots)).all():
            raise IllegalArgumentException(explain("Only pending subscriptions take answers.", given=slots[~pending].tolist()))
        if (row := first_unranked(answers.offsets, answers.seqs, answers.positions, answers.scores)) >= 0:
            first, last = answers.offsets[row : row + 2]
            raise IllegalArgumentException(
                explain(
                    "Answers must come in rank order.",
                    given=list(zip(answers.scores[first:last].tolist(), answers.positions[first:last].tolist(), answers.seqs[first:last].tolist())),
                )
            )
        order = np.argsort(slots, kind="stable")
        if (order != np.arange(len(order))).any():
            starts, lengths = answers.offsets[:-1][order], np.diff(answers.offsets)[order]
            total = int(lengths.sum())
            gathered = [array_kernels.gather(array, starts, lengths, total) for array in answers[1:]]
            answers = RankedLists(np.concatenate(([0], np.cumsum(lengths))), *gathered)
            slots = slots[order]
        step = self.buffers.resolve(slots, answers, self.watermark, np.isin(answers.seqs, self._ended[:, 0]) if len(self._ended) else None)
        self._retune(step.retuned)
        due = np.sort(step.due)
        return Changes(*step.changes, due, np.setdiff1d(slots, due, assume_unique=True))

    def topk(self, slots: np.ndarray) -> RankedLists:
        """Return the published lists (offsets, seqs, positions, scores) of slots, in rank order; those of pending slots are out of date."""
        return self.buffers.published(self._check_slots(slots, unique=False))

    def pending(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots wait for an answer (bool[n])."""
        return self.buffers.pending(self._check_slots(slots, unique=False))

    def k(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages the lists of slots hold at most (int32[n])."""
        return self.buffers.k(slots)

    def floors(self, slots: np.ndarray) -> np.ndarray:
        """Return theta of the buffers of slots (float64[n]); -inf if they hold all matching messages."""
        return self.buffers.thresholds(slots)

    def subscriptions(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Return ``lon``, ``lat``, ``alpha``, ``offsets``, ``terms``, ``weights`` and, where one is in metres, ``scale_m`` of slots, as :meth:`insert` takes them."""
        in_metres = self._in_metres(slots)
        if self.metres is None or in_metres is None:
            return self.index.table.columns(slots)
        parts = self.index.table.columns(slots[~in_metres]), self.metres.columns(slots[in_metres])
        parts[0]["scale_m"] = np.zeros(len(slots) - int(in_metres.sum()))
        order = np.argsort(np.concatenate((np.flatnonzero(~in_metres), np.flatnonzero(in_metres))))
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[1] if name != "offsets"}
        first, second = (part["offsets"] for part in parts)
        offsets, index = select_lists(np.concatenate((first, second[1:] + first[-1])), order)
        lists = {"terms": index, "weights": index}
        return {"offsets": offsets, **{name: column[lists.get(name, order)] for name, column in joined.items()}}

    def programs(self, slots: np.ndarray) -> Programs:
        """Return the filters of slots."""
        return self._filters.programs(slots)

    @property
    def slots(self) -> np.ndarray:
        """All slots in use (int32[], rising)."""
        return np.flatnonzero(self._live).astype(np.int32)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.index.memory_bytes + self.buffers.memory_bytes + self._live.nbytes + (0 if self.metres is None else self.metres.memory_bytes)

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state: numpy arrays and plain values, in order of slots."""
        return {
            "format": _FORMAT,
            "extent": self.extent,
            "diagonal_deg": self.diagonal_deg,
            "buffer": self.buffer_name,
            **({} if self.half_life_ms is None else {"half_life_ms": self.half_life_ms, "horizon": self._horizon}),
            "watermark": self.watermark,
            "index": self.index.snapshot(),
            "buffers": self.buffers.snapshot(),
            "programs": self._filters.snapshot(),
            **({"metres": self.metres.snapshot()} if self.metres else {}),
            **({"ended": self._ended} if len(self._ended) else {}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot. This engine must be new; its index may differ from that of the snapshot.

        :raises IllegalArgumentException: this engine is not new, or the snapshot has another format, window, space or buffer.
        """
        mine = {"format": _FORMAT, "extent": self.extent, "diagonal_deg": self.diagonal_deg, "buffer": self.buffer_name, "half_life_ms": self.half_life_ms}
        for name, value in mine.items():
            if state.get(name) != value:
                raise IllegalArgumentException(explain(f"The snapshot has another {name}.", given=state.get(name), legal=repr(value)))
        if self._count or self.watermark != -1:
            raise IllegalArgumentException(explain("Only a new engine takes a snapshot.", given=f"{self._count} subscriptions"))
        self.watermark, self._horizon = int(state["watermark"]), int(state.get("horizon", -1))
        self.index.restore(state["index"])
        self.buffers.restore(state["buffers"])
        self._filters.restore(state.get("programs"))  # absent from snapshots of earlier versions
        self._ended = np.array(state.get("ended", self._ended))
        slots = np.asarray(state["index"]["slots"])
        if (metres := state.get("metres")) is not None:
            self._with_metres().restore(metres)
            slots = np.union1d(slots, metres["slots"])
        self._live = np.zeros(int(slots.max(initial=-1)) + 1, np.bool_)
        self._live[slots] = True
        self._count = len(slots)

    def _chunks(self, position: np.ndarray) -> list[tuple[int, int]]:
        """Cut messages into pieces small enough for thresholds to stay fresh; never between equal positions."""
        size = min(256, max(64, 16_000_000 // max(1, self._count)))
        cuts, n = [0], len(position)
        while n - cuts[-1] > size:
            cuts.append(int(np.searchsorted(position, position[cuts[-1] + size - 1], side="right")))
        if cuts[-1] < n or n == 0:
            cuts.append(n)
        return list(itertools.pairwise(cuts))

    def _retune(self, slots: np.ndarray) -> None:
        if not len(slots):
            return
        thresholds = self._least(slots)
        in_metres = self._in_metres(slots)
        if self.metres is None or in_metres is None:
            self.index.set_thresholds(slots, thresholds)
        else:
            self.index.set_thresholds(slots[~in_metres], thresholds[~in_metres])
            self.metres.set_thresholds(slots[in_metres], thresholds[in_metres])

    def _least(self, slots: np.ndarray) -> np.ndarray:
        """Return the plain scores that slots can use at least (float64[n]); with a half-life those of messages up to the horizon."""
        thresholds = self.buffers.thresholds(slots)
        return thresholds if self.half_life_ms is None else least_scores(thresholds, self._horizon, self.half_life_ms)

    def _move_horizon(self, position: int, half_life_ms: float) -> None:
        """Let the thresholds of the index hold for messages up to a position and a little later. O(subscriptions)."""
        self._horizon = position + int(_AHEAD * half_life_ms)
        slots = self.slots
        self._retune(slots[np.isfinite(self.buffers.thresholds(slots))])

    def _check_slots(self, slots: np.ndarray, unique: bool = True) -> np.ndarray:
        """Return slots as int32[n]; refuse slots that are not in use."""
        slots = np.asarray(slots, np.int32)
        if len(slots):
            known = (slots >= 0) & (slots < len(self._live))
            known[known] = self._live[slots[known]]
            if not known.all():
                raise IllegalArgumentException(explain("There is no subscription in a slot.", given=int(slots[~known][0])))
            if unique and len(np.unique(slots)) != len(slots):
                raise IllegalArgumentException(explain("A slot is named twice.", given=slots.tolist()))
        return slots

    def _check(self) -> None:
        """Verify all invariants (AssertionError); for tests, O(size)."""
        self.index._check()
        self.buffers._check(self.watermark)
        slots = self.slots
        assert self._count == len(slots) and self._live[: self._first_free].all()
        if self.metres is not None:
            self.metres._check()
            own = self.metres.slots
            assert (self.metres.thresholds(own) == self._least(own)).all() and np.isin(own, slots).all()
            slots = np.setdiff1d(slots, own)
        assert np.array_equal(np.flatnonzero(self.index.table.live), slots)
        assert (self.index.table.place[slots, kernels.THRESHOLD] == self._least(slots)).all()


def _merged(one: Matches, other: Matches) -> Matches:
    """Return the matches of two indexes in order."""
    if not len(other.slot):
        return one
    columns = [np.concatenate(pair) for pair in zip(one, other)]
    order = np.argsort(columns[0].astype(np.int64) << 32 | columns[1], kind="stable")
    return Matches(*(column[order] for column in columns))


def _build(kind: str, registry: Mapping[str, type], name: str, argument: float, options: Mapping[str, Any] | None) -> Any:
    if name not in registry:
        raise IllegalArgumentException(explain(f"There is no such {kind}.", given=name, legal=", ".join(sorted(registry))))
    try:
        return registry[name](argument, **(options or {}))
    except TypeError as error:
        words = f"The {kind} {name!r} does not take these options."
        raise IllegalArgumentException(explain(words, given=dict(options or {}), hint=str(error))) from error
