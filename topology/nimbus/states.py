"""The states of topologies, with events and waits, as in Storm's nimbus.

The code is pure, without a clock, Kafka or Spark: time is an argument, and the result is a list of :class:`Action` to
carry out. A state is one JSON document. After a restart, :meth:`TopologyState.from_json` rebuilds the state from it, and
the event ``STARTUP`` restarts the waits.

============  ===========  ==========  =============  ===========  =============  ===========  ==========
status        ACTIVATE     INACTIVATE  REBALANCE      KILL         DO_REBALANCE   REMOVE       STARTUP
============  ===========  ==========  =============  ===========  =============  ===========  ==========
ACTIVE        -            INACTIVE    REBALANCING    KILLED       error          error        ACTIVE
INACTIVE      ACTIVE       -           REBALANCING    KILLED       error          error        INACTIVE
REBALANCING   error        error       error          KILLED       the one before error        wait again
KILLED        error        error       error          wait again   error          gone         wait again
============  ===========  ==========  =============  ===========  =============  ===========  ==========

``-`` changes nothing; ``error`` is a :class:`TransitionException`. The first four events are commands, the other three
are internal to nimbus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from dskype.topology.config import DEFAULTS, Config
from dskype.topology.core.redaction import redact
from dskype.topology.errors import AlreadyAliveException, IllegalArgumentException, InvalidTopologyException, NotAliveException, TransitionException
from dskype.topology.planning.system import EVENT_LOGGER_COMPONENT_ID, system_bolts

__all__ = ["Action", "Nimbus", "Rebalance", "TopologyState", "topology_id"]

Status = Literal["ACTIVE", "INACTIVE", "REBALANCING", "KILLED"]
Event = Literal["ACTIVATE", "INACTIVATE", "REBALANCE", "KILL", "DO_REBALANCE", "REMOVE", "STARTUP"]
ActionKind = Literal["activate spouts", "deactivate spouts", "wait", "apply rebalance", "remove"]

_FORMAT = 1


def topology_id(name: str, counter: int, now_ms: int) -> str:
    """Return Storm's topology id: name, number of the submission, epoch seconds.

    >>> topology_id("words", 3, 1700000000123)
    'words-3-1700000000'
    """
    return f"{name}-{counter}-{now_ms // 1000}"


@dataclass(frozen=True)
class Action:
    """One step to carry out after a transition.

    :param kind: ``activate spouts``, ``deactivate spouts``, ``wait`` (until ``until_ms``, then apply the event that is
        due), ``apply rebalance`` (``workers``, ``executors``), ``remove`` (stop everything and forget the topology).
    :param until_ms: end of a wait, epoch milliseconds.
    :param workers: new number of workers; None does not change it.
    :param executors: component id -> new number of executors; other components keep theirs.
    """

    kind: ActionKind
    until_ms: int | None = None
    workers: int | None = None
    executors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebalance:
    """The changes of a rebalance; tasks never change.

    :param workers: new number of workers, at least 1; None does not change it.
    :param executors: component id -> number of executors, at least 1.
    """

    workers: int | None = None
    executors: dict[str, int] = field(default_factory=dict)

    def check(self, name: str, components: Iterable[str]) -> None:
        """Refuse a rebalance that cannot be applied to topology ``name``.

        :raises InvalidTopologyException: an unknown component, or a number below 1.
        """
        known = sorted(components)
        if self.workers is not None and not _count(self.workers):
            raise InvalidTopologyException("Number of workers must be greater than 0", given=self.workers, legal="an integer >= 1")
        for component, executors in self.executors.items():
            if component not in known:
                raise InvalidTopologyException(f"Invalid component {component} for topology {name}, valid values are {','.join(known)}", given=component)
            if not _count(executors):
                raise InvalidTopologyException("Number of executors must be greater than 0", given=executors, component=component, legal="an integer >= 1")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass
class TopologyState:
    """The state of one topology.

    :param id: topology id, ``name-counter-epochSecs``.
    :param name: its name.
    :param conf: its configuration; a rebalance changes ``topology.workers``.
    :param components: ids of its components, which a rebalance may name.
    :param submitted_ms: epoch milliseconds.
    :param status: ACTIVE, INACTIVE, REBALANCING or KILLED.
    :param previous: while REBALANCING: the status to return to.
    :param wait_secs: while REBALANCING or KILLED: the length of the wait, for restarting it.
    :param due_ms: while REBALANCING or KILLED: when the wait ends, epoch milliseconds.
    :param rebalance: while REBALANCING: the changes to apply.
    :param executors: numbers of executors set by rebalances so far.
    :param owner: the user who submitted it; for information only.
    :param debug: component id -> percentage of its tuples that goes to the event loggers; ``""`` stands for all other components.
    """

    id: str
    name: str
    conf: dict[str, Any] = field(repr=False)
    components: list[str]
    submitted_ms: int
    status: Status = "ACTIVE"
    previous: Status | None = None
    wait_secs: float | None = None
    due_ms: int | None = None
    rebalance: Rebalance | None = None
    executors: dict[str, int] = field(default_factory=dict)
    owner: str = ""
    debug: dict[str, float] = field(default_factory=dict)

    def debug_percent(self, component: str) -> float:
        """Return the percentage of a component's tuples that goes to the event loggers."""
        return self.debug.get(component, self.debug.get("", 0.0))

    def set_debug(self, component: str | None, percent: float) -> None:
        """Set the percentage of a component, or of all that have none of their own.

        :param component: None: all.
        :param percent: 0..100; 0 switches debugging off.
        :raises InvalidTopologyException: no such component.
        :raises IllegalArgumentException: not a percentage, or the topology has no event loggers.
        """
        if component is not None and component not in self.components:
            raise InvalidTopologyException(f"{component} is not a component of {self.name}.", given=component, legal=", ".join(self.components))
        if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 <= percent <= 100:
            raise IllegalArgumentException("The percentage of tuples must be between 0 and 100.", given=percent)
        if EVENT_LOGGER_COMPONENT_ID not in system_bolts(self.conf):
            raise IllegalArgumentException(
                "The topology has no event loggers.", given=self.name, hint=f"submit it with {Config.TOPOLOGY_EVENTLOGGER_EXECUTORS}: 1"
            )
        self.debug[component or ""] = float(percent)

    def transition(self, event: Event, now_ms: int, *, wait_secs: float | None = None, rebalance: Rebalance | None = None) -> list[Action]:
        """Apply one event.

        :param event: see the table at the top of the module.
        :param now_ms: the time, epoch milliseconds.
        :param wait_secs: for KILL and REBALANCE: seconds from deactivating the spouts to the removal or rebalance;
            default ``topology.message.timeout.secs``.
        :param rebalance: for REBALANCE: the changes; by default none, which only restarts the executors.
        :returns: the actions to carry out, in order; empty if nothing changes.
        :raises TransitionException: ``No transition for event: E, status: S storm-id: I``.
        :raises InvalidTopologyException: the rebalance names an unknown component or a number below 1.
        :raises IllegalArgumentException: an unknown event, or a negative wait.
        """
        if event not in get_args(Event):
            raise IllegalArgumentException("Not an event.", given=event, legal=", ".join(get_args(Event)))
        step = _STEPS.get((self.status, event))
        if step is None:
            raise TransitionException(event, self.status, self.id)
        if event == "REBALANCE":
            rebalance = rebalance or Rebalance()
            rebalance.check(self.name, self.components)
            return self._begin_rebalance(now_ms, self._wait(wait_secs), rebalance)
        if event == "KILL":
            return self._kill(now_ms, self._wait(wait_secs))
        return step(self, now_ms)

    def due_event(self, now_ms: int) -> Event | None:
        """Return the event whose wait is over: DO_REBALANCE, REMOVE, or None if there is none."""
        if self.due_ms is None or now_ms < self.due_ms:
            return None
        return "REMOVE" if self.status == "KILLED" else "DO_REBALANCE"

    def _wait(self, given: float | None) -> float:
        if given is None:
            timeout = self.conf.get(Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS)
            return DEFAULTS[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS] if timeout is None else timeout
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < float("inf"):
            raise IllegalArgumentException("The wait must be a number of seconds.", given=given, legal="a number >= 0", hint="0 does not wait")
        return given

    def _arm(self, now_ms: int) -> Action:
        self.due_ms = now_ms + round((self.wait_secs or 0) * 1000)
        return Action("wait", until_ms=self.due_ms)

    def _spouts_off(self) -> list[Action]:
        return [Action("deactivate spouts")] if self.status == "ACTIVE" else []

    def _activate(self, now_ms: int) -> list[Action]:
        self.status = "ACTIVE"
        return [Action("activate spouts")]

    def _inactivate(self, now_ms: int) -> list[Action]:
        self.status = "INACTIVE"
        return [Action("deactivate spouts")]

    def _nothing(self, now_ms: int) -> list[Action]:
        return []

    def _begin_rebalance(self, now_ms: int, wait_secs: float, rebalance: Rebalance) -> list[Action]:
        actions = self._spouts_off()
        self.previous, self.status = self.status, "REBALANCING"
        self.wait_secs, self.rebalance = wait_secs, rebalance
        return [*actions, self._arm(now_ms)]

    def _do_rebalance(self, now_ms: int) -> list[Action]:
        rebalance = self.rebalance or Rebalance()
        if rebalance.workers is not None:
            self.conf[Config.TOPOLOGY_WORKERS] = rebalance.workers
        self.executors.update(rebalance.executors)
        self.status = self.previous or "ACTIVE"
        self.previous = self.wait_secs = self.due_ms = self.rebalance = None
        actions = [Action("apply rebalance", workers=rebalance.workers, executors=dict(rebalance.executors))]
        return [*actions, Action("activate spouts")] if self.status == "ACTIVE" else actions

    def _kill(self, now_ms: int, wait_secs: float) -> list[Action]:
        actions = self._spouts_off()
        self.status, self.previous, self.rebalance, self.wait_secs = "KILLED", None, None, wait_secs
        return [*actions, self._arm(now_ms)]

    def _remove(self, now_ms: int) -> list[Action]:
        self.due_ms = None
        return [Action("remove")]

    def _wait_again(self, now_ms: int) -> list[Action]:
        return [self._arm(now_ms)]

    def _start_active(self, now_ms: int) -> list[Action]:
        return [Action("activate spouts")]

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON document (a dict of plain values). Secrets are redacted, because it is stored and published."""
        return {"v": _FORMAT, **asdict(self), "conf": redact(self.conf)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TopologyState:
        """Build a state from what :meth:`to_json` returned; unknown keys are ignored.

        :raises IllegalArgumentException: the document is of a newer format or misses a key.
        """
        if document.get("v") != _FORMAT:
            raise IllegalArgumentException("Not a topology state of this version.", given=document.get("v"), legal=str(_FORMAT))
        values = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        if values.get("rebalance") is not None:
            values["rebalance"] = Rebalance(**values["rebalance"])
        try:
            return cls(**values)
        except TypeError as ex:
            raise IllegalArgumentException("Not a whole topology state.", given=sorted(document), hint=str(ex)) from ex


_S = TopologyState
_STEPS: dict[tuple[str, str], Any] = {
    ("ACTIVE", "ACTIVATE"): _S._nothing,
    ("ACTIVE", "INACTIVATE"): _S._inactivate,
    ("ACTIVE", "REBALANCE"): _S._begin_rebalance,
    ("ACTIVE", "KILL"): _S._kill,
    ("ACTIVE", "STARTUP"): _S._start_active,
    ("INACTIVE", "ACTIVATE"): _S._activate,
    ("INACTIVE", "INACTIVATE"): _S._nothing,
    ("INACTIVE", "REBALANCE"): _S._begin_rebalance,
    ("INACTIVE", "KILL"): _S._kill,
    ("INACTIVE", "STARTUP"): _S._nothing,
    ("REBALANCING", "KILL"): _S._kill,
    ("REBALANCING", "DO_REBALANCE"): _S._do_rebalance,
    ("REBALANCING", "STARTUP"): _S._wait_again,
    ("KILLED", "KILL"): _S._kill,
    ("KILLED", "REMOVE"): _S._remove,
    ("KILLED", "STARTUP"): _S._wait_again,
}


class Nimbus:
    """The topologies of one cluster, and the counter of their ids.

    :param topologies: stored states; call :meth:`startup` after a restart.
    """

    def __init__(self, topologies: Iterable[TopologyState] = ()) -> None:
        self._topologies = {t.name: t for t in topologies}
        self.counter = max((_counter_of(t) for t in self._topologies.values()), default=0)

    def __iter__(self) -> Iterator[TopologyState]:
        return iter(list(self._topologies.values()))

    def __len__(self) -> int:
        return len(self._topologies)

    @property
    def names(self) -> list[str]:
        """Names in use: those of running topologies, and of killed ones until they are removed."""
        return sorted(self._topologies)

    def get(self, name: str) -> TopologyState:
        """Return the topology of that name.

        :raises NotAliveException: ``x is not alive``.
        """
        try:
            return self._topologies[name]
        except KeyError:
            raise NotAliveException.for_topology(name) from None

    def submit(
        self, name: str, conf: Mapping[str, Any], components: Iterable[str], now_ms: int, *, active: bool = True, owner: str = ""
    ) -> tuple[TopologyState, list[Action]]:
        """Add a topology, which must have passed ``validate_submission``.

        :param active: False adds it as INACTIVE: nothing is opened before ACTIVATE.
        :returns: its state, and the actions: ``activate spouts`` or none.
        :raises AlreadyAliveException: ``x is already alive``.
        """
        if name in self._topologies:
            raise AlreadyAliveException.for_topology(name)
        self.counter += 1
        state = TopologyState(
            topology_id(name, self.counter, now_ms), name, dict(conf), sorted(components), now_ms, status="ACTIVE" if active else "INACTIVE", owner=owner
        )
        self._topologies[name] = state
        return state, [Action("activate spouts")] if active else []

    def transition(self, name: str, event: Event, now_ms: int, *, wait_secs: float | None = None, rebalance: Rebalance | None = None) -> list[Action]:
        """Apply an event to the topology of that name; a removed one is forgotten.

        :raises NotAliveException: ``x is not alive``.
        """
        actions = self.get(name).transition(event, now_ms, wait_secs=wait_secs, rebalance=rebalance)
        if any(action.kind == "remove" for action in actions):
            del self._topologies[name]
        return actions

    def forget(self, name: str) -> None:
        """Drop a topology that could not be started; its number is not used again."""
        self._topologies.pop(name, None)

    def adopt(self, state: TopologyState) -> None:
        """Add a topology that an earlier process ran."""
        self._topologies[state.name] = state
        self.counter = max(self.counter, _counter_of(state))

    def due(self, now_ms: int) -> list[tuple[TopologyState, list[Action]]]:
        """Apply the events whose waits are over, and return the actions for each topology."""
        done = []
        for state in self:
            event = state.due_event(now_ms)
            if event is not None:
                done.append((state, self.transition(state.name, event, now_ms)))
        return done

    def startup(self, now_ms: int) -> list[tuple[TopologyState, list[Action]]]:
        """Resume all topologies after a restart: activate the active ones, and restart the waits."""
        return [(state, state.transition("STARTUP", now_ms)) for state in self]


def _counter_of(state: TopologyState) -> int:
    part = state.id.rsplit("-", 2)[-2:-1]
    return int(part[0]) if part and part[0].isdigit() else 0
