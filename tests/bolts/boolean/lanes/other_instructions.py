"""Lanes indexes as this processor filled them, matched with the vector instructions of another one, as numba is told; ``test_lanes.py`` runs this in a process of its own.

Only matching has vector instructions, so nothing else is compiled once more.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean.lanes.index import LanesIndex
from dskype.bolts.boolean.lanes.instruction_kernels import INSTRUCTIONS
from dskype.spouts.batch import MessageBatch


def dump(index: LanesIndex, batch: MessageBatch, file: Path) -> None:
    """Write the arrays of an index, messages, and what they match."""
    assert index._stores is not None
    arrays: dict[str, Any] = {f"rows_{name}": rows.array for name, rows in index._rows.items()}
    messages = {f"message_{name}": column for name, column in batch._asdict().items() if column is not None}
    message, slot = index.match(batch)
    np.savez(file, state=index._state, **arrays, **messages, message=message, slot=slot)


def check(file: Path) -> None:
    """Verify that the same messages match the same."""
    found = dict(np.load(file))
    index = LanesIndex()
    for name, rows in index._rows.items():
        array = found[f"rows_{name}"]
        index._reserve(**{name: len(array)})
        rows.array[: len(array)] = array
    index._state[:] = found["state"]
    batch = MessageBatch(**{name: found.get(f"message_{name}") for name in MessageBatch._fields})  # type: ignore[arg-type]
    message, slot = index.match(batch)
    assert np.array_equal(message, found["message"]) and np.array_equal(slot, found["slot"]), file.name
    print(f"{file.name}: {len(slot)} matches of {batch.n} messages")


def main() -> None:
    """Check all indexes in a folder, and what is not visible in them."""
    from tests.bolts.boolean.lanes.test_lanes import test_many_slots_of_one_message_are_sorted
    from tests.bolts.boolean.lanes.test_vectors import test_masks_are_those_of_numpy, test_what_is_written_is_what_numpy_picks

    instructions, folder = sys.argv[1:]
    assert instructions == INSTRUCTIONS, INSTRUCTIONS
    for file in sorted(Path(folder).glob("*.npz")):
        check(file)
    for test in (test_many_slots_of_one_message_are_sorted, test_masks_are_those_of_numpy, test_what_is_written_is_what_numpy_picks):
        test()


if __name__ == "__main__":
    main()
