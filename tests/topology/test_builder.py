import threading

import pytest

from dskype.topology import (
    AllGrouping,
    BasicBolt,
    BatchBolt,
    Bolt,
    CustomStreamGrouping,
    DirectGrouping,
    Fields,
    FieldsGrouping,
    GlobalGrouping,
    IllegalArgumentException,
    IllegalStateException,
    KafkaBolt,
    KafkaSpout,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
    Spout,
    StreamInfo,
    TopologyBuilder,
)
from dskype.topology.planning.system import with_system


class Words(Spout):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))
        declarer.declare_stream("lines", Fields("line", "number"))
        declarer.declare_direct("reply", "answers")

    def next_tuple(self):
        pass


class Count(Bolt):
    def declare_output_fields(self, declarer):
        declarer.declare("word", direct=True)

    def execute(self, tup):
        pass

    def get_component_configuration(self):
        return {"topology.tick.tuple.freq.secs": 5, "mine": "component"}


class Basic(BasicBolt):
    def execute(self, tup, collector):
        pass


class Batch(BatchBolt):
    def execute_batch(self, batch):
        pass


class Last(CustomStreamGrouping):
    def prepare(self, context, stream, target_tasks):
        self.tasks = target_tasks

    def choose_tasks(self, task_id, values):
        return self.tasks[-1:]


def test_a_topology_reads_in_a_few_lines():
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), 2)
    builder.set_bolt("count", Count(), 3).set_num_tasks(6).fields_grouping("words", Fields("word"))
    builder.set_bolt("store", Basic()).global_grouping("count").all_grouping("words", "lines")
    topology = builder.create_topology()
    assert list(topology.components) == ["words", "count", "store"]
    assert list(topology.spouts) == ["words"] and list(topology.bolts) == ["count", "store"]
    words, count, store = topology.components.values()
    assert words.outputs == {
        "default": StreamInfo(Fields("word"), False),
        "lines": StreamInfo(Fields("line", "number"), False),
        "answers": StreamInfo(Fields("reply"), True),
    }
    assert (words.kind, words.is_spout, words.parallelism_hint) == ("spout", True, 2)
    assert count.conf["topology.tasks"] == 6
    assert count.outputs == {"default": StreamInfo(Fields("word"), True)}
    assert store.inputs == {("count", "default"): GlobalGrouping(), ("words", "lines"): AllGrouping()}
    assert store.parallelism_hint is None
    assert topology.consumers("words") == {"count": FieldsGrouping(Fields("word"))}
    assert topology.consumers("words", "lines") == {"store": AllGrouping()}


def test_every_grouping_has_its_method():
    custom = Last()
    declarer = TopologyBuilder().set_bolt("b", Count())
    declarer.shuffle_grouping("s1").fields_grouping("s2", ["a", "b"]).fields_grouping("s3", "a", stream_id="x")
    declarer.all_grouping("s4").global_grouping("s5").none_grouping("s6").direct_grouping("s7", stream_id="x")
    declarer.local_or_shuffle_grouping("s8").partial_key_grouping("s9", "k").custom_grouping("s10", custom)
    inputs = declarer._spec.inputs
    assert inputs == {
        ("s1", "default"): ShuffleGrouping(),
        ("s2", "default"): FieldsGrouping(Fields("a", "b")),
        ("s3", "x"): FieldsGrouping(Fields("a")),
        ("s4", "default"): AllGrouping(),
        ("s5", "default"): GlobalGrouping(),
        ("s6", "default"): NoneGrouping(),
        ("s7", "x"): DirectGrouping(),
        ("s8", "default"): LocalOrShuffleGrouping(),
        ("s9", "default"): PartialKeyGrouping(Fields("k")),
        ("s10", "default"): inputs["s10", "default"],
    }
    assert inputs["s10", "default"].grouping is custom


def test_a_second_grouping_on_the_same_stream_replaces_the_first():
    declarer = TopologyBuilder().set_bolt("b", Count()).shuffle_grouping("s").all_grouping("s").all_grouping("s", "x")
    assert declarer._spec.inputs == {("s", "default"): AllGrouping(), ("s", "x"): AllGrouping()}


def test_the_declarer_lays_its_configuration_over_the_components():
    declarer = TopologyBuilder().set_bolt("b", Count())
    assert declarer.component_id == "b"
    declarer.add_configuration("mine", "declarer").add_configurations({"x": 1}).set_max_task_parallelism(4)
    declarer.set_max_spout_pending(9).set_debug(True).set_memory_load(64, 8).set_cpu_load(50)
    assert declarer._spec.conf == {
        "topology.tick.tuple.freq.secs": 5,
        "mine": "declarer",
        "x": 1,
        "topology.max.task.parallelism": 4,
        "topology.max.spout.pending": 9,
        "topology.debug": True,
        "topology.component.resources.onheap.memory.mb": 64,
        "topology.component.resources.offheap.memory.mb": 8,
        "topology.component.cpu.pcore.percent": 50,
    }


def test_serializations_cannot_be_set_for_one_component():
    with pytest.raises(IllegalArgumentException, match="Cannot set serializations for a component using fluent API"):
        TopologyBuilder().set_bolt("b", Count()).add_configuration("topology.kryo.register", ["x"])


@pytest.mark.parametrize("hint", [0, -1])
def test_parallelism_below_one_is_refused(hint):
    for add in (lambda b: b.set_bolt("x", Count(), hint), lambda b: b.set_spout("x", Words(), hint)):
        with pytest.raises(IllegalArgumentException, match=f"^Parallelism must be positive. given: {hint}; component: 'x'; legal: "):
            add(TopologyBuilder())


@pytest.mark.parametrize("hint", [1.0, True, "2"])
def test_parallelism_must_be_an_integer(hint):
    with pytest.raises(IllegalArgumentException, match="parallelism hint must be an integer. given: "):
        TopologyBuilder().set_spout("x", Words(), hint)


def test_ids_of_spouts_and_bolts_are_one_namespace():
    builder = TopologyBuilder()
    builder.set_spout("s", Words())
    builder.set_bolt("b", Count())
    for add in (lambda i: builder.set_spout(i, Words()), lambda i: builder.set_bolt(i, Count())):
        with pytest.raises(IllegalArgumentException, match="^Spout has already been declared for id s"):
            add("s")
        with pytest.raises(IllegalArgumentException, match="^Bolt has already been declared for id b"):
            add("b")


def test_classes_and_the_wrong_kind_of_component_are_refused():
    for wrong in (Words, Count(), None):
        with pytest.raises(IllegalArgumentException, match="set_spout needs a Spout"):
            TopologyBuilder().set_spout("x", wrong)
    for wrong in (Count, Words(), None):
        with pytest.raises(IllegalArgumentException, match="set_bolt needs a bolt"):
            TopologyBuilder().set_bolt("x", wrong)
    with pytest.raises(IllegalArgumentException, match="component id must be a string. given: 7"):
        TopologyBuilder().set_bolt(7, Count())


def test_all_kinds_of_bolts_are_accepted():
    builder = TopologyBuilder()
    for bolt in (Count(), Basic(), Batch(), KafkaBolt("out")):
        builder.set_bolt(type(bolt).__name__, bolt)
    builder.set_spout("kafka", KafkaSpout("in"))
    assert len(builder.create_topology().components) == 5


@pytest.mark.parametrize("method", ["custom_grouping", "grouping"])
def test_something_that_is_no_grouping_is_refused(method):
    with pytest.raises(IllegalArgumentException, match="Not a (custom )?grouping. given: 'x'; component: 'b'"):
        getattr(TopologyBuilder().set_bolt("b", Count()), method)("s", "x")


def test_ids_in_groupings_must_be_strings():
    with pytest.raises(IllegalArgumentException, match="stream id of a grouping must be a string. given: None"):
        TopologyBuilder().set_bolt("b", Count()).shuffle_grouping("s", None)
    with pytest.raises(IllegalArgumentException, match="component id of a grouping must be a string"):
        TopologyBuilder().set_bolt("b", Count()).shuffle_grouping(Words())
    with pytest.raises(IllegalArgumentException, match="partial key grouping needs a field"):
        TopologyBuilder().set_bolt("b", Count()).partial_key_grouping("s", [])


# --- streams ----------------------------------------------------------------------------------------------------------


class Declares(Words):
    def __init__(self, declare):
        self.declare = declare

    def declare_output_fields(self, declarer):
        self.declare(declarer)


def twice(declarer):
    declarer.declare("a")
    declarer.declare_stream("default", "b")


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (twice, "^Fields for default already set.*component: 'x'"),
        (lambda d: d.declare_stream(None, "a"), "^streamId can't be null"),
        (lambda d: d.declare(Fields(["f", "f"])), "^duplicate field 'f'"),
    ],
)
def test_bad_streams_are_refused_by_create_topology_not_by_set_spout(declare, words):
    builder = TopologyBuilder()
    builder.set_spout("x", Declares(declare))
    with pytest.raises(IllegalArgumentException, match=words):
        builder.create_topology(check_serializable=False)


# --- serializability --------------------------------------------------------------------------------------------------


class Locked(Count):
    def __init__(self):
        self.fine = 1
        self.lock = threading.Lock()


class LockedSpout(Words):
    def __init__(self):
        self.lock = threading.Lock()


def test_a_field_that_cannot_travel_is_refused_with_the_components_name_and_the_method_to_build_it_in():
    builder = TopologyBuilder()
    builder.set_bolt("count", Locked())
    with pytest.raises(
        IllegalStateException,
        match=r"^Bolt 'count' contains a non-serializable field of type _thread.lock, which was instantiated prior to topology "
        r"creation. _thread.lock should be instantiated within the prepare method of 'count' at the earliest. .*attribute 'lock'",
    ):
        builder.create_topology()
    assert builder.create_topology(check_serializable=False).components


def test_for_a_spout_the_advice_is_open():
    builder = TopologyBuilder()
    builder.set_spout("s", LockedSpout())
    with pytest.raises(IllegalStateException, match="^Spout 's' contains .* within the open method of 's'"):
        builder.create_topology()


def test_a_custom_grouping_that_cannot_travel_is_refused():
    grouping = Last()
    grouping.lock = threading.Lock()
    builder = TopologyBuilder()
    builder.set_bolt("b", Count()).custom_grouping("s", grouping)
    with pytest.raises(IllegalStateException, match="^Bolt 'b' contains a non-serializable field of type _thread.lock"):
        builder.create_topology()


def test_classes_defined_inside_a_function_can_travel():
    class Inner(Count):
        pass

    builder = TopologyBuilder()
    builder.set_bolt("b", Inner())
    assert builder.create_topology().components["b"].obj is not None


def test_what_is_declared_after_create_topology_does_not_change_the_topology():
    builder = TopologyBuilder()
    declarer = builder.set_bolt("b", Count()).shuffle_grouping("s")
    topology = builder.create_topology()
    declarer.all_grouping("s").set_num_tasks(9)
    assert topology.components["b"].inputs == {("s", "default"): ShuffleGrouping()}
    assert "topology.tasks" not in topology.components["b"].conf


# --- the system parts -------------------------------------------------------------------------------------------------


def two_components():
    builder = TopologyBuilder()
    builder.set_spout("s", Words())
    builder.set_bolt("b", Count()).shuffle_grouping("s")
    return builder.create_topology()


def test_the_acker_and_its_streams_are_added_as_in_storm():
    acker = Count()
    user = two_components()
    system = with_system(user, {"topology.workers": 3, "topology.message.timeout.secs": 7}, acker)
    assert list(user.components) == ["s", "b"] and "__ack_init" not in user.components["s"].outputs
    spec = system.components["__acker"]
    by_id = FieldsGrouping(Fields("id"))
    assert spec.obj is acker
    assert (spec.kind, spec.parallelism_hint) == ("bolt", 3)
    assert spec.conf == {"topology.tasks": 3, "topology.tick.tuple.freq.secs": 7}
    assert spec.inputs == {("s", "__ack_init"): by_id, ("b", "__ack_ack"): by_id, ("b", "__ack_fail"): by_id, ("b", "__ack_reset_timeout"): by_id}
    answer = StreamInfo(Fields("id", "time_delta_ms"), True)
    assert {s: i for s, i in spec.outputs.items() if s.startswith("__ack")} == dict.fromkeys(["__ack_ack", "__ack_fail", "__ack_reset_timeout"], answer)
    spout, bolt = system.components["s"], system.components["b"]
    assert spout.outputs["__ack_init"].fields == Fields("id", "init_val", "spout_task")
    assert bolt.outputs["__ack_ack"].fields == Fields("id", "ack_val")
    assert bolt.outputs["__ack_fail"].fields == bolt.outputs["__ack_reset_timeout"].fields == Fields("id")
    assert spout.inputs == dict.fromkeys([("__acker", "__ack_ack"), ("__acker", "__ack_fail"), ("__acker", "__ack_reset_timeout")], DirectGrouping())
    assert spout.conf["topology.tick.tuple.freq.secs"] == 7
    assert bolt.conf["topology.tick.tuple.freq.secs"] == 5
    for component in system.components.values():
        assert {"__system", "__metrics"} <= set(component.outputs)


def test_without_ackers_there_is_no_acker_component():
    system = with_system(two_components(), {"topology.acker.executors": 0})
    assert list(system.components) == ["s", "b"]
    assert system.components["s"].inputs == {}
    assert not any(s.startswith("__ack") for c in system.components.values() for s in c.outputs)


def test_system_parts_are_added_once():
    system = with_system(two_components(), {"topology.acker.executors": 2}, Count())
    assert with_system(system, {"topology.acker.executors": 5}) is system
