"""What only the Redis store has: keys, outages, secrets."""

import json
import socket
import threading
import traceback

import pytest
import redis

from dskype.bolts.results import make_store
from dskype.bolts.results.base import Opening, Removal, State, Stored, StoreUnavailable, supersedes
from dskype.bolts.results.redis_store import RedisStore
from dskype.topology import IllegalArgumentException

from .redis_server import RedisServer, free_port

SECRET = "s3cr3t/@:pass"


def opened(url, topology="t", run=1, sleeps=None, **options):
    store = RedisStore({"url": url, **options}, sleep=(sleeps if sleeps is not None else []).append)
    store.open(Opening(topology, run))
    return store


def state(name, registration="0-1", watermark=1, value=b"{}"):
    return State(name, registration, watermark, value)


@pytest.fixture
def client(redis_server):
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


def test_a_state_is_a_hash_under_topology_and_subscription(redis_server, client):
    store = opened(redis_server.url, "dskype", run=7)
    store.put([state("s17", "0-3", 12, b'{"v":1}')])
    assert client.keys() == [b"dskype:topk:s17"]
    assert client.hgetall("dskype:topk:s17") == {b"topk": b'{"v":1}', b"registration": b"0-3", b"watermark": b"12", b"run": b"7"}
    assert client.ttl("dskype:topk:s17") == -1


def test_what_is_left_of_a_removed_subscription_expires_and_a_new_state_does_not(redis_server, client):
    store = opened(redis_server.url, **{"removed.ttl.s": 100})
    store.put([state("a")])
    store.remove([Removal("a", "0-1", 2)])
    assert client.hget("t:topk:a", "topk") is None
    assert 90 <= client.ttl("t:topk:a") <= 100
    store.put([state("a", "0-2", 2)])
    assert client.ttl("t:topk:a") == -1


def test_topologies_do_not_meet(redis_server, client):
    opened(redis_server.url, "one").put([state("a", watermark=5)])
    assert opened(redis_server.url, "two").get("a") is None


def test_large_batches_are_cut_and_answered_in_order(redis_server, client):
    store = opened(redis_server.url)
    states = [state(f"s{i}", watermark=i) for i in range(1234)]
    assert store.put(states)[:2] == (1234, 0)
    assert store.put([s._replace(watermark=s.watermark - i % 2) for i, s in enumerate(states)])[:2] == (617, 617)
    assert client.dbsize() == 1234


@pytest.mark.long
def test_the_script_and_the_plain_order_agree(redis_server, client):
    store = opened(redis_server.url)
    versions = [(f"{p}-{o}", w, v, r) for p in (0, 1) for o in (2, 10) for w in (-1, 3) for v in (b"x", None) for r in (1, 2)]
    stores = {1: store, 2: opened(redis_server.url, run=2)}

    def write(name, registration, watermark, value, run):
        if value is None:
            return stores[run].remove([Removal(name, registration, watermark)])
        return stores[run].put([State(name, registration, watermark, value)])

    for i, old in enumerate(versions):
        for j, new in enumerate(versions):
            write(f"{i}/{j}", *old)
            expected = supersedes(Stored(*new), Stored(*old))
            assert write(f"{i}/{j}", *new).written == int(expected), (old, new)
            assert store.get(f"{i}/{j}") == Stored(*(new if expected else old)), (old, new)


def test_two_writers_at_once_leave_the_newest(redis_server, client):
    def write(parity):
        store = opened(redis_server.url)
        for watermark in range(parity, 300, 2):
            store.put([state(name, watermark=watermark, value=str(watermark).encode()) for name in "abc"])
        store.close()

    threads = [threading.Thread(target=write, args=(parity,)) for parity in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [opened(redis_server.url).get(name).value for name in "abc"] == [b"299"] * 3


def test_a_server_that_forgot_the_script_gets_it_again(redis_server, client):
    store = opened(redis_server.url)
    store.put([state("a")])
    client.script_flush()
    assert store.put([state("a", watermark=2)]).written == 1


def test_a_key_of_another_kind_fails_alone(redis_server, client):
    client.set("t:topk:b", "mine")
    outcome = opened(redis_server.url).put([state("a"), state("b"), state("c")])
    assert (outcome.written, outcome.stale) == (2, 0)
    [(name, reason)] = outcome.failed
    assert name == "b" and "WRONGTYPE" in reason
    assert client.get("t:topk:b") == b"mine"


def test_a_server_that_is_away_is_tried_a_few_times_and_then_an_error():
    port, sleeps = free_port(), []
    store = opened(f"redis://:{'x' * 9}@127.0.0.1:{port}/3", sleeps=sleeps)
    with pytest.raises(
        StoreUnavailable, match=rf"Redis at redis://127.0.0.1:{port}/3 does not take states.*given: .*Connection.*hint: is the server up"
    ) as caught:
        store.put([state("a")])
    assert caught.value.retriable
    assert sleeps == pytest.approx([0.05, 0.2])
    with pytest.raises(StoreUnavailable):
        store.get("a")
    sleeps.clear()
    with pytest.raises(StoreUnavailable):
        opened(f"redis://127.0.0.1:{port}", sleeps=sleeps, attempts=1).remove([Removal("a", "0-1", 1)])
    assert sleeps == []


def test_a_store_goes_on_when_the_server_is_back(tmp_path):
    with RedisServer(tmp_path, keep=True) as server:
        store = opened(server.url)
        store.put([state("a", watermark=1)])
        server.stop()
        with pytest.raises(StoreUnavailable):
            store.put([state("a", watermark=2)])
        server.start()
        assert store.put([state("a", watermark=1), state("a", watermark=2), state("b")])[:2] == (3, 0)
        assert store.get("a").watermark == 2


def test_a_server_that_takes_no_writes_is_away(redis_server, client):
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailable, match="OOM|OutOfMemory"):
            opened(redis_server.url).put([state("a")])
    finally:
        client.config_set("maxmemory", "0")
    assert opened(redis_server.url).put([state("a")]).written == 1


# --- addresses and secrets ----------------------------------------------------------------------------------------------


def secret_free(error):
    text = "".join(traceback.format_exception(error)) + repr(error) + str(error)
    return all(part not in text for part in (SECRET, "s3cr3t", "s3cr3t%2F%40%3Apass"))


@pytest.mark.parametrize("place", ["url", "password", "password.env"])
def test_a_password_is_used_and_never_shown(tmp_path, monkeypatch, capsys, place):
    monkeypatch.setenv("STORE_PASSWORD", SECRET)
    with RedisServer(tmp_path, SECRET) as server:
        url = f"redis://:s3cr3t%2F%40%3Apass@127.0.0.1:{server.port}/0" if place == "url" else server.url
        options = {"url": {}, "password": {"password": SECRET}, "password.env": {"password.env": "STORE_PASSWORD"}}[place]
        store = opened(url, **options)
        assert store.put([state("a")]).written == 1
        server.stop()
        with pytest.raises(StoreUnavailable) as caught:
            store.put([state("a")])
        assert secret_free(caught.value)
        assert "s3cr3t" not in repr(store) + str(store)
    assert "s3cr3t" not in "".join(capsys.readouterr())


def test_a_wrong_password_is_told_without_the_password(tmp_path):
    with RedisServer(tmp_path, "right") as server:
        store = opened(server.url, password=SECRET)
        with pytest.raises(StoreUnavailable, match="AuthenticationError") as caught:
            store.put([state("a")])
        assert secret_free(caught.value)
        with pytest.raises(StoreUnavailable, match="uthentication"):
            opened(server.url).put([state("a")])


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t@host:port",
        "http://:s3cr3t@host",
        f"redis://:{SECRET}@host:1",
        "s3cr3t",
        "redis://h:99999/s3cr3t",
        "",
        None,
        7,
        "unix://",
        "redis://:s3cr3t@[::1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url):
    with pytest.raises(IllegalArgumentException, match="Option url of store 'redis' is not usable.*<hidden.*legal: redis://") as caught:
        make_store("redis", {"url": url})
    assert secret_free(caught.value)


def test_an_unknown_parameter_of_the_address_is_refused_when_the_store_is_opened():
    url = "redis://:s3cr3t@127.0.0.1:6379/0?pasword=s3cr3t"
    with pytest.raises(IllegalArgumentException, match=r"not usable.*redis://127.0.0.1:6379/0 \(TypeError\)") as caught:
        opened(url)
    assert secret_free(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout.ms": 0}, "timeout.ms .*given: 0; legal: an integer, 1 or more"),
        ({"attempts": "3"}, "attempts"),
        ({"removed.ttl.s": True}, "removed.ttl.s"),
        ({"password": 7}, "Option password .*given: 'int'; legal: a string"),
        ({"password": "s3cr3t", "password.env": "X"}, "takes one password"),
        ({"topic": "yes"}, "legal: true | false"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(IllegalArgumentException, match=message) as caught:
        make_store("redis", options)
    assert secret_free(caught.value)


def test_a_password_that_the_environment_lacks_is_told(monkeypatch):
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    with pytest.raises(IllegalArgumentException, match="environment lacks the password.*given: 'NO_SUCH_PASSWORD'"):
        opened("redis://127.0.0.1", **{"password.env": "NO_SUCH_PASSWORD"})


def test_options_win_over_the_address(tmp_path):
    with RedisServer(tmp_path, "right") as server:
        assert opened(f"redis://:wrong@127.0.0.1:{server.port}?decode_responses=True", password="right").put([state("a")]).written == 1


def test_rediss_means_tls(redis_server, tmp_path):
    store = opened(f"rediss://127.0.0.1:{redis_server.port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}", sleeps=[])
    pool = store._client.connection_pool
    assert pool.connection_class is redis.SSLConnection
    assert pool.connection_kwargs["ssl_ca_certs"] == str(tmp_path / "ca.pem")
    store = opened(f"rediss://127.0.0.1:{redis_server.port}/0?ssl_cert_reqs=none", sleeps=[], **{"timeout.ms": 300, "attempts": 1})
    with pytest.raises(StoreUnavailable, match=rf"Redis at rediss://127.0.0.1:{redis_server.port}/0"):  # the server has no TLS
        store.put([state("a")])


def test_the_default_address_is_the_local_server():
    store = make_store("redis")
    assert repr(store) == "RedisStore(redis://127.0.0.1:6379/0)"
    assert json.dumps(sorted(store.OPTIONS))


def test_a_server_that_takes_connections_and_never_answers_is_asked_once():
    """The time of a call is bounded by ``timeout.ms``, not by that times ``attempts``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = opened(f"redis://127.0.0.1:{server.getsockname()[1]}/0", **{"timeout.ms": 200})
        with pytest.raises(StoreUnavailable, match="does not take states.*Timeout"):
            store.put([state("a")])
        store.close()
        server.settimeout(0)
        connections = []
        with pytest.raises(BlockingIOError):
            while True:
                connections.append(server.accept()[0])
        assert len(connections) == 1
        for connection in connections:
            connection.close()
