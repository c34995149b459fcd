"""Components in other languages, by Storm's multi-language protocol: JSON documents over the standard input and output of a process.

Each document is followed by a line ``end``. Storm's ShellBolt writes and reads in two threads. Here a task sends a heartbeat after each tuple, and waits
for its answer: then the process has handled the tuple. So what a task emits follows from its inbox, as for every component, and a process that hangs is
noticed at the tuple at which it hangs. A tuple may still be acked later, with another one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dskype.topology.components import Bolt, Spout
from dskype.topology.config import Config
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain
from dskype.topology.fields import Fields, StreamInfo
from dskype.topology.model import OutputFieldsDeclarer
from dskype.topology.tuples import Tuple

__all__ = ["ShellBolt", "ShellError", "ShellProcess", "ShellSpout"]

log = logging.getLogger(__name__)

_MESSAGE_BYTES = 16 << 20
_END = b"\nend\n"
_GRACE_S = 2.0
_DEFAULT_TIMEOUT_SECS = 30
_LEVELS = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_HEARTBEAT: dict[str, Any] = {"id": "__heartbeat", "comp": None, "stream": "__heartbeat", "task": -1, "tuple": []}


class ShellError(TopologyError):
    """A component's process has ended, hangs, or does not keep to the protocol."""


class ShellProcess:
    """A process that speaks the protocol.

    :param command: program and arguments.
    :param folder: its working folder.
    :param env: environment variables that are added to those of this process.
    :param timeout_secs: how long it may take to answer.
    :raises ShellError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: str, env: Mapping[str, str], timeout_secs: float) -> None:
        self._command, self._timeout_secs = list(command), timeout_secs
        self._pids = tempfile.TemporaryDirectory(prefix="dskype-pids-")
        self._buffer = bytearray()
        try:
            self._process = subprocess.Popen(self._command, cwd=folder, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            self._pids.cleanup()
            raise ShellError("The component's process cannot be started.", given=self._command, hint=f"{error.strerror}; its folder is {folder}") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def shake_hands(self, conf: Mapping[str, Any], context: Mapping[str, Any]) -> int:
        """Introduce the task to the process; return the process id that it answers."""
        self.write({"conf": dict(conf), "pidDir": self._pids.name, "context": dict(context)})
        answer = self.read()
        if not isinstance(answer, dict) or type(answer.get("pid")) is not int:
            raise self._error("does not answer the handshake with its pid", answer)
        return int(answer["pid"])

    def write(self, message: Any) -> None:
        """Write a document. What the process writes meanwhile is kept, so that neither waits for the other."""
        data = memoryview(json.dumps(message, allow_nan=False).encode() + _END)
        deadline = time.monotonic() + self._timeout_secs
        while data:
            readable, writable, _ = select.select([self._out], [self._in], [], max(0.0, deadline - time.monotonic()))
            if not readable and not writable:
                raise self._error(f"has read nothing for {self._timeout_secs:g} s")
            if readable:
                self._fill()
            if writable:
                try:
                    data = data[os.write(self._in.fileno(), data) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    raise self._error("has closed its input") from None

    def read(self) -> Any:
        """Return the next document.

        :raises ShellError: none came in time, the process has ended, or it is no JSON.
        """
        deadline, searched = time.monotonic() + self._timeout_secs, 0
        while True:
            length = self._buffer.find(_END, searched)
            if length >= 0:
                document = bytes(self._buffer[:length])
                del self._buffer[: length + len(_END)]
                try:
                    return json.loads(document)
                except (ValueError, RecursionError):
                    raise self._error("writes something that is no JSON", document[:200]) from None
            searched = max(0, len(self._buffer) - len(_END))
            if len(self._buffer) > _MESSAGE_BYTES:
                raise self._error(f"writes more than {_MESSAGE_BYTES} bytes without a line 'end'")
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._error(f"has not answered for {self._timeout_secs:g} s")
            self._fill()

    def _fill(self) -> None:
        data = os.read(self._out.fileno(), 1 << 16)
        if not data:
            raise self._error("has ended")
        if self._buffer.endswith(b"\r"):  # the end of a line may come in two pieces
            del self._buffer[-1:]
            data = b"\r" + data
        self._buffer += data.replace(b"\r\n", b"\n")

    def _error(self, what: str, *given: Any) -> ShellError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.1)
        code = self._process.returncode
        text = f"The component's process {what}{'' if code is None else f' (exit code {code})'}."
        hint = f"its command is {self._command}; its errors are in the executor's log; {Config.TOPOLOGY_SUBPROCESS_TIMEOUT_SECS} is how long it may take"
        return ShellError(explain(text, given=given[0], hint=hint) if given else explain(text, hint=hint))

    def close(self) -> None:
        """End the process: close its input, and kill it if it does not end by itself."""
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            self._out.close()
        self._pids.cleanup()


class _Shell:
    """Base of shell components.

    :param command: program and arguments.
    :param output_fields: fields of the stream ``default``; None: declare streams with the methods below.
    :ivar folder: the process's working folder, which has to exist on every machine: ``resources`` in the folder where the topology was built, or that folder
        itself if it has no ``resources``.
    :cvar starts_processes: a file of Flux may use such a class only where commands are allowed.
    """

    starts_processes = True

    def __init__(self, command: list[str], output_fields: list[str] | None = None) -> None:
        self.command = command
        self.folder = next(f for f in (os.path.abspath("resources"), os.path.abspath(".")) if os.path.isdir(f))
        self.env: dict[str, str] = {}
        self.streams: dict[str, StreamInfo] = {}
        if output_fields is not None:
            self.set_default_stream(output_fields)
        self.component_config: dict[str, Any] = {}
        self._process: ShellProcess | None = None

    def add_component_config(self, key: str, value: Any) -> None:
        """Add a key to the component's configuration."""
        self.component_config[key] = value

    def set_named_stream(self, name: str, direct: bool | list[str], output_fields: list[str] | None = None) -> None:
        """Declare a stream, as in Storm: ``(name, fields)`` or ``(name, direct, fields)``.

        :param direct: whether the process names the task of each tuple; default False.
        """
        fields = direct if output_fields is None else output_fields
        if isinstance(fields, bool) or (output_fields is not None and not isinstance(direct, bool)):
            raise IllegalArgumentException(f"A stream needs its fields: {name}.", given=direct, legal="(fields) or (direct, fields)")
        self.streams[name] = StreamInfo(Fields(fields), direct is True)

    def set_default_stream(self, direct: bool | list[str], output_fields: list[str] | None = None) -> None:
        """Declare the stream ``default``; see :meth:`set_named_stream`."""
        self.set_named_stream("default", direct, output_fields)

    def set_env(self, env: dict[str, str]) -> None:
        """Set environment variables of the process."""
        self.env = env

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams."""
        for name, stream in self.streams.items():
            declarer.declare_stream(name, stream.fields, stream.direct)

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the added configuration."""
        return self.component_config

    def _start(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        self._collector, self._context = collector, context
        self._metrics: dict[str, Any] = {}
        self._name = f"{context.get_this_component_id()}/{context.get_this_task_id()}"
        secs = conf.get(Config.TOPOLOGY_SUBPROCESS_TIMEOUT_SECS) or _DEFAULT_TIMEOUT_SECS
        self._process = ShellProcess(self.command, self.folder, self.env, secs)
        try:
            log.info("%s: process %s", self._name, self._process.shake_hands(conf, _context_of(context)))
        except ShellError:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    @property
    def _shell(self) -> ShellProcess:
        assert self._process is not None
        return self._process

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield what the process says up to its next sync; handle what concerns spouts and bolts alike."""
        while True:
            message = self._shell.read()
            command = message.get("command") if isinstance(message, dict) else None
            if command == "sync":
                return
            if command == "log":
                level = message.get("level")
                log.log(_LEVELS.get(level, logging.INFO) if isinstance(level, int) else logging.INFO, "%s: %s", self._name, message.get("msg"))
            elif command == "error":
                self._collector.report_error(str(message.get("msg")))
            elif command == "metrics":
                self._report_metric(str(message.get("name")), message.get("params"))
            elif command is not None:
                yield message
            else:
                raise ShellError("A component's process says something that is not in the protocol.", given=message)

    def _report_metric(self, name: str, value: Any) -> None:
        if name not in self._metrics:
            self._context.register_gauge(name, lambda: self._metrics[name])
        self._metrics[name] = value

    def _answer(self, message: Mapping[str, Any], tasks: Sequence[int]) -> None:
        """Tell the process to which tasks a tuple went, if it wants to know."""
        if message.get("task") is None and message.get("need_task_ids", True):
            self._shell.write(list(tasks))


def _emission(message: Mapping[str, Any]) -> tuple[tuple[Any, ...], str, int | None]:
    """Return values, stream and task of an ``emit``; the task is None unless the stream is direct.

    :raises ShellError: one of them is of the wrong type.
    """
    values, stream, task = message.get("tuple"), message.get("stream"), message.get("task")
    values, stream = [] if values is None else values, "default" if stream is None else stream
    if not (isinstance(values, list) and isinstance(stream, str) and (task is None or type(task) is int)):
        legal = '{"command": "emit", "tuple": [values], "stream": name, "task": number}; all but the command may be missing'
        raise ShellError("A component's process emits something that is no tuple.", given=message, legal=legal)
    return tuple(values), stream, task


def _context_of(context: Any) -> dict[str, Any]:
    component = context.get_this_component_id()
    return {
        "task->component": {str(task): name for task, name in context.get_task_to_component().items()},
        "taskid": context.get_this_task_id(),
        "componentid": component,
        "streams": sorted(context.get_this_streams()),
        "stream->outputfields": {s: list(context.get_this_output_fields(s)) for s in sorted(context.get_this_streams())},
        "source->stream->fields": context.get_this_input_fields(),
    }


class ShellBolt(_Shell, Bolt):
    """A bolt that is another process."""

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Start the process."""
        self._tuples: dict[str, Tuple] = {}
        self._number = 0
        self._start(conf, context, collector)

    def execute(self, tup: Tuple) -> None:
        """Give the process a tuple, and wait until it has handled it.

        :raises ShellError: it has ended, hangs, or does not keep to the protocol; the component is started again.
        """
        self._number += 1
        number = str(self._number)
        self._tuples[number] = tup
        message = {"id": number, "comp": tup.get_source_component(), "stream": tup.get_source_stream_id(), "task": tup.get_source_task()}
        self._shell.write({**message, "tuple": list(tup.values)})
        self._shell.write(_HEARTBEAT)
        for answer in self._messages():
            self._handle(answer)

    def _handle(self, message: dict[str, Any]) -> None:
        if message["command"] == "emit":
            self._answer(message, self._emit(message))
        elif message["command"] in ("ack", "fail"):
            tup = self._tuples.pop(str(message.get("id")), None)
            if tup is not None:
                (self._collector.ack if message["command"] == "ack" else self._collector.fail)(tup)
        else:
            raise ShellError("A bolt's process gives a command that bolts do not have.", given=message)

    def _emit(self, message: dict[str, Any]) -> Any:
        values, stream, task = _emission(message)
        anchors = [tup for number in message.get("anchors") or () if (tup := self._tuples.get(str(number))) is not None] or None
        if task is not None:
            return self._collector.emit_direct(task, values, stream, anchors)
        return self._collector.emit(values, stream, anchors)

    def cleanup(self) -> None:
        """End the process."""
        self._stop()


class ShellSpout(_Shell, Spout):
    """A spout that is another process."""

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Start the process."""
        self._start(conf, context, collector)

    def _tell(self, command: str, **more: Any) -> None:
        self._shell.write({"command": command, **more})
        for message in self._messages():
            if message["command"] != "emit":
                raise ShellError("A spout's process gives a command that spouts do not have.", given=message)
            values, stream, task = _emission(message)
            if task is None:
                self._answer(message, self._collector.emit(values, stream, message.get("id")))
            else:
                self._collector.emit_direct(task, values, stream, message.get("id"))

    def next_tuple(self) -> None:
        """Ask the process for tuples."""
        self._tell("next")

    def ack(self, msg_id: Any) -> None:
        """Pass it on."""
        self._tell("ack", id=msg_id)

    def fail(self, msg_id: Any) -> None:
        """Pass it on."""
        self._tell("fail", id=msg_id)

    def activate(self) -> None:
        """Pass it on."""
        self._tell("activate")

    def deactivate(self) -> None:
        """Pass it on."""
        self._tell("deactivate")

    def close(self) -> None:
        """End the process."""
        self._stop()
