"""The threads of a driver, which no error ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from kafka.errors import KafkaError

from dskype.topology.errors import FatalError
from dskype.topology.runtime.driver.reports import PARTS
from dskype.topology.runtime.driver.state import DriverState

__all__ = ["DriverThreads"]

log = logging.getLogger(__name__)

_AFTER_ERROR_S = 1.0


class DriverThreads:
    """Runs the steps of a driver's parts, each in a thread of its own, until the driver stops."""

    def __init__(self, state: DriverState) -> None:
        self._state = state
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, steps: Mapping[str, tuple[Callable[[], float], float]]) -> None:
        """Start the threads.

        :param steps: name, one of :data:`~dskype.topology.runtime.driver.reports.PARTS` -> a step, which says after how many seconds the next one follows, and the
            seconds before the first one.
        """
        assert steps.keys() <= set(PARTS), "metrics count the errors of each part from 0 on"
        for name, (step, wait_s) in steps.items():
            thread = threading.Thread(target=self._run, args=(name, step, wait_s), name=f"{self._state.plan.name}-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, name: str, step: Callable[[], float], wait_s: float) -> None:
        state = self._state
        while not self.stopping.wait(wait_s):
            wait_s = _AFTER_ERROR_S
            try:
                wait_s = step()
            except FatalError as error:
                state.fail(error)
            except KafkaError as error:
                state.brokers_away = True
                log.warning("the %s of topology %s cannot reach Kafka: %s; trying again", name, state.plan.name, error)
            except Exception as error:  # neither a bad record nor any other error may end a thread of the driver
                log.exception("the %s of topology %s had an error", name, state.plan.name)
                state.reports.add_error("__driver", f"the {name} had an error and continues: {type(error).__name__}: {error}", part=name)

    def dead(self) -> list[str]:
        """Return the names of threads that have ended although the driver has not stopped."""
        return [] if self.stopping.is_set() else [thread.name for thread in self._threads if not thread.is_alive()]

    def stop(self, timeout_s: float) -> bool:
        """Stop, and wait up to ``timeout_s`` for each thread; return whether all have ended."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)
