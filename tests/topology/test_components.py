import pytest

from dskype.topology import Bolt, Fields, IllegalArgumentException, KafkaBolt, KafkaSpout, OutputFieldsDeclarer, StreamMeta, Tuple, stateful


class Plain(Bolt):
    def execute(self, tup):
        pass


class Half(Plain):
    def snapshot(self):
        return {}


class Full(Half):
    def restore(self, state):
        pass


class FromMixin:
    def snapshot(self):
        return 1

    def restore(self, state):
        pass


class Mixed(FromMixin, Plain):
    pass


def test_a_component_is_stateful_when_it_overrides_snapshot_and_restore():
    assert [stateful(c()) for c in (Plain, Half, Full, Mixed)] == [False, False, True, True]


def test_a_bolt_without_execute_cannot_be_made():
    class Empty(Bolt):
        pass

    with pytest.raises(TypeError, match="execute"):
        Empty()


def test_optional_methods_do_nothing():
    bolt = Plain()
    assert bolt.prepare({}, None, None) is bolt.cleanup() is bolt.on_watermark(5) is bolt.get_component_configuration() is None
    with pytest.raises(NotImplementedError, match="Plain keeps no state"):
        bolt.snapshot()


def declared(component):
    declarer = OutputFieldsDeclarer()
    component.declare_output_fields(declarer)
    return {stream: info.fields for stream, info in declarer.streams.items()}


def test_the_kafka_spout_emits_the_whole_record_unless_told_otherwise():
    spout = KafkaSpout("in", kafka_options={"bootstrap.servers": "h:1"})
    assert (spout.topics, spout.pattern, spout.first_poll_strategy) == (["in"], None, "UNCOMMITTED_EARLIEST")
    assert declared(spout) == {"default": Fields("topic", "partition", "offset", "key", "value")}
    assert spout.translate("in", 2, 7, b"k", b"v", 99, []) == [("default", ("in", 2, 7, b"k", b"v"))]
    assert spout.next_tuple() is None


def test_the_kafka_spout_takes_a_translator_with_its_streams():
    spout = KafkaSpout(
        pattern="in.*",
        translator=lambda topic, partition, offset, key, value, timestamp_ms, headers: [("words", (value.decode(),))],
        outputs={"words": Fields("word")},
    )
    assert declared(spout) == {"words": Fields("word")}
    assert spout.translate("in", 0, 0, None, b"storm", 1, []) == [("words", ("storm",))]
    assert declared(KafkaSpout(["a", "b"], outputs=Fields("x"))) == {"default": Fields("x")}


@pytest.mark.parametrize("options", [{}, {"topics": "a", "pattern": "b"}, {"topics": []}])
def test_the_kafka_spout_needs_exactly_one_of_topics_and_pattern(options):
    with pytest.raises(IllegalArgumentException, match="exactly one of topics and pattern"):
        KafkaSpout(**options)


def test_unknown_strategies_are_refused_with_the_known_ones():
    with pytest.raises(IllegalArgumentException, match="first_poll_strategy is not known. given: 'FIRST'; legal: EARLIEST, LATEST"):
        KafkaSpout("a", first_poll_strategy="FIRST")
    with pytest.raises(IllegalArgumentException, match="processing_guarantee is not known.*AT_LEAST_ONCE"):
        KafkaSpout("a", processing_guarantee="EXACTLY_ONCE")


def test_the_kafka_bolt_maps_tuples_to_records():
    tup = Tuple(("k", "v", "t"), StreamMeta("c", 1, "default", Fields("key", "message", "where")))
    assert KafkaBolt("out").translate(tup) == ("out", b"k", b"v", [])
    assert KafkaBolt(topic_field="where", key_field="none", value_field="key").translate(tup) == ("t", None, b"k", [])
    with pytest.raises(TypeError, match="bytes, str or None. given: 7"):
        KafkaBolt("out").translate(Tuple((7,), StreamMeta("c", 1, "default", Fields("message"))))
    with pytest.raises(IllegalArgumentException, match="needs a topic or a topic_field"):
        KafkaBolt()
