"""Threads in which answers are made: so many of each kind, and whose readers they are for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from dskype.topology.ui.budget import BusyError, Gate, address_of

__all__ = ["Lane", "reader_of", "until_gone"]


def reader_of(request: Request) -> str:
    """Return what stands for whoever sent a request; see :func:`~dskype.topology.ui.budget.address_of`."""
    return address_of(request.client.host) if request.client is not None else ""


async def until_gone(request: Request) -> None:
    """Return when the client has gone; the body of the request must have been read, or be empty."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Lane:
    """Runs answers in threads, so many at a time; further ones wait for these.

    :param threads: how many.
    :param waits: whether the answers may have to wait for the brokers.
    :param queue: how many may wait; None: as many as there are requests.
    :param patience_s: how long they wait; None: without an end.
    """

    def __init__(self, threads: int, *, waits: bool = False, queue: Gate | None = None, patience_s: float | None = None) -> None:
        self.waits, self._queue, self._patience_s = waits, queue, patience_s
        self._free = asyncio.Semaphore(threads)
        self._begun: set[asyncio.Task[Any] | None] = set()

    async def run(self, answer: Callable[[Request], Any], request: Request, gone: threading.Event) -> Any:
        """Return the answer.

        :raises BusyError: too many wait, or this one has waited too long.
        """
        task = asyncio.current_task()
        async with self._turn():
            if gone.is_set():
                return None
            self._begun.add(task)
            try:
                return await to_thread.run_sync(answer, request, limiter=CapacityLimiter(1))  # the lane is the limit
            finally:
                self._begun.discard(task)

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """End a task that nobody waits for, unless it has a thread: that cannot be stopped, and keeps its place until it ends."""
        if task not in self._begun:
            task.cancel()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._queue is None or not self._free.locked():
            await self._free.acquire()
        else:
            self._queue.enter()
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._free.acquire()
            except TimeoutError:
                raise BusyError("topic_read_wait_s", "Other answers have read whole topics for too long.", int(self._patience_s or 0)) from None
            finally:
                self._queue.leave()
        try:
            yield
        finally:
            self._free.release()
