"""When a topology counts as running (without Spark and Kafka)."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError

from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.driver import TopologyDriver
from tests.topology.simulated.fault_topologies import TOPOLOGIES


class Driver:
    """Reports of one more component come in every time that it is waited for."""

    def __init__(self, fails=False):
        topology, conf = TOPOLOGIES["chain"]()
        self.plan, self.stats, self.fails = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **conf}, topology), TopologyStats(), fails
        self.coming, self.tenure = list(self.plan.component_ids), SimpleNamespace(term=7)
        self.stats.tasks.update({task: {"term": 6} for task in self.plan.task_component})  # what an earlier driver's tasks have reported
        self.asked, self._clock = 0, SimpleNamespace(request_snapshots=self.request_snapshots)

    def request_snapshots(self):
        self.asked += 1
        if self.asked == 1:
            raise KafkaTimeoutError

    def wait_until(self, condition, timeout_s, description="the condition"):
        if self.fails:
            raise TopologyError("the query was given up")
        component = self.coming.pop(0)
        self.stats.tasks[self.plan.component_tasks(component)[0]] = {"term": 7}
        if not condition(self.stats):
            raise TimeoutError(description)


def test_a_topology_runs_when_every_component_has_had_a_batch():
    driver, said = Driver(), []
    error = {"v": 1, "kind": "error", "topology": "t-1-0", "component": "first", "task": 1, "time_ms": 1, "error": "no such host"}
    driver.stats.feed(json.dumps(error).encode())
    TopologyDriver.await_first_batches(driver, said.append, lambda: True, 0)
    ids = driver.plan.component_ids
    assert driver.coming == [] and driver.asked == len(ids) == len(said) + 1
    assert said[0].startswith(f"waiting for the first batch of {ids[0]}, ")
    assert all(line.endswith("; the last error is of first: no such host") for line in said)
    TopologyDriver.await_first_batches(driver, said.append, lambda: True, 0)  # at once
    assert driver.asked == len(ids)


def test_an_error_of_an_earlier_run_is_not_the_last_one_of_a_start():
    driver, said = Driver(), []
    for time_ms, text in ((1000, "too old"), (1999, "the embedded broker has ended")):
        error = {"v": 1, "kind": "error", "topology": "t-1-0", "component": "first", "task": 1, "time_ms": time_ms, "error": text}
        driver.stats.feed(json.dumps(error).encode())
    TopologyDriver.await_first_batches(driver, said.append, lambda: True, 2000)
    assert said and not any("error" in line for line in said)


def test_a_topology_that_fails_or_is_killed_is_not_waited_for():
    with pytest.raises(TopologyError, match="given up"):
        TopologyDriver.await_first_batches(Driver(fails=True), print, lambda: True, 0)
    TopologyDriver.await_first_batches(driver := Driver(), print, lambda: False, 0)
    assert not driver.asked
