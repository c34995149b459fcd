"""Topologies that were written for streamparse."""

from __future__ import annotations

import itertools

import pytest

from dskype.topology import TopologyBuilder
from dskype.topology.flux import load
from dskype.topology.groupings import DirectGrouping, FieldsGrouping, ShuffleGrouping
from dskype.topology.local import LocalCluster
from dskype.topology.planning.validation import validate_submission
from dskype.topology.streamparse import (
    BatchingBolt,
    Bolt,
    Component,
    Grouping,
    JavaBolt,
    ReliableSpout,
    ShellBolt,
    ShellSpout,
    Spout,
    Stream,
    TicklessBatchingBolt,
    Topology,
)
from dskype.topology.testing import FeederSpout, SharedLog

SEEN = SharedLog()


@pytest.fixture(autouse=True)
def seen():
    """What components wrote in this test."""
    before = len(SEEN.values())
    return lambda: SEEN.values()[before:]


class WordSpout(Spout):
    outputs = ["word"]

    def initialize(self, stormconf, context):
        self.words = itertools.cycle(["dog", "cat", "zebra", "elephant"])
        self.left = 8

    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([next(self.words)], tup_id=self.left)

    def ack(self, tup_id):
        SEEN.append(["ack", tup_id])


class WordCountBolt(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf, ctx):
        self.counter = {}
        SEEN.append(["initialize", ctx["componentid"], ctx["taskid"] == self.task_id, self.topology_name])

    def process(self, tup):
        word = tup.values.word
        assert word == tup.values[0] and (tup.component, tup.stream) == ("word_spout", "default")
        self.counter[word] = self.counter.get(word, 0) + 1
        assert self.emit([word, self.counter[word]]) is None
        SEEN.append(["count", word, self.counter[word]])


class WordCount(Topology):
    config = {"topology.message.timeout.secs": 10}
    word_spout = WordSpout.spec()
    count_bolt = WordCountBolt.spec(inputs={word_spout: Grouping.fields("word")}, par=2)


def run(topology, conf=None, secs=5):
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology("t", conf, topology)
        cluster.advance_cluster_time(secs)
        return handle.stats


WORDS = WordSpout.spec()


def fed(bolt, words, conf=None, secs=5):
    """Feed words to a bolt's spec, which reads from WORDS; return the statistics."""
    feeder = FeederSpout("word")
    for word in words:
        feeder.feed([word], word)
    built = type("T", (Topology,), {"source": WORDS, "bolt": bolt})
    builder = TopologyBuilder()
    builder.set_spout("source", feeder)
    spec = built.build().components["bolt"]
    builder.set_bolt("bolt", spec.obj, 1).add_configurations(dict(spec.conf)).shuffle_grouping("source")
    return run(builder.create_topology(), conf, secs)


def test_the_word_count_of_the_quickstart_runs(seen):
    stats = run(WordCount.build(), WordCount.config)
    assert stats.total("count_bolt", "executed") == stats.total("word_spout", "acked") == 8
    rows = seen()
    assert sorted(r for r in rows if r[0] == "count") == sorted(["count", w, n] for w in ("dog", "cat", "zebra", "elephant") for n in (1, 2))
    assert len([r for r in rows if r[0] == "ack"]) == 8
    assert [r for r in rows if r[0] == "initialize"] == [["initialize", "count_bolt", True, ""]] * 2
    assert WordCount.build().components["count_bolt"].parallelism_hint == 2


def test_a_flux_file_may_name_the_class():
    text = f"name: wc\ntopologySource: {{className: {__name__}.WordCount}}"
    loaded = load(text, allow_modules=[__name__])
    assert list(loaded.topology.components) == ["word_spout", "count_bolt"]
    assert validate_submission("wc", loaded.config, loaded.topology) == []


# --- the graph --------------------------------------------------------------------------------------------------------


class Multi(Bolt):
    outputs = [Stream(["word"]), Stream(["n"], name="sum"), Stream(["x"], name="told", direct=True)]

    def process(self, tup):
        pass


class Direct(Spout):
    outputs = [Stream(["word"], direct=True)]


def test_a_stream_may_have_no_fields():
    assert Stream(name="signal").fields == Stream(None).fields == []


def test_inputs_are_groupings_or_lists():
    class T(Topology):
        spout = WordSpout.spec(name="words", par=3)
        direct = Direct.spec()
        one = Multi.spec(inputs=[spout, direct])
        two = WordCountBolt.spec(inputs={one["sum"]: Grouping.fields(["n"]), one["told"]: Grouping.DIRECT, spout: Grouping.GLOBAL}, config={"a": 1})

    built = T.build().components
    assert list(built) == ["words", "direct", "one", "two"]
    assert built["words"].parallelism_hint == 3 and built["two"].conf == {"a": 1}
    assert {tuple(k): type(g) for k, g in built["one"].inputs.items()} == {("words", "default"): ShuffleGrouping, ("direct", "default"): DirectGrouping}
    assert {tuple(k): str(g) for k, g in built["two"].inputs.items()} == {
        ("one", "sum"): "fields(n)",
        ("one", "told"): "direct",
        ("words", "default"): "global",
    }
    assert isinstance(built["two"].inputs["one", "sum"], FieldsGrouping)
    assert built["one"].outputs["told"].direct
    with pytest.raises(KeyError, match="Invalid stream for one: 'nope'"):
        T.one["nope"]


def test_components_in_other_languages_are_specs_too():
    class T(Topology):
        spout = ShellSpout.spec(command="node", script="spout.js", outputs=["word"])
        bolt = ShellBolt.spec(command="sh", inputs=[spout], outputs=[Stream(["a"], name="x")], par=2)

    built = T.build().components
    assert built["spout"].obj.command == ["node", "spout.js"] and built["bolt"].obj.command == ["sh"]
    assert list(built["bolt"].outputs) == ["x"] and built["bolt"].parallelism_hint == 2


def test_parallelism_may_depend_on_the_environment():
    class T(Topology):
        spout = WordSpout.spec(par={"prod": 4, "beta": 1})

    assert T.build("prod").components["spout"].parallelism_hint == 4
    with pytest.raises(ValueError, match="depends on the environment, given: None; legal: prod, beta"):
        T.build()


def topology(**specs):
    return type("T", (Topology,), specs)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: topology(), ValueError, "requires at least one Spout"),
        (lambda: topology(s=WordSpout.spec(), b=WordCountBolt.spec()), ValueError, "Bolt b requires at least one input"),
        (lambda: topology(s=type("S", (Spout,), {}).spec()), ValueError, "Spout s requires at least one output"),
        (lambda: topology(s=WordSpout.spec(name="x"), t=WordSpout.spec(name="x")), ValueError, "Duplicate component name: x"),
        (lambda: topology(s=WordSpout), TypeError, "s = WordSpout should be WordSpout.spec"),
        (lambda: topology(s=type("C", (Component,), {"outputs": ["a"]}).spec(), t=WordSpout.spec()), TypeError, "neither a Spout nor a Bolt"),
        (lambda: topology(s=(s := WordSpout.spec()), b=WordCountBolt.spec(inputs={s: Grouping.fields("no")})), ValueError, "Field 'no' specified in grouping"),
        (lambda: topology(s=WordSpout.spec(), b=WordCountBolt.spec(inputs=[WordSpout.spec()])), ValueError, "not part of the topology"),
        (lambda: topology(config=5, s=WordSpout.spec()), TypeError, "Topology config must be a dict"),
        (lambda: WordSpout.spec(par=0), ValueError, "greater than 0, given: 0"),
        (lambda: WordSpout.spec(par=-1), ValueError, "greater than 0"),
        (lambda: WordSpout.spec(par=1.5), TypeError, "must be an integer"),
        (lambda: WordSpout.spec(par={"prod": "x"}), TypeError, "must be an integer"),
        (lambda: WordCountBolt.spec(inputs=5), TypeError, "Inputs must either be"),
        (lambda: WordCountBolt.spec(inputs=["x"]), TypeError, "Inputs must be specs"),
        (lambda: WordCountBolt.spec(inputs={WordSpout.spec(): "x"}), TypeError, "Input values must be groupings"),
        (lambda: WordSpout.spec(config=5), TypeError, "Component config must be a dict"),
        (lambda: type("S", (Spout,), {"outputs": "word"}).spec(), TypeError, "outputs must be a list"),
        (lambda: type("S", (Spout,), {"outputs": ["a", 5]}).spec(), TypeError, "Invalid entry"),
        (lambda: type("S", (Spout,), {"outputs": [Stream(["a"]), Stream(["b"])]}).spec(), ValueError, "different names, given: .'default', 'default'"),
        (lambda: Stream("word"), TypeError, "Stream fields"),
        (lambda: Stream(["a"], name=5), TypeError, "Stream name"),
        (lambda: Stream(["a"], direct=1), TypeError, "True or False"),
        (lambda: Grouping.fields(), ValueError, "cannot be empty"),
        (lambda: Grouping.fields([]), ValueError, "cannot be empty"),
        (lambda: Grouping.custom_object("org.x.Grouping", []), TypeError, "Java is not part of the emulator"),
        (lambda: JavaBolt.spec(full_class_name="x"), TypeError, "not part of the emulator: write the component in Python"),
        (lambda: ShellSpout.spec(), ValueError, "command must be the name of a program, given: None"),
    ],
)
def test_what_streamparse_refuses_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


# --- bolts ------------------------------------------------------------------------------------------------------------


class Manual(Bolt):
    auto_ack = False
    outputs = ["word"]

    def process(self, tup):
        assert self.emit([tup.values.word], need_task_ids=True) == []
        (self.ack if tup.values.word == "good" else self.fail)(tup)


def test_a_bolt_may_ack_and_fail_itself():
    stats = fed(Manual.spec(inputs=[WORDS]), ["good", "bad", "good"])
    assert (stats.total("source", "acked"), stats.total("source", "failed")) == (2, 1)


class Breaks(Bolt):
    def process(self, tup):
        if tup.values.word == "bad":
            raise ValueError("no")
        SEEN.append(["ok", tup.values.word])


class Survives(Breaks):
    exit_on_exception = False

    def initialize(self, conf, ctx):
        SEEN.append(["started"])


@pytest.mark.parametrize(("kind", "starts"), [(Breaks, 0), (Survives, 1)])
def test_a_bolt_that_raises_fails_its_tuple_and_goes_on(seen, kind, starts):
    stats = fed(kind.spec(inputs=[WORDS]), ["a", "bad", "b"])
    assert (stats.total("source", "acked"), stats.total("source", "failed")) == (2, 1)
    assert [r for r in seen() if r[0] == "ok"] == [["ok", "a"], ["ok", "b"]]
    assert len([r for r in seen() if r[0] == "started"]) == starts
    assert "ValueError: no" in stats.errors[0]["error"]


class Talks(Bolt):
    outputs = ["x"]

    def process(self, tup):
        self.log("hello", level="warn")
        self.report_metric("done", int(tup.id))
        with pytest.raises(TypeError, match="All tuples must be either lists or tuples"):
            self.emit("text")
        assert not self.is_tick(tup) and not self.is_heartbeat(tup)

    def process_tick(self, tup):
        SEEN.append(["tick", tup.values[0], self.is_tick(tup), self.emit(["t"])])


def test_ticks_logs_and_metrics(seen, caplog):
    stats = fed(Talks.spec(inputs=[WORDS], config={"topology.tick.tuple.freq.secs": 2}), ["a"], secs=5)
    assert seen() == [["tick", 2, True, None]] * 2
    assert "hello" in caplog.text
    (task,) = (t for t in stats.tasks.values() if t["component"] == "bolt")
    assert "done" in task["metrics"]


class Groups(BatchingBolt):
    outputs = ["word"]

    def group_key(self, tup):
        return tup.values.word[0]

    def process_batch(self, key, tups):
        if key == "z":
            raise ValueError("batch")
        SEEN.append([key, [tup.values.word for tup in tups]])
        self.emit([key])


class Timed(TicklessBatchingBolt, Groups):
    secs_between_batches = 0.5


@pytest.mark.parametrize(("kind", "conf"), [(Groups, {"topology.tick.tuple.freq.secs": 1}), (Timed, {})], ids=["with ticks", "without"])
def test_batches_are_processed_and_settled_by_group(seen, kind, conf):
    stats = fed(kind.spec(inputs=[WORDS], config=conf), ["ab", "ba", "ac", "zz"], secs=5)
    assert sorted(seen()) == [["a", ["ab", "ac"]], ["b", ["ba"]]]
    assert (stats.total("source", "acked"), stats.total("source", "failed")) == (3, 1)


# --- spouts -----------------------------------------------------------------------------------------------------------


class Retries(ReliableSpout):
    outputs = ["word"]

    def initialize(self, conf, ctx):
        self.words = ["good", "bad"]

    def next_tuple(self):
        if self.words:
            word = self.words.pop()
            with pytest.raises(ValueError, match="must provide a tuple ID"):
                self.emit([word])
            self.emit([word], tup_id=word)

    def ack(self, tup_id):
        super().ack(tup_id)
        SEEN.append(["settled", tup_id])


def test_a_reliable_spout_emits_failed_tuples_three_times_more(seen):
    class T(Topology):
        spout = Retries.spec()
        bolt = Manual.spec(inputs=[spout])

    stats = run(T.build(), secs=10)
    assert sorted(r for r in seen() if r[0] == "settled") == [["settled", "bad"], ["settled", "good"]]
    assert stats.total("spout", "emitted") == 5 and stats.total("spout", "failed") == 4
