"""The broker fails or stands still under load and returns, once or several times: the result is exact, and work continues within seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter

import pytest

from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.kafka.clients import KafkaSettings

from .components import sum_chain, sums_expected
from .helpers import await_output, existing_topics, freeze, longest_gap_s, make_topic, output

pytestmark = pytest.mark.product(seconds=95)

TOTAL, RATE = 20_000, 4_000


SHORT = {"request.timeout.ms": 1_000, "default.api.timeout.ms": 2_000, "delivery.timeout.ms": 2_000, "max.block.ms": 2_000}
"""Timeouts of Kafka's clients in Spark, much shorter than the outage: all of them run out."""


def bounce(broker):
    """Restart the broker properly, and kill it twice, each time soon after its start."""
    broker.restart()
    for _ in range(2):
        time.sleep(0.5)
        broker.kill()
        broker.start()


def leave_for_longer_than_the_timeouts(broker):
    broker.kill()
    time.sleep(6)
    broker.start()


def stand_still_for_longer_than_the_timeouts(broker):
    freeze(broker.pid)
    time.sleep(6)
    os.kill(broker.pid, signal.SIGCONT)


@contextlib.contextmanager
def told_when_it_takes_too_long(driver, kafka, out):
    """Print what can be seen of a topology when a wait for it runs out."""
    try:
        yield
    except TimeoutError:
        counts = {c: (driver.stats.total(c, "executed"), driver.stats.total(c, "emitted")) for c in driver.plan.component_ids}
        print(f"{len(output(kafka, out))} records of output; executed and emitted by the statistics: {counts}; health: {driver.health()}")
        for log in sorted((driver.folder / "logs").iterdir()):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-15:], sep="\n")
        raise


@pytest.fixture(scope="module")
def weak():
    """A broker for the faults alone: its start takes seconds of processor time."""
    with EmbeddedBroker() as running:
        yield running


# The standstills come first: a broker that was killed has a short session with itself from then on, and one that stood still would fence itself.
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("fault", "timeouts"), [(stand_still_for_longer_than_the_timeouts, SHORT), (bounce, {}), (leave_for_longer_than_the_timeouts, SHORT)])
def test_a_broker_that_was_away_changes_nothing(cluster, weak, tmp_path, name, fault, timeouts, transport):
    kafka = KafkaSettings(weak.bootstrap_servers, {f"kafka.{key}": str(ms) for key, ms in timeouts.items()})
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, TOTAL, RATE)
    plan = TopologyPlan.build(name, f"{name}-1-1", {**conf, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}, topology)
    driver = TopologyDriver(plan, cluster.environment.spark, kafka, tmp_path / name)
    try:
        driver.activate()
        driver.wait_until(lambda stats: stats.total("sink", "executed") > TOTAL // 4, 60)
        at = now_ms()
        fault(weak)
        back = now_ms()
        with told_when_it_takes_too_long(driver, kafka, out):
            driver.wait_until(lambda stats: stats.total("sink", "executed") >= TOTAL, 90)
        records = await_output(kafka, out, TOTAL, 60, "the last record")
        first = min(r.timestamp_ms for r in records.values() if r.timestamp_ms > back)
        print(
            f"broker away for {(back - at) / 1000:.1f} s; first output {(first - back) / 1000:.1f} s after its return; "
            f"longest gap {longest_gap_s(records, at):.1f} s; restarts {dict(driver.state.reports.restarts)}; errors {[(e['component'], e['error'][:90]) for e in driver.stats.errors]}",
            flush=True,
        )
        assert Counter(r.value for r in records.values()) == sums_expected(TOTAL)
    finally:
        began = time.monotonic()
        driver.close(remove=True)
        print(f"closed in {time.monotonic() - began:.1f} s", flush=True)
    assert existing_topics(kafka, name) == {out, f"{name}.dead-letters"}
