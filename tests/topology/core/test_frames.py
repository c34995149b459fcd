import msgpack
import numpy as np
import pyarrow as pa
import pytest

from dskype.topology.core import frames, values
from dskype.topology.core.frames import (
    Control,
    DataFrame,
    Pulse,
    Tick,
    decode_frame,
    encode_control,
    encode_data,
    encode_pulse,
    encode_segment,
    encode_tick,
    encode_watermark,
    peek_header,
)
from dskype.topology.core.values import FrameError, pack_state, slice_column, take_column, unpack_state
from dskype.topology.tuples import column_to_list


def data_frame(*segments, source=3, first=7):
    return encode_data(source, first, segments)


def test_a_data_frame_comes_back_as_it_was_written():
    value = data_frame(
        encode_segment("default", 2, [["a", "b"], [1, None]], None), encode_watermark(99), encode_segment("other", 1, [[b"\x00\xff"]], [[5, -6]])
    )
    frame = decode_frame(value)
    assert isinstance(frame, DataFrame)
    assert (frame.source_task, frame.first_seq) == (3, 7)
    first, mark, last = frame.segments
    assert (first.stream, first.n, first.columns, first.anchors) == ("default", 2, [["a", "b"], [1, None]], None)
    assert mark.stream is None and mark.watermark == 99
    assert (last.stream, last.columns, last.anchors) == ("other", [[b"\x00\xff"]], [[5, -6]])


@pytest.mark.long
@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_a_frame_holds_any_number_of_segments(count):
    piece = encode_segment("s", 0, [], None)
    assert len(decode_frame(data_frame(*[piece] * count)).segments) == count


@pytest.mark.parametrize(
    "column",
    [
        np.array([1, -2, 2**62]),
        np.array([1.5, np.nan, -0.0]),
        np.array([True, False, True]),
        np.arange(6, dtype=np.uint16)[::2],
        pa.array(["a", "", "žluť🙂"]),
        pa.array(["x", "y", "zz", "w"]).slice(1, 3),
        pa.array(["p", "q", "p"]).dictionary_encode(),
        pa.array([str(i) for i in range(100)]).dictionary_encode().slice(40, 3),
        pa.chunked_array([["a"], ["b", "c"]]),
        pa.array(["a", None, "b"]),
        pa.array(["a", "b", "c"], pa.large_string()),
        pa.array([], pa.string()),
        pa.array([1, 2, 3]),
        pa.array([[1, 2], [], [3]]),
        pa.array([[1.5], [2.5, -0.0]]).slice(1),
        pa.array([[], []], pa.list_(pa.int64())),
        pa.array([[1], None]),
        pa.array([[1, None]]),
        pa.array([["a"], []]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_typed_columns_keep_their_values(column):
    expected = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    segment = decode_frame(data_frame(encode_segment("s", len(column), [column], None))).segments[0]
    assert repr(list(column_to_list(segment.columns[0]))) == repr(expected)


def test_lists_of_numbers_arrive_as_arrow_lists():
    column = pa.array([[1, 2], [], [3]]).slice(1)
    lists = decode_frame(data_frame(encode_segment("s", 2, [column], None))).segments[0].columns[0]
    assert lists.type == pa.list_(pa.int64()) and lists.values.to_pylist() == [3] and lists.offsets.to_pylist() == [0, 0, 1]


def test_lists_whose_offsets_do_not_fit_are_refused():
    data = values._pack_lists(pa.array([[1, 2], [3]])).data
    bad = data[:8] + b"\x09\0\0\0" + data[12:]
    with pytest.raises(FrameError, match="offsets of strings or lists"):
        values._read_lists(bad)


def test_typed_columns_arrive_read_only_and_typed():
    values = decode_frame(data_frame(encode_segment("s", 2, [np.array([1.0, 2.0]), pa.array(["a", "b"])], None))).segments[0]
    numbers, words = values.columns
    assert numbers.dtype == np.float64 and not numbers.flags.writeable
    assert words.type == pa.string()


@pytest.mark.parametrize(
    "column",
    [[1, 2, 3, 4], np.arange(4), pa.array(["a", "b", "c", "d"]), pa.array(["a", "b", "a", "c"]).dictionary_encode()],
    ids=lambda column: type(column).__name__,
)
def test_columns_are_sliced_and_taken_alike(column):
    rows = list(column_to_list(column))
    assert list(column_to_list(slice_column(column, 1, 3))) == rows[1:3]
    assert list(column_to_list(take_column(column, np.array([3, 0])))) == [rows[3], rows[0]]
    for some in ([2], [1, 2, 3], [0, 1], [1, 0], [0, 2, 2], [0, 1, 1, 3], [1, 3, 2], []):
        assert list(column_to_list(take_column(column, np.array(some, np.int64)))) == [rows[i] for i in some]


def test_clock_frames_come_back():
    assert decode_frame(encode_pulse(4, 1000, 1)) == Pulse(4, 1000, 1)
    assert decode_frame(encode_tick(5, 1000)) == Tick(5, 1000)
    assert decode_frame(encode_control("activate", 9)) == Control("activate", 9)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xc1",
        b"garbage",
        msgpack.packb([2, 0, 1, 0, []]),
        msgpack.packb([1, 9]),
        msgpack.packb([1, 0, "x", 0, []]),
        msgpack.packb([1, 0, 1, -1, []]),
        msgpack.packb([1, 0, 1, 0, [["s", 2, [[1]], None]]]),
        msgpack.packb({"a": 1}),
        msgpack.packb([1, 0, 1, 0, [["s", 1, [[1]], [1, 2]]]]),
        msgpack.packb([1, 0, 1, 0, [["s", 1, msgpack.ExtType(99, b"")]]]),
        msgpack.packb([1, 0, 1, 0, [["s", 1, [msgpack.ExtType(1, b"O\x01\x01\0\0\0")], None]]]),
        data_frame(encode_segment("s", 2, [[1, 2]], None))[:-1],
        msgpack.packb([1, 1]),
        b"\xff" * 40,
    ],
    ids=repr,
)
def test_what_is_no_frame_is_refused_with_a_reason(value):
    with pytest.raises(FrameError, match="given|not a frame|differ"):
        decode_frame(value)


def test_every_prefix_of_a_frame_is_refused():
    value = data_frame(encode_segment("s", 3, [[1, 2, 3], ["a", "b", "c"]], np.array([1, 2, 3])))
    for length in range(len(value)):
        with pytest.raises(FrameError):
            decode_frame(value[:length])


def test_the_header_of_a_cut_frame_names_its_channel():
    value = data_frame(encode_segment("s", 3, [[1, 2, 3]], None), source=12, first=3456)
    assert peek_header(value[:12]) == (12, 3456)
    assert peek_header(b"garbage") is None
    assert peek_header(None) is None
    assert peek_header(encode_pulse(1, 2, 1)) is None


def test_values_that_cannot_travel_are_named():
    with pytest.raises(TypeError, match="cannot be serialized; given: .*object"):
        encode_segment("s", 1, [[object()]], None)
    with pytest.raises(TypeError, match="numpy array of numbers"):
        encode_segment("s", 1, [np.array([object()])], None)


def test_a_state_keeps_tuples_sets_and_arrays():
    state = {("a", 1): {"x": (1, [2, (3,)])}, "set": {1, 2}, "array": np.arange(3), 5: None}
    back = unpack_state(pack_state(state))
    assert back[("a", 1)] == {"x": (1, [2, (3,)])}
    assert back["set"] == {1, 2} and back["array"].tolist() == [0, 1, 2] and back[5] is None


def test_frames_hold_no_pickle():
    for module in (frames, values):
        assert "pickle" not in open(module.__file__).read().replace("no pickle", "")
