"""Messages of replication: each has the form on the wire that topologies of this version have left, and is read back as it was."""

import numpy as np
import pytest

from dskype.bolts.protocol.balance import PartitionMap, ShiftSized, SizeShift, WorkloadReport, decode_balance, encode_balance
from dskype.bolts.protocol.merging import Claim, ReplicaDropped, ReplicaGone, ReplicaList, decode_replica_message
from dskype.bolts.protocol.placements import AllMoved, End, Epoch, Placement, PlanMarker, Survey, decode_placement, encode_placement
from dskype.bolts.protocol.reports import EXPIRED, SHORT, ReplicaReport, ReportedPlacement
from dskype.bolts.ranked_lists import RankedList
from dskype.distribution.agrid.aggregates import Split, Strip, StripLoad
from dskype.distribution.agrid.balancing import CornerOffer, Merger, Part, Summary
from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription, decode_subscription
from dskype.topology.core.values import pack_state, unpack_state

TOPK = TopkSubscription(3, 0.5, 48.1, 11.6, [4, 7], [0.6, 0.8], '{"x":1}')
BOOLEAN = BooleanSubscription([-1, -2, 3, 4], ["and", 1, 2], 1_700, None)
FILTERED = BooleanSubscription([-1, -2, 3, 4], 1, None, None, [1, 1, 1, 7, 8, 1, 2, 6], [0.5, 1.5])
EPOCH = Epoch(2, [0, 1], 0.25, 3, 2, 70, True, [1], [0])
TOPK_MAP = {"type": "topk", "k": 3, "alpha": 0.5, "lat": 48.1, "lon": 11.6, "terms": [4, 7], "weights": [0.6, 0.8], "meta": '{"x":1}'}
BOOLEAN_MAP = {"type": "boolean", "bbox": [-1, -2, 3, 4], "expression": ["and", 1, 2], "expires_ms": 1_700, "meta": None}
FILTERED_MAP = {"type": "boolean", "bbox": [-1, -2, 3, 4], "expression": 1, "expires_ms": None, "meta": None}
FILTERED_MAP |= {"program": [1, 1, 1, 7, 8, 1, 2, 6], "region": [0.5, 1.5]}
EPOCH_MAP = {"epoch": 2, "tasks": [0, 1], "guard": 0.25, "plan": 3, "since": 2, "at": 70, "moving": True, "tell": [1], "evaluate": [0]}


def same(found, expected):
    """Compare values with the order of their keys, as bytes."""
    assert pack_state(found) == pack_state(expected)


@pytest.mark.parametrize(
    ("message", "record"),
    [
        (Placement(TOPK, EPOCH), TOPK_MAP | EPOCH_MAP),
        (Placement(BOOLEAN, EPOCH), BOOLEAN_MAP | EPOCH_MAP),
        (Placement(TOPK._replace(program=[1, 1, 7]), EPOCH), TOPK_MAP | {"program": [1, 1, 7]} | EPOCH_MAP),
        (Placement(FILTERED, EPOCH), FILTERED_MAP | EPOCH_MAP),
        (EPOCH, {"type": "epoch"} | EPOCH_MAP),
        (End(5), {"type": "end", "at": 5}),
        (Survey(), {"type": "survey"}),
        (PlanMarker(4, 99), {"type": "plan", "version": 4, "high": 99}),
        (AllMoved(4, 9), {"type": "done", "version": 4, "at": 9}),
        (PartitionMap(4, {"v": 1}), {"type": "partition-map", "version": 4, "plan": {"v": 1}}),
        (SizeShift(3, 1, 2, 7.5, 20.0), {"type": "size-shift", "decision": 3, "target": 1, "side": 2, "cost": 7.5, "source_cost": 20.0}),
    ],
)
def test_placements(message, record):
    same(encode_placement(message), record)
    found = decode_placement(unpack_state(pack_state(record)))
    assert found == message and type(found) is type(message)


STRIP = StripLoad(Strip(2, 3), 4.5, 6)
SUMMARY = Summary(1, 9.5, 12, Split(STRIP, 5.0), (CornerOffer(STRIP, 2),), (Merger(3, (Part(0, 4, 1.5, 2), Part(2, 1, 8.0, 10))),))
STRIP_RECORD = [[2, 3], 4.5, 6]


@pytest.mark.parametrize(
    ("message", "record"),
    [
        (WorkloadReport(4, SUMMARY), [4, [1, 9.5, 12, [STRIP_RECORD, 5.0], [[STRIP_RECORD, 2]], [[3, [[0, 4, 1.5, 2], [2, 1, 8.0, 10]]]]]]),
        (WorkloadReport(0, Summary(1, 0.0, 0, None, (), ())), [0, [1, 0.0, 0, None, [], []]]),
        (ShiftSized(3, 1, 17), [3, 1, 17]),
        (ShiftSized(3, 1, None), [3, 1, None]),
    ],
)
def test_balance(message, record):
    same(encode_balance(message), record)
    found = decode_balance(message.kind, unpack_state(pack_state(record)))
    assert found == message and type(found) is type(message)


@pytest.mark.parametrize(("subscription", "record"), [(TOPK, TOPK_MAP), (BOOLEAN, BOOLEAN_MAP), (FILTERED, FILTERED_MAP)])
def test_subscriptions_and_reports(subscription, record):
    same(subscription.encode(), record)
    assert decode_subscription(record) == subscription
    report = ReplicaReport("s", "0-1", 2, SHORT, 0.4, ReportedPlacement(subscription, 0.5, 3))
    same(list(report.encode()), ["s", "0-1", 2, "short", 0.4, record | {"guard": 0.5, "plan": 3}])
    assert ReplicaReport.decode(report.encode()) == report


def test_a_report_without_a_placement():
    report = ReplicaReport("s", "0-1", 2, EXPIRED)
    assert report.encode() == ("s", "0-1", 2, "expired", None, None) and ReplicaReport.decode(report.encode()) == report


@pytest.mark.parametrize(
    ("message", "kind", "record"),
    [
        (
            ReplicaList("0-1", 9, 2, None, [Claim(1, [7, 8])], True, RankedList([3], [4], [0.5], ["1"]), None),
            "replica",
            ["0-1", 9, 2, None, [[1, [7, 8]]], True, [[3], [4], [0.5], ["1"]], None],
        ),
        (ReplicaList("0-1", 9, 2, "{}", [], False, None, None), "replica", ["0-1", 9, 2, "{}", [], False, None, None]),
        (ReplicaDropped("0-1", 9), "drop", ["0-1", 9]),
        (ReplicaGone("0-1", None, RankedList([3], [4], [0.5], ["1"])), "gone", ["0-1", None, [[3], [4], [0.5], ["1"]]]),
        (ReplicaGone("0-1", "{}", None), "gone", ["0-1", "{}", None]),
    ],
)
def test_messages_to_the_result_bolt(message, kind, record):
    assert message.kind == kind
    same(message.encode(), record)
    found = decode_replica_message(kind, unpack_state(pack_state(record)))
    assert found == message and type(found) is type(message)


def test_rows_of_a_ranked_list_are_plain_values():
    assert RankedList(np.array([3, 2]), np.array([3, 2]), np.array([0.5, 0.25]), ["1", "2"]).rows() == [(3, 3, 0.5, "1"), (2, 2, 0.25, "2")]
