"""A standby: when it takes over, by the records of the nimbus topic alone, and what a driver on another host finds in the store."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.runtime.driver.resume import check_changes, read_started
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.nimbus import nimbus_topic, standby
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, ClusterClient
from dskype.topology.runtime.nimbus.standby import LOST_AFTER_BEATS, RANK_BEATS, LossWatch, TopologyKilledError
from dskype.topology.runtime.stores import kept_files
from dskype.topology.runtime.stores.choice import ship_files
from dskype.topology.runtime.stores.control_files import FIRST_OFFSETS, MANIFEST, Manifest, write_json
from dskype.topology.runtime.stores.shared_files import SharedFiles
from tests.waiting import wait_for

from ..stores.test_kept_files import plan_of

DRIVER = {"host": "one", "pid": 1, "machine": "one", "started": 5}
NEXT = {**DRIVER, "host": "two"}


def record(key: str, value: dict | None) -> SimpleNamespace:
    return SimpleNamespace(key=key.encode(), value=None if value is None else json.dumps(value).encode())


def heartbeat(n: int, driver: dict = DRIVER) -> SimpleNamespace:
    state = {"name": "t", "conf": {}, "components": [], "submitted_ms": 0}
    return record("topology:t", {"v": 1, "state": state, "summary": {}, "driver": driver, "heartbeat": n})


def beat(token: str, n: int) -> SimpleNamespace:
    return record(f"standby:{token}/t", {"v": 1, "driver": DRIVER, "beat": n})


class World:
    """Drivers and standbys that write to one topic; all read it in its order. A step is a second in which the brokers take records."""

    def __init__(self, tokens: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.watches = {token: LossWatch("t", token, lambda driver: None) for token in tokens}
        self.running: dict | None = DRIVER
        self.phase, self.step_number = self.random.randrange(2), 0
        self.takers: list[tuple[str, int]] = []

    def step(self) -> None:
        self.step_number += 1
        records = [beat(token, self.step_number) for token in self.watches]
        if self.running is not None and self.step_number % 2 == self.phase:  # its heartbeat is half as frequent
            records.append(heartbeat(self.step_number, self.running))
        self.random.shuffle(records)
        for one in records:
            for watch in self.watches.values():
                watch.feed(one)
        for token, watch in list(self.watches.items()):
            if watch.is_lost():
                self.takers.append((token, self.step_number))
                del self.watches[token]
                if self.running is None:
                    self.running = {**NEXT, "pid": self.step_number}


@pytest.mark.parametrize("seed", range(20))
def test_of_several_standbys_one_takes_over_and_soon_and_only_when_the_driver_is_lost(seed):
    world = World("abc", seed)
    for _ in range(world.random.randrange(10, 40)):
        world.step()
    assert not world.takers, "the driver lives"
    lost_at, world.running = world.step_number, None
    while not world.takers:
        world.step()
    ((token, at),) = world.takers
    assert token == "a" and at - lost_at <= LOST_AFTER_BEATS + 2
    for _ in range(30):
        world.step()
    assert len(world.takers) == 1, "the others stand by for the one that took over"
    world.running = None
    for _ in range(LOST_AFTER_BEATS + RANK_BEATS + 2):
        world.step()
    assert [token for token, _ in world.takers] == ["a", "b"]


def test_while_nothing_gets_through_nothing_is_concluded():
    watch = LossWatch("t", "a", lambda driver: None)
    watch.feed(heartbeat(1))
    for n in range(LOST_AFTER_BEATS - 1):
        watch.feed(beat("a", n))
    assert not watch.is_lost()  # and it stays so, however long the brokers are away: own beats do not get through either
    watch.feed(heartbeat(2))
    watch.feed(beat("a", 9))
    assert not watch.is_lost()


def test_a_standby_without_a_driver_begins_when_it_knows_the_others_and_one_of_a_killed_topology_ends():
    first, second = (LossWatch("t", token, lambda driver: None) for token in "ab")
    for n in range(2):
        for watch in (first, second):
            watch.feed(beat("a", n))
            watch.feed(beat("b", n))
    assert first.is_lost() and not second.is_lost()
    second.feed(heartbeat(1))
    second.feed(record("topology:t", None))
    assert second.killed


def test_a_driver_on_this_machine_is_known_to_be_dead_or_alive():
    for alive in (True, False):
        watch = LossWatch("t", "a", lambda driver, alive=alive: alive)
        watch.feed(heartbeat(1))
        for n in range(2 + alive * 3 * LOST_AFTER_BEATS):
            watch.feed(beat("a", n))
        assert watch.is_lost() is not alive


def test_records_of_other_topologies_and_odd_ones_are_passed_over():
    watch = LossWatch("t", "a", lambda driver: None)
    for key, value in (
        ("standby:a/u", {"v": 1, "driver": DRIVER, "beat": 1}),
        ("standby:a/t", {"v": 1}),
        ("standby:", {}),
        ("topology:t", {"v": 2}),
        ("", None),
    ):
        watch.feed(record(key, value))
    assert (watch.beats, watch.driver, watch.killed) == (0, None, False)


@contextlib.contextmanager
def driver_elsewhere(kafka: KafkaSettings, name: str, *, killed: bool) -> Iterator[None]:
    """Let a driver's heart beat within the ``with`` block; a killed topology is removed by its driver, before that ends."""
    stopped = threading.Event()
    state = {"v": 1, "id": f"{name}-1-1", "name": name, "conf": {}, "components": [], "submitted_ms": 0}

    def beat_on() -> None:
        producer, n = kafka.producer(), 0
        while not stopped.wait(0.05):
            n += 1
            value = {"v": 1, "state": state, "summary": {}, "driver": DRIVER, "heartbeat": n}
            producer.send(NIMBUS_TOPIC, key=f"topology:{name}".encode(), value=json.dumps(value).encode())
        if killed:
            producer.send(NIMBUS_TOPIC, key=f"topology:{name}".encode(), value=None)
        producer.close()

    nimbus_topic.follow(kafka).close()  # makes the topic
    driver = threading.Thread(target=beat_on)
    driver.start()
    try:
        wait_for(lambda: name in nimbus_topic.load_states(kafka), 60, "a heartbeat")
        yield
    finally:
        stopped.set()
        driver.join()


def test_a_standby_on_real_brokers_waits_for_as_long_as_the_heart_beats(bootstrap_servers, name, monkeypatch):
    monkeypatch.setattr(standby, "BEAT_S", 0.1)
    kafka, said, found = KafkaSettings(bootstrap_servers), [], []
    client = ClusterClient(kafka)
    waiting = threading.Thread(target=lambda: found.append(standby.await_loss(kafka, name, said.append)))
    with driver_elsewhere(kafka, name, killed=False):
        waiting.start()
        wait_for(lambda: said, 60, "the standby")
        waiting.join(timeout=2)
        assert not found and said == [f"standing by for topology {name}, which runs on one (process 1)"]
        assert client.standbys()[name] == [{"host": platform.node(), "pid": os.getpid()}]
    waiting.join(timeout=60)
    assert found == [DRIVER] and said[1:] == [f"the driver of topology {name} on one (process 1) is lost; taking over"]
    left = [r for r in read_to_end(kafka, NIMBUS_TOPIC) if r.key.startswith(b"standby:") and r.key.endswith(name.encode())]
    assert left[-1].value is None and name not in client.standbys(), "it stands by no more"
    producer = kafka.producer()
    producer.send(NIMBUS_TOPIC, key=f"topology:{name}".encode(), value=None)
    producer.close()


def test_a_standby_of_a_topology_that_is_killed_is_not_listed_any_more(bootstrap_servers, name):
    kafka, said, raised = KafkaSettings(bootstrap_servers), [], []

    def stand_by() -> None:
        try:
            standby.await_loss(kafka, name, said.append)
        except TopologyKilledError as error:
            raised.append(str(error))

    waiting = threading.Thread(target=stand_by)
    with driver_elsewhere(kafka, name, killed=True):
        waiting.start()
        wait_for(lambda: said, 60, "the standby")
    waiting.join(timeout=60)
    assert raised == [f"topology {name!r} was killed while this process stood by for it"]
    assert name not in ClusterClient(kafka).standbys()


def test_standbys_elsewhere_are_listed_while_they_beat(bootstrap_servers, name, monkeypatch):
    kafka, stopped = KafkaSettings(bootstrap_servers), threading.Event()
    nimbus_topic.follow(kafka).close()

    def beat_on() -> None:
        n = 0
        while not stopped.wait(0.05):
            n += 1
            nimbus_topic.write_standby(producer, name, "a", {"v": 1, "driver": NEXT, "beat": n})

    with contextlib.closing(kafka.producer()) as producer:
        beating = threading.Thread(target=beat_on)
        beating.start()
        try:
            monkeypatch.setattr(nimbus_topic, "STANDBY_GONE_AFTER_S", 60.0)
            client = ClusterClient(kafka)
            wait_for(lambda: client.standbys().get(name) == [{"host": "two", "pid": 1}], 60, "the standby")
        finally:
            stopped.set()
            beating.join()
        monkeypatch.setattr(nimbus_topic, "STANDBY_GONE_AFTER_S", 0.5)
        assert name not in client.standbys(), "its host was lost, and it could not say so"
        nimbus_topic.write_standby(producer, name, "a", None)


# -- what is in the store ------------------------------------------------------------------------------


@pytest.fixture
def hosts(tmp_path):
    """Two hosts with a folder each, and a store that both reach."""
    words = tmp_path / "words.txt"
    words.write_text("lake 1\n")
    store = FileSnapshotStore(tmp_path / "store")
    plan = plan_of({"words.file": str(words), "topology.emulator.state.url": f"file://{tmp_path}/store"})
    for host in ("one", "two"):
        (tmp_path / host).mkdir()
    return tmp_path, plan, store


def begin(folder, plan, store):
    """Do what a driver does at the first start."""
    store.create()
    kept = kept_files.keep_files(plan, folder, False)
    ship_files(kept, store)
    Manifest.describe(kept, "1").write(folder)
    write_json(folder / FIRST_OFFSETS, [["in", 0, 7]])
    SharedFiles(kept, folder, store).share()
    return kept


def test_a_driver_on_another_host_finds_manifest_first_offsets_and_files(hosts):
    folder, plan, store = hosts
    begin(folder / "one", plan, store)
    (folder / "words.txt").unlink()
    two = folder / "two"
    SharedFiles(plan, two, store).fetch()
    started = read_started(plan, two, store)
    kept = kept_files.keep_files(plan, two, True)
    assert (two / "files").samefile(kept.conf["words.file"].rpartition("/")[0])
    assert json.loads((two / FIRST_OFFSETS).read_text()) == [["in", 0, 7]]
    assert check_changes(kept, started, Manifest.describe(kept, "1")) is False, "another folder is no change"


def test_what_the_store_says_counts_more_than_what_a_folder_has_kept(hosts):
    folder, plan, store = hosts
    begin(folder / "one", plan, store)
    SharedFiles(plan, folder / "two", store).fetch()
    write_json(folder / "two" / FIRST_OFFSETS, [["in", 0, 7], ["in", 1, 3]])
    SharedFiles(plan, folder / "two", store).share()
    SharedFiles(plan, folder / "one", store).fetch()
    assert len(json.loads((folder / "one" / FIRST_OFFSETS).read_text())) == 2
    store.clear()
    SharedFiles(plan, folder / "one", store).fetch()
    assert not (folder / "one" / MANIFEST).exists(), "it was started afresh elsewhere, or killed"


def test_a_folder_store_keeps_its_control_files_for_itself(tmp_path):
    store = FileSnapshotStore(tmp_path / "snapshots")
    store.create()
    plan = plan_of({})
    Manifest.describe(plan, "1").write(tmp_path)
    SharedFiles(plan, tmp_path, store).share()
    assert store.read_document(MANIFEST) is None
    SharedFiles(plan, tmp_path, store).fetch()
    assert Manifest.read(tmp_path) is not None
