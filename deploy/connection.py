"""Which broker to talk to, and with which client settings."""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dskype.deploy.errors import BrokerError, OptionError

BOOTSTRAP_VARIABLE = "DSKYPE_BOOTSTRAP_SERVERS"
WAIT_VARIABLE = "DSKYPE_BROKER_WAIT_S"
_WAIT_S = 60
_CONNECT_S, _ATTEMPT_EVERY_S, _TELL_EVERY_S = 3.0, 0.5, 10.0
SECRET = re.compile(r"password|secret|jaas|token|credential|\.key$|private|keystore\.key", re.I)
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


@dataclass(frozen=True)
class Bootstrap:
    """The brokers to use: ``servers`` is None when an embedded one is to be started; ``source`` says who decided."""

    servers: str | None
    source: str

    @property
    def embedded(self) -> bool:
        return self.servers is None


def resolve_bootstrap(option: str | None = None, environ: Mapping[str, str] | None = None) -> Bootstrap:
    """Choose the brokers: the option, else ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker (also by the word 'embedded').

    Raises OptionError when the value is not 'host:port[,host:port...]'.
    """
    env = os.environ if environ is None else environ
    for value, source in ((option, "--bootstrap-servers"), (env.get(BOOTSTRAP_VARIABLE), BOOTSTRAP_VARIABLE)):
        if value is not None and value.strip():
            if value.strip().lower() == "embedded":
                return Bootstrap(None, source)
            return Bootstrap(",".join(f"{h}:{p}" for h, p in parse_servers(value, source)), source)
    return Bootstrap(None, "default")


def parse_servers(value: str, source: str = "bootstrap servers") -> list[tuple[str, int]]:
    """Split 'host:port,[::1]:port' into pairs (the brackets of IPv6 stay); raises OptionError naming the bad part."""
    servers = []
    for part in (p.strip() for p in value.split(",")):
        found = _HOST_PORT.fullmatch(part)
        if not found or not 0 < int(found.group(1)) < 65536:
            raise OptionError(f"{source} must be host:port[,host:port...], given: {part!r} in {value!r}", fix="for example 127.0.0.1:9092")
        servers.append((part.rpartition(":")[0], int(found.group(1))))
    return servers


def await_brokers(servers: str, progress: Callable[[str], None], environ: Mapping[str, str] | None = None) -> None:
    """Wait until one of ``servers`` takes connections, for ``DSKYPE_BROKER_WAIT_S`` seconds at most (default 60; 0: one attempt).

    Clients would give up by a timeout of their own, after Spark has been started, and would not say what to do.
    Raises BrokerError when none does in time.
    """
    env = os.environ if environ is None else environ
    text = env.get(WAIT_VARIABLE, "").strip() or str(_WAIT_S)
    if not re.fullmatch(r"[0-9]+([.][0-9]+)?", text):
        raise OptionError(f"{WAIT_VARIABLE} must be a number of seconds, 0 or more, given: {text!r}")
    began, told = time.monotonic(), 0.0
    while True:
        failures = []
        for host, port in parse_servers(servers):
            try:
                socket.create_connection((host.strip("[]"), port), timeout=_CONNECT_S).close()
                return
            except OSError as error:
                failures.append(f"{host}:{port}: {error.strerror or error}")
        waited = time.monotonic() - began
        if waited >= float(text):
            raise BrokerError(f"expected a broker that takes connections within {text} s ({WAIT_VARIABLE}), given: {'; '.join(failures)}",
                              fix=f"start the broker, name another one with --bootstrap-servers, or wait longer with {WAIT_VARIABLE}")
        if not told or waited - told >= _TELL_EVERY_S:
            progress(f"waiting for Kafka: {'; '.join(failures)}; giving up {text} s after the start ({WAIT_VARIABLE})")
            told = max(waited, 0.001)
        time.sleep(_ATTEMPT_EVERY_S)


def kafka_options(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``kafka.*`` settings of a configuration as text: Spark's Kafka source and sink take them as they are."""
    return {k: _text(v) for k, v in conf.items() if k.startswith("kafka.") and v is not None}


def client_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Java's client settings (``kafka.security.protocol`` or ``security.protocol``) to keyword arguments of kafka-python.

    Only settings that its admin client, consumer and producer all know are returned; others are left to Spark. Raises OptionError for
    security settings that cannot be carried over (JKS stores), because leaving them out would fail in a way that nobody understands.
    """
    given = {k.removeprefix("kafka."): _text(v) for k, v in options.items() if v is not None}
    result: dict[str, Any] = {}
    if "bootstrap.servers" in given:
        result["bootstrap_servers"] = [s.strip() for s in given["bootstrap.servers"].split(",")]
    for key, convert in (("security.protocol", str.upper), ("sasl.mechanism", str), ("sasl.kerberos.service.name", str), ("client.id", str),
                         ("client.dns.lookup", str), ("request.timeout.ms", int), ("retry.backoff.ms", int), ("reconnect.backoff.ms", int),
                         ("reconnect.backoff.max.ms", int), ("metadata.max.age.ms", int), ("connections.max.idle.ms", int)):
        if key in given:
            try:
                result[key.replace(".", "_")] = convert(given[key])
            except ValueError as e:
                raise OptionError(f"kafka.{key} must be a whole number, given: {given[key]!r}") from e
    if "sasl.jaas.config" in given:
        result.update(_jaas(given["sasl.jaas.config"]))
    result.update(_tls(given))
    return result


def redact(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that may be printed: values of passwords, tokens and JAAS lines become '******'."""
    return {k: "******" if SECRET.search(k) and v not in (None, "") else v for k, v in options.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _jaas(line: str) -> dict[str, str]:
    """Read user and password from a JAAS line; it is never quoted in an error."""
    fields = {m[1]: m[2] if m[2] is not None else m[3] for m in re.finditer(r"""(\w+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))""", line)}
    if re.match(r"\s*[\w.]*(PlainLoginModule|ScramLoginModule)\b", line):
        if "username" not in fields or "password" not in fields:
            raise OptionError(f"kafka.sasl.jaas.config must give username and password, given: only {sorted(fields)}",
                              fix='org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";')
        return {"sasl_plain_username": fields["username"], "sasl_plain_password": fields["password"]}
    if "Krb5LoginModule" in line:
        return {}                                      # the ticket cache serves both sides
    raise OptionError("kafka.sasl.jaas.config must name PlainLoginModule, ScramLoginModule or Krb5LoginModule, given: another module",
                      fix="use SASL/PLAIN, SASL/SCRAM or Kerberos")


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for store, argument in (("truststore", "ssl_cafile"), ("keystore", "ssl_certfile")):
        location = given.get(f"ssl.{store}.location")
        if location:
            kind = given.get(f"ssl.{store}.type", "JKS").upper()
            if kind != "PEM":
                raise OptionError(f"kafka.ssl.{store}.type must be PEM (Python cannot read Java key stores), given: {kind!r}",
                                  fix=f"convert {location} with keytool and openssl pkcs12, and set kafka.ssl.{store}.type=PEM")
            result[argument] = location
    if given.get("ssl.keystore.key") or given.get("ssl.keystore.certificate.chain"):
        raise OptionError("the client certificate must be a file: kafka.ssl.keystore.location, given: kafka.ssl.keystore.key or .certificate.chain",
                          fix="write key and chain to one PEM file, set kafka.ssl.keystore.location to it and kafka.ssl.keystore.type=PEM")
    if given.get("ssl.key.password"):
        result["ssl_password"] = given["ssl.key.password"]
    check_host = given.get("ssl.endpoint.identification.algorithm", "https") != ""
    if not check_host:
        result["ssl_check_hostname"] = False
    if given.get("ssl.truststore.certificates"):
        try:
            context = ssl.create_default_context(cadata=given["ssl.truststore.certificates"])
        except ssl.SSLError as e:
            raise OptionError(f"kafka.ssl.truststore.certificates must be PEM certificates: {e}") from e
        context.check_hostname = check_host
        if "ssl_certfile" in result:
            context.load_cert_chain(result.pop("ssl_certfile"), password=result.pop("ssl_password", None))
        result["ssl_context"] = context
    return result
