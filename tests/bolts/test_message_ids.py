"""The ids of messages, by sequence number."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.message_ids import MessageIds
from dskype.topology.core.values import pack_state, unpack_state


@pytest.mark.parametrize("long", [False, True], ids=["joined", "run by run"])
@pytest.mark.parametrize("seed", range(20))
def test_ids_are_found_until_they_are_freed(seed, long, monkeypatch):
    if long:
        monkeypatch.setattr("dskype.bolts.message_ids._LONG_BYTES", -1)
        monkeypatch.setattr("dskype.bolts.message_ids._RUN_BYTES", (0, 500)[seed % 2])
    rng = random.Random(seed)
    ids, plain, seq = MessageIds(), {}, 0
    every = (1, 5, 40)[seed % 3]  # with 5 and 40 the task does not get all messages
    for _ in range(60):
        n = rng.randint(0, 40)
        seqs = np.arange(seq, seq + n * every, every)
        seq += n * every
        positions = seqs // 3 if seed % 2 else seqs  # several at one position, as with time windows
        order = rng.sample(range(n), n) if seed % 4 == 0 else list(range(n))
        names = [f'"m{s}"' for s in seqs[order]]
        ids.remember(seqs[order], positions[order], names if rng.random() < 0.5 else pa.array(names, pa.string()))
        plain.update({s: (p, f'"m{s}"') for s, p in zip(seqs.tolist(), positions.tolist())})
        if plain and rng.random() < 0.3:  # some come again, with an answer
            again = rng.sample(sorted(plain), min(3, len(plain)))
            ids.remember(np.array(again), np.array([plain[s][0] for s in again]), [plain[s][1] for s in again])
        if rng.random() < 0.3:
            position = rng.randint(0, max(seq, 1))
            ids.free(position)
            plain = {s: entry for s, entry in plain.items() if entry[0] > position}
        if rng.random() < 0.2:
            state, ids = ids.snapshot(), MessageIds()
            ids.restore(unpack_state(pack_state(state)))
        if plain:
            asked = rng.choices(sorted(plain), k=20)
            assert ids.get(np.array(asked)).to_pylist() == [plain[s][1] for s in asked]
            some = np.array([*asked, -1, seq, seq + 7])
            assert ids.positions(some).tolist() == [*(plain[s][0] for s in asked), -1, -1, -1]
    assert ids.get(np.zeros(0, np.int64)).to_pylist() == []


def test_what_is_freed_takes_no_room_for_long():
    ids = MessageIds()
    for start in range(0, 100_000, 100):
        seqs = np.arange(start, start + 100)
        ids.remember(seqs, seqs, [str(s) for s in seqs])
        ids.free(start - 1000)
    assert len(ids) < 5000


def test_an_unknown_message_is_an_error():
    ids = MessageIds()
    ids.remember(np.array([1, 4]), np.array([1, 4]), ["1", "4"])
    for unknown in (0, 2, 5, -(1 << 62), 1 << 62):
        with pytest.raises(KeyError, match=f"id of message {unknown} is not known"):
            ids.get(np.array([1, unknown]))
