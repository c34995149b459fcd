"""How a run ends when it is told to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["end_on_sigterm", "hold_interrupts"]


def end_on_sigterm() -> threading.Event:
    """Let SIGTERM end a run as Ctrl-C does: with brokers, sessions and folders taken down.

    :returns: set once the signal has come.
    """
    terminated = threading.Event()

    def interrupt(*_: Any) -> None:
        if not terminated.is_set():  # a second one must not break off the taking down
            terminated.set()
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
    return terminated


@contextlib.contextmanager
def hold_interrupts(tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the first Ctrl-C or SIGTERM back until the end of the block; a second one breaks it off.

    :param tell: gets a line when one has come.
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
        tell("stopping as soon as Spark has started")

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if not came:
            raise
        # A signal to the whole process group ends what was being started as well: that is why it failed.
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hold:  # PySpark sets one of its own
                signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
