"""What every result store must do, on real servers."""

import itertools
import random

import pytest

from dskype.bolts.results import STORES, make_store
from dskype.bolts.results.base import Opening, Removal, State, Stored, run_of, supersedes
from dskype.topology import IllegalArgumentException
from dskype.topology.nimbus.states import topology_id
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

pytestmark = pytest.mark.product

TOPOLOGY = "stores"
names = (f"s{i}" for i in itertools.count())


class ProducerCollector:
    """Writes records to Kafka at once."""

    def __init__(self, producer):
        self._producer = producer

    def send_record(self, topic, key, value, headers=(), partition=None):
        self._producer.send(topic, key=key, value=value, headers=list(headers), partition=partition).get(20)


@pytest.fixture(scope="session")
def kafka(bootstrap_servers):
    settings = KafkaSettings(bootstrap_servers)
    admin = TopicAdmin(settings)
    admin.create({f"{TOPOLOGY}.topk": 3}, {"cleanup.policy": "compact"})
    admin.close()
    producer = settings.producer()
    yield settings, ProducerCollector(producer)
    producer.close()


class Opened:
    """Opens stores of one kind, as writers of a run or as readers."""

    def __init__(self, name, options, kafka):
        self._name, self._options, self._kafka = name, options, kafka
        self._stores = []

    def __call__(self, run=1, reader=False):
        store = make_store(self._name, self._options)
        settings, collector = self._kafka or (None, None)
        store.open(Opening(TOPOLOGY, 0, None, settings) if reader else Opening(TOPOLOGY, run, collector))
        self._stores.append(store)
        return store

    def close(self):
        for store in self._stores:
            store.close()
            store.close()


@pytest.fixture(params=sorted(STORES))
def opened(request):
    kafka = request.getfixturevalue("kafka") if request.param == "kafka" else None
    options = {"url": request.getfixturevalue("redis_server").url} if request.param == "redis" else {}
    made = Opened(request.param, options, kafka)
    yield made
    made.close()


def state(name, registration, watermark, text=None):
    return State(name, registration, watermark, (text or f'{{"watermark":{watermark}}}').encode())


def test_a_reader_finds_what_was_put(opened):
    name, other, unknown = (next(names) for _ in range(3))
    opened().put([state(name, "0-1", -1), state(other, "2-7", 2**45, '{"topk":["ü\\n"]}')])
    reader = opened(reader=True)
    assert reader.get(name) == Stored("0-1", -1, b'{"watermark":-1}', 1)
    assert reader.get(other) == Stored("2-7", 2**45, '{"topk":["ü\\n"]}'.encode(), 1)
    assert reader.get(unknown) is None


@pytest.mark.parametrize("subscription", ["with space", "ünï", "{hash}", "a:b", "*", 'quo"te', "line\nbreak", "\x00"])
def test_any_id_will_do(opened, subscription):
    opened().put([state(subscription, "0-1", 4)])
    assert opened(reader=True).get(subscription).watermark == 4


def test_older_states_do_not_overwrite_newer_ones(opened):
    name, store = next(names), opened()
    for item in (state(name, "0-9", 20), state(name, "0-9", 19, "older watermark"), state(name, "0-8", 99, "older registration")):
        store.put([item])
    assert opened(reader=True).get(name) == Stored("0-9", 20, b'{"watermark":20}', 1)


def test_at_equal_versions_the_later_call_wins(opened):
    name, store = next(names), opened()
    store.put([state(name, "0-9", 20, "first"), state(name, "0-9", 20, "second")])
    assert opened(reader=True).get(name).value == b"second"


def test_a_newer_registration_wins_at_a_lower_watermark(opened):
    name, store = next(names), opened()
    store.put([state(name, "0-10", 20), state(name, "0-11", 5)])
    assert opened(reader=True).get(name) == Stored("0-11", 5, b'{"watermark":5}', 1)


def test_what_was_removed_does_not_come_back(opened):
    name, store, reader = next(names), opened(), opened(reader=True)
    store.put([state(name, "0-9", 20)])
    store.remove([Removal(name, "0-9", 21)])
    assert reader.get(name) == Stored("0-9", 21, None, 1)
    store.put([state(name, "0-9", 20), state(name, "0-9", 22), state(name, "0-3", 23)])
    assert reader.get(name).value is None
    store.put([state(name, "0-12", 21)])
    assert reader.get(name).watermark == 21
    store.remove([Removal(name, "0-9", 21)])
    assert reader.get(name) == Stored("0-12", 21, b'{"watermark":21}', 1)


def test_a_removal_may_be_the_first_that_is_written(opened):
    name, store = next(names), opened()
    store.remove([Removal(name, "0-9", 21)])
    store.put([state(name, "0-9", 20)])
    assert opened(reader=True).get(name).value is None


def test_a_newer_run_starts_over(opened):
    name = next(names)
    opened(run=5).put([state(name, "0-9", 1000)])
    opened(run=6).put([state(name, "0-9", 3)])
    opened(run=5).put([state(name, "0-9", 1001)])
    assert opened(reader=True).get(name) == Stored("0-9", 3, b'{"watermark":3}', 6)


def test_nothing_to_write_is_no_call(opened):
    store = opened()
    assert tuple(store.put([])) == tuple(store.remove([])) == (0, 0, ())


def test_a_writer_learns_what_became_of_a_batch(opened):
    name, other, store = next(names), next(names), opened()
    assert store.put([state(name, "0-1", 5), state(other, "0-2", 5)]) == (2, 0, [] if store.name == "redis" else ())
    again = store.put([state(name, "0-1", 4), state(other, "0-2", 6)])
    assert (again.written, again.stale) == ((2, 0) if store.in_log else (1, 1))


def history(rng, name):
    """Return what one task writes about a subscription, in order: registrations follow each other, watermarks rise."""
    items, watermark, offset, partition = [], -1, 0, rng.randrange(3)
    for _ in range(rng.randrange(1, 5)):
        offset += rng.randrange(1, 4)
        for _ in range(rng.randrange(4)):
            watermark += rng.randrange(3)
            items.append(state(name, f"{partition}-{offset}", watermark))
        if rng.random() < 0.6:
            items.append(Removal(name, f"{partition}-{offset}", watermark))
        if rng.random() < 0.2:  # the topic got more partitions
            partition, offset = (partition + 1) % 3, rng.randrange(9)
            watermark += 1
    return items or [state(name, f"{partition}-{offset}", watermark)]


def write(store, items):
    for kind, group in itertools.groupby(items, type):
        (store.put if kind is State else store.remove)(list(group))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_replay_repeats_the_newest_state_stays(opened, seed):
    rng, store, reader = random.Random(seed), opened(), opened(reader=True)
    subscriptions = [next(names) for _ in range(4 if store.name == "kafka" else 40)]
    for name in subscriptions:
        items = history(rng, name)
        at = 0
        while at < len(items):  # a crash now and then: the task goes back some way and writes all from there again
            step = rng.randrange(1, 4)
            write(store, items[at : at + step])
            at = max(0, at + step - (rng.randrange(6) if rng.random() < 0.4 else 0))
        last = items[-1]
        found = reader.get(name)
        assert (found.registration, found.watermark, found.value) == (last.registration, last.watermark, last.value if isinstance(last, State) else None)


@pytest.mark.parametrize("name", sorted(STORES))
def test_an_unknown_option_is_refused_without_showing_its_value(name):
    with pytest.raises(IllegalArgumentException, match="is not known.*given: 'pasword'") as caught:
        make_store(name, {"pasword": "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_an_unknown_store_is_refused():
    with pytest.raises(IllegalArgumentException, match="given: 'memcached'; legal: kafka, redis"):
        make_store("memcached")


def test_the_order_of_versions_is_a_total_one_within_a_partition():
    versions = [Stored(f"0-{o}", w, v, r) for r in (1, 2) for o in (2, 10) for v in (b"x", None) for w in (-1, 3)]
    for i, old in enumerate(versions):
        for j, new in enumerate(versions):
            assert supersedes(new, old) == (j >= i)


def test_runs_rise_with_every_submission():
    runs = [
        run_of(topology_id("my-topology", counter, ms))
        for counter, ms in ((1, 1_700_000_000_000), (2, 1_700_000_000_500), (3, 1_700_000_009_000), (1, 1_800_000_000_000))
    ]
    assert runs == sorted(set(runs))
    assert all(run < 2**53 for run in runs)
