"""Messages on their way to the tasks that need them."""

import random

import numpy as np
import pytest

from dskype.bolts.distribution_bolt import DistributionBolt
from dskype.distribution import make_distributor
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.context import Counter
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.tuples import StreamMeta, TupleBatch, column_to_list

WORDS = ["lake", "river", "café", "old", "new", "harbour", "hill", "東京"]


class Context:
    """A context with so many tasks of the subscription and the message bolt."""

    def __init__(self, subscription_tasks, message_tasks):
        self.tasks = {"subscription-bolt": list(range(20, 20 + subscription_tasks)), "message-bolt": list(range(80, 80 + message_tasks))}
        self.tasks["distribution-bolt"] = [1, 2]  # of several, none holds anything back

    def get_component_tasks(self, component):
        return self.tasks[component]

    def get_this_component_id(self):
        return "distribution-bolt"

    def register_counter(self, name):
        return Counter()

    def register_gauge(self, name, function):
        return None


class Sent:
    """Takes what is emitted: (stream, task) -> rows."""

    def __init__(self):
        self.rows = {}

    def emit_direct_batch(self, task, columns, stream):
        assert len({len(column) for column in columns}) == 1
        self.rows.setdefault((stream, task), []).extend(zip(*map(column_to_list, columns)))


def messages(n):
    rng = random.Random(n)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 5))) for _ in range(n)]
    places = np.random.default_rng(n).uniform(-90, 90, (2, n))
    return texts, [
        np.arange(n),
        np.arange(n) + 5,
        [f'"m{i}"' for i in range(n)],
        *places,
        texts,
        np.arange(n) * 7,
        [[i, i] * (i % 2) for i in range(n)],
        [[0.5] * (i % 3) for i in range(n)],
    ]


def distributed(distributor, subscription_tasks, message_tasks, n):
    bolt, sent, context = DistributionBolt(), Sent(), Context(subscription_tasks, message_tasks)
    bolt.prepare({"dskype.space": [-180, -90, 180, 90], "dskype.window.messages": 10, "dskype.distributor": distributor}, context, sent)
    texts, columns = messages(n)
    fields = streams.Messages.fields
    bolt.execute_batch(TupleBatch(columns, StreamMeta("message-spout", 3, streams.Messages.name, fields), n))
    offsets, terms, weights = Vocabulary.empty().weigh_texts(texts, Tokenizer())
    batch = MessageBatch(*columns[:2], *columns[3:5], offsets, terms, weights)
    rows = [
        (
            i,
            i + 5,
            columns[2][i],
            columns[3][i],
            columns[4][i],
            terms[offsets[i] : offsets[i + 1]].tolist(),
            weights[offsets[i] : offsets[i + 1]].tolist(),
            i * 7,
            [terms[offsets[i] : offsets[i + 1]].tolist().index(id) for id in Vocabulary.empty().ids(texts[i].split()).tolist()] if texts[i] else [],
            columns[7][i],
            [],
            columns[8][i],
        )
        for i in range(n)
    ]
    return sent.rows, rows, make_distributor(distributor, subscription_tasks).message_tasks(batch), context


@pytest.mark.long
@pytest.mark.parametrize("distributor", ["hashing", "prefix"])
@pytest.mark.parametrize(("subscription_tasks", "message_tasks"), [(1, 1), (2, 3), (7, 2)])
def test_every_task_gets_its_messages_whole_and_in_order(distributor, subscription_tasks, message_tasks):
    found, rows, routes, context = distributed(distributor, subscription_tasks, message_tasks, 60)
    expected = {}
    for index, task in enumerate(context.get_component_tasks("subscription-bolt")):
        chosen = range(len(rows)) if routes is None else routes.rows[routes.tasks == index].tolist()
        expected[streams.Matching.name, task] = [rows[i] for i in chosen]
    for index, task in enumerate(context.get_component_tasks("message-bolt")):
        expected[streams.Window.name, task] = [(*row[:7], *row[8:11]) for row in rows if row[0] % message_tasks == index]
    assert {key: sent for key, sent in expected.items() if sent} == found


@pytest.mark.parametrize("distributor", ["hashing", "prefix"])
def test_areas_travel_as_pairs_to_subscriptions_and_as_their_centres_to_the_window(distributor):
    bolt, sent = DistributionBolt(), Sent()
    bolt.prepare({"dskype.window.messages": 10, "dskype.distributor": distributor}, Context(2, 2), sent)
    lat, lon = np.array([[1.0, 3.0], [5.0, 5.0], [-10.0, 10.0]]), np.array([[2.0, 8.0], [7.0, 7.0], [170.0, -160.0]])
    columns = [np.arange(3), np.arange(3), ["1", "2", "3"], lat, lon, ["lake"] * 3, np.zeros(3, np.int64), [[]] * 3, [[]] * 3]
    bolt.execute_batch(TupleBatch(columns, StreamMeta("message-spout", 3, streams.Messages.name, streams.Messages.fields), 3))
    matching = {row[0]: row[3:5] for (stream, _), rows in sent.rows.items() if stream == streams.Matching.name for row in rows}
    assert matching == {0: ([1, 3], [2, 8]), 1: ([5, 5], [7, 7]), 2: ([-10, 10], [170, -160])}
    window = {row[0]: row[3:5] for (stream, _), rows in sent.rows.items() if stream == streams.Window.name for row in rows}
    assert window == {0: (2, 5), 1: (5, 7), 2: (0, -175)}


def test_messages_without_keywords_are_kept_and_match_nothing():
    bolt, sent = DistributionBolt(), Sent()
    bolt.prepare({"dskype.window.messages": 10, "dskype.distributor": "prefix"}, Context(3, 1), sent)
    columns = [np.arange(2), np.arange(2), ["1", "2"], np.zeros(2), np.zeros(2), ["!", ""], np.zeros(2, np.int64), [[]] * 2, [[]] * 2]
    bolt.execute_batch(TupleBatch(columns, StreamMeta("message-spout", 3, streams.Messages.name, streams.Messages.fields), 2))
    assert list(sent.rows) == [(streams.Window.name, 80)] and len(sent.rows[streams.Window.name, 80]) == 2


@pytest.mark.parametrize(("named", "given"), [({}, 1), ({"words": 1}, 1), ({"words": 3}, 3)])
def test_state_with_words_by_other_rules_is_refused_by_name(named, given):
    bolt = DistributionBolt()
    bolt.prepare({"dskype.space": [-180, -90, 180, 90], "dskype.window.messages": 10}, Context(1, 1), Sent())
    state = bolt.snapshot()
    assert state["words"] == 2
    bolt.restore(state)
    others = {name: value for name, value in state.items() if name != "words"} | named
    with pytest.raises(
        IllegalArgumentException,
        match=f"distribution-bolt: the state was made with other rules for words.*expected rule 2; given: {given}; hint: start over with --fresh",
    ):
        bolt.restore(others)
