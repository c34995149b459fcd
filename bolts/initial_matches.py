"""What matches already when a boolean subscription becomes active (``initial`` of its record).

The task that publishes from watermark *w* on asks all message tasks for the newest messages of the window at *w*, on the way of top-k evaluations: ``requests``,
``partials`` and ``answers``. Live matches have positions above *w*, so together they are complete, and none comes twice. The answer is published as of
*w* even if the subscription has ended, moved or changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.results.events import INITIAL
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.window.base import QueryBatch
from dskype.spouts.columns import csr_to_lists
from dskype.spouts.streams import Answers, Requests, Results
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["InitialMatches", "Question"]


class Question(NamedTuple):
    """A boolean subscription that asks for what matches already.

    :ivar subscription: its id.
    :ivar registration: ``"<partition>-<offset>"``.
    :ivar meta: JSON text, or None.
    :ivar watermark: from which on it is active; the window ends there. -1: it is empty.
    :ivar filter: a :class:`dskype.bolts.searches.Filter` as a map; its ``k`` is the most messages wanted.
    """

    subscription: str
    registration: str
    meta: str | None
    watermark: int
    filter: Mapping[str, Any]


class InitialMatches:
    """Asks for the matches that are there already, and publishes them.

    :param collector: collector of the bolt.
    :param publisher: publisher of results.
    :param counter: counts matches.
    """

    def __init__(self, collector: Any, publisher: ResultPublisher, counter: Any) -> None:
        self._collector, self._publisher, self._counter = collector, publisher, counter
        self._open: dict[int, tuple[str, str, str | None, int]] = {}  # request -> subscription, registration, meta, watermark
        self._asked = 0

    def __len__(self) -> int:
        """Return the number of questions that wait for their answers."""
        return len(self._open)

    def ask(self, questions: Sequence[Question]) -> None:
        """Request the newest messages that match."""
        questions = [question for question in questions if question.watermark >= 0]
        n = len(questions)
        if not n:
            return
        numbers = np.arange(-self._asked - 1, -self._asked - n - 1, -1)  # those of top-k evaluations rise from 0
        self._asked += n
        self._open |= {number: question[:4] for number, question in zip(numbers.tolist(), questions)}
        zeros, none = np.zeros(n), np.zeros(0)
        watermarks, wanted = (np.array(column, np.int64) for column in zip(*((q.watermark, q.filter["k"]) for q in questions)))
        queries = QueryBatch(watermarks, wanted, zeros, zeros, zeros, np.zeros(n + 1, np.int64), none.astype(np.int64), none)
        names, filters, programs = [q.subscription for q in questions], [q.filter for q in questions], csr_to_lists(queries.offsets, queries.terms)
        Requests(request=numbers, subscription=names, **queries.columns(), programs=programs, filter=filters).emit_batch(self._collector)

    def publish(self, batch: TupleBatch) -> None:
        """Publish the answers to questions in a frame, the oldest message first; it may have others."""
        answers = Answers.of(batch)
        asked = [(i, self._open.pop(number)) for i, number in enumerate(column_to_list(answers.request)) if number in self._open]
        if not asked:
            return
        listed = column_to_list(answers.ids)
        found = [(*question, id) for i, question in asked for id in reversed(listed[i])]
        self._counter.inc(len(found))
        step = self._publisher.rows_at_once or len(found)
        for start in range(0, len(found), max(step, 1)):
            names, registrations, metas, watermarks, ids = map(list, zip(*found[start : start + step]))
            kinds, given = np.full(len(ids), INITIAL, np.int8), metas if any(metas) else None
            self._publisher.deltas(Results(subscription=names, registration=registrations, kind=kinds, watermark=watermarks, message=ids, meta=given))

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self._asked, [[number, *question] for number, question in self._open.items()]]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._asked, questions = state
        self._open = {number: (name, registration, meta, watermark) for number, name, registration, meta, watermark in questions}
