"""One broker with every kind of secured listener; it grants the rights that SECURITY.md lists, and no others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from dskype.deploy.machine.broker import EmbeddedBroker
from tests.security.certificates import Authority, Identity
from tests.waiting import wait_for

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORD = 'canary-broker-"pass\\word;'
JAAS_PASSWORD = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
"""As it stands between the quotes of a JAAS line."""


@dataclass(frozen=True)
class Secured:
    """The broker, and what its clients need."""

    broker: EmbeddedBroker
    authority: Authority
    client: Identity
    folder: Path

    def jaas(self, module: str, user: str = "ann") -> str:
        return f'{module} username="{user}" password="{JAAS_PASSWORD}";'

    def grant(self, **names: str) -> None:
        """Give the rights that SECURITY.md lists.

        :param names: for NAME (of the topology), PRODUCT and GATEWAY (principals).
        """
        _grant(self.broker, documented_acls(**names))


def documented_acls(**names: str) -> list[ACL]:
    """Return what the commands of SECURITY.md say."""
    found = []
    for line in re.findall(r"^kafka-acls.sh \$ADMIN --add (.*)$", (Path(__file__).parents[2] / "SECURITY.md").read_text(), re.M):
        words = shlex.split(re.sub(r"\$([A-Z]+)", lambda m: names[m[1]], line))
        options = dict(zip(words[::2], words[1::2], strict=True))
        kind = "topic" if "--topic" in options else "group"
        pattern = ACLResourcePatternType[options.pop("--resource-pattern-type", "literal").upper()]
        found.append(
            ACL(
                options.pop("--allow-principal"),
                "*",
                ACLOperation[options.pop("--operation").upper()],
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType[kind.upper()], options.pop(f"--{kind}"), pattern),
            )
        )
        assert not options, line
    return found


def _grant(broker: EmbeddedBroker, acls: list[ACL]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        assert len(admin.create_acls(acls)["succeeded"]) == len(acls)
        # The controller has them. The broker, which this asks, applies them a moment later.
        wait_for(lambda: all(acl in admin.describe_acls(acl)[0] for acl in acls), 30, "the broker knows the rights")
    finally:
        admin.close()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that wants TLS, a password or a client's certificate, on a listener each."""
    folder, authority = tmp_path_factory.mktemp("secured"), Authority()
    own = authority.sign("broker")
    (folder / "broker.pem").write_text(own.key_pem() + own.chain_pem)
    (folder / "ca.pem").write_text(authority.pem)
    server_jaas = (PLAIN + f' username="x" password="x" user_ann="{JAAS_PASSWORD}" user_bob="{JAAS_PASSWORD}";').replace("\\", "\\\\")
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=client",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256",
        **{
            f"listener.name.{name}.{mechanism}.sasl.jaas.config": jaas
            for name in ("sasl_plaintext", "sasl_ssl")
            for mechanism, jaas in (("plain", server_jaas), ("scram-sha-512", f"{SCRAM};"), ("scram-sha-256", f"{SCRAM};"))
        },
    }
    listeners = {"SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
    with EmbeddedBroker(properties=properties, listeners=listeners) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # a request each: Kafka refuses one user twice
                assert admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ann", mechanism, PASSWORD)]) == {"ann": None}
            wait_for(lambda: len(admin.describe_user_scram_credentials(["ann"])["ann"]["credential_infos"]) == 2, 30, "the broker knows the passwords")
        finally:
            admin.close()
        tests_own = ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.PREFIXED)  # the fixture "name"
        _grant(broker, [ACL("User:ann", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, tests_own)])
        yield Secured(broker, authority, authority.sign("client"), folder)
