"""Configuration: Storm's keys, their types and defaults, and the emulator's own keys.

Precedence, later wins: :data:`DEFAULTS` < the machine's file < the topology's < what a component returns from
``get_component_configuration`` < what its declarer adds.

The emulator's own keys (all named ``topology.emulator.*``):

==============================================  ==========  =============================================================
key                                             default     meaning
==============================================  ==========  =============================================================
topology.emulator.frame.max.tuples              8192        tuples in one frame (Kafka record), at most
topology.emulator.frame.max.bytes               524288      bytes of one frame, at most (one tuple may exceed it)
topology.emulator.pulse.interval.ms             20          time between pulses of a spout that emits
topology.emulator.pulse.idle.interval.ms        1000        time between pulses of a spout that had nothing to emit; on Spark it is asked in
                                                            between, too, as ``topology.spout.wait.strategy`` says
topology.emulator.pulse.max.tuples              4096        a pulse calls ``next_tuple`` until that many tuples are emitted
topology.emulator.pulse.max.ms                  20          or this time is over
topology.emulator.backpressure.max.tuples       200000      pulses stop while more tuples than this are undelivered in a topology
topology.emulator.backpressure.max.ms           10000       pulses stop while processing the undelivered tuples, and all tuples that
                                                            they lead to, would take longer than this
topology.emulator.snapshot.interval.ms          10000       time between snapshots of a task; longer if writing them would take
                                                            more than a twentieth of a core
topology.emulator.snapshots.kept                3           snapshots kept of each task
topology.emulator.max.frames.per.batch          2000        most frames in one micro-batch of a component; for external records
                                                            the limit is ``pulse.max.tuples`` if that is higher
topology.emulator.transport                     None        how a component gets its records: ``real-time`` (hops in milliseconds, at the price
                                                            of a task slot of Spark for every partition) or ``micro-batch``; None:
                                                            real-time if Spark has task slots for the topology
topology.emulator.real.time.batch.secs          300         how long Spark's batches of real-time queries last; when one ends, Spark's
                                                            progress reports tell of it, and records wait for a moment
topology.emulator.trigger.interval.ms           0           least time between the starts of two micro-batches of a component, and
                                                            of its executors'; a longer time adds latency and saves processor time
topology.emulator.dead.letters.on.exception     True        whether a tuple whose ``execute`` raised goes to the dead letters
topology.emulator.restarts.max                  10          failures of a component's query in a row, without progress in between, after
                                                            which the topology ends and says why; the first restart is immediate,
                                                            the next ones come after 0.5, 1, 2, ... 30 s
topology.emulator.stall.secs                    30          a task is reported as stalled when it has had input for this long and
                                                            processed none of it
topology.emulator.start.timeout.secs            120         how long to wait for the first task slot from Spark's master, and then for an answer from there
topology.emulator.dead.letters.max.bytes        65536       most bytes of a record or tuple that its dead letter holds; the header
                                                            ``size`` has the original size
topology.emulator.state.url                     None        where snapshots and journals are: ``folder:`` (the topology's own
                                                            folder; default where Spark runs on this machine), ``kafka:`` (topics
                                                            of the brokers; default on other masters), ``file:///shared/folder``,
                                                            ``s3://bucket/prefix``
topology.emulator.on.data.loss                  fail        what a Kafka spout does when records are gone before it has emitted them: ``fail``
                                                            ends the topology with an explanation, ``skip`` counts them, writes a dead
                                                            letter about them, and continues with the first record that is left
topology.emulator.dead.letters.retention.ms     604800000   how long Kafka keeps dead letters, -1 for ever; set when the topic is created
topology.emulator.dead.letters.retention.bytes  1073741824  how many bytes of them, -1 without a limit; set when the topic is created
topology.emulator.record.max.bytes              8388608     most bytes of a record for an external topic (``send_record``, ``KafkaBolt``);
                                                            a larger one becomes a dead letter. It must not exceed the topic's
                                                            ``max.message.bytes``: if Kafka refuses a record, the component cannot continue
==============================================  ==========  =============================================================
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from dskype.topology import config_checks as checks
from dskype.topology.config_checks import Check
from dskype.topology.errors import IllegalArgumentException

__all__ = ["CHANGEABLE", "DEFAULTS", "RECORD_BYTES", "TRANSPORTS", "Config", "check_json", "merge", "misspelt", "validate"]

TRANSPORTS = ("micro-batch", "real-time")
"""How a component may get its records (see docs/internals/transport.md)."""

RECORD_BYTES = 8 << 20
"""Size of the largest record in an inbox; brokers and topics are configured to accept twice that."""


# --- keys -------------------------------------------------------------------------------------------------------------

_KEYS: dict[str, tuple[Any, ...]] = {}
"""Known keys: key -> (type check, default), or (type check,) for a key that is not set by default."""


_NOT_NULL: set[str] = set()
"""Keys that Storm wants to have a value if they are there."""

_WITHOUT_EFFECT: set[str] = set()
"""Keys of Storm whose values are checked as Storm checks them, and change nothing here."""


def _key(key: str, check: Check, *default: Any, null: bool = True) -> str:
    """Register a key with its type check and its default, if it has one; return the key.

    :param null: whether None is legal.
    """
    _KEYS[key] = (check, *default)
    if not null:
        _NOT_NULL.add(key)
    return key


def _unused(key: str, check: Check, *, null: bool = True) -> str:
    """Register a key that has no effect here; return the key."""
    _WITHOUT_EFFECT.add(key)
    return _key(key, check, null=null)


class Config(dict[str, Any]):
    """A topology's configuration; a dict with Storm's key names as class attributes and Storm's setters.

    >>> conf = Config()
    >>> conf.set_num_workers(2)
    >>> conf
    {'topology.workers': 2}
    """

    TOPOLOGY_NAME = _key("topology.name", checks.string)
    TOPOLOGY_WORKERS = _key("topology.workers", checks.positive_integer, 1)
    TOPOLOGY_TASKS = _key("topology.tasks", checks.tasks, None)
    TOPOLOGY_ACKER_EXECUTORS = _key("topology.acker.executors", checks.integer_from_zero, None)
    TOPOLOGY_EVENTLOGGER_EXECUTORS = _key("topology.eventlogger.executors", checks.integer_from_zero, 0)
    TOPOLOGY_MESSAGE_TIMEOUT_SECS = _key("topology.message.timeout.secs", checks.positive_integer, 30, null=False)
    TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS = _key("topology.enable.message.timeouts", checks.boolean, True)
    TOPOLOGY_MAX_TASK_PARALLELISM = _key("topology.max.task.parallelism", checks.positive_integer, None)
    TOPOLOGY_MAX_SPOUT_PENDING = _key("topology.max.spout.pending", checks.positive_integer, None)
    TOPOLOGY_DEBUG = _key("topology.debug", checks.boolean, False)
    TOPOLOGY_STATS_SAMPLE_RATE = _key("topology.stats.sample.rate", checks.rate, 0.05)
    TOPOLOGY_TICK_TUPLE_FREQ_SECS = _key("topology.tick.tuple.freq.secs", checks.tick, None)
    TOPOLOGY_STATE_CHECKPOINT_INTERVAL = _key("topology.state.checkpoint.interval.ms", checks.positive_integer, 1000)
    TOPOLOGY_DISABLE_LOADAWARE_MESSAGING = _key("topology.disable.loadaware.messaging", checks.boolean, True, null=False)
    TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS = _key("topology.error.throttle.interval.secs", checks.positive_integer, 10)
    TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL = _key("topology.max.error.report.per.interval", checks.positive_integer, 5)
    TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS = _key("topology.sleep.spout.wait.strategy.time.ms", checks.integer_from_zero, 1)
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = _key("topology.spout.wait.progressive.level3.sleep.millis", checks.from_zero, 5, null=False)
    TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC = _key("topology.spout.wait.park.microsec", checks.from_zero, 100, null=False)
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL1_COUNT = _key("topology.spout.wait.progressive.level1.count", checks.integer_from_zero, 0, null=False)
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL2_COUNT = _key("topology.spout.wait.progressive.level2.count", checks.integer_from_zero, 0, null=False)
    TOPOLOGY_SPOUT_WAIT_STRATEGY = _key("topology.spout.wait.strategy", checks.spout_wait_strategy, checks.PROGRESSIVE, null=False)
    TOPOLOGY_METRICS_CONSUMER_REGISTER = _key("topology.metrics.consumer.register", checks.registrations(hint=True))
    TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB = _key("topology.component.resources.onheap.memory.mb", checks.from_zero)
    TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB = _key("topology.component.resources.offheap.memory.mb", checks.from_zero)
    TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT = _key("topology.component.cpu.pcore.percent", checks.from_zero)
    TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT = _key("topology.bolts.window.length.count", checks.positive_integer)
    TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS = _key("topology.bolts.window.length.duration.ms", checks.positive_integer)
    TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT = _key("topology.bolts.window.sliding.interval.count", checks.positive_integer)
    TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS = _key("topology.bolts.window.sliding.interval.duration.ms", checks.positive_integer)
    TOPOLOGY_BOLTS_LATE_TUPLE_STREAM = _key("topology.bolts.late.tuple.stream", checks.string)
    TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME = _key("topology.bolts.tuple.timestamp.field.name", checks.string)
    TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS = _key("topology.bolts.tuple.timestamp.max.lag.ms", checks.integer_from_zero)
    TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS = _key("topology.bolts.watermark.event.interval.ms", checks.positive_integer)
    TOPOLOGY_SUBMITTER_USER = _key("topology.submitter.user", checks.string)
    STORM_ID = "storm.id"
    STORM_CLUSTER_MODE = "storm.cluster.mode"
    UI_PORT = _key("ui.port", checks.positive_integer, 8080)
    UI_HOST = _key("ui.host", checks.string)
    UI_TITLE = _key("ui.title", checks.string, "Storm UI")
    UI_PAGINATION = _key("ui.pagination", checks.integer, 20)
    SCHEDULER_DISPLAY_RESOURCE = _key("scheduler.display.resource", checks.boolean, False)

    TOPOLOGY_ACKER_CPU_PCORE_PERCENT = _unused("topology.acker.cpu.pcore.percent", checks.from_zero)
    TOPOLOGY_ACKER_RESOURCES_OFFHEAP_MEMORY_MB = _unused("topology.acker.resources.offheap.memory.mb", checks.from_zero)
    TOPOLOGY_ACKER_RESOURCES_ONHEAP_MEMORY_MB = _unused("topology.acker.resources.onheap.memory.mb", checks.from_zero)
    TOPOLOGY_AUTO_CREDENTIALS = _unused("topology.auto-credentials", checks.strings)
    TOPOLOGY_AUTO_TASK_HOOKS = _key("topology.auto.task.hooks", checks.strings)
    TOPOLOGY_BACKPRESSURE_CHECK_MILLIS = _unused("topology.backpressure.check.millis", checks.positive_integer, null=False)
    TOPOLOGY_BACKPRESSURE_ENABLE = _unused("topology.backpressure.enable", checks.boolean)
    TOPOLOGY_BACKPRESSURE_WAIT_PARK_MICROSEC = _unused("topology.backpressure.wait.park.microsec", checks.from_zero, null=False)
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL1_COUNT = _unused("topology.backpressure.wait.progressive.level1.count", checks.integer_from_zero, null=False)
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL2_COUNT = _unused("topology.backpressure.wait.progressive.level2.count", checks.integer_from_zero, null=False)
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = _unused(
        "topology.backpressure.wait.progressive.level3.sleep.millis", checks.from_zero, null=False
    )
    TOPOLOGY_BACKPRESSURE_WAIT_STRATEGY = _unused("topology.backpressure.wait.strategy", checks.string)
    TOPOLOGY_BATCH_FLUSH_INTERVAL_MILLIS = _unused("topology.batch.flush.interval.millis", checks.integer_from_zero, null=False)
    TOPOLOGY_BLOBSTORE_MAP = _unused("topology.blobstore.map", checks.map_of_maps)
    TOPOLOGY_BOLT_WAIT_PARK_MICROSEC = _unused("topology.bolt.wait.park.microsec", checks.from_zero, null=False)
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL1_COUNT = _unused("topology.bolt.wait.progressive.level1.count", checks.integer_from_zero, null=False)
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL2_COUNT = _unused("topology.bolt.wait.progressive.level2.count", checks.integer_from_zero, null=False)
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = _unused("topology.bolt.wait.progressive.level3.sleep.millis", checks.from_zero, null=False)
    TOPOLOGY_BOLT_WAIT_STRATEGY = _unused("topology.bolt.wait.strategy", checks.string)
    TOPOLOGY_BOLTS_MESSAGE_ID_FIELD_NAME = _unused("topology.bolts.message.id.field.name", checks.string)
    TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS = _key("topology.builtin.metrics.bucket.size.secs", checks.bucket, 60, null=False)
    TOPOLOGY_CLASSPATH = _unused("topology.classpath", checks.string_or_strings)
    TOPOLOGY_CLASSPATH_BEGINNING = _unused("topology.classpath.beginning", checks.string_or_strings)
    TOPOLOGY_COMPONENT_RESOURCES_MAP = _unused("topology.component.resources.map", checks.map_of_numbers)
    TOPOLOGY_ENABLE_SEND_ICONNECTION_METRICS = _unused("topology.enable.send.iconnection.metrics", checks.boolean)
    TOPOLOGY_ENABLE_V2_METRICS_TICK = _unused("topology.enable.v2.metrics.tick", checks.boolean)
    TOPOLOGY_ENVIRONMENT = _unused("topology.environment", checks.map_of_strings)
    TOPOLOGY_EVENT_LOGGER_REGISTER = _key("topology.event.logger.register", checks.registrations(arguments=True))
    TOPOLOGY_EXECUTOR_OVERFLOW_LIMIT = _unused("topology.executor.overflow.limit", checks.integer_from_zero, null=False)
    TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE = _unused("topology.executor.receive.buffer.size", checks.positive_integer)
    TOPOLOGY_FALL_BACK_ON_JAVA_SERIALIZATION = _unused("topology.fall.back.on.java.serialization", checks.boolean)
    TOPOLOGY_GROUPS = _unused("topology.groups", checks.string_or_strings)
    TOPOLOGY_ISOLATED_MACHINES = _unused("topology.isolate.machines", checks.positive_integer)
    TOPOLOGY_KRYO_DECORATORS = _unused("topology.kryo.decorators", checks.strings)
    TOPOLOGY_KRYO_FACTORY = _unused("topology.kryo.factory", checks.string)
    TOPOLOGY_KRYO_REGISTER = _unused("topology.kryo.register", checks.kryo_register)
    TOPOLOGY_LOCALITYAWARE_HIGHER_BOUND = _unused("topology.localityaware.higher.bound", checks.positive, null=False)
    TOPOLOGY_LOCALITYAWARE_LOWER_BOUND = _unused("topology.localityaware.lower.bound", checks.positive, null=False)
    TOPOLOGY_LOGGING_CONFIG_FILE = _unused("topology.logging.config", checks.string)
    TOPOLOGY_LOGGING_SENSITIVITY = _unused("topology.logging.sensitivity", checks.one_of("S0", "S1", "S2", "S3"))
    TOPOLOGY_MAX_REPLICATION_WAIT_TIME_SEC = _unused("topology.max.replication.wait.time.sec", checks.number)
    TOPOLOGY_METRICS_CONSUMER_CPU_PCORE_PERCENT = _unused("topology.metrics.consumer.cpu.pcore.percent", checks.from_zero)
    TOPOLOGY_METRICS_CONSUMER_RESOURCES_OFFHEAP_MEMORY_MB = _unused("topology.metrics.consumer.resources.offheap.memory.mb", checks.from_zero)
    TOPOLOGY_METRICS_CONSUMER_RESOURCES_ONHEAP_MEMORY_MB = _unused("topology.metrics.consumer.resources.onheap.memory.mb", checks.from_zero)
    TOPOLOGY_METRICS_REPORTERS = _unused("topology.metrics.reporters", checks.registrations(filters=True))
    TOPOLOGY_MIN_REPLICATION_COUNT = _unused("topology.min.replication.count", checks.number)
    TOPOLOGY_MULTILANG_LOG_HANDLER = _unused("topology.multilang.log.handler", checks.string)
    TOPOLOGY_MULTILANG_SERIALIZER = _unused("topology.multilang.serializer", checks.string)
    TOPOLOGY_PRIORITY = _unused("topology.priority", checks.integer_from_zero)
    TOPOLOGY_PRODUCER_BATCH_DYNAMIC = _unused("topology.producer.batch.dynamic", checks.boolean)
    TOPOLOGY_PRODUCER_BATCH_SIZE = _unused("topology.producer.batch.size", checks.positive_integer, null=False)
    TOPOLOGY_RAS_ACKER_EXECUTORS_PER_WORKER = _unused("topology.ras.acker.executors.per.worker", checks.integer_from_zero)
    TOPOLOGY_RAS_CONSTRAINT_MAX_STATE_SEARCH = _unused("topology.ras.constraint.max.state.search", checks.positive_integer)
    TOPOLOGY_RAS_CONSTRAINT_MAX_TIME_SECS = _unused("topology.ras.constraint.max.time.secs", checks.positive_integer)
    TOPOLOGY_RAS_CONSTRAINTS = _unused("topology.ras.constraints", checks.constraints)
    TOPOLOGY_RAS_ONE_COMPONENT_PER_WORKER = _unused("topology.ras.one.component.per.worker", checks.boolean)
    TOPOLOGY_RAS_ONE_EXECUTOR_PER_WORKER = _unused("topology.ras.one.executor.per.worker", checks.boolean)
    TOPOLOGY_RAS_ORDER_EXECUTORS_BY_PROXIMITY_NEEDS = _unused("topology.ras.order.executors.by.proximity.needs", checks.anything)
    TOPOLOGY_READONLY_GROUPS = _unused("topology.readonly.groups", checks.string_or_strings)
    TOPOLOGY_READONLY_USERS = _unused("topology.readonly.users", checks.string_or_strings)
    TOPOLOGY_SCHEDULER_FAVORED_NODES = _unused("topology.scheduler.favored.nodes", checks.strings)
    TOPOLOGY_SCHEDULER_STRATEGY = _unused("topology.scheduler.strategy", checks.string, null=False)
    TOPOLOGY_SCHEDULER_UNFAVORED_NODES = _unused("topology.scheduler.unfavored.nodes", checks.strings)
    TOPOLOGY_SERIALIZED_MESSAGE_SIZE_METRICS = _unused("topology.serialized.message.size.metrics", checks.boolean)
    TOPOLOGY_SHELLBOLT_MAX_PENDING = _unused("topology.shellbolt.max.pending", checks.positive_integer, null=False)
    TOPOLOGY_SKIP_MISSING_KRYO_REGISTRATIONS = _unused("topology.skip.missing.kryo.registrations", checks.boolean)
    TOPOLOGY_SPOUT_RECVQ_SKIPS = _unused("topology.spout.recvq.skips", checks.integer_from_zero, null=False)
    TOPOLOGY_SPREAD_COMPONENTS = _unused("topology.spread.components", checks.strings)
    TOPOLOGY_STATE_KRYO_REGISTER = _unused("topology.state.kryo.register", checks.strings)
    TOPOLOGY_STATE_PROVIDER = _unused("topology.state.provider", checks.string)
    TOPOLOGY_STATE_PROVIDER_CONFIG = _unused("topology.state.provider.config", checks.string)
    TOPOLOGY_STATE_SYNCHRONIZATION_TIMEOUT_SECS = _unused("topology.state.synchronization.timeout.secs", checks.positive_integer, null=False)
    TOPOLOGY_SUBMITTER_PRINCIPAL = _unused("topology.submitter.principal", checks.string)
    TOPOLOGY_SUBPROCESS_TIMEOUT_SECS = _key("topology.subprocess.timeout.secs", checks.positive_integer)
    TOPOLOGY_TESTING_ALWAYS_TRY_SERIALIZE = _unused("topology.testing.always.try.serialize", checks.boolean)
    TOPOLOGY_TRANSACTIONAL_ID = _unused("topology.transactional.id", checks.string)
    TOPOLOGY_TRANSFER_BATCH_SIZE = _unused("topology.transfer.batch.size", checks.positive_integer)
    TOPOLOGY_TRANSFER_BUFFER_SIZE = _unused("topology.transfer.buffer.size", checks.positive_integer)
    TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS = _unused("topology.trident.batch.emit.interval.millis", checks.positive_integer)
    TOPOLOGY_TRIDENT_WINDOWING_INMEMORY_CACHE_LIMIT = _unused("topology.trident.windowing.cache.tuple.limit", checks.positive_integer)
    TOPOLOGY_TUPLE_COMPRESSION_ENABLE = _unused("topology.tuple.compression.enable", checks.boolean)
    TOPOLOGY_TUPLE_COMPRESSION_MAX_DECOMPRESSED_BYTES = _unused("topology.tuple.compression.max.decompressed.bytes", checks.integer)
    TOPOLOGY_TUPLE_COMPRESSION_THRESHOLD = _unused("topology.tuple.compression.threshold", checks.integer)
    TOPOLOGY_TUPLE_SERIALIZER = _unused("topology.tuple.serializer", checks.string)
    TOPOLOGY_USERS = _unused("topology.users", checks.string_or_strings)
    TOPOLOGY_V2_METRICS_TICK_INTERVAL_SECONDS = _unused("topology.v2.metrics.tick.interval.seconds", checks.positive_integer)
    TOPOLOGY_VERSION = _unused("topology.version", checks.string)
    TOPOLOGY_WORKER_CHILDOPTS = _unused("topology.worker.childopts", checks.string_or_strings)
    TOPOLOGY_WORKER_GC_CHILDOPTS = _unused("topology.worker.gc.childopts", checks.string_or_strings)
    TOPOLOGY_WORKER_LOGWRITER_CHILDOPTS = _unused("topology.worker.logwriter.childopts", checks.string_or_strings)
    TOPOLOGY_WORKER_MAX_HEAP_SIZE_MB = _unused("topology.worker.max.heap.size.mb", checks.positive)
    TOPOLOGY_WORKER_METRICS = _unused("topology.worker.metrics", checks.map_of_strings)
    TOPOLOGY_WORKER_SHARED_THREAD_POOL_SIZE = _unused("topology.worker.shared.thread.pool.size", checks.integer)
    TOPOLOGY_WORKER_TIMEOUT_SECS = _unused("topology.worker.timeout.secs", checks.positive_integer, null=False)

    TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES = _key("topology.emulator.frame.max.tuples", checks.positive_integer, 8192)
    TOPOLOGY_EMULATOR_FRAME_MAX_BYTES = _key("topology.emulator.frame.max.bytes", checks.positive_integer, 524288)
    TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS = _key("topology.emulator.pulse.interval.ms", checks.positive_integer, 20)
    TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS = _key("topology.emulator.pulse.idle.interval.ms", checks.positive_integer, 1000)
    TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES = _key("topology.emulator.pulse.max.tuples", checks.positive_integer, 4096)
    TOPOLOGY_EMULATOR_PULSE_MAX_MS = _key("topology.emulator.pulse.max.ms", checks.positive_integer, 20)
    TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_TUPLES = _key("topology.emulator.backpressure.max.tuples", checks.positive_integer, 200000)
    TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_MS = _key("topology.emulator.backpressure.max.ms", checks.positive_integer, 10_000)
    TOPOLOGY_EMULATOR_SNAPSHOT_INTERVAL_MS = _key("topology.emulator.snapshot.interval.ms", checks.positive_integer, 10000)
    TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT = _key("topology.emulator.snapshots.kept", checks.positive_integer, 3)
    TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH = _key("topology.emulator.max.frames.per.batch", checks.positive_integer, 2000)
    TOPOLOGY_EMULATOR_TRANSPORT = _key("topology.emulator.transport", checks.one_of(*TRANSPORTS), None)
    TOPOLOGY_EMULATOR_REAL_TIME_BATCH_SECS = _key("topology.emulator.real.time.batch.secs", checks.at_least(5), 300)
    TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS = _key("topology.emulator.trigger.interval.ms", checks.integer_from_zero, 0)
    TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION = _key("topology.emulator.dead.letters.on.exception", checks.boolean, True)
    TOPOLOGY_EMULATOR_RESTARTS_MAX = _key("topology.emulator.restarts.max", checks.positive_integer, 10)
    TOPOLOGY_EMULATOR_STALL_SECS = _key("topology.emulator.stall.secs", checks.positive_integer, 30)
    TOPOLOGY_EMULATOR_START_TIMEOUT_SECS = _key("topology.emulator.start.timeout.secs", checks.positive_integer, 120)
    TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES = _key("topology.emulator.dead.letters.max.bytes", checks.positive_integer, 65536)
    TOPOLOGY_EMULATOR_ON_DATA_LOSS = _key("topology.emulator.on.data.loss", checks.on_data_loss, "fail")
    TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_MS = _key("topology.emulator.dead.letters.retention.ms", checks.retention, 604_800_000)
    TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_BYTES = _key("topology.emulator.dead.letters.retention.bytes", checks.retention, 1_073_741_824)
    TOPOLOGY_EMULATOR_STATE_URL = _key("topology.emulator.state.url", checks.string, None)
    TOPOLOGY_EMULATOR_RECORD_MAX_BYTES = _key("topology.emulator.record.max.bytes", checks.positive_integer, 8388608)

    def set_debug(self, on: bool) -> None:
        """Set ``topology.debug``: log every tuple."""
        self[self.TOPOLOGY_DEBUG] = on

    def set_num_workers(self, workers: int) -> None:
        """Set ``topology.workers``."""
        self[self.TOPOLOGY_WORKERS] = workers

    def set_num_ackers(self, executors: int) -> None:
        """Set ``topology.acker.executors``; 0 switches tracking off."""
        self[self.TOPOLOGY_ACKER_EXECUTORS] = executors

    def set_num_event_loggers(self, executors: int) -> None:
        """Set ``topology.eventlogger.executors``."""
        self[self.TOPOLOGY_EVENTLOGGER_EXECUTORS] = executors

    def register_metrics_consumer(self, name: str, argument: Any = None, parallelism_hint: int = 1) -> None:
        """Add a metrics consumer to ``topology.metrics.consumer.register``.

        :param name: ``module.Class``, or Storm's name of a class.
        :param argument: passed to its ``prepare``; plain values.
        """
        entry = {"class": name, "parallelism.hint": parallelism_hint, "argument": argument}
        self.setdefault(self.TOPOLOGY_METRICS_CONSUMER_REGISTER, []).append(entry)

    def register_event_logger(self, name: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Add an event logger to ``topology.event.logger.register``; see :meth:`register_metrics_consumer`."""
        self.setdefault(self.TOPOLOGY_EVENT_LOGGER_REGISTER, []).append({"class": name, "arguments": dict(arguments or {})})

    def set_message_timeout_secs(self, secs: int) -> None:
        """Set ``topology.message.timeout.secs``."""
        self[self.TOPOLOGY_MESSAGE_TIMEOUT_SECS] = secs

    def set_max_task_parallelism(self, tasks: int) -> None:
        """Set ``topology.max.task.parallelism``: no component gets more tasks."""
        self[self.TOPOLOGY_MAX_TASK_PARALLELISM] = tasks

    def set_max_spout_pending(self, tuples: int) -> None:
        """Set ``topology.max.spout.pending``: the most tracked, unfinished tuples per spout task."""
        self[self.TOPOLOGY_MAX_SPOUT_PENDING] = tuples

    def set_stats_sample_rate(self, rate: float) -> None:
        """Set ``topology.stats.sample.rate``, 0..1."""
        self[self.TOPOLOGY_STATS_SAMPLE_RATE] = rate


DEFAULTS: dict[str, Any] = {key: default[0] for key, (_, *default) in _KEYS.items() if default}
"""Storm's defaults, and those of the emulator's own keys. Two of Storm's are different here: load-aware messaging is off (groupings split equally), and an idle
spout is asked every 5 ms instead of every 1 ms."""

_FIXED = {
    Config.TOPOLOGY_TASKS,
    Config.TOPOLOGY_ACKER_EXECUTORS,
    Config.TOPOLOGY_EVENTLOGGER_EXECUTORS,
    Config.TOPOLOGY_MAX_TASK_PARALLELISM,
    Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS,
    Config.TOPOLOGY_NAME,
    Config.TOPOLOGY_EMULATOR_STATE_URL,
    Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES,
}
"""Keys on which the state of tasks depends, or where it is; the last one decides which records get a number when an inbox is read again."""

CHANGEABLE = frozenset(DEFAULTS) - _FIXED | {
    Config.TOPOLOGY_SUBMITTER_USER,
    Config.UI_HOST,
    Config.TOPOLOGY_AUTO_TASK_HOOKS,
    Config.TOPOLOGY_EVENT_LOGGER_REGISTER,
    Config.TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB,
    Config.TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB,
    Config.TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT,
    *_WITHOUT_EFFECT,
}
"""Keys that may change between a stop and a resume, because the state of tasks does not depend on them."""

_PREFIX = "topology."
_OWN_KEYS = "topology.emulator."

_CONSTANTS: dict[str, str] = {value: name for name, value in vars(Config).items() if name.isupper() and isinstance(value, str)}


def validate(conf: Mapping[str, Any]) -> None:
    """Check the values of all known keys. None is legal where Storm takes null.

    Unknown keys are accepted, as in Storm, because components may have their own; :func:`misspelt` finds those that are probably mistakes. The
    exception is the prefix ``topology.emulator.``.

    :raises IllegalArgumentException: a value of the wrong type, in Storm's wording (the key is named by its constant, ``TOPOLOGY_DEBUG``); an
        unknown key that begins with ``topology.emulator.``.
    """
    for key, value in conf.items():
        if key in _KEYS:
            if value is not None:
                _KEYS[key][0](_CONSTANTS[key], value)
            elif key in _NOT_NULL:
                raise IllegalArgumentException(f"Field {_CONSTANTS[key]} cannot be null!", given=value, hint="leave the key out for its default")
        elif isinstance(key, str) and key.startswith(_OWN_KEYS):
            legal = [known for known in _KEYS if known.startswith(_OWN_KEYS)]
            near = difflib.get_close_matches(key.removeprefix(_OWN_KEYS), [known.removeprefix(_OWN_KEYS) for known in legal], 1)
            more = {"hint": f"did you mean {_OWN_KEYS}{near[0]}?"} if near else {"legal": ", ".join(legal)}
            raise IllegalArgumentException("The emulator has no such key.", given=key, **more)


def misspelt(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return unknown key -> the key of Storm that was probably meant, for keys that begin like Storm's (``topology.``)."""
    known = [key.removeprefix(_PREFIX) for key in _CONSTANTS if key.startswith(_PREFIX)]
    found = {}
    for key in conf:
        if isinstance(key, str) and key.startswith(_PREFIX) and key not in _CONSTANTS:
            near = difflib.get_close_matches(key.removeprefix(_PREFIX).lower().replace("_", "."), known, 1, cutoff=0.8)
            if near:
                found[key] = _PREFIX + near[0]
    return found


def check_json(conf: Mapping[str, Any]) -> None:
    """Refuse a configuration that cannot be written as JSON.

    :raises IllegalArgumentException: ``Storm conf is not valid. Must be json-serializable``.
    """
    for key, value in conf.items():
        problem = "is not a string" if not isinstance(key, str) else _json_problem(value)
        if problem:
            raise IllegalArgumentException(
                "Storm conf is not valid. Must be json-serializable",
                given={key: value},
                hint=f"the {'value of' if isinstance(key, str) else ''} key {key!r} {problem}".replace("  ", " "),
            )


def _json_problem(value: Any) -> str | None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as ex:
        return f"cannot be written as JSON ({ex})"
    # json.dumps would silently turn such keys into strings.
    return None if _string_keys(value) else "has a key that is not a string"


def _string_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _string_keys(v) for k, v in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_string_keys, value))


def merge(*confs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all configurations in one; later ones win, None counts as empty."""
    return {key: value for conf in confs for key, value in (conf or {}).items()}
