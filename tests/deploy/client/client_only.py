"""Runs as in an environment that has only what clients need: the packages of the extra ``spark`` are not found.

``python -m tests.deploy.client.client_only command ...`` runs a command of ``dskype``, ``each NAME...`` several ones; ``check`` parses records; ``use`` is a whole client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dskype.deploy.machine.extras import SPARK

HEAVY = {*SPARK, "llvmlite"}

SUBSCRIPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("lists", {"type": "topk", "text": "I ❤️ Späti, CAFÉ und Kranken\u00adhaus ２4/7", "lat": 52.5, "lon": 13.4, "k": 3, "alpha": 0.25}),
    ("boolean", {"type": "boolean", "bbox": [170, -10, -170, 10], "expression": '(Straße OR "late night") AND ﬁsh', "ttl_s": 60, "meta": [1]}),
    ("of stop words", {"type": "topk", "text": "the THE Ｔhe", "lat": 0, "lon": 0, "k": 3, "alpha": 0.5}),
    ("frequent", {"type": "topk", "text": "lake", "lat": 0, "lon": 0, "k": 3, "alpha": 0.5}),
    ("rare", {"type": "topk", "text": "zythum", "lat": 0, "lon": 0, "k": 3, "alpha": 0.5}),
    ("out of range", {"type": "topk", "text": "lake", "lat": 91, "lon": 0, "k": 3, "alpha": 0.5}),
]
MESSAGES: list[dict[str, Any]] = [
    {"id": "m", "text": "Ａ l\u0301ake \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \ufdfa", "lat": 1, "lon": 2},
    {"id": 7, "text": "x" * 70_000, "lat": 1, "lon": 2},
    {"text": "ok", "lat": None, "lon": 2},
]


class _Without:
    """A finder of modules that does not find those packages."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, *where: Any) -> Any:
        return None if name.partition(".")[0] in HEAVY else self._finder.find_spec(name, *where)

    def find_distributions(self, *context: Any) -> Iterator[Any]:
        found = getattr(self._finder, "find_distributions", lambda *context: ())(*context)
        return (package for package in found if package.metadata["Name"].replace("-", "_") not in HEAVY)


def checked(conf: dict[str, Any]) -> list[str]:
    """Return what a client makes of the records, or why it refuses them."""
    from dskype.deploy.client.pubsub import PubSub
    from dskype.spouts.records import RecordError
    from dskype.topology.runtime.kafka.clients import KafkaSettings

    client, found = PubSub(KafkaSettings(""), "t", conf=conf), []
    parses = [
        *((client.parse_subscription, (key.encode(), json.dumps(value).encode())) for key, value in SUBSCRIPTIONS),
        *((client.parse_message, (json.dumps(value).encode(),)) for value in MESSAGES),
    ]
    for parse, arguments in parses:
        try:
            found.append(repr(parse(*arguments)))
        except RecordError as error:
            found.append(f"{error.code}: {error}")
    return found


def use(brokers: str, name: str) -> dict[str, Any]:
    """Publish, subscribe, and read results and dead letters that the test has written."""
    from dskype.deploy.client.dead_letters import DeadLetters
    from dskype.deploy.client.pubsub import PubSub

    with PubSub(brokers, name, conf={}) as client:
        client.subscribe("mine", text="lake park", lat=43.0, lon=-87.9, k=3, alpha=0.5, wait=True)
        client.subscribe("gone", bbox=[-88, 42, -87, 44], expression="coffee AND wifi", wait=True)
        client.unsubscribe("gone", wait=True)
        for number in range(100):
            client.publish(text="coffee by the lake", lat=43.0, lon=-87.9, id=number)
        client.flush()
        client.await_active("mine", timeout_s=60)
        with DeadLetters(client) as letters:
            dead = [letter.code for letter in letters.newest()]
        topk = client.topk("mine")
        return {
            "stored": client.stored,
            "subscriptions": [(registered.id, registered.status) for registered in client.subscriptions()],
            "results": [(result.subscription, result.op, result.message) for result in client.results()],
            "topk": topk and [message for message, _ in topk.entries],
            "dead": dead,
            "refusals": client.refusals(["0-7"]),
        }


def main(arguments: Sequence[str]) -> int:
    """Do what the module says; the last line of output is JSON."""
    sys.meta_path[:] = map(_Without, sys.meta_path)
    what, *rest = arguments
    if what == "command":
        from dskype.deploy.cli.main import main as run

        return run(rest)
    if what == "each":
        from dskype.deploy.cli.main import main as run

        print(json.dumps([run([name]) for name in rest]))
        return 0
    print(json.dumps(checked(json.loads(rest[0])) if what == "check" else use(*rest)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
