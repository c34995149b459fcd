import numpy as np
import pytest

from dskype.topology.core.snapshots import (
    FileSnapshotStore, MemorySnapshotStore, SnapshotError, decode_snapshot, encode_snapshot,
)


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return MemorySnapshotStore() if request.param == "memory" else FileSnapshotStore(tmp_path / "snapshots")


def damage(store, task, version, change):
    name = store._name(task, "snapshot", version)
    store._write(name, change(store._read(name)), sync=False)


def test_the_newest_snapshot_not_above_a_version_is_loaded(store):
    for version in (3, 10, 20):
        store.save(5, version, encode_snapshot({"version": version}))
    assert store.load(5) == (20, {"version": 20})
    assert store.load(5, 19) == (10, {"version": 10})
    assert store.load(5, 2) is None
    assert store.load(6) is None


def test_only_the_kept_snapshots_stay(store):
    for version in range(1, 10):
        store.save(1, version, encode_snapshot(version))
    assert store.versions(1) == [7, 8, 9]


@pytest.mark.parametrize("change", [
    lambda d: d[:-1], lambda d: d[:5], lambda d: b"", lambda d: d[:-3] + bytes([d[-3] ^ 1]) + d[-2:],
    lambda d: b"XXXX" + d[4:], lambda d: d[:4] + b"\x63" + d[5:],
], ids=["cut", "short", "empty", "flipped", "magic", "format"])
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(store, change):
    store.save(1, 5, encode_snapshot("old"))
    store.save(1, 9, encode_snapshot("new"))
    damage(store, 1, 9, change)
    assert store.load(1) == (5, "old")
    [problem] = store.problems
    assert "1/snapshot-00000000000000000009" in problem and "given" in problem


def test_journal_entries_before_the_last_ones_go(store):
    for number in range(1, 8):
        store.save_journal(2, number, encode_snapshot(number))
    assert store.load_journal(2) == 7
    assert store._numbers(2, "journal") == [5, 6, 7]
    assert store.versions(2) == []


def test_a_snapshot_keeps_typed_arrays():
    state = {"a": np.arange(5, dtype=np.int32), "b": {1: "x"}}
    back = decode_snapshot(encode_snapshot(state))
    assert back["a"].dtype == np.int32 and back["a"].tolist() == [0, 1, 2, 3, 4] and back["b"] == {1: "x"}


def test_another_format_says_what_to_do():
    data = bytearray(encode_snapshot(1))
    data[4] = 99
    with pytest.raises(SnapshotError, match="expected 1; given: 99; hint"):
        decode_snapshot(bytes(data))
