import pickle

import pytest

from dskype.topology import Fields, GlobalStreamId, IllegalArgumentException
from dskype.topology.fields import as_fields


def test_names_and_a_list_of_names_give_the_same_fields():
    assert Fields("a", "b") == Fields(["a", "b"]) == Fields(x for x in ("a", "b"))
    assert hash(Fields("a", "b")) == hash(Fields(["a", "b"]))
    assert Fields("a", "b") != Fields("b", "a")
    assert Fields("a") != ("a",)


def test_fields_know_size_position_and_membership():
    fields = Fields("word", "count")
    assert fields.size() == len(fields) == 2
    assert fields.get(1) == fields[1] == "count"
    assert fields.field_index("count") == 1
    assert fields.contains("word") and "word" in fields
    assert not fields.contains("x")
    assert list(fields) == fields.to_list() == ["word", "count"]


def test_a_duplicate_field_is_refused_with_storms_words():
    with pytest.raises(IllegalArgumentException, match=r"duplicate field 'f'; given: \['f', 'g', 'f'\]"):
        Fields("f", "g", "f")


def test_a_missing_field_is_refused_and_the_legal_ones_are_named():
    with pytest.raises(IllegalArgumentException, match=r"^x does not exist; given: 'x'; legal: a, b$"):
        Fields("a", "b").field_index("x")


@pytest.mark.parametrize("bad", [1, None, ["a", 2]])
def test_a_field_name_must_be_a_string(bad):
    with pytest.raises((IllegalArgumentException, TypeError)):
        Fields(bad)


def test_select_follows_the_selectors_order():
    assert Fields("a", "b", "c").select(Fields("c", "a"), (1, 2, 3)) == [3, 1]
    with pytest.raises(IllegalArgumentException, match="z does not exist"):
        Fields("a").select(Fields("z"), (1,))


def test_as_fields_takes_fields_a_name_or_names():
    assert as_fields("word") == as_fields(["word"]) == as_fields(Fields("word")) == Fields("word")
    with pytest.raises(IllegalArgumentException, match="Fields expected. given: 7"):
        as_fields(7)


def test_fields_survive_pickling():
    assert pickle.loads(pickle.dumps(Fields("a", "b"))) == Fields("a", "b")


def test_a_global_stream_id_equals_the_plain_pair():
    assert GlobalStreamId("spout") == ("spout", "default")
    assert {GlobalStreamId("a", "s"): 1}["a", "s"] == 1
