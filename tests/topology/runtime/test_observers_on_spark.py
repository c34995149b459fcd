"""On Spark: hooks, event loggers and metrics consumers run in the executors' processes, and the sample follows commands."""

from __future__ import annotations

import json
import os

import word_count
from paced_spouts import SentenceSpout

from dskype.topology import Config
from dskype.topology.events import EventLogger
from dskype.topology.hooks import TaskHook, WorkerHook
from dskype.topology.metrics_consumers import MetricsConsumer
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient
from tests.waiting import wait_for

from .components import Diary


def write(conf, *line):
    """Append a line to the file that the configuration names."""
    Diary(conf["test.file"]).note(json.dumps(line))


class Process(WorkerHook):
    """Writes down in which process it is started."""

    def start(self, conf, context):
        write(conf, "worker", context.get_this_component_id(), os.getpid())


class Acks(TaskHook):
    """Writes acks of spouts down."""

    def prepare(self, conf, context):
        self.conf = conf

    def spout_ack(self, info):
        write(self.conf, "ack", info.spout_task_id, info.message_id)


class Events(EventLogger):
    """Writes events down."""

    def prepare(self, conf, arguments, context):
        self.conf = conf

    def log(self, event):
        write(self.conf, "event", event.component, list(event.values))


class Metrics(MetricsConsumer):
    """Writes counts of executions down."""

    def prepare(self, conf, argument, context, report_error):
        self.conf = conf

    def handle_data_points(self, task_info, data_points):
        write(self.conf, "metrics", task_info.src_component_id, dict(data_points).get("__execute-count"))


def test_observers_see_what_the_tasks_do(cluster, name, tmp_path):
    diary = Diary(tmp_path / "seen")

    def seen(kind):
        return [line[1:] for line in map(json.loads, diary.lines()) if line[0] == kind]

    conf = Config({"test.file": diary.path, Config.TOPOLOGY_AUTO_TASK_HOOKS: [f"{__name__}.Acks"], Config.TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS: 1})
    conf.set_num_event_loggers(1)
    conf.register_event_logger(f"{__name__}.Events")
    conf.register_metrics_consumer(f"{__name__}.Metrics")
    topology = word_count.topology(SentenceSpout(interval_ms=200))
    topology.worker_hooks.append(Process())
    with cluster.submit_topology(name, conf, topology) as handle:
        handle.backend.wait_until(lambda stats: stats.total("spout", "acked") > 5, 120)
        wait_for(lambda: len(seen("ack")) > 5, 60, "acks that a hook sees")
        assert seen("event") == []
        ClusterClient(cluster.environment.kafka).send({"name": name, "event": "DEBUG", "percent": 100, "component": "split"})
        wait_for(lambda: len(seen("event")) > 5, 60, "events")
        assert {component for component, _ in seen("event")} == {"split"}
        wait_for(lambda: any(component == "count" and counts for component, counts in seen("metrics")), 60, "metrics of a task")
        started = seen("worker")
        assert len({pid for _, pid in started}) >= handle.backend.plan.total_executors
        assert os.getpid() not in {pid for _, pid in started}
