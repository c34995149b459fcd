"""What to change in a running topology: rules that turn measures into recommendations, for ``dskype advise``.

The code is pure, without a clock, Kafka or Spark: :mod:`dskype.deploy.capacity.watching` takes the measures. docs/guides/advise.md explains the rules to users.

A *share* is the part of the time in which a task or an executor was at work. An executor runs its tasks in turn, so its share is the sum of theirs. All rules look
at the share that the whole input would need: where more comes than is taken, that is more than what was seen (:attr:`Measures.demand`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dskype.deploy.capacity.costs import cost
from dskype.topology.planning.plan import partition_fixed

if TYPE_CHECKING:  # it needs numpy and kernels
    from dskype.deploy.capacity.replanning import Plans

__all__ = ["FULL", "ComponentLoad", "Measures", "Processors", "Recommendation", "recommend", "why_no_plan", "why_nothing"]

FULL = 0.8
"""An executor with a greater share is full."""
WANTED = 0.6
"""Executors and tasks are added until no share is greater; as ``dskype plan`` does."""
IDLE, JOINED = 0.1, 0.3
"""Executors with smaller shares than IDLE are joined as long as none gets a greater one than JOINED."""
PROCESSORS_FULL = 0.9
UNEVEN, LEAST_SHARE = 1.5, 0.3
"""Tasks are uneven if the greatest share is UNEVEN times the mean, and at least LEAST_SHARE."""
_GAIN = 0.95
"""Executors are added only if the greatest share falls below this part of what it is."""
_PLAN_GAIN = 0.9
"""Another plan or distributor is advised only if the busiest task has at most this part of the work with it; the load model is not more exact."""
_LEAST_WAITING, _FASTER = 100, 0.1
_MOST_DEMAND = 10.0


@dataclass(frozen=True)
class ComponentLoad:
    """What a component did while it was watched.

    :ivar executors: executor -> the share of each of its tasks, in the order of their numbers.
    :ivar waiting: records or tuples that it had not taken, at the beginning, in the middle and at the end.
    :ivar taken_per_s: records or tuples that it took per second.
    :ivar execute_ms: the mean time of a tuple in its code; None: not known.
    :ivar groupings: those by which it receives tuples.
    :ivar partitions: of the topics that a spout reads; 0: it reads none.
    :ivar hosts: executor -> the name of its host; None: it does not say.
    """

    component: str
    kind: str
    executors: tuple[tuple[float, ...], ...]
    waiting: tuple[int, int, int] = (0, 0, 0)
    taken_per_s: float = 0.0
    execute_ms: float | None = None
    groupings: tuple[str, ...] = ()
    partitions: int = 0
    hosts: tuple[str | None, ...] = ()

    @property
    def tasks(self) -> list[float]:
        """The share of each task."""
        return [share for executor in self.executors for share in executor]

    @property
    def busiest(self) -> float:
        """The share of the busiest executor."""
        return max(map(sum, self.executors), default=0.0)

    @property
    def host(self) -> str | None:
        """The host of the busiest executor."""
        return max(zip(map(sum, self.executors), self.hosts), key=lambda one: one[0], default=(0.0, None))[1]

    def growth(self, seconds: float) -> float:
        """Return by how many records or tuples per second what waits has grown; 0 if that may be chance.

        :param seconds: how long it was watched.
        """
        first, middle, last = self.waiting
        grown = last - first
        return grown / seconds if first < middle < last and grown > max(_LEAST_WAITING, _FASTER * self.taken_per_s * seconds) else 0.0


class Processors(NamedTuple):
    """The processors of a host.

    :ivar number: how many.
    :ivar busy: the share of the time in which they were at work, whatever for.
    """

    number: int
    busy: float


@dataclass(frozen=True)
class Measures:
    """What was seen of a topology.

    :ivar seconds: how long it was watched.
    :ivar silent: component -> why nothing is known of it.
    :ivar hosts: host -> its processors, as executors on it say.
    :ivar subscription_bolt: the component whose tasks a distribution plan loads; None: there is none.
    :ivar distributor: its distributor.
    :ivar balances_itself: whether the topology moves partitions by itself.
    """

    topology: str
    seconds: float
    components: tuple[ComponentLoad, ...]
    silent: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, Processors] = field(default_factory=dict)
    subscription_bolt: str | None = None
    distributor: str = ""
    balances_itself: bool = False

    @property
    def demand(self) -> float:
        """How many times as much as was taken there would be to take, if nothing grew; 1: everything is taken. At most 10."""
        factors = [1 + c.growth(self.seconds) / c.taken_per_s if c.taken_per_s else _MOST_DEMAND for c in self.components if c.growth(self.seconds)]
        return min(_MOST_DEMAND, max(factors, default=1.0))

    @property
    def active(self) -> bool:
        """Whether anything was taken."""
        return any(c.taken_per_s for c in self.components)

    @property
    def matching(self) -> ComponentLoad | None:
        """The component with subscriptions, if it is known."""
        return next((c for c in self.components if c.component == self.subscription_bolt), None)

    def uneven(self) -> ComponentLoad | None:
        """Return the component with subscriptions if one of its tasks carries much more than the mean."""
        found = self.matching
        return found if found is not None and _uneven(found, self.demand) else None

    @property
    def asks_for_plans(self) -> bool:
        """Whether other plans and distributors may help: tasks with subscriptions are uneven, or one of them is full."""
        return self.uneven() is not None or (self.matching is not None and max(self.matching.tasks, default=0.0) * self.demand >= FULL)


@dataclass(frozen=True)
class Recommendation:
    """One change.

    :ivar kind: ``executors``, ``tasks``, ``hosts``, ``plan``, ``distributor``, ``grouping``, ``partitions``, or ``look``: something else holds it up.
    :ivar what: what to do, as a sentence; ``why``: with the numbers that it rests on; ``effect``: what to expect.
    :ivar when: ``now``: while the topology runs; ``start``: with its next start.
    :ivar command: what does it; None: no single command.
    :ivar settings: name -> value, for the next start.
    :ivar numbers: those of ``why`` and ``effect``.
    :ivar executors: component -> executors, for a rebalance.
    """

    kind: str
    component: str | None
    what: str
    why: str
    effect: str
    when: str = "now"
    command: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    executors: dict[str, int] = field(default_factory=dict)


def recommend(measures: Measures, plans: Plans | None = None) -> list[Recommendation]:
    """Return what to change, the most urgent first; [] if nothing should be.

    :param plans: what the load model says of other plans; None: that is not known.
    """
    found: list[Recommendation] = []
    demand = measures.demand
    full = sorted((c for c in measures.components if c.busiest * demand >= FULL), key=lambda c: -c.busiest)
    crowded: dict[str, ComponentLoad] = {}  # host whose processors are full -> the busiest component there
    for c in full:
        if c.host in measures.hosts and measures.hosts[c.host].busy >= PROCESSORS_FULL:
            crowded.setdefault(c.host, c)
        else:
            found += _relieved(measures, c, demand, plans)
    found = [*(_hosts(measures, c, host) for host, c in crowded.items()), *found]
    uneven = measures.uneven()
    if plans is not None and measures.matching is not None:
        found += _replanned(measures, measures.matching, plans)
    elif uneven is not None and not measures.balances_itself:
        found.append(_compare(measures, uneven))
    if not full:
        found += [_look(measures, c) for c in measures.components if c.growth(measures.seconds) or (c.waiting[2] > _LEAST_WAITING and not c.taken_per_s)]
    if not found or demand == 1.0:
        found += [one for c in measures.components if (one := _joined(measures, c, demand)) is not None]
    return found


def why_nothing(measures: Measures) -> str:
    """Return why there is nothing to recommend."""
    if not measures.active:
        return f"In {measures.seconds:.0f} s it took nothing, so nothing can be said of its load."
    busiest = max(measures.components, key=lambda c: c.busiest)
    waiting = sum(c.waiting[2] for c in measures.components)
    reason = f"The busiest executor is one of {busiest.component}: it worked {_percent(busiest.busiest)} of the time, and full is {_percent(FULL)}. "
    reason += "Nothing waits." if not waiting else f"{waiting:,} records and tuples wait, and they do not become more."
    if measures.balances_itself and measures.uneven() is not None:
        reason += f" The tasks of {measures.subscription_bolt} are uneven; dskype.balance: auto moves their partitions by itself."
    return reason


# -- more ------------------------------------------------------------------------------------------------------------------


def _relieved(measures: Measures, load: ComponentLoad, demand: float, plans: Plans | None) -> list[Recommendation]:
    """Return what relieves a full component: more executors, else more tasks."""
    wanted = [share * demand for share in load.tasks]
    before, tasks = load.busiest * demand, len(wanted)
    reach = [(n, _greatest(wanted, n)) for n in range(len(load.executors) + 1, tasks + 1)]
    enough = next((n for n, greatest in reach if greatest <= WANTED), None)
    best = min((greatest for _, greatest in reach), default=before)
    executors = enough or next((n for n, greatest in reach if greatest <= best * 1.01), len(load.executors))
    found = []
    after = _greatest(wanted, executors)
    if reach and after <= _GAIN * before:
        found.append(_more_executors(measures, load, demand, executors, after))
        before = after
    if before >= FULL:
        found.append(_more_tasks(measures, load, demand, plans))
    return found


def _more_executors(measures: Measures, load: ComponentLoad, demand: float, executors: int, after: float) -> Recommendation:
    before = load.busiest * demand
    return Recommendation(
        "executors",
        load.component,
        f"Give {load.component} {executors} executors instead of {len(load.executors)}.",
        _why(measures, load),
        f"The busiest executor then works {_percent(after)} of the time instead of {_percent(before)}, if the processors allow it.",
        command=f"dskype rebalance {measures.topology} -e {load.component}={executors}",
        numbers={**_numbers(measures, load), "executors_then": executors, "busiest_then": round(after, 3)},
        executors={load.component: executors},
    )


def _more_tasks(measures: Measures, load: ComponentLoad, demand: float, plans: Plans | None) -> Recommendation:
    """Return what relieves a component whose busiest task is full by itself, or that has an executor for each task."""
    shares = [share * demand for share in load.tasks]
    numbers, why = _numbers(measures, load), _why(measures, load)
    if load.groupings and set(load.groupings) == {"global"}:
        effect = "More tasks and executors change nothing: a global grouping sends every tuple to the first task."
        return Recommendation("grouping", load.component, f"Let another grouping than global feed {load.component}.", why, effect, "start", numbers=numbers)
    if load.component != measures.subscription_bolt and load.groupings and _uneven(load, demand):
        ratio = max(shares) * len(shares) / sum(shares)
        what = f"Group the tuples of {load.component} by fields whose values are more even, or by a partial key or shuffle grouping."
        why += f" Its busiest task carries {ratio:.1f} times the mean."
        effect = f"With even tasks, the busiest one works {_percent(sum(shares) / len(shares))} of the time instead of {_percent(max(shares))}."
        return Recommendation("grouping", load.component, what, why, effect, "start", numbers={**numbers, "balance": round(ratio, 2)})
    tasks = max(len(shares) + 1, math.ceil(sum(shares) / WANTED))
    if 0 < load.partitions <= len(shares):
        what = f"Give the topic that {load.component} reads {tasks} partitions or more, and the spout {tasks} tasks."
        effect = (
            f"A task reads whole partitions, and there are {load.partitions}. The busiest task then works about {_percent(sum(shares) / tasks)} of the time."
        )
        settings = {f"spouts[id={load.component}].parallelism": tasks}
        return Recommendation("partitions", load.component, what, why, effect, "start", settings=settings, numbers={**numbers, "tasks_then": tasks})
    what = f"Start the topology with {tasks} tasks of {load.component} instead of {len(shares)}."
    more, then = tasks - len(shares), sum(shares) / tasks
    if plans is not None and load.component == measures.subscription_bolt and (work := plans.with_tasks(tasks)) is not None:
        then = max(shares) * work / plans.present.slowest_us  # not all work is divided: with some distributors every task reads every message
        numbers["busiest_task_then"] = round(then, 3)
    effect = f"The busiest task then works about {_percent(then)} of the time instead of {_percent(max(shares))}."
    effect += f" Spark needs {more} more task {'slot' if more == 1 else 'slots'} for it."
    settings = {f"{load.kind}s[id={load.component}].parallelism": tasks}
    return Recommendation("tasks", load.component, what, why, effect, "start", settings=settings, numbers={**numbers, "tasks_then": tasks})


def _hosts(measures: Measures, load: ComponentLoad, host: str) -> Recommendation:
    """Return what relieves a host whose processors are full: another one of the topology's that has room, or one more."""
    own = measures.hosts[host]
    numbers = {**_numbers(measures, load), "host": host, "processors": own.number, "processors_busy": round(own.busy, 3)}
    why = f"The {own.number} processors of {host} were at work {_percent(own.busy)} of the time. {_why(measures, load)}"
    roomy = {name: found for name, found in measures.hosts.items() if found.busy <= WANTED}
    if roomy:
        others = ", ".join(f"{name} {_percent(found.busy)}" for name, found in roomy.items())
        total, busy = sum(found.number for found in measures.hosts.values()), sum(found.number * found.busy for found in measures.hosts.values())
        return Recommendation(
            "hosts",
            load.component,
            f"Spread the tasks of {measures.topology} over its hosts again.",
            f"{why} Others have room: {others}.",
            f"A rebalance lets Spark place all tasks anew. Spread evenly, processors are at work about {_percent(busy * measures.demand / total)} of the time.",
            command=f"dskype rebalance {measures.topology}",
            numbers={**numbers, "roomy": {name: round(found.busy, 3) for name, found in roomy.items()}},
        )
    needed = math.ceil(own.number * own.busy * measures.demand / WANTED)
    effect = (
        f"More executors would only share the same processors. With {needed} in place of {own.number} they are at work about {_percent(WANTED)} of the time."
    )
    return Recommendation(
        "hosts",
        load.component,
        f"Add a host, or take one with {needed} processors or more in place of {host}.",
        why,
        effect,
        "start",
        numbers={**numbers, "processors_then": needed},
    )


def _compare(measures: Measures, load: ComponentLoad) -> Recommendation:
    what = f"Compare distributors by a sample of your messages and subscriptions: the plan of {measures.distributor} leaves its tasks uneven."
    effect = "It says how evenly each distributor would load the tasks, and writes a plan."
    return Recommendation(
        "distributor", load.component, what, _carries(load), effect, "start", "dskype partition advise", numbers=_numbers(measures, load) | _unevenness(load)
    )


def _replanned(measures: Measures, load: ComponentLoad, plans: Plans) -> list[Recommendation]:
    """Return whether to change the plan now, and the distributor at the next start, with what the load model expects."""
    present, new, best = plans.present, plans.new, plans.best
    numbers = {**_numbers(measures, load), **_unevenness(load), "slowest_us": round(present.slowest_us, 3), "plan_balance": round(present.balance, 2)}
    why = f"{_carries(load)} By the newest {plans.messages:,} messages and {plans.subscriptions:,} of its subscriptions the plan in force (version {plans.version}) gives it {present.balance:.1f} times the mean."
    found = []
    if new is not None and new.slowest_us <= _PLAN_GAIN * present.slowest_us:
        effect = f"{_expected(measures, load, present, new)} {plans.moved * 100:.0f} % of the subscriptions move; results stay exact."
        what = f"Give {load.component} a new plan of {measures.distributor}."
        then = {**numbers, "slowest_us_then": round(new.slowest_us, 3), "plan_balance_then": round(new.balance, 2), "moved": round(plans.moved, 3)}
        found.append(Recommendation("plan", load.component, what, why, effect, command=f"dskype advise {measures.topology} --apply", numbers=then))
    reached = min(present.slowest_us, math.inf if new is None else new.slowest_us)
    if best.distributor != measures.distributor and best.slowest_us <= _PLAN_GAIN * reached:
        effect = _expected(measures, load, present, best)
        then = {
            **numbers,
            "slowest_us_then": round(best.slowest_us, 3),
            "plan_balance_then": round(best.balance, 2),
            "copies_then": round(best.communication, 2),
        }
        what = f"Start the topology with the distributor {best.distributor} instead of {measures.distributor}."
        settings = {"dskype.distributor": best.distributor}
        found.append(
            Recommendation("distributor", load.component, what, why, effect, "start", f"dskype advise {measures.topology} --plan FILE", settings, then)
        )
    return found


def _expected(measures: Measures, load: ComponentLoad, before: Any, after: Any) -> str:
    busiest = max(load.tasks) * measures.demand
    return (
        f"By the load model the busiest task has {after.slowest_us:,.2g} us of work for a message instead of {before.slowest_us:,.2g} ({after.balance:.1f} times the mean), "
        f"so it works about {_percent(busiest * after.slowest_us / before.slowest_us)} of the time instead of {_percent(busiest)}."
    )


def why_no_plan(measures: Measures, plans: Plans) -> str | None:
    """Return why no new plan is recommended although tasks are uneven; None: one is, or they are not."""
    uneven, present, new = measures.uneven(), plans.present, plans.new
    if uneven is None or (new is not None and new.slowest_us <= _PLAN_GAIN * present.slowest_us):
        return None
    if new is None:
        return f"{_carries(uneven)} The distributor {measures.distributor} has no plans."
    return (
        f"{_carries(uneven)} A new plan of {measures.distributor} would not change that: by the load model its busiest task has {new.slowest_us:,.2g} us of work for a message, "
        f"with the plan in force {present.slowest_us:,.2g}."
    )


def _look(measures: Measures, load: ComponentLoad) -> Recommendation:
    shown = f"the busiest executor of {load.component} worked only {_percent(load.busiest)} of the time"
    what = f"Find out what holds {load.component} up: errors, a store or a service that is slow, or brokers that are."
    why = f"{_waits(measures, load)}, and {shown}."
    effect = "More executors or tasks would wait for the same."
    return Recommendation("look", load.component, what, why, effect, command=f"dskype get-errors {measures.topology}", numbers=_numbers(measures, load))


# -- fewer -----------------------------------------------------------------------------------------------------------------


def _joined(measures: Measures, load: ComponentLoad, demand: float) -> Recommendation | None:
    """Return the recommendation to join executors that are almost idle; None if there are none, or nothing came from which to tell."""
    now = len(load.executors)
    if now < 2 or not load.taken_per_s or load.busiest * demand > IDLE or load.growth(measures.seconds):
        return None
    fewer = next((n for n in range(1, now) if _greatest(load.tasks, n) <= JOINED), None)
    if fewer is None:
        return None
    after, saved = _greatest(load.tasks, fewer), now - fewer
    return Recommendation(
        "executors",
        load.component,
        f"Join the {now} executors of {load.component} to {fewer}.",
        f"Its busiest executor worked {_percent(load.busiest)} of the time, at {load.taken_per_s:,.0f} tuples/s.",
        f"The busiest executor then works {_percent(after)} of the time, and about {saved * cost('task_memory') / 1e6:,.0f} MB of memory are free.",
        command=f"dskype rebalance {measures.topology} -e {load.component}={fewer}",
        numbers={**_numbers(measures, load), "executors_then": fewer, "busiest_then": round(after, 3)},
        executors={load.component: fewer},
    )


# -- numbers ---------------------------------------------------------------------------------------------------------------


def _greatest(shares: Sequence[float], executors: int) -> float:
    """Return the greatest share of an executor, if so many divide the tasks as a rebalance does."""
    return max(sum(shares[i] for i in part) for part in partition_fixed(executors, range(len(shares))))


def _uneven(load: ComponentLoad, demand: float) -> bool:
    shares = load.tasks
    return len(shares) > 1 and max(shares) * demand >= LEAST_SHARE and max(shares) * len(shares) >= UNEVEN * sum(shares)


def _carries(load: ComponentLoad) -> str:
    shares = load.tasks
    busiest, ratio = shares.index(max(shares)), _unevenness(load)["balance"]
    return f"Task {busiest} of {load.component} carries {ratio:.1f} times the mean of its {len(shares)} tasks: it worked {_percent(max(shares))} of the time."


def _unevenness(load: ComponentLoad) -> dict[str, Any]:
    shares = load.tasks
    return {"balance": round(max(shares) * len(shares) / sum(shares), 2) if sum(shares) else 1.0, "task_index": shares.index(max(shares))}


def _why(measures: Measures, load: ComponentLoad) -> str:
    texts = [f"The busiest executor of {load.component} worked {_percent(load.busiest)} of the time"]
    if load.execute_ms is not None and load.taken_per_s:
        texts.append(f", with {load.taken_per_s:,.0f} tuples/s of {load.execute_ms:,.2g} ms each")
    text = "".join(texts) + "."
    growing = [c for c in measures.components if c.growth(measures.seconds)]
    return " ".join([text, *(f"{_waits(measures, c)}." for c in growing)])


def _waits(measures: Measures, load: ComponentLoad) -> str:
    what = "tuples" if load.kind == "bolt" else "records"
    grown = load.growth(measures.seconds)
    more = f"{grown:,.0f}/s more come than are taken" if grown else "none was taken"
    return f"{load.waiting[2]:,} {what} wait for {load.component}: in {measures.seconds:.0f} s {more}"


def _numbers(measures: Measures, load: ComponentLoad) -> dict[str, Any]:
    return {
        "busiest": round(load.busiest, 3),
        "busiest_task": round(max(load.tasks, default=0.0), 3),
        "executors": len(load.executors),
        "tasks": len(load.tasks),
        "waiting": load.waiting[2],
        "growth_per_s": round(load.growth(measures.seconds), 1),
        "taken_per_s": round(load.taken_per_s, 1),
        "execute_ms": None if load.execute_ms is None else round(load.execute_ms, 4),
        "demand": round(measures.demand, 2),
    }


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
