"""The experiments of the distribution benchmark as data: what varies, what the paper claims, and our own goals.

A new distributor is a row. Sections and figures are those of the journal paper (8.2). The claims are those of its text, because the numbers in
its figures are not available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dskype.deploy.lab.dskype.maintenance import MONITOR, SAMPLE
from dskype.deploy.lab.dskype.workload import LONG, PLACES
from dskype.deploy.lab.experiments import Claim, Experiment, Row, Rows, listed, ratio, series, slower_than_x, trend

__all__ = ["METHODS", "NAMES", "VARIANTS", "DskypeSetting", "experiments", "goals"]

METHODS = ("hashing", "location", "keyword", "prefix")
VARIANTS = {
    "location, by work": ("location", {"cost": "work"}),
    "keyword, ranges": ("keyword", {"method": "balanced"}),
    "prefix, ranges": ("prefix", {"method": "balanced"}),
}
"""Methods with other plans: cells of equal work instead of the paper's product; one range of keywords per task, as in the paper, instead of words
that occur together."""

_COMPARED = ("hashing", "location", "prefix")
"""The paper leaves keyword out after its first experiment."""


@dataclass(frozen=True)
class DskypeSetting:
    """One run. The defaults are the paper's: 32 tasks, k = 20.

    :ivar method: a name in ``dskype.distribution.DISTRIBUTORS``, with its options.
    :ivar data: name of a data set.
    :ivar subscriptions: as a share of the benchmark's number; so is ``window``.
    :ivar hotspot: the number of a hotspot; 0: none. At a hotspot, the plan is the one learned before it.
    :ivar maintained: the kind of maintenance that adapts this plan to the hotspot; "": none.
    :ivar index: of the subscriptions; None: the default.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 32
    data: str = PLACES
    k: int = 20
    subscriptions: float = 1.0
    window: float = 1.0
    hotspot: int = 0
    maintained: str = ""
    index: str | None = None

    @property
    def key(self) -> str:
        """Identifies the run; equal runs are measured once."""
        return repr(self)


_TASKS = (4, 8, 16, 32, 64, 128)
_KS = (10, 20, 30, 40, 50)
_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
_HOTSPOTS = (0, 1, 2)
_OTHER = {PLACES: "short messages", LONG: "long messages"}

_REFILLED = (
    "each replica holds a whole list, but gets only the messages with a word of its own task. So lists run low: 2,122 look-ups in the window per 1,000 messages, hashing's 71, with "
    "generated tweets; and a word that many have makes one task the busiest, with 1.46 times the mean work, hashing's 1.11"
)
_NO_SHORTER = (
    "hardly any prefix is shorter than its subscription, because k-th scores are low in a small window: of 2,000 subscriptions with 2.83 keywords on generated tweets 0.6 % have a shorter one with 20,000 messages, "
    "10 % with 200,000, and 21 % with the paper's million, where 2.59 keywords are left, or 2.39 without slack"
)
_ON_MANY_TASKS = (
    "if all tasks were equally busy, prefix would make 0.9 times the messages of hashing with 64 tasks and 1.1 times with 128, on generated tweets; but its busiest task has 1.5 and 1.7 times the mean work, hashing's 1.3. "
    "Each of 2.8 replicas holds a whole list and gets only the messages with a word of its own task, so there are 60 times as many look-ups in the window"
)
_MESSAGE_COSTS = (
    "level at the largest number: a task more costs hashing and location about 2 us a message, whatever it finds, so that their work rises sevenfold from 4 to 128 tasks, and that of prefix, which sends a long "
    "message to 25 of 128 tasks, threefold"
)


def _figures(found: Rows, at: Sequence[tuple[str, Any]], measure: str, digits: int = 0) -> tuple[list[float], str]:
    values = [found[place][measure] for place in at]
    return values, ", ".join(f"{name} {value:,.{digits}f}" for (name, _), value in zip(at, values))


def _more(text: str, more: str, less: str, x: Any, measure: str, at_least: float = 1.0, digits: int = 0) -> Claim:
    """Claim that a measure of one method is higher than that of another one, by a factor."""

    def check(found: Rows) -> tuple[bool, str]:
        (a, b), shown = _figures(found, [(more, x), (less, x)], measure, digits)
        return ratio(a, b) > at_least, f"{shown}: {ratio(a, b):.2f} times"

    return Claim(text, check)


def _extreme(text: str, method: str, x: Any, measure: str, sign: int) -> Claim:
    """Claim that a method has the highest (``sign`` 1) or lowest (-1) value of all methods."""

    def check(found: Rows) -> tuple[bool, str]:
        values, shown = _figures(found, [(name, x) for name in METHODS], measure)
        own = found[method, x][measure]
        return all(own * sign >= value * sign for value in values), shown

    return Claim(text, check)


def _within(text: str, value: Callable[[Rows], float], least: float, most: float, digits: int = 2) -> Claim:
    """Claim that a value lies between two bounds."""

    def check(found: Rows) -> tuple[bool, str]:
        one = value(found)
        return least <= one <= most, f"{one:,.{digits}f}"

    return Claim(text, check)


def goals(data: str) -> list[Claim]:
    """Return our own goals, as claims about the rows of the methods."""

    def each(measure: str, most: float, digits: int = 2) -> Callable[[Rows], tuple[bool, str]]:
        def check(found: Rows) -> tuple[bool, str]:
            values, shown = _figures(found, [(name, data) for name in METHODS], measure, digits)
            return max(values) <= most, shown

        return check

    def fastest(found: Rows) -> tuple[bool, str]:
        values, shown = _figures(found, [(name, data) for name in (*METHODS, *VARIANTS)], "throughput")
        return max(values) >= 1.5 * found["hashing", data]["throughput"], f"{shown}: {ratio(max(values), found['hashing', data]['throughput']):.2f} times"

    def saved(found: Rows) -> tuple[bool, str]:
        before, after = (found[name, data]["replication"] - 1 for name in ("prefix, ranges", "prefix"))
        return after <= before * 2 / 3, f"{before:.2f}, {after:.2f}: {1 - ratio(after, before):.0%}"

    def exact(found: Rows) -> tuple[bool, str]:
        rows = [row for row in found.values() if row["checked"]]
        wrong = sum(row["different"] for row in rows)
        return wrong == 0, f"{wrong} of {sum(row['checked'] for row in rows):,} lists differ"

    return [
        _within(
            f"Goal ({data}): prefix communicates at most 0.3 times as much as hashing",
            lambda found: found["prefix", data]["communication"] / found["hashing", data]["communication"],
            0,
            0.3,
        ),
        _within(f"Goal ({data}): prefix has a replication of at most 1.6", lambda found: found["prefix", data]["replication"], 1, 1.6),
        Claim(f"Goal ({data}): loads by the paper's cost model are balanced within 1.25 for every method", each("balance_load", 1.25)),
        Claim(f"Goal ({data}): measured work is balanced within 1.25 for every method", each("balance_busy", 1.25)),
        _within(
            f"Goal ({data}): cells by work balance the measured work of location within 1.25",
            lambda found: found["location, by work", data]["balance_busy"],
            1,
            1.25,
        ),
        Claim(f"Goal ({data}): of the replicas that prefix makes with ranges, words that occur together save a third", saved),
        Claim(f"Goal ({data}): routing a message takes at most 5 us", each("route_us", 5)),
        Claim(f"Goal ({data}): placing a subscription takes at most 20 us", each("place_us", 20, 1)),
        Claim(f"Goal ({data}): the best method has at least 1.5 times the throughput of hashing", fastest),
        Claim("Goal: merged lists of all tasks are those of the whole window", exact),
    ]


def _methods(data: Sequence[str]) -> Experiment:
    rows = [Row(name, x, DskypeSetting(name, data=x)) for x in data for name in METHODS]
    rows += [Row(name, x, DskypeSetting(method, options, data=x)) for x in data for name, (method, options) in VARIANTS.items()]
    rows += [Row("one task", x, DskypeSetting("hashing", tasks=1, data=x)) for x in data]
    claims: list[Claim] = []
    for x in data:
        if x == LONG:
            continue
        claims += [
            _more(f"{x}: location has a higher throughput than hashing", "location", "hashing", x, "throughput"),
            _extreme(f"{x}: keyword has the lowest throughput", "keyword", x, "throughput", -1),
            replace(_extreme(f"{x}: prefix has the highest throughput", "prefix", x, "throughput", 1), why=_REFILLED),
            _more(f"{x}: keyword communicates far less than hashing (checked: a third)", "hashing", "keyword", x, "communication", 3, 1),
            _more(f"{x}: prefix communicates far less than hashing (checked: a third)", "hashing", "prefix", x, "communication", 3, 1),
            replace(
                _within(f"{x}: prefix replicates slightly (Table 5; checked: at most 1.6)", lambda found, x=x: found["prefix", x]["replication"], 1, 1.6),
                why=_NO_SHORTER,
            ),
            replace(_more(f"{x}: keyword replicates more than prefix (Table 5)", "keyword", "prefix", x, "replication", 1, 2), why=_NO_SHORTER),
            _more(f"{x}: hashing is several times as fast as one task (checked: 3 times)", "hashing", "one task", x, "throughput", 3),
        ]
    if LONG in data:
        claims += [
            replace(_more("long: prefix is much faster than keyword (checked: 1.2 times)", "prefix", "keyword", LONG, "throughput", 1.2), why=_NO_SHORTER),
            _more("long: prefix is slower than hashing", "hashing", "prefix", LONG, "throughput"),
            _more("long: prefix is slower than location", "location", "prefix", LONG, "throughput"),
            Claim(
                "long: communication is reduced less than with short messages",
                lambda found: (
                    (a := found["prefix", LONG]["communication"] / found["hashing", LONG]["communication"])
                    > (b := found["prefix", data[0]]["communication"] / found["hashing", data[0]]["communication"]),
                    f"long {a:.2f}, {data[0]} {b:.2f} of hashing's",
                ),
            ),
        ]
    return Experiment("methods", "Distribution mechanisms (Figure 21, Table 5)", "data", rows, [*claims, *goals(data[0])], "communication")


def _by_index(data: Sequence[str]) -> Experiment:
    """Return the first experiment with the paper's index, because its claims may depend on the index."""
    short = [x for x in data if x != LONG]
    rows = [Row(name, x, DskypeSetting(name, data=x, index="igpt")) for x in short for name in METHODS]
    claims: list[Claim] = []
    for x in short:
        claims += [
            _more(f"{x}: with IGPT, location has a higher throughput than hashing", "location", "hashing", x, "throughput"),
            _extreme(f"{x}: with IGPT, keyword has the lowest throughput", "keyword", x, "throughput", -1),
            replace(_extreme(f"{x}: with IGPT, prefix has the highest throughput", "prefix", x, "throughput", 1), why=_REFILLED),
        ]
    return Experiment("igpt", "Distribution mechanisms with the paper's index (Figure 21)", "data", rows, claims, "work_us")


def _by_tasks(x: str) -> Experiment:
    rows = [Row(name, n, DskypeSetting(name, tasks=n, data=x)) for name in _COMPARED for n in _TASKS]
    claims = [trend(f"{name} scales with the number of tasks", name, "throughput", 1, 0) for name in _COMPARED]
    claims.append(_more(f"Prefix communicates less than hashing at N = {_TASKS[-1]}", "hashing", "prefix", _TASKS[-1], "communication", 1, 1))
    if x == LONG:
        claims.append(
            Claim(
                "Prefix has a lower throughput than hashing and location at every N",
                lambda found: (
                    all(found["prefix", n]["throughput"] < found[name, n]["throughput"] for name in ("hashing", "location") for n in _TASKS),
                    "; ".join(f"{name} {listed(series(found, name, 'throughput'))}" for name in _COMPARED),
                ),
                _MESSAGE_COSTS,
            )
        )
    else:
        claims += [
            _more("Prefix is slower than hashing at N = 4", "hashing", "prefix", 4, "throughput"),
            _more("Prefix is slower than location at N = 4", "location", "prefix", 4, "throughput"),
            replace(_more("Prefix is faster than hashing at N = 64", "prefix", "hashing", 64, "throughput"), why=_ON_MANY_TASKS),
            replace(_more("Prefix is faster than hashing at N = 128", "prefix", "hashing", 128, "throughput"), why=_ON_MANY_TASKS),
            replace(_more("Prefix is faster than location at N = 128", "prefix", "location", 128, "throughput"), why=_ON_MANY_TASKS),
        ]
    name = "tasks" if x == PLACES else f"tasks-{x}"
    return Experiment(name, f"Number of subscription tasks, {_OTHER.get(x, x)} (Figure 22)", "N", rows, claims, "communication")


def _by_k(x: str) -> Experiment:
    rows = [Row(name, k, DskypeSetting(name, k=k, data=x)) for name in _COMPARED for k in _KS]
    claims = [trend(f"The throughput of {name} falls with k", name, "throughput", -1, 0) for name in _COMPARED]
    claims += [slower_than_x(f"The work of {name} rises slowly (checked: less than k does)", name, "work_us") for name in _COMPARED]
    return Experiment("k", "Number of results (Figure 23)", "k", rows, claims, "work_us")


def _by_subscriptions(x: str) -> Experiment:
    rows = [Row(name, share, DskypeSetting(name, subscriptions=share, data=x)) for name in _COMPARED for share in _SHARES]
    claims = [trend(f"The throughput of {name} falls with the number of subscriptions", name, "throughput", -1, 0) for name in _COMPARED]
    claims += [slower_than_x(f"The work of {name} is linear in the number of subscriptions at most", name, "work_us") for name in _COMPARED]
    return Experiment("subscriptions", "Number of subscriptions (Figure 24)", "share", rows, claims, "work_us")


def _hybrids(x: str) -> Experiment:
    levels = [(n1, 32 // n1) for n1 in (1, 2, 4, 8, 16, 32)]
    rows = [Row(name, n1, DskypeSetting(name, {"n1": n1, "n2": n2}, data=x)) for name in ("spatial-first", "keyword-first") for n1, n2 in levels]
    rows += [Row(name, None, DskypeSetting(name, data=x)) for name in ("location", "prefix")]

    def ends(name: str, n1: int, other: str) -> Claim:
        return Claim(
            f"{name} with n1 = {n1} is as fast as {other} (checked: within a fifth)",
            lambda found: (0.8 <= (r := ratio(found[name, n1]["throughput"], found[other, None]["throughput"])) <= 1.25, f"{r:.2f} times"),
        )

    def between(name: str) -> Claim:
        def check(found: Rows) -> tuple[bool, str]:
            points = series(found, name, "communication")
            low, high = (found[other, None]["communication"] for other in ("prefix", "location"))
            return all(low * 0.95 <= value <= high * 1.001 for _, value in points), f"prefix {low:.1f}, location {high:.1f}; {listed(points, 1)}"

        return Claim(f"{name} communicates between prefix and location", check)

    def no_gain(found: Rows) -> tuple[bool, str]:
        pure = max(found[name, None]["throughput"] for name in ("location", "prefix"))
        hybrid = max(value for name in ("spatial-first", "keyword-first") for _, value in series(found, name, "throughput"))
        return hybrid <= 1.25 * pure, f"best hybrid {hybrid:,.0f}, best of location and prefix {pure:,.0f}"

    claims = [
        ends("spatial-first", 32, "location"),
        ends("keyword-first", 32, "prefix"),
        between("spatial-first"),
        between("keyword-first"),
        Claim("Hybrids are no large improvement on the better of location and prefix (checked: at most a quarter)", no_gain),
    ]
    return Experiment("hybrids", "Hybrid methods (Figures 25 and 26), n1 x n2 = 32", "n1", rows, claims, "communication")


def _hotspot(x: str) -> Experiment:
    methods = ("location", "keyword", "prefix")
    rows = [
        Row(name + (f", {way}" if way else ""), n, DskypeSetting(name, data=x, hotspot=n, maintained=way if n else ""))
        for name in methods
        for way in ("", MONITOR, SAMPLE)
        for n in _HOTSPOTS
    ]

    def balanced(name: str, way: str, measure: str, what: str) -> Claim:
        def check(found: Rows) -> tuple[bool, str]:
            points = [point for point in series(found, f"{name}, {way}", measure) if point[0]]
            before = [point for point in series(found, name, measure) if point[0]]
            return max(value for _, value in points) <= 1.5, f"{listed(points, 2)}; without maintenance {listed(before, 2)}"

        return Claim(f"Goal: after maintenance ({way}) the {what} of {name} is balanced within 1.5, wherever the hotspot is", check)

    claims = [
        balanced(name, way, *what)
        for name in methods
        for way in (MONITOR, SAMPLE)
        for what in (("balance_load", "load (subscriptions x messages)"), ("balance_busy", "measured work"))
    ]
    return Experiment("hotspot", "A hotspot that moves, with and without maintenance (7.4)", "hotspot", rows, claims, "balance_load")


def _growth(data: Sequence[str]) -> Experiment:
    """Return the experiment that counts how often placements must grow while a small window is replaced completely, by slack."""
    x = [x for x in data if x != LONG][-1]
    rows = [Row("prefix", slack, DskypeSetting("prefix", {"slack": slack}, data=x, subscriptions=0.25, window=0.1)) for slack in (0, 0.05, 0.1)]

    def rare(found: Rows) -> tuple[bool, str]:
        row = found["prefix", 0.1]
        return row["grown"] <= 0.01 * row[
            "subscriptions"
        ], f"{row['grown']} of {row['subscriptions']:,}, {row['evaluations_per_1000']:,.0f} evaluations per 1000 messages"

    return Experiment(
        "growth",
        f"Prefixes that have to grow (7.3.4), {x}, a tenth of the window",
        "slack",
        rows,
        [
            Claim("With the default slack (0.1) prefixes seldom have to grow (checked: one subscription of 100 while the window changes)", rare),
            trend("Slack makes growing rarer", "prefix", "grown", -1, 0),
            trend("Slack costs replication", "prefix", "replication", 1, 3),
        ],
        "replication",
    )


_BUILDERS: dict[str, Callable[[Sequence[str]], Experiment]] = {
    "methods": _methods,
    "igpt": _by_index,
    "tasks": lambda data: _by_tasks(data[0]),
    "tasks-long": lambda data: _by_tasks(LONG),
    "k": lambda data: _by_k(data[0]),
    "subscriptions": lambda data: _by_subscriptions(data[0]),
    "hybrids": lambda data: _hybrids(data[0]),
    "hotspot": lambda data: _hotspot(data[0]),
    "growth": _growth,
}
NAMES = tuple(_BUILDERS)


def experiments(data: Sequence[str], names: Sequence[str] = NAMES) -> list[Experiment]:
    """Return experiments in the order of the paper.

    :param data: names of the data sets; experiments on a single data set use the first one.
    :param names: the experiments to return, from :data:`NAMES`.
    """
    return [_BUILDERS[name](data) for name in names if name != "tasks-long" or LONG in data]
