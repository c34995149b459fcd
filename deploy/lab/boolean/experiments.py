"""The experiments of the boolean benchmark, as data: what is varied, and what the papers say about the outcome.

LAPS (KDD 2013), section 6: Table 1 and Figures 6 to 10. Tornado (SIGSPATIAL 2018), sections 5.1 to 5.3, of its local index FAST. PS2Stream (ICDE 2017), section VI, of its
local index GI2. The indexes that are not of these papers, ``lanes``, ``table`` and ``plain``, stand beside them. A new index is a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dskype.deploy.lab.boolean.reasons import reason
from dskype.deploy.lab.experiments import Claim, Experiment, Row, Rows, listed, ratio, series, slower_than_x, steady, times, trend

__all__ = ["EXPERIMENTS", "BooleanSetting", "World"]


@dataclass(frozen=True)
class World:
    """What is registered and published.

    :ivar subscriptions: as a multiple of the benchmark's number.
    :ivar km: least and greatest side of rectangles, uniform between, or their logarithm with ``log``; ``space_share``: their sides as a share of the space's instead.
    :ivar keywords: fewest and most of a subscription; ``rarest_share``: the share of the vocabulary that they are from.
    :ivar words: fewest and most of a message; None: as they are.
    :ivar areas: messages are rectangles, of the size of those of subscriptions.
    :ivar uniform: all words are equally frequent.
    :ivar expressions: AND and OR, instead of AND alone.
    """

    subscriptions: float = 1.0
    km: tuple[float, float] = (1, 50)
    log: bool = False
    space_share: float | None = None
    keywords: tuple[int, int] = (1, 5)
    rarest_share: float | None = None
    words: tuple[int, int] | None = None
    areas: bool = False
    uniform: bool = False
    expressions: bool = False


@dataclass(frozen=True)
class BooleanSetting:
    """One run.

    :ivar removed: share of the subscriptions that have been removed, or have expired, before messages come.
    :ivar updates: subscriptions inserted per message; as many are removed.
    """

    index: str = "rt++"
    options: Mapping[str, Any] = field(default_factory=dict)
    world: World = World()
    removed: float = 0.0
    updates: float = 0.0

    @property
    def key(self) -> str:
        """What tells runs apart: equal ones are measured once."""
        return repr(self)


_OWN = ("lanes", "plain")
_GROUPS = {
    "short-points": ("short messages, points", False, (6, 12, 20)),
    "long-points": ("long messages, points", False, (100, 500, 1000)),
    "short-areas": ("short messages, rectangles", True, (6, 12, 20)),
    "long-areas": ("long messages, rectangles", True, (100, 500, 1000)),
}
"""The four groups of messages of LAPS: title, whether they are rectangles, words per message."""

_PLACES = World(km=(1, 1000), log=True)
"""The subscriptions of LAPS have the regions of tweets: of a street, a city, a state. It does not say how large they are."""

_STRATEGIES = {"random": "random", "df": "df", "idf": "idf", "locality-aware": "local"}
"""Sorting strategies of LAPS -> the option ``token_order``."""
_LOCAL_ORDER = {"token_order": "local"}
_EXISTING = ("keyword-first", "spatial-first", "ir-tree")


def _mean(found: Rows, name: str, measure: str = "message_us") -> float:
    points = series(found, name, measure)
    return sum(value for _, value in points) / len(points)


def faster(text: str, slow: str, fast: str, at_least: float = 1.0) -> Claim:
    """Claim that one line takes at least ``at_least`` times as long as another one, on average over its points."""

    def check(found: Rows) -> tuple[bool, str]:
        a, b = _mean(found, slow), _mean(found, fast)
        return ratio(a, b) > at_least, f"{slow} {a:,.1f} : {fast} {b:,.1f} us = {ratio(a, b):.2f}"

    return Claim(text, check)


def smallest(text: str, names: Sequence[str], measure: str) -> Claim:
    """Claim that the last of some rows has the least of something."""

    def check(found: Rows) -> tuple[bool, str]:
        values = [(name, found[name, None][measure]) for name in names]
        return values[-1][1] < min(value for _, value in values[:-1]), ", ".join(f"{name} {value:,.1f}" for name, value in values)

    return Claim(text, check)


def fastest(text: str, name: str, others: Sequence[str], at_least: float = 1.0) -> Claim:
    """Claim that a line lies below all others, at every place, by a factor."""

    def check(found: Rows) -> tuple[bool, str]:
        own = dict(series(found, name, "message_us"))
        rows = [(x, min(ratio(found[other, x]["message_us"], us) for other in others)) for x, us in own.items()]
        return min(r for _, r in rows) > at_least, f"times as fast as the next: {listed(rows, 2)}"

    return Claim(text, check)


def _lines(names: Mapping[str, BooleanSetting], xs: Sequence[float], change: Any, subscriptions: bool = False) -> list[Row]:
    """Return rows for each name and place.

    :param subscriptions: those change from place to place, so they are drawn once for all names; else an index is filled once for all places.
    """
    places = [(name, x) for x in xs for name in names] if subscriptions else [(name, x) for name in names for x in xs]
    return [Row(name, x, replace(names[name], world=change(names[name].world, x))) for name, x in places]


def _words(areas: bool, uniform: bool = False) -> Any:
    return lambda world, x: replace(world, words=(int(x), int(x)), areas=areas, uniform=uniform)


def _settings(*names: str, world: World = World()) -> dict[str, BooleanSetting]:
    """Return settings by name; the trees with representative tokens order them locality-aware, as in LAPS from section 6.2 on."""
    return {name: BooleanSetting(name, _LOCAL_ORDER if name in ("rt+", "rt++") else {}, world) for name in names}


# -- LAPS -----------------------------------------------------------------------------------------------------


def _sorting(group: str) -> Experiment:
    title, areas, words = _GROUPS[group]
    names = {strategy: BooleanSetting("rt+", {"token_order": order}, _PLACES) for strategy, order in _STRATEGIES.items()}
    return Experiment(
        f"sorting-{group}",
        f"Representative tokens of the Rt+-tree, {title} (LAPS, Figure 6)",
        "words",
        _lines(names, words, _words(areas)),
        [
            faster("idf outperforms df", "df", "idf"),
            faster("df is better than random", "random", "df"),
            faster("The locality-aware method is better than idf", "idf", "locality-aware"),
            faster("The locality-aware method is better than df", "df", "locality-aware"),
        ],
        "bytes",
    )


def _token_sets(group: str) -> Experiment:
    title, areas, words = _GROUPS[group]
    claims = [faster("The Rt++-tree outperforms the Rt+-tree", "rt+", "rt++"), faster("The Rt+-tree is better than the Rt-tree", "rt", "rt+")]
    if group == "long-areas":
        claims.append(times("With 1,000 words the Rt-tree takes 50 ms, the Rt++-tree 12 (checked: 4 times)", ("rt", 1000), ("rt++", 1000), "message_us", 4))
    return Experiment(
        f"tokens-{group}",
        f"Token sets of the Rt-tree family, {title} (LAPS, Figure 7)",
        "words",
        _lines(_settings("rt", "rt+", "rt++", world=_PLACES), words, _words(areas)),
        claims,
        "bytes",
    )


def _existing(group: str, uniform: bool) -> Experiment:
    title, areas, words = _GROUPS[group]
    order = ("keyword-first", "spatial-first") if not areas else ("spatial-first", "keyword-first")
    text = (
        "For points the spatial-first method outperforms the keyword-first one"
        if not areas
        else "For rectangles the keyword-first method outperforms the spatial-first one"
    )
    return Experiment(
        f"{'uniform' if uniform else 'existing'}-{group}",
        f"The Rt++-tree and earlier methods, {title}{', uniform words' if uniform else ''} (LAPS, Figure {9 if uniform else 8})",
        "words",
        _lines(_settings("rt++", *_EXISTING, *_OWN, world=_PLACES), words, _words(areas, uniform)),
        [
            faster(text, *order),
            faster("The IR-tree is worse than the spatial-first method", "ir-tree", "spatial-first"),
            fastest("The Rt++-tree is always the fastest of the four", "rt++", _EXISTING),
            fastest("The index of our own, lanes, is faster than all of them (checked: 12 times)", "lanes", ("rt++", *_EXISTING), 12),
        ],
        "bytes",
    )


_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)

_SCALABILITY = Experiment(
    "scalability",
    "The Rt++-tree by the number of subscriptions (LAPS, Figure 10)",
    "subscriptions, as a share",
    [
        Row(group, x, BooleanSetting("rt++", _LOCAL_ORDER, replace(_PLACES, subscriptions=x, words=(words[1], words[1]), areas=areas)))
        for group, (_, areas, words) in _GROUPS.items()
        for x in _SHARES
    ],
    [slower_than_x(f"The time rises sublinearly ({title})", group, "message_us") for group, (title, _, _) in _GROUPS.items()],
    "matches",
)

_SIZES = Experiment(
    "sizes",
    "Memory (LAPS, Table 1 and section 6.1)",
    "index",
    [
        *(Row(name, None, setting) for name, setting in _settings("rt", "rt+", "rt++", *_EXISTING, "fast", "gi2", "table", *_OWN, world=_PLACES).items()),
        *(Row(f"rt+, {strategy}", None, BooleanSetting("rt+", {"token_order": order}, _PLACES)) for strategy, order in _STRATEGIES.items()),
    ],
    [
        times("The Rt-tree takes twice the memory of the Rt+-tree (checked: 1.5 times)", ("rt", None), ("rt+", None), "bytes", 1.5),
        times("The Rt++-tree takes a little more than the Rt+-tree", ("rt++", None), ("rt+", None), "bytes", 1),
        smallest("The Rt+-tree is smallest with df, as upper nodes share their tokens", ["rt+, random", "rt+, idf", "rt+, locality-aware", "rt+, df"], "bytes"),
        times("FAST takes less memory than GI2, which holds a query in many cells", ("gi2", None), ("fast", None), "bytes", 1),
    ],
    "bytes",
)


# -- Tornado and PS2Stream ------------------------------------------------------------------------------------


_STREAMED = ("fast", "gi2", "table", *_OWN)
_TORNADO = World(space_share=0.005, keywords=(3, 3))
_QUERIES = (0.5, 1.0, 2.0, 3.0, 4.0)


def _tornado(names: Sequence[str] = _STREAMED) -> dict[str, BooleanSetting]:
    return {name: BooleanSetting(name, world=_TORNADO) for name in names}


_FAST_QUERIES = Experiment(
    "fast-queries",
    "FAST, GI2 and tables by the number of queries (Tornado, Figures 6 and 8c)",
    "queries, as a multiple",
    _lines(_tornado(), _QUERIES, lambda world, x: replace(world, subscriptions=x), True),
    [
        faster("FAST is more than twice as fast as GI2", "gi2", "fast", 2),
        slower_than_x("FAST scales well: its time rises more slowly than the number of queries", "fast", "message_us"),
        faster("FAST is faster than a plain table", "table", "fast"),
        fastest("The index of our own, lanes, is faster than FAST (checked: 12 times)", "lanes", ("fast",), 12),
    ],
    "bytes",
)

_FAST_AREAS = Experiment(
    "fast-areas",
    "FAST, GI2 and tables by the side of a query (Tornado, Figure 8a)",
    "side, % of the space's",
    _lines(_tornado(), (0.01, 0.05, 0.1, 0.5, 1, 1.5), lambda world, x: replace(world, space_share=x / 100), True),
    [
        steady("The throughput is not affected by the size of queries (checked: within a factor of 2)", "fast", "message_us", 2),
        fastest("FAST is faster than GI2 at every size", "fast", ("gi2",)),
    ],
    "bytes",
)

_FAST_KEYWORDS = Experiment(
    "fast-keywords",
    "FAST, GI2 and tables by the keywords of a query (Tornado, Figure 8b)",
    "keywords",
    _lines(_tornado(), (1, 2, 3, 5, 7), lambda world, x: replace(world, keywords=(int(x), int(x))), True),
    [
        trend("With more keywords fewer queries match, and the time falls", "fast", "message_us", -1),
        fastest("FAST is faster than GI2 at every number", "fast", ("gi2",)),
    ],
    "matches",
)

_FAST_SELECTIVE = Experiment(
    "fast-selective",
    "FAST, GI2 and tables by how frequent the keywords may be (Tornado, Figure 6c)",
    "% of the vocabulary",
    _lines(_tornado(), (50, 90, 95, 99, 100), lambda world, x: replace(world, rarest_share=x / 100), True),
    [trend("The rarer the keywords of queries may be at most, the less time a message takes", "fast", "message_us", 1)],
    "matches",
)

_EXPRESSIONS = Experiment(
    "expressions",
    "AND and OR over one to five keywords (PS2Stream, section VI)",
    "index",
    [Row(name, None, replace(setting, world=World(expressions=True))) for name, setting in _settings("rt++", *_STREAMED).items()],
    [times("FAST is faster than GI2", ("gi2", None), ("fast", None), "message_us", 1)],
    "bytes",
)


# -- changes --------------------------------------------------------------------------------------------------


_ALL = ("rt", "rt+", "rt++", *_EXISTING, *_STREAMED)


def _fresh(found: Rows) -> tuple[bool, str]:
    own = found["fast", None]["again_us"]
    others = {name: found[name, None]["again_us"] for name in ("rt", "rt+", "rt++", "ir-tree")}
    return own < min(others.values()), f"fast {own:,.2f} us; " + ", ".join(f"{name} {us:,.2f}" for name, us in others.items())


_CHANGES = Experiment(
    "changes",
    "Inserting and removing, and both between messages (PS2Stream: five messages to one change)",
    "index",
    [Row(name, None, replace(setting, updates=0.1)) for name, setting in _settings(*_ALL).items()],
    [
        Claim("FAST takes a query in faster than the trees", _fresh),
        times("Between changes FAST is faster than GI2", ("gi2", None), ("fast", None), "message_us", 1),
        Claim(
            "lanes takes a subscription in within 1.5 us, drops one within 0.3 us, and no call with 256 of them takes more than 5 ms",
            lambda found: (
                (row := found["lanes", None])["build_us"] <= 1.5 and row["remove_us"] <= 0.3 and row["longest_ms"] <= 5,
                f"{row['build_us']:.2f} us, {row['remove_us']:.2f} us, {row['longest_ms']:.1f} ms",
            ),
        ),
    ],
    "longest_ms",
)

_GONE = (0.0, 0.25, 0.5, 0.75)


def _falls_with_expiry(found: Rows) -> tuple[bool, str]:
    points = series(found, "fast", "message_us")
    return points[-1][1] <= 0.5 * points[0][1], listed(points, 1)


_EXPIRY = Experiment(
    "expiry",
    "Messages after a share of the subscriptions has expired, which FAST and GI2 clean up lazily (Tornado, section 4; PS2Stream, section V)",
    "share that has expired",
    [Row(name, x, BooleanSetting(name, removed=x)) for name in _STREAMED for x in _GONE],
    [
        Claim("Expired queries do not slow FAST down (checked: with three quarters gone a message takes half the time or less)", _falls_with_expiry),
        fastest("FAST is faster than GI2 whatever has expired", "fast", ("gi2",)),
    ],
    "bytes",
)


def _with_reasons(experiment: Experiment) -> Experiment:
    """Return an experiment whose claims know why they may not hold."""
    return replace(experiment, claims=[replace(claim, why=reason(experiment.name, claim.text)) for claim in experiment.claims])


_ALL_EXPERIMENTS = (
    *(_sorting(group) for group in _GROUPS),
    *(_token_sets(group) for group in _GROUPS),
    *(_existing(group, False) for group in _GROUPS),
    *(_existing(group, True) for group in _GROUPS),
    _SCALABILITY,
    _SIZES,
    _FAST_QUERIES,
    _FAST_AREAS,
    _FAST_KEYWORDS,
    _FAST_SELECTIVE,
    _EXPRESSIONS,
    _CHANGES,
    _EXPIRY,
)

EXPERIMENTS: Sequence[Experiment] = [_with_reasons(experiment) for experiment in _ALL_EXPERIMENTS]
"""All experiments, in the order of the papers."""
