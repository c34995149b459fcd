import re

import pytest

from dskype.topology import Config, IllegalArgumentException
from dskype.topology import config as config_module
from dskype.topology.config import DEFAULTS, check_json, merge, misspelt, validate


def test_defaults_are_storms():
    assert {k: DEFAULTS[k] for k in DEFAULTS if ".emulator." not in k} == {
        "topology.workers": 1,
        "topology.tasks": None,
        "topology.acker.executors": None,
        "topology.builtin.metrics.bucket.size.secs": 60,
        "topology.eventlogger.executors": 0,
        "topology.message.timeout.secs": 30,
        "topology.enable.message.timeouts": True,
        "topology.max.task.parallelism": None,
        "topology.max.spout.pending": None,
        "topology.debug": False,
        "topology.stats.sample.rate": 0.05,
        "topology.tick.tuple.freq.secs": None,
        "topology.state.checkpoint.interval.ms": 1000,
        "topology.disable.loadaware.messaging": True,
        "topology.error.throttle.interval.secs": 10,
        "topology.max.error.report.per.interval": 5,
        "topology.sleep.spout.wait.strategy.time.ms": 1,
        "topology.spout.wait.progressive.level3.sleep.millis": 5,  # Storm's is 1
        "topology.spout.wait.park.microsec": 100,
        "topology.spout.wait.progressive.level1.count": 0,
        "topology.spout.wait.progressive.level2.count": 0,
        "topology.spout.wait.strategy": "org.apache.storm.policy.WaitStrategyProgressive",
        "ui.port": 8080,
        "ui.title": "Storm UI",
        "ui.pagination": 20,
        "scheduler.display.resource": False,
    }
    validate(DEFAULTS)
    check_json(DEFAULTS)


def test_the_table_of_emulator_keys_in_the_documentation_is_complete_and_right():
    rows = dict(re.findall(r"^(topology\.emulator\S+)\s+(\S+)", config_module.__doc__, re.MULTILINE))
    assert rows == {k: str(v) for k, v in DEFAULTS.items() if ".emulator." in k}


def test_every_key_with_a_check_has_a_constant():
    assert set(config_module._KEYS) <= set(config_module._CONSTANTS)


def test_the_setters_write_storms_keys():
    conf = Config()
    conf.set_debug(True)
    conf.set_num_workers(2)
    conf.set_num_ackers(0)
    conf.set_num_event_loggers(0)
    conf.set_message_timeout_secs(5)
    conf.set_max_task_parallelism(3)
    conf.set_max_spout_pending(10)
    conf.set_stats_sample_rate(1.0)
    assert conf == {
        Config.TOPOLOGY_DEBUG: True,
        Config.TOPOLOGY_WORKERS: 2,
        Config.TOPOLOGY_ACKER_EXECUTORS: 0,
        Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: 0,
        Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 5,
        Config.TOPOLOGY_MAX_TASK_PARALLELISM: 3,
        Config.TOPOLOGY_MAX_SPOUT_PENDING: 10,
        Config.TOPOLOGY_STATS_SAMPLE_RATE: 1.0,
    }
    validate(conf)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "topology.debug",
            "yes",
            "Field TOPOLOGY_DEBUG must be of type class java.lang.Boolean. Object: yes actual type: class java.lang.String; given: 'yes'",
        ),
        ("topology.debug", 1, "Field TOPOLOGY_DEBUG must be of type class java.lang.Boolean. Object: 1 actual type: class java.lang.Long"),
        ("topology.enable.message.timeouts", [], "class java.lang.Boolean. Object: [] actual type: class java.util.ArrayList"),
        ("topology.name", 7, "Field TOPOLOGY_NAME must be of type class java.lang.String. Object: 7"),
        ("topology.workers", "2", "Field TOPOLOGY_WORKERS must be an Integer within type range. given: '2'"),
        ("topology.workers", 2**31, "Field TOPOLOGY_WORKERS must be an Integer within type range."),
        ("topology.workers", 1.5, "Field TOPOLOGY_WORKERS must be an Integer within type range."),
        ("topology.workers", True, "Field TOPOLOGY_WORKERS must be an Integer within type range."),
        ("topology.workers", 1.0, "Don't know how to convert 1.0 to int; given: 1.0; hint: write 1 for TOPOLOGY_WORKERS"),
        ("topology.workers", 0, "Field TOPOLOGY_WORKERS must be a Positive Number; given: 0"),
        ("topology.acker.executors", -1, "Field TOPOLOGY_ACKER_EXECUTORS must be a Positive Number"),
        ("topology.message.timeout.secs", 0, "Field TOPOLOGY_MESSAGE_TIMEOUT_SECS must be a Positive Number"),
        ("topology.component.cpu.pcore.percent", "x", "Field TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT must be a Positive Number"),
        ("topology.tasks", 0, "Field TOPOLOGY_TASKS must be at least 1. given: 0; hint: a component without tasks would never run"),
        ("topology.tasks", -3, "Field TOPOLOGY_TASKS must be at least 1. given: -3"),
        ("topology.tick.tuple.freq.secs", 0, "Field TOPOLOGY_TICK_TUPLE_FREQ_SECS must be at least 1 second. given: 0; hint: leave"),
        ("topology.stats.sample.rate", 2.0, "Field TOPOLOGY_STATS_SAMPLE_RATE must be a share between 0 and 1. given: 2.0"),
        ("topology.stats.sample.rate", -0.1, "Field TOPOLOGY_STATS_SAMPLE_RATE must be a share between 0 and 1."),
        ("topology.stats.sample.rate", "all", "Field TOPOLOGY_STATS_SAMPLE_RATE must be a Positive Number"),
        ("topology.emulator.snapshots.kept", 0, "Field TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT must be a Positive Number"),
        ("ui.port", "x", "Field UI_PORT must be an Integer within type range."),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_storms_words(key, value, words):
    with pytest.raises(IllegalArgumentException, match=re.escape(words)):
        validate({key: value})


MB = "Field TOPOLOGY_WORKER_MAX_HEAP_SIZE_MB"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kryo.register", 5, "Field TOPOLOGY_KRYO_REGISTER must be an Iterable containing only Strings or Maps of Strings"),
        ("kryo.register", ["a", {"b": 1}], "Each element of the list TOPOLOGY_KRYO_REGISTER must be a String or a Map of Strings"),
        ("worker.childopts", 5, "Field TOPOLOGY_WORKER_CHILDOPTS must be an Iterable but was a class java.lang.Long"),
        ("worker.childopts", ["-Xmx1g", 7], "Each element of the list TOPOLOGY_WORKER_CHILDOPTS must be a java.lang.String. (7)"),
        ("auto.task.hooks", "a", "Field TOPOLOGY_AUTO_TASK_HOOKS must be an Iterable but was a class java.lang.String"),
        ("priority", -1, "Field TOPOLOGY_PRIORITY must be a Positive Number"),
        ("priority", "high", "Field TOPOLOGY_PRIORITY must be an Integer within type range."),
        ("tuple.compression.enable", "not-a-boolean", "Field TOPOLOGY_TUPLE_COMPRESSION_ENABLE must be of type class java.lang.Boolean."),
        ("stats.sample.rate", 0, "Field TOPOLOGY_STATS_SAMPLE_RATE must be a Positive Number"),
        ("worker.max.heap.size.mb", 0, f"{MB} must be a Positive Number"),
        ("environment", ["A=b"], "Field TOPOLOGY_ENVIRONMENT must be a Map"),
        ("environment", {"A": 1}, "Each value in the map TOPOLOGY_ENVIRONMENT must be a java.lang.String. (1)"),
        ("component.resources.map", {"gpu.count": "two"}, "Each value in the map TOPOLOGY_COMPONENT_RESOURCES_MAP must be a java.lang.Number. (two)"),
        ("blobstore.map", {"a": None}, "Field TOPOLOGY_BLOBSTORE_MAP must not be null"),
        ("blobstore.map", {"a": "b"}, "Field TOPOLOGY_BLOBSTORE_MAP must be a Map"),
        ("logging.sensitivity", "S4", "Field TOPOLOGY_LOGGING_SENSITIVITY is not an accepted value. Value: S4 Accepted values: [S0, S1, S2, S3]"),
        ("min.replication.count", "x", "Field TOPOLOGY_MIN_REPLICATION_COUNT must be of type class java.lang.Number."),
        ("ras.constraints", [["a", 1]], "Field TOPOLOGY_RAS_CONSTRAINTS must be one of"),
        ("ras.constraints", {"a": {"maxNodeCoLocationCnt": 0}}, "Field TOPOLOGY_RAS_CONSTRAINTS must be one of"),
        ("ras.constraints", {"a": {"other": 1}}, "Field TOPOLOGY_RAS_CONSTRAINTS must be one of"),
        ("event.logger.register", {"class": "a"}, "Field TOPOLOGY_EVENT_LOGGER_REGISTER must be of type interface java.lang.Iterable."),
        ("event.logger.register", ["a"], "Field TOPOLOGY_EVENT_LOGGER_REGISTER list entry must be of type interface java.util.Map."),
        ("event.logger.register", [{"class": "a", "arguments": 1}], "Field TOPOLOGY_EVENT_LOGGER_REGISTER list entry must be of type interface java.util.Map."),
        ("metrics.consumer.register", [{"class": "a"}], "Field TOPOLOGY_METRICS_CONSUMER_REGISTER list entry must have map entry with key: parallelism.hint"),
        ("metrics.consumer.register", [{"parallelism.hint": 1}], "Field TOPOLOGY_METRICS_CONSUMER_REGISTER list entry must have map entry with key: class"),
        ("metrics.reporters", [{"class": "a", "filter": {"class": 7}}], "Field TOPOLOGY_METRICS_REPORTERS list entry must be of type class java.lang.String."),
        ("message.timeout.secs", None, "Field TOPOLOGY_MESSAGE_TIMEOUT_SECS cannot be null!"),
        ("producer.batch.size", None, "Field TOPOLOGY_PRODUCER_BATCH_SIZE cannot be null!"),
    ],
)
def test_keys_that_change_nothing_here_are_checked_as_in_storm(key, value, words):
    with pytest.raises(IllegalArgumentException, match="^" + re.escape(words)):
        validate({f"topology.{key}": value})


def test_right_values_of_keys_that_change_nothing_here_pass():
    validate(
        {
            "topology.kryo.register": ["a.B", {"a.C": "a.Serializer"}],
            "topology.worker.childopts": ["-Xmx1g"],
            "topology.classpath": "a:b",
            "topology.environment": {"A": "b", "C": None},
            "topology.component.resources.map": {"gpu.count": 2, "cpu.pcore.percent": 10.5},
            "topology.blobstore.map": {"key": {"localname": "x", "uncompress": False}},
            "topology.logging.sensitivity": "S0",
            "topology.ras.constraints": {"a": {"maxNodeCoLocationCnt": 2, "incompatibleComponents": ["b"]}},
            "topology.spread.components": ["a"],
            "topology.event.logger.register": [{"class": "a", "arguments": {"x": 1}}],
            "topology.metrics.consumer.register": [{"class": "a", "parallelism.hint": 1, "argument": 5}],
            "topology.metrics.reporters": [{"class": "a", "filter": {"class": "b"}}],
            "topology.priority": 0,
            "topology.max.replication.wait.time.sec": -1,
            "topology.ras.order.executors.by.proximity.needs": "anything",
        }
    )
    validate({"topology.ras.constraints": [["a", "b"]], "topology.users": None})


def test_a_misspelt_key_is_found_with_the_key_that_was_meant():
    conf = {"topology.message.timeout.sec": 5, "topology.max-spout.pending": 1, "topology.WORKERS": 2, "topology.workers": 1, "topology.mine": 1, "worker": 2}
    assert misspelt(conf) == {
        "topology.message.timeout.sec": "topology.message.timeout.secs",
        "topology.max-spout.pending": "topology.max.spout.pending",
        "topology.WORKERS": "topology.workers",
    }


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("topology.emulator.snapshot.intervall.ms", "did you mean topology.emulator.snapshot.interval.ms?"),
        ("topology.emulator.frame.max.tuple", "did you mean topology.emulator.frame.max.tuples?"),
        ("topology.emulator.x", "legal: topology.emulator.frame.max.tuples, topology.emulator.frame.max.bytes, "),
    ],
)
@pytest.mark.parametrize("value", [1, None])
def test_an_unknown_key_of_the_emulator_is_refused_with_the_nearest(key, value, words):
    with pytest.raises(IllegalArgumentException, match=re.escape(f"The emulator has no such key. given: '{key}'; ") + ".*" + re.escape(words)):
        validate({"topology.workers": 1, key: value})


def test_unknown_keys_of_storm_pass():
    validate({"topology.emulate": 1, "topology.worker.childopts": "-Xmx1g", "storm.zookeeper.servers": ["a"]})


@pytest.mark.parametrize(
    "conf",
    [
        {"my.own.key": object},
        {"topology.workers": None, "topology.debug": None},
        {"topology.acker.executors": 0, "topology.stats.sample.rate": 1},
        {"topology.stats.sample.rate": 0.01, "ui.pagination": -1},
    ],
)
def test_unknown_keys_and_none_and_limits_pass(conf):
    validate(conf)


@pytest.mark.parametrize(
    ("conf", "hint"),
    [
        ({"k": object()}, "the value of key 'k' cannot be written as JSON"),
        ({"k": {1, 2}}, "the value of key 'k' cannot be written as JSON"),
        ({"k": float("nan")}, "cannot be written as JSON"),
        ({"k": b"x"}, "cannot be written as JSON"),
        ({"k": {1: 2}}, "the value of key 'k' has a key that is not a string"),
        ({"k": [{"a": {1: 2}}]}, "the value of key 'k' has a key that is not a string"),
        ({7: "x"}, "the key 7 is not a string"),
    ],
)
def test_a_configuration_that_is_not_json_is_refused_with_storms_words(conf, hint):
    with pytest.raises(IllegalArgumentException, match=f"^Storm conf is not valid. Must be json-serializable; given: .*hint: .*{re.escape(hint)}"):
        check_json(conf)


def test_nested_json_passes():
    check_json({"k": [{"a": {"b": [1, 2.5, None, True, "x", (1, 2)]}}]})


def test_later_configurations_win():
    assert merge(DEFAULTS, {"topology.workers": 2, "a": 1}, None, {"a": 2}, {"b": None}) == {**DEFAULTS, "topology.workers": 2, "a": 2, "b": None}
