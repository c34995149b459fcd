"""Options of Kafka components that the runtime cannot honour are refused before anything runs."""

from pathlib import Path

import pytest

from dskype.topology import KafkaBolt, KafkaSpout, TopologyBuilder, TopologyError, TopologyPlan
from dskype.topology.runtime.driver import TopologyDriver
from dskype.topology.runtime.kafka import KafkaSettings


def driver(tmp_path: Path, spout: KafkaSpout, bolt: KafkaBolt) -> TopologyDriver:
    builder = TopologyBuilder()
    builder.set_spout("in", spout)
    builder.set_bolt("out", bolt).shuffle_grouping("in")
    plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())
    return TopologyDriver(plan, None, KafkaSettings("127.0.0.1:1"), tmp_path)


def test_a_kafka_spout_of_other_brokers_is_refused(tmp_path):
    refused = driver(tmp_path, KafkaSpout("a", kafka_options={"bootstrap.servers": "elsewhere:9092"}), KafkaBolt("b"))
    with pytest.raises(TopologyError, match="brokers that carry the topology.*given: 'elsewhere:9092'; component: 'in'; legal: 127.0.0.1:1"):
        refused.open()


def test_a_kafka_spout_with_security_of_its_own_is_refused_without_the_secret(tmp_path):
    options = {"sasl.jaas.config": "hunter2", "security.protocol": "SASL_SSL", "group.id": "g"}
    refused = driver(tmp_path, KafkaSpout("a", kafka_options=options), KafkaBolt("b"))
    with pytest.raises(TopologyError, match=r"given: \['sasl.jaas.config', 'security.protocol'\]; component: 'in'; hint: give them to the cluster") as error:
        refused.open()
    assert "hunter2" not in str(error.value)


def test_a_kafka_bolt_with_a_producer_of_its_own_is_refused(tmp_path):
    refused = driver(tmp_path, KafkaSpout("a"), KafkaBolt("b", kafka_options={"acks": "1"}))
    with pytest.raises(TopologyError, match=r"topology's own producer.*given: \['acks'\]; component: 'out'"):
        refused.open()
