"""What counts in a state topic, on random histories and against a plain computation (without Kafka)."""

from __future__ import annotations

import random

import pytest

from dskype.topology.runtime.stores.state_log import CLEAR, DOCUMENT, FENCE, JOURNAL, SNAPSHOT, Chunk, Commit, PartitionLog, pack_chunks, unpack_chunks

KEPT = 3


def history(rng: random.Random, n: int, kind: str) -> list[Commit | None]:
    """Return records of one kind as drivers' processes would write them, those of earlier drivers late and some of them twice."""
    term, records, number, version = 1, [Commit(FENCE, -1, 0, "f1", 1)], 0, 0
    for i in range(n):
        draw = rng.random()
        late = rng.randint(0, term)
        if draw < 0.06:
            term += 1
            records.append(Commit(FENCE, -1, 0, f"f{i}", term))
        elif draw < 0.09:
            records.append(Commit(CLEAR, -1, 0, f"c{i}", term))
            number, version = 0, 0
        elif draw < 0.12:
            records.append(None)
        elif kind == DOCUMENT:
            records.append(Commit(DOCUMENT, -1, 0, f"d{i}", None, name=rng.choice("ab"), value=rng.choice([None, b"x"])))
        elif kind == JOURNAL:
            journal = rng.choice([number + 1, number + 1, number + 1, number, rng.randint(1, number + 3)])
            records.append(Commit(JOURNAL, 1, journal, f"j{i}", rng.choice([term, term, late])))
            if records[-1].term == term and journal == number + 1:
                number = journal
        else:
            version += rng.randint(0, 2)
            chunks = pack_chunks([Chunk(i + k, 1, bytes(16)) for k in range(2)])
            records.append(Commit(SNAPSHOT, 2, max(0, version - rng.randint(0, 1)), f"s{i}", rng.choice([term, term, late]), chunked=True, value=chunks))
    return [None if r is None else r._replace(offset=offset) for offset, r in enumerate(records)]


def plain(records: list[Commit | None]) -> tuple[list, list, set]:
    """Return what counts, in the plainest way: the attempts of the journal and of the snapshots that are kept, and of the documents."""
    fence, journal, snapshots, documents = 0, [], {}, {}
    for r in records:
        if r is None or (r.term is not None and r.term < fence):
            continue
        fence = max(fence, r.term or 0)
        if r.kind == CLEAR:
            journal, snapshots, documents = [], {}, {}
        elif r.kind == DOCUMENT:
            documents[r.name] = r
        elif r.kind == JOURNAL and r.number == len(journal) + 1:
            journal.append(r)
        elif r.kind == SNAPSHOT:
            # An older version does not come back when newer ones are kept.
            snapshots[r.number] = r
            snapshots = {n: snapshots[n] for n in sorted(snapshots)[-KEPT:]}
    return [r.attempt for r in journal[-3:]], [r.attempt for _, r in sorted(snapshots.items())], {r.attempt for r in documents.values() if r.value is not None}


def found(log: PartitionLog) -> tuple[list, list, set]:
    entries = [[log.entries[task, kind][n].attempt for n in log.numbers(task, kind)] for task, kind in ((1, JOURNAL), (2, SNAPSHOT))]
    return entries[0], entries[1], {c.attempt for c in log.documents.values()}


def read(log: PartitionLog, records: list[Commit | None], begin: int) -> None:
    log.skip_to(begin)
    for record in records[log.position :]:
        log.apply(record, log.position)


@pytest.mark.parametrize("kind", [JOURNAL, SNAPSHOT, DOCUMENT])
@pytest.mark.parametrize("seed", range(30))
def test_all_readers_agree_whenever_they_read_and_whatever_was_dropped(seed, kind):
    rng = random.Random(f"{seed} {kind}")
    records = history(rng, 300, kind)
    reader, begin = PartitionLog(KEPT), 0
    for end in sorted(rng.sample(range(1, len(records)), 25)):
        read(reader, records[:end], begin)
        assert found(reader) == plain(records[:end])
        if rng.random() < 0.5:  # Kafka drops what the reader does not need
            begin = max(begin, reader.needed_from())
        late = PartitionLog(KEPT)
        read(late, records[:end], begin)
        assert found(late) == found(reader) and late.fence == reader.fence
        needed = [c.offset for commit in reader.commits() if commit.chunked for c in unpack_chunks(commit.value)]
        assert reader.chunks_needed_from() == min(needed, default=0)


def test_a_commit_is_read_as_it_was_written():
    for commit in (Commit(SNAPSHOT, 3, 17, "a", 5, chunked=True), Commit(DOCUMENT, -1, 0, "b", None, name="files-é"), Commit(JOURNAL, 1, 1, "c", 2)):
        assert Commit.parse(9, commit.key(), b"v") == commit._replace(value=b"v", offset=9)
    assert unpack_chunks(pack_chunks(chunks := [Chunk(1, 2, bytes(range(16))), Chunk(1 << 40, 3, bytes(16))])) == chunks
    for key in (
        None,
        b"",
        b"{}",
        b"[1]",
        b'{"v":1,"kind":"snapshot","task":"1","number":1,"attempt":"a","term":null}',
        b'{"v":1,"kind":"snapshot"}',
        b"\xff" * 9,
    ):
        assert Commit.parse(0, key, b"") is None
