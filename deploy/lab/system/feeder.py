"""Write messages and subscriptions for a benchmark from a separate process, so that its work is not counted as the topology's.

Everything is encoded beforehand. The process reads one JSON object per line from stdin, and answers with one on stdout: first its configuration,
then commands (``do``: ``messages``, ``paced``, ``hotspot``, ``subscriptions``, ``boolean_subscriptions``, ``geofences``, ``move``). Only updates of vehicles and moves of
subscriptions are encoded as they are written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, Self

import numpy as np

from dskype.topology.errors import TopologyError

__all__ = ["Feeder", "due", "moved"]

_STEP_S = 0.05
_MOVE_DEG = 0.01
"""How far a subscription moves, in both directions: about a kilometre and a half."""
_LARGEST_LAT_DEG, _LARGEST_LON_DEG = 89.0, 179.0
"""Subscriptions do not move further than that."""
_BLOCK = 10_000
_SETTINGS = {
    # Few requests, so that writing takes little of the measured machine. Kafka's time of a message is that of its arrival.
    "linger.ms": 20,
    "acks": 1,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 20 * _BLOCK,
    "partitioner": "murmur2_random",  # the partitions that Java's clients choose
}


class Feeder:
    """Starts the process that writes, and sends it commands.

    :param kafka: the brokers (:class:`~dskype.topology.runtime.kafka.clients.KafkaSettings`).
    :param topics: (messages, subscriptions): names of the topics.
    :param messages: how many different messages to prepare; None: every place once. They repeat if more are needed.
    :param places: file of places; default: that of the package.
    :param fleet: write updates of vehicles instead of places: how many ``vehicles``, and ``step_s``, the seconds that each drives between two updates.
    """

    def __init__(
        self,
        kafka: Any,
        topics: tuple[str, str],
        *,
        messages: int | None = None,
        places: str | None = None,
        seed: int = 0,
        fleet: Mapping[str, float] | None = None,
    ) -> None:
        from dskype.deploy.machine.processes import module_command, spawn_tied

        self.written = 0
        """Messages written so far."""
        self._process = spawn_tied(module_command("dskype.deploy.lab.system.feeder"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(servers=kafka.bootstrap_servers, options=dict(kafka.options), topics=topics, messages=messages, places=places, seed=seed, fleet=fleet)

    def ready(self) -> dict[str, Any]:
        """Wait until everything is encoded; return how many messages there are, and their average size in bytes."""
        return self._answer()

    def messages(self, n: int) -> dict[str, Any]:
        """Write the next ``n`` messages as fast as possible; when Kafka has them, return ``started_ms`` and ``ended_ms``."""
        return self._sent(self._do(do="messages", n=n))

    def paced(self, rate: float, seconds: float) -> dict[str, Any]:
        """Write ``rate`` messages per second for some seconds, however fast they are processed (open loop)."""
        return self._sent(self._do(do="paced", rate=rate, seconds=seconds))

    def hotspot(self, box: Sequence[float], share: float) -> None:
        """Let a share of the messages from now on lie in a part of the world: west, south, east, north in degrees."""
        self._do(do="hotspot", box=list(box), share=share)

    def subscriptions(self, n: int, k: int) -> dict[str, Any]:
        """Register ``n`` top-k subscriptions with this ``k`` as fast as possible."""
        return self._do(do="subscriptions", n=n, k=k)

    def boolean_subscriptions(self, n: int, **shape: Any) -> dict[str, Any]:
        """Register ``n`` boolean subscriptions as fast as possible.

        :param shape: ``space_share`` and ``keywords`` of :func:`~dskype.deploy.lab.boolean.records.boolean_records`.
        """
        return self._do(do="boolean_subscriptions", n=n, shape=shape)

    def geofences(self, n: int) -> dict[str, Any]:
        """Register ``n`` geofences of vehicles as fast as possible."""
        return self._do(do="geofences", n=n)

    def move(self, rate: float) -> int:
        """From now on move so many subscriptions per second, those registered last, in turn; 0: none any more. Return how many have moved so far."""
        return self._do(do="move", rate=rate)["moved"]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, **command: Any) -> dict[str, Any]:
        self._send(**command)
        return self._answer()

    def _send(self, **command: Any) -> None:
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading the answer reports it

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise TopologyError(f"the process that writes messages has ended (exit code {self._process.wait()}); its error is above")
        return json.loads(line)

    def _sent(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.written = answer["written"]
        return answer


def due(rate: float, elapsed_s: float, seconds: float) -> int:
    """Return how many messages must have been sent by now at a fixed rate; all of them after the end."""
    return int(rate * min(elapsed_s, seconds))


def moved(value: bytes, lap: int) -> bytes:
    """Return the record of a subscription that has moved: a little to the north-east of where it was registered, on odd laps, or back there."""
    record, away = json.loads(value), _MOVE_DEG * (lap % 2)

    def shifted(lat: float, lon: float) -> tuple[float, float]:
        return round(min(lat + away, max(lat, _LARGEST_LAT_DEG)), 6), round(min(lon + away, max(lon, _LARGEST_LON_DEG)), 6)

    if "lat" in record:
        record["lat"], record["lon"] = shifted(record["lat"], record["lon"])
    if "bbox" in record:
        west, south, east, north = record["bbox"]
        record["bbox"] = [*reversed(shifted(south, west)), *reversed(shifted(north, east))]
    region = record.get("region", {})
    if "center" in region:
        region["center"]["lat"], region["center"]["lon"] = shifted(region["center"]["lat"], region["center"]["lon"])
    if "coordinates" in region:
        region["coordinates"] = [[[*reversed(shifted(lat, lon))] for lon, lat in ring] for ring in region["coordinates"]]
    return json.dumps(record | {"update": True}, separators=(",", ":")).encode()


class _Writer:
    """Executes the commands, in the process."""

    def __init__(self, config: dict[str, Any]) -> None:
        from dskype.deploy.machine.connection import client_arguments
        from dskype.topology.runtime.kafka.clients import KafkaSettings

        self._seed = config["seed"]
        self._prepare(config)
        self._messages, self._subscriptions = config["topics"]
        self._kafka = KafkaSettings(config["servers"], config["options"], client_arguments(config["options"]))
        self._producer: Any = None
        self._next = 0
        self._hot: list[bytes] = []
        self._hot_percent = 0
        self._registered: Callable[[], Iterator[tuple[str, bytes]]] = lambda: iter(())
        self._moved = 0
        self._moving: tuple[threading.Thread, threading.Event] | None = None

    def _prepare(self, config: dict[str, Any]) -> None:
        from dskype.deploy.demo import places

        self._places = places.places(self._seed, config["messages"], config["places"])
        self._values = self._places.records()

    def describe(self) -> dict[str, Any]:
        return {"messages": len(self._values), "message_bytes": sum(map(len, self._values)) / max(1, len(self._values))}

    def _open(self) -> Any:
        if self._producer is None:
            from confluent_kafka import Producer

            from dskype.topology.runtime.kafka.connections import connection_settings

            with connection_settings(self._kafka) as settings:
                self._producer = Producer(_SETTINGS | settings | {"on_delivery": _stop_at_error})
        return self._producer

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        kind, producer = command.pop("do"), self._open()
        started_ms = time.time_ns() // 1_000_000
        getattr(self, kind)(producer, **command)
        producer.flush()
        return {"written": self._next, "moved": self._moved, "started_ms": started_ms, "ended_ms": time.time_ns() // 1_000_000}

    def messages(self, producer: Any, n: int) -> None:
        numbers = iter(range(self._next, self._next + n))
        while block := list(islice(numbers, _BLOCK)):
            _write(producer, self._messages, self._records(block))
        self._next += n

    def _records(self, block: list[int]) -> list[dict[str, bytes]]:
        values, hot, percent = self._values, self._hot, self._hot_percent
        return [{"value": hot[i % len(hot)] if i * 37 % 100 < percent else values[i % len(values)]} for i in block]

    def hotspot(self, producer: Any, box: list[float], share: float) -> None:
        west, south, east, north = box
        lat, lon = self._places.lat, self._places.lon
        inside = ((lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)).nonzero()[0].tolist()
        self._hot, self._hot_percent = [self._values[i] for i in inside], round(100 * share) if inside else 0

    def paced(self, producer: Any, rate: float, seconds: float) -> None:
        started, sent, elapsed = time.monotonic(), 0, 0.0
        while elapsed < seconds:
            elapsed = time.monotonic() - started
            now = due(rate, elapsed, seconds)
            self.messages(producer, now - sent)
            sent = now
            time.sleep(_STEP_S)

    def subscriptions(self, producer: Any, n: int, k: int) -> None:
        from dskype.deploy.demo import places

        self._register(producer, lambda: places.subscriptions(self._places, n, self._seed, k=k))

    def boolean_subscriptions(self, producer: Any, n: int, shape: dict[str, Any]) -> None:
        from dskype.deploy.lab.boolean.records import boolean_records

        self._register(producer, lambda: boolean_records(self._places, n, self._seed, **shape))

    def _register(self, producer: Any, draw: Callable[[], Iterator[tuple[str, bytes]]]) -> None:
        self._registered, rows = draw, draw()
        while block := list(islice(rows, _BLOCK)):
            _write(producer, self._subscriptions, [{"key": id.encode(), "value": value} for id, value in block])

    def move(self, producer: Any, rate: float) -> None:
        if self._moving is not None:
            thread, end = self._moving
            end.set()
            thread.join()
        if rate:
            end = threading.Event()
            thread = threading.Thread(target=self._move, args=(producer, rate, end), name="moves", daemon=True)
            thread.start()
            self._moving = thread, end

    def _move(self, producer: Any, rate: float, end: threading.Event) -> None:
        rows = ((id, moved(value, lap)) for lap in count(1) for id, value in self._registered())
        started, sent = time.monotonic(), 0
        while not end.wait(_STEP_S):
            now = int(rate * (time.monotonic() - started))
            _write(producer, self._subscriptions, [{"key": id.encode(), "value": value} for id, value in islice(rows, now - sent)])
            self._moved, sent = self._moved + now - sent, now


class _FleetWriter(_Writer):
    """Writes updates of vehicles, which report in turn."""

    def _prepare(self, config: dict[str, Any]) -> None:
        from dskype.deploy.demo import moving

        self._cities, self._step_s = moving.cities(), config["fleet"]["step_s"]
        self._fleet = moving.Fleet(self._cities, config["fleet"]["vehicles"], self._seed)

    def describe(self) -> dict[str, Any]:
        sizes = [len(record["value"]) for record in self._fleet.records(np.arange(min(1000, len(self._fleet))))]
        return {"messages": len(self._fleet), "message_bytes": sum(sizes) / max(1, len(sizes))}

    def _records(self, block: list[int]) -> list[dict[str, bytes]]:
        found: list[dict[str, bytes]] = []
        while len(found) < len(block):
            at = (block[0] + len(found)) % len(self._fleet)
            rows = np.arange(at, min(len(self._fleet), at + len(block) - len(found)))
            self._fleet.advance(rows, self._step_s)
            found += self._fleet.records(rows)
        return found

    def geofences(self, producer: Any, n: int) -> None:
        from dskype.deploy.demo import moving

        self._register(producer, lambda: moving.geofences(self._cities, n, self._seed))


def _write(producer: Any, topic: str, records: list[dict[str, bytes]]) -> None:
    """Begin to write records; wait while the client's queue is full."""
    while len(producer) > 10 * _BLOCK:
        producer.poll(_STEP_S)
    if (n := producer.produce_batch(topic, records)) != len(records):
        raise TopologyError(f"{len(records) - n} of {len(records)} records for topic {topic} were refused")


def _stop_at_error(error: Any, message: Any) -> None:
    if error is not None:
        raise TopologyError(f"a record for topic {message.topic()} was refused: {error.str()}")


def main() -> None:
    """Serve one benchmark until the end of stdin."""
    lines = iter(sys.stdin.buffer.readline, b"")
    config = json.loads(next(lines))
    writer = _FleetWriter(config) if config.get("fleet") else _Writer(config)
    print(json.dumps(writer.describe()), flush=True)
    for line in lines:
        print(json.dumps(writer.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
