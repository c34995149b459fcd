"""A run: a workload on a system, one strike after the other, with a check after each and at the end."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dskype.deploy.lab.chaos.clients import Clients, Recovered
from dskype.deploy.lab.chaos.faults import PARTNERS, Fault, usable
from dskype.deploy.lab.chaos.report import Outcome, Result
from dskype.deploy.lab.chaos.schedule import Strike, draw
from dskype.deploy.lab.chaos.system import System
from dskype.deploy.lab.chaos.workloads import WORKLOADS, FaultWorkload

__all__ = ["run"]

log = logging.getLogger(__name__)

_STEP_S = 0.05
_PARTNER_AFTER_S = 0.5
_NEWS_S = 15
_SETTLE_S = 1.0
_LOOK_EVERY_S = 1.0
_STRIKE_S = 60
"""How long a strike is planned to take, with the pause before it and the recovery."""
_SLOW = 4
"""A slow machine may take this many times the patience, as long as there is some output."""
_MORE_MIB = 1_536
"""How much memory may grow after a strike: the JVM's heap fills up to its limit, and Kafka spouts hold 64 MiB each."""


def run(
    workload: str,
    seed: int,
    minutes: float,
    *,
    rate: float = 200,
    faults: list[str] | None = None,
    strikes: int | None = None,
    patience_s: float = 150,
    long: bool = False,
    pause_s: float | None = None,
    disk_mib: int = 64,
    command: str = "",
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Run a workload through strikes; return the result.

    :param workload: a name in :data:`~dskype.deploy.lab.chaos.workloads.WORKLOADS`.
    :param seed: of everything random.
    :param minutes: how long new strikes begin.
    :param rate: input records per second.
    :param faults: their names; default: all that are possible here.
    :param strikes: at most this many.
    :param patience_s: longest time without any output while it is behind, in seconds.
    :param long: also use faults that last longer than a minute.
    :param pause_s: how long faults of standing still last; default: some seconds, drawn at random.
    :param disk_mib: size of the file system of the topology's folder.
    :param command: the command that repeats the run, for the report.
    :param folder: where everything is kept; default: a temporary folder that is removed.
    """
    planned_s = minutes * 60 if strikes is None else min(minutes * 60, strikes * _STRIKE_S)
    load = WORKLOADS[workload](rate, planned_s, seed)
    steps_clock = faults is None or any(name.startswith("clock") for name in faults)
    disk_mib = disk_mib if faults is None or "disk-full" in faults else 0
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dskype-chaos-")))
        stack.enter_context(load.opened(folder))
        door = faults is None or "cut-network" in faults
        system = stack.enter_context(System(folder, workload, load.flux(folder), load.modules, disk_mib=disk_mib, steps_clock=steps_clock, door=door))
        chosen = usable(system, load, faults, long=long)
        lasts_s = {n: (pause_s, pause_s) if f.still and pause_s is not None else f.lasts_s for n, f in chosen.items()}
        clients = Clients(system, folder / "clients") if load.followed and any(fault.still for fault in chosen.values()) else None
        return _Run(load, system, clients, Result(workload, seed, command), patience_s, progress).run(chosen, lasts_s, minutes * 60, strikes)


class _Run:
    def __init__(
        self, load: FaultWorkload, system: System, clients: Clients | None, result: Result, patience_s: float, progress: Callable[[str], None]
    ) -> None:
        self._load, self._system, self._clients, self._result, self._patience_s, self._progress = load, system, clients, result, patience_s, progress
        self._faults: dict[str, Fault] = {}
        self._repeated, self._hopeless, self._memory_mib = 0, False, 0.0

    def run(self, faults: dict[str, Fault], lasts_s: dict[str, tuple[float, float]], seconds: float, most: int | None) -> Result:
        load, system, result = self._load, self._system, self._result
        self._faults = faults
        load.begin(system)
        living = ExitStack()
        try:
            system.start()
            if self._wait(lambda: load.done > 0 and load.caught_up(), self._patience_s) is None:
                result.problems.append(f"nothing came out within {self._patience_s:g} s of the start; the end of its log:\n{self._tail()}")
                return result
            if self._clients is not None:
                living.enter_context(self._clients)
                system.clients, load.others = self._clients.pids(), self._clients.published
            self._progress(f"{load.name} runs")
            until = time.monotonic() + seconds
            for strike in draw(result.seed, lasts_s, [p for p in PARTNERS if p in faults]):
                if time.monotonic() > until or (most is not None and strike.number > most):
                    break
                outcome = self._strike(strike)
                result.outcomes.append(outcome)
                if outcome.problems:
                    self._progress(f"   WRONG: {outcome.problems[0]}")
                if self._hopeless:
                    break
            living.close()
            self._end()
        finally:
            living.close()
            load.close()
        return result

    def _strike(self, strike: Strike) -> Outcome:
        load, system = self._load, self._system
        time.sleep(strike.pause_s)
        drivers, queries, ended = len(system.starts), system.query_restarts(), system.ended_by_suite
        fault = self._faults[strike.faults[0]]
        self._progress(strike.as_text())
        threads = [threading.Thread(target=self._partner, args=(name, strike.choice), daemon=True) for name in strike.faults[1:]]
        self._memory_mib = before_mib = system.memory_mib()
        began = time.monotonic()
        fault.strike(system, load, strike.choice)
        if self._clients is not None:
            self._clients.use()
        for thread in threads:
            thread.start()
        time.sleep(strike.lasts_s)
        for thread in threads:
            thread.join()
        fault.heal(system, load)
        healed, ready = time.monotonic(), threading.Event()
        clients = self._clients.watch(healed, ready) if self._clients is not None else Recovered
        self._memory_mib = max(self._memory_mib, system.memory_mib())
        time.sleep(_SETTLE_S)  # for the output of tuples that were on their way at the strike
        caught_up = self._wait(lambda: load.newest > healed + _SETTLE_S / 2 and load.caught_up(), self._patience_s)
        outcome = Outcome(" + ".join(strike.faults), load.longest_silence(began), None if caught_up is None else caught_up + _SETTLE_S)
        if caught_up is None:
            self._progress("   did not catch up; the driver is ended and started again")
            system.end_driver()
            if self._wait(lambda: load.newest > healed and load.caught_up(), self._patience_s) is None:
                outcome.problems.append("the output did not catch up even after the driver was started again")
                self._hopeless = True
        ready.set()
        back = clients()
        outcome.clients_s, outcome.client = back.slowest
        outcome.problems += back.problems
        outcome.memory_mib = self._memory_mib
        if self._memory_mib > before_mib + _MORE_MIB:
            outcome.problems.append(f"memory is not bounded: {before_mib:,.0f} MiB before, {self._memory_mib:,.0f} MiB at most; allowed {_MORE_MIB} MiB more")
        check = load.check(final=False)
        outcome.problems += check.problems
        self._hopeless = self._hopeless or bool(check.problems)  # later checks would only find the same problems
        if system.ended_by_suite > ended:
            outcome.problems += [] if caught_up is None else ["the driver did not notice by itself that it could not work"]
        outcome.drivers, outcome.queries = len(system.starts) - drivers, system.query_restarts() - queries
        outcome.repeated, self._repeated = check.repeated - self._repeated, check.repeated
        seconds = (
            f"silent for {outcome.silent_s:.1f} s, caught up {outcome.caught_up_s:.1f} s after healing" if outcome.caught_up_s is not None else "not caught up"
        )
        self._progress(f"   {seconds}; {check.records:,} records are right" if not check.problems else f"   {seconds}")
        if back.seconds:
            self._progress(f"   clients: {back.as_text()}")
        return outcome

    def _partner(self, name: str, choice: float) -> None:
        time.sleep(_PARTNER_AFTER_S)
        fault = self._faults[name]
        fault.strike(self._system, self._load, choice)
        time.sleep(fault.lasts_s[0])
        fault.heal(self._system, self._load)

    def _end(self) -> None:
        load, result = self._load, self._result
        load.stop_feeding()
        if self._wait(load.complete, self._patience_s, step_s=1) is None:
            result.problems.append(f"not everything came through within {self._patience_s:g} s of the last input: {load.done:,} of {load.fed:,}")
        check = load.check(final=True)
        result.problems += check.problems
        result.records, result.repeated = check.records, check.repeated
        if not self._system.finish():
            result.problems.append(f"the topology did not end well when it was killed; the end of its log:\n{self._tail()}")

    def _wait(self, condition: Callable[[], bool], timeout_s: float, step_s: float = _STEP_S) -> float | None:
        """Wait for ``condition`` and return how many seconds it took; None after ``timeout_s`` without output, or four times that in all."""
        began = news = looked = moved = time.monotonic()
        done = self._load.done
        while not condition():
            now = time.monotonic()
            if self._load.done > done:
                done, moved = self._load.done, now
            if now - moved > timeout_s or now - began > _SLOW * timeout_s:
                return None
            if now - news > _NEWS_S:
                news = now
                self._progress(f"   waiting: {self._load.done:,} of {self._load.fed:,} are through")
            if now - looked > _LOOK_EVERY_S:
                looked = now
                self._memory_mib = max(self._memory_mib, self._system.memory_mib())
            time.sleep(step_s)
        return time.monotonic() - began

    def _tail(self) -> str:
        try:
            return "\n".join(self._system.log.read_text(errors="replace").splitlines()[-15:])
        except OSError:
            return ""
