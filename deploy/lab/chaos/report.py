"""The table at the end: for each fault how often it struck, how fast the output recovered, and what was wrong."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Outcome", "Result", "as_table", "markdown_table", "summary"]


@dataclass
class Outcome:
    """The outcome of a strike.

    :ivar faults: names of the faults, as one text.
    :ivar silent_s: the longest time without output after the strike, in seconds.
    :ivar caught_up_s: seconds from healing until the output was at most two seconds behind the input; None: not in time.
    :ivar drivers: how often the driver was restarted.
    :ivar queries: how often queries were restarted.
    :ivar repeated: records that were written again, with equal content.
    :ivar memory_mib: the highest memory of driver, JVM and executors together, in MiB.
    :ivar clients_s: seconds from healing until the last client worked again; None: there are none, or one did not.
    :ivar client: that client; empty: there are none.
    :ivar problems: what was wrong; empty: nothing.
    """

    faults: str
    silent_s: float
    caught_up_s: float | None
    drivers: int = 0
    queries: int = 0
    repeated: int = 0
    memory_mib: float = 0.0
    clients_s: float | None = None
    client: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the output caught up in time and nothing was wrong."""
        return not self.problems and self.caught_up_s is not None


@dataclass
class Result:
    """The result of a whole run.

    :ivar command: the command that repeats it.
    """

    workload: str
    seed: int
    command: str
    outcomes: list[Outcome] = field(default_factory=list)
    records: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong at any time."""
        return not self.problems and all(outcome.ok for outcome in self.outcomes)


def _span(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "never"
    text = f"{statistics.median(known):.1f}" if len(known) == 1 else f"{statistics.median(known):.1f} / {max(known):.1f}"
    return text if len(known) == len(values) else f"{text}, {len(values) - len(known)} never"


_HEAD = ("fault", "times", "silent s", "caught up s", "driver starts", "query restarts", "written again", "most MiB", "clients s", "verdict")


def _table(outcomes: Sequence[Outcome]) -> str:
    kinds: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        kinds.setdefault(outcome.faults, []).append(outcome)
    rows = [
        (
            name,
            str(len(of)),
            _span([o.silent_s for o in of]),
            _span([o.caught_up_s for o in of]),
            str(sum(o.drivers for o in of)),
            str(sum(o.queries for o in of)),
            str(sum(o.repeated for o in of)),
            f"{max(o.memory_mib for o in of):,.0f}",
            _span([o.clients_s for o in of if o.client]) if any(o.client for o in of) else "",
            "ok" if all(o.ok for o in of) else "WRONG",
        )
        for name, of in sorted(kinds.items())
    ]
    return markdown_table([_HEAD, *rows])


def markdown_table(rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Return rows, the first of which has the headings, as an aligned table in Markdown.

    :param right: align all columns but the first one at the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "| " + " | ".join(cell.rjust(width) if right and i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def as_table(result: Result) -> str:
    """Return a run as text: a table in Markdown, and what was wrong. Seconds are median / maximum; ``caught up`` counts from healing."""
    wrong = [f"{o.faults}: {text}" for o in result.outcomes for text in (o.problems or ([] if o.ok else ["the output did not catch up in time"]))]
    wrong += [f"at the end: {text}" for text in result.problems]
    end = f"{result.workload}, seed {result.seed}: {len(result.outcomes)} strikes, {result.records:,} records, {result.repeated:,} written again; " + (
        "nothing lost, nothing twice, nothing wrong" if result.ok else f"{len(wrong)} problems"
    )
    return "\n".join([_table(result.outcomes), "", *(f"WRONG  {text}" for text in wrong), end, f"again  {result.command}"])


def summary(results: Sequence[Result]) -> str:
    """Return several runs as one text: the table of all their strikes, and which runs were wrong."""
    wrong = [f"{result.workload} with seed {result.seed}" for result in results if not result.ok]
    end = f"{len(results)} runs, {sum(len(r.outcomes) for r in results):,} strikes, {sum(r.records for r in results):,} records; " + (
        f"wrong: {', '.join(wrong)}" if wrong else "nothing lost, nothing twice, nothing wrong"
    )
    return f"{_table([outcome for result in results for outcome in result.outcomes])}\n\n{end}"
