"""A whole DSkype on a broker that wants Kerberos: Spark's clients and those in Python log in, each in its own way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.deploy.machine.processes import module_command
from tests.needs import InstallationError, unavailable
from tests.security.kerberos import Realm, unusable
from tests.topology.runtime.helpers import descendants
from tests.waiting import wait_for

pytestmark = pytest.mark.product(seconds=60)

WORDS = ["lake", "park", "cafe", "tea", "boat"]
MESSAGES, SUBSCRIPTIONS = 3_000, 200


@dataclass
class Site:
    """A broker with a listener for Kerberos, and the commands of one who may use it."""

    folder: Path
    servers: str
    environment: dict[str, str]

    def command(self, *arguments: str) -> list[str]:
        return [*module_command("dskype.deploy", *arguments), "--config", str(self.folder / "config.yaml"), "--bootstrap-servers", self.servers]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**self.environment, **environment},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def written(self, name: str, lines: list[dict[str, object]]) -> str:
        file = self.folder / name
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(file)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if reason := unusable():
        unavailable(reason)
    folder = tmp_path_factory.mktemp("kerberos")
    with pytest.MonkeyPatch.context() as environment:
        try:
            realm = Realm(folder)
            own = realm.environment()
        except InstallationError as error:
            unavailable(str(error))
        properties = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": realm.login(realm.service, "kafka.keytab"),
        }
        client = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.kerberos.service.name": "kafka",
            "kafka.sasl.jaas.config": realm.login(realm.client, "ann.keytab"),
            "kafka.fetch.min.bytes": "2",  # Spark's clients alone know it
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(client))
        environment.setenv("JAVA_TOOL_OPTIONS", realm.java)
        with realm, EmbeddedBroker(properties=properties, listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"}) as broker:
            yield Site(folder, broker.servers("SASL_PLAINTEXT"), own)


def test_who_has_no_ticket_is_told_so_at_once(site: Site) -> None:
    refused = site.run("list", KRB5_CLIENT_KTNAME="", KRB5CCNAME="FILE:/no/such/cache")
    assert refused.returncode != 0 and refused.stdout == ""
    assert "GSSAPI needs a Kerberos ticket, given: No Kerberos credentials available" in refused.stderr and "run kinit" in refused.stderr


def test_dskype_is_exact_on_a_broker_that_wants_kerberos_and_when_executors_die(site: Site) -> None:
    rng = random.Random(7)
    messages = [{"text": " ".join(rng.sample(WORDS, 2)), "lat": round(rng.uniform(40, 50), 4), "lon": round(rng.uniform(0, 10), 4)} for _ in range(MESSAGES)]
    subscriptions = [
        {"id": f"s{i}", "type": "topk", "text": rng.choice(WORDS), "lat": rng.uniform(40, 50), "lon": rng.uniform(0, 10), "k": 5, "alpha": 0.5}
        for i in range(SUBSCRIPTIONS)
    ]
    log = site.folder / "submit.log"
    with open(log, "wb") as output:
        running = subprocess.Popen(
            site.command("submit", "-R", "dskype.yaml", "--verbose"),
            env=site.environment,
            cwd=site.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:

        def executors(component: str) -> list[int]:
            assert running.poll() is None, log.read_text()
            return [pid for pid, process in descendants(running.pid).items() if process.name.startswith(f"dsk:{component}"[:15])]

        wait_for(lambda: running.poll() is not None or b"is running" in log.read_bytes(), 120, "a running topology")
        for done in (
            site.run("sub", "add", site.written("subscriptions.jsonl", subscriptions)),
            site.run("publish", site.written("first.jsonl", messages[: MESSAGES // 2])),
        ):
            assert done.returncode == 0, done.stderr
        wait_for(lambda: executors("subscription-bolt") and executors("message-spout"), 60, "executors to kill")
        for component in ("subscription-bolt", "message-spout"):
            for pid in executors(component):
                os.kill(pid, signal.SIGKILL)
        assert site.run("publish", site.written("second.jsonl", messages[MESSAGES // 2 :])).returncode == 0
        verified = site.run("verify", "--wait", "200", "-o", "json")
        assert verified.returncode == 0, verified.stdout + verified.stderr + log.read_text()
        found = json.loads(verified.stdout)["compared"]
        assert found["messages"] == MESSAGES and found["deltas"] > 1_000, found
        ended = site.run("kill", "dskype", "-w", "0")
        assert ended.returncode == 0 and running.wait(60) == 0, ended.stderr
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
