"""Operations on 16 numbers at a time, as vector instructions. Imports numba and its llvmlite only.

Every operation exists twice with the same result: as instructions (:mod:`dskype.bolts.boolean.lanes.instruction_kernels`), and as plain loops for runs without
compilation (:mod:`dskype.bolts.boolean.lanes.loop_kernels`). Which instructions they are follows from what numba compiles for, on which its cache of compiled code depends, too.

Arrays are given with the flat place of the first of the 16 numbers. What writes 16 numbers may write undefined values behind the
wanted ones, so arrays that are written to need 16 further places.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import config
from numba.extending import intrinsic

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

if config.DISABLE_JIT:

    def lent(array):
        """Return the array."""
        return array

else:

    @intrinsic
    def lent(typingctx, array):
        """Return an array that does not count who holds it; the caller's caller has to.

        Counting is atomic, and it is done at nearly every use of a field of a tuple: half of the time of small kernels.
        """

        def _emit(context, builder, signature, args):
            kind = signature.args[0]
            view = context.make_array(kind)(context, builder, args[0])
            view.meminfo, view.parent = ir.Constant(view.meminfo.type, None), ir.Constant(view.parent.type, None)
            return view._getvalue()

        return array(array), _emit
