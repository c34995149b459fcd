"""What travels between the tasks of DSkype is what the streams' classes say."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dskype.spouts import streams
from dskype.topology.core.frames import DataFrame, decode_frame
from dskype.topology.simulated.faults import Faults
from dskype.topology.tuples import column_to_list

from .harness import Planner, Simulation, options_of, play

WITH_PAIRS = (streams.Messages, streams.Matching)


def segments(simulation):
    """Yield all tuples that tasks of DSkype have sent each other, as (stream, number, columns)."""
    for component in simulation.plan.component_ids:
        for record in simulation.log.records(f"dskype.{component}", dropped=True):
            frame = decode_frame(record.value)
            if isinstance(frame, DataFrame):
                yield from ((segment.stream, segment.n, segment.columns) for segment in frame.segments if segment.stream in streams.STREAMS)


def check(stream, name, values):
    """Check a column, and tell whether it has pairs."""
    column = stream.columns[name]
    if column.lists:
        assert all(isinstance(value, (list, np.ndarray)) for value in column_to_list(values)), (stream, name)
        if isinstance(values, pa.Array):
            assert pa.types.is_list(values.type) and values.type.value_type == pa.from_numpy_dtype(column.dtype), (stream, name, values.type)
        else:
            assert column.dtype is str and all(isinstance(text, str) for texts in values for text in texts), (stream, name)
    elif column.dtype is str:
        assert all(isinstance(text, str) for text in column_to_list(values)), (stream, name)
    elif column.dtype is not object:
        array = np.asarray(values)
        assert array.dtype == column.dtype, (stream, name, array.dtype)
        assert array.ndim == 1 or (stream in WITH_PAIRS and column.unit == "deg" and array.shape[1:] == (2,)), (stream, name)
        return array.ndim == 2
    return False


@pytest.mark.long
@pytest.mark.parametrize(("distributor", "balanced"), [("hashing", False), ("agrid", True), ("hybrid", True)])
def test_columns_are_what_the_schema_says(distributor, balanced):
    rng, seen, pairs = random.Random(5), Counter(), 0
    conf = {"dskype.distributor": distributor, "dskype.distributor.options": options_of(distributor, 3)}
    if balanced:
        conf |= {"dskype.balance": "auto", "dskype.balance.period.ms": 400, "dskype.balance.cost.min": 1}
    simulation = Simulation(conf, {"subscription-bolt": 3, "distribution-bolt": 2, "message-bolt": 2}, seed=5, faults=Faults())
    play(simulation, rng, messages=80, subscriptions=30, areas=0.3, topk=0.5, planner=Planner(simulation, rng) if balanced else None)
    simulation.drain(4, ms=1000)  # loads are reported once a change of the plan is over
    for name, n, columns in segments(simulation):
        stream = streams.STREAMS[name]
        sent = stream.make(columns)
        pairs += sum(check(stream, column, getattr(sent, column)) for column in stream.fields)
        seen[stream] += n
    expected = {streams.Messages, streams.Subscriptions, streams.Matching, streams.Placements, streams.Window, streams.Requests, streams.Progress}
    expected |= {streams.Partials, streams.Answers}
    if balanced:
        expected |= {
            streams.Results,
            streams.Lists,
            streams.Shortages,
            streams.Plans,
            streams.Switched,
            streams.Registrations,
            streams.Interest,
            streams.Balance,
        }
    assert expected <= set(seen), expected - set(seen)
    assert pairs
