"""Which brokers to use, and with which client settings."""

from __future__ import annotations

import importlib
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dskype.deploy.machine import keystores
from dskype.deploy.machine.errors import BrokerError, OptionError
from dskype.topology.runtime.kafka.tls import TlsSettings, make_context, pem_blocks

BOOTSTRAP_VARIABLE = "DSKYPE_BOOTSTRAP_SERVERS"
WAIT_VARIABLE = "DSKYPE_BROKER_WAIT_S"
_WAIT_S = 60
_CONNECT_S, _ATTEMPT_EVERY_S, _TELL_EVERY_S = 3.0, 0.5, 10.0
_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000000 0000")
"""Kafka's ApiVersions in its first version, which every broker answers, also before a client has authenticated."""
_SECURITY = ("ssl.", "sasl.", "security.")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_TRANSLATED = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.kerberos.service.name",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.truststore.certificates",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    *(f"ssl.{s}.{k}" for s in ("truststore", "keystore") for k in ("location", "type", "password")),
}
_JAVA_ONLY = {
    "ssl.secure.random.implementation",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
}
"""Security settings for Java's own implementation. They go to Spark only; Python's clients need nothing in their place."""
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


@dataclass(frozen=True)
class Bootstrap:
    """The brokers to use.

    :ivar servers: ``host:port,...``; None: start an embedded broker.
    :ivar source: what named them: an option, an environment variable, or ``default``.
    """

    servers: str | None
    source: str

    @property
    def embedded(self) -> bool:
        """Tell whether no broker is named, so that an embedded one is started."""
        return self.servers is None


def resolve_bootstrap(option: str | None = None, environ: Mapping[str, str] | None = None) -> Bootstrap:
    """Choose the brokers: the option, else ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker. The value ``embedded`` also means that.

    :raises OptionError: the value is not ``host:port[,host:port...]``.
    """
    env = os.environ if environ is None else environ
    for value, source in ((option, "--bootstrap-servers"), (env.get(BOOTSTRAP_VARIABLE), BOOTSTRAP_VARIABLE)):
        if value is not None and value.strip():
            if value.strip().lower() == "embedded":
                return Bootstrap(None, source)
            return Bootstrap(",".join(f"{h}:{p}" for h, p in parse_servers(value, source)), source)
    return Bootstrap(None, "default")


def parse_servers(value: str, source: str = "bootstrap servers") -> list[tuple[str, int]]:
    """Split ``host:port,[::1]:port`` into pairs. IPv6 addresses keep their brackets.

    :raises OptionError: a part is malformed; the text names it.
    """
    servers = []
    for part in (p.strip() for p in value.split(",")):
        found = _HOST_PORT.fullmatch(part)
        if not found or not 0 < int(found.group(1)) < 65536:
            raise OptionError(f"{source} must be host:port[,host:port...], given: {part!r} in {value!r}", fix="for example 127.0.0.1:9092")
        servers.append((part.rpartition(":")[0], int(found.group(1))))
    return servers


def await_brokers(servers: str, progress: Callable[[str], None], environ: Mapping[str, str] | None = None, *, tls: ssl.SSLContext | None = None) -> None:
    """Wait until one of ``servers`` answers, up to ``DSKYPE_BROKER_WAIT_S`` seconds (default 60; 0: one attempt).

    Every command waits here, before it starts Spark or a client: clients would give up by timeouts of their own, silently, and would not say what to do.

    :param progress: gets a line of text at once when none answers, and then every ten seconds.
    :param tls: for brokers with TLS, the clients' ``ssl_context``.
    :raises BrokerError: no broker answers in time.
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
                _ask_broker(host.strip("[]"), port, tls)
                return
            except OSError as error:
                failures.append(f"{host}:{port}: {error.strerror or error}")
        waited = time.monotonic() - began
        if waited >= float(text):
            raise BrokerError(
                f"expected a broker that answers within {text} s ({WAIT_VARIABLE}), given: {'; '.join(failures)}",
                fix=f"start the broker, name another one with --bootstrap-servers, or wait longer with {WAIT_VARIABLE}",
            )
        if not told or waited - told >= _TELL_EVERY_S:
            progress(f"waiting for Kafka: {'; '.join(failures)}; giving up {text} s after the start ({WAIT_VARIABLE})")
            told = max(waited, 0.001)
        time.sleep(_ATTEMPT_EVERY_S)


def _ask_broker(host: str, port: int, tls: ssl.SSLContext | None) -> None:
    """Wait for any reaction of a broker. One that stands still takes connections, and does not react.

    :raises OSError: there is no connection, or no reaction.
    """
    with socket.create_connection((host, port), timeout=_CONNECT_S) as connection:
        try:
            if tls is not None:
                tls.wrap_socket(connection, server_hostname=host).close()
            else:
                connection.sendall(_VERSIONS_REQUEST)
                connection.recv(1)
        except TimeoutError:
            raise OSError(f"it takes the connection, but has not answered for {_CONNECT_S:g} s") from None
        except (ConnectionError, ssl.SSLError):  # a reaction; a client says better what is wrong
            return


def kafka_options(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``kafka.*`` settings of a configuration as text. Spark's Kafka source and sink use them unchanged.

    :raises OptionError: one names the brokers, which all clients get from :func:`resolve_bootstrap`.
    """
    if (servers := conf.get("kafka.bootstrap.servers")) is not None:
        raise OptionError(
            f"expected the brokers from --bootstrap-servers or {BOOTSTRAP_VARIABLE}, given: kafka.bootstrap.servers {servers!r}",
            fix="leave kafka.bootstrap.servers out of the configuration",
        )
    return {k: _text(v) for k, v in conf.items() if k.startswith("kafka.") and v is not None}


def client_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Java's client settings (``kafka.security.protocol`` or ``security.protocol``) to keyword arguments of kafka-python.

    Settings that say how to reach brokers apply to every client; those that tune a consumer or producer (``fetch.*``, ``linger.ms``) only to
    Spark's. The result can be pickled.

    :raises OptionError: Python's clients do not support a security setting, or settings contradict each other. Ignoring one would lead to
        errors that are hard to understand, or to less security than it seems.
    """
    given = {k.removeprefix("kafka."): _text(v) for k, v in options.items() if v is not None}
    unknown = sorted(k for k in given if k.startswith(_SECURITY) and k not in _TRANSLATED and k not in _JAVA_ONLY)
    if unknown:
        raise OptionError(
            f"expected security settings that both Spark's and Python's clients support, given: {_names(unknown)}",
            fix=f"leave them out; legal: {_names(sorted(_TRANSLATED))}",
        )
    result: dict[str, Any] = {}
    if "bootstrap.servers" in given:
        result["bootstrap_servers"] = [s.strip() for s in given["bootstrap.servers"].split(",")]
    for key, convert in (
        ("client.id", str),
        ("client.dns.lookup", str),
        ("request.timeout.ms", int),
        ("retry.backoff.ms", int),
        ("reconnect.backoff.ms", int),
        ("reconnect.backoff.max.ms", int),
        ("metadata.max.age.ms", int),
        ("connections.max.idle.ms", int),
        ("receive.buffer.bytes", int),
        ("send.buffer.bytes", int),
    ):
        if key in given:
            try:
                result[key.replace(".", "_")] = convert(given[key])
            except ValueError as e:
                raise OptionError(f"kafka.{key} must be a whole number, given: {given[key]!r}") from e
    result.update(_security(given))
    return result


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(keys: list[str]) -> str:
    return ", ".join(f"kafka.{k}" for k in keys)


def _one_of(given: Mapping[str, str], key: str, legal: tuple[str, ...], default: str) -> str:
    value = given.get(key, default).upper()
    if value not in legal:
        raise OptionError(f"kafka.{key} must be one of {', '.join(legal)}, given: {given[key]!r}")
    return value


def _security(given: Mapping[str, str]) -> dict[str, Any]:
    """Translate ``security.protocol`` and the settings that belong to it."""
    result = _sasl(given)
    tls = _tls(given)
    protocol = _one_of(given, "security.protocol", _PROTOCOLS, "PLAINTEXT")
    if not protocol.endswith("SSL") and (useless := sorted(k for k in given if k.startswith("ssl.") and given[k])):
        raise OptionError(
            f"kafka.security.protocol must be SSL or SASL_SSL with {_names(useless)}, given: {protocol!r}",
            fix="set kafka.security.protocol: without TLS these settings have no effect",
        )
    if not protocol.startswith("SASL") and (useless := sorted(k for k in given if k.startswith("sasl."))):
        raise OptionError(
            f"kafka.security.protocol must be SASL_SSL or SASL_PLAINTEXT with {_names(useless)}, given: {protocol!r}",
            fix="set kafka.security.protocol: without SASL these settings have no effect",
        )
    if "security.protocol" in given:
        result["security_protocol"] = protocol
    if protocol.startswith("SASL"):
        # GSSAPI is Java's default; kafka-python has none.
        result["sasl_mechanism"] = mechanism = _one_of(given, "sasl.mechanism", _MECHANISMS, "GSSAPI")
        if mechanism == "GSSAPI":
            _check_ticket()
        if mechanism != "GSSAPI" and "sasl_plain_username" not in result:
            raise OptionError(f"kafka.sasl.mechanism {mechanism} needs kafka.sasl.jaas.config with username and password, given: none", fix=_JAAS_EXAMPLE)
    if tls is not None:
        result["ssl_context"] = tls
    return result


def _check_ticket() -> None:
    """Check that Kerberos knows who this process is: without a ticket, clients would only say after half a minute that they reach no broker.

    :raises OptionError: the package for Kerberos is missing, or there is no ticket.
    """
    try:
        gssapi = importlib.import_module("gssapi")
    except ImportError:
        raise OptionError(
            "kafka.sasl.mechanism GSSAPI (the default) needs the Python package gssapi, given: it is not installed",
            fix="pip install '/path/to/dskype[kerberos]', or set kafka.sasl.mechanism to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        ) from None
    try:
        _ = gssapi.Credentials(usage="initiate").lifetime
    except gssapi.exceptions.GSSError as error:
        raise OptionError(
            f"kafka.sasl.mechanism GSSAPI needs a Kerberos ticket, given: {'; '.join(error.get_all_statuses(error.min_code, False))}",
            fix="run kinit, or name a keytab with KRB5_CLIENT_KTNAME and the realm's configuration with KRB5_CONFIG; kafka.sasl.jaas.config serves Java's clients only",
        ) from None


_JAAS_EXAMPLE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
_JAAS_FIELD = re.compile(r"""([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.S)
_JAAS_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if "sasl.kerberos.service.name" in given:
        result["sasl_kerberos_service_name"] = given["sasl.kerberos.service.name"]
    if "sasl.jaas.config" in given:
        result.update(_jaas(given["sasl.jaas.config"]))
    return result


def _jaas(line: str) -> dict[str, str]:
    """Read user and password from a JAAS line as Java does. Errors never quote the line."""
    fields = {}
    for m in _JAAS_FIELD.finditer(line):
        quoted = m[2] if m[2] is not None else m[3]
        fields[m[1]] = m[4] if quoted is None else re.sub(r"\\([0-7]{1,3}|.)", _unescape, quoted, flags=re.S)
    if re.match(r"\s*[\w.]*(PlainLoginModule|ScramLoginModule)\b", line):
        if "username" not in fields or "password" not in fields:
            raise OptionError(f"kafka.sasl.jaas.config must give username and password, given: only {sorted(fields)}", fix=_JAAS_EXAMPLE)
        return {"sasl_plain_username": fields["username"], "sasl_plain_password": fields["password"]}
    if "Krb5LoginModule" in line:
        return {}  # clients in Python take their ticket from the cache of tickets, or the keytab that the environment names
    raise OptionError(
        "kafka.sasl.jaas.config must name PlainLoginModule, ScramLoginModule or Krb5LoginModule, given: another module",
        fix="use SASL/PLAIN, SASL/SCRAM or Kerberos",
    )


def _unescape(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _JAAS_ESCAPES.get(found, found)


def _tls(given: Mapping[str, str]) -> Any:
    """Return the TLS context of the settings; None without TLS."""
    if not any(k.startswith("ssl.") for k in given) and not given.get("security.protocol", "").upper().endswith("SSL"):
        return None
    settings: dict[str, Any] = {
        "check_hostname": given.get("ssl.endpoint.identification.algorithm", "https") != "",
        "versions": _versions(given),
        **_trusted(given),
        **_own(given),
    }
    try:
        return make_context(TlsSettings(**settings))
    except (OSError, ValueError) as e:
        asked = [
            k
            for k in ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.key", "ssl.key.password")
            if given.get(k)
        ]
        raise OptionError(
            f"{_names(asked)} must be PEM certificates and a key that fit together, given: {e.strerror or type(e).__name__}",
            fix="check the files, kafka.ssl.truststore.type, kafka.ssl.keystore.type and kafka.ssl.key.password",
        ) from None


def _versions(given: Mapping[str, str]) -> tuple[str, ...]:
    legal = ("TLSv1.2", "TLSv1.3")
    names = [n.strip() for n in given.get("ssl.enabled.protocols", ",".join(legal)).split(",")]
    if given.get("ssl.protocol", "TLSv1.3") not in ("TLS", *legal) or not set(names) <= set(legal):
        raise OptionError(
            f"kafka.ssl.enabled.protocols and kafka.ssl.protocol must be among {', '.join(legal)}, "
            f"given: {', '.join(names)} and {given.get('ssl.protocol', 'TLSv1.3')}"
        )
    return tuple(names)


def _store(given: Mapping[str, str], store: str, inline: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the file of a store (None if it is given inline) and its type; refuse contradictions, as Java does."""
    location, kind = given.get(f"ssl.{store}.location"), given.get(f"ssl.{store}.type", "JKS").upper()
    if kind not in ("PEM", "JKS", "PKCS12"):
        raise OptionError(f"kafka.ssl.{store}.type must be PEM, PKCS12 or JKS, given: {kind!r}")
    text = [k for k in inline if given.get(k)]
    if text and (kind != "PEM" or location):
        wrong = f"kafka.ssl.{store}.location" if location else f"kafka.ssl.{store}.type {kind}"
        raise OptionError(
            f"{_names(text)} must be PEM text with kafka.ssl.{store}.type=PEM and without a file, given: {wrong} as well",
            fix=f"set kafka.ssl.{store}.type=PEM and leave kafka.ssl.{store}.location out",
        )
    for key in text:
        if not pem_blocks(given[key]):
            raise OptionError(
                f"kafka.{key} must be PEM {'certificates' if 'cert' in key else 'key'}, given: no such block",
                fix="-----BEGIN CERTIFICATE----- ... -----END CERTIFICATE-----, in a YAML file as a block (key: |)",
            )
    if kind == "PEM" and given.get(f"ssl.{store}.password"):
        raise OptionError(
            f"kafka.ssl.{store}.password must not be set with kafka.ssl.{store}.type=PEM, given: a password",
            fix="use kafka.ssl.key.password for an encrypted key",
        )
    return location or None, kind


def _trusted(given: Mapping[str, str]) -> dict[str, Any]:
    location, kind = _store(given, "truststore", ("ssl.truststore.certificates",))
    if location is None:
        return {"ca": given.get("ssl.truststore.certificates") or None}
    if kind == "PEM":
        return {"ca_file": location}
    return {"ca": keystores.trusted_certificates(location, kind, given.get("ssl.truststore.password"))}


def _own(given: Mapping[str, str]) -> dict[str, Any]:
    key, chain = given.get("ssl.keystore.key", ""), given.get("ssl.keystore.certificate.chain", "")
    location, kind = _store(given, "keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain"))
    if bool(key) != bool(chain):
        raise OptionError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain must be given together, given: one of them")
    password = given.get("ssl.key.password") or None
    if key:
        return {"own": f"{key}\n{chain}", "key_password": password}
    if location is None:
        return {}
    if kind == "PEM":
        return {"own_file": location, "key_password": password}
    return {"own": keystores.key_and_chain(location, kind, given.get("ssl.keystore.password"), password)}
