"""The result of a verification."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dskype.deploy.machine.terminal import counted

__all__ = ["KEPT", "KINDS", "SHARED_RESULT_ID", "WRITTEN_AGAIN", "Difference", "Report"]

KEPT = 20
"""How many differences of each kind are kept with their texts; the others are only counted."""

WRITTEN_AGAIN = "records that were written again (record-id)"
"""Name of a note: repetitions, which are allowed."""

SHARED_RESULT_ID = "deltas of two messages with one id, which have one result-id"
"""Name of what is unchecked: only their messages' numbers tell these deltas apart, and those are not published."""

KINDS = ("format", "write", "sequence", "dead-letter", "registration", "state", "delta", "match", "search")


@dataclass(frozen=True)
class Difference:
    """One difference from what must hold.

    :ivar kind: ``format`` | ``write`` | ``sequence`` | ``dead-letter`` | ``registration`` | ``state`` | ``delta`` | ``match`` | ``search``.
    :ivar text: one sentence.
    :ivar details: lines that show it, for example two lists side by side.
    :ivar where: ``topic/partition offset n`` if it concerns one record.
    """

    kind: str
    text: str
    details: tuple[str, ...] = ()
    where: str | None = None
    subscription: str | None = None
    registration: str | None = None
    watermark: int | None = None
    expected: Any = None
    published: Any = None

    def as_text(self) -> str:
        """Return the difference as lines of text."""
        place = f"  ({self.where})" if self.where else ""
        return "\n".join([f"{self.kind}: {self.text}{place}", *(f"  {line}" for line in self.details)])

    def as_json(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        return {
            name: value
            for name in ("kind", "text", "where", "subscription", "registration", "watermark", "expected", "published")
            if (value := getattr(self, name)) is not None
        }


@dataclass
class Report:
    """What was read and compared, and what differs.

    :ivar topology: its name.
    :ivar run: the run that was compared, as its records name it.
    :ivar final: the lists at the newest message were compared as well.
    :ivar watermark: position of the newest message; -1: there is none.
    :ivar read: topic -> records.
    :ivar compared: what -> how many.
    :ivar notes: what -> how many: not wrong, but useful to know (jumps, repeated records, order of equal scores).
    :ivar unchecked: reason -> how many results could not be compared.
    :ivar differences: the first ones in full, causes before consequences, then by watermark.
    :ivar counts: kind -> number of differences.
    """

    topology: str = "dskype"
    run: str = ""
    final: bool = False
    watermark: int = -1
    read: dict[str, int] = field(default_factory=dict)
    compared: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.counts

    def differ(self, kind: str, text: str, **more: Any) -> None:
        """Add a difference."""
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT:
            self.differences.append(Difference(kind, text, **more))

    def sort(self) -> None:
        """Sort the differences: causes before consequences."""
        least = -(1 << 62)
        groups = {kind: min(KINDS.index(kind), 5) for kind in KINDS}  # results of all kinds: by watermark
        self.differences.sort(key=lambda d: (groups[d.kind], least if d.watermark is None else d.watermark))

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "ok": self.ok,
            "topology": self.topology,
            "run": self.run,
            "final": self.final,
            "watermark": self.watermark,
            "read": self.read,
            "compared": dict(self.compared),
            "notes": dict(self.notes),
            "unchecked": dict(self.unchecked),
            "differences": dict(self.counts),
            "first": [d.as_json() for d in self.differences],
            "seconds": round(self.seconds, 3),
        }

    def as_text(self, shown: int = 1) -> str:
        """Return the report as text.

        :param shown: differences to show in full.
        """
        lines = [f"read      {_table(self.read)}", f"compared  {_table(self.compared) or 'nothing'}"]
        lines += [f"note      {n:,} {what}" for what, n in self.notes.items() if n]
        lines += [f"unchecked {n:,} {why}" for why, n in self.unchecked.items() if n]
        state = f"watermark {self.watermark}, {'with' if self.final else 'without'} the final lists, {self.seconds:.1f} s"
        if self.ok:
            return "\n".join([*lines, f"equal     {state}"])
        lines += ["", *("\n".join([d.as_text(), ""]) for d in self.differences[:shown])]
        more = sum(self.counts.values())
        return "\n".join([*lines, f"DIFFERENT {counted(more, 'difference')} ({_table(self.counts)}); {state}"])


def _table(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items())
