"""What ``dskype local`` shows while a topology runs, and at the end.

A terminal shows a table that is redrawn in place; elsewhere a line is printed every few seconds, and the table at the end. If the topology has
a ``KafkaBolt`` that writes to a topic ``*.top-words`` (see ``deploy/demo/wordcount.py``), the newest record of that topic is shown, too. With the
distributor ``agrid`` the partitions are drawn on a map.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dskype.deploy.machine.terminal import plain
from dskype.topology.components import KafkaBolt
from dskype.topology.runtime.kafka.reading import partitions_to_follow

__all__ = ["TopWords", "show", "top_words_topic"]

_STEP_S = 0.5
_LINE_EVERY_S = 5.0


def top_words_topic(topology: Any) -> str | None:
    """Return the topic ``*.top-words`` that a topology writes, or None."""
    for spec in topology.components.values():
        topic = spec.obj.topic if isinstance(spec.obj, KafkaBolt) else None
        if topic and topic.endswith(".top-words"):
            return topic
    return None


class TopWords:
    """Follows a topic of top words, and ignores malformed records."""

    def __init__(self, kafka: Any, topic: str) -> None:
        self._consumer = kafka.consumer()
        partitions = partitions_to_follow(self._consumer, [topic])
        self._consumer.assign(partitions)
        self._consumer.seek_to_end(*partitions)  # skip what an earlier run left
        self.newest: dict[str, Any] = {}

    def poll(self) -> dict[str, Any]:
        """Return the newest record, ``{"top": [[word, count], ...], "words": n, "distinct": n}``; {} before the first."""
        for records in self._consumer.poll(timeout_ms=50).values():
            for record in records:
                try:
                    value = json.loads(record.value)
                    if isinstance(value["top"], list):
                        self.newest = value
                except (ValueError, TypeError, KeyError):
                    continue
        return self.newest

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def show(cluster: Any, name: str, ttl_s: float) -> None:
    """Show a running topology until its time is up, it fails, or Ctrl-C is pressed.

    :param cluster: a ``LocalCluster``.
    :param ttl_s: seconds; 0: no end.
    :raises TopologyError: the topology failed.
    """
    topic = top_words_topic(cluster.manager.get(name).plan.topology)
    words = TopWords(cluster.environment.kafka, topic) if topic else None
    partitions = _partitions(cluster, name)
    began, last_line = time.monotonic(), time.monotonic()
    live = Live(auto_refresh=False) if sys.stdout.isatty() else None
    try:
        if live is not None:
            live.start()
        while not ttl_s or time.monotonic() - began < ttl_s:
            time.sleep(min(_STEP_S, max(0.01, ttl_s - (time.monotonic() - began))) if ttl_s else _STEP_S)
            managed = cluster.manager.topologies.get(name)
            if managed is None:  # killed by a command
                break
            if (failure := getattr(managed.backend, "failure", None)) is not None:
                raise failure
            newest = words.poll() if words else {}
            if live is not None:
                live.update(_tables(cluster.get_topology_info(name), newest, partitions), refresh=True)
            elif time.monotonic() - last_line > _LINE_EVERY_S:
                last_line = time.monotonic()
                print(_line(cluster.get_topology_info(name), newest), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        if live is not None:
            live.stop()
        if live is None and name in cluster.manager.topologies:
            Console(width=120).print(_tables(cluster.get_topology_info(name), words.poll() if words else {}, partitions))
        for reader in (words, partitions):
            if reader:
                reader.close()


def _partitions(cluster: Any, name: str) -> Any:
    """Return the screen of the topology's partitions; None if it has none."""
    managed = cluster.manager.topologies.get(name)
    if managed is None or cluster.environment is None or managed.plan.conf.get("dskype.distributor") != "agrid":
        return None
    from dskype.deploy.cli.partition_map import PartitionScreen  # numba comes with it

    return PartitionScreen.of(cluster.environment.kafka, managed.plan)


def _line(info: dict[str, Any], words: dict[str, Any]) -> str:
    counts = ", ".join(f"{id} {c['emitted'] if c['kind'] == 'spout' else c['executed']}" for id, c in info["components"].items())
    top = "".join(f" {plain(str(word))} {count}" for word, count in words.get("top", [])[:5])
    return f"{info['uptime_secs']} s {info['status']}: {counts}" + (f"; top words:{top}" if top else "")


def _tables(info: dict[str, Any], words: dict[str, Any], partitions: Any = None) -> Any:
    table = Table(title=f"{info['name']} {info['status']} {info['uptime_secs']} s")
    table.add_column("component")
    for column in ("tasks", "emitted", "transferred", "executed", "acked", "failed", "errors"):
        table.add_column(column, justify="right")
    for id, c in info["components"].items():
        numbers = (len(c["tasks"]), c["emitted"], c["transferred"], c["executed"], c["acked"], c["failed"], len(info["errors"].get(id, ())))
        table.add_row(Text(id), *(f"{n:,}" for n in numbers))
    drawn = partitions.lines() if partitions else []
    if drawn:
        world = Table(title=f"tasks of the partitions, plan {partitions.version}", show_header=False)
        world.add_row(Text("\n".join(drawn)))
        return Group(table, world)
    if not words:
        return table
    top = Table(title="top words", caption=f"of {words.get('words', 0):,} words,\n{words.get('distinct', 0):,} distinct")
    top.add_column("word", min_width=12)
    top.add_column("count", justify="right", min_width=8)
    for word, count in words["top"]:
        top.add_row(Text(plain(str(word))), f"{count:,}")  # Text: a word is never markup
    return Columns([table, top])
