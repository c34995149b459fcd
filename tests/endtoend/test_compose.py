"""The compose file, run: Kafka, Spark's master, two workers, the driver and the metrics server in containers. On the way Spark's master dies and returns, and a worker dies."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from dskype.deploy.chaos.hosts import Containers
from dskype.deploy.machine.processes import spawn_tied
from tests.topology.runtime.helpers import wait_for

from .compose_lab import ROOT, lab
from .private_engine import unusable

_TIMEOUT_S = 600
_DEMO = "--messages 1200 --subscriptions 300 --rate 80"
_WORKERS = ("spark-worker-1", "spark-worker-2")


@pytest.fixture
def engine():
    """An engine with stand-ins for all images but Grafana's and Prometheus's."""
    if reason := unusable():
        if os.environ.get("CI"):
            pytest.fail(f"the compose file has to be tested here: {reason}")
        pytest.skip(f"THE COMPOSE FILE WAS NOT RUN: {reason}")
    with lab(without=("grafana", "prometheus")) as running:
        yield running
        print(f"containers took {running.cpu_s():.0f} s of processor time")


class Make:
    """``make TARGET`` where the containers are, with its output."""

    def __init__(self, engine, target, **variables):
        command = engine.inside("/usr/bin/timeout", str(_TIMEOUT_S), "/usr/bin/make", "-C", str(ROOT), target, *(f"{k}={v}" for k, v in variables.items()))
        self.output = ""
        self._process = spawn_tied(command, env=engine.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def read(self, until=None):
        """Read lines until one satisfies a condition, or to the end; return whether one does."""
        for line in self._process.stdout:
            self.output += line
            print(line, end="", flush=True)
            if until is not None and until(line):
                return True
        return False

    def end(self):
        """Read the rest and return the exit code."""
        self.read()
        return self._process.wait(_TIMEOUT_S)


def some_matched(line):
    found = re.search(r"([\d,]+) messages matched", line)
    return found is not None and int(found[1].replace(",", "")) > 0


def components(engine, service):
    """Return the names of the components that have an executor in a container (cut at 11 characters)."""
    processes = engine.run("top", f"dskype-{service}-1", "-eo", "pid,comm").stdout.decode()
    return set(re.findall(r"dsk:(\S+)", processes))


def master(engine):
    """Return what Spark's master says of itself; empty while it does not answer."""
    asked = engine.run("exec", "dskype-spark-master-1", "curl", "-fsS", "http://spark-master:8080/json/", check=False)
    return json.loads(asked.stdout) if asked.returncode == 0 else {}


def test_two_worker_containers_give_exact_results_though_the_master_starts_again_and_one_is_killed(engine, monkeypatch):
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    containers = Containers("dskype")
    demo = Make(engine, "compose-demo", DEMO_ARGS=_DEMO)
    assert demo.read(until=some_matched), engine.logs()
    wait_for(lambda: all(components(engine, worker) for worker in _WORKERS), 60, "work in both containers")
    containers.crash("spark-master")
    wait_for(lambda: (said := master(engine)) and said["status"] == "ALIVE" and said["aliveworkers"] == 2, 60, "the master's return")
    assert [app["state"] for app in master(engine)["activeapps"]] == ["RUNNING"], "the master has forgotten the topology"
    assert all(components(engine, worker) for worker in _WORKERS), "the workers have ended the topology's executors"
    containers.kill(_WORKERS[0])
    assert demo.end() == 0, engine.logs()
    assert re.search(r"verified  [\d,]+ results", demo.output), demo.output
    assert components(engine, _WORKERS[1])
    metrics = engine.run("exec", "dskype-metrics-1", "curl", "-fsS", "http://localhost:9464/metrics").stdout.decode()
    assert "dskype_tuples_sent_total{" in metrics
    assert Make(engine, "compose-down").end() == 0
    assert engine.run("ps", "-aq").stdout == b""
    assert b"dskype_topology" in engine.run("volume", "ls", "-q").stdout
