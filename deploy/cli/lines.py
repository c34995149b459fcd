"""Lines in, records out: read files of JSON lines, keep to a rate, and report what was sent and what was refused."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dskype.deploy.machine.terminal import Progress, counted, say
from dskype.spouts.readers import plain_lines
from dskype.spouts.record_values import RecordError

__all__ = ["Pace", "Refused", "Sending", "lines"]

_SHOWN_ERRORS = 20
_WAITING, _STEP_S = 5_000, 0.005
"""Records that may be on their way; how long to wait when there are so many."""
_SILENT_S = 5.0
"""If Kafka has stored nothing for so long, the progress says so."""


def lines(file: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Open a file of subscriptions and return what :func:`~dskype.spouts.readers.plain_lines` returns. If the first line is no JSON object, a hint says what is expected.

    :raises OSError: the file cannot be opened.
    """
    return _hinted(plain_lines(file))


def _hinted(source: Iterator[tuple[int, bytes | RecordError]]) -> Iterator[tuple[int, bytes | RecordError]]:
    for at, (number, line) in enumerate(source):
        if at == 0 and isinstance(line, bytes) and not line.startswith(b"{"):
            say("hint: the file must have one JSON object on each line; docs/guides/data.md shows one")
        yield number, line


class Pace:
    """Keeps to a rate: :meth:`wait` returns when the next item is due.

    :param rate: items per second; None: never wait.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began, self._done = clock(), 0

    def wait(self) -> None:
        """Wait for the next turn. After a delay, the missed turns follow without waiting."""
        if self._rate is not None:
            early = self._began + self._done / self._rate - self._clock()
            if early > 0:
                self._sleep(early)
            self._done += 1


class Refused:
    """Counts refused lines, and prints the first errors."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self.shown: list[dict[str, Any]] = []
        self._progress = progress

    def add(self, line: int | None, error: str, more: Sequence[str] = ()) -> None:
        """Count an error.

        :param line: number of the line; None if there is no file.
        :param more: lines that people see below the error.
        """
        self.count += 1
        if self.count <= _SHOWN_ERRORS:
            self.shown.append({"line": line, "error": error})
            self._progress.end()
            say(f"error: {error}" if line is None else f"error: line {line}: {error}")
            for text in more:
                say(f"  {text}")
        elif self.count == _SHOWN_ERRORS + 1:
            say("further errors are only counted")


class Sending:
    """Sends many records with progress and counts, and closes the client at the end, after Ctrl-C as well.

    Counts are of records that Kafka has stored. While it stores none, the progress says so.
    """

    def __init__(self, args: argparse.Namespace, client: Any, what: str) -> None:
        self._args, self._client, self._what = args, client, what
        self._dry = getattr(args, "dry_run", False)
        self._progress = Progress(on_terminal_s=0.2)
        self._refused, self._lost = Refused(self._progress), Refused(self._progress)
        self._checked = 0

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        from dskype.deploy.client.pubsub import SendError

        try:
            self._client.flush()
        except SendError as ex:
            self._progress.end()
            say(f"error: {ex}")
        finally:
            self._progress.end()
            self._client.close(check=False)
        if kind is not None and self._checked:
            self.summary({})

    def refuse(self, line: int | None, error: str, more: Sequence[str] = ()) -> None:
        """Count a line that cannot be sent; see :meth:`Refused.add`."""
        self._refused.add(line, error, more)

    def send(self, line: int | None, send: Callable[[], Any]) -> None:
        """Send the record of a line by calling ``send``, unless this is a dry run. Wait while many records are on their way."""
        if not self._dry:
            while self._client.waiting >= _WAITING:
                self._progress(self._so_far)
                time.sleep(_STEP_S)
            send().add_done_callback(lambda sent: sent.failed() and self._lost.add(line, f"Kafka has not stored it: {sent.exception()}"))
        self._checked += 1
        self._progress(self._so_far)

    def _so_far(self) -> str:
        if self._dry:
            return f"{counted(self._checked, self._what)}, {self._refused.count:,} refused, {self._checked / self._progress.elapsed_s:,.0f}/s"
        stored, silent_s = self._client.stored, self._client.silent_s
        text = f"{counted(stored, self._what)} stored, {self._refused.count:,} refused, {self._client.failed:,} failed, {self._client.waiting:,} waiting, "
        return text + (f"{stored / self._progress.elapsed_s:,.0f}/s" if silent_s < _SILENT_S else f"Kafka has stored nothing for {silent_s:.0f} s")

    def summary(self, more: dict[str, Any]) -> int:
        """Print the counts, with ``more`` in the JSON, and return the exit code."""
        done = self._checked if self._dry else self._client.stored
        failed = self._checked - done
        lost = f", {failed:,} not stored by Kafka" if failed else ""
        say(f"{counted(done, self._what)} {'would be sent' if self._dry else 'sent'}, {self._refused.count:,} refused{lost}")
        if self._args.output == "json":
            counts = {"valid" if self._dry else "sent": done, "refused": self._refused.count, "failed": failed}
            print(json.dumps({**counts, "errors": self._refused.shown + self._lost.shown, **more}))
        return 1 if self._refused.count or failed else 0
