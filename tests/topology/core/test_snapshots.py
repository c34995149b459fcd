"""The contract of snapshot stores. Add a new store to ``STORES``, and it is tested as well."""

import errno
import os
import pickle
import shutil
import signal
import threading
import time

import numpy as np
import pytest

from dskype.topology.core import file_store
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import (
    FencedError,
    JournalTakenError,
    LostStateError,
    MemorySnapshotStore,
    SnapshotError,
    TermTakenError,
    WriteError,
    decode_snapshot,
    encode_snapshot,
)


def damage(store, task, version, change, kind):
    """Change the content of a file."""
    name = store._name(task, kind, version)
    data = change(store._read(name))
    store._remove(name)
    store._create(name, data, None, sync=False)


class MemoryStores:
    """Several views of one store, each as in another process."""

    def __init__(self, _):
        self.files = {}

    def view(self):
        store = MemorySnapshotStore()
        store.files = self.files
        return store

    def remove(self, *views):
        self.files.clear()
        for view in views:
            view.exists = False

    def damage(self, store, task, version, change, kind="snapshot"):
        damage(store, task, version, change, kind)


class FileStores:
    kill_after_s = 0.005

    def __init__(self, tmp_path):
        self.folder = tmp_path / "topology" / "snapshots"

    def view(self):
        return FileSnapshotStore(self.folder)

    def remove(self, *views):
        shutil.rmtree(self.folder)

    def damage(self, store, task, version, change, kind="snapshot"):
        damage(store, task, version, change, kind)


STORES = {"memory": MemoryStores, "file": FileStores}


@pytest.fixture(params=sorted(STORES))
def stores(request, tmp_path):
    return STORES[request.param](tmp_path)


@pytest.fixture
def store(stores):
    store = stores.view()
    store.create()
    return store


def test_the_newest_snapshot_is_loaded_whichever_was_saved_last(store):
    for version in (3, 20, 10):
        store.save(5, version, encode_snapshot({"version": version}))
    assert store.load(5) == (20, {"version": 20})
    assert store.load(6) is None


def test_a_snapshot_below_those_that_are_kept_is_not_kept(store):
    for version in (10, 20, 30, 5):
        store.save(1, version, encode_snapshot(version))
    assert store.versions(1) == [10, 20, 30]


def test_only_the_kept_snapshots_stay(store):
    for version in range(1, 10):
        store.save(1, version, encode_snapshot(version))
    assert store.versions(1) == [7, 8, 9]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d[:-1],
        lambda d: d[:5],
        lambda d: b"",
        lambda d: d[:-3] + bytes([d[-3] ^ 1]) + d[-2:],
        lambda d: b"XXXX" + d[4:],
        lambda d: d[:4] + b"\x63" + d[5:],
    ],
    ids=["cut", "short", "empty", "flipped", "magic", "format"],
)
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(stores, store, change):
    store.save(1, 5, encode_snapshot("old"))
    store.save(1, 9, encode_snapshot("new"))
    stores.damage(store, 1, 9, change)
    assert store.load(1) == (5, "old")
    [problem] = store.problems
    assert "1/snapshot-00000000000000000009" in problem and "given" in problem


def test_journal_entries_before_the_last_ones_go(store):
    for number in range(1, 8):
        store.save_journal(2, number, encode_snapshot(number))
    assert store.load_journal(2) == (7, 7)
    assert store._numbers("2", "journal-") == [5, 6, 7]
    assert store.newest_journal(2) == 7 and store.newest_journal(3) == 0 and store.load_journal(3) is None
    assert store.versions(2) == []


def test_a_journal_entry_is_written_once(stores, store):
    other = stores.view()
    store.save_journal(2, 1, encode_snapshot("first"))
    with pytest.raises(JournalTakenError, match="task 2; its newest entry is 1; given: 1; nothing was released") as error:
        other.save_journal(2, 1, encode_snapshot("second"))
    assert error.value.retriable
    assert other.load_journal(2) == (1, "first")
    other.save_journal(2, 2, encode_snapshot("third"))
    assert store.load_journal(2) == (2, "third")


def test_an_entry_that_comes_after_its_number_was_pruned_is_taken_back(stores, store):
    for number in range(1, 10):
        store.save_journal(2, number, encode_snapshot(number))
    with pytest.raises(JournalTakenError, match="newest entry is 9; given: 2"):
        stores.view().save_journal(2, 2, encode_snapshot("late"))
    assert store._numbers("2", "journal-") == [7, 8, 9]
    assert store.load_journal(2) == (9, 9)


def test_an_entry_that_follows_nothing_is_taken_back(stores, store):
    store.save_journal(2, 1, encode_snapshot("of the successor"))
    with pytest.raises(JournalTakenError):
        stores.view().save_journal(2, 6, encode_snapshot("of a topology that is no more"))
    assert store.load_journal(2) == (1, "of the successor")


def test_of_many_that_write_an_entry_at_once_one_succeeds(stores, store):
    """All writers write each number at the same time; the winner's content stays."""
    winners, barrier, rounds = [], threading.Barrier(4), getattr(stores, "rounds", 30)

    def write(writer):
        view = stores.view()
        for number in range(1, rounds + 1):
            barrier.wait()
            try:
                view.save_journal(0, number, encode_snapshot([writer, number]))
            except JournalTakenError:
                pass
            else:
                winners.append([writer, number])
            barrier.wait()
            view.load_journal(0)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for _, number in winners] == list(range(1, rounds + 1))
    assert store.load_journal(0) == (rounds, winners[-1])
    assert not store.problems


def test_a_journal_without_a_readable_entry_is_no_empty_journal(stores, store):
    for number in (1, 2):
        store.save_journal(4, number, encode_snapshot(number))
    stores.damage(store, 4, 2, lambda d: d[:18], "journal")
    assert store.load_journal(4) == (2, 1)  # the newest number, the newest readable entry
    stores.damage(store, 4, 1, lambda d: b"", "journal")
    with pytest.raises(SnapshotError, match="entries of task 4 can be read.*journal-0*2 is cut short.*journal-0*1 is cut short.*hint: restore"):
        store.load_journal(4)


def test_a_synced_journal_entry_stays_until_a_newer_one_is_synced(tmp_path):
    store = FileSnapshotStore(tmp_path / "s")
    store.create()
    store.sync_journal(0)
    kept = []
    for number in range(1, 12):
        store.save_journal(0, number, encode_snapshot(number))
        if number in (2, 9):
            store.sync_journal(0)
        kept.append(store._numbers("0", "journal-"))
    assert kept[7] == [2, 6, 7, 8] and kept[-1] == [9, 10, 11]


def test_a_term_is_taken_once(stores, store):
    assert store.newest_term() == 0 and store.term_holder(0) == {}
    store.take_term(1, {"host": "a"})
    with pytest.raises(TermTakenError, match="given: 1; hint: the newest term is 1: {'host': 'a'}"):
        stores.view().take_term(1, {"host": "b"})
    for term in range(2, 30):
        store.take_term(term, {"term": term})
    with pytest.raises(TermTakenError, match="newest term is 29"):
        stores.view().take_term(3, {"host": "a driver that was suspended"})
    assert store.newest_term() == 29 and store.term_holder(29) == {"term": 29} and store.term_holder(3) == {}


def test_after_a_newer_term_nothing_is_written(stores, store):
    store.take_term(7, {"host": "a"})
    store.save(1, 10, encode_snapshot("state"), term=7)
    store.save_journal(2, 1, encode_snapshot("entry"), term=7)
    stores.view().take_term(8, {"host": "b"})
    with pytest.raises(FencedError, match="taken the topology over: term 8, ours 7; it is {'host': 'b'}"):
        store.save(1, 20, encode_snapshot("late"), term=7)
    with pytest.raises(FencedError):
        store.save_journal(2, 2, encode_snapshot("late"), term=7)
    assert store.load(1) == (10, "state") and store.load_journal(2) == (1, "entry")
    store.save_journal(2, 2, encode_snapshot("of the new one"), term=8)


def test_processes_of_a_store_that_was_begun_anew_stay_out(stores, store):
    store.take_term(7, {})
    store.save(1, 10, encode_snapshot("state"), term=7)
    store.clear()
    assert store.versions(1) == [] and store.newest_term() == 7
    store.take_term(8, {})
    with pytest.raises(FencedError):
        store.save(1, 20, encode_snapshot("late"), term=7)
    with pytest.raises(LostStateError, match="term is gone. given: 9; legal: 8"):
        store.save(1, 20, encode_snapshot("of another topology"), term=9)


def test_nothing_brings_a_removed_store_back(stores, store):
    store.save(1, 10, encode_snapshot("state"))
    store.save_journal(2, 1, encode_snapshot("entry"))
    stores.remove(store)
    for write in (store.save, store.save_journal):
        with pytest.raises(LostStateError, match="hint: the topology was killed"):
            write(1, 20, encode_snapshot("late"))
    assert store.load(1) is None and store.newest_journal(2) == 0
    if isinstance(stores, FileStores):
        assert not stores.folder.exists()


def test_a_removed_store_is_empty_and_can_be_created_again(stores, store):
    store.save(1, 10, encode_snapshot("state"))
    assert store.holds_state()
    store.remove()
    assert not store.holds_state() and store.newest_term() == 0
    again = stores.view()
    again.create()
    assert not again.holds_state() and again.load(1) is None
    again.save_journal(2, 1, encode_snapshot("entry"))
    assert again.holds_state()


def test_a_store_that_exists_is_created_again_without_a_change(stores, store):
    store.take_term(1, {"host": "a"})
    store.save(1, 10, encode_snapshot("state"), term=1)
    store.save_journal(2, 1, encode_snapshot("entry"), term=1)
    again = stores.view()
    again.create()
    assert again.load(1) == (10, "state") and again.load_journal(2) == (1, "entry") and again.newest_term() == 1


def test_documents_are_kept_under_their_names(stores, store):
    other = stores.view()
    assert store.read_document("files-a.b") is None
    large = os.urandom(3_000_000)
    store.write_document("files-a.b", b"1")
    store.write_document("files-c", large)
    store.write_document("files-a.b", b"2")
    assert other.read_document("files-a.b") == b"2" and other.read_document("files-c") == large
    store.remove_document("files-a.b")
    store.remove_document("files-a.b")
    assert other.read_document("files-a.b") is None and other.read_document("files-c") == large
    assert not store.holds_state()


def test_large_states_and_entries_are_kept_as_they_are(stores, store):
    other, rng = stores.view(), np.random.default_rng(1)
    states = []
    for version in range(1, 6):
        states.append({"a": rng.integers(0, 1 << 60, 400_000 + version), "version": version})
        store.save(3, version, encode_snapshot(states[-1]))
        store.save_journal(4, version, encode_snapshot(states[-1]))
    for view in (store, other):
        assert view.load_journal(4)[1]["version"] == 5
        assert view.newest_version(3) == 5 and view.newest_version(9) is None
    for version in (5, 4, 3):
        for view in (store, other):
            number, found = view.load(3)
            assert number == version == found["version"] and (found["a"] == states[version - 1]["a"]).all()
        stores.damage(store, 3, version, lambda data: data[:-1])


def test_a_copy_of_a_store_is_the_store_as_in_another_process(stores, store):
    store.save(1, 10, encode_snapshot("state"))
    if not isinstance(stores, MemoryStores):
        copy = pickle.loads(pickle.dumps(store))
        copy.save(1, 20, encode_snapshot("more"))
        assert store.load(1) == (20, "more") and copy.kept == store.kept


@pytest.mark.long
def test_a_fork_writes_and_a_fork_that_is_killed_leaves_nothing_that_counts(stores, store):
    if isinstance(stores, MemoryStores):
        return
    store.save(1, 1, encode_snapshot("before"))
    data = encode_snapshot(os.urandom(20_000_000))
    store.rest()
    for version, killed in ((2, True), (3, False)):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(write, b"x")
                store.save(1, version, data)
            finally:
                os._exit(0)
        os.read(read, 1)
        if killed:
            time.sleep(stores.kill_after_s)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
    assert store.load(1)[0] == 3 and not store.problems
    if 2 in store.versions(1):  # it was faster
        stores.damage(store, 1, 3, lambda data: data[:-1])
        assert store.load(1)[0] == 2
        store.save(1, 3, data)
    store.save(1, 4, encode_snapshot("after"))
    assert stores.view().load(1) == (4, "after")


def test_an_older_snapshot_takes_the_place_of_no_newer_one(store):
    for version in (10, 20, 30):
        store.save(1, version, encode_snapshot(version))
    store.save(1, 5, encode_snapshot("of a process that was suspended"))
    assert store.versions(1) == [10, 20, 30]


class FullDisk:
    """Replaces ``open`` in the module of the store: only half of what is written fits."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def __enter__(self):
        self.monkeypatch.setattr(file_store, "open", self.open, raising=False)

    def __exit__(self, *exc):
        self.monkeypatch.delattr(file_store, "open")

    @staticmethod
    def open(*args):
        file = open(*args, buffering=0)
        write = file.write

        class Limited:
            def __enter__(self):
                return self

            def __exit__(self, *exc):
                file.close()

            def write(self, data):
                write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return Limited()


def test_a_full_disk_is_not_filled_further_and_the_error_says_where(tmp_path, monkeypatch):
    store = FileSnapshotStore(tmp_path / "s")
    store.create()
    store.save(1, 1, encode_snapshot("a"))
    store.save_journal(1, 1, encode_snapshot("b"))
    before = sorted(p.name for p in (tmp_path / "s" / "1").iterdir())
    with FullDisk(monkeypatch):
        for number in range(2, 10):
            for write in (store.save, store.save_journal):
                with pytest.raises(
                    WriteError, match=f"No space left on device.*given: '5... bytes to write; [0-9]+ bytes free in {tmp_path}/s'; hint: free some space"
                ) as error:
                    write(1, number, encode_snapshot("x" * 5000))
                assert error.value.retriable
    assert sorted(p.name for p in (tmp_path / "s" / "1").iterdir()) == before
    store.save(1, 2, encode_snapshot("c"))  # there is room again
    store.save_journal(1, 2, encode_snapshot("d"))
    assert store.load(1) == (2, "c") and store.load_journal(1) == (2, "d")


def test_what_killed_processes_left_half_written_goes(tmp_path):
    store = FileSnapshotStore(tmp_path / "s")
    store.create()
    store.save(1, 1, encode_snapshot("a"))
    folder = tmp_path / "s" / "1"
    old, new = (folder / f".snapshot-00000000000000000002.{name}.partial" for name in ("4-ab", "5-cd"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 100, time.time() - 100))
    store.sweep(1)
    assert not old.exists() and new.exists()  # a process may still be writing that file
    store.create()  # the driver starts, so no process is writing
    assert not new.exists() and store.load(1) == (1, "a")


def test_nothing_but_what_is_kept_stays_in_the_folder(tmp_path):
    store = FileSnapshotStore(tmp_path / "s")
    store.create()
    for number in range(1, 6):
        store.save(1, number, encode_snapshot(number))
        store.save_journal(1, number, encode_snapshot(number))
    with pytest.raises(JournalTakenError):
        store.save_journal(1, 5, encode_snapshot("again"))
    names = sorted(p.name for p in (tmp_path / "s" / "1").iterdir())
    assert names == [f"{kind}-{n:020d}" for kind in ("journal", "snapshot") for n in (3, 4, 5)]


def test_a_snapshot_keeps_typed_arrays():
    state = {"a": np.arange(5, dtype=np.int32), "b": {1: "x"}}
    back = decode_snapshot(encode_snapshot(state))
    assert back["a"].dtype == np.int32 and back["a"].tolist() == [0, 1, 2, 3, 4] and back["b"] == {1: "x"}


@pytest.mark.parametrize(
    "value", [2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**8000, -(2**8000), {2**65: [(2**66, {-(2**67)})]}], ids=lambda value: repr(value)[:20]
)
def test_a_snapshot_keeps_integers_of_any_practical_size(value):
    assert decode_snapshot(encode_snapshot({"sum": value})) == {"sum": value}


@pytest.mark.parametrize("value", [2**100_000, np.longdouble(1), object()], ids=["huge", "long double", "object"])
def test_what_a_snapshot_cannot_keep_is_refused_with_the_legal_types(value):
    with pytest.raises(TypeError, match=r"cannot be serialized; given: .*; expected one of None, bool, int \(1024 bytes\), float, .*; hint: "):
        encode_snapshot({"sum": value})


def test_another_format_says_what_to_do():
    data = bytearray(encode_snapshot(1))
    data[4] = 99
    with pytest.raises(SnapshotError, match="expected 2; given: 99; hint"):
        decode_snapshot(bytes(data))
