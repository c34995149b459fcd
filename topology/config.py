"""Configuration: Storm's keys, their types and defaults, and the emulator's own keys.

Precedence, later wins: :data:`DEFAULTS` < the machine's file < the topology's < what a component returns from
``get_component_configuration`` < what its declarer adds.

The emulator's own keys (all named ``topology.emulator.*``):

============================================  =========  =============================================================
key                                           default    meaning
============================================  =========  =============================================================
topology.emulator.frame.max.tuples            8192       tuples in one frame (Kafka record), at most
topology.emulator.frame.max.bytes             524288     bytes of one frame, at most (one tuple may exceed it)
topology.emulator.pulse.interval.ms           20         time between pulses of a spout that emits
topology.emulator.pulse.idle.interval.ms      1000       time between pulses of a spout that had nothing to emit; on Spark it is asked in
                                                         between, too: ``topology.spout.wait.progressive.level3.sleep.millis``
topology.emulator.pulse.max.tuples            4096       a pulse calls ``next_tuple`` until that many tuples are emitted
topology.emulator.pulse.max.ms                20         or this time is over
topology.emulator.backpressure.max.tuples     200000     pulses stop while more tuples than this are undelivered in a topology
topology.emulator.backpressure.max.ms         10000      pulses stop while processing the undelivered tuples, and all tuples that
                                                         they lead to, would take longer than this
topology.emulator.snapshot.interval.ms        10000      time between snapshots of a task; longer if writing them would take
                                                         more than a twentieth of a core
topology.emulator.snapshots.kept              3          snapshots kept of each task
topology.emulator.max.frames.per.batch        2000       most frames in one micro-batch of a component; for external records
                                                         the limit is ``pulse.max.tuples`` if that is higher
topology.emulator.trigger.interval.ms         0          least time between the starts of two micro-batches of a component; a
                                                         longer time adds latency and saves processor time
topology.emulator.dead.letters.on.exception   True       whether a tuple whose ``execute`` raised goes to the dead letters
topology.emulator.restarts.max                10         failures of a component's query in a row, without progress in between, after
                                                         which the topology ends and says why; the first restart is immediate,
                                                         the next ones come after 0.5, 1, 2, ... 30 s
topology.emulator.stall.secs                  30         a task is reported as stalled when it has had input for this long and
                                                         processed none of it
topology.emulator.start.timeout.secs          120        how long to wait for the first task slot from Spark's master
topology.emulator.dead.letters.max.bytes      65536      most bytes of a record or tuple that its dead letter holds; the header
                                                         ``size`` has the original size
topology.emulator.on.data.loss                fail       what a Kafka spout does when records are gone before it has emitted them: ``fail``
                                                         ends the topology with an explanation, ``skip`` counts them, writes a dead
                                                         letter about them, and continues with the first record that is left
topology.emulator.dead.letters.retention.ms   604800000  how long Kafka keeps dead letters, -1 for ever; set when the topic is created
topology.emulator.dead.letters.retention.bytes 1073741824 how many bytes of them, -1 without a limit; set when the topic is created
topology.emulator.record.max.bytes            8388608    most bytes of a record for an external topic (``send_record``, ``KafkaBolt``);
                                                         a larger one becomes a dead letter. It must not exceed the topic's
                                                         ``max.message.bytes``: if Kafka refuses a record, the component cannot continue
============================================  =========  =============================================================
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from dskype.topology import config_checks as checks
from dskype.topology.config_checks import Check
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CHANGEABLE", "DEFAULTS", "RECORD_BYTES", "Config", "check_json", "merge", "misspelt", "validate"]

RECORD_BYTES = 8 << 20
"""Size of the largest record in an inbox; brokers and topics are configured to accept twice that."""


class Config(dict[str, Any]):
    """A topology's configuration; a dict with Storm's key names as class attributes and Storm's setters.

    >>> conf = Config()
    >>> conf.set_num_workers(2)
    >>> conf
    {'topology.workers': 2}
    """

    TOPOLOGY_NAME = "topology.name"
    TOPOLOGY_WORKERS = "topology.workers"
    TOPOLOGY_TASKS = "topology.tasks"
    TOPOLOGY_ACKER_EXECUTORS = "topology.acker.executors"
    TOPOLOGY_EVENTLOGGER_EXECUTORS = "topology.eventlogger.executors"
    TOPOLOGY_MESSAGE_TIMEOUT_SECS = "topology.message.timeout.secs"
    TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS = "topology.enable.message.timeouts"
    TOPOLOGY_MAX_TASK_PARALLELISM = "topology.max.task.parallelism"
    TOPOLOGY_MAX_SPOUT_PENDING = "topology.max.spout.pending"
    TOPOLOGY_DEBUG = "topology.debug"
    TOPOLOGY_STATS_SAMPLE_RATE = "topology.stats.sample.rate"
    TOPOLOGY_TICK_TUPLE_FREQ_SECS = "topology.tick.tuple.freq.secs"
    TOPOLOGY_STATE_CHECKPOINT_INTERVAL = "topology.state.checkpoint.interval.ms"
    TOPOLOGY_DISABLE_LOADAWARE_MESSAGING = "topology.disable.loadaware.messaging"
    TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS = "topology.error.throttle.interval.secs"
    TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL = "topology.max.error.report.per.interval"
    TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS = "topology.sleep.spout.wait.strategy.time.ms"
    TOPOLOGY_KRYO_REGISTER = "topology.kryo.register"
    TOPOLOGY_METRICS_CONSUMER_REGISTER = "topology.metrics.consumer.register"
    TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB = "topology.component.resources.onheap.memory.mb"
    TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB = "topology.component.resources.offheap.memory.mb"
    TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT = "topology.component.cpu.pcore.percent"
    TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT = "topology.bolts.window.length.count"
    TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS = "topology.bolts.window.length.duration.ms"
    TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT = "topology.bolts.window.sliding.interval.count"
    TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS = "topology.bolts.window.sliding.interval.duration.ms"
    TOPOLOGY_BOLTS_LATE_TUPLE_STREAM = "topology.bolts.late.tuple.stream"
    TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME = "topology.bolts.tuple.timestamp.field.name"
    TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS = "topology.bolts.tuple.timestamp.max.lag.ms"
    TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS = "topology.bolts.watermark.event.interval.ms"
    TOPOLOGY_SUBMITTER_USER = "topology.submitter.user"
    STORM_ID = "storm.id"
    STORM_CLUSTER_MODE = "storm.cluster.mode"
    UI_PORT = "ui.port"
    UI_HOST = "ui.host"
    UI_TITLE = "ui.title"
    UI_PAGINATION = "ui.pagination"
    SCHEDULER_DISPLAY_RESOURCE = "scheduler.display.resource"

    TOPOLOGY_ACKER_CPU_PCORE_PERCENT = "topology.acker.cpu.pcore.percent"
    TOPOLOGY_ACKER_RESOURCES_OFFHEAP_MEMORY_MB = "topology.acker.resources.offheap.memory.mb"
    TOPOLOGY_ACKER_RESOURCES_ONHEAP_MEMORY_MB = "topology.acker.resources.onheap.memory.mb"
    TOPOLOGY_AUTO_CREDENTIALS = "topology.auto-credentials"
    TOPOLOGY_AUTO_TASK_HOOKS = "topology.auto.task.hooks"
    TOPOLOGY_BACKPRESSURE_CHECK_MILLIS = "topology.backpressure.check.millis"
    TOPOLOGY_BACKPRESSURE_ENABLE = "topology.backpressure.enable"
    TOPOLOGY_BACKPRESSURE_WAIT_PARK_MICROSEC = "topology.backpressure.wait.park.microsec"
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL1_COUNT = "topology.backpressure.wait.progressive.level1.count"
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL2_COUNT = "topology.backpressure.wait.progressive.level2.count"
    TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = "topology.backpressure.wait.progressive.level3.sleep.millis"
    TOPOLOGY_BACKPRESSURE_WAIT_STRATEGY = "topology.backpressure.wait.strategy"
    TOPOLOGY_BATCH_FLUSH_INTERVAL_MILLIS = "topology.batch.flush.interval.millis"
    TOPOLOGY_BLOBSTORE_MAP = "topology.blobstore.map"
    TOPOLOGY_BOLT_WAIT_PARK_MICROSEC = "topology.bolt.wait.park.microsec"
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL1_COUNT = "topology.bolt.wait.progressive.level1.count"
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL2_COUNT = "topology.bolt.wait.progressive.level2.count"
    TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = "topology.bolt.wait.progressive.level3.sleep.millis"
    TOPOLOGY_BOLT_WAIT_STRATEGY = "topology.bolt.wait.strategy"
    TOPOLOGY_BOLTS_MESSAGE_ID_FIELD_NAME = "topology.bolts.message.id.field.name"
    TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS = "topology.builtin.metrics.bucket.size.secs"
    TOPOLOGY_CLASSPATH = "topology.classpath"
    TOPOLOGY_CLASSPATH_BEGINNING = "topology.classpath.beginning"
    TOPOLOGY_COMPONENT_RESOURCES_MAP = "topology.component.resources.map"
    TOPOLOGY_ENABLE_SEND_ICONNECTION_METRICS = "topology.enable.send.iconnection.metrics"
    TOPOLOGY_ENABLE_V2_METRICS_TICK = "topology.enable.v2.metrics.tick"
    TOPOLOGY_ENVIRONMENT = "topology.environment"
    TOPOLOGY_EVENT_LOGGER_REGISTER = "topology.event.logger.register"
    TOPOLOGY_EXECUTOR_OVERFLOW_LIMIT = "topology.executor.overflow.limit"
    TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE = "topology.executor.receive.buffer.size"
    TOPOLOGY_FALL_BACK_ON_JAVA_SERIALIZATION = "topology.fall.back.on.java.serialization"
    TOPOLOGY_GROUPS = "topology.groups"
    TOPOLOGY_ISOLATED_MACHINES = "topology.isolate.machines"
    TOPOLOGY_KRYO_DECORATORS = "topology.kryo.decorators"
    TOPOLOGY_KRYO_FACTORY = "topology.kryo.factory"
    TOPOLOGY_LOCALITYAWARE_HIGHER_BOUND = "topology.localityaware.higher.bound"
    TOPOLOGY_LOCALITYAWARE_LOWER_BOUND = "topology.localityaware.lower.bound"
    TOPOLOGY_LOGGING_CONFIG_FILE = "topology.logging.config"
    TOPOLOGY_LOGGING_SENSITIVITY = "topology.logging.sensitivity"
    TOPOLOGY_MAX_REPLICATION_WAIT_TIME_SEC = "topology.max.replication.wait.time.sec"
    TOPOLOGY_METRICS_CONSUMER_CPU_PCORE_PERCENT = "topology.metrics.consumer.cpu.pcore.percent"
    TOPOLOGY_METRICS_CONSUMER_RESOURCES_OFFHEAP_MEMORY_MB = "topology.metrics.consumer.resources.offheap.memory.mb"
    TOPOLOGY_METRICS_CONSUMER_RESOURCES_ONHEAP_MEMORY_MB = "topology.metrics.consumer.resources.onheap.memory.mb"
    TOPOLOGY_METRICS_REPORTERS = "topology.metrics.reporters"
    TOPOLOGY_MIN_REPLICATION_COUNT = "topology.min.replication.count"
    TOPOLOGY_MULTILANG_LOG_HANDLER = "topology.multilang.log.handler"
    TOPOLOGY_MULTILANG_SERIALIZER = "topology.multilang.serializer"
    TOPOLOGY_PRIORITY = "topology.priority"
    TOPOLOGY_PRODUCER_BATCH_DYNAMIC = "topology.producer.batch.dynamic"
    TOPOLOGY_PRODUCER_BATCH_SIZE = "topology.producer.batch.size"
    TOPOLOGY_RAS_ACKER_EXECUTORS_PER_WORKER = "topology.ras.acker.executors.per.worker"
    TOPOLOGY_RAS_CONSTRAINT_MAX_STATE_SEARCH = "topology.ras.constraint.max.state.search"
    TOPOLOGY_RAS_CONSTRAINT_MAX_TIME_SECS = "topology.ras.constraint.max.time.secs"
    TOPOLOGY_RAS_CONSTRAINTS = "topology.ras.constraints"
    TOPOLOGY_RAS_ONE_COMPONENT_PER_WORKER = "topology.ras.one.component.per.worker"
    TOPOLOGY_RAS_ONE_EXECUTOR_PER_WORKER = "topology.ras.one.executor.per.worker"
    TOPOLOGY_RAS_ORDER_EXECUTORS_BY_PROXIMITY_NEEDS = "topology.ras.order.executors.by.proximity.needs"
    TOPOLOGY_READONLY_GROUPS = "topology.readonly.groups"
    TOPOLOGY_READONLY_USERS = "topology.readonly.users"
    TOPOLOGY_SCHEDULER_FAVORED_NODES = "topology.scheduler.favored.nodes"
    TOPOLOGY_SCHEDULER_STRATEGY = "topology.scheduler.strategy"
    TOPOLOGY_SCHEDULER_UNFAVORED_NODES = "topology.scheduler.unfavored.nodes"
    TOPOLOGY_SERIALIZED_MESSAGE_SIZE_METRICS = "topology.serialized.message.size.metrics"
    TOPOLOGY_SHELLBOLT_MAX_PENDING = "topology.shellbolt.max.pending"
    TOPOLOGY_SKIP_MISSING_KRYO_REGISTRATIONS = "topology.skip.missing.kryo.registrations"
    TOPOLOGY_SPOUT_RECVQ_SKIPS = "topology.spout.recvq.skips"
    TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC = "topology.spout.wait.park.microsec"
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL1_COUNT = "topology.spout.wait.progressive.level1.count"
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL2_COUNT = "topology.spout.wait.progressive.level2.count"
    TOPOLOGY_SPOUT_WAIT_STRATEGY = "topology.spout.wait.strategy"
    TOPOLOGY_SPREAD_COMPONENTS = "topology.spread.components"
    TOPOLOGY_STATE_KRYO_REGISTER = "topology.state.kryo.register"
    TOPOLOGY_STATE_PROVIDER = "topology.state.provider"
    TOPOLOGY_STATE_PROVIDER_CONFIG = "topology.state.provider.config"
    TOPOLOGY_STATE_SYNCHRONIZATION_TIMEOUT_SECS = "topology.state.synchronization.timeout.secs"
    TOPOLOGY_SUBMITTER_PRINCIPAL = "topology.submitter.principal"
    TOPOLOGY_SUBPROCESS_TIMEOUT_SECS = "topology.subprocess.timeout.secs"
    TOPOLOGY_TESTING_ALWAYS_TRY_SERIALIZE = "topology.testing.always.try.serialize"
    TOPOLOGY_TRANSACTIONAL_ID = "topology.transactional.id"
    TOPOLOGY_TRANSFER_BATCH_SIZE = "topology.transfer.batch.size"
    TOPOLOGY_TRANSFER_BUFFER_SIZE = "topology.transfer.buffer.size"
    TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS = "topology.trident.batch.emit.interval.millis"
    TOPOLOGY_TRIDENT_WINDOWING_INMEMORY_CACHE_LIMIT = "topology.trident.windowing.cache.tuple.limit"
    TOPOLOGY_TUPLE_COMPRESSION_ENABLE = "topology.tuple.compression.enable"
    TOPOLOGY_TUPLE_COMPRESSION_MAX_DECOMPRESSED_BYTES = "topology.tuple.compression.max.decompressed.bytes"
    TOPOLOGY_TUPLE_COMPRESSION_THRESHOLD = "topology.tuple.compression.threshold"
    TOPOLOGY_TUPLE_SERIALIZER = "topology.tuple.serializer"
    TOPOLOGY_USERS = "topology.users"
    TOPOLOGY_V2_METRICS_TICK_INTERVAL_SECONDS = "topology.v2.metrics.tick.interval.seconds"
    TOPOLOGY_VERSION = "topology.version"
    TOPOLOGY_WORKER_CHILDOPTS = "topology.worker.childopts"
    TOPOLOGY_WORKER_GC_CHILDOPTS = "topology.worker.gc.childopts"
    TOPOLOGY_WORKER_LOGWRITER_CHILDOPTS = "topology.worker.logwriter.childopts"
    TOPOLOGY_WORKER_MAX_HEAP_SIZE_MB = "topology.worker.max.heap.size.mb"
    TOPOLOGY_WORKER_METRICS = "topology.worker.metrics"
    TOPOLOGY_WORKER_SHARED_THREAD_POOL_SIZE = "topology.worker.shared.thread.pool.size"
    TOPOLOGY_WORKER_TIMEOUT_SECS = "topology.worker.timeout.secs"
    TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS = "topology.spout.wait.progressive.level3.sleep.millis"

    TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES = "topology.emulator.frame.max.tuples"
    TOPOLOGY_EMULATOR_FRAME_MAX_BYTES = "topology.emulator.frame.max.bytes"
    TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS = "topology.emulator.pulse.interval.ms"
    TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS = "topology.emulator.pulse.idle.interval.ms"
    TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES = "topology.emulator.pulse.max.tuples"
    TOPOLOGY_EMULATOR_PULSE_MAX_MS = "topology.emulator.pulse.max.ms"
    TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_TUPLES = "topology.emulator.backpressure.max.tuples"
    TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_MS = "topology.emulator.backpressure.max.ms"
    TOPOLOGY_EMULATOR_SNAPSHOT_INTERVAL_MS = "topology.emulator.snapshot.interval.ms"
    TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT = "topology.emulator.snapshots.kept"
    TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH = "topology.emulator.max.frames.per.batch"
    TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS = "topology.emulator.trigger.interval.ms"
    TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION = "topology.emulator.dead.letters.on.exception"
    TOPOLOGY_EMULATOR_RESTARTS_MAX = "topology.emulator.restarts.max"
    TOPOLOGY_EMULATOR_STALL_SECS = "topology.emulator.stall.secs"
    TOPOLOGY_EMULATOR_START_TIMEOUT_SECS = "topology.emulator.start.timeout.secs"
    TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES = "topology.emulator.dead.letters.max.bytes"
    TOPOLOGY_EMULATOR_ON_DATA_LOSS = "topology.emulator.on.data.loss"
    TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_MS = "topology.emulator.dead.letters.retention.ms"
    TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_BYTES = "topology.emulator.dead.letters.retention.bytes"
    TOPOLOGY_EMULATOR_RECORD_MAX_BYTES = "topology.emulator.record.max.bytes"

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


_KEYS: dict[str, tuple[Any, ...]] = {
    Config.TOPOLOGY_WORKERS: (checks.positive_integer, 1),
    Config.TOPOLOGY_TASKS: (checks.tasks, None),
    Config.TOPOLOGY_ACKER_EXECUTORS: (checks.integer_from_zero, None),
    Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: (checks.integer_from_zero, 0),
    Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS: (checks.positive_integer, 30),
    Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: (checks.boolean, True),
    Config.TOPOLOGY_MAX_TASK_PARALLELISM: (checks.positive_integer, None),
    Config.TOPOLOGY_MAX_SPOUT_PENDING: (checks.positive_integer, None),
    Config.TOPOLOGY_DEBUG: (checks.boolean, False),
    Config.TOPOLOGY_STATS_SAMPLE_RATE: (checks.rate, 0.05),
    Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: (checks.tick, None),
    Config.TOPOLOGY_STATE_CHECKPOINT_INTERVAL: (checks.positive_integer, 1000),
    Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING: (checks.boolean, True),
    Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS: (checks.positive_integer, 10),
    Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL: (checks.positive_integer, 5),
    Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: (checks.integer_from_zero, 1),
    Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS: (checks.from_zero, 1),
    Config.UI_PORT: (checks.positive_integer, 8080),
    Config.UI_TITLE: (checks.string, "Storm UI"),
    Config.UI_PAGINATION: (checks.integer, 20),
    Config.SCHEDULER_DISPLAY_RESOURCE: (checks.boolean, False),
    Config.TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES: (checks.positive_integer, 8192),
    Config.TOPOLOGY_EMULATOR_FRAME_MAX_BYTES: (checks.positive_integer, 524288),
    Config.TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS: (checks.positive_integer, 20),
    Config.TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS: (checks.positive_integer, 1000),
    Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES: (checks.positive_integer, 4096),
    Config.TOPOLOGY_EMULATOR_PULSE_MAX_MS: (checks.positive_integer, 20),
    Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_TUPLES: (checks.positive_integer, 200000),
    Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_MS: (checks.positive_integer, 10_000),
    Config.TOPOLOGY_EMULATOR_SNAPSHOT_INTERVAL_MS: (checks.positive_integer, 10000),
    Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT: (checks.positive_integer, 3),
    Config.TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH: (checks.positive_integer, 2000),
    Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS: (checks.integer_from_zero, 0),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION: (checks.boolean, True),
    Config.TOPOLOGY_EMULATOR_RESTARTS_MAX: (checks.positive_integer, 10),
    Config.TOPOLOGY_EMULATOR_STALL_SECS: (checks.positive_integer, 30),
    Config.TOPOLOGY_EMULATOR_START_TIMEOUT_SECS: (checks.positive_integer, 120),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES: (checks.positive_integer, 65536),
    Config.TOPOLOGY_EMULATOR_ON_DATA_LOSS: (checks.on_data_loss, "fail"),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_MS: (checks.retention, 604_800_000),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_BYTES: (checks.retention, 1_073_741_824),
    Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES: (checks.positive_integer, 8388608),
    # without a default
    Config.TOPOLOGY_NAME: (checks.string,),
    Config.TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB: (checks.from_zero,),
    Config.TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB: (checks.from_zero,),
    Config.TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT: (checks.from_zero,),
    Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT: (checks.positive_integer,),
    Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS: (checks.positive_integer,),
    Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT: (checks.positive_integer,),
    Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS: (checks.positive_integer,),
    Config.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM: (checks.string,),
    Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME: (checks.string,),
    Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS: (checks.integer_from_zero,),
    Config.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS: (checks.positive_integer,),
    Config.TOPOLOGY_METRICS_CONSUMER_REGISTER: (checks.registrations(hint=True),),
    Config.TOPOLOGY_SUBMITTER_USER: (checks.string,),
    Config.UI_HOST: (checks.string,),
}
"""Known keys: key -> (type check, default), or (type check,) for a key that is not set by default."""

_WITHOUT_EFFECT: dict[str, Check] = {
    Config.TOPOLOGY_ACKER_CPU_PCORE_PERCENT: checks.from_zero,
    Config.TOPOLOGY_ACKER_RESOURCES_OFFHEAP_MEMORY_MB: checks.from_zero,
    Config.TOPOLOGY_ACKER_RESOURCES_ONHEAP_MEMORY_MB: checks.from_zero,
    Config.TOPOLOGY_AUTO_CREDENTIALS: checks.strings,
    Config.TOPOLOGY_AUTO_TASK_HOOKS: checks.strings,
    Config.TOPOLOGY_BACKPRESSURE_CHECK_MILLIS: checks.positive_integer,
    Config.TOPOLOGY_BACKPRESSURE_ENABLE: checks.boolean,
    Config.TOPOLOGY_BACKPRESSURE_WAIT_PARK_MICROSEC: checks.from_zero,
    Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL1_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL2_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS: checks.from_zero,
    Config.TOPOLOGY_BACKPRESSURE_WAIT_STRATEGY: checks.string,
    Config.TOPOLOGY_BATCH_FLUSH_INTERVAL_MILLIS: checks.integer_from_zero,
    Config.TOPOLOGY_BLOBSTORE_MAP: checks.map_of_maps,
    Config.TOPOLOGY_BOLT_WAIT_PARK_MICROSEC: checks.from_zero,
    Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL1_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL2_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS: checks.from_zero,
    Config.TOPOLOGY_BOLT_WAIT_STRATEGY: checks.string,
    Config.TOPOLOGY_BOLTS_MESSAGE_ID_FIELD_NAME: checks.string,
    Config.TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS: checks.integer,
    Config.TOPOLOGY_CLASSPATH: checks.string_or_strings,
    Config.TOPOLOGY_CLASSPATH_BEGINNING: checks.string_or_strings,
    Config.TOPOLOGY_COMPONENT_RESOURCES_MAP: checks.map_of_numbers,
    Config.TOPOLOGY_ENABLE_SEND_ICONNECTION_METRICS: checks.boolean,
    Config.TOPOLOGY_ENABLE_V2_METRICS_TICK: checks.boolean,
    Config.TOPOLOGY_ENVIRONMENT: checks.map_of_strings,
    Config.TOPOLOGY_EVENT_LOGGER_REGISTER: checks.registrations(arguments=True),
    Config.TOPOLOGY_EXECUTOR_OVERFLOW_LIMIT: checks.integer_from_zero,
    Config.TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE: checks.positive_integer,
    Config.TOPOLOGY_FALL_BACK_ON_JAVA_SERIALIZATION: checks.boolean,
    Config.TOPOLOGY_GROUPS: checks.string_or_strings,
    Config.TOPOLOGY_ISOLATED_MACHINES: checks.positive_integer,
    Config.TOPOLOGY_KRYO_DECORATORS: checks.strings,
    Config.TOPOLOGY_KRYO_FACTORY: checks.string,
    Config.TOPOLOGY_KRYO_REGISTER: checks.kryo_register,
    Config.TOPOLOGY_LOCALITYAWARE_HIGHER_BOUND: checks.positive,
    Config.TOPOLOGY_LOCALITYAWARE_LOWER_BOUND: checks.positive,
    Config.TOPOLOGY_LOGGING_CONFIG_FILE: checks.string,
    Config.TOPOLOGY_LOGGING_SENSITIVITY: checks.one_of("S0", "S1", "S2", "S3"),
    Config.TOPOLOGY_MAX_REPLICATION_WAIT_TIME_SEC: checks.number,
    Config.TOPOLOGY_METRICS_CONSUMER_CPU_PCORE_PERCENT: checks.from_zero,
    Config.TOPOLOGY_METRICS_CONSUMER_RESOURCES_OFFHEAP_MEMORY_MB: checks.from_zero,
    Config.TOPOLOGY_METRICS_CONSUMER_RESOURCES_ONHEAP_MEMORY_MB: checks.from_zero,
    Config.TOPOLOGY_METRICS_REPORTERS: checks.registrations(filters=True),
    Config.TOPOLOGY_MIN_REPLICATION_COUNT: checks.number,
    Config.TOPOLOGY_MULTILANG_LOG_HANDLER: checks.string,
    Config.TOPOLOGY_MULTILANG_SERIALIZER: checks.string,
    Config.TOPOLOGY_PRIORITY: checks.integer_from_zero,
    Config.TOPOLOGY_PRODUCER_BATCH_DYNAMIC: checks.boolean,
    Config.TOPOLOGY_PRODUCER_BATCH_SIZE: checks.positive_integer,
    Config.TOPOLOGY_RAS_ACKER_EXECUTORS_PER_WORKER: checks.integer_from_zero,
    Config.TOPOLOGY_RAS_CONSTRAINT_MAX_STATE_SEARCH: checks.positive_integer,
    Config.TOPOLOGY_RAS_CONSTRAINT_MAX_TIME_SECS: checks.positive_integer,
    Config.TOPOLOGY_RAS_CONSTRAINTS: checks.constraints,
    Config.TOPOLOGY_RAS_ONE_COMPONENT_PER_WORKER: checks.boolean,
    Config.TOPOLOGY_RAS_ONE_EXECUTOR_PER_WORKER: checks.boolean,
    Config.TOPOLOGY_RAS_ORDER_EXECUTORS_BY_PROXIMITY_NEEDS: checks.anything,
    Config.TOPOLOGY_READONLY_GROUPS: checks.string_or_strings,
    Config.TOPOLOGY_READONLY_USERS: checks.string_or_strings,
    Config.TOPOLOGY_SCHEDULER_FAVORED_NODES: checks.strings,
    Config.TOPOLOGY_SCHEDULER_STRATEGY: checks.string,
    Config.TOPOLOGY_SCHEDULER_UNFAVORED_NODES: checks.strings,
    Config.TOPOLOGY_SERIALIZED_MESSAGE_SIZE_METRICS: checks.boolean,
    Config.TOPOLOGY_SHELLBOLT_MAX_PENDING: checks.positive_integer,
    Config.TOPOLOGY_SKIP_MISSING_KRYO_REGISTRATIONS: checks.boolean,
    Config.TOPOLOGY_SPOUT_RECVQ_SKIPS: checks.integer_from_zero,
    Config.TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC: checks.from_zero,
    Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL1_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL2_COUNT: checks.integer_from_zero,
    Config.TOPOLOGY_SPOUT_WAIT_STRATEGY: checks.string,
    Config.TOPOLOGY_SPREAD_COMPONENTS: checks.strings,
    Config.TOPOLOGY_STATE_KRYO_REGISTER: checks.strings,
    Config.TOPOLOGY_STATE_PROVIDER: checks.string,
    Config.TOPOLOGY_STATE_PROVIDER_CONFIG: checks.string,
    Config.TOPOLOGY_STATE_SYNCHRONIZATION_TIMEOUT_SECS: checks.positive_integer,
    Config.TOPOLOGY_SUBMITTER_PRINCIPAL: checks.string,
    Config.TOPOLOGY_SUBPROCESS_TIMEOUT_SECS: checks.positive_integer,
    Config.TOPOLOGY_TESTING_ALWAYS_TRY_SERIALIZE: checks.boolean,
    Config.TOPOLOGY_TRANSACTIONAL_ID: checks.string,
    Config.TOPOLOGY_TRANSFER_BATCH_SIZE: checks.positive_integer,
    Config.TOPOLOGY_TRANSFER_BUFFER_SIZE: checks.positive_integer,
    Config.TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS: checks.positive_integer,
    Config.TOPOLOGY_TRIDENT_WINDOWING_INMEMORY_CACHE_LIMIT: checks.positive_integer,
    Config.TOPOLOGY_TUPLE_COMPRESSION_ENABLE: checks.boolean,
    Config.TOPOLOGY_TUPLE_COMPRESSION_MAX_DECOMPRESSED_BYTES: checks.integer,
    Config.TOPOLOGY_TUPLE_COMPRESSION_THRESHOLD: checks.integer,
    Config.TOPOLOGY_TUPLE_SERIALIZER: checks.string,
    Config.TOPOLOGY_USERS: checks.string_or_strings,
    Config.TOPOLOGY_V2_METRICS_TICK_INTERVAL_SECONDS: checks.positive_integer,
    Config.TOPOLOGY_VERSION: checks.string,
    Config.TOPOLOGY_WORKER_CHILDOPTS: checks.string_or_strings,
    Config.TOPOLOGY_WORKER_GC_CHILDOPTS: checks.string_or_strings,
    Config.TOPOLOGY_WORKER_LOGWRITER_CHILDOPTS: checks.string_or_strings,
    Config.TOPOLOGY_WORKER_MAX_HEAP_SIZE_MB: checks.positive,
    Config.TOPOLOGY_WORKER_METRICS: checks.map_of_strings,
    Config.TOPOLOGY_WORKER_SHARED_THREAD_POOL_SIZE: checks.integer,
    Config.TOPOLOGY_WORKER_TIMEOUT_SECS: checks.positive_integer,
}
"""Further keys of Storm: their values are checked as Storm checks them, and change nothing here."""

_NOT_NULL = frozenset(
    (
        Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING,
        Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS,
        Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS,
        Config.TOPOLOGY_SCHEDULER_STRATEGY,
        Config.TOPOLOGY_LOCALITYAWARE_HIGHER_BOUND,
        Config.TOPOLOGY_LOCALITYAWARE_LOWER_BOUND,
        Config.TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC,
        Config.TOPOLOGY_BOLT_WAIT_PARK_MICROSEC,
        Config.TOPOLOGY_BACKPRESSURE_WAIT_PARK_MICROSEC,
        Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS,
        Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS,
        Config.TOPOLOGY_STATE_SYNCHRONIZATION_TIMEOUT_SECS,
        Config.TOPOLOGY_PRODUCER_BATCH_SIZE,
        Config.TOPOLOGY_BACKPRESSURE_CHECK_MILLIS,
        Config.TOPOLOGY_SHELLBOLT_MAX_PENDING,
        Config.TOPOLOGY_WORKER_TIMEOUT_SECS,
        Config.TOPOLOGY_EXECUTOR_OVERFLOW_LIMIT,
        Config.TOPOLOGY_BATCH_FLUSH_INTERVAL_MILLIS,
        Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL1_COUNT,
        Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL2_COUNT,
        Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL1_COUNT,
        Config.TOPOLOGY_BOLT_WAIT_PROGRESSIVE_LEVEL2_COUNT,
        Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL1_COUNT,
        Config.TOPOLOGY_BACKPRESSURE_WAIT_PROGRESSIVE_LEVEL2_COUNT,
        Config.TOPOLOGY_SPOUT_RECVQ_SKIPS,
    )
)
"""Keys that Storm wants to have a value if they are there."""

DEFAULTS: dict[str, Any] = {key: default[0] for key, (_, *default) in _KEYS.items() if default}
"""Storm's defaults (except that load-aware messaging is off: groupings split equally here) and those of the emulator's own keys."""

_FIXED = {
    Config.TOPOLOGY_TASKS,
    Config.TOPOLOGY_ACKER_EXECUTORS,
    Config.TOPOLOGY_EVENTLOGGER_EXECUTORS,
    Config.TOPOLOGY_MAX_TASK_PARALLELISM,
    Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS,
    Config.TOPOLOGY_NAME,
    Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES,
}
"""Keys on which the state of tasks depends; the last one decides which records get a number when an inbox is read again."""

CHANGEABLE = frozenset(DEFAULTS) - _FIXED | {
    Config.TOPOLOGY_SUBMITTER_USER,
    Config.UI_HOST,
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
        check = _KEYS[key][0] if key in _KEYS else _WITHOUT_EFFECT.get(key)
        if check is not None:
            if value is not None:
                check(_CONSTANTS[key], value)
            elif key in _NOT_NULL:
                raise IllegalArgumentException(explain(f"Field {_CONSTANTS[key]} cannot be null!", given=value, hint="leave the key out for its default"))
        elif isinstance(key, str) and key.startswith(_OWN_KEYS):
            legal = [known for known in _KEYS if known.startswith(_OWN_KEYS)]
            near = difflib.get_close_matches(key.removeprefix(_OWN_KEYS), [known.removeprefix(_OWN_KEYS) for known in legal], 1)
            more = {"hint": f"did you mean {_OWN_KEYS}{near[0]}?"} if near else {"legal": ", ".join(legal)}
            raise IllegalArgumentException(explain("The emulator has no such key.", given=key, **more))


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
                explain(
                    "Storm conf is not valid. Must be json-serializable",
                    given={key: value},
                    hint=f"the {'value of' if isinstance(key, str) else ''} key {key!r} {problem}".replace("  ", " "),
                )
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
