"""Commits the offsets that a topology's Kafka spouts have settled."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from contextlib import ExitStack, closing
from typing import Any

from kafka.errors import AuthorizationError, UnknownMemberIdError

from dskype.topology.components import KafkaSpout
from dskype.topology.core.offset_commits import OffsetCommits, consumer_group
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import explain
from dskype.topology.runtime.driver.state import DriverState
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.reading import commit_offsets, read_ahead

__all__ = ["Committer"]

log = logging.getLogger(__name__)

_AGAIN_S, _LEAST_S = 5.0, 0.1
"""Longest time until a commit that has failed is tried again, and least time between two commits."""
_SEVERAL = 3
"""An error that may pass by itself is reported when it comes so often in a row."""


class Committer:
    """A thread of the driver that commits offsets. A broker that stands still holds up nothing else, and errors only delay the next attempt.

    Offsets are only there for those who look at the group's lag, and for a later topology that is to go on there. This one goes by its journals.
    A driver that was replaced commits nothing. What prevents a commit is reported once for each cause.
    """

    def __init__(self, state: DriverState) -> None:
        self._state, plan = state, state.plan
        self._commits = OffsetCommits(plan, state.stats)
        spouts = [spec.obj for spec in plan.topology.components.values() if isinstance(spec.obj, KafkaSpout)]
        uncommitted = {consumer_group(plan.name, spout) for spout in spouts if spout.isolation_level == "read_uncommitted"}
        self._levels = {group: "read_uncommitted" if group in uncommitted else "read_committed" for group in (consumer_group(plan.name, s) for s in spouts)}
        self._clients = ExitStack()
        self._admin: Any = None
        self._readers: dict[str, Any] = {}
        self._failures = Counter[str]()  # group -> commits that failed, one after the other
        self._told: set[tuple[str, str]] = set()  # group and cause
        self._wake, self._end, self._given_up = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{plan.name}-commits", daemon=True)

    def start(self) -> None:
        """Start to commit, if the topology has a spout that does."""
        if self._commits.shortest_period_ms is not None:
            self._thread.start()

    def commit_soon(self) -> None:
        """Commit all offsets now, whatever the spouts' periods; do not wait for it."""
        self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Commit all offsets and end; a broker that does not answer within ``timeout_s`` does not get them."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._given_up.set()

    def _run(self) -> None:
        period_s = max(_LEAST_S, (self._commits.shortest_period_ms or 0) / 1000)
        succeeded = True
        while not self._end.is_set():
            woken = self._wake.wait(period_s if succeeded else min(period_s, _AGAIN_S))
            self._wake.clear()
            succeeded = self._commit(all_spouts=woken or not succeeded)
        self._clients.close()

    def _commit(self, *, all_spouts: bool) -> bool:
        """Commit what is due; return whether that succeeded."""
        failed = False
        for group, offsets in self._commits.due(now_ms(), self._state.tenure.term, all_spouts=all_spouts).items():
            try:
                if self._state.tenure.is_over() or self._given_up.is_set():
                    return True
                if self._admin is None:
                    self._admin = self._clients.enter_context(closing(self._state.kafka.admin(request_timeout_ms=FAILOVER_MS)))
                if (reader := self._readers.get(group)) is None:
                    level = self._levels[group]
                    reader = self._state.kafka.consumer(isolation_level=level, request_timeout_ms=FAILOVER_MS, allow_auto_create_topics=False)
                    self._readers[group] = self._clients.enter_context(closing(reader))
                # Behind the last record of a transaction is its marker. Who looks at the lag does not know that nothing has to be read there. Deleted topics are left out.
                behind = {where: end if ahead == end else offsets[where] for where, (ahead, end) in read_ahead(reader, offsets).items()}
                commit_offsets(self._admin, group, behind, json.dumps({"topologyId": self._state.plan.topology_id}))
                self._commits.note(group, offsets, now_ms())
                del self._failures[group]
                self._told = {(other, cause) for other, cause in self._told if other != group}
            except Exception as error:  # whatever it is, the spouts go on
                failed = True
                self._tell(group, error)
                self._clients.close()
                self._admin, self._readers = None, {}
        return not failed

    def _tell(self, group: str, error: Exception) -> None:
        """Report an error that does not pass by itself, once."""
        log.warning("offsets of topology %s cannot be committed in group %s now: %s; trying again", self._state.plan.name, group, error)
        self._failures[group] += 1
        if isinstance(error, AuthorizationError):
            hint = "allow its user Read on the group and on the topics, as SECURITY.md shows"
        elif isinstance(error, UnknownMemberIdError):
            hint = "other consumers are members of the group; give the spout a group.id of its own"
        elif getattr(error, "retriable", False) and self._failures[group] < _SEVERAL:
            return
        else:
            hint = "look at the brokers"
        if (cause := (group, type(error).__name__)) not in self._told:
            self._told.add(cause)
            self._state.reports.add_error(
                "__driver",
                explain(
                    f"Offsets cannot be committed in the consumer group {group!r}. The topology goes on and tries again; but the group's lag is not right, and a "
                    "topology that is submitted later in its place does not continue at these offsets.",
                    given=f"{type(error).__name__}: {error}",
                    hint=hint,
                ),
                part="commits",
            )
