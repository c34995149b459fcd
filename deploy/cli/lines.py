"""What the verbs of publish/subscribe share: their client, lines of files, a pace, progress, what was refused."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dskype.deploy.cli.arguments import file_conf, say, split, target

__all__ = ["LINE_BYTES", "Pace", "Progress", "Refused", "layers", "lines", "open_client"]

LINE_BYTES = 4 << 20
"""Longest line that is read: nothing longer fits into a record."""

_BUFFER_BYTES = 1 << 20
"""Each read lets other threads run, and getting the interpreter back from a busy producer takes milliseconds."""
_SHOWN_ERRORS = 20


def layers(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Return the configurations of ``--config``, of ``--file`` (None without it) and of ``-c``: each lies above the one before it."""
    below, above = split(file_conf(args))[0], split(dict(args.conf))[0]
    file = getattr(args, "topology_file", None)
    if file is None:
        return below, None, above
    from dskype.topology.flux import FluxException
    from dskype.topology.flux.loader import read_yaml

    data = read_yaml(file)
    conf = data.get("config", {}) if isinstance(data, dict) else data
    if not isinstance(conf, dict):
        raise FluxException(f"{file} must be a topology file with a map 'config'. given: a {type(conf).__name__}")
    return below, split(conf)[0], above


def open_client(args: argparse.Namespace, offline: bool = False) -> Any:
    """Return the client that the options ask for; it checks by the running topology's configuration, or that of ``--file``.

    :param offline: without a named cluster, return one that can only check.
    """
    from dskype.deploy.client.pubsub import PubSub
    from dskype.deploy.machine import cluster, connection
    from dskype.topology.runtime.kafka import KafkaSettings

    below, conf, above = layers(args)
    where = target(args)
    if offline and connection.resolve_bootstrap(where.bootstrap_servers).embedded:
        return PubSub(KafkaSettings(""), args.topology, conf={**below, **(conf or {}), **above})
    kafka = cluster.kafka_settings(where)
    if conf is None and (below or above):
        conf = PubSub(kafka, args.topology, timeout_s=args.timeout).running_conf() or {}
    return PubSub(kafka, args.topology, conf=None if conf is None else {**below, **conf, **above}, timeout_s=args.timeout)


def _standard_input(stack: contextlib.ExitStack) -> Any:
    raw = getattr(sys.stdin.buffer, "raw", None)
    if raw is None:
        return sys.stdin.buffer
    reader = io.BufferedReader(raw, _BUFFER_BYTES)
    stack.callback(reader.detach)  # standard input stays open
    return reader


def lines(file: str) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, line without its end) of a file or, for ``-``, of standard input; blank lines are left out.

    A line of more than 4 MiB is None.
    """
    with contextlib.ExitStack() as stack:
        source = _standard_input(stack) if file == "-" else stack.enter_context(open(file, "rb", buffering=_BUFFER_BYTES))
        number = 0
        while line := source.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES and not line.endswith(b"\n"):
                while rest := source.readline(LINE_BYTES):
                    if rest.endswith(b"\n"):
                        break
                yield number, None
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line := line.strip():
                yield number, line


class Pace:
    """Keeps to a rate: :meth:`wait` returns when the next one is due.

    :param rate: per second; None: no wait.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began, self._done = clock(), 0

    def wait(self) -> None:
        """Wait for the next turn; what was late is caught up with."""
        if self._rate is not None:
            early = self._began + self._done / self._rate - self._clock()
            if early > 0:
                self._sleep(early)
            self._done += 1


class Progress:
    """One line on standard error while many lines are worked on: written over itself on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._every_s = 0.2 if self._tty else 5
        self._width = 0
        self._began = self._last = time.monotonic()

    def __call__(self, text: Callable[[], str]) -> None:
        """Show a text, if it is time for one."""
        now = time.monotonic()
        if now - self._last < self._every_s:
            return
        self._last = now
        shown = text()
        print(f"\r{shown:<{self._width}}" if self._tty else shown, end="" if self._tty else "\n", file=sys.stderr, flush=True)
        self._width = len(shown)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """End the line, so that another text can follow."""
        if self._tty and self._width:
            print(file=sys.stderr, flush=True)
        self._width = 0


class Refused:
    """Collects what is wrong with lines, and says the first of it."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self.shown: list[dict[str, Any]] = []
        self._progress = progress

    def add(self, line: int | None, error: str) -> None:
        """Count an error, with the number of its line."""
        self.count += 1
        if self.count <= _SHOWN_ERRORS:
            self.shown.append({"line": line, "error": error})
            self._progress.end()
            say(f"error: {error}" if line is None else f"error: line {line}: {error}")
        elif self.count == _SHOWN_ERRORS + 1:
            say("further errors are counted and not shown")
