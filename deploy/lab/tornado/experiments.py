"""The experiments of the Tornado benchmark as data: what varies, what the paper says about it, and our own goals.

Sections and figures are those of Tornado (SIGSPATIAL 2018). FAST and GI2 alone are in ``dskype bench boolean``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dskype.deploy.lab.boolean.experiments import World
from dskype.deploy.lab.experiments import Claim, Experiment, Row, Rows, listed, ratio, series, steady, times, trend
from dskype.deploy.lab.tornado.balancing import GOALS
from dskype.deploy.lab.tornado.routing import ROUTERS, SHARES

__all__ = ["EXPERIMENTS", "METHODS", "BalancingRun", "MapRun", "RoutersRun", "TornadoSetting"]

_WORLD = World(space_share=0.005, keywords=(3, 3))
"""The defaults of the paper's Table 1: rectangles with sides of 0.5 % of the space's, and 3 keywords."""


@dataclass(frozen=True)
class TornadoSetting:
    """One run of the routing simulation.

    :ivar method: a name in ``dskype.distribution.DISTRIBUTORS`` or :data:`~dskype.deploy.lab.tornado.simulation.ROUTED`, with its options.
    :ivar index: of each evaluator.
    :ivar units: number of routing units, which share the messages; the paper's default is 10.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    index: str = "fast"
    evaluators: int = 32
    world: World = _WORLD
    units: int = 1

    @property
    def key(self) -> str:
        """What tells runs apart: equal ones are measured once, whatever the number of routing units."""
        return repr(replace(self, units=1))


@dataclass(frozen=True)
class RoutersRun:
    """One router over some partitions, measured as by ``dskype bench routing``.

    :ivar side: of the rectangles, as a share of the world's; None: points.
    """

    router: str
    partitions: int = 32
    side: float | None = None


@dataclass(frozen=True)
class BalancingRun:
    """One run of the balancing simulation.

    :ivar scale: width and height of the hotspot, as a share of the space.
    """

    adaptive: bool
    evaluators: int = 32
    scale: float = 0.2


@dataclass(frozen=True)
class MapRun:
    """The partitions at the end of a phase of the balancing simulation: 0 without a hotspot, 1, 2, ... with the first, the second one."""

    phase: int
    evaluators: int = 32


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "A-Grid": ("agrid", {}),
    "no summaries": ("agrid", {"summaries": False}),
    "plain grid": ("plain grid", {}),
    "R-tree": ("R-tree", {}),
    "uniform-space": ("uniform-space", {}),
    "text-routing": ("text-routing", {}),
    "replicate-all": ("replicate-all", {}),
    "hybrid": ("hybrid", {}),
    "hashing": ("hashing", {}),
    "location": ("location", {}),
    "keyword": ("keyword", {}),
    "prefix": ("prefix", {}),
}
"""Series -> distributor or router, and its options."""

_GENERAL = ("hashing", "location", "keyword", "prefix")
_EVALUATORS = (16, 32, 64, 128)
_UNITS = (1, 2, 4, 8, 10, 16, 32, 64)
_PAPER = 10_000_000
"""Subscriptions of the paper."""
_GOAL = 32
"""The number of evaluators of our goals."""


def _row(name: str, x: Any, **changes: Any) -> Row:
    method, options = METHODS[name]
    return Row(name, x, TornadoSetting(method, options, **changes))


def _correct(found: Rows) -> tuple[bool, str]:
    wrong = sum(row["different"] for row in found.values())
    return wrong == 0, f"{wrong} of {sum(row['matches'] * row['measured'] for row in found.values()):,.0f} matches missing or too many"


_EXACT = Claim("All evaluators together find what one index finds", _correct)


def _four_times(x: Any, index: str) -> Claim:
    """Claim our goal for the throughput against the general distributors."""

    def check(found: Rows) -> tuple[bool, str]:
        rates = {name: found[name, x]["throughput"] for name in ("A-Grid", *_GENERAL)}
        factor = ratio(rates["A-Grid"], max(rates[name] for name in _GENERAL))
        return factor >= 4, ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + f": {factor:.1f} times"

    return Claim(f"Goal: with {index} and {_GOAL} evaluators, at least 4 times the best of {', '.join(_GENERAL)}", check)


def _at_most(text: str, place: tuple[str, Any], measure: str, most: float) -> Claim:
    return Claim(text, lambda found: (found[place][measure] <= most, f"{found[place][measure]:,.3f}"))


def _least_latency(found: Rows) -> tuple[bool, str]:
    values = {name: found[name, "fast"]["latency_ms"] for name in ("A-Grid", "text-routing", "uniform-space")} | {"GI2": found["A-Grid", "gi2"]["latency_ms"]}
    return values["A-Grid"] == min(values.values()), ", ".join(f"{name} {value:,.1f} ms" for name, value in values.items())


# -- Figure 6 -------------------------------------------------------------------------------------------------


_ALTERNATIVES = Experiment(
    "alternatives",
    "Routing alternatives with 32 evaluators (Figures 6a and 6b)",
    "index",
    [
        *(_row(name, index, index=index) for index in ("fast", "lanes") for name in METHODS),
        _row("A-Grid", "gi2", index="gi2"),
        _row("replicate-all", "scan", index="scan"),
    ],
    [
        replace(
            times("More than 2 times the throughput of GI2", ("A-Grid", "fast"), ("A-Grid", "gi2"), "throughput", 2),
            why="an evaluator has some thousands of subscriptions, so the lists of GI2's cells are too short for a better index to gain by",
            least=_PAPER,
        ),
        times("More than 2 times the throughput of text routing", ("A-Grid", "fast"), ("text-routing", "fast"), "throughput", 2),
        times("2 times the throughput of uniform space", ("A-Grid", "fast"), ("uniform-space", "fast"), "throughput", 2),
        Claim(
            "The least latency",
            _least_latency,
            "only GI2's is less, and two thirds of either are the routing units', which do the same for both. With some thousands of subscriptions an evaluator answers as soon with GI2 as with FAST",
        ),
        times(
            "Replicating all subscriptions, without an index, is not comparable (checked: 10 times)",
            ("A-Grid", "fast"),
            ("replicate-all", "scan"),
            "throughput",
            10,
        ),
        times(
            "Text routing sends a message to several evaluators (checked: 3 times as many)",
            ("text-routing", "fast"),
            ("no summaries", "fast"),
            "communication",
            3,
        ),
        _four_times("fast", "FAST"),
        _four_times("lanes", "lanes"),
        _at_most("Goal: at most 1 tuple per message", ("A-Grid", "lanes"), "communication", 1.0),
        _at_most("Goal: at most 1 tuple per message without summaries", ("no summaries", "lanes"), "communication", 1.0),
        _EXACT,
    ],
    "communication",
)

_SELECTIVE = (50, 75, 90, 95, 99, 100)

_SELECTIVITY = Experiment(
    "selectivity",
    "How frequent the keywords of subscriptions may be (Figure 6c)",
    "% of the vocabulary",
    [_row(name, x, world=replace(_WORLD, rarest_share=x / 100)) for x in _SELECTIVE for name in ("A-Grid", "no summaries")],
    [
        trend("The rarer the keywords may be at most, the higher the throughput", "A-Grid", "throughput", -1, 0),
        trend("The rarer the keywords may be at most, the fewer tuples", "A-Grid", "communication", 1, 3),
        times("Summaries raise the throughput at 90 %", ("A-Grid", 90), ("no summaries", 90), "throughput", 1),
        _at_most("Goal: with selective summaries (90 %) at most 0.3 tuples per message", ("A-Grid", 90), "communication", 0.3),
        _EXACT,
    ],
    "communication",
)


# -- Figure 7 -------------------------------------------------------------------------------------------------


def _same(found: Rows) -> tuple[bool, str]:
    return all(row["equal"] for row in found.values()), f"{len(found)} rows"


def _lowest(found: Rows) -> tuple[bool, str]:
    lines = {name: series(found, name, "routing_us") for name in ROUTERS}
    rows = [(x, min(ratio(dict(lines[name])[x], us) for name in ROUTERS if name != "A-Grid")) for x, us in lines["A-Grid"]]
    return min(r for _, r in rows) > 1, f"times as fast as the next: {listed(rows, 2)}"


_POINTS = Experiment(
    "points",
    "Routing time of points (Figure 7a)",
    "partitions",
    [Row(name, n, RoutersRun(name, n)) for n in _EVALUATORS for name in ROUTERS],
    [
        steady("The A-Grid's time does not depend on the partitions (checked: within a factor of 2)", "A-Grid", "routing_us", 2, 3),
        steady("The plain grid's does not either (checked: within a factor of 2)", "plain grid", "routing_us", 2, 3),
        trend("The R-tree's time rises", "R-tree", "routing_us", 1, 3),
        Claim("All routers find the same", _same),
    ],
    "router_bytes",
)

_RANGES = Experiment(
    "ranges",
    "Routing time of rectangles over 32 partitions (Figure 7b)",
    "side, % of the world's",
    [Row(name, 100 * side, RoutersRun(name, side=side)) for side in SHARES for name in ROUTERS],
    [
        Claim(
            "The A-Grid is faster than the plain grid and the R-tree at every size",
            _lowest,
            "it is level with the better one at both ends: the smallest rectangles lie in one cell or two of the plain grid, and an R-tree of 32 partitions is 888 bytes, so that reading it through is as fast as "
            "following links. Neither is fast at both ends",
        ),
        times("The plain grid falls behind on large rectangles (checked: 10 times at 5 %)", ("plain grid", 5.0), ("A-Grid", 5.0), "routing_us", 10, 3),
        Claim("All routers find the same", _same),
    ],
    "router_bytes",
)


# -- Figure 8 -------------------------------------------------------------------------------------------------


def _scaled(name: str, title: str, x: str, xs: Sequence[float], change: Callable[[float], World], claims: Sequence[Claim], second: str) -> Experiment:
    indexes = {"A-Grid": "fast", "A-Grid, lanes": "lanes"}
    rows = [replace(_row("A-Grid", value, world=change(value), index=index), series=series) for value in xs for series, index in indexes.items()]
    return Experiment(name, title, x, rows, [*claims, _EXACT], second)


_AREAS = _scaled(
    "areas",
    "Size of the subscriptions' rectangles (Figure 8a)",
    "side, % of the space's",
    (0.01, 0.05, 0.1, 0.5, 1.0, 1.5),
    lambda x: replace(_WORLD, space_share=x / 100),
    [steady("The throughput is not affected by the size (checked: within a factor of 2)", "A-Grid", "throughput", 2, 0)],
    "replication",
)

_KEYWORDS = _scaled(
    "keywords",
    "Keywords of subscriptions (Figure 8b)",
    "keywords",
    (1, 2, 3, 5, 7),
    lambda x: replace(_WORLD, keywords=(int(x), int(x))),
    [
        trend("The throughput rises with the keywords", "A-Grid", "throughput", 1, 0),
        trend("With more keywords fewer subscriptions match", "A-Grid", "matches", -1, 2),
    ],
    "matches",
)


def _slight(found: Rows) -> tuple[bool, str]:
    points = series(found, "A-Grid", "throughput")
    return points[-1][1] >= 0.5 * points[0][1], listed(points)


_QUERIES = _scaled(
    "queries",
    "Number of subscriptions (Figure 8c)",
    "subscriptions, as a multiple",
    (0.5, 1.0, 2.0, 3.0, 4.0),
    lambda x: replace(_WORLD, subscriptions=x),
    [
        Claim(
            "With 8 times as many subscriptions the throughput is slightly reduced (checked: by half at most)",
            _slight,
            "8 times as many matches a message double the work of all evaluators, and the plan of the largest size is less even: the busiest evaluator has 1.9 times the mean work there, 1.4 at the smallest size",
        )
    ],
    "matches",
)


def _by_evaluators(name: str, title: str, index: str) -> Experiment:
    methods = ("A-Grid", "uniform-space", "text-routing", *_GENERAL)

    def ahead(found: Rows) -> tuple[bool, str]:
        rows = [(n, ratio(found["A-Grid", n]["throughput"], max(found[other, n]["throughput"] for other in _GENERAL))) for n in _EVALUATORS]
        return min(r for _, r in rows) >= 4, f"times as fast as the best: {listed(rows, 1)}"

    claims = [
        trend("The A-Grid scales with the evaluators", "A-Grid", "throughput", 1, 0),
        Claim(f"At every number the A-Grid has 4 times the throughput of the best of {', '.join(_GENERAL)}", ahead),
        _EXACT,
    ]
    rows = [_row(method, n, index=index, evaluators=n) for n in _EVALUATORS for method in methods]
    return Experiment(name, title, "evaluators", rows, claims, "communication")


# -- Figures 9 and 10 -----------------------------------------------------------------------------------------


def _goal(measure: str, text: str, fulfilled: Callable[[float], bool]) -> Claim:
    """Claim a goal of load balancing for the number of evaluators of our goals, and tell the others."""

    def check(found: Rows) -> tuple[bool, str]:
        points = series(found, "adaptive", measure)
        return bool(fulfilled(dict(points)[_GOAL])), listed(points, 2)

    return Claim(f"Goal: {text} with {_GOAL} evaluators", check)


_ADAPTIVITY = Experiment(
    "adaptivity",
    "Two hotspots, one after the other, by the number of evaluators (Figure 9)",
    "evaluators",
    [Row("adaptive" if adaptive else "static", n, BalancingRun(adaptive, n)) for n in _EVALUATORS for adaptive in (True, False)],
    [_goal(measure, text, fulfilled) for measure, text, fulfilled in GOALS],
    "sent_bytes",
)


def _falls_when_static(found: Rows) -> tuple[bool, str]:
    points = series(found, "static", "per_load")
    return points[0][1] < points[-1][1], listed(points, 3)


def _sends_less(found: Rows) -> tuple[bool, str]:
    points = series(found, "adaptive", "sent_less")
    return min(value for _, value in points) >= 20, f"times less: {listed(points, 1)}"


_HOTSPOTS = Experiment(
    "hotspots",
    "Size of the hotspot, with 32 evaluators (Figure 9)",
    "scale",
    [Row("adaptive" if adaptive else "static", x, BalancingRun(adaptive, scale=x)) for x in (0.2, 0.4, 0.5, 0.6, 0.7) for adaptive in (True, False)],
    [
        replace(
            steady("With balancing the throughput is stable (checked: within a factor of 1.5)", "adaptive", "per_load", 1.5, 3),
            why="one cell is the limit: in the smallest hotspot the costliest cell alone has 1.8 times the mean of an evaluator, as much as the busiest evaluator has; from a scale of 0.5 on it has 1.0 times",
        ),
        Claim("Without balancing, the smaller the hotspot, the lower the throughput", _falls_when_static),
        Claim("Distributed balancing sends much less than centralized (checked: 1/20)", _sends_less),
    ],
    "per_load",
)


def _map(move: int) -> Experiment:
    before = "without a hotspot" if move == 1 else f"at the end of hotspot {move - 1}"
    rows = [Row("partitions", phase, MapRun(phase)) for phase in (move - 1, move)]
    return Experiment(f"map-{move}", f"Partitions {before} (left) and of hotspot {move} (right)", "hotspot", rows, [], "cells_most")


def _bottleneck(found: Rows) -> tuple[bool, str]:
    points = series(found, "A-Grid", "system_per_s")
    return dict(points)[10] >= 5 * points[0][1], listed(points)


def _saturates(found: Rows) -> tuple[bool, str]:
    ten, most = (found["A-Grid", n]["system_per_s"] for n in (10, 64))
    return most <= 1.1 * ten, f"10: {ten:,.0f}, 64: {most:,.0f}"


_ROUTING_UNITS = Experiment(
    "units",
    "Number of routing units, with 32 evaluators (Figure 10)",
    "routing units",
    [replace(_row("A-Grid", n, units=n, index=index), series=name) for index, name in (("fast", "A-Grid"), ("lanes", "A-Grid, lanes")) for n in _UNITS],
    [
        Claim("A single routing unit is a bottleneck (checked: 10 have at least 5 times the throughput)", _bottleneck),
        Claim("The throughput saturates at 10 routing units (checked: 64 have at most 1.1 times as much)", _saturates, least=_PAPER),
    ],
    "throughput",
)

EXPERIMENTS: Sequence[Experiment] = (
    _ALTERNATIVES,
    _SELECTIVITY,
    _POINTS,
    _RANGES,
    _AREAS,
    _KEYWORDS,
    _QUERIES,
    _by_evaluators("evaluators", "Number of evaluators, with lanes (section 5.3)", "lanes"),
    _by_evaluators("evaluators-fast", "Number of evaluators, with FAST (section 5.3)", "fast"),
    _ADAPTIVITY,
    _HOTSPOTS,
    _map(1),
    _map(2),
    _ROUTING_UNITS,
)
"""All experiments, in the order of the figures."""
