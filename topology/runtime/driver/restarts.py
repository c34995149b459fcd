"""When a failed query is restarted, and when it is given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["RESTARTED", "Restarts"]

RESTARTED = "failed and starts again"
"""In the driver's log line of every restart, by which the fault suite counts them."""

_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


@dataclass
class _Row:
    failures: int
    versions: dict[int, int]
    waiting: frozenset[int]


class Restarts:
    """Counts failures of queries. The first restart is immediate, further ones come after growing delays, up to a limit.

    Only failures without progress in between count. There is no progress if a task that had input at one failure has the
    same version at the next, whatever the component's other tasks have done.

    :param most: failures in a row without progress at which a component is given up.

    >>> restarts = Restarts(most=3)
    >>> [restarts.record_failure("count", {7: 10}, {7}) for _ in range(3)]
    [0.0, 0.5, None]
    >>> restarts.record_failure("count", {7: 11}, {7})
    0.0
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[str, _Row] = {}

    def record_failure(self, component: str, versions: Mapping[int, int], waiting: set[int]) -> float | None:
        """Count a failure.

        :param versions: task -> newest version, for the component's tasks.
        :param waiting: the tasks that have input.
        :returns: seconds to wait before the restart; None to give up.
        """
        row = self._rows.get(component)
        stuck = row is not None and (any(versions.get(t) == row.versions.get(t) for t in row.waiting) if row.waiting else dict(versions) == row.versions)
        failures = row.failures + 1 if row is not None and stuck else 1
        self._rows[component] = _Row(failures, dict(versions), frozenset(waiting))
        return None if failures >= self._most else _DELAYS_S[min(failures, len(_DELAYS_S)) - 1]

    def in_a_row(self, component: str) -> int:
        """Return the number of failures since the last progress."""
        row = self._rows.get(component)
        return 0 if row is None else row.failures
