"""The names of the acker and of its streams, apart from its code: who only plans a topology does not load numpy for them."""

from __future__ import annotations

__all__ = ["ACKER_ACK_STREAM_ID", "ACKER_COMPONENT_ID", "ACKER_FAIL_STREAM_ID", "ACKER_INIT_STREAM_ID", "ACKER_RESET_TIMEOUT_STREAM_ID", "ACKER_STREAMS"]

ACKER_COMPONENT_ID = "__acker"
ACKER_INIT_STREAM_ID = "__ack_init"
ACKER_ACK_STREAM_ID = "__ack_ack"
ACKER_FAIL_STREAM_ID = "__ack_fail"
ACKER_RESET_TIMEOUT_STREAM_ID = "__ack_reset_timeout"

ACKER_STREAMS = frozenset({ACKER_INIT_STREAM_ID, ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID})
"""Streams from and to the acker; their values are integers."""
