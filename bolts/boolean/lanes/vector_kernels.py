"""Operations on 16 numbers at a time, as AVX-512 instructions where the processor has them. Imports numpy, numba and its llvmlite only.

Every operation exists twice with the same result: as vector instructions, emitted through LLVM, and as plain loops for other
processors and for runs without compilation. Which one is taken follows from what numba compiles for, on which its cache of
compiled code depends, too.

Arrays are given with the flat place of the first of the 16 numbers. What writes 16 numbers may write undefined values behind the
wanted ones, so arrays that are written to need 16 further places.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

__all__ = [
    "WIDE",
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

_I1, _I16, _I32, _I64, _F32 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


def _has_vectors() -> bool:
    """Tell whether numba compiles for a processor with the instructions that are used here."""
    if config.DISABLE_JIT:
        return False
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return all(f"+{name}" in features.split(",") for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq"))


WIDE = _has_vectors()
"""Whether vector instructions are used."""


# -- how instructions are emitted -------------------------------------------------------------------


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


def _flags(builder, mask):
    """Return the 16 low bits of an int64 as <16 x i1>."""
    return builder.bitcast(builder.trunc(mask, _I16), ir.VectorType(_I1, 16))


def _call(builder, name, result, *arguments):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, arguments)


def _compress(builder, values, mask):
    return _call(builder, "llvm.x86.avx512.mask.compress.v16i32", values.type, values, ir.Constant(values.type, [0] * 16), _flags(builder, mask))


def _sorted(builder, address, n, count):
    """Return ``count`` vectors with the first ``n`` int32 at an address, sorted by a bitonic network, and which of their places these take."""
    kind, places = ir.VectorType(_I32, 16), 16 * count
    limit, rows, inside = _splat(builder, builder.trunc(n, _I32)), [], []
    for v in range(count):
        inside.append(builder.icmp_signed("<", _indices(range(16 * v, 16 * v + 16)), limit))
        pointer = builder.inttoptr(builder.add(address, _I64(64 * v)), kind.as_pointer())
        rows.append(_call(builder, "llvm.masked.load.v16i32.p0", kind, pointer, _I32(4), inside[v], ir.Constant(kind, [2**31 - 1] * 16)))
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
        pointer = builder.inttoptr(builder.add(address, _I64(64 * v)), rows[v].type.as_pointer())
        _call(builder, "llvm.masked.store.v16i32.p0", ir.VoidType(), rows[v], pointer, _I32(4), inside[v])


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


if WIDE:

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
            masks = []
            for less in ("<=", "<"):
                across = builder.and_(builder.icmp_unsigned(less, west, x_high), builder.icmp_unsigned(less, x_low, east))
                along = builder.and_(builder.icmp_unsigned(less, south, y_high), builder.icmp_unsigned(less, y_low, north))
                masks.append(_mask(builder, builder.and_(across, along)))
            return builder.or_(masks[0], builder.shl(masks[1], _I64(16)))

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
    def wanted_bits(typingctx, codes, at, bitmap):
        """Return for which of 16 lanes all four codes have their bit set.

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
            return _mask(builder, builder.trunc(found, ir.VectorType(_I1, 16)))

        return types.int64(codes, types.int64, bitmap), _emit

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
            _store(builder, _address(context, builder, signature.args[3], args[3], args[4]), _compress(builder, value, args[2]))
            return context.get_dummy_value()

        return types.void(values, types.int64, types.int64, out, types.int64), _emit

    @intrinsic
    def pack_only(typingctx, values, at, mask, out, n):
        """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on, and nothing behind them."""

        def _emit(context, builder, signature, args):
            value = _compress(builder, _load(builder, _address(context, builder, signature.args[0], args[0], args[1]), _I32), args[2])
            size = builder.trunc(builder.ctpop(args[2]), _I32)
            wanted = builder.icmp_signed("<", _indices(range(16)), _splat(builder, size))
            pointer = builder.inttoptr(_address(context, builder, signature.args[3], args[3], args[4]), value.type.as_pointer())
            _call(builder, "llvm.masked.store.v16i32.p0", ir.VoidType(), value, pointer, _I32(4), wanted)
            return context.get_dummy_value()

        return types.void(values, types.int64, types.int64, out, types.int64), _emit

    @intrinsic
    def pack_places(typingctx, first, mask, out, n):
        """Write ``first`` plus the place of each set bit to ``out``, from ``n`` on."""

        def _emit(context, builder, signature, args):
            value = builder.add(_splat(builder, builder.trunc(args[0], _I32)), _indices(range(16)))
            _store(builder, _address(context, builder, signature.args[2], args[2], args[3]), _compress(builder, value, args[1]))
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
            _sort(builder, _address(context, builder, signature.args[0], args[0], args[1]), args[2], 4)
            return context.get_dummy_value()

        return types.void(values, types.int64, types.int64), _emit

else:

    @njit(cache=True)
    def covered(edges, at, x_low, y_low, x_high, y_high):
        """Return which of 16 rectangles overlap one, in the low 16 bits, and which do so by more than an edge, in the next 16."""
        flat, found, inside = edges.reshape(-1), np.int64(0), np.int64(0)
        for j in range(16):
            west, south = np.int64(flat[at + j]), np.int64(flat[at + 16 + j])
            east, north = np.int64(flat[at + 32 + j]), np.int64(flat[at + 48 + j])
            found |= np.int64((west <= x_high) & (x_low <= east) & (south <= y_high) & (y_low <= north)) << j
            inside |= np.int64((west < x_high) & (x_low < east) & (south < y_high) & (y_low < north)) << j
        return found | (inside << 16)

    @njit(cache=True)
    def covered_floats(edges, at, x_low, y_low, x_high, y_high):
        """Return which of 16 rectangles overlap one, in 16 bits; as :func:`covered`, of float32."""
        flat, found = edges.reshape(-1), np.int64(0)
        for j in range(16):
            west, south, east, north = flat[at + j], flat[at + 16 + j], flat[at + 32 + j], flat[at + 48 + j]
            found |= np.int64((west <= x_high) & (x_low <= east) & (south <= y_high) & (y_low <= north)) << j
        return found

    @njit(cache=True)
    def among(codes, at, wanted, first, last):
        """Return for which of 16 lanes all four codes are among ``wanted[first:last]``."""
        flat, found = codes.reshape(-1), np.int64(0)
        for j in range(16):
            have = 0
            for i in range(4):
                code = np.int64(flat[at + 16 * i + j])
                for c in range(first, last):
                    if wanted[c] == code:
                        have += 1
                        break
            found |= np.int64(have == 4) << j
        return found

    @njit(cache=True)
    def wanted_bits(codes, at, bitmap):
        """Return for which of 16 lanes all four codes have their bit set."""
        flat, found = codes.reshape(-1), np.int64(0)
        for j in range(16):
            bit = np.int64(1)
            for i in range(4):
                code = np.int64(flat[at + 16 * i + j])
                bit &= np.int64(bitmap[code >> 5]) >> (code & 31)
            found |= (bit & 1) << j
        return found

    @njit(cache=True)
    def flagged(values, at):
        """Return which of 16 int32 are negative."""
        flat, found = values.reshape(-1), np.int64(0)
        for j in range(16):
            found |= np.int64(flat[at + j] < 0) << j
        return found

    @njit(cache=True)
    def below(values, at, limit):
        """Return which of 16 int32 are below a limit."""
        found = np.int64(0)
        for j in range(16):
            found |= np.int64(values[at + j] < limit) << j
        return found

    @njit(cache=True)
    def pack(values, at, mask, out, n):
        """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on."""
        flat = values.reshape(-1)
        for j in range(16):
            if mask >> j & 1:
                out[n] = flat[at + j]
                n += 1

    @njit(cache=True)
    def pack_only(values, at, mask, out, n):
        """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on, and nothing behind them."""
        for j in range(16):
            if mask >> j & 1:
                out[n] = values[at + j]
                n += 1

    @njit(cache=True)
    def pack_places(first, mask, out, n):
        """Write ``first`` plus the place of each set bit to ``out``, from ``n`` on."""
        for j in range(16):
            if mask >> j & 1:
                out[n] = first + j
                n += 1

    @njit(cache=True)
    def fill(out, n, value):
        """Write a value 16 times to ``out`` (int32[]), from ``n`` on."""
        for j in range(16):
            out[n + j] = value

    @njit(cache=True)
    def bits(mask):
        """Return how many bits are set."""
        n = 0
        while mask:
            mask &= mask - 1
            n += 1
        return n

    @njit(cache=True)
    def lowest(mask):
        """Return the place of the lowest bit that is set; there is one."""
        n = 0
        while not mask >> n & 1:
            n += 1
        return n

    @njit(cache=True)
    def fetch(array, at):
        """Do nothing: the memory is left to itself."""

    @njit(cache=True)
    def order(values, at, n):
        """Sort up to 16 int32 in place."""
        for i in range(at + 1, at + n):
            value = values[i]
            j = i - 1
            while j >= at and values[j] > value:
                values[j + 1] = values[j]
                j -= 1
            values[j + 1] = value

    @njit(cache=True)
    def order_many(values, at, n):
        """Sort up to 64 int32 in place."""
        order(values, at, n)

    @njit(cache=True)
    def order_into(values, at, n, out, m):
        """Write up to 32 int32 in rising order to ``out``, from ``m`` on."""
        for i in range(n):
            out[m + i] = values[at + i]
        order(out, m, n)
