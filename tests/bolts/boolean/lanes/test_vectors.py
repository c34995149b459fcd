"""The operations on 16 numbers do what numpy says they should: the test runs with the instructions of this processor, with others (``other_instructions.py``), and as loops."""

import numpy as np
import pytest
from numba import njit

from dskype.bolts.boolean.lanes.vector_kernels import (
    among,
    below,
    bits,
    covered,
    covered_floats,
    fetch,
    fill,
    flagged,
    lowest,
    order,
    order_into,
    order_many,
    pack,
    pack_only,
    pack_places,
    wanted_bits,
)

pytestmark = pytest.mark.long


@njit
def masks(edges, floats, codes, bitmap, wanted, values, box, limit, mask):
    """Return the results of all operations that return one, on numbers from place 16 on."""
    found = np.zeros(8, np.int64)
    found[0] = covered(edges, 16, box[0], box[1], box[2], box[3])
    found[1] = covered_floats(floats, 16, np.float32(box[0]), np.float32(box[1]), np.float32(box[2]), np.float32(box[3]))
    found[2] = among(codes, 16, wanted, 3, 3 + 4 * limit)
    found[3] = wanted_bits(codes, 16, bitmap, mask)
    found[4] = flagged(values, 16)
    found[5] = below(values, 16, limit)
    found[6] = bits(found[0])
    found[7] = lowest(found[0] | 1 << 20)
    return found


@njit
def written(values, mask, out, n, many, most):
    """Write with all operations that do, one behind the other; return where each begins."""
    fetch(values, 3)
    size = bits(mask)
    pack(values, 16, mask, out, 5)
    pack_places(1000, mask, out, 5 + size)
    fill(out, 5 + 2 * size, 77)
    pack_only(values, 16, mask, out, 100)
    order(values, 16, n)
    order_into(values, 40, many, out, 130)
    order_many(values, 80, most)


def as_mask(flags):
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def test_masks_are_those_of_numpy():
    rng = np.random.default_rng(1)
    for turn in range(40):
        top = (4, 65536)[turn % 2]
        edges = rng.integers(0, top, 96).astype(np.uint16)
        floats, codes = edges.astype(np.float32), rng.integers(0, (6, 65536)[turn % 2], 96).astype(np.uint16)
        bitmap, values = rng.integers(-(2**31), 2**31, 2048).astype(np.int32), rng.integers(-9, 9, 48).astype(np.int32)
        box, limit = rng.integers(0, top, 4), turn % 6
        wanted = rng.choice(codes[16:80], 25).astype(np.int64)
        mask = int(rng.integers(0, 1 << 16)) if turn > 1 else 0xFFFF
        found = masks(edges, floats, codes, bitmap, wanted, values, box, limit, mask)
        west, south, east, north = edges[16:80].reshape(4, 16).astype(int)
        overlap = as_mask((west <= box[2]) & (box[0] <= east) & (south <= box[3]) & (box[1] <= north))
        strict = as_mask((west < box[2]) & (box[0] < east) & (south < box[3]) & (box[1] < north))
        assert found[0] == overlap | strict << 16 and found[1] == overlap
        assert found[2] == as_mask(np.isin(codes[16:80], wanted[3 : 3 + 4 * limit]).reshape(4, 16).all(axis=0))
        there = bitmap[codes[16:80] >> 5] >> (codes[16:80] & 31).astype(np.int32) & 1
        assert found[3] == as_mask(there.reshape(4, 16).all(axis=0)) & mask
        assert found[4] == as_mask(values[16:32] < 0) and found[5] == as_mask(values[16:32] < limit)
        assert found[6] == int(found[0]).bit_count() and found[7] == (int(found[0]) & -int(found[0]) | (0 if found[0] else 1 << 20)).bit_length() - 1


def test_what_is_written_is_what_numpy_picks():
    rng = np.random.default_rng(2)
    for turn in range(70):
        values, out = rng.integers(-(2**31), 2**31, 180).astype(np.int32), np.zeros(200, np.int32)
        mask, n, many, most = int(rng.integers(0, 1 << 16)) if turn else 0xFFFF, turn % 17, turn % 33, turn % 65
        wanted, chosen = values.copy(), np.array([bool(mask >> j & 1) for j in range(16)])
        wanted[16 : 16 + n], wanted[80 : 80 + most] = np.sort(values[16 : 16 + n]), np.sort(values[80 : 80 + most])
        size = int(chosen.sum())
        picked = values[16:32][chosen]
        written(values, mask, out, n, many, most)
        assert (values == wanted).all()
        assert (out[5 : 5 + size] == picked).all() and (out[5 + size : 5 + 2 * size] == 1000 + np.flatnonzero(chosen)).all()
        assert (out[5 + 2 * size : 21 + 2 * size] == 77).all() and not out[:5].any()
        assert (out[100 : 100 + size] == picked).all() and not out[100 + size : 130].any()
        assert (out[130 : 130 + many] == np.sort(values[40 : 40 + many])).all()
