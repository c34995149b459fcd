"""``dskype advise`` on a topology that runs on Spark and Kafka."""

from __future__ import annotations

import socket
import time
from collections import Counter

import pytest

from dskype.deploy.capacity import watching
from dskype.deploy.capacity.rules import Processors
from dskype.deploy.cli.main import main
from dskype.topology import Fields, TopologyBuilder
from tests.deploy.capacity.asking import asker
from tests.topology.runtime.components import PacedNumbers, Recorder, RunningSum, sums_expected
from tests.topology.runtime.helpers import await_output, executors, make_topic
from tests.waiting import wait_for


class SlowSum(RunningSum):
    """A running sum that waits for something with every tuple, as one does that asks a service."""

    def execute(self, tup, collector):
        time.sleep(0.01)
        super().execute(tup, collector)


@pytest.fixture
def idle_processors(monkeypatch):
    """Let the processors of this machine seem idle: other tests run on them, too."""
    monkeypatch.setattr(watching, "hosts_between", lambda before, after: {now.name: Processors(now.processors, 0.1) for now in after.values()})


def test_a_component_with_too_few_executors_gets_more_and_results_stay_exact(cluster, name, idle_processors, capsys):
    kafka = cluster.environment.kafka
    out = make_topic(kafka, f"{name}-out")
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(1 << 40, 150))
    builder.set_bolt("first", SlowSum(), 1).set_num_tasks(4).fields_grouping("numbers", Fields("key"))
    builder.set_bolt("second", RunningSum(), 1).fields_grouping("first", Fields("key"))
    builder.set_bolt("sink", Recorder(out)).global_grouping("second")
    conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 1000}

    advise = asker(name, kafka, capsys)
    with cluster.submit_topology(name, conf, builder.create_topology()) as handle:
        handle.backend.wait_until(lambda stats: stats.total("sink", "executed") > 100, 60)
        # While a long batch runs its tasks report nothing: then nothing is advised for them.
        advised = wait_for(lambda: next((one for one in advise()["advice"] if (one["kind"], one["component"]) == ("executors", "first")), None), 120, "advice")
        assert list(wait_for(lambda: advise().get("hosts"), 120, "figures")) == [socket.gethostname()]
        assert advised["numbers"]["executors"] == 1 and advised["numbers"]["busiest"] > 0.5 and advised["executors"]["first"] > 1
        assert len(executors("first")) == 1, "nothing is changed without --apply"
        applied = wait_for(lambda: advise("--apply").get("applied"), 120, "the change")
        assert applied["first"] > 1
        wait_for(lambda: len(executors("first")) == applied["first"], 60, "its executors")
        cluster.deactivate(name)
        capsys.readouterr()
        assert main(["advise", name, "--seconds", "1", "--bootstrap-servers", kafka.bootstrap_servers]) == 1
        assert "takes no messages now" in capsys.readouterr().err
        total = handle.stats.total("numbers", "emitted")

        def arrived() -> bool:
            nonlocal total
            total = handle.stats.total("numbers", "emitted")
            return handle.stats.total("sink", "executed") == total

        wait_for(arrived, 90, "the last sums")
        records = await_output(kafka, out, total, 60, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)
