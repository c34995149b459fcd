"""The schedule of strikes, drawn from a seed, without Spark and without a clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Strike", "draw"]

_TOGETHER = 0.2
_PAUSE_S = (1.0, 5.0)


@dataclass(frozen=True)
class Strike:
    """One fault, or two at the same time.

    :ivar number: from 1.
    :ivar faults: their names; the second one strikes while the first one lasts.
    :ivar lasts_s: seconds until the first one is healed; 0: at once.
    :ivar pause_s: seconds without faults before the strike.
    :ivar choice: 0 <= choice < 1; selects one of several processes.
    """

    number: int
    faults: tuple[str, ...]
    lasts_s: float
    pause_s: float
    choice: float

    def as_text(self) -> str:
        """Return the strike as one line."""
        return f"{self.number}. {' and '.join(self.faults)}{f' for {self.lasts_s:.1f} s' if self.lasts_s else ''}"


def draw(seed: int, lasts: Mapping[str, tuple[float, float]], partners: Sequence[str] = ()) -> Iterator[Strike]:
    """Yield strikes without end: every fault once in random order, then every fault once in another order, and so on.

    The same seed and the same faults give the same strikes.

    :param lasts: fault -> shortest and longest duration, in seconds.
    :param partners: faults in ``lasts`` that may strike together with another one.
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
