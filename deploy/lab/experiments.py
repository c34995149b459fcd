"""Experiments of a paper as data: what is run, what the paper claims, and whether that held here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

__all__ = [
    "HELD",
    "Claim",
    "Experiment",
    "Found",
    "LeftOutError",
    "Row",
    "Rows",
    "about_named_rows",
    "add_only_argument",
    "best",
    "judged",
    "listed",
    "ratio",
    "run_experiment",
    "series",
    "slower_than_x",
    "steady",
    "table_line",
    "times",
    "trend",
    "two_plots",
]

Found = Mapping[str, Any]
"""The measures of a row."""

Rows = Mapping[tuple[str, Any], Found]
"""The measures of all rows, by (series, x)."""

_ENOUGH = 0.999
"""A workload has a few subscriptions less than it was to have, where updates have ended some."""

HELD = {True: "held", False: "did NOT hold", None: "cannot be told"}


class LeftOutError(Exception):
    """A row cannot be measured; the text says why."""


@dataclass(frozen=True)
class Row:
    """One run of an experiment.

    :ivar series: the line of a plot that it belongs to.
    :ivar x: its place on that line: a number or a word; None if rows are only compared.
    :ivar setting: what to run, a dataclass.
    """

    series: str
    x: Any
    setting: Any


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how to check it on the rows.

    :ivar check: returns (held, figures). A KeyError means that a row is missing.
    :ivar why: the reason, if it is known that it does not hold here.
    :ivar least: subscriptions of the paper, if their number decides: with fewer of them a claim that does not hold cannot be told.
    """

    text: str
    check: Callable[[Rows], tuple[bool, str]]
    why: str = ""
    least: int = 0


@dataclass(frozen=True)
class Experiment:
    """Rows, and the claims about them.

    :ivar second: the measure of the second plot.
    """

    name: str
    title: str
    x: str
    rows: Sequence[Row]
    claims: Sequence[Claim]
    second: str = "buffer_mean"


def run_experiment(
    experiment: Experiment, run: Callable[[Any], Found], missing: Callable[[Any], str | None], progress: Callable[[str, Found], None]
) -> dict[str, Any]:
    """Run all rows of an experiment, and check its claims.

    :param run: measures a setting, or raises :class:`LeftOutError`.
    :param missing: returns which part of a setting is not available (None: all are); then the row is left out.
    :param progress: called after each row with its name and its measures.
    :returns: ``name``, ``title``, ``x``, ``second``, ``rows`` (each ``series``, ``x``, ``setting`` and the measures), ``notes`` (rows that were
        left out) and ``claims`` (each ``text``, ``held``: true, false or null, ``figures``, and ``why`` it did not hold where that is known).
    """
    rows, notes = [], []
    for number, row in enumerate(experiment.rows, 1):
        if lacks := missing(row.setting):
            notes.append(f"{row.series} is left out: {lacks}")
            continue
        try:
            result = run(row.setting)
        except LeftOutError as reason:
            notes.append(f"{row.series} is left out: {reason}")
            continue
        place = "" if row.x is None else f" {experiment.x} {row.x:g}" if isinstance(row.x, (int, float)) else f" {row.x}"
        progress(f"{experiment.name} {number}/{len(experiment.rows)}: {row.series}{place}", result)
        rows.append({"series": row.series, "x": row.x, "setting": {name: _plain(value) for name, value in vars(row.setting).items()}, **result})
    return {
        "name": experiment.name,
        "title": experiment.title,
        "x": experiment.x,
        "second": experiment.second,
        "rows": rows,
        "notes": list(dict.fromkeys(notes)),
        "claims": [judged(claim, rows) for claim in experiment.claims],
    }


def judged(claim: Claim, rows: Sequence[Found]) -> dict[str, Any]:
    """Return ``text``, ``held`` (true, false, or null: it cannot be told), ``figures``, and ``why`` where that is known.

    :param rows: of the claim's experiment, as :func:`run_experiment` returns them.
    """
    try:
        held, figures = claim.check({(row["series"], row["x"]): row for row in rows})
    except KeyError:
        return {"text": claim.text, "held": None, "figures": "rows are missing"}
    if held:
        return {"text": claim.text, "held": True, "figures": figures}
    most = max(row.get("subscriptions", 0) for row in rows)
    if most < _ENOUGH * claim.least:
        why = f"the paper has {claim.least:,} subscriptions, this run {most:,}"
        return {"text": claim.text, "held": None, "figures": figures, "why": why}
    return {"text": claim.text, "held": False, "figures": figures, **({"why": claim.why} if claim.why else {})}


class _NamedRows(dict[tuple[str, Any], Found]):
    """Some rows of an experiment. To go through them raises KeyError, because others are missing."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        raise KeyError

    keys = values = items = __iter__  # type: ignore[assignment]


def about_named_rows(claim: Claim) -> Claim:
    """Return a claim for an experiment of which some rows are missing. A check that looks up rows by name works; one that goes through all rows cannot be told."""
    return replace(claim, check=lambda found: claim.check(_NamedRows(found)))


def add_only_argument(parser: argparse.ArgumentParser, experiments: Sequence[Experiment]) -> None:
    """Add the option ``--only``, which chooses experiments by their names, and rows of them."""
    parser.add_argument(
        "--only",
        metavar="NAME[:ROW;...],...",
        type=lambda text: _chosen(experiments, text),
        default=list(experiments),
        help=f"names of experiments, or the beginnings of their names: {', '.join(e.name for e in experiments)}. ROW: only these rows, by their series or as SERIES/X. "
        "Claims about other rows cannot be told then",
    )


def _chosen(experiments: Sequence[Experiment], text: str) -> list[Experiment]:
    """Return the experiments that the text of an argument names: ``NAME[:ROW;...],...``. A name that no experiment has stands for all whose names begin with it.

    :raises argparse.ArgumentTypeError: there is no such experiment, or no such row.
    """
    found: dict[str, Experiment] = {}
    for part in text.split(","):
        name, _, rows = (piece.strip() for piece in part.partition(":"))
        exact = [e for e in experiments if e.name == name] or [e for e in experiments if name and e.name.startswith(name)]
        if not exact:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(e.name for e in experiments)}; given: {name!r}")
        for e in exact:
            found.setdefault(e.name, _with_rows(e, [row.strip() for row in rows.split(";")]) if rows else e)
    return list(found.values())


def _with_rows(experiment: Experiment, wanted: Sequence[str]) -> Experiment:
    """Return an experiment with these rows alone: series, or ``SERIES/X``.

    :raises argparse.ArgumentTypeError: it has no such row.
    """
    names = [{row.series, f"{row.series}/{row.x:g}" if isinstance(row.x, (int, float)) else f"{row.series}/{row.x}"} for row in experiment.rows]
    if unknown := set(wanted).difference(*names):
        legal = ", ".join(dict.fromkeys(row.series for row in experiment.rows))
        raise argparse.ArgumentTypeError(f"{experiment.name}: expected rows of {legal}, or SERIES/X; given: {', '.join(sorted(unknown))}")
    rows = [row for row, of in zip(experiment.rows, names) if of & set(wanted)]
    return replace(experiment, rows=rows, claims=list(map(about_named_rows, experiment.claims)))


def _plain(value: Any) -> Any:
    """Return a value of a setting as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(vars(value)) if is_dataclass(value) else value


def table_line(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def two_plots() -> tuple[Any, Any, Any] | None:
    """Return an empty figure and its left and right axes; None if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, *figure.subplots(1, 2)


# -- claims ---------------------------------------------------------------------------------------------------


def ratio(a: float, b: float) -> float:
    """Return a / b; infinity if b is 0."""
    return a / b if b else float("inf")


def series(found: Rows, name: str, measure: str) -> list[tuple[float, float]]:
    """Return (x, value) of a series by rising x.

    :raises KeyError: there are fewer than two.
    """
    points = sorted((x, row[measure]) for (series, x), row in found.items() if series == name and x is not None)
    if len(points) < 2:
        raise KeyError(name)
    return points


def listed(points: Sequence[tuple[Any, float]], digits: int = 0) -> str:
    """Return points as text."""
    return ", ".join(f"{f'{x:g}' if isinstance(x, (int, float)) else x}: {value:,.{digits}f}" for x, value in points)


def times(text: str, slow: tuple[str, Any], fast: tuple[str, Any], measure: str, at_least: float, digits: int = 1) -> Claim:
    """Claim that a measure of one row is at least ``at_least`` times that of another row."""

    def check(found: Rows) -> tuple[bool, str]:
        a, b = found[slow][measure], found[fast][measure]
        return ratio(a, b) >= at_least, f"{a:,.{digits}f} : {b:,.{digits}f} = {ratio(a, b):.2f}"

    return Claim(text, check)


def best(text: str, name: str, x: float, measure: str, within: float) -> Claim:
    """Claim that a point of a line is the lowest one, within a factor."""

    def check(found: Rows) -> tuple[bool, str]:
        points = series(found, name, measure)
        return dict(points)[x] <= within * min(value for _, value in points), listed(points, 1)

    return Claim(text, check)


def trend(text: str, name: str, measure: str, sign: int, digits: int = 1) -> Claim:
    """Claim that a line rises (``sign`` 1) or falls (-1) from its first to its last point."""

    def check(found: Rows) -> tuple[bool, str]:
        points = series(found, name, measure)
        return (points[-1][1] - points[0][1]) * sign > 0, listed(points, digits)

    return Claim(text, check)


def slower_than_x(text: str, name: str, measure: str) -> Claim:
    """Claim that a line rises at most in proportion to x."""

    def check(found: Rows) -> tuple[bool, str]:
        points = series(found, name, measure)
        (x0, first), (x1, last) = points[0], points[-1]
        return ratio(last, first) <= x1 / x0, f"{listed(points, 1)}; {ratio(last, first):.1f} times for {x1 / x0:.0f} times"

    return Claim(text, check)


def steady(text: str, name: str, measure: str, within: float, digits: int = 1) -> Claim:
    """Claim that a line stays within a factor."""

    def check(found: Rows) -> tuple[bool, str]:
        points = series(found, name, measure)
        values = [value for _, value in points]
        return ratio(max(values), min(values)) <= within, listed(points, digits)

    return Claim(text, check)
