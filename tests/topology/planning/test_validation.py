import re

import pytest

from dskype.topology import AlreadyAliveException, Bolt, Fields, IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder
from dskype.topology.planning.validation import find_cycles, find_unreachable, validate_name, validate_submission


class S(Spout):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("field1", "field2"))

    def next_tuple(self):
        pass


class Streams(S):
    def __init__(self, *ids, direct=()):
        self.ids = ids
        self.direct = direct

    def declare_output_fields(self, declarer):
        super().declare_output_fields(declarer)
        for i in self.ids:
            declarer.declare_stream(i, f"of_{i}", direct=i in self.direct)


class B(Bolt):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("field1"))

    def execute(self, tup):
        pass


def topology(declare=lambda b: None, spout=True):
    builder = TopologyBuilder()
    if spout:
        builder.set_spout("a", spout if isinstance(spout, Spout) else S())
    declare(builder)
    return builder.create_topology(check_serializable=False)


def submit(declare=lambda b: None, conf=None, name="t", existing=(), spout=True, **options):
    return validate_submission(name, conf, topology(declare, spout), existing, **options)


def refused(words, *args, error=InvalidTopologyException, **kwargs):
    with pytest.raises(error, match="^" + re.escape(words)) as caught:
        submit(*args, **kwargs)
    return str(caught.value)


def test_a_good_topology_has_no_warnings():
    assert submit(lambda b: b.set_bolt("b", B(), 2).fields_grouping("a", "field1"), {"topology.workers": 2, "x": [1]}) == []


# --- name -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "a:b", "a\\b", None, 7])
def test_a_bad_name_is_refused_with_storms_words(name):
    refused(f"Topology name '{name}' is not valid.", name=name)


@pytest.mark.parametrize("name", ["word count 2!", "a\n", "a\nb", "x*"])
def test_a_name_that_storm_could_not_store_is_refused(name):
    message = refused(f"Topology name '{name}' is not valid. {name} does not appear to be a valid blob key", name=name)
    assert f"given: {name!r}" in message


@pytest.mark.parametrize("name", ["a b", "é", "__x", "word-count_2"])
def test_odd_names_that_storm_takes_are_taken(name):
    validate_name(name)


def test_a_name_in_use_is_refused():
    refused("t is already alive", existing={"t", "u"}, error=AlreadyAliveException)
    assert submit(existing={"u"}) == []


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_configuration_that_is_not_json_is_refused():
    refused("Storm conf is not valid. Must be json-serializable", conf={"x": object()}, error=IllegalArgumentException)
    refused("Storm conf is not valid. Must be json-serializable", conf="topology.debug: true", error=IllegalArgumentException)


def test_known_keys_are_type_checked_in_the_topologys_configuration():
    refused("Field TOPOLOGY_DEBUG must be of type class java.lang.Boolean.", conf={"topology.debug": "yes"}, error=IllegalArgumentException)
    refused("Don't know how to convert 1.0 to int", conf={"topology.workers": 1.0}, error=IllegalArgumentException)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("topology.tasks", 0, "Field TOPOLOGY_TASKS must be at least 1."),
        ("topology.tasks", -1, "Field TOPOLOGY_TASKS must be at least 1."),
        ("topology.tick.tuple.freq.secs", 0, "Field TOPOLOGY_TICK_TUPLE_FREQ_SECS must be at least 1 second."),
        ("topology.debug", 1, "Field TOPOLOGY_DEBUG must be of type class java.lang.Boolean."),
        ("x", object(), "Storm conf is not valid. Must be json-serializable"),
    ],
)
def test_a_components_own_configuration_is_checked_and_the_component_named(key, value, words):
    message = refused(words, lambda b: b.set_bolt("b", B()).shuffle_grouping("a").add_configuration(key, value), error=IllegalArgumentException)
    assert "component: 'b'" in message


# --- structure --------------------------------------------------------------------------------------------------------


def test_a_topology_without_a_spout_is_refused_but_not_by_a_local_cluster():
    refused("Topology t does not have any spout", lambda b: b.set_bolt("b", B()), spout=False)
    assert submit(lambda b: b.set_bolt("b", B()), spout=False, local=True) == ['Topology t contains unreachable components "b"']


def test_subscribing_to_a_component_that_does_not_exist_is_refused():
    message = refused("Component: [b] subscribes from non-existent component [nowhere]", lambda b: b.set_bolt("b", B()).shuffle_grouping("nowhere"))
    assert message.endswith("legal: a, b")


def test_subscribing_to_a_stream_that_does_not_exist_is_refused():
    message = refused("Component: [b] subscribes from non-existent stream: [s] of component [a]", lambda b: b.set_bolt("b", B()).shuffle_grouping("a", "s"))
    assert message.endswith("legal: default")


@pytest.mark.parametrize("grouping", ["fields_grouping", "partial_key_grouping"])
def test_grouping_by_fields_that_do_not_exist_is_refused(grouping):
    message = refused(
        "Component: [b] subscribes from stream: [default] of component [a] + with non-existent fields: [x, y]",
        lambda b: getattr(b.set_bolt("b", B()), grouping)("a", ["x", "field2", "y"]),
    )
    assert message.endswith("legal: field1, field2")


def test_a_field_of_another_stream_of_the_component_is_refused():
    refused(
        "Component: [b] subscribes from stream: [default] of component [a] + with non-existent fields: [of_s]",
        lambda b: b.set_bolt("b", B()).fields_grouping("a", "of_s"),
        spout=Streams("s"),
    )


@pytest.mark.parametrize("component_id", ["__x", ""])
def test_a_component_id_that_is_reserved_or_empty_is_refused(component_id):
    refused(f"{component_id} is not a valid component id.", lambda b: b.set_bolt(component_id, B()))


def test_a_stream_id_that_is_reserved_is_refused():
    message = refused("__s is not a valid stream id.", spout=Streams("__s"))
    assert "component: 'a'" in message


def test_a_spout_with_inputs_is_refused():
    bad = topology(lambda b: b.set_bolt("b", B()).shuffle_grouping("a"))
    bad.components["a"].inputs = bad.components["b"].inputs
    with pytest.raises(InvalidTopologyException, match="^May not declare inputs for a spout"):
        validate_submission("t", {}, bad)


def test_duplicate_ids_are_refused():
    bad = topology(lambda b: b.set_bolt("b", B()).shuffle_grouping("a"))
    bad.components["b"].id = "a"
    with pytest.raises(InvalidTopologyException, match=r"^Duplicate component ids: \[a\]$"):
        validate_submission("t", {}, bad)


def test_no_executors_are_refused():
    bad = topology()
    bad.components["a"].parallelism_hint = 0
    with pytest.raises(InvalidTopologyException, match="^Number of executors must be greater than 0 when number of tasks is"):
        validate_submission("t", {}, bad)


def test_subscribing_to_system_streams_is_legal():
    assert submit(lambda b: b.set_bolt("b", B()).global_grouping("a", "__system").all_grouping("a")) == []
    (warning,) = submit(lambda b: b.set_bolt("b", B()).all_grouping("a").fields_grouping("__system", "rate_secs", "__tick"))
    assert warning.startswith("Component: [b] subscribes from stream: [__tick] of component [__system]")
    refused(
        "Component: [b] subscribes from non-existent stream: [nope] of component [__system]", lambda b: b.set_bolt("b", B()).all_grouping("__system", "nope")
    )


def test_acker_streams_exist_only_with_an_acker():
    def declare(b):
        b.set_bolt("b", B()).shuffle_grouping("a").shuffle_grouping("a", "__ack_init")

    assert submit(declare) == []
    refused("Component: [b] subscribes from non-existent stream: [__ack_init] of component [a]", declare, conf={"topology.acker.executors": 0})


def test_validating_leaves_the_topology_as_it_was():
    t = topology(lambda b: b.set_bolt("b", B()).shuffle_grouping("a"))
    validate_submission("t", {}, t)
    assert list(t.components) == ["a", "b"] and set(t.components["a"].outputs) == {"default"}


# --- warnings ---------------------------------------------------------------------------------------------------------


def graph(**sources):
    """Make bolts that each subscribe to the components named by the letters of their argument."""

    def declare(builder):
        for bolt, letters in sources.items():
            declarer = builder.set_bolt(bolt, B())
            for source in letters:
                declarer.shuffle_grouping(source)

    return declare


@pytest.mark.parametrize(
    ("sources", "cycles"),
    [
        ({"b": "a", "c": "b"}, []),
        ({"b": "a", "c": "a", "d": "bc"}, []),
        ({"b": "ab"}, [["b"]]),
        ({"b": "ac", "c": "b"}, [["b", "c"]]),
        ({"b": "ad", "c": "b", "d": "c", "e": "de"}, [["b", "c", "d"], ["e"]]),
        ({"b": "ac", "c": "bd", "d": "c"}, [["b", "c", "d"]]),
        ({"b": "a", "c": "d", "d": "c"}, []),  # no spout reaches it, and Storm does not look there
    ],
)
def test_cycles_are_found(sources, cycles):
    assert find_cycles(topology(graph(**sources))) == cycles


def test_a_deep_chain_is_no_problem():
    def declare(builder):
        for i in range(3000):
            builder.set_bolt(f"b{i}", B()).shuffle_grouping(f"b{i - 1}" if i else "a")
        builder.set_bolt("back", B()).shuffle_grouping("b2999")

    assert find_cycles(topology(declare)) == []


def test_a_cycle_only_warns():
    assert submit(graph(b="ac", c="b")) == ['Topology t contains cycles in components "b,c"']
    assert submit(graph(b="ab", c="bc")) == ['Topology t contains cycles in components "b ; c"']


def test_an_unreachable_component_only_warns():
    assert find_unreachable(topology(graph(b="a", c="d", d="c"))) == ["c", "d"]
    assert submit(graph(b="a", c="")) == ['Topology t contains unreachable components "c"']


def test_a_misspelt_key_warns_and_names_its_component():
    conf = {"topology.message.timeout.sec": 5, "topology.mine": 1}
    (whole,) = submit(conf=conf)
    assert whole == "topology.message.timeout.sec is no key of Storm and has no effect on the emulator; hint: did you mean topology.message.timeout.secs?"
    (own,) = submit(lambda b: b.set_bolt("b", B()).shuffle_grouping("a").add_configuration("topology.task", 2))
    assert own.startswith("Component: [b] has the key topology.task, which is no key of Storm")


def test_event_loggers_and_metrics_consumers_are_accepted_without_a_warning():
    consumer = {"class": "org.apache.storm.metric.LoggingMetricsConsumer", "parallelism.hint": 1}
    assert submit(conf={"topology.eventlogger.executors": 1, "topology.metrics.consumer.register": [consumer]}) == []


def test_a_component_that_stands_for_something_that_is_not_here_is_refused():
    class Elsewhere(B):
        emulator_refusal = "there is no such thing"

    assert "component: 'b'" in refused("Component b cannot be run: there is no such thing.", lambda b: b.set_bolt("b", Elsewhere()).shuffle_grouping("a"))


def test_direct_groupings_and_direct_streams_that_do_not_match_warn():
    spout = Streams("plain", "reply", direct=["reply"])
    one, two = submit(lambda b: b.set_bolt("b", B()).direct_grouping("a", "plain").shuffle_grouping("a", "reply"), spout=spout)
    assert one.startswith("Component: [b] subscribes by direct grouping from stream: [plain] of component [a], which is not declared direct")
    assert two.startswith("Component: [b] subscribes by shuffle grouping from stream: [reply] of component [a], which is declared direct")
    assert submit(lambda b: b.set_bolt("b", B()).direct_grouping("a", "reply"), spout=spout) == []


def test_half_a_state_warns():
    class Half(B):
        def restore(self, state):
            pass

    assert submit(lambda b: b.set_bolt("b", Half()).shuffle_grouping("a")) == [
        "Component: [b] defines restore but not snapshot: its state does not survive a crash"
    ]


def test_a_spouts_limit_on_a_bolt_warns():
    assert submit(lambda b: b.set_bolt("b", B()).shuffle_grouping("a").set_max_spout_pending(3)) == [
        "Component: [b] is a bolt; topology.max.spout.pending has no effect on it"
    ]
