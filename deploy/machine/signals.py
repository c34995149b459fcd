"""Ending a run by a signal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["end_on_sigterm", "hold_interrupts"]


def end_on_sigterm() -> threading.Event:
    """Make SIGTERM end a run as Ctrl-C does, so that brokers, sessions and folders are closed.

    :returns: an event that is set when the signal has come.
    """
    terminated = threading.Event()

    def interrupt(*_: Any) -> None:
        if not terminated.is_set():  # a second signal must not interrupt the cleanup
            terminated.set()
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
    return terminated


@contextlib.contextmanager
def hold_interrupts(say: Callable[[str], None]) -> Iterator[None]:
    """Delay the first Ctrl-C or SIGTERM until the end of the block; a second one interrupts it.

    :param say: gets a line of text when a signal has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def hold(*_: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        say("stopping as soon as Spark has started")

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if not came:
            raise
        # A signal to the whole process group also ends the JVM that was being started; hence the error.
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hold:  # PySpark may have set its own handler
                signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
