"""The compose file, run by the README's commands: Kafka, Spark's master, two workers, the driver, metrics, web pages and Prometheus in containers.

On the way Spark's master dies and returns, and a worker dies.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
import time
from pathlib import Path

import pytest

from dskype.deploy.lab.chaos.hosts import Containers
from dskype.deploy.machine.processes import spawn_tied
from tests.needs import unavailable
from tests.waiting import Limit, wait_for

from .compose_lab import ROOT, lab
from .private_engine import unusable

pytestmark = pytest.mark.product(seconds=200)

_LIMIT_S = 600
_MESSAGES = 1200
_DEMO = f"--messages {_MESSAGES} --subscriptions 300 --rate 80"
_WORKERS = ("spark-worker-1", "spark-worker-2")


@pytest.fixture
def engine():
    """An engine with stand-ins for all images but Grafana's."""
    if reason := unusable():
        unavailable(f"THE COMPOSE FILE WAS NOT RUN: {reason}")
    with lab(without=("grafana",)) as running:
        yield running
        print(f"containers took {running.cpu_s():.0f} s of processor time")


def readme():
    """Return the README's section about containers."""
    (section,) = re.findall(r"^### In containers\n(.*?)^##", Path(ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return section


def commands():
    """Return the commands of the README's section about containers, in their order."""
    (block,) = re.findall(r"^```\n(.*?)^```$", readme(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def address(of):
    """Return the address that the README has for something."""
    (found,) = re.findall(rf"{of} (?:is|are) at (http://[\w.:]+)", readme())
    return found


class Command:
    """A command in the repository's folder where the containers are, with its output."""

    def __init__(self, engine, command, **variables):
        words = engine.inside("/usr/bin/timeout", "10h", *command, *(f"{k}={v}" for k, v in variables.items()))  # it ends a command and what that has started
        self.output = ""
        self._process = spawn_tied(words, env=engine.environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._end_a_hang, daemon=True).start()

    def _end_a_hang(self):
        limit = Limit(_LIMIT_S)
        while self._process.poll() is None:
            if limit.over:
                self._process.terminate()
            time.sleep(1)

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
        return self._process.wait()


def some_matched(line):
    found = re.search(r"; ([\d,]+) messages matched", line)
    return found is not None and int(found[1].replace(",", "")) > 0


def processes(engine, service):
    """Return the ids and names of the processes in a container, a line each."""
    return engine.run("top", f"dskype-{service}-1", "-eo", "pid,comm").stdout.decode()


def components(engine, service):
    """Return the names of the components that have an executor in a container (cut at 11 characters)."""
    return set(re.findall(r"dsk:(\S+)", processes(engine, service)))


def master(engine):
    """Return what Spark's master says of itself; empty while it does not answer."""
    asked = engine.run("exec", "dskype-spark-master-1", "curl", "-fsS", "http://spark-master:8080/json/", check=False)
    return json.loads(asked.stdout) if asked.returncode == 0 and asked.stdout else {}


def http(engine, url, *options):
    """Return status and body of a request, sent where the published ports are."""
    asked = subprocess.run(engine.inside("/usr/bin/curl", "-sS", "-m", "20", "-w", "\n%{http_code}", *options, url), capture_output=True, text=True, check=True)
    body, _, status = asked.stdout.rpartition("\n")
    return int(status), body


def check_pages(engine):
    """Check the web pages: a page, answers of both APIs, who is served, and the token, with which a message is published."""
    url = address("the web pages")
    status, page = http(engine, f"{url}/dskype/map.html")
    assert status == 200 and "<title>" in page and http(engine, f"{url}/")[0] == 200
    status, answer = http(engine, f"{url}/api/v1/topology/summary")
    assert status == 200 and [(t["name"], t["status"]) for t in json.loads(answer)["topologies"]] == [("dskype", "ACTIVE")]
    status, answer = http(engine, f"{url.replace('127.0.0.1', 'localhost')}/api/dskype/topologies")
    assert (status, json.loads(answer)) == (200, {"topologies": ["dskype"]})
    port = url.rpartition(":")[2]
    for host in ("evil.example", f"spark-master:{port}", f"0.0.0.0:{port}"):
        status, answer = http(engine, f"{url}/api/v1/topology/summary", "-H", f"Host: {host}")
        assert status == 400 and "does not go by this name" in answer, host
    said = engine.run("logs", "dskype-ui-1")
    (token,) = re.findall(rf"^UI: {re.escape(url)}/#token=(\S+)$", (said.stdout + said.stderr).decode(), re.MULTILINE)
    for headers, expected in ((), 401), (("-H", f"Authorization: Bearer {token}"), 200):
        status, answer = http(engine, f"{url}/api/dskype/messages", *headers, "-d", '{"id": "by-hand", "text": "lake park", "lat": 43, "lon": -88}')
        assert status == expected, answer


def processed(engine):
    """Return how many messages the topology has processed, by the measures of the web pages."""
    return json.loads(http(engine, f"{address('the web pages')}/api/dskype/measures")[1])["messages"]["processed"]


def check_limits(engine):
    """Check that no container can write but where it has to, that none has rights, and that each has a limit of memory and of processes."""
    ids = engine.run("ps", "-q").stdout.decode().split()
    for one in json.loads(engine.run("inspect", *ids).stdout):
        name, host = one["Name"].strip("/"), one["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"] and "no-new-privileges:true" in host["SecurityOpt"], name
        assert host["Memory"] > 0 and host["PidsLimit"] > 0, name
        status = engine.run("exec", name, "cat", "/proc/self/status").stdout.decode()
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE) and re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE), name
        assert engine.run("exec", name, "touch", "/home/dskype/written", check=False).returncode != 0, name
    for name in ("topology", "metrics", "ui", _WORKERS[1]):
        link = engine.run("exec", f"dskype-{name}-1", "readlink", "/home/dskype/.dskype/part/of-the-image").stdout.decode().strip()
        assert link == "/opt/dskype/.home/part/of-the-image", name


def check_prometheus(engine):
    """Check that Prometheus has the topology's metrics, and that all rules can be evaluated."""
    url = address("Prometheus")

    def active():
        answer = json.loads(http(engine, f"{url}/api/v1/query?query=dskype_topology_active")[1])
        return [(series["metric"]["topology"], series["value"][1]) for series in answer["data"]["result"]] == [("dskype", "1")]

    wait_for(active, 30, "the topology's metrics")

    def pages() -> bool:
        answer = json.loads(http(engine, f"{url}/api/v1/query?query=dskype_reader_refusals_total%7Bjob%3D%22dskype-ui%22%7D")[1])
        return {series["metric"]["instance"] for series in answer["data"]["result"]} == {"ui:18080"}

    wait_for(pages, 60, "the metrics of the web server, which refuses the names above")
    groups = json.loads(http(engine, f"{url}/api/v1/rules")[1])["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    assert {rule["name"] for group in groups for rule in group["rules"]} >= {"DskypeTopologyGone", "DskypeDeadLetters"}


def test_two_worker_containers_give_exact_results_though_the_master_starts_again_and_one_is_killed(engine, monkeypatch):
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    containers = Containers("dskype")
    start, stop = commands()
    demo = Command(engine, start, DEMO_ARGS=_DEMO)
    assert demo.read(until=some_matched), engine.logs()
    wait_for(lambda: all(components(engine, worker) for worker in _WORKERS), 60, "work in both containers")
    containers.crash("spark-master")
    wait_for(lambda: (said := master(engine)) and said["status"] == "ALIVE" and said["aliveworkers"] == 2, 60, "the master's return")
    assert [app["state"] for app in master(engine)["activeapps"]] == ["RUNNING"], "the master has forgotten the topology"
    # A worker that asks to register in the moment in which the master looks at what it knows is told to end its executor; the topology gets another one.
    wait_for(lambda: all(components(engine, worker) for worker in _WORKERS), 120, "work in both containers")
    time.sleep(6)  # another fault, when the first one is over
    containers.kill(_WORKERS[0])
    assert demo.end() == 0, f"{demo.output}\n{engine.logs()}"
    assert re.search(r"verified  [\d,]+ results", demo.output), demo.output
    wait_for(lambda: components(engine, _WORKERS[1]), 60, "work in the container that is left")
    metrics = engine.run("exec", "dskype-metrics-1", "curl", "-fsS", "http://localhost:9464/metrics").stdout.decode()
    assert "dskype_tuples_sent_total{" in metrics
    check_pages(engine)
    wait_for(lambda: processed(engine) == _MESSAGES + 1, 120, "the message that was published on the web pages")
    check_prometheus(engine)
    check_limits(engine)
    ports = engine.run("ps", "--format", "{{.Ports}}").stdout.decode()
    assert set(re.findall(r"([\d.]+|\[?:+\]?):\d+->", ports)) == {"127.0.0.1"}, ports
    assert Command(engine, stop).end() == 0
    assert engine.run("ps", "-aq").stdout == b""
    assert engine.added("*.nbc") == [], "kernels were compiled in containers, although this machine has them"
    assert b"dskype_topology" in engine.run("volume", "ls", "-q").stdout


@pytest.fixture
def secure_engine():
    """An engine for the compose file with TLS and passwords, without Prometheus and the web pages."""
    if reason := unusable():
        unavailable(f"THE COMPOSE FILE WAS NOT RUN: {reason}")
    with lab(without=("grafana", "prometheus"), secure=True) as running:
        yield running


def test_with_tls_and_passwords_results_are_exact_and_nobody_gets_in_without_them(secure_engine):
    engine = secure_engine
    demo = Command(engine, ["make", "compose-demo"], SECURE="1", DEMO_ARGS="--messages 400 --subscriptions 100 --rate 80")
    assert demo.end() == 0, f"{demo.output}\n{engine.logs()}"
    assert re.search(r"verified  [\d,]+ results", demo.output), demo.output

    def listed(*variables):
        return engine.run("exec", *variables, "dskype-metrics-1", "dskype", "list", check=False, timeout_s=120)

    assert b"ACTIVE" in listed().stdout
    stranger = listed("--env", "DSKYPE_CONFIG=", "--env", "DSKYPE_BROKER_WAIT_S=0")
    assert stranger.returncode != 0 and b"ACTIVE" not in stranger.stdout
    files = engine.run(
        "exec", "dskype-topology-1", "sh", "-c", "cd /secrets && stat -c '%a %u %n' * && cat broker.properties spark/spark-defaults.conf"
    ).stdout.decode()
    assert {line.split()[0] for line in files.splitlines() if re.match(r"\d+ 1000 ", line)} == {"600", "700"}
    secrets = re.findall(r'password="(\w+)"|secret (\w+)', files)
    shown = engine.logs() + engine.run("inspect", *engine.run("ps", "-q").stdout.decode().split()).stdout.decode() + demo.output
    assert len(secrets) == 2 and not [one for pair in secrets for one in pair if one and one in shown], "a secret is shown"
    assert Command(engine, ["make", "compose-down"], SECURE="1").end() == 0
