"""What is secret leaves the process hidden, and comes back from whoever knew it."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from py4j.java_gateway import GatewayParameters, JavaGateway

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import conf_item, file_conf, pair
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.registry import TOPOLOGIES
from dskype.deploy.metrics.meter import Meter
from dskype.deploy.metrics.prometheus import Collector
from dskype.spouts.settings import Settings
from dskype.topology import BasicBolt, Fields, TopologyBuilder, TopologyError
from dskype.topology.config import DEFAULTS
from dskype.topology.core.redaction import HIDDEN, SPARK_KEYS, TABLE, LineRedactor, RedactingFormatter, is_secret, redact, redact_text, restore_secrets
from dskype.topology.flux import FluxException, load
from dskype.topology.local import LocalCluster
from dskype.topology.nimbus.manager import ManagedTopology, TopologyManager
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.tls import TlsSettings
from dskype.topology.runtime.processes.executor_log import write_log
from dskype.topology.runtime.spark import session
from dskype.topology.runtime.spark.session import network_warning, start_session
from dskype.topology.testing import TestWordSpout as WordSpout
from tests.waiting import wait_for

HUSH = "open-sesame-58"
CONF: dict[str, Any] = {
    "topology.workers": 2,
    "dskype.store": "redis",
    "dskype.store.options": {"url": f"redis://ann:{HUSH}@host:1/0", "password": HUSH, "password.env": "NAME"},
    "my.list": [{"api_key": HUSH}, f"https://u:{HUSH}@h/?x=1"],
    "my.token": 5858,
    "my.empty.password": "",
}
SEEN = {
    "topology.workers": 2,
    "dskype.store": "redis",
    "dskype.store.options": {"url": f"redis://ann:{HIDDEN}@host:1/0", "password": HIDDEN, "password.env": "NAME"},
    "my.list": [{"api_key": HIDDEN}, f"https://u:{HIDDEN}@h/?x=1"],
    "my.token": HIDDEN,
    "my.empty.password": "",
}


class Mute(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["word"] == "fail":
            raise ValueError

    def declare_output_fields(self, declarer: Any) -> None:
        pass


def topology() -> Any:
    builder = TopologyBuilder()
    builder.set_spout("words", WordSpout())
    builder.set_bolt("mute", Mute()).shuffle_grouping("words").add_configurations({"my.password": HUSH})
    return builder.create_topology()


# --- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.key.password",
        "kafka.ssl.keystore.key",
        "ssl.truststore.password",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "fs.azure.account.key.x.blob",
        "spark.kubernetes.authenticate.oauthToken",
        "apiKey",
        "PASSWD",
        "aws_credentials",
        "private_key",
        "spark.redis.auth",
        "Authorization",
        "passphrase",
    ],
)
def test_secret_keys_are_known_to_us_and_to_spark(key: str) -> None:
    assert is_secret(key)
    assert key == "spark.redis.auth" or re.search(SPARK_KEYS, key)


SAMPLES = [
    *(
        "password",
        "db_password_main",
        "kafka.ssl.key.password",
        "passwd",
        "passphrase",
        "secret",
        "secret_key",
        "secret_value",
        "client-secret",
        "sasl.jaas.config",
    ),
    *("token", "oauthToken", "X-Amz-Security-Token", "credential", "aws_credentials", "private_key", "bearer", "Authorization", "Proxy-Authorization", "auth"),
    *("redis.auth", "pwd", "pass", "passcode", "psk", "access_key", "AccountKey", "account_key", "api-key", "x-api-key", "auth_key", "encryption.key"),
    *("passwords", "access_token", "spark.authenticate.secret", "PASSWORD", "SASL.JAAS.CONFIG", "API_KEY", "AUTH"),
    *(
        "cookie",
        "Set-Cookie",
        "masterauth",
        "dbpass",
        "keypass",
        "requirepass",
        "storepass",
        "user.userpass",
        "db_pw",
        "hmac_key",
        "jwt.key",
        "master-key",
        "passkey",
        "ssh_key",
    ),
    *("keystore.key", "basic.auth.user.info", "shared_key", "SharedAccessKey", "signing_key", "ssl_key", "tls.key", "apiKey", "access key", "private key"),
]
"""Names that are secret, at least one for each alternative of the table."""
IN_QUERIES = ["sig", "signature", "delegation", "X-Amz-Signature", "X-Goog-Signature", "key"]
PLANTED = "LiveCanary4711/aB+c=="
WAYS = [
    *(
        "{n}={v}",
        "at h: {n}={v} given",
        "{n}: {v}",
        "a {n}: {v}",
        "a {n} : {v}, b",
        "a {n} = {v}; b",
        "a {n} -> {v} b",
        "a {n} => {v}",
        "a {n}:={v}",
        "(a={n}, {n}={v})",
        "{n} = {v}, user=ann",
        "{n} -> {v}",
        "{n} => {v}",
        "{n}: [{v}]",
        "{n}=b'{v}'",
        "config: {n}={v}/{v}+{v}==",
    ),
    *(
        "Settings({n}='{v}', a=1)",
        '{n}="{v}"',
        "{{'{n}': '{v}', 'a': 1}}",
        '{{"a": 1, "{n}": "{v}"}}',
        "{{'{n}': b'{v}'}}",
        "a {n}=[{v}]",
        '{{"{n}": ["x", "{v}"]}}',
    ),
    *(
        '{{"{n}": {{"value": "{v}", "a": [1]}}}}',
        '{{\\"{n}\\": \\"{v}\\", \\"a\\": 1}}',
        "conf['{n}'] = '{v}'",
        "--{n}={v}",
        "run --{n} {v} --a b",
        "['run', '--{n}', '{v}']",
    ),
    *(
        "[('{n}', '{v}'), ('a', 'b')]",
        "((b'{n}', b'{v}'),)",
        "GET /?{n}={v}&a=1",
        "POST a=1&{n}={v}",
        "<{n}>{v}</{n}>",
        "Server={{h}};{n}={v};Port=1",
        "{n}: Bearer {v}",
    ),
    *(
        "a {n}: Basic {v}",
        "- {n}: one {v} two",
        "a\n  {n}: {v} more\nb",
        "given: '{n}={v}'; hint: none",
        "error: {n}={v}",
        '  "{n}": "{v}",',
        "{n}='{v}",
        "{n}: ({v}, a",
        '{n}="a\\"{v}"',
    ),
    *(
        "x = ('{n}' , '{v}')",
        '[["{n}", "{v}"], ["a", "b"]]',
        "{n}[0]={v}",
        "config['db']['{n}']['main'] = '{v}'",
        "`{n}`={v}",
        "{n}\t{v}",
        "{n}\xa0=\xa0{v}",
        "\x1b[31m{n}\x1b[0m=\x1b[1m{v}\x1b[0m",
        "a {n}='a' '{v}'",
        "a {n}='a' + \"{v}\"",
        "client.{n}('{v}')",
    ),
    *(
        "<{n}><![CDATA[{v}]]></{n}>",
        "<property name='{n}' value='{v}'/>",
        '<entry key="{n}">{v}</entry>',
        "<name>{n}</name><value>{v}</value>",
        '{{"name": "{n}", "value": "{v}"}}',
        "{{name: {n}, value: {v}}}",
        "run -{n} {v} -a b",
        "['run', '--{n}=one {v} two', 'x']",
        '{{"Env": ["A=1", "{n}=one \\"{v} two", "B=2"]}}',
        'echo {{\\"Env\\": [\\"{n}=one {v} two\\"]}}',
        '\'{{"{n}": "a\\\\"{v}", "b": 1}}\'',  # what repr() makes of JSON
        "&quot;{n}&quot;: &quot;{v}&quot;",
        "\\u0022{n}\\u0022:\\u0022{v}\\u0022",
        "((spark.{n},{v}),(spark.a,b))",
    ),
]
NAMELESS = [
    'sent Authorization: Digest username="u", response="{v}"',
    *(
        "Bearer {v}",
        "sent bearer {v} to h",
        "Basic {v}",
        "postgres://u:{v}@host/db",
        "postgres://u:p@ss/{v}@host",
        "https://{t}@host/x",
        "redis://:{v}@h:1,redis://:{v}@h:2",
    ),
    *(
        "whsec_{v}",
        "a whsec_{v}, b",
        "eyJhbGciOiJIUzI1NiJ9.{t}.{t}",
        "ghp_{t}{t}",
        "github_pat_{t}",
        "xapp-1-{t}",
        "sk_live_{t}",
        "pypi-{t}{t}",
        "http://u:a b{v}@h/",
        "glpat-{t}",
        "xoxb-{t}",
        "hvs.{t}{t}",
        "POST https://hooks.slack.com/services/T01/B01/{t}{t}",
        "postgres:\\/\\/u:{v}@host",
        "postgres://u:it's{t}@host",
        "at 'redis://u:{t}\"{t}@host/0', again",
        "curl -s -u ann:{v} https://h",
        "curl --user 'ann:{v} x' https://h",
        "curl -uann:{v} https://h",
        "['curl', '-u', 'ann:{v}', 'https://h']",
        "sshpass -p {v} ssh h",
        "redis-cli -h host -a {v} ping",
        "['redis-cli', '-a', '{v}']",
        "Cookie: a=1; session={v}",
        "sent Set-Cookie: a=1; session={v}",
        "ALTER USER ann WITH PASSWORD '{v}'",
        "CREATE ROLE ann PASSWORD '{v}' LOGIN",
        "create user ann identified by '{v}'",
        "-----BEGIN PRIVATE KEY-----\n{v}\n-----END PRIVATE KEY-----",
    ),
    *(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{v}",
        *(f"https://h/c?a=1&{name}={{v}}&b=2" for name in IN_QUERIES),
        *(f"https://h/?{name}={{v}}" for name in IN_QUERIES),
    ),
]
SECRETS = [form.format(n=name, v=PLANTED, t="LiveCanary4711x") for form in WAYS for name in SAMPLES if " " not in name or form.startswith("a ")]
SECRETS += [form.format(v=PLANTED, t="LiveCanary4711x") for form in NAMELESS]


def test_every_name_of_the_table_has_a_sample_and_every_sample_is_secret() -> None:
    alternatives = [f"(?i:{one})" for where in ("anywhere", "as the last part") for one in _alternatives(TABLE[where])]
    first, _, last = TABLE["anywhere, of keys"].partition(")")
    alternatives += [f"(?i:{one}{last})" for one in first.removeprefix("(?:").split("|")]
    assert len(alternatives) > 20
    assert [one for one in alternatives if not any(re.search(one, name) for name in SAMPLES)] == []
    assert [name for name in SAMPLES if not is_secret(name)] == []


def _alternatives(pattern: str) -> list[str]:
    """Return what stands between ``|``, with the beginning and the end that all share."""
    begin, end = ("(?:^|[?&._-])(?:", ")$") if pattern.startswith("(?:^") else ("", "")
    return [f"{begin}{one}{end}" for one in pattern.removeprefix(begin).removesuffix(end).split("|")]


@pytest.mark.long
def test_every_name_in_every_form_is_hidden() -> None:
    assert len(SECRETS) > 1500
    assert [text for text in SECRETS if "Canary" in redact_text(text) or HIDDEN not in redact_text(text)] == []
    once = [redact_text(text) for text in SECRETS]
    assert [text for text in once if redact_text(text) != text] == []


def test_what_follows_a_secret_and_names_of_classes_stay() -> None:
    for text, seen in {
        f"password={PLANTED}, user=u": f"password={HIDDEN}",
        f"given: password={PLANTED}, user=u": f"given: password={HIDDEN}, user=u",
        f"given: ('pwd': [{PLANTED}], 'a': 1)": f"given: ('pwd': {HIDDEN}, 'a': 1)",
        f"Authorization: Bearer {PLANTED}\nHost: h": f"Authorization: {HIDDEN}\nHost: h",
        f"a <token type='x'>{PLANTED}</token> b": f"a <token type='x'>{HIDDEN}</token> b",
    }.items():
        assert redact_text(text) == seen
    for text in (
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "25/01/01 INFO HadoopDelegationTokenManager: Attempting to login",
        "Basic authentication failed: the bearer token is missing",
        "password.env: NAME, ssl.keystore.location=/etc/k.p12 and spark.authenticate.secret.file=/x",
        "2026-11-27 10:00:00,123 INFO a.b key=7 partition.key=8 https://host/a/@b and a@b.c",
        "dskype.tokenizer: plain; monkey=1, bypass=2, author: me",
        "legal: ['password', 'user', 'token']; hint: http://host:80 or mail a@b",
        "delegation.token.max.lifetime.ms = 604800000, sasl.oauthbearer.clock.skew.seconds=30",
        "['http://host:80/x','a@b'] and 'redis://h:6379','a@b'; docker run -u 1000:1000; curl -o a https://h:1/",
        "unexpected token ';' and password 'must not be empty'; (password,token) of login(user,password)",
    ):
        assert redact_text(text) == text


@pytest.mark.long
@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a://b:",
            "token: (\n",
            'password="',
            "bearer ",
            "-eyJ",
            "(b'password', ",
            "password='''x",
            'password: \\"x',
            "<password ",
            "--password ",
            "token",
            "-----BEGIN ",
        ),
        *("password=" + 200_000 * end for end in ".'\",\\ ({"),
        *(
            "a[b]",
            "password[",
            "password='a' ",
            "<name>",
            "<a name='password' ",
            "name='password' ",
            "['password', ",
            "a://b:c ",
            "a://,",
            "--a.",
            "a://b'",
            "a:\\/\\/",
            "\x1b[0m",
            "token\t",
        ),
    ],
)
def test_a_long_text_takes_no_more_than_linear_time(piece: str) -> None:
    """A quadratic rule would run for hours."""
    text = piece * (200_000 // len(piece) + 1) + f"\n{'password'}={PLANTED}\n"
    assert "Canary" not in redact_text(text)


def test_lines_that_come_one_by_one_hide_a_key_up_to_its_last_line_and_go_on() -> None:
    redactor = LineRedactor()
    lines = ["a", "x -----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "", "MIICanary", "-----END RSA PRIVATE KEY-----", "MII"]
    lines += ["'-----BEGIN PRIVATE KEY-----' was expected", "2026-11-27 10:00:00 INFO goes on", f"password={PLANTED}"]
    shown = [redactor.line(line) for line in lines]
    assert shown[:7] == ["a", f"x -----BEGIN RSA PRIVATE KEY-----{HIDDEN}", "", "", "", "-----END RSA PRIVATE KEY-----", "MII"]
    assert shown[8:] == ["2026-11-27 10:00:00 INFO goes on", f"password={HIDDEN}"]


def test_looking_at_the_first_letters_changes_nothing() -> None:
    rng, parts = (
        random.Random(1),
        ["pass", "phrase", "w", "Secret", "jaas", "token", "is", "ize", "credential", "private", "bearer", "authorization", "access", "key"],
    )
    parts += ["account", "api", "auth", "encryption", "keystore", "shared", "signing", "ssl", "tls", ".", "_", "-", "x"]
    plain = re.compile(SPARK_KEYS.partition(")")[2])
    for _ in range(20_000):
        key = "".join(rng.choice((str.lower, str.upper, str.title))(rng.choice(parts)) for _ in range(rng.randrange(5)))
        assert bool(re.search(SPARK_KEYS, key)) == bool(plain.search(key)), key


@pytest.mark.parametrize(
    "key",
    [
        "password.env",
        "spark.authenticate.secret.file",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.type",
        "kafka.sasl.mechanism",
        "partition.key",
        "key",
        "group.id",
        "dskype.tokenizer",
        "kafka.ssl.truststore.certificates",
        "spark.authenticate",
    ],
)
def test_ordinary_keys_are_none(key: str) -> None:
    assert not is_secret(key)


def test_no_setting_of_ours_is_taken_for_a_secret() -> None:
    ours = yaml.safe_load((TOPOLOGIES / "dskype.yaml").read_text())["config"]
    assert redact({**DEFAULTS, **ours}) == json.loads(json.dumps({**DEFAULTS, **ours}))


def test_names_that_are_values_in_a_configuration_count_as_well() -> None:
    conf = {
        "env": [{"name": "DB_PASSWORD", "value": HUSH}, {"name": "a", "value": "b"}],
        "pairs": [["password", HUSH], ("a", "b")],
        "command": ["run", "--token", HUSH, f"--password={HUSH} x", "--token", "--a", "b"],
        "fields": ["token", "count"],
    }
    seen = redact(conf)
    assert seen == {
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "a", "value": "b"}],
        "pairs": [["password", HIDDEN], ["a", "b"]],
        "command": ["run", "--token", HIDDEN, f"--password={HIDDEN}", "--token", HIDDEN, "b"],
        "fields": ["token", "count"],
    }
    assert restore_secrets(seen, conf) == json.loads(json.dumps(conf))


def test_a_configuration_is_redacted_at_every_depth_and_not_changed() -> None:
    before = json.dumps(CONF)
    assert redact(CONF) == SEEN
    assert json.dumps(CONF) == before


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f"no answer from redis://:{HUSH}@h:1/0, trying again", f"no answer from redis://:{HIDDEN}@h:1/0, trying again"),
        (f"at amqps://u:p@{HUSH}@host", f"at amqps://u:{HIDDEN}@host"),
        (f'Plain required username="u" password="{HUSH}\\"x";', f'Plain required username="u" password="{HIDDEN}";'),
        (f"{{'password': '{HUSH}', 'a': 1}}", f"{{'password': '{HIDDEN}', 'a': 1}}"),
        (f"GET /?token={HUSH}&a=1", f"GET /?token={HIDDEN}&a=1"),
        (f"-----BEGIN EC PRIVATE KEY-----\n{HUSH}\n-----END EC PRIVATE KEY-----", f"-----BEGIN EC PRIVATE KEY-----{HIDDEN}-----END EC PRIVATE KEY-----"),
        ("http://host:80/path?x is no secret, nor is a@b", "http://host:80/path?x is no secret, nor is a@b"),
    ],
)
def test_texts_lose_their_secrets_and_nothing_else(text: str, seen: str) -> None:
    assert redact_text(text) == seen


CANARY = "Canary4711x58"
UNNAMED = [
    "https://{}@host/x",
    "postgres://u:p@ss/{}@host/db",
    "postgres://u:1/{}@host",
    "redis://:{}@h:1, amqp://v:{}@h",
    "https://h/x?se=2026&sig={}&a=1",
    "https://h/x?X-Amz-Signature={}",
    "key whsec_{} is wrong",
    "sent Bearer {} to it",
    "sent Basic {}== to it",
    "-----BEGIN PRIVATE KEY-----\n{}\n{}\n-----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("form", UNNAMED)
def test_secrets_without_a_name_are_hidden_in_texts(form: str) -> None:
    text = redact_text(form.replace("{}", CANARY))
    assert CANARY not in text and HIDDEN in text


@pytest.mark.parametrize(
    "text",
    [
        "password.env=NAME, keystore.location=/a/b and tokenizer=standard",
        "password: none, auth: true",
        "http://127.0.0.1:8080/@ann/x and mailto a@b, http://h/?mail=a@b",
        "Class not found: x, named by bolt 'count'. given: 'x'; hint: did you mean y?",
        "author=ann, key=3, partition.key: 5, Basic authentication",
        "2026-11-27 09:00:00,000 INFO dskype.topology batch 17: 1,024 tuples in 5 ms",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.long
@pytest.mark.parametrize(
    "piece", ["a://b:", "password=", "password='", "x=", "a.", "--", "Bearer ", "\\", "?sig=", "token[", "a@b://", "-----BEGIN PRIVATE KEY-----"]
)
def test_hiding_takes_time_in_proportion_to_the_text(piece: str) -> None:
    """The work is counted, not timed: steps of the expressions that could be repeated are possessive or bounded, so that texts of this size are done at once."""
    text = piece * (200_000 // len(piece))
    assert len(redact_text(text)) <= 8 * len(text)


# --- the exits --------------------------------------------------------------------------------------------------------


def test_a_state_is_stored_and_published_without_secrets_and_filled_when_it_is_taken_up() -> None:
    stored: list[str] = []

    def manager(resumed: list[TopologyState]) -> TopologyManager:
        return TopologyManager(NoBackend, lambda: 0, on_change=lambda m, removed=False: stored.append(json.dumps(m.state.to_json())), resumed=resumed)

    manager([]).submit("t", CONF, topology())
    assert stored and HUSH not in "".join(stored) and "5858" not in "".join(stored)
    state = TopologyState.from_json(json.loads(stored[-1]))
    assert state.conf == SEEN
    assert manager([state]).submit("t", CONF, topology()).plan.conf["dskype.store.options"] == CONF["dskype.store.options"]


class NoBackend:
    def __init__(self, plan: TopologyPlan) -> None:
        self.plan, self.stats, self.warnings = plan, None, []

    def activate(self) -> None:
        pass

    def health(self) -> dict:
        return {"state": "running", "why": [], "restarts": 0}


def test_taking_a_topology_up_without_its_secrets_names_what_is_missing() -> None:
    with pytest.raises(
        TopologyError, match=r"not stored.*without dskype.store.options: password, dskype.store.options: url, my.list\[0\]: api_key, my.list\[1\], my.token"
    ):
        restore_secrets(SEEN, {})
    with pytest.raises(TopologyError, match="without dskype.store.options: url'") as refused:
        restore_secrets(SEEN, {**CONF, "dskype.store.options": {"url": f"redis://ann:{HUSH}@other:1/0", "password": HUSH}})
    assert HUSH not in str(refused.value)
    assert restore_secrets(SEEN, CONF) == CONF
    by_another_version = f"https://u:{HIDDEN}@h/?a=1&sig=x"  # whose rule hid less
    assert restore_secrets({"url": by_another_version}, {"url": f"https://u:{HUSH}@h/?a=1&sig=x"}) == {"url": f"https://u:{HUSH}@h/?a=1&sig=x"}
    assert restore_secrets({"a": 1}, {"a": 2}) == {"a": 1}  # what is no secret is as it was


def test_a_reader_of_a_store_is_told_which_secret_it_has_to_give() -> None:
    client = PubSub(KafkaSettings(""), conf={"dskype.store": "redis", "dskype.store.options": SEEN["dskype.store.options"]})
    with pytest.raises(TopologyError, match="does not publish its secrets. given: 'dskype.store.options without url, password'; hint: pass them: -c"):
        client.topk("s")


def test_what_a_cluster_tells_of_a_topology_is_redacted() -> None:
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("t", CONF, topology()):
        info = cluster.get_topology_info("t")
    assert {k: info["conf"][k] for k in SEEN} == SEEN


def test_no_repr_shows_a_configuration() -> None:
    plan = TopologyPlan.build("t", "t-1-0", CONF, topology())
    state = TopologyState("t-1-0", "t", CONF, [], 0)
    flux = load(f"name: t\nconfig: {{my.password: {HUSH}}}\nspouts: [{{id: a, className: dskype.TestWordSpout, config: {{my.secret: {HUSH}}}}}]\n", config=CONF)
    for shown in (
        plan,
        state,
        ManagedTopology(state, NoBackend(plan)),
        flux,
        flux.definition,
        KafkaSettings("h:1", CONF, CONF),
        Target("h:1", None, CONF),
        TlsSettings(own=HUSH, key_password=HUSH),
        Settings.from_conf({"dskype.store": "redis", "dskype.store.options": CONF["dskype.store.options"]}),
    ):
        assert HUSH not in repr(shown), type(shown)


def test_log_lines_and_tracebacks_are_redacted() -> None:
    try:
        raise ValueError(f"redis://u:{HUSH}@h")
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "password=%s", (HUSH,), (type(error), error, error.__traceback__))
    line = RedactingFormatter("%(message)s").format(record)
    assert HUSH not in line and f"password={HIDDEN}" in line and f"redis://u:{HIDDEN}@h" in line


def test_log_lines_cannot_control_a_terminal() -> None:
    try:
        raise ValueError("\x1b[2J\x9b31m\u202e")
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "GET %s", ("/\x1b]0;PWNED\x07",), (type(error), error, error.__traceback__))
    line = RedactingFormatter("%(message)s").format(record)
    assert "GET /\\u001b]0;PWNED\\u0007\nTraceback" in line and "\\u001b[2J\\u009b31m\\u202e" in line
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(line)


def test_errors_and_values_on_the_command_line_are_redacted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(json.dumps(CONF))
    assert cli.main(["localconfvalue", "dskype.store.options", "--config", str(tmp_path / "c.yaml")]) == 0
    assert HUSH not in capsys.readouterr().out
    assert cli._failed(ValueError(f"password={HUSH}"), verbose=True) == 1
    assert HUSH not in capsys.readouterr().err


# --- the ways in ------------------------------------------------------------------------------------------------------


def test_options_take_secrets_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HUSH", f'"{HUSH}"')
    assert conf_item("my.password=${ENV-HUSH}") == ("my.password", f'"{HUSH}"')
    assert conf_item('o={"password": "${ENV-HUSH}", "n": 1}') == ("o", {"password": f'"{HUSH}"', "n": 1})
    assert pair("sasl.jaas.config=${ENV-HUSH}") == ("sasl.jaas.config", f'"{HUSH}"')
    assert capsys.readouterr().err == ""
    with pytest.raises(argparse.ArgumentTypeError, match="expected an environment variable of this name, given: 'NOT_THERE'"):
        conf_item("a=${ENV-NOT_THERE}")


def test_a_secret_in_the_command_line_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert pair(f"ssl.key.password={HUSH}") == ("ssl.key.password", HUSH)
    conf_item(f'dskype.store.options={{"url": "redis://u:{HUSH}@h"}}')
    told = capsys.readouterr().err
    assert re.findall(r"warning: the value of (\S+) is a secret", told) == ["ssl.key.password", "dskype.store.options"]
    assert HUSH not in told
    conf_item("topology.workers=2")
    assert capsys.readouterr().err == ""


def test_a_file_of_settings_takes_secrets_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("my.password: ${ENV-HUSH}\nmy.list: [{token: '${ENV-HUSH}'}]\n")
    monkeypatch.setenv("HUSH", HUSH)
    assert file_conf(argparse.Namespace(config=str(file))) == {"my.password": HUSH, "my.list": [{"token": HUSH}]}
    monkeypatch.delenv("HUSH")
    with pytest.raises(FluxException, match="c.yaml: expected an environment variable of this name, given: 'HUSH'"):
        file_conf(argparse.Namespace(config=str(file)))


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "kafka", "spark", "missing"),
    [
        ("spark://h:1", "SASL_SSL", {}, ["spark.authenticate=true", "spark.network.crypto.enabled=true"]),
        ("spark://h:1", "SASL_PLAINTEXT", {}, ["spark.authenticate=true"]),
        ("spark://h:1", "SSL", {"spark.authenticate": "true"}, ["spark.network.crypto.enabled=true"]),
        ("k8s://h", "SASL_SSL", {"spark.authenticate": True, "spark.network.crypto.enabled": True}, []),
        ("spark://h:1", "SSL", {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, []),
        ("spark://h:1", "PLAINTEXT", {}, []),
        ("local[2]", "SASL_SSL", {}, []),
        (None, "SASL_SSL", {}, []),
    ],
)
def test_a_secured_kafka_and_an_open_spark_are_told(master: str | None, kafka: str, spark: dict[str, Any], missing: list[str]) -> None:
    warning = network_warning(master, spark, {"kafka.security.protocol": kafka})
    assert [m for m in ("spark.authenticate=true", "spark.network.crypto.enabled=true") if m in (warning or "")] == missing
    assert (warning is None) == (not missing)


def test_options_of_a_jvm_must_not_hold_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(TopologyError, match="must not hold a secret. given: 'spark.driver.extraJavaOptions'") as refused:
        start_session(
            master=None, jars=[], conf={"spark.driver.extraJavaOptions": f"-Djavax.net.ssl.keyStorePassword={HUSH}"}, log_file=tmp_path / "l" / "s.log"
        )
    assert HUSH not in str(refused.value)


@pytest.mark.long
def test_errors_of_components_reach_topics_pages_and_the_terminal_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.topology.runtime.components import PacedNumbers

    texts = SECRETS[:: len(SECRETS) // 120] + SECRETS[-len(NAMELESS) :]
    filler = "x" * 20_000 + "\n"

    class Fails(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            i = tup.values[0]
            raise ConnectionError(texts[i] if i % 3 else filler + texts[i])

    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(len(texts)))
    builder.set_bolt("fails", Fails()).fields_grouping("numbers", Fields("key"))
    conf = {"topology.acker.executors": 0, "topology.max.error.report.per.interval": 10_000}
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("t", conf, builder.create_topology()) as running:
        cluster.advance_cluster_time(5)
        letters = [dict(letter.headers)["error"].decode() for letter in running.backend.dead_letters()]
        errors = [e["error"] for e in running.stats.errors]
        metrics = [str(record.value) for record in running.backend.log.records("t.metrics")]
        pages = json.dumps(cluster.get_topology_info("t"), default=str)
    for text in texts[:20]:
        cli._failed(ConnectionError(text), verbose=True)
    said = capsys.readouterr().err
    assert len(letters) == len(texts) and len(errors) >= len(texts) and metrics
    shown = [*letters, *errors, *metrics, pages, said]
    assert [text for text in shown if "Canary" in text] == []
    assert sum(HIDDEN in text for text in letters) > len(texts) / 2


# --- what is kept of what is printed -----------------------------------------------------------------------------------


LINES = [text for text in SECRETS if "\n" not in text and "Canary" not in redact_text(f"WARN Test: {text}")]
"""Those of one line. Behind the beginning of a line of a log, a value without quotes ends with its first word."""


@pytest.mark.product(seconds=10)
def test_the_log_of_sparks_jvm_has_no_secrets(tmp_path: Path) -> None:
    """The JVM writes through the driver, by the same rule: with the file of settings and the handle that Spark's JVM gets."""
    jars, log_file = Path(pyspark.__file__).parent / "jars", tmp_path / "spark.log"
    with session._read_by("log", lambda end: write_log(end, log_file)) as handle:
        settings = session.spark_settings(master=None, jars=[], conf={}, log_file=log_file, log_handle=handle)
        options = [option for option in shlex.split(settings["spark.driver.extraJavaOptions"]) if option.startswith(("-Dlog4j2", "-Ddskype"))]
        (bridge,) = jars.glob("py4j-*.jar")
        process = subprocess.Popen(
            ["java", *options, "-cp", os.pathsep.join(map(str, [bridge, *jars.glob("log4j-*.jar")])), "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[handle],
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(process.stdout.readline())))
    try:
        log4j = gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("a.Test")
        assert len(LINES) > 1500
        for text in LINES:
            log4j.warn(text)
        tell_error = log4j.error  # of Java
        tell_error("failed", gateway.jvm.java.lang.RuntimeException(f"redis://ann:{PLANTED}@host/0"))
        log4j.warn("the last line")
        wait_for(lambda: "the last line" in log_file.read_text(), 60, "the last line")
        found = log_file.read_text()
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()
    assert "Canary" not in found and found.count(HIDDEN) >= len(LINES) and "RuntimeException: redis://ann:" in found
    assert log_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.long
def test_what_a_driver_and_its_programs_print_is_kept_without_secrets() -> None:
    """``service.log``, ``driver.log``, journals and logs of containers have what the process that runs a topology prints, and what a program prints that it starts."""
    program = """
import json, subprocess, sys
from dskype.topology.core.redaction import redacted_output
secrets = json.load(sys.stdin)
with redacted_output():
    for stream in (sys.stdout, sys.stderr):
        for text in secrets:
            print(text[: len(text) // 2], end="", file=stream, flush=True)  # in pieces
            stream.writelines([text[len(text) // 2 :], "\\n"])
        stream.flush()
    subprocess.run(["sh", "-c", "echo one password=Canary; echo token=Canary >&2"], check=True)
    for stream in (sys.stdout, sys.stderr):
        print("without an end password=Canary", end="", file=stream)
print("password=shown")
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], input=json.dumps(SECRETS), capture_output=True, text=True, check=True)
    assert "Canary" not in done.stdout + done.stderr and done.stderr.endswith(f"token={HIDDEN}\nwithout an end password={HIDDEN}")
    assert done.stdout.endswith(f"one password={HIDDEN}\nwithout an end password={HIDDEN}password=shown\n") and done.stdout.count(HIDDEN) >= len(SECRETS)


@pytest.mark.long
def test_what_a_driver_prints_keeps_its_order_and_a_very_long_line_is_cut(tmp_path: Path) -> None:
    """Output and errors go to one file, as in the log of a service."""
    program = """
import subprocess, sys
from dskype.topology.core.redaction import redacted_output
with redacted_output():
    for i in range(300):
        print(i, file=[sys.stdout, sys.stderr][i % 2], flush=True)
    print("x" * (3 << 20), "password=Canary")
    print("the next line", flush=True)
    subprocess.run(["echo", "of a program"])
sys.exit(3)
"""
    with open(tmp_path / "log", "wb") as log:
        assert subprocess.run([sys.executable, "-P", "-c", program], stdout=log, stderr=log, check=False).returncode == 3
    *numbers, long, after, last = (tmp_path / "log").read_text().splitlines()
    assert numbers == [str(i) for i in range(300)] and (after, last) == ("the next line", "of a program")
    assert 1 << 20 < len(long) < 2 << 20 and long.endswith("(the rest of this line is not kept)")


def test_a_driver_that_crashes_says_where() -> None:
    program = """
import os, signal
from dskype.topology.core.redaction import redacted_output
with redacted_output():
    print("before", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV and "Segmentation fault" in done.stderr and 'File "<string>", line 6 in <module>' in done.stderr


@pytest.mark.long
def test_a_driver_whose_output_is_closed_or_must_not_wait_prints_without_secrets(tmp_path: Path) -> None:
    program = """
import sys
from dskype.topology.core.redaction import redacted_output
with redacted_output():
    for i in range(20_000):
        print(i, "password=Canary", file=sys.stderr)
    sys.stderr.flush()
"""
    with open(tmp_path / "errors", "wb") as errors:
        command = shlex.join([sys.executable, "-P", "-c", program])
        assert subprocess.run(["bash", "-c", f"exec {command} >&-"], stderr=errors, check=False).returncode == 0
    assert (tmp_path / "errors").read_text() == "".join(f"{i} password={HIDDEN}\n" for i in range(20_000))
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen([sys.executable, "-P", "-c", program], stderr=write) as process:
        os.close(write)
        with open(read, encoding="utf-8") as pipe:
            lines = []
            for line in pipe:
                time.sleep(0.001 if len(lines) < 100 else 0)  # slower than it is written
                lines.append(line)
    assert process.returncode == 0 and lines == [f"{i} password={HIDDEN}\n" for i in range(20_000)]


@pytest.mark.long
def test_a_fork_of_a_driver_does_not_wait_for_a_reader_that_has_gone() -> None:
    """The fork goes on after the driver was killed, and the driver after the fork's and its reader has gone; neither reads what it writes itself."""
    program = """
import os, signal, sys, time
from dskype.topology.core.redaction import redacted_output
with redacted_output():
    driver, child = os.getpid(), os.fork()
    if not child:
        if sys.argv[1] == "fork":
            os.kill(driver, signal.SIGKILL)
            while os.getppid() == driver:
                time.sleep(0.01)
        else:
            time.sleep(60)
    try:
        while True:
            os.write(1, b"a line\\n")
    except BrokenPipeError:
        open(sys.argv[2], "w").write("told")
        if child:
            os.kill(child, signal.SIGKILL)
        os._exit(0)
"""
    for who in ("fork", "driver"):
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder, "told")
            with subprocess.Popen([sys.executable, "-P", "-c", program, who, str(told)], stdout=subprocess.PIPE) as process:
                assert process.stdout.readline() == b"a line\n" or who == "fork"
                process.stdout.close()
                wait_for(told.exists, 30, f"the broken pipe of the {who}")


@pytest.mark.parametrize("buffered", [True, False])
def test_a_driver_whose_output_nobody_reads_is_told_so(buffered: bool) -> None:
    program = """
import sys
from dskype.topology.core.redaction import redacted_output
with redacted_output():
    try:
        while True:
            print("a line", flush=True)
    except BrokenPipeError:
        print("nobody reads", file=sys.stderr)
        sys.exit(7)
"""
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    process = subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"a line\n"
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert said.startswith(b"nobody reads\n")
    assert process.returncode == (120 if buffered else 7), "Python ends with 120 where its own buffer cannot be written"


def test_metrics_have_no_secrets() -> None:
    """Labels come from topologies; texts of errors do not become labels."""
    meter = Meter()
    for number, text in enumerate(SECRETS[:200]):
        meter.feed(json.dumps({"kind": "error", "component": "bolt", "task": 1, "error": text, "time_ms": number}).encode())
    about = {
        "name": "t",
        "id": "t-1",
        "status": "ACTIVE",
        "driver_alive": True,
        "health": {"state": "failed", "why": SECRETS[:5]},
        "conf": {"redis.password": PLANTED},
    }
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(lambda: [(about, meter, {})]))
    assert "Canary" not in generate_latest(registry).decode()
