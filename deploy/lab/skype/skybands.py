"""The skyband buffers with which Skype compares its cost-based one."""

from __future__ import annotations

import numpy as np

from dskype.bolts.topk.buffers.skyband import Skybands
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["KSkybandBuffers", "SkybandBuffers"]


class SkybandBuffers(Skybands):
    """Keeps the k-skyband of messages at or above a fixed share of the k-th score (the baseline *Skyband*, section 7.2). A share of a time score means nothing.

    :param ratio: ratio of theta to the k-th score at the last re-evaluation, above 0, at most 1; default 0.95.
    :param reach: number of messages in an answer, as a multiple of k (at least 2); if more messages are at or above the ratio, theta is the
        score of the last one.
    """

    def __init__(self, extent: int, *, ratio: float = 0.95, reach: float = 10.0) -> None:
        super().__init__(extent)
        if not 0 < ratio <= 1:
            raise IllegalArgumentException(explain("The ratio of theta to the k-th score is not usable.", given=ratio, legal="buffer option ratio in 0..1"))
        if not reach >= 2:
            raise IllegalArgumentException(explain("The reach of an answer is not usable.", given=reach, legal="buffer option reach >= 2"))
        self.ratio, self.reach = float(ratio), float(reach)

    def expected(self, k: int) -> tuple[int, int]:
        """Return ``reach * k`` (at least k + 20, because some may expire on the way), and the size of the skyband of that many messages."""
        return max(int(self.reach * k), k + 20), int(np.ceil(k * (1 + np.log(self.reach))))


class KSkybandBuffers(SkybandBuffers):
    """Keeps the k-skyband of messages at or above the k-th score of the last re-evaluation (Mouratidis et al., section 6.1)."""

    decays = True

    def __init__(self, extent: int) -> None:
        super().__init__(extent, ratio=1.0, reach=2.0)
