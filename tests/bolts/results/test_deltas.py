"""Batches of deltas: what they lack, and that no column is named where they are encoded, joined and taken apart."""

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.results.deltas import batch_of, concat, encoded, length_of, plain, without_blanks
from dskype.bolts.results.events import ADD, REMOVE
from dskype.spouts.streams import Results
from dskype.topology import IllegalArgumentException
from dskype.topology.tuples import column_to_list
from tests.bolts.results.batches import batch

REQUIRED = [["s", "t", "s"], ["0-1", "0-2", "0-1"], [ADD, REMOVE, ADD], [3, 4, 5], ["1", '"x"', "2"]]
NOTHING = {name: "" if kind.dtype is str else 0 for name, kind in Results.columns.items() if name in Results.optional}


def listed(batch):
    """Return the columns of a batch as lists by name, without those that it lacks."""
    return {name: column_to_list(column) for name, column in zip(Results.fields, batch.values()) if column is not None}


def test_a_batch_may_lack_what_is_not_known_of_every_delta():
    assert [name for name in Results.fields if name not in Results.optional] == ["subscription", "registration", "kind", "watermark", "message"]
    assert listed(batch(*REQUIRED)) == dict(zip(Results.fields, REQUIRED))
    with pytest.raises(TypeError, match="message"):
        batch(*REQUIRED[:4])


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_is_lacking_where_a_batch_arrives(shared):
    sent = encoded(batch(*REQUIRED), shared_messages=shared)
    assert listed(sent) == dict(zip(Results.fields, REQUIRED)) | {name: [nothing] * 3 for name, nothing in NOTHING.items()}
    assert [isinstance(getattr(sent, name), pa.DictionaryArray) for name in ("subscription", "registration", "message", "meta")] == [True, True, shared, True]
    arrived = plain(sent)
    assert listed(arrived) == listed(sent) and all(
        column.dtype == kind.dtype if isinstance(column, np.ndarray) else column.type == pa.string() and kind.dtype is str
        for kind, column in zip(Results.columns.values(), arrived.values())
    )


def test_none_in_a_column_is_nothing_where_it_arrives():
    given = {name: [None] * 3 for name in NOTHING}
    assert listed(encoded(batch(*REQUIRED, **given))) == listed(encoded(batch(*REQUIRED)))


def test_what_an_earlier_version_did_not_send_may_be_joined_with_what_this_one_sends():
    sent = encoded(batch(*REQUIRED, meta=["{}"] * 3))
    for name in NOTHING:
        columns = dict(zip(Results.fields, sent.values())) | {name: [None] * 3}  # as a frame of an earlier version is read
        joined = concat([plain(Results(**columns)), plain(sent)])
        assert length_of(joined) == 6 and column_to_list(getattr(joined, name))[3:] == column_to_list(getattr(sent, name))


def test_batches_lack_what_their_parts_lack():
    first, second = plain(batch(*REQUIRED, score=[0.5, 0, 0.25])), plain(batch(*([value] for value in ("u", "0-3", ADD, 6, "3")), score=[0.75]))
    joined = concat([first, second])
    assert listed(joined.take(np.array([3, 0]))) == dict(zip(Results.fields, [["u", "s"], ["0-3", "0-1"], [ADD, ADD], [6, 3], ["3", "1"], [0.75, 0.5]]))
    assert concat([first]) is first and joined.take(np.array([0])).rank is None


def test_single_deltas_become_a_batch():
    rows = [batch("s", "0-1", ADD, 3, "1", 0.5, 1), batch("s", "0-1", REMOVE, 3, "2")]
    assert listed(batch_of(rows)) == dict(zip(Results.fields, [["s", "s"], ["0-1", "0-1"], [ADD, REMOVE], [3, 3], ["1", "2"], [0.5, 0.0], [1, 0]]))
    assert listed(batch_of([batch("s", "0-1", ADD, 3, "1", 0.5, 1, "{}"), rows[1]]))["meta"] == ["{}", None]


def test_texts_that_stand_for_nothing_are_left_out():
    assert without_blanks(plain(encoded(batch(*REQUIRED)))).meta is None
    arrived = without_blanks(plain(encoded(batch(["", "s"], *(column[:2] for column in REQUIRED[1:]), meta=["{}", None]))))
    assert arrived.meta.to_pylist() == ["{}", None] and arrived.subscription.to_pylist() == ["", "s"]


def test_columns_of_different_lengths_are_refused():
    for name in NOTHING:
        with pytest.raises(IllegalArgumentException, match=f"differ in length.*'{name}': 2"):
            encoded(batch(*REQUIRED, **{name: [None] * 2}))
