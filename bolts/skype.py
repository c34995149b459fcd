"""Skype on one machine: the top-k engine together with the message window (Wang et al., Skype, VLDB 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk.engine import TopkEngine
from dskype.bolts.window.base import QueryBatch, make_window
from dskype.bolts.window.filtered import FilteredWindow
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.space import WORLD, Space
from dskype.spouts.text import WORD_RULE, Tokenizer, refuse_analyzer, refuse_word_rule
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Skype", "TextSkype"]

_FORMAT = 1
_AT_ONCE = 256
_NO_SLOTS = np.zeros(0, np.int32)


class Skype:
    """Keeps the exact top-k messages of many subscriptions over a sliding window, in one process.

    Subscriptions live in *slots*. After every call all lists are exact at :attr:`watermark`: a subscription that has to be evaluated, because
    it is new or its buffer has run low, is looked up in the window at once. Within one :meth:`advance` the list of a subscription that runs
    low does not change until the end; advance in smaller steps to see every change.

    The same calls give the same results, in any process and with any index.

    >>> import numpy as np
    >>> from dskype import MessageBatch, Skype
    >>> skype = Skype(extent=100, diagonal_deg=400.0)
    >>> one, other = skype.register(k=[2, 1], alpha=[0.5, 0.0], lat=[48.1, 0.0], lon=[11.6, 0.0],
    ...                             offsets=[0, 1, 3], terms=[7, 7, 9], weights=[1.0, 0.6, 0.8])
    >>> messages = MessageBatch(seq=np.array([0, 1]), position=np.array([0, 1]), lat=np.array([48.1, 52.5]), lon=np.array([11.6, 13.4]),
    ...                         offsets=np.array([0, 1, 2]), terms=np.array([7, 9]), weights=np.array([1.0, 1.0]))
    >>> changes = skype.advance(messages, ids=["a", "b"])
    >>> skype.top(one), skype.top(other)
    ([('a', 1.0)], [('b', 0.8)])

    :param extent: of the window, in positions: ``|W|`` messages, or a span in ms.
    :param diagonal_deg: diagonal of the data space, degrees.
    :param index: of the subscriptions: a name in ``dskype.bolts.topk.engine.INDEXES``.
    :param buffer: of the results: a name in ``dskype.bolts.topk.engine.BUFFERS``.
    :param window_index: of the messages: a name in ``dskype.bolts.window.base.WINDOWS``.
    :param index_options: keyword arguments of the index; ``buffer_options`` and ``window_options`` likewise.
    :raises IllegalArgumentException: an argument or option is not usable.
    """

    def __init__(
        self,
        extent: int,
        diagonal_deg: float,
        *,
        index: str = "cones",
        buffer: str = "kmax",
        window_index: str = "chunks",
        index_options: Mapping[str, Any] | None = None,
        buffer_options: Mapping[str, Any] | None = None,
        window_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = TopkEngine(extent, diagonal_deg, index, buffer, index_options, buffer_options)
        self.window = FilteredWindow(make_window(window_index, window_options))
        self.evaluations = 0
        """How often a subscription was looked up in the window, the first times included."""

    @classmethod
    def from_texts(
        cls, texts: Iterable[str], window: int, *, timed: bool = False, space: Space = WORLD, stop_words: Iterable[str] = (), **options: Any
    ) -> TextSkype:
        """Return a :class:`TextSkype` for plain texts.

        :param texts: a sample of texts like those to come, which says how common words are. If it is empty, all words are equally common.
        :param window: ``|W|``, or with ``timed`` the span in ms.
        :param options: of :class:`Skype`.
        """
        tokenizer = Tokenizer(stop_words)
        return TextSkype(cls(window, space.diagonal_deg, **options), Vocabulary.build(texts, tokenizer), tokenizer, space=space, timed=timed)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self.engine)

    @property
    def watermark(self) -> int:
        """The position up to which everything has been processed; -1 at first."""
        return self.engine.watermark

    @property
    def extent(self) -> int:
        """The extent of the window, in positions."""
        return self.engine.extent

    # -- subscriptions ----------------------------------------------------------------------------

    def register(
        self,
        k: Any,
        alpha: Any,
        lat: Any,
        lon: Any,
        offsets: Any,
        terms: Any,
        weights: Any,
        *,
        programs: Sequence[Sequence[int] | None] | None = None,
        known: Callable[[np.ndarray], RankedLists] | None = None,
    ) -> np.ndarray:
        """Register subscriptions; return their slots (int32[n], rising). Their lists are available at once.

        One subscription may be given by plain numbers, and ``offsets=None``.

        :param k: int[n], how many messages each wants, >= 1.
        :param alpha: float64[n] in 0..1, weight of the distance; ``lat``, ``lon``: float64[n], degrees.
        :param offsets: int64[n + 1]; the keywords of *i* are ``terms[offsets[i]:offsets[i + 1]]`` (int64, rising) with their ``weights``.
        :param programs: the filter of each (:mod:`dskype.spouts.filters`): only messages that satisfy it count; default: none.
        :param known: a function that returns what :meth:`look_up` would, from the numbers of messages wanted (int64[n]). Callers that have
            looked these subscriptions up in this window before can pass it.
        """
        if offsets is None:
            k, alpha, lat, lon, offsets = [k], [alpha], [lat], [lon], [0, len(terms)]
        slots = self.engine.insert(
            np.asarray(k),
            np.asarray(alpha, np.float64),
            np.asarray(lat, np.float64),
            np.asarray(lon, np.float64),
            np.asarray(offsets, np.int64),
            np.asarray(terms, np.int64),
            np.asarray(weights, np.float64),
            not len(self.window),
            programs,
        )
        pending = slots[self.engine.pending(slots)]
        if len(pending) and known is not None:
            pending = self._resolve(pending, known(self.engine.wanted(pending))).due
        self._settle(pending)
        return slots

    def unregister(self, slots: Any) -> None:
        """Remove subscriptions (int[n], or one); their slots may be used again."""
        self.engine.remove(np.atleast_1d(np.asarray(slots, np.int32)))

    # -- messages ---------------------------------------------------------------------------------

    def advance(
        self,
        messages: MessageBatch | None = None,
        ids: Sequence[str] | pa.StringArray | None = None,
        watermark: int | None = None,
        details: Details | None = None,
    ) -> Changes:
        """Process messages and expiry up to a watermark; return how lists changed.

        :param messages: after the former watermark, in rising order of (position, seq). Count windows: position = seq; time windows:
            position = ms, and all messages of one ms come together. None: only time passes.
        :param ids: the id of each message; default: its seq.
        :param watermark: default: the last message's position.
        :param details: what filters look at beside the terms; default: nothing.
        :returns: ``due`` is empty, because due subscriptions have been evaluated.
        """
        messages = MessageBatch.empty() if messages is None else messages
        if watermark is None:
            watermark = int(messages.position[-1]) if messages.n else self.watermark
        changes = self.engine.advance(messages, watermark, details)
        self.window.insert(messages, list(map(str, messages.seq.tolist())) if ids is None else ids, details)
        self.window.free(watermark - self.extent)
        return _join_changes([changes, *self._settle(changes.due)])

    def _settle(self, due: np.ndarray) -> list[Changes]:
        """Evaluate subscriptions at the current watermark until none is pending."""
        parts: list[Changes] = []
        while len(due):
            again = []
            for start in range(0, len(due), _AT_ONCE):
                slots = due[start : start + _AT_ONCE]
                parts.append(self._resolve(slots, self.look_up(slots, self.engine.wanted(slots))))
                again.append(parts[-1].due)
            due = np.concatenate(again)
        return parts

    def _resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        return self.engine.resolve(slots, *answers)

    def look_up(self, slots: np.ndarray, count: np.ndarray) -> RankedLists:
        """Return the best messages of the window for subscriptions, in rank order, straight from the index of messages.

        :param slots: int32[n]; ``count``: int64[n], the number of messages for each.
        """
        table = self.engine.index.table
        lon, lat, alpha = np.ascontiguousarray(table.place[slots, :3].T)
        offsets, terms, weights = table.keywords(slots)
        queries = QueryBatch(
            np.full(len(slots), self.watermark, np.int64), np.asarray(count, np.int64), alpha, lat, lon, offsets, table.terms.map.name[terms], weights
        )
        self.evaluations += len(slots)
        return self.window.topk(queries, self.extent, self.engine.diagonal_deg, programs=self.engine.programs(slots))

    # -- results ----------------------------------------------------------------------------------

    def topk(self, slots: Any) -> RankedLists:
        """Return the lists (offsets, seqs, positions, scores) of subscriptions, in rank order (int[n], or one)."""
        return self.engine.topk(np.atleast_1d(np.asarray(slots, np.int32)))

    def top(self, slot: int) -> list[tuple[str, float]]:
        """Return the list of one subscription as (id, score), best first."""
        _, seqs, positions, scores = self.topk(slot)
        return list(zip(self.window.ids(seqs, positions), scores.tolist()))

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, as values that :func:`dskype.topology.core.frames.pack_state` accepts."""
        return {"format": _FORMAT, "window": type(self.window.window).__name__, "engine": self.engine.snapshot(), "messages": self.window.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot. This object must be new and have the same extent, diagonal, buffer and window index; the index may differ.

        :raises IllegalArgumentException: something else differs, or this object is not new.
        """
        mine = {"format": _FORMAT, "window": type(self.window.window).__name__}
        for name, value in mine.items():
            if state.get(name) != value:
                raise IllegalArgumentException(f"The snapshot has another {name}.", given=state.get(name), legal=repr(value))
        self.engine.restore(state["engine"])
        self.window.restore(state["messages"])

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.engine.memory_bytes + self.window.memory_bytes

    def _check(self) -> None:
        """Verify all invariants; for tests. Raises AssertionError."""
        self.engine._check()
        self.window._check()
        assert not self.engine.pending(self.engine.slots).any()


class TextSkype:
    """Skype for plain texts, with names for subscriptions and ids for messages; see :class:`Skype`.

    >>> cafes = ["Espresso bar at the station", "Tea house", "Espresso to go", "Ice cream and espresso"]
    >>> skype = Skype.from_texts(cafes, window=3)
    >>> skype.subscribe("ann", "espresso bar", lat=48.1, lon=11.6, k=2, alpha=0.5)
    >>> for number, text in enumerate(cafes):
    ...     changed = skype.publish([(f"m{number}", text, 48.1, 11.6 + number)])
    >>> [id for id, score in skype.results("ann")]      # m0 has left the window
    ['m2', 'm3']
    >>> sorted(changed)
    ['ann']

    :param skype: a new engine, with the diagonal of ``space``.
    :param vocabulary: says how common words are.
    :param tokenizer: cuts texts into words.
    :param space: where messages may be.
    :param timed: whether the window is a span in ms.
    """

    def __init__(self, skype: Skype, vocabulary: Vocabulary, tokenizer: Tokenizer, *, space: Space = WORLD, timed: bool = False) -> None:
        self.skype, self.vocabulary, self.tokenizer, self.space, self.timed = skype, vocabulary, tokenizer, space, timed
        self._slots: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._seq = 0

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._slots)

    def subscribe(self, name: str, keywords: str | Sequence[str], *, lat: float, lon: float, k: int = 20, alpha: float = 0.5) -> None:
        """Register a subscription. It replaces one of the same name.

        :param keywords: a text, or words.
        :param k: number of messages.
        :param alpha: weight of the distance, 0..1; the words have the rest.
        :raises IllegalArgumentException: no word is left, or the place is outside the space.
        """
        self._refuse_outside(name, lat, lon)
        words = self.tokenizer.tokens(keywords if isinstance(keywords, str) else " ".join(keywords))
        if not words:
            raise IllegalArgumentException(
                f"Subscription {name!r} has no word, so nothing would match it", given=keywords, legal="words with letters or digits that are no stop words"
            )
        terms, weights = self.vocabulary.weigh(words)
        if name in self._slots:
            self.unsubscribe(name)
        slot = int(self.skype.register(k, alpha, lat, lon, None, terms, weights)[0])
        self._slots[name], self._names[slot] = slot, name

    def unsubscribe(self, name: str) -> None:
        """Remove a subscription.

        :raises IllegalArgumentException: there is no subscription of that name.
        """
        slot = self._slot(name)
        self.skype.unregister(slot)
        del self._slots[name], self._names[slot]

    def publish(self, messages: Iterable[Sequence[Any]]) -> dict[str, list[tuple[str, float]]]:
        """Publish messages; return the lists that changed, by name of the subscription.

        :param messages: (id, text, lat, lon), or with time windows (id, text, lat, lon, ms), in order and later than those of former calls.
        """
        rows = list(messages)
        if not rows:
            return {}
        columns = list(zip(*rows, strict=True))
        if len(columns) != 4 + self.timed:
            raise IllegalArgumentException(
                "A message has the wrong number of fields.", given=rows[0], legal="(id, text, lat, lon, ms)" if self.timed else "(id, text, lat, lon)"
            )
        for id, _, lat, lon, *_ in rows:
            self._refuse_outside(id, lat, lon)
        seqs = np.arange(self._seq, self._seq + len(rows), dtype=np.int64)
        positions = np.array(columns[4], np.int64) if self.timed else seqs
        keywords = self.vocabulary.weigh_texts(list(columns[1]), self.tokenizer)
        batch = MessageBatch(seqs, positions, np.array(columns[2], np.float64), np.array(columns[3], np.float64), *keywords)
        changes = self.skype.advance(batch, list(map(str, columns[0])))
        self._seq += len(rows)
        return self._changed(changes)

    def pass_time(self, ms: int) -> dict[str, list[tuple[str, float]]]:
        """Let time pass until ``ms`` (time windows); return the lists that changed because messages expired."""
        return self._changed(self.skype.advance(watermark=ms))

    def results(self, name: str) -> list[tuple[str, float]]:
        """Return the messages of a subscription as (id, score), best first.

        :raises IllegalArgumentException: there is no subscription of that name.
        """
        return self.skype.top(self._slot(name))

    def snapshot(self) -> dict[str, Any]:
        """Return the state, without the vocabulary."""
        return {
            "words": WORD_RULE,
            "analyzer": self.tokenizer.identity,
            "skype": self.skype.snapshot(),
            "names": list(self._slots),
            "slots": list(self._slots.values()),
            "seq": self._seq,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot that was taken with the same vocabulary; see :meth:`Skype.restore`.

        :raises IllegalArgumentException: it was taken with other rules for words, or another analyzer.
        """
        refuse_word_rule("The snapshot", state.get("words"), "subscribe and publish again, or use the version that took it")
        refuse_analyzer("The snapshot", state.get("analyzer"), self.tokenizer.identity, "use the analyzer that it was taken with")
        self.skype.restore(state["skype"])
        self._slots = dict(zip(state["names"], map(int, state["slots"])))
        self._names = {slot: name for name, slot in self._slots.items()}
        self._seq = int(state["seq"])

    def _changed(self, changes: Changes) -> dict[str, list[tuple[str, float]]]:
        return {self._names[slot]: self.skype.top(slot) for slot in changes.touched.tolist()}

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            raise IllegalArgumentException("There is no such subscription.", given=name)
        return self._slots[name]

    def _refuse_outside(self, name: Any, lat: float, lon: float) -> None:
        if not self.space.contains(lat, lon):
            raise IllegalArgumentException("The place is outside the data space.", given=f"{name}: lat {lat}, lon {lon}", legal=str(self.space))


def _join_changes(parts: list[Changes]) -> Changes:
    """Join the changes up to a watermark with those of evaluations at it."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(part[:6] for part in parts))]
    order = np.lexsort((columns[0], columns[5]))  # stable: changes of one slot and watermark come from one part, in order
    return Changes(*(column[order] for column in columns), _NO_SLOTS, np.unique(np.concatenate([part.touched for part in parts])))
