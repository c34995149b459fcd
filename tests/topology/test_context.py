import pytest

from dskype.topology import (
    AllGrouping,
    Bolt,
    Fields,
    FieldsGrouping,
    GlobalStreamId,
    IllegalArgumentException,
    ShuffleGrouping,
    Spout,
    TopologyBuilder,
    TopologyContext,
    TopologyPlan,
)


class S(Spout):
    def declare_output_fields(self, declarer):
        declarer.declare("word")
        declarer.declare_stream("x", ["a", "b"])

    def next_tuple(self):
        pass


class B(Bolt):
    def execute(self, tup):
        pass


@pytest.fixture(scope="module")
def plan():
    builder = TopologyBuilder()
    builder.set_spout("s", S(), 2)
    builder.set_bolt("b", B(), 3).set_num_tasks(6).all_grouping("s").shuffle_grouping("s", "x")
    builder.set_bolt("c", B()).fields_grouping("s", "word")
    topology = builder.create_topology(check_serializable=False)
    return TopologyPlan.build("t", "t-1-100", {"topology.acker.executors": 0, "topology.workers": 2}, topology)


def test_task_indices_count_within_the_component(plan):
    contexts = [TopologyContext(plan, t) for t in plan.component_tasks("b")]
    assert [c.get_this_task_index() for c in contexts] == [0, 1, 2, 3, 4, 5]
    assert [c.get_this_task_id() for c in contexts] == [1, 2, 3, 4, 5, 6]
    assert {c.get_this_component_id() for c in contexts} == {"b"}


def test_a_task_can_ask_about_its_topology(plan):
    context = TopologyContext(plan, 8)
    assert context.get_storm_id() == "t-1-100"
    assert context.get_component_ids() == ["b", "c", "s"]
    assert context.get_component_tasks("b") == [1, 2, 3, 4, 5, 6] and context.get_component_tasks("none") == []
    assert context.get_component_id(7) == "c" and context.get_component_id(-1) == "__system"
    assert context.get_task_to_component()[8] == "s"
    assert context.get_this_streams() == {"default", "x", "__system", "__metrics"}
    assert context.get_this_output_fields("x") == Fields("a", "b")
    assert context.get_component_output_fields("s", "default") == Fields("word")
    assert context.get_component_output_fields(GlobalStreamId("s", "x")) == Fields("a", "b")
    assert context.get_this_sources() == {}
    assert context.get_this_targets() == {"default": {"b": AllGrouping(), "c": FieldsGrouping(Fields("word"))}, "x": {"b": ShuffleGrouping()}}
    assert context.get_raw_topology() is plan.topology
    assert context.get_conf()["topology.workers"] == context.get_component_conf("b")["topology.workers"] == 2


def test_a_consumer_sees_its_sources_and_their_fields(plan):
    context = TopologyContext(plan, 1)
    assert context.get_this_sources() == {("s", "default"): AllGrouping(), ("s", "x"): ShuffleGrouping()}
    assert context.get_this_input_fields() == {"s": {"default": ["word"], "x": ["a", "b"]}}


def test_a_task_knows_its_worker(plan):
    context = TopologyContext(plan, 1)
    assert context.get_this_worker_tasks() == [1, 2, 5, 6, 8]
    assert context.get_this_worker_port() == 6700
    assert TopologyContext(plan, 3).get_this_worker_port() == 6701


def test_unknown_streams_are_refused_with_storms_words(plan):
    with pytest.raises(IllegalArgumentException, match="^No output fields defined for component:stream s:nope; given: 'nope'; legal: default, x"):
        TopologyContext(plan, 8).get_this_output_fields("nope")


def test_task_data_is_per_task_and_executor_data_is_shared(plan):
    shared = {}
    one, two = (TopologyContext(plan, t, executor_data=shared, resources={"pool": 5}) for t in (1, 2))
    one.set_task_data("k", 1)
    one.set_executor_data("e", 2)
    assert (two.get_task_data("k"), two.get_executor_data("e")) == (None, 2)
    assert (one.get_task_data("k"), one.get_resource("pool"), one.get_resource("none")) == (1, 5, None)


def test_metrics_are_registered_and_read(plan):
    context = TopologyContext(plan, 1)
    counter = context.register_counter("seen")
    counter.inc()
    counter.inc(5)
    counter.dec()
    assert context.register_counter("seen") is counter and counter.get_count() == 5
    context.register_gauge("depth", lambda: 7)
    context.register_histogram("size").update(2)
    context.register_histogram("size").update(4)
    meter = context.register_meter("rate")
    meter.mark(3)
    with context.register_timer("took").time():
        pass
    context.register_metric("own", lambda: {"a": 1}, 60)
    read = context.read_metrics()
    assert read["rate"].pop("mean_rate") >= 0 and read["took"].pop("mean") >= 0
    assert meter.get_count() == read["took"]["count"] + 2 == 3
    assert read["seen"] == 5 and read["depth"] == 7 and read["own"] == {"a": 1}
    assert read["size"] == {"count": 2, "mean": 3.0, "min": 2, "max": 4}
    assert context.metrics["own"][1] == 60


def test_metrics_in_storms_style_and_broken_ones_are_read_too(plan):
    class Old:
        def get_value_and_reset(self):
            return 9

    context = TopologyContext(plan, 1)
    context.register_metric("old", Old())
    context.register_gauge("broken", lambda: 1 / 0)
    context.register_metric("constant", 3)
    assert context.read_metrics() == {"old": 9, "broken": "ZeroDivisionError: division by zero", "constant": 3}


def test_a_metric_name_is_taken_once(plan):
    context = TopologyContext(plan, 1)
    context.register_counter("a")
    for register in (lambda: context.register_meter("a"), lambda: context.register_metric("a", 1)):
        with pytest.raises(IllegalArgumentException, match="metric name was registered twice. given: 'a'; component: 'b'"):
            register()
