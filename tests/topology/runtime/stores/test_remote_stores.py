"""The contract of snapshot stores, on stores that hosts reach over the network, and what only these do."""

from __future__ import annotations

import inspect
import os
import time

import numpy as np
import pytest
from s3fs import S3FileSystem

from dskype.topology.core.chunking import LEAST_BYTES, MOST_BYTES, cut
from dskype.topology.core.snapshots import FencedError, JournalTakenError, encode_snapshot
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.stores import kafka_store
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore
from dskype.topology.runtime.stores.object_store import ObjectSnapshotStore
from dskype.topology.runtime.stores.state_log import Commit, PartitionLog
from tests.topology.core import test_snapshots as contract

from .object_server import object_server

globals().update(
    {name: test for name, test in vars(contract).items() if name.startswith("test_") and {"store", "stores"} & set(inspect.signature(test).parameters)}
)

TASKS = 9


class KafkaStores:
    """Views of the topics of one topology, each as in another process."""

    kill_after_s = 0.15

    def __init__(self, servers, name):
        self.kafka, self.name, self.views = KafkaSettings(servers), name, []

    def view(self):
        self.views.append(KafkaSnapshotStore(self.kafka, self.name, TASKS))
        return self.views[-1]

    def remove(self, *views):
        KafkaSnapshotStore(self.kafka, self.name, TASKS).remove()

    def damage(self, store, task, version, change, kind="snapshot"):
        """Write the records of the task's partition again, one of them changed."""
        topic, partition = store._topic, store._partition(task)
        records = [r for r in read_to_end(self.kafka, topic) if r.partition == partition]
        with TopicAdmin(self.kafka) as admin:
            admin.delete_records({(topic, partition): records[-1].offset + 1})
        producer = self.kafka.producer()
        for record in records:
            commit = Commit.parse(record.offset, record.key, record.value)
            hit = (commit.kind, commit.task, commit.number) == (kind, task, version)
            producer.send(topic, key=record.key, value=change(record.value) if hit else record.value, partition=partition)
        producer.close()
        store._logs[partition] = PartitionLog(store.kept)

    def close(self):
        for view in self.views:
            view.rest()
        self.remove()


class ObjectStores:
    """Views of the objects of one topology."""

    kill_after_s = 0.05
    rounds = 6

    def __init__(self, name):
        self.url = f"s3://states/{name}"

    def view(self):
        return ObjectSnapshotStore(self.url)

    def remove(self, *views):
        self.view().remove()

    def damage(self, *what):
        contract.damage(*(*what, "snapshot")[:5])

    def close(self):
        self.remove()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with object_server(tmp_path_factory.mktemp("objects")) as environment:
        yield environment


@pytest.fixture(params=["kafka", "s3"])
def stores(request, bootstrap_servers, name, monkeypatch):
    if request.param == "s3":
        for variable, value in request.getfixturevalue("server").items():
            monkeypatch.setenv(variable, value)
    made = ObjectStores(name) if request.param == "s3" else KafkaStores(bootstrap_servers, name)
    yield made
    made.close()


@pytest.fixture
def store(stores):
    store = stores.view()
    store.create()
    return store


in_kafka = pytest.mark.parametrize("stores", ["kafka"], indirect=True)
on_s3 = pytest.mark.parametrize("stores", ["s3"], indirect=True)


def offsets(stores, topic, partition):
    with TopicAdmin(stores.kafka) as admin:
        return admin.begin_and_end(topic)[partition]


@in_kafka
def test_what_a_process_of_an_earlier_driver_writes_does_not_count_even_if_it_has_checked_its_term_before(stores, store):
    store.take_term(7, {})
    old = stores.view()
    old.save_journal(2, 1, encode_snapshot("entry"), term=7)
    old.save(1, 5, encode_snapshot("state"), term=7)
    old.check_term(7)
    store.take_term(8, {})
    for log in old._logs.values():  # as if it had been suspended after its check
        log.fence = 7
    with pytest.raises(FencedError):
        old.save_journal(2, 2, encode_snapshot("late"), term=7)
    assert stores.view().load_journal(2) == (1, "entry")
    new = stores.view()
    new.save_journal(2, 2, encode_snapshot("of the new one"), term=8)
    assert stores.view().load_journal(2) == (2, "of the new one")


@in_kafka
def test_the_fence_stays_when_everything_before_it_is_dropped(stores, store, monkeypatch):
    monkeypatch.setattr(kafka_store, "_TRIM_EVERY", 1)
    store.take_term(7, {})
    for number in range(1, 12):
        store.save_journal(2, number, encode_snapshot(number), term=7)
    begin, end = offsets(stores, store._topic, store._partition(2))
    assert begin > 7 and end >= 12
    late = stores.view()
    with pytest.raises(FencedError):
        late.save_journal(2, 12, encode_snapshot("late"), term=6)
    with pytest.raises(JournalTakenError):
        late.save_journal(2, 11, encode_snapshot("late"), term=7)
    late.save_journal(2, 12, encode_snapshot(12), term=7)
    assert store.load_journal(2) == (12, 12)


@in_kafka
def test_kafka_drops_what_is_no_longer_needed(stores, store):
    partition, rng = store._partition(1), np.random.default_rng(1)
    for version in range(1, 12):
        store.save(1, version, encode_snapshot(rng.integers(0, 1 << 60, 200_000)))
    begin, end = offsets(stores, store._topic, partition)
    assert end - begin <= 4
    begin, end = offsets(stores, store._chunks, partition)
    assert 0 < begin and end - begin <= 3 * (2 + 1_600_000 // LEAST_BYTES)
    assert store.versions(1) == [9, 10, 11]


@in_kafka
def test_a_large_state_that_has_changed_a_little_is_written_as_what_has_changed(stores, store):
    rng, partition = np.random.default_rng(1), store._partition(1)
    state = {"big": rng.integers(0, 1 << 60, 2_000_000), "small": 0}
    written = []
    for version in range(1, 17):
        state["small"] = "x" * version  # everything behind moves
        state["big"][version * 1000] += 1
        before = offsets(stores, store._chunks, partition)[1]
        store.save(1, version, encode_snapshot(dict(reversed(state.items()))))
        written.append(offsets(stores, store._chunks, partition)[1] - before)
        if version % 8 == 0:
            number, found = stores.view().load(1)
            assert number == version and (found["big"] == state["big"]).all()
    assert written[0] > 16_000_000 // MOST_BYTES and sum(written[1:]) < 16 * written[0] / 3
    begin, end = offsets(stores, store._chunks, partition)
    assert end - begin < 7 * written[0]  # what is needed does not keep everything before it


@in_kafka
def test_records_of_others_in_the_topics_are_no_state(stores, store):
    store.save(1, 5, encode_snapshot("state"))
    producer = stores.kafka.producer()
    for key in (
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"v": 1}',
        b'{"v": 2, "kind": "snapshot"}',
        b'{"v":1,"kind":"apply","task":1,"number":9,"attempt":"a","term":null}',
    ):
        producer.send(store._topic, key=key, value=b"x", partition=store._partition(1))
    producer.close()
    store.save(1, 6, encode_snapshot("more"))
    assert stores.view().load(1) == (6, "more") and stores.view().versions(1) == [5, 6]


@in_kafka
def test_a_journal_entry_costs_one_request(stores, store):
    started = time.perf_counter()
    data = encode_snapshot(os.urandom(20_000))
    for number in range(1, 201):
        assert store.newest_journal(2) == number - 1
        store.save_journal(2, number, data)
    print(f"{(time.perf_counter() - started) / 200 * 1000:.2f} ms an entry")
    assert store.load_journal(2)[0] == 200


@on_s3
def test_a_server_that_replaces_what_must_not_be_replaced_is_refused(stores, monkeypatch):
    pipe = S3FileSystem._pipe_file

    async def replace(self, path, data, *args, mode="overwrite", **more):
        await pipe(self, path, data, *args, **more)

    monkeypatch.setattr(S3FileSystem, "_pipe_file", replace)
    store = stores.view()
    with pytest.raises(
        TopologyError, match="ignores the condition.*given: 's3://states/.*legal: a server that honours.*hint: use another server, or keep the state in Kafka"
    ):
        store.create()
    assert not store._find()


@on_s3
def test_a_server_that_refuses_is_named_without_the_password(stores, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
        with pytest.raises(TopologyError, match="cannot be used.*given: 's3://states/.*hint: the bucket must exist") as error:
            stores.view().create()
    assert "wrong-and-secret" not in str(error.value)


def test_borders_of_chunks_follow_the_content():
    data = np.random.default_rng(3).integers(0, 256, 12 << 20, dtype=np.uint8).tobytes()
    borders = cut(data)
    lengths = np.diff([0, *borders])
    assert borders[-1] == len(data) and (lengths[:-1] >= LEAST_BYTES).all() and (lengths <= MOST_BYTES).all()
    moved = cut(b"some bytes more" + data)
    assert len({b + 15 for b in borders} & set(moved)) >= len(borders) - 2
    assert cut(b"") == [] and cut(b"abc") == [3] and cut(bytes(5 << 20)) == [MOST_BYTES, 2 * MOST_BYTES, 5 << 20]
