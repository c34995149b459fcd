"""Two processes that both believe that they own a spout task, step by step."""

import pytest

from dskype.topology import BasicBolt, Fields, KafkaSpout, TopologyBuilder
from dskype.topology.core.executor import Executor, Owner
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.frames import decode_frame, encode_control, encode_pulse
from dskype.topology.core.snapshots import FencedError, JournalTakenError, LostStateError
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.log import MemoryLog

from .fault_topologies import TOPOLOGIES


class Read(KafkaSpout):
    def translate(self, topic, partition, offset, key, value, timestamp_ms, headers):
        return [("default", (value.decode(),))]

    def next_tuple(self):
        self.extra += 1
        self.collector.emit((f"extra {self.extra}",))

    def open(self, conf, context, collector):
        self.collector, self.extra = collector, 0

    def snapshot(self):
        return self.extra

    def restore(self, state):
        self.extra = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))


class Drop(BasicBolt):
    def execute(self, tup, collector):
        pass


class Hosts:
    """Executors of one spout on several hosts that share a log and a folder."""

    def __init__(self, folder, spout, topology, conf, topics=()):
        self.plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **conf}, topology)
        self.spout, self.log = spout, MemoryLog(lambda: 1_000_000)
        self.folder = folder / "snapshots"
        FileSnapshotStore(self.folder).create()
        self.inbox, self.topics = f"t.{spout}", topics

    def start(self, owner, term=0):
        return Executor(self.plan, self.spout, 0, FileSnapshotStore(self.folder), self.log, lambda: 1_000_000, owner=Owner(owner, term))

    def pulse(self, number=1, credit=3):
        self.log.append(self.inbox, 0, None, encode_pulse(number, 1_000_000, credit))

    def records(self, start=0, external=(0, 0)):
        """Return a batch: the inbox from ``start`` on, and a range of the external topic."""
        found = list(self.log.read(self.inbox, 0, start, self.log.end(self.inbox, 0)))
        return found + [r for topic in self.topics for r in self.log.read(topic, 0, *external)]


@pytest.fixture
def numbers(tmp_path):
    topology, conf = TOPOLOGIES["drawn"]()
    hosts = Hosts(tmp_path, "numbers", topology, conf)
    hosts.log.append(hosts.inbox, 0, None, encode_control("activate", 1_000_000))
    hosts.pulse()
    return hosts


def emitted(reply):
    """Return (source task, number of the tuple, values) of all tuples in a reply."""
    found = []
    for record in reply:
        if record.topic.startswith("t.") and record.topic not in ("t.metrics", "t.dead-letters"):
            frame = decode_frame(record.value)
            for segment in frame.segments:
                if segment.stream == "default":
                    columns = [list(c) if isinstance(c, (list, tuple)) else c.tolist() for c in segment.columns]
                    found += [(record.topic, record.partition, frame.first_seq + i, row) for i, row in enumerate(zip(*columns))]
    return found


def test_who_comes_second_writes_nothing_and_goes_on_behind_the_first(numbers):
    a, b = numbers.start("a"), numbers.start("b")
    released = emitted(a.handle(0, numbers.records()))
    numbers.pulse(2)
    again_and_more = emitted(b.handle(0, numbers.records()))
    assert len(released) == 3 and again_and_more[:3] == released
    assert len(again_and_more) == len({row for *_, row in again_and_more}) == 6
    numbers.pulse(3)
    assert emitted(a.handle(1, numbers.records(3)))[:6] == again_and_more  # it has noticed that another process was faster


def test_a_process_that_was_overtaken_while_it_worked_releases_nothing(numbers, monkeypatch):
    a, b = numbers.start("a"), numbers.start("b")
    save, b_said = FileSnapshotStore.save_journal, []

    def slowly(store, *args, **kwargs):
        monkeypatch.setattr(FileSnapshotStore, "save_journal", save)
        b_said.extend(emitted(b.handle(0, numbers.records())))
        return save(store, *args, **kwargs)

    monkeypatch.setattr(FileSnapshotStore, "save_journal", slowly)
    with pytest.raises(JournalTakenError, match="nothing was released"):
        a.handle(0, numbers.records())
    assert len(b_said) == 3
    assert emitted(a.handle(0, numbers.records())) == b_said  # if it continued, it would be from the other's entry


def test_what_was_answered_twice_goes_again_with_the_next_batch(tmp_path):
    """Both hosts run a batch, and the second answer is longer; the sink writes the first one, and the second host gets the next batch."""
    builder = TopologyBuilder()
    builder.set_spout("in", Read(topics=["words"]))
    builder.set_bolt("drop", Drop()).shuffle_grouping("in")
    hosts = Hosts(tmp_path, "in", builder.create_topology(), {}, ["words"])
    for i in range(20):
        hosts.log.append("words", 0, None, b"w%d" % i)
    hosts.log.append(hosts.inbox, 0, None, encode_control("activate", 1_000_000))
    hosts.pulse(credit=30)
    a, b = hosts.start("a"), hosts.start("b")
    written = emitted(a.handle(0, hosts.records(external=(0, 10))))
    longer = emitted(b.handle(0, hosts.records(external=(0, 10))))
    assert len(longer) > len(written)
    hosts.pulse(2, credit=30)
    written += emitted(b.handle(1, hosts.records(2, external=(10, 20))))
    words = dict.fromkeys((number, row) for *_, number, row in written)
    assert [number for number, _ in words] == list(range(len(words)))  # without a hole
    assert sorted(word for _, (word,) in words if word[0] == "w") == sorted(f"w{i}" for i in range(20))


def test_a_newer_driver_ends_the_older_ones_processes(numbers):
    store = FileSnapshotStore(numbers.folder)
    store.take_term(1, {"host": "a"})
    a = numbers.start("a", term=1)
    a.handle(0, numbers.records())
    store.take_term(2, {"host": "b"})
    numbers.pulse(2)
    with pytest.raises(FencedError, match="term 2, ours 1"):
        a.handle(1, numbers.records(2))
    numbers.start("b", term=2).handle(0, numbers.records(2))
    with pytest.raises(FencedError, match="term 2"):
        numbers.start("c", term=1)
    assert store.load_journal(numbers.plan.component_tasks("numbers")[0])[1]["owner"] == "b"


def test_a_bolt_of_an_earlier_driver_ends_with_its_next_snapshot(tmp_path):
    topology, conf = TOPOLOGIES["drawn"]()
    hosts = Hosts(tmp_path, "first", topology, conf)
    store = FileSnapshotStore(hosts.folder)
    store.take_term(1, {"host": "a"})
    bolt = hosts.start("a", term=1)
    hosts.pulse()
    bolt.handle(0, hosts.records())
    assert len(bolt.pending_snapshots(1)) == 1
    store.take_term(2, {"host": "b"})
    hosts.pulse()
    bolt.handle(1, hosts.records(1))
    with pytest.raises(FencedError, match="term 2, ours 1"):
        bolt.pending_snapshots(2)


def test_a_snapshot_is_not_saved_when_another_executor_has_the_task_meanwhile(tmp_path):
    topology, conf = TOPOLOGIES["drawn"]()
    hosts = Hosts(tmp_path, "first", topology, conf)
    bolt = hosts.start("a")
    hosts.pulse()
    bolt.handle(0, hosts.records())
    (due,) = bolt.pending_snapshots(1)

    def superseded():
        raise JournalTakenError("another executor has the task")

    with pytest.raises(JournalTakenError):
        bolt.save_snapshots([due], superseded)
    store = FileSnapshotStore(hosts.folder)
    assert store.versions(due.task) == []
    bolt.save_snapshots([due])
    assert store.versions(due.task) == [due.version]


def test_a_spout_does_not_begin_anew_when_its_journal_is_removed(numbers):
    a = numbers.start("a")
    a.handle(0, numbers.records())
    FileSnapshotStore(numbers.folder).clear()
    numbers.pulse(2)
    with pytest.raises(LostStateError, match="journal of a spout task has disappeared.*component: 'numbers'"):
        a.handle(1, numbers.records(2))
    with pytest.raises(LostStateError, match="has no journal, but its inbox has been read before.*offset 2"):
        numbers.start("b").handle(1, numbers.records(2))
