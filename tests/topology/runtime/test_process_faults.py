"""Processes are killed with SIGKILL, or stand still for a while, under load: the result is exact, and no task stalls for long."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from math import inf

import pytest

from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.watch import Janitor
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.waiting import wait_for

from .components import sum_chain, sums_expected
from .helpers import await_output, daemons, executors, kill, longest_gap_s, make_topic, output, stand_still, supervisors

TOTAL, RATE = 24_000, 4_000
STILL_S = 2


def kill_an_executor() -> None:
    kill(lambda: executors("first")[:1])


def kill_all_executors() -> None:
    kill(executors)


def kill_the_supervisor() -> None:
    kill(supervisors)


def kill_the_daemon() -> None:
    kill(daemons)


def stop_an_executor() -> None:
    stand_still(lambda: executors("first")[:1], STILL_S)


def stop_all_python() -> None:
    stand_still(lambda: [*daemons(), *supervisors(), *executors()], STILL_S)


def run_through(cluster: LocalCluster, name: str, faults: list[Callable[[], None]], transport: str, look: Callable[[TopologyDriver], None]) -> None:
    """Run the chain, inject the faults meanwhile, and check the result."""
    kafka = cluster.environment.kafka
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, TOTAL, RATE)
    # Records are dropped as soon as there is one snapshot behind them.
    conf |= {Config.TOPOLOGY_EMULATOR_TRANSPORT: transport, Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT: 1}
    with cluster.submit_topology(name, conf, topology) as handle:
        driver, times = handle.backend, []
        for i, fault in enumerate(faults):
            mark = TOTAL * (i + 1) // (len(faults) + 2)
            driver.wait_until(lambda stats: stats.total("sink", "executed") >= mark, 120, f"tuple {mark} at the sink")
            times.append(now_ms())
            fault()
        driver.wait_until(lambda stats: stats.total("sink", "executed") >= TOTAL, 120, "the last tuple at the sink")
        records = await_output(kafka, out, TOTAL, 60, "the last record")
        time.sleep(0.5)  # superfluous records would arrive now
        records = output(kafka, out)
        for fault, at, next_at in zip(faults, times, [*times[1:], inf]):
            print(f"{transport}, {fault.__name__}: longest gap {longest_gap_s(records, at, next_at):.1f} s", flush=True)
        print(f"query restarts: {dict(driver.state.reports.restarts)}; errors: {[(e['component'], e['error'][:100]) for e in driver.stats.errors]}", flush=True)
        assert Counter(r.value for r in records.values()) == sums_expected(TOTAL)
        assert handle.stats.total("second", "executed") == TOTAL
        assert driver.failure is None
        look(driver)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_kind_of_process_after_the_other_changes_nothing(cluster, name, monkeypatch, transport):
    begins = {}

    def look(driver):
        assert driver._queries.transports.real_time == (set() if transport == "micro-batch" else set(driver.plan.component_ids))
        admin = TopicAdmin(driver.kafka)
        begins.update({c: admin.begin_and_end(inbox_topic(name, c)) for c in driver.plan.component_ids})
        admin.close()

    monkeypatch.setattr(Janitor, "EVERY_S", 1)  # records that no snapshot needs are dropped meanwhile
    kills = [kill_an_executor, kill_the_daemon, kill_the_supervisor, kill_all_executors]
    run_through(cluster, name, [*kills, stop_an_executor, stop_all_python], transport, look)
    assert all(any(begin for begin, _ in partitions.values()) for partitions in begins.values()), f"nothing was dropped from an inbox: {begins}"


def test_a_spark_task_that_has_given_up_is_not_run_again_from_where_its_batch_began(cluster, name, monkeypatch):
    """Its batch began with the topology, and those records are gone. Spark would wait for them without a word."""
    monkeypatch.setattr(Janitor, "EVERY_S", 1)

    def look(driver):
        assert driver.state.reports.restarts == {"first": 1}
        (error,) = {e["error"] for e in driver.stats.errors if e["component"] == "first"}
        assert error.startswith("the query failed and starts again: ") and "died 6 times" in error

    def kill_until_the_task_gives_up() -> None:
        driver = cluster.manager.topologies[name].backend

        def killed() -> bool:
            for process in executors("first"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            return bool(driver.state.reports.restarts)

        wait_for(killed, 120, "the end of a Spark task")

    run_through(cluster, name, [kill_an_executor, kill_until_the_task_gives_up, kill_an_executor], "real-time", look)
