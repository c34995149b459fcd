"""Operations on 16 numbers at a time, as vector instructions. Imports numba only.

Every operation exists twice with the same result: as instructions (:mod:`dskype.bolts.boolean.lanes.instruction_kernels`), and as plain loops for runs without
compilation (:mod:`dskype.bolts.boolean.lanes.loop_kernels`). Which instructions they are follows from what numba compiles for, on which its cache of compiled code depends, too.

Arrays are given with the flat place of the first of the 16 numbers. What writes 16 numbers may write undefined values behind the
wanted ones, so arrays that are written to need 16 further places.
"""

from __future__ import annotations

from numba.core import config

if config.DISABLE_JIT:
    from dskype.bolts.boolean.lanes.loop_kernels import (
        among,
        below,
        bits,
        covered,
        covered_floats,
        fetch,
        fill,
        flagged,
        lent,
        lowest,
        order,
        order_into,
        order_many,
        pack,
        pack_only,
        pack_places,
        wanted_bits,
    )
else:
    from dskype.bolts.boolean.lanes.instruction_kernels import (
        among,
        below,
        bits,
        covered,
        covered_floats,
        fetch,
        fill,
        flagged,
        lent,
        lowest,
        order,
        order_into,
        order_many,
        pack,
        pack_only,
        pack_places,
        wanted_bits,
    )

__all__ = [
    "among",
    "below",
    "bits",
    "covered",
    "covered_floats",
    "fetch",
    "fill",
    "flagged",
    "lent",
    "lowest",
    "order",
    "order_into",
    "order_many",
    "pack",
    "pack_only",
    "pack_places",
    "wanted_bits",
]
