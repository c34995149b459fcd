"""The faults: each is a class with a way to strike and a way to heal."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import threading
import time
from typing import TYPE_CHECKING

from dskype.deploy.lab.chaos import processes
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

if TYPE_CHECKING:
    from dskype.deploy.lab.chaos.system import System
    from dskype.deploy.lab.chaos.workloads import FaultWorkload

__all__ = ["FAULTS", "PARTNERS", "Fault", "usable"]

log = logging.getLogger(__name__)

_NOTICE_S = 20
_RELIEF = 3


class Fault:
    """Something that breaks.

    :ivar name: its name in tables and on the command line.
    :ivar text: what it does, in a sentence.
    :ivar lasts_s: shortest and longest duration, in seconds.
    :ivar long: it lasts so long that it is left out by default.
    :ivar still: something stands still and goes on later; ``--pause`` says how long.
    """

    name: str
    text: str
    lasts_s: tuple[float, float] = (0, 0)
    long = False
    still = False

    def usable(self, system: System, workload: FaultWorkload) -> bool:
        """Tell whether this machine and this workload allow the fault."""
        return True

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Cause the fault.

        :param choice: 0 <= choice < 1; selects one of several processes.
        """
        raise NotImplementedError

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """End the fault, if it does not heal by itself."""


class Kill(Fault):
    """SIGKILL for one or all processes of a kind; they come back by themselves."""

    def __init__(self, name: str, kind: str, *, every: bool = False) -> None:
        self.name, self._kind, self._every = name, kind, every
        self.text = f"SIGKILL of {'all processes' if every else 'a process'} of the kind {kind}"

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Kill."""
        found = system.find(self._kind)
        chosen = found if self._every else found[int(choice * len(found)) :][:1]
        if not processes.send(chosen, signal.SIGKILL):
            log.info("%s: there is no such process now", self.name)


class KillMachine(Kill):
    """SIGKILL of Spark's JVM: the driver must notice, and end or start another one."""

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Kill."""
        self._driver, self._killed = system.pid, set(system.find(self._kind))
        super().strike(system, workload, choice)

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """End a driver that lives on without a JVM."""
        deadline = time.monotonic() + _NOTICE_S
        while system.pid == self._driver and not set(system.find(self._kind)) - self._killed:
            if time.monotonic() > deadline:
                log.warning("%s: after %s s the driver still lives without a JVM; ending it", self.name, _NOTICE_S)
                system.end_driver()
                return
            time.sleep(0.2)


class Pause(Fault):
    """SIGSTOP for one or all processes of a kind, later SIGCONT."""

    lasts_s = (3, 12)
    still = True

    def __init__(self, name: str, kind: str, *, every: bool = False) -> None:
        self.name, self._kind, self._every = name, kind, every
        self.text = f"SIGSTOP of {'all processes' if every else 'a process'} of the kind {kind}, SIGCONT some seconds later"
        self._stopped: list[int] = []

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Stop."""
        found = system.find(self._kind)
        self._stopped = processes.send(found if self._every else found[int(choice * len(found)) :][:1], signal.SIGSTOP)

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Continue them."""
        processes.send(self._stopped, signal.SIGCONT)


class PauseClients(Pause):
    """SIGSTOP for the servers among the clients. When they continue, they must not take others for lost."""

    def __init__(self) -> None:
        super().__init__("pause-clients", "client", every=True)
        self.text = "SIGSTOP of dskype ui, metrics and webhooks, SIGCONT some seconds later"

    def usable(self, system: System, workload: FaultWorkload) -> bool:
        """Need a workload that clients follow."""
        return workload.followed


class CutNetwork(Fault):
    """Nothing gets to the broker and nothing comes from it. Connections stay, as with a network that drops packets."""

    name, text = "cut-network", "no byte gets to the broker or comes from it, and no connection ends, for some seconds"
    lasts_s = (3, 12)
    still = True

    def usable(self, system: System, workload: FaultWorkload) -> bool:
        """Need a broker behind a door."""
        return system.door is not None

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Cut."""
        system.door.hang()

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Let everything through, also what waits."""
        system.door.resume()


class BrokerAway(Fault):
    """The broker dies and is started again some time later."""

    def __init__(self, name: str, lasts_s: tuple[float, float], *, long: bool = False) -> None:
        self.name, self.lasts_s, self.long = name, lasts_s, long
        self.text = f"SIGKILL of the broker, started again after {lasts_s[0]:g} to {lasts_s[1]:g} s"

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Kill it."""
        system.broker.kill()

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Start it."""
        system.broker.start()


class BrokerRestart(Fault):
    """A clean restart of the broker."""

    name, text = "restart-broker", "the broker is stopped in good order and started again"

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Stop and start it."""
        system.broker.restart()


class BrokerBounce(Fault):
    """The broker is killed repeatedly, soon after each start."""

    name, text = "bounce-broker", "SIGKILL of the broker three times, each soon after it has come back"

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Kill and start it, three times."""
        for _ in range(3):
            system.broker.kill()
            system.broker.start()
            time.sleep(1 + choice)


class ClockStep(Fault):
    """The wall clock of driver and executors jumps, for good."""

    def __init__(self, name: str, step_s: int) -> None:
        self.name, self._step_s = name, step_s
        self.text = f"the wall clock of driver and executors jumps by {step_s:+d} s, for good"

    def usable(self, system: System, workload: FaultWorkload) -> bool:
        """Need a system that runs with a clock that can be set."""
        return system.clock is not None

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Jump."""
        system.clock.step(self._step_s)


class DiskFull(Fault):
    """No space for snapshots and journals: the file system is full, or no file may grow."""

    name, text = "disk-full", "the file system of the topology's folder is full (where mounting is not allowed: no file of an executor may grow)"
    lasts_s = (5, 12)

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Fill it."""
        if system.mounted:
            with open(system.data / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(b"\0" * 4096)
                except OSError:
                    pass
        else:
            self._limit(system, 0)

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Make room again."""
        (system.data / "filler").unlink(missing_ok=True)
        if not system.mounted:
            self._limit(system, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(system: System, size: int) -> None:
        for pid in [*system.find("supervisor"), *system.find("executor")]:
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            except (ProcessLookupError, PermissionError) as error:
                log.info("disk-full: process %s: %s", pid, error)


class Overload(Fault):
    """Three times the input that the machine can process."""

    name, text = "overload", "three times the highest rate ever processed, for some seconds"
    lasts_s = (6, 12)

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Feed more."""
        workload.feed_at(_RELIEF * workload.capacity())

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Feed as before."""
        workload.feed_at(None)


class HungStore(Fault):
    """The result store accepts connections and never answers."""

    name, text = "hang-store", "the result store accepts connections and requests, and never answers"
    lasts_s = (6, 12)

    def usable(self, system: System, workload: FaultWorkload) -> bool:
        """Need a workload with a store outside Kafka."""
        return workload.store is not None

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Stop all answers."""
        workload.store.hang()

    def heal(self, system: System, workload: FaultWorkload) -> None:
        """Let it answer."""
        workload.store.resume()


class DeleteMetrics(Fault):
    """The topic of measurements is deleted; results do not depend on it."""

    name, text = "delete-metrics", "the topic of measurements is deleted while the topology runs"

    def strike(self, system: System, workload: FaultWorkload, choice: float) -> None:
        """Delete it, unless the broker is away."""

        def delete() -> None:
            try:
                with contextlib.closing(TopicAdmin(system.kafka)) as admin:
                    admin.delete([metrics_topic(system.name)])
            except Exception as error:
                log.info("delete-metrics: %s", error)

        thread = threading.Thread(target=delete, daemon=True)
        thread.start()
        thread.join(10)


def _all() -> dict[str, Fault]:
    found = [
        Kill("kill-driver", "driver"),
        KillMachine("kill-jvm", "jvm"),
        Kill("kill-supervisor", "supervisor"),
        Kill("kill-executor", "executor"),
        Kill("kill-executors", "executor", every=True),
        Kill("kill-daemon", "daemon"),
        BrokerAway("kill-broker", (0.5, 8)),
        BrokerAway("broker-away", (70, 70), long=True),
        BrokerRestart(),
        BrokerBounce(),
        Pause("pause-driver", "driver"),
        Pause("pause-jvm", "jvm"),
        Pause("pause-supervisor", "supervisor"),
        Pause("pause-executor", "executor"),
        Pause("pause-executors", "executor", every=True),
        Pause("pause-daemon", "daemon"),
        Pause("pause-broker", "broker"),
        CutNetwork(),
        PauseClients(),
        ClockStep("clock-back", -3600),
        ClockStep("clock-ahead", 3600),
        DiskFull(),
        Overload(),
        HungStore(),
        DeleteMetrics(),
    ]
    return {fault.name: fault for fault in found}


FAULTS = _all()
"""Name -> fault."""

PARTNERS = ("kill-executor", "kill-executors", "pause-executor")
"""Faults that may strike while another one lasts."""


def usable(system: System, workload: FaultWorkload, names: list[str] | None, *, long: bool) -> dict[str, Fault]:
    """Return the faults that can be used here: the named ones, or all (without the long ones, unless ``long``)."""
    chosen = {n: FAULTS[n] for n in names} if names else {n: f for n, f in FAULTS.items() if long or not f.long}
    return {n: f for n, f in chosen.items() if f.usable(system, workload)}
