"""What readers may use: limits by name, places by address, and what repeats."""

from __future__ import annotations

import threading

import pytest

from dskype.topology.errors import IllegalArgumentException
from dskype.topology.ui import budget
from dskype.topology.ui.budget import Budget, BusyError, Gate, GoneError, RefusedTokens, Seldom, address_of, check_wanted, holding, is_own_name, wanted_while


def test_limits_come_from_the_environment_and_from_options_which_count_more(monkeypatch):
    monkeypatch.setenv(budget.ENVIRONMENT, "streams=7 head-s=3")
    assert (Budget.given().streams, Budget.given().head_s, Budget.given(["streams=9"]).streams) == (7, 3, 9)
    for wrong in ("streams", "streams=0", "streams=-1", "streams=x", "nothing=1", "streams_per_address=1"):
        with pytest.raises(IllegalArgumentException, match="This is not a limit.*legal: NAME=NUMBER, where NAME is one of connections, "):
            Budget.given([wrong])
    with pytest.raises(IllegalArgumentException, match="must be positive"):
        Budget(streams=0)


def test_an_address_has_some_of_the_places_and_all_together_have_no_more_than_there_are():
    gate = Gate(Budget(streams=3, streams_per_address=2), "streams", "Too many.")
    gate.enter("a")
    gate.enter("a")
    with pytest.raises(BusyError, match="Too many.*up to 2.*--limit streams-per-address=N") as refused:
        gate.enter("a")
    assert (refused.value.status, refused.value.limit) == (429, "streams_per_address")
    gate.enter("a", shared=True)
    with pytest.raises(BusyError, match=r"up to 3.*--limit streams=N") as refused:
        gate.enter("b")
    assert refused.value.status == 503
    for _ in range(3):
        gate.leave("a")
    gate.enter("b")
    assert (gate.taken, gate.highest, list(gate._taken)) == (1, 3, ["b"])


def test_a_reader_is_an_address_or_a_network_of_ipv6():
    assert address_of("192.0.2.7") == address_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_of("2001:db8::1") == address_of("2001:db8::ffff:0:1") != address_of("2001:db8:0:1::1")
    assert address_of("a-socket") == "a-socket"


def test_a_server_knows_its_names():
    names = frozenset({"127.0.0.1", "[::1]"})
    assert is_own_name("127.0.0.1:80", names) and is_own_name("[::1]", names) and is_own_name("anything", None)
    assert not any(is_own_name(host, names) for host in ("", "evil.example", "127.0.0.1.evil", "127.0.0.1:80:80", "127.0.0.1:80@evil"))


def test_work_for_a_client_that_has_gone_ends_while_it_waits_for_a_lock_as_well():
    gone, lock = threading.Event(), threading.Lock()
    check_wanted()
    with wanted_while(gone), lock:
        check_wanted()
        with pytest.raises(BusyError, match=r"up to 0"), holding(lock, 0.0):
            pass
        gone.set()
        with pytest.raises(GoneError), holding(lock, 60.0):
            pass
        with pytest.raises(GoneError):
            check_wanted()
    check_wanted()
    with holding(lock, 0.0):
        assert lock.locked()
    assert not lock.locked()


def test_an_address_pauses_after_some_wrong_tokens_and_few_addresses_are_kept(monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now_s[0])
    refused = RefusedTokens()
    for _ in range(19):
        refused.note("a")
    assert refused.pause_s("a") == refused.pause_s("b") == 0
    refused.note("a")
    assert refused.pause_s("a") == 1
    now_s[0] += 1.5
    assert refused.pause_s("a") == 0
    for pause_s in (2, 4, 8, 16, 16):
        refused.note("a")
        assert refused.pause_s("a") == pause_s
    now_s[0] += 601
    assert refused.pause_s("a") == 0
    for address in range(5000):
        refused.note(str(address))
    assert len(refused._known) == 1024
    refused.forget("4999")
    assert len(refused._known) == 1023


def test_what_repeats_is_told_once_a_minute(monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now_s[0])
    told = Seldom()
    assert [told.is_due("a"), told.is_due("a"), told.is_due("b")] == [True, False, True]
    now_s[0] += 60
    assert [told.is_due("a"), told.is_due("a")] == [True, False]
    for number in range(1000):
        told.is_due(str(number))
    assert len(told._told_s) == 256
