import random

import pytest

from dskype.bolts.slot_metadata import SlotMetadata


def names_in(metadata):
    spans, data = metadata.json_names()
    return {slot: data[begin:end].tobytes().decode() for slot, (begin, end) in enumerate(spans.tolist()) if end}


@pytest.mark.parametrize("seed", range(5))
def test_names_follow_the_slots(seed):
    rng = random.Random(seed)
    metadata, live = SlotMetadata(), {}
    for step in range(400):
        for _ in range(rng.randrange(6)):
            if live and rng.random() < (0.3, 0.55)[step // 200]:
                slot = rng.choice(sorted(live))
                del live[slot]
                metadata.release(slot)
            else:
                slot = metadata.allocate()
                live[slot] = rng.choice("abcdefgh") * rng.choice([1, 3, 40])
                metadata.set(slot, live[slot], "0-1", None)
        if rng.random() < 0.3:
            assert names_in(metadata) == {slot: f'"{name}"' for slot, name in live.items()}
        if rng.random() < 0.05:
            state, metadata = metadata.snapshot(), SlotMetadata()
            metadata.restore(state)
    assert len(live) > 10


def test_names_are_json_in_ascii():
    metadata = SlotMetadata()
    for slot, name in enumerate(["plain", 'quo"te', "été", "東京", "back\\slash", " "]):
        metadata.set(slot, name, "0-1", None)
    assert list(names_in(metadata).values()) == ['"plain"', r'"quo\"te"', r'"\u00e9t\u00e9"', r'"\u6771\u4eac"', r'"back\\slash"', '" "']


def test_the_bytes_of_forgotten_names_are_used_again():
    metadata = SlotMetadata()
    for round in range(60):
        for slot in range(50):
            metadata.set(slot, f"{round}-{slot}", "0-1", None)
        size = len(metadata.json_names().data)
        for slot in range(50):
            metadata.clear(slot)
    assert size < 4 * 50 * 8
