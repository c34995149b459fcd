"""Numbers of several columns, each once."""

import numpy as np
import pytest

from dskype.spouts.columns import distinct


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_numbers_come_once_and_rising_as_from_a_set(seed, dtype):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-5, 1 << rng.integers(2, 30), int(rng.integers(0, 200))).astype(dtype) for _ in range(rng.integers(1, 4))]
    found = distinct(*columns)
    assert found.tolist() == sorted({number for column in columns for number in column.tolist()}) and found.dtype == dtype


def test_no_numbers_are_none():
    assert distinct(np.zeros(0, np.int64)).tolist() == []
