import numpy as np
import pyarrow as pa
import pytest

from dskype.topology import Fields, IllegalArgumentException, StreamMeta, Tuple, TupleBatch, is_tick
from dskype.topology.tuples import tick_tuple

META = StreamMeta("split", 7, "default", Fields("word", "count", "share", "ok", "raw"))


def a_tuple():
    return Tuple(("storm", 3, 0.5, True, b"x"), META, message_id="m")


def test_values_are_read_by_position_and_by_field():
    tup = a_tuple()
    assert tup.get_value(0) == tup[0] == tup.get_value_by_field("word") == tup["word"] == "storm"
    assert tup[-1] == b"x" and tup[1:3] == (3, 0.5)
    assert tup.get_string(0) == tup.get_string_by_field("word") == "storm"
    assert tup.get_integer(1) == tup.get_long_by_field("count") == tup.get_short(1) == tup.get_byte(1) == 3
    assert tup.get_double(2) == tup.get_float_by_field("share") == 0.5
    assert tup.get_boolean(3) is tup.get_boolean_by_field("ok") is True
    assert tup.get_binary(4) == tup.get_binary_by_field("raw") == b"x"
    assert list(tup) == tup.get_values() == ["storm", 3, 0.5, True, b"x"]
    assert "storm" in tup


def test_typed_getters_pass_none_and_refuse_other_types():
    tup = Tuple((None, "x", True), StreamMeta("c", 1, "s", Fields("a", "b", "c")))
    assert tup.get_string(0) is None and tup.get_long(0) is None
    with pytest.raises(TypeError, match=r"value at 1 is not a Integer. given: 'x'; component: 'c'"):
        tup.get_integer(1)
    with pytest.raises(TypeError, match="value at 'c' is not a Long"):
        tup.get_long_by_field("c")


def test_numpy_numbers_pass_the_typed_getters():
    tup = Tuple((np.int64(3), np.float64(2.5)), StreamMeta("c", 1, "s", Fields("a", "b")))
    assert tup.get_long(0) == 3 and tup.get_double(1) == 2.5


def test_a_missing_field_is_refused_with_storms_words():
    with pytest.raises(IllegalArgumentException, match="^x does not exist"):
        a_tuple()["x"]


def test_a_tuple_knows_where_it_comes_from():
    tup = a_tuple()
    assert tup.get_source_component() == "split"
    assert tup.get_source_task() == 7
    assert tup.get_source_stream_id() == "default"
    assert tup.get_source_global_stream_id() == ("split", "default")
    assert tup.get_message_id() == "m"
    assert tup.ack_val == 0
    assert tup.size() == len(tup) == 5
    assert tup.get_fields() is META.fields
    assert tup.contains("ok") and not tup.contains("nope")
    assert tup.field_index("ok") == 3
    assert tup.select(Fields("ok", "word")) == [True, "storm"]


def test_tuples_are_compared_by_identity_and_are_true_even_when_empty():
    assert a_tuple() != a_tuple()
    assert Tuple((), StreamMeta("c", 1, "s", Fields()))


def test_a_tuple_takes_no_other_attributes():
    with pytest.raises(AttributeError):
        a_tuple().colour = 1


def test_a_tick_is_recognised_by_component_and_stream_not_by_value():
    tick = tick_tuple(5)
    assert is_tick(tick)
    assert (tick["rate_secs"], tick.get_source_task()) == (5, -1)
    assert not is_tick(Tuple((5,), StreamMeta("clock", 1, "__tick", Fields("rate_secs"))))
    assert not is_tick(Tuple((5,), StreamMeta("__system", -1, "__metrics_tick", Fields("rate_secs"))))


def test_a_batch_gives_columns_and_rows():
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    counts = np.array([1, 2, 3])
    batch = TupleBatch([words, counts, [None, True, 1.5]], StreamMeta("s", 4, "x", Fields("w", "n", "o")), 3)
    assert len(batch) == batch.n == 3
    assert batch.column("n") is batch["n"] is batch.column(1) is counts
    assert list(batch.rows()) == list(batch) == [("a", 1, None), ("b", 2, True), ("a", 3, 1.5)]
    assert all(type(row[1]) is int for row in batch.rows())
    assert [t["w"] for t in batch.tuples()] == ["a", "b", "a"]
    assert (batch.get_source_component(), batch.get_source_task(), batch.get_source_stream_id()) == ("s", 4, "x")
    with pytest.raises(IllegalArgumentException, match="z does not exist"):
        batch["z"]


def test_a_batch_without_fields_still_has_rows():
    batch = TupleBatch([], StreamMeta("s", 4, "x", Fields()), 2)
    assert list(batch.rows()) == [(), ()]
