"""One broker with every kind of secured listener."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from dskype.deploy.broker import EmbeddedBroker
from tests.security.certificates import Authority, Identity

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

    def jaas(self, module: str) -> str:
        return f'{module} username="ann" password="{JAAS_PASSWORD}";'


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that wants TLS, a password or a client's certificate, on a listener each."""
    folder, authority = tmp_path_factory.mktemp("secured"), Authority()
    own = authority.sign("broker")
    (folder / "broker.pem").write_text(own.key_pem() + own.chain_pem)
    (folder / "ca.pem").write_text(authority.pem)
    server_jaas = (PLAIN + f' username="x" password="x" user_ann="{JAAS_PASSWORD}";').replace("\\", "\\\\")
    properties = {
        "ssl.keystore.type": "PEM", "ssl.keystore.location": folder / "broker.pem", "ssl.truststore.type": "PEM", "ssl.truststore.location": folder / "ca.pem",
        "listener.name.mutual.ssl.client.auth": "required", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256",
        **{f"listener.name.{name}.{mechanism}.sasl.jaas.config": jaas for name in ("sasl_plaintext", "sasl_ssl")
           for mechanism, jaas in (("plain", server_jaas), ("scram-sha-512", f"{SCRAM};"), ("scram-sha-256", f"{SCRAM};"))}}
    listeners = {"SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
    with EmbeddedBroker(properties=properties, listeners=listeners) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):      # a request each: Kafka refuses one user twice
                assert admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ann", mechanism, PASSWORD)]) == {"ann": None}
        finally:
            admin.close()
        yield Secured(broker, authority, authority.sign("client"), folder)
