"""``python -m dskype.deploy.lab.chaos.hosts``: break the containers of ``make compose-up`` one after the other, and measure how long the topology stands still.

Places are published at a steady rate all the time. At the end every result is compared with a plain computation. Exit code 0: all of them are right, and the
topology has caught up after every fault; 1: something is wrong; 2: wrong arguments, or their containers are not there.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dskype.deploy.cli.arguments import positive, positive_seconds
from dskype.deploy.demo.feeder import Plan
from dskype.deploy.demo.running import Feeding
from dskype.deploy.lab.chaos.report import markdown_table
from dskype.deploy.machine.errors import DeployError
from dskype.topology.errors import DskypeError
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.nimbus_topic import load_states

__all__ = ["FAULTS", "ContainerError", "Containers", "HostFault", "Recovery", "busiest_leader", "driver_host", "main"]

_TOPOLOGY = "dskype"

_KILL_ALL = "kill -9 -1"
_LEADER = "kafka, the leader of the busiest inbox"
"""Stands for the service of a fault until the fault happens."""
_DRIVER = "topology"
"""The driver at the beginning. With a standby it may be another service when a fault happens."""
_BEHIND_S = 2.0
"""A topology that is behind by less is up to date: what tasks report is about a second old."""
_SETTLED_S = 15.0
"""A topology that has been up to date for so long has caught up. Executors whose driver was killed go on for some seconds before they notice."""


class ContainerError(DeployError):
    """There is no docker client, no such container, or docker has refused a command."""


class Containers:
    """The containers of a compose project.

    :param project: its name.

    All methods raise :class:`ContainerError`.
    """

    def __init__(self, project: str) -> None:
        self._project = project

    def _docker(self, *arguments: str, also: int = 0) -> str:
        """Run ``docker ARGUMENTS``; return what it prints.

        :param also: an exit code that counts as success, besides 0.
        """
        try:
            done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ContainerError(f"docker {' '.join(arguments)}: {error}", fix="install Docker, and see whether 'docker ps' works") from error
        if done.returncode not in (0, also):
            raise ContainerError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _all(self, service: str) -> list[str]:
        label = "label=com.docker.compose"
        return self._docker("ps", "-aq", "--filter", f"{label}.project={self._project}", "--filter", f"{label}.service={service}").split()

    def _find(self, service: str) -> str:
        found = self._all(service)
        if not found:
            raise ContainerError(f"there is no container of the service {service!r} in the compose project {self._project!r}", fix="make compose-up")
        return found[0]

    def has(self, service: str) -> bool:
        """Tell whether there is a container of a service."""
        return bool(self._all(service))

    def kill(self, service: str) -> None:
        """Kill a container. It stays away until :meth:`start`."""
        self._docker("kill", self._find(service))

    def start(self, service: str) -> None:
        """Start a killed container."""
        self._docker("start", self._find(service))

    def crash(self, service: str) -> None:
        """Kill all processes of a container, which its restart policy then starts again."""
        self._docker("exec", self._find(service), "sh", "-c", _KILL_ALL, also=137)  # the shell is killed as well

    def pause(self, service: str) -> None:
        """Stop all processes of a container where they are. They stay stopped until :meth:`unpause`."""
        self._docker("pause", self._find(service))

    def unpause(self, service: str) -> None:
        """Let the processes of a paused container continue."""
        self._docker("unpause", self._find(service))

    def disconnect(self, service: str) -> None:
        """Take a container from the project's network."""
        self._docker("network", "disconnect", f"{self._project}_default", self._find(service))

    def connect(self, service: str) -> None:
        """Put a container back to the project's network."""
        self._docker("network", "connect", "--alias", service, f"{self._project}_default", self._find(service))


@dataclass(frozen=True)
class HostFault:
    """Something that happens to a container.

    :ivar name: on the command line.
    :ivar text: in the table; ``{hold}`` is how long it lasts, in seconds.
    :ivar strike: a method of :class:`Containers`.
    :ivar heal: the method that ends it; None: it ends by itself.
    """

    name: str
    text: str
    service: str
    strike: Callable[[Containers, str], None]
    heal: Callable[[Containers, str], None] | None = None


FAULTS = {
    fault.name: fault
    for fault in (
        HostFault("kill-worker", "a worker's host is lost, and back after {hold} s", "spark-worker-1", Containers.kill, Containers.start),
        HostFault("crash-worker", "all processes of a worker die, Docker starts it again", "spark-worker-2", Containers.crash),
        HostFault("pause-worker", "a worker's host stands still for {hold} s", "spark-worker-1", Containers.pause, Containers.unpause),
        HostFault("disconnect-worker", "a worker's host is cut off for {hold} s", "spark-worker-2", Containers.disconnect, Containers.connect),
        HostFault("kill-driver", "the driver's host is lost, and back after {hold} s", _DRIVER, Containers.kill, Containers.start),
        HostFault("crash-driver", "all processes of the driver die, Docker starts it again", _DRIVER, Containers.crash),
        HostFault("pause-driver", "the driver's host stands still for {hold} s", _DRIVER, Containers.pause, Containers.unpause),
        HostFault("disconnect-driver", "the driver's host is cut off for {hold} s", _DRIVER, Containers.disconnect, Containers.connect),
        HostFault("crash-master", "all processes of Spark's master die, Docker starts it again", "spark-master", Containers.crash),
        HostFault("kill-broker", "one broker of three is lost, and back after {hold} s", "kafka-3", Containers.kill, Containers.start),
        HostFault("pause-broker", "one broker of three stands still for {hold} s", "kafka-3", Containers.pause, Containers.unpause),
        HostFault("disconnect-broker", "one broker of three is cut off for {hold} s", "kafka-3", Containers.disconnect, Containers.connect),
        HostFault("kill-controller", "the first broker of three is lost, and back after {hold} s", "kafka-1", Containers.kill, Containers.start),
        HostFault("kill-leader", "the broker that leads the busiest inbox is lost, and back after {hold} s", _LEADER, Containers.kill, Containers.start),
        HostFault("pause-leader", "the broker that leads the busiest inbox stands still for {hold} s", _LEADER, Containers.pause, Containers.unpause),
        HostFault("disconnect-leader", "the broker that leads the busiest inbox is cut off for {hold} s", _LEADER, Containers.disconnect, Containers.connect),
        HostFault("kill-prometheus", "Prometheus is lost, and back after {hold} s", "prometheus", Containers.kill, Containers.start),
        HostFault("pause-prometheus", "Prometheus stands still for {hold} s", "prometheus", Containers.pause, Containers.unpause),
        HostFault("disconnect-prometheus", "Prometheus is cut off for {hold} s", "prometheus", Containers.disconnect, Containers.connect),
    )
}
"""Name -> fault."""


@dataclass
class Recovery:
    """What a fault did to the topology.

    :ivar silent_s: the longest time in which no message was handled.
    :ivar first_s: from the fault until a message was handled that was published after it; None: never.
    :ivar caught_up_s: from the fault until the topology was up to date again, and the fault over; None: never.
    """

    fault: HostFault
    silent_s: float = 0.0
    first_s: float | None = None
    caught_up_s: float | None = None


@dataclass
class _History:
    """When how many messages were published.

    :ivar at_s: times by the monotonic clock.
    :ivar published: how many there were by then.
    """

    at_s: list[float] = field(default_factory=list)
    published: list[int] = field(default_factory=list)

    def behind_s(self, matched: int, now: float) -> float:
        """Return the age of the oldest message that is published and not handled; 0 if there is none."""
        place = bisect.bisect_right(self.published, matched)
        return 0.0 if place == len(self.published) else now - self.at_s[place]


class _Watch:
    """Publishes steadily, and watches how the topology follows."""

    def __init__(self, feeding: Feeding) -> None:
        self._feeding, self._history = feeding, _History()

    def look(self) -> tuple[float, int, float]:
        """Return the time, how many messages are handled, and how far the topology is behind, in seconds."""
        matched, now = self._feeding.matched(100), time.monotonic()
        self._history.at_s.append(now)
        self._history.published.append(self._feeding.feeder.published)
        return now, matched, self._history.behind_s(matched, now)

    def rest(self, secs: float, patience_s: float) -> bool:
        """Wait until the topology has been up to date for some seconds; return False if it never is."""
        deadline, since = time.monotonic() + patience_s, None
        while True:
            now, _, behind_s = self.look()
            since = (since or now) if behind_s < _BEHIND_S else None
            if since is not None and now - since >= secs:
                return True
            if now > deadline:
                return False

    def strike(self, fault: HostFault, containers: Containers, hold_s: float, patience_s: float) -> Recovery:
        """Let a fault happen, and return how the topology recovers. The fault ends in any case, also after an error and after Ctrl-C."""
        struck, published = time.monotonic(), self._feeding.feeder.published
        fault.strike(containers, fault.service)
        with contextlib.ExitStack() as healing:
            if fault.heal is not None:
                healing.callback(fault.heal, containers, fault.service)
            return self._follow(Recovery(fault), struck, published, healing, hold_s, patience_s)

    def _follow(self, found: Recovery, struck: float, published: int, healing: contextlib.ExitStack, hold_s: float, patience_s: float) -> Recovery:
        """Return how the topology recovers.

        :param found: to be filled in.
        :param struck: when the fault happened; ``published``: how many messages there were by then.
        :param healing: ends the fault when it is closed.
        """
        healed = found.fault.heal is None
        before, moved, up_to_date = self._feeding.matched(), struck, None
        while True:
            now, matched, behind_s = self.look()
            if matched > before:
                found.silent_s, before, moved = max(found.silent_s, now - moved), matched, now
            if found.first_s is None and matched > published:
                found.first_s = now - struck
            if not healed and now - struck >= hold_s:
                healing.close()
                healed = True
            current = healed and found.first_s is not None and behind_s < _BEHIND_S
            up_to_date = (up_to_date or now) if current else None
            if up_to_date is not None and now - up_to_date >= _SETTLED_S:
                found.caught_up_s = up_to_date - struck
                return found
            if up_to_date is None and now - struck > hold_s + patience_s:  # who is up to date by then gets the time to stay so
                found.silent_s = max(found.silent_s, now - moved)
                return found


def as_table(found: Sequence[Recovery], hold_s: float) -> str:
    """Return recoveries as a table in Markdown, times in seconds."""

    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.0f}"

    rows = [(r.fault.text.format(hold=f"{hold_s:g}"), seconds(r.silent_s), seconds(r.first_s), seconds(r.caught_up_s)) for r in found]
    return markdown_table([("fault", "longest silence, s", "first new message after, s", "up to date after, s"), *rows], right=True)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<18} {fault.text.format(hold='--hold')}" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m dskype.deploy.lab.chaos.hosts",
        description="Break the containers of 'make compose-up' one after the other, and measure how long the topology stands still.",
        epilog=f"faults:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--project", default="dskype", help="the compose project; default: dskype")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", default="127.0.0.1:19092", help="its brokers; default: 127.0.0.1:19092")
    parser.add_argument("--faults", type=lambda text: text.split(","), metavar="A,B", help="only these faults; default: all whose containers there are")
    parser.add_argument("--hold", type=positive_seconds, default=30, metavar="S", help="how long a fault lasts that does not end by itself; default: 30")
    parser.add_argument("--rate", type=positive, default=100, metavar="R", help="messages per second; default: 100")
    parser.add_argument("--subscriptions", type=positive, default=500, metavar="N", help="how many; default: 500")
    parser.add_argument("--patience", type=positive_seconds, default=120, metavar="S", help="how long the topology may take to catch up; default: 120")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the faults; return the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if unknown := sorted(set(args.faults or ()) - set(FAULTS)):
        parser.error(f"unknown faults, given: {', '.join(unknown)}; legal: {', '.join(FAULTS)}")
    containers = Containers(args.project)
    try:
        possible = _possible(containers)
        chosen = [name for name in FAULTS if name in (args.faults or possible)]
        if missing := sorted(set(chosen) - set(possible)):
            parser.error(f"the compose project {args.project} has not the containers for {', '.join(missing)}; possible: {', '.join(possible) or 'none'}")
        if not chosen:
            parser.error(f"there are no containers of the compose project {args.project}; 'make compose-up' starts them")
        return _run(args, containers, [FAULTS[name] for name in chosen])
    except DskypeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _possible(containers: Containers) -> list[str]:
    """Return the names of the faults whose containers are there. A broker is struck only if it is one of three."""
    three = all(containers.has(f"kafka-{n}") for n in (1, 2, 3))
    return [name for name, fault in FAULTS.items() if (three if fault.service.startswith("kafka") else containers.has(fault.service))]


def busiest_leader(kafka: KafkaSettings, topology: str) -> str:
    """Return the service of the broker that leads the partition with the most records of the subscription bolt's inbox.

    The compose file calls the broker with the id 2 ``kafka-2``.
    """
    inbox = inbox_topic(topology, "subscription-bolt")
    with TopicAdmin(kafka) as admin:
        ends = {partition: end for partition, (_, end) in admin.begin_and_end(inbox).items()}
        return f"kafka-{admin.leader(inbox, max(ends, key=lambda partition: ends[partition]))}"


def driver_host(kafka: KafkaSettings, topology: str) -> str:
    """Return the service of the driver of a topology: in the compose file, a service has the name of its host.

    :raises DeployError: no driver has entered itself.
    """
    driver = (load_states(kafka).get(topology) or {}).get("driver")
    if not driver:
        raise DeployError(f"topology {topology!r} has no driver", fix="start it with 'make compose-up', and wait until 'dskype list' shows it")
    return str(driver["host"])


def _run(args: argparse.Namespace, containers: Containers, chosen: Sequence[HostFault]) -> int:
    """Let the faults happen one after the other, and print how the topology recovers; return the exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    from rich.console import Console

    recoveries: list[Recovery] = []
    plan = Plan(messages=int(args.rate * (60 + len(chosen) * (args.hold + args.patience + 20))), subscriptions=args.subscriptions, rate=args.rate)
    kafka = KafkaSettings(args.bootstrap_servers)
    with Feeding(kafka, _TOPOLOGY, plan) as feeding:
        watch = _Watch(feeding)
        say(f"{args.rate:g} messages per second; waiting until the topology is up to date")
        right = watch.rest(5, 2 * args.patience)
        for fault in chosen:
            if fault.service == _LEADER:
                fault = replace(fault, service=busiest_leader(kafka, _TOPOLOGY))
            elif fault.service == _DRIVER:
                fault = replace(fault, service=driver_host(kafka, _TOPOLOGY))
            say(f"{fault.text.format(hold=f'{args.hold:g}')} ({fault.service})")
            recoveries.append(watch.strike(fault, containers, args.hold, args.patience))
            say(as_table(recoveries[-1:], args.hold).splitlines()[-1])
            right = recoveries[-1].caught_up_s is not None and right
        feeding.feeder.close()
        code = feeding.check(Console(highlight=False), say)
    print(as_table(recoveries, args.hold), flush=True)
    return 0 if right and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
