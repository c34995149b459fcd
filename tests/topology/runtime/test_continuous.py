"""Continuous queries on real Spark and Kafka: exact though processes are killed."""

from __future__ import annotations

from dskype.topology.config import Config

from .components import sum_chain
from .test_process_faults import kill_a_worker, kill_an_executor, kill_the_supervisor, run_through


def continuous_chain(out, total, rate):
    topology, conf = sum_chain(out, total, rate)
    return topology, conf | {Config.TOPOLOGY_EMULATOR_TRANSPORT: "continuous"}


def test_killed_processes_change_nothing(cluster, name):
    def look(driver):
        assert driver._transports.continuous == {"numbers", "first", "second", "sink"}

    run_through(cluster, name, [kill_an_executor, kill_a_worker, kill_the_supervisor], look, continuous_chain)
