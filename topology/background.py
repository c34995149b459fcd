"""Work that a task lets run beside it; :attr:`~dskype.topology.context.TopologyContext.run_in_background` begins it."""

from __future__ import annotations

from collections.abc import Callable

from dskype.topology.errors import TopologyError

__all__ = ["BackgroundError", "Result", "Work", "run_at_once"]

Work = Callable[[], bytes]
"""What runs beside a task. It sees the task as it was when it began, and changes nothing of it."""
Result = Callable[[], bytes | None]
"""Returns what the work has returned, or None as long as it runs; raises :class:`BackgroundError` if it has failed."""


class BackgroundError(TopologyError):
    """Work beside a task failed, or its process was killed."""


def run_at_once(work: Work) -> Result:
    """Do the work here and now."""
    done = work()
    return lambda: done
