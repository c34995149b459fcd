"""Brokers that want TLS, passwords or certificates: what Java's settings say, every client in Python does."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import TopicAuthorizationFailedError

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.machine.broker import live_cluster
from dskype.deploy.machine.connection import Bootstrap, client_arguments
from dskype.deploy.machine.doctor import check_brokers
from dskype.deploy.machine.errors import OptionError
from dskype.spouts.topics import Topics
from dskype.topology.core.frames import OutRecord
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import KafkaInboxReader, read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC
from dskype.topology.runtime.transport.record_writer import make_writer
from tests.security.certificates import Authority, jks
from tests.security.conftest import PLAIN, SCRAM, Secured
from tests.topology.runtime.helpers import committed, committer, make_topic
from tests.waiting import wait_for

pytestmark = pytest.mark.product

Settings = dict[str, Any]


def inline_ca(s: Secured) -> Settings:
    return {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": s.authority.pem}


def folded_ca(s: Secured) -> Settings:
    return {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": " ".join(s.authority.pem.split("\n"))}


def ca_file(s: Secured) -> Settings:
    return {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(s.folder / "ca.pem")}


def ca_store(kind: str) -> Callable[[Secured], Settings]:
    def settings(s: Secured) -> Settings:
        path = s.folder / f"trust.{kind.lower()}"
        if not path.exists():
            s.authority.truststore(path, kind, "trust-pw")
        return {"kafka.ssl.truststore.type": kind, "kafka.ssl.truststore.location": str(path), "kafka.ssl.truststore.password": "trust-pw"}

    return settings


def inline_own(s: Secured) -> Settings:
    return {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": s.client.key_pem("key-pw"),
        "kafka.ssl.key.password": "key-pw",
        "kafka.ssl.keystore.certificate.chain": s.client.chain_pem,
    }


def own_file(s: Secured) -> Settings:
    path = s.folder / "client.pem"
    path.write_text(s.client.key_pem("key-pw") + s.client.chain_pem)
    return {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(path), "kafka.ssl.key.password": "key-pw"}


def own_store(kind: str) -> Callable[[Secured], Settings]:
    def settings(s: Secured) -> Settings:
        path = s.folder / "client.p12"
        path.write_bytes(s.client.pkcs12("store-pw"))
        if kind == "JKS":
            path = jks(path, s.folder / "client.jks", "store-pw")
        return {"kafka.ssl.keystore.type": kind, "kafka.ssl.keystore.location": str(path), "kafka.ssl.keystore.password": "store-pw"}

    return settings


def sasl(mechanism: str) -> Callable[[Secured], Settings]:
    return lambda s: {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": s.jaas(PLAIN if mechanism == "PLAIN" else SCRAM)}


def only_tls_13(s: Secured) -> Settings:
    """Librdkafka cannot insist on a version: producers and executors use another client."""
    return {"kafka.ssl.enabled.protocols": "TLSv1.3"}


WAYS = [
    ("SSL", "SSL", inline_ca),
    ("SSL", "SSL", folded_ca),
    ("SSL", "SSL", ca_file),
    ("SSL", "SSL", inline_ca, only_tls_13),
    ("SSL", "SSL", ca_store("JKS")),
    ("SSL", "SSL", ca_store("PKCS12")),
    ("MUTUAL", "SSL", inline_ca, inline_own),
    ("MUTUAL", "SSL", ca_file, own_file),
    ("MUTUAL", "SSL", inline_ca, own_store("PKCS12")),
    ("MUTUAL", "SSL", ca_store("JKS"), own_store("JKS")),
    ("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl("PLAIN")),
    ("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl("SCRAM-SHA-512")),
    ("SASL_SSL", "SASL_SSL", inline_ca, sasl("PLAIN")),
    ("SASL_SSL", "SASL_SSL", ca_file, sasl("SCRAM-SHA-256")),
    ("SASL_SSL", "SASL_SSL", ca_store("PKCS12"), sasl("SCRAM-SHA-512")),
]


def options(s: Secured, protocol: str, *parts: Callable[[Secured], Settings]) -> Settings:
    found: Settings = {"kafka.security.protocol": protocol}
    for part in parts:
        found |= part(s)
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join([way[0], *(f"{part.__qualname__.split('.')[0]}" for part in way[2:])]))
def test_every_client_gets_through_and_the_settings_travel(way: Any, secured: Secured, name: str) -> None:
    listener, protocol, *parts = way
    given = options(secured, protocol, *parts)
    kafka = KafkaSettings(secured.broker.servers(listener), given, client_arguments(given))
    kafka = pickle.loads(pickle.dumps(kafka))  # as it reaches the executors
    admin = TopicAdmin(kafka)
    try:
        admin.create({name: 1}, {})
        producer = kafka.producer()
        producer.send(name, value=b"through").get(timeout=30)
        producer.close()
        writer = make_writer(kafka, None)  # that of executors
        writer.write([OutRecord(name, 0, None, b"written")])
        writer.flush()
        assert [r.value for r in KafkaInboxReader(kafka).read(name, 0, 0, 2)] == [b"through", b"written"]
        admin.delete([name])
    finally:
        admin.close()


def test_the_checks_of_a_broker_get_through_as_well(secured: Secured) -> None:
    given = options(secured, "SASL_SSL", inline_ca, sasl("SCRAM-SHA-512"))
    servers = secured.broker.servers("SASL_SSL")
    assert live_cluster(servers, **client_arguments(given)) is not None
    assert [row.status for row in check_brokers(Bootstrap(servers, "test"), given)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("listener", "change"),
    [
        ("SSL", lambda s: {"kafka.ssl.truststore.certificates": Authority("stranger").pem}),
        ("MUTUAL", lambda s: {}),
        ("SASL_SSL", lambda s: {**sasl("SCRAM-SHA-512")(s), "kafka.sasl.jaas.config": f'{SCRAM} username="ann" password="wrong";'}),
    ],
    ids=["a stranger's authority", "no certificate of its own", "a wrong password"],
)
def test_who_may_not_gets_in_nowhere(listener: str, change: Any, secured: Secured) -> None:
    protocol = "SASL_SSL" if listener == "SASL_SSL" else "SSL"
    given = {**options(secured, protocol, inline_ca), **change(secured)}
    assert live_cluster(secured.broker.servers(listener), timeout_ms=2_000, **client_arguments(given)) is None


def test_a_gateway_may_send_and_read_results_and_nothing_else(secured: Secured, name: str) -> None:
    topics = Topics.for_topology(name)
    internal = {inbox_topic(name, "subscription-bolt"), topics.metrics, topics.plans, topics.dead_letters, topics.results, topics.topk, NIMBUS_TOPIC}
    admin = TopicAdmin(KafkaSettings(secured.broker.bootstrap_servers))
    admin.create(dict.fromkeys({*topics, *internal}, 1), {})
    admin.close()
    secured.grant(NAME=name, PRODUCT="ann", GATEWAY="bob")
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": secured.jaas(PLAIN, "bob")}
    kafka = KafkaSettings(secured.broker.servers("SASL_PLAINTEXT"), given, client_arguments(given))
    with PubSub(kafka, name) as client:
        assert client.running_conf() is None
        client.subscribe("s", text="lake", lat=43.0, lon=-87.9, k=1, alpha=0.5)
        client.publish(text="by the lake", lat=43.0, lon=-87.9)
        client.flush()
        assert client.stored == 2
    assert [len(read_to_end(kafka, t)) for t in (topics.messages, topics.subscriptions, topics.results)] == [1, 1, 0]
    producer = kafka.producer()
    try:
        for topic in sorted(internal):
            with pytest.raises(TopicAuthorizationFailedError):
                producer.send(topic, b"x").get(timeout=30)
    finally:
        producer.close()


def test_a_topology_that_may_not_commit_says_so_once_and_commits_when_it_may(secured: Secured, name: str) -> None:
    make_topic(KafkaSettings(secured.broker.bootstrap_servers), name)
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": secured.jaas(PLAIN, "ann")}
    kafka, told = KafkaSettings(secured.broker.servers("SASL_PLAINTEXT"), given, client_arguments(given)), []
    made = committer(kafka, name, f"dskype-{name}", told)
    try:
        wait_for(lambda: sum(made._failures.values()) > 2, 60, "several attempts")
        assert (
            len(told) == 1
            and "GroupAuthorizationFailedError" in told[0]
            and "allow its user Read on the group and on the topics, as SECURITY.md shows" in told[0]
        )
        secured.grant(NAME=name, PRODUCT="ann", GATEWAY="bob")
        wait_for(lambda: committed(kafka, f"dskype-{name}") == {name: 2}, 60, "a commit")
    finally:
        made.close(20)


def test_a_host_that_the_certificate_does_not_name_is_refused_unless_that_is_not_asked(secured: Secured) -> None:
    settings = options(secured, "SSL", inline_ca)
    checked, unchecked = client_arguments(settings), client_arguments({**settings, "kafka.ssl.endpoint.identification.algorithm": ""})
    assert checked["ssl_context"].check_hostname and not unchecked["ssl_context"].check_hostname
    assert pickle.loads(pickle.dumps(unchecked))["ssl_context"].check_hostname is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "kafka.sasl.login.class": "x"}, "given: kafka.sasl.login.class, kafka.ssl.cipher.suites"),
        ({"kafka.sasl.mechansim": "PLAIN"}, "given: kafka.sasl.mechansim"),
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, given: 'TLS'"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}, "must be one of PLAIN, SCRAM.*given: 'OAUTHBEARER'"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "needs kafka.sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": f'{PLAIN} username="u" password="hunter2";'}, "must be SASL_SSL or SASL_PLAINTEXT with kafka.sasl.jaas.config"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.ssl.key.password": "hunter2"}, "must be SSL or SASL_SSL with kafka.ssl.key.password"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1,TLSv1.2"}, "must be among TLSv1.2, TLSv1.3, given: TLSv1, TLSv1.2"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.certificates": "x"}, "must be PEM text with kafka.ssl.truststore.type=PEM"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "BKS"}, "must be PEM, PKCS12 or JKS, given: 'BKS'"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such.jks"}, "must be a file that can be read, given: '/no/such.jks'"),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
            },
            "must be given together",
        ),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.password": "hunter2"}, "must not be set with"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name_and_without_secrets(given: Settings, message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        client_arguments(given)
    assert "hunter2" not in str(refused.value)


def test_kerberos_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OptionError, match="GSSAPI .* needs the Python package gssapi"):
        client_arguments({"kafka.security.protocol": "SASL_PLAINTEXT"})


def test_a_key_that_needs_a_password_fails_and_does_not_ask_for_one(secured: Secured) -> None:
    given = {**options(secured, "SSL", inline_ca, inline_own), "kafka.ssl.key.password": ""}
    with pytest.raises(OptionError, match="kafka.ssl.keystore.key must be PEM certificates and a key that fit together"):
        client_arguments(given)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_store_that_its_password_does_not_open_is_refused(kind: str, secured: Secured) -> None:
    given = {**options(secured, "SSL", ca_store(kind)), "kafka.ssl.truststore.password": "wrong-pw"}
    with pytest.raises(OptionError, match="must be a store that kafka.ssl.truststore.password opens") as refused:
        client_arguments(given)
    assert "wrong-pw" not in str(refused.value)
