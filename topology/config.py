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
topology.emulator.pulse.idle.interval.ms      1000       time between pulses of a spout that had nothing to emit
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
topology.emulator.transport                   micro-batch  how a component gets its records: in micro-batches, or ``continuous`` (hops in
                                                         milliseconds, at the price of a task slot of Spark for every task)
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
import math
from collections.abc import Mapping
from typing import Any

from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CHANGEABLE", "DEFAULTS", "RECORD_BYTES", "Config", "check_json", "merge", "validate"]

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
    TOPOLOGY_EMULATOR_TRANSPORT = "topology.emulator.transport"
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


# --- type checks ------------------------------------------------------------------------------------------------------


def _java_class(value: Any) -> str:
    for kind, name in (
        (bool, "java.lang.Boolean"),
        (int, "java.lang.Long"),
        (float, "java.lang.Double"),
        (str, "java.lang.String"),
        (Mapping, "java.util.HashMap"),
        ((list, tuple), "java.util.ArrayList"),
    ):
        if isinstance(value, kind):
            return name
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _refuse_type(name: str, java_class: str, value: Any) -> None:
    raise IllegalArgumentException(
        explain(f"Field {name} must be of type class {java_class}. Object: {value} actual type: class {_java_class(value)}", given=value)
    )


def _boolean(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        _refuse_type(name, "java.lang.Boolean", value)


def _string(name: str, value: Any) -> None:
    if not isinstance(value, str):
        _refuse_type(name, "java.lang.String", value)


def _integer(name: str, value: Any) -> None:
    if isinstance(value, float) and value.is_integer():
        raise IllegalArgumentException(explain(f"Don't know how to convert {value} to int", given=value, hint=f"write {int(value)} for {name}"))
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise IllegalArgumentException(explain(f"Field {name} must be an Integer within type range.", given=value))


def _positive(name: str, value: Any, zero: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value > 0 or (zero and value == 0)):
        raise IllegalArgumentException(explain(f"Field {name} must be a Positive Number", given=value))


def _positive_integer(name: str, value: Any) -> None:
    _integer(name, value)
    _positive(name, value, zero=False)


def _integer_from_zero(name: str, value: Any) -> None:
    _integer(name, value)
    _positive(name, value, zero=True)


def _number_from_zero(name: str, value: Any) -> None:
    _positive(name, value, zero=True)


def _rate(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _positive(name, value, zero=True)
    if math.isnan(value) or not 0 <= value <= 1:
        raise IllegalArgumentException(
            explain(f"Field {name} must be a share between 0 and 1.", given=value, hint="1.0 counts every tuple, 0.05 one in twenty")
        )


def _tick(name: str, value: Any) -> None:
    _integer(name, value)
    if value <= 0:
        raise IllegalArgumentException(explain(f"Field {name} must be at least 1 second.", given=value, hint="leave the key out (or None) for no ticks"))


def _retention(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63 or value == 0:
        raise IllegalArgumentException(explain(f"Field {name} must be how much Kafka keeps.", given=value, legal="an integer >= 1, or -1: no limit"))


def _tasks(name: str, value: Any) -> None:
    _integer(name, value)
    if value <= 0:
        raise IllegalArgumentException(
            explain(
                f"Field {name} must be at least 1.", given=value, hint="a component without tasks would never run; leave the key out for one task per executor"
            )
        )


def _on_data_loss(name: str, value: Any) -> None:
    if value not in ("fail", "skip"):
        raise IllegalArgumentException(explain(f"Field {name} says what to do about lost input.", given=value, legal="fail, skip"))


def _transport(name: str, value: Any) -> None:
    if value not in ("micro-batch", "continuous"):
        raise IllegalArgumentException(explain(f"Field {name} says how records get to a component.", given=value, legal="micro-batch, continuous"))


_KEYS: dict[str, tuple[Any, ...]] = {
    Config.TOPOLOGY_WORKERS: (_positive_integer, 1),
    Config.TOPOLOGY_TASKS: (_tasks, None),
    Config.TOPOLOGY_ACKER_EXECUTORS: (_integer_from_zero, None),
    Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: (_integer_from_zero, 0),
    Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS: (_positive_integer, 30),
    Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: (_boolean, True),
    Config.TOPOLOGY_MAX_TASK_PARALLELISM: (_positive_integer, None),
    Config.TOPOLOGY_MAX_SPOUT_PENDING: (_positive_integer, None),
    Config.TOPOLOGY_DEBUG: (_boolean, False),
    Config.TOPOLOGY_STATS_SAMPLE_RATE: (_rate, 0.05),
    Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: (_tick, None),
    Config.TOPOLOGY_STATE_CHECKPOINT_INTERVAL: (_positive_integer, 1000),
    Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING: (_boolean, True),
    Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS: (_positive_integer, 10),
    Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL: (_positive_integer, 5),
    Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: (_integer_from_zero, 1),
    Config.UI_PORT: (_positive_integer, 8080),
    Config.UI_TITLE: (_string, "Storm UI"),
    Config.UI_PAGINATION: (_integer, 20),
    Config.SCHEDULER_DISPLAY_RESOURCE: (_boolean, False),
    Config.TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES: (_positive_integer, 8192),
    Config.TOPOLOGY_EMULATOR_FRAME_MAX_BYTES: (_positive_integer, 524288),
    Config.TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS: (_positive_integer, 20),
    Config.TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS: (_positive_integer, 1000),
    Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES: (_positive_integer, 4096),
    Config.TOPOLOGY_EMULATOR_PULSE_MAX_MS: (_positive_integer, 20),
    Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_TUPLES: (_positive_integer, 200000),
    Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_MS: (_positive_integer, 10_000),
    Config.TOPOLOGY_EMULATOR_SNAPSHOT_INTERVAL_MS: (_positive_integer, 10000),
    Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT: (_positive_integer, 3),
    Config.TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH: (_positive_integer, 2000),
    Config.TOPOLOGY_EMULATOR_TRANSPORT: (_transport, "micro-batch"),
    Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS: (_integer_from_zero, 0),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION: (_boolean, True),
    Config.TOPOLOGY_EMULATOR_RESTARTS_MAX: (_positive_integer, 10),
    Config.TOPOLOGY_EMULATOR_STALL_SECS: (_positive_integer, 30),
    Config.TOPOLOGY_EMULATOR_START_TIMEOUT_SECS: (_positive_integer, 120),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES: (_positive_integer, 65536),
    Config.TOPOLOGY_EMULATOR_ON_DATA_LOSS: (_on_data_loss, "fail"),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_MS: (_retention, 604_800_000),
    Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_BYTES: (_retention, 1_073_741_824),
    Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES: (_positive_integer, 8388608),
    # without a default
    Config.TOPOLOGY_NAME: (_string,),
    Config.TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB: (_number_from_zero,),
    Config.TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB: (_number_from_zero,),
    Config.TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT: (_number_from_zero,),
    Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT: (_positive_integer,),
    Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS: (_positive_integer,),
    Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT: (_positive_integer,),
    Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS: (_positive_integer,),
    Config.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM: (_string,),
    Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME: (_string,),
    Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS: (_integer_from_zero,),
    Config.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS: (_positive_integer,),
    Config.UI_HOST: (_string,),
}
"""Known keys: key -> (type check, default), or (type check,) for a key that is not set by default."""

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
    Config.TOPOLOGY_METRICS_CONSUMER_REGISTER,
}
"""Keys that may change between a stop and a resume, because the state of tasks does not depend on them."""

_OWN_KEYS = "topology.emulator."

_CONSTANTS: dict[str, str] = {value: name for name, value in vars(Config).items() if name.isupper() and isinstance(value, str)}


def validate(conf: Mapping[str, Any]) -> None:
    """Check the values of all known keys; None is always legal.

    Unknown keys are accepted, as in Storm, because components may have their own. The exception is the prefix ``topology.emulator.``.

    :raises IllegalArgumentException: a value of the wrong type, in Storm's wording (the key is named by its constant, ``TOPOLOGY_DEBUG``); an
        unknown key that begins with ``topology.emulator.``.
    """
    for key, value in conf.items():
        if key in _KEYS:
            if value is not None:
                _KEYS[key][0](_CONSTANTS[key], value)
        elif isinstance(key, str) and key.startswith(_OWN_KEYS):
            legal = [known for known in _KEYS if known.startswith(_OWN_KEYS)]
            near = difflib.get_close_matches(key.removeprefix(_OWN_KEYS), [known.removeprefix(_OWN_KEYS) for known in legal], 1)
            more = {"hint": f"did you mean {_OWN_KEYS}{near[0]}?"} if near else {"legal": ", ".join(legal)}
            raise IllegalArgumentException(explain("The emulator has no such key.", given=key, **more))


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
