"""Operations on 16 numbers at a time as vector instructions, emitted through LLVM. Imports numpy, numba and its llvmlite only.

What :mod:`dskype.bolts.boolean.lanes.vector_kernels` says of the operations holds here. LLVM makes vectors of 16 numbers from those that the processor has. Only what it
would not do well is emitted for AVX-512, AVX2 and any other processor apart.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from dskype.topology.kernel_cache import njit

_I1, _I8, _I16, _I32, _I64, _F32 = ir.IntType(1), ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


def _instructions() -> str:
    """Return what the processor has that numba compiles for: ``avx512``, ``avx2`` or ``any``."""
    features = (get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES).split(",")
    for name, needed in (("avx512", ("avx512f", "avx512bw", "avx512vl", "avx512dq")), ("avx2", ("avx2", "popcnt", "bmi"))):
        if all(f"+{feature}" in features for feature in needed):
            return name
    return "any"


INSTRUCTIONS = _instructions()
"""Which instructions are emitted: ``avx512``, ``avx2`` or ``any``."""


# -- how they are emitted ----------------------------------------------------------------------------


def _address(context, builder, kind, array, at):
    data = context.make_array(kind)(context, builder, array).data
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    return builder.add(builder.ptrtoint(data, _I64), builder.mul(at, _I64(size)))


def _load(builder, address, item, n=16, skip=0):
    vector = ir.VectorType(item, n)
    pointer = builder.inttoptr(builder.add(address, _I64(skip)), vector.as_pointer())
    return builder.load(pointer, align=2 if item == _I16 else 4)


def _store(builder, address, value):
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _indices(values):
    return ir.Constant(ir.VectorType(_I32, len(values)), list(values))


def _splat(builder, value, n=16):
    nothing = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _I32(0)), nothing, _indices([0] * n))


def _mask(builder, flags):
    """Return <n x i1> as an int64."""
    wide = builder.bitcast(flags, ir.IntType(flags.type.count))
    return wide if flags.type.count == 64 else builder.zext(wide, _I64)


def _call(builder, name, result, *arguments):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, arguments)


def _flags(builder, mask):
    """Return the 16 low bits of an int64 as <16 x i1>."""
    return builder.bitcast(builder.trunc(mask, _I16), ir.VectorType(_I1, 16))


def _compressed(builder, values, mask):
    """Return those of 16 int32 whose bit is set in the low 16 bits of a mask, then undefined values."""
    if INSTRUCTIONS == "avx512":
        nothing = ir.Constant(values.type, [0] * 16)
        return _call(builder, "llvm.x86.avx512.mask.compress.v16i32", values.type, values, nothing, _flags(builder, mask))
    room = builder.ptrtoint(cgutils.alloca_once(builder, values.type), _I64)
    _store_packed(builder, room, values, mask)
    return _load(builder, room, _I32)


def _halves(builder, values):
    return [builder.shuffle_vector(values, values, _indices(range(first, first + 8))) for first in (0, 8)]


def _packing(module):
    """Return the table of AVX2: for each mask of 8 bits the places of its set bits, then zeros, a byte each."""
    name, kind = "dskype.packing", ir.ArrayType(_I64, 256)
    table = module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(module, kind, name)
        table.linkage, table.global_constant, table.align = "internal", True, 64
        places = [[j for j in range(8) if mask >> j & 1] for mask in range(256)]
        table.initializer = ir.Constant(kind, [sum(j << 8 * i for i, j in enumerate(row)) for row in places])
    return table


def _store_packed(builder, address, values, mask):
    """Write those of 16 int32 whose bit is set in the low 16 bits of a mask, and undefined values behind them, 16 in all at most."""
    if INSTRUCTIONS == "avx512":
        _store(builder, address, _compressed(builder, values, mask))
        return
    if INSTRUCTIONS == "any":
        for place in range(16):
            builder.store(builder.extract_element(values, _I32(place)), builder.inttoptr(address, _I32.as_pointer()))
            address = builder.add(address, builder.and_(builder.shl(mask, _I64(2)), _I64(4)))
            mask = builder.lshr(mask, _I64(1))
        return
    table = _packing(builder.module)
    for half in _halves(builder, values):
        some = builder.and_(mask, _I64(255))
        places = builder.bitcast(builder.load(builder.gep(table, [_I64(0), some])), ir.VectorType(_I8, 8))
        _store(builder, address, _call(builder, "llvm.x86.avx2.permd", half.type, half, builder.zext(places, half.type)))
        address, mask = builder.add(address, builder.shl(builder.ctpop(some), _I64(2))), builder.lshr(mask, _I64(8))


def _sorted(builder, address, n, count):
    """Return ``count`` vectors with the first ``n`` int32 at an address, sorted by a bitonic network, and which of their places these take."""
    limit, places = _splat(builder, builder.trunc(n, _I32)), 16 * count
    inside = [builder.icmp_signed("<", _indices(range(first, first + 16)), limit) for first in range(0, places, 16)]
    rows = [_load_only(builder, builder.add(address, _I64(64 * v)), inside[v]) for v in range(count)]
    size = 2
    while size <= places:
        step = size // 2
        while step:
            rows = [_exchanged(builder, rows, v, size, step) for v in range(count)]
            step //= 2
        size *= 2
    return rows, inside


def _sort(builder, address, n, count):
    """Sort the first ``n`` int32 at an address, of ``count`` vectors; nothing behind them is written to."""
    rows, inside = _sorted(builder, address, n, count)
    for v in range(count):
        _store_only(builder, builder.add(address, _I64(64 * v)), rows[v], inside[v])


def _load_only(builder, address, inside):
    """Return those of 16 int32 at an address that are inside, and the greatest number for the others. The inner ones are the first; if there are any, all are read."""
    kind = ir.VectorType(_I32, 16)
    others = ir.Constant(kind, [2**31 - 1] * 16)
    if INSTRUCTIONS != "any":
        return _call(builder, "llvm.masked.load.v16i32.p0", kind, builder.inttoptr(address, kind.as_pointer()), _I32(4), inside, others)
    row = cgutils.alloca_once_value(builder, others)
    with builder.if_then(builder.extract_element(inside, _I32(0))):
        builder.store(builder.select(inside, _load(builder, address, _I32), others), row)
    return builder.load(row)


def _store_only(builder, address, values, inside):
    """Write those of 16 int32 that are inside. They are the first ones; up to seven behind them may be written as they were read."""
    if INSTRUCTIONS == "avx512":
        _call(builder, "llvm.masked.store.v16i32.p0", ir.VoidType(), values, builder.inttoptr(address, values.type.as_pointer()), _I32(4), inside)
        return
    # A store with a mask is microcode on some processors with AVX2, and others have none.
    for half, some in zip(_halves(builder, values), _halves(builder, inside)):
        with builder.if_then(builder.extract_element(some, _I32(0))):
            _store(builder, address, builder.select(some, half, _load(builder, address, _I32, 8)))
        address = builder.add(address, _I64(32))


def _exchanged(builder, rows, v, size, step):
    """Return a vector of a bitonic network after one step."""
    value, rises = rows[v], [not (16 * v + j) & size for j in range(16)]
    if step >= 16:
        other, first = rows[v ^ (step // 16)], not 16 * v & step
        return builder.select(builder.icmp_signed("<" if first == rises[0] else ">", value, other), value, other)
    other = builder.shuffle_vector(value, value, _indices([j ^ step for j in range(16)]))
    less = builder.icmp_signed("<", value, other)
    low, high = builder.select(less, value, other), builder.select(less, other, value)
    return builder.shuffle_vector(low, high, _indices([j if (not j & step) == rises[j] else j + 16 for j in range(16)]))


def _covered_by_masks(builder, pairs):
    """Return where no first number is above the second one, and where all are below."""
    found = []
    for less in ("<=", "<"):
        some = [builder.icmp_unsigned(less, low, high) for low, high in pairs]
        found.append(builder.and_(builder.and_(some[0], some[1]), builder.and_(some[2], some[3])))
    return found


def _covered_by_differences(builder, pairs):
    """Return the same. Other processors cannot compare unsigned numbers at once, but they subtract them and take 0 for what is less."""
    above = below = None
    for low, high in pairs:
        over, under = (_call(builder, "llvm.usub.sat.v16i16", low.type, *some) for some in ((low, high), (high, low)))
        above = over if above is None else builder.or_(above, over)
        below = under if below is None else _call(builder, "llvm.umin.v16i16", low.type, below, under)
    zero = ir.Constant(above.type, [0] * 16)
    return builder.icmp_unsigned("==", above, zero), builder.icmp_unsigned("!=", below, zero)


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


@intrinsic
def covered(typingctx, edges, at, x_low, y_low, x_high, y_high):
    """Return which of 16 rectangles overlap one, in the low 16 bits, and which do so by more than an edge, in the next 16.

    :param edges: uint16[]: from ``at`` on 16 times west, then south, east, north.
    :param x_low, ...: the other rectangle, int64s of 16 bits.
    """

    def _emit(context, builder, signature, args):
        address = _address(context, builder, signature.args[0], args[0], args[1])
        west, south, east, north = (_load(builder, address, _I16, skip=32 * i) for i in range(4))
        x_low, y_low, x_high, y_high = (_splat(builder, builder.trunc(a, _I16)) for a in args[2:])
        pairs = [(west, x_high), (x_low, east), (south, y_high), (y_low, north)]
        emit = _covered_by_masks if INSTRUCTIONS == "avx512" else _covered_by_differences
        touching, more = emit(builder, pairs)
        return builder.or_(_mask(builder, touching), builder.shl(_mask(builder, more), _I64(16)))

    return types.int64(edges, types.int64, *[types.int64] * 4), _emit


@intrinsic
def covered_floats(typingctx, edges, at, x_low, y_low, x_high, y_high):
    """Return which of 16 rectangles overlap one, in 16 bits; as :func:`covered`, of float32."""

    def _emit(context, builder, signature, args):
        address = _address(context, builder, signature.args[0], args[0], args[1])
        west, south, east, north = (_load(builder, address, _F32, skip=64 * i) for i in range(4))
        x_low, y_low, x_high, y_high = (_splat(builder, a) for a in args[2:])
        across = builder.and_(builder.fcmp_ordered("<=", west, x_high), builder.fcmp_ordered("<=", x_low, east))
        along = builder.and_(builder.fcmp_ordered("<=", south, y_high), builder.fcmp_ordered("<=", y_low, north))
        return _mask(builder, builder.and_(across, along))

    return types.int64(edges, types.int64, *[types.float32] * 4), _emit


@intrinsic
def among(typingctx, codes, at, wanted, first, last):
    """Return for which of 16 lanes all four codes are among ``wanted[first:last]``.

    :param codes: uint16[]: from ``at`` on 16 times the first code, then the second, ...
    :param wanted: int64[]; ``last - first`` is a multiple of four.
    """

    def _emit(context, builder, signature, args):
        address = _address(context, builder, signature.args[0], args[0], args[1])
        base = context.make_array(signature.args[2])(context, builder, args[2]).data
        halves = [_load(builder, address, _I16, 32, skip) for skip in (0, 64)]
        kind = halves[0].type
        # The least of code ^ wanted is 0 where they are equal; comparing at once would take a mask register for each.
        least = [cgutils.alloca_once_value(builder, ir.Constant(kind, [0xFFFF] * 32)) for _ in halves]
        with cgutils.for_range_slice(builder, args[3], args[4], _I64(4), _I64, inc=True) as (place, _):
            some = [builder.load(builder.gep(base, [builder.add(place, _I64(k))])) for k in range(4)]
            values = [_splat(builder, builder.trunc(value, _I16), 32) for value in some]
            for half, kept in zip(halves, least):
                found = builder.load(kept)
                for value in values:
                    found = _call(builder, "llvm.umin.v32i16", kind, found, builder.xor(half, value))
                builder.store(found, kept)
        low, high = (_mask(builder, builder.icmp_unsigned("==", builder.load(kept), ir.Constant(kind, [0] * 32))) for kept in least)
        both = builder.and_(low, high)
        return builder.and_(builder.and_(both, builder.lshr(both, _I64(16))), _I64(0xFFFF))

    return types.int64(codes, types.int64, wanted, types.int64, types.int64), _emit


@intrinsic
def flagged(typingctx, values, at):
    """Return which of 16 int32 are negative."""

    def _emit(context, builder, signature, args):
        value = _load(builder, _address(context, builder, signature.args[0], args[0], args[1]), _I32)
        return _mask(builder, builder.icmp_signed("<", value, ir.Constant(value.type, [0] * 16)))

    return types.int64(values, types.int64), _emit


@intrinsic
def below(typingctx, values, at, limit):
    """Return which of 16 int32 are below a limit."""

    def _emit(context, builder, signature, args):
        value = _load(builder, _address(context, builder, signature.args[0], args[0], args[1]), _I32)
        return _mask(builder, builder.icmp_signed("<", value, _splat(builder, builder.trunc(args[2], _I32))))

    return types.int64(values, types.int64, types.int64), _emit


@intrinsic
def pack(typingctx, values, at, mask, out, n):
    """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on."""

    def _emit(context, builder, signature, args):
        value = _load(builder, _address(context, builder, signature.args[0], args[0], args[1]), _I32)
        _store_packed(builder, _address(context, builder, signature.args[3], args[3], args[4]), value, args[2])
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, out, types.int64), _emit


@intrinsic
def pack_only(typingctx, values, at, mask, out, n):
    """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on, and nothing behind them."""

    def _emit(context, builder, signature, args):
        value = _compressed(builder, _load(builder, _address(context, builder, signature.args[0], args[0], args[1]), _I32), args[2])
        inside = builder.icmp_signed("<", _indices(range(16)), _splat(builder, builder.trunc(builder.ctpop(args[2]), _I32)))
        _store_only(builder, _address(context, builder, signature.args[3], args[3], args[4]), value, inside)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, out, types.int64), _emit


@intrinsic
def pack_places(typingctx, first, mask, out, n):
    """Write ``first`` plus the place of each set bit to ``out``, from ``n`` on."""

    def _emit(context, builder, signature, args):
        value = builder.add(_splat(builder, builder.trunc(args[0], _I32)), _indices(range(16)))
        _store_packed(builder, _address(context, builder, signature.args[2], args[2], args[3]), value, args[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, out, types.int64), _emit


@intrinsic
def fill(typingctx, out, n, value):
    """Write a value 16 times to ``out`` (int32[]), from ``n`` on."""

    def _emit(context, builder, signature, args):
        _store(builder, _address(context, builder, signature.args[0], args[0], args[1]), _splat(builder, builder.trunc(args[2], _I32)))
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64), _emit


@intrinsic
def bits(typingctx, mask):
    """Return how many bits are set."""

    def _emit(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.int64), _emit


@intrinsic
def lowest(typingctx, mask):
    """Return the place of the lowest bit that is set; there is one."""

    def _emit(context, builder, signature, args):
        return builder.cttz(args[0], _I1(1))

    return types.int64(types.int64), _emit


@intrinsic
def fetch(typingctx, array, at):
    """Let the memory bring what is at a place of an array, without waiting for it."""

    def _emit(context, builder, signature, args):
        pointer = builder.inttoptr(_address(context, builder, signature.args[0], args[0], args[1]), ir.IntType(8).as_pointer())
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, _I32(0), _I32(3), _I32(1))
        return context.get_dummy_value()

    return types.void(array, types.int64), _emit


@intrinsic
def order(typingctx, values, at, n):
    """Sort up to 16 int32 in place."""

    def _emit(context, builder, signature, args):
        _sort(builder, _address(context, builder, signature.args[0], args[0], args[1]), args[2], 1)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64), _emit


@intrinsic
def order_into(typingctx, values, at, n, out, m):
    """Write up to 32 int32 in rising order to ``out``, from ``m`` on."""

    def _emit(context, builder, signature, args):
        source = _address(context, builder, signature.args[0], args[0], args[1])
        target = _address(context, builder, signature.args[3], args[3], args[4])
        few = builder.icmp_signed("<=", args[2], _I64(16))
        with builder.if_else(few) as (small, large):
            for branch, count in ((small, 1), (large, 2)):
                with branch:
                    for v, row in enumerate(_sorted(builder, source, args[2], count)[0]):
                        _store(builder, builder.add(target, _I64(64 * v)), row)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, out, types.int64), _emit


@intrinsic
def order_many(typingctx, values, at, n):
    """Sort up to 64 int32 in place."""

    def _emit(context, builder, signature, args):
        address = _address(context, builder, signature.args[0], args[0], args[1])
        few = builder.icmp_signed("<=", args[2], _I64(32))
        with builder.if_else(few) as (small, large):
            for branch, count in ((small, 2), (large, 4)):
                with branch:
                    _sort(builder, address, args[2], count)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64), _emit


if INSTRUCTIONS == "avx512":

    @intrinsic
    def wanted_bits(typingctx, codes, at, bitmap, mask):
        """Return which of the 16 lanes of a mask have four codes whose bits are all set.

        :param codes: uint16[]: from ``at`` on 16 times the first code, then the second, ...
        :param bitmap: int32[2048].
        """

        def _emit(context, builder, signature, args):
            address = _address(context, builder, signature.args[0], args[0], args[1])
            base = context.make_array(signature.args[2])(context, builder, args[2]).data
            base = builder.bitcast(base, ir.IntType(8).as_pointer())
            kind = ir.VectorType(_I32, 16)
            found = None
            for i in range(4):
                code = builder.zext(_load(builder, address, _I16, skip=32 * i), kind)
                word = builder.lshr(code, ir.Constant(kind, [5] * 16))
                every = ir.Constant(ir.VectorType(_I1, 16), [1] * 16)
                zero = ir.Constant(kind, [0] * 16)
                read = _call(builder, "llvm.x86.avx512.mask.gather.dpi.512", kind, zero, base, word, every, _I32(4))
                bit = builder.lshr(read, builder.and_(code, ir.Constant(kind, [31] * 16)))
                found = bit if found is None else builder.and_(found, bit)
            return builder.and_(args[3], _mask(builder, builder.trunc(found, ir.VectorType(_I1, 16))))

        return types.int64(codes, types.int64, bitmap, types.int64), _emit

else:

    @njit(cache=True)
    def wanted_bits(codes, at, bitmap, mask):
        """Return which of the 16 lanes of a mask have four codes whose bits are all set. To gather 64 words takes longer than to look at those of a few lanes."""
        flat, found = codes.reshape(-1), np.int64(0)
        while mask:
            j = lowest(mask)
            mask &= mask - 1
            bit = np.int64(1)
            for i in range(4):
                code = np.int64(flat[at + 16 * i + j])
                bit &= np.int64(bitmap[code >> 5]) >> (code & 31)
            found |= (bit & 1) << j
        return found
