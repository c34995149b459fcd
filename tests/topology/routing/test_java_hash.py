"""Java's hash codes. The golden values are from OpenJDK 17: hashCode() of boxed values, Arrays.deepHashCode of lists."""

import ast
import math
import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from dskype.topology import IllegalArgumentException
from dskype.topology.routing import _kernels, java_hash
from dskype.topology.routing.java_hash import deep_hash, hash_column, hash_columns, key_bytes_seed, two_candidates, value_hash

STRINGS = [
    ("", 0),
    ("a", 97),
    ("word", 3655434),
    ("hello world", 1794106052),
    ("é", 233),
    ("日本語", 25921943),
    ("\U0001f600 smile", -1559691765),
    ("\0", 0),
    ("\uffff", 65535),
    ("The quick brown fox jumps over the lazy dog", -609428141),
]
LONGS = [
    (0, 0),
    (1, 1),
    (-1, 0),
    (42, 42),
    (-42, 41),
    (2147483647, 2147483647),
    (2147483648, -2147483648),
    (-2147483648, 2147483647),
    (-2147483649, -2147483648),
    (4294967296, 1),
    (2**63 - 1, -2147483648),
    (-(2**63), -2147483648),
    (1234567890123456789, 1825280481),
    (-1234567890123456789, 1825280480),
]
BIG_INTEGERS = [(2**63, -2147483648), (-(2**63) - 1, 2147483647), (2**64, 961), (-(2**128), -923521), (123456789012345678901234567890, 1915528825)]
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
DOUBLES = [
    (0.0, 0),
    (-0.0, -2147483648),
    (1.0, 1072693248),
    (-1.0, -1074790400),
    (0.5, 1071644672),
    (3.141592653589793, 340593891),
    (math.nan, 2146959360),
    (OTHER_NAN, 2146959360),
    (math.inf, 2146435072),
    (-math.inf, -1048576),
    (1e300, -164130400),
    (5e-324, 1),
    (-122.4194, -1287231865),
]
BYTES = [(b"", 1), (b"\x00\xff\x7f\x80", 926369)]
OTHERS = [(None, 0), (True, 1231), (False, 1237), ({"a": 1, "b": None}, 194), ({"a", -1, 2.5}, 1074004065), ([], 1)]
LISTS = [
    ([], 1),
    ([None], 31),
    (["word"], 3655465),
    (["a", 1], 3969),
    ([1, "a"], 1089),
    (["a", -1, 0.5, True, None], -823372399),
    ([[1, 2], ["a"]], 31903),
    ([b"\x01\xfe"], 1021),
    ([[]], 32),
    (["hello world", "zebra"], -101510013),
]


@pytest.mark.parametrize(("value", "expected"), STRINGS + LONGS + BIG_INTEGERS + DOUBLES + BYTES + OTHERS)
def test_a_value_hashes_as_in_java(value, expected):
    assert value_hash(value) == expected


@pytest.mark.parametrize(("values", "expected"), LISTS)
def test_a_list_of_values_hashes_as_storm_hashes_it(values, expected):
    assert deep_hash(values) == deep_hash(tuple(values)) == expected


@pytest.mark.parametrize(
    ("values", "by_task_count"),
    [(["word"], {1: 0, 2: 1, 3: 1, 5: 0, 8: 1}), ([-1], {1: 0, 2: 1, 3: 1, 5: 1, 8: 7}), (["hello world", "zebra"], {1: 0, 2: 1, 3: 0, 5: 2, 8: 3})],
)
def test_the_task_index_equals_storms(values, by_task_count):
    assert {n: deep_hash(values) % n for n in by_task_count} == by_task_count


def test_numpy_scalars_and_arrays_hash_as_the_python_values_they_hold():
    assert value_hash(np.int32(-42)) == value_hash(-42)
    assert value_hash(np.uint64(2**63)) == value_hash(2**63)
    assert value_hash(np.float32(0.5)) == value_hash(0.5)
    assert value_hash(np.bool_(True)) == 1231
    assert value_hash(np.str_("word")) == 3655434
    assert value_hash(np.array([1, 2])) == value_hash([1, 2])


def test_subclasses_hash_as_their_base():
    class Word(str):
        __slots__ = ()

    assert value_hash(Word("word")) == 3655434
    assert value_hash(bytearray(b"\x00\xff\x7f\x80")) == value_hash(memoryview(b"\x00\xff\x7f\x80")) == 926369


@pytest.mark.parametrize("value", [object(), 1j, np.datetime64("2026-01-01"), np.timedelta64(1, "s"), [1, object()]])
def test_a_value_without_a_portable_hash_is_refused(value):
    with pytest.raises(IllegalArgumentException, match="cannot hash a value of type .*given: .*legal: .*hint: group by"):
        value_hash(value)


@pytest.mark.parametrize(
    ("values", "by_task_count"),
    [
        (["word"], {1: (0, 0), 2: (0, 1), 3: (2, 0), 4: (0, 1), 7: (4, 0), 8: (0, 2), 13: (11, 4), 100: (77, 7)}),
        (["a"], {1: (0, 0), 2: (0, 1), 3: (1, 2), 4: (1, 0), 7: (3, 4), 8: (2, 0), 13: (0, 7), 100: (41, 5)}),
        ([-42], {1: (0, 0), 2: (0, 1), 3: (0, 1), 4: (1, 3), 7: (0, 2), 8: (2, 7), 13: (12, 4), 100: (10, 46)}),
        ([42], {1: (0, 0), 2: (0, 1), 3: (1, 0), 4: (1, 0), 7: (0, 4), 8: (2, 1), 13: (12, 0), 100: (36, 86)}),
        (["word", 7], {3: (1, 0), 8: (2, 1)}),
    ],
)
def test_the_two_candidates_of_a_partial_key_equal_storms(values, by_task_count):
    seed = key_bytes_seed(map(value_hash, values))
    assert {n: two_candidates(seed, n) for n in by_task_count} == by_task_count


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (3, [0, 2, 0, 0, 1, 1]),
        (8, [2, 2, 2, 2, 3, 5]),
        (1073741825, [578319411, 780466721, 717457953, 737996328, 817965352, 617011057]),
        (2147483647, [578319411, 780466721, 717457953, 737996328, 817965352, 1486179385]),
    ],
)
def test_the_random_numbers_equal_javas_rejections_included(bound, expected):
    state = (-5 ^ 0x5DEECE66D) & ((1 << 48) - 1)
    drawn = []
    for _ in expected:
        state, value = java_hash._next_int(state, bound)
        drawn.append(value)
    assert drawn == expected


# --- columns against the scalar functions -----------------------------------------------------------------------------

ALL_STRINGS = [s for s, _ in STRINGS] + ["\x7f\x80\u07ff\u0800\ud7ff\ue000\U00010000\U0010ffff", "ÿ" * 300]
ARROW_STRING_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
ARROW_BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def scalar(values):
    return [value_hash(v) for v in values]


def columns():
    ints = [v for v, _ in LONGS]
    floats = [v for v, _ in DOUBLES]
    raw = [b for b, _ in BYTES] + [bytes(range(256))]
    yield "int64", np.array(ints), ints
    yield "int8", np.array([-128, 0, 127], np.int8), [-128, 0, 127]
    yield "uint32", np.array([0, 2**32 - 1], np.uint32), [0, 2**32 - 1]
    yield "uint64", np.array([0, 2**63], np.uint64), [0, 2**63]
    yield "small uint64", np.array([0, 2**40], np.uint64), [0, 2**40]
    yield "float64", np.array(floats), floats
    yield "float32", np.array([0.1, -0.0], np.float32), np.array([0.1, -0.0], np.float32).tolist()
    yield "bool", np.array([True, False]), [True, False]
    yield "strided", np.arange(20)[::3], list(range(0, 20, 3))
    yield "strided float", (np.arange(20) / 3)[::3], (np.arange(20) / 3)[::3].tolist()
    yield "numpy str", np.array(["a", "é"]), ["a", "é"]
    yield "object", np.array(["a", None, 1, 1.0, True], object), ["a", None, 1, 1.0, True]
    yield "rows of vectors", np.arange(6).reshape(3, 2), [[0, 1], [2, 3], [4, 5]]
    yield "list", ["a", 1, True, 1.0, None, b"a", [1], -0.0, 0.0], ["a", 1, True, 1.0, None, b"a", [1], -0.0, 0.0]
    yield "list of str", ALL_STRINGS * 5, ALL_STRINGS * 5
    yield "list of str and None", ["a", None, "b"] * 20, ["a", None, "b"] * 20
    yield "list of lone surrogates", ["\ud800a"] * 40, ["\ud800a"] * 40
    yield "list of int", ints * 5, ints * 5
    yield "list of big int", [v for v, _ in BIG_INTEGERS] * 10, [v for v, _ in BIG_INTEGERS] * 10
    yield "list of float", floats * 5, floats * 5
    yield "list of bool", [True, False] * 20, [True, False] * 20
    yield "list of int and None", [1, None] * 20, [1, None] * 20
    yield "list of int and bool", [1, True] * 20, [1, True] * 20
    for kind in ARROW_STRING_TYPES:
        values = [*ALL_STRINGS, None]
        yield f"arrow {kind}", pa.array(values, kind), values
        yield f"arrow {kind} slice", pa.array(values, kind)[3:7], values[3:7]
        yield f"arrow {kind} only null", pa.array([None, None], kind), [None, None]
        yield f"arrow {kind} empty strings", pa.array(["", ""], kind), ["", ""]
        yield f"arrow {kind} no rows", pa.array([], kind), []
    for kind in ARROW_BINARY_TYPES:
        yield f"arrow {kind}", pa.array([*raw, None], kind), [*raw, None]
        yield f"arrow {kind} slice", pa.array([*raw, None], kind)[1:], [*raw, None][1:]
    yield "arrow fixed binary", pa.array([b"\x01\xff"], pa.binary(2)), [b"\x01\xff"]
    yield "arrow int64 with null", pa.array([1, None, -42]), [1, None, -42]
    yield "arrow int8", pa.array([1, -42], pa.int8()), [1, -42]
    yield "arrow uint64", pa.array([1, 2**63], pa.uint64()), [1, 2**63]
    yield "arrow double with null", pa.array([1.5, None]), [1.5, None]
    yield "arrow bool with null", pa.array([True, None, False]), [True, None, False]
    yield "arrow null", pa.nulls(3), [None, None, None]
    yield "arrow list", pa.array([[1, 2], None]), [[1, 2], None]
    words = ["b", None, "a", "b"]
    yield "arrow dictionary", pa.array(words).dictionary_encode(), words
    yield "arrow dictionary slice", pa.array(words).dictionary_encode()[1:], words[1:]
    yield "arrow dictionary without null", pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]
    yield "arrow dictionary of int", pa.array([5, 7, 5]).dictionary_encode(), [5, 7, 5]
    yield "arrow dictionary empty", pa.array([None, None], pa.string()).dictionary_encode(), [None, None]
    yield "arrow chunks", pa.chunked_array([["a"], ["b", None]]), ["a", "b", None]


CASES = list(columns())


@pytest.mark.parametrize(("column", "values"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_column_hashes_as_its_values(column, values):
    hashes = hash_column(column)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == scalar(values)


def test_a_read_only_array_is_hashed():
    frozen = np.arange(5)
    frozen.flags.writeable = False
    assert hash_column(frozen).tolist() == [0, 1, 2, 3, 4]


def test_rows_over_several_columns_hash_as_lists():
    rng = random.Random(7)
    rows = [(rng.choice(ALL_STRINGS), rng.getrandbits(70) - 2**69, rng.random(), rng.random() < 0.5) for _ in range(200)]
    names, numbers, shares, flags = (list(c) for c in zip(*rows, strict=True))
    hashed = hash_columns([pa.array(names), numbers, np.array(shares), np.array(flags)], len(rows))
    assert hashed.tolist() == [deep_hash(row) for row in rows]
    assert hash_columns([], 2).tolist() == [1, 1]


def test_dates_are_refused_in_columns_too():
    with pytest.raises(IllegalArgumentException, match="cannot hash a value of type"):
        hash_column(np.array(["2026-01-01"], "datetime64[D]"))


def test_the_kernels_import_numpy_and_numba_only():
    with open(_kernels.__file__) as file:
        tree = ast.parse(file.read())
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "numpy", "dskype.topology.kernel_cache"}
