"""What happens when: drawn from a seed, without Spark and without a clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Strike", "draw"]

_TOGETHER = 0.2
_PAUSE_S = (1.0, 5.0)


@dataclass(frozen=True)
class Strike:
    """One or two faults at a time.

    :ivar number: from 1.
    :ivar faults: their names; the second one strikes while the first one lasts.
    :ivar lasts_s: how long the first one lasts until it is healed, in seconds; 0: it heals at once.
    :ivar pause_s: how long everything works before, in seconds.
    :ivar choice: 0 <= choice < 1; which of several processes.
    """

    number: int
    faults: tuple[str, ...]
    lasts_s: float
    pause_s: float
    choice: float

    def as_text(self) -> str:
        """Say it in a line."""
        return f"{self.number}. {' and '.join(self.faults)}{f' for {self.lasts_s:.1f} s' if self.lasts_s else ''}"


def draw(seed: int, lasts: Mapping[str, tuple[float, float]], partners: Sequence[str] = ()) -> Iterator[Strike]:
    """Yield strikes without end: every fault once in an order of its own, then every fault once again, and so on.

    The same seed and the same faults give the same strikes.

    :param lasts: fault -> shortest and longest duration, in seconds.
    :param partners: faults that may strike beside another one, of those in ``lasts``.
    """
    rng = random.Random(seed)
    number = 0
    while lasts:
        names = sorted(lasts)
        rng.shuffle(names)
        for name in names:
            number += 1
            together = [p for p in partners if p != name]
            faults = (name, rng.choice(together)) if together and rng.random() < _TOGETHER else (name,)
            yield Strike(number, faults, round(rng.uniform(*lasts[name]), 1), round(rng.uniform(*_PAUSE_S), 1), rng.random())
